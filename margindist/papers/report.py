"""Reports of the papers' experiments: our numbers beside the printed ones, as Markdown and HTML pages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from margindist.files import write_whole
from margindist.papers.claims import disagreements, verdicts
from margindist.papers.consistency import inconsistencies
from margindist.papers.declarations import Experiment
from margindist.papers.figures import draw
from margindist.papers.findings import Findings, findings
from margindist.runs.store import Store

__all__ = ["Block", "html", "index_blocks", "markdown", "page_blocks", "write_reports"]

_TEST_NAMES = {
    "paired-t": "Student's paired t-test over the splits, as in the paper",
    "welch": "Welch's t-test over the splits, as in the paper",
    "none": "no test in the paper; Student's paired t-test over the splits",
}
_MOST_DEVIATIONS = 12


class Block(NamedTuple):
    """A piece of a page: kind "heading", "text", "list", "table", "figure" or "code", and what it holds."""

    kind: str
    content: Any
    caption: str = ""


def write_reports(store: Path, chosen: Sequence[Experiment], output: Path) -> list[Path]:
    """Write a page an experiment and a summary, each as Markdown and HTML, from the results in a store.

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
    done = {result.cell.experiment for result in results}
    found = [findings(experiment, results) for experiment in chosen if experiment.id in done]
    output.mkdir(parents=True, exist_ok=True)
    pages = {one.experiment.id: page_blocks(one, draw(one, output / "figures")) for one in found}
    pages["index"] = index_blocks(found, [experiment for experiment in chosen if experiment.id not in done])
    written = []
    for name, blocks in pages.items():
        for ending, text in (
            (".md", markdown(blocks, list(pages)[:-1] if name == "index" else ())),
            (".html", html(blocks)),
        ):
            written.append(output / f"{name}{ending}")
            write_whole(written[-1], text)
    return written


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
    if experiment.kind == "accuracy":
        blocks += _accuracy_blocks(found)
    elif experiment.kind == "time":
        blocks += _time_blocks(found)
    elif experiment.kind == "margins":
        blocks += _margin_blocks(found)
    elif experiment.kind == "updates":
        blocks += _update_blocks(found)
    else:
        blocks += _influence_blocks(found)
    blocks += [Block("figure", path, caption) for path, caption in figures]
    blocks += _claims_blocks(found) + _print_blocks(found) + _reading_blocks(found)
    return blocks + _warning_blocks(found) + _absent_blocks(found) + _command_blocks(found)


def _extent(found):
    done = [result for result in found.results if result.status == "done"]
    splits = Counter((r.cell.dataset, r.cell.method) for r in done)
    n_sets = len({r.cell.dataset for r in done})
    least, most = (min(splits.values()), max(splits.values())) if splits else (0, 0)
    reach = f"{least} to {most} splits" if least < most else f"{most} splits" if most > 1 else "one split"
    searched = sorted({r.detail["search_rows"] for r in done if "search_rows" in r.detail})
    said = (
        f"{len(done)} cells on {n_sets} of {len(found.experiment.data)} data sets, {reach} each (the paper: "
        f"{found.experiment.splits.number})."
    )
    if searched:
        n_few = sum("search_rows" in r.detail for r in done)
        said += (
            f" In {n_few} of them the parameters were chosen on at most {searched[-1]:,} rows of the training part, to "
            "save"
            " time; the chosen model was fitted to all of it."
        )
    return said


def _labels(found):
    return {method.key: method.label for method in found.experiment.methods}


def _number(value, digits=3):
    return "–" if value is None or np.isnan(value) else f"{value:.{digits}f}"


def _digits(found):
    resolutions = [cell.resolution for table in found.experiment.printed.values() for cell in table.values()]
    known = [resolution for resolution in resolutions if resolution]
    return 3 if not known else max(3, round(-np.log10(min(known))))


def _accuracy_blocks(found):
    experiment, labels, digits = found.experiment, _labels(found), _digits(found)
    header = ["data set", *labels.values()]
    rows = []
    for line in experiment.data:
        cells = [_accuracy_cell(found, line.key, method, digits) for method in labels]
        if any(found.entries[line.key, method].scores for method in labels):
            rows.append([line.printed, *cells])
    rows += _summary_rows(found, digits)
    caption = (
        "Ours: mean ± standard deviation over splits; below: printed, and in brackets ours less printed in printed "
        f"standard deviations.{_marks_meaning(found)}"
    )
    blocks = [Block("heading", (2, "Ours and printed")), Block("table", (header, rows), caption)]
    if found.rivals:
        blocks += _rival_blocks(found)
    return blocks + _agreement_blocks(found)


