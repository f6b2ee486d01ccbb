"""The names that somebody who mistyped one may have meant."""

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

_LIKE = 0.6  # share of letters in common, as difflib counts it; below it, names that nobody meant come up
_PART = 3  # letters that a name contained in another one needs to count


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that are like one that does not exist, the likeliest first; case does not matter.

    A name is like another if the two share most of their letters in order, or one contains the other.

    Parameters
    ----------
    name : str
    known : iterable of str
        The names that exist.
    most : int
        How many to return at most.

    Returns
    -------
    list of str
        Empty if none is near.

    Examples
    --------
    >>> nearest("speces", ["length", "Species", "width", "type"])
    ['Species']
    >>> nearest("petal", ["length_of_petal", "sepal", "kind"])
    ['length_of_petal', 'sepal']
    """
    wanted = str(name).strip().casefold()
    likeness = {}
    for candidate in known:
        other = candidate.strip().casefold()
        contained = min(len(wanted), len(other)) >= _PART and (wanted in other or other in wanted)
        common = SequenceMatcher(None, wanted, other).ratio()
        if contained or common >= _LIKE:
            likeness[candidate] = common + 0.2 * contained
    return sorted(likeness, key=lambda candidate: -likeness[candidate])[:most]


def did_you_mean(name: str, known: Iterable[str], otherwise: str, show: Callable[[str], str] = str) -> str:
    """Return the end of a sentence: a question with the nearest names, or what to say where none is near.

    Parameters
    ----------
    name : str
    known : iterable of str
        The names that exist.
    otherwise : str
        Where to find them.
    show : callable
        How a name is written; ``repr`` for columns, which may have blanks.

    Examples
    --------
    >>> did_you_mean("lenght", ["length", "width"], "its columns are length, width.")
    'did you mean length?'
    >>> did_you_mean("colour", ["length", "width"], "its columns are length, width.")
    'its columns are length, width.'
    """
    near = nearest(name, known)
    return f"did you mean {' or '.join(map(show, near))}?" if near else otherwise
