"""What has happened, as lines of a page: snapshots folded, facts in words; and the figures at the head."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobState, JobStatus
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.status.event_lines import EVENTS_SHOWN, lines_of, newest_of_each_group
from rayad.actors.status.facts import in_words
from rayad.actors.status.headline import Figure, Tone, headline
from rayad.actors.status.job_status import ReplicaStatus, SnapshotStatus, VertexStatus
from rayad.actors.status.journal import JobEvent, Journal
from rayad.actors.status.taking import Seen, StatusTaker
from rayad.snapshots.attempts import SnapshotStatistics
from tests.page.shop import shop

RUNNING = JobEvent(99.0, "running", "4 actors run", {"actors": 4})
FAILURE = JobEvent(103.0, "failure", "'counts'[0]: ValueError: 0", {"who": "'counts'[0]", "number": 1, "delay_s": 1.0})


def noted(*taken: SnapshotStatistics) -> list[JobEvent]:
    journal = Journal(iter([200.0 + n for n in range(len(taken))]).__next__)
    for one in taken:
        journal.on_snapshot(one)
    return list(journal.events)


def snapshot(number: int, took_s: float, kind: str = "snapshot", incremental: int = 0) -> SnapshotStatistics:
    return SnapshotStatistics(number, kind, took_s, 0.004, 0.02, 1_000, 2_000, incremental, 5.0)


def test_snapshots_that_follow_each_other_are_one_line_and_savepoints_have_their_own() -> None:
    events = noted(snapshot(1, 0.5), snapshot(2, 0.1), snapshot(3, 0.3), snapshot(4, 1.5, "savepoint"), snapshot(5, 0.2))
    lines = lines_of([RUNNING, *events])
    assert [(line.what, len(line.folded)) for line in lines] == [
        ("snapshot 5: 2.00 kB in 200 ms", 0),
        ("savepoint 4: 2.00 kB in 1.5 s", 0),
        ("3 snapshots, 300 ms at the median; the newest: snapshot 3: 2.00 kB in 300 ms", 3),
        ("4 actors run", 0),
    ]
    assert [one.what for one in lines[2].folded] == [
        "snapshot 3: 2.00 kB in 300 ms", "snapshot 2: 2.00 kB in 100 ms", "snapshot 1: 2.00 kB in 500 ms"
    ]  # fmt: skip
    assert [line.group for line in lines] == ["snapshots", "snapshots", "snapshots", "life"]


def test_a_failure_between_snapshots_divides_them() -> None:
    first, second, third = noted(snapshot(1, 0.5), snapshot(2, 0.1), snapshot(3, 0.3))
    assert [(line.kind, len(line.folded)) for line in lines_of([first, second, FAILURE, third])] == [
        ("snapshot", 0), ("failure", 0), ("snapshot", 2)
    ]  # fmt: skip


def test_the_newest_events_of_each_group_are_shown_so_that_snapshots_crowd_out_no_failure() -> None:
    snapshots = [JobEvent(104.0 + n, "snapshot", f"snapshot {n}", {"total_bytes": n}) for n in range(3 * EVENTS_SHOWN)]
    shown = newest_of_each_group([RUNNING, FAILURE, *snapshots])
    assert shown == [*reversed(snapshots[-EVENTS_SHOWN:]), FAILURE, RUNNING]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (noted(snapshot(1, 0.5))[0], "replicas stood still for 4 ms at most; 20 ms of processor time in the busiest replica; 1.00 kB "
         "written; one every 5 s from here on"),
        (FAILURE, "failure 1 of this run; restarted after a pause of 1 s"),
        (RUNNING, ""),
        (JobEvent(0, "decision", "changed: busy", {"outcome": "changed", "changes": {"counts": 4}, "answer": ""}), "counts to 4 replicas"),
        (JobEvent(0, "layout refused", "no room", {"wanted": {"counts": 9}}), "asked for: counts to 9 replicas"),
        (JobEvent(0, "end", "complete", {"state": "complete"}), ""),
    ],
)  # fmt: skip
def test_facts_are_words(event: JobEvent, words: str) -> None:
    assert in_words(event) == words


def test_a_change_of_layout_in_words() -> None:
    report = RescaleReport({"a": 1, "b": 2}, {"a": 1, "b": 3}, 4, 64, 1_200, 0, 2, 0.3, 1.0, 0.02, 0.1)
    assert in_words(JobEvent(0, "layout", "b 2 -> 3, in 1.00 s", asdict(report))) == (
        "64 key-groups moved, with 1.20 kB of state; in 4 steps; new replicas were there after 300 ms; no replica stood still for longer "
        "than 20 ms at a stretch; 2 batches waited for their state"
    )


def test_every_fact_that_a_journal_has_is_known_here() -> None:
    """No name with an underscore reaches a reader."""
    events = [*noted(snapshot(1, 0.5, incremental=2)), FAILURE, RUNNING]
    assert not [event for event in events if "_" in in_words(event)]


LINES = VertexStatus("lines", is_start=True, replicas=(ReplicaStatus(0, rate_in=1_630.0),))
COUNTS = VertexStatus("counts", replicas=(ReplicaStatus(0, state_bytes=3_400_000),))
STATUS = JobStatus(
    "words", JobState.RUNNING, at_s=163.0, vertices=(LINES, COUNTS), failures=1,
    snapshot=SnapshotStatus(7, "snapshot", 1.5, 0.2, 2_000, 100), snapshot_interval_s=3.0, result_epoch=1_574, result_age_s=0.5,
)  # fmt: skip


def figures(status: JobStatus, *events: JobEvent) -> dict[str, tuple[Any, ...]]:
    return {one.name: (one.value, one.unit, one.note, one.since_s) for one in headline(status, events)}


def test_the_figures_at_the_head_have_units_and_clocks_are_seconds() -> None:
    assert figures(STATUS, RUNNING, FAILURE) == {
        "Records a second": ("1.63", "k/s", "read by its sources", None),
        "Newest result": ("", "old", "epoch 1,574 is complete everywhere", 0.5),
        "State kept": ("3.40", "MB", "in counts", None),
        "Newest snapshot": ("", "ago", "snapshot 7, 2.00 kB; one every 3 s", 1.5),
        "Failures survived": ("1", "", "the last one {} ago", None),
        "Running for": ("", "", "2 vertices, 2 replicas", 64.0),
    }


def test_figures_that_are_not_known_yet_say_so() -> None:
    found = headline(JobStatus("words", JobState.STARTING), ())
    assert [(one.value, one.note) for one in found] == [
        ("-", "not measured yet"), ("-", "no epoch is complete yet"), ("0", "no vertex keeps any"),
        ("-", "none in this run; on demand only"), ("0", "none so far"), ("-", ""),
    ]  # fmt: skip
    over = headline(replace(STATUS, state=JobState.COMPLETE), ())[1]
    assert over == Figure("Newest result", "all", note="results are published", tone=Tone.GOOD)


def test_the_newest_result_is_as_old_as_its_epoch_has_been_left_by_the_sources() -> None:
    plan = shop().plan()
    taker = StatusTaker("shop")

    def seen(now_s: float, source: int, others: int) -> JobStatus:
        starts = {stage.id for stage in plan.stages if stage.name in ("orders", "stock")}
        views = {s.id: ((), (rd.Timestamp(source),)) if s.id in starts else ((rd.Timestamp(others),), ()) for s in plan.stages}
        return taker.take(plan, Seen(JobState.RUNNING, now_s, views=views))

    assert (seen(10.0, 0, 0).result_epoch, seen(11.0, 3, 0).result_age_s) == (None, None)
    status = seen(12.0, 5, 3)
    assert (status.result_epoch, status.result_age_s) == (2, 1.0), "all sources had left epoch 2 at 11"
    assert seen(15.0, 5, 5).result_age_s == 3.0


def test_a_status_has_the_users_names_of_what_is_fused_and_of_loops() -> None:
    status = StatusTaker("shop").take(shop().plan(), Seen(JobState.RUNNING, 1.0))
    assert {vertex.name: (vertex.title, vertex.steps) for vertex in status.vertices} == {
        "orders": ("orders", ("paid orders", "to walks")),
        "stock": ("stock", ()),
        "revenue by product": ("revenue by product", ()),
        "stock by product": ("stock by product", ()),
        "changes by product": ("changes by product", ("=> report",)),
        "union": ("loop walks", ("filter", "move", "filter-2")),
        "walks by length": ("walks by length", ()),
        "rebalance": ("send to the service", ("send to the service", "=> sent")),
    }
