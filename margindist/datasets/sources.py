"""Files that are read in parts: NPY and LIBSVM text; a part is read when it is asked for, and never kept.

A source has a ``label``, ``sizes`` (rows of each part), ``n_columns``, ``names`` (of the columns, or None), the
``target_name``, ``dtype``, ``notes`` (sentences on what was guessed or left out), ``spare_bytes`` (memory that is
left for copies of rows), ``is_in_memory``, ``read(i)``, which returns a
:class:`~margindist.spaces.partitions.Piece`, and ``where(i)``, which says in words where part i is.
It pickles as paths.

Files are opened anew for every part and never mapped into memory: a file that is shortened during a fit is then an
error and not the death of the process, and address space is not what limits its size. Length and time of the last
change must stay what they were when the file was first looked at: an optimum of rows that change is none.
"""

import math
import mmap
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy

from margindist.datasets.dataset import DataError, one_sentence, parse_bytes
from margindist.datasets.svmlight import LARGE, as_csr, read_entries, whole_labels
from margindist.spaces.partitions import Piece

_READ_HEADER = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
PART_BYTES = 1 << 26  # of numbers in a part, unless told otherwise
STATE_BYTES = 45  # that a solver for two classes keeps per row: labels, weights, margins, multipliers, slacks
SPARE_BYTES = 10**9  # for copies of the rows that a solver works on most, unless told otherwise
INTERPRETER_BYTES = 400 * 10**6  # of Python with all libraries and compiled code
COPIES = 5  # of a part, see :class:`Split`
_FEWEST_ROWS = 256  # of a part: below, a round is nothing but overhead


class Stamp(NamedTuple):
    """A file as it was when first looked at."""

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path):
        """Look at a file."""
        path = Path(path)
        try:
            result = os.stat(path)
        except FileNotFoundError:
            raise DataError(f"{path}: there is no such file.") from None
        except OSError as error:
            raise DataError(f"{path}: the file cannot be looked at ({error.strerror}).") from None
        return cls(path.absolute(), result.st_size, result.st_mtime_ns)

    def check(self):
        """Raise an error if the file is gone or is not what it was."""
        try:
            result = os.stat(self.path)
        except FileNotFoundError:
            raise DataError(f"{self.path}: the file has vanished since it was first read; put it back.") from None
        if result.st_size < self.size:
            raise DataError(
                f"{self.path}: the file had {self.size} bytes when it was first read and has {result.st_size} now; "
                "restore it, and begin again."
            )
        if (result.st_size, result.st_mtime_ns) != self[1:]:
            raise DataError(f"{self.path}: the file has changed since it was first read; begin again.")


def files_in(path, endings, what):
    """Return a file, or the files of a folder that end so, in order of their names."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder.")
    if not path.is_dir():
        return [path]
    result = sorted(file for file in path.iterdir() if file.suffix.lower() in endings and file.name[0] not in "._")
    if not result:
        raise DataError(f"{path}: expected {what} in this folder, got none that ends with {' or '.join(endings)}.")
    return result


def kind_of_file(path):
    """Return "parquet", "feather", "csv", "npy" or "svmlight" by the ending of a file, or of the files in a folder."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder.")
    kinds = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".arrow": "feather", ".ipc": "feather"}
    kinds |= {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".npy": "npy"}
    endings = [file.suffix.lower() for file in sorted(path.iterdir())] if path.is_dir() else [path.suffix.lower()]
    result = {kinds[ending] for ending in endings if ending in kinds}
    if len(result) == 1:
        return result.pop()
    if path.is_dir():
        raise DataError(
            f"{path}: expected a folder of Parquet, Feather, CSV or NPY files, of one kind, got {len(endings)} others."
        )
    if endings[0] in (".arff", ".npz", ".gz", ".bz2", ".xz"):
        raise DataError(
            f"{path}: files that end with {endings[0]} are read whole, not in parts; write Parquet, Feather, CSV, NPY "
            "or LIBSVM text."
        )
    return "svmlight"


