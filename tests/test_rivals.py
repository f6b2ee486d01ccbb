"""MDO, KM-OMD and FMM: solvers against generic ones, theorems, limits."""

import warnings
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_blobs, make_circles, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from margindist import FMMClassifier, KOMDClassifier, MDOClassifier
from margindist.objectives import HullDistance, NormalisedCost
from margindist.solvers import margin_maximisation, normalised_cost, simplex_qp
from margindist.solvers._solution import Options, Problem, starting_at
from margindist.spaces.rows import as_rows


def separable(seed, m=80, d=4, gap=0.3):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    X = rng.normal(size=(m, d))
    y = np.where(X @ w > 0, 1.0, -1.0)
    return X + gap * np.outer(y, w), y


def largest_margin(X, y):
    w = cp.Variable(X.shape[1])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w)), [cp.multiply(y, X @ w) >= 1])
    problem.solve(solver="CLARABEL")
    return problem.value**-0.5


# ---------------------------------------------------------------------- KM-OMD


def least_distance(K, y, weights, lam):
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    gamma = cp.Variable(len(y))
    cost = cp.sum_squares(root.T @ cp.multiply(y, gamma)) + lam * cp.sum(cp.multiply(1 / weights, cp.square(gamma)))
    problem = cp.Problem(cp.Minimize(cost), [gamma >= 0, cp.sum(gamma[y > 0]) == 1, cp.sum(gamma[y < 0]) == 1])
    problem.solve(solver="CLARABEL")
    return problem.value


@pytest.mark.parametrize("lam", [0.01, 1.0, 100.0])
def test_hull_points_against_a_generic_solver(lam, rng):
    X = rng.normal(size=(70, 4))
    y = np.where(X[:, 0] + 0.4 * rng.normal(size=70) > 0, 1.0, -1.0)
    weights = rng.integers(1, 4, size=70).astype(float)
    linear, rbf = X @ X.T, rbf_kernel(X, gamma=0.5)
    for data, K in ((as_rows(X), linear), (as_rows(sp.csr_matrix(X)), linear), (linear, linear), (rbf, rbf)):
        found = simplex_qp.solve(Problem(HullDistance(lam), data, y, weights), Options(tol=1e-7))
        best = least_distance(K, y, weights, lam)
        assert found.status == "optimal"
        assert found.gap <= 1e-7
        assert_allclose(found.objective, best, rtol=1e-5)
        gamma = y * found.coef
        assert gamma.min() >= 0.0
        assert_allclose([gamma[y > 0].sum(), gamma[y < 0].sum()], 1.0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 10.0))
def test_the_gap_bounds_the_distance_to_the_minimum(seed, lam):
    X, y = separable(seed, m=25, d=3, gap=0.0)
    if len(np.unique(y)) < 2:
        return
    best = simplex_qp.solve(Problem(HullDistance(lam), X @ X.T, y, np.ones(25)), Options(tol=1e-9)).objective
    for max_iter in (1, 2, 4):
        rough = simplex_qp.solve(
            Problem(HullDistance(lam), X @ X.T, y, np.ones(25)), Options(tol=1e-9, max_iter=max_iter)
        )
        assert rough.objective - best <= rough.gap * rough.objective + 1e-9


def test_without_a_price_it_is_the_hard_margin_svm():
    X, y = separable(0)
    model = KOMDClassifier(lam=0.0, tol=1e-8).fit(X, y)
    svm = SVC(kernel="linear", C=1e8, tol=1e-8).fit(X, y)
    scale = np.linalg.norm(svm.coef_) / np.linalg.norm(model.coef_)
    assert_allclose(scale * model.coef_, svm.coef_, rtol=1e-3)
    assert_allclose(scale * model.intercept_, svm.intercept_, atol=1e-3 * scale)
    assert_allclose(model.objective_**0.5 / 2, 1 / np.linalg.norm(svm.coef_), rtol=1e-4)


def gaussian_halves(seed):
    rng = np.random.default_rng(seed)
    m, d = rng.integers(6, 200), rng.integers(1, 60)
    X = rng.standard_normal((m, d))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    return X, y


