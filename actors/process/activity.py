"""What a replica is doing right now, reported by a thread other than the one that does it.

From outside three cases look alike, and are told apart here: a user's function that takes long (another thread of the process answers,
and says where the function is), a process that is stopped or gone (there is no answer: see `heartbeats`), and an event loop between two
activations (the loop itself answers).
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from dataclasses import dataclass
from types import FrameType

from rayad.dataflow.sink import SinkWriter
from rayad.progress import Timestamp

STACK_LINES = 40
"""So many of the innermost frames are kept of a stack."""
_LIBRARY = sysconfig.get_paths()["stdlib"]


@dataclass(frozen=True, slots=True)
class Activity:
    """One activation that has not ended."""

    callback: str
    """on_recv, on_notify, next_batch, ..."""
    time: Timestamp | None
    """The time with which it was called; None where there is none."""
    for_s: float
    """How long it has taken so far."""
    user: str = ""
    """The user's function and where it is: ``slow (app.py:12), now in predict (model.py:80)``."""
    stack: str = ""
    """The stack, innermost frame last."""
    in_sink: bool = False
    """Whether the function belongs to the writer of a sink."""

    def __str__(self) -> str:
        at = f" at {self.time}" if self.time is not None else ""
        inside = f", in {self.user}" if self.user else ""
        return f"{self.callback}{at} for {self.for_s:.1f} s{inside}"


def activity_of(thread: int, callback: str, time: Timestamp | None, for_s: float) -> Activity:
    """Describe an activation, with the stack of the thread that runs it."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return Activity(callback, time, for_s)
    stack = "".join(traceback.format_stack(frame)[-STACK_LINES:])
    return Activity(callback, time, for_s, users_function(frame), stack, _is_in_sink(frame))


def _is_in_sink(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), SinkWriter):
            return True
        frame = frame.f_back
    return False


def users_function(frame: FrameType | None) -> str:
    """The user's function that Rayad called, and its innermost frame; "" when none of the innermost frames is the user's.

    Frames of the standard library between Rayad and the function (``Counter.update`` over a ``map``) are skipped.
    """
    theirs: list[FrameType] = []
    while frame is not None and not is_ours(frame):
        theirs.append(frame)
        frame = frame.f_back
    if not theirs or frame is None:
        return ""
    called = next((one for one in reversed(theirs) if not _is_of_the_standard_library(one)), theirs[-1])
    inside = f", now in {_place(theirs[0])}" if called is not theirs[0] else ""
    return f"{_place(called)}{inside}"


def _is_of_the_standard_library(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return path.startswith(("<frozen", _LIBRARY)) and "site-packages" not in path


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs Rayad's code, by its module's name: paths do not tell, as the root folders are linked into the package."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "rayad"


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
