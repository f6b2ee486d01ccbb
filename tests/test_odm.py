"""ODM and multi-class ODM: blocks, rounds, optimum, limiting cases, invariances, the bound."""

import warnings
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import minmax_scale

from margindist import ODMClassifier
from margindist.margins import generalization_bound, margins
from margindist.objectives import ODM, coordinate_step, piecewise_quadratic
from margindist.solvers import _class_blocks, coordinate_descent, multiclass, newton, quasi_newton
from margindist.solvers._solution import Options, Problem, Status, certify
from margindist.spaces.rows import SparseRows, all_scores, as_rows, without_zeros
from tests.reference import odm as reference

GRID = [(lam, mu, theta) for lam in (1.0, 2.0**10, 2.0**20) for mu, theta in ((0.2, 0.8), (0.8, 0.2), (1.0, 0.0))]


@pytest.fixture(scope="module")
def two_classes():
    X, y = make_classification(60, 5, n_informative=3, flip_y=0.2, random_state=0)
    return minmax_scale(X), np.where(y > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def three_classes():
    X, codes = make_blobs(24, 3, centers=3, cluster_std=4.0, random_state=1)
    return minmax_scale(X), codes.astype(np.int64)


# ---------------------------------------------------------------------- two classes


def test_slope_is_the_derivative_of_the_value(rng):
    objective, weights = ODM(50.0, 0.3, 0.4), rng.random(20) + 0.5
    z = rng.normal(1.0, 2.0, size=20)
    for i in range(20):
        step = np.zeros(20)
        step[i] = 1e-6
        change = objective.value(0.0, z + step, weights) - objective.value(0.0, z - step, weights)
        assert change / 2e-6 == pytest.approx(objective.slope(z, weights)[i], abs=1e-6)
        bend = objective.slope(z + step, weights)[i] - objective.slope(z - step, weights)[i]
        assert bend / 2e-6 == pytest.approx(objective.curvature(z, weights)[i], abs=1e-5)


def test_certificate_vanishes_only_at_the_slope(rng):
    objective, weights, z = ODM(5.0, 0.3, 0.4), rng.random(9) + 0.5, rng.normal(1.0, 1.0, 9)
    a = -objective.slope(z, weights)
    assert objective.complementarity(a, z, weights) == pytest.approx(0.0, abs=1e-14)
    assert objective.complementarity(a + 0.01, z, weights) > 1e-6


@pytest.mark.parametrize(("lam", "mu", "theta"), GRID)
def test_binary_against_a_generic_solver(two_classes, lam, mu, theta, rng):
    X, signs = two_classes
    weights = rng.integers(1, 4, len(signs)).astype(float)
    expected, value = reference.binary(X, signs, weights, lam, mu, theta)
    found = newton.solve(Problem(ODM(lam, mu, theta), as_rows(X), signs, weights), Options(tol=1e-10))
    assert found.status == "optimal"
    assert found.objective == pytest.approx(value, rel=1e-6)
    assert found.objective <= value * (1 + 1e-9)
    np.testing.assert_allclose(found.coef, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["factor", "row-factor", "cg"])
@pytest.mark.parametrize("shape", [(200, 8), (30, 90)])
def test_all_newton_directions_end_at_the_same_point(shape, method, rng):
    X = rng.random(shape)
    signs = np.where(X[:, 0] + 0.3 * rng.normal(size=shape[0]) > 0.5, 1.0, -1.0)
    problem = (ODM(2.0**10, 0.4, 0.2), as_rows(X, fit_intercept=True), signs, np.ones(shape[0]))
    found = newton.solve(Problem(*problem), Options(tol=1e-12, choices={"method": method}))
    sparse = newton.solve(
        Problem(problem[0], as_rows(sp.csr_matrix(X), fit_intercept=True), *problem[2:]), Options(tol=1e-12)
    )
    np.testing.assert_allclose(found.coef, sparse.coef, rtol=1e-5, atol=3e-6)
    descent = coordinate_descent.solve(Problem(*problem), Options(tol=1e-4, max_iter=5000))
    assert found.objective <= descent.objective <= found.objective * (1 + 2e-4)


def test_conjugate_gradients_hand_over_to_a_factorisation(monkeypatch, rng):
    X = rng.random((50, 300))
    signs = np.where(rng.random(50) > 0.5, 1.0, -1.0)
    monkeypatch.setattr(newton, "SETTINGS", newton.Settings(few_sweeps=-1))
    monkeypatch.setattr(newton, "BLAS", 1e6)
    problem = (ODM(2.0**20, 0.4, 0.2), as_rows(X), signs, np.ones(50))
    assert newton.solve(Problem(*problem), Options(tol=1e-8)).objective == pytest.approx(
        newton.solve(Problem(*problem), Options(tol=1e-8, choices={"method": "row-factor"})).objective, rel=1e-7
    )


def test_optimality_conditions_at_the_solution():
    X, y = load_breast_cancer(return_X_y=True)
    X, signs = minmax_scale(X), 2.0 * y - 1.0
    objective, weights = ODM(300.0, 0.5, 0.3), np.ones(len(signs))
    found = newton.solve(Problem(objective, as_rows(X), signs, weights), Options(tol=1e-14))
    z = signs * (X @ found.coef)
    np.testing.assert_allclose(found.coef, X.T @ (signs * found.dual), atol=1e-6)
    inside = np.abs(z - 1.0) <= objective.theta
    assert inside.any() and not inside.all()
    assert (found.dual[inside] == 0).all()
    np.testing.assert_array_equal(np.sign(found.dual[~inside]), np.sign(1.0 - z[~inside]))


def test_no_band_and_one_price_is_least_squares_on_margins(two_classes):
    X, signs = two_classes
    lam, m = 7.0, len(signs)
    found = newton.solve(Problem(ODM(lam, 1.0, 0.0), as_rows(X), signs, np.ones(m)), Options(tol=1e-14))
    ridge = np.linalg.solve(np.eye(X.shape[1]) + 2 * lam / m * X.T @ X, 2 * lam / m * X.T @ signs)
    np.testing.assert_allclose(found.coef, ridge, rtol=1e-9)


def test_coordinate_step_is_exact(rng):
    objective = ODM(20.0, 0.3, 0.25)
    for base in rng.normal(1.0, 2.0, 50):
        square, weight, total = rng.random() + 0.1, rng.random() + 0.5, 10.0
        a, multiplier = coordinate_step(objective, base, square, weight, total, 0.0)
        price = 2 * objective.lam * weight / (total * (1 - objective.theta) ** 2)
        z = base + square * a
        slope = price * (objective.mu * max(0, z - 1 - objective.theta) - max(0, 1 - objective.theta - z))
        assert a == multiplier == pytest.approx(-slope, abs=1e-12)


@pytest.mark.parametrize("mu", [0.2, 0.4, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("theta", [0.0, 0.2, 0.4, 0.6, 0.8])
def test_the_whole_grid_converges_without_a_warning(mu, theta):
    X, y = load_breast_cancer(return_X_y=True)
    X = minmax_scale(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for lam in 2.0 ** np.arange(0, 22, 2):
            assert ODMClassifier(lam, mu, theta, tol=1e-8).fit(X, y).duality_gap_ <= 1e-8


# ---------------------------------------------------------------------- one row's block


def run_block(b, y, A, price, mu, theta, rival, ceiling):
    order, zeta = np.empty(len(b), np.int64), np.empty(len(b))
    band = 1.0 - theta, 1.0 + theta
    n, S, beta = multiclass.block_step(*band, price, mu * price, y, b, A, rival, ceiling, order, zeta)
    assert n == 0 or (zeta[:n] >= 0).all()
    assert beta >= 0 and pytest.approx(zeta[:n].sum(), rel=1e-12, abs=1e-14) == S
    full = np.zeros(len(b))
    full[order[:n]] = zeta[:n]
    return full, beta


@st.composite
def blocks(draw):
    k = draw(st.integers(2, 8))
    number = st.floats(-5, 5, allow_nan=False)
    b = np.array(draw(st.lists(st.one_of(number, st.sampled_from([0.0, 1.0, -1.0])), min_size=k, max_size=k)))
    y = draw(st.integers(0, k - 1))
    A = 10.0 ** draw(st.floats(-4, 4))
    price = 10.0 ** draw(st.floats(-3, 3))
    rival = draw(st.sampled_from([-1, *(l for l in range(k) if l != y)]))
    mu, theta = draw(st.sampled_from([0.2, 0.8, 1.0])), draw(st.sampled_from([0.0, 0.2, 0.8]))
    return b, y, A, price, mu, theta, rival, draw(number)


@settings(max_examples=600, deadline=None)
@given(blocks())
def test_block_step_is_a_minimum(block):
    b, y, A, price, mu, theta, rival, ceiling = block
    zeta, beta = run_block(*block)
    H, f, others = reference.block_matrices(b, y, A, price, mu, theta, rival, ceiling)
    x = np.r_[zeta[others], beta]
    assert zeta[y] == 0.0 and (x >= 0.0).all()
    found, best = x @ H @ x / 2 + f @ x, reference.block_minimum(H, f)
    assert found - best <= 1e-8 * max(1.0, abs(best))  # a feasible point is below the reference by its rounding only


@pytest.mark.parametrize("rival", [-1, 2])
def test_block_step_against_cvxpy(rival, rng):
    for _ in range(25):
        k = 5
        block = (rng.normal(0, 2, k), 1, rng.random() * 3, rng.random() * 5 + 0.1, 0.4, 0.2, rival, rng.normal())
        H, f, others = reference.block_matrices(*block)
        x = cp.Variable(k, nonneg=True)
        problem = cp.Problem(cp.Minimize(cp.quad_form(x, cp.psd_wrap(H)) / 2 + f @ x))
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        zeta, beta = run_block(*block)
        found = np.r_[zeta[others], beta]
        assert found @ H @ found / 2 + f @ found == pytest.approx(problem.value, abs=1e-7)


@pytest.mark.parametrize("n_columns", [8, 40])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
def test_scores_of_all_classes_are_a_product(storage, n_columns, rng):
    X = rng.random((5, 6)) * (rng.random((5, 6)) > 0.5)
    W = rng.random((7, n_columns))
    found = all_scores(as_rows(storage(X), fit_intercept=True), 2, W, np.empty((3, n_columns)))
    np.testing.assert_allclose(found, X[2:] @ W[:-1] + W[-1])


def test_block_of_a_row_of_zeros():
    zeta, beta = run_block(np.zeros(3), 0, 0.0, 2.0, 0.5, 0.2, -1, 0.0)
    assert zeta.sum() == pytest.approx(2 * 2.0 * 0.8) and beta == 0.0


# ---------------------------------------------------------------------- rounds


@pytest.mark.parametrize("outer", ["frozen", "concave"])
def test_every_round_against_a_generic_solver(three_classes, outer):
    X, codes = three_classes
    lam, mu, theta = 30.0, 0.6, 0.2
    weights = np.ones(len(codes))
    rows, objective = as_rows(X), ODM(lam, mu, theta)
    squares = np.einsum("ij,ij->i", X, X)
    losses = multiclass.Losses(codes, *objective.band(weights), squares, 3, weights.sum())
    descent = multiclass._CoordinateDescent(rows, losses, np.random.default_rng(0), 100_000)
    W, state = np.zeros((X.shape[1], 4)), multiclass.empty_blocks(len(codes), 2)
    sides, upper = None, {}
    for _ in range(3):
        state, value, true, gap = descent.run(multiclass.copy(state), sides, W, np.inf, 1e-9)
        expected = reference.convex_round(X, codes, weights, lam, mu, theta, **upper)
        assert gap <= 1e-9
        assert value == pytest.approx(expected, rel=1e-7)
        assert true == pytest.approx(reference.true_objective(X, codes, weights, W[:, :3].T, lam, mu, theta))
        which, classes, values = multiclass.coefficients(codes, state)
        v = sp.coo_array((values, (which, classes)), shape=(len(codes), 3)).toarray()
        np.testing.assert_allclose(W[:, :3], X.T @ v, atol=1e-9)
        sides, _ = multiclass._upper_side(rows, losses, state, W, outer == "concave")
        upper = {"rival": sides[0]} if outer == "concave" else {"ceiling": sides[1]}


def test_frozen_rounds_of_quasi_newton_steps_against_a_generic_solver(three_classes):
    X, codes = three_classes
    weights, upper = np.ones(len(codes)), {}
    problem = Problem(ODM(30.0, 0.6, 0.2), as_rows(X), codes, weights)
    history, ends = [], []

    def report(n_iter, W, value, gap):
        ends.append(W.copy())
        return len(ends) == 3

    found = quasi_newton.solve(problem, Options(1e-9, 100_000, report=report, choices={"outer": "frozen"}))
    for W in ends:
        expected = reference.convex_round(X, codes, weights, 30.0, 0.6, 0.2, **upper)
        assert reference.round_value(X, codes, weights, W, 30.0, 0.6, 0.2, **upper) == pytest.approx(expected, rel=1e-7)
        history.append(reference.true_objective(X, codes, weights, W, 30.0, 0.6, 0.2))
        scores = X @ W.T
        scores[np.arange(len(codes)), codes] = -np.inf
        upper = {"ceiling": scores.max(axis=1)}
    np.testing.assert_allclose(found.extra["history"], history)
    assert found.objective == pytest.approx(min(history)) and found.gap <= 1e-9


def test_curvatures_are_derivatives_of_the_coefficients(rng):
    X, y = load_iris(return_X_y=True)
    X = minmax_scale(X)
    band = ODM(50.0, 0.4, 0.2).band(np.ones(len(y)))
    losses = multiclass.Losses(y, *band, (X**2).sum(axis=1), 3, 150.0)
    width, every = np.full(len(y), 0.3), np.arange(len(y))
    for rival in (np.full(len(y), -1, np.int32), ((y + 1) % 3).astype(np.int32)):
        blocks = multiclass.empty_blocks(len(y), 2)._replace(rival=rival, ceiling=np.full(len(y), -1.0))
        U = rng.normal(size=(len(y), 3))
        jacobian = np.empty((len(y), 3, 3))
        for l, dU in enumerate(np.eye(3)):
            sides = []
            for t in (-1e-6, 1e-6, 0.0):
                ahead = multiclass.copy(blocks)
                move = np.tile(dU, (len(y), 1))
                quasi_newton._steps(losses, blocks, width, U, move, t, every, ahead)
                sides.append(quasi_newton._coefficients(y, ahead, np.empty_like(U)))
            jacobian[:, :, l] = (sides[0] - sides[1]) / 2e-6
        smooth = np.abs(jacobian - jacobian.transpose(0, 2, 1)).max(axis=(1, 2)) < 1e-5
        assert smooth.mean() > 0.95 and (ahead.beta > 0).any() and (ahead.length > 1).any()
        diagonal, means = quasi_newton._bend_diagonal(losses, ahead, width)
        found = np.einsum("ill->il", jacobian)
        agree = np.abs(found - diagonal).max(axis=1) < 1e-5
        assert agree.mean() > 0.95
        if rival[0] < 0:
            assert (np.abs(jacobian.sum(axis=(1, 2)) / 3 - means) < 1e-5).mean() > 0.95


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(3, 5),
    st.sampled_from([1.0, 64.0, 2.0**12, 2.0**20]),
    st.sampled_from([0.2, 0.6, 1.0]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from(["newton", "coordinate-descent"]),
)
def test_concave_rounds_never_increase_the_objective(seed, k, lam, mu, theta, method):
    rng = np.random.default_rng(seed)
    X, codes = rng.random((30, 3)), np.r_[np.arange(k), rng.integers(0, k, 30 - k)]
    found = multiclass.solve(
        Problem(ODM(lam, mu, theta), as_rows(X), codes, np.ones(30)), Options(max_iter=300, choices={"method": method})
    )
    assert (np.diff(found.extra["history"]) <= 0).all()
    assert found.objective == found.extra["history"][-1]


def test_a_round_in_vain_proves_the_point_it_began_at():
    X, y = make_blobs(300, 5, centers=4, cluster_std=1.0, random_state=0)
    X = X - X.mean(axis=0)
    problem = Problem(ODM(192.0, 0.4, 0.2), as_rows(X), y.astype(np.int64), np.ones(300))
    for limit in range(2, 60, 3):
        found = multiclass.solve(problem, Options(1e-6, limit, choices={"method": "newton"}))
        true = reference.true_objective(X, y, np.ones(300), found.coef, 192.0, 0.4, 0.2)
        assert found.objective == pytest.approx(true, rel=1e-9) == pytest.approx(found.extra["history"][-1])


def test_best_round_is_kept_under_the_frozen_rule():
    X, y = load_wine(return_X_y=True)
    model = ODMClassifier(2.0**10, outer="frozen", tol=1e-6).fit(minmax_scale(X), y)
    assert model.objective_ == model.objective_history_.min()
    assert (np.diff(model.objective_history_) > 0).any()
    assert model.stop_reason_ == "no longer improves"


def test_the_papers_rule_begins_with_a_ceiling_of_zero_and_keeps_the_last_round(three_classes):
    X, codes = three_classes
    lam, mu, theta = 30.0, 0.6, 0.2
    weights = np.ones(len(codes))
    problem = Problem(ODM(lam, mu, theta), as_rows(X), codes, weights)
    options = Options(1e-9, 100_000, choices={"outer": "paper"})
    first = multiclass.solve(problem, options._replace(report=lambda *_: True))
    scores = X @ first.coef.T
    own = scores[np.arange(len(codes)), codes]
    scores[np.arange(len(codes)), codes] = -np.inf
    below = np.maximum(0.0, 1 - theta - own + scores.max(axis=1)) ** 2
    above = np.maximum(0.0, own - 1 - theta) ** 2
    value = 0.5 * np.vdot(first.coef, first.coef) + lam * np.mean(below + mu * above) / (1 - theta) ** 2
    expected = reference.convex_round(X, codes, weights, lam, mu, theta, ceiling=np.zeros(len(codes)))
    assert value == pytest.approx(expected, rel=1e-7)
    rounds = []
    last = multiclass.solve(problem, options._replace(report=lambda n, W, *_: rounds.append(W.copy())))
    np.testing.assert_array_equal(last.coef, rounds[-1])
    assert last.objective == last.extra["history"][-1]


def test_a_round_cut_short_is_kept_if_it_is_the_best():
    X, y = load_digits(return_X_y=True)
    model = ODMClassifier(2.0**20, 0.8, 0.2, outer="frozen", max_iter=70)
    with pytest.warns(ConvergenceWarning, match="iteration limit"):
        model.fit(X[:300] / 16.0, y[:300])
    assert model.stop_reason_ == "iteration limit" and model.duality_gap_ > 1e-3
    assert model.objective_ == model.objective_history_.min() == model.objective_history_[-1]


@pytest.mark.parametrize("max_iter", [5, 20, 60])
@pytest.mark.parametrize("outer", ["frozen", "concave"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_best_round_of_the_history_is_kept_whatever_the_limit(outer, max_iter, rng):
    X, y = rng.standard_normal((90, 6)), rng.integers(0, 4, 90)
    for lam in (1.0, 2.0**10, 2.0**20):
        model = ODMClassifier(lam, 0.8, 0.2, outer=outer, max_iter=max_iter).fit(X, y)
        assert model.objective_ == model.objective_history_.min()


def test_rounds_that_fall_far_end_early():
    def is_done(value, gap, bound):
        return _class_blocks.is_done(value, 10.0, gap, bound, 1e-3)

    assert is_done(0.5, 9.0, 1.0)
    assert not is_done(0.51, 9.0, 1.0) and not is_done(0.5, 9.0, np.inf)
    assert is_done(0.51, 9e-4, 1.0)
    X, y = load_digits(return_X_y=True)
    model = ODMClassifier(2.0**20, 0.8, 0.2).fit(X / 16.0, y)
    assert model.duality_gap_ <= 1e-3 and (np.diff(model.objective_history_) < 0).all()


def test_two_classes_jointly_are_half_the_two_class_problem_at_twice_the_price(two_classes):
    X, signs = two_classes
    codes = (signs > 0).astype(np.int64)
    weights = np.ones(len(signs))
    joint = multiclass.solve(Problem(ODM(100.0, 0.4, 0.2), as_rows(X), codes, weights), Options(tol=1e-12))
    binary = newton.solve(Problem(ODM(200.0, 0.4, 0.2), as_rows(X), signs, weights), Options(tol=1e-14))
    assert joint.objective == pytest.approx(binary.objective / 2, rel=1e-9)
    np.testing.assert_allclose(joint.coef, [-binary.coef / 2, binary.coef / 2], atol=1e-5)


def test_newton_and_coordinate_descent_agree_and_blocks_stay_sparse():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400] / 16.0, y[:400]
    models = [
        ODMClassifier(200.0, solver=solver, tol=1e-5, random_state=0, warm_start=True).fit(X, y)
        for solver in ("newton", "coordinate-descent")
    ]
    assert models[0].objective_ == pytest.approx(models[1].objective_, rel=5e-3)  # there is more than one minimum
    stored = models[1]._warm[0].dual
    assert stored.length.sum() < 0.5 * len(y) * 9
    assert (models[0].predict(X) == models[1].predict(X)).mean() > 0.99


def test_rivals_that_tie_are_lowered_together():
    zeta, beta = run_block(np.array([0.0, 2.0, 2.0, 2.0]), 0, 1.0, 1e6, 0.4, 0.2, -1, np.inf)
    assert zeta[1] == zeta[2] == zeta[3] > 0 and beta == 0.0


@pytest.mark.parametrize("outer", ["concave", "frozen"])
@pytest.mark.parametrize(("mu", "theta"), [(0.2, 0.8), (0.6, 0.4), (0.8, 0.2), (1.0, 0.0)])
def test_many_columns_and_classes_converge_without_a_warning(mu, theta, outer):
    X, y = make_classification(500, 70, n_informative=20, n_classes=9, flip_y=0.2, random_state=0)
    X = minmax_scale(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for lam in (1.0, 2.0**10, 2.0**20):
            assert ODMClassifier(lam, mu, theta, outer=outer).fit(X, y).duality_gap_ <= 1e-3


@pytest.mark.parametrize("outer", ["concave", "frozen"])
def test_newton_steps_without_factors_and_on_sparse_rows(outer, monkeypatch):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16.0, y[:300]
    options = {"outer": outer, "solver": "newton", "tol": 1e-5}
    dense = ODMClassifier(2.0**8, **options).fit(X, y)
    monkeypatch.setattr(quasi_newton, "SETTINGS", quasi_newton.Settings(largest_factors=0))
    sparse = ODMClassifier(2.0**8, **options).fit(sp.csr_matrix(X), y)
    assert sparse.duality_gap_ <= 1e-5
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-3)


def true_objective(model, X, y):
    U = X @ model.coef_.T + model.intercept_
    rows = np.arange(len(y))
    own = U[rows, y]
    U[rows, y] = -np.inf
    short, beyond = (np.maximum(0.0, sign * (1.0 + sign * -model.theta - own + U.max(axis=1))) for sign in (1.0, -1.0))
    price = model.lam / (len(y) * (1.0 - model.theta) ** 2)
    norm = 0.5 * (np.vdot(model.coef_, model.coef_) + np.vdot(model.intercept_, model.intercept_))
    return norm + price * np.sum(short**2 + model.mu * beyond**2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("outer", ["concave", "frozen"])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_the_objective_is_that_of_the_weights_whatever_the_scale(scale, outer):
    for X, y in (load_iris(return_X_y=True), load_wine(return_X_y=True)):
        for lam in (1.0, 2.0**20):
            model = ODMClassifier(lam, outer=outer, max_iter=100).fit(X * scale, y)
            assert model.objective_ == pytest.approx(true_objective(model, X * scale, y), rel=1e-6)


@pytest.mark.parametrize("lam", [1e-6, 1e-9])
@pytest.mark.parametrize("options", [{}, {"outer": "frozen"}, {"solver": "coordinate-descent"}, {"solver": "newton"}])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_no_weights_at_all_are_no_solution_however_low_the_price(lam, options, n_classes):
    X, y = load_digits(n_class=n_classes, return_X_y=True)
    X = X / 16.0
    found = ODMClassifier(lam, fit_intercept=False, **options).fit(X, y).coef_ / lam
    if n_classes == 2:  # every row pulls alike
        limit = 2.0 / (0.8 * len(y)) * np.where(y == 1, 1.0, -1.0)[None] @ X
    else:
        limit = ODMClassifier(1e-4, fit_intercept=False, tol=1e-8).fit(X, y).coef_ / 1e-4
    assert np.linalg.norm(found - limit) < 0.05 * np.linalg.norm(limit)


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_rows_that_are_all_alike_and_large(seed):
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.standard_normal((1, 3)) * 2e6, 54, axis=0)
    y = np.r_[np.arange(14), rng.integers(0, 14, 40)]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ConvergenceWarning)
        model = ODMClassifier(256.0, 0.2, 0.2, outer="frozen", fit_intercept=False).fit(X, y)
    assert model.objective_ == pytest.approx(256.0, rel=1e-3)  # no weights tell rows apart that are the same
    assert model.duality_gap_ <= 1e-3 or warned


def test_passes_prove_what_newton_steps_reach_without_a_proof():
    rng = np.random.default_rng(18)
    X = rng.integers(-9, 10, (69, 1)).astype(float)  # one column, twelve classes at random: the best weights are zero
    y = np.r_[np.arange(12), rng.integers(0, 12, 57)]
    options = {"lam": 0.0625, "theta": 0.8, "mu": 1.0, "outer": "frozen", "fit_intercept": False, "tol": 6.5e-5}
    model = ODMClassifier(**options).fit(X, y)
    assert model.duality_gap_ <= 6.5e-5
    assert model.objective_ == pytest.approx(0.0625, rel=1e-4)


@pytest.mark.parametrize("outer", ["concave", "frozen"])
def test_newton_with_weights_of_many_magnitudes(outer):
    rng = np.random.default_rng(0)
    X, y = load_wine(return_X_y=True)
    weights = 10.0 ** rng.uniform(-6, 6, len(y))
    model = ODMClassifier(1.0, 0.01, 0.0, outer=outer, solver="newton").fit(minmax_scale(X), y, sample_weight=weights)
    assert model.duality_gap_ <= 1e-3
    assert model.n_iter_ < 100


def test_passes_settle_fewer_rows_than_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 800))
    y = np.argsort(np.argsort(X @ rng.standard_normal(800))) // 10
    model = ODMClassifier(2.0**14, 0.2, 0.0, random_state=0).fit(X, y)
    assert model.solver_ == "coordinate-descent"
    assert model.duality_gap_ <= 1e-3
    assert model.n_iter_ < 30


def test_heavy_weights_are_no_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 1100)), np.arange(24) % 6
    weights = np.where(np.arange(24) == 3, 1e5, 1.0)
    model = ODMClassifier(multi_class="direct").fit(X, y, sample_weight=weights)
    assert model.solver_ == "coordinate-descent" and model.duality_gap_ <= model.tol


