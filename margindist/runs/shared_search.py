"""Searches for the rivals that have none of their own: `GridSearchCV`'s choice, without its repeated work.

Kernel values between all training rows are computed once a kernel width, and folds are parts of them. Where more can be
shared, it is: the maximal average margin classifier's scores are sums over folds and classes, of which every factor of
the negative class is a combination; fast margin maximisation passes every number of iterations on its way to the
largest, and all step sizes and folds go in one matrix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid

from margindist.estimators.mam import MAMClassifier
from margindist.estimators.rivals import FMMClassifier
from margindist.kernels import FullGram, Kernel, cholesky_factor
from margindist.solvers.average_margin import find_bias

__all__ = ["SharedSearch"]


class SharedSearch(BaseEstimator):
    """Choose parameters by cross-validation as `GridSearchCV` does: same folds, same scores, same ties.

    Parameters
    ----------
    estimator : classifier
        With ``kernel="rbf"`` and a grid of ``gamma``, or any other.
    grid : dict of sequences
    cv : splitter

    Attributes
    ----------
    best_params_, best_score_, best_estimator_ : dict, float, classifier
        As `GridSearchCV` has them.
    cv_results_ : dict
        ``params`` and ``mean_test_score``.
    """

    def __init__(self, estimator: BaseEstimator, grid: Mapping[str, Sequence[Any]], cv: Any):
        self.estimator = estimator
        self.grid = grid
        self.cv = cv

    def fit(self, X: Any, y: np.ndarray) -> Self:
        """Choose, and fit the best one to all rows."""
        points = list(ParameterGrid(dict(self.grid)))
        folds = list(self.cv.split(np.zeros(len(y)), y))
        scores = np.empty((len(points), len(folds)))
        for gamma in self._widths():
            members = [k for k, point in enumerate(points) if point.get("gamma", gamma) == gamma]
            rest = [{name: value for name, value in points[k].items() if name != "gamma"} for k in members]
            gram = None if gamma is None else Kernel("rbf", gamma=gamma)(X, X)
            scores[members] = _SCORES.get(type(self.estimator), _fit_each)(self.estimator, rest, X, gram, y, folds)
        means = np.average(scores, axis=1)
        best = int(np.argmax(means))
        self.cv_results_ = {"params": points, "mean_test_score": means}
        self.best_params_, self.best_score_ = points[best], float(means[best])
        self.best_estimator_ = clone(self.estimator).set_params(**self.best_params_).fit(X, y)
        return self

    def _widths(self):
        """Widths of the RBF kernel: the grid's, or the estimator's own if that is a number; else None."""
        own = self.estimator.get_params()
        known = own.get("kernel") == "rbf" and not isinstance(own["gamma"], str)
        return self.grid.get("gamma", [own["gamma"] if known else None])


def _fit_each(estimator, points, X, gram, y, folds):
    """Accuracy of every point on every fold, a fit each."""
    scores = np.empty((len(points), len(folds)))
    estimator = clone(estimator) if gram is None else clone(estimator).set_params(kernel="precomputed")
    for f, (train, test) in enumerate(folds):
        here = X[train] if gram is None else gram[np.ix_(train, train)]
        there = X[test] if gram is None else gram[np.ix_(test, train)]
        for k, point in enumerate(points):
            model = clone(estimator).set_params(**point).fit(here, y[train])
            scores[k, f] = np.mean(model.predict(there) == y[test])
    return scores


def _average_margin(estimator, points, X, gram, y, folds):
    """Sums over the classes of each fold's training rows serve every slope."""
    classes = np.unique(y)
    if gram is None or len(classes) != 2:
        return _fit_each(estimator, points, X, gram, y, folds)
    scores = np.empty((len(points), len(folds)))
    signs = np.where(y == classes[1], 1.0, -1.0)
    for f, (train, test) in enumerate(folds):
        plus = gram[:, train[signs[train] > 0]].sum(axis=1) / len(train)
        minus = gram[:, train[signs[train] < 0]].sum(axis=1) / len(train)
        ones = np.ones(len(train))
        for k, point in enumerate(points):
            slope, rule = point.get("slope", estimator.slope), point.get("bias", estimator.bias)
            values = plus - slope * minus
            bias = find_bias(rule, values[train], slope, signs[train], ones)
            scores[k, f] = np.mean((values[test] + bias > 0) == (signs[test] > 0))
    return scores


