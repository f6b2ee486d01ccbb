import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import minmax_scale

from margindist import LSSVMClassifier
from tests.reference.closed_forms import least_squares_system

SHAPES = ["tall", "wide"]


@pytest.fixture
def problem(rng, request):
    m, d = {"tall": (60, 7), "wide": (25, 40)}[getattr(request, "param", "tall")]
    X = rng.normal(size=(m, d)) * (rng.random((m, d)) < 0.4)
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=m) > 0, 1, 0), rng.random(m) + 0.5


def kernel_of(name, X):
    return X @ X.T if name == "linear" else rbf_kernel(X, gamma=1 / X.shape[1])


@pytest.mark.parametrize("problem", SHAPES, indirect=True)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_dual_space_solves_the_printed_system(problem, kernel, solver):
    X, y, weights = problem
    if solver == "cg" and kernel == "rbf":
        pytest.skip("conjugate gradients are for the linear kernel")
    K = kernel_of(kernel, X)
    alpha, b = least_squares_system(K, 2.0 * y - 1.0, weights, C=3.0)
    model = LSSVMClassifier(C=3.0, kernel=kernel, gamma="1/d", solver=solver, tol=1e-14).fit(X, y, weights)
    np.testing.assert_allclose(model.decision_function(X), K @ alpha + b, atol=1e-6)
    assert model.intercept_[0] == pytest.approx(b, abs=1e-6)
    assert model.duality_gap_ < 1e-12
    residuals = 2.0 * y - 1.0 - (K @ alpha + b)
    assert model.objective_ == pytest.approx(0.5 * alpha @ K @ alpha + 1.5 * weights @ residuals**2)
    if kernel == "rbf":
        np.testing.assert_allclose(model.dual_coef_[0], alpha, atol=1e-8)


@pytest.mark.parametrize("problem", SHAPES, indirect=True)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kernel, solver", [("linear", "cholesky"), ("linear", "cg"), ("rbf", "cholesky")])
def test_empirical_space_is_ridge_on_kernel_values(problem, kernel, solver, fit_intercept):
    X, y, _ = problem
    K = kernel_of(kernel, X)
    ridge = Ridge(alpha=1 / 0.5, fit_intercept=fit_intercept).fit(K, 2.0 * y - 1.0)
    model = LSSVMClassifier(
        C=0.5, space="empirical", kernel=kernel, gamma="1/d", solver=solver, tol=1e-14, fit_intercept=fit_intercept
    ).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), ridge.predict(K), atol=1e-6)
    assert model.intercept_[0] == pytest.approx(ridge.intercept_, abs=1e-6)
    assert model.duality_gap_ < 1e-10


@pytest.mark.parametrize("problem", SHAPES, indirect=True)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_leave_one_out_is_refitting(problem, kernel, fit_intercept):
    X, y, weights = problem
    Cs = [0.1, 10.0]
    model = LSSVMClassifier(kernel=kernel, gamma="1/d", fit_intercept=fit_intercept)
    path = model.path(X, y, Cs, weights)
    for k, C in enumerate(Cs):
        model.set_params(C=C)
        wrong = 0.0
        for i in range(len(y)):
            others = np.arange(len(y)) != i
            value = model.fit(X[others], y[others], weights[others]).decision_function(X[[i]])[0]
            assert path.loo_decision[k, i] == pytest.approx(value, abs=1e-8)
            wrong += weights[i] * ((value > 0) != y[i])
        assert path.loo_error[k] == pytest.approx(wrong / weights.sum())
        model.fit(X, y, weights)
        coef = model.coef_ if kernel == "linear" else model.dual_coef_
        np.testing.assert_allclose(path.coef[k], coef, atol=1e-8)
        np.testing.assert_allclose(path.intercept[k], model.intercept_, atol=1e-8)


@pytest.mark.parametrize("problem", SHAPES, indirect=True)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_leave_one_out_in_the_empirical_space_keeps_the_features(problem, kernel):
    X, y, _ = problem
    K = kernel_of(kernel, X)
    path = LSSVMClassifier(kernel=kernel, gamma="1/d", space="empirical").path(X, y, [0.2])
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        ridge = Ridge(alpha=1 / 0.2).fit(K[others], 2.0 * y[others] - 1.0)
        assert path.loo_decision[0, i] == pytest.approx(ridge.predict(K[[i]])[0], abs=1e-6)


