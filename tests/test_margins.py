"""Margins, their statistics and their pictures."""

import itertools
import math
import pickle
import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from margindist import LDMClassifier, LDMClassifierCV, MSVMAvClassifier, ODMClassifier, PUMMAClassifier
from margindist.datasets import Partitions
from margindist.margins import (
    MarginDistributionDisplay,
    PartitionMargins,
    generalization_bound,
    loo_error_bound,
    margin_statistics,
    margins,
    margins_from_decision,
    method_styles,
    multiclass_bound,
    update_bound,
)
from margindist.margins.palette import COLOURS, LINES, _declared_styles
from margindist.methods import CLASSIFIERS

LINEAR = [LDMClassifier(), LinearSVC(), LogisticRegression(), RidgeClassifier(), SGDClassifier(random_state=0)]


@pytest.fixture
def two_classes():
    X, y = make_classification(80, 5, flip_y=0.2, random_state=0)
    return X, np.array(["ham", "spam"])[y]


@pytest.fixture
def three_classes():
    X, y = load_iris(return_X_y=True)
    return X[::2], np.array(["setosa", "versicolor", "virginica"])[y[::2]]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def slow_margins(decision, y, classes, norms=None):
    """Go through samples and classes one by one; ``norms[k][l]`` is the norm of the difference of two weights."""
    result = []
    for scores, label in zip(decision, y, strict=True):
        if np.ndim(scores) == 0:
            z = scores if label == classes[1] else -scores
            result.append(z / (norms or 1.0))
            continue
        k = list(classes).index(label)
        ahead = [
            (scores[k] - scores[l]) / (norms[k][l] if norms is not None else 1.0) for l in range(len(classes)) if l != k
        ]
        result.append(min(ahead))
    return np.array(result)


# ---------------------------------------------------------------------- margins


def test_two_classes_by_hand():
    assert margins_from_decision([2.0, -3.0, 0.5], [1, -1, -1]).tolist() == [2.0, 3.0, -0.5]
    assert margins_from_decision([[2.0], [-3.0]], ["b", "b"], ["a", "b"]).tolist() == [2.0, -3.0]
    assert margins_from_decision([2.0], ["a"], ["b", "a"]).tolist() == [2.0]


def test_more_classes_by_hand():
    decision = [[3.0, 1.0, 2.0], [0.0, 4.0, 5.0], [1.0, 1.0, -1.0]]
    assert margins_from_decision(decision, [0, 1, 0], [0, 1, 2]).tolist() == [1.0, -1.0, 0.0]
    assert margins_from_decision([[0.7, 0.3]], [1], [0, 1]).tolist() == pytest.approx([-0.4])


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_margins_equal_a_loop_and_sign_equals_argmax(n_classes, n_samples, seed):
    rng = np.random.default_rng(seed)
    decision, codes = rng.normal(size=(n_samples, n_classes)), rng.integers(n_classes, size=n_samples)
    classes = np.array([f"class {k}" for k in range(n_classes)])
    z = margins_from_decision(decision, classes[codes], classes)
    assert np.array_equal(z, slow_margins(decision, classes[codes], classes))
    assert np.array_equal(z > 0, decision.argmax(axis=1) == codes)


