"""What the report shows of the best method and of its SVM: curves, features that matter, fewer rows.

Each split of the first repeat is fitted again with the parameters that were chosen there, so every row is tested once.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import precision_recall_curve, roc_curve

from margindist.compare.records import LookDetail, plain
from margindist.compare.scoring import columns, decide, mean_log_loss, measures, probabilities_after
from margindist.compare.splits import calibration_splits
from margindist.datasets import encoder
from margindist.datasets.dataset import take_rows
from margindist.methods import BY_KEY
from margindist.runs.store import Cell, Result

if TYPE_CHECKING:
    from margindist.compare.comparison import Comparison
    from margindist.compare.data import Data

RATES = np.round(np.linspace(0.0, 1.0, 51), 3)  # false alarms, or recall, at which curves are kept
BINS = 10  # of probabilities
SHARES = (0.1, 0.2, 0.4, 0.7, 1.0)  # of the training rows
_MOST_COLUMNS = 200
_SHUFFLES = 3


class Look:
    """Computes the cell of a closer look; picklable, so that other processes can do it.

    Parameters
    ----------
    comparison : Comparison
    data : Data
    scorer : callable, optional
        What methods are ranked by, if it is no score by name.
    """

    def __init__(self, comparison: "Comparison", data: "Data", scorer: Callable | None = None):
        self.plan, self.scorer = comparison.plan, scorer
        self.X, self.y, self.blocks = data.dataset.X, np.asarray(data.dataset.y), data.blocks
        labels = np.unique(self.y).tolist()
        self.positive = next((label for label in labels if str(label) == comparison.plan.positive), None)
        self.methods = {key: BY_KEY[key] for key in comparison.looked_at}
        self.names = comparison.about.features
        self.parameters = {(r.cell.method, r.cell.split): r.parameters for r in comparison.results}

    def __call__(self, cell: Cell) -> Result:
        """Return the result of a cell."""
        train, test = self.plan.parts(self.y, self.blocks)[cell.split]
        rows, y_train, y_test = take_rows(self.X, test), self.y[train], self.y[test]
        coder = encoder(self.X)
        X_train = coder.fit_transform(take_rows(self.X, train))
        X_test = coder.transform(rows)
        parameters = self.parameters[cell.method, cell.split]
        base = self.methods[cell.method].estimator(self.plan.seed).set_params(**parameters)
        model = clone(base).fit(X_train, y_train)
        folds = calibration_splits(y_train, self.blocks.of(train), self.plan.folds)
        p = probabilities_after(base, folds, X_train, y_train, X_test)
        detail = LookDetail(
            learning=self._learning(base, X_train, y_train, X_test, y_test),
            calibration=calibration(p, y_test, model.classes_, self.positive),
            log_loss=mean_log_loss(y_test, p, model.classes_),
            **self._curves(model, X_test, y_test),
            **self._importance(model, coder, rows, y_test),
        )
        return Result(
            cell, score=self._score(model, X_test, y_test), parameters=parameters, seed=self.plan.seed,
            checksum=self.plan.checksum, detail=plain(detail),
        )  # fmt: skip

    def _score(self, model, X, y):
        """The score of the ranking, or accuracy instead of log-loss, which would take calibration every time."""
        if self.scorer is not None:
            return float(self.scorer(model, X, y))
        name = "accuracy" if self.plan.scoring == "log_loss" else self.plan.scoring
        values = columns(decide(model, X), model.classes_, self.positive)
        return measures(y, model.predict(X), values, model.classes_, self.positive, only=name)[name]

    def _curves(self, model, X, y):
        """ROC and precision-recall curves of two classes, at fixed rates."""
        truth = y == self.positive
        if self.positive is None or not 0 < truth.sum() < len(truth):
            return {}
        values = columns(decide(model, X), model.classes_, self.positive)[:, 0]
        alarms, hits, _ = roc_curve(truth, values)
        precision, recall, _ = precision_recall_curve(truth, values)
        reached = [precision[recall >= rate].max() for rate in RATES]  # the best that has at least this recall
        return {"roc": np.round(np.interp(RATES, alarms, hits), 5).tolist(), "precision": np.round(reached, 5).tolist()}

    def _importance(self, model, coder, rows, y):
        """How much the score falls when a column's values are shuffled among the test rows; else the weights."""
        n_columns = rows.shape[1]
        if sp.issparse(rows) or n_columns > _MOST_COLUMNS:
            weights = getattr(model, "coef_", None)
            if weights is None:
                return {}
            weights = np.abs(weights.toarray() if sp.issparse(weights) else weights).max(axis=0)
            top = np.argsort(-weights, kind="stable")[:_MOST_COLUMNS]
            named = self.names if len(self.names) == len(weights) else [f"column {k}" for k in range(len(weights))]
            if hasattr(rows, "columns"):
                named = coder.get_feature_names_out()
            return {"weights": {str(named[k]): float(weights[k]) for k in top}}
        rng = np.random.default_rng(self.plan.seed)
        before = self._score(model, coder.transform(rows), y)
        names = list(rows.columns) if hasattr(rows, "columns") else self.names
        names = names if len(names) == n_columns else [f"column {k}" for k in range(n_columns)]
        drops = {}
        for k, name in enumerate(names):
            orders = [rng.permutation(len(y)) for _ in range(_SHUFFLES)]
            several = take_rows(rows, np.tile(np.arange(len(y)), _SHUFFLES)).copy()  # to encode them in one call
            if hasattr(rows, "columns"):
                several[name] = rows[name].array[np.concatenate(orders)]
            else:
                several[:, k] = rows[np.concatenate(orders), k]
            parts = np.split(coder.transform(several), _SHUFFLES)
            drops[str(name)] = before - float(np.mean([self._score(model, part, y) for part in parts]))
        return {"importance": drops}

    def _learning(self, base, X_train, y_train, X_test, y_test):
        """The score after fits to parts of the training rows, which keep the classes' proportions."""
        order = _stratified_order(y_train, np.random.default_rng(self.plan.seed))
        result = []
        for share in SHARES:
            rows = np.sort(order[: max(2, round(share * len(order)))])
            if len(np.unique(y_train[rows])) < len(np.unique(y_train)):
                continue  # so few rows lack a class
            model = clone(base).fit(X_train[rows], y_train[rows])
            result.append([len(rows), self._score(model, X_test, y_test)])
        return result


def _stratified_order(y, rng):
    """Return the rows in an order of which every beginning has the classes in nearly the same proportions."""
    place = np.empty(len(y))
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(place, kind="stable")


def calibration(p: np.ndarray, y: np.ndarray, classes: np.ndarray, positive: Any) -> list[list[float]]:
    """Return rows, predicted probability and truth, summed in bins of the probability.

    Of two classes it is the probability of the positive one; of more, that of the predicted class.
    """
    if positive is None:
        claimed, true = p.max(axis=1), classes[p.argmax(axis=1)] == y
    else:
        claimed, true = p[:, list(classes).index(positive)], y == positive
    bins = np.minimum((claimed * BINS).astype(int), BINS - 1)
    return [np.bincount(bins, weights=weights, minlength=BINS).tolist() for weights in (None, claimed, true * 1.0)]