def _marks_meaning(found):
    rule = found.experiment.statistics
    if rule.bullet is None:
        return " The paper prints no marks."
    reference = _labels(found)[rule.reference]
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
    labels, experiment = _labels(found), found.experiment
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
    labels, rule = _labels(found), found.experiment.statistics
    header = ["against", "ours", "printed", "corrected", "data sets", "Wilcoxon p", "Holm p"]
    rows = [
        [labels[r.method], _counts(r.paper_test), _counts(r.printed), _counts(r.corrected), str(r.n_datasets),
         _p(r.wilcoxon), _p(r.holm)]
        for r in found.rivals
    ]  # fmt: skip
    caption = (
        f"Wins/ties/losses of {labels[rule.subject]}. Ours and printed: {_TEST_NAMES[rule.test]}, at {rule.level:.0%}, "
        "on the data "
        "sets that each has. Corrected: the resampled t-test of Nadeau and Bengio, which allows for the rows that "
        "splits "
        "share. Wilcoxon: signed-rank test over the mean accuracies of the data sets, adjusted by Holm's rule for the "
        "number of methods."
    )
    blocks = [
        Block("heading", (2, f"{labels[rule.subject]} against the others")),
        Block("table", (header, rows), caption),
    ]
    if found.friedman is not None:
        statistic, p = found.friedman
        blocks.append(Block("text", (
            f"Friedman's test (Iman and Davenport's form, corrected for ties) over {len(found.complete)} data sets and "
            f"{len(found.methods)} methods: F = {statistic:.2f}, p {'' if p < 0.001 else '= '}{_p(p)}. Average ranks "
            f"differ by Nemenyi's test at 95 % if they are more than {found.critical_difference:.2f} apart."
        )))  # fmt: skip
    return blocks


def _p(value):
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _agreement_blocks(found):
    compared = found.compared()
    if not compared:
        return []
    labels, names = _labels(found), {line.key: line.printed for line in found.experiment.data}
    distances = np.array([distance for _, _, distance in compared])
    blocks = [Block("heading", (2, "Agreement with the print")), Block("text", (
        f"Of {len(compared)} numbers that can be compared, {np.sum(np.abs(distances) <= 1)} are within one printed "
        "standard "
        f"deviation and {np.sum(np.abs(distances) <= 2)} within two; on average ours are {distances.mean():+.2f} "
        "deviations off."
    ))]  # fmt: skip
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
    experiment, labels = found.experiment, _labels(found)
    measures = list(experiment.printed) or ["seconds"]
    blocks = [Block("heading", (2, "Ours and printed" if experiment.printed else "Ours"))]
    for measure in measures:
        rows = []
        for line in experiment.data:
            cells = [_time_cell(found, line.key, method, measure) for method in labels]
            if any(found.entries[line.key, method].scores for method in labels):
                rows.append([line.printed, *cells])
        what = "processor seconds" if measure == "seconds" else measure
        below = "; below: printed" if experiment.printed else ""
        blocks.append(Block("table", (["data set", *labels.values()], rows), f"Ours, {what}, mean over splits{below}."))
    return blocks


def _time_cell(found, line, method, measure):
    values = [
        r.score if measure == "seconds" else r.detail.get(measure)
        for r in found.results
        if r.status == "done" and (r.cell.dataset, r.cell.method) == (line, method)
    ]
    values = [value for value in values if value is not None]
    ours = f"{np.mean(values):.3g}" if values else "–"
    printed = found.experiment.cell(line, method, measure) if found.experiment.printed else None
    if printed is None:
        return ours
    return f"{ours}\n{printed.text if printed.mean is None else f'{printed.mean:.4g}'}"


def _margin_blocks(found):
    labels = _labels(found)
    first = {(r.cell.dataset, r.cell.method): r for r in found.results if r.status == "done" and r.cell.split == 0}
    rows = []
    for line in found.experiment.data:
        if any((line.key, method) in first for method in labels):
            details = [first.get((line.key, method)) for method in labels]
            rows.append([line.printed, *(
                "–" if r is None else f"{r.detail['quantiles'][0]:.3g}\n{r.detail['quantiles'][50]:.3g}\n{r.score:.3g}"
                for r in details
            )])  # fmt: skip
    caption = "Margins of the training rows on one split, weights of length one: least, median, mean."
    return [Block("heading", (2, "Margins")), Block("table", (["data set", *labels.values()], rows), caption)]


