"""Matplotlib figures as small SVG text that takes letters and axes in the colour of the page it stands on."""

import re
from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_INK = "#010203"  # becomes the page's own colour, light or dark
_SOFT = "#040506"  # becomes the same, paler
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "margindist",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}
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
