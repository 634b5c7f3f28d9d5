"""Snapshots of distinct, stateful_map and join: they hold only state; increments hold what was changed and what was removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from rayad.dataflow.operators.joins.join import Join
from rayad.dataflow.operators.keys.key_first import KeyFirst
from rayad.dataflow.operators.state import touched_keys
from rayad.dataflow.records.selectors import KeySelector
from rayad.progress import Timestamp
from tests.dataflow.driven import Driven, Step, steps_with

KEYS = "abcdefghijklmnopqrst"
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 3)), max_size=3).map(lambda rows: (0, rows))


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)


RECORD = st.fixed_dictionaries({"k": st.sampled_from([*range(8), None]), "j": st.sampled_from("xy"), "v": st.integers(0, 99)})
JOINS = {
    "integers": (["k"], pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.int64())]), False),
    "nulls": (["k"], pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.int64())]), True),
    "two columns": (["j", "k"], pa.schema([("k", pa.int32()), ("j", pa.string()), ("v", pa.float64())]), True),
}


def join_steps(how: str, columns: bool, rows: bool) -> st.SearchStrategy[list[Step]]:
    keys, schema, nulls = JOINS[how]
    element = KeyFirst(KeySelector(columns=tuple(keys)))

    def batch(records: list[Any], columnar: bool) -> Any:
        return element.apply(pa.RecordBatch.from_pylist(records, schema=schema) if columnar else records)

    record = RECORD if nulls else RECORD.filter(lambda row: row["k"] is not None)
    kinds = st.sampled_from([True] * 9 * columns + [False] * rows)
    batches = st.tuples(st.integers(0, 1), st.builds(batch, st.lists(record, min_size=1, max_size=3), kinds))
    first = [(side, batch([{"k": k, "j": "x", "v": k} for k in range(10)], columns)) for side in (0, 1)]
    return steps_with(batches, first=first)


def kept(vertex: Any) -> Any:
    """The rows of both sides, however they are divided into runs."""
    sides = vertex.sides.columns.as_rows() if vertex.sides.columns.is_used else vertex.sides.rows.kept
    return [{key: sorted(map(repr, rows)) for key, rows in side.items()} for side in sides]


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_a_join_writes_the_rows_that_have_come(columns: bool) -> None:
    element = KeyFirst(KeySelector(columns=("k",)))
    run = Driven(Join)
    sizes = []
    for epoch, count in enumerate([10_000, 10, 10, 30_000]):
        batch = pa.record_batch({"k": np.arange(count), "v": np.arange(count)})
        for side in (0, 1):
            run.step(("recv", side, element.apply(batch if columns else batch.to_pylist()), Timestamp(epoch)))
        run.snapshot()
        sizes.append((len(run.chain), len(run.chain[-1])))
    assert [parts for parts, _ in sizes] == [1, 2, 3, 1]
    assert sizes[1][1] < sizes[0][1] / 30
    assert not columns or sizes[0][1] < 2 * 10_000 * 16 + 4_000
    before = kept(run.vertex)
    run.go_back()
    assert kept(run.vertex) == before


def test_a_switch_of_a_join_to_rows_is_written_in_full() -> None:
    element = KeyFirst(KeySelector(columns=("k",)))
    run = Driven(Join)
    for epoch, (count, columns) in enumerate([(100, True), (1, True), (1, False), (1, False)]):
        batch = pa.record_batch({"k": np.arange(count), "v": np.arange(count)})
        run.step(("recv", 0, element.apply(batch if columns else batch.to_pylist()), Timestamp(epoch)))
        run.snapshot()
        assert len(run.chain) == [1, 2, 1, 2][epoch]
