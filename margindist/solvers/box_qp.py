"""Steps for quadratic problems in a box, in compiled code: through single variables, and on a face.

    min_{0 ≤ β ≤ U}  ½ β'Aβ − Σ β_i + terms linear in β,     z = slope + 1

All of them keep ``z`` up to date and the variables in their box; only exchanges may increase the objective. A *face* is
a set of variables of which the others stay where they are.
"""

import numpy as np

from margindist.compilation import assign, njit
from margindist.solvers._small_systems import factor_of_part, solve_factored

__all__ = ["coordinate_pass", "exchange_on_face", "factor_of_face", "newton_on_face"]

_RIDGE = 1e-11  # relative, so that equal rows on a face can be factorised


@njit(cache=True, nogil=True)
def coordinate_pass(H, upper, beta, z):
    """Step exactly in each multiplier in turn; keep the margins ``z`` up to date."""
    for i in range(len(beta)):
        row = H[i]
        if row[i] > 0.0:
            new = min(max(beta[i] - (z[i] - 1.0) / row[i], 0.0), upper[i])
        else:  # an empty row: its margin stays 0
            new = upper[i] if np.isfinite(upper[i]) else beta[i]
        change = new - beta[i]
        if change != 0.0:
            beta[i] = new
            for j in range(len(z)):
                z[j] += change * row[j]


@njit(cache=True, nogil=True)
def factor_of_face(A, face):
    """Return the Cholesky factor of the face's part of A, made regular by a small ridge."""
    ridge = np.empty(len(face))
    for i in range(len(face)):
        ridge[i] = _RIDGE * max(A[face[i], face[i]], 1e-300)
    return factor_of_part(A, face, ridge)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def newton_on_face(A, upper, beta, z, face, factor):
    """Step towards the minimum on the face, or to the better of some feasible points there; tell if it was feasible."""
    n = len(face)
    d, change, image = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        d[i] = 1.0 - z[face[i]]
    solve_factored(factor, d)
    length, straight = 1.0, 0.0
    for i in range(n):
        k = face[i]
        straight += (z[k] - 1.0) * d[i]
        if d[i] < 0.0:
            length = min(length, -beta[k] / d[i])
        elif d[i] > 0.0:
            length = min(length, (upper[k] - beta[k]) / d[i])
    inside = length >= 1.0
    if not inside:
        # The minimum is out of the box: the straight way as far as the boundary, or clipped steps of some lengths.
        best = (length - 0.5 * length * length) * straight
        t = 1.0
        for _ in range(4):
            fall = _projected_fall(upper, beta, z, face, factor, d, t, change, image)
            if fall < best:
                best, length = fall, t
            t *= 0.3
    for i in range(n):
        k = face[i]
        target = beta[k] + length * d[i]
        if target <= 0.0 or (target <= 1e-12 * upper[k] and upper[k] < np.inf):
            target = 0.0
        elif target >= (1.0 - 1e-12) * upper[k]:
            target = upper[k]
        step = target - beta[k]
        beta[k] = target
        if step != 0.0:
            _add_row(A, k, step, z)
    return inside


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def exchange_on_face(A, base, upper, beta, z, face, factor):
    """Go to the minimum on the face, box or not, and put what it has outside the box at its bound; z is base + A beta.

    The next face is this one without these, and with what the minimum's slopes draw inwards from a bound (block
    principal pivoting: Portugal, Júdice and Vicente 1994). Return it, and how many were exchanged: none where the
    minimum on the face is that in the box.
    """
    n, m = len(face), len(z)
    d = np.empty(n)
    for i in range(n):
        d[i] = 1.0 - z[face[i]]
    solve_factored(factor, d)
    on_face = np.zeros(m, dtype=np.bool_)
    for i in range(n):
        k = face[i]
        on_face[k] = True
        beta[k] += d[i]
        _add_row(A, k, d[i], z)
    new, n_new, n_exchanged = np.empty(m, dtype=np.int64), 0, 0
    for i in range(m):
        if on_face[i]:
            stays = 0.0 <= beta[i] <= upper[i]
        else:
            stays = z[i] < 1.0 if beta[i] == 0.0 else z[i] > 1.0
        n_exchanged += on_face[i] != stays
        on_face[i] = stays
        if stays:
            new[n_new] = i
            n_new += 1
    n_left = 0
    for i in range(n):
        if not on_face[face[i]]:
            beta[face[i]] = min(max(beta[face[i]], 0.0), upper[face[i]])
            n_left += 1
    if n_left:  # anew: where A is nearly singular, the minimum was so far outside that no digits are left
        assign(z, base)
        for i in range(m):
            if beta[i] != 0.0:
                _add_row(A, i, beta[i], z)
    return new[:n_new].copy(), n_exchanged


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_row(A, k, step, z):
    row = A[k]
    for j in range(len(z)):
        z[j] += step * row[j]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _projected_fall(upper, beta, z, face, factor, d, t, change, image):
    """Return by how much the objective changes when a step is clipped to the box."""
    slope, bend = 0.0, 0.0
    for i in range(len(face)):
        k = face[i]
        change[i] = min(max(beta[k] + t * d[i], 0.0), upper[k]) - beta[k]
        slope += (z[k] - 1.0) * change[i]
        image[i] = 0.0
    for i in range(len(face)):
        row = factor[i]
        for j in range(i + 1):
            image[j] += row[j] * change[i]
    for i in range(len(face)):
        bend += image[i] * image[i]
    return slope + 0.5 * bend
