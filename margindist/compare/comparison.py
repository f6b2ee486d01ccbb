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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold
from sklearn.pipeline import Pipeline

from margindist import __version__
from margindist.datasets import Dataset, catalogue, encoder, encoding_notes, load, read_file, tidy
from margindist.datasets.tables import check_labels
from margindist.margins import margin_statistics, margins
from margindist.methods import BY_KEY, Shape, UnknownMethod, choose
from margindist.runs.runner import Progress, run
from margindist.runs.search import search
from margindist.runs.statistics import corrected_resampled_t, holm
from margindist.runs.store import Cell, Result, Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "ComparisonRow", "Plan", "Trained", "compare", "train"]

LEVEL = 0.05
FEWEST_TESTED = 5  # two or three splits often differ by exactly the same, which a t-test takes for certainty
QUANTILES = np.round(np.linspace(0.0, 1.0, 81), 4)
_PROBE_ROWS = 2000


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
        """Return the cells split by split, quick methods first: what is done at any time can be compared."""
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


class ComparisonRow(NamedTuple):
    """A method's line in the table.

    Parameters
    ----------
    rank : int
    method : str
        Its key.
    label : str
    kernel : bool
    splits : int
        How many splits the figures are means over.
    accuracy, accuracy_std : float
        Mean and standard deviation over the splits; the latter None for one split.
    balanced_accuracy, balanced_accuracy_std : float
    margin_mean, margin_variance : float
        Of the normalised margins of the test parts.
    geometric_margin : float or None
        Mean distance to the boundary, in the space where the method is linear; None if it has no weight vector.
    fit_seconds, predict_seconds : float
        Processor time of one fit with chosen parameters, and of the prediction of one test part.
    p_best : float or None
        Adjusted probability of such a difference from the best method by chance; None for the best itself.
    verdict_best : str
        ``"tie"`` or ``"loss"`` against it, or an empty string; a method that failed on some splits may ``"win"`` on the
        others.
    p_svm : float or None
        The same against the support vector machine of the same kind.
    against_svm : str
        Which machine that is, or an empty string.
    verdict_svm : str
        ``"win"``, ``"tie"`` or ``"loss"`` against it, or an empty string.
    """

    rank: int
    method: str
    label: str
    kernel: bool
    splits: int
    accuracy: float
    accuracy_std: float | None
    balanced_accuracy: float
    balanced_accuracy_std: float | None
    margin_mean: float
    margin_variance: float
    geometric_margin: float | None
    fit_seconds: float
    predict_seconds: float
    p_best: float | None
    verdict_best: str
    p_svm: float | None
    against_svm: str
    verdict_svm: str


