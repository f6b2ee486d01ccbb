"""A data set with its story: where it came from, what was guessed, and a fingerprint of its content.

A file is first read as a :class:`Table` of columns; :func:`table_to_dataset` says which of them is the target, which
say nothing, and what is text.
"""

import contextlib
import hashlib
import lzma
import os
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
MANY_ROWS = 100_000  # text that does not repeat in so many first rows numbers them
_MOST_LISTED = 5  # names in a sentence
_STACKED_ROWS = 2048
_BOUND_VARIABLE, _MOST_UNPACKED = "MARGINDIST_MAX_UNPACKED", "4GB"
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
    spellings : dict of str to dict
        How columns of a delimited file were read, for ``read_file(..., spellings=)``: numbers (decimal point, mark
        between thousands, sign), dates (order of their parts) or text.

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
    spellings: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)

    @cached_property
    def checksum(self) -> str:
        """Return the SHA-256 of the content."""
        return content_checksum(self.X, self.y, self.splits)


def is_part_of_date(name):
    """Tell whether a column is called as those that a date becomes."""
    return _DATE_PART.fullmatch(name) is not None


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


def parse_bytes(size, what):
    """Return a size in bytes: 2GB, 500 MB, 1.5g or a number."""
    result = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(i?B)?\s*", str(size), flags=re.IGNORECASE)
    if result is None:
        raise DataError(f"{what} must be a size such as 500MB or 2GB, got {size!r}.")
    return int(float(result[1]) * 1000 ** " KMGT".index(result[2].upper() or " "))


def unpacked_bound(given=None):
    """Return how many bytes a packed file may become: as given, as the environment says, or 4 GB."""
    if given is not None:
        return parse_bytes(given, "max_unpacked")
    return parse_bytes(os.environ.get(_BOUND_VARIABLE) or _MOST_UNPACKED, _BOUND_VARIABLE)


def refuse_beyond(most, size, name):
    """Raise an error if a packed file becomes larger than allowed."""
    if size > most:
        raise DataError(
            f"{name}: unpacks to more than {most / 1e9:.3g} GB; if that is right, allow more: "
            f"{_BOUND_VARIABLE}={2 * size / 1e9:.0f}GB (in Python: max_unpacked=)."
        )


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
    """A column of text: ``levels[codes]``, with code -1 where the value is missing; all levels occur."""

    codes: np.ndarray
    levels: Any  # a tuple of str, or an array of Arrow

    def words(self):
        """Return the levels as strings."""
        return list(self.levels) if isinstance(self.levels, tuple) else self.levels.to_pylist()

    def ordered(self):
        """Return it with levels in order, as strings."""
        words = self.words()
        order = sorted(range(len(words)), key=words.__getitem__)
        place = np.full(len(words) + 1, -1, dtype=np.int32)
        place[order] = np.arange(len(order))
        return Text(place[self.codes], tuple(words[k] for k in order))


class Chunks(NamedTuple):
    """A column of numbers in pieces, as it was read."""

    parts: list[np.ndarray]

    def dense(self):
        """Return it as an array."""
        return np.concatenate(self.parts) if self.parts else np.empty(0)


class Strings(NamedTuple):
    """A column of text that does not repeat in its first rows, which is not worth numbering its levels, as read."""

    values: Any  # of Arrow

    def encoded(self):
        """Return it as :class:`Text`."""
        return leave_out(text_column(self.values, trim=True), MISSING)


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
    """Columns with names: numbers as float64 arrays (NaN is missing), :class:`Chunks` or :class:`Sparse`, and text."""

    names: tuple[str, ...]
    columns: list
    notes: tuple[str, ...] = ()
    target: str | None = None  # where the file itself names it
    spellings: dict = {}  # how columns of delimited text were read, see :mod:`margindist.datasets.spelling`

    def column(self, name):
        """Return the column of this name."""
        return self.columns[self.names.index(name)]

    def where_known(self, name):
        """Return the table without the rows that miss a value in the column of this name."""
        keep = ~_missing(self.column(name))
        return self if keep.all() else self._replace(columns=[_rows(column, keep) for column in self.columns])


def needed_pyarrow(name, what):
    """Return pyarrow; raise an error if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise DataError(f"{name}: {what} pyarrow: install it with pip install 'margindist[files]'.") from None
    return pyarrow


def mask_of(chosen):
    """Return an array of booleans as Arrow's."""
    import pyarrow as pa

    return pa.array(chosen, pa.bool_())