def _update_blocks(found):
    labels = _labels(found)
    rows = []
    for line in found.experiment.data:
        cells = []
        for method in labels:
            own = [r for r in found.results if "history" in r.detail and r.cell[1:3] == (line.key, method)]
            ends = [{name: values[-1] for name, values in r.detail["history"].items()} for r in own]
            cells.append("–" if not ends else "\n".join(
                f"{np.mean([end[name] for end in ends]):.3g}" for name in ("n_updates", "seconds", "margin")
            ))  # fmt: skip
        rows.append([line.printed, *cells])
    caption = "Updates, processor seconds and margin at the end, means over draws."
    return [Block("heading", (2, "At the end")), Block("table", (["data", *labels.values()], rows), caption)]


def _influence_blocks(found):
    labels, spreads = _labels(found), {}
    for result in found.results:
        if result.status == "done":
            for name, curve in result.detail["influence"].items():
                spreads.setdefault((result.cell.method, name, result.cell.dataset), []).append(curve["accuracy"])
    header, rows = ["method", "parameter", "data sets", "median range", "largest range"], []
    for method, label in labels.items():
        for name in found.experiment.settings["vary"]:
            ranges = [np.ptp(np.mean(v, axis=0)) for key, v in spreads.items() if key[:2] == (method, name)]
            if ranges:
                rows.append([label, name, str(len(ranges)), f"{np.median(ranges):.4f}", f"{np.max(ranges):.4f}"])
    caption = "How far the mean accuracy moves over a parameter's grid while the others stay as chosen."
    return [Block("heading", (2, "Sensitivity")), Block("table", (header, rows), caption)]


def _claims_blocks(found):
    said = verdicts(found)
    if not said and not found.experiment.claims:
        return []
    blocks = [Block("heading", (2, "What the paper concludes, and what we found"))]
    if found.experiment.claims:
        blocks += [Block("text", "The paper:"), Block("list", list(found.experiment.claims))]
    return blocks + ([Block("text", "Ours:"), Block("list", [str(v) for v in said])] if said else [])


def _print_blocks(found):
    prefix = f"{found.experiment.id}: "
    said = [text.removeprefix(prefix) for text in inconsistencies(found.experiment)]
    said += [remark for remark in found.experiment.remarks if remark not in said]
    said += [f"{line.printed}: {line.remark}" for line in found.experiment.data if line.remark]
    return [Block("heading", (2, "The printed numbers themselves")), Block("list", said)] if said else []


def _reading_blocks(found):
    items = [f"{reading.topic}: {reading.text}" for reading in found.experiment.readings]
    items += [f"{method.label}: {method.note}" for method in found.experiment.methods if method.note]
    return (
        [Block("heading", (2, "What the paper leaves open, and how it was read")), Block("list", items)]
        if items
        else []
    )


def _absent_blocks(found):
    cells: dict[str, list] = {}
    for result in found.results:
        if result.status != "done":
            cells.setdefault(result.error or "no reason given", []).append(result.cell)
    if not cells:
        return []
    ran = {result.cell[1:3] for result in found.results if result.status == "done"}
    items = [f"{_whereabouts(found, own, ran)}: {reason}" for reason, own in sorted(cells.items())]
    return [Block("heading", (2, "Cells that did not run")), Block("list", items)]


def _whereabouts(found, cells, ran):
    """Name data sets, methods, or both, whichever these cells are all of; "some splits" where others were run."""
    labels, lines = _labels(found), {line.key: line.printed for line in found.experiment.data}
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
    labels, items = _labels(found), []
    for method, label in labels.items():
        own = [r for r in found.results if r.status == "done" and r.cell.method == method]
        kinds = Counter(kind for r in own for kind in {text.split(":")[0] for text in r.detail.get("warnings", ())})
        items += [f"{label}: {kind} in {count} of {len(own)} cells." for kind, count in sorted(kinds.items())]
    if not items:
        return []
    about = "Met at some point of a cell, in most of them for parameters at an end of the grid:"
    return [Block("heading", (2, "Warnings")), Block("text", about), Block("list", items)]


def _command_blocks(found):
    done = next((result for result in found.results if result.status == "done"), None)
    if done is None:
        return []
    versions = ", ".join(f"{name} {number}" for name, number in done.versions.items())
    return [
        Block("heading", (2, "Run it again")),
        Block("text", "Any cell is measured again, and set beside the result kept, by"),
        Block("code", f"margindist reproduce --cell {done.cell} --store results.sqlite"),
        Block("text", (
            "Accuracies and chosen parameters come out the same, and margins to the last digits, with the same "
            f"versions on the same kind of machine ({versions}); times do not."
        )),
    ]  # fmt: skip


