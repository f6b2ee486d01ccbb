r"""Multi-class optimal margin distribution machine: rounds of convex problems, solved in blocks.

Problem (Zhang & Zhou 2017, eq. 1), k weight vectors, margins γ_i = w_y·x_i − max_{l≠y} w_l·x_i:

    min  ½ Σ‖w_l‖² + Σ_i c_i (ξ_i² + μ ε_i²),   ξ_i = (1 − θ − γ_i)_+,  ε_i = (γ_i − 1 − θ)_+,  c_i = λs_i/(M(1−θ)²)

ξ_i is convex in w, ε_i is not. Each *round* replaces ε_i by a convex upper side, known from the last round's w:

- frozen (the paper's):  ε_i = (w_y·x_i − M_i − 1 − θ)_+,          M_i = max_{l≠y} w_l·x_i of the last round, a number;
- concave:               ε_i = (w_y·x_i − w_r·x_i − 1 − θ)_+,      r its runner-up class, which stays a vector.

The second lies above the true ε_i and touches it at the last round's w, so such a round never increases the true
objective; the first has no such guarantee. The first round has no upper side at all (which makes it the squared-hinge
machine of Crammer and Singer), so that no class is preferred while all scores are zero.

**Dual of a round.** With ζ_il ≥ 0 for l ≠ y, S_i = Σ_l ζ_il and β_i ≥ 0, w_l = Σ_i v_il x_i where

    v_iy = S_i − β_i,    v_il = −ζ_il + β_i [concave and l = r]

    min  ½ Σ‖w_l‖² + Σ_i  S_i²/(4c_i) + β_i²/(4c_iμ) − (1 − θ) S_i + (1 + θ + M_i) β_i          (M_i = 0 if concave)

**Block step** (the paper's Algorithm 2, corrected). All but row i fixed, b_l the scores without its own part,
A = ‖x_i‖², h = 1/(2c), g = h/μ: the largest rivals are lowered to a common level t, ζ_l = (b_l − t)_+/A, where

    β = 0:  D = A + h,             q = 1 − θ − b_y,          if then A S ≤ F;  else
    β > 0:  D = h + A(E − A)/E,    q = 1 − θ − b_y − AF/E,   β = (A S − F)/E,    F = top + 1 + θ − b_y

    D S = q + t,   A S = Σ_l (b_l − t)_+,   E = A + g, top = M_i (frozen)  or  E = 2A + g, top = b_r (concave).

t comes from adding rivals in decreasing order of b_l. In the concave case ζ_r β = 0 (a row is not both short of the
band against its runner-up and beyond it), so r is no candidate when β > 0.

The certificate of a round is the Fenchel-Young sum of its rows, ½‖w − w̃‖² being zero because w is kept as Σ v_i x_i.

**Two ways through a round.** Coordinate descent steps through the rows and leaves out those that do not move until the
rest has settled; blocks are kept sparse. Where there are few columns times classes, the proximal method of multipliers
is used: the same block step with A_i = ρ h_i is the proximal map of a row's loss, its inner problems are piecewise
quadratic with a continuous slope, and Newton's method on all of w at once solves them whatever λ is.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import cho_factor, cho_solve

from margindist.solvers._rows import (
    add_entries,
    all_scores,
    dense_matrix,
    n_columns,
    n_rows,
    row_add_outer,
    row_scores,
    squares,
)

_ROOM = 4  # classes a block has room for at first
_ROUGH = 0.05  # gap of the first round: its upper side is not the one that counts
_CYCLE = 8  # passes over the rows that still move between two looks at the gap
_QUIET = 0.1  # rows that move less than this share of the largest move rest until then
_EXACT = 1e-10  # gap from which on a round that is not below the last one will not get there
_NARROW = 0.3  # factor of the proximal scale
_NARROWEST = 1e-6  # least part of it that is left
_LARGEST_SYSTEM = 600  # columns times classes up to which Newton systems are formed
_LARGEST_DENSE = 2 * 10**7  # entries of the arrays they take besides
_FEW_COLUMNS = 32  # up to which row after row is added to them; beyond, products of the rows by pairs of classes
_PART = 2**18  # scores held at a time
_FEW_ROWS = 1000  # rows up to which they are from the start
_PATIENCE = 300  # passes of coordinate descent in one round before they are


class _Losses(NamedTuple):
    """What every row pays; apart from the rows, so that most code is compiled once and not once a storage."""

    codes: np.ndarray  # class of each row
    prices: np.ndarray  # c_i
    squares: np.ndarray  # A_i
    mu: float
    theta: float
    n_classes: int
    total: float  # sum of the sample weights


class Rounds(NamedTuple):
    """Where the rounds ended; ``gap`` certifies the best round's convex problem, not the whole."""

    coef: np.ndarray  # (n_classes, n_columns)
    dual: "Blocks"
    objective: float  # the true one
    gap: float
    n_iter: int
    status: str  # "settled", "no longer improves", "no upper side changed", "iteration limit" or "stopped"
    history: np.ndarray  # true objective after each round
    opening: "Blocks | None" = None  # after the first round, unless that began from given ones


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


