"""What certificates prove: of predictions, and of other libraries' models."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, minmax_scale
from sklearn.svm import SVC, LinearSVC

from margindist import LDMClassifier, LDMClassifierCV, LSSVMClassifier, ODMClassifier
from margindist.proof import certain, certify, score_bounds

RELATIVE = {"lambda1": 1.0, "lambda2": 0.3, "lambda_scale": "relative"}
MODELS = [
    LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0),
    LDMClassifier(C=100.0, lambda1=0.0, lambda2=0.0, fit_intercept=False),
    LDMClassifier(C=1.0, **RELATIVE),
    LDMClassifier(C=10.0, **RELATIVE, class_weight="balanced"),
    ODMClassifier(lam=2.0**6, multi_class="ovr"),
    ODMClassifier(lam=2.0**14, mu=0.2, theta=0.5, multi_class="ovr"),
    LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0, kernel="rbf"),
    LDMClassifier(C=1.0, **RELATIVE, kernel="poly", coef0=1.0),
    ODMClassifier(lam=2.0**8, kernel="rbf", multi_class="ovr"),
]


def problem(n_classes, seed):
    X, y = make_classification(
        240, 8, n_informative=5, n_classes=n_classes, flip_y=0.15, class_sep=0.6, random_state=seed
    )
    return minmax_scale(X), y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_exact_score_is_outside_its_bounds(model, n_classes):
    X, y = problem(n_classes, seed=n_classes)
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    exact = clone(model).set_params(tol=1e-11).fit(X[:160], y[:160], weights[:160])
    for tol in (0.5, 1e-2, 1e-5):
        rough = clone(model).set_params(tol=tol).fit(X[:160], y[:160], weights[:160])
        for training in (None, (X[:160], y[:160], weights[:160])):
            lower, upper = score_bounds(rough, X[160:], training=training)
            found, at = exact.decision_function(X[160:]), rough.decision_function(X[160:])
            slack = 1e-5 * (1.0 + np.abs(found))  # the reference is not exact either
            assert (lower <= at).all() and (at <= upper).all()
            assert (lower - slack <= found).all() and (found <= upper + slack).all()
            proved = certain(rough, X[160:], training=training)
            clear = np.abs(found) > 1e-5 if found.ndim == 1 else np.ones(len(proved), dtype=bool)
            assert (rough.predict(X[160:]) == exact.predict(X[160:]))[proved & clear].all()


@pytest.mark.parametrize("model", [LDMClassifier(C=1.0, **RELATIVE), ODMClassifier(lam=2.0**12)], ids=str)
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix, np.float32])
def test_the_curvature_decides_what_the_gap_leaves_open(model, storage):
    X, y = load_breast_cancer(return_X_y=True)
    X = storage(minmax_scale(X))
    model = clone(model).set_params(tol=1e-3).fit(X[:400], y[:400])
    by_gap = certain(model, X[400:])
    by_curvature = certain(model, X[400:], training=(X[:400], y[:400]))
    assert by_curvature[by_gap].all()
    assert by_curvature.mean() > max(0.8, by_gap.mean())
    wide, narrow = (score_bounds(model, X[400:], training=rows) for rows in (None, (X[:400], y[:400])))
    assert np.median(narrow.upper - narrow.lower) < 0.5 * np.median(wide.upper - wide.lower)


def test_bounds_count_what_multipliers_lack():
    X, y = problem(2, seed=5)
    model = LDMClassifier(C=1.0, **RELATIVE, tol=1e-8).fit(X, y)
    lower, upper = score_bounds(model, X, training=(X, y))
    model.multipliers_ = np.random.default_rng(0).random(model.multipliers_.shape)  # any are a dual point
    model.duality_gap_ = 1e6
    worse_lower, worse_upper = score_bounds(model, X, training=(X, y))
    assert (worse_lower < lower).all() and (worse_upper > upper).all()
    model.coef_ = model.coef_ + 0.05  # and so are any weights a point
    f = model.decision_function(X)
    exact = LDMClassifier(C=1.0, **RELATIVE, tol=1e-11).fit(X, y).decision_function(X)
    lower, upper = score_bounds(model, X, training=(X, y))
    assert (lower <= exact).all() and (exact <= upper).all() and (lower <= f).all()


def test_pipelines_and_searches_are_their_last_step():
    X, y = load_breast_cancer(return_X_y=True)
    search = LDMClassifierCV(Cs=[1.0], lambda1s=[1.0], lambda2s=[0.0], cv=2)
    model = make_pipeline(MinMaxScaler(), search).fit(X, y)
    inner = model[-1].best_estimator_
    np.testing.assert_array_equal(score_bounds(model, X), score_bounds(inner, model[0].transform(X)))
    assert certain(model, X, training=(X, y)).mean() > 0.9


def test_what_has_no_bounds_is_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="joint problem of several classes is not convex"):
        score_bounds(ODMClassifier().fit(X, y), X)
    with pytest.raises(TypeError, match="expected a classifier with a convex objective"):
        score_bounds(LSSVMClassifier().fit(X, y), X)
    with pytest.raises(ValueError, match="precomputed"):
        score_bounds(LDMClassifier(kernel="precomputed").fit(X @ X.T, y), X @ X.T)
    with pytest.raises(ValueError, match="finite price"):
        score_bounds(LDMClassifier(C=np.inf).fit(X[:100], y[:100]), X)
    model = LDMClassifier(**RELATIVE).fit(X, y)
    with pytest.raises(ValueError, match="expected the 150 training samples in training, got 140"):
        score_bounds(model, X, training=(X[10:], y[10:]))


# ---------------------------------------------------------------------- the judge


def minimum(model, X, signs, weights):
    """Return the minimum of a model's two-class problem by a generic solver."""
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    z = cp.multiply(signs, X @ w + b)
    cost = cp.sum_squares(w) / 2
    name = type(model).__name__
    if name == "LinearSVC":
        cost += cp.square(b / model.intercept_scaling) / 2 if model.fit_intercept else 0.0
    if name in ("LinearSVC", "SVC") and getattr(model, "loss", "hinge") == "hinge":
        cost += model.C * cp.sum(cp.multiply(weights, cp.pos(1 - z)))
    elif name == "LinearSVC":
        cost += model.C * cp.sum(cp.multiply(weights, cp.square(cp.pos(1 - z))))
    elif name == "SGDClassifier":
        cost += cp.sum(cp.multiply(weights, cp.pos(1 - z))) / (model.alpha * len(signs))
    elif name == "LogisticRegression":
        cost += model.C * cp.sum(cp.multiply(weights, cp.logistic(-z)))
    else:
        cost += cp.sum(cp.multiply(weights, cp.square(1 - z))) / (2 * model.alpha)
    constraints = [] if model.get_params().get("fit_intercept", True) else [b == 0]
    found = cp.Problem(cp.Minimize(cost), constraints)
    return found.solve(solver=cp.CLARABEL)


