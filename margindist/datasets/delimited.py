"""Delimited text: comma, semicolon, tab, bar or white space, sniffed; strict about every line.

pandas guesses where this reader asks: it fills up short lines, makes a column of texts of one with a damaged number,
and cannot say in which line of the file that stands.

A block of the file is cut once. Columns are taken for numbers until a field says otherwise; numbers are read where they
stand, and only text is looked at again.
"""

from itertools import pairwise

import numpy as np

from margindist.compilation import njit
from margindist.datasets.dataset import (
    MISSING,
    MISSING_NUMBERS,
    TARGET_NAMES,
    DataError,
    Table,
    Text,
    counted,
)
from margindist.datasets.fields import ALL_TEXT, BLANKS, BOM, Layout, cut, read_blocks, to_number, word_at
from margindist.datasets.spelled import interpret

_SAMPLE_ROWS = 50
_FEW_WORDS = 0.2  # a column with a smaller share of words looks like a column of numbers
_FEW_LEVELS = 256  # room for so many different texts to begin with
_FREE, _LOWER_HALF, _UPPER_HALF = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
_DELIMITERS = b"\t;|,"
_POINT, _COMMA = b".,"


def read_delimited(opened, name, head, text=()):
    """Return a :class:`Table` from delimited text; ``opened`` opens the file anew, ``head`` is how it begins.

    Columns named in ``text`` are text, whatever they hold.
    """
    n_comments = _comment_lines(head)
    if n_comments:
        head = head.split(b"\n", n_comments)[-1]
        whole, opened = opened, lambda: _Blanked(whole(), n_comments)
    delimiter = _sniff_delimiter(head)
    asked, text = frozenset(text), set(text)
    while True:
        with opened() as file:
            columns, names, notes = _read(file, name, delimiter, text)
        late = {column.name for column in columns if column.late}
        if not late:
            break
        text |= late
    if not columns[0].size:
        raise DataError(f"{name}: the file has no rows below its first line.")
    for column in columns:
        column.check_finite(name)
    if any(column.has_decimal_commas for column in columns):
        notes = (*notes, "Commas within numbers were taken as decimal points.")
    if n_comments:
        notes = (f"Left out {counted(n_comments, 'comment line')} at the top.", *notes)
    finished, unnamed = {}, []
    while columns:
        column = columns.pop(0)  # which frees what it was made of
        values, remark = column.finish()
        if not names[column.name]:
            if _is_empty(values):  # lines end in a delimiter
                continue
            unnamed.append(column.name)
        spelled = None if column.name in asked else _spelled(column.name, values)
        if spelled is not None and not (spelled[0].keys() & (set(names) - {column.name})):
            finished |= spelled[0]
            notes = (*notes, spelled[1])
            continue
        finished[column.name] = values
        if remark and column.name not in asked:
            notes = (*notes, remark)
    if unnamed:
        notes = (*notes, f"Without a name, and called by their place: {', '.join(unnamed)}.")
    return Table(tuple(finished), list(finished.values()), notes)


def _is_empty(column):
    return not column.levels if isinstance(column, Text) else bool(np.isnan(column).all())


def _comment_lines(head):
    """Return how many lines at the top are comments: they begin with #, or tell Excel the delimiter.

    The last of them is no comment if it has as many delimiters as the line below: then it has the names.
    """
    lines = head.removeprefix(BOM).split(b"\n")
    count = int(lines[0][:4].lower() == b"sep=" and len(lines[0].strip()) == 5)
    while count < len(lines) - 1 and lines[count].startswith(b"#"):
        count += 1
    if 0 < count < len(lines) and lines[count - 1].startswith(b"#"):
        above, below = lines[count - 1], lines[count]
        count -= any(above.count(mark) == below.count(mark) > 0 for mark in (b"\t", b";", b"|", b","))
    return count


class _Blanked:
    """An open file of bytes whose first lines are blank, so that the lines below keep their numbers."""

    def __init__(self, file, n_lines):
        self._file = file
        for _ in range(n_lines):
            file.readline()
        self._first = b"\n" * n_lines

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def read(self, size):
        """Read some bytes."""
        first, self._first = self._first, b""
        return first or self._file.read(size)


def _spelled(name, values):
    """Return the columns of numbers that text spells, such as $1,200 or 31.12.2024, and a sentence, or None."""
    if not isinstance(values, Text) or not values.levels:
        return None
    if not any(letter.isdigit() for letter in values.levels[-1]):  # levels are in order, words come last
        return None
    return interpret(name, values)


