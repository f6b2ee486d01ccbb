"""Is solver="auto" the right choice? `python -m benchmarks.bench_auto [seed] [part ...]`; needs no data sets.

A grid of generated problems: shapes, dense and sparse, small and large prices, with and without margin terms. Every
problem is solved by "auto" and by each solver it could have chosen, in turn; the ratio is that to the quickest of them
that proved its result. Processor time, one thread. Parts are objectives (LDM, ODM) and shapes ("tall", ...): without
them, all are taken.
"""

import sys

import numpy as np
import scipy.sparse as sp

from benchmarks._measure import in_turn, table
from margindist import LDMClassifier, ODMClassifier

SHAPES = {
    "tall": (20_000, 5, None),
    "tall, 50 columns": (20_000, 50, None),
    "200 columns": (4000, 200, None),
    "square": (1000, 1000, None),
    "few rows": (300, 3000, None),
    "sparse, tall": (20_000, 300, 12),
    "sparse, 2000 columns": (5000, 2000, 60),
    "sparse, wide": (2000, 20_000, 100),
}  # rows, columns, values stored per row
OBJECTIVES = ("LDM", "ODM")


def generated(shape, seed):
    """Return rows with features of very different use, and labels with noise."""
    m, d, stored = shape
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d) * rng.random(d) ** 3
    if stored is None:
        X = rng.random((m, d))
        scores = (X - 0.5) @ direction
    else:
        columns = (d * rng.random(m * stored) ** 2).astype(np.int32)  # some columns are common, most are rare
        X = sp.csr_matrix((rng.random(m * stored), columns, np.arange(0, m * stored + 1, stored)), shape=(m, d))
        X.sum_duplicates()
        scores = X @ direction
        scores -= scores.mean()
    noise = 0.3 * scores.std() * rng.normal(size=m)
    return X, np.where(scores + noise > 0, 1.0, -1.0)


def problems():
    """Yield a name and parameters, and the makers of the classifier by solver."""
    for C in (0.01, 1.0, 100.0):
        for margin_terms in (0.0, 100.0):
            named = {"objective": "LDM", "price": C, "lambda1, lambda2": margin_terms}
            solvers = ("auto", "interior-point", "coordinate-descent")
            yield (
                named,
                {s: LDMClassifier(C, margin_terms, margin_terms, solver=s, tol=1e-4, random_state=0) for s in solvers},
            )
    for lam in (1.0, 2.0**10, 2.0**20):
        named = {"objective": "ODM", "price": lam, "lambda1, lambda2": 0.0}
        solvers = ("auto", "newton", "coordinate-descent")
        yield named, {s: ODMClassifier(lam, 0.4, 0.2, solver=s, tol=1e-4, random_state=0) for s in solvers}


def is_possible(model, X, y):
    """Tell whether a solver takes so many columns at all; compile it by the way."""
    try:
        model.fit(X, y)
    except ValueError:  # more memory than cache_size
        return False
    return True


def measured(name, seed, objectives):
    X, y = generated(SHAPES[name], seed)
    few = slice(None, None, max(1, len(y) // 300))
    for named, models in problems():
        if named["objective"] not in objectives:
            continue
        models = {solver: model for solver, model in models.items() if is_possible(model, X[few], y[few])}
        found = in_turn(*(lambda e=model: e.fit(X, y) for model in models.values()), longest=6.0)
        seconds = {
            solver: time for solver, (model, time) in zip(models, found, strict=True) if model.duality_gap_ <= model.tol
        }
        best = min(seconds, key=seconds.get, default="none")
        auto, took = found[0]
        yield {
            "shape": name,
            **named,
            "auto began with": auto.solver_,
            "auto s": took,
            "quickest": best,
            "quickest s": seconds.get(best, np.inf),
            "ratio": took / seconds.get(best, np.inf),
        }


def main(*arguments):
    seed = next((int(argument) for argument in arguments if argument.isdigit()), 0)
    objectives = [name for name in OBJECTIVES if name in arguments] or OBJECTIVES
    shapes = [name for name in SHAPES if name in arguments] or SHAPES
    ratios = []

    def rows():
        for name in shapes:
            for row in measured(name, seed, objectives):
                ratios.append(row["ratio"])
                yield row

    table("solver=auto beside the quickest solver", rows())
    summary = {
        "problems": len(ratios),
        "median ratio": float(np.median(ratios)),
        "worst ratio": max(ratios),
        "above 1.5": sum(ratio > 1.5 for ratio in ratios),
    }
    table("solver=auto beside the quickest solver, in short", [summary])


if __name__ == "__main__":
    main(*sys.argv[1:])
