"""NPZ files: nothing pickled is loaded, and no more is unpacked than is allowed."""

import zipfile

import numpy as np
import scipy.sparse as sp

from margindist.datasets.dataset import DataError, Dataset, check_labels, one_sentence, refuse_beyond

_MOST_COLUMNS = np.iinfo(np.int32).max
_CSR = ("data", "indices", "indptr", "shape")
_NUMBERS = "iufb"


def read_npz(path, label, target, most):
    """Read an NPZ file with ``X`` or ``data, indices, indptr, shape``, and ``y``, of at most so many bytes."""
    key = "y" if target is None else target
    with one_sentence(path.name):
        with zipfile.ZipFile(path) as archive:
            refuse_beyond(most, sum(member.file_size for member in archive.infolist()), path.name)
        with np.load(path, allow_pickle=False) as stored:
            return _dataset(_Stored(stored, path.name), path, label, key)


def _dataset(stored, path, label, key):
    if "X" not in stored.keys and not all(part in stored.keys for part in _CSR):
        raise DataError(
            f"{path.name}: expected the arrays X, or data, indices, indptr and shape, and y; got {stored.listed()}."
        )
    if key is not False and key not in stored.keys:
        raise DataError(f"{path.name}: there is no array {key!r}; got {stored.listed()}.")
    X = _dense(stored) if "X" in stored.keys else _sparse(stored)
    if np.isinf(X.data if sp.issparse(X) else X).any():
        raise DataError(f"{path.name}: X has infinite values.")
    y = None if key is False else _labels(stored, key, X.shape[0])
    splits = _splits(stored, X.shape[0]) if {"train", "test"} <= stored.keys else None
    names = _feature_names(stored, X.shape[1]) if "feature_names" in stored.keys else ()
    if not names and not sp.issparse(X):
        names = tuple(f"x{k}" for k in range(X.shape[1]))
    return Dataset(label, X, y, names, key or "", splits, str(path), ())


class _Stored:
    """The arrays of an archive, each checked when it is read."""

    def __init__(self, arrays, name):
        self.name, self._arrays = name, arrays
        self.keys = set(arrays.files)

    def listed(self):
        """Return the names of all arrays."""
        return ", ".join(self._arrays.files) or "none"

    def read(self, key, kinds, what, n_dimensions):
        """Return an array of these kinds of numbers or text, ``what`` in words, in this machine's byte order."""
        values = self._arrays[key]
        if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds or values.ndim != n_dimensions:
            result = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else "no array"
            raise DataError(f"{self.name}: expected {key} to be {what}, got {result}.")
        if n_dimensions == 2 and 0 in values.shape:
            raise DataError(f"{self.name}: expected {key} to have rows and columns, got the shape {values.shape}.")
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def indices(self, key, below, n_dimensions=1):
        """Return an array of whole numbers from 0 on as int64."""
        values = self.read(key, "iu", "whole numbers", n_dimensions)
        if values.size and not 0 <= values.min() <= values.max() < below:
            result = f"{values.min()} to {values.max()}"
            raise DataError(f"{self.name}: expected {key} to be from 0 to {below - 1}, got {result}.")
        return values.astype(np.int64)

    def texts(self, key):
        """Return an array of text; what no text file could hold is refused."""
        values = self.read(key, "U", "text", 1)
        "".join(values.tolist()).encode()
        return values


def _dense(stored):
    X = stored.read("X", _NUMBERS, "a table of numbers", 2)
    with np.errstate(over="ignore", invalid="ignore"):  # long doubles
        return X.astype(np.float64, order="C")


def _sparse(stored):
    n_rows, n_columns = stored.indices("shape", _MOST_COLUMNS + 1).tolist()
    data = stored.read("data", _NUMBERS, "numbers", 1)
    indices = stored.indices("indices", n_columns)
    ends = stored.indices("indptr", len(data) + 1)
    if len(data) < np.iinfo(np.int32).max:
        indices, ends = indices.astype(np.int32), ends.astype(np.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        X = sp.csr_matrix((data.astype(np.float64), indices, ends), shape=(n_rows, n_columns))
    X.check_format(full_check=True)
    X.sum_duplicates()
    return X


def _labels(stored, key, n_rows):
    y = stored.read(key, _NUMBERS + "U", "labels", 1)
    if len(y) != n_rows:
        raise DataError(f"{stored.name}: expected {n_rows} labels in {key!r}, got {y.dtype} of shape {y.shape}.")
    if y.dtype.kind == "U":
        y = stored.texts(key)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            exact = y.astype(np.float64 if y.dtype.kind == "f" else np.int64)
        if not np.array_equal(exact, y) or (y.dtype.kind == "u" and exact.min() < 0):
            raise DataError(f"{stored.name}: the labels in {key!r} ({y.dtype}) are too large, too long or missing.")
        y = exact
    return check_labels(y, stored.name, f"the labels in {key!r}")


def _splits(stored, n_rows):
    train, test = (stored.indices(key, n_rows, n_dimensions=2) for key in ("train", "test"))
    if len(train) != len(test):
        raise DataError(f"{stored.name}: expected as many rows in train as in test, got {len(train)} and {len(test)}.")
    return tuple(zip(train, test))


def _feature_names(stored, n_columns):
    names = tuple(stored.texts("feature_names").tolist())
    if len(names) != n_columns or len(set(names)) < n_columns:
        raise DataError(f"{stored.name}: expected {n_columns} different names in feature_names, got {len(names)}.")
    return names
