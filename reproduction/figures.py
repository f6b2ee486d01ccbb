"""The papers' figures drawn from our results, like the originals; small SVG files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from margindist.files import written_whole
from margindist.margins import method_styles
from margindist.margins.palette import COLOURS, LINES, SETTINGS
from reproduction.claims import READINGS, margin_curves
from reproduction.findings import Findings

_MOST_PANELS = 20
_SETTINGS = SETTINGS | {"figure.constrained_layout.use": True}


def draw(found: Findings, folder: Path) -> list[tuple[Path, str]]:
    """Draw what an experiment has to show; return the files and their captions.

    Parameters
    ----------
    found : Findings
    folder : Path
        Made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, caption, drawing in _drawings(found):
        with figure_file(folder / f"{found.experiment.id}{name}.svg") as (path, plt):
            if drawing(found, plt):
                drawn.append((path, caption))
    return drawn


def _drawings(found: Findings) -> list[tuple[str, str, Callable]]:
    kind = found.experiment.kind
    if kind == "margins":
        histogram = found.experiment.settings.get("y") == "frequency"
        what = "Histograms" if histogram else "Cumulative frequency"
        readings = found.experiment.verdict.get("readings", READINGS[1:])
        return [
            (suffix, f"{what} of the margins of the training rows, {reading}.", partial(_margins, reading=reading))
            for suffix, reading in zip(("", "-geometric"), readings)
        ]
    if kind == "time":
        return [("", "Processor seconds, mean over splits.", _times)]
    if kind == "influence":
        return [("", "Test accuracy with one parameter varied, mean over splits; a line per data set.", _influence)]
    if kind == "updates":
        by = "updates" if found.experiment.settings.get("x") == "updates" else "processor seconds"
        return [("", f"Margin reached after so many {by}, mean over draws.", _updates)]
    if found.experiment.settings.get("x") == "number of classes":
        return [("", "Test accuracy with the number of classes, mean over splits.", _classes)]
    return [
        ("-print", "Our mean accuracy against the printed one; bars are one printed standard deviation.", _print),
        ("-ranks", "Average ranks (1 is best); a bar joins methods that Nemenyi's test does not tell apart.", _ranks),
    ]


@contextmanager
def figure_file(path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path and Matplotlib's pyplot; what is drawn in the block is written there as SVG."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context(_SETTINGS):
        yield path, plt
        if plt.get_fignums():
            with written_whole(path) as file:
                plt.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
            plt.close("all")


def _styles(found):
    labels = [method.label for method in found.experiment.methods]
    return {
        m.key: {"color": style.color, "linestyle": style.linestyle, "label": m.label}
        for m, style in zip(found.experiment.methods, method_styles(labels))
    }


def _grid(plt, n, width=2.1, height=1.7, most_columns=5):
    columns = min(n, most_columns)
    rows = -(-n // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(max(width * columns, 3.6), height * rows + 0.5), squeeze=False)
    for ax in axes.flat[n:]:
        ax.set_axis_off()
    return figure, list(axes.flat[:n])


def _legend(figure, ax, columns=7):
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)), frameon=False)


# ---------------------------------------------------------------------- tables


def _print(found, plt):
    styles = _styles(found)
    points = {
        method.key: [
            entry
            for line in found.experiment.data
            if (entry := found.entries[line.key, method.key]).scores and entry.printed_mean is not None
        ]
        for method in found.experiment.methods
    }
    points = {key: entries for key, entries in points.items() if entries}
    if not points:
        return False
    figure, ax = plt.subplots(figsize=(4.2, 4.0))
    for (key, entries), marker in zip(points.items(), "osD^vP*X"):
        x, y = [entry.printed_mean for entry in entries], [entry.mean for entry in entries]
        ax.errorbar(
            x, y, xerr=[entry.printed_std or 0.0 for entry in entries], fmt=marker, markersize=3.5, elinewidth=0.5,
            color=styles[key]["color"], label=styles[key]["label"], alpha=0.8,
        )  # fmt: skip
    ends = [min(ax.get_xlim()[0], ax.get_ylim()[0]), max(ax.get_xlim()[1], ax.get_ylim()[1])]
    ax.plot(ends, ends, color="0.5", linewidth=0.6, zorder=0)
    ax.set(xlabel="printed", ylabel="ours", xlim=ends, ylim=ends, aspect="equal")
    _legend(figure, ax, columns=4)
    return True


