"""Run every benchmark, each in a process of its own: `python -m benchmarks`."""

import subprocess
import sys
from pathlib import Path

from benchmarks._measure import data_folder

data_folder()
for path in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"\n# {path.stem}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{path.stem}"], check=False)
