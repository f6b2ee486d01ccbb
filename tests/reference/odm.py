"""Optimal margin distribution machines by a generic solver, straight from their definitions."""

import clarabel
import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls


def _solve(objective):
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value


def binary(X, signs, weights, lam, mu, theta):
    """Return weights and value of the minimum."""
    w = cp.Variable(X.shape[1])
    z = cp.multiply(signs, X @ w)
    loss = cp.square(cp.pos(1 - theta - z)) + mu * cp.square(cp.pos(z - 1 - theta))
    price = lam / (weights.sum() * (1 - theta) ** 2)
    value = _solve(cp.sum_squares(w) / 2 + price * (weights @ loss))
    return w.value, value


def convex_round(X, codes, weights, lam, mu, theta, *, ceiling=None, rival=None):
    """Return the minimum of a round: upper side frozen at ``ceiling``, or linear in the class ``rival``, or absent."""
    k = codes.max() + 1
    W = cp.Variable((X.shape[1], k))
    scores = X @ W
    price = lam / (weights.sum() * (1 - theta) ** 2)
    value = cp.sum_squares(W) / 2
    for i, y in enumerate(codes):
        others = [scores[i, l] for l in range(k) if l != y]
        short = cp.pos(
            1 - theta - scores[i, y] + cp.maximum(*others) if k > 2 else 1 - theta - scores[i, y] + others[0]
        )
        value += price * weights[i] * cp.square(short)
        if ceiling is not None or rival is not None:
            top = ceiling[i] if rival is None else scores[i, rival[i]]
            value += price * weights[i] * mu * cp.square(cp.pos(scores[i, y] - top - 1 - theta))
    return _solve(value)


def round_value(X, codes, weights, coef, lam, mu, theta, *, ceiling=None):
    """Return the value of a round with the upper side frozen at ``ceiling``, or absent, at given weights."""
    scores = X @ coef.T
    rows = np.arange(len(codes))
    own = scores[rows, codes]
    scores[rows, codes] = -np.inf
    loss = np.maximum(0, 1 - theta - own + scores.max(axis=1)) ** 2
    if ceiling is not None:
        loss += mu * np.maximum(0, own - ceiling - 1 - theta) ** 2
    return (coef**2).sum() / 2 + lam / (weights.sum() * (1 - theta) ** 2) * (weights @ loss)


def true_objective(X, codes, weights, coef, lam, mu, theta):
    """Return the non-convex objective of the joint problem."""
    scores = X @ coef.T
    rows = np.arange(len(codes))
    own = scores[rows, codes]
    scores[rows, codes] = -np.inf
    margins = own - scores.max(axis=1)
    loss = np.maximum(0, 1 - theta - margins) ** 2 + mu * np.maximum(0, margins - 1 - theta) ** 2
    return (coef**2).sum() / 2 + lam / (weights.sum() * (1 - theta) ** 2) * (weights @ loss)


def block_matrices(b, y, A, price, mu, theta, rival, ceiling):
    """Return H and f of one row's dual problem, min ½ x'Hx + f'x over x = (ζ without y, β) ≥ 0."""
    k = len(b)
    others = [l for l in range(k) if l != y]
    V = np.zeros((k, k))  # v = V x
    for column, l in enumerate(others):
        V[y, column], V[l, column] = 1.0, -1.0
    V[y, -1] = -1.0
    if rival >= 0:
        V[rival, -1] = 1.0
    total = np.r_[np.ones(k - 1), 0.0]
    last = np.r_[np.zeros(k - 1), 1.0]
    H = A * V.T @ V + np.outer(total, total) / (2 * price) + np.outer(last, last) / (2 * price * mu)
    top = 0.0 if rival >= 0 else ceiling
    return H, V.T @ b - (1 - theta) * total + (1 + theta + top) * last, others


def block_minimum(H, f):
    """Return the minimum over x ≥ 0 by Clarabel, cvxpy's solver, called directly, or else by Lawson and Hanson."""
    scale = np.sqrt(H.diagonal())
    size = max(1.0, abs(f / scale).max())
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    for tolerance in (1e-12, 1e-10):
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        problem = (
            sp.csc_matrix(np.triu(H / np.outer(scale, scale))), f / (scale * size),
            sp.csc_matrix(-np.eye(len(f))), np.zeros(len(f)), [clarabel.NonnegativeConeT(len(f))],
        )  # fmt: skip
        solution = clarabel.DefaultSolver(*problem, settings).solve()
        if solution.status == clarabel.SolverStatus.Solved:
            return solution.obj_val * size**2
    root = np.linalg.cholesky(H / np.outer(scale, scale))  # then x is a least squares solution, x ≥ 0
    x = nnls(root.T, -np.linalg.solve(root, f / scale))[0] / scale
    return x @ H @ x / 2 + f @ x