def _ranks(found, plt):
    if found.critical_difference is None:
        return False
    ranks_diagram(plt, found.ranks, found.labels, found.critical_difference, len(found.complete))
    return True


def ranks_diagram(plt: Any, ranks: Mapping, labels: Mapping, critical_difference: float, n_datasets: int) -> None:
    """Draw average ranks, with bars that join what Nemenyi's test does not tell apart."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    n = len(ordered)
    figure, ax = plt.subplots(figsize=(5.2, 0.5 + 0.2 * n))
    ax.set(xlim=(0.8, n + 0.2), ylim=(-0.5 * n - 1.0, 1.6))
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.spines["top"].set_visible(True)
    ax.xaxis.tick_top()
    ax.set_yticks([])
    for place, (key, rank) in enumerate(ordered):
        left = place < (n + 1) // 2
        depth = -(place if left else n - 1 - place) - 0.8
        end = 0.8 if left else n + 0.2
        ax.plot([rank, rank, end], [1.6, depth, depth], color="0.3", linewidth=0.7, clip_on=False)
        ax.text(end, depth, f" {labels[key]} ({rank:.2f}) ", ha="right" if left else "left", va="center", clip_on=False)
    for step, (first, last) in enumerate(_groups([rank for _, rank in ordered], critical_difference)):
        height = 1.2 - 0.35 * step
        ax.plot([ordered[first][1] - 0.05, ordered[last][1] + 0.05], [height] * 2, color="0.1", linewidth=2.5)
    figure.suptitle(f"critical difference {critical_difference:.2f}, {n_datasets} data sets", fontsize=8)


def _groups(ranks, difference):
    """Longest runs of neighbours whose ranks differ by no more than the critical difference."""
    found = []
    for first in range(len(ranks)):
        last = max(k for k in range(first, len(ranks)) if ranks[k] - ranks[first] <= difference)
        if last > first and not any(a <= first and last <= b for a, b in found):
            found.append((first, last))
    return found


def _classes(found, plt):
    styles = _styles(found)
    figure, ax = plt.subplots(figsize=(4.2, 3.0))
    drawn = False
    for method in found.experiment.methods:
        points = [(line.classes, found.entries[line.key, method.key]) for line in found.experiment.data]
        points = [(k, entry.mean) for k, entry in points if entry.scores]
        if points:
            ax.plot(*zip(*points), marker="o", markersize=2.5, linewidth=1.2, **styles[method.key])
            drawn = True
    ax.set(xlabel="number of classes", ylabel="test accuracy")
    if drawn:
        _legend(figure, ax, columns=3)
    return drawn


# ---------------------------------------------------------------------- figures


def _margins(found, plt, reading):
    curves = margin_curves(found, reading)
    panels = [line for line in found.experiment.data if any(key == line.key for key, _ in curves)][:_MOST_PANELS]
    if not panels:
        return False
    styles, histogram = _styles(found), found.experiment.settings.get("y") == "frequency"
    figure, axes = _grid(plt, len(panels), most_columns=3 if histogram else 5)
    for ax, line in zip(axes, panels):
        for key in [key for key in found.labels if (line.key, key) in curves]:
            quantiles = curves[line.key, key]
            levels = np.linspace(0.0, 1.0, len(quantiles))
            if histogram:
                sample = np.interp((np.arange(1000) + 0.5) / 1000, levels, quantiles)
                heights, edges = np.histogram(sample, bins=30)
                ax.stairs(heights / 1000, edges, **styles[key])
            else:
                ax.plot(quantiles[::2], levels[::2], linewidth=1.0, **styles[key])
        ax.axvline(0.0, color="0.7", linewidth=0.5, zorder=0)
        ax.set_title(line.printed, fontsize=8)
    for ax in axes[-min(len(axes), 3 if histogram else 5) :]:
        ax.set_xlabel("margin")
    figure.supylabel("frequency" if histogram else "cumulative frequency", fontsize=8)
    _legend(figure, axes[0])
    return True


def _times(found, plt):
    lines = found.lines
    if not lines:
        return False
    styles = _styles(found)
    figure, ax = plt.subplots(figsize=(max(3.6, 0.32 * len(lines) + 1.6), 3.2))
    for method in found.experiment.methods:
        points = [(x, found.entries[line.key, method.key]) for x, line in enumerate(lines)]
        points = [(x, entry.mean) for x, entry in points if entry.scores]
        if points:
            ax.plot(*zip(*points), marker="o", markersize=2.5, linewidth=0.8, **styles[method.key])
    ax.set_xticks(range(len(lines)), [line.printed for line in lines], rotation=60, ha="right")
    ax.set(yscale="log", ylabel="processor seconds")
    _legend(figure, ax, columns=4)
    return True


def _influence(found, plt):
    curves = found.influences
    methods = [method for method in found.experiment.methods if any(key[0] == method.key for key in curves)]
    names = found.experiment.settings["vary"]
    if not methods:
        return False
    lines = [line for line in found.experiment.data if any(key[2] == line.key for key in curves)]
    styles = dict(zip([line.key for line in lines], data_styles()))
    size = 2.6 * len(names), 2.2 * len(methods) + 1.0
    figure, axes = plt.subplots(len(methods), len(names), figsize=size, squeeze=False)
    for row, method in zip(axes, methods):
        for ax, name in zip(row, names):
            for line in lines:
                if (method.key, name, line.key) in curves:
                    color, linestyle = styles[line.key]
                    ax.plot(
                        *curves[method.key, name, line.key], marker=".", markersize=2, linewidth=0.8, color=color,
                        linestyle=linestyle, label=line.printed,
                    )  # fmt: skip
            ax.set_xscale("log", base=2 if name != "C" else 10)
            ax.set(xlabel=name if name != "C" else _label_of_C(method), ylim=(0.5, 1.0))
        row[0].set_ylabel(f"{method.label}\ntest accuracy")
    _legend(figure, axes[0, 0], columns=6)
    return True


def data_styles() -> list[tuple[str, Any]]:
    """Return colours and lines for data sets, no two of which look alike."""
    return [(color, line) for line in LINES.values() for color in COLOURS.values()]


def _label_of_C(method):
    unit = next(axis.unit for axis in method.grid if axis.parameter == "C")
    return "C" if unit == "1" else "C m"


def _updates(found, plt):
    x_name = "n_updates" if found.experiment.settings.get("x") == "updates" else "seconds"
    curves = found.histories
    if not curves:
        return False
    parts = [found.experiment.settings["upper"], found.experiment.settings["lower"]]
    extra = [m.key for m in found.experiment.methods if not any(m.key in part for part in parts)]
    parts[0] = [*parts[0], *extra]
    styles = _styles(found)
    figure, axes = plt.subplots(2, len(found.experiment.data), figsize=(7.6, 4.6), squeeze=False)
    for row, part in zip(axes, parts):
        for ax, line in zip(row, found.experiment.data):
            for key in part:
                histories = [result.detail["history"] for result in curves.get((line.key, key), ())]
                if histories:
                    ax.plot(*_mean_curve(histories, x_name), linewidth=1.1, **styles[key])
            ax.set_xscale("log")
            ax.set_title(line.printed, fontsize=8)
            if ax.lines:
                ax.legend(fontsize=6, frameon=False)
    figure.supxlabel("updates" if x_name == "n_updates" else "processor seconds", fontsize=8)
    figure.supylabel("margin", fontsize=8)
    return True


def _mean_curve(histories, x_name):
    """Return the mean margin over the draws at common points; a draw that has ended keeps its last margin."""
    starts, ends = zip(*((max(h[x_name][0], 1e-5), max(h[x_name][-1], 2e-5)) for h in histories))
    x = np.geomspace(max(starts), max(ends), 60)
    y = [np.interp(np.log(x), np.log(np.maximum(h[x_name], 1e-5)), h["margin"]) for h in histories]
    return x, np.mean(y, axis=0)
