"""The records with the largest (or smallest) value of each key and window; all of them where several share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Max, Min
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.keys.column_keys import beginnings, key_numbers, plain
from rayad.dataflow.operators.keys.key_first import key_first, keys_of, pairs_of, record_of
from rayad.dataflow.operators.keys.keyed import distinct_names, require_hashable
from rayad.dataflow.operators.results import record_array, window_array
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.operators.windows.columns import Pairs, WindowColumns
from rayad.dataflow.operators.windows.pane_ticks import Form, windows_between, windows_of_place
from rayad.dataflow.records.batches import keyed_columns, mark_keyed, no_rows, one_batch, to_rows
from rayad.dataflow.records.moments import moment
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, require_columns
from rayad.dataflow.records.sorting import stable_order
from rayad.dataflow.windows import Given, Window
from rayad.progress import Timestamp

Best = tuple[Any, list[Any]]


class BestRecords(Aggregator):
    """The records whose value is the largest, or the smallest; a value of null or NaN is passed over.

    An accumulator is ``(value, records)``. The result is a list, which :class:`EachRecord` makes one record each.
    """

    gives_records = True
    state_columns = ("value", "records")

    def __init__(self, by: ValueSelector, *, largest: bool) -> None:
        self.by = by
        self.largest = largest
        self.name = "max_by" if largest else "min_by"
        self._value = by.row_value()

    def __reduce__(self) -> Any:
        return _best_records, (self.by, self.largest)

    def refusal(self, values: Sequence[Any]) -> str | None:
        """Of values of what it compares records by."""
        return (Max() if self.largest else Min()).refusal(values)

    def create(self, value: Any) -> Best:
        found = moment(self._value(value))
        return (None, []) if found is None or found != found else (found, [value])

    def merge(self, left: Best, right: Best) -> Best:
        if not left[1] or not right[1]:
            return left if left[1] else right
        if left[0] == right[0]:
            return (left[0], left[1] + right[1])
        return left if (left[0] > right[0]) == self.largest else right

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Best]:
        return [(moment(value), records) for value, records in zip(*columns, strict=True)]

    def result(self, accumulator: Best) -> list[Any]:
        return accumulator[1]


def _best_records(by: ValueSelector, largest: bool) -> BestRecords:
    return BestRecords(by, largest=largest)


def best_positions(groups: list[pa.Array], values: pa.Array, *, largest: bool) -> Any | None:
    """Positions, ascending, of the rows with the best value of their group; None where numpy cannot tell.

    >>> best_positions([pa.array(["a", "b", "a", "a"])], pa.array([1, 5, 3, 3]), largest=True).tolist()
    [1, 2, 3]
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    usable = pc.invert(pc.is_null(values, nan_is_null=True))
    kept = np.flatnonzero(usable.to_numpy(zero_copy_only=False))
    if len(kept) < len(values):
        values, groups = values.take(pa.array(kept)), [column.take(pa.array(kept)) for column in groups]
    if not len(kept):
        return kept
    numbers = key_numbers(groups)
    if len(numbers) > 1 and not (numbers[1:] >= numbers[:-1]).all():
        order = stable_order(numbers)
        numbers = numbers[order]
    else:
        order = np.arange(len(numbers))
    found = values.to_numpy(zero_copy_only=False)[order]
    heads = beginnings(numbers)
    best = (np.maximum if largest else np.minimum).reduceat(found, heads)
    return kept[np.sort(order[found == np.repeat(best, np.diff(np.append(heads, len(found))))])]


@dataclass(slots=True)
class BestForm(Form):
    """Rows are merged by leaving out those that are not the best."""

    value: int = 0
    largest: bool = True

    def group(self, table: pa.Table) -> pa.RecordBatch | None:
        batch = one_batch(table)
        found = best_positions(batch.columns[: self.keys + self.places], batch.column(self.value), largest=self.largest)
        return None if found is None else batch.take(pa.array(found))


def best_form(schema: pa.Schema, places: int, aggregator: BestRecords) -> BestForm | None:
    """How batches that :func:`key_first` made are merged; None where rows must do it."""
    if aggregator.by.column is None:
        return None
    kind = schema.field(aggregator.by.column).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    keys = keyed_columns(schema) or 0
    return BestForm(schema.remove_metadata(), keys, places, Partials([]), schema.names.index(aggregator.by.column), aggregator.largest)


def best_of_batch(
    batch: pa.RecordBatch, keys: tuple[str, ...], panes: list[pa.Array], aggregator: BestRecords, *, keyless: bool = False
) -> pa.RecordBatch | None:
    """The best rows of each key and pane of one batch, as :func:`key_first` gives them; None where rows must do it."""
    if aggregator.by.column is None:
        return None
    require_columns(batch, (*keys, aggregator.by.column))
    usable = plain(batch, keys)
    if usable is None:
        return None
    batch = usable
    extra = [("key", pa.array(np.zeros(batch.num_rows, np.int64)))] if keyless else []
    extra += [(f"pane{i}", pane) for i, pane in enumerate(panes)]
    made = key_first(batch, keys, tuple(extra))
    made = mark_keyed(made, len(keys) or 1)
    form = best_form(made.schema, len(panes), aggregator)
    out = None if form is None else form.group(pa.Table.from_batches([made]))
    return None if out is None else out.replace_schema_metadata(made.schema.metadata)


