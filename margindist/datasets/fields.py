"""Text cut into fields and numbers by compiled code, for every format that is text.

A field may stand in double quotes, where two of them mean one, and delimiters and line ends are text. Blanks (spaces
and tabs) around a field are no part of it, within quotes or without. Lines end in LF or CR LF. Every other byte,
control characters and unusual spaces included, belongs to the field it stands in.

A number is ASCII digits, a point, an exponent. Python's ``float`` also reads 1_000, Arabic and full-width digits, and
numbers between control characters or unusual spaces. In a file these are damage or text, and must not become numbers
silently.
"""

import re
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from margindist.compilation import borrowed, njit
from margindist.datasets.dataset import MISSING_NUMBERS, DataError

BLANKS = 256  # instead of a delimiter: any number of blanks separates fields
BOM = b"\xef\xbb\xbf"
_FIRST_BLOCK = 1 << 18  # cut several times, until it is known what the columns are
_USUAL_BLOCK = 1 << 20
_LARGEST_BLOCK = 1 << 26
_FEW_ROWS = 256  # blocks with fewer rows are enlarged, because each column of a block costs a few calls

_ONES = np.uint64(0x0101010101010101)  # one in every byte of a word
_UPPER_BITS = np.uint64(0x8080808080808080)
_TAB, _LF, _CR, _SPACE, _QUOTE, _PLUS, _MINUS = b'\t\n\r "+-'
_MISSING_SIZES = np.array(sorted(map(len, MISSING_NUMBERS)))
_MISSING_WORDS = np.array(
    [list(word.encode().ljust(_MISSING_SIZES[-1])) for word in sorted(MISSING_NUMBERS, key=len)], dtype=np.uint8
)
_WHOLE, _BROKEN_OFF, _AFTER_QUOTE, _LONE_CR = range(4)
_REASONS = {
    _BROKEN_OFF: "unexpected end of data within the quotes that open here",
    _AFTER_QUOTE: "expected a delimiter after the closing quote",
    _LONE_CR: "expected lines that end in LF or CR LF, got a carriage return alone; a text editor can save it so",
}


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


class Layout(NamedTuple):
    """Which columns hold numbers, and how these are written."""

    places: np.ndarray  # of each column among those of numbers; -1, and columns beyond the last: text
    points: np.ndarray  # for each column of numbers, the byte that is its decimal point


ALL_TEXT = Layout(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8))


class Block(NamedTuple):
    """Rows of text: fields of text by their place in it, numbers by their value."""

    text: np.ndarray  # its bytes
    starts: np.ndarray  # of the fields that are text, row by row
    ends: np.ndarray
    doubled: np.ndarray  # whether a field has doubled quotes
    widths: np.ndarray  # the number of fields of each row, whatever they are
    lines: np.ndarray  # where each row begins
    numbers: np.ndarray  # a row for each column of numbers; NaN is missing
    pointed: np.ndarray  # whether a column of numbers has a decimal point somewhere
    unread: np.ndarray  # row, column, start and end of what is no number there, or one that only Python can round

    def between(self, start, end):
        """Return a piece of the text."""
        return self.text[start:end].tobytes().decode()

    def field(self, number):
        """Return one field of text."""
        text = self.between(self.starts[number], self.ends[number])
        return text.replace('""', '"') if self.doubled[number] else text

    def column(self, k, count):
        """Return field ``k`` of those of the first rows that have it, where all are text."""
        ends = np.cumsum(self.widths[:count]).tolist()
        return [self.field(start + k) for start, end in pairwise([0, *ends]) if start + k < end]


# Numba counts references to arrays around calls, which takes longer than to look at a few bytes; hence forceinline,
# after which most of the counting cancels out, and `borrowed`, for the rest.


@njit(cache=True, nogil=True, forceinline=True)
def _after_blanks(text, position, delimiter):
    while position < len(text) and text[position] != delimiter and (text[position] == _SPACE or text[position] == _TAB):
        position += 1
    return position


@njit(cache=True, nogil=True, forceinline=True)
def _before_blanks(text, start, end):
    while end > start and (text[end - 1] == _SPACE or text[end - 1] == _TAB):
        end -= 1
    return end


