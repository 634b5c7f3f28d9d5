"""Changes of layout in the local runtime: the leader and cores of the Ray runtime, joined by events whose order the seed draws.

:class:`ChangeLeader` decides. Here each of its effects becomes events, and each answer of a replica is one more.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from rayad.actors.lead import change_leader as lead
from rayad.actors.lead import snapshot_leader
from rayad.actors.lead.layouts import RescaleReport, plane_names
from rayad.actors.local.network import Entry, Marker, Network, Where
from rayad.actors.local.snapshots import LocalSnapshots
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, replica_name, replica_of, stage_of
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_out, channels_to_mark
from rayad.actors.replica.migration import Migration, StepCost, Transfer, changes, may_move
from rayad.actors.replica.part_files import write_staged
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import InternalError, ProtocolError, say
from rayad.snapshots.barrier import Barrier

_log = logging.getLogger(__name__)
ORDERS = ("start", "hold job", "admit", "prepare", "register", "relayout", "leave", "part", "adopt", "forget newcomers")
"""Control calls that an actor is to carry out."""
EVENTS = frozenset((*ORDERS, "index", "arrive", "transfer", "answer"))
"""All kinds of events of a change."""
Turn = int
IsDone = Callable[[Where], bool]
Cost = Callable[[Where], StepCost | None]


class Fence:
    """Stands among the reports of a replica: what may leave when the reports before it are applied, and in which step."""

    def __init__(self, step: int, plan: Plan, outgoing: list[tuple[int, Transfer]]) -> None:
        self.step = step
        self.plan = plan
        self.outgoing = outgoing


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
        self.leader = lead.ChangeLeader(
            network.plan,
            wanted,
            timeout_s=timeout_s,
            asked_s=now_s(),
            turn=network.retired.steps,
            groups=groups,
            step_timeout_s=math.inf,  # nothing is lost here: what takes long is the user's code
            holds_by_time=bool(network.gated),
        )
        self.migrations: dict[Where, Migration] = {}
        self.transfers: dict[tuple[int, int, int], deque[tuple[int, Plan, Transfer]]] = {}
        self.holds_job = False
        """Whether the job is not over before the change is."""
        self.is_unattended = False
        """Whether nobody waits for it, so that a refusal has to be logged."""
        self._snapshots = snapshots
        self._now_s = now_s
        self._base = network.retired.steps
        self._at: dict[Where, int] = {}  # the step that each replica is in
        self._orders: dict[tuple[str, Where | None], deque[Any]] = {}
        self._answers: dict[tuple[Turn, str], lead.Done | lead.Declined] = dict(before.answers) if before is not None else {}
        self._awaited: dict[tuple[Turn, str], tuple[IsDone, Cost | None]] = {}
        self._indices: dict[Where, Iterator[None]] = {}
        self._ended: dict[Where, set[tuple[int, str]]] = {}
        self._left: set[Where] = set()
        self._over_for: set[Where] = set()  # replicas that have heard how it ended: what they hear of it later was overtaken
        self._costs: dict[Where, list[StepCost]] = {}
        self._was_whole = not self._off_layout()  # else the job has failed within a change, and is about to begin anew
        self._tell(lead.Asked())
        if not self.is_done:
            network.moved_out = self.fence

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
        return outcome.why if isinstance(outcome, lead.Refuse) else ""

    @property
    def report(self) -> RescaleReport | None:
        """What it came to, when the layout is the one that was asked for."""
        outcome = self.leader.outcome
        return outcome.report if isinstance(outcome, lead.Finish) else None

    # -- the leader ------------------------------------------------------------------------------------
    def advance(self) -> bool:
        """Look who has done what it was asked, and at the clock; gives whether something followed at once."""
        if self.is_done:
            return False
        if self.leader.phase is lead.Phase.SNAPSHOTS and self._may_begin():
            self._answer(lead.Done(self.leader.turn, COORDINATOR))
        for turn, name in [asked for asked, (is_done, _) in self._awaited.items() if is_done(where(asked[1]))]:
            _, cost = self._awaited.pop((turn, name))
            self._answer(lead.Done(turn, name, cost(where(name)) if cost is not None else None))
        return self._tell(lead.Tick())

    def _may_begin(self) -> bool:
        snapshots = self._snapshots
        return snapshots is None or (snapshots.leader.may_change and not snapshots.forgetting)

    def _answer(self, answer: lead.Done | lead.Declined) -> None:
        """An answer is on its way."""
        asked = (answer.turn, answer.name)
        if asked not in self._answers:
            self._answers[asked] = answer
            self.network.ready.add(("answer", asked))

    @property
    def answers(self) -> Mapping[tuple[Turn, str], lead.Done | lead.Declined]:
        """The answers so far; whoever goes on with this change begins with them."""
        return self._answers

    def answered(self) -> list[tuple[Turn, str]]:
        """The answers so far; for tests, to bring one again."""
        return list(self._answers)

    def _tell(self, event: lead.Event) -> bool:
        """Something has happened: do what follows, if anything does."""
        effects = self.leader.handle(event, self._now_s())
        self.leader.check_invariants()
        self.network.retired.steps = self.leader.turn
        for effect in effects:
            self._act(effect)
        return bool(effects)

    def _act(self, effect: lead.Effect) -> None:
        """Carry out an effect, or let it become events."""
        match effect:
            case lead.AskDivisible(turn, names):
                for name in names:
                    why = self._why_not(name)
                    self._tell(lead.Declined(turn, name, why) if why else lead.Done(turn, name))
            case lead.HoldSnapshots():
                if self._snapshots is not None:
                    self._snapshots.tell(snapshot_leader.ChangeWanted())
            case lead.Start(turn, names):
                self._answer(lead.Done(turn, COORDINATOR))  # there is room for everything here
                self._order("start", names, effect)
            case lead.HoldJob():
                self._order("hold job", None, effect)
            case lead.Admit():
                self._order("admit", None, effect)
            case lead.Prepare(_, names):
                self._order("prepare", names, effect)
            case lead.Run(_, names):
                self._order("register", names, effect)
            case lead.AwaitPrepared(turn, names):
                for name in names:
                    self._await(turn, name, lambda at: at not in self._indices)
            case lead.TakeIn(names, layout):
                self._take_in(names, layout)
            case lead.LayOut(turn, names, _, measured):
                self._order("relayout", names, effect)
                for name in names:
                    self._await(turn, name, partial(self._is_settled, turn), self._last_cost if name in measured else None)
            case lead.AwaitDrained(turn, names):
                for name in names:
                    self._await(turn, name, self._is_drained)
            case lead.Leave(turn, names):
                self._order("leave", names, effect)
                for name in names:
                    self._await(turn, name, self._has_left, self._total)
            case lead.Part():
                self._order("part", None, effect)
            case lead.AwaitEnded(turn, ends):
                for name, mine in ends.items():
                    self._await(turn, name, partial(self._has_ended, mine))
            case lead.Commit(_, names, layout, gone):
                self._lay_out(layout, gone)
                self._order("adopt", names, effect)
            case lead.Forget():
                self._order("forget newcomers", None, effect)
            case lead.Stop(names, layout):
                self._lay_out(layout, names)
            case lead.Undo(_, names):
                self._order("adopt", names, effect)
            case lead.ReleaseSnapshots():
                if self._snapshots is not None:
                    self._snapshots.tell(snapshot_leader.ChangeOver())
            case lead.ReleaseJob():
                self.holds_job = False
                self._orders.pop(("hold job", None), None)  # nobody waits for it any more
                self.network.ready.discard(("hold job", None))
            case lead.Fail(why, cause):
                raise cause if isinstance(cause, Exception) else InternalError(why)
            case lead.Finish() | lead.Refuse() | lead.GiveWay():
                self._end(effect)

    def _end(self, outcome: lead.Outcome) -> None:
        """Effects that have not been carried out are void, except those that an actor does before all that comes later."""
        orders, self._orders = self._orders, {}
        for (kind, at), waiting in orders.items():
            self.network.ready.discard((kind, at))
            if kind == "adopt" and at is not None and isinstance(outcome, lead.Refuse):
                self._adopt(at, self.network.plan.laid_out(waiting[-1].layout))
        off = self._off_layout() if self._was_whole and not isinstance(outcome, lead.GiveWay) else ""
        if off:
            raise InternalError(f"a change is over, and {off}")
        if self.is_unattended and isinstance(outcome, lead.Refuse):
            _log.warning("%s", outcome.why)

    def _off_layout(self) -> str:
        """A replica with another layout than the job's; "" where there is none."""
        layout = self.network.plan.layout
        off = next((core for core in self.network.cores.values() if core.plan.layout != layout), None)
        return f"{off.name!r}[{off.replica}] has layout {off.plan.layout}, not {layout}" if off is not None else ""

    def _why_not(self, name: str) -> str:
        plan, stage = self.network.plan, stage_of(name)
        return may_move(plan.stage(stage), plan, self.network.cores[where(name)].vertex)

    def _order(self, kind: str, names: tuple[str, ...] | None, effect: lead.Effect) -> None:
        """An event for each of these; None: for the progress actor or the coordinator."""
        for at in [None] if names is None else map(where, names):
            self._orders.setdefault((kind, at), deque()).append(effect)
            self.network.ready.add((kind, at))

    def _await(self, turn: Turn, name: str, is_done: IsDone, cost: Cost | None = None) -> None:
        """Look between the events whether a replica has done it, and what it cost."""
        self._awaited[turn, name] = is_done, cost

    # -- events --------------------------------------------------------------------------------------
    def perform(self, kind: str, at: Any) -> None:
        """One event of a change."""
        ready = self.network.ready
        if kind == "transfer":
            self._on_transfer(at)
        elif kind == "index":
            if next(self._indices[at], self) is self:
                ready.discard((kind, at))
                del self._indices[at]
        elif kind == "arrive":
            ready.discard((kind, at))
            self._arrive(at)
        elif kind == "answer":
            ready.discard((kind, at))
            self._tell(self._answers[at])
        else:
            waiting = self._orders[kind, at]
            effect = waiting.popleft()
            if not waiting:
                ready.discard((kind, at))
                del self._orders[kind, at]
            self._carry_out(kind, at, effect)

    def _carry_out(self, kind: str, at: Any, effect: Any) -> None:
        """A control call reaches the actor that it is for."""
        name = replica_name(*at) if at is not None else COORDINATOR if kind == "part" else PROGRESS
        try:
            if kind == "start":
                self._start(at, effect)
            elif kind == "hold job":
                self._hold_job(effect.turn)
            elif kind == "admit":
                self._lay_out_snapshots(self.network.plan.laid_out(effect.layout))
                self._answer(lead.Done(effect.turn, name))
            elif kind == "prepare":
                self._prepare(at, effect)
            elif kind == "register":
                self.network.tracker.apply(self.network.cores[at].take_changes())
                self._answer(lead.Done(effect.turn, name))
            elif kind == "relayout":
                self._relayout(at, effect.turn, self.network.plan.laid_out(effect.layout))
            elif kind == "leave":
                self._leave(at)
            elif kind == "part":
                for one in effect.names:
                    self._part(where(one))
                self._answer(lead.Done(effect.turn, name))
            elif kind == "adopt":
                self._adopt(at, self.network.plan.laid_out(effect.layout))
                self._answer(lead.Done(effect.turn, name, self._total(at)))
            else:
                self._answer(lead.Done(effect.turn, name))  # newcomers hold nothing yet that the progress core knows of
        except Exception as error:
            if not self._tell(lead.Broke(effect.turn, name, say(error), error)):
                raise

    # -- before it begins, and when it does not -------------------------------------------------------
    def _start(self, at: Where, effect: lead.Start) -> None:
        network, name = self.network, replica_name(*at)
        plan = network.plan.laid_out(effect.layout)
        try:
            network.new_core(plan.stage(at[0]), at[1], plan).start(None, is_newcomer=True)
        except Exception as error:
            self._remove(at)
            self._answer(lead.Declined(effect.turn, name, f"{type(error).__name__}: {say(error)}"))
        else:
            self._answer(lead.Done(effect.turn, name))

    def _hold_job(self, turn: Turn) -> None:
        if self._snapshots is not None and self._snapshots.leader.is_ending:
            self._tell(lead.JobIsOver(turn))
            self._tell(lead.JobFailed())
        else:
            self.holds_job = True
            self._answer(lead.Done(turn, PROGRESS))

    def _prepare(self, at: Where, effect: lead.Prepare) -> None:
        if at not in self._over_for:
            core = self.network.cores[at]
            core.plan = self.network.plan.laid_out(effect.layout)
            for newcomer in effect.newcomers:
                self.network.ends[at].admit(*where(newcomer))
            index = core.vertex.index_for_giving() if at[0] in effect.moving and core.vertex is not None else None
            if index is not None:
                self._indices[at] = index
                self.network.ready.add(("index", at))
        self._answer(lead.Done(effect.turn, replica_name(*at)))

    def _take_in(self, names: tuple[str, ...], layout: Layout) -> None:
        network = self.network
        network.plan = network.plan.laid_out(layout)
        for name in names:
            at = where(name)
            network.views[at].append(network.tracker.view(at[0]))
            network.ready.add(("view", at))

    def _lay_out(self, layout: Layout, gone: tuple[str, ...]) -> None:
        """These are no more; this is the layout."""
        for name in gone:
            at = where(name)
            core = self.network.cores.get(at)
            if core is not None:
                self.network.retired.batches[at[0]] = self.network.retired.batches.get(at[0], 0) + core.batches_in
                core.close()
            self._remove(at)  # also what it has not been asked yet: a newcomer that has not started must not start any more
        self.network.plan = self.network.plan.laid_out(layout)
        self._lay_out_snapshots(self.network.plan)

    def _lay_out_snapshots(self, plan: Plan) -> None:
        if self._snapshots is not None:
            self._snapshots.lay_out(plan)

    def _remove(self, at: Where) -> None:
        network = self.network
        network.cores.pop(at, None)
        self._indices.pop(at, None)
        for waiting in (network.reports, network.views):
            waiting.pop(at, None)
        for kind in ORDERS:
            self._orders.pop((kind, at), None)
        self._forget(at)

    # -- steps -----------------------------------------------------------------------------------------
    def _relayout(self, at: Where, step: int, after: Plan) -> None:
        if self._at.get(at, self._base) >= step:
            return
        self._at[at] = step
        network, core = self.network, self.network.cores[at]
        network.move_out(at)
        before = core.plan
        core.lay_out(after)
        network.ends[at].sender.lay_out(after)
        for edge, target in channels_to_mark(before, after, *at):
            network.send_mark(at, edge, target, Marker(step, after), binds=False)
        if changes(before, after, at[0]):
            old = self.migrations.get(at)
            if old is not None:
                assert old.is_settled, f"{core.name!r}[{at[1]}] has not settled the step before {step}"
                self._costs.setdefault(at, []).append(old.cost)
            migration = self.migrations[at] = Migration(core, before, after)
            migration.begin()
            for edge, source in sorted(migration.missing()):
                self._will_arrive((edge, source, at[1]))
        network.after(at)

    def _is_settled(self, step: int, at: Where) -> bool:
        migration = self.migrations.get(at)
        if self._at.get(at, self._base) < step or (migration is not None and not migration.is_settled):
            return False
        return not any(isinstance(entry, Fence) for entry in self.network.reports[at])

    def _is_drained(self, at: Where) -> bool:
        migration = self.migrations.get(at)
        return migration is None or not migration.released

    def _has_left(self, at: Where) -> bool:
        sender = self.network.ends[at].sender
        return at in self._left and not (self.network.reports[at] or sender.is_held_up or sender.is_spilled)

    def _has_ended(self, ends: Collection[tuple[int, str]], at: Where) -> bool:
        return self._ended.get(at, set()).issuperset(ends)

    def _last_cost(self, at: Where) -> StepCost | None:
        migration = self.migrations.get(at)
        return migration.cost if migration is not None else None

    def _total(self, at: Where) -> StepCost:
        last = self._last_cost(at)
        return StepCost.total([*self._costs.get(at, ()), *([last] if last is not None else [])])

    def _will_arrive(self, channel: tuple[int, int, int]) -> None:
        if not self.network.edges[channel[0]].is_feedback:
            self.network.ready.add(("arrive", channel))

    def _arrive(self, channel: tuple[int, int, int]) -> None:
        """What is on its way on a channel arrives, and what leaves is taken out of it, as a host on Ray does before it queues a batch."""
        network, edge = self.network, self.network.edges[channel[0]]
        into, at = (channel[0], channel[1]), (edge.target, channel[2])
        waiting = network.channels.get(channel, deque())
        now = self._at.get(at, self._base)
        marks = (i for i, (_, mark, _) in enumerate(waiting) if isinstance(mark, Marker) and mark.step >= max(now, self._base + 1))
        place = next(marks, None)
        if at in network.cores and place is not None:
            mark = waiting[place][1]
            self._relayout(at, mark.step, mark.plan)
        migration = self.migrations.get(at)
        if migration is None or not migration.takes_out(into):
            return
        kept = deque[Entry]()
        for _ in range(len(waiting) if place is None else place):
            time, batch, size_bytes = waiting.popleft()
            stays = batch if time is None else migration.take_out(edge.id, time, batch, network.token(channel, size_bytes))
            if stays is not None:
                kept.append((time, stays, size_bytes))
        if place is not None:
            waiting.popleft()
            migration.on_marker(into)
        waiting.extendleft(reversed(kept))
        if not waiting:
            network.ready.discard(("batch", channel))
        network.after(at)

    def on_marker(self, at: Where, channel: tuple[int, int], marker: Marker) -> None:
        """A marker is next on a channel."""
        if marker.step < 0:
            sender = replica_name(self.network.edges[channel[0]].source, channel[1])
            self._ended.setdefault(at, set()).add((channel[0], sender))
            return
        if marker.plan is not None:
            self._relayout(at, marker.step, marker.plan)
        if marker.step == self._at.get(at) and at in self.migrations:
            self.migrations[at].on_marker(channel)
            self.network.after(at)

    def receiver(self, at: Where) -> Migration | ReplicaCore:
        """Who takes the next batch of a replica."""
        return self.migrations.get(at) or self.network.cores[at]

    def _on_transfer(self, channel: tuple[int, int, int]) -> None:
        """What one replica hands to a sibling arrives."""
        waiting = self.transfers[channel]
        step, plan, transfer = waiting.popleft()
        if not waiting:
            self.network.ready.discard(("transfer", channel))
        stage, source, target = channel
        at = (stage, target)
        self._relayout(at, step, plan)
        if self._at[at] != step:
            raise ProtocolError(f"{replica_name(*at)} got a transfer of step {step} from {source} in step {self._at[at]}")
        migration = self.migrations[at]
        migration.on_transfer(source, transfer)
        core = self.network.cores[at]
        while migration.released:
            core.receive(*migration.released.popleft())
        self.network.after(at)

    def fence(self, at: Where) -> None:
        """What a replica passes on leaves when its report so far is applied."""
        migration = self.migrations.get(at)
        if migration is not None and migration.outgoing:
            self.network.reports[at].append(Fence(self._at[at], self.network.cores[at].plan, list(migration.outgoing)))
            migration.outgoing.clear()
            self.network.ready.add(("report", at))

    def on_fence(self, at: Where, fence: Fence) -> None:
        """The reports before it are applied."""
        for target, transfer in fence.outgoing:
            channel = (at[0], at[1], target)
            self.transfers.setdefault(channel, deque()).append((fence.step, fence.plan, transfer))
            self.network.ready.add(("transfer", channel))

    # -- the end ---------------------------------------------------------------------------------------
    def _leave(self, at: Where) -> None:
        network, core = self.network, self.network.cores[at]
        core.let_go()
        network.move_out(at)
        for edge, target in channels_out(core.plan, core.plan.stage(at[0]), at[1]):
            network.send_mark(at, edge, target, Marker(-1, None))
        self._left.add(at)

    def _part(self, at: Where) -> None:
        """What a replica that has left had staged is kept."""
        network, snapshots = self.network, self._snapshots
        core = network.cores[at]
        if snapshots is None:
            network.retired.staged.extend(core.stage_sinks().items())
            return
        participant = snapshots.participant(at)
        del snapshots.participants[at]
        staged = participant.staged(snapshots.snapshots.base)
        network.retired.count += 1
        barrier = Barrier(-network.retired.count, snapshots.snapshots.published + 1, 0)
        snapshots.leave_behind(write_staged(snapshots.store.store, core.stage, at[1], snapshots.incarnation, barrier, staged))

    def _adopt(self, at: Where, plan: Plan) -> None:
        """The change is over for a replica, done or not: this is the layout."""
        self._over_for.add(at)
        core = self.network.cores[at]
        core.plan = plan
        self.network.ends[at].close_all_but(plan)
        if self._indices.pop(at, None) is not None:
            self.network.ready.discard(("index", at))
        core.gave()
        if self._snapshots is not None and at in self._snapshots.participants:
            self._snapshots.participants[at].lay_out(plan)

    def _forget(self, at: Where) -> None:
        """A replica is gone, and with it the marks on the channels to it: of steps that took nothing from it, and of attempts given up."""
        network = self.network
        into = [channel for channel in network.channels if (network.edges[channel[0]].target, channel[2]) == at]
        out_of = [channel for channel in network.channels if (network.edges[channel[0]].source, channel[1]) == at]
        for event in [event for event in network.ready.items if event[1] == at or event[1] in into]:
            network.ready.discard(event)
        for put_aside in (network.blocked, network.aligning):
            put_aside.pop(at, None)
        network.release(at)
        for channel in [*network.credits]:
            edge = network.edges[channel[0]]
            if at in ((edge.source, channel[1]), (edge.target, channel[2])):
                del network.credits[channel]
                network.ready.discard(("credit", channel))
        for channel in into:
            left = sum(time is not None for time, _, _ in network.channels.pop(channel))
            if left:
                name = network.plan.stage(at[0]).name
                raise InternalError(f"{left} batches were on their way to replica {at[1]} of {name!r}, now gone")
        if any(time is not None for channel in out_of for time, _, _ in network.channels.get(channel, ())):
            raise InternalError(f"batches are still on their way from replica {replica_name(*at)}, now gone")

    def explain(self) -> str:
        """Who is waited for, and for what."""
        leader = self.leader
        title = self.network.plan.title
        names = [title(*where(name)) if name in plane_names(leader.plan) else f"the {name}" for name in sorted(leader.missing)]
        return f"a change of layout waits for {', '.join(names)} {leader.phase.value}" if names else ""


def where(name: str) -> Where:
    """Which replica has that name on the plane."""
    return stage_of(name), replica_of(name)


__all__ = ["EVENTS", "Fence", "LocalRescale"]
