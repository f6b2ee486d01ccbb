"""What the results of a comparison say: the ranked table, tests of significance, the answer in a few sentences."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from margindist.compare.scoring import LABELS, SHORT, baseline
from margindist.methods import BY_KEY
from margindist.runs.statistics import corrected_resampled_t, holm
from margindist.runs.store import Result, Store
from margindist.runs.wording import aligned, duration

if TYPE_CHECKING:
    import pandas as pd

    from margindist.compare.nested import Plan

FORMAT = 2  # of what is stored with a comparison; details of cells changed with it
LEVEL = 0.05
QUANTILES = np.round(np.linspace(0.0, 1.0, 81), 4)  # of margins
FEWEST_TESTED = 5  # two or three differences are often exactly equal, which a t-test takes for certainty
BASELINE = "(the commonest class)"
_ROUNDING = 1e-12  # means of equal scores over splits differ by less
_SIGNS = {"": "  ", "tie": "  ", "win": " +", "loss": " -"}


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
    below_baseline : bool
        Whether naming the commonest class always scores as much or more.
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

    @property
    def remarks(self) -> list[str]:
        """What a reader must know before taking the line for a result like the others."""
        found = []
        if self.converged < self.splits:
            of_all = f"{self.splits} split{'s' if self.splits > 1 else ''}"
            found.append(f"not converged in {self.splits - self.converged} of {of_all}")
        if self.below_baseline:
            found.append("no better than the commonest class")
        return found


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
    looks : list of Result
        The closer look at the best method and its SVM.
    """

    def __init__(
        self,
        plan: "Plan",
        about: Mapping[str, Any],
        results: Sequence[Result],
        stopped: str | None = None,
        looks: Sequence[Result] = (),
    ):
        self.plan = plan
        self.about = about
        self.results = list(results)
        self.stopped = stopped
        self.looks = [look for look in looks if look.status == "done"]
        self._splits = _comparable_splits(self.results, plan.reserve)
        self.baseline = self._baseline()
        self.rows: list[ComparisonRow] = _ranked(plan, self.done, self.baseline)

    @classmethod
    def from_results(cls, plan: "Plan", about: Mapping[str, Any], store: Store, stopped: str | None) -> "Comparison":
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
        from margindist.compare.nested import Plan  # which imports this module

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
        first = [row for row in self.rows if row.method not in self.plan.reserve]
        return [key for key in self.plan.reserve if first and BY_KEY[key].kernel == first[0].kernel]

    @property
    def left_out(self) -> dict[str, str]:
        """The methods that did not run, each with the reason."""
        ran = {BY_KEY[result.cell.method].label for result in self.results}
        return {label: reason for label, reason in self.about["left_out"].items() if label not in ran}

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
    def looked_at(self) -> list[str]:
        """The best method, and the support vector machine of its kind; if it is that itself, the next best method."""
        keys = [row.method for row in self.rows]
        machine = _machines(self.done)[keys[0]] if keys else None
        return [keys[0], machine] if machine not in (None, *keys[:1]) else keys[:2]

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
        late = _late(self.results, self.plan.reserve, self._splits)
        found = {key: [] for key in self.plan.grids if key not in late}
        for result in sorted(self.results, key=lambda result: result.cell.split):
            if result.status == "done" and result.cell.split in self._splits and result.cell.method in found:
                found[result.cell.method].append(result)
        return {key: results for key, results in found.items() if results}

    @property
    def total(self) -> int:
        """The number of cells of the plan: those of the reserve count when they are called."""
        first = len(self.plan.cells())
        per_method = self.plan.splits * self.plan.repeats
        begun = {result.cell.method for result in self.results} & set(self.plan.reserve)
        complete = sum(result.cell.method not in self.plan.reserve for result in self.results) == first
        return first + per_method * len(begun | set(self.called if complete else ()))

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
        score = Score(self.plan.scoring)
        sentences = list(_first_sentences(self.rows, self.baseline, score))
        if len(self.rows) == 1:
            return [*sentences, *self._left_out_sentences()]
        if best.splits < FEWEST_TESTED:
            few = f"{best.splits} split{'s are' if best.splits > 1 else ' is'} too few"
            sentences.append(f"Whether the differences are real cannot be said: {few}, take {FEWEST_TESTED} or more.")
        else:
            sentences.append(_difference_sentence(self.rows))
            sentences += _svm_sentence(self.rows, score)
            sentences += _quickest_sentence(self.rows)
        return [*sentences, *_unranked_sentences(self.rows, score), *self._left_out_sentences()]

    def _left_out_sentences(self):
        """Which rivals nothing is said about; those of the kind of the best method first."""
        unfinished = self.unfinished
        found = [f"Not finished, so not compared: {_listed(unfinished)}."] if unfinished else []
        if self.about.get("methods") is not None:
            return [*found, "Only the methods asked for, and scikit-learn's, were compared."]
        kernels = {method.label: method.kernel for method in BY_KEY.values()}
        near = [label for label in self.left_out if kernels[label] == self.rows[0].kernel]
        far = [label for label in self.left_out if label not in near]
        if near:
            kind = f"though of the same kind as {self.rows[0].label}"
            found.append(f"{'Also not' if found else 'Not'} compared, {kind}: {_listed(near)}.")
        if far:
            found.append(f"{'Also not' if found else 'Not'} compared: {_listed(far)}.")
        return found

    def _baseline(self):
        """The score of naming the commonest class always, on the test parts that the table is about."""
        classes = self.about["classes"]
        tested = {result.cell.split: result.detail["confusion"] for results in self.done.values() for result in results}
        parts = [dict(zip(classes, np.sum(confusion, axis=1).tolist())) for confusion in tested.values()]
        name, positive = self.plan.scoring, self.plan.positive
        return float(np.mean([baseline(name, part, classes, positive) for part in parts or [classes]]))

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
            "left_out": self.left_out,
            "baseline": self.baseline,
            "table": [row._asdict() for row in self.rows],
            "cells": cells,
            "looks": [{**look.cell._asdict(), "detail": look.detail} for look in self.looks],
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return the ranked table as a data frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas; rows has the same without it.") from error
        table = pd.DataFrame(self.rows, columns=ComparisonRow._fields)
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

    def __str__(self) -> str:
        return _table_as_text(self.rows, self.baseline, Score(self.plan.scoring))

    __repr__ = __str__  # what a notebook shows


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


