r"""Block descent on the dual of a kernel machine, with columns of the Gram matrix fetched as they are needed.

Problem (:class:`~margindist.objectives.LDM`), with Gram matrix G, signs Y, shares p = s/M, c = 4λ1, U = C s:

    min  ½ α'Gα + ½ z'Pz − λ2 p'z + Σ U_i max(0, 1 − z_i),    z = YGα,    P = c (diag(p) − pp').

Its dual is a box-constrained quadratic problem with the margins as its gradient,

    min_{0 ≤ β ≤ U}  ½ v'YHYv − Σ β_i,    v = λ2 p + β,    z = YHYv,    H = (G⁻¹ + YPY)⁻¹ = G (I + YPYG)⁻¹,

a support vector machine with another kernel. There is no equality constraint, because the intercept is a constant
feature. With D = diag(p), p̃ = Yp and D^½GD^½ = VΛV',

    H = M + c Mp̃p̃'M / (1 − c p̃'Mp̃),    M = G − BB',    B = D^{-½} V (Λ² / (1/c + Λ))^½.

Only the largest eigenvalues matter in B: they come from one product of G with a thin matrix, whose columns span those
of a partial Cholesky factor. With some left out H̃ is larger than H in the order of definiteness, so that a descent on
it from the exact margins still descends.

**Blocks.** As in ThunderSVM (Wen et al. 2018): take the rows that violate the optimality conditions most and the rows
strictly inside their box, fetch their block of H̃, solve that small problem, move all margins, repeat. The small problem
is solved by coordinate descent on its worst violators, which finds the bounds that are active; where that is slow,
Newton steps on the face they leave follow (Moré and Toraldo 1991). A first guess is the solution on the features of the
partial Cholesky factor; if that factor is as good as G, it is nearly the last.

**Certificate.** For any β in the box and any z̃ put α = Y(λ2 p + β − Pz̃), and let z = YGα be its *exact* margins. Then
the objective at α is above the minimum by at most

    ½ (z − z̃)'P(z − z̃) + Σ [U_i max(0, 1 − z_i) − β_i (1 − z_i)]

(Fenchel-Young with the dual point α itself). One product with G proves the result, whatever was left out of B. Under a
hard margin the point is scaled by t = 1/min z to be feasible, which adds ½ (t − 1)² α'Gα.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.linalg.blas import dgemm

from margindist.solvers import interior_point
from margindist.solvers._kernel_certificate import certify_multipliers, inseparable_rows
from margindist.solvers._solution import Options, Problem, Status, better, conclude, relative, require
from margindist.spaces.features import cholesky_factor, partial_cholesky
from margindist.spaces.gram import FullGram
from margindist.spaces.rows import as_rows

_MOST_BLOCKS = 1000
_GUESS_ITERATIONS = 200  # of an interior point on features
_RANK = 128  # columns of the partial Cholesky factor
_NOTHING = 1e-7  # share of the trace outside the factor at which it is as good as the Gram matrix
_DEPENDENT = 1e-11  # eigenvalues below this share of the largest are rounding
_ROUGH = 1e-2  # relative gap of the first guess, if it is not
_EXPLICIT_BELOW = 400  # rows up to which H is formed
_BLOCK = 1024  # rows of a block
_LARGEST_BLOCK = 2048  # when so many are strictly inside their box
_STEPS = 200  # coordinate steps a row of the block before a Newton step
_ROUNDS = 3
_SLACKEN = 0.1  # solve a block until its violation is this share of what it was
_ATTEMPTS = 50  # certificates; one or two as a rule
_PATIENCE = 100  # blocks without progress after which to change the method
_FEW_TIMES = 8  # the same for blocks of all rows, which leave nothing to the next one
_FACTOR_OPERATIONS = 4e11  # what a complete Cholesky factor may cost then


class _Dual(NamedTuple):
    """A problem with the bounds of its multipliers."""

    objective: tuple
    gram: object
    signs: np.ndarray
    weights: np.ndarray
    upper: np.ndarray  # C times the weights


class _Curvature(NamedTuple):
    """H̃ = G − BB' + κuu', and what is needed of it."""

    gram: object
    B: np.ndarray
    u: np.ndarray
    kappa: float
    mean_image: np.ndarray  # G Yp


def solve(problem, options, start=None):
    """Minimise a hinge-type objective over combinations of kernel functions.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective (:class:`~margindist.objectives.LDM`) on a Gram matrix, whole or by columns.
    options : Options
        One iteration is a block; the generator draws the columns that stand for all.
    start : Solution, optional
        Its multipliers are where to start, unless the Gram matrix has so low a rank that a better point is at hand.

    Returns
    -------
    Solution
        ``coef`` has one coefficient per row; status "infeasible" says that a hard margin does not exist.
    """
    objective, gram, signs, weights = problem
    require(objective, "Block descent", "cap", "bend", "pull")
    tol, max_iter = options.tol, options.limit(_MOST_BLOCKS)
    factor = partial_cholesky(gram, _RANK, options.generator())
    exact = factor.remainder <= _NOTHING * gram.diagonal.sum()
    gram = gram if exact else gram.whole()
    problem = _Dual(objective, gram, signs, weights, objective.upper(weights))
    curvature = _curvature(problem, factor.features, exact)
    if start is None or exact:
        beta = _guess(problem, factor.features, 0.3 * tol if exact else _ROUGH)
    else:
        beta = np.minimum(start.dual, problem.upper)
    z = _model_margins(problem, curvature, beta)
    n_iter, best, goal, fallback = 0, None, 0.5 * tol, _factor_affordable(gram)
    for _ in range(_ATTEMPTS):
        before = n_iter
        n_iter, ended = _descend(problem, curvature, beta, z, goal, n_iter, max_iter, options.report)
        if ended is Status.STALLED and fallback:
            beta, z = _interior_point(problem, tol)
            fallback, ended = False, None
        now, exact_z = certify_multipliers(objective, gram, signs, weights, beta, z)
        best = better(best, now)
        if np.isinf(best.objective) and inseparable_rows(gram, signs, beta):
            ended = Status.INFEASIBLE
        if ended or best.gap <= tol:
            break
        z = _correct(problem, curvature, z, exact_z)
        goal = 0.1 * max(min(best.gap, 1.0), tol) if n_iter > before else 0.1 * goal
    return conclude(best._replace(n_iter=n_iter), tol, ended or Status.STALLED)


# ---------------------------------------------------------------------- the matrix


def _curvature(problem, features, exact):
    objective, gram, signs = problem.objective, problem.gram, problem.signs
    share = problem.weights / problem.weights.sum()
    tilted, c = signs * share, objective.bend
    nothing = np.zeros((gram.n, 0)), np.zeros(gram.n), 0.0
    if c == 0.0:
        return _Curvature(gram, *nothing, gram.dot(tilted) if objective.pull > 0.0 else np.zeros(gram.n))
    if gram.n <= _EXPLICIT_BELOW:
        H = explicit_hessian(objective, gram, signs, problem.weights)
        return _Curvature(FullGram(H), *nothing, H @ tilted)
    # With a basis Q of the features' columns, A = D^½GD^½ is close to AQ(Q'AQ)⁻¹Q'A = EE'.
    root = np.sqrt(share)[:, None]
    basis = _orthonormal(root * features)
    if exact:
        E, image = root * features, features @ (features.T @ tilted)
    else:
        images = gram.dot(np.column_stack([root * basis, tilted]))
        image, images = images[:, -1].copy(), root * images[:, :-1]
        values, vectors = eigh(basis.T @ images)
        kept = values > _DEPENDENT * values[-1]
        E = images @ (vectors[:, kept] / np.sqrt(values[kept]))
    values, vectors = eigh(E.T @ E)
    kept = values > _DEPENDENT * values[-1]
    B = (E @ (vectors[:, kept] * np.sqrt(values[kept] / (1.0 / c + values[kept])))) / root
    B = np.ascontiguousarray(B[:, (B**2).max(axis=0) > 1e-6 * gram.diagonal.mean()])
    u = image - B @ (B.T @ tilted)
    # 1 - c u'DY1 without taking anything from 1, of which rounding may leave nothing; but for what the features lack.
    axes = E @ (vectors[:, kept] / np.sqrt(values[kept]))
    y = root[:, 0] * signs
    seen = axes.T @ y
    left = np.sum((y - axes @ seen) ** 2) + seen @ (seen / (1.0 + c * values[kept]))
    lacking = 0.0 if exact else c * (tilted @ image - seen @ (values[kept] * seen))
    return _Curvature(gram, B, u, c / (left - lacking if lacking < left else left), image)


def _orthonormal(columns):
    """Return an orthonormal basis of what the columns span, but for directions lost to rounding."""
    values, vectors = eigh(columns.T @ columns)
    kept = values > _DEPENDENT * max(values[-1], np.finfo(float).tiny)
    return columns @ (vectors[:, kept] / np.sqrt(values[kept]))


def explicit_hessian(objective, gram, signs, weights):
    """Return H = G(I + YPYG)⁻¹, symmetric and defined whether or not G is regular; takes three Gram matrices."""
    share = weights / weights.sum()
    c = objective.bend
    G = gram.columns(np.arange(gram.n))
    if c == 0.0:
        return G
    root = np.sqrt(share)
    system = root[:, None] * G * root
    system[np.diag_indices_from(system)] += 1.0 / c
    scaled = root[:, None] * G
    factor = cho_factor(system, lower=True, overwrite_a=True)
    M = G - scaled.T @ cho_solve(factor, scaled)
    u = M @ (signs * share)
    left = (signs * root) @ cho_solve(factor, signs * root) / c  # 1 - c u'DY1, of which rounding may leave nothing
    M += (c / left) * np.outer(u, u)
    return 0.5 * (M + M.T)


def _model_margins(problem, curvature, beta):
    """Return the margins that H̃ gives to multipliers."""
    share = problem.weights / problem.weights.sum()
    z = problem.objective.pull * curvature.mean_image
    tilted = problem.objective.pull * problem.signs * share
    z += -curvature.B @ (curvature.B.T @ tilted) + curvature.kappa * (curvature.u @ tilted) * curvature.u
    z *= problem.signs
    used = np.flatnonzero(beta)
    _move(problem, curvature, used, beta[used], z)
    return z


def _correct(problem, curvature, margins, exact):
    """Return margins nearer to those of the multipliers: a Newton step with H̃ from what the model said to what is.

    The coefficients made with ``margins`` have the margins ``exact``; their own equation α = Y(λ2 p + β − Pz) misses
    by e = −YP(exact − margins), and the solution's margins are those of α + He.
    """
    share = problem.weights / problem.weights.sum()
    away = exact - margins
    e = -problem.objective.bend * problem.signs * share * (away - share @ away)
    image = curvature.gram.dot(e) - curvature.B @ (curvature.B.T @ e)
    image += curvature.kappa * (curvature.u @ e) * curvature.u
    return exact + problem.signs * image


def _move(problem, curvature, which, change, z):
    """Add to the margins what a change of some multipliers does."""
    signed = problem.signs[which] * change
    shift = -curvature.B @ (curvature.B[which].T @ signed)
    shift += curvature.kappa * (curvature.u[which] @ signed) * curvature.u
    curvature.gram.add_columns(which, signed, shift)
    z += problem.signs * shift


def _block(problem, curvature, which):
    """Return the rows and columns ``which`` of YH̃Y."""
    B, u, y = curvature.B[which], curvature.u[which, None], problem.signs[which]
    left, right = np.hstack([-B, curvature.kappa * u]), np.hstack([B, u])
    H = dgemm(1.0, left, right, trans_b=True, beta=1.0, c=curvature.gram.block(which).T, overwrite_c=True).T
    H *= y[:, None]
    H *= y
    return H


# ---------------------------------------------------------------------- ways to a point


def _guess(problem, features, tol):
    """Return multipliers from the problem on the features alone; zeros if those say nothing about a hard margin."""
    if features.shape[1] == 0 or (tol == _ROUGH and problem.objective.hard):
        return np.zeros(problem.gram.n)
    on_features = Problem(problem.objective, as_rows(features), problem.signs, problem.weights)
    solution = interior_point.solve(on_features, Options(tol, _GUESS_ITERATIONS))
    return np.clip(solution.dual, 0.0, problem.upper)


def _factor_affordable(gram):
    return isinstance(gram, FullGram) and float(gram.n) ** 3 <= _FACTOR_OPERATIONS


def _interior_point(problem, tol):
    """Return multipliers and margins by way of a complete Cholesky factor."""
    rows = as_rows(cholesky_factor(problem.gram).features)
    on_features = Problem(problem.objective, rows, problem.signs, problem.weights)
    solution = interior_point.solve(on_features, Options(0.3 * tol, _GUESS_ITERATIONS))
    return np.clip(solution.dual, 0.0, problem.upper), problem.signs * (rows.X @ solution.coef)


def _descend(problem, curvature, beta, z, goal, n_iter, max_iter, report):
    """Solve block after block until the model's relative gap is below the goal; change ``beta`` and ``z``."""
    best, since = np.inf, 0
    patience = _PATIENCE if len(beta) > _BLOCK else _FEW_TIMES
    while True:
        value, gap = _model_gap(problem, beta, z)
        if report is not None:
            coef = problem.signs * problem.objective.dual_coef(beta, z, problem.weights)
            if report(n_iter, coef, value, gap):
                return n_iter, Status.STOPPED
        if gap <= goal:
            return n_iter, None
        if n_iter >= max_iter:
            return n_iter, Status.ITERATION_LIMIT
        since = 0 if gap < 0.9 * best else since + 1
        best = min(best, gap)
        violation = _violation(z, beta, problem.upper)
        if since > patience or not violation.any():
            return n_iter, Status.STALLED
        which = _choose(violation, beta, problem.upper)
        H = _block(problem, curvature, which)
        block_beta = beta[which]
        _solve_block(H, z[which] - 1.0, block_beta, problem.upper[which], _SLACKEN * violation[which].max())
        change = block_beta - beta[which]
        beta[which] = block_beta
        moved = change != 0.0
        _move(problem, curvature, which[moved], change[moved], z)
        n_iter += 1


