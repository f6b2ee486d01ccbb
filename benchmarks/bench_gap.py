"""Time against distance from the optimum: `python -m benchmarks.bench_gap [section ...]`, with MARGINDIST_DATA set.

Sections: linear (hinge loss, no intercept) and kernel (RBF, gamma="scale"). Every method runs several times, each time
asked for more: ours by `tol`, LinearSVC, SGDClassifier and snapml (if it is installed) by passes, SVC by its tolerance.
How far a model is above the optimum is measured in the same way for all: with the objective of its own coefficients,
beside the largest lower bound that any run of that problem has proved. Processor time, the best of three.
"""

import contextlib
import importlib
import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, LinearSVC

from benchmarks._measure import load, table
from margindist import LDMClassifier

LINEAR = ["a9a", "cod-rna", "w8a"]
KERNEL = ["a1a:first1600", "letter:first4000"]
TOLERANCES = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]


def seconds_of(model, X, y):
    taken = []
    for _ in range(3):
        start = time.process_time()
        model.fit(X, y)
        taken.append(time.process_time() - start)
        if sum(taken) > 10.0:
            break
    return min(taken)


def linear_models(C, m):
    for tol in TOLERANCES:
        yield "margindist", f"tol={tol:g}", LDMClassifier(C, 0.0, 0.0, fit_intercept=False, tol=tol, random_state=0)
    for passes in (3, 10, 30, 100, 300, 1000):
        fitted = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-12, max_iter=passes, random_state=0)
        yield "LinearSVC", f"{passes} passes", fitted
    for passes in (1, 5, 20, 100):
        fitted = SGDClassifier(alpha=1 / (C * m), fit_intercept=False, tol=None, max_iter=passes, random_state=0)
        yield "SGDClassifier", f"{passes} passes", fitted
    with contextlib.suppress(ImportError):
        make = importlib.import_module("snapml").SupportVectorMachine
        for passes in (3, 10, 30, 100, 300, 1000):
            fitted = make(regularizer=1 / C, fit_intercept=False, tol=1e-12, max_iter=passes, random_state=0, n_jobs=1)
            yield "snapml", f"{passes} passes", fitted


def linear_value(model, X, y, C):
    w = model.coef_.ravel()
    return w @ w / 2 + C * np.maximum(0, 1 - y * (X @ w)).sum()


def kernel_models(C):
    for tol in TOLERANCES[:5]:
        yield "margindist", f"tol={tol:g}", LDMClassifier(C, 0.0, 0.0, kernel="rbf", fit_intercept=False, tol=tol)
    makers = {"SVC": SVC}
    with contextlib.suppress(ImportError):
        makers["scikit-learn-intelex SVC"] = importlib.import_module("sklearnex.svm").SVC
    for name, make in makers.items():
        for tol in (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
            yield name, f"tol={tol:g}", make(C=C, tol=tol, cache_size=1000)


def kernel_bounds(model, K, y, C):
    """Return the value of a model and what it proves to be no more than the minimum, of its own problem.

    SVC has a free intercept: the best one for its coefficients is found among the residuals. Its multipliers are
    feasible, so they prove a bound; ours has none of them to hand, but certifies a gap.
    """
    if isinstance(model, LDMClassifier):
        return model.objective_, model.objective_ * (1 - model.duality_gap_)
    signed = np.zeros(len(y))
    signed[model.support_] = model.dual_coef_.ravel()
    scores, norm = K @ signed, signed @ K @ signed
    value = norm / 2 + C * min(np.maximum(0, 1 - y * (scores + b)).sum() for b in np.unique(y - scores))
    return value, np.abs(signed).sum() - norm / 2


def rows_of(problem, C, fits):
    """Return the rows of one problem: its models with their values and bounds, and the seconds they took."""
    best = max(bound for *_, bound in fits)
    for method, setting, seconds, value, _ in fits:
        yield {
            "data": problem,
            "C": C,
            "method": method,
            "asked for": setting,
            "seconds": seconds,
            "above the optimum": max(value / best - 1, 1e-16),
        }


def linear():
    for name in LINEAR:
        X, y = load(name)
        LDMClassifier(fit_intercept=False).fit(X[:2000], y[:2000])  # compilation is not the fit's
        for C in (1.0, 100.0):
            fits = []
            for method, setting, model in linear_models(C, len(y)):
                seconds = seconds_of(model, X, y)
                value = linear_value(model, X, y, C)
                bound = model.objective_ * (1 - model.duality_gap_) if method == "margindist" else -np.inf
                fits.append((method, setting, seconds, value, bound))
            yield from rows_of(f"{name} {X.shape[0]} x {X.shape[1]}", C, fits)


def kernel():
    for name in KERNEL:
        X, y = load(name)
        X = X.toarray() if hasattr(X, "toarray") else X
        K = rbf_kernel(X, gamma=1 / (X.shape[1] * X.var()))
        LDMClassifier(kernel="rbf", fit_intercept=False).fit(X[:500], y[:500])
        for C in (1.0, 100.0):
            ours, peers = [], []
            for method, setting, model in kernel_models(C):
                seconds = seconds_of(model, X, y)
                fits = ours if method == "margindist" else peers
                fits.append((method, setting, seconds, *kernel_bounds(model, K, y, C)))
            problem = f"{name.partition(':')[0]} {X.shape[0]} x {X.shape[1]}"
            yield from rows_of(problem, C, ours)
            yield from rows_of(problem, C, peers)


SECTIONS = {
    "linear": ("Time against gap, linear", linear),
    "kernel": ("Time against gap, RBF kernel", kernel),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for section in sys.argv[1:] or SECTIONS:
        title, rows = SECTIONS[section]
        table(title, rows())
