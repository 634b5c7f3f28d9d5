"""Processes on the bus: what Ray's actors and their hosts are around the worker and the progress worker that ship.

A process answers one call after the other in its main thread (to listen, to run, whether it is idle); control calls reach it while it runs,
each as a question that its loop answers in its next turn, or as something that it watches. Any of this may come late. A process may be
frozen (nothing happens in it), and it may be killed: then nothing is answered any more but that it has ended.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.surroundings import Answer, Ended, Gave, Raised
from rayad.actors.host.progress_host import LOOK_S, LOOKS
from rayad.actors.lead.failure import failure_of
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Pulse
from rayad.actors.worker import upstream
from rayad.actors.worker.looking import note_counts
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.records.event_times import EPOCH_UTC
from rayad.progress import ProtocolError
from tests.simulation.coordinator.nodes import SimulatedNode
from tests.simulation.workers.run import EventWriter

if TYPE_CHECKING:
    from tests.simulation.coordinator.world import World

MAIN = frozenset({"take", "rest", "listen", "run", "idle"})
NEVER_S = float("inf")
POLL_S = 1.0


@dataclass(eq=False)
class Ref:
    """The answer to a call, once it is there."""

    process: Process
    method: str
    arguments: tuple[Any, ...] = ()
    answer: Answer | None = None
    staged: Ref | None = None
    """Of a long call: the reference of its second result."""

    def settle(self, answer: Answer) -> None:
        if self.answer is None:
            self.answer = answer


@dataclass(eq=False)
class Watched:
    """Something that a process answers as soon as it is so, or when the time is over."""

    ref: Ref
    is_so: Callable[[], Any]
    until_s: float


@dataclass(eq=False)
class Asked:
    """A question to the loop."""

    ref: Ref
    function: Callable[[], Any]
    until_s: float = NEVER_S


class Process:
    """One process. It is told by ``take`` which one of which job it is: until then it is nobody."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = self.who = "nobody"
        """``who``: as failures name it."""
        self.link: Any = None
        self.main: deque[Ref] = deque()
        self.controls: deque[Ref] = deque()
        self.pulses: deque[Ref] = deque()
        self.doomed: list[Ref] = []
        """What was asked and will not be answered, since it is dead."""
        self.running: Ref | None = None
        self.asked: list[Asked] = []
        self.watched: list[Watched] = []
        self.has_host = False
        self.is_dead = False
        self.node: SimulatedNode | None = None
        """Where it is, once it is placed."""
        self.has_begun = False
        self.abandoned_s: float | None = None
        """When it was told that its incarnation is over."""
        self.frozen_until_s = 0.0
        self.busy_until_s = 0.0
        """Its loop is in a function of the user's until then."""
        self.due_s = 0.0
        self.is_woken = False

    @property
    def stands_still_until_s(self) -> float:
        """Nothing happens in it until then: it is frozen, or its node is silent, or it is not placed."""
        if self.node is None:
            return NEVER_S
        return max(self.frozen_until_s, self.node.silent_until_s if self.node.is_silent(self.world.clock.now_s) else 0.0)

    # -- calls --------------------------------------------------------------------------------------------
    def call(self, ref: Ref) -> None:
        """Somebody calls."""
        if ref.method == "abandon":
            self.abandoned_s = self.world.clock.now_s
        if self.is_dead:
            self.doomed.append(ref)
        elif ref.method in MAIN:
            self.main.append(ref)
        elif ref.method in ("ping", "abandon", "stop", "has_stopped", "acquit"):
            self.pulses.append(ref)
        else:
            self.controls.append(ref)

    def kill(self, *, by_coordinator: bool = False) -> None:
        """It dies, at this moment."""
        if self.is_dead:
            return
        self.world.nodes.on_kill(self, by_coordinator=by_coordinator)
        self.is_dead = True
        waiting = [*self.main, *self.controls, *self.pulses, *(one.ref for one in (*self.asked, *self.watched))]
        self.doomed += [ref for ref in waiting if ref.answer is None]
        if self.running is not None:
            self.doomed.append(self.running)
        self.running = None
        self.main.clear(), self.controls.clear(), self.pulses.clear(), self.asked.clear(), self.watched.clear()
        if self.link is not None and not self.link.is_closed:
            self.link.end(f"the process of {self.who} has ended")
        self.free()

    def free(self) -> None:
        """What it holds on the disk goes with it."""

    def pulse(self) -> Pulse:
        """What it answers to a heartbeat."""
        assert self.node is not None
        return Pulse(None, self.node.id, self.node.id)

    # -- what can happen -----------------------------------------------------------------------------------
    def events(self) -> list[tuple[str, Any]]:
        """What can happen in it next."""
        now_s = self.world.clock.now_s
        if self.is_dead:
            return [("tell", (self, ref)) for ref in self.doomed[:3]]
        if self.stands_still_until_s > now_s:
            return []
        ready: list[tuple[str, Any]] = []
        if self.main and self.running is None:
            ready.append(("main", self))
        if self.controls:
            ready.append(("control", self))
        if self.pulses:
            ready.append(("pulse", self))
        if self.running is not None and self.busy_until_s <= now_s and (self.is_due or self.due_s <= now_s):
            ready.append(("turn", self))
        return ready

    @property
    def is_due(self) -> bool:
        """Whether its loop has something to do."""
        return bool(self.is_woken or self.asked or self.link.is_due)

    @property
    def wakes_s(self) -> float:
        """When something happens in it by itself."""
        if self.is_dead:
            return NEVER_S
        times = [one.until_s for one in self.watched]
        times += [self.stands_still_until_s, self.busy_until_s]
        times += [self.due_s] if self.running is not None else []
        now_s = self.world.clock.now_s
        return min((at_s for at_s in times if at_s > now_s), default=NEVER_S)

    def perform(self, kind: str) -> None:
        """One of these events."""
        self.has_begun = True
        if kind == "main":
            ref = self.main.popleft()
            if ref.method == "run":
                self.running = ref
                self.is_woken = True
                self._guarded(partial(self.begin, *ref.arguments))
            else:
                self._answer(ref, partial(getattr(self, ref.method), *ref.arguments))
        elif kind == "turn":
            self._guarded(self.turn)
        else:
            ref = (self.controls if kind == "control" else self.pulses).popleft()
            try:
                self.control(ref)
            except Exception as error:
                ref.settle(Raised(error))

    def tell(self, ref: Ref) -> None:
        """Ray says that it has died."""
        self.doomed.remove(ref)
        ref.settle(Ended(f"the process of {self.who} was killed"))
        if ref.staged is not None:
            ref.staged.settle(ref.answer)  # type: ignore[arg-type]

    @staticmethod
    def _answer(ref: Ref, function: Callable[[], Any]) -> None:
        try:
            ref.settle(Gave(function()))
        except Exception as error:
            ref.settle(Raised(error))

    # -- the loop ------------------------------------------------------------------------------------------
    def begin(self, *arguments: Any) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        raise NotImplementedError

    def control(self, ref: Ref) -> None:
        raise NotImplementedError

    def ended(self) -> tuple[Any, Any] | None:
        """The results, when its work is done."""
        raise NotImplementedError

    def close(self, *, aborts: bool) -> None:
        """Its work is over."""
        raise NotImplementedError

    def answer_asked(self) -> None:
        """Questions, before a turn."""
        asked, self.asked = self.asked, []
        now_s = self.world.clock.now_s
        for one in asked:
            if now_s > one.until_s:
                one.ref.settle(Raised(NoAnswer("the loop was busy")))
            else:
                self._answer(one.ref, one.function)

    def look_at_watched(self) -> None:
        """What is waited for, after a turn."""
        now_s = self.world.clock.now_s
        for one in list(self.watched):
            try:
                value = one.is_so()
            except Exception as error:
                one.ref.settle(Raised(error))
                value = None
            if value:
                one.ref.settle(Gave(value))
            elif now_s >= one.until_s:
                one.ref.settle(Gave(False))
        self.watched = [one for one in self.watched if one.ref.answer is None]

    def look_at_time(self) -> None:
        """Questions that a busy loop has not come to in time are withdrawn; so is what is watched."""
        if self.is_dead or self.stands_still_until_s > self.world.clock.now_s:
            return
        now_s = self.world.clock.now_s
        for one in [one for one in self.asked if now_s > one.until_s]:
            self.asked.remove(one)
            one.ref.settle(Raised(NoAnswer("the loop was busy")))
        for watched in [one for one in self.watched if now_s >= one.until_s]:
            self.watched.remove(watched)
            watched.ref.settle(Gave(False))

    def _guarded(self, function: Callable[[], None]) -> None:
        """A piece of the long call, which ends with an error, or when the work is done."""
        ref = self.running
        assert ref is not None
        try:
            function()
            results = self.ended()
        except Exception as error:
            self.world.note_error(self.name, error)
            self._end(ref, (failure_of(self.who, error), {}), aborts=True)
            return
        if results is not None:
            self._end(ref, results, aborts=False)

    def _end(self, ref: Ref, results: tuple[Any, Any], *, aborts: bool) -> None:
        self.running = None
        self.close(aborts=aborts)
        asked, self.asked = self.asked, []
        for one in asked:
            self._answer(one.ref, one.function)
        for watched in self.watched:
            try:
                value = watched.is_so()
            except Exception:
                value = None
            watched.ref.settle(Gave(value) if value else Raised(ProtocolError("the event loop has ended")))
        self.watched.clear()
        ref.settle(Gave(results[0]))
        assert ref.staged is not None
        ref.staged.settle(Gave(results[1]))

    def idle(self) -> None:
        """Answered when nothing else is done."""

    def rest(self) -> None:
        """Its job is complete."""
        self.has_host, self.name, self.who, self.abandoned_s = False, "nobody", "nobody", None


