"""What a comparison keeps of the data, of a cell and of a closer look, and how that becomes JSON and comes back."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_type_hints

Record = TypeVar("Record")


class PartMargins(NamedTuple):
    """Margins of the training or the test part: statistics, quantiles, and the mean distance to the boundary.

    The last is in the space where the method is linear, and None if it has not one weight vector per score.
    """

    statistics: Mapping[str, float]
    quantiles: Sequence[float]
    distance: float | None = None


class Margins(NamedTuple):
    """Normalised margins of both parts; the scale is the root mean square of those of training."""

    scale: float
    train: PartMargins
    test: PartMargins


class Influence(NamedTuple):
    """Every setting that was tried, as a column per parameter, and its mean inner score; None if it failed."""

    settings: Mapping[str, Sequence[Any]]
    scores: Sequence[float | None]


class CellDetail(NamedTuple):
    """What is measured of one method on one split.

    Parameters
    ----------
    scores : dict of str to float
    converged : bool
        Whether the final fit did.
    confusion : list of list of int
        Rows are true classes.
    margins : Margins
    rows : sequence of int
        Of the training part and of the test part.
    train_accuracy : float
    inner_score : float or None
        Of the chosen parameters; None if there were none to choose.
    influence : Influence
    warnings : sequence of str
    """

    scores: Mapping[str, float]
    converged: bool
    confusion: Sequence[Sequence[int]]
    margins: Margins
    rows: Sequence[int] = ()
    train_accuracy: float = float("nan")
    inner_score: float | None = None
    influence: Influence = Influence({}, ())
    warnings: Sequence[str] = ()


class LookDetail(NamedTuple):
    """What the closer look measures of one method on one split; empty where it cannot be measured.

    Parameters
    ----------
    learning : sequence of (int, float)
        Training rows, and the score after a fit to so many.
    calibration : sequence of sequence of float
        Rows, claimed probability and truth, summed in bins of the probability.
    log_loss : float
        Of these probabilities.
    importance, weights : dict of str to float
        Of the columns: the fall of the score when a column is shuffled, or the largest weight.
    roc, precision : sequence of float
        Curves at fixed rates.
    warnings : sequence of str
    """

    learning: Sequence[Sequence[float]]
    calibration: Sequence[Sequence[float]]
    log_loss: float
    importance: Mapping[str, float] = {}
    weights: Mapping[str, float] = {}
    roc: Sequence[float] = ()
    precision: Sequence[float] = ()
    warnings: Sequence[str] = ()


class About(NamedTuple):
    """The data in numbers, and what was decided before the first fit.

    Parameters
    ----------
    classes : dict of str to int
        Rows of every class.
    left_out : dict of str to str
        Why methods do not run, or perhaps not, by label.
    source : dict
        Where the data came from, as arguments of `compare`.
    origin : str or None
        The same in words.
    notes, encoding : list of str
        What readers should know of the data, and what is done to their columns.
    target : str
        Name of the target.
    costs : dict of str to float
        Seconds per split that pilot fits have foretold, by method.
    features : list of str
        Names of the columns.
    methods : list of str or None
        What was asked for.
    quick : bool
    numbers : dict
        Rows, columns, missing values and so on.
    """

    classes: Mapping[str, int]
    left_out: Mapping[str, str]
    source: Mapping[str, Any] = {}
    origin: str | None = None
    notes: Sequence[str] = ()
    encoding: Sequence[str] = ()
    target: str = "y"
    costs: Mapping[str, float] = {}
    features: Sequence[str] = ()
    methods: Sequence[str] | None = None
    quick: bool = False
    numbers: Mapping[str, Any] = {}


def plain(value: Any) -> Any:
    """Return a record, and those in it, as dictionaries."""
    if hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    return value


def read(kind: type[Record], values: Any) -> Record:
    """Return the record that :func:`plain` has made a dictionary of; a record is returned as it is."""
    if isinstance(values, kind):
        return values
    hints = _hints(kind)
    return kind(**{name: read(hints[name], part) if _is_record(hints[name]) else part for name, part in values.items()})


@cache
def _hints(kind):
    return get_type_hints(kind)


def _is_record(kind):
    return isinstance(kind, type) and hasattr(kind, "_fields")