def _empty_blocks(m, capacity):
    begin = np.arange(m) * capacity
    return Blocks(
        begin, np.zeros(m, np.int64), np.full(m, capacity), np.zeros(m * capacity, np.int32), np.zeros(m * capacity),
        np.zeros(m), np.full(m, -1, np.int32), np.full(m, np.inf),
    )  # fmt: skip


def solve(
    objective, rows, codes, weights, *, outer="concave", method="auto", tol=1e-3, max_iter=1000, start=None,
    opening=None, rng=None, report=None,
):  # fmt: skip
    """Run rounds until the true objective has settled; keep the best one.

    Parameters
    ----------
    objective : ODM
        What to minimise.
    rows : DenseRows or SparseRows
        Training rows.
    codes : ndarray of shape (n_rows,)
        Classes 0 .. k - 1, each with at least one row.
    weights : ndarray of shape (n_rows,)
        Positive.
    outer : {"concave", "frozen"}
        The upper side of a round.
    method : {"auto", "newton", "coordinate-descent"}
        The way through a round.
    tol : float
        Relative duality gap to reach in a round, and relative decrease between rounds to stop at.
    max_iter : int
        Passes over the rows or Newton steps in all.
    start : Blocks
        Of a former solution for as many rows and classes.
    opening : Blocks
        After the first round of a solution that differs in mu only: without an upper side that round is the same.
    rng : numpy.random.Generator
        For the order of the rows.
    report : callable
        See :mod:`margindist.solvers._solution`; called once a round.

    Returns
    -------
    Rounds
    """
    m, k = n_rows(rows), int(codes.max()) + 1
    squares(rows, lengths := np.empty(m))
    losses = _Losses(codes, objective.prices(weights), lengths, objective.mu, objective.theta, k, weights.sum())
    concave = outer == "concave"
    ways = _Ways(rows, losses, method, np.random.default_rng(0) if rng is None else rng)
    W = np.zeros((n_columns(rows), -(-k // 4) * 4))
    blocks = _empty_blocks(m, min(k - 1, _ROOM)) if start is None else _first_side(rows, losses, start, W, concave)
    best, history, status, inner = None, [], "iteration limit", max(tol, _ROUGH)
    while True:
        bound = history[-1] if history and concave else np.inf
        first = start is None and not history
        if first and opening is not None:
            blocks, true, gap = opening, *_take_up(rows, losses, opening, W)
        else:
            blocks, true, gap = ways.run(blocks, W, bound, inner, max_iter)
        opening = blocks if first else opening
        if true > bound:  # not even an exact round gets below the last one, or there was no time for one
            return best._replace(n_iter=ways.n_iter, status=status if ways.n_iter >= max_iter else "settled")
        history.append(true)
        if best is None or true <= best.objective:
            best = Rounds(W[:, :k].T.copy(), blocks, true, gap, 0, "", np.array(history), opening)
        if report is not None and report(len(history), W[:, :k].T, true, gap):
            status = "stopped"
            break
        exact = gap <= tol
        if ways.n_iter >= max_iter:
            break
        decrease = (history[-2] - true) / true if len(history) > 1 else np.inf
        if exact and decrease <= tol:
            status = "settled" if decrease >= 0.0 else "no longer improves"
            break
        if np.isfinite(decrease):
            inner = max(tol, min(inner, 0.1 * decrease))
        blocks = Blocks(*(entry.copy() for entry in blocks))
        if _renew_upper_side(rows, losses, blocks, W, concave) == 0:
            if exact:
                status = "no upper side changed"
                break
            inner = tol
    return best._replace(n_iter=ways.n_iter, status=status, history=np.array(history))


def _take_up(rows, losses, blocks, W):
    """Fill W with the weights of known blocks; return the true objective and the gap of their round."""
    add_entries(rows, *coefficients(losses.codes, blocks), W)
    return _certificate(rows, losses, blocks, W)[1:]


def _first_side(rows, losses, start, W, concave):
    """Return the blocks to start from, W filled with their weights; β of another rule is forgotten."""
    blocks = Blocks(*(entry.copy() for entry in start))
    if concave != (blocks.rival[0] >= 0):
        blocks.beta[:] = 0.0
        blocks.rival[:] = -1
    add_entries(rows, *coefficients(losses.codes, blocks), W)
    _renew_upper_side(rows, losses, blocks, W, concave)
    return blocks


def coefficients(codes, blocks):
    """Return rows, classes and values of the coefficients v that are not zero (several values may meet)."""
    everything = np.arange(len(codes))
    owner = np.repeat(everything, blocks.length)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(blocks.length) - blocks.length, blocks.length)
    place = blocks.begin[owner] + within
    zeta = blocks.zeta[place]
    own = np.bincount(owner, weights=zeta, minlength=len(codes)) - blocks.beta
    beyond = np.flatnonzero((blocks.beta > 0.0) & (blocks.rival >= 0))
    return (
        np.concatenate([owner, everything, beyond]),
        np.concatenate([blocks.classes[place], codes, blocks.rival[beyond]]).astype(np.int64),
        np.concatenate([-zeta, own, blocks.beta[beyond]]),
    )


def _renew_upper_side(rows, losses, blocks, W, concave):
    """Let every row's upper side touch its true loss at W; return how many upper sides changed.

    The part of β that sat with the old runner-up moves to the new one, in W too.
    """
    best, top = np.empty(len(losses.codes), np.int32), np.empty(len(losses.codes))
    for first, U in _scores_by_parts(rows, losses, W):
        part = np.arange(len(U))
        U[part, losses.codes[first : first + len(U)]] = -np.inf
        best[first : first + len(U)] = U[:, : losses.n_classes].argmax(axis=1)
        top[first : first + len(U)] = U[part, best[first : first + len(U)]]
    if not concave:
        changed = np.count_nonzero(blocks.ceiling != top)
        blocks.ceiling[:] = top
        return changed
    changed = np.flatnonzero(best != blocks.rival)
    moving = changed[blocks.beta[changed] > 0.0]
    add_entries(rows, moving, best[moving].astype(np.int64), blocks.beta[moving], W)
    add_entries(rows, moving, blocks.rival[moving].astype(np.int64), -blocks.beta[moving], W)
    blocks.rival[:], blocks.ceiling[:] = best, 0.0
    return len(changed)


def _scores_by_parts(rows, losses, W):
    """Yield first row and scores of some rows after the other."""
    m, size = len(losses.codes), max(1, _PART // W.shape[1])
    for first in range(0, m, size):
        yield first, all_scores(rows, first, W, np.empty((min(size, m - first), W.shape[1])))


def _certificate(rows, losses, blocks, W):
    """Return the value of this round, the true objective, and the gap of the round relative to its value."""
    parts = [_certify(losses, blocks, first, U) for first, U in _scores_by_parts(rows, losses, W)]
    return _relative_to(W, *np.sum(parts, axis=0))


def _relative_to(W, loss, true, total):
    norm = 0.5 * np.vdot(W, W)
    return norm + loss, norm + true, total / (norm + loss)


def prefers_newton(rows, n_classes):
    """Tell whether rounds are so small that Newton steps are the way through them from the start."""
    return _allows_newton(rows, n_classes) and n_rows(rows) <= _FEW_ROWS


def _allows_newton(rows, n_classes):
    m, d = n_rows(rows), n_columns(rows)
    return d * n_classes <= _LARGEST_SYSTEM and m * max(d, n_classes**2) <= _LARGEST_DENSE


class _Ways:
    """The ways through a round, and when to take which."""

    def __init__(self, rows, losses, method, rng):
        self.rows, self.losses, self.rng, self.n_iter = rows, losses, rng, 0
        small = _allows_newton(rows, losses.n_classes)
        self.patience = _PATIENCE if method == "auto" and small else np.inf
        self.newton = method == "newton" or (method == "auto" and prefers_newton(rows, losses.n_classes))

    def run(self, blocks, W, bound, tol, max_iter):
        """Solve one round; return its blocks, the true objective and the relative gap."""
        if not self.newton:
            limit = min(max_iter - self.n_iter, self.patience)
            blocks, n_iter, true, gap, done = _descend(self.rows, self.losses, blocks, W, bound, tol, limit, self.rng)
            self.n_iter += n_iter
            if done or self.n_iter >= max_iter:
                return blocks, true, gap
            self.newton = True
        X = dense_matrix(self.rows)
        blocks, n_iter, true, gap = _newton(X, self.losses, blocks, W, bound, tol, max_iter - self.n_iter)
        self.n_iter += n_iter
        return blocks, true, gap


def _is_done(value, gap, bound, tol):
    """Tell whether a round has ended: exact enough and below the last one, or so exact that it never will be."""
    return gap <= tol and (value <= bound or gap <= _EXACT)


def _descend(rows, losses, blocks, W, bound, tol, max_iter, rng):
    """Cycle through the rows; return blocks, passes, true objective, gap, and whether the round is done."""
    m, visited, quiet = len(losses.codes), 0, 0.0
    used = int((blocks.begin + blocks.capacity).max())
    while True:
        order, first = rng.permutation(m), 0.0
        for _ in range(_CYCLE):
            blocks, used, moved, left = _pass(rows, losses, blocks, W, order, used, quiet)
            visited += len(order)
            first, quiet = first or moved, _QUIET * moved
            order = rng.permutation(order[:left])
            if left == 0 or moved < 0.1 * first:
                break
        value, true, gap = _certificate(rows, losses, blocks, W)
        done, n_iter = _is_done(value, gap, bound, tol), -(-visited // m)
        if done or n_iter >= max_iter:
            return blocks, n_iter, true, gap, done


def _pass(rows, losses, blocks, W, order, used, quiet):
    """Step through the rows, enlarging the pool when it is full; return also the largest move and who moved."""
    stats, at = np.zeros(2), 0
    while True:
        at, used = _sweep(rows, losses, blocks, W, order, at, used, quiet, stats)
        if at == len(order):
            return blocks, used, stats[0], int(stats[1])
        more = max(losses.n_classes, len(blocks.zeta) // 2)
        blocks = blocks._replace(
            classes=np.append(blocks.classes, np.zeros(more, np.int32)), zeta=np.append(blocks.zeta, np.zeros(more))
        )


def _newton(X, losses, blocks, W, bound, tol, max_iter):
    """Follow the proximal method of multipliers; return blocks, steps, true objective and gap.

    The scale of the proximal map falls from step to step; a row's is inverse to its weight, so that a row of weight
    two moves as two equal rows do.
    """
    d, k = len(W), losses.n_classes
    blocks = _spread(blocks, k - 1)
    ahead = Blocks(*(entry.copy() for entry in blocks))
    mean_square = (losses.prices @ losses.squares) / losses.prices.sum()
    typical = 0.5 * losses.total / losses.prices.sum()
    width = min(1.0, mean_square / typical if mean_square > 0.0 else 1.0) * 0.5 / losses.prices
    narrowest = _NARROWEST * width
    U, V, dW = X @ W, np.empty((len(X), W.shape[1])), np.zeros_like(W)
    n_iter, goal = 0, tol
    while True:
        n_iter += 1
        while True:
            _proximal(losses, blocks, width, U, ahead, V)
            G = W - X.T @ V
            value, _, gap = _relative_to(W, *_certify(losses, ahead, 0, U))
            rest = 0.5 * np.vdot(G, G) / value
            if rest <= 0.1 * max(gap, 0.1 * goal) or n_iter >= max_iter:
                break
            factor = cho_factor(_hessian(X, losses, ahead, width), lower=True, overwrite_a=True, check_finite=False)
            dW[:, :k] = cho_solve(factor, -G.T[:k].ravel(), check_finite=False).reshape(k, d).T
            dU = X @ dW
            step = _find_step(losses, blocks, width, W, U, dW, dU)
            W += step * dW
            U += step * dU
            n_iter += 1
        blocks, ahead = ahead, blocks
        width = np.maximum(_NARROW * width, narrowest)
        if rest + gap > goal and n_iter < max_iter:
            continue
        combined = X.T @ V
        value, true, gap = _relative_to(combined, *_certify(losses, blocks, 0, X @ combined))
        if _is_done(value, gap, bound, tol) or n_iter >= max_iter:
            W[:] = combined
            return blocks, n_iter, true, gap
        goal *= 0.1  # the weights that the coefficients combine to are less exact than W


def _hessian(X, losses, blocks, width):
    """Return ``I + Σ x x' ⊗ J`` (lower triangle), classes outermost."""
    d, k = X.shape[1], losses.n_classes
    J = _curvatures(losses, blocks, width, np.zeros((len(X), k, k)))
    H = np.eye(d * k)
    if d <= _FEW_COLUMNS:
        return _add_outer_products(X, J, H)
    for a in range(k):
        for c in range(a + 1):
            which = np.flatnonzero(J[:, a, c])
            if len(which):
                part = X[which]
                H[a * d : (a + 1) * d, c * d : (c + 1) * d] += part.T @ (J[which, a, c, None] * part)
    return H


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_outer_products(X, J, H):
    d, k = X.shape[1], J.shape[1]
    for i in range(len(X)):
        x = X[i]
        for a in range(k):
            for c in range(a + 1):
                scale = J[i, a, c]
                if scale != 0.0:
                    for p in range(d):
                        step, line = scale * x[p], H[a * d + p, c * d : (c + 1) * d]
                        for q in range(d):
                            line[q] += step * x[q]
    return H


def _spread(blocks, capacity):
    """Return the same blocks with this much room each."""
    wide = _empty_blocks(len(blocks.beta), capacity)
    for i in np.flatnonzero(blocks.length):
        old, n = blocks.begin[i], blocks.length[i]
        wide.classes[wide.begin[i] : wide.begin[i] + n] = blocks.classes[old : old + n]
        wide.zeta[wide.begin[i] : wide.begin[i] + n] = blocks.zeta[old : old + n]
    return wide._replace(
        length=blocks.length.copy(), beta=blocks.beta.copy(), rival=blocks.rival, ceiling=blocks.ceiling
    )


def _find_step(losses, blocks, width, W, U, dW, dU):
    """Return a step along dW where the slope has fallen below half its first value."""
    linear, square = np.vdot(W, dW), np.vdot(dW, dW)
    first = _pull_along(losses, blocks, width, U, dU, 0.0) - linear
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(40):
        now = linear + t * square - _pull_along(losses, blocks, width, U, dU, t)
        if abs(now) <= 0.5 * first:
            break
        low, high = (t, high) if now < 0.0 else (low, t)
        t = 0.5 * (low + high) if np.isfinite(high) else 2.0 * t
    return t


@njit(cache=True, nogil=True)
def _proximal(losses, blocks, width, U, ahead, V):
    """Fill ``ahead`` and its coefficients V with what the scores U lead to from ``blocks``."""
    k = U.shape[1]
    v, rivals, zeta = np.empty(k), np.empty(k, np.int64), np.empty(k)
    for i in range(len(U)):
        y = losses.codes[i]
        v[:] = 0.0
        _own_part(blocks, i, y, v)
        b = U[i] - width[i] * v
        n, _, beta = block_step(
            b[: losses.n_classes], y, width[i], losses.prices[i], losses.mu, losses.theta,
            blocks.rival[i], blocks.ceiling[i], rivals, zeta,
        )  # fmt: skip
        _store(ahead, i, n, rivals, zeta, beta)
        V[i] = 0.0
        _own_part(ahead, i, y, V[i])


@njit(cache=True, nogil=True)
def _pull_along(losses, blocks, width, U, dU, t):
    """Return the inner product of dU with the multipliers that the scores U + t dU lead to."""
    k, total = U.shape[1], 0.0
    v, rivals, zeta = np.empty(k), np.empty(k, np.int64), np.empty(k)
    for i in range(len(U)):
        y = losses.codes[i]
        v[:] = 0.0
        _own_part(blocks, i, y, v)
        b = U[i] + t * dU[i] - width[i] * v
        n, S, beta = block_step(
            b[: losses.n_classes], y, width[i], losses.prices[i], losses.mu, losses.theta,
            blocks.rival[i], blocks.ceiling[i], rivals, zeta,
        )  # fmt: skip
        total += (S - beta) * dU[i, y]
        if blocks.rival[i] >= 0:
            total += beta * dU[i, blocks.rival[i]]
        for c in range(n):
            total -= zeta[c] * dU[i, rivals[c]]
    return total


@njit(cache=True, nogil=True)
def _curvatures(losses, blocks, width, J):
    """Fill J with the derivative of every row's coefficients by its scores, negated; return it."""
    k = losses.n_classes
    classes = np.empty(k + 1, np.int64)
    for i in range(len(J)):
        n, y, r, beta = blocks.length[i], losses.codes[i], blocks.rival[i], blocks.beta[i]
        A, h = width[i], 0.5 / losses.prices[i]
        share, stiff = 0.0, 0.0  # A/E and 1/E where beta > 0
        if beta > 0.0:
            stiff = 1.0 / ((A if r < 0 else 2.0 * A) + h / losses.mu)
            share = A * stiff
        D = h + A * (1.0 - share)
        N = A + n * D
        for c in range(n):
            classes[c] = blocks.classes[blocks.begin[i] + c]
        for a in range(n):
            for c in range(n):
                J[i, classes[a], classes[c]] = ((a == c) - D / N) / A
            J[i, classes[a], y] = J[i, y, classes[a]] = -(1.0 - share) / N
        J[i, y, y] = (1.0 - share) ** 2 * n / N + stiff
        if beta > 0.0 and r >= 0:
            for a in range(n):
                J[i, classes[a], r] = J[i, r, classes[a]] = -share / N
            J[i, r, r] = share**2 * n / N + stiff
            J[i, y, r] = J[i, r, y] = share * (1.0 - share) * n / N - stiff
    return J


@njit(cache=True, nogil=True)
def _level(b, y, skip, A, D, q, order, zeta):
    """Lower the largest of ``b`` to a common level; return how many and the sum S of their multipliers."""
    k, n, total, t = len(b), 0, 0.0, -q
    count = 0
    for l in range(k):
        if l != y and l != skip and b[l] > t:
            order[count] = l
            count += 1
    while n < count:
        best = n
        for c in range(n + 1, count):
            if b[order[c]] > b[order[best]]:
                best = c
        if b[order[best]] <= t:
            break
        order[n], order[best] = order[best], order[n]
        total += b[order[n]]
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
        for c in range(n):
            zeta[c] *= S / lowered
    return n, S


@njit(cache=True, nogil=True)
def block_step(b, y, A, price, mu, theta, rival, ceiling, order, zeta):
    """Solve one row's dual losses; return how many classes of ``order`` have a ``zeta`` > 0, their sum S, and beta."""
    h = 0.5 / price
    q = 1.0 - theta - b[y]
    n, S = _level(b, y, -1, A, A + h, q, order, zeta)
    F = (ceiling if rival < 0 else b[rival]) + 1.0 + theta - b[y]
    if A * S <= F:
        return n, S, 0.0
    E = (A if rival < 0 else 2.0 * A) + h / mu
    n, S = _level(b, y, rival, A, h + A * (E - A) / E, q - A * F / E, order, zeta)
    return n, S, max(0.0, (A * S - F) / E)


@njit(cache=True, nogil=True)
def _own_part(blocks, i, y, v):
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
def _store(blocks, i, n, order, zeta, beta):
    begin = blocks.begin[i]
    for c in range(n):
        blocks.classes[begin + c] = order[c]
        blocks.zeta[begin + c] = zeta[c]
    blocks.length[i] = n
    blocks.beta[i] = beta


@njit(cache=True, nogil=True)
def _sweep(rows, losses, blocks, W, order, first, used, quiet, stats):
    """Step through the rows from ``order[first]`` on; stop where the pool of blocks (``used`` of it) is full.

    Returns where it stopped and how much of the pool is used. ``stats`` gets the largest movement of a row and how many
    rows at the front of ``order`` moved more than ``quiet``: those to visit again.
    """
    k = W.shape[1]
    b, v, change = np.empty(k), np.zeros(k), np.empty(k)
    rivals, zeta = np.empty(k, np.int64), np.empty(k)
    touched = np.empty(k, np.int64)
    for p in range(first, len(order)):
        i = order[p]
        y, A = losses.codes[i], losses.squares[i]
        row_scores(rows, i, W, b)
        _own_part(blocks, i, y, v)
        for l in range(k):
            if v[l] != 0.0:
                b[l] -= A * v[l]
        n, S, beta = block_step(
            b[: losses.n_classes], y, A, losses.prices[i], losses.mu, losses.theta,
            blocks.rival[i], blocks.ceiling[i], rivals, zeta,
        )  # fmt: skip
        if n > blocks.capacity[i]:
            capacity = min(max(n, 2 * blocks.capacity[i]), losses.n_classes - 1)
            if used + capacity > len(blocks.zeta):
                v[:] = 0.0
                return p, used
            blocks.begin[i], blocks.capacity[i] = used, capacity
            used += capacity
        for c in range(n):
            v[rivals[c]] += zeta[c]
        v[y] -= S - beta
        if blocks.rival[i] >= 0:
            v[blocks.rival[i]] -= beta
        moved, n_touched = 0.0, 0
        for l in range(k):
            if v[l] != 0.0:
                touched[n_touched], change[n_touched] = l, -v[l]
                n_touched += 1
                moved = max(moved, abs(v[l]))
                v[l] = 0.0
        moved *= np.sqrt(A)
        if moved > 0.0:
            row_add_outer(rows, i, touched, change, n_touched, W)
        _store(blocks, i, n, rivals, zeta, beta)
        stats[0] = max(stats[0], moved)
        if moved > quiet:
            front = int(stats[1])
            order[p], order[front] = order[front], i
            stats[1] += 1.0
    return len(order), used


@njit(cache=True, nogil=True)
def _certify(losses, blocks, first, U):
    """Return the loss of this round, the true loss, and the Fenchel-Young sum, of the rows from ``first`` on."""
    k = losses.n_classes
    loss, true, total = 0.0, 0.0, 0.0
    for p in range(len(U)):
        i, u = first + p, U[p]
        y, c, beta = losses.codes[i], losses.prices[i], blocks.beta[i]
        highest = -np.inf
        for l in range(k):
            if l != y and u[l] > highest:
                highest = u[l]
        top = blocks.ceiling[i] if blocks.rival[i] < 0 else u[blocks.rival[i]]
        short = max(0.0, 1.0 - losses.theta - u[y] + highest)
        beyond = max(0.0, u[y] - top - 1.0 - losses.theta)
        really = max(0.0, u[y] - highest - 1.0 - losses.theta)
        below, above = c * short * short, c * losses.mu * beyond * beyond
        loss += below + above
        true += below + c * losses.mu * really * really
        S = 0.0
        for q in range(blocks.begin[i], blocks.begin[i] + blocks.length[i]):
            S += blocks.zeta[q]
            below -= blocks.zeta[q] * (1.0 - losses.theta - u[y] + u[blocks.classes[q]])
        total += max(0.0, below + 0.25 * S * S / c)
        if beta > 0.0:
            above -= beta * (u[y] - top - 1.0 - losses.theta)
        total += max(0.0, above + 0.25 * beta * beta / (c * losses.mu))
    return loss, true, total
