r"""What the largest average margin leaves open: the bias, and how much each class counts.

The direction :math:`w = \frac1M \sum_i s_i y_i \varphi(x_i)` is a sum and needs no solver. Abe (2016) chooses the bias
by the fewest training errors and a factor :math:`C_m` of the negative class by cross-validation. Both need only the
scores of the rows, so everything here works on plain vectors.

**Bias.** Between two neighbouring scores :math:`u < v` the number of errors is constant; the threshold halfway,
:math:`b = -(u + v)/2`, has the margin :math:`\rho = (v - u)/2` (eqs. 19, 20). There

.. math:: E_R = \sum_{y_i = 1, f_i \le u} s_i + \sum_{y_i = -1, f_i \ge v} s_i , \qquad
          E_S = \sum_{y_i = 1, f_i \le u} s_i (v - f_i) + \sum_{y_i = -1, f_i \ge v} s_i (f_i - u)

are the errors and the slack (eqs. 14 and 16), both running sums: one sort serves all thresholds.
Where errors are fewest, a negative row stands at ``u`` and a positive one at ``v``, as the paper's pairs have it
(eq. 25 must take the smallest positive score above ``u``, not the largest). It may also be best to give all rows to
one class; then the missing neighbour is imagined one whole range of scores away.
"""

from typing import NamedTuple

import numpy as np

from margindist.compilation import njit

__all__ = ["SLOPES", "Bias", "Search", "best_bias", "find_bias", "search_slope"]

# The factors of the negative class that Abe (2016) tries: 0.05, 0.1, 0.2, …, 1 and their inverses.
SLOPES = np.array([0.05, *(k / 10 for k in range(1, 11)), *(10 / k for k in range(9, 0, -1)), 20.0])

_EQUAL = 1e-12  # scores this close, relative to the largest, differ by rounding only


class Bias(NamedTuple):
    """A bias, and what it costs on the rows it was chosen on."""

    value: float
    errors: float  # weight of the misclassified rows
    slack: float


class Search(NamedTuple):
    """A slope, what each slope of the grid cost in cross-validation, and the scores of all rows with this one."""

    slope: float
    errors: np.ndarray
    scores: np.ndarray


def best_bias(scores, signs, weights):
    """Return the bias with the fewest errors; ties go to the least slack, then to the widest gap between scores.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
        Without a bias.
    signs : ndarray of shape (n_rows,)
        -1 or +1.
    weights : ndarray of shape (n_rows,)
        Positive.

    Returns
    -------
    Bias
    """
    order = np.argsort(scores)
    lowest, highest = scores[order[0]], scores[order[-1]]
    equal = _EQUAL * max(abs(lowest), abs(highest))
    reach = highest - lowest if highest - lowest > equal else max(1.0, abs(lowest))
    return Bias(*_scan(scores[order], signs[order], weights[order], equal, reach))


@njit(cache=True, nogil=True)
def _scan(f, signs, weights, equal, reach):
    """Look at every gap between neighbouring scores, twice: for the fewest errors, then for the least slack."""
    origin = f[0]
    total = 0.0
    negative = 0.0  # weight of the negative rows
    moment = 0.0  # of the negative rows above the gap, about the lowest score
    for i in range(len(f)):
        total += weights[i]
        if signs[i] < 0:
            negative += weights[i]
            moment += weights[i] * (f[i] - origin)

    fewest = errors = negative
    for i in range(len(f)):
        errors += weights[i] if signs[i] > 0 else -weights[i]
        if i + 1 == len(f) or f[i + 1] - f[i] > equal:
            fewest = min(fewest, errors)

    limit = fewest + _EQUAL * total  # sums that differ by less than this are equal but for rounding
    close = _EQUAL * total * reach
    lost_positive = 0.0  # positive rows below the gap, and negative ones above it, are on the wrong side
    lost_negative = negative
    positive_moment = 0.0
    value, result = 0.0, 0.0
    slack, width = np.inf, 0.0
    for i in range(-1, len(f)):  # the gap above row i; -1 is that below all rows
        if i >= 0 and signs[i] > 0:
            lost_positive += weights[i]
            positive_moment += weights[i] * (f[i] - origin)
        elif i >= 0:
            lost_negative -= weights[i]
            moment -= weights[i] * (f[i] - origin)
        below = f[i] if i >= 0 else f[0] - reach
        above = f[i + 1] if i + 1 < len(f) else f[i] + reach
        if above - below <= equal or lost_positive + lost_negative > limit:
            continue
        here = (above - origin) * lost_positive - positive_moment + moment - (below - origin) * lost_negative
        if here < slack - close or (here <= slack + close and above - below > width):
            value = -0.5 * (below + above)
            result = lost_positive + lost_negative
            slack = max(here, 0.0)
            width = above - below
    return value, result, slack


def find_bias(rule, scores, slope, signs, weights):
    """Return the bias by the rule "optimal" (which alone looks at the scores), "mean" or "zero"."""
    if rule == "optimal":
        return best_bias(scores, signs, weights).value
    if rule == "mean":  # eq. 13; a negative row counts as often as it does in the direction
        return float(weights @ np.where(signs > 0, 1.0, -slope) / weights.sum())
    return 0.0


def search_slope(sums, positive, folds, signs, weights, bias):
    """Choose the slope of one two-class problem by cross-validation.

    Parameters
    ----------
    sums : ndarray of shape (n_rows, n_folds, n_classes)
        For every row, the weighted sum of its kernel values with the rows of each fold and class. A classifier trained
        without a fold is the total without that fold, so no kernel value is ever computed twice.
    positive : int
        The class that is positive here.
    folds : ndarray of shape (n_rows,)
        The fold of each row.
    signs : ndarray of shape (n_rows,)
        -1 or +1.
    weights : ndarray of shape (n_rows,)
        Positive.
    bias : {"optimal", "mean", "zero"}
        The rule applied in each fold.

    Returns
    -------
    Search
    """
    plus = sums[:, :, positive]
    minus = np.delete(sums, positive, axis=2).sum(axis=2)
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
            b = find_bias(bias, scores[inside], slope, signs[inside], weights[inside])
            errors[k] += weights[outside] @ ((scores[outside] + b > 0) != (signs[outside] > 0))
    best = np.flatnonzero(errors <= errors.min() + 1e-12 * weights.sum())
    slope = SLOPES[best[np.argmin(np.abs(np.log(SLOPES[best])))]]
    return Search(slope, errors, (plus.sum(axis=1) - slope * minus.sum(axis=1)) / weights.sum())
