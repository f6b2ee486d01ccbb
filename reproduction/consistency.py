r"""Do the papers' tables agree with themselves? Every disagreement as a sentence computed from the printed numbers.

Printed numbers are rounded, so each stands for an interval of one unit of its last digit, and a disagreement is
reported only if no numbers in these intervals agree. Tests of significance are bounded in the same way: of a paired
t-test over n splits the table gives both means and standard deviations but not the correlation, so the standard
deviation of the differences lies between :math:`|s_1 - s_2|` and :math:`s_1 + s_2`; a win is certain if the larger one
still makes it significant and possible if the smaller one does. Welch's test needs no correlation.
"""

from itertools import combinations
from math import ceil, floor, inf, sqrt

from scipy.stats import t as student

from reproduction.declarations import Experiment, Printed, experiments


def inconsistencies(experiment: Experiment | None = None) -> tuple[str, ...]:
    """Return what disagrees within the printed tables.

    Parameters
    ----------
    experiment : Experiment or None, default=None
        The table to look at; None is all of them.

    Returns
    -------
    tuple of str
        One sentence per disagreement, starting with the id of the experiment; empty if there is none.

    Examples
    --------
    >>> from reproduction.declarations import experiments
    >>> for sentence in inconsistencies(experiments()["msvmav-table-2"])[:1]:
    ...     print(sentence)
    msvmav-table-2: the marks of MAMC give 16/3/1 wins, ties and losses of MSVMAv, the paper prints 17/2/1.
    """
    chosen = experiments().values() if experiment is None else [experiment]
    checks = (
        _averages,
        _ranks,
        _counts_of_marks,
        _counts_of_tests,
        _extremes,
        _bold,
        _marks,
        _spreads,
        _fractions,
        _twins,
        _margins,
    )
    return tuple(f"{one.id}: {sentence}" for one in chosen for check in checks for sentence in check(one))


def significance(first: Printed, second: Printed, n: int, test: str, level: float = 0.95) -> tuple[int, int]:
    """Bound the outcome of a test between two printed results: +1 the first is better, -1 worse, 0 no difference.

    Returns the least and the greatest outcome that the rounded numbers allow.
    """
    if first.status != "number" or second.status != "number":
        return (-1, 1)
    slack = (first.resolution + second.resolution) / 2
    low, high = first.mean - second.mean - slack, first.mean - second.mean + slack
    s, u = first.std, second.std
    if test == "welch":
        widest = sqrt(((s + first.resolution / 2) ** 2 + (u + second.resolution / 2) ** 2) / n)
        narrowest = sqrt((max(s - first.resolution / 2, 0) ** 2 + max(u - second.resolution / 2, 0) ** 2) / n)
        quotient = (s * s + u * u) ** 2 / (s**4 + u**4) if s + u else 1.0
        degrees = (n - 1) * quotient
    else:
        widest, narrowest = (s + u + slack) / sqrt(n), max(abs(s - u) - slack, 0.0) / sqrt(n)
        degrees = n - 1
    needed = student.ppf((1 + level) / 2, degrees)

    def outcome(difference, error):
        ratio = inf if error == 0 else abs(difference) / error
        if difference == 0 or ratio < needed:
            return 0
        return 1 if difference > 0 else -1

    seen = [outcome(difference, error) for difference in (low, high) for error in (widest, narrowest)]
    if low <= 0 <= high:
        seen.append(0)
    return min(seen), max(seen)


def _outcomes(experiment, data, first, second):
    """Bound the outcome of the paper's own test between two results on a data set."""
    rule = experiment.statistics
    return significance(first, second, experiment.n_splits(data), rule.test, rule.level)


def _rows(experiment, measure=None):
    """Yield (data set key, {method key: Printed}) for the lines of a table."""
    table = experiment.printed.get(measure or next(iter(experiment.printed), ""), {})
    for data in experiment.data:
        line = {m.key: table[data.key, m.key] for m in experiment.methods if (data.key, m.key) in table}
        if line:
            yield data.key, line


def _averages(experiment):
    for key, printed in experiment.summary.get("average", {}).items():
        cells = [line[key] for _, line in _rows(experiment) if line[key].status == "number"]
        average = sum(cell.mean for cell in cells) / len(cells)
        slack = printed.resolution / 2 + sum(cell.resolution for cell in cells) / (2 * len(cells))
        if abs(average - printed.mean) > slack + 1e-9:
            yield (
                f"the printed numbers of {experiment.method(key).label} have the average {average:.4f}, the paper "
                f"prints {printed.mean:.4f}."
            )


