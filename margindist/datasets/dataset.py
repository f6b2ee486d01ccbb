"""A data set with its story: where it came from, what was guessed, and a fingerprint of its content.

A file is first read as a :class:`Table` of columns; :func:`table_to_dataset` says which of them is the target, which
say nothing, and what is text.
"""

import contextlib
import hashlib
import lzma
import re
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.suggestions import did_you_mean

NAN = frozenset(("nan", "NaN", "NAN", "-nan", "-NaN"))  # as programs write missing numbers
MISSING = NAN | {"", "?", "NA", "N/A", "n/a", "N/a", "n.a.", "N.A.", "#N/A", "<NA>", "null", "NULL", "None"}
MISSING_NUMBERS = MISSING | {"-", "--"}  # in columns of numbers: a class may be called so
TARGET_NAMES = (
    "target",
    "class",
    "label",
    "y",
    "classes",
    "labels",
    "classification",
    "outcome",
    "response",
    "category",
)
_FEWEST_ROWS_OF_IDENTIFIER = 20
_IDENTIFIER_NAME = re.compile(r"(.*[_ .-])?(id|ids|idx|index|no|nr|number|key|uuid|rowid|unnamed: 0)", re.IGNORECASE)
# Neither a target to guess nor an identifier: one row per day is a series, although its days are running numbers.
_DATE_PART = re.compile(r".* \((days since 1970|year|month|day|weekday|hour)\)")
_MOST_CLASSES = 30  # of a column that is guessed to be the target
_FIRST_ROWS = 1000  # which often tell enough
_MOST_LISTED = 5  # names in a sentence
_STACKED_ROWS = 2048
_BLOCK = 1 << 18  # numbers copied at a time


