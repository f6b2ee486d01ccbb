r"""Cholesky factors: of systems that rounding has made indefinite, and of sets of rows that differ little from another.

A Newton step through inner products of rows solves K x = b with :math:`K = G_{AA} + \mathrm{diag}(r_A)`, where A are
the rows that count. From one step to the next few of them change. Given a factor for a set B, let the rows N join and
the rows R leave; a row whose ridge changes leaves and joins. The solution for the new set is that of

.. math:: \begin{pmatrix} K_B & U \\ U^T & S \end{pmatrix} \begin{pmatrix} x_B \\ t \end{pmatrix} =
    \begin{pmatrix} b_B \\ b_t \end{pmatrix}, \qquad U = (G_{BN}, E_R), \quad
    S = \begin{pmatrix} G_{NN} + \mathrm{diag}(r_N) & 0 \\ 0 & 0 \end{pmatrix},

with :math:`t = (x_N, \nu)` and :math:`b_t = (b_N, 0)`: its last rows say :math:`x_R = 0`, and :math:`\nu` takes up what
the equations of R ask for. It takes :math:`2 n^2 k` operations for k rows that join or leave, instead of
:math:`n^3 / 3`. A column of :math:`K_B^{-1} U` is that of its row alone, so that k counts only rows that were not among
those of the step before.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dgetrf, dgetrs

from margindist.spaces.gram import square_part

_WORTH = 10  # rows of the set for each that joined or left: with fewer, a factor of its own is the cheaper way


def nearest_cholesky(system):
    """Return the Cholesky factor of a positive definite matrix, of a slightly larger one where rounding asks for it.

    Only the lower triangle is looked at. What is added makes shorter steps, which still descend.
    """
    ridge = len(system) * np.finfo(float).eps * system.diagonal().max(initial=0.0)
    for added in (0.0, ridge, 100.0 * ridge):
        system.flat[:: len(system) + 1] += added
        try:
            return cho_factor(system, lower=True, check_finite=False)
        except LinAlgError:
            continue
    raise LinAlgError("the Newton system is not positive definite")


class KeptFactor:
    """Solves with inner products of sets of rows, by the factor for an earlier set if few rows joined or left since."""

    def __init__(self):
        self._rows = None  # those that the factor is for
        self._ridge = None
        self._factor = None
        self._changes = None  # what was different at the last call, as numbers of rows, ~ of those that left,
        self._columns = None  # and the columns of V that came of it

    def solver(self, products, which, ridge):
        """Return what solves with ``products[which, which] + diag(ridge)``, given the right-hand side.

        The numbers of rows, and their products, are those of the calls before; there may be more of them.
        """
        if self._rows is not None:
            at = np.full(len(products), -1)
            at[self._rows] = np.arange(len(self._rows))
            places = at[which]
            stay = places >= 0
            stay[stay] = self._ridge[places[stay]] == ridge[stay]
            left = np.ones(len(self._rows), dtype=bool)
            left[places[stay]] = False
            if _WORTH * (np.count_nonzero(left) + np.count_nonzero(~stay)) <= len(which):
                solve = self._changed(products, which, ridge, places, stay, np.flatnonzero(left))
                if solve is not None:
                    return solve
        system = square_part(products, which)
        system.flat[:: len(which) + 1] += ridge
        self._rows, self._ridge, self._factor = which, ridge, nearest_cholesky(system)
        self._changes, self._columns = which[:0], np.empty((len(which), 0))
        return lambda b: cho_solve(self._factor, b, check_finite=False)

    def _changed(self, products, which, ridge, places, stay, left):
        """Return the same through the factor that there is; None where rounding leaves nothing of what changed."""
        joined, places = which[~stay], places[stay]
        n_joined, n_changed = len(joined), len(joined) + len(left)
        U = np.zeros((len(self._rows), n_changed), order="F")
        U[:, :n_joined] = products[np.ix_(joined, self._rows)].T
        U[left, n_joined + np.arange(len(left))] = 1.0
        V = self._times_inverse(U, np.concatenate([joined, ~self._rows[left]]))
        S = -(U.T @ V)
        S[:n_joined, :n_joined] += products[np.ix_(joined, joined)] + np.diag(ridge[~stay])
        border, pivots, singular = dgetrf(S) if n_changed else (S, None, 0)
        if singular:
            return None

        def solve(b):
            of_rows = np.zeros(len(self._rows))
            of_rows[places] = b[stay]
            x = cho_solve(self._factor, of_rows, check_finite=False)
            t = -(x @ U)
            t[:n_joined] += b[~stay]
            if n_changed:
                t, _ = dgetrs(border, pivots, t)
                x -= V @ t
            out = np.empty(len(which))
            out[stay], out[~stay] = x[places], t[:n_joined]
            return out

        return solve

    def _times_inverse(self, U, changes):
        """Return V, the inverse times U; those of its columns that the last call has seen are there."""
        V = np.empty(U.shape, order="F")
        _, before, now = np.intersect1d(self._changes, changes, assume_unique=True, return_indices=True)
        V[:, now] = self._columns[:, before]
        new = np.ones(len(changes), dtype=bool)
        new[now] = False
        V[:, new] = cho_solve(self._factor, U[:, new], overwrite_b=True, check_finite=False)
        self._changes, self._columns = changes, V
        return V
