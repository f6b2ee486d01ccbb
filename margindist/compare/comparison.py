"""What the results of a comparison say: the ranked table, and tests of significance."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from margindist.compare.records import About, CellDetail, LookDetail, plain, read
from margindist.compare.scoring import baseline
from margindist.compare.verdict import table_as_text, verdict
from margindist.methods import BY_KEY
from margindist.runs.statistics import corrected_interval, corrected_resampled_t, holm
from margindist.runs.store import Result, Store

if TYPE_CHECKING:
    import pandas as pd

    from margindist.compare.plan import Plan

FORMAT = 3  # of what is stored with a comparison
LEVEL = 0.05
QUANTILES = np.round(np.linspace(0.0, 1.0, 81), 4)  # of margins
FEWEST_TESTED = 5  # two or three differences are often exactly equal, which a t-test takes for certainty
MACHINES = ("linearsvc", "svc")
_ROUNDING = 1e-12  # means of equal scores over splits differ by less


class Difference(NamedTuple):
    """A method's score less another one's, on the splits that both have.

    Parameters
    ----------
    mean : float
    low, high : float or None
        Ends of its 95 % interval, for which the variance allows for the rows that splits share; None for few splits.
    p_value : float or None
        Probability of such a difference by chance, adjusted for the number of tests.
    verdict : str
        ``"win"``, ``"tie"`` or ``"loss"``, or an empty string without a test.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    verdict: str = ""