JUDGED = [
    LinearSVC(loss="hinge", C=10.0, max_iter=5, random_state=0),
    LinearSVC(loss="hinge", intercept_scaling=3.0, random_state=0),
    LinearSVC(max_iter=3, random_state=0),
    LinearSVC(C=0.1, fit_intercept=False, random_state=0),
    SGDClassifier(alpha=1e-3, random_state=0),
    LogisticRegression(max_iter=3),
    LogisticRegression(C=50.0, fit_intercept=False, max_iter=10),
    RidgeClassifier(alpha=0.5, solver="sparse_cg", tol=1e-2),
    SVC(kernel="linear", C=5.0, tol=0.1),
]


@pytest.mark.parametrize("model", JUDGED, ids=str)
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
def test_the_bracket_holds_the_truth(model, storage):
    X, y = make_classification(90, 5, flip_y=0.2, random_state=1)
    X, weights = minmax_scale(X), np.random.default_rng(0).integers(1, 4, 90).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = clone(model).fit(storage(X), y, sample_weight=weights)
    found = certify(model, storage(X), y, sample_weight=weights)
    exact = minimum(model, X, np.where(y == 1, 1.0, -1.0), weights)
    (least,), (most,) = found.gap
    truth = (found.objective[0] - exact) / found.objective[0]
    assert found.lower[0] <= exact * (1.0 + 1e-7)
    assert least - 1e-6 <= truth <= most + 1e-6
    assert most <= 3.0 * truth + 1e-4


def test_several_classes_are_judged_one_by_one():
    X, y = load_iris(return_X_y=True)
    found = certify(LinearSVC(random_state=0).fit(X, y), X, y)
    assert found.objective.shape == (3,) and (found.lower <= found.upper).all() and found.gap[1].max() < 1e-3
    assert found.differing == 0.0
    lines = str(found).split("\n")
    assert len(lines) == 3 and lines[0].startswith("LinearSVC minimises ½‖w‖²")
    assert "‖w‖" in found._repr_html_()


def test_a_judge_knows_what_it_can_judge():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="expected one of LinearSVC, SVC"):
        certify(LDMClassifier().fit(X, y), X, y)
    with pytest.raises(ValueError, match="two classes"):
        certify(SVC().fit(X, y), X, y)
    model = SVC().fit(X[:100], y[:100])
    assert certify(model, X[:100], y[:100]).gap[1][0] < 0.01
    with pytest.raises(ValueError, match="multipliers exceed C"):
        certify(model, X[:100], y[:100], sample_weight=np.full(100, 0.01))
    with pytest.raises(ValueError, match="penalty='l2'"):
        certify(LinearSVC(penalty="l1", dual=False).fit(X, y), X, y)