@pytest.mark.parametrize("classifier", LINEAR, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("data", ["two_classes", "three_classes"])
def test_linear_classifiers(classifier, data, request):
    X, y = request.getfixturevalue(data)
    classifier = clone(classifier).fit(X, y)
    decision = classifier.decision_function(X)
    z = margins(classifier, X, y)
    np.testing.assert_allclose(z, slow_margins(decision, y, classifier.classes_))
    assert np.array_equal(z > 0, classifier.predict(X) == y)
    W = np.atleast_2d(classifier.coef_)
    norms = np.linalg.norm(W) if len(W) == 1 else [[np.linalg.norm(a - b) for a in W] for b in W]
    distances = margins(classifier, X, y, geometric=True)
    np.testing.assert_allclose(distances, slow_margins(decision, y, classifier.classes_, norms))


def test_geometric_margin_is_the_distance_to_the_boundary(three_classes):
    """Going that far towards the nearest other class, and no less, changes the prediction."""
    X, y = three_classes
    classifier = LDMClassifier(C=10.0).fit(X, y)
    z = margins(classifier, X, y, geometric=True)
    for i in np.flatnonzero(z > 0)[::7]:
        k = list(classifier.classes_).index(y[i])
        moved = []
        for l in set(range(3)) - {k}:
            direction = classifier.coef_[l] - classifier.coef_[k]
            moved += [X[i] + f * z[i] * direction / np.linalg.norm(direction) for f in (0.999, 1.001)]
        labels = classifier.predict(moved)
        assert (labels[0::2] == y[i]).all()
        assert (labels[1::2] != y[i]).any()


@pytest.mark.parametrize("data", ["two_classes", "three_classes"])
def test_any_storage_and_any_wrapping(data, request):
    X, y = request.getfixturevalue(data)
    classifier = LDMClassifier().fit(X, y)
    expected = margins(classifier, X, y, geometric=True)
    np.testing.assert_allclose(margins(classifier, sp.csr_matrix(X), y, geometric=True), expected)
    np.testing.assert_allclose(margins(classifier, sp.csr_array(X), list(y), geometric=True), expected)
    frame = pd.DataFrame(X).rename(columns=str)
    named = clone(classifier).fit(frame, y)
    np.testing.assert_allclose(margins(named, frame, pd.Series(y), geometric=True), expected)
    scaler = StandardScaler()
    pipeline = make_pipeline(scaler, clone(classifier)).fit(X, y)
    search = GridSearchCV(make_pipeline(scaler, clone(classifier)), {"ldmclassifier__C": [1.0]}, cv=2).fit(X, y)
    inside = margins(pipeline[-1], pipeline[:-1].transform(X), y, geometric=True)
    np.testing.assert_allclose(margins(pipeline, X, y, geometric=True), inside)
    np.testing.assert_allclose(margins(search, X, y, geometric=True), inside)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix, lambda X: pd.DataFrame(X).rename(columns=str)])
def test_kernel_norm(two_classes, convert, recwarn):
    X, y = two_classes
    classifier = SVC(gamma=0.1, C=10.0).fit(convert(X), y)
    vectors = X[classifier.support_]
    alpha = np.ravel(classifier.dual_coef_.toarray() if sp.issparse(classifier.dual_coef_) else classifier.dual_coef_)
    norm = np.sqrt(alpha @ rbf_kernel(vectors, gamma=0.1) @ alpha)
    expected = slow_margins(classifier.decision_function(convert(X)), y, classifier.classes_, norm)
    np.testing.assert_allclose(margins(classifier, convert(X), y, geometric=True), expected)
    assert not recwarn.list


@pytest.mark.parametrize("data", ["two_classes", "three_classes"])
def test_norms_of_our_kernel_models(data, request):
    X, y = request.getfixturevalue(data)
    classifier = LDMClassifier(kernel="rbf", gamma=0.5).fit(X, y)
    products = classifier.dual_coef_ @ rbf_kernel(X[classifier.support_], gamma=0.5) @ classifier.dual_coef_.T
    squares = np.diag(products)
    norms = np.sqrt(squares[:, None] + squares - 2 * products) if len(squares) > 1 else float(np.sqrt(squares[0]))
    expected = slow_margins(classifier.decision_function(X), y, classifier.classes_, norms)
    np.testing.assert_allclose(margins(classifier, X, y, geometric=True), expected)


def test_linear_kernel_has_the_norm_of_coef(two_classes):
    X, y = two_classes
    classifier = SVC(kernel="linear").fit(X, y)
    expected = margins(classifier, X, y) / np.linalg.norm(classifier.coef_)
    np.testing.assert_allclose(margins(classifier, X, y, geometric=True), expected)


def test_one_vs_rest_svc_and_trees(three_classes):
    X, y = three_classes
    svc = SVC(decision_function_shape="ovr").fit(X, y)
    np.testing.assert_allclose(margins(svc, X, y), slow_margins(svc.decision_function(X), y, svc.classes_))
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    votes = forest.predict_proba(X)
    assert np.array_equal(margins_from_decision(votes, y, forest.classes_), slow_margins(votes, y, forest.classes_))


