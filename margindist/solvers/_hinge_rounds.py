"""What solvers of hinge-type objectives have in common as rounds over partitions: margins, multipliers, certificate."""

from abc import ABC, abstractmethod

import numpy as np

from margindist.solvers._solution import SHORTER, Solution, Status, inseparable, relative
from margindist.spaces.partitions import Round
from margindist.spaces.rows import add_rows, column_sizes, n_columns, scores


class CertifiedPart(ABC):
    """A part that can say what its rows add to a certificate; the solver's own part says which multipliers they have.

    Parameters
    ----------
    targets, weights : ndarray
        Of the partition.
    objective : objective
        A hinge with mean and variance.
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

    @abstractmethod
    def _multipliers(self):
        """Return the multipliers of all rows."""

    def margins(self, rows, w, about):
        """Return what a hard margin's certificate must know first: the least margin, and the multipliers' sums."""
        z, beta = self._margins_of_all(rows, w), self._multipliers()
        return {
            **self._objective.sums(z, self._weights, about),
            "least_min": z.min(),
            "beta": beta.sum(),
            "pressure": add_rows(rows, self._everything, beta * self._given, np.zeros(len(w))),
            "sizes_max": column_sizes(rows),
        }

    def certify(self, rows, w, about, total, floor):
        """Return the sums of the certificate; margins below the floor are so by rounding."""
        z = np.maximum(self._margins_of_all(rows, w), floor)
        return self._certificate_sums(rows, z, self._multipliers(), about, total)

    def shortened(self, rows, w, about):
        """Return the sums that the objective's value consists of, for each part of the weights that may be tried."""
        z = self._margins_of_all(rows, w)
        found = [self._objective.sums(scale * z, self._weights, scale * about) for scale in SHORTER]
        return {name: np.array([sums[name] for sums in found]) for name in found[0]}

    def _certificate_sums(self, rows, z, beta, about, total):
        objective, weights = self._objective, self._weights
        scales = self._given * objective.dual_coef_of_some(beta, z - about, weights, total)
        return {
            **objective.sums(z, weights, about),
            "excess": objective.complementarity(beta, z, weights),
            "dual": add_rows(rows, self._everything, scales, np.zeros(n_columns(rows))),
        }


def certified(objective, w, mean_row, total):
    """Return weights with value and gap, from sums over all rows (as :func:`~margindist.solvers._solution.certify`).

    They are shorter where they would cost more than none.
    """
    floor = -np.inf
    if objective.hard:
        about = mean_row @ w
        seen = yield Round("margins", (w, about), w)
        if seen["least_min"] <= 0.0:
            proved = inseparable(seen["beta"], seen["pressure"], seen["sizes_max"])
            return Solution(w, None, np.inf, np.inf, status=Status.INFEASIBLE if proved else None)
        w = objective.feasible_scale_of(w @ w, seen["least_min"], seen, about) * w
        floor = 1.0
    sums = yield Round("certify", (w, mean_row @ w, total, floor), w)
    found, _ = from_sums(objective, w, sums, mean_row, total)
    nothing = objective.cap * total  # what weights of zero cost
    if objective.hard or found.objective <= nothing:  # not so if it is no number
        return found
    about = mean_row @ w
    seen = yield Round("shortened", (w, about), w)
    of_scales = [dict(zip(seen, values, strict=True)) for values in zip(*seen.values(), strict=True)]
    values = [objective.value_of(t * t * (w @ w), sums, t * about) for t, sums in zip(SHORTER, of_scales, strict=True)]
    best = np.argmin(np.nan_to_num(values, nan=np.inf))
    w = (SHORTER[best] if values[best] < nothing else 0.0) * w
    sums = yield Round("certify", (w, mean_row @ w, total, floor), w)
    found, _ = from_sums(objective, w, sums, mean_row, total)
    return found


def from_sums(objective, w, sums, mean_row, total):
    """Return weights with value and gap, and by how much the dual point's weights exceed them."""
    residual = sums["dual"] + objective.bend * (sums["centred"] / total) * mean_row - w
    value = objective.value_of(w @ w, sums, mean_row @ w)
    gap = 0.5 * (residual @ residual) + sums["excess"]
    return Solution(w, None, value, relative(gap, value)), residual
