"""ODM beside LinearSVC: `python -m benchmarks.bench_odm [section ...]`, with MARGINDIST_DATA set.

Sections: binary, wide, multiclass, passes, classes, accuracy. Two-class fits are certified by their duality gap; the
peer is LinearSVC with the squared hinge (primal), at the same price a sample. Joint multi-class fits are compared with
LinearSVC by Crammer and Singer; the gap is that of the best round's convex problem. Arguments after a section's name
that are data sets restrict it to them.
"""

import sys
import time
from functools import partial

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import LinearSVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist import ODMClassifier
from margindist.objectives import ODM
from margindist.solvers import multiclass as rounds
from margindist.solvers._rows import as_rows

MU, THETA = 0.4, 0.2
MULTICLASS = ["satimage", "usps", "pendigits", "letter", "shuttle", "mnist", "covtype"]
PRINTED = {  # accuracy of mcODM in Table 2 of the paper, mean of ten splits
    "iris": 0.873, "wine": 0.984, "vehicle": 0.856, "segment": 0.967, "dna": 0.956, "satimage": 0.891,
    "pendigits": 0.967, "letter": 0.827,
}  # fmt: skip


def against_linear_svc(name, tol):
    X, y = load(name)
    price = 1.0 / (len(y) * (1 - THETA) ** 2)
    ODMClassifier(fit_intercept=False, tol=0.1).fit(X, y)  # compilation is not the fit's
    for lam in (1, 2**10, 2**20):
        ours = ODMClassifier(lam, MU, THETA, fit_intercept=False, tol=tol)
        peer = LinearSVC(C=lam * price, dual=False, fit_intercept=False, random_state=0)
        (model, seconds), (_, peer_seconds) = in_turn(lambda o=ours: o.fit(X, y), lambda p=peer: p.fit(X, y), repeats=5)
        yield {
            "data": f"{name} {X.shape[0]}x{X.shape[1]}",
            "lambda": lam,
            "solver": model.solver_,
            "ODM s": seconds,
            "LinearSVC(dual=False) s": peer_seconds,
            "ratio": seconds / peer_seconds,
            "gap (certified)": model.duality_gap_,
            "iterations": model.n_iter_,
        }


def binary():
    rows = [row for name in ("a9a", "w8a", "cod-rna") for row in against_linear_svc(name, 1e-6)]
    table("Two classes, certified to 1e-6", rows)


def wide():
    rows = [row for name in ("bibtex", "farm-ads") for row in against_linear_svc(name, 1e-3)]
    table("Two classes, sparse and wide, certified to 1e-3", rows)


def split(name):
    X, y = load(name + ":multi")
    return train_test_split(X, y, test_size=0.2, random_state=0)


def fit_joint(X, y, outer):
    lam = len(y) * (1 - THETA) ** 2
    return ODMClassifier(lam, MU, THETA, outer=outer, fit_intercept=False, random_state=0).fit(X, y)


def fit_crammer_singer(X, y):
    return LinearSVC(multi_class="crammer_singer", fit_intercept=False, random_state=0).fit(X, y)


def multiclass(names=MULTICLASS):
    """Both at one price a sample: C = 1, and lambda = m (1 - theta)²."""
    rows = []
    for name in names:
        X, test, y, truth = split(name)
        fit_joint(X[:2000], y[:2000], "concave")
        (concave, seconds), (frozen, frozen_seconds), (svc, peer_seconds) = in_turn(
            partial(fit_joint, X, y, "concave"), partial(fit_joint, X, y, "frozen"), partial(fit_crammer_singer, X, y),
            repeats=2, longest=30.0,
        )  # fmt: skip
        rows.append({
            "data": f"{name} {X.shape[0]}x{X.shape[1]}, {len(concave.classes_)} classes",
            "concave s": seconds, "frozen s": frozen_seconds, "Crammer-Singer s": peer_seconds,
            "ratio": seconds / peer_seconds, "rounds": len(concave.objective_history_), "passes": concave.n_iter_,
            "gap": concave.duality_gap_, "objective, frozen / concave": frozen.objective_ / concave.objective_,
            "accuracy": concave.score(test, truth), "frozen accuracy": frozen.score(test, truth),
            "Crammer-Singer accuracy": svc.score(test, truth),
        })  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    table("More classes, one price a sample (C = 1), default tolerance", rows)


def one_pass(X, y, lam):
    objective, rows = ODM(lam, MU, THETA), as_rows(X)
    return rounds.solve(objective, rows, y, np.ones(len(y)), method="coordinate-descent", tol=1e-12, max_iter=1)


def passes(names=MULTICLASS):
    """One cycle of block descent: all rows, then those that moved, at most eight times, and a certificate."""
    rows = []
    for name in names:
        X, _, y, _ = split(name)
        one_pass(X[:1000], np.unique(y[:1000], return_inverse=True)[1], 1.0)
        peer = LinearSVC(multi_class="crammer_singer", fit_intercept=False, random_state=0)
        (found, seconds), (svc, peer_seconds) = in_turn(
            partial(one_pass, X, y, float(len(y))), partial(peer.fit, X, y), repeats=1
        )
        rows.append({
            "data": f"{name} {X.shape[0]}x{X.shape[1]}", "first cycle s": seconds, "its passes": found.n_iter,
            "one pass s": seconds / found.n_iter, "Crammer-Singer s": peer_seconds, "its steps": int(svc.n_iter_),
        })  # fmt: skip
    table("Passes", rows)


def classes():
    X, y = make_classification(
        100_000, 128, n_informative=64, n_classes=1000, n_clusters_per_class=1, class_sep=3.0, random_state=0
    )
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    one_pass(X[:2000], np.unique(y[:2000], return_inverse=True)[1], 1.0)
    start = time.perf_counter()
    found, grown = memory_growth(lambda: one_pass(X, y, float(len(y))))
    seconds = time.perf_counter() - start
    table("1000 classes, 100,000 x 128, one cycle", [{
        "s": seconds, "passes": found.n_iter, "memory growth MB": grown, "weights MB": found.coef.nbytes / 1e6,
        "blocks MB": (found.dual.zeta.nbytes + found.dual.classes.nbytes) / 1e6,
        "stored a row": found.dual.length.mean(), "all m·k would be MB": 8e-6 * len(y) * 1000,
    }])  # fmt: skip


def accuracy():
    """λ, μ, θ by five-fold cross-validation on the training part of one 80/20 split, no intercept as in the paper."""
    rows = []
    grid = {"lam": 4.0 ** np.arange(0, 11), "mu": [0.2, 0.8], "theta": [0.2, 0.8]}
    for name, printed in PRINTED.items():
        X, test, y, truth = split(name)
        if len(y) > 3000:
            grid = {"lam": 4.0 ** np.arange(4, 9, 2), "mu": [0.4], "theta": [0.2]}
        start = time.perf_counter()
        search = GridSearchCV(ODMClassifier(fit_intercept=False, random_state=0, tol=1e-2), grid, cv=5, n_jobs=2)
        search.fit(X, y)
        rows.append({
            "data": name, "accuracy": search.score(test, truth), "with intercept": ODMClassifier(
                **search.best_params_, random_state=0).fit(X, y).score(test, truth),
            "paper's Table 2": printed, "best": str(search.best_params_), "search s": time.perf_counter() - start,
        })  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    table("Accuracy on one 80/20 split", rows)


if __name__ == "__main__":
    section, *names = sys.argv[1:] or ["all"]
    for name in ["binary", "wide", "multiclass", "passes", "classes", "accuracy"] if section == "all" else [section]:
        globals()[name](*([names] if names else []))
