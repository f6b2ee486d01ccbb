r"""Mehrotra's predictor-corrector method for hinge-type objectives with few columns.

Problem (:class:`~margindist.objectives.LDM`), signed rows Z, upper bounds U = C s:

    min  ½ w'Qw − q'w + Σ_S U_i ξ_i    s.t.  z_i − 1 + ξ_i = s_i,  s ≥ 0,  ξ ≥ 0  (i in S)

Mean and variance go into Q = I + Z'PZ and q = λ2 Z'p once and for all. Optimality, with multipliers β of the first
and e = U − β of the second inequality, and the Newton system that is left when all but dw is eliminated:

    Qw = q + Z_S'β,   s∘β = μ,   ξ∘e = μ
    (Q + Z_S'TZ_S) dw = q − Qw + Z_S'(β + tρ),   t_i = 1/(s_i/β_i + ξ_i/e_i),   dβ = t∘(ρ − Z_S dw),

with ρ = 1 − z for the predictor (Mehrotra 1992). A hard margin has no ξ: t = β/s. The number of iterations hardly
depends on C, where coordinate descent needs the more passes the larger C is.

The Gram product Z_S'TZ_S is nearly all the cost, so the *working set* S leaves out rows that are plainly on one side
of margin 1: those beyond it cost nothing, those short of it add U_i z_i to q'w. Rows join it as soon as they change
sides. Rows that leave or join have their multipliers moved, and with them the residual of Qw = q + Z'β, by a fraction
of what is left of the way at most: where C is large, a few rows could undo many iterations. The gap that ends the
iteration counts all rows.

All of it is sums over rows, so the method is written as rounds over partitions (:mod:`margindist.spaces.partitions`);
rows in memory are the case of one partition, or of a few. A part keeps its own working set. An iteration is three
sweeps over the working set, one round each:

- ``advance``: take the step, make the working set smaller where rows have settled, linearise, and return the Gram
  product together with the predictor's right-hand side and Z'β, as two columns more of the same product;
- ``predict``: the predictor, and the corrector's right-hand side in the same sweep: it depends on the target, which
  is known only when all parts have answered, as v + target v', so both vectors are returned;
- ``direct``: the corrected direction, and how far the rows let it go.

``look`` is ``advance`` with a look at the rows outside the working set. The first guess comes from a sample of the
rows, a fixed share of every partition, which is followed in the same rounds; its margins also say how far from margin
1 the quarter of all rows reaches that is worked on first.

What a part keeps: the labels' signs and two flags per row (3 bytes; in memory the signs are those given), and 15
numbers (120 bytes) per row of the working set, which is a quarter of the rows or less where there are many: about 35
bytes per row, for each two-class problem, beside labels and weights.

Fewer rows than columns span a subspace in which the weights lie: with the rows' coordinates in an orthonormal basis of
it, from one QR factorisation, the Gram product has the size of the rows.

The products s_i β_i and ξ_i e_i aim at μ times the row's weight: then a row of weight two takes, at every iteration,
the very values that two equal rows take. Where weights differ by orders of magnitude, the path that leads through such
products is long and crooked; there all products aim at the same.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from margindist.certificate import CertifiedPart, certified
from margindist.solvers._interior_sweeps import Point, Residuals, WorkingSet, as_record, direct, linearise, predict
from margindist.solvers._solution import Status, conclude, proved, require
from margindist.solvers._span import solve_in_span
from margindist.spaces.partitions import Round, drive, in_memory
from margindist.spaces.rows import (
    add_rows,
    are_few,
    gram,
    n_columns,
    n_rows,
    some_scores,
    stored_bytes,
    take_rows,
    weighted_system,
)


class Settings(NamedTuple):
    """What the method can be tuned by."""

    most_iterations: int = 1000
    step: float = 0.995  # fraction of the way to the boundary that a step goes
    enough: float = 0.5  # fraction of the tolerance at which to end
    patience: int = 30  # iterations without progress after which to end
    feasible: float = 1e-9  # a hard margin may be short by this before the result is scaled
    look_every: int = 3  # iterations between two looks at the rows outside the working set, while none of them joins it
    move: float = 0.3  # how far rows that leave or join may move the residual, relative to what is left of the way
    near_bound: tuple = (1e-3, 1e-4, 1e-5)  # how near to its bound a multiplier must be for its row to leave
    sample_above: int = 20_000  # rows from which on a first guess from a sample of them pays
    sample_tol: float = 1e-2
    nearest: float = 0.25  # fraction of the rows, nearest to margin 1, to work on first; a larger sample is not cheap
    unlike: float = 100.0  # weights that differ by this factor have products that aim at the same


SETTINGS = Settings()
_SKETCH = 257  # numbers that stand for the distribution of a part's margins


def solve(problem, options, start=None):
    """Minimise a hinge-type objective; cost an iteration is one Gram product of the columns.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective (:class:`~margindist.objectives.LDM`) on rows.
    options : Options
        One iteration is one Newton system; the generator draws the rows of a first guess.
    start : Solution, optional
        Whose coefficients to start from.

    Returns
    -------
    Solution
    """
    objective, rows, signs, weights = problem
    require(objective, "The interior point method", "upper_bound", "variance_weight", "mean_weight")
    if n_rows(rows) < n_columns(rows):
        return solve_in_span(solve, problem, options, start)
    place = in_memory(rows, signs, weights, options.n_jobs)
    place.spare_bytes = stored_bytes(rows) if are_few(rows) else 0  # NumPy would copy them in every sweep
    try:
        (result,) = solve_in_place(place, objective, [None], [options], [start], with_dual=True)
        return result
    finally:
        place.close()


def solve_in_place(place, objective, positives, options, starts=None, *, with_dual=False):
    """Minimise a hinge-type objective on partitions, for several classes against the rest in common sweeps.

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
    with_dual : bool
        Whether solutions have their multipliers, one number per row and problem, which are brought here for that.

    Returns
    -------
    list of Solution
    """
    require(objective, "The interior point method", "upper_bound", "variance_weight", "mean_weight")
    spare = getattr(place, "spare_bytes", 0) // max(1, len(positives))
    arguments = [(objective, positive, spare) for positive in positives]
    seeds = [int(each.generator().integers(2**31)) for each in options]
    coefs = [None if start is None else start.coef for start in starts or [None] * len(positives)]
    return drive(
        place, HingePart, arguments, lambda k, coef: _rounds(objective, options[k], coef, seeds[k], with_dual), coefs
    )


def has_cheap_start(rows):
    """Tell whether the method's own start is cheap: not where a sample that tells of so many columns is most rows."""
    m = n_rows(rows)
    return m <= SETTINGS.sample_above or sample_size(m, n_columns(rows)) < SETTINGS.nearest * m


