"""A process that fits the panel's problems with one version of the library, one per line that it is told.

`python -m benchmarks.panel_worker SEED LIMIT` reads names of problems and answers each with a line of JSON. Which
version it is, the first folder of PYTHONPATH decides; it uses nothing of it but its public classes.
"""

import json
import math
import os
import sys
import time
import warnings

import numpy as np
from numba.core import event
from sklearn.exceptions import ConvergenceWarning

from benchmarks._measure import TimeLimit, time_limit
from benchmarks.panel_formulas import claims, measured
from benchmarks.panel_problems import problems, rows_of, weights_of

BATCH = 0.05  # seconds of fits that are timed together: some systems count processor time in steps of milliseconds
BATCHES = 3
LEAST = 2e-3  # seconds that a fit is taken for at least, to tell how many of them a batch has
WARM_ABOVE = 2.0  # seconds of a first fit beside which it does not matter that code is read


def fit(problem, seed, limit):
    """Return the model, what it warned of, the seconds it took, and whether anything was compiled meanwhile."""
    import margindist

    X, y = rows_of(problem.data, seed)
    weights = weights_of(problem, X.shape[0], seed)
    if problem.estimator == "ECOCClassifier":
        model = margindist.ECOCClassifier(margindist.LSSVMClassifier())
    else:
        model = getattr(margindist, problem.estimator)(**problem.parameters)
    extra = {} if weights is None else {"sample_weight": weights}
    with event.install_recorder("numba:compile") as compiled, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        try:
            with time_limit(limit):
                model.fit(X, y, **extra)
        except TimeLimit:
            model = None
        seconds = time.process_time() - start
    said = [str(one.message) for one in caught if issubclass(one.category, (ConvergenceWarning, UserWarning))]
    return model, said, seconds, bool(compiled.buffer)


def record_of(problem, seed, limit):
    """Fit a problem, more than once if that is quick; return what there is to say about it."""
    model, said, seconds, compiled = fit(problem, seed, limit)
    if compiled or seconds < WARM_ABOVE:  # code is read from the cache even where none is compiled
        model, said, seconds, _ = fit(problem, seed, limit)
    if model is None:
        return {"stopped": True, "seconds": seconds}
    if seconds < BATCH:
        count = math.ceil(BATCH / max(seconds, LEAST))
        seconds = min(sum(fit(problem, seed, limit)[2] for _ in range(count)) / count for _ in range(BATCHES))
    X, y = rows_of(problem.data, seed)
    inner = getattr(model, "best_estimator_", model)
    weights = weights_of(problem, X.shape[0], seed)
    gaps, objectives = claims(inner)
    return {
        "value": measured(problem.estimator, model, X, y, weights),
        "gap": gaps.tolist(),
        "objective": [] if inner is not model else objectives.tolist(),
        "tol": float(getattr(inner, "tol", np.nan)),
        "exact": getattr(inner, "certified_problem_", "exact") == "exact",
        "seconds": seconds,
        "n_iter": int(np.max(getattr(inner, "n_iter_", 0))),
        "warned": said[0] if said else "",
    }


def main(seed, limit):
    """Answer names on the standard input."""
    channel = os.fdopen(os.dup(1), "w")  # what a library prints must not be taken for an answer
    os.dup2(2, 1)
    known = {problem.name: problem for problem in problems(seed)}
    for line in sys.stdin:
        name = line.rstrip("\n")
        try:
            record = record_of(known[name], seed, limit)
        except Exception as error:
            record = {"error": f"{type(error).__name__}: {error}"[:300], "seconds": 0.0}
        print(json.dumps(record), file=channel, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
