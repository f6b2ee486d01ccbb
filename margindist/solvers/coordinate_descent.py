r"""Dual coordinate descent with exact one-variable steps, for sums over rows with many columns.

With the mean margin t held fixed, :class:`~margindist.objectives.LDM` is a sum over rows (its variance is the least
mean square distance from any t), and each dual variable has a closed-form step (Hsieh et al. 2008). Writing
w = Σ a_i y_i x_i throughout, row i with q = ‖x_i‖² and margin z moves to the point where a is the negative slope
of its loss again: ``base = z − q a`` stays, and

    z⁺ = base + q a⁺,    a⁺ = −ψ_i'(z⁺; t).

After each pass t is set to z̄(t), the fixed-point step of the scalar equation t = z̄(t) (a contraction: 0 ≤ dz̄/dt < 1),
which costs one inner product of w with the mean row. Secant steps were tried and lost: z̄ of an unfinished pass is too
noisy for them. Rows whose multiplier sits firmly at a bound are skipped (shrunk) until the next look at the gap.
Coordinate descent is quick to a rough solution and slow to a fine one when C is large: it gives up ("stalled") when
the gap falls so slowly that ``max_iter`` passes would not suffice.
"""

import numpy as np
from numba import njit

from margindist.objectives import compiled_for, coordinate_step
from margindist.solvers._solution import Status, better, certify, conclude, require
from margindist.spaces.rows import add_rows, n_columns, n_rows, row_add, row_dot, scores, squares

_MOST_PASSES = 1000
_FIRST_LOOK = 6  # passes before the first look at the gap; then every half as many again as done so far
_PATIENCE = 60  # passes before giving up is considered


def solve(problem, options, start=None):
    """Minimise; a pass costs what one look at every stored value costs.

    Parameters
    ----------
    problem : Problem
        Any objective that :func:`~margindist.objectives.coordinate_step` knows, on rows.
    options : Options
        One iteration is a pass; the generator draws the order of the rows. Reports come with every look at the gap.
    start : Solution, optional
        Whose multipliers to start from.

    Returns
    -------
    Solution
    """
    objective, rows, signs, weights = problem
    require(objective, "Coordinate descent", "coordinate_step")
    tol = options.tol
    max_iter = options.limit(_MOST_PASSES)
    m, d = n_rows(rows), n_columns(rows)
    rng = options.generator()
    sweep = compiled_for(objective, _sweep)
    everything = np.arange(m)
    total = weights.sum()
    squares(rows, lengths := np.empty(m))
    if objective.hard and not lengths.all():  # a row of zeros has margin 0 whatever the weights: its multiplier says so
        return certify(problem, np.zeros(d), np.zeros(m), (lengths == 0.0).astype(float))
    mean_row = add_rows(rows, everything, signs * weights / total, np.zeros(d))
    upper = objective.upper(weights)
    beta = np.zeros(m) if start is None else np.minimum(start.dual, upper)
    a = objective.dual_coef(beta, np.zeros(m), weights)
    w = add_rows(rows, everything, signs * a, np.zeros(d))
    mean = mean_row @ w
    best = None
    next_look = _FIRST_LOOK
    active = everything
    worst = np.inf  # violation in the last pass
    for n_iter in range(1, max_iter + 1):
        order = rng.permutation(active)
        # Rows at a bound may lag behind their margins by what matters little beside the worst violation.
        lag = 0.0 if np.isinf(worst) else 0.1 * worst * objective.dual_rate(total)
        kept, worst = sweep(objective, rows, signs, weights, upper, total, lengths, mean, order, worst, lag, a, beta, w)
        active = order[:kept]
        if len(order) == m:
            mean = mean_row @ w
        elif objective.coupled and abs(mean_row @ w - mean) > 0.1 * worst:
            active = everything  # shrunk rows do not see the mean move: it moves only with all of them
        if n_iter < next_look and n_iter < max_iter and kept > 0:
            continue
        scores(rows, w, z := np.empty(m))
        z *= signs
        now = certify(problem, w.copy(), z, beta.copy())
        if now.status is Status.INFEASIBLE:
            return now._replace(n_iter=n_iter)
        earlier_gap, earlier = 1.0, 0
        if best is not None and np.isfinite(best.gap):
            earlier_gap, earlier = best.gap, best.n_iter
        best = better(best, now)._replace(n_iter=n_iter)
        if options.report is not None and options.report(n_iter, best.coef, best.objective, best.gap):
            return conclude(best, tol, Status.STOPPED)
        if best.gap <= tol:
            break
        if n_iter >= _PATIENCE and passes_left(earlier_gap, best.gap, n_iter - earlier, tol) > max_iter - n_iter:
            return conclude(best, tol, Status.STALLED)
        next_look = n_iter + max(_FIRST_LOOK, n_iter // 2)
        active = everything
    return conclude(best, tol, Status.ITERATION_LIMIT)


def passes_left(before, now, passes, goal):
    """Extrapolate the fall of a positive number from what it was some passes ago to what it is now and to the goal."""
    if not np.isfinite(now):
        return np.inf
    rate = np.log(max(before / now, 1.0 + 1e-12)) / passes
    return np.log(now / goal) / rate


@njit(cache=True, nogil=True)
def _sweep(objective, rows, signs, weights, upper, total, lengths, mean, order, bar, lag, a, beta, w):
    """Step through the rows in the given order; move the shrunk ones behind.

    Rows at a bound whose margin is off 1 by more than ``bar``, the last pass's worst violation, are shrunk. The dual
    variable of a row at a bound follows its margin only when it is behind by more than ``lag`` (for weight one): most
    rows are of this kind, and following at once would double the cost of a pass. Returns how many rows are left, and
    the worst violation.
    """
    worst = 0.0
    last = len(order)
    k = 0
    while k < last:
        i = order[k]
        z = signs[i] * row_dot(rows, i, w)
        new, multiplier = coordinate_step(objective, z - lengths[i] * a[i], lengths[i], weights[i], total, mean)
        settled = multiplier == beta[i] and multiplier == (0.0 if z >= 1.0 else upper[i])
        allowed = lag * weights[i] if settled else 0.0
        if abs(new - a[i]) > allowed:
            row_add(rows, i, signs[i] * (new - a[i]), w)
            a[i] = new
            beta[i] = multiplier
        if not settled:
            worst = max(worst, abs(1.0 - z))
        elif abs(1.0 - z) > bar:
            last -= 1
            order[k], order[last] = order[last], i
            continue
        k += 1
    return last, worst
