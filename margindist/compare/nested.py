"""Which method serves these data, and is the difference real? A plan, its cells, and what their results say.

Every method gets the same splits (repeated stratified folds). In each of them the encoder (scaling, imputation, one-hot
columns) learns from the training part alone, the method chooses its parameters there by an inner cross-validation, and
the fit with these parameters is scored on the test part. Methods are held against the best one, and against the
support vector machine of their own kind, by the corrected resampled t-test (Nadeau and Bengio, 2003), with Holm's
adjustment for the number of tests.

Margins have no unit; to be comparable between methods they are divided by the root mean square of the method's training
margins. Then the mean square on the training part is 1: a mean near 1 means that all margins are nearly equal.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline

from margindist import __version__
from margindist.compare.comparison import Comparison
from margindist.datasets import Dataset, Partitions, catalogue, encoder, encoding_notes, load, read_file, tidy
from margindist.datasets.dataset import check_labels, take_rows
from margindist.margins import margin_statistics, margins
from margindist.methods import BY_KEY, Shape, UnknownMethod, choose, search
from margindist.runs.runner import Progress, run
from margindist.runs.store import Cell, Result, Store

_PROBE_ROWS = 2000
_SAMPLE_ROWS = 20_000  # on which parameters for rows in parts are chosen
QUANTILES = np.round(np.linspace(0.0, 1.0, 81), 4)


def compare(
    data: Any,
    y: ArrayLike | None = None,
    *,
    target: str | None = None,
    methods: Sequence[str] | None = None,
    splits: int = 5,
    repeats: int = 2,
    seed: int = 0,
    quick: bool = False,
    n_jobs: int | None = None,
    time_budget: float | None = None,
    store: str | os.PathLike = ":memory:",
    resume: bool = False,
    data_dir: str | os.PathLike | None = None,
    progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare methods on a data set by nested cross-validation.

    Parameters
    ----------
    data : Dataset, str, path or array-like
        A data set, the name of one in the catalogue, a file, or the features of given labels.
    y : array-like of shape (n_samples,), default=None
        Labels, if `data` is an array or a data frame of features.
    target : str, default=None
        Name of the target column of a file.
    methods : sequence of str, default=None
        Keys of the methods (``margindist.methods.BY_KEY``), or None for all that suit the data's size.
        scikit-learn's linear and kernel SVM and logistic regression are always beside them.
    splits : int, default=5
        Folds of the outer cross-validation.
    repeats : int, default=2
        How often it is repeated with other folds.
    seed : int, default=0
        Of folds and methods.
    quick : bool, default=False
        Try fewer parameters, with three inner folds in place of five.
    n_jobs : int, default=None
        Processes, as joblib takes it.
    time_budget : float, default=None
        Seconds after which no further split is begun.
    store : str or path, default=":memory:"
        File that keeps the results as they come.
    resume : bool, default=False
        Take over what the store has of this same comparison; else it starts anew.
    data_dir : str or path, default=None
        Folder of data sets, for names from the catalogue.
    progress : callable, default=None
        Called with a `Progress` after every split of a method.
    say : callable, default=None
        Called with a sentence when there is something to know before the run.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist.compare import compare
    >>> X, y = load_iris(return_X_y=True)
    >>> comparison = compare(X, y, methods=["mamc", "lssvm"], splits=3, repeats=1, quick=True)
    >>> sorted(row.label for row in comparison.rows)
    ['LS-SVM', 'LinearSVC', 'LogisticRegression', 'MAMC', 'SVC (RBF)']
    """
    dataset, source = find_data(data, y, target, data_dir)
    plan, about = make_plan(dataset, source, methods, splits, repeats, seed, quick)
    say = say or (lambda sentence: None)
    with Store(store) as results:
        _begin(results, plan, about, resume, say)
        summary = run(
            results, plan.cells(), Evaluate(plan, dataset.X, dataset.y), n_jobs=n_jobs, time_budget=time_budget,
            progress=progress,
        )  # fmt: skip
        return Comparison(plan, about, results.results(plan.experiment), summary.stopped)


