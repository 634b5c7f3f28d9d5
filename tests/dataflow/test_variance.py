"""Variance and standard deviation: rows, columns and windows give what the definition gives."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.thorough import examples

SCHEMA = {kind: pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", of)]) for kind, of in (("int", pa.int64()), ("float", pa.float64()))}
VALUES = {"int": st.integers(-1000, 1000), "float": st.floats(-1e6, 1e6).map(lambda x: x + 0.0)}


def model(values: list[Any], ddof: int = 1) -> float | None:
    exact = [Fraction(value) for value in values if value is not None]
    if len(exact) <= ddof:
        return None
    mean = sum(exact) / len(exact)
    return float(sum((value - mean) ** 2 for value in exact) / (len(exact) - ddof))


def near(value: float | None) -> Any:
    return value if value is None else pytest.approx(value, rel=1e-9, abs=1e-6)


def records(kind: str) -> Any:
    record = st.fixed_dictionaries({"k": st.integers(0, 2), "t": st.integers(0, 30), "v": st.none() | VALUES[kind]})
    return st.lists(st.lists(record, min_size=1, max_size=10), min_size=1, max_size=4)


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("kind", ["int", "float"])
@examples(each_run=4, soak=12)
@given(data=st.data(), ddof=st.integers(0, 2), parallelism=st.integers(1, 3))
def test_variance_equals_its_definition(kind: str, columnar: bool, data: st.DataObject, ddof: int, parallelism: int) -> None:
    epochs = data.draw(records(kind))
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA[kind]) for rows in epochs] if columnar else epochs
    flow = rd.Dataflow()
    keyed = flow.from_epochs(batches, parts=2).assign_timestamps("t", max_delay=99).key_by("k")
    keyed.var("v", ddof=ddof).collect("var")
    keyed.std("v", ddof=ddof).collect("std")
    keyed.aggregate({"n": "count", "var": ("var", "v")}).collect("several")
    keyed.window(rd.windows.tumbling(10)).var("v", ddof=ddof).collect("windows")
    keyed.window(rd.windows.session(3)).std("v", ddof=ddof).collect("sessions")
    result = flow.run(runtime="local", parallelism=parallelism, seed=ddof)

    so_far: dict[int, list[Any]] = defaultdict(list)
    expected: dict[Any, list[Any]] = {}
    of_windows: dict[Any, list[Any]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        for row in rows:
            so_far[row["k"]].append(row["v"])
            of_windows[row["k"], row["t"] // 10 * 10].append(row["v"])
        for key in {row["k"] for row in rows}:
            expected[epoch, key] = [*so_far[key]]
    found = {(time.epoch, key): value for time, (key, value) in result["var"]}
    assert found == {at: near(model(values, ddof)) for at, values in expected.items()}
    root = {(time.epoch, key): value for time, (key, value) in result["std"]}
    assert root == {at: near(None if value is None else math.sqrt(value)) for at, value in found.items()}
    several = {(time.epoch, key): value for time, (key, value) in result["several"]}
    assert several == {at: {"n": len(values), "var": near(model(values))} for at, values in expected.items()}
    windows = {(key, window.start): value for _, (key, window, value) in result["windows"]}
    assert windows == {at: near(model(values, ddof)) for at, values in of_windows.items()}
    assert {key for _, (key, _, _) in result["sessions"]} == so_far.keys()


def spread(values: list[Any], how: str = "var", **options: Any) -> Any:
    flow = rd.Dataflow()
    keyed = flow.from_items([("k", value) for value in values]).key_by(lambda pair: pair[0])
    getattr(keyed, how)(**options).collect("out")
    return flow.run(runtime="local")["out"][0][1][1]


def test_whole_numbers_in_rows_are_exact_however_large() -> None:
    values = [10**30, 10**30 + 1, 10**30 + 3]
    assert spread(values) == float(statistics.variance(map(Fraction, values)))
    assert spread([Fraction(1, 3), Fraction(2, 3), 1], ddof=0) == float(Fraction(2, 27))
    assert spread([True, False, True, True]) == 0.25


@pytest.mark.parametrize("first", [2**53 + 1, 2**62])
def test_whole_numbers_that_floats_do_not_hold_go_to_rows(first: int) -> None:
    values = [first, first + 1, first + 3]
    flow = rd.Dataflow()
    flow.from_epochs([pa.record_batch({"k": [1, 1, 1], "v": values})]).key_by("k").var("v").collect("out")
    assert flow.run(runtime="local")["out"] == [(rd.Timestamp(0), (1, float(statistics.variance(map(Fraction, values)))))]


def test_a_small_variance_around_a_large_mean_keeps_its_digits() -> None:
    values = [1e9 + x for x in (4.0, 7.0, 13.0, 16.0)]
    assert spread(values) == 30.0
    flow = rd.Dataflow()
    epochs = [pa.record_batch({"k": [1], "v": [value]}) for value in values]
    flow.from_epochs(epochs).key_by("k").var("v").collect("out")
    assert [value for _, (_, value) in flow.run(runtime="local")["out"]] == [None, 4.5, 21.0, pytest.approx(30.0, rel=1e-12)]


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_nan_and_infinity_have_no_variance(odd: float, columnar: bool) -> None:
    rows = [{"k": 1, "v": 1.0}, {"k": 1, "v": odd}]
    flow = rd.Dataflow()
    epochs = [pa.RecordBatch.from_pylist([row]) if columnar else [row] for row in rows]
    flow.from_epochs(epochs).key_by("k").var("v", ddof=0).collect("out")
    out = [value for _, (_, value) in flow.run(runtime="local")["out"]]
    assert out[0] == 0.0
    assert math.isnan(out[1])


def test_decimals_count_as_floats_and_null_is_ignored() -> None:
    assert spread([Decimal("1.5"), None, Decimal("2.5")]) == 0.5
    assert spread([None]) is None
    assert spread([3]) is None
    assert spread([3, 5], "std", ddof=0) == 1.0


def test_values_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(rd.DataflowError, match="var was given 1j of type complex: it takes real numbers"):
        spread([1j])
    with pytest.raises(rd.DataflowError, match="std was given 'a' of type str: it adds numbers and durations"):
        spread(["a"], "std")
    keyed = rd.Dataflow().from_items([1]).key_by(lambda x: x)
    with pytest.raises(rd.DataflowError, match="std: ddof is -1: it must be an int of at least 0"):
        keyed.std(ddof=-1)
