r"""Averaged stochastic gradient descent on pairs of rows: Algorithm 2 of the LDM paper.

The objective divided by C·M has the unbiased gradient (Theorem 2 of the paper), for rows i, j drawn independently with
probabilities p,

    w/(CM) − c y_i x_i,    c = [z_i < 1] + λ2/(CM) − (4λ1/(CM)) (z_i − z_j),

so a step changes w along one row only. Step sizes are η_t = η0 (1 + η0 t/(CM))^(−3/4) (Xu 2011), averaging starts
at t0 = 2m, and η0 is the best of a doubling search on at most 1,000 rows, judged by the objective itself on them.

Both w and its running average are kept as scaled sums, so that a sparse step costs what its non-zeros cost (Bottou):
w = v/D and w̄ = (u + F v)/A.
"""

from typing import NamedTuple

import numpy as np

from margindist.certificate import Ledger
from margindist.compilation import njit
from margindist.solvers import coordinate_descent
from margindist.solvers._solution import (
    Options,
    Problem,
    Status,
    conclude,
    proved,
    require,
)
from margindist.spaces.rows import n_columns, n_rows, row_add, row_dot, scores, squares, take_rows

_PASSES = 5  # the paper's T
_CALIBRATION_ROWS = 1000
_BOUND_PASSES = 12  # of coordinate descent, for a lower bound on the optimum
_RESCALE = 1e5


class State(NamedTuple):
    """Everything that carries over from one piece of data to the next."""

    v: np.ndarray
    u: np.ndarray
    scalars: np.ndarray  # D, A, F, steps done

    def weights(self):
        """Return the last iterate."""
        return self.v / self.scalars[0]

    def average(self):
        """Return the averaged iterate."""
        _, A, F, _ = self.scalars
        return (self.u + F * self.v) / A


def new_state(n_columns):
    """Return the state before any step."""
    return State(np.zeros(n_columns), np.zeros(n_columns), np.array([1.0, 1.0, 0.0, 0.0]))


def solve(problem, options, start=None):
    """Run the paper's Algorithm 2 and say how far from the optimum it ends.

    Parameters
    ----------
    problem : Problem
        :class:`~margindist.objectives.LDM` with a finite C, on rows.
    options : Options
        One iteration is a pass, by default the paper's five; the generator draws the pairs.
    start : Solution, optional
        Not used: the paper's algorithm starts from zero.

    Returns
    -------
    Solution
    """
    objective, rows, signs, weights = problem
    require(objective, "Averaged stochastic gradient descent", "upper_bound", "variance_weight", "mean_weight")
    rng, ended = options.generator(), Status.ITERATION_LIMIT
    eta = calibrate(objective, rows, signs, weights, rng)
    state = new_state(n_columns(rows))
    for n_iter in range(1, options.limit(_PASSES) + 1):
        run_pass(objective, rows, signs, weights, weights.sum(), eta, 2 * n_rows(rows), rng, state)
        coef = state.average()
        if options.report is not None and options.report(n_iter, coef, _value(problem, coef), np.inf):
            ended = Status.STOPPED
            break
    ledger = Ledger(problem)
    here = ledger.bounds(coef, np.zeros(n_rows(rows)))
    upper = np.where(ledger.z < 1.0, objective.upper(weights), 0.0)
    bound = coordinate_descent.solve(problem, Options(0.1 * options.tol, _BOUND_PASSES, rng), proved(here, upper))
    result = proved(here.with_lower(bound.least), bound.dual)
    return conclude(result._replace(n_iter=n_iter), options.tol, ended)


def calibrate(objective, rows, signs, weights, rng):
    """Return the first step size: the best power of two by the objective after one pass over a few rows."""
    few = np.sort(rng.permutation(n_rows(rows))[:_CALIBRATION_ROWS])
    part, signs, weights = take_rows(rows, few), signs[few], weights[few]
    seed = rng.integers(2**63)

    def cost(eta):
        state = new_state(n_columns(rows))
        same_draws = np.random.default_rng(seed)
        run_pass(objective, part, signs, weights, weights.sum(), eta, 0, same_draws, state)
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is too long shows by it
            value = _value(Problem(objective, part, signs, weights), state.weights())
        return value if np.isfinite(value) else np.inf

    # Longer steps than one over the curvature of norm and variance swing away from the minimum, ever farther.
    squares(part, lengths := np.empty(len(few)))
    stable = objective.upper_bound * weights.sum() / (1.0 + objective.variance_weight * lengths.max())
    best = min(1.0, 2.0 ** np.floor(np.log2(stable)))
    best_cost = cost(best)
    for factor in (2.0, 0.5):
        eta = best * factor
        while (now := cost(eta)) < best_cost:
            best, best_cost = eta, now
            eta *= factor
    return best


def run_pass(objective, rows, signs, weights, total, eta, start_averaging, rng, state):
    """Make as many steps as there are rows, on pairs drawn by weight, in place."""
    m = n_rows(rows)
    if np.ptp(weights) == 0.0:
        pairs = rng.integers(m, size=(2, m))
    else:
        pairs = rng.choice(m, size=(2, m), p=weights / weights.sum())
    scale = 1.0 / (objective.upper_bound * total)
    _steps(rows, signs, pairs, scale, objective.variance_weight, objective.mean_weight, eta, start_averaging, *state)


@njit(cache=True, nogil=True)
def _steps(rows, signs, pairs, scale, bend, pull, eta0, start_averaging, v, u, scalars):
    D, A, F, t = scalars
    for k in range(pairs.shape[1]):
        i, j = pairs[0, k], pairs[1, k]
        z = signs[i] * row_dot(rows, i, v) / D
        other = signs[j] * row_dot(rows, j, v) / D if bend > 0.0 else 0.0
        push = scale * (pull - bend * (z - other))
        if z < 1.0:
            push += 1.0
        eta = eta0 * (1.0 + eta0 * scale * t) ** -0.75
        D /= max(1.0 - eta * scale, 1e-12)
        change = signs[i] * eta * push * D
        row_add(rows, i, change, v)
        t += 1.0
        mu = 1.0 / max(1.0, t - start_averaging)
        if mu >= 1.0:
            A, F = D, 1.0
        else:
            row_add(rows, i, -F * change, u)
            A /= 1.0 - mu
            F += mu * A / D
        if D > _RESCALE or A > _RESCALE:
            v /= D
            F *= D
            u /= A
            F /= A
            D, A = 1.0, 1.0
    scalars[0], scalars[1], scalars[2], scalars[3] = D, A, F, t


def _margins(rows, signs, coef):
    scores(rows, coef, z := np.empty(len(signs)))
    return z * signs


def _value(problem, coef):
    return problem.objective.value(coef @ coef, _margins(problem.space, problem.signs, coef), problem.weights)
