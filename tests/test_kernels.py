import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from margindist import (
    FMMClassifier,
    KOMDClassifier,
    LDMClassifier,
    LSSVMClassifier,
    MAMClassifier,
    MSVMAvClassifier,
    ODMClassifier,
    PUMMAClassifier,
    SVRClassifier,
)
from margindist.datasets import Partitions
from margindist.kernels import Kernel, exponentials, resolve_gamma
from margindist.objectives import ODM
from margindist.spaces import gram as gram_module
from margindist.spaces.features import cholesky_factor, nystroem, partial_cholesky
from margindist.spaces.gram import CachedGram, FullGram, clip_spectrum, gram_bytes, gram_matrix, is_indefinite


def cosine(X, Y):
    X, Y = (Z.toarray() if sp.issparse(Z) else Z for Z in (X, Y))
    return X @ Y.T / np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1))


SOME_KERNELS = [
    Kernel("linear", bias=1.0),
    Kernel("rbf", gamma=0.3),
    Kernel("rbf", gamma=0.3, bias=1.0),
    Kernel("poly", gamma=0.5, degree=3, coef0=1.0),
    Kernel("sigmoid", gamma=0.1, coef0=-0.2),
    Kernel(cosine, bias=0.5),
]


@pytest.fixture(params=["dense", "float32", "sparse", "very sparse"])
def X(request, rng):
    X = rng.standard_normal((300, 6))
    if request.param == "float32":
        return X.astype(np.float32)
    if request.param == "sparse":
        return sp.csr_matrix(np.where(rng.random(X.shape) < 0.6, X, 0.1))
    if request.param == "very sparse":
        wide = np.hstack([X[:, :2], np.zeros((300, 100))])
        wide[:, 50:70] = rng.random((300, 20)) < 0.05
        return sp.csr_array(wide)
    return X


@pytest.mark.parametrize("kernel", SOME_KERNELS, ids=lambda kernel: str(kernel.name)[:8])
def test_providers_agree_with_the_kernel(X, kernel, rng):
    expected = kernel(X, X)
    cached = CachedGram(X, kernel, gram_bytes(300) // 10)
    assert cached.whole() is cached
    for gram in (cached, gram_matrix(X, kernel).whole()):
        which, coef, V = np.array([5, 0, 299, 17]), rng.standard_normal(4), rng.standard_normal((300, 3))
        close = {"rtol": 2e-5, "atol": 1e-5} if X.dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}
        np.testing.assert_allclose(gram.diagonal, expected.diagonal(), **close)
        np.testing.assert_allclose(gram.columns(which), expected[which], **close)
        np.testing.assert_allclose(gram.block(which), expected[np.ix_(which, which)], **close)
        np.testing.assert_allclose(gram.dot(V), expected @ V, rtol=1e-4, atol=1e-3 if X.dtype == np.float32 else 1e-9)
        for _ in range(2):  # computed, then from the cache
            gram.add_columns(which, coef, out := np.ones(300))
            np.testing.assert_allclose(out, 1.0 + expected[:, which] @ coef, **close)
    assert isinstance(gram, FullGram)


def exact_rbf(X, gamma):
    X = X.astype(np.longdouble)
    return np.exp(-gamma * ((X[:, None] - X) ** 2).sum(axis=2)).astype(np.float64)


AWKWARD_ROWS = {
    "badly scaled columns": lambda rng: (np.round(rng.standard_normal((60, 4)), 1) * [1e7, 1.0, 1.0, 1e-3], 1.0),
    "far from zero": lambda rng: (rng.standard_normal((60, 3)) + 1e8, 0.5),
    "large gamma, near rows": lambda rng: (
        np.repeat(rng.standard_normal((20, 2)), 3, axis=0) + 1e-5 * rng.random((60, 2)),
        1e9,
    ),
    "one row far away": lambda rng: (np.vstack([rng.standard_normal((59, 3)), [[1e13, 0.0, 0.0]]]), 0.3),
    "squares that overflow": lambda rng: (rng.standard_normal((60, 2)) * 1e150, 1e20),
}