# ---------------------------------------------------------------------- all of them


def index_blocks(found: Sequence[Findings], without: Sequence[Experiment] = ()) -> list[Block]:
    """Return the summary page; `without` are the experiments that have no result yet."""
    counted = Counter(result.status for one in found for result in one.results)
    compared = [distance for one in found for *_, distance in one.compared()]
    blocks = [Block("heading", (1, "The papers' tables and figures, run again")), Block("text", (
        f"{sum(counted.values()):,} cells: {counted['done']:,} done, {counted['skipped']:,} could not run, "
        f"{counted['failed']:,} failed or took too long; the pages say why. A cell is one method on one split of one "
        "data set."
    ))]  # fmt: skip
    if compared:
        near = sum(abs(distance) <= 1 for distance in compared)
        blocks.append(Block("text", (
            f"Of {len(compared)} printed mean accuracies that ours can be set beside, {near} "
            f"({near / len(compared):.0%}) are "
            "within one printed standard deviation."
        )))  # fmt: skip
    blocks += _in_short_blocks(found)
    rows = [_index_row(one) for one in found]
    header = ["experiment", "data sets", "splits", "compared", "within one", "wins/ties/losses ours", "printed"]
    blocks.append(Block("heading", (2, "Experiments")))
    blocks.append(Block("table", (header, rows), (
        "Splits: fewest to most over data sets and methods. Compared: printed means beside ours; within one: those "
        "within "
        "one printed standard deviation. Wins, ties and losses: of the paper's method against all others together, by "
        "the paper's test."
    )))  # fmt: skip
    if without:
        titles = "; ".join(experiment.title for experiment in without)
        blocks.append(Block("text", f"Without a result so far: {titles}."))
    claims = [f"{one.experiment.title}. {said}" for one in found for said in verdicts(one)]
    if claims:
        blocks += [Block("heading", (2, "What became of all claims")), Block("list", claims)]
    return blocks


def _in_short_blocks(found):
    """The main claim of each paper, and what became of it."""
    said = []
    for one in found:
        paper, first = one.experiment.paper, verdicts(one)[:1]
        if one.experiment.id == paper.main and first:
            splits = f"{_reach(one)[1]} of {one.experiment.splits.number}"
            said.append(f'{paper.authors} ({paper.venue} {paper.year}): "{paper.claim}" {first[0]} Splits: {splits}.')
    return [Block("heading", (2, "The main claim of each paper")), Block("list", said)] if said else []


def _reach(found):
    """How many data sets have results, and the fewest and most splits of a method on one of them, as text."""
    done = Counter((r.cell.dataset, r.cell.method) for r in found.results if r.status == "done")
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


# ---------------------------------------------------------------------- rendering


def markdown(blocks: Iterable[Block], toctree: Sequence[str] = ()) -> str:
    """Return a page as Markdown (MyST); `toctree` names the pages below it."""
    parts = []
    for kind, content, caption in blocks:
        if kind == "heading":
            parts.append(f"{'#' * content[0]} {content[1]}")
        elif kind == "text":
            parts.append(content)
        elif kind == "list":
            parts.append("\n".join(f"- {item}" for item in content))
        elif kind == "code":
            parts.append(f"```console\n$ {content}\n```")
        elif kind == "figure":
            parts.append(f"![{caption}](figures/{content.name})\n\n{caption}")
        else:
            header, rows = content
            lines = [header, ["---"] * len(header), *rows]
            cells = (" | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in line) for line in lines)
            parts.append("\n".join(f"| {line} |" for line in cells) + f"\n\n{caption}")
    if toctree:
        parts.append("```{toctree}\n:hidden:\n\n" + "\n".join(toctree) + "\n```")
    return "\n\n".join(parts) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """Return a page as HTML."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["link"] = _link
    template = resources.files("margindist.papers") / "templates" / "reproduction.html.j2"
    title = next((content[1] for kind, content, _ in blocks if kind == "heading"), "margindist")
    return environment.from_string(template.read_text(encoding="utf-8")).render(title=title, blocks=blocks)


def _link(cell):
    """A cell's lines as HTML, and a Markdown link at its beginning as a link to the HTML page."""
    from markupsafe import Markup, escape

    if cell.startswith("[") and "](" in cell:
        text, _, target = cell[1:-1].partition("](")
        return Markup(f'<a href="{escape(target.removesuffix(".md"))}.html">{escape(text)}</a>')
    return Markup("<br>").join(escape(line) for line in cell.split("\n"))
