"""One colour and one line style for one method, in every figure and report.

The colours are the four of Okabe and Ito (2008) that stand out both on white and on a dark ground (contrast at least 3
on either) and a grey for scikit-learn's classifiers. Colour-blind readers can tell any two of them apart; in print
without colour the line styles do it.
"""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from margindist.methods import CLASSIFIERS

COLOURS = {"blue": "#0072B2", "red": "#D55E00", "green": "#009E73", "purple": "#CC79A7", "grey": "#767676"}

# On and off lengths in units of the line width, as Matplotlib takes them.
LINES = {
    "solid": "solid",
    "dashed": (0, (4.5, 1.8)),
    "dotted": (0, (1.1, 1.3)),
    "dash-dot": (0, (6.0, 1.6, 1.1, 1.6)),
    "dash-dot-dot": (0, (6.0, 1.4, 1.1, 1.4, 1.1, 1.4)),
    "long": (0, (10.0, 3.0)),
}

SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "margindist",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}


class MethodStyle(NamedTuple):
    """How a method is drawn, in Matplotlib's words.

    Parameters
    ----------
    color : str
        Colour, as ``"#rrggbb"``.
    linestyle : str or tuple
        Line style: a name, or an offset with the lengths of dashes and gaps.
    """

    color: str
    linestyle: Any


def _key(name):
    """Return a name without case, blanks, hyphens and the word "classifier"."""
    return "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("classifier")


def _style(color, line):
    return MethodStyle(COLOURS[color], LINES[line])


# Methods that a paper compares differ in line style, as far as six styles allow. These have no class of their own here:
_OTHERS = {
    "svm": ("red", "dashed"),
    "mcsvm": ("red", "dotted"),
    "ridge": ("grey", "dash-dot"),
    "sgd": ("grey", "dashed"),
}


def _declared_styles():
    """Return the style of every name of a method that has one of its own."""
    declared = dict(_OTHERS)
    for classifier in reversed(CLASSIFIERS):  # of two that share a class, the first gives the class its style
        if classifier.style is not None:
            names = (classifier.name, classifier.label, *classifier.aliases)
            declared |= {_key(name): classifier.style for name in names}
    return {name: _style(*style) for name, style in declared.items()}


def method_styles(names: Sequence[str]) -> list[MethodStyle]:
    """Return a style for each name, no two the same as long as there are styles left.

    A method of this library, or one of scikit-learn's it is compared with, always has the same style. Any other name
    also keeps its style from figure to figure, unless another name of the same figure has taken it.

    Parameters
    ----------
    names : sequence of str
        Names of the methods shown together.

    Returns
    -------
    list of MethodStyle

    Examples
    --------
    >>> from margindist.margins import method_styles
    >>> method_styles(["LDM", "LS-SVM"]) == method_styles(["LDMClassifier", "LSSVM"])
    True
    """
    declared = _declared_styles()
    every = (_style(color, line) for line in LINES for color in COLOURS)
    free = [style for style in every if style not in declared.values()]
    styles, taken = [], set()
    for name in names:
        style = declared.get(_key(name))
        if style is None:
            first = zlib.crc32(name.encode())
            slots = [(first + k) % len(free) for k in range(len(free))]
            slot = next((slot for slot in slots if slot not in taken), slots[0])
            taken.add(slot)
            style = free[slot]
        styles.append(style)
    return styles
