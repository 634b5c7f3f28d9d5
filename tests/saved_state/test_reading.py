"""The keyed state of a snapshot is read as a table, or an error gives the reason why it cannot be read."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import rayad as rd
from rayad.cli import main
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from tests.saved_state.jobs import begun, saved_after


class Streaks(KeyedVertex):
    """A user's vertex: the sum of the values of each key."""

    def __init__(self) -> None:
        self.streak = KeyedDict()

    def on_recv(self, edge: int, batch: list[Any], time: rd.Timestamp) -> None:
        for key, value in batch:
            self.streak.kept[key] = self.streak.kept.get(key, 0) + value
        self.streak.note([key for key, _ in batch], len(self.streak.kept))


class Plain(rd.Vertex):
    """A vertex without keyed state."""

    def on_recv(self, edge: int, batch: list[Any], time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("replicas", [1, 3])
def test_totals_of_all_replicas_are_one_table(tmp_path: Path, replicas: int) -> None:
    job = begun(tmp_path, lambda keyed: keyed.count(name="count"), parallelism=replicas)
    path = saved_after(job, [["a", "b", "a"], ["a", "c"]])
    table = rd.read_state(path, "count", trust=True)
    assert table.schema.names == ["key", "count"]
    assert rows(table) == [("a", 3), ("b", 1), ("c", 1)]
    assert rows(rd.read_state(str(tmp_path / "saved"), "count", trust=True)) == rows(table)  # the newest of the job


def test_rows_and_columns_keep_the_same_table(tmp_path: Path) -> None:
    tables = []
    for columnar in (True, False):
        flow = rd.Dataflow("forms")
        data = pa.table({"city": ["a", "b", "a"], "n": [1, 2, 4]})
        stream = flow.from_arrow(data) if columnar else flow.from_items(data.to_pylist())
        keyed = stream.key_by("city")
        keyed.aggregate({"low": ("min", "n"), "all": ("mean", "n"), "spread": ("std", "n")}, name="figures").collect("out")
        flow.run(rd.RunConfig(name=f"forms{columnar}", storage_path=str(tmp_path)), runtime="local")
        tables.append(rd.read_state(str(tmp_path / f"forms{columnar}"), "figures", trust=True))
    assert [table.schema.names for table in tables] == [["key", "low", "all_sum", "all_count", "spread"]] * 2
    first, second = (rows(table.drop_columns("spread")) for table in tables)
    assert first == second == [("a", 1, 5, 2), ("b", 2, 2, 1)]


def test_windows_have_their_bounds_and_both_sides_of_a_join_a_table(tmp_path: Path) -> None:
    def program(keyed: rd.KeyedStream) -> rd.Stream:
        timed = keyed.stream.map(lambda word: (word, len(word))).assign_timestamps(lambda pair: pair[1])
        windows = timed.key_by(lambda pair: pair[0]).window(rd.windows.tumbling(10)).count(name="windows")
        other = keyed.stream.map(lambda word: (word, "right")).key_by(lambda pair: pair[0])
        joined = timed.key_by(lambda pair: pair[0]).join(other, name="both")
        joined.collect("joined")
        return windows

    path = saved_after(begun(tmp_path, program), [["aa", "b", "aa"], ["b"]])
    assert rows(rd.read_state(path, "windows", trust=True)) == [("aa", 0, 10, 2), ("b", 0, 10, 2)]
    with pytest.raises(
        rd.DataflowError, match=r"vertex 'both' of snapshot 2 in .* has the states \['left', 'right'\]: say which, with state='left'"
    ):
        rd.read_state(path, "both", trust=True)
    right = rd.read_state(path, "both", state="right", trust=True)
    assert right.schema.names == ["key", "epoch", "value"]
    assert [row["value"] for row in right.slice(0, 1).to_pylist()] == [{"0": "aa", "1": "right"}]


def test_batches_that_wait_for_their_time_can_be_read(tmp_path: Path) -> None:
    job = begun(tmp_path, lambda keyed: keyed.count(name="count"))
    words = job.input("words")
    words.send(["a", "a"])
    while job.step():
        pass
    path = job.savepoint()
    job.cancel()
    assert rd.read_state(path, "count", trust=True).num_rows == 0
    assert rd.read_state(path, "count", state="pending", trust=True).to_pylist() == [{"key": "a", "epoch": 0, "input": 0, "value": 2}]
    with pytest.raises(rd.DataflowError, match=r"has no state 'total': it has \['pending', 'totals'\]"):
        rd.read_state(path, "count", state="total", trust=True)


def test_a_vertex_of_the_user_is_read_like_ours(tmp_path: Path) -> None:
    job = begun(tmp_path, lambda keyed: keyed.stream.flow.vertex(Streaks, inputs=[pairs(keyed)], name="streaks"))
    assert rows(rd.read_state(saved_after(job, [["a", "b"], ["a"]]), "streaks", trust=True)) == [("a", 2), ("b", 1)]


def pairs(keyed: rd.KeyedStream) -> rd.KeyedStream:
    return keyed.stream.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])


