"""The page of the study: the answer first, then what it rests on."""

from collections import Counter
from collections.abc import Sequence
from math import log10
from pathlib import Path
from statistics import median

import numpy as np

from margindist.runs.store import Result
from reproduction.blocks import Block, section
from reproduction.declarations import Experiment
from reproduction.figures import figure_file, ranks_diagram
from reproduction.study import LINEAR, RBF, YARDSTICKS, declaration
from reproduction.study_findings import (
    ALIKE,
    MEASURES,
    SURE,
    Findings,
    adjusted,
    means_without_one,
    rivals,
    turning_sets,
)

_MARGIN_TERMS = ("ldm", "odm", "msvmav", "mamc", "lssvm", "komd", "fmm")
_KINDS = {"linear": "Linear", "rbf": "RBF kernel"}
_DRAWN = {"ldm": "LDM", "odm": "ODM", "msvmav": "MSVMAv", "lssvm": "LS-SVM"}
_MOST_AT_THE_EDGE = 0.1
_HOW_CHOSEN = (
    "Methods of a kind have as many points, and their prices as many decades. With the RBF kernel a price goes in "
    "steps of 10 and a width in steps of its root: wide kernels are nearly linear, where the next width with the next "
    "price is nearly the same machine, so that grids end where little new would come. Of points with the same "
    "cross-validation score, the one nearest to their middle is chosen, in steps of the grid: the first would be at "
    "an end of every axis, and which end would hang on how a price is written down. Ranges were widened, or moved, "
    "where choices met an end too often; who wins played no part in that."
)
_COLOURS = ("#0072b2", "#009e73", "#cc79a7", "#d55e00")


def study_page(chosen: Sequence[Experiment], results: Sequence[Result], folder: Path) -> list[Block]:
    """Return the page of the study, and draw its figures into a folder."""
    by_condition: dict[str, list[Result]] = {}
    for result in results:
        by_condition.setdefault(result.cell.experiment, []).append(result)
    found = {one.id: Findings(one, by_condition[one.id]) for one in chosen if one.id in by_condition}
    tuned = {key: one for key, one in found.items() if one.experiment.kind == "tuned" and one.done}
    searches = tuned.pop("study-searches", None)
    main, untuned = tuned.get("study-main"), found.get("study-defaults")
    blocks = [Block("heading", (1, "Where margin terms help"))]
    if tuned:
        blocks += _answer(tuned, folder) + section("Condition by condition", *_difference_tables(tuned))
    if untuned is not None and untuned.done:
        blocks += _untuned_blocks(found)
    if searches is not None:
        blocks += _search_blocks(searches)
    if main is not None:
        blocks += _measure_blocks(main) + _test_blocks(main) + _rank_blocks(main, folder)
    if tuned:
        blocks += _turning_blocks(tuned) + _budget_blocks(tuned)
    return blocks + _data_blocks(found) + _missing_blocks(chosen, found) + _command_blocks(found)


# ---------------------------------------------------------------------- the answer


def _contrasts(tuned, kernel, methods=None):
    """Differences to the SVM of the kind, by condition and method; those with no common cell are left out."""
    reference, others = rivals(kernel)
    for one in tuned.values():
        for method in others:
            if (methods is None or method.removesuffix("-rbf") in methods) and method in one.labels:
                contrast = one.contrast(method, reference)
                if contrast.differences:
                    yield one, contrast


def _answer(tuned, folder):
    judged = [(one, c) for kernel in _KINDS for one, c in _contrasts(tuned, kernel, _MARGIN_TERMS)]
    counts = Counter(contrast.verdict for _, contrast in judged)
    where = f"In {counts['better']} of {len(judged)} comparisons" if counts["better"] else "Nowhere"
    blocks = [
        Block("text", (
            f"{where}, as far as this study can show. A comparison sets a method with margin terms beside a "
            f"support vector machine with the same kernel, tuned as carefully, under one of {len(tuned)} conditions. "
            f"The method was better in {counts['better']} of {len(judged)}, practically alike in {counts['alike']} "
            f"and worse in {counts['worse']}. The other {counts['open']} stay open: their data do not decide."
        )),
        *_in_short(tuned),
        *_pictures(tuned, folder),
        Block("text", (
            "Every method, the SVM (hinge loss) included, chose its parameters by cross-validation within the "
            'training part, from a grid of the same size. "Better" and "worse" have a probability above '
            f'{SURE:.0%} by a Bayesian signed-rank test; so has "practically alike", a difference of at most '
            f"{100 * ALIKE:g} point of accuracy."
        )),
    ]  # fmt: skip
    better = [
        f"{one.labels[c.method]}, {one.experiment.title}: {_points(c)}." for one, c in judged if c.verdict == "better"
    ]
    if better:
        blocks += [Block("text", "Better, in points of the score with a 95 % interval:"), Block("list", better)]
    return blocks


