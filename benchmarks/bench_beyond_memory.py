"""Rows in files larger than memory: `python -m benchmarks.bench_beyond_memory [gigabytes] [limit] [folder]`.

Generated rows (100 columns of float32, two overlapping classes) in one NPY file and in a folder of Parquet files, each
of that many gigabytes (3), are fitted in a process of its own whose address space is limited (to 1.5 GB: what is beyond
is an error of the system, not a slow fit), with ``memory`` at five sixths of that. Beside the time is what the passes
alone would take: passes times the time that reading and decoding all parts once takes in the same process, before the
fit. The in-memory fit of a sixth of the rows, in a process without a limit, gives the scale. Files are deleted in the
end.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._measure import table

N_COLUMNS = 100
# Arrow's own allocator and additional arenas of the C library reserve address space that they do not use.
_SPARING = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1"}
CHUNK = 1 << 17  # rows written at a time: a row group of 52 MB
MODELS = {
    "ODM": ("ODMClassifier", {"tol": 1e-4}),
    "LDM": ("LDMClassifier", {"C": 1e-4, "lambda1": 1.0, "lambda2": 1.0, "tol": 1e-4}),
}


def chunks(n_rows):
    """Yield X and y, float32 and int8; the classes overlap by a tenth."""
    weights = np.random.default_rng(0).standard_normal(N_COLUMNS).astype(np.float32) / 10.0
    for number, first in enumerate(range(0, n_rows, CHUNK)):
        rng = np.random.default_rng([1, number])
        X = rng.standard_normal((min(CHUNK, n_rows - first), N_COLUMNS), dtype=np.float32)
        noise = 0.3 * rng.standard_normal(len(X), dtype=np.float32)
        yield X, (X @ weights + noise > 0.0).astype(np.int8)


def write(folder, n_rows):
    """Write the rows in both formats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X_file = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n_rows, N_COLUMNS))
    labels = np.empty(n_rows, dtype=np.int8)
    (folder / "table").mkdir()
    first = 0
    for number, (X, y) in enumerate(chunks(n_rows)):
        X_file[first : first + len(X)], labels[first : first + len(X)] = X, y
        first += len(X)
        columns = {f"x{k}": np.ascontiguousarray(X[:, k]) for k in range(N_COLUMNS)}
        file = folder / "table" / f"part-{number // 16:04}.parquet"
        if number % 16 == 0:
            writer = pq.ParquetWriter(
                file, pa.table({**columns, "y": y}).schema, compression="none", use_dictionary=False
            )
        writer.write_table(pa.table({**columns, "y": y}))
        if number % 16 == 15 or first == n_rows:
            writer.close()
    X_file.flush()
    np.save(folder / "y.npy", labels)


def open_rows(folder, form, memory):
    """Return the partitions of one of the two formats."""
    from margindist.datasets import Partitions

    if form == "npy":
        return Partitions.from_npy(folder / "X.npy", folder / "y.npy", memory=memory)
    return Partitions.from_parquet(folder / "table", "y", memory=memory)


def fit_in_parts(folder, form, model, limit):
    """Fit under the limit, in this process; print what was measured."""
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    rows = open_rows(folder, form, int(limit * 5 / 6))
    estimator = made(model)
    compile_first(estimator)
    start = time.perf_counter()
    for i in range(rows.n_partitions):
        rows[i]
    reading = time.perf_counter() - start
    loads = [0]
    read = rows._source.read

    def counted(i):
        loads[0] += 1
        return read(i)

    rows._source.read = counted
    begun, worked = time.perf_counter(), time.process_time()
    estimator.fit(rows)
    seconds, processor = time.perf_counter() - begun, time.process_time() - worked
    print(json.dumps({
        "parts": rows.n_partitions, "passes": loads[0] / rows.n_partitions, "one pass": reading, "fit": seconds,
        "processor": processor, "gap": estimator.duality_gap_, "iterations": int(estimator.n_iter_),
        "coef": estimator.coef_.tolist(), "objective": estimator.objective_, **peaks(),
    }))  # fmt: skip


def fit_in_memory(folder, model):
    """Fit the first sixth in memory."""
    X = np.load(folder / "X.npy", mmap_mode="r")
    X, y = np.array(X[: len(X) // 6]), np.load(folder / "y.npy")[: len(X) // 6]
    estimator = made(model)
    compile_first(estimator)
    begun = time.perf_counter()
    estimator.fit(X, y)
    print(json.dumps({"fit": time.perf_counter() - begun, "gap": estimator.duality_gap_, **peaks()}))


def made(model):
    import margindist

    name, parameters = MODELS[model]
    return getattr(margindist, name)(**parameters)


def compile_first(estimator):
    """Fit a few rows, in memory and in parts, so that no compilation is timed."""
    from sklearn.base import clone

    from margindist.datasets import Partitions

    X, y = next(chunks(3000))
    clone(estimator).fit(X, y)
    clone(estimator).fit(Partitions.from_arrays(X, y, rows_per_partition=1000))


def peaks():
    """Return the most memory and address space that this process had, in GB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {"resident": int(status["VmHWM"].split()[0]) / 1e6, "address space": int(status["VmPeak"].split()[0]) / 1e6}


def in_child(*arguments):
    """Run this file's function in a process of its own; return what it printed."""
    command = [sys.executable, "-m", "benchmarks.bench_beyond_memory", *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **_SPARING})
    if found.returncode:
        sys.exit(f"{' '.join(command)}\n{found.stderr}")
    return json.loads(found.stdout.splitlines()[-1])


def results(folder, gigabytes, limit):
    """Yield one row of the table per model and format, as soon as it is measured; sizes are in GB."""
    for model in MODELS:
        small = in_child("--memory", folder, model)
        yield {
            "GB": gigabytes / 6, "limit GB": "",
            "model": model, "rows in": "memory, a sixth", "parts": 1, "passes": "", "one pass s": "",
            "fit s": small["fit"], "fit / passes": "", "gap": small["gap"], "resident GB": small["resident"],
            "address space GB": small["address space"],
        }  # fmt: skip
        for form in ("npy", "parquet"):
            found = in_child("--parts", folder, form, model, int(limit * 1e9))
            yield {
                "GB": gigabytes, "limit GB": limit,
                "model": model, "rows in": form, "parts": found["parts"], "passes": found["passes"],
                "one pass s": found["one pass"], "fit s": found["fit"],
                "fit / passes": found["fit"] / (found["passes"] * found["one pass"]), "gap": found["gap"],
                "resident GB": found["resident"], "address space GB": found["address space"],
            }  # fmt: skip


def main(gigabytes=3.0, limit=1.5, parent=None):
    n_rows = int(gigabytes * 1e9 / (4 * N_COLUMNS))
    free = shutil.disk_usage(parent or tempfile.gettempdir()).free
    if free < 2.5e9 * gigabytes:
        sys.exit(
            f"The files need {2.1 * gigabytes:.0f} GB of disk, and {free / 1e9:.0f} GB are free; name another folder."
        )
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        write(Path(folder), n_rows)
        table("Files larger than memory", results(folder, gigabytes, limit))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--parts"]:
        fit_in_parts(Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
    elif sys.argv[1:2] == ["--memory"]:
        fit_in_memory(Path(sys.argv[2]), sys.argv[3])
    else:
        main(*map(float, sys.argv[1:3]), *sys.argv[3:])
