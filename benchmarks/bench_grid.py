"""Our CV estimators beside GridSearchCV: `python -m benchmarks.bench_grid [case ...]`; only "german" needs data.

Generated data, 20 features, 5 folds, the papers' grids (parts of them for the kernel of MSVMAv and for ODM with three
classes). Both sides see the same folds and run on one thread. Seconds are processor time: ours the median of three
runs, the peer's of one. "equal scores" is the share of grid points whose mean scores agree to 1e-12; what the tolerance
of an iterative classifier leaves open is open on the peer's side too.

"german" is the LDM paper's german (`MARGINDIST_DATA`), its five widths of the RBF kernel and the papers' grids, without
a peer, which would take far too long: seconds of one run.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import minmax_scale

from benchmarks._measure import table
from margindist import LDMClassifierCV, LSSVMClassifierCV, MSVMAvClassifierCV, ODMClassifierCV
from margindist.datasets import load

FEW = [2.0**k for k in range(-10, 11, 4)]
CASES = {
    "ldm-rbf": (LDMClassifierCV(kernel="rbf", grid="paper"), 500, 2),
    "ldm": (LDMClassifierCV(grid="paper"), 500, 2),
    "ldm-rbf-200": (LDMClassifierCV(kernel="rbf", grid="paper"), 200, 2),
    "ldm-200": (LDMClassifierCV(grid="paper"), 200, 2),
    "msvmav": (MSVMAvClassifierCV(), 200, 2),
    "msvmav-rbf": (MSVMAvClassifierCV(kernel="rbf", alphas=FEW, betas=FEW), 200, 2),
    "lssvm": (LSSVMClassifierCV(), 500, 2),
    "lssvm-rbf": (LSSVMClassifierCV(kernel="rbf"), 500, 2),
    "odm": (ODMClassifierCV(grid="paper"), 200, 2),
    "odm-3": (ODMClassifierCV(mus=[0.2, 0.8], thetas=[0.2, 0.8], grid="paper"), 200, 3),
}


def seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def grid_of(search):
    return {name: getattr(search, f"{name}s") for name in search._searched if name != "gamma"}


def compare(name):
    """Return one row of the table."""
    search, m, n_classes = CASES[name]
    X, y = make_classification(
        m, 20, n_informative=5, n_classes=n_classes, flip_y=0.1, class_sep=0.5, random_state=0
    )  # fmt: skip
    X = minmax_scale(X)
    gamma = float(1.0 / (2.0 * pdist(X).mean() ** 2))  # the width is the mean distance, as in the LDM paper
    search.set_params(gammas=[gamma])
    peer = GridSearchCV(search._template().set_params(gamma=gamma), grid_of(search))
    search.fit(X[:60], y[:60])  # compilation is nobody's
    peer.estimator.fit(X[:60], y[:60])
    ours = float(np.median([seconds(lambda: search.fit(X, y)) for _ in range(3)]))
    theirs = seconds(lambda: peer.fit(X, y))
    found, expected = search.cv_results_["mean_test_score"], peer.cv_results_["mean_test_score"]
    best = {k: v for k, v in search.best_params_.items() if k != "gamma"}
    return {
        "case": name,
        "rows": m,
        "points": len(found),
        "ours s": ours,
        "ours ms a fit": 1e3 * ours / (5 * len(found)),
        "GridSearchCV s": theirs,
        "times faster": theirs / ours,
        "same choice": str(best == peer.best_params_),
        "equal scores": float(np.mean(np.abs(found - expected) <= 1e-12)),
        "largest difference": float(np.abs(found - expected).max()),
    }


def german(search):
    """Return one row of the table without peers."""
    data = load("german-59")
    X, y = minmax_scale(data.X), data.y
    distance = pdist(X).mean()
    search.set_params(kernel="rbf", grid="paper", gammas=[0.5 / (2.0**k * distance) ** 2 for k in range(-2, 3)])
    search.fit(X[:60], y[:60])  # compilation is nobody's
    ours = seconds(lambda: search.fit(X, y))
    points = len(search.cv_results_["params"])
    return {
        "search": type(search).__name__,
        "points": points,
        "seconds": ours,
        "ms a fit": 1e3 * ours / (5 * points),
        "best score": search.best_score_,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asked = sys.argv[1:] or [*CASES, "german"]
    if cases := [name for name in asked if name != "german"]:
        table("CV estimators beside GridSearchCV, 5 folds", (compare(name) for name in cases))
    if "german" in asked:
        table("Searches on german, RBF kernel", (german(search) for search in (LDMClassifierCV(), ODMClassifierCV())))
