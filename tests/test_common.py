"""What all classifiers promise, whatever they minimise. A new one joins by its entry in :mod:`margindist.methods`."""

import pickle
import re
from email.message import Message

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, minmax_scale
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

import margindist
from margindist import (
    ALMAClassifier,
    ECOCClassifier,
    KOMDClassifier,
    LDMClassifier,
    LSSVMClassifier,
    MAMClassifier,
    MDOClassifier,
    MICRAClassifier,
    MSVMAvClassifier,
    ODMClassifier,
    ROMMAClassifier,
)
from margindist.estimators import _base
from margindist.estimators._training_data import distinct
from margindist.methods import OURS

_ONLINE = {"soft_margin": 1.0, "max_iter": 1000, "random_state": 0}

# What makes a fit quick, or converge on the common tests' data.
SETTINGS = {
    "ALMAClassifier": _ONLINE,
    "FMMClassifier": {"max_iter": 200},
    "LDMClassifierCV": {"Cs": [1, 10], "lambda1s": [0.25], "lambda2s": [0.25], "cv": 3},
    "LSSVMClassifierCV": {"Cs": [0.1, 1], "cv": 3},
    "MDOClassifier": {"random_state": 0},
    "MICRAClassifier": _ONLINE,
    "MSVMAvClassifierCV": {"alphas": [64], "betas": [0.2, 0.3], "cv": 3},
    # Weights and copies have one optimum; what a solver costs is reckoned by rows, so ways to it may differ.
    "ODMClassifierCV": {"lams": [16, 256], "mus": [0.4], "thetas": [0.2], "cv": 3, "tol": 1e-12},
    "PUMMAClassifier": _ONLINE,
    "ROMMAClassifier": _ONLINE,
}
KERNELS_TOO = (
    "FMMClassifier",
    "KOMDClassifier",
    "LDMClassifier",
    "LDMClassifierCV",
    "MSVMAvClassifier",
    "ODMClassifier",
)


def _declared():
    """Yield every declared classifier, some with a kernel too."""
    names = sorted({name for one in OURS.values() for name in (one.name, one.search) if name})
    for name in names:
        if name == "ECOCClassifier":
            yield ECOCClassifier(LSSVMClassifier())
            continue
        make, settings = getattr(margindist, name), SETTINGS.get(name, {})
        yield make(**settings)
        if name in KERNELS_TOO:
            yield make(kernel="rbf", **settings)


CLASSIFIERS = [*_declared(), LSSVMClassifier(kernel="rbf", space="empirical"), ODMClassifier(multi_class="ovr")]

every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return minmax_scale(X), np.array(["setosa", "versicolor", "virginica"])[y]


@parametrize_with_checks(CLASSIFIERS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_classifier
@pytest.mark.parametrize("n_classes", [2, 3])
def test_dense_sparse_and_frames_agree(classifier, iris, n_classes):
    X, y = (part[-50 * n_classes :] for part in iris)
    X = np.where(X < 0.3, 0.0, X)
    expected = clone(classifier).fit(X, y).decision_function(X)
    for form in (sp.csr_matrix, sp.csr_array, pd.DataFrame):
        values = clone(classifier).fit(form(X), y).decision_function(form(X))
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


@every_classifier
def test_single_precision_is_close(classifier, iris):
    X, y = iris
    double = clone(classifier).fit(X, y)
    single = clone(classifier).fit(X.astype(np.float32), y)
    assert (single.predict(X.astype(np.float32)) == double.predict(X)).mean() > 0.97


@every_classifier
def test_pickle_keeps_the_scores(classifier, iris):
    X, y = iris
    fitted = clone(classifier).fit(X, y)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.decision_function(X), fitted.decision_function(X))


@every_classifier
def test_composes_with_scikit_learn(classifier, iris):
    X, y = iris
    pipeline = make_pipeline(MinMaxScaler(), clone(classifier)).fit(X, y)
    assert pipeline.score(X, y) > 0.6
    calibrated = CalibratedClassifierCV(clone(classifier), cv=3).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)
    search = GridSearchCV(clone(classifier), {}, cv=3).fit(X, y)
    assert search.best_score_ > 0.6


