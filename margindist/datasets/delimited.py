"""Delimited text: comma, semicolon, tab, bar or white space, sniffed; strict about every line.

pandas reads numbers two to four times faster, but guesses where this reader asks: it fills up short lines, makes a
column of texts of one with a damaged number, and cannot say in which line of the file that stands.
"""

from itertools import pairwise

import numpy as np
from numba import njit

from margindist.datasets.dataset import MISSING, MISSING_NUMBERS, TARGET_NAMES, DataError, Table, Text, order_levels
from margindist.datasets.fields import BLANKS, BOM, NO_NUMBER, UNSURE, cut, read_blocks, read_number, to_number
from margindist.datasets.spelled import interpret

_SAMPLE_ROWS = 50
_FEW_WORDS = 0.2  # a column with a smaller share of words looks like a column of numbers
_DELIMITERS = b"\t;|,"
_POINT, _COMMA = b".,"
_MISSING_SIZES = np.array(sorted(map(len, MISSING_NUMBERS)))
_MISSING_WORDS = np.array(
    [list(word.encode().ljust(_MISSING_SIZES[-1])) for word in sorted(MISSING_NUMBERS, key=len)], dtype=np.uint8
)


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
        notes = (f"{n_comments} line{'s' if n_comments > 1 else ''} of comment at the top left out.", *notes)
    finished = {}
    while columns:
        column = columns.pop(0)  # which frees what it was made of
        values, remark = column.finish()
        spelled = None if column.name in asked else _spelled(column.name, values)
        if spelled is not None and not (spelled[0].keys() & (set(names) - {column.name})):
            finished |= spelled[0]
            notes = (*notes, spelled[1])
            continue
        finished[column.name] = values
        if remark and column.name not in asked:
            notes = (*notes, remark)
    return Table(tuple(finished), list(finished.values()), notes)


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
    for block in read_blocks(file, delimiter, name):
        skipped = 0
        if not columns:
            names, notes, skipped = _begin(block)
            columns = [_Column(column, column in text, delimiter != _COMMA) for column in names]
        ragged = np.flatnonzero(block.widths() != len(names))
        if len(ragged):
            line, width = block.lines[ragged[0]], block.widths()[ragged[0]]
            raise DataError(f"{name}, line {line}: expected {len(names)} fields, got {width}.")
        for k, column in enumerate(columns):
            column.extend(block, slice(skipped * len(names) + k, None, len(names)), block.lines[skipped:])
    if not columns:
        raise DataError(f"{name}: the file has no rows.")
    return columns, names, notes


def _begin(block):
    """Return names, sentences about them, and the number of rows that hold them, from the first block."""
    width = block.row_ends[0]
    names, notes = _header([block.field(k) for k in range(width)], block)
    if names is not None:
        return names, notes, 1
    names = tuple(f"x{k}" for k in range(width))
    return names, ("The first line was taken as data, so columns are called x0, x1, and so on.",), 0


@njit(cache=True, nogil=True)
def _same(text, start, other, other_start, size):
    k = 0
    while k < size and text[start + k] == other[other_start + k]:
        k += 1
    return k == size


@njit(cache=True, nogil=True)
def _is_missing(text, start, end, words, sizes):
    found = False
    for k in range(len(words)):
        found |= sizes[k] == end - start and _same(text, start, words[k], 0, sizes[k])
    return found


@njit(cache=True, nogil=True)
def _read_numbers(text, starts, ends, first, point, words, sizes, numbers, unsure):
    """Read the fields of a column, from row ``first`` on, as numbers.

    Return the row of the first that is neither a number nor missing (else the number of rows), how many rows are in
    ``unsure``, to be read by Python, and whether a number has a decimal point.
    """
    n_unsure, pointed = 0, False
    for row in range(first, len(starts)):
        start, end = starts[row], ends[row]
        value, after, status, fraction = read_number(text, start, end, point)
        if status == NO_NUMBER or after != end:
            if not _is_missing(text, start, end, words, sizes):
                return row, n_unsure, pointed
            value = np.nan
        elif status == UNSURE:
            unsure[n_unsure] = row
            n_unsure += 1
        pointed |= fraction
        numbers[row] = value
    return len(starts), n_unsure, pointed


