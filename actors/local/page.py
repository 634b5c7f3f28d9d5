"""The page of a job of the local runtime: a thread of this process serves it, and the job tells it how it is, as it moves.

The job is looked at in the thread that it moves in, and nowhere else: what it tells are values. Its workers' clock is virtual; the page
needs seconds, so they are counted here: of the time between two looks each replica has had the shares that it had of the virtual one. The
page knows no job, so that a job which is given up is freed, and its page ends.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rayad.actors.job import JobEvent, JobState, JobStatus
from rayad.actors.page.place import check_place, is_loopback, url_of
from rayad.actors.page.server import GLANCE_EVERY_S, LOOK_EVERY_S, PageServer
from rayad.actors.process.threads import OwnedThread
from rayad.actors.saved_state.looking import first_rows
from rayad.actors.status.frames import Story
from rayad.actors.status.taking import Seen, StatusTaker
from rayad.autoscale import ReplicaReading
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import RayadError, say

OPEN_S = 10.0
"""How long the thread may take to listen."""
CLOSE_S = 5.0
"""How long browsers may take for the last frame, and the thread to end."""
SHARES = ("busy_s", "idle_s", "backpressured_s", "queued_s")
"""What a replica's time is divided into."""
STATE_S = 60.0
"""How long a look at a state may take."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a job tells of itself at one moment: its plan, what is seen of it, its journal, and its own clock."""

    plan: Plan
    seen: Seen
    events: tuple[JobEvent, ...]
    now_s: float


class LocalPage:
    """The page of one job.

    Args:
        name: the job's.
        config: of the run.
        first: how the job is now.
        began_s: when it began, by its own clock.
        host: the address to listen on.
        port: 0: any that is free.
        state: whether it shows first keys of states.

    Raises ConfigError for what cannot be, RayadError when the page cannot be served.
    """

    def __init__(self, name: str, config: RunConfig, first: Looked, began_s: float, host: Any, port: Any, state: bool) -> None:
        host, port = check_place(host, port)
        self.asked = (host, port, state)
        self._name = name
        self._zero_s = time.time() - first.now_s
        """When the job's clock was 0."""
        self._taker = StatusTaker(name)
        self._seconds = _Seconds(self._zero_s + began_s)
        self._looked_s = 0.0
        self._story = Story(name)
        token = None if is_loopback(host) and not state else secrets.token_urlsafe(24)
        listens: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._viewers: Callable[[], int] = lambda: 0
        look_at_state = self._look_at_state(name, config) if state else None
        server = PageServer(self._story, token, is_local=is_loopback(host), look_at_state=look_at_state)
        self._thread = OwnedThread("page", partial(self._run, server, host, port, listens)).start()
        try:
            listening = listens.result(timeout=OPEN_S)
        except (OSError, TimeoutError) as error:
            told = f"{type(error).__name__}: {say(error)}"
            raise RayadError(f"page(host={host!r}, port={port}) of job {name!r} cannot be served: {told}") from error
        self.url = url_of(socket.gethostname() if host in ("0.0.0.0", "::") else host, listening, token)
        self._tell(first)

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the job again."""
        every_s = LOOK_EVERY_S if self._viewers() else GLANCE_EVERY_S
        return time.monotonic() - self._looked_s >= every_s

    def tell(self, looked: Looked) -> None:
        """How the job is now. When it is over the page ends, once browsers have the last frame."""
        self._tell(looked)
        if looked.seen.state not in (JobState.STARTING, JobState.RUNNING):
            self.close()

    def close(self) -> None:
        """Serve no more; waits a moment for browsers that have not read the last frame."""
        if self._thread.is_alive and not self._thread.is_current:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.close(CLOSE_S)

    def _tell(self, looked: Looked) -> None:
        self._looked_s = time.monotonic()
        seen, now_s = looked.seen, time.time()
        if seen.state is JobState.RUNNING:
            newest = next((event for event in reversed(looked.events) if event.kind == "snapshot"), None)
            age_s = looked.now_s - newest.at_s if newest is not None else None
            seen = replace(seen, now_s=now_s, readings=self._seconds.counted(seen.readings, now_s), snapshot_age_s=age_s)
            status = self._taker.take(looked.plan, seen)
        else:
            status = JobStatus(self._name, seen.state, now_s, events=seen.events)
        events = tuple(replace(event, at_s=event.at_s + self._zero_s) for event in looked.events)
        if self._thread.is_alive:
            self._loop.call_soon_threadsafe(self._show, status, events)

    def _show(self, status: JobStatus, events: tuple[JobEvent, ...]) -> None:
        """In the thread that serves."""
        self._story.wants(status)
        if self._story.tell(status, events):
            self._publish()

    def _publish(self) -> None:
        """There is a new frame; replaced by the server's as soon as it listens."""

    def _run(self, server: PageServer, host: str, port: int, listens: Future[int]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(server, host, port, listens))

    async def _serve(self, server: PageServer, host: str, port: int, listens: Future[int]) -> None:
        try:
            listening = await server.open(host, port)
        except OSError as error:
            listens.set_exception(error)
            return
        self._publish = server.publish  # type: ignore[method-assign]
        self._viewers = lambda: server.viewers
        listens.set_result(listening)
        await self._over.wait()  # ends with the job, or with the process: the thread is a daemon
        await server.close()

    @staticmethod
    def _look_at_state(name: str, config: RunConfig) -> Callable[[str], Any]:
        async def look(vertex: str) -> dict[str, Any]:
            return asdict(await asyncio.wait_for(asyncio.to_thread(first_rows, name, config, vertex), STATE_S))

        return look


class _Seconds:
    """Readings by the clock, made of readings by the virtual one."""

    def __init__(self, began_s: float) -> None:
        self._last: dict[tuple[str, int], tuple[ReplicaReading, ReplicaReading]] = {}  # by the virtual clock, by the clock
        self._began_s = began_s

    def counted(self, readings: Sequence[ReplicaReading], now_s: float) -> tuple[ReplicaReading, ...]:
        """The same readings, where the shares that a replica has had of the virtual time are shares of the time."""
        return tuple(self._one(reading, now_s) for reading in readings)

    def _one(self, reading: ReplicaReading, now_s: float) -> ReplicaReading:
        who = (reading.vertex, reading.replica)
        steps, before = self._last.get(who, (None, None))
        if steps is None or before is None or steps.started_s != reading.started_s:  # the first, or the counts of another life
            began_s = before.now_s if before is not None else self._began_s
            none: dict[str, Any] = dict.fromkeys(SHARES, 0.0)
            steps = replace(reading, now_s=reading.started_s, **none)
            before = replace(reading, started_s=began_s, now_s=began_s, **none)
        passed, steps_passed = max(0.0, now_s - before.now_s), reading.now_s - steps.now_s
        shares = {
            name: (getattr(reading, name) - getattr(steps, name)) / steps_passed if steps_passed > 0 else float(name == "idle_s")
            for name in SHARES
        }
        times = {name: getattr(before, name) + share * passed for name, share in shares.items()}
        now = replace(reading, started_s=before.started_s, now_s=before.now_s + passed, **times)
        self._last[who] = reading, now
        return now


__all__ = ["LocalPage", "Looked"]
