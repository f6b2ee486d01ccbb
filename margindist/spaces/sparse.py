"""Sparse matrices as they come in: looked at once, before compiled code follows their indices wherever they point."""

import numpy as np

from margindist.compilation import njit

__all__ = ["canonical", "checked_csr", "is_canonical"]


def checked_csr(X, name):
    """Return a sparse matrix as CSR; raise an error if indices point out of the matrix.

    SciPy trusts index arrays that were changed after a matrix was made, and so do its conversions: with wrong ones they
    read and write memory that is not theirs. What a matrix remembers of the order of its indices is forgotten, for they
    may have been changed since.

    Parameters
    ----------
    X : sparse matrix or array
    name : str
        What an error begins with.

    Returns
    -------
    sparse matrix or array
        CSR that shares the memory of X if that is CSR. An array of other than two dimensions is returned as it is.
    """
    if X.ndim != 2:
        return X
    fault = _fault(X)
    if fault is None and X.format != "csr":
        X = X.tocsr()
        fault = _fault(X)
    if fault is not None:
        raise ValueError(
            f"{name}: expected a sparse matrix whose indices fit its shape {X.shape}, got {fault}; make it anew from "
            f"rows, columns and values by scipy.sparse.coo_array."
        )
    return type(X)((X.data, X.indices, X.indptr), shape=X.shape, copy=False)


def canonical(X):
    """Return CSR with sorted indices and each entry once; a copy if X is not that."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def is_canonical(X):
    """Tell whether the arrays of CSR fit its shape, with sorted indices and each entry once; of few rows, quickly."""
    if X.data.ndim != 1 or any(part.ndim != 1 or part.dtype.kind != "i" for part in (X.indices, X.indptr)):
        return False
    return _is_canonical(X.indptr, X.indices, len(X.data), *X.shape)


@njit(cache=True, nogil=True)
def _is_canonical(indptr, indices, n_values, n_rows, n_columns):
    if len(indptr) != n_rows + 1 or indptr[0] != 0 or indptr[n_rows] != n_values or len(indices) != n_values:
        return False
    for i in range(n_rows):
        begin, end = indptr[i], indptr[i + 1]
        if not 0 <= begin <= end <= n_values:
            return False
        last = -1
        for place in range(begin, end):
            if not last < indices[place] < n_columns:
                return False
            last = indices[place]
    return True


def _fault(X):
    """Return what is wrong with the arrays of a sparse matrix, or None."""
    if X.format == "coo":
        return _fault_of_coordinates(X)
    if X.format in ("csr", "csc", "bsr"):
        return _fault_of_pointers(X)
    if X.format == "dia" and X.data.shape[:1] != X.offsets.shape:
        return f"{len(X.offsets)} offsets for {len(X.data)} diagonals"
    return None


def _fault_of_coordinates(X):
    for which, indices, size in zip(("rows", "columns"), X.coords, X.shape):
        if indices.shape != X.data.shape or X.data.ndim != 1:
            return f"{indices.shape} indices of {which} for {X.data.shape} values"
        if fault := _out_of_range(f"indices of {which}", indices, size):
            return fault
    return None


def _fault_of_pointers(X):
    blocks = X.data.shape[1:] if X.format == "bsr" else (1, 1)
    n_rows, n_columns = (size // block for size, block in zip(X.shape, blocks))
    major, minor = (n_columns, n_rows) if X.format == "csc" else (n_rows, n_columns)
    if X.indptr.dtype.kind != "i" or X.indptr.shape != (major + 1,):
        return f"an indptr of shape {X.indptr.shape} and {X.indptr.dtype} instead of {major + 1} integers"
    if X.data.ndim != (3 if X.format == "bsr" else 1) or X.indices.shape != X.data.shape[:1]:
        return f"{X.indices.shape} indices for {X.data.shape} values"
    if X.indptr[0] != 0 or X.indptr[-1] > len(X.indices):
        return f"an indptr from {X.indptr[0]} to {X.indptr[-1]} for {len(X.indices)} values"
    if (np.diff(X.indptr) < 0).any():
        return "an indptr that falls"
    return _out_of_range("indices", X.indices[: X.indptr[-1]], minor)


def _out_of_range(what, indices, size):
    if indices.dtype.kind != "i":
        return f"{what} that are {indices.dtype}"
    if not indices.size:
        return None
    least, most = indices.min(), indices.max()
    return f"{what} from {least} to {most}" if least < 0 or most >= size else None
