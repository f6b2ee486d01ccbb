r"""The rounds of MSVMAv: small semi-variance and large mean of the margins, in turn.

The aim is a small ratio of the margins' lower semi-variance to their squared mean,

    SV(w) / θ(w)²,   SV(w) = (1/n) Σ s_i max(0, θ(w) − z_i)²,   θ(w) = (1/n) Σ s_i z_i,   z_i = y_i w·x_i,   ‖w‖ = 1,

with weights s that stand for repeated rows and n = Σ s_i. Round k holds θ = θ(w) of the last round fixed, calls the
rows with margins below it active, A = {i : z_i < θ}, and takes two proximal steps from the last w:

    w' = argmin (1/n) Σ_A s_i (θ − y_i w'·x_i)² + β ‖w' − w‖²_N    that is   (nβN + X_A'SX_A) w' = nβN w + θ X_A'Sy
    w  = (w' + X'Sy/(2αn)) / ‖·‖

starting from the w of largest mean margin, X'Sy normalised. A w with negative mean margin changes its sign. N is the
identity for linear functions.

The sign in the published formula for rows that *enter* A (eq. 8) must be a minus; no inverse is kept here at all. The
Gram matrix X_A'SX_A changes by the rows that enter or leave, one block of each, and a Cholesky factor solves the system
(one Sherman-Morrison update costs d² per row, a factor d³/3 per round however many rows move). With many columns
conjugate gradients work on the rows themselves, and nothing of size d² exists.

**Kernels.** With w = Σ a_i φ(x_i) and Gram matrix K the published proximal metric is I + K on the coefficients a (S⁻¹
+ K with weights), its matrix (K S_A K/(nβ) + K + S⁻¹)⁻¹ an inverse of size m in every round. Let K = ΦΦ', with Φ'SΦ =
diag(g), and c = Φ'a. Margins, ‖w‖² = c'c and the pull X'Sy see a through c only, and among all changes of a with the
same change δ of c the smallest in the metric, SΦ(δ/g), costs δ'(I + diag(1/g))δ. So the rounds in c are those above
with rows Φ and N = I + diag(1/g), and one factorisation of K serves them all, every α and every β. In the end a =
SΦ(c/g).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh, qr

from margindist.compilation import assign, njit
from margindist.solvers._small_systems import factor_of_part, solve_factored
from margindist.solvers._solution import Solution, Status
from margindist.solvers.conjugate_gradients import conjugate_gradients
from margindist.spaces.rows import (
    DenseRows,
    SparseRows,
    add_gram,
    add_rows,
    as_rows,
    dense_matrix,
    n_columns,
    n_rows,
    n_stored,
    row_add,
    row_dot,
)


class Settings(NamedTuple):
    """How rounds solve their systems."""

    most_rounds: int = 100
    always_gram: int = 200  # columns up to which the choice of a system does not look at the rows,
    never_gram: int = 4000  # and beyond which it does not either
    steps_a_factor: int = 2000  # d³ operations that cost what one of a round of conjugate gradients does
    few_operations: int = 10**8  # up to here an orthonormal basis of few rows costs next to nothing
    fine: float = 1e-12  # pivots of a kernel's features, relative to the largest
    residual: float = 1e-12  # relative residual at which conjugate gradients stop
    conjugate_steps: int = 2000


SETTINGS = Settings()


class Features(NamedTuple):
    """Rows that the rounds work on, the metric that belongs to them, and the way back."""

    rows: DenseRows | SparseRows
    weights: np.ndarray
    spectrum: np.ndarray | None = None  # g, for a kernel

    @property
    def metric(self):
        """Return the diagonal of N."""
        return 1.0 if self.spectrum is None else 1.0 + 1.0 / self.spectrum

    def coefficients(self, coefs):
        """Return coefficients of the space from those of the rows' columns (last axis)."""
        if self.spectrum is None:
            return coefs
        return (coefs / self.spectrum) @ self.rows.X.T * self.weights


def features_of(space, weights):
    """Return the rows of a linear space as they are, those of a kernel's with a diagonal second moment."""
    factor = space.factor(SETTINGS.fine)
    if factor is None:
        return Features(space.rows, weights)
    spectrum, vectors = eigh(factor.features.T @ (weights[:, None] * factor.features))
    kept = spectrum > spectrum.max(initial=0.0) * len(spectrum) * np.finfo(float).eps
    features = np.ascontiguousarray(factor.features @ vectors[:, kept])
    return Features(as_rows(features), weights, spectrum[kept])


