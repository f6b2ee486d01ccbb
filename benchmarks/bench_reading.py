"""LIBSVM text beside scikit-learn's reader: `python -m benchmarks.bench_reading [megabytes]`.

Two generated files: values with four decimals in 50,000 columns, and ones in 300 columns, about the shortest entries
there are and so the most numbers a byte. Seconds are of one processor; the peak is the growth of resident memory.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks._measure import memory_growth, table
from margindist.datasets import read_file


def write_file(path, megabytes, n_columns, decimals):
    rng = np.random.default_rng(0)
    lines = []
    for label in rng.integers(0, 2, 500):
        columns = np.sort(rng.choice(n_columns, 80, replace=False)) + 1
        values = [f"{value:.4f}" for value in rng.random(80)] if decimals else ["1"] * 80
        lines.append(f"{label} " + " ".join(f"{k}:{value}" for k, value in zip(columns, values, strict=True)))
    block = "\n".join(lines) + "\n"
    with open(path, "w") as file:
        for _ in range(int(megabytes * 1e6 / len(block)) + 1):
            file.write(block)


def measure(read, path):
    """Return MB a second and the peak as a share of the file's size, of one call."""
    size = path.stat().st_size
    start = time.process_time()
    _, growth = memory_growth(lambda: read(path))
    return size / 1e6 / (time.process_time() - start), growth * 2**20 / size


def main(megabytes):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.svm")
        write_file(small, 0.1, 1000, True)
        read_file(small)
        for kind, n_columns, decimals in (("four decimals", 50_000, True), ("ones", 300, False)):
            path = Path(folder, "long.svm")
            write_file(path, megabytes, n_columns, decimals)
            for reader, read in (
                ("read_file", read_file),
                ("load_svmlight_file", lambda p: load_svmlight_file(str(p))),
            ):
                speed, peak = measure(read, path)
                rows.append({"file": kind, "MB": megabytes, "reader": reader, "MB/s": speed, "peak / file": peak})
    table("Reading LIBSVM text", rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