def test_path_of_several_classes():
    X, y = load_iris(return_X_y=True)
    model = LSSVMClassifier(kernel="rbf")
    path = model.path(X, y, [1.0, 100.0])
    assert path.loo_decision.shape == (2, 150, 3)
    wrong = sum(
        model.set_params(C=100.0).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] != y[i]
        for i in range(0, 150, 10)
    )
    assert wrong == (path.loo_decision[1].argmax(axis=1) != y)[::10].sum()
    assert path.best_C in (1.0, 100.0)
    assert path.loo_error[path.Cs == path.best_C] == path.loo_error.min()


def test_path_leaves_the_estimator_alone_and_checks_its_Cs(problem):
    X, y, _ = problem
    model = LSSVMClassifier()
    model.path(X, y, [1.0])
    assert not hasattr(model, "classes_")
    with pytest.raises(ValueError, match=r"LSSVMClassifier.path: Cs must be positive numbers, got .*-1"):
        model.path(X, y, [1.0, -1.0])


@pytest.mark.parametrize("space", ["dual", "empirical"])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_weights_are_repetitions(problem, space, solver):
    X, y, _ = problem
    times = np.arange(len(y)) % 3
    model = LSSVMClassifier(space=space, solver=solver, tol=1e-14)
    weighted = model.fit(X, y, times).decision_function(X)
    repeated = model.fit(np.repeat(X, times, axis=0), np.repeat(y, times)).decision_function(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_bias_is_not_penalised(problem):
    X, y, _ = problem
    model = LSSVMClassifier(C=1e-9).fit(X, y)
    assert model.intercept_[0] == pytest.approx(np.mean(2.0 * y - 1.0), abs=1e-6)
    np.testing.assert_allclose(model.decision_function(X).mean(), np.mean(2.0 * y - 1.0), atol=1e-12)
    moved = LSSVMClassifier().fit(X + 3.0, y)
    np.testing.assert_allclose(moved.decision_function(X + 3.0), LSSVMClassifier().fit(X, y).decision_function(X))


def test_features_far_from_zero_cost_no_digits(problem):
    X, y, _ = problem
    near, far = LSSVMClassifier(C=10).fit(X, y), LSSVMClassifier(C=10).fit(X + 2.0**20, y)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-6)


def test_solver_is_chosen_by_shape(problem, monkeypatch):
    X, y, _ = problem
    wide = sp.hstack([sp.csr_array(X), sp.csr_array((len(y), 100))], format="csr")
    assert LSSVMClassifier().fit(wide, y).solver_ == "cholesky"
    monkeypatch.setattr("margindist.estimators.lssvm._LARGEST_FACTOR", 50)
    auto, direct = LSSVMClassifier().fit(wide, y), LSSVMClassifier(solver="cholesky").fit(wide, y)
    assert (auto.solver_, direct.solver_) == ("cg", "cholesky")
    assert LSSVMClassifier().fit(wide.toarray(), y).solver_ == "cholesky"
    assert auto.duality_gap_ <= auto.tol
    assert auto.objective_ == pytest.approx(direct.objective_, rel=1e-8)


def test_certificate_bounds_the_distance_to_the_optimum(problem):
    X, y, _ = problem
    optimum = LSSVMClassifier(C=100).fit(X, y).objective_
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        rough = LSSVMClassifier(C=100, solver="cg", max_iter=3).fit(X, y)
    assert rough.n_iter_ == 3
    assert 0 < rough.objective_ - optimum <= rough.duality_gap_ * rough.objective_


def test_messages(problem):
    X, y, _ = problem
    with pytest.raises(ValueError, match="solver='cg' works with kernel='linear' only, got kernel='rbf'"):
        LSSVMClassifier(kernel="rbf", solver="cg").fit(X, y)


def long_least_squares(K, alphas, bias, y, C):
    """The value and the gradient (in the bias and in the scores of the rows) of the kernel's problem."""
    scores = K @ alphas
    errors = 1.0 - y * (scores + bias)
    return 0.5 * alphas @ scores + 0.5 * C * errors @ errors, (C * y @ errors, alphas - C * y * errors)


