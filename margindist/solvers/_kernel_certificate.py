r"""The certificate of a kernel machine: of the coefficients it has, with the kernel matrix as it is.

Solvers work on features F of a Gram matrix G (:mod:`margindist.spaces.features`) that leave out directions of next
to no length: with pivots S, :math:`F = G_{\cdot S} L^{-T}`, :math:`LL^T = G_{SS}` and :math:`G - FF^T \succeq 0`. At a
high price of errors, however, short directions pay: the optimum on the features may be far above that of the kernel.

**Few coefficients.** Weights w of the features are the function :math:`f = \sum_S \alpha_s k(x_s, \cdot)`,
:math:`\alpha = L^{-T} w`, with :math:`\|f\| = \|w\|` and exactly the features' margins. The dual point a of
:mod:`margindist.objectives` is the function :math:`\tilde f = \sum_i \tilde a_i k(x_i, \cdot)`,
:math:`\tilde a_i = y_i a_i`, of which features see only a part:

.. math:: \|f - \tilde f\|^2 = \|w - F^T \tilde a\|^2 + \tilde a^T (G - FF^T) \tilde a .

The last term is what the features' own certificate lacks. It takes one product with G.

**Many coefficients.** The same product gives the margins :math:`z' = y \circ G\tilde a` and the squared length
:math:`\tilde a^T G \tilde a` of :math:`\tilde f` itself, which lies in directions that the features lack. Its own
dual point is a: what is left of the certificate is the Fenchel-Young sum at :math:`z'`.

Both are computed. Each gives a lower bound on the minimum, the larger one counts; and the function with few
coefficients is returned unless only the other one is proved.

**Projected margin terms.** The dual point of LDM is :math:`a = \beta + s`, where s is the pull of the margin terms:
small, but not zero, on all rows. Let f be the function of the multipliers and of weights w of features of a few
landmarks. Then with the rows' squared distances :math:`r_i = G_{ii} - \|F_i\|^2` from the landmarks' functions, and
:math:`\tilde s = y s`,

.. math:: \|f - \tilde f\|^2 = \|w - F^T \tilde s\|^2 + \tilde s^T (G - FF^T) \tilde s
    \le \|w - F^T \tilde s\|^2 + \Big(\sum_i |s_i| \sqrt{r_i}\Big)^2 ,

which takes the columns of the landmarks and of the rows that have a multiplier, and no other.

**Rounding.** A product of row i of G with coefficients c is off by at most

.. math:: e_i = (6\sqrt n + 64)\, u \, \sqrt{G_{ii}} \sum_j \sqrt{G_{jj}} \, |c_j| , \qquad u = 2^{-53},

since :math:`|G_{ij}| \le \sqrt{G_{ii} G_{jj}}`, sums of n products are off by :math:`6 \sqrt n u` of the sum of
absolute values (all but certainly: Higham and Mary, SIAM J. Sci. Comput. 2019), and the kernel values by a few u. All
terms are taken at the worst margins within these bounds, and the objective's own error is added: where large
coefficients cancel, the gap says so.

**Which problem.** For Nystroem features the problem on the features is the one that is asked for, and the term with
G is left out; :func:`kernel_gap` says what it is with that term, which takes the kernel values between rows with a dual
variable. Of an indefinite kernel, G is the positive part.
"""

import numpy as np

from margindist.certificate import inseparable, relative, worthwhile_scale
from margindist.solvers._class_blocks import coefficients
from margindist.solvers._solution import (
    Solution,
    Status,
    better,
    conclude,
    with_bound,
)

__all__ = [
    "certify_features",
    "certify_multipliers",
    "certify_path",
    "certify_projection",
    "distance_bound",
    "hidden_by_rounding",
    "inseparable_rows",
    "kernel_gap",
    "kernel_gap_of_joint",
    "material",
    "rounding",
    "solve_in_space",
    "solve_joint_in_space",
]

_UNIT = 2.0**-53
_SUM = 6.0  # error of a sum of n products, in units of √n
_VALUE = 64.0  # error of a kernel value, in units of its rounding
_SHARES = (1.0, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1)  # of the multipliers, for a bound
_LARGEST = 1e7  # what a hard margin is added up from: half the digits of a Gram matrix are those of squares
_MOSTLY = 10.0  # times the error of the value, which is in the gap twice
_IMMATERIAL = 1e-11  # relative error of an objective's value that is not worth a word


def rounding(n, of_values=_VALUE):
    """Return the error of a sum of n products of kernel values, relative to the sum of absolute values."""
    return (_SUM * np.sqrt(n) + of_values) * _UNIT


def material(error, value):
    """Return what an error of the objective's value is beyond what any value has."""
    return np.maximum(0.0, error - _IMMATERIAL * np.abs(value))


