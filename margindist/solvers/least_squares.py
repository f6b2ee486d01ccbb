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

**Certificate.** :math:`\alpha_i = C s_i e_i` is dual feasible for every w with its own bias, and then
:math:`P(w, b) - D(\alpha) = \tfrac12 \|w - \sum_i \alpha_i \varphi(x_i)\|^2`: half the squared residual of the system
bounds the distance to the optimum.

**Paths.** One symmetric eigendecomposition of B, or of :math:`S^{1/2} K S^{1/2}`, in place of the factorisation makes
every further C a product with its eigenvectors, and gives the leave-one-out scores exactly: without row i its residual
is :math:`e_i / (1 - h_i)`, where :math:`h_i` is the influence of :math:`y_i` on its own score. In terms of the rows'
system it is :math:`\alpha_i / (A^{-1})_{ii}`, A the whole bordered matrix.

**Empirical feature space.** Abe's EMAMC has the features :math:`\varphi(x) = (\sqrt{s_j} K(x, x_j))_j`. Their Gram
matrix is :math:`K S K`; for a linear kernel they are :math:`X x`, and with :math:`A = X^T S X` the weights of the
columns are :math:`u = At`, :math:`\|w\|^2 = t^T A t`, :math:`(BA + I/C)\, t = g`. So a *metric* A is all that the
columns' form needs to know of it.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, lu_factor, lu_solve
from scipy.linalg.blas import dsymm

from margindist.solvers._rows import (
    add_rows,
    gram,
    n_columns,
    n_rows,
    products,
    row_range,
    scatter,
    scores,
    sum_of_squares,
    weighted_sums,
)
from margindist.solvers._solution import Solution

__all__ = ["Path", "conjugate_gradients", "metric_of", "path_columns", "path_gram", "solve_columns", "solve_gram"]

_STRIP_VALUES = 2**22  # transformed features in memory at a time


class Path(NamedTuple):
    """Solutions for several C; the first axis of every array is C, the second the target."""

    coefs: np.ndarray  # weights of the columns, or of the training rows
    biases: np.ndarray
    loo_scores: np.ndarray  # the score of each row, by the solution without it


def metric_of(rows, feature_weights):
    """Return ``Σ feature_weights_k x_k x_kᵀ``, the metric of the empirical feature space of a linear kernel."""
    return _symmetric(gram(rows._replace(bias=0.0), np.arange(n_rows(rows)), feature_weights))


def solve_columns(rows, targets, weights, C, metric=None):
    """Solve for few features; cost one product of the rows and a factorisation of d × d.

    Parameters
    ----------
    rows : DenseRows or SparseRows
        With a constant column if there is to be a bias.
    targets : ndarray of shape (n_targets, n_rows)
        Labels, -1 or +1.
    weights : ndarray of shape (n_rows,)
        Positive.
    C : float
        Price of the squared errors.
    metric : ndarray of shape (n_features, n_features)
        See :func:`metric_of`.

    Returns
    -------
    list of Solution, one a target; the bias, if any, is the last coefficient
    """
    B, g, mean, target_means = _moments(rows, targets, weights)
    system = B if metric is None else B @ metric
    system[np.diag_indices_from(system)] += 1.0 / C
    if metric is None:
        t = u = cho_solve(cho_factor(system, lower=True, overwrite_a=True, check_finite=False), g)
    else:
        t = lu_solve(lu_factor(system, overwrite_a=True, check_finite=False), g)
        u = metric @ t
    residuals = (targets - target_means[:, None]).T - (products(rows, u) - mean @ u)
    if rows.bias:
        shift = weights @ residuals / weights.sum()
        residuals -= shift
        target_means = target_means + shift
    alphas = C * weights[:, None] * residuals
    off = t - weighted_sums(rows, alphas).T
    spread = off if metric is None else metric @ off
    values = 0.5 * np.einsum("jk,jk->k", t, u) + 0.5 * np.einsum("ik,ik->k", alphas, residuals)
    gaps = 0.5 * np.einsum("jk,jk->k", off, spread)
    coefs = np.vstack([u, target_means - mean @ u]) if rows.bias else u
    return [_solution(coefs[:, k], alphas[:, k], values[k], gaps[k]) for k in range(len(targets))]


