"""Results as frames, and the last value of each key, on real Ray."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import rayad as rd
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster", "workers")]


def test_columns_reach_the_driver_as_columns() -> None:
    """As rows the int32 would have become an int64, and the result has no tuple before one is asked for."""
    table = pa.table({"k": pa.array(range(50_000), pa.int32()), "w": ["x", None] * 25_000})
    flow = rd.Dataflow("frames")
    flow.from_arrow(table, parts=4, batch_rows=5_000).filter(rd.col("k") >= 10).collect("x")
    found = flow.run(parallelism=2, timeout_s=PATIENCE_S)["x"]
    assert found.to_arrow().sort_by("k").equals(table.slice(10).combine_chunks())
    assert found.to_pandas(epoch_column="e").dtypes.astype(str).to_dict() == {"k": "int32", "w": "object", "e": "int64"}
    assert sorted(record["k"] for _, record in found) == list(range(10, 50_000))


def test_windows_and_rows_are_what_they_are_in_the_local_runtime() -> None:
    flow = rd.Dataflow("frames of windows")
    events = flow.from_items([("a", 1), ("b", 2), ("a", 12)]).assign_timestamps(lambda record: record[1])
    events.key_by(lambda record: record[0]).window(rd.windows.tumbling(10)).count().collect("counts")
    flow.from_items(["a", 1, None]).collect("rows")
    on_ray, local = flow.run(parallelism=2, timeout_s=PATIENCE_S), flow.run(runtime="local")
    assert sorted(on_ray["counts"]) == sorted(local["counts"])
    assert on_ray["rows"] == local["rows"] == [(rd.Timestamp(0), "a"), (rd.Timestamp(0), 1), (rd.Timestamp(0), None)]
    assert on_ray["counts"].to_polars().sort("key", "window")["window"].to_list()[0] == {"start": 0, "end": 10}


def test_the_last_value_of_each_key_survives_rescaling_and_a_resume(tmp_path: Path) -> None:
    def totals() -> rd.Dataflow:
        flow = rd.Dataflow("totals")
        flow.input("words").key_by(str).count(name="counts").collect("last", latest=True)
        return flow

    run = rd.RunConfig(storage_path=str(tmp_path))
    job = totals().submit(run, parallelism={"counts": 1})
    words = job.input("words")
    for epoch in range(3):
        words.send(["a", "b", f"k{epoch}"])
        words.advance_to(epoch + 1)
        if epoch == 1:
            job.rescale("counts", 2)
    path = job.savepoint(timeout_s=PATIENCE_S)
    job.cancel()
    resumed = totals().submit(run, parallelism={"counts": 2}, resume=path)
    with resumed.input("words") as words:
        words.send(["a"])
    found = {key: value for _, (key, value) in resumed.wait(timeout_s=PATIENCE_S)["last"]}
    assert found == {"a": 4, "b": 3, "k0": 1, "k1": 1, "k2": 1}


def test_updates_are_read_while_a_job_runs_to_the_last_one_and_after_a_death(tmp_path: Path) -> None:
    flow = rd.Dataflow("updates")
    flow.input("words").key_by(str).count(name="counts").collect("totals")
    run = rd.RunConfig(storage_path=str(tmp_path), failures=rd.FailureConfig(max_failures=3))
    job = flow.submit(run, parallelism={"counts": 2})
    words, updates = job.input("words"), job.updates("totals")
    words.send(["a", "b"])
    words.advance_to(1)
    first = [next(updates), next(updates)]
    assert sorted((update.epoch, update.record, update.missed) for update in first) == [(0, ("a", 1), 0), (0, ("b", 1), 0)]
    job.savepoint(timeout_s=PATIENCE_S)
    os.kill(job.pids()["counts"][0], signal.SIGKILL)
    words.send(["a", "b", "c"])
    words.close()
    later = list(updates)
    assert {update.record for update in later} >= {("a", 2), ("b", 2), ("c", 1)}, "the last ones, too"
    assert later[0].missed is None, "a replica has died"
    assert len(job.wait(timeout_s=PATIENCE_S)["totals"]) == 5
    assert sorted(update.record for update in job.updates("totals"))[-1] == ("c", 1), "who comes late is given the last ones"
