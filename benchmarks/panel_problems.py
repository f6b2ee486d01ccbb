"""The problems of the panel: fixed data, fixed parameters, a name each.

Sizes stand on both sides of every place where the library changes its method today, or once did: a panel that knows
only one side of a threshold says nothing about it. Data are generated from the names of what they are made of, so
that a problem which is added changes no other. With another seed than 0 all data are drawn anew and prices move a
little: a held-out variation of the same panel.
"""

import functools
import os
import zlib
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

LAMBDAS = (0.0, 0.1, 1.0, 10.0)
PRICES = (0.01, 1.0, 100.0, 1e4)


class Problem(NamedTuple):
    """One fit of one public class."""

    name: str
    group: str  # problems whose times are compared together
    estimator: str
    data: tuple  # the maker's name and its arguments
    parameters: dict[str, Any]
    weights: str = ""  # "" or the name of a way to draw them
    quick: bool = False  # part of the short panel


# ---------------------------------------------------------------------- data


def _generator(seed, key):
    return np.random.default_rng([seed, zlib.crc32(repr(key).encode())])


def _signs(rng, scores, noise):
    scores = scores - np.median(scores)
    return np.where(scores + noise * scores.std() * rng.standard_normal(len(scores)) > 0, 1, -1)


def dense(rng, m, d, noise=0.3):
    """Rows in the unit cube, columns of very different use, labels with noise."""
    X = rng.random((m, d))
    return X, _signs(rng, (X - 0.5) @ (rng.standard_normal(d) * rng.random(d) ** 3), noise)


def single(rng, m, d):
    """The same in float32."""
    X, y = dense(rng, m, d)
    return X.astype(np.float32), y


def zeros(rng, m, d, share):
    """Dense rows most values of which are zero."""
    X, y = dense(rng, m, d, 0.0)
    X[rng.random((m, d)) < share] = 0.0
    return X, np.where(rng.random(m) < 0.1, -y, y)


def separable(rng, m, d):
    """Two clouds with a gap between them."""
    X = rng.standard_normal((m, d))
    direction = rng.standard_normal(d) / np.sqrt(d)
    y = np.where(X @ direction > 0, 1, -1)
    return X + 0.2 * y[:, None] * direction / (direction @ direction), y


def scales(rng, m, d):
    """Columns whose units differ by eight powers of ten."""
    X, y = dense(rng, m, d)
    return X * 10.0 ** rng.uniform(-4, 4, d), y


def sparse(rng, m, d, stored):
    """CSR rows: some columns are common, most are rare."""
    columns = (d * rng.random(m * stored) ** 2).astype(np.int32)
    X = sp.csr_matrix((rng.random(m * stored), columns, np.arange(0, m * stored + 1, stored)), shape=(m, d))
    X.sum_duplicates()
    return X, _signs(rng, X @ rng.standard_normal(d), 0.3)


def text(rng, m, d, stored):
    """CSR rows of length one with columns as frequent as words."""
    columns = np.minimum((d ** rng.random(m * stored)).astype(np.int32), d) - 1
    X = sp.csr_matrix((np.ones(m * stored), columns, np.arange(0, m * stored + 1, stored)), shape=(m, d))
    X.sum_duplicates()
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sp.csr_matrix(sp.diags(1 / lengths) @ X)
    return X, _signs(rng, X @ rng.standard_normal(d), 0.3)


def large_values(rng, m, d, stored, largest):
    """Wide CSR rows with values up to ``largest``, labels at random."""
    columns = rng.integers(0, d, m * stored).astype(np.int32)
    values = largest * rng.standard_normal(m * stored)
    X = sp.csr_matrix((values, columns, np.arange(0, m * stored + 1, stored)), shape=(m, d))
    X.sum_duplicates()
    return X, np.where(rng.random(m) < 0.5, 1, -1)


def two_rows(rng, largest):
    """Two rows, far apart and a little off the axis."""
    return np.array([[largest, 1.0 / 3.0], [-largest, 0.1]]), np.array([1, -1])