@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])  # K + I/C is positive definite for the least: a saddle solves it
def test_of_an_indefinite_kernel_the_positive_part_counts(C, rng):
    X, y = rng.standard_normal((40, 3)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    K = np.tanh(X @ X.T - 0.5)
    with pytest.warns(UserWarning, match="negative eigenvalues"):
        model = LSSVMClassifier(C, kernel="precomputed").fit(K, y)
    values, vectors = np.linalg.eigh(K)
    assert values[0] < -0.1
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    alphas = np.zeros(40)
    alphas[model.support_] = model.dual_coef_[0]
    assert model.certified_problem_ == "clipped kernel"
    np.testing.assert_allclose(model.decision_function(K), positive @ alphas + model.intercept_, atol=1e-9 * C)
    value, (in_bias, in_scores) = long_least_squares(positive, alphas, model.intercept_[0], y, C)
    assert value == pytest.approx(model.objective_, rel=1e-9)
    assert abs(in_bias) < 1e-8 * C and np.abs(positive @ in_scores).max() < 1e-8 * C
    with pytest.warns(UserWarning, match="negative eigenvalues"):
        path = LSSVMClassifier(kernel="precomputed").path(K, y, [C])
    np.testing.assert_allclose(path.coef[0, 0], alphas, atol=1e-8 * C)


def test_the_empirical_space_is_refined_by_its_features():
    # Two distant clusters in more columns than rows: the squared kernel matrix has a condition number of about 1e14.
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 40)
    X = rng.integers(-9, 10, (40, 45)) + 100.0 * rng.standard_normal((2, 45))[y]
    model = LSSVMClassifier(C=50.0, space="empirical", tol=1e-7).fit(X, y)
    assert model.duality_gap_ <= 1e-7


def test_the_empirical_space_takes_any_kernel(problem):
    X, y, _ = problem
    K = X @ X.T
    minus = LSSVMClassifier(kernel="precomputed", space="empirical").fit(-K, y)
    plus = LSSVMClassifier(kernel="precomputed", space="empirical").fit(K, y)
    np.testing.assert_allclose(minus.decision_function(-K), plus.decision_function(K), atol=1e-10)


def test_a_given_kernel_matrix_is_not_changed(problem):
    X, y, weights = problem
    weights[::5] = 0
    K = np.ascontiguousarray(X @ X.T)
    before = K.copy()
    for space in ("dual", "empirical"):
        model = LSSVMClassifier(kernel="precomputed", space=space).fit(K, y, weights)
        np.testing.assert_array_equal(K, before)
        linear = LSSVMClassifier(space=space).fit(X, y, weights)
        np.testing.assert_allclose(model.decision_function(K), linear.decision_function(X), atol=1e-8)


def test_real_data_all_ways_agree():
    X, y = load_breast_cancer(return_X_y=True)
    X = minmax_scale(X)
    expected = LSSVMClassifier(kernel="precomputed").fit(X @ X.T, y).decision_function(X @ X.T)
    for model in (LSSVMClassifier(), LSSVMClassifier(solver="cg", tol=1e-12)):
        np.testing.assert_allclose(model.fit(X, y).decision_function(X), expected, atol=1e-5)
    single = LSSVMClassifier().fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.decision_function(X), expected, atol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e8])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
@pytest.mark.parametrize("space", ["dual", "empirical"])
def test_the_gap_alone_says_optimal(space, kernel, C, rng):
    """Badly conditioned systems end at tol or with a warning, and never claim more than is so."""
    for scale in (1e-3, 1.0, 1e3):
        X, y = scale * rng.standard_normal((20, 2)), rng.integers(0, 2, 20)
        model = LSSVMClassifier(C, kernel=kernel, gamma=1.0, space=space)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        assert len(caught) == (not model.duality_gap_ <= model.tol)
        if kernel == "linear":
            continue
        alpha = np.zeros(20, dtype=np.longdouble)
        alpha[model.support_] = model.dual_coef_[0]
        inner = X.astype(np.longdouble) @ X.T
        squares = inner.diagonal()
        K = inner**3 if kernel == "poly" else np.exp(2 * inner - squares - squares[:, None])
        errors = 2 * y - 1 - K @ alpha - model.intercept_[0]
        length = alpha @ alpha if space == "empirical" else alpha @ K @ alpha
        value = length / 2 + C / 2 * (errors @ errors)
        assert value == pytest.approx(model.objective_, rel=model.duality_gap_ + 1e-10)


def test_dependent_columns_at_a_high_price():
    """1/C is lost beside the scatter matrix: its Cholesky factor does not exist."""
    rng = np.random.default_rng(1)
    X = np.repeat(1e6 * rng.standard_normal((50, 2)), 3, axis=1)
    y = (X[:, 0] > 0).astype(int)
    model = LSSVMClassifier(1e8, tol=1e-6).fit(X, y)
    assert model.duality_gap_ <= 1e-6
    shared = LSSVMClassifier(3e8, tol=1e-6).fit(X[:, ::3], y)  # three equal columns share one weight
    np.testing.assert_allclose(model.decision_function(X), shared.decision_function(X[:, ::3]), atol=1e-4)


