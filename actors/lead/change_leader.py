"""Who leads a change of layout: when it may begin, what is asked of whom in which order, when a step is settled, when all is over. Pure.

Both runtimes drive it. What has happened comes in as an event, with the time; what is to be done goes out as effects, in their order.
The leader goes from turn to turn: in each it asks some actors for one thing, and the next begins when all have answered. An answer has
the number of its turn: one that comes late, or twice, or from an attempt before a failure, is void. Source: docs/design/rescaling.md.

    may be refused:  AskDivisible, HoldSnapshots, Start, HoldJob, Admit, Prepare, Run + AwaitPrepared; what was done is undone
    has begun:       TakeIn, LayOut (a turn for each step), AwaitDrained, Leave, Part + AwaitEnded, Commit; a failure is the job's

Half of a move is no layout: once it has begun, a change ends with the new layout, or with the job's failure, after which it is asked for
again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rayad.actors.lead import layouts
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, replica_name, replica_of, stage_of
from rayad.actors.replica.graph_shape import targets_of
from rayad.actors.replica.migration import StepCost
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import RescaleRefused

STOP_TIMEOUT_S = 30.0
"""How long it may take until the job's failure is known to all who deal with it."""
STEP_TIMEOUT_S = 600.0
"""How long one turn of a change that has begun may take; not counted while a replica is in a long activation."""
GRACE_S = 5.0
"""Added to the time that actors have for an answer: the answer travels, and an actor withdraws a late question itself."""


# -- what has happened -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody wants the change: the first event."""


@dataclass(frozen=True, slots=True)
class Done:
    """An actor has done what it was asked in that turn; ``cost``: of the step (LayOut), or of the whole change (Leave, Commit)."""

    turn: int
    name: str
    cost: StepCost | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """An actor cannot, and says why: a vertex that cannot be divided, a newcomer that cannot be built, no room for newcomers."""

    turn: int
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class JobIsOver:
    """Nothing is left to do in the job: it ends, whatever its layout is."""

    turn: int


@dataclass(frozen=True, slots=True)
class Late:
    """An actor did not get to what it was asked in time, and will not do it."""

    turn: int
    name: str


@dataclass(frozen=True, slots=True)
class Died:
    """An actor is gone."""

    turn: int
    name: str


@dataclass(frozen=True, slots=True)
class Broke:
    """An actor failed at what it was asked; ``cause`` is passed on to whoever reports it."""

    turn: int
    name: str
    why: str
    cause: object = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; ``busy`` names the replica with the longest running activation, and the activation, if that is long."""

    busy: str = ""


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has failed or is over, and its supervisor knows: the whole change is void."""


Event: TypeAlias = Asked | Done | Declined | JobIsOver | Late | Died | Broke | Tick | JobFailed


# -- what is to be done; each but the last ones is answered with its turn -----------------------------
@dataclass(frozen=True, slots=True)
class AskDivisible:
    """Ask these whether their vertices can be divided: Done or Declined. An actor that does not get to the question in time withdraws
    it."""

    turn: int
    names: tuple[str, ...]
    within_s: float


@dataclass(frozen=True, slots=True)
class HoldSnapshots:
    """Let no snapshot begin; the coordinator answers when none is under way."""

    turn: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start these beside the running job: the coordinator answers whether there is room, each of them when it can be reached."""

    turn: int
    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class HoldJob:
    """The job shall not be over before the change is, even if nothing is left to do: the progress actor answers, or JobIsOver."""

    turn: int


@dataclass(frozen=True, slots=True)
class Admit:
    """The coordinator and the progress actor shall expect these; the progress actor answers."""

    turn: int
    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Prepare:
    """Tell these of the newcomers, and which stages move. An actor that does not get to the question in time withdraws it."""

    turn: int
    names: tuple[str, ...]
    layout: Layout
    newcomers: tuple[str, ...]
    moving: frozenset[int]
    within_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """Newcomers run; each answers when the progress actor knows what it holds."""

    turn: int
    names: tuple[str, ...]
    within_s: float


@dataclass(frozen=True, slots=True)
class AwaitPrepared:
    """Each of these answers when all its connections are there and its state is ready to be given."""

    turn: int
    names: tuple[str, ...]
    within_s: float


@dataclass(frozen=True, slots=True)
class TakeIn:
    """The newcomers belong to the job from now on: the change has begun. Nobody answers."""

    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class LayOut:
    """Replicas route by this layout. Each answers when it has finished the step; ``measured`` ones add its cost."""

    turn: int
    names: tuple[str, ...]
    layout: Layout
    measured: frozenset[str]


@dataclass(frozen=True, slots=True)
class AwaitDrained:
    """Each of these answers when it has consumed what was passed on to it."""

    turn: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """These retire. Each answers when it has ended, with what the change cost it."""

    turn: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Keep what the sink writers of retired replicas have staged; the coordinator answers."""

    turn: int
    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class AwaitEnded:
    """Each of these answers when it has met the last markers of those who have left: ``(edge, sender)``."""

    turn: int
    ends: Mapping[str, tuple[tuple[int, str], ...]]