def quadratic_part(objective, rows, everything, signs, weights):
    """Return Q (lower triangle filled up) and q: the objective without its hinge."""
    mean_row = add_rows(rows, everything, weights * signs, np.zeros(n_columns(rows))) / weights.sum()
    second = gram(rows, everything, weights / weights.sum()) if objective.variance_weight > 0.0 else None
    return _quadratic(objective, mean_row, second)


def _quadratic(objective, mean_row, second_moments):
    """Return Q and q from the means of the signed rows and of their products (lower triangle)."""
    Q = np.eye(len(mean_row))
    if second_moments is not None:
        variance = objective.variance_weight * second_moments - objective.variance_weight * np.outer(mean_row, mean_row)
        Q += np.tril(variance) + np.tril(variance, -1).T
    return Q, objective.mean_weight * mean_row


# ---------------------------------------------------------------------- the driver: a generator of rounds


def _rounds(objective, options, start, seed, with_dual):
    """Follow the central path of a problem in rounds; return its certified solution."""
    first = yield Round("moments", (objective.variance_weight > 0.0,))
    total = first["weight"]
    mean_row = first["row"] / total
    second = first["gram"] / total if objective.variance_weight > 0.0 else None
    Q, q = _quadratic(objective, mean_row, second)
    guess, nearest, half, centre = start, np.inf, _margin_scale(objective, Q, q, mean_row), 0.0
    if guess is None and first["rows"] > SETTINGS.sample_above and not objective.hard:
        guess, nearest = yield from _guess_from_sample(Q, q, first["rows"], seed, half)
        half = nearest
    elif guess is not None:
        seen = yield Round("distances", (guess,), guess)
        nearest = max(0.0, _merged_quantile(seen["sketch"], SETTINGS.nearest))
        half = max(nearest, -seen["beyond_min"]) if objective.hard else nearest
    if guess is not None:
        half, centre = half + 1e-3, 0.5
    opened = yield Round("open", (guess, nearest, half, centre), guess)
    limit = options.limit(SETTINGS.most_iterations)
    enough = SETTINGS.enough * options.tol
    w, n_iter, ended = yield from _path(Q, q, opened, half, centre, enough, limit, options.report)
    result = proved((yield from certified(objective, w, mean_row, total)), None)
    if with_dual:
        beta = yield Round("multipliers", (), result.coef)
        result = result._replace(dual=np.concatenate(beta["beta"]))
    return conclude(result._replace(n_iter=n_iter), options.tol, ended)


