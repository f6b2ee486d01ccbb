"""LDM: every solver ends at the same certified optimum of the objective as it is written down."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC, LinearSVC

from margindist import LDMClassifier
from margindist import solve as driver
from margindist.certificate import relative
from margindist.margins import loo_error_bound
from margindist.objectives import LDM
from margindist.solvers import (
    augmented_lagrangian,
    block_descent,
    coordinate_descent,
    interior_point,
    separation,
    stochastic,
)
from margindist.solvers._solution import Options, Problem, Solution, Status
from margindist.spaces.rows import as_rows
from margindist.spaces.space import KernelSpace
from tests.reference import ldm as reference

SOLVERS = ["interior-point", "coordinate-descent", "block", "dcd"]


def problem(kind, seed=0):
    """Small problems of every awkward shape; rows, signs."""
    rng = np.random.default_rng(seed)
    m, d = {"m < d": (15, 30), "single feature": (25, 1)}.get(kind, (40, 5))
    X = rng.normal(size=(m, d))
    signs = np.where(X[:, 0] + rng.normal(size=m) > 0, 1.0, -1.0)
    if kind == "rank-deficient":
        X = np.hstack([X, X[:, :3] @ rng.normal(size=(3, 4))])
    elif kind == "duplicated rows":
        X, signs = np.vstack([X, X[:20], X[:5]]), np.concatenate([signs, signs[:20], -signs[:5]])
    elif kind == "constant features":
        X[:, 1:3] = [0.0, 2.0]
    elif kind == "zero rows":
        X[:4] = 0.0
    return X, signs


KINDS = [
    "plain", "m < d", "single feature", "rank-deficient", "duplicated rows", "constant features", "zero rows"
]  # fmt: skip


def fit(X, signs, C, lambda1, lambda2, **options):
    return LDMClassifier(C, lambda1, lambda2, fit_intercept=False, random_state=0, **options).fit(X, signs)


def assert_certified(model, X, signs, C, lambda1, lambda2, minimum, slack=1e-9):
    """The objective is what it says, and is no further above the minimum than the gap says."""
    objective = reference.value(X, signs, model.coef_[0], C, lambda1, lambda2)
    assert model.objective_ == pytest.approx(objective, rel=1e-9, abs=1e-9)
    scale = max(abs(minimum), 1.0)
    assert objective >= minimum - slack * scale
    assert objective - minimum <= model.duality_gap_ * abs(objective) + slack * scale


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", [10, 50, 100, 1e4])
def test_agrees_with_a_generic_solver(kind, C):
    for seed, (lambda1, lambda2) in enumerate([(0, 0), (2**-8, 2**-2), (2**-2, 2**-8), (0, 1), (16, 0), (16, 16)]):
        X, signs = problem(kind, seed)
        _, minimum = reference.minimise(X, signs, C, lambda1, lambda2)
        for matrix in (X, sp.csr_array(X)):
            model = fit(matrix, signs, C, lambda1, lambda2, tol=1e-8)
            assert_certified(model, X, signs, C, lambda1, lambda2, minimum, slack=1e-8)
            assert model.objective_ == pytest.approx(minimum, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_solver_ends_at_the_same_optimum(kind, solver):
    for C, lambda1, lambda2 in [(1, 0, 0), (1, 0.25, 0.25), (10, 4, 1), (100, 16, 16)]:
        X, signs = problem(kind)
        _, minimum = reference.minimise(X, signs, C, lambda1, lambda2)
        model = fit(X, signs, C, lambda1, lambda2, solver=solver, tol=1e-6, max_iter=100_000)
        assert_certified(model, X, signs, C, lambda1, lambda2, minimum, slack=1e-8)
        assert model.duality_gap_ <= 1e-6
        assert model.solver_ == solver


UNSCALED = {  # shape, seed, shift and scale of the rows, parameters, solver
    "far from the origin": ((29, 5), 6, 1e3, 2e3, (0.001, 100.0, 0.0), "block"),
    "large kernel values": ((40, 5), 6, 0.0, 1e3, (1e6, 0.25, 100.0), "block"),
    "steep Newton steps": ((19, 7), 26, 0.0, 1e5, (1.0, 1e4, 100.0), "coordinate-descent"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", UNSCALED)
def test_certificates_hold_on_unscaled_data(name):
    shape, seed, shift, scale, parameters, solver = UNSCALED[name]
    rng = np.random.default_rng(seed)
    X, signs = (rng.standard_normal(shape) + shift) * scale, rng.choice([-1.0, 1.0], shape[0])
    best = fit(X, signs, *parameters, solver="interior-point", tol=1e-6)
    model = fit(X, signs, *parameters, solver=solver)
    objective = reference.value(X, signs, model.coef_[0], *parameters)
    assert model.objective_ == pytest.approx(objective, rel=1e-9)
    assert objective - best.objective_ <= (model.duality_gap_ + 2e-6) * abs(objective)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "error::sklearn.exceptions.ConvergenceWarning")
def test_values_beyond_all_digits_are_said_to_be_so(solver):
    rng = np.random.default_rng(0)
    X, signs = (1e20 * rng.standard_normal((40, 5))).astype(np.float32), rng.choice([-1.0, 1.0], 40)
    with pytest.raises((ValueError, ConvergenceWarning), match="scale the features"):
        LDMClassifier(solver=solver, random_state=0).fit(X, signs)


@pytest.mark.parametrize("n_zeros", [0, 3000])
def test_a_hard_margin_that_exists_is_found(n_zeros):
    X, y = load_breast_cancer(return_X_y=True)
    X = np.hstack([MinMaxScaler().fit_transform(X)[:150], np.zeros((150, n_zeros))])
    best = LDMClassifier(np.inf, solver="block", tol=1e-6).fit(X, y[:150])
    model = LDMClassifier(np.inf, solver="coordinate-descent", tol=1e-6, random_state=0).fit(X, y[:150])
    assert model.objective_ == pytest.approx(best.objective_, rel=2e-6)


@pytest.mark.parametrize("solver", ["auto", "interior-point", "coordinate-descent", "block"])
@pytest.mark.parametrize("kind", ["large column", "small margin"])
def test_a_hard_margin_far_from_the_rows_scale_is_found(kind, solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] > 0
    if kind == "large column":
        X[:, 3] = 1e6
    else:
        X[:2] = [1e-5, 1.0, 0.0, 0.0], [-1e-5, 1.0, 0.0, 0.0]
        y[:2] = True, False
    model = LDMClassifier(np.inf, 0.0, 0.0, fit_intercept=False, solver=solver, random_state=0).fit(X, y)
    assert model.duality_gap_ <= 1e-4
    assert (np.where(y, 1, -1) * model.decision_function(X)).min() >= 1 - 1e-6


@pytest.mark.parametrize("solver", ["auto", "interior-point", "coordinate-descent", "block"])
def test_a_row_of_both_classes_has_no_hard_margin_whatever_the_lambdas(solver):
    rng = np.random.default_rng(0)
    for _ in range(5):
        X = 100.0 * rng.normal(size=(10, 3))
        X[8] = X[0]
        with pytest.raises(ValueError, match="not separable"):
            LDMClassifier(np.inf, 1e6, 600.0, solver=solver).fit(X, [0, 1, 0, 0, 1, 0, 0, 0, 1, 1])


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_empty_row_has_no_hard_margin(solver):
    with pytest.raises(ValueError, match="not separable"):
        LDMClassifier(np.inf, fit_intercept=False, solver=solver).fit([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, 0, 1])


@pytest.mark.parametrize("seed", [12, 457, 747, 1525])  # Mehrotra's steps alone went round in circles on these
def test_interior_point_does_not_cycle(seed):
    rng = np.random.default_rng(seed)
    m, d = rng.choice([6, 8, 12, 20]), rng.choice([1, 2, 3, 5])
    X = rng.normal(size=(m, d))
    signs = np.where(rng.random(m) < 0.5, 1.0, -1.0)
    signs[:2] = 1.0, -1.0
    rows = as_rows(X, seed % 2 == 0)
    for objective in (
        LDM(C, lambda1, lambda2) for C in (1.0, 100.0) for lambda1 in (0.0, 1.0) for lambda2 in (10, 600)
    ):
        found = interior_point.solve(Problem(objective, rows, signs, np.ones(m)), Options(tol=1e-4))
        assert found.status is Status.OPTIMAL and found.n_iter < 50


def test_a_warm_start_from_short_weights_reaches_a_hard_margin():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    signs = np.sign(X[:, 0])
    model = fit(X, signs, 1e-6, 0.0, 0.0, solver="interior-point", warm_start=True)
    model.set_params(C=np.inf).fit(X, signs)
    assert model.objective_ == pytest.approx(fit(X, signs, np.inf, 0.0, 0.0).objective_, rel=2e-4)


def wide(kind):
    """Problems of many columns on which long penalties in single precision lost their way."""
    rng = np.random.default_rng(1)
    m = 325 if kind == "uniform" else 100
    X, y = rng.uniform(size=(m, 2260 if kind == "uniform" else 1200)), rng.integers(2, size=m)
    if kind == "repeated rows":
        X, y = np.tile(X, (3, 1)), np.tile(y, 3)
    elif kind == "constant column":
        X[:, 3] = 1e6
    return X, y


@pytest.mark.parametrize("kind", ["uniform", "repeated rows", "constant column"])
@pytest.mark.parametrize("C", [100.0, 1e4])
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_many_columns(kind, C):
    X, y = wide(kind)
    best = LDMClassifier(C, solver="interior-point", tol=1e-6).fit(X, y)
    for solver in ("auto", "coordinate-descent"):
        model = LDMClassifier(C, solver=solver, random_state=0).fit(X, y)
        assert model.n_iter_ < 300
        assert model.objective_ - best.objective_ <= 1.01e-4 * model.objective_


def noisy_halves(m, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((m, d))
    return X, np.where((X - 0.5) @ rng.normal(size=d) + 0.3 * rng.normal(size=m) > 0, 1.0, -1.0)


@pytest.mark.parametrize("lambdas", [(0.0, 0.0), (0.25, 0.25)])
def test_auto_tries_passes_where_a_few_may_do(lambdas):
    X, signs = noisy_halves(16_000, 8)
    small = fit(X, signs, 1e-3, *lambdas)
    assert small.solver_ == "coordinate-descent" and small.duality_gap_ <= 1e-4
    assert fit(X, signs, 10.0, *lambdas).solver_ == "interior-point"  # which costs hardly more, with so few columns
    assert fit(X, signs, 1e-3, 100.0, 0.0, tol=0.1).solver_ == "interior-point"  # the variance ties rows together
    assert fit(X[:1000], signs[:1000], 1e-3, *lambdas).solver_ == "interior-point"


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_passes_that_will_not_do_are_a_start_where_a_sample_is_none(monkeypatch, form):
    monkeypatch.setattr(interior_point, "SETTINGS", interior_point.Settings(sample_above=2000))
    X, signs = noisy_halves(3000, 80)
    handed = fit(form(X), signs, 100.0, 0.25, 0.25)
    alone = fit(X, signs, 100.0, 0.25, 0.25, solver="interior-point", tol=1e-8)
    assert handed.solver_ == "coordinate-descent" and handed.n_iter_ < 60
    assert handed.duality_gap_ <= 1e-4
    assert alone.objective_ * (1 - 1e-8) <= handed.objective_ <= alone.objective_ * (1 + 1e-4)


def test_a_rough_point_does_not_replace_a_start_of_its_own(monkeypatch):
    X, signs = noisy_halves(6000, 40)
    starts = []

    def solve(problem, options, start=None):
        starts.append(start)
        return solved(problem, options, start)

    solved = interior_point.solve
    monkeypatch.setattr(interior_point, "solve", solve)
    monkeypatch.setattr(driver, "cost_in_passes", lambda rows: 23.0)
    assert fit(sp.csr_array(X), signs, 1.3, 0.0, 0.0).solver_ == "coordinate-descent"
    assert starts == [None]


def test_coordinate_descent_gives_up_when_another_method_would_be_done():
    X, signs = noisy_halves(1500, 80)
    hinge = Problem(LDM(100.0, 0.0, 0.0), as_rows(X), signs, np.ones(1500))
    found = coordinate_descent.solve(hinge, Options(tol=1e-6, choices={"rival": 10}))
    assert found.status is Status.STALLED and found.n_iter <= 10
    found = coordinate_descent.solve(hinge, Options(tol=1e-6, choices={"rival": 100}))
    assert found.status is Status.STALLED and 10 <= found.n_iter < 100  # not at the first look
    patient = coordinate_descent.solve(hinge, Options(tol=1e-6, max_iter=2))
    assert patient.status is Status.ITERATION_LIMIT and patient.n_iter == 2


@pytest.mark.parametrize("copied", [1 << 28, 0])
@pytest.mark.parametrize("lambdas", [(0.0, 0.0), (0.25, 0.25)])
def test_rows_that_coordinate_descent_leaves_out_come_back(monkeypatch, lambdas, copied):
    X, signs = noisy_halves(900, 5, seed=1)
    order = np.argsort(signs, kind="stable")  # neighbours that pull in one direction
    X, signs = X[order], signs[order]
    monkeypatch.setattr(coordinate_descent, "SETTINGS", coordinate_descent.Settings(largest_copy=copied))
    descent = fit(X, signs, 1.0, *lambdas, solver="coordinate-descent", tol=1e-8)
    alone = fit(X, signs, 1.0, *lambdas, solver="interior-point", tol=1e-10)
    assert descent.objective_ == pytest.approx(alone.objective_, rel=2e-8)
    assert descent.multipliers_.min() >= 0.0 and descent.multipliers_.max() <= 1.0


@pytest.mark.parametrize("form", [np.asarray, np.float32, sp.csr_array])
def test_interior_points_of_few_rows_work_in_their_span(monkeypatch, form):
    rng = np.random.default_rng(0)
    X, signs = np.round(rng.normal(size=(12, 400)), 2).astype(np.float32).astype(float), np.repeat([-1.0, 1.0], 6)
    widths = []

    def gram(rows, *others):
        widths.append(interior_point.n_columns(rows))
        return products(rows, *others)

    products = interior_point.weighted_system
    monkeypatch.setattr(interior_point, "weighted_system", gram)
    for C in (1e-3, 1.0, np.inf):
        options = {"C": C, "lambda1": 3.0, "tol": 1e-8}
        model = LDMClassifier(**options, solver="interior-point").fit(form(X), signs)
        assert set(widths) == {12} and model.coef_.shape == (1, 400)
        other = LDMClassifier(**options, solver="block").fit(X, signs)
        assert model.objective_ == pytest.approx(other.objective_, rel=2e-8)
        np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-4 * np.abs(other.coef_).max())
    assert LDMClassifier().fit(form(np.tile(X, 4)), signs).solver_ == "interior-point"


def test_conjugate_gradients_that_do_not_converge_end_the_augmented_lagrangian(monkeypatch):
    monkeypatch.setattr(augmented_lagrangian, "_FEW_COLUMNS", 0)  # up to so many they are not needed
    rng = np.random.default_rng(0)
    X = (rng.random((180, 500)) < 0.5) * 10.0 ** rng.uniform(-4, 4, 500)
    signs = np.where(rng.random(180) < 0.5, -1.0, 1.0)
    found = augmented_lagrangian.solve(Problem(LDM(0.2, 1000.0, 150.0), as_rows(X), signs, np.ones(180)), Options(1e-4))
    assert found.status is Status.STALLED and found.n_iter < 100


def test_few_columns_on_scales_far_apart_need_no_conjugate_gradients():
    rng = np.random.default_rng(0)
    X = (rng.random((180, 60)) < 0.5) * 10.0 ** rng.uniform(-4, 4, 60)
    signs = np.where(rng.random(180) < 0.5, -1.0, 1.0)
    for rows in (X, X[:40]):  # and fewer rows than columns
        asked = Problem(LDM(0.2, 1000.0, 150.0), as_rows(rows), signs[: len(rows)], np.ones(len(rows)))
        assert augmented_lagrangian.solve(asked, Options(1e-6)).status is Status.OPTIMAL


def test_interior_point_with_weights_that_differ_by_orders_of_magnitude():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    signs = np.sign(X[:, 0] + rng.normal(size=300))
    asked = Problem(LDM(1.0, 1.0, 1.0), as_rows(X), signs, 10.0 ** rng.uniform(-6, 6, 300))
    found = interior_point.solve(asked, Options(1e-6))
    assert found.status is Status.OPTIMAL
    assert found.n_iter <= 60


def test_dcd_that_is_told_how_many_passes_to_make_makes_no_others(monkeypatch):
    X, signs = problem("duplicated rows")  # some of them with both labels
    monkeypatch.setattr(block_descent, "solve", pytest.fail)
    with pytest.warns(ConvergenceWarning, match="before all margins were positive"):
        fit(X, signs, np.inf, 1.0, 1.0, solver="dcd", max_iter=3)


def test_a_block_that_stalled_on_the_kernel_is_not_tried_on_its_features(monkeypatch):
    calls, solve = [], block_descent.solve

    def counted(*args):
        calls.append(args)
        return solve(*args)._replace(status=Status.STALLED, gap=1.0)

    monkeypatch.setattr(block_descent, "solve", counted)
    X, signs = problem("plain")
    model = fit(X, signs, 1.0, 1.0, 1.0, kernel="rbf", solver="block")
    assert len(calls) == 1
    assert model.duality_gap_ <= model.tol


def hopeless(C):
    """Return numbers so large that no solver reaches tol, though a hard margin is easily found."""
    rng = np.random.default_rng(714)
    X = 1e7 * (rng.random((11, 24)) < 0.5)
    return LDMClassifier(C=C, lambda1=0.4, lambda2=3e4, tol=1e-9), X, np.arange(11) % 2


def test_a_hard_margin_that_is_there_is_not_sought_again(monkeypatch):
    model, X, y = hopeless(np.inf)
    calls, solve = [], separation.solve

    def counted(*args):
        calls.append(args)
        return solve(*args)

    monkeypatch.setattr(separation, "solve", counted)
    with pytest.warns(ConvergenceWarning, match="gap"):
        model.fit(X, y)
    assert np.isfinite(model.objective_)
    assert len(calls) == 1


def test_features_on_which_the_solver_stalls_are_not_made_finer(monkeypatch):
    model, X, y = hopeless(1.0)
    monkeypatch.setattr(KernelSpace, "finest_factor", pytest.fail)
    with pytest.warns(ConvergenceWarning, match="gap"):
        model.set_params(kernel="precomputed").fit(X @ X.T, y)


@pytest.mark.parametrize("failure", ["stalls", "loses all digits"])
def test_a_solver_that_fails_hands_over(monkeypatch, failure):
    X, signs = problem("plain")

    def fail(problem, options, start):
        if failure == "stalls":
            return Solution(np.zeros(X.shape[1]), np.zeros(len(X)), 1e9, np.inf, 7, Status.STALLED)
        raise np.linalg.LinAlgError("lost")

    best = fit(X, signs, 1.0, 1.0, 1.0)
    monkeypatch.setattr(interior_point, "solve", fail)
    model = fit(X, signs, 1.0, 1.0, 1.0)
    assert model.solver_ == "interior-point" and model.duality_gap_ <= 1e-4
    assert model.objective_ == pytest.approx(best.objective_, rel=2e-4)


@pytest.mark.parametrize("scale", [1e4, 1e10])
def test_stochastic_steps_stay_finite(scale):
    X, signs = problem("plain")
    with pytest.warns(ConvergenceWarning):
        model = LDMClassifier(solver="asgd", random_state=0).fit(scale * X, signs)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.objective_)


@pytest.mark.parametrize(("lambda1", "lambda2"), [(1e4, 1e6), (0.25, 1e6)])
def test_stochastic_steps_at_a_very_low_price(lambda1, lambda2):
    X, signs = problem("plain")
    with pytest.warns(ConvergenceWarning):
        rough = fit(X, signs, 1e-6, lambda1, lambda2, solver="asgd")
    best = fit(X, signs, 1e-6, lambda1, lambda2)
    at_zero = 1e-6 * len(signs)
    assert rough.objective_ - best.objective_ <= 0.5 * (at_zero - best.objective_)


def test_a_hard_margin_not_found_yet_is_not_refused():
    X, y = load_breast_cancer(return_X_y=True)
    model = LDMClassifier(np.inf, solver="interior-point", max_iter=2)
    with pytest.warns(ConvergenceWarning, match="after 2 iterations before all margins were positive"):
        model.fit(MinMaxScaler().fit_transform(X)[:150], y[:150])
    assert model.objective_ == np.inf and np.isfinite(model.coef_).all()


@pytest.mark.parametrize("solver", ["auto", "block"])
def test_a_kernel_matrix_without_a_hard_margin_is_refused(solver):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (320, 6)).astype(float)
    y = (X @ rng.standard_normal(6) > 0) ^ (rng.random(320) < 0.1)
    with pytest.raises(ValueError, match="not separable"):
        LDMClassifier(np.inf, 0.03, 3e6, kernel="precomputed", solver=solver).fit(X @ X.T, y)


@pytest.mark.parametrize("solver", ["auto", "interior-point", "coordinate-descent", "block"])
def test_badly_scaled_columns_without_a_hard_margin_are_refused(solver):
    rng = np.random.default_rng(8)
    X, y = rng.random((21, 9)) * 10.0 ** rng.uniform(-4, 4, 9), rng.integers(0, 2, 21)
    with pytest.raises(ValueError, match="not separable"):
        LDMClassifier(np.inf, 168.0, 0.25, fit_intercept=False, solver=solver).fit(X, y)


def test_features_that_lack_short_directions_do_not_prove_that_there_is_no_hard_margin():
    K = np.array([[1.0, 1.0], [1.0, 1.0 + 4e-11]])  # the second sample is 6e-6 away from the first
    model = LDMClassifier(np.inf, 0.0, 0.0, kernel="precomputed", fit_intercept=False, solver="interior-point")
    model.fit(K, [0, 1])
    assert model.decision_function(K) == pytest.approx([-1.0, 1.0], rel=1e-2)


@pytest.mark.parametrize("solver", ["block", "dcd"])
def test_a_high_price_of_variance_proves_nothing_about_separation(solver):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.full(40, 1e6), rng.standard_normal((40, 60))])
    y = X[:, 1] > 0
    model = LDMClassifier(np.inf, 1e6, 1.0, kernel="precomputed", fit_intercept=False, solver=solver)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X @ X.T, y)
    assert np.isfinite(model.dual_coef_).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_sparse_wide_data(solver):
    rng = np.random.default_rng(0)
    X = sp.random_array((120, 1500), density=0.02, rng=rng, format="csr")
    signs = np.where(X @ rng.normal(size=1500) + 0.1 * rng.normal(size=120) > 0, 1.0, -1.0)
    for C in (1.0, 1000.0):
        model = fit(X, signs, C, 0.5, 0.5, solver=solver, tol=1e-6, max_iter=100_000)
        best = fit(X, signs, C, 0.5, 0.5, tol=1e-9, solver="block")
        assert model.objective_ == pytest.approx(best.objective_, rel=3e-6)


def test_stochastic_solver_says_how_far_it_is():
    X, signs = problem("plain")
    for C in (0.1, 1.0, 10.0):
        _, minimum = reference.minimise(X, signs, C, 0.25, 0.25)
        with pytest.warns(ConvergenceWarning, match="duality gap"):
            model = fit(X, signs, C, 0.25, 0.25, solver="asgd", tol=1e-12)
        assert_certified(model, X, signs, C, 0.25, 0.25, minimum)
        assert model.n_iter_ == 5
    close = fit(X, signs, 0.1, 0.25, 0.25, solver="asgd", tol=1e-2, max_iter=300)
    assert close.duality_gap_ <= 1e-2


def test_pair_gradient_is_unbiased():
    """Theorem 2, by enumerating all pairs; at kinks of no hinge."""
    X, signs = problem("plain")
    w = np.random.default_rng(1).normal(size=X.shape[1])
    m, (C, lambda1, lambda2) = len(signs), (10.0, 0.5, 0.25)
    gradients = [reference.pair_gradient(X, signs, w, i, j, C, lambda1, lambda2) for i in range(m) for j in range(m)]
    slope = LDM(C, lambda1, lambda2).slope(signs * (X @ w), np.ones(m))
    np.testing.assert_allclose(np.mean(gradients, axis=0), w + X.T @ (signs * slope), rtol=1e-10)


def test_stochastic_steps_follow_the_formula():
    X, signs = problem("plain")
    m, d = X.shape
    objective, eta0 = LDM(2.0, 0.5, 0.25), 0.3
    rows, state = as_rows(X, True), stochastic.new_state(d + 1)
    stochastic.run_pass(objective, rows, signs, np.ones(m), m, eta0, 10, np.random.default_rng(3), state)
    pairs = np.random.default_rng(3).integers(m, size=(2, m))
    A = np.hstack([X, np.ones((m, 1))])
    w, kept = np.zeros(d + 1), []
    for t, (i, j) in enumerate(pairs.T):
        eta = eta0 * (1 + eta0 * t / (objective.C * m)) ** -0.75
        w = w - eta * reference.pair_gradient(A, signs, w, i, j, *objective) / (objective.C * m)
        kept.append(w)
    np.testing.assert_allclose(state.weights(), w, rtol=1e-9)
    np.testing.assert_allclose(state.average(), np.mean(kept[10:], axis=0), rtol=1e-9)


def test_slope_is_the_derivative_of_the_value():
    rng = np.random.default_rng(0)
    z, weights, objective = rng.normal(size=30), rng.uniform(0.5, 2, size=30), LDM(3.0, 0.7, 0.4)
    step = 1e-6
    numeric = [
        (objective.value(0, z + step * e, weights) - objective.value(0, z - step * e, weights)) / (2 * step)
        for e in np.eye(30)
    ]
    np.testing.assert_allclose(objective.slope(z, weights), numeric, rtol=1e-6, atol=1e-7)


def test_without_margin_terms_it_is_the_svm():
    """LinearSVC without intercept, converged tightly, minimises the same; SVC needs b = 0, which mirrored rows give."""
    X, y = load_breast_cancer(return_X_y=True)
    X, signs = MinMaxScaler().fit_transform(X), np.where(y == 1, 1.0, -1.0)
    ours = LDMClassifier(5.0, 0, 0, fit_intercept=False, tol=1e-10).fit(X, y)
    svm = LinearSVC(C=5.0, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.coef_, svm.coef_, rtol=1e-4, atol=1e-4)
    rbf = LDMClassifier(5.0, 0, 0, kernel="rbf", gamma=0.5, fit_intercept=False, tol=1e-10).fit(X, y)
    gram = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1))
    mirrored = np.block([[gram, -gram], [-gram, gram]])  # rows x and -x of opposite labels: the optimal b is 0
    both = SVC(C=2.5, kernel="precomputed", tol=1e-8).fit(mirrored, np.concatenate([signs, -signs]))
    expected = both.decision_function(mirrored)[: len(y)]
    np.testing.assert_allclose(rbf.decision_function(X), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("lambda1", "lambda2"), [(0.0, 0.0), (2.0, 2.0), (0.0, 10.0), (2.0, 100.0), (0.5, 600.0)])
def test_hard_margin(solver, lambda1, lambda2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X = X[np.abs(X[:, 0]) > 0.3]
    signs = np.sign(X[:, 0])
    w, minimum = reference.minimise(X, signs, np.inf, lambda1, lambda2)
    model = fit(X, signs, np.inf, lambda1, lambda2, solver=solver, tol=1e-6, max_iter=100_000)
    assert model.duality_gap_ <= 1e-6
    assert model.objective_ == pytest.approx(minimum, rel=2e-6)
    assert (signs * model.decision_function(X)).min() >= 1 - 1e-9
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_margin_is_no_upper_bound_on_the_margins(solver):
    model = fit([[-1.0], [1.0]], [0, 1], np.inf, 0.0, 10.0, solver=solver)
    assert (model.coef_[0, 0], model.objective_) == pytest.approx((10.0, -50.0), rel=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_margin_refuses_data_that_are_not_separable(solver):
    X, signs = problem("plain")
    with pytest.raises(ValueError, match=r"C=inf .* not separable; give a finite C"):
        fit(X, signs, np.inf, 0, 0, solver=solver)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    C=st.sampled_from([0.1, 1.0, 50.0]),
    lambda1=st.sampled_from([0.0, 0.25, 8.0]),
    lambda2=st.sampled_from([0.0, 0.25, 8.0]),
)
def test_invariances(seed, C, lambda1, lambda2):
    """Row order, rotation, flipped labels with flipped rows, and scaling of the features."""
    rng = np.random.default_rng(seed)
    X, signs = problem("plain", seed)
    if len(np.unique(signs)) < 2:
        return

    def coef(X, signs, C=C, lambda1=lambda1, lambda2=lambda2):
        return fit(X, signs, C, lambda1, lambda2, tol=1e-12).coef_[0]

    w = coef(X, signs)
    order = rng.permutation(len(signs))
    np.testing.assert_allclose(coef(X[order], signs[order]), w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(coef(-X, -signs), w, rtol=1e-4, atol=1e-5)
    rotation = np.linalg.qr(rng.normal(size=(X.shape[1],) * 2))[0]
    np.testing.assert_allclose(coef(X @ rotation, signs) @ rotation.T, w, rtol=1e-4, atol=1e-5)
    # w'x is unchanged when x is doubled, w halved, and what ½‖w‖² is traded for divided by four
    np.testing.assert_allclose(2 * coef(2 * X, signs, C / 4, lambda1 / 4, lambda2 / 4), w, rtol=1e-4, atol=1e-5)


def test_leave_one_out_bound():
    """Theorem 3, by minimising again without each row's hinge."""
    for seed, (C, lambda1) in enumerate([(0.5, 0.0), (0.1, 1.0), (2.0, 4.0)]):
        X, signs = problem("plain", seed)
        X = X / 4
        model = fit(X, signs, C, lambda1, 0.25, tol=1e-9)
        errors = 0
        for i in range(len(signs)):
            w, _ = reference.minimise(X, signs, C, lambda1, 0.25, without=i)
            errors += signs[i] * (X[i] @ w) < 0
        bound, loose = loo_error_bound(model, X, signs), loo_error_bound(model)
        assert errors / len(signs) <= bound <= loose
        kernel = LDMClassifier(C, lambda1, 0.25, kernel=lambda A, B: A @ B.T, fit_intercept=False, tol=1e-9)
        kernel.fit(X, signs)
        assert loo_error_bound(kernel, X, signs) == pytest.approx(bound, rel=1e-3)


