"""The processes of a local job as its coordinator sees them: the port of ``coordinator/surroundings.py``, over the bus.

What an actor on Ray answers beside its work (a ping, whether it is idle) is answered at once. All else that it is asked for is an event,
``("call", name)``, first come, first served for each name, and so is the answer on its way, ``("answer", ref)``. What the seed draws beside
the order: a question whether something is so yet may be given up before it is so, ``("give up", ref)``, as an actor on Ray gives it up
after a while, and a call that comes too late may have been withdrawn.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND, Kind
from rayad.actors.coordinator.surroundings import Answer, Ended, Gave, NotFetched, Raised
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.nodes.node import Node, Site
from rayad.actors.local.processes import Processes
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.plane.protocol import Kind as FrameKind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.mailbox import ENDED, NoAnswer
from rayad.actors.replica.report import Pulse, told
from rayad.actors.worker import asked
from rayad.actors.worker.worker import Worker
from rayad.dataflow.pacing import Ahead
from rayad.dataflow.plan import Layout, Plan
from rayad.dataflow.resources import Need
from rayad.progress import InternalError, ProtocolError

EVENTS = ("call", "answer", "give up")
"""All kinds of events of calls."""
GIVE_UP_SHARE = 0.1
"""The share of questions that an actor may give up before the answer is yes."""
WITHDRAWN_SHARE = 0.5
"""The share of calls that an actor withdraws when their time is over: others were long on their way, and it has just got them."""
NODE = Node("local", "this process", {"CPU": inf})
_LOST = (FrameKind.DATA, FrameKind.TRANSFER, FrameKind.REPORT)


class LocalActor:
    """A handle: one process, which knows from ``take`` on which one it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.running: Ref | None = None
        """Its long call."""


class Ref:
    """The answer to a call.

    Args:
        actor: who is asked.
        method, arguments: what it is asked for.
        name: of the actor, or of a replica that it holds.
        due_s: when it may have been withdrawn.
        staged: of a long call: the reference of its second result.
    """

    def __init__(
        self, actor: Any, method: str, arguments: tuple[Any, ...] = (), *, name: str = "", due_s: float = inf, staged: Ref | None = None
    ) -> None:
        self.actor, self.name, self.method, self.arguments, self.due_s, self.staged = actor, name, method, arguments, due_s, staged
        self.answer: Answer | None = None
        self.is_here = False
        """Whether the answer has come to the coordinator."""

    def __repr__(self) -> str:
        return f"{self.name}.{self.method}"

    def settle(self, answer: Answer) -> None:
        """This is the answer, and it is here."""
        if self.answer is None:
            self.answer, self.is_here = answer, True


