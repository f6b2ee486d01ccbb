r"""Dual coordinate descent with exact one-variable steps, for sums over rows with many columns.

With the mean margin t held fixed, :class:`~margindist.objectives.LDM` is a sum over rows (its variance is the least
mean square distance from any t), and each dual variable has a closed-form step (Hsieh et al. 2008). Writing
w = Σ a_i y_i x_i throughout, row i with q = ‖x_i‖² and margin z moves to the point where a is the negative slope
of its loss again: ``base = z − q a`` stays, and

    z⁺ = base + q a⁺,    a⁺ = −ψ_i'(z⁺; t).

After each pass t is set to z̄(t), the fixed-point step of the scalar equation t = z̄(t) (a contraction: 0 ≤ dz̄/dt < 1),
which costs one inner product of w with the mean row. Secant steps were tried and lost: z̄ of an unfinished pass is too
noisy for them. Rows whose multiplier sits firmly at a bound are skipped (shrunk) until the next look at the gap, which
computes all margins: rows that sit there firmly by them stay out. Then the others are copied in random order: to jump
from row to row in memory costs several times what a step costs, and blocks of such neighbours are as good as rows drawn
one by one. Coordinate descent is quick to a rough solution and slow to a fine one when C is large: it gives up
("stalled") when the gap falls so slowly that ``max_iter`` passes would not suffice.
"""

from typing import NamedTuple

import numpy as np

from margindist.certificate import Ledger
from margindist.compilation import njit
from margindist.objectives import compiled_for, coordinate_step
from margindist.solvers._solution import Status, better, conclude, proved, require
from margindist.spaces.rows import (
    add_rows,
    n_columns,
    n_rows,
    row_add,
    row_dot,
    squares,
    stored_bytes,
    take_rows,
)


class Settings(NamedTuple):
    """What the method can be tuned by."""

    most_passes: int = 1000
    look_every: int = 3  # passes between two looks at the gap at least, and a third of those done so far
    patience: int = 60  # passes before giving up is considered, if nobody knows what another method would take
    hesitate: float = 0.13  # if somebody does, fraction of that: before, gaps tell nothing
    first: float = 0.5  # fraction of the forecast of the first look that is believed: the gap falls faster later
    bar: float = 0.3  # fraction of the worst violation by which a row at a bound must be off to be skipped
    settled: float = 0.1  # fraction of the violation after a look at which the rows that are not skipped have settled
    block: int = 16  # neighbours in memory that are visited one after the other
    least_blocks: int = 256  # that are put in random order
    largest_copy: int = 1 << 28  # bytes of rows that are copied


SETTINGS = Settings()


