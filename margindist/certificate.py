r"""The ledger: how far weights are from the minimum, rounding included. Nobody else computes a gap or a bound.

For weights w and a dual point a, with :math:`\tilde w = \sum_i a_i u_i`, signed rows :math:`u_i = y_i x_i` and margins
:math:`z_i = u_i \cdot w` (see :mod:`margindist.objectives`),

.. math:: P(w) - P^* \le P(w) - D(a)
    = \tfrac12 \|w - \tilde w\|^2 + \sum_i \bigl(\varphi_i(z_i) + \varphi_i^*(-a_i) + a_i z_i\bigr) .

A solver claims weights and multipliers; everything else follows here, from sums over rows, for rows in memory (one
part) and in partitions (:mod:`margindist.spaces.partitions`) alike.

**Rounding.** With :math:`u = 2^{-53}` and :math:`\gamma_n = nu / (1 - nu)`, a computed sum of n products is off by at
most :math:`\gamma_n` times the sum of their absolute values, in whatever order it is added up. So a margin is off by

.. math:: |z_i - \hat z_i| \le e_i = \gamma_{n_i + 6} \sum_j |x_{ij}| |w_j| ,

and every term above is taken at the worst margins within that. The computed margins make as good a dual point
:math:`\hat a = \lambda_2 p + \beta - P \hat z` as the exact ones; they cost the variance of the errors. The sum of rows
is off by a vector of length

.. math:: \|\delta \tilde w\| \le \gamma_{m + 64} \sum_i |\hat a|_i \|x_i\|,
    \qquad |\hat a|_i = |\beta_i| + p_i \bigl(\lambda_2 + 4\lambda_1 (|c_i| + \mathrm{rms}(c))\bigr) ,

with c the centred margins. These are bounds and no estimates: what is proved is so in exact arithmetic.

**The ray.** Where rounding costs, so do margins of 1: at a price C, a row that may be short by :math:`e_i` costs
:math:`C e_i`, and it may be cheaper to lengthen the weights until all such rows are beyond 1 for certain. Where a
solver has lost its way, shorter weights are better. A hard margin needs the length with which every margin is at least
1. So the claim is certified at the best length tried along the ray through w.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from margindist.spaces.partitions import Round
from margindist.spaces.rows import add_rows, column_sizes, n_columns, n_terms, score_sizes, scores, squares

__all__ = [
    "Bounds",
    "CertifiedPart",
    "Ledger",
    "bounds_of",
    "certified",
    "gamma",
    "inseparable",
    "relative",
    "residual_of",
    "worthwhile_scale",
]

_UNIT = 2.0**-53
_OF_A_MARGIN = 6  # roundings of a margin beside its products: of weights that are scaled, of its sign, of the scale
_OF_A_DUAL_POINT = 64  # roundings of a row's dual variable and of the mean margin beside the sum of rows
_OWN = 1.0 + 2.0**-30  # what adding up the bound's own terms, none of them negative, can lose
_IMMATERIAL = 1e-11  # relative error that any value has: not in its gap, but in its bounds beside others
_LARGEST = 1e9  # a hard margin of 1 that is added up from terms at least this large, or there is none: not separable
_SHORTER = 4.0 ** -np.arange(1.0, 120.0)  # parts of weights that are tried where all of them are worse than none
_LONGER = 1.0 + 4.0 ** -np.arange(25.0, 0.0, -1.0)  # and multiples, where rounding is in the objective


class Bounds(NamedTuple):
    """What is proved of weights: lower ≤ P* ≤ P(coef) ≤ upper, and P(coef) − P* ≤ excess."""

    coef: np.ndarray  # the weights certified, on the ray through those claimed
    value: float  # the objective as computed
    error: float  # how far rounding can have taken it from the exact one, beyond what any value has
    excess: float
    rounding: float = 0.0  # relative to the objective, what rounding alone would leave of the gap
    refuted: bool = False  # whether the multipliers prove that there is no hard margin

    @property
    def upper(self):
        """What the objective is at most."""
        return self.value + self.error + _IMMATERIAL * abs(self.value)

    @property
    def lower(self):
        """What the minimum is at least."""
        return self.value - self.error - _IMMATERIAL * abs(self.value) - self.excess

    @property
    def gap(self):
        """How far the two are apart, relative to the objective's absolute value, but for what any value is off by."""
        return relative(self.excess + 2.0 * self.error, self.value)

    def with_lower(self, lower):
        """Return the same weights with another bound of the minimum, if that is higher and not above the weights."""
        if not self.lower < lower <= self.upper:
            return self
        return self._replace(excess=max(0.0, self.value - self.error - lower))


def gamma(n):
    """Return how far a sum of n products can be off, relative to the sum of their absolute values."""
    return n * _UNIT / (1.0 - n * _UNIT)


