"""The Ray runtime: live inputs and probes, back-pressure to the driver, barriers, two jobs at once, large results."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.driver.ray_job import RayJob
from rayad.actors.driver.submitting import _as_ray_encrypts
from rayad.actors.job import JobState
from rayad.actors.plane.protocol import replica_name
from tests.patience import PATIENCE_S

Check = Callable[[], None]


def test_a_probe_tells_when_an_epoch_of_a_live_input_is_complete(nothing_left: Check) -> None:
    flow = rd.Dataflow("live")
    flow.input("words").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
    job = flow.submit(parallelism=2)
    words = job.input("words")
    probe = job.probe("counted")
    words.send(["a", "b", "a"])
    words.advance_to(1)
    assert probe.wait(0, timeout_s=PATIENCE_S)
    assert probe.frontier() == (rd.Timestamp(1),)
    assert probe.less_equal(rd.Timestamp(1))
    assert not probe.less_than(rd.Timestamp(1))
    assert not probe.wait(1, timeout_s=0.2)
    words.send(["a"])
    words.close()
    expected = [(rd.Timestamp(0), ("a", 2)), (rd.Timestamp(0), ("b", 1)), (rd.Timestamp(1), ("a", 3))]
    assert sorted(job.wait(timeout_s=PATIENCE_S)["counts"]) == expected
    assert probe.done()
    with pytest.raises(rd.DataflowError, match=r"^input 'words' is closed: it cannot send records$"):
        words.send(["late"])


def test_two_inputs_that_advance_differently(nothing_left: Check) -> None:
    flow = rd.Dataflow("two")
    left, right = flow.input("left"), flow.input("right")
    left.key_by(lambda r: r[0]).join(right.key_by(lambda r: r[0])).probe("joined").collect("pairs")
    job = flow.submit(parallelism=2)
    ours, theirs = job.input("left"), job.input("right")
    ours.send([(1, "a")])
    ours.advance_to(5)
    theirs.send([(1, "x")])
    assert not job.probe("joined").wait(0, timeout_s=0.3)
    theirs.advance_to(1)
    assert job.probe("joined").wait(0, timeout_s=PATIENCE_S)
    theirs.send([(1, "y")])
    ours.close()
    theirs.close()
    assert job.wait(timeout_s=PATIENCE_S)["pairs"] == [
        (rd.Timestamp(0), (1, ((1, "a"), (1, "x")))),
        (rd.Timestamp(1), (1, ((1, "a"), (1, "y")))),
    ]


class Slow(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        clock.sleep(0.02 * len(batch))  # small batches of one time are joined before they are sent
        self.send_by(0, batch, time)


def test_a_slow_vertex_slows_the_driver_down(nothing_left: Check) -> None:
    flow = rd.Dataflow("slow")
    flow.input("numbers").rebalance().vertex(Slow, name="slow").collect("out")
    job = flow.submit(rd.RunConfig(window_batches=2, window_bytes=1), parallelism=1)
    numbers = job.input("numbers")
    for i in range(100):
        numbers.send([i])
    consumed = {stage.name: stage.records_in for stage in job.progress().stages}["slow"]
    assert consumed >= 75, "most of the records were consumed before the driver could send more"
    numbers.close()
    assert sorted(r for _, r in job.wait(timeout_s=PATIENCE_S)["out"]) == list(range(100))


class GlobalBarrier(rd.Vertex):
    """Asks for the next time in each notification: no replica may be more than one ahead."""

    rounds = 200

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.notify_at(time)

    def on_notify(self, time: rd.Timestamp) -> None:
        self.seen.append(time.epoch)
        if time.epoch < self.rounds:
            self.notify_at(rd.Timestamp(time.epoch + 1))
        else:
            self.send_by(0, [len(self.seen)], time)


def test_a_global_barrier_runs_through_on_both_replicas(nothing_left: Check) -> None:
    flow = rd.Dataflow("barrier")
    flow.from_items([0]).broadcast().vertex(GlobalBarrier, parallelism=2).collect("seen")
    result = flow.run(parallelism=2, timeout_s=PATIENCE_S)
    assert result["seen"] == [(rd.Timestamp(200), 201)] * 2


def test_explain_stuck_names_what_is_waited_for(nothing_left: Check) -> None:
    flow = rd.Dataflow("stuck")
    flow.input("words").key_by(lambda w: w).count(name="counts").collect("counts")
    job = flow.submit(parallelism=1)
    job.input("words").send(["a"])
    deadline_s = clock.monotonic() + 20
    while "'counts' waits for (0)" not in (told := job.explain_stuck()) and clock.monotonic() < deadline_s:
        clock.sleep(0.05)
    assert "'counts' waits for (0); before it:" in told
    assert "words[0]: live input open in epoch 0" in told
    job.cancel()


def test_an_input_of_a_failed_job_raises_what_ended_it(nothing_left: Check) -> None:
    flow = rd.Dataflow("bad")
    flow.input("numbers").map(lambda x: 1 // x, name="divide").collect("out")
    job = flow.submit()
    numbers = job.input("numbers")

    def send_on() -> None:
        for number in [0] + [1] * 10_000:
            numbers.send([number])

    with pytest.raises(rd.DataflowError, match="'divide'"):
        send_on()
    assert job.state is JobState.FAILED


def test_two_jobs_side_by_side(nothing_left: Check) -> None:
    results: dict[str, Any] = {}

    def run(name: str, count: int) -> None:
        flow = rd.Dataflow(name)
        flow.from_items(range(count)).key_by(lambda r: r % 7).count().collect("counts")
        results[name] = dict(record for _, record in flow.run(parallelism=2)["counts"])

    threads = [threading.Thread(target=run, args=(name, count)) for name, count in (("one", 700), ("two", 1400))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert results == {"one": dict.fromkeys(range(7), 100), "two": dict.fromkeys(range(7), 200)}


@pytest.mark.soak
def test_columns_come_back_as_columns(nothing_left: Check) -> None:
    values = np.arange(200_000)
    flow = rd.Dataflow("columns")
    table = pa.table({"key": values % 1000, "value": values})
    flow.from_arrow(table).key_by("key").sum("value").collect("sums", columnar=True)
    sums = flow.run(parallelism=2)["sums"]
    got = dict(zip(sums.column(0).to_pylist(), sums.column(1).to_pylist(), strict=True))
    expected = np.bincount(values % 1000, weights=values).astype(int)
    assert got == dict(enumerate(expected.tolist()))


def test_the_schema_that_the_program_says_is_what_comes_back(nothing_left: Check) -> None:
    """Columns of unlike types that meet, and results as columns, in replicas of their own."""
    flow = rd.Dataflow("said")
    parts = [
        flow.from_arrow(pa.table({"k": ["a", "b"], "v": pa.array([1, 2], kind)}), name=str(kind)) for kind in (pa.int8(), pa.float64())
    ]
    sums = parts[0].union(parts[1]).rebalance().key_by("k").per_epoch().aggregate({"n": "count", "sum": ("sum", "v")}).as_columns()
    sums.collect("out", columnar=True)
    out = flow.run(parallelism=2)["out"]
    assert (
        out.schema
        == sums.schema
        == pa.schema({"k": pa.string(), "window_start": pa.int64(), "window_end": pa.int64(), "n": pa.int64(), "sum": pa.float64()})
    )
    window = {"window_start": 0, "window_end": 1}
    assert out.sort_by("k").to_pylist() == [{"k": "a", **window, "n": 2, "sum": 2.0}, {"k": "b", **window, "n": 2, "sum": 4.0}]


def test_encrypted_frames_give_the_same_with_live_inputs_and_snapshots(nothing_left: Check, tmp_path: Path) -> None:
    """By TCP, as between nodes: all planes of a job encrypt, the driver's and the coordinator's, too."""
    flow = rd.Dataflow("sealed")
    flow.input("numbers").key_by(lambda r: r % 5).count().collect("counts")
    failures = rd.FailureConfig(max_failures=1)
    config = rd.RunConfig(storage_path=str(tmp_path), unix_sockets=False, encrypt=True, failures=failures)
    job = flow.submit(config, parallelism=2)
    numbers = job.input("numbers")
    numbers.send(list(range(500)))
    numbers.advance_to(1)
    job.savepoint()
    numbers.send(list(range(500, 1000)))
    numbers.close()
    last = dict(record for _, record in job.wait(timeout_s=PATIENCE_S)["counts"])
    assert last == dict.fromkeys(range(5), 200)


def test_what_ray_encrypts_is_not_sent_beside_it_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _as_ray_encrypts(rd.RunConfig()).encrypt
    assert _as_ray_encrypts(rd.RunConfig(encrypt=True)).encrypt
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert _as_ray_encrypts(rd.RunConfig()).encrypt
    with pytest.raises(rd.ConfigError, match=r"RunConfig\(encrypt=False\), but RAY_USE_TLS=1: Ray encrypts what goes between nodes"):
        _as_ray_encrypts(rd.RunConfig(encrypt=False))


def test_tcp_between_replicas_gives_the_same(nothing_left: Check) -> None:
    """Replicas do not use Unix sockets, as between nodes."""
    flow = rd.Dataflow("tcp")
    flow.from_items(range(1000)).key_by(lambda r: r % 5).count().collect("counts")
    job = flow.submit(rd.RunConfig(unix_sockets=False), parallelism=2)
    assert isinstance(job, RayJob)
    names = ["progress", *(replica_name(stage.id, r) for stage in job.plan.stages for r in range(stage.parallelism))]
    assert [job._ask("where", name, 30, timeout_s=40)[0].unix for name in names] == [""] * 4
    assert sorted(record for _, record in job.wait(timeout_s=PATIENCE_S)["counts"]) == [(i, 200) for i in range(5)]
