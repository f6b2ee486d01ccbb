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


def rounded(value: float, digits: int = 3, sign: bool = False) -> str:
    """Return a number to so many digits after the point; what rounds to zero has no sign.

    Examples
    --------
    >>> rounded(-0.0004), rounded(0.25, sign=True)
    ('0.000', '+0.250')
    """
    value = round(value, digits)
    if value == 0.0:
        return f"{0.0:.{digits}f}"
    return f"{value:{'+' if sign else ''}.{digits}f}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names as a list within a sentence; of more than so many, the rest is counted.

    Examples
    --------
    >>> listed(["LDM", "ODM", "SVC"])
    'LDM, ODM and SVC'
    """
    if len(names) > most + 1:  # "and 1 more" would be no shorter than its name
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


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
