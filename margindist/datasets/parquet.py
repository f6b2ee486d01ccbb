"""Parquet files: read whole as a table, or by row groups."""

import re
from pathlib import Path

import numpy as np

from margindist.datasets.dataset import (
    TARGET_NAMES,
    DataError,
    Table,
    feature_table,
    labels_of,
    one_sentence,
    refuse_beyond,
    text_column,
)
from margindist.datasets.sources import Stamp, files_in
from margindist.datasets.spelling import date_parts, date_sentence
from margindist.spaces.partitions import Piece

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the row names that pandas stores beside the columns
ENDINGS = (".parquet", ".pq")
_COLUMNS_AT_ONCE = 32  # what is decoded beside the array it goes to
_ROWS_AT_ONCE = 2048  # copied from columns to rows while they are in the processor's cache
_MOST_CATEGORIES = 50  # columns that a column of text becomes at most
_USES = {"target": "labels", "weight": "numbers"}


def read_parquet(path, name, most):
    """Read all columns of a file, of at most so many bytes, as a :class:`Table`."""
    pq = _pyarrow_parquet(name)
    with pq.ParquetFile(path) as file:
        refuse_beyond(most, 8 * file.metadata.num_rows * file.metadata.num_columns, name)
        stored = file.read()
    kinds = _column_kinds(stored.schema)
    if len(kinds) < len([field for field in stored.schema.names if not _PANDAS_INDEX.fullmatch(field)]):
        raise DataError(f"{name}: two columns have the same name.")
    if not stored.num_rows:
        raise DataError(f"{name}: the file has no rows.")
    columns, notes = {}, []
    for column, kind in kinds.items():
        if kind is None and _is_date(stored.schema.field(column).type):
            parts = _date_parts(column, stored[column])
            columns |= parts
            notes.append(date_sentence(column, parts))
        elif kind == "text":
            columns[column] = text_column(stored[column])
        elif kind is not None:
            columns[column] = np.array(_numbers(stored[column]), dtype=np.float64)
            if np.isinf(columns[column]).any():
                raise DataError(f"{name}: the column {column!r} has infinite values.")
    types = {column: stored.schema.field(column).type for column in kinds}
    left_out = [f"{name!r} ({kind})" for name, kind in types.items() if kinds[name] is None and not _is_date(kind)]
    return Table(tuple(columns), list(columns.values()), (*notes, *_note(left_out)))


def _is_date(kind):
    import pyarrow.types as types

    return types.is_date(kind) or types.is_timestamp(kind)


def _date_parts(name, column):
    import pyarrow as pa

    moments = _plain(column).cast(pa.timestamp("s"), safe=False).to_numpy(zero_copy_only=False)
    moments = moments.astype("datetime64[s]")
    with_hours = bool((moments != moments.astype("datetime64[D]"))[~np.isnat(moments)].any())
    return date_parts(name, moments, with_hours)


def _note(left_out):
    return (f"Columns that are neither numbers nor text left out: {', '.join(left_out)}.",) if left_out else ()