def _margin_scale(objective, Q, q, mean_row):
    """Return how far margins reach at first: to 1, or to the mean that a reward for it has them without a hinge.

    With the other end of that range at multiplier U, and 1 at multiplier 0, the first parabolas are made.
    """
    if objective.mean_weight == 0.0:
        return 1.0
    reach = mean_row @ cho_solve(_factorise(Q.copy()), q, check_finite=False)
    return max(1.0, reach) if np.isfinite(reach) else 1.0


def _guess_from_sample(Q, q, m, seed, half):
    """Solve roughly on some rows that stand for all; return the weights, and how far from 1 the nearest quarter is."""
    enough = SETTINGS.enough * SETTINGS.sample_tol
    opened = yield Round("open_sample", (sample_size(m, len(q)) / m, seed, half))
    guess, _, _ = yield from _path(Q, q, opened, half, 0.0, enough, SETTINGS.most_iterations, None)
    seen = yield Round("working_distances", (), guess)
    return guess, _merged_quantile(seen["sketch"], SETTINGS.nearest)


def sample_size(m, d):
    """Return how many of m rows of d columns make a first guess."""
    return min(m / 3, max(60 * d, m / 16))


def _merged_quantile(sketches, share):
    """Return the quantile of a distribution from the quantiles of its parts."""
    values = np.concatenate([quantiles for _, quantiles in sketches])
    counts = np.concatenate([np.full(len(quantiles), m / len(quantiles)) for m, quantiles in sketches])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order])
    return values[order][min(np.searchsorted(reached, share * reached[-1]), len(values) - 1)]


def _path(Q, q, opened, half, centre, tol, max_iter, report):
    """Follow the central path on what the parts have opened; return coefficients, iterations and how it ended."""
    right = opened["rhs"] + opened["pull"] + q
    w = cho_solve(_factorise(opened["gram"] + Q), right, check_finite=False)
    now = yield Round("begin", (w, half, centre), w)
    ended, looked, since_look = Status.STALLED, True, 0
    least, since = np.inf, 0  # what the products and the residual came down to, and the iterations since then
    for n_iter in range(max_iter + 1):
        residual, value, gap = _where(Q, q, w, now)
        move = SETTINGS.move * np.sqrt(2.0 * _left(residual, now)) / (now["inside"] + now["outside"])
        if gap <= tol * abs(value) and now["outside"] and not looked:
            now = yield Round("look", (0.0, w, False, move, now["slack_products"] / now["weight"]), w)
            residual, value, gap = _where(Q, q, w, now)
        if now["joined"]:
            gap = least = np.inf
        if report is not None and report(n_iter, w, value, gap / abs(value)):
            ended = Status.STOPPED
            break
        if gap <= tol * abs(value):
            break
        if n_iter == max_iter:
            ended = Status.ITERATION_LIMIT
            break
        left = _left(residual, now)
        since = 0 if left < 0.9 * least else since + 1
        least = min(left, least)
        if since > SETTINGS.patience:
            break
        try:
            dw, step = yield from _direction(Q, residual, now)
        except (LinAlgError, ArithmeticError):  # no digits are left; what was reached still has its certificate
            break
        if step == 0.0:
            break
        w = w + step * dw
        shrink = gap <= 0.1 * abs(value)
        since_look = 0 if looked else since_look + 1
        looked = bool(now["outside"]) and (since_look + 1 >= SETTINGS.look_every or now["joined"] > 0)
        if looked:
            now = yield Round("look", (step, w, shrink, move, now["slack_products"] / now["weight"]), w)
        else:
            now = yield Round("advance", (step, shrink, move), w)
    return w, n_iter, ended


