r"""Augmented Lagrangian method with semismooth Newton steps, for hinge-type objectives with many columns.

Coordinate descent finds quickly which rows have margin 1 and then crawls; this method takes over there. With the
quadratic part Q = I + Z'PZ and q = λ2 Z'p of :class:`~margindist.objectives.LDM`, multipliers β and a penalty σ it
minimises

    F(w) = ½ w'Qw − q'w + Σ e_i(z_i),    −e_i'(z) = clip(β_i + σ(1 − z), 0, U_i),

which is smooth and piecewise quadratic, by Newton's method, and then sets β to those slopes (Rockafellar 1976; Li, Sun
& Toh 2018). At the minimum of F the multipliers reproduce w exactly, so that the duality gap is pure complementarity.

A Newton step solves (Q + σ Z_A'Z_A) dw = −∇F, A the rows strictly between their bounds, by conjugate gradients with the
preconditioner (I + σ Z_A'Z_A)⁻¹ = I − Z_A'(I/σ + K_AA)⁻¹Z_A: a factorisation of the size of A, however many columns
there are. Without multipliers to start from, σ is small and A large at first: there the diagonal of the system is
preconditioner enough, until one direction takes many steps.

All but the preconditioner is sums over rows, so the method is written as rounds over partitions
(:mod:`margindist.spaces.partitions`); rows in memory are the case of one partition. A step is a round ``advance``
(margins, multipliers, gradient and certificate), a round ``free_rows``, in which the partitions send those rows of A
that they have not sent before, a few ``product``, a round ``along`` and some ``slopes``, which need no rows. A part
keeps 37 bytes per row for each problem, beside labels and weights.
"""

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from margindist.certificate import CertifiedPart, bounds_of, certified, residual_of
from margindist.solvers._factors import KeptFactor
from margindist.solvers._solution import Status, better, conclude, proved, require
from margindist.solvers._span import solve_in_span
from margindist.solvers.conjugate_gradients import ConjugateGradients
from margindist.solvers.newton import exact_step
from margindist.spaces.partitions import Loaded, LocalPlace, Round, drive
from margindist.spaces.rows import (
    add_rows,
    as_matrix,
    as_rows,
    gram,
    gram_diagonal,
    inner_products,
    n_columns,
    n_rows,
    some_scores,
    squares,
    take_rows,
)

_MOST_STEPS = 1000
_GROW = 4.0  # the penalty grows by this factor after every update of the multipliers
_PATIENCE = 20  # Newton steps and updates of the multipliers, together, without progress after which to end
_LONG_PATIENCE = 50  # the same while there is no hard margin, and where there is no other method to hand over to
_MOST_SWEEPS = 600  # steps of conjugate gradients, over all Newton steps: where they take more, they do not converge
_CONDITION = 1e15  # a penalty times a squared row at most: beyond, rounding spoils the Newton steps
_MOST_SWEEPS_IN_PLACE = 5000  # the same where there is no other method to hand over to
_MANY_SWEEPS = 40  # for one direction with the diagonal: from then on rows are factorised
_FEW_FREE = 1500  # rows that are factorised at once: that takes less than a few sweeps
_FEW_COLUMNS = 300  # up to here the system itself is factorised: it costs less than the sweeps that it saves
_FEW_OPERATIONS = 10**8  # up to here an orthonormal basis of fewer rows than that costs next to nothing
_SINGULAR = 1e-12  # of the longest row: a ridge beside which products of equal rows can be factorised
_MAX_FACTOR = 5000  # rows in the preconditioner at most
_MAX_CG = 200  # conjugate gradient steps for one Newton direction
_FORCING = 1e-2  # how far they reduce the residual
_SHORTEST = 1e-12  # step where rounding leaves no descent
_MAX_INNER = 50  # Newton steps between two updates of the multipliers


def solve(problem, options, start=None):
    """Minimise from where another method left off.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective (:class:`~margindist.objectives.LDM`) on rows.
    options : Options
        One iteration is a Newton step.
    start : Solution, optional
        Coefficients and multipliers to start from.

    Returns
    -------
    Solution
    """
    objective, rows, signs, weights = problem
    m, d = n_rows(rows), n_columns(rows)
    if m < d and m <= _FEW_COLUMNS and m * m * d <= _FEW_OPERATIONS:
        return solve_in_span(solve, problem, options, start)
    place = LocalPlace(lambda i: Loaded(rows, signs, weights), 1)
    known = None if start is None else start.dual
    (result,) = _solve(place, objective, [(objective, None, known)], [options], [start], with_dual=True)
    return result


