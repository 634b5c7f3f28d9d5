"""Late records: what came for windows that had fired, as it came.

Windows combine records before the exchange, so what reaches them is no record any more. Whoever asks for ``late`` gets a vertex of its own
beside them, to which the records travel too. Its watermark is a function of the data and the epochs, and so the same as theirs: a record is
here for each window that it is not in there. Whether it is late is known when the time before its own is complete, so the records of a time
wait until then. Of sessions it also depends on the other records: a vertex beside sessions keeps which of them are open. Nobody who does
not ask pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Count
from rayad.dataflow.operators.keys.key_first import key_first, with_key, without_null_keys
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.runs.order import ticks
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.operators.windows.assigning import assigner
from rayad.dataflow.operators.windows.best import with_windows
from rayad.dataflow.operators.windows.kept_windows import KeptWindows
from rayad.dataflow.operators.windows.pane_ticks import as_bounds, grid_of, moment_ticks, panes_of, windows_between
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import keyed_columns, mark_keyed, no_rows, take_rows, to_rows
from rayad.dataflow.records.event_times import compared, event_time, watermark_less
from rayad.dataflow.records.moments import keys_in
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.windows import Given, Session
from rayad.progress import Timestamp

Array: TypeAlias = "npt.NDArray[Any]"
Held: TypeAlias = Callable[[pa.RecordBatch, pa.Array], Array]
"""Says of records and their windows which are not late after all."""


@dataclass(slots=True)
class PlaceRecords(Element):
    """Records with their places in time: key columns, pane (for windows that records bring along: start and end), then the record's
    other columns; rows as ``(key, (event time, record))``. Records with a null key are left out where asked for (``drops_null``)."""

    key: KeySelector
    times: ValueSelector
    windows: Any
    keyless: bool = False
    drops_null: bool = False

    def apply(self, batch: Any) -> Any:
        keys = self.key.columns
        if isinstance(batch, pa.RecordBatch) and (self.keyless or (keys and len(set(keys)) == len(keys))):
            found = panes_of(with_key(batch, keys) if self.drops_null else batch, keys, self.times.column, self.windows)
            if found is not None:
                usable, panes = found
                extra = [("key", pa.array(np.zeros(usable.num_rows, np.int64)))] if self.keyless else []
                extra += [(f"pane{i}", pane) for i, pane in enumerate(panes)]
                return mark_keyed(key_first(usable, keys, tuple(extra)), len(keys) or 1)
        return self.rows(batch)

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def rows(self, batch: Any) -> list[Any]:
        """The records with their places as rows."""
        time_of, rows = self.times.row_value(), to_rows(batch)
        keys_found = self.key.keys_of(rows)
        pairs = list(zip(keys_found, rows, strict=True))
        if self.drops_null:
            pairs = without_null_keys(keys_found, pairs)
        return [(key, (event_time(time_of(row), row), row)) for key, row in pairs]


@dataclass(slots=True)
class PlaceRows(PlaceRecords):
    """Place records and always give rows: for a vertex that has no columns."""

    def apply(self, batch: Any) -> Any:
        return self.rows(batch)

    def rows_because(self, schema: pa.Schema) -> str | None:
        return "the operator behind it handles rows"


def in_order_of_time(placed: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """``(event time, record)`` of a key by time, those of one time by representation, so that the order of arrival does not matter.

    >>> in_order_of_time([(3, "b"), (1, "x"), (3, "a")])
    [(1, 'x'), (3, 'a'), (3, 'b')]
    """
    if len(placed) < 2:
        return placed
    if len({moment for moment, *_ in placed}) < len(placed):
        placed = sorted(placed, key=lambda one: repr(one[1:]))
    try:
        return sorted(placed, key=itemgetter(0))
    except TypeError:
        compared(*(moment for moment, *_ in placed))  # says what does not go together
        raise


class LateRecords(KeyedVertex):
    """Gives ``(key, window, record)`` for each record and each of its windows that had ended at the watermark before its time.

    Port 0 takes what :class:`PlaceRecords` makes, the others the largest event times, as those of the windows' own vertex.

    Args:
        lateness: for how long windows that have fired take records.
    """

    gives_records = True
    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"delays"})

    def __init__(self, windows: Any, delays: tuple[Any, ...], lateness: Any = None) -> None:
        self.windows = windows
        self.lateness = lateness
        self.pending = Waiting(self, Batches())
        self.marks = Marks(delays, self.pending)

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        nothing = None if inputs[0] is None else no_rows(inputs[0])
        if nothing is None:
            return ()
        bounds = nothing.columns[keyed_columns(nothing.schema) or 0 :]
        starts, ends = bounds[:2] if isinstance(self.windows, Given) else (bounds[0], bounds[0])
        return (with_windows(nothing, nothing.schema, windows_between(starts, ends, self.windows)).schema,)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending[time]
        if edge:
            self.marks.see(edge - 1, to_rows(batch), time)
        else:
            waiting.append(batch)

    def on_notify(self, time: Timestamp) -> None:
        mark = watermark_less(self.marks.ahead_of(time), self.lateness)
        for batches in self.pending.pieces(time):
            for late in self.late_of(batches, mark):
                self.send_by(0, late, time)
        if self.marks.advance(time):
            self.fired(self.marks.watermark.now)

    def late_of(self, batches: list[Any], mark: Any) -> list[Any]:
        """What is late of a time, as batches; ``mark`` is the watermark before it."""
        return [] if mark is None else [late for batch in batches for late in late_of(batch, self.windows, mark)]

    def fired(self, mark: Any) -> None:
        """Windows that end at or before ``mark`` have fired."""


class LateSessionRecords(LateRecords):
    """Late records of session windows. A record is also in time if records of its epoch, or an open session, link it to a session that is
    not over."""

    def __init__(self, windows: Session, delays: tuple[Any, ...]) -> None:
        super().__init__(windows, delays)
        self.open = KeptWindows(Count(), windows)

    def late_of(self, batches: list[Any], mark: Any) -> list[Any]:
        assign = assigner(self.windows)
        columns = [batch for batch in batches if isinstance(batch, pa.RecordBatch)]
        rows = [batch for batch in batches if not isinstance(batch, pa.RecordBatch)]
        placed = [[(key, (assign(time, row)[0], 1)) for key, (time, row) in batch] for batch in rows]
        self.open.accept(placed, [_counted(batch) for batch in columns], mark)
        out = []
        if mark is not None:
            for batch, pairs in zip(rows, placed, strict=True):
                late = [(key, window, row) for (key, (window, _)), (_, (_, row)) in zip(pairs, batch, strict=True)]
                late = [one for one in late if one[1].end <= mark and not self.open.rows.holds(one[0], one[1])]
                out += [late] if late else []
            for batch in columns:
                out += _late_columns(batch, self.windows, mark, self._held)
        return out

    def _held(self, batch: pa.RecordBatch, windows: pa.Array) -> Array:
        """Whether the sessions that are open hold the windows of these records."""
        if self.open.columns.is_used:
            return self.open.columns.hold(_counted(batch))
        keys = keyed_columns(batch.schema) or 0
        found = keys_in(batch.columns[:keys])
        return np.array([self.open.rows.holds(key, window) for key, window in zip(found, windows.to_pylist(), strict=True)], bool)

    def fired(self, mark: Any) -> None:
        for _ in self.open.fired(mark):
            pass


def _counted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The keys and places of what :class:`PlaceRecords` gave, each once: partials of a count."""
    keys = keyed_columns(batch.schema) or 0
    columns = [*batch.columns[: keys + 1], pa.array(np.ones(batch.num_rows, np.int64))]
    return mark_keyed(pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(keys + 2)]), keys)


