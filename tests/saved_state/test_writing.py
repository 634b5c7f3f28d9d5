"""A savepoint made from tables: a job resumes from it as if it had computed that state itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.saved_state.jobs import begun, feed, flow_of, last_of, saved_after
from tests.saved_state.test_reading import Plain, rows


def counting(keyed: rd.KeyedStream) -> rd.Stream:
    return keyed.count(name="count")


def config(folder: Path, **options: Any) -> rd.RunConfig:
    return rd.RunConfig(storage_path=str(folder), **options)


HISTORY = pa.table({"key": ["a", "b"], "count": [100, 200]})


@pytest.mark.parametrize(("written", "resumed"), [(1, 1), (1, 3), (3, 2)])
def test_a_job_resumes_from_a_table_with_any_replicas(tmp_path: Path, written: int, resumed: int) -> None:
    path = rd.write_state(flow_of(counting), {"count": HISTORY}, config(tmp_path), parallelism=written)
    assert rows(rd.read_state(path, "count", trust=True)) == [("a", 100), ("b", 200)]
    job = begun(tmp_path, counting, resume=path, parallelism={"count": resumed})
    feed(job, [["a", "c"], ["b"]])
    again = job.savepoint()
    assert last_of(job) == {"a": 101, "b": 201, "c": 1}
    assert rows(rd.read_state(again, "count", trust=True)) == [("a", 101), ("b", 201), ("c", 1)]


def test_a_table_that_was_read_is_written_for_another_job_of_the_same_program(tmp_path: Path) -> None:
    def program(keyed: rd.KeyedStream) -> rd.Stream:
        return keyed.aggregate({"n": "count", "long": ("mean", len)}, name="figures").map(lambda pair: (pair[0], tuple(pair[1].values())))

    path = saved_after(begun(tmp_path / "old", program), [["aa", "b"], ["aa"]])
    table = rd.read_state(path, "figures", trust=True)
    assert table.sort_by("key").to_pylist()[0] == {"key": "aa", "n": 2, "long_sum": 4, "long_count": 2}
    new = rd.write_state(flow_of(program), {"figures": table}, config(tmp_path / "new"))
    job = begun(tmp_path / "new", program, resume=new)
    feed(job, [["aa", "b"]])
    assert last_of(job) == {"aa": (3, 2.0), "b": (2, 1.0)}


def test_open_windows_of_the_history_fire(tmp_path: Path) -> None:
    def program(keyed: rd.KeyedStream) -> rd.Stream:
        timed = keyed.stream.assign_timestamps(len).key_by(lambda word: word[0])
        return timed.window(rd.windows.tumbling(3)).count(name="windows").map(lambda row: ((row[0], row[1].start), row[2]))

    history = pa.table({"key": ["a", "b"], "window_start": [3, 3], "window_end": [6, 6], "count": [7, 1]})
    path = rd.write_state(flow_of(program), {"windows": history}, config(tmp_path))
    job = begun(tmp_path, program, resume=path)
    feed(job, [["aaaa", "cc"], ["a" * 9]])
    assert last_of(job) == {("a", 3): 8, ("b", 3): 1, ("c", 0): 1, ("a", 9): 1}


def test_sources_begin_at_the_epoch_that_is_given(tmp_path: Path) -> None:
    def program(epochs: list[list[str]]) -> rd.Dataflow:
        flow = rd.Dataflow("later")
        flow.from_epochs(epochs, name="lines").key_by(lambda word: word).count(name="count").collect("out")
        return flow

    flow = program([[], [], ["a"], ["b", "c"]])
    path = rd.write_state(flow, {"count": HISTORY}, config(tmp_path), epoch=2)
    result = flow.run(config(tmp_path), runtime="local", resume=path)
    assert sorted((time.epoch, record) for time, record in result["out"]) == [(2, ("a", 101)), (3, ("b", 201)), (3, ("c", 1))]
    early = program([["x"], [], ["a"]])
    path = rd.write_state(early, {"count": HISTORY}, config(tmp_path, name="early"), epoch=2)
    with pytest.raises(rd.DataflowError, match=r"source 'lines' .* gave epoch 0 after epoch 2: input time may not go back"):
        early.run(config(tmp_path, name="early"), runtime="local", resume=path)
    live = rd.write_state(flow_of(counting), {"count": HISTORY}, config(tmp_path), epoch=5)
    job = begun(tmp_path, counting, resume=live)
    assert job.input("words").epoch == 5


def test_output_that_is_committed_with_snapshots_begins_with_the_job(tmp_path: Path) -> None:
    def program() -> rd.Dataflow:
        flow = rd.Dataflow("committed")
        counts = flow.from_items(["a", "c"], name="lines").key_by(lambda word: word).count(name="count")
        counts.map(lambda pair: {"word": pair[0], "n": pair[1]}).write_parquet(str(tmp_path / "out"))
        return flow

    path = rd.write_state(program(), {"count": HISTORY}, config(tmp_path))
    program().run(config(tmp_path), runtime="local", resume=path)
    found = rd.read_committed(str(tmp_path / "out")).to_table().sort_by("word").to_pylist()
    assert found == [{"word": "a", "n": 101}, {"word": "c", "n": 1}]


def joining(keyed: rd.KeyedStream) -> rd.Stream:
    return keyed.join(keyed.stream.map(str.upper).key_by(str.lower), name="both")


@pytest.mark.parametrize(
    ("program", "tables", "told"),
    [
        (counting, {"counts": HISTORY}, r"write_state: 'counts': 'saved' has no vertex of that name with state: it has \['count'\]"),
        (
            counting,
            {"count": HISTORY.rename_columns(["word", "n"])},
            r"a table for write_state: 'count', state 'totals' has the columns \['word', 'n'\]: it needs \['key', 'count'\] \(a key of "
            r"several parts as key0, key1 \.\.\.\), lacks \['key', 'count'\], has \['word', 'n'\] besides; table.select",
        ),
        (
            counting,
            {"count": pa.concat_tables([HISTORY, HISTORY])},
            "a table of state has 4 rows and 2 keys, the key 'a' twice: one row for each key",
        ),
        (counting, {"count": {"pending": HISTORY}}, "state 'pending' is what waits for its time: it can be read, not written"),
        (counting, {"count": "a.parquet"}, "write_state: 'count' was given 'a.parquet': give a pyarrow.Table"),
        (counting, {}, "write_state was given {}: give a dict from a vertex' name to its table"),
        (joining, {"both": HISTORY}, r"write_state: 'both' has the states \['left', 'right'\]: say which, with state='left'"),
        (
            lambda keyed: keyed.stream.flow.vertex(Plain, inputs=[keyed], name="plain"),
            {"plain": HISTORY},
            "'plain' is a Plain without keyed state: only that can be written from a table",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    tmp_path: Path, program: Callable[[rd.KeyedStream], Any], tables: dict[str, Any], told: str
) -> None:
    with pytest.raises(rd.DataflowError, match=told):
        rd.write_state(flow_of(program), tables, config(tmp_path))
    assert not list(tmp_path.glob("**/manifest.json"))


def test_a_job_that_has_snapshots_is_left_alone(tmp_path: Path) -> None:
    saved_after(begun(tmp_path, counting), [["a"]])
    with pytest.raises(rd.SnapshotError, match=r"has snapshots \[1, 2\] of this job already: give another RunConfig\(name=\.\.\.\)"):
        rd.write_state(flow_of(counting), {"count": HISTORY}, config(tmp_path))
