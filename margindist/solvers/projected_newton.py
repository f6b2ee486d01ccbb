r"""Many box-constrained quadratic problems that differ little: Newton steps on faces, each from the last solution.

The dual of a kernel machine on a grid of its parameters (:class:`~margindist.objectives.LDM`; G the Gram matrix, Y the
signs, p the shares of the weights s, U = C s) is, as in :mod:`margindist.solvers.block_descent`,

    min_{0 ≤ β ≤ U}  ½ v'Av − Σ β_i,    v = λ2 p + β,    z = Av,    A = YHY,    H = (G⁻¹ + 4λ1 Y(diag(p) − pp')Y)⁻¹.

**What a grid shares.** With D = diag(p), GD^½ = D^{-½}VΛV' and c = 4λ1,

    H = M + c Mp̃p̃'M / (1 − c p̃'Mp̃),    M = D^{-½} V diag(Λ / (1 + cΛ)) V'D^{-½},    p̃ = Yp:

one eigendecomposition serves every λ1, every class against the rest, every C and every λ2; a matrix A every C and λ2.

**One problem.** Along λ2 the solution is piecewise linear, and along C nearly: where no multiplier changes between
bound and interior, the line through the two solutions before leads to the next one, and its certificate is all that is
left to do. Otherwise one Newton step on the *face* of the interior ones ends at the solution if the face is the right
one, with the Cholesky factor of the problem before if A and the face are those of before. Where it is not, the step's
end says which multipliers to exchange between face and bounds, all at once (block principal pivoting); from nothing at
all that takes some ten steps. It may go round in circles, mostly where A is nearly singular: where exchanges do not
become fewer, steps follow of which every one decreases the objective. Of a Newton step that leaves the box, the better
of two feasible points towards its end is taken (Moré and Toraldo 1991); then exact steps in the single multipliers that
violate the optimality conditions let them enter or leave the face. The relative duality gap ends it, as everywhere.

**Where steps go on and on**, the next one starts from the interior point method on the features
(:mod:`margindist.solvers.interior_point`).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from margindist.compilation import assign, njit
from margindist.solvers import interior_point
from margindist.solvers._solution import Options, Problem, Solution, Status, conclude
from margindist.solvers.box_qp import coordinate_pass, exchange_on_face, factor_of_face, newton_on_face
from margindist.spaces.rows import as_rows

__all__ = ["Spectrum", "solve_grid", "spectrum_of_gram", "spectrum_of_rows"]

_POINT_ITERATIONS = 200  # of an interior point
_DEPENDENT = 1e-14  # eigenvalues below this share of the largest are rounding
_MOST_ROUNDS = 1000
_IN_VAIN = 5  # exchanges that are no fewer than some before, after which to descend instead
_SWEEPS = 4  # sweeps over the violators after a Newton step that left the box
_ROUNDS = 40  # after so many an interior point is sought
_AT_BOUND = 1e-4  # share of the box from which on its multipliers count as being at their bound


class Spectrum(NamedTuple):
    """Features of the training rows that are orthogonal in the metric of their shares: G = BΛB', B'DB = I."""

    values: np.ndarray  # Λ
    basis: np.ndarray  # B = D^{-½} V

    @property
    def features(self):
        """Rows whose inner products are G."""
        return self.basis * np.sqrt(self.values)

    def scaled(self, c):
        """Return M for c = 4λ1."""
        part = self.basis * np.sqrt(self.values / (1.0 + c * self.values))
        return part @ part.T

    def left_of_mean(self, signs, share, c):
        """Return 1 − c y'DMDy, all terms positive: at a high price of variance nothing but rounding is left else."""
        seen = self.basis.T @ (share * signs)
        unseen = signs - self.basis @ seen
        return share @ unseen**2 + seen @ (seen / (1.0 + c * self.values))


def spectrum_of_gram(G, weights):
    """Return the spectrum of a Gram matrix."""
    root = np.sqrt(weights / weights.sum())
    values, vectors = eigh(root[:, None] * G * root, overwrite_a=True, check_finite=False, driver="evd")
    kept = values > _DEPENDENT * max(values[-1], np.finfo(float).tiny)
    return Spectrum(values[kept], vectors[:, kept] / root[:, None])


