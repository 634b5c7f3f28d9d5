"""Snapshots of windows over event time: open windows, watermarks, and batches that wait for their time."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.aggregates.aggregators import Count, Several, Sum
from rayad.dataflow.operators.aggregates.top_k import TopK
from rayad.dataflow.operators.joins.asof import AsOfJoin
from rayad.dataflow.operators.joins.intervals import IntervalJoin
from rayad.dataflow.operators.joins.windowed import WindowJoin
from rayad.dataflow.operators.state import touched_keys
from rayad.dataflow.operators.windows.assigning import AssignWindows
from rayad.dataflow.operators.windows.best import BestRecords
from rayad.dataflow.operators.windows.firing import EventWindows
from rayad.dataflow.operators.windows.late_records import PlaceRecords
from rayad.dataflow.operators.windows.told_times import TellTimes
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, whole_record
from rayad.progress import Timestamp
from tests.dataflow.driven import Driven, Step, check, steps_with

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("until", pa.int64()), ("v", pa.int64())])
KEY, TIMES, VALUE = KeySelector(columns=("k",)), ValueSelector(column="t"), ValueSelector(column="v")
WINDOWS = {
    "tumbling": rd.windows.tumbling(8),
    "sliding": rd.windows.sliding(9, 3),
    "session": rd.windows.session(3),
    "given": rd.windows.given("t", "until"),
}
AGGREGATORS: dict[str, Any] = {
    "sum": Sum,
    "several": lambda: Several({"n": Count(), "total": Sum()}, [VALUE, VALUE]),
    "max_by": lambda: BestRecords(VALUE, largest=True),
    "top_k": lambda: TopK(2, by=lambda value: -value),
    "top_k by t": lambda: TopK(2, by="t"),
}


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)


def record(k: int, t: int, v: int) -> dict[str, int]:
    return {"k": k, "t": t, "until": t + 5 + v % 3, "v": v}


RECORDS = st.lists(st.builds(record, st.integers(0, 11), st.integers(0, 40), st.integers(0, 6)), min_size=1, max_size=4)
FIRST = [record(k, t, 1) for k in range(12) for t in (20, 30)]


def sent(element: Any, records: list[Any], columnar: bool) -> Any:
    """Records combined as a sender does it."""
    batch = pa.RecordBatch.from_pylist(records, schema=SCHEMA) if columnar else records
    gatherer = element.gatherer() if columnar else None
    if gatherer is None:
        return element.apply(batch)
    made = [*gatherer.add(Timestamp(0), batch), *(part for _, part in gatherer.flush())]
    assert len(made) == 1
    return made[0]


def element_of(windows: str, aggregator: Any) -> AssignWindows:
    value = ValueSelector(function=lambda row: (row["v"],) * 2) if isinstance(aggregator, Several) else VALUE
    if isinstance(aggregator, BestRecords) or (isinstance(aggregator, TopK) and aggregator.by == "t"):
        value = ValueSelector(function=whole_record)
    return AssignWindows(KEY, value, aggregator, TIMES, WINDOWS[windows])


def window_steps(element: AssignWindows, columns: bool, rows: bool) -> st.SearchStrategy[list[Step]]:
    columns = columns and (bool(element.aggregator.partials) or isinstance(element.aggregator, BestRecords))
    kinds = st.sampled_from([True] * 9 * columns + [False] * (rows or not columns))
    data = st.tuples(st.just(0), st.builds(lambda some, columnar: sent(element, some, columnar), RECORDS, kinds))
    times = st.tuples(st.just(1), RECORDS.map(TellTimes(TIMES).apply))
    batches = st.one_of(data, data, times).filter(lambda pair: len(pair[1]) > 0)
    return steps_with(batches, first=[(0, sent(element, FIRST, columns)), (1, [25])])


def fetch_all(rows: Any) -> None:
    """Let all that is in runs be in memory."""
    rows.fetch([key for key, _ in rows.below()])


def view_of(make: Any) -> Any:
    """The results that the open windows would give, in whatever form their state is kept."""

    def view(vertex: Any) -> Any:
        copy = make()
        copy.restore(pickle.loads(pickle.dumps(vertex.checkpoint())))
        rows, columns = copy.open.rows, copy.open.columns
        fetch_all(rows)
        found = [(key, window, a) for window, kept in rows.open.items() for key, a in kept.items()]
        found += [(key, rd.Window(start, end), a) for key, some in rows.sessions.items() for start, end, a in some]
        found += [one for some in columns.taken(None).ended(None) for one in some]
        merged: dict[Any, Any] = {}
        for key, window, a in found:
            merged[key, window] = copy.aggregator.merge(merged[key, window], a) if (key, window) in merged else a
        results = {at: copy.aggregator.result(a) for at, a in merged.items()}
        plain = {at: sorted(map(repr, result)) if isinstance(result, list) else result for at, result in results.items()}
        return plain, copy.marks.checkpoint(), {time: [waiting(some) for some in both] for time, both in copy.pending.items()}

    return view


def waiting(batches: list[Any]) -> Counter[str]:
    return Counter(repr(row) for batch in batches for row in to_rows(batch))


PLACED = PlaceRecords(KEY, TIMES, WINDOWS["tumbling"])
INTERVAL = rd.between(-4, 9)
TIMED = PlaceRecords(KEY, TIMES, INTERVAL)


def join_steps(columns: bool, rows: bool, placed: PlaceRecords = PLACED) -> st.SearchStrategy[list[Step]]:
    kinds = st.sampled_from([True] * 9 * columns + [False] * rows)
    data = st.tuples(st.integers(0, 1), st.builds(lambda some, columnar: sent(placed, some, columnar), RECORDS, kinds))
    times = st.tuples(st.integers(2, 3), RECORDS.map(TellTimes(TIMES).apply))
    first = [(side, sent(placed, FIRST, columns)) for side in (0, 1)]
    return steps_with(st.one_of(data, data, times), first=[*first, (2, [25]), (3, [25])])


def view_of_join(vertex: Any) -> Any:
    copy = WindowJoin(vertex.windows, vertex.marks.rules)
    copy.restore(pickle.loads(pickle.dumps(vertex.checkpoint())))
    fetch_all(copy.open.rows)
    kept = [
        Counter(
            repr((window, key, record))
            for window, sides in copy.open.rows.open.items()
            for key, some in sides[side].items()
            for record in some
        )
        for side in (0, 1)
    ]
    for window, sides in copy.open.columns.as_rows().items():
        for side, found in zip(kept, sides, strict=True):
            side.update(repr((window, key, record)) for key, some in found.items() for record in some)
    pending = {time: [waiting(side) for side in sides] for time, sides in copy.pending.items()}
    return kept, pending, copy.marks.checkpoint()


def view_of_interval_join(vertex: Any) -> Any:
    """Each record that is kept, with its tick and whether it is owed a result."""
    rows, columns = vertex.open.rows, vertex.open.columns
    there = [*rows.kept.items(), *rows.below(), *columns.as_rows().items()]
    kept = [Counter(repr((key, entry)) for key, sides in there for entry in sides[side]) for side in (0, 1)]
    pending = {time: [waiting(side) for side in sides] for time, sides in vertex.pending.items()}
    return kept, pending, vertex.marks.checkpoint()


def view_of_asof_join(vertex: Any) -> Any:
    """Each record that is kept, with its tick and its epoch, in whatever form it is."""
    copy = AsOfJoin(vertex.open.rows.rule, vertex.marks.rules)
    copy.restore(pickle.loads(pickle.dumps(vertex.checkpoint())))
    copy.open.to_rows()
    fetch_all(copy.open.rows)
    kept = [Counter(repr((key, entry)) for key, sides in copy.open.rows.kept.items() for entry in sides[side]) for side in (0, 1)]
    pending = {time: [waiting(side) for side in sides] for time, sides in vertex.pending.items()}
    return kept, pending, vertex.marks.checkpoint()


def switches(sender: Any, marks: tuple[int, ...]) -> list[list[Step]]:
    """Epochs of columns, of rows, and of a watermark that closes all windows, in every order, each with a snapshot or without."""
    out = []
    for kinds in itertools.product(["columns", "rows", "expire"], repeat=4):
        for snapshots in itertools.product([False, True], repeat=3):
            steps: list[Step] = []
            for epoch, (kind, snapshot) in enumerate(zip(kinds, (True, *snapshots), strict=True)):
                for at in range(1 if kind == "expire" else 4):
                    data = sent(sender, [record(10 * epoch + at, 100 * epoch, 1)], kind == "columns")
                    port, batch = (0, data) if kind != "expire" else (marks[0], [100 * epoch + 50])
                    steps.append(("recv", port, batch, Timestamp(epoch)))
                steps += [("recv", mark, [100 * epoch + 50], Timestamp(epoch)) for mark in marks[1:] if kind == "expire"]
                steps += [("notify",), *[("snapshot",)] * snapshot]
            out.append([*steps, ("crash",)])
    return out


@pytest.mark.parametrize("windows", ["tumbling", "session"])
def test_windows_that_switch_between_rows_and_columns_resume_from_a_snapshot(windows: str) -> None:
    def make() -> EventWindows:
        return EventWindows(Sum(), WINDOWS[windows], (4,))

    for steps in switches(element_of(windows, Sum()), (1,)):
        check(make, steps, view=view_of(make))


def test_window_joins_that_switch_between_rows_and_columns_resume_from_a_snapshot() -> None:
    for steps in switches(PLACED, (2, 3)):
        check(lambda: WindowJoin(WINDOWS["tumbling"], (2, 6)), steps, view=view_of_join)


def test_interval_joins_that_switch_between_rows_and_columns_resume_from_a_snapshot() -> None:
    for steps in switches(TIMED, (2, 3)):
        check(lambda: IntervalJoin(INTERVAL, (2, 6), "full"), steps, view=view_of_interval_join)


def many(count: int, at: int) -> list[Any]:
    return [record(k, at, 1) for k in range(count)]


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("windows", ["sliding", "session"])
def test_the_size_of_a_snapshot_of_windows_grows_with_the_new_records(windows: str, columnar: bool) -> None:
    element = element_of(windows, Sum())
    run = Driven(lambda: EventWindows(Sum(), WINDOWS[windows], (100,)))
    sizes = []
    for epoch, count in enumerate([4_000, 5, 5, 12_000]):
        run.step(("recv", 0, sent(element, many(count, 20 + epoch), columnar), Timestamp(epoch)))
        run.step(("recv", 1, [20 + epoch], Timestamp(epoch)))
        run.step(("notify",))
        run.snapshot()
        sizes.append((len(run.chain), len(run.chain[-1])))
    assert [parts for parts, _ in sizes] == [1, 2, 3, 1]
    assert sizes[1][1] < sizes[0][1] / 20
    assert sizes[2][1] < sizes[0][1] / 20


@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
def test_windows_that_have_fired_are_gone_after_an_increment(columnar: bool) -> None:
    element = element_of("tumbling", Sum())
    run = Driven(lambda: EventWindows(Sum(), WINDOWS["tumbling"], (0,)))
    for epoch, (count, at) in enumerate([(50, 8), (100, 16), (2, 25)]):
        run.step(("recv", 0, sent(element, many(count, at), columnar), Timestamp(epoch)))
        run.step(("recv", 1, [at], Timestamp(epoch)))
        run.step(("notify",))
        run.snapshot()
    assert run.increments == 1
    run.go_back()
    assert isinstance(run.vertex, EventWindows)
    assert (run.vertex.open.columns.rows, sum(map(len, run.vertex.open.rows.open.values()))) == ((2, 0) if columnar else (0, 2))
    run.end(Timestamp(3))
    ends = Counter(window.end for edge, time, batch in run.context.sent if time == Timestamp(3) for _, window, _ in to_rows(batch))
    assert ends == {32: 2}


def test_a_small_part_of_a_large_run_is_written_alone() -> None:
    run = Driven(lambda: EventWindows(Sum(), WINDOWS["tumbling"], (0,)))
    element = element_of("tumbling", Sum())
    batch = pa.record_batch(
        {
            "k": np.arange(20_000),
            "t": np.where(np.arange(20_000) < 15_000, 1, 99),
            "until": np.zeros(20_000, np.int64),
            "v": np.arange(20_000),
        }
    )
    gatherer = element.gatherer()
    assert gatherer is not None
    gatherer.add(Timestamp(0), batch)
    for step in [("recv", 0, gatherer.flush()[0][1], Timestamp(0)), ("notify",)]:
        run.step(step)
    whole = len(pickle.dumps(run.vertex.checkpoint()))
    run.step(("recv", 1, [50], Timestamp(1)))
    run.step(("notify",))
    assert len(pickle.dumps(run.vertex.checkpoint())) < whole / 3
