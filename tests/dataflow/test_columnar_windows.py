"""Event-time windows give the same from rows and from columns, late records included, and what plain Python says."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.programs import model as m
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.string()), ("f", pa.float64()), ("t", pa.int64()), ("until", pa.int64()), ("v", pa.int64())])
WINDOWS = {
    "tumbling": rd.windows.tumbling(4),
    "tumbling, offset": rd.windows.tumbling(4, -3),
    "sliding": rd.windows.sliding(6, 2),
    "sliding, no multiple": rd.windows.sliding(5, 3, 1),
    "sliding with gaps": rd.windows.sliding(2, 5),
    "session": rd.windows.session(2),
    "given": rd.windows.given("t", "until"),
}
RECORD = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "f": st.sampled_from([0.0, -0.0, 1.5, None]),
        "t": st.integers(-8, 24),
        "until": st.integers(0, 30),
        "v": st.none() | st.sampled_from([1, 2, -5, 2**62, -(2**62), 2**63 - 1]),
    }
)


def run(epochs: list[Any], windows: Any, delay: int, parallelism: int, seed: int) -> dict[str, Any]:
    flow = rd.Dataflow()
    stream = flow.from_epochs(epochs, batch_rows=3, parts=2).assign_timestamps("t", max_delay=delay)
    for key in ("k", ["k", "f"]):
        windowed = stream.key_by(key).window(windows)
        results = {
            "count": windowed.count(),
            "sum": windowed.sum("v"),
            "max": windowed.max("v"),
            "mean": windowed.mean("v"),
            "several": windowed.aggregate({"n": "count", "least": ("min", "v"), "sum": ("sum", "v")}),
        }
        for name, result in results.items():
            result.collect(f"{name} {len(key)}")
            result.late.collect(f"late {name} {len(key)}")
    everything = stream.window(windows).count()
    everything.collect("all")
    everything.late.collect("all late")
    return flow.run(runtime="local", parallelism=parallelism, seed=seed)  # type: ignore[no-any-return]


@pytest.mark.parametrize("windows", WINDOWS)
@examples(each_run=3, soak=25)
@given(
    epochs=st.lists(st.lists(RECORD, max_size=7), min_size=1, max_size=4),
    delay=st.integers(0, 6),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_rows_and_columns_give_the_same(windows: str, epochs: list[Any], delay: int, parallelism: int, seed: int) -> None:
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    rows = run([batch.to_pylist() for batch in batches], WINDOWS[windows], delay, parallelism, seed)
    columns = run(batches, WINDOWS[windows], delay, parallelism, seed)
    assert set(rows) == set(columns)
    for sink in rows:
        m.require_same([(t, tidy(r)) for t, r in columns[sink]], [(t, tidy(r)) for t, r in rows[sink]], sink)


def tidy(value: Any) -> Any:
    """-0.0 is 0.0; ``repr`` tells them apart."""
    if isinstance(value, rd.Window):
        return value
    if isinstance(value, tuple):
        return tuple(tidy(part) for part in value)
    return value + 0.0 if isinstance(value, float) else value


def columnar(epochs: list[pa.RecordBatch], build: Any) -> pa.Table:
    flow = rd.Dataflow()
    build(flow.from_epochs(epochs)).collect("out", columnar=True)
    return flow.run(runtime="local", parallelism=2)["out"]


def three_epochs() -> list[pa.RecordBatch]:
    rows = [[{"k": "a", "f": 1.0, "t": 10 * e + i, "until": 10 * e + i + 3, "v": i} for i in range(8)] for e in range(3)]
    return [pa.RecordBatch.from_pylist(r, schema=SCHEMA) for r in rows]


@pytest.mark.parametrize("windows", WINDOWS)
def test_results_stay_columns(windows: str) -> None:
    out = columnar(three_epochs(), lambda s: s.assign_timestamps("t").key_by("k").window(WINDOWS[windows]).sum("v"))
    assert out.schema.names == ["k", "window", "sum(v)"]
    assert all(isinstance(window, rd.Window) for window in out.column("window").to_pylist())


def test_windows_of_datetimes_are_columns_of_timestamps() -> None:
    begin = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    rows = [{"k": "a", "t": begin + dt.timedelta(hours=i)} for i in range(6)]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([("k", pa.string()), ("t", pa.timestamp("ms", "Europe/Oslo"))]))
    hours = rd.windows.sliding(dt.timedelta(hours=4), dt.timedelta(hours=2))
    out = columnar([batch], lambda s: s.assign_timestamps("t").key_by("k").window(hours).count().as_columns())
    assert out.schema.field("window_start").type == pa.timestamp("us", "UTC")
    found = sorted(zip(out.column("window_start").to_pylist(), out.column("count").to_pylist(), strict=True))
    assert found == [(begin + dt.timedelta(hours=h), n) for h, n in ((-2, 2), (0, 4), (2, 4), (4, 2))]


def test_windows_that_records_bring_along_leave_out_what_lies_outside() -> None:
    rows = [("a", 5, 0, 10), ("a", 9, 0, 10), ("a", 10, 0, 10), ("b", 1, 0, 3), ("b", 30, 20, 40), ("b", 2, None, 3)]
    batch = pa.RecordBatch.from_pylist([dict(zip(("k", "t", "from", "to"), row, strict=True)) for row in rows])
    expected = [("a", rd.Window(0, 10), 2), ("b", rd.Window(0, 3), 1), ("b", rd.Window(20, 40), 1)]
    for epochs in ([batch], [batch.to_pylist()]):
        flow = rd.Dataflow()
        flow.from_epochs(epochs).assign_timestamps("t").key_by("k").window(rd.windows.given("from", "to")).count().collect("out")
        assert sorted(r for _, r in flow.run(runtime="local")["out"]) == expected


def test_late_gives_the_late_records_themselves() -> None:
    """They were put together by epoch, key and window, and came as the aggregate of that."""
    rows = [[("a", 100)], [("a", 1), ("a", 2), ("a", 7), ("b", 3)]]
    epochs = [pa.RecordBatch.from_pylist([{"k": k, "t": t} for k, t in part]) for part in rows]
    for source in (epochs, [e.to_pylist() for e in epochs]):
        flow = rd.Dataflow()
        counted = flow.from_epochs(source, batch_rows=1).assign_timestamps("t").key_by("k").window(rd.windows.tumbling(5)).count()
        counted.late.collect("late")
        got = sorted(flow.run(runtime="local", parallelism=2)["late"], key=repr)
        expected = [("a", (0, 5), 1), ("a", (0, 5), 2), ("a", (5, 10), 7), ("b", (0, 5), 3)]
        assert got == [(rd.Timestamp(1), (k, rd.Window(*window), {"k": k, "t": t})) for k, window, t in expected]


def test_a_batch_of_rows_among_columns_gives_the_same() -> None:
    batches = three_epochs()
    mixed = [batches[0], batches[1].to_pylist(), batches[2]]
    for windows in WINDOWS.values():
        found = [run(epochs, windows, 2, 2, 1) for epochs in (batches, mixed)]
        for sink in found[0]:
            m.require_same(found[1][sink], found[0][sink], sink)


def test_columns_that_change_their_type_give_the_same() -> None:
    first = pa.record_batch({"k": pa.array([1, 2], pa.int32()), "t": [1, 2], "v": [1, 2]})
    second = pa.record_batch({"k": pa.array([1, 3], pa.int64()), "t": [3, 4], "v": [10, 20]})
    flow = rd.Dataflow()
    flow.from_epochs([first, second]).assign_timestamps("t").key_by("k").window(rd.windows.tumbling(10)).sum("v").collect("out")
    window = rd.Window(0, 10)
    assert sorted(r for _, r in flow.run(runtime="local")["out"]) == [(1, window, 11), (2, window, 2), (3, window, 20)]
