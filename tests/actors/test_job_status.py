"""What is known of a job: rates between two looks, shares, lag, who is silent; against counts that are worked out by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence

import pytest

import rayad as rd
from rayad.actors.job import Job, JobState, JobStatus
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.status.silent import Silent
from rayad.actors.status.taking import Seen, StatusTaker
from rayad.autoscale import ReplicaReading
from rayad.dataflow.plan import Plan
from rayad.progress import Timestamp
from rayad.snapshots.attempts import SnapshotStatistics


def counting() -> rd.Dataflow:
    flow = rd.Dataflow("words")
    flow.input("lines").key_by(lambda word: word).count(name="counts").collect("counted")
    return flow


@pytest.fixture
def plan() -> Plan:
    return counting().plan(2)


def reading(replica: int, now_s: float, busy_s: float, received: int, *, started_s: float = 0.0, **more: int) -> ReplicaReading:
    idle_s = now_s - started_s - busy_s
    return ReplicaReading("counts", replica, started_s, now_s, busy_s, idle_s, received={0: (received, 8 * received)}, **more)


def seen(now_s: float, readings: Sequence[ReplicaReading] = (), **more: object) -> Seen:
    reports = [ReplicaReport(one.vertex, one.replica, pid=100 + one.replica, node="10.0.0.1") for one in readings]
    return Seen(JobState.RUNNING, now_s, reports, readings, **more)  # type: ignore[arg-type]


def views(plan: Plan, source: int | None, *counts: int, pending: Sequence[int] = ()) -> dict[int, tuple[tuple[Timestamp, ...], ...]]:
    lines, counted = plan.stages
    at_source = () if source is None else (Timestamp(source),)
    return {lines.id: ((), at_source), counted.id: (tuple(map(Timestamp, counts)), tuple(map(Timestamp, pending)))}


def test_rates_are_those_since_the_start_and_then_those_between_two_looks(plan: Plan) -> None:
    taker = StatusTaker("words")
    first = taker.take(plan, seen(10.0, [reading(0, 10.0, 5.0, 1000), reading(1, 10.0, 0.0, 0)])).vertices[1]
    assert [(one.rate_in, one.busy_share, one.idle_share) for one in first.replicas] == [(100.0, 0.5, 0.5), (0.0, 0.0, 1.0)]
    assert (first.rate_in, first.busy_share, first.skew) == (100.0, 0.25, 2.0)
    status = taker.take(plan, seen(12.0, [reading(0, 12.0, 7.0, 1600, queue_batches=3, queue_bytes=90), reading(1, 12.0, 0.0, 0)]))
    second = status.vertices[1]
    assert (second.replicas[0].rate_in, second.replicas[0].busy_share, status.window_s) == (300.0, 1.0, 2.0)
    assert (second.backlog_batches, second.backlog_bytes) == (3, 90)
    assert (second.replicas[1].node, second.replicas[1].pid) == ("10.0.0.1", 101)


def test_viewers_who_look_often_share_windows_of_a_second_or_more(plan: Plan) -> None:
    taker = StatusTaker("words")
    windows = [taker.take(plan, seen(t / 10, [reading(0, t / 10, 0.0, t)])).window_s for t in range(100, 160)]
    assert all(1.0 <= window_s <= 2.0 for window_s in windows[15:]), windows
    assert windows[0] == 10.0  # there is nothing to compare with: since the start


def test_counts_that_begin_anew_after_a_recovery_are_rates_since_it(plan: Plan) -> None:
    taker = StatusTaker("words")
    taker.take(plan, seen(10.0, [reading(0, 10.0, 5.0, 1000)]))
    anew = taker.take(plan, seen(14.0, [reading(0, 14.0, 1.0, 40, started_s=12.0)])).vertices[1].replicas[0]
    assert (anew.rate_in, anew.busy_share) == (20.0, 0.5)
    down = taker.take(plan, seen(18.0, [reading(0, 18.0, 1.0, 10, started_s=12.0)])).vertices[1].replicas[0]
    assert down.rate_in == pytest.approx(10 / 6)


def test_the_lag_counts_epochs_and_seconds_since_the_slowest_source_left(plan: Plan) -> None:
    taker = StatusTaker("words")

    def lag(now_s: float, source: int | None, *counts: int, pending: Sequence[int] = ()) -> tuple[int | None, float | None]:
        vertex = taker.take(plan, seen(now_s, views=views(plan, source, *counts, pending=pending))).vertices[1]
        return vertex.lag_epochs, vertex.lag_s

    assert lag(0.0, 0, 0) == (0, 0.0)
    assert lag(5.0, 1, 0) == (1, 0.0)
    assert lag(8.0, 4, 0) == (4, 3.0)
    assert lag(9.0, 4, 2) == (2, 1.0)
    assert lag(10.0, 4, 4, pending=[3]) == (1, 2.0)  # what waits at the vertex is not done
    assert lag(11.0, None, 4) == (0, 0.0)
    assert lag(12.0, None) == (None, None)
    assert lag(13.0, 1, 0) == (1, 0.0)  # a recovery: the sources are back


def test_who_is_silent_is_said_and_keeps_its_last_figures(plan: Plan) -> None:
    taker, two = StatusTaker("words"), [reading(0, 10.0, 5.0, 1000), reading(1, 10.0, 5.0, 1000)]
    status = taker.take(plan, seen(10.0, two, silent=(Silent("'counts'[1]", "10.0.0.2", 3.0),)))
    assert [one.answers for one in status.vertices[1].replicas] == [True, False]
    assert status.vertices[1].replicas[1].rate_in == 100.0
    assert [one.answers for one in status.vertices[0].replicas] == [False]  # never heard of
    assert str(status.silent[0]) == "'counts'[1] on node 10.0.0.2 has not answered for 3.0 s: its process is stopped, or its node is gone"


def test_a_status_is_plain_data(plan: Plan) -> None:
    snapshot = SnapshotStatistics(3, "snapshot", 0.5, 0.1, 0.2, 100, 2000, 0, 10.0)
    found = {"snapshot": snapshot, "snapshot_age_s": 4.0, "snapshot_interval_s": 10.0, "views": views(plan, 7, 5)}
    status = StatusTaker("words").take(plan, seen(10.0, [reading(0, 10.0, 5.0, 1000)], failures=2, **found))
    assert pickle.loads(pickle.dumps(status)) == status
    told = json.loads(json.dumps(status.as_json()))
    assert told["snapshot"] == {"number": 3, "kind": "snapshot", "age_s": 4.0, "took_s": 0.5, "total_bytes": 2000, "written_bytes": 100}
    assert (told["state"], told["failures"], told["vertices"][1]["frontier"]) == ("running", 2, ["(5)"])
    assert told["vertices"][1]["rate_in"] == 100.0
    assert told["edges"] == [{"source": "lines", "target": "counts", "is_feedback": False}]
    assert status.layout == {"lines": 1, "counts": 2}


def test_a_local_job_has_the_same_model_with_steps_as_its_clock() -> None:
    job: Job = counting().submit(runtime="local", parallelism=2)
    words = job.input("lines")
    for epoch in range(5):
        words.send(["a", "b"] * 50)
        words.advance_to(epoch + 1)
    status = job.status()
    lines, counts = status.vertices
    assert (status.state, lines.is_start, len(counts.replicas)) == (JobState.RUNNING, True, 2)
    words.close()
    job.wait()
    assert job.status() == JobStatus("words", JobState.COMPLETE, job.status().at_s)
