"""job.updates(name): what is written while the job runs, and how many records a reader has missed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.job import JobState
from rayad.actors.replica.recent import News, Recent
from rayad.actors.status.updates import Update, Updates
from rayad.dataflow.collected import TimedBatches


@given(st.lists(st.integers(1, 5), max_size=20), st.lists(st.booleans(), max_size=20), st.integers(1, 8))
def test_a_reader_gets_every_record_or_is_told_how_many_it_missed(sizes: list[int], reads: list[bool], limit: int) -> None:
    recent, number, seen, got, missed = Recent(limit), 0, 0, [], 0
    for at, size in enumerate([*sizes, 0]):
        if size:
            recent.put(rd.Timestamp(at), list(range(number, number + size)))
            number += size
        if not size or (at < len(reads) and reads[at]):
            news = recent.after(seen)
            got += [record for _, batch in news.batches for record in batch]
            missed += news.missed
            assert news.count == number
            seen = news.count
    assert missed + len(got) == number
    assert got == sorted(set(got))
    assert len(tuple(recent.after(0).batches)) <= limit


@given(st.lists(st.integers(1, 5), max_size=20), st.integers(1, 8), st.integers(0, 60))
def test_the_last_records_are_the_same_at_the_driver(sizes: list[int], limit: int, seen: int) -> None:
    recent = Recent(limit)
    for at, size in enumerate(sizes):
        recent.put(rd.Timestamp(at), list(range(size)) if at % 3 else pa.record_batch({"n": range(size)}))
    buffers: list[Any] = []
    data = pickle.dumps(recent, 5, buffer_callback=buffers.append)
    there = pickle.loads(data, buffers=buffers)
    for each in (recent, there):
        each.put(rd.Timestamp(99), ["one more"])
    theirs, ours = there.after(seen), recent.after(seen)
    assert (theirs.count, theirs.missed, list(theirs.batches)) == (ours.count, ours.missed, list(ours.batches))


def test_the_last_records_in_columns_travel_in_one_buffer() -> None:
    recent = Recent()
    for at in range(20):
        recent.put(rd.Timestamp(at), pa.record_batch({"n": range(10), "text": ["a"] * 10}))
    buffers: list[Any] = []
    pickle.dumps(recent, 5, buffer_callback=buffers.append)
    assert len(buffers) == 1


def reader(told: list[Mapping[str, News | None]]) -> list[Update]:
    """All that is read where a job tells this, one after the other."""
    left = iter(told)
    return list(Updates(lambda seen: next(left), lambda: False, lambda: left.__length_hint__() > 0, lambda: None))


def news(life: int, count: int, missed: int, *records: Any) -> News:
    return News(life, count, missed, TimedBatches([(rd.Timestamp(0), list(records))] if records else []))


def test_an_update_says_what_is_missing_before_it() -> None:
    found = reader([{"a": news(1, 5, 3, "x", "y")}, {"a": news(1, 6, 0, "z")}])
    assert [(update.record, update.missed) for update in found] == [("x", 3), ("y", 0), ("z", 0)]
    assert found[0].epoch == 0


def test_after_a_death_or_a_departure_nobody_knows_how_many_are_missing() -> None:
    found = reader([{"a": news(1, 1, 0, "x")}, {"a": news(2, 0, 0)}, {"a": news(2, 2, 0, "y", "z")}])
    assert [(update.record, update.missed) for update in found] == [("x", 0), ("y", None), ("z", 0)]
    found = reader([{"a": news(1, 1, 0, "x"), "b": news(1, 0, 0)}, {"a": news(1, 2, 0, "y")}, {"a": news(1, 3, 0, "z")}])
    assert [(update.record, update.missed) for update in found] == [("x", 0), ("y", None), ("z", 0)]
    found = reader([{"a": news(1, 1, 0, "x")}, {}, {"a": None}, {"a": news(1, 2, 0, "y")}])
    assert [update.missed for update in found] == [0, 0], "who does not answer may answer again"


def counting() -> rd.Dataflow:
    flow = rd.Dataflow("counting")
    flow.input("words").key_by(str).count(name="counts").collect("totals")
    return flow


def test_the_local_runtime_runs_while_it_is_read_and_goes_on_after_more_was_sent() -> None:
    job = counting().submit(runtime="local", seed=3, parallelism=2)
    words, updates = job.input("words"), job.updates("totals")
    assert list(updates) == []
    words.send(["a", "b", "a"])
    words.advance_to(1)
    assert sorted((update.epoch, update.record) for update in updates) == [(0, ("a", 2)), (0, ("b", 1))]
    words.send(["a"])
    words.close()
    assert [(update.epoch, update.record, update.missed) for update in updates] == [(1, ("a", 3), 0)]
    assert len(job.wait()["totals"]) == 3
    assert list(updates) == []
    assert sorted(update.record for update in job.updates("totals")) == [("a", 2), ("a", 3), ("b", 1)], "another reader, the last ones"


def test_updates_come_again_after_a_recovery(tmp_path: Path) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path), failures=rd.FailureConfig(max_failures=3), snapshots=rd.SnapshotConfig(interval_s=None))
    job = counting().submit(run, runtime="local")
    words, updates = job.input("words"), job.updates("totals")
    words.send(["a"])
    words.advance_to(1)
    assert [update.record for update in updates] == [("a", 1)]
    job.crash()
    words.send(["a"])
    words.close()
    assert [(update.record, update.missed) for update in updates] == [(("a", 1), None), (("a", 2), 0)]
    assert [record for _, record in job.wait()["totals"]] == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("interval_s", [None, 0.001])
def test_the_loop_over_updates_ends_the_job_as_wait_does(tmp_path: Path, interval_s: float | None) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=interval_s))
    job = counting().submit(run, runtime="local")
    job.input("words").send(["a", "a"])
    job.input("words").close()
    assert [update.record for update in job.updates("totals")] == [("a", 2)]
    assert job.state is JobState.COMPLETE


def test_a_job_that_failed_raises_what_ended_it() -> None:
    flow = rd.Dataflow("failing")
    flow.from_items([1, 0]).map(lambda n: 1 // n).collect("x")
    job = flow.submit(runtime="local")
    for _ in range(2):
        with pytest.raises(rd.DataflowError, match=r"failed at .* on record 0: ZeroDivisionError"):
            list(job.updates("x"))


def test_only_what_is_collected_can_be_read(tmp_path: Path) -> None:
    flow = rd.Dataflow("names")
    flow.from_items([{"a": 1}]).write_parquet(str(tmp_path), name="files").collect("x")
    job = flow.submit(runtime="local")
    for name in ("files", "y", 5):
        with pytest.raises(rd.DataflowError, match=r"updates of job 'names': there is no collect\(.*\): it has \['x'\]"):
            job.updates(name)
    job.wait()