def solve_in_place(place, objective, positives, options, starts=None):
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

    Returns
    -------
    list of Solution
        Without their ``dual``, which stays with the rows.
    """
    arguments = [(objective, positive) for positive in positives]
    return _solve(place, objective, arguments, options, starts or [None] * len(positives), with_dual=False)


def _solve(place, objective, arguments, options, starts, with_dual):
    require(objective, "The augmented Lagrangian method", "upper_bound", "variance_weight", "mean_weight")
    coefs = [None if start is None else start.coef for start in starts]
    return drive(
        place, LagrangianPart, arguments, lambda k, coef: _rounds(objective, options[k], coef, with_dual), coefs
    )


# ---------------------------------------------------------------------- the driver: a generator of rounds


def _rounds(objective, options, start, with_dual):
    """Minimise for one penalty after the other, in rounds; return the best point with its certificate."""
    tol = options.tol
    max_iter = options.limit(_MOST_STEPS)
    most_sweeps = _MOST_SWEEPS if with_dual else _MOST_SWEEPS_IN_PLACE
    first = yield Round("moments")
    model = _Model(objective, first)
    w = np.zeros(len(model.mean_row)) if start is None else np.array(start, dtype=np.float64)
    opened = yield Round("open", (w,), w)
    sigma = model.first_penalty(opened["middles"])
    model.factorises = opened["known"] > 0
    best = None
    ended = None
    update = False  # whether the multipliers are to be set to the slopes before the next step
    n_iter = 0
    since = 0  # the gap last fell, in steps and updates
    while ended is None:
        before = np.inf if best is None else best.gap
        steps_before = n_iter
        for _ in range(_MAX_INNER):
            sums = yield Round("advance", (w, sigma, update, model.mean_row @ w, model.total), w)
            update = False
            residual = residual_of(objective, w, sums, model.mean_row, model.total)
            if objective.hard:
                now = proved((yield from certified(objective, w, model.mean_row, model.total)), None)
            else:
                now = proved(bounds_of(objective, w, sums, model.mean_row, model.total), None)
            best = better(best, now)
            if with_dual and best.coef is now.coef:
                yield Round("keep")
            scale = abs(now.objective)
            if not np.isfinite(scale):  # no hard margin yet
                scale = 0.5 * (w @ w)
            spare = max(sums["excess"], tol * scale)
            done = n_iter == max_iter or model.sweeps > most_sweeps or best.gap <= tol
            if done or residual @ residual <= 0.6 * spare:
                break
            direction = yield from model.newton_direction(residual, sums["free"], sigma)
            means = model.mean_row @ w, model.mean_row @ direction
            step, _ = yield from exact_step(w, direction, -(residual @ direction), sigma, *means, model.total)
            w = w + step * direction  # margins are computed anew: rounding of long steps would stay in the certificate
            n_iter += 1
            if step <= _SHORTEST:
                break
        update = True
        sigma = min(sigma * _GROW, model.largest_penalty)
        since = 0 if best.gap < 0.9 * before else since + 1 + n_iter - steps_before
        patience = _PATIENCE if with_dual and np.isfinite(best.gap) else _LONG_PATIENCE
        if options.report is not None and options.report(n_iter, best.coef, best.objective, best.gap):
            ended = Status.STOPPED
        elif now.status is Status.INFEASIBLE:
            best = now
            ended = Status.INFEASIBLE
        elif best.gap <= tol or since > patience or model.sweeps > most_sweeps:
            ended = Status.STALLED
        elif n_iter >= max_iter:
            ended = Status.ITERATION_LIMIT
    if best.objective > objective.upper_bound * model.total:
        best = proved((yield from certified(objective, best.coef, model.mean_row, model.total)), None)
        yield Round("keep")
    if with_dual:
        kept = yield Round("multipliers")
        best = best._replace(dual=np.concatenate(kept["beta"]))
    return conclude(best._replace(n_iter=n_iter), tol, ended)


class _Model:
    """What the driver knows of one problem: sums over all rows, and the free rows it was sent so far."""

    def __init__(self, objective, first):
        self.objective = objective
        self.total = first["weight"]
        self.mean_row = first["row"] / self.total
        self.longest = first["longest_max"]
        self.largest_penalty = _CONDITION / max(self.longest, np.finfo(float).tiny)
        self.sweeps = 0
        self.factorises = False
        self._forget()

    def _forget(self):
        self._numbers = {}  # by part: which of the known rows are those it has sent, in its order
        self._rows, self._signs, self._products = None, np.empty(0), np.empty((0, 0))
        self._factor = KeptFactor()

    def first_penalty(self, middles):
        """Return the penalty that turns the margins' errors into changes of the multipliers' own size."""
        counts, betas, errors = np.array(middles).T
        if not counts.any():
            return min(1.0, self.largest_penalty)
        beta, error = (counts @ values / counts.sum() for values in (betas, errors))
        return min(beta / max(1e-3, error), self.largest_penalty)

    def newton_direction(self, residual, n_free, sigma):
        """Solve (Q + sigma Z_A'Z_A) direction = residual by preconditioned conjugate gradients."""
        if len(residual) <= _FEW_COLUMNS:
            make = self._by_system(sigma)
        elif self.factorises or n_free <= _FEW_FREE:
            make = self._by_factor(n_free, sigma)
        else:
            make = self._by_diagonal(sigma)
        gradients = ConjugateGradients(residual, (yield from make))
        enough = _FORCING**2 * gradients.square
        before = self.sweeps
        for _ in range(_MAX_CG):
            toward = gradients.direction
            image = yield Round("product", (toward, sigma, self.mean_row @ toward, self.total))
            gradients.step(toward + image["image"])
            self.sweeps += 1
            if not gradients.square > enough:
                break
        if self.sweeps - before > _MANY_SWEEPS and n_free <= _MAX_FACTOR:
            self.factorises = True
        return gradients.solution

    def _by_system(self, sigma):
        """Return what multiplies with the inverse of the system itself, up to rounding."""
        system = (yield Round("system", (sigma, self.total)))["gram"]
        system -= self.objective.variance_weight * np.outer(self.mean_row, self.mean_row)
        diagonal = system.diagonal()
        system.flat[:: len(system) + 1] += 1.0 + 1e-15 * len(system) * diagonal
        factor = cho_factor(system.T, lower=False, overwrite_a=True, check_finite=False)
        return lambda vector: cho_solve(factor, vector, check_finite=False)

    def _by_diagonal(self, sigma):
        """Return what divides by the diagonal of the system, that of the variance without its mean."""
        diagonal = 1.0 + (yield Round("diagonal", (sigma, self.total)))["diagonal"]
        return lambda vector: vector / diagonal

    def _by_factor(self, n_free, sigma):
        """Return what multiplies with (I + sigma Z_A'Z_A)⁻¹, for as many free rows as can be factorised."""
        if not n_free:
            return np.copy
        which = yield from self._fetch(min(1.0, _MAX_FACTOR / n_free))
        ridge = 1.0 / sigma + _SINGULAR * self.longest  # equal rows make the products singular
        solve = self._factor.solver(self._products, which, np.full(len(which), ridge))
        rows, signs = self._rows, self._signs[which]

        def precondition(vector):
            images = signs * some_scores(rows, which, vector, np.empty(len(which)))
            return add_rows(rows, which, -signs * solve(images), vector.copy())

        return precondition

    def _fetch(self, share):
        """Have the parts send free rows; return which of the known ones are free."""
        full = len(self._signs) > _MAX_FACTOR
        if full:
            self._forget()
        result = yield Round("free_rows", (share, full))
        which = []
        for part, (rows, signs, places) in enumerate(result["free"]):
            begin = len(self._signs)
            self._take_in(rows, signs)
            new = np.arange(begin, len(self._signs))
            self._numbers[part] = np.concatenate([self._numbers.get(part, new[:0]), new])
            which.append(self._numbers[part][places])
        self._multiply()
        return np.concatenate(which)

    def _take_in(self, rows, signs):
        """Add rows to those known."""
        self._signs = np.concatenate([self._signs, signs])
        if self._rows is None:
            self._rows = rows
        elif len(signs):
            stack = [as_matrix(self._rows), as_matrix(rows)]
            joined = sp.vstack(stack, format="csr") if sp.issparse(stack[0]) else np.vstack(stack)
            self._rows = as_rows(joined)._replace(bias=rows.bias)

    def _multiply(self):
        """Compute the inner products, signed, that are not there yet."""
        old, n = len(self._products), len(self._signs)
        if old == n:
            return
        products = np.empty((n, n))
        products[:old, :old] = self._products
        new, every = np.arange(old, n), np.arange(n)
        products[old:] = inner_products(self._rows, new, every) * np.outer(self._signs[new], self._signs)
        products[:old, old:] = products[old:, :old].T
        self._products = products


# ---------------------------------------------------------------------- a part: rows' variables and the rounds on them


class LagrangianPart(CertifiedPart):
    """What the method keeps of one partition: margins, those of the direction, and multipliers.

    Parameters
    ----------
    rows, targets, weights : rows and arrays
        The partition.
    objective : objective
        A hinge with mean and variance.
    positive : int, optional
        Code of the positive class; None if the targets are signs.
    beta : ndarray, optional
        Multipliers to start from; zeros if not given.
    """

    rowless = frozenset({"slopes", "keep", "multipliers"})

    def __init__(self, rows, targets, weights, objective, positive=None, beta=None):
        super().__init__(targets, weights, objective, positive)
        self._beta = np.zeros(len(weights)) if beta is None else beta
        self._slopes = self._beta  # the multipliers that the penalty makes of the margins
        self._kept = self._beta
        self._forget()

    @property
    def _upper(self):
        return self._objective.upper(self._weights)

    def _forget(self):
        self._places = np.full(len(self._weights), -1, dtype=np.int32)  # of a row among those sent
        self._n_sent = 0

    def _multipliers(self):
        return self._slopes

    def moments(self, rows):
        """Return the weight of the rows, their signed sum and the largest square."""
        squares(rows, lengths := np.empty(len(self._weights)))
        row = add_rows(rows, self._everything, self._weights * self._given, np.zeros(n_columns(rows)))
        return {"weight": self._weights.sum(), "row": row, "longest_max": lengths.max()}

    def open(self, rows, w):
        """Return how many multipliers are known and how many free, the median of these and of their margins' errors."""
        known = np.count_nonzero(self._beta)
        free = (self._beta > 0.0) & (self._beta < self._upper)
        if not free.any():
            return {"known": known, "middles": [(0, 0.0, 0.0)]}
        errors = np.abs(1.0 - self._margins_of_all(rows, w)[free])
        return {"known": known, "middles": [(free.sum(), np.median(self._beta[free]), np.median(errors))]}

    def advance(self, rows, w, sigma, update, about, total):
        """Go to other weights; return gradient and certificate there as sums, and how many rows are free."""
        if update:
            self._beta = self._slopes
        self._z = self._margins_of_all(rows, w)
        self._slopes = self._penalised(self._z, sigma)
        errors = self._errors_of_all(rows, w)
        sums = self._certificate_sums(rows, self._z, errors, self._slopes, about, total)
        return {**sums, "free": np.count_nonzero(self._is_free())}

    def _penalised(self, z, sigma):
        return np.clip(self._beta + sigma * (1.0 - z), 0.0, self._upper)

    def _is_free(self):
        return (self._slopes > 0.0) & (self._slopes < self._upper)

    def free_rows(self, rows, share, afresh):
        """Return free rows that were not sent before, with their signs, and which of all that were sent are free."""
        if afresh:
            self._forget()
        free = np.flatnonzero(self._is_free())
        free = free[: int(np.ceil(share * len(free)))]
        new = free[self._places[free] < 0]
        self._places[new] = self._n_sent + np.arange(len(new))
        self._n_sent += len(new)
        return {"free": [(take_rows(rows, new), self._given[new].astype(np.float64), self._places[free])]}

    def system(self, rows, sigma, total):
        """Return the rows' curvature (lower triangle)."""
        scales = (self._objective.variance_weight / total) * self._weights + sigma * self._is_free()
        which = np.flatnonzero(scales)
        return {"gram": gram(rows, which, scales[which])}

    def diagonal(self, rows, sigma, total):
        """Return the diagonal of the rows' curvature."""
        scales = (self._objective.variance_weight / total) * self._weights + sigma * self._is_free()
        return {"diagonal": gram_diagonal(rows, self._everything, scales)}

    def product(self, rows, v, sigma, mean, total):
        """Return the curvature of the rows times a vector; ``mean`` is the mean of what the rows make of it."""
        z = self._margins_of_all(rows, v)
        scales = (self._objective.variance_weight / total) * self._weights * (z - mean) + sigma * self._is_free() * z
        return {"image": add_rows(rows, self._everything, self._given * scales, np.zeros(len(v)))}

    def along(self, rows, dw, t, *args):
        """Multiply the rows with a direction; return the derivatives along it."""
        self._move = self._margins_of_all(rows, dw)
        return self.slopes(rows, t, *args)

    def slopes(self, rows, t, sigma, about, mean_move, total):
        """Return first and second derivative, along the direction, of all but the weights' length."""
        move, weights = self._move, self._weights
        z = self._z + t * move
        slopes = self._penalised(z, sigma)
        pulls = self._objective.dual_coef_of_some(slopes, z - (about + t * mean_move), weights, total)
        free = (slopes > 0.0) & (slopes < self._upper)
        variance = (self._objective.variance_weight / total) * (weights @ (move * (move - mean_move)))
        return {"slope": -(pulls @ move), "bend": sigma * (move[free] @ move[free]) + variance}

    def keep(self, rows):
        """Remember the multipliers: they belong to the best weights so far."""
        self._kept = self._slopes

    def multipliers(self, rows):
        """Return the multipliers of the best weights."""
        return {"beta": [self._kept]}
