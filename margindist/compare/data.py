"""The data of a comparison: where they come from, which columns take part, and what makes them look too good."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import recall_score
from sklearn.tree import DecisionTreeClassifier

from margindist.compare.splits import Blocks
from margindist.datasets import Dataset, catalogue, load, read_file, tidy
from margindist.datasets.dataset import check_labels, take_rows
from margindist.datasets.encoding import as_pandas, is_foreign
from margindist.suggestions import did_you_mean

_DAYS = "days since 1970"  # the part of a date that orders rows in time
_GROUP_NAME = re.compile(
    r"(.*[_ .-])?(id|subject|patient|person|user|customer|client|session|group|participant)([_ .-]?(id|no|nr))?",
    re.IGNORECASE,
)
_LEAKY = 0.99  # balanced accuracy by one column alone
_PROBED_ROWS = 4000
_FEWEST_PROBED = 40
_MOST_LISTED = 5


class Columns(NamedTuple):
    """Which columns of the data do what; names are those of the file, also for dates that became several columns.

    Parameters
    ----------
    drop : sequence of str
        Columns that are left out.
    only : sequence of str
        The only columns that are used, if any are named.
    groups : str or None
        Rows with the same value of this column are on one side of every split.
    time : str or None
        Test rows come after training rows by this column.
    """

    drop: Sequence[str] = ()
    only: Sequence[str] = ()
    groups: str | None = None
    time: str | None = None


class Data(NamedTuple):
    """A data set, where it came from in a form that the report turns into code, and what divides its rows."""

    dataset: Dataset
    source: dict[str, Any]
    blocks: Blocks


def find_data(
    data: Any, y: Any = None, target: str | None = None, data_dir: Any = None, encoding: str | None = None
) -> tuple[Dataset, dict[str, Any]]:
    """Return the data, and where they came from in a form that the report can turn into code."""
    if isinstance(data, Dataset):
        return data, {"kind": "arrays"}
    if isinstance(data, (str, os.PathLike)):
        return _named_data(os.fspath(data), target, data_dir, encoding)
    if is_foreign(data):
        data = as_pandas(data)
    if y is None and target is not None and hasattr(data, "columns"):
        if target not in data.columns:
            known = list(map(str, data.columns))
            raise ValueError(f"compare: there is no column {target!r}; {did_you_mean(target, known, _columns(known))}")
        data, y = data.drop(columns=[target]), data[target]
    if y is None:
        raise ValueError(
            "compare: features without labels; pass y as well, the name of their column in a data frame as target, a "
            "Dataset, a file or a name."
        )
    if hasattr(data, "iloc"):
        X = tidy(_dates_apart(data))
    else:
        X = data.tocsr() if sp.issparse(data) else np.asarray(data)
    if X.shape[0] != len(y):
        raise ValueError(f"compare: expected a label for each of the {X.shape[0]} rows of X, got {len(y)} labels.")
    y = check_labels(np.asarray(y), "compare", "y")
    names = tuple(map(str, getattr(X, "columns", ())))
    return Dataset("your data", X, y, names, target or "y"), {"kind": "arrays", "target": target}


def _dates_apart(frame):
    """Return a frame whose dates are the numbers that files give: days since 1970, year, month and so on."""
    from margindist.datasets.spelling import date_parts

    columns = {}
    for name in frame.columns:
        if frame[name].dtype.kind != "M":
            columns[name] = frame[name]
            continue
        naive = frame[name].dt.tz_localize(None) if getattr(frame[name].dt, "tz", None) is not None else frame[name]
        moments = naive.to_numpy(dtype="datetime64[s]")
        known = moments[~np.isnat(moments)]
        columns |= date_parts(name, moments, bool((known != known.astype("datetime64[D]")).any()))
    if len(columns) == frame.shape[1]:
        return frame
    return type(frame)(columns, index=frame.index)


def _named_data(path, target, data_dir, encoding):
    """Return what a file holds, or a data set of the catalogue."""
    if path == "-" or os.path.isfile(path) or _is_meant_as_file(path):
        source = {"kind": "file", "path": path, "target": target, "encoding": encoding}
        return read_file(path, target=target, encoding=encoding), source
    if target is not None:
        raise ValueError(f"{path} is a data set with a target of its own, so target cannot be {target!r}.")
    folder = None if data_dir is None else os.fspath(data_dir)
    return load(path, data_dir=data_dir), {"kind": "name", "name": path, "data_dir": folder}


def _is_meant_as_file(path):
    """Tell whether a name has an ending or a folder; but there are data sets like news20.binary."""
    return (Path(path).suffix or os.sep in path) and path not in {entry.name for entry in catalogue()}


def prepare(result: tuple[Dataset, dict[str, Any]], columns: Columns) -> Data:
    """Take the columns apart: those that are used, and the one that divides the rows.

    Parameters
    ----------
    found : (Dataset, dict)
        As :func:`find_data` returns it.
    columns : Columns
    """
    dataset, source = result
    if columns.groups is not None and columns.time is not None:
        raise ValueError("compare: groups and time divide the rows in two ways; choose one of them.")
    names = _names(dataset)
    notes = list(dataset.notes)
    blocks = _blocks(dataset, names, columns, notes)
    kept = _kept(names, columns)
    if not kept:
        raise ValueError("compare: no column is left to learn from; drop fewer columns.")
    X = dataset.X
    if len(kept) < len(names):
        if columns.drop or columns.only:
            notes.append(f"{len(kept)} of {len(names)} columns are used, as asked for.")
        X = X.iloc[:, kept] if hasattr(X, "iloc") else X[:, kept]
        used = tuple(names[k] for k in kept)
        dataset = Dataset(dataset.name, X, dataset.y, used, dataset.target_name, None, dataset.source, tuple(notes))
    elif len(notes) > len(dataset.notes):
        dataset = Dataset(
            dataset.name, X, dataset.y, dataset.feature_names, dataset.target_name, None, dataset.source, tuple(notes)
        )
    return Data(dataset, {**source, **_given(columns)}, blocks)


def _given(columns):
    return {name: value for name, value in columns._asdict().items() if value}


def _names(dataset):
    if hasattr(dataset.X, "columns"):
        return list(map(str, dataset.X.columns))
    names = list(map(str, dataset.feature_names))
    return names if len(names) == dataset.X.shape[1] else [f"column {k}" for k in range(dataset.X.shape[1])]


def _columns(names):
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"there are {', '.join(map(repr, names[:_MOST_LISTED]))}{more}."


def _belonging(names, wanted):
    """Return the numbers of the columns that were made of one: itself, or the parts of a date."""
    result = [k for k, name in enumerate(names) if name == wanted or name.startswith(f"{wanted} (")]
    if not result:
        raise ValueError(f"there is no column {wanted!r} to use; {did_you_mean(wanted, names, _columns(names))}")
    return result


def _kept(names, columns):
    """Return the numbers of the columns that are learned from."""
    kept = {k for wanted in columns.only for k in _belonging(names, wanted)} or set(range(len(names)))
    for wanted in (*columns.drop, columns.groups, columns.time):
        if wanted is not None:
            kept -= set(_belonging(names, wanted))
    return sorted(kept)


def _blocks(dataset, names, columns, notes):
    """Return what divides the rows, and say so."""
    if columns.groups is not None:
        values = _codes(dataset.X, _belonging(names, columns.groups)[0])
        notes.append(
            f"Rows with the same value of {columns.groups!r} ({len(np.unique(values))} values) are on one side of every"
            " split, and the column is not learned from."
        )
        return Blocks("groups", values)
    if columns.time is not None:
        places = _belonging(names, columns.time)
        parts = {names[k].removeprefix(f"{columns.time} (").removesuffix(")"): _codes(dataset.X, k) for k in places}
        values = parts.get(columns.time, parts.get(_DAYS))
        if values is None:
            raise ValueError(f"compare: the column {columns.time!r} has no order in time; name a date or a number.")
        if np.isnan(values).any():
            raise ValueError(f"compare: the column {columns.time!r} misses values, so its rows have no order in time.")
        notes.append(f"Test rows come after the training rows by {columns.time!r}, which is not learned from.")
        return Blocks("time", values)
    return Blocks()


def _codes(X, k):
    """Return a column as numbers; texts by their alphabetical order."""
    if hasattr(X, "iloc"):
        column = X.iloc[:, k]
        if column.dtype.kind in "iufb":
            return column.to_numpy(dtype=float)
        return np.unique(column.astype(object).map(str).to_numpy(), return_inverse=True)[1].astype(float)
    column = X[:, [k]].toarray().ravel() if sp.issparse(X) else X[:, k]
    return np.asarray(column, dtype=float)


def named_table(dataset: Dataset) -> Any:
    """Return the features with the names of their columns, by which the fitted model finds them again."""
    names = dataset.feature_names
    if hasattr(dataset.X, "columns") or sp.issparse(dataset.X) or not names or len(set(names)) < len(names):
        return dataset.X
    try:
        import pandas as pd
    except ImportError:
        return dataset.X
    return pd.DataFrame(dataset.X, columns=list(names))


# ---------------------------------------------------------------------- too good to be true


def suspicions(data: Data) -> list[str]:
    """Return sentences on what may make scores better than they will be on new rows.

    Parameters
    ----------
    data : Data
    """
    dataset = data.dataset
    if sp.issparse(dataset.X):
        return []
    names = _names(dataset)
    result = list(_date_notes(names))
    if data.blocks.kind is None:
        result += _group_notes(dataset, names)
        result += _duplicate_note(dataset)
    return [*result, *_leak_notes(dataset, names)]


def _date_notes(names):
    """Dates are several columns, which count in every distance between rows."""
    for name in names:
        if name.endswith(f" ({_DAYS})"):
            date = name.removesuffix(f" ({_DAYS})")
            n_parts = sum(other.startswith(f"{date} (") for other in names)
            yield (
                f"The {n_parts} columns made of {date!r} count in every distance of methods with a kernel: if it "
                f"says little about the class, --drop {date!r} may help them much."
            )


def _group_notes(dataset, names):
    """Columns that look like the number of a person, a session and so on, of which there are several rows."""
    for k, name in enumerate(names):
        if not _GROUP_NAME.fullmatch(name):
            continue
        n_values = len(np.unique(_codes(dataset.X, k)))
        if 5 <= n_values <= len(dataset.y) / 2:
            yield (
                f"The column {name!r} has {n_values} values in {len(dataset.y)} rows: if equal values belong "
                f"together, --groups {name!r} keeps them on one side of every split, or scores may be too good."
            )


def _duplicate_note(dataset):
    """Equal rows, which random splits put into both parts."""
    if hasattr(dataset.X, "iloc"):
        repeated = int(dataset.X.duplicated().sum())
    else:
        repeated = len(dataset.y) - len(np.unique(np.ascontiguousarray(dataset.X), axis=0))
    if repeated < 0.05 * len(dataset.y):
        return []
    return [
        f"{repeated} of {len(dataset.y)} rows repeat others: equal rows in training and test parts make scores too "
        "good; remove them, or keep them together with --groups."
    ]


def _leak_notes(dataset, names):
    """Columns that tell the classes nearly without error alone, and dates that follow them."""
    y = np.unique(np.asarray(dataset.y), return_inverse=True)[1]
    rows = np.random.default_rng(0).permutation(len(y))[:_PROBED_ROWS]
    X, y = take_rows(dataset.X, rows), y[rows]
    half = len(y) // 2
    chance = 1.0 / len(np.unique(y))
    if len(np.unique(y[:half])) < len(np.unique(y)) or len(y) < _FEWEST_PROBED:
        return
    for k, name in enumerate(names):
        told = _told_by(np.nan_to_num(_codes(X, k))[:, None], y, half)
        date, _, part = name.partition(" (")
        if told >= _LEAKY:
            yield (
                f"The column {name!r} alone tells the classes almost without error (balanced accuracy {told:.3f}): if "
                f"it is not known before the class is, --drop {name!r} leaves it out."
            )
        elif part == f"{_DAYS})" and told - chance >= 0.5 * (1.0 - chance):
            yield (
                f"The classes follow {date!r} (balanced accuracy {told:.3f} by the day alone): --time {date!r} tests "
                "on rows that come later, as it will be in use."
            )


def _told_by(column, y, half):
    """Balanced accuracy, on half of the rows, of a small tree that was fitted to one column of the others."""
    tree = DecisionTreeClassifier(max_leaf_nodes=max(8, 4 * len(np.unique(y))), class_weight="balanced", random_state=0)
    predicted = tree.fit(column[:half], y[:half]).predict(column[half:])
    return recall_score(y[half:], predicted, average="macro", zero_division=0.0)
