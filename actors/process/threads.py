"""Threads that have an owner: who starts one also ends it, by telling it to stop and waiting for it within a bound.

Some threads cannot be ended: they hang in a function of the user's, in a store, or in Ray. Their owner does not wait longer than its bound,
or not at all, and says so where it starts them. Such a thread is a daemon, so it ends with the process at the latest. Prior art: trio's
nurseries, where every task has a parent that waits for it; a nursery waits without a bound, which needs tasks that can be cancelled.
tests/test_house_rules_waits.py refuses threads that are made elsewhere.
"""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Callable
from typing import Self

_log = logging.getLogger(__name__)
PREFIX = "rayad-"
"""What the names of all our threads begin with."""


def _nothing() -> None:
    """A thread that ends by itself need not be told to."""


class OwnedThread:
    """A thread that its owner ends.

    Args:
        name: of what it does; :data:`PREFIX` comes before it.
        work: what it runs.
        stop: tells the work to end soon; does not wait. Called by :meth:`close`, perhaps more than once.
        is_daemon: whether the process may end while it runs.

    >>> over = threading.Event()
    >>> thread = OwnedThread("doctest", lambda: over.wait(60.0), stop=over.set).start()
    >>> thread.is_alive, thread.close(60.0), thread.is_alive
    (True, True, False)
    """

    def __init__(self, name: str, work: Callable[[], object], *, stop: Callable[[], object] = _nothing, is_daemon: bool = True) -> None:
        self.name = name
        self._thread = threading.Thread(target=work, name=PREFIX + name, daemon=is_daemon)
        self._stop = stop

    def start(self) -> Self:
        """Begin; returns at once."""
        self._thread.start()
        return self

    @property
    def is_alive(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether this is the thread that asks."""
        return self._thread is threading.current_thread()

    def stop(self) -> None:
        """Tell it to end; does not wait."""
        self._stop()

    def join(self, timeout_s: float) -> bool:
        """Wait until it has ended, not longer than this; whether it has. A thread does not wait for itself."""
        if self.is_alive and not self.is_current:
            self._thread.join(timeout_s)
        return not self.is_alive

    def close(self, timeout_s: float) -> bool:
        """Tell it to end and wait for that; whether it has ended. One that has not is logged, unless it is the thread that asks."""
        self.stop()
        has_ended = self.join(timeout_s)
        if not has_ended and not self.is_current:
            _log.warning("thread %s did not end within %g s", self._thread.name, timeout_s)
        return has_ended


class Threads:
    """The threads of one owner, which end together.

    A member that closes the group does not wait for the others: they may be about to close it, too, and would wait for each other.

    >>> over, threads = threading.Event(), Threads()
    >>> for name in ("one", "two"):
    ...     _ = threads.start(name, lambda: over.wait(60.0), stop=over.set)
    >>> threads.close(60.0)
    True
    """

    def __init__(self) -> None:
        self._members: list[OwnedThread] = []

    def start(self, name: str, work: Callable[[], object], *, stop: Callable[[], object] = _nothing) -> OwnedThread:
        """Start another one; see :class:`OwnedThread`."""
        self._members = [thread for thread in self._members if thread.is_alive]
        thread = OwnedThread(name, work, stop=stop).start()
        self._members.append(thread)
        return thread

    def stop(self) -> None:
        """Tell all to end; does not wait."""
        for thread in list(self._members):
            thread.stop()

    def close(self, timeout_s: float) -> bool:
        """Tell all to end, and wait for them within one bound; whether all have ended."""
        self.stop()
        members = list(self._members)
        if any(thread.is_current for thread in members):
            return False
        deadline_s = clock.monotonic() + timeout_s
        late = [thread.name for thread in members if not thread.join(max(0.0, deadline_s - clock.monotonic()))]
        if late:
            _log.warning("threads %s did not end within %g s", ", ".join(PREFIX + name for name in late), timeout_s)
        return not late


__all__ = ["PREFIX", "OwnedThread", "Threads"]
