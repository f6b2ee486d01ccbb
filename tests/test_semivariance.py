"""MSVMAv: its rounds, its classifier, its bound."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import minmax_scale

from margindist import MSVMAvClassifier
from margindist.margins import generalization_bound, margins, semivariance_bound
from margindist.objectives import SemiVariance
from margindist.solvers import semivariance
from margindist.solvers._solution import Options, Problem
from margindist.spaces.rows import add_gram, as_rows, gram
from tests.reference import msvmav as naive

GRID = [(alpha, beta) for alpha in (2.0**-6, 1.0, 2.0**6) for beta in (2.0**-10, 2.0**-4, 2.0**2)]


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 6))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=150) + 0.3 > 0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize(("update", "sign"), [(naive.insert, 1.0), (naive.remove, -1.0)])
def test_sherman_morrison_in_both_directions(update, sign, rng):
    A = rng.normal(size=(20, 5))
    x = A[3]
    matrix = np.eye(5) + A.T @ A / 7.0
    changed = np.linalg.inv(matrix + sign * np.outer(x, x) / 7.0)
    assert_allclose(update(np.linalg.inv(matrix), x, 7.0), changed, rtol=1e-9)


def test_gram_matrix_changes_in_place_by_entering_and_leaving_rows(rng):
    X, weights = rng.normal(size=(30, 4)), rng.uniform(0.5, 2.0, size=30)
    for rows in (as_rows(X, True), as_rows(sp.csr_matrix(X), True)):
        lower = gram(rows, np.arange(10, 20), weights[10:20])
        add_gram(rows, np.arange(20, 30), weights[20:], 1.0, lower)
        add_gram(rows, np.arange(10, 15), weights[10:15], -1.0, lower)
        expected = gram(rows, np.arange(15, 30), weights[15:])
        assert_allclose(np.tril(lower), np.tril(expected), atol=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), GRID)
@pytest.mark.parametrize("system", ["gram", "rows"])
def test_linear_rounds_follow_explicit_inverses(problem, alpha, beta, system):
    X, y = problem
    iterates, objectives = naive.linear(X, y, alpha, beta, 12)
    for form in (X, sp.csr_matrix(X)):
        seen = []
        problem = Problem(SemiVariance(alpha, beta), as_rows(form), y, np.ones(len(y)))
        options = Options(1e-300, 12, report=lambda k, w, *_, seen=seen: seen.append(w))
        found = semivariance.solve(problem, options._replace(choices={"system": system}))
        assert_allclose(seen, iterates[1 : len(seen) + 1], atol=1e-10)
        history = found.extra["history"]
        assert_allclose(history, objectives[: len(history)], rtol=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_few_rows_of_many_columns_go_the_same_way_in_their_span(rng, form):
    X = rng.normal(size=(20, 300))
    y = np.where(rng.random(20) < 0.5, -1.0, 1.0)
    asked = Problem(SemiVariance(1.0, 0.1), as_rows(form(X), True), y, rng.uniform(0.5, 2.0, 20))
    seen = []
    options = Options(1e-300, 8, report=lambda k, w, *_: seen.append(w))
    in_span = semivariance.solve(asked, options)
    on_rows = semivariance.solve(asked, options._replace(choices={"system": "rows"}))
    assert in_span.n_iter == on_rows.n_iter
    assert_allclose(seen[: in_span.n_iter], seen[in_span.n_iter :], atol=1e-9)
    assert_allclose(in_span.coef, on_rows.coef, atol=1e-9)


@pytest.mark.parametrize(("alpha", "beta"), GRID)
def test_kernel_rounds_follow_explicit_inverses(problem, alpha, beta):
    X, y = problem
    K = np.exp(-0.5 * np.square(X[:, None] - X).sum(axis=2))
    iterates, objectives = naive.kernel(K, y, alpha, beta, 12)
    for n_rounds in (1, 5, 12):
        model = MSVMAvClassifier(alpha, beta, kernel="precomputed", fit_intercept=False, tol=1e-300, max_iter=n_rounds)
        model.fit(K, y)
        assert model.n_iter_ == n_rounds
        assert_allclose(model.dual_coef_[0], iterates[n_rounds], atol=1e-10)
        assert_allclose(model.objective_history_, objectives[: n_rounds + 1], rtol=1e-9)


def test_weights_are_repetitions_in_both_forms(problem, rng):
    X, y = problem
    weights = rng.integers(0, 4, size=len(y))
    for kernel in ("linear", "rbf"):
        model = MSVMAvClassifier(kernel=kernel, gamma=0.3)
        weighted = model.fit(X, y, sample_weight=weights).decision_function(X)
        repeated = model.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)).decision_function(X)
        assert_allclose(weighted, repeated, atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(GRID))
def test_coefficients_have_length_one_and_mean_margin_is_positive(seed, setting):
    X, y = make_classification(60, 5, random_state=seed, flip_y=0.3)
    with np.errstate(all="raise"):
        model = MSVMAvClassifier(*setting, max_iter=20)
        model._warn_unless_converged = lambda rounds: None
        model.fit(X, y)
    assert_allclose(np.linalg.norm(np.append(model.coef_, model.intercept_)), 1.0)
    margins = np.where(y == 1, 1.0, -1.0) * model.decision_function(X)
    assert margins.mean() > 0.0
    ratio = np.mean(np.maximum(0.0, margins.mean() - margins) ** 2) / margins.mean() ** 2
    assert_allclose(model.objective_, ratio, rtol=1e-8)
    assert_allclose(model.objective_history_[-1], model.objective_)


def test_a_settled_fit_is_a_fixed_point(problem):
    X, y = problem
    model = MSVMAvClassifier(2.0**-2, 2.0**-2, fit_intercept=False, tol=1e-10).fit(X, y)
    assert model.status_ == "settled"
    longer, _ = naive.linear(X, y, 2.0**-2, 2.0**-2, model.n_iter_ + 5)
    assert_allclose(model.coef_[0], longer[-1], atol=1e-9)


def test_a_cycle_is_found_and_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=200) + 0.3)
    model = MSVMAvClassifier(1.0, 2.0**-10, fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="cycle"):
        model.fit(X, y)
    assert model.status_ == "cycle"
    iterates, _ = naive.linear(X, y, 1.0, 2.0**-10, 40)
    returns = [k for k in range(2, 12) if np.linalg.norm(iterates[-1] - iterates[-1 - k]) < 1e-8]
    assert returns
    assert np.linalg.norm(iterates[-1] - iterates[-2]) > 1e-6


def test_rounds_lower_the_objective_from_the_mean_direction():
    X, y = make_classification(400, 10, random_state=1, flip_y=0.1)
    history = MSVMAvClassifier().fit(minmax_scale(X), y).objective_history_
    assert history[-1] < 0.5 * history[0]


def test_classes_that_balance_out_leave_zero_coefficients():
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    model = MSVMAvClassifier(fit_intercept=False).fit(X, [0, 0, 1, 1])
    assert_allclose(model.coef_, 0.0)
    assert model.objective_ == np.inf


def test_bad_parameters_are_named():
    for name in ("alpha", "beta"):
        with pytest.raises(ValueError, match=f"MSVMAvClassifier: {name} must be a positive number, got 0"):
            MSVMAvClassifier(**{name: 0}).fit([[0.0], [1.0]], [0, 1])


def test_bound_has_the_terms_of_the_proof():
    margins, n, nu, delta, complexity = np.array([0.1, 0.5, 0.6]), 3, 0.2, 0.1, 0.3
    theta = 0.4
    expected = (
        (0.3**2 / 3) / theta**2
        + (2 + 2 * nu) / (n * nu**3)
        + 1 / (n**2 * nu**2)
        + (4 / theta + 4 / theta**2) * complexity
        + 3 * (1 + nu) ** 2 / nu**2 * np.sqrt(np.log(4 * n / delta) / (2 * n))
    )
    assert_allclose(semivariance_bound(margins, complexity, nu=nu, delta=delta), expected)


def test_bound_decreases_in_the_right_places(rng):
    margins = rng.uniform(0.2, 0.6, size=1000)

    def bound(margins=margins, complexity=0.01, **changes):
        return semivariance_bound(margins, complexity, **{"nu": 0.3, "delta": 0.05, **changes})

    assert bound(np.tile(margins, 10)) < bound()  # more samples
    assert bound(complexity=0.001) < bound()
    assert bound(delta=0.2) < bound()
    assert bound(nu=0.35) < bound()
    assert bound(margins + 0.3) < bound()  # a larger mean
    mean = margins.mean()
    assert bound(mean + 0.5 * (margins - mean)) < bound()  # less semi-variance
    assert semivariance_bound(margins, 0.01) < bound()


@pytest.mark.parametrize(
    ("margins", "changes", "message"),
    [
        ([0.5, 1.5], {}, r"margins must be in \[-1, 1\]"),
        ([-0.5, 0.1], {}, "mean margin must be positive"),
        ([0.5, 0.6], {"nu": 0.9}, "nu must be in"),
        ([0.5, 0.6], {"delta": 0.0}, "delta must be in"),
        ([0.5, 0.6], {"complexity": -1.0}, "complexity must be"),
    ],
)
def test_bound_says_what_it_expects(margins, changes, message):
    with pytest.raises(ValueError, match=message):
        semivariance_bound(margins, **{"complexity": 0.1, **changes})


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_bound_of_an_estimator_scales_its_margins(kernel):
    X, y = load_breast_cancer(return_X_y=True)
    X = minmax_scale(X)
    model = MSVMAvClassifier(kernel=kernel).fit(X, y)
    bound = generalization_bound(model, X, y)
    assert bound == pytest.approx(generalization_bound(clone(model).fit(X, 1 - y), X, 1 - y), rel=1e-6)
    if kernel == "linear":
        reach = np.hypot(np.linalg.norm(model.coef_), model.intercept_[0]) * np.sqrt((X**2).sum(axis=1).max() + 1)
        scaled = margins(model, X, y) / reach
        assert bound == pytest.approx(semivariance_bound(scaled, len(y) ** -0.5))
    with pytest.raises(ValueError, match="for two classes"):
        generalization_bound(MSVMAvClassifier().fit(X[:9], [0, 1, 2] * 3), X[:9], [0, 1, 2] * 3)


def test_objective_is_that_of_the_stored_coefficients(rng):
    X = 1e4 * rng.integers(-9, 10, (60, 20))
    K, signs = X @ X.T, rng.choice([-1.0, 1.0], 60)
    model = MSVMAvClassifier(alpha=256.0, kernel="precomputed").fit(K, signs)
    z = signs * model.decision_function(K)
    assert_allclose(model.objective_, np.mean(np.maximum(0.0, z.mean() - z) ** 2) / z.mean() ** 2, rtol=1e-9)