@njit(cache=True, nogil=True, forceinline=True)
def _quoted(text, position):
    """Return the place of the quote that closes the field, whether quotes are doubled in it, and line ends within."""
    doubled, lines = False, 0
    while position < len(text):
        if text[position] == _QUOTE:
            if position + 1 == len(text) or text[position + 1] != _QUOTE:
                break
            doubled = True
            position += 1
        lines += text[position] == _LF
        position += 1
    return position, doubled, lines


@njit(cache=True, nogil=True, forceinline=True)
def word_at(text, position):
    """Return eight bytes as one word, the first of them lowest; compilers make one load of it."""
    first = np.uint64(position)
    word = np.uint64(text[first])
    for k in range(1, 8):
        word |= np.uint64(text[first + np.uint64(k)]) << np.uint64(8 * k)
    return word


@njit(cache=True, nogil=True)
def _marked(word, byte):
    """Return a word whose lowest bit is the upper one of the first byte that is ``byte``; 0 if there is none.

    Subtracting borrows from above only, so bits above the lowest one mean nothing.
    """
    others = word ^ (_ONES * byte)
    return (others - _ONES) & ~others & _UPPER_BITS


@njit(cache=True, nogil=True)
def _bytes_before(mark):
    """Return how many bytes are below that of the lowest bit, which is the upper one of its byte."""
    lowest = mark & (~mark + np.uint64(1))
    below = (lowest >> np.uint64(7)) - np.uint64(1)
    return np.int64(((below & _ONES) * _ONES) >> np.uint64(56))


@njit(cache=True, nogil=True, forceinline=True)
def _unquoted(text, position, delimiter, stops):
    """Return the end of the field: eight bytes at a time, whose marks need no branch, and the last ones singly."""
    if delimiter != BLANKS:
        while position + 8 <= len(text):
            word = word_at(text, position)
            mark = _marked(word, np.uint64(delimiter)) | _marked(word, np.uint64(_LF)) | _marked(word, np.uint64(_CR))
            if mark != np.uint64(0):
                return position + _bytes_before(mark)
            position += 8
    while position < len(text) and not stops[text[position]]:
        position += 1
    return position


@njit(cache=True, nogil=True)
def _is_missing(text, start, end):
    found = start == end
    for k in range(0 if found else len(_MISSING_SIZES)):
        found |= _MISSING_SIZES[k] == end - start and same_bytes(text, start, _MISSING_WORDS[k], 0, end - start)
    return found


@njit(cache=True, nogil=True)
def same_bytes(text, start, other, other_start, size):
    """Tell whether two pieces of text of one size are the same."""
    k = 0
    while k < size and text[start + k] == other[other_start + k]:
        k += 1
    return k == size