class DataError(ValueError):
    """Data that cannot be used.

    Parameters
    ----------
    sentence : str
        Why, and what to do.
    """

    def __init__(self, sentence: str):
        super().__init__(sentence)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set for classification; made by :func:`load` and :func:`read_file`.

    Parameters
    ----------
    name : str
        Name in the catalogue, or the file's name without its endings.
    X : ndarray, csr_matrix or DataFrame of shape (n_samples, n_features)
        Features: float64 arrays where all are numbers, a DataFrame with float64 and categorical columns otherwise.
        Missing values are NaN. :func:`encoder` makes numbers of it.
    y : ndarray of shape (n_samples,) or None
        Labels: integers, floats or strings, as in the source. None only for files read with ``target=False``.
    feature_names : tuple of str
        Names of the columns of X; empty for sparse data without names.
    target_name : str
        Name of the target column.
    splits : tuple of (train, test) pairs of ndarrays, or None
        Published realisations: row numbers from 0.
    source : str
        Where the data came from.
    notes : tuple of str
        Sentences: what was guessed, dropped and derived.

    Attributes
    ----------
    checksum : str
        SHA-256 of the content, see :func:`content_checksum`; computed when it is first asked for.
    """

    name: str
    X: Any = field(repr=False)
    y: np.ndarray | None = field(repr=False)
    feature_names: tuple[str, ...] = field(default=(), repr=False)
    target_name: str = "y"
    splits: tuple | None = field(default=None, repr=False)
    source: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def checksum(self) -> str:
        """Return the SHA-256 of the content."""
        return content_checksum(self.X, self.y, self.splits)


def take_rows(X, rows):
    """Return some rows of a table or an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def content_checksum(X: Any, y: Any, splits: Any = None) -> str:
    """Return the SHA-256 of a data set's content, whatever the file and the number types it was stored in.

    Hashed are the kind and shape of X; its values as little-endian float64 with one NaN and one zero (dense: by
    rows; CSR: sorted, zeros left out, row pointers and column numbers as int64; DataFrame: by columns, with their
    names, anything but numbers as text); the labels as text; the row numbers of the splits as int64.

    Parameters
    ----------
    X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,) or None
        Labels.
    splits : sequence of (train, test) pairs, or None
        Published realisations.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(2), [0, 1]
    >>> content_checksum(X, y) == content_checksum(X.astype(np.int8), np.array(y, dtype=np.uint8))
    True
    """
    digest = hashlib.sha256()
    if sp.issparse(X):
        _update_sparse(digest, X)
    elif hasattr(X, "columns"):
        digest.update(f"table {X.shape[0]} {X.shape[1]}\n".encode())
        for name in X.columns:
            digest.update(f"{name}\n".encode())
            _update_column(digest, X[name])
    else:
        X = np.asarray(X)
        digest.update(f"dense {X.shape[0]} {X.shape[1]}\n".encode())
        step = max(1, _BLOCK // max(1, X.shape[1]))
        for first in range(0, X.shape[0], step):
            _update(digest, X[first : first + step].ravel(), "<f8")
    if y is not None:
        digest.update(b"y\n" + "\n".join(map(str, np.asarray(y).tolist())).encode())
    for train, test in splits or ():
        digest.update(b"split\n")
        _update(digest, train, "<i8")
        _update(digest, test, "<i8")
    return digest.hexdigest()


def _update(digest, values, dtype):
    """Add a vector as bytes, block by block; adding 0.0 makes -0.0 the one zero, and every NaN becomes the same one."""
    values = np.asarray(values)
    for first in range(0, len(values), _BLOCK):
        block = np.array(values[first : first + _BLOCK], dtype=dtype)
        if dtype == "<f8":
            block += 0.0
            block[np.isnan(block)] = np.nan
        digest.update(block.data)


def _update_sparse(digest, X):
    """Add rows with sorted columns, stored zeros left out; nothing but a block is copied where columns are sorted."""
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    zeros = np.flatnonzero(rows.data == 0)
    digest.update(f"csr {rows.shape[0]} {rows.shape[1]}\n".encode())
    _update(digest, rows.indptr - np.searchsorted(zeros, rows.indptr), "<i8")
    for part, dtype in ((rows.indices, "<i8"), (rows.data, "<f8")):
        for first in range(0, len(part), _BLOCK):
            block = slice(first, first + _BLOCK)
            _update(digest, part[block][rows.data[block] != 0], dtype)


def _update_column(digest, column):
    if column.dtype.kind in "iufb":
        _update(digest, column.to_numpy(), "<f8")
    else:
        missing = column.isna().to_numpy()
        if str(column.dtype) == "category":  # each category becomes text once; the last is for what is missing
            values = np.array([*map(str, column.cat.categories.tolist()), ""], dtype=object)[
                column.cat.codes.to_numpy()
            ]
        else:
            values = np.where(missing, "", column.astype(object).map(str).to_numpy())
        digest.update(missing.tobytes() + "\n".join(values.tolist()).encode())


@contextlib.contextmanager
def one_sentence(name):
    """Turn what the readers of the standard library, NumPy, SciPy and Arrow raise on damaged files into a DataError."""
    try:
        yield
    except DataError:
        raise
    except PermissionError:
        raise DataError(f"{name}: the file may not be read.") from None
    except EOFError:
        raise DataError(f"{name}: the file ends too early; it is damaged or was not copied whole.") from None
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: the file is damaged ({_first_line(error)}).") from None
    except Exception as error:  # numpy.load and Arrow raise anything from SyntaxError to MemoryError on hostile bytes
        raise DataError(f"{name}: the file cannot be read ({_first_line(error)}).") from None


def _first_line(error):
    text = str(error).strip().split("\n")[0].strip(" .")
    return text or type(error).__name__


# ---------------------------------------------------------------------- tables


class Text(NamedTuple):
    """A column of text: ``levels[codes]``, with code -1 where the value is missing."""

    codes: np.ndarray
    levels: tuple[str, ...]


class Sparse(NamedTuple):
    """A column of numbers that are zero except in these rows."""

    rows: np.ndarray
    values: np.ndarray
    length: int

    def dense(self):
        """Return it as an array."""
        filled = np.zeros(self.length)
        filled[self.rows] = self.values
        return filled


class Table(NamedTuple):
    """Columns with names: float64 arrays (NaN is missing), :class:`Sparse` or :class:`Text`."""

    names: tuple[str, ...]
    columns: list
    notes: tuple[str, ...] = ()
    target: str | None = None  # where the file itself names it

    def column(self, name):
        """Return the column of this name."""
        return self.columns[self.names.index(name)]

    def where_known(self, name):
        """Return the table without the rows that miss a value in the column of this name."""
        keep = ~_missing(self.column(name))
        return self if keep.all() else self._replace(columns=[_rows(column, keep) for column in self.columns])


def text_column(values):
    """Return strings as :class:`Text` with its levels in order; None is missing."""
    seen = {}
    codes = np.fromiter(
        (-1 if value is None else seen.setdefault(value, len(seen)) for value in values), dtype=np.int32
    )
    return order_levels(codes, list(seen))


def order_levels(codes, levels):
    """Return a :class:`Text` with levels in alphabetical order, and only those that occur."""
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(levels))) if len(codes) else np.empty(0, int)
    order = sorted(used.tolist(), key=levels.__getitem__)
    place = np.full(len(levels) + 1, -1, dtype=np.int32)
    place[order] = np.arange(len(order))
    return Text(place[codes], tuple(levels[k] for k in order))


