"""Files with columns, read by Arrow: Parquet and Feather files and delimited text, whole or in parts.

A format has ``kinds`` (what columns hold, by name), ``sizes`` (for each file the rows of its units: row groups, record
batches or lines of text that are read together), ``read(number, units, names)``, which returns columns of a file as
arrays of floats or :class:`~margindist.datasets.dataset.Text`, ``where(number, units)``, and ``spellings``.
"""

import io
import re
from functools import partial
from pathlib import Path

import numpy as np

from margindist.datasets import spelling
from margindist.datasets.dataset import (
    TARGET_NAMES,
    Chunks,
    DataError,
    Table,
    Text,
    feature_table,
    is_part_of_date,
    labels_of,
    needed_pyarrow,
    one_sentence,
    refuse_beyond,
    text_column,
)
from margindist.datasets.delimited import TextColumns, laid_out, read_rows
from margindist.datasets.sources import Stamp, files_in
from margindist.spaces.partitions import Piece

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the row names that pandas stores beside the columns
ENDINGS = {
    "parquet": (".parquet", ".pq"),
    "feather": (".feather", ".arrow", ".ipc"),
    "csv": (".csv", ".tsv", ".tab"),
}
_COLUMNS_AT_ONCE = 32  # what is decoded beside the array it goes to
_ROWS_AT_ONCE = 2048  # copied from columns to rows while they are in the processor's cache
_MOST_CATEGORIES = 50  # columns that a column of text becomes at most
_MOST_LEVELS = 100_000  # different texts by which it is decided how a column of text is read
_USES = {"target": "labels", "weight": "numbers"}


# ---------------------------------------------------------------------- whole files


def read_table(path, name, kind, most):
    """Read all columns of a Parquet or Feather file, of at most so many bytes, as a :class:`Table`."""
    needed_pyarrow(name, "Parquet and Feather files need")
    stored = {"parquet": _whole_parquet, "feather": _whole_feather}[kind](path, name, most)
    kinds = _column_kinds(stored.schema)
    if len(kinds) < len([field for field in stored.schema.names if not _PANDAS_INDEX.fullmatch(field)]):
        raise DataError(f"{name}: two columns have the same name.")
    if not stored.num_rows:
        raise DataError(f"{name}: the file has no rows.")
    columns, notes, left_out = {}, [], []
    for column, what in kinds.items():
        type_ = stored.schema.field(column).type
        if what is not None:
            columns[column] = _values(stored[column], what)
            if what != "text" and np.isinf(columns[column]).any():
                raise DataError(f"{name}: the column {column!r} has infinite values.")
        elif _is_date(type_):
            parts = _date_parts(column, stored[column])
            columns |= parts
            notes.append(spelling.date_sentence(column, parts))
        else:
            left_out.append(f"{column!r} ({type_})")
    return Table(tuple(columns), list(columns.values()), (*notes, *_note(left_out)))


def _whole_parquet(path, name, most):
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        refuse_beyond(most, 8 * file.metadata.num_rows * file.metadata.num_columns, name)
        stored = file.read()
    stored.validate(full=True)  # text is UTF-8
    return stored


def _whole_feather(path, name, most):
    import pyarrow as pa

    batches, size = [], 0
    with pa.OSFile(str(path)) as file:
        stored = pa.ipc.open_file(file)
        for number in range(stored.num_record_batches):
            batches.append(_batch(stored, number))
            size += batches[-1].nbytes
            refuse_beyond(most, size, name)
        return pa.Table.from_batches(batches, stored.schema)


def _batch(stored, number):
    """Return a record batch; Arrow trusts offsets and indices in it until it is told to look at them."""
    batch = stored.get_batch(number)
    batch.validate(full=True)
    return batch


def _is_date(kind):
    import pyarrow.types as types

    return types.is_date(kind) or types.is_timestamp(kind)


def _date_parts(name, column):
    moments = _plain(column).to_numpy(zero_copy_only=False).astype("datetime64[s]")
    with_hours = bool((moments != moments.astype("datetime64[D]"))[~np.isnat(moments)].any())
    return spelling.date_parts(name, moments, with_hours)


def _note(left_out):
    return (f"Columns that are neither numbers nor text left out: {', '.join(left_out)}.",) if left_out else ()


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


def _plain(column):
    import pyarrow as pa

    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no rows, or beyond what one array can hold
        values = pa.concat_arrays(values.chunks)
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _values(column, kind):
    """Return a column as :class:`Text`, or as floats with NaN for what is missing."""
    import pyarrow as pa

    if kind == "text":
        return text_column(column)
    values = _plain(column)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not pa.types.is_floating(values.type) or pa.types.is_float16(values.type):
        values = values.cast(pa.float64(), safe=False)
    numbers = values.to_numpy(zero_copy_only=False)
    return numbers if kind == "single" else numbers.astype(np.float64, copy=False)