@pytest.mark.parametrize("seed", range(3))
def test_newton_steps_that_find_the_active_rows_one_by_one_are_not_in_vain(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-9, 10, (63, 200)).astype(float)
    y = rng.integers(0, 2, 63)
    X += 4.0 * rng.standard_normal((2, 200))[y]
    y = np.where(rng.random(63) < 0.1, 1 - y, y)
    for lam in (2.0**16, 2.0**18):
        model = ODMClassifier(lam=lam, mu=0.2, theta=0.8, fit_intercept=False, tol=1e-3).fit(X, y)
        assert model.duality_gap_ <= 1e-3


def test_newton_ends_where_steps_move_nothing_but_rounding():
    marks = newton._Milestones()
    assert not any(marks.have_ended(0.98**step, 1.0, hidden=False, falls=True) for step in range(100))
    slow = [(0.98**99 * (1.0 - 1e-6 * step), 1.0 + 0.1 * (step % 3)) for step in range(1, 61)]
    assert not any(marks.have_ended(*values, hidden=False, falls=True) for values in slow[:40])
    # Steps whose length rounding hides take more of the patience.
    assert any(marks.have_ended(*values, hidden=True, falls=True) for values in slow[40:43])


def test_joint_descent_gives_up_where_its_limit_is_out_of_reach():
    rng = np.random.default_rng(0)
    codes = np.sort(rng.integers(20, size=200))
    X = np.round(30.0 * rng.normal(size=20)[codes] + rng.normal(size=200))[:, None]
    descent = ODMClassifier(256.0, solver="coordinate-descent", fit_intercept=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="stalled"):
        assert descent.fit(X, codes).n_iter_ < 500
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        descent.set_params(max_iter=20).fit(X, codes)


