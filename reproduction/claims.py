"""What became of the papers' conclusions: a sentence each, computed from the results."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from margindist.runs import statistics
from reproduction.findings import Findings, compare_entries

_ALIKE = 0.01  # curves that differ by less than this share of their spread are alike
_AS_FREQUENT = 3 / 4  # of the printed share of wins; above it ours counts as nearly the same
_AGREES = 2 / 3  # a column agrees if at least this share is within one printed standard deviation
_COMPARABLE = 2.0  # times within this factor are comparable
_WORDS = {"yes": "Holds here", "no": "Does not hold here", "in part": "Holds in part"}


class Verdict(NamedTuple):
    """Whether a conclusion holds in our results ("yes", "no", "in part"), and the numbers that say so.

    ``decides`` is what decides it in few words, where the reason has many.
    """

    claim: str
    holds: str
    reason: str
    decides: str = ""

    def __str__(self) -> str:
        return f"{self.claim}. {_WORDS[self.holds]}: {self.reason}"


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


def _counted(found: Findings, first: str, second: str, printed: tuple, claim: str) -> list[Verdict]:
    """Wins, ties and losses of one method against another beside the printed ones."""
    counts = duel(found, first, second)
    if not sum(counts):
        return []
    wins, n = printed[0], sum(printed)
    return [Verdict(f"{claim} on {wins} of {n} data sets", _share(counts, printed), (
        f"wins, ties and losses are {_counts(counts)}, in print {_counts(printed)}."
    ), _beside(counts, printed))]  # fmt: skip


def _beside(counts, printed):
    return f"{_counts(counts)} wins, ties, losses; printed {_counts(printed)}"


def best_on(found: Findings, method: str, *, worst: bool = False) -> tuple[int, int]:
    """Return on how many data sets a method has the best (or worst) mean of the printed methods, and of how many."""
    sign = -1 if worst else 1
    columns = [m.key for m in found.experiment.methods if m.printed and not m.unavailable]
    rows = [{key: sign * found.entries[line.key, key].mean for key in columns} for line in found.lines]
    rows = [{key: mean for key, mean in row.items() if not np.isnan(mean)} for row in rows]
    rows = [row for row in rows if method in row and len(row) > 1]
    if found.experiment.kind == "time":
        return sum(row[method] <= min(row.values()) for row in rows), len(rows)
    return sum(row[method] >= max(row.values()) for row in rows), len(rows)


def _best(found: Findings, method: str) -> list[Verdict]:
    """The paper's count of data sets on which its method is the best."""
    printed, n_printed = found.experiment.summary["best"][method], len(found.experiment.data)
    count, n = best_on(found, method)
    if not n:
        return []
    label = found.labels[method]
    enough = count / n >= _AS_FREQUENT * printed / n_printed
    return [Verdict(f"{label} is the best on {printed} of {n_printed} data sets", _holds(enough, count > n / 3), (
        f"on {count} of the {n} measured."
    ))]  # fmt: skip


def _ldm_table(found: Findings) -> list[Verdict]:
    printed = found.experiment.summary["win-tie-loss"]
    judged = []
    as_printed = duel(found, "ldm", "svm")
    if sum(as_printed):
        judged.append(Verdict(_won(printed["svm"]), _never_worse(as_printed, printed["svm"]), (
            f"with C per sample, eq. 5 as printed, LDM has {_counts(as_printed)} wins, ties and losses against SVM "
            f"(printed {_counts(printed['svm'])}): {_tell_apart(as_printed)}."
        ), f"{_beside(as_printed, printed['svm'])}: {_tell_apart(as_printed).split(', for ')[-1]}"))  # fmt: skip
    mixed, fair = duel(found, "ldm-c-over-m", "svm"), duel(found, "ldm-c-over-m", "svm-c-over-m")
    if sum(mixed) and sum(fair):
        judged.append(Verdict("The same with C/m in the place of C", _share(fair, printed["svm"]), (
            f"LDM has {_counts(mixed)} against the SVM with C per sample and {_counts(fair)} against an SVM with the "
            f"same C/m: what the stronger regularisation gives, LDM's margin terms "
            f"{'also add to' if fair[0] > fair[2] else 'do not add to'}."
        ), f"{_counts(fair)} against an SVM with the same C/m, {_counts(mixed)} against one with C"))  # fmt: skip
    for rival, counts in printed.items():
        if rival != "svm":
            judged += _counted(found, "ldm", rival, counts, f"LDM is better than {found.labels[rival]}")
    return judged + _best(found, "ldm")