@pytest.mark.parametrize("seed", [63, 103, 143])
def test_without_a_price_digits_suffice_for_ordinary_data(seed):
    X, y = gaussian_halves(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KOMDClassifier(lam=0.0).fit(X, y)
    margin = 0.5 * np.sqrt(model.objective_)
    centred = np.column_stack([X, np.ones(len(X))])
    w = np.append(model.coef_, model.intercept_) / np.linalg.norm(model.coef_)
    assert_allclose((y * (centred @ w)).min(), margin, rtol=1e-5)


def test_where_digits_do_not_suffice_the_best_iterate_is_kept():
    X, y = gaussian_halves(29)  # the hulls are 4e-4 of the data's length apart
    found = [
        simplex_qp.solve(Problem(HullDistance(0.0), as_rows(X), y, np.ones(len(y))), Options(tol=tol))
        for tol in (1e-4, 1e-12)
    ]
    assert found[0].status == "optimal" and found[1].status == "stalled"
    assert found[1].gap <= found[0].gap


def test_with_a_high_price_it_is_the_difference_of_class_means():
    X, y = separable(1)
    model = KOMDClassifier(lam=1e9).fit(X, y)
    means = X[y > 0].mean(axis=0), X[y < 0].mean(axis=0)
    assert_allclose(model.coef_[0], means[0] - means[1], atol=1e-6)
    assert_allclose(model.decision_function([(means[0] + means[1]) / 2]), 0.0, atol=1e-6)


def test_overlapping_hulls_are_said():
    X, y = make_classification(60, 3, n_informative=2, n_redundant=0, flip_y=0.4, random_state=0)
    with pytest.warns(ConvergenceWarning, match="hulls overlap"):
        KOMDClassifier(lam=0.0).fit(X, y)


def test_few_columns_and_gram_matrix_agree():
    X, y = make_classification(90, 5, random_state=0)
    linear = KOMDClassifier(tol=1e-9).fit(X, y)
    precomputed = KOMDClassifier(kernel="precomputed", tol=1e-9).fit(X @ X.T, y)
    assert_allclose(linear.decision_function(X), precomputed.decision_function(X @ X.T), atol=1e-5)


# ---------------------------------------------------------------------- FMM


def naive_margin_maximisation(X, y, step, n_steps):
    Z = y[:, None] * X / np.linalg.norm(X, axis=1).max()
    w = g = np.zeros(X.shape[1])
    for t in range(n_steps):
        q = np.exp(-Z @ w)
        u = Z.T @ (q / q.sum())
        g = t / (t + 1) * (g + u)
        w = w + step * (g + u)
    return w / np.linalg.norm(w)


def test_steps_are_those_of_algorithm_1():
    X, y = make_classification(50, 4, flip_y=0.4, random_state=2)  # inseparable: the last iterate is kept
    signs = np.where(y == 1, 1.0, -1.0)
    for n_steps in (1, 2, 7, 60):
        found = margin_maximisation.solve(
            Problem(None, as_rows(X), signs, np.ones(50)), Options(max_iter=n_steps, choices={"step": 0.5})
        )
        assert found.status == "inseparable"
        assert_allclose(found.coef, naive_margin_maximisation(X, signs, 0.5, n_steps), atol=1e-10)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_margin_comes_within_a_thousandth_of_the_largest(seed):
    X, y = separable(seed)
    if len(np.unique(y)) < 2:
        return
    model = FMMClassifier(fit_intercept=False, max_iter=100_000).fit(X, y)
    best = largest_margin(X, y)
    assert best * (1 - 1e-3) <= model.margin_ <= best * (1 + 1e-6)
    assert model.margin_bound_ >= best * (1 - 1e-6)
    assert_allclose((y * model.decision_function(X)).min(), model.margin_, rtol=1e-9)


def test_the_rate_of_the_theorem():
    X, y = separable(5)
    radius = np.linalg.norm(X, axis=1).max()
    best = largest_margin(X, y) / radius
    for t in (20, 100, 500):
        found = margin_maximisation.solve(Problem(None, as_rows(X), y, np.ones(len(y))), Options(tol=1e-12, max_iter=t))
        rate = 4 * (1 + np.log(len(y))) * (1 + 2 * np.log(t + 1)) / (best * (t + 1) ** 2)
        assert found.extra["margin"] / radius >= best - rate


def test_kernel_margin_against_the_hard_margin_svm():
    X, y = make_circles(60, factor=0.4, noise=0.05, random_state=0)
    model = FMMClassifier(kernel="rbf", gamma=1.0, max_iter=200_000).fit(X, y)
    K = rbf_kernel(X, gamma=1.0) + 1.0
    signs = np.where(y == 1, 1.0, -1.0)
    values, vectors = np.linalg.eigh(K)
    best = largest_margin(vectors * np.sqrt(np.maximum(values, 0.0)), signs)
    assert model.margin_ >= best * (1 - 1e-3)
    assert_allclose((signs * model.decision_function(X)).min(), model.margin_, rtol=1e-6)


def test_the_bound_of_a_kernel_matrix_includes_its_rounding():
    K = 1.0 + np.array([[1.0, 1.0 - 1e-12], [1.0 - 1e-12, 1.0]])
    with pytest.warns(ConvergenceWarning, match="Rounding hides the rest"):
        model = FMMClassifier(kernel="precomputed", fit_intercept=False, max_iter=50_000).fit(K, [0, 1])
    largest = np.sqrt(float(Fraction(K[0, 0]) - Fraction(K[0, 1])) / 2)  # half the distance of the two samples
    assert model.margin_ <= largest * (1 + 1e-3) and model.margin_bound_ >= largest


def test_the_margin_of_a_kernel_is_that_of_its_coefficients():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2, 30)).T @ np.array([[1.0, 0.0], [0.0, 1e-6]])  # features leave the second column out
    signs = np.where(X[:, 1] > 0, 1.0, -1.0)
    K = X @ X.T
    with pytest.warns(ConvergenceWarning, match="not separated"):
        model = FMMClassifier(kernel="precomputed", fit_intercept=False, max_iter=200).fit(K, signs)
    alpha = np.zeros(30)
    alpha[model.support_] = model.dual_coef_[0]
    length = np.linalg.norm(X.T @ alpha)
    assert_allclose(model.margin_, (signs * (K @ alpha)).min() / length, rtol=1e-9)


