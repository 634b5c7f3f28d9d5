"""The leader of a job's snapshots decides by events alone: its effects for each event."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import rayad as rd
from rayad.actors.lead.snapshot_leader import (
    Begin,
    ChangeOver,
    ChangeWanted,
    Commit,
    Committed,
    Effect,
    Ended,
    Event,
    Fail,
    Failing,
    Finished,
    GiveUp,
    Hastened,
    NotPublished,
    PartFailed,
    PartWritten,
    Publish,
    Published,
    RegionFailed,
    SavepointRefused,
    SavepointTaken,
    SavepointWanted,
    SnapshotLeader,
    Tick,
)
from rayad.snapshots.attempts import PartReport
from rayad.snapshots.manifest import Manifest, ReplicaPart

REPLICAS = (("numbers", 0), ("sum", 0), ("sum", 1))
STARTS = REPLICAS[:1]


class Led:
    """A leader, its events and its effects."""

    def __init__(self, **config: Any) -> None:
        self.now_s = 0.0
        begun = Manifest(0, "job", {}, 128, ())
        options: dict[str, Any] = {"finally_published": (), "replicas": REPLICAS, "starts": STARTS, "begun": begun, "published": 0}
        self.leader = SnapshotLeader("job", rd.SnapshotConfig(**{"interval_s": 1.0, **config}), **options, now_s=0.0)

    def tell(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        self.now_s += after_s
        return self.leader.handle(event, self.now_s)

    def attempt(self) -> int:
        assert self.leader.snapshots.pending is not None
        return self.leader.snapshots.pending.number

    def parts(self, **inputs: int) -> list[Effect]:
        """All replicas write their parts of the attempt under way."""
        out: list[Effect] = []
        for name, replica in REPLICAS:
            out += self.tell(PartWritten(PartReport(self.attempt(), ReplicaPart(name, replica, ()), input_frames=inputs.get(name))))
        return out

    def manifest(self) -> Manifest:
        return self.leader.snapshots.manifest(job="job", graph={}, key_groups=128, incarnation=1)

    def manifest_kind(self) -> str:
        return self.leader.snapshots._pending.kind  # type: ignore[union-attr]

    def take(self, **inputs: int) -> list[Effect]:
        """The attempt under way becomes a snapshot that the sinks have published."""
        self.parts(**inputs)
        number, manifest = self.attempt(), self.manifest()
        effects = self.tell(Published(number, manifest))
        return effects if manifest.kind == "final" else self.tell(Committed(manifest))


def test_a_snapshot_from_its_beginning_to_its_sinks() -> None:
    led = Led()
    assert led.tell(Tick(), 0.9) == []
    (begin,) = led.tell(Tick(), 0.1)
    assert isinstance(begin, Begin)
    assert (begin.barrier.slot, begin.replicas) == (1, STARTS)
    assert led.parts() == [Publish(1)]
    manifest = led.manifest()
    assert led.tell(Published(1, manifest)) == [Commit(manifest)]
    assert led.tell(Tick(), 5.0) == []  # the sinks are publishing: the next waits
    assert led.tell(Committed(manifest)) == []
    assert isinstance(led.tell(Tick())[0], Begin)
    assert [taken.number for taken in led.leader.taken] == [1]


def test_an_attempt_that_cannot_be_given_is_given_up_everywhere_and_the_next_comes_in_time() -> None:
    led = Led()
    led.tell(Tick(), 1.0)
    assert led.tell(PartFailed(1, "full")) == [GiveUp(1, "full", REPLICAS)]
    assert led.tell(PartFailed(1, "full")) == []  # it is known already
    assert led.tell(Tick(), 0.5) == []
    assert isinstance(led.tell(Tick(), 0.5)[0], Begin)
    led.parts()
    assert led.tell(NotPublished(2, "away")) == [GiveUp(2, "away", REPLICAS)]


def test_an_attempt_that_takes_too_long_names_the_missing_replicas() -> None:
    led = Led(timeout_s=2.0)
    led.tell(Tick(), 1.0)
    led.tell(PartWritten(PartReport(1, ReplicaPart("numbers", 0, ()))))
    given_up, begin = led.tell(Tick(), 2.1)
    assert given_up == GiveUp(1, "it took longer than 2.0 s; missing: 'sum'[0], 'sum'[1]", REPLICAS)
    assert isinstance(begin, Begin)


def test_attempts_given_up_in_a_row_fail_the_job_when_that_was_asked_for() -> None:
    led = Led(failures_max=2)
    led.tell(Tick(), 1.0)
    assert not any(isinstance(effect, Fail) for effect in led.tell(PartFailed(1, "full")))
    led.tell(Tick(), 1.0)
    assert led.tell(PartFailed(2, "full"))[-1] == Fail("2 attempts at a snapshot in a row were given up, the last because full")


def test_a_savepoint_is_taken_next_and_answered_when_the_sinks_have_committed() -> None:
    led = Led(interval_s=None)
    assert led.tell(Tick(), 100.0) == []
    assert led.tell(SavepointWanted(7)) == []
    led.tell(Tick())
    assert led.manifest_kind() == "savepoint"
    assert led.take() == [SavepointTaken(7, 1)]


def test_of_two_savepoints_each_has_its_own_and_one_that_fails_is_refused() -> None:
    led = Led(interval_s=None)
    led.tell(SavepointWanted(1))
    led.tell(SavepointWanted(2))
    led.tell(Tick())
    assert led.tell(PartFailed(1, "full"))[-1] == SavepointRefused(1, "full")
    led.tell(Tick())
    assert led.take() == [SavepointTaken(2, 1)]


def test_the_last_snapshot_takes_the_place_of_one_under_way_and_begins_everywhere() -> None:
    led = Led()
    led.tell(SavepointWanted(3))
    led.tell(Tick(), 1.0)
    refused, begin = led.tell(Finished())
    assert refused == SavepointRefused(3, "the job completed before")
    assert isinstance(begin, Begin)
    assert begin.barrier.final
    assert begin.replicas == REPLICAS
    assert led.tell(Finished()) == []  # each replica says so
    assert led.take() == []
    assert led.leader.final is not None
    assert led.tell(Tick(), 10.0) == []


def test_the_last_snapshot_waits_for_sinks_that_are_publishing_the_one_before_it() -> None:
    led = Led()
    led.tell(Tick(), 1.0)
    led.parts()
    manifest = led.manifest()
    led.tell(Published(1, manifest))
    assert led.tell(Finished()) == []
    assert led.leader.is_ending
    (begin,) = led.tell(Committed(manifest))
    assert isinstance(begin, Begin)
    assert begin.barrier.final


def test_the_last_snapshot_waits_for_one_that_is_being_published() -> None:
    """It is in the hands of the store: given up, it could be there all the same, and be neither committed nor counted."""
    led = Led()
    led.tell(Tick(), 1.0)
    assert led.parts() == [Publish(1)]
    assert led.tell(Finished()) == []
    manifest = led.manifest()
    assert led.tell(Published(1, manifest)) == [Commit(manifest)]
    (begin,) = led.tell(Committed(manifest))
    assert isinstance(begin, Begin)
    assert begin.barrier.final


def test_the_last_snapshot_begins_when_the_one_before_it_is_not_published() -> None:
    led = Led()
    led.tell(Tick(), 1.0)
    led.parts()
    led.tell(Finished())
    given_up, begin = led.tell(NotPublished(1, "away"))
    assert given_up == GiveUp(1, "away", REPLICAS)
    assert isinstance(begin, Begin)
    assert begin.barrier.final


def test_answers_that_come_late_are_not_taken_for_the_next_attempt() -> None:
    led = Led()
    led.tell(Tick(), 1.0)
    led.parts()
    late = led.manifest()
    led.tell(PartFailed(1, "full"))
    led.tell(Tick(), 1.0)
    led.parts()
    assert led.attempt() == 2
    assert led.tell(Published(1, late)) == []
    assert led.tell(NotPublished(1, "away")) == []
    assert (led.attempt(), led.leader.taken) == (2, deque())
    manifest = led.manifest()
    assert led.tell(Published(2, manifest)) == [Commit(manifest)]
    assert led.tell(Committed(replace(manifest, number=0))) == []
    assert led.leader.committing == manifest


def test_what_fails_is_told_since_when_how_often_and_why_until_there_is_a_snapshot_also_over_recoveries() -> None:
    led = Led()
    assert led.leader.failing is None
    led.tell(Tick(), 1.0)
    led.tell(PartFailed(1, "full"), 0.5)
    assert led.leader.failing == Failing(1.5, 1, "full")
    led.leader.begin_anew(Manifest(0, "job", {}, 128, ()), 0, 2.0)
    led.tell(Tick(), 8.5)
    led.tell(PartFailed(2, "away"))
    assert led.leader.failing == Failing(1.5, 2, "away")
    led.tell(Tick(), 1.0)
    led.take()
    assert led.leader.failing is None


def test_results_that_cannot_be_stored_fail_the_job() -> None:
    led = Led()
    led.tell(Finished())
    assert led.tell(PartFailed(1, "full"))[-1] == Fail("the results of job 'job' could not be stored: full")


def test_a_change_of_layout_waits_for_the_snapshot_under_way_and_none_begins_until_it_is_over() -> None:
    led = Led()
    led.tell(Tick(), 1.0)
    led.tell(ChangeWanted())
    assert not led.leader.may_change
    led.take()
    assert led.leader.may_change
    assert led.tell(Tick(), 100.0) == []
    led.leader.lay_out([*REPLICAS, ("sum", 2)], STARTS)
    led.tell(ChangeOver())
    assert isinstance(led.tell(Tick())[0], Begin)  # at once: it keeps the new layout
    assert ("sum", 2) in led.leader.snapshots.missing


def test_no_change_begins_when_the_job_is_ending() -> None:
    led = Led()
    led.tell(Finished())
    led.tell(ChangeWanted())
    assert not led.leader.may_change
    led.take()
    assert not led.leader.may_change


def test_waiting_for_the_next_snapshot_makes_it_begin_at_once() -> None:
    led = Led(interval_s=1000.0)
    assert led.tell(Tick(), 1.0) == []
    led.tell(Hastened())
    assert isinstance(led.tell(Tick())[0], Begin)


def test_frames_of_live_inputs_are_saved_when_all_kept_snapshots_have_them() -> None:
    led = Led(keep=2)
    for frames, saved in ((5, 0), (9, 5), (12, 9)):  # at first the run's beginning, with none, is kept besides
        led.tell(Hastened())
        led.tell(Tick())
        led.take(numbers=frames)
        assert led.leader.saved_inputs == {"numbers": saved}


def test_frames_are_not_saved_while_the_store_keeps_older_snapshots() -> None:
    led = Led(keep=1)
    led.tell(Hastened())
    led.tell(Tick())
    led.parts(numbers=5)
    manifest = led.manifest()
    led.tell(Published(1, manifest))
    led.tell(Committed(manifest, is_retained=False))
    assert led.leader.saved_inputs == {}


def test_after_a_failure_numbering_continues_and_the_pending_savepoint_is_refused() -> None:
    led = Led()
    led.tell(SavepointWanted(4))
    led.tell(Tick(), 1.0)
    manifest = replace(Manifest(3, "job", {}, 128, ()), notes={"inputs": {"numbers": 2}})
    (refused,) = led.leader.begin_anew(manifest, 3, 2.0)
    assert refused == SavepointRefused(4, "the job failed meanwhile; it resumes from its last snapshot: ask again")
    (begin,) = led.tell(Tick(), 2.0)
    assert isinstance(begin, Begin)
    assert (begin.barrier.number, begin.barrier.slot) == (2, 4)


def test_the_last_snapshot_is_of_all_replicas_or_of_none() -> None:
    led = Led()
    assert led.leader.may_live_on
    (begin,) = led.tell(Finished())
    assert isinstance(begin, Begin)
    assert begin.barrier.final
    assert not led.leader.may_live_on


def test_a_failure_of_some_replicas_costs_the_attempt_under_way() -> None:
    led = Led()
    led.tell(Tick(), 1.0)
    assert led.tell(RegionFailed()) == [GiveUp(1, "a replica failed", REPLICAS)]
    assert led.tell(RegionFailed()) == []


def test_a_savepoint_of_a_job_that_is_over_is_refused() -> None:
    led = Led(interval_s=None)
    led.tell(SavepointWanted(1))
    led.tell(SavepointWanted(2))
    led.tell(Tick())
    assert led.tell(Ended("over")) == [SavepointRefused(1, "over"), SavepointRefused(2, "over")]


def test_of_a_savepoint_that_is_late_it_is_known_what_holds_it_up() -> None:
    led = Led(interval_s=None)
    assert led.leader.why_late() == "its attempt has not begun"
    led.tell(SavepointWanted(1))
    led.tell(Tick())
    assert led.leader.why_late() == "3 of 3 parts are not written: of 'numbers'[0], 'sum'[0], 'sum'[1]"
    led.tell(PartFailed(led.attempt(), "disk full"))
    led.tell(SavepointWanted(2))
    led.tell(Tick())
    led.parts()
    failed = "1 in a row were given up before, the last because disk full"
    assert led.leader.why_late() == f"all parts are written, and the store has not confirmed the snapshot; {failed}"
    led.tell(Published(led.attempt(), led.manifest()))
    assert led.leader.why_late() == "the sinks commit snapshot 1"


def test_a_late_part_of_an_attempt_that_was_given_up_publishes_nothing_again() -> None:
    """Regression: while the last snapshot was being published, it was published once more, with all output in it twice."""
    led = Led()
    led.tell(Tick(), after_s=2.0)
    early = led.attempt()
    led.tell(Finished())
    last = led.attempt()
    assert last > early
    assert led.parts() == [Publish(last)]
    assert led.tell(PartWritten(PartReport(early, ReplicaPart("sum", 0, ())))) == []
    assert led.tell(PartWritten(PartReport(last, ReplicaPart("sum", 0, ())))) == [], "nor one that comes twice"


def test_nothing_is_due_while_nothing_may_begin() -> None:
    """Regression: the coordinator looked again and again, without waiting, while sinks committed or a change went on."""
    led = Led()
    assert led.leader.due_in_s(5.0) == 0.0
    led.tell(Tick(), 5.0)
    assert led.leader.due_in_s(5.0) == 600.0, "the attempt may take so long"
    (publish,) = led.parts()
    assert led.leader.due_in_s(5000.0) is None, "all parts are there: it is in the hands of the store"
    assert isinstance(publish, Publish)
    commit = led.tell(Published(publish.number, led.manifest()))[-1]
    assert isinstance(commit, Commit)
    assert led.leader.due_in_s(5000.0) is None, "its sinks commit"
    led.tell(Committed(commit.manifest, True))
    assert led.leader.due_in_s(5000.0) == 0.0
    led.tell(ChangeWanted())
    assert led.leader.due_in_s(5000.0) is None
    led.tell(ChangeOver())
    assert led.leader.due_in_s(5000.0) == 0.0
