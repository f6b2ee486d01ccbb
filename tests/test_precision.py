"""float32 rows are a matter of storage: every sum is formed in float64, and fits come out the same."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from margindist import (
    ALMAClassifier,
    FMMClassifier,
    KOMDClassifier,
    LDMClassifier,
    LSSVMClassifier,
    MAMClassifier,
    MDOClassifier,
    MICRAClassifier,
    MSVMAvClassifier,
    ODMClassifier,
    PUMMAClassifier,
    ROMMAClassifier,
    SVRClassifier,
)
from margindist.spaces.rows import as_rows, gram_diagonal, inner_products

CLASSIFIERS = [
    ALMAClassifier(random_state=0),
    FMMClassifier(max_iter=2000),
    KOMDClassifier(0.5),
    LDMClassifier(100, 1, 1, solver="interior-point", tol=1e-9),
    LDMClassifier(1, 1, 1, solver="coordinate-descent", tol=1e-7, max_iter=20_000, random_state=0),
    LDMClassifier(1, 1, 1, solver="block", tol=1e-9, random_state=0),
    LDMClassifier(1, 1, 1, solver="dcd", tol=1e-7, random_state=0),
    LSSVMClassifier(100.0),
    LSSVMClassifier(1.0, space="empirical"),
    MAMClassifier(bias="optimal"),
    MDOClassifier(random_state=0),
    MICRAClassifier(random_state=0),
    MSVMAvClassifier(),
    ODMClassifier(2**20, tol=1e-9),
    ODMClassifier(2**10, solver="newton", tol=1e-9),
    ODMClassifier(16, solver="coordinate-descent", tol=1e-9, max_iter=20_000, random_state=0),
    PUMMAClassifier(soft_margin=1.0, random_state=0),
    ROMMAClassifier(soft_margin=1.0, random_state=0),
    SVRClassifier(random_state=0),
]
THREE_CLASSES = [ODMClassifier(2**12, tol=1e-8), ODMClassifier(4, solver="coordinate-descent", random_state=0)]


def name_of(classifier):
    return "-".join([type(classifier).__name__, *(str(getattr(classifier, name, "")) for name in ("solver", "space"))])


def single_precision_rows(kind, rng, n_classes=2):
    """Return float32 rows, in columns of different size where they are dense, and labels."""
    n, d = {"wide": (30, 300), "tall": (150, 5), "sparse": (50, 200), "kernel": (60, 4)}[kind]
    X = rng.standard_normal((n, d))
    y = np.digitize(X[:, 0] + X[:, 1] + 0.5 * rng.standard_normal(n), [0.0] if n_classes == 2 else [-0.5, 0.5])
    X = sp.csr_matrix(np.where(rng.random((n, d)) < 0.2, X, 0.0)) if kind == "sparse" else X * np.linspace(1, 3, d)
    return X.astype(np.float32), y


def assert_same_fit(classifier, X, y):
    X64 = X.astype(np.float64)
    single, double = clone(classifier).fit(X, y), clone(classifier).fit(X64, y)
    if hasattr(double, "objective_"):
        np.testing.assert_allclose(single.objective_, double.objective_, rtol=1e-8)
    expected = double.decision_function(X64)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(single.decision_function(X64), expected, atol=1e-6 * largest)
    np.testing.assert_allclose(double.decision_function(X), expected, atol=1e-12 * largest)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["wide", "tall", "sparse", "kernel"])
@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=name_of)
def test_float32_rows_give_the_fit_of_float64_rows(classifier, kind, rng):
    if kind == "kernel":
        if "kernel" not in classifier.get_params():
            pytest.skip("takes no kernels")
        classifier = clone(classifier).set_params(kernel="rbf")
    assert_same_fit(classifier, *single_precision_rows(kind, rng))


@pytest.mark.parametrize("kind", ["wide", "tall", "sparse", "kernel"])
@pytest.mark.parametrize("classifier", THREE_CLASSES, ids=name_of)
def test_float32_rows_of_three_classes(classifier, kind, rng):
    kernel = "rbf" if kind == "kernel" else "linear"
    assert_same_fit(clone(classifier).set_params(kernel=kernel), *single_precision_rows(kind, rng, 3))


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid", "precomputed"])
def test_float32_kernel_values(kernel, rng):
    X, y = single_precision_rows("kernel", rng)
    if kernel == "precomputed":
        X = (X @ X.T).astype(np.float32)
    assert_same_fit(LSSVMClassifier(0.1, kernel=kernel, gamma=0.05), X, y)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_products_of_float32_rows_are_summed_in_float64(storage, rng):
    X = rng.standard_normal((20, 70_000)).astype(np.float32)
    rows, everything, double = as_rows(storage(X), True), np.arange(20), X.astype(np.float64)
    expected = double @ double.T + 1.0
    np.testing.assert_allclose(inner_products(rows, everything, everything), expected, rtol=0, atol=1e-12 * 70_000)
    weights = rng.random(20)
    np.testing.assert_allclose(
        gram_diagonal(rows, everything, weights), np.append(weights @ double**2, weights.sum()), rtol=1e-12
    )


def test_many_columns_at_a_high_price(rng):
    X = rng.standard_normal((40, 1500)).astype(np.float32) * 10.0
    y = rng.integers(0, 2, 40)
    found = [ODMClassifier(2**20, tol=1e-6).fit(rows, y) for rows in (X, X.astype(np.float64))]
    assert found[0].objective_ == pytest.approx(found[1].objective_, rel=1e-9)
