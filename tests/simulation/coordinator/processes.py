"""Processes on the bus: what Ray's actors are around the hosts that ship, of a worker and of the progress worker.

A process answers one call after the other in its main thread (to listen, to run, whether it is idle); control calls reach it while it runs,
each as a question in the mailbox of its loop, where nobody waits for the answer. Any of this may come late. A process may be frozen
(nothing happens in it), and it may be killed: then nothing is answered any more but that it has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.surroundings import Answer, Ended, Gave, Raised
from rayad.actors.host.progress_host import ProgressHost
from rayad.actors.lead.failure import failure_of
from rayad.actors.local.actors import Ref
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.process.mailbox import Mailbox, NoAnswer, Question
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Pulse
from rayad.dataflow.plan import Plan
from tests.simulation.coordinator.nodes import SimulatedNode

if TYPE_CHECKING:
    from tests.simulation.coordinator.world import World

MAIN = frozenset({"take", "rest", "listen", "run", "idle"})
PULSE = frozenset({"ping", "abandon", "stop", "has_stopped", "acquit"})
NEVER_S = float("inf")
POLL_S = 1.0


@dataclass(eq=False)
class Later:
    """What a control call gives whose answer comes from the loop."""

    question: Question
    until_s: float
    withdraw: Callable[[Question], bool]
    """When the time is over; gives whether that was in time."""
    otherwise: Answer
    """The answer then."""
    ref: Ref | None = None

    def look(self, now_s: float) -> bool:
        """Whether it is answered now."""
        assert self.ref is not None
        question = self.question
        if question.answered.is_set():
            self.ref.settle(Gave(question.answer) if question.error is None else Raised(question.error))
        elif now_s >= self.until_s and self.withdraw(question):
            self.ref.settle(self.otherwise)
        return self.ref.answer is not None


class Answers(Mailbox):
    """A mailbox of which nobody waits for the answer."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s

    def ask(self, function: Callable[[], Any], timeout_s: float = 10.0) -> Any:
        return Later(self.put(function), self._now_s() + timeout_s, self.withdraw, Raised(NoAnswer("the loop was busy")))

    def watch(self, predicate: Callable[[], Any], timeout_s: float) -> Any:
        return Later(self.put_watcher(predicate), self._now_s() + timeout_s, self.give_up, Gave(False))


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
        self.later: list[Later] = []
        """What its loop has been asked."""
        self.host: Any = None
        """A :class:`WorkerHost` or :class:`ProgressHost`, in the incarnation of now."""
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
        elif ref.method in PULSE:
            self.pulses.append(ref)
        else:
            self.controls.append(ref)

    def kill(self, *, by_coordinator: bool = False) -> None:
        """It dies, at this moment."""
        if self.is_dead:
            return
        self.world.nodes.on_kill(self, by_coordinator=by_coordinator)
        self.is_dead = True
        waiting = [*self.main, *self.controls, *self.pulses, *(one.ref for one in self.later)]
        self.doomed += [ref for ref in waiting if ref is not None and ref.answer is None]
        if self.running is not None:
            self.doomed.append(self.running)
        self.running = None
        self.main.clear(), self.controls.clear(), self.pulses.clear(), self.later.clear()
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
        return bool(self.link.is_due)

    @property
    def wakes_s(self) -> float:
        """When something happens in it by itself."""
        if self.is_dead:
            return NEVER_S
        times = [one.until_s for one in self.later]
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
                self.link.is_polled = True
                self.link.wakeup()
                self._guarded(partial(self.begin, *ref.arguments))
            else:
                self._answer(ref, partial(getattr(self, ref.method), *ref.arguments))
        elif kind == "turn":
            self._guarded(self.turn)
            self._look_for_answers()
        else:
            ref = (self.controls if kind == "control" else self.pulses).popleft()
            self._answer(ref, partial(self.control, ref.method, *ref.arguments))

    def tell(self, ref: Ref) -> None:
        """Ray says that it has died."""
        self.doomed.remove(ref)
        ref.settle(Ended(f"the process of {self.who} was killed"))
        if ref.staged is not None:
            ref.staged.settle(ref.answer)  # type: ignore[arg-type]

    def _answer(self, ref: Ref, function: Callable[[], Any]) -> None:
        try:
            value = function()
        except Exception as error:
            ref.settle(Raised(error))
            return
        if isinstance(value, Later):
            value.ref = ref
            self.later.append(value)
            self._look_for_answers()
        else:
            ref.settle(Gave(value))

    def _look_for_answers(self) -> None:
        now_s = self.world.clock.now_s
        self.later = [one for one in self.later if not one.look(now_s)]

    # -- the loop ------------------------------------------------------------------------------------------
    def begin(self, *arguments: Any) -> None:
        """The long call begins."""

    def turn(self) -> None:
        """One round of the loop."""
        self.host.turn(self.link.poll())

    def control(self, method: str, *arguments: Any) -> Any:
        """A control call: what it gives, perhaps later."""
        if method == "ping":
            return self.pulse()
        if method == "is_fit":
            return True
        if self.host is None or (method == "abandon" and self.link.incarnation > arguments[0]):
            return None
        return self.asked(method, *arguments)

    def asked(self, method: str, *arguments: Any) -> Any:
        """Its host is asked for something."""
        return self.host.abandon() if method == "abandon" else getattr(self.host, method)(*arguments)

    def ended(self) -> tuple[Any, Any] | None:
        """The results, when its work is done."""
        raise NotImplementedError

    def close(self, *, aborts: bool) -> None:
        """Its work is over."""
        raise NotImplementedError

    def look_at_time(self) -> None:
        """Questions that a busy loop has not come to in time are withdrawn; so is what is watched."""
        if self.is_dead or self.stands_still_until_s > self.world.clock.now_s:
            return
        self._look_for_answers()

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
        self._look_for_answers()
        ref.settle(Gave(results[0]))
        assert ref.staged is not None
        ref.staged.settle(Gave(results[1]))

    def idle(self) -> None:
        """Answered when nothing else is done."""

    def rest(self) -> None:
        """Its job is complete."""
        self.host, self.name, self.who, self.abandoned_s = None, "nobody", "nobody", None


class ProgressProcess(Process):
    """The progress actor."""

    def take(self, plan: list[Plan], places: Places, job: str, secret: bytes, seals: bool) -> None:
        self.name = self.who = PROGRESS
        self._plan, self._places = plan[0], places

    def listen(self, host: str | None, unix: str, incarnation: int, survives: bool, ahead: Any, layout: Any) -> Any:
        self.link = self.world.lines.link("progress", incarnation)
        mailbox, self.later = Answers(lambda: self.world.clock.now_s), []
        given: dict[str, Any] = {"mailbox": mailbox, "places": self._places, "survives": survives, "ahead": ahead}
        self.host = ProgressHost(self._plan.laid_out(layout), self.link, **given)
        return self.link.listen()

    def turn(self) -> None:
        self.due_s = self.world.clock.now_s + POLL_S
        super().turn()

    @property
    def is_due(self) -> bool:
        late = self.host.progress.late if self.host is not None else {}
        return super().is_due or any(not self.link.is_behind(process) for process, _ in late)

    def ended(self) -> tuple[Any, Any] | None:
        progress = self.host.progress
        return (progress.counts(), {}) if progress.is_over else None

    def close(self, *, aborts: bool) -> None:
        self.host.end()


__all__ = ["MAIN", "NEVER_S", "Answers", "Process", "ProgressProcess"]
