r"""What is minimised: small immutable objects that know nothing of data, storage or algorithms.

Every problem of the library has the form

.. math:: \min_w \; P(w) = \tfrac12 \|w\|^2 + \varphi(z), \qquad z_i = y_i \, w \cdot x_i ,

with a convex function :math:`\varphi` of the margins. Sample weights :math:`s_i` stand for repeated rows:
sums over samples are weighted sums, the number of samples is :math:`M = \sum_i s_i`.

**The certificate.** For margins ``z`` and any subgradient choice :math:`-a` of :math:`\varphi` put
:math:`\tilde w = \sum_i a_i y_i x_i`. Then for every ``w`` with these margins

.. math:: P(w) - D(a) = \tfrac12 \|w - \tilde w\|^2 + \varphi(z) + \varphi^*(-a) + a \cdot z ,

where ``D`` is the dual objective and the rest a sum of non-negative terms (Fenchel-Young). No solver has to
keep a dual value of its own: whatever it returns, this expression bounds its distance to the optimum.

**What solvers ask for.** Every objective of two classes has ``value``, ``slope``, ``dual_coef``, ``multipliers``,
``complementarity``, ``misfit``, ``steepest``, ``upper`` and ``dual_rate``, and the facts ``hard``, ``coupled`` and
``floor``. Interior point and block descent ask for a hinge with mean and variance: ``upper_bound``,
``variance_weight`` and ``mean_weight``. Newton's method asks for a slope that is piecewise linear: ``curvature`` and
``row_slope``. Coordinate descent asks for ``coordinate_step``. The joint problem of several classes asks for a
``band``. An objective whose slope is continuous writes five formulas and gets the rest from
:func:`piecewise_quadratic`.

**What has none here.** FMM maximises the least margin, which has no price to set. MAMC's direction is a sum and its
bias a count of errors. The online learners keep a bound on their mistakes and minimise nothing. The regressions of
``SVRClassifier`` are scikit-learn's.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from margindist.compilation import njit, overload

__all__ = [
    "LDM",
    "ODM",
    "Band",
    "HullDistance",
    "LeastSquares",
    "NormalisedCost",
    "SemiVariance",
    "compiled_for",
    "coordinate_step",
    "of_some",
    "piecewise_quadratic",
    "row_cost",
    "row_slope",
]

_UNIT = 2.0**-53  # relative error of a rounded operation


class LDM(NamedTuple):
    r"""Large margin distribution machine; with ``lambda1 = lambda2 = 0`` the support vector machine.

    .. math:: \varphi(z) = 2 \lambda_1 \mathrm{Var}(z) - \lambda_2 \bar z + C \sum_i s_i \max(0, 1 - z_i)

    Mean and variance are the population ones. The paper's margin variance (its eq. 4) averages over pairs
    and so is twice the usual one, hence the 2. ``C = inf`` asks for every margin to be at least 1.

    The curvature of the variance is :math:`P = 4\lambda_1(\mathrm{diag}(p) - pp^T)`, :math:`p_i = s_i / M`. A
    multiplier :math:`0 \le \beta_i \le C s_i` per row makes a dual point :math:`a = \lambda_2 p + \beta - Pz`.
    """

    C: float
    lambda1: float
    lambda2: float

    @property
    def upper_bound(self):
        """The largest multiplier of a row of weight one."""
        return self.C

    @property
    def variance_weight(self):
        """The curvature of the margins' variance: P is this number times diag(p) − pp'."""
        return 4.0 * self.lambda1

    @property
    def mean_weight(self):
        """The reward for the mean margin."""
        return self.lambda2

    @property
    def hard(self):
        """Whether margins below 1 are forbidden, not priced."""
        return np.isinf(self.C)

    @property
    def floor(self):
        """What the objective is at least, wherever."""
        return -np.inf if self.lambda2 > 0.0 else 0.0

    @property
    def coupled(self):
        """Whether the slope of a row's loss depends on the mean margin."""
        return self.lambda1 > 0.0

    def dual_rate(self, total):
        """Return how far the dual variable of a row of weight one moves with its margin, away from the kink."""
        return 4.0 * self.lambda1 / total

    def upper(self, weights):
        """Return the largest value each row's multiplier can take."""
        return self.C * weights

    def value(self, square_norm, margins, weights):
        """Return the objective at a point with these margins."""
        mean = (weights @ margins) / weights.sum()
        return self.value_of(square_norm, self.sums(margins, weights, mean), mean)

    def sums(self, margins, weights, about):
        """Return the sums over rows that value and scale consist of: ``about`` is a number near the mean margin.

        Those of parts of the rows, added up, are those of all.
        """
        centred = margins - about
        short = np.maximum(0.0, 1.0 - margins)
        return {
            "weight": weights.sum(),
            "centred": weights @ centred,
            "square": weights @ centred**2,
            "loss": self.C * (weights @ short) if np.isfinite(self.C) else (np.inf if short.any() else 0.0),
        }

    def error_sums(self, margins, errors, weights):
        """Return the further sums that tell what margins that may be off by so much do to the objective."""
        rough = 0.0 if self.hard else self.C * (weights @ np.maximum(0.0, 1.0 - margins + errors))
        return {"rough": rough, "errors": weights @ errors, "squared_errors": weights @ errors**2}

    def error_of(self, sums):
        r"""Return by how much the objective of the sums can be too small for what the margins' errors hide.

        A hinge is largest at the least margin, the mean is off by at most the mean error, and a standard deviation
        :math:`\sigma` by at most the errors' root mean square :math:`\varepsilon`.
        """
        total = sums["weight"]
        spread, off = np.sqrt(sums["square"] / total), np.sqrt(sums["squared_errors"] / total)
        variance = 2.0 * self.lambda1 * off * (2.0 * spread + off)
        return sums["rough"] - sums["loss"] + self.lambda2 * sums["errors"] / total + variance

    def at_zero(self, total):
        """Return what weights of zero cost, for rows of this total weight."""
        return self.C * total

    def value_of(self, square_norm, sums, about):
        """Return the objective at a point with these sums."""
        mean, variance = self._moments(sums, about)
        return 0.5 * square_norm + 2.0 * self.lambda1 * variance - self.lambda2 * mean + sums["loss"]

    @staticmethod
    def _moments(sums, about):
        """Return mean and variance of the margins."""
        off = sums["centred"] / sums["weight"]
        return about + off, max(0.0, sums["square"] / sums["weight"] - off * off)

    def feasible_scale(self, square_norm, margins, weights):
        """Return the factor of the weights with which a hard margin is kept at the least objective."""
        mean = (weights @ margins) / weights.sum()
        return self.feasible_scale_of(square_norm, margins.min(), self.sums(margins, weights, mean), mean)

    def feasible_scale_of(self, square_norm, least, sums, about):
        r"""Return the factor of :meth:`feasible_scale` from the least margin and :meth:`sums`.

        With all margins positive, :math:`tw` is feasible from :math:`t = 1 / \min z` on. Its objective is the parabola
        :math:`\tfrac12 t^2 (\|w\|^2 + 4 \lambda_1 \mathrm{Var}(z)) - t \lambda_2 \bar z`, whose vertex may lie beyond.
        """
        mean, variance = self._moments(sums, about)
        vertex = self.lambda2 * mean / (square_norm + 4.0 * self.lambda1 * variance)
        return max(1.0 / least, vertex)

    def slope(self, margins, weights):
        """Return the derivative of the objective by each margin; at the kink of the hinge, that of its flat side."""
        share = weights / weights.sum()
        hinge = np.where(margins < 1.0, self.C * weights, 0.0)
        return 4.0 * self.lambda1 * share * (margins - share @ margins) - self.lambda2 * share - hinge

    def dual_coef(self, beta, margins, weights):
        """Return the dual point ``a`` that multipliers ``beta`` make at these margins."""
        total = weights.sum()
        centred = margins - (weights @ margins) / total
        centred -= (weights @ centred) / total  # a mean off zero by rounding is no dual point, and lambda1 magnifies it
        return self.dual_coef_of_some(beta, centred, weights, total)

    def dual_coef_of_some(self, beta, centred, weights, total):
        """Return the dual point of some rows: margins less the mean margin of all, whose weight is ``total``."""
        return beta + weights * ((self.lambda2 - 4.0 * self.lambda1 * centred) / total)

    def dual_sizes(self, beta, centred, weights, total):
        """Return the sum of the absolute values that each entry of :meth:`dual_coef_of_some` is made of."""
        return beta + weights * ((self.lambda2 + 4.0 * self.lambda1 * np.abs(centred)) / total)

    def multipliers(self, beta, margins, weights):
        """Return the multipliers within their bounds."""
        return np.clip(beta, 0.0, self.upper(weights))

    def misfit(self, away, weights):
        """Return what a dual point costs that was made at margins which are this far away."""
        share = weights / weights.sum()
        return 2.0 * self.lambda1 * (share @ (away - share @ away) ** 2)

    def steepest(self, margins, errors, weights):
        """Return the largest absolute slope of each row within the errors of its margin; hard margins are kept."""
        share = weights / weights.sum()
        smooth = 4.0 * self.lambda1 * share * (np.abs(margins - share @ margins) + errors + share @ errors)
        hinge = np.zeros(len(margins)) if self.hard else np.where(margins - errors < 1.0, self.C * weights, 0.0)
        return smooth + self.lambda2 * share + hinge

    def complementarity(self, beta, margins, weights, errors=None):
        """Return the certificate's sum: how far ``beta`` and the margins are from belonging together.

        With ``errors`` it is the largest for margins that may be off by so much.
        """
        if errors is None:
            return self._row_gaps(beta, margins, weights).sum()
        worst = np.maximum(*(self._row_gaps(beta, margins + shift, weights) for shift in (-errors, errors)))
        if not self.hard:  # bounds of the multipliers are rounded products
            worst += 2.0 * _UNIT * self.upper(weights) * np.maximum(0.0, 1.0 - margins + errors)
        return worst.sum() + 2.0 * self.lambda1 * (weights @ errors**2) / weights.sum()

    def _row_gaps(self, beta, margins, weights):
        short = 1.0 - margins
        if self.hard:
            return -beta * short
        return (self.C * weights - beta) * np.maximum(0.0, short) + beta * np.maximum(0.0, -short)

    @staticmethod
    def coordinate_step(objective, base, square, weight, total, mean):
        """Return dual variable and multiplier of one row after an exact step; see :func:`coordinate_step`."""
        quadratic = 4.0 * objective.lambda1 * weight / total
        upper = objective.C * weight
        linear = objective.lambda2 * weight / total + quadratic * mean
        stiff = 1.0 + square * quadratic
        free = (base + square * linear) / stiff  # the margin without a multiplier
        if free >= 1.0:
            beta = 0.0
        elif free + square * upper / stiff <= 1.0:
            beta = upper
        else:
            beta = (1.0 - free) * stiff / square
        return beta + linear - quadratic * (free + square * beta / stiff), beta