@pytest.mark.parametrize("name", AWKWARD_ROWS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_rbf_values_keep_their_digits(name, sparse, rng):
    X, gamma = AWKWARD_ROWS[name](rng)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = exact_rbf(X, gamma)
        if sparse:
            X = sp.csr_matrix(np.hstack([X, np.zeros((60, 100))]))
        kernel = Kernel("rbf", gamma=gamma)
        for values in (kernel(X, X), gram_matrix(X, kernel).whole().values, kernel(X, X[:7])):
            np.testing.assert_allclose(values, expected[:, : values.shape[1]], rtol=1e-13, atol=1e-15)


def test_scores_of_the_training_rows_give_the_objective(rng):
    X = np.round(rng.standard_normal((80, 3)), 1) * [1e7, 1.0, 1.0]
    y = np.where(rng.random(80) < 0.5, -1, 1)
    model = ODMClassifier(2**14, kernel="rbf", gamma=3.0, fit_intercept=False, tol=1e-6).fit(X, y)
    alpha = np.zeros(80)
    alpha[model.support_] = model.dual_coef_[0]
    scores = model.decision_function(X)
    value = ODM(2.0**14, 0.4, 0.2).value(alpha @ scores, y * scores, np.ones(80))
    assert value == pytest.approx(model.objective_, rel=1e-9)


def test_unsorted_sparse_rows_score_as_sorted_ones(rng):
    X = sp.random(60, 200, density=0.03, format="csr", random_state=0) * 100.0
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(X.indptr[:-1], X.indptr[1:])])
    unsorted = sp.csr_matrix((X.data[order], X.indices[order], X.indptr), shape=X.shape)
    kernel = Kernel("rbf", gamma=1.0)
    np.testing.assert_allclose(kernel(unsorted, X), kernel(X, X), rtol=1e-14)


def test_precomputed_values_are_not_copied(rng):
    values = rng.random((20, 20))
    values += values.T
    assert gram_matrix(values, Kernel("precomputed")).values is values
    biased = gram_matrix(values, Kernel("precomputed", bias=2.0))
    np.testing.assert_allclose(biased.whole().values, values + 2.0)
    np.testing.assert_allclose(biased.diagonal, values.diagonal() + 2.0)


def test_cache_evicts_the_columns_not_used_lately(rng):
    X, kernel = rng.random((60, 2)), Kernel("rbf")
    expected = kernel(X, X)
    gram = CachedGram(X, kernel, 20 * 8 * 60)
    for _ in range(50):
        which = rng.choice(60, rng.integers(1, 40), replace=False)
        coef = rng.standard_normal(len(which))
        gram.add_columns(which, coef, out := np.zeros(60))
        np.testing.assert_allclose(out, expected[:, which] @ coef, atol=1e-12)


@pytest.mark.parametrize("kernel", [Kernel("rbf", bias=1.0), Kernel("poly", coef0=1.0)], ids=["rbf", "poly"])
def test_memory_stays_below_the_limit(rng, kernel):
    X = rng.random((2000, 3))
    limit = gram_bytes(2000) // 8
    tracemalloc.start()
    try:
        gram = CachedGram(X, kernel, limit)
        gram.dot(rng.random(2000))
        for begin in range(0, 2000, 100):
            gram.add_columns(np.arange(begin, begin + 100), np.ones(100), np.zeros(2000))
        cached = tracemalloc.get_traced_memory()[1]
        del gram
        tracemalloc.reset_peak()
        gram_matrix(X, kernel).whole()
        whole = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cached <= limit + 10 * X.nbytes
    assert whole <= 1.3 * gram_bytes(2000)


def test_whole_matrix_is_made_once(rng):
    gram = gram_matrix(rng.random((30, 2)), Kernel("rbf"))
    assert gram.whole() is gram.whole()


def test_nystroem_with_all_rows_is_exact(rng):
    X, kernel = rng.random((80, 3)), Kernel("rbf", gamma=2.0, bias=1.0)
    factor = nystroem(X, kernel, 80, rng)
    expected = kernel(X, X)
    np.testing.assert_allclose(factor.features @ factor.features.T, expected, atol=1e-8)


@pytest.mark.parametrize("n_components", [1, 7, 40])
def test_nystroem_leaves_a_semidefinite_remainder(rng, n_components):
    X, kernel = rng.random((200, 3)), Kernel("rbf", gamma=2.0)
    factor = nystroem(X, kernel, n_components, rng)
    G = kernel(X, X)
    rest = G - factor.features @ factor.features.T
    assert factor.features.shape == (200, n_components)
    assert np.linalg.eigvalsh(rest)[0] > -1e-8
    np.testing.assert_allclose(rest[factor.pivots], 0.0, atol=1e-7)
    np.testing.assert_allclose(factor.remainder, np.trace(rest), atol=1e-8)
    w = rng.standard_normal(n_components)
    np.testing.assert_allclose(G @ factor.coefficients(w), factor.features @ w, atol=1e-5)


