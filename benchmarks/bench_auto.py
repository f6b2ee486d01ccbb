"""Is solver="auto" the right choice? `python -m benchmarks.bench_auto [SEED [PROBLEMS]]`; needs no data sets.

Problems are drawn from the seed: 500 to 20,000 rows, 5 to 2,000 columns, dense, sparse or with a kernel, C and ODM's
price over six decades, margin terms on the scale of the hinge loss or none. Every problem is solved by "auto" and by
each solver it could have chosen; the ratio is that to the quickest of them that proved its result. Where "auto" proves
nothing, the table has what it said. Processor time, one thread. A fit that takes more than LIMIT seconds is stopped,
and so is a named solver that takes much longer than "auto" did.
"""

import re
import sys
import time
import warnings
from typing import NamedTuple

import numpy as np

from benchmarks._measure import TimeLimit, table, time_limit
from benchmarks.panel_problems import clusters, dense, sparse, text
from margindist import LDMClassifier, ODMClassifier

PROBLEMS = 100
LIMIT = 12.0  # seconds of a fit
QUICK = 1.0  # seconds of a fit up to which it is repeated
LARGEST = 10**7  # rows times columns
SOLVERS = {
    ("LDM", "linear"): ("interior-point", "coordinate-descent"),
    ("LDM", "kernel"): ("interior-point", "block"),
    ("ODM", "linear"): ("newton", "coordinate-descent"),
    ("ODM", "kernel"): ("newton", "coordinate-descent"),
}


class Ended(NamedTuple):
    """How a fit ended: the model if there is one, what was said, the seconds."""

    model: object
    said: str
    seconds: float

    @property
    def is_proved(self):
        return self.model is not None and float(np.max(self.model.duality_gap_)) <= self.model.tol


def draw(rng):
    """Return a problem: its parameters in words, the classifier's own, rows and labels."""
    m = int(500 * 40 ** rng.random())
    form = str(rng.choice(["dense", "sparse", "text", "rbf", "poly"], p=[0.4, 0.15, 0.1, 0.3, 0.05]))
    d = min(int(5 * 400 ** rng.random()), LARGEST // m)
    if form == "dense":
        X, y = dense(rng, m, d, noise=float(rng.choice([0.05, 0.3, 1.0])))
    elif form in ("sparse", "text"):
        make = sparse if form == "sparse" else text
        X, y = make(rng, m, max(d, 50), int(5 * 10 ** rng.random()))
    else:
        d = min(d, 60)
        X, y = clusters(rng, m, d, 2, float(rng.choice([0.0, 0.05, 0.2])))
    kernel = "kernel" if form in ("rbf", "poly") else "linear"
    parameters = {"random_state": 0, "tol": 1e-4}
    if kernel == "kernel":
        parameters |= {"kernel": form, "gamma": float(2.0 ** rng.integers(-2, 5)) / d, "coef0": 1.0}
    objective = "LDM" if rng.random() < 0.75 else "ODM"
    if objective == "LDM":
        margin_terms = float(rng.choice([0.0, 0.1, 1.0, 10.0]))
        C = 10.0 ** float(rng.integers(-2, 5))
        parameters |= {"C": C, "lambda1": margin_terms, "lambda2": margin_terms, "lambda_scale": "relative"}
        price = C
    else:
        price, margin_terms = 4.0 ** float(rng.integers(0, 11)), 0.0
        parameters["lam"] = price
    told = {"objective": objective, "rows": m, "columns": X.shape[1], "form": form, "price": price}
    return told | {"lambda1, lambda2": margin_terms}, kernel, parameters, X, y


def fitted(objective, solver, parameters, X, y, limit):
    """Return how a fit ended; a quick one is made again, compiled code at hand."""
    classifier = {"LDM": LDMClassifier, "ODM": ODMClassifier}[objective](solver=solver, **parameters)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with time_limit(limit):
                model = classifier.fit(X, y)
        except TimeLimit:
            return Ended(None, f"still running after {limit:.3g} s", np.inf)
        except ValueError as error:
            return Ended(None, f"refused: {error}", np.inf)
    said = re.sub(r"\s+", " ", str(caught[0].message)) if caught else ""
    return Ended(model, said, time.process_time() - start)


def timed(objective, solver, parameters, X, y, limit):
    """Return how the quickest of some fits ended, after one that may compile."""
    first = fitted(objective, solver, parameters, X, y, LIMIT + limit)
    if not np.isfinite(first.seconds):
        return first
    repeated = [fitted(objective, solver, parameters, X, y, limit) for _ in range(3 if first.seconds < QUICK else 1)]
    return min(repeated, key=lambda each: each.seconds)


def compare(rng):
    """Draw a problem, solve it by all, and return its row of the table."""
    told, kernel, parameters, X, y = draw(rng)
    objective = told["objective"]
    auto = timed(objective, "auto", parameters, X, y, LIMIT)
    limit = min(LIMIT, max(0.5, 1.5 * auto.seconds)) if auto.is_proved else LIMIT
    named = {solver: timed(objective, solver, parameters, X, y, limit) for solver in SOLVERS[objective, kernel]}
    seconds = {solver: ended.seconds for solver, ended in named.items() if ended.is_proved}
    best = min(seconds, key=seconds.get, default="none")
    ratio = auto.seconds / seconds[best] if auto.is_proved and seconds else np.nan
    return told | {
        "auto began with": getattr(auto.model, "solver_", ""),
        "auto s": auto.seconds,
        "quickest": best,
        "quickest s": seconds.get(best, np.inf),
        "ratio": ratio,
        "proved": "yes" if auto.is_proved else f"no: {auto.said or 'it said nothing'}"[:160].replace("|", "/"),
    }


def main(*arguments):
    """Draw and compare as many problems as are asked for."""
    seed, count, *_ = [*map(int, arguments), *(0, PROBLEMS)[len(arguments) :]]
    found = []

    def rows():
        for number in range(count):
            found.append(compare(np.random.default_rng([seed, number])))
            yield {"problem": number, **found[-1]}

    table("solver=auto beside the quickest solver", rows())
    ratios = np.array([row["ratio"] for row in found])
    known = ratios[np.isfinite(ratios)]
    better = sum(row["proved"] != "yes" and row["quickest"] != "none" for row in found)
    summary = {
        "seed": seed,
        "problems": len(found),
        "proved": sum(row["proved"] == "yes" for row in found),
        "not proved, but by a named solver": better,
        "median ratio": float(np.median(known)),
        "worst ratio": float(known.max()),
        "above 2": int((known > 2.0).sum()),
        "above 3": int((known > 3.0).sum()),
    }
    table("solver=auto beside the quickest solver, in short", [summary])


if __name__ == "__main__":
    main(*sys.argv[1:])