@pytest.mark.parametrize("space", ["dual", "empirical"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lost_digits_do_not_lead_away_from_the_minimum(space):
    rng = np.random.default_rng(0)
    for shape in ((14, 18), (18, 14)):
        X, y = 1e-2 * rng.standard_normal(shape) * 10.0 ** rng.uniform(-4, 4, shape[1]), rng.integers(2, size=shape[0])
        X[:, 3] += 1e6
        model = LSSVMClassifier(1e8, space=space, fit_intercept=False).fit(X, y)
        assert model.objective_ <= 1.001 * 0.5e8 * len(y)  # that of no weights at all


def test_the_empirical_space_is_certified_by_its_features(rng):
    X, y = rng.integers(0, 2, (119, 1)).astype(float), rng.integers(0, 16, 119)
    model = LSSVMClassifier(112.0, space="empirical", kernel="rbf").fit(X, y)  # products with KSK lose 1e-8
    assert model.duality_gap_.max() < 1e-14


def test_the_objective_of_the_empirical_space_is_that_of_the_coefficients(rng):
    X, y, weights = rng.standard_normal((60, 5)), rng.integers(0, 2, 60), 10 ** rng.uniform(-6, 6, 60)
    with pytest.warns(ConvergenceWarning):
        model = LSSVMClassifier(1e5, space="empirical", kernel="rbf", fit_intercept=False).fit(X, y, weights)
    alpha = np.zeros(60)
    alpha[model.support_] = model.dual_coef_[0]
    errors = np.where(y == 1, 1.0, -1.0) - model.decision_function(X)
    by_definition = 0.5 * (alpha**2 / weights).sum() + 0.5e5 * (weights @ errors**2)
    np.testing.assert_allclose(model.objective_, by_definition, rtol=1e-5)
    assert model.duality_gap_ < 1.01  # no objective is below zero


def test_leave_one_out_without_digits_is_an_error():
    X = np.array([[1e9, 0.0, 0.0, 0.0], [1e9, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="leave-one-out scores are not finite"):
        LSSVMClassifier().path(X, [0, 1, 0], [1.0])


@pytest.mark.parametrize("space", ["dual", "empirical"])
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_multipliers_prove_what_small_residuals_cannot(space, rng):
    X, y = rng.integers(-9, 10, (20, 200)).astype(float), rng.integers(0, 2, 20)
    model = LSSVMClassifier(1e9 if space == "dual" else 1e5, space=space).fit(X, y)
    assert model.duality_gap_ < 1e-10


def test_conjugate_gradients_end_where_rounding_has_the_upper_hand():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 93)) * np.exp(3.0 * rng.standard_normal((8, 93))) * 1e5
    with pytest.warns(ConvergenceWarning):
        model = LSSVMClassifier(C=1e6, solver="cg", max_iter=5000).fit(X, np.arange(8) % 2)
    assert model.duality_gap_ > model.tol and model.n_iter_ < 1000


@pytest.mark.parametrize("space", ["dual", "empirical"])
@pytest.mark.parametrize("shape", [(40, 60), (60, 40)])
def test_conjugate_gradients_end_soon_after_a_factorisation_would_have(rng, shape, space):
    X = rng.random(shape)
    weights = 10 ** rng.uniform(-6, 6, len(X))
    y = X @ rng.normal(size=shape[1]) > 0
    model = LSSVMClassifier(C=0.01, solver="cg", space=space).fit(X, y, sample_weight=weights)
    assert model.duality_gap_ <= model.tol and model.n_iter_ <= 40


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_that_lost_digits_on_the_way_from_the_rows_are_judged_by_what_they_predict(rng):
    X = rng.standard_normal((56, 61))
    y = np.where(X @ rng.standard_normal(61) > 0.0, 1.0, -1.0)
    X[:, 0] += 1e6
    model = LSSVMClassifier(7e7, fit_intercept=False).fit(X, y)
    w, rows = model.coef_[0].astype(np.longdouble), X.astype(np.longdouble)
    value = 0.5 * (w @ w) + 0.5 * 7e7 * np.sum((1.0 - y * (rows @ w)) ** 2)
    assert model.objective_ == pytest.approx(float(value), rel=1e-3)
    assert model.duality_gap_ < 0.1  # the rows' own system, which rounds by the square of 1e6, leaves nothing