@pytest.mark.parametrize("worse", [False, True])
def test_newton_goes_on_from_where_passes_stalled_unless_no_weights_are_better(worse, rng, monkeypatch):
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    passes, begun = coordinate_descent.solve, []

    def stalled(problem, options, start=None):
        found = passes(problem, options, start)
        return found._replace(status=Status.STALLED, objective=1e9 if worse else found.objective)

    def newton_from(problem, options, start=None):
        begun.append(start)
        return solve(problem, options, start)

    solve = newton.solve
    monkeypatch.setattr(coordinate_descent, "solve", stalled)
    monkeypatch.setattr(newton, "solve", newton_from)
    ODMClassifier(1.0, solver="coordinate-descent").fit(X, y)
    assert [start is None for start in begun] == [worse]


# ---------------------------------------------------------------------- the estimator


def test_permuting_class_names_changes_nothing():
    X, y = load_wine(return_X_y=True)
    X = minmax_scale(X)
    plain = ODMClassifier(tol=1e-6).fit(X, y)
    renamed = ODMClassifier(tol=1e-6).fit(X, np.array(["c", "a", "b"])[y])
    np.testing.assert_allclose(
        renamed.decision_function(X), plain.decision_function(X)[:, [1, 2, 0]], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_linear_kernel_as_a_kernel(load):
    X, y = load(return_X_y=True)
    X, y = minmax_scale(X)[::2], y[::2]
    linear = ODMClassifier(100.0, tol=1e-8).fit(X, y)
    gram = ODMClassifier(100.0, kernel="precomputed", tol=1e-8).fit(X @ X.T, y)
    assert gram.objective_ == pytest.approx(linear.objective_, rel=1e-6)
    np.testing.assert_allclose(gram.decision_function(X @ X.T), linear.decision_function(X), rtol=1e-3, atol=1e-3)


def test_nystroem_features_with_all_rows_are_the_kernel():
    X, y = load_iris(return_X_y=True)
    exact = ODMClassifier(kernel="rbf", tol=1e-7).fit(X, y)
    features = ODMClassifier(kernel="rbf", n_components=150, tol=1e-7, random_state=0).fit(X, y)
    assert features.objective_ == pytest.approx(exact.objective_, rel=1e-3)
    with pytest.raises(ValueError, match="cache_size"):
        ODMClassifier(kernel="rbf", cache_size=0.01).fit(X, y)


@pytest.mark.parametrize("outer", ["concave", "frozen"])
@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
def test_weight_two_is_the_row_twice(solver, outer):
    X, y = load_iris(return_X_y=True)
    X = minmax_scale(X)
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    options = {"solver": solver, "outer": outer, "tol": 1e-7, "max_iter": 20_000, "random_state": 0}
    weighted = ODMClassifier(20.0, **options).fit(X, y, weights)
    repeated = ODMClassifier(20.0, **options).fit(X.repeat(weights, axis=0), y.repeat(weights))
    tolerance = 1e-7 if solver == "newton" else 2e-3
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=tolerance, atol=tolerance)


