"""The plots of a report: small functions of stored results, each an SVG text in the colours of its page."""

import re
from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from margindist.compare.closer_look import BINS, RATES
from margindist.compare.comparison import QUANTILES, Comparison
from margindist.compare.scoring import LABELS
from margindist.compare.verdict import Score
from margindist.margins.palette import SETTINGS
from margindist.methods import BY_KEY

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_DRAWN = 6  # methods of one kind per figure; more could not be told apart
_BARS = 12
_MARKERS = {"linear": "o", "rbf": "s", "trees": "^"}
_LETTERS = 28  # of a column's name
_INK = "#010203"  # becomes the page's own colour, light or dark
_SOFT = "#040506"  # becomes the same, paler
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_ON_A_PAGE = SETTINGS | {
    "axes.axisbelow": True,
    "axes.edgecolor": _SOFT,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 9,
    "grid.color": _SOFT,
    "grid.linewidth": 0.5,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}


# ---------------------------------------------------------------------- figures on a page


def new_figure(width: float, height: float) -> "tuple[Figure, Any]":
    """Return a figure of this size in pixels, and its axes, for :func:`inline_svg`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_ON_A_PAGE):
        figure = Figure((width / 72.0, height / 72.0))
        return figure, figure.subplots()


def named(artists: "Sequence[Artist]", name: str) -> None:
    """Give artists a name, which a page shows where the pointer rests on them."""
    for artist in artists:
        artist.set_gid(f"named {name}")


def logarithmic(axes: Any, base: int = 10) -> None:
    """Make the horizontal axis logarithmic, with labels like 10⁻³ as text: formulas take longer than the figure."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Powers(LogFormatterSciNotation):
        """Matplotlib's labels, without TeX."""

        def __call__(self, value: float, position: int | None = None) -> str:
            return _without_tex(super().__call__(value, position))

    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter(Powers(base))
    axes.xaxis.set_minor_formatter(Powers(base))


def _without_tex(label: str) -> str:
    r"""Return a label of a logarithmic axis as text.

    >>> _without_tex(r"$\mathdefault{2\times10^{-3}}$")
    '2×10⁻³'
    """
    label = label.removeprefix(r"$\mathdefault{").removesuffix("}$").replace(r"\times", "×")
    return re.sub(r"\^\{(-?\d+)\}", lambda power: power[1].translate(_SUPERSCRIPTS), label)