def solve(problem, options, start=None):
    """Run the rounds until active set and coefficients settle.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.SemiVariance` on rows.
    options : Options
        One iteration is a round; ``tol`` is the change of the coefficients (of length one) that counts as none. The
        choice "system" says how the linear system is solved: with a "gram" matrix of the columns, by conjugate
        gradients on the "rows", or "auto".
    start : Solution, optional
        Not used: the rounds begin where the mean margin is largest.

    Returns
    -------
    Solution
        Coefficients of length one and SV/θ²; ``extra`` has that of the start and after every round, "history", and the
        length of the last change of w, "step". There is no certificate: the problem is not convex.
    """
    objective, rows, signs, weights = problem
    (system,) = options.chosen(system="auto")
    tol, report = options.tol, options.report
    if system == "auto" and np.ndim(objective.metric) == 0 and _span_is_small(rows):
        return _solve_in_span(problem, options)
    pull = add_rows(rows, np.arange(n_rows(rows)), weights * signs, np.zeros(n_columns(rows)))
    push = objective.push(weights) * pull
    prox = objective.prox(weights) * objective.metric * np.ones(len(pull))
    active_system = _choose_system(rows, system)(rows, signs, weights, prox)
    w = _normalise(pull)
    w, z, theta = _upright(rows, signs, weights, w)
    history = [objective.value(z, weights)]
    anchor, anchor_round, status = w, 0, Status.ITERATION_LIMIT
    for k in range(1, options.limit(SETTINGS.most_rounds) + 1):
        active = z < theta
        active_system.activate(active)
        last, w = w, _normalise(active_system.solve(w, theta) + push)
        w, z, theta = _upright(rows, signs, weights, w)
        history.append(objective.value(z, weights))
        step = np.linalg.norm(w - last)
        if report is not None and report(k, w, history[-1], np.nan):
            status = Status.STOPPED
            break
        if step <= tol and np.array_equal(z < theta, active):
            status = Status.SETTLED
            break
        if step > tol and np.linalg.norm(w - anchor) <= 1e-2 * tol:
            status = Status.CYCLE
            break
        if k >= 2 * anchor_round:  # Brent's search for a cycle: one remembered point, renewed at powers of two
            anchor, anchor_round = w, k
    extra = {"history": np.array(history), "step": step}
    return Solution(w, None, history[-1], np.nan, k, status, extra)


def _span_is_small(rows):
    """Tell whether rows are so few beside many columns that their coordinates in a basis of their span are cheap."""
    m, d = n_rows(rows), n_columns(rows)
    return m < d and d > SETTINGS.always_gram and m * m * d <= SETTINGS.few_operations


def _solve_in_span(problem, options):
    """Run the rounds in the span of the rows, which w never leaves; its Gram matrix is small."""
    basis, triangle = qr(dense_matrix(problem.space).T, mode="economic", check_finite=False)
    report = None
    if options.report is not None:

        def report(k, w, value, gap):
            return options.report(k, basis @ w, value, gap)

    narrow = problem._replace(space=as_rows(np.ascontiguousarray(triangle.T)))
    result = solve(narrow, options._replace(report=report))
    return result._replace(coef=basis @ result.coef)


def solve_grid(problem, options):
    """Run the rounds for many objectives: the same rounds as :func:`solve`, all in one compiled loop.

    What does not depend on the objective is made once: the start, its margins and the Gram matrix of its active rows.

    Parameters
    ----------
    problem : Problem
        A list of :class:`~margindist.objectives.SemiVariance` with the same metric, on dense float64 rows without a
        constant column of their own.
    options : Options
        As for :func:`solve`; there are no choices.

    Returns
    -------
    ndarray of shape (n_objectives, n_columns)
        Coefficients, of length one.
    """
    objectives, rows, signs, weights = problem
    tol, max_iter = options.tol, options.limit(SETTINGS.most_rounds)
    X = rows.X
    pull = X.T @ (weights * signs)
    w, z, theta = _upright(rows, signs, weights, _normalise(pull))
    active = z < theta
    part = X[active]
    scaled = weights[active, None] * part
    start = _Start(w, z, theta, active, scaled.T @ part, scaled.T @ signs[active])
    metric = objectives[0].metric * np.ones(len(pull))
    prices = [(objective.push(weights), objective.prox(weights)) for objective in objectives]
    if len(pull) <= np.count_nonzero(active):
        return np.array([
            _all_rounds(X, signs, weights, start, push * pull, prox * metric, tol, max_iter) for push, prox in prices
        ])  # fmt: skip
    # The system is smaller with one variable per active row.
    Z = X * signs[:, None]
    raised = Z @ (Z / metric).T
    image = Z @ pull
    return np.array([
        _all_rounds_by_rows(Z, raised, weights, metric, start, pull, image, push, prox, tol, max_iter)
        for push, prox in prices
    ])  # fmt: skip