def test_pivots_stop_at_the_rank(rng):
    X = rng.random((50, 3))[rng.integers(0, 50, 120)]
    gram = gram_matrix(X, Kernel("linear"))
    for factor in (partial_cholesky(gram, 40, rng), cholesky_factor(gram)):
        assert factor.features.shape == (120, 3)
        np.testing.assert_allclose(factor.features @ factor.features.T, X @ X.T, atol=1e-10)


def test_complete_factor_gives_coefficients_of_its_pivots(rng):
    X, kernel = rng.random((60, 4)), Kernel("rbf", gamma=3.0)
    factor = cholesky_factor(gram_matrix(X, kernel))
    G, w = kernel(X, X), rng.standard_normal(factor.features.shape[1])
    np.testing.assert_allclose(G, factor.features @ factor.features.T, atol=1e-8)
    np.testing.assert_allclose(G @ factor.coefficients(w), factor.features @ w, atol=1e-4)


@pytest.mark.parametrize("n", [40, 700])
def test_negative_eigenvalues_are_seen_and_clipped(rng, n):
    X = rng.standard_normal((n, 4))
    bad = gram_matrix(X, Kernel("sigmoid", gamma=1.0, coef0=-1.0))
    good = gram_matrix(X, Kernel("rbf"))
    assert is_indefinite(bad, rng)
    assert not is_indefinite(good, rng)
    clipped = clip_spectrum(bad)
    values = np.linalg.eigvalsh(clipped.values)
    assert values[0] > -1e-9 * values[-1]
    before = np.linalg.eigvalsh(bad.columns(np.arange(n)))
    np.testing.assert_allclose(values, np.maximum(before, 0.0), atol=1e-9 * before[-1])


