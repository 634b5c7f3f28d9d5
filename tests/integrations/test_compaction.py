"""``write_parquet(compact=True)``: small files are joined, and every snapshot can be resumed from as before."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.integrations import ParquetSink
from rayad.integrations.file_output import compacting
from rayad.integrations.file_output.committed import read_manifest
from rayad.integrations.file_output.compacting import groups_to_join
from rayad.integrations.file_output.manifests import CommittedFile
from rayad.progress import ConfigError, DataflowError
from rayad.testing import check_sink
from tests.integrations.crashing_files import Crash
from tests.integrations.outputs import manifest
from tests.integrations.test_parquet_commits import STEPS, Coordinator, committed, names
from tests.thorough import amount, by_turns, examples


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins begin at three files and not at ten."""
    monkeypatch.setattr(compacting, "JOIN_FILES", 3)


def listed(path: Path) -> list[dict[str, Any]]:
    return [file.as_json() for file in manifest(path).files]


def after(path: Path, snapshots: int, **options: Any) -> Coordinator:
    """A job after so many snapshots of two files each."""
    job = Coordinator(path, 2, compact=True, **options)
    for _ in range(snapshots):
        job.write(0, 0, 1)
        job.write(1, 0, 2)
        job.snapshot()
    return job


def test_files_of_many_commits_become_few(tmp_path: Path) -> None:
    job = after(tmp_path / "out", 120)
    job.check_committed()
    files = listed(job.path)
    assert len(files) < 30  # of 240
    assert max(file.get("joined", 1) for file in files) >= 100
    for file in files:
        meta = pq.read_metadata(job.path / file["name"])
        assert meta.num_rows == file["rows"]
        assert meta.num_row_groups == 1


@examples(each_run=52, soak=150)
@given(steps=STEPS, more=STEPS, replicas=st.integers(1, 3), by_epoch=st.booleans(), mode=st.sampled_from(["error", "append", "overwrite"]))
def test_after_any_crash_the_committed_output_is_the_models(
    steps: list[Any], more: list[Any], replicas: int, by_epoch: bool, mode: str
) -> None:
    folder = Path(tempfile.mkdtemp())
    kept, compacting.JOIN_FILES = compacting.JOIN_FILES, 2
    try:
        job = Coordinator(folder / "out", replicas, partition_by_epoch=by_epoch, mode=mode, compact=True)
        for step in [*steps, *more, ("snapshot", None)]:
            if step[0] == "write":
                job.write(*step[1:])
                continue
            before = committed(job.path)
            job.files.left = step[-1]
            try:
                if step[0] == "snapshot":
                    job.snapshot()
                else:
                    job.go_on(sorted(job.store)[-1 - step[2] % len(job.store)], new_run=step[1])
            except Crash:
                job.files.left = None
                assert committed(job.path) in (before, job.model[job.last])
                job.last = max(n for n in job.store if n <= job.last)
                job.go_on(job.last, new_run=True)
            job.files.left = None
            job.check_committed()
        job.sink().result(job.receipt)
        assert [name for name in names(job.path) if name.startswith("_staging")] == []
        job.check_committed()
    finally:
        compacting.JOIN_FILES = kept
        shutil.rmtree(folder)


@by_turns(2)
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("last", range(2, 21))
@pytest.mark.parametrize("new_run", [False, True])
def test_any_snapshot_can_be_resumed_from(last: int, new_run: bool, tmp_path: Path) -> None:
    job = after(tmp_path / "out", 19)
    assert max(file.get("joined", 1) for file in listed(job.path)) >= 9
    job.go_on(last, new_run=new_run)
    job.check_committed()
    for _ in range(8):
        job.write(0, 0, 3)
        job.snapshot()
        job.check_committed()
    job.go_on(sorted(job.store)[-4], new_run=True)  # into what was joined behind a gap of void snapshots
    job.check_committed()


@pytest.mark.usefixtures("few")
def test_a_crash_at_each_operation_of_a_commit_that_joins_and_of_a_cut(tmp_path: Path) -> None:
    joins = cuts = 0
    for at in range(200):
        job = after(tmp_path / f"{at}", 5)
        job.write(0, 0, 1)
        job.files.left = at
        try:
            job.snapshot()
            joins += any("joined" in file for file in listed(job.path))
            job.go_on(3, new_run=False)
            cuts += 1
            job.files.left = None
            job.check_committed()
            break
        except Crash:
            job.files.left = None
            job.last = max(n for n in job.store if n <= job.last)
            job.go_on(job.last, new_run=True)
            job.check_committed()
    assert joins
    assert cuts == 1
    assert at > 10