def spectrum_of_rows(X, weights):
    """Return the spectrum of the inner products of rows with fewer columns than there are rows."""
    share = weights / weights.sum()
    values, vectors = eigh(X.T @ (share[:, None] * X), overwrite_a=True, check_finite=False)
    kept = values > _DEPENDENT * max(values[-1], np.finfo(float).tiny)
    return Spectrum(values[kept], X @ (vectors[:, kept] / np.sqrt(values[kept])))


def solve_grid(problem, options):
    """Solve all problems of a grid, for all label vectors.

    Parameters
    ----------
    problem : Problem
        A list of :class:`~margindist.objectives.LDM` with finite ``C``, in any order, on the :class:`Spectrum` of a
        Gram matrix and these weights, with a list of label vectors.
    options : Options
        One iteration is a Newton step with its sweeps, of one problem.

    Returns
    -------
    list of list of Solution
        For each objective one per label vector.
    """
    objectives, spectrum, sign_vectors, weights = problem
    max_iter = options.limit(_MOST_ROUNDS)
    share = weights / weights.sum()
    answers = [[None] * len(sign_vectors) for _ in objectives]
    starts = [{} for _ in sign_vectors]  # multipliers of the first problem with a C, by C
    for c in sorted({objective.variance_weight for objective in objectives}):
        M = None
        members = [k for k, objective in enumerate(objectives) if objective.variance_weight == c]
        members.sort(key=lambda k: (objectives[k].upper_bound, objectives[k].mean_weight))
        for t, signs in enumerate(sign_vectors):
            here = [objectives[k] for k in members]
            problem = _Shared(None, spectrum, signs, weights, starts[t], options.tol, max_iter)
            M = spectrum.scaled(c) if M is None else M
            A, u = M * np.outer(signs, signs), signs * (M @ (signs * share))
            A += (c / spectrum.left_of_mean(signs, share, c)) * np.outer(u, u)
            solutions = _along(here, problem._replace(A=A))
            for k, solution in zip(members, solutions, strict=True):
                answers[k][t] = solution
    return answers


class _Shared(NamedTuple):
    """What the problems of one matrix share."""

    A: np.ndarray | None
    spectrum: Spectrum
    signs: np.ndarray
    weights: np.ndarray
    result: dict  # multipliers of the first problem with a C, by C
    tol: float
    max_iter: int


class _Solved(NamedTuple):
    """The problem before."""

    upper_bound: float
    mean_weight: float
    beta: np.ndarray
    pace: np.ndarray | None  # by how much the multipliers move per unit of λ2; None of the first problem with a C


def _along(objectives, problem):
    """Yield the solutions for one matrix, each from the last one with this C, or with another."""
    A, weights, result = problem.A, problem.weights, problem.result
    share = weights / weights.sum()
    image = A @ share
    face, factor = np.empty(0, dtype=np.int64), np.empty((0, 0))
    last = None
    for objective in objectives:
        upper = objective.upper(weights)
        is_first = last is None or last.upper_bound != objective.upper_bound
        beta = _start(objective, upper, weights, last, result)
        rounds = 0
        for limit, leap in ((_ROUNDS, False), (problem.max_iter, True)):
            if leap:
                beta = _leap(objective, problem)
            z = A @ beta + objective.mean_weight * image
            n_iter, value, gap, face, factor = _minimise(
                A, image, share, upper, objective.variance_weight, objective.mean_weight,
                beta, z, face, factor, problem.tol, limit,
            )  # fmt: skip
            rounds += n_iter
            if gap <= problem.tol:
                break
        if is_first:
            result[objective.upper_bound] = beta
        moves = not is_first and objective.mean_weight > last.mean_weight
        pace = (beta - last.beta) / (objective.mean_weight - last.mean_weight) if moves else None
        last = _Solved(objective.upper_bound, objective.mean_weight, beta, pace)
        coef = problem.signs * objective.dual_coef(beta, z, weights)
        yield conclude(Solution(coef, beta.copy(), value, gap, rounds), problem.tol, Status.ITERATION_LIMIT)


def _start(objective, upper, weights, last, result):
    """Return multipliers near those of a problem.

    Along λ2 they go on as they went, within their box. The first problem with a C has those of the first one with
    another matrix or, with a new C, those of the problem before, where those at the old bound are put at the new one.
    """
    if last is not None and last.upper_bound == objective.upper_bound:
        if last.pace is None:
            return last.beta.copy()
        return np.clip(last.beta + (objective.mean_weight - last.mean_weight) * last.pace, 0.0, upper)
    if objective.upper_bound in result:
        return result[objective.upper_bound].copy()
    if last is None:
        return np.zeros(len(upper))
    return np.minimum(np.where(last.beta >= last.upper_bound * weights, upper, last.beta), upper)