class _PiecewiseQuadratic:
    """What follows for a loss with a continuous slope: the dual point is the negative slope, there is no choice."""

    hard = False  # small margins are priced, not forbidden
    coupled = False  # the slope of a row's loss depends on its own margin only
    floor = 0.0  # what the objective is at least, wherever

    def value(self, square_norm, margins, weights):
        """Return the objective at a point with these margins."""
        return 0.5 * square_norm + self.losses(margins, weights).sum()

    def sums(self, margins, weights, about):
        """Return the sums over rows that the value consists of; the mean margin does not matter."""
        return {"loss": self.losses(margins, weights).sum()}

    def error_sums(self, margins, errors, weights):
        """Return the further sum that tells what margins that may be off by so much do to the objective."""
        return {"rough": np.maximum(*(self.losses(margins + e, weights) for e in (-errors, errors))).sum()}

    def value_of(self, square_norm, sums, about):
        """Return the objective at a point with these sums."""
        return 0.5 * square_norm + sums["loss"]

    def error_of(self, sums):
        """Return by how much the objective of the sums can be too small for what the margins' errors hide."""
        return sums["rough"] - sums["loss"]

    def at_zero(self, total):
        """Return what weights of zero cost, for rows of this total weight."""
        return self.losses(np.zeros(1), np.array([total]))[0]

    def upper(self, weights):
        """Return the largest value each row's multiplier can take."""
        return np.full(len(weights), np.inf)

    def dual_rate(self, total):
        """Return how far the dual variable of a row without a loss moves with its margin: not at all."""
        return 0.0

    def dual_coef(self, beta, margins, weights):
        """Return the dual point that belongs to ``beta``: for this objective ``beta`` itself."""
        return beta

    def dual_coef_of_some(self, beta, centred, weights, total):
        """Return the dual point of some rows: ``beta`` itself."""
        return beta

    def dual_sizes(self, beta, centred, weights, total):
        """Return the absolute values of the dual point's entries."""
        return np.abs(beta)

    def multipliers(self, beta, margins, weights):
        """Return the multipliers: any are allowed, and those of a certificate prove more than the margins' own."""
        return beta

    def misfit(self, away, weights):
        """Return what a dual point costs that was made at margins which are this far away: nothing beyond its sum."""
        return 0.0

    def steepest(self, margins, errors, weights):
        """Return the largest absolute slope of each row within the errors of its margin."""
        return np.maximum(*(np.abs(self.slope(margins + shift, weights)) for shift in (-errors, errors)))

    def complementarity(self, beta, margins, weights, errors=None):
        """Return the certificate's sum: how far ``beta`` and the margins are from belonging together.

        With ``errors`` it is the largest for margins that may be off by so much.
        """
        if errors is None:
            return self._row_gaps(beta, margins, weights).sum()
        worst = np.maximum(*(self._row_gaps(beta, margins + shift, weights) for shift in (-errors, errors)))
        terms = self.losses(margins, weights), self.conjugates(beta, weights), beta * margins
        return (worst + 4.0 * _UNIT * sum(map(np.abs, terms))).sum()

    def _row_gaps(self, beta, margins, weights):
        gaps = self.losses(margins, weights) + self.conjugates(beta, weights) + beta * margins
        return np.maximum(gaps, 0.0)

    @staticmethod
    def coordinate_step(objective, base, square, weight, total, mean):
        """Return dual variable and multiplier of one row after an exact step; see :func:`coordinate_step`.

        The dual variable is the root of an increasing, piecewise linear function, of which Newton's method reaches the
        right piece in a step or two.
        """
        a = 0.0
        for _ in range(20):
            slope, curvature = row_slope(objective, base + square * a, weight, total)
            change = (a + slope) / (1.0 + square * curvature)
            a -= change
            if abs(change) <= 1e-14 * abs(a):
                break
        return a, a