class Trained(NamedTuple):
    """A fitted pipeline of encoder and classifier, and how it came about.

    Parameters
    ----------
    model : Pipeline
    dataset : Dataset
    label : str
        Name of the method.
    parameters : dict
        Those chosen, and those given.
    inner_score : float or None
        Accuracy of the choice in the search's own cross-validation; None if nothing was searched.
    notes : tuple of str
        What was done to the columns, and what was not as asked.
    """

    model: Pipeline
    dataset: Dataset
    label: str
    parameters: dict[str, Any]
    inner_score: float | None
    notes: tuple[str, ...] = ()


def train(
    data: Any,
    y: ArrayLike | None = None,
    *,
    target: str | None = None,
    method: str = "ldm",
    parameters: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    quick: bool = False,
    data_dir: str | os.PathLike | None = None,
) -> Trained:
    """Choose a method's parameters by cross-validation on all the data, and fit it to them.

    Parameters
    ----------
    data, y, target
        As for :func:`compare`; or :class:`~margindist.datasets.Partitions`, where parameters are chosen on a sample of
        20,000 rows, and the method is fitted to all of them.
    method : str, default="ldm"
        Key of the method.
    parameters : dict, default=None
        Parameters that are not searched.
    folds : int, default=5
        Folds of the search.
    seed, quick, data_dir
        As for :func:`compare`.

    Returns
    -------
    Trained
    """
    if method not in BY_KEY:
        raise UnknownMethod(method, BY_KEY)
    given = dict(parameters or {})
    if isinstance(data, Partitions):
        return _train_in_parts(data, method, given, folds, seed, quick)
    dataset, _ = find_data(data, y, target, data_dir)
    counts = class_counts(dataset)
    shape = shape_of(dataset.X, len(counts))
    table = named_table(dataset)
    coder = encoder(table)
    X = coder.fit_transform(table)
    notes = encoding_notes(dataset.X)
    base = BY_KEY[method].estimator(seed).set_params(**given)
    grid = {name: values for name, values in BY_KEY[method].grid(shape, quick).items() if name not in given}
    inner_score = None
    if grid:
        chooser, notes = _chosen(base, grid, X, dataset.y, counts, folds, seed, notes)
        given |= plain(chooser.best_params_)
        inner_score = float(chooser.best_score_)
        model = chooser.best_estimator_
    else:
        model = base.fit(X, dataset.y)
    fitted = Pipeline([("encode", coder), ("classify", model)])
    return Trained(fitted, dataset, BY_KEY[method].label, dict(sorted(given.items())), inner_score, notes)


def _chosen(base, grid, X, y, counts, folds, seed, notes):
    """Return the search, done, and the notes with one more where there are fewer folds than asked for."""
    least = min(counts.values())
    if folds > least:
        notes = (*notes, f"The smallest class has {least} rows only, so there are {least} folds, not {folds}.")
    chooser = search(base, grid, folds=min(folds, least), seed=seed)
    if isinstance(chooser, GridSearchCV):
        chooser.set_params(error_score="raise")  # the classifier's own sentence, not one about 45 fits
    return chooser.fit(X, y), notes


def _train_in_parts(data, method, given, folds, seed, quick):
    """Choose parameters on a sample of the rows, and fit to all of them, part by part."""
    rows = data.encoded()
    notes = (f"Columns are scaled to [0, 1] and encoded, to {rows.n_features} columns, as parts are read.",)
    sample = rows.sample(_SAMPLE_ROWS, seed)
    names = data.feature_names or ()
    dataset = Dataset(data.name, sample.X, sample.y, names, data.target_name, None, "", data.name, data.notes)
    base = BY_KEY[method].estimator(seed).set_params(**given)
    inner_score = None
    n_classes = len(np.unique(sample.y))
    grid = BY_KEY[method].grid(shape_of(sample.X, n_classes), quick)
    grid = {name: values for name, values in grid.items() if name not in given}
    if grid:
        chooser, notes = _chosen(base, grid, sample.X, sample.y, class_counts(dataset), folds, seed, notes)
        notes = (*notes, f"Parameters were chosen on {len(sample.y)} of {rows.n_rows} rows.")
        given |= plain(chooser.best_params_)
        inner_score = float(chooser.best_score_)
    model = clone(base).set_params(**given).fit(rows)
    coder = rows.transformers[0] if len(rows.transformers) == 1 else make_pipeline(*rows.transformers)
    fitted = Pipeline([("encode", coder), ("classify", model)])
    return Trained(fitted, dataset, BY_KEY[method].label, dict(sorted(given.items())), inner_score, notes)