def test_rows_of_zeros_and_classes_with_one_sample():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.0, 0.0]])
    y = ["zero", "a", "b", "a", "zero"]
    for solver in ("newton", "coordinate-descent"):
        model = ODMClassifier(100.0, fit_intercept=False, solver=solver, tol=1e-6, random_state=0).fit(X, y)
        assert np.isfinite(model.coef_).all() and model.duality_gap_ <= 1e-6
        assert list(model.predict(X[1:4])) == ["a", "b", "a"]


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_warm_start_needs_fewer_iterations(load):
    X, y = load(return_X_y=True)
    X = minmax_scale(X)
    model = ODMClassifier(100.0, tol=1e-6, warm_start=True).fit(X, y)
    first, value = model.n_iter_, model.objective_
    model.fit(X, y)
    assert model.n_iter_ < first
    assert model.objective_ == pytest.approx(value, rel=1e-4)


def test_one_versus_rest_is_a_machine_a_class():
    X, y = load_iris(return_X_y=True)
    X = minmax_scale(X)
    model = ODMClassifier(multi_class="ovr", tol=1e-10).fit(X, y)
    single = ODMClassifier(tol=1e-10).fit(X, y == 2)
    np.testing.assert_allclose(model.decision_function(X)[:, 2], single.decision_function(X), rtol=1e-9)
    assert model.objective_.shape == (3,) and not hasattr(model, "objective_history_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"theta": 1.2}, r"ODMClassifier: theta must be in \[0, 1\), got 1.2."),
        ({"mu": 0.0}, r"ODMClassifier: mu must be in \(0, 1\], got 0.0."),
        ({"lam": -1}, "ODMClassifier: lam must be a positive number, got -1."),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        ODMClassifier(**parameters).fit([[0.0], [1.0]], [0, 1])


def test_iteration_limit_warns_with_the_gap():
    X, y = load_wine(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="relative duality gap"):
        ODMClassifier(2.0**20, max_iter=1, tol=1e-8).fit(X, y)


# ---------------------------------------------------------------------- Theorem 1


def test_bound_is_the_theorem_s(rng):
    X, y = load_iris(return_X_y=True)
    X = minmax_scale(X)
    model = ODMClassifier(theta=0.4).fit(X, y)
    z = margins(model, X, y)
    phi = np.where(z <= 0, 1.0, np.where(z <= 0.6, (z - 0.6) ** 2 / 0.36, 0.0)).mean()
    radius = np.sqrt((X**2).sum(axis=1).max() + 1)
    length = np.sqrt((model.coef_**2).sum() + (model.intercept_**2).sum())
    expected = phi + 16 * radius * length / 0.6 * np.sqrt(2 * np.pi * 3 / 150) + 3 * np.sqrt(np.log(40) / 300)
    assert generalization_bound(model, X, y, delta=0.05) == pytest.approx(expected)
    assert generalization_bound(model, X, y, delta=0.5) < expected


def test_bound_holds_on_fresh_data_and_is_the_same_for_a_kernel(rng):
    X, y = make_blobs(3000, 2, centers=[[0, 0], [0, 6], [6, 0]], random_state=0)
    X = minmax_scale(X)
    linear = ODMClassifier(10.0, theta=0.0, tol=1e-8).fit(X[:300], y[:300])
    gram = ODMClassifier(10.0, theta=0.0, kernel=lambda A, B: A @ B.T, tol=1e-8).fit(X[:300], y[:300])
    bound = generalization_bound(linear, X[:300], y[:300])
    assert 1 - linear.score(X[300:], y[300:]) <= bound
    assert generalization_bound(gram, X[:300], y[:300]) == pytest.approx(bound, rel=1e-3)


def test_bound_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="ODMClassifier"):
        generalization_bound(object(), [[0.0]], [0])
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="delta"):
        generalization_bound(ODMClassifier().fit(X, y), X, y, delta=0)


