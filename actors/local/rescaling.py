"""Drives the leader of a change of layout in the local runtime: each call and each answer is an event, whose turn the seed draws.

As on Ray, nothing is decided here. A call is delivered to the part of a replica (``moves.py``), the progress actor or the coordinator
(``change_actors.py``) by the name of its method. What the seed draws besides the order: a question whether something is so yet may be given
up before it is so, as an actor on Ray gives it up after ``within_s``.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, assert_never

from rayad.actors.lead import calls
from rayad.actors.lead import change_protocol as change
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Event, JobFailed, Late, Tick
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import Members, Phase
from rayad.actors.lead.layouts import RescaleReport, plane_names
from rayad.actors.local.change_actors import CoordinatorPart, ProgressPart
from rayad.actors.local.moves import Fence, Moves, MovingReplica, where
from rayad.actors.local.network import Marker, Network, Where
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, replica_name
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.migration import Migration
from rayad.progress import InternalError, say

_log = logging.getLogger(__name__)
OF_REPLICAS = (calls.Listen, calls.Prepare, calls.Run, calls.Relayout, calls.Costs, calls.Leave, calls.Commit)
OF_PROGRESS = (calls.Hold, calls.Join, calls.Forget)
OF_COORDINATOR = (calls.StartProcesses, calls.Expect, calls.LastPublished, calls.Part)
AT_ONCE = (calls.MayMove, calls.Release, calls.ReleaseSnapshots)
"""Calls that are no events: of the first question the answer is needed by whoever asks for the change; of the others nobody waits for."""


def order(call: type[calls.Call]) -> str:
    """The kind of event that a call is."""
    return f"ask {call.method}"


ORDERS = tuple(map(order, (*OF_REPLICAS, *OF_PROGRESS, *OF_COORDINATOR)))
"""Calls that an actor is to carry out."""
EVENTS = frozenset((*ORDERS, "index", "arrive", "transfer", "answer", "give up"))
"""All kinds of events of a change."""
GIVE_UP_SHARE = 0.1
"""The share of questions that an actor may give up before the answer is yes."""
WITHDRAWN_SHARE = 0.5
"""The share of calls that an actor withdraws when their time is over: others were long on their way, and it has just got them."""
Turn = int


class Order(NamedTuple):
    """A call on its way; one that comes after ``due_s`` may have been withdrawn."""

    turn: Turn
    call: calls.Call
    due_s: float


class LocalRescale:
    """One change of layout of a local job.

    Args:
        network: the replicas of the job.
        snapshots: of the job, if it keeps any.
        wanted: replicas by vertex.
        now_s: the clock.
        timeout_s: until newcomers must be there and all prepared; then it is refused.
        groups: how many key-groups a step moves; None: all at once.
        before: the last change, answers in which may still be on their way.
    """

    def __init__(
        self,
        network: Network,
        snapshots: LocalSnapshots | None,
        wanted: Mapping[str, int],
        *,
        now_s: Callable[[], float],
        timeout_s: float = math.inf,
        groups: int | None = None,
        before: LocalRescale | None = None,
    ) -> None:
        self.network = network
        known = before.moves.listening if before is not None else {}
        listening = {name: known.get(name, (name, 1)) for name in (*plane_names(network.plan), PROGRESS, COORDINATOR)}
        newest = before.leader.incarnation if before is not None else 1
        incarnations = {name: incarnation for name, (_, incarnation) in listening.items()}
        self.leader: ChangeLeader = ChangeLeader(
            network.plan,
            wanted,
            timeout_s=timeout_s,
            asked_s=now_s(),
            members=Members(newest, incarnations, listening),
            turn=network.retired.steps,
            groups=groups,
            step_timeout_s=math.inf,  # nothing is lost here: what takes long is the user's code
            holds_by_time=bool(network.gated),
        )
        self.moves: Moves = Moves(network, snapshots, network.retired.steps, listening)
        self.is_unattended = False
        """Whether nobody waits for it, so that a refusal has to be logged."""
        self._progress = ProgressPart(network, snapshots)
        self._coordinator = CoordinatorPart(network, snapshots, self.moves, newest)
        self._now_s = now_s
        self._orders: dict[tuple[str, Where | None], deque[Order]] = {}
        self._answers: dict[tuple[Turn, str], Answered | Late] = dict(before.answers) if before is not None else {}
        self._awaited: dict[tuple[Turn, str], Callable[[], Any]] = {}
        self._was_whole = not self._off_layout()  # else the job has failed within a change, and is about to begin anew
        self._tell(Asked())
        if not self.is_done:
            network.moved_out = self.moves.fence

    # -- what others look at -------------------------------------------------------------------------
    @property
    def holds_job(self) -> bool:
        """Whether the job is not over before the change is."""
        return self._progress.holds

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
    def has_transfers(self) -> bool:
        """Whether a replica has handed something to a sibling."""
        return bool(self.moves.transfers)

    @property
    def answers(self) -> Mapping[tuple[Turn, str], Answered | Late]:
        """The answers so far, by turn and actor; whoever goes on with this change begins with them, and tests bring them again."""
        return self._answers

    def explain(self) -> str:
        """Who is waited for, and for what."""
        leader = self.leader
        title = self.network.plan.title
        names = [title(*where(name)) if name in plane_names(leader.plan) else f"the {name}" for name in sorted(leader.missing)]
        return f"a change of layout waits for {', '.join(names)} {leader.phase.value}" if names else ""

    # -- the leader ------------------------------------------------------------------------------------
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

    def _bring(self, answer: Answered | Late) -> None:
        """An answer is on its way."""
        asked = (answer.turn, answer.name)
        self._answers[asked] = answer
        self.network.ready.add(("answer", asked))

    def _tell(self, event: Event) -> bool:
        """Something has happened: do what follows, if anything does."""
        effects = self.leader.handle(event, self._now_s())
        self.leader.check_invariants()
        assert self.holds_job or not self.leader.has_begun, "the job may be over during a change"
        self.network.retired.steps = self.leader.turn
        for effect in effects:
            self._act(effect)
        return bool(effects)

    def _act(self, effect: change.Effect) -> None:
        """Carry out an effect; a call becomes an event."""
        match effect:
            case Ask(turn, names, call, within_s):
                for name in names:
                    self._deliver(turn, name, call, within_s)
            case change.TakeIn(names, layout):
                self._coordinator.take_in(names, layout)
            case change.Stop(gone, _, layout) | change.LayOut(layout, gone, _):
                ended = {where(name) for name in gone}
                for key in [key for key in self._orders if key[1] is not None and key[1] in ended]:
                    del self._orders[key]  # a newcomer that has not started must not start any more
                self._coordinator.lay_out(layout, gone)
            case change.Fail(why, cause):
                raise cause if isinstance(cause, Exception) else InternalError(why)
            case change.Finish() | change.Refuse() | change.GiveWay():
                self._end(effect)
            case _:
                assert_never(effect)

    # -- questions -------------------------------------------------------------------------------------
    def _actor(self, name: str) -> MovingReplica | ProgressPart | CoordinatorPart:
        if name == PROGRESS:
            return self._progress
        return self._coordinator if name == COORDINATOR else self.moves.replica(where(name))

    def _deliver(self, turn: Turn, name: str, call: calls.Call, within_s: float) -> None:
        """A call is on its way to an actor, or watched there until it is so."""
        if isinstance(call, calls.HoldSnapshots):
            self._coordinator.hold_snapshots()
            self._awaited[turn, name] = lambda: self._coordinator.is_free
        elif isinstance(call, calls.Condition):
            self._awaited[turn, name] = partial(getattr(self._actor(name), call.method), *call.arguments)
            if self.network.random.random() < GIVE_UP_SHARE:
                self.network.ready.add(("give up", (turn, name)))
        elif isinstance(call, AT_ONCE):
            value = getattr(self._actor(name), call.method)(*call.arguments)
            self._tell(Answered(turn, name, value))
        else:
            key = (order(type(call)), None if name in (PROGRESS, COORDINATOR) else where(name))
            self._orders.setdefault(key, deque()).append(Order(turn, call, self._now_s() + within_s))
            self.network.ready.add(key)

    def perform(self, kind: str, at: Any) -> None:
        """One event of a change."""
        ready = self.network.ready
        if kind == "transfer":
            self.moves.on_transfer(at)
        elif kind == "index":
            if self.moves.replica(at).build_index():
                ready.discard((kind, at))
        elif kind in ORDERS:
            waiting = self._orders[kind, at]
            coming = waiting.popleft()
            if not waiting:
                ready.discard((kind, at))
                del self._orders[kind, at]
            self._carry_out(at, coming)
        else:
            ready.discard((kind, at))
            if kind == "arrive":
                self.moves.arrive(at)
            elif kind == "answer":
                self._tell(self._answers[at])
            elif self._awaited.pop(at, None) is not None:  # it has kept the question for as long as it may
                turn, name = at
                self._bring(Answered(turn, name, False))

    def _carry_out(self, at: Where | None, coming: Order) -> None:
        """A call reaches the actor that it is for."""
        turn, call, due_s = coming
        name = replica_name(*at) if at is not None else COORDINATOR if isinstance(call, calls.OwnCall) else PROGRESS
        if self._now_s() > due_s and self.network.random.random() < WITHDRAWN_SHARE:
            self._bring(Late(turn, name))
            return
        try:
            if isinstance(call, calls.Run):
                self._run(name, call)
                return
            value = getattr(self._actor(name), call.method)(*call.arguments)
        except Exception as error:
            if not self._tell(Broke(turn, name, say(error), error)):
                raise
            return
        self._bring(Answered(turn, name, value))

    def _run(self, name: str, call: calls.Run) -> None:
        """A newcomer connects to everybody, and tells the progress actor what it holds."""
        self.moves.replica(where(name)).connect_all(call.addresses)
        incarnation = self.moves.incarnation_of(name)
        self._coordinator.on_newcomer(name, incarnation)
        self._progress.register(name, incarnation)

    # -- the end ---------------------------------------------------------------------------------------
    def _end(self, outcome: change.Outcome) -> None:
        """Calls that have not been carried out are void, except those that an actor does before all that comes later."""
        orders, self._orders = self._orders, {}
        for (kind, at), waiting in orders.items():
            self.network.ready.discard((kind, at))
            last = waiting[-1].call
            if isinstance(last, calls.Commit) and at is not None and isinstance(outcome, change.Refuse):
                self.moves.replica(at).commit(last.turn, last.layout)
        off = self._off_layout() if self._was_whole and not isinstance(outcome, change.GiveWay) else ""
        if off:
            raise InternalError(f"a change is over, and {off}")
        if self.is_unattended and isinstance(outcome, change.Refuse):
            _log.warning("%s", outcome.why)

    def _off_layout(self) -> str:
        """A replica with another layout than the job's; "" where there is none."""
        layout = self.network.plan.layout
        off = next((core for core in self.network.cores.values() if core.plan.layout != layout), None)
        return f"{off.name!r}[{off.replica}] has layout {off.plan.layout}, not {layout}" if off is not None else ""

    # -- what the job hands to it ----------------------------------------------------------------------
    def receiver(self, at: Where) -> Migration | ReplicaCore:
        """Who takes the next batch of a replica."""
        return self.moves.replica(at).migration or self.network.cores[at]

    def on_marker(self, at: Where, channel: tuple[int, int], marker: Marker) -> None:
        """A marker is next on a channel."""
        self.moves.replica(at).on_marker(channel, marker)

    def on_fence(self, at: Where, fence: Fence) -> None:
        """The reports before it are applied."""
        self.moves.on_fence(at, fence)


__all__ = ["EVENTS", "Fence", "LocalRescale"]