def relative(gap, value):
    """Return the gap relative to the objective's absolute value: not negative, by rounding; infinite, by overflow."""
    if not np.isfinite(value) or not np.isfinite(gap):
        return np.inf
    return max(gap, 0.0) / max(abs(value), np.finfo(float).tiny)


def inseparable(mass, pull, sizes, largest=_LARGEST):
    """Tell whether multipliers prove that a hard margin needs extremely large weights.

    Margins of at least 1 give Σβ ≤ w·Σβyx ≤ Σ_j |w_j|s_j · max_j |Σβyx_j|/s_j, where ``mass`` is Σβ, ``pull`` is Σβyx
    and s_j the largest value of column j: the terms that a margin is added up from have to be as large as Σβ divided by
    the last factor. Each column counts by its own size: beside large columns, a small one that separates the rows, or
    the constant one, would look like rounding. ``largest`` must be out of reach of all weights that are of any use.
    """
    if not (0.0 < mass < np.inf) or not np.isfinite(pull).all():
        return False
    return bool((largest * np.abs(pull) <= mass * sizes).all())


def worthwhile_scale(objective, square, margins, weights):
    """Return the part of some weights that is worth having: 1, unless weights of zero cost less than all of them.

    Solvers that lose their way can end at weights a million times too long. The objective is convex along the ray from
    zero through them, where shorter weights make the same predictions; they cost at most what weights of zero do.
    """

    def value(scale):
        result = objective.value(scale * scale * square, scale * margins, weights)
        return result if np.isfinite(result) else np.inf

    best, least = 1.0, value(1.0)
    if least <= value(0.0):
        return best
    for scale in _SHORTER:
        now = value(scale)
        if now >= least and np.isfinite(least):
            break
        best, least = scale, now
    return best if least < value(0.0) else 0.0


# ---------------------------------------------------------------------- what the rows of a part add


class CertifiedPart(ABC):
    """A part that can say what its rows add to a certificate; the solver's own part says which multipliers they have.

    Parameters
    ----------
    targets, weights : ndarray
        Of the partition.
    objective : objective
        Of :mod:`margindist.objectives`.
    positive : int, optional
        Code of the positive class; None if the targets are signs.
    """

    def __init__(self, targets, weights, objective, positive=None):
        self._given = targets if positive is None else np.where(targets == positive, 1, -1).astype(np.int8)
        self._weights = weights
        self._objective = objective

    @property
    def _everything(self):
        return np.arange(len(self._weights))  # anew each time: kept, it would be the largest part of the state

    def _margins_of_all(self, rows, w):
        scores(rows, w, z := np.empty(len(self._weights)))
        z *= self._given
        return z

    def _errors_of_all(self, rows, w):
        """Return how far each margin can be off."""
        score_sizes(rows, np.abs(w), sizes := np.empty(len(self._weights)))
        return gamma(n_terms(rows) + _OF_A_MARGIN) * sizes

    def _lengths(self, rows):
        squares(rows, lengths := np.empty(len(self._weights)))
        return np.sqrt(lengths)

    @abstractmethod
    def _multipliers(self):
        """Return the multipliers of all rows."""

    def margins(self, rows, w, about):
        """Return what a hard margin's certificate must know first: the least margin, and the multipliers' sums."""
        z, beta = self._margins_of_all(rows, w), self._multipliers()
        return {
            **self._objective.sums(z, self._weights, about),
            "least_min": (z - self._errors_of_all(rows, w)).min(),
            "beta": beta.sum(),
            "pressure": add_rows(rows, self._everything, beta * self._given, np.zeros(len(w))),
            "sizes_max": column_sizes(rows),
        }

    def certify(self, rows, w, about, total, floor):
        """Return the sums of the certificate; margins below the floor are so by rounding."""
        z = np.maximum(self._margins_of_all(rows, w), floor)
        return self._certificate_sums(rows, z, self._errors_of_all(rows, w), self._multipliers(), about, total)

    def along_ray(self, rows, w, about, scales):
        """Return the sums that the objective and its rounding consist of, for each multiple of the weights."""
        z, errors = self._margins_of_all(rows, w), self._errors_of_all(rows, w)
        result = [self._value_sums(scale * z, scale * errors, scale * about) for scale in scales]
        return {name: np.array([sums[name] for sums in result]) for name in result[0]}

    def _value_sums(self, z, errors, about):
        objective, weights = self._objective, self._weights
        return {**objective.sums(z, weights, about), **objective.error_sums(z, errors, weights)}

    def _certificate_sums(self, rows, z, errors, beta, about, total):
        objective, weights = self._objective, self._weights
        beta = objective.multipliers(beta, z, weights)
        dual = objective.dual_coef_of_some(beta, z - about, weights, total)
        sizes = objective.dual_sizes(beta, z - about, weights, total)
        lengths = self._lengths(rows)
        return {
            **self._value_sums(z, errors, about),
            "excess": objective.complementarity(beta, z, weights, errors),
            "seen_excess": objective.complementarity(beta, z, weights),
            "dual": add_rows(rows, self._everything, self._given * dual, np.zeros(n_columns(rows))),
            "dual_size": sizes @ lengths,
            "mean_size": weights @ lengths,
            "terms": len(weights),
        }