@dataclass(frozen=True, slots=True)
class Commit:
    """This is the layout now, for these replicas and for the job, without those that are ``gone``. Each answers with what the change cost
    it."""

    turn: int
    names: tuple[str, ...]
    layout: Layout
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forget:
    """The newcomers will not join: the progress actor forgets them and answers; their end is no failure."""

    turn: int
    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Stop:
    """End newcomers that will not join; the layout is the old one. Nobody answers."""

    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Undo:
    """Replicas that were prepared stay with the old layout; each answers."""

    turn: int
    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class ReleaseSnapshots:
    """Snapshots may begin again, and one does: it keeps the layout."""


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """The job may be over."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The job has to begin anew from its last snapshot, or to end."""

    why: str
    cause: object = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The layout is the one that was asked for: tell who asked."""

    report: RescaleReport


@dataclass(frozen=True, slots=True)
class Refuse:
    """The layout stays: tell who asked why; ``lacks_room``: with the resources that are free."""

    why: str
    lacks_room: bool = False


@dataclass(frozen=True, slots=True)
class GiveWay:
    """The job has failed or is over: if it comes back, the change can be asked for again."""


Outcome: TypeAlias = Finish | Refuse | GiveWay
Effect: TypeAlias = (
    AskDivisible
    | HoldSnapshots
    | Start
    | HoldJob
    | Admit
    | Prepare
    | Run
    | AwaitPrepared
    | TakeIn
    | LayOut
    | AwaitDrained
    | Leave
    | Part
    | AwaitEnded
    | Commit
    | Forget
    | Stop
    | Undo
    | ReleaseSnapshots
    | ReleaseJob
    | Fail
    | Outcome
)


class Phase(Enum):
    """What the actors of a turn are asked for."""

    DIVISIBLE = "whether the vertices can be divided"
    SNAPSHOTS = "that the snapshot under way is complete"
    STARTING = "newcomers to start"
    HOLDING = "that the job is not over"
    ADMITTING = "that newcomers are expected"
    TELLING = "to take notice of the newcomers"
    CONNECTING = "to connect, and to make the state ready"
    MOVING = "to settle a step"
    DRAINING = "to consume what was passed on"
    LEAVING = "to leave"
    PARTING = "to meet the last markers of those who have left"
    COMMITTING = "to keep the new layout"
    FORGETTING = "to forget the newcomers"
    UNDOING = "to keep the old layout"
    FAILING = "nothing: the job fails, or is over"
    OVER = "nothing any more"


WAITING = (Phase.DIVISIBLE, Phase.SNAPSHOTS)
UNDONE_BY = (Phase.FORGETTING, Phase.UNDOING)
BEGUN = (Phase.MOVING, Phase.DRAINING, Phase.LEAVING, Phase.PARTING, Phase.COMMITTING)


class ChangeLeader:
    """One change of layout, from the question to its outcome.

    Args:
        plan: the dataflow, in the layout that it has.
        wanted: replicas by vertex.
        timeout_s: from ``asked_s`` until newcomers must be there and all be prepared; then it is refused.
        asked_s: when it was asked for, by the clock of ``now_s``.
        turn: the last one of this job's earlier changes; no number is used twice, so an answer to another change is recognised.
        groups: how many key-groups each step moves; None: as many as ``pause_s`` allows.
        pause_s: how long a step may keep a replica; None: all moves in one step.
        step_timeout_s: how long a turn may take once the change has begun.
        holds_by_time: whether vertices hold batches before them by time, which excludes changes.
    """

    def __init__(
        self,
        plan: Plan,
        wanted: Mapping[str, int],
        *,
        timeout_s: float,
        asked_s: float,
        turn: int = 0,
        groups: int | None = None,
        pause_s: float | None = None,
        step_timeout_s: float = STEP_TIMEOUT_S,
        holds_by_time: bool = False,
    ) -> None:
        self.before = plan
        self.wanted = dict(wanted)
        self.plan = plan
        """In the layout that the replicas have been told last."""
        self.phase = Phase.DIVISIBLE
        self.turn = turn
        self.outcome: Outcome | None = None
        self.newcomers: tuple[str, ...] = ()
        self.gone: tuple[str, ...] = ()
        """Who retires."""
        self.holds_job = False
        """Whether the job was asked to wait for the end of the change."""
        self.stages: dict[int, int] = {}
        """The new number of replicas of each stage for which it changes."""
        self._timeout_s = timeout_s
        self._asked_s = asked_s
        self._fixed_groups = groups
        self._pause_s = pause_s
        self._step_timeout_s = step_timeout_s
        self._holds_by_time = holds_by_time
        self._missing: set[str] = set()
        self._turn_s = asked_s  # when the turn began
        self._deadline_s = math.inf
        self._busy = ""
        self._holds_snapshots = self._was_told = False
        self._refusal: Refuse | None = None
        self._all: tuple[str, ...] = ()  # all replicas, with newcomers and those that retire
        self._goal: Layout | None = None
        self._groups = 0
        self._steps: list[tuple[int, float]] = []  # groups of each settled step, and the longest that it kept a replica
        self._step_s = 0.0
        self._costs: list[StepCost] = []
        self._prepared_s = 0.0

    # -- what others look at -------------------------------------------------------------------------
    @property
    def is_waiting(self) -> bool:
        """Whether nothing has been done yet: only asked, or waiting for the snapshot under way."""
        return self.phase in WAITING

    @property
    def has_begun(self) -> bool:
        """Whether it cannot be refused any more."""
        return self.phase in BEGUN

    @property
    def missing(self) -> frozenset[str]:
        """Who has not answered in this turn."""
        return frozenset(self._missing)

    def check_invariants(self) -> None:
        """What holds between two events."""
        is_over = self.outcome is not None
        assert is_over == (self.phase is Phase.OVER), (self.outcome, self.phase)
        assert is_over or self.phase is Phase.FAILING or self._missing or not self.stages, f"nobody is waited for: {self.phase}"
        assert self._holds_snapshots or self.phase in (*WAITING, Phase.FAILING, Phase.OVER), "a snapshot may begin during a change"
        assert self.holds_job or not self.has_begun, "the job may be over during a change"
        assert self.phase is not Phase.COMMITTING or self.plan.layout == self._goal, "a layout half-way is no layout"
        assert not (self.has_begun and self._refusal), "half of a move is no layout"

    # -- events --------------------------------------------------------------------------------------
    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        effects: list[Effect] = []
        if self.outcome is not None:
            return effects
        match event:
            case Asked():
                self._begin(now_s, effects)
            case Tick(busy):
                self._on_tick(busy, now_s, effects)
            case JobFailed():
                self._end(GiveWay(), effects)
            case _ if not self._is_awaited(event):
                pass  # of an earlier turn, or for the second time
            case Done(_, name, cost):
                self._on_done(name, cost, now_s, effects)
            case JobIsOver():
                self.holds_job = False
                self._await_failure(math.inf)
            case Late():
                self._deadline_s = -math.inf  # with the next tick, which knows who is busy
            case _ if self.phase in UNDONE_BY:
                self._missing.discard(event.name)  # what cannot be undone goes with who cannot: the coordinator hears of that, too
                self._go_on_if_complete(now_s, effects)
            case Declined(_, name, why):
                self._refuse(self._told(name, why), now_s, effects)
            case Died(_, name) if name in self.newcomers and not self.has_begun:
                self._refuse(f"{self._stays}: {self._who(name)} died before it had joined", now_s, effects, lacks_room=True)
            case Died():
                self._await_failure(now_s + STOP_TIMEOUT_S)  # the coordinator's thread hears of it, too
            case Broke(_, _, why, cause) if self.has_begun:
                self._fail(why, cause, effects)
            case Broke(_, _, why, _):
                self._refuse(f"{self._stays}: {why}", now_s, effects)
        return effects

    def _is_awaited(self, event: Done | Declined | JobIsOver | Late | Died | Broke) -> bool:
        return event.turn == self.turn and (isinstance(event, JobIsOver) or event.name in self._missing)

    def _enter(self, phase: Phase, names: Collection[str], deadline_s: float, now_s: float) -> int:
        """The next turn; gives its number."""
        self.phase, self.turn = phase, self.turn + 1
        self._missing = set(names)
        self._turn_s, self._deadline_s = now_s, deadline_s
        return self.turn

    def _on_done(self, name: str, cost: StepCost | None, now_s: float, effects: list[Effect]) -> None:
        self._missing.discard(name)
        if cost is not None and self.phase is Phase.MOVING:
            self._step_s = max(self._step_s, cost.state_s)
        elif cost is not None:
            self._costs.append(cost)
        self._go_on_if_complete(now_s, effects)

    def _go_on_if_complete(self, now_s: float, effects: list[Effect]) -> None:
        if not self._missing:
            self._go_on(now_s, effects)

    def _go_on(self, now_s: float, effects: list[Effect]) -> None:
        """All have answered: what comes next."""
        match self.phase:
            case Phase.DIVISIBLE:
                self._holds_snapshots = True
                effects.append(HoldSnapshots(self._enter(Phase.SNAPSHOTS, [COORDINATOR], self._limit_s, now_s)))
            case Phase.SNAPSHOTS:
                self._start(now_s, effects)
            case Phase.STARTING:
                self._hold_job(now_s, effects)
            case Phase.HOLDING:
                if self.newcomers:
                    turn = self._enter(Phase.ADMITTING, [PROGRESS], self._limit_s, now_s)
                    effects.append(Admit(turn, self.newcomers, self.plan.layout))
                else:
                    self._tell_of_newcomers(now_s, effects)
            case Phase.ADMITTING:
                self._tell_of_newcomers(now_s, effects)
            case Phase.TELLING:
                self._connect(now_s, effects)
            case Phase.CONNECTING:
                self._prepared_s = now_s - self._asked_s
                effects.append(TakeIn(self.newcomers, self.plan.layout))
                self._step(now_s, effects)
            case Phase.MOVING:
                self._settled(now_s, effects)
            case Phase.DRAINING:
                self._retire(now_s, effects)
            case Phase.LEAVING:
                self._part(now_s, effects)
            case Phase.PARTING:
                self._commit(now_s, effects)
            case Phase.COMMITTING:
                self._end(Finish(self._report(now_s)), effects)
            case Phase.FORGETTING:
                self._undo(now_s, effects)
            case Phase.UNDOING:
                assert self._refusal is not None
                self._end(self._refusal, effects)

    # -- before it has begun ---------------------------------------------------------------------------
    def _begin(self, now_s: float, effects: list[Effect]) -> None:
        try:
            stages = layouts.wanted_replicas(self.before, self.wanted)
            if stages and self._holds_by_time:
                raise RescaleRefused(layouts.NOT_UPSTREAM)
        except RescaleRefused as refused:
            self._end(Refuse(str(refused)), effects)
            return
        if not stages:
            now = layouts.asked_of(self.before)
            self._end(Finish(RescaleReport(now, now)), effects)
            return
        self.stages = stages
        names = tuple(replica_name(stage, 0) for stage in stages)
        turn = self._enter(Phase.DIVISIBLE, names, self._limit_s + GRACE_S, now_s)
        effects.append(AskDivisible(turn, names, self._left_s(now_s)))

    def _start(self, now_s: float, effects: list[Effect]) -> None:
        before = self.before
        self.plan = plan = before.laid_out(layouts.prepared(before, self.stages))
        self._goal = layouts.target(plan, self.stages)
        self._all = layouts.plane_names(plan)
        self.newcomers = tuple(name for name in self._all if name not in set(layouts.plane_names(before)))
        if self.newcomers:
            turn = self._enter(Phase.STARTING, [COORDINATOR, *self.newcomers], self._limit_s, now_s)
            effects.append(Start(turn, self.newcomers, plan.layout))
        else:
            self._hold_job(now_s, effects)

    def _hold_job(self, now_s: float, effects: list[Effect]) -> None:
        self.holds_job = True
        effects.append(HoldJob(self._enter(Phase.HOLDING, [PROGRESS], self._limit_s, now_s)))

    def _tell_of_newcomers(self, now_s: float, effects: list[Effect]) -> None:
        self._was_told = True
        names = layouts.plane_names(self.before)
        turn = self._enter(Phase.TELLING, names, self._limit_s + GRACE_S, now_s)
        effects.append(Prepare(turn, names, self.plan.layout, self.newcomers, frozenset(self.stages), self._left_s(now_s)))

    def _connect(self, now_s: float, effects: list[Effect]) -> None:
        """All expect the newcomers: these may come."""
        names, left_s = layouts.plane_names(self.before), self._left_s(now_s)
        turn = self._enter(Phase.CONNECTING, [*names, *self.newcomers], self._limit_s + GRACE_S, now_s)
        if self.newcomers:
            effects.append(Run(turn, self.newcomers, left_s))
        effects.append(AwaitPrepared(turn, names, left_s))

    # -- steps -----------------------------------------------------------------------------------------
    def _step(self, now_s: float, effects: list[Effect]) -> None:
        assert self._goal is not None
        self._groups = self._groups_of_next_step()
        self._step_s = 0.0
        self.plan = self.plan.laid_out(layouts.next_layout(self.plan, self._goal, self._groups))
        names = self._all
        turn = self._enter(Phase.MOVING, names, now_s + self._step_timeout_s, now_s)
        measured = frozenset(name for name in names if stage_of(name) in self.stages)
        effects.append(LayOut(turn, names, self.plan.layout, measured))

    def _groups_of_next_step(self) -> int:
        if all(stage not in self.plan.layout.owners for stage in self.stages):
            return self.plan.key_groups
        if self._fixed_groups is not None:
            return self._fixed_groups
        if self._pause_s is None:
            return self.plan.key_groups
        return layouts.groups_of_next_step(self._steps, self._pause_s) if self._steps else layouts.FIRST_STEP_GROUPS

    def _settled(self, now_s: float, effects: list[Effect]) -> None:
        self._steps.append((self._groups, self._step_s))
        if self.plan.layout != self._goal:
            self._step(now_s, effects)
            return
        names = self._all
        effects.append(AwaitDrained(self._enter(Phase.DRAINING, names, now_s + self._step_timeout_s, now_s), names))

    # -- its end ---------------------------------------------------------------------------------------
    def _retire(self, now_s: float, effects: list[Effect]) -> None:
        there = set(layouts.plane_names(self.plan))
        self.gone = tuple(name for name in layouts.plane_names(self.before) if name not in there)
        if self.gone:
            effects.append(Leave(self._enter(Phase.LEAVING, self.gone, now_s + self._step_timeout_s, now_s), self.gone))
        else:
            self._commit(now_s, effects)

    def _part(self, now_s: float, effects: list[Effect]) -> None:
        ends = {name: ends for name in layouts.plane_names(self.plan) if (ends := self._ends_at(name))}
        turn = self._enter(Phase.PARTING, [COORDINATOR, *ends], now_s + self._step_timeout_s, now_s)
        effects.append(Part(turn, self.gone, self.plan.layout))
        if ends:
            effects.append(AwaitEnded(turn, ends))

    def _ends_at(self, name: str) -> tuple[tuple[int, str], ...]:
        """On which channels those who have left have sent to a replica."""
        plan, stage, mine = self.plan, stage_of(name), replica_of(name)
        return tuple(
            (edge.id, one)
            for edge in plan.edges_into(stage)
            for one in self.gone
            if edge.source == stage_of(one) and mine in targets_of(plan, edge, replica_of(one))
        )

    def _commit(self, now_s: float, effects: list[Effect]) -> None:
        names = layouts.plane_names(self.plan)
        turn = self._enter(Phase.COMMITTING, names, now_s + self._step_timeout_s, now_s)
        effects.append(Commit(turn, names, self.plan.layout, self.gone))

    def _report(self, now_s: float) -> RescaleReport:
        total = StepCost.total(self._costs)
        return RescaleReport(
            layouts.asked_of(self.before),
            layouts.asked_of(self.plan),
            len(self._steps),
            total.groups,
            total.state_bytes,
            total.passed_on,
            total.held,
            self._prepared_s,
            now_s - self._asked_s,
            total.longest_pause_s,
            max((cost.pause_s for cost in self._costs), default=0.0),
        )

    def _end(self, outcome: Outcome, effects: list[Effect]) -> None:
        if self._holds_snapshots:
            effects.append(ReleaseSnapshots())
        if self.holds_job:
            effects.append(ReleaseJob())
        self._holds_snapshots = self.holds_job = False
        self._missing.clear()
        self.phase, self.outcome = Phase.OVER, outcome
        effects.append(outcome)

    # -- what goes wrong -------------------------------------------------------------------------------
    def _on_tick(self, busy: str, now_s: float, effects: list[Effect]) -> None:
        self._busy = busy
        if self.has_begun and busy:  # it cannot be given up half-way; the activation ends, or is ended by others
            self._deadline_s = max(self._deadline_s, now_s + GRACE_S)
        if now_s > self._deadline_s:
            self._on_deadline(now_s, effects)

    def _on_deadline(self, now_s: float, effects: list[Effect]) -> None:
        if self.phase is Phase.FAILING:
            self._end(GiveWay(), effects)
        elif self.phase in UNDONE_BY:
            self._missing.clear()  # who is in a long activation does it after that, before anything that it is asked later
            self._go_on(now_s, effects)
        elif self.has_begun:
            asked = f"asked {self.phase.value}, not all have answered after {now_s - self._turn_s:.1f} s"
            self._fail(f"{asked}: {self._who(min(self._missing))} has not", None, effects)
        elif self._busy:
            late = f"{self._busy}, and has not come to the change within {now_s - self._asked_s:.1f} s; ask again later"
            self._refuse(f"{self._stays}: {late}", now_s, effects)
        elif self.phase is Phase.SNAPSHOTS:
            self._refuse(f"{self._stays}: the snapshot under way is not complete after {self._timeout_s:g} s", now_s, effects)
        else:
            why = f"the new replicas were not placed and connected within {self._timeout_s:g} s"
            self._refuse(f"{self._stays}: {why}", now_s, effects, lacks_room=True)

    def _refuse(self, why: str, now_s: float, effects: list[Effect], *, lacks_room: bool = False) -> None:
        """The layout stays; what was done is undone first."""
        self._refusal = Refuse(why, lacks_room)
        if self.newcomers:
            turn = self._enter(Phase.FORGETTING, [PROGRESS], now_s + STOP_TIMEOUT_S, now_s)
            effects.append(Forget(turn, self.newcomers, self.before.layout))
        else:
            self._undo(now_s, effects)

    def _undo(self, now_s: float, effects: list[Effect]) -> None:
        assert self._refusal is not None
        if self.newcomers:
            effects.append(Stop(self.newcomers, self.before.layout))
        if self._was_told:
            names = layouts.plane_names(self.before)
            turn = self._enter(Phase.UNDOING, names, now_s + GRACE_S, now_s)
            effects.append(Undo(turn, names, self.before.layout))
        else:
            self._end(self._refusal, effects)

    def _fail(self, why: str, cause: object, effects: list[Effect]) -> None:
        self._await_failure(math.inf)
        effects.append(Fail(why, cause))

    def _await_failure(self, deadline_s: float) -> None:
        """Until :class:`JobFailed`; if that does not come in time, whoever asked asks again."""
        self._enter(Phase.FAILING, (), deadline_s, self._turn_s)

    # -- words -----------------------------------------------------------------------------------------
    @property
    def _limit_s(self) -> float:
        return self._asked_s + self._timeout_s

    def _left_s(self, now_s: float) -> float:
        return max(0.0, self._limit_s - now_s)

    @property
    def _stays(self) -> str:
        return f"the layout stays {layouts.asked_of(self.before)}"

    def _told(self, name: str, why: str) -> str:
        if self.phase is Phase.DIVISIBLE:
            stage = stage_of(name)
            return f"rescale({self.before.stage(stage).name!r}, {self.stages[stage]}): {why}"
        return f"{self._stays}: {why}" if name == COORDINATOR else f"{self._stays}: {self._who(name)} could not be started: {why}"

    def _who(self, name: str) -> str:
        if name in (COORDINATOR, PROGRESS):
            return "the coordinator" if name == COORDINATOR else "the progress actor"
        return self.before.title(stage_of(name), replica_of(name))