# ---------------------------------------------------------------------- formats in parts


class _Stored:
    """Files that say themselves what their columns hold."""

    spellings: dict = {}
    columns_at_once = _COLUMNS_AT_ONCE

    def __init__(self, stamps):
        self.stamps, self.sizes, self._kinds = stamps, [], []
        for stamp in stamps:
            with one_sentence(stamp.path):
                schema, sizes = self._look(stamp.path)
            self._kinds.append(_column_kinds(schema))
            self.sizes.append(sizes)
        self.kinds = self._kinds[0]

    def compare(self, names):
        """Raise an error unless each file has these columns of the first."""
        first = self.stamps[0].path
        for stamp, kinds in zip(self.stamps, self._kinds):
            for name in names:
                if name not in kinds:
                    raise DataError(f"{stamp.path}: lacks the column {name!r}, which {first.name} has.")
                if (kinds[name] == "text") != (self.kinds[name] == "text"):
                    was, now = ("text" if kind[name] == "text" else "numbers" for kind in (self.kinds, kinds))
                    raise DataError(
                        f"{stamp.path}: expected {was} in the column {name!r}, as in {first.name}, got {now}."
                    )

    def read(self, number, units, names):
        """Return columns of some units of a file, by name."""
        stored = self._load(self.stamps[number].path, units, names)
        return {name: _values(stored[name], self.kinds[name]) for name in names}

    def where(self, number, units):
        """Say where units of a file are."""
        words = f"{self.unit} {units[0]}" if len(units) == 1 else f"{self.unit}s {units[0]} to {units[-1]}"
        return f"{self.stamps[number].path.name}, {words}"


class ParquetFiles(_Stored):
    """Parquet files, in row groups."""

    unit = "row group"

    def _look(self, path):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            return file.schema_arrow, [file.metadata.row_group(group).num_rows for group in groups]

    def _load(self, path, units, names):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            stored = file.read_row_groups(units, columns=names)
        stored.validate(full=True)
        return stored


class FeatherFiles(_Stored):
    """Feather files, in record batches."""

    unit = "record batch"

    def _look(self, path):
        import pyarrow as pa

        with pa.OSFile(str(path)) as file:
            stored = pa.ipc.open_file(file)
            return stored.schema, [_batch(stored, k).num_rows for k in range(stored.num_record_batches)]

    def _load(self, path, units, names):
        import pyarrow as pa

        with pa.OSFile(str(path)) as file:
            stored = pa.ipc.open_file(file)
            return pa.Table.from_batches([_batch(stored, k).select(names) for k in units])


