"""Which method suits these data, and is the difference real? A plan, its cells, and what their results say.

Every method gets the same splits (repeated stratified folds). In each of them the encoder (scaling, imputation, one-hot
columns) learns from the training part alone, the method chooses its parameters there by an inner cross-validation, and
the fit with these parameters is scored on the test part. Methods are held against the best one, and against the
support vector machine of their own kind, by the corrected resampled t-test (Nadeau and Bengio, 2003), with Holm's
adjustment for the number of tests.

Margins have no unit; to be comparable between methods they are divided by the root mean square of the method's training
margins. Then the mean square on the training part is 1: a mean near 1 means that all margins are nearly equal.
"""

import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix

from margindist.compare.closer_look import Look
from margindist.compare.comparison import FORMAT, QUANTILES, Comparison
from margindist.compare.data import Columns, find_data, prepare
from margindist.compare.plan import Protocol, left_out_notes, make_plan
from margindist.compare.records import CellDetail, Influence, Margins, PartMargins, plain
from margindist.compare.scoring import (
    LABELS,
    Scorer,
    columns,
    decide,
    mean_log_loss,
    measures,
    probabilities_after,
    score_name,
)
from margindist.compare.splits import calibration_splits, inner_splits
from margindist.datasets import encoder
from margindist.datasets.dataset import take_rows
from margindist.files import write_whole
from margindist.margins import margin_statistics, margins
from margindist.methods import BY_KEY, search
from margindist.runs.runner import Progress, run
from margindist.runs.store import Result, Store


