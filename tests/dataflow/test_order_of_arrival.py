"""The table of docs/design/totals.md: results that depend neither on the order of arrival, nor on the batches, nor on the replicas."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from tests.dataflow.driven import shown
from tests.thorough import by_turns, examples

RECORDS = [
    {"k": rng.choice("abc"), "i": rng.randrange(-5, 5), "big": rng.randrange(2**61, 2**62),
     "f": rng.uniform(-1, 1) * 10.0 ** rng.randrange(-9, 9), "d": Decimal(rng.randrange(10**15)).scaleb(-6),
     "s": rng.choice("xyz"), "n": rng.choice([None, 1, 2])}
    for rng in [random.Random(7)] for _ in range(60)
]  # fmt: skip

Build = Callable[[rd.KeyedStream], rd.Stream]
FIXED: dict[str, Build] = {
    "count": lambda k: k.count(),
    "sum of integers": lambda k: k.sum("i"),
    "sum beyond 64 bits": lambda k: k.sum("big"),
    "sum of decimals": lambda k: k.sum("d"),
    "exact sum": lambda k: k.sum("f", exact=True),
    "mean of integers": lambda k: k.mean("big"),
    "mean of decimals": lambda k: k.mean("d"),
    "exact mean": lambda k: k.mean("f", exact=True),
    "min": lambda k: k.min("n"),
    "max": lambda k: k.max("f"),
    "max of text": lambda k: k.max("s"),
    "top_k": lambda k: k.top_k(3, "i"),
    "top_k by": lambda k: k.top_k(3, by="i"),
    "reduce": lambda k: k.reduce(max, lambda r: r["s"]),
    "several": lambda k: k.aggregate({"a": ("exact_sum", "f"), "b": ("max", "i"), "n": "count"}),
    "distinct": lambda k: k.distinct("s"),
    "join": lambda k: k.join(k).map(lambda r: (r[0], r[1][0]["i"], r[1][1]["i"])),
    "max_by": lambda k: k.window(rd.windows.per_epoch()).max_by("i"),
}


def ran(build: Build, records: list[Any], *, columnar: bool, rows: int, parallelism: int, seed: int) -> Counter[str]:
    flow = rd.Dataflow()
    epochs = [records[:40], records[40:]]
    for epoch, some in enumerate(epochs):
        random.Random(seed + epoch).shuffle(some)
    schema = pa.Table.from_pylist(records).schema
    source = [pa.RecordBatch.from_pylist(some, schema=schema) for some in epochs] if columnar else epochs
    build(flow.from_epochs(source, parts=2, batch_rows=rows).key_by("k")).collect("out")
    return Counter(map(shown, flow.run(runtime="local", parallelism=parallelism, seed=seed)["out"]))


@pytest.mark.parametrize("operator", FIXED)
def test_fixed_results_do_not_depend_on_order_batches_and_replicas(operator: str) -> None:
    build = FIXED[operator]
    expected = ran(build, RECORDS, columnar=False, rows=100, parallelism=1, seed=0)
    for seed, columnar in ((1, False), (2, True), (3, False), (4, True)):
        assert ran(build, RECORDS, columnar=columnar, rows=3 * seed, parallelism=seed, seed=seed) == expected


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=10)
def test_a_reduce_that_is_not_commutative_gives_each_record_once_in_some_order(rng: random.Random, each: bool) -> None:
    text = [rng.choice("abcdef") for _ in range(12)]
    flow = rd.Dataflow()
    flow.from_epochs([[w] for w in text] if each else [text], parts=2, batch_rows=2).key_by(lambda w: 0).reduce(str.__add__).collect("out")
    found = flow.run(runtime="local", parallelism=2, seed=rng.randrange(100))["out"][-1][1][1]
    assert sorted(found) == sorted(text)
    if each:  # epochs are merged one after the other
        assert found == "".join(text)


@pytest.mark.parametrize("how", ["min", "max", "top_k"])
@pytest.mark.parametrize("seed", range(3))
def test_one_of_several_equal_values_of_different_types_is_given(how: str, seed: int) -> None:
    values: list[Any] = [1, 1.0, True, Decimal(1)]
    random.Random(seed).shuffle(values)
    flow = rd.Dataflow()
    keyed = flow.from_items([("a", v) for v in values], parts=2, batch_rows=1).key_by(lambda r: r[0])
    (keyed.top_k(4, lambda r: r[1]) if how == "top_k" else getattr(keyed, how)()).collect("out")
    found = flow.run(runtime="local", parallelism=2, seed=seed)["out"][0][1][1]
    if how == "top_k":
        assert list(map(repr, found)) == sorted(map(repr, values)), "equal ones by their representation"
    else:
        assert found == 1


# -- every aggregate, key and value type against plain Python -----------------------------------------------------------------------

KEYS: dict[str, Any] = {
    "text": st.sampled_from(["a", "b", ""]),
    "integers": st.sampled_from([0, 1, -(2**63), 2**63 - 1]),
    "nullable": st.sampled_from([None, 0, 5]),
    "floats": st.sampled_from([0.0, -0.0, 1.5, float("inf")]),
    "booleans": st.booleans(),
    "decimals": st.sampled_from([Decimal("0.10"), Decimal("1.00"), None]),
}
VALUES: dict[str, Any] = {
    "small": st.none() | st.integers(-100, 100),
    "large": st.none() | st.integers(-(2**63), 2**63 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "halves": st.none() | st.integers(-(2**40), 2**40).map(lambda n: n / 2),
    "decimals": st.none() | st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-2)),
    "booleans": st.none() | st.booleans(),
}
TYPES = {
    "text": pa.string(), "integers": pa.int64(), "nullable": pa.int32(), "floats": pa.float64(), "booleans": pa.bool_(),
    "decimals": pa.decimal128(38, 2), "small": pa.int8(), "large": pa.int64(), "unsigned": pa.uint64(), "halves": pa.float64(),
}  # fmt: skip


def python(how: str, values: list[Any]) -> Any:
    values = [v for v in values if v is not None]
    if how == "count":
        return len(values)
    if not values:
        return None
    return {"sum": sum, "min": min, "max": max, "mean": lambda v: sum(v) / len(v)}[how](values)


@by_turns(3)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("keys", KEYS)
@examples(each_run=3, soak=8)
@given(data=st.data())
def test_aggregates_are_those_of_python_in_rows_and_columns(keys: str, values: str, data: st.DataObject) -> None:
    record = st.tuples(KEYS[keys], VALUES[values])
    epochs = data.draw(st.lists(st.lists(record, max_size=6), min_size=1, max_size=3))
    parallelism, parts, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 6))
    schema = pa.schema({"k": TYPES[keys], "v": TYPES[values]})
    expected: dict[str, dict[Any, Any]] = {how: {} for how in ("sum", "min", "max", "mean", "n")}
    so_far: dict[Any, list[Any]] = {}
    for epoch, some in enumerate(epochs):
        for key, value in some:
            so_far.setdefault(key, []).append(value)
        for key in {key for key, _ in some}:
            for how in ("sum", "min", "max", "mean"):
                expected[how][epoch, key] = python(how, so_far[key])
            expected["n"][epoch, key] = len(so_far[key])
    for columnar in (False, True):
        flow = rd.Dataflow()
        made = [[{"k": k, "v": v} for k, v in some] for some in epochs]
        source = [pa.RecordBatch.from_pylist(some, schema=schema) for some in made] if columnar else made
        keyed = flow.from_epochs(source, parts=parts, batch_rows=rows).key_by("k")
        for how in ("sum", "min", "max", "mean"):
            getattr(keyed, how)("v").collect(how)
        keyed.count().collect("n")
        keyed.aggregate({how: "count" if how == "n" else (how, "v") for how in expected}).collect("several")
        result = flow.run(runtime="local", parallelism=parallelism, seed=data.draw(st.integers(0, 9)))
        found = {how: {(time.epoch, key): value for time, (key, value) in result[how]} for how in expected}
        assert found == expected
        together = {how: {(time.epoch, key): value[how] for time, (key, value) in result["several"]} for how in expected}
        assert together == expected
        assert all(len(result[how]) == len(expected[how]) for how in expected)
