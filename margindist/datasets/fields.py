"""Text cut into fields and numbers by compiled code, for every format that is text.

A field may stand in double quotes, where two of them mean one, and delimiters and line ends are text. Blanks (spaces
and tabs) around a field are no part of it, within quotes or without. Lines end in LF or CR LF. Every other byte,
control characters and unusual spaces included, belongs to the field it stands in.

A number is ASCII digits, a point, an exponent. Python's ``float`` also reads 1_000, Arabic and full-width digits, and
numbers between control characters or unusual spaces. In a file these are damage or text, and must not become numbers
silently.
"""

import math
import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit

from margindist.datasets.dataset import DataError

BLANKS = 256  # instead of a delimiter: any number of blanks separates fields
BOM = b"\xef\xbb\xbf"
_SMALLEST_BLOCK = 1 << 20
_LARGEST_BLOCK = 1 << 26
_FEW_ROWS = 256  # blocks with fewer rows are enlarged, because each column of a block costs a few calls

_TAB, _LF, _CR, _SPACE, _QUOTE = b'\t\n\r "'
_WHOLE, _BROKEN_OFF, _AFTER_QUOTE, _LONE_CR = range(4)
_REASONS = {
    _BROKEN_OFF: "unexpected end of data within the quotes that open here",
    _AFTER_QUOTE: "expected a delimiter after the closing quote",
    _LONE_CR: "expected lines that end in LF or CR LF, got a carriage return alone",
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


class Block(NamedTuple):
    """Rows of text: field ``k`` of row ``i`` is field ``row_ends[i - 1] + k``."""

    text: bytes
    codes: np.ndarray  # the same, as an array of bytes
    starts: np.ndarray
    ends: np.ndarray
    doubled: np.ndarray  # whether a field has doubled quotes
    row_ends: np.ndarray
    lines: np.ndarray  # where each row begins

    def field(self, number):
        """Return one field as text."""
        text = self.text[self.starts[number] : self.ends[number]].decode()
        return text.replace('""', '"') if self.doubled[number] else text

    def column(self, k, count):
        """Return field ``k`` of those of the first rows that have it."""
        places = [0, *self.row_ends[:count].tolist()]
        return [self.field(start + k) for start, end in pairwise(places) if start + k < end]

    def widths(self):
        """Return the number of fields of each row."""
        return np.diff(self.row_ends, prepend=0)


@njit(cache=True, nogil=True)
def _after_blanks(text, position, delimiter):
    while position < len(text) and text[position] != delimiter and (text[position] == _SPACE or text[position] == _TAB):
        position += 1
    return position


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _unquoted(text, position, delimiter):
    """Return the end of the field."""
    while position < len(text):
        byte = text[position]
        if byte in (delimiter, _LF, _CR):
            break
        if delimiter == BLANKS and byte in (_SPACE, _TAB):
            break
        position += 1
    return position


@njit(cache=True, nogil=True)
def _cut(text, delimiter, starts, ends, doubled, row_ends, lines):
    """Cut text into fields; return rows, bytes and lines read, and why it ended.

    Where that is not because the text is _WHOLE, bytes and lines are those up to the row in question.
    """
    position, line, rows, fields = 0, 0, 0, 0
    while position < len(text):
        row_start, row_line, first, quotes = position, line, fields, False
        while True:
            position = _after_blanks(text, position, delimiter)
            if delimiter == BLANKS and (position == len(text) or text[position] == _LF or text[position] == _CR):
                break
            start, twice = position, False
            if position < len(text) and text[position] == _QUOTE:
                start += 1
                quotes = True
                end, twice, within = _quoted(text, start)
                if end == len(text):
                    return rows, row_start, row_line, _BROKEN_OFF
                line += within
                start = _after_blanks(text, start, _QUOTE)
                position = _after_blanks(text, end + 1, delimiter)
                apart = delimiter == BLANKS and position > end + 1
                if not apart and _unquoted(text, position, delimiter) > position:
                    return rows, row_start, row_line, _AFTER_QUOTE
            else:
                end = position = _unquoted(text, position, delimiter)
            while end > start and (text[end - 1] == _SPACE or text[end - 1] == _TAB):
                end -= 1
            starts[fields], ends[fields], doubled[fields] = start, end, twice
            fields += 1
            if delimiter != BLANKS:
                if position == len(text) or text[position] != delimiter:
                    break
                position += 1
        if position < len(text) and text[position] == _CR:
            position += 1
            if position < len(text) and text[position] != _LF:
                return rows, row_start, row_line, _LONE_CR
        position += 1
        line += 1
        if fields == first + 1 and starts[first] == ends[first] and not quotes:
            fields = first  # a blank line
        if fields > first:
            row_ends[rows], lines[rows] = fields, row_line
            rows += 1
    return rows, min(position, len(text)), line, _WHOLE


def cut(text, delimiter, lines_before=0):
    """Return the rows of bytes as a :class:`Block`, bytes and lines read, and why it ended."""
    codes = np.frombuffer(text, dtype=np.uint8)
    n_lines = np.count_nonzero(codes == _LF) + 1
    n_fields = len(text) // 2 + 2 if delimiter == BLANKS else n_lines + np.count_nonzero(codes == delimiter)
    starts, ends = np.empty(n_fields, dtype=np.int64), np.empty(n_fields, dtype=np.int64)
    doubled = np.empty(n_fields, dtype=np.bool_)
    row_ends, lines = np.empty(n_lines, dtype=np.int64), np.empty(n_lines, dtype=np.int64)
    rows, n_bytes, n_read, status = _cut(codes, delimiter, starts, ends, doubled, row_ends, lines)
    fields = row_ends[rows - 1] if rows else 0
    lines += lines_before + 1
    block = Block(text, codes, starts[:fields], ends[:fields], doubled[:fields], row_ends[:rows], lines[:rows])
    return block, n_bytes, n_read, status


def read_blocks(file, delimiter, name):
    """Yield the rows of an open file of bytes as blocks; raise an error, after the rows above it, for a bad line."""
    buffer = b""
    size = _SMALLEST_BLOCK
    lines = 0
    begun = False
    more = True
    while more:
        size = max(size, len(buffer))
        read = file.read(size)
        more = len(read) > 0
        buffer += read if begun else read.removeprefix(BOM)
        begun = True
        whole = buffer.rfind(b"\n") + 1 if more else len(buffer)
        _check_text(buffer[:whole], lines, name)
        block, n_bytes, n_lines, status = cut(buffer[:whole], delimiter, lines)
        bad = status != _WHOLE and (status != _BROKEN_OFF or not more)
        if more and not bad and len(block.lines) < _FEW_ROWS and len(buffer) < _LARGEST_BLOCK:
            continue
        if len(block.lines):
            yield block
        lines += n_lines
        if bad:
            raise DataError(f"{name}, line {lines + 1}: {_REASONS[status]}.")
        buffer = buffer[n_bytes:]


def decoded_lines(file, name):
    """Yield the lines of a file of bytes as text; refuse what is not UTF-8 and say where."""
    for number, line in enumerate(file):
        content = line if number else line.removeprefix(BOM)
        _check_text(content, number, name)
        text = content.decode()
        if "\r" in text.removesuffix("\n").removesuffix("\r"):
            raise DataError(f"{name}, line {number + 1}: {_REASONS[_LONE_CR]}.")
        yield text


def _check_text(text, lines_before, name):
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


# ---------------------------------------------------------------------- numbers

EXACT, UNSURE, NO_NUMBER = range(3)

_SMALLEST_POWER, _LARGEST_POWER = -342, 308
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -1074, 970  # of whole numbers of 53 bits
_MOST_DIGITS = 19  # fit a word

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def to_number(text):
    """Return the number that a text spells, which may be infinite, or None where it spells none."""
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
    return math.ldexp(np.float64(digits), exponent), True


@njit(cache=True, nogil=True)
def read_number(text, start, end, point):
    """Read the number at the start of text[start:end], whose decimal point is the byte ``point``.

    Return its value, where it ends, whether it is EXACT, UNSURE (only Python's own conversion is certain to round
    correctly) or NO_NUMBER, and whether it has a decimal point.
    """
    position = start
    negative = False
    if position < end and (text[position] == 43 or text[position] == 45):
        negative = text[position] == 45
        position += 1
    mantissa, digits, power, seen, long = np.uint64(0), 0, 0, False, False
    fraction = False
    while position < end:
        byte = text[position]
        if 48 <= byte <= 57:
            seen = True
            if digits < _MOST_DIGITS:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
                digits += mantissa > np.uint64(0)
                power -= fraction
            else:
                long = True
                power += not fraction
        elif byte == point and not fraction:
            fraction = True
        else:
            break
        position += 1
    if not seen:
        return 0.0, position, NO_NUMBER, fraction
    if position < end and (text[position] == 101 or text[position] == 69):
        position += 1
        down = False
        if position < end and (text[position] == 43 or text[position] == 45):
            down = text[position] == 45
            position += 1
        exponent, any_digit = 0, False
        while position < end and 48 <= text[position] <= 57:
            any_digit = True
            exponent = min(exponent * 10 + np.int64(text[position] - 48), 100000)
            position += 1
        if not any_digit:
            return 0.0, position, NO_NUMBER, fraction
        power += -exponent if down else exponent
    if long:
        return 0.0, position, UNSURE, fraction
    value, certain = 0.0, True
    if mantissa > np.uint64(0):
        value, certain = _round(mantissa, power)
    return -value if negative else value, position, EXACT if certain else UNSURE, fraction