def hidden_by_rounding(solution, gram=None):
    """Tell whether a gap is due to rounding of the kernel's values mostly: with the same values nobody gets further.

    It is rounding of the objective or, asked for with the Gram matrix, of the dual point's length as a function, which
    hides lower objectives only from who sees no more of the kernel than the matrix.
    """
    error = solution.error
    if gram is not None:
        error = max(error, 0.5 * (solution.dual @ _margin_errors(gram, solution.dual)))
    return solution.gap * abs(solution.objective) <= _MOSTLY * error


def _margin_errors(gram, coef):
    """Return how far each row's computed product with coefficients (one per row) can be from the exact one.

    ``gram`` is a Gram matrix or a factor of one.
    """
    share = rounding(np.count_nonzero(coef))
    lengths = np.sqrt(np.maximum(gram.diagonal, 0.0))
    errors = share * lengths * (lengths @ np.abs(coef))
    if gram.kept is not None:  # what was clipped rounds too, relative to the largest eigenvalue
        errors += share * gram.kept.largest * np.linalg.norm(coef / gram.kept.root) / gram.kept.root
    return errors


def certify_features(problem, factor, gram, result, tol):
    """Return the solution that weights of features make, in coefficients of the rows, with its proof; no status yet.

    ``gram`` is what they are features of; None if the problem is that on the features. Few coefficients are good enough
    if they are proved up to a relative gap of ``tol``.
    """
    objective, _, signs, weights = problem
    w = result.coef
    margins, beta, dual = _dual_of_weights(problem, factor, w, result.dual)
    few = _Candidate(objective, factor, weights, factor.coefficients(w), margins, w @ w)
    seen = factor.rows.X.T @ dual
    off = few.scale * w - seen
    distance = off @ off + few.misfit(margins)
    if gram is None:
        return few.solution(beta, few.lower_bound(beta, distance))
    image = gram.dot(dual)
    square = max(dual @ image, 0.0)
    distance += max(0.0, square - seen @ seen) + np.abs(dual) @ _margin_errors(factor, dual)
    many = _Candidate(objective, factor, weights, dual, signs * image, square)
    first = few.solution(beta, few.lower_bound(beta, distance))
    second = many.solution(beta, many.lower_bound(beta, many.distance(margins)))
    result = with_bound(first, second.least)
    if result.gap <= tol or first.most <= second.most:
        return result
    return with_bound(second, first.least)


def _dual_of_weights(problem, factor, w, beta):
    """Return the margins that weights of features give, the multipliers there, and the dual point's coefficients."""
    objective, _, signs, weights = problem
    margins = signs * (factor.rows.X @ w)
    beta = objective.multipliers(beta, margins, weights)
    return margins, beta, signs * objective.dual_coef(beta, margins, weights)


def kernel_gap(problem, result):
    """Return at most how far, relatively, a solution on Nystroem's features is above the minimum of the whole kernel.

    ``problem`` lives in a :class:`~margindist.spaces.space.KernelSpace` without a Gram matrix, whose kernel must have
    no negative eigenvalues.
    """
    objective, space, signs, weights = problem
    factor = space.factor()
    w = factor.weights(result.coef)
    margins, beta, dual = _dual_of_weights(problem, factor, w, result.dual)
    few = _Candidate(objective, factor, weights, result.coef, margins, w @ w)
    # The whole kernel makes a longer function of the same dual point: a shorter point may prove more.
    pull = signs * objective.dual_coef(np.zeros_like(beta), margins, weights)
    parts = np.column_stack([pull, dual - pull])
    seen, beyond = factor.rows.X.T @ parts, space.products_beyond(parts)
    errors = np.abs(parts).sum(axis=1) @ _margin_errors(factor, np.abs(parts).sum(axis=1))
    bounds = []
    for share in _SHARES:
        mixture = np.array([1.0, share])
        off = few.scale * w - seen @ mixture
        distance = off @ off + few.misfit(margins) + max(0.0, mixture @ beyond @ mixture) + errors
        bounds.append(few.lower_bound(share * beta, distance))
    return few.solution(beta, max(bounds)).gap


def kernel_gap_of_joint(problem, rounds):
    """Return the same for the best round of the joint problem of several classes."""
    space, dual = problem.space, _joint_dual(problem.signs, rounds)
    errors = sum(np.abs(column) @ _margin_errors(space.factor(), column) for column in dual.T)
    missing = max(0.0, np.trace(space.products_beyond(dual))) + errors
    return rounds.gap + relative(missing / 2.0, rounds.objective)


def _joint_dual(codes, rounds):
    """Return the coefficients that a joint problem's dual variables give to the rows, one column per class."""
    dual = np.zeros((len(codes), len(rounds.coef)))
    rows, classes, values = coefficients(codes, rounds.dual)
    np.add.at(dual, (rows, classes), values)
    return dual


