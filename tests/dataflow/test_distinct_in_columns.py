"""``distinct`` in columns: what it gives is what rows give, of every type; rows are told apart by what they hold, never by codes alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.distinct import OnceInBatch
from rayad.dataflow.operators.state.slots import seen_rows
from rayad.dataflow.operators.state.slots.row_index import first_positions
from rayad.dataflow.records import content_codes
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, whole_record
from tests.every_type.arrays import COLUMNS
from tests.thorough import examples

REFUSED = {"time64[ns]"}  # nowhere, see docs/types.md
NESTED = {
    "null", "month_day_nano_interval", "list", "large_list", "list_view", "large_list_view", "fixed_size_list", "struct", "map",
    "sparse_union", "dense_union", "uuid", "bool8", "json",
}  # fmt: skip


def found(epochs: list[Any], build: Any, parallelism: int = 2) -> dict[str, Counter[str]]:
    flow = rd.Dataflow()
    build(flow.from_epochs(epochs, batch_rows=5))
    result = flow.run(runtime="local", parallelism=parallelism)
    return {sink: Counter(map(repr, records)) for sink, records in result.items()}


def both(keyed: rd.KeyedStream) -> None:
    keyed.distinct("v").collect("values")
    keyed.distinct().collect("records")


@pytest.mark.parametrize("kind", [kind for kind in COLUMNS if kind not in REFUSED])
def test_rows_and_columns_give_the_same_of_every_type(kind: str) -> None:
    column = COLUMNS[kind]
    batch = pa.record_batch({"k": [i % 3 for i in range(len(column))], "v": column})
    epochs = [batch, batch.slice(2, 7), batch.slice(0, 4)]
    rows = [rd.to_rows(each) for each in epochs]
    assert found(epochs, lambda s: both(s.key_by("k"))) == found(rows, lambda s: both(s.key_by("k")))
    for value in (ValueSelector(column="v"), ValueSelector(function=whole_record)):
        element = OnceInBatch(KeySelector(columns=("k",)), value)
        assert isinstance(element.apply(batch), pa.RecordBatch) is (kind not in NESTED)
        assert (element.rows_because(batch.schema) is None) is (kind not in NESTED)


NAN = float("nan")
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([1, 2, None]),
            "j": st.sampled_from(["", "a", "a\0", "longer than eight", "longer than eigh", None]),
            "v": st.sampled_from([1.0, -1.0, NAN, float("inf"), None]),
        }
    ),
    max_size=12,
)
SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.float32())])


def expected(epochs: list[list[dict[str, Any]]], names: list[str]) -> Counter[str]:
    """By the definition."""
    seen: set[str] = set()
    out: Counter[str] = Counter()
    for epoch, records in enumerate(epochs):
        for row in records:
            what = repr([row[name] for name in names])
            if what not in seen:
                seen.add(what)
                out[repr((rd.Timestamp(epoch), what))] += 1
    return out


@pytest.mark.parametrize("codes", ["as they are", "all alike"])
@examples(each_run=10, soak=150)
@given(epochs=st.lists(RECORDS, min_size=1, max_size=4), parallelism=st.integers(1, 3))
def test_each_distinct_row_comes_once_whatever_its_code(codes: str, epochs: list[list[dict[str, Any]]], parallelism: int) -> None:
    flow = rd.Dataflow()
    stream = flow.from_epochs([pa.RecordBatch.from_pylist(records, schema=SCHEMA) for records in epochs], batch_rows=5)
    stream.key_by(["k", "j"]).distinct("v").map(lambda pair: repr([*pair[0], pair[1]])).collect("v")
    stream.key_by("j").distinct().map(lambda pair: repr(list(pair[1].values()))).collect("records")
    with pytest.MonkeyPatch.context() as patch:
        if codes == "all alike":
            patch.setattr(seen_rows, "content_codes", lambda contents: content_codes.content_codes(contents) % 2)
        result = flow.run(runtime="local", parallelism=parallelism)
    for sink in ("v", "records"):
        assert Counter(map(repr, result[sink])) == expected(epochs, ["k", "j", "v"])


def test_columns_stay_columns_and_keep_their_types() -> None:
    flow = rd.Dataflow()
    names = pa.array(["x", "y", "x"]).dictionary_encode()
    batch = pa.record_batch({"k": pa.array([1, 1, 1], pa.int8()), "name": names, "f": pa.array([1, 1, 1], pa.float32())})
    stream = flow.from_epochs([batch])
    stream.key_by("k").distinct("name").collect("values", columnar=True)
    stream.key_by("k").distinct().as_columns().collect("records", columnar=True)
    result = flow.run(runtime="local")
    values, records = result["values"], result["records"]
    assert values.schema.types == [pa.int8(), names.type]
    assert (records.schema.names, records.schema.types) == (["k", "name", "f"], [pa.int8(), names.type, pa.float32()])
    assert values.num_rows == records.num_rows == 2


def test_columns_of_other_types_and_rows_may_follow() -> None:
    small, wide = pa.array([1, 2], pa.int8()), pa.array([2, 300], pa.int64())
    batches = [pa.record_batch({"k": ["a", "a"], "v": column}) for column in (small, wide)]
    floats, rows = pa.record_batch({"k": ["a", "a"], "v": [2.0, 2.5]}), [{"k": "a", "v": 300}, {"k": "a", "v": "x"}]
    flow = rd.Dataflow()
    flow.from_epochs([*batches, floats, rows]).key_by("k").distinct("v").collect("out")
    got = [(time.epoch, value) for time, (_, value) in flow.run(runtime="local")["out"]]
    assert got == [(0, 1), (0, 2), (1, 300), (2, 2.5), (3, "x")]


def test_codes_of_a_slice_are_those_of_its_rows() -> None:
    for name, column in COLUMNS.items():
        contents = content_codes.contents_of(pa.record_batch({"x": column}))
        if contents is not None:
            codes = content_codes.content_codes(contents)
            again = [content_codes.content_codes(contents.slice(i, 1))[0] for i in range(len(column))]
            assert codes.tolist() == again, name
            kept = {repr(value): int(code) for value, code in zip(contents.column(0).to_pylist(), codes, strict=True)}
            assert len(set(kept.values())) == len(kept), name
            assert len(first_positions(contents)) == len(kept), name
    assert len(first_positions(pa.record_batch({"x": np.arange(1 << 17), "y": pa.nulls(1 << 17, pa.string())}))) == 1 << 17
