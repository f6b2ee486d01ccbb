"""Tests of significance: those the papers used, and those people expect today.

A score that is not a number makes a test's difference and p-value so too; such a test is neither won nor lost, and is
not counted among the tests.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

_DIGITS = 10  # digits after which scores count as equal, such as means of the same numbers in another order


class Comparison(NamedTuple):
    """The mean difference of two methods' scores, and the probability of one as large if there were none."""

    difference: float
    p_value: float

    def verdict(self, alpha: float = 0.05) -> str:
        """Return ``"win"``, ``"tie"`` or ``"loss"`` of the first method at level `alpha`."""
        if not self.p_value < alpha:  # not a number where there is too little to test
            return "tie"
        return "win" if self.difference > 0 else "loss"


_UNTESTED = Comparison(float("nan"), float("nan"))


def paired_t(first: ArrayLike, second: ArrayLike) -> Comparison:
    """Compare scores on the same splits by Student's paired t-test (LDM, mcODM, MSVMAv).

    Splits of one data set share rows, so their scores are not independent and this test finds differences too easily;
    `corrected_resampled_t` allows for that.
    """
    return _t_of_differences(first, second, lambda n: 1.0 / n)


def corrected_resampled_t(first: ArrayLike, second: ArrayLike, *, test_share: float) -> Comparison:
    r"""Compare scores on the same random splits, allowing for the rows that splits share (Nadeau and Bengio, 2003).

    The variance of the mean difference over `n` splits is taken as
    :math:`(1/n + \rho/(1 - \rho))` times the variance of a difference, with `test_share` :math:`\rho`.
    """
    return _t_of_differences(first, second, lambda n: 1.0 / n + test_share / (1.0 - test_share))


def corrected_interval(
    first: ArrayLike, second: ArrayLike, *, test_share: float, level: float = 0.95
) -> tuple[float, float]:
    """Return the ends of the interval around the mean difference that belongs to `corrected_resampled_t`."""
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    n = differences.size
    error = np.sqrt(differences.var(ddof=1) * (1.0 / n + test_share / (1.0 - test_share)))
    half = float(stats.t.ppf(0.5 + level / 2.0, n - 1) * error)
    return float(differences.mean()) - half, float(differences.mean()) + half


def _t_of_differences(first, second, scale):
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    n = differences.size
    if n == 0:
        return _UNTESTED
    mean = float(differences.mean())
    if n == 1:
        return Comparison(mean, float("nan"))
    spread = np.sqrt(differences.var(ddof=1) * scale(n))
    if spread == 0.0:
        return _without_spread(mean)
    return Comparison(mean, float(2.0 * stats.t.sf(abs(mean) / spread, n - 1)))


def _without_spread(difference):
    """Compare methods whose scores do not vary: any difference is certain."""
    if np.isnan(difference):
        return _UNTESTED
    return Comparison(difference, 1.0 if difference == 0.0 else 0.0)


def welch(
    first: tuple[float, float, int],
    second: tuple[float, float, int],
) -> Comparison:
    """Compare two means by Welch's test (MAMC), each given as (mean, standard deviation, number of splits)."""
    (mean1, std1, n1), (mean2, std2, n2) = first, second
    if std1 == std2 == 0.0:
        return _without_spread(mean1 - mean2)
    return Comparison(
        mean1 - mean2, float(stats.ttest_ind_from_stats(mean1, std1, n1, mean2, std2, n2, equal_var=False).pvalue)
    )


def win_tie_loss(comparisons: Sequence[Comparison], alpha: float = 0.05) -> tuple[int, int, int]:
    """Count the wins, ties and losses of the first method over data sets."""
    verdicts = [comparison.verdict(alpha) for comparison in comparisons if not np.isnan(comparison.p_value)]
    return verdicts.count("win"), verdicts.count("tie"), verdicts.count("loss")


def wilcoxon(first: ArrayLike, second: ArrayLike) -> Comparison:
    """Compare two methods over data sets by Wilcoxon's signed-rank test (Demsar, 2006), a mean score per data set."""
    differences = np.round(np.asarray(first, dtype=float) - np.asarray(second, dtype=float), _DIGITS)
    if differences.size == 0:
        return _UNTESTED
    if not differences.any():
        return Comparison(0.0, 1.0)
    return Comparison(float(differences.mean()), float(stats.wilcoxon(differences).pvalue))