class ProgressProcess(Process):
    """The progress actor."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.progress: ProgressWorker | None = None

    def take(self, plan: list[Plan], places: Places, job: str, secret: bytes, seals: bool) -> None:
        self.name = self.who = PROGRESS
        self._plan, self._places = plan[0], places

    def listen(self, host: str | None, unix: str, incarnation: int, survives: bool, layout: Any) -> Any:
        self.link = self.world.lines.link("progress", incarnation)
        self.progress = ProgressWorker(self._plan.laid_out(layout), self._places, self.link, survives=survives)
        self.asked.clear(), self.watched.clear()
        self.has_host = True
        return self.link.listen()

    def begin(self) -> None:
        self.link.is_polled = True
        self.due_s = self.world.clock.now_s + POLL_S

    def turn(self) -> None:
        assert self.progress is not None
        self.is_woken = False
        self.due_s = self.world.clock.now_s + POLL_S
        self.progress.turn(self.link.poll())
        self.answer_asked()
        self.look_at_watched()
        self.progress.look_whether_over()

    @property
    def is_due(self) -> bool:
        late = self.progress.late if self.progress is not None else {}
        return super().is_due or any(not self.link.is_behind(process) for process, _ in late)

    def ended(self) -> tuple[Any, Any] | None:
        assert self.progress is not None
        return (self.progress.counts(), {}) if self.progress.is_over else None

    def close(self, *, aborts: bool) -> None:
        self.link.close()

    def control(self, ref: Ref) -> None:
        progress, now_s = self.progress, self.world.clock.now_s
        if ref.method == "ping":
            ref.settle(Gave(self.pulse()))
        elif ref.method == "is_fit":
            ref.settle(Gave(True))
        elif ref.method == "abandon":
            if self.has_host and self.link.incarnation <= ref.arguments[0]:
                assert progress is not None
                progress.is_abandoned = True
                self.is_woken = True
            ref.settle(Gave(None))
        elif ref.method == "call":
            method, *arguments = ref.arguments
            assert progress is not None
            if method == "joined":
                self.watched.append(Watched(ref, partial(progress.joined, arguments[0]), now_s + arguments[1]))
                self.is_woken = True
            elif self.running is None and self.link.is_closed:
                self._answer(ref, partial(getattr(progress, method), *arguments))
            else:
                until_s = now_s + LOOK_S if method in LOOKS else NEVER_S
                self.asked.append(Asked(ref, partial(getattr(progress, method), *arguments), until_s))
        else:
            raise AssertionError(f"the progress actor was asked to {ref.method}")


class VertexProcess(Process):
    """A process that holds replicas."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.worker: Worker | None = None
        self.writers: list[EventWriter] = []
        self._has_run = True

    def take(self, plan: list[Plan], process: str, places: Places, config: RunConfig, job: str, secret: bytes) -> None:
        self.name, self.who = process, places.who(process, plan[0])
        self._arguments = (plan[0], places, config)
        self._has_run = True

    def rest(self) -> None:
        super().rest()
        self.worker, self.writers = None, []

    def listen(
        self,
        host: str | None,
        incarnation: int,
        store: Any = None,
        parts: Any = None,
        incarnations: Any = None,
        layout: Any = None,
        is_newcomer: bool = False,
        changed: Any = None,
        ended: int = 0,
    ) -> Any:
        plan, places, config = self._arguments
        try:
            plan = plan.laid_out(layout)
            if not self._has_run:
                self._discard()
            world = self.world
            self.link = world.lines.link(self.name, incarnation)
            self.writers = []
            run: Any = SimpleNamespace(store=SimpleNamespace(store=store), incarnation=incarnation, writers=self.writers)

            def writer(stage: Stage, replica: int) -> EventWriter:
                return EventWriter(run, stage, replica)

            def moment() -> dt.datetime:
                return EPOCH_UTC + dt.timedelta(seconds=world.clock.now_s)

            around = Surroundings(self.link, world.clock, moment, writer)
            self.worker = Worker(self.name, plan, places, changed or config, around, store=store, incarnations=incarnations)
            self.has_host, self._has_run = True, False
            for at in places.replicas_at(self.name, plan):
                self.worker.hold(*at, part=(parts or {}).get(at), is_newcomer=is_newcomer)
            return self.link.listen()
        except Exception as error:
            self.world.note_error(self.name, error)
            if not self._has_run:
                self._discard()
                self._has_run = True
            return failure_of(self.who, error)

    def _discard(self) -> None:
        assert self.worker is not None
        self.worker.close()
        self.link.close()

    def begin(self, addresses: Any) -> None:
        self._has_run = True
        assert self.worker is not None
        self.link.is_polled = True
        self.worker.begin(addresses)

    def turn(self) -> None:
        assert self.worker is not None
        self.is_woken = False
        self.worker.turn(self.link.poll(), self.answer_asked)
        self.look_at_watched()
        self.due_s = self.world.clock.now_s + self.worker.timeout_s()

    def ended(self) -> tuple[Any, Any] | None:
        assert self.worker is not None
        if not self.worker.is_over:
            return None
        results = self.worker.results()
        return {at.plane_name: left.report for at, left in results.items()}, {at.plane_name: left.staged for at, left in results.items()}

    def close(self, *, aborts: bool) -> None:
        assert self.worker is not None
        self.worker.close(aborts=aborts)
        if aborts:
            self.link.end(f"{self.who} has failed", has_left=False)
        else:
            self.link.close()

    def free(self) -> None:
        if self.worker is not None:
            self.worker.close()

    def control(self, ref: Ref) -> None:
        worker, now_s, arguments = self.worker, self.world.clock.now_s, ref.arguments
        match ref.method:
            case "ping":
                ref.settle(Gave(self.pulse()))
            case "abandon":
                if worker is not None and self.link.incarnation <= arguments[0]:
                    worker.is_abandoned = self.is_woken = True
                ref.settle(Gave(None))
            case "stop":
                if worker is not None:
                    worker.stopping = tuple(arguments[0])
                    self.is_woken = True
                ref.settle(Gave(None))
            case "acquit":
                ref.settle(Gave(None))
            case "is_fit":
                ref.settle(Gave(True))
            case "has_stopped":
                ref.settle(Gave(True))
            case "look":
                reports = {} if worker is None else {one.place.at: note_counts(one.place, one.snapshots) for one in worker.hosts.values()}
                ref.settle(Gave({at.plane_name: report for at, report in reports.items()}))
            case "readings":
                hosts = [] if worker is None else list(worker.hosts.values())
                ref.settle(Gave([one.statistics.reading(None) for one in hosts]))
            case "change":
                self._ask(ref, arguments[0], arguments[1], arguments[2:], NEVER_S)
            case "change_within":
                self._ask(ref, arguments[1], arguments[2], arguments[3:], now_s + arguments[0])
            case "await_change":
                replica, method, within_s, *more = arguments
                self._watch(ref, replica, method, within_s, more)
            case "roll_back":
                assert worker is not None
                (host,) = worker.hosts.values()
                function = partial(upstream.roll_back, host.place, host.snapshots, *arguments)  # type: ignore[arg-type]
                self.asked.append(Asked(ref, function, now_s + self._arguments[2].start_timeout_s))
            case _:
                raise AssertionError(f"{self.name} was asked to {ref.method}")

    def _host(self, stage: int) -> Any:
        assert self.worker is not None
        host = self.worker.hosts.get(stage)
        if host is None:
            raise ProtocolError(f"{self.name} holds no replica of vertex {stage}: it has retired, or did not come")
        return host

    def _ask(self, ref: Ref, replica: ReplicaId, method: str, arguments: Any, until_s: float) -> None:
        worker = self.worker
        assert worker is not None

        def function() -> Any:
            if method == "admit":
                return worker.admit(*replica, *arguments)
            if method == "withdraw":
                return worker.forget(replica[0])
            return getattr(self._host(replica[0]).rescale, method)(*arguments)

        if self.running is None:
            self._answer(ref, function)
        else:
            self.asked.append(Asked(ref, function, until_s))

    def _watch(self, ref: Ref, replica: ReplicaId, method: str, within_s: float, arguments: Any) -> None:
        worker = self.worker
        assert worker is not None

        def is_so() -> Any:
            if method == "has_left":
                return worker.left_by(*replica)
            return bool(getattr(self._host(replica[0]).rescale, method)(*arguments))

        if self.running is None:
            value = is_so()
            ref.settle(Gave(value) if value else Raised(ProtocolError("the event loop has ended")))
            return
        self.watched.append(Watched(ref, is_so, self.world.clock.now_s + within_s))
        self.is_woken = True


__all__ = ["Process", "ProgressProcess", "Ref", "VertexProcess"]
