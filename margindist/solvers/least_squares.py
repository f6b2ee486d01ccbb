r"""Ridge regression on the labels with a bias that costs nothing: the least squares support vector machine.

Problem, for targets :math:`y_i`, weights :math:`s_i` and features :math:`\varphi(x)` (:math:`M = \sum_i s_i`):

.. math:: \min_{w, b} \; P(w, b) = \tfrac12 \|w\|^2 + \tfrac{C}{2} \sum_i s_i e_i^2 , \qquad
          e_i = y_i - w \cdot \varphi(x_i) - b .

The bias follows from w: it makes :math:`\sum_i s_i e_i = 0`, which is the same as centring features and targets.

**Columns** (few features). With the scatter matrix :math:`B = \sum_i s_i (x_i - \bar x)(x_i - \bar x)^T` and
:math:`g = \sum_i s_i (y_i - \bar y) x_i`, :math:`(B + I/C)\, w = g`: one product of the rows, one Cholesky
factorisation of d × d, whatever the number of targets.

**Rows** (kernels, or fewer rows than features). With the Gram matrix K, :math:`w = \sum_i \alpha_i \varphi(x_i)` and

.. math:: (K + \mathrm{diag}(1/(C s)))\, \alpha + b \mathbf 1 = y , \qquad \mathbf 1 \cdot \alpha = 0

(Suykens' system), solved by one Cholesky factorisation for the right sides 1 and y.

**Conjugate gradients** (many features, sparse). Products with the rows only, preconditioned by the diagonal of B + I/C.
Where they have taken as long as a Cholesky factor of B + I/C would, or of its counterpart with the rows' inner
products, that is made and preconditions the rest: only rounding is left to correct then.

**Certificate.** :math:`\alpha_i = C s_i e_i` is dual feasible for every w with its own bias, and then
:math:`P(w, b) - D(\alpha) = \tfrac12 \|w - \sum_i \alpha_i \varphi(x_i)\|^2`: half the squared residual of the system
bounds the distance to the optimum. At high prices C the residuals :math:`e_i` are differences with few digits; then
the multipliers that w was made of are the better dual point, for any of them

.. math:: P(w, b) - D(\alpha) = \tfrac12 \|w - \sum_i \alpha_i \varphi(x_i)\|^2
          + \tfrac C2 \sum_i s_i \bigl(e_i - \tfrac{\alpha_i}{C s_i}\bigr)^2 .

What rounding can have done to residuals and sums is added to it. Where that and the residual exceed the tolerance, the
solution is refined: the same factor (or eigenvectors, where 1/C is lost beside the matrix and a Cholesky factor does
not exist) takes the residual of the system, computed from the rows or from K, as its right side.

**Paths.** One symmetric eigendecomposition of B, or of :math:`S^{1/2} K S^{1/2}`, in place of the factorisation makes
every further C a product with its eigenvectors, and gives the leave-one-out scores exactly: without row i its residual
is :math:`e_i / (1 - h_i)`, where :math:`h_i` is the influence of :math:`y_i` on its own score. In terms of the rows'
system it is :math:`\alpha_i / (A^{-1})_{ii}`, A the whole bordered matrix.

**Empirical feature space.** Abe's EMAMC has the features :math:`\varphi(x) = (\sqrt{s_j} K(x, x_j))_j`. Their Gram
matrix is :math:`K S K`; for a linear kernel they are :math:`X x`, and with :math:`A = X^T S X` the weights of the
columns are :math:`u = At`, :math:`\|w\|^2 = t^T A t`, :math:`(BA + I/C)\, t = g`. So a *metric* A is all that the
columns' form needs to know of it. A solution found from :math:`K S K` is refined and certified by its weights of the
features, :math:`w_j = \sqrt{s_j} (K\beta)_j`: products with K round by much less than those with its square.
"""

import contextlib
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lu_factor, lu_solve
from scipy.linalg.blas import dsymm

from margindist.certificate import relative
from margindist.solvers._factors import nearest_cholesky
from margindist.solvers._kernel_certificate import material, rounding
from margindist.solvers._solution import Solution, Status, conclude
from margindist.solvers.conjugate_gradients import conjugate_gradients
from margindist.spaces.rows import (
    BLAS,
    DenseRows,
    add_rows,
    gram,
    gram_operations,
    inner_products,
    n_columns,
    n_rows,
    n_stored,
    products,
    row_range,
    scatter,
    scores,
    squares,
    sum_of_squares,
    weighted_sums,
)

