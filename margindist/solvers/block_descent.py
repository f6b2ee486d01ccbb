r"""Block descent on the dual of a kernel machine, with columns of the Gram matrix fetched as they are needed.

Problem (:class:`~margindist.objectives.LDM`), with Gram matrix G, signs Y, shares p = s/M, U = C s:

    min  ½ α'Gα + ½ z'Pz − λ2 p'z + Σ U_i max(0, 1 − z_i),    z = YGα,    P = 4λ1 (diag(p) − pp').

In the metric of the variance it is a support vector machine with kernel H (:mod:`margindist.solvers._metric`). The
descent knows no more of mean and variance than this matrix and a linear term: its dual is

    min_{0 ≤ β ≤ U}  ½ v'Hv − Σ β_i,    v = λ2 p + β,    z = Hv.

**Blocks.** As in ThunderSVM (Wen et al. 2018): take rows strictly inside their box and some of those that violate the
optimality conditions at a bound, fetch their block of H, solve that small problem, move all margins, repeat. The small
problem is solved by steps in pairs of multipliers, as in SMO with second-order selection (Fan, Chen and Lin 2005) but
without its equality constraint, which finds the bounds that are active; where that is slow, Newton steps on the face
they leave follow (Moré and Toraldo 1991).

**Which matrix.** Without margin terms H is G, and columns are computed as their multipliers move. With them it is G in
the metric along the features of a partial Cholesky factor, where few of these are near enough; margins then are exact
only after a certificate, whose product with G corrects them. Elsewhere it is H itself, made at once.

**Where to begin.** The start is the solution for a sample of the rows. If a sample shows a matrix of low rank, it is
the solution on the features of the partial Cholesky factor; if that factor is as good as G, it is nearly the last.

**Few columns for the margin terms.** With margin terms every row has a coefficient, and one product with G costs more
than all columns of few support vectors. But the pull of the terms, Σ y_i s_i k(x_i, ·) with s = λ2 p − Pz, is a smooth
function: its projection onto the functions of a few landmarks is next to it. Where the rows' distances from those
functions prove that it is near enough (:func:`~margindist.solvers._kernel_certificate.certify_projection`), columns of
landmarks and of support vectors are all that is computed; where they do not, what was found is where the rest begins.

**Certificate.** For any β in the box and any z̃ put α = Y(λ2 p + β − Pz̃), and let z = YGα be its *exact* margins. Then
the objective at α is above the minimum by at most

    ½ (z − z̃)'P(z − z̃) + Σ [U_i max(0, 1 − z_i) − β_i (1 − z_i)]

(Fenchel-Young with the dual point α itself). One product with G proves the result, whatever H was. Without margin
terms, the margins that moved along with the multipliers are exact but for rounding, which the length of the way they
went bounds, and no product is needed. Under a hard margin the point is scaled by t = 1/min z to be feasible, which adds
½ (t − 1)² α'Gα.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

from margindist.certificate import relative
from margindist.compilation import njit
from margindist.solvers import _metric, interior_point
from margindist.solvers._kernel_certificate import (
    certify_features,
    certify_multipliers,
    certify_path,
    certify_projection,
    distance_bound,
    inseparable_rows,
)
from margindist.solvers._solution import Options, Problem, Status, better, conclude, require
from margindist.spaces.features import partial_cholesky
from margindist.spaces.gram import FullGram, gram_bytes
from margindist.spaces.rows import as_rows

_GUESS_ITERATIONS = 200  # of an interior point on features
_ROUGH = 1e-2  # relative gap of the first guess, where features are not as good as the Gram matrix
_SINGULAR = 1e-12  # share of a row's squared length outside another below which the two are one
_LANES = 64  # numbers among which the largest is sought at a time
_VECTORISED = {"contract", "reassoc", "nnan", "nsz"}
_SLOPE_ERROR = 2.0**-51  # rounding of slopes, relative to what is added up; certificates allow for 16 times that
_MOST_BLOCKS = 1000
_OF_ALL_ROWS = 12  # blocks that leave as much to do as one of all rows, where it gets nowhere
_ATTEMPTS = 50  # certificates; one or two as a rule


class Settings(NamedTuple):
    """What was chosen by measurements."""

    rank: int = 128  # columns of the partial Cholesky factor
    nothing: float = 1e-7  # share of the trace outside the factor at which it is as good as the Gram matrix
    near_bound: float = 1e-3  # share of the box within which a rough guess is taken to be at its bound
    worth_landmarks: int = 1024  # rows from which on a product with G costs more than all that landmarks take
    most_of_sample: float = 0.25  # share of a sample's rows with a multiplier up to which few columns may do
    block: int = 1024  # rows of a block
    largest_block: int = 3072  # when so many are strictly inside their box
    steps: int = 30  # steps in pairs, per row of the block, before a Newton step
    rounds: int = 3  # of steps and Newton steps; of proofs through landmarks
    slacken: float = 0.1  # solve a block until its violation is this share of what it was
    patience: int = 100  # blocks without progress that end the descent; a block of all rows counts twelve times
    in_vain: int = 6  # certificates that are no better than one before, after which rounding is all that is left


SETTINGS = Settings()


class _Dual(NamedTuple):
    """A problem with the bounds of its multipliers."""

    objective: tuple
    gram: object
    signs: np.ndarray
    weights: np.ndarray
    upper: np.ndarray  # C times the weights

    @property
    def mean_part(self):
        """The part of the expansion that is there without multipliers."""
        return self.objective.mean_weight * self.weights / self.weights.sum()


class _Path:
    """How far multipliers went, by which rounding of the margins that went with them is bounded."""

    def __init__(self, gram, beta, is_known=True):
        self.lengths = np.sqrt(np.maximum(gram.diagonal, 0.0))
        self.n_terms = np.count_nonzero(beta)
        self.length = self.lengths @ beta
        self.is_known = is_known and gram.kept is None  # what was clipped rounds too

    def extend(self, which, change):
        """Count the changes of some multipliers."""
        self.n_terms += len(which)
        self.length += self.lengths[which] @ np.abs(change)


class _Point(NamedTuple):
    """Multipliers, their margins, and how they came there."""

    beta: np.ndarray
    z: np.ndarray
    path: _Path


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
        ``coef`` has one coefficient per row; status "infeasible" says that a hard margin does not exist. Where memory
        kept the metric from being made, ``extra`` says how many ``bytes`` it takes.
    """
    objective, gram, signs, weights = problem
    require(objective, "Block descent", "upper_bound", "variance_weight", "mean_weight")
    tol, max_iter = options.tol, options.limit(_MOST_BLOCKS)
    rng = options.generator()
    problem = _Dual(objective, gram, signs, weights, objective.upper(weights))
    factor = None if _is_plain(objective) else partial_cholesky(gram, SETTINGS.rank, rng)
    if start is None and _may_take_landmarks(problem, factor):
        start = _by_landmarks(problem, factor, options, rng)
        if start is not None and start.status in (Status.OPTIMAL, Status.STOPPED):
            return start
    problem, metric, beta, best = _start(problem, factor, rng, tol, start)
    if best is not None and best.gap <= tol:
        return conclude(best, tol, Status.OPTIMAL)
    gram, beyond = problem.gram, {} if best is None else {"bytes": gram_bytes(problem.gram.n)}
    point = _Point(beta, metric.margins(problem.mean_part + beta), _Path(gram, beta))
    n_iter, goal = 0, 0.5 * tol
    least, in_vain, is_whole = np.inf, 0, False  # gap, certificates since it was so, and whether the metric is
    for _ in range(_ATTEMPTS):
        before = n_iter
        n_iter, ended = _descend(problem, metric, point, goal, n_iter, max_iter, rng, options.report)
        if _is_plain(objective) and point.path.is_known:
            best = better(best, certify_path(objective, gram, signs, weights, *point))
            if best.gap <= tol or (ended and np.isfinite(best.objective)):
                break
        now, exact_z = certify_multipliers(objective, gram, signs, weights, point.beta, point.z)
        best = better(best, now)
        if np.isinf(best.objective) and inseparable_rows(gram, signs, point.beta):
            ended = Status.INFEASIBLE
        in_vain = in_vain + 1 if best.gap >= 0.9 * least and np.isfinite(least) else 0
        least = min(least, best.gap)
        may_be_near = objective.variance_weight > 0.0 and gram.can_derive and not is_whole
        if may_be_near and best.gap > tol and (in_vain or ended is Status.STALLED):  # the metric was not near enough
            problem, metric = _in_whole_metric(problem)
            gram, is_whole, least, in_vain = problem.gram, True, np.inf, 0
            point = _Point(point.beta, metric.margins(problem.mean_part + point.beta), _Path(gram, point.beta))
            continue
        if ended or best.gap <= tol or in_vain == SETTINGS.in_vain:
            break
        z = metric.refined(objective, weights, point.z, exact_z)
        point = _Point(point.beta, z, _Path(gram, point.beta))
        goal = 0.1 * max(min(best.gap, 1.0), tol) if n_iter > before else 0.1 * goal
    return conclude(best._replace(n_iter=n_iter, extra=beyond), tol, ended or Status.STALLED)


