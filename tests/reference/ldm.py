"""LDM as it is written down, for a generic solver and for loops."""

import cvxpy as cp
import numpy as np


def minimise(X, signs, C, lambda1, lambda2, weights=None, without=None):
    """Return the minimiser and minimum of the objective for given rows (no intercept), by Clarabel.

    ``without`` leaves the hinge of that row out, and nothing else.
    """
    m, d = X.shape
    s = np.ones(m) if weights is None else weights
    p = s / s.sum()
    w = cp.Variable(d)
    z = cp.multiply(signs, X @ w)
    centred = (np.eye(m) - np.outer(np.ones(m), p)) * np.sqrt(p)[:, None]
    loss = 0.5 * cp.sum_squares(w) + 2 * lambda1 * cp.sum_squares(centred @ z) - lambda2 * (p @ z)
    priced = np.ones(m, dtype=bool)
    if without is not None:
        priced[without] = False
    constraints = []
    if np.isinf(C):
        constraints = [z[priced] >= 1]
    else:
        loss = loss + C * cp.sum(cp.multiply(s[priced], cp.pos(1 - z[priced])))
    problem = cp.Problem(cp.Minimize(loss), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return w.value, problem.value


def value(X, signs, w, C, lambda1, lambda2, weights=None):
    """Return the objective, with the variance as the paper's average over pairs."""
    s = np.ones(len(signs)) if weights is None else weights
    p = s / s.sum()
    z = signs * (X @ w)
    pairs = (p[:, None] * p * (z[:, None] - z) ** 2).sum()
    return 0.5 * w @ w + lambda1 * pairs - lambda2 * (p @ z) + C * (s @ np.maximum(0, 1 - z))


def pair_gradient(X, signs, w, i, j, C, lambda1, lambda2):
    """Return the stochastic gradient of a pair (eq. 15 of the paper)."""
    m = len(signs)
    gradient = w + 4 * lambda1 * X[i] * (X[i] @ w) - 4 * lambda1 * signs[i] * X[i] * signs[j] * (X[j] @ w)
    gradient = gradient - lambda2 * signs[i] * X[i]
    if signs[i] * (X[i] @ w) < 1:
        gradient = gradient - m * C * signs[i] * X[i]
    return gradient
