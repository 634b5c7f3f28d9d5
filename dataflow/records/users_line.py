"""The line of the user's program that is being carried out, for messages and warnings."""

from __future__ import annotations

import functools
import inspect
import os
import re
from types import FrameType

_FOLDERS = ("actors", "autoscale", "dataflow", "graphs", "incremental", "integrations", "progress", "snapshots", "sql")


_KERNEL_CELL = re.compile(r"[/\\\\]ipykernel_\d+[/\\\\]\d+\.py$")


def users_line() -> str:
    """``file.py:12``: the innermost line of the call stack that is not Rayad's own; in a notebook ``In[3]:2``."""
    frame = inspect.currentframe()
    while frame is not None:
        filename = frame.f_code.co_filename
        shown = _shown(filename)
        if shown is not None:
            return f"{_cell(frame, shown) if _KERNEL_CELL.search(filename) else shown}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown line"


def users_level() -> int:
    """The ``stacklevel`` of a warning that the caller gives, so that it points at the line that :func:`users_line` names."""
    here = inspect.currentframe()
    frame = here and here.f_back
    level = 1
    while frame is not None and _shown(frame.f_code.co_filename) is None:
        frame, level = frame.f_back, level + 1
    return level


@functools.lru_cache(maxsize=4096)
def _shown(filename: str) -> str | None:
    """How messages call a code object's file; None for Rayad's own and for frozen modules."""
    if filename.startswith("<"):  # <stdin>, <string>, <ipython-input-3-...>, <doctest ...>: no path
        return None if filename.startswith("<frozen ") else filename
    path = os.path.realpath(filename)  # in a checkout src/rayad/dataflow is a link to dataflow
    return None if path.startswith(_own_roots()) else os.path.basename(path)


@functools.lru_cache(maxsize=1)
def _own_roots() -> tuple[str, ...]:
    package = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
    return tuple(os.path.realpath(os.path.join(package, folder)) + os.sep for folder in ("", *_FOLDERS))


def _cell(frame: FrameType, otherwise: str) -> str:
    """``In[3]``: IPython's kernel compiles each cell as a temporary file and knows which one it was."""
    try:
        return str(frame.f_globals["get_ipython"]().compile.format_code_name(frame.f_code.co_filename)[1])
    except Exception:  # another IPython, or none: the name of the temporary file is still unique
        return otherwise