class _Start(NamedTuple):
    """Coefficients, margins and mean margin of the start; its active rows, their Gram matrix and pull."""

    w: np.ndarray
    z: np.ndarray
    theta: float
    active: np.ndarray
    gram: np.ndarray
    target: np.ndarray


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _all_rounds(X, signs, weights, start, push, prox, tol, max_iter):
    """Return the coefficients where the rounds end."""
    d = len(push)
    w, z, theta, active = start.w.copy(), start.z.copy(), start.theta, start.active.copy()
    gram, target = start.gram.copy(), start.target.copy()
    factor, v = _factor(gram, prox), np.empty(d)
    anchor, anchor_round = w.copy(), 0
    for k in range(1, max_iter + 1):
        if k > 1 and _activate(X, signs, weights, z, theta, active, gram, target):
            factor = _factor(gram, prox)
        for j in range(d):
            v[j] = prox[j] * w[j] + theta * target[j]
        solve_factored(factor, v)
        v += push
        length = np.sqrt(np.sum(v * v))
        if length > 0.0:
            v /= length
        theta = _all_margins(X, signs, weights, v, z)
        if theta < 0.0:
            v *= -1.0
            z *= -1.0
            theta = -theta
        over = _is_over(v, w, anchor, np.array_equal(z < theta, active), tol)
        assign(w, v)
        if over:
            break
        if k >= 2 * anchor_round:
            assign(anchor, w)
            anchor_round = k
    return w


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _all_rounds_by_rows(Z, raised, weights, metric, start, pull, image, push, prox, tol, max_iter):
    """Run the same rounds with one variable per active row; Z are the signed rows, ``raised`` is ZN⁻¹Z'.

    By Woodbury's formula w' = w + N⁻¹Z_A'a with (βS_A⁻¹ + Z_A N⁻¹Z_A') a = θ − z_A, and the margins move with
    ``raised``: a system of the size of A, and no product with all of Z. Here ``push`` is 1/(2αn), ``prox`` is nβ.
    """
    w, z, theta, active = start.w.copy(), start.z.copy(), start.theta, start.active.copy()
    which = np.flatnonzero(active)
    factor = factor_of_part(raised, which, prox / weights[which])
    v, a = np.empty(len(w)), np.empty(len(z))
    anchor, anchor_round = w.copy(), 0
    for k in range(1, max_iter + 1):
        if k > 1 and not np.array_equal(z < theta, active):
            active = z < theta
            which = np.flatnonzero(active)
            factor = factor_of_part(raised, which, prox / weights[which])
        n = len(which)
        for i in range(n):
            a[i] = theta - z[which[i]]
        solve_factored(factor, a[:n])
        v[:] = 0.0
        for i in range(n):
            row = Z[which[i]]
            image_of_row = raised[which[i]]
            for j in range(len(v)):
                v[j] += a[i] * row[j]
            for j in range(len(z)):
                z[j] += a[i] * image_of_row[j]
        length = 0.0
        for j in range(len(v)):
            v[j] = w[j] + v[j] / metric[j] + push * pull[j]
            length += v[j] * v[j]
        scale = 1.0 / np.sqrt(length) if length > 0.0 else 1.0
        theta = 0.0
        total = 0.0
        for i in range(len(z)):
            z[i] = scale * (z[i] + push * image[i])
            theta += weights[i] * z[i]
            total += weights[i]
        theta /= total
        if theta < 0.0:
            scale = -scale
            theta = -theta
            z *= -1.0
        v *= scale
        over = _is_over(v, w, anchor, np.array_equal(z < theta, active), tol)
        assign(w, v)
        if over:
            break
        if k >= 2 * anchor_round:
            assign(anchor, w)
            anchor_round = k
    return w


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _is_over(v, last, anchor, unchanged, tol):
    """Tell whether the coefficients have settled, with the same active rows, or are back at the anchor: a cycle."""
    if np.sqrt(np.sum((v - last) ** 2)) <= tol:
        return unchanged
    return np.sqrt(np.sum((v - anchor) ** 2)) <= 1e-2 * tol