def _in_short(tuned):
    """A small table of the best-known methods on the data as they come."""
    main = tuned.get("study-main")
    if main is None:
        return []
    rows = []
    for key, label in _DRAWN.items():
        contrasts = [main.contrast(f"{key}{ending}", f"svm{ending}") for ending in ("", "-rbf")]
        rows.append([label, *(_points(contrast) if contrast.differences else "–" for contrast in contrasts)])
    n_sets = len(main.contrast("ldm", "svm").differences)
    caption = (
        f"On {n_sets} data sets as they come: accuracy less that of the SVM, in points, with a 95 % interval over data "
        "sets."
    )
    return [Block("table", (["method", *_KINDS.values()], rows), caption)]


def _points(contrast):
    """A mean difference in hundredths, with its interval."""
    if np.isnan(contrast.low):
        return f"{_signed(contrast.mean)}"
    return f"{_signed(contrast.mean)} [{_signed(contrast.low)},\N{NO-BREAK SPACE}{_signed(contrast.high)}]"


def _signed(value):
    return f"{100 * value:+.1f}".replace("-", "−")


def _difference_tables(tuned):
    blocks = []
    for kernel, title in _KINDS.items():
        reference, others = rivals(kernel)
        labels = next(iter(tuned.values())).labels
        header = ["condition", *(_short(labels[m]) for m in others if m in labels)]
        rows = []
        for one in tuned.values():
            rows.append(_difference_row(one.experiment.title, one, reference, others, None))
            if one.experiment.id == "study-main":
                for measure in ("shifted", "rescaled"):
                    rows.append(_difference_row(MEASURES[measure].partition(", ")[2], one, reference, others, measure))
        caption = (
            f"{title}: mean over data sets of the accuracy less that of the SVM, in points, with Student's 95 % "
            "interval over data sets; * where better or worse has a probability above 95 %. Where the classes are "
            "unequal it is the balanced accuracy, by which the parameters were chosen there."
        )
        blocks.append(Block("table", (header, rows), caption))
    return blocks


def _short(label):
    return label.removesuffix(", RBF").replace("SVM, squared hinge", "squared hinge")


def _difference_row(title, one, reference, others, measure):
    row = [title]
    for method in others:
        contrast = one.contrast(method, reference, measure) if method in one.labels else None
        if contrast is None or not contrast.differences:
            row.append("–")
        else:
            row.append(_points(contrast) + ("*" if contrast.verdict in ("better", "worse") else ""))
    return row


def _pictures(tuned, folder):
    with figure_file(folder / "study.svg") as (path, plt):
        figure, panels = plt.subplots(1, 2, figsize=(7.4, 0.9 + 0.36 * len(tuned)), sharey=True, sharex=True)
        for axes, kernel in zip(panels, _KINDS, strict=True):
            _draw_differences(axes, tuned, kernel)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(_DRAWN), frameon=False
        )
    caption = (
        "The same under every condition: mean and 95 % interval over data sets. Within the grey band, methods are "
        "practically alike."
    )
    return [Block("figure", path, caption)]


