"""What the results of a comparison say: the ranked table, tests of significance, the answer in a few sentences."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from margindist.methods import BY_KEY
from margindist.runs.statistics import corrected_resampled_t, holm
from margindist.runs.store import Result, Store
from margindist.runs.wording import aligned, duration

if TYPE_CHECKING:
    import pandas as pd

    from margindist.compare.nested import Plan

LEVEL = 0.05
FEWEST_TESTED = 5  # two or three differences are often exactly equal, which a t-test takes for certainty
_SIGNS = {"": "  ", "tie": "  ", "win": " +", "loss": " -"}


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

    def __init__(self, plan: "Plan", about: Mapping[str, Any], results: Sequence[Result], stopped: str | None = None):
        self.plan = plan
        self.about = about
        self.results = list(results)
        self.stopped = stopped
        self._splits = _comparable_splits(self.results)
        self.rows = _ranked(plan, self.done)

    @classmethod
    def from_store(cls, path: str | os.PathLike) -> "Comparison":
        """Read the last comparison that a store has seen.

        Parameters
        ----------
        path : str or path
            File of the store.
        """
        from margindist.compare.nested import Plan  # which imports this module

        with Store(path) as store:
            latest = store.note("compare")
            if latest is None:
                raise ValueError(f"{path}: holds no comparison.")
            plan = Plan(**latest["plan"])
            return cls(plan, latest["about"], store.results(plan.experiment))

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
        """Why methods failed, one sentence for each that failed on some split."""
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
        """What methods warned of, one sentence for each that warned on some split, search included."""
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
        if not self.rows:
            return ["Nothing is finished yet, so there is nothing to compare."]
        best = self.rows[0]
        sentences = [*_first_sentences(self.rows, self.about["classes"].values())]
        if len(self.rows) == 1:
            return sentences
        if best.splits < FEWEST_TESTED:
            few = f"{best.splits} split{'s are' if best.splits > 1 else ' is'} too few"
            sentences.append(f"Whether the differences are real cannot be said: {few}, take {FEWEST_TESTED} or more.")
            return sentences
        sentences.append(_difference_sentence(self.rows))
        sentences += _svm_sentence(self.rows)
        sentences += _quickest_sentence(self.rows)
        return sentences

    def as_dict(self) -> dict[str, Any]:
        """Return everything in types that JSON has: plan, data, answer, table, and the results of each split."""
        cells = [
            {**result.cell._asdict(), **{name: value for name, value in asdict(result).items() if name != "cell"}}
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
        return _table_as_text(self.rows)

    __repr__ = __str__  # what a notebook shows


def _comparable_splits(results):
    """The splits that every method has finished; methods that finished none or failed somewhere do not count."""
    done: dict[str, set[int]] = {}
    failed = {result.cell.method for result in results if result.status != "done"}
    for result in results:
        if result.status == "done":
            done.setdefault(result.cell.method, set()).add(result.cell.split)
    counted = [splits for key, splits in done.items() if key not in failed] or list(done.values())
    return set.intersection(*counted) if counted else set()


def _ranked(plan, done):
    """Return the rows of the table, best first, from the results of each method."""
    if not done:
        return []
    means = {key: np.mean([r.score for r in results]) for key, results in done.items()}
    most = max(map(len, done.values()))
    # A method that failed on some splits, hard ones perhaps, comes after the others.
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
        p_best, verdict_best = _outcome(against_best.get(key))
        p_svm, verdict_svm = _outcome(against_svm.get(key))
        rows.append(
            ComparisonRow(
                rank=rank,
                method=key,
                label=method.label,
                kernel=method.kernel,
                splits=len(results),
                accuracy=float(scores.mean()),
                accuracy_std=_deviation(scores),
                balanced_accuracy=float(balanced.mean()),
                balanced_accuracy_std=_deviation(balanced),
                margin_mean=float(np.mean([part["mean"] for part in tests])),
                margin_variance=float(np.mean([part["variance"] for part in tests])),
                geometric_margin=None if None in geometric else float(np.mean([part["mean"] for part in geometric])),
                fit_seconds=float(np.median([result.fit_seconds for result in results])),
                predict_seconds=float(np.median([result.predict_seconds for result in results])),
                p_best=p_best,
                verdict_best=verdict_best,
                p_svm=p_svm,
                against_svm=BY_KEY[machines[key]].label if key in against_svm else "",
                verdict_svm=verdict_svm,
            )
        )
    return rows


def _outcome(test):
    """Return p-value and verdict of a test, or what stands for a method without one."""
    if test is None:
        return None, ""
    return test.p_value, test.verdict(LEVEL)


def _deviation(scores):
    """Return the standard deviation; None of a single score."""
    return float(scores.std(ddof=1)) if len(scores) > 1 else None


def _machines(done):
    """The support vector machine that each method is compared with: that of its own kind, or else the other one."""
    there = [key for key in ("linearsvc", "svc") if key in done]
    found = {}
    for key in done:
        own = "svc" if BY_KEY[key].kernel else "linearsvc"
        found[key] = own if own in there else next(iter(there), None)
    return found


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
    """Return the methods that are not significantly worse than the best one, without that one."""
    return [row for row in rows[1:] if row.verdict_best != "loss"]


def _first_sentences(rows, class_sizes):
    """Which method is best, and how good it would be to predict the commonest class always."""
    best = rows[0]
    whole = " of the methods that finished every split" if any(row.splits < best.splits for row in rows) else ""
    yield (
        f"{best.label} has the highest accuracy{whole}, {_mean_and_spread(best)} over {best.splits} "
        f"split{'s' if best.splits > 1 else ''}."
    )
    commonest = max(class_sizes) / sum(class_sizes)
    beside = ""
    if best.accuracy < commonest:
        beside = ": that is more"
    elif best.accuracy - commonest <= (best.accuracy_std or 0.0):
        beside = ": that is hardly less"
    yield f"Always naming the commonest class would give {commonest:.3f}{beside}."


def _difference_sentence(rows):
    best, others = rows[0], alike(rows)
    if not others:
        return "The difference is real: every other method is significantly worse."
    if len(others) == len(rows) - 1:
        return f"The differences may well be chance: none of the other {len(others)} methods is significantly worse."
    n_worse = len(rows) - 1 - len(others)
    worse = "the other one is" if n_worse == 1 else f"the other {n_worse} are"
    names = _listed([row.label for row in others])
    return f"{best.label} cannot be told apart from {names}; {worse} significantly worse."


def _svm_sentence(rows):
    machines = [row for row in rows if row.method in ("linearsvc", "svc")]
    if not machines or rows[0] in machines:
        return []
    machine = machines[0]
    verdict = ": no clear difference" if machine in alike(rows) else ", significantly"
    gap = f"{rows[0].accuracy - machine.accuracy:+.3f}"
    return [f"Against the better support vector machine, {machine.label}, it gains {gap}{verdict}."]


def _quickest_sentence(rows):
    best = rows[0]
    near = [row for row in alike(rows) if row.accuracy >= best.accuracy - best.accuracy_std]
    quickest = min([best, *near], key=lambda row: row.fit_seconds)
    if 2.0 * quickest.fit_seconds >= best.fit_seconds:
        return []
    return [
        f"Of those within one standard deviation of it, {quickest.label} is the quickest to fit "
        f"({duration(quickest.fit_seconds)} against {duration(best.fit_seconds)})."
    ]


def _mean_and_spread(row):
    return f"{row.accuracy:.3f}" if row.accuracy_std is None else f"{row.accuracy:.3f} ± {row.accuracy_std:.3f}"


def _listed(names, most=5):
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def probability(p: float | None) -> str:
    """Return a p-value as it stands in tables; a dash if there is none."""
    if p is None or np.isnan(p):
        return "–"
    if p > 0.9995:
        return "1"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _table_as_text(rows):
    """Return the ranked table for a terminal."""
    head = ("", "method", "accuracy", "balanced", "margin mean", "variance", "fit", "predict", "p best", "p SVM")
    lines = [head]
    for row in rows:
        lines.append((
            str(row.rank), row.label, _mean_and_spread(row), f"{row.balanced_accuracy:.3f}",
            f"{row.margin_mean:.3f}", f"{row.margin_variance:.3f}", duration(row.fit_seconds),
            duration(row.predict_seconds), probability(row.p_best), probability(row.p_svm) + _SIGNS[row.verdict_svm],
        ))  # fmt: skip
    return aligned(lines, left=(1,))
