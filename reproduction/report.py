"""Reports of the papers' experiments: our numbers beside the printed ones, as Markdown and HTML pages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from margindist.files import write_whole
from margindist.runs.store import Store
from reproduction.blocks import Block, html, listed, markdown, section
from reproduction.claims import disagreements, verdicts
from reproduction.consistency import inconsistencies
from reproduction.data_pages import TABLES, data_page
from reproduction.declarations import Experiment
from reproduction.figures import draw
from reproduction.findings import Findings, findings
from reproduction.study import study
from reproduction.study_report import study_page

_TEST_NAMES = {
    "paired-t": "Student's paired t-test over the splits, as in the paper",
    "welch": "Welch's t-test over the splits, as in the paper",
    "none": "no test in the paper; Student's paired t-test over the splits",
}
_MOST_DEVIATIONS = 12


def write_reports(store: Path, chosen: Sequence[Experiment], output: Path) -> list[Path]:
    """Write one page per experiment and a summary, each as Markdown and HTML, from the results in a store.

    The study has one page for all of its conditions, and no summary.

    Parameters
    ----------
    store : Path
        File of results.
    chosen : sequence of Experiment
        Those without a result have no page; the summary names them.
    output : Path
        Folder, made if need be; figures go into its folder ``figures``.
    """
    with Store(store) as opened:
        results = opened.results()
    output.mkdir(parents=True, exist_ok=True)
    (output / "figures").mkdir(exist_ok=True)
    conditions = [experiment for experiment in chosen if experiment.id in study()]
    papers = [experiment for experiment in chosen if experiment.id not in study()]
    pages = _paper_pages(papers, results, output) if papers else {}
    if conditions:
        pages["study"] = study_page(conditions, results, output / "figures")
    written = []
    for name, blocks in pages.items():
        below = [page for page in (*pages, "study") if page != "index" and (output / f"{page}.md").exists()]
        for ending, text in (
            (".md", markdown(blocks, dict.fromkeys(below) if name == "index" else ())),
            (".html", html(blocks)),
        ):
            written.append(output / f"{name}{ending}")
            write_whole(written[-1], text)
    return written


def _paper_pages(chosen, results, output):
    done = {result.cell.experiment for result in results}
    found = [findings(experiment, results) for experiment in chosen if experiment.id in done]
    pages = {one.experiment.id: page_blocks(one, draw(one, output / "figures")) for one in found}
    pages |= {name: data_page(name) for name in TABLES}
    pages["index"] = index_blocks(found, [experiment for experiment in chosen if experiment.id not in done])
    if (output / "study.md").exists():
        pages["index"].insert(
            1, Block("text", "Our own study, with equal budgets for all: [where margin terms help](study.md).")
        )
    return pages


# ---------------------------------------------------------------------- one experiment


def page_blocks(found: Findings, figures: Iterable[tuple[Path, str]] = ()) -> list[Block]:
    """Return the page of an experiment."""
    experiment = found.experiment
    paper = experiment.paper
    blocks = [
        Block("heading", (1, experiment.title)),
        Block("text", f"{paper.authors}, {paper.title}, {paper.venue} {paper.year}. Measured: {experiment.measure}."),
        Block("text", _extent(found)),
    ]
    blocks += _MEASURED[experiment.kind](found)
    blocks += [Block("figure", path, caption) for path, caption in figures]
    blocks += _claims_blocks(found) + _protocol_blocks(found) + _print_blocks(found) + _reading_blocks(found)
    return blocks + _warning_blocks(found) + _absent_blocks(found) + _command_blocks(found)


def _extent(found):
    done = found.done
    counts = Counter(result.cell[1:3] for result in done).values()
    least, most = min(counts, default=0), max(counts, default=0)
    reach = "one split" if most <= 1 else f"{most} splits"
    if least < most:
        reach = f"{least} to {most} splits"
    n_sets = len({result.cell.dataset for result in done})
    extent = (
        f"{len(done)} cells on {n_sets} of {len(found.experiment.data)} data sets, {reach} each (the paper: "
        f"{found.experiment.splits.number})."
    )
    searched = [result.detail["search_rows"] for result in done if "search_rows" in result.detail]
    if searched:
        extent += (
            f" In {len(searched)} of them the parameters were chosen on at most {max(searched):,} rows of the training "
            "part, to save time; the chosen model was fitted to all of it."
        )
    if found.experiment.splits.kind == "published":
        n_published = sum(result.detail.get("published", False) for result in done)
        extent += (
            f" {n_published} of them ({n_published / max(1, len(done)):.0%}) are on splits that come with the data; "
            "for the others rows were drawn at random, as many as printed."
        )
    return extent


def _number(value, digits=3):
    return "–" if value is None or np.isnan(value) else f"{value:.{digits}f}"


def _digits(found):
    resolutions = [cell.resolution for table in found.experiment.printed.values() for cell in table.values()]
    known = [resolution for resolution in resolutions if resolution]
    return 3 if not known else max(3, round(-np.log10(min(known))))


def _accuracy_blocks(found):
    digits = _digits(found)
    header = ["data set", *found.labels.values()]
    rows = [
        [line.printed, *(_accuracy_cell(found, line.key, method, digits) for method in found.labels)]
        for line in found.lines
    ]
    rows += _summary_rows(found, digits)
    caption = (
        "Ours: mean ± standard deviation over splits; below: printed, and in brackets ours less printed in printed "
        f"standard deviations.{_marks_meaning(found)}"
    )
    blocks = section("Ours and printed", Block("table", (header, rows), caption))
    if found.rivals:
        blocks += _rival_blocks(found)
    return blocks + _agreement_blocks(found)


def _marks_meaning(found):
    rule = found.experiment.statistics
    if rule.bullet is None:
        return " The paper prints no marks."
    reference = found.labels[rule.reference]
    better = f"better than {reference}" if rule.bullet == "column" else f"{reference} is better than this method"
    return f" Marks: {_TEST_NAMES[rule.test]}, at {rule.level:.0%}; ● {better}, ○ worse."


def _accuracy_cell(found, line, method, digits):
    entry = found.entries[line, method]
    printed = found.experiment.cell(line, method)
    ours = "–"
    if entry.scores:
        spread = "" if np.isnan(entry.std) else f" ± {entry.std:.{digits}f}"
        ours = f"{entry.mean:.{digits}f}{spread}{_our_mark(found, line, method)}"
    if printed is None or printed.status != "number":
        return ours + (f"\n{printed.text}" if printed is not None else "")
    spread = "" if printed.std is None else f" ± {printed.std:.{digits}f}"
    apart = "" if entry.distance is None else f" ({entry.distance:+.1f})"
    return f"{ours}\n{printed.mean:.{digits}f}{spread}{printed.mark}{apart}"


def _our_mark(found, line, method):
    verdict = found.verdicts.get((line, method), "tie")
    if found.experiment.statistics.bullet is None or verdict == "tie":
        return ""
    better = verdict == "win"
    if found.experiment.statistics.bullet == "reference":
        better = not better
    return "●" if better else "○"


def _summary_rows(found, digits):
    labels, experiment = found.labels, found.experiment
    if not found.complete:
        return []
    averages = [found.average(m) if m in found.methods else None for m in labels]
    printed = [found.average(m, printed=True) if m in found.methods else None for m in labels]
    rows = [
        [
            f"average of {len(found.complete)}",
            *(f"{_number(a, digits)}\n{_number(p, digits)}" for a, p in zip(averages, printed)),
        ],
        ["average rank", *(_number(found.ranks.get(m), 2) for m in labels)],
    ]
    if "average" in experiment.summary:
        given = experiment.summary["average"]
        shown = (None if given.get(m) is None else given[m].mean for m in labels)
        rows.append(["average as printed, all data sets", *(_number(value, digits) for value in shown)])
    if "average-rank" in experiment.summary:
        given = experiment.summary["average-rank"]
        rows.append(["average rank as printed, all data sets", *(_text(given.get(m)) for m in labels)])
    return rows


def _text(printed):
    return "–" if printed is None else printed.text


def _counts(counts):
    return "–" if counts is None else "/".join(map(str, counts))


def _rival_blocks(found):
    labels, rule = found.labels, found.experiment.statistics
    header = ["against", "ours", "printed", "corrected", "data sets", "Wilcoxon p", "Holm p"]
    rows = [
        [labels[r.method], _counts(r.paper_test), _counts(r.printed), _counts(r.corrected), str(r.n_datasets),
         _p(r.wilcoxon), _p(r.holm)]
        for r in found.rivals
    ]  # fmt: skip
    caption = (
        f"Wins/ties/losses of {labels[rule.subject]}. Ours and printed: {_TEST_NAMES[rule.test]}, at {rule.level:.0%}, "
        "on the data sets that each has. Corrected: the resampled t-test of Nadeau and Bengio, which allows for the "
        "rows that splits share. Wilcoxon: signed-rank test over the mean accuracies of the data sets, adjusted by "
        "Holm's rule for the number of methods. Tests need three splits, and six data sets where they go over those."
    )
    blocks = section(f"{labels[rule.subject]} against the others", Block("table", (header, rows), caption))
    if found.friedman is not None:
        statistic, p = found.friedman
        blocks.append(Block("text", (
            f"Friedman's test (Iman and Davenport's form, corrected for ties) over {len(found.complete)} data sets and "
            f"{len(found.methods)} methods: F = {statistic:.2f}, p {'' if p < 0.001 else '= '}{_p(p)}. Average ranks "
            f"differ by Nemenyi's test at 95 % if they are more than {found.critical_difference:.2f} apart."
        )))  # fmt: skip
    return blocks


def _p(value):
    if np.isnan(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _agreement_blocks(found):
    compared = found.compared()
    if not compared:
        return []
    labels, names = found.labels, {line.key: line.printed for line in found.experiment.data}
    distances = np.array([distance for _, _, distance in compared])
    blocks = section("Agreement with the print", Block("text", (
        f"Of {len(compared)} numbers that can be compared, {np.sum(np.abs(distances) <= 1)} are within one printed "
        f"standard deviation and {np.sum(np.abs(distances) <= 2)} within two; on average ours are "
        f"{distances.mean():+.2f} deviations off."
    )))  # fmt: skip
    rows = []
    for key, label in labels.items():
        own = np.array([distance for _, method, distance in compared if method == key])
        if len(own):
            rows.append(
                [label, str(len(own)), str(np.sum(np.abs(own) <= 1)), f"{own.mean():+.2f}", f"{np.abs(own).max():.1f}"]
            )
    header = ["method", "compared", "within one", "mean difference", "largest"]
    blocks.append(Block("table", (header, rows), "Differences from the print in printed standard deviations."))
    apart = disagreements(found)
    if apart:
        blocks += [Block("text", "Columns that do not agree, and the likely reason:"), Block("list", apart)]
    far = sorted((c for c in compared if abs(c[2]) > 2), key=lambda c: -abs(c[2]))[:_MOST_DEVIATIONS]
    items = []
    for line, method, distance in far:
        entry, remarks = found.entries[line, method], found.experiment.remarks_on(line, method)
        items.append(
            f"{names[line]}, {labels[method]}: {entry.mean:.3f}, printed {entry.printed_mean:.3f} ({distance:+.1f} "
            "deviations)." + "".join(f" {remark}" for remark in remarks)
        )
    if items:
        blocks += [Block("text", "Furthest from the print:"), Block("list", items)]
    return blocks


def _time_blocks(found):
    printed = found.experiment.printed
    header = ["data set", *found.labels.values()]
    blocks = section("Ours and printed" if printed else "Ours")
    for measure in printed or ["seconds"]:
        rows = [
            [line.printed, *(_time_cell(found, line.key, method, measure) for method in found.labels)]
            for line in found.lines
        ]
        what = "processor seconds" if measure == "seconds" else measure
        below = "; below: printed" if printed else ""
        blocks.append(Block("table", (header, rows), f"Ours, {what}, mean over splits{below}."))
    return blocks


def _time_cell(found, line, method, measure):
    values = [
        r.score if measure == "seconds" else r.detail.get(measure) for r in found.done if r.cell[1:3] == (line, method)
    ]
    values = [value for value in values if value is not None]
    ours = f"{np.mean(values):.3g}" if values else "–"
    printed = found.experiment.cell(line, method, measure) if found.experiment.printed else None
    if printed is None:
        return ours
    return f"{ours}\n{printed.text if printed.mean is None else f'{printed.mean:.4g}'}"


def _margin_blocks(found):
    first = found.first_splits
    rows = []
    for line in found.experiment.data:
        results = [first.get((line.key, method)) for method in found.labels]
        if any(results):
            rows.append([line.printed, *("–" if result is None else _margin_cell(result) for result in results)])
    caption = "Margins of the training rows on one split, weights of length one: least, median, mean."
    return section("Margins", Block("table", (["data set", *found.labels.values()], rows), caption))


def _margin_cell(result):
    quantiles = result.detail["quantiles"]
    return f"{quantiles[0]:.3g}\n{quantiles[50]:.3g}\n{result.score:.3g}"


def _update_blocks(found):
    rows = [
        [line.printed, *(_update_cell(found.histories.get((line.key, method), ())) for method in found.labels)]
        for line in found.experiment.data
    ]
    caption = "Updates, processor seconds and margin at the end, means over draws."
    return section("At the end", Block("table", (["data", *found.labels.values()], rows), caption))


def _update_cell(results):
    if not results:
        return "–"
    ends = [[result.detail["history"][name][-1] for result in results] for name in ("n_updates", "seconds", "margin")]
    lines = [f"{np.mean(values):.3g}" for values in ends]
    n_cut = sum(not result.detail.get("converged", True) for result in results)
    return "\n".join([*lines, f"{n_cut} of {len(results)} cut off at the limit of passes"] if n_cut else lines)


def _influence_blocks(found):
    header, rows = ["method", "parameter", "data sets", "median range", "largest range"], []
    for method, label in found.labels.items():
        for name in found.experiment.settings["vary"]:
            curves = [accuracies for key, (_, accuracies) in found.influences.items() if key[:2] == (method, name)]
            if curves:
                ranges = np.ptp(curves, axis=1)
                rows.append([label, name, str(len(ranges)), f"{np.median(ranges):.4f}", f"{np.max(ranges):.4f}"])
    caption = "How far the mean accuracy moves over a parameter's grid while the others stay as chosen."
    return section("Sensitivity", Block("table", (header, rows), caption))


_MEASURED = {
    "accuracy": _accuracy_blocks,
    "time": _time_blocks,
    "margins": _margin_blocks,
    "updates": _update_blocks,
    "influence": _influence_blocks,
}


def _claims_blocks(found):
    blocks = []
    if found.experiment.claims:
        blocks += [Block("text", "The paper:"), Block("list", list(found.experiment.claims))]
    ours = [str(verdict) for verdict in verdicts(found)]
    if ours:
        blocks += [Block("text", "Ours:"), Block("list", ours)]
    return section("What the paper concludes, and what we found", *blocks) if blocks else []


_SPLITS = {
    "random": "random rows for training, the others for testing, drawn anew each time",
    "published": "those that come with the data",
    "whole": "all rows for training",
    "drawn": "data generated anew each time",
}
_SCALING = {"unit": "every feature to [0, 1] by the training rows", "standard": "mean 0, variance 1", "none": "none"}
_UNITS = {
    "1": "",
    "mean": "",
    "m": " times the number of training rows",
    "1/m": " over the number of training rows",
    "1/d": " over the number of features",
    "mean-distance": " as a width in units of the mean distance between training rows",
}
_MOST_VALUES = 6


def _protocol_blocks(found):
    """Everything declared that changes what a number means."""
    experiment = found.experiment
    plan = experiment.splits
    splits = f"Splits: {plan.number}, {_SPLITS[plan.kind]}."
    if plan.train is not None:
        splits += f" {plan.train:.0%} of the rows are for training{', class by class' if plan.stratified else ''}."
    if plan.cv:
        splits += f" Parameters are chosen by {plan.cv}-fold cross-validation on the training part."
    if plan.search_rows:
        splits += f" At most {plan.search_rows:,} of its rows take part in that."
    items = [f"{splits} {plan.note}".rstrip(), f"Scaling: {_SCALING[experiment.scaling]}.", f"Bias: {experiment.bias}."]
    items += [f"{name}: {value}" for name, value in experiment.settings.items() if name not in _OF_FIGURES]
    items += [_method_text(method) for method in experiment.methods]
    return listed("How it was measured", items)


_OF_FIGURES = ("x", "y", "x_scale", "y_scale", "y_range", "upper", "lower", "panels")  # not about the numbers


def _method_text(method):
    if method.unavailable:
        return f"{method.label}: {method.unavailable}"
    fixed = ", ".join(f"{name}={value}" for name, value in method.fixed.items())
    grid = "; ".join(f"{axis.parameter} in {_values(axis.values)}{_UNITS[axis.unit]}" for axis in method.grid)
    how = "one after the other" if method.search == "line" else "all combinations"
    chosen = f" Chosen, {how}: {grid}." if grid else ""
    return f"{method.label}: {method.estimator.rpartition('.')[2]}({fixed}).{chosen}"


def _values(values):
    shown = [f"{value:.4g}" for value in values]
    if len(shown) > _MOST_VALUES:
        return f"{shown[0]}, {shown[1]}, ..., {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def _print_blocks(found):
    experiment = found.experiment
    prefix = f"{experiment.id}: "
    items = [text.removeprefix(prefix) for text in inconsistencies(experiment)]
    items += [remark for remark in experiment.remarks if remark not in items]
    items += [f"{line.printed}: {line.remark}" for line in experiment.data if line.remark]
    places = {}
    for table in experiment.printed.values():
        for (line, method), cell in table.items():
            if cell.remark:
                places.setdefault((found.labels[method], cell.remark), []).append(experiment.dataset(line).printed)
    items += [f"{', '.join(dict.fromkeys(lines))}, {label}: {remark}" for (label, remark), lines in places.items()]
    return listed("The printed numbers themselves", items)


def _reading_blocks(found):
    items = [f"{reading.topic}: {reading.text}" for reading in found.experiment.readings]
    items += [f"{method.label}: {method.note}" for method in found.experiment.methods if method.note]
    return listed("What the paper leaves open, and how it was read", items)


def _absent_blocks(found):
    cells: dict[str, list] = {}
    for result in found.results:
        if result.status != "done":
            cells.setdefault(result.error or "no reason given", []).append(result.cell)
    ran = {result.cell[1:3] for result in found.done}
    items = [f"{_whereabouts(found, own, ran)}: {reason}" for reason, own in sorted(cells.items())]
    items += _waiting(found)
    return listed("Cells that did not run", items)


def _waiting(found):
    """What nobody has begun: nothing is missing in silence."""
    begun = {result.cell[1:] for result in found.results}
    given_up = {result.cell[1:3] for result in found.results if result.status == "skipped"}
    items = []
    for line in found.experiment.data:
        n_splits = found.experiment.n_splits(line.key)
        methods = [m for m in found.experiment.methods if not m.unavailable and (line.key, m.key) not in given_up]
        left = {m.label: sum((line.key, m.key, split) not in begun for split in range(n_splits)) for m in methods}
        left = {label: n for label, n in left.items() if n}
        if left:
            each = ", ".join(f"{label} {n}" for label, n in left.items())
            items.append(f"{line.printed}: not run so far, of {n_splits} splits {each}.")
    return items


def _whereabouts(found, cells, ran):
    """Name data sets, methods, or both, whichever these cells are all of; "some splits" where others were run."""
    labels, lines = found.labels, {line.key: line.printed for line in found.experiment.data}
    methods: dict[str, set] = {}
    for cell in cells:
        methods.setdefault(cell.dataset, set()).add(cell.method)
    together = set.union(*methods.values())
    partly = "some splits of " if any(cell[1:3] in ran for cell in cells) else ""
    if len(together) == 1 and len(methods) > 1:
        (method,) = together
        where = "all data sets" if len(methods) == len(lines) else ", ".join(sorted(lines[key] for key in methods))
        return f"{partly}{labels[method]} on {where}"
    known = {key for key, method in labels.items() if not found.experiment.method(key).unavailable}
    named = (
        lines[key] if known <= own else f"{lines[key]} with {', '.join(labels[m] for m in labels if m in own)}"
        for key, own in methods.items()
    )
    return partly + ", ".join(sorted(named))


def _warning_blocks(found):
    """How many cells of each method met which warnings: in most, parameters at the grid's end that do not converge."""
    items = []
    for method, label in found.labels.items():
        own = [result.detail.get("warnings", ()) for result in found.done if result.cell.method == method]
        kinds = Counter(kind for warnings in own for kind in {text.split(":")[0] for text in warnings})
        items += [f"{label}: {kind} in {count} of {len(own)} cells." for kind, count in sorted(kinds.items())]
    about = "Met at some point of a cell, in most of them for parameters at an end of the grid:"
    return section("Warnings", Block("text", about), Block("list", items)) if items else []


