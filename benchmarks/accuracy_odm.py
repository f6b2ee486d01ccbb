"""Accuracy of multi-class ODM beside the paper's Table 2: `python -m benchmarks.accuracy_odm [data set ...]`.

One 80/20 split (random_state=0), features in [0, 1], no intercept, as in the paper; λ, μ, θ by five-fold
cross-validation on the training part. Sets of up to 1,000 rows have the paper's whole grid (176 points), larger ones a
part of it, which the table shows. The paper's numbers are means and deviations of ten splits. "Best on test" is the
largest accuracy on the test part itself that 24 points all over the grid reach: no way to choose parameters gets beyond
it by much.
"""

import sys
import time

from sklearn.model_selection import ParameterGrid, train_test_split

from benchmarks._measure import load, table
from margindist import ODMClassifier, ODMClassifierCV
from reproduction.declarations import experiments

SETS = ["iris", "wine", "vehicle", "segment", "dna", "satimage", "pendigits", "letter"]
WHOLE = {"lams": [2.0**p for p in range(0, 21, 2)], "mus": [0.2, 0.4, 0.6, 0.8], "thetas": [0.2, 0.4, 0.6, 0.8]}
PART = {"lams": [2.0**p for p in range(4, 17, 4)], "mus": [0.4], "thetas": [0.2, 0.8]}
SPREAD = {"lam": [2.0**p for p in range(0, 21, 4)], "mu": [0.2, 0.8], "theta": [0.2, 0.8]}
OPTIONS = {"fit_intercept": False, "random_state": 0, "tol": 1e-2}


def row(name):
    X, y = load(name + ":multi")
    X, test, y, truth = train_test_split(X, y, test_size=0.2, random_state=0)
    grid = WHOLE if len(y) <= 1000 else PART
    start = time.process_time()
    search = ODMClassifierCV(**grid, cv=5, **OPTIONS).fit(X, y)
    seconds = time.process_time() - start
    best = max(ODMClassifier(**point, **OPTIONS).fit(X, y).score(test, truth) for point in ParameterGrid(SPREAD))
    printed = experiments()["mcodm-table-2"].cell(name, "mcodm")
    return {
        "data": f"{name} {len(y) + len(truth)}x{X.shape[1]}, {len(set(y))} classes",
        "points": len(search.cv_results_["params"]),
        "accuracy": search.score(test, truth),
        "best on test": best,
        "Table 2 mean": printed.mean,
        "Table 2 std": printed.std,
        "lam": search.best_params_["lam"],
        "mu": search.best_params_["mu"],
        "theta": search.best_params_["theta"],
        "processor s": seconds,
    }


if __name__ == "__main__":
    rows = []
    for name in sys.argv[1:] or SETS:
        rows.append(row(name))
        print(rows[-1], file=sys.stderr, flush=True)
    table("Accuracy on one 80/20 split beside Table 2", rows)
