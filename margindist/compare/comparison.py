"""Which method serves these data, and is the difference real? A plan, its cells, and what their results say.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import ArrayLike
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from margindist.compare.evaluate import Evaluate, plain
from margindist.compare.plan import Plan, class_counts, find_data, make_plan, named_table, shape_of
from margindist.compare.ranking import ComparisonRow, answer_of, comparable_splits, ranked, table_as_text
from margindist.datasets import Dataset, encoder, encoding_notes
from margindist.methods import BY_KEY, UnknownMethod
from margindist.runs.runner import Progress, run
from margindist.runs.search import search
from margindist.runs.store import Result, Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "ComparisonRow", "Plan", "Trained", "compare", "train"]


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
        self._splits = comparable_splits(plan, self.results)
        self.rows = ranked(plan, self.done)

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
        return answer_of(self)

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
    dataset, _ = find_data(data, y, target, data_dir)
    counts = class_counts(dataset)
    shape = shape_of(dataset.X, len(counts))
    table = named_table(dataset)
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
        given, inner = {**given, **plain(found.best_params_)}, float(found.best_score_)
        model = found.best_estimator_
    else:
        model, inner = base.fit(X, dataset.y), None
    fitted = Pipeline([("encode", coder), ("classify", model)])
    return Trained(fitted, dataset, BY_KEY[method].label, dict(sorted(given.items())), inner, notes)


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


def default_store(output: str | os.PathLike) -> Path:
    """Return where the results of a report are kept: beside it."""
    output = Path(output)
    return output.with_name(f"{output.name.removesuffix('.html')}.results.sqlite")