@njit(cache=True, nogil=True)
def _cut(text, delimiter, stops, layout, block):
    """Cut text into fields and numbers, in one pass; return rows, fields of text, unread ones, bytes and lines, and why
    it ended.

    Where that is not because the text is _WHOLE, bytes and lines are those up to the row in question.
    """
    text = borrowed(text)
    places, points = layout
    starts, ends, doubled, numbers, unread = block.starts, block.ends, block.doubled, block.numbers, block.unread
    position, line, row, fields, n_unread = 0, 0, 0, 0, 0
    while position < len(text):
        row_start, row_line, first, first_unread, column = position, line, fields, n_unread, 0
        blank = True
        while True:
            position = _after_blanks(text, position, delimiter)
            if delimiter == BLANKS and (position == len(text) or text[position] == _LF or text[position] == _CR):
                break
            place = places[column] if column < len(places) else -1
            start, twice = position, False
            quoted = position < len(text) and text[position] == _QUOTE
            limit = len(text)
            if quoted:
                start += 1
                blank = False
                limit, twice, within = _quoted(text, start)
                if limit == len(text):
                    return row, first, first_unread, row_start, row_line, _BROKEN_OFF
                line += within
                start = _after_blanks(text, start, _QUOTE)
                position = _after_blanks(text, limit + 1, delimiter)
                apart = delimiter == BLANKS and position > limit + 1
                if not apart and position < len(text) and not stops[text[position]]:
                    return row, first, first_unread, row_start, row_line, _AFTER_QUOTE
                limit = _before_blanks(text, start, limit)
            value, end, status, fraction = 0.0, start, NO_NUMBER, False
            if place >= 0:
                value, end, status, fraction = read_number(text, start, limit, points[place])
                if quoted:
                    status = status if end == limit else NO_NUMBER
                else:
                    position = end if delimiter == BLANKS else _after_blanks(text, end, delimiter)
            if quoted:
                end = limit
            elif position < len(text) and not stops[text[position]]:
                position = _unquoted(text, position, delimiter, stops)
                end = _before_blanks(text, start, position)
                status = NO_NUMBER
            blank &= start == end
            if place < 0:
                starts[fields], ends[fields], doubled[fields] = start, end, twice
                fields += 1
            else:
                if status == NO_NUMBER and _is_missing(text, start, end):
                    value = np.nan
                elif status != EXACT:
                    unread[n_unread, 0], unread[n_unread, 1] = row, place
                    unread[n_unread, 2], unread[n_unread, 3] = start, end
                    n_unread += 1
                numbers[place, row] = value
                if fraction and status != NO_NUMBER:
                    block.pointed[place] = True
            column += 1
            if delimiter != BLANKS:
                if position == len(text) or text[position] != delimiter:
                    break
                position += 1
        if position < len(text) and text[position] == _CR:
            position += 1
            if position < len(text) and text[position] != _LF:
                return row, first, first_unread, row_start, row_line, _LONE_CR
        position += 1
        line += 1
        if column == 0 or (column == 1 and blank):
            fields, n_unread = first, first_unread
        else:
            block.widths[row], block.lines[row] = column, row_line
            row += 1
    return row, fields, n_unread, min(position, len(text)), line, _WHOLE


@njit(cache=True, nogil=True)
def _count(text, byte):
    found = 0
    for k in range(len(text)):
        found += text[k] == byte
    return found


def cut(text, delimiter, lines_before=0, layout=ALL_TEXT, size=None):
    """Return the rows of (the first bytes of) a text as a :class:`Block`, bytes and lines read, and why it ended."""
    codes = np.frombuffer(text, dtype=np.uint8, count=len(text) if size is None else size)
    n_lines = _count(codes, _LF) + 1
    n_fields = len(codes) // 2 + 2 if delimiter == BLANKS else n_lines + _count(codes, delimiter)
    stops = np.zeros(256, dtype=np.bool_)
    stops[[_LF, _CR, *((_SPACE, _TAB) if delimiter == BLANKS else (delimiter,))]] = True
    n_numbers = len(layout.points)
    block = Block(
        codes,
        starts=np.empty(n_fields, dtype=np.int64),
        ends=np.empty(n_fields, dtype=np.int64),
        doubled=np.empty(n_fields, dtype=np.bool_),
        widths=np.empty(n_lines, dtype=np.int64),
        lines=np.empty(n_lines, dtype=np.int64),
        numbers=np.empty((n_numbers, n_lines)),
        pointed=np.zeros(n_numbers, dtype=np.bool_),
        unread=np.empty((n_fields if n_numbers else 0, 4), dtype=np.int64),
    )
    rows, fields, n_unread, n_bytes, n_read, status = _cut(codes, delimiter, stops, layout, block)
    block = block._replace(
        starts=block.starts[:fields],
        ends=block.ends[:fields],
        doubled=block.doubled[:fields],
        widths=block.widths[:rows],
        lines=block.lines[:rows] + (lines_before + 1),
        numbers=block.numbers[:, :rows],
        unread=block.unread[:n_unread],
    )
    return block, n_bytes, n_read, status


