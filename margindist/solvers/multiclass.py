r"""Multi-class optimal margin distribution machine: rounds of convex problems, solved in blocks.

Problem (Zhang & Zhou 2017, eq. 1), k weight vectors, margins γ_i = w_y·x_i − max_{l≠y} w_l·x_i:

    min  ½ Σ‖w_l‖² + Σ_i c_i (ξ_i² + μ ε_i²),   ξ_i = (1 − θ − γ_i)_+,  ε_i = (γ_i − 1 − θ)_+,  c_i = λs_i/(M(1−θ)²)

ξ_i is convex in w, ε_i is not. Each *round* replaces ε_i by a convex upper side, known from the last round's w:

- frozen:                ε_i = (w_y·x_i − M_i − 1 − θ)_+,          M_i = max_{l≠y} w_l·x_i of the last round, a number;
- concave:               ε_i = (w_y·x_i − w_r·x_i − 1 − θ)_+,      r its runner-up class, which stays a vector.

The second lies above the true ε_i and touches it at the last round's w, so such a round never increases the true
objective; the first has no such guarantee. A concave round that has halved the objective ends there, for its upper side
is then out of date; the last ones are solved to ``tol``. The round of the smallest true objective is kept, also where
the limit of iterations cut it short. The first round has no upper side at all (which makes it the squared-hinge machine
of Crammer and Singer), so that no class is preferred while all scores are zero.

**Dual of a round.** With ζ_il ≥ 0 for l ≠ y, S_i = Σ_l ζ_il and β_i ≥ 0, w_l = Σ_i v_il x_i where

    v_iy = S_i − β_i,    v_il = −ζ_il + β_i [concave and l = r]

    min  ½ Σ‖w_l‖² + Σ_i  S_i²/(4c_i) + β_i²/(4c_iμ) − (1 − θ) S_i + (1 + θ + M_i) β_i          (M_i = 0 if concave)

**Block step** (the paper's Algorithm 2, corrected). All but row i fixed, b_l the scores without its own part,
A = ‖x_i‖², h = 1/(2c), g = h/μ: the largest rivals are lowered to a common level t, ζ_l = (b_l − t)_+/A, where

    β = 0:  D = A + h,             q = 1 − θ − b_y,          if then A S ≤ F;  else
    β > 0:  D = h + A(E − A)/E,    q = 1 − θ − b_y − AF/E,   β = (A S − F)/E,    F = top + 1 + θ − b_y

    D S = q + t,   A S = Σ_l (b_l − t)_+,   E = A + g, top = M_i (frozen)  or  E = 2A + g, top = b_r (concave).

t comes from adding rivals in decreasing order of b_l. In the concave case ζ_r β = 0 (a row is not both short of the
band against its runner-up and beyond it), so r is no candidate when β > 0.

The certificate of a round is the Fenchel-Young sum of its rows, ½‖w − w̃‖² being zero because w is kept as Σ v_i x_i.

**Two ways.** Coordinate descent, below, steps through the rows and leaves out those that do not move until the rest has
settled; blocks are kept sparse. It is the way where there are more columns than rows, or too many for a factor of each
class, and hands over where it is slow. In a new round, a row gets its new runner-up at its next step; until then its
old part stays in w, so that w never leaves the range of blocks that were stepped to. Everywhere else quasi-Newton steps
on all of w at once (:mod:`margindist.solvers.quasi_newton`) take about as many steps whatever λ is; where they get
nowhere, passes have the last word.
"""

from typing import NamedTuple

import numpy as np

from margindist.certificate import relative, worthwhile_scale
from margindist.compilation import njit
from margindist.solvers import quasi_newton
from margindist.solvers._class_blocks import (
    Losses,
    at_zero,
    block_step,
    certify,
    coefficients,
    copy,
    empty_blocks,
    is_done,
    own_part,
    relative_to,
    scores_by_parts,
    store,
)
from margindist.solvers._solution import Solution, Status, gap_to_reach
from margindist.spaces.rows import add_entries, class_scores, n_columns, n_rows, row_add_outer, row_scores, squares


class Settings(NamedTuple):
    """How passes and rounds are made, and when they end."""

    room: int = 4  # classes a block has room for at first
    rough: float = 0.05  # gap of the first round: its upper side is not the one that counts
    inexact: float = 0.3  # of the decrease by the last round: how exact the next one has to be
    cycle: int = 8  # passes over the rows that still move between two looks at the gap
    quiet: float = 0.1  # rows that move less than this share of the largest move rest until then
    patience: int = 200  # passes of a round before it is asked whether the limit is in reach
    beyond: float = 3.0  # times the passes that are left: what takes more is out of reach
    last_passes: int = 300  # where quasi-Newton steps got nowhere
    moderate: int = 6000  # columns times classes up to which quasi-Newton steps go first whatever the number of rows
    largest_scores: int = 2 * 10**7  # rows times classes whose scores are held