def _command_blocks(found):
    if not found.done:
        return []
    result = found.done[0]
    numbers = {}
    for one in found.done:
        for name, number in one.versions.items():
            numbers.setdefault(name, set()).add(number)
    versions = ", ".join(f"{name} {' and '.join(sorted(own))}" for name, own in numbers.items())
    return section(
        "Run it again",
        Block("text", "Any cell is measured again, and set beside the result kept, by"),
        Block("code", f"python -m reproduction --cell {result.cell} --store reproduction/results.sqlite"),
        Block("text", (
            "Accuracies and chosen parameters come out the same, and margins to the last digits, with the same "
            f"versions on the same kind of machine; times do not. The cells here were made with {versions}."
        )),
    )  # fmt: skip


# ---------------------------------------------------------------------- all of them


def index_blocks(found: Sequence[Findings], without: Sequence[Experiment] = ()) -> list[Block]:
    """Return the summary page; `without` are the experiments that have no result yet."""
    counted = Counter(result.status for one in found for result in one.results)
    compared = [distance for one in found for *_, distance in one.compared()]
    near = sum(abs(distance) <= 1 for distance in compared)
    header = ["experiment", "claim", "here", "share of cells", "what decides"]
    rows = [_claim_row(one, verdict) for one in found for verdict in verdicts(one)]
    blocks = [
        Block("heading", (1, "The papers' tables and figures, run again")),
        Block("table", (header, rows), "Share of cells: how much of what the paper measured is measured here."),
        Block("text", (
            f"{sum(counted.values()):,} cells: {counted['done']:,} done, {counted['skipped']:,} could not run, "
            f"{counted['failed']:,} failed or took too long; the pages say why. A cell is one method on one split of "
            "one data set."
        )),
    ]  # fmt: skip
    if compared:
        blocks.append(Block("text", (
            f"Of {len(compared)} printed mean accuracies that ours can be set beside, {near} "
            f"({near / len(compared):.0%}) are within one printed standard deviation."
        )))  # fmt: skip
    rows = [_index_row(one) for one in found]
    header = ["experiment", "data sets", "splits", "compared", "within one", "wins/ties/losses ours", "printed"]
    blocks += section("Experiments", Block("table", (header, rows), (
        "Splits: fewest to most over data sets and methods. Compared: printed means beside ours; within one: those "
        "within one printed standard deviation. Wins, ties and losses: of the paper's method against all others "
        "together, by the paper's test."
    )))  # fmt: skip
    described = ", ".join(f"[{title.partition(':')[0]}]({name}.md)" for name, (_, title) in TABLES.items())
    blocks.append(Block("text", f"The data sets as the papers describe them, and as they are here: {described}."))
    if without:
        titles = "; ".join(experiment.title for experiment in without)
        blocks.append(Block("text", f"Without a result so far: {titles}."))
    return blocks