class ComparisonRow(NamedTuple):
    """A method's line in the table.

    Parameters
    ----------
    rank : int or None
        None for a method that did not converge on some split: it comes after the others.
    method : str
        Its key.
    label : str
    kernel : bool
    splits : int
        How many splits the figures are means over.
    score, score_std : float
        Mean and standard deviation over the splits of what methods are ranked by; the latter None for one split.
    accuracy, balanced_accuracy : float
        Means over the splits.
    converged : int
        On how many splits the final fit converged.
    below_baseline, above_baseline : bool
        Whether naming the most frequent class always scores as much or more; whether it scores clearly less, by a
        t-test at 95 % which allows for the rows that splits share (with few splits: less).
    margin_mean, margin_variance : float
        Of the normalised margins of the test parts.
    geometric_margin : float or None
        Mean distance to the boundary, in the space where the method is linear; None if it has no weight vector.
    fit_seconds, predict_seconds : float
        Processor time of one fit with chosen parameters, and of the prediction of one test part.
    to_best : Difference or None
        To the best method; None for that itself.
    to_svm : Difference or None
        To the support vector machine that is the reference; None for that itself.
    """

    rank: int | None
    method: str
    label: str
    kernel: bool
    splits: int
    score: float
    score_std: float | None
    accuracy: float
    balanced_accuracy: float
    converged: int
    below_baseline: bool
    above_baseline: bool
    margin_mean: float | None
    margin_variance: float | None
    geometric_margin: float | None
    fit_seconds: float
    predict_seconds: float
    to_best: Difference | None
    to_svm: Difference | None

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before taking the line for a result like the others."""
        outcome = []
        if self.converged < self.splits:
            of_all = f"{self.splits} split{'s' if self.splits > 1 else ''}"
            outcome.append(f"not converged in {self.splits - self.converged} of {of_all}")
        if self.below_baseline:
            outcome.append("no better than the most frequent class")
        return outcome

    def as_dict(self) -> dict[str, Any]:
        """Return the line with a column for each part of its differences."""
        values = self._asdict()
        for name in ("to_best", "to_svm"):
            difference = values.pop(name) or Difference(0.0)
            values |= {f"{name}_{part}": value for part, value in difference._asdict().items()}
        return values


class Comparison:
    """The results of a comparison; made by :func:`compare` or :meth:`from_store`.

    Parameters
    ----------
    plan : Plan
        What was to be done.
    about : About
        The data in numbers, methods left out and why.
    results : list of Result
        What was done; the detail of each is a `CellDetail`.
    stopped : str or None
        Why it ended before the end, if it did.
    looks : list of Result
        The closer look at the best method and its SVM; the detail of each is a `LookDetail`.
    """

    def __init__(
        self,
        plan: "Plan",
        about: About | Mapping[str, Any],
        results: Sequence[Result],
        stopped: str | None = None,
        looks: Sequence[Result] = (),
    ):
        self.plan = plan
        self.about = read(About, about)
        self.results = [_typed(result, CellDetail) for result in results]
        self.stopped = stopped
        self.looks = [_typed(look, LookDetail) for look in looks if look.status == "done"]
        self._splits = _comparable_splits(self.results, plan.reserve)
        self._late = _late(self.results, plan.reserve, self._splits)
        self.baseline = self._baseline()
        self.rows: list[ComparisonRow] = self._ranked()

    @classmethod
    def from_results(cls, plan: "Plan", about: About, store: Store, stopped: str | None) -> "Comparison":
        """Make a comparison of what a store has of a plan.

        Parameters
        ----------
        plan, about
            As for the class.
        store : Store
        stopped
            As for the class.
        """
        looks = store.results(f"{plan.experiment}-look")
        return cls(plan, about, store.results(plan.experiment), stopped, looks)

    @classmethod
    def from_store(cls, path: str | os.PathLike) -> "Comparison":
        """Read the last comparison that a store has seen.

        Parameters
        ----------
        path : str or path
            File of the store.
        """
        from margindist.compare.plan import Plan  # which imports the version, which imports the package

        with Store(path) as store:
            latest = store.note("compare")
            if latest is None:
                raise ValueError(f"{path}: holds no comparison.")
            if latest.get("format") != FORMAT:
                raise ValueError(f"{path}: holds a comparison of an earlier margindist; run it again with this one.")
            return cls.from_results(Plan(**latest["plan"]), latest["about"], store, None)

    @property
    def called(self) -> list[str]:
        """The methods of the reserve that are of the kind of the best other method."""
        own = [row for row in self.rows if row.method not in self.plan.reserve and BY_KEY[row.method].kind != "trees"]
        return [key for key in self.plan.reserve if own and BY_KEY[key].kernel == own[0].kernel]

    @property
    def left_out(self) -> dict[str, str]:
        """The methods that did not run, each with the reason."""
        ran = {BY_KEY[result.cell.method].label for result in self.results}
        return {label: reason for label, reason in self.about.left_out.items() if label not in ran}

    @property
    def unfinished(self) -> list[str]:
        """The methods that are not in the table because the run ended before they had the splits of the others.

        Methods of the reserve count from their first result on.
        """
        shown = {row.method for row in self.rows}
        begun = {result.cell.method for result in self.results}
        waited_for = [key for key in self.plan.grids if key not in self.plan.reserve or key in begun]
        labels = [BY_KEY[key].label for key in waited_for if key not in shown]
        return [label for label in labels if label not in self.failures]

    @property
    def reference(self) -> str | None:
        """The support vector machine that others are held against: the better one of the linear and the RBF one."""
        return next((row.method for row in self.rows if row.method in MACHINES), None)

    @property
    def looked_at(self) -> list[str]:
        """The method advised, or else the best one, and the support vector machine, or else the best of the others."""
        if not self.rows:
            return []
        first = (self.choice or self.rows[0]).method
        others = [row.method for row in self.rows if row.method != first]
        return [first, self.reference] if self.reference in others else [first, *others[:1]]

    @property
    def alike(self) -> list[ComparisonRow]:
        """The best method and those that these data cannot tell from it, if there are enough splits to say so.

        They are not significantly worse, lose at most one standard error of its score (which allows for the rows that
        splits share), have every split, converged, and are clearly better than the most frequent class.
        """
        if not self.rows or not self.tested:
            return []
        best = self.rows[0]
        error = _error(best.score_std, best.splits, self.plan.test_share)
        return [
            row
            for row in self.rows
            if row is best
            or (
                row.rank is not None
                and row.splits == best.splits
                and row.above_baseline
                and row.to_best.verdict == "tie"
                and best.score - row.score <= error + _ROUNDING
            )
        ]

    @property
    def tested(self) -> bool:
        """Whether there are enough splits to test differences, and a difference to test."""
        return any(row.to_best is not None and row.to_best.verdict for row in self.rows)

    @property
    def choice(self) -> ComparisonRow | None:
        """The method to use: the best one, or the quickest that cannot be told from it, if that takes half its time.

        None where no method is clearly better than the most frequent class, or none converged.
        """
        if not self.rows or not self.rows[0].above_baseline or self.rows[0].rank is None:
            return None
        best = self.rows[0]
        quickest = min(self.alike, key=lambda row: row.fit_seconds, default=best)
        return quickest if 2.0 * quickest.fit_seconds < best.fit_seconds else best

    def look_cells(self) -> list:
        """The cells of the closer look, of splits that have their parameters."""
        there = {(result.cell.method, result.cell.split) for result in self.results if result.status == "done"}
        return [cell for cell in self.plan.look_cells(self.looked_at) if (cell.method, cell.split) in there]

    @property
    def done(self) -> dict[str, list[Result]]:
        """The results that the table is made of, by method and in the order of the splits.

        While not all is done, these are the splits that every method has finished. Methods of the reserve, which begin
        when the others are done, are left out until they have these splits too: the others lose none to them.
        """
        outcome = {
            key: [result for result in results if result.cell.split in self._splits]
            for key, results in self._finished.items()
        }
        return {key: results for key, results in outcome.items() if results}

    @property
    def _finished(self):
        """All results of the methods of the table: tests take every split that two methods share."""
        outcome = {key: [] for key in self.plan.grids if key not in self._late}
        for result in sorted(self.results, key=lambda result: result.cell.split):
            if result.status == "done" and result.cell.method in outcome:
                outcome[result.cell.method].append(result)
        return outcome

    @property
    def total(self) -> int:
        """The number of cells of the plan: those of the reserve count when they are called."""
        first = len(self.plan.cells())
        begun = {result.cell.method for result in self.results} & set(self.plan.reserve)
        complete = sum(result.cell.method not in self.plan.reserve for result in self.results) == first
        return first + self.plan.n_splits * len(begun | set(self.called if complete else ()))

    @property
    def finished(self) -> int:
        """The number of cells that have a result."""
        return len(self.results)

    @property
    def failures(self) -> dict[str, str]:
        """Why methods failed, one sentence for each that failed on some split."""
        failed: dict[str, list[Result]] = {}
        for result in self.results:
            if result.status != "done":
                failed.setdefault(result.cell.method, []).append(result)
        return {
            BY_KEY[key].label: f"failed in {len(results)} of {self.plan.n_splits} splits: {results[0].error}"
            for key, results in failed.items()
        }

    @property
    def warnings(self) -> dict[str, str]:
        """What methods warned of, one sentence for each that warned on some split, search included."""
        warned: dict[str, list[str]] = {}
        for result in self.results:
            if result.status == "done" and result.detail.warnings:
                warned.setdefault(result.cell.method, []).append(result.detail.warnings[0])
        return {
            BY_KEY[key].label: f"warned in {len(messages)} of {self.plan.n_splits} splits, at chosen "
            f"parameters or while searching: {messages[0]}"
            for key, messages in warned.items()
        }

    def answer(self) -> list[str]:
        """Return the answer in a few sentences: what to use, why, and whether differences are real."""
        return verdict(self)

    def _baseline(self):
        """The score of naming the most frequent class always, on the test parts that the table is about."""
        classes = self.about.classes
        tested = {result.cell.split: result.detail.confusion for results in self.done.values() for result in results}
        parts = [dict(zip(classes, np.sum(confusion, axis=1).tolist())) for confusion in tested.values()]
        name, positive = self.plan.scoring, self.plan.positive
        return float(np.mean([baseline(name, part, classes, positive) for part in parts or [classes]]))

    def _ranked(self):
        """Return the rows of the table, best first."""
        done = self.done
        if not done:
            return []
        means = {key: float(np.mean([result.score for result in results])) for key, results in done.items()}
        most = max(map(len, done.values()))
        converged = {key: sum(result.detail.converged for result in results) for key, results in done.items()}
        unranked = {key for key in done if converged[key] < len(done[key])}
        # What failed on some splits, hard ones perhaps, comes after the others, and what did not converge last.
        order = sorted(
            done,
            key=lambda key: (key in unranked, len(done[key]) < most, -means[key], list(self.plan.grids).index(key)),
        )
        to_best = self._differences(order[1:], order[0])
        machine = next((key for key in order if key in MACHINES), None)
        to_svm = self._differences([key for key in order if key != machine], machine) if machine else {}
        return [
            _row(None if key in unranked else rank, key, done[key], converged[key], self)._replace(
                to_best=to_best.get(key), to_svm=to_svm.get(key)
            )
            for rank, key in enumerate(order, 1)
        ]

    def _differences(self, keys, other):
        """The difference of each method to another one, tested by the corrected resampled t-test, adjusted by Holm."""
        scores = {key: {r.cell.split: r.score for r in self._finished[key]} for key in (*keys, other)}
        share = self.plan.test_share
        outcome, tests = {}, {}
        for key in keys:
            shared = sorted(scores[key].keys() & scores[other].keys())
            own, others = ([scores[name][split] for split in shared] for name in (key, other))
            test = corrected_resampled_t(own, others, test_share=share)
            outcome[key] = Difference(test.difference)
            if len(shared) >= FEWEST_TESTED:
                tests[key] = test
                low, high = corrected_interval(own, others, test_share=share, level=1.0 - LEVEL)
                outcome[key] = Difference(test.difference, low, high)
        for (key, test), p_value in zip(tests.items(), holm([test.p_value for test in tests.values()])):
            adjusted = test._replace(p_value=float(p_value))
            outcome[key] = outcome[key]._replace(p_value=adjusted.p_value, verdict=adjusted.verdict(LEVEL))
        return outcome

    def as_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON has: plan, data, answer, table, and the results of each split."""
        return {
            "plan": asdict(self.plan),
            "about": plain(self.about),
            "stopped": self.stopped,
            "answer": self.answer(),
            "failures": self.failures,
            "warnings": self.warnings,
            "left_out": self.left_out,
            "baseline": None if np.isnan(self.baseline) else self.baseline,
            "table": [row.as_dict() for row in self.rows],
            "cells": [_cell_as_dict(result) for result in self.results],
            "looks": [_cell_as_dict(look) for look in self.looks],
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return the ranked table as a data frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas; rows has the same without it.") from error
        table = pd.DataFrame([row.as_dict() for row in self.rows], columns=list(_columns()))
        return table.astype({"rank": "Int64"}).set_index("rank")

    def to_html(self, command: str | None = None) -> str:
        """Return the report as one HTML page that needs nothing else.

        Parameters
        ----------
        command : str, optional
            The command line that made it.
        """
        from margindist.compare.report import html

        return html(self, command)

    def _repr_html_(self) -> str:
        """Return the answer and the table as a notebook shows them."""
        advice, *rest = (escape(sentence) for sentence in self.answer())
        return f"<p><b>{advice}</b></p><p>{' '.join(rest)}</p><pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        return table_as_text(self)

    __repr__ = __str__


def _columns():
    names = [name for name in ComparisonRow._fields if name not in ("to_best", "to_svm")]
    return [*names, *(f"{name}_{part}" for name in ("to_best", "to_svm") for part in Difference._fields)]


def _typed(result, kind):
    return replace(result, detail=read(kind, result.detail)) if result.status == "done" else result


def _cell_as_dict(result):
    values = {name: plain(value) for name, value in vars(result).items() if name != "cell"}
    return {**result.cell._asdict(), **values}


def _finished_splits(results):
    """The splits that each method has finished, and the methods that failed somewhere."""
    done: dict[str, set[int]] = {}
    for result in results:
        if result.status == "done":
            done.setdefault(result.cell.method, set()).add(result.cell.split)
    return done, {result.cell.method for result in results if result.status != "done"}


def _comparable_splits(results, reserve):
    """The splits that every method has finished; the reserve, and what finished none or failed, do not count."""
    done, failed = _finished_splits(results)
    first = {key: splits for key, splits in done.items() if key not in reserve} or done
    counted = [splits for key, splits in first.items() if key not in failed] or list(first.values())
    return set.intersection(*counted) if counted else set()


def _late(results, reserve, splits):
    """The methods of the reserve that the run ended before: they have not all of these splits, and did not fail."""
    done, failed = _finished_splits(results)
    return {key for key in reserve if key in done and key not in failed and not splits <= done[key]}


def _error(deviation, splits, test_share):
    """The standard error of a mean over splits, whose rows are partly the same (Nadeau and Bengio)."""
    return (deviation or 0.0) * np.sqrt(1.0 / splits + test_share / (1.0 - test_share))


def _clearly_above(scores, base, test_share):
    """Tell whether scores are better than a number, by a t-test where there are enough of them."""
    if len(scores) < FEWEST_TESTED:
        return bool(scores.mean() > base + _ROUNDING)
    room = stats.t.ppf(0.5 + 0.5 * (1.0 - LEVEL), len(scores) - 1)
    return bool(scores.mean() - base > room * _error(scores.std(ddof=1), len(scores), test_share) + _ROUNDING)


def _row(rank, key, results, converged, comparison):
    """Return a line of the table, its differences still missing."""
    base = comparison.baseline
    scores = np.array([result.score for result in results])
    tests = [result.detail.margins.test for result in results]
    return ComparisonRow(
        rank=rank,
        method=key,
        label=BY_KEY[key].label,
        kernel=BY_KEY[key].kernel,
        splits=len(results),
        score=float(scores.mean()),
        score_std=float(scores.std(ddof=1)) if len(scores) > 1 else None,
        accuracy=_mean([result.detail.scores["accuracy"] for result in results]),
        balanced_accuracy=_mean([result.detail.scores["balanced_accuracy"] for result in results]),
        converged=converged,
        below_baseline=bool(scores.mean() < base + _ROUNDING),
        above_baseline=bool(np.isnan(base)) or _clearly_above(scores, base, comparison.plan.test_share),
        margin_mean=_mean([part.statistics.get("mean") for part in tests]),
        margin_variance=_mean([part.statistics.get("variance") for part in tests]),
        geometric_margin=_mean([part.distance for part in tests]),
        fit_seconds=float(np.median([result.fit_seconds for result in results])),
        predict_seconds=float(np.median([result.predict_seconds for result in results])),
        to_best=None,
        to_svm=None,
    )


def _mean(values):
    """The mean; None where a value is missing."""
    return None if None in values else float(np.mean(values))
