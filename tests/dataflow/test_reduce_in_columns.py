"""``reduce`` by a function that is known stays in columns, and gives what calls of the function give, errors included."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from tests.dataflow.test_aggregates_of_types import TYPES
from tests.every_type.exact import form
from tests.thorough import by_turns, examples

BY_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "min": min,
    "max": max,
    "add": operator.add,
    "and": operator.and_,
    "or": operator.or_,
}
"""The functions that are known."""
IN_COLUMNS = [
    *((kind, word) for kind in [*TYPES, "float32", "float64"] for word in ("min", "max")),
    *((kind, "add") for kind in ("int", "duration[us]")),
    *(("bool", word) for word in ("and", "or")),
]
FLOATS = {
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
}
ALL = TYPES | FLOATS
IN_ROWS = [
    *((kind, "add") for kind in ("float64", "decimal128", "string", "bool", "duration[s]")),
    *(("int", word) for word in ("and", "or")),
]


def of_windows(keyed: rd.KeyedStream) -> dict[str, Any]:
    return {
        "running": keyed,
        "epochs": keyed.window(rd.windows.per_epoch()),
        "tumbling": keyed.window(rd.windows.tumbling(10)),
        "session": keyed.window(rd.windows.session(3)),
    }


def run(kind: str, word: str, epochs: list[list[Any]], *, columnar: bool = True, parallelism: int = 1, opaque: bool = False) -> Any:
    """The results of each way, or the error; and of which types the batches were. ``opaque``: by a function that nobody knows."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", ALL[kind][0])])
    batches = [pa.RecordBatch.from_pylist(rows, schema=schema) for rows in epochs]
    flow = rd.Dataflow()
    source = flow.from_epochs(batches if columnar else [batch.to_pylist() for batch in batches])
    known = BY_PYTHON[word]
    function = (lambda a, b: known(a, b)) if opaque else known
    ways = of_windows(source.assign_timestamps("t", max_delay=99).key_by("k"))
    for how, keyed in ways.items():
        found = keyed.reduce(function, "v")
        found.collect(how)
        found.as_records().map_batches(lambda batch: [type(batch)]).collect(f"types of {how}")
    try:
        result = flow.run(runtime="local", parallelism=parallelism)
    except (rd.DataflowError, OverflowError) as error:
        return type(error), None
    values = {how: sorted(map(form, (record for _, record in result[how])), key=repr) for how in ways}
    return values, {one for name in result for _, one in result[name] if name.startswith("types")}


def epochs_of(values: Any) -> Any:
    record = st.fixed_dictionaries({"k": st.integers(0, 2), "t": st.integers(0, 30), "v": values})
    return st.lists(st.lists(record, min_size=1, max_size=6), min_size=1, max_size=3)


@by_turns(3)
@pytest.mark.parametrize(("kind", "word"), IN_COLUMNS)
@examples(each_run=2, soak=4)
@given(data=st.data(), parallelism=st.integers(1, 2))
def test_columns_give_what_calls_give(kind: str, word: str, data: st.DataObject, parallelism: int) -> None:
    plain = ALL[kind][1].filter(lambda v: v != 0) if kind.startswith("float") else ALL[kind][1]
    epochs = data.draw(epochs_of(plain))
    wanted, _ = run(kind, word, epochs, columnar=False, opaque=True)
    found, types = run(kind, word, epochs, parallelism=parallelism)
    assert found == wanted
    if word != "add" or isinstance(wanted, type):  # a sum that could leave 64 bits goes on in rows
        assert types == {pa.RecordBatch}


@pytest.mark.parametrize(("kind", "word"), IN_ROWS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_what_kernels_would_give_otherwise_is_called(kind: str, word: str, data: st.DataObject) -> None:
    epochs = data.draw(epochs_of(ALL[kind][1]))
    wanted, _ = run(kind, word, epochs, opaque=True)
    found, types = run(kind, word, epochs)
    assert found == wanted
    assert types in (None, {list})


@pytest.mark.parametrize("word", ["min", "max"])
@examples(each_run=7, soak=20)
@given(epochs=epochs_of(st.sampled_from([0.0, -0.0, float("nan"), 1.5, None])))
def test_null_nan_and_signs_of_zero_are_as_the_function_sees_them(word: str, epochs: list[list[Any]]) -> None:
    assert run("float64", word, epochs)[0] == run("float64", word, epochs, opaque=True)[0]


def test_integers_without_bound_and_the_rounding_of_decimals() -> None:
    large = [[{"k": 0, "t": at, "v": (1 << 63) - 1} for at in range(3)]]
    assert run("int", "add", large)[0] == run("int", "add", large, opaque=True)[0]
    assert run("int", "add", large)[0]["running"] == [form((0, 3 * ((1 << 63) - 1)))]
    digits = [[{"k": 0, "t": at, "v": Decimal("9" * 34 + ".0001")} for at in range(2)]]
    assert run("decimal128", "add", digits)[0]["running"] == [form((0, Decimal("9" * 34 + ".0001") + Decimal("9" * 34 + ".0001")))]


def test_the_schema_is_known_behind_it_and_explain_says_why_not() -> None:
    flow = rd.Dataflow()
    keyed = flow.from_arrow(pa.table({"k": ["a"], "n": pa.array([1], pa.int32()), "x": [1.5]})).key_by("k")
    assert keyed.reduce(max, "n").schema == pa.schema({"k": pa.string(), "reduce(n)": pa.int32()})
    assert keyed.reduce(operator.add, "n").as_columns("k", "n").schema == pa.schema({"k": pa.string(), "n": pa.int64()})
    for function, value, why in (
        (lambda a, b: a, "n", "reduce calls a function for each pair"),
        (operator.add, "x", r"reduce of double ('x') handles rows"),
        (max, None, "the value of reduce is a function"),
    ):
        found = keyed.reduce(function, value)
        assert found.schema is None
        assert why in found.flow.explain()
