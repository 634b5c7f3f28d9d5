"""Keys that are null, of several types, or dictionary-encoded; key columns with names that Rayad uses itself; the values that top_k and
distinct compare; and the advice on methods of another kind of stream."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from tests.programs.totals import first, second
from tests.thorough import by_turns


def ran(epochs: list[Any], build: Callable[[rd.Stream], rd.Stream], parallelism: int = 2, seed: int = 1) -> list[tuple[int, Any]]:
    flow = rd.Dataflow()
    build(flow.from_epochs(epochs, parts=2, batch_rows=2)).collect("out")
    return [(time.epoch, record) for time, record in flow.run(runtime="local", parallelism=parallelism, seed=seed)["out"]]


# -- null keys ----------------------------------------------------------------------------------------------------------------

LEFT = [{"k": "a", "j": 1, "v": 1, "t": 1}, {"k": None, "j": 1, "v": 2, "t": 1}, {"k": "b", "j": None, "v": 3, "t": 1}]


@pytest.mark.parametrize("key", ["k", ["k", "j"], "function", "function of several"])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("encoded", [False, True])
def test_a_null_key_meets_no_null_key(key: Any, windowed: bool, columnar: bool, encoded: bool) -> None:
    batch: Any = pa.RecordBatch.from_pylist(LEFT)
    if encoded:
        batch = batch.set_column(0, "k", batch.column("k").dictionary_encode(null_encoding="encode"))
    epoch = batch if columnar else LEFT
    keys: dict[Any, Any] = {"function": lambda r: r["k"], "function of several": lambda r: (r["k"], r["j"])}
    by = keys.get(key, key) if isinstance(key, str) else key

    def build(stream: rd.Stream) -> rd.Stream:
        timed = stream.assign_timestamps("t")
        if windowed:
            return timed.key_by(by).window(rd.windows.tumbling(5)).join(timed.key_by(by))
        return timed.key_by(by).join(timed.key_by(by))

    of_one = key in ("k", "function")
    found = sorted((record[-1][0]["v"], record[-1][1]["v"]) for _, record in ran([epoch], build))
    assert found == ([(1, 1), (3, 3)] if of_one else [(1, 1)])


@pytest.mark.parametrize("columnar", [False, True])
def test_null_keys_are_one_group(columnar: bool) -> None:
    records = [{"k": None, "v": 1}, {"k": "a", "v": 2}, {"k": None, "v": 3}]
    epoch = pa.RecordBatch.from_pylist(records) if columnar else records
    assert sorted(record for _, record in ran([epoch], lambda s: s.key_by("k").sum("v")) if record[0] is None) == [(None, 4)]


# -- names ----------------------------------------------------------------------------------------------------------------------

NAMES = ["price_count", "price_sum", "price_min", "count_all", "sum(price)", "count(price)", "0", "1", "key", "value", "pane", "window",
         "record", "pair", "key and pane", "start", "end", "window_start", "sum", "a.sum", "number", "rayad.rows"]  # fmt: skip


@by_turns(2)
@pytest.mark.parametrize("name", NAMES)
def test_a_key_column_may_have_any_name_that_rayad_uses_itself(name: str) -> None:
    records = [{name: "x", "price": 1, "t": 1}, {name: "y", "price": 2, "t": 1}, {name: "x", "price": 4, "t": 1}]
    builds: dict[str, Callable[[rd.Stream], rd.Stream]] = {
        "sum": lambda s: s.key_by(name).sum("price"),
        "mean": lambda s: s.key_by(name).mean("price"),
        "min": lambda s: s.key_by([name, "t"]).min("price"),
        "several": lambda s: s.key_by(name).aggregate({"a": ("sum", "price"), "n": "count"}),
        "per epoch": lambda s: s.key_by(name).window(rd.windows.per_epoch()).sum("price"),
        "best": lambda s: s.key_by(name).window(rd.windows.per_epoch()).max_by("price"),
        "tumbling": lambda s: s.assign_timestamps("t").key_by(name).window(rd.windows.tumbling(5)).sum("price"),
        "sliding": lambda s: s.assign_timestamps("t").key_by(name).window(rd.windows.sliding(4, 2)).max_by("price"),
        "session": lambda s: s.assign_timestamps("t").key_by(name).window(rd.windows.session(5)).count(),
        "join": lambda s: s.key_by(name).join(s.key_by(name)),
        "distinct": lambda s: s.key_by(name).distinct("price"),
    }
    for what, build in builds.items():
        by_rows, by_columns = (ran([epoch], build) for epoch in (records, pa.RecordBatch.from_pylist(records)))
        assert sorted(by_columns, key=repr) == sorted(by_rows, key=repr), what


# -- types of keys ----------------------------------------------------------------------------------------------------------------

KEYS: dict[str, list[pa.Array]] = {
    "integers": [pa.array([1, 2], pa.int32()), pa.array([1, 3], pa.int64()), pa.array([2], pa.uint8())],
    "unsigned": [pa.array([1, 2], pa.int64()), pa.array([1, 2**63], pa.uint64())],
    "integers and floats": [pa.array([1, 2]), pa.array([1.0, 2.5]), pa.array([2, 1], pa.int32())],
    "floats": [pa.array([1.5, 2.0], pa.float32()), pa.array([1.5, 2.25])],
    "decimals": [pa.array([Decimal("1.0"), Decimal("2.5")]), pa.array([1, 2]), pa.array([Decimal("1.00")]), pa.array([2.5])],
    "strings": [pa.array(["a", "b"]), pa.array(["a"], pa.large_string()), pa.array(["b", "c"]).dictionary_encode()],
    "strings and numbers": [pa.array(["a", "1"]), pa.array([1, 2])],
    "booleans": [pa.array([True, False]), pa.array([1, 0])],
    "times": [pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("s")), pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us"))],
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("epochs", [False, True], ids=["one epoch", "an epoch for each"])
def test_equal_keys_of_several_types_are_one_key_in_columns_as_in_rows(kind: str, epochs: bool) -> None:
    columns = [*KEYS[kind], KEYS[kind][0]]
    batches = [pa.record_batch({"k": keys, "v": list(range(1, len(keys) + 1)), "t": [1] * len(keys)}) for keys in columns]
    builds: dict[str, Callable[[rd.Stream], rd.Stream]] = {
        "sum": lambda s: s.key_by("k").sum("v"),
        "mean": lambda s: s.key_by("k").mean("v"),
        "max": lambda s: s.key_by(["k", "t"]).max("v"),
        "several": lambda s: s.key_by("k").aggregate({"n": "count", "min": ("min", "v")}),
        "per epoch": lambda s: s.key_by("k").window(rd.windows.per_epoch()).sum("v"),
        "tumbling": lambda s: s.assign_timestamps("t").key_by("k").window(rd.windows.tumbling(5)).sum("v"),
        "join": lambda s: s.key_by("k").join(s.key_by("k")).map(lambda r: (r[0], (r[1][0]["v"], r[1][1]["v"]))),
        "distinct": lambda s: s.key_by("k").distinct("v"),
    }
    for what, build in builds.items():
        found = []
        for rows in (False, True):
            flow = rd.Dataflow()
            parts = [b.to_pylist() if rows else b for b in batches]
            if epochs:
                build(flow.from_epochs(parts)).collect("out")
            else:
                sources = [flow.from_items(part) for part in parts]
                build(sources[0].union(*sources[1:])).collect("out")
            out = [(time.epoch, record) for time, record in flow.run(runtime="local", parallelism=2)["out"]]
            found.append(Counter(map(_hashable, out)))
        assert found[0] == found[1], what


def _hashable(record: Any) -> Any:
    if isinstance(record, dict):
        return tuple(sorted(record.items()))
    return tuple(map(_hashable, record)) if isinstance(record, tuple) else record


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_nan_in_a_dictionary_that_no_row_uses_is_no_key(kind: pa.DataType, parallelism: int) -> None:
    values = pa.array([1.0, float("nan"), 2.0], kind)
    batch = pa.record_batch({"k": pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 0], pa.int8()), values), "v": [1, 2, 3, 4]})
    assert sorted(r for _, r in ran([batch], lambda s: s.key_by("k").sum("v"), parallelism) if r[0] is not None) == [(1.0, 5), (2.0, 2)]
    assert len(ran([batch], lambda s: s.key_by("k").join(s.key_by("k")), parallelism)) == 5
    used = pa.record_batch({"k": pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), values), "v": [1]})
    with pytest.raises(rd.DataflowError, match="NaN equals nothing"):
        ran([used], lambda s: s.key_by("k").sum("v"), parallelism)


# -- distinct and top_k -----------------------------------------------------------------------------------------------------------

NAN = float("nan")
SAME: list[Any] = [
    {"k": "a", "v": [1, 2], "w": {"x": NAN}},
    {"w": {"x": NAN}, "v": [1.0, 2], "k": "a"},
    {"k": "a", "v": [2, 1], "w": {"x": NAN}},
]


def test_distinct_compares_the_contents_of_records() -> None:
    for epochs in ([SAME, SAME], [pa.RecordBatch.from_pylist(SAME)] * 2):
        found = ran(epochs, lambda s: s.key_by("k").distinct())
        assert [(epoch, key) for epoch, (key, _) in found] == [(0, "a"), (0, "a")]
        assert sorted(record["v"] for _, (_, record) in found) == [[1, 2], [2, 1]]
    values: list[Any] = [NAN, float("nan"), np.array([1, 2]), np.array([1.0, 2.0]), {1, 2}, {2, 1}, (1, NAN), (1, float("nan")), "x", "x"]
    assert len(ran([[("a", value) for value in values]], lambda s: s.key_by(first).distinct(second))) == 5


def test_distinct_on_columns() -> None:
    batch = pa.record_batch({"k": ["a", "a", "b"], "v": [1, 1, 1]})
    found = ran([batch, batch], lambda s: s.key_by("k").distinct())
    assert sorted(found, key=repr) == [(0, ("a", {"k": "a", "v": 1})), (0, ("b", {"k": "b", "v": 1}))]


def test_distinct_still_refuses_what_cannot_be_compared() -> None:
    with pytest.raises(rd.DataflowError, match="needs hashable keys and values: unhashable type: 'bytearray'"):
        ran([[("a", bytearray(b"x"))]], lambda s: s.key_by(first).distinct(second))


RANKED = [{"k": "a", "v": 1.0}, {"k": "a", "v": None}, {"k": "a", "v": NAN}, {"k": "a", "v": 3.0}, {"k": "a", "v": 2.0}]


def test_top_k_by_a_column_ignores_null_and_nan() -> None:
    for epoch in (RANKED, pa.RecordBatch.from_pylist(RANKED)):
        assert ran([epoch], lambda s: s.key_by("k").top_k(2, by="v")) == [(0, ("a", [{"k": "a", "v": 3.0}, {"k": "a", "v": 2.0}]))]
        assert ran([epoch], lambda s: s.key_by("k").top_k(9, "v")) == [(0, ("a", [3.0, 2.0, 1.0]))]
        assert ran([epoch[1:3]], lambda s: s.key_by("k").top_k(2, "v")) == [(0, ("a", []))]
        assert ran([epoch], lambda s: s.key_by("k").window(rd.windows.per_epoch()).top_k(1, by="v"))[0][1][2] == [{"k": "a", "v": 3.0}]


def test_top_k_says_what_it_cannot_compare() -> None:
    told = "name what is compared with by=, a function of the record or a column name"
    with pytest.raises(rd.DataflowError, match=rf"top_k cannot compare records of types \['dict'\]: .*; {told}"):
        ran([RANKED], lambda s: s.key_by("k").top_k(1))
    with pytest.raises(rd.DataflowError, match=r"top_k cannot compare values of types \['int', 'str'\]"):
        ran([[("a", 1), ("a", "x")]], lambda s: s.key_by(first).top_k(1, by=second))
    with pytest.raises(rd.DataflowError, match="top_k was given by=3: give a function of the record or a column name"):
        rd.Dataflow().from_items([1]).key_by(str).top_k(1, by=3)  # type: ignore[arg-type]


# -- methods that are elsewhere --------------------------------------------------------------------------------------------------

KEYED_ADVICE = (
    "a keyed stream has a key and nothing else: first aggregate it (count, sum, reduce, fold, top_k, stateful_map ...), join it or window "
    "it, which gives a stream; or call {0} before key_by"
)
ADVICE: list[tuple[str, str, str]] = [
    *(("keyed", name, KEYED_ADVICE.format(name)) for name in ("map", "filter", "flat_map", "collect", "union", "inspect", "sink")),
    ("keyed", "key_by", 'it has a key already: for a key of several parts write key_by(["a", "b"]) or key_by(lambda record: (a, b))'),
    ("keyed", "max_by", "it is one of windows: .window(rd.windows...).max_by(...)"),
    ("keyed", "frobnicate", "it has aggregate, all, any"),
    ("keyed", "colect_list", "did you mean 'collect_list'?"),
    *(
        ("stream", name, f"it works for each key: stream.key_by(...).{name}(...); for all records together key_by(lambda record: 0)")
        for name in ("count", "sum", "distinct", "top_k", "stateful_map", "fold")
    ),
    ("stream", "groupby", "use key_by(...)"),
    ("stream", "colect", "did you mean 'collect'?"),
    ("stream", "late", "it is there behind windows over event time: .window(rd.windows...).count().late"),
    ("windowed", "map", "a windowed stream is to be aggregated (count, sum, min, max, mean, reduce, top_k, aggregate) or joined, which"),
    ("windowed", "distinct", "a windowed stream is to be aggregated"),
]


@pytest.mark.parametrize(("kind", "name", "advice"), ADVICE, ids=lambda x: x if isinstance(x, str) and len(x) < 15 else "")
def test_a_method_of_another_kind_of_stream_says_what_to_write(kind: str, name: str, advice: str) -> None:
    stream = rd.Dataflow().from_items([1])
    made: Any = {"stream": stream, "keyed": stream.key_by(str), "windowed": stream.key_by(str).window(rd.windows.per_epoch())}[kind]
    assert not hasattr(made, name)
    with pytest.raises(rd.DataflowError) as caught:
        getattr(made, name)
    assert f"a {type(made).__name__} has no {name!r}; {advice}" in str(caught.value)
    assert str(caught.value).startswith(f"{name} at test_keys_and_names.py:")


def test_names_that_python_looks_for_are_plain_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="'Stream' object has no attribute '__array__'") as caught:
        rd.Dataflow().from_items([1]).__array__  # noqa: B018
    assert not isinstance(caught.value, rd.DataflowError)