def late_of(batch: Any, windows: Any, mark: Any) -> list[Any]:
    """``(key, window, record)`` of what :class:`PlaceRecords` gave, for each window that has ended at ``mark``."""
    if isinstance(batch, pa.RecordBatch):
        return _late_columns(batch, windows, mark)
    assign = assigner(windows)
    late = [(key, window, row) for key, (time, row) in batch for window in assign(time, row) if window.end <= mark]
    return [late] if late else []


def _late_columns(batch: pa.RecordBatch, windows: Any, mark: Any, held: Held | None = None) -> list[pa.RecordBatch]:
    schema, at = batch.schema, keyed_columns(batch.schema) or 0
    bound = schema.field(at).type
    reached = moment_ticks(mark, bound, windows)
    if isinstance(windows, Given):
        return _those(batch, ticks(batch.column(at)), ticks(batch.column(at + 1)), reached, windows)
    grid = grid_of(windows, bound)
    assert grid is not None  # senders make columns only where there is one
    panes = ticks(batch.column(at))
    if not (panes < reached).any():
        return []
    out = []
    for back in reversed(range(1 if isinstance(windows, Session) else grid.windows_of_pane_max)):
        starts = grid.starts(panes, back)
        ends = starts + grid.size
        out += _those(batch, starts, np.where(ends > panes, ends, reached + 1), reached, windows, held)
    return out


def _those(batch: pa.RecordBatch, starts: Any, ends: Any, reached: int, windows: Any, held: Held | None = None) -> list[pa.RecordBatch]:
    """The records of windows that end at or before a tick, but for those that are ``held``."""
    chosen = np.flatnonzero(ends <= reached)
    if not len(chosen):
        return []
    bound = batch.schema.field(keyed_columns(batch.schema) or 0).type
    records = take_rows(batch, pa.array(chosen))
    found = windows_between(as_bounds(starts[chosen], bound), as_bounds(ends[chosen], bound), windows)
    if held is not None:
        late = pa.array(~held(records, found))
        records, found = records.filter(late), found.filter(late)
    return [with_windows(records, batch.schema, found)] if records.num_rows else []