def text_column(column, trim=False):
    """Return a column of strings of Arrow as :class:`Text`, without the blanks around them if so asked."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_encoded = pa.types.is_dictionary(column.type)
    whole = (column.unify_dictionaries() if is_encoded else column).combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    whole = whole if is_encoded else whole.dictionary_encode()
    codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    words = whole.dictionary
    neat = pc.utf8_trim(words, " \t") if trim else words
    used = np.zeros(len(words) + 1, dtype=bool)
    used[codes] = True
    if used[:-1].all() and not words.null_count and neat.equals(words):
        return Text(codes, words)
    levels = neat.filter(mask_of(used[:-1])).unique().drop_null()
    return Text(_places(pc.index_in(neat, value_set=levels))[codes], levels)


def _places(result):
    """Return, for each former level and for what is missing, the new one or -1."""
    return np.append(result.fill_null(-1).to_numpy(zero_copy_only=False), -1).astype(np.int32)


def leave_out(column, words):
    """Return a :class:`Text` of Arrow's in which some words count as missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    left_out = pc.is_in(column.levels, value_set=pa.array(sorted(words), column.levels.type))
    if not pc.any(left_out).as_py():
        return column
    levels = column.levels.filter(pc.invert(left_out))
    return Text(_places(pc.index_in(column.levels, value_set=levels))[column.codes], levels)


def is_empty(column):
    """Tell whether a column has no value at all."""
    if isinstance(column, (Text, Strings)):
        return isinstance(column, Text) and not len(column.levels)
    parts = column.parts if isinstance(column, Chunks) else [_dense(column)]
    return all(bool(np.isnan(part).all()) for part in parts)


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
    notes = [*table.notes, *_rounded_note(table)]
    if target is False:
        X = feature_table(table.names, table.columns)
        return Dataset(name, X, None, table.names, "", None, source, tuple(notes), table.spellings)
    if len(table.names) < 2:
        raise DataError(f"{file}: expected at least two columns, features and target, got {len(table.names)}.")
    chosen = _choose(table, target, file, notes)
    target_name = table.names[chosen]
    if isinstance(table.columns[chosen], Strings):
        table.columns[chosen] = table.columns[chosen].encoded()
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
    return Dataset(name, X, y, names, target_name, None, source, tuple(notes), table.spellings)


def _rounded_note(table):
    """A sentence, in a list, on columns of whole numbers of which float64 does not hold all."""
    rounded = [name for name, column in zip(table.names, table.columns) if _beyond_float(column)]
    if not rounded:
        return []
    return [
        f"Whole numbers beyond 2**53, which are rounded to 16 digits, in {_listed(rounded)}; read what is no quantity "
        "as text."
    ]


