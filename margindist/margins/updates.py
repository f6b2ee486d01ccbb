"""How many steps an online learner can make at most, and how many it made on the way to a margin."""

import numbers

import numpy as np
from numpy.typing import ArrayLike


def update_bound(margin: float, radius: float, delta: float, p: float = 2.0) -> float:
    r"""Return the most steps PUMMA can make on rows that some classifier separates.

    Every step lengthens ``w`` by the rule :math:`\|w_{t+1}\|_q^2 - \|w_t\|_q^2 \ge \delta^2 / ((p-1)\|z\|_p^2)` with
    :math:`\|z\|_p \le 2R`, and no ``w`` is longer than :math:`1/\gamma`, so that there are at most
    :math:`4(p-1)R^2 / (\delta\gamma)^2` steps.

    It holds for a two-class problem that is separable (in the space of the kernel, or with a slack coordinate for each
    row where there is a soft margin), however often and in whatever order the rows come; of more classes, each
    against the rest has its own bound.

    Parameters
    ----------
    margin : float
        p-norm margin :math:`\gamma > 0` that a classifier with bias has on all rows; at most the radius.
    radius : float
        Largest p-norm R of a row. With a soft margin λ, :math:`\sqrt{R^2 + \lambda}`.
    delta : float
        PUMMA's ``delta``, in (0, 1].
    p : float, default=2.0
        Norm, at least 2.

    Returns
    -------
    float
        The bound.

    References
    ----------
    K. Ishibashi, K. Hatano and M. Takeda, COLT 2008, lemma 6 and theorem 2; their constant is 2, which takes
    :math:`\|z\|_p \le \sqrt2 R` for granted.

    Examples
    --------
    >>> update_bound(margin=0.5, radius=1.0, delta=0.1)
    1600.0
    """
    for name, value in (("margin", margin), ("radius", radius), ("delta", delta), ("p", p)):
        if not (isinstance(value, numbers.Real) and 0.0 < value < float("inf")):
            raise ValueError(f"update_bound: {name} must be a positive number, got {value!r}.")
    if delta > 1.0:
        raise ValueError(f"update_bound: delta must be in (0, 1], got {delta!r}.")
    if p < 2.0:
        raise ValueError(f"update_bound: p must be at least 2, got {p!r}.")
    if margin > radius * (1.0 + 1e-9):
        raise ValueError(
            f"update_bound: no classifier has a margin of {margin:.3g} on rows of length at most {radius:.3g}; give "
            f"both in the same norm."
        )
    return 4.0 * (p - 1.0) * (radius / (delta * margin)) ** 2


def first_reaching(history: np.ndarray, levels: ArrayLike) -> np.ndarray:
    """Return when an online learner first had at least the given margins.

    Parameters
    ----------
    history : ndarray
        ``history_`` of a fitted online classifier: records of passes, with the fields ``n_iter``, ``n_updates``,
        ``seconds``, ``margin`` and ``share``.
    levels : array-like of shape (n_levels,)
        Margins.

    Returns
    -------
    ndarray of shape (n_levels,)
        For every level the first record whose margin is not below it, all fields as float; NaN if there is none.
        Margins are measured after recorded passes only, so a level may have been reached a little earlier.

    Examples
    --------
    >>> from margindist import PUMMAClassifier
    >>> from margindist.datasets import make_threshold
    >>> X, y = make_threshold(200, r=4, random_state=0)
    >>> model = PUMMAClassifier(delta=0.05, max_iter=1000).fit(X, y)
    >>> half, most, more = first_reaching(model.history_, [0.5 * model.margin_, 0.95 * model.margin_, 1e6])
    >>> bool(half["n_updates"] < most["n_updates"]), bool(np.isnan(more["n_updates"]))
    (True, True)
    """
    levels = np.asarray(levels, dtype=np.float64)
    result = np.full(levels.shape, np.nan, dtype=[(name, np.float64) for name in history.dtype.names])
    so_far = np.maximum.accumulate(history["margin"])
    places = np.searchsorted(so_far, levels)
    reached = places < len(history)
    for name in history.dtype.names:
        result[name][reached] = history[name][places[reached]]
    return result
