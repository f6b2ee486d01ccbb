"""The status of a solution comes from its certificate alone."""

import numpy as np
import pytest
from scipy.linalg import cho_solve

from margindist.certificate import worthwhile_scale
from margindist.objectives import LDM, ODM, LeastSquares
from margindist.solvers import _factors, coordinate_descent, interior_point, least_squares, multiclass, newton
from margindist.solvers._factors import KeptFactor, nearest_cholesky
from margindist.solvers._solution import (
    Options,
    Problem,
    Solution,
    Status,
    better,
    conclude,
    hand_over,
)
from margindist.solvers.conjugate_gradients import conjugate_gradients
from margindist.spaces.rows import as_rows

EVERY_END = [Status.OPTIMAL, Status.ITERATION_LIMIT, Status.STOPPED, Status.STALLED]


def solution(gap, **others):
    return Solution(np.ones(2), np.ones(3), 1.0, gap, **others)


@pytest.mark.parametrize("ended", EVERY_END)
def test_optimal_is_a_gap_within_tol_and_nothing_else(ended):
    assert conclude(solution(1e-4), 1e-4, ended).status is Status.OPTIMAL
    for gap in (1.0001e-4, 4.0, np.inf, np.nan):
        expected = Status.STALLED if ended is Status.OPTIMAL else ended
        assert conclude(solution(gap), 1e-4, ended).status is expected


def test_a_proof_of_infeasibility_stays():
    assert conclude(solution(np.inf, status=Status.INFEASIBLE), 1e-4, Status.STALLED).status is Status.INFEASIBLE


@pytest.mark.parametrize(
    "broken", [{"coef": np.array([1.0, np.nan])}, {"coef": np.array([np.inf])}, {"objective": np.nan}]
)
def test_what_is_not_finite_is_an_error(broken):
    with pytest.raises(FloatingPointError, match="not finite"):
        conclude(solution(0.0)._replace(**broken), 1e-4, Status.STALLED)


@pytest.mark.parametrize("length", [0.05, 3.0, 1e6, 1e30, 1e60])
@pytest.mark.parametrize("objective", [LDM(1.0, 0.0, 0.0), LDM(1.0, 0.3, 7.0), ODM(16.0, 0.2, 0.4), LeastSquares(1.0)])
def test_weights_that_cost_more_than_none_are_shortened(objective, length):
    rng = np.random.default_rng(0)
    X, weights = rng.normal((0.5, 0.0, 0.0), size=(20, 3)), rng.random(20) + 0.5
    w = length * np.array([1.0, 0.1, -0.1])

    def value(scale):
        return objective.value((scale * w) @ (scale * w), scale * (X @ w), weights)

    scale = worthwhile_scale(objective, w @ w, X @ w, weights)
    assert scale == 1.0 if value(1.0) <= value(0.0) else 0.0 < scale < 1.0
    if scale < 1.0:
        least = min(map(value, 4.0 ** np.linspace(-4.0, 1.0, 200) / length))
        assert value(0.0) - value(scale) >= 0.5 * (value(0.0) - least)


def test_weights_in_the_wrong_direction_are_left_out():
    X, weights = np.ones((4, 1)), np.ones(4)
    assert worthwhile_scale(LDM(1.0, 0.25, 0.25), 9.0, -3.0 * X[:, 0], weights) == 0.0


def test_the_better_of_two_has_the_lower_objective_and_the_higher_bound():
    low = solution(0.5)._replace(objective=10.0)  # the minimum is at least 5
    tight = solution(0.2)._replace(objective=11.0)  # at least 8.8
    for both in (better(low, tight), better(tight, low)):
        assert both.objective == 10.0
        assert both.gap == pytest.approx(0.12)
    assert better(None, low) is low
    assert better(low, solution(np.nan)._replace(objective=np.nan)) is low


def test_a_borrowed_bound_leaves_the_error_of_the_value_in_the_gap():
    rough = solution(0.5)._replace(objective=10.0, error=1.0)  # the exact value is up to 11; the minimum is at least 6
    tight = solution(0.2)._replace(objective=12.0)  # at least 9.6
    assert rough.least == pytest.approx(6.0)
    for both in (better(rough, tight), better(tight, rough)):
        assert (both.objective, both.error) == (10.0, 1.0)
        assert both.gap == pytest.approx((11.0 - 9.6) / 10.0)
    assert better(rough, solution(0.1)._replace(objective=10.5)).objective == 10.5  # nothing is known to be lower


