"""ArrowSink: it keeps results as Arrow tables, compact and of one schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rayad.integrations import ArrowSink
from rayad.progress import DataflowError, Timestamp
from tests.integrations.driving import run_sink


def test_tables_hold_the_records_of_each_replica() -> None:
    tables = run_sink(ArrowSink(), [[(0, [{"a": 1}]), (1, pa.record_batch({"a": [2]}))], [], [(0, [{"a": 3}])]])
    assert [table.to_pylist() for table in tables] == [[{"a": 1}, {"a": 2}], [{"a": 3}]]


def test_an_epoch_column_is_added_also_to_no_rows() -> None:
    sink = ArrowSink(schema=pa.schema([("a", pa.int64())]), epoch_column="_epoch")
    assert [t.to_pylist() for t in run_sink(sink, [[(7, [{"a": 1}])]])] == [[{"a": 1, "_epoch": 7}]]
    (empty,) = run_sink(sink, [[]])
    assert empty.schema.names == ["a", "_epoch"]


def test_slices_do_not_keep_their_parents_in_memory() -> None:
    big = pa.record_batch({"a": range(100_000)})
    writer = ArrowSink().open(0, 1)
    writer.write(Timestamp(0), big.slice(5, 3))
    assert len(writer.stage()) < 2_000


def test_schema_drift_within_and_between_replicas_is_refused() -> None:
    writer = ArrowSink().open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    with pytest.raises(DataflowError, match="a: int64"):
        writer.write(Timestamp(0), [{"a": "x"}])
    with pytest.raises(DataflowError, match="results of another replica"):
        run_sink(ArrowSink(), [[(0, [{"a": 1}])], [(0, [{"b": 1}])]])


def test_abort_forgets() -> None:
    writer = ArrowSink().open(0, 1)
    writer.write(Timestamp(0), [{"a": 1}])
    writer.abort()
    assert writer.stage() == b""