def read_blocks(file, delimiter, name, layout):
    """Yield the rows of an open file of bytes as blocks; raise an error, after the rows above it, for a bad line.

    ``layout()`` is asked before each block. With the block comes a function that cuts it again, by the layout then.
    """
    buffer = b""
    lines = 0
    begun = False
    more = True
    size_of_block = _FIRST_BLOCK
    while more:
        read = file.read(max(size_of_block, len(buffer)))
        size_of_block = min(2 * size_of_block, _USUAL_BLOCK)
        more = len(read) > 0
        buffer += read if begun else read.removeprefix(BOM)
        begun = True
        size = buffer.rfind(b"\n") + 1 if more else len(buffer)
        _check_text(buffer, size, lines, name)
        again = partial(_recut, buffer, size, delimiter, lines, layout)
        block, n_bytes, n_lines, status = cut(buffer, delimiter, lines, layout(), size)
        bad = status != _WHOLE and (status != _BROKEN_OFF or not more)
        if more and not bad and len(block.lines) < _FEW_ROWS and len(buffer) < _LARGEST_BLOCK:
            continue
        if len(block.lines):
            yield block, again
        lines += n_lines
        if bad:
            raise DataError(f"{name}, line {lines + 1}: {_REASONS[status]}.")
        buffer = buffer[n_bytes:]


def _recut(text, size, delimiter, lines, layout):
    return cut(text, delimiter, lines, layout(), size)[0]


def decoded_lines(file, name):
    """Yield the lines of a file of bytes as text; refuse what is not UTF-8 and say where."""
    for number, line in enumerate(file):
        content = line if number else line.removeprefix(BOM)
        _check_text(content, len(content), number, name)
        text = content.decode()
        if "\r" in text.removesuffix("\n").removesuffix("\r"):
            raise DataError(f"{name}, line {number + 1}: {_REASONS[_LONE_CR]}.")
        yield text


def _check_text(text, size, lines_before, name):
    """Raise an error for the line of the first byte, of so many, that is not UTF-8, or is zero."""
    if not text.isascii():
        try:
            text[:size].decode()
        except UnicodeDecodeError as error:
            line = lines_before + text.count(b"\n", 0, error.start) + 1
            raise NotUTF8(
                f"{name}, line {line}: byte {text[error.start]:#04x} is not UTF-8; name the file's encoding "
                "(--encoding), or save it as UTF-8 text.",
                line,
            ) from None
    zero = text.find(b"\0", 0, size)
    if zero >= 0:
        line = lines_before + text.count(b"\n", 0, zero) + 1
        raise DataError(f"{name}, line {line}: expected text, got a zero byte.")


# ---------------------------------------------------------------------- numbers

EXACT, UNSURE, NO_NUMBER = range(3)

_SMALLEST_POWER, _LARGEST_POWER = -342, 308
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -1074, 970  # of whole numbers of 53 bits
_MOST_DIGITS = 19  # fit a word
_ZERO, _NINE, _TEN = np.uint64(48), np.uint64(9), np.uint64(10)

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_BEGINNINGS = "+-.0123456789iI"
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def to_number(text):
    """Return the number that a text spells, which may be infinite, or None where it spells none."""
    if text[:1] not in _BEGINNINGS:  # a word, as nearly always
        return None
    if _NUMBER.fullmatch(text) or (text.isascii() and _INFINITY.fullmatch(text)):
        return float(text)
    return None


def _powers_of_five():
    """Return the 128 leading bits of 5**q, as two words, for every power of ten that float64 can hold."""
    words = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), dtype=np.uint64)
    for row, q in enumerate(range(_SMALLEST_POWER, _LARGEST_POWER + 1)):
        if q >= 0:
            shift = 128 - (5**q).bit_length()
            leading = 5**q << shift if shift >= 0 else 5**q >> -shift
        else:
            bits = (5**-q).bit_length()
            leading = (1 << bits + 127 if q >= -27 else 1 << 2 * bits + 128) // 5**-q + 1
            leading >>= max(leading.bit_length() - 128, 0)
        words[row] = leading >> 64, leading & 0xFFFFFFFFFFFFFFFF
    return words


_FIVES = _powers_of_five()
_TENS = np.array([10.0**k for k in range(23)])  # exact in float64
_TWOS = np.array([2.0**k for k in range(_SMALLEST_EXPONENT, _LARGEST_EXPONENT + 1)])
_WHOLE_TENS = np.array([10**k for k in range(9)], dtype=np.uint64)
_ZEROS = _ONES * _ZERO
_UPPER_BYTE = np.uint64(0xFF << 56)
_LETTER_E = np.uint64(0x75)  # "E", and "e" but for the bit of 32, both less "0" as in the words above
_OTHER_CASE = np.uint64(32)
_TO_UPPER_BIT = _ONES * np.uint64(128 - 10)  # what is added to 10 to reach it


