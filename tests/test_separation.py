"""Whether there is a hard margin: found exactly, or proved to be impossible."""

import numpy as np
import pytest
import scipy.sparse as sp

from margindist import LDMClassifier
from margindist.objectives import LDM
from margindist.solvers import separation
from margindist.solvers._solution import Options, Problem, Status
from margindist.spaces.rows import as_rows
from tests.reference import ldm as reference


def separate(X, signs, lambda1=0.0, lambda2=0.0, tol=1e-6):
    return separation.solve(
        Problem(LDM(np.inf, lambda1, lambda2), as_rows(X), signs, np.ones(len(signs))), Options(tol)
    )


def separable(shape, seed):
    """Return rows whose lengths differ by orders of magnitude, and signs that some weights give them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 2, (shape[0], 1))
    return X, np.sign(X @ rng.normal(size=shape[1]))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("shape", "seed"), [((30, 3), 0), ((60, 10), 1), ((12, 40), 2), ((5, 1), 3)])
def test_without_margin_terms_it_is_the_maximum_margin(form, shape, seed):
    X, signs = separable(shape, seed)
    found = separate(form(X), signs)
    _, minimum = reference.minimise(X, signs, np.inf, 0.0, 0.0)
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(minimum, rel=1e-5)
    assert (signs * (X @ found.coef)).min() >= 1.0 - 1e-9


def test_with_margin_terms_it_is_a_point_to_start_from():
    X, signs = separable((40, 5), 0)
    found = separate(X, signs, lambda1=1.0, lambda2=1.0)
    assert np.isfinite(found.objective)
    assert found.objective == pytest.approx(reference.value(X, signs, found.coef, 0.0, 1.0, 1.0))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_overlapping_classes_are_proved_to_overlap(scale):
    rng = np.random.default_rng(0)
    X = scale * rng.normal(size=(80, 4))
    signs = np.where(rng.random(80) < 0.5, -1.0, 1.0)
    found = separate(X, signs)
    assert found.status is Status.INFEASIBLE
    shares = found.dual / found.dual.sum()
    assert shares.min() >= 0.0
    assert np.linalg.norm((shares * signs) @ X) <= 1e-9 * scale  # some point is in both hulls, mirrored


def test_an_empty_row_and_a_row_with_both_labels_have_no_hard_margin():
    X, signs = separable((10, 20), 0)
    X[3] = 0.0
    assert separate(X, signs).status is Status.INFEASIBLE
    X[3] = X[4]
    signs[3] = -signs[4]
    assert separate(X, signs).status is Status.INFEASIBLE


@pytest.mark.parametrize("small", [1.0, 1e-10, 1e-30])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_small_column_separates_beside_a_large_one(form, small):
    X = np.array([[1e8, 0.0], [1e8, small], [-1e8, 0.0], [-1e8, small]])
    signs = np.array([-1.0, 1.0, -1.0, 1.0])
    rows = as_rows(form(X), fit_intercept=True)
    found = separation.solve(Problem(LDM(np.inf, 0.0, 0.0), rows, signs, np.ones(4)), Options(1e-6))
    assert (signs * (X @ found.coef[:2] + found.coef[2])).min() >= 1.0 - 1e-9


@pytest.mark.parametrize("solver", ["auto", "interior-point", "coordinate-descent", "block"])
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_rows_that_a_threshold_far_from_their_own_size_separates_are_not_refused(solver, scale):
    rng = np.random.default_rng(0)
    X = scale * rng.integers(0, 9, size=(60, 8)).astype(float)
    direction = rng.normal(size=8)
    y = X @ direction > np.median(X @ direction)
    model = LDMClassifier(C=np.inf, lambda1=0.0, lambda2=0.0, solver=solver).fit(X, y)
    assert model.score(X, y) == 1.0


def test_few_rows_are_affordable_and_many_are_not():
    assert separation.affordable(as_rows(np.ones((400, 300))))
    assert not separation.affordable(as_rows(np.ones((3000, 500))))