@every_classifier
def test_a_fit_that_fails_leaves_the_last_model(classifier, iris):
    X, y = iris
    model = clone(classifier).fit(X, y)
    expected = model.predict(X)
    with pytest.raises(ValueError):
        model.fit(X[:50, :2], y[:50])  # one class only
    np.testing.assert_array_equal(model.predict(X), expected)


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize(("first", "then"), [("linear", "rbf"), ("rbf", "linear")])
def test_a_fit_leaves_nothing_of_the_last_one(classifier, first, then, iris):
    X, y = iris
    if "kernel" not in classifier.get_params() or type(classifier).__name__.endswith("CV"):
        pytest.skip("has one kernel only")
    settings = {"gamma": 0.5} if "gamma" in classifier.get_params() else {}
    again = clone(classifier).set_params(kernel=first, **settings).fit(X, y).set_params(kernel=then).fit(X[:, :2], y)
    fresh = clone(classifier).set_params(kernel=then, **settings).fit(X[:, :2], y)
    assert vars(again).keys() == vars(fresh).keys()
    np.testing.assert_allclose(again.decision_function(X[:, :2]), fresh.decision_function(X[:, :2]), atol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("value", "classifier"),
    [
        (1.0, ODMClassifier(kernel="rbf")),
        (1.0, ODMClassifier(kernel="poly")),
        (0.0, LDMClassifier(kernel="poly", fit_intercept=False)),
        (1.0, MSVMAvClassifier(kernel="rbf", fit_intercept=False)),
        (0.0, MSVMAvClassifier(kernel="poly", fit_intercept=False)),
        (0.0, ROMMAClassifier(kernel="poly")),
        (0.0, ALMAClassifier(kernel="poly")),
        (0.0, MICRAClassifier(kernel="poly")),
    ],
    ids=repr,
)
def test_without_support_the_scores_are_the_intercepts(classifier, value):
    X, y = np.full((10, 2), value), np.arange(10) % 2
    model = clone(classifier).fit(X, y)
    assert len(model.support_) == 0
    np.testing.assert_array_equal(model.decision_function(X), np.repeat(model.intercept_, 10))
    assert set(model.predict(X)) <= {0, 1}


@every_classifier
@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_class_weights_are_finite_and_not_negative(classifier, weight, iris):
    X, y = iris
    if "class_weight" not in classifier.get_params():
        pytest.skip("has no class weights")
    with pytest.raises(ValueError, match=r"class_weight must be .* not negative"):
        clone(classifier).set_params(class_weight={"setosa": weight}).fit(X, y)


@every_classifier
@pytest.mark.parametrize("scale", [1e160, -1e150, 1e71, 1e-73, 1e-150, 1e-310])
def test_values_whose_squares_overflow_or_vanish_are_refused_at_once(classifier, scale, iris):
    X, y = iris
    X = scale * X
    X[7, 2] = 5.0 * scale
    for rows, column in ((X, 2), (sp.csr_array(X), 2), (pd.DataFrame(X, columns=list("abcd")), "'c'")):
        message = rf"expected features .* between 1e-70 and 1e\+70 in size, got .*e[+-]\d+ in column {column}; scale"
        with pytest.raises(ValueError, match=message):
            clone(classifier).fit(rows, y)


@every_classifier
def test_a_vanishing_row_and_column_leave_the_scores_finite(classifier, iris):
    X, y = iris
    for scale in (1e-310, 1e-160, 1e-75):
        rows = X.copy()
        rows[0] *= scale
        rows[:, 1] *= scale
        assert np.isfinite(clone(classifier).fit(rows, y).decision_function(X)).all()


