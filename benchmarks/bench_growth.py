"""How time and memory grow: `python -m benchmarks.bench_growth [section ...]`; needs no data sets.

Sections: rows (10⁴ to 10⁶, 20 columns), columns (10 to 10³, dense, 20,000 rows), sparse (10³ to 10⁶ columns, 10,000
rows of 50 values). Exponents are fitted to the logarithms of all sizes. Two sections name what the hardware needs at
least: `rows` the time to read the data once at the speed of a copy, `columns` that of the Gram products of the
iterations done, at the speed of BLAS. Wall-clock time, one thread; memory is the peak above the data.
"""

import sys
import time
from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk

from benchmarks._measure import in_turn, memory_growth, table
from margindist import LDMClassifier, ODMClassifier

ROWS = (10_000, 100_000, 1_000_000)
COLUMNS = (10, 32, 100, 316, 1000)
SPARSE_COLUMNS = (1000, 10_000, 100_000, 1_000_000)


def classifiers(m):
    """Return what is measured; the price per row falls with their number, so that the problem stays the same."""
    return {
        "LDM, C = 1000 / rows": LDMClassifier(1e3 / m, 0.25, 0.25, random_state=0),
        "LDM, C = 10⁵ / rows": LDMClassifier(1e5 / m, 0.25, 0.25, random_state=0),
        "ODM, λ = 2¹⁰": ODMClassifier(2.0**10, 0.4, 0.2, random_state=0),
    }


def labels(scores, rng):
    return np.where(scores - scores.mean() + 0.3 * scores.std() * rng.normal(size=len(scores)) > 0, 1.0, -1.0)


def dense(m, d):
    rng = np.random.default_rng(0)
    X = rng.random((m, d))
    return X, labels(X @ rng.normal(size=d), rng)


def sparse(m, d, stored=50):
    rng = np.random.default_rng(0)
    columns = (d * rng.random(m * stored) ** 2).astype(np.int32)
    X = sp.csr_matrix((rng.random(m * stored), columns, np.arange(0, m * stored + 1, stored)), shape=(m, d))
    X.sum_duplicates()
    return X, labels(X @ rng.normal(size=d), rng)


def read_once(X):
    """Return the seconds that reading the data once takes, at the speed of a copy."""
    into = np.empty(1 << 20)
    flat = X.ravel()
    start = time.perf_counter()
    for begin in range(0, flat.size, into.size):
        part = flat[begin : begin + into.size]
        into[: len(part)] = part
    return time.perf_counter() - start


def gram_once(X):
    """Return the seconds of one Gram product of all rows, at the speed of BLAS."""
    start = time.perf_counter()
    dsyrk(1.0, X.T)
    return time.perf_counter() - start


def measured(sizes, make, floor=None):
    """Yield a row per classifier and size; the exponents are in those of the largest size."""
    found = {}
    for size in sizes:
        X, y = make(size)
        least = {} if floor is None else {floor.__name__.replace("_", " ") + " s": floor(X)}
        for name, model in classifiers(len(y)).items():
            model.fit(X[:500], y[:500])  # compilation is not the fit's
            (fitted, seconds), *_ = in_turn(partial(model.fit, X, y), longest=10.0, clock=time.perf_counter)
            _, grown = memory_growth(partial(model.fit, X, y))
            found.setdefault(name, []).append(seconds)
            row = {"classifier": name, "size": size, "s": seconds, "iterations": fitted.n_iter_}
            row |= {"gap": fitted.duality_gap_, **least, "MB above the data": grown}
            if size == sizes[-1]:
                row["exponent"] = float(np.polyfit(np.log(sizes), np.log(found[name]), 1)[0])
            else:
                row["exponent"] = ""
            yield row


def rows():
    table("Growth with the rows, 20 dense columns", measured(ROWS, lambda m: dense(m, 20), read_once))


def columns():
    table("Growth with the columns, 20,000 dense rows", measured(COLUMNS, lambda d: dense(20_000, d), gram_once))


def sparse_columns():
    table("Growth with the columns, 10,000 sparse rows", measured(SPARSE_COLUMNS, lambda d: sparse(10_000, d)))


SECTIONS = {"rows": rows, "columns": columns, "sparse": sparse_columns}

if __name__ == "__main__":
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section]()
