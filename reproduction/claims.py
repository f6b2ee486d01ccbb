"""What became of the papers' conclusions: a sentence each, computed from the results."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from margindist.runs import statistics
from reproduction.findings import Findings, compare_entries

_ALIKE = 0.01  # curves that differ by less than this share of their spread are alike
_AS_FREQUENT = 3 / 4  # of the printed share of wins; above it ours counts as nearly the same
_AGREES = 2 / 3  # a column agrees if at least this share is within one printed standard deviation


class Verdict(NamedTuple):
    """Whether a conclusion holds in our results ("yes", "no", "in part"), and the numbers that say so."""

    holds: str
    reason: str

    def __str__(self) -> str:
        word = {"yes": "Holds here", "no": "Does not hold here", "in part": "Holds in part"}[self.holds]
        return f"{word}: {self.reason}"


def duel(found: Findings, first: str, second: str) -> tuple[int, int, int]:
    """Return wins, ties and losses of one method against another over the data sets, by the paper's test."""
    entries = [(found.entries[line.key, first], found.entries[line.key, second]) for line in found.experiment.data]
    tests = [compare_entries(found.experiment, a, b) for a, b in entries if a.scores and b.scores]
    return statistics.win_tie_loss(
        [test for test in tests if test is not None], 1.0 - found.experiment.statistics.level
    )


def verdicts(found: Findings) -> list[Verdict]:
    """Return what the results say about the paper's conclusions; empty where they cannot say anything yet."""
    declared = dict(found.experiment.verdict)
    return _RULES[declared.pop("rule")](found, **declared) if declared else []


def disagreements(found: Findings) -> list[str]:
    """Return a sentence for every column that mostly is not within one printed standard deviation, with its reason."""
    reasons = {**found.experiment.paper.reasons, **found.experiment.reasons}
    sentences = []
    for method, label in found.labels.items():
        own = [distance for _, key, distance in found.compared() if key == method]
        near = sum(abs(distance) <= 1 for distance in own)
        if own and near < _AGREES * len(own):
            sentences.append(
                f"{label}: {near} of {len(own)} within one printed standard deviation, on average "
                f"{np.mean(own):+.1f}. {reasons.get(method, 'The reason is not known.')}"
            )
    return sentences


def _counts(counts):
    return "/".join(map(str, counts))


def _holds(wholly, partly):
    """Return whether a conclusion holds, from whether all of it does and whether some of it does."""
    if wholly:
        return "yes"
    return "in part" if partly else "no"


def _share(counts, printed):
    """Whether wins are nearly as frequent as in print, or at least twice as frequent as losses."""
    wins, _, losses = counts
    as_frequent = wins / sum(counts) >= _AS_FREQUENT * printed[0] / sum(printed)
    return _holds(as_frequent, wins >= max(1, 2 * losses))


def _ldm_table(found: Findings) -> list[Verdict]:
    printed = found.experiment.summary["win-tie-loss"]["svm"]
    judged = []
    as_printed = duel(found, "ldm", "svm")
    if sum(as_printed):
        judged.append(Verdict(_share(as_printed, printed), (
            f"with C per sample, eq. 5 as printed, LDM has {_counts(as_printed)} wins, ties and losses against SVM "
            f"(printed {_counts(printed)}): {_tell_apart(as_printed)}."
        )))  # fmt: skip
    mixed, fair = duel(found, "ldm-c-over-m", "svm"), duel(found, "ldm-c-over-m", "svm-c-over-m")
    if sum(mixed) and sum(fair):
        judged.append(Verdict(_share(fair, printed), (
            f"with C/m in the place of C, LDM has {_counts(mixed)} against the SVM with C per sample and "
            f"{_counts(fair)} "
            f"against an SVM with the same C/m: what the stronger regularisation gives, LDM's margin terms "
            f"{'also add to' if fair[0] > fair[2] else 'do not add to'}."
        )))  # fmt: skip
    return judged


def _ldm_by_gradients(found: Findings) -> list[Verdict]:
    """LDM by Algorithm 2 against the SVM, and whether the margin terms or the algorithm make the difference."""
    printed = found.experiment.summary["win-tie-loss"]["svm"]
    first = duel(found, "ldm-asgd", "svm")
    if not sum(first):
        return []
    judged = [Verdict(_share(first, printed), (
        f"LDM by averaged stochastic gradients has {_counts(first)} wins, ties and losses against the SVM (printed "
        f"{_counts(printed)})."
    ))]  # fmt: skip
    algorithm, terms = duel(found, "svm-asgd", "svm"), duel(found, "ldm-exact", "svm")
    both = duel(found, "ldm-asgd", "svm-asgd")
    if not (sum(algorithm) and sum(terms) and sum(both)):
        return judged
    from_algorithm = algorithm[0] >= first[0] > terms[0]
    what = "the five passes of averaged stochastic gradients" if from_algorithm else "no one part alone"
    gains = ", ".join(_gain(found, line, ("svm", "svm-asgd", "ldm-asgd", "ldm-exact")) for line in found.lines)
    judged.append(Verdict("no" if from_algorithm else "in part", (
        f"that the margin terms make the wins: an SVM by the same gradients has {_counts(algorithm)} against the exact "
        f"SVM, LDM solved exactly {_counts(terms)}, and LDM {_counts(both)} against the SVM with both by gradients. "
        f"The wins come with {what}. Mean accuracies of SVM, SVM by gradients, LDM by gradients, LDM exact: {gains}."
    )))  # fmt: skip
    return judged


