"""collect(latest=True): one record of each key, whatever happens to the job."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.last_values import CollectLatest, LastValues, key_of
from rayad.snapshots.attempts import MERGE_AT
from rayad.snapshots.store import SnapshotStore
from tests.thorough import examples


def words(epochs: list[str], latest: bool = True) -> rd.Dataflow:
    flow = rd.Dataflow("words")
    flow.from_epochs([[text] for text in epochs]).flat_map(str.split).key_by(str).count().collect("counts", latest=latest)
    return flow


def test_running_totals_leave_one_record_of_each_key_with_the_time_of_its_last_update() -> None:
    result = words(["a b a", "a", "c a"]).run(runtime="local", seed=3, parallelism=2)
    assert sorted(result["counts"]) == [(rd.Timestamp(0), ("b", 1)), (rd.Timestamp(2), ("a", 4)), (rd.Timestamp(2), ("c", 1))]


def test_columns_stay_columns_of_their_types() -> None:
    flow = rd.Dataflow("columns")
    events = flow.from_arrow(pa.table({"k": ["a", "b", "a"], "e": [1, 2, 3], "v": pa.array([1, 2, 3], pa.int32())}), epoch="e")
    events.key_by("k").max("v").collect("max", latest=True)
    events.key_by("k").max("v").collect("table", latest=True, columnar=True)
    result = flow.run(runtime="local")
    table = result["max"].to_arrow(epoch_column="epoch")
    assert table.to_pydict() == {"k": ["b", "a"], "max(v)": [2, 3], "epoch": [2, 3]}
    assert table.schema.field("max(v)").type == pa.int32()
    assert result["table"].to_pydict() == {"k": ["b", "a"], "max(v)": [2, 3]}


def test_of_windows_the_last_of_each_key_and_window_is_kept() -> None:
    flow = rd.Dataflow("windows")
    events = flow.from_epochs([[("a", 1)], [("a", 2)], [("a", 12)]]).assign_timestamps(lambda r: r[1])
    events.key_by(lambda r: r[0]).window(rd.windows.tumbling(10), early=True).count().collect("seen", latest=True)
    seen = {record[:2]: record[2] for _, record in flow.run(runtime="local")["seen"]}
    assert seen == {("a", rd.Window(0, 10)): 2, ("a", rd.Window(10, 20)): 1}


def test_streams_without_keys_are_refused_when_the_program_is_written_or_at_the_first_record() -> None:
    flow = rd.Dataflow("no keys")
    with pytest.raises(rd.DataflowError, match=r"collect\(latest=True\) at .*: the records have columns \['a', 'b'\] and no key"):
        flow.from_arrow(pa.table({"a": [1], "b": [2]})).collect("x", latest=True)
    flow.from_items([1, 2]).collect("x", latest=True)
    with pytest.raises(rd.DataflowError, match="was given the record 1, which has no key"):
        flow.run(runtime="local")
    flow = rd.Dataflow("no hash")
    flow.from_items([([], 2)]).collect("x", latest=True)
    with pytest.raises(rd.DataflowError, match=r"the key \[\] of \(\[\], 2\) cannot be compared"):
        flow.run(runtime="local")
    with pytest.raises(rd.DataflowError, match="collect: latest is 5"):
        flow.from_items([("a", 2)]).collect("y", latest=5)  # type: ignore[arg-type]


@examples(each_run=40, soak=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers()), max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_however_updates_are_staged_and_condensed_the_last_of_each_key_stays(updates: list[Any], cuts: list[int]) -> None:
    updates = sorted(updates, key=lambda update: update[0])
    expected = {key: (rd.Timestamp(epoch), (key, value)) for epoch, key, value in updates}
    sink, staged = CollectLatest(), []
    writer = sink.open(0, 1)
    for at, (epoch, key, value) in enumerate(updates):
        writer.write(rd.Timestamp(epoch), [(key, value)])
        if at in cuts:
            staged.append(writer.stage())
        if at % 7 == 6 and staged:
            staged = pickle.loads(pickle.dumps(list(sink.condense(staged))))
            assert len(staged) == 1
    found = sink.result(sink.publish([*staged, writer.stage()]))
    assert sorted(found, key=repr) == sorted(expected.values(), key=repr)


def test_an_older_time_never_replaces_a_newer_one() -> None:
    kept = LastValues()
    kept.add(rd.Timestamp(3), [("a", "new")])
    kept.add(rd.Timestamp(1), [("a", "old")])
    assert kept.of_key == {"a": (rd.Timestamp(3), ("a", "new"))}
    assert key_of(("a", 1, 2)) == "a"


def test_what_snapshots_stage_is_condensed_and_a_job_that_fails_gives_the_same(tmp_path: Path) -> None:
    """However many snapshots there were, few files wait for the end, and each holds a key once."""
    flow = rd.Dataflow("words")
    flow.input("words").key_by(str).count().collect("counts", latest=True)
    failures = rd.FailureConfig(max_failures=5, survive_errors=False)
    run = rd.RunConfig(storage_path=str(tmp_path), failures=failures, snapshots=rd.SnapshotConfig(interval_s=None, keep=1))
    job = flow.submit(run, runtime="local", seed=5, parallelism=2)
    words, path = job.input("words"), ""
    for epoch in range(2 * MERGE_AT):
        words.send(["a", "b", f"k{epoch % 3}"])
        words.advance_to(epoch + 1)
        if epoch in (5, 20):
            job.crash()
        path = job.savepoint()
    staged = SnapshotStore(str(tmp_path / "words" / "snapshots"), jobs=["words"]).load(int(Path(path).name)).staged
    assert 0 < len(staged) < 2 * MERGE_AT, "of up to two replicas at each snapshot"
    assert all(part.count == 1 for part in staged), "one value for each file: a record for each key"
    words.close()
    last = 2 * MERGE_AT - 1
    found = {key: (time.epoch, value) for time, (key, value) in job.wait()["counts"]}
    assert found == {
        "a": (last, last + 1),
        "b": (last, last + 1),
        **{f"k{(last - back) % 3}": (last - back, (last - back) // 3 + 1) for back in range(3)},
    }