def test_leave_one_out_bound_refuses_what_the_theorem_does_not_cover():
    X, signs = problem("plain")
    with pytest.raises(ValueError, match="sample or class weights"):
        loo_error_bound(LDMClassifier(class_weight="balanced").fit(X[:39], signs[:39]))
    with pytest.raises(TypeError, match="LDMClassifier, got SVC"):
        loo_error_bound(SVC())


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}, {"solver": "coordinate-descent"}, {"solver": "block"}])
def test_sample_weights_stand_for_repeated_rows(options):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    counts = np.random.default_rng(0).integers(0, 4, size=len(y))
    weighted = LDMClassifier(10, 1, 1, tol=1e-10, max_iter=100_000, **options).fit(X, y, sample_weight=counts)
    repeated = LDMClassifier(10, 1, 1, tol=1e-10, max_iter=100_000, **options).fit(
        X.repeat(counts, 0), y.repeat(counts)
    )
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-8)
    assert weighted.multipliers_.shape == (3, len(y))
    assert not weighted.multipliers_[:, counts == 0].any()


def test_class_weights_multiply_sample_weights():
    X, signs = problem("plain")
    by_class = fit(X, signs, 1, 1, 1, class_weight={-1.0: 2, 1.0: 0.5}, tol=1e-10)
    by_row = LDMClassifier(1, 1, 1, fit_intercept=False, tol=1e-10).fit(
        X, signs, sample_weight=np.where(signs > 0, 0.5, 2.0)
    )
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-6)