def inline_svg(figure: "Figure", describe: str) -> str:
    """Return a figure as SVG text to be put into a page.

    Parameters
    ----------
    figure : Figure
        Made by :func:`new_figure`.
    describe : str
        What it shows, for those who cannot see it.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_alpha(0.0)
    with mpl.rc_context(_ON_A_PAGE):
        figure.tight_layout(pad=0.4)
        written = StringIO()
        canvas = FigureCanvasSVG(figure)  # savefig would draw twice: once unseen, for layouts that this one has not
        canvas.print_svg(written, metadata=dict.fromkeys(("Date", "Creator", "Format")))
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="named ([^"]*)">', r"<g><title>\1</title>", text)
    text = re.sub(r' id="(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib\.axis|PolyCollection)_\d+"', "", text)
    text = re.sub(r"\s*\n\s*", " ", text)
    text = text.replace(_INK, "currentColor").replace(f"stroke: {_SOFT}", "stroke: currentColor; stroke-opacity: 0.25")
    box = re.search(r'viewBox="([^"]*)"', text)[1]
    width = float(box.split()[2])
    head = (
        f'<svg class="figure" viewBox="{box}" role="img" aria-label="{escape(describe)}" '
        f'style="max-width:{1.25 * width:.0f}px">'
    )
    return head + text[text.index(">") + 1 :].strip()


# ---------------------------------------------------------------------- plots of results


def looks_of(comparison: Comparison, key: str, part: str) -> list[Any]:
    """Return a part of the closer look at a method, from every split that has it."""
    return [
        getattr(look.detail, part)
        for look in comparison.looks
        if look.cell.method == key and getattr(look.detail, part)
    ]


def time_and_score(comparison: Comparison, styles: dict) -> Markup:
    """Draw what methods score against the time a fit takes; numbers are ranks."""
    figure, axes = new_figure(460, 300)
    score = Score(comparison.plan.scoring)
    base = float(score.text(comparison.baseline))
    points = [(row.fit_seconds, float(score.text(row.score))) for row in comparison.rows]
    values = sorted(value for _, value in points)
    low, high = values[0], values[-1]
    room = 0.08 * (high - low) or 0.02
    logarithmic(axes)
    for row, (seconds, value) in reversed(list(zip(comparison.rows, points))):
        color = styles[row.method].color
        ranked = row.rank is not None
        drawn = axes.plot(
            seconds, value, _MARKERS[BY_KEY[row.method].kind], markersize=11, color=color,
            markerfacecolor=color if ranked else "none", markeredgecolor=color,
        )  # fmt: skip
        named(drawn, f"{row.label}: {score.spread(row)}")
        if ranked:
            axes.annotate(str(row.rank), (seconds, value), color="white", ha="center", va="center", fontsize=6.5)
    if low - room <= base <= high + room:
        axes.axhline(base, color="#767676", linewidth=1.2, linestyle="--")
    axes.set(xlabel="fit time [s]", ylabel=score.label, ylim=(low - room, high + room))
    if score.name == "log_loss":
        axes.invert_yaxis()
    return Markup(inline_svg(figure, f"{score.label} of every method against the time of a fit"))


def learning_curve(comparison: Comparison, styles: dict) -> Markup | None:
    """Draw the score after fits to parts of the training rows."""
    figure, axes = new_figure(460, 280)
    for key in comparison.looked_at:
        sizes, mean, spread = learning(looks_of(comparison, key, "learning"))
        if len(sizes) < 2:
            return None
        style = styles[key]
        axes.fill_between(sizes, mean - spread, mean + spread, color=style.color, alpha=0.12, linewidth=0)
        named(axes.plot(sizes, mean, linewidth=2.2, **style._asdict()), BY_KEY[key].label)
        axes.plot(sizes, mean, "o", color=style.color, markersize=4)
    name = "accuracy" if comparison.plan.scoring == "log_loss" else comparison.plan.scoring
    axes.set(xlabel="training rows", ylabel=LABELS.get(name, name), xlim=(0, None))
    return Markup(inline_svg(figure, f"{LABELS.get(name, name)} against the number of training rows"))


def learning(curves: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sizes that every split has, with mean and standard deviation of the score at each."""
    if not curves:
        return np.empty(0), np.empty(0), np.empty(0)
    length = min(map(len, curves))
    table = np.array([curve[-length:] for curve in curves], dtype=float)
    return table[:, :, 0].mean(axis=0), table[:, :, 1].mean(axis=0), table[:, :, 1].std(axis=0)


def two_class_curves(comparison: Comparison, styles: dict) -> list[Markup]:
    """Draw the ROC and the precision-recall curve, means over the splits, if there are two classes."""
    outcome = []
    rare = comparison.plan.positive
    counts = comparison.about.classes
    wanted = (
        ("roc", "ROC", "false-positive rate", f"true-positive rate ({rare})"),
        (
            "precision",
            "Precision and recall",
            f"recall ({rare})",
            f"precision ({rare})",
        ),
    )
    for part, title, xlabel, ylabel in wanted:
        curves = {key: looks_of(comparison, key, part) for key in comparison.looked_at}
        if not all(curves.values()):
            continue
        figure, axes = new_figure(340, 300)
        chance = RATES if part == "roc" else np.full_like(RATES, counts[rare] / sum(counts.values()))
        axes.plot(RATES, chance, color="#767676", linewidth=1.0, linestyle="--")
        for key in reversed(list(curves)):
            named(
                axes.plot(RATES, np.mean(curves[key], axis=0), linewidth=2.2, **styles[key]._asdict()),
                BY_KEY[key].label,
            )
        labels = [_plain(text) for text in (xlabel, ylabel)]
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1], xlim=(0.0, 1.0), ylim=(0.0, 1.02))
        outcome.append(Markup(inline_svg(figure, f"{title} of {', '.join(BY_KEY[key].label for key in curves)}")))
    return outcome


