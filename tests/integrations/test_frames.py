"""Data frames as sources: from_pandas, from_polars, and from_arrow of whatever has columns of Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import rayad as rd
from tests.every_type import arrays


def rows(make: Callable[[rd.Dataflow], rd.Stream]) -> list[tuple[int, Any]]:
    """The records of a stream with their epochs."""
    flow = rd.Dataflow("frames")
    make(flow).collect("x")
    return [(time.epoch, record) for time, record in flow.run(runtime="local")["x"]]


def told(make: Callable[[rd.Dataflow], Any]) -> str:
    """What the refusal says."""
    with pytest.raises(rd.RayadError) as caught:
        make(rd.Dataflow("frames"))
    return str(caught.value)


class OneArray:
    """A thing that has one array of Arrow and is nothing else."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return pa.record_batch({"a": [1]}).__arrow_c_array__(requested_schema)


class OneStream:
    """A thing that has a stream of Arrow and is nothing else."""

    def __init__(self) -> None:
        self.reads = 0

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        self.reads += 1
        return pa.table({"a": [1]}).__arrow_c_stream__(requested_schema)


GIVE_ONE: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"a": [1]}),
    "polars": lambda: pl.DataFrame({"a": [1]}),
    "lazy polars": lambda: pl.LazyFrame({"a": [1]}),
    "table": lambda: pa.table({"a": [1]}),
    "batch": lambda: pa.record_batch({"a": [1]}),
    "reader": lambda: pa.table({"a": [1]}).to_reader(),
    "dataset": lambda: ds.dataset(pa.table({"a": [1]})),
    "scanner": lambda: ds.dataset(pa.table({"a": [1]})).scanner(),
    "array": OneArray,
    "stream": OneStream,
    "relation of DuckDB": lambda: duckdb.connect().sql("select 1::bigint as a"),
}


@pytest.mark.parametrize("make", GIVE_ONE.values(), ids=GIVE_ONE)
def test_what_has_columns_of_arrow_is_a_source_alone_and_in_a_list(make: Callable[[], Any]) -> None:
    assert rows(lambda flow: flow.from_arrow(make())) == [(0, {"a": 1})]
    assert rows(lambda flow: flow.from_arrow([make(), pa.table({"a": [2]})])) == [(0, {"a": 1}), (0, {"a": 2})]


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
def test_the_result_of_a_connection_of_duckdb_is_read() -> None:
    assert rows(lambda flow: flow.from_arrow(duckdb.connect().execute("select 1 as a union all select 2 order by 1"))) == [
        (0, {"a": 1}),
        (0, {"a": 2}),
    ]


def test_a_stream_is_read_once_when_the_program_is_written() -> None:
    stream, flow = OneStream(), rd.Dataflow("once")
    made = flow.from_arrow(stream)
    assert stream.reads == 1
    made.collect("x")
    flow.run(runtime="local")
    flow.run(runtime="local", parallelism=2)
    assert stream.reads == 1


@pytest.mark.parametrize("epoch", [None, "e"])
def test_frames_have_epochs_and_schemas_as_tables_have(epoch: str | None) -> None:
    data: dict[str, Any] = {"e": [1, 0], "s": ["x", "y"]}
    expected = [(0, {"e": 0, "s": "y"}), (1, {"e": 1, "s": "x"})] if epoch else [(0, {"e": 1, "s": "x"}), (0, {"e": 0, "s": "y"})]
    for make in (
        lambda flow: flow.from_pandas(pd.DataFrame(data), epoch=epoch, name="n", parts=1),
        lambda flow: flow.from_polars(pl.DataFrame(data), epoch=epoch, name="n", parts=1),
        lambda flow: flow.from_polars(pl.LazyFrame(data), epoch=epoch, name="n", batch_rows=1, parts=1),
        lambda flow: flow.from_arrow(pl.DataFrame(data), epoch=epoch, name="n", parts=1),
    ):
        assert rows(make) == expected
        stream = make(rd.Dataflow("schema"))
        assert stream.schema == pa.schema({"e": pa.int64(), "s": pa.string()})
        assert stream.name == "n"


def test_records_in_memory_may_be_frames() -> None:
    frame = pd.DataFrame({"a": [1]})
    assert rows(lambda flow: flow.from_items(frame)) == [(0, {"a": 1})]
    assert rows(lambda flow: flow.from_epochs([frame, pl.DataFrame({"a": [2]})])) == [(0, {"a": 1}), (1, {"a": 2})]
    flow = rd.Dataflow("sent")
    flow.input("in").collect("x")
    job = flow.submit(runtime="local")
    with job.input("in") as sent:
        sent.send(frame)
    assert job.wait()["x"] == [(rd.Timestamp(0), {"a": 1})]


