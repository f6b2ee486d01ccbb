"""Tables and pictures of `benchmarks/results.json`, the one file of measurements, on the benchmark pages.

    ```{benchmark} time-against-gap-linear
    :curves: seconds, above the optimum
    :by: method
    :panels: data, C
    :table: hidden
    ```

`curves` draws one column against another, a line for every value of `by`, a panel for every combination of `panels`.
`dots` draws one line of dots per row, a dot for each of the columns named, labelled by the columns of `rows`. Below
stand the table (folded away with `:table: hidden`), the command that measures it again, the date, the machine and the
versions.
"""

import itertools
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from sphinx.util.docutils import SphinxDirective

from margindist.margins.palette import COLOURS, LINES

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results.json"
GROUNDS = {"only-light": "default", "only-dark": "dark_background"}


def names(argument):
    """Return the names in a list with commas."""
    return [name.strip() for name in argument.split(",")]


def show(value):
    """Return a number in few characters."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.1e}"
    return f"{value:.3g}"


def markdown(rows):
    """Return the lines of a table."""
    ruler = ["--:" if all(isinstance(row[name], float | int) for row in rows) else "---" for name in rows[0]]
    lines = [[*rows[0]], ruler, *([show(value) for value in row.values()] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def styles(labels):
    """Return colour, line and marker of every label: ours, which comes first, solid."""
    looks = zip(labels, itertools.cycle(COLOURS.values()), itertools.cycle(LINES.values()), itertools.cycle("osD^vP"))
    return {label: {"color": color, "linestyle": line, "marker": marker} for label, color, line, marker in looks}


def plain_ticks(axis):
    """Label a logarithmic axis with plain numbers, as many as have room."""
    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    steps = (1, 2, 5) if decades < 1.5 else (1, 3) if decades < 2.5 else (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1.0 else f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def curves(rows, columns, by, panels):
    """Draw the second column against the first, both on logarithmic axes."""
    across, up = columns
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in panels), []).append(row)
    labels = list(dict.fromkeys(row[by] for row in rows))
    style = styles(labels)
    width = min(2, len(groups))
    height = -(-len(groups) // width)
    figure = Figure(figsize=(8.0 if width == 2 else 5.0, 2.7 * height + 0.4), layout="constrained")
    axes = figure.subplots(height, width, squeeze=False, sharey=True).ravel()
    for ax, (group, members) in zip(axes, groups.items(), strict=False):
        for label in labels:
            points = [(row[across], row[up]) for row in members if row[by] == label]
            ax.loglog(*zip(*points, strict=True), label=label, markersize=4, **style[label])
        ax.set_title(", ".join(f"{n} = {show(v)}" if not isinstance(v, str) else v for n, v in zip(panels, group)),
                     loc="left", fontsize="medium")  # fmt: skip
        ax.set_xlabel(across)
        plain_ticks(ax.xaxis)
        ax.grid(alpha=0.25)
    for ax in axes[::width]:
        ax.set_ylabel(up)
    for ax in axes[len(groups) :]:
        ax.remove()
    handles, shown = axes[0].get_legend_handles_labels()
    columns = len(labels) if width > 1 else 2  # what a single panel has room for
    figure.legend(handles, shown, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def dots(rows, columns, labels):
    """Draw a line of dots for each row, on a logarithmic axis."""
    figure = Figure(figsize=(8.0, 0.8 + 0.28 * len(rows)), layout="constrained")
    ax = figure.subplots()
    style = styles([name.removesuffix(" s") for name in columns])
    places = range(len(rows))[::-1]
    for row, place in zip(rows, places, strict=True):
        values = [row[name] for name in columns if isinstance(row[name], float | int)]
        ax.plot([min(values), max(values)], [place, place], color="0.6", linewidth=1, zorder=1)
    for name in columns:
        label = name.removesuffix(" s")
        look = {key: style[label][key] for key in ("color", "marker")}
        there = [(row[name], place) for row, place in zip(rows, places, strict=True) if row[name] not in ("", None)]
        ax.scatter(*zip(*there, strict=True), label=label, s=28, zorder=2, **look)
    ax.set_xscale("log")
    plain_ticks(ax.xaxis)
    ax.set_yticks(list(places), [", ".join(
        value if isinstance(value := row[name], str) else f"{name} = {show(value)}" for name in labels
    ) for row in rows])  # fmt: skip
    ax.set_xlabel("seconds" if all(name.endswith(" s") for name in columns) else "")
    ax.grid(axis="x", alpha=0.25)
    figure.legend(loc="outside upper center", ncols=len(columns), frameon=False)
    return figure


class Benchmark(SphinxDirective):
    """One table of the results, with a picture of it."""

    required_arguments = 1
    option_spec = {
        "curves": names,
        "dots": names,
        "by": directives.unchanged,
        "panels": names,
        "rows": names,
        "table": directives.unchanged,
    }

    def run(self):
        """Return the nodes."""
        key = self.arguments[0]
        self.env.note_dependency(str(RESULTS))
        measured = json.loads(RESULTS.read_text(encoding="utf-8"))
        if key not in measured:
            raise self.error(f"{RESULTS.name} has no {key!r}; it has {', '.join(measured)}.")
        kept = measured[key]
        return [*self.pictures(key, kept["rows"]), *self.parsed(kept)]

    def pictures(self, key, rows):
        """Return the picture twice, for light and for dark pages."""
        found = []
        for ground, style in GROUNDS.items():
            with plt.style.context(style):
                if "curves" in self.options:
                    figure = curves(rows, self.options["curves"], self.options["by"], self.options.get("panels", []))
                elif "dots" in self.options:
                    figure = dots(rows, self.options["dots"], self.options["rows"])
                else:
                    return []
                path = Path(self.env.srcdir, "generated", "benchmarks", f"{key}-{ground}.svg")
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, transparent=True, metadata={"Date": None})
            uri = "/" + path.relative_to(self.env.srcdir).as_posix()
            found.append(nodes.image(uri=uri, alt=f"Picture of the table {key}", classes=[ground]))
        return found

    def parsed(self, kept):
        """Return the table and what it was measured with."""
        with_versions = ", ".join(f"{name} {number}" for name, number in kept["versions"].items())
        source = f"`{kept['command']}`, {kept['date']}; {kept['machine']}; {with_versions}."
        lines = [*markdown(kept["rows"]), "", source]
        if self.options.get("table") == "hidden":
            lines = [":::{dropdown} The numbers", *lines, ":::"]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    """Add the directive."""
    app.add_directive("benchmark", Benchmark)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