@njit(cache=True, nogil=True)
def _hash(text, start, end):
    key = np.uint64(14695981039346656037)  # FNV-1a
    for k in range(start, end):
        key = (key ^ np.uint64(text[k])) * np.uint64(1099511628211)
    return key ^ (key >> np.uint64(32))


@njit(cache=True, nogil=True)
def _number_levels(text, starts, ends, doubled, slots, keys, flags, level_ends, pool, count, codes):
    """Give each field of a column the number of its level, with new levels added; return how many there are now.

    ``slots`` is a hash table (open addressing, a power of two, -1 where free); level ``k`` has the key ``keys[k]``
    and is ``pool[level_ends[k] : level_ends[k + 1]]``. There must be room for as many new levels as there are fields.
    """
    mask = np.uint64(len(slots) - 1)
    for row in range(len(starts)):
        start, size = starts[row], ends[row] - starts[row]
        key = _hash(text, start, ends[row])
        place = key & mask
        while slots[place] >= 0:
            level = slots[place]
            first = level_ends[level]
            same = keys[level] == key and flags[level] == doubled[row] and level_ends[level + 1] - first == size
            if same and _same(text, start, pool, first, size):
                break
            place = (place + np.uint64(1)) & mask
        if slots[place] < 0:
            first = level_ends[count]
            for k in range(size):
                pool[first + k] = text[start + k]
            keys[count], flags[count], level_ends[count + 1] = key, doubled[row], first + size
            slots[place] = count
            count += 1
        codes[row] = slots[place]
    return count


@njit(cache=True, nogil=True)
def _place(keys, slots):
    mask = np.uint64(len(slots) - 1)
    for level in range(len(keys)):
        place = keys[level] & mask
        while slots[place] >= 0:
            place = (place + np.uint64(1)) & mask
        slots[place] = level


