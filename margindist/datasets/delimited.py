"""Delimited text: comma, semicolon, tab, bar or white space, sniffed; strict about every line.

Arrow reads the rows. What it is not strict about is looked for on the way: quotes that neither open nor close a field,
zero bytes, carriage returns alone. A file that has such, or that Arrow refuses, is read again with care and slowly, row
by row: either a sentence then names the line, or the rows are written anew as Arrow wants them.

Columns are taken for numbers by the first rows, and a column in which any later value is none is read again as text.
What text stands for is decided on its different values alone (:mod:`margindist.datasets.spelling`).
"""

import io
import re
from collections import Counter
from itertools import islice
from typing import NamedTuple

import numpy as np

from margindist.datasets import spelling
from margindist.datasets.dataset import (
    MANY_ROWS,
    MISSING,
    MISSING_NUMBERS,
    TARGET_NAMES,
    Chunks,
    DataError,
    Strings,
    Table,
    counted,
    is_empty,
    leave_out,
    mask_of,
    needed_pyarrow,
    text_column,
)

BLANKS = b" "  # instead of a delimiter: any number of blanks separates fields
BOM = b"\xef\xbb\xbf"
_DELIMITERS = (b"\t", b";", b"|", b",")
_SAMPLE_ROWS = 50
_FEW_WORDS = 0.2  # a column with a smaller share of words looks like a column of numbers
_SOME_ROWS = 1000
_BLOCK = 1 << 20  # bytes that Arrow reads at a time, unless a row is longer
_LF, _CR, _QUOTE = b'\n\r"'
_BROKEN_OFF = "unexpected end of data within the quotes that open here"
_AFTER_QUOTE = "expected a delimiter after the closing quote"
LONE_CR = "expected lines that end in LF or CR LF, got a carriage return alone; a text editor can save it so"
_NO_DOUBLE = re.compile(r"In CSV column #(\d+): CSV conversion error to double")


class NotUTF8(DataError):
    """Text in another encoding, or damaged.

    Parameters
    ----------
    sentence : str
    line : int
        Of the first byte that is not UTF-8.
    """

    def __init__(self, sentence, line):
        super().__init__(sentence)
        self.line = line


class Dialect(NamedTuple):
    """How a file is cut into rows and fields."""

    delimiter: bytes
    offset: int  # bytes above the first row that is data
    lines: int  # lines above it
    quoted: bool  # whether there are quotes, within which lines may end
    point: str  # the decimal point of columns that are numbers from the start


class Layout(NamedTuple):
    """What the first rows tell: names, each with how the file has it, and which columns seem to be of what kind."""

    names: dict
    numbers: frozenset
    distinct: frozenset  # columns whose values do not repeat in the first rows
    dialect: Dialect
    notes: tuple


def read_delimited(opened, name, head, text=(), columns=None):
    """Return a :class:`Table` from delimited text; ``opened`` opens the file anew, ``head`` is how it begins.

    Columns named in ``text`` are text, whatever they hold; ``columns`` says of others how they are to be read.
    """
    layout = laid_out(head, name)
    told = {column: spelling.from_plain(described, column) for column, described in (columns or {}).items()}
    layout = layout._replace(numbers=layout.numbers - _kept_as_text(layout, told, text))
    read = read_rows(opened, name, layout)
    reader = TextColumns(opened, name, layout, told, frozenset(text))
    finished, unnamed, spellings = {}, [], {}
    for k, (column, written) in enumerate(layout.names.items()):
        values = read.pop(k)
        if not isinstance(values, Chunks):
            values = reader.unrepeated(column, values) or text_column(values, trim=True)
        if not written:
            if is_empty(values):  # lines end in a delimiter
                continue
            unnamed.append(column)
        made, how = reader.finish(column, k, values)
        if any(key != column and key in layout.names for key in made):  # the file has such columns already
            made, how = {column: leave_out(values, MISSING)}, spelling.Words()
        finished |= made
        spellings[column] = spelling.as_plain(how)
    notes = reader.notes
    if unnamed:
        notes = (*notes, f"Without a name, and called by their place: {', '.join(unnamed)}.")
    return Table(tuple(finished), list(finished.values()), notes, spellings=spellings)


