"""How one cell of a paper's table or figure is measured: its rows, its choice of parameters, its score."""

import hashlib
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import pairwise_distances_chunked
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler

from margindist.datasets import DataError, encoder, load, make_threshold, status
from margindist.datasets.dataset import take_rows
from margindist.margins import margins
from margindist.methods import search
from margindist.runs.runner import CannotRun
from margindist.runs.store import Cell, Result, Store
from reproduction.declarations import Axis, DataSet, Experiment, Method, experiments

_LEVELS = 101  # quantiles kept of a distribution of margins
_DIGITS = 6
_LARGEST_GRAM = 12_000
_WARM: set[tuple] = set()  # methods, and the kind of rows, for which this process has compiled the code
_ABSENT: dict[tuple, str] = {}  # asked for once per process, because waiting for a network takes long


class Parts(NamedTuple):
    """Training and test part of a cell, scaled as the experiment says; the test part may be empty.

    ``published`` says whether they are those of a split that comes with the data.
    """

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    checksum: str
    published: bool


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
    search_rows: int | None = None


def evaluate(
    cell: Cell,
    *,
    data_dir: str | None = None,
    max_rows: int | None = None,
    search_rows: int | None = None,
    store: str | None = None,
    declared: Mapping[str, Experiment] | None = None,
) -> Result:
    """Measure a cell.

    Tables and figures of a paper share their splits. Where another one has chosen the same method's parameters on the
    same rows, and its result is in the store, the choice is taken from there: it would come out the same.

    Parameters
    ----------
    cell : Cell
    data_dir : str, optional
        Folder with data sets, as `margindist.datasets.load` takes it.
    max_rows : int, optional
        Data sets with more rows are left out.
    search_rows : int, optional
        Parameters are chosen on at most so many rows of the training part, drawn at random, if the experiment does not
        declare fewer; the chosen model is fitted to all of them. The result says how many rows that were.
    store : str, optional
        File of results, in which to look for choices already made.
    declared : mapping, optional
        Experiments by id, if not the papers'.

    Raises
    ------
    CannotRun
        If the data cannot be had, are too large, or the method is not for them; the message says which.
    """
    declared = declared or experiments()
    experiment = declared[cell.experiment]
    line, method = experiment.dataset(cell.dataset), experiment.method(cell.method)
    if method.unavailable:
        raise CannotRun(method.unavailable)
    _check_size(line, max_rows)
    search_rows = min(filter(None, (search_rows, experiment.splits.search_rows)), default=None)
    earlier = None if store is None else _earlier(cell, experiment, declared, store, search_rows)
    if earlier is not None and declared[earlier.cell.experiment].kind == experiment.kind:
        return replace(earlier, cell=cell, detail={**earlier.detail, "taken_from": earlier.cell.experiment})
    seeds = seeds_of(experiment, cell)
    parts = _parts(experiment, line, cell.split, seeds, data_dir)
    _check_classes(method, parts.y)
    choose = _Chooser(experiment.splits.cv, seeds, search_rows, earlier)
    _warm_up(experiment, method, parts, choose._replace(earlier=None))
    measured = _KINDS[experiment.kind](experiment, method, parts, choose)
    return Result(cell, seed=seeds.rows, checksum=parts.checksum, **measured)


def _earlier(cell, experiment, declared, store, search_rows):
    """A finished result with the same rows and the same choice of parameters, from another experiment of the paper.

    A choice made on some of the rows serves where it may be made on as few here.
    """
    method, line = experiment.method(cell.method), experiment.dataset(cell.dataset)
    with Store(store) as opened:
        for other in declared.values():
            if other is experiment or not _same_rows(other, experiment, line):
                continue
            for twin in other.methods:
                if replace(twin, key=method.key, label=method.label, printed=True, note="") == replace(
                    method, printed=True, note=""
                ):
                    found = opened.result(Cell(other.id, cell.dataset, twin.key, cell.split))
                    if found is not None and found.status == "done" and _seen(found) >= (search_rows or np.inf):
                        return found
                    if found is not None and found.status == "failed":
                        raise CannotRun(f"The same choice of parameters ended in {other.id} so: {found.error}.")
    return None


def _seen(result):
    return result.detail.get("search_rows") or np.inf


def _same_rows(other, experiment, line):
    def plan(one):
        return one.paper, one.scaling, replace(one.splits, number=0, note="")

    return line in other.data and plan(other) == plan(experiment)


