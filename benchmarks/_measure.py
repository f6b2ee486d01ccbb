"""What the benchmarks share: data, timing in turn, memory, tables, and the one file of results.

`table` prints rows and, where the environment variable MARGINDIST_RESULTS names a file, keeps them in it with the
command, the date, the machine and the versions. The documentation draws its benchmark pages from
`benchmarks/results.json`.
"""

import contextlib
import ctypes
import json
import os
import platform
import re
import signal
import sys
import time
import warnings
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import scipy.sparse as sp


def data_folder():
    """Return the folder that MARGINDIST_DATA names, or end with a sentence."""
    folder = os.environ.get("MARGINDIST_DATA")
    if not folder or not Path(folder).is_dir():
        sys.exit("Set MARGINDIST_DATA to the folder with the papers' data sets (NAME.npz).")
    return Path(folder)


def load(name):
    """Return (X, y) of a named problem: dense features scaled to [0, 1], sparse ones by their largest value.

    y is -1/+1: for more classes the largest against the rest. A suffix changes that: ``:multi`` keeps all classes,
    ``:half`` is the first half of the labels against the second, ``:one`` the first label against the rest,
    ``:firstN`` the first N rows, ``:raw`` leaves the features as they are stored.
    """
    base, _, form = name.partition(":")
    stored = np.load(data_folder() / f"{base}.npz", allow_pickle=False)
    y = stored["y"]
    if "X" in stored:
        X = stored["X"].astype(np.float64, order="C")
        if form != "raw":
            X -= X.min(axis=0)
            X /= np.where(X.max(axis=0) > 0, X.max(axis=0), 1)
    else:
        parts = stored["data"].astype(np.float64), stored["indices"], stored["indptr"]
        X = sp.csr_matrix(parts, shape=tuple(stored["shape"]))
        top = abs(X).max(axis=0).toarray().ravel()
        X = sp.csr_matrix(X @ sp.diags(1 / np.where(top > 0, top, 1)))
        X.sort_indices()
    if form.startswith("first"):
        X, y = X[: int(form[5:])], y[: int(form[5:])]
    labels, counts = np.unique(y, return_counts=True)
    if form == "multi":
        return X, np.searchsorted(labels, y)
    positive = y == labels[1]
    if form == "half":
        positive = np.isin(y, labels[: len(labels) // 2])
    elif form == "one":
        positive = y == labels[0]
    elif len(labels) > 2:
        positive = y == labels[counts.argmax()]
    return X, np.where(positive, 1.0, -1.0)


def in_turn(*functions, repeats=3, longest=20.0, clock=time.process_time):
    """Call functions one after the other, several times in turn; return each one's result and median seconds.

    A round that takes longer than ``longest`` seconds is not repeated. Seconds are processor time of all threads, which
    other programs on the machine disturb less than ``clock=time.perf_counter``.
    """
    times, results = [[] for _ in functions], [None] * len(functions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(repeats):
            for k, function in enumerate(functions):
                start = clock()
                results[k] = function()
                times[k].append(clock() - start)
            if sum(map(sum, times)) > longest:
                break
    return [(result, float(np.median(seconds))) for result, seconds in zip(results, times, strict=True)]


class TimeLimit(BaseException):
    """Something took longer than it may; nothing in a library catches it by accident."""


@contextlib.contextmanager
def time_limit(seconds):
    """Raise :class:`TimeLimit` in the block after so many seconds of processor time."""

    def stop(*_):
        raise TimeLimit

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except SystemError as error:  # compiled code was interrupted
        if isinstance(error.__cause__, TimeLimit):
            raise TimeLimit from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def memory_growth(function):
    """Return what a call returns and by how many MB the resident memory grew at its peak (Linux).

    What earlier calls left to the process for further use is given back to the system first.
    """

    def resident(field):
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024

    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    result = function()
    return result, resident("VmHWM") - before


def show(value):
    """Return a number in few characters."""
    if not isinstance(value, float):
        return str(value)
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.1e}"
    return f"{value:.3g}"


def table(title, rows):
    """Print dictionaries with the same keys as a Markdown table, each as soon as it is there; keep them if asked to."""
    print(f"\n## {title}\n", flush=True)
    kept = []
    for number, row in enumerate(rows):
        if number == 0:
            print("| " + " | ".join(row) + " |")
            print("|" + "---|" * len(row))
        print("| " + " | ".join(show(value) for value in row.values()) + " |", flush=True)
        kept.append(row)
        if os.environ.get("MARGINDIST_RESULTS"):  # at once: some rows take many minutes
            keep(Path(os.environ["MARGINDIST_RESULTS"]), title, kept)


def keep(path, title, rows):
    """Put a table into the file of results, in the place of an earlier one with the same title."""
    tables = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    module = sys.modules["__main__"].__spec__
    command = ["python", "-m", module.name if module else Path(sys.argv[0]).stem, *sys.argv[1:]]
    tables[slug(title)] = {
        "title": title,
        "command": " ".join(command),
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "rows": [{name: plain(value) for name, value in row.items()} for row in rows],
    }
    path.write_text(json.dumps(dict(sorted(tables.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def plain(value):
    """Return a NumPy number as Python's, and floats with the digits that a measurement has."""
    value = value.item() if isinstance(value, np.generic) else value
    return float(f"{value:.6g}") if isinstance(value, float) else value


def machine():
    """Return the processor, its number and the system, as far as the system tells."""
    processor = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        names = re.findall(r"^model name\s*: (.*)$", described.read_text(), flags=re.M)
        processor = names[0] if names else processor
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}"


def versions():
    found = {"Python": platform.python_version()}
    for package in ("margindist", "numpy", "scipy", "scikit-learn", "numba", "scikit-learn-intelex"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