def _kept_as_text(layout, told, text):
    """Return the places of columns whose spelling matters: text, and what is not written as the file's numbers are."""
    usual = spelling.Numbers(layout.dialect.point)
    return {k for k, name in enumerate(layout.names) if name in text or told.get(name, usual) != usual}


# ---------------------------------------------------------------------- what the first rows tell


def laid_out(head, name):
    """Return the :class:`Layout` of a file that begins so."""
    mark = len(BOM) if head.startswith(BOM) else 0
    n_comments = _comment_lines(head[mark:])
    top = len(head) - len(head[mark:].split(b"\n", n_comments)[-1])
    head = head[top:]
    delimiter = _sniff_delimiter(head)
    whole = head[: head.rfind(b"\n") + 1] or head
    check_text(whole, n_comments, name)
    sample = _sample(whole, delimiter, name, n_comments)
    _check_first_line(sample, name)
    rows = [[field.decode() for field in row.fields] for row in sample]
    names, notes = _header(rows)
    if n_comments:
        notes = (f"Left out {counted(n_comments, 'comment line')} at the top.", *notes)
    first = sample[0]
    if names is None:
        offset, lines = top, n_comments
        names = {f"x{k}": f"x{k}" for k in range(len(first.fields))}
        notes = (*notes, "The first line was taken as data, so columns are called x0, x1, and so on.")
    else:
        offset, lines = top + first.end, first.line + first.n_lines - 1
        del rows[0]
    columns = [[row[k] for row in rows if k < len(row)] for k in range(len(names))]
    numbers, point = _seeming_numbers(columns, delimiter)
    distinct = frozenset(k for k, column in enumerate(columns) if len(set(column)) == len(rows))
    return Layout(names, numbers, distinct, Dialect(delimiter, offset, lines, b'"' in head, point), notes)


def _sample(text, delimiter, name, lines_before):
    """Return the first rows, up to one that is broken: where the file goes on, it may not be."""
    sample = []
    try:
        for row in islice(_rows(text, delimiter, name, lines_before), _SAMPLE_ROWS + 1):
            sample.append(row)
    except DataError:
        if not sample:
            raise
    if not sample:
        raise DataError(f"{name}: the file has no rows.")
    return sample


def _seeming_numbers(columns, delimiter):
    """Return which columns hold numbers alone in the first rows, and their decimal point.

    That is a comma if there are numbers with a comma and none with a point, and fields are not apart by commas.
    """
    present = [[field for field in column if field not in MISSING_NUMBERS] for column in columns]
    with_points = {k for k, fields in enumerate(present) if all(map(spelling.is_number, fields))}
    if delimiter != b"," and not any("." in field for k in with_points for field in present[k]):
        written = [[field.replace(",", ".") for field in fields if "." not in field] for fields in present]
        both = {k for k, fields in enumerate(written) if len(fields) == len(present[k])}
        both = {k for k in both if all(map(spelling.is_number, written[k]))}
        if both > with_points:
            return frozenset(both), ","
    return frozenset(with_points), "."


def _check_first_line(rows, name):
    """Raise an error if the first line alone has another number of fields than all others."""
    first, *below = (len(row.fields) for row in rows)
    if len(below) > 1 and set(below) == {below[0]} != {first}:
        had = f"the first line has {counted(first, 'field')}, those below have {below[0]}"
        do = "give every column a name, and remove a title, or begin it with #"
        raise DataError(f"{name}, line {rows[0].line}: {had}; {do}.")


def _comment_lines(head):
    """Return how many lines at the top are comments: they begin with #, or tell Excel the delimiter.

    The last of them is no comment if it has as many delimiters as the line below: then it has the names.
    """
    lines = head.split(b"\n")
    count = int(lines[0][:4].lower() == b"sep=" and len(lines[0].strip()) == 5)
    while count < len(lines) - 1 and lines[count].startswith(b"#"):
        count += 1
    if 0 < count < len(lines) and lines[count - 1].startswith(b"#"):
        above, below = lines[count - 1], lines[count]
        count -= any(above.count(mark) == below.count(mark) > 0 for mark in _DELIMITERS)
    return count