def _is_plain(objective):
    """Tell whether there are no margin terms: H is G, and rows without a multiplier have no coefficient."""
    return objective.variance_weight == 0.0 and objective.mean_weight == 0.0


# ---------------------------------------------------------------------- where to begin


def _start(problem, factor, rng, tol, start):
    """Return the problem on the Gram matrix to work with, the metric, first multipliers, and None.

    Where there is no memory for the metric, they are those of a solution as near as features come; the last is this.
    """
    objective, gram, signs, weights, upper = problem
    if _is_plain(objective) and not _looks_low(gram, rng):
        metric = _metric.plain(gram, signs)
        beta = _of_sample(problem, metric, np.zeros(gram.n), rng) if start is None else np.minimum(start.dual, upper)
        return problem, metric, beta, None
    factor = partial_cholesky(gram, SETTINGS.rank, rng) if factor is None else factor
    make = _metric.of_features
    if objective.variance_weight > 0.0:
        make, factor = _metric.choose(objective, gram, factor, weights, rng)
    if make is _metric.of_whole:
        problem, metric = _in_whole_metric(problem)
        if start is not None:
            return problem, metric, np.minimum(start.dual, upper), None
        return problem, metric, _of_sample(problem, metric, metric.margins(problem.mean_part), rng), None
    if make is None:
        near = _on_features(problem, factor, tol)
        return problem, _metric.of_part(objective, gram, factor, signs, weights), near.dual, near
    exact = _is_complete(factor)
    if start is None or exact:
        beta = _guess(problem, factor.features, 0.3 * tol if exact else _ROUGH)
    else:
        beta = np.minimum(start.dual, upper)
    if not exact and not objective.hard:
        beta = _at_bounds(beta, upper)
    if not exact and not _is_plain(objective):
        problem = problem._replace(gram=gram.whole())
    if objective.variance_weight == 0.0:
        return problem, _metric.plain(problem.gram, signs), beta, None
    return problem, make(objective, problem.gram, factor, signs, weights), beta, None


