"""What a replica is doing right now, told by a thread that does not do it.

Three things look alike from outside and are told apart here: a function of the user's that takes long (the process answers, and says
where it is), a process that is stopped or gone (nobody answers: see `heartbeats`), and an event loop between two activations (it answers
itself).
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from dataclasses import dataclass
from types import FrameType

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
    """At which it was called; None where there is none."""
    for_s: float
    """How long it has taken so far."""
    user: str = ""
    """The user's function and where it is: ``slow (app.py:12), now in predict (model.py:80)``."""
    stack: str = ""
    """Innermost frame last."""

    def __str__(self) -> str:
        at = f" at {self.time}" if self.time is not None else ""
        inside = f", in {self.user}" if self.user else ""
        return f"{self.callback}{at} for {self.for_s:.1f} s{inside}"


def activity_of(thread: int, callback: str, time: Timestamp | None, for_s: float) -> Activity:
    """With the stack of the thread that is busy with it."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return Activity(callback, time, for_s)
    stack = "".join(traceback.format_stack(frame)[-STACK_LINES:])
    return Activity(callback, time, for_s, users_function(frame), stack)


def users_function(frame: FrameType | None) -> str:
    """The function that we have called, and where the innermost frame is; "" when none of the innermost frames is the user's.

    What the standard library puts between us and the function (``Counter.update`` over a ``map``) is passed over.
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
    """Whether a frame runs our code. The root folders are linked into the package: its modules' names tell, not their paths."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "rayad"


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
