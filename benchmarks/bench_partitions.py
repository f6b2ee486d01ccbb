"""Rows in partitions, in one process: `python -m benchmarks.bench_partitions [name ...]`.

Names are data sets, ``NAME*K`` (its rows K times), or ``generated:N`` (N rows of 50 float32 columns); by default
covtype, mnist, a9a*100 and generated:5000000. LDM and ODM are fitted with one thread and with two. Processor time tells
what a fit costs whatever else the machine does. The *path* adds up, over the rounds, what the busier of two threads
would have to do if each took the next partition as soon as it is free, by the processor time that each partition took,
and what the solver does between rounds: on two idle cores a fit with two threads takes about that long. Sweeps are the
rows of the working set (ODM: all rows) in each round, added up, over the number of rows; looks at the rows outside of
it, one score each, are not counted. A first table says what two threads give for the inner loops alone: memory, caches
and cores that are shared let no fit gain more.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp

from benchmarks._measure import load, table
from margindist import LDMClassifier, ODMClassifier
from margindist.spaces.partitions import LocalPlace
from margindist.spaces.rows import _add_product, add_rows, as_rows, gram, scores

MODELS = {
    "LDM": lambda n_jobs: LDMClassifier(C=1.0, n_jobs=n_jobs, random_state=0),
    "ODM": lambda n_jobs: ODMClassifier(lam=2.0**10, n_jobs=n_jobs, random_state=0),
}


def find(name):
    if name.startswith("generated:"):
        n_rows = int(name.partition(":")[2])
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n_rows, 50), dtype=np.float32)
        y = X @ rng.standard_normal(50, dtype=np.float32) + 5.0 * rng.standard_normal(n_rows, dtype=np.float32) > 0
        return X, np.where(y, 1.0, -1.0)
    base, _, times = name.partition("*")
    X, y = load(base)
    if times:
        X = sp.vstack([X] * int(times), format="csr") if sp.issparse(X) else np.tile(X, (int(times), 1))
        y = np.tile(y, int(times))
    return X, y


class Watch:
    """Measures rounds: processor time by thread, and the rows that they work on."""

    def __enter__(self):
        self.partitions, self.rounds, self.rows, self.path, self.inside = 0, 0, 0, 0.0, 0.0
        self.before = LocalPlace._work, LocalPlace.nodes
        self.lock = threading.Lock()
        work, nodes = self.before

        def timed_work(place, index, loaded, requests):
            start = time.thread_time()
            records = work(place, index, loaded, requests)
            with self.lock:
                self.times[index] = time.thread_time() - start
                self.rows += sum(self._worked_on(place._parts[index, k]) for k, _ in requests)
            return records

        def timed_nodes(place, requests):
            self.times = {}
            found = nodes(place, requests)
            self.rounds += 1
            self.partitions = place.n_partitions
            self.inside += sum(self.times.values())
            threads = [0.0, 0.0]
            for _, seconds in sorted(self.times.items()):
                threads[threads[1] < threads[0]] += seconds
            self.path += max(threads)
            return found

        LocalPlace._work, LocalPlace.nodes = timed_work, timed_nodes
        return self

    @staticmethod
    def _worked_on(part):
        """Return how many rows a part's rounds see at the moment."""
        which = getattr(part, "_which", None)
        return len(part._weights) if which is None else len(which)

    def __exit__(self, *error):
        LocalPlace._work, LocalPlace.nodes = self.before


def fit(make, n_jobs, X, y):
    model = make(n_jobs)
    with Watch() as watch:
        wall, start = time.perf_counter(), time.process_time()
        model.fit(X, y)
        wall, spent = time.perf_counter() - wall, time.process_time() - start
    return model, wall, spent, watch


def measure(names):
    for name in names:
        X, y = find(name)
        few = slice(0, 3000)
        for label, make in MODELS.items():
            make(1).fit(X[few], y[few])  # compiles
            make(2).fit(X, y)  # memory that the system gives for the first time can be slow, whoever comes first
            one, wall_one, spent_one, first = fit(make, 1, X, y)
            two, wall_two, spent_two, second = fit(make, 2, X, y)
            path = second.path + spent_two - second.inside
            yield {
                "data": name,
                "rows": X.shape[0],
                "columns": X.shape[1],
                "model": label,
                "partitions": first.partitions,
                "iterations": one.n_iter_,
                "rounds": first.rounds,
                "sweeps": first.rows / X.shape[0],
                "gap": float(one.duality_gap_),
                "1 thread: processor s": spent_one,
                "wall s": wall_one,
                "2 threads: processor s": spent_two,
                "wall s ": wall_two,
                "path s": path,
                "speed-up": wall_one / wall_two,
                "speed-up by path": spent_one / path,
                "same bits": bool(np.array_equal(one.coef_, two.coef_)),
            }


def machine_limits():
    """Yield what two threads of this machine give for a fit's own inner loops, with nothing of a solver around them."""
    rng = np.random.default_rng(0)
    halves = [as_rows(rng.random((300_000, 54))) for _ in range(2)]
    every, scales, out = np.arange(300_000), rng.random(300_000), np.empty((2, 300_000))
    blocks, products = [rng.random((2400, 54)) for _ in range(2)], np.zeros((2, 54, 54))
    w = rng.random(54)
    loops = {
        "Gram products of a block in the cache": lambda k: [
            _add_product(blocks[k], 1.0, products[k]) for _ in range(100)
        ],
        "Gram product of rows": lambda k: gram(halves[k], every, scales),
        "scores of rows": lambda k: scores(halves[k], w, out[k]),
        "sum of scaled rows": lambda k: add_rows(halves[k], every, scales, np.zeros(54)),
    }
    with ThreadPoolExecutor(2) as pool:
        for name, loop in loops.items():
            list(pool.map(loop, range(2)))
            one, two = np.inf, np.inf
            for _ in range(10):
                start = time.perf_counter()
                loop(0)
                one = min(one, time.perf_counter() - start)
                start = time.perf_counter()
                list(pool.map(loop, range(2)))
                two = min(two, time.perf_counter() - start)
            yield {"loop": name, "one thread ms": 1e3 * one, "twice the work, two threads ms": 1e3 * two,
                   "speed-up": 2.0 * one / two}  # fmt: skip


def main():
    names = sys.argv[1:] or ["covtype", "mnist", "a9a*100", "generated:5000000"]
    table("What two threads of this machine give", machine_limits())
    table("Rows in partitions in memory, one and two threads", measure(names))


if __name__ == "__main__":
    main()