def test_indefinite_with_an_empty_diagonal(rng):
    exchange = FullGram(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert is_indefinite(exchange, rng)
    np.testing.assert_allclose(clip_spectrum(exchange).values, np.full((2, 2), 0.5))


@pytest.mark.parametrize("mean", [0.0, 1e7, 1e8])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_scale_does_not_suffer_from_a_large_mean(mean, form, monkeypatch):
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((50, 3)) + mean, rng.integers(1, 4, 50).astype(float)
    X[::7, 0] = mean
    expected = 1.0 / (3 * np.repeat(X - mean, weights.astype(int), axis=0).var())
    for entries in (2**20, 10):  # at once and in parts
        monkeypatch.setattr("margindist.kernels._ENTRIES", entries)
        assert resolve_gamma("scale", form(X), weights) == pytest.approx(expected, rel=1e-6)


def test_scale_of_entries_that_are_all_alike_is_one():
    for value in (0.0, 0.1, 1e8 / 3):
        assert resolve_gamma("scale", np.full((1000, 3), value), np.ones(1000)) == 1.0


@pytest.mark.filterwarnings(
    "ignore:.*negative eigenvalues:UserWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize(
    "estimator", [LDMClassifier, ODMClassifier, MSVMAvClassifier, KOMDClassifier, FMMClassifier, LSSVMClassifier]
)
def test_weight_two_is_the_row_twice_under_an_indefinite_kernel(estimator, rng):
    X = rng.standard_normal((60, 3))
    y, weights = X[:, 0] * X[:, 1] > 0.0, rng.integers(1, 3, 60)
    twice = np.repeat(np.arange(60), weights)
    model = estimator(kernel="sigmoid", gamma=0.5, coef0=-1.0, tol=1e-8)
    weighted = model.fit(X, y, sample_weight=weights).decision_function(X)
    np.testing.assert_allclose(model.fit(X[twice], y[twice]).decision_function(X), weighted, atol=1e-5)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_support_is_counted_per_class_as_svc_does(kernel):
    X, y = load_iris(return_X_y=True)
    weights = np.where(np.arange(150) % 7, 1.0, 0.0)  # rows that are absent are no support
    values = rbf_kernel(X, gamma=0.5) if kernel == "precomputed" else X
    ours = LDMClassifier(lambda1=0, lambda2=0, kernel=kernel, gamma=0.5).fit(values, y, weights)
    assert ours.n_support_.dtype == SVC().fit(X, y).n_support_.dtype and ours.n_support_.shape == (3,)
    np.testing.assert_array_equal(ours.n_support_, np.bincount(y[ours.support_], minlength=3))


def test_exponentials_are_as_exact_as_they_say():
    rng = np.random.default_rng(0)
    x = np.concatenate([-rng.uniform(0.0, 708.0, 20_000), -(10.0 ** rng.uniform(-20, 2, 20_000)), [0.0, -np.log(2.0)]])
    found = x.copy()
    exponentials(found, 0.0)
    expected = np.exp(x.astype(np.longdouble))
    assert np.abs(found / expected - 1.0).max() <= 4 * 2.0**-53
    for given, value in ((-750.0, 0.5), (-np.inf, 0.5), (3.0, 1.5), (0.0, 1.5)):
        exponentials(one := np.array([given]), 0.5)
        assert one[0] == value


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernel", SOME_KERNELS, ids=lambda kernel: str(kernel.name)[:8])
def test_any_number_of_threads_gives_the_same_bits(kernel, sparse, rng, monkeypatch):
    monkeypatch.setattr(gram_module, "_RANGE", 100)
    monkeypatch.setattr(gram_module, "_LONG_RANGE", 300)
    X = rng.standard_normal((700, 3)) * (rng.random((700, 3)) < 0.4) + [1e-3, 0.0, 0.0]
    X = sp.csr_matrix(X) if sparse else X
    V, which = rng.standard_normal((700, 2)), rng.permutation(700)[:300]
    found = []
    for n_jobs in (1, 2, 3):
        gram = CachedGram(X, kernel, gram_bytes(700), n_jobs)
        gram.add_columns(which, V[which, 0], out := np.zeros(700))
        gram.add_columns(which[:50], V[:50, 0], out)
        factor = nystroem(X, kernel, 20, np.random.default_rng(0), n_jobs)
        found.append([gram.columns(which), gram.block(which), gram.dot(V), out, factor.features, gram.whole().values])
    for other in found[1:]:
        for first, second in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(first, second)


def test_threads_of_kernels_and_of_others_do_not_multiply(monkeypatch):
    X, y = load_iris(return_X_y=True)
    asked = []
    make = gram_module.Pairs

    def noted(X, kernel, n_jobs):
        asked.append(n_jobs)
        return make(X, kernel, n_jobs)

    monkeypatch.setattr(gram_module, "Pairs", noted)
    model = LDMClassifier(kernel="rbf", solver="block", n_jobs=4)
    model.fit(X[:100], y[:100])
    assert asked == [4]
    clone(model).fit(X, y)  # one against the rest: four threads for three problems
    assert asked == [4, 1]
    Parallel(2, prefer="threads")(delayed(clone(model).fit)(X[:100], y[:100]) for _ in range(2))
    assert asked == [4, 1, 1, 1]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_width_in_units_of_the_mean_distance(sparse, rng):
    X = rng.standard_normal((40, 3))
    weights = rng.integers(1, 4, 40).astype(float)
    given = sp.csr_array(X) if sparse else X
    copies = np.repeat(X, weights.astype(int), axis=0)
    distance = np.mean([np.linalg.norm(a - b) for a in copies for b in copies])
    assert resolve_gamma("mean-distance", given, weights) == pytest.approx(0.5 / distance**2)
    assert resolve_gamma("0.25*mean-distance", given, weights) == pytest.approx(8.0 / distance**2)
    assert resolve_gamma("mean-distance", given[:1], weights[:1]) == 1.0


@pytest.mark.parametrize(
    "classifier",
    [FMMClassifier, KOMDClassifier, LDMClassifier, LSSVMClassifier, MAMClassifier, MSVMAvClassifier, ODMClassifier,
     PUMMAClassifier, SVRClassifier],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_kernel_classifier_takes_every_unit_of_gamma(classifier):
    X, y = load_iris(return_X_y=True)
    X, y = X[50::5], y[50::5]
    distance = np.mean(np.linalg.norm(X[:, None] - X, axis=2))
    for unit, number in (("5/d", 1.25), ("2*mean-distance", 0.125 / distance**2)):
        seeded = {"random_state": 0} if "random_state" in classifier._get_param_names() else {}
        named, plain = (classifier(kernel="rbf", gamma=gamma, **seeded).fit(X, y) for gamma in (unit, number))
        assert named.decision_function(X) == pytest.approx(plain.decision_function(X), rel=1e-6, abs=1e-9)
    with pytest.raises(ValueError, match="a string such as '5/d' or '2\\*mean-distance', got 'mean'"):
        classifier(kernel="rbf", gamma="mean").fit(X, y)


def test_widths_that_look_at_pairs_of_rows_need_all_rows():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="gamma='mean-distance' looks at all rows"):
        PUMMAClassifier(kernel="rbf", gamma="mean-distance").partial_fit(X[50:], y[50:], classes=[1, 2])
    with pytest.raises(ValueError, match="gamma='mean-distance' looks at pairs of rows"):
        LDMClassifier(kernel="rbf", gamma="mean-distance", n_components=9).fit(Partitions.from_arrays(X[50:], y[50:]))