@pytest.mark.parametrize("solver", ["interior-point", "coordinate-descent", "block"])
def test_warm_start_needs_fewer_iterations_for_the_same_result(solver):
    X, y = make_classification(400, 20, random_state=0)
    path = LDMClassifier(solver=solver, warm_start=True, tol=1e-6, random_state=0)
    for C in (1.0, 1.2, 1.5):
        path.set_params(C=C).fit(X, y)
    cold = LDMClassifier(1.5, solver=solver, tol=1e-6, random_state=0).fit(X, y)
    assert path.objective_ == pytest.approx(cold.objective_, rel=2e-6)
    if solver != "block":  # whose first guess takes no iteration of its own
        assert path.n_iter_ <= cold.n_iter_


def test_float32_and_csr_are_not_copied(monkeypatch):
    X, y = make_classification(200, 10, random_state=0)
    seen = []
    original = as_rows
    monkeypatch.setattr("margindist.spaces.space.as_rows", lambda X, bias=False: seen.append(X) or original(X, bias))
    for given_X in (X.astype(np.float32), X, sp.csr_array(X), sp.csr_matrix(X.astype(np.float32))):
        LDMClassifier().fit(given_X, y)
        data = lambda A: A.data if sp.issparse(A) else A  # noqa: E731
        assert np.shares_memory(data(seen[-1]), data(given_X))


