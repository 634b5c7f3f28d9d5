"""Aggregates of values of every type: rows and columns give what the definition gives, and columns stay columns where they can."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.aggregates.top_k import TopK
from tests.every_type.exact import form
from tests.thorough import by_turns, examples

MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
SPANS = st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5))


def _decimals(digits: int, places: int) -> Any:
    return st.integers(1 - 10**digits, 10**digits - 1).map(
        lambda n: Decimal(n).scaleb(-places) if digits < 28 else Decimal(f"{n}e-{places}")
    )


TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int64(), st.integers(-(2**62), 2**62)),
    "bool": (pa.bool_(), st.booleans()),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32": (pa.time32("s"), st.times().map(lambda at: at.replace(microsecond=0))),
    "time64": (pa.time64("us"), st.times()),
    "timestamp[s]": (pa.timestamp("s"), MOMENTS.map(lambda at: at.replace(microsecond=0))),
    "timestamp[us]": (pa.timestamp("us"), MOMENTS),
    "timestamp[us, UTC]": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda at: at.replace(tzinfo=dt.UTC))),
    "duration[s]": (pa.duration("s"), st.integers(-(10**9), 10**9).map(lambda n: dt.timedelta(seconds=n))),
    "duration[us]": (pa.duration("us"), SPANS),
    "decimal32": (pa.decimal32(9, 2), _decimals(9, 2)),
    "decimal64": (pa.decimal64(18, 0), _decimals(18, 0)),
    "decimal128": (pa.decimal128(38, 4), _decimals(38, 4)),
    "decimal256": (pa.decimal256(60, 5), _decimals(60, 5)),
    "string": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=3)),
    "large_string": (pa.large_string(), st.text("aü€😀", max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "fixed binary": (pa.binary(2), st.binary(min_size=2, max_size=2)),
}
SUMMED = {"int", "bool", "duration[s]", "duration[us]", "decimal32", "decimal64", "decimal128", "decimal256"}


def known(records: list[Any]) -> list[Any]:
    return [record["v"] for record in records if record["v"] is not None]


def total(records: list[Any]) -> Any:
    values = known(records)
    with localcontext(prec=200):
        return sum(values[1:], start=int(values[0]) if isinstance(values[0], bool) else values[0]) if values else None


def mean(records: list[Any]) -> Any:
    """Of decimals half to even, to 28 digits or as many as the sum has."""
    together = total(records)
    if not isinstance(together, Decimal):
        return together if together is None else together / len(known(records))
    with localcontext(prec=max(28, len(together.as_tuple().digits)), rounding=ROUND_HALF_EVEN):
        return together / len(known(records))


def at_end(last: bool) -> Callable[[list[Any]], Any]:
    """By time, of equal times by the ``repr`` of the value."""

    def result(records: list[Any]) -> Any:
        placed = sorted((record["t"], repr(record["v"]), i) for i, record in enumerate(records) if record["v"] is not None)
        return records[placed[-1 if last else 0][2]]["v"] if placed else None

    return result


ANSWERS: dict[str, Callable[[list[Any]], Any]] = {
    "mean": mean,
    "min": lambda records: min(known(records), default=None),
    "max": lambda records: max(known(records), default=None),
    "sum": total,
    "any": lambda records: any(known(records)) if known(records) else None,
    "all": lambda records: all(known(records)) if known(records) else None,
    "count_distinct": lambda records: len(set(known(records))),
    "first": at_end(False),
    "last": at_end(True),
    "collect_list": lambda records: sorted(known(records), key=repr),
    "top_k": lambda records: sorted(sorted(known(records), key=repr), reverse=True)[:2],
}
HOW: dict[str, Any] = {"top_k": TopK(2)}
"""What aggregations are called that take more than a value."""


def words(kind: str) -> list[str]:
    left_out = set() if kind == "bool" else {"any", "all"}
    if not kind.startswith(("duration", "decimal")):  # of numbers: test_sums.py
        left_out.add("mean")
    return [word for word in ANSWERS if word not in left_out and (word != "sum" or kind in SUMMED)]


def records_of(kind: str) -> Any:
    record = st.fixed_dictionaries({"k": st.none() | st.integers(0, 2), "t": st.integers(0, 30), "v": st.none() | TYPES[kind][1]})
    return st.lists(st.lists(record, min_size=1, max_size=8), min_size=1, max_size=3)


def in_one_order(values: dict[str, Any]) -> Any:
    """Results in a form that tells kinds and last digits apart; of a list the order is that of arrival."""
    return form({word: sorted(value, key=repr) if isinstance(value, list) else value for word, value in values.items()})


@by_turns(3)
@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("kind", TYPES)
@examples(each_run=3, soak=8)
@given(data=st.data(), parallelism=st.integers(1, 3))
def test_every_word_equals_its_definition(kind: str, columnar: bool, data: st.DataObject, parallelism: int) -> None:
    epochs = data.draw(records_of(kind))
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", TYPES[kind][0])])
    batches = [pa.RecordBatch.from_pylist(rows, schema=schema) for rows in epochs]
    flow = rd.Dataflow()
    source = flow.from_epochs(batches if columnar else [batch.to_pylist() for batch in batches], parts=2)
    keyed = source.assign_timestamps("t", max_delay=99).key_by("k")
    for word in words(kind):
        keyed.aggregate(HOW.get(word, word), "v").collect(word)
    keyed.window(rd.windows.tumbling(10)).aggregate({word: (HOW.get(word, word), "v") for word in words(kind)}).collect("windows")
    keyed.window(rd.windows.session(3)).aggregate({word: (word, "v") for word in ("min", "max")}).collect("sessions")
    result = flow.run(runtime="local", parallelism=parallelism, seed=parallelism)

    so_far: dict[Any, list[Any]] = defaultdict(list)
    running: dict[Any, Any] = {}
    of_windows: dict[Any, list[Any]] = defaultdict(list)
    for epoch, rows in enumerate(batch.to_pylist() for batch in batches):
        for row in rows:
            so_far[row["k"]].append(row)
            of_windows[row["k"], row["t"] // 10 * 10].append(row)
        for key in {row["k"] for row in rows}:
            for word in words(kind):
                running[word, epoch, key] = in_one_order({word: ANSWERS[word](so_far[key])})
    found = {(word, at.epoch, key): in_one_order({word: value}) for word in words(kind) for at, (key, value) in result[word]}
    assert found == running
    windows = {(key, window.start): in_one_order(values) for _, (key, window, values) in result["windows"]}
    expected = {at: in_one_order({word: ANSWERS[word](rows) for word in words(kind)}) for at, rows in of_windows.items()}
    assert windows == expected
    ends: dict[Any, list[Any]] = defaultdict(list)
    for _, (key, _, values) in result["sessions"]:
        ends[key].append(values)
    assert ends.keys() == so_far.keys()
    for key, rows in so_far.items():
        for word, pick in (("min", min), ("max", max)):
            assert pick((one[word] for one in ends[key] if one[word] is not None), default=None) == ANSWERS[word](rows)


@by_turns(3)
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        *((kind, word) for kind in TYPES for word in ("min", "max")),
        *((kind, "sum") for kind in sorted(SUMMED - {"decimal256"})),
        *((kind, "mean") for kind in ("bool", "duration[s]", "duration[us]", "decimal32", "decimal64", "decimal128")),
        ("bool", "any"),
        ("bool", "all"),
        *((kind, word) for kind in TYPES for word in ("first", "last", "count_distinct", "collect_list", "top_k")),
    ],
)
def test_what_stays_in_columns(kind: str, word: str) -> None:
    few = {"bool": [True, False], "int": [1, 2], "fixed binary": [b"ab", b"cd"]}
    values = few.get(kind) or [pa.scalar(v, TYPES[kind][0]).as_py() for v in _two_of(kind)]
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", TYPES[kind][0])])
    rows = [{"k": i % 2, "t": i, "v": v} for i, v in enumerate([*values, None, *values])]
    flow = rd.Dataflow()
    source = flow.from_epochs([pa.RecordBatch.from_pylist(rows, schema=schema)] * 2).assign_timestamps("t", max_delay=99)
    for how, keyed in (
        ("running", source.key_by("k")),
        ("epochs", source.key_by("k").window(rd.windows.per_epoch())),
        ("tumbling", source.key_by("k").window(rd.windows.tumbling(2))),
        ("session", source.key_by("k").window(rd.windows.session(3))),
    ):
        found = keyed.top_k(2, "v") if word == "top_k" else getattr(keyed, word)("v")
        found.as_records().map_batches(lambda batch: [type(batch)]).collect(how)
    result = flow.run(runtime="local", parallelism=2)
    for how in ("running", "epochs", "tumbling", "session"):
        assert {one for _, one in result[how]} == {pa.RecordBatch}, how


def test_means_of_decimals_are_one_type_of_column_unless_one_does_not_fit() -> None:
    of_epochs: list[list[Any]] = [["1.00", "2.00", "2.00", None], ["0.02", "0.00", "0.00"], ["12345678901234.00", "1.00", "2.00"]]
    epochs = [
        pa.record_batch({"k": ["a"] * len(some), "v": pa.array([v and Decimal(v) for v in some], pa.decimal128(20, 2))})
        for some in of_epochs
    ]
    found = {}
    for kind in ("columns", "rows"):
        flow = rd.Dataflow()
        means = flow.from_epochs(epochs if kind == "columns" else [batch.to_pylist() for batch in epochs]).key_by("k").per_epoch().mean("v")
        means.collect("records")
        means.as_columns("k", "start", "end", "middle").collect("table", columnar=True)
        means.map_batches(lambda batch: [batch.schema.field(2).type if isinstance(batch, pa.RecordBatch) else None]).collect("types")
        result = flow.run(runtime="local")
        found[kind] = result["records"], result["table"].column("middle").to_pylist(), [one for _, one in result["types"]]
    values = [record[-1] for _, record in found["columns"][0]]
    told = ("1.666666666666666666666666667", "0.006666666666666666666666666667", "4115226300412.333333333333333")
    assert values == [Decimal(text) for text in told]
    assert found["columns"][:2] == found["rows"][:2]
    assert found["columns"][2] == [pa.decimal128(38, 28), pa.decimal128(30, 30), pa.decimal128(28, 15)]
    assert found["rows"][2] == [None] * 3


def test_no_type_is_told_of_what_is_a_mean_of_decimals() -> None:
    """It would be refused where a mean of a later batch does not fit."""
    table = pa.table({"k": ["a"] * 3, "v": pa.array([Decimal("0.02"), Decimal(0), Decimal(0)], pa.decimal128(9, 2)), "t": [1, 2, 3]})
    flow = rd.Dataflow()
    keyed = flow.from_arrow(table).assign_timestamps("t").key_by("k")
    means = keyed.mean("v"), keyed.window(rd.windows.tumbling(9)).mean("v"), keyed.aggregate({"n": "count", "m": ("mean", "v")})
    for at, found in enumerate(means):
        assert found.schema is None
        found.as_columns().collect(str(at), columnar=True)
    result = flow.run(runtime="local")
    assert [result[str(at)].column(-1).to_pylist() for at in range(3)] == [[Decimal("0.006666666666666666666666666667")]] * 3
    assert keyed.mean("t").schema == pa.schema([("k", pa.string()), ("mean(t)", pa.float64())])


def _two_of(kind: str) -> list[Any]:
    if kind.startswith("date"):
        return [dt.date(2024, 2, 29), dt.date(1, 1, 1)]
    if kind.startswith("timestamp"):
        return [dt.datetime(2024, 2, 29), dt.datetime(1969, 1, 1)]
    if kind.startswith("time"):
        return [dt.time(1, 2, 3), dt.time(0)]
    if kind.startswith("duration"):
        return [dt.timedelta(1), dt.timedelta(-1)]
    return [Decimal("1"), Decimal("-2")] if kind.startswith("decimal") else ["b", "a"] if "string" in kind else [b"b", b"a"]


def results(rows: list[Any], build: Callable[[rd.KeyedStream], rd.Stream]) -> dict[Any, Any]:
    flow = rd.Dataflow()
    build(flow.from_items(rows).assign_timestamps(lambda row: row[1]).key_by(lambda row: row[0])).collect("out")
    return dict(record for _, record in flow.run(runtime="local", parallelism=2)["out"])


ROWS = [("a", 5, "x"), ("a", 1, "y"), ("a", 1, "w"), ("b", 2, None)]


def test_first_and_last_by_event_time_or_by_what_is_named() -> None:
    assert results(ROWS, lambda keyed: keyed.first(lambda row: row[2])) == {"a": "w", "b": None}
    assert results(ROWS, lambda keyed: keyed.last(lambda row: row[2])) == {"a": "x", "b": None}
    assert results(ROWS, lambda keyed: keyed.last(lambda row: row[2], by=lambda row: -row[1])) == {"a": "y", "b": None}
    assert results(ROWS, lambda keyed: keyed.last()) == {"a": ("a", 5, "x"), "b": ("b", 2, None)}
    several = {"low": ("first", lambda row: row[2], lambda row: row[2] or None), "high": ("last", lambda row: row[2])}
    assert results(ROWS, lambda keyed: keyed.aggregate(several)) == {"a": {"low": "w", "high": "x"}, "b": {"low": None, "high": None}}


def test_count_distinct_compares_by_content() -> None:
    values = [[1], [1], {"n": float("nan")}, {"n": float("nan")}, float("nan"), float("nan"), 1, 1.0, True, (1,), None]
    rows = [("a", at, value) for at, value in enumerate(values)]
    assert results(rows, lambda keyed: keyed.count_distinct(lambda row: row[2])) == {"a": 5}


def test_what_is_emitted_does_not_change_later() -> None:
    flow = rd.Dataflow()
    flow.from_epochs([[1], [2]]).key_by(lambda n: 0).collect_list().collect("out")
    assert [record for _, record in flow.run(runtime="local")["out"]] == [(0, [1]), (0, [1, 2])]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda keyed: keyed.any(lambda row: row[1]),
            "any was given 5 of type int: it takes bools and nulls; name a comparison as its value",
        ),
        (
            lambda keyed: keyed.first(by=lambda row: row[2] if row[1] == 5 else row[1]),
            "first cannot order .* of type .* and .* of type .*: .*; give by= a function or column whose values compare",
        ),
        (
            lambda keyed: keyed.aggregate({"n": ("sum", lambda row: row[1], "t")}),
            "was given 't' as an order: sum takes none, only first and last",
        ),
        (lambda keyed: keyed.aggregate({"n": ("sum", "a", "b", "c")}), r"give an aggregation, a pair .* \(aggregation, value, by\)"),
        (lambda keyed: keyed.count_distinct(lambda row: bytearray(b"x")), "count_distinct cannot tell .* of type bytearray from others"),
    ],
)
def test_refusals(build: Any, message: str) -> None:
    with pytest.raises(rd.DataflowError, match=message):
        results(ROWS, build)


def test_an_order_must_be_known() -> None:
    flow = rd.Dataflow()
    stream = flow.from_items(ROWS)
    with pytest.raises(
        rd.DataflowError, match=r"first at .* no by=, and the stream .* has no event time: records of an epoch have no order"
    ):
        stream.key_by(lambda row: row[0]).first()
    sides = [stream.assign_timestamps(lambda row: row[1]), flow.from_items([]).assign_timestamps(lambda row: row[2])]
    with pytest.raises(rd.DataflowError, match="is a union of streams with their event times in different places"):
        sides[0].union(sides[1]).key_by(lambda row: row[0]).last()
    table = flow.from_arrow(pa.table({"k": [1], "v": [2]})).key_by("k")
    with pytest.raises(rd.DataflowError, match=r"last \(by\) at .*there is no column 'time' among \['k', 'v'\]"):
        table.last("v", by="time")


def test_means_of_durations_that_no_column_of_microseconds_holds_are_those_of_rows() -> None:
    long, units = dt.timedelta(days=120_000_000), ("s", "ns")  # more microseconds than 64 bits; as pandas rounds nanoseconds
    for unit, values in zip(
        units, ([long, dt.timedelta(days=1), None], [dt.timedelta(microseconds=1), dt.timedelta(microseconds=2)]), strict=True
    ):
        batch = pa.record_batch({"k": ["a"] * len(values), "v": pa.array(values, pa.duration(unit))})
        found = []
        for source in (batch, rd.to_rows(batch)):
            flow = rd.Dataflow()
            flow.from_epochs([source]).key_by("k").mean("v").collect("out")
            found.append(flow.run(runtime="local")["out"])
        assert found[0] == found[1]
