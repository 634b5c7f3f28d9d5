"""Micro-batches from a model of Spark that dies between any two steps and computes other rows each time, on the local runtime.

An exception from the feed stands for the driver's death: nothing of that driver is used afterwards. Tests with a real query and killed
processes: tests/cluster/test_spark_stream.py and tests/chaos/spark_stream.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.integrations.spark.streaming import kept as kept_module
from rayad.integrations.spark.streaming.feed import BatchFeed
from rayad.integrations.spark.streaming.kept import BlocksKept, FolderKept
from rayad.progress import ConfigError, DataflowError

STEPS = ("begun", "kept", "sent", "advanced", "saved", "released")
SCHEMA = pa.schema([("batch", pa.int64()), ("attempt", pa.int64()), ("row", pa.int64())])
ROWS = 5


class Died(BaseException):
    """Stands for the death of the driver."""


class Rows:
    """A reference to rows that are kept elsewhere."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def table(self) -> pa.Table:
        return self._table


class InMemory:
    """Keeps rows as Spark's storage does: until the driver ends."""

    lag_max = 0

    def __init__(self) -> None:
        self.held: dict[int, list[Rows]] = {}
        self.most = 0

    def keep(self, query: str, number: int, frame: list[pa.Table]) -> Sequence[Rows]:
        self.held[number] = [Rows(part) for part in frame]
        self.most = max(self.most, len(self.held))
        return self.held[number]

    def found(self, query: str) -> Sequence[tuple[int, Sequence[Rows]]]:
        return ()

    def release(self, below: float) -> None:
        self.held = {number: rows for number, rows in self.held.items() if number >= below}

    def close(self) -> None:
        self.release(float("inf"))


class Computed:
    """Stands for a frame that Spark has computed: it is a list of tables."""

    def __init__(self, frame: list[pa.Table]) -> None:
        self.blocks = frame

    def release(self) -> None:
        self.blocks = []


def write_here(blocks: Sequence[Any], folder: Any, copy: str, names: Sequence[str]) -> list[Any]:
    out, first = [], 0
    for number, table in enumerate(blocks):
        if table.num_rows:
            out.append(kept_module.StagedBlock(number, table.num_rows, first, folder.write_block(number, copy, table)))
        first += table.num_rows
    return out


class Spark:
    """A query: it numbers batches, repeats the last batch that it has not noted as done, and computes other rows each time."""

    def __init__(self) -> None:
        self.query = "q-1"
        self.done = 0
        self.attempts = itertools.count()

    def frame(self, number: int) -> list[pa.Table]:
        attempt = next(self.attempts)
        rows = [{"batch": number, "attempt": attempt, "row": row} for row in range(ROWS)]
        cut = 1 + attempt % ROWS
        return [pa.Table.from_pylist(part, SCHEMA) for part in (rows[:cut], rows[cut:])]

    def run(self, feed: BatchFeed, until: int) -> None:
        while self.done < until:
            feed.on_batch(self.query, self.done, self.frame(self.done))
            self.done += 1


def submit(path: Path) -> Any:
    flow = rd.Dataflow("fed")
    opened = flow.input("batches").rebalance().map_batches(lambda references: pa.concat_tables([r.table() for r in references]))
    opened.collect("out")
    opened.key_by("batch").count().collect("counts")
    return flow.submit(rd.RunConfig(storage_path=str(path), resume="latest"), runtime="local", parallelism=2, seed=5)


def make_folder(path: Path) -> FolderKept:
    return FolderKept(str(path / "staging"), SCHEMA, lag_max=2)


@pytest.fixture
def staged_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "SparkBlocks", Computed)
    monkeypatch.setattr(kept_module, "_write", write_here)


def drive(path: Path, spark: Spark, make: Callable[[], Any], until: int, dies: tuple[str, int] | None = None) -> tuple[Any, Any]:
    """Run one driver to its end; gives its job and the rows that it kept."""

    def at(step: str, number: int) -> None:
        if (step, number) == dies:
            raise Died

    job, kept = submit(path), make()
    feed = BatchFeed(job.input("batches"), kept, "/checkpoint")
    feed.at = at  # type: ignore[method-assign]
    try:
        feed.resume(None)
        spark.run(feed, until)
    except Died:
        pass
    return job, kept