def _in_whole_metric(problem):
    """Return the problem on the Gram matrix to prove with, and the metric as a whole."""
    problem = problem._replace(gram=problem.gram.whole(beside=1))
    return problem, _metric.of_whole(problem.objective, problem.gram, None, problem.signs, problem.weights)


def _is_complete(factor):
    """Tell whether a factor is as good as the Gram matrix."""
    return factor.remainder <= SETTINGS.nothing * factor.diagonal.sum()


def _at_bounds(beta, upper):
    """Return rough multipliers with those near a bound put there."""
    beta = np.where(beta <= SETTINGS.near_bound * upper, 0.0, beta)
    return np.where(beta >= (1.0 - SETTINGS.near_bound) * upper, upper, beta)


def _looks_low(gram, rng):
    """Tell whether a sample of the rows has so low a rank that few features may be as good as the Gram matrix."""
    if gram.n <= SETTINGS.rank:
        return True
    square = gram.block(np.sort(rng.permutation(gram.n)[: 2 * SETTINGS.rank]))
    rank = dpstrf(square, tol=SETTINGS.nothing * max(square.diagonal().max(), 1e-300), lower=1)[2]
    return rank <= SETTINGS.rank


def _of_sample(problem, metric, z, rng):
    """Return the multipliers of a sample of the rows, for itself, and zeros; ``z`` are the margins without any."""
    beta = np.zeros(problem.gram.n)
    sample = np.sort(rng.permutation(problem.gram.n)[: SETTINGS.block])
    result = np.zeros(len(sample))
    _solve_block(metric.block(sample), z[sample] - 1.0, result, problem.upper[sample], SETTINGS.slacken)
    beta[sample] = result
    return beta


