"""The time at which records came, as a column."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.progress import DataflowError


@pytest.mark.parametrize("columns", [False, True])
def test_a_record_has_the_time_at_which_it_came(columns: bool) -> None:
    epochs: list[Any] = [[{"n": 1}, {"n": 2}], [{"n": 3}]]
    if columns:
        epochs = [pa.RecordBatch.from_pylist(rows) for rows in epochs]
    before = dt.datetime.now(dt.UTC)
    flow = rd.Dataflow()
    flow.from_epochs(epochs).with_arrival_time("at").collect("out")
    rows = [row for _, row in flow.run(runtime="local")["out"]]
    assert [row["n"] for row in rows] == [1, 2, 3]
    assert before <= rows[0]["at"] <= rows[2]["at"] <= dt.datetime.now(dt.UTC)


def test_windows_by_arrival_have_each_record_once_also_after_a_rescale() -> None:
    flow = rd.Dataflow()
    stamped = flow.from_epochs([[{"n": n}] for n in range(50)], parts=2).with_arrival_time().assign_timestamps("arrived")
    counted = stamped.key_by(lambda row: row["n"] % 3).window(rd.windows.tumbling(dt.timedelta(milliseconds=1))).count(name="counted")
    counted.collect("counts")
    counted.late.collect("late")
    job = flow.submit(runtime="local", seed=3, parallelism=2)
    for _ in range(100):
        job.step()
    job.rescale("counted", 3)
    result = job.wait()
    assert sum(count for _, (_, _, count) in result["counts"]) + len(result["late"]) == 50


def test_columns_are_known_and_explain_says_that_it_is_not_repeatable() -> None:
    flow = rd.Dataflow()
    stamped = flow.from_arrow(pa.table({"n": [1]})).with_arrival_time("at", name="stamp")
    assert stamped.schema == pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    stamped.collect("out")
    assert flow.explain().splitlines()[-1].startswith("not repeatable: 'stamp' (test_arrival_time.py:")
    with pytest.raises(DataflowError, match=r"there is a column 'n' among \['n'\]: give another name"):
        flow.from_arrow(pa.table({"n": [1]})).with_arrival_time("n")


def test_records_without_fields_are_refused() -> None:
    flow = rd.Dataflow()
    flow.from_items([1]).with_arrival_time().collect("out")
    with pytest.raises(DataflowError, match="with_arrival_time was given 1: it takes records whose fields have names"):
        flow.run(runtime="local")
    with pytest.raises(DataflowError, match="with_arrival_time: column is 5"):
        flow.from_items([1]).with_arrival_time(5)  # type: ignore[arg-type]