def test_float32_gives_nearly_the_same_model():
    X, y = make_classification(300, 10, random_state=0)
    double, single = (LDMClassifier(tol=1e-8).fit(X.astype(t), y) for t in (np.float64, np.float32))
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=1e-3, atol=1e-4)


def test_partial_fit_learns_from_pieces():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = MinMaxScaler().fit_transform(X), np.array(["bad", "good"])[y]
    model = LDMClassifier(solver="asgd", random_state=0)
    for _ in range(20):
        for start in range(0, len(y), 100):
            model.partial_fit(X[start : start + 100], y[start : start + 100], classes=["bad", "good"])
    assert model.score(X, y) > 0.95
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.partial_fit(X[:50], y[:50]).coef_, model.partial_fit(X[:50], y[:50]).coef_)
    with pytest.raises(ValueError, match=r"labels \['ugly'\], which are not among"):
        model.partial_fit(X[:2], ["good", "ugly"])
    with pytest.raises(ValueError, match="first call of partial_fit needs classes"):
        LDMClassifier(solver="asgd").partial_fit(X, y)
    assert not hasattr(LDMClassifier(), "partial_fit")
    fitted = LDMClassifier(solver="asgd").partial_fit(X[:, :3], y, classes=["bad", "good"]).fit(X, y)
    with pytest.raises(ValueError, match="was fitted by fit"):
        fitted.partial_fit(X, y)
    with pytest.raises(ValueError, match="fit_intercept must be the same for all pieces"):
        model.set_params(fit_intercept=not model.fit_intercept).partial_fit(X, y)