SETTINGS = Settings()


def solve(problem, options, start=None):
    """Find the least true objective, or a point that no convex problem which touches it there improves by much.

    Parameters
    ----------
    problem : Problem
        An objective with a ``band``, on rows, with the codes 0 .. k - 1 of classes that each have a row.
    options : Options
        One iteration is a pass over the rows or a quasi-Newton step. The gap to reach in a round, and the decrease
        between rounds to stop at, are relative to the objective and, where weights of zero are nearly as good, to what
        is gained over those. The generator draws the order of the rows. Choices are "outer", the upper side ("concave",
        "frozen", or "paper": frozen, at 0 first, and the last round counts), and "method" ("auto", "newton" or
        "coordinate-descent").
    start : Solution, optional
        Of a similar problem with as many rows and classes.

    Returns
    -------
    Solution
        Where the first way of "auto" gets nowhere, the other one is tried, and the lower objective is the answer, or
        the proven one of two that agree to ``tol``.
        With one row of ``coef`` per class, the true objective, and a gap that certifies the best round's convex
        problem, not the whole. ``extra`` has the true objective after each round, "history", and with which method it
        "began". Where the best weights cost more than none, shorter ones are returned, and their objective ends the
        history.
    """
    outer, method = options.chosen(outer="concave", method="auto")
    ways = {"newton": quasi_newton.solve, "coordinate-descent": _run_rounds}
    order = [method] if method != "auto" else _order(problem, outer)
    best, n_iter = None, 0
    for name in order:
        limit = options.limit() - n_iter
        if best is not None and name == "coordinate-descent":
            limit = min(limit, SETTINGS.last_passes)
        asked = options._replace(max_iter=limit, choices={"outer": outer})
        result = ways[name](problem, asked, start)
        if outer != "paper":
            result = _worthwhile(problem, result)
        n_iter += result.n_iter
        best = result if best is None else _better(best, result, options.tol)
        slow = name == "coordinate-descent" and result.status is Status.ITERATION_LIMIT
        if not (result.status is Status.STALLED or slow) or n_iter >= options.limit():
            break
    return best._replace(n_iter=n_iter, extra=best.extra | {"began": order[0]})


def _order(problem, outer):
    """Return the two ways, the one to begin with first, or the only one where scores of all rows cannot be held.

    A frozen round whose weights are more than the rows ends, at a high price, where many rivals tie: there passes, the
    paper's way, get on.
    """
    rows, n_classes = problem.space, int(problem.signs.max()) + 1
    if n_rows(rows) * n_classes > SETTINGS.largest_scores:
        return ["coordinate-descent"]
    weights = n_columns(rows) * n_classes
    wide = n_columns(rows) > n_rows(rows) or not quasi_newton.can_factorise(n_columns(rows), n_classes)
    if (wide and weights > SETTINGS.moderate) or (outer != "concave" and weights > n_rows(rows)):
        return ["coordinate-descent", "newton"]
    return ["newton", "coordinate-descent"]


def _better(first, second, tol):
    """Return the lower of two; what is lower by less than ``tol`` is no better, but only one of them may be proven."""
    allowed = tol * abs(first.objective) if second.gap <= first.gap else 0.0
    return second if second.objective <= first.objective + allowed else first


def _worthwhile(problem, result):
    """Return the solution, a shorter one where weights of zero cost less; nothing costs less than zero."""
    objective, rows, codes, weights = problem
    result = result._replace(gap=min(result.gap, 1.0))
    if result.objective <= objective.value(0.0, np.zeros(len(codes)), weights):
        return result
    U = class_scores(rows, result.coef.T)
    own = U[np.arange(len(codes)), codes]
    U[np.arange(len(codes)), codes] = -np.inf
    margins, square = own - U.max(axis=1), np.vdot(result.coef, result.coef)
    scale = worthwhile_scale(objective, square, margins, weights)
    value = objective.value(scale * scale * square, scale * margins, weights)
    gap = relative(value - (1.0 - result.gap) * result.objective, value)
    extra = result.extra | {"history": np.append(result.extra["history"], value)}
    shorter = result._replace(coef=scale * result.coef, objective=value, gap=min(gap, 1.0), extra=extra)
    return shorter._replace(dual=empty_blocks(len(codes), 1))