def _sniff_delimiter(head):
    """Return the delimiter that cuts the first rows into equally many fields, more than one."""
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    best, best_share = b",", 0.0
    for delimiter in _DELIMITERS:
        widths = _first_widths(whole_lines, delimiter)
        usual, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        share = count / len(widths) if usual > 1 else 0.0
        if share >= 0.9:
            return delimiter
        if share > best_share:
            best, best_share = delimiter, share
    widths = set(_first_widths(whole_lines, BLANKS))
    return BLANKS if len(widths) == 1 and widths != {1} else best


def _first_widths(text, delimiter):
    try:
        return [len(row.fields) for row in _sample(text, delimiter, "", 0)]
    except DataError:  # with this delimiter
        return []


def _header(rows):
    """Return the names, each with how the first row has it, or None if that is data, and sentences about them."""
    first = rows[0]
    if not _is_header(rows):
        return None, ()
    names, copies = {}, Counter()
    for k, field in enumerate(first):
        name = wanted = field or f"x{k}"
        while name in names:
            copies[wanted] += 1
            name = f"{wanted}.{copies[wanted]}"
        names[name] = field
    return names, ("Columns of the same name were numbered.",) * (copies.total() > 0)


def _is_header(rows):
    """Whether a row has a name above a column of numbers, or a target's name, or words alone that are not repeated."""
    first, below = rows[0], rows[1:]
    if not below:
        return not any(map(spelling.is_number, first))
    width = max(map(len, rows))
    columns = [[row[k] for row in below if k < len(row)] for k in range(width)]
    plain = [field not in MISSING and not spelling.is_number(field) for field in first]
    if any(plain[k] and _all_numbers(columns[k]) for k in range(len(first))):
        return True
    values_below = set().union(*columns)  # "y" may also stand for yes
    if any(field.lower() in TARGET_NAMES and field not in values_below for field in first):
        return True
    repeated = any(field in column for field, column in zip(first, columns))
    return len(set(first)) == len(first) and all(plain) and not repeated


def _all_numbers(fields):
    present = [field for field in fields if field not in MISSING_NUMBERS]
    return bool(present) and all(map(spelling.is_number, present))


# ---------------------------------------------------------------------- with care


class Row(NamedTuple):
    """A row of fields, without quotes and the blanks around them."""

    fields: list
    line: int
    n_lines: int
    end: int  # where the next row begins


def _pattern(delimiter):
    """Return the pattern of one field: in quotes or not, and what ends it."""
    blank = b" " if delimiter == b"\t" else b"[ \t]"
    if delimiter == BLANKS:
        bare, apart = rb"[^ \t\r\n]", rb"[ \t]++(?![\r\n]|\Z)"
    else:
        bare, apart = rb"[^\r\n" + re.escape(delimiter) + b"]", re.escape(delimiter)
    return re.compile(
        b"%s*+(?:\"((?:[^\"]++|\"\")*+)\"%s|((?!\")%s*+))(?:(%s)|%s*+(\r?\n|\\Z))"
        % (blank, b"" if delimiter == BLANKS else blank + b"*+", bare, apart, blank)
    )  # fmt: skip


def _rows(text, delimiter, name, lines_before):
    """Yield the rows of a text, blank lines left out; raise an error for the line in which quotes or ends are wrong."""
    field, position, line = _pattern(delimiter), 0, lines_before + 1
    while position < len(text):
        end = text.find(b"\n", position)
        end = len(text) if end < 0 else end
        content = text[position:end].removesuffix(b"\r") if end < len(text) else text[position:end]
        if b'"' in content:
            row = _quoted_row(text, position, field, name, line)
        else:
            if b"\r" in content:
                raise DataError(f"{name}, line {line}: {LONE_CR}.")
            if delimiter == BLANKS:
                fields = content.translate(bytes.maketrans(b"\t", b" ")).split(b" ")
                fields = [part for part in fields if part]
            else:
                fields = [part.strip(b" \t") for part in content.split(delimiter)]
            row = Row(fields if any(fields) or len(fields) > 1 else [], line, 1, min(end + 1, len(text)))
        position, line = row.end, line + row.n_lines
        if row.fields:
            yield row


