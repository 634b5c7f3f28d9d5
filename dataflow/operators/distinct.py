"""``distinct``: each record of a key once, the first time that it comes.

Columns stay columns: a group-by with no aggregate. Senders leave out what a batch repeats, the vertex keeps the distinct rows
(``state.seen_rows``). Values that Arrow cannot compare as Python does, nested ones above all, are handled as rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.keys.column_keys import plain
from rayad.dataflow.operators.keys.key_first import RECORD_KEY, key_first, pairs_of, record_of
from rayad.dataflow.operators.keys.keyed import PairValue, distinct_names, import_conversions
from rayad.dataflow.operators.keys.schemas import brought_together
from rayad.dataflow.operators.results import record_array
from rayad.dataflow.operators.state.by_key.sets import GrowingSet
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.slots.row_index import first_positions
from rayad.dataflow.operators.state.slots.seen_rows import SeenRows
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.operators.state.waiting_forms import Batches, PairsOnce
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.records.batches import keyed_columns, mark_keyed, no_rows, one_batch, to_rows
from rayad.dataflow.records.content_codes import contents_of, has_contents
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, require_columns
from rayad.progress import DataflowError, Timestamp

USELESS_SHARE = 0.8
"""A sender stops looking for repeated records for a while when it keeps more than this share."""
UNTRIED_ROWS = 1 << 20
"""For so many rows."""
COMPACT_ROWS = 1 << 19
"""Columns that wait for their time are brought down to their distinct rows when so many have come."""


@dataclass(slots=True)
class OnceInBatch(Element):
    """``(key, value)`` pairs; or the key columns with the value's behind them, or the record's, each distinct row of a batch once."""

    key: KeySelector
    value: ValueSelector
    _untried: int = field(default=0, init=False)

    def warm_up(self) -> None:
        if self.key.columns:
            import_conversions()

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch):
            made = self._columns(batch)
            if made is not None:
                return self._once(made)
        return PairValue(self.key, self.value).apply(batch)

    def rows_because(self, schema: pa.Schema) -> str | None:
        if not self.key.columns:
            return "its key is a function"
        if self.value.function is not None and not self.value.is_record:
            return "the value of distinct is a function"
        names = [name for name in schema.names if self.value.is_record or name in (*self.key.columns, self.value.column)]
        without = next((name for name in names if not has_contents(schema.field(name).type)), None)
        return None if without is None else f"distinct of {schema.field(without).type} ({without!r}) handles rows"

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """What leaves, with repetitions; None where rows must do it."""
        keys, value = self.key.columns, self.value
        if not keys or len(set(keys)) < len(keys) or keyed_columns(batch.schema) is not None:
            return None
        if value.is_record:
            usable = plain(batch, keys)
            return None if usable is None else key_first(usable, keys)
        if value.column is None:
            return None
        require_columns(batch, (*keys, value.column))
        slim = batch.select(list(dict.fromkeys((*keys, value.column))))
        usable = plain(slim, keys)
        if usable is None:
            return None
        names = distinct_names(list(keys), [value.column])
        return mark_keyed(pa.RecordBatch.from_arrays([usable.column(name) for name in (*keys, value.column)], names=names), len(keys))

    def _once(self, batch: pa.RecordBatch) -> Any:
        contents = contents_of(batch)
        if contents is None:
            return pairs_with_values(batch)
        if self._untried > 0:
            self._untried -= batch.num_rows
            return batch
        once = _taken(batch, contents)
        if once.num_rows > USELESS_SHARE * batch.num_rows:
            self._untried = UNTRIED_ROWS
        return once


def _taken(batch: pa.RecordBatch, contents: pa.RecordBatch) -> pa.RecordBatch:
    """The distinct rows of a batch."""
    try:
        first = first_positions(contents)
    except NotColumns:
        return batch
    return batch if len(first) == batch.num_rows else batch.take(pa.array(first))


def pairs_with_values(batch: pa.RecordBatch) -> list[Any]:
    """What :class:`OnceInBatch` gives in columns as the pairs that it gives in rows."""
    return pairs_of(batch) if RECORD_KEY in (batch.schema.metadata or {}) else to_rows(batch)


def _comparable_pairs(batch: pa.RecordBatch) -> list[Any]:
    return comparable(pairs_with_values(batch))


def _result(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What leaves the vertex: whole records as one column ``record``."""
    if RECORD_KEY not in (batch.schema.metadata or {}):
        return batch
    keys = keyed_columns(batch.schema) or 0
    names = distinct_names(batch.schema.names[:keys], ["record"])
    columns = [*batch.columns[:keys], record_array(record_of(batch, batch.schema))]
    return mark_keyed(pa.RecordBatch.from_arrays(columns, names=names), keys)


class Distinct(KeyedVertex):
    """Each distinct ``(key, value)`` once, at the first time (in lexicographic order) that holds it; see :class:`Contents` for values that
    Python cannot hash."""

    gives_records = True
    sequential = True
    waits_for_siblings = False
    state_version = 3
    """2: rows alone."""

    def __init__(self) -> None:
        self.pending = Waiting(self, PairsOnce(), Batches())
        self.seen: TwoForms[GrowingSet, SeenRows] = TwoForms(GrowingSet(), _seen_rows)
        self._uncompacted: dict[Timestamp, int] = {}  # rows of columns that wait

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        nothing = None if inputs[0] is None else no_rows(inputs[0])
        return () if nothing is None else (_result(nothing).schema,)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows, batches = self.pending[time]
        if not isinstance(batch, pa.RecordBatch):
            self._add(rows, comparable(to_rows(batch)))
            return
        batches.append(batch)
        count = self._uncompacted.get(time, 0) + batch.num_rows
        if count >= COMPACT_ROWS:
            count = self._compact(batches)
        self._uncompacted[time] = count

    def _compact(self, batches: list[pa.RecordBatch]) -> int:
        together = brought_together(batches)
        contents = None if together is None else contents_of(one := one_batch(pa.Table.from_batches(together)))
        if contents is None:
            return 0
        batches[:] = [_taken(one, contents)]
        kept: int = batches[0].num_rows
        return -3 * kept  # many distinct rows: not again before four times as many have come

    def _add(self, rows: dict[Any, None], pairs: list[Any]) -> None:
        try:
            rows.update(dict.fromkeys(self.seen.rows.not_in_memory(pairs)))
        except TypeError as error:
            raise DataflowError(f"distinct {self.name!r} needs hashable keys and values: {error}; map records to tuples first") from error

    def on_notify(self, time: Timestamp) -> None:
        self._uncompacted.pop(time, None)
        for rows, batches in self.pending.pieces(time):
            self._complete(time, rows, batches)

    def _complete(self, time: Timestamp, rows: dict[Any, None], batches: list[pa.RecordBatch]) -> None:
        if batches and not rows and not self.seen.rows.is_used:
            together = brought_together(batches)
            if together is not None:
                batch = one_batch(pa.Table.from_batches(together))
                try:
                    new = self.seen.columns.new(batch)
                except NotColumns:
                    pass
                else:
                    if len(new):
                        self.send_by(0, _result(batch if len(new) == batch.num_rows else batch.take(pa.array(new))), time)
                    return
        for batch in batches:
            self._add(rows, _comparable_pairs(batch))
        if not rows:
            return
        self.seen.to_rows()
        fresh = self.seen.rows.new(rows)
        if fresh:
            self.seen.rows.add(fresh)
            self.send_by(0, originals(fresh), time)


def _seen_rows() -> SeenRows:
    return SeenRows(_comparable_pairs)


__all__ = ["Distinct", "OnceInBatch"]
