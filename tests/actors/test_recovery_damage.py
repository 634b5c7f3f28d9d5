"""The leader of recoveries when replicas cannot read their parts of the snapshot."""

from __future__ import annotations

from rayad.actors.lead.job_leader import JobState
from rayad.actors.lead.recovery_leader import GRACE_S, Begin, ReadStore, Release, Start, StopChange, WholeGraph
from tests.actors.leading import Led, kinds


def test_a_part_that_is_damaged_is_no_failure_of_the_job_and_the_store_is_asked_again_with_its_name() -> None:
    led = Led(max_failures=0)
    led.tell(Begin())
    led.store_read()
    told = "Damaged: part 7/a.part is not what was written"
    assert led.fail("first", message=told, damaged="7/a.part", is_raised=True) == []
    assert led.fail("second", message="Damaged: part 7/b.part", damaged="7/b.part", is_raised=True) == []
    effects = led.tick()
    assert effects == [
        StopChange(),
        WholeGraph(f"'first'[0] cannot read its part of the snapshot: {told}"),
        Release(None, 1, ()),
        Start(2),
        ReadStore(2, suspected=frozenset({"7/a.part", "7/b.part"})),
    ]
    assert led.leader.recovery.failures == 0
    led.store_read()
    led.all_listen()
    assert led.leader.state is JobState.RUNNING


def test_a_file_that_the_coordinator_has_looked_at_and_a_replica_cannot_read_again_is_a_failure() -> None:
    led = Led(max_failures=0)
    led.tell(Begin())
    for _ in range(2):
        led.store_read()
        led.fail("first", message="Damaged: part 7/a.part", damaged="7/a.part", is_raised=True)
        effects = led.tick()
    assert [type(effect).__name__ for effect in effects] == ["StopChange", "StopAll", "End"]
    assert led.leader.state is JobState.FAILED


def test_a_death_beside_a_part_that_is_damaged_counts_and_the_file_is_suspected() -> None:
    led = Led().started()
    led.fail("first", has_ended=True, message="the actor died")
    led.fail("second", message="Damaged: part 7/a.part", damaged="7/a.part", is_raised=True)
    effects = led.tick()
    assert kinds(effects) == ["StopChange", "Survived", "Release", "Start", "ReadStore"]
    assert effects[-1] == ReadStore(2, suspected=frozenset({"7/a.part"}))
    assert led.leader.recovery.failures == 1


def test_survivors_that_cannot_read_their_part_end_a_recovery_upstream() -> None:
    led = Led(recovery="upstream").started()
    led.fail("first", has_ended=True)
    led.tick(GRACE_S)
    led.store_read()
    led.fail("numbers", message="Damaged: part 7/a.part", damaged="7/a.part", is_raised=True)
    effects = led.tick()
    assert kinds(effects) == ["StopChange", "WholeGraph", "Release", "Start", "ReadStore"]
    assert effects[-1] == ReadStore(3, None, (), frozenset({"7/a.part"}))