def test_a_bound_that_rounding_has_spoilt_is_not_borrowed():
    low = solution(0.5)._replace(objective=10.0)
    far = solution(0.0)._replace(objective=1e14)  # proves that the minimum is that, but for rounding
    assert better(low, far).gap == better(far, low).gap == 0.5
    assert far.least < 1e14 - 100.0


def outcome(gap, status):
    return lambda best: solution(gap, n_iter=3, status=status)


def lost(best):
    raise FloatingPointError("no digits")


def test_solvers_hand_over_until_one_proves_its_result():
    never = pytest.fail
    stalled, done = outcome(0.5, Status.STALLED), outcome(1e-5, Status.OPTIMAL)
    found = hand_over([stalled, lost, done, never], 1e-4)
    assert (found.status, found.gap, found.n_iter) == (Status.OPTIMAL, 1e-5, 6)
    for status in (Status.ITERATION_LIMIT, Status.STOPPED):  # whoever asked for that gets it
        assert hand_over([outcome(0.5, status), never], 1e-4).status is status
    assert hand_over([stalled, outcome(0.9, Status.STALLED), lost], 1e-4).gap == pytest.approx(0.5)
    nothing_to_add = lambda best: None  # noqa: E731
    assert hand_over([stalled, nothing_to_add, done, never], 1e-4).n_iter == 6
    assert hand_over([stalled, nothing_to_add], 1e-4).status is Status.STALLED
    with pytest.raises(FloatingPointError, match="no digits"):
        hand_over([lost, lost], 1e-4)


def test_a_point_found_contradicts_a_proof_that_there_is_none():
    none = Solution(np.zeros(2), np.ones(3), np.inf, np.inf, 1, Status.INFEASIBLE)
    assert hand_over([outcome(0.5, Status.STALLED), lambda best: none], 1e-4).status is Status.STALLED
    assert hand_over([lambda best: none], 1e-4).status is Status.INFEASIBLE


def test_rounding_of_far_margins_does_not_leave_the_dual_domain():
    # The variance is blind to the mean margin, so its part of a dual point sums to zero: else the bound is a false one.
    rng = np.random.default_rng(0)
    margins, weights = 7.6e7 / 3.0 + 1e-3 * rng.normal(size=10), rng.random(10) + 0.5
    a = LDM(100.0, 1e6, 600.0).dual_coef(np.zeros(10), margins, weights)
    assert a.sum() == pytest.approx(600.0, rel=1e-11)


def test_solvers_say_what_an_objective_lacks():
    problem = Problem(LDM(1.0, 0.0, 0.0), as_rows(np.eye(2)), np.array([1.0, -1.0]), np.ones(2))
    with pytest.raises(TypeError, match="Newton's method expects an objective with curvature, row_slope, got LDM"):
        newton.solve(problem, Options())
    smooth = problem._replace(objective=ODM(1.0, 0.4, 0.2))
    message = r"The interior point method expects .* got ODM without upper_bound, variance_weight, mean_weight"
    with pytest.raises(TypeError, match=message):
        interior_point.solve(smooth, Options())


def test_choices_that_an_algorithm_does_not_have_are_refused():
    options = Options(choices={"outer": "frozen"})
    assert options.chosen(outer="concave", method="auto") == ("frozen", "auto")
    problem = Problem(ODM(1.0, 0.4, 0.2), as_rows(np.eye(3)), np.arange(3), np.ones(3))
    with pytest.raises(TypeError, match=r"expected choices among outer, method, got inner"):
        multiclass.solve(problem, Options(choices={"inner": 1}))