def _model_gap(problem, beta, z):
    """Return the objective at the model's point (feasible under a hard margin) and its relative gap to the dual's."""
    objective, weights = problem.objective, problem.weights
    square_norm = objective.dual_coef(beta, z, weights) @ z
    scale = 1.0
    if objective.hard:
        if z.min() <= 0.0:
            return np.inf, np.inf
        scale = objective.feasible_scale(square_norm, z, weights)
    share = weights / weights.sum()
    value = objective.value(scale**2 * square_norm, scale * z, weights)
    dual = beta.sum() - 0.5 * ((objective.pull * share + beta) @ z)
    return value, relative(value - dual, value)


def _violation(z, beta, upper):
    slope = z - 1.0
    slope[(beta <= 0.0) & (slope > 0.0)] = 0.0
    slope[(beta >= upper) & (slope < 0.0)] = 0.0
    return np.abs(slope)


def _choose(violation, beta, upper):
    """Return the rows of the next block: the worst violators, and rows strictly inside their box."""
    inside = (beta > 0.0) & (beta < upper)
    size = min(len(beta), int(np.clip(2 * inside.sum(), _BLOCK, _LARGEST_BLOCK)))
    n_worst = min(size // 2, np.count_nonzero(violation))
    worst = np.argpartition(-violation, n_worst - 1)[:n_worst]
    rest = np.where(inside, violation + 1e-300, violation)
    rest[worst] = 0.0
    rest[inside] += 1e300 * (rest[inside] > 0.0)
    n_rest = min(size - n_worst, np.count_nonzero(rest))
    if n_rest == 0:
        return worst
    return np.sort(np.concatenate([worst, np.argpartition(-rest, n_rest - 1)[:n_rest]]))


def _solve_block(H, slope, beta, upper, goal):
    """Minimise over a block until no violation exceeds the goal; change ``beta`` and ``slope``."""
    curvature = np.maximum(H.diagonal(), 1e-12 * max(H.diagonal().max(), 1e-300))
    for _ in range(_ROUNDS):
        worst = _step_through(H, curvature, slope, beta, upper, goal, _STEPS * len(beta))
        if worst <= goal:
            return
        _newton_on_face(H, slope, beta, upper)


def _newton_on_face(H, slope, beta, upper):
    """Solve for the multipliers strictly inside their box; go to the better of two feasible points towards it."""
    face = np.flatnonzero((beta > 0.0) & (beta < upper))
    if len(face) == 0:
        return
    square = H[np.ix_(face, face)]
    square[np.diag_indices_from(square)] *= 1.0 + 1e-10
    try:
        factor = cho_factor(square, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return
    direction = cho_solve(factor, -slope[face], check_finite=False)
    old, top = beta[face], upper[face]
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(direction < 0.0, -old / direction, np.where(direction > 0.0, (top - old) / direction, np.inf))
    best, gain = None, 0.0
    for target in (old + min(1.0, room.min()) * direction, old + direction):
        change = np.clip(target, 0.0, top) - old
        image = H[face].T @ change
        fall = -(slope[face] @ change + 0.5 * (change @ image[face]))
        if fall > gain:
            best, gain = (change, image), fall
    if best is not None:
        beta[face] = np.clip(old + best[0], 0.0, top)
        slope += best[1]


@njit(cache=True, nogil=True)
def _step_through(H, curvature, slope, beta, upper, goal, max_steps):
    """Step exactly in multipliers whose violation exceeds a falling bar; return the largest violation left.

    The bar makes the order nearly that of the largest violation, without a search before every step.
    """
    bar, steps = np.inf, 0
    while True:
        worst = 0.0
        for i in range(len(slope)):
            size = abs(slope[i])
            if size <= worst and size < bar:
                continue
            new = min(max(beta[i] - slope[i] / curvature[i], 0.0), upper[i])
            change = new - beta[i]
            if change == 0.0:
                continue
            worst = max(worst, size)
            if size < bar:
                continue
            beta[i] = new
            steps += 1
            row = H[i]
            for j in range(len(slope)):
                slope[j] += change * row[j]
        if worst <= goal or steps >= max_steps:
            return worst
        bar = max(goal, 0.5 * min(bar, worst))
