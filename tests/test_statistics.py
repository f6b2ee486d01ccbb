"""Tests of significance against scipy, hand-computed cases and published examples."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from margindist.runs import statistics


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(0.8, 0.02, 30), rng.normal(0.79, 0.02, 30)


def test_paired_t_is_scipys(pair):
    comparison = statistics.paired_t(*pair)
    assert comparison.p_value == pytest.approx(stats.ttest_rel(*pair).pvalue)
    assert comparison.difference == pytest.approx(np.mean(pair[0]) - np.mean(pair[1]))


def test_the_correction_for_shared_rows_is_nadeau_and_bengios(pair):
    differences = pair[0] - pair[1]
    t = differences.mean() / np.sqrt((1 / 30 + 0.25) * differences.var(ddof=1))
    expected = 2 * stats.t.sf(abs(t), 29)
    assert statistics.corrected_resampled_t(*pair, test_share=0.2).p_value == pytest.approx(expected)


def test_welch_from_summaries_is_welch_from_samples(pair):
    first, second = ((sample.mean(), sample.std(ddof=1), sample.size) for sample in pair)
    assert statistics.welch(first, second).p_value == pytest.approx(stats.ttest_ind(*pair, equal_var=False).pvalue)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [([0.9] * 3, [0.9] * 3, "tie"), ([0.9] * 3, [0.8] * 3, "win"), ([0.8] * 3, [0.9] * 3, "loss"), ([1], [0], "tie")],
)
def test_differences_without_spread_and_single_splits(first, second, verdict):
    assert statistics.paired_t(first, second).verdict() == verdict


def test_win_tie_loss_counts():
    comparisons = [statistics.Comparison(1.0, 0.01), statistics.Comparison(-1.0, 0.01), statistics.Comparison(1.0, 0.5)]
    assert statistics.win_tie_loss(comparisons) == (1, 1, 1)


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_holm_does_not_count_tests_that_could_not_be_made():
    expected = [0.03, np.nan, 0.06, 0.06, np.nan]
    np.testing.assert_allclose(statistics.holm([0.01, np.nan, 0.04, 0.03, np.nan]), expected)
    assert np.isnan(statistics.holm([np.nan])).all() and statistics.holm([]).size == 0


def test_scores_that_are_no_numbers_decide_nothing():
    first, second = [0.1, np.nan, 0.3], [0.2, 0.2, 0.2]
    missing = [
        statistics.paired_t(first, second),
        statistics.corrected_resampled_t(first, second, test_share=0.2),
        statistics.wilcoxon(first, second),
        statistics.welch((np.nan, 0.1, 3), (0.2, 0.1, 3)),
        statistics.welch((np.nan, 0.0, 3), (0.2, 0.0, 3)),
        statistics.paired_t([], []),
        statistics.wilcoxon([], []),
    ]
    assert np.isnan(missing).all()
    assert statistics.win_tie_loss([*missing, statistics.Comparison(1.0, 0.01)]) == (1, 0, 0)
    table = [[0.1, 0.2, np.nan], [0.3, 0.2, 0.1], [0.2, 0.1, 0.3]]
    assert np.isnan(statistics.average_ranks(table)).all() and np.isnan(statistics.friedman(table)).all()


def test_ranks_and_friedman_against_scipy():
    scores = np.random.default_rng(1).random((12, 4))
    ranks = statistics.average_ranks(scores)
    assert ranks.sum() == pytest.approx(4 * 5 / 2)
    chi = stats.friedmanchisquare(*scores.T).statistic
    statistic, p_value = statistics.friedman(scores)
    assert statistic == pytest.approx(11 * chi / (12 * 3 - chi))
    assert p_value == pytest.approx(stats.f.sf(statistic, 3, 33))
    with pytest.raises(ValueError, match="three methods"):
        statistics.friedman(scores[:, :2])


def test_ties_are_ties_whatever_the_last_bit_says():
    scores = np.array([[0.1 + 0.2, 0.3, 0.2], [0.5, 0.5, 0.4], [0.9, 0.7, 0.8]])
    assert statistics.average_ranks(scores) == pytest.approx([4 / 3, 2.0, 8 / 3])
    chi = stats.friedmanchisquare(*np.round(scores, 10).T).statistic
    assert statistics.friedman(scores)[0] == pytest.approx(2 * chi / (6 - chi))
    assert statistics.friedman(np.ones((4, 3))) == (0.0, 1.0)
    assert statistics.wilcoxon([0.1 + 0.2, 0.5], [0.3, 0.5]).p_value == 1.0


def test_a_unanimous_friedman_is_certain():
    assert statistics.friedman(np.tile([3.0, 2.0, 1.0], (5, 1))) == (np.inf, 0.0)


def test_the_critical_difference_of_demsars_example():
    """Demsar (2006), section 3.2.2: four classifiers on fourteen data sets, 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25."""
    assert statistics.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_wilcoxon_is_scipys_and_survives_equality(pair):
    assert statistics.wilcoxon(*pair).p_value == pytest.approx(stats.wilcoxon(pair[0] - pair[1]).pvalue)
    assert statistics.wilcoxon(pair[0], pair[0]).p_value == 1.0


def test_bayesian_signed_rank_sums_to_one_and_mirrors():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.85, 0.02, 12), rng.normal(0.84, 0.02, 12)
    found = statistics.bayesian_signed_rank(first, second, alike=0.01)
    mirrored = statistics.bayesian_signed_rank(second, first, alike=0.01)
    assert sum(found) == pytest.approx(1.0)
    assert (found.worse, found.alike, found.better) == pytest.approx((mirrored.better, mirrored.alike, mirrored.worse))


def test_bayesian_signed_rank_without_a_region_agrees_with_counting_the_draws_one_by_one():
    differences = np.array([0.02, 0.03, -0.01, 0.05])
    found = statistics.bayesian_signed_rank(differences, np.zeros(4), alike=0.0, n_draws=300, random_state=1)
    padded = np.append(0.0, differences)
    counts = [0, 0, 0]
    for weights in np.random.default_rng(1).dirichlet(np.ones(5), 300):
        shares = [0.0, 0.0, 0.0]
        for i, j in product(range(5), repeat=2):
            mean = (padded[i] + padded[j]) / 2
            shares[0 if mean < 0 else 2 if mean > 0 else 1] += weights[i] * weights[j]
        counts[int(np.argmax(shares))] += 1
    assert [round(300 * share) for share in found] == counts


@pytest.mark.parametrize("gap, region", [(0.05, "better"), (-0.05, "worse"), (0.001, "alike")])
def test_bayesian_signed_rank_knows_clear_cases(gap, region):
    second = np.linspace(0.6, 0.9, 15)
    assert getattr(statistics.bayesian_signed_rank(second + gap, second, alike=0.01), region) > 0.99


def test_bayesian_signed_rank_of_nothing_is_not_a_number():
    assert np.isnan(statistics.bayesian_signed_rank([], [])).all()
    assert np.isnan(statistics.bayesian_signed_rank([0.5, np.nan], [0.5, 0.4])).all()


def test_mean_interval():
    mean, low, high = statistics.mean_interval([1.0, 2.0, 3.0, 4.0])
    expected = stats.t.interval(0.95, 3, loc=2.5, scale=stats.sem([1.0, 2.0, 3.0, 4.0]))
    assert (mean, low, high) == pytest.approx((2.5, *expected))
    assert np.isnan(statistics.mean_interval([1.0])[1])