@every_classifier
@pytest.mark.parametrize("weight", [1e200, 1e-200])
def test_weights_with_which_products_overflow_are_refused(classifier, weight, iris):
    X, y = iris
    if not has_fit_parameter(classifier, "sample_weight"):
        pytest.skip("takes no sample weights")
    with pytest.raises(ValueError, match=r"expected sample weights, .*, got 1e[+-]200; divide"):
        clone(classifier).fit(X, y, sample_weight=np.full(len(y), weight))
    if "class_weight" not in classifier.get_params():
        return
    with pytest.raises(ValueError, match=r"expected sample weights, times class weights, .*, got 1e[+-]200; divide"):
        clone(classifier).set_params(class_weight={"setosa": weight}).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@every_classifier
@pytest.mark.parametrize("price", [1e200, 1e308, 1e-308])
def test_prices_that_overflow_with_the_weights_leave_the_scores_finite(classifier, price, iris):
    X, y = iris
    own = [name for name in ("C", "lam", "alpha", "beta") if name in classifier.get_params()]
    if not own or not classifier._requirements[own[0]].test(price):
        pytest.skip("has no price")
    extra = {"sample_weight": np.full(50, 10.0)} if has_fit_parameter(classifier, "sample_weight") else {}
    model = clone(classifier).set_params(**{own[0]: price})
    try:
        assert np.isfinite(model.fit(X[25:75], y[25:75], **extra).decision_function(X)).all()
    except ValueError as error:
        assert "moderate size" in str(error)


@every_classifier
def test_scores_are_finite_or_the_values_are_refused(classifier, iris):
    X, y = iris
    model = clone(classifier).fit(X, y)
    for scale in (1e70, 1e150, 1e308):
        try:
            assert np.isfinite(model.decision_function(scale * (X - 0.5))).all()
        except ValueError as error:
            assert "about as large as those of the training data" in str(error)


