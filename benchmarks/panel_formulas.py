"""What the panel measures of a fitted model: its objective by the papers' formulas, slowly, from public attributes.

Nothing here asks the library for a number that it could have computed wrongly. Scores are sums in long double where
the rows are few, sums over rows are exact (`math.fsum`). Methods that minimise nothing are measured by what they are
for: online learners and FMM by the margin they reach, searches by the score they find, others by their errors.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

FEW_VALUES = 2 * 10**6  # of rows up to which scores are computed in long double
STRIP = 1024  # rows of kernel values at a time


class Weights(NamedTuple):
    """One two-class problem's weights, as far as objectives see them."""

    square: float  # of their length, without the constant
    scores: np.ndarray
    constant: float
    dual: np.ndarray | None  # coefficients of all rows, with a kernel


def measured(name, model, X, y, sample_weight):
    """Return the values of a fitted model: smaller is better, one for every problem that it consists of."""
    if name.endswith("CV"):
        return [-float(model.best_score_)]
    measure = MEASURES.get(name)
    weights = np.ones(len(y)) if sample_weight is None else sample_weight
    if measure is None:
        return [_errors(model, X, y, weights)]
    if name == "KOMDClassifier" and hasattr(model, "coef_"):
        return np.atleast_1d(model.objective_).tolist()  # linear models do not have what it is made of
    found = _weights(model, X)
    labels = np.unique(y)
    if name == "ODMClassifier" and len(found) > 1 and np.ndim(model.objective_) == 0:
        return [_odm_joint(model, found, np.searchsorted(labels, y), weights)]
    positives = labels[1:] if len(labels) == 2 else labels
    signs = [np.where(y == positive, 1.0, -1.0) for positive in positives]
    values = [measure(model, point, sign, weights, X) for point, sign in zip(found, signs, strict=True)]
    return [float(value) for value in values]


def claims(model):
    """Return the certified gaps of a model and its objectives, none where they are not about the same problems."""
    gaps = np.atleast_1d(getattr(model, "duality_gap_", [])).astype(float)
    objectives = np.atleast_1d(getattr(model, "objective_", [])).astype(float)
    joint = getattr(model, "multi_class", "") == "direct" and len(model.classes_) > 2  # a local minimum's
    return gaps, np.empty(0) if joint or len(gaps) != len(objectives) else objectives


def _errors(model, X, y, weights):
    return float(weights @ (model.predict(X) != y) / weights.sum())


# ---------------------------------------------------------------------- scores


def _weights(model, X):
    intercepts = np.ravel(model.intercept_).astype(float)
    if hasattr(model, "coef_"):
        coefs = np.atleast_2d(model.coef_).astype(float)
        return [Weights(math.fsum(w * w), _product(X, w) + b, b, None) for w, b in zip(coefs, intercepts, strict=True)]
    n = X.shape[0]
    duals = np.zeros((len(np.atleast_2d(model.dual_coef_)), n))
    duals[:, model.support_] = np.atleast_2d(model.dual_coef_)
    images = _kernel_product(model, X, duals.T).T
    return [
        Weights(math.fsum(dual * image), image + b, b, dual)
        for dual, image, b in zip(duals, images, intercepts, strict=True)
    ]


def _product(X, w):
    values = X.nnz if sp.issparse(X) else X.size
    if values > FEW_VALUES:
        return X @ w
    if sp.issparse(X):
        X = sp.csr_matrix((X.data.astype(np.longdouble), X.indices, X.indptr), shape=X.shape)
    else:
        X = X.astype(np.longdouble)
    return (X @ w.astype(np.longdouble)).astype(float)


def _kernel_product(model, X, duals):
    """Return the kernel matrix times coefficients, from the rows that have any."""
    used = np.flatnonzero(np.abs(duals).max(axis=1))
    if model.kernel == "precomputed":
        return X[:, used] @ duals[used]
    support = X[used]
    product = np.empty((X.shape[0], duals.shape[1]))
    for start in range(0, X.shape[0], STRIP):
        strip = slice(start, start + STRIP)
        product[strip] = kernel_values(model, X[strip], support) @ duals[used]
    return product


def kernel_values(model, rows, others):
    """Return kernel values; the panel's kernels have numbers for gamma."""
    if sp.issparse(rows):
        rows, others = rows.toarray(), others.toarray()
    inner = rows @ others.T
    if model.kernel == "rbf":
        distances = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2.0 * inner
        return np.exp(-model.gamma * np.maximum(distances, 0.0))
    if model.kernel == "poly":
        return (model.gamma * inner + model.coef0) ** model.degree
    raise ValueError(f"The panel knows no kernel {model.kernel!r}; expected 'rbf', 'poly' or 'precomputed'.")


# ---------------------------------------------------------------------- objectives