def _never_worse(counts, printed):
    """As :func:`_share`, but a single loss leaves no more than a part of the claim."""
    holds = _share(counts, printed)
    return "in part" if counts[2] and holds == "yes" else holds


def _won(counts):
    return f"LDM is better than the SVM on {counts[0]} of {sum(counts)} data sets, and never worse"


def _ldm_by_gradients(found: Findings) -> list[Verdict]:
    """LDM by Algorithm 2 against the SVM, and whether the margin terms or the algorithm make the difference."""
    printed = found.experiment.summary["win-tie-loss"]
    first = duel(found, "ldm-asgd", "svm")
    if not sum(first):
        return []
    judged = [Verdict(_won(printed["svm"]), _never_worse(first, printed["svm"]), (
        f"LDM by averaged stochastic gradients has {_counts(first)} wins, ties and losses against the SVM (printed "
        f"{_counts(printed['svm'])})."
    ), _beside(first, printed["svm"]))]  # fmt: skip
    algorithm, terms = duel(found, "svm-asgd", "svm"), duel(found, "ldm-exact", "svm")
    both = duel(found, "ldm-asgd", "svm-asgd")
    if sum(algorithm) and sum(terms) and sum(both):
        from_algorithm = algorithm[0] >= first[0] > terms[0]
        what = "the five passes of averaged stochastic gradients" if from_algorithm else "no one part alone"
        gains = ", ".join(_gain(found, line, ("svm", "svm-asgd", "ldm-asgd", "ldm-exact")) for line in found.lines)
        judged.append(Verdict("These wins come from the margin terms", "no" if from_algorithm else "in part", (
            f"an SVM by the same gradients has {_counts(algorithm)} against the exact SVM, LDM solved exactly "
            f"{_counts(terms)}, and LDM {_counts(both)} against the SVM with both by gradients. The wins come with "
            f"{what}. Means of SVM, SVM by gradients, LDM by gradients, LDM exact: {gains}."
        ), f"an SVM by the same gradients has {_counts(algorithm)}, LDM solved exactly {_counts(terms)}"))  # fmt: skip
    for rival, counts in printed.items():
        if rival != "svm":
            judged += _counted(found, "ldm-asgd", rival, counts, f"LDM is better than {found.labels[rival]}")
    return judged + _best(found, "ldm-asgd")


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
    judged = [Verdict(f"{label} is better than the others on most data sets", _share(tuple(ours), tuple(printed)), (
        f"wins, ties and losses against all others together are {_counts(ours)}, in print {_counts(printed)}; against "
        f"each, printed in brackets: {each}."
    ), _beside(ours, printed))]  # fmt: skip
    subject = found.experiment.statistics.subject
    return judged + (_best(found, subject) if subject in found.experiment.summary.get("best", ()) else [])


def _accuracies(found: Findings, method: str) -> dict[int, float]:
    """Return the mean accuracy of a method by the number of classes."""
    pairs = ((line.classes, found.entries[line.key, method]) for line in found.experiment.data)
    return {classes: entry.mean for classes, entry in pairs if entry.scores}


def _more_classes(found: Findings, subject: str, few: int, many: int) -> list[Verdict]:
    """How much accuracy is lost from the fewer to the more classes, by the subject and by the others."""
    drops = {}
    for method in (method for method in found.experiment.methods if method.printed):
        means = _accuracies(found, method.key)
        before = [mean for classes, mean in means.items() if classes <= few]
        after = [mean for classes, mean in means.items() if classes >= many]
        if before and after:
            drops[method.key] = np.mean(before) - np.mean(after)
    if subject not in drops or len(drops) < 2:
        return []
    own = drops.pop(subject)
    more = [key for key, drop in drops.items() if drop > own]
    each = ", ".join(f"{found.labels[key]} {drop:.3f}" for key, drop in drops.items())
    label = found.labels[subject]
    claim = f"From class {many} on {label} loses less than the others"
    return [Verdict(claim, _holds(len(more) == len(drops), more), (
        f"from at most {few} to at least {many} classes {label} loses {own:.3f}, the others {each}."
    ))]  # fmt: skip


