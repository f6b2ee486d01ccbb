"""Delimited text: comma, semicolon, tab, bar or white space, sniffed; strict about every line."""

import csv
import re
from itertools import islice

import numpy as np

from margindist.datasets.dataset import DataError
from margindist.datasets.tables import MISSING, TARGET_NAMES, Table, order_levels

__all__ = ["decoded_lines", "read_delimited"]

_BLOCK_ROWS = 20_000
_SAMPLE_LINES = 50
_FEW_WORDS = 0.2  # share of words below which a column looks like one of numbers
_DELIMITERS = ("\t", ";", "|", ",")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?|[+-]?\d+,?")


def decoded_lines(file, name):
    """Yield the lines of a file of bytes as text; refuse what is not UTF-8 and say where."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: byte {line[error.start]:#04x} is not UTF-8; save the file as UTF-8 text."
            ) from None
        if "\0" in text:
            raise DataError(f"{name}, line {number}: expected text, got a zero byte.")
        yield text


def read_delimited(opened, name, head, text=()):
    """Return a :class:`Table` from delimited text; ``opened`` opens the file anew, ``head`` is how it begins.

    Columns named in ``text`` are text, whatever they hold.
    """
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    sample = list(islice(decoded_lines(whole_lines.splitlines(keepends=True), name), _SAMPLE_LINES))
    delimiter = _sniff_delimiter(sample)
    asked, text = frozenset(text), set(text)
    while True:
        with opened() as file:
            columns, names, notes, late = _read(file, name, delimiter, text)
        if not late:
            break
        text |= late
    if not columns[0].size:
        raise DataError(f"{name}: the file has no rows below its first line.")
    if any(column.comma for column in columns):
        notes = (*notes, "Commas within numbers were taken as decimal points.")
    notes = (*notes, *(remark for column in columns if column.name not in asked and (remark := column.remark())))
    return Table(names, [column.finish() for column in columns], notes)


def _read(file, name, delimiter, text):
    """Read all rows; return columns, names, notes, and names of those that turned out to be text after numbers."""
    rows = _rows(file, delimiter, name)
    block = list(islice(rows, _SAMPLE_LINES))
    if not block:
        raise DataError(f"{name}: the file has no rows.")
    if len(block) == 1 and not any(_is_number(field) for field in block[0][1]):
        raise DataError(f"{name}: the file has no rows below its first line.")
    names, notes = _header([fields for _, fields in block])
    if names is not None:
        block = block[1:]
    else:
        names = tuple(f"x{k}" for k in range(len(block[0][1])))
        notes = ("The first line was taken as data, so columns are called x0, x1, and so on.",)
    columns = [_Column(column, column in text, delimiter != ",") for column in names]
    while block:
        for line, fields in block:
            if len(fields) != len(names):
                raise DataError(f"{name}, line {line}: expected {len(names)} fields, got {len(fields)}.")
        lines = [line for line, _ in block]
        for column, values in zip(columns, zip(*(fields for _, fields in block), strict=True), strict=True):
            column.extend(values, lines, name)
        block = list(islice(rows, _BLOCK_ROWS))
    return columns, names, notes, {column.name for column in columns if column.late}


def _rows(file, delimiter, name):
    """Yield (line number, fields) of every line that is not blank."""
    lines = decoded_lines(file, name)
    if delimiter is None:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.split()
        return
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for fields in reader:
            if len(fields) > 1 or (fields and fields[0].strip()):
                yield reader.line_num, [field.strip() for field in fields]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {error}.") from None


class _Column:
    """A column that is numbers until a value says otherwise.

    Text after a block of numbers sets ``late``: the numbers' own spelling is lost by then, so the file is read again
    with this column as text from the start.
    """

    def __init__(self, name, is_text, decimal_comma):
        self.name = name
        self.size = 0
        self.comma = False
        self.late = False
        self._decimal_comma = decimal_comma
        self._blocks = []
        self._levels = {} if is_text else None

    def extend(self, values, lines, file_name):
        self.size += len(values)
        if self.late:
            return
        if self._levels is None:
            numbers = self._numbers(values)
            if numbers is not None:
                infinite = np.flatnonzero(np.isinf(numbers))
                if len(infinite):
                    line = lines[infinite[0]]
                    raise DataError(f"{file_name}, line {line}: the column {self.name!r} has an infinite value.")
                self._blocks.append(numbers)
                return
            if self._blocks:
                self.late = True
                return
            self._levels = {}
        levels = self._levels
        codes = [-1 if value in MISSING else levels.setdefault(value, len(levels)) for value in values]
        self._blocks.append(np.array(codes, dtype=np.int32))

    def _numbers(self, values):
        """Return values as float64, or None where one is neither a number nor missing."""
        if "_" in "".join(values):  # Python reads 1_0 as ten
            return None
        try:
            return np.array(list(map(float, values)))
        except ValueError:
            values = ["nan" if value in MISSING else value for value in values]
        try:
            return np.array(list(map(float, values)))
        except ValueError:
            if not self._decimal_comma or not all(
                value == "nan" or _DECIMAL_COMMA.fullmatch(value) for value in values
            ):
                return None
        self.comma = True
        return np.array([float(value.replace(",", ".")) for value in values])

    def remark(self):
        """Return a sentence if a few values alone make text of what else would be numbers; else None."""
        levels = list(self._levels or ())
        words = [k for k, level in enumerate(levels) if not _is_number(level)]
        counts = np.bincount(np.concatenate(self._blocks) + 1, minlength=len(levels) + 1)[1:] if levels else []
        others = int(sum(counts[k] for k in words))
        if not 0 < others < _FEW_WORDS * sum(counts):
            return None
        return (
            f"The column {self.name!r} was read as text, for {others} of its {int(sum(counts))} values "
            f"{'is no number' if others == 1 else 'are no numbers'}, such as {levels[words[0]]!r}."
        )

    def finish(self):
        """Return the column as numbers or :class:`Text`."""
        stored = np.concatenate(self._blocks)
        return stored if self._levels is None else order_levels(stored, list(self._levels))


def _sniff_delimiter(lines):
    """Return the delimiter that cuts the lines into equally many fields, more than one; None is white space."""
    lines = [line for line in lines if line.strip()]
    best, best_share = None, 0.0
    for delimiter in _DELIMITERS:
        try:
            counts = [len(fields) for fields in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
        except csv.Error:
            continue
        counts = [count for count in counts if count]
        usual = max(set(counts), key=counts.count, default=1)
        share = counts.count(usual) / len(counts) if usual > 1 else 0.0
        if share >= 0.9:
            return delimiter
        if share > best_share:
            best, best_share = delimiter, share
    widths = {len(line.split()) for line in lines}
    return None if len(widths) == 1 and widths != {1} else best or ","


def _header(rows):
    """Return the names in the first row, or None if it is data, and sentences about them."""
    first, below = rows[0], rows[1:]
    repeated = [any(k < len(row) and row[k] == field for row in below) for k, field in enumerate(first)]
    plain = [field not in MISSING and not _is_number(field) for field in first]
    above_numbers = any(plain[k] and _all_numbers(row[k] for row in below if k < len(row)) for k in range(len(first)))
    values_below = {field for row in below for field in row}  # "y" may also stand for yes
    named = any(field.lower() in TARGET_NAMES and field not in values_below for field in first)
    alone = len(set(first)) == len(first) and all(plain) and not any(repeated)
    if not below or not (above_numbers or named or alone):
        return None, ()
    names, renamed = [], False
    for k, field in enumerate(first):
        name, copies = field or f"x{k}", 0
        while name in names:
            copies += 1
            name, renamed = f"{field or f'x{k}'}.{copies}", True
        names.append(name)
    notes = ["Columns of the same name were numbered."] * renamed
    unnamed = [name for name, field in zip(names, first) if not field]
    if unnamed:
        notes.append(f"Without a name, and called by their place: {', '.join(unnamed)}.")
    return tuple(names), tuple(notes)


def _is_number(field):
    try:
        float(field)
    except ValueError:
        return False
    return True


def _all_numbers(fields):
    present = [field for field in fields if field not in MISSING]
    return bool(present) and all(map(_is_number, present))
