"""``rayad.testing.check_aggregator``: aggregations that keep the laws pass, also in columns; each planted defect is found by its law."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd
from rayad.testing import LawBroken, check_aggregator
from tests.testing.aggregations import GeometricMean, Spread, Whole

FLOATS = [1.5, 2.0, None, 1e-3, 7.25, 2.0, 9.0]
DAYS = [dt.datetime(2024, 2, day) for day in (3, 1, 28, 9)]


@pytest.mark.parametrize(
    ("make", "values", "kind"),
    [
        (GeometricMean, FLOATS, None),
        (Spread, FLOATS, None),
        (Spread, [3, None, -7, 2**40, 3, 1], pa.int64()),
        (Spread, [*DAYS, None], None),
        (Whole, [1, 2, None, 3, 4, 5, 6, 7], pa.int32()),
        (Whole, [2**62, 2**62, 2**62, 2**62, None, 2**62, 1], pa.int64()),  # the sum leaves 64 bits
        (Whole, [Decimal("1.25"), None, Decimal("-3.00"), Decimal("9.75")], pa.decimal128(9, 2)),
    ],
)  # fmt: skip
def test_an_aggregation_that_keeps_the_laws_passes(make: Any, values: list[Any], kind: Any) -> None:
    check_aggregator(make, values, kind=kind)


def test_it_stays_in_columns_running_in_windows_and_beside_others() -> None:
    flow = rd.Dataflow()
    batch = pa.record_batch({"k": [1, 2, 1], "t": [1, 2, 3], "v": [2.0, None, 8.0]})
    keyed = flow.from_epochs([batch, batch]).assign_timestamps("t", max_delay=9).key_by("k")
    side = keyed.window(rd.windows.tumbling(10))
    both: dict[str, Any] = {"mean": (GeometricMean(), "v"), "n": "count", "spread": (Spread(), "v")}
    for name, stream in {
        "alone": keyed.aggregate(GeometricMean(), "v"), "beside": keyed.aggregate(both), "windows": side.aggregate(both),
    }.items():  # fmt: skip
        stream.as_records().map_batches(lambda found: [type(found)]).collect(f"{name} form")
        stream.as_records().collect(name)
    result = flow.run(runtime="local", parallelism=2)
    assert {one for name in ("alone", "beside", "windows") for _, one in result[f"{name} form"]} == {pa.RecordBatch}
    alone = {(time.epoch, key): value for time, (key, value) in result["alone"]}
    assert alone == {(0, 1): pytest.approx(4.0), (0, 2): None, (1, 1): pytest.approx(4.0), (1, 2): None}
    one = {"mean": pytest.approx(4.0), "n": 4, "spread": 6.0}
    assert {key: value for _, (key, _, value) in result["windows"]} == {1: one, 2: {"mean": None, "n": 2, "spread": None}}


class NoOrder(Whole):
    def merge(self, left: Any, right: Any) -> Any:
        return left


class OtherAdd(Whole):
    def add(self, accumulator: Any, value: Any) -> Any:
        return accumulator


class NotAssociative(Whole):
    def merge(self, left: Any, right: Any) -> Any:
        return abs(left - right)


class Emptied(rd.Aggregator):
    def create(self, value: Any) -> Any:
        return [value]

    def merge(self, left: Any, right: Any) -> Any:
        return sorted(left + right)

    def result(self, accumulator: Any) -> Any:
        return accumulator.pop()


class OtherColumns(Whole):
    columns: ClassVar[dict[str, str]] = {"total": "sum"}

    def create_columns(self, values: pa.Array) -> dict[str, pa.Array]:
        return {"total": pc.add(values, 1)}


class OtherMerge(Whole):
    columns: ClassVar[dict[str, str]] = {"total": "max"}


class OtherResult(Whole):
    columns: ClassVar[dict[str, str]] = {"total": "sum"}

    def result_columns(self, columns: Any) -> pa.Array:
        return pc.add(columns["total"], 1)


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (NoOrder, "merge is commutative"),
        (OtherAdd, "add is merge with what create gives"),
        (NotAssociative, "merge is associative"),
        (Emptied, "result changes nothing"),
        (OtherColumns, "create_columns gives what create does"),
        (OtherMerge, "columns give what rows give"),
        (OtherResult, "columns give what rows give"),
    ],
)
def test_a_defect_is_found_by_the_law_that_it_breaks(make: Any, law: str) -> None:
    with pytest.raises(LawBroken, match=f"^{law}: "):
        check_aggregator(make, [5, 3, 8, 1, 9, 2, 7], kind=pa.int64())


def of_columns(made: Any) -> Any:
    class Odd(Whole):
        columns: ClassVar[dict[str, str]] = {"total": "sum"}

        def create_columns(self, values: pa.Array) -> Any:
            return made(values)

    return Odd


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda values: {"sum": values}, r"create_columns gave \['sum'\]: it must give a column for each of \['total'\]"),
        (lambda values: values, "create_columns gave a Int64Array of 3: it must give a column for each of"),
        (lambda values: {"total": values.slice(1)}, "gave a Int64Array of 2 for 'total' of 3 values: give a pyarrow.Array of that length"),
        (lambda values: {"total": values.cast("string")}, "a column of string for 'total', for which there is no sum in columns: cast it"),
    ],
)
def test_what_is_no_column_is_refused_with_what_to_do(made: Any, told: str) -> None:
    flow = rd.Dataflow()
    keyed = flow.from_epochs([pa.record_batch({"k": [1, 1, 2], "v": [1, 2, 3]})]).key_by("k")
    keyed.aggregate(of_columns(made)(), "v").collect("out")
    with pytest.raises(rd.DataflowError, match=told):
        flow.run(runtime="local")


def test_an_unknown_way_to_merge_is_refused_where_the_class_is_written() -> None:
    with pytest.raises(rd.DataflowError, match=r"Odd.columns has 'mean' for 'm': two of a column become one by \['max', 'min', 'sum'\]"):
        type("Odd", (Whole,), {"columns": {"m": "mean"}})


def test_a_subclass_that_does_not_say_its_columns_handles_rows() -> None:
    class Twice(Whole):
        def merge(self, left: Any, right: Any) -> Any:
            return super().merge(left, right)

    flow = rd.Dataflow()
    stream = flow.from_arrow(pa.table({"k": [1, 1], "v": [2, 3]}))
    assert Counter(Twice.partials) == Counter()
    stream.key_by("k").aggregate(Twice(), "v").collect("out")
    assert "aggregate handles rows" in flow.explain()