def _quoted_row(text, position, field, name, line):
    fields, start, closed = [], position, False
    while not closed:
        result = field.match(text, position)
        if result is None:
            raise DataError(f"{name}, line {line}: {_why(text, position)}.")
        quoted, bare, apart, _ = result.groups()
        fields.append((quoted.replace(b'""', b'"') if quoted is not None else bare).strip(b" \t"))
        position, closed = result.end(), apart is None
    n_lines = text.count(b"\n", start, position)
    return Row(fields, line, n_lines, position)


def _why(text, position):
    """Say why no field begins here."""
    opened = re.compile(rb'[ \t]*+"').match(text, position)
    if opened is None:
        return LONE_CR
    closed = re.compile(rb'(?:[^"]++|"")*+"').match(text, opened.end())
    return _BROKEN_OFF if closed is None else _AFTER_QUOTE


def check_text(text, lines_before, name):
    """Raise an error for the line of the first byte that is not UTF-8, or is zero."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            line = lines_before + text.count(b"\n", 0, error.start) + 1
            raise NotUTF8(
                f"{name}, line {line}: byte {text[error.start]:#04x} is not UTF-8; name the file's encoding "
                "(--encoding), or save it as UTF-8 text.",
                line,
            ) from None
    zero = text.find(b"\0")
    if zero >= 0:
        line = lines_before + text.count(b"\n", 0, zero) + 1
        raise DataError(f"{name}, line {line}: expected text, got a zero byte.")


def _rewritten(opened, name, dialect, width):
    """Return all rows as Arrow wants them; raise an error that names the line if some row cannot be read."""
    with opened() as file:
        file.read(dialect.offset)
        text = file.read()
    check_text(text, dialect.lines, name)
    delimiter = b"\t" if dialect.delimiter == BLANKS else dialect.delimiter
    special = re.compile(BOM + b'|["\n\r' + re.escape(delimiter) + b"]")
    lines = []
    for row in _rows(text, dialect.delimiter, name, dialect.lines):
        if len(row.fields) != width:
            raise DataError(f"{name}, line {row.line}: expected {counted(width, 'field')}, got {len(row.fields)}.")
        fields = [b'"%s"' % f.replace(b'"', b'""') if special.search(f) else f for f in row.fields]
        lines.append(delimiter.join(fields) or b'""')
    return b"\n".join(lines), dialect._replace(delimiter=delimiter, offset=0, quoted=True)


# ---------------------------------------------------------------------- with Arrow


class OddError(Exception):
    """A file has what Arrow is not strict about."""


class QuotesError(Exception):
    """A file has quotes, although its first rows have none."""


class _Strict:
    """An open file of bytes in which every quote opens or closes a field, and nothing else is odd.

    A quote opens where one is due, behind a delimiter or at the beginning of a line; the next one closes, before a
    delimiter or an end of the line. Two in a row within quotes close and open, and stand for one.
    """

    closed = False

    def __init__(self, file, layout):
        dialect = layout.dialect
        self._file, self._quoted = file, dialect.quoted
        self._before = np.zeros(256, dtype=bool)
        self._before[[dialect.delimiter[0], _LF, _QUOTE]] = True
        self._behind = self._before.copy()
        self._behind[_CR] = True
        self._last, self._open = b"\n", False
        self._file.read(dialect.offset)
        self._begun = False

    def read(self, size=-1):
        """Read some bytes; raise an error if something among them is odd."""
        chunk = self._file.read(size)
        if b"\0" in chunk or (chunk.startswith(BOM) and not self._begun):  # which Arrow takes for no text
            raise OddError
        self._begun = True
        if self._last[-1] == _CR and chunk[:1] != b"\n":
            raise OddError
        if b"\r" in chunk and chunk.count(b"\r") - chunk.endswith(b"\r") > chunk.count(b"\r\n"):
            raise OddError
        if self._quoted:
            self._check_quotes(chunk)
        elif b'"' in chunk:
            raise QuotesError
        self._last = chunk[-1:] or b"\n"
        return chunk

    def _check_quotes(self, chunk):
        if not chunk and self._open:
            raise OddError
        text = np.frombuffer(self._last + chunk + b"\n" * (not chunk), dtype=np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        # The last quote of a chunk is known to close only when the next chunk is here.
        pending = len(quotes) > 0 and quotes[0] == 0
        opens = np.arange(len(quotes)) % 2 == ((self._open ^ pending) if pending else self._open)
        first = quotes[opens & (quotes > 0)]
        last = quotes[~opens & (quotes < len(text) - 1)]
        if not (self._before[text[first - 1]].all() and self._behind[text[last + 1]].all()):
            raise OddError
        self._open ^= bool((len(quotes) - pending) % 2)

    def close(self):
        """Close the file."""
        self._file.close()


def read_rows(opened, name, layout):
    """Return columns by their place: :class:`Chunks` of numbers, or text as Arrow has it."""
    pa = needed_pyarrow(name, "CSV files need")
    try:
        if layout.dialect.delimiter == BLANKS or len(layout.names) == 1:  # where a line of blanks is no row
            raise OddError
        try:
            return _arrow_rows(opened, layout)
        except QuotesError:
            return _arrow_rows(opened, layout._replace(dialect=layout.dialect._replace(quoted=True)))
    except (OddError, pa.ArrowInvalid):
        content, dialect = _rewritten(opened, name, layout.dialect, len(layout.names))
    if not content:
        raise DataError(f"{name}: the file has no rows below its first line.")
    return _arrow_rows(lambda: io.BytesIO(content), layout._replace(dialect=dialect))


def _arrow_rows(opened, layout):
    import pyarrow as pa

    numbers, block = set(layout.numbers), _BLOCK
    while True:
        try:
            columns, odd = _arrow_columns(opened, layout, numbers, block)
        except pa.ArrowInvalid as error:
            result = _NO_DOUBLE.search(str(error))
            if result is not None:
                numbers -= _no_numbers(opened, layout, numbers, block) | {int(result[1])}
                continue
            if "straddling" not in str(error) or block >= 1 << 30:
                raise
            block *= 8
            continue
        if not odd:
            return columns
        numbers -= odd


def _options(layout, types, block):
    import pyarrow.csv as arrow_csv

    width = len(layout.names)
    words = sorted(MISSING_NUMBERS)
    return {
        "read_options": arrow_csv.ReadOptions(column_names=list(map(str, range(width))), block_size=block),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=layout.dialect.delimiter.decode(), newlines_in_values=layout.dialect.quoted
        ),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[*words, *(f" {word}" for word in words)],
            decimal_point=layout.dialect.point,
        ),
    }


def _arrow_columns(opened, layout, numbers, block):
    """Return all columns, and the places of those of numbers that hold something infinite or odd."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    words, few = pa.string(), pa.dictionary(pa.int32(), pa.string())
    types = {str(k): words if k in layout.distinct else few for k in range(len(layout.names))}
    types |= {str(k): pa.float64() for k in numbers}
    with opened() as file:
        table = arrow_csv.read_csv(_Strict(file, layout), **_options(layout, types, block))
    columns, odd = {k: table.column(k) for k in range(len(types))}, set()
    for k in sorted(numbers):
        parts = []
        for part in columns[k].chunks:
            parts.append(part.to_numpy(zero_copy_only=False))
            if _has_odd(parts[-1], part.null_count):
                odd.add(k)
        columns[k] = Chunks(parts)
    return columns, odd


