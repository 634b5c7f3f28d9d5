"""A streaming DataFrame as an input, on real Spark and Ray: each micro-batch once, whatever ends, and executors that keep nothing.

Spark's ``rate-micro-batch`` is deterministic: batch n has the values from n * ROWS on. Here an exception between two
steps of a micro-batch stands for a driver's death: it ends job and query at once. Processes die in ``python -m tests.chaos
--spark-stream``.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.integrations import SparkSource, SparkStream
from rayad.integrations.spark import blocks
from rayad.integrations.spark.blocks import SparkBlocks
from rayad.integrations.spark.jvm import java_packages, java_session, persistent_rdds
from rayad.integrations.spark.streaming.feed import BatchFeed
from rayad.progress import ConfigError, DataflowError
from tests.cluster.spark_fixtures import spark
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.slow]
__all__ = ["spark"]
ROWS = 30


class Died(Exception):
    """Stands for the driver's death."""


def kept_by_spark(spark: Any) -> int:
    """How many persistent RDDs the executors have."""
    return len(persistent_rdds(spark))


def await_that(holds: Callable[[], Any], told: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, told
        time.sleep(0.05)


@pytest.fixture
def nothing_kept(spark: Any) -> Iterator[None]:
    """Check that after the test the executors have no more than before, and no query runs."""
    before = kept_by_spark(spark)
    yield
    await_that(lambda: not spark.streams.active, f"these queries run on: {spark.streams.active}")
    await_that(lambda: kept_by_spark(spark) <= before, f"Spark keeps {kept_by_spark(spark)} RDDs, {before} before")


def rate(spark: Any) -> Any:
    options = {"rowsPerBatch": ROWS, "numPartitions": 2, "startTimestamp": 1000, "advanceMillisPerBatch": 5000}
    return spark.readStream.format("rate-micro-batch").options(**options).load()


def submit(frame: Any, path: Path, make: Callable[[rd.Stream], Any] | None = None, **options: Any) -> Any:
    """Submit a job over the stream, which resumes if there is a snapshot."""
    flow = rd.Dataflow("spark-stream")
    if options.get("commit") == "stage":
        options = {"staging_path": str(path / "staging"), "max_lag": 2, **options}
    stream = flow.from_spark(frame, name="ticks", checkpoint=str(path / "checkpoint"), **options)
    (make or (lambda stream: stream.collect("out")))(stream)
    return flow.submit(rd.RunConfig(storage_path=str(path / "runs"), resume="latest"), parallelism=1)


def until_saved(job: Any, epoch: int) -> None:
    """Wait until a snapshot holds an epoch, by the live input."""
    await_that(lambda: job.input("ticks").saved().newest > epoch, f"epoch {epoch} is in no snapshot: {job.progress()}")


def check(result: Any, batches: int) -> None:
    """Check that every value of at least ``batches`` micro-batches is there once, in the epoch of its batch."""
    found = sorted((row["value"], time.epoch) for time, row in result["out"])
    assert len(found) % ROWS == 0
    assert len(found) >= ROWS * batches
    assert found == [(value, value // ROWS) for value in range(len(found))]


def test_a_worker_that_has_read_a_partition_starts_actors_as_before(spark: Any) -> None:
    """Ray uses workers again. One that "loads code from local" exports no class: Ray Data's readers did not start after it."""
    import ray

    def read(block: Any) -> tuple[int, bool]:
        from ray._private.worker import global_worker

        return block.table().num_rows, global_worker.load_code_from_local

    computed = SparkBlocks(spark.range(0, 100, 1, 1))
    try:
        assert ray.get(ray.remote(num_cpus=0)(read).remote(computed.blocks[0]), timeout=PATIENCE_S) == (100, False)
    finally:
        computed.release()


def test_a_release_in_a_thread_that_spark_interrupts(spark: Any, nothing_kept: None) -> None:
    """Spark interrupts the thread of a micro-batch when its query is stopped; the release failed there, and was not tried again."""
    computed = SparkBlocks(spark.range(0, 100, 1, 1))
    thread = java_packages(spark).java.lang.Thread
    thread.currentThread().interrupt()
    try:
        computed.release()
    finally:
        thread.interrupted()


def test_an_executor_that_restarts_may_be_unknown_for_a_moment(spark: Any, nothing_kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once in 23 kills: RayDP found no actor of an executor that Spark knew already, and the job failed for good."""
    prepare, raised = blocks._prepare, []

    def unknown_once(spark: Any, frame: Any) -> Any:
        found = prepare(spark, frame)
        if not raised:
            raised.append(found.rddId())
            persistent_rdds(spark)[found.rddId()].unpersist(True)
            raise RuntimeError("calling prepareRecoverableRDD.\n: java.util.NoSuchElementException: No value present")
        return found

    monkeypatch.setattr(blocks, "_prepare", unknown_once)
    computed = SparkBlocks(spark.range(0, 100, 1, 1))
    assert [raised != [], computed.blocks[0].rdd in raised] == [True, False]
    computed.release()
    with pytest.raises(DataflowError, match="from_spark: Spark could not compute the DataFrame"):
        SparkBlocks(spark.range(0, 2, 1, 1).selectExpr("raise_error('java.util.NoSuchElementException')"))


def test_bounded_reads_leave_nothing_in_executors(spark: Any, nothing_kept: None) -> None:
    """RayDP keeps what it has computed until it is released."""
    for end in ("job", "error", "forgotten", "not computed"):
        before = kept_by_spark(spark)
        flow = rd.Dataflow("bounded")
        frame = spark.range(0, 100, 1, 2)
        if end == "not computed":
            with pytest.raises(DataflowError, match="Spark could not compute the DataFrame"):
                SparkSource(frame.selectExpr("if(id = 90, raise_error('boom'), id) as id")).list_parts()
            assert kept_by_spark(spark) == before
            continue
        if end == "forgotten":
            source = SparkSource(frame)
            assert len(source.list_parts()) == 2
            assert kept_by_spark(spark) == before + 1
            del source
            await_that(lambda before=before: kept_by_spark(spark) == before, "a source that is gone is released")
            continue
        flow.from_spark(frame).map(lambda row: row["id"] // (0 if end == "error" else 1)).collect("out")  # noqa: B023
        if end == "error":
            with pytest.raises(DataflowError, match="ZeroDivisionError"):
                flow.run()
        else:
            assert len(flow.run()["out"]) == 100
        assert kept_by_spark(spark) == before


def test_what_is_staged_needs_spark_no_more(spark: Any, tmp_path: Path, nothing_kept: None) -> None:
    before = kept_by_spark(spark)
    source = SparkSource(spark.range(0, 10, 1, 2), replay="stage", staging_path=str(tmp_path / "staged"))
    assert sum(part.rows for part in source.list_parts()) == 10
    assert kept_by_spark(spark) == before


@pytest.mark.parametrize("commit", ["snapshot", pytest.param("stage", marks=pytest.mark.soak)])
def test_micro_batches_are_epochs_once_through_deaths_and_a_commit_deleted_by_hand(
    spark: Any, tmp_path: Path, commit: str, nothing_kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = [("kept", 1), ("advanced", 2), ("saved", 3)]
    for death in deaths:

        def at(step: str, number: int, death: tuple[str, int] = death) -> None:
            if (step, number) == death:
                raise Died(f"at {step}, {number}")

        monkeypatch.setattr(BatchFeed, "at", staticmethod(at))
        with pytest.raises(DataflowError, match=r"from_spark: the Spark query of input 'ticks' failed: .*"):
            submit(rate(spark), tmp_path, commit=commit).wait(timeout_s=PATIENCE_S)
        await_that(lambda: not spark.streams.active, "the query ends with the job")
    monkeypatch.setattr(BatchFeed, "at", staticmethod(lambda step, number: None))
    done = tmp_path / "checkpoint" / "commits"
    newest = max((int(path.name) for path in done.iterdir() if path.name.isdigit()), default=None)
    assert newest is not None
    for path in (done / str(newest), done / f".{newest}.crc"):
        path.unlink(missing_ok=True)
    result = submit(rate(spark), tmp_path, commit=commit, trigger={"availableNow": True}).wait(timeout_s=PATIENCE_S)
    check(result, 4)
    if commit == "stage":
        folders = [path for query in (tmp_path / "staging").iterdir() for path in query.iterdir()]
        assert len(folders) <= 6, "micro-batches in all snapshots are deleted"


def test_a_complete_job_goes_on_with_what_has_come_since(spark: Any, tmp_path: Path, nothing_kept: None) -> None:
    """Files in a folder and ``availableNow``: each run takes what is there and ends; batches, their query and the counts go on."""
    (tmp_path / "in").mkdir()
    for run in range(2):
        pq.write_table(pa.table({"n": pa.array([run, 10], pa.int64())}), tmp_path / "in" / f"{run}.parquet")
        files = spark.readStream.schema("n bigint").parquet(str(tmp_path / "in"))
        job = submit(files, tmp_path, lambda ticks: ticks.key_by("n").count().collect("out"), trigger={"availableNow": True})
        found = sorted((time.epoch, row) for time, row in job.wait(timeout_s=PATIENCE_S)["out"])
        assert found == [(epoch, row) for epoch in range(run + 1) for row in ((epoch, 1), (10, epoch + 1))]


@pytest.fixture
def two_partitions(spark: Any) -> Iterator[None]:
    """Two partitions for a shuffle, instead of 200 by default."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.soak
def test_state_in_spark_and_an_actor_that_is_killed(spark: Any, tmp_path: Path, nothing_kept: None, two_partitions: None) -> None:
    """A windowed count with a watermark in Spark; a replica dies meanwhile; every row that Spark emits is in the job once."""
    frame = rate(spark).withWatermark("timestamp", "0 seconds")
    counts = frame.groupBy("timestamp").count().selectExpr("unix_millis(timestamp) as at", "count")
    flow = rd.Dataflow("stateful")
    stream = flow.from_spark(counts, name="ticks", checkpoint=str(tmp_path / "checkpoint"))
    stream.key_by("at").count(name="counted").collect("seen")
    config = rd.RunConfig(storage_path=str(tmp_path / "runs"), failures=rd.FailureConfig(max_failures=3))
    job = flow.submit(config, parallelism=1)
    until_saved(job, 1)
    os.kill(job.pids()["counted"][0], signal.SIGKILL)
    until_saved(job, 5)
    for query in spark.streams.active:
        query.stop()
    result = job.wait(timeout_s=PATIENCE_S)
    assert result.statistics.failures == 1
    seen = Counter(key for _, (key, _) in result["seen"])
    assert set(seen.values()) == {1}
    assert {times for _, (_, times) in result["seen"]} == {1}
    assert sorted(seen) == [1000 + 5000 * batch for batch in range(len(seen))]
    assert len(seen) >= 4


def test_an_error_in_the_job_ends_the_query_and_the_other_way_round(spark: Any, tmp_path: Path, nothing_kept: None) -> None:
    def fail_at(row: Any) -> Any:
        if row["value"] == 2 * ROWS + 1:
            raise ValueError("not this one")
        return row

    job = submit(rate(spark), tmp_path / "a", lambda stream: stream.map(fail_at).collect("out"))
    with pytest.raises(DataflowError, match="not this one"):
        job.wait(timeout_s=PATIENCE_S)
    await_that(lambda: not spark.streams.active, "the query ends with the job")

    job = submit(rate(spark).selectExpr(f"if(value = {2 * ROWS}, raise_error('a bad tick'), value) as value"), tmp_path / "b")
    with pytest.raises(DataflowError, match=r"(?s)from_spark: .*a bad tick"):
        job.wait(timeout_s=PATIENCE_S)
    assert job.state.value == "failed"

    job = submit(rate(spark), tmp_path / "c")
    until_saved(job, 0)
    job.cancel()
    await_that(lambda: not spark.streams.active, "the query ends with the job")

    job = submit(rate(spark), tmp_path / "c")
    until_saved(job, 1)
    check(job.stop(timeout_s=PATIENCE_S), 2)


def test_a_thread_that_spark_interrupts_leaves_nothing(spark: Any, nothing_kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is stopped ends the Spark job of its micro-batch, and interrupts the thread that was waiting for it."""
    threads = java_packages(spark).java.lang.Thread

    def interrupted(spark: Any) -> Any:
        threads.currentThread().interrupt()
        return persistent_rdds(spark)

    monkeypatch.setattr(blocks, "persistent_rdds", interrupted)
    try:
        with pytest.raises(DataflowError, match="not computed"):
            blocks.SparkBlocks(spark.range(3).selectExpr("raise_error('not computed') as value"))
    finally:
        assert threads.interrupted(), "something has waited in this thread"


def test_what_cannot_be_read_as_a_stream_is_refused(spark: Any, tmp_path: Path) -> None:
    frame, flow = rate(spark), rd.Dataflow("refused")
    for options, words in (
        ({"epoch": "value", "checkpoint": "c"}, r"epoch='value' is for bounded DataFrames; of a streaming one each micro-batch is an"),
        ({"checkpoint": ""}, r"from_spark: checkpoint=''; give Spark's checkpoint folder for this query"),
        ({"checkpoint": "c", "commit": "stage"}, r"commit='stage' and staging_path=None; give commit='stage' with a folder"),
        ({"checkpoint": "c", "commit": "now"}, r"from_spark: commit"),
        ({"checkpoint": "c", "trigger": {"processingTime": "often"}}, r"from_spark: trigger=\{'processingTime': 'often'\}: give one of"),
        ({"checkpoint": "c", "trigger": {"continuous": "1 second"}}, r"from_spark: trigger=.* has no micro-batches"),
        ({"checkpoint": "c", "output_mode": "Append"}, r"from_spark: output_mode"),
    ):
        with pytest.raises(ConfigError, match=words):
            flow.from_spark(frame, **options)
    flow.from_spark(frame, checkpoint=str(tmp_path / "c")).collect("out")
    with pytest.raises(ConfigError, match=r"a streaming DataFrame needs runtime='ray'"):
        flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    with pytest.raises(ConfigError, match=r"'spark' \(.*\): spark: SnapshotConfig\.alignment_timeout_s is 0"):
        flow.submit(rd.RunConfig(storage_path=str(tmp_path / "none"), snapshots=rd.SnapshotConfig(alignment_timeout_s=0)))
    assert not (tmp_path / "none").exists(), "nothing has begun"
    with pytest.raises(ConfigError, match=r"a streaming DataFrame needs snapshots"):
        flow.submit()
    assert SparkStream(frame, checkpoint="c").schema.names == ["timestamp", "value"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_executors_are_flat_over_200_reads(spark: Any, nothing_kept: None) -> None:
    """Compares the memory of Spark's block managers after 20 reads and after 200. The test itself makes the calls that a job makes of its
    source; jobs are in the test of bounded reads."""

    def used_bytes() -> int:
        status = java_session(spark).sparkContext().getExecutorMemoryStatus()
        entries = java_packages(spark).scala.collection.JavaConverters.mapAsJavaMapConverter(status).asJava()
        return sum(int(entry._1()) - int(entry._2()) for entry in entries.values())

    seen = []
    for read in range(200):
        source = SparkSource(spark.range(0, 200_000, 1, 2))
        assert sum(part.rows for part in source.list_parts()) == 200_000
        source.job_started(None, rd.RunConfig())
        source.job_ended()
        if read in (19, 199):
            seen.append((kept_by_spark(spark), used_bytes()))
    assert seen[1][0] == seen[0][0] == 0
    assert seen[1][1] <= seen[0][1] + (1 << 20), f"used bytes after 20 and after 200 reads: {seen}"
