"""Run every benchmark, each in a process of its own, and keep all results: `python -m benchmarks [topic ...]`.

A topic is the end of a file's name: `python -m benchmarks gap grid` runs bench_gap.py and bench_grid.py; sections of it
follow a colon, `kernel:few,many`. What the file that MARGINDIST_RESULTS names (`benchmarks/results.json` if it is not
set) has already stays until it is measured again.

Processes keep the memory they have had. A page that the system gives for the first time can cost more than the work
that is done on it, on virtual machines up to seconds per gigabyte, and falls on whichever fit comes first.
"""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks._measure import data_folder

HERE = Path(__file__).parent
os.environ.setdefault("MARGINDIST_RESULTS", str(HERE / "results.json"))
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MALLOC_MMAP_MAX_", "0")  # glibc's; others ignore them
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**40))
os.environ.setdefault("MALLOC_ARENA_MAX", "1")
data_folder()
for topic in sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py")):
    print(f"\n# bench_{topic}", flush=True)
    name, _, sections = topic.partition(":")
    subprocess.run([sys.executable, "-m", f"benchmarks.bench_{name}", *filter(None, sections.split(","))], check=False)
