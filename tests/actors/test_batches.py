"""Batches survive the wire: rows of any kind, columns of any type, slices cut, no copies on arrival."""

from __future__ import annotations

import datetime
import decimal
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.plane.batch_codec import batch_bytes, batch_len, batch_time, decode_batch, encode_batch
from rayad.progress import DataflowError, ProtocolError, Timestamp

TIME = Timestamp(3, (1,))


def wire(time: Timestamp, batch: Any) -> bytes:
    return b"".join(encode_batch(time, batch))


@given(
    epoch=st.integers(0, 2**63 - 1), counters=st.lists(st.integers(0, 2**63 - 1), max_size=5), records=st.lists(st.text() | st.integers())
)
def test_times_and_rows_survive(epoch: int, counters: list[int], records: list[Any]) -> None:
    time = Timestamp(epoch, tuple(counters))
    data = wire(time, records)
    assert decode_batch(memoryview(data)) == (time, records)
    assert type(decode_batch(data)[0]) is Timestamp
    assert batch_time(data) == time


def test_a_time_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DataflowError, match="must be an integer below 2"):
        encode_batch(Timestamp.of(2**63, ()), [])
    with pytest.raises(DataflowError, match="at most 255 counters"):
        encode_batch(Timestamp(0, (0,) * 256), [])


def test_lambdas_and_local_classes_travel_by_cloudpickle() -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    _, (function, record) = decode_batch(wire(TIME, [lambda x: x + 1, Local(4)]))
    assert function(1) == 2
    assert record.value == 4


def test_definitions_in_main_are_pickled_by_value() -> None:
    """Plain pickle would write `__main__.Record`, which the receiving actor does not have: its `__main__` is Ray's worker."""
    import __main__

    class Record:
        pass

    Record.__module__ = "__main__"
    Record.__qualname__ = "RecordOfThisTest"
    Record.__name__ = "RecordOfThisTest"
    __main__.RecordOfThisTest = Record
    try:
        data = wire(TIME, [Record()])
    finally:
        delattr(__main__, "RecordOfThisTest")
    _, (record,) = decode_batch(data)
    assert type(record).__name__ == "RecordOfThisTest"


def test_a_record_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(DataflowError) as caught:
        encode_batch(TIME, [1, "a", threading.Lock(), threading.Lock()])
    assert str(caught.value) == (
        "record 2 of 4 in a batch cannot be sent: a _thread.lock cannot be pickled (TypeError: cannot pickle '_thread.lock' object); "
        "send its data, not handles such as files, sockets, locks or generators"
    )
    assert caught.value.index == 2


def test_values_that_are_not_batches_are_refused() -> None:
    with pytest.raises(DataflowError, match=r"a batch at .* is a Table: it must be a list of records or a pyarrow.RecordBatch"):
        encode_batch(TIME, pa.table({"a": [1]}))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="format 9"):
        decode_batch(bytes([9, 0]) + bytes(14))
    with pytest.raises(ProtocolError, match="ends inside its head"):
        decode_batch(b"abc")


def all_types(rows: int) -> pa.RecordBatch:
    numbers = list(range(rows))
    columns = {
        "int": pa.array([None if n % 7 == 3 else n for n in numbers], pa.int64()),
        "bool": pa.array([n % 2 == 0 for n in numbers]),
        "float": pa.array(np.arange(rows) / 3),
        "text": pa.array([f"text {n}" for n in numbers]),
        "large": pa.array([f"text {n}" for n in numbers], pa.large_string()),
        "binary": pa.array([bytes([n % 256]) * (n % 5) for n in numbers]),
        "list": pa.array([[n] * (n % 4) for n in numbers]),
        "struct": pa.array([{"a": n, "b": str(n)} for n in numbers]),
        "time": pa.array([datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=n) for n in numbers], pa.timestamp("us", tz="UTC")),
        "decimal": pa.array([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(12, 2)),
        "null": pa.nulls(rows),
    }
    return pa.RecordBatch.from_arrays(
        list(columns.values()),
        schema=pa.schema([pa.field(n, c.type, metadata={"unit": n}) for n, c in columns.items()], metadata={"origin": "test"}),
    )


