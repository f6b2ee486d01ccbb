"""Seconds of a first fit in a new process: `python -m benchmarks.bench_first_fit`; no data folder is needed.

Imports, compiled code from Numba's cache, and a fit of 200 rows, as a user meets them; a LinearSVC in a process of its
own is what is asked of any library. The first process of all compiles with an empty cache. Processor times since the
process began, medians of processes that take turns; the modules are those that a process has loaded in the end.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks._measure import table

PROGRAM = """
import sys, time
import numpy as np
from {module} import {name}
rng = np.random.default_rng(0)
X = rng.standard_normal((200, 10))
y = (X @ rng.standard_normal(10) > 0).astype(int)
{name}().fit(X, y)
print(time.process_time(), len(sys.modules))
"""
CLASSIFIERS = ("LDMClassifier", "ODMClassifier")


def seconds_and_modules(module, name, cache):
    """Run the program in a new process; return its seconds and how many modules it has loaded."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    program = PROGRAM.format(module=module, name=name)
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    seconds, modules = printed.split()
    return float(seconds), int(modules)


def row(name, repeats=5):
    with tempfile.TemporaryDirectory() as cache:
        cold, modules = seconds_and_modules("margindist", name, cache)
        pairs = [
            (
                seconds_and_modules("margindist", name, cache)[0],
                seconds_and_modules("sklearn.svm", "LinearSVC", cache)[0],
            )
            for _ in range(repeats)
        ]
        _, peer_modules = seconds_and_modules("sklearn.svm", "LinearSVC", cache)
    warm, peer = np.median(pairs, axis=0)
    return {
        "classifier": name, "first fit s": float(warm), "LinearSVC s": float(peer), "above it s": float(warm - peer),
        "empty cache s": cold, "modules": modules, "of LinearSVC": peer_modules,
    }  # fmt: skip


if __name__ == "__main__":
    table("First fit in a new process", (row(name) for name in CLASSIFIERS))
