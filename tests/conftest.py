"""Shared fixtures, and a compilation cache that can never be stale."""

import hashlib
import os
import tempfile
from pathlib import Path

# Numba's disk cache watches only the file of the outermost function: after an edit of objectives.py a cached solver
# would silently run the old formula. Naming the cache after a hash of all sources rules that out. This must happen
# before numba is imported, hence at the top of the file and not in a fixture.
_PACKAGE = Path(__file__).parent.parent / "margindist"
_HASH = hashlib.sha256()
for _path in sorted(_PACKAGE.rglob("*.py")):
    _HASH.update(_path.read_bytes())
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"margindist-numba-{_HASH.hexdigest()[:16]}")
)

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(0)