# ---------------------------------------------------------------------- quasi-Newton steps


@pytest.fixture(scope="module")
def many_columns():
    """Rows whose Newton systems are not formed, in more than one piece of memory."""
    rng = np.random.default_rng(0)
    codes = np.r_[np.arange(6), rng.integers(0, 6, 9_000 - 6)]
    X = 0.15 * rng.standard_normal((6, 500))[codes] + 0.6 * rng.standard_normal((9_000, 500))
    return X, codes


def test_quasi_newton_steps_are_certified_like_rounds(many_columns):
    X, codes = many_columns
    problem = Problem(ODM(500.0, 0.4, 0.2), as_rows(X), codes, np.ones(len(codes)))
    found = quasi_newton.solve(problem, Options(tol=1e-3))
    losses = _class_blocks.Losses(
        codes, *problem.objective.band(problem.weights), np.ones(len(codes)), 6, problem.weights.sum()
    )
    scores = X @ found.coef.T
    loss, true, fenchel = _class_blocks.certify(losses, found.dual, 0, scores)
    rows, columns, values = _class_blocks.coefficients(codes, found.dual)
    V = sp.coo_matrix((values, (rows, columns)), (len(codes), 6)).toarray()
    gap = 0.5 * np.sum((found.coef - V.T @ X) ** 2) + fenchel
    assert found.status == "settled" and found.gap <= 1e-3
    assert found.gap == pytest.approx(gap / found.objective, rel=1e-6)
    assert found.objective == pytest.approx(0.5 * np.sum(found.coef**2) + true) and loss == pytest.approx(true)
    scores[np.arange(len(codes)), codes] = -np.inf
    assert np.array_equal(found.dual.rival, scores.argmax(axis=1))  # the upper side touches at these weights


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_rows_of_zeros_are_read_as_sparse_ones(many_columns, dtype):
    X, codes = many_columns
    X = np.where(np.abs(X) > 1.2, X, 0.0).astype(dtype)[:, :200]  # one value in twenty is left
    assert isinstance(without_zeros(as_rows(X)), SparseRows)
    full = as_rows(X + 1.0)
    assert without_zeros(full) is full
    fits = [
        quasi_newton.solve(
            Problem(ODM(500.0, 0.4, 0.2), as_rows(rows, True), codes, np.ones(len(codes))), Options(1e-6)
        )
        for rows in (X, sp.csr_array(X))
    ]
    np.testing.assert_array_equal(fits[0].coef, fits[1].coef)
    assert fits[0].gap <= 1e-6