def test_a_list_names_the_vertices_and_what_they_keep(tmp_path: Path) -> None:
    path = saved_after(begun(tmp_path, lambda keyed: keyed.count(name="count"), parallelism=2), [["a", "b", "a"], ["a", "c"]])
    found = rd.list_state(path)
    assert (found.number, found.kind, found.job, found.key_groups) == (2, "savepoint", "saved", 256)
    by_name = {one.vertex: one for one in found.vertices}
    assert (by_name["words"].kind, by_name["words"].epoch, by_name["words"].operator) == ("input", 2, "")
    count = by_name["count"]
    assert (count.kind, count.replicas, count.epoch) == ("vertex", 2, None)
    assert count.operator.startswith("Totals(aggregator=Count")
    assert 0 < count.size_bytes < 10_000


def test_state_that_cannot_be_read_gives_the_reason(tmp_path: Path) -> None:
    job = begun(tmp_path, lambda keyed: keyed.stream.flow.vertex(Plain, inputs=[keyed], name="plain"))
    path = saved_after(job, [["a"]])
    folder = str(tmp_path / "saved" / "snapshots")
    with pytest.raises(rd.DataflowError, match=rf"snapshot 2 in '{folder}' has no vertex 'count': it has \['plain', 'words'\]"):
        rd.read_state(path, "count", trust=True)
    with pytest.raises(rd.DataflowError, match=r"vertex 'plain' of snapshot 2 in .* is a Plain and has no keyed state"):
        rd.read_state(path, "plain", trust=True)
    with pytest.raises(rd.DataflowError, match=r"vertex 'words' of snapshot 2 in .* has no keyed state"):
        rd.read_state(path, "words", trust=True)
    with pytest.raises(rd.SnapshotError, match=r"snapshot 1 in .* is the beginning of a run and has no state: give a later one"):
        rd.read_state(f"{folder}/000000000001", "plain", trust=True)
    with pytest.raises(rd.SnapshotError, match=r"there is no snapshot 7 in .*, there are \[1, 2\]: give <storage_path>/<job name>"):
        rd.read_state(f"{folder}/000000000007", "plain", trust=True)
    (tmp_path / "saved" / "snapshots" / "000000000003").mkdir()
    with pytest.raises(rd.SnapshotError, match=r"000000000003' has no manifest: that snapshot was given up, or is still being written"):
        rd.read_state(f"{folder}/000000000003", "plain", trust=True)
    with pytest.raises(rd.SnapshotError, match=f"there is no snapshot in '{tmp_path}/other': give <storage_path>/<job name>"):
        rd.read_state(str(tmp_path / "other"), "plain", trust=True)


def test_a_void_snapshot_is_refused(tmp_path: Path) -> None:
    first = saved_after(begun(tmp_path, lambda keyed: keyed.count(name="count")), [["a"]])
    second = saved_after(begun(tmp_path, lambda keyed: keyed.count(name="count"), resume=first), [["b"]])
    again = begun(tmp_path, lambda keyed: keyed.count(name="count"), resume=first)
    again.cancel()
    assert rows(rd.read_state(first, "count", trust=True)) == [("a", 1)]
    with pytest.raises(rd.SnapshotError, match=r"snapshot 4 in .* is void: the job resumed from an older one, and snapshot 5 says so"):
        rd.read_state(second, "count", trust=True)


def test_a_damaged_or_locked_snapshot_is_refused(tmp_path: Path) -> None:
    path = saved_after(begun(tmp_path, lambda keyed: keyed.count(name="count"), secret=b"a" * 32), [["a"]])
    with pytest.raises(rd.SnapshotError, match="is signed: give the secret"):
        rd.read_state(path, "count", trust=True)
    assert rows(rd.read_state(path, "count", secret=b"a" * 32)) == [("a", 1)]