def solve(problem, options, start=None):
    """Minimise; a pass costs what one look at every stored value costs.

    Parameters
    ----------
    problem : Problem
        Any objective that :func:`~margindist.objectives.coordinate_step` knows, on rows.
    options : Options
        One iteration is a pass, which is as many steps as there are rows; the generator draws their order. Reports come
        with every look at the gap. The choice ``rival`` is the number of passes that another method would take: it
        gives up as soon as it would go on for longer than that, by how the gap has fallen.
    start : Solution, optional
        Whose multipliers to start from.

    Returns
    -------
    Solution
    """
    objective, rows, signs, weights = problem
    require(objective, "Coordinate descent", "coordinate_step")
    tol = options.tol
    max_iter = options.limit(SETTINGS.most_passes)
    (rival,) = options.chosen(rival=None)
    patience = SETTINGS.patience if rival is None else SETTINGS.hesitate * rival
    m, d = n_rows(rows), n_columns(rows)
    rng = options.generator()
    sweep = compiled_for(objective, _sweep)
    everything = np.arange(m)
    total = weights.sum()
    squares(rows, lengths := np.empty(m))
    if objective.hard and not lengths.all():  # a row of zeros has margin 0 whatever the weights: its multiplier says so
        beta = (lengths == 0.0).astype(float)
        return proved(Ledger(problem, lengths).bounds(np.zeros(d), beta), beta)
    mean_row = add_rows(rows, everything, signs * weights / total, np.zeros(d))
    upper = objective.upper(weights)
    beta = np.zeros(m) if start is None else np.minimum(start.dual, upper)
    a = objective.dual_coef(beta, np.zeros(m), weights)
    w = add_rows(rows, everything, signs * a, np.zeros(d))
    mean = mean_row @ w
    best = None
    ledger = Ledger(problem, lengths)
    worst, bars = np.inf, (np.inf, np.inf)  # violation in the last sweep, and what follows for the next
    working = _Working(everything, rows, signs, weights, upper, lengths, a, beta)
    # Rows that sit at bounds can be left out, if nothing else moves them.
    leaves_out = hasattr(objective, "upper_bound") and not objective.coupled
    steps, looked, next_look = 0, 0, min(SETTINGS.look_every, max_iter) * m
    while True:
        active, settled = np.arange(len(working.which)), None
        while settled is None or (steps < next_look and len(active) and worst > settled):
            # Rows at a bound may lag behind their margins by what matters little beside the worst violation.
            lag = 0.0 if np.isinf(worst) else 0.1 * worst * objective.dual_rate(total)
            steps += len(active)
            blocks, size = _in_blocks(len(active), rng)
            beyond, short = sweep(objective, working, total, mean, active, blocks, size, bars, lag, w)
            worst = max(beyond, short)
            bars = SETTINGS.bar * (beyond or np.inf), SETTINGS.bar * (short or np.inf)
            whole = len(active) == m
            active = active[active >= 0]
            if settled is None:
                settled = SETTINGS.settled * worst
            if whole:
                mean = mean_row @ w
            elif objective.coupled and abs(mean_row @ w - mean) > 0.1 * worst:
                active = np.arange(m)  # shrunk rows do not see the mean move: it moves only with all of them
        a[working.which], beta[working.which] = working.a, working.beta
        n_iter = -(-steps // m)
        now = proved(ledger.bounds(w.copy(), beta), beta.copy())
        if now.status is Status.INFEASIBLE:
            return now._replace(n_iter=n_iter)
        earlier_gap, earlier = 1.0, 0
        if best is not None and np.isfinite(best.gap):
            earlier_gap, earlier = best.gap, looked
        best = better(best, now)._replace(n_iter=n_iter)
        if options.report is not None and options.report(n_iter, best.coef, best.objective, best.gap):
            return conclude(best, tol, Status.STOPPED)
        if best.gap <= tol or n_iter >= max_iter:
            return conclude(best, tol, Status.ITERATION_LIMIT)
        if n_iter >= patience and not (looked == 0 and objective.coupled):  # the first passes find the mean margin
            forecast = passes_left(earlier_gap, best.gap, (steps - earlier) / m, tol)
            if rival is not None and start is None:  # a gap may pause, and fall again
                forecast = min(forecast, passes_left(1.0, best.gap, steps / m, tol))
            forecast *= SETTINGS.first if looked == 0 else 1.0
            if forecast > (max_iter - n_iter if rival is None else rival):
                return conclude(best, tol, Status.STALLED)
        looked, next_look = steps, min(steps + max(SETTINGS.look_every * m, steps // SETTINGS.look_every), max_iter * m)
        if leaves_out:
            working = _copied(problem, upper, lengths, a, beta, _unsettled(ledger.z, beta, upper, bars), rng)
        elif working.rows is rows:
            working = _copied(problem, upper, lengths, a, beta, everything, rng)


class _Working(NamedTuple):
    """Rows that are worked on; the arrays have one entry per row of them."""

    which: np.ndarray
    rows: tuple
    signs: np.ndarray
    weights: np.ndarray
    upper: np.ndarray
    lengths: np.ndarray
    a: np.ndarray
    beta: np.ndarray


def _copied(problem, upper, lengths, a, beta, which, rng):
    """Return a copy of some rows in random order with their variables; where that is too large, all rows in theirs."""
    _, rows, signs, weights = problem
    if stored_bytes(rows) * (len(which) / len(signs)) > SETTINGS.largest_copy:
        return _Working(np.arange(len(signs)), rows, signs, weights, upper, lengths, a, beta)
    which = rng.permutation(which)
    of_rows = (entry[which] for entry in (signs, weights, upper, lengths, a, beta))
    return _Working(which, take_rows(rows, which), *of_rows)


def _unsettled(z, beta, upper, bars):
    """Return the rows that are not firmly at a bound, by their margins; all rows if there are none."""
    settled = ((beta == 0.0) & (z - 1.0 > bars[0])) | ((beta == upper) & (1.0 - z > bars[1]))
    return np.flatnonzero(~settled | settled.all())


def _in_blocks(n, rng):
    """Return blocks of neighbours in random order, and their size."""
    size = min(SETTINGS.block, max(1, n // SETTINGS.least_blocks))
    return rng.permutation(-(-n // size)), size


def passes_left(before, now, passes, goal):
    """Extrapolate the fall of a positive number from what it was some passes ago to what it is now and to the goal."""
    if not np.isfinite(now):
        return np.inf
    rate = np.log(max(before / now, 1.0 + 1e-12)) / passes
    return np.log(now / goal) / rate


@njit(cache=True, nogil=True)
def _sweep(objective, working, total, mean, active, blocks, size, bars, lag, w):
    """Step through the active rows, block after block; replace those that are shrunk by -1 in ``active``.

    Rows at a bound whose margin is off 1 by more than the bar for their side are shrunk. The dual variable of a row at
    a bound follows its margin only when it is behind by more than ``lag`` (for weight one): most rows are of this kind,
    and following at once would double the cost of a pass. Returns the worst violations, of margins beyond 1 and short
    of it.
    """
    rows, signs, a, beta = working.rows, working.signs, working.a, working.beta
    beyond, short = 0.0, 0.0
    for block in blocks:
        for k in range(block * size, min((block + 1) * size, len(active))):
            i = active[k]
            z, length, weight = signs[i] * row_dot(rows, i, w), working.lengths[i], working.weights[i]
            new, multiplier = coordinate_step(objective, z - length * a[i], length, weight, total, mean)
            settled = multiplier == beta[i] and multiplier == (0.0 if z >= 1.0 else working.upper[i])
            allowed = lag * weight if settled else 0.0
            if abs(new - a[i]) > allowed:
                row_add(rows, i, signs[i] * (new - a[i]), w)
                a[i] = new
                beta[i] = multiplier
            if not settled:
                beyond = max(beyond, z - 1.0)
                short = max(short, 1.0 - z)
            elif z - 1.0 > bars[0] or 1.0 - z > bars[1]:
                active[k] = -1
    return beyond, short