def _begin(store, plan, about, resume, say):
    """Prepare the store, and say what happens to the results that it holds."""
    latest = store.note("compare")
    kept = len(store.results(plan.experiment))
    if resume:
        if kept:
            say(f"Resuming: {kept} of {len(plan.cells())} results are there already.")
        elif latest is not None and latest["plan"] != json.loads(json.dumps(asdict(plan))):
            say(f"Not resumed: {_difference(latest['plan'], asdict(plan))}, so everything is computed anew.")
        else:
            say("There is nothing to resume yet, so this starts from the beginning.")
    elif kept:
        old = store.copy_aside()
        stay = f"; the old ones are in {old.name}" if old else ""
        say(f"{kept} results of the same comparison are computed anew{stay}. With --resume they would have been kept.")
        store.forget(plan.cells())
    store.note("compare", {"plan": asdict(plan), "about": about})


def _difference(old, new):
    if old["checksum"] != new["checksum"]:
        if old["dataset"] != new["dataset"]:
            return f"the results kept are of {old['dataset']}, not of {new['dataset']}"
        sums = f"checksum {old['checksum'][:8]} then, {new['checksum'][:8]} now"
        return f"the content of {new['dataset']} has changed ({sums})"
    new = json.loads(json.dumps(new))
    names = [name for name in new if old.get(name) != new[name]]
    words = {"grids": "the methods or their grids", "version": "the version of margindist"}
    return f"the plan has changed ({', '.join(words.get(name, name) for name in names)})"


def default_store(output: str | os.PathLike) -> Path:
    """Return the file that keeps the results of a report: it is beside the report."""
    output = Path(output)
    return output.with_name(f"{output.name.removesuffix('.html')}.results.sqlite")


# ---------------------------------------------------------------------- the plan


