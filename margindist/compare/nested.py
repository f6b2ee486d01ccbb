"""Which method suits these data, and is the difference real? A plan, its cells, and what their results say.

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
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold

from margindist import __version__
from margindist.compare.closer_look import Look
from margindist.compare.comparison import FORMAT, QUANTILES, Comparison
from margindist.compare.scoring import LABELS, Scorer, columns, mean_log_loss, measures
from margindist.datasets import Dataset, catalogue, encoder, encoding_notes, load, read_file, tidy
from margindist.datasets.dataset import check_labels, take_rows
from margindist.estimators.calibration import CalibratedClassifier
from margindist.margins import margin_statistics, margins
from margindist.methods import BY_KEY, Shape, choose, search
from margindist.runs.runner import Progress, run
from margindist.runs.store import Cell, Result, Store

_PROBE_ROWS = 2000
_PILOT_ROWS = 200
_PILOT_SECONDS = 0.5
_UNEQUAL = 3.0  # a class with so many times the rows of another makes accuracy misleading


def compare(
    data: Any,
    y: ArrayLike | None = None,
    *,
    target: str | None = None,
    scoring: str = "accuracy",
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
    encoding: str | None = None,
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
    scoring : str, default="accuracy"
        What methods are ranked by and choose their parameters by: accuracy, balanced_accuracy, f1_macro, roc_auc,
        average_precision (of the rarer class of two) or log_loss (after calibration by a sigmoid).
    methods : sequence of str, default=None
        Keys of the methods (``margindist.methods.BY_KEY``), or None for all that do not take too long, as pilot fits
        tell where the data are large. scikit-learn's linear and kernel SVM and logistic regression are always beside
        them.
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
    encoding : str, default=None
        Of a file of text, as for `read_file`.
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
    if scoring not in LABELS:
        raise ValueError(f"compare: scoring must be one of {', '.join(LABELS)}, got {scoring!r}.")
    say = say or (lambda sentence: None)
    deadline = None if time_budget is None else time.monotonic() + time_budget
    dataset, source = find_data(data, y, target, data_dir, encoding)
    costs = _known_costs(store, dataset) if resume else {}
    plan, about = make_plan(dataset, source, methods, splits, repeats, seed, quick, scoring, costs, say)
    with Store(store) as results:
        for note in [*about["notes"], *about["encoding"], *left_out_notes(about["left_out"])]:
            say(note)
        _begin(results, plan, about, resume, say)

        def finish(cells, evaluate):
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            return run(results, cells, evaluate, n_jobs=n_jobs, time_budget=left, progress=progress).stopped

        evaluate = Evaluate(plan, dataset.X, dataset.y)
        stopped = finish(plan.cells(), evaluate)
        comparison = Comparison.from_results(plan, about, results, stopped)
        if stopped is None and comparison.called:
            labels = ", ".join(BY_KEY[key].label for key in comparison.called)
            say(f"The best method so far is {comparison.rows[0].label}, so more methods of its kind run too: {labels}.")
            stopped = finish(plan.cells(comparison.called), evaluate)
            comparison = Comparison.from_results(plan, about, results, stopped)
        if stopped is None and results.pending(comparison.look_cells()):
            labels = " and ".join(BY_KEY[key].label for key in comparison.looked_at)
            say(f"A closer look at {labels}: curves, columns that matter, learning curve.")
            stopped = finish(
                comparison.look_cells(),
                Look(comparison, dataset.X, dataset.y, positive_label(dataset.y, plan.positive)),
            )
        return Comparison.from_results(plan, about, results, stopped)


def _begin(store, plan, about, resume, say):
    """Prepare the store, and say what happens to the results that it holds."""
    latest = store.note("compare")
    kept = len(store.results(plan.experiment))
    if resume:
        if latest is not None and latest.get("format") != FORMAT:
            say("Not resumed: the results kept are of an earlier margindist, so everything is computed anew.")
        elif kept:
            say(f"Resuming: {kept} of {len(plan.cells())} results are already there.")
        elif latest is not None and latest["plan"] != json.loads(json.dumps(asdict(plan))):
            say(f"Not resumed: {_difference(latest['plan'], asdict(plan))}, so everything is computed anew.")
        else:
            say("There is nothing to resume yet, so this starts from the beginning.")
    elif kept:
        old = store.copy_aside()
        stay = f"; the old ones are in {old.name}" if old else ""
        say(f"{kept} results of the same comparison are computed anew{stay}. With --resume they would have been kept.")
        store.forget([*plan.cells(plan.grids), *plan.look_cells(plan.grids)])
    store.note("compare", {"format": FORMAT, "plan": asdict(plan), "about": about})


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


def _known_costs(path, dataset):
    """Return what pilot fits on the same data have told: measured again, they might choose other methods."""
    if not os.path.isfile(path):
        return {}
    with Store(path) as store:
        latest = store.note("compare") or {}
    same = latest.get("format") == FORMAT and latest["plan"]["checksum"] == dataset.checksum
    return latest["about"]["costs"] if same else {}


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
    reserve : list of str
        Keys of methods that run only if the best of the others is of their kind.
    scoring : str
        What methods are ranked by and choose their parameters by.
    positive : str or None
        The rarer class of two, as text: the one that average precision and the report's curves are about.
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
    reserve: Sequence[str] = ()
    scoring: str = "accuracy"
    positive: str | None = None
    version: str = __version__

    @property
    def experiment(self) -> str:
        """Name of the experiment in a store: a hash of the plan, so that other plans and other data never mix."""
        text = json.dumps(asdict(self), sort_keys=False)
        return f"compare-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def cells(self, keys: Iterable[str] | None = None) -> list[Cell]:
        """Return the cells split by split, quick methods first, so that an unfinished run can be compared.

        Parameters
        ----------
        keys : iterable of str, optional
            Methods; all but the reserve if not given.
        """
        keys = [key for key in self.grids if key not in self.reserve] if keys is None else list(keys)
        splits = range(self.splits * self.repeats)
        return [Cell(self.experiment, self.dataset, key, split) for split in splits for key in keys]

    def look_cells(self, keys: Iterable[str]) -> list[Cell]:
        """Return the cells of the closer look at methods: every row is tested once, so one repeat is enough.

        Parameters
        ----------
        keys : iterable of str
            Methods.
        """
        keys = list(keys)
        return [Cell(f"{self.experiment}-look", self.dataset, key, k) for k in range(self.splits) for key in keys]

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


def find_data(data, y, target, data_dir, encoding=None):
    """Return the data, and where they came from in a form that the report can turn into code."""
    if isinstance(data, Dataset):
        return data, {"kind": "arrays"}
    if isinstance(data, (str, os.PathLike)):
        if (
            os.fspath(data) == "-"
            or os.path.isfile(data)
            or ((Path(data).suffix or os.sep in os.fspath(data)) and not _is_known(data))
        ):
            source = {"kind": "file", "path": os.fspath(data), "target": target, "encoding": encoding}
            return read_file(data, target=target, encoding=encoding), source
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


def make_plan(dataset, source, methods, splits, repeats, seed, quick, scoring="accuracy", costs=(), say=None):
    """Return the plan, and what the report says about the data and the methods left out.

    ``costs`` are seconds per split of methods that a pilot has measured before.
    """
    for name, value, least in (("splits", splits, 2), ("repeats", repeats, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"compare: {name} must be at least {least}, got {value}.")
    counts = class_counts(dataset)
    notes = list(dataset.notes)
    label = min(counts, key=counts.get)
    rarest = counts[label]
    if rarest < splits:
        notes.append(f"The class {label!r} has only {rarest} rows, so there are {rarest} splits instead of {splits}.")
        splits = rarest
    folds = min(3 if quick else 5, rarest - -(-rarest // splits))
    shape = shape_of(dataset.X, len(counts))
    if scoring == "accuracy":
        notes += _unequal_note(counts)
    pilot = Pilot(dataset, shape, quick, folds, seed, costs, say)
    choice = choose(methods, shape, pilot)
    chosen = [*choice.methods, *choice.reserve]
    grids = {m.key: {k: list(v) for k, v in m.grid(shape, quick).items()} for m in chosen}
    positive = label if len(counts) == 2 else None
    if len(counts) > 2 and "svc" in grids:
        notes.append("SVC's scores of more than two classes are votes: its margins come in steps, unlike the others'.")
    reserve = [method.key for method in choice.reserve]
    plan = Plan(
        dataset.name, dataset.checksum, grids, splits, repeats, folds, seed, reserve, scoring, positive
    )  # fmt: skip
    about = {
        "source": source,
        "origin": dataset.source,
        "notes": notes,
        "encoding": list(encoding_notes(dataset.X)),
        "target": dataset.target_name,
        "classes": counts,
        "left_out": choice.left_out,
        "costs": pilot.costs,
        "features": list(map(str, dataset.feature_names)),
        "methods": None if methods is None else list(methods),
        "quick": quick,
        "numbers": _numbers(dataset, shape),
    }
    return plan, about


def _unequal_note(counts):
    """A sentence, in a list, that points out classes of clearly unequal size."""
    largest, smallest = max(counts, key=counts.get), min(counts, key=counts.get)
    ratio = counts[largest] / counts[smallest]
    if ratio < _UNEQUAL:
        return []
    return [
        f"The class {largest!r} has {ratio:.3g} times as many rows as {smallest!r}, so accuracy says little about "
        "small classes; --scoring balanced_accuracy (or f1_macro, roc_auc, average_precision, log_loss) counts them."
    ]


def left_out_notes(left_out):
    """Return sentences on methods that do not run, or not from the start, with those of one reason in one."""
    groups: dict[str, list[str]] = {}
    for label, reason in left_out.items():
        groups.setdefault(reason, []).append(label)
    return [f"{', '.join(labels)}: {reason}" for reason, labels in groups.items()]


class Pilot:
    """Tells how long a method would take for one split, from fits to a part of the rows.

    The search of the method runs on twice as many rows each time, until it takes a second; the growth between the last
    two tells the rest.

    Parameters
    ----------
    dataset : Dataset
    shape : Shape
    quick : bool
    folds : int
    seed : int
    known : dict
        Seconds measured before.
    say : callable, optional
        Told, once, that something is measured.

    Attributes
    ----------
    costs : dict of str to float
        Seconds by method, of those that were asked for.
    """

    def __init__(self, dataset, shape, quick, folds, seed, known=(), say=None):
        self.costs = {}
        self._dataset, self._shape, self._quick, self._folds, self._seed = dataset, shape, quick, folds, seed
        self._known = dict(known)
        self._say = say

    def __call__(self, method):
        """Return the seconds."""
        if method.key not in self.costs:
            self.costs[method.key] = self._known.get(method.key) or self._measure(method)
        return self.costs[method.key]

    def _measure(self, method):
        if self._say is not None:
            self._say("Some methods may be slow on data of this size; pilot fits to some of the rows show how slow.")
            self._say = None
        n_rows = len(self._dataset.y)
        size = min(_PILOT_ROWS, n_rows)
        times = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._seconds(method, _PILOT_ROWS // 2)  # compiles
            while not times or (times[-1][1] < _PILOT_SECONDS and size < n_rows):
                size = min(2 * size, n_rows) if times else size
                times.append((size, self._seconds(method, size)))
        (m, seconds), (fewer, before) = times[-1], times[-2:][0]
        if m in (n_rows, fewer):
            growth = 2.0
        else:
            growth = np.clip(np.log(seconds / before) / np.log(m / fewer), 1.0, 3.0)
        return round(float(seconds * (n_rows / m) ** growth), 3)

    def _seconds(self, method, size):
        """Processor time of the search on so many rows, a few of every class among them; none if it fails."""
        y = np.asarray(self._dataset.y)
        rows = _some_rows(y, size, least=2 * self._folds)
        part = take_rows(self._dataset.X, rows)
        X = encoder(part).fit_transform(part)
        grid = method.grid(self._shape, self._quick)
        base = method.estimator(self._seed)
        start = time.process_time()
        try:
            (search(base, grid, folds=self._folds, seed=self._seed) if grid else base).fit(X, y[rows])
        except Exception:  # the comparison itself will say why
            return 1e-6
        return max(time.process_time() - start, 1e-6)


def _some_rows(y, size, least):
    """Return about so many rows, in the proportions of the classes but for at least a few of each."""
    rng = np.random.default_rng(0)
    found = []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        found.append(rows[: max(least, round(size * len(rows) / len(y)))])
    return np.sort(np.concatenate(found))


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
        positive = positive_label(self.y, self.plan.positive)
        scorer = scorer_for(self.plan.scoring, positive)
        if grid:
            found = search(base, grid, folds=self.plan.folds, seed=seed + cell.split, scoring=scorer)
            found.fit(X_train, y_train)
            parameters = plain(found.best_params_)
            inner = float(found.best_score_)
            influence = _influence(found.cv_results_, grid)
        else:
            clone(base).fit(X_train, y_train)  # compiles what the search would have compiled, so that it is not timed
        model = clone(base).set_params(**parameters)
        start = time.process_time()
        converged = fit_and_tell(model, X_train, y_train)
        fitted = time.process_time()
        predicted = model.predict(X_test)
        finished = time.process_time()
        classes = model.classes_
        scores = measures(
            y_test, predicted, columns(model.decision_function(X_test), classes, positive), classes, positive
        )
        if self.plan.scoring == "log_loss":
            calibrated = CalibratedClassifier(clone(model), cv=StratifiedKFold(self.plan.folds)).fit(X_train, y_train)
            scores["log_loss"] = -mean_log_loss(y_test, calibrated.predict_proba(X_test), classes)
        detail = {
            "scores": scores,
            "converged": converged,
            "confusion": confusion_matrix(y_test, predicted, labels=np.unique(self.y)).tolist(),
            "train_accuracy": float(model.score(X_train, y_train)),
            "inner_score": inner,
            "influence": influence,
            "margins": _margins(model, X_train, y_train, X_test, y_test),
            "rows": [len(train), len(test)],
        }
        return Result(
            cell, score=scores[self.plan.scoring], parameters=parameters, fit_seconds=fitted - start,
            predict_seconds=finished - fitted, seed=seed, checksum=self.plan.checksum, detail=detail,
        )  # fmt: skip


def positive_label(y, text):
    """Return the label that a text stands for, or None."""
    return next((label for label in np.unique(y).tolist() if str(label) == text), None)


def scorer_for(scoring, positive=None):
    """Return what searches take as their score; None is accuracy, which they compute quicker themselves."""
    return None if scoring == "accuracy" else Scorer(scoring, positive)


def fit_and_tell(model, X, y):
    """Fit a model; return whether it converged. Its warnings are passed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def plain(parameters):
    """Return parameters in types that JSON has, sorted, whatever search chose them."""
    return {name: _plain_value(value) for name, value in sorted(parameters.items())}


def _plain_value(value):
    return value.item() if hasattr(value, "item") else value


def _influence(cv_results, grid):
    """Mean inner score of every setting, as columns."""
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