def check(job: Any, batches: int) -> None:
    """Each micro-batch is there once: all rows of one attempt, at its own epoch."""
    job.input("batches").close()
    result = job.wait()
    found: dict[int, list[tuple[int, int]]] = {}
    for time, row in result["out"]:
        assert time.epoch == row["batch"]
        found.setdefault(row["batch"], []).append((row["attempt"], row["row"]))
    assert sorted(found) == list(range(batches))
    for rows in found.values():
        assert sorted(row for _, row in rows) == list(range(ROWS))
        assert len({attempt for attempt, _ in rows}) == 1
    assert sorted(record for _, record in result["counts"]) == [(batch, ROWS) for batch in range(batches)]


@pytest.mark.parametrize("commit", ["snapshot", "stage"])
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_between_any_two_steps_loses_and_repeats_nothing(
    tmp_path: Path, step: str, commit: str, staged_here: None
) -> None:
    for number in range(2):
        path = tmp_path / str(number)
        make = InMemory if commit == "snapshot" else lambda path=path: make_folder(path)
        spark = Spark()
        drive(path, spark, make, 3, (step, number))
        assert spark.done == number
        job, _ = drive(path, spark, make, 3)
        check(job, 3)


@pytest.mark.parametrize("commit", ["snapshot", "stage"])
def test_a_driver_may_die_in_each_batch_twice(tmp_path: Path, commit: str, staged_here: None) -> None:
    make = InMemory if commit == "snapshot" else lambda: make_folder(tmp_path)
    spark = Spark()
    for number, step in itertools.product(range(3), ("advanced", "kept", "saved")):
        drive(tmp_path, spark, make, 3, (step, number))
    job, _ = drive(tmp_path, spark, make, 3)
    check(job, 3)


@pytest.mark.parametrize("commit", ["snapshot", "stage"])
def test_a_batch_whose_commit_was_deleted_by_hand_is_recognised(tmp_path: Path, commit: str, staged_here: None) -> None:
    make = InMemory if commit == "snapshot" else lambda: make_folder(tmp_path)
    spark = Spark()
    drive(tmp_path, spark, make, 3)
    spark.done -= 1
    job, _ = drive(tmp_path, spark, make, 4)
    check(job, 4)


def test_a_snapshot_between_a_batch_and_the_end_of_its_epoch_holds_the_batch(tmp_path: Path) -> None:
    spark = Spark()
    job = submit(tmp_path)
    feed = BatchFeed(job.input("batches"), InMemory(), "/checkpoint")

    def at(step: str, number: int) -> None:
        if step == "sent":
            while job.step():
                pass
            job.savepoint()
        if step == "advanced":
            raise Died

    feed.at = at  # type: ignore[method-assign]
    with pytest.raises(Died):
        spark.run(feed, 1)
    again = submit(tmp_path).input("batches")
    assert (again.epoch, again.sent) == (0, 1)
    job, _ = drive(tmp_path, spark, InMemory, 2)
    check(job, 2)


def test_rows_are_released_when_all_kept_snapshots_hold_them(tmp_path: Path, staged_here: None) -> None:
    """Two snapshots are kept, and older ones are deleted a moment after the newest is complete."""
    _, kept = drive(tmp_path / "a", Spark(), InMemory, 8)
    assert kept.most <= 3
    assert set(kept.held) <= {6, 7}

    drive(tmp_path / "b", Spark(), lambda: make_folder(tmp_path / "b"), 14)
    left = sorted(int(path.name) for path in (tmp_path / "b" / "staging" / "q-1").iterdir())
    assert set(left) <= set(range(6, 14)), "every third batch there is a snapshot: the older of the two holds the batches before 9, or 6"


