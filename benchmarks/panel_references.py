"""What a generic solver reaches in the panel's small problems: quadratic programs for Clarabel, a linear system.

Whatever it returns, its objective is computed from its weights by the panel's formulas, and is one that somebody
reaches: it refutes lower bounds above it, and need not be trusted.
"""

import inspect
from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

import margindist
from benchmarks.panel_formulas import MEASURES, Weights, kernel_values
from benchmarks.panel_problems import rows_of, weights_of

MOST_ROWS = 3000
MOST_COLUMNS = 300
MOST_VALUES = 2 * 10**5
MOST_KERNEL_ROWS = 320
NEGLIGIBLE = 1e-13  # eigenvalues of a kernel matrix below this share of the largest


def reference(problem, seed=0):
    """Return the values of a problem at a generic solver's weights, None where it is too large or another kind."""
    if problem.estimator not in PROGRAMS:
        return None
    X, y = rows_of(problem.data, seed)
    labels = np.unique(y)
    model = _parameters(problem)
    if problem.estimator == "ODMClassifier" and len(labels) > 2 and model.multi_class == "direct":
        return None
    features = _features(model, X)
    if features is None:
        return None
    weights = weights_of(problem, len(y), seed)
    weights = np.ones(len(y)) if weights is None else weights
    values = []
    for positive in labels[1:] if len(labels) == 2 else labels:
        signs = np.where(y == positive, 1.0, -1.0)
        coef = PROGRAMS[problem.estimator](model, signs[:, None] * features, weights)
        if coef is None or not np.isfinite(coef).all():
            return None
        constant = coef[-1] if model.fit_intercept else 0.0
        own = coef[:-1] if model.fit_intercept else coef
        point = Weights(own @ own, features @ coef, constant, None)
        values.append(float(MEASURES[problem.estimator](model, point, signs, weights, X)))
    return values if np.isfinite(values).all() else None


def _parameters(problem):
    defaults = inspect.signature(getattr(margindist, problem.estimator)).parameters
    return SimpleNamespace(**{name: each.default for name, each in defaults.items()} | problem.parameters)


def _features(model, X):
    """Return columns with the problem's inner products, the constant last; None if that is too much."""
    n, d = X.shape
    if getattr(model, "n_components", None) is not None or getattr(model, "space", "dual") != "dual":
        return None
    if model.kernel == "linear":
        if n > MOST_ROWS or d > MOST_COLUMNS or n * d > MOST_VALUES:
            return None
        columns = (X.toarray() if sp.issparse(X) else X).astype(float)
    else:
        if n > MOST_KERNEL_ROWS:
            return None
        gram = X if model.kernel == "precomputed" else kernel_values(model, X, X)
        eigenvalues, vectors = np.linalg.eigh(gram)
        if eigenvalues[0] < -1e-9 * eigenvalues[-1]:
            return None
        kept = eigenvalues > NEGLIGIBLE * eigenvalues[-1]
        columns = vectors[:, kept] * np.sqrt(eigenvalues[kept])
    return np.hstack([columns, np.ones((n, int(model.fit_intercept)))])


def _ldm(model, Z, weights):
    n, d = Z.shape
    total = weights.sum()
    unit = model.C * total if model.lambda_scale == "relative" else 1.0
    share = weights / total
    centred = np.sqrt(share)[:, None] * (Z - share @ Z)
    P = np.eye(d) + 4.0 * unit * model.lambda1 * centred.T @ centred
    q = -unit * model.lambda2 * (share @ Z)
    if np.isinf(model.C):
        return _solve(P, q, sp.csc_matrix(-Z), -np.ones(n), d)
    P = sp.block_diag([P, sp.csc_matrix((n, n))])
    A = sp.bmat([[-Z, -sp.eye(n)], [None, -sp.eye(n)]])
    return _solve(P, np.append(q, model.C * weights), A, np.append(-np.ones(n), np.zeros(n)), d)


def _odm(model, Z, weights):
    n, d = Z.shape
    price = 2.0 * model.lam * weights / (weights.sum() * (1.0 - model.theta) ** 2)
    P = sp.diags(np.concatenate([np.ones(d), price, model.mu * price]))
    one = sp.eye(n)
    A = sp.bmat([[-Z, -one, None], [Z, None, -one], [None, -one, None], [None, None, -one]])
    b = np.concatenate([np.full(n, model.theta - 1.0), np.full(n, 1.0 + model.theta), np.zeros(2 * n)])
    return _solve(P, np.zeros(d + 2 * n), A, b, d)


def _lssvm(model, Z, weights):
    """Return the solution of (D + C Z'SZ) w = C Z's, D the identity but for the constant, which is free."""
    D = np.eye(Z.shape[1])
    if model.fit_intercept:
        D[-1, -1] = 0.0
    system = D + model.C * (Z.T * weights) @ Z
    right = model.C * (Z.T @ weights)
    return np.linalg.lstsq(system, right, rcond=None)[0]


def _solve(P, q, A, b, d):
    """Return the first d variables of the minimum of ½xᵀPx + qᵀx among those with Ax ≤ b; None without Clarabel."""
    try:
        import clarabel
    except ImportError:
        return None
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    P, A = sp.csc_matrix(sp.triu(P)), sp.csc_matrix(A)
    solver = clarabel.DefaultSolver(P, q, A, b, [clarabel.NonnegativeConeT(len(b))], settings)
    return np.array(solver.solve().x)[:d]


PROGRAMS = {"LDMClassifier": _ldm, "ODMClassifier": _odm, "LSSVMClassifier": _lssvm}