__all__ = [
    "Path",
    "certify_by_rows",
    "metric_of",
    "path_columns",
    "path_gram",
    "solve",
    "solve_columns",
    "solve_gram",
]


class Settings(NamedTuple):
    """When conjugate gradients and corrections end."""

    patience: int = 30  # steps of conjugate gradients, and more the more there could be, that do not halve the residual
    factor_patience: int = 10  # the same with a factor of the matrix: without rounding, one step would do
    refinements: int = 5  # corrections of a solution at most
    most_products: int = 1000
    largest_factor: int = 5000  # order above which no factor preconditions conjugate gradients (200 MB)
    strip_values: int = 2**22  # transformed features in memory at a time


SETTINGS = Settings()


class Path(NamedTuple):
    """Solutions for several C; the first axis of every array is C, the second the target."""

    coefs: np.ndarray  # weights of the columns, or of the training rows
    biases: np.ndarray
    loo_scores: np.ndarray  # the score of each row, by the solution without it


def metric_of(rows, feature_weights):
    """Return ``Σ feature_weights_k x_k x_kᵀ``, the metric of the empirical feature space of a linear kernel."""
    return _symmetric(gram(rows._replace(bias=0.0), np.arange(n_rows(rows)), feature_weights))


def solve_columns(problem, options):
    """Solve for few features and several targets; cost one product of the rows and a factorisation of d × d.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.LeastSquares` on rows, with a constant column if there is to be a bias, and an
        array of label vectors.
    options : Options
        The choice "metric" is what :func:`metric_of` returns, for the empirical feature space.

    Returns
    -------
    list of Solution, one per target; the bias, if any, is the last coefficient
    """
    objective, rows, targets, weights = problem
    (metric,) = options.chosen(metric=None)
    tol = options.tol
    B, g, mean, target_means = _moments(rows, targets, weights)
    solve = _column_system(B, metric, objective.ridge)
    squares(rows._replace(bias=0.0), lengths := np.empty(n_rows(rows)))
    point = _ColumnPoint(rows, targets, objective.prices(weights), metric, mean, target_means, np.sqrt(lengths))
    t = solve(g)
    result = point.certify(t)
    for _ in range(SETTINGS.refinements):
        if np.all(result.gaps <= tol):
            break
        refined = result.improved(point.certify(result.t - objective.ridge * solve(result.off)))
        if refined is result:
            break
        result = refined
    if np.any(result.gaps > tol):
        result = result.improved(point.certify(np.zeros_like(t)))  # all digits can be lost
    return [conclude(solution, tol, Status.STALLED) for solution in result.solutions]


def solve_gram(problem, options):
    """Solve from the Gram matrix, which is overwritten, for several targets: cost one factorisation of its order.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.LeastSquares` on a matrix (C-contiguous, symmetric, positive semi-definite), with
        an array of label vectors.
    options : Options
        The choice "fit_bias" says whether there is a bias; there is one if it is not made. "features" are dense rows
        whose products the matrix is made of, if there are such.

    Returns
    -------
    list of Solution, one per target; the bias, if any, is the last coefficient
        With features, the coefficients are weights of their columns, and ``dual`` has what they are made of.
    """
    objective, K, targets, weights = problem
    fit_bias, features = options.chosen(fit_bias=True, features=None)
    tol = options.tol
    prices = objective.prices(weights)
    system = _GramSystem(K, 1.0 / prices)
    solved = system.solve(np.vstack([np.ones(len(K)), targets]).T)
    eta = solved[:, :1]
    point = _GramPoint(system, targets, prices, fit_bias)
    if features is not None:
        point = _FeaturePoint(problem._replace(space=features))
    result = point.certify(*_remove_bias(solved, fit_bias))
    for _ in range(SETTINGS.refinements):
        if np.all(result.gaps <= tol):
            break
        change = system.solve(system.ridge[:, None] * result.off)
        change, bias = _remove_bias(np.hstack([eta, change]), fit_bias)
        refined = result.improved(point.certify(result.alphas - change, result.biases - bias))
        if refined is result:
            break
        result = refined
    if np.any(result.gaps > tol):
        nothing = np.zeros_like(result.alphas), np.zeros_like(result.biases)
        result = result.improved(point.certify(*nothing))  # all digits can be lost
    return [conclude(solution, tol, Status.STALLED) for solution in result.solutions]