def piecewise_quadratic(objective):
    """Give an objective with a piecewise linear slope all that follows from its own five formulas.

    These are ``losses``, ``slope`` and ``curvature`` of each row, ``conjugates``, and the compiled ``row_slope``. What
    the class has of its own stays.
    """
    for name, member in vars(_PiecewiseQuadratic).items():
        if not name.startswith("__") and name not in vars(objective):
            setattr(objective, name, member)
    return objective


class Band(NamedTuple):
    """A loss that is zero within a band of margins and quadratic on either side of it."""

    low: float
    high: float
    below: np.ndarray  # price of a unit squared below the band, one per row
    above: np.ndarray


def of_some(formula, values, weights, total):
    """Return what an objective's formula for each row gives for some of the rows, whose weights make ``total`` in all.

    The formulas know the total as the sum of the weights they are given; the weight of the other rows stands in one
    more row, whose result is left out.
    """
    others = total - weights.sum()
    if others <= 0.0:
        return formula(values, weights)
    return formula(np.append(values, 0.0), np.append(weights, others))[:-1]


@piecewise_quadratic
class ODM(NamedTuple):
    r"""Optimal margin distribution machine: every margin within :math:`[1 - \theta, 1 + \theta]`.

    .. math:: \varphi(z) = \frac{\lambda}{M (1-\theta)^2} \sum_i s_i (\xi_i^2 + \mu \epsilon_i^2), \quad
              \xi_i = \max(0, 1 - \theta - z_i), \; \epsilon_i = \max(0, z_i - 1 - \theta)

    The loss is a mean over samples. It has a continuous slope; at the optimum the dual point is the negative slope:
    ``a_i`` is positive below the band, negative above it and zero within.
    """

    lam: float  # price of leaving the band
    mu: float  # price above the band relative to below, in (0, 1]
    theta: float  # half-width of the free band, in [0, 1)

    def band(self, weights):
        """Return where the free band begins and ends, and what a unit squared below and above it costs, row by row.

        This is all that the joint problem of several classes needs to know, there of the margin over the runner-up.
        """
        below = self.prices(weights)
        return Band(1.0 - self.theta, 1.0 + self.theta, below, self.mu * below)

    def prices(self, weights):
        """Return what one unit of squared shortfall costs, row by row."""
        return self.lam / (weights.sum() * (1.0 - self.theta) ** 2) * weights

    def deviations(self, margins):
        """Return how far each margin is below the band, and how far above it."""
        return np.maximum(0.0, 1.0 - self.theta - margins), np.maximum(0.0, margins - 1.0 - self.theta)

    def losses(self, margins, weights):
        """Return the loss of each row."""
        short, beyond = self.deviations(margins)
        return self.prices(weights) * (short**2 + self.mu * beyond**2)

    def conjugates(self, beta, weights):
        """Return the conjugate of each row's loss at ``-beta``."""
        side = np.where(beta < 0.0, self.mu, 1.0)
        edge = np.where(beta < 0.0, 1.0 + self.theta, 1.0 - self.theta)
        return beta * (0.25 * beta / (self.prices(weights) * side) - edge)

    def slope(self, margins, weights):
        """Return the derivative of the objective by each margin."""
        short, beyond = self.deviations(margins)
        return 2.0 * self.prices(weights) * (self.mu * beyond - short)

    def curvature(self, margins, weights):
        """Return the second derivative by each margin; zero within the band and on its edges."""
        low, high = margins < 1.0 - self.theta, margins > 1.0 + self.theta
        return 2.0 * self.prices(weights) * (low + self.mu * high)

    @staticmethod
    def row_slope(objective, margin, weight, total):
        """Return slope and curvature of one row's loss."""
        price = 2.0 * objective.lam * weight / (total * (1.0 - objective.theta) ** 2)
        if margin < 1.0 - objective.theta:
            return price * (margin - 1.0 + objective.theta), price
        if margin > 1.0 + objective.theta:
            return objective.mu * price * (margin - 1.0 - objective.theta), objective.mu * price
        return 0.0, 0.0

    @staticmethod
    def coordinate_step(objective, base, square, weight, total, mean):
        """Return dual variable and multiplier of one row after an exact step; see :func:`coordinate_step`."""
        compliance = 0.5 * total * (1.0 - objective.theta) ** 2 / (objective.lam * weight)
        a = 0.0
        if base < 1.0 - objective.theta:
            a = (1.0 - objective.theta - base) / (square + compliance)
        elif base > 1.0 + objective.theta:
            a = (1.0 + objective.theta - base) / (square + compliance / objective.mu)
        return a, a