def test_conjugate_gradients_solve_a_system_in_as_many_steps_as_it_has_eigenvalues():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    A = Q * np.repeat([1.0, 5.0, 30.0], [3, 3, 2]) @ Q.T
    right, start = rng.normal(size=8), rng.normal(size=8)
    steps = conjugate_gradients(A.__matmul__, right - A @ start, np.copy, start.copy())
    for _, (found, residual, square, _) in zip(range(4), steps):
        np.testing.assert_allclose(residual, right - A @ found, atol=1e-12)
        assert square == pytest.approx(residual @ residual)
    np.testing.assert_allclose(found, np.linalg.solve(A, right), atol=1e-10)


def test_least_squares_is_one_problem_for_four_solvers():
    # Without a bias the margins of Newton's method, coordinate descent and both closed forms are the same.
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=(30, 4)), rng.uniform(0.5, 2.0, 30)
    signs = np.where(X[:, 0] + rng.normal(size=30) > 0, 1.0, -1.0)
    problem = Problem(LeastSquares(3.0), as_rows(X), signs, weights)
    expected = np.linalg.solve(np.eye(4) + 3.0 * X.T @ (weights[:, None] * X), 3.0 * X.T @ (weights * signs))
    for solver in (newton, coordinate_descent, least_squares):
        found = solver.solve(problem, Options(tol=1e-12))
        assert found.status is Status.OPTIMAL
        np.testing.assert_allclose(found.coef, expected, atol=1e-6)
    (columns,) = least_squares.solve_columns(problem._replace(signs=signs[None]), Options(tol=1e-10))
    np.testing.assert_allclose(columns.coef, expected, atol=1e-8)
    gram = problem._replace(space=X @ X.T, signs=signs[None])
    (rows,) = least_squares.solve_gram(gram, Options(tol=1e-10, choices={"fit_bias": False}))
    np.testing.assert_allclose(X.T @ rows.coef, expected, atol=1e-8)
    assert found.objective == pytest.approx(rows.objective) == pytest.approx(columns.objective)


# ---------------------------------------------------------------------- factors that are kept


def test_a_kept_factor_solves_for_sets_of_rows_that_differ(rng, monkeypatch):
    X = rng.normal(size=(80, 200))
    products, ridge = X @ X.T, rng.random(80)
    sets = [np.arange(60), np.r_[np.arange(1, 60), 70], np.arange(60)[::-1], np.arange(20, 80)]
    other = ridge.copy()
    other[5] = 7.0
    made = []
    monkeypatch.setattr(_factors, "nearest_cholesky", lambda system: made.append(1) or nearest_cholesky(system))
    kept = KeptFactor()
    for which, own_ridge in zip(sets, [ridge, other, ridge, ridge], strict=True):
        b = rng.normal(size=len(which))
        x = kept.solver(products, which, own_ridge[which])(b)
        np.testing.assert_allclose(products[np.ix_(which, which)] @ x + own_ridge[which] * x, b, atol=1e-9)
    assert len(made) == 2  # only the last set differs by more than is worth it


def test_a_kept_factor_multiplies_only_for_rows_that_the_last_set_had_not(rng, monkeypatch):
    X = rng.normal(size=(80, 200))
    products, ridge, dearer = X @ X.T, np.ones(80), np.ones(80)
    dearer[7] = 3.0
    sets = [
        (np.arange(60), ridge, 0),
        (np.r_[np.arange(2, 60), 70], ridge, 3),  # 0 and 1 have left, 70 has joined
        (np.r_[71, np.arange(2, 60), 70], dearer, 3),  # 71 has joined, 7 has left and joined with another ridge
        (np.r_[np.arange(1, 60), 70, 71], dearer, 0),  # 1 is back
        (np.r_[np.arange(2, 60), 70], ridge, 1),  # and leaves again
    ]
    columns = []

    def counted(factor, b, **named):
        if b.ndim == 2:
            columns.append(b.shape[1])
        return cho_solve(factor, b, **named)

    monkeypatch.setattr(_factors, "cho_solve", counted)
    kept = KeptFactor()
    for which, own_ridge, new in sets:
        columns.clear()
        b = rng.normal(size=len(which))
        x = kept.solver(products, which, own_ridge[which])(b)
        np.testing.assert_allclose(products[np.ix_(which, which)] @ x + own_ridge[which] * x, b, atol=1e-9)
        assert sum(columns) == new
