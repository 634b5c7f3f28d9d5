"""A changed program resumes from a snapshot of the earlier program: state is mapped by names or by functions of tables, and none is lost
silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd
from rayad.actors.replica.parts.part_reading import read_rest
from rayad.actors.saved_state.opened import open_snapshot
from tests.saved_state.jobs import begun, feed, last_of, saved_after
from tests.saved_state.test_reading import rows

Program = Callable[[rd.KeyedStream], rd.Stream]


def counting(name: str = "count") -> Program:
    return lambda keyed: keyed.count(name=name)


def totalling(keyed: rd.KeyedStream) -> rd.Stream:
    return keyed.stream.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(lambda pair: pair[1], name="total")


def counting_twice(keyed: rd.KeyedStream) -> rd.Stream:
    keyed.stream.key_by(len).count(name="lengths").collect("lengths")
    return keyed.count(name="count")


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_vertex_has_another_name(tmp_path: Path, replicas: int) -> None:
    path = saved_after(begun(tmp_path, counting(), parallelism=2), [["a", "b"], ["a"]])
    job = begun(tmp_path, counting("words seen"), parallelism=replicas, resume=path, map_state={"count": "words seen"})
    assert job.input("words").epoch == 2
    feed(job, [["a", "c"]])
    assert last_of(job) == {"a": 3, "b": 1, "c": 1}


def test_a_function_changes_state_and_waiting_batches_stay(tmp_path: Path) -> None:
    job = begun(tmp_path, counting(), parallelism=2)
    feed(job, [["a", "b"], ["a"]])
    job.input("words").send(["a", "d"])  # of an epoch that is not complete
    while job.step():
        pass
    path = job.savepoint()
    job.cancel()

    def without_b(table: pa.Table) -> pa.Table:
        table = table.filter(pc.not_equal(table["key"], "b"))
        return table.set_column(1, "count", pc.multiply(table["count"], 10))

    again = begun(tmp_path, counting(), parallelism=2, resume=path, map_state={"count": without_b})
    assert last_of(again) == {"a": 21, "b": 1, "d": 1}  # b was shown before
    assert rows(rd.read_state(str(tmp_path / "saved"), "count", trust=True)) == [("a", 21), ("d", 1)]


def test_a_function_converts_state_for_another_operator(tmp_path: Path) -> None:
    path = saved_after(begun(tmp_path, counting()), [["a", "b"], ["a"]])
    mapping = {"count": ("total", lambda table: table.rename_columns(["key", "sum"]))}
    job = begun(tmp_path, totalling, resume=path, map_state=mapping)
    feed(job, [["a"]])
    assert last_of(job) == {"a": 3, "b": 1}  # b was shown by the first program
    assert rows(rd.read_state(str(tmp_path / "saved"), "total", trust=True)) == [("a", 3), ("b", 1)]


def test_state_is_dropped_or_begun_empty_only_for_named_vertices(tmp_path: Path) -> None:
    two = saved_after(begun(tmp_path, counting_twice), [["a", "bb"], ["a"]])
    with pytest.raises(rd.SnapshotError) as caught:
        begun(tmp_path, counting(), resume=two)
    assert "To keep the rest of its state: resume=2, gone=['lengths']. Run the dataflow" in str(caught.value)
    with pytest.raises(rd.SnapshotError) as caught:
        begun(tmp_path, counting(), resume=two, map_state={"lengths": None})
    assert str(caught.value).endswith(
        "fit: sink 'lengths' is in the snapshot and not in the dataflow: its state would be lost. Say what becomes of these, too: "
        "map_state={'sink:lengths': None}"
    )
    job = begun(tmp_path, counting(), resume=two, map_state={"lengths": None, "sink:lengths": None})
    one = saved_after(job, [["a"]])
    with pytest.raises(rd.SnapshotError, match=r"resume=5, new=\['lengths'\]"):
        begun(tmp_path, counting_twice, resume=one)
    job = begun(tmp_path, counting_twice, resume=one, map_state={"lengths": {}, "sink:lengths": {}})
    feed(job, [["a", "bb"]])
    job.input("words").close()
    result = job.wait()
    assert [record for _, record in result["lengths"]][-2:] == [(1, 1), (2, 1)]
    assert ("a", 4) in [record for _, record in result["out"]]


def test_a_new_vertex_begins_with_the_state_of_a_table(tmp_path: Path) -> None:
    path = saved_after(begun(tmp_path, counting()), [["a", "bb"]])
    history = pa.table({"key": [1], "count": [10]})
    job = begun(tmp_path, counting_twice, resume=path, map_state={"lengths": history, "sink:lengths": {}})
    feed(job, [["a"]])
    job.input("words").close()
    assert [record for _, record in job.wait()["lengths"]] == [(1, 11)]


def test_a_new_source_begins_where_the_others_stand(tmp_path: Path) -> None:
    def program(keyed: rd.KeyedStream) -> rd.Stream:
        return keyed.stream.union(keyed.stream.flow.input("more")).key_by(lambda word: word).count(name="count")

    path = saved_after(begun(tmp_path, counting()), [["a"], ["a"]])
    job = begun(tmp_path, program, resume=path, map_state={"more": {}})
    assert job.input("more").epoch == 2
    job.input("more").send(["a"])
    job.input("more").close()
    assert last_of(job) == {"a": 3}


def going_round(name: str = "kept") -> Callable[[rd.KeyedStream], rd.Stream]:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        kept = inner.key_by(lambda pair: pair[0]).stateful_map(lambda state, value: (state + 1, value[1]), initial=0, name=name)
        return kept.filter(lambda pair: pair[1] > 0).map(lambda pair: (pair[0], pair[1] - 1)), kept.filter(lambda pair: pair[1] == 0)

    return lambda keyed: keyed.stream.map(lambda word: (word, 30)).iterate(body, name="loop")


def test_records_in_a_loop_continue_under_another_name_and_are_not_lost_with_a_vertex(tmp_path: Path) -> None:
    for seed in range(40):
        job = begun(tmp_path / str(seed), going_round(), seed=seed, parallelism=2)
        job.input("words").send(["a", "b", "c"])
        for _ in range(15):
            job.step()
        path = job.savepoint()
        job.cancel()
        store, manifest = open_snapshot(path)
        if any(read_rest(store, part)[kind] for part in manifest.parts for kind in ("log", "parked")):
            break
    else:
        pytest.fail("no seed cut a record on its way")
    with pytest.raises(
        rd.SnapshotError, match=r"records were on their way in snapshot 2 to or from vertices that are gone or others now: \d+ batches on"
    ):
        begun(tmp_path / str(seed), counting(), resume=path, map_state={"kept": None, "count": {}})
    again = begun(tmp_path / str(seed), going_round("counted"), resume=path, map_state={"kept": "counted"})
    assert last_of(again) == {"a": 0, "b": 0, "c": 0}
    assert rows(rd.read_state(str(tmp_path / str(seed) / "saved"), "counted", trust=True)) == [("a", 31), ("b", 31), ("c", 31)]


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({}, "map_state is {}: map_state is a dict from a name in the snapshot to its new name"),
        ({"counts": "count"}, r"map_state=\{'counts': 'count'\}: the snapshot has no vertex 'counts', it has \['count', 'words'\]"),
        ({"count": "counts"}, r"map_state=\{'count': 'counts'\}: the dataflow has no vertex 'counts', it has \['words', 'count'\]"),
        ({"count": None}, r"map_state=\{'count': None\}: 'count' is still in the dataflow; \{'count': \{\}\} makes it begin with no state"),
        ({"count": 3}, r"map_state=\{'count': 3\}: map_state is a dict"),
        ({"sink:out": None}, r"map_state=\{'sink:out': None\}: a sink of the snapshot \(\['out'\]\) is renamed"),
        ({"count": lambda table: table.select(["key"])}, r"what the function gave for 'count', state 'totals' has the columns \['key'\]"),
    ],
)
def test_an_invalid_mapping_is_refused(tmp_path: Path, mapping: Any, told: str) -> None:
    path = saved_after(begun(tmp_path, counting()), [["a"]])
    with pytest.raises(rd.DataflowError, match=told):
        begun(tmp_path, counting(), resume=path, map_state=mapping)
    assert rd.list_state(str(tmp_path / "saved")).number == 2


def test_the_snapshot_that_is_changed_has_to_be_named(tmp_path: Path) -> None:
    saved_after(begun(tmp_path, counting()), [["a"]])
    for resume in (None, "latest", "never"):
        with pytest.raises(rd.DataflowError, match=f"map_state= was given with resume={resume!r}: give the snapshot that is meant"):
            begun(tmp_path, counting("sum"), resume=resume, map_state={"count": "sum"})
    job = begun(tmp_path, counting("sum"), resume=2, map_state={"count": "sum"})
    assert last_of(job) == {"a": 1}


def test_committed_output_continues(tmp_path: Path) -> None:
    def program(name: str) -> Program:
        def made(keyed: rd.KeyedStream) -> rd.Stream:
            counts = keyed.count(name=name)
            counts.map(lambda pair: {"word": pair[0], "n": pair[1]}).write_parquet(str(tmp_path / "out"), name="files")
            return counts

        return made

    path = saved_after(begun(tmp_path, program("count")), [["a"]])
    later = begun(tmp_path, program("count"), resume=path)
    saved_after(later, [["lost"]])  # what the changed program goes back before
    job = begun(tmp_path, program("sum"), resume=path, map_state={"count": "sum"})
    feed(job, [["a", "b"]])
    job.input("words").close()
    job.wait()
    found = rd.read_committed(str(tmp_path / "out")).to_table().to_pylist()
    assert sorted((row["word"], row["n"]) for row in found) == [("a", 1), ("a", 2), ("b", 1)]


def test_a_new_sink_is_checked_and_those_that_have_committed_are_not(tmp_path: Path) -> None:
    def program(*sinks: str) -> Program:
        def made(keyed: rd.KeyedStream) -> rd.Stream:
            counts = keyed.count(name="count")
            for sink in sinks:
                counts.map(lambda pair: {"word": pair[0], "n": pair[1]}).write_parquet(str(tmp_path / sink), name=sink)
            return counts

        return made

    saved_after(begun(tmp_path, program("files")), [["a"]])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.parquet").touch()
    with pytest.raises(rd.ConfigError, match=r"sink 'taken' .*already holds"):
        begun(tmp_path, program("files", "taken"), resume="latest", new=["taken"])
    job = begun(tmp_path, program("files", "more"), resume="latest", new=["more"])
    feed(job, [["a", "b"]])
    job.input("words").close()
    job.wait()
    for sink, expected in (("files", [("a", 1), ("a", 2), ("b", 1)]), ("more", [("a", 2), ("b", 1)])):
        found = rd.read_committed(str(tmp_path / sink)).to_table().to_pylist()
        assert sorted((row["word"], row["n"]) for row in found) == expected
