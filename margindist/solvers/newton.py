r"""Semismooth Newton method for objectives with a piecewise linear slope.

Problem (:class:`~margindist.objectives.ODM`), signed rows Z with z = Zw:

    min  P(w) = ½‖w‖² + φ(z),     ∇P(w) = w − Z'a,  a = −φ'(z),     H = I + Z' diag(φ''(z)) Z

P is convex, once continuously differentiable and quadratic between the surfaces on which a margin crosses an edge of
its band. The Newton direction with an exact line search along it ends after finitely many steps, in practice two to
eight at any λ: a step that crosses no edge lands on the minimum. Only rows outside the band enter H.

- Few columns: H is formed and factorised. From one step to the next only rows that changed sides are added to it or
  taken from it, so late steps cost little more than one sweep.
- Many columns: conjugate gradients on Hv = v + Z'(φ'' ∘ Zv), preconditioned by the diagonal of H (Newton-CG), each
  system only roughly; when one takes as long as a factorisation would have, the rest is done by factorisation, of H
  or, with fewer rows than columns, of the inner products of the active rows.

Since a is the slope itself, the certificate (:mod:`margindist.objectives`) is P(w) − D(a) = ½‖∇P(w)‖².
"""

import numpy as np
from numba import njit
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from margindist.objectives import compiled_for, row_slope
from margindist.solvers._solution import Solution, Status, conclude, gained, require
from margindist.spaces.rows import (
    SparseRows,
    add_rows,
    gram,
    gram_diagonal,
    gram_product,
    inner_products,
    n_columns,
    n_rows,
    n_stored,
    scores,
    some_scores,
)

_MOST_STEPS = 1000
_LARGEST_FACTOR = 6000  # order above which no matrix is factorised (290 MB)
_FEW_SWEEPS = 30  # conjugate gradients are not tried where a factorisation costs no more sweeps than this
_STEP_ERROR = 1e-3  # of a step's length: what it leaves of the slope is small beside what the step takes away
_FORCING = 0.05  # how far conjugate gradients reduce the residual
_PATIENCE = 3  # steps without a decrease after which rounding is all that is left
_BLAS = 40.0  # how much faster an operation is inside a dense factorisation than on a stored value


def solve(problem, options, start=None, *, method="auto", directions=None):
    """Minimise a piecewise quadratic objective.

    Parameters
    ----------
    problem : Problem
        Any objective that :func:`~margindist.objectives.row_slope` knows, on rows.
    options : Options
        One iteration is a Newton step. The gap to reach is relative to the objective and to what is gained over weights
        of zero.
    start : Solution, optional
        Whose coefficients to start from.
    method : {"auto", "factor", "row-factor", "cg"}
        How the Newton systems are solved.
    directions : callable
        What :func:`newton_directions` made of these rows for another problem: it keeps what serves this one too.

    Returns
    -------
    Solution
        Its ``dual`` is the negative slope of the loss at each margin.
    """
    objective, rows, signs, weights = problem
    require(objective, "Newton's method", "curvature", "row_slope")
    tol, max_iter, report = options.tol, options.limit(_MOST_STEPS), options.report
    direction = newton_directions(rows, method) if directions is None else directions
    everything = np.arange(n_rows(rows))
    w, z = np.zeros(n_columns(rows)), np.zeros(len(signs))
    if start is not None:
        w += start.coef
        scores(rows, w, z)
        z *= signs
    at_zero, ended = objective.value(0.0, np.zeros(len(signs)), weights), Status.ITERATION_LIMIT
    best, in_vain = None, 0
    for n_iter in range(max_iter + 1):
        a = -objective.slope(z, weights)
        gradient = -add_rows(rows, everything, signs * a, -w)
        value = objective.value(w @ w, z, weights)
        gap = 0.5 * (gradient @ gradient) / value
        if report is not None and report(n_iter, w, value, gap):
            ended = Status.STOPPED
        in_vain = in_vain + 1 if best is not None and value >= best.objective else 0
        if in_vain == 0 or gap <= tol * gained(value, at_zero):
            best = Solution(w.copy(), a, value, gap)
        if in_vain == _PATIENCE:
            ended = Status.STALLED
        enough = tol * gained(best.objective, at_zero)
        if ended is not Status.ITERATION_LIMIT or gap <= enough or n_iter == max_iter:
            break
        dw = direction(objective.curvature(z, weights), gradient)
        scores(rows, dw, dz := np.empty(len(signs)))
        dz *= signs
        step = _exact_step(objective, w, dw, z, dz, weights)
        w += step * dw
        scores(rows, w, z)  # not z + step * dz: the rounding of long steps would stay in the certificate
        z *= signs
    return conclude(best._replace(n_iter=n_iter), enough, ended)


def _cholesky(system):
    """Return the Cholesky factor of a positive definite matrix, of a slightly larger one where rounding asks for it.

    Only the lower triangle is looked at. What is added makes shorter steps, which still descend.
    """
    ridge = len(system) * np.finfo(float).eps * system.diagonal().max(initial=0.0)
    for added in (0.0, ridge, 100.0 * ridge):
        system.flat[:: len(system) + 1] += added
        try:
            return cho_factor(system, lower=True, check_finite=False)
        except LinAlgError:
            continue
    raise LinAlgError("the Newton system is not positive definite")