def _draw_differences(axes, tuned, kernel):
    reference, others = rivals(kernel)
    axes.axvspan(-100 * ALIKE, 100 * ALIKE, color="0.92", linewidth=0)
    axes.axvline(0.0, color="0.4", linewidth=0.7)
    for place, (key, colour) in enumerate(zip(_DRAWN, _COLOURS, strict=True)):
        method = next(other for other in others if other.removesuffix("-rbf") == key)
        contrasts = [one.contrast(method, reference) for one in tuned.values()]
        heights = -np.arange(len(contrasts)) + 0.27 - 0.18 * place
        means = 100 * np.array([contrast.mean for contrast in contrasts])
        ends = 100 * np.array([[c.mean - c.low, c.high - c.mean] for c in contrasts]).T
        axes.errorbar(means, heights, xerr=ends, fmt="o", markersize=2.5, linewidth=1, color=colour, label=_DRAWN[key])
    axes.set(title=_KINDS[kernel], xlabel="points of accuracy", xlim=(-8, 8))
    axes.set_yticks(-np.arange(len(tuned)), [one.experiment.title for one in tuned.values()])


# ---------------------------------------------------------------------- untuned


def _untuned_blocks(found):
    """Defaults beside other candidates, and scikit-learn's own; the same with more rows."""
    untuned = found["study-defaults"]
    blocks = section(
        "What to call by default",
        Block("text", (
            "Fitted once, without a search, to standardised features (sparse ones divided by their largest value), "
            "beside scikit-learn's LinearSVC() and SVC() as they come. Lambdas of LDM are in units of C times the "
            "number of rows m, with C = 1, but for those called as the paper. A default would change if another "
            f"candidate were better than it by more than {100 * ALIKE:g} point with a probability above {SURE:.0%} "
            "for one kernel and not worse for the other."
        )),
        _defaults_table(untuned),
    )  # fmt: skip
    for kernel, reference in (("linear", "linearsvc"), ("rbf", "svc")):
        blocks.append(_untuned_table(untuned, kernel, reference, _KINDS[kernel]))
    larger = found.get("study-defaults-5000")
    if larger is not None and larger.done:
        blocks.append(_untuned_table(larger, "linear", "linearsvc", "Linear, up to 5,000 training rows"))
    return blocks


def _defaults_table(untuned):
    """Each default, and the best of the candidates that could take its place."""
    header = [
        "classifier",
        "kernel",
        "default",
        "less scikit-learn's",
        "best candidate",
        "less the default",
        "better with probability",
    ]
    rows = []
    for name, default in declaration()["defaults"].items():
        for ending, kernel, reference in (("", "linear", "linearsvc"), ("-rbf", "rbf", "svc")):
            own = f"{default}{ending}"
            family = [
                key
                for key in untuned.labels
                if key.split("-")[0] == default.split("-")[0] and key.endswith("-rbf") == bool(ending)
            ]
            best = max(family, key=lambda key: untuned.mean(key, "accuracy", untuned.complete(family)))
            gain = untuned.contrast(best, own)
            rows.append([
                name, kernel, untuned.labels[own].partition(", ")[2], _points(untuned.contrast(own, reference)),
                untuned.labels[best].partition(", ")[2], _points(gain), f"{gain.posterior.better:.2f}",
            ])  # fmt: skip
    sure = sum(float(row[-1]) > SURE for row in rows)
    caption = (
        f"Differences of accuracy in points, with 95 % intervals. Defaults that a candidate surely beats: {sure} of "
        f"{len(rows)}. Bear in mind that the best of many candidates looks better than it is."
    )
    return Block("table", (header, rows), caption)


def _untuned_table(untuned, kernel, reference, title):
    rbf = kernel == "rbf"
    keys = [reference, *(key for key in untuned.labels if key.endswith("-rbf") == rbf and "svc" not in key)]
    kept = untuned.complete(keys)
    rows = []
    for key in sorted(keys, key=lambda key: -untuned.mean(key, "accuracy", kept)):
        means = [f"{untuned.mean(key, measure, kept):.4f}" for measure in ("accuracy", "balanced")]
        difference = "–" if key == reference else _points(untuned.contrast(key, reference))
        rows.append([untuned.labels[key], *means, difference])
    header = ["untuned", "accuracy", "balanced", f"less {untuned.labels[reference]}"]
    about = f"{title}: means over the {len(kept)} data sets that all have; the last column in points."
    return Block("table", (header, rows), about)