def _length(model, point):
    """Return the square of the weights' length, with that of the constant feature."""
    return point.square + (point.constant**2 if model.fit_intercept else 0.0)


def _ldm(model, point, signs, weights, X):
    """½‖w‖² + 2 λ1 Var(z) − λ2 z̄ + C Σ s max(0, 1 − z); a hard margin's weights are lengthened if they need it."""
    z = signs * point.scores
    square = _length(model, point)
    hinge = 0.0
    if np.isinf(model.C):
        least = z[weights > 0].min()
        if least <= 0:
            return np.inf
        stretch = max(1.0, 1.0 / least)
        z, square = z * stretch, square * stretch**2
    else:
        hinge = model.C * math.fsum(weights * np.maximum(0.0, 1.0 - z))
    total = math.fsum(weights)
    unit = total * model.C if model.lambda_scale == "relative" else 1.0
    mean = math.fsum(weights * z) / total
    variance = math.fsum(weights * (z - mean) ** 2) / total
    return math.fsum((0.5 * square, 2.0 * unit * model.lambda1 * variance, -unit * model.lambda2 * mean, hinge))


def _band(model, z, weights):
    short, beyond = np.maximum(0.0, 1.0 - model.theta - z), np.maximum(0.0, z - 1.0 - model.theta)
    price = model.lam / (math.fsum(weights) * (1.0 - model.theta) ** 2)
    return price * math.fsum(weights * (short**2 + model.mu * beyond**2))


def _odm(model, point, signs, weights, X):
    """½‖w‖² + λ/(M (1−θ)²) Σ s (ξ² + μ ε²)."""
    return 0.5 * _length(model, point) + _band(model, signs * point.scores, weights)


def _odm_joint(model, found, codes, weights):
    """½ Σ ‖w_l‖² and the loss of the margins w_y·x − max w_l·x."""
    scores = np.column_stack([point.scores for point in found])
    every = np.arange(len(codes))
    own = scores[every, codes]
    scores[every, codes] = -np.inf
    return 0.5 * math.fsum(_length(model, point) for point in found) + _band(model, own - scores.max(axis=1), weights)


def _lssvm(model, point, signs, weights, X):
    """½‖w‖² + C/2 Σ s (1 − z)², the constant free."""
    square = point.square
    if model.space == "empirical":
        if point.dual is None:
            return np.nan
        square = math.fsum(point.dual[weights > 0] ** 2 / weights[weights > 0])
    return 0.5 * square + 0.5 * model.C * math.fsum(weights * (1.0 - signs * point.scores) ** 2)


def _komd(model, point, signs, weights, X):
    """γᵀYKYγ + λ‖γ‖²."""
    return point.square + model.lam * math.fsum(point.dual**2 / weights)


def _msvmav(model, point, signs, weights, X):
    """SV / θ²."""
    z = signs * point.scores
    total = math.fsum(weights)
    mean = math.fsum(weights * z) / total
    return math.fsum(weights * np.maximum(0.0, mean - z) ** 2) / total / mean**2


def _mdo(model, point, signs, weights, X):
    """Σ s c(ν), ν the margins of rows and weights of length one; the constant feature is as long as the longest row."""
    lengths = np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else (X**2).sum(axis=1)
    longest = np.sqrt(lengths.max()) if model.fit_intercept else 0.0
    constant = point.constant / longest if longest > 0 else 0.0
    nu = signs * point.scores / (np.sqrt(point.square + constant**2) * np.sqrt(lengths + longest**2))
    costs = np.where(nu >= 0, np.exp(-model.alpha * nu**2), np.exp(-model.beta * np.minimum(nu, 0.0)))
    return math.fsum(weights * costs)


def _margin(model, point, signs, weights, X):
    """The least margin of weights of length one, or in another norm, with the opposite sign."""
    if getattr(model, "soft_margin", 0.0):
        return float(weights @ (signs * point.scores <= 0) / weights.sum())
    p = float(getattr(model, "p", 2.0))
    if p != 2.0:
        q = p / (p - 1.0)
        length = (np.abs(np.ravel(model.coef_)) ** q).sum() ** (1.0 / q)
    else:
        length = math.sqrt(max(_length(model, point) if hasattr(model, "fit_intercept") else point.square, 0.0))
    return -(signs * point.scores).min() / length if length > 0 else 0.0


MEASURES = {
    "LDMClassifier": _ldm,
    "ODMClassifier": _odm,
    "LSSVMClassifier": _lssvm,
    "KOMDClassifier": _komd,
    "MSVMAvClassifier": _msvmav,
    "MDOClassifier": _mdo,
    "FMMClassifier": _margin,
    "PUMMAClassifier": _margin,
    "ROMMAClassifier": _margin,
    "ALMAClassifier": _margin,
    "MICRAClassifier": _margin,
}
