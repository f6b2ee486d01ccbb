r"""Semismooth Newton method for objectives with a piecewise linear slope.

Problem (:class:`~margindist.objectives.ODM`), signed rows Z with z = Zw:

    min  P(w) = ½‖w‖² + φ(z),     ∇P(w) = w − Z'a,  a = −φ'(z),     H = I + Z' diag(φ''(z)) Z

P is convex, once continuously differentiable and quadratic between the surfaces on which a margin crosses an edge of
its band. The Newton direction with an exact line search along it ends after finitely many steps, in practice two to
eight at any λ: a step that crosses no edge lands on the minimum. Only rows outside the band enter H.

Where the price is so high that rows are all but forbidden to leave the band, a step can end at the first edge, and
thousands of steps make no way. Then the method takes a path from zero instead: it minimises ½ρ‖w‖² + φ(z) for a ridge ρ
that begins where no weights are worth their length and falls to 1 by a factor of ten at a time. From one to the
next few rows change sides, so that each takes a step or two.

- Few columns: H is formed and factorised. From one step to the next only rows that changed sides are added to it or
  taken from it, so late steps cost little more than one sweep.
- Many columns: conjugate gradients on Hv = v + Z'(φ'' ∘ Zv), preconditioned by a power of the diagonal of H
  (Newton-CG), each system only roughly; when one takes as long as a factorisation would have, the rest is done by
  factorisation, of H or, with fewer rows than columns, of the inner products of the active rows.

All of it is sums over rows, so the method is written as rounds over partitions (:mod:`margindist.spaces.partitions`);
rows in memory are the case of one partition, or of a few. A step is a round ``advance`` (margins, value, gradient), a
round ``hessian`` (from files both in one, to read once) or several ``product``, a round ``along``, which multiplies the
rows with the direction, and a few ``slopes``, which need no rows. A part keeps 33 bytes per row for each problem.

**Certificate** (:mod:`margindist.objectives`). With the slopes at w for a it is P(w) − D(a) = ½‖∇P(w)‖². A direction dw
with dz = Z dw says more: a = −φ'(z) − φ''(z) ∘ dz, the slopes after a full step, gives ½ dw'H dw = ½ ∇P'H⁻¹∇P if dw is
Newton's and no row changes sides, which at a high price is far less; and at the point where the step ends it forgives
the rows that did. Any a is good for a proof. This one is tried when that number promises that it will do, and always
where it costs next to nothing beside a step or where steps are hard to find. Conjugate gradients leave a residual r and
½‖r‖² in the gap; no proof is tried while that is too long.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from margindist.compilation import njit
from margindist.objectives import compiled_for, of_some, row_slope
from margindist.solvers._factors import KeptFactor, nearest_cholesky
from margindist.solvers._solution import Solution, Status, conclude, gap_to_reach, require
from margindist.solvers.conjugate_gradients import ConjugateGradients
from margindist.spaces.partitions import Round, drive, in_memory
from margindist.spaces.rows import (
    BLAS,
    add_gram,
    add_rows,
    are_few,
    gram_diagonal,
    gram_operations,
    gram_product,
    inner_products,
    n_columns,
    n_rows,
    n_stored,
    row_add,
    row_dot,
    scores,
)


class Settings(NamedTuple):
    """How steps are taken and systems solved, and when that gets nowhere."""

    largest_factor: int = 6000  # order above which no matrix is factorised (290 MB)
    few_columns: int = 2000  # of which a factorisation is no matter
    few_sweeps: int = 60  # conjugate gradients are not tried where a factorisation costs no more sweeps than this
    precision: float = 1e-3  # of the slope along a step, and of a system where nothing but the proof is missing
    often: int = 5  # times the sweeps that a factorisation costs, which conjugate gradients may take in all
    forcing: float = 0.05  # how far these reduce the residual at best, its root at worst: the further, the more helps
    scaling: float = 0.85  # power of the diagonal by which residuals are divided
    trials: int = 30  # of a step's length, beyond which rounding hides it; ten as a rule
    short_step: float = 0.01  # share of Newton's direction below which edges are in the way
    long_step: float = 0.5  # share with which it leads to the minimum, or next to it
    ridge_falls: float = 0.1  # factor of the ridge, once no larger part of the value is left to gain
    patience: int = 50  # steps that neither halve the gap nor take a hundredth off the value; hidden ones count tenfold


SETTINGS = Settings()


def solve(problem, options, start=None):
    """Minimise a piecewise quadratic objective.

    Parameters
    ----------
    problem : Problem
        Any objective that :func:`~margindist.objectives.row_slope` knows, on rows.
    options : Options
        One iteration is a Newton step. The gap to reach is relative to the objective and to what is gained over weights
        of zero. Choices are ``method``, how the Newton systems are solved ("auto", "factor", "row-factor" or "cg"), and
        ``shared``, a dict that keeps what serves other problems on the same rows too.
    start : Solution, optional
        Whose coefficients to start from.

    Returns
    -------
    Solution
        Its ``dual`` is the negative slope of the loss at each margin.
    """
    objective, rows, signs, weights = problem
    method, shared = options.chosen(method="auto", shared=None)
    place = in_memory(rows, signs, weights, options.n_jobs)
    try:
        (result,) = _solve(place, objective, [None], [options], [start], method, shared, in_files=False)
        return result
    finally:
        place.close()


def solve_in_place(place, objective, positives, options, starts=None):
    """Minimise a piecewise quadratic objective on partitions, for several classes against the rest in common sweeps.

    Parameters
    ----------
    place : place
        Where the partitions are (:mod:`margindist.spaces.partitions`).
    objective : objective
        As for :func:`solve`.
    positives : sequence
        The code of the positive class of each problem; None if the targets are signs.
    options : sequence of Options
        One per problem.
    starts : sequence of Solution, optional
        Whose coefficients to start from.

    Returns
    -------
    list of Solution
        Without their ``dual``, which stays with the rows.
    """
    return _solve(place, objective, positives, options, starts or [None] * len(positives), "auto", None, in_files=True)


def _solve(place, objective, positives, options, starts, method, shared, in_files):
    require(objective, "Newton's method", "curvature", "row_slope")
    arguments = [(objective, positive, shared) for positive in positives]
    coefs = [None if start is None else start.coef for start in starts]
    return drive(
        place, SmoothPart, arguments, lambda k, coef: _rounds(objective, options[k], coef, method, in_files), coefs
    )


# ---------------------------------------------------------------------- the driver: a generator of rounds


def _rounds(objective, options, start, method, in_files):
    """Take Newton steps in rounds; return the best point with its certificate."""
    tol, max_iter, report = options.tol, options.limit(), options.report
    shape = yield Round("shape")
    total = shape["weight"]
    at_zero = (yield Round("at_zero", (total,)))["loss"]
    direction = _choose(shape, method, in_files)
    w = np.zeros(shape["columns_max"]) if start is None else np.array(start, dtype=np.float64)
    ended, best, hidden = Status.ITERATION_LIMIT, None, False
    ahead, by_slopes = None, True  # the dual point of the last step, and whether the best point does without
    marks, path = _Milestones(), _Path()
    for n_iter in range(max_iter + 1):
        now = yield Round("advance", (w, total, direction.at_once), w)
        gradient = w - now["pressure"]
        value = 0.5 * (w @ w) + now["loss"]
        gap, slopes_do = 0.5 * (gradient @ gradient) / value, True
        if ahead is not None:
            ahead = ahead | (yield Round("apart", (total,)))
            gap, slopes_do = min((gap, True), (_foreseen_gap(w, ahead, value), False))
        if report is not None and report(n_iter, w, value, gap):
            ended = Status.STOPPED
        if best is None or value < best.objective or gap <= gap_to_reach(tol, value, at_zero):
            best, by_slopes = Solution(w, None, value, gap), slopes_do
        if marks.have_ended(value, gap, hidden, path.ridge == 1.0):
            ended = Status.STALLED
        enough = gap_to_reach(tol, best.objective, at_zero)
        if ended is not Status.ITERATION_LIMIT or gap <= enough or n_iter == max_iter:
            break
        gradient += (path.ridge - 1.0) * w
        goal = enough * value if path.ridge == 1.0 else np.inf
        dw = yield from direction(now, gradient, path.ridge, goal)
        step, hidden = yield from exact_step(w, dw, gradient @ dw, total, ridge=path.ridge)
        promised, ahead = -0.5 * (gradient @ dw), None
        looks = direction.foresees or path.begun or promised <= enough * value
        in_time = not (marks.in_vain or hidden or n_iter + 1 == max_iter)  # the gap of a last step is told in any case
        if path.ridge == 1.0 and looks and not (in_time and direction.left > goal):
            ahead = yield Round("foresee", (total,))
            if _foreseen_gap(w, ahead, value) <= enough:
                best, by_slopes = Solution(w, None, value, _foreseen_gap(w, ahead, value)), False
                break
        w = w + step * dw  # margins are computed anew: the rounding of long steps would stay in the certificate
        if start is None and path.begins(step, w @ w, at_zero):
            w, marks, ahead = np.zeros_like(w), _Milestones(), None
        else:
            path.advance(step, promised, now["loss"] + 0.5 * path.ridge * (w @ w))
    if not in_files:
        elsewhere = None if best.coef is w else best.coef  # parts keep the dual point of the last step only
        by_slopes = by_slopes or elsewhere is not None
        result = yield Round("multipliers", (elsewhere, total, by_slopes), best.coef)
        best = best._replace(dual=np.concatenate(result["dual"]))
    return conclude(best._replace(n_iter=n_iter), enough, ended)


def _foreseen_gap(w, ahead, value):
    """Return the relative gap that a dual point proves which a step foresaw."""
    off = w - ahead["pressure"]
    return (0.5 * (off @ off) + ahead["apart"]) / value


class _Path:
    """The ridge ρ, 1 unless a step was too short to lead anywhere."""

    def __init__(self):
        self.ridge = 1.0
        self.begun = False
        self._steps = 0

    def begins(self, step, square, at_zero):
        """Tell whether a step shows that the path is needed: it begins at zero, where weights cost what losses do."""
        if self.begun or step >= SETTINGS.short_step or square == 0.0:
            return False
        self.ridge, self.begun = max(1.0, 2.0 * at_zero / square), True
        return True

    def advance(self, step, promised, value):
        """Count a step by its length and what a full one promised of the value; choose the ridge of the next one."""
        self._steps += 1
        near = step > SETTINGS.long_step or promised <= SETTINGS.ridge_falls * value
        if near or self._steps == SETTINGS.patience:
            self.ridge, self._steps = max(1.0, SETTINGS.ridge_falls * self.ridge), 0


class _Milestones:
    """Counts steps since the value or the gap last fell by what shows: exact steps take two to eight in all."""

    def __init__(self):
        self._value = self._gap = self._last = np.inf
        self._count, self.in_vain = 0, False

    def have_ended(self, value, gap, hidden, falls):
        """Count a step; tell whether there was no progress for too long. A value that ``falls`` does so in each step.

        Where it does not, or rounding hides the length of a step, rounding is all that is left.
        """
        self.in_vain = falls and value >= self._last
        self._last = value
        self._count += 10 if hidden or self.in_vain else 1
        if value < 0.99 * self._value or gap < 0.5 * self._gap:
            self._value, self._gap, self._count = min(value, self._value), min(gap, self._gap), 0
        return self._count >= SETTINGS.patience


def exact_step(w, dw, first, *args, ridge=1.0):
    """Return the minimiser of P(w + t dw), nearly, and whether rounding hides where it is.

    It is the root of an increasing, piecewise linear slope in t. ``first`` is the slope at t = 0. It is the slope that
    has to become small, not the change of t: where the curvature grows a millionfold at an edge, the least bit beyond
    the root can lead above the start. Parts answer to ``along(dw, t, *args)`` and then ``slopes(t, *args)`` with the
    loss's derivatives along dw.
    """
    linear, square = ridge * (w @ dw), ridge * (dw @ dw)
    low, high, t = 0.0, np.inf, 1.0
    here = yield Round("along", (dw, t, *args))
    for _ in range(SETTINGS.trials):
        slope, bend = here["slope"] + linear + t * square, here["bend"]
        if abs(slope) <= SETTINGS.precision * abs(first):
            return t, False
        low, high = (t, high) if slope < 0.0 else (low, t)
        ahead = t - slope / (bend + square)
        if not low < ahead < high:
            ahead = _between(low, high) if np.isfinite(high) else t
        if ahead == t:
            break
        t = ahead
        here = yield Round("slopes", (t, *args))
    return low, True  # up to here P falls


def _between(low, high):
    """Return a number between two, in the middle of their logarithms where they differ in magnitude."""
    if high <= 10.0 * low:
        return 0.5 * (low + high)
    return np.sqrt(low * high) if low > 0.0 else 1e-3 * high


def _choose(shape, method, in_files):
    """Return what turns a gradient into a Newton direction, by counting operations if not told."""
    if method != "auto":
        return {"factor": _Factor, "row-factor": _RowFactor, "cg": _Conjugate}[method](in_files)
    cheapest, sweeps = _cheapest(shape)
    return cheapest(in_files) if sweeps <= SETTINGS.few_sweeps else _Conjugate(in_files, cheapest, sweeps)


def _cheapest(shape):
    """Return the way to factorise that takes the fewest operations, and what it costs in sweeps over the rows."""
    m, d = shape["rows"], shape["columns_max"]
    alone = shape["parts"] == 1  # inner products of rows in different partitions are nobody's
    costs = {
        _Factor: shape["products"] + d**3 / (3.0 * BLAS) if d <= SETTINGS.largest_factor else np.inf,
        _RowFactor: m**3 / (3.0 * BLAS) if m <= SETTINGS.largest_factor and alone else np.inf,
    }
    cheapest = min(costs, key=costs.get)
    return cheapest, costs[cheapest] / (shape["stored"] + 0.5 * m)  # a sweep's operation is half a product's


def is_affordable(rows):
    """Tell whether steps are cheap enough to find the minimum sooner than many passes over the rows would."""
    m, d = n_rows(rows), n_columns(rows)
    return (
        d <= SETTINGS.few_columns
        or d <= min(m, SETTINGS.largest_factor)
        or _cheapest(_shape(rows, np.ones(m)))[1] <= SETTINGS.few_sweeps
    )


class _Factor:
    """Newton directions by a Cholesky factor of H, whose Gram part is kept up to date between steps."""

    foresees = False  # whether a look ahead costs next to nothing
    left = 0.0  # ½‖r‖² of the residual that the direction leaves

    def __init__(self, in_files):
        self.at_once = in_files  # whether a round that reads the rows anyway shall also return what H changes by
        self._gram = 0.0

    def __call__(self, now, gradient, ridge, goal):
        """Return the direction."""
        if "gram" not in now:  # only rows that changed sides, unless those are many
            afresh = 2 * now["changed"] > now["active"]
            now = yield Round("hessian", (afresh,))
            if afresh:
                self._gram = 0.0
        self._gram = self._gram + now["gram"]
        system = self._gram.copy()
        system.flat[:: len(system) + 1] += ridge
        return -cho_solve(nearest_cholesky(system), gradient, check_finite=False)


class _RowFactor:
    """Newton directions through the inner products of the active rows, for fewer rows than columns.

    By Woodbury's formula ``ρH⁻¹g = g − Z'(ρ/φ'' + ZZ')⁻¹Zg``. The rows, which have them, are in one partition.
    """

    at_once, foresees, left = False, True, 0.0

    def __init__(self, in_files):
        pass

    def __call__(self, now, gradient, ridge, goal):
        """Return the direction."""
        result = yield Round("row_direction", (gradient, ridge))
        return result["direction"]


class _Conjugate:
    """Newton directions by preconditioned conjugate gradients, until a factorisation would have been cheaper.

    A power of the diagonal scales, for two aims: with all of it values fall in the fewest steps where columns differ in
    size, without any of it the residual does, which stays in the gap. Where less is left to gain than the gap may be,
    all that is missing is the proof: then the residual is made short enough for that.
    """

    at_once, foresees = False, True

    def __init__(self, in_files, cheapest=None, limit=np.inf):
        self._cheapest = cheapest
        self._most = limit if cheapest is _RowFactor else SETTINGS.often * limit  # inner products are there for good
        self._last = np.inf  # length of the gradient a step before
        self._successor = None
        self.left = 0.0

    def __call__(self, now, gradient, ridge, goal):
        """Return the direction, roughly."""
        self.left = 0.0
        if self._successor is not None:
            return (yield from self._successor(now, gradient, ridge, goal))
        scales = (ridge + (yield Round("diagonal"))["diagonal"]) ** SETTINGS.scaling
        gradients = ConjugateGradients(-gradient, lambda residual: residual / scales)
        size = np.linalg.norm(gradient)
        enough = np.clip(size / self._last, SETTINGS.forcing, np.sqrt(SETTINGS.forcing)) ** 2 * gradients.square
        least = SETTINGS.precision**2 * gradients.square
        self._last = size
        promised = 0.0
        self.left = 0.5 * size**2
        while gradients.square > (least if promised <= goal < self.left else enough):
            toward, square = gradients.direction, gradients.square
            gradients.step(ridge * toward + (yield Round("product", (toward,)))["image"])
            self.left = 0.5 * (gradients.residual @ gradients.residual)
            promised += 0.5 * gradients.length * square
            self._most -= 1
            if self._most <= 0:
                self._successor = self._cheapest(False)
                break
        return gradients.solution


# ---------------------------------------------------------------------- a part: margins and the rounds on them


class SmoothPart:
    """What the method keeps of one partition: margins, those of the direction, and the curvatures in H.

    Parameters
    ----------
    rows, targets, weights : rows and arrays
        The partition.
    objective : objective
        With a piecewise linear slope.
    positive : int, optional
        Code of the positive class; None if the targets are signs.
    shared : dict, optional
        Keeps the inner products of the rows.
    """

    rowless = frozenset({"shape", "at_zero", "slopes", "apart"})

    def __init__(self, rows, targets, weights, objective, positive=None, shared=None):
        self._given = targets if positive is None else np.where(targets == positive, 1, -1).astype(np.int8)
        self._weights = weights
        self._objective = objective
        self._shared = {} if shared is None else shared
        self._shape = _shape(rows, weights)
        self._few = are_few(rows)
        self._margins = np.zeros(len(weights))
        self._move = np.zeros(len(weights))
        self._in_system = np.zeros(len(weights))  # curvatures that are in H
        self._curvatures = None  # those at the margins,
        self._active = None  # and which of them are not zero
        self._factor = KeptFactor()

    def shape(self, rows):
        """Return what there is: numbers of rows, columns and stored values, weight, and work for a Gram product."""
        return self._shape

    def at_zero(self, rows, total):
        """Return the loss of weights of zero."""
        return {"loss": of_some(self._objective.losses, np.zeros(len(self._weights)), self._weights, total).sum()}

    def advance(self, rows, w, total, with_gram):
        """Compute the margins; return loss and gradient there, and with the Gram product what H changes by."""
        z, weights, objective = self._margins, self._weights, self._objective
        self._curvatures = np.empty(len(z))
        pressure = np.zeros(len(w))
        if self._few:
            self._score(rows, w, z)
            self._curvatures[:] = of_some(objective.curvature, z, weights, total)
            slopes = of_some(objective.slope, z, weights, total)
            add_rows(rows, np.arange(len(z)), -self._given * slopes, pressure)
        else:
            sweep = compiled_for(objective, _sweep)
            sweep(objective, rows, self._given, weights, total, w, z, self._curvatures, pressure)
        self._active = np.flatnonzero(self._curvatures)
        record = {
            "loss": of_some(objective.losses, z, weights, total).sum(),
            "pressure": pressure,
            "changed": np.count_nonzero(self._curvatures != self._in_system),
            "active": len(self._active),
        }
        if with_gram:
            record |= self.hessian(rows, afresh=False)
        return record

    def _score(self, rows, w, out):
        """Fill in the margins of all rows."""
        if w.any():
            scores(rows, w, out)
            out *= self._given
        else:
            out[:] = 0.0

    def hessian(self, rows, afresh):
        """Return the Gram product of the active rows, or by what it changes."""
        d = n_columns(rows)
        change = self._curvatures if afresh else self._curvatures - self._in_system
        lower = np.zeros((d, d))
        for sign in (1.0, -1.0):
            which = np.flatnonzero(sign * change > 0.0)
            if len(which):
                add_gram(rows, which, sign * change[which], sign, lower)
        self._in_system = self._curvatures
        return {"gram": lower}

    def diagonal(self, rows):
        """Return the diagonal of the Gram product of the active rows."""
        return {"diagonal": gram_diagonal(rows, self._active, self._curvatures[self._active])}

    def product(self, rows, v):
        """Return the Gram product of the active rows times a vector."""
        return {"image": gram_product(rows, self._active, self._curvatures[self._active], v, np.zeros(len(v)))}

    def row_direction(self, rows, gradient, ridge):
        """Return the Newton direction by inner products of the active rows, which must be all there are."""
        if "products" not in self._shared:
            everything = np.arange(n_rows(rows))
            self._shared["products"] = inner_products(rows, everything, everything)
        active = self._active
        solve = self._factor.solver(self._shared["products"], active, ridge / self._curvatures[active])
        scores(rows, gradient, images := np.empty(len(self._weights)))
        coefs = np.zeros(len(images))  # of all rows: to copy the active ones would take longer
        coefs[active] = solve(images[active])
        return {"direction": add_rows(rows, np.arange(len(coefs)), coefs, -gradient) / ridge}

    def along(self, rows, dw, t, total):
        """Multiply the rows with a direction; return the loss's derivatives along it."""
        self._score(rows, dw, self._move)
        return self.slopes(rows, t, total)

    def slopes(self, rows, t, total):
        """Return first and second derivative of the loss along the direction."""
        objective, weights, dz = self._objective, self._weights, self._move
        if self._few:
            z = self._margins + t * dz
            slope = of_some(objective.slope, z, weights, total) @ dz
            bend = of_some(objective.curvature, z, weights, total) @ dz**2
        else:
            slope, bend = compiled_for(objective, _slope_along)(objective, weights, total, self._margins, dz, t)
        return {"slope": slope, "bend": bend}

    def foresee(self, rows, total):
        """Return what a certificate needs of the slopes after a full step if no row changed sides, its dual point."""
        objective, weights, z, dz = self._objective, self._weights, self._margins, self._move
        slopes, curvatures = (of_some(f, z, weights, total) for f in (objective.slope, objective.curvature))
        far = np.sqrt(np.finfo(float).max)  # beyond all edges
        least, most = (of_some(objective.slope, np.full(len(z), end), weights, total) for end in (-far, far))
        self._foreseen = a = -np.clip(slopes + curvatures * dz, least, most)  # no slope is beyond these
        pressure = add_rows(rows, np.arange(len(a)), self._given * a, np.zeros(self._shape["columns_max"]))
        return {"pressure": pressure, **self.apart(rows, total)}

    def apart(self, rows, total):
        """Return the certificate's sum over the rows: how far that dual point and the margins are from belonging."""
        objective, weights, z, a = self._objective, self._weights, self._margins, self._foreseen
        gaps = of_some(objective.losses, z, weights, total) + of_some(objective.conjugates, a, weights, total) + a * z
        return {"apart": np.maximum(gaps, 0.0).sum()}

    def multipliers(self, rows, w, total, by_slopes):
        """Return the negative slope of each row's loss, at other weights if they are given, or what was foreseen."""
        if not by_slopes:
            return {"dual": [self._foreseen]}
        if w is not None:
            self._score(rows, w, self._margins)
        return {"dual": [-of_some(self._objective.slope, self._margins, self._weights, total)]}


def _shape(rows, weights):
    sizes = {"rows": n_rows(rows), "columns_max": n_columns(rows), "stored": n_stored(rows)}
    sizes["products"] = gram_operations(rows)
    return {**sizes, "parts": 1, "weight": weights.sum()}


@njit(cache=True, nogil=True)
def _slope_along(objective, weights, total, z, dz, t):
    """Return first and second derivative of the loss along z + t dz."""
    slope, bend = 0.0, 0.0
    for i in range(len(z)):
        rate, curvature = row_slope(objective, z[i] + t * dz[i], weights[i], total)
        slope += rate * dz[i]
        bend += curvature * dz[i] * dz[i]
    return slope, bend


@njit(cache=True, nogil=True)
def _sweep(objective, rows, signs, weights, total, w, z, curvatures, pressure):
    """Fill margins and curvatures, and add up the rows times their negative slopes: each row is read once for all."""
    for i in range(len(z)):
        z[i] = signs[i] * row_dot(rows, i, w)
        rate, curvatures[i] = row_slope(objective, z[i], weights[i], total)
        if rate != 0.0:
            row_add(rows, i, -signs[i] * rate, pressure)