@pytest.mark.parametrize(
    ("classifier", "geometric", "error", "message"),
    [
        (DecisionTreeClassifier(), False, TypeError, "decision_function, which DecisionTreeClassifier does not have"),
        (CalibratedClassifierCV(LinearSVC(), cv=2), False, TypeError, "predict_proba"),
        (IsolationForest(), False, TypeError, "IsolationForest has no classes_"),
        (SVC(decision_function_shape="ovo"), False, ValueError, "set decision_function_shape='ovr'"),
        (SVC(kernel="linear"), True, ValueError, "one weight vector per score"),
        (SVC(kernel=lambda A, B: A @ B.T), True, ValueError, "this SVC does not keep them"),
        (RidgeClassifier(alpha=1e300), True, ValueError, "is zero"),
    ],
)
def test_refusals(classifier, geometric, error, message, three_classes):
    classifier = clone(classifier).fit(*three_classes)
    with pytest.raises(error, match=message):
        margins(classifier, *three_classes, geometric=geometric)


@pytest.mark.parametrize(
    ("decision", "y", "classes", "message"),
    [
        ([1.0, 2.0], [0, 1, 1], None, "inconsistent numbers of samples"),
        ([1.0, np.nan], [0, 1], None, "decision contains NaN"),
        ([1.0, 2.0], [1, 1], None, "belong to 2 classes, got 1"),
        (np.zeros((2, 3)), [0, 1], None, "belong to 3 classes, got 2"),
        ([1.0, 2.0], [0, 7], [0, 1], "the label 7 is not among the classes"),
        ([1.0, 2.0], ["no", "perhaps"], ["no", "yes"], "the label 'perhaps' is not among"),
    ],
)
def test_wrong_decision_values(decision, y, classes, message):
    with pytest.raises(ValueError, match=message):
        margins_from_decision(decision, y, classes)


# ---------------------------------------------------------------------- statistics


def test_statistics_by_hand():
    s = margin_statistics([3.0, -1.0, 1.0, 1.0], quantiles=[0.0, 0.25, 1.0])
    assert (s.minimum, s.mean, s.median, s.variance, s.semi_variance) == (-1.0, 1.0, 1.0, 2.0, 1.0)
    assert s.quantiles == ((0.0, -1.0), (0.25, 0.0), (1.0, 3.0))
    assert (s.share_below_zero, s.n_samples) == (0.25, 4)
    assert s.ratio == math.sqrt(2.0)
    assert margin_statistics([-3.0, -1.0]).ratio == -0.5 and math.isnan(margin_statistics([1.0, -1.0]).ratio)


def slow_statistics(z):
    z = list(z)
    mean = sum(z) / len(z)
    return {
        "minimum": min(z),
        "mean": mean,
        "variance": sum((value - mean) ** 2 for value in z) / len(z),
        "semi_variance": sum((mean - value) ** 2 for value in z if value < mean) / len(z),
        "share_below_zero": sum(value < 0 for value in z) / len(z),
        "n_samples": len(z),
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 4)), min_size=1, max_size=30))
def test_weights_are_repetitions(pairs):
    z = np.array([value / 7.0 for value, _ in pairs])
    weights = np.array([weight for _, weight in pairs])
    if not weights.any():
        with pytest.raises(ValueError, match="at least one must be positive"):
            margin_statistics(z, sample_weight=weights)
        return
    levels = [0.0, 0.1, 0.25, 0.3, 1 / 3, 0.7, 0.9, 1.0]
    repeated = np.repeat(z, weights)
    weighted = margin_statistics(z, sample_weight=weights, quantiles=levels)
    plain = margin_statistics(repeated, quantiles=levels)
    assert weighted.as_dict() == pytest.approx(plain.as_dict(), abs=1e-12, nan_ok=True)
    slow = slow_statistics(repeated)
    assert {name: getattr(weighted, name) for name in slow} == pytest.approx(slow, abs=1e-12, nan_ok=True)
    assert weighted.median == pytest.approx(np.median(repeated))
    for level, value in weighted.quantiles:
        assert np.mean(repeated <= value + 1e-12) >= level - 1e-9
        assert np.mean(repeated >= value - 1e-12) >= 1 - level - 1e-9
    scaled = margin_statistics(z, sample_weight=0.3 * weights, quantiles=levels)
    assert scaled.quantiles == pytest.approx(np.array(weighted.quantiles))


