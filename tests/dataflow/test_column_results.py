"""Columns of windows, records and pairs: as rows they equal the results of the row path, also after pickling between processes."""

from __future__ import annotations

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.dataflow.operators.as_columns import plain_columns
from rayad.dataflow.operators.results import pair_array, record_array, window_array
from rayad.dataflow.records.batches import mark_keyed

KEYED = mark_keyed(pa.record_batch({"k": ["a", "b"], "n": [1, 2]}), 1)
PLAIN = pa.record_batch({"n": [3, 4], "x": [None, 0.5]})
BATCH = pa.record_batch(
    {
        "window": window_array(pa.array([0, 5]), pa.array([10, 15])),
        "record": record_array(PLAIN),
        "pair": pair_array(KEYED, PLAIN),
    }
)
ROWS = [
    {"window": rd.Window(0, 10), "record": {"n": 3, "x": None}, "pair": (("a", 1), {"n": 3, "x": None})},
    {"window": rd.Window(5, 15), "record": {"n": 4, "x": 0.5}, "pair": (("b", 2), {"n": 4, "x": 0.5})},
]


def test_columns_read_as_rows() -> None:
    assert rd.to_rows(BATCH) == ROWS
    assert rd.to_rows(BATCH.slice(1)) == ROWS[1:]
    assert [BATCH.column(name)[1].as_py() for name in BATCH.schema.names] == list(ROWS[1].values())


@pytest.mark.parametrize("times", [1, 5_000])
def test_columns_keep_their_meaning_between_processes(times: int) -> None:
    batch = pa.Table.from_batches([BATCH] * times).combine_chunks().to_batches()[0]
    time, back = decode_batch(b"".join(map(bytes, encode_batch(rd.Timestamp(3), batch))))
    assert time == rd.Timestamp(3)
    assert rd.to_rows(back) == ROWS * times
    assert back.schema.equals(batch.schema)
    assert hash(back.schema) == hash(batch.schema)


def test_plain_columns_of_every_kind() -> None:
    assert plain_columns(BATCH).schema.names == ["window_start", "window_end", "n", "x", "k", "n_", "n_right", "x_"]
    assert plain_columns([1, 2]).to_pydict() == {"value": [1, 2]}
    assert plain_columns([(("a", 1), {"n": 2})]).to_pylist() == [{"key0": "a", "key1": 1, "n": 2}]
    assert plain_columns([(1, ({"v": 1}, {"v": 2}))]).to_pylist() == [{"key": 1, "v": 1, "v_right": 2}]
    assert plain_columns([]) == []


def test_the_number_of_names_must_be_right() -> None:
    for batch in (pa.record_batch({"a": [1], "b": [2]}), [(1, 2)]):
        with pytest.raises(rd.DataflowError) as caught:
            plain_columns(batch, ["one"])
        assert str(caught.value).startswith("as_columns was given 1 names, ['one'], for 2 columns: [")


def test_as_columns_refuses_invalid_names() -> None:
    flow = rd.Dataflow()
    with pytest.raises(rd.DataflowError) as caught:
        flow.from_items([1]).as_columns(3)  # type: ignore[arg-type]
    assert str(caught.value) == "as_columns was given 3: it takes names of columns"