class _Factor:
    """Newton directions by a Cholesky factor of H, whose Gram part is kept up to date between calls."""

    def __init__(self, rows):
        self.rows = rows
        self.curvature = np.zeros(n_rows(rows))
        self.gram = np.zeros((n_columns(rows), n_columns(rows)))

    def __call__(self, curvature, gradient):
        self._update(curvature)
        system = self.gram.copy()
        system.flat[:: len(system) + 1] += 1.0
        return -cho_solve(_cholesky(system), gradient, check_finite=False)

    def _update(self, curvature):
        change = curvature - self.curvature
        if 2 * np.count_nonzero(change) > np.count_nonzero(curvature):
            active = np.flatnonzero(curvature)
            self.gram = gram(self.rows, active, curvature[active])
        else:
            for sign in (1.0, -1.0):
                which = np.flatnonzero(sign * change > 0.0)
                if len(which):
                    self.gram += sign * gram(self.rows, which, sign * change[which])
        self.curvature = curvature


class _RowFactor:
    """Newton directions through the inner products of the active rows, for fewer rows than columns.

    By Woodbury's formula ``H⁻¹g = g − Z'(1/φ'' + ZZ')⁻¹Zg``.
    """

    def __init__(self, rows):
        self.rows = rows
        everything = np.arange(n_rows(rows))
        self.products = inner_products(rows, everything, everything)

    def __call__(self, curvature, gradient):
        active = np.flatnonzero(curvature)
        system = self.products[np.ix_(active, active)]
        system.flat[:: len(active) + 1] += 1.0 / curvature[active]
        factor = _cholesky(system)
        products = some_scores(self.rows, active, gradient, np.empty(len(active)))
        coefs = cho_solve(factor, products, overwrite_b=True, check_finite=False)
        return add_rows(self.rows, active, coefs, -gradient)


class _Conjugate:
    """Newton directions by preconditioned conjugate gradients, until a factorisation would have been cheaper."""

    def __init__(self, rows, cheapest=None, limit=np.inf):
        self.rows = rows
        self.cheapest = cheapest
        self.limit = limit
        self.successor = None

    def __call__(self, curvature, gradient):
        if self.successor is not None:
            return self.successor(curvature, gradient)
        active = np.flatnonzero(curvature)
        h = curvature[active]
        diagonal = 1.0 + gram_diagonal(self.rows, active, h)
        dw, rest = np.zeros_like(gradient), -gradient
        toward = rest / diagonal
        square = first = rest @ toward
        sweeps = 0
        while square > _FORCING**2 * first:
            product = gram_product(self.rows, active, h, toward, toward.copy())
            length = square / (toward @ product)
            dw += length * toward
            rest -= length * product
            scaled = rest / diagonal
            square, before = rest @ scaled, square
            toward = scaled + (square / before) * toward
            sweeps += 1
            if sweeps >= self.limit:
                self.successor = self.cheapest(self.rows)
                break
        return dw


def newton_directions(rows, method="auto"):
    """Return what turns curvatures and a gradient into a Newton direction, by counting operations if not told."""
    if method != "auto":
        return {"factor": _Factor, "row-factor": _RowFactor, "cg": _Conjugate}[method](rows)
    m, d = n_rows(rows), n_columns(rows)
    if isinstance(rows, SparseRows):
        lengths = np.diff(rows.indptr).astype(np.float64)
        products = 0.5 * (lengths @ lengths)
    else:
        products = 0.5 * m * d**2 / _BLAS
    costs = {
        _Factor: products + d**3 / (3.0 * _BLAS) if d <= _LARGEST_FACTOR else np.inf,
        _RowFactor: m**3 / (3.0 * _BLAS) if m <= _LARGEST_FACTOR else np.inf,
    }
    cheapest = min(costs, key=costs.get)
    sweeps = costs[cheapest] / (2.0 * n_stored(rows) + m)
    return cheapest(rows) if sweeps <= _FEW_SWEEPS else _Conjugate(rows, cheapest, sweeps)


def _exact_step(objective, w, dw, z, dz, weights):
    """Return the minimiser of P(w + t dw), nearly: the root of its increasing, piecewise linear slope in t."""
    slope_along = compiled_for(objective, _slope_along)
    linear, square = w @ dw, dw @ dw
    total = weights.sum()
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(100):
        slope, bend = slope_along(objective, weights, total, z, dz, t)
        slope += linear + t * square
        low, high = (t, high) if slope < 0.0 else (low, t)
        ahead = t - slope / (bend + square)
        if not low <= ahead <= high:
            ahead = 0.5 * (low + high)
        if abs(ahead - t) <= _STEP_ERROR * t:
            return ahead
        t = ahead
    return t


@njit(cache=True, nogil=True)
def _slope_along(objective, weights, total, z, dz, t):
    """Return first and second derivative of the loss along z + t dz."""
    slope, bend = 0.0, 0.0
    for i in range(len(z)):
        rate, curvature = row_slope(objective, z[i] + t * dz[i], weights[i], total)
        slope += rate * dz[i]
        bend += curvature * dz[i] * dz[i]
    return slope, bend