def test_statistics_object():
    s = margin_statistics([1.0, 2.0, 4.0])
    with pytest.raises(AttributeError):
        s.mean = 0.0
    assert pickle.loads(pickle.dumps(s)) == s
    assert hash(s) == hash(margin_statistics([4.0, 2.0, 1.0]))
    assert list(s.as_dict()) == [
        "minimum", "mean", "median", "variance", "semi_variance", "ratio",
        "quantile_0.05", "quantile_0.25", "quantile_0.75", "quantile_0.95", "share_below_zero", "n_samples",
    ]  # fmt: skip
    frame = pd.concat([s.to_frame("SVM"), margin_statistics([0.0]).to_frame("LDM")])
    assert frame.index.tolist() == ["SVM", "LDM"]
    assert frame.loc["SVM"].to_dict() == s.as_dict()
    assert repr(s).splitlines()[0] == "MarginStatistics of 3 samples"
    assert "    median                     2" in repr(s).splitlines()


def test_statistics_without_pandas(monkeypatch):
    statistics = margin_statistics([1.0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas"):
        statistics.to_frame()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"margins": []}, "minimum of 1 is required"),
        ({"margins": [np.inf]}, "margins contains infinity"),
        ({"margins": [1.0], "quantiles": [5]}, "levels from 0 to 1, got \\[5.0\\]"),
        ({"margins": [1.0, 2.0], "sample_weight": [1.0, -1.0]}, "must not be negative"),
        ({"margins": [1.0, 2.0], "sample_weight": [1.0]}, "inconsistent numbers of samples"),
    ],
)
def test_wrong_statistics_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        margin_statistics(**arguments)


# ---------------------------------------------------------------------- display


@pytest.fixture
def fitted(two_classes):
    X, y = two_classes
    return {"LDM": LDMClassifier().fit(X[:50], y[:50]), "LinearSVC": LinearSVC().fit(X[:50], y[:50])}


def test_cumulative_curve_is_the_empirical_distribution(fitted, two_classes, rng):
    X, y = two_classes
    weights = rng.integers(0, 3, len(y))
    display = MarginDistributionDisplay.from_estimator(fitted["LDM"], X, y, sample_weight=weights)
    drawn, height = display.artists_["LDM", None].get_data()
    z = margins(fitted["LDM"], X, y)
    assert np.array_equal(np.unique(drawn), np.unique(z[weights > 0]))
    assert (drawn[0], height[0], height[-1]) == (z[weights > 0].min(), 0.0, pytest.approx(1.0))
    for place in np.linspace(-2, 2, 20):
        reached = height[drawn <= place].max(initial=0.0)
        assert reached == pytest.approx(weights[z <= place].sum() / weights.sum())
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "margin"


def test_histogram_counts_shares(fitted, two_classes, rng):
    X, y = two_classes
    weights = rng.integers(0, 3, len(y))
    display = MarginDistributionDisplay.from_estimator(
        fitted["LDM"], X, y, sample_weight=weights, kind="histogram", bins=[-1, 0, 1, 30], geometric=True
    )
    shares, edges, _ = display.artists_["LDM", None].get_data()
    z = margins(fitted["LDM"], X, y, geometric=True)
    for share, low, high in zip(shares, edges[:-1], edges[1:], strict=True):
        assert share == pytest.approx(weights[(z >= low) & (z < high)].sum() / weights.sum())
    assert display.ax_.get_xlabel() == "geometric margin"


@pytest.mark.parametrize("kind", ["cumulative", "histogram"])
def test_several_estimators_on_given_axes(fitted, two_classes, kind):
    X, y = two_classes
    figure, ax = plt.subplots()
    display = MarginDistributionDisplay.from_estimators(
        fitted, X[:50], y[:50], X_test=X[50:], y_test=y[50:], kind=kind, ax=ax
    )
    assert (display.ax_, display.figure_) == (ax, figure)
    assert list(display.artists_) == list(itertools.product(fitted, ["training", "test"]))
    for name, style in zip(fitted, method_styles(list(fitted)), strict=True):
        training, test = (display.artists_[name, part] for part in ("training", "test"))
        assert training.get_linewidth() < test.get_linewidth()
        color = training.get_color() if kind == "cumulative" else training.get_edgecolor()
        assert matplotlib.colors.same_color(color, style.color)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["LDM", "LinearSVC", "training", "test"]


