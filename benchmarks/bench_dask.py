"""Fits on a Dask cluster: `python -m benchmarks.bench_dask [section ...] [--rows N]`; needs no data.

Sections (all by default):

workers     two workers with one thread each against one, on 50 float32 columns generated on the workers
rounds      what a round costs that does nothing, and bytes moved by a fit beside what its sums need
sizes       time against rows, one worker and two
growth      1 to 4 workers with the same number of rows on each
peers       dask-ml, SGDClassifier.partial_fit over partitions, xgboost.dask: time and distance to the optimum
paper       10^9 rows, 100 columns, 100 workers, on paper: rounds, bytes and latency from the assumptions printed

Workers are processes of this machine. "wall" is elapsed time, which other programs disturb and which cannot fall where
there are more workers than free processors; "path" is the critical path in processor time: the client's and that of the
busiest worker, which is what a fit takes where every worker has a processor of its own.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import pickle
import time
import warnings
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import margindist.dask
from benchmarks._measure import table
from margindist import LDMClassifier, ODMClassifier
from margindist.dask import persist
from margindist.spaces.cluster import ClusterPlace
from margindist.spaces.partitions import Round

COLUMNS = 50
MODELS = {
    "LDM": LDMClassifier(C=1.0, lambda1=100.0, lambda2=100.0),
    "SVM": LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0),
    "ODM": ODMClassifier(lam=1e4),
}


# ---------------------------------------------------------------------- data and measures


def generate(n_rows, n_columns, n_chunks):
    """Return lazy rows and labels: overlapping classes, made by the workers from a seed per chunk."""
    sizes = tuple(len(part) for part in np.array_split(np.arange(n_rows), n_chunks))
    seeds = da.arange(n_chunks, chunks=1)
    X = seeds.map_blocks(_rows, sizes, n_columns, dtype=np.float32, new_axis=1, chunks=(sizes, (n_columns,)))
    y = da.map_blocks(_labels, X, dtype=np.int8, drop_axis=1, chunks=(sizes,))
    return X, y


def _rows(seed, sizes, n_columns):
    return np.random.default_rng(int(seed[0])).random((sizes[int(seed[0])], n_columns), dtype=np.float32)


def _labels(X):
    direction = np.cos(np.arange(X.shape[1]), dtype=np.float32)
    noise = np.random.default_rng(len(X)).normal(size=len(X)).astype(np.float32)
    return ((X - 0.5) @ direction + 0.3 * noise > 0).astype(np.int8)


@contextmanager
def cluster(n_workers):
    """Yield a client of so many processes with one thread each."""
    settings = {"distributed.worker.multiprocessing-method": "forkserver", "distributed.comm.timeouts.connect": "120s"}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=None, memory_limit=0, silence_logs=50
        ) as made,
        Client(made, timeout=120) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


class CountingPlace(ClusterPlace):
    """A place that counts rounds, bytes sent and received, and the bytes that the reduced sums alone would take."""

    def __init__(self, *args):
        super().__init__(*args)
        CountingPlace.last = self
        self.rounds, self.moved, self.needed = 0, 0, 0

    def run(self, requests):
        self.rounds += 1
        records = super().run(requests)
        self.needed += len(self._shares) * (_size(requests) + _size(records))
        return records

    def _ask(self, *calls):
        answers = super()._ask(*calls)
        self.moved += len(self._shares) * _size(calls) + sum(map(_size, answers))
        return answers


def _size(value):
    return len(pickle.dumps(value, protocol=5))


def measured(client, model, X, y):
    """Fit; return the row of a table."""
    margindist.dask.ClusterPlace = CountingPlace
    before, start, here = client.run(time.process_time), time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    wall, driver = time.perf_counter() - start, time.process_time() - here
    work = [after - before[address] for address, after in client.run(time.process_time).items()]
    place = CountingPlace.last
    return {
        "wall s": wall,
        "path s": max(work) + driver,
        "client s": driver,
        "iterations": int(model.n_iter_),
        "rounds": place.rounds,
        "certified gap": float(np.max(model.duality_gap_)),
        "MB moved": place.moved / 1e6,
        "times the sums": place.moved / max(1, place.needed),
    }


def warm_up(client):
    """Compile everything on all workers."""
    X, y = generate(30_000 * len(client.nthreads()), COLUMNS, 2 * len(client.nthreads()))
    for model in MODELS.values():
        measured(client, model, X, y)


# ---------------------------------------------------------------------- sections


def workers(n_rows, found):
    """Yield a row per model and number of workers, on the same rows."""
    for n_workers in (1, 2):
        with cluster(n_workers) as client:
            warm_up(client)
            X, y = persist(*generate(n_rows, COLUMNS, 16))
            wait([X, y])
            for name, model in MODELS.items():
                row = measured(client, model, X, y)
                found.setdefault(name, []).append((n_workers, n_rows, row))
                one = found[name][0][2]
                yield {
                    "model": name,
                    "workers": n_workers,
                    "rows": n_rows,
                    **row,
                    "wall: times faster": one["wall s"] / row["wall s"],
                    "path: times faster": one["path s"] / row["path s"],
                }


class _Nothing:
    """A part that does nothing."""

    def __init__(self, rows, targets, weights):
        pass

    def nothing(self, rows, w):
        return {"sum": w}


def rounds():
    """Yield what a round without work costs, by the size of what is sent and returned."""
    with cluster(2) as client:
        X, y = generate(1000, 3, 4)
        place = margindist.dask.DaskPartitions(X, client=client).place(y)
        place.open(_Nothing, [()])
        for numbers in (1, 100, 100 * 100, 1000 * 1000):
            w = np.zeros(numbers)
            place.run([(0, Round("nothing", (w,)))])
            spent = []
            for _ in range(100 if numbers < 10**6 else 10):
                start, here = time.perf_counter(), time.process_time()
                place.run([(0, Round("nothing", (w,)))])
                spent.append((time.perf_counter() - start, time.process_time() - here))
            wall, driver = 1e3 * np.array(spent).T
            yield {
                "numbers sent and returned": numbers,
                "wall ms, median": float(np.median(wall)),
                "wall ms, least": float(wall.min()),
                "client and scheduler ms": float(np.median(driver)),
            }
        place.close()


def growth(per_worker):
    """Yield a row per number of workers, with equal rows on each."""
    for n_workers in (1, 2, 4):
        with cluster(n_workers) as client:
            warm_up(client)
            X, y = persist(*generate(per_worker * n_workers, COLUMNS, 4 * n_workers))
            wait([X, y])
            row = measured(client, MODELS["LDM"], X, y)
            yield {"workers": n_workers, "rows": per_worker * n_workers, **row}


def peers(n_rows):
    """Yield time and distance to the optimum of what else there is, on two workers; a constant column is in X."""
    with cluster(2) as client:
        warm_up(client)
        X, y = generate(n_rows, COLUMNS - 1, 16)
        X = da.concatenate([X, da.ones((n_rows, 1), chunks=(X.chunks[0], 1), dtype=np.float32)], axis=1)
        X, y = persist(X.rechunk({1: -1}), y)
        wait([X, y])
        rows, signs = np.asarray(X.compute(), dtype=np.float64), 2.0 * np.asarray(y.compute()) - 1.0
        hinge = LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0, fit_intercept=False, tol=1e-9).fit(rows, signs)
        least = {
            "hinge": _hinge(rows, signs, hinge.coef_.ravel()),
            "logistic": _logistic(rows, signs, _newton(rows, signs, 1.0), 1.0),
            "logistic, no penalty": _logistic(rows, signs, _newton(rows, signs, 0.0), 0.0),
            "logistic, free bias": _logistic(rows, signs, _newton(rows, signs, 1.0, free=True), 1.0, free=True),
        }
        values = {
            "hinge": lambda w: _hinge(rows, signs, w),
            "logistic": lambda w: _logistic(rows, signs, w, 1.0),
            "logistic, no penalty": lambda w: _logistic(rows, signs, w, 0.0),
            "logistic, free bias": lambda w: _logistic(rows, signs, w, 1.0, free=True),
        }
        for name, loss, fit in _contestants(client):
            start, here, before = time.perf_counter(), time.process_time(), client.run(time.process_time)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    w = np.ravel(fit(X, y))
            except Exception as error:  # a peer that fails is a line of the table
                yield _line(name, loss, np.nan, np.nan, np.nan, f"{type(error).__name__}: {str(error)[:60]}")
                continue
            wall, driver = time.perf_counter() - start, time.process_time() - here
            work = [after - before[address] for address, after in client.run(time.process_time).items()]
            yield _line(name, loss, wall, sum(work) + driver, values[loss](w) / least[loss] - 1.0, "")


def _line(name, loss, wall, processor, above, remark):
    return {
        "method": name,
        "its objective": loss,
        "wall s": wall,
        "processor s": processor,
        "above its optimum": above,
        "remark": remark,
    }


def _contestants(client):
    """Yield name, loss and a function from rows and labels to weights."""
    import xgboost.dask
    from dask_ml.linear_model import LogisticRegression
    from sklearn.linear_model import SGDClassifier

    svm = LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0, fit_intercept=False)
    yield "margindist, tol=1e-4", "hinge", lambda X, y: svm.fit(X, y).coef_
    exact = LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0, fit_intercept=False, tol=1e-8)
    yield "margindist, tol=1e-8", "hinge", lambda X, y: exact.fit(X, y).coef_

    def sgd(n_passes):
        def fit(X, y):
            model = SGDClassifier(alpha=1.0 / X.shape[0], fit_intercept=False, random_state=0)
            for _ in range(n_passes):
                for rows, labels in zip(X.to_delayed().ravel(), y.to_delayed(), strict=True):
                    model.partial_fit(*dask.compute(rows, labels), classes=[0, 1])
            return model.coef_

        return fit

    for n_passes in (1, 10):
        yield f"SGDClassifier.partial_fit, passes: {n_passes}", "hinge", sgd(n_passes)
    for solver in ("lbfgs", "admm", "proximal_grad", "newton", "gradient_descent"):
        loss = "logistic, no penalty" if solver in ("newton", "gradient_descent") else "logistic"
        model = LogisticRegression(solver=solver, C=1.0, fit_intercept=False)
        yield f"dask-ml {solver}", loss, lambda X, y, model=model: model.fit(X, y).coef_

    def booster(X, y):
        weight = 1.0 / X.shape[0]  # xgboost multiplies the penalty by the number of rows
        params = {"booster": "gblinear", "objective": "binary:logistic", "lambda": weight, "updater": "coord_descent"}
        data = xgboost.dask.DaskDMatrix(client, X[:, :-1], y)
        trained = xgboost.dask.train(client, params, data, num_boost_round=100)["booster"]
        dump = trained.get_dump()[0].split()
        numbers = np.array([float(word) for word in dump if word[-1].isdigit()])
        return np.append(numbers[1:], numbers[0])  # the bias comes first

    yield "xgboost.dask gblinear, 100 rounds", "logistic, free bias", booster


def _hinge(X, signs, w):
    return 0.5 * w @ w + np.maximum(0.0, 1.0 - signs * (X @ w)).sum()


def _logistic(X, signs, w, penalty, free=False):
    kept = w[:-1] if free else w
    return 0.5 * penalty * kept @ kept + np.logaddexp(0.0, -signs * (X @ w)).sum()


def _newton(X, signs, penalty, free=False):
    """Return the optimum of logistic regression, to rounding."""
    w, ridge = np.zeros(X.shape[1]), np.full(X.shape[1], penalty)
    if free:
        ridge[-1] = 0.0
    for _ in range(50):
        share = 1.0 / (1.0 + np.exp(signs * (X @ w)))
        gradient = ridge * w - X.T @ (signs * share)
        hessian = (X * (share * (1.0 - share))[:, None]).T @ X + np.diag(ridge + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        w -= step
        if step @ gradient < 1e-18 * len(signs):
            break
    return w


def paper(found):
    """Yield what a fit takes on a large cluster, and from which assumptions."""
    rows, columns, n_workers, threads = 10**9, 100, 100, 8
    latency, bandwidth = 10e-3, 1e9
    _, m, row = found["LDM"][0]
    iterations, n_rounds = row["iterations"], row["rounds"]
    per_row = (row["path s"] - row["client s"]) / m
    scale = ((columns + 1) / (COLUMNS + 1)) ** 2
    per_iteration = n_workers * 8 * ((columns + 3) ** 2 + 3 * 4 * (columns + 1))
    compute = per_row * scale * rows / (n_workers * threads)
    transfer = iterations * per_iteration / bandwidth
    waiting = n_rounds * latency
    measured_here = f"measured on {m:,} rows x {COLUMNS} columns; hardly grows with the rows"
    for what, value, unit, why in (
        ("rounds", n_rounds, "", measured_here),
        ("iterations", iterations, "", measured_here),
        ("rows in memory", rows / n_workers * columns * 4 / 1e9, "GB per worker", "float32"),
        ("state of the rows", rows / n_workers * 40 / 1e9, "GB per worker", "40 bytes per row"),
        ("sums", per_iteration / 1e6, "MB per iteration", "a matrix of all columns per worker, and twelve vectors"),
        ("computing", compute, "s", f"{threads} threads per worker as fast as here, work as the square of the columns"),
        ("transfer", transfer, "s", f"all records through one client at {bandwidth / 1e9:.0f} GB/s"),
        ("latency", waiting, "s", f"{latency * 1e3:.0f} ms per round"),
        ("together", compute + transfer + waiting, "s", ""),
    ):
        yield {"what": what, "how much": float(value), "unit": unit, "assumption": why}


def sizes(most):
    """Yield fits of more and more rows, by one worker and by two."""
    for n_workers in (1, 2):
        with cluster(n_workers) as client:
            warm_up(client)
            for n_rows in (most // 256, most // 64, most // 16, most // 4):
                X, y = persist(*generate(n_rows, COLUMNS, 16))
                wait([X, y])
                for name in ("LDM", "ODM"):
                    fit = f"{name}, {n_workers} worker{'s' * (n_workers > 1)}"
                    row = {"fit": fit, "rows": n_rows}
                    found = measured(client, MODELS[name], X, y)
                    yield row | {key: found[key] for key in ("wall s", "path s", "rounds", "certified gap")}
                del X, y


SECTIONS = ("workers", "rounds", "sizes", "growth", "peers", "paper")


def main():
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="section", default=[])
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the section workers")
    parser.add_argument("--peer-rows", type=int, default=200_000)
    asked = parser.parse_args()
    asked.sections = asked.sections or SECTIONS
    found = {}
    if "workers" in asked.sections or "paper" in asked.sections:
        table("Two Dask workers against one", workers(asked.rows, found))
    if "rounds" in asked.sections:
        table("A round without work, two Dask workers", rounds())
    if "sizes" in asked.sections:
        table("Time against rows, one and two Dask workers", sizes(asked.rows))
    if "growth" in asked.sections:
        table("The same number of rows on every Dask worker, LDM", growth(asked.rows // 10))
    if "peers" in asked.sections:
        table("Beside what else there is on Dask, two workers", peers(asked.peer_rows))
    if "paper" in asked.sections:
        table("On paper: 1e9 rows x 100 columns on 100 workers", paper(found))


if __name__ == "__main__":
    main()
