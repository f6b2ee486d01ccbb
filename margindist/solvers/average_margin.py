r"""What the largest average margin leaves open: the bias, and how much each class counts.

The direction :math:`w = \frac1M \sum_i s_i y_i \varphi(x_i)` is a sum and needs no solver. Abe (2016) chooses the bias
by the fewest training errors and a factor :math:`C_m` of the negative class by cross-validation. Both need only the
scores of the rows, so everything here works on plain vectors.

**Bias.** Between two neighbouring scores :math:`u < v` the number of errors is constant; the threshold halfway,
:math:`b = -(u + v)/2`, has the margin :math:`\rho = (v - u)/2` (eqs. 19, 20). There

.. math:: E_R = \sum_{y_i = 1, f_i \le u} s_i + \sum_{y_i = -1, f_i \ge v} s_i , \qquad
          E_S = \sum_{y_i = 1, f_i \le u} s_i (v - f_i) + \sum_{y_i = -1, f_i \ge v} s_i (f_i - u)

are the errors and the slack (eqs. 14 and 16), both differences of cumulative sums: one sort serves all thresholds.
Where errors are fewest, a negative row stands at ``u`` and a positive one at ``v``, as the paper's pairs have it
(eq. 25 must take the smallest positive score above ``u``, not the largest). It may also be best to give all rows to
one class; then the missing neighbour is imagined one whole range of scores away.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["SLOPES", "Bias", "Choice", "best_bias", "choose", "kernel_sums"]

# The factors of the negative class that Abe (2016) tries: 0.05, 0.1, 0.2, …, 1 and their inverses.
SLOPES = np.array([0.05, *(k / 10 for k in range(1, 11)), *(10 / k for k in range(9, 0, -1)), 20.0])

_EQUAL = 1e-12  # scores this close, relative to the largest, differ by rounding only
_STRIP_VALUES = 2**23  # kernel values in memory at a time


class Bias(NamedTuple):
    """A bias, and what it costs on the rows it was chosen on."""

    value: float
    errors: float  # weight of the misclassified rows
    slack: float


class Choice(NamedTuple):
    """Slope and bias of one two-class problem, and what each slope of the grid cost in cross-validation."""

    slope: float
    bias: float
    errors: np.ndarray | None


def best_bias(scores, signs, weights):
    """Return the bias with the fewest errors; ties go to the least slack, then to the widest gap between scores.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,), without a bias
    signs : ndarray of shape (n_rows,), -1 or +1
    weights : ndarray of shape (n_rows,), positive

    Returns
    -------
    Bias
    """
    order = np.argsort(scores)
    middle = 0.5 * (scores[order[0]] + scores[order[-1]])
    f = scores[order] - middle  # slack is a difference of large sums: keep them small
    positive = np.where(signs[order] > 0, weights[order], 0.0)
    negative = weights[order] - positive

    width = f[-1] - f[0]
    equal = _EQUAL * max(abs(scores[order[0]]), abs(scores[order[-1]]))
    reach = width if width > equal else max(1.0, abs(middle))
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(f) > equal) + 1, [len(f)]])
    below = np.concatenate([[f[0] - reach], f])[cuts]
    above = np.concatenate([f, [f[-1] + reach]])[cuts]

    lost_positive = _cumulative(positive)[cuts]
    kept_negative = _cumulative(negative)[cuts]
    lost_negative = kept_negative[-1] - kept_negative
    errors = lost_positive + lost_negative
    fewest = np.flatnonzero(errors <= errors.min() + 1e-12 * (lost_positive[-1] + kept_negative[-1]))
    cuts, below, above = cuts[fewest], below[fewest], above[fewest]
    lost_positive, lost_negative = lost_positive[fewest], lost_negative[fewest]

    negative_moment = _cumulative(negative * f)
    slack = above * lost_positive - _cumulative(positive * f)[cuts]
    slack += negative_moment[-1] - negative_moment[cuts] - below * lost_negative
    best = np.flatnonzero(slack <= slack.min() + 1e-12 * weights.sum() * reach)
    chosen = best[np.argmax(above[best] - below[best])]
    value = -(middle + 0.5 * (below[chosen] + above[chosen]))
    return Bias(value, float(errors[fewest[chosen]]), float(max(slack[chosen], 0.0)))


def choose(sums, positive, folds, signs, weights, *, slope, bias):
    """Choose slope and bias of one two-class problem.

    Parameters
    ----------
    sums : ndarray of shape (n_rows, n_folds, n_classes) or None
        For every row, the weighted sum of its kernel values with the rows of each fold and class. A classifier trained
        without a fold is the total without that fold, so no kernel value is ever computed twice. Not needed for a
        given slope and a bias other than "optimal".
    positive : int, the class that is positive here
    folds : ndarray of shape (n_rows,), the fold of each row
    signs, weights : ndarray of shape (n_rows,)
    slope : float, or None to choose it from ``SLOPES`` by cross-validation
    bias : {"optimal", "mean", "zero"}

    Returns
    -------
    Choice
    """
    if sums is None:
        return Choice(slope, _find_bias(bias, None, slope, signs, weights), None)
    plus = sums[:, :, positive]
    minus = np.delete(sums, positive, axis=2).sum(axis=2)
    errors = None
    if slope is None:
        errors = _slope_errors(plus, minus, folds, signs, weights, bias)
        best = np.flatnonzero(errors <= errors.min() + 1e-12 * weights.sum())
        slope = SLOPES[best[np.argmin(np.abs(np.log(SLOPES[best])))]]
    scores = (plus.sum(axis=1) - slope * minus.sum(axis=1)) / weights.sum()
    return Choice(slope, _find_bias(bias, scores, slope, signs, weights), errors)


def kernel_sums(kernel, X, groups):
    """Return the kernel values of every row with all rows times ``groups``, a strip of the Gram matrix at a time."""
    out = np.empty_like(groups)
    strip = max(1, _STRIP_VALUES // len(groups))
    for start in range(0, len(out), strip):
        out[start : start + strip] = kernel(X[start : start + strip], X) @ groups
    return out


def _find_bias(rule, scores, slope, signs, weights):
    if rule == "optimal":
        return best_bias(scores, signs, weights).value
    if rule == "mean":  # eq. 13; a negative row counts as often as it does in the direction
        return float(weights @ np.where(signs > 0, 1.0, -slope) / weights.sum())
    return 0.0


def _slope_errors(plus, minus, folds, signs, weights, bias):
    """Return the weight of the rows misclassified in cross-validation, for every slope."""
    errors = np.zeros(len(SLOPES))
    for fold in range(plus.shape[1]):
        outside = folds == fold
        inside = ~outside
        if not outside.any() or not inside.any():
            continue
        total = weights[inside].sum()
        with_plus = (plus.sum(axis=1) - plus[:, fold]) / total
        with_minus = (minus.sum(axis=1) - minus[:, fold]) / total
        for k, slope in enumerate(SLOPES):
            scores = with_plus - slope * with_minus
            b = _find_bias(bias, scores[inside], slope, signs[inside], weights[inside])
            errors[k] += weights[outside] @ ((scores[outside] + b > 0) != (signs[outside] > 0))
    return errors


def _cumulative(values):
    """Return the sums of the first 0, 1, …, n values."""
    out = np.zeros(len(values) + 1)
    np.cumsum(values, out=out[1:])
    return out
