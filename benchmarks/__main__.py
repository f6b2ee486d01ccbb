"""Run every benchmark, each in a process of its own, and keep all results: `python -m benchmarks [topic ...]`.

A topic is the end of a file's name: `python -m benchmarks gap grid` runs bench_gap.py and bench_grid.py. What the file
that MARGINDIST_RESULTS names (`benchmarks/results.json` if it is not set) has already stays until it is measured again.
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
data_folder()
for topic in sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py")):
    print(f"\n# bench_{topic}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.bench_{topic}"], check=False)
