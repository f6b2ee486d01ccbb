r"""Fast margin maximisation: accelerated descent on the dual of the maximum margin problem.

Signed rows x_i (their labels multiplied in) of length at most one, weights s that stand for repeated rows. With
w_0 = g_0 = 0, t = 0, 1, …, β_t = t/(t + 1) and a step θ in (0, 1],

    q_t = s e^{−z_t} / Σ s e^{−z_t},  z_t = x·w_t,    u_t = Σ_i q_{t,i} x_i,
    g_t = β_t (g_{t−1} + u_t),    w_{t+1} = w_t + θ (g_t + u_t)

u_t is the negative gradient of the exponential loss divided by its value, g_t a momentum. On separable data the
margin min z_t/‖w_t‖ comes within O((1 + ln n)(1 + ln t)/(γ t²)) of the largest possible one, γ (Ji, Srebro &
Telgarsky 2021, with θ = 1).

**The certificate.** For every distribution q, γ ≤ ‖Σ q_i x_i‖ (the hull of the signed rows is at distance γ from the
origin). Since (t + 1) g_t = Σ_{j ≤ t} j u_j, the vector 2g_t/t belongs to the distribution Σ_j j q_j · 2/(t(t + 1)),
so γ ≤ 2‖g_t‖/t comes for nothing, and the iteration stops when the margin reached is within ``tol`` of it. The sums
of the q_j, kept beside, are coefficients of the samples and serve kernels.

**Rounding.** The sums g_t gather the rounding of all steps, and features of a kernel lack its shortest directions. So
what is returned is computed once more, from the distribution and the coefficients themselves: with a Gram matrix G,
the margin min(y ∘ Gα)/√(αᵀGα) and the bound √(qᵀYGYq), else the bound ‖Σ q_i x_i‖. Rounding adds at most its share of
the longest row's length, for rows weighted by q are not longer.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.compilation import assign, njit
from margindist.solvers._kernel_certificate import rounding
from margindist.solvers._solution import Solution, Status, conclude
from margindist.spaces.rows import add_rows, n_columns, scores, squares

_MOST_STEPS = 10_000
_BETWEEN_REPORTS = 50
_CLOSEST = 0.1  # share of tol: if what is computed once more is not within tol from there on, rounding is the reason


class _State(NamedTuple):
    """What a pass changes in place."""

    w: np.ndarray
    g: np.ndarray
    z: np.ndarray
    a: np.ndarray  # w in terms of the rows
    h: np.ndarray  # g in terms of the rows
    best_w: np.ndarray
    best_a: np.ndarray
    best_h: np.ndarray  # the distribution of the least bound, but for a factor
    best: np.ndarray  # margin of best_w and bound, both for rows of length at most one


def solve(problem, options, start=None):
    """Maximise the least margin.

    Parameters
    ----------
    problem : Problem
        On rows; there is no objective to set, for the least margin is what is maximised.
    options : Options
        ``tol`` is the relative distance to the largest margin to reach. Choices are the "step", the θ above in (0, 1],
        and the "gram" matrix that the rows are features of: then margin and bound are those of this matrix, and the
        solution is in coefficients of the rows.
    start : Solution, optional
        Not used: the certificate needs all steps from zero on.

    Returns
    -------
    Solution
        The iterate of largest margin if the rows were separated, else the last one; of length one in feature space
        unless it is zero. The objective is the margin with a minus. ``extra`` has the least geometric margin on the
        training rows, "margin", and a "bound" that no hyperplane through the origin exceeds.
    """
    _, rows, signs, weights = problem
    step, gram = options.chosen(step=1.0, gram=None)
    tol, max_iter, report = options.tol, options.limit(_MOST_STEPS), options.report
    squares(rows, lengths := np.empty(len(signs)))
    radius = np.sqrt(lengths.max()) or 1.0
    m, d = len(signs), n_columns(rows)
    state = _State(*(np.zeros(k) for k in (d, d, m, m, m, d, m, m)), np.array([-np.inf, np.inf]))
    log_weights, t, distance, ended = np.log(weights), 0, tol, Status.ITERATION_LIMIT
    while t < max_iter:
        stop = min(max_iter, t + _BETWEEN_REPORTS)
        t = _steps(rows, signs / radius, log_weights, step, t, stop, 1.0 - distance, state)
        margin, bound = state.best
        if report is not None and report(t, state.w, -margin * radius, 1.0 - margin / bound):
            ended = Status.STOPPED
            break
        if margin < (1.0 - distance) * bound:
            continue
        if _found(rows, signs, radius, gram, state, t).gap <= tol:
            break
        distance *= 0.5
        if distance < _CLOSEST * tol:
            ended = Status.STALLED
            break
    result = _found(rows, signs, radius, gram, state, t)
    if result.extra["margin"] <= 0.0 and ended is not Status.STOPPED:
        return result._replace(status=Status.INSEPARABLE)
    return conclude(result, tol, ended)


def _found(rows, signs, radius, gram, state, t):
    """Return the solution so far, its margin and bound computed from the rows or from their Gram matrix."""
    w, combination = state.w, state.a
    if state.best[0] > 0.0:  # the rows are separated
        w, combination = state.best_w, state.best_a
    sample_coef = signs * combination / radius
    if gram is not None:  # what a clipped kernel maps to zero would leave its rounding
        sample_coef = gram.row_coefficients(sample_coef)
    total = state.best_h.sum()
    share = signs * state.best_h / (total or 1.0)
    least, square, slack, bound = _measure(rows, signs, radius, gram, w, sample_coef, share)
    if total == 0.0:
        bound = np.inf  # one step has no momentum
    if square <= slack:  # nothing is left but rounding
        w = np.zeros_like(w)
        sample_coef = np.zeros_like(sample_coef)
        least, square = 0.0, 0.0
    length = np.sqrt(square) or 1.0
    margin = least / length
    at_least = margin
    if margin > 0.0:  # but for rounding
        at_least = least / np.sqrt(square + slack) - rounding(len(w)) * radius
    gap = 1.0 - at_least / bound if bound > 0.0 else np.inf
    coef = w if gram is None else sample_coef
    return Solution(coef / length, None, -margin, gap, t, extra={"margin": margin, "bound": bound})


def _measure(rows, signs, radius, gram, w, sample_coef, share):
    """Return the least margin, the squared length and its error, and the bound of a distribution with signs."""
    error = rounding(len(signs))
    if gram is None:
        scores(rows, w, image := np.empty(len(signs)))
        pull = add_rows(rows, np.arange(len(signs)), share, np.zeros(len(w)))
        return np.min(signs * image), w @ w, 0.0, np.linalg.norm(pull) + error * radius
    image = gram.dot(sample_coef)
    lengths = np.sqrt(np.maximum(gram.diagonal, 0.0))
    slack = error * (lengths @ np.abs(sample_coef)) ** 2
    bound = np.sqrt(max(0.0, share @ gram.dot(share)) + error * (lengths @ np.abs(share)) ** 2)
    return np.min(signs * image), max(0.0, sample_coef @ image), slack, bound


def _steps(rows, signs, log_weights, step, begin, end, enough, state):
    """Take steps ``begin`` to ``end``; return how many were taken when the margin is ``enough`` times its bound."""
    every, q = np.arange(len(signs)), np.empty(len(signs))
    for t in range(begin, end):
        _weigh(state.z, log_weights, q)
        u = add_rows(rows, every, signs * q, np.zeros(len(state.w)))
        beta = t / (t + 1.0)
        _advance(beta, step, u, state.g, state.w)
        _advance(beta, step, q, state.h, state.a)
        scores(rows, state.w, state.z)
        _judge(t, signs, state)
        if state.best[0] >= enough * state.best[1]:
            return t + 1
    return end


@njit(cache=True, nogil=True)
def _weigh(z, log_weights, q):
    largest, total = -np.inf, 0.0
    for i in range(len(z)):
        q[i] = log_weights[i] - z[i]
        largest = max(largest, q[i])
    for i in range(len(z)):
        q[i] = np.exp(q[i] - largest)
        total += q[i]
    for i in range(len(z)):
        q[i] /= total


@njit(cache=True, nogil=True)
def _advance(beta, step, slope, momentum, point):
    for j in range(len(point)):
        momentum[j] = beta * (momentum[j] + slope[j])
        point[j] += step * (momentum[j] + slope[j])


@njit(cache=True, nogil=True)
def _judge(t, signs, state):
    """Turn scores into margins; keep the best point and the least bound."""
    w, g, z, a, h, best_w, best_a, best_h, best = state
    least, square_w, square_g = np.inf, 0.0, 0.0
    for i in range(len(z)):
        z[i] *= signs[i]
        least = min(least, z[i])
    for j in range(len(w)):
        square_w += w[j] * w[j]
        square_g += g[j] * g[j]
    margin = least / np.sqrt(square_w) if square_w > 0.0 else 0.0
    if margin > best[0]:
        best[0] = margin
        assign(best_w, w)
        assign(best_a, a)
    if t > 0 and 2.0 * np.sqrt(square_g) / t < best[1]:
        best[1] = 2.0 * np.sqrt(square_g) / t
        assign(best_h, h)


def solve_grid(problem, options):
    """Solve many problems on parts of the same rows at once, all of weight one, and look at them on the way.

    Rows outside a problem have probability zero in its q, and their scores come with the others. Problems that have
    reached the largest margin leave; the arrays of the others are then made smaller.

    Parameters
    ----------
    problem : Problem
        On an array or a CSR matrix, without an objective; its weights say which rows (first axis) belong to which
        problem.
    options : Options
        Choices are the "steps", one per problem, and the "stations", numbers of iterations in ascending order.

    Returns
    -------
    list of ndarray of shape (n_columns, n_problems)
        The weights after each of these numbers of iterations.
    """
    _, rows, signs, inside = problem
    steps, stations = options.chosen(steps=None, stations=())
    squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() if sp.issparse(rows) else np.sum(rows**2, axis=1)
    radius = np.sqrt(np.max(np.where(inside, squares[:, None], 0.0), axis=0))
    radius[radius == 0.0] = 1.0
    signed = np.where(inside, signs[:, None], 0.0) / radius
    beyond = np.where(inside, 0.0, np.inf)  # rows outside a fold's training part are never the nearest
    transposed = rows.T.tocsr() if sp.issparse(rows) else np.ascontiguousarray(rows.T)
    live = np.arange(inside.shape[1])
    w, g, best_w = (np.zeros((rows.shape[1], len(live))) for _ in range(3))
    best, bound = np.full(len(live), -np.inf), np.full(len(live), np.inf)
    result = [np.zeros_like(w) for _ in stations]
    z = beyond.copy()
    for t in range(stations[-1]):
        q = np.exp(np.min(z, axis=0) - z)
        q *= signed / q.sum(axis=0)
        u = transposed @ q
        g = t / (t + 1.0) * (g + u)
        w += steps * (g + u)
        z = rows @ w
        z *= signed
        z += beyond
        lengths = np.linalg.norm(w, axis=0)
        margin = np.divide(z.min(axis=0), lengths, out=np.zeros(len(live)), where=lengths > 0)
        better = margin > best
        best_w[:, better] = w[:, better]
        best = np.maximum(best, margin)
        if t > 0:
            bound = np.minimum(bound, 2.0 * np.linalg.norm(g, axis=0) / t)
        going = best < (1.0 - options.tol) * bound
        ended = t + 1 == stations[-1]
        for place, station in enumerate(stations):
            if station >= t + 1 and (station == t + 1 or not going.all()):
                now = slice(None) if station == t + 1 else ~going
                result[place][:, live[now]] = np.where(best > 0.0, best_w, w)[:, now]
        if not going.all() and not ended:
            live, steps, best, bound = live[going], steps[going], best[going], bound[going]
            w, g, best_w, z = (np.ascontiguousarray(part[:, going]) for part in (w, g, best_w, z))
            signed, beyond = (np.ascontiguousarray(part[:, going]) for part in (signed, beyond))
            if not len(live):
                break
    return result
