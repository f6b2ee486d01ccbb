"""The names that somebody who mistyped one may have meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the names most like one that nobody has, the likeliest first; upper and lower case are alike.

    Parameters
    ----------
    name : str
    known : iterable of str
        The names there are.
    most : int
        How many to return.

    Examples
    --------
    >>> nearest("speces", ["length", "Species", "width", "type"], most=2)
    ['Species', 'type']
    """
    wanted = str(name).strip().casefold()

    def likeness(candidate):
        other = candidate.strip().casefold()
        within = bool(wanted and other) and (wanted in other or other in wanted)
        return SequenceMatcher(None, wanted, other).ratio() + 0.2 * within

    return sorted(dict.fromkeys(known), key=lambda candidate: -likeness(candidate))[:most]
