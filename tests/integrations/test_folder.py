"""Files that appear in a folder: each is read once, completely, in an epoch of its own, also if the job crashes meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time as clock
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import rayad as rd
from rayad.actors.job import JobState
from rayad.integrations.folder import FORGET_S, FolderSource, Listing
from rayad.progress import ConfigError, DataflowError
from rayad.testing import check_source
from tests.integrations.object_store import serving
from tests.patience import PATIENCE_S


class Watched(FolderSource):
    """Lists its folder continuously, and counts the listings."""

    looks = 0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **{"every_s": 1e-6, **more})

    def look(self) -> Listing:
        listing = super().look()
        self.looks += 1
        return listing


def rows(batch: Any) -> list[Any]:
    return batch if isinstance(batch, list) else batch.to_pylist()


def read(source: Watched, part: Any) -> list[tuple[int, list[Any]]]:
    """All records of the files that exist now: read until the folder has been listed three more times."""
    seen: list[tuple[int, list[Any]]] = []
    before = source.looks
    while source.looks < before + 3:
        given = part.next_batch()
        if given is None:
            break
        if len(given.batch):
            seen.append((given.epoch, rows(given.batch)))
    return seen


def lines(folder: Path, name: str, *texts: str, at: int = 0) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(f"{text}\n" for text in texts))
    os.utime(path, (1_000_000 + at, 1_000_000 + at))
    return path


def text_folder(folder: Path, **more: Any) -> tuple[Watched, Any]:
    source = Watched(folder, "*.txt", **more)
    return source, source.build_part(source.list_parts()[0], None)


TABLE = pa.table({"n": list(range(90)), "day": [n // 30 for n in range(90)]})


def write(folder: Path, form: str) -> list[Any]:
    """Three files of a format, and their records as they come."""
    folder.mkdir(exist_ok=True)
    for day in range(3):
        table = TABLE.slice(30 * day, 30)
        if form == "parquet":
            pq.write_table(table, folder / f"{day}.parquet", row_group_size=12)
        else:
            line = {"csv": "{n},{day}", "json": '{{"n": {n}, "day": {day}}}', "text": "{n}"}[form]
            head = ["n,day"] if form == "csv" else []
            suffix = {"csv": "csv", "json": "jsonl", "text": "txt"}[form]
            lines(folder, f"{day}.{suffix}", *head, *(line.format(**row) for row in table.to_pylist()), at=day)
    return [str(row["n"]) for row in TABLE.to_pylist()] if form == "text" else TABLE.to_pylist()


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "text"])
@pytest.mark.parametrize("ends", [False, True], ids=["endless", "ends"])
def test_a_folder_keeps_the_contract_of_sources(tmp_path: Path, form: str, ends: bool) -> None:
    records = write(tmp_path / "in", form)
    (tmp_path / "in" / "_DONE").touch()
    until = "_DONE" if ends else None
    check_source(
        lambda: FolderSource(tmp_path / "in", format=form, batch_rows=8, until=until, every_s=1e-6), records, resumes=6, quiet_s=0.05
    )


def test_the_epoch_may_be_a_column(tmp_path: Path) -> None:
    records = write(tmp_path / "in", "parquet")
    (tmp_path / "in" / "_DONE").touch()
    check_source(
        lambda: FolderSource(tmp_path / "in", "*.parquet", epoch="day", batch_rows=8, until="_DONE", every_s=1e-6), records, resumes=6
    )


def test_each_file_is_an_epoch_in_the_order_of_their_times(tmp_path: Path) -> None:
    lines(tmp_path, "b.txt", "1", "2", at=1)
    lines(tmp_path, "a.txt", "3", at=2)
    lines(tmp_path, "sub/c.txt", "0", at=0)
    source, part = text_folder(tmp_path)
    assert read(source, part) == [(0, ["0"]), (1, ["1", "2"]), (2, ["3"])]
    assert part.epoch_floor() == 3  # the third is complete, though nothing has come after it


def test_a_file_that_appears_late_with_an_older_time_is_read(tmp_path: Path) -> None:
    source, part = text_folder(tmp_path)
    lines(tmp_path, "b.txt", "b", at=10**6)
    assert read(source, part) == [(0, ["b"])]
    lines(tmp_path, "a.txt", "a", at=0)
    assert read(source, part) == [(1, ["a"])]
    assert read(source, part) == []


def test_a_file_is_read_once_it_has_its_final_name(tmp_path: Path) -> None:
    source, part = text_folder(tmp_path)
    for name in ("a.txt.tmp", "_b.txt", ".c.txt", "d.csv", "_temporary/e.txt", "f.txt._COPYING_"):
        lines(tmp_path, name, "not yet")
    (tmp_path / "empty.txt").touch()
    assert read(source, part) == []
    os.rename(tmp_path / "a.txt.tmp", tmp_path / "a.txt")
    assert read(source, part) == [(0, ["not yet"])]


def test_a_writer_that_does_not_rename_is_given_time(tmp_path: Path, monkeypatch: Any) -> None:
    source, part = text_folder(tmp_path, settle_s=60.0, until="_DONE")
    (tmp_path / "_DONE").touch()
    path = lines(tmp_path, "a.txt", "1")
    monkeypatch.setattr("rayad.integrations.folder.clock.time", lambda: path.stat().st_mtime + 59)
    assert read(source, part) == []
    lines(tmp_path, "a.txt", "1", "2")
    monkeypatch.setattr("rayad.integrations.folder.clock.time", lambda: path.stat().st_mtime + 61)
    assert read(source, part) == [(0, ["1", "2"])]
    assert part.next_batch() is None


def test_the_input_ends_with_the_end_marker_file(tmp_path: Path) -> None:
    source, part = text_folder(tmp_path, until="_DONE")
    lines(tmp_path, "a.txt", "a")
    assert read(source, part) == [(0, ["a"])]
    lines(tmp_path, "b.txt", "b", at=1)
    (tmp_path / "_DONE").touch()
    assert read(source, part) == [(1, ["b"])]
    assert part.next_batch() is None
    lines(tmp_path, "c.txt", "c", at=2)
    assert source.build_part(None, part.offset()).next_batch() is None  # it has ended


def test_files_that_appear_with_the_end_marker_are_read(tmp_path: Path) -> None:
    """A listing is not of one moment: it may contain the marker and lack a file that was there before the marker."""
    lines(tmp_path, "a.txt", "a")
    (tmp_path / "_DONE").touch()

    class Partial(Watched):
        def look(self) -> Listing:
            listing = super().look()
            return listing._replace(files=()) if self.looks == 1 else listing

    source = Partial(tmp_path, "*.txt", until="_DONE")
    part = source.build_part(None, None)
    given = [one for one in iter(part.next_batch, None) if len(one.batch)]
    assert [one.batch for one in given] == [["a"]]


def test_a_resumed_part_reads_the_files_that_were_not_read(tmp_path: Path) -> None:
    source, part = text_folder(tmp_path, batch_rows=1)
    lines(tmp_path, "a.txt", "a", at=5)
    lines(tmp_path, "b.txt", "b", "c", at=6)
    given: list[Any] = []
    while len(given) < 2:
        given += part.next_batch().batch
    offset = part.offset()
    lines(tmp_path, "d.txt", "d", at=0)
    assert read(source, source.build_part(None, offset)) == [(1, ["c"]), (2, ["d"])]
    lines(tmp_path, "b.txt", "b", "other", at=6)
    with pytest.raises(DataflowError, match=r"b\.txt', of 4 bytes, was being read when the snapshot was taken, and now is of 8 bytes"):
        source.build_part(None, offset)
    os.remove(tmp_path / "b.txt")
    with pytest.raises(DataflowError, match=r"and now is gone: put it back as it was, or begin afresh"):
        source.build_part(None, offset)


def test_a_file_that_grows_after_it_was_read_is_an_error(tmp_path: Path) -> None:
    source, part = text_folder(tmp_path)
    lines(tmp_path, "a.txt", "a")
    read(source, part)
    lines(tmp_path, "a.txt", "a", "b")
    with pytest.raises(DataflowError, match=r"had 2 bytes when it was read and has 4 now: .* give new records a file of their own"):
        read(source, part)


def test_a_file_that_is_removed_before_it_is_read_is_skipped(tmp_path: Path) -> None:
    lines(tmp_path, "a.txt", "a", at=0)
    gone = lines(tmp_path, "b.txt", "b", at=1)
    lines(tmp_path, "c.txt", "c", at=2)
    source, part = text_folder(tmp_path)
    while not len(part.next_batch().batch):
        pass
    gone.unlink()
    assert read(source, part) == [(1, ["c"])]


def test_names_of_files_are_forgotten_long_after_the_files_were_removed(tmp_path: Path, monkeypatch: Any) -> None:
    now_s = [0.0]
    monkeypatch.setattr("rayad.integrations.folder.clock.monotonic", lambda: now_s[0])
    source, part = text_folder(tmp_path)
    path = lines(tmp_path, "a.txt", "a")

    def later(seconds: float) -> list[Any]:
        now_s[0] += seconds
        found, before = [], source.looks
        while source.looks < before + 3:
            now_s[0] += 1e-5  # a little: the loop runs thousands of times while a thread lists the folder
            given = part.next_batch()
            found += given.batch
        return found

    assert later(1) == ["a"]
    path.rename(tmp_path / "away")
    assert later(1) == []
    (tmp_path / "away").rename(path)
    assert later(FORGET_S - 10) == []  # a mount that was away
    path.unlink()
    assert later(1) == []
    assert later(FORGET_S) == []
    assert part.offset()["read"] == {}
    lines(tmp_path, "a.txt", "new")
    assert later(1) == ["new"]


def test_a_folder_that_stays_unreachable_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    now_s = [0.0]
    monkeypatch.setattr("rayad.integrations.folder.clock.monotonic", lambda: now_s[0])

    class Failing(Watched):
        def look(self) -> Listing:
            raise OSError("no route to host")

    part = Failing(tmp_path, "*.txt").build_part(None, None)

    def wait() -> None:
        while True:
            now_s[0] += 1.0
            assert not len(part.next_batch().batch)
            if now_s[0] > 10_000:
                return

    with pytest.raises(DataflowError, match=r"the folder could not be listed for \d+ s: no route to host"):
        wait()
    assert now_s[0] > 60


def test_nothing_waits_for_a_listing_that_hangs(tmp_path: Path) -> None:
    looks, released = threading.Event(), threading.Event()

    class Hanging(Watched):
        def look(self) -> Listing:
            looks.set()
            released.wait(PATIENCE_S)
            return super().look()

    part = Hanging(tmp_path, "*.txt").build_part(None, None)
    try:
        began_s = clock.monotonic()
        assert not len(part.next_batch().batch)
        assert looks.wait(PATIENCE_S)
        assert not len(part.next_batch().batch)
        part.close()
        assert clock.monotonic() - began_s < PATIENCE_S / 2
    finally:
        released.set()


def test_columns_are_those_of_the_first_file(tmp_path: Path) -> None:
    source = Watched(tmp_path, "*.csv")
    part = source.build_part(None, None)
    lines(tmp_path, "a.csv", "x,y", "1,a")
    assert read(source, part) == [(0, [{"x": 1, "y": "a"}])]
    offset = part.offset()
    lines(tmp_path, "b.csv", "x,y", "one,a", at=1)
    for reading in (part, source.build_part(None, offset)):
        with pytest.raises(DataflowError, match=r"from_folder: read_csv: .*b\.csv' does not fit the expected columns {x: int64, y: str"):
            read(source, reading)


def test_columns_of_parquet_may_come_in_any_order_and_no_others(tmp_path: Path) -> None:
    source = Watched(tmp_path, "*.parquet", schema=pa.schema([("x", pa.int64()), ("y", pa.string())]))
    part = source.build_part(None, None)
    pq.write_table(pa.table({"y": ["a"], "x": [1]}), tmp_path / "a.parquet")
    assert first(part).schema.names == ["x", "y"]
    pq.write_table(pa.table({"x": [1.5], "y": ["a"]}), tmp_path / "b.parquet")
    with pytest.raises(DataflowError, match=r"schema drift in .*b\.parquet'.*: column 'x' is double, expected int64"):
        read(source, part)


def first(part: Any) -> Any:
    """The first batch that is not empty."""
    while True:
        given = part.next_batch()
        if len(given.batch):
            return given.batch


def test_the_error_on_an_incomplete_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 half of it")
    source = Watched(tmp_path, "*.parquet")
    with pytest.raises(DataflowError, match=r"a\.parquet.*; a file has to be whole when it gets its name: write it as 'name\.tmp' and"):
        read(source, source.build_part(None, None))


def test_epochs_of_a_column_may_not_go_back(tmp_path: Path) -> None:
    for number, day in enumerate((3, 5, 4)):
        pq.write_table(pa.table({"day": [day]}), tmp_path / f"{number}.parquet")
        os.utime(tmp_path / f"{number}.parquet", (number, number))
    source = Watched(tmp_path, "*.parquet", epoch="day")
    with pytest.raises(DataflowError, match=r"2\.parquet' has rows of epoch 4 \(column 'day'\), but the files before it reached epoch 5"):
        read(source, source.build_part(None, None))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pattern": "*"}, r"the format of files '\*' is not known; give format= \(parquet, csv, json, text\), or a pattern with a suffix"),
        ({"pattern": "day=*/*.csv"}, r"pattern is .*: give the name of a file, without '/'; files are found at any depth"),
        ({"pattern": "*.csv", "until": "done/now"}, r"until is .*: give the name of a file, without '/'"),
        ({"pattern": "*.csv", "format": "xml"}, r"format is 'xml': it must be 'parquet', 'csv', 'json' or 'text'"),
        ({"pattern": "*.csv", "encoding": "utf-8"}, r"format='csv' has no options \['encoding'\]; it has column_types, delimiter"),
        ({"pattern": "*.txt", "epoch": "day"}, r"lines of text have no columns, so neither schema= nor epoch="),
        ({"pattern": "*.csv", "epoch": 3}, r"epoch is 3: it must be a string that is not empty, the name of a column, or None"),
        ({"pattern": "*.csv", "schema": {"x": "int"}}, r"schema is .*: it must be a pyarrow.Schema, or None"),
        ({"pattern": "*.csv", "every_s": 0}, r"every_s is 0: it must be a"),
        ({"pattern": "*.csv", "path": "missing"}, r"missing' does not exist; give a directory, which may be empty"),
        ({"pattern": "*.csv", "path": "file"}, r"file' is a file; give a directory"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_where_they_are_written(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path / given.pop("path", "")
    with pytest.raises(ConfigError, match=told):
        rd.Dataflow("refused").from_folder(path, **given)


def test_a_bucket_is_read_like_a_folder(tmp_path: Path) -> None:
    with serving() as store:
        home, root = fs.FileSystem.from_uri(store.uri("in"))
        source = Watched(store.uri("in"), "*.txt", until="_DONE")
        part = source.build_part(None, None)
        assert read(source, part) == []
        for name, text in (("a.txt", b"a\n"), ("deep/b.txt", b"b\n"), ("_DONE", b"")):
            with home.open_output_stream(f"{root}/{name}") as stream:
                stream.write(text)
        assert sorted(line for _, found in read(source, part) for line in found) == ["a", "b"]
        assert part.next_batch() is None


def test_a_job_reads_a_folder_until_it_is_stopped(tmp_path: Path) -> None:
    flow = rd.Dataflow("folder")
    seen: list[str] = []
    flow.from_folder(tmp_path, "*.txt", every_s=1e-6).inspect(seen.append).key_by(len).count().collect("out")
    job = flow.submit(runtime="local")
    for number in range(3):
        lines(tmp_path, f"{number}.txt", "x" * number, "y" * number)
        while len(seen) < 2 * (number + 1):
            job.step()
    assert job.state is JobState.RUNNING
    assert sorted(row for _, row in job.stop(drain=True)["out"]) == [(0, 2), (1, 2), (2, 2)]


def steps(job: Any, count: int) -> None:
    for _ in range(count):
        job.step()


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_crashes_while_files_appear_commits_each_record_once(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    (tmp_path / "in").mkdir()
    flow = rd.Dataflow("folder")
    numbers = flow.from_folder(tmp_path / "in", "*.txt", every_s=1e-6, until="_DONE", batch_rows=2)
    numbers.rebalance().map(lambda line: {"n": int(line)}).write_parquet(str(tmp_path / "out"))
    config = rd.RunConfig(storage_path=str(tmp_path / "jobs"), snapshots=rd.SnapshotConfig(interval_s=None))
    job = flow.submit(config, runtime="local", seed=seed, parallelism=2)
    for number in range(6):
        lines(tmp_path / "in", f"{draw.random()}.txt", *(str(10 * number + i) for i in range(draw.randrange(1, 8))), at=draw.randrange(5))
        steps(job, draw.randrange(200))
        if draw.random() < 0.6:
            job.savepoint()
        if draw.random() < 0.5:
            job.crash()
    (tmp_path / "in" / "_DONE").touch()
    job.wait()
    wanted = sorted(int(line) for path in (tmp_path / "in").glob("*.txt") for line in path.read_text().split())
    assert sorted(row["n"] for row in rd.read_committed(tmp_path / "out").to_table().to_pylist()) == wanted


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_directories_whose_value_is_null_or_of_another_type_than_the_first_tells(kind: str, tmp_path: Path) -> None:
    """Of Parquet it was an error, "No non-null segments were available": each file was asked alone for the types of its directories."""
    for number, town in enumerate(["__HIVE_DEFAULT_PARTITION__", "Ulm", "7"]):
        folder = tmp_path / f"town={town}"
        folder.mkdir()
        if kind == "parquet":
            pq.write_table(pa.table({"n": [number]}), folder / "x.parquet")
        else:
            (folder / f"x.{kind}").write_text(f"n\n{number}\n" if kind == "csv" else f'{{"n": {number}}}\n')
        os.utime(folder / f"x.{kind}", (number, number))
    (tmp_path / "_DONE").touch()
    flow = rd.Dataflow("towns")
    flow.from_folder(str(tmp_path), f"*.{kind}", until="_DONE").collect("rows")
    assert [(row["n"], row["town"]) for _, row in flow.run(runtime="local")["rows"]] == [(0, None), (1, "Ulm"), (2, "7")]
    flow = rd.Dataflow("null alone")
    getattr(flow, f"read_{kind}")(str(tmp_path / "town=__HIVE_DEFAULT_PARTITION__")).collect("rows")
    assert [row for _, row in flow.run(runtime="local")["rows"]] == [{"n": 0, "town": None}]
