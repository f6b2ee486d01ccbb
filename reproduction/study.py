"""A study of our own, declared in ``study.toml``: where margin terms help, and which defaults follow from it.

Conditions of the study are experiments like the papers', with the same cells, store and runner. What differs is how a
cell is measured: training and test part are drawn class by class and kept small, the training part is changed as the
condition says, and the chosen model is scored in several ways.
"""

import time
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from margindist.datasets import encoder
from margindist.datasets.dataset import take_rows
from margindist.methods import search
from margindist.runs.runner import CannotRun
from margindist.runs.store import Cell, Result
from reproduction.declarations import Experiment, Method, build_experiments
from reproduction.protocol import Seeds, here, resolved, rows_of, seeds_of

_DIGITS = 5
_MOST_COLUMNS = 2000  # of a sparse matrix that is made dense
YARDSTICKS = ("forest", "boosting")
LINEAR = ("svm", "squared", "ldm", "odm", "msvmav", "mamc", "lssvm", "komd", "fmm", "logistic")
RBF = tuple(f"{key}-rbf" for key in LINEAR[:-1])


@cache
def declaration() -> Mapping[str, Any]:
    """Return the study's file as it stands."""
    return tomllib.loads((resources.files("reproduction") / "study.toml").read_text(encoding="utf-8"))


@cache
def study() -> Mapping[str, Experiment]:
    """Return the conditions of the study by id.

    Examples
    --------
    >>> [method.label for method in study()["study-main"].methods][:3]
    ['SVM', 'SVM, squared hinge', 'LDM']
    """
    content = declaration()
    candidates = _candidates(content["candidates"])
    rivals = (*LINEAR, *RBF)
    tuned, untuned = (*rivals, *YARDSTICKS), ("linearsvc", "svc", *candidates)
    entries = []
    for given in content["experiment"]:
        entry = {"data": list(content["data"]), "measure": "scores of the test part", **given}
        usual = untuned if entry["kind"] == "untuned" else tuned if entry["id"] == "study-main" else rivals
        entry["methods"] = {key: key for key in entry.get("methods", usual)}
        cv = content["study"]["cv"] if entry["kind"] == "tuned" else 0
        entry["splits"] = {"kind": "halves-and-folds", "number": entry.pop("number"), "cv": cv, "stratified": True}
        entries.append(entry | {"scaling": "standard", "bias": "yes"})
    read = {"paper": content["paper"], "data": content["data"], "experiment": entries}
    return build_experiments(read | {"method": content["method"] | candidates}, content["recipe"])


def _candidates(families):
    """One method for each combination of values, linear and with the RBF kernel."""
    found = {}
    for family, entry in families.items():
        names = list(entry["vary"])
        for values in product(*entry["vary"].values()):
            chosen = dict(zip(names, values, strict=True))
            grid = {name: {"values": [chosen.pop(name)], "unit": "m"} for name in names if name == entry.get("scaled")}
            words = ", ".join(f"{name} = {value:g}{' m' if name in grid else ''}" for name, value in zip(names, values))
            for kernel in ("linear", "rbf"):
                key = "-".join([family, *(f"{value:g}" for value in values), *(["rbf"] if kernel == "rbf" else [])])
                found[key] = {
                    "label": f"{entry['label']}, {words}",
                    "recipe": entry.get("recipe", family),
                    "fixed": chosen | {"kernel": kernel},
                    "grid": grid,
                }
    return found


def bundled_part(chosen: Iterable[Experiment], data_dir: str | None = None) -> tuple[set[str], int] | None:
    """Return which data sets a machine runs that has only what scikit-learn brings, and how many splits.

    A first run then takes minutes. None if the machine has more, and for other experiments than the study's.
    """
    rules, chosen = declaration()["study"], list(chosen)
    if any(experiment.id not in study() for experiment in chosen):
        return None
    found = {line.key for experiment in chosen for line in experiment.data if here(line, data_dir)}
    return (found, rules["bundled_splits"]) if found <= set(rules["bundled"]) else None


def evaluate(cell: Cell, experiment: Experiment, *, data_dir: str | None = None) -> Result:
    """Measure a cell of the study.

    Raises
    ------
    CannotRun
        If the data cannot be had, or the method is not for them; the message says which.
    """
    line, method = experiment.dataset(cell.dataset), experiment.method(cell.method)
    if not here(line, data_dir):
        raise CannotRun(f"{line.catalogue} is not on this machine; margindist datasets says how to get it.")
    seeds = seeds_of(experiment, cell)
    X, y, checksum, _ = rows_of(line, data_dir, seeds.rows)
    parts = _parts(experiment, X, y, cell, seeds)
    if method.key in YARDSTICKS and X.shape[1] > _MOST_COLUMNS:
        raise CannotRun(f"trees would need a dense matrix of {X.shape[1]:,} columns.")
    measure = _untuned if experiment.kind == "untuned" else _tuned
    return Result(cell, seed=seeds.rows, checksum=checksum, **measure(experiment, method, parts, seeds))