def clusters(rng, m, d, classes=2, noise=0.05):
    """Forty clouds in the unit cube, each of a class at random: a kernel's problem."""
    centres = rng.random((40, d))
    label = np.append(np.arange(classes), rng.integers(0, classes, 40 - classes))
    nearest = rng.integers(0, 40, m)
    X = np.clip(centres[nearest] + 0.15 * rng.standard_normal((m, d)), 0, 1)
    y = np.where(rng.random(m) < noise, rng.integers(0, classes, m), label[nearest])
    y[:classes] = np.arange(classes)
    return X, (2 * y - 1 if classes == 2 else y)


def gram(rng, m, d):
    """The linear kernel's matrix of dense rows."""
    X, y = dense(rng, m, d)
    return X @ X.T, y


def indefinite(rng, m, d):
    """A symmetric matrix with negative eigenvalues."""
    X, y = dense(rng, m, d)
    return np.tanh(X @ X.T / d - 0.5), y


def classes(rng, m, d, k):
    """Rows of several overlapping classes."""
    y = rng.integers(0, k, m)
    y[:k] = np.arange(k)
    return rng.standard_normal((m, d)) + 1.5 * rng.standard_normal((k, d))[y], y


def sparse_classes(rng, m, d, stored, k):
    """Sparse rows of several classes, by a linear rule."""
    X, _ = sparse(rng, m, d, stored)
    scores = X @ rng.standard_normal(d)
    return X, np.searchsorted(np.quantile(scores, np.arange(1, k) / k), scores)


def bundled(rng, name):
    """A data set that scikit-learn brings along, scaled to [0, 1]."""
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    top = X.max(axis=0) - X.min(axis=0)
    return (X - X.min(axis=0)) / np.where(top > 0, top, 1), y


def real(rng, name, rows=None):
    """A data set in the folder that MARGINDIST_DATA names, or rows drawn from it."""
    from benchmarks._measure import load

    X, y = load(name)
    if rows is not None:
        kept = np.sort(rng.permutation(len(y))[:rows])
        X, y = X[kept], y[kept]
    return X, y.astype(int)


MAKERS = {
    make.__name__: make
    for make in (
        dense, single, zeros, separable, scales, sparse, text, large_values, two_rows, clusters, gram, indefinite,
        classes, sparse_classes, bundled, real,
    )
}  # fmt: skip


@functools.lru_cache(maxsize=2)
def rows_of(data, seed):
    """Return X and y of a problem's data."""
    maker, *arguments = data
    return MAKERS[maker](_generator(seed, data), *arguments)


def weights_of(problem, m, seed):
    """Return the sample weights of a problem, or None."""
    rng = _generator(seed, (problem.weights, m))
    if problem.weights == "counts":
        return rng.integers(0, 4, m).astype(float)
    if problem.weights == "six decades":
        return 10.0 ** rng.uniform(-3, 3, m)
    return None


# ---------------------------------------------------------------------- the list


def problems(seed=0):
    """Return all problems, those with the same data next to each other."""
    found = [
        *_tiny(),
        *_ldm_rows(),
        *_ldm_large(),
        *_ldm_hard(),
        *_ldm_kernel(),
        *_several_classes(),
        *_odm(),
        *_least_squares(),
        *_others(),
        *_online(),
        *_searches(),
        *_once_broken(),
        *_real(),
    ]
    names = [problem.name for problem in found]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"The names of problems must differ, got twice: {', '.join(sorted(repeated))}.")
    return [_varied(problem, seed) for problem in found] if seed else found


def is_there(problem):
    """Tell whether the data of a problem can be had on this machine."""
    if problem.data[0] != "real":
        return True
    folder = os.environ.get("MARGINDIST_DATA")
    return bool(folder) and os.path.exists(os.path.join(folder, problem.data[1].partition(":")[0] + ".npz"))


def _varied(problem, seed):
    """Return the problem with prices a little off."""
    rng = _generator(seed, problem.name)
    parameters = dict(problem.parameters)
    for price in ("C", "lambda1", "lambda2", "lam", "gamma"):
        if isinstance(parameters.get(price), float) and np.isfinite(parameters[price]):
            parameters[price] *= 2.0 ** rng.uniform(-1, 1)
    return problem._replace(parameters=parameters)


def _shape(data):
    maker, *arguments = data
    sizes = "x".join(str(argument) for argument in arguments)
    return f"{maker} {sizes}" if sizes else maker