class CsvFiles:
    """Delimited text, cut where lines end near equal numbers of bytes; it is read once to find what columns hold.

    How text is read (dates, thousands, decimal commas) is decided on all files together, by up to 100,000 different
    texts of each column, unless ``told``.
    """

    columns_at_once = None  # a part is read once for all columns

    def __init__(self, stamps, split, told):
        self.stamps = stamps
        self._layouts = [self._laid_out(stamp) for stamp in stamps]
        self._names = list(self._layouts[0].names)
        for stamp, layout in zip(stamps, self._layouts):
            if list(layout.names) != self._names:
                raise DataError(f"{stamp.path}: expected the columns of {stamps[0].path.name} in its first line.")
        row_bytes = max(1, self._bytes_per_row())
        n_rows = sum(stamp.size for stamp in stamps) // row_bytes + 1
        step = split.step(n_rows, 8 * len(self._names))
        self._spans = [_spans(stamp, layout, step * row_bytes) for stamp, layout in zip(stamps, self._layouts)]
        told = {name: spelling.from_plain(described, name) for name, described in (told or {}).items()}
        self._scan(told)

    def compare(self, names):
        """All files have the same columns."""

    def _laid_out(self, stamp):
        with one_sentence(stamp.path), open(stamp.path, "rb") as file:
            head = file.read(1 << 20)
        if not head:
            raise DataError(f"{stamp.path}: the file is empty.")
        return laid_out(head, stamp.path.name)

    def _bytes_per_row(self):
        with open(self.stamps[0].path, "rb") as file:
            head = file.read(1 << 20)
        return len(head) // max(1, head.count(b"\n"))

    def _scan(self, told):
        """Read all parts until it is clear which columns hold numbers, and what the others are."""
        usual = spelling.Numbers(self._layouts[0].dialect.point)
        numbers = frozenset.intersection(*(layout.numbers for layout in self._layouts))
        numbers -= {k for k, name in enumerate(self._names) if told.get(name, usual) != usual}
        if any(layout.dialect.point != usual.point for layout in self._layouts):
            numbers = frozenset()
        while True:
            late, levels, self.sizes, empty = set(), {}, [], set(range(len(self._names)))
            self._numbers = numbers
            for number, spans in enumerate(self._spans):
                self.sizes.append([])
                for unit in range(len(spans)):
                    columns = self._rows(number, unit)
                    late |= {k for k in numbers if not isinstance(columns[k], Chunks)}
                    self.sizes[-1].append(_count(columns[0]))
                    _take_note(columns, levels, empty)
            if not late:
                break
            numbers -= late
        commas = self._layouts[0].dialect.delimiter != b","
        self.kinds, self._made, self._how = {}, {}, {}
        for k, name in enumerate(self._names):
            if k in empty and not self._layouts[0].names[name]:  # lines end in a delimiter
                continue
            how = usual if k in numbers else told.get(name)
            if how is None:
                how = spelling.guessed(levels[k], commas) if len(levels[k]) else spelling.Numbers()
            self._how[name] = how
            for made in spelling.names_of(name, how):
                self.kinds[made] = "text" if isinstance(how, spelling.Words) else "double"
                self._made[made] = k
        self.spellings = {name: spelling.as_plain(how) for name, how in self._how.items()}

    def _rows(self, number, unit):
        """Return all columns of a part as they are read."""
        opened, layout = self._part(number, unit)
        return read_rows(opened, self.stamps[number].path.name, layout)

    def _part(self, number, unit):
        stamp, (start, end, lines) = self.stamps[number], self._spans[number][unit]
        layout = self._layouts[number]
        dialect = layout.dialect._replace(offset=0, lines=lines)
        return partial(_part_of, stamp, start, end), layout._replace(numbers=self._numbers, dialect=dialect)

    def read(self, number, units, names):
        """Return columns of a part of a file, by name."""
        (unit,) = units
        opened, layout = self._part(number, unit)
        name = self.stamps[number].path.name
        columns = read_rows(opened, name, layout)
        reader = TextColumns(opened, name, layout, self._how, frozenset())
        made = {}
        for k in {self._made[wanted] for wanted in names}:
            column = columns[k] if isinstance(columns[k], Chunks) else text_column(columns[k], trim=True)
            made |= reader.finish(self._names[k], k, column)[0]
        return {wanted: made[wanted].dense() if isinstance(made[wanted], Chunks) else made[wanted] for wanted in names}

    def where(self, number, units):
        """Say where a part of a file is."""
        start, end, lines = self._spans[number][units[0]]
        return f"{self.stamps[number].path.name}, {end - start} bytes from line {lines + 1} on"


def _part_of(stamp, start, end):
    """Open some bytes of a file."""
    stamp.check()
    with open(stamp.path, "rb") as file:
        file.seek(start)
        return io.BytesIO(file.read(end - start))


def _spans(stamp, layout, step):
    """Return, for each part, where it begins and ends, and the lines above; lines end outside of quotes only."""
    start, lines = layout.dialect.offset, layout.dialect.lines
    spans, position, seen, inside = [], start, lines, 0
    with one_sentence(stamp.path), open(stamp.path, "rb") as file:
        file.seek(start)
        while chunk := file.read(1 << 20):
            if position + len(chunk) >= start + step:
                text = np.frombuffer(chunk, dtype=np.uint8)
                ends = np.flatnonzero(text == ord("\n"))
                quotes = np.searchsorted(np.flatnonzero(text == ord('"')), ends)
                for number, end in enumerate((position + ends + 1).tolist()):
                    if end >= start + step and (inside + quotes[number]) % 2 == 0:
                        spans.append((start, end, lines))
                        start, lines = end, seen + number + 1
            position += len(chunk)
            seen += chunk.count(b"\n")
            inside += chunk.count(b'"')
    return [*spans, (start, position, lines)] if start < position else spans


def _count(column):
    return sum(map(len, column.parts)) if isinstance(column, Chunks) else len(column)


def _take_note(columns, levels, empty):
    """Add the different texts of a part's columns to those known, and forget columns that are not empty."""
    import pyarrow as pa

    for k, column in columns.items():
        if isinstance(column, Chunks):
            if k in empty and not all(np.isnan(part).all() for part in column.parts):
                empty.discard(k)
            continue
        result = text_column(column, trim=True).levels
        result = result.filter(pa.array(~spelling.missing_among(result)))
        if len(result):
            empty.discard(k)
        known = levels.get(k)
        if known is None:
            levels[k] = result[:_MOST_LEVELS]
        elif len(known) < _MOST_LEVELS:
            levels[k] = pa.concat_arrays([known, result]).unique()[:_MOST_LEVELS]


def formats_of(kind, path, split, told=None):
    """Return the files of a folder, or one file, as a format."""
    needed_pyarrow(path, "Parquet, Feather and CSV files need")
    what = {"parquet": "Parquet files", "feather": "Feather files", "csv": "CSV files"}[kind]
    stamps = [Stamp.of(file) for file in files_in(path, ENDINGS[kind], what)]
    if kind == "csv":
        return CsvFiles(stamps, split, told)
    return (ParquetFiles if kind == "parquet" else FeatherFiles)(stamps)