def rounding_floor(problem, options, result):
    """Return the relative gap that rounding leaves to weights with multipliers like these, in :func:`solve`."""
    feature_weights, _ = options.chosen(feature_weights=None, shared=None)
    features = _Features(problem, feature_weights)
    astray = features._astray(features._lengths(), result.dual)
    return relative(0.5 * astray**2, result.objective)


def certify_by_rows(problem, options, result):
    """Return a solution with the value and the gap that its weights of the columns have on the rows.

    What a Gram matrix says of multipliers is true of the weights that predict only as far as the sum of the rows is.
    """
    feature_weights, _ = options.chosen(feature_weights=None, shared=None)
    if feature_weights is not None:
        return result
    features = _Features(problem, None)
    proved = features.certify(result.coef[: features.size()], result.dual)
    return conclude(proved._replace(n_iter=result.n_iter), options.tol, Status.STALLED)


def solve(problem, options, start=None):
    """Solve for one target by conjugate gradients, with products of the rows only.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.LeastSquares` on rows, with a constant column if there is to be a bias.
    options : Options
        One iteration is a product. The choice "feature_weights", one per row, asks for the empirical feature space;
        "shared" is a dict that keeps what serves other targets too.
    start : Solution, optional
        Not used.

    Returns
    -------
    Solution; the bias, if any, is the last coefficient
    """
    feature_weights, shared = options.chosen(feature_weights=None, shared=None)
    tol, max_iter, report = options.tol, options.limit(SETTINGS.most_products), options.report
    features = _Features(problem, feature_weights, {} if shared is None else shared)
    precondition = features.diagonal_inverse()
    factor_at = max(SETTINGS.patience, features.factor_cost())  # products
    w, n_iter, ended, result = np.zeros(features.size()), 0, Status.OPTIMAL, None
    # Without rounding, as many steps as there are rows or columns, whichever are fewer, and one more would do.
    patience = SETTINGS.patience + min(n_rows(features.rows), n_columns(features.rows))
    restarts = 0
    while restarts < SETTINGS.refinements:  # the recurrence drifts by rounding: start again from where it led
        errors, _ = features.errors(w)
        residual = features.transposed(features.prices * errors) - w
        steps = conjugate_gradients(features.product, residual, precondition, w)
        least, halved_at = np.inf, n_iter
        for w, residual, _, length in steps:
            errors -= length * features.change
            value = 0.5 * (w @ w) + 0.5 * (features.prices @ errors**2)
            gap = relative(0.5 * (residual @ residual), value)
            if gap <= 0.5 * least:
                least, halved_at = gap, n_iter
            if report is not None and report(n_iter, w, value, gap):
                ended = Status.STOPPED
            elif gap > 0.5 * tol and n_iter == max_iter:
                ended = Status.ITERATION_LIMIT
            if ended is not Status.OPTIMAL or gap <= 0.5 * tol or n_iter - halved_at > patience or n_iter >= factor_at:
                break
            n_iter += 1
        if ended is Status.OPTIMAL and gap > 0.5 * tol and n_iter >= factor_at:
            factor_at = np.inf
            with contextlib.suppress(LinAlgError):  # the diagonal will have to do
                precondition = features.factor_inverse()
                patience = SETTINGS.factor_patience
            continue
        now = features.certify(w.copy())
        nearer = result is None or now.gap * now.objective < 0.5 * result.gap * result.objective
        result = now if result is None or now.gap * now.objective < result.gap * result.objective else result
        if ended is not Status.OPTIMAL or result.gap <= tol or not nearer:
            break
        restarts += 1
    return conclude(result._replace(n_iter=max(n_iter, 1)), tol, ended)


