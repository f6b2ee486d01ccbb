"""Documentation: `make docs` builds it, with every warning an error; `make docs-check` opens the pages in Chromium."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import margindist  # noqa: E402

project = "margindist"
author = "the margindist developers"
copyright = author
version = release = margindist.__version__

extensions = [
    "benchmarks_directive",
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": "breast_cancer",  # the README's picture, a script of its own
    "within_subsection_order": "gallery_order.Reading",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("margindist",),
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,  # that page would ask other hosts for its scripts
    "download_all_examples": False,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib", "gallery_order.plain_style"),
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["margindist.css"]
html_title = "margindist"
html_theme_options = {
    "logo": {"text": "margindist"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "changelog": [], "migrating": []}
html_show_sourcelink = False


def quote_fitted_names(app, what, name, obj, options, lines):
    """Quote `n_features_in_` in shapes: a bare word with a final underscore is a link in reStructuredText."""
    lines[:] = [line.replace("(n_features_in_,)", "(``n_features_in_``,)") for line in lines]


def setup(app):
    """Run before numpydoc rewrites the docstrings."""
    app.connect("autodoc-process-docstring", quote_fitted_names, priority=400)