def _gain(found, line, methods):
    return f"{line.printed} " + " ".join(f"{found.entries[line.key, method].mean:.4f}" for method in methods)


def _tell_apart(counts):
    if counts[1] >= 0.8 * sum(counts):
        return "the two can hardly be told apart, for at these C the margin terms are too small to matter"
    return "LDM is ahead" if counts[0] > counts[2] else "LDM is not ahead"


def _against_all(found: Findings, label: str) -> list[Verdict]:
    rivals = [rival for rival in found.rivals if rival.printed is not None and sum(rival.paper_test)]
    if not rivals:
        return []
    names = found.labels
    ours = np.sum([rival.paper_test for rival in rivals], axis=0)
    printed = np.sum([rival.printed for rival in rivals], axis=0)
    each = ", ".join(f"{names[r.method]} {_counts(r.paper_test)} ({_counts(r.printed)})" for r in rivals)
    return [Verdict(_share(tuple(ours), tuple(printed)), (
        f"wins, ties and losses of {label} against all others together are {_counts(ours)}, in print "
        f"{_counts(printed)}; against each, printed in brackets: {each}."
    ))]  # fmt: skip


def _mamc_table(found: Findings) -> list[Verdict]:
    means = {m: found.average(m) for m in found.methods}
    if {"emamc", "l1-svm", "mamc", "mamc-b", "mamc-bs"} - means.keys() or not found.complete:
        return []
    lead = {"emamc", "l1-svm"} == set(sorted(means, key=means.get)[-2:])
    last = min(means, key=means.get) == "mamc"
    gain = means["mamc-b"] - means["mamc"]
    n = len(found.complete)
    return [
        Verdict(_holds(lead and last, lead or last), (
            f"averages over {n} data sets are EMAMC {means['emamc']:.3f}, L1 SVM {means['l1-svm']:.3f}, MAMC_bs "
            f"{means['mamc-bs']:.3f}, MAMC_b {means['mamc-b']:.3f}, MAMC {means['mamc']:.3f}."
        )),
        Verdict("yes" if gain > 0.05 else "no", (
            f"the optimal bias raises MAMC's average by {gain:.3f}, the slope adds "
            f"{means['mamc-bs'] - means['mamc-b']:+.3f}."
        )),
    ]  # fmt: skip


def _mamc_times(found: Findings) -> list[Verdict]:
    mean = {m: found.average(m) for m in found.methods}
    if {"mamc", "mamc-b", "mamc-bs", "mamc-bsg", "emamc", "l1-svm"} - mean.keys() or not found.complete:
        return []
    names = found.labels
    each = ", ".join(f"{names[m]} {mean[m]:.2g} s" for m in sorted(mean, key=mean.get))
    fastest = min(mean, key=mean.get)
    near = max(mean["mamc-b"], mean["mamc-bs"]) <= 3.0 * mean["mamc"]
    more = mean["mamc-bsg"] > mean["mamc-bs"]
    claims = [mean["mamc"] <= 1.2 * mean[fastest], near, more]
    quick = Verdict(_holds(all(claims), any(claims)), (
        f"averages are {each}: {names[fastest]} is the fastest, MAMC_b and MAMC_bs take "
        f"{mean['mamc-b'] / mean['mamc']:.1f} and {mean['mamc-bs'] / mean['mamc']:.1f} times MAMC's time, MAMC_bsg "
        f"{'more' if more else 'no more'} than MAMC_bs."
    ))  # fmt: skip
    slow = sorted(mean, key=mean.get)[-3:]
    apart = mean["mamc-bsg"] < 0.5 * min(mean["emamc"], mean["l1-svm"])
    alike = set(slow) == {"emamc", "l1-svm", "mamc-bsg"} and not apart
    shares = ", but MAMC_bsg is far from the other two: its search here shares the sums over the classes"
    groups = Verdict(_holds(alike, set(slow[1:]) == {"emamc", "l1-svm"}), (
        f"the slowest are {names[slow[2]]}, {names[slow[1]]} and {names[slow[0]]}{shares if apart else ''}."
    ))  # fmt: skip
    return [quick, groups]


def _ends(found, dataset, method, name):
    """Where each draw's run ended, and how many runs ended before they had converged."""
    own = found.histories.get((dataset, method), [])
    n_unfinished = sum(not result.detail.get("converged", True) for result in own)
    return [result.detail["history"][name][-1] for result in own], n_unfinished


