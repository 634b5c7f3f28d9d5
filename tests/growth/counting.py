"""Work that can be counted: the lines of Rayad's own code that a call runs through.

A line event is counted for each line that starts, and for each turn of a loop or comprehension that stays on its line. Unlike seconds, the
same seed gives the same number on any machine, so growth can be asserted. What C code does inside one line (`in` over a tuple, `sorted`)
counts once; comparisons of timestamps are Python and count.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import rayad

_ROOT = str(Path(rayad.__file__).parent)


def lines_of(call: Callable[[], Any], places: Counter[str] | None = None) -> int:
    """How many lines of Rayad's code ``call`` runs; with ``places`` also how many in each function."""
    counted = 0

    def on_call(frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any] | None:
        return on_line if frame.f_code.co_filename.startswith(_ROOT) else None

    def on_line(frame: FrameType, event: str, argument: Any) -> Callable[[FrameType, str, Any], Any]:
        nonlocal counted
        if event == "line":
            counted += 1
            if places is not None:
                places[f"{frame.f_code.co_filename.removeprefix(_ROOT)}:{frame.f_code.co_qualname}"] += 1
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return counted
