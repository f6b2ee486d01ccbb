"""LDM beside LinearSVC: `python -m benchmarks.bench_ldm [section ...]`, with MARGINDIST_DATA set.

Sections: linear, wide, memory, cold. Ours is certified by its duality gap; how far a peer ends above the
optimum is its SVM objective relative to the lower bound that our fit to that objective (λ1 = λ2 = 0) proves. Arguments
after "linear" or "wide" that are data sets restrict it to them. Peers are LinearSVC with the hinge (1,000 passes),
SGDClassifier and, if it is installed, snapml, with their default tolerances; one thread.
"""

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import time
from functools import partial

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist import LDMClassifier

LAMBDA = 0.25  # the largest of the paper's grid


def svm_value(X, y, coef, C):
    return coef @ coef / 2 + C * np.maximum(0, 1 - y * (X @ coef)).sum()


def peers(C, m):
    """Return the makers of peers for the same objective, by name."""
    yield "LinearSVC", LinearSVC(C=C, loss="hinge", fit_intercept=False, max_iter=1000, random_state=0)
    yield "SGDClassifier", SGDClassifier(alpha=1 / (C * m), fit_intercept=False, max_iter=1000, random_state=0)
    with contextlib.suppress(ImportError):
        make = importlib.import_module("snapml").SupportVectorMachine
        yield "snapml", make(regularizer=1 / C, fit_intercept=False, max_iter=1000, random_state=0, n_jobs=1)


def against_linear_svc(name, Cs):
    X, y = load(name)
    few = slice(None, None, max(1, len(y) // 400))
    second = "interior-point" if X.shape[1] <= 1000 else "auto"  # which has another one for many columns
    for solver in ("coordinate-descent", second):  # compilation is not the fit's
        LDMClassifier(1.0, LAMBDA, LAMBDA, fit_intercept=False, solver=solver, tol=0.1).fit(X[few], y[few])
    for C in Cs:
        ours = [LDMClassifier(C, terms, terms, fit_intercept=False, random_state=0) for terms in (0.0, LAMBDA)]
        others = dict(peers(C, len(y)))
        fits = [partial(model.fit, X, y) for model in (*ours, *others.values())]
        (model, seconds), (_, with_terms), *found = in_turn(*fits, longest=10.0)
        row = {"data": f"{name} {X.shape[0]}x{X.shape[1]}", "C": C, "began with": model.solver_}
        row |= {"ours s": seconds, "with margin terms s": with_terms, "certified gap": model.duality_gap_}
        row["iterations"] = model.n_iter_
        for peer, (fitted, peer_seconds) in zip(others, found, strict=True):
            bound = model.objective_ * (1 - model.duality_gap_)
            row[f"{peer} s"] = peer_seconds
            row[f"{peer} above optimum"] = svm_value(X, y, fitted.coef_.ravel(), C) / bound - 1
        row["ratio to LinearSVC"] = seconds / row["LinearSVC s"]
        yield row


def linear(names=("a9a", "w8a", "cod-rna", "skin", "covtype")):
    Cs = {"covtype": (0.001, 0.1, 10.0)}  # LinearSVC takes minutes there
    rows = (row for name in names for row in against_linear_svc(name, Cs.get(name, [10.0**k for k in range(-3, 4)])))
    table("Linear, many rows, certified to 1e-4", rows)


def wide(names=("farm-ads", "bibtex")):
    rows = (row for name in names for row in against_linear_svc(name, (0.1, 1.0, 10.0)))
    table("Linear, sparse and wide, certified to 1e-4", rows)


def memory():
    X, y = load("covtype")
    LDMClassifier(fit_intercept=False).fit(X[:5000], y[:5000])
    model, growth_mb = memory_growth(lambda: LDMClassifier(10, LAMBDA, LAMBDA, fit_intercept=False).fit(X, y))
    share = growth_mb * 2**20 / X.nbytes
    rows = [{"data MB": X.nbytes / 2**20, "peak above data MB": growth_mb, "share": share, "gap": model.duality_gap_}]
    table("Memory above the data, covtype in float64", rows)


def cold():
    """Everything LDM compiles: all solvers, dense and CSR float64, in an empty cache and again in the filled one."""
    code = """
import warnings; warnings.simplefilter("ignore")
import scipy.sparse as sp
from sklearn.datasets import make_classification
from margindist import LDMClassifier
X, y = make_classification(400, 5, random_state=0)
for form in (X, sp.csr_array(X)):
    for solver in ("interior-point", "coordinate-descent", "asgd", "block", "dcd"):
        LDMClassifier(solver=solver, C=1e3, tol=1e-6, max_iter=100).fit(form, y)
    LDMClassifier(kernel="rbf").fit(form, y)
"""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        seconds = []
        for _ in range(2):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            seconds.append(time.perf_counter() - begin)
    rows = [{"empty cache s": seconds[0], "filled cache s": seconds[1], "compilation s": seconds[0] - seconds[1]}]
    table("Compilation of everything LDM needs", rows)


if __name__ == "__main__":
    sections = ["linear", "wide", "memory", "cold"]
    named = [section for section in sys.argv[1:] if section in sections]
    names = [name for name in sys.argv[1:] if name not in sections]
    for section in named or sections:
        globals()[section](*([names] if names else []))