def table_to_dataset(table, *, target, name, file, source):
    """Return a table as a :class:`Dataset`: choose the target, drop what says nothing, and say so.

    Dropped are rows without a target, columns with one value only, text that is different in every row, and a running
    number of the rows. With ``target=False`` there is no target and nothing is dropped. Errors name ``file``.
    """
    notes = list(table.notes)
    if target is False:
        X = feature_table(table.names, table.columns)
        return Dataset(name, X, None, table.names, "", None, source, tuple(notes))
    if len(table.names) < 2:
        raise DataError(f"{file}: expected at least two columns, features and target, got {len(table.names)}.")
    chosen = _choose(table, target, file, notes)
    target_name = table.names[chosen]
    keep = ~_missing(table.columns[chosen])
    if not keep.any():
        raise DataError(f"{file}: the target column {target_name!r} is empty; choose another with target.")
    columns = table.columns
    if not keep.all():
        notes.append(f"Left out {counted(int((~keep).sum()), 'row')} without a value in {target_name!r}.")
        columns = [_rows(column, keep) for column in columns]
    y = labels_of(columns[chosen])
    levels = _levels_of(columns[chosen])
    _check_levels(levels, len(y), file, f"the target column {target_name!r}")
    notes += _alike_notes(levels)
    kept = _informative(table, columns, chosen, notes)
    if not kept:
        raise DataError(
            f"{file}: no column says anything about the target {target_name!r}: all are constant or unique."
        )
    names = tuple(table.names[k] for k in kept)
    X = feature_table(names, [columns[k] for k in kept])
    return Dataset(name, X, y, names, target_name, None, source, tuple(notes))


def _alike_notes(levels):
    """A sentence, in a list, on labels that differ only in their spelling."""
    groups = {}
    for level in map(str, levels.tolist()):
        groups.setdefault(same_spelling(level), []).append(level)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return []
    return [
        f"Labels that differ only in upper and lower case or blanks count as different classes: {', '.join(alike)}."
    ]


def same_spelling(label):
    """Return what labels have in common that differ only in case, blanks, or how a number is written.

    Examples
    --------
    >>> [same_spelling(label) for label in (" True", "A  b", "1.0")]
    ['true', 'a b', '1']
    """
    text = " ".join(str(label).split()).casefold()
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def check_labels(y, name, what="the target"):
    """Return the labels; raise an error if they have one class only or too many different values."""
    _check_levels(np.unique(y), len(y), name, what)
    return y


def _check_levels(levels, n_rows, name, what):
    if len(levels) < 2:
        found = f"only {levels[0]!s}" if len(levels) else "none"
        raise DataError(f"{name}: expected at least two classes in {what}, got {found}.")
    if _continuous(levels, n_rows):
        raise DataError(
            f"{name}: {what} looks continuous ({len(levels)} different values in {n_rows} rows), but classification "
            "needs classes; name another target column, or make classes of it first."
        )