# ---------------------------------------------------------------------- margin terms through landmarks


class _Landmarks:
    """The pull of the margin terms, projected onto the functions of few rows."""

    def __init__(self, problem, factor):
        self.problem, self.factor = problem, factor
        share = problem.weights / problem.weights.sum()
        self._tilted = problem.signs * share
        self._share = share
        F = factor.features
        # The weights w = F'Y(λ2 p − Pz) at the margins z = Y(q + Fw), where q are the scores by multipliers alone.
        self._mean = F.T @ self._tilted
        system = problem.objective.variance_weight * ((F.T * share) @ F - np.outer(self._mean, self._mean))
        system[np.diag_indices_from(system)] += 1.0
        self._system = cho_factor(system, lower=True, overwrite_a=True)

    def weights(self, support):
        """Return the weights of the features that belong to the scores which multipliers give."""
        objective = self.problem.objective
        centred = self._share * support - self._tilted * (self._tilted @ support)
        pull = objective.mean_weight * self._mean - objective.variance_weight * (self.factor.features.T @ centred)
        return cho_solve(self._system, pull)

    def support(self, beta):
        """Return the scores that multipliers alone give."""
        used = np.flatnonzero(beta)
        signed = self.problem.signs[used] * beta[used]
        inside = beta[used] < self.problem.upper[used]
        self.problem.gram.add_columns(used, signed, scores := np.zeros(len(beta)), inside)
        return scores

    def margins(self, support):
        """Return the margins with projected margin terms."""
        return self.problem.signs * (support + self.factor.features @ self.weights(support))

    def lost(self, beta, z):
        """Return at most how much the projection adds to the gap."""
        pull = self.problem.objective.dual_coef(beta, z, self.problem.weights) - beta
        return 0.5 * distance_bound(self.factor, pull)


def _may_take_landmarks(problem, factor):
    """Tell whether there are margin terms to see through few rows, and kernel values to be spared by it."""
    gram = problem.gram
    if factor is None or problem.objective.hard or isinstance(gram, FullGram):
        return False
    return gram.n >= SETTINGS.worth_landmarks and not _is_complete(factor)


def _by_landmarks(problem, factor, options, rng):
    """Return a solution from few columns, proved or not; None where that is not promising."""
    gram, tol = problem.gram, options.tol
    landmarks = _Landmarks(problem, factor)
    about = problem.objective, gram, factor, problem.signs, problem.weights
    metric = _metric.of_features(*about)
    beta = _of_sample(problem, metric, landmarks.margins(np.zeros(gram.n)), rng)
    support = landmarks.support(beta)
    point = _Point(beta, landmarks.margins(support), _Path(gram, beta, is_known=False))
    value, _ = _model_gap(problem, beta, point.z)
    many = np.count_nonzero(beta) > SETTINGS.most_of_sample * min(SETTINGS.block, gram.n)
    if many or landmarks.lost(beta, point.z) > 0.5 * tol * abs(value):
        return None
    return _descend_by_landmarks(landmarks, metric, point, options, rng)


def _descend_by_landmarks(landmarks, metric, point, options, rng):
    """Descend and prove in turn; end where the projection keeps the proof from being good enough."""
    problem, tol = landmarks.problem, options.tol
    n_iter, best, goal = 0, None, 0.5 * tol
    for _ in range(SETTINGS.rounds):
        limit = options.limit(_MOST_BLOCKS)
        n_iter, ended = _descend(problem, metric, point, goal, n_iter, limit, rng, options.report)
        support = landmarks.support(point.beta)
        about = problem.objective, problem.gram, problem.signs, problem.weights
        now, z = certify_projection(*about, landmarks.factor, point.beta, support, landmarks.weights(support))
        best = better(best, now)
        if ended or best.gap <= tol or landmarks.lost(point.beta, z) > 0.5 * tol * abs(now.objective):
            break
        point = point._replace(z=z)
        goal = 0.1 * max(min(best.gap, 1.0), tol)
    return conclude(best._replace(n_iter=n_iter), tol, ended or Status.STALLED)


# ---------------------------------------------------------------------- ways to a point


