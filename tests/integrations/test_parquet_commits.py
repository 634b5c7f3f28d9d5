"""ParquetSink with snapshots: after any crash, and after a resume from any snapshot, the committed output is the model's."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

import rayad as rd
from rayad.integrations import ParquetSink
from rayad.integrations.file_output.writer import FileWriter
from rayad.progress import ConfigError, DataflowError, Timestamp
from rayad.snapshots.store import Superseded
from tests.integrations.crashing_files import Crash, CrashingFiles
from tests.integrations.outputs import files_of, is_output, manifest


def committed(path: Path) -> list[int]:
    """All records by the manifest."""
    return sorted(row["a"] for row in rd.read_committed(path).to_table().to_pylist()) if is_output(path) else []


def names(path: Path) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


class Coordinator:
    """Does with one sink what the runtime does: it makes the calls in their order, and its store of snapshots outlives runs."""

    def __init__(self, path: Path, replicas: int, **options: Any) -> None:
        self.path, self.replicas, self.options = path, replicas, options
        self.files = CrashingFiles()
        self.store: dict[int, list[Any]] = {}
        self.model: dict[int, list[int]] = {}
        self.newest = 0
        self.identity: str | None = None
        self.next_record = 0
        self.start()

    def sink(self) -> ParquetSink:
        return ParquetSink(self.path, filesystem=fs.PyFileSystem(self.files), **self.options)

    def start(self) -> None:
        self.current = self.sink()
        self.current.check()
        self.identity = self.current.identity()
        self.newest += 1
        self.last = self.current.run = self.newest
        self.store[self.last] = []
        self.model[self.last] = []
        self._open()

    def _open(self) -> None:
        self.unstaged: list[int] = []
        self.writers = [self.current.open(i, self.replicas) for i in range(self.replicas)]

    def write(self, replica: int, epoch: int, count: int) -> None:
        rows = list(range(self.next_record, self.next_record + count))
        self.next_record += count
        self.unstaged += rows
        self.writers[replica % self.replicas].write(Timestamp(epoch), [{"a": a} for a in rows])

    def snapshot(self) -> None:
        staged = [writer.stage() for writer in self.writers]
        self.newest += 1
        self.store[self.newest] = staged  # from here on the snapshot is complete
        self.model[self.newest] = [*self.model[self.last], *self.unstaged]
        self.unstaged, self.last = [], self.newest
        self.receipt = self.current.commit(self.last, staged)

    def go_on(self, last: int, *, new_run: bool) -> None:
        """Resume from a snapshot, in a new run or in this one."""
        first_new = self.newest + 1
        self.last = last
        if new_run:
            self.newest = first_new  # the number that claims the store
            first_new += 1
            self.current = self.sink()
            assert self.identity is not None
            self.current.adopt(self.identity)
            self.current.run = self.newest
        for number in [n for n in self.store if n > last]:  # other branches cannot be resumed from
            del self.store[number]
        self.current.roll_back(last, first_new)
        self.receipt = self.current.commit(last, self.store[last])
        self._open()

    def check_committed(self) -> None:
        assert committed(self.path) == self.model[self.last]
        found = manifest(self.path)
        assert sum(file.rows for file in found.files) == len(self.model[self.last]) == self.receipt.rows
        visible = [name for name in names(self.path) if not name.startswith("_")]
        assert visible == [file.name for file in found.files]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 3), st.integers(1, 3)),
        st.tuples(st.just("snapshot"), st.integers(0, 14) | st.none()),
        st.tuples(st.just("fail"), st.booleans(), st.integers(0, 3), st.integers(0, 14) | st.none()),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(STEPS, st.integers(1, 3), st.booleans(), st.sampled_from(["error", "append", "overwrite"]))
def test_after_any_crash_the_committed_output_is_the_models(steps: list[Any], replicas: int, by_epoch: bool, mode: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        job = Coordinator(folder / "out", replicas, partition_by_epoch=by_epoch, mode=mode)
        for step in [*steps, ("snapshot", None)]:
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
                job.last = max(n for n in job.store if n <= job.last)  # dies in stage(): there is no such snapshot
                job.go_on(job.last, new_run=True)
            job.files.left = None
            job.check_committed()
        job.sink().result(job.receipt)  # the driver's copy has adopted nothing
        assert [name for name in names(job.path) if name.startswith("_staging")] == []
        job.check_committed()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("old", ["rayad", "spark"])
def test_a_crash_at_each_operation_of_a_first_commit_shows_the_old_output_or_the_new(tmp_path: Path, mode: str, old: str) -> None:
    for at in range(100):
        out = tmp_path / f"{at}"
        if old == "rayad":
            first = ParquetSink(out)
            writer = first.open(0, 1)
            writer.write(Timestamp(0), [{"a": -1}])
            first.result(first.publish([writer.stage()]))
        else:
            pads.write_dataset(pa.table({"a": [-1]}), out, format="parquet")
            (out / "_SUCCESS").write_text("")
        new = sorted([*([-1] if mode == "append" else []), 0, 1])
        job = Coordinator(out, 2, mode=mode)
        job.write(0, 0, 1)
        job.write(1, 1, 1)
        staged_by_now = [writer.stage() for writer in job.writers]
        job.newest, job.last, job.store[2], job.model[2] = 2, 2, staged_by_now, new
        job.files.left = at
        try:
            job.current.commit(2, staged_by_now)
        except Crash:
            job.files.left = None
            if is_output(out):
                assert committed(out) in ([-1], new)
            job.go_on(2, new_run=True)
            job.check_committed()
            continue
        break
    assert 4 <= at < 99


def test_stage_touches_nothing_when_nothing_was_written(tmp_path: Path) -> None:
    job = Coordinator(tmp_path / "out", 1)
    job.write(0, 0, 1)
    assert len(job.writers[0].stage()) == 1
    job.files.left = 0  # every operation would raise
    assert job.writers[0].stage() == ()


def test_a_commit_of_nothing_writes_nothing(tmp_path: Path) -> None:
    job = Coordinator(tmp_path / "out", 1)
    job.write(0, 0, 1)
    job.snapshot()
    changes = job.files.changes
    job.snapshot()
    assert job.files.changes == changes
    job.check_committed()


def test_a_replica_that_ends_early_keeps_the_files_that_a_snapshot_names(tmp_path: Path) -> None:
    job = Coordinator(tmp_path / "out", 1, partition_by_epoch=True)
    job.write(0, 0, 1)
    staged = job.writers[0].stage()
    for epoch in range(20):  # more than are kept open
        job.write(0, epoch, 1)
    job.writers[0].abort()
    assert [name.rsplit("/", 1)[1] for name in names(job.path) if name.endswith(".parquet")] == [staged[0].name.rsplit("/", 1)[1]]
    assert job.current.commit(2, [staged]).rows == 1


def test_a_job_that_failed_before_its_first_commit_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    moved = 0
    for at in range(30):
        job = Coordinator(tmp_path / f"out{at}", 2, mode="append")
        job.write(0, 0, 1)
        job.write(1, 0, 1)
        staged = [writer.stage() for writer in job.writers]
        job.files.left = at
        try:
            job.current.commit(2, staged)
        except Crash:
            job.files.left = None
            if not (is_output(job.path) and committed(job.path)):
                moved = max(moved, len([name for name in names(job.path) if not name.startswith("_")]))
                job.current.abort()
                assert files_of(job.path) == []
                assert committed(job.path) == []
            continue
        break
    assert at < 29
    assert moved == 2


def test_resuming_with_the_jobs_own_files_is_not_refused_and_a_fresh_start_is(tmp_path: Path) -> None:
    job = Coordinator(tmp_path / "out", 1, mode="error")
    job.write(0, 0, 2)
    job.snapshot()
    with pytest.raises(ConfigError, match=r"already holds 1 files .* to continue a job that was interrupted, resume it"):
        ParquetSink(job.path).check()
    job.go_on(2, new_run=True)
    job.write(0, 0, 1)
    job.snapshot()
    assert committed(job.path) == [0, 1, 2]


def test_a_snapshot_of_an_abandoned_branch_is_refused(tmp_path: Path) -> None:
    job = Coordinator(tmp_path / "out", 1)
    for _ in range(4):
        job.write(0, 0, 1)
        job.snapshot()  # 2 to 5
    late = job.current  # a coordinator that does not know yet that it is dead
    branch = job.store[5]
    job.go_on(3, new_run=True)
    assert committed(job.path) == [0, 1]
    with pytest.raises(Superseded, match=rf"run 6 of this job has committed to '{job.path}': run 1 has been superseded"):
        late.commit(5, branch)
    late.run = job.current.run
    with pytest.raises(DataflowError, match=r"snapshot 5 cannot be .* resumed from snapshot 3 .* 4 to 6 committed was removed"):
        late.commit(5, branch)
    again = job.sink()
    again.adopt(job.current.job)
    again.run = 7
    again.roll_back(5, 8)
    with pytest.raises(DataflowError, match="snapshot 5 cannot be committed"):
        again.commit(5, branch)
    assert committed(job.path) == [0, 1]


@pytest.mark.parametrize("what", ["removed", "overwritten"])
@pytest.mark.parametrize("rows", [0, 1])
def test_output_that_was_taken_away_is_noticed(tmp_path: Path, what: str, rows: int) -> None:
    job = Coordinator(tmp_path / "out", 1)
    job.write(0, 0, 1)
    job.snapshot()
    if rows:
        job.write(0, 0, rows)
    job.snapshot()
    if what == "removed":
        shutil.rmtree(job.path)
    else:
        other = ParquetSink(job.path, mode="overwrite")
        other.result(other.publish([]))
    why = "is gone" if what == "removed" else "now is of job"
    with pytest.raises(ConfigError, match=f"the output of job '{job.identity}' in .* {why}"):
        job.go_on(3, new_run=True)


def test_two_jobs_that_append_in_turn_keep_each_others_files(tmp_path: Path) -> None:
    job = Coordinator(tmp_path / "out", 1, mode="append")
    job.write(0, 0, 1)
    job.snapshot()
    other = ParquetSink(job.path, mode="append")
    writer = other.open(0, 1)
    writer.write(Timestamp(0), [{"a": 100}])
    other.result(other.publish([writer.stage()]))
    job.write(0, 0, 1)
    job.snapshot()
    assert committed(job.path) == [0, 1, 100]
    job.go_on(2, new_run=True)
    assert committed(job.path) == [0, 100]


def test_a_file_that_two_snapshots_have_is_kept_when_the_job_goes_back_to_the_first(tmp_path: Path) -> None:
    """Regression: an attempt that was taken for failed had become a snapshot, the next one had its files, too; going back deleted them."""
    sink = ParquetSink(tmp_path / "out")
    sink.run = 1
    sink.check()
    writer = sink.open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    staged = [writer.stage()]
    sink.commit(3, staged)  # those of snapshot 2
    again = ParquetSink(tmp_path / "out")
    again.adopt(sink.job)
    again.run = 4
    again.roll_back(2, 5)
    again.commit(2, staged)
    assert committed(tmp_path / "out") == [1]


@pytest.mark.parametrize("comes_back_empty", [False, True])
def test_nothing_is_staged_where_the_output_is_not(tmp_path: Path, comes_back_empty: bool) -> None:
    """Regression: a folder that had gone away was made again; a snapshot named what was staged there, which was gone later."""
    job = Coordinator(tmp_path / "out", 1)
    job.write(0, 0, 1)
    job.snapshot()
    for new_run in (False, True):
        if new_run:
            job.go_on(job.last, new_run=True)
        (tmp_path / "out").rename(tmp_path / "away")
        if comes_back_empty:
            (tmp_path / "out").mkdir()
        writer = job.current.open(0, 1)
        writer.write(Timestamp(0), [{"a": 7}])
        with pytest.raises(OSError, match="_staging"):
            writer.stage()
        assert names(tmp_path / "out") == []
        if comes_back_empty:
            (tmp_path / "out").rmdir()
        (tmp_path / "away").rename(tmp_path / "out")
        job.go_on(job.last, new_run=False)
        job.write(0, 0, 1)
        job.snapshot()
        job.check_committed()


def test_columns_may_not_change_from_snapshot_to_snapshot(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    sink.check()
    for number, rows in ((2, [{"a": 1}]), (3, [{"a": "x"}])):
        writer = FileWriter(sink, 0)
        writer.write(Timestamp(0), rows)
        if number == 2:
            sink.commit(number, [writer.stage()])
        else:
            with pytest.raises(DataflowError, match="replicas gave different columns"):
                sink.commit(number, [writer.stage()])


def test_reading_what_is_committed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="and no job writes there: is the path right"):
        rd.read_committed(tmp_path)
    sink = ParquetSink(tmp_path / "out", partition_by_epoch=True, schema=pa.schema([("a", pa.int64())]))
    writer = sink.open(0, 1)
    sink.commit(2, [writer.stage()])
    assert rd.read_committed(tmp_path / "out").to_table().num_rows == 0
    writer.write(Timestamp(3), [{"a": 1}])
    out = sink.commit(3, [writer.stage()])
    shutil.copy(tmp_path / "out" / out.files[0], tmp_path / "out" / "epoch=3" / "part-moved-but-not-committed.parquet")
    assert rd.read_committed(tmp_path / "out").to_table().to_pylist() == [{"a": 1, "epoch": 3}]
    assert rd.committed_files(tmp_path / "out") == out.published()
    uri = f"file://{tmp_path}/out"
    assert rd.committed_files(uri) == out.published()
    assert rd.read_committed(uri).count_rows() == 1
    (tmp_path / "out" / "_manifests" / "000000000009.json").write_text('{"format": "rayad-output-9", "number": 9}')
    with pytest.raises(ConfigError, match="is not a manifest: it has format 'rayad-output-9' and number 9, expected are 'rayad-output-1'"):
        rd.read_committed(tmp_path / "out")
    (tmp_path / "_SUCCESS").write_text('{"files": [], "format": "rayad-parquet-9"}')
    with pytest.raises(ConfigError, match="is not a manifest: its format is 'rayad-parquet-9'"):
        rd.read_committed(tmp_path)
