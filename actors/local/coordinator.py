"""What the coordinator of a local job stands on: its end of the bus, a clock, and calls of its store that are events of their own.

What it does is what ships: :class:`Supervisor`, :class:`Rescaler`, :class:`StoredJob` and :class:`CoordinatorSnapshots`, which the
coordinator's actor has on Ray, too. Its turn is an event, ``("poll", COORDINATOR)``, and so is that of the change of layout that is being
carried out, ``("wish", COORDINATOR)``, which has a thread of its own on Ray. Each call of the store or of a sink is one, ``("store",
COORDINATOR)``, so that a crash can come before each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rayad.actors.local.bus import Bus, BusLink
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR

STORE = ("store", COORDINATOR)
"""The store, or a sink, is called."""
POLL = ("poll", COORDINATOR)
"""The coordinator looks at what it was told."""
WISH = ("wish", COORDINATOR)
"""Who drives a change of layout looks at what has been answered."""


class LocalClock:
    """Seconds of the local runtime.

    Args:
        now_s: gives them.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.monotonic = self.time = now_s
        self.perf_counter = time.perf_counter


class LocalEvent:
    """As :class:`threading.Event`.

    Args:
        meanwhile: called when somebody waits, with what for and how long: other things happen.
    """

    def __init__(self, meanwhile: Callable[[Callable[[], bool], float | None], object]) -> None:
        self._meanwhile = meanwhile
        self._is_set = False

    def set(self) -> None:
        """It is so."""
        self._is_set = True

    def clear(self) -> None:
        """It is not so any more."""
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it is so."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is so; waits for that."""
        self._meanwhile(self.is_set, timeout)
        return self._is_set


class CoordinatorEnd(BusLink):
    """The coordinator's end of the bus: frames wait in it until the coordinator looks."""

    def __init__(self, bus: Bus, name: str, incarnation: int) -> None:
        super().__init__(bus, name, incarnation)
        bus.links[name] = self
        self._ready = bus.ready
        self._inbox: list[Frame] = []

    def take(self, frames: list[Frame]) -> None:
        """They arrive."""
        self._inbox += frames
        self._ready.add(POLL)

    def poll(self, timeout_s: float | None = 0.0) -> list[Frame]:
        """What has arrived."""
        frames, self._inbox = self._inbox, []
        return frames

    def wakeup(self) -> None:
        """The coordinator looks soon."""
        self._ready.add(POLL)

    def listen(self, host: str = "", port: int = 0, *, unix: str = "auto") -> Any:
        """Its address."""
        return self.name

    def close(self, linger_s: float = 1.0) -> None:
        """It hears nothing more."""
        self._inbox.clear()


class StoreEvents:
    """Calls of the store, one at each event; see :class:`rayad.actors.coordinator.surroundings.Steps`."""

    def __init__(self) -> None:
        self.step: Callable[[], bool] = lambda: False

    def beside(self, name: str, step: Callable[[], bool], stop: Callable[[], object]) -> StoreEvents:
        """These are the steps."""
        self.step = step
        return self

    def close(self, timeout_s: float) -> bool:
        """None is under way between two events."""
        return True


class NoLines:
    """The journal of a local job is not written: it goes with the job, whose handle has it."""

    def __init__(self, filesystem: Any, path: str) -> None:
        pass

    def read(self) -> list[str]:
        """There are none."""
        return []

    def append(self, line: str) -> None:
        """See there."""

    def close(self, timeout_s: float) -> None:
        """See there."""


__all__ = ["POLL", "STORE", "WISH", "CoordinatorEnd", "LocalClock", "LocalEvent", "NoLines", "StoreEvents"]
