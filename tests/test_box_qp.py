"""Steps in a box: feasible, never upwards, with margins that stay those of the multipliers, and to the minimum."""

import numpy as np
import pytest

from margindist.solvers.box_qp import coordinate_pass, exchange_on_face, factor_of_face, newton_on_face


def objective(A, beta):
    return 0.5 * beta @ A @ beta - beta.sum()


@pytest.mark.parametrize("upper", [0.3, 5.0, np.inf], ids=["tight", "wide", "no bound"])
@pytest.mark.parametrize("rank", [4, 30])
def test_passes_and_newton_steps_lead_to_the_minimum(rank, upper, rng):
    F = rng.normal(size=(20, rank)) + 1.0
    A = F @ F.T / rank + 0.05 * np.eye(20)
    upper = np.full(20, upper)
    beta, z = np.zeros(20), np.zeros(20)
    for n_round in range(40):
        before = objective(A, beta)
        if n_round % 2:
            face = np.flatnonzero((beta > 0.0) & (beta < upper))
            newton_on_face(A, upper, beta, z, face, factor_of_face(A, face))
        else:
            coordinate_pass(A, upper, beta, z)
        assert (beta >= 0.0).all() and (beta <= upper).all() and np.isfinite(beta).all()
        assert objective(A, beta) <= before + 1e-12 * abs(before)
        np.testing.assert_allclose(z, A @ beta, atol=1e-10)
    assert_optimal(A, upper, beta)


@pytest.mark.parametrize("upper", [0.01, 0.3, np.inf], ids=["tight", "wide", "no bound"])
def test_exchanges_end_at_the_minimum_and_nowhere_else(upper, rng):
    F = rng.normal(size=(60, 80)) + 0.3
    A = F @ F.T / 80 + 0.05 * np.eye(60)
    upper = np.full(60, upper)
    beta, z = np.zeros(60), np.zeros(60)
    face, n_exchanged, counts = np.arange(60), 60, []
    while n_exchanged:
        face, n_exchanged = exchange_on_face(A, np.zeros(60), upper, beta, z, face, factor_of_face(A, face))
        assert (beta >= 0.0).all() and (beta <= upper).all()
        np.testing.assert_allclose(z, A @ beta, atol=1e-9)
        counts.append(n_exchanged)
    assert_optimal(A, upper, beta)
    np.testing.assert_array_equal(face, np.flatnonzero((beta > 0.0) & (beta < upper)))
    assert 2 <= len(counts) <= 15  # a dozen steps where single exchanges would take as many as there are variables


def test_margins_stay_those_of_the_multipliers_where_a_face_has_its_minimum_far_outside(rng):
    F = rng.normal(size=(40, 3))
    A, base, upper = F @ F.T, rng.normal(size=40), np.full(40, 2.0)
    beta = rng.uniform(0.0, 2.0, 40)
    z = base + A @ beta
    exchange_on_face(A, base, upper, beta, z, np.arange(40), factor_of_face(A, np.arange(40)))
    assert (beta >= 0.0).all() and (beta <= upper).all()
    np.testing.assert_allclose(z, base + A @ beta, rtol=1e-12, atol=1e-12)


def assert_optimal(A, upper, beta):
    slope = A @ beta - 1.0
    assert np.abs(slope[(beta > 0.0) & (beta < upper)]).max(initial=0.0) <= 1e-8
    assert (slope[beta == 0.0] >= -1e-8).all() and (slope[beta == upper] <= 1e-8).all()


def test_a_row_of_zeros_goes_to_its_bound_if_it_has_one():
    A = np.diag([0.0, 2.0])
    for bound, expected in ((3.0, 3.0), (np.inf, 0.0)):
        beta, z = np.zeros(2), np.zeros(2)
        coordinate_pass(A, np.full(2, bound), beta, z)
        np.testing.assert_allclose(beta, [expected, 0.5])
