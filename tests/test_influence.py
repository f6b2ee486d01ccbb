"""The influence of parameters: the data drawn are those of the search."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC, LinearSVC

from margindist import LSSVMClassifier, LSSVMClassifierCV
from margindist.margins import InfluenceCurve, ParameterInfluenceDisplay, method_styles

X, Y = load_iris(return_X_y=True)
GRID = {"C": [10.0, 0.1, 1.0], "gamma": [0.25, 0.5, 1.0, 2.0]}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def search():
    return GridSearchCV(LSSVMClassifier(kernel="rbf"), GRID, cv=3).fit(X, Y)


def table(search):
    """Return means and standard deviations by (C, gamma)."""
    results = search.cv_results_
    return {
        (chosen["C"], chosen["gamma"]): (mean, std)
        for chosen, mean, std in zip(results["params"], results["mean_test_score"], results["std_test_score"])
    }


def test_others_fixed_at_the_best(search):
    display = ParameterInfluenceDisplay.from_cv_results(search)
    scores, best = table(search), search.best_params_
    assert [curve.parameter for curve in display.curves] == ["C", "gamma"]
    by_C, by_gamma = display.curves
    assert by_C.values == (0.1, 1.0, 10.0) and by_gamma.values == tuple(GRID["gamma"])
    assert_array_equal(by_C.means, [scores[C, best["gamma"]][0] for C in by_C.values])
    assert_array_equal(by_C.stds, [scores[C, best["gamma"]][1] for C in by_C.values])
    assert_array_equal(by_gamma.means, [scores[best["C"], gamma][0] for gamma in by_gamma.values])
    assert (by_C.chosen, by_gamma.chosen) == (best["C"], best["gamma"])
    assert by_C.name == "LSSVM" and display.score_name == "accuracy"


def test_others_at_their_best_for_each_value(search):
    scores = table(search)
    (curve,) = ParameterInfluenceDisplay.from_cv_results(search, params=["C"], others="best").curves
    expected = [max((scores[C, gamma] for gamma in GRID["gamma"]), key=lambda pair: pair[0]) for C in curve.values]
    assert_array_equal(curve.means, [mean for mean, _ in expected])
    fixed = ParameterInfluenceDisplay.from_cv_results(search, params=["C"]).curves[0]
    assert (curve.means >= fixed.means).all()


def test_what_is_drawn(search):
    display = ParameterInfluenceDisplay.from_cv_results(search)
    assert display.ax_ is display.axes_[0] and display.figure_ is display.ax_.figure
    (style,) = method_styles(["LSSVM"])
    for ax, curve in zip(display.axes_, display.curves):
        line = display.artists_["LSSVM", curve.parameter]
        assert_array_equal(line.get_xdata(), curve.values)
        assert_array_equal(line.get_ydata(), curve.means)
        assert line.get_color() == style.color
        corners = ax.collections[0].get_paths()[0].vertices
        assert_allclose([corners[:, 1].min(), corners[:, 1].max()],
                        [(curve.means - curve.stds).min(), (curve.means + curve.stds).max()])  # fmt: skip
        ring = ax.lines[-1]
        assert ring.get_xdata()[0] == curve.chosen
        assert ring.get_ydata()[0] == pytest.approx(search.best_score_)
        assert ax.get_xlabel() == curve.parameter
    assert display.axes_[0].get_xscale() == "log" and display.axes_[0].xaxis.get_transform().base == 10
    assert display.axes_[1].get_xscale() == "log" and display.axes_[1].xaxis.get_transform().base == 2
    assert display.ax_.get_legend() is None


def test_plain_results_do_as_well(search):
    results = {key: search.cv_results_[key] for key in ("params", "mean_test_score", "std_test_score")}
    results = {key: list(values) for key, values in results.items()}
    plain = ParameterInfluenceDisplay.from_cv_results(results, name="LS-SVM").curves
    for curve, expected in zip(plain, ParameterInfluenceDisplay.from_cv_results(search).curves):
        assert curve.name == "LS-SVM" and curve.values == expected.values
        assert_array_equal(curve.means, expected.means)


def test_our_own_searches_do_as_well():
    search = LSSVMClassifierCV(Cs=[0.1, 1.0, 10.0], kernel="rbf", cv=3).fit(X, Y)
    (curve,) = ParameterInfluenceDisplay.from_cv_results(search).curves
    assert (curve.name, curve.parameter, curve.values) == ("LSSVM", "C", (0.1, 1.0, 10.0))
    assert_array_equal(curve.means, search.cv_results_["mean_test_score"])


def test_several_methods_share_the_axes_of_a_parameter(search):
    pipeline = make_pipeline(MinMaxScaler(), LinearSVC())
    other = GridSearchCV(pipeline, {"linearsvc__C": [0.1, 1.0, 10.0]}, cv=3).fit(X, Y)
    display = ParameterInfluenceDisplay.from_cv_results({"LS-SVM": search, "LinearSVC": other})
    assert list(display.artists_) == [("LS-SVM", "C"), ("LinearSVC", "C"), ("LS-SVM", "gamma")]
    assert display.artists_["LinearSVC", "C"].axes is display.axes_[0]
    for name, style in zip(["LS-SVM", "LinearSVC"], method_styles(["LS-SVM", "LinearSVC"])):
        assert display.artists_[name, "C"].get_color() == style.color
    assert [text.get_text() for text in display.axes_[-1].get_legend().get_texts()] == ["LS-SVM", "LinearSVC"]


def test_from_estimator_varies_one_parameter_at_a_time():
    cv = StratifiedKFold(4)
    model = LSSVMClassifier(kernel="rbf", C=3.0, gamma=0.7)
    display = ParameterInfluenceDisplay.from_estimator(model, X, Y, {"C": [0.1, 3.0], "gamma": [0.1, 0.7, 2.0]}, cv=cv)
    by_C, by_gamma = display.curves
    for C, mean, std in zip(by_C.values, by_C.means, by_C.stds):
        scores = cross_val_score(LSSVMClassifier(kernel="rbf", C=C, gamma=0.7), X, Y, cv=cv)
        assert (mean, std) == (pytest.approx(scores.mean()), pytest.approx(scores.std()))
    assert by_gamma.means[1] == by_C.means[1]
    assert (by_C.chosen, by_gamma.chosen) == (3.0, 0.7)
    assert not hasattr(model, "classes_")
    both = ParameterInfluenceDisplay.from_estimator(
        [model, LinearSVC()], X, Y, {"C": [0.1, 1.0], "gamma": [1, 2]}, cv=3
    )
    assert [(curve.name, curve.parameter) for curve in both.curves] == [
        ("LSSVM", "C"),
        ("LSSVM", "gamma"),
        ("LinearSVC", "C"),
    ]


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1, 2, 3, 4], "linear"),
        ([0.2, 0.4, 0.6, 0.8], "linear"),
        ([10, 50, 100], "linear"),
        ([1, 10], "linear"),
        ([-1, 1, 10], "linear"),
        ([0.01, 0.1, 1], "log"),
        ([1, 3, 10, 30], "log"),
        ([0, 0.25, 0.5, 1, 2], "symlog"),
    ],
)
def test_scale_follows_the_grid(values, scale):
    curve = InfluenceCurve("SVC", "C", tuple(values), np.ones(len(values)), np.zeros(len(values)), values[0])
    display = ParameterInfluenceDisplay([curve]).plot()
    assert display.ax_.get_xscale() == scale
    display.figure_.canvas.draw()


def test_words_and_missing_scores():
    results = {
        "params": [{"kernel": kernel, "gamma": gamma} for kernel in ("rbf", "poly") for gamma in ("scale", 1.0)],
        "mean_test_score": [0.5, 0.9, np.nan, 0.7],
        "std_test_score": [0.1, 0.1, np.nan, 0.1],
    }
    display = ParameterInfluenceDisplay.from_cv_results(results)
    kernel, gamma = display.curves
    assert kernel.values == ("rbf", "poly") and gamma.values == ("scale", 1.0)
    assert_array_equal(kernel.means, [0.9, 0.7])
    assert [tick.get_text() for tick in display.axes_[1].get_xticklabels()] == ["scale", "1.0"]
    (kernel,) = ParameterInfluenceDisplay.from_cv_results(results, others="best", params=["kernel"]).curves
    assert_array_equal(kernel.means, [0.9, 0.7])


def test_one_axes_for_one_parameter(search):
    _, ax = plt.subplots()
    assert ParameterInfluenceDisplay.from_cv_results(search, params=["gamma"], ax=ax).ax_ is ax
    with pytest.raises(ValueError, match="2 parameters need as many axes, got 1"):
        ParameterInfluenceDisplay.from_cv_results(search, ax=ax)


def test_refusals(search):
    with pytest.raises(ValueError, match="did not vary 'degree'; it varied C, gamma"):
        ParameterInfluenceDisplay.from_cv_results(search, params=["degree"])
    with pytest.raises(ValueError, match="others must be 'fixed' or 'best', got 'all'"):
        ParameterInfluenceDisplay.from_cv_results(search, others="all")
    with pytest.raises(ValueError, match=r"expected a fitted search .* got SVC"):
        ParameterInfluenceDisplay.from_cv_results(SVC())
    with pytest.raises(ValueError, match="no parameter with more than one value"):
        ParameterInfluenceDisplay.from_cv_results(GridSearchCV(LinearSVC(), {"C": [1.0]}, cv=3).fit(X, Y))
    with pytest.raises(ValueError, match="LinearSVC has none of the parameters"):
        ParameterInfluenceDisplay.from_estimator(LinearSVC(), X, Y, {"gamma": [1]})
    with pytest.raises(ValueError, match="no score that is a number"):
        nothing = {"params": [{"C": 1}], "mean_test_score": [np.nan], "std_test_score": [np.nan]}
        ParameterInfluenceDisplay.from_cv_results(nothing)
