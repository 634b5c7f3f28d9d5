"""``map_batches``: the forms in which it gives a batch, and those that it takes back; values are the same or refused."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.map_batches import FORMATS, as_batch, in_form
from rayad.dataflow.records.batches import to_rows
from tests.every_type.arrays import COLUMNS
from tests.every_type.exact import counted

ROWS = [{"k": "a", "x": 1, "y": 0.5}, {"k": "b", "x": 2, "y": 1.5}, {"k": None, "x": 3, "y": -2.0}]
NUMBERS = {"bool", "float16", "float32", "float64", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}
REFUSED = {
    "numpy": NUMBERS | {"map", "sparse_union", "dense_union", "timestamp[ns, UTC]"},
    "polars": {"decimal256(76, 20)", "month_day_nano_interval", "sparse_union", "dense_union", "run_end_encoded", "list_view"}
    | {"large_list_view", "uuid", "bool8", "json", "map"},
}
if pa.__version__ < "22":  # it infers no type for Python's UUIDs
    REFUSED["numpy"].add("uuid")
"""Types with nulls that a form does not hold; the columns of ``COLUMNS`` have some."""


def gave(function: Any, records: Any = ROWS, **options: Any) -> Any:
    flow = rd.Dataflow("batches")
    stream = flow.from_arrow(records) if isinstance(records, pa.Table) else flow.from_items(records)
    stream.map_batches(function, **options).collect("out")
    return [record for _, record in flow.run(runtime="local")["out"]]


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("of", ["rows", "columns"])
def test_each_form_gives_back_what_it_was_given(batch_format: str, of: str) -> None:
    seen = []

    def passed_on(batch: Any) -> Any:
        seen.append(type(batch))
        return batch

    assert gave(passed_on, pa.Table.from_pylist(ROWS) if of == "columns" else ROWS, batch_format=batch_format) == ROWS
    wanted = {"rows": list, "pyarrow": pa.RecordBatch, "numpy": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame}
    assert set(seen) == {wanted[batch_format]}


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_values_of_every_type_are_the_same_or_refused(kind: str, batch_format: str) -> None:
    batch = pa.record_batch({"x": COLUMNS[kind]})
    if kind in REFUSED.get(batch_format, ()) or (batch_format in ("rows", "numpy") and not _has_python(batch)):
        with pytest.raises(rd.DataflowError, match="'x'"):
            as_batch(in_form(batch, batch_format))
        return
    given = in_form(batch, batch_format)
    back = as_batch(given)
    if isinstance(back, pa.RecordBatch) and back.column("x").equals(batch.column("x")):
        return
    assert counted(to_rows(back), near=False) == counted(to_rows(batch), near=False), (back.schema, given)


def _has_python(batch: pa.RecordBatch) -> bool:
    """Whether Python's objects can hold it: they have no nanoseconds."""
    try:
        to_rows(batch)
    except rd.DataflowError:
        return False
    return True


def test_numbers_with_nulls() -> None:
    table = pa.table({"x": pa.array([2**53 + 1, None], pa.int64()), "yes": [True, None]})
    frame = in_form(table.to_batches()[0], "pandas")
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "boolean"]
    assert gave(lambda frame: frame.assign(x=frame.x + 1), table, batch_format="pandas") == [
        {"x": 2**53 + 2, "yes": True},
        {"x": None, "yes": None},
    ]
    with pytest.raises(rd.DataflowError, match=r"column 'x', int64, has 1 nulls, which a numpy array of numbers cannot hold"):
        gave(lambda batch: batch, table, batch_format="numpy")


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.list_(pa.float64()), pa.struct([("x", pa.float64())])])
@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("values", [[1.5, -0.0], [1.5, float("nan")], [1.5, None], [float("nan"), None], [float("nan")], [None]])
def test_nan_and_null_are_two_things(values: list[Any], batch_format: str, kind: pa.DataType) -> None:
    """In pandas NaN became null, without a word."""
    inner = {"list": [values], "struct": [{"x": value} for value in values]}.get(str(kind)[: str(kind).find("<")], values)
    table = pa.table({"v": pa.array(inner, kind)})
    if batch_format == "numpy" and None in inner and pa.types.is_floating(kind):
        with pytest.raises(rd.DataflowError, match=f"column 'v', {kind}, has 1 nulls"):
            gave(lambda batch: batch, table, batch_format=batch_format)
    else:
        assert repr(gave(lambda batch: batch, table, batch_format=batch_format)) == repr(table.to_pylist())


def test_nan_of_pandas_own_floats_is_null_as_pandas_means_it() -> None:
    found = gave(lambda frame: frame.assign(y=frame.v.where(frame.v > 1)), pa.table({"v": [1.5, 0.5]}), batch_format="pandas")
    assert found == [{"v": 1.5, "y": 1.5}, {"v": 0.5, "y": None}]