class BestColumns(WindowColumns):
    """The best records of open windows in columns."""

    aggregator: BestRecords

    def __init__(self, aggregator: BestRecords, windows: Any) -> None:
        super().__init__(aggregator, windows)
        self.schema: pa.Schema | None = None

    def _form_of(self, schema: pa.Schema) -> Form:
        self.schema = schema
        form = best_form(schema, 2 if isinstance(self.windows, Given) else 1, self.aggregator)
        assert form is not None  # senders make columns only where there is one
        return form

    def _results(self, found: tuple[pa.Table, bool] | None) -> pa.RecordBatch | list[Any] | None:
        if found is None:
            return None
        assert self.state is not None
        assert self.schema is not None
        batch, _ = self.state.form.merged(found[0])
        windows = windows_between(batch.column(self.state.form.keys), self.state.ends_of(batch), self.windows)
        return with_windows(batch, self.schema, windows)

    def _pairs(self, batch: pa.RecordBatch) -> Pairs:
        assert self.state is not None
        assert self.schema is not None
        windows = windows_between(batch.column(self.state.form.keys), self.state.ends_of(batch), self.windows).to_pylist()
        return list(zip(self._keys(batch), zip(windows, self._accumulators(batch, self.schema), strict=True), strict=True))

    def pairs_of(self, batches: list[pa.RecordBatch]) -> Pairs:
        out: Pairs = []
        for batch in batches:
            form = self._form_of(batch.schema)
            places = zip(*(batch.column(form.keys + i).to_pylist() for i in range(form.places)), strict=True)
            for key, place, best in zip(self._keys(batch), places, self._accumulators(batch, batch.schema), strict=True):
                out.extend((key, (window, best)) for window in windows_of_place(place, self.windows))
        return out

    def _keys(self, batch: pa.RecordBatch) -> list[Any]:
        assert self.schema is not None
        return keys_of(mark_keyed(batch, keyed_columns(self.schema) or 0))

    def _accumulators(self, batch: pa.RecordBatch, schema: pa.Schema) -> list[Any]:
        return [self.aggregator.create(record) for record in to_rows(record_of(batch, schema))]


def with_windows(batch: pa.RecordBatch, schema: pa.Schema, windows: pa.ExtensionArray) -> pa.RecordBatch:
    """Best records as results: key columns, ``window``, ``record``."""
    keys = keyed_columns(schema) or 0
    labels = distinct_names(schema.names[:keys], ["window", "record"])
    columns = [*batch.columns[:keys], windows, record_array(record_of(batch, schema))]
    return mark_keyed(pa.RecordBatch.from_arrays(columns, names=labels), keys)


@dataclass(slots=True)
class EachRecord(Element):
    """``(key, window, [records])`` as ``(key, window, record)`` for each; columns have them so already."""

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch):
            return batch
        return [(*leading, record) for *leading, records in to_rows(batch) for record in records]


# -- over epochs -----------------------------------------------------------------------------------


@dataclass(slots=True)
class BestOfBatch(Element):
    """The best records of each key in a batch: columns as :func:`key_first` gives them, or ``(key, accumulator)`` pairs."""

    key: KeySelector
    aggregator: BestRecords
    keyless: bool = False

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and (self.key.columns or self.keyless):
            require_columns(batch, self.key.columns)
            out = best_of_batch(batch, self.key.columns, [], self.aggregator, keyless=self.keyless)
            if out is not None:
                return out
        rows, merge, create = to_rows(batch), self.aggregator.merge, self.aggregator.create
        out_rows: dict[Any, Any] = {}
        try:
            for key, row in zip(self.key.keys_of(rows), rows, strict=True):
                out_rows[key] = merge(out_rows[key], create(row)) if key in out_rows else create(row)
        except TypeError:
            for key in self.key.keys_of(rows):
                require_hashable(key)
            raise
        return list(out_rows.items())


class EpochBest(KeyedVertex):
    """The best records of each key and logical time: ``(key, window, record)`` with the window [epoch, epoch + 1), or that of the
    round inside a loop."""

    def __init__(self, aggregator: BestRecords) -> None:
        self.aggregator = aggregator
        self.pending = Waiting(self, Batches())

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        nothing = None if inputs[0] is None else no_rows(inputs[0])
        return () if nothing is None else (self._with_window(nothing, 0).schema,)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.pending[time].append(batch)

    def on_notify(self, time: Timestamp) -> None:
        for parts in self.pending.pieces(time):
            self._complete(time, parts)

    def _complete(self, time: Timestamp, parts: list[Any]) -> None:
        batches = [batch for batch in parts if isinstance(batch, pa.RecordBatch)]
        pairs = [pair for batch in parts if not isinstance(batch, pa.RecordBatch) for pair in batch]
        if not batches and not pairs:
            return  # all of it was given to another replica
        start = time.counters[-1] if time.counters else time.epoch
        schema = batches[0].schema if batches else None
        if schema is not None and not pairs and all(b.schema.equals(schema, check_metadata=True) for b in batches):
            form = best_form(schema, 0, self.aggregator)
            assert form is not None
            best, _ = form.merged(pa.Table.from_batches(batches))
            self.send_by(0, self._with_window(best.replace_schema_metadata(schema.metadata), start), time)
            return
        for batch in batches:
            pairs += [(key, self.aggregator.create(record)) for key, record in pairs_of(batch)]
        merged: dict[Any, Best] = {}
        for key, found in pairs:
            merged[key] = self.aggregator.merge(merged[key], found) if key in merged else found
        window = Window(start, start + 1)
        self.send_by(0, [(key, window, record) for key, (_, records) in merged.items() for record in records], time)

    @staticmethod
    def _with_window(best: pa.RecordBatch, start: int) -> pa.RecordBatch:
        bounds = [pa.array(np.full(best.num_rows, at, np.int64)) for at in (start, start + 1)]
        return with_windows(best, best.schema, window_array(*bounds))