def _sharper(found: Findings, subject: str, few: int) -> list[Verdict]:
    """Whether the others have more negative margins, and the subject the narrower spread of margins over their mean."""
    lines = [line for line in found.experiment.data if line.classes > few]
    negative, spread = {}, {}
    for method in (method for method in found.experiment.methods if method.printed):
        results = [found.first_splits.get((line.key, method.key)) for line in lines]
        results = [result for result in results if result is not None]
        if results:
            negative[method.key] = np.mean([result.detail["negative"] for result in results])
            spread[method.key] = np.mean(
                [np.std(r.detail["quantiles"]) / np.mean(r.detail["quantiles"]) for r in results]
            )
    if subject not in negative or len(negative) < 2:
        return []
    others = [key for key in negative if key != subject]
    label = found.labels[subject]
    fewer = all(negative[key] > negative[subject] for key in others)
    sharper = all(spread[key] > spread[subject] for key in others)
    each = ", ".join(f"{found.labels[key]} {negative[key]:.3f} and {spread[key]:.2f}" for key in (subject, *others))
    claim = f"With four classes and more the others have negative margins, and {label}'s distribution is sharper"
    return [Verdict(claim, _holds(fewer and sharper, fewer or sharper), (
        f"share of negative margins, and standard deviation over mean, with more than {few} classes: {each}."
    ))]  # fmt: skip


def _seconds(found: Findings, method: str, lines=None) -> dict[str, float]:
    """Return the mean seconds of a method by data set."""
    lines = found.experiment.data if lines is None else lines
    entries = ((line.key, found.entries[line.key, method]) for line in lines)
    return {key: entry.mean for key, entry in entries if entry.scores}


def _ratios(found, method, subject, lines=None):
    """How many times the subject's time a method takes, by data set."""
    own, other = _seconds(found, subject, lines), _seconds(found, method, lines)
    return {key: other[key] / own[key] for key in own if key in other}


def _ldm_times(found: Findings) -> list[Verdict]:
    judged = []
    exact = {key: _ratios(found, "svm-liblinear", key) for key in ("svm-asgd", "ldm-asgd")}
    if all(exact.values()):
        slower = [ratio > 1.0 for ratios in exact.values() for ratio in ratios.values()]
        each = "; ".join(f"{found.labels[key]} {_between(ratios.values())}" for key, ratios in exact.items())
        judged.append(Verdict("Both by gradients are much faster than LIBLINEAR", _holds(all(slower), any(slower)), (
            f"LIBLINEAR takes these times as long as {each}."
        )))  # fmt: skip
    near = _ratios(found, "ldm-asgd", "svm-asgd")
    if near:
        alike = [ratio <= _COMPARABLE for ratio in near.values()]
        claim = "LDM is as fast as the SVM by gradients, or slightly slower"
        judged.append(Verdict(claim, _holds(all(alike), any(alike)), (
            f"LDM takes {_between(near.values())} times the SVM's time, on {len(near)} data sets."
        )))  # fmt: skip
    return judged


def _between(values):
    low, high = _times(min(values)), _times(max(values))
    return low if low == high else f"{low} to {high}"


def _joint_times(found: Findings, joint: list[str], pairwise: list[str], classes: int) -> list[Verdict]:
    """Whether methods that solve one joint problem are the faster ones with many classes."""
    lines = [line for line in found.experiment.data if line.n_classes > classes]
    ratios = {(a, b): _ratios(found, b, a, lines) for a in joint for b in pairwise}
    known = {pair: values for pair, values in ratios.items() if values}
    if not known:
        return []
    faster = [ratio > _COMPARABLE for values in known.values() for ratio in values.values()]
    each = "; ".join(f"{found.labels[b]} {_between(v.values())} times {found.labels[a]}" for (a, b), v in known.items())
    claim = f"With more than {classes} classes {' and '.join(found.labels[key] for key in joint)} are much faster"
    return [Verdict(claim, _holds(all(faster), any(faster)), f"{each}.")]


def _comparable_times(found: Findings, subject: str) -> list[Verdict]:
    others = [method.key for method in found.experiment.methods if method.key != subject]
    ratios = {key: list(_ratios(found, subject, key).values()) for key in others}
    ratios = {key: values for key, values in ratios.items() if values}
    if not ratios:
        return []
    middle = {key: float(np.median(values)) for key, values in ratios.items()}
    alike = [value <= _COMPARABLE for value in middle.values()]
    label = found.labels[subject]
    each = ", ".join(f"{found.labels[key]} {_times(value)}" for key, value in middle.items())
    return [Verdict(f"{label} takes a time comparable to the others", _holds(all(alike), any(alike)), (
        f"in the median {label} takes these times as long as each: {each}."
    ))]  # fmt: skip


