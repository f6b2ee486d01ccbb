import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from margindist import ECOCClassifier, LSSVMClassifier, MAMClassifier, SVRClassifier


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_svr_takes_sparse_kernel_values(iris):
    X, y = iris
    K = X @ X.T
    dense, sparse = (SVRClassifier(kernel="precomputed", tol=1e-6).fit(rows, y) for rows in (K, sp.csr_array(K)))
    np.testing.assert_array_equal(dense.dual_coef_, sparse.dual_coef_)


def test_svr_with_a_kernel_stops_at_its_limit():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5)) * np.exp(4.0 * rng.standard_normal((80, 5)))
    with pytest.warns(ConvergenceWarning, match="max_iter=8000"):
        model = SVRClassifier(C=1e3, kernel="poly", degree=1, gamma=1.0, max_iter=100).fit(X, rng.integers(0, 2, 80))
    assert model.n_iter_ == 8000


def test_svr_is_the_regression_on_the_labels(iris):
    X, y = iris
    X, y = X[50:], y[50:]
    signs = np.where(y == 2, 1.0, -1.0)
    linear = SVRClassifier(C=0.5, epsilon=0.2, random_state=0).fit(X, y)
    peer = LinearSVR(C=0.5, epsilon=0.2, tol=1e-10, max_iter=10000, random_state=0).fit(X, signs)
    np.testing.assert_allclose(linear.decision_function(X), peer.predict(X), atol=1e-6)
    kernel = SVRClassifier(C=0.5, epsilon=0.2, kernel="rbf", gamma=0.3).fit(X, y)
    peer = SVR(C=0.5, epsilon=0.2, kernel="rbf", gamma=0.3, tol=1e-10).fit(X, signs)
    np.testing.assert_allclose(kernel.decision_function(X), peer.predict(X), atol=1e-6)
    np.testing.assert_array_equal(kernel.support_, peer.support_)


def test_svr_takes_several_classes_one_against_the_rest(iris):
    X, y = iris
    model = SVRClassifier(kernel="poly", degree=2, coef0=1.0, n_jobs=2).fit(X, y)
    for k in range(3):
        peer = SVR(kernel="poly", degree=2, coef0=1.0, tol=1e-10).fit(X, np.where(y == k, 1.0, -1.0))
        np.testing.assert_allclose(model.decision_function(X)[:, k], peer.predict(X), atol=1e-5)


def test_svr_on_a_given_kernel_matrix(iris):
    X, y = iris
    weights = np.arange(len(y)) % 3
    part = weights > 0
    K = X @ X.T
    full = SVRClassifier(kernel="precomputed").fit(K, y, weights)
    rest = SVRClassifier(kernel="precomputed").fit(K[part][:, part], y[part], weights[part])
    np.testing.assert_allclose(full.decision_function(K), rest.decision_function(K[:, part]), atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 6])
def test_code_book_has_every_split_once(n_classes):
    X, y = make_blobs(60, centers=n_classes, random_state=0)
    book = ECOCClassifier(MAMClassifier()).fit(X, y).code_book_
    assert book.shape == (n_classes, 2 ** (n_classes - 1) - 1)
    assert {tuple(column * column[-1]) for column in book.T} == {tuple(column) for column in book.T}
    assert len({tuple(column) for column in book.T}) == book.shape[1]
    assert (np.abs(book.sum(axis=0)) < n_classes).all()
    differences = (book[:, None, :] != book[None, :, :]).sum(axis=2)
    assert (differences[~np.eye(n_classes, dtype=bool)] == 2 ** (n_classes - 2)).all()


def test_ecoc_corrects_wrong_classifiers():
    X, y = make_blobs(80, centers=5, cluster_std=0.05, random_state=1)
    model = ECOCClassifier(SVC()).fit(X, y)
    right = model.predict(X)
    np.testing.assert_array_equal(right, y)

    class Wrong:
        def __init__(self, inner):
            self.inner = inner

        def decision_function(self, X):
            return -self.inner.decision_function(X)

    for broken in (0, 4, 11):  # 2^(5-3) - 1 = 3 of 15 may be wrong
        model.estimators_[broken] = Wrong(model.estimators_[broken])
    np.testing.assert_array_equal(model.predict(X), y)


