"""Fewer rows than columns: the shortest weights with given margins lie in the rows' span, which has their number."""

import numpy as np
from scipy.linalg import qr

from margindist.solvers._solution import certify, conclude
from margindist.spaces.rows import as_rows, dense_matrix


def solve_in_span(solve, problem, options, start):
    """Call a solver with the rows' coordinates in an orthonormal basis; return what it finds for the rows themselves.

    Parameters
    ----------
    solve : callable
        A solver of hinge-type objectives.
    problem, options, start
        As it takes them, with rows of any number of columns.

    Returns
    -------
    Solution
        Certified on the rows as they are.
    """
    basis, triangle = qr(dense_matrix(problem.space).T, mode="economic", check_finite=False)
    narrow = problem._replace(space=as_rows(np.ascontiguousarray(triangle.T)))
    report = None
    if options.report is not None:

        def report(n_iter, coef, value, gap):
            return options.report(n_iter, basis @ coef, value, gap)

    if start is not None:
        start = start._replace(coef=basis.T @ start.coef)
    result = solve(narrow, options._replace(report=report), start)
    w = basis @ result.coef
    now = certify(problem, w, result.dual)
    return conclude(now._replace(n_iter=result.n_iter), options.tol, result.status)