def test_from_predictions_draws_what_from_estimator_draws(fitted, two_classes):
    X, y = two_classes
    one = MarginDistributionDisplay.from_estimator(fitted["LDM"], X, y)
    other = MarginDistributionDisplay.from_predictions(y, fitted["LDM"].decision_function(X), name="LDM")
    assert np.array_equal(one.artists_["LDM", None].get_xydata(), other.artists_["LDM", None].get_xydata())
    assert other.ax_ is not one.ax_
    again = one.plot(kind="histogram")
    assert again is one
    assert sum(again.artists_["LDM", None].get_data().values) == pytest.approx(1.0)


def test_names_come_from_the_classes(fitted, two_classes):
    X, y = two_classes
    pipeline = make_pipeline(StandardScaler(), LDMClassifier()).fit(X, y)
    display = MarginDistributionDisplay.from_estimators([*fitted.values(), pipeline], X, y)
    assert [name for name, _ in display.artists_] == ["LDM", "LinearSVC", "LDM (2)"]


def test_display_refusals(fitted, two_classes, monkeypatch):
    X, y = two_classes
    with pytest.raises(ValueError, match="kind must be 'cumulative' or 'histogram', got 'pie'"):
        MarginDistributionDisplay.from_estimator(fitted["LDM"], X, y, kind="pie")
    with pytest.raises(ValueError, match="X_test and y_test belong together"):
        MarginDistributionDisplay.from_estimator(fitted["LDM"], X, y, X_test=X)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="needs matplotlib: pip install"):
        MarginDistributionDisplay.from_estimator(fitted["LDM"], X, y)


def test_statistics_need_neither_matplotlib_nor_pandas():
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("matplotlib", "pandas"):
            raise ImportError(name)

sys.meta_path.insert(0, Absent())
from margindist.margins import MarginDistributionDisplay, margin_statistics
margin_statistics([1.0])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------- palette


