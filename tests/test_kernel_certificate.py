"""What kernel machines claim holds for the kernel as it is, not only for the features a solver works on."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from margindist import LDMClassifier, ODMClassifier
from margindist.estimators import _base
from margindist.objectives import LDM, ODM
from margindist.solvers import newton
from margindist.solvers._kernel_certificate import certify_features, hidden_by_rounding
from margindist.solvers._solution import Options, Problem, Solution
from margindist.spaces.features import cholesky_factor
from margindist.spaces.gram import FullGram, clip_spectrum


def long_kernel(X, kernel, gamma):
    """Return kernel values in long double, by the definition; "poly" is (γ x·x' − ½)³."""
    X = X.astype(np.longdouble)
    if kernel == "rbf":
        return np.exp(-np.longdouble(gamma) * ((X[:, None] - X) ** 2).sum(axis=2))
    return (gamma * (X @ X.T) - 0.5) ** 3


def row_coefficients(model, n):
    alpha = np.zeros(n, dtype=np.longdouble)
    alpha[model.support_] = model.dual_coef_[0]
    return alpha


def long_value(objective, G, signs, alpha):
    image = G @ alpha
    return objective.value(alpha @ image, signs * image, np.ones(len(signs), dtype=np.longdouble))


def lower_bound(model):
    return model.objective_ - (model.duality_gap_ + 1e-11) * abs(model.objective_)


def hard_problem(seed):
    """Return rows, labels and gamma that make Gram matrices of low numerical rank, or nearly diagonal ones."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 1 + seed % 2)) * [1.0, 100.0, 1e-3][seed % 3]
    return X, np.where(rng.random(30) < 0.5, -1, 1), 10.0 ** rng.uniform(-4, 3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("C", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("seed", range(6))
def test_ldm_solvers_do_not_contradict_each_other(seed, C):
    X, y, gamma = hard_problem(seed)
    G, objective, models = long_kernel(X, "rbf", gamma) + 1.0, LDM(C, 0.25, 0.25), []
    for solver in ("interior-point", "block", "coordinate-descent"):
        models.append(LDMClassifier(*objective, kernel="rbf", gamma=gamma, solver=solver, random_state=0).fit(X, y))
    values = [long_value(objective, G, y, row_coefficients(model, 30)) for model in models]
    for model, value in zip(models, values, strict=True):
        assert value == pytest.approx(model.objective_, rel=model.duality_gap_ + 1e-11)
        assert lower_bound(model) <= min(values)
        assert model.certified_problem_ == "exact"


@pytest.mark.parametrize("lam", [2.0**-10, 2.0**10, 2.0**20])
@pytest.mark.parametrize("seed", range(6))
def test_odm_with_many_prices_is_as_near_as_it_says(seed, lam):
    X, y, gamma = hard_problem(seed)
    model = ODMClassifier(lam, 1.0, 0.0, kernel="rbf", gamma=gamma, fit_intercept=False).fit(X, y)
    G, objective = long_kernel(X, "rbf", gamma), ODM(lam, 1.0, 0.0)
    value = long_value(objective, G, y, row_coefficients(model, 30))
    assert value == pytest.approx(model.objective_, rel=model.duality_gap_ + 1e-11)
    # theta = 0 and mu = 1 is ridge regression: the optimum is one system, refined here to long double.
    system = G + np.eye(30) * 30 / (2 * np.longdouble(lam))
    alpha, inverse = np.zeros(30, dtype=np.longdouble), np.linalg.inv(system.astype(np.float64))
    for _ in range(50):
        alpha += inverse @ (y - system @ alpha)
    optimum = long_value(objective, G, y, alpha)
    assert lower_bound(model) <= optimum
    assert model.duality_gap_ <= model.tol
    assert value <= (1 + 1e-3) * optimum


def test_a_factor_cut_too_early_is_found_out(rng):
    X, y = rng.standard_normal((40, 1)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    gram, objective, ones = FullGram(long_kernel(X, "rbf", 1.0).astype(float)), ODM(2.0**20, 0.4, 0.2), np.ones(40)
    proved = []
    for tol in (1e-3, 1e-14):
        factor = cholesky_factor(gram, tol=tol)
        problem = Problem(objective, factor.rows, y, ones)
        found = newton.solve(problem, Options(tol=1e-8))
        assert found.gap <= 1e-8
        proved.append(certify_features(problem, factor, gram, found, 1e-3))
    assert proved[1].gap <= 1e-3
    assert proved[0].objective * (1 - proved[0].gap) <= proved[1].objective
    assert proved[0].objective > 1.01 * proved[1].objective  # the cut problem has another optimum


def ridge_value(features, y, lam):
    """Return the least value of ½‖w‖² + λ/n Σ(y − Fw)²."""
    n, r = features.shape
    w = np.linalg.solve(np.eye(r) + 2 * lam / n * features.T @ features, 2 * lam / n * features.T @ y)
    return 0.5 * w @ w + lam / n * np.sum((y - features @ w) ** 2)


def test_nystroem_certifies_the_problem_on_its_features(rng):
    X, y = rng.standard_normal((60, 2)), np.where(rng.random(60) < 0.5, -1, 1)
    options = {"kernel": "rbf", "gamma": 0.5, "n_components": 8, "fit_intercept": False, "tol": 1e-8, "random_state": 0}
    model = ODMClassifier(64, 1.0, 0.0, **options).fit(X, y)
    K = long_kernel(X, "rbf", 0.5).astype(float)
    values, vectors = np.linalg.eigh(K[np.ix_(model.support_, model.support_)])
    features = K[:, model.support_] @ (vectors / np.sqrt(values))
    assert model.certified_problem_ == "nystroem"
    assert model.objective_ == pytest.approx(ridge_value(features, y, 64), rel=1e-8)
    assert (
        model.objective_ > 1.001 * ODMClassifier(64, 1.0, 0.0, **options | {"n_components": None}).fit(X, y).objective_
    )
    block = LDMClassifier(1, 0.5, 0.5, solver="block", **options).fit(X, y)
    point = LDMClassifier(1, 0.5, 0.5, solver="interior-point", **options).fit(X, y)
    assert block.certified_problem_ == point.certified_problem_ == "nystroem"
    assert block.objective_ == pytest.approx(point.objective_, rel=1e-7)


def test_an_indefinite_kernel_is_certified_without_its_negative_part(rng):
    X, y = rng.standard_normal((40, 2)), np.where(rng.random(40) < 0.5, -1, 1)
    options = {"kernel": "poly", "gamma": 1.0, "coef0": -0.5, "fit_intercept": False, "tol": 1e-8}
    with pytest.warns(UserWarning, match="negative eigenvalues"):
        model = ODMClassifier(64, 1.0, 0.0, **options).fit(X, y)
    K = long_kernel(X, "poly", 1.0).astype(float)
    values, vectors = np.linalg.eigh(K)
    features = vectors[:, values > 0] * np.sqrt(values[values > 0])
    assert model.certified_problem_ == "clipped kernel"
    assert model.objective_ == pytest.approx(ridge_value(features, y, 64), rel=1e-7)
    # The coefficients give this value with the kernel as it is.
    value = long_value(ODM(64.0, 1.0, 0.0), K, y, row_coefficients(model, 40))
    assert value == pytest.approx(model.objective_, rel=1e-7)


def test_small_negative_eigenvalues_count(rng):
    basis = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    K = basis * np.append(np.ones(19), -1e-11) @ basis.T
    K = 0.5 * (K + K.T)
    with pytest.warns(UserWarning, match="negative eigenvalues"):
        model = ODMClassifier(2**20, kernel="precomputed", fit_intercept=False).fit(K, np.arange(20) % 2)
    assert model.certified_problem_ == "clipped kernel"


@pytest.mark.parametrize("multi_class", ["direct", "ovr"])
def test_several_classes_are_proved_for_the_kernel(multi_class, rng):
    X, y = rng.standard_normal((60, 1)), rng.integers(0, 3, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = ODMClassifier(2**16, kernel="rbf", multi_class=multi_class).fit(X, y)
    assert np.max(model.duality_gap_) <= model.tol
    # The weights' own scores have the objective that is claimed.
    scores = model.decision_function(X)
    alphas = np.zeros((3, 60))
    alphas[:, model.support_] = model.dual_coef_
    squares = np.einsum("kn,nk->k", alphas, scores)
    if multi_class == "direct":
        own = scores[np.arange(60), y]
        scores[np.arange(60), y] = -np.inf
        value = ODM(2.0**16, 0.4, 0.2).value(squares.sum(), own - scores.max(axis=1), np.ones(60))
    else:
        signs = [np.where(y == k, 1.0, -1.0) for k in range(3)]
        value = [ODM(2.0**16, 0.4, 0.2).value(squares[k], signs[k] * scores[:, k], np.ones(60)) for k in range(3)]
    np.testing.assert_allclose(value, model.objective_, rtol=1e-5)


def test_large_cancelling_coefficients_are_not_certified(rng):
    X, y = 1e6 * rng.standard_normal((30, 1)), np.where(rng.random(30) < 0.5, -1, 1)
    with pytest.warns(ConvergenceWarning, match="above tol"):
        model = ODMClassifier(2**20, kernel="poly", degree=3, gamma=1.0).fit(X, y)
    assert np.isfinite(model.objective_)
    assert model.duality_gap_ > model.tol
    assert model.objective_ <= 2**20  # weights of zero cost this


@pytest.mark.parametrize("multi_class", ["direct", "ovr"])
def test_kernel_values_of_zero_leave_nothing_to_learn(multi_class):
    y, nothing = [0, 1, 2, 0], np.zeros((4, 4))
    models = [LDMClassifier(solver=solver) for solver in ("auto", "coordinate-descent", "block")]
    for model in [*models, ODMClassifier(multi_class=multi_class)]:
        model.set_params(kernel="precomputed", fit_intercept=False).fit(nothing, y)
        assert not model.decision_function(nothing).any()
        assert np.max(model.duality_gap_) <= model.tol


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "classifier",
    [
        LDMClassifier(10.0, 0.0, 0.0),
        LDMClassifier(10.0, 20.0, 20.0),
        ODMClassifier(1e3),
        ODMClassifier(1e3, multi_class="ovr"),
    ],
    ids=str,
)
def test_as_many_components_as_the_kernel_asks_for(classifier, n_classes, rng, monkeypatch):
    monkeypatch.setattr(_base, "_FEWEST_COMPONENTS", 4)
    X = rng.standard_normal((150, 2))
    y = np.digitize(X[:, 0] * X[:, 1], [-0.2, 0.2][: n_classes - 1])
    auto = clone(classifier).set_params(kernel="rbf", gamma=0.3, n_components="auto", random_state=0).fit(X, y)
    whole = clone(auto).set_params(n_components=None, tol=1e-9).fit(X, y)
    few = clone(auto).set_params(n_components=4).fit(X, y)
    assert few.n_components_ == 4 < auto.n_components_ <= 128 and not hasattr(few, "kernel_gap_")
    assert np.shape(auto.kernel_gap_) == np.shape(auto.duality_gap_) and np.max(auto.kernel_gap_) <= 1e-2
    if not hasattr(
        auto, "objective_history_"
    ):  # the joint problem is not convex; what is proved is about its last round
        least = auto.objective_ - (auto.kernel_gap_ + 1e-8) * np.abs(auto.objective_)
        assert np.all(whole.objective_ >= least)


def test_components_end_where_memory_or_their_use_does(rng, monkeypatch):
    monkeypatch.setattr(_base, "_FEWEST_COMPONENTS", 4)
    X, y = rng.standard_normal((150, 2)), np.where(rng.random(150) < 0.5, -1, 1)
    options = {"kernel": "rbf", "gamma": 0.3, "n_components": "auto", "random_state": 0}
    small = LDMClassifier(cache_size=11 * 2 * 8 * 150 / 1e6, **options).fit(X, y)
    assert small.n_components_ == 11 and small.kernel_gap_ > 1e-2
    spread = LDMClassifier(10.0, **options | {"gamma": 1e3}).fit(X, y)  # every row is far from all others
    assert spread.n_components_ < 150 and spread.kernel_gap_ > 0.1
    assert not hasattr(LDMClassifier(n_components="auto").fit(X, y), "n_components_")  # linear
    with pytest.raises(ValueError, match="no negative eigenvalues"):
        LDMClassifier(**options | {"kernel": "sigmoid"}).fit(X, y)
    with pytest.raises(ValueError, match="None, 'auto' or a positive integer"):
        LDMClassifier(**options | {"n_components": "all"}).fit(X, y)


# ---------------------------------------------------------------------- gaps that are rounding


@pytest.mark.parametrize("objective", [3.0, -3.0, 3e40])
def test_a_gap_is_hidden_where_the_objective_rounds_by_as_much(objective):
    error = 1e-9 * abs(objective)
    solution = Solution(np.zeros(2), np.zeros(2), objective, gap=5e-9, error=error)
    assert hidden_by_rounding(solution)
    assert not hidden_by_rounding(solution._replace(gap=5e-8))
    assert not hidden_by_rounding(solution._replace(gap=np.inf))
    assert not hidden_by_rounding(solution._replace(error=0.0))
    assert hidden_by_rounding(solution._replace(error=0.0, gap=0.0))


@pytest.mark.parametrize("size", [1.0, 1e12])
def test_the_length_of_a_dual_point_hides_gaps_only_from_who_asks_with_the_matrix(rng, size):
    """Rows of both classes that are nearly the same cancel: the function is short, and the sum that says so rounds."""
    X = 1.0 + 1e-3 * rng.normal(size=(40, 2))
    gram, exact = FullGram(X @ X.T), X.astype(np.longdouble)
    multipliers = np.full(40, size)
    coef = np.where(np.arange(40) % 2, size, -size)
    rounded = abs(0.5 * (coef @ gram.columns(np.arange(40)) @ coef - coef @ (exact @ exact.T) @ coef))
    solution = Solution(coef, multipliers, objective=1.0, gap=float(rounded))
    assert hidden_by_rounding(solution, gram)
    solution = solution._replace(gap=1e-12 * size**2)
    assert hidden_by_rounding(solution, gram) and not hidden_by_rounding(solution)
    assert not hidden_by_rounding(solution._replace(gap=1e-8 * size**2), gram)


@pytest.mark.parametrize("kept", [False, True])
def test_what_was_clipped_from_an_indefinite_matrix_rounds_as_its_largest_eigenvalue_does(rng, kept):
    vectors = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    gram = clip_spectrum(FullGram((vectors * np.r_[-1e6, np.ones(29)]) @ vectors.T))
    gram = gram if kept else FullGram(gram.columns(np.arange(30)))
    solution = Solution(np.ones(30), np.ones(30), objective=1.0, gap=1e-7)
    assert hidden_by_rounding(solution, gram) == kept


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_length_that_rounding_has_taken_proves_nothing_of_shortened_coefficients():
    """The dual point's squared length, a small difference of large numbers, comes out as zero or less."""
    rng = np.random.default_rng(3)
    X, y = rng.integers(0, 2, (27, 2)) + np.array([1e6, 0.0]), rng.integers(0, 2, 27)
    reached = ODMClassifier(2.0**20, 1.0, 0.2).fit(X, y).objective_
    model = ODMClassifier(2.0**20, 1.0, 0.2, kernel="precomputed").fit(X @ X.T, y)
    assert model.objective_ * (1.0 - model.duality_gap_) <= reached * (1.0 + 1e-9)
