"""Showing the progress of a job while somebody waits for it. It never breaks the job, and takes less than a hundredth of the time.

The local runtime runs in the thread of the caller, and looks between two steps. A job on Ray runs elsewhere, and a thread looks
(:meth:`Showing.follow`). What fails in looking or showing is logged once, and nothing is shown from then on.
"""

from __future__ import annotations

import logging
import os
import threading
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rayad.actors.process.threads import OwnedThread
from rayad.actors.status.job_status import JobStatus
from rayad.actors.status.progress_line import ProgressLine
from rayad.actors.status.progress_places import Place, place_here
from rayad.progress import ConfigError, arguments

_log = logging.getLogger(__name__)
VARIABLE = "RAYAD_PROGRESS"
"""Environment variable: 0 turns the line off where the program does not say ``progress=True``."""
PAUSES = 400
"""After a look that took t seconds of the processor's time the next one comes 400 t later at the earliest: at most 0.25 % of the time."""
FIRST_LOOK_S = 1.0
"""The first look, which may show nothing yet: rates are differences of two looks."""
ASKS_EVERY_S = 1.0
"""How often a job on Ray is asked, at most."""
END_S = 1.0
"""How long the end of a wait waits for a look that is under way."""

Look = Callable[[], tuple[JobStatus, str]]
"""Gives the status, and what a start waits for ("" where it does not)."""


def is_wanted(progress: bool | None, what: str) -> bool:
    """Whether to show progress; None: as the environment says, which does unless told otherwise. ``what`` was given it, for errors."""
    if progress is not None:
        return arguments.flag(progress, f"{what}(progress)", error=ConfigError)
    return os.environ.get(VARIABLE, "").strip().lower() not in ("0", "false", "no", "off")


class Showing:
    """The line of one wait."""

    def __init__(self, line: ProgressLine, place: Place, now_s: Callable[[], float] = clock.monotonic) -> None:
        self._line = line
        self._place = place
        self._now_s = now_s
        self._began_s = now_s()
        self._due_s = self._began_s + min(FIRST_LOOK_S, place.first_s)
        self._records: int | None = None
        self._is_broken = self._has_shown = False
        self._over = threading.Event()
        self._thread: OwnedThread | None = None

    @property
    def is_due(self) -> bool:
        """It is time for :meth:`look`."""
        return self._now_s() >= self._due_s

    def look(self, look: Look) -> None:
        """Look at the job, and show it."""
        if self._is_broken:
            return
        used_s = clock.thread_time()
        try:
            status, starting = look()
            at_s = self._now_s() - self._began_s
            line = self._line.see(status, at_s, starting)
            is_early = at_s < self._place.first_s
            if not (is_early or self._over.is_set()):
                self._place.show(line)
        except Exception:
            self._break()
            return
        used_s = clock.thread_time() - used_s if self._has_shown else 0.0  # the first time it imports what shows it
        self._has_shown = not is_early
        now_s = self._now_s()
        next_s = self._place.first_s if is_early else self._place.next_s(now_s - self._began_s)
        self._due_s = max(self._began_s + next_s, now_s + PAUSES * used_s)

    def follow(self, look: Look) -> None:
        """Look again and again, in a thread of its own, until :meth:`end`."""
        self._thread = OwnedThread("progress", partial(self._follow, look), stop=self._over.set).start()

    def _follow(self, look: Look) -> None:
        pause_s = self._due_s - self._now_s()
        while not self._over.wait(max(0.0, pause_s)) and not self._is_broken:
            asked_s = self._now_s()
            self.look(look)
            pause_s = max(self._due_s, asked_s + ASKS_EVERY_S) - self._now_s()

    def complete(self, records: int) -> None:
        """The job is complete, and has read so many records."""
        self._records = records

    def end(self, how: str) -> None:
        """The wait is over. ``how`` the job ended; "": it has not, or an error tells."""
        self._over.set()
        try:
            if self._thread is not None:
                self._thread.close(END_S)
            at_s = self._now_s() - self._began_s
            self._place.end(self._line.summary(how, at_s, self._records) if how else None, at_s)
        except Exception:
            self._break()

    def _break(self) -> None:
        if not self._is_broken:
            self._is_broken, self._due_s = True, float("inf")
            _log.warning("the progress of the job cannot be shown any more; the job goes on", exc_info=True)


@contextmanager
def showing(name: str, progress: bool | None, what: str, *, has_clock: bool = True) -> Iterator[Showing | None]:
    """Show the progress of the job ``name`` while the block runs; None where it is not wanted, or there is no place for it.

    The block tells how the job ended by ending: in order, the job is complete; with an error, the error says it.
    """
    place = place_here() if is_wanted(progress, what) else None
    if place is None:
        yield None
        return
    shown = Showing(ProgressLine(name, has_clock=has_clock), place)
    how = ""
    try:
        yield shown
        how = "complete"
    finally:
        shown.end(how)


__all__ = ["VARIABLE", "Look", "Showing", "is_wanted", "showing"]