def test_weights_that_cancel_have_no_margin():
    with pytest.warns(ConvergenceWarning, match="not separated"):
        model = FMMClassifier(kernel="rbf", gamma=1.0).fit([[0.3], [0.3]], [0, 1])
    assert model.margin_ == 0.0 and not model.decision_function([[0.3], [0.7]]).any()


def test_inseparable_samples_and_short_runs_are_said():
    X, y = make_classification(60, 3, n_informative=2, n_redundant=0, flip_y=0.4, random_state=0)
    with pytest.warns(ConvergenceWarning, match="not separated"):
        model = FMMClassifier(max_iter=50).fit(X, y)
    margins = np.where(y == model.classes_[1], 1.0, -1.0) * model.decision_function(X)
    assert model.margin_ == pytest.approx(margins.min()) and model.margin_ <= 0
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or tol"):
        FMMClassifier(max_iter=50, tol=1e-9).fit(*separable(0))


def test_step_must_be_at_most_one():
    with pytest.raises(ValueError, match=r"FMMClassifier: step must be a number in \(0, 1\], got 2"):
        FMMClassifier(step=2).fit([[0.0], [1.0]], [0, 1])


# ---------------------------------------------------------------------- MDO


def naive_cost(X, y, weights, alpha, beta, w):
    nu = y * (X @ w) / (np.linalg.norm(X, axis=1) * np.linalg.norm(w))
    return weights @ np.where(nu >= 0, np.exp(-alpha * nu**2), np.exp(-beta * nu))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([3.0, 30.0, 300.0]), st.sampled_from([3.0, 30.0]))
def test_cost_never_increases(seed, alpha, beta):
    rng = np.random.default_rng(seed)
    X, y = make_classification(60, 5, flip_y=0.2, random_state=seed)
    signs, weights = np.where(y == 1, 1.0, -1.0), rng.uniform(0.5, 2.0, size=60)
    start = rng.normal(size=5)
    problem = Problem(NormalisedCost(alpha, beta), as_rows(X), signs, weights)
    found = normalised_cost.solve(problem, Options(), starting_at(start))
    assert_allclose(found.extra["history"][0], naive_cost(X, signs, weights, alpha, beta, start))
    assert (np.diff(found.extra["history"]) < 0).all()
    assert_allclose(found.objective, naive_cost(X, signs, weights, alpha, beta, found.coef), rtol=1e-9)
    assert_allclose(np.linalg.norm(found.coef), 1.0)


def test_gradient_by_finite_differences(rng):
    X, y = make_classification(40, 4, flip_y=0.2, random_state=0)
    problem = Problem(NormalisedCost(20.0, 5.0), as_rows(X), np.where(y == 1, 1.0, -1.0), np.ones(40))
    cost = normalised_cost._Cost(problem)
    w = rng.normal(size=4)
    w /= np.linalg.norm(w)
    cost.value(w)
    gradient = cost.gradient(w)
    for direction in np.eye(4):
        tangent = direction - (direction @ w) * w
        ahead, behind = (cost.value((w + h * tangent) / np.linalg.norm(w + h * tangent)) for h in (1e-6, -1e-6))
        assert_allclose((ahead - behind) / 2e-6, gradient @ direction, rtol=1e-4, atol=1e-5)


def test_more_starts_are_never_worse_and_the_seed_decides():
    X, y = load_iris(return_X_y=True)
    X, y = X[50:, :2], y[50:]
    costs = [MDOClassifier(n_init=n, random_state=0).fit(X, y).objective_ for n in (1, 4, 12)]
    assert costs[0] >= costs[1] >= costs[2]
    first, second = (MDOClassifier(random_state=7).fit(X, y) for _ in range(2))
    assert_allclose(first.coef_, second.coef_, rtol=0)
    assert first.objective_history_[-1] == first.objective_ <= first.objective_history_[0]


def test_multiplying_all_features_changes_nothing():
    X, y = make_blobs(80, centers=2, cluster_std=3.0, random_state=1)
    small, large = (MDOClassifier(random_state=0).fit(scale * X, y) for scale in (1.0, 1000.0))
    assert_allclose(small.decision_function(X), large.decision_function(1000.0 * X) / 1000.0, rtol=1e-5, atol=1e-7)


def test_an_unfinished_descent_is_said():
    X, y = make_classification(60, 5, flip_y=0.2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or tol"):
        MDOClassifier(max_iter=1, tol=1e-12).fit(X, y)