@pytest.mark.parametrize(
    "learner", [KOMDClassifier, LDMClassifier, LSSVMClassifier, MAMClassifier, ODMClassifier], ids=lambda c: c.__name__
)
def test_a_model_does_not_follow_the_array_it_was_fitted_to(learner, iris):
    X, y = iris
    rows = X[50:].copy()
    model = learner(kernel="rbf").fit(rows, y[50:])
    expected = model.decision_function(X)
    rows[:] = 0.0
    np.testing.assert_array_equal(model.decision_function(X), expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", [MDOClassifier, MSVMAvClassifier])
def test_progress_without_a_certificate_names_no_gap(learner, iris, capsys):
    X, y = iris
    learner(verbose=1, max_iter=3).fit(X[50:], y[50:])
    printed = capsys.readouterr().out
    assert "iteration 1: objective" in printed
    assert "gap" not in printed


@every_classifier
@pytest.mark.parametrize("extreme", [1e101, 1e-101])
def test_prices_that_cannot_be_squared_are_refused(classifier, iris, extreme):
    prices = {"C", "lambda1", "lambda2", "lam", "alpha", "beta"}
    for name in classifier.get_params(deep=False):
        value = [extreme] if name.endswith("s") else extreme
        if name.removesuffix("s") in prices and classifier._requirements[name].test(value):
            text = re.escape(f"{name} must be of moderate size, between 1e-100 and 1e+100")
            with pytest.raises(ValueError, match=text):
                clone(classifier).set_params(**{name: value}).fit(*iris)


@pytest.mark.parametrize("name", ["LDMClassifier", "ODMClassifierCV", "PUMMAClassifier"])
def test_the_html_representation_links_to_the_documentation_that_the_metadata_names(name, monkeypatch):
    told = Message()
    told["Project-URL"] = "Source, https://here.org"
    told["Project-URL"] = "Documentation, https://here.org/docs"
    monkeypatch.setattr(_base.metadata, "metadata", {"margindist": told}.__getitem__)
    _base._documentation.cache_clear()
    link = f"https://here.org/docs/generated/margindist.{name}.html"
    try:
        assert f'href="{link}"' in getattr(margindist, name)()._repr_html_()
    finally:
        _base._documentation.cache_clear()


def test_without_metadata_the_html_representation_has_no_link(monkeypatch):
    monkeypatch.setattr(_base, "_documentation", lambda: "")
    assert "href" not in margindist.LDMClassifier()._repr_html_()


@pytest.mark.parametrize(
    "labels",
    [np.array([3, 1, 2]), np.array([-1.0, 1.0]), np.array([True, False]), np.arange(5000), np.array(["a"])],
)
def test_many_labels_are_found_without_sorting_them(labels):
    y = labels[np.random.default_rng(0).integers(len(labels), size=30_000)]
    y = np.append(np.sort(y), labels)  # the last may occur there for the first time
    found, codes = distinct(y)
    if len(labels) > 100 or labels.dtype.kind == "U":
        assert found is None
        return
    expected, places = np.unique(y, return_inverse=True)
    assert np.array_equal(found, expected) and np.array_equal(codes, places)
    assert distinct(np.append(y.astype(float), np.nan))[0] is None


KERNEL_CLASSIFIERS = [one for one in CLASSIFIERS if "kernel" in one.get_params()]
every_kernel_classifier = pytest.mark.parametrize("classifier", KERNEL_CLASSIFIERS, ids=repr)


def _kernel_case():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, (X[:, 0] > 0).astype(int)


@every_kernel_classifier
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*negative eigenvalues")
def test_asymmetric_kernel_values_are_refused(classifier, kind):
    X, y = _kernel_case()
    gram = X @ X.T + np.eye(60)
    model = clone(classifier).set_params(kernel="precomputed")
    rounded = gram.astype(np.float32)
    rounded[1, 2] *= 1 + 1e-7
    model.fit(kind(rounded), y)
    gram[40, 3] += 0.5
    with pytest.raises(
        ValueError, match=r": expected symmetric kernel values, got k\(x, z\) and k\(z, x\) that differ by"
    ):
        model.fit(kind(gram), y)


@every_kernel_classifier
@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (lambda X, Y: X @ Y.T + 1j, "got one of complex128"),
        (lambda X, Y: (X @ Y.T)[:, :2], r"got one of shape \(\d+, 2\)"),
        (lambda X, Y: 1.0, r"got one of shape \(\)"),
        (lambda X, Y: np.full((len(X), len(Y)), np.nan), "values that are not finite"),
        (lambda X, Y: X[:, :1] + 0 * (X @ Y.T), "expected symmetric kernel values"),
    ],
    ids=["complex", "narrow", "number", "nan", "asymmetric"],
)
def test_functions_that_are_no_kernels_are_refused(classifier, kernel, words):
    X, y = _kernel_case()
    with pytest.raises(ValueError, match=words):
        clone(classifier).set_params(kernel=kernel).fit(X, y)


@pytest.mark.parametrize("classifier", [one for one in CLASSIFIERS if "n_jobs" in one.get_params()], ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scores_have_the_same_bits_for_any_number_of_jobs(classifier):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)
    model = clone(classifier)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    expected = model.fit(X, y).decision_function(X)
    for n_jobs in (2, 2, 3):
        assert np.array_equal(model.set_params(n_jobs=n_jobs).fit(X, y).decision_function(X), expected)


@every_classifier
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_a_classifier_lacks_is_answered_by_what_to_do(classifier):
    X, y = _kernel_case()
    model = clone(classifier)
    assert not hasattr(model, "predict_proba") and not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match=r"has no predict_proba, .*CalibratedClassifierCV"):
        model.predict_proba  # noqa: B018
    with pytest.raises(AttributeError, match="object has no attribute 'nothing_'"):
        model.nothing_  # noqa: B018
    if not hasattr(model.fit(X, y), "coef_"):
        with pytest.raises(AttributeError, match=r"with kernel='linear' only; .*dual_coef_|ECOC.* has no"):
            model.coef_  # noqa: B018
    assert not hasattr(model, "predict_proba") and clone(model).get_params().keys() == model.get_params().keys()
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