class Split(NamedTuple):
    """How many rows a part has: as asked for, as many as the memory allows, or 64 MB of them.

    In memory at once are at most five copies of a part: the one that is worked on, with what a solver makes of its
    rows, the next one, and what is decoded or transformed on the way to it; beside them the interpreter with its
    libraries, and what a solver keeps for each of all rows.
    """

    rows: int | None = None
    memory: int | None = None

    @classmethod
    def of(cls, rows_per_partition, memory):
        """Check what a user gives."""
        if rows_per_partition is not None and memory is not None:
            raise DataError("Partitions: give rows_per_partition or memory, not both.")
        if rows_per_partition is not None:
            whole = isinstance(rows_per_partition, (int, np.integer)) and not isinstance(rows_per_partition, bool)
            if not whole or rows_per_partition < 1:
                raise DataError(
                    f"Partitions: rows_per_partition must be None or a positive integer, got {rows_per_partition!r}."
                )
        return cls(rows_per_partition, None if memory is None else parse_bytes(memory, "Partitions: memory"))

    def step(self, n_rows, row_bytes):
        """Return the rows of a part, of so many in all that take so many bytes each."""
        if self.rows is not None:
            return self.rows
        if self.memory is None:
            return max(1, PART_BYTES // max(1, row_bytes))
        left = self.memory - INTERPRETER_BYTES - n_rows * STATE_BYTES
        step = min(left // COPIES, PART_BYTES) // max(1, row_bytes)
        if step < min(n_rows, _FEWEST_ROWS):
            needed = INTERPRETER_BYTES + n_rows * STATE_BYTES + COPIES * row_bytes * min(n_rows, _FEWEST_ROWS)
            raise DataError(
                f"Partitions: {n_rows} rows, of which a solver keeps {STATE_BYTES} bytes each, do not fit into the "
                f"{self.memory / 1e9:.3g} GB of memory given; give at least {needed / 1e9:.3g}."
            )
        return step

    def spare(self, n_rows, part_bytes):
        """Return what is left for copies of rows that a solver needs in every round, so that files need not be read."""
        if self.memory is None:
            return SPARE_BYTES
        return max(0, self.memory - INTERPRETER_BYTES - n_rows * STATE_BYTES - COPIES * part_bytes)

    def check_part(self, n_rows, n_in_part, row_bytes, where):
        """Raise an error if a part that cannot be divided is larger than the memory allows."""
        if self.memory is None:
            return
        needed = INTERPRETER_BYTES + n_rows * STATE_BYTES + COPIES * n_in_part * row_bytes
        if needed > self.memory:
            raise DataError(
                f"{where}: has {n_in_part} rows, with which a fit takes {needed / 1e9:.3g} GB, more than the "
                f"{self.memory / 1e9:.3g} given; write the file anew with smaller row groups, or give more memory."
            )


def kept_dtype(dtype):
    """Return the type of numbers that stand for these: float32 for itself, float64 for all others."""
    return np.dtype(np.float32 if dtype in (np.float32, np.float16) else np.float64)


# ---------------------------------------------------------------------- NPY


class NpyFile(NamedTuple):
    """An array in a file: where its numbers begin, and how they are laid out."""

    stamp: Stamp
    shape: tuple[int, ...]
    dtype: np.dtype
    by_columns: bool
    offset: int

    @classmethod
    def of(cls, path, n_dimensions):
        """Read the head of an NPY file, and compare what it declares with the file's length."""
        stamp = Stamp.of(path)
        with one_sentence(stamp.path), open(path, "rb") as file:
            version = npy.read_magic(file)
            if version not in _READ_HEADER:
                raise DataError(f"{stamp.path}: the file is stored in version {version} of NPY, not 1 or 2.")
            shape, by_columns, dtype = _READ_HEADER[version](file)
            offset = file.tell()
        if len(shape) != n_dimensions or dtype.hasobject or dtype.kind not in "iufbU":
            words = {1: "one number or text per row", 2: "numbers in rows and columns"}[n_dimensions]
            raise DataError(f"{stamp.path}: expected {words}, got {dtype} of shape {shape}.")
        if stamp.size < offset + math.prod(shape) * dtype.itemsize:
            raise DataError(f"{stamp.path}: the file ends too early; it is damaged or was not copied whole.")
        return cls(stamp, shape, dtype, by_columns and n_dimensions > 1, offset)

    @classmethod
    def of_memmap(cls, array):
        """Return where the numbers of a mapped file are; None if the array is not all of the map, as it was made."""
        whole = isinstance(array, np.memmap) and isinstance(array.filename, (str, os.PathLike))
        if not whole or not isinstance(array.base, mmap.mmap):
            return None
        by_columns = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
        return cls(Stamp.of(array.filename), array.shape, array.dtype, by_columns, array.offset)

    def read(self, first, last):
        """Return some rows."""
        self.stamp.check()
        row = math.prod(self.shape[1:])
        with one_sentence(self.stamp.path):
            if not self.by_columns:
                return self._numbers(first * row, (last - first) * row).reshape(-1, *self.shape[1:])
            return np.stack([self._numbers(k * self.shape[0] + first, last - first) for k in range(row)], axis=1)

    def _numbers(self, first, count):
        result = np.fromfile(self.stamp.path, self.dtype, count=count, offset=self.offset + first * self.dtype.itemsize)
        if len(result) < count:
            raise EOFError
        return result.astype(self.dtype.newbyteorder("="), copy=False)


class NpyColumn:
    """One value per row, in one file or in several that continue each other."""

    def __init__(self, path):
        self._files = [NpyFile.of(file, 1) for file in files_in(path, (".npy",), "NPY files")]
        self._starts = np.cumsum([0, *(file.shape[0] for file in self._files)])
        self.n_rows = int(self._starts[-1])

    def read(self, first, last):
        """Return the values of some rows."""
        values = []
        for file, start in zip(self._files, self._starts[:-1].tolist(), strict=True):
            low, high = max(first, start), min(last, start + file.shape[0])
            if low < high:
                values.append(file.read(low - start, high - start))
        return np.concatenate(values)


class NpySource:
    """Rows of NPY files; labels and weights in files of their own, or in memory."""

    is_in_memory = False
    notes = ()
    target_name = "y"

    def __init__(self, X, y, sample_weight, split, feature_names, dtype):
        mapped = NpyFile.of_memmap(X) if isinstance(X, np.memmap) else None
        if mapped is None:
            self._files = [NpyFile.of(file, 2) for file in files_in(X, (".npy",), "NPY files")]
        else:
            self._files = [mapped]
        first = self._files[0]
        self.label = first.stamp.path.stem if len(self._files) == 1 else first.stamp.path.parent.name
        self.n_columns = first.shape[1]
        for file in self._files:
            if file.shape[1] != self.n_columns:
                raise DataError(
                    f"{file.stamp.path}: expected {self.n_columns} columns, as in {first.stamp.path.name}, got "
                    f"{file.shape[1]}."
                )
            if file.dtype.kind == "U":
                raise DataError(f"{file.stamp.path}: expected numbers, got text; make numbers of it first.")
        kept = {kept_dtype(file.dtype) for file in self._files}
        self.dtype = np.dtype(dtype or (kept.pop() if len(kept) == 1 else np.float64))
        self.names = None if feature_names is None else tuple(map(str, feature_names))
        if self.names is not None and len(self.names) != self.n_columns:
            raise DataError(
                f"{first.stamp.path}: has {self.n_columns} columns, but feature_names has {len(self.names)}."
            )
        step = split.step(sum(file.shape[0] for file in self._files), self.n_columns * self.dtype.itemsize)
        self._parts = [
            (k, start, min(start + step, file.shape[0]))
            for k, file in enumerate(self._files)
            for start in range(0, file.shape[0], step)
        ]
        self.sizes = tuple(last - start for _, start, last in self._parts)
        self.spare_bytes = split.spare(sum(self.sizes), step * self.n_columns * self.dtype.itemsize)
        self._starts = np.cumsum([0, *self.sizes])
        self._labels = self._beside(y, "labels")
        self._weights = self._beside(sample_weight, "sample weights")

    def _beside(self, values, what):
        """Return labels or weights as something to read rows from."""
        n_rows = int(self._starts[-1])
        if not isinstance(values, (str, os.PathLike)):
            return in_memory(values, n_rows, what)
        column = NpyColumn(values)
        if column.n_rows != n_rows:
            raise DataError(f"{values}: expected {n_rows} {what}, as many as there are rows, got {column.n_rows}.")
        return column

    def read(self, i):
        """Return part i."""
        file, first, last = self._parts[i]
        X = self._files[file].read(first, last).astype(self.dtype, order="C", copy=False)
        span = self._starts[i : i + 2].tolist()
        return Piece(X, self._labels.read(*span), self._weights.read(*span))

    def where(self, i):
        """Say where part i is."""
        file, first, last = self._parts[i]
        return f"{self._files[file].stamp.path.name}, rows {first} to {last - 1}"


class InMemory(NamedTuple):
    """One value per row, in memory."""

    values: np.ndarray | None

    def read(self, first, last):
        """Return the values of some rows; None if there are none."""
        return None if self.values is None else self.values[first:last]


def in_memory(values, n_rows, what):
    """Return one value per row, or None, as something to read rows from."""
    if values is None:
        return InMemory(None)
    values = np.asarray(values)
    if values.shape != (n_rows,):
        raise DataError(f"Partitions: there are {n_rows} rows, but {what} of the shape {values.shape}.")
    return InMemory(values)


# ---------------------------------------------------------------------- arrays


class ArraySource:
    """Arrays, CSR matrices or data frames that are in memory already; for trying things out, and for tests."""

    notes = ()
    label = "arrays"
    target_name = "y"
    is_in_memory = True
    spare_bytes = 0  # the rows are in memory as they are

    def __init__(self, pieces):
        shapes = [piece.X.shape for piece in pieces]
        self._pieces = pieces
        self.n_columns = shapes[0][1]
        for i, shape in enumerate(shapes):
            if shape[1] != self.n_columns:
                raise DataError(f"partition {i}: expected {self.n_columns} columns, as in partition 0, got {shape[1]}.")
        self.sizes = tuple(shape[0] for shape in shapes)
        first = pieces[0].X
        columns = getattr(first, "columns", None)
        self.names = None if columns is None else tuple(map(str, columns))
        self.dtype = np.result_type(*(kept_dtype(getattr(piece.X, "dtype", np.float64)) for piece in pieces))

    def read(self, i):
        """Return part i."""
        return self._pieces[i]

    def where(self, i):
        """Say where part i is."""
        return f"partition {i}"


# ---------------------------------------------------------------------- LIBSVM text


class _Limited:
    """The bytes of a file up to some place."""

    def __init__(self, file, end):
        self._file, self._end = file, end

    def read(self, size):
        """Return at most so many bytes."""
        return self._file.read(max(0, min(size, self._end - self._file.tell())))


class SvmlightSource:
    """Lines of LIBSVM text, cut where lines end near equal numbers of bytes.

    Columns, and whether they are numbered from 0 or 1, are found by reading the file once.
    """

    is_in_memory = False
    names = None
    target_name = "label"

    def __init__(self, path, n_features, split, dtype):
        self._stamp = Stamp.of(path)
        self.label = self._stamp.path.stem
        self._refuse_compressed()
        self._lines = None
        row_bytes = self._bytes_per_row()
        step = split.step(self._stamp.size // row_bytes + 1, 2 * row_bytes)  # CSR takes up to twice its text
        self._edges = self._cut(step * row_bytes)
        self.spare_bytes = split.spare(self._stamp.size // row_bytes + 1, 2 * step * row_bytes)
        self._scan(n_features, dtype)

    def _refuse_compressed(self):
        with one_sentence(self._stamp.path), open(self._stamp.path, "rb") as file:
            head = file.read(8)
        if not head:
            raise DataError(f"{self._stamp.path}: the file is empty.")
        if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")):
            raise DataError(f"{self._stamp.path}: a compressed file cannot be read from the middle; unpack it first.")

    def _bytes_per_row(self):
        """Return about how many bytes of text a row takes, by the first of them."""
        with one_sentence(self._stamp.path), open(self._stamp.path, "rb") as file:
            head = file.read(1 << 20)
        return max(1, len(head) // max(1, head.count(b"\n")))

    def _cut(self, step):
        """Return where parts begin, and where the last ends."""
        edges = [0]
        with one_sentence(self._stamp.path), open(self._stamp.path, "rb") as file:
            while edges[-1] + step < self._stamp.size:
                file.seek(edges[-1] + step - 1)
                file.readline()
                edges.append(file.tell())
        return edges if edges[-1] == self._stamp.size else [*edges, self._stamp.size]

    def _scan(self, n_features, dtype):
        """Read all parts once: rows and lines of each, the columns, and whether float32 holds all values."""
        sizes, lines, smallest, largest, single = [], [0], 1, 0, True
        for i in range(len(self._edges) - 1):
            result = self._entries(i, lines[-1])
            sizes.append(len(result.labels))
            lines.append(lines[-1] + result.n_lines)
            smallest, largest = min(smallest, result.smallest), max(largest, result.largest)
            single = single and result.single
        self.sizes, self._lines = tuple(sizes), lines
        self._first = min(smallest, 1)
        result = largest + 1 - self._first
        if n_features is not None and result > n_features:
            raise DataError(f"{self._stamp.path}: expected {n_features} columns, got one with the number {largest}.")
        self.n_columns = result if n_features is None else n_features
        self.dtype = np.dtype(dtype or (np.float32 if single and self._stamp.size >= LARGE else np.float64))
        why = "one is 0" if self._first == 0 else "none is 0"
        self.notes = (f"Column numbers were taken to start at {self._first}, because {why}.",)
        if not sum(sizes):
            raise DataError(f"{self._stamp.path}: the file has no rows.")

    def _entries(self, i, lines_before):
        self._stamp.check()
        name = self._stamp.path.name
        with one_sentence(name), open(self._stamp.path, "rb") as file:
            file.seek(self._edges[i])
            result = read_entries(_Limited(file, self._edges[i + 1]), name, lines_before)
        if result.n_bytes < self._edges[i + 1] - self._edges[i]:
            raise DataError(f"{name}: the file ends too early; it is damaged or was not copied whole.")
        return result

    def read(self, i):
        """Return part i."""
        result = self._entries(i, self._lines[i])
        result = result._replace(values=result.values.astype(self.dtype, copy=False))
        return Piece(as_csr(result, self._first, self.n_columns), whole_labels(result.labels))

    def where(self, i):
        """Say where part i is."""
        return f"{self._stamp.path.name}, lines {self._lines[i] + 1} to {self._lines[i + 1]}"
