"""The page as one text: its own parts (``parts/``) and two libraries (``vendored/``), so that a browser asks for nothing else.

The libraries are uPlot (charts) and dagre (layout of the graph), both under the MIT licence, unchanged; decision 081 says why these.
"""

from __future__ import annotations

import secrets
from functools import cache
from pathlib import Path

STYLES = ("vendored/uPlot.min.css", "parts/page.css")
LIBRARIES = ("vendored/uPlot.iife.min.js", "vendored/dagre.min.js")
SCRIPTS = ("parts/drawing.js", "parts/graph.js", "parts/charts.js", "parts/tables.js", "parts/asking.js", "parts/page.js")
"""In this order they are one module."""
_HERE = Path(__file__).parent


@cache
def page(may: tuple[str, ...]) -> tuple[str, str]:
    """The text of the page, and what stands in it where each response has its nonce. ``may``: what the page may ask for."""
    mark = f"nonce-{secrets.token_hex(16)}"
    text = _read("page.html").replace("%NONCE%", mark).replace("%MAY%", " ".join(may))
    for place, names in (("/*STYLES*/", STYLES), ("/*LIBRARIES*/", LIBRARIES), ("/*SCRIPTS*/", SCRIPTS)):
        text = text.replace(place, "\n".join(map(_read, names)))
    return text, mark


def _read(name: str) -> str:
    """One file, without the address of a source map: a browser would ask for it."""
    lines = (_HERE / name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL"))


__all__ = ["LIBRARIES", "SCRIPTS", "STYLES", "page"]