def _search_blocks(searches):
    """The default grids of the searches, before the study and now."""
    header = [
        "search",
        "kernel",
        "points before",
        "now",
        "accuracy before",
        "now",
        "difference",
        "alike",
        "better",
        "seconds before",
        "now",
    ]
    rows = []
    for name in ("ldm", "odm"):
        for ending, kernel in (("", "linear"), ("-rbf", "rbf")):
            before, now = f"{name}-paper-grid{ending}", f"{name}-wide-grid{ending}"
            kept, gain = searches.complete([before, now]), searches.contrast(now, before)
            rows.append([
                f"{name.upper()}ClassifierCV", kernel,
                *(str(_n_points(searches.experiment.method(key))) for key in (before, now)),
                *(f"{searches.mean(key, 'accuracy', kept):.4f}" for key in (before, now)), _points(gain),
                *(f"{share:.2f}" for share in gain.posterior[1:]),
                *(f"{_mean_seconds(searches, key):.2f}" for key in (before, now)),
            ])  # fmt: skip
    caption = (
        f"Means over {len(kept)} data sets; difference in points with a 95 % interval; seconds of processor time for "
        'a search. Before: the papers\' grids, which stay as grid="paper". Now: C or lam over six decades, lam in '
        "units of the number of rows, LDM's lambdas in units of C times the number of rows and 0 among them. Neither "
        'searches the width, gamma="scale" is the default of both; gammas=... does. '
        "LSSVMClassifierCV and MSVMAvClassifierCV keep theirs, over six decades."
    )
    return section("What to search by default", Block("table", (header, rows), caption))


def _n_points(method):
    return int(np.prod([len(axis.values) for axis in method.grid])) if method.grid else 1


def _mean_seconds(one, key):
    return float(np.mean([result.detail["search_seconds"] for result in one.done if result.cell.method == key]))


# ---------------------------------------------------------------------- as they come


def _measure_blocks(main):
    blocks = []
    for kernel, title in _KINDS.items():
        reference, others = rivals(kernel)
        header = ["score", *(_short(main.labels[method]) for method in others)]
        rows = [_difference_row(name, main, reference, others, measure) for measure, name in MEASURES.items()]
        blocks.append(Block("table", (header, rows), (
            f"{title}: every score less that of the SVM, times 100, the log-loss with its sign turned so that larger "
            "is better throughout."
        )))  # fmt: skip
    about = (
        "Stability: fitted to two halves of the training part, with the parameters chosen on all of it, how far do "
        "the scores of the test rows agree (correlation)? Log-loss: after Platt's sigmoid, fitted by "
        "cross-validation within the training part; trees have their own probabilities."
    )
    return section("Other scores, data as they come", Block("text", about), *blocks)


def _test_blocks(main):
    header = [
        "against the SVM",
        "data sets",
        "difference",
        "worse",
        "alike",
        "better",
        "wins/ties/losses",
        "Wilcoxon p",
        "Holm p",
        "one set left out",
    ]
    rows = []
    for kernel in _KINDS:
        reference, others = rivals(kernel)
        contrasts = [c for c in (main.contrast(method, reference) for method in others) if c.differences]
        for contrast, p_value in zip(contrasts, adjusted(contrasts), strict=True):
            least, most = means_without_one(contrast)
            label = f"{main.labels[contrast.method]}" + (" (against RBF)" if contrast.method in YARDSTICKS else "")
            rows.append([
                label, str(len(contrast.differences)), _points(contrast),
                *(f"{share:.2f}" for share in contrast.posterior), "/".join(map(str, contrast.counts)),
                _p(contrast.p_value), _p(p_value), f"{_signed(least)} to {_signed(most)}",
            ])  # fmt: skip
    caption = (
        f"Worse, alike, better: probabilities by the Bayesian signed-rank test, alike within {100 * ALIKE:g} point. "
        "Wins, ties and losses: corrected resampled t-tests within data sets, at 95 %, on those with two splits or "
        "more. Wilcoxon's signed-rank test is over data sets, Holm's adjustment over the methods of a kernel."
    )
    return section("How sure", Block("table", (header, rows), caption))


