"""MSVMAv, linear, 100 rounds, beside LinearSVC(dual=False), and the certified rivals beside exact solvers.

    MARGINDIST_DATA=... python -m benchmarks.bench_msvmav [--repeats 3] [--skip-wide]

``tol`` is set so small that all 100 rounds are taken. "ratio" is our time by the peer's.
"""

import argparse

import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import minmax_scale
from sklearn.svm import SVC, LinearSVC

from benchmarks._measure import in_turn, load, table
from margindist import FMMClassifier, KOMDClassifier, MSVMAvClassifier

NEVER = 1e-300


def generated(m, d):
    X, y = make_classification(m, d, n_informative=5, flip_y=0.1, random_state=0)
    return minmax_scale(X), y


def rounds(problems, repeats):
    lines = []
    for name, (X, y) in problems.items():
        MSVMAvClassifier(max_iter=2).fit(X[:500], y[:500])  # compiles
        for beta in (2.0**-8, 2.0**-2, 2.0**4):
            model, peer = MSVMAvClassifier(beta=beta, tol=NEVER), LinearSVC(dual=False)
            (_, ours), (_, theirs) = in_turn(lambda: model.fit(X, y), lambda: peer.fit(X, y), repeats=repeats)  # noqa: B023
            lines.append({
                "data": name, "beta": beta, "rounds": model.n_iter_, "MSVMAv s": ours, "LinearSVC s": theirs,
                "ratio": ours / theirs, "SV/θ² start": float(model.objective_history_[0]),
                "SV/θ² end": model.objective_, "accuracy": model.score(X, y), "LinearSVC accuracy": peer.score(X, y),
            })  # fmt: skip
    table("MSVMAv, linear, 100 rounds", lines)


def certified(repeats):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 20))
    normal = rng.normal(size=20)
    y = np.sign(X @ normal)
    X += 0.1 * np.outer(y, normal)
    svm = SVC(kernel="linear", C=1e8)
    lines = []
    for model in (FMMClassifier(fit_intercept=False, max_iter=10**5), KOMDClassifier(lam=0.0, tol=1e-6)):
        model.fit(X[:200], y[:200])
        (_, ours), (_, theirs) = in_turn(lambda: model.fit(X, y), lambda: svm.fit(X, y), repeats=repeats)  # noqa: B023
        gap = model.duality_gap_ if hasattr(model, "duality_gap_") else 1 - model.margin_ / model.margin_bound_
        lines.append({
            "method": type(model).__name__, "s": ours, "SVC s": theirs, "ratio": ours / theirs, "gap": gap,
            "iterations": model.n_iter_,
        })  # fmt: skip
    table("Hard margins, 1,000 x 20", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip-wide", action="store_true")
    arguments = parser.parse_args()
    problems = {"a9a": load("a9a"), "generated 19,020 x 10": generated(19_020, 10)}
    if not arguments.skip_wide:
        problems["generated 20,000 x 2,000"] = generated(20_000, 2_000)
    rounds(problems, arguments.repeats)
    certified(arguments.repeats)


if __name__ == "__main__":
    main()
