"""Joins within event-time windows: records of two streams with equal keys that a window holds both of.

Each side has a watermark of its own; a window fires when the lesser of the two passes its end, and both sides' records of it are matched
at once. Until then a record waits in its pane, once however many windows hold it. When it fires it is known which records have met none, so
outer and anti joins give nothing that would have to be taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.joins.both_sides import BothSides
from rayad.dataflow.operators.joins.in_time import JoinInTwoForms
from rayad.dataflow.operators.joins.matching import ALONE, LEFT_ONLY, How, matches
from rayad.dataflow.operators.joins.pairs import NotColumnar, alone_batch, joined_batch
from rayad.dataflow.operators.joins.records_in_time import SIDES, RecordsInTime
from rayad.dataflow.operators.keys.column_keys import in_common, key_numbers
from rayad.dataflow.operators.keys.key_first import has_key, is_null, keys_of, pairs_of, record_of
from rayad.dataflow.operators.state.by_key.beyond_memory import moments_of
from rayad.dataflow.operators.state.by_key.lists import values_of
from rayad.dataflow.operators.state.by_key.rows import Named
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.tables import WINDOW, Entries
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.operators.windows.assigning import assigner
from rayad.dataflow.operators.windows.best import with_windows
from rayad.dataflow.operators.windows.pane_ticks import Form, grid_of, moment_ticks, windows_between, windows_of_place
from rayad.dataflow.operators.windows.panes import Panes, Part, parts_until
from rayad.dataflow.records.batches import keyed_columns, one_batch, to_rows
from rayad.dataflow.records.sorting import stable_order
from rayad.dataflow.windows import Sliding, Tumbling, Window


class RecordForm(Form):
    """Records are never put together."""

    def group(self, table: pa.Table) -> pa.RecordBatch | None:
        return None


class WindowJoinColumns(BothSides[Panes]):
    """Records of both sides whose windows are open, in columns."""

    def __init__(self, windows: Tumbling | Sliding, how: How) -> None:
        super().__init__()
        self.windows = windows
        self.how = how

    def made(self, side: int, schema: pa.Schema) -> Panes:
        form = RecordForm(schema.remove_metadata(), keyed_columns(schema) or 0, 1, Partials([]))
        return Panes(form, grid_of(self.windows, form.bound))

    # -- records -------------------------------------------------------------------
    def accept(self, side: int, batches: list[pa.RecordBatch], watermark: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; gives those that are late as ``(key, window, record)``, and no results. To be called after :meth:`check`."""
        panes = self.side(side)
        mark = None if watermark is None else moment_ticks(watermark, panes.form.bound, self.windows)
        run = panes.run_of([b.replace_schema_metadata(None) for b in batches])
        late = [] if mark is None else self._late(side, panes.windows([run], Part(mark)))
        panes.keep(run, mark)
        return late, []

    def _late(self, side: int, found: tuple[pa.Table, bool] | None) -> list[Any]:
        if found is None:
            return []
        return [(key, window, record) for key, window, record in self._rows(side, one_batch(found[0]))]

    def _rows(self, side: int, batch: pa.RecordBatch) -> list[tuple[Any, Window, Any]]:
        schema = self.schemas[side]
        assert schema is not None
        windows = self._windows(side, batch).to_pylist()
        keys = keys_of(batch.replace_schema_metadata(schema.metadata))
        return list(zip(keys, windows, to_rows(record_of(batch, schema)), strict=True))

    def due(self, watermark: Any) -> Iterator[Any]:
        """What comes out of the windows that have not fired and end at or before the watermark (None: no bound): batches, or lists of
        rows where columns cannot say it. A part after the other where much is on disk."""
        for parts in self._parts(watermark):
            fired = [self._fired(side, part) for side, part in enumerate(parts)]
            yield from (batch for batch in self._results(*fired) if len(batch))

    def _parts(self, watermark: Any) -> Iterator[Sequence[Part]]:
        """Of each side, what fires together."""
        sides = [panes for panes in self.parts if panes is not None]
        bounds = [panes.form.bound for panes in sides]
        if watermark is None or len(set(bounds)) < 2:
            until = None if watermark is None or not sides else moment_ticks(watermark, bounds[0], self.windows)
            yield from ((part, part) for part in parts_until(sides, until))
        else:  # in units of time that differ
            yield [Part(moment_ticks(watermark, bound, self.windows)) for bound in bounds]

    def _fired(self, side: int, part: Part) -> pa.RecordBatch | None:
        panes = self.parts[side]
        found = None if panes is None else panes.fire(part)
        return None if found is None else one_batch(found[0])

    def _results(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> Iterator[Any]:
        """Of what has fired together."""
        fired = (left, right)
        met = [None if batch is None else np.zeros(batch.num_rows, bool) for batch in fired]
        if left is not None and right is not None:
            for mine, theirs in self._matches(left, right):
                met[0][mine] = True  # type: ignore[index]
                met[1][theirs] = True  # type: ignore[index]
                if self.how not in LEFT_ONLY:
                    yield self.results(left.take(pa.array(mine)), right.take(pa.array(theirs)))
        if self.how == "semi" and left is not None:
            yield self._records(left.filter(pa.array(met[0])))
        for side, batch in enumerate(fired):
            if batch is not None and ALONE[self.how][side]:
                alone = batch.filter(pa.array(~met[side]))  # type: ignore[operator]
                yield self._records(alone) if self.how == "anti" else self._alone(side, alone)

    def _matches(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[tuple[Positions, Positions]]:
        """The positions of records with equal keys and windows."""
        keys = self.keys(0)
        numbers = key_numbers([pa.concat_arrays(in_common(left.column(i), right.column(i))) for i in range(keys + 1)])
        halves = numbers[: left.num_rows], numbers[left.num_rows :]
        orders = [stable_order(half) for half in halves]
        if all(ALONE[self.how]):  # then both sides have kept records with a null key
            orders = [order[has_key(batch, keys)[order]] for order, batch in zip(orders, (left, right), strict=True)]
        for mine, theirs in matches(*(half[order] for half, order in zip(halves, orders, strict=True))):
            yield orders[0][mine], orders[1][theirs]

    def _windows(self, side: int, batch: pa.RecordBatch) -> pa.ExtensionArray:
        return windows_between(batch.column(self.keys(side)), self.side(side).ends_of(batch), self.windows)

    def results(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that have met, as they are given."""
        if self.how in LEFT_ONLY:
            return self._records(left)
        return joined_batch(left, right, self.schemas, (("window", self._windows(0, left)),))

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Records of the left side: key columns, ``window``, ``record``."""
        assert self.schemas[0] is not None
        return with_windows(batch, self.schemas[0], self._windows(0, batch))

    def _alone(self, side: int, batch: pa.RecordBatch) -> Any:
        """Records of one side as pairs without the other, or rows where columns cannot say it."""
        try:
            return alone_batch(side, batch, self.schemas, (("window", self._windows(side, batch)),))
        except NotColumnar:
            return [(key, window, (None, record)) for key, window, record in self._rows(side, batch)]

    def as_rows(self) -> Any:
        """As :meth:`JoinedWindows.give`; nothing is kept."""
        rows = JoinedWindows(self.windows, self.how)
        for side, panes in enumerate(self.parts):
            found = None if panes is None else panes.due(None)
            for key, window, record in [] if found is None else self._rows(side, one_batch(found[0])):
                rows.keep(side, key, window, record)
        return rows.checkpoint()


class JoinedWindows(RecordsInTime):
    """Records of both sides whose windows are open, in rows: ``{window: ({key: [record]}, {key: [record]})}``."""

    def __init__(self, windows: Tumbling | Sliding, how: How) -> None:
        super().__init__()
        self.windows = windows
        self.how = how
        self.open: dict[Window, Sides] = {}

    @property
    def is_used(self) -> bool:
        return bool(self.open) or self.is_beyond_memory

    # -- records and time ------------------------------------------------------------
    def put(self, side: int, batch: Any, *told: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; ``told`` is the watermark. Gives those that are late, as ``(key, window, record)``, and no results."""
        (mark,) = told
        late = []
        placed = self._places_of(batch)
        self.fetch(key for key, _, _ in placed)
        for key, record, windows in placed:
            for window in windows:
                if mark is not None and window.end <= mark:
                    late.append((key, window, record))
                else:
                    self.keep(side, key, window, record)
        self.note(side, batch, told, len(placed))
        return late, []

    def _places_of(self, batch: Any) -> list[tuple[Any, Any, list[Window]]]:
        """``(key, record, windows)``."""
        if not isinstance(batch, pa.RecordBatch):
            assign = assigner(self.windows)
            return [(key, record, assign(time, record)) for key, (time, record) in batch]
        panes = batch.column(keyed_columns(batch.schema) or 0).to_pylist()
        found = {pane: windows_of_place((pane,), self.windows) for pane in set(panes)}
        return [(key, record, found[pane]) for pane, (key, record) in zip(panes, pairs_of(batch), strict=True)]

    def keep(self, side: int, key: Any, window: Window, record: Any) -> None:
        """Take one in, late or not."""
        self.open.setdefault(window, ({}, {}))[side].setdefault(key, []).append(record)

    def due(self, mark: Any) -> Iterator[list[Any]]:
        """Pairs in each window that ends at or before a watermark (None: all); it is forgotten."""
        self.settled(mark)
        for _ in self.due_parts(lambda end: mark is None or end <= mark):
            for window in sorted(w for w in self.open if mark is None or w.end <= mark):
                left, right = self.open.pop(window)
                out = [(key, window, value) for key, value in self._of_window(left, right)]
                if out:
                    yield out

    def pass_over(self, mark: Any) -> None:
        for _ in self.due_parts(lambda end: bool(end <= mark)):
            self.open = {window: sides for window, sides in self.open.items() if window.end > mark}

    def _of_window(self, left: dict[Any, list[Any]], right: dict[Any, list[Any]]) -> Iterator[tuple[Any, Any]]:
        """``(key, pair)`` of what a window holds, or ``(key, record)`` of a semi or anti join."""
        left_alone, right_alone = ALONE[self.how]
        met = {key for key in left if key in right and not is_null(key)}
        for key, some in left.items():
            if self.how in LEFT_ONLY:
                yield from ((key, mine) for mine in some if (key in met) == (self.how == "semi"))
            elif key in met:
                yield from ((key, (mine, theirs)) for mine in some for theirs in right[key])
            elif left_alone:
                yield from ((key, (mine, None)) for mine in some)
        if right_alone:
            yield from ((key, (None, theirs)) for key, some in right.items() if key not in met for theirs in some)

    # -- beyond memory ---------------------------------------------------------------
    def in_memory(self) -> Collection[Any]:
        return _Lists(self.open)

    def by_key(self) -> dict[Any, Any]:
        """The records of each key by window, of both sides."""
        out: dict[Any, dict[Window, tuple[list[Any], list[Any]]]] = {}
        for window, side, key, some in _Lists(self.open):
            out.setdefault(key, {}).setdefault(window, ([], []))[side].extend(some)
        return out

    def moments(self, kept: dict[Any, Any]) -> pa.Array:
        return moments_of(min(window.end for window in windows) for windows in kept.values())

    def all_gone_down(self) -> None:
        self.open = {}

    def go_up(self, came: Mapping[Any, Any]) -> None:
        for key, windows in came.items():
            for window, both in windows.items():
                for side, some in enumerate(both):
                    if some:
                        self.open.setdefault(window, ({}, {}))[side][key] = some

    # -- snapshots, and other replicas ---------------------------------------------
    def named(self) -> Named:
        """By window and side."""
        return {(window, side): kept for window, sides in self.open.items() for side, kept in enumerate(sides)}

    def shaped(self, named: Named) -> Any:
        out: dict[Window, Sides] = {}
        for (window, side), kept in named.items():
            out.setdefault(window, ({}, {}))[side].update(kept)
        return out

    def unshaped(self, stored: Any) -> Named:
        return {(window, side): kept for window, sides in stored.items() for side, kept in enumerate(sides)}

    def put_in(self, name: tuple[Window, int], some: Any) -> None:
        self.open.setdefault(name[0], ({}, {}))[name[1]].update(some)
        self._placed += values_of([some])

    def left(self, given: Named) -> None:
        self._placed -= values_of(given.values())
        self.open = {window: sides for window, sides in self.open.items() if any(sides)}

    # -- as tables -------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """The records of each side, once for each of their windows."""
        out = {}
        there = [*_Lists(self.open)]
        there += [(w, side, key, some) for key, windows in self.below() for w, both in windows.items() for side, some in enumerate(both)]
        for side, name in enumerate(SIDES):
            rows = [(key, window, record) for window, of, key, some in there if of == side for record in some]
            out[name] = Entries([key for key, _, _ in rows], {WINDOW: [row[1] for row in rows], "value": [row[2] for row in rows]})
        return out

    def put_entries(self, name: str, entries: Entries) -> None:
        side = SIDES.index(name)
        self.fetch(entries.keys)
        for key, window, record in zip(entries.keys, entries.columns[WINDOW], entries.columns["value"], strict=True):
            self.keep(side, key, window, record)
        self._placed += len(entries.keys)


class _Lists(Collection[tuple[Window, int, Any, list[Any]]]):
    """Window, side, key and records of what is in memory."""

    def __init__(self, windows: Mapping[Window, Sides]) -> None:
        self._open = windows

    def __len__(self) -> int:
        return sum(len(kept) for sides in self._open.values() for kept in sides)

    def __iter__(self) -> Iterator[tuple[Window, int, Any, list[Any]]]:
        return (
            (window, side, key, some)
            for window, sides in self._open.items()
            for side, kept in enumerate(sides)
            for key, some in kept.items()
        )

    def __contains__(self, row: object) -> bool:
        return any(row == each for each in self)


class WindowJoin(JoinInTwoForms[JoinedWindows, WindowJoinColumns]):
    """Fires ``(key, window, (left, right))`` for each pair within a window when the watermarks of both sides have passed its end.

    Ports 0 and 1 take the records of the left and right side, the others the largest event times of each batch. What comes for a window
    that has fired goes to output port 1: ``(key, window, (record, None))``, or ``(key, window, (None, record))`` from the right.
    """

    def __init__(self, windows: Tumbling | Sliding, delays: tuple[Any, ...], how: How = "inner") -> None:
        super().__init__(delays, TwoForms(JoinedWindows(windows, how), partial(WindowJoinColumns, windows, how)))
        self.windows = windows


Sides = tuple[dict[Any, list[Any]], dict[Any, list[Any]]]
