"""The processes that wait in this driver for a job: each set is a coordinator and what it owns, which is used by one job at a time.

A set is the driver's own: Ray ends its coordinator with the driver, and the other processes with the coordinator. A job that was complete
gives its set back, for ``RunConfig.keep_warm_s`` seconds or until its session is closed; any other end of a job, or of an actor, ends the
set. Prior art: Spark's executors, which outlive a job and end when they were idle for ``spark.dynamicAllocation.executorIdleTimeout``.
"""

from __future__ import annotations

import math
import secrets
import threading
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.names import NAMESPACE, WARM
from rayad.actors.coordinator.processes.kinds import Start
from rayad.actors.coordinator_actor import new_coordinator
from rayad.actors.process.threads import OwnedThread
from rayad.actors.warm.preparing import prepare
from rayad.progress import RayadError

TITLE = "warm"
READY_S = 2.0
"""How long a coordinator that has had a job may take to answer before it gets another one; else it is ended."""


@dataclass(eq=False, slots=True)
class WarmSet:
    """A coordinator, and the processes that it owns."""

    name: str
    """In Ray's table."""
    actor: Any
    ray_job: str
    """Of the driver, as Ray numbers them."""
    is_new: bool = True
    """Whether its processes are still to be started."""
    has_run: bool = False
    """Whether it has had a job: then it has to show that it lives before it gets another one."""
    until_s: float = math.inf
    """When it ends if nobody has used it by then, by ``time.monotonic()``."""

    def prepare(self, starts: Sequence[Start], *, ahead: bool = False) -> None:
        """Start its processes, for a job whose plan it need not know; ``ahead``: they load what it will probably use."""
        self.is_new = False
        prepare(self.actor, starts, ahead=ahead)

    def answers(self) -> bool:
        """Whether it can take a job now."""
        try:
            ray_calls.get(ray_calls.call(self.actor.is_idle), timeout=READY_S)
        except (RayError, RayadError):
            return False
        return True

    def end(self) -> None:
        """End its processes: the coordinator owns the others."""
        ray_calls.kill(self.actor)


def new_set() -> WarmSet:
    """Start a coordinator that has no job yet."""
    name = f"{WARM}:{secrets.token_hex(4)}"
    actor = new_coordinator({"name": name, "namespace": NAMESPACE}, TITLE)
    return WarmSet(name, actor, _ray_job())


def _ray_job() -> str:
    return str(ray.get_runtime_context().get_job_id()) if ray.is_initialized() else ""


@dataclass(slots=True)
class WarmSets:
    """Those that wait."""

    _idle: list[WarmSet] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: threading.Event = field(default_factory=threading.Event)
    _thread: OwnedThread | None = None

    def borrow(self) -> WarmSet | None:
        """One for a job, the last that was used first; None where none waits that answers."""
        while True:
            now_s, here = clock.monotonic(), _ray_job()
            with self._lock:
                self._idle = [one for one in self._idle if one.ray_job == here]  # others ended with the Ray that they were part of
                found = next((one for one in reversed(self._idle) if one.until_s > now_s), None)
                if found is None:
                    return None
                self._idle.remove(found)
            if not found.has_run or found.answers():
                return found
            found.end()

    def give(self, warm: WarmSet, keep_s: float) -> None:
        """Let a set wait, for so long at most; one without a bound is enough."""
        warm.until_s = clock.monotonic() + keep_s
        with self._lock:
            if keep_s == math.inf and any(one.until_s == math.inf for one in self._idle):
                warm.end()
                return
            self._idle.append(warm)
            if keep_s < math.inf and (self._thread is None or not self._thread.is_alive):
                self._thread = OwnedThread("warm", self._watch).start()  # ends when none waits that has a bound, or with the process
            self._changed.set()

    def end_unbounded(self) -> None:
        """End the sets that wait without a bound. One that is used now is ended by its job."""
        with self._lock:
            ended = [one for one in self._idle if one.until_s == math.inf]
            self._idle = [one for one in self._idle if one not in ended]
        for one in ended:
            one.end()

    def __len__(self) -> int:
        return len(self._idle)

    def _watch(self) -> None:
        """End sets that nobody has used in time."""
        while True:
            with self._lock:
                self._changed.clear()
                now_s = clock.monotonic()
                over = [one for one in self._idle if one.until_s <= now_s]
                self._idle = [one for one in self._idle if one not in over]
                next_s = min((one.until_s for one in self._idle), default=math.inf)
                if next_s == math.inf:
                    self._thread = None
            for one in over:
                one.end()
            if next_s == math.inf:
                return
            self._changed.wait(max(0.0, next_s - now_s))


OF_THIS_PROCESS = WarmSets()

__all__ = ["OF_THIS_PROCESS", "WarmSet", "WarmSets", "new_set"]
