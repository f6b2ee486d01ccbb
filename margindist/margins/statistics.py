"""A margin distribution in a few numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MarginStatistics:
    """What a margin distribution comes down to; made by :func:`margin_statistics`.

    Parameters
    ----------
    minimum : float
        Smallest margin.
    mean : float
        Mean margin.
    median : float
        Median margin.
    variance : float
        Population variance: the mean square distance from the mean.
    semi_variance : float
        The part of the variance that lies below the mean: the mean of ``max(0, mean - margin)**2``.
    ratio : float
        Standard deviation over mean, the same for any length of the weights; negative if the mean is, nan if it is 0.
    quantiles : tuple of (level, value) pairs
        Quantiles, by their levels.
    share_below_zero : float
        Share of the samples with a negative margin.
    n_samples : float
        Number of samples, or the sum of their weights.
    """

    minimum: float
    mean: float
    median: float
    variance: float
    semi_variance: float
    ratio: float
    quantiles: tuple[tuple[float, float], ...]
    share_below_zero: float
    n_samples: float

    def as_dict(self) -> dict[str, float]:
        """Return name and value of every statistic, each quantile under a name of its own.

        Returns
        -------
        dict
            Keys are the attributes' names, but ``"quantile_0.05"`` and so on for the quantiles.
        """
        values = dict(vars(self))
        levels = {f"quantile_{level:g}": value for level, value in values.pop("quantiles")}
        share, count = values.pop("share_below_zero"), values.pop("n_samples")
        return {**values, **levels, "share_below_zero": share, "n_samples": count}

    def to_frame(self, name: object = 0) -> "pd.DataFrame":
        """Return a data frame of one row, ready to be stacked with others.

        Parameters
        ----------
        name : object, default=0
            Label of the row.

        Returns
        -------
        pandas.DataFrame of shape (1, n_statistics)
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas; as_dict works without it.") from error
        return pd.DataFrame([self.as_dict()], index=[name])

    def __repr__(self) -> str:
        values = self.as_dict()
        count = values.pop("n_samples")
        width = max(map(len, values))
        lines = [f"    {key.replace('_', ' '):<{width}}  {value:>10.4g}" for key, value in values.items()]
        return "\n".join([f"MarginStatistics of {count:g} samples", *lines])


def margin_statistics(
    margins: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    quantiles: Iterable[float] = (0.05, 0.25, 0.75, 0.95),
) -> MarginStatistics:
    """Describe a margin distribution.

    Parameters
    ----------
    margins : array-like of shape (n_samples,)
        Margins, from :func:`margins` or :func:`margins_from_decision`.
    sample_weight : array-like of shape (n_samples,), default=None
        How often each sample counts: weight 2 is the sample twice, weight 0 its absence.
    quantiles : iterable of float, default=(0.05, 0.25, 0.75, 0.95)
        Levels between 0 and 1. A quantile is the smallest margin that at least this share of the samples does not
        exceed, or the middle between it and the next where the share is exact, as for the median of an even number.

    Returns
    -------
    MarginStatistics

    Examples
    --------
    >>> from margindist.margins import margin_statistics
    >>> margin_statistics([-1.0, 1.0, 2.0, 2.0], quantiles=[0.25])
    MarginStatistics of 4 samples
        minimum                   -1
        mean                       1
        median                   1.5
        variance                 1.5
        semi variance              1
        ratio                  1.225
        quantile 0.25              0
        share below zero        0.25
    """
    z = column_or_1d(check_array(margins, ensure_2d=False, dtype=np.float64, input_name="margins"))
    weights = _checked_weights(sample_weight, z)
    levels = checked_levels(quantiles)
    z, weights = z[weights > 0], weights[weights > 0]
    order = np.argsort(z, kind="stable")
    z, weights = z[order], weights[order]
    total = weights.sum()
    share = weights / total
    mean = float(share @ z)
    *values, median = _quantiles(z, weights, [*levels, 0.5])
    variance = float(share @ (z - mean) ** 2)
    return MarginStatistics(
        minimum=float(z[0]),
        mean=mean,
        median=median,
        variance=variance,
        ratio=spread_ratio(variance, mean),
        semi_variance=float(share @ np.maximum(0.0, mean - z) ** 2),
        quantiles=tuple(zip(levels, values, strict=True)),
        share_below_zero=float(share @ (z < 0.0)),
        n_samples=len(z) if sample_weight is None else float(total),
    )


def spread_ratio(variance, mean):
    """Return standard deviation over mean."""
    return math.sqrt(variance) / mean if mean else math.nan


def checked_levels(quantiles):
    """Return levels as floats; raise an error if they are no levels."""
    levels = [float(level) for level in quantiles]
    if not all(0.0 <= level <= 1.0 for level in levels):
        raise ValueError(f"margin_statistics: quantiles must be levels from 0 to 1, got {levels}.")
    return levels


def _checked_weights(sample_weight, z):
    if sample_weight is None:
        return np.ones(len(z))
    weights = column_or_1d(check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"))
    check_consistent_length(z, weights)
    if weights.min() < 0 or not weights.any():
        raise ValueError("margins: sample weights must not be negative, and at least one must be positive.")
    return weights


def _quantiles(z, weights, levels):
    """Return quantiles of sorted values: weight 2 counts twice, and the scale of the weights does not matter."""
    reached = np.cumsum(weights)
    rounding = 1e-12 * reached[-1]
    wanted = np.asarray(levels) * reached[-1]
    last = len(z) - 1
    lower = np.minimum(np.searchsorted(reached, wanted - rounding), last)
    upper = np.minimum(np.searchsorted(reached, wanted + rounding, side="right"), last)
    return (0.5 * (z[lower] + z[upper])).tolist()
