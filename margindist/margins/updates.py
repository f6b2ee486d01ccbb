"""How many steps an online learner can make at most."""

__all__ = ["update_bound"]


def update_bound(margin: float, radius: float, delta: float, p: float = 2.0) -> float:
    r"""Return the most steps PUMMA can make on rows that some classifier separates.

    Every step lengthens ``w`` by the rule :math:`\|w_{t+1}\|_q^2 - \|w_t\|_q^2 \ge \delta^2 / ((p-1)\|z\|_p^2)` with
    :math:`\|z\|_p \le 2R`, and no ``w`` is longer than :math:`1/\gamma`, so that there are at most
    :math:`4(p-1)R^2 / (\delta\gamma)^2` steps.

    Parameters
    ----------
    margin : float
        p-norm margin :math:`\gamma > 0` that a classifier with bias has on all rows.
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
    return 4.0 * (p - 1.0) * (radius / (delta * margin)) ** 2
