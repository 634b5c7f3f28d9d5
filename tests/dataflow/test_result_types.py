"""The Arrow types of results: one Python object for each, pickled by name, and few are kept."""

from __future__ import annotations

import gc
import pickle

import cloudpickle
import pyarrow as pa
import pytest

from rayad.dataflow.operators.results import KEPT_MAX, KeptTypes, PairType, pair_array, record_array, window_array

LEFT, RIGHT = pa.record_batch({"k": [1], "a": ["x"]}), pa.record_batch({"k": [1], "b": [2.0]})
ARRAYS = {
    "window": lambda: window_array(pa.array([0]), pa.array([10])),
    "record": lambda: record_array(LEFT),
    "pair": lambda: pair_array(LEFT, RIGHT, ["k"]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_type_is_made_once_however_often_it_is_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_arrays([ARRAYS[name]()], names=["x"])
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        read = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
    gc.collect()
    before = [id(batch.schema.field(0).type), id(read.schema.field(0).type)]
    monkeypatch.setattr(type(batch.column(0).type), "__init__", lambda *_: pytest.fail("it is made again"))
    for _ in range(3):
        gc.collect()
        assert [id(batch.column(0).type), id(read.column(0).type)] == before
    assert read.column(0).type == batch.column(0).type
    assert read.to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("name", ARRAYS)
def test_a_type_is_pickled_by_its_name(name: str) -> None:
    """Regression: cloudpickle copied the class method that makes it, 0.7 KB with each array."""
    array = ARRAYS[name]()
    pickled = cloudpickle.dumps(array.type)
    assert len(pickled) < 600
    assert b"co_code" not in pickled
    assert b"_make_function" not in pickled
    assert pickle.loads(pickled) == array.type
    assert pickle.loads(cloudpickle.dumps(array)).to_pylist() == array.to_pylist()


def test_types_that_differ_in_anything_are_others_and_not_all_are_kept() -> None:
    left, right = pa.struct([("k", pa.int64())]), pa.struct([("k", pa.int32())])
    made = [
        pair_array(pa.record_batch({"k": pa.array([1], one)}), pa.record_batch({"k": pa.array([1], other)}), keys).type
        for one, other in ((pa.int64(), pa.int32()), (pa.int32(), pa.int64()))
        for keys in ((), ("k",))
    ]
    assert [kind.storage_type.field(0).type for kind in made] == [left, left, right, right]
    assert [kind.right_keys for kind in made] == [(), ("k",), (), ("k",)]
    kept: KeptTypes[PairType] = KeptTypes()
    for width in range(1000):
        storage = pa.struct([("k", pa.binary(width + 1))])
        assert kept.get(None, storage, lambda: PairType(left, right)) is kept.get(None, storage, lambda: pytest.fail("it was there"))
    assert 0 < len(kept) <= KEPT_MAX