def test_nystroem_with_all_rows_is_exact_and_with_few_is_close():
    X, y = make_classification(300, 5, random_state=0)
    exact = LDMClassifier(kernel="rbf", gamma=0.05, tol=1e-8).fit(X, y)
    whole = LDMClassifier(kernel="rbf", gamma=0.05, tol=1e-8, n_components=300, random_state=0).fit(X, y)
    few = LDMClassifier(kernel="rbf", gamma=0.05, n_components=60, random_state=0).fit(X, y)
    np.testing.assert_allclose(whole.decision_function(X), exact.decision_function(X), atol=1e-3)
    assert len(few.support_) <= 60
    assert few.score(X, y) >= exact.score(X, y) - 0.03


@pytest.mark.parametrize("solver", ["block", "interior-point", "dcd"])
def test_precomputed_and_callable_kernels_equal_named_ones(solver):
    X, y = load_iris(return_X_y=True)
    options = {"C": 10, "solver": solver, "tol": 1e-8, "max_iter": 100_000}
    named = LDMClassifier(kernel="rbf", gamma=0.3, **options).fit(X, y)
    gram = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(-1))
    given_gram = LDMClassifier(kernel="precomputed", **options).fit(gram, y)
    function = LDMClassifier(kernel=lambda A, B: np.exp(-0.3 * ((A[:, None] - B) ** 2).sum(-1)), **options).fit(X, y)
    expected = named.decision_function(X)
    np.testing.assert_allclose(given_gram.decision_function(gram), expected, atol=2e-3)
    np.testing.assert_allclose(function.decision_function(X), expected, atol=2e-3)