def _pumma_figure(found: Findings, quantity: str, words: str) -> list[Verdict]:
    pairs = [("pumma-2", "romma"), ("pumma-2", "alma-2"), ("pumma-log", "alma-log")]
    names = found.labels
    judged = []
    for first, second in pairs:
        ratios, phrases = [], []
        for line in found.experiment.data:
            a, cut = _ends(found, line.key, first, quantity)
            b, unfinished = _ends(found, line.key, second, quantity)
            if a and b and not cut:
                ratios.append(np.mean(b) / max(np.mean(a), 1e-9))
                least = f"at least {_times(ratios[-1])}" if unfinished else _times(ratios[-1])
                many = f", {unfinished} of {len(b)} runs not converged" if unfinished else ""
                phrases.append(f"{least} (r = {line.generator['r']}{many})")
        if ratios:
            reason = f"{names[second]} takes {', '.join(phrases)} times the {words} of {names[first]}."
            judged.append(Verdict(_holds(min(ratios) > 1, max(ratios) > 1), reason))
    return judged


def _times(ratio):
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:,.0f}"


def _pumma_table(found: Findings) -> list[Verdict]:
    judged = []
    for rival in ("romma", "micra", "svm-light"):
        pairs = [(found.entries[line.key, "pumma"], found.entries[line.key, rival]) for line in found.experiment.data]
        ratios = [b.mean / a.mean for a, b in pairs if a.scores and b.scores]
        if ratios:
            slower = sum(ratio > 1 for ratio in ratios)
            expected = rival == "romma"
            agree = slower if expected else len(ratios) - slower
            judged.append(Verdict(_holds(agree == len(ratios), agree), (
                f"{found.labels[rival]} takes {_times(min(ratios))} to {_times(max(ratios))} times PUMMA's time; it is "
                f"slower on {slower} of {len(ratios)} data sets."
            )))  # fmt: skip
    return judged


READINGS = ("as in eq. 1", "over the length of w")  # of a margin


def margin_curves(found: Findings, reading: str) -> dict[tuple[str, str], np.ndarray]:
    """Return the quantiles of the margins on the first split by data set and method, as they are or over |w|."""
    return {
        key: np.asarray(result.detail["quantiles"]) * (result.detail["length"] if reading == READINGS[0] else 1.0)
        for key, result in found.first_splits.items()
    }


def _right_of(found: Findings, pairs: list[list[str]], readings: list[str] = READINGS[1:]) -> list[Verdict]:
    return [verdict for reading in readings for verdict in _right_of_in(found, pairs, reading)]


def _right_of_in(found, pairs, reading):
    """How often one method's curve of margins lies to the right of another's: larger quantiles at most levels.

    Quantiles that differ by less than a hundredth of the other's spread are alike.
    """
    curves = margin_curves(found, reading)
    names = found.labels
    judged = []
    for subject, other in pairs:
        sides = [
            _side(curves[line.key, subject], curves[line.key, other])
            for line in found.experiment.data
            if (line.key, subject) in curves and (line.key, other) in curves
        ]
        if sides:
            right, left, n = sides.count(1), sides.count(-1), len(sides)
            judged.append(Verdict(_holds(right >= 0.75 * n, right > left), (
                f"margins {reading}: on {right} of {n} data sets the curve of {names[subject]} lies right of "
                f"that of {names[other]} (larger at more than half of the quantiles), on {left} to the left, "
                f"and on {n - right - left} the two are alike."
            )))  # fmt: skip
    return judged


def _side(curve, other):
    apart = curve - other
    tolerance = _ALIKE * (other[-6] - other[5])  # of the middle nine tenths of 101 levels
    return int(np.mean(apart > tolerance) > 0.5) - int(np.mean(apart < -tolerance) > 0.5)


def _influence(found: Findings) -> list[Verdict]:
    ranges = [np.ptp(accuracies) for (method, *_), (_, accuracies) in found.influences.items() if method == "ldm"]
    if not ranges:
        return []
    typical = float(np.median(ranges))
    return [Verdict(_holds(typical < 0.01, False), (
        f"over a parameter's grid LDM's mean accuracy moves by {typical:.4f} in the median and {max(ranges):.4f} at "
        "most."
    ))]  # fmt: skip


# A rule reads the findings and the experiment's ``verdict`` table, whose "rule" is the name here.
_RULES: dict[str, Callable[..., list[Verdict]]] = {
    "ldm-against-svm": _ldm_table,
    "ldm-by-gradients": _ldm_by_gradients,
    "curves-right-of": _right_of,
    "insensitive": _influence,
    "mamc-accuracy": _mamc_table,
    "mamc-times": _mamc_times,
    "pumma-cost": _pumma_figure,
    "pumma-times": _pumma_table,
    "against-all": _against_all,
}
