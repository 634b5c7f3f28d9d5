"""A leader of a change of layout, driven by tests: its events and effects, and actors that answer whatever they are asked."""

from __future__ import annotations

from typing import Any

from rayad.actors.lead import calls, layouts
from rayad.actors.lead.asking import Answered, Ask, Asked, Event
from rayad.actors.lead.calls import Call, Condition
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import Effect, Members, Phase
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.replica.migration import StepCost
from rayad.actors.replica.report import Left, ReplicaReport
from rayad.dataflow.plan import Plan
from tests.actors.test_layouts import ids, plan

TIMEOUT_S = 20.0
BASE = 41
"""The snapshot that was published last."""


class Led:
    """A leader, its events and its effects. The vertex ``sums`` of the plan changes; earlier changes used the turns up to 7."""

    def __init__(self, wanted: dict[str, int] | None = None, *, before: Plan | None = None, **options: Any) -> None:
        self.now_s = 100.0
        self.before = plan(2) if before is None else before
        self.sums = ids(self.before)["sums"]
        self.old = layouts.plane_names(self.before)
        there = (COORDINATOR, PROGRESS, *self.old)
        ours = Members(5, dict.fromkeys(there, 4), {name: f"at {name}" for name in there}, {self.sums: 3})
        self.members: Members = options.get("members", ours)
        given: dict[str, Any] = {"timeout_s": TIMEOUT_S, "asked_s": 100.0, "turn": 7, "groups": None, "members": self.members, **options}
        self.leader = ChangeLeader(self.before, {"sums": 3} if wanted is None else wanted, **given)
        self.asked: dict[str, tuple[int, Call]] = {}
        """What each actor was asked last."""
        self.said: list[Effect] = self.tell(Asked())

    def tell(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        self.now_s += after_s
        self.said = self.leader.handle(event, self.now_s)
        self.leader.check_invariants()
        for effect in self.said:
            if isinstance(effect, Ask):
                self.asked.update(dict.fromkeys(effect.names, (effect.turn, effect.call)))
        return self.said

    def turn(self, name: str) -> int:
        """Of what an actor was asked last."""
        return self.asked[name][0]

    def answer(self, name: str, value: Any = ..., cost: StepCost | None = None) -> list[Effect]:
        """An actor answers what it was asked last, by default that all is well."""
        turn, call = self.asked[name]
        return self.tell(Answered(turn, name, good_answer(name, call, cost or StepCost()) if value is ... else value))

    def done(self, name: str, cost: StepCost | None = None) -> list[Effect]:
        """An actor answers once."""
        return self.answer(name, cost=cost)

    def all_answer(self, cost: StepCost | None = None) -> list[Effect]:
        """All who are missing answer once; gives what all that brings."""
        return [effect for name in sorted(self.leader.missing) for effect in self.done(name, cost)]

    def all_done(self, cost: StepCost | None = None, after_s: float = 0.0) -> list[Effect]:
        """All actors do what this phase asks for; gives what the last answer brings."""
        self.now_s += after_s
        phase, steps = self.leader.phase, self.leader.plan.layout
        while (self.leader.phase, self.leader.plan.layout) == (phase, steps):
            name = min(self.leader.missing)
            self.done(name, cost)
        return self.said

    def until(self, phase: Phase) -> list[Effect]:
        """All actors do what is asked until this phase."""
        while self.leader.phase is not phase:
            self.all_done()
        return self.said

    def replica(self, number: int) -> str:
        return f"v{self.sums}.{number}"

    @property
    def stays(self) -> str:
        return f"the layout stays {layouts.asked_of(self.before)}"


def left_by(name: str) -> Left:
    """What a replica gives that has left."""
    return Left(ReplicaReport(name, 0), {"sink": f"of {name}"})


def good_answer(name: str, call: Call, cost: StepCost) -> Any:
    """What an actor answers when all is well."""
    match call:
        case calls.HasLeft():
            return left_by(name)
        case Condition() | calls.Hold():
            return True
        case calls.MayMove() | calls.StartProcesses():
            return ""
        case calls.Listen():
            return f"at {name}"
        case calls.Costs():
            return cost, cost
        case calls.LastPublished():
            return BASE
        case calls.Commit():
            return cost
        case _:
            return None


def asks(effects: list[Effect], kind: type[Call]) -> list[Ask]:
    """The questions with calls of this kind."""
    return [effect for effect in effects if isinstance(effect, Ask) and isinstance(effect.call, kind)]


def only(effects: list[Effect], kind: type) -> Any:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def released(effects: list[Effect]) -> list[type]:
    """Which of snapshots and the job are released."""
    kinds = (calls.ReleaseSnapshots, calls.Release)
    return [type(effect.call) for effect in effects if isinstance(effect, Ask) and isinstance(effect.call, kinds)]
