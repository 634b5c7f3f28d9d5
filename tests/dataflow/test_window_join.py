"""Joins within event-time windows: what plain Python says, from rows and from columns, late records included."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from tests.programs import model as m
from tests.programs.windowed import assigner

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
OTHER = pa.schema([("v", pa.int64()), ("key", pa.int32()), ("t", pa.int64())])
WINDOWS = {"tumbling": rd.windows.tumbling(4), "sliding": rd.windows.sliding(6, 2), "with gaps": rd.windows.sliding(2, 5)}


def model(left: list[list[Any]], right: list[list[Any]], windows: Any, delays: tuple[int, int]) -> tuple[m.Timed, m.Timed]:
    """``(results, late)``: epoch by epoch, window by window."""
    assign = assigner(windows)
    kept: list[dict[rd.Window, list[Any]]] = [{}, {}]
    marks: list[int | None] = [None, None]
    mark: int | None = None
    out: m.Timed = []
    late: m.Timed = []
    last = 0

    def fire(epoch: int, until: int) -> None:
        for window in [w for w in kept[0] if w.end <= until]:
            pairs = [(a, b) for a in kept[0].pop(window) for b in kept[1].get(window, ()) if a["k"] == b["key"]]
            out.extend((rd.Timestamp(epoch), (a["k"], window, (a, b))) for a, b in pairs)

    for epoch in range(max(len(left), len(right))):
        seen = False
        for side, epochs in enumerate((left, right)):
            for record in epochs[epoch] if epoch < len(epochs) else ():
                seen, last = True, epoch
                for window in assign(record["t"]):
                    if mark is not None and window.end <= mark:
                        pair = (record, None) if side == 0 else (None, record)
                        late.append((rd.Timestamp(epoch), (record["k" if side == 0 else "key"], window, pair)))
                    else:
                        kept[side].setdefault(window, []).append(record)
        for side, epochs in enumerate((left, right)):
            times = [record["t"] - delays[side] for record in (epochs[epoch] if epoch < len(epochs) else ())]
            if times:
                marks[side] = max([*times, *([marks[side]] if marks[side] is not None else [])])  # type: ignore[type-var]
        if seen and marks[0] is not None and marks[1] is not None:
            mark = min(marks[0], marks[1])
            fire(epoch, mark)
    fire(last, 10_000)
    return out, late


def run(left: list[Any], right: list[Any], windows: Any, delays: tuple[int, int], options: dict[str, Any]) -> Any:
    flow = rd.Dataflow()
    a, b = flow.from_epochs(left, batch_rows=2, parts=2), flow.from_epochs(right, batch_rows=3)
    other = b.assign_timestamps("t", max_delay=delays[1]).key_by("key")
    joined = a.assign_timestamps("t", max_delay=delays[0]).key_by("k").window(windows).join(other)
    joined.collect("out")
    joined.late.collect("late")
    return flow.run(runtime="local", **options)


def records(key: str, *others: str) -> Any:
    fields = {key: st.integers(0, 2), "t": st.integers(-5, 20), "v": st.integers(0, 99)}
    return st.lists(st.lists(st.fixed_dictionaries(fields), max_size=6), min_size=1, max_size=4)


@pytest.mark.parametrize("windows", WINDOWS)
@settings(max_examples=40)
@given(
    left=records("k"),
    right=records("key"),
    delays=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_pairs_of_each_window(windows: str, left: Any, right: Any, delays: tuple[int, int], parallelism: int, seed: int) -> None:
    columns = (
        [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in left],
        [pa.RecordBatch.from_pylist(rows, schema=OTHER) for rows in right],
    )
    rows = [[batch.to_pylist() for batch in side] for side in columns]
    expected, late = model(rows[0], rows[1], WINDOWS[windows], delays)
    options = {"parallelism": parallelism, "seed": seed}
    mixed = [batch.to_pylist() if i % 2 else batch for i, batch in enumerate(columns[1])]
    for sides in (columns, rows, (columns[0], mixed)):
        got = run(*sides, WINDOWS[windows], delays, options)  # type: ignore[misc]
        m.require_same(got["out"], expected, "pairs")
        m.require_same(got["late"], late, "late")


def test_pairs_stay_columns_and_open_into_plain_ones() -> None:
    left = pa.record_batch({"k": [1, 2], "t": [1, 12], "v": [5, 6]})
    right = pa.record_batch({"v": [7, 8, 9], "key": [1, 1, 2], "t": [3, 13, 14]})
    flow = rd.Dataflow()
    a, b = (flow.from_epochs([batch]).assign_timestamps("t") for batch in (left, right))
    joined = a.key_by("k").window(rd.windows.tumbling(10)).join(b.key_by("key"))
    joined.collect("pairs", columnar=True)
    joined.as_columns().collect("plain", columnar=True)
    result = flow.run(runtime="local")
    assert result["pairs"].schema.names == ["k", "window", "pair"]
    assert sorted(result["plain"].to_pylist(), key=str) == [
        {"k": 1, "window_start": 0, "window_end": 10, "t": 1, "v": 5, "v_right": 7, "t_right": 3},
        {"k": 2, "window_start": 10, "window_end": 20, "t": 12, "v": 6, "v_right": 9, "t_right": 14},
    ]


def test_invalid_joins_in_windows_are_refused() -> None:
    flow = rd.Dataflow()
    timed = flow.from_items([("a", 1)]).assign_timestamps(lambda r: r[1])
    keyed = timed.key_by(lambda r: r[0])
    plain = flow.from_items([("a", 1)]).key_by(lambda r: r[0])
    cases = {
        "both sides must be keyed with key_by": lambda: keyed.window(rd.windows.tumbling(3)).join(timed),  # type: ignore[arg-type]
        "windows of a join are tumbling or sliding, not Session(gap=3)": lambda: keyed.window(rd.windows.session(3)).join(keyed),
        "has no event time; call assign_timestamps(...) after the last map before it": lambda: keyed.window(rd.windows.tumbling(3)).join(
            plain
        ),
    }
    for message, call in cases.items():
        with pytest.raises(rd.DataflowError) as caught:
            call()
        assert str(caught.value).endswith(message)
