r"""Augmented Lagrangian method with semismooth Newton steps, for hinge-type objectives with many columns.

Coordinate descent finds quickly which rows have margin 1 and then crawls; this method takes over there. With the
quadratic part Q = I + Z'PZ and q = λ2 Z'p of :class:`~margindist.objectives.LDM`, multipliers β and a penalty σ it
minimises

    F(w) = ½ w'Qw − q'w + Σ e_i(z_i),    −e_i'(z) = clip(β_i + σ(1 − z), 0, U_i),

which is smooth and piecewise quadratic, by Newton's method, and then sets β to those slopes (Rockafellar 1976; Li, Sun
& Toh 2018). At the minimum of F the multipliers reproduce w exactly, so that the duality gap is pure complementarity.

A Newton step solves (Q + σ Z_A'Z_A) dw = −∇F, A the rows strictly between their bounds, by conjugate gradients with the
preconditioner (I + σ Z_A'Z_A)⁻¹ = I − Z_A'(I/σ + K_AA)⁻¹Z_A: a factorisation of the size of A, however many columns
there are.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq

from margindist.solvers._solution import Status, better, certify, conclude, require
from margindist.solvers.conjugate_gradients import conjugate_gradients
from margindist.spaces.rows import add_rows, inner_products, n_columns, scores, some_scores, squares

_MOST_STEPS = 1000
_GROW = 4.0  # the penalty grows by this factor after every update of the multipliers
_PATIENCE = 50  # Newton steps and updates of the multipliers, together, without progress after which to end
_MOST_SWEEPS = 600  # steps of conjugate gradients, over all Newton steps: where they take more, they do not converge
_CONDITION = 1e15  # a penalty times a squared row at most: beyond, rounding spoils the Newton steps
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
    require(objective, "The augmented Lagrangian method", "cap", "bend", "pull")
    tol = options.tol
    max_iter = options.limit(_MOST_STEPS)
    model = _Model(objective, rows, signs, weights)
    w = np.zeros(n_columns(rows)) if start is None else start.coef.copy()
    beta = np.zeros(len(signs)) if start is None else start.dual
    z = model.margins(w)
    sigma = model.first_penalty(beta, z)
    best = None
    ended = None
    n_iter = 0
    since = 0  # the gap last fell, in steps and updates
    while ended is None:
        before = np.inf if best is None else best.gap
        steps_before = n_iter
        for _ in range(_MAX_INNER):
            multipliers, gradient = model.slopes(w, z, beta, sigma)
            now = certify(problem, w, z, multipliers)
            best = better(best, now)
            scale = abs(now.objective)
            if not np.isfinite(scale):  # no hard margin yet
                scale = 0.5 * (w @ w)
            spare = max(objective.complementarity(multipliers, z, weights), tol * scale)
            done = n_iter == max_iter or model.sweeps > _MOST_SWEEPS or best.gap <= tol
            if done or gradient @ gradient <= 0.6 * spare:
                break
            direction = model.newton_direction(gradient, multipliers, sigma)
            dz = model.margins(direction)
            step = model.step_length(w, z, beta, sigma, direction, dz)
            w = w + step * direction
            n_iter += 1
            z = model.margins(w)  # not z + step * dz: the rounding of long steps would stay in the certificate
            if step <= _SHORTEST:
                break
        beta = multipliers
        sigma = min(sigma * _GROW, model.largest_penalty)
        since = 0 if best.gap < 0.9 * before else since + 1 + n_iter - steps_before
        if options.report is not None and options.report(n_iter, best.coef, best.objective, best.gap):
            ended = Status.STOPPED
        elif now.status is Status.INFEASIBLE:
            best = now
            ended = Status.INFEASIBLE
        elif best.gap <= tol or since > _PATIENCE or model.sweeps > _MOST_SWEEPS:
            ended = Status.STALLED
        elif n_iter >= max_iter:
            ended = Status.ITERATION_LIMIT
    return conclude(best._replace(n_iter=n_iter), tol, ended)


class _Model:
    """The augmented Lagrangian of one problem, and the inner products of rows it has needed so far."""

    def __init__(self, objective, rows, signs, weights):
        self.objective, self.rows, self.signs, self.weights = objective, rows, signs, weights
        self.everything = np.arange(len(signs))
        self.share = weights / weights.sum()
        self.upper = objective.upper(weights)
        self.place = np.full(len(signs), -1)
        self.known = np.empty(0, dtype=np.intp)
        self.products = np.empty((0, 0))
        self.factor, self.factor_rows = None, self.known
        self.sweeps = 0
        squares(rows, lengths := np.empty(len(signs)))
        self.largest_penalty = _CONDITION / max(lengths.max(), np.finfo(float).tiny)

    def margins(self, w):
        z = np.empty(len(self.signs))
        scores(self.rows, w, z)
        z *= self.signs
        return z

    def first_penalty(self, beta, z):
        """Return the penalty that turns the margins' errors into changes of the multipliers' own size."""
        free = (beta > 0.0) & (beta < self.upper)
        if not free.any():
            return min(1.0, self.largest_penalty)
        return min(np.median(beta[free]) / max(1e-3, np.median(np.abs(1.0 - z[free]))), self.largest_penalty)

    def slopes(self, w, z, beta, sigma):
        """Return the clipped multipliers and the gradient of F."""
        multipliers = np.clip(beta + sigma * (1.0 - z), 0.0, self.upper)
        scales = self.signs * self.objective.dual_coef(multipliers, z, self.weights)
        return multipliers, -add_rows(self.rows, self.everything, scales, -w)

    def step_length(self, w, z, beta, sigma, direction, dz):
        """Return the step that minimises F along the direction: the root of its piecewise linear derivative."""

        def slope(step):
            margins = z + step * dz
            multipliers = np.clip(beta + sigma * (1.0 - margins), 0.0, self.upper)
            pull = self.objective.dual_coef(multipliers, margins, self.weights)
            return (w + step * direction) @ direction - pull @ dz

        if not slope(0.0) < 0.0:
            return _SHORTEST
        longest = 1.0
        while slope(longest) < 0.0 and longest < 64.0:
            longest *= 2.0
        end = slope(longest)
        if not end > 0.0:
            return longest if end <= 0.0 else _SHORTEST  # not a number: an overflow
        return brentq(slope, 0.0, longest, xtol=1e-12, rtol=1e-3) or _SHORTEST

    def newton_direction(self, gradient, multipliers, sigma):
        """Solve (Q + sigma Z_A'Z_A) direction = -gradient by preconditioned conjugate gradients."""
        free = np.flatnonzero((multipliers > 0.0) & (multipliers < self.upper))
        curvature = self.objective.bend * self.share
        active = np.zeros(len(self.signs))
        active[free] = sigma
        self._factorise(free[:_MAX_FACTOR], sigma)

        def product(vector):
            self.sweeps += 1
            z = self.margins(vector)
            scales = self.signs * (curvature * (z - self.share @ z) + active * z)
            return add_rows(self.rows, self.everything, scales, vector.copy())

        steps = conjugate_gradients(product, -gradient, self._precondition)
        for n_steps, (direction, _, square, _) in enumerate(steps):
            if n_steps == 0:
                first = square
            elif square <= _FORCING**2 * first or n_steps == _MAX_CG:
                return direction

    def _factorise(self, which, sigma):
        """Factorise I/sigma + K_AA for the preconditioner."""
        self.factor_rows, self.factor = which, None
        if len(which):
            system = self._inner_products(which)
            rounding = 1e-14 * len(which) * system.diagonal().max()  # equal rows make the products singular
            system[np.diag_indices_from(system)] += 1.0 / sigma + rounding
            self.factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)

    def _precondition(self, vector):
        """Return (I + sigma Z_A'Z_A)⁻¹ times a vector, for the factor's rows and penalty."""
        if self.factor is None:
            return vector.copy()
        which, signs = self.factor_rows, self.signs[self.factor_rows]
        part = some_scores(self.rows, which, vector, np.empty(len(which))) * signs
        inner = cho_solve(self.factor, part, check_finite=False)
        return add_rows(self.rows, which, -signs * inner, vector.copy())

    def _inner_products(self, which):
        """Return the inner products between signed rows, computing only those not asked for before."""
        new = which[self.place[which] < 0]
        if len(self.known) + len(new) > 2 * _MAX_FACTOR:
            self.place[:], self.known, self.products, new = -1, self.known[:0], self.products[:0, :0], which
        if len(new):
            old, known = len(self.known), np.concatenate([self.known, new])
            products = np.empty((len(known), len(known)))
            products[:old, :old] = self.products
            products[old:] = inner_products(self.rows, new, known) * np.outer(self.signs[new], self.signs[known])
            products[:old, old:] = products[old:, :old].T
            self.place[new] = old + np.arange(len(new))
            self.known, self.products = known, products
        place = self.place[which]
        return self.products[np.ix_(place, place)].T  # symmetric: the transpose is in the order LAPACK wants
