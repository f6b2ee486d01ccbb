r"""Coordinate descent on an explicit dual matrix: Algorithm 1 of Zhang and Zhou (2014).

With the matrix H of :mod:`margindist.solvers.block_descent` formed as a whole, A = YHY and v = λ2 p + β, the dual is

    min_{0 ≤ β ≤ U}  ½ v'Av − Σ β_i ,    z = Av

Each step is exact in one multiplier, and every pass takes all of them in order. It is here for comparison with the
paper; block descent solves the same problem in less time and memory.
"""

import numpy as np

from margindist.solvers import block_descent
from margindist.solvers._kernel_certificate import certify_multipliers, inseparable_rows
from margindist.solvers._metric import explicit_hessian
from margindist.solvers._solution import Options, Status, better, conclude, require
from margindist.solvers.box_qp import coordinate_pass
from margindist.solvers.coordinate_descent import passes_left

_MOST_PASSES = 1000
_PATIENCE = 100  # passes of Algorithm 1 before giving up is considered


def solve(problem, options, start=None):
    """Minimise; takes four Gram matrices of memory.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective (:class:`~margindist.objectives.LDM`) on a Gram matrix.
    options : Options
        One iteration is a pass over all rows. Nothing is drawn: the order is fixed.
    start : Solution, optional
        Whose multipliers to start from.

    Returns
    -------
    Solution
        In coefficients of the rows.
    """
    objective, gram, signs, weights = problem
    require(objective, "Dual coordinate descent", "variance_weight", "mean_weight")
    tol, max_iter = options.tol, options.limit(_MOST_PASSES)
    upper = objective.upper(weights)
    H = explicit_hessian(objective, gram, signs, weights)
    H *= signs[:, None]
    H *= signs
    share = weights / weights.sum()
    beta = np.zeros(gram.n) if start is None else np.minimum(start.dual, upper)
    z = H @ (objective.mean_weight * share + beta)
    best, ended, check = None, None, 1
    for n_iter in range(max_iter + 1):
        if n_iter > 0:
            coordinate_pass(H, upper, beta, z)
        if n_iter < check and n_iter < max_iter:
            continue
        check = n_iter + max(1, n_iter // 4)
        z = H @ (objective.mean_weight * share + beta)
        now, _ = certify_multipliers(objective, gram, signs, weights, beta, z)
        last, best = best, better(best, now)._replace(n_iter=n_iter)
        if options.report is not None and options.report(n_iter, best.coef, best.objective, best.gap):
            ended = Status.STOPPED
        elif np.isinf(best.objective) and inseparable_rows(gram, signs, beta):
            ended = Status.INFEASIBLE
        if ended or best.gap <= tol:
            break
        if n_iter >= _PATIENCE and _is_hopeless(last, best, tol, max_iter):
            ended = Status.STALLED
            break
    if ended is None and np.isinf(best.objective) and options.max_iter is None:
        # Multipliers that grow by a step per pass would take too long to prove that there is no hard margin.
        other = block_descent.solve(problem, Options(tol=1e-3))
        if other.status is Status.INFEASIBLE:
            return other._replace(n_iter=n_iter)
    return conclude(best._replace(n_iter=n_iter), tol, ended or Status.ITERATION_LIMIT)


def _is_hopeless(last, best, tol, max_iter):
    """Tell whether the gap falls so slowly that many times the passes there are would not do."""
    if not np.isfinite(last.objective):
        return False
    before, now = (solution.gap * abs(solution.objective) for solution in (last, best))
    return passes_left(before, now, best.n_iter - last.n_iter, tol * abs(best.objective)) > 10 * max_iter
