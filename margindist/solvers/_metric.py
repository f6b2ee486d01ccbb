r"""The variance as a metric: the kernel with which a large margin distribution machine is a support vector machine.

With signed rows u_i = y_i x_i, shares p of the weights, c = 4λ1 and P = c (diag(p) − pp'), the objective
(:class:`~margindist.objectives.LDM`) is

    ½ w'Qw − λ2 p'Uw + Σ C s_i max(0, 1 − u_i'w),    Q = I + U'PU,

a support vector machine in the metric Q with one more, linear term. Its kernel has the values of UQ⁻¹U',

    H = YG (I + YPYG)⁻¹Y,

and no equality constraint, because the intercept is a constant feature. Its dual has the margins for a gradient,

    min_{0 ≤ β ≤ Cs}  ½ v'Hv − Σ β_i,    v = λ2 p + β,    z = Hv.

**As a whole.** With D = diag(p), p̃ = Yp and S = I/c + D^½GD^½,

    YHY = M + c Mp̃p̃'M / (1 − c p̃'Mp̃),    M = G (I + cDG)⁻¹ = D^{-½} (I − S⁻¹/c) D^{-½} / c :

one Cholesky factor and its inverse, m³ operations in the memory of one matrix. M knows no signs: it serves every class
against the rest, every C and every λ2. What is taken from I costs digits where c is so small that S is next to I/c;
but there the metric makes no difference (:class:`Settings`), and H = YGY.

**In part.** With r = D^½y, J = I − rr' and W = c^½ JD^½ it is YPY = W'W and YHY = G − GW'(I + WGW')⁻¹WG. The inverse
acts on few directions, where G is close to FF' with few columns (:mod:`margindist.spaces.features`). With C = JD^½F,

    YHY ≤ G − N (C'C + C'WN)⁻¹ N',    N = GW'C,

Galerkin's approximation of the inverse, for one product of G with a thin matrix. On this larger matrix, from exact
margins, a descent still descends. Products with G, which proofs take anyway, correct the margins
(:meth:`Metric.refined`); they leave a share of the error that is of the order of the square of c‖D^½(G − FF')D^½‖
(:func:`choose`).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, eigh, eigvalsh
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dpotrf, dpotri

from margindist.spaces.features import partial_cholesky
from margindist.spaces.gram import FullGram

__all__ = ["Metric", "choose", "explicit_hessian", "of_features", "of_part", "of_whole", "plain"]

_DEPENDENT = 1e-11  # eigenvalues below this share of the largest are rounding
_STRIP = 256  # rows of the matrix that are mirrored at a time


class Settings(NamedTuple):
    """What was chosen by measurements."""

    negligible: float = 1e-7  # c times the mean of G's diagonal below which H is G, but for such a share
    loose: float = 2.0  # of what features leave, up to which products with G leave little of an error
    tight: float = 0.5  # times the strength of the metric: the same where the metric is that of the features alone
    worth_rank: int = 8  # rows per feature from which on these cost less than the whole
    copies: int = 6  # of the features, that they take
    slowest: float = 0.25  # the least power of its rank with which what a factor leaves is taken to fall
    sample: int = 512  # rows that say how much features leave


SETTINGS = Settings()


class Metric(NamedTuple):
    """The kernel H = Y(K + σLL')Y of signed rows."""

    kernel: object  # K, a provider of a symmetric matrix (:mod:`margindist.spaces.gram`)
    L: np.ndarray  # a few columns, or none
    sigma: float  # their sign
    signs: np.ndarray

    def block(self, which):
        """Return the rows and columns ``which`` of H."""
        H, y = self.kernel.block(which), self.signs[which]
        if self.L.shape[1]:
            L = self.L[which]
            H = dgemm(self.sigma, L, L, trans_b=True, beta=1.0, c=H.T, overwrite_c=True).T
        H *= y[:, None]
        H *= y
        return H

    def add(self, which, change, z, again=None):
        """Add to margins what a change of some multipliers does; ``again`` says which of these are likely to move."""
        signed = self.signs[which] * change
        shift = self.sigma * (self.L @ (self.L[which].T @ signed))
        self.kernel.add_columns(which, signed, shift, again)
        z += self.signs * shift

    def margins(self, v):
        """Return Hv."""
        signed = self.signs * v
        return self.signs * (self.kernel.image(signed) + self.sigma * (self.L @ (self.L.T @ signed)))

    def refined(self, objective, weights, assumed, exact):
        """Return margins nearer to those of some multipliers, by a Newton step.

        Coefficients λ2 p + β − Pz made at the ``assumed`` margins z have the ``exact`` ones. These miss the margins of
        the multipliers by KP times what the assumed ones do, K = YGY, and (I + KP)⁻¹K = H.
        """
        if objective.variance_weight == 0.0:
            return exact
        share = weights / weights.sum()
        away = exact - assumed
        return exact - self.margins(objective.variance_weight * share * (away - share @ away))


def plain(gram, signs):
    """Return the kernel as it is."""
    return Metric(gram, np.zeros((gram.n, 0)), 1.0, signs)


def choose(objective, gram, factor, weights, rng):
    """Return the function of this module that makes the metric at the least cost, and the factor it takes.

    The larger c, the more features it takes. If too many, the metric is made as a whole. Where there is no memory for
    that, the function is None, and the factor the largest one there is memory for.
    """
    loose = _looseness(objective, gram, factor, weights, rng)
    if loose > SETTINGS.loose:
        rank = _enough(factor, weights, loose / SETTINGS.loose)
        if gram.can_derive and SETTINGS.worth_rank * rank > gram.n:
            return of_whole, factor
        most = int(min(gram.n // 2, gram.room / (SETTINGS.copies * 8 * gram.n)))
        factor = partial_cholesky(gram, max(factor.rank, min(rank, most)), rng, tol=0.0)
        loose = _looseness(objective, gram, factor, weights, rng)
        if loose > SETTINGS.loose:
            return (of_whole if gram.can_derive else None), factor
    strength = objective.variance_weight * (weights @ factor.diagonal) / weights.sum()
    return of_features if loose * strength <= SETTINGS.tight else of_part, factor


def _looseness(objective, gram, factor, weights, rng):
    """Return c‖D^½RD^½‖, roughly: that of a sample of the rows, drawn by their weights.

    It estimates the norm with too large a number, by the trace of R divided by the size of the sample.
    """
    sample, share = np.arange(gram.n), weights / weights.sum()
    if gram.n > SETTINGS.sample:
        sample = np.sort(rng.choice(gram.n, SETTINGS.sample, p=share))
        share = np.full(gram.n, 1.0 / SETTINGS.sample)
    F, root = factor.features[sample], np.sqrt(share[sample])
    rest = root[:, None] * (gram.block(sample) - F @ F.T) * root
    largest = eigvalsh(rest, subset_by_index=[len(sample) - 1, len(sample) - 1])[0]
    return objective.variance_weight * max(largest, 0.0)


def _enough(factor, weights, times):
    """Return the rank of a factor that leaves so many times less, if that goes on to fall with the rank as it has."""
    left = weights @ factor.diagonal - np.cumsum(weights @ factor.features**2)
    half = left[factor.rank // 2 - 1] if factor.rank > 1 else left[-1]
    power = np.log2(half / max(left[-1], np.finfo(float).tiny)) if half > 0.0 else 1.0
    return int(min(factor.rank * times ** (1.0 / max(power, SETTINGS.slowest)), len(weights)))


def of_features(objective, gram, factor, signs, weights):
    """Return the kernel in the metric of the variance of a factor's features: nearly H if the factor is nearly G."""
    F, share = factor.features, weights / weights.sum()
    mean = F.T @ (signs * share)
    values, vectors = eigh(objective.variance_weight * ((F.T * share) @ F - np.outer(mean, mean)))
    values = np.maximum(values, 0.0)
    return Metric(gram, F @ (vectors * np.sqrt(values / (1.0 + values))), -1.0, signs)


def of_part(objective, gram, factor, signs, weights):
    """Return the kernel in the metric of the variance along a factor's features."""
    root = np.sqrt(weights / weights.sum())
    r, Q = signs * root, _orthonormal(root[:, None] * factor.features)
    images = gram.dot(root[:, None] * np.column_stack([Q, r]))
    seen = r @ Q
    C = Q - np.outer(r, seen)
    N = np.sqrt(objective.variance_weight) * (images[:, :-1] - np.outer(images[:, -1], seen))
    square = C.T @ C + np.sqrt(objective.variance_weight) * C.T @ (root[:, None] * N)
    values, vectors = eigh(square)
    kept = values > _DEPENDENT * values[-1]
    return Metric(gram, N @ (vectors[:, kept] / np.sqrt(values[kept])), -1.0, signs)


def _orthonormal(columns):
    """Return an orthonormal basis of what the columns span, but for directions lost to rounding."""
    values, vectors = eigh(columns.T @ columns)
    kept = values > _DEPENDENT * max(values[-1], np.finfo(float).tiny)
    return columns @ (vectors[:, kept] / np.sqrt(values[kept]))


def of_whole(objective, gram, factor, signs, weights):
    """Return the kernel in the metric of the variance, by the matrix M, which ``gram`` keeps for other signs."""
    share = weights / weights.sum()
    trace = share @ gram.diagonal
    if objective.variance_weight * trace <= SETTINGS.negligible:
        return plain(gram.whole(), signs)
    largest = 1.0 / (gram.n * np.finfo(float).eps * trace)  # beyond, rounding may take the inverse of c from S
    c = min(objective.variance_weight, largest)
    M = gram.derived((c, share.tobytes()), lambda values: _in_metric(values, c, share))
    tilted = signs * share
    image = M @ tilted
    left = max(1.0 - c * (tilted @ image), np.finfo(float).eps)
    return Metric(FullGram(M), np.sqrt(c / left) * image[:, None], 1.0, signs)


def _in_metric(S, c, share):
    """Turn the values of G into those of M."""
    root = np.sqrt(share)
    S *= root
    S *= root[:, None]
    S.flat[:: len(S) + 1] += 1.0 / c
    factor, failed = dpotrf(S.T, lower=0, overwrite_a=1, clean=0)
    if not failed:
        factor, failed = dpotri(factor, lower=0, overwrite_c=1)
    if failed:
        raise LinAlgError("the kernel matrix is not positive semi-definite")
    M = factor.T
    for begin in range(0, len(M), _STRIP):
        end = min(begin + _STRIP, len(M))
        M[begin:end, end:] = M[end:, begin:end].T
        square = np.tril(M[begin:end, begin:end])
        M[begin:end, begin:end] = square + np.tril(square, -1).T
    M *= -1.0 / c**2
    M.flat[:: len(M) + 1] += 1.0 / c
    M /= root
    M /= root[:, None]
    return M


def explicit_hessian(objective, gram, signs, weights):
    """Return YHY as a matrix of its own."""
    metric = of_whole(objective, gram, None, signs, weights)
    return metric.kernel.columns(np.arange(gram.n)) + metric.sigma * (metric.L @ metric.L.T)