def _ranks(experiment):
    for key, printed in experiment.summary.get("average-rank", {}).items():
        least = most = 0.0
        lines = list(_rows(experiment))
        for _, line in lines:
            others = [other for name, other in line.items() if name != key]
            least += 1 + sum(_above(other, line[key], certain=True) for other in others)
            most += 1 + sum(_above(other, line[key], certain=False) for other in others)
        least, most = least / len(lines), most / len(lines)
        if not least - printed.resolution / 2 <= printed.mean <= most + printed.resolution / 2:
            yield (
                f"the average rank of {experiment.method(key).label} lies between {least:.2f} and {most:.2f}, however "
                f"ties and missing results are ranked; the paper prints {printed.text}."
            )


def _above(first, second, *, certain):
    """Whether the first result ranks above the second, given rounding and ties; missing results come last."""
    if first.status != "number":
        return not certain and second.status != "number"
    if second.status != "number":
        return True
    slack = (first.resolution + second.resolution) / 2
    difference = first.mean - second.mean
    return difference >= slack - 1e-9 if certain else difference > -slack + 1e-9


def _counts_of_marks(experiment):
    statistics = experiment.statistics
    for key, printed in experiment.summary.get("win-tie-loss", {}).items():
        if statistics.bullet and statistics.reference in (statistics.subject, key):
            marked, sign = (key, -1) if statistics.reference == statistics.subject else (statistics.subject, 1)
            seen = [sign * line[marked].better for _, line in _rows(experiment) if line[marked].better is not None]
            counts = (seen.count(1), seen.count(0), seen.count(-1))
            if counts != printed:
                yield (
                    f"the marks of {experiment.method(marked).label} give {_slashes(counts)} wins, ties and losses of "
                    f"{experiment.method(statistics.subject).label}, the paper prints {_slashes(printed)}."
                )


def _counts_of_tests(experiment):
    statistics = experiment.statistics
    for key, printed in experiment.summary.get("win-tie-loss", {}).items():
        bounds = [
            _outcomes(experiment, data, line[statistics.subject], line[key])
            for data, line in _rows(experiment)
            if line[key].status == "number"
        ]
        for place, word, value in ((0, "wins", 1), (2, "losses", -1)):
            certain = sum(bound == (value, value) for bound in bounds)
            possible = sum(value in bound for bound in bounds)
            missing = sum(line[key].status != "number" for _, line in _rows(experiment))
            if not certain <= printed[place] <= possible + missing * (place == 0):
                yield (
                    f"the means and standard deviations allow {certain} to {possible} {word} of "
                    f"{experiment.method(statistics.subject).label} against {experiment.method(key).label}, the paper "
                    f"prints {printed[place]}."
                )


def _extremes(experiment):
    lost = any(cell.status == "illegible" for _, line in _rows(experiment) for cell in line.values())
    doubt = "; some numbers of this table are illegible in the text at hand" if lost else ""
    for name, sign in (("best", 1), ("worst", -1)):
        if experiment.kind == "time":
            sign = -sign
        for key, printed in experiment.summary.get(name, {}).items():
            alone = among = 0
            for _, line in _rows(experiment):
                others = [sign * cell.mean for k, cell in line.items() if k != key and cell.status == "number"]
                complete = all(cell.status != "illegible" for cell in line.values())
                if line[key].status == "illegible":
                    among += 1
                elif line[key].status == "number":
                    alone += complete and sign * line[key].mean > max(others)
                    among += sign * line[key].mean >= max(others)
            if not alone <= printed <= among:
                yield (
                    f"{experiment.method(key).label} is {name} on {_range(alone, among)} of {len(experiment.data)} "
                    f"lines (ties counted or not), the paper says {printed}{doubt}."
                )


def _bold(experiment):
    if not any(cell.bold for _, line in _rows(experiment) for cell in line.values()):
        return
    for data, line in _rows(experiment):
        best = max(cell.mean for cell in line.values() if cell.status == "number")
        bold = [key for key, cell in line.items() if cell.bold]
        if not bold or any(line[key].mean < best for key in bold):
            yield f"on {data} the best accuracy is {best:.3f}, and the bold one is {', '.join(bold) or 'none'}."