def linear_rgb(color):
    rgb = np.array(matplotlib.colors.to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# Machado, Oliveira & Fernandes (2009), full severity, on linear RGB.
VISIONS = {
    "full": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("ground", ["white", "#121212"])
def test_colours_stand_out_on_light_and_dark(ground):
    luminance = [0.2126, 0.7152, 0.0722]
    for color in COLOURS.values():
        low, high = sorted([linear_rgb(color) @ luminance, linear_rgb(ground) @ luminance])
        assert (high + 0.05) / (low + 0.05) >= 3.0  # what WCAG asks of graphics


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_differ_for_everybody(vision):
    seen = [lab(np.clip(VISIONS[vision] @ linear_rgb(color), 0.0, 1.0)) for color in COLOURS.values()]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10.0


def test_styles_are_fixed_and_distinct():
    names = [*(one.label for one in CLASSIFIERS), "SVM", "mcSVM", "ridge", "SGD"]
    assert len(set(method_styles(names))) == len(names)
    assert method_styles(["SVM", "LDM"]) == method_styles(["LDM", "SVM"])[::-1]
    assert method_styles(["KM-OMD", "mcODM", "MAMC_b"]) == method_styles(["KOMDClassifier", "ODM", "MAMClassifier"])


@pytest.mark.parametrize(
    "paper",
    [
        ["LDM", "SVM", "MDO", "MAMC", "KM-OMD"],
        ["MSVMAv", "SVM", "ODM", "FMM", "MAMC", "SVR"],
        ["PUMMA", "ROMMA", "ALMA", "MICRA", "SVM"],
        ["mcODM", "mcSVM", "SVM", "ECOC"],
    ],
)
def test_what_a_paper_compares_differs_in_print_without_colour(paper):
    assert len({style.linestyle for style in method_styles(paper)}) == len(paper)


def test_unknown_names_get_free_styles():
    names = [f"method {k}" for k in range(len(COLOURS) * len(LINES) - len(set(_declared_styles().values())))]
    styles = method_styles(names)
    assert len(set(styles)) == len(names)
    assert not set(styles) & set(_declared_styles().values())
    assert method_styles(["mine"]) == method_styles(["LDM", "mine"])[1:]


# ---------------------------------------------------------------------- bounds


def test_leave_one_out_bound_by_hand():
    """Two points at ±1: without margin terms w = min(1, 2C), the multipliers sum to w, H has a diagonal of ones."""
    X, y = [[-1.0], [1.0]], [0, 1]
    inside = LDMClassifier(C=10.0, lambda1=0.0, lambda2=0.0, fit_intercept=False, tol=1e-9).fit(X, y)
    assert loo_error_bound(inside, X, y) == pytest.approx(0.5, rel=1e-6)
    assert loo_error_bound(inside) == pytest.approx(0.5, rel=1e-6)
    bounded = LDMClassifier(C=0.25, lambda1=0.0, lambda2=0.0, fit_intercept=False, tol=1e-9).fit(X, y)
    assert loo_error_bound(bounded, X, y) == 1.0


def test_leave_one_out_bound_refuses_what_is_not_the_optimum(two_classes):
    X, y = two_classes
    with pytest.warns(ConvergenceWarning):
        unfinished = LDMClassifier(C=1000.0, max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match="needs the optimum, but the fit ended with a relative duality gap"):
        loo_error_bound(unfinished)
    pieces = LDMClassifier(solver="asgd").partial_fit(X, y, classes=["ham", "spam"])
    with pytest.raises(ValueError, match="partial_fit has no multipliers"):
        loo_error_bound(pieces)
    with pytest.raises(ValueError, match="must be the 80 training samples, got 79"):
        loo_error_bound(LDMClassifier().fit(X, y), X[1:], y[1:])
    with pytest.warns(UserWarning, match="negative eigenvalues"):
        indefinite = LDMClassifier(kernel="sigmoid", coef0=-1.0).fit(X, y)
    with pytest.raises(ValueError, match="needs a positive definite kernel"):
        loo_error_bound(indefinite, X, y)


def test_rademacher_bound_by_hand():
    """w = 2 on the points ±1 and ±1/4: margins 2, 2, 1/2, 1/2, r = 1, Λ² = 2, k = 2, m = 4."""
    X, y = np.array([[1.0], [-1.0], [0.25], [-0.25]]), [1, 0, 1, 0]
    model = ODMClassifier(theta=0.0, fit_intercept=False).fit(X, y)
    model.coef_, model.intercept_ = np.array([[2.0]]), np.zeros(1)
    expected = 0.125 + 16.0 * np.sqrt(2.0 * np.pi) + 3.0 * np.sqrt(np.log(40.0) / 8.0)
    assert multiclass_bound(model, X, y) == pytest.approx(expected)
    assert generalization_bound(model, X, y) == pytest.approx(expected)
    gram = ODMClassifier(theta=0.0, fit_intercept=False, kernel="precomputed").fit(X @ X.T, y)
    gram.support_, gram.dual_coef_, gram.intercept_ = np.array([0]), np.array([[2.0]]), np.zeros(1)
    assert multiclass_bound(gram, X @ X.T, y) == pytest.approx(expected)


def test_rademacher_bound_refuses_what_the_theorem_does_not_cover(two_classes):
    X, y = two_classes
    with pytest.raises(TypeError, match="multiclass_bound expects a fitted ODMClassifier, got SVC"):
        multiclass_bound(SVC(), X, y)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got 1"):
        multiclass_bound(ODMClassifier().fit(X, y), X, y, delta=1)
    with pytest.raises(NotFittedError):
        multiclass_bound(ODMClassifier(), X, y)
    for cls in (ODMClassifier, MSVMAvClassifier):
        with pytest.warns(UserWarning, match="negative eigenvalues"):
            indefinite = cls(kernel="sigmoid", coef0=-1.0).fit(X, y)
        with pytest.raises(ValueError, match="needs a positive definite kernel"):
            generalization_bound(indefinite, X, y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": 0.0}, "margin must be a positive number, got 0.0"),
        ({"radius": np.inf}, "radius must be a positive number, got inf"),
        ({"radius": "1"}, "radius must be a positive number, got '1'"),
        ({"delta": 1.5}, r"delta must be in \(0, 1\], got 1.5"),
        ({"delta": np.nan}, "delta must be a positive number, got nan"),
        ({"p": 1.5}, "p must be at least 2, got 1.5"),
        ({"margin": 2.0}, "no classifier has a margin of 2 on rows of length at most 1"),
    ],
)
def test_update_bound_says_what_it_expects(changes, message):
    with pytest.raises(ValueError, match=message):
        update_bound(**{"margin": 0.5, "radius": 1.0, "delta": 0.1, **changes})


def test_update_bound_by_hand():
    assert update_bound(margin=1.0, radius=1.0, delta=1.0) == 4.0  # the points ±1: one step is made
    assert PUMMAClassifier(delta=1.0).fit([[1.0], [-1.0]], [1, 0]).n_updates_ == 1
    assert update_bound(margin=0.5, radius=1.0, delta=0.5, p=3.0) == 128.0


# ---------------------------------------------------------------------- in partitions


@pytest.fixture(scope="module")
def model_and_rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1200, 3))
    X[::3] = np.round(X[::3])  # equal margins
    X[7] *= 1e5  # one far from all others
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=1200) > 0, "b", "a")
    return LogisticRegression().fit(X, y), X, y, rng.integers(0, 4, 1200).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("few", [1 << 14, 5, 0])