def test_ecoc_goes_to_the_nearest_code_word(iris):
    X, y = iris
    model = ECOCClassifier(LinearSVC(random_state=0)).fit(X, y)
    bits = np.column_stack([one.predict(X) for one in model.estimators_])
    distances = (bits[:, None, :] != model.code_book_[None]).sum(axis=2)
    chosen = distances[np.arange(len(y)), model.predict(X)]
    np.testing.assert_array_equal(chosen, distances.min(axis=1))


def test_ecoc_by_plain_hamming_distance(iris):
    X, y = load_digits(n_class=5, return_X_y=True)
    model = ECOCClassifier(LSSVMClassifier(C=1e-3), ties="first").fit(X, y)
    sides = np.column_stack([one.predict(X) for one in model.estimators_])
    distances = (sides[:, None, :] != model.code_book_).sum(axis=2)
    np.testing.assert_array_equal(model.predict(X), distances.argmin(axis=1))
    assert (np.sort(distances, axis=1)[:, 0] == np.sort(distances, axis=1)[:, 1]).any()
    with pytest.raises(ValueError, match="ties must be"):
        ECOCClassifier(LSSVMClassifier(), ties="nearest").fit(*iris)


def test_ecoc_of_two_classes_is_its_estimator(iris):
    X, y = iris[0][50:], iris[1][50:]
    plain = LSSVMClassifier().fit(X, y)
    np.testing.assert_allclose(
        ECOCClassifier(LSSVMClassifier()).fit(X, y).decision_function(X), plain.decision_function(X)
    )


@pytest.mark.parametrize("inner", [GaussianNB(), KNeighborsClassifier(3)])
def test_ecoc_around_classifiers_without_margins(iris, inner):
    assert ECOCClassifier(inner).fit(*iris).score(*iris) > 0.9


def test_ecoc_in_parallel_is_the_same():
    X, y = load_digits(n_class=7, return_X_y=True)
    X, y = X[::4] / 16, y[::4]
    alone = ECOCClassifier(LSSVMClassifier()).fit(X, y)
    with parallel_config(backend="threading"):
        together = ECOCClassifier(LSSVMClassifier(), n_jobs=2).fit(X, y)
    assert len(together.estimators_) == 63
    np.testing.assert_allclose(together.decision_function(X), alone.decision_function(X), atol=1e-8)
    assert together.score(X, y) > 0.95


def test_ecoc_on_a_given_kernel_matrix(iris):
    X, y = iris
    weights = np.arange(len(y)) % 3
    given = ECOCClassifier(LSSVMClassifier(kernel="precomputed")).fit(X @ X.T, y, weights)
    plain = ECOCClassifier(LSSVMClassifier()).fit(X, y, weights)
    np.testing.assert_allclose(given.decision_function(X @ X.T), plain.decision_function(X), atol=1e-6)


def test_ecoc_messages(iris):
    X, y = make_blobs(64, centers=16, random_state=0)
    with pytest.raises(ValueError, match="16 classes need 32,767 classifiers; at most 15 classes"):
        ECOCClassifier(MAMClassifier()).fit(X, y)
    with pytest.raises(ValueError, match="estimator must be a classifier, got SVR"):
        ECOCClassifier(SVR()).fit(*iris)
    with pytest.raises(ValueError, match="KNeighborsClassifier takes no sample_weight"):
        ECOCClassifier(KNeighborsClassifier()).fit(*iris, np.ones(150))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_sparse_rows_may_have_wide_indices(kernel):
    X, y = load_iris(return_X_y=True)
    wide = sp.csr_matrix(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    expected, found = (
        SVRClassifier(kernel=kernel, tol=1e-4, random_state=0).fit(rows, y) for rows in (sp.csr_matrix(X), wide)
    )
    np.testing.assert_allclose(found.decision_function(wide), expected.decision_function(X))


def test_kernel_values_too_large_for_the_regression_are_refused_in_one_sentence(rng):
    X = 1e13 * rng.normal(size=(6, 3))
    with pytest.raises(ValueError, match=r"SVRClassifier: expected kernel values .* scale the features"):
        SVRClassifier(C=1e9, kernel="poly", degree=5, gamma=1.0, coef0=1.0).fit(X, [0, 1, 0, 1, 0, 1])


def test_linear_svr_has_the_same_bits_for_any_number_of_jobs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 30))
    y = rng.integers(0, 4, 2000)
    model = SVRClassifier(random_state=0, tol=1e-2)
    expected = model.fit(X, y).coef_
    for _ in range(3):
        assert np.array_equal(model.set_params(n_jobs=4).fit(X, y).coef_, expected)