@piecewise_quadratic
class LeastSquares(NamedTuple):
    r"""Least squares support vector machine: every margin is asked to be exactly 1.

    .. math:: \varphi(z) = \frac C2 \sum_i s_i (1 - z_i)^2
    """

    C: float

    @property
    def ridge(self):
        """What the price adds to the diagonal of the scatter matrix of the rows, in units of that matrix."""
        return 1.0 / self.C

    def prices(self, weights):
        """Return the curvature of each row's loss."""
        return self.C * weights

    def losses(self, margins, weights):
        """Return the loss of each row."""
        return 0.5 * self.prices(weights) * (1.0 - margins) ** 2

    def conjugates(self, beta, weights):
        """Return the conjugate of each row's loss at ``-beta``."""
        return beta * (0.5 * beta / self.prices(weights) - 1.0)

    def slope(self, margins, weights):
        """Return the derivative of the objective by each margin."""
        return self.prices(weights) * (margins - 1.0)

    def curvature(self, margins, weights):
        """Return the second derivative by each margin."""
        return self.prices(weights)

    @staticmethod
    def row_slope(objective, margin, weight, total):
        """Return slope and curvature of one row's loss."""
        price = objective.C * weight
        return price * (margin - 1.0), price


class SemiVariance(NamedTuple):
    r"""MSVMAv's :math:`SV/\bar z^2`, :math:`SV = \frac1M \sum_i s_i \max(0, \bar z - z_i)^2`, lowered round by round.

    A round (:mod:`margindist.solvers.semivariance`) minimises a model of it around the last w; the two prices are
    those of the way to go.
    """

    alpha: float  # the larger, the shorter the steps for the mean margin
    beta: float  # the larger, the shorter the steps for the semi-variance
    metric: Any = 1.0  # how the length of a step is measured: a number, or one per column

    def value(self, margins, weights):
        """Return the semi-variance relative to the squared mean margin; infinite without a mean."""
        mean = weights @ margins / weights.sum()
        if mean == 0.0:
            return np.inf
        return weights @ np.maximum(0.0, mean - margins) ** 2 / (weights.sum() * mean**2)

    def push(self, weights):
        """Return the factor of the sum of all rows in a step."""
        return 0.5 / (self.alpha * weights.sum())

    def prox(self, weights):
        """Return the price of a squared step, in the metric."""
        return self.beta * weights.sum()


