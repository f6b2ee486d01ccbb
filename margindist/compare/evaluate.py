"""One cell of a comparison: one method on one split, parameters chosen within the training part."""

import time

import numpy as np
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score

from margindist.compare.plan import take_rows
from margindist.datasets import encoder
from margindist.margins import margin_statistics, margins
from margindist.methods import BY_KEY
from margindist.runs.search import search
from margindist.runs.store import Result

QUANTILES = np.round(np.linspace(0.0, 1.0, 81), 4)


class Evaluate:
    """What is done in a cell; picklable."""

    def __init__(self, plan, X, y):
        self.plan, self.X, self.y = plan, X, np.asarray(y)

    def __call__(self, cell):
        """Return the result of a cell."""
        method, seed = BY_KEY[cell.method], self.plan.seed
        train, test = self.plan.parts(self.y)[cell.split]
        y_train, y_test = self.y[train], self.y[test]
        coder = encoder(self.X).fit(take_rows(self.X, train))
        X_train, X_test = coder.transform(take_rows(self.X, train)), coder.transform(take_rows(self.X, test))
        base, grid = method.estimator(seed), self.plan.grids[cell.method]
        parameters, influence, inner = {}, {}, None
        if grid:
            found = search(base, grid, folds=self.plan.folds, seed=seed + cell.split).fit(X_train, y_train)
            parameters, inner = plain(found.best_params_), float(found.best_score_)
            influence = _influence(found.cv_results_, grid)
        else:
            clone(base).fit(X_train, y_train)  # compiles what the search would have compiled: that is not timed
        model = clone(base).set_params(**parameters)
        start = time.process_time()
        model.fit(X_train, y_train)
        fitted = time.process_time()
        predicted = model.predict(X_test)
        finished = time.process_time()
        detail = {
            "balanced_accuracy": _balanced_accuracy(y_test, predicted),
            "train_accuracy": float(model.score(X_train, y_train)),
            "inner_score": inner,
            "influence": influence,
            "margins": _margins(model, X_train, y_train, X_test, y_test),
            "rows": [len(train), len(test)],
        }
        return Result(
            cell, score=float(np.mean(predicted == y_test)), parameters=parameters, fit_seconds=fitted - start,
            predict_seconds=finished - fitted, seed=seed, checksum=self.plan.checksum, detail=detail,
        )  # fmt: skip


def plain(parameters):
    """The parameters as JSON keeps them, in the same order whatever search chose them."""
    return {key: value.item() if hasattr(value, "item") else value for key, value in sorted(parameters.items())}


def _balanced_accuracy(y, predicted):
    present = np.isin(predicted, y)  # a class that the test part lacks has no recall to average
    return float(balanced_accuracy_score(y, predicted)) if present.all() else float(
        np.mean([np.mean(predicted[y == label] == label) for label in np.unique(y)])
    )  # fmt: skip


def _influence(cv_results, grid):
    """Mean inner accuracy of every setting, as columns."""
    settings = [dict(setting) for setting in cv_results["params"]]
    columns = {name: [setting[name] for setting in settings] for name in grid}
    columns = {name: [v.item() if hasattr(v, "item") else v for v in values] for name, values in columns.items()}
    scores = np.round(cv_results["mean_test_score"], 6).tolist()
    return {"settings": columns, "scores": [score if np.isfinite(score) else None for score in scores]}


def _margins(model, X_train, y_train, X_test, y_test):
    on_train, on_test = margins(model, X_train, y_train), margins(model, X_test, y_test)
    scale = float(np.sqrt(np.mean(on_train**2))) or 1.0
    found = {"scale": scale}
    for part, z in (("train", on_train / scale), ("test", on_test / scale)):
        found[part] = margin_statistics(z, quantiles=(0.05,)).as_dict()
        found[f"{part}_quantiles"] = np.round(np.quantile(z, QUANTILES), 5).tolist()
    try:
        for part, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
            z = margins(model, X, y, geometric=True)
            found[f"{part}_geometric"] = margin_statistics(z, quantiles=(0.05,)).as_dict()
    except ValueError:  # no weight vector per score: SVC with more than two classes, for one
        found["train_geometric"] = found["test_geometric"] = None
    return found