def calibration_curve(comparison: Comparison, styles: dict) -> Markup | None:
    """Draw how often what was claimed with some probability was true."""
    figure, axes = new_figure(340, 300)
    axes.plot([0.0, 1.0], [0.0, 1.0], color="#767676", linewidth=1.0, linestyle="--")
    for key in reversed(comparison.looked_at):
        sums = looks_of(comparison, key, "calibration")
        if not sums:
            return None
        rows, claimed, true = np.sum(sums, axis=0)
        filled = rows >= max(1, rows.sum() / (10 * BINS))  # a bin of few rows is noise
        curve = claimed[filled] / rows[filled], true[filled] / rows[filled]
        named(axes.plot(*curve, linewidth=2.2, **styles[key]._asdict()), BY_KEY[key].label)
        axes.plot(*curve, "o", color=styles[key].color, markersize=4)
    what = comparison.plan.positive or "the predicted class"
    axes.set(
        title="Calibration", xlabel=_plain(f"predicted probability of {what}"), ylabel="observed frequency",
        xlim=(0.0, 1.0), ylim=(0.0, 1.02),
    )  # fmt: skip
    return Markup(inline_svg(figure, "Predicted probabilities against observed frequencies"))


class Importance(NamedTuple):
    """The features that matter to a method, the figure and what its bars are."""

    figure: Markup
    kind: str
    hidden: int


def importance(comparison: Comparison, key: str, styles: dict) -> Importance | None:
    """Draw the features that matter most: by how much the score falls without them, or by their weights."""
    for kind in ("importance", "weights"):
        outcome = looks_of(comparison, key, kind)
        if outcome:
            break
    else:
        return None
    names = list(dict.fromkeys(name for split in outcome for name in split))
    values = np.array([[split.get(name, 0.0) for name in names] for split in outcome])
    order = np.argsort(-values.mean(axis=0), kind="stable")[:_BARS][::-1]
    figure, axes = new_figure(460, 60 + 18 * len(order))
    places = np.arange(len(order))
    axes.barh(places, values.mean(axis=0)[order], xerr=values.std(axis=0)[order], height=0.62, color=styles[key].color,
              error_kw={"ecolor": "#767676", "elinewidth": 1.0})  # fmt: skip
    axes.set_yticks(places, [_plain(names[k]) for k in order])
    axes.grid(visible=False, axis="y")
    fall = "permutation importance (fall of the score)"
    axes.set_xlabel(fall if kind == "importance" else "largest absolute weight")
    described = f"The columns that matter most to {BY_KEY[key].label}"
    return Importance(Markup(inline_svg(figure, described)), kind, len(names) - len(order))


def _plain(text):
    """A name in a figure: short, and without dollar signs, which would begin a formula."""
    text = " ".join(str(text).split())
    short = text if len(text) <= _LETTERS + 30 else f"{text[: _LETTERS + 29]}…"
    return short.replace("$", r"\$")


class Panel(NamedTuple):
    """A figure with the methods drawn in it."""

    figure: Markup
    keys: list[str]
    others: int


def distributions(comparison, done, styles):
    """Cumulative margin distributions, one panel for linear methods and one for kernel methods."""
    panels = []
    for kind, title in (("linear", "Linear methods"), ("rbf", "Methods with the RBF kernel")):
        ranked = [row.method for row in comparison.rows if BY_KEY[row.method].kind == kind]
        keys = _shown(ranked, comparison.reference)
        if keys:
            panels.append(Panel(_cumulative(title, keys, done, styles), keys, len(ranked) - len(keys)))
    return panels