def seeds_of(experiment: Experiment, cell: Cell) -> Seeds:
    """Return the seeds of a cell: they depend on paper, data set and split, not on the method."""
    digest = hashlib.sha256(f"{experiment.paper.key}/{cell.dataset}/{cell.split}".encode()).digest()
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
    reason = _ABSENT.get((name, data_dir))
    if reason is None:
        try:
            return load(name, data_dir=data_dir)
        except DataError as error:
            reason = _ABSENT[name, data_dir] = str(error)
    raise CannotRun(reason)


def here(line: DataSet, data_dir: str | None = None) -> bool:
    """Say whether a line's data are on this machine; nothing is read or fetched."""
    return bool(line.generator) or _states(data_dir).get(line.catalogue) == "here"


@lru_cache(maxsize=1)
def _states(data_dir):
    return {row.name: row.state for row in status(data_dir)}


def rows_of(line: DataSet, data_dir: str | None, seed: int):
    """Return features, labels, checksum and published splits of a line of a table."""
    if "sklearn" in line.generator:
        return *_bundled(line.generator["sklearn"]), None, None
    if line.generator:
        X, y = make_threshold(**line.generator, random_state=seed)
        return X, y, None, None
    data = _loaded(line.catalogue, data_dir)
    X, y, splits = data.X, data.y, data.splits
    if line.classes is not None:
        kept = np.flatnonzero(np.isin(y, np.unique(y)[: line.classes]))
        X, y, splits = take_rows(X, kept), y[kept], None
    if line.positive is not None:
        y = np.where(y == np.asarray(line.positive, dtype=y.dtype), 1, -1)
    return X, y, data.checksum, splits


@lru_cache(maxsize=1)
def _bundled(name):
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


def split_rows(experiment: Experiment, line: DataSet, split: int, n_rows: int, published, seed: int):
    """Return the row numbers of training and test part of a split.

    Published splits come first, in their order; beyond them, and where there are none, rows are drawn.
    """
    plan = experiment.splits
    if _is_published(experiment, split, published):
        return published[split]
    rows = np.random.default_rng(seed).permutation(n_rows)
    if plan.kind in ("whole", "drawn"):
        return rows[: line.rows], rows[:0]
    if plan.kind == "published":
        return rows[: line.train_size], rows[line.train_size : line.train_size + line.test_size]
    rows = rows[: line.rows]
    n_train = round(plan.train * len(rows))
    return rows[:n_train], rows[n_train:]


def _is_published(experiment, split, published):
    return experiment.splits.kind == "published" and published is not None and split < len(published)


def _parts(experiment, line, split, seeds, data_dir):
    X, y, checksum, published = rows_of(line, data_dir, seeds.rows)
    if line.rows is not None and line.rows > len(y):
        raise CannotRun(f"{line.rows:,} rows are asked for, {line.catalogue} has {len(y):,}.")
    train, test = split_rows(experiment, line, split, len(y), published, seeds.rows)
    X_train, X_test = take_rows(X, train), take_rows(X, test)
    scaler = _scaler(X, experiment.scaling)
    if scaler is not None:
        X_train = scaler.fit_transform(X_train)
        X_test = scaler.transform(X_test) if len(test) else X_test
    return Parts(X_train, y[train], X_test, y[test], checksum, _is_published(experiment, split, published))


def _scaler(X, scaling):
    if hasattr(X, "columns"):
        return encoder(X)
    if scaling == "none":
        return None
    return MaxAbsScaler() if sp.issparse(X) else MinMaxScaler()


# ---------------------------------------------------------------------- choosing parameters


