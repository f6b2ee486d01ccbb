"""Small figures as SVG text: axes, lines, points. The page gives axes and text their colours, light or dark."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from margindist.margins import MethodStyle


def dashes(style: MethodStyle, width: float) -> str:
    """Return a method's line style as SVG's ``stroke-dasharray``."""
    return (
        "none" if isinstance(style.linestyle, str) else " ".join(f"{part * width:.1f}" for part in style.linestyle[1])
    )


class Figure:
    """A rectangle with axes, to which lines and points are added; ``str`` gives the SVG.

    Parameters
    ----------
    size : (float, float)
        Width and height in pixels; the page may shrink it.
    x, y : (float, float)
        Ends of the axes.
    title, x_label, y_label : str
    log : bool
        Whether the horizontal axis is logarithmic.
    at : sequence of float, optional
        Where the horizontal axis has its numbers; round values if None.
    describe : str
        What the figure shows, for those who cannot see it.
    """

    def __init__(self, size, x, y, *, title="", x_label="", y_label="", log=False, at=None, describe=""):
        self.width, self.height = size
        self.left, self.right, self.top, self.bottom = 44.0, 16.0, 24.0 if title else 8.0, 40.0 if x_label else 22.0
        self.log = log
        self.x = tuple(map(self._unit, _widened(x, log)))
        if at is not None:  # room for the outermost points
            room = 0.04 * (self.x[1] - self.x[0])
            self.x = self.x[0] - room, self.x[1] + room
        self.y = _widened(y, False)
        self.title, self.x_label, self.y_label, self.describe = title, x_label, y_label, describe or title
        self._at = at
        self._drawn: list[str] = []

    def _unit(self, value):
        return np.log10(value) if self.log else float(value)

    def _across(self, value):
        low, high = self.x
        return self.left + (self._unit(value) - low) / (high - low) * (self.width - self.left - self.right)

    def _up(self, value):
        low, high = self.y
        return self.height - self.bottom - (value - low) / (high - low) * (self.height - self.top - self.bottom)

    def line(self, x: Sequence[float], y: Sequence[float], style: MethodStyle, width: float, name: str) -> None:
        """Draw a line through points; its name is shown where the pointer rests on it."""
        points = " ".join(f"{self._across(a):.1f},{self._up(b):.1f}" for a, b in zip(x, y))
        self._drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{escape(style.color)}" stroke-width="{width}" '
            f'stroke-dasharray="{dashes(style, width)}" stroke-linejoin="round">'
            f"<title>{escape(name)}</title></polyline>"
        )

    def band(self, x: Sequence[float], low: Sequence[float], high: Sequence[float], style: MethodStyle) -> None:
        """Shade between two lines."""
        there = [f"{self._across(a):.1f},{self._up(b):.1f}" for a, b in zip(x, high)]
        back = [f"{self._across(a):.1f},{self._up(b):.1f}" for a, b in zip(x, low)][::-1]
        self._drawn.append(f'<polygon points="{" ".join(there + back)}" fill="{escape(style.color)}" opacity="0.15"/>')

    def dots(self, x: Sequence[float], y: Sequence[float], style: MethodStyle) -> None:
        """Draw points."""
        for a, b in zip(x, y):
            self._drawn.append(
                f'<circle cx="{self._across(a):.1f}" cy="{self._up(b):.1f}" r="2.6" fill="{style.color}"/>'
            )

    def upright(self, value: float) -> None:
        """Draw an upright line at a value."""
        at = f"{self._across(value):.1f}"
        self._drawn.append(f'<line class="zero" x1="{at}" x2="{at}" y1="{self.top}" y2="{self.height - self.bottom}"/>')

    def __html__(self) -> Markup:
        return Markup(str(self))

    def __str__(self) -> str:
        # The frame cuts off what lies beyond the axes.
        x, y, w, h = self.left, self.top, self.width - self.left - self.right, self.height - self.top - self.bottom
        inside = f'x="{x}" y="{y}" width="{w}" height="{h}" viewBox="{x} {y} {w} {h}" overflow="hidden"'
        return (
            f'<svg class="figure" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.describe)}" style="max-width:{self.width * 1.25:g}px">'
            f"{self._axes()}<svg {inside}>{''.join(self._drawn)}</svg></svg>"
        )

    def _axes(self):
        base, end = self.height - self.bottom, self.width - self.right
        parts = []
        for value, text in self._x_ticks():
            at = self._across(value)
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{self.top}" y2="{base}"/>')
            parts.append(f'<text x="{at:.1f}" y="{base + 14:.1f}" text-anchor="middle">{text}</text>')
        for value in ticks(*self.y, most=5):
            at = self._up(value)
            parts.append(f'<line class="grid" x1="{self.left}" x2="{end}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text x="{self.left - 5}" y="{at + 3.5:.1f}" text-anchor="end">{_short(value)}</text>')
        if self.title:
            parts.append(f'<text class="title" x="{self.left}" y="14">{escape(self.title)}</text>')
        if self.x_label:
            middle = (self.left + end) / 2
            parts.append(
                f'<text x="{middle:.1f}" y="{self.height - 6}" text-anchor="middle">{escape(self.x_label)}</text>'
            )
        if self.y_label:
            middle = (self.top + base) / 2
            parts.append(
                f'<text transform="rotate(-90 10 {middle:.1f})" x="10" y="{middle + 3:.1f}" text-anchor="middle">'
                f"{escape(self.y_label)}</text>"
            )
        return "".join(parts)

    def _x_ticks(self):
        if self._at is None:
            return [(value, _short(value)) for value in ticks(*self.x, most=6)]
        return [(value, _power(value)) for value in self._at]


def strip(scores: Sequence[float], low: float, high: float, style: MethodStyle, name: str) -> Markup:
    """Return a line of points, one a score, with a bar at their mean."""
    width, height = 104.0, 18.0
    span = (high - low) or 1.0

    def place(value):
        return 5.0 + (value - low) / span * (width - 10.0)

    dots = "".join(f'<circle cx="{place(score):.1f}" cy="9" r="2.6"/>' for score in scores)
    mean = place(float(np.mean(scores)))
    label = f"{name}: {min(scores):.3f} to {max(scores):.3f}"
    return Markup(
        f'<svg class="strip" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(label)}"><line class="grid" x1="2" x2="{width - 2:g}" y1="9" y2="9"/>'
        f'<g fill="{style.color}" fill-opacity="0.7">{dots}</g>'
        f'<line class="mean" x1="{mean:.1f}" x2="{mean:.1f}" y1="2" y2="16"/></svg>'
    )


def sample(style: MethodStyle) -> Markup:
    """Return a piece of a method's line, for legends."""
    return Markup(
        f'<svg class="sample" width="34" height="10" viewBox="0 0 34 10" aria-hidden="true">'
        f'<line x1="0" x2="34" y1="5" y2="5" stroke="{style.color}" stroke-width="2.2" '
        f'stroke-dasharray="{dashes(style, 2.2)}"/></svg>'
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values between two ends, at most so many."""
    raw = (high - low) / most
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))
    first = np.ceil(low / step - 1e-9)
    return [float(np.round(k * step, 10)) + 0.0 for k in np.arange(first, np.floor(high / step + 1e-9) + 1)]


def _widened(ends: tuple[Any, Any], log: bool) -> tuple[float, float]:
    low, high = map(float, ends)
    if low < high:
        return low, high
    return (low / 2.0, high * 2.0) if log else (low - 0.5, high + 0.5)


def _short(value):
    return _minus(f"{value + 0.0:.4g}")  # no negative zero


def _power(value):
    """A value that needs many digits as a power of ten or two, if it is one."""
    text = f"{value:g}"
    for base in (10, 2):
        exponent = np.log(value) / np.log(base) if value > 0 else 0.5
        if len(text) > 4 and abs(exponent - round(exponent)) < 1e-9:
            return f'{base}<tspan class="power" dy="-4">{_minus(round(exponent))}</tspan>'
    return _minus(text)


def _minus(value):
    return str(value).replace("-", "−")
