"""``max_by`` and ``min_by``: whole records, all that share the best value; the same from rows and from columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.progress import Timestamp
from tests.programs import model as m
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("until", pa.int64()), ("v", pa.float64()), ("n", pa.int64())])
WINDOWS = {
    "tumbling": rd.windows.tumbling(4),
    "sliding": rd.windows.sliding(6, 2),
    "session": rd.windows.session(2),
    "given": rd.windows.given("t", "until"),
    "per epoch": rd.windows.per_epoch(),
}
RECORD = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "t": st.integers(-8, 24),
        "until": st.integers(0, 30),
        "v": st.sampled_from([1.0, 2.5, -3.0, None, float("nan")]),
        "n": st.integers(0, 99),
    }
)


def run(epochs: list[Any], windows: Any, parallelism: int, seed: int) -> Any:
    flow = rd.Dataflow()
    stream = flow.from_epochs(epochs, batch_rows=3, parts=2).assign_timestamps("t", max_delay=2)
    for name, windowed in {"key": stream.key_by("k").window(windows), "all": stream.window(windows)}.items():
        for best in ("max_by", "min_by"):
            for column in ("v", "n"):
                result = getattr(windowed, best)(column)
                result.collect(f"{name} {best} {column}")
                if windows != WINDOWS["per epoch"]:
                    result.late.collect(f"{name} {best} {column} late")
    return flow.run(runtime="local", parallelism=parallelism, seed=seed)


@pytest.mark.parametrize("windows", WINDOWS)
@examples(each_run=3, soak=25)
@given(epochs=st.lists(st.lists(RECORD, max_size=7), min_size=1, max_size=4), parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_rows_and_columns_give_the_same(windows: str, epochs: list[Any], parallelism: int, seed: int) -> None:
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    rows = run([batch.to_pylist() for batch in batches], WINDOWS[windows], parallelism, seed)
    columns = run(batches, WINDOWS[windows], parallelism, seed)
    mixed = run([batch.to_pylist() if i % 2 else batch for i, batch in enumerate(batches)], WINDOWS[windows], parallelism, seed)
    for sink in rows:
        m.require_same(columns[sink], rows[sink], sink)
        m.require_same(mixed[sink], rows[sink], sink)


def test_all_records_that_share_the_best_value_are_given() -> None:
    rows = [{"k": "a", "t": 1, "v": 5, "who": "x"}, {"k": "a", "t": 2, "v": 5, "who": "y"}, {"k": "a", "t": 3, "v": 4, "who": "z"}]
    for source in (rows, pa.RecordBatch.from_pylist(rows)):
        flow = rd.Dataflow()
        best = flow.from_epochs([source]).assign_timestamps("t").key_by("k").window(rd.windows.tumbling(10)).max_by("v")
        best.collect("best")
        got = sorted(flow.run(runtime="local")["best"], key=repr)
        assert got == [(Timestamp(0), ("a", rd.Window(0, 10), rows[0])), (Timestamp(0), ("a", rd.Window(0, 10), rows[1]))]


def test_best_records_stay_columns_and_open_into_plain_ones() -> None:
    batch = pa.record_batch({"k": ["a", "a", "b"], "t": [1, 2, 3], "v": [5, 6, 4]})
    flow = rd.Dataflow()
    stream = flow.from_epochs([batch]).assign_timestamps("t")
    stream.window(rd.windows.tumbling(10)).max_by("v").as_columns().collect("all", columnar=True)
    stream.key_by("k").window(rd.windows.per_epoch()).min_by("v").as_columns().collect("each", columnar=True)
    result = flow.run(runtime="local")
    assert result["all"].to_pylist() == [{"window_start": 0, "window_end": 10, "k": "a", "t": 2, "v": 6}]
    assert sorted(result["each"].to_pylist(), key=str) == [
        {"k": "a", "window_start": 0, "window_end": 1, "t": 1, "v": 5},
        {"k": "b", "window_start": 0, "window_end": 1, "t": 3, "v": 4},
    ]