def _p(value):
    return "–" if np.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _rank_blocks(main, folder):
    blocks = []
    for kernel, title in _KINDS.items():
        methods = LINEAR if kernel == "linear" else (*RBF, *YARDSTICKS)
        ranking = main.ranking([method for method in methods if main.complete([method])])
        if ranking is None:
            continue
        with figure_file(folder / f"study-ranks-{kernel}.svg") as (path, plt):
            ranks_diagram(plt, ranking.ranks, main.labels, ranking.critical_difference, ranking.n_datasets)
        blocks.append(Block("figure", path, (
            f"{title}: average ranks by accuracy (1 is best) over the {ranking.n_datasets} data sets that all have; a "
            "bar joins methods that Nemenyi's test does not tell apart. Friedman's test: p "
            f"{'' if ranking.p_value < 0.001 else '= '}{_p(ranking.p_value)}."
        )))  # fmt: skip
    return section("Ranks", *blocks) if blocks else []


# ---------------------------------------------------------------------- what it rests on


def _turning_blocks(tuned):
    """Which verdicts a single data set can turn."""
    items, n_held = [], 0
    for kernel in _KINDS:
        for one, contrast in _contrasts(tuned, kernel, _MARGIN_TERMS):
            if contrast.verdict == "open" or len(contrast.differences) < 3:
                continue
            turning = turning_sets(contrast)
            n_held += not turning
            if turning:
                label, title = one.labels[contrast.method], one.experiment.title
                items.append(f"{label}, {title}: {contrast.verdict} needs {', '.join(turning)}.")
    text = (
        f"Verdicts (better, worse, alike) were found again with every single data set left out: {n_held} stay "
        f"whichever set is missing, {len(items)} do not{':' if items else '.'}"
    )
    return section("What would have changed it", Block("text", text), *([Block("list", items)] if items else []))


def _budget_blocks(tuned):
    rows, shares = [], {}
    methods = next(iter(tuned.values())).experiment.methods
    for method in methods:
        done = [result for one in tuned.values() for result in one.done if result.cell.method == method.key]
        met, seconds = _at_an_end(method, done), [result.detail["search_seconds"] for result in done]
        shares[method.label] = _share(met) if met else None
        grid = "; ".join(map(_axis_text, method.grid)) or "nothing to choose"
        time = f"{median(seconds):.2f}" if method.grid and seconds else "–"
        rows.append([method.label, str(_n_points(method)), grid, _edges(met), time])
    caption = (
        "At the edge: share of the cells in which the best cross-validation score was only to be had at an end of an "
        "axis of five values or more, so that a wider grid might have found a better one; in brackets, which axes. "
        "Seconds: of processor time for a search, median."
    )
    header = ["method", "points", "grid", "at the edge", "seconds"]
    notes = [f"{method.label}: {method.note}" for method in methods if method.note]
    table = Block("table", (header, rows), caption)
    return section(
        "Equal budgets", Block("text", _narrow(shares)), Block("text", _HOW_CHOSEN), table, Block("list", notes)
    )


def _at_an_end(method, done):
    """For each cell, which of the long axes had its best value at an end and nowhere else."""
    long_axes = {axis.parameter for axis in method.grid if len(axis.values) >= 5}
    return [long_axes & set(result.detail["edge"]) for result in done if long_axes and "edge" in result.detail]


def _edges(met):
    if not met:
        return "–"
    counts = Counter(name for names in met for name in names)
    which = ", ".join(f"{name} {count / len(met):.0%}" for name, count in counts.most_common())
    return f"{_share(met):.0%}" + (f" ({which})" if which else "")


def _share(met):
    return float(np.mean([bool(names) for names in met]))


def _narrow(shares):
    """A sentence on the methods whose grid may be too narrow; shares are None where there is no grid."""
    known = {label: share for label, share in shares.items() if share is not None}
    labels = [label for label, share in known.items() if share > _MOST_AT_THE_EDGE]
    if not labels:
        return f"No method is at the edge in more than {_MOST_AT_THE_EDGE:.0%} of its cells."
    return (
        f"At the edge in more than {_MOST_AT_THE_EDGE:.0%} of the cells, so that wider grids could change their "
        f"numbers: {'; '.join(labels)}. The other {len(known) - len(labels)} methods with a grid are below that."
    )


