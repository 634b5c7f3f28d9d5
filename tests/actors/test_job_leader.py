"""The leader of a job's life decides by events alone; and in any order of events certain things never happen."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import recovery_leader as recovery
from rayad.actors.lead.job_leader import (
    LAST_PARTS_S,
    AbortSinks,
    AllEnded,
    Cancel,
    End,
    FoundComplete,
    JobState,
    NotPublished,
    Publish,
    ResultsPublished,
    Stop,
    StopAll,
    StopReading,
    TakeLastSnapshot,
    drive,
)
from rayad.actors.lead.recovery_leader import Begin, Failed, Listens, SnapshotPublished
from rayad.actors.plane.protocol import PROGRESS
from rayad.progress import InternalError
from tests.actors.leading import Led, failure, kinds, plan_of


# -- how it ends -----------------------------------------------------------------------------------------
def test_a_job_without_snapshots_publishes_when_all_have_ended() -> None:
    led = Led(keeps_snapshots=False).started()
    assert led.tell(AllEnded()) == [Publish(from_snapshot=False)]
    assert led.tell(ResultsPublished()) == [StopAll(JobState.COMPLETE), End(JobState.COMPLETE)]
    assert led.leader.state is JobState.COMPLETE


@pytest.mark.parametrize("order", ["ended first", "snapshot first"])
def test_results_are_published_when_all_have_ended_and_the_last_snapshot_is_there(order: str) -> None:
    led = Led().started()
    if order == "ended first":
        assert led.tell(AllEnded()) == [TakeLastSnapshot()]
        assert led.tell(AllEnded()) == [], "each look tells it again"
        assert led.tell(SnapshotPublished()) == [], "another one"
        assert led.tell(SnapshotPublished(is_last=True)) == [Publish(from_snapshot=True)]
    else:
        assert led.tell(SnapshotPublished(is_last=True)) == []
        assert led.tell(AllEnded()) == [Publish(from_snapshot=True)]


def test_a_run_that_was_complete_is_published_without_starting_anybody() -> None:
    led = Led()
    led.tell(Begin())
    assert led.tell(FoundComplete()) == [Publish(from_snapshot=True)]
    assert led.tell(ResultsPublished())[-1] == End(JobState.COMPLETE)


def test_replicas_may_end_before_their_last_parts_are_looked_at() -> None:
    """Found on a loaded machine: the job failed with an AssertionError while it published, with all its work done."""
    led = Led().started()
    led.tell(AllEnded())
    assert led.tick(LAST_PARTS_S / 2) == []
    assert led.tell(SnapshotPublished(is_last=True)) == [Publish(from_snapshot=True)]


def test_last_parts_that_never_come_are_a_failure() -> None:
    led = Led().started()
    led.tell(AllEnded())
    assert led.leader.due_in_s(led.now_s) == LAST_PARTS_S
    survived = led.tick(LAST_PARTS_S + 1.0)[1]
    assert isinstance(survived, recovery.Survived)
    assert survived.failure.message.endswith("parts of the last snapshot are missing")


def test_a_failure_during_the_last_snapshot_restarts_the_job_and_all_have_to_end_again() -> None:
    led = Led().started()
    led.tell(AllEnded())
    led.fail(None, message="SnapshotError: the disk is full")
    assert kinds(led.tick())[-1] == "ReadStore"
    led.store_read()
    led.all_listen()
    assert led.tick(LAST_PARTS_S * 2) == []
    assert led.tell(AllEnded()) == [TakeLastSnapshot()]


@pytest.mark.parametrize(
    "order", ["fails, published", "published, fails", "recovers, published", "published, leaves", "published, is lost"]
)
def test_whoever_fails_or_leaves_once_the_last_snapshot_is_there_is_not_needed(order: str) -> None:
    """Found by the simulation of coordinators: the recovery waited for a last snapshot that had been taken."""
    led = Led().started()
    for what in order.split(", "):
        match what:
            case "fails" | "recovers":
                told = led.fail("first", is_lost_peer=True)
                told += led.tick() if what == "recovers" else []
            case "leaves":
                told = led.tell(recovery.Move(frozenset({"v0.0"})))
            case "is lost":
                told = led.tell(recovery.Lost(frozenset({"v0.0"})))
            case "published":
                told = led.tell(SnapshotPublished(is_last=True))
    assert told == [Publish(from_snapshot=True)]
    assert led.fail("first") == led.tick(1000.0) == []
    assert led.tell(ResultsPublished())[-1] == End(JobState.COMPLETE)


def test_the_results_of_a_store_that_another_coordinator_has_claimed_are_that_ones() -> None:
    led = Led().started()
    led.tell(SnapshotPublished(is_last=True))
    superseded = recovery.Failed(None, led.leader.recovery.incarnation, failure(message="Superseded"), is_final=True)
    assert led.tell(superseded)[-1] == End(JobState.FAILED, superseded.failure)


def test_results_that_cannot_be_published_end_the_job_however_many_failures_it_may_survive() -> None:
    led = Led().started()
    led.tell(SnapshotPublished(is_last=True))
    led.tell(AllEnded())
    why = failure(message="SnapshotError: the disk is full")
    assert led.tell(NotPublished(why)) == [StopAll(JobState.FAILED), End(JobState.FAILED, why)]


def test_while_results_are_published_nothing_else_matters() -> None:
    led = Led(keeps_snapshots=False).started()
    led.tell(AllEnded())
    assert led.fail("first") == led.tell(Cancel()) == led.tell(Stop()) == led.tick(1000.0) == []
    assert led.tell(ResultsPublished())[-1] == End(JobState.COMPLETE)


# -- stop and cancel -------------------------------------------------------------------------------------
def test_stop_ends_sources_also_restarted_ones() -> None:
    led = Led().started()
    assert led.tell(Stop()) == [StopReading()]
    led.recovering()
    assert kinds(led.all_listen()) == ["Run", "Running", "StopReading"]


def test_stop_before_the_job_runs_takes_effect_when_it_does() -> None:
    led = Led()
    led.tell(Begin())
    assert led.tell(Stop()) == []
    led.store_read()
    assert led.all_listen()[-1] == StopReading()


@pytest.mark.parametrize("phase", ["reading", "starting", "running", "in a delay", "recovering", "grace"])
def test_cancel_ends_the_job_in_any_phase(phase: str) -> None:
    led = Led(delay_s=4.0)
    led.tell(Begin())
    if phase != "reading":
        led.store_read()
    if phase not in ("reading", "starting"):
        led.all_listen()
    if phase in ("recovering", "in a delay"):
        led.recovering()
    if phase == "in a delay":
        led.fail("second")
        led.tick()
        assert led.leader.recovery.phase is recovery.Phase.DELAYED
    if phase == "grace":
        led.fail("first", is_lost_peer=True)
    during = " while starting" if phase in ("reading", "starting") else ""
    cancelled = failure(who="job", message=f"cancelled{during}")
    assert led.tell(Cancel()) == [StopAll(JobState.CANCELLED), End(JobState.CANCELLED, cancelled)]
    assert led.tick(1000.0) == led.tell(Listens(led.names["first"], 1)) == []


def test_sinks_clean_up_only_when_no_run_can_resume_from_their_output() -> None:
    assert AbortSinks() not in Led().started().tell(Cancel())
    assert Led(keeps_snapshots=False).started().tell(Cancel())[1] == AbortSinks()


def test_an_answer_without_a_question_is_a_mistake_of_the_shell() -> None:
    with pytest.raises(InternalError, match="nothing was to be published"):
        Led().started().tell(ResultsPublished())


# -- shells ----------------------------------------------------------------------------------------------
def test_an_error_of_the_shell_is_a_failure_and_later_effects_are_skipped() -> None:
    led = Led()
    done: list[str] = []

    def carry_out(effect: lead.Effect) -> list[lead.Event] | None:
        done.append(type(effect).__name__)
        if isinstance(effect, recovery.ReadStore):
            return [recovery.StoreRead(effect.incarnation)]
        if isinstance(effect, recovery.Start) and effect.incarnation == 1:
            raise OSError("no process")
        return None

    def failed(error: Exception) -> Failed:
        return Failed(None, led.leader.recovery.incarnation, failure(message=str(error)))

    drive(led.leader, Begin(), lambda: led.now_s, carry_out, failed)
    assert done == ["ReadStore", "Start"]
    drive(led.leader, recovery.Tick(), lambda: led.now_s, carry_out, failed)
    assert done[2:] == ["StopChange", "Survived", "Release", "Start", "ReadStore", "Listen"]


class Shell:
    """Answers in any order, late, or not at all after a failure; it asserts what may never happen."""

    def __init__(self, seed: int, *, is_upstream: bool, parallelism: int) -> None:
        self.rng = random.Random(seed)
        self.led = Led(recovery="upstream" if is_upstream else "graph", max_failures=10**6, delay_s=0.1, plan=plan_of(parallelism))
        self.under_way: list[lead.Event] = []
        self.listening: set[tuple[str, int]] = set()
        self.started: list[int] = []
        self.asked: list[tuple[str, int]] = []
        self.ran: list[tuple[str, int]] = []
        self.has_last = self.is_released = False
        self.failures = 0
        self.ended: End | None = None

    def tell(self, event: lead.Event) -> None:
        if isinstance(event, Listens):
            self.listening.add((event.name, event.incarnation))
        for effect in self.led.tell(event):
            assert self.ended is None, f"{effect} after the end"
            self.carry_out(effect)

    def carry_out(self, effect: Any) -> None:
        rng, answers = self.rng, self.under_way
        match effect:
            case recovery.Start(incarnation):
                assert incarnation not in self.started
                self.started.append(incarnation)
            case recovery.ReadStore(incarnation):
                if rng.random() < 0.1:
                    answers.append(recovery.StoreAway(incarnation, failure(message="away")))
                else:
                    answers.append(recovery.StoreRead(incarnation, all_because="damaged" if rng.random() < 0.2 else ""))
            case recovery.Listen(names, incarnation):
                assert not {(name, incarnation) for name in names} & set(self.asked)
                self.asked.extend((name, incarnation) for name in names)
                answers.extend(Listens(name, incarnation) for name in names)
            case recovery.RollBack(names, _, incarnation):
                answers.extend(recovery.RolledBack(name, incarnation) for name in names)
            case recovery.Run(names, incarnation):
                these = [(name, incarnation) for name in names]
                assert not set(these) & set(self.ran), "two starts in one incarnation"
                assert set(these) <= self.listening, "run before all listen"
                self.ran.extend(these)
            case lead.TakeLastSnapshot():
                answers.append(SnapshotPublished(is_last=True))
            case lead.Publish():
                assert self.has_last, "published before the last snapshot"
                answers.append(ResultsPublished() if rng.random() < 0.9 else NotPublished(failure()))
            case StopAll():
                self.is_released = True
            case End():
                assert self.is_released, "an end without release"
                self.ended = effect

    def fail(self) -> None:
        self.failures += 1
        leader = self.led.leader.recovery
        name = self.rng.choice([None, PROGRESS, *self.led.everybody])
        incarnation = leader.incarnation if name is None else leader.incarnations.get(name, leader.incarnation)
        if self.rng.random() < 0.2:
            incarnation = max(1, incarnation - 1)
        told = failure(message=f"OSError: {self.failures}", is_lost_peer=self.rng.random() < 0.3)
        self.tell(Failed(name, incarnation, told, is_stuck=self.rng.random() < 0.2))

    def step(self, may_fail: bool) -> None:
        drawn = self.rng.random()
        if may_fail and drawn < 0.1:
            self.fail()
        elif self.under_way and drawn < 0.7:
            event = self.under_way.pop(self.rng.randrange(len(self.under_way)))
            self.has_last |= isinstance(event, SnapshotPublished)
            self.tell(event)
        elif self.led.leader.recovery.is_running and drawn < 0.8:
            self.tell(AllEnded())
        self.led.now_s += self.rng.choice([0.0, 0.01, 0.3, 1.0])
        self.tell(recovery.Tick())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 2), st.sampled_from(["", "cancel", "stop"]))
def test_in_any_order_of_events_the_job_ends_as_it_must(seed: int, is_upstream: bool, parallelism: int, besides: str) -> None:
    shell = Shell(seed, is_upstream=is_upstream, parallelism=parallelism)
    shell.tell(Begin(succeeds=True))
    for count in range(150):
        if shell.ended is None:
            shell.step(may_fail=count < 80)
        if count == 40 and besides and shell.ended is None:
            shell.tell(Cancel() if besides == "cancel" else Stop())
    for _ in range(600):
        if shell.ended is None:
            shell.step(may_fail=False)
    assert shell.ended is not None, shell.led.leader.recovery.phase
    assert shell.ended.state in (JobState.COMPLETE, JobState.FAILED, JobState.CANCELLED)
    if shell.ended.state is JobState.CANCELLED:
        assert besides == "cancel"
