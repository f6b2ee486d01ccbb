"""Margins of rows in partitions: computed where the rows are, and described without bringing them together."""

import warnings
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from margindist.margins.decision import margins
from margindist.margins.statistics import MarginStatistics, checked_levels, spread_ratio
from margindist.spaces.partitions import Encoding, Round
from margindist.spaces.rows import as_matrix

_BINS = 1 << 12  # of every bin that holds a quantile, per round
_FEW = 1 << 14  # margins in a bin that are fetched and sorted
_ROUNDING = 1e-12  # of the sum of all weights: shares this close to a level meet it


class PartitionMargins:
    """Margins of a fitted classifier on data in partitions: exact statistics and histograms, in one pass.

    Every partition computes its margins once and keeps them (8 bytes per row); what travels are sums, counts and, for
    quantiles, the few margins around each. Minimum, mean, variances and shares are those of :func:`margin_statistics`
    up to rounding. Quantiles are the same numbers: counts in bins say in which bin a quantile is, that bin is divided
    anew until it holds few margins, and these are sorted.

    Parameters
    ----------
    estimator : fitted classifier
        Anything that :func:`margins` takes, for rows as the partitions have them.
    rows : Partitions or other data in partitions
        Rows with labels, and weights where there are any.
    y : array-like or collection, default=None
        Labels, where they are not part of the data.
    sample_weight : array-like or collection, default=None
        How often each row counts, likewise.
    geometric : bool, default=False
        Take geometric margins, see :func:`margins`.

    See Also
    --------
    margin_statistics : The same for margins in memory.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from margindist import LDMClassifier
    >>> from margindist.datasets import Partitions
    >>> from margindist.margins import PartitionMargins, margin_statistics, margins
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LDMClassifier().fit(X, y)
    >>> with PartitionMargins(model, Partitions.from_arrays(X, y, rows_per_partition=100)) as found:
    ...     median = found.statistics().median
    >>> median == margin_statistics(margins(model, X, y)).median
    True
    """

    def __init__(
        self,
        estimator: Any,
        rows: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        geometric: bool = False,
    ):
        self._place = rows.place(y, sample_weight)
        classes = np.asarray(estimator.classes_)
        try:
            self._place.encode(Encoding(classes, np.ones(len(classes)), fit_intercept=False))
            self._place.open(_Margins, [(estimator, geometric)])
            self._found = self._ask("moments")
        except BaseException:
            self.close()
            raise
        self._total = self._found["weight"]
        self._mean = self._found["weighted"] / self._total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the margins and of the rows' place."""
        self._place.close()

    def statistics(self, quantiles: Iterable[float] = (0.05, 0.25, 0.75, 0.95)) -> MarginStatistics:
        """Describe the margin distribution.

        Parameters
        ----------
        quantiles : iterable of float, default=(0.05, 0.25, 0.75, 0.95)
            Levels between 0 and 1, as for :func:`margin_statistics`.

        Returns
        -------
        MarginStatistics
        """
        levels = checked_levels(quantiles)
        spread = self._ask("spread", self._mean)
        *values, median = self._quantiles([*levels, 0.5])
        uniform = self._found["heaviest_max"] == self._found["lightest_min"] == 1.0
        variance = float(spread["square"] / self._total)
        return MarginStatistics(
            minimum=float(self._found["margin_min"]),
            mean=float(self._mean),
            median=median,
            variance=variance,
            ratio=spread_ratio(variance, float(self._mean)),
            semi_variance=float(spread["below"] / self._total),
            quantiles=tuple(zip(levels, values, strict=True)),
            share_below_zero=float(self._found["negative"] / self._total),
            n_samples=int(self._found["rows"]) if uniform else float(self._total),
        )

    def histogram(self, bins: int | ArrayLike = 40) -> tuple[np.ndarray, np.ndarray]:
        """Return the share of the rows in each bin, and the edges of the bins, as :func:`numpy.histogram` does.

        Parameters
        ----------
        bins : int or array-like, default=40
            Number of bins between the least and the largest margin, or their edges.

        Returns
        -------
        tuple of ndarray of shape (n_bins,) and ndarray of shape (n_bins + 1,)
        """
        ends = float(self._found["margin_min"]), float(self._found["margin_max"])
        edges = np.histogram_bin_edges(np.array(ends), bins)
        return self._ask("histogram", edges)["weights"] / self._total, edges

    def _ask(self, name, *args):
        (record,) = self._place.run([(0, Round(name, args))])
        return record

    def _quantiles(self, levels):
        """Return what sorting all margins would: the middle of the two places where the share passes a level."""
        targets = np.asarray(levels) * self._total
        slack = _ROUNDING * self._total
        lower, upper = self._passing(np.concatenate([targets - slack, targets + slack]))
        return (0.5 * (lower + upper)).tolist()

    def _passing(self, targets):
        """Return, for both halves of the targets, the first margin at which the weight reaches, or exceeds, them."""
        strict = np.repeat([False, True], len(targets) // 2)
        least, most = float(self._found["margin_min"]), float(self._found["margin_max"])
        lows = np.full(len(targets), np.nextafter(least, -np.inf))  # a target's margin is in (low, high]
        highs = np.full(len(targets), most)
        while True:
            edges = np.unique(np.concatenate([_divided(*ends) for ends in set(zip(lows.tolist(), highs.tolist()))]))
            counts = self._ask("counts", edges)
            reached = np.cumsum(counts["weights"])
            bins = [_first(reached, target, more) for target, more in zip(targets, strict, strict=True)]
            bins = np.minimum(bins, np.searchsorted(edges, most))
            lows, highs = edges[bins - 1], edges[bins]
            narrow = np.nextafter(lows, np.inf) >= highs
            if np.all(narrow | (counts["rows"][bins] <= _FEW)):
                break
        fetched = self._ask("fetch", np.unique(np.column_stack([lows, highs]), axis=0))
        z, weights = (np.concatenate(list(parts)) for parts in zip(*fetched["margins"], strict=True))
        order = np.argsort(z, kind="stable")
        z, weights = z[order], weights[order]
        result = highs.copy()
        for k in np.flatnonzero(~narrow):
            inside = slice(*np.searchsorted(z, [lows[k], highs[k]], side="right"))
            before = reached[bins[k] - 1]
            place = _first(before + np.cumsum(weights[inside]), targets[k], strict[k])
            result[k] = z[inside][min(place, inside.stop - inside.start - 1)]
        return np.split(result, 2)


def _first(reached, target, more):
    return int(np.searchsorted(reached, target, side="right" if more else "left"))


def _divided(low, high):
    """Return edges from low to high; where floats are few, all of them."""
    return np.unique(np.append(low + (high - low) * np.linspace(0.0, 1.0, _BINS)[:-1], high))


class _Margins:
    """The margins of a partition."""

    rowless = frozenset(("moments", "spread", "histogram", "counts", "fetch"))

    def __init__(self, rows, codes, weights, estimator, geometric):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            self._z = margins(estimator, as_matrix(rows), estimator.classes_[codes], geometric=geometric)
        self._weights = weights

    def moments(self, rows):
        """Return extremes, and sums over the rows."""
        return {
            "rows": len(self._z),
            "weight": self._weights.sum(),
            "weighted": self._weights @ self._z,
            "negative": self._weights @ (self._z < 0.0),
            "margin_min": self._z.min(),
            "margin_max": self._z.max(),
            "lightest_min": self._weights.min(),
            "heaviest_max": self._weights.max(),
        }

    def spread(self, rows, mean):
        """Return sums of squares around the mean."""
        return {
            "square": self._weights @ (self._z - mean) ** 2,
            "below": self._weights @ np.maximum(0.0, mean - self._z) ** 2,
        }

    def histogram(self, rows, edges):
        """Return the weights in bins that begin at their left edge, as NumPy's do."""
        return {"weights": np.histogram(self._z, edges, weights=self._weights)[0]}

    def counts(self, rows, edges):
        """Return weights and rows up to the first edge, in bins that end at their right edge, and beyond the last."""
        bins = np.searchsorted(edges, self._z)
        return {
            "weights": np.bincount(bins, weights=self._weights, minlength=len(edges) + 1),
            "rows": np.bincount(bins, minlength=len(edges) + 1),
        }

    def fetch(self, rows, spans):
        """Return the margins within some spans, but for spans of one number, and their weights."""
        wanted = np.zeros(len(self._z), dtype=bool)
        for low, high in spans:
            if np.nextafter(low, np.inf) < high:
                wanted |= (self._z > low) & (self._z <= high)
        return {"margins": [(self._z[wanted], self._weights[wanted])]}
