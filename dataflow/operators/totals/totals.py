"""Running totals: when a time is complete, each key that it touched is emitted once, with its total so far.

Two forms of the same state: a dict for rows, and :class:`ColumnTotals` while all batches are columnar. The first batch of rows, a
sum that leaves 64 bits, and columns of types that do not go together turn the second into the first; both give the same results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Several
from rayad.dataflow.operators.keys.keyed import distinct_names, group, import_group_by, may_overflow, require_hashable
from rayad.dataflow.operators.keys.schemas import as_schema, brought_together, common_schema
from rayad.dataflow.operators.state.key_groups import Kept, MovingVertex
from rayad.dataflow.operators.state.slot_groups import NotColumns
from rayad.dataflow.operators.state.stored_columns import stored_by_time, taken_back_by_time
from rayad.dataflow.operators.state.stored_rows import StoredRows
from rayad.dataflow.operators.totals.columns import ColumnTotals
from rayad.dataflow.records.batches import mark_keyed, to_rows
from rayad.progress import Timestamp

COMPACT_ROWS = 1 << 19
"""Pending columnar partials are merged when they reach this many rows."""


class Totals(MovingVertex):
    """The vertex behind ``count sum min max mean reduce top_k aggregate``; its input are pairs made by ``combining.Combine``.

    Args:
        aggregator: what is computed.
        keep: keep totals from one time to the next (False: each time alone, for ``per_epoch`` windows).
        columnar: columnar input is to be expected.
    """

    sequential = True
    waits_for_siblings = False
    may_change = frozenset({"columnar", "keep"})  # a class of its own keeps nothing

    def __init__(self, aggregator: Aggregator, *, keep: bool = True, columnar: bool = False) -> None:
        if columnar:
            import_group_by()
        self.aggregator = aggregator
        self.keep = keep
        self.pending_rows: dict[Timestamp, dict[Any, Any]] = {}
        self.pending_columns: dict[Timestamp, list[pa.RecordBatch]] = {}
        self.pending_count: dict[Timestamp, int] = {}
        self.state: dict[Any, Any] = {}
        self.columns: ColumnTotals | None = None
        self._stored = StoredRows()

    # -- snapshots -----------------------------------------------------------------
    @property
    def checkpoint_inline(self) -> bool:  # type: ignore[override]
        """Columns need not be copied, and numbers are pickled faster than a process is forked and its pages are copied."""
        return self.columns is not None or self._stored.inline

    def checkpoint(self) -> Any:
        columns = self.columns.checkpoint() if self.keep and self.columns is not None else None
        return {"pending": self._pending(), "rows": self._stored.checkpoint(self.state), "columns": columns}

    def restore(self, state: Any) -> None:
        self._restore_pending(state["pending"])
        self.state = self._stored.restore(state["rows"])
        if state["columns"] is not None:
            self.columns = ColumnTotals.restore(state["columns"], self._merges())

    def take_changes(self) -> Callable[[], Any] | None:
        columns = self.columns
        if self.keep and columns is not None:
            changed = columns.take_changes()
            return None if changed is None else lambda: {"pending": self._pending(), "columns": changed()}
        rows = self._stored.take(self.state, sum(map(len, self.pending_rows.values())))
        if rows is None or not self.keep:
            return None  # where nothing is kept there is nothing but what is pending
        return lambda: {"pending": self._pending(), "rows": rows()}

    def restore_changes(self, changes: Any) -> None:
        self._restore_pending(changes["pending"])
        if "columns" in changes:
            assert self.columns is not None
            self.columns.restore_changes(changes["columns"])
        else:
            self._stored.restore_changes(self.state, changes["rows"])

    def _pending(self) -> Any:
        return self.pending_rows, stored_by_time(self.pending_columns), self.pending_count

    def _restore_pending(self, pending: Any) -> None:
        self.pending_rows, columns, self.pending_count = pending
        self.pending_columns = taken_back_by_time(columns)

    def _merges(self) -> tuple[str, ...]:
        return tuple(how for _, how in self.aggregator.partials)

    # -- to other replicas -----------------------------------------------------------
    def kept_by_key(self) -> Iterable[Kept]:
        return [self.state, *([self.columns] if self.keep and self.columns is not None else []), *self.pending_rows.values()]

    def gave(self) -> None:
        super().gave()
        if self.columns is not None:
            self.columns.forget_groups()

    def give(self, groups: frozenset[int]) -> Any:
        leaving = self.leaving()
        waiting = {}
        for time in {**self.pending_rows, **self.pending_columns}:
            rows = leaving.out_of(self.pending_rows.get(time, {}), groups)
            batches = leaving.out_of_batches(self.pending_columns.get(time, []), groups)
            if rows or batches:
                waiting[time] = rows, batches
                if time in self.pending_count:
                    self.pending_count[time] -= sum(batch.num_rows for batch in batches)
        self.pending_rows = {time: rows for time, rows in self.pending_rows.items() if rows}
        self.pending_columns = {time: batches for time, batches in self.pending_columns.items() if batches}
        columns = None
        if self.keep and self.columns is not None:
            try:
                columns = self.columns.give(groups, self.key_groups)
            except NotColumns:
                self._columns_to_rows()
        state = leaving.out_of(self.state, groups)
        self._forget_changes()
        return {"pending": waiting, "rows": state, "columns": columns} if waiting or state or columns is not None else None

    def take(self, state: Any) -> None:
        for time, (rows, batches) in state["pending"].items():
            if time not in self.pending_rows and time not in self.pending_columns:
                self.notify_at(time)
            if rows:
                self._merge_rows(self.pending_rows.setdefault(time, {}), list(rows.items()))
            if batches:
                self.pending_columns.setdefault(time, []).extend(batches)
                self.pending_count[time] = self.pending_count.get(time, 0) + sum(batch.num_rows for batch in batches)
        rows, columns = state["rows"], state["columns"]
        if columns is not None and not self._take_columns(columns):
            rows.update(self._pairs([columns]))
        if rows:
            if self.columns is not None:
                self._columns_to_rows()
            self._came_back(self.state, rows)
            self.state.update(rows)
        self._forget_changes()

    def _forget_changes(self) -> None:
        self._stored.forget()
        if self.columns is not None:
            self.columns.forget_changes()

    def _take_columns(self, totals: pa.RecordBatch) -> bool:
        """Whether the state is columns and these are part of it now."""
        if self.state:
            return False
        if self.columns is None:
            merges = self._merges()
            self.columns = ColumnTotals(merges, totals.schema, totals.num_columns - len(merges))
        try:
            if self.columns.schema.equals(totals.schema):
                self.columns.merge(totals)
                return True
        except OverflowError:
            pass
        self._columns_to_rows()
        return False

    # -- times -----------------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.pending_rows and time not in self.pending_columns:
            self.notify_at(time)
        if isinstance(batch, pa.RecordBatch):
            waiting = self.pending_columns.setdefault(time, [])
            waiting.append(batch)
            count = self.pending_count.get(time, 0) + batch.num_rows
            if count >= COMPACT_ROWS:
                merged = self._compact(waiting)
                if merged is None:
                    self._merge_rows(self.pending_rows.setdefault(time, {}), self._pairs(waiting))
                    del self.pending_columns[time]
                    merged_rows = 0
                else:
                    self.pending_columns[time] = [merged]
                    merged_rows = merged.num_rows
                count = -3 * merged_rows  # many distinct keys: not again before four times as many rows have come
            self.pending_count[time] = count
            return
        self._merge_rows(self.pending_rows.setdefault(time, {}), batch)

    def _merge_rows(self, into: dict[Any, Any], pairs: list[Any]) -> None:
        try:
            self.aggregator.merge_into(into, pairs)
        except TypeError as error:
            if "unhashable" in str(error):
                for key, _ in pairs:
                    require_hashable(key)
            raise error

    def _compact(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
        """One row per distinct key; None when a sum could leave 64 bits, or types differ so that rows must do it."""
        together = brought_together(batches)
        if together is None:
            return None
        schema = together[0].schema
        table = pa.Table.from_batches(together)
        merges = [how for _, how in self.aggregator.partials]
        keys = schema.names[: len(schema.names) - len(merges)]
        values = schema.names[len(keys) :]
        if any(how == "sum" and may_overflow(table.column(name)) for name, how in zip(values, merges, strict=True)):
            return None
        return group(table, keys, list(zip(values, merges, strict=True)), values).cast(schema)

    def on_notify(self, time: Timestamp) -> None:
        rows = self.pending_rows.pop(time, None)
        batches = self.pending_columns.pop(time, None)
        self.pending_count.pop(time, None)
        if rows is None and batches is None:
            return  # all of it was given to another replica
        if rows is None and batches is not None and not self.state:
            partial = self._compact(batches)
            if partial is not None and self._notify_columns(partial, time):
                return
        rows = rows if rows is not None else {}
        if batches is not None:
            self._merge_rows(rows, self._pairs(batches))
        if self.columns is not None:
            self._columns_to_rows()
        self._notify_rows(rows, time)

    def _notify_rows(self, rows: dict[Any, Any], time: Timestamp) -> None:
        if not self.keep:
            result = self.aggregator.result
            self.emit_rows([(key, result(a)) for key, a in rows.items()], time)
            return
        result = self.aggregator.emitted
        state, merge = self.state, self.aggregator.merge
        out = []
        for key, partial in rows.items():
            if key in state:
                partial = merge(state[key], partial)
            state[key] = partial
            out.append((key, result(partial)))
        self._stored.note(rows, len(state))
        self.emit_rows(out, time)

    def _notify_columns(self, partial: pa.RecordBatch, time: Timestamp) -> bool:
        """Merge and emit in columns; False, and no total changed, when a sum could leave 64 bits or types do not go together."""
        merges = self._merges()
        keys = partial.num_columns - len(merges)
        if self.columns is None or not self.keep:
            self.columns = ColumnTotals(merges, partial.schema, keys)
        elif not self.columns.schema.equals(partial.schema):
            common = common_schema([self.columns.schema, partial.schema])
            if common is None:
                return False
            try:
                self.columns = self.columns.with_schema(common)
            except NotColumns:
                return False
            partial = as_schema(partial, common)
        fields = partial.schema
        try:
            totals = self.columns.merge(partial)
        except OverflowError:
            return False
        finished = self.aggregator.finish(fields.names[keys:], totals)
        named = isinstance(self.aggregator, Several)
        wanted, leading = [name for name, _ in finished], fields.names[:keys]
        # The values of a dict keep the names that the user gave; a key column of such a name gives way.
        names = [*distinct_names(wanted, leading)[len(wanted) :], *wanted] if named else distinct_names(leading, wanted)
        columns = [*(partial.column(i) for i in range(keys)), *(column for _, column in finished)]
        self.emit_columns(mark_keyed(pa.RecordBatch.from_arrays(columns, names=names), keys, named=named), time)
        return True

    def emit_rows(self, out: list[Any], time: Timestamp) -> None:
        """Send results; windows over epochs say which."""
        self.send_by(0, out, time)

    def emit_columns(self, out: pa.RecordBatch, time: Timestamp) -> None:
        """Send columnar results."""
        self.send_by(0, out, time)

    def _pairs(self, batches: list[pa.RecordBatch]) -> list[Any]:
        """Columnar partials as the pairs that the row form uses."""
        out: list[Any] = []
        accumulator = self.aggregator.accumulator
        for partial in batches:
            keys = partial.num_columns - len(self.aggregator.partials)
            columns = [c.to_pylist() for c in partial.columns]
            names = columns[0] if keys == 1 else zip(*columns[:keys], strict=True)
            out.extend((key, accumulator(values)) for key, values in zip(names, zip(*columns[keys:], strict=True), strict=True))
        return out

    def _columns_to_rows(self) -> None:
        assert self.columns is not None
        if self.keep:
            self.state = {key: self.aggregator.accumulator(values) for key, values in self.columns.rows()}
        self.columns = None
        self._stored.forget()


class EpochTotals(Totals):
    """Totals of each time alone: ``(key, window, value)`` with the window [epoch, epoch + 1), or [round, round + 1) inside a loop."""

    def __init__(self, aggregator: Aggregator, *, columnar: bool = False) -> None:
        super().__init__(aggregator, keep=False, columnar=columnar)

    def emit_rows(self, out: list[Any], time: Timestamp) -> None:
        from rayad.dataflow.windows import Window

        start = time.counters[-1] if time.counters else time.epoch
        window = Window(start, start + 1)
        self.send_by(0, [(key, window, value) for key, value in out], time)

    def emit_columns(self, out: pa.RecordBatch, time: Timestamp) -> None:
        self.emit_rows(to_rows(out), time)


class Fold(MovingVertex):
    """``f(state, value) -> state`` per key, in the order of times; emits each touched key when its time is complete."""

    sequential = True
    waits_for_siblings = False
    may_change = frozenset({"initial", "function"})

    def __init__(self, initial: Any, function: Any) -> None:
        self.initial = initial
        self.function = function
        self.pending: dict[Timestamp, list[Any]] = {}
        self.state: dict[Any, Any] = {}
        self._stored = StoredRows()

    @property
    def checkpoint_inline(self) -> bool:  # type: ignore[override]
        """As for :class:`Totals`."""
        return self._stored.inline

    def checkpoint(self) -> Any:
        return {"pending": self.pending, "rows": self._stored.checkpoint(self.state)}

    def restore(self, state: Any) -> None:
        self.pending, self.state = state["pending"], self._stored.restore(state["rows"])

    def take_changes(self) -> Callable[[], Any] | None:
        rows = self._stored.take(self.state, sum(len(batch) for batches in self.pending.values() for batch in batches))
        return None if rows is None else lambda: {"pending": self.pending, "rows": rows()}

    def restore_changes(self, changes: Any) -> None:
        self.pending = changes["pending"]
        self._stored.restore_changes(self.state, changes["rows"])

    def kept_by_key(self) -> Iterable[Kept]:
        return [self.state]

    def give(self, groups: frozenset[int]) -> Any:
        waiting = {time: self.leaving().out_of_parts(parts, groups) for time, parts in self.pending.items()}
        self.pending = {time: parts for time, parts in self.pending.items() if parts}
        self._stored.forget()
        return {"pending": {time: pairs for time, pairs in waiting.items() if pairs}, "rows": self.leaving().out_of(self.state, groups)}

    def take(self, state: Any) -> None:
        for time, pairs in state["pending"].items():
            if time not in self.pending:
                self.pending[time] = []
                self.notify_at(time)
            self.pending[time].append(pairs)
        self._came_back(self.state, state["rows"])
        self.state.update(state["rows"])
        self._stored.forget()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending.get(time)
        if waiting is None:
            waiting = self.pending[time] = []
            self.notify_at(time)
        waiting.append(to_rows(batch))

    def on_notify(self, time: Timestamp) -> None:
        parts = self.pending.pop(time, None)
        if parts is None:
            return  # all of it was given to another replica
        touched: dict[Any, None] = {}
        for pairs in parts:
            for key, value in pairs:
                self.state[key] = self.function(self.state[key] if key in self.state else self.start(), value)
                touched[key] = None
        self._stored.note(touched, len(self.state))
        # Copies: the function may go on changing its state in place.
        self.send_by(0, [(key, copy.deepcopy(self.state[key])) for key in touched], time)

    def start(self) -> Any:
        """The state of a new key: a copy of ``initial``, or what it returns when it is callable."""
        return self.initial() if callable(self.initial) else copy.deepcopy(self.initial)