# ---------------------------------------------------------------------- rounds


def certified(objective, w, mean_row, total):
    """Return, in rounds, what is proved of weights and the multipliers that the parts have.

    ``mean_row`` is the mean of the signed rows, ``total`` their weight.
    """
    floor = -np.inf
    if objective.hard:
        about = mean_row @ w
        seen = yield Round("margins", (w, about), w)
        if not seen["least_min"] > 0.0:
            refuted = inseparable(seen["beta"], seen["pressure"], seen["sizes_max"])
            return Bounds(w, np.inf, 0.0, np.inf, refuted=refuted)
        w = objective.feasible_scale_of(w @ w, seen["least_min"], seen, about) * w
        floor = 1.0
    sums = yield Round("certify", (w, mean_row @ w, total, floor), w)
    here = bounds_of(objective, w, sums, mean_row, total)
    nothing = objective.at_zero(total)
    if objective.hard or (here.value <= nothing and here.error == 0.0):
        return here
    scales = _LONGER if here.value <= nothing else _SHORTER  # the latter also if the value is no number
    about = mean_row @ w
    seen = yield Round("along_ray", (w, about, scales), w)
    best, least = _best_scale(objective, w @ w, about, scales, seen)
    if not least < min(here.upper, nothing):
        if here.value <= nothing:
            return here
        best = 0.0
    w = best * w
    sums = yield Round("certify", (w, mean_row @ w, total, floor), w)
    return bounds_of(objective, w, sums, mean_row, total).with_lower(here.lower)


def _best_scale(objective, square, about, scales, seen):
    """Return the multiple of the weights with which the objective is least, rounding included, and that."""
    best, least = 1.0, np.inf
    for k, scale in enumerate(scales):
        sums = {name: values[k] for name, values in seen.items()}
        upper = objective.value_of(scale * scale * square, sums, scale * about) + objective.error_of(sums)
        if upper < least:
            best, least = scale, upper
    return best, least


def bounds_of(objective, w, sums, mean_row, total):
    """Return what the sums of :meth:`CertifiedPart.certify` over all rows prove of the weights."""
    value = objective.value_of(w @ w, sums, mean_row @ w)
    error = max(0.0, objective.error_of(sums) - _IMMATERIAL * abs(value))
    astray = _astray(objective, w, sums, total)
    apart = np.linalg.norm(residual_of(objective, w, sums, mean_row, total)) + astray
    rounding = 0.5 * astray**2 + sums["excess"] - sums["seen_excess"] + 2.0 * error
    return Bounds(w, value, error, (0.5 * apart**2 + sums["excess"]) * _OWN, relative(rounding, value))


def _astray(objective, w, sums, total):
    """Return how far the sum of rows, less the weights, can be off."""
    size = sums["dual_size"]
    if objective.coupled:
        size = size + objective.variance_weight * np.sqrt(sums["square"] / total) * sums["mean_size"] / total
    return gamma(sums["terms"] + _OF_A_DUAL_POINT) * size + 2.0 * _UNIT * np.linalg.norm(w)


def residual_of(objective, w, sums, mean_row, total):
    """Return by how much the dual point's weights exceed those certified."""
    residual = sums["dual"] - w
    if objective.coupled:  # the parts have centred their margins at a number near the mean
        residual += objective.variance_weight * (sums["centred"] / total) * mean_row
    return residual


# ---------------------------------------------------------------------- rows in memory


class Ledger(CertifiedPart):
    """The certificates of one problem on rows in memory.

    Parameters
    ----------
    problem : Problem
        Of two classes, on rows.
    lengths : ndarray, optional
        Squared lengths of the rows, if they are known.
    """

    def __init__(self, problem, lengths=None):
        super().__init__(problem.signs, problem.weights, problem.objective)
        self._rows = problem.space
        self._beta = None
        self.z = None  # the margins of the weights certified last
        self._known = None if lengths is None else np.sqrt(lengths)
        self._total = self._weights.sum()
        self._mean_row = self._sum(self._weights / self._total)

    def bounds(self, w, beta):
        """Return what is proved of weights and multipliers."""
        self._beta = beta
        generator = certified(self._objective, w, self._mean_row, self._total)
        record = None
        while True:
            try:
                name, args, _ = generator.send(record)
            except StopIteration as finished:
                return finished.value
            record = getattr(self, name)(self._rows, *args)

    def _sum(self, scales):
        return add_rows(self._rows, self._everything, self._given * scales, np.zeros(n_columns(self._rows)))

    def _margins_of_all(self, rows, w):
        self.z = super()._margins_of_all(rows, w)
        return self.z

    def _lengths(self, rows):
        if self._known is None:
            self._known = super()._lengths(rows)
        return self._known

    def _multipliers(self):
        return self._beta
