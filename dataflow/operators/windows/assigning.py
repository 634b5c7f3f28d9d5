"""Event-time windows before the exchange: senders assign windows and combine. What merges and fires them is in ``firing.py``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Several
from rayad.dataflow.operators.aggregates.combiner import Combine, rows_because, value_columns, with_inputs
from rayad.dataflow.operators.keys.keyed import distinct_names, import_group_by, require_hashable
from rayad.dataflow.operators.keys.packing import Packing, can_be_packed
from rayad.dataflow.operators.state.runs.order import ticks
from rayad.dataflow.operators.stateless import GATHERED_BYTES_MAX, Element, Gatherer
from rayad.dataflow.operators.windows.best import BestRecords, best_of_batch
from rayad.dataflow.operators.windows.pane_ticks import grid_of, in_each_window, panes_of
from rayad.dataflow.records.batches import mark_keyed, no_rows, to_rows
from rayad.dataflow.records.event_times import event_time
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, sole_value_column
from rayad.dataflow.windows import Given, Session, Window
from rayad.progress import DataflowError, Timestamp, show

SENT_ROWS_MAX = 1 << 17
"""Results leave in batches of at most so many rows, so that whoever takes them can begin."""


@dataclass(slots=True)
class AssignWindows(Element):
    """``(key, (window, accumulator))``: combined per key and window (sessions: one per record); in columns per key and pane.

    A columnar batch that leaves has the key columns, the pane (for windows that records bring along: start and end), and the partials.
    """

    key: KeySelector
    value: ValueSelector
    aggregator: Aggregator
    times: ValueSelector
    windows: Any
    keyless: bool = False

    def warm_up(self) -> None:
        if self.key.columns or self.keyless:
            import_group_by()

    def rows_because(self, schema: pa.Schema) -> str | None:
        if self.times.column is None:
            return "the event time is a function"
        if isinstance(self.aggregator, BestRecords):
            return "the best records of sessions are found in rows" if isinstance(self.windows, Session) else None
        return rows_because(schema, self.key, self.value, self.aggregator, (self.times.column,), keyless=self.keyless)

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        nothing = no_rows(schema) if self.rows_because(schema) is None else None
        return None if nothing is None else WindowCombiner(self).schema_of(nothing)

    def gatherer(self, bytes_max: int = GATHERED_BYTES_MAX) -> Gatherer | None:
        return WindowCombiner(self, bytes_max) if self.key.columns or self.keyless else None

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        try:
            return self._sessions(rows) if isinstance(self.windows, Session) else self._windows(rows)
        except TypeError:
            for key in self.key.keys_of(rows):
                require_hashable(key)
            raise

    def _selectors(self) -> tuple[Any, Any]:
        others = self.key.columns if self.times.column is None else (*self.key.columns, self.times.column)
        value = self.value.row_value(others) if self.aggregator.takes_value else _none
        return value, self.times.row_value()

    def _sessions(self, rows: list[Any]) -> list[Any]:
        value, time_of = self._selectors()
        create, assign = self.aggregator.create, assigner(self.windows)
        keyed = zip(self.key.keys_of(rows), rows, strict=True)
        return [(key, (assign(time_of(row), row)[0], create(value(row)))) for key, row in keyed]

    def _windows(self, rows: list[Any]) -> list[Any]:
        value, time_of = self._selectors()
        create, add = self.aggregator.create, self.aggregator.add
        assign = assigner(self.windows)
        combined: dict[Any, Any] = {}
        for key, row in zip(self.key.keys_of(rows), rows, strict=True):
            for window in assign(time_of(row), row):
                at = (key, window)
                combined[at] = add(combined[at], value(row)) if at in combined else create(value(row))
        return [(k, (window, accumulator)) for (k, window), accumulator in combined.items()]


def assigner(windows: Any) -> Callable[[Any, Any], list[Window]]:
    """A function from an event time, as it came, and its record to the windows that hold it. It remembers what it has given."""
    if isinstance(windows, Given):
        return partial(_given, windows.start.row_value(), windows.end.row_value())
    memos: dict[Any, dict[Any, list[Window]]] = {}  # 1 and Decimal(1) are one key, and so are both hours of one that comes twice

    def assign(time: Any, row: Any) -> list[Window]:
        kind = (time.__class__, time.fold) if isinstance(time, dt.datetime) else time.__class__
        memo = memos.get(kind)
        if memo is None:
            memo = memos[kind] = {}
        try:
            found = memo.get(time)
        except TypeError:
            event_time(time, row)  # says what is wrong with what cannot be hashed
            raise
        if found is None:
            found = memo[time] = windows.assign(event_time(time, row))
        return found

    return assign


def _given(start_of: Any, end_of: Any, time: Any, row: Any) -> list[Window]:
    time, start, end = event_time(time, row), start_of(row), end_of(row)
    if start is None or end is None or start != start or end != end:
        return []
    window = Window(_bound(start), _bound(end))
    try:
        return [window] if window.start <= time < window.end else []
    except TypeError as error:
        raise DataflowError(
            f"the event time {show(time, 60)} of {show(row)} does not compare with its window, {show(window, 120)}: "
            f"{error}; bring them to one kind"
        ) from error


def _bound(moment: Any) -> Any:
    infinite = isinstance(moment, float) and moment in (float("inf"), -float("inf"))
    return float(moment) if infinite else event_time(moment, moment)


class WindowCombiner(Gatherer):
    """Partials per key and pane of one sender, over batches."""

    def __init__(self, element: AssignWindows, bytes_max: int = GATHERED_BYTES_MAX) -> None:
        self._element = element
        self._bytes_max = bytes_max
        self._keys: list[str] = []
        self._places: list[str] = []
        self._packing: Packing | None = None  # of key and pane into one column, where that can be
        self._combine: Combine | None = None
        self._inner: Gatherer | None = None  # of that Combine; both are made for these columns
        self._before: list[tuple[Timestamp, Any]] = []  # held by one for others

    @property
    def holding(self) -> bool:
        return bool(self._before) or (self._inner is not None and self._inner.holding)

    def add(self, time: Timestamp, batch: Any) -> list[Any]:
        if isinstance(batch, pa.RecordBatch):
            if not batch.num_rows:
                return []
            if isinstance(self._element.aggregator, BestRecords):
                return [self._best(batch, self._element.aggregator)]
            placed = self._placed(batch)
            if placed is not None and self._inner is not None:
                return self._marked(self._inner.add(time, placed))
        return [self._element.apply(batch)]

    def schema_of(self, nothing: pa.RecordBatch) -> pa.Schema | None:
        """The columns of what leaves, from a batch without rows; None where rows leave."""
        if isinstance(self._element.aggregator, BestRecords):
            out = self._best(nothing, self._element.aggregator)
        else:
            placed = self._placed(nothing)
            out = [] if placed is None or self._combine is None else self._marked([self._combine.apply(placed)])[0]
        return out.schema if isinstance(out, pa.RecordBatch) else None

    def flush(self) -> list[tuple[Timestamp, Any]]:
        before, self._before = self._before, []
        held = self._inner.flush() if self._inner is not None else []
        return before + list(zip((time for time, _ in held), self._marked([batch for _, batch in held]), strict=True))

    def _panes(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.Array]] | None:
        element = self._element
        return panes_of(batch, element.key.columns, element.times.column, element.windows)

    def _best(self, batch: pa.RecordBatch, aggregator: BestRecords) -> Any:
        found = None if isinstance(self._element.windows, Session) else self._panes(batch)
        if found is not None:
            keys, keyless = self._element.key.columns, self._element.keyless
            best = best_of_batch(found[0], keys, found[1], aggregator, keyless=keyless)
            if best is not None:
                return best
        return self._element.apply(batch)

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The batch with columns for its panes, and a combiner made for it; None where rows must do it."""
        element = self._element
        others = (*element.key.columns, *(name for name in (element.times.column,) if name is not None))
        found = self._panes(with_inputs(batch, element.value, element.aggregator, others)) if element.aggregator.partials else None
        if found is None:
            return None
        batch, panes = found
        given = isinstance(element.windows, Given)
        columns, names = list(batch.columns), list(batch.schema.names)
        keys = list(element.key.columns)
        label = distinct_names(names, ["key and pane"])[-1:]
        packed = None if given or len(keys) + element.keyless != 1 else self._packed(batch, panes[0])
        if packed is not None:
            placed = pa.RecordBatch.from_arrays([*columns, packed], names=[*names, *label])
            if self._combine is None or self._keys != label:
                self._make(placed, label, [])
            return None if self._combine is None or value_columns(self._combine, placed) is None else placed
        if element.keyless:
            keys = distinct_names(names, ["key"])[-1:]
            columns.append(pa.array(np.zeros(batch.num_rows, np.int64)))
            names += keys
        places = distinct_names(names, ["start", "end"] if given else ["pane"])[len(names) :]
        placed = pa.RecordBatch.from_arrays([*columns, *panes], names=[*names, *places])
        if self._combine is None or (keys, places) != (self._keys, self._places):
            self._make(placed, keys, places)
        return None if self._combine is None or value_columns(self._combine, placed) is None else placed

    def _packed(self, batch: pa.RecordBatch, panes: pa.Array) -> pa.Array | None:
        """Key and pane of each row in one column; what was combined with other panes is put aside first."""
        element = self._element
        key = pa.array(np.zeros(batch.num_rows, np.int64)) if element.keyless else batch.column(element.key.columns[0])
        grid = grid_of(element.windows, panes.type)
        if grid is None or not batch.num_rows or pa.types.is_timestamp(key.type) or not can_be_packed(key) or not can_be_packed(panes):
            return None
        keys, at = ticks(key), ticks(panes)
        for packing in (self._packing, Packing.for_panes(at, grid.pane, key.type, panes.type)):
            packed = packing.packed(keys, at) if packing is not None and packing.key == key.type else None
            if packed is not None:
                if packing is not self._packing:
                    self._before = self.flush()
                    self._packing = packing
                return pa.array(packed)
        return None

    def _make(self, placed: pa.RecordBatch, keys: list[str], places: list[str]) -> None:
        self._before = self.flush()
        element = self._element
        others = (*keys, *places, element.times.column or "")
        value, aggregator = element.value, element.aggregator
        if isinstance(aggregator, Several):
            values = [_named(v, a, placed, others) for v, a in zip(aggregator.values, aggregator.parts.values(), strict=True)]
            aggregator = Several(aggregator.parts, values)
        else:
            value = _named(value, aggregator, placed, others)
        self._keys, self._places = keys, places
        self._combine = Combine(KeySelector(columns=(*keys, *places)), value, aggregator)
        self._inner = self._combine.gatherer(self._bytes_max)

    def _marked(self, batches: list[Any]) -> list[Any]:
        """What leaves: columns marked with their keys; rows, which are what a sum beyond 64 bits became, as the row path has them."""
        return [self._opened(batch) if not self._places else self._marked_one(batch, len(self._keys)) for batch in batches]

    def _marked_one(self, batch: Any, keys: int) -> Any:
        return mark_keyed(batch, keys) if isinstance(batch, pa.RecordBatch) else placed_pairs(batch, keys, self._element.windows)

    def _opened(self, batch: Any) -> Any:
        """What leaves, key and pane apart again."""
        assert self._packing is not None
        if not isinstance(batch, pa.RecordBatch):
            opened = self._packing.opened(np.array([packed for packed, _ in batch], np.int64))
            places = zip(*(column.to_pylist() for column in opened), strict=True)
            return placed_pairs(list(zip(places, (a for _, a in batch), strict=True)), 1, self._element.windows)
        columns = [*self._packing.opened(batch.column(0).to_numpy()), *batch.columns[1:]]
        values = batch.schema.names[1:]
        names = distinct_names(values, [*(self._element.key.columns or ("key",)), "pane"])[len(values) :]
        return mark_keyed(pa.RecordBatch.from_arrays(columns, names=[*names, *values]), 1)


def _named(value: ValueSelector, aggregator: Aggregator, batch: pa.RecordBatch, others: tuple[str, ...]) -> ValueSelector:
    if not aggregator.takes_value or aggregator.makes_input or value.function is not None or value.column is not None:
        return value
    return ValueSelector(column=sole_value_column(batch, others))


def placed_pairs(pairs: list[Any], keys: int, windows: Any) -> list[Any]:
    """``((*key, *place), accumulator)`` as ``(key, (window, accumulator))``, one for each window."""
    out: list[Any] = []
    for at, accumulator in pairs:
        key = at[0] if keys == 1 else at[:keys]
        out.extend(in_each_window(key, at[keys:], windows, accumulator))
    return out


def _none(row: Any) -> None:
    return None