def solve_gram(K, targets, weights, C, fit_bias):
    """Solve from the Gram matrix, which is overwritten: cost one factorisation of n_rows × n_rows.

    Parameters
    ----------
    K : ndarray of shape (n_rows, n_rows)
        C-contiguous, symmetric, positive semi-definite.
    targets : ndarray of shape (n_targets, n_rows)
        Labels, -1 or +1.
    weights : ndarray of shape (n_rows,)
        Positive.
    C : float
        Price of the squared errors.
    fit_bias : bool
        Whether there is a bias.

    Returns
    -------
    list of Solution, one a target; the bias, if any, is the last coefficient
    """
    diagonal = K.diagonal().copy()
    K[np.diag_indices_from(K)] += 1.0 / (C * weights)
    factor = cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)
    right = np.vstack([np.ones(len(K)), targets]).T
    alphas, biases = _remove_bias(cho_solve(factor, right, check_finite=False), fit_bias)

    # The factor took one triangle and the diagonal; the other triangle still holds K.
    diagonal -= factor[0].diagonal()

    def times(vectors):
        return dsymm(1.0, factor[0], vectors, lower=0) + diagonal[:, None] * vectors

    K_alphas = times(alphas)
    residuals = targets.T - K_alphas - biases
    if fit_bias:
        shift = weights @ residuals / weights.sum()
        residuals -= shift
        biases = biases + shift
    off = alphas - C * weights[:, None] * residuals
    values = 0.5 * np.einsum("ik,ik->k", alphas, K_alphas)
    values += 0.5 * C * np.einsum("i,ik,ik->k", weights, residuals, residuals)
    gaps = np.maximum(0.5 * np.einsum("ik,ik->k", off, times(off)), 0.0)
    coefs = np.vstack([alphas, biases]) if fit_bias else alphas
    return [_solution(coefs[:, k], alphas[:, k], values[k], gaps[k]) for k in range(len(targets))]


def conjugate_gradients(rows, target, weights, C, *, feature_weights=None, tol=1e-8, max_iter=1000, report=None):
    """Solve for one target by products with the rows only.

    Parameters
    ----------
    rows : DenseRows or SparseRows
        With a constant column if there is to be a bias.
    target : ndarray of shape (n_rows,)
        Labels, -1 or +1.
    weights : ndarray of shape (n_rows,)
        Positive.
    C : float
        Price of the squared errors.
    feature_weights : ndarray of shape (n_rows,)
        Given if the empirical feature space is wanted.
    tol : float
        Relative duality gap to reach.
    max_iter : int
        Iterations at most.
    report : callable
        See :mod:`margindist.solvers._solution`.

    Returns
    -------
    Solution; the bias, if any, is the last coefficient
    """
    features = _Features(rows._replace(bias=0.0), feature_weights)
    total, centre = weights.sum(), bool(rows.bias)
    scale = features.inverse_diagonal(weights, C, centre)
    bias = weights @ target / total if centre else 0.0
    errors = target - bias
    w = np.zeros(features.size())
    r = C * features.transposed(weights * errors)
    direction, last = np.zeros_like(w), 1.0
    status = "iteration limit"
    for n_iter in range(max_iter + 1):
        value = 0.5 * (w @ w) + 0.5 * C * (weights @ errors**2)
        gap = 0.5 * (r @ r) / value if value > 0.0 else 0.0
        if report is not None and report(n_iter, w, value, gap):
            status = "stopped"
        elif gap <= 0.5 * tol:
            status = "optimal"
        if status != "iteration limit" or n_iter == max_iter:
            break
        z = scale * r
        now = r @ z
        direction = z + (now / last if n_iter else 0.0) * direction
        last = now
        change = features.times(direction)
        if centre:
            change -= weights @ change / total
        curved = direction + C * features.transposed(weights * change)
        step = now / (direction @ curved)
        w += step * direction
        errors -= step * change
        r -= step * curved
    return features.certify(target, weights, C, w, centre)._replace(n_iter=max(n_iter, 1), status=status)


