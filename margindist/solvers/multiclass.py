r"""Multi-class optimal margin distribution machine: rounds of convex problems, solved in blocks.

Problem (Zhang & Zhou 2017, eq. 1), k weight vectors, margins γ_i = w_y·x_i − max_{l≠y} w_l·x_i:

    min  ½ Σ‖w_l‖² + Σ_i c_i (ξ_i² + μ ε_i²),   ξ_i = (1 − θ − γ_i)_+,  ε_i = (γ_i − 1 − θ)_+,  c_i = λs_i/(M(1−θ)²)

ξ_i is convex in w, ε_i is not. Each *round* replaces ε_i by a convex upper side, known from the last round's w:

- frozen:                ε_i = (w_y·x_i − M_i − 1 − θ)_+,          M_i = max_{l≠y} w_l·x_i of the last round, a number;
- concave:               ε_i = (w_y·x_i − w_r·x_i − 1 − θ)_+,      r its runner-up class, which stays a vector.

The second lies above the true ε_i and touches it at the last round's w, so such a round never increases the true
objective; the first has no such guarantee. A concave round that has halved the objective ends there, for its upper side
is then out of date; the last ones are solved to ``tol``. Between two rounds of Newton steps, the way of the last one is
gone on as long as the true objective falls: where classes hardly overlap, many rows are about to change their
runners-up, and rounds alone would follow them a little at a time. The round of the smallest true objective is kept,
also where the limit of iterations cut it short. The first round has no upper side at all (which makes it the
squared-hinge machine of Crammer and Singer), so that no class is preferred while all scores are zero.

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

**A way around rounds.** Where the Hessian of a round would be too large to form, quasi-Newton steps
(:mod:`margindist.solvers.quasi_newton`) whose upper side follows every step come first: they end with the certificate
of the round that touches at their last weights. Rounds go on from there where they stall, or ``tol`` asks for more.

**Two ways through a round.** Newton steps (:mod:`margindist.solvers.proximal_newton`) on all of w at once are the way
wherever their arrays fit, for they take about as many steps whatever λ is. Coordinate descent steps through the rows
and leaves out those that do not move until the rest has settled; blocks are kept sparse. It begins where there are very
many columns or classes, or more columns than rows, and hands over where it is slow; where Newton steps get nowhere, it
has the last word. In a new round, a row gets its new runner-up at its next step; until then its old part stays in w, so
that w never leaves the range of blocks that were stepped to.
"""

from typing import NamedTuple

import numpy as np

