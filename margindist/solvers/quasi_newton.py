r"""Quasi-Newton descent on the joint problem of several classes, in rounds over partitions.

Problem (:mod:`margindist.solvers.multiclass`): ½‖W‖² + Σ_i ℓ_i(W'x_i), where ℓ_i is c_i ξ_i² + c_i μ ε_i² of the margin
over the runner-up. The first term has kinks where rivals tie, the second is not convex. With multipliers v̄_i and
widths ρ_i > 0, the convex loss that lies above ℓ_i and touches it at the present scores (the runner-up r_i held) is
replaced by its Moreau envelope around W'x_i − ρ_i v̄_i,

    ∇ = W − Σ_i x_i v_i',     v_i = the block step with A = ρ_i,

whose slope is continuous. *The runner-up follows every step*, so that no work is done for an upper side that is out of
date. The direction is that of L-BFGS, which begins with the diagonal blocks I + Σ_i J_ll x_i x_i', one per class,
factorised (of some rows only, where many; of many columns their diagonal), and scaled by what the last step tells of
the curvature (Shanno & Phua 1978): kinks that lie close together bend the function more than the blocks at one point
do. With n classes lowered to the common level, mean over them 1_a/n, s = ρ/E if β > 0 (else 0), and D, E of the block
step,

    J = (I_a − 1_a 1_a'/n)/ρ  +  n/(ρ + nD) q q'  +  (1/E) p p',    q = (1 − s) e_y + s e_r − 1_a/n,    p = e_y − e_r

(without e_r under the frozen rule; the last term only if β > 0). All J_i nearly vanish on vectors that are equal in all
classes, which the blocks do not know: the mean over the classes is taken out, and has a factor of its own where J does
not vanish there. Once the gradient is small beside the gap, the v_i are the next multipliers, and the widths are
narrowed if the gap has not fallen much.

Under the *frozen* rule the upper side stays what it is until the convex problem is solved: rounds as those of
:mod:`margindist.solvers.multiclass`, each begun where the last one ended.

The upper side always touches at W itself: there the convex problem has the value of the true one, and

    ½‖W − Σ x_i v_i'‖² + Fenchel-Young sum of the rows

certifies that no weights give that convex problem less by more than this. So a round of
:mod:`margindist.solvers.multiclass` from here would gain no more: that is what its certificate says, too.

All of it is sums over rows: a step is a round ``along``, which multiplies the rows with the direction, a few ``slopes``
without rows, and ``accept``, which returns the gradient. A part keeps about 45 bytes per row and class.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotrs

from margindist.certificate import relative
from margindist.compilation import njit
from margindist.objectives import of_some
from margindist.solvers._class_blocks import (
    Blocks,
    Losses,
    block_step,
    certify,
    copy,
    empty_blocks,
    relative_to,
    spread,
)
from margindist.solvers._solution import Solution, Status, gap_to_reach
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

_TRIALS = 30  # along a step: then halving has used up the digits


class Settings(NamedTuple):
    """How steps are taken, and when the convex problem changes."""

    pairs: int = 20  # steps and changes of the gradient that L-BFGS remembers
    closer: float = 0.9  # of the gap asked for: where steps end, for the last certificate differs by rounding
    settled: float = 0.3  # of the gap: the gradient's part at which multipliers are renewed
    slow: float = 0.5  # widths are narrowed where new multipliers do not reduce the gap to this part
    narrow: float = 0.3  # factor of the widths then
    falling: float = 0.9  # of the first slope along a step: the most that may be left of it,
    rising: float = 0.5  # and the most that it may rise to
    fresh: int = 25  # steps that factors serve
    patience: int = 150  # steps in which neither the gap was halved nor the value fell by a hundredth
    largest_factors: int = 5 * 10**7  # entries of all factors
    factor_rows: int = 2000  # rows that a factor is made of, beside one per column
    first_width: float = 1e-2  # relative to a row's squared length, where prices are so high that it would be less


SETTINGS = Settings()


def solve(problem, options, start=None):
    """Descend from given weights, or from the least squares solution, on rows in memory.

    Parameters
    ----------
    problem : Problem
        An objective with a ``band``, on rows, with the codes 0 .. k - 1 of classes that each have a row.
    options : Options
        One iteration is a quasi-Newton step. The gap to reach is relative to the objective and to what is gained over
        weights of zero. The choice is "outer", the upper side: "concave", "frozen" or "paper".
    start : Solution, optional
        Whose coefficients to start from.

    Returns
    -------
    Solution
        With one row of ``coef`` per class, the blocks of all rows as ``dual``, the true objective, the gap of the
        convex problem that touches it there (frozen: of the best round), and in ``extra`` the "history" of the
        objective, which never rises unless the upper side is frozen. "Settled" only if the gap is as asked for.
    """
    objective, rows, codes, weights = problem
    (outer,) = options.chosen(outer="concave")
    place = in_memory(without_zeros(rows), codes, weights, options.n_jobs)
    try:
        return _solve(place, objective, int(codes.max()) + 1, options, start, outer, in_files=False)
    finally:
        place.close()


def can_factorise(n_columns, n_classes):
    """Tell whether there is a factor for every class; with the diagonals alone, steps are many."""
    return n_classes * n_columns * n_columns <= SETTINGS.largest_factors


def solve_in_place(place, objective, n_classes, options, start=None):
    """Do the same on partitions; blocks stay with the rows, so that the solution has no ``dual``."""
    return _solve(place, objective, n_classes, options, start, "concave", in_files=True)


def _solve(place, objective, n_classes, options, start, outer, in_files):
    rules = {"frozen": _run_frozen_rounds, "paper": functools.partial(_run_frozen_rounds, as_printed=True)}
    minimise = rules.get(outer, _follow_the_true_objective)
    blocks = None if start is None else start.dual
    (result,) = drive(
        place,
        ClassPart,
        [(objective, n_classes, outer in rules, blocks)],
        lambda _, coef: minimise(options, coef, n_classes, in_files),
        [None if start is None else start.coef.T],
    )
    return result


# ---------------------------------------------------------------------- the drivers: generators of rounds


def _follow_the_true_objective(options, start, n_classes, in_files):
    """Descend once, the upper side at the scores after every step; return where that led, with its certificate."""
    begun = yield from _begin(options, start, n_classes)
    descent = yield from _descend(begun, begun.start, options.limit(), options.report)
    now = descent.proved
    status = Status.SETTLED if now.gap <= begun.enough(now.value) else descent.ended
    dual = None if in_files else _joined((yield Round("blocks"))["blocks"])
    history = np.maximum([*descent.history, now.value], now.value)  # rounding apart, the last is the least
    return Solution(descent.W.T.copy(), dual, now.value, now.gap, descent.n_iter, status, {"history": history})


def _run_frozen_rounds(options, start, n_classes, in_files, as_printed=False):
    """Descend round after round, the upper side as at the last one's end; return the round of the least objective.

    As printed, the upper side is at 0 in the first round, and the last round is returned.
    """
    begun = yield from _begin(options, start, n_classes)
    max_iter = options.limit()
    W, n_iter, history, best = begun.start, 0, [], None
    if start is not None:
        yield Round("at", (W, *begun.sums), W)
        yield Round("freeze", (None,))
    elif as_printed:
        yield Round("freeze", (0.0,))
    while True:
        descent = yield from _descend(begun, W, max_iter - n_iter, None)
        W, now = descent.W, descent.proved
        n_iter += descent.n_iter
        decrease = (history[-1] - now.true) / now.true if history else np.inf
        history.append(now.true)
        if as_printed or best is None or now.true <= best.objective:
            best = Solution(W.T.copy(), _joined((yield Round("blocks"))["blocks"]), now.true, now.gap)
        status = descent.ended
        if options.report is not None and options.report(len(history), W.T, now.true, now.gap):
            status = Status.STOPPED
        enough = begun.enough(now.value)
        if status is not None or n_iter >= max_iter:
            break
        if (abs(decrease) if as_printed else decrease) <= enough:
            status = Status.SETTLED if decrease >= 0.0 else Status.NO_LONGER_IMPROVES
            break
        if (yield Round("freeze", (None,)))["changed"] == 0:
            status = Status.NOTHING_CHANGED
            break
    return best._replace(n_iter=n_iter, status=status or Status.ITERATION_LIMIT, extra={"history": np.array(history)})


class _Begun(NamedTuple):
    """What a descent has to know of all rows."""

    start: np.ndarray
    sums: tuple  # of the prices, and of prices times squares
    at_zero: float  # what weights of zero cost
    tol: float
    model: "_Model"

    def enough(self, value):
        """Return the relative gap to reach."""
        return gap_to_reach(self.tol, value, self.at_zero)


class _Descent(NamedTuple):
    """Where a descent led."""

    W: np.ndarray
    proved: "_Proved"  # its certificate
    n_iter: int
    ended: Status | None  # why, unless it is as exact as asked for
    history: list  # values whenever multipliers were renewed


class _Proved(NamedTuple):
    """What is known of some weights, from the record of a round."""

    gradient: np.ndarray
    value: float  # of the convex problem
    true: float
    gap: float  # relative, of the convex problem
    of_rows: float  # the part of it that is the rows' Fenchel-Young sum

    @classmethod
    def of(cls, W, record):
        """Add up the certificate."""
        gradient = W - record["pressure"]
        value, true, of_rows = relative_to(W, record["loss"], record["true"], record["fenchel"])
        half_square = 0.5 * np.vdot(gradient, gradient)
        return cls(gradient, value, true, relative(half_square + of_rows * value, value), of_rows)


def _begin(options, start, n_classes):
    """Tell the parts what all rows add up to; return that with the weights to start from."""
    shape = yield Round("shape")
    total = yield Round("begin", (shape["weight"],))
    if start is None:
        start = yield from _least_squares(shape, total)
    return _Begun(start, (total["prices"], total["long"]), total["at_zero"], options.tol, _Model(shape, n_classes))


def _descend(begun, W, max_iter, report):
    """Take quasi-Newton steps until the gap is small enough; return the best point."""
    settings, model, progress = SETTINGS, begun.model, _Progress()
    record = yield Round("at", (W, *begun.sums), W)
    if not _Proved.of(W, record).value <= begun.at_zero:  # rounding can make weights that cost more than none
        W = np.zeros_like(W)
        record = yield Round("at", (W, *begun.sums), W)
    model.forget(everything=True)
    ended, best, last_gap, history = Status.ITERATION_LIMIT, None, np.inf, []
    for n_iter in range(max_iter + 1):
        now = _Proved.of(W, record)
        enough = begun.enough(now.value)
        settled = now.gap - now.of_rows <= settings.settled * max(now.of_rows, enough)
        done = now.gap <= settings.closer * enough
        if best is None or now.value <= best[1] or done:
            best = W, now.value
        if settled and not done:
            history.append(best[1])
        if (done or settled) and report is not None and report(n_iter, W.T, now.value, now.gap):
            ended = Status.STOPPED
            break
        if done or n_iter == max_iter:
            ended = None if done else ended
            break
        if progress.has_ended(now.value, now.gap):
            ended = Status.STALLED
            break
        if settled:
            narrow = now.of_rows > max(settings.slow * last_gap, enough)
            record = yield Round("renew", (settings.narrow if narrow else 1.0,), W)
            last_gap = now.of_rows
            model.forget(everything=narrow)
            continue
        dW = yield from model.direction(W, now.gradient)
        step = yield from _search(W, dW, -np.vdot(now.gradient, dW))
        W = W + step * dW
        record = yield Round("accept", (step,), W)
    W = best[0]
    # Scores were added up step by step: what is certified are those of the weights themselves.
    proved = _Proved.of(W, (yield Round("at", (W, *begun.sums), W)))
    return _Descent(W, proved, n_iter, ended, history)


def _joined(blocks):
    """Return the blocks of all partitions as those of one; they have the same room each."""
    whole = Blocks(*map(np.concatenate, zip(*blocks, strict=True)))
    return whole._replace(begin=np.arange(len(whole.begin)) * whole.capacity)


def _least_squares(shape, total):
    """Return weights that bring the scores of every row near 1 - 1/k for its class and -1/k for the others."""
    d = shape["columns_max"]
    whole = d * d <= SETTINGS.largest_factors
    result = yield Round("regression", (whole,))
    if not whole:  # the direction is enough: steps find the length
        return result["pull"] / (1.0 + 2.0 * total["long"])
    system = result["gram"]
    system.flat[:: d + 1] += 1.0
    return cho_solve(cho_factor(system, lower=True, check_finite=False), result["pull"], check_finite=False)


def _search(W, dW, first):
    """Return a step along dW where the slope, at first ``-first``, is neither much the same nor rising much."""
    linear, square = np.vdot(W, dW), np.vdot(dW, dW)
    low, high, steepness, t = 0.0, np.inf, first, 1.0
    result = yield Round("along", (dW, t))
    for _ in range(_TRIALS):
        slope = linear + t * square - result["pull"]
        if -SETTINGS.falling * first <= slope <= SETTINGS.rising * first:
            break
        if slope > 0.0:  # where a straight line between the slopes of both ends is zero, but not too near to either
            high = t
            t = low + (high - low) * np.clip(steepness / (steepness + slope), 0.1, 0.9)
        else:
            low, steepness = t, -slope
            t = min(2.0 * t, 0.5 * (t + high))
        result = yield Round("slopes", (t,))
    return t


class _Model:
    """What is known of the curvature: pairs of steps and changes of the gradient, and factors at their beginning."""

    def __init__(self, shape, n_classes):
        d = shape["columns_max"]
        self._factorises = can_factorise(d, n_classes)
        self._n_classes = n_classes
        self._most = SETTINGS.factor_rows + d
        self._share = 0.5 * n_classes * self._most / shape["rows"]  # a row that bends does so in two classes or more
        self._pairs, self._last = [], None
        self._apply, self._scale, self._age = None, 1.0, 0

    def forget(self, everything):
        """Note that the function changes: the last gradient is no longer its own; nor, if so, is anything else."""
        self._last = None
        if everything:
            self._pairs, self._apply, self._scale = [], None, 1.0

    def direction(self, W, G):
        """Return a direction of descent at W from its gradient."""
        if self._last is not None:
            self._remember(W - self._last[0], G - self._last[1])
        self._last = W, G
        if self._apply is None or self._age == SETTINGS.fresh:
            yield from self._renew()
        if self._pairs and 5 * self._age % SETTINGS.fresh == 0:
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
            self._pairs = [*self._pairs[1 - SETTINGS.pairs :], (step, change, product)]

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
            bent = (yield Round("curvature", (self._share,)))["bent"]
            try:
                factors = [_factor(bent, l, self._most) for l in range(bent[0][1].shape[1])]
                self._apply = lambda R: _apply_factors(factors, R)
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


def _apply_factors(factors, R):
    """Solve the systems of all classes, after the mean over them is taken out, which may have a factor of its own."""
    mean = R.mean(axis=1)
    Z = np.empty_like(R)
    for l in range(R.shape[1]):  # LAPACK itself: around small systems, SciPy's checks would take longer than it does
        Z[:, l] = dpotrs(factors[l], R[:, l] - mean, lower=1)[0]
    if len(factors) > R.shape[1]:
        mean = dpotrs(factors[-1], mean, lower=1)[0]
    Z += (mean - Z.mean(axis=1))[:, None]
    return Z


class _Progress:
    """How many steps ago the value or the gap last fell by what shows."""

    def __init__(self):
        self._value, self._gap, self._steps = np.inf, np.inf, 0

    def has_ended(self, value, gap):
        """Count a step; tell whether there was no progress for too long."""
        self._steps += 1
        if gap <= 0.5 * self._gap or value <= 0.99 * self._value:
            self._value, self._gap, self._steps = min(value, self._value), min(gap, self._gap), 0
        return self._steps >= SETTINGS.patience


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
    frozen : bool
        Whether the upper side stays what it is until it is asked to change; there is none at first.
    blocks : Blocks, optional
        The multipliers to start from, if they are those of these rows.
    """

    rowless = frozenset({"shape", "slopes", "blocks", "freeze"})

    def __init__(self, rows, targets, weights, objective, n_classes, frozen, blocks=None):
        self._objective = objective
        self._weights = weights
        self._n_classes = n_classes
        self._frozen = frozen
        self._codes = np.asarray(targets, dtype=np.int64)
        self._shape = {"rows": n_rows(rows), "columns_max": n_columns(rows), "weight": weights.sum()}
        self._everything = np.arange(len(weights))
        self._losses = self._width = self._move = None
        self._scores = np.empty((len(weights), n_classes))
        self._held = empty_blocks(len(weights), n_classes - 1)  # multipliers, and the upper side
        if blocks is not None and len(blocks.beta) == len(weights) and (blocks.rival[0] < 0) == frozen:
            self._held = copy(spread(blocks, n_classes - 1))
        else:
            self._held.rival[:] = -1 if frozen else 0
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
            self._width = _first_widths(self._losses, prices, long)
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

    def freeze(self, rows, top):
        """Make the highest other score of each row, or a number, the ceiling of its upper side; return what changed."""
        others = self._scores.copy()
        others[self._everything, self._codes] = -np.inf
        top = others.max(axis=1, initial=-np.inf) if top is None else np.full(len(others), top)
        changed = np.count_nonzero(self._held.ceiling != top)
        self._held.ceiling[:] = top
        return {"changed": changed}

    def curvature(self, rows, share):
        """Return rows that bend, at most this share of all, and the curvatures of every class that they stand for.

        The matrices of all classes would be more to hand on, from every part, than the rows that they are made of.
        """
        active = np.flatnonzero((self._ahead.length > 0) | (self._ahead.beta > 0.0))
        stride = max(1, -(-len(active) // max(1, round(share * len(self._codes)))))
        used = active[::stride]
        bends, means = _bend_diagonal(self._losses, self._ahead, self._width)
        if self._frozen:
            bends = np.column_stack([bends, means])
        return {"bent": [(take_rows(rows, used), stride * bends[used])]}

    def diagonal(self, rows):
        """Return the diagonal of the curvature of every class."""
        bends, _ = _bend_diagonal(self._losses, self._ahead, self._width)
        return {"diagonal": np.column_stack([gram_diagonal(rows, self._everything, bend) for bend in bends.T])}

    def blocks(self, rows):
        """Return the blocks that the last certificate is of."""
        return {"blocks": [self._ahead]}

    def _follow(self):
        """Let the upper side touch at the scores, unless it is frozen; return the rows that have a new one."""
        if self._frozen:
            return self._everything
        return _follow(self._losses, self._held, self._scores, np.empty_like(self._everything))

    def _step(self, t, which=None):
        """Make the blocks what a step leads to, those of all rows or of some."""
        which = self._everything if which is None else which
        return _steps(self._losses, self._held, self._width, self._scores, self._move, t, which, self._ahead)

    def _record(self, rows):
        V = _coefficients(self._codes, self._ahead, self._move)  # whose moves are made
        loss, true, fenchel = certify(self._losses, self._ahead, 0, self._scores)
        return {"pressure": class_sums(rows, V), "loss": loss, "true": true, "fenchel": fenchel}


def _first_widths(losses, prices, long):
    """Return the widths to begin with, from the sums, over all rows, of the prices and of prices times squares.

    As many rows as a row counts for have its width together, but for rows that outweigh many others: without any width
    to speak of, those keep their kinks, at which steps stop.
    """
    mean_square, typical = long / prices, 0.5 * losses.total / prices
    least = SETTINGS.first_width * mean_square
    scale = max(least, min(typical, mean_square) or typical)
    return np.maximum(scale / typical * 0.5 / losses.prices, 0.1 * least)


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
        if r >= 0:
            b[r] -= A * beta[i]
        n, _, beyond = block_step(low, high, prices[i], above[i], y, b, A, r, ceilings[i], order, lowered)
        own, of_row = move[i, y], 0.0
        for c in range(n):
            new_classes[at + c], new_zeta[at + c] = order[c], lowered[c]
            of_row += lowered[c] * (own - move[i, order[c]])
        new_length[i], new_beta[i] = n, beyond
        total += of_row - beyond * (own - (move[i, r] if r >= 0 else 0.0))
    return total


@njit(cache=True, nogil=True)
def _bend_diagonal(losses, blocks, width):
    """Return the diagonals of all J_i, and their sums of all entries divided by the number of classes."""
    diagonal, means = np.zeros((len(width), losses.n_classes)), np.zeros(len(width))
    for i in range(len(width)):
        n, y, r, A = blocks.length[i], losses.codes[i], blocks.rival[i], width[i]
        share, stiff = 0.0, 0.0
        if blocks.beta[i] > 0.0:
            stiff = 1.0 / ((A if r < 0 else 2.0 * A) + 0.5 / losses.above[i])
            share = A * stiff
        level = n / (A + n * (0.5 / losses.prices[i] + A * (1.0 - share)))
        for p in range(blocks.begin[i], blocks.begin[i] + n):
            diagonal[i, blocks.classes[p]] = (1.0 - 1.0 / n) / A + level / (n * n)
        diagonal[i, y] = (1.0 - share) ** 2 * level + stiff
        if r >= 0:
            diagonal[i, r] += share**2 * level + stiff
        else:
            means[i] = (share**2 * level + stiff) / losses.n_classes
    return diagonal, means


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
        if rivals[i] >= 0:
            v[rivals[i]] += beta[i]
    return V
