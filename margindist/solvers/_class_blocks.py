"""Dual blocks of a multi-class round: their storage, the exact step in one of them, and the certificate of all.

The mathematics is in :mod:`margindist.solvers.multiclass`.
"""

from typing import NamedTuple

import numpy as np

from margindist.compilation import njit
from margindist.solvers._solution import gap_to_reach
from margindist.spaces.rows import all_scores

_ROUNDING = 1e-12  # a round begins at the last one's value, so whether it is below that may be rounding alone
_EXACT = 1e-10  # gap from which on a round that is not below the last one will not get there
_ENOUGH = 0.5  # a round that has fallen to this part of the last one's value ends, however wide its gap
_PART = 2**18  # scores held at a time


class Losses(NamedTuple):
    """What every row pays; apart from the rows, so that most code is compiled once and not once per storage."""

    codes: np.ndarray  # class of each row
    low: float  # 1 − θ
    high: float  # 1 + θ
    prices: np.ndarray  # c_i
    above: np.ndarray  # c_i μ
    squares: np.ndarray  # A_i
    n_classes: int
    total: float  # sum of the sample weights


class Blocks(NamedTuple):
    """Dual variables of all rows, those ζ different from zero in one pool; and the upper side of the round."""

    begin: np.ndarray
    length: np.ndarray
    capacity: np.ndarray
    classes: np.ndarray
    zeta: np.ndarray
    beta: np.ndarray
    rival: np.ndarray  # -1: the upper side is frozen
    ceiling: np.ndarray  # inf: there is no upper side


def empty_blocks(m, capacity):
    """Return blocks of zeros, without an upper side, with room for this many classes each."""
    begin = np.arange(m) * capacity
    return Blocks(
        begin, np.zeros(m, np.int64), np.full(m, capacity), np.zeros(m * capacity, np.int32), np.zeros(m * capacity),
        np.zeros(m), np.full(m, -1, np.int32), np.full(m, np.inf),
    )  # fmt: skip


def spread(blocks, capacity):
    """Return the same blocks with this much room each."""
    wide = empty_blocks(len(blocks.beta), capacity)
    owner, within = _stored(blocks)
    new, old = wide.begin[owner] + within, blocks.begin[owner] + within
    wide.classes[new], wide.zeta[new] = blocks.classes[old], blocks.zeta[old]
    return wide._replace(
        length=blocks.length.copy(), beta=blocks.beta.copy(), rival=blocks.rival, ceiling=blocks.ceiling
    )


def copy(blocks):
    """Return blocks that share nothing with these."""
    return Blocks(*(entry.copy() for entry in blocks))


def _stored(blocks):
    """Return the row of every stored ζ and its place within the row's block."""
    owner = np.repeat(np.arange(len(blocks.beta)), blocks.length)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(blocks.length) - blocks.length, blocks.length)


def coefficients(codes, blocks):
    """Return rows, classes and values of the coefficients v that are not zero (several values may meet)."""
    everything = np.arange(len(codes))
    owner, within = _stored(blocks)
    place = blocks.begin[owner] + within
    zeta = blocks.zeta[place]
    own = np.bincount(owner, weights=zeta, minlength=len(codes)) - blocks.beta
    beyond = np.flatnonzero((blocks.beta > 0.0) & (blocks.rival >= 0))
    return (
        np.concatenate([owner, everything, beyond]),
        np.concatenate([blocks.classes[place], codes, blocks.rival[beyond]]).astype(np.int64),
        np.concatenate([-zeta, own, blocks.beta[beyond]]),
    )


