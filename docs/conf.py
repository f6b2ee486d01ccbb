"""Documentation: `make docs` builds it, with every warning an error."""

import margindist

project = "margindist"
author = "the margindist developers"
version = release = margindist.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "alabaster"
html_static_path = ["_static"]
html_css_files = ["reading.css"]
html_title = "margindist"
html_theme_options = {
    "description": "Classifiers that learn from the whole margin distribution",
    "fixed_sidebar": True,
    "font_size": "16px",
    "body_max_width": "auto",
    "code_font_size": "0.8em",
    "page_width": "1220px",
    "sidebar_width": "230px",
    "show_powered_by": False,
}
html_show_sourcelink = False
html_show_copyright = False


def quote_fitted_names(app, what, name, obj, options, lines):
    """Quote `n_features_in_` in shapes: a bare word with a final underscore is a link in reStructuredText."""
    lines[:] = [line.replace("(n_features_in_,)", "(``n_features_in_``,)") for line in lines]


def setup(app):
    """Run before numpydoc rewrites the docstrings."""
    app.connect("autodoc-process-docstring", quote_fitted_names, priority=400)