def _mamc_table(found: Findings) -> list[Verdict]:
    means = {m: found.average(m) for m in found.methods}
    if {"emamc", "l1-svm", "mamc", "mamc-b", "mamc-bs", "mamc-bsg"} - means.keys() or not found.complete:
        return []
    lead = {"emamc", "l1-svm"} == set(sorted(means, key=means.get)[-2:])
    last = min(means, key=means.get) == "mamc"
    gain = means["mamc-b"] - means["mamc"]
    n = len(found.complete)
    grid = duel(found, "mamc-bs", "mamc-bsg")
    behind = [duel(found, "mamc-bs", key) for key in ("emamc", "l1-svm")]
    alike = _counts_alike(grid)
    worse = all(losses > wins for wins, _, losses in behind)
    claims = (
        "EMAMC and the L1 SVM are the best on average, MAMC is the worst",
        "MAMC_bs and MAMC_bsg are alike, and worse than EMAMC and the L1 SVM",
    )
    return [
        Verdict(claims[0], _holds(lead and last, lead or last), (
            f"averages over {n} data sets are EMAMC {means['emamc']:.3f}, L1 SVM {means['l1-svm']:.3f}, MAMC_bs "
            f"{means['mamc-bs']:.3f}, MAMC_b {means['mamc-b']:.3f}, MAMC {means['mamc']:.3f}."
        )),
        Verdict(claims[1], _holds(alike and worse, alike or worse), (
            f"MAMC_bs has {_counts(grid)} wins, ties and losses against MAMC_bsg (printed 1/11/1), "
            f"{_counts(behind[0])} against EMAMC (1/4/8) and {_counts(behind[1])} against the L1 SVM (2/3/8)."
        )),
        Verdict("The bias improves MAMC drastically, the slope little", "yes" if gain > 0.05 else "no", (
            f"the optimal bias raises MAMC's average by {gain:.3f}, the slope adds "
            f"{means['mamc-bs'] - means['mamc-b']:+.3f}."
        )),
        *_ends_of_lines(found),
    ]  # fmt: skip


def _counts_alike(counts):
    return counts[1] >= 0.75 * sum(counts)


def _ends_of_lines(found: Findings) -> list[Verdict]:
    """The rows of the table that count on how many data sets each method is the best and the worst."""
    judged = []
    is_time = found.experiment.kind == "time"
    for name, word in (("best", "fastest" if is_time else "best"), ("worst", "slowest" if is_time else "worst")):
        printed = found.experiment.summary[name]
        ours = {key: best_on(found, key, worst=name == "worst") for key in printed}
        if not all(n for _, n in ours.values()):
            continue
        first, first_printed = max(ours, key=lambda key: ours[key][0]), max(printed, key=printed.get)
        each = ", ".join(f"{found.labels[key]} {ours[key][0]} ({count})" for key, count in printed.items())
        claim = f"{found.labels[first_printed]} is most often the {word}"
        judged.append(Verdict(claim, _holds(first == first_printed, False), (
            f"on so many of {ours[first][1]} data sets each is the {word}, printed in brackets: {each}."
        ), f"{found.labels[first]} is, on {ours[first][0]} of {ours[first][1]}"))  # fmt: skip
    return judged


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
    claim = "MAMC is the fastest, MAMC_b and MAMC_bs comparable, MAMC_bsg slower"
    quick = Verdict(claim, _holds(all(claims), any(claims)), (
        f"averages are {each}: {names[fastest]} is the fastest, MAMC_b and MAMC_bs take "
        f"{mean['mamc-b'] / mean['mamc']:.1f} and {mean['mamc-bs'] / mean['mamc']:.1f} times MAMC's time, MAMC_bsg "
        f"{'more' if more else 'no more'} than MAMC_bs."
    ))  # fmt: skip
    slow = sorted(mean, key=mean.get)[-3:]
    apart = mean["mamc-bsg"] < 0.5 * min(mean["emamc"], mean["l1-svm"])
    alike = set(slow) == {"emamc", "l1-svm", "mamc-bsg"} and not apart
    shares = ", but MAMC_bsg is far from the other two: its search here shares the sums over the classes"
    claim = "EMAMC, the L1 SVM and MAMC_bsg are the slowest"
    groups = Verdict(claim, _holds(alike, set(slow[1:]) == {"emamc", "l1-svm"}), (
        f"the slowest are {names[slow[2]]}, {names[slow[1]]} and {names[slow[0]]}{shares if apart else ''}."
    ))  # fmt: skip
    return [quick, groups, *_ends_of_lines(found)]


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
            less = {"updates": "with fewer updates", "time": "in less time"}[words]
            claim = f"{names[first]} converges {less} than {names[second]}"
            judged.append(Verdict(claim, _holds(min(ratios) > 1, max(ratios) > 1), reason))
    return judged


