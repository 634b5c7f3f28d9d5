"""Processes that end in a row: the leader of recoveries counts them by vertex, and tells what they seem to be at."""

from __future__ import annotations

import re
from typing import Any

import pytest

import rayad as rd
from rayad.actors.lead.crashes import CALM_S, how_it_died, told_place
from rayad.actors.lead.job_leader import End
from rayad.actors.lead.recovery_leader import (
    GRACE_S,
    Acquit,
    Listen,
    SnapshotPublished,
)
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.plane.replica_id import ReplicaId
from rayad.dataflow.plan import Plan
from tests.actors.leading import Led

ENDED = {"message": "the actor of 'first'[0] died: it did", "has_ended": True}


def listen_of(effects: list[Any]) -> Listen:
    return next(effect for effect in effects if isinstance(effect, Listen))


def restarted(led: Led, vertex: str, **facts: Any) -> Listen:
    """A replica fails, and the job runs again: what its actors were told."""
    led.fail(vertex, **facts)
    led.tick()
    led.tick(GRACE_S)
    led.tick(60.0)
    listen = listen_of(led.store_read())
    led.all_listen()
    return listen


def test_ends_of_processes_in_a_row_are_counted_by_vertex() -> None:
    led = Led(max_failures=9).started()
    first, second = (ReplicaId.from_plane_name(led.names[name]).stage for name in ("first", "second"))
    assert restarted(led, "first", **ENDED).ended == {first: 1}
    assert restarted(led, "first").ended == {first: 1}, "an error of the function's is no end of a process"
    assert restarted(led, "first", message="ConnectionError: lost", is_lost_peer=True).ended == {first: 1}
    assert restarted(led, "second", **ENDED).ended == {first: 1, second: 1}
    assert restarted(led, "first", **ENDED).ended == {first: 2, second: 1}
    assert led.tell(SnapshotPublished(), CALM_S / 2) == [], "as soon as it runs again, before the same work"
    assert restarted(led, "first", **ENDED).ended == {first: 3, second: 1}
    assert led.tell(SnapshotPublished(), CALM_S) == [Acquit((led.names["first"], led.names["second"]))]
    assert led.tell(SnapshotPublished()) == []
    assert restarted(led, "first", **ENDED).ended == {first: 1}


def test_a_row_lasts_as_long_as_the_work_between_a_snapshot_and_the_end_may_take() -> None:
    led = Led(max_failures=9).started()
    first = ReplicaId.from_plane_name(led.names["first"]).stage
    led.tell(SnapshotPublished(), 1000.0)
    led.tick(500.0)  # of work behind the snapshot
    assert restarted(led, "first", **ENDED).ended == {first: 1}
    assert led.tell(SnapshotPublished(), 900.0) == []
    assert led.tell(SnapshotPublished(), 200.0) == [Acquit((led.names["first"],))]


def test_the_progress_actor_runs_no_function() -> None:
    led = Led(max_failures=9).started()
    led.names["progress"] = PROGRESS
    assert restarted(led, "progress", **ENDED).ended == {}


def gave_up(led: Led, vertex: str, *working: str) -> str:
    """Processes of a vertex end in a row, in these steps: why the job gives up."""
    for step in working[:-1]:
        restarted(led, vertex, **ENDED, working=step)
    led.fail(vertex, **ENDED, working=working[-1])
    (end,) = (effect for effect in led.tick() if isinstance(effect, End))
    return end.why


def parsing(**options: Any) -> Plan:
    flow = rd.Dataflow("job")
    words = flow.from_items(["a"], name="lines").rebalance(name="work").map(str.strip, name="strip").map(str.upper, name="parse", **options)
    words.key_by(lambda word: word).count(name="counts").collect("out")
    return flow.plan(1)


def test_a_job_whose_processes_end_again_and_again_says_which_operators_and_what_to_give() -> None:
    told = gave_up(Led(max_failures=2, plan=parsing()).started(), "work", "", "", "")
    assert "a process of 'work' (" in told
    assert "ended 3 times in a row: it seems to be at the same work" in told
    assert "The functions that run in it: 'strip' (test_recovery_crashes.py:" in told
    assert "'parse' (test_recovery_crashes.py:" in told
    assert told.endswith("on_error='skip', after_crashes=2 at that operator sets such records aside")


@pytest.mark.parametrize(
    ("working", "is_known"),
    [(("", "parse", "parse"), True), (("", "", "parse"), True), (("", "strip", "parse"), False), (("", "count", "count"), False)],
)
def test_the_function_in_which_processes_ended_is_named_where_it_is_known(working: tuple[str, ...], is_known: bool) -> None:
    told = gave_up(Led(max_failures=2, plan=parsing()).started(), "work", *working)
    times = sum(step == "parse" for step in working)
    count = f", {times} of {times} times that this is known. If a record ends the process, on_error='skip', after_crashes=2 there"
    assert ("It ended in 'parse' (test_recovery_crashes.py:" in told) is is_known
    assert (count in told) is is_known
    assert ("The functions that run in it: 'strip'" in told) is not is_known


def test_a_job_that_gives_up_before_records_are_set_aside_says_so() -> None:
    told = gave_up(Led(max_failures=2, plan=parsing(on_error="skip", after_crashes=5)).started(), "work", "", "", "")
    assert told.endswith("'parse' has after_crashes=5: allow as many restarts by FailureConfig(max_failures=...), or give less")


def test_a_single_end_of_a_process_says_nothing_of_records() -> None:
    led = Led(max_failures=1, plan=parsing()).started()
    restarted(led, "work", **ENDED)
    led.tell(SnapshotPublished(), CALM_S)
    led.fail("work", **ENDED)
    (end,) = (effect for effect in led.tick() if isinstance(effect, End))
    assert "in a row" not in end.why


RAY = "The actor died unexpectedly before finishing this task.\n\tclass_name: VertexActor\n\tpid: 71\nThe actor is dead because {}"
WORKER = "its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: {}"


@pytest.mark.parametrize(
    ("ray", "told"),
    [
        (WORKER.format("Worker exits unexpectedly. Worker exits with an exit code 5."), "exit status 5"),
        (WORKER.format("Worker exits unexpectedly. Worker exits with an exit code 1. The process receives a SIGTERM."), "SIGTERM"),
        (
            WORKER.format("Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) .."),
            "its process ended without a word, as by a signal: SIGKILL where memory runs out, SIGSEGV of native code",
        ),
        ("it was killed by `ray.kill`.", "The actor is dead because it was killed by `ray.kill`"),
    ],
)
def test_what_ray_tells_of_a_death_is_one_short_reason(ray: str, told: str) -> None:
    """Its first line was told, which is the same for every death."""
    assert how_it_died(RAY.format(ray)) == told
    assert (
        how_it_died("The actor died unexpectedly before finishing this task.") == "The actor died unexpectedly before finishing this task"
    )


def test_a_death_is_told_with_the_functions_that_ran_in_the_process() -> None:
    flow = rd.Dataflow("d")
    flow.from_items([1]).map(lambda n: n, name="a").map(lambda n: n, name="b").collect("out")
    plan = flow.plan()
    both = r"; functions in it: 'a' \(test_recovery_crashes.py:\d+\), 'b' \(test_recovery_crashes.py:\d+\)"
    assert re.fullmatch(both, told_place(plan, "v0.0", ""))
    assert re.fullmatch(r"; it was in 'b' \(test_recovery_crashes.py:\d+\)", told_place(plan, "v0.0", "b"))
    assert told_place(plan, PROGRESS, "") == ""