class NormalisedCost(NamedTuple):
    r"""MDO's cost of normalised margins, :math:`e^{-\alpha\nu^2}` right of 0 and :math:`e^{-\beta\nu}` left of it."""

    alpha: float
    beta: float

    @staticmethod
    def row_cost(objective, margin):
        """Return cost and slope at one row's normalised margin."""
        if margin >= 0.0:
            cost = np.exp(-objective.alpha * margin * margin)
            return cost, -2.0 * objective.alpha * margin * cost
        cost = np.exp(-objective.beta * margin)
        return cost, -objective.beta * cost


class HullDistance(NamedTuple):
    r"""KOMD's squared distance of two softened hulls, :math:`\gamma^T Q \gamma + \lambda \sum_i \gamma_i^2 / s_i`.

    It is a function of a distribution :math:`\gamma` on each class; Q has the inner products of the signed rows.
    """

    lam: float  # price of uneven distributions

    def value(self, gamma, image, weights):
        """Return the objective; ``image`` is Qγ."""
        return gamma @ image + self.lam * (gamma @ (gamma / weights))

    def slope(self, gamma, image, weights):
        """Return the derivative by each γ."""
        return 2.0 * (image + self.lam * gamma / weights)

    def curvature(self, weights):
        """Return what the price of uneven distributions adds to the diagonal of 2Q."""
        return 2.0 * self.lam / weights