def test_indefinite_kernels_are_clipped_with_a_warning():
    X, y = make_classification(80, 4, random_state=0)
    with pytest.warns(UserWarning, match="negative eigenvalues"):
        model = LDMClassifier(kernel="sigmoid", gamma=2.0, coef0=-1.0).fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()
    assert model.duality_gap_ <= model.tol


@pytest.mark.filterwarnings("ignore:.*negative eigenvalues:UserWarning")
def test_indefinite_kernels_predict_by_the_certified_solution():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = MinMaxScaler().fit_transform(X), y[:150]
    options = {"C": 10, "kernel": "sigmoid", "gamma": 0.5, "coef0": -1.0, "tol": 1e-8, "max_iter": 100_000}
    models = [LDMClassifier(solver=solver, random_state=0, **options).fit(X[:150], y) for solver in SOLVERS]
    for model in models:
        scores = model.decision_function(X[:150])
        square_norm = model.dual_coef_[0] @ scores[model.support_]
        value = LDM(10.0, 0.25, 0.25).value(square_norm, np.where(y == 1, scores, -scores), np.ones(150))
        assert value == pytest.approx(model.objective_, rel=1e-6)
        np.testing.assert_allclose(model.decision_function(X), models[0].decision_function(X), atol=0.01)


def test_a_gap_that_is_no_number_is_not_silent():
    lost = Solution(np.zeros(1), np.zeros(2), 1.0, np.nan, 3, "stalled")
    with pytest.warns(ConvergenceWarning, match="duality gap of nan"):
        LDMClassifier()._warn_unless_converged([lost])