def _guess(problem, features, tol):
    """Return multipliers from the problem on the features alone; zeros if those say nothing about a hard margin."""
    if features.shape[1] == 0 or (tol == _ROUGH and problem.objective.hard):
        return np.zeros(problem.gram.n)
    on_features = Problem(problem.objective, as_rows(features), problem.signs, problem.weights)
    solution = interior_point.solve(on_features, Options(tol, _GUESS_ITERATIONS))
    return np.clip(solution.dual, 0.0, problem.upper)


def _on_features(problem, factor, tol):
    """Return the solution on a factor's features, proved for the kernel as far as that goes."""
    on_features = Problem(problem.objective, factor.rows, problem.signs, problem.weights)
    result = interior_point.solve(on_features, Options(0.3 * tol, _GUESS_ITERATIONS))
    return certify_features(on_features, factor, problem.gram, result, tol)


def _descend(problem, metric, point, goal, n_iter, max_iter, rng, report):
    """Solve block after block until the model's relative gap is below the goal; change the point."""
    beta, z, path = point
    best, since = np.inf, 0
    patience = SETTINGS.patience
    if len(beta) <= SETTINGS.block:
        patience //= _OF_ALL_ROWS
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
        if since > patience or not (violation > 0.0).any():
            return n_iter, Status.STALLED
        which = _choose(violation, beta, problem.upper, rng)
        H = metric.block(which)
        block_beta = beta[which]
        _solve_block(H, z[which] - 1.0, block_beta, problem.upper[which], SETTINGS.slacken * violation[which].max())
        change = block_beta - beta[which]
        beta[which] = block_beta
        moved = change != 0.0
        which, change, new = which[moved], change[moved], block_beta[moved]
        metric.add(which, change, z, (new > 0.0) & (new < problem.upper[which]))  # those inside move again
        path.extend(which, change)
        n_iter += 1


def _model_gap(problem, beta, z):
    """Return the objective at the model's point (feasible under a hard margin) and its relative gap to the dual's.

    In the metric it is ½ t² v'z − t λ2 p'z and the loss; t is 1 unless a hard margin asks for more.
    """
    pull = problem.mean_part
    square, reward, scale, loss = (pull + beta) @ z, pull @ z, 1.0, 0.0
    if problem.objective.hard:
        if z.min() <= 0.0:
            return np.inf, np.inf
        scale = max(1.0 / z.min(), reward / square)
    else:
        loss = problem.upper @ np.maximum(0.0, 1.0 - z)
    value = 0.5 * scale**2 * square - scale * reward + loss
    return value, relative(value + 0.5 * square - beta.sum(), value)


def _violation(z, beta, upper):
    slope = z - 1.0
    slope[(beta <= 0.0) & (slope > 0.0)] = 0.0
    slope[(beta >= upper) & (slope < 0.0)] = 0.0
    return np.abs(slope)