class Posterior(NamedTuple):
    """Probabilities that the first of two methods is worse, practically alike, and better on the next data set."""

    worse: float
    alike: float
    better: float


def bayesian_signed_rank(
    first: ArrayLike, second: ArrayLike, *, alike: float = 0.01, n_draws: int = 20_000, random_state: int = 0
) -> Posterior:
    """Compare two methods over data sets by the Bayesian signed-rank test (Benavoli et al., 2014 and 2017).

    Differences are drawn with weights of a Dirichlet distribution, to which one more data set without a difference is
    added, as a prior. Each draw belongs to the region in which most means of two differences lie: below ``-alike``,
    above ``alike``, or between, the region of practical equivalence.

    Parameters
    ----------
    first, second : array-like of shape (n_datasets,)
        Mean scores.
    alike : float
        Half the width of the region of practical equivalence.
    n_draws : int
    random_state : int

    Examples
    --------
    >>> bayesian_signed_rank([0.9, 0.8, 0.7], [0.9, 0.8, 0.7], alike=0.01)
    Posterior(worse=0.0, alike=1.0, better=0.0)
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if differences.size == 0 or np.isnan(differences).any():
        return Posterior(*3 * [float("nan")])
    differences = np.append(0.0, np.round(differences, _DIGITS))
    means = (differences[:, None] + differences) / 2.0
    weights = np.random.default_rng(random_state).dirichlet(np.ones(differences.size), n_draws)
    worse, better = ((weights @ region * weights).sum(axis=1) for region in (means < -alike, means > alike))
    winners = np.argmax([worse, 1.0 - worse - better, better], axis=0)
    return Posterior(*(np.bincount(winners, minlength=3) / n_draws).tolist())


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of values and the ends of Student's interval around it; not a number where one value is all."""
    values = np.asarray(values, dtype=float)
    mean = float(values.mean()) if values.size else float("nan")
    if values.size < 2:
        return mean, float("nan"), float("nan")
    half = float(stats.t.ppf(0.5 + level / 2.0, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return mean, mean - half, mean + half


def holm(p_values: ArrayLike) -> np.ndarray:
    """Return p-values adjusted for the number of tests by Holm's step-down rule; each may be held against alpha.

    A p-value that is not a number stands for a test that could not be made: it stays so and does not count.
    """
    p_values = np.asarray(p_values, dtype=float)
    made = np.flatnonzero(~np.isnan(p_values))
    order = made[np.argsort(p_values[made])]
    factors = np.arange(order.size, 0, -1)
    adjusted = np.full(p_values.shape, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted


def average_ranks(scores: ArrayLike) -> np.ndarray:
    """Return each method's rank averaged over data sets; `scores` has a row per data set, and 1 is the best rank."""
    return stats.rankdata(-np.round(np.asarray(scores, dtype=float), _DIGITS), axis=1).mean(axis=0)


def friedman(scores: ArrayLike) -> tuple[float, float]:
    """Test whether all methods are alike: Friedman's statistic in Iman and Davenport's form, and its p-value.

    `scores` has a row per data set and a column per method. Friedman's chi-square is corrected for ties.
    """
    scores = np.asarray(scores, dtype=float)
    n, k = scores.shape
    if n < 2 or k < 3:
        raise ValueError(f"friedman: needs two data sets and three methods or more, got {n} and {k}.")
    scores = np.round(scores, _DIGITS)
    if np.all(scores == scores[:, :1]):
        return 0.0, 1.0
    chi = float(stats.friedmanchisquare(*scores.T).statistic)
    rest = n * (k - 1) - chi
    if rest <= 1e-9 * chi:  # every data set ranks the methods alike
        return float("inf"), 0.0
    statistic = (n - 1) * chi / rest
    return float(statistic), float(stats.f.sf(statistic, k - 1, (k - 1) * (n - 1)))


def critical_difference(n_methods: int, n_datasets: int, alpha: float = 0.05) -> float:
    """Return the difference of average ranks that two methods must exceed to differ by Nemenyi's test."""
    q = stats.studentized_range.ppf(1.0 - alpha, n_methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_datasets)))
