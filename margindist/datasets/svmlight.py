"""LIBSVM's text format: ``label index:value index:value ... # comment`` in each line, with ascending indices.

Arrow reads the numbers of a block of lines, one after the other; where labels, column numbers and values stand is told
by what separates them. One block of bytes is in memory at a time. A block in which anything is wrong is gone through
line by line, to name the line.

scikit-learn's ``load_svmlight_file`` reads the same format more slowly (``python -m benchmarks.bench_reading``), takes
1_0 for a number, and does not say in which line a file is damaged.
"""

import re
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.datasets.dataset import DataError, needed_pyarrow
from margindist.datasets.delimited import BOM

_BLOCK_BYTES = 1 << 20
LARGE = 1 << 26  # bytes of text from which on values that fit float32 exactly stay float32
_LARGEST_INDEX = 2147483646
_IN_NUMBER, _BLANK, _LINE_END, _COLON, _ODD = range(5)
_LETTERS = {**dict.fromkeys(b"0123456789+-.eE", _IN_NUMBER), **dict.fromkeys(b" \t", _BLANK), 10: _LINE_END, 58: _COLON}
_KINDS = bytes(_LETTERS.get(letter, _ODD) for letter in range(256))
_ONE_PER_LINE = bytes.maketrans(b": \t", b"\n\n\n")
_NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_LABEL = re.compile(rb"[ \t]*(" + _NUMBER + rb")(?![^ \t])")
_PAIR = re.compile(rb"[ \t]+([0-9]+):(" + _NUMBER + rb")(?![^ \t])")


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


class _Block(NamedTuple):
    labels: np.ndarray
    counts: np.ndarray  # entries of each row
    indices: np.ndarray
    values: np.ndarray


class _OddError(Exception):
    """Something in a block is not as it should be."""


def read_svmlight(stream, name):
    """Read LIBSVM text from a stream of bytes; return X (CSR), labels and sentences on what was guessed.

    Values are float64. In files above 64 MB they are float32 where that is exact for every one of them.
    """
    entries = read_entries(stream, name)
    if entries.single and entries.n_bytes < LARGE:
        entries = entries._replace(values=entries.values.astype(np.float64))
    if entries.smallest == 0:
        notes = ["Column numbers were taken to start at 0, because one is 0."]
    else:
        notes = ["Column numbers were taken to start at 1, because none is 0."]
    if entries.values.dtype == np.float32:
        notes.append("All values fit single precision exactly and are kept in it, to save memory.")
    first = min(entries.smallest, 1)
    return as_csr(entries, first, max(entries.largest + 1 - first, 0)), whole_labels(entries.labels), tuple(notes)


def read_entries(stream, name, lines_before=0):
    """Read LIBSVM text from a stream that begins at a line; errors count ``lines_before`` in."""
    needed_pyarrow(name, "LIBSVM files need")
    labels, counts, indices = _Growing(np.float64), _Growing(np.int64), _Growing(np.int32)
    values, single = _Growing(np.float32), True  # while all values fit float32
    smallest, largest = 1, -1  # column numbers
    n_lines = n_bytes = 0
    buffer, more = b"", True
    counts.extend([0])
    while more:
        read = stream.read(_BLOCK_BYTES)
        more = len(read) > 0
        buffer += read if n_bytes or lines_before else read.removeprefix(BOM)
        n_bytes += len(read)
        cut = buffer.rfind(b"\n") + 1 if more else len(buffer)
        if not cut:
            continue
        text, buffer = buffer[:cut], buffer[cut:]
        block = _parsed(text, name, lines_before + n_lines)
        n_lines += text.count(b"\n")
        if len(block.indices):
            smallest, largest = min(smallest, block.indices.min()), max(largest, block.indices.max())
        if single and not _fits_single(block.values):
            single = False
            values.convert(np.float64)
        for column, more_of_it in zip((labels, counts, indices, values), block, strict=True):
            column.extend(more_of_it)
    ends = np.cumsum(counts.finish())
    result = labels.finish(), ends, indices.finish(), values.finish()
    return Entries(*result, single, int(smallest), int(largest), n_lines, n_bytes)


