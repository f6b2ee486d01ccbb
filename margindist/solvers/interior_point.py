r"""Mehrotra's predictor-corrector method for hinge-type objectives with few columns.

Problem (:class:`~margindist.objectives.LDM`), signed rows Z, upper bounds U = C s:

    min  ½ w'Qw − q'w + Σ_S U_i ξ_i    s.t.  z_i − 1 + ξ_i = s_i,  s ≥ 0,  ξ ≥ 0  (i in S)

Mean and variance go into Q = I + Z'PZ and q = λ2 Z'p once and for all. Optimality, with multipliers β of the first
and e = U − β of the second inequality, and the Newton system that is left when all but dw is eliminated:

    Qw = q + Z_S'β,   s∘β = μ,   ξ∘e = μ
    (Q + Z_S'TZ_S) dw = q − Qw + Z_S'(β + tρ),   t_i = 1/(s_i/β_i + ξ_i/e_i),   dβ = t∘(ρ − Z_S dw),

with ρ = 1 − z for the predictor (Mehrotra 1992). A hard margin has no ξ: t = β/s. The number of iterations hardly
depends on C, where coordinate descent needs the more passes the larger C is.

The Gram product Z_S'TZ_S is nearly all the cost, so the *working set* S leaves out rows that are plainly on one side
of margin 1: those beyond it cost nothing, those short of it add U_i z_i to q'w. Rows join it as soon as they change
sides. The gap that ends the iteration counts all rows.

Fewer rows than columns span a subspace in which the weights lie: with the rows' coordinates in an orthonormal basis of
it, from one QR factorisation, the Gram product has the size of the rows.

The products s_i β_i and ξ_i e_i aim at μ times the row's weight: then a row of weight two takes, at every iteration,
the very values that two equal rows take.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr

from margindist.solvers._solution import Status, certify, conclude, require
from margindist.spaces.rows import (
    add_rows,
    as_rows,
    dense_matrix,
    gram,
    n_columns,
    n_rows,
    row_dot,
    scores,
    some_scores,
)

_MOST_ITERATIONS = 1000
_SHORTEN = 0.995  # fraction of the way to the boundary that a step goes
_LOOK = 3  # iterations between two looks at the rows outside the working set
_SMALL = 1000  # rows from which on making the working set smaller pays
_FEASIBLE = 1e-9  # a hard margin may be short by this before the result is scaled
_CENTRE = 0.5  # fraction of the products s∘β and ξ∘e that a step back towards the central path aims at
_CYCLE = 3  # iterations without progress after which to take such steps: Mehrotra's can go round in circles
_GIVE_UP = 30  # iterations without progress after which to end
_NO_STEP = 1e-10  # a step this short means that rounding has taken over
_SAMPLE_ABOVE = 20_000  # rows from which on a first guess from a sample of them pays
_NEAREST = 0.25  # fraction of the rows, nearest to margin 1, that the first guess is refined with


class _Point(NamedTuple):
    """One entry a row of the working set; used for the iterate and for the direction it moves in."""

    z: np.ndarray  # margins
    beta: np.ndarray  # multipliers of z - 1 + xi >= 0
    slack: np.ndarray  # z - 1 + xi
    xi: np.ndarray  # shortfall; stays 0 with a hard margin


class _Set(NamedTuple):
    """The working set; arrays have one entry a row of it."""

    rows: tuple
    which: np.ndarray
    signs: np.ndarray
    weights: np.ndarray
    upper: np.ndarray  # C times the weights


def solve(problem, options, start=None):
    """Minimise a hinge-type objective; cost an iteration is one Gram product of the columns.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective (:class:`~margindist.objectives.LDM`) on rows.
    options : Options
        One iteration is one Newton system; the generator draws the rows of a first guess.
    start : Solution, optional
        Whose coefficients to start from.

    Returns
    -------
    Solution
    """
    objective, rows, signs, weights = problem
    require(objective, "The interior point method", "cap", "bend", "pull")
    if n_rows(rows) < n_columns(rows):
        return _solve_in_span(problem, options, start)
    everything = np.arange(n_rows(rows))
    Q, q = quadratic_part(objective, rows, everything, signs, weights)
    whole = _Set(rows, everything, signs, weights, objective.upper(weights))
    guess = None if start is None else start.coef
    if guess is None and len(signs) > _SAMPLE_ABOVE and not objective.hard:
        guess = _guess_from_sample(whole, Q, q, options.generator())
    limit = options.limit(_MOST_ITERATIONS)
    w, beta, n_iter, ended = _minimise(whole, Q, q, guess, options.tol, limit, options.report)
    scores(rows, w, z := np.empty(len(signs)))
    z *= signs
    return conclude(certify(problem, w, z, beta)._replace(n_iter=n_iter), options.tol, ended)


def _solve_in_span(problem, options, start):
    """Minimise over the span of fewer rows than columns: the shortest weights with given margins lie in it."""
    basis, triangle = qr(dense_matrix(problem.space).T, mode="economic", check_finite=False)
    narrow = problem._replace(space=as_rows(np.ascontiguousarray(triangle.T)))
    report = None
    if options.report is not None:

        def report(n_iter, coef, value, gap):
            return options.report(n_iter, basis @ coef, value, gap)

    if start is not None:
        start = start._replace(coef=basis.T @ start.coef)
    found = solve(narrow, options._replace(report=report), start)
    w = basis @ found.coef
    scores(problem.space, w, z := np.empty(len(problem.signs)))
    proved = certify(problem, w, problem.signs * z, found.dual)
    return conclude(proved._replace(n_iter=found.n_iter), options.tol, found.status)


def quadratic_part(objective, rows, everything, signs, weights):
    """Return Q (lower triangle filled up) and q: the objective without its hinge."""
    share = weights / weights.sum()
    mean_row = add_rows(rows, everything, share * signs, np.zeros(n_columns(rows)))
    Q = np.eye(len(mean_row))
    if objective.bend > 0.0:
        variance = gram(rows, everything, objective.bend * share) - objective.bend * np.outer(mean_row, mean_row)
        Q += np.tril(variance) + np.tril(variance, -1).T
    return Q, objective.pull * mean_row


def _guess_from_sample(problem, Q, q, rng):
    """Solve roughly on some rows that stand for all."""
    m, d = len(problem.which), len(q)
    size = int(min(m / 3, max(60 * d, m / 16)))
    which = np.sort(rng.choice(m, size, replace=False))
    scale = problem.weights.sum() / problem.weights[which].sum()
    weights, upper = scale * problem.weights[which], scale * problem.upper[which]
    sample = problem._replace(which=which, signs=problem.signs[which], weights=weights, upper=upper)
    return _minimise(sample, Q, q, None, tol=1e-2, max_iter=50, report=None)[0]


def _minimise(problem, Q, q, start, tol, max_iter, report):
    """Follow the central path; return coefficients, multipliers of all rows, iterations and how it ended."""
    soft = np.isfinite(problem.upper[0])
    inside, short = _first_choice(problem, start)
    working, pull, lost = _split(problem, inside, short, q)
    w, point = _starting_point(working, Q, pull, start)
    ended = Status.STALLED
    least, since = np.inf, 0  # what the products and the residual came down to, and the iterations since then
    for n_iter in range(max_iter + 1):
        residual = add_rows(problem.rows, working.which, working.signs * point.beta, pull - Q @ w)
        loss, gap = _loss_and_complementarity(working.upper, point)
        gap += 0.5 * (residual @ residual)
        value = 0.5 * (w @ (Q @ w)) - pull @ w + lost + loss
        if not inside.all() and (gap <= 0.5 * tol * abs(value) or n_iter % _LOOK == 0):
            z = _margins(problem, w)
            joining = ~inside & (short != (z < 1.0))
            if joining.any():
                point = _join(problem, working, point, inside, joining, z)
                inside |= joining
                working, pull, lost = _split(problem, inside, short, q)
                residual = add_rows(problem.rows, working.which, working.signs * point.beta, pull - Q @ w)
                gap = least = np.inf
        if report is not None and report(n_iter, w, value, gap / abs(value)):
            ended = Status.STOPPED
            break
        if gap <= 0.5 * tol * abs(value):
            break
        if n_iter == max_iter:
            ended = Status.ITERATION_LIMIT
            break
        left = point.slack @ point.beta + 0.5 * (residual @ residual)
        if soft:
            left += point.xi @ (working.upper - point.beta)
        since = 0 if left < 0.9 * least else since + 1
        least = min(left, least)
        if since > _GIVE_UP:
            break
        try:
            dw, move, step = _step(working, Q, residual, point, bold=since < _CYCLE)
        except LinAlgError:
            step = 0.0
        if step < _NO_STEP:
            break
        w = w + step * dw
        for entry, change in zip(point, move, strict=True):
            entry += step * change
        if soft and len(move.z) > _SMALL and gap <= 0.1 * abs(value):
            settled = _settled(working.upper, point, move.z)
            if 0.1 < settled.mean() < 1.0:
                short[inside] = point.z < 1.0
                inside[inside] = ~settled
                point = _Point(*(entry[~settled] for entry in point))
                working, pull, lost = _split(problem, inside, short, q)
    beta = np.where(short, problem.upper, 0.0) if soft else np.zeros(len(short))
    beta[inside] = point.beta
    return w, beta, n_iter, ended


def _first_choice(problem, start):
    """Return which rows to work on, and which of the others are short of margin 1: by a guess, else all and none."""
    none = np.zeros(len(problem.which), dtype=bool)
    if start is None:
        return ~none, none
    beyond = _margins(problem, start) - 1.0
    if np.isfinite(problem.upper[0]):
        distance = np.abs(beyond)
        return distance <= np.quantile(distance, _NEAREST), beyond < 0.0
    return beyond <= max(0.0, np.quantile(beyond, _NEAREST)), none  # a hard margin leaves no row short


def _starting_point(working, Q, pull, start):
    """Minimise with parabolas for hinges, over the margins the working set spans; their slopes are the multipliers.

    Such a point nearly satisfies Qw = q + Z'beta, which halves the iterations against a start from w = 0.
    """
    hard = not np.isfinite(working.upper[0])
    upper = working.weights if hard else working.upper
    half, centre = 1.0, 0.0  # without a guess: multiplier 0 at margin 1, U at margin -1
    if start is not None:
        half, centre = np.abs(_margins(working, start) - 1.0).max() + 1e-3, 0.5
    slope = upper / (2.0 * half)
    system = gram(working.rows, working.which, slope)
    system += Q
    right = add_rows(working.rows, working.which, working.signs * (centre * upper + slope), pull.copy())
    w = cho_solve(_factorise(system), right, check_finite=False)
    z = _margins(working, w)
    beta = np.clip(centre * upper + slope * (1.0 - z), 0.05 * upper, 0.95 * upper)
    slack = np.maximum(z - 1.0, 0.0) + 0.5 * half
    return w, _Point(z, beta, slack, np.zeros_like(z) if hard else np.maximum(1.0 - z, 0.0) + 0.5 * half)


def _margins(working, w):
    z = some_scores(working.rows, working.which, w, np.empty(len(working.which)))
    z *= working.signs
    return z


def _split(problem, inside, short, q):
    """Return the working set, the linear term with the rows outside it, and the constant those add."""
    working = _Set(problem.rows, *(entry[inside] for entry in problem[1:]))
    outside = ~inside & short
    pull = add_rows(problem.rows, problem.which[outside], problem.upper[outside] * problem.signs[outside], q.copy())
    return working, pull, problem.upper[outside].sum()


def _join(problem, working, point, inside, joining, z):
    """Insert rows in the middle of their range: they were at one end of it and belong nearer the other."""
    upper, beyond = problem.upper[joining], z[joining] - 1.0
    mu = (point.slack @ point.beta) / working.weights.sum() * problem.weights[joining]
    new = _centre(z[joining], upper, np.maximum(mu, np.abs(beyond) * upper))
    merged = []
    for old_entry, new_entry in zip(point, new, strict=True):
        full = np.empty(len(z))
        full[inside], full[joining] = old_entry, new_entry
        merged.append(full[inside | joining])
    return _Point(*merged)


def _settled(upper, point, dz):
    """Tell which rows sit firmly on one side: multiplier at its bound, margin far off for the pace it moves at."""
    bound = np.where(point.z > 1.0, point.beta, upper - point.beta)
    return (bound < 1e-3 * upper) & (np.abs(point.z - 1.0) > 10.0 * np.abs(dz))


def _centre(z, upper, mu):
    """Return the point with these margins and s beta = xi (U - beta) = mu, s - xi = z - 1."""
    if not np.isfinite(upper[0]):
        slack = np.maximum(z - 1.0, 0.1)
        return _Point(z, np.ones_like(z), slack, np.zeros_like(z))
    bend = (z - 1.0) * upper
    beta = 2.0 * mu * upper / (bend + 2.0 * mu + np.hypot(bend, 2.0 * mu))
    return _Point(z, beta, mu / beta, mu / (upper - beta))


def _factorise(system):
    """Return the Cholesky factor of a matrix whose lower triangle is filled, in its place."""
    return cho_factor(system.T, lower=False, overwrite_a=True, check_finite=False)


def _step(working, Q, residual, point, bold):
    """Return the direction in w and in the row variables, and how far to go along it.

    Mehrotra's direction is ``bold``; the other one goes back towards the central path.
    """
    rows, which = working.rows, working.which
    pairs = 2 if np.isfinite(working.upper[0]) else 1
    move = _Point(*(np.empty_like(point.z) for _ in range(4)))
    t, rho, coef = (np.empty_like(point.z) for _ in range(3))
    _linearise(working, point, t, coef)
    system = gram(rows, which, t)
    system += Q
    factor = _factorise(system)
    dw = cho_solve(factor, add_rows(rows, which, coef, residual.copy()), check_finite=False)
    length, now, slope, bend = _predict(working, dw, point, t, move)
    ahead = now + length * (slope + length * bend)
    centring, bends = ((ahead / now) ** 3, 1.0) if bold else (_CENTRE, 0.0)
    target = centring * now / (pairs * working.weights.sum())
    _correct(working, target, bends, point, t, move, rho, coef)
    dw = cho_solve(factor, add_rows(rows, which, coef, residual.copy()), check_finite=False)
    step = min(1.0, _SHORTEN * _direct(working, dw, point, t, rho, move))
    return dw, move, step if np.isfinite(dw).all() else 0.0


@njit(cache=True, nogil=True)
def _loss_and_complementarity(upper, point):
    """Return the hinge loss, and its excess over what the multipliers account for; a hard margin has no loss."""
    loss, total, worst = 0.0, 0.0, 0.0
    for i in range(len(upper)):
        short = 1.0 - point.z[i]
        total -= point.beta[i] * short
        worst = max(worst, short)
        if short > 0.0 and upper[i] < np.inf:
            loss += upper[i] * short
    if len(upper) and upper[0] == np.inf and worst > _FEASIBLE:
        return 0.0, np.inf
    return loss, loss + total


@njit(cache=True, nogil=True)
def _linearise(working, point, t, coef):
    """Eliminate the row variables: their curvature t and what they add to the predictor's right side."""
    for i in range(len(t)):
        t[i] = 1.0 / (point.slack[i] / point.beta[i] + point.xi[i] / (working.upper[i] - point.beta[i]))
        coef[i] = working.signs[i] * t[i] * (1.0 - point.z[i])