def _read(file, name, delimiter, text):
    """Read all rows; return columns, names and notes. Columns that turned out to be text after numbers are late."""
    columns = []
    for block, cut_again in read_blocks(file, delimiter, name, lambda: _layout(columns)):
        skipped = 0
        if not columns:
            names, notes, skipped = _begin(block)
            columns.extend(_Column(column, column in text, delimiter != _COMMA) for column in names)
            block = cut_again()
            _check_first_line(block, name)
        ragged = np.flatnonzero(block.widths != len(names))
        if len(ragged):
            line, width = block.lines[ragged[0]], block.widths[ragged[0]]
            raise DataError(f"{name}, line {line}: expected {counted(len(names), 'field')}, got {width}.")
        while not _settle(block, columns, skipped):
            block = cut_again()
        _extend(columns, block, skipped)
    if not columns:
        raise DataError(f"{name}: the file has no rows.")
    return columns, names, notes


def _check_first_line(block, name):
    """Raise an error if the first line alone has another number of fields than all others."""
    first, *below = block.widths.tolist()
    if len(below) > 1 and set(below) == {below[0]} != {first}:
        had = f"the first line has {counted(first, 'field')}, those below have {below[0]}"
        do = "give every column a name, and remove a title, or begin it with #"
        raise DataError(f"{name}, line {block.lines[0]}: {had}; {do}.")


def _begin(block):
    """Return names as :func:`_header` does, sentences, and how many rows hold them, from the first block."""
    width = block.widths[0]
    names, notes = _header([block.field(k) for k in range(width)], block)
    if names is not None:
        return names, notes, 1
    names = {f"x{k}": f"x{k}" for k in range(width)}
    return names, ("The first line was taken as data, so columns are called x0, x1, and so on.",), 0


def _layout(columns):
    """Return what the columns are so far, for compiled code."""
    if not columns:
        return ALL_TEXT
    numbers = np.array([not column.is_text for column in columns])
    points = np.array([column.point for column in columns if not column.is_text], dtype=np.uint8)
    return Layout(np.where(numbers, np.cumsum(numbers) - 1, -1), points)


def _settle(block, columns, skipped):
    """Let each column of numbers read the fields that compiled code left; tell whether all columns stay what they are.

    The first rows, which hold the names, are skipped.
    """
    unread = block.unread[block.unread[:, 0] >= skipped]
    of_numbers = [column for column in columns if not column.is_text]
    stay = True
    for place in np.unique(unread[:, 1]).tolist():
        fields = unread[unread[:, 1] == place]
        stay &= of_numbers[place].settle(block, place, fields)
    return stay


def _extend(columns, block, skipped):
    """Add the rows of a block, without the first ones that are skipped, to the columns."""
    n_text = sum(column.is_text for column in columns)
    texts, numbers = 0, 0
    for column in columns:
        if column.is_text:
            column.extend_text(block, range(skipped * n_text + texts, len(block.starts), n_text))
            texts += 1
        else:
            column.extend_numbers(block.numbers[numbers, skipped:], block.pointed[numbers])
            numbers += 1


@njit(cache=True, nogil=True, forceinline=True)
def _some_bytes(text, start, size):
    """Return fewer than eight bytes as one word, the first of them lowest."""
    if start + 8 <= len(text):
        return word_at(text, start) & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(text[start + k]) << np.uint64(8 * k)
    return word


@njit(cache=True, nogil=True, forceinline=True)
def _hash(text, start, end, seed):
    factor, half = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    key = np.uint64(seed) + np.uint64(end - start)
    while start + 8 <= end:
        key = (key ^ word_at(text, start)) * factor
        key ^= key >> half
        start += 8
    key = (key ^ _some_bytes(text, start, end - start)) * factor
    return key ^ (key >> half)


@njit(cache=True, nogil=True, forceinline=True)
def _same_text(text, start, other, other_start, size):
    while size >= 8:
        if word_at(text, start) != word_at(other, other_start):
            return False
        start, other_start, size = start + 8, other_start + 8, size - 8
    return _some_bytes(text, start, size) == _some_bytes(other, other_start, size)


