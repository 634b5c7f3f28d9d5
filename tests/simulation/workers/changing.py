"""Changes of layout on the bus: the leader that ships, and calls that reach the workers that ship, each as an event of its own."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rayad.actors.lead import calls
from rayad.actors.lead import change_protocol as change
from rayad.actors.lead import snapshot_leader as lead
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Event
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import Members
from rayad.actors.lead.layouts import names_of, starts_of
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.parts.part_files import write_staged
from rayad.dataflow.plan import Plan
from rayad.snapshots.barrier import Barrier

if TYPE_CHECKING:
    from tests.simulation.workers.run import Run

FOREVER_S = 1e12
GIVE_UP_SHARE = 0.1
"""The share of questions whether something is so yet that an actor gives up before it is."""


class Changing:
    """One change, in a run."""

    def __init__(self, run: Run, wanted: dict[str, int], turn: int) -> None:
        self.run = run
        self.chance: random.Random = run.chance
        there = [*run.workers, PROGRESS, COORDINATOR]
        members = Members(run.incarnation, dict.fromkeys(there, run.incarnation), {name: name for name in there}, {}, run.places)
        options: dict[str, Any] = {"groups": self.chance.choice([None, 3, 40]), "step_timeout_s": FOREVER_S}
        self.leader = ChangeLeader(run.plan, wanted, timeout_s=FOREVER_S, asked_s=run.clock.now_s, members=members, turn=turn, **options)
        self._orders: dict[str, deque[tuple[int, calls.Call]]] = {}
        self._awaited: dict[tuple[int, str], Callable[[], Any]] = {}
        self._retired = 0
        self.tell(Asked())

    @property
    def is_over(self) -> bool:
        """Whether it has an outcome, and all have heard of it."""
        return self.leader.outcome is not None and not self._orders

    def told(self) -> str:
        """Where it stands."""
        return f"a change waits for {sorted(self.leader.missing)} {self.leader.phase.value}, {self._awaited.keys()}, {self._orders}"

    def events(self) -> list[Any]:
        """What can happen next of it."""
        ready: list[Any] = [("call", name) for name in self._orders]
        ready += [("look", asked) for asked, is_so in self._awaited.items() if is_so()]
        return ready

    def perform(self, kind: str, what: Any) -> None:
        """One of these."""
        if kind == "look":
            is_so = self._awaited.pop(what)
            self.tell(Answered(*what, is_so()))
            return
        turn, call = self._orders[what].popleft()
        if not self._orders[what]:
            del self._orders[what]
        try:
            value = self._carry_out(what, call)
        except Exception as error:
            if not isinstance(call, calls.Admit):
                raise
            self.tell(Broke(turn, what, str(error), error))
            return
        if not isinstance(call, calls.Run):
            self.tell(Answered(turn, what, value))

    def give_up(self) -> None:
        """A question that was kept for as long as it may; the coordinator answers its own when it can."""
        kept = [asked for asked in self._awaited if asked[1] != COORDINATOR]
        if kept and self.chance.random() < GIVE_UP_SHARE:
            asked = self.chance.choice(kept)
            del self._awaited[asked]
            self.tell(Answered(*asked, False))

    def tell(self, event: Event) -> None:
        """Something has happened."""
        for effect in self.leader.handle(event, self.run.clock.now_s):
            match effect:
                case Ask(turn, names, call):
                    for name in names:
                        self._deliver(turn, name, call)
                case change.Stop(_, processes, layout) | change.LayOut(layout, _, processes):
                    for process in processes:
                        self.run.end(process)
                    self._lay_out(self.run.plan.laid_out(layout))
                case change.Fail(why):
                    raise AssertionError(why)
        self.leader.check_invariants()

    def _lay_out(self, plan: Plan) -> None:
        self.run.plan = plan
        if self.run.leader is not None:
            self.run.leader.lay_out(names_of(plan), starts_of(plan))

    def _deliver(self, turn: int, name: str, call: calls.Call) -> None:
        if isinstance(call, calls.HoldSnapshots):
            leader = self.run.leader
            if leader is not None:
                self.run.tell(lead.ChangeWanted())
            self._awaited[turn, name] = lambda: leader is None or leader.may_change
        elif isinstance(call, calls.HasLeft):
            at = ReplicaId.from_plane_name(name)
            worker = self.run.workers[self.run.places.process_of(*at)]
            self._awaited[turn, name] = lambda: worker.left_by(*at)
        elif isinstance(call, calls.Condition):
            actor = self.run.progress if name == PROGRESS else self._replica(name)
            self._awaited[turn, name] = lambda: getattr(actor, call.method)(*call.arguments)
        else:
            self._orders.setdefault(name, deque()).append((turn, call))

    def _replica(self, name: str) -> Any:
        at = ReplicaId.from_plane_name(name)
        return self.run.workers[self.run.places.process_of(*at)].hosts[at.stage].rescale

    def _carry_out(self, name: str, call: calls.Call) -> Any:
        run = self.run
        if isinstance(call, calls.OwnCall):
            return self._own(call)
        if name == PROGRESS:
            value = getattr(run.progress, call.method)(*call.arguments)
            run.progress.look_whether_over()
            return value
        if isinstance(call, calls.Listen):
            run.come(name, run.plan.laid_out(call.layout), call.incarnation)
            for at in run.places.replicas_at(name, run.plan.laid_out(call.layout)):
                run.workers[name].hold(*at, is_newcomer=True)
            return name
        if isinstance(call, calls.Run):
            run.workers[name].begin({**call.addresses, COORDINATOR: COORDINATOR})
            return None
        at = ReplicaId.from_plane_name(name)
        worker = run.workers[run.places.process_of(*at)]
        if isinstance(call, calls.Admit):
            worker.admit(*at, *call.arguments)
            return None
        if isinstance(call, calls.Withdraw):
            worker.forget(at.stage)
            return None
        value = getattr(worker.hosts[at.stage].rescale, call.method)(*call.arguments)
        run.turn(worker.name)
        return value

    def _own(self, call: calls.OwnCall) -> Any:
        run = self.run
        match call:
            case calls.StartProcesses():
                return ""
            case calls.ReleaseSnapshots():
                if run.leader is not None:
                    run.tell(lead.ChangeOver())
            case calls.Expect(_, _, layout, _):
                if run.leader is not None:
                    plan = run.plan.laid_out(layout)
                    run.leader.lay_out(names_of(plan), starts_of(plan))
            case calls.LastPublished():
                return run.leader.snapshots.base if run.leader is not None else 0
            case calls.Part(layout, left):
                self._part(run.plan.laid_out(layout), left)
        return None

    def _part(self, plan: Plan, left: Any) -> None:
        run = self.run
        for name, given in left.items():
            if run.leader is None or run.store is None:
                run.retired.append(given.staged)
                continue
            at = ReplicaId.from_plane_name(name)
            run.retirements += 1
            barrier = Barrier(-run.retirements, run.leader.snapshots.published + 1, 0)
            where = (run.store.store, plan.stage(at.stage), at.replica, run.incarnation, barrier)
            run.leader.leave_behind(write_staged(*where, given.staged.values()))
        if run.leader is not None:
            run.leader.lay_out(names_of(plan), starts_of(plan))


__all__ = ["Changing"]