def with_dictionary(rows: int) -> pa.RecordBatch:
    words = pa.array([f"word {n % 3}" for n in range(rows)]).dictionary_encode()
    nested = pa.StructArray.from_arrays([words], names=["inner"])
    return pa.record_batch({"word": words, "nested": nested, "n": np.arange(rows)})


@pytest.mark.parametrize("make", [all_types, with_dictionary])
@pytest.mark.parametrize("rows", [0, 1, 3, 5000])
def test_columns_survive(make: Any, rows: int) -> None:
    batch = make(rows)
    time, got = decode_batch(wire(TIME, batch))
    assert time == TIME
    got.validate(full=True)
    assert got.equals(batch, check_metadata=True)
    assert got.schema.equals(batch.schema, check_metadata=True)


@pytest.mark.parametrize("make", [all_types, with_dictionary])
@pytest.mark.parametrize(("start", "count"), [(0, 1), (13, 5), (9_990, 10), (3, 9_000)])
def test_slices_survive_and_are_cut(make: Any, start: int, count: int) -> None:
    batch = make(10_000)
    part = batch.slice(start, count)
    data = wire(TIME, part)
    _, got = decode_batch(data)
    got.validate(full=True)
    assert got.equals(part)
    assert len(data) <= 2500 + batch.nbytes * count / 10_000 * 1.2


def test_schemas_that_differ_in_metadata_only_are_not_confused() -> None:
    for unit in (b"m", b"s"):
        batch = pa.record_batch([pa.array([1])], schema=pa.schema([pa.field("a", pa.int64())], metadata={"unit": unit}))
        assert decode_batch(wire(TIME, batch))[1].schema.metadata == {b"unit": unit}


@pytest.mark.parametrize("rows", [10, 200_000])
def test_decoded_columns_point_into_the_received_buffer(rows: int) -> None:
    batch = pa.record_batch({"a": np.arange(rows), "b": np.arange(rows) * 0.5})
    received = pa.py_buffer(bytearray(wire(TIME, batch)))
    _, got = decode_batch(memoryview(received))
    for column in got.columns:
        for buffer in column.buffers():
            if buffer is not None:
                assert received.address <= buffer.address < received.address + received.size
                assert (buffer.address - received.address) % 8 == 0


@pytest.mark.parametrize("offset", range(8))
def test_columns_are_aligned_wherever_their_bytes_lie(offset: int) -> None:
    """As those of a batch that was spilled behind others; else Arrow writes a warning to stderr for each that it groups."""
    batch = pa.record_batch({"n": pa.array(range(100)), "t": pa.array([str(n) for n in range(100)])})
    data = wire(TIME, batch)
    _, decoded = decode_batch(memoryview(bytes(offset) + data)[offset:])
    assert decoded == batch
    assert isinstance(decoded, pa.RecordBatch)
    assert {buffer.address % 8 for column in decoded.columns for buffer in column.buffers() if buffer is not None} == {0}


def test_a_large_batch_is_sent_from_its_own_columns() -> None:
    column = pa.array(np.arange(100_000))
    parts = encode_batch(TIME, pa.record_batch({"a": column}))
    addresses = [pa.py_buffer(part).address for part in parts if isinstance(part, memoryview)]
    assert addresses == [column.buffers()[1].address]


def test_sizes() -> None:
    batch = pa.record_batch({"a": np.arange(1000)})
    assert batch_len(batch) == 1000
    assert batch_bytes(batch) == 8000
    assert batch_bytes(batch.slice(0, 10)) == 80
    assert batch_len(["a"] * 7) == 7
    assert batch_bytes([]) == 0
    assert 100 * 30 < batch_bytes(["word"] * 100) < 100 * 100
    assert batch_bytes([(1, "x" * 1000)] * 10) > 10_000