def _choose(violation, beta, upper, rng):
    """Return the rows of the next block: rows strictly inside their box, and a sample of those that violate at a bound.

    The worst violators are much alike: a block of them moves the function too far in their direction, and the next
    block takes it back. A sample stands for all of them, and takes a third of the blocks.
    """
    inside = np.flatnonzero((beta > 0.0) & (beta < upper) & (violation > 0.0))
    size = int(np.clip(2 * len(inside), SETTINGS.block, SETTINGS.largest_block))
    at_bound = violation > 0.0
    at_bound[inside] = False
    at_bound = np.flatnonzero(at_bound)
    n_bound = min(len(at_bound), max(size // 2, size - len(inside)))
    at_bound = rng.choice(at_bound, n_bound, replace=False)
    n_inside = min(len(inside), size - n_bound)
    if 0 < n_inside < len(inside):
        inside = inside[np.argpartition(-violation[inside], n_inside - 1)]
    return np.sort(np.concatenate([inside[:n_inside], at_bound]))


def _solve_block(H, slope, beta, upper, goal):
    """Minimise over a block until no violation exceeds the goal; change ``beta`` and ``slope``.

    No goal is below the rounding of slopes, where steps would go round in a circle.
    """
    largest = H.diagonal().max()
    curvature = np.maximum(H.diagonal(), 1e-12 * (largest if largest > 0.0 else 1.0))  # empty rows have none
    for _ in range(SETTINGS.rounds):
        goal = max(goal, _SLOPE_ERROR * np.sqrt(curvature.max()) * (np.sqrt(curvature) @ beta))
        worst = _step_through(H, curvature, slope, beta, upper, goal, SETTINGS.steps * len(beta))
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_VECTORISED)
def _step_through(H, curvature, slope, beta, upper, goal, max_steps):
    """Step exactly in pairs of multipliers until no violation exceeds the goal; return the largest one left.

    The first of a pair is the worst violator, the second promises most together with it. A constant feature couples
    all rows, and single steps are slow in its direction; a pair can move along it and across.
    """
    n = len(slope)
    up, down = np.empty(n), np.empty(n)  # 1 where a multiplier can grow, and where it can shrink
    for k in range(n):
        up[k] = 1.0 if beta[k] < upper[k] else 0.0
        down[k] = 1.0 if beta[k] > 0.0 else 0.0
    score = np.empty(n)
    for _ in range(max_steps):
        for k in range(n):
            score[k] = max(-slope[k] * up[k], slope[k] * down[k])
        i, worst = _largest(score)
        if worst <= goal:
            return worst
        row, g, h = H[i], slope[i], curvature[i]
        for k in range(n):
            # With the first at its best whatever the second does, the second has this slope and curvature.
            along = row[k] / h
            left = max(curvature[k] - row[k] * along, _SINGULAR * curvature[k])
            step = g * along - slope[k]
            possible = max(step * up[k], -step * down[k])
            stays = (slope[k] * row[k] - g * curvature[k]) * g < 0.0  # the first goes where it would go alone
            score[k] = possible * possible / left if stays else 0.0
        score[i] = 0.0
        j, promise = _largest(score)
        if promise > 0.0:
            d, e = _pair_step(g, slope[j], h, curvature[j], row[j], beta[i], beta[j], upper[i], upper[j])
        else:
            d, e = min(max(beta[i] - g / h, 0.0), upper[i]) - beta[i], 0.0
        if d == 0.0 and e == 0.0:
            return worst
        beta[i] = min(max(beta[i] + d, 0.0), upper[i])
        beta[j] = min(max(beta[j] + e, 0.0), upper[j])
        other = H[j]
        for k in range(n):
            slope[k] += d * row[k] + e * other[k]
        for k in (i, j):
            up[k] = 1.0 if beta[k] < upper[k] else 0.0
            down[k] = 1.0 if beta[k] > 0.0 else 0.0
    return worst


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_VECTORISED)
def _largest(score):
    """Return where the largest of non-negative numbers is, and the number."""
    top, begin = 0.0, 0
    for start in range(0, len(score), _LANES):
        part = 0.0
        for k in range(start, min(start + _LANES, len(score))):
            part = max(part, score[k])
        if part > top:
            top, begin = part, start
    for k in range(begin, min(begin + _LANES, len(score))):
        if score[k] == top:
            return k, top
    return 0, top


@njit(cache=True, nogil=True, error_model="numpy")
def _pair_step(g, g_other, h, h_other, cross, beta, beta_other, upper, upper_other):
    """Return the changes of two multipliers that minimise over both, within their boxes."""
    along = cross / h
    left = h_other - cross * along
    if left > _SINGULAR * h_other:
        e = (g * along - g_other) / left
        d = -(g + cross * e) / h
        if 0.0 <= beta + d <= upper and 0.0 <= beta_other + e <= upper_other:
            return d, e
    least, best, best_other = 0.0, 0.0, 0.0
    for side in range(4):  # the minimum is where one of them is at a bound
        if side < 2:
            d = -beta if side == 0 else upper - beta
            if d == np.inf:
                continue
            e = min(max(beta_other - (g_other + cross * d) / h_other, 0.0), upper_other) - beta_other
        else:
            e = -beta_other if side == 2 else upper_other - beta_other
            if e == np.inf:
                continue
            d = min(max(beta - (g + cross * e) / h, 0.0), upper) - beta
        change = g * d + g_other * e + 0.5 * (h * d * d + h_other * e * e) + cross * d * e
        if change < least:
            least, best, best_other = change, d, e
    if least == 0.0:
        best = min(max(beta - g / h, 0.0), upper) - beta
    return best, best_other
