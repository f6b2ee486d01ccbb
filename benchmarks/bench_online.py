"""Online learners: speed of a pass and of a call, the tables and figures of the PUMMA paper, a long stream.

    MARGINDIST_DATA=... python -m benchmarks.bench_online [pass] [call] [table] [figures] [stream]

Without arguments all parts run. Learners and peers take turns in the same process; compilation is warmed up untimed.
"""

import os
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Perceptron
from sklearn.svm import LinearSVC

from margindist import ALMAClassifier, MICRAClassifier, PUMMAClassifier, ROMMAClassifier
from margindist.datasets import make_threshold

# Seconds and 100 times the margin in Table 1 of the paper, for SVM light, PUMMA, ROMMA and MICRA.
PRINTED = {
    "ionosphere": ((0.06, 10.55), (0.54, 10.49), (3.12, 10.50), (0.48, 10.04)),
    "house-votes": ((0.03, 17.42), (0.26, 17.31), (0.62, 17.36), (0.09, 16.51)),
    "adult-1k": ((0.47, 4.95), (5.40, 4.50), (15.83, 4.91), (2.34, 4.03)),
    "adult-2k": ((2.13, 3.40), (25.38, 3.37), (82.70, 3.38), (5.61, 2.81)),
    "adult-4k": ((9.33, 2.40), (159.54, 2.38), (496.52, 2.38), (55.91, 2.00)),
    "adult-8k": ((232.42, 1.69), (807.46, 1.67), (2167.40, 1.67), (189.13, 1.46)),
    "adult-16k": ((1271.06, 1.20), (3365.47, 1.18), (12503.62, 1.18), (2050.84, 1.13)),
    "adult-full": ((5893.20, 0.83), (44480.59, 0.82), (71296.34, 0.82), (12394.86, 0.79)),
}


