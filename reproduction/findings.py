"""What the results of an experiment say: means, tests, agreement with the printed numbers. No text is made here."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from margindist.runs import statistics
from margindist.runs.store import Result
from reproduction.declarations import DataSet, Experiment

_FEWEST_SETS = 6  # on five, Wilcoxon's test cannot reach 5 % whatever the differences
_FEWEST_SPLITS = 3


class Entry(NamedTuple):
    """One line and column of a table: our scores by split, and what was printed."""

    scores: dict[int, float]
    printed_mean: float | None
    printed_std: float | None

    @property
    def mean(self) -> float:
        """Mean over the splits."""
        return float(np.mean(list(self.scores.values()))) if self.scores else float("nan")

    @property
    def std(self) -> float:
        """Standard deviation over the splits."""
        return float(np.std(list(self.scores.values()), ddof=1)) if len(self.scores) > 1 else float("nan")

    @property
    def distance(self) -> float | None:
        """Ours less printed, in printed standard deviations; None where nothing, or no deviation, was printed."""
        if not self.scores or self.printed_mean is None or not self.printed_std:
            return None
        return (self.mean - self.printed_mean) / self.printed_std


class Rival(NamedTuple):
    """The subject of an experiment against one other method, over data sets: (wins, ties, losses) and tests."""

    method: str
    paper_test: tuple[int, int, int]
    corrected: tuple[int, int, int] | None
    printed: tuple[int, int, int] | None
    n_datasets: int
    wilcoxon: float
    holm: float


class Findings(NamedTuple):
    """Everything computed from the results of an experiment."""

    experiment: Experiment
    entries: dict[tuple[str, str], Entry]
    results: list[Result]
    rivals: list[Rival]
    verdicts: dict[tuple[str, str], str]  # of a column against the reference, by the paper's test
    complete: list[str]  # data sets with splits that all of `methods` have
    methods: list[str]  # methods with a result on all of those
    means: dict[tuple[str, str], float]  # over the splits that all of them have
    ranks: dict[str, float]
    friedman: tuple[float, float] | None
    critical_difference: float | None

    @property
    def labels(self) -> dict[str, str]:
        """Names of the methods by their keys."""
        return {method.key: method.label for method in self.experiment.methods}

    @property
    def done(self) -> list[Result]:
        """The results of the cells that ran to their end."""
        return [result for result in self.results if result.status == "done"]

    @property
    def lines(self) -> list[DataSet]:
        """The data sets on which some method has a score."""
        measured = {key for (key, _), entry in self.entries.items() if entry.scores}
        return [line for line in self.experiment.data if line.key in measured]

    @property
    def first_splits(self) -> dict[tuple[str, str], Result]:
        """The results on the first split, by data set and method."""
        return {result.cell[1:3]: result for result in self.done if result.cell.split == 0}

    @property
    def histories(self) -> dict[tuple[str, str], list[Result]]:
        """The results that tell how an online learner got on, by data set and method."""
        found = defaultdict(list)
        for result in self.done:
            if "history" in result.detail:
                found[result.cell[1:3]].append(result)
        return dict(found)

    @property
    def influences(self) -> dict[tuple[str, str, str], tuple[list[float], np.ndarray]]:
        """Values and mean accuracies of a parameter that was varied, by method, parameter and data set."""
        accuracies, values = defaultdict(list), {}
        for result in self.done:
            for name, curve in result.detail["influence"].items():
                key = result.cell.method, name, result.cell.dataset
                accuracies[key].append(curve["accuracy"])
                values[key] = curve["values"]
        return {key: (values[key], np.mean(curves, axis=0)) for key, curves in accuracies.items()}

    def compared(self) -> list[tuple[str, str, float]]:
        """Return (data set, method, distance in printed standard deviations) wherever both numbers are there."""
        pairs = ((key, entry.distance) for key, entry in self.entries.items())
        return [(*key, distance) for key, distance in pairs if distance is not None]

    def average(self, method: str, *, printed: bool = False) -> float | None:
        """Return a method's average over the complete data sets."""
        pairs = [(key, method) for key in self.complete]
        values = [self.entries[pair].printed_mean if printed else self.means[pair] for pair in pairs]
        return float(np.mean(values)) if values and None not in values else None