def compare(
    data: Any,
    y: ArrayLike | None = None,
    *,
    target: str | None = None,
    scoring: str | Callable = "accuracy",
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
    drop: Sequence[str] = (),
    only: Sequence[str] = (),
    groups: str | None = None,
    time: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare methods on a data set by nested cross-validation.

    Parameters
    ----------
    data : Dataset, str, path or array-like
        A data set, the name of one in the catalogue, a file, a data frame with the target among its columns, or the
        features of given labels.
    y : array-like of shape (n_samples,), default=None
        Labels, if `data` is an array or a data frame of features.
    target : str, default=None
        Name of the target column of a file or a data frame.
    scoring : str, default="accuracy"
        What methods are ranked by and choose their parameters by: accuracy, balanced_accuracy, f1_macro, roc_auc,
        average_precision (of the rarer class of two) or log_loss (after calibration by a sigmoid); or a function of a
        fitted classifier, rows and labels, of which more is better, such as scikit-learn's ``make_scorer`` makes.
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
    drop, only : sequence of str, default=()
        Columns that are left out, or the only ones that are used.
    groups : str, default=None
        Column whose equal values keep rows on one side of every split, such as the number of a patient.
    time : str, default=None
        Column by which test rows come after training rows: a date or a number. There is one such way to split, so
        `repeats` is not looked at.
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
    ['LS-SVM', 'LinearSVC', 'LogisticRegression', 'MAMC_b', 'SVC (RBF)']
    """
    scorer = scoring if callable(scoring) else None
    if scorer is None and scoring not in LABELS:
        raise ValueError(f"compare: scoring must be one of {', '.join(LABELS)}, got {scoring!r}.")
    say = say or (lambda sentence: None)
    deadline = None if time_budget is None else monotonic() + time_budget
    used = Columns(tuple(drop), tuple(only), groups, time)
    result = prepare(find_data(data, y, target, data_dir, encoding), used)
    protocol = Protocol(scoring if scorer is None else score_name(scoring), methods, splits, repeats, seed, quick)
    costs = _known_costs(store, result.dataset) if resume else {}
    plan, about = make_plan(result, protocol, costs, say)
    with Store(store) as results, results.alone():
        for note in [*about.notes, *about.encoding, *left_out_notes(about.left_out)]:
            say(note)
        _begin(results, plan, about, resume, say)

        whole = _WholeProgress(progress or (lambda now: None))

        def finish(cells, evaluate, later=2 * plan.splits):
            left = None if deadline is None else max(deadline - monotonic(), 0.0)
            whole.begin(cells, later)
            return run(results, cells, evaluate, n_jobs=n_jobs, time_budget=left, progress=whole).stopped

        evaluate = Evaluate(plan, result, scorer)
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
            stopped = finish(comparison.look_cells(), Look(comparison, result, scorer), later=0)
        return Comparison.from_results(plan, about, results, stopped)


class _WholeProgress:
    """One progress, with one estimate, of the runs that a comparison is made of."""

    def __init__(self, progress):
        self._progress = progress
        self._before, self._running = 0, 0

    def begin(self, cells, later):
        """Begin another run, after which there will be so many cells more."""
        self._before += self._running
        self._running, self._later = len(cells), later
        self._start, self._computed = monotonic(), 0

    def __call__(self, now):
        """Report a run's progress as that of the whole."""
        self._computed += now.last is not None
        left = now.seconds_left
        if left is not None and self._computed:
            left += self._later * (monotonic() - self._start) / self._computed
        total = self._before + now.total + self._later
        self._progress(Progress(self._before + now.finished, total, left, now.last))


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
        stay = ""
        if str(store.path) != ":memory:":
            old = Path(f"{store.path}.old")
            write_whole(old, Path(store.path).read_bytes())
            stay = f"; the old ones are in {old.name}"
        say(f"{kept} results of the same comparison are computed anew{stay}. With --resume they would have been kept.")
        store.forget([*plan.cells(plan.grids), *plan.look_cells(plan.grids)])
    store.note("compare", {"format": FORMAT, "plan": asdict(plan), "about": plain(about)})


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


# ---------------------------------------------------------------------- one cell


class Evaluate:
    """Computes one cell; picklable, so that other processes can do it."""

    def __init__(self, plan, data, scorer=None):
        self.plan = plan
        self.scorer = scorer
        self.X = data.dataset.X
        self.y = np.asarray(data.dataset.y)
        self.blocks = data.blocks
        # Carried along, because classifiers that were registered here are not known in other processes.
        self.methods = {key: BY_KEY[key] for key in plan.grids}

    def __call__(self, cell):
        """Return the result of a cell."""
        seed = self.plan.seed
        train, test = self.plan.parts(self.y, self.blocks)[cell.split]
        y_train, y_test = self.y[train], self.y[test]
        coder = encoder(self.X)
        X_train = coder.fit_transform(take_rows(self.X, train))
        X_test = coder.transform(take_rows(self.X, test))
        base = self.methods[cell.method].estimator(seed)
        grid = self.plan.grids[cell.method]
        folds = inner_splits(y_train, self.blocks.of(train), self.plan.folds, seed + cell.split)
        parameters, inner, influence = {}, None, Influence({}, ())
        positive = positive_label(self.y, self.plan.positive)
        if grid:
            result = search(base, grid, folds=folds, scoring=self.scorer or scorer_for(self.plan.scoring, positive))
            result.fit(X_train, y_train)
            parameters = plain_parameters(result.best_params_)
            inner = float(result.best_score_)
            influence = _influence(result.cv_results_, grid)
        else:
            clone(base).fit(X_train, y_train)  # compiles what the search would have compiled, so that it is not timed
        model = clone(base).set_params(**parameters)
        start = process_time()
        converged = fit_and_tell(model, X_train, y_train)
        fitted = process_time()
        predicted = model.predict(X_test)
        finished = process_time()
        classes = model.classes_
        scores = measures(y_test, predicted, columns(decide(model, X_test), classes, positive), classes, positive)
        if self.scorer is not None:
            scores[self.plan.scoring] = float(self.scorer(model, X_test, y_test))
        if self.plan.scoring == "log_loss":
            held_out = calibration_splits(y_train, self.blocks.of(train), self.plan.folds)
            p = probabilities_after(model, held_out, X_train, y_train, X_test)
            scores["log_loss"] = -mean_log_loss(y_test, p, classes)
        detail = CellDetail(
            scores=scores,
            converged=converged,
            confusion=confusion_matrix(y_test, predicted, labels=np.unique(self.y)).tolist(),
            margins=_margins(model, X_train, y_train, X_test, y_test),
            rows=[len(train), len(test)],
            train_accuracy=float(model.score(X_train, y_train)),
            inner_score=inner,
            influence=influence,
        )
        return Result(
            cell, score=scores[self.plan.scoring], parameters=parameters, fit_seconds=fitted - start,
            predict_seconds=finished - fitted, seed=seed, checksum=self.plan.checksum, detail=plain(detail),
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


def plain_parameters(parameters):
    """Return parameters in types that JSON has, sorted, whatever search chose them."""
    return {name: _plain_value(value) for name, value in sorted(parameters.items())}


def _plain_value(value):
    return value.item() if hasattr(value, "item") else value


def _influence(cv_results, grid):
    """Mean inner score of every setting, as columns."""
    tried = cv_results["params"]
    settings = {name: [_plain_value(setting[name]) for setting in tried] for name in grid}
    scores = np.round(cv_results["mean_test_score"], 6).tolist()
    return Influence(settings, [score if np.isfinite(score) else None for score in scores])


def _margins(model, X_train, y_train, X_test, y_test):
    """Margins of both parts on one scale, which makes those of different methods comparable; none without scores."""
    if not hasattr(model, "decision_function"):
        return Margins(1.0, PartMargins({}, ()), PartMargins({}, ()))
    scale = float(np.sqrt(np.mean(margins(model, X_train, y_train) ** 2))) or 1.0
    return Margins(scale, *(_margins_of(model, X, y, scale) for X, y in ((X_train, y_train), (X_test, y_test))))


def _margins_of(model, X, y, scale):
    z = margins(model, X, y) / scale
    try:
        distance = float(np.mean(margins(model, X, y, geometric=True)))
    except ValueError:  # there is not one weight vector per score, as in SVC with more than two classes
        distance = None
    statistics = margin_statistics(z, quantiles=(0.05,)).as_dict()
    return PartMargins(statistics, np.round(np.quantile(z, QUANTILES), 5).tolist(), distance)
