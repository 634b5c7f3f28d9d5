"""Drives the leader of a change of layout on the bus: each call and each answer is an event, whose turn the seed draws.

As on Ray, nothing is decided here: a call is delivered to the worker that ships, the progress worker, or the coordinator's part, by the
name of its method. What the seed draws besides the order: a question whether something is so yet may be given up before it is so, as an
actor on Ray gives it up after ``within_s``, and a call that comes too late may have been withdrawn.
"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, assert_never

from rayad.actors.coordinator.stored.snapshots_part import SnapshotsPart
from rayad.actors.lead import calls
from rayad.actors.lead import change_protocol as change
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Event, JobFailed, Late, Tick
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import Members, Phase
from rayad.actors.lead.failure import failure_of
from rayad.actors.lead.layouts import RescaleReport, plane_names
from rayad.actors.lead.recovery_leader import RecoveryLeader
from rayad.actors.local.coordinator import LocalKeptJob
from rayad.actors.local.processes import Processes
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, Kind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError, ProtocolError, say

_log = logging.getLogger(__name__)
EVENTS = ("call", "answer", "give up")
"""All kinds of events of a change."""
AT_ONCE = (calls.MayMove, calls.Release, calls.ReleaseSnapshots)
"""Calls that are no events: of the first question the answer is needed by whoever asks for the change; of the others nobody waits for."""
GIVE_UP_SHARE = 0.1
"""The share of questions that an actor may give up before the answer is yes."""
WITHDRAWN_SHARE = 0.5
"""The share of calls that an actor withdraws when their time is over: others were long on their way, and it has just got them."""
Turn = int


class Changed(Protocol):
    """The job that changes."""

    job: LocalKeptJob
    plan: Plan
    processes: Processes

    @property
    def recovery(self) -> RecoveryLeader: ...


class Order(NamedTuple):
    """A call on its way; one that comes after ``due_s`` may have been withdrawn."""

    turn: Turn
    call: calls.Call
    due_s: float


class LocalRescale:
    """One change of layout of a local job.

    Args:
        job: that changes.
        wanted: replicas by vertex.
        turn: the last one of this job's earlier changes.
        chance: draws what is given up.
        now_s: the clock.
        timeout_s: until newcomers must be there and all prepared; then it is refused.
        groups: how many key-groups a step moves; None: all at once.
        before: the last change, answers in which may still be on their way.
    """

    def __init__(
        self,
        job: Changed,
        wanted: Mapping[str, int],
        *,
        turn: int,
        chance: random.Random,
        now_s: Callable[[], float],
        timeout_s: float = math.inf,
        groups: int | None = None,
        before: LocalRescale | None = None,
    ) -> None:
        self._job = job
        self._processes = job.processes
        self._ready = job.processes.ready
        self._chance = chance
        self._now_s = now_s
        recovery, there = job.recovery, [*job.processes.workers, PROGRESS, COORDINATOR]
        links = job.processes.bus.links
        incarnations = {name: links[name].incarnation for name in there if name in links}
        self.leader: ChangeLeader = ChangeLeader(
            job.plan,
            wanted,
            timeout_s=timeout_s,
            asked_s=now_s(),
            members=Members(recovery.incarnation, incarnations, {name: name for name in there}, {}, job.processes.places),
            turn=turn,
            groups=groups,
            step_timeout_s=math.inf,  # nothing is lost here: what takes long is the user's code
            holds_by_time=job.processes.config.failures.recovery == "upstream",
        )
        self.is_unattended = False
        """Whether nobody waits for it, so that a refusal has to be logged."""
        self.holds_job = False
        """Whether the job is not over before the change is."""
        self._orders: dict[str, deque[Order]] = {}
        self._answers: dict[tuple[Turn, str], Answered | Late] = dict(before.answers) if before is not None else {}
        self._awaited: dict[tuple[Turn, str], Callable[[], Any]] = {}
        self._part = SnapshotsPart(job.job)
        self._was_whole = not self._off_layout()  # else the job has failed within a change, and is about to begin anew
        self._tell(Asked())

    # -- what others look at -------------------------------------------------------------------------
    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the snapshot under way."""
        return self.leader.is_waiting

    @property
    def is_done(self) -> bool:
        """Whether it is over, with the new layout or with the old one."""
        return self.leader.outcome is not None

    @property
    def phase(self) -> str:
        """Where it stands, for faults that are to strike in a phase."""
        return "waiting" if self.is_waiting else "leaving" if self.leader.gone else "moving"

    @property
    def refusal(self) -> str:
        """Why the layout stays as it was; "" when it does not."""
        outcome = self.leader.outcome
        return outcome.why if isinstance(outcome, change.Refuse) else ""

    @property
    def report(self) -> RescaleReport | None:
        """What it came to, when the layout is the one that was asked for."""
        outcome = self.leader.outcome
        return outcome.report if isinstance(outcome, change.Finish) else None

    @property
    def joining(self) -> tuple[str, ...]:
        """New processes that do not belong to the job yet."""
        return self.leader.joining

    @property
    def has_transfers(self) -> bool:
        """Whether something that a replica hands to a sibling is on its way."""
        return any(frame.kind == Kind.TRANSFER for waiting in self._processes.bus.ways.values() for frame in waiting)

    @property
    def answers(self) -> Mapping[tuple[Turn, str], Answered | Late]:
        """The answers so far, by turn and actor; whoever goes on with this change begins with them, and tests bring them again."""
        return self._answers

    def explain(self) -> str:
        """Who is waited for, and for what."""
        leader, known = self.leader, plane_names(self.leader.plan)
        title = leader.plan.title
        names = [title(*ReplicaId.from_plane_name(name)) if name in known else f"the {name}" for name in sorted(leader.missing)]
        return f"a change of layout waits for {', '.join(names)} {leader.phase.value}" if names else ""

    # -- the leader ----------------------------------------------------------------------------------
    def advance(self) -> bool:
        """Look what has become so that somebody waits for, and at the clock; gives whether something followed at once."""
        if self.is_done:
            return False
        for turn, name in list(self._awaited):
            answer = self._awaited[turn, name]()
            if answer:
                del self._awaited[turn, name]
                self._bring(Answered(turn, name, answer))
        if self.leader.phase is Phase.FAILING:
            return self._tell(JobFailed())  # here it can only be over
        return self._tell(Tick())

    def job_is_over(self) -> None:
        """It ends with the job."""
        self._tell(JobFailed())

    def _bring(self, answer: Answered | Late) -> None:
        """An answer is on its way."""
        asked = (answer.turn, answer.name)
        self._answers[asked] = answer
        self._ready.add(("answer", asked))

    def _tell(self, event: Event) -> bool:
        """Something has happened: do what follows, if anything does."""
        effects = self.leader.handle(event, self._now_s())
        self.leader.check_invariants()
        for effect in effects:
            self._act(effect)
        return bool(effects)

    def _act(self, effect: change.Effect) -> None:
        match effect:
            case Ask(turn, names, call, within_s):
                for name in names:
                    self._deliver(turn, name, call, within_s)
            case change.TakeIn():
                pass  # who fails is told by name here, and a failure in a change is the job's
            case change.Stop(_, processes, layout) | change.LayOut(layout, _, processes):
                for name in processes:
                    self._orders.pop(name, None)  # a newcomer that has not started must not start any more
                    self._ready.discard(("call", name))
                    self._end_process(name)
                self._lay_out(self._job.plan.laid_out(layout))
            case change.Fail(why, cause):
                raise cause if isinstance(cause, Exception) else InternalError(why)
            case change.Finish() | change.Refuse() | change.GiveWay():
                self._end(effect)
            case _:
                assert_never(effect)

    def _lay_out(self, plan: Plan) -> None:
        """This is the job's layout now."""
        job = self._job
        job.plan = plan
        self._tell_recovery({})
        self._part.lay_out_snapshots()

    def _tell_recovery(self, fresh: Mapping[str, int]) -> None:
        """Processes have come or gone."""
        recovery, there = self._job.recovery, (*self._processes.workers, PROGRESS)
        known = {**recovery.incarnations, **fresh}
        recovery.on_changed(self._job.plan, recovery.incarnation, {name: known[name] for name in there})

    def _end_process(self, name: str) -> None:
        """A process is ended: nothing may be lost with it but marks and credits."""
        if name not in self._processes.workers:
            return
        lost = [frame for frame in self._processes.lose(name) if frame.kind in (Kind.DATA, Kind.TRANSFER, Kind.REPORT)]
        if lost:
            ways = sorted({f"{Kind(frame.kind).name} from {frame.peer}" for frame in lost})
            raise InternalError(f"{', '.join(ways)}: lost with {name}, which has retired")

    # -- questions -----------------------------------------------------------------------------------
    def _deliver(self, turn: Turn, name: str, call: calls.Call, within_s: float) -> None:
        """A call is on its way to an actor, or watched there until it is so."""
        if isinstance(call, calls.HoldSnapshots):
            self._do_own(turn, call)
        elif isinstance(call, calls.Condition):
            self._awaited[turn, name] = lambda: self._method(name, call.method)(*call.arguments)
            if self._chance.random() < GIVE_UP_SHARE:
                self._ready.add(("give up", (turn, name)))
        elif isinstance(call, AT_ONCE):
            if isinstance(call, calls.Release):
                self._do_waiting(name)
            if isinstance(call, calls.OwnCall):
                self._do_own(turn, call)
            else:
                self._tell(Answered(turn, name, self._do(name, call)))
        else:
            self._orders.setdefault(name, deque()).append(Order(turn, call, self._now_s() + within_s))
            self._ready.add(("call", name))

    def _do_waiting(self, name: str) -> None:
        """What an actor was asked for comes to it before what it is asked for now; nobody waits for the answers any more."""
        self._ready.discard(("call", name))
        for order in self._orders.pop(name, ()):
            self._do(name, order.call)

    def perform(self, kind: str, what: Any) -> None:
        """One event of a change."""
        ready = self._ready
        if kind == "call":
            waiting = self._orders[what]
            coming = waiting.popleft()
            if not waiting:
                ready.discard((kind, what))
                del self._orders[what]
            self._carry_out(what, coming)
            return
        ready.discard((kind, what))
        if kind == "answer":
            self._tell(self._answers[what])
        elif self._awaited.pop(what, None) is not None:  # it has kept the question for as long as it may
            turn, name = what
            self._bring(Answered(turn, name, False))

    def _carry_out(self, name: str, coming: Order) -> None:
        """A call reaches the actor that it is for."""
        turn, call, due_s = coming
        if self._now_s() > due_s and self._chance.random() < WITHDRAWN_SHARE:
            self._bring(Late(turn, name))
            return
        if isinstance(call, calls.OwnCall):
            self._do_own(turn, call)
            return
        try:
            value = self._do(name, call)
        except Exception as error:
            if isinstance(call, calls.Listen):
                value = failure_of(self._processes.places.title(name, self.leader.plan), error)
            elif self._tell(Broke(turn, name, say(error), error)):
                return
            else:
                raise
        if not isinstance(call, calls.Run):
            self._bring(Answered(turn, name, value))

    def _method(self, name: str, method: str) -> Callable[..., Any]:
        """A method of the progress worker, of a replica, or of the worker that it is in."""
        processes = self._processes
        if name == PROGRESS:
            return getattr(processes.progress, method)  # type: ignore[no-any-return]
        at = ReplicaId.from_plane_name(name)
        worker = processes.workers.get(processes.places.process_of(*at))
        if worker is None:
            raise ProtocolError(f"{name} is asked for {method}, and its process is not there")
        if method == calls.HasLeft.method:
            return lambda: worker.left_by(*at)
        host = processes.host(at)
        if host is None:
            raise ProtocolError(f"{name} is asked for {method}, and is not in {worker.name}")
        return getattr(host.rescale, method)  # type: ignore[no-any-return]

    def _do(self, name: str, call: calls.Call) -> Any:
        """An actor does what it is asked for."""
        processes = self._processes
        if name == PROGRESS:
            value = self._method(name, call.method)(*call.arguments)
            if isinstance(call, calls.Hold):
                self.holds_job = bool(value)
            elif isinstance(call, calls.Release):
                self.holds_job = False
            processes.progress.look_whether_over()
            return value
        match call:
            case calls.Listen(incarnation, incarnations, layout, _):
                plan = self._job.plan.laid_out(layout)
                processes.come(name, plan, incarnation, incarnations)
                self._tell_recovery({name: incarnation})
                for at in processes.places.replicas_at(name, plan):
                    processes.hold(name, at, is_newcomer=True)
                return name, incarnation
            case calls.Run(addresses):
                processes.begin(name, {**addresses, COORDINATOR: COORDINATOR})
                return None
        at = ReplicaId.from_plane_name(name)
        process = processes.places.process_of(*at)
        if isinstance(call, calls.Admit):
            processes.admit(process, at, *call.arguments)
        elif isinstance(call, calls.Withdraw):
            processes.workers[process].forget(at.stage)
        else:
            value = self._method(name, call.method)(*call.arguments)
            processes.ready.add(("turn", process))
            return value
        return None

    def _do_own(self, turn: Turn, call: calls.OwnCall) -> None:
        """The coordinator does what it is asked for, perhaps later; the answer is on its way then."""

        def answer(value: Any) -> None:
            self._bring(Answered(turn, COORDINATOR, value))

        def broke(error: Exception) -> None:
            if not self._tell(Broke(turn, COORDINATOR, say(error), error)):
                raise error

        if isinstance(call, calls.StartProcesses):
            used = self._job.recovery.incarnation
            if call.incarnation <= used:
                raise InternalError(f"newcomers {call.processes} in incarnation {call.incarnation}, and {used} has been used")
            answer("")
        else:
            self._part.do(call, answer, broke, is_void=lambda: self.is_done)

    # -- the end -------------------------------------------------------------------------------------
    def _end(self, outcome: change.Outcome) -> None:
        """Calls that have not been carried out are void, except those that an actor does before all that comes later."""
        orders, self._orders = self._orders, {}
        for name, waiting in orders.items():
            self._ready.discard(("call", name))
            if isinstance(outcome, change.GiveWay):
                continue
            for order in waiting:
                if isinstance(order.call, (calls.Commit, calls.Withdraw, calls.Forget)):
                    self._do(name, order.call)
        if isinstance(outcome, change.GiveWay):
            for name in self.leader.fresh:  # they go with the job
                if name in self._processes.workers:
                    self._processes.lose(name)
        off = self._off_layout() if self._was_whole and not isinstance(outcome, change.GiveWay) else ""
        if off:
            raise InternalError(f"a change is over, and {off}")
        if self.is_unattended and isinstance(outcome, change.Refuse):
            _log.warning("%s", outcome.why)

    def _off_layout(self) -> str:
        """A replica with another layout than the job's; "" where there is none."""
        layout = self._job.plan.layout
        off = next((host for host in self._processes.hosts() if host.core.plan.layout != layout), None)
        return f"{off.name} has layout {off.core.plan.layout}, not {layout}" if off is not None else ""


__all__ = ["EVENTS", "LocalRescale"]
