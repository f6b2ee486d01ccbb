"""LIBSVM text and CSV beside the usual readers: `python -m benchmarks.bench_reading [megabytes]`.

Generated files. LIBSVM text: values with four decimals in 50,000 columns, and ones in 300 columns, about the shortest
entries there are and so the most numbers per byte; scikit-learn reads them too. CSV, of a quarter of the size: doubles
with all their digits in 20 columns; a mixture of numbers, text of few and of many different values, and gaps; and one
with an identifier that is text and a date. pandas, pyarrow and, if it is installed, polars read them too. Seconds are
those of all processors together, the best of three; the peak is the growth of resident memory.
"""

import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow import csv as arrow_csv
from sklearn.datasets import load_svmlight_file

from benchmarks._measure import memory_growth, table
from margindist.datasets import read_file


def write_svmlight(path, megabytes, n_columns, decimals):
    rng = np.random.default_rng(0)
    lines = []
    for label in rng.integers(0, 2, 500):
        columns = np.sort(rng.choice(n_columns, 80, replace=False)) + 1
        values = [f"{value:.4f}" for value in rng.random(80)] if decimals else ["1"] * 80
        lines.append(f"{label} " + " ".join(f"{k}:{value}" for k, value in zip(columns, values, strict=True)))
    repeat("", "\n".join(lines) + "\n", path, megabytes)


def write_numbers(path, megabytes):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((20_000, 20))).add_prefix("x").assign(y=rng.integers(0, 2, 20_000))
    repeat(",".join(frame.columns) + "\n", frame.to_csv(index=False, header=False), path, megabytes)


def write_mixture(path, megabytes):
    rng = np.random.default_rng(0)
    rows = 100_000
    frame = pd.DataFrame(
        {
            "width": rng.standard_normal(rows).round(4),
            "count": rng.integers(0, 1000, rows),
            "colour": rng.choice(["red", "light blue", "it's, well"], rows),
            "name": [f"name {k}" for k in rng.integers(0, 20_000, rows)],
            "price": rng.lognormal(3, 1, rows).round(2),
            "kind": rng.choice(["a", "b", "c"], rows),
        }
    )
    frame.loc[rng.random(rows) < 0.05, "width"] = np.nan
    repeat(",".join(frame.columns) + "\n", frame.to_csv(index=False, header=False), path, megabytes)


def write_dates(path, megabytes):
    rng = np.random.default_rng(0)
    rows = int(megabytes * 1e6 / 60) + 1
    frame = pd.DataFrame(
        {
            "id": [f"user-{k:08d}" for k in rng.permutation(rows)],
            "day": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3650, rows), "D"),
            "width": rng.standard_normal(rows),
            "count": rng.integers(0, 1000, rows),
            "city": rng.choice(["Rome", "Paris", "Berlin"], rows),
            "kind": rng.choice(["a", "b"], rows),
        }
    )
    frame.loc[rng.random(rows) < 0.05, ["width", "city"]] = None
    frame.to_csv(path, index=False)


def repeat(head, block, path, megabytes):
    with open(path, "w") as file:
        file.write(head)
        for _ in range(int(megabytes * 1e6 / len(block)) + 1):
            file.write(block)


def measure(read, path):
    """Return MB per second, the best of three calls, and the peak of the first as a share of the file's size."""
    size = path.stat().st_size
    _, growth = memory_growth(lambda: read(path))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        read(path)
        seconds.append(time.process_time() - start)
    return size / 1e6 / min(seconds), growth * 2**20 / size


def peers(kind):
    """Return the other readers of a kind of file, by name."""
    if kind.startswith("svm"):
        return {"load_svmlight_file": lambda path: load_svmlight_file(str(path))}
    found = {"pandas.read_csv": pd.read_csv, "pyarrow.csv.read_csv": arrow_csv.read_csv}
    if find_spec("polars") is not None:
        import polars

        found["polars.read_csv"] = polars.read_csv
    return found


def main(megabytes):
    with tempfile.TemporaryDirectory() as folder:
        cases = (
            ("svm, four decimals", lambda path, size: write_svmlight(path, size, 50_000, True), 1.0),
            ("svm, ones", lambda path, size: write_svmlight(path, size, 300, False), 1.0),
            ("csv, numbers", write_numbers, 0.25),
            ("csv, mixture", write_mixture, 0.25),
            ("csv, id and dates", write_dates, 0.25),
        )
        rows = []
        for kind, write, share in cases:
            path = Path(folder, f"long.{kind[:3]}")
            write(path, share * megabytes)
            size = path.stat().st_size / 1e6
            for reader, read in {"read_file": read_file, **peers(kind)}.items():
                speed, peak = measure(read, path)
                rows.append({"file": kind, "MB": size, "reader": reader, "MB/s": speed, "peak / file": peak})
    table("Reading files", rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
