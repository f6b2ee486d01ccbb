r"""Is there a hard margin? Non-negative least squares, for rows that are not too many.

With signed rows z_i = y_i x_i / c, c the length of the longest, minimise over λ ≥ 0

    ‖Σ λ_i z_i‖² + (Σ λ_i − 1)² .

At the minimum, w = Σ λ_i z_i has z_i·w ≥ 1 − Σλ for every row, with equality where λ_i > 0. So either w separates the
rows, and is the normal of their maximum margin, or the value is 0: Σλ = 1 and w = 0, multipliers that prove that no
weights separate them. Lawson and Hanson's active set method takes finitely many steps, about as many as columns, and
decides down to margins of about the root of the rounding error. Where that is not enough, z_i = y_i x_i / ‖x_i‖ are
tried, then the same with every column divided by its largest value: any positive factors leave the question the same,
and short rows then count as much as long ones, small columns (the constant one among them) as much as large ones.

Fewer rows than columns are replaced by their coordinates in an orthonormal basis of their span.
"""

import numpy as np
from scipy.linalg import qr

from margindist.solvers._solution import Status, certify, conclude
from margindist.spaces.rows import add_rows, column_sizes, dense_matrix, n_columns, n_rows, scores

_MOST_OPERATIONS = 10**8  # rows times columns times steps: about a tenth of a second
_STEPS_PER_ROW = 3


def affordable(rows):
    """Tell whether the rows are few enough."""
    steps = min(n_rows(rows), n_columns(rows))
    return n_rows(rows) * steps**2 <= _MOST_OPERATIONS


def solve(problem, options, start=None):
    """Find a hard margin, or the proof that there is none; certify it for the objective as it is.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective with ``C=inf`` on rows. Without margin terms the solution is its minimum.
    options : Options
        Only the tolerance is looked at.
    start : Solution, optional
        Not used.

    Returns
    -------
    Solution
    """
    rows, signs = problem.space, problem.signs
    signed = signs[:, None] * dense_matrix(rows)
    sizes = column_sizes(rows)
    sizes[sizes == 0.0] = 1.0
    as_they_are = np.ones(len(sizes))
    for columns, equally_long in [(as_they_are, False), (as_they_are, True), (sizes, True)]:
        result = _separate(problem, signed / columns, columns, equally_long)
        if np.isfinite(result.objective) or result.status is Status.INFEASIBLE:
            break
    return conclude(result, options.tol, Status.STALLED)


def _separate(problem, signed, columns, equally_long):
    """Return what the signed rows prove, whose columns have been divided by ``columns``."""
    from scipy.optimize import nnls  # takes a while to import, and few fits come here

    rows, signs = problem.space, problem.signs
    lengths = np.sqrt(np.einsum("ij,ij->i", signed, signed))
    lengths[lengths == 0.0] = 1.0  # an empty row has no margin at all, and its multiplier alone proves it
    scales = lengths if equally_long else np.full(len(lengths), lengths.max())
    if signed.shape[0] < signed.shape[1]:
        signed = np.ascontiguousarray(qr(signed.T, mode="r", check_finite=False)[0][: len(signed)].T)
    system = np.vstack([signed.T / scales, np.ones(len(signs))])
    target = np.zeros(len(system))
    target[-1] = 1.0
    try:
        shares, _ = nnls(system, target, maxiter=_STEPS_PER_ROW * len(signs))
    except RuntimeError as error:
        raise FloatingPointError("rounding keeps active sets from settling") from error
    beta = shares / scales
    w = add_rows(rows, np.arange(len(signs)), signs * beta, np.zeros(n_columns(rows))) / columns**2
    scores(rows, w, margins := np.empty(len(signs)))
    margins *= signs
    if (least := margins.min()) > 0.0:
        w, beta = w / least, beta / least
    return certify(problem, w, beta)._replace(n_iter=int(np.count_nonzero(shares)))