def test_another_checkpoint_folder_is_not_a_repeated_batch(tmp_path: Path) -> None:
    spark = Spark()
    drive(tmp_path, spark, InMemory, 2)
    other = Spark()
    other.query = "q-2"
    with pytest.raises(ConfigError) as refused:
        drive(tmp_path, other, InMemory, 1)
    assert str(refused.value) == (
        "from_spark: the input 'batches' does not go with the checkpoint '/checkpoint': it has micro-batches of query q-1, and the "
        "checkpoint is of query q-2, whose numbers begin at 0 again; give the checkpoint folder of q-1, or begin afresh with resume='never'"
    )


def test_a_job_that_begins_afresh_does_not_continue_a_checkpoint(tmp_path: Path) -> None:
    spark = Spark()
    spark.done = 3
    with pytest.raises(ConfigError, match=r"it begins afresh, and the checkpoint is at micro-batch 3 of query q-1: what came before would"):
        drive(tmp_path, spark, InMemory, 4)


def test_an_input_that_others_have_fed_is_refused(tmp_path: Path) -> None:
    """The epochs that are there already would be taken for micro-batches."""
    live = submit(tmp_path).input("batches")
    live.advance_to(3)
    told = r"it resumes in epoch 3 and has no micro-batch of any query, whose numbers begin at 0: initial state"
    with pytest.raises(ConfigError, match=told):
        BatchFeed(live, InMemory(), "/checkpoint").on_batch("q-1", 0, [])


def test_batches_that_the_snapshot_lacks_and_spark_does_not_repeat_are_named(tmp_path: Path) -> None:
    spark = Spark()
    drive(tmp_path, spark, InMemory, 2)
    spark.done = 4
    with pytest.raises(ConfigError) as refused:
        drive(tmp_path, spark, InMemory, 5)
    assert str(refused.value).endswith(
        "its snapshot holds micro-batches below 2 of query q-1, and Spark continues with 4: it would lose those between; delete from the "
        "checkpoint commits/N for N of 2 and more, and offsets/N for N of 3 and more: then Spark computes them again"
    )


def test_an_empty_micro_batch_is_an_epoch(tmp_path: Path) -> None:
    job = submit(tmp_path)
    feed = BatchFeed(job.input("batches"), InMemory(), "/checkpoint")
    feed.on_batch("q-1", 0, [])
    feed.on_batch("q-1", 1, [pa.Table.from_pylist([], SCHEMA)])
    assert (job.input("batches").epoch, job.input("batches").sent) == (2, 2)
    job.input("batches").close()
    assert job.wait()["out"] == []


def test_snapshots_that_would_hold_references_are_refused() -> None:
    from rayad.dataflow.items import FedInput

    class Fed(FedInput):
        def open(self, references: list[Any]) -> Any:
            return references

    Fed().check_run(rd.RunConfig(), "ray")
    for config in (
        rd.RunConfig(snapshots=rd.SnapshotConfig(alignment_timeout_s=0)),
        rd.RunConfig(failures=rd.FailureConfig(recovery="upstream")),
    ):
        with pytest.raises(ConfigError, match=r"with aligned snapshots \(None\) and recovery='graph' alone no snapshot holds references"):
            Fed().check_run(config, "ray")


def submit_fed(path: Path, make: Callable[[rd.Stream], Any]) -> Any:
    """A job whose input a connector feeds; it resumes if there is a snapshot."""
    from rayad.dataflow.items import FedInput

    class Fed(FedInput):
        def open(self, references: list[Any]) -> Any:
            return pa.concat_tables([one.table() for one in references])

    flow = rd.Dataflow("fed")
    make(flow._fed(Fed(), "batches"))
    return flow.submit(rd.RunConfig(storage_path=str(path), resume="latest"), runtime="local", parallelism=2, seed=5)


def counted(stream: rd.Stream) -> None:
    stream.collect("out")
    stream.key_by("row").count().collect("counts")