def test_named_levels_of_an_index_are_columns_and_numbers_of_rows_are_left_out() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert rows(lambda flow: flow.from_pandas(frame[frame.a > 2])) == [(0, {"a": 3})]
    assert rows(lambda flow: flow.from_pandas(frame[:1].set_index(pd.Index(["x"], name="k")))) == [(0, {"k": "x", "a": 1})]
    levels = pd.MultiIndex.from_tuples([(1, "x")], names=["p", "q"])
    assert rows(lambda flow: flow.from_pandas(frame[:1].set_index(levels))) == [(0, {"p": 1, "q": "x", "a": 1})]
    unnamed = told(lambda flow: flow.from_pandas(frame.set_index(pd.Index(["x", "y", "z"]))))
    assert unnamed == (
        "from_pandas: the index of the DataFrame, ['x', 'y', 'z'] ..., has no name, so no column can be made of it: name it by "
        "x.rename_axis('key'), or leave it out by x.reset_index(drop=True)"
    )
    assert "they must be strings that differ" in told(lambda flow: flow.from_pandas(frame.set_index(pd.Index([7, 8, 9], name="a"))))


def test_missing_values_of_pandas_are_null_and_whole_numbers_stay_whole() -> None:
    frame = pd.DataFrame({"f": [0.5, np.nan], "o": ["x", np.nan], "i": pd.array([2**60, None], "Int64"), "t": [pd.Timestamp(1), pd.NaT]})
    assert rows(lambda flow: flow.from_pandas(frame)) == [
        (0, {"f": 0.5, "o": "x", "i": 2**60, "t": pd.Timestamp(1)}),
        (0, {"f": None, "o": None, "i": None, "t": None}),
    ]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f.from_pandas(pd.DataFrame({"a": [1, "x"]})), "column 'a' holds int and str, which have no type in common"),
        (
            lambda f: f.from_pandas(pd.DataFrame({"a": pd.Series([2**53 + 1, 0.5], dtype=object)})),
            "column 'a' cannot hold 9007199254740993",
        ),
        (lambda f: f.from_pandas(pd.DataFrame({"a": [1j]})), "column 'a' of dtype complex128"),
        (lambda f: f.from_pandas(pd.DataFrame({"a": pd.period_range("2020-01", periods=2, freq="M")})), "column 'a' of dtype period[M]"),
        (lambda f: f.from_pandas(pd.DataFrame([[1]])), "columns [0]: they must be strings that differ, rename them"),
        (lambda f: f.from_polars(pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)})), "column 'a' of dtype Object"),
        (lambda f: f.from_polars(pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)})), "column 'a' of dtype Int128"),
        (lambda f: f.from_pandas(pd.Series([1])), "got a Series, which is one column: give x.to_frame(name='value')"),
        (lambda f: f.from_pandas(pl.DataFrame({"a": [1]})), "got a polars.DataFrame; it takes a pandas.DataFrame: use flow.from_polars(x)"),
        (lambda f: f.from_polars(pd.DataFrame({"a": [1]})), "it takes a polars.DataFrame or LazyFrame: use flow.from_pandas(x)"),
        (lambda f: f.from_polars([1]), "got a builtins.list; it takes a polars.DataFrame or LazyFrame: for records use flow.from_items(x)"),
        (lambda f: f.from_arrow(pa.array([1])), "which is one column without a name: give pyarrow.table({'value': x})"),
        (lambda f: f.from_arrow(pl.Series([1])), "got a Series, which is one column: give x.to_frame(name='value')"),
        (lambda f: f.from_arrow([1]), "item 0 is a int; give a pyarrow.Table"),
        (lambda f: f.from_items(pd.Series([1])), "items is a Series: give x.tolist()"),
        (lambda f: f.from_pandas(pd.DataFrame({"a": [1]}), epoch="b"), "epoch='b' names 0 columns"),
    ],
)
def test_what_cannot_be_taken_as_it_is_is_refused_by_name(make: Callable[[rd.Dataflow], Any], words: str) -> None:
    assert words in told(make)


@pytest.mark.parametrize("kind", sorted(arrays.COLUMNS))
def test_every_type_that_pandas_gets_from_a_result_comes_back_the_same(kind: str) -> None:
    """Out as a frame and in again."""
    column = arrays.COLUMNS[kind]
    flow = rd.Dataflow("out")
    flow.from_arrow(pa.table({"x": column})).collect("x")
    frame = flow.run(runtime="local")["x"].to_pandas(dtype_backend="pyarrow")
    back = rd.Dataflow("in").from_pandas(frame)
    assert back.schema is not None
    assert back.schema.field("x").type == column.type
    back.collect("x")
    assert back.flow.run(runtime="local")["x"].to_arrow().column("x").to_pylist() == column.to_pylist()