def _marks(experiment):
    """Marks that the printed means and standard deviations contradict."""
    statistics = experiment.statistics
    if not statistics.bullet:
        return
    words = {1: "better", 0: "no different", -1: "worse"}
    for data, line in _rows(experiment):
        reference = line[statistics.reference]
        for key, cell in line.items():
            if cell.better is None or cell.status != "number":
                continue
            least, greatest = _outcomes(experiment, data, cell, reference)
            if not least <= cell.better <= greatest:
                test = "Welch's test" if statistics.test == "welch" else "a paired t-test"
                yield (
                    f"on {data} {experiment.method(key).label} ({cell.text}) is marked as {words[cell.better]} than "
                    f"{experiment.method(statistics.reference).label} ({reference.text}), which {test} on "
                    f"{experiment.n_splits(data)} splits excludes."
                )


def _spreads(experiment):
    """Standard deviations too small for random test parts: a fixed classifier's accuracy varies more than that."""
    plan = experiment.splits
    n_cells = 0
    small = []  # standard deviations
    for _, n_test, cell in _random_parts(experiment):
        expected = sqrt(cell.mean * (1 - cell.mean) / n_test * plan.train)
        n_cells += 1
        if cell.std + cell.resolution / 2 < expected / 2:
            small.append(cell.std)
    if len(small) > n_cells / 10:
        yield (
            f"{len(small)} of {n_cells} standard deviations are less than half of what independent random test parts "
            f"give even for a fixed classifier ({small.count(0)} are zero), so the {plan.number} partitions share test "
            f"rows or the deviations are not taken over them."
        )


def _fractions(experiment):
    """Accuracies without any deviation that are no whole fraction of a test part of the printed size."""
    for (data, key), n_test, cell in _random_parts(experiment):
        if cell.std != 0:
            continue
        sizes = sorted({floor(n_test), ceil(n_test)})
        if min(abs(round(cell.mean * size) / size - cell.mean) for size in sizes) > cell.resolution / 2 + 1e-9:
            yield (
                f"on {data} the accuracy {cell.text} of {experiment.method(key).label} is the same in every split, "
                f"yet no whole fraction of {' or '.join(map(str, sizes))} test rows, so the printed number "
                f"of rows, {experiment.dataset(data).shape[0]}, is wrong."
            )


def _random_parts(experiment):
    """Yield (data set key, method key), the size of the test parts and the accuracy, where the parts are random."""
    plan = experiment.splits
    if plan.kind != "random" or experiment.kind != "accuracy":
        return
    for data, line in _rows(experiment):
        n_test = experiment.dataset(data).shape[0] * (1 - plan.train)
        for key, cell in line.items():
            if cell.status == "number":
                yield (data, key), n_test, cell


def _twins(experiment):
    """Pairs of methods with the same digits of mean and standard deviation on three lines or more."""
    for first, second in combinations([m.key for m in experiment.methods], 2):
        lines = [
            data
            for data, line in _rows(experiment)
            if first in line
            and second in line
            and line[first].status == line[second].status == "number"
            and line[first].std
            and line[first].resolution < 5e-4
            and (line[first].mean, line[first].std) == (line[second].mean, line[second].std)
        ]
        if len(lines) >= 3:
            yield (
                f"{experiment.method(first).label} and {experiment.method(second).label} have the same mean and "
                f"standard deviation, to the last digit, on {', '.join(lines)}."
            )


def _margins(experiment):
    """PUMMA's table against its own guarantee and its own text."""
    delta = experiment.settings.get("delta")
    if "margin" not in experiment.printed or delta is None:
        return
    for data, line in _rows(experiment, "margin"):
        best = max(line.values(), key=lambda cell: cell.mean)
        for key in ("pumma", "romma"):
            if line[key].mean + line[key].resolution / 2 < (1 - delta) * (best.mean - best.resolution / 2):
                yield (
                    f"on {data} {experiment.method(key).label}'s margin {line[key].text} is "
                    f"{line[key].mean / best.mean:.3f} of the best one in the line, below the guaranteed "
                    f"{1 - delta:g}."
                )
    for data, line in _rows(experiment, "seconds"):
        fastest = min(line, key=lambda key: line[key].mean)
        if fastest != "svm-light":
            yield (
                f"on {data} {experiment.method(fastest).label} ({line[fastest].text} s) is faster than SVM^light "
                f"({line['svm-light'].text} s), which the text calls the fastest on all the real data sets."
            )


def _slashes(counts):
    return "/".join(map(str, counts))


def _range(low, high):
    return str(low) if low == high else f"{low} to {high}"