def test_arrays_of_two_dimensions_are_lists_of_one_length() -> None:
    def scored(batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["v"].shape == (len(batch["v"]), 2)
        return {"sum": batch["v"].sum(axis=1), "outer": np.stack([batch["v"], -batch["v"]], axis=1)}

    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0]), 2)
    assert gave(scored, pa.table({"v": vectors}), batch_format="numpy") == [
        {"sum": 3.0, "outer": [[1.0, 2.0], [-1.0, -2.0]]},
        {"sum": 7.0, "outer": [[3.0, 4.0], [-3.0, -4.0]]},
    ]


def test_an_array_that_the_function_uses_again_is_not_shared() -> None:
    class Doubled:
        def __init__(self) -> None:
            self.out = np.empty(2, np.int64)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            np.multiply(batch["x"], 2, out=self.out)
            return {"x": self.out}

    flow = rd.Dataflow("again")
    items = [{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]
    flow.from_items(items, batch_rows=2).map_batches(Doubled, batch_format="numpy").collect("out")
    assert sorted(record["x"] for _, record in flow.run(runtime="local")["out"]) == [2, 4, 6, 8]


def test_times_come_as_the_types_that_hold_them() -> None:
    moment = dt.datetime(2024, 2, 28, 12, tzinfo=dt.UTC)
    table = pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC")), "day": [moment.date()], "plain": [moment.replace(tzinfo=None)]})
    arrays = in_form(table.to_batches()[0], "numpy")
    assert arrays["at"].tolist() == [moment]
    assert (arrays["day"].dtype, arrays["plain"].dtype) == (np.dtype("M8[D]"), np.dtype("M8[us]"))


def test_a_class_is_made_with_its_arguments_once_in_each_replica() -> None:
    class Scaled:
        def __init__(self, factor: int, *, plus: int = 0) -> None:
            self.factor, self.plus = factor, plus

        def __call__(self, batch: Any) -> Any:
            return batch.assign(x=batch.x * self.factor + self.plus)[["x"]]

    options: dict[str, Any] = {"fn_constructor_args": (10,), "fn_constructor_kwargs": {"plus": 1}}
    assert gave(Scaled, batch_format="pandas", **options) == [{"x": 11}, {"x": 21}, {"x": 31}]
    with pytest.raises(rd.DataflowError, match=r"Scaled is made once in each replica, .*: missing a required argument: 'factor'"):
        gave(Scaled, batch_format="pandas")
    with pytest.raises(rd.DataflowError, match="arguments of a constructor are for a class"):
        gave(lambda batch: batch, fn_constructor_args=(1,))
    with pytest.raises(rd.DataflowError, match="give a tuple and a dict"):
        gave(Scaled, fn_constructor_args="path")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda batch: {"x": np.zeros(2), "y": np.zeros(3)}, "each must have the same number of rows"),
        (lambda batch: {1: np.zeros(3)}, "names of columns must be strings"),
        (lambda batch: {"x": np.zeros(3, np.complex128)}, "as an array of complex128, which Arrow cannot hold"),
        (lambda batch: {"x": [1, 2]}, "for columns give pyarrow.table(x)"),
    ],
)
def test_what_is_no_batch_is_refused(function: Any, told: str) -> None:
    with pytest.raises(rd.DataflowError, match=re.escape(told)):
        gave(function)


def test_a_form_that_there_is_not() -> None:
    with pytest.raises(rd.DataflowError, match=r"batch_format is 'numpyy': it must be 'rows', 'pyarrow', 'numpy', 'pandas' or 'polars'"):
        gave(lambda batch: batch, batch_format="numpyy")
    with pytest.raises(rd.DataflowError, match=r"2 records do not fit one type per column: column 'x' holds int and str"):
        gave(lambda batch: batch, [{"x": 1}, {"x": "a"}], batch_format="pandas")


def test_records_that_fail_are_set_aside_in_every_form() -> None:
    def inverse(batch: Any) -> Any:
        if 2 in list(batch["x"]):
            raise ZeroDivisionError("two")
        return batch

    for batch_format in ("numpy", "pandas", "polars", "pyarrow"):
        flow = rd.Dataflow("aside")
        kept = flow.from_items(ROWS).map_batches(
            (lambda batch: inverse(batch.to_pydict()) and batch) if batch_format == "pyarrow" else inverse,
            batch_format=batch_format,  # type: ignore[arg-type]
            on_error="skip",
        )
        kept.collect("out")
        kept.errors.map(lambda one: one["record"]["x"]).collect("bad")
        found = flow.run(runtime="local")
        assert [[row["x"] for _, row in found["out"]], [x for _, x in found["bad"]]] == [[1, 3], [2]]