def _run_rounds(problem, options, start):
    """Run rounds of coordinate descent; keep the best one."""
    objective, rows, codes, weights = problem
    (outer,) = options.chosen(outer="concave")
    tol, max_iter, concave = options.tol, options.limit(), outer == "concave"
    k = int(codes.max()) + 1
    squares(rows, lengths := np.empty(n_rows(rows)))
    losses = Losses(codes, *objective.band(weights), lengths, k, weights.sum())
    descent = _CoordinateDescent(rows, losses, options.generator(), max_iter)
    W = np.zeros((n_columns(rows), -(-k // 4) * 4))  # compiled code adds four classes at a time
    blocks, upper = _begin(rows, losses, start, W, concave)
    as_printed = outer == "paper"
    if as_printed and upper is None:
        upper = np.full(len(codes), -1, np.int32), np.zeros(len(codes))
    best, history, status = None, [], Status.ITERATION_LIMIT
    inner = max(tol, SETTINGS.rough) if concave else tol
    while True:
        began_at = W.copy()
        # A concave round's upper side touches the true objective at the last weights: no better round ends above it.
        bound = history[-1] if history and concave else np.inf
        blocks, value, true, gap = descent.run(copy(blocks), upper, W, bound, inner)
        if true > bound:  # not even an exact round gets below the last one, or there was no time for one
            lower = (1.0 - gap) * value  # no weights give this round less, and those it began at give it ``bound``
            proven = relative(bound - lower, bound)
            if bound < best.objective:
                best = Solution(began_at[:, :k].T.copy(), blocks, bound, proven)
            else:
                best = best._replace(gap=min(best.gap, proven))
            if descent.n_iter < max_iter:
                status = Status.STALLED if descent.stalled else Status.SETTLED
            break
        decrease = (history[-1] - true) / true if history else np.inf
        history.append(true)
        if as_printed or best is None or true <= best.objective:
            best = Solution(W[:, :k].T.copy(), blocks, true, gap)
        if options.report is not None and options.report(len(history), W[:, :k].T, true, gap):
            status = Status.STOPPED
            break
        if descent.n_iter >= max_iter:
            break
        if descent.stalled:
            status = Status.STALLED
            break
        enough = gap_to_reach(tol, value, at_zero(losses, blocks))
        exact = gap <= enough
        if exact and (abs(decrease) if as_printed else decrease) <= enough:
            status = Status.SETTLED if decrease >= 0.0 else Status.NO_LONGER_IMPROVES
            break
        if concave and np.isfinite(decrease):  # a round need not be more exact than what the next one gains
            inner = max(tol, min(inner, SETTINGS.inexact * decrease))
        upper, changed = _upper_side(rows, losses, blocks, W, concave)
        if changed == 0 and exact:
            status = Status.NOTHING_CHANGED
            break
        if changed == 0:
            inner = tol
    return best._replace(n_iter=descent.n_iter, status=status, extra={"history": np.array(history)})


def _begin(rows, losses, start, W, concave):
    """Return the blocks to start from and their upper side; fill W. The β of another rule is forgotten."""
    if start is None or start.dual is None:
        return empty_blocks(len(losses.codes), min(losses.n_classes - 1, SETTINGS.room)), None
    blocks = copy(start.dual)
    if concave != (blocks.rival[0] >= 0):
        blocks.beta[:] = 0.0
        blocks.rival[:] = -1
    add_entries(rows, *coefficients(losses.codes, blocks), W)
    return blocks, _upper_side(rows, losses, blocks, W, concave)[0]


def _upper_side(rows, losses, blocks, W, concave):
    """Return rivals and ceilings of the round that touches the true loss at W, and how many of them changed."""
    best, top = np.empty(len(losses.codes), np.int32), np.empty(len(losses.codes))
    for first, U in scores_by_parts(rows, losses, W):
        part = np.arange(len(U))
        U[part, losses.codes[first : first + len(U)]] = -np.inf
        best[first : first + len(U)] = U[:, : losses.n_classes].argmax(axis=1)
        top[first : first + len(U)] = U[part, best[first : first + len(U)]]
    if concave:
        return (best, np.zeros(len(best))), np.count_nonzero(best != blocks.rival)
    return (np.full(len(best), -1, np.int32), top), np.count_nonzero(blocks.ceiling != top)


def _certificate(rows, losses, blocks, W):
    """Return the value of this round, the true objective, and the gap of the round relative to its value."""
    parts = [certify(losses, blocks, first, U) for first, U in scores_by_parts(rows, losses, W)]
    return relative_to(W, *np.sum(parts, axis=0))


class _CoordinateDescent:
    """Passes over the rows."""

    def __init__(self, rows, losses, rng, max_iter):
        self.rows, self.losses, self.rng, self.max_iter = rows, losses, rng, max_iter
        self.n_iter, self.stalled = 0, False

    def run(self, blocks, upper, W, bound, tol):
        """Solve the round with this upper side (None: the blocks have theirs), from blocks and W, changing both.

        W is what the blocks combine to. Returns the blocks, the round's value, the true objective and the relative gap.
        """
        rivals, ceilings = (blocks.rival, blocks.ceiling) if upper is None else upper
        blocks.ceiling[:] = ceilings
        rows, losses = self.rows, self.losses
        m = len(losses.codes)
        before = self.n_iter
        nothing = at_zero(losses, blocks)
        used = int((blocks.begin + blocks.capacity).max())  # of the pool that holds all blocks
        visited = 0  # rows, over all passes
        quiet = 0.0  # rows that move less are left out until all are visited again
        looks = []
        while True:
            order = self.rng.permutation(m)
            first = 0.0
            for _ in range(SETTINGS.cycle):
                blocks, used, moved, left = _pass(rows, losses, blocks, rivals, W, order, used, quiet)
                visited += len(order)
                first = first or moved
                quiet = SETTINGS.quiet * moved
                order = self.rng.permutation(order[:left])
                if left == 0 or moved < 0.1 * first:
                    break
            value, true, gap = _certificate(rows, losses, blocks, W)
            passes = -(-visited // m)  # counted by the work of visiting every row, rounded up
            self.n_iter = before + passes
            done = is_done(value, nothing, gap, bound, tol)
            looks.append((passes, gap))
            self.stalled = not done and self._is_slow(looks, tol)
            if done or self.stalled or self.n_iter >= self.max_iter:
                return blocks, value, true, gap

    def _is_slow(self, looks, tol):
        """Tell whether, as the gap fell since the round was half as old, passes would take more than there may be."""
        passes, gap = looks[-1]
        if passes < SETTINGS.patience:
            return False
        earlier, wider = next(look for look in reversed(looks) if 2 * look[0] <= passes or look is looks[0])
        if earlier == passes or gap >= wider:
            return True
        most = SETTINGS.beyond * (self.max_iter - self.n_iter)
        return np.log(gap / tol) * (passes - earlier) > most * np.log(wider / gap)


def _pass(rows, losses, blocks, rivals, W, order, used, quiet):
    """Step through the rows, enlarging the pool when it is full; return also the largest move and who moved."""
    stats, at = np.zeros(2), 0
    while True:
        at, used = _sweep(rows, losses, blocks, rivals, W, order, at, used, quiet, stats)
        if at == len(order):
            return blocks, used, stats[0], int(stats[1])
        more = max(losses.n_classes, len(blocks.zeta) // 2)
        blocks = blocks._replace(
            classes=np.append(blocks.classes, np.zeros(more, np.int32)), zeta=np.append(blocks.zeta, np.zeros(more))
        )


@njit(cache=True, nogil=True)
def _sweep(rows, losses, blocks, upper, W, order, first, used, quiet, stats):
    """Step through the rows from ``order[first]`` on; stop where the pool of blocks (``used`` of it) is full.

    A row's runner-up becomes that of ``upper`` when it is its turn.

    Returns where it stopped and how much of the pool is used. ``stats`` gets the largest movement of a row and how many
    rows at the front of ``order`` moved more than ``quiet``: those to visit again.
    """
    k = W.shape[1]
    codes, low, high, prices, above, lengths, n_classes, _ = losses
    b = np.empty(k)
    v = np.zeros(k)  # the row's old coefficients, then old minus new; zero again after every row
    rivals = np.empty(k, np.int64)
    zeta = np.empty(k)
    touched = np.empty(k, np.int64)
    change = np.empty(k)
    for p in range(first, len(order)):
        i = order[p]
        y = codes[i]
        A = lengths[i]
        row_scores(rows, i, W, b)
        own_part(blocks, i, y, v)
        for l in range(k):  # the scores without the row's own part
            if v[l] != 0.0:
                b[l] -= A * v[l]
        n, S, beta = block_step(
            low, high, prices[i], above[i], y, b[:n_classes], A, upper[i], blocks.ceiling[i], rivals, zeta
        )
        if n > blocks.capacity[i]:
            capacity = min(max(n, 2 * blocks.capacity[i]), n_classes - 1)
            if used + capacity > len(blocks.zeta):
                v[:] = 0.0
                return p, used
            blocks.begin[i] = used
            blocks.capacity[i] = capacity
            used += capacity
        for c in range(n):
            v[rivals[c]] += zeta[c]
        v[y] -= S - beta
        blocks.rival[i] = upper[i]
        if upper[i] >= 0:
            v[upper[i]] -= beta
        moved = 0.0
        n_touched = 0
        for l in range(k):
            if v[l] != 0.0:
                touched[n_touched] = l
                change[n_touched] = -v[l]
                n_touched += 1
                moved = max(moved, abs(v[l]))
                v[l] = 0.0
        moved *= np.sqrt(A)
        if moved > 0.0:
            row_add_outer(rows, i, touched, change, n_touched, W)
        store(blocks, i, n, rivals, zeta, beta)
        stats[0] = max(stats[0], moved)
        if moved > quiet:
            front = int(stats[1])
            order[p], order[front] = order[front], i
            stats[1] += 1.0
    return len(order), used
