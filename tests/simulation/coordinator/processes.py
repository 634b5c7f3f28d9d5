"""Processes on the bus: what Ray's actors and their hosts are around the worker and the progress worker that ship.

A process answers one call after the other in its main thread (to listen, to run, whether it is idle); control calls reach it while it runs,
each as a question that its loop answers in its next turn, or as something that it watches. Any of this may come late. A process may be
frozen (nothing happens in it), and it may be killed: then nothing is answered any more but that it has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.surroundings import Answer, Ended, Gave, Raised
from rayad.actors.host.progress_host import LOOK_S, LOOKS
from rayad.actors.lead.failure import failure_of
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Pulse
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.dataflow.plan import Plan
from rayad.progress import ProtocolError
from tests.simulation.coordinator.nodes import SimulatedNode

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
            if self not in self.world.processes:  # it had told all others; Ray tells whoever asks
                self.world.processes.append(self)
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


__all__ = ["MAIN", "NEVER_S", "Asked", "Process", "ProgressProcess", "Ref", "Watched"]
