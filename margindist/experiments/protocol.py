"""How one cell of a paper's table or figure is measured: its rows, its choice of parameters, its score."""

import hashlib
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import pairwise_distances_chunked
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler

from margindist.datasets import DataError, encoder, load, make_threshold
from margindist.experiments.declarations import DataSet, Experiment, Method, experiments
from margindist.experiments.runner import CannotRun
from margindist.experiments.search import search
from margindist.experiments.store import Cell, Result
from margindist.margins import margins

__all__ = ["Parts", "choose", "evaluate", "here", "seeds_of", "split_rows"]

_LEVELS = 101  # quantiles kept of a distribution of margins
_DIGITS = 6


class Parts(NamedTuple):
    """Training and test part of a cell, scaled as the experiment says; the test part may be empty."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    checksum: str


class Seeds(NamedTuple):
    """Where the randomness of a cell comes from; the same for all methods on a split."""

    rows: int
    folds: int
    method: int


class Choice(NamedTuple):
    """A fitted model, the parameters chosen for it, their accuracy in cross-validation, processor seconds."""

    model: Any
    parameters: dict
    cv_score: float | None
    search_seconds: float
    fit_seconds: float


def evaluate(
    cell: Cell,
    *,
    data_dir: str | None = None,
    max_rows: int | None = None,
    declared: Mapping[str, Experiment] | None = None,
) -> Result:
    """Measure a cell.

    Parameters
    ----------
    cell : Cell
    data_dir : str, optional
        Folder with data sets, as `margindist.datasets.load` takes it.
    max_rows : int, optional
        Data sets with more rows are left out.
    declared : mapping, optional
        Experiments by id, if not the papers'.

    Raises
    ------
    CannotRun
        If the data cannot be had, are too large, or the method is not for them; the message says which.
    """
    experiment = (declared or experiments())[cell.experiment]
    line, method = experiment.dataset(cell.dataset), experiment.method(cell.method)
    if method.unavailable:
        raise CannotRun(method.unavailable)
    _check_size(line, max_rows)
    seeds = seeds_of(cell)
    parts = _parts(experiment, line, cell.split, seeds, data_dir)
    _check_classes(method, parts.y)
    measured = _KINDS[experiment.kind](experiment, method, parts, seeds)
    return Result(cell, seed=seeds.rows, checksum=parts.checksum, **measured)


def seeds_of(cell: Cell) -> Seeds:
    """Return the seeds of a cell: they depend on experiment, data set and split, not on the method."""
    digest = hashlib.sha256(f"{cell.experiment}/{cell.dataset}/{cell.split}".encode()).digest()
    entropy = np.frombuffer(digest, dtype="<u4")
    return Seeds(*np.random.SeedSequence(entropy.tolist()).generate_state(3).tolist())


# ---------------------------------------------------------------------- rows


def _check_size(line, max_rows):
    n = line.rows or (line.shape[0] if line.shape else 0)
    if max_rows is not None and n > max_rows:
        raise CannotRun(f"{n:,} rows are more than the limit of {max_rows:,} (--max-rows).")


def _check_classes(method, y):
    k = len(np.unique(y))
    if method.estimator.endswith("ECOCClassifier") and k > 11:
        raise CannotRun(f"exhaustive codes for {k} classes take {2 ** (k - 1) - 1:,} classifiers.")


@lru_cache(maxsize=4)
def _loaded(name, data_dir):
    try:
        return load(name, data_dir=data_dir)
    except DataError as error:
        raise CannotRun(str(error)) from None


def here(line: DataSet, data_dir: str | None = None) -> bool:
    """Say whether a line's data can be had."""
    if line.generator:
        return True
    try:
        _loaded(line.catalogue, data_dir)
    except CannotRun:
        return False
    return True


def _rows_of(line: DataSet, data_dir, seed):
    """Features, labels, checksum and published splits of a line of a table."""
    if line.generator:
        X, y = make_threshold(**line.generator, random_state=seed)
        return X, y, None, None
    data = _loaded(line.catalogue, data_dir)
    X, y, splits = data.X, data.y, data.splits
    if line.classes is not None:
        kept = np.flatnonzero(np.isin(y, np.unique(y)[: line.classes]))
        X, y, splits = _take(X, kept), y[kept], None
    if line.positive is not None:
        y = np.where(y == np.asarray(line.positive, dtype=y.dtype), 1, -1)
    return X, y, data.checksum, splits