class Comparison:
    """The results of a comparison; made by :func:`compare` or :meth:`from_store`.

    Parameters
    ----------
    plan : Plan
        What was to be done.
    about : dict
        The data in numbers, methods left out and why, versions.
    results : list of Result
        What was done.
    stopped : str or None
        Why it ended before the end, if it did.
    """

    def __init__(self, plan: Plan, about: Mapping[str, Any], results: Sequence[Result], stopped: str | None = None):
        self.plan = plan
        self.about = about
        self.results = list(results)
        self.stopped = stopped
        self._splits = _comparable_splits(plan, self.results)
        self.rows = _ranked(plan, self.done)

    @classmethod
    def from_store(cls, path: str | os.PathLike) -> "Comparison":
        """Read the last comparison that a store has seen.

        Parameters
        ----------
        path : str or path
            File of the store.
        """
        with Store(path) as store:
            latest = store.note("compare")
            if latest is None:
                raise ValueError(f"{path}: holds no comparison.")
            return cls(Plan(**latest["plan"]), latest["about"], store.results(Plan(**latest["plan"]).experiment))

    @property
    def done(self) -> dict[str, list[Result]]:
        """The results that the table is made of, by method and in the order of the splits.

        While not all is done, these are the splits that every method has finished.
        """
        found = {key: [] for key in self.plan.grids}
        for result in sorted(self.results, key=lambda result: result.cell.split):
            if result.status == "done" and result.cell.split in self._splits:
                found[result.cell.method].append(result)
        return {key: results for key, results in found.items() if results}

    @property
    def total(self) -> int:
        """The number of cells of the plan."""
        return len(self.plan.grids) * self.plan.splits * self.plan.repeats

    @property
    def finished(self) -> int:
        """The number of cells that have a result."""
        return len(self.results)

    @property
    def failures(self) -> dict[str, str]:
        """Why methods failed, a sentence for each that did in some split."""
        failed: dict[str, list[Result]] = {}
        for result in self.results:
            if result.status != "done":
                failed.setdefault(result.cell.method, []).append(result)
        return {
            BY_KEY[key].label: f"failed in {len(results)} of {self.plan.splits * self.plan.repeats} splits: "
            f"{results[0].error}"
            for key, results in failed.items()
        }

    @property
    def warnings(self) -> dict[str, str]:
        """What methods warned of, a sentence for each that did in some split, search included."""
        warned: dict[str, list[str]] = {}
        for result in self.results:
            if result.detail.get("warnings"):
                warned.setdefault(result.cell.method, []).append(result.detail["warnings"][0])
        return {
            BY_KEY[key].label: f"warned in {len(messages)} of {self.plan.splits * self.plan.repeats} splits, at chosen "
            f"parameters or while searching: {messages[0]}"
            for key, messages in warned.items()
        }

    def answer(self) -> list[str]:
        """Return the answer in a few sentences: which method, and whether the difference is real."""
        return _answer(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it: plan, data, answer, table, and each split's results."""
        cells = [
            {**dict(result.cell._asdict()), **{k: v for k, v in asdict(result).items() if k != "cell"}}
            for result in self.results
        ]
        return {
            "plan": asdict(self.plan),
            "about": dict(self.about),
            "stopped": self.stopped,
            "answer": self.answer(),
            "failures": self.failures,
            "warnings": self.warnings,
            "table": [row._asdict() for row in self.rows],
            "cells": cells,
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return the ranked table as a data frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas; rows has the same without it.") from error
        return pd.DataFrame(self.rows, columns=ComparisonRow._fields).set_index("rank")

    def to_html(self, command: str | None = None) -> str:
        """Return the report as one HTML page that needs nothing else.

        Parameters
        ----------
        command : str, optional
            The command line that made it.
        """
        from margindist.compare.report import html

        return html(self, command)

    def __str__(self) -> str:
        return table_as_text(self)

    __repr__ = __str__  # what a notebook shows


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
    dataset, source = _dataset(data, y, target, data_dir)
    plan, about = _plan(dataset, source, methods, splits, repeats, seed, quick)
    say = say or (lambda sentence: None)
    with Store(store) as results:
        _begin(results, plan, about, resume, say)
        summary = run(
            results, plan.cells(), _Evaluate(plan, dataset.X, dataset.y), n_jobs=n_jobs, time_budget=time_budget,
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
        As for :func:`compare`.
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
    given = dict(parameters or {})
    if method not in BY_KEY:
        raise UnknownMethod(method, BY_KEY)
    dataset, _ = _dataset(data, y, target, data_dir)
    counts = _class_counts(dataset)
    shape = _shape(dataset.X, len(counts))
    table = _named_table(dataset)
    coder = encoder(table)
    X = coder.fit_transform(table)
    base = BY_KEY[method].estimator(seed).set_params(**given)
    grid = {name: values for name, values in BY_KEY[method].grid(shape, quick).items() if name not in given}
    notes, least = encoding_notes(dataset.X), min(counts.values())
    if grid and folds > least:
        notes = (*notes, f"The smallest class has {least} rows only, so there are {least} folds, not {folds}.")
    if grid:
        chooser = search(base, grid, folds=min(folds, least), seed=seed)
        if isinstance(chooser, GridSearchCV):
            chooser.set_params(error_score="raise")  # the classifier's own sentence, not one about 45 fits
        found = chooser.fit(X, dataset.y)
        given, inner = {**given, **_plain(found.best_params_)}, float(found.best_score_)
        model = found.best_estimator_
    else:
        model, inner = base.fit(X, dataset.y), None
    fitted = Pipeline([("encode", coder), ("classify", model)])
    return Trained(fitted, dataset, BY_KEY[method].label, dict(sorted(given.items())), inner, notes)


def _named_table(dataset):
    """Return the features with the names of their columns, by which the fitted model finds them again."""
    names = dataset.feature_names
    if hasattr(dataset.X, "columns") or sp.issparse(dataset.X) or not names or len(set(names)) < len(names):
        return dataset.X
    try:
        import pandas as pd
    except ImportError:
        return dataset.X
    return pd.DataFrame(dataset.X, columns=list(names))


def _dataset(data, y, target, data_dir):
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
    X = tidy(data) if hasattr(data, "iloc") else data.tocsr() if sp.issparse(data) else np.asarray(data)
    if X.shape[0] != len(y):
        raise ValueError(f"compare: expected a label for each of the {X.shape[0]} rows of X, got {len(y)} labels.")
    y = check_labels(np.asarray(y), "compare", "y")
    return Dataset("your data", X, y, tuple(map(str, getattr(data, "columns", ())))), {"kind": "arrays"}


def _is_known(name):
    """Tell whether a data set of the catalogue, such as news20.binary, goes by this name."""
    return os.fspath(name) in {entry.name for entry in catalogue()}


def _plan(dataset, source, methods, splits, repeats, seed, quick):
    for name, value, least in (("splits", splits, 2), ("repeats", repeats, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"compare: {name} must be at least {least}, got {value}.")
    counts = _class_counts(dataset)
    notes = list(dataset.notes)
    label = min(counts, key=counts.get)
    rarest = counts[label]
    if rarest < splits:
        notes.append(f"The class {label!r} has {rarest} rows only, so there are {rarest} splits, not {splits}.")
        splits = rarest
    folds = min(3 if quick else 5, rarest - -(-rarest // splits))
    shape = _shape(dataset.X, len(counts))
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


def _class_counts(dataset):
    """Rows of each class; refused where cross-validation within cross-validation has too few."""
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


def _shape(X, classes):
    """Look at a sample of the encoded rows; no label is used."""
    rows = X.shape[0]
    probe = np.sort(np.random.default_rng(0).permutation(rows)[:_PROBE_ROWS])
    probed = _rows(X, probe)
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


def _begin(store, plan, about, resume, say):
    """Make the store ready, and say what becomes of what it holds."""
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


# ---------------------------------------------------------------------- one cell


class _Evaluate:
    """What is done in a cell; picklable."""

    def __init__(self, plan, X, y):
        self.plan, self.X, self.y = plan, X, np.asarray(y)

    def __call__(self, cell):
        method, seed = BY_KEY[cell.method], self.plan.seed
        train, test = self.plan.parts(self.y)[cell.split]
        y_train, y_test = self.y[train], self.y[test]
        coder = encoder(self.X).fit(_rows(self.X, train))
        X_train, X_test = coder.transform(_rows(self.X, train)), coder.transform(_rows(self.X, test))
        base, grid = method.estimator(seed), self.plan.grids[cell.method]
        parameters, influence, inner = {}, {}, None
        if grid:
            found = search(base, grid, folds=self.plan.folds, seed=seed + cell.split).fit(X_train, y_train)
            parameters, inner = _plain(found.best_params_), float(found.best_score_)
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


def _rows(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _plain(parameters):
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
    except ValueError:  # no weight vector a score: SVC with more than two classes, for one
        found["train_geometric"] = found["test_geometric"] = None
    return found


# ---------------------------------------------------------------------- what the cells say


def _comparable_splits(plan, results):
    """The splits that every method has finished; methods that finished none or failed somewhere do not count."""
    done: dict[str, set[int]] = {}
    failed = {result.cell.method for result in results if result.status != "done"}
    for result in results:
        if result.status == "done":
            done.setdefault(result.cell.method, set()).add(result.cell.split)
    counted = [splits for key, splits in done.items() if key not in failed] or list(done.values())
    return set.intersection(*counted) if counted else set()


def _ranked(plan, done):
    if not done:
        return []
    means = {key: np.mean([r.score for r in results]) for key, results in done.items()}
    most = max(
        map(len, done.values())
    )  # a method that failed on some splits, hard ones perhaps, comes after the others
    order = sorted(done, key=lambda key: (len(done[key]) < most, -means[key], list(plan.grids).index(key)))
    against_best = _tests(done, dict.fromkeys(order[1:], order[0]), plan)
    machines = _machines(done)
    against_svm = _tests(done, {key: machines[key] for key in order if machines[key] not in (None, key)}, plan)
    rows = []
    for rank, key in enumerate(order, 1):
        method, results = BY_KEY[key], done[key]
        scores = np.array([result.score for result in results])
        balanced = np.array([result.detail["balanced_accuracy"] for result in results])
        tests = [result.detail["margins"]["test"] for result in results]
        geometric = [result.detail["margins"]["test_geometric"] for result in results]
        versus = against_svm.get(key)
        rows.append(
            ComparisonRow(
                rank=rank,
                method=key,
                label=method.label,
                kernel=method.kernel,
                splits=len(results),
                accuracy=float(scores.mean()),
                accuracy_std=float(scores.std(ddof=1)) if len(scores) > 1 else None,
                balanced_accuracy=float(balanced.mean()),
                balanced_accuracy_std=float(balanced.std(ddof=1)) if len(scores) > 1 else None,
                margin_mean=float(np.mean([part["mean"] for part in tests])),
                margin_variance=float(np.mean([part["variance"] for part in tests])),
                geometric_margin=None if None in geometric else float(np.mean([part["mean"] for part in geometric])),
                fit_seconds=float(np.median([result.fit_seconds for result in results])),
                predict_seconds=float(np.median([result.predict_seconds for result in results])),
                p_best=against_best[key].p_value if key in against_best else None,
                verdict_best=against_best[key].verdict(LEVEL) if key in against_best else "",
                p_svm=None if versus is None else versus.p_value,
                against_svm=BY_KEY[machines[key]].label if versus is not None else "",
                verdict_svm="" if versus is None else versus.verdict(LEVEL),
            )
        )
    return rows


def _machines(done):
    """The support vector machine each method is held against: that of its own kind, or the other if it is missing."""
    both = [key for key in ("linearsvc", "svc") if key in done]
    own = {True: "svc", False: "linearsvc"}
    return {
        key: own[BY_KEY[key].kernel] if own[BY_KEY[key].kernel] in both else (both[0] if both else None)
        for key in done
    }  # fmt: skip


def _tests(done, pairs, plan):
    """Corrected resampled t-tests of each pair on the splits both have, the p-values adjusted by Holm's rule."""
    found = {}
    for key, other in pairs.items():
        scores = [{result.cell.split: result.score for result in done[name]} for name in (key, other)]
        shared = sorted(scores[0].keys() & scores[1].keys())
        if len(shared) >= FEWEST_TESTED:
            found[key] = corrected_resampled_t(
                *([part[split] for split in shared] for part in scores), test_share=1.0 / plan.splits
            )
    adjusted = holm([test.p_value for test in found.values()])
    return {key: test._replace(p_value=float(p)) for (key, test), p in zip(found.items(), adjusted)}


def alike(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the methods that cannot be told apart from the best one, itself not among them."""
    return [row for row in rows[1:] if row.verdict_best != "loss"]


def _answer(comparison):
    rows = comparison.rows
    if not rows:
        return ["Nothing is finished yet, so there is nothing to compare."]
    best = rows[0]
    whole = " of the methods that finished every split" if any(row.splits < best.splits for row in rows) else ""
    sentences = [
        f"{best.label} has the highest accuracy{whole}, {_mean_and_spread(best)} over {best.splits} "
        f"split{'s' if best.splits > 1 else ''}."
    ]
    commonest = max(comparison.about["classes"].values()) / sum(comparison.about["classes"].values())
    hardly = best.accuracy - commonest <= (best.accuracy_std or 0.0)
    beside = ": that is more" if best.accuracy < commonest else ": that is hardly less" if hardly else ""
    sentences.append(f"Always naming the commonest class would give {commonest:.3f}{beside}.")
    if len(rows) == 1:
        return sentences
    if best.splits < FEWEST_TESTED:
        few = f"{best.splits} split{'s are' if best.splits > 1 else ' is'} too few"
        return [*sentences, f"Whether the differences are real cannot be said: {few}, take {FEWEST_TESTED} or more."]
    others = alike(rows)
    if not others:
        sentences.append("The difference is real: every other method is significantly worse.")
    elif len(others) == len(rows) - 1:
        sentences.append(
            f"The differences may well be chance: none of the other {len(others)} methods is significantly worse."
        )
    else:
        names = _listed([row.label for row in others])
        worse = _worse(len(rows) - 1 - len(others))
        sentences.append(f"{best.label} cannot be told apart from {names}; {worse} significantly worse.")
    sentences += _svm_sentence(rows, best)
    near = [row for row in others if row.accuracy >= best.accuracy - best.accuracy_std]
    quickest = min([best, *near], key=lambda row: row.fit_seconds)
    if 2.0 * quickest.fit_seconds < best.fit_seconds:
        sentences.append(
            f"Of those within one standard deviation of it, {quickest.label} is the quickest to fit "
            f"({duration(quickest.fit_seconds)} against {duration(best.fit_seconds)})."
        )
    return sentences


def _mean_and_spread(row):
    return f"{row.accuracy:.3f}" if row.accuracy_std is None else f"{row.accuracy:.3f} ± {row.accuracy_std:.3f}"


def _worse(count):
    return "the other one is" if count == 1 else f"the other {count} are"


def _svm_sentence(rows, best):
    machines = [row for row in rows if row.method in ("linearsvc", "svc")]
    if not machines or best in machines:
        return []
    machine = machines[0]
    gap = f"{best.accuracy - machine.accuracy:+.3f}"
    if machine in alike(rows):
        return [f"Against the better support vector machine, {machine.label}, it gains {gap}: no clear difference."]
    return [f"Against the better support vector machine, {machine.label}, it gains {gap}, significantly."]


def _listed(names, most=5):
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds:.0f} s"
    return f"{seconds * 1e6:.0f} µs"


def probability(p: float | None) -> str:
    """Return a p-value as tables have it; a dash where there is none."""
    if p is None or np.isnan(p):
        return "–"
    if p > 0.9995:
        return "1"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def table_as_text(comparison: Comparison) -> str:
    """Return the ranked table for a terminal."""
    head = ("", "method", "accuracy", "balanced", "margin mean", "variance", "fit", "predict", "p best", "p SVM")
    lines = [head]
    for row in comparison.rows:
        lines.append((
            str(row.rank), row.label, _mean_and_spread(row), f"{row.balanced_accuracy:.3f}",
            f"{row.margin_mean:.3f}", f"{row.margin_variance:.3f}", duration(row.fit_seconds),
            duration(row.predict_seconds), probability(row.p_best), probability(row.p_svm) + _SIGNS[row.verdict_svm],
        ))  # fmt: skip
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) if k == 1 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )


_SIGNS = {"": "  ", "tie": "  ", "win": " +", "loss": " -"}


def default_store(output: str | os.PathLike) -> Path:
    """Return where the results of a report are kept: beside it."""
    output = Path(output)
    return output.with_name(f"{output.name.removesuffix('.html')}.results.sqlite")