def _axis_text(axis):
    unit = {"1": "", "m": " times the rows", "mean-distance": " mean distances (width)"}.get(axis.unit, f" {axis.unit}")
    if len(axis.values) == 1:
        return f"{axis.parameter} = {axis.values[0]:g}{unit}"
    decades = log10(axis.values[-1] / axis.values[0]) if min(axis.values) > 0 else 0.0
    ends = f"from {axis.values[0]:g} to {axis.values[-1]:g}{unit}"
    return f"{axis.parameter}: {len(axis.values)} {ends}, {abs(decades):.1f} decades"


def _data_blocks(found):
    rules = declaration()["study"]
    sizes = {}
    for one in found.values():
        for result in one.done:
            entry = sizes.setdefault(result.cell.dataset, {})
            entry.setdefault("splits", set()).add(result.cell.split)
            if one.experiment.id in ("study-main", "study-defaults"):
                entry.setdefault("train", set()).add(result.detail["train"])
                entry.setdefault("test", set()).add(result.detail["test"])
    lines = {line.key: line for one in found.values() for line in one.experiment.data}
    rows = [
        [
            key,
            f"{line.shape[0]:,}",
            f"{line.shape[1]:,}",
            _range(sizes[key].get("train")),
            _range(sizes[key].get("test")),
        ]
        for key, line in lines.items()
        if key in sizes
    ]
    text = (
        f"Splits are in turn half of the rows against the other half, drawn anew, and one of {rules['outer_folds']} "
        f"folds against the others, class by class. Training parts of more than {rules['most_train']} rows are "
        f"thinned to so many, test parts to {rules['most_test']:,}, class by class; so the rows of larger sets enter "
        f"as samples, and {rules['most_train']} is also the largest number of training rows of the condition few "
        "rows. Features are standardised on the training rows; sparse matrices are divided by the largest value of a "
        f"column. Parameters are chosen by {rules['cv']}-fold cross-validation within the training part. Sets that "
        "are others in another dress (australian, german-59, a1a, the Raetsch copies, ...), and those with more than "
        "ten classes or with classes of a few rows (letter, news20, shuttle), are left out."
    )
    return section(
        "Data and splits",
        Block("text", text),
        Block("table", (["data set", "rows", "columns", "training", "test"], rows), "As they come."),
    )


def _range(values):
    if not values:
        return "–"
    return str(min(values)) if len(values) == 1 else f"{min(values)}–{max(values)}"


def _missing_blocks(chosen, found):
    items = []
    for experiment in chosen:
        wanted = len(experiment.methods) * sum(experiment.n_splits(line.key) for line in experiment.data)
        one = found.get(experiment.id)
        done = len(one.done) if one else 0
        if done == wanted:
            continue
        n_splits = Counter(result.cell[1:3] for result in one.done) if one else Counter()
        counts = sorted(set(n_splits.values()))
        reach = (
            f"{'–'.join(map(str, (counts[0], counts[-1])[: len(counts)]))} of {experiment.splits.number} splits"
            if counts
            else "nothing yet"
        )
        absent = _absent(experiment, n_splits)
        items.append(f"{experiment.title}: {done:,} of {wanted:,} cells, {reach}{absent}.")
        failed = Counter(result.error for result in one.results if result.status != "done") if one else {}
        items += [f"{experiment.title}: {reason} ({count} cells)" for reason, count in sorted(failed.items())]
    about = (
        "The order of the work is split by split over everything, so what is here is a fair table with fewer splits; "
        "the same command goes on with the rest."
    )
    return section("What is missing", Block("text", about), Block("list", items)) if items else []


def _absent(experiment, n_splits):
    """Which methods have no cell at all, where others have."""
    tried = {method for _, method in n_splits}
    labels = [method.label for method in experiment.methods if method.key not in tried]
    return f"; nothing yet of {'; '.join(labels)}" if tried and labels else ""


def _command_blocks(found):
    done = [result for one in found.values() for result in one.done]
    if not done:
        return []
    versions = ", ".join(f"{name} {number}" for name, number in done[0].versions.items())
    return section(
        "Run it again",
        Block("text", "All of it; without data folder, what scikit-learn brings:"),
        Block("code", 'python -m reproduction --only "study/*" --store reproduction/study.sqlite'),
        Block("text", f"Any cell, set beside the result kept ({versions}):"),
        Block("code", f"python -m reproduction --cell {done[0].cell} --store reproduction/study.sqlite"),
    )