def _margin_maximisation(estimator, points, X, gram, y, folds):
    """All steps and folds at once; the numbers of iterations are stations on the way to the largest.

    A column a (fold, step): weights w, momentum g; rows outside a fold's training part have probability zero in q, and
    their scores come with the others. See :mod:`margindist.solvers.margin_maximisation` for the iteration.
    """
    classes = np.unique(y)
    if len(classes) != 2:
        return _fit_each(estimator, points, X, gram, y, folds)
    rows = _features(X, gram, estimator.fit_intercept)
    signs = np.where(y == classes[1], 1.0, -1.0)
    steps = sorted({point.get("step", estimator.step) for point in points})
    stations = sorted({point.get("max_iter", estimator.max_iter) for point in points})
    columns = [(f, step) for f in range(len(folds)) for step in steps]
    inside = np.zeros((len(y), len(columns)), dtype=bool)
    for c, (f, _) in enumerate(columns):
        inside[folds[f][0], c] = True
    weights = _iterate(rows, signs, inside, np.array([step for _, step in columns]), stations, estimator.tol)
    accuracy = {}
    for station, w in zip(stations, weights):
        right = ((rows @ w) > 0) == (signs > 0)[:, None]
        for c, (f, step) in enumerate(columns):
            accuracy[f, step, station] = right[folds[f][1], c].mean()
    return np.array([
        [accuracy[f, p.get("step", estimator.step), p.get("max_iter", estimator.max_iter)] for f in range(len(folds))]
        for p in points
    ])  # fmt: skip


def _features(X, gram, constant):
    if gram is not None:
        return np.ascontiguousarray(cholesky_factor(FullGram(gram), tol=1e-12).features)
    if not constant:
        return X
    ones = np.ones((X.shape[0], 1))
    return sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])


def _iterate(rows, signs, inside, steps, stations, tol):
    """Return the weights of every column at every station.

    Columns that have reached the largest margin leave; the arrays of the others are then made smaller.
    """
    squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel() if sp.issparse(rows) else np.sum(rows**2, axis=1)
    radius = np.sqrt(np.max(np.where(inside, squares[:, None], 0.0), axis=0))
    radius[radius == 0.0] = 1.0
    signed = np.where(inside, signs[:, None], 0.0) / radius
    beyond = np.where(inside, 0.0, np.inf)  # rows outside a fold's training part are never the nearest
    transposed = rows.T.tocsr() if sp.issparse(rows) else np.ascontiguousarray(rows.T)
    live = np.arange(inside.shape[1])
    w, g, best_w = (np.zeros((rows.shape[1], len(live))) for _ in range(3))
    best, bound = np.full(len(live), -np.inf), np.full(len(live), np.inf)
    found = [np.zeros_like(w) for _ in stations]
    z = beyond.copy()
    for t in range(stations[-1]):
        q = np.exp(np.min(z, axis=0) - z)
        q *= signed / q.sum(axis=0)
        u = transposed @ q
        g = t / (t + 1.0) * (g + u)
        w += steps * (g + u)
        z = rows @ w
        z *= signed
        z += beyond
        lengths = np.linalg.norm(w, axis=0)
        margin = np.divide(z.min(axis=0), lengths, out=np.zeros(len(live)), where=lengths > 0)
        better = margin > best
        best_w[:, better] = w[:, better]
        best = np.maximum(best, margin)
        if t > 0:
            bound = np.minimum(bound, 2.0 * np.linalg.norm(g, axis=0) / t)
        going = best < (1.0 - tol) * bound
        ended = t + 1 == stations[-1]
        for place, station in enumerate(stations):
            if station >= t + 1 and (station == t + 1 or not going.all()):
                now = slice(None) if station == t + 1 else ~going
                found[place][:, live[now]] = np.where(best > 0.0, best_w, w)[:, now]
        if not going.all() and not ended:
            live, steps, best, bound = live[going], steps[going], best[going], bound[going]
            w, g, best_w, z = (np.ascontiguousarray(part[:, going]) for part in (w, g, best_w, z))
            signed, beyond = (np.ascontiguousarray(part[:, going]) for part in (signed, beyond))
            if not len(live):
                break
    return found


_SCORES = {MAMClassifier: _average_margin, FMMClassifier: _margin_maximisation}
