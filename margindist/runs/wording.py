"""Times, parameters and tables as people read them."""

from collections.abc import Mapping, Sequence
from typing import Any

_UNITS = (("h", 3600.0, 5400.0), ("min", 60.0, 90.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("µs", 1e-6, 0.0))


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it, to three digits.

    Examples
    --------
    >>> [duration(seconds) for seconds in (0.00021, 0.0076, 41, 150, 5400)]
    ['210 µs', '7.6 ms', '41 s', '2.5 min', '1.5 h']
    """
    if seconds == 0.0:
        return "0 s"
    unit, length, _ = next(row for row in _UNITS if seconds >= row[2])
    rounded = float(f"{seconds / length:.3g}")
    return f"{rounded:g} {unit}"


def setting(parameters: Mapping[str, Any]) -> str:
    """Return parameters as people write them."""
    words = [
        f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in parameters.items()
    ]
    return ", ".join(words) or "no parameters to choose"


def aligned(lines: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Return a table for a terminal: columns as wide as they must be, flush right but for those in ``left``."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    texts = []
    for line in lines:
        cells = [
            cell.ljust(width) if k in left else cell.rjust(width) for k, (cell, width) in enumerate(zip(line, widths))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)
