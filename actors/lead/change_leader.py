"""Who leads a change of layout: when it may begin, who is asked for what, when a step is settled, when all is over. Pure.

Both runtimes drive it. What has happened comes in as an event, with the time; what is to be done goes out as effects, in their order. What
is answered is an :class:`Ask`; the other effects change what the coordinator itself knows of the job. The leader goes from phase to
phase: in each some actors are asked for one thing after another, and the next begins when nobody is missing. Source:
docs/design/rescaling.md.

    may be refused:  DIVISIBLE, SNAPSHOTS, STARTING, HOLDING, ADMITTING, TELLING, CONNECTING; what was done is undone
    has begun:       MOVING (once for each step), DRAINING, LEAVING, PARTING, COMMITTING; a failure is the job's

Half of a move is no layout: once it has begun, a change ends with the new layout, or with the job's failure, after which it is asked for
again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from rayad.actors.lead import calls, layouts
from rayad.actors.lead.asking import Answer, Answered, Asked, Broke, Died, Event, JobFailed, Late, NewcomerFailed, Questions, Tick
from rayad.actors.lead.calls import Call, Condition
from rayad.actors.lead.change_costs import ChangeCosts
from rayad.actors.lead.change_protocol import (
    BEGUN,
    GRACE_S,
    HOLD_MIN_S,
    HOLD_S,
    STEP_TIMEOUT_S,
    STOP_TIMEOUT_S,
    UNDONE_BY,
    WAITING,
    Effect,
    Fail,
    Finish,
    GiveWay,
    LayOut,
    Members,
    Outcome,
    Phase,
    Refuse,
    Stop,
    TakeIn,
)
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.lead.newcomers import Newcomers
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, replica_name, stage_of
from rayad.actors.replica.migration import StepCost
from rayad.actors.replica.report import Left
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import RescaleRefused


class ChangeLeader:
    """One change of layout, from the question to its outcome.

    Args:
        plan: the dataflow, in the layout that it has.
        wanted: replicas by vertex.
        timeout_s: from ``asked_s`` until newcomers must be there and all be prepared; then it is refused.
        asked_s: when it was asked for, by the clock of ``now_s``.
        members: who is in the job.
        turn: the last one of this job's earlier changes.
        groups, pause_s: how much a step moves: see :class:`ChangeCosts`.
        step_timeout_s: how long a phase may take once the change has begun.
        holds_by_time: whether vertices hold batches before them by time, which excludes changes.
    """

    def __init__(
        self,
        plan: Plan,
        wanted: Mapping[str, int],
        *,
        timeout_s: float,
        asked_s: float,
        members: Members | None = None,
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
        self.outcome: Outcome | None = None
        self.joining: tuple[str, ...] = ()
        """New processes that do not belong to the job yet: if one fails, the change is refused, and the job goes on."""
        self.gone: tuple[str, ...] = ()
        """Who retires."""
        self.holds_job = False
        """Whether the job was asked to wait for the end of the change."""
        self.stages: dict[int, int] = {}
        """The new number of replicas of each stage for which it changes."""
        self._timeout_s = timeout_s
        self._asked_s = asked_s
        self._members = members if members is not None else Members()
        self._coming = Newcomers(self._members, plan, plan)
        self._step_timeout_s = step_timeout_s
        self._holds_by_time = holds_by_time
        self._questions = Questions(turn)
        self._costs = ChangeCosts(groups=groups, pause_s=pause_s)
        self._now_s = asked_s
        self._phase_s = asked_s  # when the phase began
        self._deadline_s = math.inf
        self._busy = ""
        self._holds_snapshots = self._was_told = False
        self._refusal: Refuse | None = None
        self._all: tuple[str, ...] = ()  # all replicas, with newcomers and those that retire
        self._goal: Layout | None = None
        self._base = 0  # the snapshot that was published last
        self._costs_of_leavers: dict[str, StepCost] = {}
        self._left: dict[str, Left] = {}
        self._effects: list[Effect] = []

    # -- what others look at -------------------------------------------------------------------------
    @property
    def turn(self) -> int:
        """The last one that was used."""
        return self._questions.turn

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
        """Who has not done what this phase asks for."""
        return self._questions.missing

    @property
    def newcomers(self) -> tuple[str, ...]:
        """The replicas that come."""
        return self._coming.names

    @property
    def fresh(self) -> tuple[str, ...]:
        """The processes that are new with them."""
        return self._coming.fresh

    @property
    def incarnation(self) -> int:
        """Of new processes, where there are any; else the job's."""
        return self._coming.incarnation

    def check_invariants(self) -> None:
        """What holds between two events."""
        is_over = self.outcome is not None
        assert is_over == (self.phase is Phase.OVER), (self.outcome, self.phase)
        assert is_over or self.phase is Phase.FAILING or self.missing or not self.stages, f"nobody is waited for: {self.phase}"
        assert self._holds_snapshots or self.phase in (*WAITING, Phase.FAILING, Phase.OVER), "a snapshot may begin during a change"
        assert self.holds_job or not self.has_begun, "the job may be over during a change"
        assert self.phase is not Phase.COMMITTING or self.plan.layout == self._goal, "a layout half-way is no layout"
        assert not (self.has_begun and self._refusal), "half of a move is no layout"
        assert not (self.has_begun and self.joining), "who has a part in the move belongs to the job"

    # -- events --------------------------------------------------------------------------------------
    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        self._effects, self._now_s = [], now_s
        if self.outcome is not None:
            return []
        match event:
            case Asked():
                self._begin()
            case Tick(busy):
                self._on_tick(busy)
            case JobFailed():
                self._end(GiveWay())
            case NewcomerFailed(name, why):
                if name in self.joining and self._refusal is None:
                    self._refuse(f"{self._stays}: {self._who(name)} has failed before it had joined: {why}")
            case _:
                call = self._questions.call_of(event)
                if call is not None:
                    self._on_answer(event, call)
        return self._effects

    def _on_answer(self, answer: Answer, call: Call) -> None:
        """What an actor was asked for last has been done, or not."""
        match answer:
            case Answered(_, name, value):
                self._on_answered(name, call, value)
            case Late():
                self._deadline_s = -math.inf  # with the next tick, which knows who is busy
            case _ if self.phase in UNDONE_BY:
                self._settle(answer.name)  # what cannot be undone goes with who cannot: the coordinator hears of that, too
            case Died(_, name) if name in self.joining:
                self._refuse(f"{self._stays}: {self._who(name)} died before it had joined", lacks_room=True)
            case Died():
                self._await_failure(self._now_s + STOP_TIMEOUT_S)  # the coordinator's thread hears of it, too
            case Broke(_, _, why, cause) if self.has_begun:
                self._fail(why, cause)
            case Broke(_, _, why, _):
                self._refuse(f"{self._stays}: {why}")

    def _on_answered(self, name: str, call: Call, value: object) -> None:
        """What an answer means: most say that the actor has done its part of the phase; after others it is asked for more."""
        match call, value:
            case Condition(), False:
                self._ask([name], call, self._hold_s)  # it has kept the question for as long as it may
            case calls.MayMove(), str(why) if why:
                stage = stage_of(name)
                self._refuse(f"rescale({self.before.stage(stage).name!r}, {self.stages[stage]}): {why}")
            case calls.StartProcesses(), str(why) if why:
                self._refuse(f"{self._stays}: {why}")
            case calls.StartProcesses(), _:
                self._let_listen()
                self._settle(name)
            case calls.Listen(), Failure() as failure:
                self._refuse(f"{self._stays}: {self._who(name)} could not be started: {failure.message}")
            case calls.Listen(), address:
                self._coming.addresses[name] = address
                self._settle(name)
            case calls.Hold(), False:
                self.holds_job = False
                self._await_failure(math.inf)
            case calls.Expect(names, _, _, incarnation), _:
                self._ask([PROGRESS], calls.Join(names, incarnation))
                self._settle(name)
            case calls.Relayout(step), _:
                self._ask([name], calls.IsSettled(step), self._hold_s)
            case calls.IsSettled(), _ if stage_of(name) in self.stages:
                self._ask([name], calls.Costs())
            case calls.Costs(), (_, StepCost() | None as cost) if self.phase is Phase.MOVING:
                self._costs.on_step(cost)
                self._settle(name)
            case calls.Costs(), (StepCost() as total, _):
                self._costs_of_leavers[name] = total
                self._ask([name], calls.Leave(self._base))
            case calls.LastPublished(), int(base):
                self._base = base
                self._ask(self.gone, calls.Costs())
                self._settle(name)
            case calls.Leave(), _:
                self._ask([name], calls.HasLeft(), self._hold_s)
            case calls.HasLeft(), Left() as left:
                self._on_left(name, left)
            case calls.Commit(), StepCost() as total if self.phase is Phase.COMMITTING:
                self._costs.on_replica(total)
                self._settle(name)
            case _:
                self._settle(name)

    def _on_left(self, name: str, left: Left) -> None:
        self._left[name] = left
        self._costs.on_replica(self._costs_of_leavers[name])
        self._settle(name)

    def _enter(self, phase: Phase, deadline_s: float) -> None:
        """The next phase."""
        self.phase, self._phase_s, self._deadline_s = phase, self._now_s, deadline_s
        self._questions.clear()

    def _ask(self, names: Collection[str], call: Call, within_s: float = math.inf) -> None:
        self._effects.append(self._questions.ask(names, call, within_s))

    def _settle(self, name: str) -> None:
        """An actor has done its part of the phase."""
        self._questions.close(name)
        if not self.missing:
            self._go_on()

    def _go_on(self) -> None:
        """Nobody is missing: what comes next."""
        match self.phase:
            case Phase.DIVISIBLE:
                self._enter(Phase.SNAPSHOTS, self._limit_s)
                self._holds_snapshots = True
                self._ask([COORDINATOR], calls.HoldSnapshots())
            case Phase.SNAPSHOTS:
                self._start()
            case Phase.STARTING:
                self._hold_job()
            case Phase.HOLDING if self.newcomers:
                self._enter(Phase.ADMITTING, self._limit_s)
                self._ask([COORDINATOR], calls.Expect(self.newcomers, self.fresh, self.plan.layout, self.incarnation))
            case Phase.HOLDING | Phase.ADMITTING:
                self._tell_of_newcomers()
            case Phase.TELLING:
                self._connect()
            case Phase.CONNECTING:
                self._costs.prepared_s = self._now_s - self._asked_s
                self.joining = ()
                self._effects.append(TakeIn(self.newcomers, self.plan.layout))
                self._step()
            case Phase.MOVING:
                self._costs.end_step()
                self._settled()
            case Phase.DRAINING:
                self._retire()
            case Phase.LEAVING:
                self._part()
            case Phase.PARTING:
                self._commit()
            case Phase.COMMITTING:
                self._end(Finish(self._costs.report(self.before, self.plan, self._now_s - self._asked_s)))
            case Phase.FORGETTING:
                self._undo()
            case Phase.UNDOING:
                assert self._refusal is not None
                self._end(self._refusal)

    # -- before it has begun ---------------------------------------------------------------------------
    def _begin(self) -> None:
        try:
            stages = layouts.wanted_replicas(self.before, self.wanted)
            if stages and self._holds_by_time:
                raise RescaleRefused(layouts.NOT_UPSTREAM)
        except RescaleRefused as refused:
            self._end(Refuse(str(refused)))
            return
        if not stages:
            now = layouts.asked_of(self.before)
            self._end(Finish(RescaleReport(now, now)))
            return
        self.stages = stages
        self._enter(Phase.DIVISIBLE, self._limit_s + GRACE_S)
        self._ask([replica_name(stage, 0) for stage in stages], calls.MayMove(), self._left_s)

    def _start(self) -> None:
        before = self.before
        self.plan = plan = before.laid_out(layouts.prepared(before, self.stages))
        self._goal = layouts.target(plan, self.stages)
        self._all = layouts.plane_names(plan)
        self._coming = Newcomers(self._members, before, plan)
        if self.fresh:
            self.joining = self.fresh
            self._enter(Phase.STARTING, self._limit_s)
            self._ask([COORDINATOR], calls.StartProcesses(self.fresh, plan.layout, self.incarnation))
        else:
            self._hold_job()

    def _let_listen(self) -> None:
        """There is room for the new processes: they build what they hold."""
        for process in self.fresh:
            self._ask([process], self._coming.listen(process))

    def _hold_job(self) -> None:
        self.holds_job = True
        self._enter(Phase.HOLDING, self._limit_s)
        self._ask([PROGRESS], calls.Hold())

    def _tell_of_newcomers(self) -> None:
        """Everybody expects them, and those who will give state to each other connect."""
        self._was_told = True
        self._enter(Phase.TELLING, self._limit_s + GRACE_S)
        self._ask(layouts.plane_names(self.before), self._coming.prepare(self._questions.next_turn, self.stages), self._left_s)

    def _connect(self) -> None:
        """All expect the newcomers: these may come."""
        self._enter(Phase.CONNECTING, self._limit_s + GRACE_S)
        for process in self.fresh:
            self._tell(process, calls.Run(self._coming.addresses))
        if housed := self._coming.housed:
            self._ask(housed, self._coming.admit())
        if self.newcomers:
            self._ask([PROGRESS], calls.Joined(self.newcomers), self._hold_s)
        self._ask(layouts.plane_names(self.before), calls.IsPrepared(), self._hold_s)

    def _tell(self, name: str, call: Call) -> None:
        self._effects.append(self._questions.tell(name, call))

    # -- steps -----------------------------------------------------------------------------------------
    def _step(self) -> None:
        assert self._goal is not None
        groups = self._costs.begin_step(self.plan, self.stages)
        self.plan = self.plan.laid_out(layouts.next_layout(self.plan, self._goal, groups))
        self._enter(Phase.MOVING, self._now_s + self._step_timeout_s)
        self._ask(self._all, calls.Relayout(self._questions.next_turn, self.plan.layout))

    def _settled(self) -> None:
        if self.plan.layout != self._goal:
            self._step()
            return
        self._enter(Phase.DRAINING, self._now_s + self._step_timeout_s)
        self._ask(self._all, calls.IsDrained(), self._hold_s)

    # -- its end ---------------------------------------------------------------------------------------
    def _retire(self) -> None:
        there = set(layouts.plane_names(self.plan))
        self.gone = tuple(name for name in layouts.plane_names(self.before) if name not in there)
        if self.gone:
            self._enter(Phase.LEAVING, self._now_s + self._step_timeout_s)
            self._ask([COORDINATOR], calls.LastPublished())
        else:
            self._commit()

    def _part(self) -> None:
        self._enter(Phase.PARTING, self._now_s + self._step_timeout_s)
        self._ask([COORDINATOR], calls.Part(self.plan.layout, self._left))
        for name in layouts.plane_names(self.plan):
            ends = layouts.channels_from(self.gone, self.plan, name)
            if ends:
                self._ask([name], calls.HasEnded(ends), self._hold_s)

    def _commit(self) -> None:
        self._enter(Phase.COMMITTING, self._now_s + self._step_timeout_s)
        self._effects.append(LayOut(self.plan.layout, self.gone, self._members.places.emptied(self.gone, self.plan)))
        self._ask(layouts.plane_names(self.plan), calls.Commit(self._questions.next_turn, self.plan.layout))

    def _end(self, outcome: Outcome) -> None:
        if self._holds_snapshots:
            self._tell(COORDINATOR, calls.ReleaseSnapshots())
        if self.holds_job:
            self._tell(PROGRESS, calls.Release())
        self._holds_snapshots = self.holds_job = False
        self._questions.clear()
        self.joining = ()
        self.phase, self.outcome = Phase.OVER, outcome
        self._effects.append(outcome)

    # -- what goes wrong -------------------------------------------------------------------------------
    def _on_tick(self, busy: str) -> None:
        self._busy = busy
        if self.has_begun and busy:  # it cannot be given up half-way; the activation ends, or is ended by others
            self._deadline_s = max(self._deadline_s, self._now_s + GRACE_S)
        if self._now_s > self._deadline_s:
            self._on_deadline()

    def _on_deadline(self) -> None:
        if self.phase is Phase.FAILING:
            self._end(GiveWay())
        elif self.phase in UNDONE_BY:
            self._questions.clear()  # who is in a long activation does it after that, before anything that it is asked later
            self._go_on()
        elif self.has_begun:
            asked = f"asked {self.phase.value}, not all have answered after {self._now_s - self._phase_s:.1f} s"
            self._fail(f"{asked}: {self._who(min(self.missing))} has not", None)
        elif self._busy:
            late = f"{self._busy}, and has not come to the change within {self._now_s - self._asked_s:.1f} s; ask again later"
            self._refuse(f"{self._stays}: {late}")
        elif self.phase is Phase.SNAPSHOTS:
            self._refuse(f"{self._stays}: the snapshot under way is not complete after {self._timeout_s:g} s")
        else:
            why = f"the new replicas were not placed and connected within {self._timeout_s:g} s"
            self._refuse(f"{self._stays}: {why}", lacks_room=True)

    def _refuse(self, why: str, *, lacks_room: bool = False) -> None:
        """The layout stays; what was done is undone first."""
        self._refusal = Refuse(why, lacks_room)
        if self.newcomers:
            self._enter(Phase.FORGETTING, self._now_s + STOP_TIMEOUT_S)
            self._ask([PROGRESS], calls.Forget(self.newcomers))
        else:
            self._undo()

    def _undo(self) -> None:
        assert self._refusal is not None
        layout = self.before.layout
        if self.newcomers:
            self._effects.append(Stop(self.newcomers, self.fresh, layout))
            for name in self._coming.housed:
                self._tell(name, calls.Withdraw())
        if self._was_told:
            self._enter(Phase.UNDOING, self._now_s + GRACE_S)
            self._ask(layouts.plane_names(self.before), calls.Commit(self._questions.next_turn, layout))
        else:
            self._end(self._refusal)

    def _fail(self, why: str, cause: object) -> None:
        self._await_failure(math.inf)
        self._effects.append(Fail(why, cause))

    def _await_failure(self, deadline_s: float) -> None:
        """Until :class:`JobFailed`; if that does not come in time, whoever asked asks again."""
        self._enter(Phase.FAILING, deadline_s)

    # -- seconds, and words ----------------------------------------------------------------------------
    @property
    def _limit_s(self) -> float:
        return self._asked_s + self._timeout_s

    @property
    def _left_s(self) -> float:
        return max(0.0, self._limit_s - self._now_s)

    @property
    def _hold_s(self) -> float:
        """How long an actor keeps a question: not much longer than there is time, while the change can be refused."""
        return HOLD_S if self.has_begun else min(HOLD_S, max(HOLD_MIN_S, self._left_s))

    @property
    def _stays(self) -> str:
        return f"the layout stays {layouts.asked_of(self.before)}"

    def _who(self, name: str) -> str:
        if name in (COORDINATOR, PROGRESS):
            return "the coordinator" if name == COORDINATOR else "the progress actor"
        return self._members.places.title(name, self.before)