def _times(ratio):
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:,.0f}"


def _pumma_table(found: Findings) -> list[Verdict]:
    judged = []
    for rival, is_slower in (("romma", True), ("micra", False), ("svm-light", False)):
        ratios = list(_ratios(found, rival, "pumma").values())
        if ratios:
            slower = sum(ratio > 1 for ratio in ratios)
            agree = slower if is_slower else len(ratios) - slower
            claim = f"{found.labels[rival]} is {'slower' if is_slower else 'faster'} than PUMMA"
            judged.append(Verdict(claim, _holds(agree == len(ratios), agree), (
                f"{found.labels[rival]} takes {_between(ratios)} times PUMMA's time; it is slower on {slower} of "
                f"{len(ratios)} data sets."
            )))  # fmt: skip
    rough = list(_ratios(found, "pumma-rough", "svm-light").values())
    if rough:
        margins = [_margin_share(found, line, "pumma-rough", "svm-light") for line in found.experiment.data]
        margins = [share for share in margins if share is not None]
        alike = [ratio <= _COMPARABLE for ratio in rough]
        claim = "With δ = .1 PUMMA's time is comparable to SVM^light's, with lower margins"
        judged.append(Verdict(claim, _holds(all(alike), any(alike)), (
            f"it takes {_between(rough)} times as long, and reaches {min(margins):.3f} to {max(margins):.3f} of the "
            "margin."
        )))  # fmt: skip
    return judged


def _margin_share(found, line, method, other):
    """Return a method's margin over another's on the first split, where both are known."""
    pair = [found.first_splits.get((line.key, key)) for key in (method, other)]
    if None in pair or any(result.detail.get("margin") is None for result in pair):
        return None
    return pair[0].detail["margin"] / pair[1].detail["margin"]


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
            claim = f"{names[subject]} has larger margins than {names[other]}, {reading}"
            judged.append(Verdict(claim, _holds(right >= 0.75 * n, right > left), (
                f"on {right} of {n} data sets the curve of {names[subject]} lies right of "
                f"that of {names[other]} (larger at more than half of the quantiles), on {left} to the left, "
                f"and on {n - right - left} the two are alike."
            ), f"larger on {right} of {n} data sets, smaller on {left}, alike on {n - right - left}"))  # fmt: skip
    return judged


def _side(curve, other):
    apart = curve - other
    tolerance = _ALIKE * (other[-6] - other[5])  # of the middle nine tenths of 101 levels
    return int(np.mean(apart > tolerance) > 0.5) - int(np.mean(apart < -tolerance) > 0.5)


def _influence(found: Findings) -> list[Verdict]:
    judged = []
    for key, label in found.labels.items():
        ranges = {name: np.ptp(curve) for name, (_, curve) in found.influences.items() if name[0] == key}
        if not ranges:
            continue
        middle, most = float(np.median(list(ranges.values()))), max(ranges, key=ranges.get)
        line = found.experiment.dataset(most[2]).printed
        claim = f"{label} is not very sensitive to its parameters"
        judged.append(Verdict(claim, _holds(ranges[most] < 0.02, middle < 0.01), (
            f"over a parameter's grid its mean accuracy moves by {middle:.4f} in the median, and by {ranges[most]:.4f} "
            f"at most ({most[1]}, {line})."
        )))  # fmt: skip
    return judged


# A rule reads the findings and the experiment's ``verdict`` table, whose "rule" is the name here.
_RULES: dict[str, Callable[..., list[Verdict]]] = {
    "ldm-against-svm": _ldm_table,
    "ldm-by-gradients": _ldm_by_gradients,
    "curves-right-of": _right_of,
    "insensitive": _influence,
    "more-classes": _more_classes,
    "sharper-margins": _sharper,
    "ldm-times": _ldm_times,
    "joint-times": _joint_times,
    "comparable-times": _comparable_times,
    "mamc-accuracy": _mamc_table,
    "mamc-times": _mamc_times,
    "pumma-cost": _pumma_figure,
    "pumma-times": _pumma_table,
    "against-all": _against_all,
}