def test_quasi_newton_steps_are_as_exact_as_asked(many_columns):
    X, codes = many_columns
    X, codes = X[:2500, :120], codes[:2500]
    problem = Problem(ODM(2.0**12, 0.4, 0.2), as_rows(X), codes, np.ones(len(codes)))
    rough = multiclass.solve(problem, Options(tol=1e-3))
    exact = multiclass.solve(problem, Options(tol=1e-6))
    rounds = multiclass.solve(problem, Options(tol=1e-3, choices={"method": "coordinate-descent"}))
    assert rough.gap <= 1e-3 and exact.gap <= 1e-6
    assert exact.objective <= rough.objective <= 1.01 * rounds.objective
    for found in (rough, exact):
        assert np.all(np.diff(found.extra["history"]) <= 0.0) and found.extra["history"][-1] == found.objective
    cut = multiclass.solve(problem, Options(tol=1e-3, max_iter=3))
    assert cut.n_iter == 3 and cut.status == "iteration limit" and cut.gap > 1e-3


def test_quasi_newton_steps_have_the_same_bits_for_any_number_of_threads(many_columns):
    one, two = (ODMClassifier(tol=1e-2, n_jobs=jobs).fit(*many_columns) for jobs in (1, 2))
    assert np.array_equal(one.coef_, two.coef_)


