"""Delimited text cut into fields by compiled code, block by block, with the line of every row.

A field may stand in double quotes, where two of them mean one, and delimiters and line ends are text. Blanks (spaces
and tabs) around a field are no part of it, within quotes or without. Lines end in LF or CR LF. Every other byte,
control characters and unusual spaces included, belongs to the field it stands in.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit

from margindist.datasets.dataset import DataError

__all__ = ["BLANKS", "BOM", "Block", "cut", "decoded_lines", "read_blocks"]

BLANKS = 256  # instead of a delimiter: fields are apart by any number of blanks
BOM = b"\xef\xbb\xbf"
_SMALLEST_BLOCK = 1 << 20
_LARGEST_BLOCK = 1 << 26
_FEW_ROWS = 256  # blocks of fewer rows grow: each column of a block costs a few calls

_TAB, _LF, _CR, _SPACE, _QUOTE = b'\t\n\r "'
_WHOLE, _BROKEN_OFF, _AFTER_QUOTE, _LONE_CR = range(4)
_REASONS = {
    _BROKEN_OFF: "unexpected end of data within the quotes that open here",
    _AFTER_QUOTE: "expected a delimiter after the closing quote",
    _LONE_CR: "expected lines that end in LF or CR LF, got a carriage return alone",
}


class Block(NamedTuple):
    """Rows of text: field ``k`` of row ``i`` is field ``row_ends[i - 1] + k``."""

    text: bytes
    codes: np.ndarray  # the same as numbers
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
        """Return field ``k`` of the first rows, of those that have it."""
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
    buffer, size, lines, more, begun = b"", _SMALLEST_BLOCK, 0, True, False
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
            raise DataError(
                f"{name}, line {line}: byte {text[error.start]:#04x} is not UTF-8; save the file as UTF-8 text."
            ) from None
    zero = text.find(b"\0")
    if zero >= 0:
        line = lines_before + text.count(b"\n", 0, zero) + 1
        raise DataError(f"{name}, line {line}: expected text, got a zero byte.")
