"""LIBSVM's text format, read in blocks by compiled code.

A line is ``label index:value index:value ... # comment`` with ascending indices; between these are spaces or tabs.
One block of bytes is in memory at a time; labels, column numbers and values go to arrays that grow in place, so that
the peak is the arrays and a block.

scikit-learn's ``load_svmlight_file`` reads the same format several times more slowly (``python -m
benchmarks.bench_reading`` measures both) and does not say in which line a file is damaged; hence this one.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.compilation import borrowed, njit
from margindist.datasets.dataset import DataError
from margindist.datasets.fields import BOM, NO_NUMBER, UNSURE, read_number

_BLOCK_BYTES = 1 << 20
LARGE = 1 << 26  # bytes of text from which on values that fit float32 exactly stay float32

_POINT = ord(".")

_OK, _LABEL, _MANY_LABELS, _QUERY, _PAIR, _VALUE, _ORDER, _INDEX = range(8)
_REASONS = {
    _LABEL: "expected a number as label",
    _MANY_LABELS: "has several labels in one row, of which only one is supported",
    _QUERY: "has a query number (qid), which belongs to ranking and not to classification",
    _PAIR: "expected index:value pairs",
    _VALUE: "expected a finite number after the colon",
    _ORDER: "has column numbers that do not ascend",
    _INDEX: "has a column number above 2147483646",
}


@njit(cache=True, nogil=True)
def _blank(byte):
    return byte == 32 or byte == 9


@njit(cache=True, nogil=True)
def _parse(text, labels, ends, indices, values, slow):
    """Parse whole lines; return lines read, rows, entries, slow numbers, and the status with its line.

    ``ends`` gets each row's number of entries so far. A row of ``slow`` is (entry, or -1 - row for a label; start; end)
    of a number left to Python. ``line`` counts from 0 within this text.
    """
    text = borrowed(text)
    position, rows, entries, slows, line = 0, 0, 0, 0, 0
    size = len(text)
    while position < size:
        end = position
        while end < size and text[end] != 10:
            end += 1
        following = end + 1
        stop = position
        while stop < end and text[stop] != 35:
            stop += 1
        if stop == end and stop > position and text[stop - 1] == 13:
            stop -= 1
        while position < stop and _blank(text[position]):
            position += 1
        if position < stop:
            value, after, status, _ = read_number(text, position, stop, _POINT)
            if status == UNSURE:
                slow[slows, 0], slow[slows, 1], slow[slows, 2] = -1 - rows, position, after
                slows += 1
            elif status == NO_NUMBER:
                return line, rows, entries, slows, _LABEL
            if after < stop and not _blank(text[after]):
                return line, rows, entries, slows, _MANY_LABELS if text[after] == 44 else _LABEL
            labels[rows] = value
            position = after
            last = np.int64(-1)
            while True:
                while position < stop and _blank(text[position]):
                    position += 1
                if position >= stop:
                    break
                index, first = np.int64(0), position
                while position < stop and 48 <= text[position] <= 57:
                    index = min(index * 10 + np.int64(text[position] - 48), np.int64(1) << 40)
                    position += 1
                if position == first or position >= stop or text[position] != 58:
                    query = (
                        stop - first > 3 and text[first] == 113 and text[first + 1] == 105 and text[first + 2] == 100
                    )
                    return line, rows, entries, slows, _QUERY if query else _PAIR
                if index > 2147483646:
                    return line, rows, entries, slows, _INDEX
                if index <= last:
                    return line, rows, entries, slows, _ORDER
                last = index
                value, after, status, _ = read_number(text, position + 1, stop, _POINT)
                if status == UNSURE:
                    slow[slows, 0], slow[slows, 1], slow[slows, 2] = entries, position + 1, after
                    slows += 1
                elif status == NO_NUMBER:
                    return line, rows, entries, slows, _VALUE
                if after < stop and not _blank(text[after]):
                    return line, rows, entries, slows, _VALUE
                indices[entries] = index
                values[entries] = value
                entries += 1
                position = after
            ends[rows] = entries
            rows += 1
        position = following
        line += 1
    return line, rows, entries, slows, _OK


class _Growing:
    """A one-dimensional array that grows in place, by an eighth: the system moves its pages rather than copy them."""

    def __init__(self, dtype):
        self._stored = np.empty(1 << 10, dtype=dtype)
        self._size = 0

    def extend(self, values):
        needed = self._size + len(values)
        if needed > len(self._stored):
            self._stored.resize(needed + needed // 8, refcheck=False)
        self._stored[self._size : needed] = values
        self._size = needed

    def convert(self, dtype):
        self._stored = self._stored[: self._size].astype(dtype)

    def finish(self):
        self._stored.resize(self._size, refcheck=False)
        return self._stored


def _parse_block(text, lines_before, name):
    """Return labels, row ends, column numbers, values and the number of lines of whole lines of text."""
    n_lines, n_pairs = text.count(b"\n") + 1, text.count(b":")
    labels, ends = np.empty(n_lines), np.empty(n_lines, dtype=np.int64)
    indices, values = np.empty(n_pairs, dtype=np.int32), np.empty(n_pairs)
    slow = np.empty((n_lines + n_pairs, 3), dtype=np.int64)
    codes = np.frombuffer(text, dtype=np.uint8)
    lines, rows, entries, slows, status = _parse(codes, labels, ends, indices, values, slow)
    bad = lines if status != _OK else None
    for place, start, end in slow[:slows].tolist():
        value = float(text[start:end])
        if not np.isfinite(value):
            here = text.count(b"\n", 0, start)
            if bad is None or here < bad:
                bad, status = here, _VALUE if place >= 0 else _LABEL
        if place >= 0:
            values[place] = value
        else:
            labels[-1 - place] = value
    if bad is not None:
        raise DataError(f"{name}, line {lines_before + bad + 1}: {_REASONS[status]}.")
    return labels[:rows], ends[:rows], indices[:entries], values[:entries], lines


class Entries(NamedTuple):
    """What lines of text say, as arrays; rows of X end at ``ends``."""

    labels: np.ndarray
    ends: np.ndarray  # numbers of entries before each row and after the last
    indices: np.ndarray  # as written: nobody knows yet whether columns are numbered from 0 or 1
    values: np.ndarray
    single: bool  # whether float32 holds all values exactly; then they are float32
    smallest: int  # of the column numbers; 1 if there are none
    largest: int  # -1 if there are none
    n_lines: int
    n_bytes: int


def read_svmlight(stream, name):
    """Read LIBSVM text from a stream of bytes; return X (CSR), labels and sentences on what was guessed.

    Values are float64. In files above 64 MB they are float32 where that is exact for every one of them.
    """
    entries = read_entries(stream, name)
    if entries.single and entries.n_bytes < LARGE:
        entries = entries._replace(values=entries.values.astype(np.float64))
    return _assemble(entries)


def read_entries(stream, name, lines_before=0):
    """Read LIBSVM text from a stream that begins at a line; errors count ``lines_before`` in."""
    labels, ends = _Growing(np.float64), _Growing(np.int64)
    indices, values = _Growing(np.int32), _Growing(np.float32)
    single = True  # while all values fit float32
    smallest, largest = 1, -1  # column numbers
    n_entries = lines = n_bytes = 0
    ends.extend([0])
    buffer, more = bytearray(), True
    while more:
        block = stream.read(_BLOCK_BYTES)
        if not n_bytes and not lines_before:
            block = block.removeprefix(BOM)
        more = len(block) > 0
        n_bytes += len(block)
        buffer += block
        cut = buffer.rfind(b"\n") + 1 if more else len(buffer)
        if not cut:
            continue
        with memoryview(buffer) as whole:
            text = bytes(whole[:cut])
        del buffer[:cut]
        new_labels, new_ends, new_indices, new_values, n_lines = _parse_block(text, lines_before + lines, name)
        lines += n_lines
        labels.extend(new_labels)
        ends.extend(new_ends + n_entries)
        n_entries += len(new_indices)
        if len(new_indices):
            smallest, largest = min(smallest, new_indices.min()), max(largest, new_indices.max())
            if single and not _fits_single(new_values):
                single = False
                values.convert(np.float64)
            indices.extend(new_indices)
            values.extend(new_values)
    found = labels.finish(), ends.finish(), indices.finish(), values.finish()
    return Entries(*found, single, int(smallest), int(largest), lines, n_bytes)


def _fits_single(values):
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(np.float32), values)


def _assemble(entries):
    if entries.smallest == 0:
        notes = ["Column numbers were taken to start at 0, because one is 0."]
    else:
        notes = ["Column numbers were taken to start at 1, because none is 0."]
    if entries.values.dtype == np.float32:
        notes.append("All values fit single precision exactly and are kept in it, to save memory.")
    first = min(entries.smallest, 1)
    return as_csr(entries, first, max(entries.largest + 1 - first, 0)), whole_labels(entries.labels), tuple(notes)


def as_csr(entries, first, n_columns):
    """Return the rows as a CSR matrix, with columns numbered from ``first``; the entries are used up."""
    indices, ends = entries.indices, entries.ends
    indices -= np.int32(first)
    if len(indices) < np.iinfo(np.int32).max:
        ends = ends.astype(np.int32)
    X = sp.csr_matrix((entries.values, indices, ends), shape=(len(entries.labels), n_columns))
    X.has_sorted_indices = True
    return X


def whole_labels(labels):
    """Return labels as integers where all are whole."""
    whole = np.all(labels == np.floor(labels)) and np.all(np.abs(labels) < 2**53)
    return labels.astype(np.int64) if whole else labels