_HERE = {"yes": "holds", "no": "does not", "in part": "in part"}


def _claim_row(found, verdict):
    place = f"[{found.experiment.title.partition(':')[0]}]({found.experiment.id}.md)"
    decides = verdict.decides or verdict.reason.rstrip(".")
    return [place, verdict.claim, _HERE[verdict.holds], f"{share_of_cells(found):.0%}", decides]


def share_of_cells(found: Findings) -> float:
    """Return the share of the cells behind the paper's table or figure that have a result here."""
    experiment = found.experiment
    columns = {method.key for method in experiment.methods if method.printed and not method.unavailable}
    wanted = {
        (line.key, key)
        for line in experiment.data
        for key in columns
        if (cell := experiment.cell(line.key, key)) is None or cell.status != "not run"
    }
    n_cells = sum(experiment.n_splits(line) for line, _ in wanted)
    return sum(result.cell[1:3] in wanted for result in found.done) / max(1, n_cells)


def _reach(found):
    """How many data sets have results, and the fewest and most splits of a method on one of them, as text."""
    done = Counter(result.cell[1:3] for result in found.done)
    ends = sorted({min(done.values()), max(done.values())}) if done else []
    return str(len({dataset for dataset, _ in done})), "–".join(map(str, ends)) or "–"


def _index_row(found):
    compared = [distance for *_, distance in found.compared()]
    near = sum(abs(distance) <= 1 for distance in compared)
    paper = [r for r in found.rivals if r.printed is not None]
    ours = tuple(np.sum([r.paper_test for r in paper], axis=0)) if paper else None
    printed = tuple(np.sum([r.printed for r in paper], axis=0)) if paper else None
    return [
        f"[{found.experiment.title}]({found.experiment.id}.md)",
        *_reach(found),
        str(len(compared)) if compared else "–",
        str(near) if compared else "–",
        _counts(ours),
        _counts(printed),
    ]