# ---------------------------------------------------------------------- steps that would lead astray


def test_an_exact_step_does_not_go_beyond_a_sharp_bend():
    def along(t):  # falls until 1.0004, from where on it rises steeply
        return {"slope": 1e3 * (t - 1.001) + 1e12 * max(0.0, t - 1.0004), "bend": 1e3 if t < 1.0004 else 1e12}

    step = newton.exact_step(np.zeros(2), np.full(2, 1e-9), along(0.0)["slope"])
    asked = next(step)
    with pytest.raises(StopIteration) as end:
        while True:
            asked = step.send(along(asked.args[-1]))
    length, hidden = end.value.value
    assert 0.9 < length <= 1.0004
    assert not hidden


@pytest.mark.parametrize("method", ["factor", "row-factor", "cg"])
@pytest.mark.parametrize("lam", [1.0, 2.0**20])
def test_the_multipliers_of_newton_prove_its_gap(method, lam, rng):
    X, signs, weights = rng.random((60, 90)), rng.choice([-1.0, 1.0], 60), rng.integers(1, 4, 60).astype(float)
    problem = Problem(ODM(lam, 0.4, 0.2), as_rows(X), signs, weights)
    exact = newton.solve(problem, Options(tol=1e-13, choices={"method": method})).objective
    for tol in (1e-2, 1e-4, 1e-8):
        found = newton.solve(problem, Options(tol=tol, choices={"method": method}))
        proved = certify(problem, found.coef, found.dual)
        assert found.status is Status.OPTIMAL
        assert proved.gap == pytest.approx(found.gap, rel=1e-3, abs=1e-12)
        assert found.objective - exact <= found.gap * found.objective + 1e-12


