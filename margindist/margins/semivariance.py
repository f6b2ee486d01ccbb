"""The generalization bound that MSVMAv rests on."""

import numbers

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array


def semivariance_bound(margins: ArrayLike, complexity: float, *, nu: float | None = None, delta: float = 0.05) -> float:
    r"""Bound the classification error by mean and semi-variance of the margins.

    With probability at least :math:`1 - \delta` over a sample drawn independently from one distribution, for every
    function :math:`h` with values in [-1, 1] and mean margin :math:`\theta \ge \nu`,

    .. math:: \Pr[y h(x) \le 0] \le \frac{SV}{\theta^2} + \frac{2 + 2\nu}{n\nu^3} + \frac{1}{n^2\nu^2}
        + \Big(\frac4\theta + \frac4{\theta^2}\Big) \hat R
        + \frac{3(1 + \nu)^2}{\nu^2} \sqrt{\frac{1}{2n} \ln\frac{4n}{\delta}},

    Theorem 1 of [1]_ with the constants of its proof; :math:`SV = \frac1n\sum_i \max(0, \theta - y_i h(x_i))^2`. As
    the paper does in practice, the mean margin of the distribution is replaced by that of the sample.

    For a linear function with weights of length :math:`\Lambda` on samples of length at most :math:`r`, divide the
    margins by :math:`r\Lambda`; the complexity is then at most :math:`1/\sqrt n`, and :math:`2/\sqrt n` for a kernel
    with :math:`K(x, x) \le r^2`.

    Parameters
    ----------
    margins : array-like of shape (n_samples,)
        Margins :math:`y_i h(x_i)` in [-1, 1] with a positive mean.
    complexity : float
        Empirical Rademacher complexity :math:`\hat R` of the functions, not negative.
    nu : float or None, default=None
        Mean margin that was hoped for *before* the sample was seen, positive and at most the mean margin; None takes
        the mean margin itself, which gives the smallest value but is, strictly, too late to choose.
    delta : float, default=0.05
        Probability that the bound fails, in (0, 1).

    Returns
    -------
    float
        The bound; values of one and above say nothing.

    References
    ----------
    .. [1] M.-Z. Qian, Z. Ai, T. Zhang, W. Gao. On the optimization of margin distribution. IJCAI 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from margindist.margins import semivariance_bound
    >>> margins = np.linspace(0.4, 0.8, 10**6)
    >>> round(semivariance_bound(margins, complexity=len(margins) ** -0.5), 3)
    0.101
    """
    margins = check_array(margins, ensure_2d=False, dtype=np.float64, input_name="margins")
    n, theta = len(margins), float(margins.mean())
    if np.abs(margins).max() > 1.0:
        raise ValueError(
            f"semivariance_bound: margins must be in [-1, 1], got one of {margins[np.abs(margins).argmax()]:.3g}; "
            f"divide them by the largest value the function can take."
        )
    if theta <= 0.0:
        raise ValueError(f"semivariance_bound: the mean margin must be positive, got {theta:.3g}.")
    nu = theta if nu is None else nu
    if not (isinstance(nu, numbers.Real) and 0.0 < nu <= theta):
        raise ValueError(f"semivariance_bound: nu must be in (0, {theta:.3g}], the mean margin at most, got {nu!r}.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"semivariance_bound: delta must be in (0, 1), got {delta!r}.")
    if not 0.0 <= complexity < np.inf:
        raise ValueError(f"semivariance_bound: complexity must be a number that is not negative, got {complexity!r}.")
    ratio = np.mean(np.maximum(0.0, theta - margins) ** 2) / theta**2
    grid = (2.0 + 2.0 * nu) / (n * nu**3) + 1.0 / (n * nu) ** 2
    capacity = (4.0 / theta + 4.0 / theta**2) * complexity
    confidence = 3.0 * (1.0 + nu) ** 2 / nu**2 * np.sqrt(np.log(4.0 * n / delta) / (2.0 * n))
    return float(ratio + grid + capacity + confidence)