def certify_multipliers(objective, gram, signs, weights, beta, margins):
    """Return the solution that multipliers make at approximate margins, proved by its exact ones; and these."""
    coef = signs * objective.dual_coef(beta, margins, weights)
    image = gram.image(coef)
    result = _Candidate(objective, gram, weights, coef, signs * image, max(coef @ image, 0.0))
    return result.solution(beta.copy(), result.lower_bound(beta, result.distance(margins))), signs * image


def certify_path(objective, gram, signs, weights, beta, margins, path):
    """Do the same without margin terms for margins that were moved along with the multipliers, with no new product.

    Each move of a multiplier added a product to every margin: rounding is that of a sum of all of them, and the sum of
    their absolute values is at most the length of the path.
    """
    coef = signs * beta
    lengths = np.sqrt(np.maximum(gram.diagonal, 0.0))
    errors = rounding(path.n_terms) * lengths * path.length
    result = _Candidate(objective, gram, weights, coef, margins, max(beta @ margins, 0.0), errors)
    return result.solution(beta.copy(), result.lower_bound(beta, result.distance(margins)))


def certify_projection(objective, gram, signs, weights, factor, beta, support, w):
    """Return the solution that multipliers and weights of landmarks' features make, with its proof; and their margins.

    ``support`` are the scores that the multipliers alone give to the rows. The solution may be a part of what they make
    (:func:`~margindist.certificate.worthwhile_scale`); the margins are those of all of it.
    """
    of_landmarks = factor.coefficients(w)
    gram.add_columns(factor.pivots, of_landmarks[factor.pivots], scores := support.copy(), np.zeros(len(w), dtype=bool))
    coef = signs * beta + of_landmarks
    margins = signs * scores
    result = _Candidate(objective, gram, weights, coef, margins, max(coef @ scores, 0.0))
    pull = objective.dual_coef(beta, margins, weights) - beta
    off = w - factor.features.T @ (signs * pull)
    distance = (np.sqrt(off @ off + distance_bound(factor, pull)) + result.stretch) ** 2 + result.misfit(margins)
    return result.solution(beta.copy(), result.lower_bound(beta, distance)), margins


def distance_bound(factor, coef):
    """Return at most the squared distance of a combination of rows from its projection onto a factor's features."""
    left = factor.diagonal - np.einsum("ij,ij->i", factor.features, factor.features)
    left = np.maximum(left, 0.0) + rounding(factor.features.shape[1]) * factor.diagonal
    return (np.abs(coef) @ np.sqrt(left)) ** 2 + np.abs(coef) @ _margin_errors(factor, coef)


def inseparable_rows(gram, signs, beta):
    """Tell whether multipliers prove that a kernel has no hard margin."""
    used = np.flatnonzero(beta)
    signed = (signs * beta)[used]
    gram.add_columns(used, signed, image := np.zeros(gram.n))
    length = np.sqrt([max(0.0, signed @ image[used])])  # the one thing that is known of all columns
    return inseparable(beta.sum(), length, np.sqrt([gram.diagonal.max()]), _LARGEST)


class _Candidate:
    """A function, the objective's value there, and how far rounding can have taken it from the exact one."""

    def __init__(self, objective, factor, weights, coef, margins, square, errors=None):
        self.objective, self.weights, self.scale = objective, weights, 1.0
        errors = _margin_errors(factor, coef) if errors is None else errors
        self.longest = np.sqrt(square + np.abs(coef) @ errors)  # the length, or more by what rounding may have taken
        self.feasible = not objective.hard or (margins - errors).min() > 0.0
        if objective.hard and self.feasible:
            least = (margins - errors).min()
            self.scale = max(1.0 / least, objective.feasible_scale(square, margins, weights))
            margins = np.maximum(margins, 1.0 / self.scale)
        elif not objective.hard:
            self.scale = worthwhile_scale(objective, square, margins, weights)
        self.coef = self.scale * coef
        self.margins = self.scale * margins
        self.errors = self.scale * errors
        self.value = np.inf if np.isfinite(margins).all() else np.nan
        self.error = 0.0
        if not self.feasible:
            return
        self.value = objective.value(self.scale**2 * square, self.margins, weights)
        slopes = objective.steepest(self.margins, self.errors, weights)
        self.error = material((0.5 * np.abs(self.coef) + slopes) @ self.errors, self.value)

    def distance(self, margins):
        """Return the squared distance from a dual point with these coefficients that was made at these margins."""
        return self.stretch**2 + self.misfit(margins)

    @property
    def stretch(self):
        """How far scaling has moved the function, at most: longer to keep a hard margin, shorter if that costs less."""
        return abs(self.scale - 1.0) * self.longest

    def misfit(self, margins):
        """Return what counts as squared distance because the dual point was made at these margins, not at its own."""
        return 2.0 * self.objective.misfit(self.margins - margins, self.weights)

    def lower_bound(self, beta, distance):
        """Return what the minimum is at least, given the squared distance of the dual point from this function."""
        if not self.feasible:
            return -np.inf
        sum_of_rows = self.objective.complementarity(beta, self.margins, self.weights, self.errors)
        return self.value - self.error - 0.5 * distance - sum_of_rows

    def solution(self, beta, lower):
        """Return this function as a solution, given what the minimum is at least."""
        lower = max(lower, self.objective.floor)
        gap = relative(self.value + self.error - lower, self.value)
        return Solution(self.coef, beta, self.value, gap, error=self.error)


