"""The names under which version 0.1 had :mod:`margindist.compare` and :mod:`margindist.runs`.

``from margindist.experiments.compare import compare`` still works, and so do the other documented modules.
"""

import sys
from importlib import import_module

_MOVED = {
    "compare": "compare",
    "runner": "runs.runner",
    "statistics": "runs.statistics",
    "store": "runs.store",
}

__path__: list[str] = []  # makes this module a package, whose submodules are those that follow
for _old, _new in _MOVED.items():
    sys.modules[f"{__name__}.{_old}"] = import_module(f"margindist.{_new}")
