"""LIBSVM text and CSV beside the usual readers: `python -m benchmarks.bench_reading [megabytes]`.

Generated files. LIBSVM text: values with four decimals in 50,000 columns, and ones in 300 columns, about the shortest
entries there are and so the most numbers per byte; scikit-learn reads them too. CSV, of a quarter of the size: doubles
with all their digits in 20 columns, and a mixture of numbers, text of few and of many different values, and gaps;
pandas reads them too. Seconds are of one processor; the peak is the growth of resident memory.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
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


def repeat(head, block, path, megabytes):
    with open(path, "w") as file:
        file.write(head)
        for _ in range(int(megabytes * 1e6 / len(block)) + 1):
            file.write(block)


def measure(read, path):
    """Return MB per second and the peak as a share of the file's size, of one call."""
    size = path.stat().st_size
    start = time.process_time()
    _, growth = memory_growth(lambda: read(path))
    return size / 1e6 / (time.process_time() - start), growth * 2**20 / size


def main(megabytes):
    with tempfile.TemporaryDirectory() as folder:
        cases = (
            ("svm, four decimals", lambda path, size: write_svmlight(path, size, 50_000, True), 1.0),
            ("svm, ones", lambda path, size: write_svmlight(path, size, 300, False), 1.0),
            ("csv, numbers", write_numbers, 0.25),
            ("csv, mixture", write_mixture, 0.25),
        )
        rows = []
        for kind, write, share in cases:
            path = Path(folder, f"long.{kind[:3]}")
            peer = load_svmlight_file if kind.startswith("svm") else pd.read_csv
            write(path, 0.1)
            read_file(path)  # compiles
            write(path, share * megabytes)
            for reader, read in (("read_file", read_file), (peer.__name__, lambda path, peer=peer: peer(str(path)))):
                speed, peak = measure(read, path)
                size = path.stat().st_size / 1e6
                rows.append({"file": kind, "MB": size, "reader": reader, "MB/s": speed, "peak / file": peak})
    table("Reading files", rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
