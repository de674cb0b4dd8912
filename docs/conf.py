"""Sphinx configuration. Builds without network: ``python -m sphinx -W docs docs/_build``."""

import warpfront

project = "warpfront"
author = "The warpfront developers"
copyright = author
release = version = warpfront.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "warpfront"

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
numpydoc_show_class_members = False