def _where(Q, q, w, now):
    """Return the residual of Qw = q + Z'beta, the objective's value and the gap."""
    pull, Qw = q + now["pull"], Q @ w
    residual = pull + now["pressure"] - Qw
    value = 0.5 * (w @ Qw) - pull @ w + now["lost"] + now["loss"]
    gap = np.inf if now["short_max"] > SETTINGS.feasible else now["excess"] + 0.5 * (residual @ residual)
    return residual, value, gap


def _left(residual, now):
    """Return what is left of the way, in units of the gap: the products, and what the residual adds."""
    return now["products"] + 0.5 * (residual @ residual)


def _direction(Q, residual, now):
    """Return Mehrotra's direction in w, which the parts know in their variables, and how far to go along it."""
    factor = _factorise(now["gram"] + Q)
    dw = cho_solve(factor, now["rhs"] + residual, check_finite=False)
    ahead = yield Round("predict", (dw,))
    target = (_products_after(ahead) / ahead["products"]) ** 3 * ahead["products"] / now["pairs"]
    dw = cho_solve(factor, residual + ahead["plain"] + target * ahead["aimed"], check_finite=False)
    room = yield Round("direct", (dw, target))
    if not np.isfinite(dw).all():
        return dw, 0.0
    return dw, min(1.0, SETTINGS.step * room["room_min"])


def _products_after(sums):
    """Return the sum of all products after the longest steps along the predictor."""
    primal, dual = min(1.0, sums["primal_min"]), min(1.0, sums["dual_min"])
    return sums["products"] + primal * sums["by_primal"] + dual * (sums["by_dual"] + primal * sums["by_both"])


def _factorise(system):
    """Return the Cholesky factor of a matrix whose lower triangle is filled, in its place."""
    return cho_factor(system.T, lower=False, overwrite_a=True, check_finite=False)


# ---------------------------------------------------------------------- a part: rows' variables and the rounds on them