# Compiled code has no methods: it finds an objective's static functions by the objective's type.


def coordinate_step(objective, base, square, weight, total, mean):
    """Return dual variable and multiplier of one row after an exact step (see the coordinate descent solver)."""
    return objective.coordinate_step(objective, base, square, weight, total, mean)


@overload(coordinate_step)
def _compiled_step(objective, base, square, weight, total, mean):
    return objective.instance_class.coordinate_step


def row_slope(objective, margin, weight, total):
    """Return the slope and the curvature of one row's loss; for objectives with a piecewise linear slope."""
    return objective.row_slope(objective, margin, weight, total)


@overload(row_slope)
def _compiled_slope(objective, margin, weight, total):
    return objective.instance_class.row_slope


def row_cost(objective, margin):
    """Return the cost and the slope at one row's normalised margin."""
    return objective.row_cost(objective, margin)


@overload(row_cost)
def _compiled_cost(objective, margin):
    return objective.instance_class.row_cost


def compiled_for(objective, function):
    """Return a compiled function that takes this objective, for one of another package without Numba's cache.

    The cache on disk names the classes of the arguments; a process that cannot import one of them could load nothing.
    """
    return function if type(objective).__module__ == __name__ else _without_cache(function)


@functools.cache
def _without_cache(function):
    return njit(nogil=True)(function.py_func)
