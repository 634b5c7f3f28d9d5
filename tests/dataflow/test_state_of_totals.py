"""Snapshots of running totals: they hold only state, are compact, and increments hold only changes."""

from __future__ import annotations

import datetime as dt
import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from rayad.dataflow.operators.aggregates.aggregators import Count, Max, Mean, Min, Reduce, Several, Sum
from rayad.dataflow.operators.aggregates.collected import CollectList, CountDistinct
from rayad.dataflow.operators.aggregates.combiner import Combine
from rayad.dataflow.operators.aggregates.first_last import First, Last
from rayad.dataflow.operators.aggregates.sketches import ApproxCountDistinct, Quantile
from rayad.dataflow.operators.aggregates.top_k import TopK
from rayad.dataflow.operators.aggregates.truth import AllTrue, AnyTrue
from rayad.dataflow.operators.state import touched_keys
from rayad.dataflow.operators.totals.totals import Totals
from rayad.dataflow.records.batches import mark_keyed
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, whole_record
from rayad.progress import Timestamp
from tests.dataflow.driven import Driven, steps_with
from tests.testing.aggregations import Spread

BIG = 1 << 62


def last(left: Any, right: Any) -> Any:
    return max(left, right)


RECORD = ValueSelector(function=whole_record)
OF_TYPE: dict[str, tuple[pa.DataType, Any]] = {
    "max of moments": (pa.timestamp("us"), lambda v: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=v % (1 << 31))),
    "min of text": (pa.string(), str),
    "sum of decimals": (pa.decimal128(38, 2), lambda v: Decimal(f"{9 * 10**35 if v == BIG else v}.00")),
    "mean of decimals": (pa.decimal128(38, 2), lambda v: Decimal(f"{9 * 10**35 if v == BIG else v}.07")),
    "sum of durations": (pa.duration("us"), lambda v: dt.timedelta(microseconds=v)),
    "any": (pa.bool_(), lambda v: v > 1),
    "all": (pa.bool_(), lambda v: v > 1),
}
"""What the numbers of the steps become for aggregations of other types."""
AGGREGATORS: dict[str, Any] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "max": Max,
    "several": lambda: Several({"n": Count(), "low": Min(), "total": Sum()}, [ValueSelector(column=c) for c in ("v", "v", "v")]),
    "reduce": lambda: Reduce(lambda a, b: last(a, b)),
    "reduce by max": lambda: Reduce(max),
    "reduce by addition": lambda: Reduce(operator.add),
    "top_k": lambda: TopK(2, by=lambda value: -value),
    "max of moments": Max,
    "min of text": Min,
    "sum of decimals": Sum,
    "mean of decimals": Mean,
    "sum of durations": Sum,
    "any": AnyTrue,
    "all": AllTrue,
    "count_distinct": CountDistinct,
    "collect_list": CollectList,
    "quantile": lambda: Quantile(0.5),
    "approx_count_distinct": ApproxCountDistinct,
    "last": lambda: Last(ValueSelector(function=lambda v: None if v is None else v % 3), ValueSelector(function=lambda v: v)),
    "top_k of values": lambda: TopK(2),
    "spread": Spread,
    "top_k by place": lambda: TopK(2, by="place"),
    "first by place": lambda: First(ValueSelector(column="place"), ValueSelector(column="v")),
    "several by place": lambda: Several(
        {"low": Last(ValueSelector(column="place"), RECORD), "n": Count(), "total": Sum()}, [RECORD, RECORD, ValueSelector(column="v")]
    ),
}
KEYS = {"numbers": [*range(20), -1, 99], "names": [*"abcdefghijklmnopqrst", None, "ü"]}
VALUES = st.sampled_from([0, 1, 2, 7, -3, None])
NUMBERED = pa.schema([("k", pa.int64()), ("v", pa.int64())])
NAMED = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)


def combined(aggregator: Any, records: list[Any], schema: pa.Schema | None, name: str = "") -> tuple[int, Any]:
    """Records combined as a sender does it: pairs, or columns if a schema is given and the aggregation works on columns."""
    value = ValueSelector(function=lambda row: (row["v"],) * 3) if isinstance(aggregator, Several) else ValueSelector(column="v")
    if "by place" in name:
        value = ValueSelector(function=_record_and_value) if isinstance(aggregator, Several) else RECORD
    element = Combine(KeySelector(columns=("k",)), value, aggregator)
    if name in OF_TYPE:
        kind, made = OF_TYPE[name]
        records = [(k, None if v is None else made(v)) for k, v in records]
        schema = None if schema is None else schema.set(1, pa.field("v", kind))
    takes_null = schema is not None and not isinstance(aggregator, Reduce)
    rows = [{"k": k, "v": v} for k, v in records if takes_null or v is not None]
    if "by place" in name:
        rows = [{**row, "place": None if row["v"] is None else row["v"] % 3} for row in rows]
        schema = None if schema is None else schema.append(pa.field("place", pa.int64()))
    return 0, element.apply(rows if schema is None else pa.RecordBatch.from_pylist(rows, schema=schema))