class LocalActors:
    """See :class:`rayad.actors.coordinator.surroundings.Actors`.

    Args:
        processes: on the bus.
        chance: draws what is given up.
        now_s: the clock.
        plan: gives the job's, in the layout that it has.
        failure_of: an error of a process as a value.
        on_answer: told that an answer is here.
        on_progress: told that a progress worker begins.
    """

    def __init__(
        self,
        processes: Processes,
        chance: random.Random,
        now_s: Callable[[], float],
        *,
        plan: Callable[[], Plan],
        failure_of: Callable[[str, BaseException], Failure],
        on_answer: Callable[[Ref], None],
        on_progress: Callable[[], None],
    ) -> None:
        self.calls: dict[str, deque[Ref]] = {}
        """Calls on their way, by name."""
        self.watched: dict[Ref, Callable[[], Any]] = {}
        """Questions that are answered as soon as it is so."""
        self.running: dict[str, LocalActor] = {}
        """Whose long call has begun, by name."""
        self.is_over = False
        """The job is: what its processes hold stays to be looked at."""
        self._processes, self._ready = processes, processes.ready
        self._chance, self._now_s = chance, now_s
        self._plan = plan
        self._failure_of, self._on_answer, self._on_progress = failure_of, on_answer, on_progress

    # -- the port ------------------------------------------------------------------------------------
    def parcel(self, value: Any) -> Any:
        """See the port, as for all of these."""
        return [value]

    def start(self, kind: Kind, title: tuple[str, ...], site: Site) -> LocalActor:
        return LocalActor(PROGRESS if kind == PROGRESS_KIND else "")

    def call(self, actor: LocalActor, method: str, *arguments: Any) -> Ref:
        name, due_s = actor.name, inf
        if method == "change_within":
            within_s, *rest = arguments
            method, arguments, due_s = "change", tuple(rest), self._now_s() + within_s
        if method in ("change", "await_change"):
            name = ReplicaId(*arguments[0]).plane_name
        ref = Ref(actor, method, arguments, name=name, due_s=due_s)
        if actor.is_dead:
            ref.settle(Ended(f"the process of {name} has ended"))
        elif method == "await_change":
            replica, condition, _, *more = arguments
            self._watch(ref, partial(self._is_so, replica, condition, *more))
        elif method == "call" and arguments[0] == "joined":
            self._watch(ref, partial(self._processes.progress.joined, arguments[1]))
        elif method in ("change", "call", "listen", "roll_back", "run") and arguments[1:2] != ("may_move",):
            self.calls.setdefault(name, deque()).append(ref)
            self._ready.add(("call", name))
        else:
            self._settle(ref, getattr(self, f"_{method}"))
            if method == "change":
                self._on_answer(ref)
        return ref

    def run(self, actor: LocalActor, *arguments: Any) -> tuple[Ref, Ref]:
        ref = self.call(actor, "run", *arguments)
        ref.staged = staged = Ref(actor, "staged", name=actor.name)
        return ref, staged

    def wait(self, refs: Sequence[Ref], timeout_s: float, count: int = 1) -> list[Ref]:
        if timeout_s:
            self._until(lambda: sum(ref.is_here for ref in refs) >= min(count, len(refs)))
        return [ref for ref in refs if ref.is_here][:count]

    def take(self, ref: Ref, timeout_s: float) -> Answer:
        self._until(lambda: ref.is_here)
        return ref.answer if ref.is_here and ref.answer is not None else NotFetched()

    def kill(self, actor: LocalActor) -> None:
        """It ends. Nothing may be lost with one that has retired but marks and credits."""
        if actor.is_dead:
            return
        lost = [frame for frame in self.lose(actor) if frame.kind in _LOST]
        if lost:
            ways = sorted({f"{FrameKind(frame.kind).name} from {frame.peer}" for frame in lost})
            raise InternalError(f"{', '.join(ways)}: lost with {actor.name}, which has retired")

    def last_words(self, ended: Ended) -> str:
        return ""

    def nodes(self) -> list[Node]:
        return [NODE]

    def own_node(self) -> str:
        return NODE.id

    def drains(self) -> dict[str, float]:
        return {}

    def check_placeable(self, needs: Sequence[Need], what: str, autoscaling: bool | None) -> None:
        pass

    def free(self) -> str:
        return "those of this process"

    def own_address(self, host: str | None = None) -> str:
        return ""

    # -- what happens --------------------------------------------------------------------------------
    def perform(self, kind: str, what: Any) -> None:
        """One event."""
        if kind == "call":
            waiting = self.calls[what]
            ref = waiting.popleft()
            if not waiting:
                self._ready.discard((kind, what))
                del self.calls[what]
            try:
                self._do(ref)
            except BaseException:  # somebody interrupts it: it is done when the job goes on
                self.calls.setdefault(what, deque()).appendleft(ref)
                self._ready.add((kind, what))
                raise
            return
        self._ready.discard((kind, what))
        if kind == "answer":
            what.is_here = True
            self._on_answer(what)
        elif self.watched.pop(what, None) is not None:  # it has kept the question for as long as it may
            self._bring(what, Gave(False))

    def look_at_watched(self) -> None:
        """Look what has become so that somebody waits for."""
        for ref, is_so in list(self.watched.items()):
            try:
                value = is_so()
            except Exception as error:
                self._bring(ref, Raised(error))
            else:
                if not value:
                    continue
                self._bring(ref, Gave(value))
            del self.watched[ref]

    def forget_watched(self) -> None:
        """Nobody waits for anything."""
        for ref in self.watched:
            self._ready.discard(("give up", ref))
        self.watched.clear()

    def look_for_ends(self) -> None:
        """The progress worker has told that nothing is left to do: look whose work is done."""
        for name, actor in list(self.running.items()):
            if name == PROGRESS:
                self._end(actor, self._processes.progress.counts(), {})
                continue
            worker = self._processes.workers[name]
            if worker.is_over:
                left = {at.plane_name: given for at, given in worker.results().items()}
                self._end(actor, *told(left))

    def _end(self, actor: LocalActor, summary: Any, kept: Any) -> None:
        del self.running[actor.name]
        ref, actor.running = actor.running, None
        assert ref is not None
        assert ref.staged is not None
        ref.staged.settle(Gave(kept))
        self._bring(ref, Gave(summary))

    def fail(self, name: str, error: Exception) -> bool:
        """A process has failed at its work: the coordinator hears of it at once. False: there is none of that name at work."""
        actor = self.running.pop(name, None)
        if actor is None or actor.running is None:
            return False
        actor.running.settle(Gave(self._failure_of(self._processes.places.title(name, self._plan()), error)))
        actor.running = None
        return True

    def lose(self, actor: LocalActor) -> list[Any]:
        """A process is gone; gives what is lost on its way to or from it."""
        actor.is_dead = True
        self._forget(actor, Ended(f"the process of {actor.name} has ended"))
        if actor.running is not None:
            actor.running.settle(Ended(f"the process of {actor.name} has ended"))
        return self._leave(actor)

    def _leave(self, actor: LocalActor) -> list[Any]:
        self.running.pop(actor.name, None)
        actor.running = None
        return self._processes.lose(actor.name) if actor.name in self._processes.workers and not self.is_over else []

    def _forget(self, actor: LocalActor, answer: Answer) -> None:
        """What it was asked for will not be done."""
        for name in [name for name, waiting in self.calls.items() if waiting[0].actor is actor]:
            self._ready.discard(("call", name))
            for ref in self.calls.pop(name):
                ref.settle(answer)
        for ref in [ref for ref in self.watched if ref.actor is actor]:
            del self.watched[ref]
            self._ready.discard(("give up", ref))
            ref.settle(answer)

    def _until(self, is_so: Callable[[], bool]) -> None:
        """The coordinator waits in the middle of something: calls are answered meanwhile, and nothing else happens."""
        while not is_so():
            events = [event for event in self._ready.items if event[0] in ("call", "answer")]
            if not events:
                return
            self.perform(*events[int(self._chance.random() * len(events))])

    # -- calls ---------------------------------------------------------------------------------------
    def _bring(self, ref: Ref, answer: Answer) -> None:
        """An answer is on its way."""
        if ref.answer is None:
            ref.answer = answer
            self._ready.add(("answer", ref))

    def _watch(self, ref: Ref, is_so: Callable[[], Any]) -> None:
        self.watched[ref] = is_so
        if self._chance.random() < GIVE_UP_SHARE:
            self._ready.add(("give up", ref))

    def _do(self, ref: Ref) -> None:
        """A call reaches the actor that it is for."""
        if self._now_s() > ref.due_s and self._chance.random() < WITHDRAWN_SHARE:
            self._bring(ref, Raised(NoAnswer(f"{ref}: it came too late")))
            return
        method = self._progress_listens if ref.actor.name == PROGRESS and ref.method == "listen" else getattr(self, f"_{ref.method}")
        try:
            value = method(ref.actor, *ref.arguments)
        except Exception as error:
            if ref.method == "run":  # a start fails as a whole
                ref.settle(Raised(error))
                self._on_answer(ref)
            else:
                self._bring(ref, Raised(error))
        else:
            if ref.method != "run":
                self._bring(ref, Gave(value))
            else:
                self.running[ref.actor.name] = ref.actor
                ref.actor.running = ref

    def _settle(self, ref: Ref, method: Callable[..., Any]) -> None:
        """It is answered at once."""
        try:
            ref.settle(Gave(method(ref.actor, *ref.arguments)))
        except Exception as error:
            ref.settle(Raised(error))

    def _take(self, actor: LocalActor, plan: Any, name: Any, *rest: Any) -> None:
        if actor.name != PROGRESS:
            actor.name = name

    def _ping(self, actor: LocalActor) -> Pulse:
        return Pulse(None, NODE.address, NODE.id)

    def _idle(self, actor: LocalActor) -> None:
        pass

    def _acquit(self, actor: LocalActor) -> None:
        pass

    def _abandon(self, actor: LocalActor, incarnation: int) -> None:
        self._forget(actor, Raised(ProtocolError(ENDED)))
        self._leave(actor)

    def _stop(self, actor: LocalActor, stages: Collection[int]) -> None:
        worker = self._processes.workers.get(actor.name)
        if worker is not None:
            worker.stopping = tuple(stages)
            self._ready.add(("turn", actor.name))

    def _laid_out(self, layout: Layout) -> Plan:
        plan = self._plan()
        return plan if plan.layout == layout else plan.laid_out(layout)

    def _progress_listens(
        self, actor: LocalActor, host: str | None, unix: str, incarnation: int, survives: bool, ahead: Ahead, layout: Layout
    ) -> tuple[str, int]:
        self._processes.begin_progress(self._laid_out(layout), incarnation)
        self._on_progress()
        return PROGRESS, incarnation

    def _listen(
        self,
        actor: LocalActor,
        host: str | None,
        incarnation: int,
        store: Any,
        parts: Mapping[ReplicaId, Any] | None,
        incarnations: Mapping[str, int],
        layout: Layout,
        is_newcomer: bool,
        *rest: Any,
    ) -> tuple[str, int] | Failure:
        processes, name = self._processes, actor.name
        try:
            plan = self._laid_out(layout)
            processes.store = store
            processes.come(name, plan, incarnation, incarnations)
            held = processes.places.replicas_at(name, plan)
            for at in held if is_newcomer else self._chance.sample(held, len(held)):
                processes.hold(name, at, part=(parts or {}).get(at), is_newcomer=is_newcomer)
        except BaseException as error:
            self._leave(actor)
            if not isinstance(error, Exception):
                raise
            return self._failure_of(processes.places.title(name, self._laid_out(layout)), error)
        return name, incarnation

    def _run(self, actor: LocalActor, addresses: Mapping[str, Any] | None = None) -> None:
        if addresses is not None:
            self._processes.begin(actor.name, addresses)

    def _roll_back(self, actor: LocalActor, *arguments: Any) -> None:
        asked.roll_back(self._processes.workers[actor.name], *arguments)
        self._processes.look(actor.name)

    def _call(self, actor: LocalActor, method: str, *arguments: Any) -> Any:
        progress = self._processes.progress
        value = getattr(progress, method)(*arguments)
        progress.look_whether_over()
        return value

    def _change(self, actor: LocalActor, replica: ReplicaId, method: str, *arguments: Any) -> Any:
        processes = self._processes
        if method == "admit":
            return processes.admit(actor.name, ReplicaId(*replica), *arguments)
        value = asked.change(self._worker(replica, method), replica, method, *arguments)
        if method != "withdraw":
            self._ready.add(("turn", actor.name))
        return value

    def _is_so(self, replica: ReplicaId, method: str, *arguments: Any) -> Any:
        return asked.is_so(self._worker(replica, method), replica, method, *arguments)

    def _worker(self, replica: ReplicaId, method: str) -> Worker:
        worker = self._processes.workers.get(self._processes.places.process_of(*replica))
        if worker is None:
            raise ProtocolError(f"{ReplicaId(*replica).plane_name} is asked for {method}, and its process is not there")
        return worker


__all__ = ["EVENTS", "LocalActor", "LocalActors", "Ref"]