class _Chooser(NamedTuple):
    """Chooses a method's parameters by cross-validation on the training part, and fits it to all of that."""

    folds: int
    seeds: Seeds
    most_rows: int | None = None
    earlier: Result | None = None

    def __call__(self, method: Method, X, y) -> Choice:
        estimator = method.make()
        if estimator.get_params().get("random_state", 0) is None:
            estimator.set_params(random_state=self.seeds.method)
        if self.earlier is not None:
            chosen, score = self.earlier.parameters, self.earlier.detail.get("cv_score")
            search_seconds, n_rows = self.earlier.detail["search_seconds"], self.earlier.detail.get("search_rows")
        else:
            start = time.process_time()
            n_rows = self.most_rows if self.most_rows and self.most_rows < len(y) and method.grid else None
            few = self._few_rows(y, n_rows)
            chosen, score = self._search(estimator, method, X[few], y[few], len(y))
            if n_rows is not None:
                chosen = _for_all_rows(method, chosen, X[few], X)
            search_seconds = time.process_time() - start
        start = time.process_time()
        model = estimator.set_params(**chosen).fit(X, y)
        return Choice(model, chosen, score, search_seconds, time.process_time() - start, n_rows)

    def _few_rows(self, y, n_rows):
        """Rows to search on: every class keeps its share, and enough rows for the folds."""
        if n_rows is None:
            return slice(None)
        order = np.random.default_rng(self.seeds.folds).permutation(len(y))
        by_class = [order[y[order] == label] for label in np.unique(y)]
        kept = [rows[: max(self.folds, round(n_rows * len(rows) / len(y)))] for rows in by_class]
        return np.sort(np.concatenate(kept))

    def _search(self, estimator, method, X, y, n_samples):
        axes = [{axis.parameter: resolved(axis, X, n_samples=n_samples)} for axis in method.grid]
        if method.search == "grid" and axes:
            axes = [{name: values for axis in axes for name, values in axis.items()}]
        chosen, score = {}, None
        for grid in axes:
            base = clone(estimator).set_params(**chosen)
            found = search(base, grid, folds=self.folds, seed=self.seeds.folds, shared=True).fit(X, y)
            chosen |= {name: found.best_params_[name] for name in grid}
            score = float(found.best_score_)
        return chosen, score


def _for_all_rows(method, chosen, few, X):
    """Return what was chosen on few rows for all: every row keeps its weight, and a width is measured again."""
    n, m = few.shape[0], X.shape[0]
    values = {}
    for axis in method.grid:
        place = resolved(axis, few, n_samples=m).index(chosen[axis.parameter])
        values[axis.parameter] = resolved(axis, X, share=n / m)[place]
    return values


def resolved(axis: Axis, X: Any, **known: float) -> tuple:
    """Return the values of an axis for these training rows; what is known of them otherwise comes first."""
    properties = {"n_samples": X.shape[0], "n_features": X.shape[1]}
    if axis.unit == "mean-distance":
        properties["mean_distance"] = _mean_distance(X)
    return axis.resolve(**properties | known)


def _mean_distance(X):
    """Mean Euclidean distance between two different rows."""
    n = X.shape[0]
    total = sum(float(strip.sum()) for strip in pairwise_distances_chunked(X))
    return total / (n * (n - 1))


# ---------------------------------------------------------------------- what is measured


def _accuracy(experiment, method, parts, choose):
    choice = choose(method, parts.X, parts.y)
    start = time.process_time()
    score = float(np.mean(choice.model.predict(parts.X_test) == parts.y_test))
    return _measured(choice, score, parts, time.process_time() - start)


def _measured(choice, score, parts, predict_seconds=None, **detail):
    detail |= {"train": len(parts.y), "test": len(parts.y_test), "search_seconds": round(choice.search_seconds, 4)}
    if parts.published:
        detail["published"] = True
    if choice.search_rows is not None:
        detail["search_rows"] = choice.search_rows
    if choice.cv_score is not None:
        detail["cv_score"] = round(choice.cv_score, _DIGITS)
    return {
        "score": score,
        "parameters": choice.parameters,
        "fit_seconds": choice.fit_seconds,
        "predict_seconds": predict_seconds,
        "detail": detail,
    }


def _time(experiment, method, parts, choose):
    """Processor seconds: of the fit with the chosen parameters, or of everything from the search to the prediction."""
    start = time.process_time()
    parts = _with_gram(experiment, method, parts)
    gram_seconds = time.process_time() - start
    choice = choose(method, parts.X, parts.y)
    choice = choice._replace(fit_seconds=choice.fit_seconds + gram_seconds)
    start, detail = time.process_time(), {}
    if len(parts.y_test):
        detail["accuracy"] = float(np.mean(choice.model.predict(parts.X_test) == parts.y_test))
    predict_seconds = time.process_time() - start
    if "margin" in experiment.printed:
        detail["margin"] = _least_margin(choice.model, parts)
    for name in ("n_updates_", "n_iter_", "converged_"):
        if np.ndim(getattr(choice.model, name, None)) == 0 and hasattr(choice.model, name):
            detail[name.rstrip("_")] = getattr(choice.model, name)
    seconds = choice.fit_seconds
    if experiment.settings.get("timed") == "selection":
        seconds += choice.search_seconds + predict_seconds
    return _measured(choice, seconds, parts, predict_seconds, **detail)


