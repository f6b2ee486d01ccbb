r"""Multi-class optimal margin distribution machine: rounds of convex problems, solved in blocks.

Problem (Zhang & Zhou 2017, eq. 1), k weight vectors, margins γ_i = w_y·x_i − max_{l≠y} w_l·x_i:

    min  ½ Σ‖w_l‖² + Σ_i c_i (ξ_i² + μ ε_i²),    ξ_i = (1 − θ − γ_i)_+,  ε_i = (γ_i − 1 − θ)_+,  c_i = λ s_i / (M (1−θ)²)

ξ_i is convex in w, ε_i is not. Each *round* replaces ε_i by a convex upper side, known from the last round's w:

- frozen (the paper's):  ε_i = (w_y·x_i − M_i − 1 − θ)_+,          M_i = max_{l≠y} w_l·x_i of the last round, a number;
- concave:               ε_i = (w_y·x_i − w_r·x_i − 1 − θ)_+,      r its runner-up class, which stays a vector.

The second lies above the true ε_i and touches it at the last round's w, so such a round never increases the true
objective; the first has no such guarantee. The first round has no upper side at all (which makes it the squared-hinge
machine of Crammer and Singer), so that no class is preferred while all scores are zero.

**Dual of a round.** With ζ_il ≥ 0 for l ≠ y, S_i = Σ_l ζ_il and β_i ≥ 0, w_l = Σ_i v_il x_i where

    v_iy = S_i − β_i,    v_il = −ζ_il + β_i [concave and l = r]

    min  ½ Σ‖w_l‖² + Σ_i  S_i²/(4c_i) + β_i²/(4c_iμ) − (1 − θ) S_i + (1 + θ + M_i) β_i          (M_i = 0 if concave)

**Block step** (the paper's Algorithm 2, corrected). All but row i fixed, b_l the scores without its own part, A = ‖x_i‖²,
h = 1/(2c), g = h/μ: the rivals that stay are lowered to a common level t, ζ_l = (b_l − t)_+/A, where

    β = 0:  D = A + h,             q = 1 − θ − b_y,          if then A S ≤ F;  else
    β > 0:  D = h + A(E − A)/E,    q = 1 − θ − b_y − AF/E,   β = (A S − F)/E,    F = top + 1 + θ − b_y

    D S = q + t,   A S = Σ_l (b_l − t)_+,   E = A + g, top = M_i (frozen)  or  E = 2A + g, top = b_r (concave).

t comes from adding rivals in decreasing order of b_l. In the concave case ζ_r β = 0 (a row is not both short of the band
against its runner-up and beyond it), so r is no candidate when β > 0.

The certificate of a round is the Fenchel-Young sum of its rows, ½‖w − w̃‖² being zero because w is kept as Σ v_i x_i.

**Two ways through a round.** Coordinate descent steps through the rows and leaves out those that do not move until the
rest has settled; blocks are kept sparse. Where there are few columns times classes, the proximal method of multipliers is
used: the same block step with A_i = ρ h_i is the proximal map of a row's loss, its inner problems are piecewise
quadratic with a continuous slope, and Newton's method on all of w at once solves them whatever λ is.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import cho_factor, cho_solve

from margindist.solvers._rows import n_columns, n_rows, row_add_outer, row_copy, row_scores, squares


class MulticlassSolution(NamedTuple):
    """Where the rounds ended; ``gap`` certifies the last convex problem, not the whole."""

    coef: np.ndarray  # (n_classes, n_columns)
    blocks: "Blocks"
    objective: float  # the true one
    gap: float
    n_iter: int
    status: str
    history: np.ndarray  # true objective after each round


class _Problem(NamedTuple):
    rows: tuple
    codes: np.ndarray  # class of each row
    prices: np.ndarray  # c_i
    squares: np.ndarray  # A_i
    mu: float
    theta: float
    n_classes: int


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
    objective, rows, codes, weights, *, outer="concave", method="auto", tol=1e-3, max_iter=1000, start=None, rng=None,
    report=None,
):  # fmt: skip
    """Run rounds until the true objective has settled; keep the best one.

    Parameters
    ----------
    objective : ODM
    rows : DenseRows or SparseRows
    codes : ndarray of shape (n_rows,), classes 0 .. k - 1, each with at least one row
    weights : ndarray of shape (n_rows,), positive
    outer : {"concave", "frozen"}, the upper side of a round
    method : {"auto", "newton", "coordinate-descent"}, the way through a round
    tol : float, relative duality gap to reach in a round, and relative decrease between rounds to stop at
    max_iter : int, passes over the rows or Newton steps in all
    start : Blocks to start from
    rng : numpy.random.Generator, for the order of the rows
    report : callable, see :mod:`margindist.solvers._solution`; called once a round

    Returns
    -------
    MulticlassSolution
    """
    m, k = n_rows(rows), int(codes.max()) + 1
    squares(rows, lengths := np.empty(m))
    problem = _Problem(rows, codes, objective.prices(weights), lengths, objective.mu, objective.theta, k)
    rng = np.random.default_rng(0) if rng is None else rng
    blocks = _empty_blocks(m, min(k - 1, 4) if method != 'newton' else k - 1)
    W = np.zeros((n_columns(rows), -(-k // 4) * 4))
    history, n_iter, best = [], 0, None
    changed, inner = -1, max(tol, 1e-2)
    while True:
        bound = history[-1] if history and outer == "concave" else np.inf
        if method == "newton":
            blocks, passes, value, true, gap = _newton(problem, blocks, W, bound, inner, max_iter-n_iter)
        else:
            blocks, passes, value, true, gap = _descend(problem, blocks, W, bound, inner, max_iter-n_iter, rng)
        n_iter += passes
        history.append(true)
        if VERBOSE: print(len(history), passes, inner, changed, value, true, gap)
        if best is None or true < best[0]:
            best = (true, W.copy(), blocks, gap)
        if n_iter >= max_iter: break
        if len(history) > 1:
            decrease = (history[-2]-true)/true
            if decrease < tol and inner <= tol:
                break
            inner = max(tol, min(inner, 0.1*decrease))
        changed = _renew_upper_side(problem, blocks, W, outer == "concave")
    return MulticlassSolution(best[1].T[:k], blocks, best[0], best[3], n_iter, "", np.array(history))

VERBOSE=1
CYC=8
QUIET=0.1
def _descend(problem, blocks, W, bound, tol, max_iter, rng):
    """Cycle through the rows until the gap of this round is small; return its numbers."""
    m = len(problem.codes)
    passes = 0
    quiet = 0.0
    used = int((blocks.begin + blocks.capacity).max())
    while True:
        order = rng.permutation(m)
        inner = 0
        while len(order) and inner < CYC:
            stats = np.zeros(2)
            blocks, used = _whole_sweep(problem, blocks, W, order, used, quiet, stats)
            passes += len(order)/m
            inner += 1
            if inner == 1:
                first = stats[0]
            elif stats[0] < 0.1*first:
                break
            quiet = QUIET * stats[0]
            order = rng.permutation(order[: int(stats[1])])
        loss, true, total = _certificate(problem, blocks, W)
        norm = 0.5 * np.vdot(W, W)
        value, gap = norm + loss, total / (norm + loss)
        if VERBOSE>1: print('   ', passes, inner, len(order), stats, value, gap)
        if (gap <= tol and value <= bound*(1+1e-12)) or passes >= max_iter:
            return blocks, passes, value, norm + true, gap


import os
RHO = float(os.environ.get('RHO','1'))
SHRINK=float(os.environ.get('SHRINK','.3'))
def _newton(problem, blocks, W, bound, tol, max_iter):
    """Follow the proximal method of multipliers until the gap of this round is small; return its numbers."""
    d, k = len(W), problem.n_classes
    spread = 0.5 / problem.prices
    width = RHO * min(1.0, problem.squares.mean() / spread.mean()) * spread
    U, V = np.empty((len(problem.codes), W.shape[1])), np.empty((len(problem.codes), W.shape[1]))
    ahead = Blocks(*(entry.copy() for entry in blocks))
    G, dW, dU = np.empty_like(W), np.zeros_like(W), np.empty_like(U)
    n_iter = 0
    while True:
        _all_scores(problem.rows, W, U)
        while True:
            _proximal(problem, blocks, width, U, ahead, V)
            _combine(problem, ahead, G)
            np.subtract(W, G, out=G)
            loss, _, total = _certificate(problem, ahead, W)
            value, rest = 0.5*np.vdot(W, W) + loss, 0.5*np.vdot(G, G)
            if VERBOSE>1: print('      ', n_iter, value, total/value, rest/value)
            if rest <= 0.1 * max(total, 0.1*tol * value) or n_iter >= max_iter:
                break
            H = _hessian(problem, ahead, width, np.zeros((d * k, d * k)))
            H.flat[:: d * k + 1] += 1.0
            factor = cho_factor(H.T, lower=False, overwrite_a=True, check_finite=False)
            dW[:, :k] = cho_solve(factor, -G.T[:k].ravel(), check_finite=False).reshape(k, d).T
            _all_scores(problem.rows, dW, dU)
            t = _find_step(problem, blocks, width, W, U, dW, dU)
            W += t * dW
            U += t * dU
            n_iter += 1
        blocks, ahead = ahead, blocks
        width = width * SHRINK
        if rest + total > tol * value and n_iter < max_iter:
            continue
        _combine(problem, blocks, G)
        loss, true, total = _certificate(problem, blocks, G)
        norm = 0.5*np.vdot(G, G)
        value, gap = norm + loss, total / (norm+loss)
        if VERBOSE>1: print('   ', n_iter, value, gap)
        if (gap <= tol and value <= bound*(1+1e-12)) or n_iter >= max_iter:
            W[:] = G
            return blocks, n_iter, value, norm + true, gap


def _find_step(problem, blocks, width, W, U, dW, dU):
    """Return a step along dW where the slope has fallen below half its first value."""
    linear, square = np.vdot(W, dW), np.vdot(dW, dW)
    def slope(t):
        return linear + t * square - _pull_along(problem, blocks, width, U, dU, t)
    first = -slope(0.0)
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(40):
        now = slope(t)
        if abs(now) <= 0.5 * first:
            break
        low, high = (t, high) if now < 0.0 else (low, t)
        t = 0.5 * (low + high) if np.isfinite(high) else 2.0 * t
    return t


@njit(cache=True, nogil=True)
def _all_scores(rows, W, U):
    for i in range(len(U)):
        row_scores(rows, i, W, U[i])


@njit(cache=True, nogil=True)
def _combine(problem, blocks, W):
    """Set W to the sum of all rows times their coefficients."""
    k = W.shape[1]
    v, classes, scales = np.zeros(k), np.empty(k, np.int64), np.empty(k)
    W[:] = 0.0
    for i in range(len(problem.codes)):
        _own_part(blocks, i, problem.codes[i], v)
        n = 0
        for l in range(k):
            if v[l] != 0.0:
                classes[n], scales[n] = l, v[l]
                v[l] = 0.0
                n += 1
        row_add_outer(problem.rows, i, classes, scales, n, W)


@njit(cache=True, nogil=True)
def _proximal(problem, blocks, width, U, ahead, V):
    """Fill ``ahead`` and V with the multipliers that the scores U lead to from ``blocks``."""
    k = U.shape[1]
    v, rivals, zeta = np.empty(k), np.empty(k, np.int64), np.empty(k)
    for i in range(len(U)):
        y = problem.codes[i]
        v[:] = 0.0
        _own_part(blocks, i, y, v)
        b = U[i] - width[i] * v
        n, S, beta = block_step(
            b[: problem.n_classes], y, width[i], problem.prices[i], problem.mu, problem.theta,
            blocks.rival[i], blocks.ceiling[i], rivals, zeta,
        )  # fmt: skip
        _store(ahead, i, n, rivals, zeta, beta)
        ahead.rival[i], ahead.ceiling[i] = blocks.rival[i], blocks.ceiling[i]


@njit(cache=True, nogil=True)
def _pull_along(problem, blocks, width, U, dU, t):
    """Return the inner product of dU with the multipliers that the scores U + t dU lead to."""
    k, total = U.shape[1], 0.0
    v, rivals, zeta = np.empty(k), np.empty(k, np.int64), np.empty(k)
    for i in range(len(U)):
        y = problem.codes[i]
        v[:] = 0.0
        _own_part(blocks, i, y, v)
        b = U[i] + t * dU[i] - width[i] * v
        n, S, beta = block_step(
            b[: problem.n_classes], y, width[i], problem.prices[i], problem.mu, problem.theta,
            blocks.rival[i], blocks.ceiling[i], rivals, zeta,
        )  # fmt: skip
        total += (S - beta) * dU[i, y]
        if blocks.rival[i] >= 0:
            total += beta * dU[i, blocks.rival[i]]
        for c in range(n):
            total -= zeta[c] * dU[i, rivals[c]]
    return total


@njit(cache=True, nogil=True)
def _curvature(problem, blocks, width, i, classes, J):
    """Write the derivative of row i's multipliers by its scores (negated), and its classes; return their number."""
    n, A, h, beta, r = blocks.length[i], width[i], 0.5 / problem.prices[i], blocks.beta[i], blocks.rival[i]
    size = n + 1
    for c in range(n):
        classes[c] = blocks.classes[blocks.begin[i] + c]
    classes[n] = problem.codes[i]
    share, E = 0.0, np.inf
    if beta > 0.0:
        E = (A if r < 0 else 2.0 * A) + h / problem.mu
        share = A / E
        if r >= 0:
            classes[n + 1] = r
            size += 1
    D = h + A * (1.0 - share)
    N = A + n * D
    for a in range(n):
        for c in range(n):
            J[a, c] = ((a == c) - D / N) / A
        for c in range(n, size):
            J[a, c] = J[c, a] = -(1.0 - share if c == n else share) / N
    J[n, n] = (1.0 - share) ** 2 * n / N + 1.0 / E
    if size == n + 2:
        J[n + 1, n + 1] = share**2 * n / N + 1.0 / E
        J[n, n + 1] = J[n + 1, n] = share * (1.0 - share) * n / N - 1.0 / E
    return size