# ---------------------------------------------------------------------- rows


class _Parts(NamedTuple):
    """Training and test part, scaled and dense; ``elsewhere`` has test parts whose features were changed."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    elsewhere: dict[str, np.ndarray]


def _parts(experiment, X, y, cell, seeds):
    rules, settings = declaration()["study"], experiment.settings
    rng = np.random.default_rng(seeds.rows)
    train, test = _split(y, cell, rules["outer_folds"], rng)
    train = _thinned(train, y, settings.get("rows", settings.get("most_train", rules["most_train"])), rng)
    if "ratio" in settings:
        train = _unequal(train, y, settings["ratio"], rng)
    test = _thinned(test, y, rules["most_test"], rng)
    labels = y[train]
    if "noise" in settings:
        labels = _flipped(labels, settings["noise"], rng)
    scaler = _scaler(X)
    X_train, X_test = scaler.fit_transform(take_rows(X, train)), scaler.transform(take_rows(X, test))
    if sp.issparse(X) and X.shape[1] > _MOST_COLUMNS:
        return _Parts(*_coordinates(X_train, X_test, labels, y[test]), {})
    if sp.issparse(X):
        X_train, X_test = X_train.toarray(), X_test.toarray()
    return _Parts(X_train, labels, X_test, y[test], _elsewhere(X_test, rules["shift"], seeds))


def _coordinates(X_train, X_test, y, y_test):
    """Training rows in an orthonormal basis of their own, test rows too, and what of them lies outside of it.

    All inner products with, and distances to, training rows stay as they are, in as many columns as there are rows.
    """
    eigenvalues, vectors = np.linalg.eigh((X_train @ X_train.T).toarray())
    kept = eigenvalues > 1e-10 * eigenvalues[-1]
    lengths = np.sqrt(eigenvalues[kept])
    basis = vectors[:, kept] / lengths
    inside = (X_test @ X_train.T).toarray() @ basis
    squares = np.asarray(X_test.multiply(X_test).sum(axis=1)).ravel()
    outside = np.sqrt(np.maximum(squares - np.sum(inside**2, axis=1), 0.0))
    own = np.column_stack([vectors[:, kept] * lengths, np.zeros(len(y))])
    return own, y, np.column_stack([inside, outside]), y_test


def _elsewhere(X_test, size, seeds):
    """Test rows whose features were shifted, or rescaled, each by an amount of its own."""
    rng = np.random.default_rng(seeds.method)
    factors = np.exp(rng.normal(0.0, size, X_test.shape[1]))
    shifts = rng.normal(0.0, size, X_test.shape[1])
    return {"rescaled": X_test * factors, "shifted": X_test + shifts}


def _split(y, cell, n_folds, rng):
    """Rows of the training and of the test part: half and half, then a fold against the others, in turn."""
    if cell.split % 2:
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=len(y))  # the same folds for all splits of a set
        return list(folds.split(y, y))[(cell.split // 2) % n_folds]
    order = rng.permutation(len(y))
    halves = [np.array_split(order[y[order] == label], 2) for label in np.unique(y)]
    return tuple(np.sort(np.concatenate(half)) for half in zip(*halves, strict=True))


def _thinned(rows, y, most, rng):
    """At most so many of the rows, at random; every class keeps its share, and three rows."""
    if len(rows) <= most:
        return rows
    order = rng.permutation(rows)
    by_class = [order[y[order] == label] for label in np.unique(y[rows])]
    kept = [own[: max(3, round(most * len(own) / len(rows)))] for own in by_class]
    return np.sort(np.concatenate(kept))


def _unequal(rows, y, ratio, rng):
    """As many rows of the smaller class as make it one to the ratio."""
    labels, counts = np.unique(y[rows], return_counts=True)
    few = rng.permutation(rows[y[rows] == labels[counts.argmin()]])
    many = rows[y[rows] != labels[counts.argmin()]]
    return np.sort(np.concatenate([many, few[: max(3, round(len(many) / ratio))]]))


def _flipped(labels, share, rng):
    """The labels with a share of them moved to another class."""
    classes = np.unique(labels)
    moved = rng.permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    steps = rng.integers(1, len(classes), size=len(moved))
    noisy[moved] = classes[(np.searchsorted(classes, labels[moved]) + steps) % len(classes)]
    return noisy


def _scaler(X):
    if sp.issparse(X):
        return MaxAbsScaler()
    return make_pipeline(encoder(X), StandardScaler())


# ---------------------------------------------------------------------- what is measured


def _untuned(experiment, method, parts, seeds):
    chosen = {axis.parameter: resolved(axis, parts.X)[0] for axis in method.grid}
    start = time.process_time()
    model = _seeded(method, seeds).set_params(**chosen).fit(parts.X, parts.y)
    seconds = time.process_time() - start
    return _measured(model, parts, chosen, seconds, {})


def _tuned(experiment, method: Method, parts, seeds: Seeds):
    estimator, folds = _seeded(method, seeds), experiment.splits.cv
    grid = {axis.parameter: resolved(axis, parts.X) for axis in method.grid}
    chosen, detail = {}, {}
    start = time.process_time()
    if grid:
        scoring = experiment.settings.get("choose")
        found = search(estimator, grid, folds=folds, seed=seeds.folds, scoring=scoring, shared=True)
        found.fit(parts.X, parts.y)
        best = _equally_good(found)
        first = experiment.settings.get("ties") == "first"
        chosen = {name: found.best_params_[name] for name in grid} if first else _middle(best, grid)
        detail["cv_score"] = round(float(found.best_score_), _DIGITS)
        detail["edge"] = [name for name, values in grid.items() if _at_the_edge(best, name, values)]
    detail["search_seconds"] = round(time.process_time() - start, 4)
    estimator.set_params(**chosen)
    start = time.process_time()
    model, probabilities = _with_probabilities(estimator, parts, folds, seeds)
    seconds = time.process_time() - start
    detail["log_loss"] = float(log_loss(parts.y_test, probabilities, labels=model.classes_))
    detail["stability"] = _stability(estimator, parts, seeds)
    detail |= {name: _accuracy(model, X, parts.y_test) for name, X in parts.elsewhere.items()}
    return _measured(model, parts, chosen, seconds, detail, probabilities)


def _seeded(method, seeds):
    estimator = method.make()
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=seeds.method)
    return estimator


def _equally_good(found):
    """Points of a search that share the best score."""
    points, scores = found.cv_results_["params"], found.cv_results_["mean_test_score"]
    return [point for point, score in zip(points, scores, strict=True) if score >= found.best_score_ - 1e-12]


def _middle(points, grid):
    """The point nearest to the middle of those given, in steps of the grid.

    With few rows many points score alike. The first of them would be an end of every axis, and which end would hang on
    how a method's price is written down; the middle favours no method.
    """
    steps = np.array([[tuple(values).index(point[name]) for name, values in grid.items()] for point in points])
    distances = np.sum((steps - steps.mean(axis=0)) ** 2, axis=1)
    return {name: points[distances.argmin()][name] for name in grid}


def _at_the_edge(points, name, values):
    """Tell whether the best score is only to be had at an end of an axis, so that the grid may be too narrow."""
    return len(values) >= 3 and all(point[name] in (values[0], values[-1]) for point in points)


def _with_probabilities(estimator, parts, folds, seeds):
    """The model fitted to the training part, and its probabilities of the test part after calibration."""
    if not hasattr(estimator, "decision_function"):  # trees have probabilities of their own
        model = clone(estimator).fit(parts.X, parts.y)
        return model, model.predict_proba(parts.X_test)
    within = StratifiedKFold(folds, shuffle=True, random_state=seeds.folds)
    calibrated = CalibratedClassifierCV(estimator, cv=within, ensemble=False).fit(parts.X, parts.y)
    return calibrated.calibrated_classifiers_[0].estimator, calibrated.predict_proba(parts.X_test)


def _stability(estimator, parts, seeds):
    """Correlation of the test rows' scores between models of two halves of the training part; none if one is flat."""
    halves = StratifiedKFold(2, shuffle=True, random_state=seeds.folds).split(parts.X, parts.y)
    first, second = (_scores(clone(estimator).fit(parts.X[rows], parts.y[rows]), parts.X_test) for rows, _ in halves)
    if first.shape != second.shape:
        return None
    pairs = zip(np.atleast_2d(first.T), np.atleast_2d(second.T), strict=True)
    found = [float(np.corrcoef(a, b)[0, 1]) for a, b in pairs if a.std() > 0 and b.std() > 0]
    return float(np.mean(found)) if found else None


def _scores(model, X):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict_proba(X)


def _accuracy(model, X, y):
    return float(accuracy_score(y, model.predict(X)))


def _measured(model, parts, chosen, seconds, detail, probabilities=None):
    predicted, scores = model.predict(parts.X_test), _scores(model, parts.X_test)
    detail["balanced"] = float(balanced_accuracy_score(parts.y_test, predicted))
    detail["auc"] = _auc(parts.y_test, scores, probabilities)
    detail |= {"train": len(parts.y), "test": len(parts.y_test)}
    rounded = {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in detail.items()}
    accuracy = float(accuracy_score(parts.y_test, predicted))
    return {"score": round(accuracy, 12), "parameters": chosen, "fit_seconds": seconds, "detail": rounded}


def _auc(y, scores, probabilities):
    """Area under the curve; with more classes the mean of one against the rest, by calibrated probabilities."""
    if scores.ndim == 1:
        return float(roc_auc_score(y, scores))
    if scores.shape[1] == 2:
        return float(roc_auc_score(y, scores[:, 1]))
    if probabilities is None:
        return None
    return float(roc_auc_score(y, probabilities, multi_class="ovr"))
