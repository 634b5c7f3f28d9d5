"""Calls of a sink's methods in the coordinator: which one is under way, for how long, and a log of those that take long.

A `commit` or `publish` that hangs keeps the thread of the store, and with it all snapshots, recoveries and the end of the job. The call is
not interrupted: it may be about to make output visible. But it is reported, like a vertex's function that hangs (decision 036). Other
threads may look here while one thread calls.
"""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rayad.actors.process.activity import Activity, activity_of
from rayad.dataflow.plan import SinkSpec

LONG_S = 10.0
"""A call that takes longer is logged, and again each time that it has taken twice as long."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Call:
    what: str
    thread: int
    began_s: float
    logged_s: float = LONG_S


class SinkCalls:
    """The calls of one coordinator.

    Args:
        job: its name, for the log.
        now_s: the clock.
    """

    def __init__(self, job: str, now_s: Callable[[], float] = clock.monotonic) -> None:
        self._job = job
        self._now_s = now_s
        self._current: _Call | None = None

    def call(self, sink: SinkSpec, hook: str, *args: Any) -> Any:
        """Call ``sink.hook(*args)``, and give its result."""
        self._current = _Call(f"{hook} of sink {sink.key!r} ({sink.where})", threading.get_ident(), self._now_s())
        try:
            return getattr(sink.sink, hook)(*args)
        finally:
            self._current = None

    def activity(self) -> Activity | None:
        """The call that is under way, from any thread; None where there is none. Logs one that takes long."""
        current = self._current
        if current is None:
            return None
        for_s = self._now_s() - current.began_s
        told = activity_of(current.thread, current.what, None, for_s)
        if for_s >= current.logged_s:
            current.logged_s = 2 * for_s
            what = "job %r: the coordinator is busy with %s; no snapshot and no end of the job comes before it is back"
            _log.warning(what, self._job, told)
        return told


__all__ = ["LONG_S", "SinkCalls"]