# ---------------------------------------------------------------------- parts


class TableSource:
    """Parts of files with columns; small units that follow each other make one part."""

    is_in_memory = False

    def __init__(self, path, files, target, weight, columns, split, dtype):
        self._files = files
        self.label, self.target_name = Path(path).stem, target
        self._target, self._weight = target, weight
        self._choose(files.kinds, columns, files.stamps[0].path)
        files.compare([name for name in (*self._columns, target, weight) if name is not None])
        self.spellings = files.spellings
        numbers = {kind for kind in self._columns.values() if kind != "text"}
        self.dtype = np.dtype(dtype or (np.float32 if numbers == {"single"} else np.float64))
        self.n_columns, self.names = len(self._columns), tuple(self._columns)
        self._divide(files.sizes, split)

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

    def _divide(self, units, split):
        """Make parts of units, given as numbers of rows for each file."""
        widths = [_MOST_CATEGORIES if kind == "text" else 1 for kind in self._columns.values()]
        row_bytes = self.dtype.itemsize * sum(widths)
        n_rows = sum(map(sum, units))
        step = split.step(n_rows, row_bytes) if self._files.columns_at_once else 1
        self._parts = [(number, part) for number, sizes in enumerate(units) for part in _gathered(sizes, step)]
        self.sizes = tuple(sum(units[number][unit] for unit in part) for number, part in self._parts)
        self.spare_bytes = split.spare(n_rows, max(self.sizes, default=0) * row_bytes)
        for i, size in enumerate(self.sizes):
            split.check_part(n_rows, size, row_bytes, self.where(i))

    def read(self, i):
        """Return part i: an array where all columns are numbers, else a data frame."""
        number, units = self._parts[i]
        self._files.stamps[number].check()
        with one_sentence(self.where(i)):
            beside = [name for name in (self._target, self._weight) if name is not None]
            at_once = self._files.columns_at_once
            if at_once is None:
                columns = self._files.read(number, units, [*self._columns, *beside])
            else:
                columns = self._files.read(number, units, beside) if beside else {}
            y = None if self._target is None else _label_column(columns[self._target], self._target, self.where(i))
            weights = None if self._weight is None else columns[self._weight]
            read = (lambda names: columns) if at_once is None else partial(self._files.read, number, units)
            X = self._features(read, self.sizes[i], at_once or len(self._columns))
        return Piece(X, y, weights)

    def _features(self, read, n_rows, at_once):
        names = [name for name, kind in self._columns.items() if kind != "text"]
        numbers = np.empty((n_rows, len(names)), dtype=self.dtype)
        for first in range(0, len(names), at_once):
            some = names[first : first + at_once]
            columns = read(some)
            for start in range(0, n_rows, _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                for k, name in enumerate(some, first):
                    numbers[rows, k] = columns[name][rows]
        if len(names) == len(self._columns):
            return numbers
        texts = read([name for name in self._columns if name not in names])
        place = {name: k for k, name in enumerate(names)}
        columns = [numbers[:, place[name]] if name in place else texts[name] for name in self._columns]
        return feature_table(tuple(self._columns), columns)

    def where(self, i):
        """Say where part i is."""
        return self._files.where(*self._parts[i])


def _gathered(units, step):
    """Return lists of units that follow each other, each of at most ``step`` rows where there are several."""
    parts = []
    for unit, n_rows in enumerate(units):
        if parts and sum(units[k] for k in parts[-1]) + n_rows <= step:
            parts[-1].append(unit)
        elif n_rows:
            parts.append([unit])
    return parts


def guessed_target(files):
    """Return the column that is likely the target, by its name or as the last one, and a sentence that says so."""
    names = [name for name, kind in files.kinds.items() if kind is not None and not is_part_of_date(name)]
    lowered = [name.strip().lower() for name in names]
    for known in TARGET_NAMES:
        if known in lowered:
            chosen = names[lowered.index(known)]
            return chosen, (f"The column {chosen!r} was taken as the target, because of its name.",)
    if not names:
        raise DataError(f"{files.stamps[0].path}: there is no column of numbers or text.")
    return names[-1], (f"The last column, {names[-1]!r}, was taken as the target.",)


def _label_column(column, name, where):
    missing = column.codes < 0 if isinstance(column, Text) else np.isnan(column)
    if missing.any():
        raise DataError(
            f"{where}: {np.count_nonzero(missing)} of {len(missing)} rows have no value in the target column {name!r}; "
            "leave these rows out of the file."
        )
    return labels_of(column if isinstance(column, Text) else column.astype(np.float64))


def _listed(names):
    names = list(names)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
