"""The documentation as a site: `make docs`, which fails on every warning."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]

project = "Penstock"
author = "The Penstock authors"
version = release = re.search(r"VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text().partition("project(")[2])[1]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# The tutorial is kept with outputs. tests/python/test_tutorial.py runs it and compares them.
nb_execution_mode = "off"
# Pages are read in the repository too, where links may lead to files that are no pages, and the grammar of the solver is in
# a notation that Pygments knows another dialect of.
suppress_warnings = ["misc.highlighting_failure", "myst.xref_missing"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # they stand in the signatures of the stubs; here the text says what matters
autodoc_inherit_docstrings = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"Penstock {version}"
