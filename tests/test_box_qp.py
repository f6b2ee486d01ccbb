"""Steps in a box: feasible, never upwards, with margins that stay those of the multipliers, and to the minimum."""

import numpy as np
import pytest

from margindist.solvers.box_qp import coordinate_pass, factor_of_face, newton_on_face


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
    slope = A @ beta - 1.0
    assert np.abs(slope[(beta > 0.0) & (beta < upper)]).max(initial=0.0) <= 1e-8
    assert (slope[beta == 0.0] >= -1e-8).all() and (slope[beta == upper] <= 1e-8).all()


def test_a_row_of_zeros_goes_to_its_bound_if_it_has_one():
    A = np.diag([0.0, 2.0])
    for bound, expected in ((3.0, 3.0), (np.inf, 0.0)):
        beta, z = np.zeros(2), np.zeros(2)
        coordinate_pass(A, np.full(2, bound), beta, z)
        np.testing.assert_allclose(beta, [expected, 0.5])