def test_memory_is_refused_before_the_fit_starts():
    X, y = make_classification(2000, 5, random_state=0)
    with pytest.raises(ValueError, match=r"needs about 160 MB, more than cache_size=10"):
        LDMClassifier(kernel="rbf", solver="dcd", cache_size=10).fit(X, y)
    small = LDMClassifier(kernel="rbf", cache_size=10, tol=1e-3).fit(X, y)  # columns are computed as needed
    assert small.duality_gap_ <= 1e-3


BAD_INPUT = [
    ({"C": -1}, r"C must be a positive number or inf, got -1"),
    ({"C": "high"}, r"C must be a positive number or inf, got 'high'"),
    ({"lambda1": -0.1}, r"lambda1 must be a number that is not negative, got -0.1"),
    ({"kernel": "gauss"}, r"kernel must be one of 'linear', .*, got 'gauss'"),
    ({"solver": "smo"}, r"solver must be 'auto', .*, got 'smo'"),
    ({"gamma": 0}, r"gamma must be 'scale', 'auto', a positive number or a string"),
    ({"tol": 0}, r"tol must be a positive number, got 0"),
    ({"max_iter": 0}, r"max_iter must be None or a positive integer, got 0"),
    ({"class_weight": {3: 1.0}}, r"class_weight has the labels \[3\], which are not among the classes"),
    ({"solver": "asgd", "C": np.inf}, r"needs a finite C, got inf"),
]


@pytest.mark.parametrize(("options", "message"), BAD_INPUT)
def test_bad_parameters_get_one_sentence(options, message):
    X, signs = problem("plain")
    with pytest.raises(ValueError, match=f"^LDMClassifier.*{message}"):
        LDMClassifier(**options).fit(X, signs)