from margindist.certificate import relative
from margindist.compilation import njit
from margindist.solvers import quasi_newton
from margindist.solvers._class_blocks import (
    Blocks,
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
from margindist.solvers._solution import Solution, Status, gap_to_reach, worthwhile_scale
from margindist.solvers.proximal_newton import (
    ProximalNewton,
    is_best,
    is_favourable,
    is_possible,
    row_counts,
    takes_products,
)
from margindist.spaces.rows import add_entries, class_scores, n_columns, n_rows, row_add_outer, row_scores, squares

_MOST_ITERATIONS = 1000
_DESCENT = 1e-3  # gap from which on Newton steps take fewer products than quasi-Newton steps
_ROOM = 4  # classes a block has room for at first
_ROUGH = 0.05  # gap of the first round: its upper side is not the one that counts
_INEXACT = 0.3  # of the decrease by the last round: how exact the next one has to be
_SHORTEST = 1e-6  # part of the way of a round that is tried
_FIRST_STEPS = 20  # Newton steps of the first round at most, unless it may be the one that is kept
_CYCLE = 8  # passes over the rows that still move between two looks at the gap
_QUIET = 0.1  # rows that move less than this share of the largest move rest until then
_PATIENCE = 30  # passes of coordinate descent in a round before Newton steps may take over
_MORE_PATIENCE = 200  # the same of fewer rows than columns: a Newton step costs many passes, and passes usually suffice
_ALONE_PATIENCE = 200  # the same where nothing may take over: before it is asked whether the limit is in reach
_BEYOND = 3.0  # times the passes that are left: what takes more is out of reach, also if the gap falls faster one day
_LAST_PASSES = 300  # of coordinate descent, where Newton steps got nowhere,
_STILL_FALLING = 0.5  # and as many again where they take so much off the objective


class FirstRound(NamedTuple):
    """Where the first round ended."""

    blocks: Blocks
    weights: np.ndarray
    gap: float
    newton: bool  # by Newton steps: the weights are not what the blocks combine to


def solve(problem, options, start=None):
    """Run rounds until the true objective has settled; keep the best one.

    Parameters
    ----------
    problem : Problem
        An objective with a ``band``, on rows, with the codes 0 .. k - 1 of classes that each have a row.
    options : Options
        One iteration is a pass over the rows or a Newton step. The gap to reach in a round, and the decrease between
        rounds to stop at, are relative to the objective and, where weights of zero are nearly as good, to what is
        gained over those. The generator draws the order of the rows. Reports come once per round. Choices are "outer",
        the upper side of a round ("concave", "frozen", or "paper": frozen, at 0 first, and the last round counts),
        "method", the way through it ("auto", "newton" or "coordinate-descent"), and "first_round", the
        :class:`FirstRound` of a solution that differs in the price above the band only: without an upper side that
        round is the same.
    start : Solution, optional
        Of a similar problem with as many rows and classes; Newton steps start from its coefficients, if there are any.

    Returns
    -------
    Solution
        Where Newton steps get nowhere, "auto" tries passes from the start, and the lower objective is the answer, or
        the proven one of two that agree to ``tol``.
        With one row of ``coef`` per class, the true objective, and a gap that certifies the best round's convex
        problem, not the whole. ``extra`` has the true objective after each round, "history", the "first_round",
        unless that began from a given start, and with which method it "began". Where the best weights cost more than
        none, shorter ones are returned, and their objective ends the history.
    """
    outer, method, first_round = options.chosen(outer="concave", method="auto", first_round=None)
    if outer == "paper":
        return _solve_by(method, problem, options, start, outer, None)
    afresh = start is None and first_round is None
    if afresh and outer == "concave" and _descends(problem, method):
        found = _descend_first(problem, options, method)
    else:
        found = _solve_by(method, problem, options, start, outer, first_round)
    found = _worthwhile(problem, found)
    left = options.limit(_MOST_ITERATIONS) - found.n_iter
    if method != "auto" or found.status is not Status.STALLED or left <= 0:
        return found
    other = _worthwhile(problem, _last_passes(problem, options, outer, left))
    # What is lower by less than ``tol`` is no better, but only one of them may be proven.
    allowed = options.tol * abs(found.objective) if other.gap <= found.gap else 0.0
    best = other if other.objective <= found.objective + allowed else found
    extra = found.extra | {"history": best.extra["history"]}
    return best._replace(n_iter=found.n_iter + other.n_iter, extra=extra)


def _last_passes(problem, options, outer, left):
    """Return where passes lead from the start: some, and as many again while those lower the objective by much."""
    objective, _, codes, weights = problem
    best, before = None, objective.value(0.0, np.zeros(len(codes)), weights)
    while True:
        few = options._replace(max_iter=min(left, _LAST_PASSES))
        now = _solve_by("coordinate-descent", problem, few, best, outer, None)
        left -= now.n_iter
        if best is not None:
            history = np.append(best.extra["history"], now.extra["history"])
            n_iter = best.n_iter + now.n_iter
            now = now if now.objective <= best.objective else best
            now = now._replace(n_iter=n_iter, extra=now.extra | {"history": history})
        best = now
        if best.status is not Status.ITERATION_LIMIT or left <= 0 or best.objective > _STILL_FALLING * before:
            return best
        before = best.objective


def _worthwhile(problem, found):
    """Return the solution, a shorter one where weights of zero cost less; nothing costs less than zero."""
    objective, rows, codes, weights = problem
    found = found._replace(gap=min(found.gap, 1.0))
    if found.objective <= objective.value(0.0, np.zeros(len(codes)), weights):
        return found
    U = class_scores(rows, found.coef.T)
    own = U[np.arange(len(codes)), codes]
    U[np.arange(len(codes)), codes] = -np.inf
    margins, square = own - U.max(axis=1), np.vdot(found.coef, found.coef)
    scale = worthwhile_scale(objective, square, margins, weights)
    value = objective.value(scale * scale * square, scale * margins, weights)
    extra = found.extra | {"history": np.append(found.extra["history"], value)}
    return found._replace(
        coef=scale * found.coef, dual=empty_blocks(len(codes), 1), objective=value, gap=1.0, extra=extra
    )


def _descends(problem, method):
    """Tell whether quasi-Newton steps come first: where Newton steps would, by products with many rows."""
    rows, n_classes = problem.space, int(problem.signs.max()) + 1
    if method == "coordinate-descent" or not takes_products(rows, n_classes):
        return False
    return is_favourable(rows, n_classes) and n_rows(rows) >= n_columns(rows)


def _descend_first(problem, options, method):
    """Take quasi-Newton steps, and rounds from there if they are not enough."""
    tol = max(options.tol, _DESCENT)
    descent = quasi_newton.solve(problem, options._replace(tol=tol, choices={}))
    extra = descent.extra | {"first_round": None, "began": "newton"}
    left = options.limit(_MOST_ITERATIONS) - descent.n_iter
    enough = descent.status is Status.SETTLED and tol <= options.tol
    if enough or descent.status is Status.STOPPED or left <= 0:
        return descent._replace(extra=extra)
    rounds = _solve_by(method, problem, options._replace(max_iter=left), descent, "concave", None)
    history = np.minimum.accumulate(np.append(descent.extra["history"], rounds.extra["history"]))
    best = rounds if rounds.objective <= descent.objective else descent._replace(status=rounds.status)
    return best._replace(n_iter=descent.n_iter + rounds.n_iter, extra=extra | {"history": history})


def _solve_by(method, problem, options, start, outer, first_round):
    """Run rounds of one method, or of passes and Newton steps after them."""
    objective, rows, codes, weights = problem
    tol = options.tol
    max_iter = options.limit(_MOST_ITERATIONS)
    concave = outer == "concave"
    k = int(codes.max()) + 1
    squares(rows, lengths := np.empty(n_rows(rows)))
    losses = Losses(codes, *objective.band(weights), lengths, k, weights.sum())
    solver = _RoundSolver(rows, losses, method, options.generator())
    W = np.zeros((n_columns(rows), -(-k // 4) * 4))  # compiled code adds four classes at a time
    blocks, upper = _begin(rows, losses, start, solver.newton is not None, W, concave)
    as_printed = outer == "paper"
    if as_printed and upper is None:
        upper = np.full(len(codes), -1, np.int32), np.zeros(len(codes))
    best = None
    history = []
    status = Status.ITERATION_LIMIT
    inner = max(tol, _ROUGH) if concave else tol
    while True:
        began_at = W.copy()
        # A concave round's upper side touches the true objective at the last weights: no better round ends above it.
        bound = history[-1] if history and concave else np.inf
        limit = max_iter
        if concave and upper is None and solver.newton:
            limit = min(max_iter, _FIRST_STEPS)
        if first_round is not None and start is None and not history:
            blocks, value, true, gap = solver.go_on_from(first_round, W)
        else:
            blocks, value, true, gap = solver.run(copy(blocks), upper, W, bound, inner, limit)
        if not history and start is None and not as_printed:
            first_round = FirstRound(blocks, W.copy(), gap, solver.newton is not None)
        if true > bound:  # not even an exact round gets below the last one, or there was no time for one
            lower = (1.0 - gap) * value  # no weights give this round less, and those it began at give it ``bound``
            proven = relative(bound - lower, bound)
            if bound < best.objective:
                best = Solution(began_at[:, :k].T.copy(), blocks, bound, proven)
            else:
                best = best._replace(gap=min(best.gap, proven))
            if solver.n_iter < max_iter:
                status = Status.STALLED if solver.stalled else Status.SETTLED
            break
        decrease = np.inf if not history else (history[-1] - true) / true
        history.append(true)
        if as_printed or best is None or true <= best.objective:
            best = Solution(W[:, :k].T.copy(), blocks, true, gap)
        if options.report is not None and options.report(len(history), W[:, :k].T, true, gap):
            status = Status.STOPPED
            break
        if solver.n_iter >= max_iter:
            break
        if solver.stalled:
            status = Status.STALLED
            break
        enough = gap_to_reach(tol, value, at_zero(losses, blocks))
        exact = gap <= enough
        if exact and (abs(decrease) if as_printed else decrease) <= enough:
            status = Status.SETTLED if decrease >= 0.0 else Status.NO_LONGER_IMPROVES
            break
        if concave and np.isfinite(decrease):  # a round need not be more exact than what the next one gains
            inner = max(tol, min(inner, _INEXACT * decrease))
        upper, changed = _upper_side(rows, losses, blocks, W, concave)
        if changed == 0 and exact:
            status = Status.NOTHING_CHANGED
            break
        if changed == 0:
            inner = tol
        elif concave and solver.newton:
            history[-1] = _go_on(rows, losses, began_at, W, true)
            upper, _ = _upper_side(rows, losses, blocks, W, concave)
    extra = {"history": np.array(history), "first_round": first_round, "began": solver.began}
    return best._replace(n_iter=solver.n_iter, status=status, extra=extra)


def _begin(rows, losses, start, from_weights, W, concave):
    """Return the blocks to start from and their upper side; fill W. The β of another rule is forgotten.

    Newton steps start from weights, which need not be what the blocks combine to; passes over the rows do need that.
    """
    if start is None or start.dual is None:
        return empty_blocks(len(losses.codes), min(losses.n_classes - 1, _ROOM)), None
    blocks = copy(start.dual)
    if concave != (blocks.rival[0] >= 0):
        blocks.beta[:] = 0.0
        blocks.rival[:] = -1
    if from_weights and start.coef is not None:
        W[:, : losses.n_classes] = start.coef.T
    else:
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


def _go_on(rows, losses, start, W, true):
    """Move W along the line from ``start``, on or back, as long as the true objective falls; return that.

    A round goes no further than its upper side lets it, whose runners-up are those at its start; behind rows that would
    change theirs, the true objective falls on. The first round, without an upper side, went too far.
    """
    move = W - start
    U, dU = class_scores(rows, W), class_scores(rows, move)
    squares = 0.5 * np.vdot(W, W), np.vdot(W, move), 0.5 * np.vdot(move, move)
    least, best = true, 1.0
    for factor in (2.0, 0.5):
        part = factor
        while part >= _SHORTEST:
            t = part - 1.0
            value = squares[0] + t * squares[1] + t * t * squares[2] + _true_loss(losses, U, dU, t)
            if not value < least:
                break
            least, best = value, part
            part *= factor
        if best != 1.0:
            break
    there = W + (best - 1.0) * move
    value = 0.5 * np.vdot(there, there) + _true_loss(losses, class_scores(rows, there), dU, 0.0)
    if best == 1.0 or value >= true:  # by rounding
        return true
    W[:] = there
    return value


@njit(cache=True, nogil=True)
def _true_loss(losses, U, dU, t):
    """Return the loss of the scores U + t dU, without any upper side."""
    total = 0.0
    for i in range(len(U)):
        y, highest = losses.codes[i], -np.inf
        for l in range(losses.n_classes):
            if l != y:
                highest = max(highest, U[i, l] + t * dU[i, l])
        margin = U[i, y] + t * dU[i, y] - highest
        short, beyond = max(0.0, losses.low - margin), max(0.0, margin - losses.high)
        total += losses.prices[i] * short * short + losses.above[i] * beyond * beyond
    return total


def _certificate(rows, losses, blocks, W):
    """Return the value of this round, the true objective, and the gap of the round relative to its value."""
    parts = [certify(losses, blocks, first, U) for first, U in scores_by_parts(rows, losses, W)]
    return relative_to(W, *np.sum(parts, axis=0))


class _RoundSolver:
    """The two ways through a round, and when to take which."""

    def __init__(self, rows, losses, method, rng):
        self.rows, self.losses, self.rng, self.n_iter = rows, losses, rng, 0
        self.patience = _PATIENCE if row_counts(losses).sum() >= n_columns(rows) else _MORE_PATIENCE
        self.alone = method != "auto" or not is_possible(rows, losses.n_classes)
        first = method == "newton" or (method == "auto" and is_best(rows, losses))
        self.newton = ProximalNewton(rows, losses) if first else None
        self.began = "newton" if first else "coordinate-descent"
        self.stalled = False

    def go_on_from(self, first_round, W):
        """Go on from where another solution's first round ended; return what :meth:`run` would."""
        if first_round.newton and self.newton is None:
            self.newton = ProximalNewton(self.rows, self.losses)
        W[:] = first_round.weights
        value, true, _ = _certificate(self.rows, self.losses, first_round.blocks, W)
        return first_round.blocks, value, true, first_round.gap

    def run(self, blocks, upper, W, bound, tol, max_iter):
        """Solve the round with this upper side (None: the blocks have theirs), from blocks and W, changing both.

        Passes need W to be what the blocks combine to, and leave it so; Newton steps do neither. Returns the blocks,
        the round's value, the true objective and the relative gap.
        """
        rivals, ceilings = (blocks.rival, blocks.ceiling) if upper is None else upper
        blocks.ceiling[:] = ceilings
        if self.newton is None:
            blocks, done, *found = self._descend(blocks, rivals, W, bound, tol, max_iter)
            if done or self.n_iter >= max_iter or self.alone:
                self.stalled = not done and self.n_iter < max_iter
                return blocks, *found
            self.newton = ProximalNewton(self.rows, self.losses)
            if upper is None:  # from where passes got stuck, Newton steps take longer than from the start
                blocks = empty_blocks(len(blocks.beta), min(self.losses.n_classes - 1, _ROOM))
                W[:] = 0.0
        changed = np.flatnonzero(blocks.rival != rivals)
        blocks.rival[:] = rivals
        blocks.beta[changed] = 0.0  # what was beyond the band of another runner-up says nothing of this one
        blocks, n_iter, *found = self.newton.run(blocks, W, bound, tol, max_iter - self.n_iter)
        self.n_iter += n_iter
        self.stalled = self.newton.stalled
        return blocks, *found

    def _descend(self, blocks, rivals, W, bound, tol, max_iter):
        """Cycle through the rows; return blocks, whether the round is done, its value, true objective and gap."""
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
            for _ in range(_CYCLE):
                blocks, used, moved, left = _pass(rows, losses, blocks, rivals, W, order, used, quiet)
                visited += len(order)
                first = first or moved
                quiet = _QUIET * moved
                order = self.rng.permutation(order[:left])
                if left == 0 or moved < 0.1 * first:
                    break
            value, true, gap = _certificate(rows, losses, blocks, W)
            passes = -(-visited // m)  # counted by the work of visiting every row, rounded up
            self.n_iter = before + passes
            done = is_done(value, nothing, gap, bound, tol)
            looks.append((passes, gap))
            if done or self.n_iter >= max_iter or self._is_slow(looks, tol, max_iter):
                return blocks, done, value, true, gap

    def _is_slow(self, looks, tol, max_iter):
        """Tell whether, as the gap fell since the round was half as old, passes would take too many more.

        That is as many again where Newton steps may take over, and alone some times what the limit leaves.
        """
        passes, gap = looks[-1]
        patience, most = self.patience, passes
        if self.alone:
            patience, most = _ALONE_PATIENCE, _BEYOND * (max_iter - self.n_iter)
        if passes < patience:
            return False
        earlier, wider = next(look for look in reversed(looks) if 2 * look[0] <= passes or look is looks[0])
        if earlier == passes or gap >= wider:
            return True
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
