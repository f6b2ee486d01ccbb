"""ODM beside LinearSVC: `python -m benchmarks.bench_odm [section ...]`, with MARGINDIST_DATA set.

Sections: binary, wide, multiclass, few, passes, classes. Times are processor times. Two-class fits are certified by
their duality gap; the peer is LinearSVC with the squared hinge (primal), at the same price per sample. Joint
multi-class fits are compared with LinearSVC by Crammer and Singer; the gap is that of the best round's convex problem.
Arguments after a section's name that are data sets restrict it to them.
"""

import sys
import time
from functools import partial

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist import ODMClassifier
from margindist.objectives import ODM
from margindist.solvers import multiclass as rounds
from margindist.solvers._solution import Options, Problem
from margindist.spaces.rows import as_rows

MU, THETA = 0.4, 0.2
MULTICLASS = ["satimage", "usps", "pendigits", "letter", "shuttle", "mnist", "covtype"]


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


def fit_joint(X, y, outer, price=1.0):
    lam = price * len(y) * (1 - THETA) ** 2
    return ODMClassifier(lam, MU, THETA, outer=outer, fit_intercept=False, random_state=0).fit(X, y)


def fit_crammer_singer(X, y, price=1.0):
    return LinearSVC(C=price, multi_class="crammer_singer", fit_intercept=False, random_state=0).fit(X, y)


def multiclass(names=MULTICLASS):
    """Both at one price per sample: C = 1, and lambda = m (1 - theta)²."""
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
    table("More classes, one price per sample (C = 1), default tolerance", rows)


def few(names=("dna", "usps", "letter", "news20-train")):
    """A few rows with more columns times classes, as they are met within cross-validation of small data."""
    rows = []
    for name in names:
        X, _, y, _ = split(name)
        X, y = X[:240], y[:240]
        fit_joint(X, y, "concave")
        for price in (1.0, 2.0**10):
            (ours, seconds), (_, peer_seconds) = in_turn(
                partial(fit_joint, X, y, "concave", price), partial(fit_crammer_singer, X, y, price),
                repeats=3, longest=30.0,
            )  # fmt: skip
            rows.append({
                "data": f"{name} {X.shape[0]}x{X.shape[1]}, {len(ours.classes_)} classes", "C": price,
                "ODM s": seconds, "Crammer-Singer s": peer_seconds, "ratio": seconds / peer_seconds,
                "steps": ours.n_iter_, "gap": ours.duality_gap_,
            })  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    table("More classes, 240 rows", rows)


def one_pass(X, y, lam):
    objective, rows = ODM(lam, MU, THETA), as_rows(X)
    return rounds.solve(
        Problem(objective, rows, y, np.ones(len(y))), Options(tol=1e-12, max_iter=1), method="coordinate-descent"
    )


def seconds_a_pass(X, y):
    """Return the processor time of coordinate descent's second and third pass over all rows, halved."""
    rows, weights, k = as_rows(X), np.ones(len(y)), int(y.max()) + 1
    prices = ODM(len(y) * (1 - THETA) ** 2, MU, THETA).prices(weights)
    losses = rounds.Losses(y, prices, np.einsum("ij,ij->i", X, X), MU, THETA, k, weights.sum())
    W, blocks = np.zeros((X.shape[1], -(-k // 4) * 4)), rounds.empty_blocks(len(y), k - 1)
    rng, used, starts = np.random.default_rng(0), len(blocks.zeta), []
    for _ in range(3):
        starts.append(time.process_time())
        blocks, used, _, _ = rounds._pass(rows, losses, blocks, blocks.rival, W, rng.permutation(len(y)), used, 0.0)
    return 0.5 * (time.process_time() - starts[1])


def peer_seconds_a_pass(X, y):
    """Return the processor time a pass of Crammer and Singer's LinearSVC takes after the first.

    It has no limit on passes: a loose tolerance ends it after one, a less loose one after a few, of which the last
    may leave some rows out.
    """
    took, passes = [], []
    for tol in (1e9, 5.0):
        start = time.process_time()
        peer = LinearSVC(multi_class="crammer_singer", fit_intercept=False, random_state=0, tol=tol).fit(X, y)
        took.append(time.process_time() - start)
        passes.append(int(peer.n_iter_))
    return (took[1] - took[0]) / (passes[1] - passes[0]) if passes[1] > passes[0] else float("nan")


def passes(names=MULTICLASS):
    """A pass over all rows, none left out."""
    rows = []
    for name in names:
        X, _, y, _ = split(name)
        seconds_a_pass(X[:1000], np.unique(y[:1000], return_inverse=True)[1])
        pairs = [(seconds_a_pass(X, y), peer_seconds_a_pass(X, y)) for _ in range(5)]
        ours, peer = np.median(pairs, axis=0)
        rows.append({
            "data": f"{name} {X.shape[0]}x{X.shape[1]}", "one pass s": float(ours),
            "Crammer-Singer's s": float(peer), "ratio": float(ours / peer),
        })  # fmt: skip
    table("One pass over all rows", rows)


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
        "stored per row": found.dual.length.mean(), "all m·k would be MB": 8e-6 * len(y) * 1000,
    }])  # fmt: skip


if __name__ == "__main__":
    section, *names = sys.argv[1:] or ["all"]
    for name in ["binary", "wide", "multiclass", "few", "passes", "classes"] if section == "all" else [section]:
        globals()[name](*([names] if names else []))