class _Levels:
    """The different texts of a column, numbered in order of appearance."""

    def __init__(self):
        self._count = 0
        self._slots = np.full(1 << 10, -1, dtype=np.int32)
        self._keys = np.empty(0, dtype=np.uint64)
        self._flags = np.empty(0, dtype=np.bool_)
        self._ends = np.zeros(1, dtype=np.int64)
        self._pool = np.empty(0, dtype=np.uint8)

    def numbers(self, codes, starts, ends, doubled):
        """Return the number of each field."""
        self._make_room(len(starts), int(np.sum(ends - starts)))
        numbers = np.empty(len(starts), dtype=np.int32)
        self._count = _number_levels(
            codes,
            starts,
            ends,
            doubled,
            self._slots,
            self._keys,
            self._flags,
            self._ends,
            self._pool,
            self._count,
            numbers,
        )
        return numbers

    def _make_room(self, n_fields, n_bytes):
        most = self._count + n_fields
        if most > len(self._keys):
            self._keys = _longer(self._keys, 2 * most)
            self._flags = _longer(self._flags, 2 * most)
            self._ends = _longer(self._ends, 2 * most + 1)
        if 2 * most > len(self._slots):
            self._slots = np.full(1 << (4 * most).bit_length(), -1, dtype=np.int32)
            _place(self._keys[: self._count], self._slots)
        n_bytes += int(self._ends[self._count])
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
        self.size = 0
        self.late = False
        self._may_have_commas = may_have_commas  # until a point is seen
        self._point = _POINT
        self._infinite_line = None
        self._blocks = []
        self._levels = _Levels() if is_text else None

    def extend(self, block, fields, lines):
        """Add the fields of a block that a slice chooses; ``lines`` are those of its rows."""
        self.size += len(lines)
        if self.late or not len(lines):
            return
        if self._levels is None:
            numbers = self._numbers(block, fields, len(lines))
            if numbers is not None:
                self._blocks.append(numbers)
                infinite = np.flatnonzero(np.isinf(numbers))
                if len(infinite) and self._infinite_line is None:
                    self._infinite_line = lines[infinite[0]]
                return
            if self._blocks:
                self.late = True
                return
            self._levels = _Levels()
        cut = block.starts[fields], block.ends[fields], block.doubled[fields]
        self._blocks.append(self._levels.numbers(block.codes, *cut))

    def _numbers(self, block, fields, n_rows):
        """Return values as float64, or None where one is neither a number nor missing."""
        numbers, unsure = np.empty(n_rows), np.empty(n_rows, dtype=np.int64)
        starts, ends = block.starts[fields], block.ends[fields]
        row = 0
        while row < n_rows:
            row, n_unsure, pointed = _read_numbers(
                block.codes, starts, ends, row, self._point, _MISSING_WORDS, _MISSING_SIZES, numbers, unsure
            )
            for k in unsure[:n_unsure]:
                numbers[k] = float(block.text[starts[k] : ends[k]].replace(b",", b"."))
            self._may_have_commas &= not pointed
            if row == n_rows:
                break
            text = block.text[starts[row] : ends[row]].decode()
            value = to_number(text)
            if value is not None and np.isinf(value):
                numbers[row] = value
                row += 1
            elif self._may_have_commas and "," in text:
                self._point = _COMMA
                self._may_have_commas = False
                row = 0  # from the beginning, with the other point
            else:
                return None
        return numbers

    @property
    def has_decimal_commas(self):
        """Whether commas in its numbers were read as decimal points."""
        return self._levels is None and self._point == _COMMA

    def check_finite(self, file_name):
        """Raise an error if a number is infinite."""
        if self._levels is None and self._infinite_line is not None:
            line = self._infinite_line
            raise DataError(f"{file_name}, line {line}: the column {self.name!r} has an infinite value.")

    def finish(self):
        """Return the column, as numbers or :class:`Text`, and a sentence if a few words alone make text of it."""
        stored = np.concatenate(self._blocks)
        if self._levels is None:
            return stored, None
        texts = self._levels.texts()
        levels = {}
        places = [-1 if text in MISSING else levels.setdefault(text, len(levels)) for text in texts]
        column = order_levels(np.array(places, dtype=np.int32)[stored], list(levels))
        return column, self._remark(column, next((level for level in levels if not _is_number(level)), None))

    def _remark(self, column, word):
        counts = np.bincount(column.codes + 1, minlength=len(column.levels) + 1)[1:].tolist()
        known, others = sum(counts), 0
        for count, level in zip(counts, column.levels):
            others += 0 if _is_number(level) else count
            if others >= _FEW_WORDS * known:
                return None
        if not others:
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
    return cut(text, delimiter)[0].widths()[:_SAMPLE_ROWS].tolist()


def _header(first, block):
    """Return the names in the first row, or None if it is data, and sentences about them."""
    if not _is_header(first, block):
        return None, ()
    names, renamed = {}, False  # a dictionary, to keep their order
    for k, field in enumerate(first):
        name, copies = field or f"x{k}", 0
        while name in names:
            copies += 1
            name, renamed = f"{field or f'x{k}'}.{copies}", True
        names[name] = field
    notes = ["Columns of the same name were numbered."] * renamed
    unnamed = [name for name, field in names.items() if not field]
    if unnamed:
        notes.append(f"Without a name, and called by their place: {', '.join(unnamed)}.")
    return tuple(names), tuple(notes)


def _is_header(first, block):
    """Whether a row has a name above a column of numbers, or a target's name, or words alone that are not repeated."""

    def below(k):
        return block.column(k, _SAMPLE_ROWS)[1:]

    if len(block.lines) == 1:
        return not any(map(_is_number, first))
    plain = [field not in MISSING and not _is_number(field) for field in first]
    if any(plain[k] and _all_numbers(below(k)) for k in range(len(first))):
        return True
    columns = [below(k) for k in range(max(block.widths()[:_SAMPLE_ROWS]))]
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