class ParquetSource:
    """Row groups of Parquet files; small ones that follow each other make one part."""

    is_in_memory = False

    def __init__(self, path, target, weight, columns, split, dtype):
        pq = _pyarrow_parquet(path)
        self._files = [Stamp.of(file) for file in files_in(path, ENDINGS, "Parquet files")]
        first = self._files[0].path
        self.label = Path(path).stem
        self._target, self._weight = target, weight
        groups = []
        for number, stamp in enumerate(self._files):
            with one_sentence(stamp.path), pq.ParquetFile(stamp.path) as file:
                kinds = _column_kinds(file.schema_arrow)
                groups.append([file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)])
            if number == 0:
                self._choose(kinds, columns, first)
                self.dtype = np.dtype(dtype or self._common_dtype())
            self._compare(kinds, stamp.path, first)
        self.n_columns = len(self._columns)
        self.names = tuple(self._columns)
        self.target_name = target
        self._divide(groups, split)

    def _divide(self, groups, split):
        """Make parts of row groups, given as numbers of rows for each file."""
        widths = [_MOST_CATEGORIES if kind == "text" else 1 for kind in self._columns.values()]
        row_bytes = self.dtype.itemsize * sum(widths)
        n_rows = sum(map(sum, groups))
        step = split.step(n_rows, row_bytes)
        self._parts = [(number, part) for number, sizes in enumerate(groups) for part in _gathered(sizes, step)]
        self.sizes = tuple(sum(groups[number][g] for g in part) for number, part in self._parts)
        self.spare_bytes = split.spare(n_rows, max(self.sizes, default=0) * row_bytes)
        for i, size in enumerate(self.sizes):
            split.check_part(n_rows, size, row_bytes, self.where(i))

    def _choose(self, kinds, columns, file):
        """Set the feature columns and their kinds; say which are left out."""
        for name, what in ((self._target, "target"), (self._weight, "weight")):
            if name is not None and name not in kinds:
                raise DataError(f"{file}: there is no column {name!r} for the {what}; it has {_listed(kinds)}.")
        wanted = [name for name in kinds if name not in (self._target, self._weight)] if columns is None else columns
        missing = [name for name in wanted if name not in kinds]
        if missing:
            raise DataError(f"{file}: there is no column {missing[0]!r}; it has {_listed(kinds)}.")
        neither = [name for name in wanted if kinds[name] is None]
        if neither and columns is not None:
            raise DataError(f"{file}: the column {neither[0]!r} is neither numbers nor text.")
        self.notes = _note(list(map(repr, neither)))
        self._columns = {name: kinds[name] for name in wanted if kinds[name] is not None}
        if not self._columns:
            raise DataError(f"{file}: there is no column for the features beside target and weight.")
        for name, what in ((self._target, "target"), (self._weight, "weight")):
            if name is not None and (kinds[name] is None or (what == "weight" and kinds[name] == "text")):
                raise DataError(f"{file}: the column {name!r} cannot be the {what}: it is not {_USES[what]}.")

    def _common_dtype(self):
        numbers = {kind for kind in self._columns.values() if kind != "text"}
        return np.float32 if numbers == {"single"} else np.float64

    def _compare(self, kinds, path, first):
        """Raise an error unless a file has the columns of the first."""
        for name in (*self._columns, self._target, self._weight):
            if name is not None and name not in kinds:
                raise DataError(f"{path}: lacks the column {name!r}, which {first.name} has.")
            if name in self._columns and (kinds[name] == "text") != (self._columns[name] == "text"):
                was, now = ("text" if kind == "text" else "numbers" for kind in (self._columns[name], kinds[name]))
                raise DataError(f"{path}: expected {was} in the column {name!r}, as in {first.name}, got {now}.")

    def read(self, i):
        """Return part i: an array where all columns are numbers, else a data frame."""
        import pyarrow.parquet as pq

        number, groups = self._parts[i]
        stamp = self._files[number]
        stamp.check()
        with one_sentence(self.where(i)), pq.ParquetFile(stamp.path) as file:
            X = self._read_features(file, groups, self.sizes[i], self.where(i))
            beside = [name for name in (self._target, self._weight) if name is not None]
            table = file.read_row_groups(groups, columns=beside) if beside else None
            y = None if self._target is None else _label_column(table[self._target], self._target, self.where(i))
            weights = None if self._weight is None else _numbers(table[self._weight])
        return Piece(X, y, weights)

    def _read_features(self, file, groups, n_rows, where):
        names = [name for name, kind in self._columns.items() if kind != "text"]
        numbers = np.empty((n_rows, len(names)), dtype=self.dtype)
        for first in range(0, len(names), _COLUMNS_AT_ONCE):
            some = names[first : first + _COLUMNS_AT_ONCE]
            table = file.read_row_groups(groups, columns=some)
            columns = [_numbers(table[name]) for name in some]
            for start in range(0, n_rows, _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                for k, column in enumerate(columns, first):
                    numbers[rows, k] = column[rows]
        if len(names) == len(self._columns):
            return numbers
        texts = [name for name in self._columns if name not in names]
        table = file.read_row_groups(groups, columns=texts)
        place = {name: k for k, name in enumerate(names)}
        columns = [numbers[:, place[name]] if name in place else text_column(table[name]) for name in self._columns]
        return feature_table(tuple(self._columns), columns)

    def where(self, i):
        """Say where part i is."""
        number, groups = self._parts[i]
        words = f"row group {groups[0]}" if len(groups) == 1 else f"row groups {groups[0]} to {groups[-1]}"
        return f"{self._files[number].path.name}, {words}"


def guess_target(path):
    """Return the column that is likely the target, by its name or as the last one, and a sentence that says so."""
    file, names = _usable_columns(path)
    lowered = [name.strip().lower() for name in names]
    for known in TARGET_NAMES:
        if known in lowered:
            chosen = names[lowered.index(known)]
            return chosen, (f"The column {chosen!r} was taken as the target, because of its name.",)
    if not names:
        raise DataError(f"{file}: there is no column of numbers or text.")
    return names[-1], (f"The last column, {names[-1]!r}, was taken as the target.",)


def columns_among(path, wanted):
    """Return those of the names wanted that the files have; all columns, if it is none."""
    _, names = _usable_columns(path)
    return [name for name in names if name in wanted] or None


def _usable_columns(path):
    """Return the first file, and its columns of numbers and text."""
    file = files_in(path, ENDINGS, "Parquet files")[0]
    with one_sentence(file), _pyarrow_parquet(path).ParquetFile(file) as opened:
        kinds = _column_kinds(opened.schema_arrow)
    return file, [name for name, kind in kinds.items() if kind is not None]


def _pyarrow_parquet(path):
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{path}: Parquet files need pyarrow: install it with pip install 'margindist[files]'."
        ) from None
    return pq


def _column_kinds(schema):
    """Return, by name, what columns hold: "single", "double" or "text"; None for what is neither numbers nor text."""
    return {field.name: _column_kind(field.type) for field in schema if not _PANDAS_INDEX.fullmatch(field.name)}


def _column_kind(kind):
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_float32(kind) or types.is_float16(kind):
        return "single"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return "double"
    return None


def _gathered(groups, step):
    """Return lists of row groups that follow each other, each of at most ``step`` rows where there are several."""
    parts = []
    for group, n_rows in enumerate(groups):
        if parts and sum(groups[g] for g in parts[-1]) + n_rows <= step:
            parts[-1].append(group)
        elif n_rows:
            parts.append([group])
    return parts


def _plain(column):
    import pyarrow as pa

    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no rows, or beyond what one array can hold
        values = pa.concat_arrays(values.chunks)
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _numbers(column):
    """Return a column as floats, with NaN for what is missing."""
    import pyarrow as pa

    values = _plain(column)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not pa.types.is_floating(values.type) or pa.types.is_float16(values.type):
        values = values.cast(pa.float64(), safe=False)
    return values.to_numpy(zero_copy_only=False)


def _label_column(column, name, where):
    if column.null_count:
        raise DataError(
            f"{where}: {column.null_count} of {len(column)} rows have no value in the target column {name!r}; "
            "leave these rows out of the file."
        )
    if _column_kind(column.type) == "text":
        return labels_of(text_column(column))
    labels = _numbers(column).astype(np.float64)
    if np.isnan(labels).any():
        raise DataError(f"{where}: the target column {name!r} has nan; leave these rows out of the file.")
    return labels_of(labels)


def _listed(names):
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