@njit(cache=True, nogil=True)
def _predict(working, dw, point, t, move):
    """Fill the predictor direction; return its longest step and complementarity along it (c0 + c1 a + c2 a a)."""
    step, now, slope, bend = 1.0, 0.0, 0.0, 0.0
    for i in range(len(t)):
        beta, slack, xi = point.beta[i], point.slack[i], point.xi[i]
        e = working.upper[i] - beta
        dbeta = t[i] * (1.0 - point.z[i] - working.signs[i] * row_dot(working.rows, working.which[i], dw))
        dslack = -slack - slack * dbeta / beta
        dxi = -xi + xi * dbeta / e
        move.beta[i], move.slack[i], move.xi[i] = dbeta, dslack, dxi
        step = min(step, _room(beta, dbeta), _room(slack, dslack), _room(xi, dxi), _room(e, -dbeta))
        now += slack * beta
        slope += slack * dbeta + beta * dslack
        bend += dslack * dbeta
        if xi > 0.0:
            now += xi * e
            slope += e * dxi - xi * dbeta
            bend -= dxi * dbeta
    return step, now, slope, bend


@njit(cache=True, nogil=True)
def _correct(working, target, bends, point, t, move, rho, coef):
    """Aim at the target, with ``bends`` times the second-order terms; leave the products' residuals in ``move``."""
    for i in range(len(t)):
        beta, slack, xi = point.beta[i], point.slack[i], point.xi[i]
        e, aim = working.upper[i] - beta, target * working.weights[i]
        rest_slack = aim - slack * beta - bends * move.slack[i] * move.beta[i]
        rest_xi = aim - xi * e + bends * move.xi[i] * move.beta[i] if xi > 0.0 else 0.0
        rho[i] = rest_slack / beta - rest_xi / e - (point.z[i] - 1.0 + xi - slack)
        move.slack[i], move.xi[i] = rest_slack, rest_xi
        coef[i] = working.signs[i] * t[i] * rho[i]


@njit(cache=True, nogil=True)
def _direct(working, dw, point, t, rho, move):
    """Turn the residuals in ``move`` into the corrected direction; return the longest step along it."""
    step = 2.0
    for i in range(len(t)):
        beta, slack, xi = point.beta[i], point.slack[i], point.xi[i]
        e = working.upper[i] - beta
        dz = working.signs[i] * row_dot(working.rows, working.which[i], dw)
        dbeta = t[i] * (rho[i] - dz)
        dslack = (move.slack[i] - slack * dbeta) / beta
        dxi = (move.xi[i] + xi * dbeta) / e
        move.z[i], move.beta[i], move.slack[i], move.xi[i] = dz, dbeta, dslack, dxi
        step = min(step, _room(beta, dbeta), _room(slack, dslack), _room(xi, dxi), _room(e, -dbeta))
    return step


@njit(cache=True, nogil=True, inline="always")
def _room(value, change):
    return -value / change if change < 0.0 else np.inf
