"""SIGTERM to a driver (``ray job stop``, the end of a pod): its jobs are saved and end in order, and the process ends with status 143.

    first SIGTERM -> each job takes a savepoint, where it has a store, and is cancelled -> SystemExit(143) in the main thread
    a second one, or no end in time -> the process ends at once, and Ray ends the actors with it

The signal's handler only starts a thread: the main thread may be anywhere, also within Ray. A handler that the user has set stays, and
Ctrl-C stays a cancel without a savepoint. Prior art: Flink's stop with a savepoint; 128 + 15 is the status that shells report for SIGTERM.
"""

from __future__ import annotations

import signal
import threading
import time as clock
import weakref
from functools import partial
from types import FrameType
from typing import Any, NoReturn, Protocol

from rayad.actors.process.ending import end_at_once
from rayad.actors.process.threads import OwnedThread, Threads
from rayad.actors.status.terminal import echo

STATUS = 128 + signal.SIGTERM
"""The exit status of the process."""
END_S = 5.0
"""The least time that the main thread has to end once the jobs have ended."""


class Terminable(Protocol):
    """A job as this module sees it."""

    name: str

    def save_and_end(self, timeout_s: float) -> str:
        """Take a savepoint if possible, and end the job; gives a message about what happened. Must not raise."""


class Termination:
    """What SIGTERM does in this process.

    Args:
        exit_now: ends the process at once; for tests.
    """

    def __init__(self, exit_now: Any = end_at_once) -> None:
        self._jobs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._exit_now = exit_now
        self._timeout_s = 0.0
        self._is_saving = False
        self._over = threading.Event()
        self._is_main_ending = False

    @property
    def is_under_way(self) -> bool:
        """Whether a SIGTERM has come."""
        return self._is_saving

    def watch(self, job: Terminable, timeout_s: float) -> None:
        """Save this job on SIGTERM. Outside the main thread, or where the user has set a handler, no handler is installed."""
        self._jobs.add(job)
        self._timeout_s = max(self._timeout_s, timeout_s)
        self.install()

    def install(self) -> None:
        """End the process in order on SIGTERM also without a job. To be called after Ray has started: its own handler prints a stack."""
        if threading.current_thread() is not threading.main_thread():
            return
        if is_default(signal.getsignal(signal.SIGTERM)):
            signal.signal(signal.SIGTERM, self.on_signal)

    def release(self, job: Terminable) -> None:
        """Forget a job that has ended."""
        self._jobs.discard(job)

    def await_end(self) -> NoReturn:
        """Called where a job that SIGTERM ended was waited for: let all other jobs end, then end the process."""
        self._over.wait(self._timeout_s)
        self._is_main_ending = self._is_main_ending or threading.current_thread() is threading.main_thread()
        raise SystemExit(STATUS)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """The signal handler, called in the main thread."""
        if self._over.is_set() and self._is_main_ending:
            return  # the main thread is ending already
        if self._over.is_set() or not (self._is_saving or len(self._jobs)):
            self._is_main_ending = True
            raise SystemExit(STATUS)
        if self._is_saving:
            _say("SIGTERM again: ending at once")
            self._exit_now(STATUS)
            return
        self._is_saving = True
        OwnedThread("sigterm", self._save, is_daemon=False).start()  # it ends the process

    def _save(self) -> None:
        deadline_s = clock.monotonic() + self._timeout_s
        ending = Threads()
        for job in list(self._jobs):
            ending.start("ending", partial(self._end, job, deadline_s))
        if not ending.close(self._timeout_s):
            _say(f"SIGTERM: the jobs did not end within {self._timeout_s:g} s: ending at once")
            self._exit_now(STATUS)
            return
        OwnedThread("last-resort", partial(self._exit_late, max(END_S, deadline_s - clock.monotonic()))).start()  # ends with the process
        self._over.set()
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGTERM)

    def _exit_late(self, delay_s: float) -> None:
        clock.sleep(delay_s)
        self._exit_now(STATUS)

    def _end(self, job: Terminable, deadline_s: float) -> None:
        _say(f"SIGTERM: job {job.name!r}: {job.save_and_end(deadline_s - clock.monotonic())}")


def is_default(handler: Any) -> bool:
    """Whether a handler may be replaced: the system's, Ray's (which ends the process), or Rayad's; not the user's."""
    if handler is signal.SIG_DFL or getattr(handler, "__self__", None).__class__ is Termination:
        return True
    return str(getattr(handler, "__module__", "")).partition(".")[0] == "ray"


def _say(line: str) -> None:
    echo(f"rayad: {line}", err=True)


OF_THIS_PROCESS = Termination()
"""The one of this process."""

__all__ = ["OF_THIS_PROCESS", "STATUS", "Termination", "is_default"]