def _has_odd(numbers, n_missing):
    """Tell whether numbers, of which so many are missing, have infinite ones or others that are none."""
    with np.errstate(over="ignore", invalid="ignore"):
        if n_missing == 0 and np.isfinite(numbers.sum()):
            return False
    return np.count_nonzero(~np.isfinite(numbers)) != n_missing


def _no_numbers(opened, layout, numbers, block):
    """Return which of the columns hold something that is no number, in one pass."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    result, types = set(), {str(k): pa.string() for k in sorted(numbers)}
    with opened() as file, arrow_csv.open_csv(_Strict(file, layout), **_options(layout, types, block)) as parts:
        for part in parts:
            for k in sorted(numbers - result):
                if _first_word(part.column(str(k)).unique(), layout.dialect.point) is not None:
                    result.add(k)
    return result


def _first_word(levels, point):
    """Return the first of different texts that is no number, or None."""
    known = spelling.missing_among(levels) | ~np.isnan(spelling.numbers_among(levels, point))
    return None if known.all() else levels[int(np.argmin(known))].as_py()


# ---------------------------------------------------------------------- what text stands for


class TextColumns:
    """Says of each column what it holds, and what there is to say about that."""

    def __init__(self, opened, name, layout, told, asked):
        self.notes = layout.notes
        self._opened, self._name, self._dialect = opened, name, layout.dialect
        self._told, self._asked = told, asked

    def finish(self, column, k, values):
        """Return columns by their names, and how column k was read."""
        if isinstance(values, Strings):
            return {column: values}, spelling.Words()
        if isinstance(values, Chunks):
            how = spelling.Numbers(self._dialect.point)
            self._say_commas(how, any(map(len, values.parts)))
            return {column: values}, how
        how = spelling.Words() if column in self._asked else self._told.get(column)
        present = values.levels.filter(mask_of(~spelling.missing_among(values.levels)))
        if how is None:
            commas = self._dialect.delimiter != b","
            how = spelling.guessed(present, commas) if len(present) else spelling.Numbers()
            self._say_commas(how, len(present))
        if isinstance(how, spelling.Words):
            made = leave_out(values, MISSING)
            if column not in self._asked | self._told.keys():
                self._remark(column, made)
            return {column: made}, how
        return self._spread(column, k, how, values, present), how

    def unrepeated(self, column, values):
        """Return a long column as it is if its first texts are all different, and neither numbers nor dates."""
        if column in self._asked | self._told.keys() or len(values) <= MANY_ROWS or len(values[:100].unique()) < 100:
            return None
        levels = text_column(values[:MANY_ROWS], trim=True).levels
        commas = self._dialect.delimiter != b","
        if len(levels) < MANY_ROWS or not isinstance(spelling.guessed(levels, commas), spelling.Words):
            return None
        return None if spelling.missing_among(levels).any() else Strings(values)

    def _spread(self, column, k, how, values, present):
        made, bad = spelling.applied(column, how, values.levels)
        if bad is not None:
            where = f"{self._name}, line {self._line(k, bad)}"
            raise DataError(
                f"{where}: the column {column!r} is to be read as {how.described()}, as it was for the model, but has "
                f"{bad[:40]!r}."
            )
        infinite = np.flatnonzero(np.isinf(next(iter(made.values()))))
        if len(infinite):
            line = self._line(k, values.levels[int(infinite[0])].as_py())
            raise DataError(f"{self._name}, line {line}: the column {column!r} has an infinite value.")
        if column not in self._told and len(present):
            said = spelling.sentence(column, how, made, present)
            self.notes += (said,) if said else ()
        return {name: np.append(part, np.nan)[values.codes] for name, part in made.items()}

    def _line(self, k, text):
        with self._opened() as file:
            file.read(self._dialect.offset)
            content = file.read()
        rows = _rows(content, self._dialect.delimiter, self._name, self._dialect.lines)
        return next(row.line for row in rows if row.fields[k].decode() == text)

    def _say_commas(self, how, any_value):
        said = "Commas within numbers were taken as decimal points."
        if (
            isinstance(how, spelling.Numbers)
            and how.plain
            and how.point == ","
            and any_value
            and said not in self.notes
        ):
            self.notes += (said,)

    def _remark(self, column, made):
        """Say so if a few words alone make text of a column of numbers."""
        import pyarrow as pa

        some = made.codes[:_SOME_ROWS]
        some = made.levels.take(pa.array(some[some >= 0]))
        if np.isnan(spelling.numbers_among(some)).mean() > 0.5 if len(some) else not len(made.levels):
            return  # plainly text, and how many different values it has
        word = np.isnan(spelling.numbers_among(made.levels))
        counts = np.bincount(made.codes + 1, minlength=len(word) + 1)[1:]
        known, others = int(counts.sum()), int(counts[word].sum())
        if word.all() or others >= _FEW_WORDS * known:
            return
        first = made.codes[np.argmax(np.append(word, False)[made.codes])]
        self.notes += (
            f"The column {column!r} was read as text, for {others} of its {known} values "
            f"{'is no number' if others == 1 else 'are no numbers'}, such as {made.levels[int(first)].as_py()!r}.",
        )
