"""Windows and timers by the clock: exact where the clock is moved by hand, also in silence, over crashes and changes of layout."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.replica.upstream import region_of
from rayad.progress import DataflowError
from tests.thorough import amount

SECOND = dt.timedelta(seconds=1)
ORIGIN = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Clock:
    """Seconds that a test moves."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def settle(job: Any) -> None:
    while job.step():
        pass


def second(moment: dt.datetime) -> float:
    return (moment - ORIGIN).total_seconds()


class Silence(rd.Process):
    """Tells when a key has been silent for two seconds."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        if context.state is not None:
            context.clear_timer(context.state)
        context.state = context.time + 2 * SECOND
        context.set_timer(context.state)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit(second(context.time))
        context.state = None


@pytest.mark.parametrize("columns", [False, True])
def test_windows_and_timers_fire_by_the_clock_while_no_record_comes(columns: bool) -> None:
    clock = Clock()
    flow = rd.Dataflow()
    stamped = flow.input("x").with_processing_time()
    stamped.key_by("k").window(rd.windows.tumbling(10 * SECOND)).count().collect("counts")
    stamped.key_by("k").window(rd.windows.session(3 * SECOND)).count().collect("sessions")
    stamped.key_by("k").process(Silence).collect("silent")
    job = flow.submit(runtime="local", clock=clock, parallelism=2)
    x = job.input("x")

    def at(now_s: float, epoch: int, *keys: str) -> None:
        rows = [{"k": key} for key in keys]
        if rows:
            x.send(pa.RecordBatch.from_pylist(rows) if columns else rows)
        clock.now_s = now_s
        x.advance_to(epoch)
        settle(job)

    at(100, 1, "a", "b")
    at(101, 2, "a")
    at(102, 3)  # b has been silent for two seconds, and is told of when the clock is beyond them
    at(102.5, 4)
    at(104, 5)
    at(109, 9)
    at(110, 10, "a")
    at(111, 11)
    x.close()
    result = job.wait()
    assert [(time.epoch, key, second(w.start), n) for time, (key, w, n) in result["counts"]] == [
        (9, "a", 100, 2),
        (9, "b", 100, 1),
        (11, "a", 110, 1),  # at the end
    ]
    assert sorted((time.epoch, key, second(w.start), second(w.end), n) for time, (key, w, n) in result["sessions"]) == [
        (4, "a", 100, 104, 2),
        (4, "b", 100, 103, 1),
        (11, "a", 110, 113, 1),
    ]
    assert [(time.epoch, *told) for time, told in result["silent"]] == [(3, "b", 102.0), (4, "a", 103.0), (11, "a", 112.0)]


@pytest.mark.parametrize("seed", range(12))
def test_records_of_an_epoch_have_one_moment_and_none_is_late_when_the_clock_is_set_back(seed: int) -> None:
    """With some of the seeds it failed: where the input of the clock ended at once, it was read in the last epoch alone."""
    clock = Clock()
    flow = rd.Dataflow()
    stamped = flow.from_epochs([[{"n": e * 10 + i} for i in range(4)] for e in range(6)], parts=2).rebalance().with_processing_time("at")
    stamped.collect("rows")
    counted = stamped.key_by("n").window(rd.windows.tumbling(SECOND)).count()
    counted.late.collect("late")
    counted.collect("counts")
    job = flow.submit(runtime="local", clock=clock, parallelism=3, seed=seed)
    while job.step():
        clock.now_s += random.Random(job.steps).choice((0.5, -0.4))
    result = job.wait()
    moments = defaultdict(set)
    for time, row in result["rows"]:
        moments[time.epoch].add(row["at"])
    assert sorted(moments) == list(range(6))
    assert all(len(some) == 1 for some in moments.values())
    in_order = [min(moments[epoch]) for epoch in range(6)]
    assert in_order == sorted(in_order)
    assert (len(result["counts"]), result["late"]) == (24, [])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(amount(6, 400)))
def test_each_record_is_counted_once_and_fires_by_the_clock_while_replicas_come_go_and_crash(seed: int, tmp_path: Any) -> None:
    chance, clock = random.Random(seed), Clock()
    flow = rd.Dataflow("silence")
    stamped = flow.input("x", epoch_s=0.5).with_processing_time(name="stamp")
    stamped.collect("rows")
    stamped.key_by("k").window(rd.windows.tumbling(4 * SECOND)).count(name="counted").collect("counts")
    stamped.key_by("k").process(Silence, name="silence").collect("silent")
    failures = rd.FailureConfig(max_failures=99, survive_errors=False, delay_s=0.1)
    config = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=1.5), failures=failures)
    job: Any = flow.submit(runtime="local", clock=clock, parallelism=2, seed=seed, run=config)
    x, sent = job.input("x"), 0
    for _ in range(40):
        match chance.choice(("send", "send", "time", "time", "some steps", "crash", "rescale")):
            case "send":
                rows = [{"k": chance.randrange(4), "n": sent + i} for i in range(chance.randrange(1, 5))]
                x.send(rows if chance.random() < 0.5 else pa.RecordBatch.from_pylist(rows))
                sent += len(rows)
            case "time":
                clock.now_s += chance.choice((0.3, 0.7, 2.5))
                settle(job)
            case "some steps":
                for _ in range(chance.randrange(20)):
                    job.step()
            case "crash":
                job.crash()
            case "rescale":
                job.rescale(chance.choice(("stamp", "counted", "silence")), chance.randrange(1, 5))
    for _ in range(10):  # in silence, everything is told
        clock.now_s += 1
        settle(job)
    x.close()
    result = job.wait()
    rows = [row for _, row in result["rows"]]
    assert sorted(row["n"] for row in rows) == list(range(sent))
    moments = defaultdict(list)
    for row in rows:
        moments[row["k"]].append(second(row["processed_at"]))
    expected = Counter((key, moment // 4 * 4) for key, some in moments.items() for moment in some)
    assert {(key, second(w.start)): n for _, (key, w, n) in result["counts"]} == expected
    last = {
        (key, moment + 2) for key, some in moments.items() for moment in some if not any(moment < other <= moment + 2 for other in some)
    }
    assert sorted(told for _, told in result["silent"]) == sorted(last)
    end = max((time.epoch for name in ("counts", "silent") for time, _ in result[name]), default=0)
    assert x.epoch > end, "all of it was told before the input was closed"


def test_streams_of_two_clocks_are_joined_and_united() -> None:
    clock = Clock()
    flow = rd.Dataflow()
    left, right = (flow.input(name, epoch_s=1.0).with_processing_time("at") for name in ("left", "right"))
    left.union(right).key_by("k").window(rd.windows.tumbling(4 * SECOND)).count().collect("counts")
    left.key_by("k").join(right.key_by("k"), within=rd.between(-SECOND, SECOND)).collect("pairs")
    job = flow.submit(runtime="local", clock=clock, parallelism=2)
    a, b = job.input("left"), job.input("right")
    for now_s, to_a, to_b in ((100.5, 1, None), (101.5, 2, 3), (105, None, None), (106, None, 4), (120, None, None)):
        clock.now_s = now_s
        for each, sent in ((a, to_a), (b, to_b)):
            if sent is not None:
                each.send([{"k": 0, "n": sent}])
        settle(job)
    a.close()
    b.close()
    result = job.wait()
    assert sum(n for _, (_, _, n) in result["counts"]) == 4
    assert sorted((one["n"], other["n"]) for _, (_, (one, other)) in result["pairs"]) == [(1, 3), (2, 3)]


def test_inputs_advance_by_themselves_and_by_hand() -> None:
    clock = Clock()
    flow = rd.Dataflow()
    flow.input("x", epoch_s=2).probe("p").collect("out")
    job: Any = flow.submit(runtime="local", clock=clock)
    x = job.input("x")
    settle(job)
    assert x.epoch == 0
    clock.now_s += 2
    settle(job)
    assert x.epoch == 1
    clock.now_s += 100  # what was missed is not made up for
    settle(job)
    assert x.epoch == 2
    x.advance_to(9)
    assert job.probe("p").wait(8)
    assert job.probe("p").wait(11, timeout_s=100)  # the clock is moved on
    assert x.epoch == 12
    with pytest.raises(DataflowError, match=r"its live inputs \['x'\] are open; close\(\) them"):
        job.wait()
    x.close()
    job.wait()


@pytest.mark.parametrize("length", [0, -1, "1", True, float("inf"), dt.timedelta(seconds=1)])
def test_lengths_of_epochs_are_numbers_of_seconds(length: Any) -> None:
    with pytest.raises(DataflowError, match=r"flow.input\('x', epoch_s\) is .*must be a .*number above 0"):
        rd.Dataflow().input("x", epoch_s=length)


def test_what_is_refused() -> None:
    flow = rd.Dataflow()
    with pytest.raises(DataflowError, match="with_processing_time: column is 5"):
        flow.input("x").with_processing_time(5)  # type: ignore[arg-type]
    with pytest.raises(DataflowError, match="is inside the loop 'loop', where an epoch is not complete before the loop is"):
        flow.input("y").iterate(lambda inner: (inner.filter(lambda _: False), inner.with_processing_time()))
    flow = rd.Dataflow()
    flow.from_items([{"at": 1}]).with_processing_time("at").collect("out")
    with pytest.raises(DataflowError, match=r"with_processing_time: there is a column 'at' among \['at'\]: give another name, or drop it"):
        flow.run(runtime="local")
    flow = rd.Dataflow()
    flow.from_items([1]).with_processing_time().collect("out")
    with pytest.raises(DataflowError, match="with_processing_time was given 1: it takes records whose fields have names"):
        flow.run(runtime="local")


def test_columns_are_known_and_explain_says_that_it_is_not_repeatable() -> None:
    flow = rd.Dataflow()
    stamped = flow.from_arrow(pa.table({"n": [1]})).with_processing_time("at", name="stamp")
    assert stamped.schema == pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    stamped.collect("out")
    assert "not repeatable: 'stamp.clock' (test_processing_time.py:" in flow.explain()
    assert stamped.schema.metadata is None


def test_a_failure_behind_a_clock_restarts_everything() -> None:
    flow = rd.Dataflow()
    stamped = flow.from_items([{"n": 1}]).with_processing_time(name="stamp")
    stamped.key_by("n").window(rd.windows.tumbling(SECOND)).count(name="counted").key_by(lambda row: row[0]).count().collect("out")
    plan = flow.plan()
    failed = next(stage.id for stage in plan.stages if stage.name == "counted")
    assert region_of(plan, [failed]) == "'stamp.clock' would give records that come again other moments"
