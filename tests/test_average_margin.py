import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from margindist.solvers.average_margin import SLOPES, best_bias
from tests.reference.closed_forms import brute_force_bias, errors_and_slack

# Few different scores, so that there are ties between rows of both classes; whole numbers, so that sums are exact.
ROWS = st.lists(st.tuples(st.integers(-6, 6), st.sampled_from([-1.0, 1.0]), st.integers(1, 3)), min_size=1, max_size=25)


@given(ROWS)
@settings(max_examples=400, deadline=None)
def test_bias_is_the_best_of_all_thresholds(rows):
    scores, signs, weights = np.array(rows, dtype=float).T
    errors, slack = brute_force_bias(scores, signs, weights)
    found = best_bias(scores, signs, weights)
    assert found.errors == pytest.approx(errors)
    assert found.slack == pytest.approx(slack)
    assert errors_and_slack(found.value, scores, signs, weights) == pytest.approx((errors, slack))


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_weights_are_repetitions(rows):
    scores, signs, weights = np.array(rows, dtype=float).T
    times = weights.astype(int)
    repeated = best_bias(np.repeat(scores, times), np.repeat(signs, times), np.ones(times.sum()))
    assert best_bias(scores, signs, weights) == pytest.approx(repeated)


def test_separable_rows_get_the_middle_of_the_gap():
    scores = np.array([-5.0, -3.0, -1.0, -0.5])
    signs = np.array([-1.0, -1.0, 1.0, 1.0])
    assert best_bias(scores, signs, np.ones(4)) == (2.0, 0.0, 0.0)


def test_scores_that_differ_by_rounding_are_one_score():
    scores = np.array([1.0, 1.0 + 1e-15, 3.0, 3.0 + 1e-15])
    signs = np.array([-1.0, 1.0, 1.0, 1.0])
    assert best_bias(scores, signs, np.ones(4)).errors == 1.0


def test_all_rows_of_one_class():
    found = best_bias(np.array([1.0, 2.0]), np.array([-1.0, -1.0]), np.ones(2))
    assert found.errors == 0.0
    assert (np.array([1.0, 2.0]) + found.value < 0).all()


def test_slopes_are_those_of_the_paper():
    assert len(SLOPES) == 21
    np.testing.assert_allclose(SLOPES, 1 / SLOPES[::-1])
    np.testing.assert_allclose(SLOPES[:4], [0.05, 0.1, 0.2, 0.3])
