"""The forms of keyed state, each filled with ``(key, moment, value)`` and read again. Add a form here: then ``test_laws_of_state.py``
covers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from rayad.dataflow.operators.aggregates.aggregators import Count
from rayad.dataflow.operators.aggregates.collected import CollectList
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.joins.interval_runs import IntervalColumns
from rayad.dataflow.operators.joins.kept_runs import KeptSide
from rayad.dataflow.operators.state import group_index, touched_keys
from rayad.dataflow.operators.state.by_key.dicts import GrowingDict, KeyedDict
from rayad.dataflow.operators.state.by_key.lists import KeyedLists
from rayad.dataflow.operators.state.by_key.sets import GrowingSet, KeyedSets
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.runs import runs as runs_module
from rayad.dataflow.operators.state.runs import runs_by_time
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.runs.runs_by_time import RunsByTime
from rayad.dataflow.operators.state.slots.seen_rows import SeenRows
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.totals.columns import ColumnTotals
from rayad.dataflow.operators.windows.pane_ticks import Form as PaneForm
from rayad.dataflow.operators.windows.pane_ticks import Grid
from rayad.dataflow.operators.windows.panes import Panes
from rayad.dataflow.operators.windows.session_columns import Sessions
from rayad.dataflow.records.batches import mark_keyed, to_rows
from rayad.dataflow.windows import Between
from rayad.progress import Timestamp

GAP = 1


def let_small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens only to much state happens to little."""
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(group_index, "SLICE_KEYS", 4)
    monkeypatch.setattr(runs_by_time, "SLICE_ROWS", 4)
    monkeypatch.setattr(runs_module, "SMALL_RUN", 4)
    monkeypatch.setattr(runs_module, "PIECE_ROWS", 7)
    monkeypatch.setattr(runs_module, "PIECES_OF_MERGE", 5)
    monkeypatch.setattr(runs_module, "FRESH_ROWS_MAX", 40)


Row = tuple[int, ...]
"""Key, moment, value; of a session also its end before the value."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of keyed state.

    Args:
        make: one in which nothing is.
        put: puts rows in.
        rows: what is there.
        model: the rows that must be there when some have been put to others.
    """

    name: str
    make: Callable[[], Any]
    put: Callable[[Any, list[Row]], None]
    rows: Callable[[Any], Iterable[Row]]
    model: Callable[[list[Row], list[Row]], list[Row]]


def _all(kept: list[Row], more: list[Row]) -> list[Row]:
    return kept + more


def _once(kept: list[Row], more: list[Row]) -> list[Row]:
    return list(dict.fromkeys(kept + more))


def _last(kept: list[Row], more: list[Row]) -> list[Row]:
    return [(key, *rest) for key, rest in {key: rest for key, *rest in kept + more}.items()]


def _sums(kept: list[Row], more: list[Row]) -> list[Row]:
    out: dict[tuple[int, int], int] = {}
    for key, moment, value in kept + more:
        out[key, moment] = out.get((key, moment), 0) + value
    return [(*place, value) for place, value in out.items()]


def _sessions(kept: list[Row], more: list[Row]) -> list[Row]:
    out: list[Row] = []
    for key, start, end, value in sorted([*kept, *((key, at, at + GAP, value) for key, at, value in more)]):
        if out and out[-1][0] == key and start <= out[-1][2]:
            out[-1] = (key, out[-1][1], max(end, out[-1][2]), out[-1][3] + value)
        else:
            out.append((key, start, end, value))
    return out


def batch(rows: list[Row], names: tuple[str, ...] = ("k", "t", "v")) -> pa.RecordBatch:
    """Rows as columns, marked with their key."""
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(3)]
    return mark_keyed(pa.RecordBatch.from_arrays(columns, names=list(names)), 1)


# -- runs ------------------------------------------------------------------------------------------


def _put_runs(runs: Runs, rows: list[Row]) -> None:
    runs.add(runs.arranged(runs.read(batch(rows), number=7)))


def _put_panes(panes: Panes, rows: list[Row]) -> None:
    panes.keep(panes.run_of([batch(rows).replace_schema_metadata(None)]), None)


def _kept_side() -> KeptSide:
    kept = IntervalColumns(Between(-3, 3), "left")
    kept.check(0, [batch([])])
    return kept.side(0)


def _put_side(side: KeptSide, rows: list[Row]) -> None:
    side.add(side.arranged(side.read(batch(rows), more=[value % 2 == 0 for _, _, value in rows])))


def _rows_of_side(side: KeptSide) -> Iterable[Row]:
    for run in side.each_live():
        yield from (
            row for row, more in zip(_rows_of_batch(run.rows), run.beside["more"].tolist(), strict=True) if more == (row[2] % 2 == 0)
        )


def _rows_of_batch(rows: pa.RecordBatch) -> Iterable[Row]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _rows_of_runs(runs: Runs) -> Iterable[Row]:
    return (row for run in runs.each_live() for row in _rows_of_batch(run.rows))


def _partials() -> PaneForm:
    return PaneForm(batch([]).schema.remove_metadata(), 1, 1, Partials(Count().partials))


def _put_sessions(sessions: Sessions, rows: list[Row]) -> None:
    sessions.accept([batch(rows).replace_schema_metadata(None)], None)