@njit(cache=True, nogil=True)
def _hessian(problem, blocks, width, H):
    """Add ``Σ x x' ⊗ J`` to the lower triangle of H, classes outermost; return H."""
    k = problem.n_classes
    d = len(H) // k
    columns, values = np.empty(d, np.int64), np.empty(d)
    classes, J = np.empty(k + 1, np.int64), np.empty((k + 1, k + 1))
    for i in range(len(problem.codes)):
        size = _curvature(problem, blocks, width, i, classes, J)
        if size == 1 and blocks.beta[i] == 0.0:
            continue
        n = row_copy(problem.rows, i, columns, values)
        for a in range(size):
            for c in range(size):
                if classes[c] > classes[a] or J[a, c] == 0.0:
                    continue
                above, left = classes[a] * d, classes[c] * d
                for p in range(n):
                    target = H[above + columns[p]]
                    scale = J[a, c] * values[p]
                    for q in range(p + 1 if a == c else n):
                        target[left + columns[q]] += scale * values[q]
    return H


def _whole_sweep(problem, blocks, W, order, used, quiet, stats):
    at, used = _sweep(problem, blocks, W, order, 0, used, quiet, stats)
    while at < len(order):
        more = max(problem.n_classes, len(blocks.zeta) // 2)
        blocks = blocks._replace(classes=np.append(blocks.classes, np.zeros(more, np.int32)), zeta=np.append(blocks.zeta, np.zeros(more)))
        at, used = _sweep(problem, blocks, W, order, at, used, quiet, stats)
    return blocks, used


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
    """Solve one row's dual problem; return the number of classes in ``order`` with ``zeta`` > 0, their sum, and beta."""
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
def _sweep(problem, blocks, W, order, first, used, quiet, stats):
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
        y, A, old = problem.codes[i], problem.squares[i], blocks.beta[i]
        row_scores(problem.rows, i, W, b)
        _own_part(blocks, i, y, v)
        n_touched = 0
        for l in range(k):
            if v[l] != 0.0:
                b[l] -= A * v[l]
        n, S, beta = block_step(
            b[: problem.n_classes], y, A, problem.prices[i], problem.mu, problem.theta,
            blocks.rival[i], blocks.ceiling[i], rivals, zeta,
        )  # fmt: skip
        if n > blocks.capacity[i]:
            capacity = min(max(n, 2 * blocks.capacity[i]), problem.n_classes - 1)
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
        moved = 0.0
        for l in range(k):
            if v[l] != 0.0:
                touched[n_touched], change[n_touched] = l, -v[l]
                n_touched += 1
                moved = max(moved, abs(v[l]))
                v[l] = 0.0
        moved *= np.sqrt(A)
        if moved > 0.0:
            row_add_outer(problem.rows, i, touched, change, n_touched, W)
        _store(blocks, i, n, rivals, zeta, beta)
        stats[0] = max(stats[0], moved)
        if moved > quiet:
            front = int(stats[1])
            order[p], order[front] = order[front], i
            stats[1] += 1.0
    return len(order), used


@njit(cache=True, nogil=True)
def _certificate(problem, blocks, W):
    """Return the loss of this round, the true loss, and the Fenchel-Young sum, of all rows."""
    k = problem.n_classes
    u = np.empty(W.shape[1])
    loss, true, total = 0.0, 0.0, 0.0
    for i in range(len(problem.codes)):
        y, c, beta = problem.codes[i], problem.prices[i], blocks.beta[i]
        row_scores(problem.rows, i, W, u)
        highest = -np.inf
        for l in range(k):
            if l != y and u[l] > highest:
                highest = u[l]
        top = blocks.ceiling[i] if blocks.rival[i] < 0 else u[blocks.rival[i]]
        short = max(0.0, 1.0 - problem.theta - u[y] + highest)
        beyond = max(0.0, u[y] - top - 1.0 - problem.theta)
        really = max(0.0, u[y] - highest - 1.0 - problem.theta)
        below, above = c * short * short, c * problem.mu * beyond * beyond
        loss += below + above
        true += below + c * problem.mu * really * really
        S = 0.0
        for p in range(blocks.begin[i], blocks.begin[i] + blocks.length[i]):
            S += blocks.zeta[p]
            below -= blocks.zeta[p] * (1.0 - problem.theta - u[y] + u[blocks.classes[p]])
        total += max(0.0, below + 0.25 * S * S / c)
        if beta > 0.0:
            above -= beta * (u[y] - top - 1.0 - problem.theta)
        total += max(0.0, above + 0.25 * beta * beta / (c * problem.mu))
    return loss, true, total


@njit(cache=True, nogil=True)
def _renew_upper_side(problem, blocks, W, concave):
    """Let every row's upper side touch its true loss at W; return how many runner-up classes changed.

    The part of β that sat with the old runner-up moves to the new one, in W too.
    """
    k = problem.n_classes
    changed = 0
    u, classes, scales = np.empty(W.shape[1]), np.empty(2, np.int64), np.empty(2)
    old_W = W.copy()
    for i in range(len(problem.codes)):
        y = problem.codes[i]
        row_scores(problem.rows, i, old_W, u)
        best = -1
        for l in range(k):
            if l != y and (best < 0 or u[l] > u[best]):
                best = l
        if not concave:
            changed += blocks.ceiling[i] != u[best]
            blocks.ceiling[i] = u[best]
        elif best != blocks.rival[i]:
            changed += 1
            if blocks.beta[i] > 0.0:
                classes[0], scales[0], classes[1], scales[1] = best, blocks.beta[i], blocks.rival[i], -blocks.beta[i]
                row_add_outer(problem.rows, i, classes, scales, 2, W)
            blocks.rival[i], blocks.ceiling[i] = best, 0.0
    return changed