@pytest.mark.parametrize("end", ["closed", "drained"])
def test_a_complete_job_is_continued_by_a_later_run(tmp_path: Path, end: str) -> None:
    """As with availableNow: each run reads what is there, and ends. Counts, query id and batch numbers continue, also after a crash."""
    spark = Spark()
    for run in range(4):
        job = submit_fed(tmp_path, counted)
        live = job.input("batches")
        assert (live.epoch, live.sent, live.closed, live.note) == (2 * run, 2 * run, False, "q-1" if run else None)
        feed = BatchFeed(live, InMemory(), "/checkpoint")
        feed.resume(None)
        if run == 2:
            job.crash()
        spark.run(feed, 2 * run + 2)
        if end == "closed":
            live.close()
            result = job.wait()
        else:
            result = job.stop(drain=True)
        found = sorted((row["batch"], row["row"]) for _, row in result["out"])
        assert found == [(batch, row) for batch in range(2 * run + 2) for row in range(ROWS)]
        last = {key: max(count for _, (one, count) in result["counts"] if one == key) for key in range(ROWS)}
        assert last == dict.fromkeys(range(ROWS), 2 * run + 2)


def test_a_complete_job_with_nothing_new_gives_its_results_again(tmp_path: Path) -> None:
    spark = Spark()
    results = []
    for _ in range(2):
        job = submit_fed(tmp_path, counted)
        feed = BatchFeed(job.input("batches"), InMemory(), "/checkpoint")
        feed.resume(None)
        spark.run(feed, 2)
        job.input("batches").close()
        results.append(sorted(map(repr, job.wait()["counts"])))
    assert results[0] == results[1] != []


@pytest.mark.parametrize("fed", ["large", "small"])
def test_a_broadcast_join_goes_on_with_what_comes_in_a_later_run(tmp_path: Path, fed: str) -> None:
    """Where the small side is what goes on, its end was not the last word: the large side is still kept."""

    def joined(stream: rd.Stream) -> None:
        fixed = stream.flow.from_epochs([[{"row": row, "name": f"n{row}"} for row in range(0, ROWS, 2)]])
        sides = (stream, fixed) if fed == "large" else (fixed, stream)
        sides[0].key_by("row").join(sides[1].key_by("row"), broadcast=True).collect("out")

    spark = Spark()
    for run in range(3):
        job = submit_fed(tmp_path, joined)
        live = job.input("batches")
        feed = BatchFeed(live, InMemory(), "/checkpoint")
        feed.resume(None)
        spark.run(feed, 2 * run + 2)
        live.close()
        pairs = [pair for _, (_, pair) in job.wait()["out"]]
        found = sorted((both["batch"], both["row"], both["name"]) for both in ({**left, **right} for left, right in pairs))
        assert found == [(batch, row, f"n{row}") for batch in range(2 * run + 2) for row in range(0, ROWS, 2)]


def test_windows_that_the_end_of_the_input_has_completed_are_not_continued(tmp_path: Path) -> None:
    def windowed(stream: rd.Stream) -> None:
        timed = stream.assign_timestamps("row").key_by("batch")
        timed.window(rd.windows.tumbling(10)).count().collect("out")

    job = submit_fed(tmp_path, windowed)
    Spark().run(BatchFeed(job.input("batches"), InMemory(), "/checkpoint"), 1)
    job.input("batches").close()
    assert len(job.wait()["out"]) == 1
    for _ in range(2):
        with pytest.raises(rd.RayadError, match=r"cannot resume: the job was complete, and the end of its input has completed all windows"):
            submit_fed(tmp_path, windowed).wait()


def test_a_micro_batch_that_is_computed_after_the_end_of_the_job_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's ``query.stop()`` returns while the Python function of the micro-batch still computes it."""
    kept, released = BlocksKept(), []

    class Computed:
        blocks = ("a block",)

        def __init__(self, frame: str) -> None:
            self.frame = frame
            if frame == "second":
                kept.close()

        def release(self) -> None:
            released.append(self.frame)

    monkeypatch.setattr(kept_module, "SparkBlocks", Computed)
    assert kept.keep("q", 0, "first") == ("a block",)
    with pytest.raises(DataflowError, match=r"^from_spark: micro-batch 1 was computed when the job had ended"):
        kept.keep("q", 1, "second")
    assert released == ["first", "second"]