MODULE = """
import rayad as rd

class Longest(rd.Aggregator):
    def create(self, value):
        return value
    def merge(self, left, right):
        return max(left, right, key=len)

def build():
    flow = rd.Dataflow("own")
    words = flow.from_items(["to", "be", "or", "not"], name="words")
    words.key_by(lambda word: word[0]).aggregate(Longest(), name="longest").collect("out")
    return flow
"""


def test_a_missing_module_of_the_program_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "longest_words.py").write_text(MODULE)
    with monkeypatch.context() as there:
        there.syspath_prepend(tmp_path)
        importlib.import_module("longest_words").build().run(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    del sys.modules["longest_words"]
    with pytest.raises(rd.SnapshotError) as caught:
        rd.read_state(str(tmp_path / "own"), "longest", trust=True)
    folder = tmp_path / "own" / "snapshots"
    assert str(caught.value) == (
        f"vertex 'longest' of snapshot 2 in '{folder}' needs the module 'longest_words' of the program, which cannot be imported here: "
        "put its folder on sys.path, on the command line with --path FOLDER"
    )
    before = list(sys.path)
    try:
        result = CliRunner().invoke(main, ["state", str(tmp_path / "own"), "longest", "--path", str(tmp_path), "--trust", "--json"])
    finally:
        sys.path[:] = before
        sys.modules.pop("longest_words", None)
    assert result.exit_code == 0, result.output
    assert sorted(map(json.loads, result.output.splitlines()), key=str)[0] == {"key": "b", "value": "be"}


def test_a_snapshot_that_does_not_say_how_a_vertex_is_made_needs_the_program(tmp_path: Path) -> None:
    large = "x" * 100_000
    flow = rd.Dataflow("large")
    flow.from_items(["a"], name="words").key_by(lambda w: w).reduce(lambda a, b: a + b + large, name="reduced").collect("out")
    flow.run(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    with pytest.raises(
        rd.SnapshotError, match=r"is a Totals of which the snapshot does not have how it is made .*: give the program, flow=\.\.\."
    ):
        rd.read_state(str(tmp_path / "large"), "reduced", trust=True)
    assert rd.read_state(str(tmp_path / "large"), "reduced", flow=flow, trust=True).to_pylist() == [{"key": "a", "value": "a"}]
    other = rd.Dataflow("large")
    other.from_items(["a"]).key_by(lambda w: w).max(name="reduced").collect("out")
    with pytest.raises(rd.SnapshotError, match=r"keeps Totals\(aggregator=Reduce\) version 2, in the program it is Totals\(aggregator=Max"):
        rd.read_state(str(tmp_path / "large"), "reduced", flow=other, trust=True)


def test_the_command_prints_lists_and_tables_and_writes_files(tmp_path: Path) -> None:
    path = saved_after(begun(tmp_path, lambda keyed: keyed.count(name="count")), [["a", "b", "a"]])
    listed = CliRunner().invoke(main, ["state", path], env={"COLUMNS": "200"})
    assert listed.exit_code == 0, listed.output
    assert "snapshot 2 (savepoint) of job 'saved', 256 key-groups" in listed.output
    assert "Totals(aggregator=Count" in listed.output
    shown = CliRunner().invoke(main, ["state", path, "count", "--rows", "1", "--trust"])
    assert shown.output.endswith("1 of 2 rows\n")
    for kind, read in (("parquet", pq.read_table), ("csv", None), ("arrow", None)):
        file = tmp_path / f"count.{kind}"
        written = CliRunner().invoke(main, ["state", path, "count", "--out", str(file), "--trust"])
        assert (written.exit_code, written.output) == (0, f"2 rows in {file}\n")
        if read is not None:
            assert rows(read(file)) == [("a", 2), ("b", 1)]
    wrong = CliRunner().invoke(main, ["state", path, "count", "--out", str(tmp_path / "count.xls"), "--trust"])
    assert "the name determines the format, and must end in .parquet, .arrow or .csv" in wrong.output
    missing = CliRunner().invoke(main, ["state", path, "sum"])
    assert missing.exit_code == 1
    assert "has no vertex 'sum': it has ['count', 'words']" in missing.output


def test_reading_starts_no_ray(tmp_path: Path) -> None:
    path = saved_after(begun(tmp_path, lambda keyed: keyed.count(name="count")), [["a"]])
    read = f"rd.read_state({path!r}, 'count', trust=True)"
    code = f"import sys, rayad as rd; {read}; print(sorted(m for m in ('ray', 'pyspark') if m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