def test_bad_data_gets_one_sentence():
    X, signs = problem("plain")
    broken = X.copy()
    broken[0, 0] = np.nan
    for bad_X, bad_y, message in [
        (broken, signs, "contains NaN"),
        (np.where(np.isnan(broken), np.inf, broken), signs, "contains infinity"),
        (X, np.ones(len(X), dtype=int), "at least 2 classes, but y contains only one class: 1\\.$"),
        (X, np.full(len(X), "a"), "only one class: 'a'\\.$"),
        (X[:0], signs[:0], "0 sample"),
        (X[:5], signs, "inconsistent numbers of samples"),
        (X, np.array([1, "a"] * 20, dtype=object), "mix|Unknown|uniformly strings or numbers|not supported"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            LDMClassifier().fit(bad_X, bad_y)
    with pytest.raises(ValueError, match="expects a square matrix"):
        LDMClassifier(kernel="precomputed").fit(X, signs)
    with pytest.raises(ValueError, match="all sample weights are zero"):
        LDMClassifier().fit(X, signs, sample_weight=np.zeros(len(X)))


@pytest.mark.filterwarnings("error")
def test_float32_rows_of_zeros_leave_nothing_to_learn():
    model = LDMClassifier(fit_intercept=False).fit(np.zeros((4, 2), dtype=np.float32), [0, 1, 1, 0])
    assert not model.coef_.any()


def test_an_interrupted_fit_leaves_the_last_model(monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = LDMClassifier().fit(X[:100], y[:100])
    before = pickle.dumps(vars(model))

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(interior_point, "solve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], y)
    assert pickle.dumps(vars(model)) == before


def test_verbose_and_callbacks_see_objective_and_gap(capsys):
    X, y = make_classification(300, 5, random_state=0)
    LDMClassifier(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[LDMClassifier] iteration 0: objective ")
    assert "gap" in lines[-1]
    callback = pytest.importorskip("sklearn.callback")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    LDMClassifier().set_callbacks(monitor).fit(X, y)
    assert len(monitor.get_logs().data_as_pandas) >= 3


def test_deterministic_under_random_state():
    X, y = make_classification(300, 20, random_state=0)
    for solver in ("coordinate-descent", "asgd"):
        first, second, other = (
            LDMClassifier(solver=solver, tol=0.5, random_state=seed).fit(X, y).coef_ for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(first, other)


def test_n_jobs_changes_nothing():
    X, y = load_iris(return_X_y=True)
    one, two = (LDMClassifier(n_jobs=n, random_state=0).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_many_rows_with_a_first_guess_from_a_sample():
    """Above the sampling threshold, with rows that change sides on the way."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25_000, 6))
    X[:, 5] = rng.random(25_000) < 0.001  # a rare feature: its rows are easily left out of a working set
    signs = np.where(X @ rng.normal(size=6) + 2 * rng.normal(size=25_000) > 0, 1.0, -1.0)
    for C in (1.0, 1000.0):
        model = fit(X, signs, C, 100.0, 1.0, tol=1e-6)
        assert model.duality_gap_ <= 1e-6
        rough = fit(X, signs, C, 100.0, 1.0, tol=1e-3)
        assert abs(rough.objective_ - model.objective_) <= 1e-3 * model.objective_


@pytest.mark.parametrize("solver", ["asgd", "dcd"])
def test_a_price_without_digits_is_not_blamed_on_the_features(solver):
    X, y = make_classification(30, 5, flip_y=0.3, random_state=0)
    with pytest.raises(ValueError, match=r"C must be of moderate size, between 1e-100 and 1e\+100, got 1e\+308"):
        LDMClassifier(1e308, solver=solver, random_state=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="relative duality gap"):
        LDMClassifier(lambda1=1e60, kernel="rbf", solver="block", random_state=0).fit(X, y)


def test_a_gap_that_overflows_is_infinite():
    assert [relative(gap, 1.0) for gap in (np.nan, -np.inf, -1e-17)] == [np.inf, np.inf, 0.0]


def test_the_weight_of_a_class_whose_samples_weigh_nothing_is_no_mistake():
    X, y = load_iris(return_X_y=True)
    model = LDMClassifier(class_weight={0: 2.0, 2: 3.0}).fit(X, y, y != 2)
    expected = LDMClassifier(class_weight={0: 2.0}).fit(X[:100], y[:100])
    np.testing.assert_array_equal(model.coef_, expected.coef_)


@pytest.mark.parametrize("options, solver", [({}, "block"), ({"lambda1": 0.25}, "interior-point")])
def test_a_kernel_with_few_rows_is_solved_by_what_is_faster_and_proved_by_the_other(options, solver, rng, monkeypatch):
    X = rng.standard_normal((200, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    model = LDMClassifier(**{"lambda1": 0.0, "lambda2": 0.0, "kernel": "rbf", "tol": 1e-6} | options)
    assert model.fit(X, y).solver_ == solver
    assert clone(model).fit(X[:100], y[:100]).solver_ == "interior-point"

    def stall(problem, options, start=None):
        n = problem.space.n
        return Solution(np.zeros(n), np.zeros(n), 200.0, 1.0, status=Status.STALLED)

    monkeypatch.setattr(block_descent, "solve", stall)
    handed = clone(model).fit(X, y)
    assert handed.duality_gap_ <= 1e-6 and handed.objective_ == pytest.approx(model.objective_, rel=1e-5)


# ---------------------------------------------------------------------- lambdas in units of C times the samples


def overlapping(n, rng, n_classes=2):
    """Return rows of many classes that an RBF kernel of high rank tells apart but for some."""
    X = rng.random((n, 4))
    scores = np.sin(7.0 * X) @ rng.standard_normal((4, n_classes)) + 0.3 * rng.standard_normal((n, n_classes))
    return X, scores.argmax(axis=1)


@pytest.mark.parametrize("C, lambda1, lambda2", [(1, 0.1, 0.3), (1, 1, 0), (100, 1, 1), (1000, 1, 0.3), (100, 10, 10)])
def test_margin_terms_that_matter_are_proved_on_kernels_of_many_rows(C, lambda1, lambda2, rng):
    X, y = overlapping(2200, rng)
    model = LDMClassifier(C, lambda1, lambda2, lambda_scale="relative", kernel="rbf", tol=1e-3)
    assert model.fit(X[:2100], y[:2100]).duality_gap_ <= 1e-3
    assert model.score(X[2100:], y[2100:]) > 0.75


def test_margin_terms_that_matter_are_proved_on_kernels_of_several_classes(rng):
    X, y = overlapping(2100, rng, n_classes=4)
    weights = 10.0 ** rng.uniform(-2.0, 2.0, len(y))
    model = LDMClassifier(10, 1, 1, lambda_scale="relative", kernel="rbf", tol=1e-3).fit(X, y, weights)
    assert (model.duality_gap_ <= 1e-3).all()


def test_margin_terms_that_matter_take_the_memory_there_is(rng):
    X, y = overlapping(1200, rng)
    options = {"lambda_scale": "relative", "kernel": "rbf", "tol": 1e-3}
    one_matrix = 8 * 1200**2 / 1e6
    for lam, cache_size in ((1.0, 1.01 * one_matrix), (0.01, 0.6 * one_matrix)):
        model = LDMClassifier(10, lam, lam, cache_size=cache_size, **options).fit(X, y)
        assert model.duality_gap_ <= 1e-3
        assert model.objective_ == pytest.approx(LDMClassifier(10, lam, lam, **options).fit(X, y).objective_, rel=2e-3)


def test_margin_terms_that_matter_beyond_the_memory_are_near_and_say_so(rng):
    X, y = overlapping(1100, rng)
    model = LDMClassifier(100, 1, 1, lambda_scale="relative", kernel="rbf", cache_size=4)
    with pytest.warns(ConvergenceWarning, match=r"1000 rows of a kernel take 8 MB, more than cache_size=4; .*Raise"):
        model.fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.75
    exact = clone(model).set_params(cache_size=2000, tol=1e-6).fit(X[:1000], y[:1000])
    assert exact.objective_ <= model.objective_
    assert model.objective_ - model.duality_gap_ * abs(model.objective_) <= exact.objective_


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_relative_lambdas_are_absolute_ones_over_c_times_the_weight(kernel):
    X, y = make_classification(60, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    unit = 2.0 * weights.sum()
    options = {"kernel": kernel, "tol": 1e-9}
    relative = LDMClassifier(2.0, 0.3, 0.5, lambda_scale="relative", **options).fit(X, y, weights)
    absolute = LDMClassifier(2.0, 0.3 * unit, 0.5 * unit, **options).fit(X, y, weights)
    assert relative.decision_function(X) == pytest.approx(absolute.decision_function(X), abs=1e-9)
    assert relative.objective_ == pytest.approx(absolute.objective_)


def test_relative_lambdas_do_not_change_with_the_number_of_copies():
    X, y = make_classification(50, 4, random_state=0)
    once = LDMClassifier(1.0, 0.3, 0.3, lambda_scale="relative", tol=1e-9).fit(X, y)
    thrice = LDMClassifier(1.0 / 3.0, 0.3, 0.3, lambda_scale="relative", tol=1e-9)
    thrice.fit(np.vstack([X] * 3), np.concatenate([y] * 3))
    assert thrice.coef_ == pytest.approx(once.coef_, abs=1e-6)


def test_relative_lambdas_in_pieces_count_all_samples_seen():
    X, y = make_classification(80, 4, random_state=0)
    relative, absolute = (
        LDMClassifier(solver="asgd", random_state=0, lambda_scale=s) for s in ("relative", "absolute")
    )
    for seen, piece in ((40, slice(40)), (80, slice(40, None))):
        relative.set_params(lambda1=0.01, lambda2=0.02).partial_fit(X[piece], y[piece], classes=[0, 1])
        absolute.set_params(lambda1=0.01 * seen, lambda2=0.02 * seen).partial_fit(X[piece], y[piece], classes=[0, 1])
    assert relative.coef_ == pytest.approx(absolute.coef_)


def test_relative_lambdas_need_a_finite_price():
    X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    with pytest.raises(ValueError, match="must then be finite, got inf"):
        LDMClassifier(np.inf, 0.1, 0.1, lambda_scale="relative").fit(X, y)
    LDMClassifier(np.inf, 0.0, 0.0, lambda_scale="relative").fit(X, y)
