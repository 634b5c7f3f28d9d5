"""What the coordinator of a local job stands on: its end of the bus, a clock, and calls of its store that are events of their own.

What it does is what ships: :class:`StoredJob` and :class:`CoordinatorSnapshots`, which the coordinator's actor has on Ray, too. Here each
call of the store or of a sink is an event, ``("store", COORDINATOR)``, so that a crash can come before each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rayad.actors.coordinator.stored.kept_job import KeptJob
from rayad.actors.coordinator.surroundings import StoreSurroundings
from rayad.actors.lead.failure import Failure
from rayad.actors.local.bus import Bus, BusLink
from rayad.actors.local.processes import Processes
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR
from rayad.actors.replica.places import Places
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan

STORE = ("store", COORDINATOR)
"""The store, or a sink, is called."""
POLL = ("poll", COORDINATOR)
"""The coordinator looks at what it was told."""


class LocalClock:
    """Seconds of the local runtime.

    Args:
        now_s: gives them.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.monotonic = self.time = now_s
        self.perf_counter = time.perf_counter


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

    def __init__(self, step: Callable[[], bool]) -> None:
        self.step = step

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


class LocalKeptJob(KeptJob):
    """A job of the local runtime, as its store sees it.

    Args:
        processes: of the job.
        now_s: the clock.
        failure_of: an error as a value.
    """

    def __init__(
        self,
        plan: Plan,
        config: RunConfig,
        name: str,
        places: Places,
        processes: Processes,
        *,
        now_s: Callable[[], float],
        failure_of: Callable[[str, BaseException], Failure],
    ) -> None:
        self._processes = processes
        self._steps: StoreEvents | None = None
        around = StoreSurroundings(plane=self._plane, clock=LocalClock(now_s), beside=self._beside, lines=NoLines, failure_of=failure_of)
        super().__init__(plan, config, name, b"", name, places, around)

    def _plane(self, *, name: str, incarnation: int, **_: Any) -> CoordinatorEnd:
        return CoordinatorEnd(self._processes.bus, name, incarnation)

    def _beside(self, name: str, step: Callable[[], bool], stop: Callable[[], object]) -> StoreEvents:
        self._steps = StoreEvents(step)
        return self._steps

    def has_work(self) -> bool:
        """See :class:`KeptJob`."""
        return not self._processes.progress.is_over

    def look(self) -> None:
        """Whether the store waits to be called."""
        self._processes.ready.keep(STORE, self.store_thread.has_work)

    def step_store(self) -> None:
        """The next call of the store, or of a sink."""
        assert self._steps is not None
        self._steps.step()

    def trim_logs(self) -> None:
        """What all kept snapshots have of live inputs need not be kept for replay."""
        assert self.snapshots is not None
        saved, logs = self.snapshots.saved_inputs, self._processes.logs
        for name, stage in self.plan.inputs.items():
            if name in saved and stage in logs:
                logs[stage].trim(saved[name])


__all__ = ["POLL", "STORE", "CoordinatorEnd", "LocalKeptJob"]