def _take(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def split_rows(experiment: Experiment, line: DataSet, split: int, n_rows: int, published, seed: int):
    """Return the row numbers of training and test part of a split.

    Published splits come first, in their order; beyond them, and where there are none, rows are drawn.
    """
    plan = experiment.splits
    if plan.kind == "published" and published is not None and split < len(published):
        return published[split]
    rows = np.random.default_rng(seed).permutation(n_rows)
    if plan.kind in ("whole", "drawn"):
        return rows[: line.rows], rows[:0]
    if plan.kind == "published":
        return rows[: line.train_size], rows[line.train_size : line.train_size + line.test_size]
    rows = rows[: line.rows]
    n_train = round(plan.train * len(rows))
    return rows[:n_train], rows[n_train:]


def _parts(experiment, line, split, seeds, data_dir):
    X, y, checksum, published = _rows_of(line, data_dir, seeds.rows)
    if line.rows is not None and line.rows > len(y):
        raise CannotRun(f"{line.rows:,} rows are asked for, {line.catalogue} has {len(y):,}.")
    train, test = split_rows(experiment, line, split, len(y), published, seeds.rows)
    X_train, X_test = _take(X, train), _take(X, test)
    scaler = _scaler(X, experiment.scaling)
    if scaler is not None:
        X_train = scaler.fit_transform(X_train)
        X_test = scaler.transform(X_test) if len(test) else X_test
    return Parts(X_train, y[train], X_test, y[test], checksum)


def _scaler(X, scaling):
    if hasattr(X, "columns"):
        return encoder(X)
    if scaling == "none":
        return None
    return MaxAbsScaler() if sp.issparse(X) else MinMaxScaler()


# ---------------------------------------------------------------------- choosing parameters


def choose(method: Method, X, y, *, folds: int, seeds: Seeds) -> Choice:
    """Choose a method's parameters by cross-validation on the training part, and fit it to all of that."""
    estimator = method.make()
    if "random_state" in estimator.get_params() and estimator.get_params()["random_state"] is None:
        estimator.set_params(random_state=seeds.method)
    axes = [{axis.parameter: axis.resolve(**_properties(axis, X))} for axis in method.grid]
    steps = axes if method.search == "line" else [{name: values for axis in axes for name, values in axis.items()}]
    chosen, score, start = {}, None, time.process_time()
    model = None
    for grid in filter(None, steps):
        found = search(clone(estimator).set_params(**chosen), grid, folds=folds, seed=seeds.folds).fit(X, y)
        chosen, score, model = chosen | dict(found.best_params_), float(found.best_score_), found.best_estimator_
    search_seconds = time.process_time() - start
    final = clone(estimator).set_params(**chosen)
    start = time.process_time()
    model = final.fit(X, y)
    return Choice(model, chosen, score, search_seconds, time.process_time() - start)


def _properties(axis, X):
    given = {"n_samples": X.shape[0], "n_features": X.shape[1]}
    return given | ({"mean_distance": _mean_distance(X)} if axis.unit == "mean-distance" else {})


def _mean_distance(X):
    """Mean Euclidean distance between two different rows."""
    n = X.shape[0]
    total = sum(float(strip.sum()) for strip in pairwise_distances_chunked(X))
    return total / (n * (n - 1))


# ---------------------------------------------------------------------- what is measured


def _accuracy(experiment, method, parts, seeds):
    choice = choose(method, parts.X, parts.y, folds=experiment.splits.cv, seeds=seeds)
    start = time.process_time()
    score = float(np.mean(choice.model.predict(parts.X_test) == parts.y_test))
    return _measured(choice, score, parts, time.process_time() - start)


def _measured(choice, score, parts, predict_seconds=None, **detail):
    detail |= {"train": len(parts.y), "test": len(parts.y_test), "search_seconds": round(choice.search_seconds, 4)}
    if choice.cv_score is not None:
        detail["cv_score"] = round(choice.cv_score, _DIGITS)
    return {
        "score": score,
        "parameters": choice.parameters,
        "fit_seconds": choice.fit_seconds,
        "predict_seconds": predict_seconds,
        "detail": detail,
    }


def _time(experiment, method, parts, seeds):
    """Processor seconds: of the fit with the chosen parameters, or of everything from the search to the prediction."""
    choice = choose(method, parts.X, parts.y, folds=experiment.splits.cv, seeds=seeds)
    start = time.process_time()
    accuracy = float(np.mean(choice.model.predict(parts.X_test) == parts.y_test)) if len(parts.y_test) else None
    predict_seconds = time.process_time() - start
    timed = experiment.settings.get("timed", "fit")
    seconds = choice.fit_seconds
    if timed == "selection":
        seconds += choice.search_seconds + predict_seconds
    elif timed == "iteration":
        seconds /= _n_iterations(choice.model)
    return _measured(choice, seconds, parts, predict_seconds, accuracy=accuracy)


def _n_iterations(model):
    parts = getattr(model, "estimators_", [model])
    return max(1, *(int(np.max(part.n_iter_)) for part in parts)) if len(parts) > 1 else max(1, int(parts[0].n_iter_))


def _margins(experiment, method, parts, seeds):
    """Quantiles of the margins of the training part, weights of length one; the score is their mean."""
    choice = choose(method, parts.X, parts.y, folds=experiment.splits.cv, seeds=seeds)
    z = _unit_margins(choice.model, parts.X, parts.y)
    levels = np.linspace(0.0, 1.0, _LEVELS)
    detail = {"quantiles": np.quantile(z, levels).round(_DIGITS).tolist(), "negative": round(float(np.mean(z < 0)), 4)}
    if len(parts.y_test):
        detail["accuracy"] = float(np.mean(choice.model.predict(parts.X_test) == parts.y_test))
    return _measured(choice, float(z.mean()), parts, **detail)


def _unit_margins(model, X, y):
    """Margins over the length of all weights together, which for two classes is the distance to the boundary."""
    if len(model.classes_) == 2 and not hasattr(model, "estimators_"):
        return margins(model, X, y, geometric=True)
    heads = getattr(model, "estimators_", [model])
    return margins(model, X, y) / np.linalg.norm(np.vstack([np.atleast_2d(head.coef_) for head in heads]))


def _influence(experiment, method, parts, seeds):
    """Test accuracy with one parameter varied over its grid and the others as chosen."""
    choice = choose(method, parts.X, parts.y, folds=experiment.splits.cv, seeds=seeds)

    def accuracy(model):
        return float(np.mean(model.predict(parts.X_test) == parts.y_test))

    curves = {}
    for axis in method.grid:
        if axis.parameter in experiment.settings["vary"]:
            values = axis.resolve(**_properties(axis, parts.X))
            models = (clone(choice.model).set_params(**{axis.parameter: value}) for value in values)
            curves[axis.parameter] = {
                "values": [float(value) for value in axis.values],
                "accuracy": [round(accuracy(model.fit(parts.X, parts.y)), _DIGITS) for model in models],
            }
    return _measured(choice, accuracy(choice.model), parts, influence=curves)


def _updates(experiment, method, parts, seeds):
    """Margin reached, and the way there: updates, processor seconds and margin after each recorded pass."""
    choice = choose(method, parts.X, parts.y, folds=experiment.splits.cv, seeds=seeds)
    model, detail = choice.model, {}
    if hasattr(model, "history_"):
        history = model.history_
        detail["n_updates"], detail["converged"] = int(history["n_updates"][-1]), bool(model.converged_)
        detail["history"] = {
            "n_updates": history["n_updates"].tolist(),
            "seconds": history["seconds"].round(_DIGITS).tolist(),
            "margin": history["margin"].round(_DIGITS).tolist(),
        }
        margin = float(model.margin_)
    else:
        margin = float(_unit_margins(model, parts.X, parts.y).min())
    return _measured(choice, margin, parts, **detail)


_KINDS = {"accuracy": _accuracy, "time": _time, "margins": _margins, "influence": _influence, "updates": _updates}