def _say(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


def _make(group, estimator, data, weights="", quick=False, **parameters):
    told = [f"{key}={_say(value)}" for key, value in parameters.items() if key not in ("random_state", "lambda_scale")]
    words = [estimator.replace("Classifier", ""), _shape(data), *told, *([f"weights {weights}"] if weights else [])]
    if "random_state" not in parameters and estimator.startswith(
        ("LDM", "ODM", "MDO", "PUMMA", "ROMMA", "ALMA", "MIC")
    ):
        parameters["random_state"] = 0
    return Problem(" ".join(words), group, estimator, data, parameters, weights, quick)


def _ldm(group, data, C, margin_terms, weights="", quick=False, **more):
    terms = {"C": C, "lambda1": margin_terms, "lambda2": margin_terms}
    if np.isfinite(C) and "lambda_scale" not in more:
        terms["lambda_scale"] = "relative"
    return _make(group, "LDMClassifier", data, weights, quick, **terms, **more)


def _tiny():
    for data in (("dense", 6, 2), ("dense", 12, 40), ("clusters", 30, 3)):
        for C, margin_terms in ((1.0, 0.0), (100.0, 1.0), (1e4, 0.1)):
            for fit_intercept in (True, False):
                yield _ldm("tiny", data, C, margin_terms, quick=True, fit_intercept=fit_intercept)
            yield _ldm("tiny", data, C, margin_terms, quick=True, kernel="rbf", gamma=1.0)
        for lam in (1.0, 2.0**10, 2.0**20):
            yield _make("tiny", "ODMClassifier", data, quick=True, lam=lam)
        yield _make("tiny", "LSSVMClassifier", data, quick=True, C=10.0)
        yield _make("tiny", "KOMDClassifier", data, quick=True, lam=0.1)
        yield _make("tiny", "MSVMAvClassifier", data, quick=True)


def _ldm_rows():
    shapes = (
        ("dense", 990, 23), ("dense", 1100, 26),  # rows from which a working set pays, columns summed in registers
        ("dense", 3000, 50), ("dense", 8000, 30),  # below and above the values that are worth passes
        ("dense", 400, 600), ("dense", 1500, 290),
        ("dense", 1000, 990), ("dense", 1000, 1010),  # on both sides of what is few columns
        ("zeros", 9000, 120, 0.8),
        ("sparse", 6000, 300, 12), ("sparse", 3000, 1100, 40), ("sparse", 900, 6000, 60), ("text", 4000, 20000, 50),
    )  # fmt: skip
    for data in shapes:
        kind = "ldm sparse" if data[0] in ("sparse", "text") else "ldm dense"
        terms = ((0.01, 0.0), (1.0, 0.0), (100.0, 0.0), (1e4, 0.0), (0.01, 1.0), (1.0, 0.1), (1.0, 10.0), (100.0, 1.0))
        for C, margin_terms in terms:
            group = f"{kind}, margin terms" if margin_terms else kind
            yield _ldm(group, data, C, margin_terms, quick=data[1] <= 1100 and data[2] <= 30)
    for data in (("dense", 3000, 50), ("sparse", 6000, 300, 12)):
        yield _ldm("ldm weights", data, 1.0, 0.0, fit_intercept=False)
        yield _ldm("ldm weights", data, 1.0, 0.1, fit_intercept=False)
        for weights in ("counts", "six decades"):
            for C, margin_terms in ((1.0, 0.0), (1.0, 0.1), (100.0, 0.0), (100.0, 1.0)):
                yield _ldm("ldm weights", data, C, margin_terms, weights)
    for data in (("scales", 800, 12), ("single", 4000, 60)):
        for C, margin_terms in ((1.0, 0.0), (1.0, 0.1), (100.0, 0.0)):
            yield _ldm("ldm dense", data, C, margin_terms, quick=True)


def _ldm_large():
    """From where a first guess comes from a sample, rows are copied, and threads have something to do."""
    shapes = (
        ("dense", 19000, 20), ("dense", 21000, 20), ("dense", 20000, 130), ("dense", 120000, 10), ("dense", 500000, 5),
        ("dense", 12000, 1100), ("sparse", 30000, 300, 12), ("sparse", 200000, 100, 5), ("text", 20000, 50000, 40),
    )  # fmt: skip
    for data in shapes:
        for C, margin_terms in ((0.01, 0.0), (1.0, 0.0), (1.0, 0.1), (100.0, 1.0)):
            if data[1] * data[2] > 10**7 and (C, margin_terms) in ((0.01, 0.0), (100.0, 1.0)):
                continue
            yield _ldm("ldm large", data, C, margin_terms)


def _ldm_hard():
    for data in (("separable", 60, 5), ("separable", 2000, 20), ("separable", 300, 900), ("text", 200, 3000, 30)):
        for lambdas in ((0.0, 0.0), (10.0, 0.0), (1.0, 100.0)):
            yield _make(
                "ldm hard", "LDMClassifier", data, C=float("inf"), lambda1=lambdas[0], lambda2=lambdas[1],
                quick=data[1] <= 300,
            )  # fmt: skip
    for m in (440, 460, 1500):
        data = ("clusters", m, 4, 2, 0.0)
        for lambda1 in (0.0, 10.0):
            yield _make(
                "ldm hard", "LDMClassifier", data, C=float("inf"), lambda1=lambda1, lambda2=0.0, kernel="rbf", gamma=8.0
            )


def _ldm_kernel():
    for m in (120, 140, 290, 310, 1000, 1050, 1900, 2100, 3000):
        for C in (0.01, 1.0, 100.0):
            for margin_terms in LAMBDAS:
                if margin_terms in (0.1, 10.0) and (m > 310 or C == 0.01):
                    continue
                group = "ldm kernel, margin terms" if margin_terms else "ldm kernel"
                quick = m <= 310
                yield _ldm(group, ("clusters", m, 8), C, margin_terms, quick=quick, kernel="rbf", gamma=2.0)
    for m in (300, 1200, 2500):
        for margin_terms in (0.0, 1.0):
            group = "ldm kernel, margin terms" if margin_terms else "ldm kernel"
            yield _ldm(group, ("clusters", m, 6), 1.0, margin_terms, kernel="poly", gamma=1.0, coef0=1.0, degree=3)
            yield _ldm(group, ("gram", m, 40), 1.0, margin_terms, kernel="precomputed")
    for m in (490, 510):
        yield _ldm("ldm kernel", ("indefinite", m, 10), 1.0, 0.0, kernel="precomputed")
    for C in (1.0, 1e4):
        yield _ldm("ldm kernel", ("clusters", 1500, 8), C, 0.0, "six decades", kernel="rbf", gamma=2.0)
        yield _ldm("ldm kernel", ("clusters", 6000, 8), C, 0.0, kernel="rbf", gamma=2.0)
        yield _ldm("ldm kernel", ("clusters", 6000, 8), C, 0.0, kernel="rbf", gamma=50.0)
    yield _ldm("ldm kernel, margin terms", ("clusters", 1500, 8), 1.0, 0.1, "six decades", kernel="rbf", gamma=2.0)
    yield _ldm("ldm kernel", ("clusters", 20000, 8), 1.0, 0.0, kernel="rbf", gamma=2.0)
    for margin_terms in (0.0, 1.0):
        more = {"kernel": "rbf", "gamma": 2.0, "n_components": 200}
        yield _ldm("ldm kernel, components", ("clusters", 10000, 8), 1.0, margin_terms, **more)
    yield _ldm("ldm kernel, components", ("clusters", 2500, 8), 1.0, 1.0, kernel="rbf", gamma=0.2, n_components="auto")


def _several_classes():
    for C, margin_terms in ((1.0, 0.0), (1.0, 0.1), (100.0, 1.0)):
        yield _ldm("ldm classes", ("classes", 2000, 20, 5), C, margin_terms)
        yield _ldm("ldm classes", ("bundled", "digits"), C, margin_terms)
        yield _ldm("ldm classes", ("bundled", "iris"), C, margin_terms, quick=True, kernel="rbf", gamma=2.0)
    yield _ldm("ldm classes", ("sparse_classes", 3000, 2000, 30, 20), 1.0, 0.0)
    yield _ldm("ldm classes", ("bundled", "digits"), 1.0, 0.0, kernel="rbf", gamma=0.1)


def _odm():
    shapes = (
        ("dense", 300, 95), ("dense", 300, 105),  # columns whose Newton step takes no longer than a pass
        ("dense", 5000, 30), ("dense", 600, 1900), ("dense", 600, 2100), ("dense", 30000, 60),
        ("sparse", 6000, 300, 12), ("sparse", 3000, 1900, 40), ("sparse", 3000, 2200, 40), ("sparse", 1500, 7000, 40),
        ("text", 4000, 20000, 50),
    )  # fmt: skip
    for data in shapes:
        group = "odm sparse" if data[0] in ("sparse", "text") else "odm dense"
        for lam in (1.0, 2.0**8, 2.0**14, 2.0**20):
            yield _make(group, "ODMClassifier", data, lam=lam, quick=data[1] == 300)
    for weights in ("counts", "six decades"):
        for lam in (2.0**8, 2.0**20):
            yield _make("odm dense", "ODMClassifier", ("dense", 5000, 30), weights, lam=lam, mu=0.2, theta=0.5)
    yield _make("odm dense", "ODMClassifier", ("dense", 5000, 30), lam=2.0**8, theta=0.99, fit_intercept=False)
    yield _make("odm dense", "ODMClassifier", ("scales", 800, 12), lam=2.0**8)
    for m in (290, 310, 1500, 2500):
        for lam in (1.0, 2.0**8, 2.0**20):
            yield _make("odm kernel", "ODMClassifier", ("clusters", m, 8), lam=lam, kernel="rbf", gamma=2.0)
    yield _make("odm kernel", "ODMClassifier", ("gram", 1200, 40), lam=2.0**8, kernel="precomputed")
    more = {"kernel": "rbf", "gamma": 2.0, "n_components": 200}
    yield _make("odm kernel", "ODMClassifier", ("clusters", 10000, 8), lam=2.0**8, **more)
    joint = (
        (("bundled", "iris"), (1.0, 2.0**8, 2.0**20)),
        (("bundled", "digits"), (2.0**8, 2.0**14)),  # 650 columns times classes: beside 600
        (("classes", 2000, 100, 5), (2.0**8,)), (("classes", 1900, 130, 5), (2.0**8,)),
        (("classes", 2100, 300, 21), (2.0**8,)), (("classes", 5000, 20, 8), (1.0, 2.0**14)),
        (("sparse_classes", 3000, 2000, 30, 20), (2.0**8, 2.0**14)),
    )  # fmt: skip
    for data, prices in joint:
        for lam in prices:
            yield _make("odm classes", "ODMClassifier", data, lam=lam, quick=data == ("bundled", "iris"))
    yield _make("odm classes", "ODMClassifier", ("classes", 5000, 20, 8), lam=2.0**8, multi_class="ovr")
    yield _make("odm classes", "ODMClassifier", ("classes", 5000, 20, 8), lam=2.0**8, outer="frozen")
    yield _make("odm classes", "ODMClassifier", ("bundled", "iris"), lam=2.0**8, kernel="rbf", gamma=2.0, quick=True)
    yield _make("odm classes", "ODMClassifier", ("clusters", 1200, 8, 6), lam=2.0**8, kernel="rbf", gamma=2.0)


def _least_squares():
    for data in (("dense", 4000, 50), ("dense", 300, 2000), ("dense", 100000, 20), ("sparse", 6000, 4000, 30),
                 ("sparse", 5500, 5500, 30), ("text", 4000, 20000, 50), ("scales", 800, 12)):  # fmt: skip
        for C in (0.01, 1.0, 1e4):
            yield _make("lssvm", "LSSVMClassifier", data, C=C, quick=data[1] == 300)
    yield _make("lssvm", "LSSVMClassifier", ("dense", 4000, 50), "six decades", C=1.0)
    yield _make("lssvm", "LSSVMClassifier", ("bundled", "digits"), C=1.0)
    for m in (200, 1500, 4000):
        for C in (1.0, 1e4):
            yield _make("lssvm kernel", "LSSVMClassifier", ("clusters", m, 8), C=C, kernel="rbf", gamma=2.0)
    for space in ("dual", "empirical"):
        more = {"kernel": "rbf", "gamma": 2.0, "space": space}
        yield _make("lssvm kernel", "LSSVMClassifier", ("clusters", 500, 8), "counts", C=10.0, **more)
    yield _make("lssvm kernel", "LSSVMClassifier", ("gram", 1200, 40), C=1.0, kernel="precomputed")


def _others():
    for data in (("dense", 200, 10), ("dense", 2000, 30), ("text", 300, 3000, 30)):
        for lam in (0.0, 0.1, 10.0):
            yield _make("komd", "KOMDClassifier", data, lam=lam, quick=data[1] <= 300)
    for lam in (0.01, 1.0):
        yield _make("komd", "KOMDClassifier", ("clusters", 800, 8), lam=lam, kernel="rbf", gamma=2.0)
    yield _make("komd", "KOMDClassifier", ("bundled", "iris"), lam=0.1, quick=True)
    for data in (("separable", 60, 5), ("separable", 2000, 20), ("text", 200, 3000, 30)):
        yield _make("fmm", "FMMClassifier", data, quick=data[1] <= 200)
    yield _make("fmm", "FMMClassifier", ("clusters", 400, 4, 2, 0.0), kernel="rbf", gamma=8.0)
    for data in (("dense", 5000, 30), ("text", 4000, 20000, 50), ("bundled", "digits")):
        yield _make("closed forms", "MAMClassifier", data)
    yield _make("closed forms", "MAMClassifier", ("dense", 5000, 30), bias="mean")
    yield _make("closed forms", "MAMClassifier", ("clusters", 1500, 8), kernel="rbf", gamma=2.0)
    for data in (("dense", 300, 10), ("dense", 5000, 30), ("dense", 200, 1500), ("sparse", 3000, 1900, 40),
                 ("bundled", "digits")):  # fmt: skip
        for alpha, beta in ((64.0, 0.25), (0.01, 0.01)):
            yield _make("msvmav", "MSVMAvClassifier", data, alpha=alpha, beta=beta, quick=data[1] == 300)
    for m in (300, 1500):
        yield _make("msvmav", "MSVMAvClassifier", ("clusters", m, 8), kernel="rbf", gamma=2.0)
    for data in (("dense", 300, 10), ("dense", 5000, 30), ("sparse", 3000, 1900, 40), ("bundled", "iris")):
        yield _make("mdo", "MDOClassifier", data, quick=data[1] == 300)
    yield _make("reductions", "SVRClassifier", ("bundled", "iris"), C=1.0)
    yield _make("reductions", "SVRClassifier", ("clusters", 800, 8), C=1.0, kernel="rbf", gamma=2.0)
    yield _make("reductions", "ECOCClassifier", ("bundled", "iris"))


def _online():
    for estimator in ("PUMMAClassifier", "ROMMAClassifier", "ALMAClassifier", "MICRAClassifier"):
        yield _make("online", estimator, ("separable", 60, 5), quick=True)
        yield _make("online", estimator, ("separable", 2000, 20))
        yield _make("online", estimator, ("text", 200, 3000, 30))
        yield _make("online", estimator, ("dense", 5000, 30), soft_margin=1.0, max_iter=20)
        yield _make("online", estimator, ("bundled", "iris"), max_iter=20)
        for m in (500, 530):
            data = ("clusters", m, 4, 2, 0.0)
            yield _make("online kernel", estimator, data, kernel="rbf", gamma=8.0, max_iter=50)
    for estimator in ("PUMMAClassifier", "ALMAClassifier"):
        yield _make("online", estimator, ("separable", 60, 5), p=8.0, quick=True)


def _searches():
    rbf = {"kernel": "rbf", "gammas": (0.5, 2.0)}
    few = {"Cs": (0.1, 1.0, 10.0), "lambda1s": (0.0, 0.1), "lambda2s": (0.0, 0.1), "lambda_scale": "relative", "cv": 3}
    yield _make("searches", "LDMClassifierCV", ("dense", 800, 15), **few)
    yield _make("searches", "LDMClassifierCV", ("sparse", 900, 6000, 60), **few)
    yield _make("searches", "LDMClassifierCV", ("clusters", 400, 8), **few, **rbf)
    yield _make("searches", "LDMClassifierCV", ("clusters", 1900, 8), **few, kernel="rbf", gammas=(2.0,))
    one = {"Cs": (1.0,), "lambda1s": (0.1,), "lambda2s": (0.1,), "lambda_scale": "relative", "cv": 5}
    yield _make("searches", "LDMClassifierCV", ("clusters", 1900, 8), **one, kernel="rbf", gammas=(2.0,))
    yield _make("searches", "LDMClassifierCV", ("bundled", "iris"), **few, quick=True)
    lams = {"lams": (1.0, 2.0**8, 2.0**16), "mus": (0.2, 1.0), "thetas": (0.2,), "cv": 3}
    yield _make("searches", "ODMClassifierCV", ("dense", 800, 15), **lams)
    yield _make("searches", "ODMClassifierCV", ("bundled", "iris"), **lams, quick=True)
    yield _make("searches", "ODMClassifierCV", ("clusters", 400, 8), **lams, **rbf)
    yield _make("searches", "LSSVMClassifierCV", ("dense", 4000, 50), cv=5)
    yield _make("searches", "LSSVMClassifierCV", ("clusters", 800, 8), cv=5, **rbf)
    yield _make("searches", "MSVMAvClassifierCV", ("dense", 300, 10), alphas=(1.0, 64.0), betas=(0.25, 4.0), cv=3)


def _once_broken():
    """What audits and the fuzz have found."""
    for number in range(3):
        for C, largest, tol in ((100.0, 1e6, 1e-4), (1.0, 1e6, 1e-4), (1e4, 1e3, 1e-6)):
            data = ("large_values", 100 + number, 50000, 100, largest)
            yield _ldm("large values", data, C, 0.0, tol=tol)
    yield _make(
        "large values", "LDMClassifier", ("two_rows", 1e7), C=1e6, lambda1=0.0, lambda2=0.0, solver="coordinate-descent"
    )
    for m in (2500, 4000):
        for C, margin_terms in ((1.0, 1.0), (100.0, 0.1)):
            data = ("clusters", m, 16, 2, 0.1)
            yield _ldm("ldm kernel, margin terms", data, C, margin_terms, kernel="rbf", gamma=1.0)
    for C in (1.0, 100.0):
        more = {"C": C, "lambda1": 0.0, "lambda2": 0.9, "lambda_scale": "relative"}
        yield _make("ldm dense, margin terms", "LDMClassifier", ("dense", 20000, 130), **more)
    for C, lambda1 in ((1.0, 100.0), (100.0, 100.0), (1.0, 1e4)):
        more = {"C": C, "lambda1": lambda1, "lambda2": lambda1}
        yield _make("ldm sparse, margin terms", "LDMClassifier", ("text", 4000, 50000, 190), **more)


def _real():
    kernel = {"kernel": "rbf", "gamma": 1.0}
    for name, rows in (("letter:half", 1900), ("letter:half", 2500), ("pendigits", 1990), ("pendigits", 2010)):
        for C, margin_terms in ((1.0, 1.0), (100.0, 0.1)):
            yield _ldm("real kernels", ("real", name, rows), C, margin_terms, **kernel)
    for name, rows in (("raetsch-banana", None), ("letter:half", 6000), ("a9a", 4000)):
        yield _ldm("real kernels", ("real", name, rows), 1.0, 0.0, **kernel)
    for name in ("a9a", "w8a", "cod-rna"):
        for C, margin_terms in ((0.01, 0.0), (1.0, 0.0), (1.0, 0.1), (100.0, 0.0)):
            yield _ldm("real rows", ("real", name), C, margin_terms)
        for lam in (2.0**8, 2.0**20):
            yield _make("real rows", "ODMClassifier", ("real", name), lam=lam)
    yield _make(
        "real rows", "LDMClassifier", ("real", "a9a"), C=100.0, lambda1=0.0, lambda2=0.9, lambda_scale="relative"
    )
    for C in (1.0, 100.0):
        for margin_terms in (0.0, 100.0):
            more = {"lambda_scale": "absolute"}
            yield _ldm("real rows", ("real", "farm-ads"), C, margin_terms, **more)
    for lam in (2.0**8, 2.0**14):
        yield _make("real rows", "ODMClassifier", ("real", "farm-ads"), lam=lam)
        yield _make("real rows", "ODMClassifier", ("real", "bibtex"), lam=lam)
    for name in ("usps:multi", "vehicle:multi"):
        yield _make("real rows", "ODMClassifier", ("real", name), lam=2.0**8)
        yield _ldm("real rows", ("real", name), 1.0, 0.1)
