import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import minmax_scale

from margindist import MAMClassifier
from margindist.solvers.average_margin import SLOPES, best_bias


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return minmax_scale(X)[::3], y[::3]


@given(
    arrays(np.float64, (12, 3), elements=st.floats(-5, 5, width=32)),
    arrays(np.float64, (3,), elements=st.floats(-1, 1, width=32)),
)
@settings(max_examples=50, deadline=None)
def test_no_unit_vector_has_a_larger_average_margin(X, other):
    y = np.arange(12) % 2
    signs = 2.0 * y - 1.0
    w = MAMClassifier(bias="zero").fit(X, y).coef_[0]
    if np.linalg.norm(other) < 1e-3:
        return
    average = (signs * (X @ w)).mean()
    assert average >= (signs * (X @ other)).mean() / np.linalg.norm(other) * np.linalg.norm(w) - 1e-9
    np.testing.assert_allclose(average, w @ w, atol=1e-12)  # eq. 8: the largest average is the length of w


@pytest.mark.parametrize("bias", ["mean", "zero"])
def test_direction_and_bias_as_printed(cancer, bias):
    X, y = cancer
    signs = 2.0 * y - 1.0
    model = MAMClassifier(bias=bias).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], (signs[:, None] * X).mean(axis=0))
    assert model.intercept_[0] == pytest.approx(signs.mean() if bias == "mean" else 0.0)


def test_slope_weighs_the_negative_class(cancer):
    X, y = cancer
    model = MAMClassifier(bias="mean", slope=0.3).fit(X, y)
    expected = (X[y == 1].sum(axis=0) - 0.3 * X[y == 0].sum(axis=0)) / len(y)
    np.testing.assert_allclose(model.coef_[0], expected)
    assert model.intercept_[0] == pytest.approx(((y == 1).sum() - 0.3 * (y == 0).sum()) / len(y))


def test_balanced_weights_give_the_difference_of_means(cancer):
    X, y = cancer
    model = MAMClassifier(class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(model.coef_[0], (X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)) / 2)


@pytest.mark.parametrize("slope", [1.0, 0.5, "cv"])
@pytest.mark.parametrize("data", ["two classes", "three classes"])
def test_linear_equals_its_kernel(cancer, slope, data):
    X, y = cancer if data == "two classes" else load_iris(return_X_y=True)
    linear = MAMClassifier(slope=slope, random_state=0).fit(X, y)
    kernel = MAMClassifier(slope=slope, kernel="precomputed", random_state=0).fit(X @ X.T, y)
    np.testing.assert_allclose(linear.decision_function(X), kernel.decision_function(X @ X.T), atol=1e-10)
    np.testing.assert_array_equal(linear.slope_, kernel.slope_)


def test_gamma_of_the_paper(cancer):
    X, y = cancer
    model = MAMClassifier(kernel="rbf", gamma="5/d").fit(X, y)
    scores = rbf_kernel(X, gamma=5 / X.shape[1]) @ (2.0 * y - 1.0) / len(y)
    expected = scores + best_bias(scores, 2.0 * y - 1.0, np.ones(len(y))).value
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-12)


@pytest.mark.parametrize("gamma", ["5/m", "x/d", "-1/d", "nan/d", "/d", 0.0, None])
def test_other_gammas_are_refused(cancer, gamma):
    with pytest.raises(ValueError, match=r"MAMClassifier: gamma must be .*'5/d' or '2\*mean-distance', got"):
        MAMClassifier(kernel="rbf", gamma=gamma).fit(*cancer)


@pytest.mark.parametrize("bias", ["optimal", "mean"])
def test_slope_search_is_an_explicit_loop(cancer, bias):
    X, y = cancer
    searching = MAMClassifier(bias=bias, slope="cv", kernel="rbf", gamma="5/d", random_state=3)
    folds = searching._deal(y)
    assert np.ptp(np.bincount(folds)) <= 1
    errors = []
    for slope in SLOPES:
        wrong = 0
        for fold in range(5):
            train = folds != fold
            model = MAMClassifier(bias=bias, slope=slope, kernel="rbf", gamma="5/d").fit(X[train], y[train])
            wrong += (model.predict(X[~train]) != y[~train]).sum()
        errors.append(wrong / len(y))
    searching.fit(X, y)
    np.testing.assert_allclose(searching.slope_cv_error_[0], errors)
    best = SLOPES[np.array(errors) == min(errors)]
    assert searching.slope_ == best[np.abs(np.log(best)).argmin()]
    refitted = MAMClassifier(bias=bias, slope=searching.slope_, kernel="rbf", gamma="5/d").fit(X, y)
    np.testing.assert_allclose(searching.decision_function(X), refitted.decision_function(X), atol=1e-12)


def test_no_kernel_value_unless_needed(cancer):
    asked = []

    def kernel(A, B):
        asked.append(len(A) * len(B))
        return A @ B.T

    model = MAMClassifier(bias="mean", kernel=kernel).fit(*cancer)
    assert model.dual_coef_.shape == (1, len(cancer[1]))
    assert asked == [16 * 16]  # whether the values are those of a kernel is tried on a few rows


def test_optimal_bias_never_has_more_training_errors(cancer):
    X, y = cancer
    scores = [MAMClassifier(bias=bias, kernel="rbf").fit(X, y).score(X, y) for bias in ("optimal", "mean", "zero")]
    assert scores[0] >= max(scores)


def test_precomputed_with_rows_of_no_weight(cancer):
    X, y = cancer
    weights = np.ones(len(y))
    weights[::4] = 0
    some = weights > 0
    full = MAMClassifier(kernel="precomputed").fit(X @ X.T, y, weights)
    part = MAMClassifier().fit(X[some], y[some])
    np.testing.assert_allclose(full.decision_function(X @ X.T), part.decision_function(X), atol=1e-12)
    sparse = MAMClassifier(kernel="precomputed").fit(sp.csr_array(X @ X.T), y, weights)
    np.testing.assert_allclose(sparse.decision_function(X @ X.T), part.decision_function(X), atol=1e-12)


def test_seed_decides_the_folds(cancer):
    X, y = cancer
    first, second = (MAMClassifier(slope="cv", random_state=7).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.slope_cv_error_, second.slope_cv_error_)
