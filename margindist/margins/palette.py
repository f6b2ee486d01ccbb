"""One colour and one line style for one method, in every figure and report.

The colours are the four of Okabe and Ito (2008) that stand out both on white and on a dark ground (contrast at least 3
on either) and a grey for scikit-learn's classifiers. Colour-blind readers can tell any two of them apart; in print
without colour the line styles do it.
"""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["MethodStyle", "method_styles"]

_BLUE, _RED, _GREEN, _PURPLE, _GREY = COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#767676")

# On and off lengths in units of the line width, as Matplotlib takes them.
_SOLID, _DASHED, _DOTTED, _DASH_DOT, _DASH_DOT_DOT, _LONG = LINES = (
    "solid",
    (0, (4.5, 1.8)),
    (0, (1.1, 1.3)),
    (0, (6.0, 1.6, 1.1, 1.6)),
    (0, (6.0, 1.4, 1.1, 1.4, 1.1, 1.4)),
    (0, (10.0, 3.0)),
)


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


# Keys are names without case, blanks, hyphens and the word "classifier". Methods that a paper compares differ in line
# style as far as six styles go.
_STYLES = {
    "ldm": MethodStyle(_BLUE, _SOLID),
    "svm": MethodStyle(_RED, _DASHED),
    "odm": MethodStyle(_GREEN, _DASH_DOT),
    "mam": MethodStyle(_BLUE, _DOTTED),
    "msvmav": MethodStyle(_PURPLE, _DASH_DOT_DOT),
    "lssvm": MethodStyle(_BLUE, _DASHED),
    "emamc": MethodStyle(_GREEN, _DASH_DOT_DOT),
    "mdo": MethodStyle(_RED, _DASH_DOT),
    "komd": MethodStyle(_PURPLE, _LONG),
    "fmm": MethodStyle(_GREEN, _LONG),
    "svr": MethodStyle(_PURPLE, _SOLID),
    "ecoc": MethodStyle(_BLUE, _LONG),
    "mcsvm": MethodStyle(_RED, _DOTTED),
    "pumma": MethodStyle(_RED, _SOLID),
    "romma": MethodStyle(_PURPLE, _DOTTED),
    "alma": MethodStyle(_PURPLE, _DASH_DOT),
    "micra": MethodStyle(_RED, _DASH_DOT_DOT),
    "linearsvc": MethodStyle(_GREY, _LONG),
    "svc": MethodStyle(_GREY, _DASH_DOT_DOT),
    "logisticregression": MethodStyle(_GREY, _DOTTED),
    "ridge": MethodStyle(_GREY, _DASH_DOT),
    "sgd": MethodStyle(_GREY, _DASHED),
}
_SYNONYMS = {"mamc": "mam", "mcodm": "odm", "kmomd": "komd"}

_FREE = tuple(
    style for line in LINES for color in COLOURS if (style := MethodStyle(color, line)) not in _STYLES.values()
)


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
    styles, taken = [], set()
    for name in names:
        key = "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("classifier")
        style = _STYLES.get(_SYNONYMS.get(key, key))
        if style is None:
            first = zlib.crc32(name.encode())
            slots = [(first + k) % len(_FREE) for k in range(len(_FREE))]
            slot = next((slot for slot in slots if slot not in taken), slots[0])
            taken.add(slot)
            style = _FREE[slot]
        styles.append(style)
    return styles