@njit(cache=True, nogil=True)
def _product(a, b):
    """Return the upper and the lower word of the product of two words."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    low, middle = a_low * b_low, a_high * b_low
    other = a_low * b_high
    carry = (low >> half) + (middle & mask) + (other & mask)
    return a_high * b_high + (middle >> half) + (other >> half) + (carry >> half), a * b


@njit(cache=True, nogil=True)
def _leading_zeros(word):
    zeros = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == np.uint64(0):
            word <<= np.uint64(step)
            zeros += step
    return zeros


@njit(cache=True, nogil=True)
def _round(mantissa, power):
    """Return mantissa * 10**power, correctly rounded, and whether that is certain; mantissa > 0.

    Eisel and Lemire's algorithm: the mantissa times the leading bits of 5**power, of which the upper 55 bits decide.
    What is below the normal range, above the largest number or left open is for the caller to ask Python.

    References
    ----------
    D. Lemire, "Number parsing at a gigabyte per second", Software: Practice and Experience 51 (2021).
    """
    one = np.uint64(1)
    if mantissa >> np.uint64(53) == np.uint64(0) and -22 <= power <= 22:  # both exact, and so is the rounding
        return np.float64(mantissa) * _TENS[power] if power >= 0 else np.float64(mantissa) / _TENS[-power], True
    if power < _SMALLEST_POWER or power > _LARGEST_POWER:
        return 0.0, False
    zeros = _leading_zeros(mantissa)
    mantissa <<= np.uint64(zeros)
    row = power - _SMALLEST_POWER
    upper, lower = _product(mantissa, _FIVES[row, 0])
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _ = _product(mantissa, _FIVES[row, 1])
        lower += more
        upper += np.uint64(lower < more)
    if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and not -27 <= power <= 55:
        return 0.0, False
    top = upper >> np.uint64(63)
    shift = top + np.uint64(9)
    digits = upper >> shift
    exponent = ((217706 * power) >> 16) + 11 + np.int64(top) - zeros
    if lower <= one and -4 <= power <= 23 and digits & np.uint64(3) == one and digits << shift == upper:
        digits &= ~one  # halfway between two numbers: the even one
    digits = (digits + (digits & one)) >> one
    if not _SMALLEST_EXPONENT < exponent < _LARGEST_EXPONENT:
        return 0.0, False
    return np.float64(digits) * _TWOS[exponent - _SMALLEST_EXPONENT], True


@njit(cache=True, nogil=True)
def _eight_digits(word):
    """Return the number of eight digits, given as bytes from 0 to 9, the first of them lowest.

    Neighbours join to numbers of two digits in every second byte, and these, by two products that add up four of them
    in the upper half, to one of eight.
    """
    word = word * _TEN + (word >> np.uint64(8))
    pairs = np.uint64(0x000000FF000000FF)
    first = (word & pairs) * np.uint64((1000000 << 32) + 100)
    second = ((word >> np.uint64(16)) & pairs) * np.uint64((10000 << 32) + 1)
    return (first + second) >> np.uint64(32)


@njit(cache=True, nogil=True, forceinline=True)
def _digits(text, position, end, mantissa):
    """Read digits; return the number that they continue, and where they end. What does not fit a word is cut off."""
    while position + 8 <= end:
        word = word_at(text, position) ^ _ZEROS
        no_digits = (word | (word + _TO_UPPER_BIT)) & _UPPER_BITS  # exact up to the first of them
        if no_digits == np.uint64(0):
            mantissa = mantissa * _WHOLE_TENS[8] + _eight_digits(word)
            position += 8
            continue
        count = _bytes_before(no_digits)
        if count > 0:
            word <<= np.uint64(64 - 8 * count)
            mantissa = mantissa * _WHOLE_TENS[count] + _eight_digits(word)
        return mantissa, position + count
    while position < end:
        digit = np.uint64(text[position]) - _ZERO  # what comes before 0 becomes very large
        if digit > _NINE:
            break
        mantissa = mantissa * _TEN + digit
        position += 1
    return mantissa, position


@njit(cache=True, nogil=True, forceinline=True)
def _short_number(word, point):
    """Read a number without exponent that ends within the eight bytes of a word; return its digits as a whole number,
    how many they are, how many of them are decimals, and whether it has a decimal point; no digits if it is longer.

    The byte of the point is taken out, so that all digits stand together.
    """
    word ^= _ZEROS
    no_digits = (word | (word + _TO_UPPER_BIT)) & _UPPER_BITS
    if no_digits == np.uint64(0):
        return np.uint64(0), 0, 0, False
    n_whole = _bytes_before(no_digits)
    before = (np.uint64(1) << np.uint64(8 * n_whole)) - np.uint64(1)
    fraction = (word >> np.uint64(8 * n_whole)) & np.uint64(255) == point ^ _ZERO
    if fraction:
        word = (word & before) | ((word >> np.uint64(8)) & ~before) | _UPPER_BYTE
        no_digits = (word | (word + _TO_UPPER_BIT)) & _UPPER_BITS
    n_digits = _bytes_before(no_digits)
    following = (word >> np.uint64(8 * n_digits)) & np.uint64(255)
    if n_digits == 0 or following == _UPPER_BYTE >> np.uint64(56) or following | _OTHER_CASE == _LETTER_E:
        return np.uint64(0), 0, 0, False
    return _eight_digits(word << np.uint64(64 - 8 * n_digits)), n_digits, n_digits - n_whole, fraction


@njit(cache=True, nogil=True)
def _leading_zero_digits(text, position, end):
    """Return how many digits of a number, whatever its decimal point, come before the first that is not 0."""
    zeros = 0
    while position < end and not 49 <= text[position] <= 57:
        zeros += text[position] == 48
        position += 1
    return zeros


@njit(cache=True, nogil=True, forceinline=True)
def read_number(text, start, end, point):
    """Read the number at the start of text[start:end], whose decimal point is the byte ``point``.

    Return its value, where it ends, whether it is EXACT, UNSURE (only Python's own conversion is certain to round
    correctly) or NO_NUMBER, and whether it has a decimal point.
    """
    position = start
    sign = np.uint8(_PLUS) if position == end else text[position]
    negative = sign == _MINUS
    position += position < end and (negative | (sign == _PLUS))
    if position + 8 <= end:
        mantissa, n_digits, n_decimals, fraction = _short_number(word_at(text, position), np.uint64(point))
        if n_digits > 0:
            value = np.float64(mantissa) / _TENS[n_decimals]
            return -value if negative else value, position + n_digits + fraction, EXACT, fraction
    first = position
    mantissa, position = _digits(text, position, end, np.uint64(0))
    n_digits, n_decimals = position - first, 0
    fraction = position < end and text[position] == point
    if fraction:
        mantissa, position = _digits(text, position + 1, end, mantissa)
        n_decimals = position - first - n_digits - 1
        n_digits += n_decimals
    if n_digits == 0:
        return 0.0, position, NO_NUMBER, fraction
    if n_digits > _MOST_DIGITS:
        n_digits -= _leading_zero_digits(text, first, position)
    power = -n_decimals
    if position < end and (text[position] == 101 or text[position] == 69):
        position += 1
        down = position < end and text[position] == _MINUS
        if position < end and (down or text[position] == _PLUS):
            position += 1
        exponent, any_digit = 0, False
        while position < end and 48 <= text[position] <= 57:
            any_digit = True
            exponent = min(exponent * 10 + np.int64(text[position] - 48), 100000)
            position += 1
        if not any_digit:
            return 0.0, position, NO_NUMBER, fraction
        power += -exponent if down else exponent
    if n_digits > _MOST_DIGITS:
        return 0.0, position, UNSURE, fraction
    value, certain = 0.0, True
    if mantissa > np.uint64(0):
        value, certain = _round(mantissa, power)
    return -value if negative else value, position, EXACT if certain else UNSURE, fraction