def _parsed(text, name, lines_before):
    import pyarrow as pa

    try:
        return _block(text)
    except (_OddError, pa.ArrowInvalid):
        for number, line in enumerate(text.split(b"\n"), start=lines_before + 1):
            reason = _what_is_wrong(line.removesuffix(b"\r"))
            if reason is not None:
                raise DataError(f"{name}, line {number}: {reason}.") from None
        raise


def _block(text):
    """Return what whole lines say; raise an error if anything is wrong."""
    if b"#" in text:
        text = re.sub(rb"#[^\n]*", b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    text = text if text.endswith(b"\n") else text + b"\n"
    kinds = np.frombuffer(text.translate(_KINDS), dtype=np.uint8)
    apart = np.flatnonzero(kinds)
    behind = kinds[apart]  # what follows each number, or another of what separates them
    before = np.concatenate([np.array([_LINE_END], dtype=np.uint8), behind[:-1]])
    if (behind == _ODD).any():
        raise _OddError
    n_colons = np.count_nonzero(behind == _COLON)
    is_number = np.concatenate([apart[:1] > 0, apart[1:] - apart[:-1] > 1])
    if ((before == _LINE_END) & (behind == _BLANK) & ~is_number).any():
        return _block(re.sub(rb"^[ \t]+", b"", text, flags=re.MULTILINE))
    behind, before = behind[is_number], before[is_number]
    is_label, is_index, is_value = before == _LINE_END, behind == _COLON, before == _COLON
    in_pairs = np.array_equal(is_index[:-1], is_value[1:]) and not is_value[:1].any() and not is_index[-1:].any()
    once = is_label.astype(np.int8) + is_index + is_value
    if not in_pairs or (once != 1).any() or n_colons != np.count_nonzero(is_index):
        raise _OddError
    numbers = _numbers(text)
    indices, values = numbers[is_index], numbers[is_value]
    if not np.isfinite(numbers).all() or (indices != np.floor(indices)).any():
        raise _OddError
    if len(indices) and not 0 <= indices.min() <= indices.max() <= _LARGEST_INDEX:
        raise _OddError
    is_first = np.concatenate([[False], is_label[:-1]])[is_index]
    if not ((np.diff(indices) > 0) | is_first[1:]).all():
        raise _OddError
    starts = np.flatnonzero(is_label)
    counts = np.diff(starts, append=len(numbers)) // 2
    return _Block(numbers[is_label], counts, indices.astype(np.int32), values)


def _numbers(text):
    """Return all numbers of a text in which nothing but numbers, blanks and colons is left."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    lines = text.translate(_ONE_PER_LINE)
    if not lines.strip(b"\n"):
        return np.empty(0)
    table = arrow_csv.read_csv(
        pa.py_buffer(lines),
        read_options=arrow_csv.ReadOptions(column_names=["numbers"], use_threads=False, block_size=len(lines) + 1),
        parse_options=arrow_csv.ParseOptions(delimiter=",", quote_char=False),
        convert_options=arrow_csv.ConvertOptions(column_types={"numbers": pa.float64()}, null_values=[]),
    )
    return table.column(0).to_numpy()


def _what_is_wrong(line):
    """Say what is wrong with a line, or None."""
    content = line.split(b"#", 1)[0]
    if not content.strip(b" \t"):
        return None
    label = _LABEL.match(content)
    if label is None:
        several = re.match(rb"[ \t]*" + _NUMBER + b",", content)
        return "has several labels in one row, of which only one is supported" if several else (
            "expected a number as label"
        )  # fmt: skip
    if np.isinf(float(label[1])):
        return "expected a number as label"
    position, last = label.end(), -1
    while content[position:].strip(b" \t"):
        rest = content[position:].lstrip(b" \t")
        pair = _PAIR.match(content, position)
        if rest.startswith(b"qid:"):
            return "has a query number (qid), which belongs to ranking and not to classification"
        if re.match(rb"[0-9]+:", rest) is None:
            return "expected index:value pairs"
        if pair is None or np.isinf(float(pair[2])):
            return "expected a finite number after the colon"
        if int(pair[1]) > _LARGEST_INDEX:
            return f"has a column number above {_LARGEST_INDEX}"
        if int(pair[1]) <= last:
            return "has column numbers that do not ascend"
        position, last = pair.end(), int(pair[1])
    return None


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


def _fits_single(values):
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(np.float32), values)


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
