"""Sums and means: of which types they are defined, and their exact values, in rows and in columns."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import pickle
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.aggregates.aggregators import ExactSum
from rayad.dataflow.operators.aggregates.sums import DIGITS_MAX, exact_total
from tests.programs.totals import first, second
from tests.thorough import examples

BIG = Decimal("12345678901234567890123456789.12")


def one(epochs: list[Any], build: Any, **options: Any) -> Any:
    """The last result of the only key."""
    flow = rd.Dataflow()
    build(flow.from_epochs(epochs)).collect("out")
    return flow.run(runtime="local", **options)["out"][-1][1][1]


def rows(values: list[Any], how: str, *, each: bool = False, **options: Any) -> Any:
    """An aggregation of values of one key, in one epoch or with an epoch for each."""
    pairs = [("a", value) for value in values]
    return one([[pair] for pair in pairs] if each else [pairs], lambda s: getattr(s.key_by(first), how)(second, **options))


def columns(values: Any, how: str, **options: Any) -> Any:
    """The same, with the values in a column."""
    batch = pa.record_batch({"k": ["a"] * len(values), "v": values})
    return one([batch], lambda s: getattr(s.key_by("k"), how)("v", **options))


@pytest.mark.parametrize("each", [False, True], ids=["one epoch", "an epoch for each"])
def test_sums_of_decimals_are_exact(each: bool) -> None:
    values = [BIG, Decimal("0.01"), 7, Decimal("-1e-20")]
    assert rows(values, "sum", each=each) == Decimal("12345678901234567890123456796.12999999999999999999")
    assert columns(pa.array([BIG, Decimal("0.01")]), "sum") == Decimal("12345678901234567890123456789.13")


def test_sums_and_means_of_decimals_ignore_the_decimal_context() -> None:
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP)):
        assert str(rows([BIG, BIG], "sum")) == "24691357802469135780246913578.24"
        assert str(rows([BIG, BIG], "mean")) == "12345678901234567890123456789.12"
        assert str(rows([Decimal(2), Decimal(0), Decimal(0)], "mean")) == "0.6666666666666666666666666667"
        assert str(columns(pa.array([BIG, BIG]), "mean")) == "12345678901234567890123456789.12"


def test_a_sum_of_decimals_that_would_have_to_be_rounded_is_refused() -> None:
    with pytest.raises(rd.DataflowError, match=f"has more than {DIGITS_MAX:,} digits: decimals are added exactly or not at all"):
        rows([Decimal("1e200000"), Decimal(1)], "sum")
    with pytest.raises(rd.DataflowError, match=r"Decimal\('1'\) of type Decimal and 1.5 of type float have no sum: convert the values"):
        rows([Decimal(1), 1.5], "sum")


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("value", ["x", b"x", [1], (1, 2, 3), {1}, dt.date(2020, 1, 1), np.datetime64("2020-01-01")], ids=repr)
def test_a_single_value_without_a_sum_is_refused(value: Any, how: str) -> None:
    with pytest.raises(rd.DataflowError) as caught:
        rows([value], how)
    assert f"{how} was given {value!r:.60} of type {type(value).__name__}: it adds numbers and durations" in str(caught.value)
    assert str(caught.value).endswith(f"name the number with {how}(value), or use fold() or aggregate() with a rule of your own")


def test_strings_in_columns_have_no_sum() -> None:
    with pytest.raises(rd.DataflowError, match="text and lists put together depend on the order of arrival"):
        columns(pa.array(["x", "y"]), "sum")


def test_numbers_of_numpy_do_not_wrap_around() -> None:
    assert rows([np.int8(100), np.int8(100)], "sum") == 200
    assert rows([np.int64(2**63 - 1)] * 2, "sum") == 2**64 - 2
    assert rows([np.uint8(200), np.uint8(100)], "mean") == 150.0


def test_other_numbers_have_sums() -> None:
    assert rows([Fraction(1, 3), Fraction(2, 3), 1], "sum") == 2
    assert rows([True, True, None], "sum") == 2
    assert rows([dt.timedelta(hours=1), None, dt.timedelta(hours=2)], "mean") == dt.timedelta(hours=1, minutes=30)
    assert rows([1 + 2j, 1j], "sum") == 1 + 3j
    assert rows([np.array([1, 2]), np.array([3, 4])], "sum").tolist() == [4, 6]


@pytest.mark.parametrize("values", [[2**63 - 1] * 3, [2**53 + 1, 0, 2**62], [-(2**62) - 1, 3], [2**63, 2**63, 1]], ids=repr)
def test_the_mean_of_large_integers_is_that_of_python(values: list[int]) -> None:
    kind = pa.uint64() if max(values) > 2**63 - 1 else pa.int64()
    assert columns(pa.array(values, kind), "mean") == rows(values, "mean") == sum(values) / len(values)


# -- floats -----------------------------------------------------------------------------------------------------------------

FLOATS = [1e100, 1.0, -1e100, 3.5, 1e-300, -2.25, 1e100, -1e100]


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_exact_sums_of_floats_do_not_depend_on_their_order(how: str) -> None:
    expected = math.fsum(FLOATS) / (len(FLOATS) if how == "mean" else 1)
    shuffled = random.Random(1)
    for seed in range(5):
        values = shuffled.sample(FLOATS, len(FLOATS))
        assert rows(values, how, exact=True, each=bool(seed % 2)) == expected
        assert columns(pa.array(values), how, exact=True) == expected


def test_exact_sums_in_windows_and_side_by_side() -> None:
    batch = pa.record_batch({"k": ["a"] * 3, "v": [1e100, 1.0, -1e100]})
    windowed = rd.Dataflow()
    windowed.from_epochs([batch]).key_by("k").window(rd.windows.per_epoch()).sum("v", exact=True).collect("out")
    assert [value for _, (_, _, value) in windowed.run(runtime="local")["out"]] == [1.0]
    both = one([batch], lambda s: s.key_by("k").aggregate({"sum": ("exact_sum", "v"), "mean": ("exact_mean", "v")}))
    assert both == {"sum": 1.0, "mean": 1.0 / 3}


@examples(each_run=40, soak=100)
@given(st.lists(st.floats() | st.integers() | st.booleans() | st.fractions(max_denominator=64), min_size=1, max_size=8), st.integers(0, 8))
def test_exact_totals_are_those_of_fractions_however_they_are_cut(values: list[Any], cut: int) -> None:
    total = pickle.loads(pickle.dumps(exact_total(values[:cut]))).plus(exact_total(values[cut:]))
    special = [x for x in values if isinstance(x, float) and not math.isfinite(x)]
    if special:
        assert str(total.value()) == str(sum(special))
        return
    expected = sum(map(Fraction, values))
    found = total.value()
    if any(isinstance(x, float) for x in values):
        try:
            assert found == float(expected)
        except OverflowError:
            assert found == (math.inf if expected > 0 else -math.inf)
    else:
        assert found == expected


def test_an_exact_sum_ignores_null() -> None:
    pairs = [("a", None), ("b", None), ("a", 1.5)]
    flow = rd.Dataflow()
    flow.from_items(pairs).key_by(first).sum(second, exact=True).collect("out")
    assert sorted(r for _, r in flow.run(runtime="local")["out"]) == [("a", 1.5), ("b", None)]
    assert ExactSum().merge(None, None) is None


@examples(each_run=40, soak=100)
@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20))
def test_sums_of_floats_are_the_same_up_to_rounding(values: list[float]) -> None:
    bound = len(values) * math.ulp(math.fsum(map(abs, values)))
    for found in (rows(values, "sum"), columns(pa.array(values), "sum")):
        assert abs(found - math.fsum(values)) <= bound


# -- the default value -----------------------------------------------------------------------------------------------------------

RECORDS = [{"k": "a", "v": 1}, {"k": "a", "v": 3}]


@pytest.mark.parametrize("how", ["sum", "min", "max", "mean"])
def test_the_default_value_is_the_only_column_besides_the_key(how: str) -> None:
    expected = {"sum": 4, "min": 1, "max": 3, "mean": 2.0}[how]
    for epoch, key in itertools.product((RECORDS, pa.RecordBatch.from_pylist(RECORDS)), ("k", ["k"])):
        assert one([epoch], lambda s, key=key: getattr(s.key_by(key), how)()) == expected
    timed = [{**record, "t": 1} for record in RECORDS]
    for epoch in (timed, pa.RecordBatch.from_pylist(timed)):
        flow = rd.Dataflow()
        flow.from_epochs([epoch]).assign_timestamps("t").key_by("k").window(rd.windows.tumbling(5)).aggregate({"x": how}).collect("out")
        assert [value for _, (_, _, value) in flow.run(runtime="local")["out"]] == [{"x": expected}]


@pytest.mark.parametrize("key", ["k", first], ids=["column", "function"])
@pytest.mark.parametrize("columnar", [False, True])
def test_a_default_value_among_several_columns_is_refused(key: Any, columnar: bool) -> None:
    records = [{"k": "a", "v": 1, "w": 2}]
    epoch = pa.RecordBatch.from_pylist(records) if columnar else records
    with pytest.raises(rd.DataflowError) as caught:
        one([epoch], lambda s: s.key_by("k" if key == "k" else lambda r: r["k"]).sum())
    keys, rest = (["k"], ["v", "w"]) if key == "k" else ([], ["k", "v", "w"])
    assert str(caught.value).endswith(f"which column to aggregate is not clear: besides the key {keys} there are {rest}; name one")


def test_the_default_value_is_the_second_of_a_pair_or_the_record_itself() -> None:
    assert one([[("a", 1), ("a", 2)]], lambda s: s.key_by(first).sum()) == 3
    assert one([[1, 3, 5]], lambda s: s.key_by(lambda n: n % 2).sum()) == 9