@njit(cache=True, nogil=True)
def _number_levels(text, starts, ends, doubled, offset, step, row, slots, keys, flags, level_ends, pool, count, codes):
    """Give fields of a column, from a row on, the number of their level; add new levels while there is room.

    The field of a row is number ``offset + row * step``: slices of the fields, of which some are contiguous and some
    are not, would be compiled for twice.
    ``slots`` is a hash table (open addressing, a power of two, 0 where free) of the upper half of the key and, in the
    lower half, the number of the level counted from 1; level ``k`` has the key ``keys[k]`` and is
    ``pool[level_ends[k] : level_ends[k + 1]]``. Return the row that was reached and how many levels there are.
    """
    mask = np.uint64(len(slots) - 1)
    while row < len(codes):
        field = offset + row * step
        start, size = starts[field], ends[field] - starts[field]
        key = _hash(text, start, ends[field], doubled[field])
        place = key & mask
        while slots[place] != _FREE:
            slot = slots[place]
            if (slot ^ key) & _UPPER_HALF == _FREE:
                level = np.int64(slot & _LOWER_HALF) - 1
                first = level_ends[level]
                if (
                    level_ends[level + 1] - first == size
                    and flags[level] == doubled[field]
                    and _same_text(text, start, pool, first, size)
                ):
                    break
            place = (place + np.uint64(1)) & mask
        if slots[place] == _FREE:
            first = level_ends[count]
            if count == len(keys) or first + size > len(pool):
                break
            for k in range(size):
                pool[first + k] = text[start + k]
            keys[count], flags[count], level_ends[count + 1] = key, doubled[field], first + size
            count += 1
            slots[place] = (key & _UPPER_HALF) | np.uint64(count)
        codes[row] = np.int64(slots[place] & _LOWER_HALF) - 1
        row += 1
    return row, count


@njit(cache=True, nogil=True)
def _place(keys, slots):
    mask = np.uint64(len(slots) - 1)
    for level in range(len(keys)):
        place = keys[level] & mask
        while slots[place] != _FREE:
            place = (place + np.uint64(1)) & mask
        slots[place] = (keys[level] & _UPPER_HALF) | np.uint64(level + 1)


class _Levels:
    """The different texts of a column, numbered in order of appearance."""

    def __init__(self):
        self._count = 0
        self._keys = np.empty(_FEW_LEVELS, dtype=np.uint64)
        self._flags = np.empty(_FEW_LEVELS, dtype=np.bool_)
        self._ends = np.zeros(_FEW_LEVELS + 1, dtype=np.int64)
        self._slots = np.zeros(4 * _FEW_LEVELS, dtype=np.uint64)
        self._pool = np.empty(16 * _FEW_LEVELS, dtype=np.uint8)

    def numbers(self, block, fields):
        """Return the number of each field, of a range of those of a block."""
        numbers = np.empty(len(fields), dtype=np.int32)
        row = 0
        while True:
            row, self._count = _number_levels(
                block.text,
                block.starts,
                block.ends,
                block.doubled,
                fields.start,
                fields.step,
                row,
                self._slots,
                self._keys,
                self._flags,
                self._ends,
                self._pool,
                self._count,
                numbers,
            )
            if row == len(fields):
                return numbers
            self._make_room(block.ends[fields[row]] - block.starts[fields[row]])

    def _make_room(self, n_bytes):
        """Make room for one more level, and for twice as many as before."""
        if self._count == len(self._keys):
            size = 2 * self._count
            self._keys, self._flags = _longer(self._keys, size), _longer(self._flags, size)
            self._ends = _longer(self._ends, size + 1)
            self._slots = np.zeros(4 * size, dtype=np.uint64)
            _place(self._keys[: self._count], self._slots)
        n_bytes += self._ends[self._count]
        if n_bytes > len(self._pool):
            self._pool = _longer(self._pool, 2 * n_bytes)

    def texts(self):
        """Return all of them."""
        pool, ends = self._pool.tobytes(), self._ends[: self._count + 1].tolist()
        texts = [pool[start:end].decode() for start, end in pairwise(ends)]
        for k in np.flatnonzero(self._flags[: self._count]):
            texts[k] = texts[k].replace('""', '"')
        return texts


def _longer(values, size):
    longer = np.empty(size, dtype=values.dtype)
    longer[: len(values)] = values
    return longer