def _ranked(plan, done, base):
    """Return the rows of the table, best first, from the results of each method."""
    if not done:
        return []
    means = {key: np.mean([r.score for r in results]) for key, results in done.items()}
    most = max(map(len, done.values()))
    converged = {key: sum(r.detail["converged"] for r in results) for key, results in done.items()}
    unranked = {key for key in done if converged[key] < len(done[key])}
    # A method that failed on some splits, hard ones perhaps, comes after the others, and what did not converge last.
    order = sorted(
        done, key=lambda key: (key in unranked, len(done[key]) < most, -means[key], list(plan.grids).index(key))
    )
    against_best = _tests(done, dict.fromkeys(order[1:], order[0]), plan)
    machines = _machines(done)
    against_svm = _tests(done, {key: machines[key] for key in order if machines[key] not in (None, key)}, plan)
    rows = []
    for rank, key in enumerate(order, 1):
        method, results = BY_KEY[key], done[key]
        scores = np.array([result.score for result in results])
        tests = [result.detail["margins"]["test"] for result in results]
        geometric = [result.detail["margins"]["test_geometric"] for result in results]
        p_best, verdict_best = _outcome(against_best.get(key))
        p_svm, verdict_svm = _outcome(against_svm.get(key))
        rows.append(
            ComparisonRow(
                rank=None if key in unranked else rank,
                method=key,
                label=method.label,
                kernel=method.kernel,
                splits=len(results),
                score=float(scores.mean()),
                score_std=_deviation(scores),
                accuracy=_mean_of(results, "accuracy"),
                balanced_accuracy=_mean_of(results, "balanced_accuracy"),
                converged=converged[key],
                below_baseline=bool(scores.mean() < base + _ROUNDING),
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


def _mean_of(results, name):
    return float(np.mean([result.detail["scores"][name] for result in results]))


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
    """Return the ranked methods that are not significantly worse than the best one, without that one."""
    return [row for row in rows[1:] if row.rank is not None and row.verdict_best != "loss"]


class Score(NamedTuple):
    """How a score is written: log-loss is kept with a minus sign."""

    name: str

    def text(self, value: float) -> str:
        """Return a score with three digits."""
        return f"{-value if self.name == 'log_loss' else value:.3f}"

    def spread(self, row: ComparisonRow) -> str:
        """Return a method's mean and standard deviation."""
        return self.text(row.score) + ("" if row.score_std is None else f" ± {row.score_std:.3f}")

    @property
    def best(self) -> str:
        """What the best method has."""
        return f"the {'lowest' if self.name == 'log_loss' else 'highest'} {LABELS[self.name]}"


def _first_sentences(rows, base, score):
    """Which method is best, and how good it would be to predict the commonest class always."""
    best = rows[0]
    did = ["finished"] if any(row.splits < best.splits for row in rows) else []
    if best.rank is None:
        yield "No method converged on every split, so none is ranked."
    elif any(row.rank is None for row in rows):
        did.append("converged on")
    whole = f" of the methods that {' and '.join(did)} every split" if did else ""
    over = f"over {best.splits} split{'s' if best.splits > 1 else ''}"
    first = [row for row in rows if row.rank is not None and row.splits == best.splits]
    equal = [row.label for row in first if row.score > best.score - _ROUNDING]
    if len(equal) > 1:
        yield f"{_listed(equal)} share {score.best}{whole}, {score.text(best.score)} {over}."
    else:
        yield f"{best.label} has {score.best}{whole}, {score.spread(best)} {over}."
    beside = ""
    if abs(best.score - base) < _ROUNDING:
        beside = ": that is as good"
    elif best.below_baseline:
        beside = ": that is better" if score.name == "log_loss" else ": that is more"
    elif best.score - base <= (best.score_std or 0.0):
        beside = ": that is hardly worse" if score.name == "log_loss" else ": that is hardly less"
    always = "Giving each class its share" if score.name == "log_loss" else "Always naming the commonest class"
    yield f"{always} would give {score.text(base)}{beside}."


def _difference_sentence(rows):
    best, others = rows[0], alike(rows)
    rivals = [row for row in rows[1:] if row.rank is not None]
    if not rivals:
        return "There is no other method to hold it against."
    if not others:
        return "The difference is real: every other method that ran is significantly worse."
    if len(others) == len(rivals):
        many = f"none of the other {len(others)} methods" if len(others) > 1 else "the other method is not"
        return f"The differences may well be chance: {many}{' is' if len(others) > 1 else ''} significantly worse."
    n_worse = len(rivals) - len(others)
    worse = "the other one is" if n_worse == 1 else f"the other {n_worse} are"
    names = _listed([row.label for row in others])
    return f"{best.label} cannot be told apart from {names}; {worse} significantly worse."


def _svm_sentence(rows, score):
    machines = [row for row in rows if row.method in ("linearsvc", "svc")]
    if not machines or rows[0] in machines:
        return []
    machine = max(machines, key=lambda row: row.score)
    verdict = ", significantly" if machine.verdict_best == "loss" else ": no clear difference"
    gap = rows[0].score - machine.score
    gains = f"its log-loss is lower by {gap:.3f}" if score.name == "log_loss" else f"it gains {gap:+.3f}"
    return [f"Against the better support vector machine, {machine.label}, {gains}{verdict}."]


def _quickest_sentence(rows):
    best = rows[0]
    near = [row for row in alike(rows) if row.score >= best.score - best.score_std]
    quickest = min([best, *near], key=lambda row: row.fit_seconds)
    if 2.0 * quickest.fit_seconds >= best.fit_seconds:
        return []
    return [
        f"Of those within one standard deviation of it, {quickest.label} is the quickest to fit "
        f"({duration(quickest.fit_seconds)} against {duration(best.fit_seconds)})."
    ]


def _unranked_sentences(rows, score):
    """What methods without a rank had, where that is more than the best one had."""
    better = [row for row in rows[1:] if row.rank is None and row.score > rows[0].score]
    for row in better:
        yield f"{row.label}, which did not converge on some splits and has no rank, had {score.text(row.score)}."


def _listed(names, most=5):
    if len(names) > most + 1:  # "and 1 more" would be no shorter than its name
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def probability(p: float | None) -> str:
    """Return a p-value as it stands in tables; a dash if there is none."""
    if p is None or np.isnan(p):
        return "–"
    if p > 0.9995:
        return "1"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _table_as_text(rows, base, score):
    """Return the ranked table for a terminal."""
    second = "accuracy" if score.name != "accuracy" else "balanced_accuracy"
    head = ("", "method", SHORT[score.name], SHORT[second], "margin mean", "variance", "fit", "predict", "p best",
            "p SVM", "")  # fmt: skip
    lines = [head]
    shown = [*rows, None]  # which stands for the commonest class, before the first that is worse
    place = next((k for k, row in enumerate(rows) if row.rank is None or row.below_baseline), len(rows))
    shown.insert(place, shown.pop())
    for row in shown:
        if row is None:
            lines.append(("", BASELINE, score.text(base), *[""] * 8))
            continue
        lines.append((
            "–" if row.rank is None else str(row.rank), row.label, score.spread(row), f"{getattr(row, second):.3f}",
            f"{row.margin_mean:.3f}", f"{row.margin_variance:.3f}", duration(row.fit_seconds),
            duration(row.predict_seconds), probability(row.p_best), probability(row.p_svm) + _SIGNS[row.verdict_svm],
            "; ".join(row.remarks),
        ))  # fmt: skip
    return aligned(lines, left=(1, 10))