def findings(experiment: Experiment, results: Iterable[Result]) -> Findings:
    """Compute what the results of an experiment say.

    Parameters
    ----------
    experiment : Experiment
    results : iterable of Result
        Those of other experiments are left out.
    """
    results = [result for result in results if result.cell.experiment == experiment.id]
    scores: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for result in results:
        if result.status == "done" and result.score is not None:
            scores[result.cell.dataset, result.cell.method][result.cell.split] = result.score
    entries = {}
    for line in experiment.data:
        for method in experiment.methods:
            printed = experiment.cell(line.key, method.key)
            numbers = (None, None) if printed is None else (printed.mean, printed.std)
            entries[line.key, method.key] = Entry(scores.get((line.key, method.key), {}), *numbers)
    complete, methods = _complete(experiment, entries)
    means = {}
    for key in complete:
        common = _common(entries[key, method] for method in methods)
        for method in methods:
            means[key, method] = float(np.mean([entries[key, method].scores[split] for split in common]))
    table = np.array([[means[key, method] for method in methods] for key in complete])
    n_splits = [len(_common(entries[key, method] for method in methods)) for key in complete]
    enough = len(complete) >= _FEWEST_SETS and len(methods) >= 3 and min(n_splits) >= _FEWEST_SPLITS
    ranks = dict(zip(methods, statistics.average_ranks(table))) if len(complete) else {}
    return Findings(
        experiment,
        entries,
        results,
        _rivals(experiment, entries),
        _verdicts(experiment, entries),
        complete,
        methods,
        means,
        ranks,
        statistics.friedman(table) if enough else None,
        statistics.critical_difference(len(methods), len(complete)) if enough else None,
    )


def _complete(experiment, entries):
    """Data sets and methods that make a full table: a method that lacks half of the data sets is left out."""
    lines = [line.key for line in experiment.data]
    counts = {m.key: sum(bool(entries[key, m.key].scores) for key in lines) for m in experiment.methods}
    most = max(counts.values(), default=0)
    methods = [key for key, count in counts.items() if count and count >= 0.5 * most]
    return [key for key in lines if methods and _common(entries[key, m] for m in methods)], methods


def _common(entries: Iterable[Entry]) -> list[int]:
    """Return the splits that all have: means over different ones would differ by the splits alone."""
    return sorted(set.intersection(*(set(entry.scores) for entry in entries)))


def _paired(first: Entry, second: Entry) -> tuple[Sequence[float], Sequence[float]]:
    common = _common((first, second))
    return [first.scores[split] for split in common], [second.scores[split] for split in common]


def compare_entries(experiment: Experiment, first: Entry, second: Entry) -> statistics.Comparison | None:
    """Compare two entries by the paper's own test on the splits they share; None where there are too few."""
    a, b = _paired(first, second)
    if len(a) < _FEWEST_SPLITS:
        return None
    if experiment.statistics.test == "welch":
        return statistics.welch(*((np.mean(x), np.std(x, ddof=1), len(x)) for x in (a, b)))
    return statistics.paired_t(a, b)


def _verdicts(experiment, entries):
    """How each column compares with the reference: better, worse, or neither."""
    reference, alpha = experiment.statistics.reference, 1.0 - experiment.statistics.level
    found = {}
    for (line, method), entry in entries.items():
        if reference is None or method == reference:
            continue
        comparison = compare_entries(experiment, entry, entries[line, reference])
        if comparison is not None:
            found[line, method] = comparison.verdict(alpha)
    return found


def _rivals(experiment, entries):
    subject, alpha = experiment.statistics.subject, 1.0 - experiment.statistics.level
    if subject is None:
        return []
    train = experiment.splits.train
    rows = []
    for method in experiment.methods:
        pairs = [(entries[line.key, subject], entries[line.key, method.key]) for line in experiment.data]
        pairs = [pair for pair in pairs if _common(pair)]
        if method.key == subject or not pairs:
            continue
        tests = [test for pair in pairs if (test := compare_entries(experiment, *pair)) is not None]
        corrected = None
        paired = [_paired(*pair) for pair in pairs]
        if train is not None:
            enough = [pair for pair in paired if len(pair[0]) >= _FEWEST_SPLITS]
            tests_allowing = [statistics.corrected_resampled_t(*pair, test_share=1.0 - train) for pair in enough]
            corrected = statistics.win_tie_loss(tests_allowing, alpha)
        means = [[np.mean(pair[k]) for pair in paired] for k in (0, 1)]
        p_value = statistics.wilcoxon(*means).p_value if len(pairs) >= _FEWEST_SETS else np.nan
        counted = experiment.summary.get("win-tie-loss", {}).get(method.key)
        rows.append((method.key, statistics.win_tie_loss(tests, alpha), corrected, counted, len(pairs), p_value))
    adjusted = statistics.holm([row[-1] for row in rows]) if rows else []
    return [Rival(*row, float(p)) for row, p in zip(rows, adjusted)]
