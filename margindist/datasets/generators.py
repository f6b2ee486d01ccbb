"""Data that the papers generate."""

import numpy as np
from scipy.stats import binom

__all__ = ["make_threshold"]


def make_threshold(n_samples=1000, r=4, k=16, n_features=100, *, random_state=None):
    r"""Draw rows of ±1 labelled by an r-of-k threshold function.

    The label is :math:`\mathrm{sign}(x_{i_1} + \dots + x_{i_k} + k - 2r + 1)`: positive if at least r of the k
    relevant features are +1. Both labels are equally likely; given the label, all rows that have it are.

    Parameters
    ----------
    n_samples : int, default=1000
        Rows.
    r : int, default=4
        How many relevant features must be +1, from 1 to k.
    k : int, default=16
        Relevant features; which ones is drawn too.
    n_features : int, default=100
        All features, at least k.
    random_state : None, int, numpy.random.Generator or numpy.random.SeedSequence, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Rows, float64.
    y : ndarray of shape (n_samples,)
        Labels -1 and +1, integers.

    Notes
    -----
    The hyperplane with weight 1 on the relevant features has ∞-norm margin 1/k and the bias :math:`k - 2r + 1`: the
    larger :math:`|k/2 - r|`, the larger the bias.

    References
    ----------
    K. Ishibashi, K. Hatano and M. Takeda, COLT 2008, section 4.1, where the constant k is left out.

    Examples
    --------
    >>> X, y = make_threshold(50, r=1, k=2, n_features=3, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((50, 3), [-1, 1])
    """
    if not 1 <= r <= k <= n_features:
        raise ValueError(
            f"make_threshold: r, k and n_features must satisfy 1 <= r <= k <= n_features, got r={r}, k={k}, "
            f"n_features={n_features}."
        )
    rng = np.random.default_rng(random_state)
    relevant = rng.choice(n_features, k, replace=False)
    y = rng.choice(np.array([-1, 1]), n_samples)
    chances = binom.pmf(np.arange(k + 1), k, 0.5)
    active = np.empty(n_samples, dtype=int)
    for label, counts in ((-1, np.arange(r)), (1, np.arange(r, k + 1))):
        rows = y == label
        active[rows] = rng.choice(counts, rows.sum(), p=chances[counts] / chances[counts].sum())
    X = rng.choice(np.array([-1.0, 1.0]), (n_samples, n_features))
    ranks = rng.random((n_samples, k)).argsort(axis=1)
    X[:, relevant] = np.where(ranks < active[:, None], 1.0, -1.0)
    return X, y
