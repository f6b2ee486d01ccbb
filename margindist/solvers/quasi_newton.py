r"""Quasi-Newton descent on the joint problem of several classes, in rounds over partitions.

Problem (:mod:`margindist.solvers.multiclass`): ½‖W‖² + Σ_i ℓ_i(W'x_i), where ℓ_i is c_i ξ_i² + c_i μ ε_i² of the margin
over the runner-up. The first term has kinks where rivals tie, the second is not convex. Both are met as in
:mod:`margindist.solvers.proximal_newton`: with multipliers v̄_i and widths ρ_i, the convex loss that lies above ℓ_i and
touches it at the present scores (the runner-up r_i held) is replaced by its Moreau envelope around W'x_i − ρ_i v̄_i,

    ∇ = W − Σ_i x_i v_i',     v_i = the block step with A = ρ_i.

What differs is when things happen. *The runner-up follows every step*, not every round of a convex problem, so that no
work is done for an upper side that is out of date. And a step needs no Hessian: its direction is that of L-BFGS, which
begins with the diagonal blocks I + Σ_i J_ll x_i x_i', one per class, factorised (of some rows only, where many; of many
columns their diagonal), and scaled by what the last step tells of the curvature (Shanno & Phua 1978): kinks that lie
close together bend the function more than the blocks at one point do. A step is two products with the rows, where a
Newton step by conjugate gradients is ten.
Once the gradient is small beside the gap, the v_i are the next multipliers, and the widths are narrowed if the gap has
not fallen much.

The upper side always touches at W itself: there the convex problem has the value of the true one, and

    ½‖W − Σ x_i v_i'‖² + Fenchel-Young sum of the rows

certifies that no weights give that convex problem less by more than this. So a round of
:mod:`margindist.solvers.multiclass` from here would gain no more: that is what its certificate says, too.

All of it is sums over rows: a step is a round ``along``, which multiplies the rows with the direction, a few ``slopes``
without rows, and ``accept``, which returns the gradient. A part keeps about 45 bytes per row and class.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from margindist.certificate import relative
from margindist.compilation import njit
from margindist.objectives import of_some
from margindist.solvers._class_blocks import (
    Blocks,
    Losses,
    block_step,
    certify,
    empty_blocks,
    relative_to,
)
from margindist.solvers._solution import Solution, Status, gap_to_reach
from margindist.solvers.proximal_newton import apply_factors, bend_diagonal, first_widths
from margindist.spaces.partitions import Round, drive, in_memory
from margindist.spaces.rows import (
    add_gram,
    class_scores,
    class_sums,
    gram_diagonal,
    n_columns,
    n_rows,
    squares,
    take_rows,
    without_zeros,
)

_MOST_STEPS = 1000
_PAIRS = 20  # steps and changes of the gradient that L-BFGS remembers
_CLOSER = 0.9  # of the gap that is asked for: where steps end, for the last certificate differs by rounding
_SETTLED = 0.3  # of the gap (or of what it shall be): the gradient's part at which multipliers are renewed
_SLOW = 0.2  # widths are narrowed where new multipliers do not reduce the gap to this part,
_NEAR = 0.7  # unless it is below this part of what it shall be
_NARROW = 0.3  # factor of the widths
_FALLING = 0.9  # of the first slope along a step: the most that may be left of it,
_RISING = 0.5  # and the most that it may rise to
_TRIALS = 30  # along a step
_FRESH = 25  # steps that factors serve
_RESCALED = 5  # steps after which it is asked again by how much factors are too large or too small
_STALLED = 150  # steps in which neither the gap was halved nor the value fell by a hundredth
_LARGEST_FACTORS = 5 * 10**7  # entries of all factors
_FACTOR_ROWS, _ROWS_PER_COLUMN = 2000, 3  # rows that a factor is made of, at most,
_BENT_CLASSES = 2.5  # where a row belongs to the factors of so many classes


def solve(problem, options):
    """Descend from the least squares solution, on rows in memory.

    Parameters
    ----------
    problem : Problem
        An objective with a ``band``, on rows, with the codes 0 .. k - 1 of classes that each have a row.
    options : Options
        One iteration is a quasi-Newton step. The gap to reach is relative to the objective and to what is gained over
        weights of zero.

    Returns
    -------
    Solution
        With one row of ``coef`` per class, the blocks of all rows as ``dual``, the true objective, the gap of the
        convex problem that touches it there, and in ``extra`` the "history" of the objective, which never rises.
        "Settled" if and only if the gap is as asked for.
    """
    objective, rows, codes, weights = problem
    place = in_memory(without_zeros(rows), codes, weights, options.n_jobs)
    try:
        return _solve(place, objective, int(codes.max()) + 1, options, None, in_files=False)
    finally:
        place.close()


def solve_in_place(place, objective, n_classes, options, start=None):
    """Do the same on partitions; blocks stay with the rows, so that the solution has no ``dual``."""
    return _solve(place, objective, n_classes, options, start, in_files=True)


def _solve(place, objective, n_classes, options, start, in_files):
    (found,) = drive(
        place,
        ClassPart,
        [(objective, n_classes)],
        lambda _, coef: _rounds(options, coef, n_classes, in_files),
        [None if start is None else start.coef.T],
    )
    return found


# ---------------------------------------------------------------------- the driver: a generator of rounds


def _rounds(options, start, n_classes, in_files):
    """Take quasi-Newton steps in rounds; return the best point with its certificate."""
    shape = yield Round("shape")
    total = yield Round("begin", (shape["weight"],))
    W = start
    if W is None:
        W = yield from _least_squares(shape, total)
    now = yield Round("at", (W, total["prices"], total["long"]), W)
    model = _Model(shape, n_classes)
    progress = _Progress()
    max_iter = options.limit(_MOST_STEPS)
    status = Status.ITERATION_LIMIT
    best, last_gap, history = None, np.inf, []
    for n_iter in range(max_iter + 1):
        G = W - now["pressure"]
        value, _, gap = relative_to(W, now["loss"], now["loss"], now["fenchel"])
        rest = 0.5 * np.vdot(G, G) / value
        enough = gap_to_reach(options.tol, value, total["at_zero"])
        settled = rest <= _SETTLED * max(gap, enough)
        done = rest + gap <= _CLOSER * enough
        if best is None or value <= best.objective or done:
            best = Solution(W, None, value, relative((rest + gap) * value, value))
        if settled and not done:
            history.append(best.objective)
        if (done or settled) and options.report is not None and options.report(n_iter, W.T, value, rest + gap):
            status = Status.STOPPED
        if done or status is Status.STOPPED or n_iter == max_iter:
            break
        if progress.has_ended(value, rest + gap):
            status = Status.STALLED
            break
        if settled:
            narrow = gap > max(_SLOW * last_gap, _NEAR * enough)
            now = yield Round("renew", (_NARROW if narrow else 1.0,), W)
            last_gap = gap
            model.forget(everything=narrow)
            continue
        dW = yield from model.direction(W, G)
        step = yield from _search(W, dW, -np.vdot(G, dW))
        W = W + step * dW
        now = yield Round("accept", (step,), W)
    # Scores were added up step by step: what is certified are those of the weights themselves.
    now = yield Round("at", (best.coef, total["prices"], total["long"]), best.coef)
    G = best.coef - now["pressure"]
    value, _, gap = relative_to(best.coef, now["loss"], now["loss"], now["fenchel"])
    gap = relative(0.5 * np.vdot(G, G) + gap * value, value)
    if gap <= gap_to_reach(options.tol, value, total["at_zero"]):
        status = Status.SETTLED
    dual = None if in_files else _joined((yield Round("blocks"))["blocks"])
    history = np.maximum([*history, value], value)  # rounding apart, the last is the least
    return Solution(best.coef.T.copy(), dual, value, gap, n_iter, status, {"history": history})


def _joined(blocks):
    """Return the blocks of all partitions as those of one; they have the same room each."""
    whole = Blocks(*map(np.concatenate, zip(*blocks, strict=True)))
    return whole._replace(begin=np.arange(len(whole.begin)) * whole.capacity)


def _least_squares(shape, total):
    """Return weights that bring the scores of every row near 1 - 1/k for its class and -1/k for the others."""
    d = shape["columns_max"]
    whole = d * d <= _LARGEST_FACTORS
    found = yield Round("regression", (whole,))
    if not whole:  # the direction is enough: steps find the length
        return found["pull"] / (1.0 + 2.0 * total["long"])
    system = found["gram"]
    system.flat[:: d + 1] += 1.0
    return cho_solve(cho_factor(system, lower=True, check_finite=False), found["pull"], check_finite=False)


def _search(W, dW, first):
    """Return a step along dW where the slope, at first ``-first``, is neither much the same nor rising much."""
    linear, square = np.vdot(W, dW), np.vdot(dW, dW)
    low, high, steepness, t = 0.0, np.inf, first, 1.0
    found = yield Round("along", (dW, t))
    for _ in range(_TRIALS):
        slope = linear + t * square - found["pull"]
        if -_FALLING * first <= slope <= _RISING * first:
            break
        if slope > 0.0:  # where a straight line between the slopes of both ends is zero, but not too near to either
            high = t
            t = low + (high - low) * np.clip(steepness / (steepness + slope), 0.1, 0.9)
        else:
            low, steepness = t, -slope
            t = min(2.0 * t, 0.5 * (t + high))
        found = yield Round("slopes", (t,))
    return t


class _Model:
    """What is known of the curvature: pairs of steps and changes of the gradient, and factors at their beginning."""

    def __init__(self, shape, n_classes):
        d = shape["columns_max"]
        self._factorises = n_classes * d * d <= _LARGEST_FACTORS
        self._n_classes = n_classes
        self._most = max(_FACTOR_ROWS, _ROWS_PER_COLUMN * d)
        self._share = n_classes / _BENT_CLASSES * self._most / shape["rows"]
        self._pairs, self._last = [], None
        self._apply, self._scale, self._age = None, 1.0, 0

    def forget(self, everything):
        """Note that the function changes: the last gradient is no longer its own; nor, if so, is anything else."""
        self._last = None
        if everything:
            self._pairs, self._apply = [], None

    def direction(self, W, G):
        """Return a direction of descent at W from its gradient."""
        if self._last is not None:
            self._remember(W - self._last[0], G - self._last[1])
        self._last = W, G
        if self._apply is None or self._age == _FRESH:
            yield from self._renew()
        if self._pairs and self._age % _RESCALED == 0:
            _, change, product = self._pairs[-1]
            self._scale = product / np.vdot(change, self._apply(change))
        self._age += 1
        dW = -self._times_inverse(G)
        if not np.vdot(G, dW) < 0.0:  # all rounding
            self._pairs = []
            dW = -G
        return dW

    def _remember(self, step, change):
        product = np.vdot(step, change)
        if product > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
            self._pairs = [*self._pairs[1 - _PAIRS :], (step, change, product)]

    def _times_inverse(self, G):
        """Return the two loops of L-BFGS."""
        R, shares = G.copy(), []
        for step, change, product in reversed(self._pairs):
            shares.append(np.vdot(step, R) / product)
            R -= shares[-1] * change
        R = self._scale * self._apply(R)
        for (step, change, product), share in zip(self._pairs, reversed(shares), strict=True):
            R += (share - np.vdot(change, R) / product) * step
        return R

    def _renew(self):
        """Ask for the curvature of every class where the rows are now."""
        self._age = 0
        if self._factorises:
            found = yield Round("curvature", (self._share,))
            try:
                factors = [_factor(found["bent"], l, self._most) for l in range(self._n_classes)]
                self._apply = lambda R: apply_factors(factors, R)
                return
            except LinAlgError:  # rounding has made a factor's matrix indefinite
                self._factorises = False
        diagonal = 1.0 + (yield Round("diagonal"))["diagonal"]
        self._apply = lambda R: R / diagonal


def _factor(bent, l, most):
    """Return the factor of the curvature of class ``l``, which ``most`` rows of all parts add up to."""
    which = [np.flatnonzero(bends[:, l]) for _, bends in bent]
    stride = max(1, -(-sum(map(len, which)) // most))
    system = np.eye(n_columns(bent[0][0]))
    for (rows, bends), used in zip(bent, which, strict=True):
        add_gram(rows, used[::stride], stride * bends[used[::stride], l], 1.0, system)
    return cho_factor(system, lower=True, overwrite_a=True, check_finite=False)[0]


class _Progress:
    """How many steps ago the value or the gap last fell by what shows."""

    def __init__(self):
        self._value, self._gap, self._steps = np.inf, np.inf, 0

    def has_ended(self, value, gap):
        """Count a step; tell whether there was no progress for too long."""
        self._steps += 1
        if gap <= 0.5 * self._gap or value <= 0.99 * self._value:
            self._value, self._gap, self._steps = min(value, self._value), min(gap, self._gap), 0
        return self._steps >= _STALLED


# ---------------------------------------------------------------------- a part: scores and blocks of its rows


class ClassPart:
    """What the method keeps of one partition: scores, those of the direction, and two sets of blocks.

    Parameters
    ----------
    rows, targets, weights : rows and arrays
        The partition; targets are the codes of classes.
    objective : objective
        With a ``band``.
    n_classes : int
        Number of classes, of which some may have no row here.
    """

    rowless = frozenset({"shape", "slopes", "blocks"})

    def __init__(self, rows, targets, weights, objective, n_classes):
        self._objective = objective
        self._weights = weights
        self._n_classes = n_classes
        self._codes = np.asarray(targets, dtype=np.int64)
        self._shape = {"rows": n_rows(rows), "columns_max": n_columns(rows), "weight": weights.sum()}
        self._everything = np.arange(len(weights))
        self._losses = self._width = self._move = None
        self._scores = np.empty((len(weights), n_classes))
        self._held = empty_blocks(len(weights), n_classes - 1)  # multipliers, and the upper side
        self._held.rival[:] = 0
        self._ahead = _twin(self._held)  # what the scores lead to from them

    def shape(self, rows):
        """Return what there is: numbers of rows and columns, and their weight."""
        return self._shape

    def begin(self, rows, total):
        """Take the prices of rows whose weights make ``total`` in all; return their sums."""
        squares(rows, lengths := np.empty(len(self._weights)))
        band = self._objective.band
        low, high = band(self._weights)[:2]
        below = of_some(lambda _, weights: band(weights)[2], self._weights, self._weights, total)
        above = of_some(lambda _, weights: band(weights)[3], self._weights, self._weights, total)
        self._losses = Losses(self._codes, low, high, below, above, lengths, self._n_classes, total)
        return {"prices": below.sum(), "long": below @ lengths, "at_zero": low**2 * below.sum()}

    def regression(self, rows, whole):
        """Return the normal equations of least squares, their matrix if it is not too large."""
        prices = 2.0 * self._losses.prices
        targets = np.full(self._scores.shape, -1.0 / self._n_classes) * prices[:, None]
        targets[np.arange(len(prices)), self._codes] += prices
        record = {"pull": class_sums(rows, targets)}
        if whole:
            d = n_columns(rows)
            add_gram(rows, np.arange(len(prices)), prices, 1.0, lower := np.zeros((d, d)))
            record["gram"] = lower
        return record

    def at(self, rows, W, prices, long):
        """Compute the scores of weights; return loss, gradient and certificate there."""
        if self._width is None:
            self._width = first_widths(self._losses, prices, long)
        self._scores = class_scores(rows, W)
        self._move = np.zeros_like(self._scores)
        self._follow()
        self._step(0.0)
        return self._record(rows)

    def along(self, rows, dW, t):
        """Multiply the rows with a direction; return what :meth:`slopes` does."""
        self._move = class_scores(rows, dW)
        return self.slopes(rows, t)

    def slopes(self, rows, t):
        """Return the sum of coefficients times moves, where a step leads to."""
        return {"pull": self._step(t)}

    def accept(self, rows, t):
        """Go there; return loss, gradient and certificate."""
        self._scores += t * self._move
        self._step(0.0, self._follow())
        return self._record(rows)

    def renew(self, rows, narrow):
        """Make the blocks the next multipliers, and the widths narrower by a factor; return what there is then."""
        self._held, self._ahead = self._ahead, self._held
        self._width = narrow * self._width
        self._step(0.0)
        return self._record(rows)

    def curvature(self, rows, share):
        """Return rows that bend, at most this share of all, and the curvatures of every class that they stand for.

        The matrices of all classes would be more to hand on, from every part, than the rows that they are made of.
        """
        active = np.flatnonzero((self._ahead.length > 0) | (self._ahead.beta > 0.0))
        stride = max(1, -(-len(active) // max(1, round(share * len(self._codes)))))
        used = active[::stride]
        bends = bend_diagonal(self._losses, self._ahead, self._width)[0][used]
        return {"bent": [(take_rows(rows, used), stride * bends)]}

    def diagonal(self, rows):
        """Return the diagonal of the curvature of every class."""
        bends = bend_diagonal(self._losses, self._ahead, self._width)[0]
        everything = np.arange(len(bends))
        return {"diagonal": np.column_stack([gram_diagonal(rows, everything, bend) for bend in bends.T])}

    def blocks(self, rows):
        """Return the blocks that the last certificate is of."""
        return {"blocks": [self._ahead]}

    def _follow(self):
        """Let the upper side touch at the scores; return the rows that have a new one."""
        return _follow(self._losses, self._held, self._scores, np.empty_like(self._everything))

    def _step(self, t, which=None):
        """Make the blocks what a step leads to, those of all rows or of some."""
        which = self._everything if which is None else which
        return _steps(self._losses, self._held, self._width, self._scores, self._move, t, which, self._ahead)

    def _record(self, rows):
        V = _coefficients(self._codes, self._ahead, self._move)  # whose moves are made
        loss, _, fenchel = certify(self._losses, self._ahead, 0, self._scores)
        return {"pressure": class_sums(rows, V), "loss": loss, "fenchel": fenchel}


def _twin(blocks):
    """Return other blocks with the same upper side."""
    own = {name: getattr(blocks, name).copy() for name in ("length", "classes", "zeta", "beta")}
    return blocks._replace(**own)


@njit(cache=True, nogil=True)
def _steps(losses, held, width, U, move, t, which, ahead):
    """Make the blocks of some rows what the scores U + t move lead to; return their coefficients times the moves."""
    codes, low, high, prices, above, _, k, _ = losses
    begin, length, _, classes, zeta, beta, rivals, ceilings = held
    new_length, new_classes, new_zeta, new_beta = ahead.length, ahead.classes, ahead.zeta, ahead.beta
    b, order, lowered = np.empty(k), np.empty(k, np.int64), np.empty(k)
    total = 0.0
    for i in which:
        y, r, A, at = codes[i], rivals[i], width[i], begin[i]
        for l in range(k):
            b[l] = U[i, l] + t * move[i, l]
        S = 0.0
        for p in range(at, at + length[i]):
            b[classes[p]] += A * zeta[p]
            S += zeta[p]
        b[y] -= A * (S - beta[i])
        b[r] -= A * beta[i]
        n, _, beyond = block_step(low, high, prices[i], above[i], y, b, A, r, ceilings[i], order, lowered)
        own, of_row = move[i, y], 0.0
        for c in range(n):
            new_classes[at + c], new_zeta[at + c] = order[c], lowered[c]
            of_row += lowered[c] * (own - move[i, order[c]])
        new_length[i], new_beta[i] = n, beyond
        total += of_row - beyond * (own - move[i, r])
    return total


@njit(cache=True, nogil=True)
def _follow(losses, held, U, changed):
    """Make the runner-up at the scores U that of every row; a new one has no part above the band yet.

    Returns the rows, at the front of ``changed``, that have a new one.
    """
    codes, beta, rivals = losses.codes, held.beta, held.rival
    count = 0
    for i in range(len(U)):
        y, best, highest = codes[i], -1, -np.inf
        for l in range(U.shape[1]):
            if l != y and U[i, l] > highest:
                best, highest = l, U[i, l]
        if best != rivals[i]:
            rivals[i], beta[i] = best, 0.0
            changed[count] = i
            count += 1
    return changed[:count]


@njit(cache=True, nogil=True)
def _coefficients(codes, blocks, V):
    """Fill V with the coefficients of all rows; return it."""
    begin, length, _, classes, zeta, beta, rivals, _ = blocks
    for i in range(len(V)):
        v = V[i]
        v[:] = 0.0
        S = 0.0
        for p in range(begin[i], begin[i] + length[i]):
            v[classes[p]] = -zeta[p]
            S += zeta[p]
        v[codes[i]] = S - beta[i]
        v[rivals[i]] += beta[i]
    return V
