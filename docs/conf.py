"""The documentation as a site: `make docs` (decision 055). Its pages are those of this folder, README, and the API from docstrings."""

import importlib.metadata
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

project = "Rayad"
author = "the developers of Rayad"
version = release = importlib.metadata.version("rayad")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["benchmarks", "grafana"]
nitpicky = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "Rayad"
html_copy_source = False
html_show_sphinx = False

lexers["mermaid"] = TextLexer()  # drawn by GitHub and by editors; here as its text: mermaid's script would be loaded from the internet
suppress_warnings = ["myst.header"]  # docs/types.md is written by a command, from tables that begin with a heading of their own

BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/decisions/": "decisions/001-transport.md",
}
"""What the first page, which is README, links to outside of this folder, and its page here."""


def setup(app: Any) -> None:
    """Let the links of an included document lead to pages."""
    app.connect("include-read", lift_links)


def lift_links(app: Any, where: Any, parent: str, content: list[str]) -> None:
    """A hook of Sphinx: ``content`` is the text that is included, to be changed in place."""
    for named, page in BESIDE.items():
        content[0] = content[0].replace(f"]({named})", f"]({page})")