def _cumulative(title, keys, done, styles):
    """Draw the share of rows up to each margin: thin lines are training parts, bold ones test parts."""
    figure, axes = new_figure(460, 320)
    curves = {(key, part): _mean_quantiles(done[key], part) for key in keys for part in ("train", "test")}
    low = min(np.quantile(curve, 0.01) for curve in curves.values())
    high = max(np.quantile(curve, 0.99) for curve in curves.values())
    axes.axvline(0.0, color="#767676", linewidth=1.0)
    for key in reversed(keys):
        for part, width in (("train", 1.0), ("test", 2.2)):
            drawn = axes.plot(curves[key, part], QUANTILES, linewidth=width, **styles[key]._asdict())
            named(drawn, f"{BY_KEY[key].label}, {part}")
    axes.set(
        title=title, xlabel="margin (1 = root mean square in training)", ylabel="cumulative share of rows",
        ylim=(0.0, 1.0), xlim=(low, high) if low < high else None,
    )  # fmt: skip
    labels = ", ".join(BY_KEY[key].label for key in keys)
    return Markup(inline_svg(figure, f"{title}: cumulative margin distributions of {labels}"))


def _shown(ranked, machine):
    """The best methods of one kind, and the support vector machine if it is one of them."""
    keys = ranked[:_DRAWN]
    if machine in ranked and machine not in keys:
        keys = [*keys[:-1], machine]
    return keys


def _mean_quantiles(results, part):
    return np.mean([getattr(result.detail.margins, part).quantiles for result in results], axis=0)


class Influence(NamedTuple):
    """What the parameters of a method do to its score, one figure per parameter."""

    key: str
    figures: list[Markup]


def influences(comparison, done, styles):
    """Return what the parameters do, method by method."""
    outcome = []
    for row in comparison.rows:
        profiles = {name: _profile(done[row.method], name) for name in _searched(comparison.plan, row.method)}
        profiles = {name: profile for name, profile in profiles.items() if len(profile.values) > 1}
        if profiles:
            figures = [_curve(row, name, profiles, styles[row.method]) for name in profiles]
            outcome.append(Influence(row.method, figures))
    return outcome


def _curve(row, name, profiles, style):
    """Draw the inner score along one parameter; the figures of one method share their vertical axis."""
    figure, axes = new_figure(230, 150)
    values, mean, spread = profiles[name]
    axes.fill_between(values, mean - spread, mean + spread, color=style.color, alpha=0.15, linewidth=0)
    named(axes.plot(values, mean, linewidth=2.0, **style._asdict()), f"{row.label}, {name}")
    axes.plot(values, mean, "o", color=style.color, markersize=4)
    if min(values) > 0 and max(values) / min(values) > 4:
        logarithmic(axes, _base(values))
        axes.set_xticks(values)
        axes.minorticks_off()
    low = min(float((each.mean - each.spread).min()) for each in profiles.values())
    high = max(float((each.mean + each.spread).max()) for each in profiles.values())
    room = 0.05 * (high - low) or 0.05
    axes.set(title=name, ylim=(low - room, high + room))
    return Markup(inline_svg(figure, f"{row.label}: score by {name}"))


def _base(values):
    """Return 2 if all values are powers of two, else 10: what the axis shows as powers."""
    exponents = np.log2(values)
    return 2 if np.allclose(exponents, np.round(exponents)) else 10


def _searched(plan, key):
    return [name for name, values in plan.grids[key].items() if len(values) > 1]


class Profile(NamedTuple):
    """Values of a parameter, with mean and standard deviation of the inner score at each."""

    values: list
    mean: np.ndarray
    spread: np.ndarray


def _profile(results, name):
    """Return the inner score along a parameter when the other parameters are at their best.

    A setting that could not be fitted has no score; a value without any is left out.
    """
    values = np.unique(results[0].detail.influence.settings[name])
    curves = []
    for result in results:
        influence = result.detail.influence
        column = np.array(influence.settings[name])
        scores = np.array([-np.inf if score is None else score for score in influence.scores])
        curves.append([scores[column == value].max() for value in values])
    kept = np.isfinite(curves).all(axis=0)
    curves = np.array(curves)[:, kept]
    return Profile(values[kept].tolist(), curves.mean(axis=0), curves.std(axis=0))
