"""Spark Structured Streaming in front of Rayad: how old results are, beside Spark's own, and what a Spark that is too fast leaves behind.

*Age of results*: a running sum per key over the same micro-batches (Spark's ``rate-micro-batch``), one program after the other in the same
Spark session. The age of a micro-batch is the time from its trigger until its results can be read: for Spark, until the Parquet files
that ``foreachBatch`` writes (a folder for each batch, so that a repeated one replaces them) have their ``_SUCCESS``; for Rayad, until the
entry of ``_spark_metadata`` that names its files is there. Files tell these times, nobody polls. Each program plans the next micro-batch
as soon as it may, so rows a second are those of a query that never waits for its input.

*A Spark that is too fast*: a vertex sleeps, so Spark could give many times what the job takes. The storage of Spark's executors, the
memory of the job's processes, and the folders are measured while it runs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import rayad as rd
from benchmarks.machine import MIB, settle, unique_mib
from benchmarks.measurement import Measurement, Ratio, quantile
from rayad.integrations.spark.jvm import persistent_rdds

TITLE = "Micro-batches of Spark, beside Spark's own results"
NEEDS_RAY = True
KEYS = 1000
INTERVAL_S = 1.0
"""Between snapshots, where no micro-batch asks for one."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Args:
        batches, rows: micro-batches of a run, and rows of each.
        warm_up: micro-batches at the beginning whose ages do not count.
        fast_s: how long Spark is too fast, in each mode; 0: not at all.
        fast_rows: rows of 100 bytes in each of these micro-batches.
        sleep_s: how long the vertex sleeps for each batch of rows.
    """

    repetitions: int = 3
    batches: int = 40
    rows: int = 20_000
    warm_up: int = 10
    fast_s: float = 600.0
    fast_rows: int = 50_000
    sleep_s: float = 0.5


FULL = Sizes()
QUICK = Sizes(repetitions=1, batches=4, rows=2_000, warm_up=1, fast_s=5.0, fast_rows=2_000, sleep_s=0.2)


def ticks(spark: Any, rows: int, *columns: str) -> Any:
    """The deterministic stream: micro-batch n has the values from n * rows on."""
    options = {"rowsPerBatch": rows, "numPartitions": 2, "startTimestamp": 0, "advanceMillisPerBatch": 1000}
    return spark.readStream.format("rate-micro-batch").options(**options).load().selectExpr(f"value % {KEYS} as k", "value", *columns)


# -- age of results ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Ages:
    """Of one run: seconds from trigger to result of each micro-batch, and rows a second."""

    ages_s: list[float]
    rows_per_s: float
    totals: dict[int, int]


def of_spark(spark: Any, sizes: Sizes, folder: Path) -> Ages:
    """Spark alone: its state, its files."""
    out = folder / "out"
    totals = ticks(spark, sizes.rows).groupBy("k").sum("value")

    def write(frame: Any, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(out / str(number)))

    query = totals.writeStream.foreachBatch(write).outputMode("update").option("checkpointLocation", str(folder / "checkpoint")).start()
    begun = triggers(query, sizes.batches)
    query.stop()
    done = {number: (out / str(number) / "_SUCCESS").stat().st_mtime for number in range(sizes.batches)}
    last = pq.read_table(out / str(sizes.batches - 1)).to_pydict()
    return ages(sizes, begun, done, dict(zip(last["k"], last["sum(value)"], strict=True)))


def of_rayad(commit: str) -> Callable[[Any, Sizes, Path], Ages]:
    """The same sums in Rayad, committed with its snapshots."""

    def run(spark: Any, sizes: Sizes, folder: Path) -> Ages:
        out = folder / "out"
        flow = rd.Dataflow("micro-batches")
        stream = flow.from_spark(ticks(spark, sizes.rows), name="ticks", checkpoint=str(folder / "checkpoint"), **staging(commit, folder))
        stream.key_by("k").sum("value").write_parquet(str(out), epoch_column="batch", spark_log=True)
        config = rd.RunConfig(storage_path=str(folder / "runs"), snapshots=rd.SnapshotConfig(interval_s=INTERVAL_S))
        job = flow.submit(config, parallelism=1)
        query = started(spark)
        begun = triggers(query, sizes.batches)
        job.input("ticks").wait_saved(sizes.batches - 1, timeout_s=120)
        query.stop()
        job.wait(timeout_s=120)
        done, totals = committed(out)
        return ages(sizes, begun, done, totals[sizes.batches - 1])

    return run


def staging(commit: str, folder: Path) -> dict[str, Any]:
    """The options of ``from_spark`` for a mode."""
    return {"commit": "stage", "staging_path": str(folder / "staging")} if commit == "stage" else {}


def started(spark: Any) -> Any:
    """The query of a job that was just submitted."""
    while not spark.streams.active:
        time.sleep(0.01)
    return spark.streams.active[0]


def triggers(query: Any, batches: int) -> dict[int, float]:
    """When Spark began each micro-batch, once it has reported so many."""
    begun: dict[int, float] = {}
    while len(begun) < batches:
        time.sleep(0.2)
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        for told in query.recentProgress:
            if told["numInputRows"]:
                begun[told["batchId"]] = datetime.fromisoformat(told["timestamp"]).timestamp()
    return begun


def committed(out: Path) -> tuple[dict[int, float], dict[int, dict[int, int]]]:
    """When the rows of each micro-batch could be read, and its sums."""
    done: dict[int, float] = {}
    totals: dict[int, dict[int, int]] = {}
    entries = {int(path.stem): path for path in (out / "_spark_metadata").iterdir() if path.stem.isdigit()}
    for _, entry in sorted(entries.items()):
        for line in entry.read_text().splitlines()[1:]:
            rows = pq.read_table(out / Path(json.loads(line)["path"]).name)
            for number, key, total in zip(*(rows.column(name).to_pylist() for name in ("batch", "k", "sum(value)")), strict=True):
                done.setdefault(number, entry.stat().st_mtime)
                totals.setdefault(number, {})[key] = total
    return done, totals


def ages(sizes: Sizes, begun: dict[int, float], done: dict[int, float], totals: dict[int, int]) -> Ages:
    """What a run took, without its first micro-batches."""
    counted = range(sizes.warm_up, sizes.batches)
    took_s = done[sizes.batches - 1] - begun[sizes.warm_up]
    return Ages([done[number] - begun[number] for number in counted], len(counted) * sizes.rows / took_s, totals)


def expected(sizes: Sizes) -> dict[int, int]:
    """The sums after the last micro-batch."""
    count = sizes.batches * sizes.rows
    sums = [0] * KEYS
    for value in range(count):
        sums[value % KEYS] += value
    return dict(enumerate(sums))


def measure_ages(spark: Any, sizes: Sizes, out: Measurement) -> None:
    """All programs in turn."""
    programs = {"Spark's own": of_spark, "commit=snapshot": of_rayad("snapshot"), "commit=stage": of_rayad("stage")}
    age = {name: out.new_series(f"age of results, {name}", "s", "0") for name in programs}
    rate = {name: out.new_series(f"rows, {name}", "rows/s", "0") for name in programs}
    tail = out.new_table("Age of results, s", "program", "median", "95 %", "most")
    every: dict[str, list[float]] = {name: [] for name in programs}
    wanted = expected(sizes)
    for repetition in range(sizes.repetitions):
        for name in list(programs) if repetition % 2 == 0 else reversed(list(programs)):
            settle()
            folder = Path(tempfile.mkdtemp(prefix="rayad-spark-stream-"))
            found = programs[name](spark, sizes, folder)
            shutil.rmtree(folder)
            out.check("all have the same sums after the last micro-batch", found.totals == wanted, True)
            age[name].add(*found.ages_s)
            rate[name].add(found.rows_per_s)
            every[name] += found.ages_s
    for name, all_s in every.items():
        tail.add(name, round(quantile(all_s, 0.5), 3), round(quantile(all_s, 0.95), 3), round(max(all_s), 3))
    for name in list(programs)[1:]:
        out.ratios.append(Ratio(f"age of results, {name}", "age of results, Spark's own"))
        out.ratios.append(Ratio(f"rows, {name}", "rows, Spark's own"))


# -- a Spark that is too fast ----------------------------------------------------------------------
class Slow:
    """Takes its time for each batch."""

    def __init__(self, sleep_s: float) -> None:
        self.sleep_s = sleep_s

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(self.sleep_s)
        return batch


def run_fast(spark: Any, sizes: Sizes, commit: str, out: Measurement) -> None:
    """One mode: what there is while Spark could give more than the job takes."""
    folder = Path(tempfile.mkdtemp(prefix="rayad-spark-fast-"))
    flow = rd.Dataflow("too-fast")
    frame = ticks(spark, sizes.fast_rows, "repeat(chr(65 + value % 26), 100) as text")
    stream = flow.from_spark(frame, name="ticks", checkpoint=str(folder / "checkpoint"), **staging(commit, folder))
    stream.map_batches(Slow(sizes.sleep_s), name="slow").key_by("k").count(name="counts").probe("seen")
    job = flow.submit(rd.RunConfig(storage_path=str(folder / "runs"), snapshots=rd.SnapshotConfig(interval_s=INTERVAL_S)), parallelism=1)
    head = ["s", "epochs in a snapshot", "micro-batches", "of MB", "Spark's storage, MB", "RDDs", "job's processes, MB", "staged, MB"]
    table = out.new_table(f"A Spark that is too fast, commit={commit!r}, at each tenth of {sizes.fast_s:g} s", *head)
    query = started(spark)
    while not query.recentProgress or job.state.value != "running":
        time.sleep(0.1)
    pids = [pid for pids in job.pids().values() for pid in pids]
    row_mb, began_s = 116 / 1e6, time.monotonic()
    for tenth in range(1, 11):
        time.sleep(max(0.0, began_s + tenth * sizes.fast_s / 10 - time.monotonic()))
        saved = job.input("ticks").saved().newest
        given = (query.lastProgress or {"batchId": 0})["batchId"] + 1
        storage, staged = used_storage(spark) / MIB, size_of(folder / "staging") / MIB
        memory = sum(unique_mib(pid) or 0.0 for pid in pids)
        about_spark = (round(storage, 1), len(persistent_rdds(spark)))
        mb = round(given * sizes.fast_rows * row_mb)
        table.add(round(time.monotonic() - began_s), saved, given, mb, *about_spark, round(memory), round(staged, 1))
    query.stop()
    job.cancel()
    shutil.rmtree(folder, ignore_errors=True)


def used_storage(spark: Any) -> int:
    """Bytes in the storage of Spark's executors, memory and disk."""
    infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return sum(int(info.memSize()) + int(info.diskSize()) for info in infos)


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder, some of which may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*") if folder.exists() else ():
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def run(sizes: Sizes) -> Measurement:
    """Ages of results, then each mode with a Spark that is too fast."""
    out = Measurement("spark_stream", TITLE, asdict(sizes))
    out.notes.append(
        f"One executor of one CPU; {sizes.rows:,} rows in each micro-batch, {KEYS:,} keys; Spark with 2 shuffle partitions and its default "
        f"state store. Snapshots are taken when a micro-batch asks for one (commit=snapshot), or every {INTERVAL_S:g} s (commit=stage)."
    )
    configs = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    spark = rd.spark_session("benchmark", configs=configs)
    try:
        measure_ages(spark, sizes, out)
        for commit in ("snapshot", "stage") if sizes.fast_s else ():
            run_fast(spark, sizes, commit, out)
    finally:
        rd.stop_spark(spark)
    return out