@njit(cache=True, nogil=True)
def _factor(gram, prox):
    matrix = gram.copy()
    for j in range(len(prox)):
        matrix[j, j] += prox[j]
    return np.linalg.cholesky(matrix)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _all_margins(X, signs, weights, w, z):
    """Fill ``z`` with the margins; return their mean."""
    mean, total = 0.0, 0.0
    for i in range(len(z)):
        row, value = X[i], 0.0
        for j in range(len(w)):
            value += row[j] * w[j]
        z[i] = signs[i] * value
        mean += weights[i] * z[i]
        total += weights[i]
    return mean / total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _activate(X, signs, weights, z, theta, active, gram, target):
    """Let rows enter and leave the active set; tell whether any did."""
    changed = False
    for i in range(len(z)):
        inside = z[i] < theta
        if inside == active[i]:
            continue
        active[i], changed = inside, True
        row, scale = X[i], weights[i] if inside else -weights[i]
        for j in range(len(target)):
            step, line = scale * row[j], gram[j]
            target[j] += step * signs[i]
            for l in range(j + 1):
                line[l] += step * row[l]
    return changed


def _normalise(w):
    length = np.linalg.norm(w)
    return w / length if length > 0.0 else w


def _upright(rows, signs, weights, w):
    """Return coefficients, margins and mean margin, with the sign that makes the mean positive."""
    theta = _mean_margin(rows, signs, weights, w, z := np.empty(len(signs)))
    return (w, z, theta) if theta >= 0.0 else (-w, -z, -theta)


@njit(cache=True, nogil=True)
def _mean_margin(rows, signs, weights, w, margins):
    mean, total = 0.0, 0.0
    for i in range(len(signs)):
        margins[i] = signs[i] * row_dot(rows, i, w)
        mean += weights[i] * margins[i]
        total += weights[i]
    return mean / total


def _choose_system(rows, system):
    if system == "auto":
        d = n_columns(rows)
        cheap = d <= SETTINGS.always_gram or (
            d <= SETTINGS.never_gram and d**3 <= SETTINGS.steps_a_factor * n_stored(rows)
        )
        system = "gram" if cheap else "rows"
    return _GramSystem if system == "gram" else _RowSystem


class _ActiveSystem:
    """``(prox + X_A'SX_A) v = prox w + θ X_A'Sy`` for an active set that changes little by little."""

    def __init__(self, rows, signs, weights, prox):
        self.rows, self.signs, self.weights, self.prox = rows, signs, weights, prox
        self.active = np.zeros(len(signs), dtype=bool)
        self.target = np.zeros(len(prox))  # X_A'Sy

    def activate(self, active):
        """Let rows enter and leave; one block of each."""
        entering, leaving = np.flatnonzero(active & ~self.active), np.flatnonzero(self.active & ~active)
        self.active = active
        for which, sign in ((entering, 1.0), (leaving, -1.0)):
            add_rows(self.rows, which, sign * self.weights[which] * self.signs[which], self.target)
        if len(entering) + len(leaving):
            self._change(entering, leaving)

    def solve(self, w, theta):
        """Return ``v``."""
        return self._solve(self.prox * w + theta * self.target, w)


class _GramSystem(_ActiveSystem):
    """With the Gram matrix of the active rows and its Cholesky factor."""

    def __init__(self, rows, signs, weights, prox):
        super().__init__(rows, signs, weights, prox)
        self.matrix = np.diag(prox)  # lower triangle
        self.factor = None

    def _change(self, entering, leaving):
        if len(entering) + len(leaving) > np.count_nonzero(self.active):
            entering, leaving = np.flatnonzero(self.active), entering[:0]
            self.matrix = np.diag(self.prox)
        for which, sign in ((entering, 1.0), (leaving, -1.0)):
            add_gram(self.rows, which, self.weights[which], sign, self.matrix)
        self.factor = None

    def _solve(self, right, start):
        if self.factor is None:
            self.factor = cho_factor(self.matrix.T, lower=False, check_finite=False)
        return cho_solve(self.factor, right, check_finite=False)


class _RowSystem(_ActiveSystem):
    """With nothing but the rows."""

    which = np.empty(0, dtype=np.intp)

    def _change(self, entering, leaving):
        self.which = np.flatnonzero(self.active)

    def _solve(self, right, start):
        """Take conjugate gradient steps, with the proximal term as preconditioner, from the last coefficients on."""
        enough = SETTINGS.residual * np.linalg.norm(right)
        lacking = right - self._product(start)
        steps = conjugate_gradients(self._product, lacking, lambda residual: residual / self.prox, start.copy())
        for n_steps, (v, residual, _, _) in enumerate(steps):
            if n_steps == SETTINGS.conjugate_steps or np.linalg.norm(residual) <= enough:
                return v

    def _product(self, v):
        return _add_gram_product(self.rows, self.which, self.weights, v, self.prox * v)


@njit(cache=True, nogil=True)
def _add_gram_product(rows, which, weights, v, out):
    for i in which:
        row_add(rows, i, weights[i] * row_dot(rows, i, v), out)
    return out