def _certify_rounds(problem, factor, gram, rounds):
    r"""Return rounds of the joint problem of several classes in coefficients of the rows, with their proof.

    As with few coefficients above, class by class. Margins are differences of two scores; the loss L and its
    certificate, sums of squares in them, move by at most :math:`2\sqrt{L s} + s`, :math:`s = \sum_i c_i (2 e_i)^2`.
    """
    objective, _, codes, weights = problem
    alphas = factor.coefficients(rounds.coef)
    errors = np.array([_margin_errors(factor, alpha) for alpha in alphas])
    moved = objective.prices(weights) @ (2.0 * errors.max(axis=0)) ** 2
    error = np.vdot(np.abs(alphas), errors) / 2.0 + 2.0 * np.sqrt(rounds.objective * moved) + moved
    missing = 0.0
    if gram is not None:
        dual = _joint_dual(codes, rounds)
        seen = factor.rows.X.T @ dual
        missing = max(0.0, np.vdot(dual, gram.dot(dual)) - np.vdot(seen, seen))
        missing += sum(np.abs(column) @ _margin_errors(factor, column) for column in dual.T)
    return rounds._replace(coef=alphas, gap=rounds.gap + relative(missing / 2.0 + 2.0 * error, rounds.objective))


def solve_in_space(space, problem, goal, solve, start=None):
    """Solve a two-class problem by a solver that works on rows; in a kernel's space, prove it for the kernel.

    Where the features do not allow a proof, it is tried again with finer ones. These are no easier to solve on: a
    solver that stalls short of the optimum on the first ones is not asked again.

    Parameters
    ----------
    space : LinearSpace or KernelSpace
        Where the rows live.
    problem : Problem
        Two-class.
    goal : callable
        From the objective's value to the relative gap to reach.
    solve : callable
        From rows and a start (a solution in weights of their columns, or None) to a solution.
    start : Solution
        Of a similar problem, in coefficients of the space.

    Returns
    -------
    Solution
        In coefficients of the space.
    """
    if space.factor() is None:
        return solve(space.rows, start)
    solved = []

    def attempt(factor, start):
        if start is not None:
            start = start._replace(coef=factor.rows.X.T @ start.coef)
        result = solve(factor.rows, start)
        if result.status is Status.INFEASIBLE:  # of the features, which lack short directions
            proved = space.gram is None or inseparable_rows(space.gram, problem.signs, result.dual)
            status = Status.INFEASIBLE if proved else Status.STALLED
            return result._replace(coef=factor.coefficients(result.coef), status=status)
        enough = goal(result.objective)
        solved.append(result.gap <= enough or np.isinf(result.objective))
        proved = certify_features(problem, factor, space.gram, result, enough)
        return conclude(proved._replace(n_iter=result.n_iter), enough, result.status)

    first = attempt(space.factor(), start)
    if first.status is not Status.STALLED or space.gram is None or not all(solved) or hidden_by_rounding(first):
        return first
    second = attempt(space.finest_factor(), first)
    best = better(first, second)
    return conclude(best._replace(n_iter=first.n_iter + second.n_iter), goal(best.objective), second.status)


def solve_joint_in_space(space, problem, tol, solve, start=None):
    """Solve the joint problem of several classes as :func:`solve_in_space` does; the solutions are rounds."""
    if space.factor() is None:
        return solve(space.rows, start)

    def attempt(factor, start):
        if start is not None:
            start = start._replace(coef=start.coef @ factor.rows.X)
        result = solve(factor.rows, start)
        return result, _certify_rounds(problem, factor, space.gram, result)

    result, first = attempt(space.factor(), start)
    if first.gap <= tol or result.gap > tol or space.gram is None:
        return first
    _, second = attempt(space.finest_factor(), first)
    best = second if second.objective <= first.objective or second.gap <= tol else first
    return best._replace(n_iter=result.n_iter + second.n_iter)