def path_columns(problem, metric=None):
    """Return solutions and leave-one-out scores for a list of objectives; otherwise as :func:`solve_columns`."""
    objectives, rows, targets, weights = problem
    ridges = np.array([objective.ridge for objective in objectives])
    B, g, mean, target_means = _moments(rows, targets, weights)
    if metric is None:
        eigenvalues, V = eigh(B, overwrite_a=True, check_finite=False)
    else:
        squares, Q = eigh(metric, check_finite=False)
        root = Q * np.sqrt(np.maximum(squares, 0.0))
        eigenvalues, V = eigh(root.T @ B @ root, overwrite_a=True, check_finite=False)
        V = root @ V
    inverse = 1.0 / (np.maximum(eigenvalues, 0.0)[:, None] + ridges)  # (d, n_objectives)
    moments = V.T @ g  # (d, n_targets)
    coefs = np.einsum("ij,jc,jt->cti", V, inverse, moments, optimize=True)
    biases = target_means - coefs @ mean
    loo_scores = np.empty((len(objectives), *targets.shape))
    strip = max(1, SETTINGS.strip_values // V.shape[0])
    for start in range(0, n_rows(rows), strip):
        part = slice(start, start + strip)
        Z = products(row_range(rows, start, min(start + strip, n_rows(rows))), V) - mean @ V
        fitted = np.einsum("ij,jc,jt->cti", Z, inverse, moments, optimize=True) + target_means[None, :, None]
        influence = weights[part] * ((Z**2 @ inverse).T + (1.0 / weights.sum() if rows.bias else 0.0))
        errors = (targets[:, part] - fitted) / (1.0 - influence)[:, None, :]
        loo_scores[:, :, part] = targets[:, part] - errors
    return Path(coefs, biases, loo_scores)


def path_gram(problem, fit_bias):
    """Return solutions and leave-one-out scores for a list of objectives; otherwise as :func:`solve_gram`.

    They are nan for an objective whose system :func:`solve_gram` refuses, because K has too negative an eigenvalue.
    """
    objectives, K, targets, weights = problem
    root = np.sqrt(weights)
    K *= root
    K *= root[:, None]
    eigenvalues, U = eigh(K.T, overwrite_a=True, check_finite=False)
    right = U.T @ (root[:, None] * np.vstack([np.ones(len(root)), targets]).T)
    rounding = len(root) * np.finfo(float).eps * np.abs(eigenvalues).max()
    eigenvalues[np.abs(eigenvalues) <= rounding] = 0.0
    system = eigenvalues[:, None] + np.array([objective.ridge for objective in objectives])
    system[:, system.min(axis=0) <= 0.0] = np.nan
    inverses = 1.0 / system
    solved = [root[:, None] * (U @ (inverse[:, None] * right)) for inverse in inverses.T]
    np.square(U, out=U)
    diagonals = weights[:, None] * (U @ inverses)  # of the inverse of the unbordered system
    coefs, biases, loo_scores = [], [], []
    for diagonal, solution in zip(diagonals.T, solved, strict=True):
        alphas, bias = _remove_bias(solution, fit_bias)
        if fit_bias:
            diagonal = diagonal - solution[:, 0] ** 2 / solution[:, 0].sum()
        coefs.append(alphas.T)
        biases.append(bias)
        loo_scores.append(targets - alphas.T / diagonal)
    return Path(np.array(coefs), np.array(biases), np.array(loo_scores))


class _Features:
    """The rows as they are, or mapped into the empirical feature space of the linear kernel; no constant column."""

    def __init__(self, problem, feature_weights, shared=None):
        objective, rows, self.target, self.weights = problem
        self._shared = {} if shared is None else shared
        self.rows = rows._replace(bias=0.0)
        self.centre = bool(rows.bias)  # whether there is a bias, and errors have the mean zero
        self.prices = objective.prices(self.weights)
        self.feature_weights = feature_weights
        self.change = np.zeros(len(self.target))  # of the scores, by the vector that was multiplied last

    def size(self):
        return n_columns(self.rows) if self.feature_weights is None else n_rows(self.rows)

    def product(self, w):
        """Return (I + C B) w."""
        self.change = self._centred(self.times(w))
        return w + self.transposed(self.prices * self.change)

    def columns(self, w):
        """Return the weights of the rows' columns that ``w`` stands for."""
        if self.feature_weights is None:
            return w
        return self._sum(np.sqrt(self.feature_weights) * w)

    def times(self, w):
        scores(self.rows, self.columns(w), out := np.empty(n_rows(self.rows)))
        return out

    def transposed(self, a):
        columns = self._sum(a)
        if self.feature_weights is None:
            return columns
        scores(self.rows, columns, out := np.empty(n_rows(self.rows)))
        return np.sqrt(self.feature_weights) * out

    def diagonal_inverse(self):
        """Return what divides by the diagonal of I + C B; a copy where that diagonal would cost a Gram matrix."""
        if self.feature_weights is not None:
            return np.copy
        diagonal = sum_of_squares(self.rows, self.prices)
        if self.centre:
            diagonal -= self._sum(self.prices) ** 2 / self.prices.sum()
        inverse = 1.0 / (1.0 + np.maximum(diagonal, 0.0))
        return lambda vector: inverse * vector

    def factor_cost(self):
        """Return how many products :meth:`factor_inverse` costs; infinite where its matrix would be too large."""
        m, d = n_rows(self.rows), n_columns(self.rows)
        sweeps = 2.0 * n_stored(self.rows)
        if self.feature_weights is not None:
            order, making = m, self._inner_cost() + m**3 / BLAS
            sweeps *= 2.0
        elif d <= m:
            order, making = d, gram_operations(self.rows)
        else:
            order, making = m, self._inner_cost()
        return (making + order**3 / (3.0 * BLAS)) / (2.0 * sweeps) if order <= SETTINGS.largest_factor else np.inf

    def _inner_cost(self):
        """Return what the inner products of all rows cost, in operations on stored values, at most."""
        m = n_rows(self.rows)
        return m * m * n_columns(self.rows) / BLAS if isinstance(self.rows, DenseRows) else m * n_stored(self.rows)

    def factor_inverse(self):
        """Return what multiplies with the inverse of I + C B, but for rounding.

        With Z the centred rows times the roots of their prices, that is (I + Z'Z)⁻¹; with fewer rows than columns it is
        v − Z'(I + ZZ')⁻¹Zv (Woodbury).
        """
        by_rows = self.feature_weights is None and n_rows(self.rows) < n_columns(self.rows)
        if "factor" not in self._shared:
            system = self._system(by_rows)
            system[np.diag_indices_from(system)] += 1.0
            self._shared["factor"] = nearest_cholesky(system)
        factor, roots = self._shared["factor"], np.sqrt(self.prices)
        if not by_rows:
            return lambda vector: cho_solve(factor, vector, check_finite=False)

        def invert(vector):
            inner = cho_solve(factor, roots * self._centred(self.times(vector)), check_finite=False)
            return vector - self._sum(self._centred_back(roots * inner))

        return invert

    def _system(self, by_rows):
        """Return Z'Z or ZZ' (lower triangle)."""
        everything = np.arange(n_rows(self.rows))
        if self.feature_weights is None and not by_rows:
            mean = self._sum(self.weights) / self.weights.sum()
            return scatter(self.rows, everything, self.prices, mean if self.centre else np.zeros_like(mean))
        products = inner_products(self.rows, everything, everything)
        roots = np.sqrt(self.prices)
        if by_rows:
            return self._centred(self._centred(products).T) * np.outer(roots, roots)
        Z = self._centred(products * np.sqrt(self.feature_weights)) * roots[:, None]
        return Z.T @ Z

    def _centred(self, scores):
        """Return scores, or the columns of a matrix of them, without their weighted mean, if there is a bias."""
        return scores - self.weights @ scores / self.weights.sum() if self.centre else scores

    def _centred_back(self, scales):
        """Return the transpose of :meth:`_centred` times a vector."""
        return scales - scales.sum() * (self.weights / self.weights.sum()) if self.centre else scales

    def errors(self, w):
        """Return what the scores lack of the targets, and the bias; their mean is zero to the last digits."""
        errors = self.target - self.times(w)
        bias = 0.0
        for _ in range(2 if self.centre else 0):  # far from zero the first mean is off by the rounding of the scores
            shift = self.weights @ errors / self.weights.sum()
            errors -= shift
            bias += shift
        return errors, bias

    def certify(self, w, multipliers=None):
        """Return weights as a solution; other multipliers than their own may prove more."""
        errors, bias = self.errors(w)
        alpha = self.prices * errors
        value = 0.5 * (w @ w) + 0.5 * (alpha @ errors)
        reach = self._lengths()
        n_terms = n_columns(self.rows) + len(w)
        moved = rounding(n_terms, 2.0) * reach * np.linalg.norm(w)
        longest = reach.max() * self.centre
        astray = self._astray(reach, alpha) + abs(alpha.sum()) * longest
        distance = 0.5 * (np.linalg.norm(w - self.transposed(alpha)) + astray) ** 2
        other = np.inf
        if multipliers is not None:
            apart = np.linalg.norm(w - self.transposed(multipliers)) + self._astray(reach, multipliers)
            columns = multipliers[:, None], errors[:, None], moved[:, None]
            other = _multiplier_distances(*columns, self.prices, np.array([bias]), longest, apart)
        gap = _gaps(np.array([value]), distance, self.prices, errors[:, None], moved[:, None], others=other)[0]
        coef = self.columns(w)
        return Solution(np.append(coef, bias) if self.centre else coef, alpha, value, float(gap))

    def _lengths(self):
        """Return the lengths of the features, or bounds of them."""
        squares(self.rows, lengths := np.empty(len(self.target)))
        if self.feature_weights is None:
            return np.sqrt(lengths)
        return np.sqrt(lengths * (self.feature_weights @ lengths))  # ‖φ(x)‖ ≤ ‖x‖ (Σ s‖x‖²)^½

    def _astray(self, reach, multipliers):
        """Return how far rounding can have taken the sum of the features times these."""
        return rounding(len(self.target), 2.0) * (reach @ np.abs(multipliers))

    def _sum(self, scales):
        return add_rows(self.rows, np.arange(len(scales)), scales, np.zeros(n_columns(self.rows)))


def _column_system(B, metric, ridge):
    """Return what solves (BA + I/C) t = right, A the metric if there is one."""
    if metric is not None:
        system = B @ metric
        system[np.diag_indices_from(system)] += ridge
        factors = lu_factor(system, overwrite_a=True, check_finite=False)
        return lambda right: lu_solve(factors, right, check_finite=False)
    system = B.copy()
    system[np.diag_indices_from(system)] += ridge
    try:
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:  # dependent columns and so high a price that 1/C is lost: their eigenvalues are zero
        values, vectors = eigh(B, check_finite=False)
        inverse = 1.0 / (np.maximum(values, 0.0) + ridge)
        return lambda right: vectors @ (inverse[:, None] * (vectors.T @ right))
    return lambda right: cho_solve(factor, right, check_finite=False)


class _Certified(NamedTuple):
    """Where the solution of a system leads, one entry or column per target."""

    gaps: np.ndarray  # relative
    off: np.ndarray  # what is missing to the dual point
    solutions: list
    t: np.ndarray | None = None
    alphas: np.ndarray | None = None
    biases: np.ndarray | None = None

    def improved(self, now):
        """Return, for each target, the one that is proved to be nearer to the minimum; itself if it is that for all.

        The distance counts, not the gap relative to the objective: that falls also where the objective grows.
        """
        nearer = now.distances() < self.distances()
        if not nearer.any():
            return self
        merged = {
            name: np.where(nearer, getattr(now, name), entry)
            for name, entry in self._asdict().items()
            if isinstance(entry, np.ndarray)
        }
        solutions = [new if take else old for take, new, old in zip(nearer, now.solutions, self.solutions)]
        return self._replace(**merged, solutions=solutions)

    def distances(self):
        """Return how far the objectives can be above their minima."""
        return self.gaps * [solution.objective for solution in self.solutions]


class _ColumnPoint(NamedTuple):
    """The problem in terms of columns, and the certificate of weights t (see the module for the metric)."""

    rows: tuple
    targets: np.ndarray
    prices: np.ndarray  # C times the weights
    metric: np.ndarray | None
    mean: np.ndarray
    target_means: np.ndarray
    lengths: np.ndarray  # of the rows

    def certify(self, t):
        u = t if self.metric is None else self.metric @ t
        residuals = (self.targets - self.target_means[:, None]).T - (products(self.rows, u) - self.mean @ u)
        biases = self.target_means
        if self.rows.bias:
            shift = self.prices @ residuals / self.prices.sum()
            residuals -= shift
            biases = biases + shift
        alphas = self.prices[:, None] * residuals
        off = t - weighted_sums(self.rows, alphas).T
        stretch = 1.0 if self.metric is None else np.linalg.norm(self.metric)
        spread = off if self.metric is None else self.metric @ off
        # Rounding of the scores, and of the sum of the rows.
        errors = rounding(len(t), 2.0) * np.outer(self.lengths, stretch * np.linalg.norm(t, axis=0))
        astray = rounding(len(residuals), 2.0) * (self.lengths @ np.abs(alphas))
        if self.rows.bias:  # a dual point's entries add up to zero, but for rounding
            astray += np.abs(alphas.sum(axis=0)) * self.lengths.max()
        astray *= np.sqrt(stretch)
        distance = np.sqrt(np.maximum(np.einsum("jk,jk->k", off, spread), 0.0)) + astray
        values = 0.5 * np.einsum("jk,jk->k", t, u) + 0.5 * np.einsum("ik,ik->k", alphas, residuals)
        gaps = _gaps(values, 0.5 * distance**2, self.prices, residuals, errors)
        coefs = np.vstack([u, biases - self.mean @ u]) if self.rows.bias else u
        return _Certified(gaps, off, _solutions(coefs, alphas, values, gaps), t=t)


class _GramSystem:
    """K + diag(ridge) in the memory of K: its Cholesky factor in one triangle, K itself in the other."""

    def __init__(self, K, ridge):
        self.ridge, self.diagonal = ridge, K.diagonal().copy()
        self.K = K.T
        K[np.diag_indices_from(K)] += ridge
        self.spectrum = None
        try:
            self.K, _ = cho_factor(self.K, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            self._decompose()

    def _decompose(self):
        """Take eigenvectors instead: rounding hides a ridge that is very small, or K is not semi-definite."""
        whole = np.triu(self.K, 1)
        whole += whole.T
        whole[np.diag_indices_from(whole)] = self.diagonal
        root = np.sqrt(self.ridge)
        values, vectors = eigh(whole / np.outer(root, root), overwrite_a=True, check_finite=False)
        if values[0] < -8.0 * len(values) * np.finfo(float).eps * max(values[-1], 1.0):
            raise LinAlgError("the matrix has negative eigenvalues")
        self.spectrum = np.maximum(values, 0.0), vectors / root[:, None]

    def solve(self, right):
        """Return the solutions of the system for the columns of ``right``."""
        if self.spectrum is None:
            return cho_solve((self.K, True), right, check_finite=False)
        values, vectors = self.spectrum
        return vectors @ ((vectors.T @ right) / (1.0 + values)[:, None])

    def times(self, vectors):
        """Return the products of K, without the ridge, with the columns."""
        diagonal = self.diagonal - self.K.diagonal()
        return dsymm(1.0, self.K, vectors, lower=0) + diagonal[:, None] * vectors


class _GramPoint(NamedTuple):
    """The problem in terms of rows, and the certificate of coefficients and biases."""

    system: _GramSystem
    targets: np.ndarray
    prices: np.ndarray  # C times the weights
    fit_bias: bool

    def certify(self, alphas, biases):
        prices = self.prices
        images = self.system.times(alphas)
        residuals = self.targets.T - images - biases
        if self.fit_bias:
            shift = self.prices @ residuals / self.prices.sum()
            residuals -= shift
            biases = biases + shift
        off = alphas - prices[:, None] * residuals
        lengths = np.sqrt(np.maximum(self.system.diagonal, 0.0))
        share = rounding(len(alphas))
        errors = share * np.outer(lengths, lengths @ np.abs(alphas))
        distance = np.einsum("ik,ik->k", off, self.system.times(off)) + share * (lengths @ np.abs(off)) ** 2
        values = 0.5 * np.einsum("ik,ik->k", alphas, images)
        values += 0.5 * np.einsum("i,ik,ik->k", prices, residuals, residuals)
        own = 0.5 * np.einsum("ik,ik->k", np.abs(alphas), errors)
        others = _multiplier_distances(alphas, residuals, errors, prices, biases, lengths.max() * self.fit_bias)
        gaps = _gaps(values, 0.5 * np.maximum(distance, 0.0), prices, residuals, errors, own, others)
        coefs = np.vstack([alphas, biases]) if self.fit_bias else alphas
        solutions = _solutions(coefs, alphas, values, gaps)
        return _Certified(gaps, off, solutions, alphas=alphas, biases=biases)


class _FeaturePoint(NamedTuple):
    """The same for a Gram matrix of features that are at hand: their products round by less than the matrix."""

    problem: tuple

    def certify(self, alphas, biases):
        objective, rows, targets, weights = self.problem
        prices = objective.prices(weights)
        plain = rows._replace(bias=0.0)
        W = weighted_sums(plain, alphas)
        residuals = targets.T - products(plain, W.T) - biases
        if rows.bias:
            shift = prices @ residuals / prices.sum()
            residuals -= shift
            biases = biases + shift
        solutions = []
        for target, w, alpha in zip(targets, W, alphas.T):
            features = _Features(self.problem._replace(signs=target), None)
            solutions.append(features.certify(w, alpha.copy())._replace(n_iter=1))
        gaps = np.array([solution.gap for solution in solutions])
        off = alphas - prices[:, None] * residuals
        return _Certified(gaps, off, solutions, alphas=alphas, biases=biases)


def _multiplier_distances(alphas, residuals, errors, prices, biases, longest, apart=0.0):
    """Return how far the objectives can be above their minima, the multipliers taken for the dual points.

    ``apart`` is how far the weights are from those that the multipliers make. With a bias (``longest``, the length of
    the longest row, is not zero) a dual point's entries add up to zero: what they lack of that is taken from all.
    """
    rounded = errors + 8.0 * np.finfo(float).eps * (1.0 + np.abs(biases))
    short = np.abs(residuals - alphas / prices[:, None]) + rounded
    short = np.sqrt(np.einsum("i,ik->k", prices, short**2))
    if longest:
        lack = np.abs(alphas.sum(axis=0)) + rounding(len(alphas), 0.0) * np.abs(alphas).sum(axis=0)
        short += lack / np.sqrt(prices.sum())
        apart = apart + lack * longest
    return 0.5 * short**2 + 0.5 * apart**2


def _gaps(values, distances, prices, residuals, errors, own=0.0, others=np.inf):
    """Return relative gaps from half the squared distances to the dual point and the errors of the residuals.

    The dual point is made from residuals as computed; exact ones would add half their price times the squared error to
    the gap, and give another value: by ``own`` for the squared length, and by their prices. ``others`` are distances by
    other dual points. No minimum is negative.
    """
    moved = own + np.einsum("i,ik->k", prices, np.abs(residuals) * errors)
    distances = distances + 0.5 * np.einsum("i,ik->k", prices, errors**2)
    distances = np.minimum(distances, others)
    return (np.minimum(distances, values) + material(moved, values)) / np.maximum(values, np.finfo(float).tiny)


def _solutions(coefs, alphas, values, gaps):
    return [
        Solution(coefs[:, k].copy(), alphas[:, k].copy(), float(values[k]), float(gaps[k]), 1)
        for k in range(len(values))
    ]


def _moments(rows, targets, weights):
    """Return scatter matrix B, g (one column per target), mean row and mean targets; means are 0 without a bias."""
    total, everything = weights.sum(), np.arange(n_rows(rows))
    if rows.bias:
        mean = weighted_sums(rows, weights[:, None])[0] / total
        target_means = targets @ weights / total
    else:
        mean, target_means = np.zeros(n_columns(rows)), np.zeros(len(targets))
    B = scatter(rows, everything, weights, mean) if rows.bias else gram(rows, everything, weights)
    g = weighted_sums(rows, (weights * (targets - target_means[:, None])).T).T
    return _symmetric(B), g, mean, target_means


def _remove_bias(solved, fit_bias):
    """Return coefficients and biases from the solutions for the right sides 1 (first column) and y (the others)."""
    eta, nu = solved[:, 0], solved[:, 1:]
    if not fit_bias:
        return np.asfortranarray(nu), np.zeros(nu.shape[1])
    biases = nu.sum(axis=0) / eta.sum()
    return np.asfortranarray(nu - np.outer(eta, biases)), biases


def _symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T