def test_statistics_over_partitions_are_those_of_all_margins(model_and_rows, weighted, few, monkeypatch):
    model, X, y, weights = model_and_rows
    monkeypatch.setattr("margindist.margins.partitions._FEW", few)
    weights = weights if weighted else None
    z = margins(model, X, y, geometric=True)
    levels = [0.0, 0.05, 0.25, 1 / 3, 0.5, 0.999, 1.0]
    expected = margin_statistics(z, sample_weight=weights, quantiles=levels)
    rows = Partitions.from_arrays(X, y, weights, rows_per_partition=170)
    with PartitionMargins(model, rows, geometric=True) as found:
        statistics = found.statistics(levels)
        for edges in (23, [-1.0, 0.0, 0.3, 2.0]):
            shares, edges = found.histogram(edges)
            counts, expected_edges = np.histogram(z if weights is None else z[weights > 0], edges)
            assert np.array_equal(edges, expected_edges)
            if weights is None:
                np.testing.assert_allclose(shares, counts / len(z))
    assert statistics.quantiles == expected.quantiles
    assert statistics.median == expected.median
    assert statistics.minimum == expected.minimum
    assert type(statistics.n_samples) is type(expected.n_samples)
    for name, value in expected.as_dict().items():
        assert statistics.as_dict()[name] == pytest.approx(value, rel=1e-10), name


def test_statistics_over_partitions_of_equal_margins():
    X = np.array([[1.0], [-1.0]] * 50)
    y = X[:, 0] > 0
    model = LinearSVC().fit(X, y)
    model.coef_[:], model.intercept_[:] = 2.0, 0.0
    with PartitionMargins(model, Partitions.from_arrays(X, y, rows_per_partition=33)) as found:
        assert found.statistics().as_dict() == margin_statistics(np.full(100, 2.0)).as_dict()


def test_a_label_that_the_model_does_not_know_is_named(model_and_rows):
    model, X, y, _ = model_and_rows
    y = np.where(np.arange(1200) == 700, "c", y)
    with pytest.raises(ValueError, match=r"partition 2: the label 'c' is not among the classes \['a', 'b'\]"):
        PartitionMargins(model, Partitions.from_arrays(X, y, rows_per_partition=300))


def test_the_leave_one_out_bound_knows_the_unit_of_the_lambdas():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    relative = LDMClassifier(C=2.0, lambda1=0.5, lambda2=0.25, lambda_scale="relative", tol=1e-9).fit(X, y)
    absolute = LDMClassifier(C=2.0, lambda1=80.0, lambda2=40.0, tol=1e-9).fit(X, y)
    for data in ((), (X, y)):
        assert loo_error_bound(relative, *data) == pytest.approx(loo_error_bound(absolute, *data), rel=1e-6)
    search = LDMClassifierCV(Cs=[2.0], lambda1s=[0.5], lambda2s=[0.25], lambda_scale="relative", tol=1e-9).fit(X, y)
    assert loo_error_bound(search, X, y) == pytest.approx(loo_error_bound(relative, X, y), rel=1e-6)