def _leap(objective, problem):
    """Return multipliers by the interior point method, those near a bound put there."""
    upper = objective.upper(problem.weights)
    on_features = Problem(objective, as_rows(problem.spectrum.features), problem.signs, problem.weights)
    solution = interior_point.solve(on_features, Options(problem.tol, _POINT_ITERATIONS))
    beta = np.where(solution.dual <= _AT_BOUND * upper, 0.0, solution.dual)
    return np.where(beta >= (1.0 - _AT_BOUND) * upper, upper, beta)


@njit(cache=True, nogil=True)
def _minimise(A, image, share, upper, bend, pull, beta, z, face, factor, tol, max_iter):
    """Exchange, then descend, until the relative gap is below ``tol``; change ``beta`` and ``z``, return the face."""
    value, gap = _value_and_gap(share, upper, bend, pull, beta, z)
    least, since = len(z) + 1, 0  # how few were exchanged, and the steps since then
    base, start_beta, start_z, start_gap = pull * image, beta.copy(), z.copy(), gap
    new = _face(upper, beta, z, False)
    n_iter = 0
    while gap > tol and n_iter < max_iter and since < _IN_VAIN:
        n_iter += 1
        if len(new) == 0:
            _sweep(A, upper, beta, z)
            new = _face(upper, beta, z, False)
        face, factor = _factorised(A, new, face, factor)
        new, n_exchanged = exchange_on_face(A, base, upper, beta, z, face, factor)
        since = 0 if n_exchanged < least else since + 1
        least = min(least, n_exchanged)
        value, gap = _value_and_gap(share, upper, bend, pull, beta, z)
    if gap > max(tol, start_gap):
        assign(beta, start_beta)
        assign(z, start_z)
        value, gap = _value_and_gap(share, upper, bend, pull, beta, z)
    wide = True
    while gap > tol and n_iter < max_iter:
        n_iter += 1
        face, factor = _factorised(A, _face(upper, beta, z, wide), face, factor)
        if newton_on_face(A, upper, beta, z, face, factor):
            wide = True
        else:
            wide = not wide
            _sweep(A, upper, beta, z)
        value, gap = _value_and_gap(share, upper, bend, pull, beta, z)
    return n_iter, value, gap, face, factor


@njit(cache=True, nogil=True)
def _sweep(A, upper, beta, z):
    for _ in range(_SWEEPS):
        coordinate_pass(A, upper, beta, z)


@njit(cache=True, nogil=True)
def _factorised(A, new, face, factor):
    """Return a face with its factor, which is the one at hand if the face is."""
    same = len(new) == len(face)
    for i in range(len(face)):
        same = same and new[i] == face[i]
    if same:
        return face, factor
    return new, factor_of_face(A, new)


@njit(cache=True, nogil=True)
def _face(upper, beta, z, wide):
    """Return the multipliers that may move: those inside their box and, if wide, those at a bound and drawn inwards."""
    face, n = np.empty(len(z), dtype=np.int64), 0
    for i in range(len(z)):
        if (beta[i] > 0.0 or (wide and z[i] < 1.0)) and (beta[i] < upper[i] or (wide and z[i] > 1.0)):
            face[n] = i
            n += 1
    return face[:n].copy()


@njit(cache=True, nogil=True)
def _value_and_gap(share, upper, bend, pull, beta, z):
    """Return the objective at the point that the multipliers make, and the relative gap to their dual value."""
    mean = 0.0
    for i in range(len(z)):
        mean += share[i] * z[i]
    variance, square, loss, pairing = 0.0, 0.0, 0.0, 0.0
    for i in range(len(z)):
        off, short = z[i] - mean, 1.0 - z[i]
        variance += share[i] * off * off
        square += (beta[i] + share[i] * (pull - bend * off)) * z[i]
        loss += upper[i] * max(0.0, short)
        pairing += beta[i] * short
    value = 0.5 * square + 0.5 * bend * variance - pull * mean + loss
    return value, max(0.0, loss - pairing) / max(abs(value), 1e-300)
