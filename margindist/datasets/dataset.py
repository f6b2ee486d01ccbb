"""A data set with its story: where it came from, what was guessed, and a fingerprint of its content."""

import contextlib
import hashlib
import lzma
import zlib
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

__all__ = ["DataError", "Dataset", "content_checksum", "one_sentence"]

_BLOCK = 1 << 18  # numbers copied at a time


class DataError(ValueError):
    """Data that cannot be used.

    Parameters
    ----------
    sentence : str
        Why, and what to do.
    """

    def __init__(self, sentence):
        super().__init__(sentence)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set for classification; made by :func:`load` and :func:`read_file`.

    Parameters
    ----------
    name : str
        Name in the catalogue, or the file's name without its endings.
    X : ndarray, csr_matrix or DataFrame of shape (n_samples, n_features)
        Features: float64 arrays where all are numbers, a DataFrame with float64 and categorical columns otherwise.
        Missing values are NaN. :func:`encoder` makes numbers of it.
    y : ndarray of shape (n_samples,) or None
        Labels: integers, floats or strings, as in the source. None only for files read with ``target=False``.
    feature_names : tuple of str
        Names of the columns of X; empty for sparse data without names.
    target_name : str
        Name of the target column.
    splits : tuple of (train, test) pairs of ndarrays, or None
        Published realisations: row numbers from 0.
    checksum : str
        SHA-256 of the content, see :func:`content_checksum`.
    source : str
        Where the data came from.
    notes : tuple of str
        Sentences: what was guessed, dropped and derived.
    """

    name: str
    X: object = field(repr=False)
    y: np.ndarray | None = field(repr=False)
    feature_names: tuple[str, ...] = field(default=(), repr=False)
    target_name: str = "y"
    splits: tuple | None = field(default=None, repr=False)
    checksum: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.checksum:
            object.__setattr__(self, "checksum", content_checksum(self.X, self.y, self.splits))


def content_checksum(X, y, splits=None):
    """Return the SHA-256 of a data set's content, whatever the file and the number types it was stored in.

    Hashed are the kind and shape of X; its values as little-endian float64 with one NaN and one zero (dense: by
    rows; CSR: sorted, zeros left out, row pointers and column numbers as int64; DataFrame: by columns, with their
    names, anything but numbers as text); the labels as text; the row numbers of the splits as int64.

    Parameters
    ----------
    X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,) or None
        Labels.
    splits : sequence of (train, test) pairs, or None
        Published realisations.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(2), [0, 1]
    >>> content_checksum(X, y) == content_checksum(X.astype(np.int8), np.array(y, dtype=np.uint8))
    True
    """
    digest = hashlib.sha256()
    if sp.issparse(X):
        _update_sparse(digest, X)
    elif hasattr(X, "columns"):
        digest.update(f"table {X.shape[0]} {X.shape[1]}\n".encode())
        for name in X.columns:
            digest.update(f"{name}\n".encode())
            _update_column(digest, X[name])
    else:
        X = np.asarray(X)
        digest.update(f"dense {X.shape[0]} {X.shape[1]}\n".encode())
        step = max(1, _BLOCK // max(1, X.shape[1]))
        for first in range(0, X.shape[0], step):
            _update(digest, X[first : first + step].ravel(), "<f8")
    if y is not None:
        digest.update(b"y\n" + "\n".join(map(str, np.asarray(y).tolist())).encode())
    for train, test in splits or ():
        digest.update(b"split\n")
        _update(digest, train, "<i8")
        _update(digest, test, "<i8")
    return digest.hexdigest()


def _update(digest, values, dtype):
    """Add a vector as bytes, block by block; adding 0.0 makes -0.0 the one zero, and every NaN becomes the same one."""
    values = np.asarray(values)
    for first in range(0, len(values), _BLOCK):
        block = np.array(values[first : first + _BLOCK], dtype=dtype)
        if dtype == "<f8":
            block += 0.0
            block[np.isnan(block)] = np.nan
        digest.update(block.data)


def _update_sparse(digest, X):
    """Add rows with sorted columns, stored zeros left out; nothing but a block is copied where columns are sorted."""
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    zeros = np.flatnonzero(rows.data == 0)
    digest.update(f"csr {rows.shape[0]} {rows.shape[1]}\n".encode())
    _update(digest, rows.indptr - np.searchsorted(zeros, rows.indptr), "<i8")
    for part, dtype in ((rows.indices, "<i8"), (rows.data, "<f8")):
        for first in range(0, len(part), _BLOCK):
            block = slice(first, first + _BLOCK)
            _update(digest, part[block][rows.data[block] != 0], dtype)


def _update_column(digest, column):
    if column.dtype.kind in "iufb":
        _update(digest, column.to_numpy(), "<f8")
    else:
        missing = column.isna().to_numpy()
        if str(column.dtype) == "category":  # each category becomes text once; the last is for what is missing
            values = np.array([*map(str, column.cat.categories.tolist()), ""], dtype=object)[
                column.cat.codes.to_numpy()
            ]
        else:
            values = np.where(missing, "", column.astype(object).map(str).to_numpy())
        digest.update(missing.tobytes() + "\n".join(values.tolist()).encode())


@contextlib.contextmanager
def one_sentence(name):
    """Turn what the readers of the standard library, NumPy, SciPy and Arrow raise on damaged files into a DataError."""
    try:
        yield
    except DataError:
        raise
    except PermissionError:
        raise DataError(f"{name}: the file may not be read.") from None
    except EOFError:
        raise DataError(f"{name}: the file ends too early; it is damaged or was not copied whole.") from None
    except (OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: the file is damaged ({_first_line(error)}).") from None
    except Exception as error:  # numpy.load and Arrow raise anything from SyntaxError to MemoryError on hostile bytes
        raise DataError(f"{name}: the file cannot be read ({_first_line(error)}).") from None


def _first_line(error):
    text = str(error).strip().split("\n")[0].strip(" .")
    return text or type(error).__name__