def _warm_up(experiment, method, parts, choose):
    """Choose and fit on a few rows first, once per process, so that compilation is not timed.

    Code is compiled anew for two classes or several, and for dense rows or sparse ones.
    """
    kind = experiment.paper.key, method.key, sp.issparse(parts.X), len(np.unique(parts.y)) > 2
    if kind in _WARM:
        return
    rows = np.concatenate([np.flatnonzero(parts.y == label)[: 2 * (choose.folds or 1)] for label in np.unique(parts.y)])
    few = _with_gram(experiment, method, parts._replace(X=parts.X[rows], y=parts.y[rows]))
    grid = tuple(replace(axis, values=axis.values[:2]) for axis in method.grid)
    with warnings.catch_warnings(), suppress(ValueError):  # some methods refuse so few rows, which does no harm
        warnings.simplefilter("ignore")
        choose(replace(method, grid=grid), few.X, few.y)
    _WARM.add(kind)


def _with_gram(experiment, method, parts):
    """The Gram matrix in the place of the rows, for methods that take it; the soft margin is on its diagonal."""
    if method.fixed.get("kernel") != "precomputed":
        return parts
    n = len(parts.y)
    if n > _LARGEST_GRAM:
        raise CannotRun(f"The Gram matrix of {n:,} rows would take {8e-9 * n * n:.1f} GB.")
    gram = parts.X @ parts.X.T
    gram = gram.toarray() if sp.issparse(gram) else gram
    gram[np.diag_indices(n)] += experiment.settings.get("soft_margin", 0.0)
    return parts._replace(X=gram)


def _least_margin(model, parts):
    if hasattr(model, "margin_"):
        return float(model.margin_)
    alpha = np.zeros(len(parts.y))
    alpha[model.support_] = model.dual_coef_.ravel()
    return float(np.min(margins(model, parts.X, parts.y)) / np.sqrt(alpha @ parts.X @ alpha))


def _margins(experiment, method, parts, choose):
    """Quantiles of the margins of the training part, weights of length one; the score is their mean.

    The length that the weights have is kept, for the margins of a paper that does not divide by it.
    """
    choice = choose(method, parts.X, parts.y)
    length = _length(choice.model)
    z = margins(choice.model, parts.X, parts.y) / length
    levels = np.linspace(0.0, 1.0, _LEVELS)
    detail = {"quantiles": np.quantile(z, levels).round(_DIGITS).tolist(), "negative": round(float(np.mean(z < 0)), 4)}
    detail["length"] = length
    if len(parts.y_test):
        detail["accuracy"] = float(np.mean(choice.model.predict(parts.X_test) == parts.y_test))
    return _measured(choice, float(z.mean()), parts, **detail)


def _length(model):
    """Length of all weights together; a margin over it is the distance to the boundary, for two classes."""
    heads = getattr(model, "estimators_", [model])
    return float(np.linalg.norm(np.vstack([np.atleast_2d(head.coef_) for head in heads])))


def _influence(experiment, method, parts, choose):
    """Test accuracy with one parameter varied over its grid and the others as chosen."""
    choice = choose(method, parts.X, parts.y)

    def accuracy(model):
        return float(np.mean(model.predict(parts.X_test) == parts.y_test))

    curves = {}
    for axis in method.grid:
        if axis.parameter in experiment.settings["vary"]:
            values = resolved(axis, parts.X)
            models = (clone(choice.model).set_params(**{axis.parameter: value}) for value in values)
            curves[axis.parameter] = {
                "values": [float(value) for value in axis.values],
                "accuracy": [round(accuracy(model.fit(parts.X, parts.y)), _DIGITS) for model in models],
            }
    return _measured(choice, accuracy(choice.model), parts, influence=curves)


def _updates(experiment, method, parts, choose):
    """Margin reached, and the way there: updates, processor seconds and margin after each recorded pass."""
    choice = choose(method, parts.X, parts.y)
    model, history = choice.model, choice.model.history_
    curve = {name: history[name].round(_DIGITS).tolist() for name in ("n_updates", "seconds", "margin")}
    return _measured(choice, float(model.margin_), parts, converged=bool(model.converged_), history=curve)


_KINDS = {"accuracy": _accuracy, "time": _time, "margins": _margins, "influence": _influence, "updates": _updates}
