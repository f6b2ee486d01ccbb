import cvxpy as cp
import numpy as np
import pytest

from margindist.kernels import Kernel
from margindist.objectives import LDM
from margindist.solvers import _metric, block_descent, dual_coordinate_descent
from margindist.solvers._kernel_certificate import (
    certify_multipliers,
    certify_path,
    certify_projection,
    distance_bound,
)
from margindist.solvers._solution import Options, Problem
from margindist.solvers.block_descent import Settings
from margindist.spaces.features import partial_cholesky
from margindist.spaces.gram import FullGram, gram_bytes, gram_matrix


def optimum(objective, G, signs, weights):
    """Minimise with a generic solver over weights of features; return the value."""
    values, vectors = np.linalg.eigh(G)
    kept = values > 1e-12 * values[-1]
    F = vectors[:, kept] * np.sqrt(values[kept])
    w, share = cp.Variable(F.shape[1]), weights / weights.sum()
    z = cp.multiply(signs, F @ w)
    mean = share @ z
    value = 0.5 * cp.sum_squares(w) - objective.lambda2 * mean
    value += 2.0 * objective.lambda1 * cp.sum_squares(cp.multiply(np.sqrt(share), z - mean))
    if np.isfinite(objective.C):
        problem = cp.Problem(cp.Minimize(value + objective.C * (weights @ cp.pos(1 - z))))
    else:
        problem = cp.Problem(cp.Minimize(value), [z >= 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value


def make(name, rng, n=60):
    X = rng.standard_normal((n, 3))
    signs = np.where(X[:, 0] + 0.7 * rng.standard_normal(n) > 0, 1.0, -1.0)
    weights = np.ones(n)
    kernel = Kernel("rbf", gamma=0.5, bias=1.0)
    if name == "rank-deficient":
        kernel = Kernel("linear")
    elif name == "duplicated":
        X[n // 2 :] = X[: n - n // 2]  # with labels of their own
    elif name == "weighted":
        weights = rng.uniform(0.1, 3.0, n)
    return gram_matrix(X, kernel).whole(), signs, weights


def primal(objective, gram, signs, weights, coef):
    image = gram.dot(coef)
    return objective.value(coef @ image, signs * image, weights)


@pytest.mark.parametrize("lam", [0.0, 2.0**-4, 1.0, 16.0])
@pytest.mark.parametrize("C", [1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("name", ["rbf", "rank-deficient", "duplicated", "weighted"])
def test_optimum_of_a_generic_solver(name, C, lam, rng):
    gram, signs, weights = make(name, rng)
    objective = LDM(C, lam, lam)
    best = optimum(objective, gram.values, signs, weights)
    for tol in (1e-2, 1e-7):
        solution = block_descent.solve(Problem(objective, gram, signs, weights), Options(tol=tol))
        assert solution.status == "optimal" and solution.gap <= tol
        value = primal(objective, gram, signs, weights, solution.coef)
        np.testing.assert_allclose(solution.objective, value, rtol=1e-9)
        assert value - best <= (solution.gap + 1e-7) * abs(value)
        assert (solution.dual >= 0.0).all() and (solution.dual <= C * weights).all()


@pytest.mark.parametrize("lambda1, lambda2", [(0.25, 0.0), (0.0, 0.25), (4.0, 1.0), (1e4, 1e4)])
@pytest.mark.parametrize("name", ["rbf", "duplicated", "weighted"])
@pytest.mark.parametrize("rank", [4, 12])
def test_every_metric_reaches_the_optimum(name, lambda1, lambda2, rank, rng, monkeypatch):
    gram, signs, weights = make(name, rng, n=150)
    monkeypatch.setattr(block_descent, "SETTINGS", Settings(rank=rank, block=20, largest_block=30))
    objective = LDM(10.0, lambda1, lambda2)
    solution = block_descent.solve(Problem(objective, gram, signs, weights), Options(tol=1e-6, max_iter=5000))
    best = optimum(objective, gram.values, signs, weights)
    assert solution.status == "optimal"
    np.testing.assert_allclose(solution.objective, best, rtol=1e-6)


def test_a_metric_that_is_not_near_enough_is_made_whole(rng, monkeypatch):
    gram, signs, weights = make("rbf", rng, n=150)
    monkeypatch.setattr(block_descent, "SETTINGS", Settings(rank=4))
    monkeypatch.setattr(_metric, "SETTINGS", _metric.Settings(loose=1e6))
    objective = LDM(10.0, 1e4, 1e4)
    solution = block_descent.solve(Problem(objective, gram, signs, weights), Options(tol=1e-6))
    assert solution.status == "optimal"
    np.testing.assert_allclose(solution.objective, optimum(objective, gram.values, signs, weights), rtol=1e-6)


@pytest.mark.parametrize("C", [1.0, np.inf])
def test_the_certificate_bounds_the_truth_for_any_point(C, rng):
    gram, signs, weights = make("weighted", rng, n=20)
    signs = np.where(gram.values[0] > np.median(gram.values[0]), 1.0, -1.0)
    objective = LDM(C, 0.5, 0.5)
    best = optimum(objective, gram.values, signs, weights)
    for _ in range(50):
        beta = rng.uniform(0.0, 1.0, 20) * np.minimum(objective.C * weights, 3.0)
        guess = rng.normal(1.0, 1.0, 20)
        found, _ = certify_multipliers(objective, gram, signs, weights, beta, guess)
        if np.isfinite(found.objective):
            assert found.objective - found.gap * abs(found.objective) <= best + 1e-7 * abs(best)
            np.testing.assert_allclose(found.objective, primal(objective, gram, signs, weights, found.coef), rtol=1e-9)


@pytest.mark.parametrize("solve", [block_descent.solve, dual_coordinate_descent.solve])
def test_weight_two_is_the_row_twice(solve, rng):
    X = rng.standard_normal((40, 2))
    signs = np.where(X[:, 0] + rng.standard_normal(40) > 0, 1.0, -1.0)
    kernel, objective, counts = Kernel("rbf", bias=1.0), LDM(3.0, 0.5, 0.5), rng.integers(1, 4, 40)
    options = Options(tol=1e-8, max_iter=20000)
    weighted = solve(Problem(objective, gram_matrix(X, kernel), signs, counts.astype(float)), options)
    twice = np.repeat(np.arange(40), counts)
    longer = Problem(objective, gram_matrix(X[twice], kernel), signs[twice], np.ones(len(twice)))
    repeated = solve(longer, options)
    np.testing.assert_allclose(weighted.objective, repeated.objective, rtol=1e-7)
    G = kernel(X, X)
    np.testing.assert_allclose(G @ weighted.coef, kernel(X, X[twice]) @ repeated.coef, atol=2e-3)


@pytest.mark.parametrize("solve", [block_descent.solve, dual_coordinate_descent.solve])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_hard_margin(solve, lam, rng):
    X = rng.standard_normal((50, 2))
    signs = np.where(X.sum(axis=1) > 0, 1.0, -1.0)
    X += 0.3 * signs[:, None]
    gram, weights, objective = gram_matrix(X, Kernel("rbf", bias=1.0)), np.ones(50), LDM(np.inf, lam, lam)
    solution = solve(Problem(objective, gram, signs, weights), Options(tol=1e-4, max_iter=50000))
    assert solution.status == "optimal"
    assert (signs * gram.dot(solution.coef)).min() >= 1.0 - 1e-9
    best = optimum(objective, gram.whole().values, signs, weights)
    assert -1e-6 * abs(best) <= solution.objective - best <= 1.1e-4 * abs(best)


def test_hard_margin_that_does_not_exist(rng):
    X = rng.standard_normal((30, 2))
    X[1] = X[0]
    signs = np.where(np.arange(30) % 2 == 0, 1.0, -1.0)
    gram = gram_matrix(X, Kernel("rbf", bias=1.0))
    problem = (LDM(np.inf, 0.25, 0.25), gram, signs, np.ones(30))
    assert block_descent.solve(Problem(*problem), Options()).status == "infeasible"
    assert dual_coordinate_descent.solve(Problem(*problem), Options()).status == "infeasible"


def plain_pass(H, upper, beta, lambda_share):
    """One pass of Algorithm 1, margins computed anew for every step."""
    beta = beta.copy()
    for i in range(len(beta)):
        slope = H[i] @ (lambda_share + beta) - 1.0
        beta[i] = min(max(beta[i] - slope / H[i, i], 0.0), upper[i])
    return beta


@pytest.mark.parametrize("name", ["rbf", "rank-deficient", "weighted"])
def test_algorithm_1_step_by_step(name, rng):
    gram, signs, weights = make(name, rng)
    objective, share = LDM(5.0, 0.5, 0.25), weights / weights.sum()
    P = 4.0 * objective.lambda1 * (np.diag(share) - np.outer(share, share))
    G = gram.values
    H = signs[:, None] * (G @ np.linalg.inv(np.eye(gram.n) + signs[:, None] * P * signs @ G)) * signs
    expected = np.zeros(gram.n)
    for n_passes in range(1, 6):
        expected = plain_pass(H, 5.0 * weights, expected, objective.lambda2 * share)
        found = dual_coordinate_descent.solve(
            Problem(objective, gram, signs, weights), Options(tol=1e-300, max_iter=n_passes)
        )
        assert found.n_iter == n_passes
        beta, z = np.zeros(gram.n), H @ (objective.lambda2 * share)
        for _ in range(n_passes):
            dual_coordinate_descent.coordinate_pass(H, 5.0 * weights, beta, z)
        np.testing.assert_allclose(beta, expected, atol=1e-8)
        if n_passes == 1:  # later the best pass is returned, which need not be the last
            np.testing.assert_allclose(found.dual, expected, atol=1e-8)


@pytest.mark.parametrize("name", ["rbf", "rank-deficient", "duplicated", "weighted"])
def test_algorithm_1_ends_at_the_same_optimum(name, rng):
    gram, signs, weights = make(name, rng)
    objective = LDM(2.0, 0.5, 0.25)
    slow = dual_coordinate_descent.solve(Problem(objective, gram, signs, weights), Options(tol=1e-6, max_iter=20000))
    fast = block_descent.solve(Problem(objective, gram, signs, weights), Options(tol=1e-8))
    assert slow.status == "optimal"
    np.testing.assert_allclose(slow.objective, fast.objective, rtol=2e-6)


def test_limited_memory_gives_the_same_result(rng):
    X = rng.standard_normal((600, 8))
    signs = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(600) > 0, 1.0, -1.0)
    kernel, objective = Kernel("rbf", gamma=0.3, bias=1.0), LDM(10.0, 0.25, 0.25)
    whole, limited = (
        block_descent.solve(Problem(objective, gram_matrix(X, kernel, limit), signs, np.ones(600)), Options(tol=1e-6))
        for limit in (np.inf, gram_bytes(600) // 8)
    )
    assert whole.status == limited.status == "optimal"
    np.testing.assert_allclose(limited.objective, whole.objective, rtol=1e-6)
    np.testing.assert_allclose(limited.coef, whole.coef, atol=0.05)


def test_start_from_a_solution_takes_fewer_blocks(rng):
    X = rng.standard_normal((600, 8))
    signs = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(600) > 0, 1.0, -1.0)
    gram = gram_matrix(X, Kernel("rbf", gamma=0.3, bias=1.0))
    first = block_descent.solve(Problem(LDM(10.0, 0.25, 0.25), gram, signs, np.ones(600)), Options(tol=1e-5))
    again = block_descent.solve(Problem(LDM(10.0, 0.25, 0.25), gram, signs, np.ones(600)), Options(tol=1e-4), first)
    assert again.n_iter < first.n_iter and again.status == "optimal"
    smaller = block_descent.solve(Problem(LDM(5.0, 0.25, 0.5), gram, signs, np.ones(600)), Options(tol=1e-5), first)
    fresh = block_descent.solve(Problem(LDM(5.0, 0.25, 0.5), gram, signs, np.ones(600)), Options(tol=1e-5))
    np.testing.assert_allclose(smaller.objective, fresh.objective, rtol=2e-5)


def test_report_can_stop_and_the_certificate_still_holds(rng):
    gram, signs, weights = make("rbf", rng)
    seen = []

    def report(iteration, coef, objective, gap):
        seen.append((iteration, objective, gap))
        return len(seen) == 2

    objective = LDM(100.0, 0.0, 0.0)
    solution = block_descent.solve(
        Problem(objective, FullGram(gram.values), signs, weights), Options(tol=1e-12, report=report)
    )
    assert solution.status == "stopped" and len(seen) == 2
    best = optimum(objective, gram.values, signs, weights)
    assert solution.objective - solution.gap * abs(solution.objective) <= best * (1 + 1e-8)


def test_an_empty_row_costs_its_loss_and_nothing_else(rng):
    X = rng.standard_normal((30, 2))
    X[3] = 0.0
    signs = np.where(X[:, 0] > 0.2, 1.0, -1.0)
    gram = gram_matrix(X, Kernel("linear")).whole()
    objective = LDM(1.0, 0.5, 0.5)
    for solve in (block_descent.solve, dual_coordinate_descent.solve):
        solution = solve(Problem(objective, gram, signs, np.ones(30)), Options(tol=1e-6, max_iter=10000))
        assert solution.status == "optimal"
        np.testing.assert_allclose(solution.objective, optimum(objective, gram.values, signs, np.ones(30)), rtol=1e-6)


def hopeless(rng):
    """Return a problem whose weights and values are of so different sizes that steps in the dual get nowhere."""
    X = rng.standard_normal((80, 3)) * np.exp(3.0 * rng.standard_normal((80, 3)))
    signs, weights = np.where(rng.random(80) < 0.5, 1.0, -1.0), 10.0 ** rng.uniform(-6, 6, 80)
    return Problem(LDM(400.0, 30.0, 3000.0), gram_matrix(X, Kernel("linear")).whole(), signs, weights)


def test_steps_that_get_nowhere_end_early(rng):
    problem = hopeless(rng)
    found = dual_coordinate_descent.solve(problem, Options(tol=1e-4))
    assert found.status == "stalled" and found.n_iter < 400
    assert dual_coordinate_descent.solve(problem, Options(tol=1e-4, max_iter=50)).status == "iteration limit"


def test_blocks_in_the_metric_end_where_single_steps_get_nowhere(rng):
    found = block_descent.solve(hopeless(rng), Options(tol=1e-4))
    assert found.status == "optimal" and found.n_iter < 50


def test_a_pair_of_multipliers_steps_to_its_minimum_in_the_box():
    rng = np.random.default_rng(0)
    for _ in range(300):
        root = rng.standard_normal((2, 2 if rng.random() < 0.8 else 1))  # equal rows, too
        H, slope, upper = root @ root.T, rng.standard_normal(2), rng.uniform(0.5, 2.0, 2)
        beta = upper * rng.choice([0.0, 0.3, 1.0], 2)
        d, e = block_descent._pair_step(*slope, H[0, 0], H[1, 1], H[0, 1], *beta, *upper)
        change = np.array([d, e])
        assert (beta + change >= -1e-12).all() and (beta + change <= upper + 1e-12).all()
        reached = slope @ change + 0.5 * change @ H @ change
        grid = np.linspace(0.0, 1.0, 101)
        others = np.stack(np.meshgrid(grid * upper[0], grid * upper[1]), axis=-1).reshape(-1, 2) - beta
        values = others @ slope + 0.5 * np.einsum("ij,jk,ik->i", others, H, others)
        assert reached <= values.min() + 1e-10


@pytest.mark.parametrize("name", ["rbf", "duplicated", "weighted"])
@pytest.mark.parametrize("C", [1.0, 1e4, np.inf])
def test_margins_that_went_with_the_multipliers_prove_no_more_than_is_true(name, C, rng):
    gram, signs, weights = make(name, rng)
    if np.isinf(C):
        signs = np.where(gram.values[0] > np.median(gram.values[0]), 1.0, -1.0)
    objective = LDM(C, 0.0, 0.0)
    best = optimum(objective, gram.values, signs, weights)
    if best is None or not np.isfinite(best):
        pytest.skip("no hard margin")
    proved = 0
    for steps in (1, 5, 50, 5000):
        beta, z = np.zeros(gram.n), np.zeros(gram.n)
        path = block_descent._Path(gram, beta)
        slope, H = z - 1.0, signs[:, None] * gram.values * signs
        block_descent._step_through(H, H.diagonal().copy(), slope, beta, objective.upper(weights), 0.0, steps)
        path.extend(np.flatnonzero(beta), beta[beta != 0.0])
        found = certify_path(objective, gram, signs, weights, beta, slope + 1.0, path)
        if not np.isfinite(found.objective):
            continue
        proved += 1
        assert found.objective == pytest.approx(primal(objective, gram, signs, weights, found.coef), rel=1e-9)
        assert found.objective - found.gap * abs(found.objective) <= best * (1 + 1e-8)
    assert proved


def few_support_vectors(n, rng, monkeypatch):
    """Return rows of two classes that meet in few places, and settings with which landmarks are worth it."""
    monkeypatch.setattr(block_descent, "SETTINGS", Settings(rank=32, worth_landmarks=0))
    X = rng.standard_normal((n, 3))
    X[:, 0] += 2.0 * np.sign(X[:, 0])
    kernel = Kernel("rbf", gamma=0.2, bias=1.0)
    return gram_matrix(X, kernel), np.sign(X[:, 0]), rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize(
    "lambda1, lambda2, few", [(0.25, 0.25, True), (0.25, 0.0, True), (0.0, 0.25, True), (8.0, 8.0, False)]
)
def test_landmarks_prove_it_or_hand_over(lambda1, lambda2, few, rng, monkeypatch):
    gram, signs, weights = few_support_vectors(300, rng, monkeypatch)
    objective = LDM(1.0, lambda1, lambda2)
    solution = block_descent.solve(Problem(objective, gram, signs, weights), Options(tol=1e-3))
    assert solution.status == "optimal"
    whole = gram.whole()
    value = primal(objective, whole, signs, weights, solution.coef)
    np.testing.assert_allclose(solution.objective, value, rtol=1e-9)
    best = optimum(objective, whole.values, signs, weights)
    assert -1e-7 * abs(value) <= value - best <= (solution.gap + 1e-7) * abs(value)
    assert few == (np.count_nonzero(solution.coef) <= np.count_nonzero(solution.dual) + block_descent.SETTINGS.rank)


@pytest.mark.parametrize("rank", [2, 6, 24])
def test_a_projected_pull_proves_no_more_than_is_true(rank, rng, monkeypatch):
    gram, signs, weights = few_support_vectors(120, rng, monkeypatch)
    objective = LDM(1.0, 2.0, 1.0)
    best = optimum(objective, gram.whole().values, signs, weights)
    factor = partial_cholesky(gram, rank, rng)
    for share in (0.0, 0.1, 1.0):
        beta = objective.upper(weights) * rng.uniform(0.0, 1.0, gram.n) * (rng.uniform(0.0, 1.0, gram.n) < share)
        support = gram.dot(signs * beta)
        w = rng.standard_normal(rank)  # whatever the weights are
        found, margins = certify_projection(objective, gram, signs, weights, factor, beta, support, w)
        exact = signs * gram.dot(found.coef)  # shorter, if that costs less
        part = (exact @ margins) / (margins @ margins)
        assert 0.0 <= part <= 1.0 + 1e-12
        np.testing.assert_allclose(exact, part * margins, atol=1e-9)
        assert found.objective >= best - 1e-7 and found.objective * (1.0 - found.gap) <= best + 1e-7
        pull = objective.dual_coef(beta, margins, weights) - beta
        rest = gram.whole().values - factor.features @ factor.features.T
        assert (signs * pull) @ rest @ (signs * pull) <= distance_bound(factor, pull)


def test_no_block_is_solved_beyond_the_rounding_of_its_slopes(rng):
    rows = 1e6 * rng.standard_normal((40, 2))
    H, beta, upper = rows @ rows.T, np.full(40, 0.5), np.ones(40)
    rounding = np.finfo(float).eps * H.diagonal().max()
    before = beta.copy()
    block_descent._solve_block(H, rounding * rng.choice([-1.0, 1.0], 40), beta, upper, goal=1e-12)
    assert np.array_equal(beta, before)
    block_descent._solve_block(H, 1e3 * rounding * rng.choice([-1.0, 1.0], 40), beta, upper, goal=1e-12)
    assert not np.array_equal(beta, before)


def test_certificates_that_say_the_same_again_are_the_last(rng, monkeypatch):
    asked = []

    def no_better(*args):
        asked.append(args)
        found, margins = certify_multipliers(*args)
        return found._replace(gap=0.5), margins

    monkeypatch.setattr(block_descent, "certify_multipliers", no_better)
    rows = rng.standard_normal((20, 3))
    problem = Problem(LDM(1.0, 0.5, 0.5), FullGram(rows @ rows.T), np.sign(rows[:, 0]), np.ones(20))
    found = block_descent.solve(problem, Options(1e-6))
    assert str(found.status) == "stalled" and len(asked) < 10
