import numpy as np
import pytest

from margindist.kernels import Kernel
from margindist.objectives import LDM
from margindist.solvers import _metric
from margindist.spaces.features import partial_cholesky
from margindist.spaces.gram import FullGram, gram_bytes, gram_matrix


def make(rng, n=80, spread=0.5):
    """Return the Gram matrix of a kernel, its kernel and rows, signs, and weights that differ by ten to the spread."""
    X = rng.standard_normal((n, 3))
    kernel = Kernel("rbf", gamma=0.5, bias=1.0)
    return kernel(X, X), kernel, X, np.where(rng.random(n) < 0.4, 1.0, -1.0), 10.0 ** rng.uniform(-spread, spread, n)


def margins(G, signs, weights, bend, v, dtype=np.longdouble):
    """Solve z = K (v − Pz), K = YGY, with more digits than any matrix here has."""
    share, K = weights / weights.sum(), signs[:, None] * G * signs
    system = np.eye(len(v)) + bend * (np.diag(share) - np.outer(share, share)) @ K
    a, K, share, v = np.zeros(len(v), dtype), K.astype(dtype), share.astype(dtype), v.astype(dtype)
    for _ in range(8):
        z = K @ a
        missing = v - a - dtype(bend) * share * (z - share @ z)
        a = a + np.linalg.solve(system, missing.astype(float))
    return (K @ a).astype(float)


@pytest.mark.parametrize("bend", [1e-9, 1e-3, 1.0, 1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("spread", [0.0, 0.5, 6.0])
def test_margins_of_the_whole_metric_keep_their_digits(bend, spread, rng):
    G, _, _, signs, weights = make(rng, spread=spread)
    metric = _metric.of_whole(LDM(1.0, bend / 4.0, 0.0), FullGram(G), None, signs, weights)
    v = weights / weights.sum() * rng.uniform(0.0, 50.0, len(G))
    expected = margins(G, signs, weights, bend, v)
    np.testing.assert_allclose(metric.margins(v), expected, atol=1e-6 * np.abs(expected).max())


def test_the_explicit_matrix_is_its_definition(rng):
    G, _, _, signs, weights = make(rng)
    share = weights / weights.sum()
    P = 8.0 * (np.diag(share) - np.outer(share, share))
    expected = G @ np.linalg.inv(np.eye(len(G)) + signs[:, None] * P * signs @ G)
    np.testing.assert_allclose(_metric.explicit_hessian(LDM(1.0, 2.0, 0.5), FullGram(G), signs, weights), expected)


def test_blocks_and_moves_are_those_of_one_matrix(rng):
    G, _, _, signs, weights = make(rng)
    objective, gram, n = LDM(1.0, 2.0, 0.5), FullGram(G), len(G)
    factor = partial_cholesky(gram, 20, rng)
    for make_metric in (_metric.of_whole, _metric.of_part, _metric.of_features):
        metric = make_metric(objective, gram, factor, signs, weights)
        H = np.column_stack([metric.margins(e) for e in np.eye(n)])
        np.testing.assert_allclose(metric.block(np.arange(n)), H, atol=1e-12)
        which, change, z = np.array([3, 17, 40]), rng.standard_normal(3), np.ones(n)
        metric.add(which, change, z)
        np.testing.assert_allclose(z, 1.0 + H[:, which] @ change, atol=1e-12)


def test_a_complete_factor_makes_the_whole_metric(rng):
    G, _, _, signs, weights = make(rng)
    objective, gram = LDM(1.0, 25.0, 0.5), FullGram(G)
    factor = partial_cholesky(gram, len(G), rng, tol=0.0)
    expected = _metric.explicit_hessian(objective, gram, signs, weights)
    for make_metric in (_metric.of_part, _metric.of_features):
        metric = make_metric(objective, gram, factor, signs, weights)
        found = signs[:, None] * metric.block(np.arange(len(G))) * signs
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_part_of_the_metric_is_above_it(rng):
    G, _, _, signs, weights = make(rng)
    objective, gram = LDM(1.0, 500.0, 0.5), FullGram(G)
    H = _metric.explicit_hessian(objective, gram, signs, weights) * np.outer(signs, signs)
    for rank in (3, 10, 30):
        part = _metric.of_part(objective, gram, partial_cholesky(gram, rank, rng), signs, weights)
        assert np.linalg.eigvalsh(part.block(np.arange(len(G))) - H).min() > -1e-9


@pytest.mark.parametrize("lambda1", [0.25, 25.0, 2500.0])
def test_refining_converges_on_what_is_chosen(lambda1, rng):
    G, _, _, signs, weights = make(rng, n=400)
    objective, gram = LDM(1.0, lambda1, 0.5), FullGram(G)
    factor = partial_cholesky(gram, 40, rng)
    chosen, factor = _metric.choose(objective, gram, factor, weights, rng)
    metric = chosen(objective, gram, factor, signs, weights)
    share = weights / weights.sum()
    v = share * rng.uniform(0.0, 50.0, len(G))
    expected = margins(G, signs, weights, objective.variance_weight, v)
    z = metric.margins(v)
    for _ in range(24):
        coef = v - objective.variance_weight * share * (z - share @ z)
        z = metric.refined(objective, weights, z, signs * (G @ (signs * coef)))
    np.testing.assert_allclose(z, expected, atol=1e-6 * np.abs(expected).max())


def test_what_is_chosen_grows_with_the_curvature(rng):
    G, _, _, _, weights = make(rng, n=400)
    gram = FullGram(G)
    factor = partial_cholesky(gram, 40, rng)
    kinds = [_metric.choose(LDM(1.0, x, 0.0), gram, factor, weights, rng)[0] for x in (1e-3, 4.0, 1e6)]
    assert kinds == [_metric.of_features, _metric.of_part, _metric.of_whole]
    narrow = FullGram(G, max_bytes=gram_bytes(400) - 1)  # no memory for the whole
    assert _metric.choose(LDM(1.0, 1e6, 0.0), narrow, factor, weights, rng)[0] is not _metric.of_whole


def test_one_matrix_serves_all_classes_and_prices_in_the_memory_of_one(rng):
    G, kernel, X, signs, weights = make(rng)
    gram = gram_matrix(X, kernel, gram_bytes(len(X)))
    first = _metric.of_whole(LDM(1.0, 3.0, 1.0), gram, None, signs, weights)
    again = _metric.of_whole(LDM(50.0, 3.0, 0.0), gram, None, -signs[::-1], weights)
    assert first.kernel.values is again.kernel.values
    expected = _metric.of_whole(LDM(1.0, 3.0, 1.0), FullGram(G), None, signs, weights)
    np.testing.assert_allclose(first.kernel.values, expected.kernel.values, atol=1e-10)
    assert gram.whole(beside=1) is gram
