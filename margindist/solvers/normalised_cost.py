r"""Descent on a cost of normalised margins, which sees directions only (margin distribution optimisation).

Signed rows x_i of length one (their labels multiplied in), weights s. On the unit sphere, with ν_i = w·x_i/‖w‖ in
[−1, 1],

    min  L(w) = Σ s_i c(ν_i),    c(ν) = e^{−αν²} for ν ≥ 0,   e^{−βν} for ν < 0

Rows on their right side cost what the projection profile of the margin bound makes of them, a bell curve that forgets
them once they are far away; rows on the wrong side cost more the farther they are. c is continuous and decreasing,
steep to the left of 0 and flat to its right: L is not convex, and a minimum may well sit on a kink.

From a given start: limited memory BFGS directions on the sphere, projected to its tangent space, and steps halved
until the cost falls by Armijo's condition (one that finds no such step tries the gradient, then stops). The cost of
accepted steps never increases, so the end is never worse than the start.
"""

from typing import NamedTuple

import numpy as np

from margindist.compilation import njit
from margindist.objectives import row_cost
from margindist.solvers._solution import Solution, Status
from margindist.spaces.rows import add_rows, n_columns, n_rows, row_dot, squares


class Settings(NamedTuple):
    """How a step is found."""

    most_steps: int = 1000
    memory: int = 10  # pairs the curvature estimate rests on
    sufficient: float = 1e-4  # fraction of the promised decrease that a step must keep
    halvings: int = 40


SETTINGS = Settings()


class _Cost:
    """L and its gradient on the sphere."""

    def __init__(self, problem):
        self.objective, self.rows, signs, self.weights = problem
        self.scale = _signed_inverse_lengths(self.rows, signs)
        self.every = np.arange(len(signs))
        self.slopes = np.empty(len(signs))

    def value(self, w):
        """Return the cost at a ``w`` of length one; keep the slopes for :meth:`gradient`."""
        return _pass(self.objective, self.rows, self.scale, self.weights, w, self.slopes)

    def gradient(self, w):
        """Return the gradient along the sphere at the ``w`` that :meth:`value` saw last."""
        full = add_rows(self.rows, self.every, self.slopes, np.zeros(len(w)))
        return full - (full @ w) * w


def _signed_inverse_lengths(rows, signs):
    squares(rows, lengths := np.empty(len(signs)))
    return signs / np.sqrt(np.where(lengths > 0.0, lengths, 1.0))


@njit(cache=True, nogil=True)
def _pass(objective, rows, scale, weights, w, slopes):
    """Return the cost of all rows; fill their slopes, by the scores of the rows as they are."""
    total = 0.0
    for i in range(len(scale)):
        cost, slope = row_cost(objective, scale[i] * row_dot(rows, i, w))
        slopes[i] = weights[i] * slope * scale[i]
        total += weights[i] * cost
    return total


def balance_constant(rows):
    """Return the rows with their constant column, if they have one, as large as the longest row is without it."""
    squares(rows._replace(bias=0.0), lengths := np.empty(n_rows(rows)))
    return rows._replace(bias=rows.bias * (np.sqrt(lengths.max()) or 1.0))


def mean_direction(rows, signs, weights):
    """Return the direction of largest mean normalised margin."""
    scales = weights * _signed_inverse_lengths(rows, signs)
    return add_rows(rows, np.arange(len(signs)), scales, np.zeros(n_columns(rows)))


def solve(problem, options, start=None):
    """Descend from one start.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.NormalisedCost` on rows.
    options : Options
        One iteration is an accepted step; ``tol`` is the relative decrease of the cost that counts as none.
    start : Solution, optional
        Of its coefficients the direction counts: the problem is not convex, and other starts lead elsewhere. Without
        one, it is the direction of largest mean normalised margin.

    Returns
    -------
    Solution
        Coefficients of length one; ``extra`` has the cost of the start and after every accepted step, "history".
    """
    tol, report = options.tol, options.report
    cost = _Cost(problem)
    w = _on_sphere(mean_direction(*problem[1:]) if start is None else start.coef)
    history, pairs, status = [cost.value(w)], [], Status.ITERATION_LIMIT
    gradient = cost.gradient(w)
    for _ in range(options.limit(SETTINGS.most_steps)):
        moved = _search(cost, w, history[-1], gradient, pairs)
        if moved is None and pairs:
            pairs = []
            moved = _search(cost, w, history[-1], gradient, pairs)
        if moved is None:
            status = Status.SETTLED
            break
        last, w, last_gradient = w, moved[0], gradient
        history.append(moved[1])
        gradient = cost.gradient(w)
        _remember(pairs, w - last, gradient - last_gradient)
        if report is not None and report(len(history) - 1, w, history[-1], np.nan):
            status = Status.STOPPED
            break
        if history[-2] - history[-1] <= tol * history[-2]:
            status = Status.SETTLED
            break
    return Solution(w, None, history[-1], np.nan, len(history) - 1, status, {"history": np.array(history)})


def _on_sphere(w):
    length = np.linalg.norm(w)
    if length > 0.0:
        return w / length
    return np.full(len(w), len(w) ** -0.5)


def _search(cost, w, value, gradient, pairs):
    """Return the next point and its cost, or None if no step lowers it."""
    direction = -_quasi_newton(gradient, pairs)
    direction -= (direction @ w) * w
    slope = direction @ gradient
    if not slope < 0.0:
        return None
    length = 1.0 if pairs else 0.1 / np.linalg.norm(direction)
    for _ in range(SETTINGS.halvings):
        ahead = _on_sphere(w + length * direction)
        result = cost.value(ahead)
        if result <= value + SETTINGS.sufficient * length * slope and result < value:
            return ahead, result
        length *= 0.5
    return None


def _remember(pairs, step, change):
    if step @ change > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
        pairs.append((step, change, 1.0 / (step @ change)))
        del pairs[: -SETTINGS.memory]


def _quasi_newton(gradient, pairs):
    """Return the inverse curvature estimate times the gradient (two-loop recursion)."""
    v = gradient.copy()
    shares = []
    for step, change, inverse in reversed(pairs):
        shares.append(inverse * (step @ v))
        v -= shares[-1] * change
    if pairs:
        step, change, inverse = pairs[-1]
        v /= inverse * (change @ change)
    for (step, change, inverse), share in zip(pairs, reversed(shares)):
        v += (share - inverse * (change @ v)) * step
    return v
