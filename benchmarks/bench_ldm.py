"""LDM beside LinearSVC: `python -m benchmarks.bench_ldm [section ...]`, with MARGINDIST_DATA set.

Sections: linear, wide, growth, memory, start, cold. Ours is certified by its duality gap; the peer's suboptimality is
its SVM objective relative to the optimum that our solver finds for that objective (λ1 = λ2 = 0), certified to 1e-6.
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist import LDMClassifier

LAMBDA = 0.25  # the largest of the paper's grid


def svm_value(X, y, coef, C):
    return coef @ coef / 2 + C * np.maximum(0, 1 - y * (X @ coef)).sum()


def against_linear_svc(name, Cs, tol):
    X, y = load(name)
    few = slice(None, None, max(1, len(y) // 3000))
    LDMClassifier(fit_intercept=False, tol=0.1).fit(X[few], y[few])  # compilation is not the fit's
    LDMClassifier(fit_intercept=False, tol=0.1).fit(X, y)
    for C in Cs:
        ours = LDMClassifier(C, LAMBDA, LAMBDA, fit_intercept=False, tol=tol, random_state=0)
        peer = LinearSVC(C=C, loss="hinge", fit_intercept=False, max_iter=1000, random_state=0)
        (model, seconds), (svm, peer_seconds) = in_turn(lambda o=ours: o.fit(X, y), lambda p=peer: p.fit(X, y))
        best = LDMClassifier(C, 0, 0, fit_intercept=False, tol=1e-6).fit(X, y).objective_
        yield {
            "data": f"{name} {X.shape[0]}x{X.shape[1]}",
            "C": C,
            "solver": model.solver_,
            "LDM s": seconds,
            "LinearSVC s": peer_seconds,
            "ratio": seconds / peer_seconds,
            "LDM gap (certified)": model.duality_gap_,
            "LinearSVC above optimum": svm_value(X, y, svm.coef_[0], C) / best - 1,
            "iterations": model.n_iter_,
        }


def linear():
    names = ["a9a", "cod-rna", "skin", "w8a", "covtype"]
    rows = [row for name in names for row in against_linear_svc(name, [1.0, 10.0, 100.0], 1e-4)]
    table("Linear, many rows, certified to 1e-4", rows)


def wide():
    rows = [row for name in ["farm-ads", "bibtex"] for row in against_linear_svc(name, [0.1, 1.0, 10.0], 1e-3)]
    table("Linear, sparse and wide, certified to 1e-3", rows)


def growth():
    rng, rows = np.random.default_rng(0), []
    w = rng.normal(size=20)
    X = rng.random((500_000, 20))
    y = np.where((X - 0.5) @ w + rng.normal(size=500_000) > 0, 1.0, -1.0)
    for solver in ("interior-point", "coordinate-descent"):
        times = []
        for m in (50_000, 500_000):
            # C per row shrinks with m, so that the problem stays the same; its size is what grows
            model = LDMClassifier(5e3 / m, LAMBDA, LAMBDA, solver=solver, tol=1e-3, random_state=0)
            model.fit(X[:2000], y[:2000])
            ((fitted, seconds),) = in_turn(lambda e=model, n=m: e.fit(X[:n], y[:n]))
            times.append(seconds)
        rows.append(
            {
                "solver": solver,
                "50,000 rows s": times[0],
                "500,000 rows s": times[1],
                "exponent": float(np.log10(times[1] / times[0])),
                "gap": fitted.duality_gap_,
            }
        )
    table("Growth with the number of rows", rows)


def memory():
    X, y = load("covtype")
    LDMClassifier(fit_intercept=False).fit(X[:5000], y[:5000])
    model, growth_mb = memory_growth(lambda: LDMClassifier(10, LAMBDA, LAMBDA, fit_intercept=False).fit(X, y))
    share = growth_mb * 2**20 / X.nbytes
    rows = [{"data MB": X.nbytes / 2**20, "peak above data MB": growth_mb, "share": share, "gap": model.duality_gap_}]
    table("Memory above the data, covtype in float64", rows)


def start():
    ours = "from sklearn.datasets import load_iris; from margindist import LDMClassifier as M; "
    peer = "from sklearn.datasets import load_iris; from sklearn.svm import LinearSVC as M; "
    fit = "M().fit(*load_iris(return_X_y=True))"
    times = {ours: [], peer: []}
    for _ in range(6):
        for code, seconds in times.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-W", "ignore", "-c", code + fit], check=True)
            seconds.append(time.perf_counter() - begin)
    medians = [float(np.median(seconds[1:])) for seconds in times.values()]
    rows = [{"LDM s": medians[0], "LinearSVC s": medians[1], "difference": medians[0] - medians[1]}]
    table("A fresh process: import and first fit on iris, compiled code cached", rows)


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
    for section in sys.argv[1:] or ["linear", "wide", "growth", "memory", "start", "cold"]:
        globals()[section]()
