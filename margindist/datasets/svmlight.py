"""LIBSVM's text format, read in blocks by compiled code.

A line is ``label index:value index:value ... # comment`` with ascending indices. One block of bytes is in memory at a
time; labels, column numbers and values go to arrays that grow in place, so that the peak is the arrays and a block.
"""

import numpy as np
import scipy.sparse as sp
from numba import njit

from margindist.datasets.dataset import DataError

__all__ = ["read_svmlight"]

_BLOCK_BYTES = 1 << 20
_LARGE = 1 << 26  # bytes of text from which on values that fit float32 exactly stay float32

_POWERS = np.array([10.0**k for k in range(23)])  # exact in float64

_OK, _SLOW, _LABEL, _MANY_LABELS, _QUERY, _PAIR, _VALUE, _ORDER, _INDEX = range(9)
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
def _round(mantissa, power, powers):
    """Return mantissa * 10**power, correctly rounded, and whether that is certain; |power| <= 22, mantissa < 1e18.

    The quotient or product is taken with its rounding error (Dekker), about 100 bits in all; where these leave open
    to which side to round, the caller asks Python.
    """
    high = float(mantissa)
    low = float(mantissa - np.int64(high))
    if low == 0.0 and mantissa < 9007199254740992:
        return (high * powers[power] if power >= 0 else high / powers[-power]), True
    scale = powers[abs(power)]
    first = high * scale if power >= 0 else high / scale
    factor = high if power >= 0 else first
    a = 134217729.0 * factor
    a_high = a - (a - factor)
    a_low = factor - a_high
    b = 134217729.0 * scale
    b_high = b - (b - scale)
    b_low = scale - b_high
    product = factor * scale
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    rest = error + low * scale if power >= 0 else (((high - product) - error) + low) / scale
    value = first + rest
    beyond = rest - (value - first)
    half = 0.5 * np.spacing(value)  # below a power of two the next number is half as far
    certain = np.abs(beyond) < (1.0 - 1e-9) * half and np.abs(np.abs(beyond) - 0.5 * half) > 1e-9 * half
    return value, certain


@njit(cache=True, nogil=True)
def _number(text, start, end, powers):
    """Read the number in text[start:end]; status _SLOW where only Python's own conversion is certain to be exact."""
    position = start
    negative = False
    if position < end and (text[position] == 43 or text[position] == 45):
        negative = text[position] == 45
        position += 1
    mantissa, digits, power, seen, slow = np.int64(0), 0, 0, False, False
    fraction = False
    while position < end:
        byte = text[position]
        if 48 <= byte <= 57:
            seen = True
            if digits < 18:
                mantissa = mantissa * 10 + np.int64(byte - 48)
                digits += mantissa > 0
                power -= fraction
            else:
                slow = True
                power += not fraction
        elif byte == 46 and not fraction:
            fraction = True
        else:
            break
        position += 1
    if not seen:
        return 0.0, position, _VALUE
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
            return 0.0, position, _VALUE
        power += -exponent if down else exponent
    if mantissa == 0 and not slow:
        return -0.0 if negative else 0.0, position, _OK
    if slow or power > 22 or power < -22:
        return 0.0, position, _SLOW
    value, certain = _round(mantissa, power, powers)
    return -value if negative else value, position, _OK if certain else _SLOW


@njit(cache=True, nogil=True)
def _parse(text, powers, labels, ends, indices, values, slow):
    """Parse whole lines; return lines read, rows, entries, slow numbers, and the status with its line.

    ``ends`` gets each row's number of entries so far. A row of ``slow`` is (entry, or -1 - row for a label; start; end)
    of a number left to Python. ``line`` counts from 0 within this text.
    """
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
        while position < stop and text[position] <= 32:
            position += 1
        if position < stop:
            value, after, status = _number(text, position, stop, powers)
            if status == _SLOW:
                slow[slows, 0], slow[slows, 1], slow[slows, 2] = -1 - rows, position, after
                slows += 1
            elif status != _OK:
                return line, rows, entries, slows, _LABEL
            if after < stop and text[after] > 32:
                return line, rows, entries, slows, _MANY_LABELS if text[after] == 44 else _LABEL
            labels[rows] = value
            position = after
            last = np.int64(-1)
            while True:
                while position < stop and text[position] <= 32:
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
                value, after, status = _number(text, position + 1, stop, powers)
                if status == _SLOW:
                    slow[slows, 0], slow[slows, 1], slow[slows, 2] = entries, position + 1, after
                    slows += 1
                elif status != _OK:
                    return line, rows, entries, slows, _VALUE
                if after < stop and text[after] > 32:
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
    lines, rows, entries, slows, status = _parse(codes, _POWERS, labels, ends, indices, values, slow)
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


def read_svmlight(stream, name):
    """Read LIBSVM text from a stream of bytes; return X (CSR), labels and sentences on what was guessed.

    Values are float64. In files above 64 MB they are float32 where that is exact for every one of them.
    """
    labels, ends = _Growing(np.float64), _Growing(np.int64)
    indices, values = _Growing(np.int32), _Growing(np.float32)
    single, smallest, largest, n_entries, lines, n_bytes = True, 1, -1, 0, 0, 0
    ends.extend([0])
    buffer, more = bytearray(), True
    while more:
        block = stream.read(_BLOCK_BYTES)
        more = len(block) > 0
        n_bytes += len(block)
        buffer += block
        cut = buffer.rfind(b"\n") + 1 if more else len(buffer)
        if not cut:
            continue
        with memoryview(buffer) as whole:
            text = bytes(whole[:cut])
        del buffer[:cut]
        new_labels, new_ends, new_indices, new_values, n_lines = _parse_block(text, lines, name)
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
    if single and n_bytes < _LARGE:
        values.convert(np.float64)
    return _assemble(labels.finish(), ends.finish(), indices.finish(), values.finish(), int(smallest), int(largest))


def _fits_single(values):
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(np.float32), values)


def _assemble(labels, ends, indices, values, smallest, largest):
    if smallest == 0:
        notes = ["Column numbers were taken to start at 0, because one is 0."]
    else:
        indices -= 1
        largest -= 1
        notes = ["Column numbers were taken to start at 1, because none is 0."]
    if values.dtype == np.float32:
        notes.append("All values fit single precision exactly and are kept in it, to save memory.")
    if len(indices) < np.iinfo(np.int32).max:
        ends = ends.astype(np.int32)
    X = sp.csr_matrix((values, indices, ends), shape=(len(labels), max(largest + 1, 0)))
    X.has_sorted_indices = True
    if np.all(labels == np.floor(labels)) and np.all(np.abs(labels) < 2**53):
        labels = labels.astype(np.int64)
    return X, labels, tuple(notes)
