"""Columns of every Arrow type, as keys, values and event times, give what rows give: Arrow has no kernel for some of them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.aggregates import combiner as combining
from rayad.dataflow.operators.keys.column_keys import common_type, plain
from rayad.dataflow.operators.results import window_array
from rayad.dataflow.records.batches import take_rows
from tests.thorough import by_turns

DISTINCT = 5
DAY = dt.date(2024, 1, 1)


def typed(value: Callable[[int], Any], kind: pa.DataType) -> Callable[[int], pa.Array]:
    return lambda number: pa.array([value(i % number) for i in range(number)], kind)


def encoded(values: Callable[[int], Any], index: pa.DataType = pa.int32()) -> Callable[[int], pa.Array]:  # noqa: B008
    def make(number: int) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array([None if i == 3 else i for i in range(number)], index), pa.array(values(number)))

    return make


def cents(i: int) -> decimal.Decimal:
    return decimal.Decimal(i) / 4


def cast(value: Callable[[int], Any], kind: pa.DataType) -> Callable[[int], pa.Array]:
    return lambda number: pa.array([value(i) for i in range(number)]).cast(kind)


def extension(kind: pa.DataType, value: Callable[[int], Any]) -> Callable[[int], pa.Array]:
    return lambda number: pa.ExtensionArray.from_storage(kind, pa.array([value(i) for i in range(number)], kind.storage_type))


KEYS: dict[str, Callable[[int], pa.Array]] = {
    "string": typed(str, pa.string()),
    "large_string": typed(str, pa.large_string()),
    "string_view": cast(str, pa.string_view()),
    "binary": typed(lambda i: b"%d" % i, pa.binary()),
    "binary_view": cast(lambda i: b"%d" % i, pa.binary_view()),
    "fixed_size_binary": typed(lambda i: b"%08d" % i, pa.binary(8)),
    "bool": typed(lambda i: i % 2 == 0, pa.bool_()),
    "null": pa.nulls,
    **{str(kind): typed(lambda i: i % 100, kind) for kind in (pa.int8(), pa.int64(), pa.uint8(), pa.uint64())},
    "int64 with nulls": typed(lambda i: None if i == 2 else i * 1_000_003, pa.int64()),
    "float16": typed(lambda i: np.float16(i % 100), pa.float16()),
    "float32": typed(lambda i: i / 4, pa.float32()),
    "float64": typed(lambda i: [-0.0, 0.0, None][i] if i < 3 else i / 4, pa.float64()),
    "date32": typed(lambda i: DAY + dt.timedelta(i), pa.date32()),
    "date64": typed(lambda i: DAY + dt.timedelta(i), pa.date64()),
    "time32": typed(lambda i: dt.time(i % 24), pa.time32("s")),
    "time64": typed(lambda i: dt.time(i % 24), pa.time64("us")),
    "timestamp": typed(lambda i: i, pa.timestamp("ms")),
    "timestamp with a zone": typed(lambda i: i, pa.timestamp("us", "UTC")),
    "duration": cast(lambda i: i, pa.duration("s")),
    "interval": typed(lambda i: pa.MonthDayNano([1, i, 0]), pa.month_day_nano_interval()),
    **{str(kind): typed(cents, kind) for kind in (pa.decimal32(9, 2), pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal256(40, 2))},
    "dictionary": encoded(lambda number: [str(i) for i in range(number)]),
    "dictionary of integers": encoded(lambda number: [i * 1_000_003 for i in range(number)]),
    "dictionary of floats": encoded(lambda number: [-0.0, 0.0, *(i / 4 for i in range(2, number))]),
    "dictionary with doubles": encoded(lambda number: [str(i // 2) for i in range(number)]),
    "dictionary with nulls": encoded(lambda number: [None if i % 3 == 0 else str(i) for i in range(number)]),
    "run_end_encoded": lambda number: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, number + 1), pa.int32()), pa.array(map(str, range(number)))
    ),
    "uuid": extension(pa.uuid(), lambda i: uuid.UUID(int=i).bytes),
    "bool8": extension(pa.bool8(), lambda i: i % 2),
    "window": lambda number: window_array(pa.array(range(number)), pa.array(range(1, number + 1))),
}
NESTED: dict[str, Callable[[int], pa.Array]] = {
    "list": typed(lambda i: [i], pa.list_(pa.int64())),
    "list of views": typed(lambda i: [str(i)], pa.list_(pa.string_view())),
    "struct": typed(lambda i: {"a": i}, pa.struct([("a", pa.int64())])),
    "map": typed(lambda i: [("a", i)], pa.map_(pa.string(), pa.int64())),
    "dictionary of lists": encoded(lambda number: [[i] for i in range(number)]),
}


class Echo(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


def values_of(record: Any) -> Any:
    return (*record[:-1], record[-1]["v"])


def pairs_of(record: Any) -> Any:
    return (*record[:-1], *(side["v"] for side in record[-1]))


OPERATORS: dict[str, Callable[[rd.Stream, Any], rd.Stream]] = {
    "count": lambda s, k: s.key_by(k).count(),
    "several": lambda s, k: s.key_by(k).aggregate({"n": "count", "max": ("max", "v"), "sum": ("sum", "v")}),
    "fold": lambda s, k: s.key_by(k).fold(0, lambda a, b: a + b, "v"),
    "distinct": lambda s, k: s.key_by(k).distinct("v"),
    "join": lambda s, k: s.key_by(k).join(s.key_by(k)).map(pairs_of),
    "tumbling": lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.tumbling(8)).sum("v"),
    "sliding": lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.sliding(8, 4)).count(),
    "session": lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.session(2)).count(),
    "given": lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.given("t", "until")).count(),
    "per_epoch": lambda s, k: s.key_by(k).window(rd.windows.per_epoch()).sum("v"),
    "max_by": lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.tumbling(8)).max_by("v").map(values_of),
    "max_by per epoch": lambda s, k: s.key_by(k).window(rd.windows.per_epoch()).max_by("v").map(values_of),
    "window join": lambda s, k: (
        s.assign_timestamps("t").key_by(k).window(rd.windows.tumbling(8)).join(s.assign_timestamps("t").key_by(k)).map(pairs_of)
    ),
    "vertex": lambda s, k: s.key_by(k).vertex(Echo).map(lambda r: (r["k"], r["v"])),
}


def frozen(value: Any) -> Any:
    """Something that can be counted."""
    if isinstance(value, (list, tuple)):
        return tuple(map(frozen, value))
    return tuple((name, frozen(part)) for name, part in value.items()) if isinstance(value, dict) else value


def outcome(epochs: list[Any], operators: Any, key: Any = "k") -> dict[str, Counter[Any]]:
    flow = rd.Dataflow()
    stream = flow.from_epochs(epochs, batch_rows=1 << 20)
    for name, build in operators.items():
        build(stream, key).collect(name)
    results = flow.run(runtime="local", parallelism=2)
    return {name: Counter(map(frozen, results[name])) for name in operators}


def require_rows_and_columns_alike(batches: list[pa.RecordBatch], operators: Any, key: Any = "k") -> None:
    rows = outcome([batch.to_pylist() for batch in batches], operators, key)
    columns = outcome(batches, operators, key)
    for name in operators:
        assert rows[name] or ("join" in name and batches[0].column(0).null_count == batches[0].num_rows), name  # null meets nothing
        assert columns[name] == rows[name], name


def with_others(keys: pa.Array) -> pa.RecordBatch:
    at = np.arange(len(keys))
    return pa.record_batch({"k": keys, "i": at % 2, "v": at % 7, "t": at, "until": at + 3})


def small_epochs(make: Callable[[int], pa.Array]) -> list[pa.RecordBatch]:
    """Two epochs of the same few values, the second in another order (and with another dictionary)."""
    few = with_others(pa.concat_arrays([make(DISTINCT)] * 3) if not pa.types.is_dictionary(make(2).type) else make(DISTINCT))
    return [few, with_others(few.column(0).slice(1)), with_others(make(DISTINCT + 1))]


IN_EVERY_RUN = {"string", "int64", "dictionary", *list(KEYS)[::3]}
"""Types that are tried as one of two columns of the key, and in large batches, in ``make test``; as the key itself all are. The others:
``make soak``."""


def mark(kind: str) -> list[pytest.MarkDecorator]:
    return [] if kind in IN_EVERY_RUN else [pytest.mark.soak]


@by_turns(3)
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *(pytest.param(kind, "k", id=f"{kind}-alone") for kind in KEYS),
        *(pytest.param(kind, ["k", "i"], id=f"{kind}-first", marks=mark(kind)) for kind in KEYS),
        *(pytest.param(kind, ["i", "k"], id=f"{kind}-second", marks=mark(kind)) for kind in KEYS),
    ],
)
def test_keys_of_every_type(kind: str, key: Any) -> None:
    require_rows_and_columns_alike(small_epochs(KEYS[kind]), OPERATORS, key)


@by_turns(3)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=mark(kind)) for kind in KEYS])
def test_keys_of_every_type_in_large_batches(kind: str) -> None:
    rows = combining.SAMPLE_ROWS_MIN
    operators = {name: OPERATORS[name] for name in ("count", "tumbling")[: 2 if kind in ("string", "int64", "dictionary") else 1]}
    require_rows_and_columns_alike([with_others(KEYS[kind](rows))], operators)


@pytest.mark.parametrize("kind", NESTED)
def test_keys_that_cannot_be_hashed_are_refused_in_columns_too(kind: str) -> None:
    for name, build in OPERATORS.items():
        with pytest.raises(rd.DataflowError, match=r"a key is not hashable|has no hash that is the same in every process"):
            outcome([with_others(NESTED[kind](DISTINCT))], {name: build})


def test_dictionaries_that_need_more_than_their_index_type_go_together() -> None:
    epochs = [
        with_others(pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{n}-{i}" for i in range(100)])))
        for n in range(3)
    ]
    require_rows_and_columns_alike(epochs, OPERATORS)
    require_rows_and_columns_alike([batch.rename_columns(["x", "k", "v", "t", "until"]) for batch in epochs], OPERATORS)


@by_turns(3)
@pytest.mark.parametrize("kind", [*KEYS, *NESTED])
def test_columns_of_every_type_beside_the_key(kind: str) -> None:
    columns = (KEYS | NESTED)[kind]
    epochs = [with_others(pa.array(["a", "b", None, "a", "c"])).append_column("x", columns(DISTINCT)) for _ in range(2)]
    beside = {
        "join": lambda s, k: s.key_by(k).join(s.key_by(k)),
        "given": OPERATORS["given"],
        "max_by": lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.sliding(8, 4)).max_by("v"),
        "max_by per epoch": lambda s, k: s.key_by(k).window(rd.windows.per_epoch()).max_by("v"),
        "window join": OPERATORS["window join"],
        "vertex": lambda s, k: s.key_by(k).vertex(Echo),
    }
    require_rows_and_columns_alike(epochs, beside)


@pytest.mark.parametrize("kind", ["int8", "uint64", "float16", "float32", "float64", "decimal64(12, 2)", "decimal128(12, 2)", "bool8"])
def test_values_of_every_type_of_number(kind: str) -> None:
    values = KEYS[kind](9).slice(3)
    batch = with_others(pa.array(["a", "b", None, "a", "c", "a"])).append_column("x", values)
    by_value = {how: lambda s, k, how=how: getattr(s.key_by(k), how)("x") for how in ("sum", "min", "max", "mean")}
    by_value["best"] = lambda s, k: s.assign_timestamps("t").key_by(k).window(rd.windows.tumbling(8)).max_by("x").map(values_of)
    by_value["least"] = lambda s, k: s.key_by(k).window(rd.windows.per_epoch()).min_by("x").map(values_of)
    require_rows_and_columns_alike([batch, batch.slice(2)], by_value)


@pytest.mark.parametrize("kind", ["int8", "uint64", "float16", "float32", "decimal32(9, 2)", "decimal128(12, 2)", "dictionary of integers"])
def test_event_times_of_every_type_of_number(kind: str) -> None:
    times = pa.array(range(8)).dictionary_encode() if kind.startswith("dict") else KEYS[kind](8)
    batch = pa.record_batch({"k": ["a", "b"] * 4, "v": range(8), "t": times, "until": pa.array(range(1, 9), pa.int64())})
    timed = {name: OPERATORS[name] for name in ("tumbling", "session", "given", "max_by", "window join")}
    require_rows_and_columns_alike([batch, batch.slice(3)], timed)


NUMBERS = {
    "int8": pa.array([3, 1, 0], pa.int8()),
    "int32": pa.array([3, -5, 7], pa.int32()),
    "int64": pa.array([2**62 + 1, -5, None]),
    "uint64": pa.array([2**63, 3, 5], pa.uint64()),
    "float16": pa.array([np.float16(3), np.float16(-5), None], pa.float16()),
    "float32": pa.array([3.0, -5.0, 0.5], pa.float32()),
    "float64": pa.array([3.0, 2.0**63, 2.0**62]),
    "dictionary": pa.array([3, 7, 2**62]).dictionary_encode(),
    "decimal": pa.array([decimal.Decimal(3), decimal.Decimal("0.5"), None]),
    "bool": pa.array([True, False, None]),
}


@by_turns(3)
@pytest.mark.parametrize("right", NUMBERS)
@pytest.mark.parametrize("left", NUMBERS)
def test_numbers_meet_equal_numbers_of_other_types(left: str, right: str) -> None:
    sides = [with_others(NUMBERS[left]), with_others(NUMBERS[right])]
    results = []
    for batches in ([side.to_pylist() for side in sides], sides):
        flow = rd.Dataflow()
        one, other = (flow.from_epochs([batch]) for batch in batches)
        one.key_by("k").join(other.key_by("k")).collect("join")
        one, other = (stream.assign_timestamps("t") for stream in (one, other))
        one.key_by("k").window(rd.windows.tumbling(8)).join(other.key_by("k")).collect("window join")
        results.append({name: Counter(map(frozen, rows)) for name, rows in flow.run(runtime="local", parallelism=2).items()})
    assert results[1] == results[0]


def test_types_without_a_common_one_are_compared_as_rows() -> None:
    assert common_type(pa.int64(), pa.float64()) is None
    assert common_type(pa.uint64(), pa.int8()) is None
    assert common_type(pa.uint8(), pa.uint64()) == pa.uint64()
    assert common_type(pa.int32(), pa.float32()) == pa.float64()
    assert common_type(pa.string(), pa.dictionary(pa.int32(), pa.large_string())) == pa.large_string()
    assert common_type(pa.string(), pa.int64()) is None


def test_plain_columns_stay_the_arrays_that_they_were() -> None:
    batch = with_others(pa.array(["a", "b"]).dictionary_encode())
    assert plain(batch, ["k", "i"]) is batch


@pytest.mark.parametrize("kind", [*KEYS, *NESTED])
def test_rows_are_taken_from_columns_of_every_type(kind: str) -> None:
    column = (KEYS | NESTED)[kind](DISTINCT)
    taken = take_rows(pa.record_batch({"x": column}), pa.array([4, 0, 0])).column(0)
    assert taken.type == column.type
    values = column.to_pylist()
    assert taken.to_pylist() == [values[4], values[0], values[0]]