def test_slopes_after_the_step_prove_what_newton_s_decrement_says(rng):
    X, signs, weights = rng.random((200, 5)), rng.choice([-1.0, 1.0], 200), np.ones(200)
    objective = ODM(1e4, 0.4, 0.2)
    w = newton.solve(Problem(objective, as_rows(X), signs, weights), Options(tol=1e-14)).coef
    w = w + 1e-7 * rng.normal(size=5)
    part = newton.SmoothPart(as_rows(X), signs, weights, objective)
    now = part.advance(as_rows(X), w, 200.0, with_gram=True)
    H = np.eye(5) + np.tril(now["gram"]) + np.tril(now["gram"], -1).T
    gradient = w - now["pressure"]
    dw = -np.linalg.solve(H, gradient)
    part.along(as_rows(X), dw, 1.0, 200.0)
    ahead = part.foresee(as_rows(X), 200.0)
    proved = 0.5 * np.sum((w - ahead["pressure"]) ** 2) + ahead["apart"]
    assert proved == pytest.approx(-0.5 * gradient @ dw, rel=1e-2)
    assert proved < 0.01 * 0.5 * (gradient @ gradient)


@piecewise_quadratic
class SquaredHinge(NamedTuple):
    """A loss whose conjugate is finite on one side only."""

    C: float

    def losses(self, margins, weights):
        return self.C * weights * np.maximum(0.0, 1.0 - margins) ** 2

    def conjugates(self, beta, weights):
        assert (beta >= 0.0).all()
        return beta * (beta / (4.0 * self.C * weights) - 1.0)

    def slope(self, margins, weights):
        return -2.0 * self.C * weights * np.maximum(0.0, 1.0 - margins)

    def curvature(self, margins, weights):
        return 2.0 * self.C * weights * (margins < 1.0)

    @staticmethod
    def row_slope(objective, margin, weight, total):
        short = max(0.0, 1.0 - margin)
        return -2.0 * objective.C * weight * short, 2.0 * objective.C * weight * (short > 0.0)


@pytest.mark.parametrize("method", ["factor", "cg"])
@pytest.mark.parametrize("C", [1e-2, 1.0, 1e4])
def test_dual_points_ahead_stay_where_the_conjugate_is_finite(C, method, rng):
    X, signs, weights = rng.random((50, 40)), rng.choice([-1.0, 1.0], 50), np.ones(50)
    problem = Problem(SquaredHinge(C), as_rows(X), signs, weights)
    exact = newton.solve(problem, Options(tol=1e-13, choices={"method": method})).objective
    for tol in (0.3, 1e-2, 1e-4):
        found = newton.solve(problem, Options(tol=tol, choices={"method": method}))
        assert (found.dual >= 0.0).all()
        assert -1e-12 <= found.objective / exact - 1.0 <= found.gap / (1.0 - found.gap) + 1e-12


@pytest.mark.parametrize("shape", [(38, 218), (60, 12)])
def test_a_price_that_all_but_forbids_to_leave_the_band(shape, rng):
    scale, (m, d) = 1e7, shape
    X = rng.choice([-1.0, 1.0], (m, d)) * rng.random((m, d))
    signs = np.sign(X @ rng.normal(size=d))
    u = cp.Variable(d)
    margins = cp.multiply(signs, X @ u)
    lowest = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(u)), [margins >= 0.8, margins <= 1.2])
    lowest.solve()
    hard = lowest.value if lowest.status == "optimal" else np.inf
    problem = Problem(ODM(64.0, 0.2, 0.2), as_rows(scale * X), signs, np.ones(m))
    found = newton.solve(problem, Options(tol=1e-3))
    assert found.n_iter < 100
    if np.isfinite(hard):  # nobody leaves the band
        assert found.objective * scale**2 == pytest.approx(hard, rel=1e-3)
    else:
        assert found.status is Status.OPTIMAL


def test_joint_steps_that_are_all_rounding_are_not_taken():
    rng = np.random.default_rng(0)
    X = 1e6 * rng.standard_normal((60, 8)) * 10 ** rng.uniform(-4, 4, 8)
    with pytest.warns(ConvergenceWarning):
        model = ODMClassifier(lam=65536.0, mu=0.2, theta=0.99, solver="newton").fit(X, rng.integers(0, 3, 60))
    assert np.isfinite(model.objective_history_).all()
