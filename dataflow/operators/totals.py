"""Running totals: when a time is complete, each key that it touched is emitted once, with its total so far.

Two forms of the same state: a dict for rows, and, when batches are columnar, numpy arrays with a dict from key to slot. Columnar
partials stay in Arrow from the sender to the output; Python sees each *distinct key of a completed time* once, never a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.columnar import mark_keyed, to_rows
from rayad.dataflow.operators.aggregates import Aggregator
from rayad.dataflow.operators.keyed import group
from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError, Timestamp

COMPACT_ROWS = 1 << 19
"""Pending columnar partials are merged when they reach this many rows."""


class MutableColumnTotals:
    """Totals per key in numpy arrays; keys keep their slot for ever."""

    def __init__(self, merges: tuple[str, ...], schema: pa.Schema, key_columns: int) -> None:
        self.schema = schema
        self.key_columns = key_columns
        self.merges = merges
        self.slots: dict[Any, int] = {}
        self.arrays = [np.zeros(0, dtype=schema.field(key_columns + i).type.to_pandas_dtype()) for i in range(len(merges))]

    def merge(self, partial: pa.RecordBatch) -> list[Any]:
        """Add one row per distinct key; gives the totals of those keys, as arrays in the same order."""
        slots = self._slots_of(partial)
        needed = len(self.slots)
        out = []
        for i, how in enumerate(self.merges):
            array = self._grown(i, needed, how)
            column = partial.column(self.key_columns + i)
            neutral = self._neutral(array.dtype, how)
            values = (column.fill_null(neutral) if column.null_count else column).to_numpy(zero_copy_only=False)
            if how == "sum":
                array[slots] += values
            elif how == "min":
                array[slots] = np.minimum(array[slots], values)
            else:
                array[slots] = np.maximum(array[slots], values)
            out.append(array[slots])
        return out

    def _slots_of(self, partial: pa.RecordBatch) -> Any:
        columns = [partial.column(i).to_pylist() for i in range(self.key_columns)]
        keys = columns[0] if self.key_columns == 1 else list(zip(*columns, strict=True))
        slots = self.slots
        lookup = slots.get
        found = [lookup(key, -1) for key in keys]
        if -1 in found:
            for position, slot in enumerate(found):
                if slot < 0:
                    found[position] = slots.setdefault(keys[position], len(slots))
        return np.array(found, dtype=np.int64)

    def _grown(self, i: int, needed: int, how: str) -> Any:
        array = self.arrays[i]
        if needed > len(array):
            size = max(needed, 2 * len(array), 1024)
            grown = np.full(size, self._neutral(array.dtype, how), dtype=array.dtype)
            grown[: len(array)] = array
            self.arrays[i] = array = grown
        return array

    @staticmethod
    def _neutral(dtype: Any, how: str) -> Any:
        if how == "sum":
            return dtype.type(0).item()
        if dtype.kind == "f":
            return float("inf") if how == "min" else float("-inf")
        info = np.iinfo(dtype)
        return int(info.max if how == "min" else info.min)

    def rows(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """``(key, partials)`` of every key."""
        columns = [array.tolist() for array in self.arrays]
        return [(key, tuple(column[slot] for column in columns)) for key, slot in self.slots.items()]


class Totals(Vertex):
    """The vertex behind ``count sum min max mean reduce top_k aggregate``; its input are pairs made by ``keyed.Combine``.

    Args:
        aggregator: what is computed.
        keep: keep totals from one time to the next (False: each time alone, for ``per_epoch`` windows).
    """

    sequential = True

    def __init__(self, aggregator: Aggregator, *, keep: bool = True) -> None:
        self.aggregator = aggregator
        self.keep = keep
        self.pending_rows: dict[Timestamp, dict[Any, Any]] = {}
        self.pending_columns: dict[Timestamp, list[pa.RecordBatch]] = {}
        self.pending_count: dict[Timestamp, int] = {}
        self.state: dict[Any, Any] = {}
        self.columns: MutableColumnTotals | None = None

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.pending_rows and time not in self.pending_columns:
            self.notify_at(time)
        if isinstance(batch, pa.RecordBatch):
            waiting = self.pending_columns.setdefault(time, [])
            waiting.append(batch)
            count = self.pending_count.get(time, 0) + batch.num_rows
            if count >= COMPACT_ROWS:
                merged = self._compact(waiting)
                self.pending_columns[time] = [merged]
                count = 0 if merged.num_rows < COMPACT_ROWS // 2 else -merged.num_rows
            self.pending_count[time] = count
            return
        self._merge_rows(self.pending_rows.setdefault(time, {}), batch)

    def _merge_rows(self, into: dict[Any, Any], pairs: list[Any]) -> None:
        merge = self.aggregator.merge
        try:
            for key, partial in pairs:
                if key in into:
                    into[key] = merge(into[key], partial)
                else:
                    into[key] = partial
        except TypeError as error:
            if "unhashable" in str(error):
                raise DataflowError(f"a key is not hashable: {key!r:.80}; key_by must give hashable values") from error
            raise

    def _compact(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        schema = batches[0].schema
        for batch in batches[1:]:
            if not batch.schema.equals(schema):
                raise DataflowError(
                    f"schema drift at {self.name!r}: batches with columns {schema.to_string(show_schema_metadata=False)!r} and "
                    f"{batch.schema.to_string(show_schema_metadata=False)!r} in one time; cast them to one schema before key_by"
                )
        table = pa.Table.from_batches(batches)
        merges = [how for _, how in self.aggregator.partials]
        keys = schema.names[: len(schema.names) - len(merges)]
        values = schema.names[len(keys) :]
        return group(table, keys, list(zip(values, merges, strict=True)), values).cast(schema)

    def on_notify(self, time: Timestamp) -> None:
        rows = self.pending_rows.pop(time, None)
        batches = self.pending_columns.pop(time, None)
        self.pending_count.pop(time, None)
        if rows is None and batches is not None and not self.state:
            self._notify_columns(self._compact(batches), time)
            return
        rows = rows if rows is not None else {}
        if batches is not None:
            self._merge_rows(rows, self._to_accumulators(self._compact(batches)))
        if self.columns is not None:
            self._columns_to_rows()
        self._notify_rows(rows, time)

    def _notify_rows(self, rows: dict[Any, Any], time: Timestamp) -> None:
        result = self.aggregator.result
        if not self.keep:
            self.emit_rows([(key, result(a)) for key, a in rows.items()], time)
            return
        state, merge = self.state, self.aggregator.merge
        out = []
        for key, partial in rows.items():
            if key in state:
                partial = merge(state[key], partial)
            state[key] = partial
            out.append((key, result(partial)))
        self.emit_rows(out, time)

    def _notify_columns(self, partial: pa.RecordBatch, time: Timestamp) -> None:
        merges = tuple(how for _, how in self.aggregator.partials)
        keys = partial.num_columns - len(merges)
        fields = partial.schema
        if self.columns is None or not self.keep:
            self.columns = MutableColumnTotals(merges, fields, keys)
        elif not self.columns.schema.equals(fields):
            raise DataflowError(
                f"schema drift at {self.name!r}: its state has columns {self.columns.schema.to_string(show_schema_metadata=False)!r}, epoch {time} brings "
                f"{fields.to_string(show_schema_metadata=False)!r}; cast them to one schema before key_by"
            )
        totals = self.columns.merge(partial)
        name = fields.names[keys]
        column = pa.array(totals[0])
        if self.aggregator.name == "mean":
            name = name.replace("sum(", "mean(", 1)
            with np.errstate(invalid="ignore", divide="ignore"):
                column = pa.array(totals[0] / totals[1], mask=totals[1] == 0)
        elif len(totals) == 2:
            column = pa.array(totals[0], mask=totals[1] == 0)
        columns = [partial.column(i) for i in range(keys)]
        self.emit_columns(mark_keyed(pa.RecordBatch.from_arrays([*columns, column], names=[*fields.names[:keys], name]), keys), time)

    def emit_rows(self, out: list[Any], time: Timestamp) -> None:
        """Send results; windows over epochs say which."""
        self.send_by(0, out, time)

    def emit_columns(self, out: pa.RecordBatch, time: Timestamp) -> None:
        """Send columnar results."""
        self.send_by(0, out, time)

    def _to_accumulators(self, partial: pa.RecordBatch) -> list[Any]:
        """Columnar partials as the pairs that the row form uses."""
        keys = partial.num_columns - len(self.aggregator.partials)
        columns = [c.to_pylist() for c in partial.columns]
        names = columns[0] if keys == 1 else list(zip(*columns[:keys], strict=True))
        return [(key, self._accumulator(values)) for key, values in zip(names, zip(*columns[keys:], strict=True), strict=True)]

    def _accumulator(self, values: tuple[Any, ...]) -> Any:
        if self.aggregator.name == "mean":
            return (values[0] or 0, values[1])
        if len(values) == 2 and values[1] == 0:
            return None
        return values[0]

    def _columns_to_rows(self) -> None:
        assert self.columns is not None
        self.state = {key: self._accumulator(values) for key, values in self.columns.rows()}
        self.columns = None


class EpochTotals(Totals):
    """Totals of each time alone: ``(key, window, value)`` with the window [epoch, epoch + 1), or [round, round + 1) inside a loop."""

    def __init__(self, aggregator: Aggregator) -> None:
        super().__init__(aggregator, keep=False)

    def emit_rows(self, out: list[Any], time: Timestamp) -> None:
        from rayad.dataflow.windows import Window

        start = time.counters[-1] if time.counters else time.epoch
        window = Window(start, start + 1)
        self.send_by(0, [(key, window, value) for key, value in out], time)

    def emit_columns(self, out: pa.RecordBatch, time: Timestamp) -> None:
        self.emit_rows(to_rows(out), time)


class Fold(Vertex):
    """``f(state, value) -> state`` per key, in the order of times; emits each touched key when its time is complete."""

    sequential = True

    def __init__(self, initial: Any, function: Any) -> None:
        self.initial = initial
        self.function = function
        self.pending: dict[Timestamp, list[Any]] = {}
        self.state: dict[Any, Any] = {}

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending.get(time)
        if waiting is None:
            waiting = self.pending[time] = []
            self.notify_at(time)
        waiting.append(to_rows(batch))

    def on_notify(self, time: Timestamp) -> None:
        touched: dict[Any, None] = {}
        for pairs in self.pending.pop(time):
            for key, value in pairs:
                self.state[key] = self.function(self.state[key] if key in self.state else self.start(), value)
                touched[key] = None
        self.send_by(0, [(key, self.state[key]) for key in touched], time)

    def start(self) -> Any:
        """The state of a new key: a copy of ``initial``, or what it returns when it is callable."""
        if callable(self.initial):
            return self.initial()
        return self.initial.copy() if isinstance(self.initial, (list, dict, set)) else self.initial
