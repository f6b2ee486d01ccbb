"""MAMC and least squares machines beside what they cannot be faster than, and beside scikit-learn's ridge.

    MARGINDIST_DATA=... python -m benchmarks.bench_closed_forms [--repeats 5]

Every line times one of ours and its peer in turn, several times, after a warm-up, and prints the medians. "Off" is the
relative distance of each to the least squares optimum: ours as certified, the peer's objective beside ours.
"""

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor
from sklearn.linear_model import RidgeClassifier, RidgeClassifierCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import NearestCentroid

from benchmarks._measure import in_turn, load, table
from margindist import LSSVMClassifier, MAMClassifier

C = 1.0
CS = np.logspace(-3, 3, 10)


def generated(m, d):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, d))
    return X, np.where(X[:, :5].sum(axis=1) + rng.normal(size=m) > 0, 1.0, -1.0)


def timed(ours, peer, repeats):
    """Return median seconds of both and what they returned, after one untimed run each."""
    ours(), peer()
    (first, seconds), (second, peer_seconds) = in_turn(ours, peer, repeats=repeats)
    return seconds, peer_seconds, first, second


def objective(model, X, y):
    """Return the least squares objective of a fitted linear model, with the bias that suits its weights best."""
    w = model.coef_.ravel()
    residuals = y - X @ w
    residuals -= residuals.mean()
    return 0.5 * w @ w + 0.5 * C * residuals @ residuals


def line(data, what, peer_name, ours, peer, off="", peer_off=""):
    return {
        "data": data,
        "ours": what,
        "ours s": ours,
        "peer": peer_name,
        "peer s": peer,
        "ratio": ours / peer,
        "off": off,
        "peer off": peer_off,
    }


def linear(name, X, y, repeats):
    size = f"{name} {X.shape[0]}x{X.shape[1]}"
    ours, peer, model, ridge = timed(
        lambda: LSSVMClassifier(C=C).fit(X, y), lambda: RidgeClassifier(alpha=1 / C).fit(X, y), repeats
    )
    best = min(objective(model, X, y), objective(ridge, X, y))
    beyond = float(objective(ridge, X, y) / best - 1)
    what = f"LSSVM linear, {model.solver_}"
    yield line(size, what, "RidgeClassifier", ours, peer, float(model.duality_gap_), beyond)
    if not sp.issparse(X):
        ours, peer, _, _ = timed(
            lambda: LSSVMClassifier().path(X, y, CS), lambda: RidgeClassifierCV(alphas=1 / CS).fit(X, y), repeats
        )
        yield line(size, f"LSSVM path, {len(CS)} C, leave-one-out", "RidgeClassifierCV", ours, peer)


def averages(name, X, y, repeats):
    size = f"{name} {X.shape[0]}x{X.shape[1]}"

    def read_twice():
        return X.sum(), X.sum()

    for bias in ("mean", "optimal"):
        ours, peer, _, _ = timed(lambda bias=bias: MAMClassifier(bias=bias).fit(X, y), read_twice, repeats)
        yield line(size, f"MAMC linear, bias {bias}", "X.sum() twice", ours, peer)
    ours, peer, _, _ = timed(lambda: MAMClassifier().fit(X, y), lambda: NearestCentroid().fit(X, y), repeats)
    yield line(size, "MAMC linear, bias optimal", "NearestCentroid", ours, peer)


def kernels(m, repeats):
    X, y = load(f"letter:first{m}")
    size, gamma = f"letter {m}x{X.shape[1]}, rbf", 1.0

    def gram_and_cholesky():
        K = rbf_kernel(X, gamma=gamma)
        K[np.diag_indices_from(K)] += 1 / C
        return cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)

    ours, peer, model, _ = timed(
        lambda: LSSVMClassifier(C=C, kernel="rbf", gamma=gamma).fit(X, y), gram_and_cholesky, repeats
    )
    yield line(size, "LSSVM dual", "Gram matrix + Cholesky", ours, peer, float(model.duality_gap_))
    ours, peer, _, _ = timed(
        lambda: LSSVMClassifier(kernel="rbf", gamma=gamma).path(X, y, CS),
        lambda: [LSSVMClassifier(C=c, kernel="rbf", gamma=gamma).fit(X, y) for c in CS],
        1,
    )
    yield line(size, f"LSSVM path, {len(CS)} C, leave-one-out", f"{len(CS)} fits", ours, peer)
    plain = MAMClassifier(kernel="rbf", gamma=gamma)
    ours, peer, _, _ = timed(lambda: plain.fit(X, y), lambda: rbf_kernel(X, gamma=gamma) @ y, repeats)
    yield line(size, "MAMC, bias optimal", "Gram matrix times a vector", ours, peer)
    ours, peer, _, _ = timed(
        lambda: MAMClassifier(slope="cv", kernel="rbf", gamma=gamma, random_state=0).fit(X, y),
        lambda: plain.fit(X, y),
        repeats,
    )
    yield line(size, "MAMC, slope by cross-validation", "MAMC, one slope", ours, peer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kernel-rows", type=int, default=5000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table("Closed forms beside scikit-learn and lower limits", rows(arguments))


def rows(arguments):
    tall = generated(160_000, 100)
    yield from linear("generated", *tall, arguments.repeats)
    yield from averages("generated", *tall, arguments.repeats)
    for name in ("cod-rna", "covtype", "a9a", "w8a", "bibtex", "farm-ads"):
        yield from linear(name, *load(name), arguments.repeats)
    yield from kernels(arguments.kernel_rows, arguments.repeats)


if __name__ == "__main__":
    main()
