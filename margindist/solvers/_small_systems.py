"""Dense systems solved within compiled code, where a call of LAPACK from Python would cost more than the system."""

import numpy as np

from margindist.compilation import njit


@njit(cache=True, nogil=True)
def factor_of_part(matrix, which, ridge):
    """Return the lower Cholesky factor of the rows and columns ``which``, with a ridge (one entry for each) added."""
    n = len(which)
    part = np.empty((n, n))
    for i in range(n):
        row = matrix[which[i]]
        for j in range(n):
            part[i, j] = row[which[j]]
        part[i, i] += ridge[i]
    return np.linalg.cholesky(part)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def solve_factored(factor, v):
    """Solve with a lower Cholesky factor, in place."""
    for i in range(len(v)):
        row, total = factor[i], v[i]
        for j in range(i):
            total -= row[j] * v[j]
        v[i] = total / row[i]
    for i in range(len(v) - 1, -1, -1):
        row = factor[i]
        v[i] /= row[i]
        for j in range(i):
            v[j] -= row[j] * v[i]
