"""Formulas as MathML: browsers set them without a script and without a network, in the page's own colours.

A formula that cannot be translated is a warning, and so an error in `make docs`: no page shows raw TeX. The fonts that
browsers find on most computers have no mathematical symbols that grow, so the pages bring one that has: STIX Two Math,
copied at build time from the package ziamath, which carries it.
"""

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import ziamath
from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.fileutil import copy_asset_file

FONT = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
# what latex2mathml does not know, in words that it does
REWORDED = {r"\\arg(?![a-z])": r"\\operatorname{arg}", r"(\\(?:[Bb]igg?)[lr]?)\\\|": r"\1‖"}
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
logger = logging.getLogger(__name__)


def translate(tex, display):
    """Return MathML, or raise ValueError."""
    for pattern, replacement in REWORDED.items():
        tex = re.sub(pattern, replacement, tex)
    markup = convert(tex.strip(), display="block" if display else "inline")
    if "\\" in unescape(re.sub(r"<[^>]*>", "", markup)):
        raise ValueError("a command is not known")
    return limits_below(markup) if display else markup


def limits_below(markup):
    """Return MathML in which what belongs to a minimum or maximum stands below it."""
    ElementTree.register_namespace("", NAMESPACE)
    root = ElementTree.fromstring(markup)
    for pair in root.iter(f"{{{NAMESPACE}}}msub"):
        if pair[0].text in ("min", "max"):
            pair.tag = f"{{{NAMESPACE}}}munder"
    return ElementTree.tostring(root, encoding="unicode")


def write(translator, node, display):
    """Write the formula of a node."""
    tex = node.astext()
    try:
        markup = translate(tex, display)
    except Exception as error:
        logger.warning("formula %r cannot be made MathML: %s", tex, error or type(error).__name__, location=node)
        markup = translator.encode(tex)
    if display:
        markup = f'<div class="math-scrolls" tabindex="0">{markup}</div>'
    translator.body.append(markup)


def visit_math(translator, node):
    """Write a formula within a line."""
    write(translator, node, display=False)
    raise SkipNode


def visit_displaymath(translator, node):
    """Write a formula that stands by itself."""
    write(translator, node, display=True)
    raise SkipNode


def copy_font(app, error):
    """Put the font beside the style sheets."""
    if error is None and app.builder.format == "html":
        copy_asset_file(FONT, Path(app.outdir) / "_static" / FONT.name)


def setup(app):
    """Offer the renderer `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    app.connect("build-finished", copy_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
