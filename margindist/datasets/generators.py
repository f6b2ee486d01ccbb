"""Data that the papers generate."""

import numpy as np
from scipy.stats import binom

_Seed = int | np.random.Generator | np.random.SeedSequence | None


def make_threshold(
    n_samples: int = 1000, r: int = 4, k: int = 16, n_features: int = 100, *, random_state: _Seed = None
) -> tuple[np.ndarray, np.ndarray]:
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


def make_twonorm(
    n_samples: int = 7400, n_features: int = 20, *, random_state: _Seed = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""Draw from two normal distributions with unit covariance.

    :math:`x \mid y \sim N(y\,(a, \dots, a), I)` with :math:`a = 2/\sqrt{d}`, both labels equally likely. The best
    classifier is the sign of the sum of the features, with error :math:`\Phi(-2) = 2.3\,\%` for every d.

    Parameters
    ----------
    n_samples : int, default=7400
        Rows.
    n_features : int, default=20
        Features d.
    random_state : None, int, numpy.random.Generator or numpy.random.SeedSequence, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Rows, float64.
    y : ndarray of shape (n_samples,)
        Labels -1 and +1, integers.

    References
    ----------
    L. Breiman, Bias, variance, and arcing classifiers, technical report 460, University of California, Berkeley, 1996.

    Examples
    --------
    >>> X, y = make_twonorm(2000, random_state=0)
    >>> bool(abs((y * X.sum(axis=1) > 0).mean() - 0.977) < 0.01)
    True
    """
    rng = np.random.default_rng(random_state)
    y = rng.choice(np.array([-1, 1]), n_samples)
    return y[:, None] * (2 / np.sqrt(n_features)) + rng.standard_normal((n_samples, n_features)), y


def make_ringnorm(
    n_samples: int = 7400, n_features: int = 20, *, random_state: _Seed = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""Draw from a wide normal distribution and a narrow one within it.

    :math:`x \mid y = 1 \sim N(0, 4I)` and :math:`x \mid y = -1 \sim N((a, \dots, a), I)` with
    :math:`a = 2/\sqrt{d}`, both labels equally likely. No linear classifier does well.

    Parameters
    ----------
    n_samples : int, default=7400
        Rows.
    n_features : int, default=20
        Features d.
    random_state : None, int, numpy.random.Generator or numpy.random.SeedSequence, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Rows, float64.
    y : ndarray of shape (n_samples,)
        Labels -1 (narrow) and +1 (wide), integers, as in Raetsch's benchmark.

    Notes
    -----
    Some copies of this generator have :math:`a = 1/\sqrt{d}`; the benchmark's data, from which MAMC's tables come, have
    the means and spreads of the one above.

    References
    ----------
    L. Breiman, Bias, variance, and arcing classifiers, technical report 460, University of California, Berkeley, 1996.

    Examples
    --------
    >>> X, y = make_ringnorm(2000, random_state=0)
    >>> round(float(X[y == 1].std())), round(float(X[y == -1].std()))
    (2, 1)
    """
    rng = np.random.default_rng(random_state)
    y = rng.choice(np.array([-1, 1]), n_samples)
    noise = rng.standard_normal((n_samples, n_features))
    return np.where(y[:, None] == 1, 2 * noise, 2 / np.sqrt(n_features) + noise), y


def make_waveform(
    n_samples: int = 5000, n_classes: int = 2, *, random_state: _Seed = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""Draw random mixtures of two out of three triangular waves, with noise.

    With :math:`h_c(i) = \max(6 - |i - c|, 0)`, :math:`i = 1, \dots, 21`, a row is
    :math:`u h_c + (1 - u) h_{c'} + N(0, I)`, u uniform on [0, 1]. The three classes, equally likely, have the peaks
    :math:`(c, c') = (11, 15), (11, 7), (15, 7)`.

    Parameters
    ----------
    n_samples : int, default=5000
        Rows.
    n_classes : {2, 3}, default=2
        3 gives the classes as published. 2 sets the second, with peaks 11 and 7, against the two others.
    random_state : None, int, numpy.random.Generator or numpy.random.SeedSequence, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, 21)
        Rows, float64.
    y : ndarray of shape (n_samples,)
        Labels 0, 1, 2, or -1 and +1 with two classes; integers.

    Notes
    -----
    The two-class form is the one of Raetsch's benchmark, whose text does not say which class stands alone; the class
    means of its data do: they are those of the second class within 0.04 standard deviations, and of no other.

    References
    ----------
    L. Breiman, J. Friedman, R. Olshen and C. Stone, Classification and Regression Trees, 1984, section 2.6.2.

    Examples
    --------
    >>> X, y = make_waveform(3000, random_state=0)
    >>> X.shape, bool(abs((y == 1).mean() - 1 / 3) < 0.03)
    ((3000, 21), True)
    """
    if n_classes not in (2, 3):
        raise ValueError(f"make_waveform: n_classes must be 2 or 3, got {n_classes!r}.")
    rng = np.random.default_rng(random_state)
    peaks = np.array([[11, 15], [11, 7], [15, 7]])
    kind = rng.integers(0, 3, n_samples)
    u = rng.random((n_samples, 1))
    first, second = (np.maximum(6 - np.abs(np.arange(1, 22) - peaks[kind, k, None]), 0) for k in (0, 1))
    X = u * first + (1 - u) * second + rng.standard_normal((n_samples, 21))
    return X, kind if n_classes == 3 else np.where(kind == 1, 1, -1)
