r"""A quadratic program on two probability simplices: the nearest points of two softened convex hulls.

Signs y, Gram matrix K, Q = YKY, weights s that stand for repeated rows; γ is a distribution on each class:

    min  f(γ) = γ'Qγ + λ Σ γ_i²/s_i    s.t.  Σ_{y_i=+1} γ_i = Σ_{y_i=−1} γ_i = 1,  γ ≥ 0

γ'Qγ = ‖p₊ − p₋‖² is the squared distance of the hull points p± = Σ_{±} γ_i φ(x_i). With λ = 0 these are the nearest
points of the hulls, whose difference is the normal of the maximum margin hyperplane; with λ → ∞ they are the class
means. (Two equal rows share their γ evenly, so a row of weight s pays γ²/s.)

**The certificate.** f is convex, so f(γ) + ∇f(γ)·(δ − γ) ≤ f(δ) for all δ, and the least left side over the simplices
puts all weight of a class on its least derivative: f(γ) is at most ∇f(γ)·γ − min₊ ∇f(γ) − min₋ ∇f(γ) above the
minimum.

Mehrotra's predictor-corrector method follows ∇f(γ) − Eν = z, γ_i z_i = s_i μ (E the two class indicators) from equal
weights on. Every iteration factorises 2Q + D, D = 2λ/s + z/γ: as it stands for a Gram matrix, by the columns, ½I +
Z'D⁻¹Z, for rows Z of few columns. Near a solution with λ = 0 the matrix becomes singular, for D vanishes on the d + 1
rows that share the weight; there ρEE' is added to it, which changes no step, because steps keep the sums E'γ.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from margindist.solvers._solution import Solution, Status, conclude
from margindist.spaces.rows import add_rows, gram, n_columns, n_rows, scores, squares


class Settings(NamedTuple):
    """How steps are taken, and what counts as nothing."""

    most_iterations: int = 100
    shorten: float = 0.995  # fraction of the way to the boundary that a step goes
    negligible: tuple = (1e-3, 1e-5, 1e-7, 0.0)  # shares of the largest entry that become zero, if the gap allows
    no_distance: float = 1e-10  # squared distance, relative to the data, that counts as none
    patience: int = 5  # iterations without a smaller gap after which rounding is taken to be all that is left
    vanishing: float = 1e-6  # entries of D below this share of Q's size, beside which rounding of Q counts


SETTINGS = Settings()


def solve(problem, options, start=None):
    """Find the two distributions.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.HullDistance` on rows of few columns, or on a Gram matrix (an ndarray).
    options : Options
        One iteration is a Newton system.
    start : Solution, optional
        Not used: interior points begin in the middle.

    Returns
    -------
    Solution
        ``coef`` is yγ, one entry per row; ``extra`` has minus the score of the point halfway between the hull points,
        the "intercept".
    """
    objective, data, signs, weights = problem
    tol, max_iter, report = options.tol, options.limit(SETTINGS.most_iterations), options.report
    classes = np.column_stack([signs > 0, signs < 0]).astype(float)
    quadratic = (_GramMatrix if isinstance(data, np.ndarray) else _FewColumns)(data, signs, classes)
    gamma, n_iter, ended = _minimise(objective, quadratic, classes, weights, tol, max_iter, report)
    for share in SETTINGS.negligible:
        kept = np.where(gamma > share * (classes @ (classes * gamma[:, None]).max(axis=0)), gamma, 0.0)
        kept /= classes @ (classes.T @ kept)
        image = quadratic.apply(kept)
        value, gap = _certify(objective, kept, image, classes, weights)
        if gap <= tol:
            break
    halfway = -0.5 * (kept @ (signs * image))
    result = Solution(signs * kept, None, value, gap, n_iter, extra={"intercept": halfway})
    if value <= SETTINGS.no_distance * quadratic.size:
        return result._replace(status=Status.OVERLAPPING)
    return conclude(result, tol, ended)


def _certify(objective, gamma, image, classes, weights):
    """Return the objective and its relative gap; ``image`` is Qγ."""
    value = objective.value(gamma, image, weights)
    slope = objective.slope(gamma, image, weights)
    least = sum(slope[of_class > 0].min() for of_class in classes.T)
    gap = max(0.0, gamma @ slope - least)
    return value, gap / value if value > 0.0 else gap


def _minimise(objective, quadratic, classes, weights, tol, max_iter, report):
    """Follow the central path; return the best certified γ, iterations and how it ended."""
    gamma = weights / (classes @ (classes.T @ weights))
    slope = objective.slope(gamma, quadratic.apply(gamma), weights)
    spread = max(slope.max() - slope.min(), 1e-3 * np.abs(slope).max(), np.finfo(float).tiny)
    nu = np.array([slope[of_class > 0].min() for of_class in classes.T]) - spread
    z = slope - classes @ nu
    best, best_distance, best_at = gamma, np.inf, 0
    for k in range(1, max_iter + 1):
        try:
            d_gamma, d_nu, d_z = _direction(objective, quadratic, classes, weights, gamma, nu, z, slope)
        except np.linalg.LinAlgError:  # near a solution with lam = 0 rounding may leave a singular matrix
            return best, k, Status.STALLED
        length = min(1.0, SETTINGS.shorten * min(_reach(gamma, d_gamma), _reach(z, d_z)))
        gamma, z, nu = gamma + length * d_gamma, z + length * d_z, nu + length * d_nu
        image = quadratic.apply(gamma)
        slope = objective.slope(gamma, image, weights)
        value, gap = _certify(objective, gamma, image, classes, weights)
        if gap * value < best_distance:  # absolute: where hulls overlap, the relative gap grows while the value falls
            best, best_distance, best_at = gamma, gap * value, k
        if report is not None and report(k, gamma, value, gap):
            return gamma, k, Status.STOPPED
        if gap <= 0.1 * tol or value <= SETTINGS.no_distance * quadratic.size:
            return gamma, k, Status.STALLED  # the caller's certificate makes it better than that
        if k - best_at >= SETTINGS.patience or not np.isfinite(gap):
            return best, k, Status.STALLED
    return best, k, Status.ITERATION_LIMIT


def _direction(objective, quadratic, classes, weights, gamma, nu, z, slope):
    """Return Mehrotra's step of γ, ν and z."""
    solver = quadratic.factorise(objective.curvature(weights) + z / gamma)
    toward = solver(classes)
    inner = classes.T @ toward

    def step(target):
        """Solve for the step that makes the products γz equal to ``target``."""
        free = solver(classes @ nu - slope + target / gamma)
        d_nu = np.linalg.solve(inner, 1.0 - classes.T @ gamma - classes.T @ free)
        d_gamma = free + toward @ d_nu
        return d_gamma, d_nu, target / gamma - z - z / gamma * d_gamma

    total = weights.sum()
    mu = gamma @ z / total
    d_gamma, _, d_z = step(np.zeros(len(gamma)))
    ahead_gamma = gamma + min(_reach(gamma, d_gamma), 1.0) * d_gamma
    ahead_z = z + min(_reach(z, d_z), 1.0) * d_z
    ahead = ahead_gamma @ ahead_z / total
    return step((ahead / mu) ** 3 * mu * weights - d_gamma * d_z)


def _reach(values, step):
    """Return how far along ``step`` positive values stay so."""
    shrinking = step < 0.0
    return np.min(-values[shrinking] / step[shrinking], initial=np.inf)


class _GramMatrix:
    """Q from a Gram matrix."""

    def __init__(self, values, signs, classes):
        self.matrix = signs[:, None] * values * signs
        self.classes = classes
        self.size = values.diagonal().max()

    def apply(self, gamma):
        return self.matrix @ gamma

    def factorise(self, diagonal):
        """Return what solves with ``2Q + ρEE' + diag``."""
        whole = 2.0 * self.matrix
        whole.flat[:: len(whole) + 1] += diagonal
        if diagonal.min() < SETTINGS.vanishing * self.size:
            whole += 2.0 * self.size * (self.classes @ self.classes.T)
        factor = cho_factor(whole, lower=True, overwrite_a=True, check_finite=False)
        return lambda right: cho_solve(factor, right, check_finite=False)


class _FewColumns:
    """Q from rows."""

    def __init__(self, rows, signs, classes):
        self.rows, self.signs, self.classes = rows, signs, classes
        self.every = np.arange(n_rows(rows))
        squares(rows, lengths := np.empty(len(signs)))
        self.size = lengths.max()

    def apply(self, gamma):
        return self._images(self._combine(gamma))

    def _combine(self, gamma):
        return add_rows(self.rows, self.every, self.signs * gamma, np.zeros(n_columns(self.rows)))

    def _images(self, w):
        scores(self.rows, w, out := np.empty(len(self.signs)))
        return self.signs * out

    def factorise(self, diagonal):
        """Return what solves with ``2Q + ρEE' + diag``, by the Woodbury identity.

        ``½ρEE'`` is what two more columns add to Q. Where the diagonal vanishes, the identity subtracts nearly equal
        numbers; two steps of iterative refinement bring the lost digits back.
        """
        vanishing = diagonal.min() < SETTINGS.vanishing * self.size
        more = np.sqrt(self.size) * self.classes if vanishing else self.classes[:, :0]
        d, scales = n_columns(self.rows), 1.0 / diagonal

        def combine(gamma):
            return np.concatenate([self._combine(gamma), more.T @ gamma])

        def images(w):
            return self._images(w[:d]) + more @ w[d:]

        inner = np.zeros((d + more.shape[1], d + more.shape[1]))
        inner[:d, :d] = gram(self.rows, self.every, scales)
        for k, column in enumerate(more.T, start=d):
            inner[k] = combine(scales * column)
        inner.flat[:: len(inner) + 1] += 0.5
        factor = cho_factor(inner, lower=True, check_finite=False)

        def rough(right):
            return scales * (right - images(cho_solve(factor, combine(scales * right), check_finite=False)))

        def solver(right):
            if right.ndim == 2:
                return np.column_stack([solver(column) for column in right.T])
            result = rough(right)
            for _ in range(2 if vanishing else 0):
                result += rough(right - 2.0 * images(combine(result)) - diagonal * result)
            return result

        return solver