def path_columns(rows, targets, weights, Cs, metric=None):
    """Return the solutions for all ``Cs`` and their leave-one-out scores; arguments as in :func:`solve_columns`."""
    B, g, mean, target_means = _moments(rows, targets, weights)
    if metric is None:
        eigenvalues, V = eigh(B, overwrite_a=True, check_finite=False)
    else:
        squares, Q = eigh(metric, check_finite=False)
        root = Q * np.sqrt(np.maximum(squares, 0.0))
        eigenvalues, V = eigh(root.T @ B @ root, overwrite_a=True, check_finite=False)
        V = root @ V
    inverse = 1.0 / (np.maximum(eigenvalues, 0.0)[:, None] + 1.0 / np.asarray(Cs, dtype=np.float64))  # (d, n_Cs)
    moments = V.T @ g  # (d, n_targets)
    coefs = np.einsum("ij,jc,jt->cti", V, inverse, moments, optimize=True)
    biases = target_means - coefs @ mean
    loo_scores = np.empty((len(Cs), *targets.shape))
    strip = max(1, _STRIP_VALUES // V.shape[0])
    for start in range(0, n_rows(rows), strip):
        part = slice(start, start + strip)
        Z = products(row_range(rows, start, min(start + strip, n_rows(rows))), V) - mean @ V
        fitted = np.einsum("ij,jc,jt->cti", Z, inverse, moments, optimize=True) + target_means[None, :, None]
        influence = weights[part] * ((Z**2 @ inverse).T + (1.0 / weights.sum() if rows.bias else 0.0))
        errors = (targets[:, part] - fitted) / (1.0 - influence)[:, None, :]
        loo_scores[:, :, part] = targets[:, part] - errors
    return Path(coefs, biases, loo_scores)


def path_gram(K, targets, weights, Cs, fit_bias):
    """Return the solutions for all ``Cs`` and their leave-one-out scores; arguments as in :func:`solve_gram`.

    They are nan for a C whose system :func:`solve_gram` refuses, because K has too negative an eigenvalue.
    """
    root = np.sqrt(weights)
    K *= root
    K *= root[:, None]
    eigenvalues, U = eigh(K.T, overwrite_a=True, check_finite=False)
    right = U.T @ (root[:, None] * np.vstack([np.ones(len(root)), targets]).T)
    rounding = len(root) * np.finfo(float).eps * np.abs(eigenvalues).max()
    eigenvalues[np.abs(eigenvalues) <= rounding] = 0.0
    system = eigenvalues[:, None] + 1.0 / np.asarray(Cs, dtype=np.float64)
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


class _Features(NamedTuple):
    """The rows as they are, or mapped into the empirical feature space of the linear kernel; no constant column."""

    rows: tuple
    feature_weights: np.ndarray | None

    def size(self):
        return n_columns(self.rows) if self.feature_weights is None else n_rows(self.rows)

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

    def inverse_diagonal(self, weights, C, centre):
        """Return the inverse of the diagonal of I + C B, or 1 where that would cost a Gram matrix."""
        if self.feature_weights is not None:
            return np.ones(self.size())
        diagonal = sum_of_squares(self.rows, weights)
        if centre:
            diagonal -= self._sum(weights) ** 2 / weights.sum()
        return 1.0 / (1.0 + C * np.maximum(diagonal, 0.0))

    def certify(self, target, weights, C, w, centre):
        values = self.times(w)
        bias = weights @ (target - values) / weights.sum() if centre else 0.0
        errors = target - values - bias
        alpha = C * weights * errors
        off = w - self.transposed(alpha)
        coef = self.columns(w)
        value = 0.5 * (w @ w) + 0.5 * (alpha @ errors)
        return _solution(np.append(coef, bias) if centre else coef, alpha, value, 0.5 * (off @ off))

    def _sum(self, scales):
        return add_rows(self.rows, np.arange(len(scales)), scales, np.zeros(n_columns(self.rows)))


def _moments(rows, targets, weights):
    """Return scatter matrix B, g (one column a target), mean row and mean targets; means are 0 without a bias."""
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


def _solution(coef, alpha, value, gap):
    return Solution(coef, alpha, float(value), float(gap / value) if value > 0.0 else 0.0, 1, "optimal")
