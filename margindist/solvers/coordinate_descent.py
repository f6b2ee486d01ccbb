r"""Dual coordinate descent with exact one-variable steps, for objectives that are sums over rows.

With the mean margin t held fixed, :class:`~margindist.objectives.LDM` is separable (its variance is the least
mean square distance from any t), and each dual variable has a closed-form step (Hsieh et al. 2008). Writing
w = Σ a_i y_i x_i throughout, row i with q = ‖x_i‖² and margin z moves to the point where a is the negative slope
of its loss again: ``base = z − q a`` stays, and

    z⁺ = base + q a⁺,    a⁺ = −ψ_i'(z⁺; t).

After each pass t follows the scalar equation t = z̄(t), whose right side costs one inner product of w with the
mean row. Rows whose multiplier sits firmly at a bound are skipped (shrunk) until the rest has settled.
"""

import numpy as np
from numba import njit

from margindist.objectives import coordinate_step
from margindist.solvers._rows import add_rows, n_columns, n_rows, row_add, row_dot, scores, squares
from margindist.solvers._solution import certify


def solve(objective, rows, signs, weights, *, tol=1e-3, max_iter=1000, start=None, rng=None, report=None):
    """Minimise a separable objective; cost a pass is what the stored values of the rows cost.

    Parameters
    ----------
    objective : LDM
    rows : DenseRows or SparseRows
    signs, weights : ndarray of shape (n_rows,)
    tol : float, relative duality gap to reach
    max_iter : int, passes
    start : Solution, whose multipliers to start from
    rng : numpy.random.Generator, for the order of the rows
    report : callable, see :mod:`margindist.solvers._solution`

    Returns
    -------
    Solution
    """
    m, d = n_rows(rows), n_columns(rows)
    rng = np.random.default_rng(0) if rng is None else rng
    total = weights.sum()
    lengths = np.empty(m)
    squares(rows, lengths)
    mean_row = np.zeros(d)
    add_rows(rows, np.arange(m), signs * weights / total, mean_row)
    beta = np.zeros(m)
    a = objective.dual_coef(beta, z := np.zeros(m), weights)
    w = np.zeros(d)
    add_rows(rows, np.arange(m), signs * a, w)
    mean = mean_row @ w
    best, lower, check = None, -np.inf, 4
    bar = np.inf
    active = np.arange(m)
    for n_iter in range(1, max_iter + 1):
        order = rng.permutation(active)
        kept = _sweep(
            objective, rows, signs, weights, total, lengths, mean, order, bar, a, beta, w, stats := np.zeros(2)
        )
        mean = mean_row @ w
        active = order[:kept]
        bar = stats[0]
        if n_iter == check or kept == 0:
            check = n_iter + max(4, n_iter // 2)
            scores(rows, w, z)
            z *= signs
            now = certify(objective, rows, signs, weights, w, z, beta)
            lower = max(lower, now.objective - now.gap * abs(now.objective))
            if best is None or now.objective < best.objective:
                best = now._replace(coef=w.copy(), dual=beta.copy())
            gap = (best.objective - lower) / abs(best.objective)
            0 and print(n_iter, kept, bar, now.objective, now.gap, gap, mean)
            if gap <= tol:
                return best._replace(gap=gap, n_iter=n_iter, status="optimal")
            active = np.arange(m)
            bar = np.inf
    return best._replace(gap=gap, n_iter=n_iter, status="iteration limit")


@njit(cache=True, nogil=True)
def _sweep(objective, rows, signs, weights, total, lengths, mean, order, bar, a, beta, w, stats):
    """Step through the rows in the given order; move the shrunk ones behind and return how many are left."""
    worst, last, k = 0.0, len(order), 0
    while k < last:
        i = order[k]
        z = signs[i] * row_dot(rows, i, w)
        new, multiplier = coordinate_step(objective, z - lengths[i] * a[i], lengths[i], weights[i], total, mean)
        violation = abs(1.0 - z)
        if (
            multiplier == beta[i]
            and (multiplier == 0.0) == (z > 1.0)
            and (multiplier == 0.0 or multiplier == objective.C * weights[i])
        ):
            if violation > bar:
                last -= 1
                order[k], order[last] = order[last], i
                continue
            violation = 0.0
        worst = max(worst, violation)
        change = new - a[i]
        if change != 0.0:
            row_add(rows, i, signs[i] * change, w)
            a[i] = new
            beta[i] = multiplier
        k += 1
    stats[0] = worst
    return last
