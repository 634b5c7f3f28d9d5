"""Running totals: when a time is complete, each key that it touched is emitted once, with its total so far.

Two forms of the same state: a dict for rows, and :class:`ColumnTotals` while all batches are columnar. The first batch of rows, a
sum that leaves 64 bits, and columns of types that do not go together turn the second into the first; both give the same results.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Several
from rayad.dataflow.operators.aggregates.held import as_totals
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.keys.keyed import distinct_names, import_group_by, require_hashable
from rayad.dataflow.operators.keys.schemas import as_schema, brought_together, common_schema
from rayad.dataflow.operators.state.by_key.dicts import GrowingDict
from rayad.dataflow.operators.state.by_schema import PartsBySchema
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.slots import SlotVersions
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.operators.state.waiting_forms import Batches, ByKey
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.totals.at_epochs import TotalsAtEpochs
from rayad.dataflow.operators.totals.columns import ColumnTotals
from rayad.dataflow.records.batches import mark_keyed, no_rows, to_rows
from rayad.dataflow.records.moments import keys_in
from rayad.progress import Timestamp

COMPACT_ROWS = 1 << 19
"""Pending columnar partials are merged when they reach this many rows."""


class TotalsByTime(KeyedVertex, ABC):
    """Partials wait for their time; its input are pairs, or columns, made by :class:`rayad.dataflow.operators.aggregates.combiner.Combine`.

    Args:
        aggregator: what is computed.
        columnar: columnar input is to be expected.
    """

    sequential = True
    waits_for_siblings = False
    may_change = frozenset({"columnar"})

    def __init__(self, aggregator: Aggregator, *, columnar: bool = False) -> None:
        if columnar:
            import_group_by()
        self.aggregator = aggregator
        self.pending = Waiting(self, ByKey(self._merge_rows), Batches())
        self._uncompacted: dict[Timestamp, int] = {}  # rows of columns that wait
        self._partials = Partials(aggregator.partials)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows, batches = self.pending[time]
        if not isinstance(batch, pa.RecordBatch):
            self._merge_rows(rows, batch)
            return
        batches.append(batch)
        count = self._uncompacted.get(time, 0) + batch.num_rows
        if count >= COMPACT_ROWS:
            merged = self._compact(batches)
            if merged is None:
                self._merge_rows(rows, self._pairs(batches))
                batches.clear()
                count = 0
            else:
                batches[:] = [merged]
                count = -3 * merged.num_rows  # many distinct keys: not again before four times as many rows have come
        self._uncompacted[time] = count

    def _merge_rows(self, into: dict[Any, Any], pairs: list[Any]) -> None:
        try:
            self.aggregator.merge_into(into, pairs)
        except TypeError as error:
            if "unhashable" in str(error):
                for key, _ in pairs:
                    require_hashable(key)
            raise error

    def on_notify(self, time: Timestamp) -> None:
        self._uncompacted.pop(time, None)
        for rows, batches in self.pending.pieces(time):
            self.complete(time, rows, batches)

    @abstractmethod
    def complete(self, time: Timestamp, rows: dict[Any, Any], batches: list[pa.RecordBatch]) -> None:
        """Take in what has waited for a time that is complete: all of some keys."""

    def _compact(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
        """One row per distinct key; None when a sum could leave 64 bits, or types differ so that rows must do it."""
        together = brought_together(batches)
        if together is None:
            return None
        schema = together[0].schema
        table = pa.Table.from_batches(together)
        return self._partials.group(table, len(schema) - self._partials.width, schema)

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        nothing = None if inputs[0] is None else no_rows(inputs[0])
        if nothing is None:
            return ()
        partials = nothing.columns[nothing.num_columns - self._partials.width :]
        if self.aggregator.has_type_of_values([column.type for column in partials]):
            return ()
        totals = self._partials.filled(partials)
        given = self.given(self._finished(nothing, totals), Timestamp(0))
        return (given.schema if isinstance(given, pa.RecordBatch) else None,)

    def _finished(self, partial: pa.RecordBatch, totals: list[Any]) -> pa.RecordBatch:
        """The totals of the keys of ``partial``, in its order."""
        fields, keys = partial.schema, partial.num_columns - self._partials.width
        finished = self.aggregator.results(fields.names[keys:], as_totals(totals, fields.types[keys:]))
        named = isinstance(self.aggregator, Several)
        wanted, leading = [name for name, _ in finished], fields.names[:keys]
        # The values of a dict keep the names that the user gave; a key column of such a name gives way.
        names = [*distinct_names(wanted, leading)[len(wanted) :], *wanted] if named else distinct_names(leading, wanted)
        columns = [*(partial.column(i) for i in range(keys)), *(column for _, column in finished)]
        return mark_keyed(pa.RecordBatch.from_arrays(columns, names=names), keys, named=named)

    def given(self, out: Any, time: Timestamp) -> Any:
        """Results as they leave; windows over epochs say which."""
        return out

    def _pairs(self, batches: list[pa.RecordBatch]) -> list[Any]:
        """Columnar partials as the pairs that the row form uses."""
        out: list[Any] = []
        accumulator = self.aggregator.accumulator
        for partial in batches:
            keys = partial.num_columns - self._partials.width
            columns = [column.to_pylist() for column in partial.columns[keys:]]
            found = keys_in(partial.columns[:keys])
            out.extend((key, accumulator(values)) for key, values in zip(found, zip(*columns, strict=True), strict=True))
        return out


class TotalsInColumns(PartsBySchema[ColumnTotals]):
    """Running totals in columns, of which the schema is known from the first on."""

    inline = True
    can_drop = True

    def __init__(self, aggregator: Aggregator) -> None:
        super().__init__()
        self.aggregator = aggregator
        self._partials = Partials(aggregator.partials)
        self._versions: SlotVersions | None = None

    def made(self, at: int, schema: pa.Schema) -> ColumnTotals:
        totals = ColumnTotals(self._partials, schema, len(schema) - self._partials.width)
        totals.versions = self._versions
        return totals

    def merge(self, partial: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Any]]:
        """Add one row per distinct key; gives them in the types of the totals, and the totals of their keys.

        Raises OverflowError or NotColumns, before any total has changed, when a sum could leave 64 bits or types do not go together.
        """
        self.learn(0, partial.schema)
        (totals,) = self.there
        if not totals.schema.equals(partial.schema):
            common = common_schema([totals.schema, partial.schema])
            if common is None:
                raise NotColumns
            totals = totals.with_schema(common)
            partial = as_schema(partial, common)
            if self._versions is not None:
                self._versions.begin_now()  # slots are others
            totals.versions = self._versions
            self.schemas[0], self.parts[0] = common, totals
        return partial, totals.merge(partial)

    # -- to be read ----------------------------------------------------------------
    @property
    def totals(self) -> ColumnTotals | None:
        """All of them; None: none have come yet."""
        return self.parts[0]

    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return TotalsAtEpochs(self, epochs)

    def keep_versions(self, versions: SlotVersions | None) -> None:
        """From now on changes are noted there; None: nowhere."""
        self._versions = versions
        for totals in self.there:
            totals.versions = versions

    def for_schema(self, schema: pa.Schema) -> ColumnTotals | None:
        """The totals, if they are of this schema, or could be; None: they are of another one."""
        self.learn(0, schema)
        (totals,) = self.there
        return totals if totals.schema.equals(schema) else None

    def as_rows(self) -> dict[Any, Any]:
        return {key: self.aggregator.accumulator(values) for totals in self.there for key, values in totals.rows()}

    def restore(self, stored: Any) -> None:
        super().restore((stored["schema"], stored) if isinstance(stored, dict) else stored)  # they stored no schema beside them once

    def drop(self, keys: list[Any]) -> None:
        for totals in self.there:
            totals.drop(keys)

    def take(self, given: Any) -> None:
        versions = self._versions
        self.keep_versions(None)  # what comes is older than the epoch of now
        super().take(given)
        self.keep_versions(versions)


class Totals(TotalsByTime):
    """The vertex behind ``count sum min max mean reduce top_k aggregate``: totals are kept from one time to the next."""

    def __init__(self, aggregator: Aggregator, *, columnar: bool = False) -> None:
        super().__init__(aggregator, columnar=columnar)
        self.totals = TwoForms(GrowingDict(beside=self.pending.rows, opening=aggregator), lambda: TotalsInColumns(aggregator))

    def complete(self, time: Timestamp, rows: dict[Any, Any], batches: list[pa.RecordBatch]) -> None:
        kept = self.totals.rows
        if batches and not rows and not kept.kept:
            compacted = self._compact(batches)
            if compacted is not None:
                try:
                    finished = self._finished(*self.totals.columns.merge(compacted))
                except (NotColumns, OverflowError):
                    pass
                else:
                    self.send_by(0, self.given(finished, time), time)
                    return
        if batches:
            self._merge_rows(rows, self._pairs(batches))
        if not rows:
            return  # all of it was given to another replica
        self.totals.to_rows()
        merge, result = self.aggregator.merge, self.aggregator.emitted
        out = []
        with kept.changing(rows) as state:
            for key, accumulator in rows.items():
                if key in state:
                    accumulator = merge(state[key], accumulator)
                state[key] = accumulator
                out.append((key, result(accumulator)))
        self.send_by(0, self.given(out, time), time)


class EpochTotals(TotalsByTime):
    """Totals of each time alone: ``(key, window, value)`` with the window [epoch, epoch + 1), or [round, round + 1) inside a loop."""

    def complete(self, time: Timestamp, rows: dict[Any, Any], batches: list[pa.RecordBatch]) -> None:
        if batches and not rows:
            compacted = self._compact(batches)
            if compacted is not None:
                keys = compacted.num_columns - self._partials.width
                try:
                    totals = ColumnTotals(self._partials, compacted.schema, keys).merge(compacted)
                except OverflowError:
                    pass
                else:
                    self.send_by(0, self.given(self._finished(compacted, totals), time), time)
                    return
        if batches:
            self._merge_rows(rows, self._pairs(batches))
        if rows:
            result = self.aggregator.result
            self.send_by(0, self.given([(key, result(accumulator)) for key, accumulator in rows.items()], time), time)

    def given(self, out: Any, time: Timestamp) -> Any:
        from rayad.dataflow.windows import Window

        start = time.counters[-1] if time.counters else time.epoch
        window = Window(start, start + 1)
        return [(key, window, value) for key, value in to_rows(out)]


class Fold(KeyedVertex):
    """``f(state, value) -> state`` per key, in the order of times; emits each touched key when its time is complete."""

    sequential = True
    waits_for_siblings = False
    may_change = frozenset({"initial", "function"})

    def __init__(self, initial: Any, function: Any) -> None:
        self.initial = initial
        self.function = function
        self.pending = Waiting(self, Batches())
        self.state = GrowingDict(beside=self.pending.rows)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.pending[time].append(batch)

    def on_notify(self, time: Timestamp) -> None:
        for batches in self.pending.pieces(time):
            self._complete(time, list(map(to_rows, batches)))

    def _complete(self, time: Timestamp, batches: list[list[Any]]) -> None:
        touched = dict.fromkeys(key for pairs in batches for key, _ in pairs)
        if not touched:
            return  # all of it was given to another replica
        with self.state.changing(touched) as state:
            for pairs in batches:
                for key, value in pairs:
                    state[key] = self.function(state[key] if key in state else self.start(), value)
        # Copies: the function may go on changing its state in place.
        self.send_by(0, [(key, copy.deepcopy(state[key])) for key in touched], time)

    def start(self) -> Any:
        """The state of a new key: a copy of ``initial``, or what it returns when it is callable."""
        return self.initial() if callable(self.initial) else copy.deepcopy(self.initial)