def _continuous(levels, n_rows):
    """Tell whether there are too many different values, in that many rows, for them to be classes."""
    if levels.dtype.kind not in "iuf":
        return len(levels) > max(20, n_rows // 2)
    if levels.dtype.kind == "f" and np.any(levels != np.floor(levels)):
        return len(levels) > 20 or len(levels) > max(2, n_rows // 2)
    return len(levels) > max(50, n_rows // 20)


def _choose(table, target, name, notes):
    """Return the index of the target column: the one asked for, else a guess, which the notes mention."""
    names = table.names
    if target is not None:
        return _find(names, target, name)
    if table.target is not None:
        return names.index(table.target)
    lowered = [column.strip().lower() for column in names]
    for known in TARGET_NAMES:
        if known in lowered:
            chosen = lowered.index(known)
            notes.append(f"The column {names[chosen]!r} was taken as the target, because of its name.")
            return chosen
    last = len(names) - 1
    candidates = [
        k
        for k, column in enumerate(table.columns)
        if _looks_like_classes(column) and not _DATE_PART.fullmatch(names[k])
    ]
    others = _listed([names[k] for k in candidates if k != last])
    if last in candidates or not candidates:
        too = f" --target chooses another; these look like classes too: {others}." if others and candidates else ""
        notes.append(f"The last column, {names[last]!r}, was taken as the target.{too}")
        return last
    if len(candidates) == 1:
        notes.append(f"The column {others} was taken as the target: no other looks like classes.")
        return candidates[0]
    raise DataError(
        f"{name}: several columns look like classes, and the last one does not: {others}; name the target with "
        "--target (in Python: target=)."
    )


def _listed(names):
    """Return the first names, and how many more there are."""
    if len(names) <= _MOST_LISTED + 1:  # "and 1 more" would be no shorter than its name
        return ", ".join(map(repr, names))
    return ", ".join(map(repr, names[:_MOST_LISTED])) + f" and {len(names) - _MOST_LISTED} more"


def _looks_like_classes(column):
    """Whether a column is text or whole numbers, with at least two and few different values for so many rows."""
    column = _dense(column)
    n_rows = len(column.codes if isinstance(column, Text) else column)
    most = min(_MOST_CLASSES, max(2, n_rows // 5))
    if isinstance(column, Text):
        return 2 <= len(column.levels) <= most
    if len(np.unique(_known(column, _FIRST_ROWS))) > most:  # no need to look at all
        return False
    levels = np.unique(labels_of(_known(column)))
    return levels.dtype.kind != "f" and 2 <= len(levels) <= most


def _levels_of(column):
    """Return the different labels of a column without missing values."""
    return np.array(column.levels, dtype=str) if isinstance(column, Text) else np.unique(labels_of(column))


def _find(names, target, name):
    if isinstance(target, str) and target in names:
        return names.index(target)
    try:
        number = int(target)
    except (TypeError, ValueError):
        raise DataError(f"{name}: there is no column {target!r}; {column_hint(str(target), names)}") from None
    if not -len(names) <= number < len(names):
        raise DataError(f"{name}: there is no column {number}; columns are numbered from 0 to {len(names) - 1}.")
    return number % len(names)


def column_hint(name, names):
    """Return the end of a sentence about a column that does not exist: the nearest names, or else the first ones."""
    return did_you_mean(name, names, f"its columns are {_listed(names)}.", show=repr)


def _informative(table, columns, target, notes):
    """Return the numbers of the feature columns that are neither constant (in the rows left) nor an identifier."""
    names = table.names
    kept, constant, unique, running = [], [], [], []
    for k, column in enumerate(columns):
        if k == target:
            continue
        if _constant(column):
            constant.append(names[k])
        elif not _DATE_PART.fullmatch(names[k]) and _identifier(table.columns[k], names[k]):
            (unique if isinstance(column, Text) else running).append(names[k])
        else:
            kept.append(k)
    for dropped, why in (
        (constant, "the same value in every row"),
        (unique, "a different text in every row"),
        (running, "whole numbers that only number the rows"),
    ):
        if dropped:
            notes.append(f"Left out {counted(len(dropped), 'column')} with {why}: {_listed(dropped)}.")
    return kept


def _constant(column):
    column = _dense(column)
    if len(np.unique(_known(column, _FIRST_ROWS))) > 1:  # no need to look at all
        return False
    known = _known(column)
    n_rows = len(column.codes if isinstance(column, Text) else column)
    return len(known) == 0 or (len(known) == n_rows and bool(np.all(known == known[0])))


def _identifier(column, name):
    """Tell whether a column is text that never repeats, or numbers the rows.

    Numbers of rows are whole, never repeat, and leave no gaps, in whatever order, or the column's name says so.
    """
    if isinstance(column, Text):
        return len(column.codes) >= _FEWEST_ROWS_OF_IDENTIFIER and len(column.levels) == len(column.codes)
    column = _dense(column)
    first = column[:_FIRST_ROWS]
    if len(column) < _FEWEST_ROWS_OF_IDENTIFIER or len(np.unique(first)) < len(first):
        return False
    if not np.all(column == np.floor(column)):
        return False
    steps = np.diff(np.sort(column))
    return bool(np.all(steps == 1.0) or (np.all(steps > 0.0) and _IDENTIFIER_NAME.fullmatch(name.strip())))


def _dense(column):
    return column.dense() if isinstance(column, Sparse) else column


def _known(column, n_rows=None):
    """Return the numbers, or codes of text, that are not missing, of the first rows or of all."""
    if isinstance(column, Text):
        codes = column.codes[:n_rows]
        return codes[codes >= 0]
    numbers = column[:n_rows]
    return numbers[~np.isnan(numbers)]


def _missing(column):
    return column.codes < 0 if isinstance(column, Text) else np.isnan(_dense(column))


def _rows(column, keep):
    if isinstance(column, Text):
        return order_levels(column.codes[keep], list(column.levels))
    if isinstance(column, Sparse):
        stay = keep[column.rows]
        return Sparse((np.cumsum(keep) - 1)[column.rows[stay]], column.values[stay], int(keep.sum()))
    return column[keep]


def labels_of(column):
    """Return a column as labels: text, whole numbers as integers, or numbers."""
    column = _dense(column)
    if isinstance(column, Text):
        return np.array(column.levels, dtype=str)[column.codes]
    whole = np.all(column == np.floor(column)) and np.all(np.abs(column) < 2**53)
    return column.astype(np.int64) if whole else column


def feature_table(names, columns):
    """Return CSR or a float64 array if all columns are numbers, else a DataFrame."""
    if columns and all(isinstance(column, Sparse) for column in columns):
        return _side_by_side(columns)
    columns = [_dense(column) for column in columns]
    if not any(isinstance(column, Text) for column in columns):
        return _stacked(columns) if columns else np.empty((0, 0))
    try:
        import pandas as pd
    except ImportError:
        raise DataError("Columns of text need pandas: install it with pip install 'margindist[cli]'.") from None
    return pd.DataFrame(
        {
            name: pd.Categorical.from_codes(column.codes, categories=list(column.levels))
            if isinstance(column, Text)
            else column
            for name, column in zip(names, columns, strict=True)
        },
        copy=False,
    )


def _stacked(columns):
    """Return columns as an array, a few rows at a time: these stay in the processor's cache."""
    stacked = np.empty((len(columns[0]), len(columns)))
    for first in range(0, len(stacked), _STACKED_ROWS):
        for k, column in enumerate(columns):
            stacked[first : first + _STACKED_ROWS, k] = column[first : first + _STACKED_ROWS]
    return stacked


def _side_by_side(columns):
    ends = np.cumsum([0, *(len(column.rows) for column in columns)])
    rows, values = (np.concatenate([column[k] for column in columns]) for k in (0, 1))
    return sp.csc_matrix((values, rows, ends), shape=(columns[0].length, len(columns))).tocsr()


def counted(number, noun):
    """Return "1 column" or "2 columns"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