class HingePart(CertifiedPart):
    """What the method keeps of one partition: the working set and its variables.

    Parameters
    ----------
    rows, targets, weights : rows and arrays
        The partition.
    objective : objective
        A hinge with mean and variance.
    positive : int, optional
        Code of the positive class; None if the targets are signs.
    spare_bytes : int
        Memory for a copy of the working set's rows: with it, most rounds need no rows.
    """

    def __init__(self, rows, targets, weights, objective, positive=None, spare_bytes=0):
        super().__init__(targets, weights, objective, positive)
        self._spare = spare_bytes * n_rows(rows) / max(1, stored_bytes(rows))  # rows that a copy may have
        self._copied = None
        self._inside = np.ones(len(weights), dtype=bool)
        self._short = np.zeros(len(weights), dtype=bool)
        self._working = self._point = self._curvature = self._residuals = self._direction = None

    @property
    def rowless(self):
        """Rounds that need no rows: those on the working set, if it was copied."""
        always = {"working_distances", "multipliers"}
        if self._copied is None:
            return always
        return always | {"advance", "predict", "direct"} | ({"begin"} if self._sampled else set())

    @property
    def _signs(self):
        return self._given.astype(np.float64, copy=False)

    # ------------------------------------------------------------------ the problem

    def moments(self, rows, with_gram):
        """Return the number and weight of the rows, their signed sum, and their Gram product."""
        signed = self._weights * self._signs
        record = {"rows": len(signed), "weight": self._weights.sum()}
        if with_gram:
            nothing = np.zeros(len(signed))
            record["gram"], record["row"], _ = weighted_system(rows, self._everything, self._weights, signed, nothing)
        else:
            record["row"] = add_rows(rows, self._everything, signed, np.zeros(n_columns(rows)))
        return record

    def open_sample(self, rows, fraction, seed, half):
        """Work on some rows that stand for all of this part."""
        m = len(self._weights)
        rng = np.random.default_rng([seed, m])
        which = np.sort(rng.choice(m, int(np.ceil(fraction * m)), replace=False))
        scale = self._weights.sum() / self._weights[which].sum()
        self._pull, self._lost = np.zeros(n_columns(rows)), 0.0
        self._choose(rows, which, scale)
        self._sampled = True
        return self._parabolas(rows, half, 0.0)

    def distances(self, rows, w):
        """Return a sketch of how far the margins are from 1."""
        z = self._margins_of_all(rows, w)
        return {"sketch": [self._sketch(z)], "beyond_min": z.min() - 1.0}

    def working_distances(self, rows):
        """Return the sketch for the rows of the working set."""
        return {"sketch": [self._sketch(self._point.z)]}

    def _sketch(self, z):
        beyond = z - 1.0
        distance = beyond if self._objective.hard else np.abs(beyond)  # a hard margin leaves no row short
        return len(z), np.quantile(distance, np.linspace(0.0, 1.0, min(_SKETCH, len(z))))

    def open(self, rows, w, nearest, half, centre):
        """Choose the rows that a guess brings nearest to margin 1 (None: all rows); return their parabolas' system."""
        self._sampled = False
        self._pull, self._lost = np.zeros(n_columns(rows)), 0.0
        self._inside[:] = True
        self._short[:] = False
        if w is not None:
            beyond = self._margins_of_all(rows, w) - 1.0
            if self._objective.hard:
                self._inside = beyond <= nearest
            else:
                self._inside = np.abs(beyond) <= nearest
                self._short = beyond < 0.0
                self._leave(rows, np.flatnonzero(~self._inside & self._short))
        self._choose(rows, np.flatnonzero(self._inside))
        return self._parabolas(rows, half, centre)

    def _leave(self, rows, short, sign=1.0):
        """Put rows that are short of margin 1 into the linear term, or take them from it."""
        price = sign * self._objective.upper(self._weights[short])
        add_rows(rows, short, price * self._given[short], self._pull)
        self._lost += price.sum()

    def _choose(self, rows, which, scale=1.0):
        """Set the working set, and copy its rows if there is memory for that."""
        weights = scale * self._weights[which]
        self._which = which
        self._copied = take_rows(rows, which) if len(which) <= self._spare else None
        signs = self._signs[which]
        self._working = WorkingSet(None, which, signs, _aims(weights), self._objective.upper(weights))
        self._make_room()

    def _on(self, rows):
        """Return the working set with its rows."""
        if self._copied is None:
            return self._working._replace(rows=rows)
        return self._working._replace(rows=self._copied, which=np.arange(len(self._which)))

    # ------------------------------------------------------------------ the first point

    def _parabolas(self, rows, half, centre):
        """Return the system that is left with parabolas for hinges, over the margins the working set spans.

        Its minimum nearly satisfies Qw = q + Z'beta, which halves the iterations against a start from w = 0.
        """
        working = self._on(rows)
        upper = self._bounds()
        slope = upper / (2.0 * half)
        right = working.signs * (centre * upper + slope)
        system, rhs, _ = weighted_system(working.rows, working.which, slope, right, np.zeros(len(slope)))
        return {"gram": system, "rhs": rhs, "pull": self._pull.copy(), "lost": self._lost}

    def _bounds(self):
        """Return the largest multipliers, of a hard margin what stands for them at first."""
        return self._working.aims if self._objective.hard else self._working.upper

    def begin(self, rows, w, half, centre):
        """Start at the parabolas' minimum, whose slopes are the multipliers; look at the rows outside."""
        working, upper = self._on(rows), self._bounds()
        z = some_scores(working.rows, working.which, w, np.empty(len(upper)))
        z *= working.signs
        beta = np.clip(centre * upper + upper / (2.0 * half) * (1.0 - z), 0.05 * upper, 0.95 * upper)
        slack = np.maximum(z - 1.0, 0.0) + 0.5 * half
        xi = np.zeros_like(z) if self._objective.hard else np.maximum(1.0 - z, 0.0) + 0.5 * half
        self._point = Point(z, beta, slack, xi)
        mu = (slack @ beta) / working.aims.sum() if len(z) else 1.0
        joined = 0 if self._sampled else self._join(rows, w, mu, np.inf)
        return self._linearised(rows, joined)

    # ------------------------------------------------------------------ an iteration

    def advance(self, rows, step, shrink, move):
        """Take the step, leave out rows that have settled, and return the next system.

        Rows that leave or join move the residual of Qw = q + Z'beta by ``move`` for each row of this part at most.
        """
        self._move(step)
        if shrink and not self._objective.hard and not self._sampled:
            self._leave_settled(rows, move * len(self._weights))
        return self._linearised(rows, 0)

    def look(self, rows, step, w, shrink, move, mu):
        """Advance, and take in rows that have changed sides; their variables get products of about ``mu``."""
        self._move(step)
        longest = move * len(self._weights)
        if shrink and not self._objective.hard:
            self._leave_settled(rows, longest)
        return self._linearised(rows, self._join(rows, w, mu, longest))

    def predict(self, rows, dw):
        """Return complementarity along the predictor, and the corrector's right-hand side without and per target."""
        sums = np.zeros((2, len(dw)))
        room = predict(self._on(rows), dw, self._point, self._curvature, self._residuals, sums)
        plain, per_target = sums
        return {**as_record(room), "plain": plain, "aimed": per_target}

    def direct(self, rows, dw, target):
        """Fill the corrected direction; return how far it can be gone."""
        room = direct(self._on(rows), dw, target, self._point, self._curvature, self._residuals, self._direction)
        return {"room_min": room}

    def _move(self, step):
        """Go along the direction that :meth:`direct` has left."""
        if step > 0.0:
            for entry, change in zip(self._point, self._direction, strict=True):
                entry += step * change

    def _make_room(self):
        """Reserve memory for what an iteration knows of the working set."""
        n = len(self._which)
        self._curvature, self._residuals = np.empty(n), Residuals(*np.empty((4, n)))
        moves = np.empty((2, n))
        self._direction = Point(*moves, self._residuals.slack, self._residuals.xi)

    def _leave_settled(self, rows, longest):
        """Leave out rows that sit firmly on one side: multiplier at its bound, margin far off for its pace.

        Many multipliers that are moved to their bounds, each by little, can undo many iterations. Where they would move
        the residual by more than ``longest``, only rows whose multipliers are nearer to their bounds leave.
        """
        point, upper, dz = self._point, self._working.upper, self._direction.z
        working = self._on(rows)
        short = point.z < 1.0
        moves = np.where(short, upper, 0.0) - point.beta
        far = np.abs(point.z - 1.0) > 10.0 * np.abs(dz)
        for near in SETTINGS.near_bound:
            settled = far & (np.abs(moves) < near * upper)
            if not 0.1 < settled.mean() < 1.0:
                return
            leaving = np.flatnonzero(settled)
            if _length_of_sum(working.rows, working.which[leaving], moves[leaving] * working.signs[leaving]) <= longest:
                break
        else:
            return
        self._short[self._which] = short
        self._inside[self._which[settled]] = False
        leaving = np.flatnonzero(settled & short)
        price = upper[leaving]
        add_rows(working.rows, working.which[leaving], price * working.signs[leaving], self._pull)
        self._lost += price.sum()
        stay = np.flatnonzero(~settled)
        self._point = Point(*(entry[stay] for entry in point))
        copied, self._copied = self._copied, None
        self._which = self._which[stay]
        self._working = WorkingSet(None, self._which, *(entry[stay] for entry in self._working[2:]))
        self._make_room()
        if copied is not None:
            self._copied = take_rows(copied, stay)

    def _join(self, rows, w, mu, longest):
        """Take in rows that have changed sides, in the middle of their range; return how many.

        Their multipliers were at one end of it and belong nearer the other. Where that would move the residual by more
        than ``longest``, they go only a part of the way. Slack and shortfall then have the products aimed at and do not
        fit the margin yet, an error of the row alone, which every step makes smaller.
        """
        outside = np.flatnonzero(~self._inside)
        z = some_scores(rows, outside, w, np.empty(len(outside)))
        z *= self._given[outside]
        changed = self._short[outside] != (z < 1.0)
        new, z = outside[changed], z[changed]
        if not len(new):
            return 0
        self._leave(rows, new[self._short[new]], -1.0)
        weights = self._weights[new]
        upper = self._objective.upper(weights)
        aim = mu * _aims(weights)
        if not self._objective.hard:
            aim = np.maximum(aim, np.abs(z - 1.0) * upper)
        fresh = _centre(z, upper, aim)
        if not self._objective.hard:
            bounds = np.where(self._short[new], upper, 0.0)
            moves = fresh.beta - bounds
            length = _length_of_sum(rows, new, moves * self._given[new])
            if length > longest:
                share = max(longest / length, SETTINGS.near_bound[-1])
                beta, aim = bounds + share * moves, mu * _aims(weights)
                fresh = Point(z, beta, aim / beta, aim / (upper - beta))
        before = self._which
        self._inside[new] = True
        self._choose(rows, np.flatnonzero(self._inside))
        old_places, new_places = np.searchsorted(self._which, before), np.searchsorted(self._which, new)
        merged = []
        for old_entry, new_entry in zip(self._point, fresh, strict=True):
            full = np.empty(len(self._which))
            full[old_places], full[new_places] = old_entry, new_entry
            merged.append(full)
        self._point = Point(*merged)
        return len(new)

    def _linearised(self, rows, joined):
        """Eliminate the row variables; return the system that is left, and the sums that tell how far it is."""
        working = self._on(rows)
        t, first, second = self._curvature, self._residuals.rho, self._residuals.aimed
        loss, excess, worst, slack_products, products = linearise(working, self._point, t, first, second)
        system, rhs, pressure = weighted_system(working.rows, working.which, t, first, second)
        weight = working.aims.sum()
        return {
            "gram": system,
            "rhs": rhs,
            "pressure": pressure,
            "pull": self._pull.copy(),
            "lost": self._lost,
            "loss": loss,
            "excess": excess,
            "short_max": worst if self._objective.hard else 0.0,
            "slack_products": slack_products,
            "products": products,
            "weight": weight,
            "pairs": weight if self._objective.hard else 2.0 * weight,
            "inside": len(t),
            "outside": 0 if self._sampled else len(self._weights) - len(t),
            "joined": joined,
        }

    # ------------------------------------------------------------------ what was found

    def multipliers(self, rows):
        """Return the multipliers of all rows."""
        return {"beta": [self._multipliers()]}

    def _multipliers(self):
        beta = np.zeros(len(self._weights))
        if not self._objective.hard:
            beta[self._short] = self._objective.upper(self._weights[self._short])
        beta[self._which] = self._point.beta
        return beta


def _length_of_sum(rows, which, scales):
    """Return the length of the sum of some rows, each times its scale."""
    return np.linalg.norm(add_rows(rows, which, scales, np.zeros(n_columns(rows))))


def _aims(weights):
    """Return what the products of rows of these weights aim at, in units of mu."""
    if len(weights) and weights.max() > SETTINGS.unlike * weights.min():
        return np.full(len(weights), weights.mean())
    return weights


def _centre(z, upper, mu):
    """Return the point with these margins and s beta = xi (U - beta) = mu, s - xi = z - 1."""
    if not np.isfinite(upper[0]):
        slack = np.maximum(z - 1.0, 0.1)
        return Point(z, np.ones_like(z), slack, np.zeros_like(z))
    bend = (z - 1.0) * upper
    beta = 2.0 * mu * upper / (bend + 2.0 * mu + np.hypot(bend, 2.0 * mu))
    return Point(z, beta, mu / beta, mu / (upper - beta))
