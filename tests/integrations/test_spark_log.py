"""The log for Spark's file source, read by Spark's rules: after any step of any commit it lists the files of one manifest."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from pyarrow import fs

import rayad as rd
from rayad.integrations import ParquetSink
from rayad.integrations.file_output.committed import read_manifest
from rayad.integrations.file_output.manifests import OutputLog
from rayad.integrations.file_output.spark_log import KEPT_S, base_uri
from rayad.progress import ConfigError, DataflowError, Timestamp
from rayad.testing import check_sink
from tests.integrations.crashing_files import Crash
from tests.integrations.sparks_reader import has_log, interval_of, listed, names_listed, rows_listed
from tests.integrations.test_parquet_commits import STEPS, Coordinator, committed
from tests.thorough import examples

LOCAL = fs.LocalFileSystem()


def job_with_log(folder: Path, replicas: int = 1, **options: Any) -> Coordinator:
    return Coordinator(folder, replicas, spark_log=f"file://{folder}", **options)


def to_spark(folder: Path) -> list[int]:
    """The files that Spark sees, by the log."""
    return sorted(row["a"] for row in rows_listed(folder)) if has_log(folder) else []


def entries(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "_spark_metadata"), key=lambda name: int(name.removesuffix(".compact")))


def commits(job: Coordinator, count: int) -> None:
    for _ in range(count):
        job.write(0, 0, 1)
        job.snapshot()


@examples(each_run=10, soak=30)
@given(STEPS)
def test_after_any_crash_spark_sees_the_files_of_one_manifest(steps: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        job = job_with_log(folder / "out", 2)
        for step in [*steps, ("snapshot", None)]:
            if step[0] == "write":
                job.write(*step[1:])
                continue
            before = to_spark(job.path)
            job.files.left = step[-1]
            try:
                if step[0] == "snapshot":
                    job.snapshot()
                else:
                    job.go_on(sorted(job.store)[-1 - step[2] % len(job.store)], new_run=step[1])
            except Crash:
                job.files.left = None
                assert to_spark(job.path) in (before, job.model[job.last])
                job.last = max(n for n in job.store if n <= job.last)
                job.go_on(job.last, new_run=True)
            job.files.left = None
            job.check_committed()
            assert to_spark(job.path) == job.model[job.last]
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("number", [3, 9, 10], ids="commit {}".format)
@pytest.mark.parametrize("what", ["commits", "resumes from an older snapshot"])
def test_a_crash_at_each_step_shows_spark_the_old_output_or_the_new(tmp_path: Path, number: int, what: str) -> None:
    for at in range(100):
        job = job_with_log(tmp_path / f"{at}")
        commits(job, number - 1)
        before = to_spark(job.path)
        assert before == job.model[job.last]
        if what == "commits":
            job.write(0, 0, 1)
        job.files.left = at
        try:
            if what == "commits":
                job.snapshot()
            else:
                job.go_on(job.last - 2, new_run=True)
        except Crash:
            job.files.left = None
            assert to_spark(job.path) in (before, job.model[job.last])
            job.last = max(n for n in job.store if n <= job.last)
            job.go_on(job.last, new_run=True)
            assert to_spark(job.path) == committed(job.path) == job.model[job.last]
            continue
        break
    assert 4 <= at < 99


def test_entries_count_commits_from_nought_and_every_tenth_has_all(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "out")
    commits(job, 22)
    for _ in range(3):
        job.snapshot()  # with nothing in them
    names = entries(job.path)
    assert names == [f"{n}.compact" if n % 10 == 9 else str(n) for n in range(23)]
    assert interval_of(names) == 10
    assert (job.path / "_spark_metadata" / "0").read_text() == "v1"
    assert len((job.path / "_spark_metadata" / "19.compact").read_text().splitlines()) == 1 + 19
    assert len((job.path / "_spark_metadata" / "20").read_text().splitlines()) == 1 + 1
    assert to_spark(job.path) == list(range(22))


def test_files_come_in_the_order_of_their_commits_though_the_clock_stands_still(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("rayad.integrations.file_output.sink.clock.time", lambda: 1_000_000.0)
    job = job_with_log(tmp_path / "out", partition_by_epoch=True)
    for epoch in (3, 1, 2):
        job.write(0, epoch, 1)
        job.snapshot()
    assert [name.split("/")[0] for name in names_listed(job.path)] == ["epoch=3", "epoch=1", "epoch=2"]
    times = [file["modificationTime"] for file in listed(job.path)]
    assert times == [1_000_000_000, 1_000_000_001, 1_000_000_002]


def test_times_of_files_stay_when_they_are_listed_again(tmp_path: Path) -> None:
    """Spark forgets the names of old files, and would read a file again that is listed with a later time."""
    job = job_with_log(tmp_path / "out")
    commits(job, 9)
    before = {file["path"]: file for file in listed(job.path)}
    job.go_on(job.last, new_run=True)
    commits(job, 3)
    after = {file["path"]: file for file in listed(job.path)}
    assert {path: after[path] for path in before} == before


def test_a_commit_that_failed_in_the_log_is_finished_when_it_is_repeated(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "out")
    commits(job, 2)
    job.write(0, 0, 1)
    folder = job.path / "_spark_metadata"
    os.rename(folder, tmp_path / "aside")
    folder.write_text("not a folder")
    with pytest.raises(OSError, match="_spark_metadata"):
        job.snapshot()
    folder.unlink()
    os.rename(tmp_path / "aside", folder)
    assert to_spark(job.path) == [0, 1]
    job.current.commit(job.last, job.store[job.last])  # the same instance, the same values
    assert to_spark(job.path) == committed(job.path) == [0, 1, 2]


def test_output_that_is_taken_back_leaves_the_log_in_one_step(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "out")
    commits(job, 4)
    job.go_on(3, new_run=False)
    assert entries(job.path) == ["0", "1", "2", "3", "4", "9.compact"]
    assert to_spark(job.path) == [0, 1]
    commits(job, 1)
    assert entries(job.path)[-1] == "10"
    assert to_spark(job.path) == committed(job.path)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("old", ["a folder", "an output without a log", "an output with a log", "a Spark query"])
def test_another_output_in_the_same_folder(tmp_path: Path, mode: str, old: str) -> None:
    out = tmp_path / "out"
    if old == "a folder":
        pads.write_dataset(pa.table({"a": [-1]}), out, format="parquet")
        (out / "_SUCCESS").write_text("")
        (out / "notes.txt").write_text("not for Spark")
    elif old == "a Spark query":
        write_as_spark(out, 13)
    else:
        first = ParquetSink(out, spark_log=old == "an output with a log")
        writer = first.open(0, 1)
        writer.write(Timestamp(0), [{"a": -1}])
        first.result(first.publish([writer.stage()]))
    if (mode, old) == ("append", "a Spark query"):
        with pytest.raises(ConfigError, match=r"is the log of a Spark query that writes to .*; write to another directory, or give"):
            ParquetSink(out, mode="append", spark_log=True).check()
        return
    job = job_with_log(out, mode=mode)
    commits(job, 3)
    assert to_spark(out) == [*([-1] if mode == "append" else []), 0, 1, 2]
    commits(job, 20)
    assert to_spark(out) == [*([-1] if mode == "append" else []), *range(23)]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_output_with_a_log_keeps_it_whoever_writes(tmp_path: Path, mode: str) -> None:
    job = job_with_log(tmp_path / "out")
    commits(job, 3)
    other = Coordinator(tmp_path / "out", 1, mode=mode)
    other.next_record = 100
    commits(other, 2)
    assert to_spark(job.path) == [*([0, 1, 2] if mode == "append" else []), 100, 101]


def test_overwriting_what_a_spark_query_wrote_removes_its_log(tmp_path: Path) -> None:
    write_as_spark(tmp_path / "out", 13)
    commits(Coordinator(tmp_path / "out", 1, mode="overwrite"), 1)
    assert not has_log(tmp_path / "out")
    assert committed(tmp_path / "out") == [0]


def test_a_folder_in_which_a_spark_query_has_begun_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "out" / "_spark_metadata" / "0").write_text("v1")
    with pytest.raises(ConfigError, match="is the log of a Spark query that writes to"):
        ParquetSink(tmp_path / "out").check()


def test_entries_of_another_writer_are_noticed(tmp_path: Path) -> None:
    job = job_with_log(tmp_path / "out")
    commits(job, 2)
    (job.path / "_spark_metadata" / "3").write_text("v1")
    with pytest.raises(ConfigError, match=r"has entry 3, the output's own are those below 3: another program writes there too"):
        job.go_on(job.last, new_run=True)


def test_a_writer_that_opens_while_somebody_commits_is_not_refused(tmp_path: Path, monkeypatch: Any) -> None:
    job = job_with_log(tmp_path / "out")
    commits(job, 2)
    job.write(0, 0, 1)
    copy = job.sink()
    copy.job = job.current.job

    def read_and_commit(log: OutputLog) -> Any:
        monkeypatch.undo()
        found = log.read()
        job.snapshot()
        return found

    monkeypatch.setattr(OutputLog, "read", read_and_commit)
    copy.open(1, 2)
    assert to_spark(job.path) == [0, 1, 2]


def write_as_spark(out: Path, entries: int, every: int = 5) -> None:
    """A folder as a Spark query leaves it, its log compacted at other intervals than ours."""
    out.mkdir()
    (out / "_spark_metadata").mkdir()
    lines: list[str] = []
    for entry in range(entries):
        path = out / f"part-{entry}.snappy.parquet"
        pq.write_table(pa.table({"a": [-entry]}), path)
        line = {"path": path.as_uri(), "size": path.stat().st_size, "isDir": False, "modificationTime": entry}
        lines.append(json.dumps({**line, "blockReplication": 1, "blockSize": 33554432, "action": "add"}))
        compact = (entry + 1) % every == 0
        name = f"{entry}.compact" if compact else str(entry)
        (out / "_spark_metadata" / name).write_text("\n".join(["v1", *(lines if compact else lines[-1:])]))


def test_old_entries_are_deleted_once_they_are_not_read_any_more(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("rayad.integrations.file_output.spark_log.KEPT_ENTRIES", 20)
    job = job_with_log(tmp_path / "out")
    commits(job, 40)
    assert len(entries(job.path)) == 41  # somebody may just be reading them
    now_s = os.stat(job.path / "_SUCCESS").st_mtime + KEPT_S + 1
    monkeypatch.setattr("rayad.integrations.file_output.sink.clock.time", lambda: now_s)
    commits(job, 9)
    assert entries(job.path)[0] == "29.compact"
    assert to_spark(job.path) == list(range(49))


def test_columns_are_written_in_types_that_spark_has(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out", spark_log=True)
    writer = sink.open(0, 1)
    rows = pa.record_batch({"at": pa.array([1_000_000], pa.timestamp("ns")), "n": pa.array([1], pa.uint32())})
    writer.write(Timestamp(0), rows)
    sink.commit(1, [writer.stage()])
    (name,) = names_listed(tmp_path / "out")
    assert pq.read_schema(tmp_path / "out" / name) == pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])
    writer = ParquetSink(tmp_path / "other", spark_log=True).open(0, 1)
    writer.write(Timestamp(0), pa.record_batch({"at": pa.array([1], pa.time64("us"))}))
    with pytest.raises(DataflowError, match=r"^write_parquet: column 'at' is of type time64\[us\], for which Spark 3.5 has none; cast it"):
        writer.stage()


@pytest.mark.parametrize("wrong", ["out", 1, None])
def test_spark_log_is_a_flag_or_a_uri(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"spark_log is .*: it must be True, False, or the URI under which Spark knows the directory"):
        ParquetSink(tmp_path / "out", spark_log=wrong)


def test_a_file_system_that_spark_may_know_by_another_name_needs_a_uri(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Spark's URI of .* on the 'subtree' file system is not known; give it, as"):
        ParquetSink("out", filesystem=fs.SubTreeFileSystem(str(tmp_path), LOCAL), spark_log=True)


def test_names_are_encoded_as_in_a_uri(tmp_path: Path) -> None:
    out = tmp_path / "50% of it, ä"
    job = job_with_log(out, partition_by_epoch=True)
    commits(job, 2)
    assert to_spark(out) == [0, 1]
    assert base_uri(LOCAL, str(out)) == out.as_uri().replace(",", "%2C")


def test_a_sink_with_a_log_keeps_the_contract(tmp_path: Path) -> None:
    places = itertools.count()

    def rows(sink: rd.Sink) -> list[Any]:
        assert isinstance(sink, ParquetSink)
        folder = Path(sink.path)
        shown = rows_listed(folder) if has_log(folder) else []
        manifest = read_manifest(sink.filesystem, sink.path) if folder.is_dir() else None
        assert sorted(file.name for file in (manifest.files if manifest else ())) == (sorted(names_listed(folder)) if shown else [])
        return shown

    check_sink(lambda: ParquetSink(str(tmp_path / str(next(places))), spark_log=True), rows, histories=6)