def scores_by_parts(rows, losses, W):
    """Yield first row and scores of some rows after the other."""
    m, size = len(losses.codes), max(1, _PART // W.shape[1])
    for first in range(0, m, size):
        yield first, all_scores(rows, first, W, np.empty((min(size, m - first), W.shape[1])))


def relative_to(W, loss, true, total):
    """Return the value of a round, the true objective and the relative gap from the sums of :func:`certify`."""
    norm = 0.5 * np.vdot(W, W)
    return norm + loss, norm + true, total / (norm + loss)


def at_zero(losses, blocks):
    """Return the value of a round where all weights are zero."""
    beyond = np.maximum(0.0, -blocks.ceiling - losses.high)
    return losses.low**2 * losses.prices.sum() + losses.above @ beyond**2


def is_done(value, nothing, gap, bound, tol):
    """Tell whether a round has ended: far below the last one, exact enough and below it, or as exact as can be.

    The last round's upper side is no longer near one that has fallen far: solving it exactly would be wasted work.
    ``nothing`` is the value :func:`at_zero`.
    """
    if value <= _ENOUGH * bound < np.inf:
        return True
    exact = max(gap_to_reach(_EXACT, value, nothing), _ROUNDING)
    return gap <= gap_to_reach(tol, value, nothing) and (value < (1.0 - _ROUNDING) * bound or gap <= exact)


@njit(cache=True, nogil=True)
def _level(b, y, skip, A, D, q, order, zeta):
    """Lower the largest of ``b`` to a common level; return how many and the sum S of their multipliers."""
    k, n, total, t = len(b), 0, 0.0, -q
    count = 0
    for l in range(k):  # without a branch, which nobody could foresee
        order[count] = l
        count += (b[l] > t) & (l != y) & (l != skip)
    while n < count:
        best, highest = n, b[order[n]]
        for c in range(n + 1, count):
            if b[order[c]] > highest:
                best, highest = c, b[order[c]]
        if highest <= t:
            break
        order[n], order[best] = order[best], order[n]
        total += highest
        n += 1
        t = (D * total - A * q) / (A + n * D)
    S = (q + t) / D if n > 0 else 0.0
    if n == 1:
        zeta[0] = S
    elif n > 1:
        lowered = 0.0
        for c in range(n):
            zeta[c] = b[order[c]] - t
            lowered += zeta[c]
        for c in range(n):  # all at the level, to the last bit: they share
            zeta[c] = zeta[c] * S / lowered if lowered > 0.0 else S / n
    return n, S


@njit(cache=True, nogil=True)
def block_step(low, high, price, above, y, b, A, rival, ceiling, order, zeta):
    """Solve the dual of a row; return how many classes of ``order`` have a ``zeta`` > 0, their sum S, and beta.

    It is told numbers, not the losses of all rows: to hand over a tuple of arrays takes longer than a step does.
    """
    h = 0.5 / price
    q = low - b[y]
    n, S = _level(b, y, -1, A, A + h, q, order, zeta)
    top = ceiling if rival < 0 else b[rival]
    F = top + high - b[y]
    if A * S <= F:
        return n, S, 0.0
    E = (A if rival < 0 else 2.0 * A) + 0.5 / above
    n, S = _level(b, y, rival, A, h + A * (E - A) / E, q - A * F / E, order, zeta)
    return n, S, max(0.0, (A * S - F) / E)


@njit(cache=True, nogil=True)
def own_part(blocks, i, y, v):
    """Write row i's coefficients v_i into the zero vector ``v``; return S."""
    S = 0.0
    for p in range(blocks.begin[i], blocks.begin[i] + blocks.length[i]):
        v[blocks.classes[p]] -= blocks.zeta[p]
        S += blocks.zeta[p]
    v[y] += S - blocks.beta[i]
    if blocks.rival[i] >= 0:
        v[blocks.rival[i]] += blocks.beta[i]
    return S


@njit(cache=True, nogil=True)
def store(blocks, i, n, order, zeta, beta):
    """Make this row i's block."""
    begin = blocks.begin[i]
    for c in range(n):
        blocks.classes[begin + c] = order[c]
        blocks.zeta[begin + c] = zeta[c]
    blocks.length[i] = n
    blocks.beta[i] = beta


@njit(cache=True, nogil=True)
def certify(losses, blocks, first, U):
    """Return the loss of this round, the true loss, and the Fenchel-Young sum, of the rows from ``first`` on."""
    codes, low, high, prices, prices_above, _, k, _ = losses
    begin, length, _, classes, zeta, betas, rivals, ceilings = blocks
    loss, true, total = 0.0, 0.0, 0.0
    for p in range(len(U)):
        i, u = first + p, U[p]
        y, r, beta = codes[i], rivals[i], betas[i]
        highest = -np.inf
        for l in range(k):
            if l != y and u[l] > highest:
                highest = u[l]
        top = ceilings[i] if r < 0 else u[r]
        short = max(0.0, low - u[y] + highest)
        beyond = max(0.0, u[y] - top - high)
        really = max(0.0, u[y] - highest - high)
        below = prices[i] * short * short
        above = prices_above[i] * beyond * beyond
        loss += below + above
        true += below + prices_above[i] * really * really
        S = 0.0
        for q in range(begin[i], begin[i] + length[i]):
            S += zeta[q]
            below -= zeta[q] * (low - u[y] + u[classes[q]])
        total += max(0.0, below + 0.25 * S * S / prices[i])
        if beta > 0.0:
            above -= beta * (u[y] - top - high)
        total += max(0.0, above + 0.25 * beta * beta / prices_above[i])
    return loss, true, total
