"""Windows of event time over collections give in columns what they give in rows, for event times of all types, and make no rows."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.records.values import Window, values_of
from rayad.incremental import moment_vertex
from rayad.incremental.columns.from_rows import column_of
from tests.incremental.in_columns.event_times import MINUTE, TIMES, changes_of, stream_of
from tests.thorough import amount, by_turns


def _so_long(times: int, unit: Any) -> Any:
    return round(times * unit, 6) if isinstance(unit, float) else times * unit


KINDS: dict[str, Any] = {
    "tumbling": lambda unit: rd.windows.tumbling(_so_long(3, unit)),
    "with an offset": lambda unit: rd.windows.tumbling(_so_long(3, unit), offset=_so_long(2, unit)),
    "sliding": lambda unit: rd.windows.sliding(_so_long(4, unit), _so_long(3, unit)),
    "with pauses": lambda unit: rd.windows.sliding(_so_long(2, unit), _so_long(5, unit)),
    "session": lambda unit: rd.windows.session(_so_long(2, unit)),
}


@by_turns(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", TIMES)
def test_windows_in_columns_are_those_of_rows(times: str, kind: str) -> None:
    in_rows = (times, kind) in {("float", "session"), ("tenths", "session"), ("ints in tenths", "session")}  # columns have none of floats
    type_of, time_of, unit = TIMES[times]
    for seed in range(amount(each_run=1, soak=40)):
        changes = changes_of(random.Random(seed), time_of)
        results = []
        for form in ("rows", "columns", "columns, then a function"):
            flow = rd.Dataflow("windows")
            stream = stream_of(flow, changes, type_of, in_columns=form != "rows")
            windowed = stream.as_collection(diff="n").key_by("k").window(KINDS[kind](unit), "at")
            windowed.count().collect("counts")
            if form != "columns":
                windowed.sum("v").key_by(lambda pair: pair[0][1].start).count().collect("starts")
            windowed.max("v").select({"window": rd.col("0", "1"), "end": rd.col("0", "1", "1"), "v": rd.col("1")}).collect("fields")
            refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
            with refused if form == "columns" and not in_rows else nullcontext():
                result = flow.run(runtime="local", seed=seed, parallelism=2 - seed % 2)
            results.append({name: Counter((time.epoch, *change) for time, change in some) for name, some in result.items()})
        assert all(some == {name: results[0][name] for name in some} for some in results), f"seed {seed}"
        assert all(isinstance(key[1], Window) for _, (key, _), _ in results[1]["counts"])


def test_windows_that_come_in_rows_have_columns_too() -> None:
    windows = [Window(0, 5), Window(5, 10)]
    column = column_of(windows)
    assert column is not None
    again = values_of(column)
    assert again == windows
    assert all(type(window) is Window for window in again)


def test_event_times_beyond_all_moments_are_refused() -> None:
    flow = rd.Dataflow("beyond")
    table = pa.table({"k": [1], "at": pa.array([1 << 40], pa.timestamp("s"))})
    flow.from_arrow(table).as_collection().key_by("k").window(rd.windows.tumbling(MINUTE), "at").count().collect("out")
    with pytest.raises(rd.RayadError, match="beyond the years 1 to 9999"):
        flow.run(runtime="local")


def test_two_rows_of_one_moment_in_two_sessions_become_one_session_and_two_again() -> None:
    """By hand: a record between two sessions comes and goes."""
    flow = rd.Dataflow("sessions")
    table = pa.table({"epoch": [0, 0, 1, 2], "k": [1, 1, 1, 1], "at": [0, 10, 5, 5], "n": [1, 1, 1, -1]})
    records = flow.from_arrow(table, epoch="epoch").select("k", "at", "n").as_collection(diff="n")
    records.key_by("k").window(rd.windows.session(5), "at").count().collect("out")
    changes = Counter((time.epoch, *change) for time, change in flow.run(runtime="local")["out"])
    apart = [((1, (0, 5)), 1), ((1, (10, 15)), 1)]
    together = ((1, (0, 15)), 3)
    want = [(0, one, 1) for one in apart] + [(1, one, -1) for one in apart] + [(1, together, 1), (2, together, -1)]
    assert changes == Counter(want + [(2, one, 1) for one in apart])
