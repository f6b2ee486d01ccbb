"""What pyproject.toml declares."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def _versions(requirements, sign):
    """Return the versions by name, as tuples of numbers without trailing zeros."""
    found = {}
    for requirement in requirements:
        name, version = requirement.split(sign)
        found[name.partition("[")[0]] = tuple(int(number) for number in re.sub(r"(\.0)+$", "", version).split("."))
    return found


def test_the_oldest_versions_tested_are_those_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    used = [project["dependencies"], *(extras[name] for name in ("plots", "onnx", "cli", "files", "dask", "test"))]
    declared = [_versions(requirements, ">=") for requirements in used]
    lines = (ROOT / "constraints" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    tested = _versions([line for line in lines if line and not line.startswith("#")], "==")
    for requirements in declared:
        for name, version in requirements.items():
            if name != "ruff":  # formats differ between versions; it runs in the newest
                assert tested[name] == version, name
