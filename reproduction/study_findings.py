"""What the study found: differences to the SVM by condition, how sure they are, and what they hang on."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

import numpy as np

from margindist.runs.statistics import (
    Posterior,
    average_ranks,
    bayesian_signed_rank,
    corrected_resampled_t,
    critical_difference,
    friedman,
    holm,
    mean_interval,
    wilcoxon,
    win_tie_loss,
)
from margindist.runs.store import Result
from reproduction.declarations import Experiment
from reproduction.study import LINEAR, RBF, YARDSTICKS

ALIKE = 0.01  # half the width of the region of practical equivalence, in units of the score
SURE = 0.95
MEASURES = {
    "accuracy": "accuracy",
    "balanced": "balanced accuracy",
    "auc": "area under the curve",
    "log_loss": "log-loss after calibration",
    "stability": "stability of the scores",
    "shifted": "accuracy, test features shifted",
    "rescaled": "accuracy, test features rescaled",
}
_DRAWS = 2000
_TEST_SHARE = 0.5  # of the half/half splits; folds share fewer rows, so this errs on the side of ties


class Contrast(NamedTuple):
    """One method less another in one measure, over data sets: a mean difference per set, positive if it is better."""

    method: str
    differences: Mapping[str, float]
    mean: float
    low: float
    high: float
    posterior: Posterior
    p_value: float
    counts: tuple[int, int, int]  # wins, ties, losses by corrected tests within the sets

    @property
    def verdict(self) -> str:
        """What is nearly certain: "better", "worse" or "alike"; "open" if nothing is."""
        return next((name for name, share in self.posterior._asdict().items() if share > SURE), "open")


@dataclass(frozen=True)
class Findings:
    """The finished cells of one condition."""

    experiment: Experiment
    results: Sequence[Result]

    @cached_property
    def done(self) -> list[Result]:
        """Cells with a score."""
        return [result for result in self.results if result.status == "done"]

    @cached_property
    def _contrasts(self):
        return {}

    @cached_property
    def labels(self) -> dict[str, str]:
        """Names of the methods by key."""
        return {method.key: method.label for method in self.experiment.methods}

    @property
    def measure(self) -> str:
        """The score by which the condition is judged: that by which parameters were chosen."""
        return "balanced" if self.experiment.settings.get("choose") == "balanced_accuracy" else "accuracy"

    @cached_property
    def _values(self):
        found = defaultdict(dict)
        for result in self.done:
            scores = {"accuracy": result.score, **result.detail}
            for measure in MEASURES:
                value = scores.get(measure)
                if value is not None and np.isfinite(value):
                    sign = -1.0 if measure == "log_loss" else 1.0
                    found[measure, result.cell.dataset, result.cell.method][result.cell.split] = sign * value
        return found

    def scores(self, dataset: str, method: str, measure: str) -> dict[int, float]:
        """Return the scores by split; the larger, the better."""
        return self._values.get((measure, dataset, method), {})

    def contrast(self, method: str, reference: str, measure: str | None = None) -> Contrast:
        """Set a method against another on the splits that both have."""
        asked = method, reference, measure or self.measure
        if asked not in self._contrasts:
            self._contrasts[asked] = self._compare(*asked)
        return self._contrasts[asked]

    def _compare(self, method, reference, measure):
        differences, tests = {}, []
        for line in self.experiment.data:
            own, other = (self.scores(line.key, key, measure) for key in (method, reference))
            common = sorted(own.keys() & other.keys())
            if common:
                pair = [own[split] for split in common], [other[split] for split in common]
                differences[line.key] = fmean(pair[0]) - fmean(pair[1])
                tests.append(corrected_resampled_t(*pair, test_share=_TEST_SHARE))
        return _contrast(method, differences, win_tie_loss(tests))

    def mean(self, method: str, measure: str, datasets: Iterable[str]) -> float:
        """Return the mean over these data sets of the means over splits."""
        values = [fmean(self.scores(key, method, measure).values()) for key in datasets]
        return fmean(values) if values else float("nan")

    def complete(self, methods: Sequence[str], measure: str = "accuracy") -> list[str]:
        """Return the data sets on which each of the methods has a score."""
        return [
            line.key
            for line in self.experiment.data
            if all(self.scores(line.key, method, measure) for method in methods)
        ]

    def ranking(self, methods: Sequence[str]) -> "Ranking | None":
        """Return average ranks by accuracy, or None with too few data sets."""
        kept = self.complete(methods)
        if len(kept) < 3:
            return None
        table = [[fmean(self.scores(key, method, "accuracy").values()) for method in methods] for key in kept]
        ranks = dict(zip(methods, average_ranks(table), strict=True))
        return Ranking(ranks, critical_difference(len(methods), len(kept)), friedman(table)[1], len(kept))


class Ranking(NamedTuple):
    """Average ranks, the difference that matters, the p-value of Friedman's test, and the number of data sets."""

    ranks: Mapping[str, float]
    critical_difference: float
    p_value: float
    n_datasets: int


def _contrast(method, differences, counts):
    values = np.array(list(differences.values()))
    zeros = np.zeros_like(values)
    posterior = bayesian_signed_rank(values, zeros, alike=ALIKE, n_draws=_DRAWS)
    p_value = wilcoxon(values, zeros).p_value if len(values) else float("nan")
    return Contrast(method, differences, *mean_interval(values), posterior, p_value, counts)


def means_without_one(contrast: Contrast) -> tuple[float, float]:
    """Return the least and the largest mean difference with one data set left out."""
    values = np.array(list(contrast.differences.values()))
    means = (values.sum() - values) / max(len(values) - 1, 1)
    return float(means.min()), float(means.max())


def turning_sets(contrast: Contrast) -> list[str]:
    """Return the data sets without which the verdict would be another."""
    turning = []
    for left_out in contrast.differences:
        rest = {key: value for key, value in contrast.differences.items() if key != left_out}
        if _contrast(contrast.method, rest, contrast.counts).verdict != contrast.verdict:
            turning.append(left_out)
    return turning


def rivals(kernel: str) -> tuple[str, tuple[str, ...]]:
    """Return the SVM of a kind, "linear" or "rbf", and the methods to set against it."""
    reference, *others = LINEAR if kernel == "linear" else RBF
    return reference, (*others, *(YARDSTICKS if kernel == "rbf" else ()))


def adjusted(contrasts: Sequence[Contrast]) -> list[float]:
    """Return the p-values of Wilcoxon's test, adjusted by Holm's rule for the number of methods."""
    return holm([contrast.p_value for contrast in contrasts]).tolist()
