"""Bugs of keyed operators and their columnar forms. One test per bug, named after it."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.aggregates.aggregators import Sum


def both(rows: list[list[dict[str, Any]]], schema: pa.Schema, build: Any, parallelism: int = 2) -> tuple[list[Any], list[Any]]:
    """The results from rows and from columns."""
    out = []
    for epochs in (rows, [pa.RecordBatch.from_pylist(r, schema=schema) for r in rows]):
        flow = rd.Dataflow()
        build(flow.from_epochs(epochs)).collect("out")
        out.append(sorted(flow.run(runtime="local", parallelism=parallelism)["out"], key=repr))
    return out[0], out[1]


def test_negative_zero_is_the_key_zero_in_columns() -> None:
    """Arrow groups -0.0 and 0.0 apart; then there were two rows for one slot, and one of them was lost."""
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    rows, columns = both([[{"k": 0.0, "v": 1}, {"k": -0.0, "v": 2}]], schema, lambda s: s.key_by("k").sum("v"))
    assert rows == columns == [(rd.Timestamp(0), (0.0, 3))]


@pytest.mark.parametrize("per_epoch", [False, True])
def test_integer_sums_do_not_wrap_around(per_epoch: bool) -> None:
    """Arrow's and numpy's sums wrap around beyond 64 bits, within one batch and from one epoch to the next; Python's do not."""
    big = 2**62
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    epochs = [
        [{"k": "a", "v": big}],
        [{"k": "a", "v": big}, {"k": "b", "v": 1}],
        [{"k": "a", "v": big}, {"k": "a", "v": big}, {"k": "b", "v": 1}],
    ]

    def build(stream: rd.Stream) -> rd.Stream:
        keyed: Any = stream.key_by("k").window(rd.windows.per_epoch()) if per_epoch else stream.key_by("k")
        return keyed.sum("v")  # type: ignore[no-any-return]

    rows, columns = both(epochs, schema, build)
    assert rows == columns
    assert max(r[1][-1] for r in rows) == (2 * big if per_epoch else 4 * big)


def test_nan_is_passed_over_by_min_and_max() -> None:
    """The result over rows depended on their order, and the result over columns was another one."""
    schema = pa.schema([("k", pa.string()), ("v", pa.float64())])
    epochs = [[{"k": "a", "v": math.nan}, {"k": "a", "v": 1.0}, {"k": "a", "v": math.nan}, {"k": "b", "v": math.nan}]]
    for how, value in (("min", 1.0), ("max", 1.0)):
        rows, columns = both(epochs, schema, lambda s, how=how: getattr(s.key_by("k"), how)("v"))
        assert repr(rows) == repr(columns) == f"[(Timestamp(0), ('a', {value})), (Timestamp(0), ('b', nan))]"


def test_a_key_column_may_be_called_count() -> None:
    """The column with the counts got the same name, and the exchange could not tell the two apart."""
    schema = pa.schema([("count", pa.string()), ("v", pa.int64())])
    rows, columns = both([[{"count": "a", "v": 5}], [{"count": "a", "v": 6}]], schema, lambda s: s.key_by("count").count())
    assert rows == columns == [(rd.Timestamp(0), ("a", 1)), (rd.Timestamp(1), ("a", 2))]


def test_dictionary_columns_with_different_dictionaries_meet() -> None:
    """Arrow cannot group chunks whose dictionaries differ."""
    batches = [
        pa.record_batch({"k": pa.array(["a", "b"]).dictionary_encode(), "v": [1, 2]}),
        pa.record_batch({"k": pa.array(["b", "c"]).dictionary_encode(), "v": [3, 4]}),
    ]
    flow = rd.Dataflow()
    union = flow.from_epochs([batches[0]]).union(flow.from_epochs([batches[1]]))
    union.key_by("k").sum("v").collect("out")
    assert sorted(r for _, r in flow.run(runtime="local", parallelism=2)["out"]) == [("a", 1), ("b", 5), ("c", 4)]