def _record_and_value(row: Any) -> Any:
    return row, row, row["v"]


def steps(name: str, keys: str, columns: bool, rows: bool) -> st.SearchStrategy[Any]:
    aggregator, schema = AGGREGATORS[name](), NUMBERED if keys == "numbers" else NAMED
    schema = schema if aggregator.partials and columns else None
    values = st.one_of(VALUES, VALUES, VALUES, VALUES, st.just(BIG)) if columns and rows else VALUES
    records = st.lists(st.tuples(st.sampled_from(KEYS[keys]), values), min_size=1, max_size=6)
    of_columns = records.map(lambda some: combined(aggregator, some, schema, name))
    of_rows = records.map(lambda some: combined(aggregator, some, None, name))
    kinds = [of_columns] * 5 * columns + [of_rows] * rows
    made = st.one_of(*kinds).filter(lambda batch: len(batch[1]) > 0)
    return steps_with(made, first=[combined(aggregator, [(key, 1) for key in KEYS[keys][:16]], schema, name)])


FOLDED = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), max_size=3).map(lambda rows: (0, rows))


def sums_of(rows: bool, keys: Any) -> Any:
    if rows:
        return [(int(key), 1) for key in keys]
    values = {"k": np.asarray(keys, np.int64), "sum(v)": np.ones(len(keys), np.int64), "count(v)": np.ones(len(keys), np.int64)}
    return mark_keyed(pa.record_batch(values), 1)


@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
def test_the_size_of_a_snapshot_grows_with_the_changes(rows: bool) -> None:
    run = Driven(lambda: Totals(Sum()))
    sizes = []
    for epoch, keys in enumerate([range(20_000), [3, 5], [3, 99_999], range(15_000), range(7)]):
        run.step(("recv", 0, sums_of(rows, keys), Timestamp(epoch)))
        run.step(("notify",))
        run.snapshot()
        sizes.append((len(run.chain), len(run.chain[-1])))
    full = sizes[0][1]
    assert [parts for parts, _ in sizes] == [1, 2, 3, 4, 5]
    if rows:
        assert full <= 20_000 * 8
        assert full // 6 < sizes[3][1] < full // 2  # most keys: all totals, but no keys
    else:
        assert full <= 20_000 * 4 + 4_000  # keys in two bytes, totals in one each
        assert full // 4 < sizes[3][1] < 3 * full // 4
    assert all(size < full // 25 for size in (sizes[1][1], sizes[2][1], sizes[4][1]))


def test_a_switch_to_rows_is_written_in_full() -> None:
    run = Driven(lambda: Totals(Sum()))
    for epoch, batch in enumerate([sums_of(False, range(100)), sums_of(False, [1]), sums_of(True, [2]), sums_of(True, [3])]):
        run.step(("recv", 0, batch, Timestamp(epoch)))
        run.step(("notify",))
        run.snapshot()
        assert len(run.chain) == [1, 2, 1, 2][epoch]


def test_totals_without_snapshots_remember_no_changed_keys() -> None:
    run = Driven(lambda: Totals(Sum()))
    for epoch in range(50):
        run.step(("recv", 0, sums_of(epoch > 25, range(100)), Timestamp(epoch)))
        run.step(("notify",))
    assert isinstance(run.vertex, Totals)
    assert run.vertex.totals.rows._stored._touched.take() is None


def test_a_sum_beyond_64_bits_beside_another_aggregation_finds_room_for_new_keys() -> None:
    """The conversion to rows failed when the first column of totals had grown for new keys and overflowed, before the others had grown."""
    run = Driven(lambda: Totals(Several({"total": Sum(), "n": Count()}, [ValueSelector(column="v")] * 2)))
    for epoch, keys in enumerate([range(2), range(3_000)]):
        ones = np.ones(len(keys), np.int64)
        columns = {"k": np.arange(len(keys)), "s": BIG * ones, "c": ones, "n": ones}
        run.step(("recv", 0, mark_keyed(pa.record_batch(columns), 1), Timestamp(epoch)))
        run.step(("notify",))
    assert isinstance(run.vertex, Totals)
    assert run.vertex.totals.rows.kept[1] == [2 * BIG, 2]
    assert len(run.vertex.totals.rows.kept) == 3_000