def _totals() -> ColumnTotals:
    return ColumnTotals(Partials(Count().partials), pa.schema({"k": pa.int64(), "n": pa.int64()}), 1)


def _put_totals(totals: ColumnTotals, rows: list[Row]) -> None:
    sums = [(key, total) for key, _, total in _totals_by_key([], rows)]
    totals.merge(pa.RecordBatch.from_pydict({"k": [key for key, _ in sums], "n": [total for _, total in sums]}, schema=totals.schema))


def _lists() -> ColumnTotals:
    return ColumnTotals(Partials(CollectList().partials), pa.schema({"k": pa.int64(), "vs": pa.list_(pa.int64())}), 1)


def _put_lists_of_totals(totals: ColumnTotals, rows: list[Row]) -> None:
    lists: dict[int, list[int]] = {}
    for key, _, value in rows:
        lists.setdefault(key, []).append(value)
    totals.merge(pa.RecordBatch.from_pydict({"k": list(lists), "vs": list(lists.values())}, schema=totals.schema))


def _rows_of_lists_of_totals(totals: ColumnTotals) -> Iterable[Row]:
    return ((key, 0, value) for key, (values,) in totals.rows() for value in values)


def _without_moments(kept: list[Row], more: list[Row]) -> list[Row]:
    return kept + [(key, 0, value) for key, _, value in more]


def _totals_by_key(kept: list[Row], more: list[Row]) -> list[Row]:
    return _sums([(key, 0, value) for key, _, value in kept], [(key, 0, value) for key, _, value in more])


# -- rows ------------------------------------------------------------------------------------------


def _put_dict(state: Any, rows: list[Row]) -> None:
    with state.changing([key for key, _, _ in rows]) as kept:
        kept.update({key: (moment, value) for key, moment, value in rows})


def _rows_of_dict(state: Any) -> Iterable[Row]:
    return ((key, *value) for key, value in state.kept.items())


def _put_set(state: Any, rows: list[Row]) -> None:
    state.add(state.new(list(dict.fromkeys((key, (moment, value)) for key, moment, value in rows))))


def _rows_of_lists(state: KeyedLists) -> Iterable[Row]:
    return ((key, moment, value) for key, some in state.kept[0].items() for value, moment in some)


def _put_lists(state: KeyedLists, rows: list[Row]) -> None:
    for key, moment, value in rows:
        state.add(0, [(key, value)], moment)


def _seen() -> SeenRows:
    return SeenRows(to_rows)


class Notified(KeyedVertex):
    """Lets batches of two inputs wait."""

    def __init__(self) -> None:
        self.pending = Waiting(self, Batches(), Batches())

    def notify_at(self, time: Timestamp, capability: Any = None) -> None:
        """Nobody asks."""


def _put_waiting(state: Waiting, rows: list[Row]) -> None:
    for side in (0, 1):
        some = [row for row in rows if row[2] % 2 == side]
        if some:
            columns = batch(some)
            padded = columns.append_column("pad", pa.array(["." * 50] * len(some)))
            state[Timestamp(some[0][1])][side].append(padded.replace_schema_metadata(columns.schema.metadata))


def _rows_waiting(state: Waiting) -> Iterable[Row]:
    entries = state.entries()[""]
    assert all(value[1] % 2 == side for value, side in zip(entries.columns["value"], entries.columns["input"], strict=True))
    return ((key, *value[:2]) for key, value in zip(entries.keys, entries.columns["value"], strict=True))


FORMS = [
    Form("Runs", lambda: Runs(1), _put_runs, _rows_of_runs, _all),
    Form("Runs with moments", lambda: Runs(1, 1), _put_runs, _rows_of_runs, _all),
    Form("Runs by time", lambda: RunsByTime(1, 1), _put_runs, _rows_of_runs, _all),
    Form("Panes", lambda: Panes(_partials(), Grid(1, 1)), _put_panes, lambda panes: _sums(list(_rows_of_runs(panes)), []), _sums),
    Form("Sessions", lambda: Sessions(_partials(), GAP), _put_sessions, _rows_of_runs, _sessions),
    Form("KeptSide", _kept_side, _put_side, _rows_of_side, _all),
    Form("KeyedDict", KeyedDict, _put_dict, _rows_of_dict, _last),
    Form("GrowingDict", GrowingDict, _put_dict, _rows_of_dict, _last),
    Form("GrowingSet", GrowingSet, _put_set, lambda state: ((key, *value) for key, value in state.kept), _once),
    Form("KeyedSets", KeyedSets, _put_set, lambda state: ((key, *value) for key, some in state.kept.items() for value in some), _once),
    Form("KeyedLists", lambda: KeyedLists(1), _put_lists, _rows_of_lists, _all),
    Form("ColumnTotals", _totals, _put_totals, lambda totals: ((key, 0, *total) for key, total in totals.rows()), _totals_by_key),
    Form("ColumnTotals of lists", _lists, _put_lists_of_totals, _rows_of_lists_of_totals, _without_moments),
    Form("Waiting", lambda: Notified().pending, _put_waiting, _rows_waiting, _all),
    Form("SeenRows", _seen, lambda seen, rows: seen.new(batch(rows)), lambda seen: seen.as_rows(), _once),
]