class Gather(rd.Aggregator):
    """A user's aggregation that changes its accumulator in place and emits it."""

    name = "count"  # also the name of a built-in one

    def create(self, value: Any) -> Any:
        return [value]

    def merge(self, left: Any, right: Any) -> Any:
        left.extend(right)
        return left


def test_an_emitted_value_does_not_change_when_the_state_changes() -> None:
    """The local runtime emitted the accumulator itself, and later epochs changed it."""
    flow = rd.Dataflow()
    keyed = flow.from_epochs([[1], [2], [3]]).key_by(lambda n: 0)
    keyed.aggregate(Gather(), lambda n: n).collect("aggregate")
    keyed.fold([], lambda state, n: (state.append(n), state)[1], lambda n: n).collect("fold")
    keyed.stateful_map(lambda state, n: (state.append(n), (state, state))[1], []).collect("map")
    result = flow.run(runtime="local")
    expected = [(rd.Timestamp(0), (0, [1])), (rd.Timestamp(1), (0, [1, 2])), (rd.Timestamp(2), (0, [1, 2, 3]))]
    assert result["aggregate"] == result["fold"] == result["map"] == expected


def test_keys_do_not_share_an_initial_state() -> None:
    """stateful_map gave every key the same list, fold a shallow copy."""
    flow = rd.Dataflow()
    keyed = flow.from_items([1, 2, 3]).key_by(lambda n: n)
    keyed.stateful_map(lambda state, n: (state.append(n), (state, len(state)))[1], []).collect("map")
    keyed.fold({"seen": []}, lambda state, n: (state["seen"].append(n), state)[1], lambda n: n).collect("fold")
    result = flow.run(runtime="local")
    assert sorted(r for _, r in result["map"]) == [(1, 1), (2, 1), (3, 1)]
    assert sorted(r for _, r in result["fold"]) == [(n, {"seen": [n]}) for n in (1, 2, 3)]


class Absolute(Sum):
    def create(self, value: Any) -> Any:
        return abs(value)


def test_a_subclass_of_a_built_in_aggregation_is_not_taken_for_it() -> None:
    """Columns were summed by Arrow, and the create() of the subclass was never called."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    rows, columns = both([[{"k": "a", "v": -5}, {"k": "a", "v": 3}]], schema, lambda s: s.key_by("k").aggregate(Absolute(), "v"))
    assert rows == columns == [(rd.Timestamp(0), ("a", 8))]


def test_windows_of_times_with_a_zone_are_the_same_from_rows_and_columns() -> None:
    """Over rows, windows began at local midnight and followed local time; over columns they began at midnight UTC."""
    zone = ZoneInfo("America/New_York")
    times = [dt.datetime(2024, 3, 9, 22, tzinfo=zone), dt.datetime(2024, 3, 10, 22, tzinfo=zone)]
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "America/New_York"))])
    day = rd.windows.tumbling(dt.timedelta(days=1))
    rows, columns = both([[{"k": "a", "t": t} for t in times]], schema, lambda s: s.assign_timestamps("t").key_by("k").window(day).count())
    starts = [dt.datetime(2024, 3, 10, tzinfo=dt.UTC), dt.datetime(2024, 3, 11, tzinfo=dt.UTC)]
    for result in (rows, columns):
        assert sorted(r for _, r in result) == [("a", rd.Window(start, start + dt.timedelta(days=1)), 1) for start in starts]


def test_many_diamonds_in_a_row_do_not_double_the_plan_each_time() -> None:
    """Each union of a stream with itself copied all operators behind it."""
    flow = rd.Dataflow()
    stream = flow.from_items([1])
    for _ in range(40):
        stream = stream.union(stream.filter(lambda n: False))
    stream.collect("out")
    plan = flow.plan()
    assert len(plan.edges) < 100
    assert [n for _, n in flow.run(runtime="local")["out"]] == [1]
