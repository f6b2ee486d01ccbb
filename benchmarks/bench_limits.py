"""How far three fits are from what the machine can do: `python -m benchmarks.bench_limits`, with MARGINDIST_DATA set.

Speeds are measured in the same run: reading numbers that are not in a cache, BLAS, exponentials. Then every call by
which a fit goes through its rows is counted, with the bytes that it has to read and the operations that it has to do. A
call takes at least as long as the longer of both does at these speeds; their sum is the least time of the fit with as
many calls. One thread, processor time.
"""

import contextlib
import time
from functools import partial
from unittest import mock

import numpy as np
from scipy.linalg.blas import dsyrk

from benchmarks._measure import in_turn, load, table
from margindist import LDMClassifier, ODMClassifier, certificate, kernels
from margindist.kernels import exponentials
from margindist.solvers import interior_point, quasi_newton
from margindist.spaces import gram
from margindist.spaces.rows import n_columns, n_rows, n_stored, stored_bytes

NUMBER = 8  # bytes


def best(function, repeats=5):
    """Return the least seconds of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def speeds():
    """Return bytes read, operations of BLAS and exponentials, per second."""
    far, near = np.ones(1 << 26), np.asfortranarray(np.random.default_rng(0).random((1000, 2000)))
    values = -np.random.default_rng(0).random(1 << 16)
    exponentials(values.copy(), 0.0)
    return {
        "read": far.nbytes / best(lambda: far @ far),
        "BLAS": 2.0 * 1000 * 1000 * 2000 / 2 / best(lambda: dsyrk(1.0, near)),
        "exponentials": len(values) / best(lambda: exponentials(values, 0.0)),
    }


class Count:
    """The calls of one kind: how many, and how long the machine takes for them at least."""

    def __init__(self, speed):
        self.calls, self.bytes, self.operations, self.seconds = 0, 0.0, 0.0, 0.0
        self._speed = speed

    def wrap(self, function, work):
        """Return a function that does the same and counts."""

        def counted(*args, **kwargs):
            read, operations, exponential = work(*args)
            self.calls += 1
            self.bytes += read
            self.operations += operations
            least = operations / self._speed["BLAS"] + exponential / self._speed["exponentials"]
            self.seconds += max(read / self._speed["read"], least)
            return function(*args, **kwargs)

        return counted


@contextlib.contextmanager
def counting(speed, places):
    """Count calls while the context lasts: ``places`` has (module, name, work) by what a call does."""
    counts = {}
    with contextlib.ExitStack() as stack:
        for what, calls in places.items():
            for module, name, work in calls:
                count = counts.setdefault(what, Count(speed))
                stack.enter_context(mock.patch.object(module, name, count.wrap(getattr(module, name), work)))
        yield counts


# What a call has to read and to do: bytes, operations, exponentials.


def of_rows(columns):
    """Return the work of products of all rows with so many columns each way."""
    return lambda rows, *_: (stored_bytes(rows), 2.0 * columns * n_stored(rows), 0.0)


def of_chosen(rows, which, *_):
    share = len(which) / n_rows(rows)
    return share * stored_bytes(rows), 2.0 * share * n_stored(rows), 0.0


def of_system(rows, which, *_):
    d = n_columns(rows)
    return len(which) / n_rows(rows) * stored_bytes(rows), float(len(which)) * (d + 1) * (d + 2), 0.0


def of_sweep(times):
    def work(working, *_):
        read, operations, _ = of_chosen(working.rows, working.which)
        return read, times * operations, 0.0

    return work


def of_values(kernel, left, right, *_):
    m, n, d = left.values.shape[0], right.values.shape[0], left.values.shape[1]
    return NUMBER * d * (m + n), 2.0 * m * n * d, float(m * n)


def of_columns(values, which, coef, out, begin, end):
    return NUMBER * len(which) * (end - begin), 2.0 * len(which) * (end - begin), 0.0


PLACES = {
    "interior point": {
        "Gram products": [(interior_point, "weighted_system", of_system)],
        "sweeps": [(interior_point, "predict", of_sweep(3.0)), (interior_point, "direct", of_sweep(1.0))],
        "margins": [(interior_point, "some_scores", of_chosen), (certificate, "scores", of_rows(1))],
        "sums of rows": [(interior_point, "add_rows", of_chosen), (certificate, "add_rows", of_chosen)],
    },
    "quasi-Newton": {
        "scores of classes": [(quasi_newton, "class_scores", lambda rows, W: of_rows(W.shape[1])(rows))],
        "sums of classes": [(quasi_newton, "class_sums", lambda rows, V: of_rows(V.shape[1])(rows))],
    },
    "block descent": {
        "kernel values": [(kernels, "_values", of_values)],
        "sums of columns": [(gram, "_add_rows", of_columns)],
    },
}


def fits():
    """Yield name, fit and what it consists of."""
    X, y = load("covtype")
    yield "covtype, LDM, C = 10", partial(LDMClassifier(10.0, 0, 0, fit_intercept=False).fit, X, y), "interior point"
    X, y = load("mnist:multi")
    joint = ODMClassifier(len(y), 0.4, 0.2, fit_intercept=False, random_state=0)
    yield "mnist, joint ODM, ten classes", partial(joint.fit, X, y), "quasi-Newton"
    X, y = load("letter:half")
    kernel = LDMClassifier(1.0, 0, 0, kernel="rbf", fit_intercept=False, tol=1e-3, random_state=0)
    yield "letter, RBF kernel, C = 1", partial(kernel.fit, X, y), "block descent"


def main():
    speed = speeds()
    names = {"read": "read GB/s", "BLAS": "BLAS Gflop/s", "exponentials": "10⁹ exponentials/s"}
    table("What the machine can do, one thread", [{names[what]: each / 1e9 for what, each in speed.items()}])
    table("Fits beside what the machine can do", (row for fit in fits() for row in beside(speed, *fit)))


def beside(speed, name, fit, method):
    ((_, seconds),) = in_turn(fit, repeats=3, longest=10.0)
    with counting(speed, PLACES[method]) as counts:
        fit()
    total = sum(count.seconds for count in counts.values())
    for what, count in counts.items():
        yield {
            "fit": name, "what": what, "calls": count.calls, "GB read": count.bytes / 1e9,
            "Gflop": count.operations / 1e9, "least s": count.seconds, "s": "", "times the least": "",
        }  # fmt: skip
    yield {
        "fit": name, "what": "all", "calls": sum(count.calls for count in counts.values()),
        "GB read": sum(count.bytes for count in counts.values()) / 1e9,
        "Gflop": sum(count.operations for count in counts.values()) / 1e9,
        "least s": total, "s": seconds, "times the least": seconds / total,
    }  # fmt: skip


if __name__ == "__main__":
    main()