def _beyond_float(column):
    if isinstance(column, (Text, Strings, Sparse)):
        return False
    for known in (_known(column, _FIRST_ROWS), _known(column)):  # the first rows often tell enough
        if (known != np.floor(known)).any():
            return False
    return bool(len(known)) and max(known.max(), -known.min()) >= 2**53


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
        result = f"only {levels[0]!s}" if len(levels) else "none"
        raise DataError(f"{name}: expected at least two classes in {what}, got {result}.")
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
    usable = [k for k, column in enumerate(names) if not is_part_of_date(column)]
    if not usable:
        raise DataError(f"{name}: expected a column of classes, got dates alone; name the target with --target.")
    last = usable[-1]
    candidates = [k for k in usable if _looks_like_classes(table.columns[k])]
    others = _listed([names[k] for k in candidates if k != last])
    if last in candidates or not candidates:
        too = f" --target chooses another; these look like classes too: {others}." if others and candidates else ""
        which = "last column" if last == len(names) - 1 else "last column that is no part of a date"
        notes.append(f"The {which}, {names[last]!r}, was taken as the target.{too}")
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
    if isinstance(column, Strings):
        return False
    n_rows = _length(column)
    most = min(_MOST_CLASSES, max(2, n_rows // 5))
    if isinstance(column, Text):
        return 2 <= len(column.levels) <= most
    if len(np.unique(_known(column, _FIRST_ROWS))) > most:  # no need to look at all
        return False
    levels = np.unique(labels_of(_known(column)))
    return levels.dtype.kind != "f" and 2 <= len(levels) <= most


def _levels_of(column):
    """Return the different labels of a column without missing values."""
    return np.sort(np.array(column.words(), dtype=str)) if isinstance(column, Text) else np.unique(labels_of(column))


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
    kept, constant, unique, unrepeated, running = [], [], [], [], []
    for k, column in enumerate(columns):
        if k == target:
            continue
        if _constant(column):
            constant.append(names[k])
        elif not is_part_of_date(names[k]) and _identifier(table.columns[k], names[k]):
            {Text: unique, Strings: unrepeated}.get(type(column), running).append(names[k])
        else:
            kept.append(k)
    for dropped, why in (
        (constant, "the same value in every row"),
        (unique, "a different text in every row"),
        (unrepeated, f"a different text in each of the first {MANY_ROWS:,} rows"),
        (running, "whole numbers that only number the rows"),
    ):
        if dropped:
            notes.append(f"Left out {counted(len(dropped), 'column')} with {why}: {_listed(dropped)}.")
    return kept


def _constant(column):
    if isinstance(column, Strings) or len(np.unique(_known(column, _FIRST_ROWS))) > 1:  # no need to look at all
        return False
    known = _known(column)
    return len(known) == 0 or (len(known) == _length(column) and bool(np.all(known == known[0])))


def _identifier(column, name):
    """Tell whether a column is text that never repeats, or numbers the rows.

    Numbers of rows are whole, never repeat, and leave no gaps, in whatever order, or the column's name says so.
    """
    if isinstance(column, Strings):
        return True
    if isinstance(column, Text):
        return len(column.codes) >= _FEWEST_ROWS_OF_IDENTIFIER and len(column.levels) == len(column.codes)
    first = _head(column, _FIRST_ROWS)
    if len(first) < _FEWEST_ROWS_OF_IDENTIFIER or len(np.unique(first)) < len(first):
        return False
    if not np.all(first == np.floor(first)):
        return False
    column = _dense(column)
    if not np.all(column == np.floor(column)):
        return False
    steps = np.diff(np.sort(column))
    return bool(np.all(steps == 1.0) or (np.all(steps > 0.0) and _IDENTIFIER_NAME.fullmatch(name.strip())))


def _head(column, n_rows):
    """Return the first numbers of a column, or all."""
    if n_rows is not None and isinstance(column, Chunks) and column.parts and len(column.parts[0]) >= n_rows:
        return column.parts[0][:n_rows]
    return _dense(column)[:n_rows]


def _length(column):
    if isinstance(column, Text):
        return len(column.codes)
    return sum(map(len, column.parts)) if isinstance(column, Chunks) else len(_dense(column))


def _dense(column):
    return column.dense() if isinstance(column, (Sparse, Chunks)) else column


def _known(column, n_rows=None):
    """Return the numbers, or codes of text, that are not missing, of the first rows or of all."""
    if isinstance(column, Text):
        codes = column.codes[:n_rows]
        return codes[codes >= 0]
    numbers = _head(column, n_rows)
    return numbers[~np.isnan(numbers)]


def _missing(column):
    return column.codes < 0 if isinstance(column, Text) else np.isnan(_dense(column))


def _rows(column, keep):
    if isinstance(column, Strings):
        return column  # it is left out
    if isinstance(column, Text):
        return _used_levels(column.codes[keep], column)
    if isinstance(column, Sparse):
        stay = keep[column.rows]
        return Sparse((np.cumsum(keep) - 1)[column.rows[stay]], column.values[stay], int(keep.sum()))
    return _dense(column)[keep]


def _used_levels(codes, column):
    used = np.unique(codes[codes >= 0])
    place = np.full(len(column.levels) + 1, -1, dtype=np.int32)
    place[used] = np.arange(len(used))
    words = column.words()
    return Text(place[codes], tuple(words[k] for k in used.tolist()))


def labels_of(column):
    """Return a column as labels: text, whole numbers as integers, or numbers."""
    column = _dense(column)
    if isinstance(column, Text):
        return np.array(column.words(), dtype=str)[column.codes]
    whole = np.all(column == np.floor(column)) and np.all(np.abs(column) < 2**53)
    return column.astype(np.int64) if whole else column


def feature_table(names, columns):
    """Return CSR or a float64 array if all columns are numbers, else a DataFrame; columns in pieces are used up."""
    if columns and all(isinstance(column, Sparse) for column in columns):
        return _side_by_side(columns)
    if not any(isinstance(column, (Text, Strings)) for column in columns):
        return _stacked(columns) if columns else np.empty((0, 0))
    try:
        import pandas as pd
    except ImportError:
        raise DataError("Columns of text need pandas: install it with pip install 'margindist[files]'.") from None
    made, left = {}, list(columns)
    for name in names:
        column = left.pop(0)
        column = column.encoded() if isinstance(column, Strings) else column
        is_text = isinstance(column, Text)
        made[name] = _categorical(pd, column.ordered()) if is_text else _dense(column)
        if isinstance(column, Chunks):
            column.parts.clear()  # which frees what it was read into
    return pd.DataFrame(made, copy=False)


def _categorical(pd, column):
    return pd.Categorical.from_codes(column.codes, list(column.levels))


def _stacked(columns):
    """Return columns as an array, a few rows at a time: these stay in the processor's cache.

    Pieces of columns are freed as soon as they are copied, so that there are never two copies of all of them.
    """
    pieces = [column.parts if isinstance(column, Chunks) else [_dense(column)] for column in columns]
    if len({tuple(map(len, parts)) for parts in pieces}) > 1:
        pieces = [[_dense(column)] for column in columns]
    ends = np.cumsum([0, *map(len, pieces[0])]).tolist()
    stacked = np.empty((ends[-1], len(columns)))
    for i, start in enumerate(ends[:-1]):
        for first in range(start, ends[i + 1], _STACKED_ROWS):
            last = min(first + _STACKED_ROWS, ends[i + 1])
            for k, parts in enumerate(pieces):
                stacked[first:last, k] = parts[i][first - start : last - start]
        for parts in pieces:
            parts[i] = None
    return stacked


def _side_by_side(columns):
    ends = np.cumsum([0, *(len(column.rows) for column in columns)])
    rows, values = (np.concatenate([column[k] for column in columns]) for k in (0, 1))
    return sp.csc_matrix((values, rows, ends), shape=(columns[0].length, len(columns))).tocsr()


def counted(number, noun):
    """Return "1 column" or "2 columns"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