class _Column:
    """A column that is numbers until a value says otherwise.

    Text after a block of numbers sets ``late``: the numbers' own spelling is lost by then, so the file is read again
    with this column as text from the start. Decimal points and decimal commas in one column make it text.
    """

    def __init__(self, name, is_text, may_have_commas):
        self.name = name
        self.is_text = is_text
        self.size = 0
        self.late = False
        self.point = _POINT
        self._may_have_commas = may_have_commas  # until a point is seen
        self._infinite_line = None
        self._blocks = []
        self._levels = _Levels()

    def settle(self, block, place, fields):
        """Read fields that may be numbers yet; tell whether the column stays as it is: numbers, with this point."""
        numbers = block.numbers[place]
        for row, _, start, end in map(np.ndarray.tolist, fields):
            text = block.between(start, end)
            value = to_number(text if self.point == _POINT else text.replace(".", "?").replace(",", "."))
            if value is None:
                self._become(block, place, text)
                return False
            numbers[row] = value
            if np.isinf(value) and self._infinite_line is None:
                self._infinite_line = block.lines[row]
        return True

    def _become(self, block, place, text):
        """Become what a text shows that is no number: numbers with decimal commas, or text."""
        if self._may_have_commas and "," in text and not block.pointed[place]:
            self.point = _COMMA
            self._may_have_commas = False
        else:
            self.is_text = True
            self.late = bool(self._blocks)

    def extend_numbers(self, numbers, pointed):
        """Add values."""
        self.size += len(numbers)
        self._blocks.append(numbers)
        self._may_have_commas &= not pointed

    def extend_text(self, block, fields):
        """Add a range of the fields of a block."""
        self.size += len(fields)
        if not self.late:
            self._blocks.append(self._levels.numbers(block, fields))

    @property
    def has_decimal_commas(self):
        """Whether commas in its numbers were read as decimal points."""
        return not self.is_text and self.point == _COMMA

    def check_finite(self, file_name):
        """Raise an error if a number is infinite."""
        if not self.is_text and self._infinite_line is not None:
            line = self._infinite_line
            raise DataError(f"{file_name}, line {line}: the column {self.name!r} has an infinite value.")

    def finish(self):
        """Return the column, as numbers or :class:`Text`, and a sentence if a few words alone make text of it."""
        if not self.is_text:
            return np.concatenate(self._blocks), None
        texts = self._levels.texts()
        levels = sorted(set(texts) - MISSING)
        numbers = {level: k for k, level in enumerate(levels)}
        places = np.array([numbers.get(text, -1) for text in texts], dtype=np.int32)
        codes = np.concatenate([places[block] for block in self._blocks])
        column = Text(codes, tuple(levels))
        words = (text for text in texts if text in numbers and not _is_number(text))
        return column, self._remark(column, next(words, None))

    def _remark(self, column, word):
        if word is None or not any(map(_is_number, column.levels)):
            return None
        counts = np.bincount(column.codes + 1, minlength=len(column.levels) + 1)[1:].tolist()
        known, others = sum(counts), 0
        for count, level in zip(counts, column.levels):
            others += 0 if _is_number(level) else count
            if others >= _FEW_WORDS * known:
                return None
        return (
            f"The column {self.name!r} was read as text, for {others} of its {known} values "
            f"{'is no number' if others == 1 else 'are no numbers'}, such as {word!r}."
        )


def _sniff_delimiter(head):
    """Return the delimiter that cuts the first rows into equally many fields, more than one."""
    head = head.removeprefix(BOM)
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    best, best_share = _COMMA, 0.0
    for delimiter in _DELIMITERS:
        widths = _first_widths(whole_lines, delimiter)
        usual = max(set(widths), key=widths.count, default=1)
        share = widths.count(usual) / len(widths) if usual > 1 else 0.0
        if share >= 0.9:
            return delimiter
        if share > best_share:
            best, best_share = delimiter, share
    widths = set(_first_widths(whole_lines, BLANKS))
    return BLANKS if len(widths) == 1 and widths != {1} else best


def _first_widths(text, delimiter):
    return cut(text, delimiter)[0].widths[:_SAMPLE_ROWS].tolist()


def _header(first, block):
    """Return the names, each with how the first row has it, or None if that is data, and sentences about them."""
    if not _is_header(first, block):
        return None, ()
    names, renamed = {}, False  # a dictionary, to keep their order
    for k, field in enumerate(first):
        name, copies = field or f"x{k}", 0
        while name in names:
            copies += 1
            name, renamed = f"{field or f'x{k}'}.{copies}", True
        names[name] = field
    return names, ("Columns of the same name were numbered.",) * renamed


def _is_header(first, block):
    """Whether a row has a name above a column of numbers, or a target's name, or words alone that are not repeated."""

    def below(k):
        return block.column(k, _SAMPLE_ROWS)[1:]

    if len(block.lines) == 1:
        return not any(map(_is_number, first))
    plain = [field not in MISSING and not _is_number(field) for field in first]
    if any(plain[k] and _all_numbers(below(k)) for k in range(len(first))):
        return True
    columns = [below(k) for k in range(max(block.widths[:_SAMPLE_ROWS]))]
    values_below = set().union(*columns)  # "y" may also stand for yes
    if any(field.lower() in TARGET_NAMES and field not in values_below for field in first):
        return True
    repeated = any(field in column for field, column in zip(first, columns))
    return len(set(first)) == len(first) and all(plain) and not repeated


def _is_number(field):
    return to_number(field) is not None


def _all_numbers(fields):
    present = [field for field in fields if field not in MISSING_NUMBERS]
    return bool(present) and all(map(_is_number, present))