@pytest.mark.usefixtures("few")
def test_files_are_joined_within_their_directory(tmp_path: Path) -> None:
    flow = rd.Dataflow("partitioned")
    rows = [{"k": n % 3, "n": n} for n in range(300)]
    flow.from_items(rows, batch_rows=2).write_parquet(str(tmp_path / "out"), partition_by="k", compact=True, name="out")
    config = rd.RunConfig(storage_path=str(tmp_path / "runs"), snapshots=rd.SnapshotConfig(interval_s=None))
    job = flow.submit(config, runtime="local")
    while job.step():
        job.savepoint()
    result = job.wait()["out"]
    folders = [name.rpartition("/")[0] for name in result.files]
    assert set(folders) == {"k=0", "k=1", "k=2"}
    assert any("-joined-" in name for name in result.files)
    table = rd.read_committed(tmp_path / "out").to_table().sort_by("n")
    assert table.select(["k", "n"]).to_pylist() == rows
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")) == sorted(result.files)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_the_sink_keeps_the_contract(tmp_path: Path, mode: Any) -> None:
    places = itertools.count()

    def rows(sink: rd.Sink) -> list[Any]:
        assert isinstance(sink, ParquetSink)
        manifest = read_manifest(sink.filesystem, sink.path) if Path(sink.path).is_dir() else None
        return [row for file in (manifest.files if manifest else ()) for row in pq.read_table(f"{sink.path}/{file.name}").to_pylist()]

    check_sink(
        lambda: ParquetSink(str(tmp_path / str(next(places))), mode=mode, compact=True),
        rows,
        histories=amount(each_run=4, soak=10),
        steps=40,
    )


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_crash_and_resume_give_each_record_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    out = tmp_path / "out"
    savepoints: list[str] = []
    expected = {epoch * 100 + i for epoch in range(6) for i in range(20)}
    resume: str | None = None
    for attempt in range(4):
        flow = rd.Dataflow("job")
        numbers = flow.from_epochs([[{"a": epoch * 100 + i} for i in range(20)] for epoch in range(6)], batch_rows=3, parts=2)
        numbers.rebalance().map(lambda row: row).write_parquet(str(out), name="out", compact=True)
        config = rd.RunConfig(storage_path=str(tmp_path / "store"), resume=resume, snapshots=rd.SnapshotConfig(keep=50))
        job = flow.submit(config, runtime="local", parallelism=2, seed=chance.randrange(10**6))
        for _ in range(250 if attempt < 3 else 0):
            if not job.step():
                break
            seen = committed(out)
            assert len(seen) == len(set(seen))
            assert set(seen) <= expected
            if chance.random() < 0.2:
                savepoints.append(job.savepoint())
            if chance.random() < 0.02:
                job.crash()
        if attempt == 3:
            job.wait()
            assert committed(out) == sorted(expected)
            return
        job.cancel()
        resume = chance.choice(["latest", *savepoints[-3:]])
        if resume != "latest":
            del savepoints[savepoints.index(resume) + 1 :]


def test_which_files_are_joined() -> None:
    def file(name: str, snapshot: int, size: int = 1_000, job: str = "j", joined: int = 1) -> CommittedFile:
        return CommittedFile(f"{name}.parquet", 1, size, job, snapshot, joined=joined)

    ten = [file(f"a/{n}", n) for n in range(1, 11)]
    assert groups_to_join(ten, "j", 11) == [ten]
    assert groups_to_join(ten, "j", 10) == [], "the newest snapshot's commit may be repeated"
    assert groups_to_join(ten, "other", 11) == []
    assert groups_to_join([*ten[:9], file("b/1", 10)], "j", 11) == [], "of one directory"
    assert groups_to_join([*ten[:9], file("a/x", 10, joined=10)], "j", 11) == [], "of one tier"
    assert groups_to_join([*ten[:9], file("a/x", 10, size=compacting.SMALL_BYTES)], "j", 11) == []
    big = [file(f"a/{n}", n, size=compacting.SMALL_BYTES - 1) for n in range(1, 20)]
    assert groups_to_join(big, "j", 99) == [], "ten of these are more than is joined at once"


@pytest.mark.usefixtures("few")
def test_a_file_that_another_program_changed_is_refused(tmp_path: Path) -> None:
    job = after(tmp_path / "out", 2)
    name = listed(job.path)[0]["name"]
    table = pq.read_table(job.path / name)
    pq.write_table(table.slice(0, 0), job.path / name)
    job.write(0, 0, 1)
    with pytest.raises(DataflowError, match="was changed by another program"):
        job.snapshot()


def test_a_log_for_spark_and_joined_files_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compact and spark_log do not go together"):
        ParquetSink(tmp_path / "out", compact=True, spark_log=True)
    with pytest.raises(ConfigError, match="write_parquet: compact is 3"):
        ParquetSink(tmp_path / "out", compact=3)  # type: ignore[arg-type]