def load(name, scale=True):
    """Return rows and ±1 labels of a set in the data folder; the first half of many labels against the second."""
    z = np.load(Path(os.environ["MARGINDIST_DATA"]) / f"{name}.npz", allow_pickle=False)
    if "X" in z:
        X = z["X"].astype(np.float64)
        if scale:
            low, span = X.min(0), np.ptp(X, axis=0)
            X = (X - low) / np.where(span > 0, span, 1)
    else:
        X = sp.csr_matrix((z["data"].astype(np.float64), z["indices"], z["indptr"]), shape=tuple(z["shape"]))
    labels = np.unique(z["y"])
    return X, np.where(np.isin(z["y"], labels[: len(labels) // 2]), -1, 1)


def timed(function, *arguments, clock=time.perf_counter):
    start = clock()
    function(*arguments)
    return clock() - start


def bench_pass(rounds=5):
    learners = {
        "Perceptron": Perceptron,
        "PUMMA": PUMMAClassifier,
        "PUMMA, soft margin 1": lambda: PUMMAClassifier(soft_margin=1.0),
        "ROMMA": ROMMAClassifier,
        "ALMA": ALMAClassifier,
        "MICRA": MICRAClassifier,
        "PUMMA, p = 2 ln d": lambda: PUMMAClassifier(p="auto"),
    }
    print("| data | learner | rows a second | time over Perceptron | steps |\n|---|---|--:|--:|--:|")
    for name in ("a9a", "mnist"):
        X, y = load(name)
        seconds, steps = {key: [] for key in learners}, {}
        for key, make in learners.items():
            make().partial_fit(X[:200], y[:200], classes=[-1, 1])
        for _ in range(rounds):
            for key, make in learners.items():
                model = make()
                seconds[key].append(timed(model.partial_fit, X, y, [-1, 1]))
                steps[key] = getattr(model, "n_updates_", "")
        for key, times in seconds.items():
            ratio = min(times) / min(seconds["Perceptron"])
            print(
                f"| {name} {X.shape[0]}x{X.shape[1]} | {key} | {len(y) / min(times):,.0f} | {ratio:.2f} | {steps[key]} |"
            )


def bench_call(n=2000):
    """Processor time of a call with one row, above what the same rows cost in one call."""
    clock = time.process_time
    print("| data | learner | one call a row, µs | learning alone, µs | above it, µs |\n|---|---|--:|--:|--:|")
    for name in ("a9a", "mnist"):
        X, y = load(name)
        X, y = X[:n], y[:n]
        rows = [(X[i : i + 1], y[i : i + 1]) for i in range(n)]
        for make in (Perceptron, PUMMAClassifier, ROMMAClassifier):
            calls, alone = [], []
            for _ in range(3):
                model = make().partial_fit(*rows[0], classes=np.array([-1, 1]))
                calls.append(timed(lambda model=model: [model.partial_fit(*row) for row in rows], clock=clock) / n)
                alone.append(timed(make().partial_fit, X, y, [-1, 1], clock=clock) / n)
            call, learning = 1e6 * min(calls), 1e6 * min(alone)
            print(f"| {name} | {make.__name__} | {call:.0f} | {learning:.1f} | {call - learning:.0f} |")


def bench_table(limit=float(os.environ.get("BENCH_ROWS", 8000))):
    """Table 1: soft margin 1, delta 0.01, to convergence; adult in the largest subsets the limit of rows allows."""
    print(
        "| data | learner | seconds | steps | passes | 100·margin | certified share | printed seconds | printed |\n"
        "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    learners = {
        "PUMMA": lambda: PUMMAClassifier(delta=0.01, soft_margin=1.0, max_iter=10**5),
        "ROMMA": lambda: ROMMAClassifier(delta=0.01, soft_margin=1.0, max_iter=10**5),
        "MICRA": lambda: MICRAClassifier(eta=1.0, beta=1.0, epsilon=0.5, zeta=0.5, soft_margin=1.0, max_iter=10**5),
    }
    adult, labels = load("a9a")
    order = np.random.default_rng(0).permutation(len(labels))
    sets = {name: load(name, scale=False) for name in ("ionosphere", "house-votes")}
    for size in ("1k", "2k", "4k", "8k", "16k", "full"):
        n = len(labels) if size == "full" else 1000 * int(size[:-1])
        if n <= limit:
            sets[f"adult-{size}"] = (adult[order[:n]], labels[order[:n]])
    for make in learners.values():
        make().partial_fit(*(part[:50] for part in sets["adult-1k"]), classes=[-1, 1])
        make().partial_fit(*(part[:50] for part in sets["ionosphere"]), classes=[-1, 1])
    for name, (X, y) in sets.items():
        svm = LinearSVC(C=1.0, intercept_scaling=100.0, max_iter=10**5)
        print(f"| {name} | LinearSVC, squared hinge | {timed(svm.fit, X, y):.2f} | | {svm.n_iter_} | | | | |")
        for column, (key, make) in enumerate(learners.items(), start=1):
            model = make()
            seconds = timed(model.fit, X, y)
            printed_seconds, printed = PRINTED[name][column]
            end = "" if model.converged_ else " (limit)"
            print(
                f"| {name} | {key} | {seconds:.2f}{end} | {model.n_updates_} | {model.n_iter_} | {100 * model.margin_:.2f} "
                f"| {model.margin_share_:.4f} | {printed_seconds} | {printed} |",
                flush=True,
            )


def bench_figures(repetitions=3):
    """Figures 3 and 4: steps and seconds until 0.9 times the best margin, and the margin reached, by bias and norm."""
    print("| p | r (bias) | learner | steps | seconds | margin |\n|---|---|---|--:|--:|--:|")
    for p in (2.0, "auto"):
        learners = {"PUMMA": lambda p=p: PUMMAClassifier(p=p, delta=0.1, max_iter=20000)}
        if p == 2.0:
            learners["ROMMA"] = lambda: ROMMAClassifier(delta=0.1, max_iter=20000)
        learners["ALMA"] = lambda p=p: ALMAClassifier(p=p, alpha=0.1, max_iter=2000)
        for r in (1, 4, 8):
            for key, make in learners.items():
                results = []
                for seed in range(repetitions):
                    X, y = make_threshold(1000, r=r, random_state=seed)
                    model = make()
                    seconds = timed(model.fit, X, y)
                    results.append((model.n_updates_, seconds, model.margin_))
                steps, seconds, margin = np.mean(results, axis=0)
                end = "" if model.converged_ else " (limit)"
                norm = "2" if p == 2.0 else "2 ln n"
                print(f"| {norm} | {r} ({17 - 2 * r}) | {key} | {steps:,.0f}{end} | {seconds:.2f} | {margin:.4f} |")


def bench_stream(n_chunks=1000, rows=1000, n_features=100_000, per_row=30):
    """A million sparse rows; the resident memory must not grow with them."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=n_features)
    model = PUMMAClassifier(soft_margin=1.0)
    seconds, peak = 0.0, 0
    for chunk in range(n_chunks):
        columns = rng.integers(0, n_features, size=(rows, per_row))
        indptr = np.arange(0, rows * per_row + 1, per_row)
        X = sp.csr_matrix((np.ones(rows * per_row), columns.ravel(), indptr), shape=(rows, n_features))
        X.sum_duplicates()
        y = np.where(X @ truth > 0, 1, -1)
        seconds += timed(model.partial_fit, X, y, [-1, 1])
        if chunk == 10:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    print(
        "| rows | rows a second | steps | growth of peak memory after the first 1 %, MB | accuracy on the last chunk |"
    )
    print("|--:|--:|--:|--:|--:|")
    n = n_chunks * rows
    print(f"| {n:,} | {n / seconds:,.0f} | {model.n_updates_:,} | {grown / 1024:.1f} | {model.score(X, y):.3f} |")


PARTS = {
    "pass": bench_pass,
    "call": bench_call,
    "table": bench_table,
    "figures": bench_figures,
    "stream": bench_stream,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    for part in sys.argv[1:] or PARTS:
        print(f"\n### {part}\n")
        PARTS[part]()
