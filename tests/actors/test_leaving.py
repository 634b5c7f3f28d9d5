"""How processes leave a node that drains: others start elsewhere, a snapshot is taken, and the job resumes from it."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rayad.actors.lead.nodes.leaving import (
    CANNOT_SAVE,
    NOT_THERE,
    RESERVE_S,
    WILL_LEAVE,
    DropSpares,
    Go,
    LeavingLeader,
    LetShare,
    Look,
    Phase,
    Published,
    Ready,
    StartSpares,
    TakeSnapshot,
    Tell,
)

ON = {"progress": "a", "w0": "a", "w1": "b", "w2": "b"}
AFTER = {"progress": "a", "w0": "a", "w1": "c", "w2": "a"}


def leaving(keeps_snapshots: bool = True) -> LeavingLeader:
    return LeavingLeader(keeps_snapshots)


def test_others_start_then_a_snapshot_is_taken_then_they_go() -> None:
    leader = leaving()
    assert leader.handle(Look(ON, {}), 0.0) == []
    assert leader.handle(Look(ON, {"b": 60.0}), 1.0) == [Tell("b", ("w1", "w2"), WILL_LEAVE, 60.0), StartSpares(("w1", "w2"))]
    assert leader.handle(Look(ON, {"b": 59.0}), 2.0) == [], "told once"
    assert leader.handle(Published(), 2.5) == [], "of a snapshot before the others were there"
    assert leader.handle(Ready(), 3.0) == [TakeSnapshot()]
    assert leader.handle(Ready(), 3.5) == []
    assert leader.handle(Published(), 4.0) == [Go(frozenset({"w1", "w2"}))]
    assert leader.handle(Look(AFTER, {"b": 50.0}), 11.0) == []
    assert leader.phase is Phase.IDLE


def test_where_time_is_short_the_last_snapshot_will_do() -> None:
    leader = leaving()
    leader.handle(Look(ON, {"b": 60.0}), 0.0)
    leader.handle(Ready(), 30.0)
    assert leader.handle(Look(ON, {"b": 60 - 44.0}), 44.0) == []
    assert leader.handle(Look(ON, {"b": RESERVE_S}), 45.0) == [Go(frozenset({"w1", "w2"}))]


def test_of_a_short_notice_half_is_for_leaving() -> None:
    leader = leaving()
    leader.handle(Look(ON, {"b": 8.0}), 0.0)
    leader.handle(Ready(), 2.0)
    assert leader.handle(Look(ON, {"b": 5.0}), 3.0) == []
    assert leader.handle(Look(ON, {"b": 4.0}), 4.0) == [Go(frozenset({"w1", "w2"}))]


def test_without_a_deadline_the_snapshot_is_waited_for() -> None:
    leader = leaving()
    assert leader.handle(Look(ON, {"b": inf}), 0.0) == [Tell("b", ("w1", "w2"), WILL_LEAVE), StartSpares(("w1", "w2"))]
    leader.handle(Ready(), 1.0)
    assert leader.handle(Look(ON, {"b": inf}), 10_000.0) == []
    assert leader.handle(Published(), 10_001.0) == [Go(frozenset({"w1", "w2"}))]


def test_without_others_in_time_the_job_stays_and_says_so_once() -> None:
    leader = leaving()
    leader.handle(Look(ON, {"b": 60.0}), 0.0)
    assert leader.handle(Look(ON, {"b": 14.0}), 46.0) == [Tell("b", ("w1", "w2"), NOT_THERE, 14.0), LetShare()]
    assert leader.handle(Look(ON, {"b": 13.0}), 47.0) == []
    assert leader.handle(Ready(), 48.0) == [TakeSnapshot()]
    assert leader.handle(Look(ON, {"b": 11.5}), 48.5) == [Go(frozenset({"w1", "w2"}))], "better late than lost"


def test_a_second_node_that_drains_is_left_with_the_first() -> None:
    leader = leaving()
    leader.handle(Look(ON, {"b": 60.0}), 0.0)
    leader.handle(Ready(), 1.0)
    second = leader.handle(Look(ON, {"a": 90.0, "b": 58.0}), 2.0)
    assert second == [Tell("a", ("progress", "w0"), WILL_LEAVE, 90.0), StartSpares(("progress", "w0"))]
    assert leader.handle(Published(), 3.0) == [], "its processes elsewhere are not there yet"
    leader.handle(Ready(), 4.0)
    assert leader.handle(Published(), 5.0) == [Go(frozenset(ON))]


def test_a_node_that_is_taken_back_is_not_left() -> None:
    leader = leaving()
    leader.handle(Look(ON, {"b": 60.0}), 0.0)
    assert leader.handle(Look(ON, {}), 1.0) == [DropSpares(("w1", "w2"))]
    assert leader.phase is Phase.IDLE
    assert leader.handle(Published(), 2.0) == []


def test_who_has_retired_meanwhile_need_not_leave() -> None:
    leader = leaving()
    leader.handle(Look(ON, {"b": 60.0}), 0.0)
    leader.handle(Ready(), 1.0)
    assert leader.handle(Look({name: node for name, node in ON.items() if name != "w2"}, {"b": 59.0}), 1.5) == [DropSpares(("w2",))]
    assert leader.handle(Published(), 2.0) == [Go(frozenset({"w1"}))]


def test_nobody_is_on_the_node_that_drains() -> None:
    assert leaving().handle(Look(ON, {"z": 5.0}), 0.0) == []


def test_a_job_without_snapshots_says_that_it_cannot_leave() -> None:
    leader = leaving(keeps_snapshots=False)
    assert leader.handle(Look(ON, {"b": 60.0}), 0.0) == [Tell("b", ("w1", "w2"), CANNOT_SAVE, 60.0)]
    assert leader.handle(Look(ON, {"b": 1.0}), 59.0) == []


def test_a_failure_meanwhile_does_not_end_it() -> None:
    """The shell does not look while the job recovers; what is left behind is left afterwards."""
    leader = leaving()
    leader.handle(Look(ON, {"b": 60.0}), 0.0)
    leader.handle(Ready(), 1.0)
    leader.handle(Published(), 2.0)
    assert leader.handle(Look(ON, {"b": 50.0}), 10.0) == [StartSpares(("w1", "w2"))], "they did not go: it begins again"


def test_those_that_somebody_asked_to_move_go_the_same_way() -> None:
    leader = leaving()
    assert leader.handle(Look(ON, {}, frozenset({"w2", "w9"})), 0.0) == [StartSpares(("w2",))]
    leader.handle(Ready(), 1.0)
    assert leader.handle(Published(), 2.0) == [Go(frozenset({"w2"}))]


class Leaving(RuleBasedStateMachine):
    """Whatever happens in whatever order: only those that have a spare go, and each goes at most once for each spare."""

    def __init__(self) -> None:
        super().__init__()
        self.leader, self.now_s = leaving(), 0.0
        self.on, self.spares, self.are_ready = dict(ON), set[str](), False

    def tell(self, event: Any) -> None:
        for effect in self.leader.handle(event, self.now_s):
            match effect:
                case StartSpares(names):
                    self.spares |= set(names)
                    self.are_ready = False
                case DropSpares(names):
                    self.spares -= set(names)
                case Go(names):
                    assert names <= self.spares
                    assert self.are_ready
                    self.on.update(dict.fromkeys(names, "z"))
                    self.spares -= names
        assert self.spares <= self.leader.names, "a process waits to take a place that nobody leaves"

    @rule(drains=st.dictionaries(st.sampled_from("ab"), st.sampled_from([0.0, 5.0, 60.0, inf])), passed_s=st.sampled_from([0.5, 20.0]))
    def look(self, drains: dict[str, float], passed_s: float) -> None:
        self.now_s += passed_s
        self.tell(Look(self.on, drains))

    @rule()
    def ready(self) -> None:
        self.are_ready = True
        self.tell(Ready())

    @rule()
    def published(self) -> None:
        self.tell(Published())

    @invariant()
    def holds(self) -> None:
        self.leader.check_invariants()


TestLeaving = Leaving.TestCase
