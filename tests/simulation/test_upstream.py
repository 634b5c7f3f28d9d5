"""Recovery upstream of a failure: single stages fail repeatedly, the others survive, and the results are those of the model."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.upstream import Region, gated_edges, region_of
from tests.actors import test_recovery_leader, test_snapshot_leader
from tests.programs.catalog import PROGRAMS
from tests.programs.program import Program
from tests.simulation.caught_by import caught_by
from tests.simulation.defects import planted
from tests.simulation.defects_of_recoveries import DEFECTS_OF_RECOVERIES
from tests.simulation.in_flight import check_in_flight
from tests.simulation.job import phases_of_snapshot
from tests.simulation.shelf import Shelf, ShelfSink
from tests.snapshots import attempts
from tests.thorough import amount, by_turns

FAILURES = 5


def run_with_failures(program: Program, seed: int, folder: Path) -> tuple[int, int]:
    """Run with random snapshots and failures; gives how many failures left replicas alive, and how many restarted everything."""
    draw = random.Random(seed)
    config = rd.RunConfig(storage_path=str(folder), failures=rd.FailureConfig(max_failures=1, recovery="upstream"))
    parallelism = program.parallelism if program.parallelism is not None else 1 + seed % 3
    job = program.flow().submit(config, runtime="local", seed=seed, parallelism=parallelism, **program.options)
    assert isinstance(job, LocalJob)
    partial = whole = 0
    take_step = job.step

    def step() -> bool:
        nonlocal partial, whole
        snapshots = job.snapshots
        assert snapshots is not None
        if job.steps and attempts.may_begin(job) and draw.random() < 0.05:
            attempts.begin(job, unaligned=draw.random() < 0.3)
        if partial + whole < FAILURES and job.steps > 3 and draw.random() < (0.01 if phases_of_snapshot(job) == {"steady"} else 0.06):
            failed = draw.choice(job.plan.stages).id
            if isinstance(region_of(job.plan, [failed]), Region):
                partial += 1
            else:
                whole += 1
            job.crash([failed])
        if job.steps % 8 == 0:
            check_in_flight(job)
        return take_step()

    job.step = step  # type: ignore[method-assign]
    program.feed(job)
    program.verify(job.wait(timeout_s=60))
    return partial, whole


@by_turns(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_results_are_those_of_the_model(program: Program, tmp_path: Path) -> None:
    for seed in range(amount(each_run=1, soak=2)):
        run_with_failures(program, seed, tmp_path / str(seed))


@pytest.mark.parametrize("seed", [6, 34])
def test_a_time_that_was_complete_but_not_in_turn_is_taken_again(seed: int, tmp_path: Path) -> None:
    """A vertex that takes times in order was told that the sender restarts, and counted the time as consumed."""
    run_with_failures(next(program for program in PROGRAMS if program.name == "loop-totals"), seed, tmp_path)


def test_a_batch_in_flight_at_the_cut_is_not_counted_for_ever_when_its_sender_fails_again(tmp_path: Path) -> None:
    """The receiver failed, too, and had resumed with the batch, but its count was not yet with the others when it dropped it."""
    run_with_failures(next(program for program in PROGRAMS if program.name == "vertex-end"), 92, tmp_path)


def test_failures_leave_others_alive(tmp_path: Path) -> None:
    chosen = [program for program in PROGRAMS if program.name in ("join-rows", "loop-totals", "vertex-end", "totals-mixed")]
    seeds = amount(each_run=3, soak=6)
    outcomes = [run_with_failures(program, seed, tmp_path / f"{program.name}{seed}") for program in chosen for seed in range(seeds)]
    assert sum(partial for partial, _ in outcomes) >= 2 * seeds - 2
    assert sum(whole for _, whole in outcomes) >= 1


PROGRAM_OF = {
    "a region misses one stage": "loop-totals",
    "survivors do not roll back": "join-rows",
    "a replica survives though none may": "totals-mixed",
}
"""Defects in the leader of recoveries, with a program that shows each."""
CAUGHT_BY = caught_by("upstream")
FOUND_BY_THE_LEADERS_TESTS = {
    "the last snapshot may be of some replicas": test_snapshot_leader.test_the_last_snapshot_is_of_all_replicas_or_of_none,
    "a listening answer of an older incarnation is believed": test_recovery_leader.test_a_listening_answer_of_an_older_incarnation_is_void,
}
"""Simulated runs do not show them: the progress worker has ended by then, and without it all replicas begin anew; and the supervisor drops
the calls of those that it releases, so that their answers do not come to the leader."""


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_defect_in_recoveries_upstream_is_caught(name: str, tmp_path: Path) -> None:
    program, seed = next(one for one in PROGRAMS if one.name == PROGRAM_OF[name]), CAUGHT_BY[name]
    run_with_failures(program, seed, tmp_path / "without")
    with planted(DEFECTS_OF_RECOVERIES[name]), pytest.raises((AssertionError, rd.RayadError)):
        run_with_failures(program, seed, tmp_path / "with")


@pytest.mark.parametrize("name", FOUND_BY_THE_LEADERS_TESTS)
def test_a_defect_is_found_by_the_leaders_own_tests(name: str) -> None:
    with planted(DEFECTS_OF_RECOVERIES[name]), pytest.raises(AssertionError):
        FOUND_BY_THE_LEADERS_TESTS[name]()


def diamond() -> rd.Dataflow:
    """Two paths from a source; one of them has a loop."""
    flow = rd.Dataflow("diamond")
    numbers = flow.from_items([1, 2, 3], name="numbers")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        counted = inner.key_by(lambda n: n).count(name="inner").map(lambda pair: pair[0] - 1)
        return counted.filter(lambda n: n > 0), counted

    numbers.iterate(body).as_records().key_by(lambda n: n).count(name="after").collect("after")
    numbers.key_by(lambda n: n).count(name="beside").collect("beside")
    return flow


def test_what_is_upstream_is_restarted_and_loops_as_a_whole() -> None:
    plan = diamond().plan(1)
    ids = {stage.name: stage.id for stage in plan.stages}
    region = region_of(plan, [ids["inner"]])
    assert isinstance(region, Region)
    assert region.stages == {ids["numbers"], ids["inner"]}
    assert {plan.stage(edge.target).name for edge in plan.edges if edge.id in region.edges} == {"after", "beside"}
    alone = region_of(plan, [ids["numbers"]])
    assert isinstance(alone, Region)
    assert alone.stages == {ids["numbers"]}
    everything: Any = region_of(plan, list(ids.values()))
    assert everything == "everything is upstream of the failure"


def test_batches_wait_everywhere_but_inside_loops() -> None:
    plan = diamond().plan(1)
    gated = gated_edges(plan)
    assert {(edge.is_feedback, edge.id in gated) for edge in plan.edges} == {(True, False), (False, True)}


def test_batches_that_may_go_to_another_replica_restart_everything() -> None:
    numbers = rd.Dataflow("rebalanced")
    numbers.from_items([1], name="numbers").rebalance().vertex(rd.Vertex, name="any").collect("out")
    plan = numbers.plan(2)
    why = region_of(plan, [next(stage.id for stage in plan.stages if stage.name == "numbers")])
    assert isinstance(why, str)
    assert "whichever replica has room" in why


def test_counts_that_cannot_be_told_apart_restart_everything() -> None:
    flow = rd.Dataflow("union")
    left, right = flow.from_items([1], name="left"), flow.from_items([2], name="right")
    left.union(right).key_by(lambda n: n).count(name="counts").collect("counts")
    plan = flow.plan(1)
    why = region_of(plan, [next(stage.id for stage in plan.stages if stage.name == "left")])
    assert isinstance(why, str)
    assert "counted together" in why


def step_until(job: LocalJob, happens: Callable[[], bool]) -> None:
    """Step until this happens, which it does soon."""
    for _ in range(1000):
        if happens():
            return
        job.step()
    raise AssertionError(f"it has not happened after {job.steps} steps")


def crash_behind_a_snapshot_that_nobody_was_told_of(begins: int, folder: Path, *, is_given_up: bool) -> None:
    """An attempt begins after so many steps; the source is lost when its manifest is in the store, or on the way there."""
    shelf = Shelf("out", None, lambda number: True, lambda number: False, lambda number: True)
    flow = rd.Dataflow("untold")
    source = flow.from_epochs([[(epoch, n) for n in range(2)] for epoch in range(400)], name="records")
    source.key_by(lambda record: record[1]).count(name="counts").sink(ShelfSink(shelf, columnar=False), name="out")
    config = rd.RunConfig(storage_path=str(folder), failures=rd.FailureConfig(max_failures=3, recovery="upstream"))
    job = flow.submit(config, runtime="local", seed=1, parallelism=1)
    assert isinstance(job, LocalJob)
    snapshots = job.snapshots
    assert snapshots is not None
    step_until(job, lambda: job.steps >= begins and attempts.may_begin(job))
    attempts.begin(job)
    step_until(job, lambda: phases_of_snapshot(job) == {"publishing"})
    before = snapshots.store.newest
    if is_given_up:
        attempts.give_up(job, "a test")
        step_until(job, lambda: snapshots.store.newest != before)
    job.crash([job.plan.stages[0].id])
    step_until(job, lambda: attempts.may_begin(job))
    attempts.begin(job)  # where the others live on, this one finds its number taken, and the next one is another one
    job.wait(timeout_s=60)
    assert (len(shelf.seen), shelf.seen.total()) == (800, 800)


@pytest.mark.parametrize("is_given_up", [True, False], ids=["given up", "under way"])
def test_a_snapshot_that_nobody_was_told_of_is_not_what_some_alone_resume_from(is_given_up: bool, tmp_path: Path) -> None:
    """Its manifest came into the store after the attempt was given up. The sinks get what it holds, so those that live on, which still have
    that staged, would show it again with the next snapshot. Found by seed 65208."""
    for begins in (30, 60, 80):
        crash_behind_a_snapshot_that_nobody_was_told_of(begins, tmp_path / str(begins), is_given_up=is_given_up)
