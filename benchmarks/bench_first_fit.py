"""Seconds of a first fit in a new process: `python -m benchmarks.bench_first_fit [classifier ...]`; needs no data.

Imports, compiled code from Numba's cache, and a fit, as a user meets them; a LinearSVC in a process of its own is what
is asked of any library. All but the largest case are left to NumPy; its rows are too many for that, so it also waits
for Numba, whose import alone is a column. The first process of all begins with an empty cache and compiles what
it needs. Least processor and clock times since the process began, of processes that take turns; modules are those that
a process has in the end.
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks._measure import table

PROGRAM = """
import sys, time
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.preprocessing import scale
from {module} import {name}
X, y = {data}
{name}().fit(scale(X), y)
print(time.process_time(), len(sys.modules))
"""
IMPORT = """
import time, sklearn.svm
start = time.process_time()
import numba
print(time.process_time() - start, 0)
"""
CASES = {
    "breast cancer": "load_breast_cancer(return_X_y=True)",
    "5,000 x 30": "make_classification(5000, 30, random_state=0)",
    "20,000 x 30": "make_classification(20_000, 30, random_state=0)",
    "50,000 x 30": "make_classification(50_000, 30, random_state=0)",
    "100,000 x 30": "make_classification(100_000, 30, random_state=0)",
}
CLASSIFIERS = ("LDMClassifier", "ODMClassifier")


def measured(program, cache):
    """Run a program in a new process; return processor seconds, seconds by the clock, and how many modules it has."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    start = time.perf_counter()
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    clock = time.perf_counter() - start
    seconds, modules = printed.split()
    return float(seconds), clock, int(modules)


def row(name, case, repeats=5):
    """Return one row of the table."""
    ours = PROGRAM.format(module="margindist", name=name, data=CASES[case])
    theirs = PROGRAM.format(module="sklearn.svm", name="LinearSVC", data=CASES[case])
    with tempfile.TemporaryDirectory() as cache:
        cold, _, modules = measured(ours, cache)
        turns = [[measured(program, cache) for program in (ours, theirs, IMPORT)] for _ in range(repeats)]
    (seconds, clock, _), (peer, peer_clock, peer_modules), (numba, _, _) = np.min(turns, axis=0)
    return {
        "classifier": name, "data": case, "first fit s": seconds, "LinearSVC s": peer, "above it s": seconds - peer,
        "by the clock s": clock, "LinearSVC by the clock s": peer_clock, "above it by the clock s": clock - peer_clock,
        "import numba s": numba, "empty cache s": cold, "modules": modules, "of LinearSVC": int(peer_modules),
    }  # fmt: skip


if __name__ == "__main__":
    names = sys.argv[1:] or CLASSIFIERS
    table("First fit in a new process", (row(name, case) for case in CASES for name in names))
