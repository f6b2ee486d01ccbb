"""The CV estimators choose what GridSearchCV chooses, with the same scores."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import make_scorer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.preprocessing import minmax_scale

from margindist import (
    LDMClassifier,
    LDMClassifierCV,
    LSSVMClassifier,
    LSSVMClassifierCV,
    MSVMAvClassifier,
    MSVMAvClassifierCV,
    ODMClassifier,
    ODMClassifierCV,
)
from margindist.estimators import ldm
from margindist.objectives import LDM, SemiVariance
from margindist.solvers import _metric, newton, projected_newton, semivariance
from margindist.solvers._kernel_certificate import certify_multipliers
from margindist.solvers._solution import Options, Problem
from margindist.spaces.gram import FullGram
from margindist.spaces.rows import as_rows

# A search, the classifier (solved so exactly that scores do not depend on the solver), and the grid they share.
SEARCHES = {
    "ldm": (
        LDMClassifierCV(Cs=[1, 50], lambda1s=[0.0, 0.25, 40.0], lambda2s=[0.0, 20.0]),
        LDMClassifier(tol=1e-10),
        {"C": [1, 50], "lambda1": [0.0, 0.25, 40.0], "lambda2": [0.0, 20.0]},
    ),
    "odm": (
        ODMClassifierCV(lams=[1, 64, 2**14], mus=[0.2, 0.8], thetas=[0.0, 0.4]),
        ODMClassifier(tol=1e-7),
        {"lam": [1, 64, 2**14], "mu": [0.2, 0.8], "theta": [0.0, 0.4]},
    ),
    "lssvm": (LSSVMClassifierCV(Cs=[0.01, 1, 100]), LSSVMClassifier(), {"C": [0.01, 1, 100]}),
    "msvmav": (
        MSVMAvClassifierCV(alphas=[0.1, 64], betas=[0.1, 1, 10]),
        MSVMAvClassifier(),
        {"alpha": [0.1, 64], "beta": [0.1, 1, 10]},
    ),
}
every_search = pytest.mark.parametrize("name", SEARCHES)


def problem(n_classes, n=90, seed=0):
    X, y = make_classification(
        n, 8, n_informative=4, n_classes=n_classes, flip_y=0.15, class_sep=0.8, random_state=seed
    )  # fmt: skip
    return minmax_scale(X), np.array(["a", "b", "c"])[y]


def compare(name, X, y, weights=None, grid=None, **parameters):
    """Fit both searches, assert that they agree, and return ours."""
    search, classifier, points = SEARCHES[name]
    own = {k: v for k, v in parameters.items() if k in classifier.get_params()}
    shared = {k: v for k, v in parameters.items() if k in ("cv", "scoring")}
    ours = clone(search).set_params(tol=classifier.tol, **parameters)
    peer = GridSearchCV(clone(classifier).set_params(**own), points | (grid or {}), **shared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours.fit(X, y, weights)
        peer.fit(X, y) if weights is None else peer.fit(X, y, sample_weight=weights)
    assert ours.cv_results_["params"] == peer.cv_results_["params"]
    for key in (k for k in peer.cv_results_ if k.endswith("test_score")):
        np.testing.assert_allclose(ours.cv_results_[key], peer.cv_results_[key], rtol=0, atol=1e-12)
    assert ours.best_params_ == peer.best_params_
    assert ours.best_index_ == peer.best_index_
    assert ours.best_score_ == pytest.approx(peer.best_score_, abs=1e-12)
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    return ours


@every_search
@pytest.mark.parametrize("n_classes", [2, 3])
def test_linear(name, n_classes):
    X, y = problem(n_classes, n=75)
    form = np.asarray if n_classes == 2 else sp.csr_array
    ours = compare(name, form(np.where(X < 0.3, 0.0, X)), y)
    assert ours.coef_.shape == (1 if n_classes == 2 else 3, 8)
    assert (ours.coef_ == ours.best_estimator_.coef_).all()


@every_search
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rbf(name, n_classes):
    X, y = problem(n_classes, n=60)
    gammas = ["scale", 0.1, 5.0] if n_classes == 2 else ["scale"]
    ours = compare(name, X, y, grid={"gamma": gammas}, kernel="rbf", gammas=gammas)
    assert ours.gamma_ in gammas
    assert ours.dual_coef_.shape[1] == len(ours.support_)


@every_search
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_weights_count_in_training_and_scores(name, kernel):
    X, y = problem(2)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    search, classifier, points = SEARCHES[name]
    folds = list(StratifiedKFold(4).split(X, y))
    ours = clone(search).set_params(kernel=kernel, cv=folds, tol=classifier.tol).fit(X, y, weights)
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    of_row = np.empty(len(y), dtype=int)
    for number, (_, test) in enumerate(folds):
        of_row[test] = number
    splits = [(np.flatnonzero(of_row[repeated] != k), np.flatnonzero(of_row[repeated] == k)) for k in range(4)]
    gamma = {} if kernel == "linear" else {"gamma": ["scale"]}
    peer = GridSearchCV(clone(classifier).set_params(kernel=kernel), points | gamma, cv=splits)
    peer.fit(X[repeated], y[repeated])
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], peer.cv_results_["mean_test_score"], atol=1e-12)
    assert ours.best_params_ == peer.best_params_


@every_search
def test_scores_by_weights_are_those_of_routed_metadata(name):
    X, y = problem(3)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    search, classifier, points = SEARCHES[name]
    ours = clone(search).set_params(tol=classifier.tol, scoring="balanced_accuracy").fit(X, y, weights)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = sklearn.metrics.get_scorer("balanced_accuracy").set_score_request(sample_weight=True)
        peer = GridSearchCV(clone(classifier).set_fit_request(sample_weight=True), points, scoring=scorer)
        peer.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], peer.cv_results_["mean_test_score"], atol=1e-12)


SHUFFLED = StratifiedKFold(3, shuffle=True, random_state=0)


@every_search
@pytest.mark.parametrize(
    "parameters",
    [
        {"scoring": "roc_auc", "cv": 3},
        {"scoring": make_scorer(lambda y, p: np.mean(y == p) ** 2), "cv": SHUFFLED},
        {"fit_intercept": False, "class_weight": "balanced"},
        {"kernel": "poly", "coef0": 1.0, "degree": 2, "class_weight": {"a": 3.0}},
    ],
    ids=["roc_auc", "own scorer", "balanced", "poly"],
)  # fmt: skip
def test_other_parameters(name, parameters):
    grid = {"gamma": ["scale"]} if parameters.get("kernel") == "poly" else None
    compare(name, *problem(2), grid=grid, **parameters)


@every_search
def test_precomputed_and_callable_kernels(name):
    X, y = problem(2, n=60)
    expected = compare(name, X, y, kernel="rbf", gammas=[0.5], grid={"gamma": [0.5]})
    K = rbf_kernel(X, gamma=0.5)
    for kernel, given in (("precomputed", K), (lambda A, B: rbf_kernel(A, B, gamma=0.5), X)):
        found = clone(SEARCHES[name][0]).set_params(kernel=kernel, tol=1e-8).fit(given, y)
        np.testing.assert_allclose(
            found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=1e-12
        )
        np.testing.assert_allclose(found.decision_function(given), expected.decision_function(X), atol=1e-3)


def test_fewer_rows_than_columns():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 70)), np.repeat([0, 1], 20)
    X[:20, 0] += 1.5
    for name in SEARCHES:
        compare(name, X, y)


def test_points_that_share_nothing_are_solved_one_by_one():
    X, y = problem(2)
    X[:, 0] = y == "a"  # separable, so that a hard margin exists
    grid = {"C": [1.0, np.inf], "lambda1": [0.25], "lambda2": [0.0]}
    ours = LDMClassifierCV(Cs=[1.0, np.inf], lambda1s=[0.25], lambda2s=[0.0], tol=1e-8).fit(X, y)
    peer = GridSearchCV(LDMClassifier(tol=1e-8), grid).fit(X, y)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], peer.cv_results_["mean_test_score"])


def test_groups_and_threads():
    X, y = problem(2)
    groups = np.arange(len(y)) % 9
    one, two = (
        LSSVMClassifierCV(cv=GroupKFold(3), kernel="rbf", gammas=[0.1, 1.0], n_jobs=n).fit(X, y, groups=groups)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert one.n_splits_ == 3


def test_a_scorer_cannot_ask_for_other_samples():
    X, y = problem(2)
    search = LSSVMClassifierCV(scoring=lambda model, rows, labels: model.predict(X).shape[0])
    with pytest.raises(ValueError, match="only for the scores of the samples"):
        search.fit(X, y)


@pytest.mark.parametrize(
    "parameters", [{"Cs": []}, {"Cs": 1.0}, {"Cs": "10"}, {"lambda1s": [-1]}, {"gammas": ["wide"]}, {"cv": 1}], ids=str
)
def test_grids_are_checked(parameters):
    (name,) = parameters
    with pytest.raises(ValueError, match=f"LDMClassifierCV: {name} must be"):
        LDMClassifierCV(**parameters).fit(*problem(2))


@pytest.mark.parametrize(("rounds", "rank"), [(40, 3), (40, 40), (0, 3), (0, 40)])
def test_points_of_ldm_are_certified_by_an_exact_product(rounds, rank, rng, monkeypatch):
    """The gaps hold for the Gram matrix itself, repeated rows and few columns included, from small to large C.

    So they do along the grid, and from interior points.
    """
    monkeypatch.setattr(projected_newton, "_ROUNDS", rounds)
    X = rng.standard_normal((40, rank))
    X[20:30] = X[:10]
    signs, weights = np.where(rng.random(40) < 0.4, -1.0, 1.0), rng.uniform(0.2, 3.0, 40)
    objectives = [LDM(C, a, b) for C in (1e-3, 1.0, 100.0) for a in (0.0, 1.0, 100.0) for b in (0.0, 10.0)]
    spectrum = projected_newton.spectrum_of_gram(X @ X.T, weights)
    solutions = projected_newton.solve_grid(Problem(objectives, spectrum, [signs, -signs], weights), Options(tol=1e-9))
    for objective, pair in zip(objectives, solutions, strict=True):
        for solution, labels in zip(pair, (signs, -signs), strict=True):
            margins = labels * (X @ (X.T @ solution.coef))
            proved, _ = certify_multipliers(objective, FullGram(X @ X.T), labels, weights, solution.dual, margins)
            assert (solution.dual >= 0).all() and (solution.dual <= objective.C * weights).all()
            assert proved.gap <= 1e-7
            assert proved.objective == pytest.approx(solution.objective, rel=1e-7)


def test_solutions_go_on_along_lambda2_as_the_line_they_are(rng):
    X = rng.standard_normal((60, 4))
    G, signs, weights = rbf_kernel(X), np.where(X[:, 0] > 0.3, 1.0, -1.0), np.ones(60)
    spectrum = projected_newton.spectrum_of_gram(G, weights)
    objectives = [LDM(1.0, 0.1, pull) for pull in 1e-3 * np.arange(12)]
    solutions = projected_newton.solve_grid(Problem(objectives, spectrum, [signs], weights), Options(tol=1e-9))
    assert all(point[0].gap <= 1e-9 for point in solutions)
    assert sum(point[0].n_iter == 0 for point in solutions[2:]) >= 8


def test_odm_goes_along_mu_which_changes_nothing_below_the_band(monkeypatch):
    steps = []

    def counting(*args):
        steps.append(newton_solve(*args).n_iter)
        return newton_solve(*args)

    newton_solve = newton.solve
    monkeypatch.setattr(newton, "solve", counting)
    X, y = problem(2)
    search = ODMClassifierCV(lams=[1e-3, 2e-3], mus=[0.2, 0.4, 0.8], thetas=[0.2], kernel="rbf", cv=2).fit(X, y)
    assert search.n_splits_ == 2
    assert np.reshape(steps[:12], (4, 3))[:, 1:].tolist() == [[0, 0]] * 4


@pytest.mark.parametrize("shape", [(60, 4), (30, 45)], ids=["columns", "rows"])
def test_rounds_of_a_grid_are_those_of_single_points(shape, rng):
    X, weights = rng.standard_normal(shape), rng.uniform(0.5, 2.0, shape[0])
    signs = np.where(X[:, 0] + rng.standard_normal(shape[0]) > 0, 1.0, -1.0)
    metric = 1.0 + rng.random(shape[1])
    pairs = [(0.5, 0.01), (64.0, 0.25), (4.0, 10.0)]
    objectives = [SemiVariance(alpha, beta, metric) for alpha, beta in pairs]
    coefs = semivariance.solve_grid(Problem(objectives, as_rows(X), signs, weights), Options())
    for coef, objective in zip(coefs, objectives, strict=True):
        one = semivariance.solve(Problem(objective, as_rows(X), signs, weights), Options())
        np.testing.assert_allclose(coef, one.coef, atol=1e-8)


def accuracy(model, X, y):
    return np.mean(model.predict(X) == y)


@pytest.mark.parametrize("scoring", [accuracy, make_scorer(lambda y, predicted: np.mean(y == predicted))])
def test_scorers_that_take_no_weights_get_none(scoring):
    X, y = problem(2)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    search, classifier, points = SEARCHES["lssvm"]
    peer = GridSearchCV(classifier, points, scoring=scoring)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        ours = clone(search).set_params(scoring=scoring).fit(X, y, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of scikit-learn warn, too
        peer.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], peer.cv_results_["mean_test_score"], atol=1e-12)


def nan_like_a_search(ours, peer, X, y, match, category):
    with pytest.warns(category, match=match):
        ours.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(X, y)
    for key in (k for k in peer.cv_results_ if k.endswith("test_score")):
        np.testing.assert_allclose(ours.cv_results_[key], peer.cv_results_[key], rtol=0, atol=1e-12)
    assert ours.best_index_ == peer.best_index_


def test_a_fold_that_cannot_be_fitted_is_scored_nan():
    X, y = problem(3)
    weights = {"a": 1.0, "b": 2.0, "c": 1.0}
    folds = [(np.flatnonzero(y != "c"), np.flatnonzero(y == "c")), *StratifiedKFold(2).split(X, y)]
    search, classifier, points = SEARCHES["lssvm"]
    ours = clone(search).set_params(class_weight=weights, cv=folds)
    peer = GridSearchCV(clone(classifier).set_params(class_weight=weights), points, cv=folds)
    nan_like_a_search(ours, peer, X, y, "3 of the 9 fits failed", FitFailedWarning)
    with pytest.raises(ValueError, match="all 3 fits failed"):
        ours.set_params(cv=folds[:1]).fit(X, y)


def test_scores_that_need_probabilities_are_nan():
    X, y = problem(2)
    search, classifier, points = SEARCHES["lssvm"]
    peer = GridSearchCV(classifier, points, scoring="neg_log_loss")
    ours = clone(search).set_params(scoring="neg_log_loss")
    nan_like_a_search(ours, peer, X, y, r"LSSVMClassifier has none of .* predict_proba", UserWarning)


@pytest.mark.parametrize("gammas", [[0.5, 1.0], ["scale", 1.0]], ids=str)
def test_the_columns_of_parameters_are_those_of_a_search(gammas):
    X, y = problem(2)
    ours = LSSVMClassifierCV(Cs=[1, 2.5], gammas=gammas, kernel="rbf").fit(X, y).cv_results_
    peer = GridSearchCV(LSSVMClassifier(kernel="rbf"), {"C": [1, 2.5], "gamma": gammas}).fit(X, y).cv_results_
    for name in ("param_C", "param_gamma"):
        assert ours[name].dtype == peer[name].dtype
        assert ours[name].tolist() == peer[name].tolist()
        assert not ours[name].mask.any()


@pytest.mark.filterwarnings("ignore:.*negative eigenvalues:UserWarning")
@pytest.mark.parametrize(
    ("classifier", "search", "grid"),
    [
        (LDMClassifier, LDMClassifierCV, {"C": [1.0, 10.0], "lambda1": [0.25], "lambda2": [0.25]}),
        (ODMClassifier, ODMClassifierCV, {"lam": [16.0, 256.0], "mu": [0.4], "theta": [0.2]}),
        (MSVMAvClassifier, MSVMAvClassifierCV, {"alpha": [64.0], "beta": [0.2, 1.0]}),
        (LSSVMClassifier, LSSVMClassifierCV, {"C": [0.01, 1.0, 100.0]}),
    ],
    ids=["LDM", "ODM", "MSVMAv", "LSSVM"],
)
def test_kernels_that_are_not_positive_definite_score_as_in_grid_search(classifier, search, grid):
    X, y = load_breast_cancer(return_X_y=True)
    X, y, folds = minmax_scale(X)[:120], y[:120], StratifiedKFold(3, shuffle=True, random_state=0)
    settings = {"kernel": "sigmoid", "coef0": -1.0, "tol": 1e-7}
    expected = GridSearchCV(classifier(gamma=0.5, **settings), grid, cv=folds).fit(X, y)
    found = search(gammas=[0.5], cv=folds, **settings, **{f"{name}s": values for name, values in grid.items()})
    np.testing.assert_allclose(
        found.fit(X, y).cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=1e-12
    )


def test_a_fold_that_loses_all_digits_is_a_failed_fit(monkeypatch):
    def lose(*args, **options):
        raise FloatingPointError("the weights are not finite")

    monkeypatch.setattr(projected_newton, "solve_grid", lose)
    reason = r"all 10 fits failed, the first because: LDMClassifier: .* loses all digits \(the weights are not finite\)"
    with pytest.raises(ValueError, match=reason):
        LDMClassifierCV(Cs=[1.0, 10.0], lambda1s=[0.25], lambda2s=[0.25]).fit(*make_classification(60, random_state=0))


def test_the_price_of_variance_may_be_high_beside_the_features():
    spectrum = projected_newton.Spectrum(np.array([1e20]), np.ones((2, 1)))
    assert spectrum.left_of_mean(np.ones(2), np.full(2, 0.5), 1.0) == pytest.approx(1e-20)
    X, y = 1e6 * np.random.default_rng(8).random((24, 30)), np.arange(24) < 4
    search = LDMClassifierCV(Cs=[450.0], lambda1s=[1e5], lambda2s=[390.0], cv=2)
    with pytest.warns(ConvergenceWarning):
        search.fit(X, y)  # all fits had failed
    assert np.isfinite(search.best_score_)


def test_folds_without_digits_for_leave_one_out_are_searched_without_a_word():
    X = np.tile([[1e9, 0.0, 0.0, 0.0], [1e9, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], (2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        LSSVMClassifierCV(Cs=[1.0, 2.0], cv=2).fit(X, [0, 1, 0, 0, 1, 0])


# ---------------------------------------------------------------------- the usual grids


def test_the_wide_grid_of_ldm_is_relative_and_has_the_svm_in_it():
    search = LDMClassifierCV(cv=2).fit(*problem(2))
    points = search.cv_results_["params"]
    assert len(points) == 63
    assert search.best_estimator_.lambda_scale == "relative"
    assert any(point["lambda1"] == point["lambda2"] == 0.0 for point in points)


def test_the_papers_grids_are_one_argument_away():
    ldm = LDMClassifierCV(grid="paper", cv=2).fit(*problem(2))
    assert len(ldm.cv_results_["params"]) == 147
    assert ldm.best_estimator_.fit_intercept is False  # the paper has no bias
    assert LDMClassifierCV(grid="paper", fit_intercept=True)._template().fit_intercept
    widths = LDMClassifierCV(grid="paper", kernel="rbf", cv=2).fit(*problem(2))
    assert len(widths.cv_results_["params"]) == 735
    assert set(widths.cv_results_["param_gamma"]) == {f"{w}*mean-distance" for w in ("0.25", "0.5", "1", "2", "4")}
    assert ldm.best_estimator_.lambda_scale == "absolute"
    odm = ODMClassifierCV(grid="paper", mus=[0.4], cv=2).fit(*problem(2))
    assert sorted(set(odm.cv_results_["param_lam"])) == [4.0**k for k in range(11)]
    assert len(odm.cv_results_["params"]) == 44
    assert odm.best_estimator_.fit_intercept is False and ODMClassifierCV()._template().fit_intercept


def test_lambdas_that_are_given_are_those_of_the_equation():
    search = LDMClassifierCV(Cs=[1.0], lambda2s=[0.25], cv=2).fit(*problem(2))
    assert search.best_estimator_.lambda_scale == "absolute"
    assert sorted(set(search.cv_results_["param_lambda1"])) == [2.0**k for k in range(-8, -1)]


def test_the_wide_grid_of_odm_follows_the_weight_of_the_samples():
    X, y = problem(2)
    search = ODMClassifierCV(mus=[0.2], thetas=[0.2], cv=2).fit(X, y, np.full(len(y), 2.0))
    assert sorted(set(search.cv_results_["param_lam"])) == pytest.approx([2.0 * len(y) * 10.0**k for k in range(-3, 4)])


def test_folds_of_many_rows_share_a_gram_matrix_and_its_metrics(monkeypatch, rng):
    X = rng.random((240, 4))
    y = np.where(np.sin(7.0 * X).sum(axis=1) > 0.0, "a", "b")
    made, in_metric = [], _metric._in_metric
    monkeypatch.setattr(_metric, "_in_metric", lambda S, c, share: made.append(c) or in_metric(S, c, share))
    monkeypatch.setattr(ldm, "_FEW_ROWS", 100)
    grid = {"Cs": [1.0, 10.0], "lambda1s": [2e4, 0.0], "lambda2s": [0.0, 5.0], "cv": 3, "tol": 1e-8}
    expected = LDMClassifierCV(**grid, kernel="rbf").fit(X, y).cv_results_["mean_test_score"]
    monkeypatch.setattr(ldm, "_LARGEST_DUAL", 0)
    made.clear()
    found = LDMClassifierCV(**grid, kernel="rbf").fit(X, y)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], expected)
    assert len(made) == 3 + (found.lambda1_ > 0.0)  # one per fold and curvature, and the last fit
