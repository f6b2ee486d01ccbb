"""MSVMAv as published (eq. 8 corrected): explicit inverses, one Sherman-Morrison update a sample, no weights."""

import numpy as np


def remove(M, x, scale):
    """Return the inverse after ``x xᵀ / scale`` was taken from the matrix (eq. 7)."""
    Mx = M @ x
    return M - np.outer(Mx, Mx) / (x @ Mx - scale)


def insert(M, x, scale):
    """Return the inverse after ``x xᵀ / scale`` was added to the matrix (eq. 8, with its sign put right)."""
    Mx = M @ x
    return M - np.outer(Mx, Mx) / (x @ Mx + scale)


def _objective(z):
    theta = z.mean()
    return np.mean(np.maximum(theta - z, 0.0) ** 2) / theta**2


def _rounds(rows, y, M, w, metric, pull, norm, alpha, beta, n_rounds):
    n = len(y)
    active = np.zeros(n, dtype=bool)
    iterates, objectives = [w], [_objective(y * (rows @ w))]
    for _ in range(n_rounds):
        z = y * (rows @ w)
        theta = z.mean()
        below = z < theta
        for i in np.flatnonzero(active & ~below):
            M = remove(M, rows[i], n * beta)
        for i in np.flatnonzero(below & ~active):
            M = insert(M, rows[i], n * beta)
        active = below
        w = M @ (theta / (n * beta) * rows[active].T @ y[active] + metric @ w) + pull / (2 * alpha * n)
        w = w / norm(w)
        if np.mean(y * (rows @ w)) < 0:
            w = -w
        iterates.append(w)
        objectives.append(_objective(y * (rows @ w)))
    return np.array(iterates), np.array(objectives)


def linear(X, y, alpha, beta, n_rounds):
    """Return all iterates, the start first, and their objectives."""
    pull = X.T @ y
    eye = np.eye(X.shape[1])
    return _rounds(X, y, eye, pull / np.linalg.norm(pull), eye, pull, np.linalg.norm, alpha, beta, n_rounds)


def kernel(K, y, alpha, beta, n_rounds):
    """Return all coefficient vectors ``a``, the start first, and their objectives."""
    metric = np.eye(len(K)) + K

    def norm(a):
        return np.sqrt(a @ K @ a)

    return _rounds(K, y, np.linalg.inv(metric), y / norm(y), metric, y, norm, alpha, beta, n_rounds)