@dataclass(frozen=True)
class Plan:
    """All that decides the results of a comparison.

    Parameters
    ----------
    dataset : str
        Name of the data.
    checksum : str
        Of their content.
    grids : dict
        From the key of each method to the values it tries of each parameter, quick methods first.
    splits : int
        Folds of the outer cross-validation.
    repeats : int
        How often it is repeated with other folds.
    folds : int
        Folds of the inner cross-validation, which chooses parameters.
    seed : int
        Of folds and methods.
    version : str
        Of this library.
    """

    dataset: str
    checksum: str
    grids: Mapping[str, Mapping[str, Sequence[Any]]]
    splits: int
    repeats: int
    folds: int
    seed: int
    version: str = __version__

    @property
    def experiment(self) -> str:
        """Name of the experiment in a store: a hash of the plan, so that other plans and other data never mix."""
        text = json.dumps(asdict(self), sort_keys=False)
        return f"compare-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def cells(self) -> list[Cell]:
        """Return the cells split by split, quick methods first, so that an unfinished run can be compared."""
        return [
            Cell(self.experiment, self.dataset, key, split)
            for split in range(self.splits * self.repeats)
            for key in self.grids
        ]

    def parts(self, y: ArrayLike) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rows of training and test part of every split.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        """
        folds = RepeatedStratifiedKFold(n_splits=self.splits, n_repeats=self.repeats, random_state=self.seed)
        return list(folds.split(np.zeros(len(y)), y))


def named_table(dataset):
    """Return the features with the names of their columns, by which the fitted model finds them again."""
    names = dataset.feature_names
    if hasattr(dataset.X, "columns") or sp.issparse(dataset.X) or not names or len(set(names)) < len(names):
        return dataset.X
    try:
        import pandas as pd
    except ImportError:
        return dataset.X
    return pd.DataFrame(dataset.X, columns=list(names))


def find_data(data, y, target, data_dir):
    """Return the data, and where they came from in a form that the report can turn into code."""
    if isinstance(data, Dataset):
        return data, {"kind": "arrays"}
    if isinstance(data, (str, os.PathLike)):
        if os.path.isfile(data) or ((Path(data).suffix or os.sep in os.fspath(data)) and not _is_known(data)):
            return read_file(data, target=target), {"kind": "file", "path": os.fspath(data), "target": target}
        if target is not None:
            raise ValueError(
                f"{os.fspath(data)} is a data set with a target of its own, so target cannot be {target!r}."
            )
        where = None if data_dir is None else os.fspath(data_dir)
        return load(os.fspath(data), data_dir=data_dir), {"kind": "name", "name": os.fspath(data), "data_dir": where}
    if y is None:
        raise ValueError("compare: features without labels; pass y as well, or a Dataset, a file or a name.")
    if hasattr(data, "iloc"):
        X = tidy(data)
    else:
        X = data.tocsr() if sp.issparse(data) else np.asarray(data)
    if X.shape[0] != len(y):
        raise ValueError(f"compare: expected a label for each of the {X.shape[0]} rows of X, got {len(y)} labels.")
    y = check_labels(np.asarray(y), "compare", "y")
    return Dataset("your data", X, y, tuple(map(str, getattr(data, "columns", ())))), {"kind": "arrays"}


def _is_known(name):
    """Tell whether a data set of the catalogue, such as news20.binary, goes by this name."""
    return os.fspath(name) in {entry.name for entry in catalogue()}


def make_plan(dataset, source, methods, splits, repeats, seed, quick):
    """Return the plan, and what the report says about the data and the methods left out."""
    for name, value, least in (("splits", splits, 2), ("repeats", repeats, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"compare: {name} must be at least {least}, got {value}.")
    counts = class_counts(dataset)
    notes = list(dataset.notes)
    label = min(counts, key=counts.get)
    rarest = counts[label]
    if rarest < splits:
        notes.append(f"The class {label!r} has {rarest} rows only, so there are {rarest} splits, not {splits}.")
        splits = rarest
    folds = min(3 if quick else 5, rarest - -(-rarest // splits))
    shape = shape_of(dataset.X, len(counts))
    choice = choose(methods, shape)
    grids = {m.key: {k: list(v) for k, v in m.grid(shape, quick).items()} for m in choice.methods}
    if len(counts) > 2 and "svc" in grids:
        notes.append("SVC's scores of more than two classes are votes: its margins come in steps, unlike the others'.")
    plan = Plan(dataset.name, dataset.checksum, grids, splits, repeats, folds, seed)
    about = {
        "source": source,
        "origin": dataset.source,
        "notes": notes,
        "encoding": list(encoding_notes(dataset.X)),
        "target": dataset.target_name,
        "classes": counts,
        "left_out": choice.left_out,
        "methods": None if methods is None else list(methods),
        "quick": quick,
        "numbers": _numbers(dataset, shape),
    }
    return plan, about


def class_counts(dataset):
    """Return the number of rows of each class; raise an error if nested cross-validation has too few."""
    labels, counts = np.unique(np.asarray(dataset.y), return_counts=True)
    rarest, label = int(counts.min()), str(labels[counts.argmin()])
    if len(labels) < 2:
        raise ValueError(f"{dataset.name}: all rows have the label {label!r}; there is nothing to tell apart.")
    if rarest < 4:
        raise ValueError(
            f"{dataset.name}: the class {label!r} of {dataset.target_name!r} has {rarest} "
            f"row{'s' if rarest > 1 else ''} of {counts.sum()}, and nested cross-validation needs 4; merge or drop "
            "rare classes, or choose the target column, if this is not it."
        )
    return {str(name): int(count) for name, count in zip(labels, counts)}


def shape_of(X, classes):
    """Return the shape of the data, estimated from a sample of the encoded rows; labels are not used."""
    rows = X.shape[0]
    probe = np.sort(np.random.default_rng(0).permutation(rows)[:_PROBE_ROWS])
    probed = take_rows(X, probe)
    encoded = encoder(probed).fit_transform(probed)
    means = np.asarray(encoded.mean(axis=0)).ravel()
    squares = np.asarray((encoded.multiply(encoded) if sp.issparse(encoded) else encoded**2).mean(axis=0)).ravel()
    distance = 2.0 * float(np.maximum(squares - means**2, 0.0).sum())
    return Shape(rows, encoded.shape[1], classes, sp.issparse(X), distance)


def _numbers(dataset, shape):
    X = dataset.X
    numbers = {"rows": shape.rows, "columns": int(X.shape[1]), "encoded": shape.columns, "sparse": shape.sparse}
    if sp.issparse(X):
        return {**numbers, "categorical": 0, "filled": X.nnz / max(1, X.shape[0] * X.shape[1])}
    if hasattr(X, "select_dtypes"):
        numeric = X.select_dtypes("number").shape[1]
        return {**numbers, "categorical": int(X.shape[1] - numeric), "missing": int(X.isna().to_numpy().sum())}
    return {**numbers, "categorical": 0, "missing": int(np.isnan(X).sum()) if X.dtype.kind == "f" else 0}


# ---------------------------------------------------------------------- one cell


class Evaluate:
    """Computes one cell; picklable, so that other processes can do it."""

    def __init__(self, plan, X, y):
        self.plan = plan
        self.X = X
        self.y = np.asarray(y)
        # Carried along, because classifiers that were registered here are not known in other processes.
        self.methods = {key: BY_KEY[key] for key in plan.grids}

    def __call__(self, cell):
        """Return the result of a cell."""
        seed = self.plan.seed
        train, test = self.plan.parts(self.y)[cell.split]
        y_train, y_test = self.y[train], self.y[test]
        coder = encoder(self.X)
        X_train = coder.fit_transform(take_rows(self.X, train))
        X_test = coder.transform(take_rows(self.X, test))
        base = self.methods[cell.method].estimator(seed)
        grid = self.plan.grids[cell.method]
        parameters, influence = {}, {}
        inner = None
        if grid:
            found = search(base, grid, folds=self.plan.folds, seed=seed + cell.split).fit(X_train, y_train)
            parameters = plain(found.best_params_)
            inner = float(found.best_score_)
            influence = _influence(found.cv_results_, grid)
        else:
            clone(base).fit(X_train, y_train)  # compiles what the search would have compiled, so that it is not timed
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
    """Return parameters in types that JSON has, sorted, whatever search chose them."""
    return {name: _plain_value(value) for name, value in sorted(parameters.items())}


def _plain_value(value):
    return value.item() if hasattr(value, "item") else value


def _balanced_accuracy(y, predicted):
    """Mean recall of the classes that the test part has; scikit-learn warns of predicted ones that it lacks."""
    return float(recall_score(y, predicted, labels=np.unique(y), average="macro"))


def _influence(cv_results, grid):
    """Mean inner accuracy of every setting, as columns."""
    settings = cv_results["params"]
    columns = {name: [_plain_value(setting[name]) for setting in settings] for name in grid}
    scores = np.round(cv_results["mean_test_score"], 6).tolist()
    return {"settings": columns, "scores": [score if np.isfinite(score) else None for score in scores]}


def _margins(model, X_train, y_train, X_test, y_test):
    """Statistics of the margins of both parts; one scale makes those of different methods comparable."""
    on_train = margins(model, X_train, y_train)
    scale = float(np.sqrt(np.mean(on_train**2))) or 1.0
    found = {"scale": scale}
    for part, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
        z = margins(model, X, y) / scale
        found[part] = margin_statistics(z, quantiles=(0.05,)).as_dict()
        found[f"{part}_quantiles"] = np.round(np.quantile(z, QUANTILES), 5).tolist()
        try:
            z = margins(model, X, y, geometric=True)
            found[f"{part}_geometric"] = margin_statistics(z, quantiles=(0.05,)).as_dict()
        except ValueError:  # there is not one weight vector per score, as in SVC with more than two classes
            found[f"{part}_geometric"] = None
    return found
