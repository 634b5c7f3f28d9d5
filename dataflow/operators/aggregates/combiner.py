"""Combiners that reach over batches: what a busy sender has aggregated so far of each time waits, and leaves as one batch.

A combiner that sees one batch at a time leaves much of its work to the receiver: of the words of ``python -m benchmarks wordcount``,
batches of 80,000 shrink to 8,600 partial counts each, a million to 34,000. So a sender that has more input at hand goes on adding to
the same partials. The runtime flushes them before it reports its progress, so that nothing which waits here is ever thought to be
complete; at the latest after ``RunConfig.combine_hold_s``, and at once when there is no more input: an idle job waits for nothing.

Where keys hardly repeat, combining costs more than it saves: after a flush that kept most rows, the next rows leave as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Count, Several
from rayad.dataflow.operators.aggregates.lists import lengths_of
from rayad.dataflow.operators.aggregates.partial import Partial
from rayad.dataflow.operators.keys.column_keys import key_normalised, plain
from rayad.dataflow.operators.keys.dense_groups import has_dense_range
from rayad.dataflow.operators.keys.group_functions import GroupFunction
from rayad.dataflow.operators.keys.keyed import group, import_group_by, require_hashable, value_column
from rayad.dataflow.operators.stateless import GATHERED_BYTES_MAX, Element, Gatherer, columns_given
from rayad.dataflow.records.batches import no_rows, to_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.moments import keys_in
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, require_columns
from rayad.progress import DataflowError, Timestamp

KEYS_MAX = 1 << 17
"""Partials of rows leave when a time has this many keys."""
ROWS_MAX = 1 << 20
"""Columns are aggregated when a time has this many rows waiting; what they keep alive is bounded, too."""
BYTES_OF_KEY = 256
"""About so much memory a partial of rows takes, with its key."""
USELESS_SHARE = 0.8
"""Combining is given up for a while when it keeps more than this share of the rows."""
TRIAL_ROWS = 1 << 16
"""A share is only judged over at least this many rows."""
SAMPLE_ROWS_MIN, SAMPLE_EVERY_ROWS, SAMPLE_SHARE = 1 << 14, 1 << 20, 0.95
"""Before a large batch is held back it is looked at, one in a million rows: when this share of its keys differ, a million rows would
hardly shrink to half."""
UNTRIED_ROWS = 1 << 23
"""After how many rows that left as they are combining is tried again."""


@dataclass(slots=True)
class Combine(Element):
    """``(key, accumulator)`` pairs, one for each key in the batch; columnar when keys and values are columns and the values numbers."""

    key: KeySelector
    value: ValueSelector
    aggregator: Aggregator
    gathers_rows: ClassVar[bool] = True

    def warm_up(self) -> None:
        if self.key.columns:
            import_group_by()

    def gatherer(self, bytes_max: int = GATHERED_BYTES_MAX) -> Gatherer:
        return Combiner(self, bytes_max)

    def apply(self, batch: Any) -> Any:
        """One batch combined alone; see :meth:`gatherer` for many."""
        if isinstance(batch, pa.RecordBatch) and self.key.columns:
            require_columns(batch, self.key.columns)
            usable = plain(with_inputs(batch, self.value, self.aggregator, self.key.columns), self.key.columns, self.key.columns)
            if usable is not None and value_columns(self, usable) is not None:
                partial = combine_columns(self, usable)
                if partial is not None:
                    return partial
        totals = self.aggregator.new_partials()
        self.combine_into(totals, to_rows(batch), self.value.row_value(self.key.columns))
        return list(totals.items())

    def rows_because(self, schema: pa.Schema) -> str | None:
        return rows_because(schema, self.key, self.value, self.aggregator)

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return columns_given(self, schema)

    def combine_into(self, totals: dict[Any, Any], rows: list[Any], value: Callable[[Any], Any]) -> None:
        """Add records to ``{key: accumulator}``. Raises DataflowError for a key that cannot be hashed."""
        keys = self.key.keys_of(rows)
        try:
            # Count counts keys.
            self.aggregator.combine_into(totals, keys, () if type(self.aggregator) is Count else mapped(value, rows))
        except TypeError:
            for key in keys:
                require_hashable(key)
            raise

    def parts(self) -> list[Aggregator]:
        """The aggregations side by side; one, when there is only one."""
        return list(self.aggregator.parts.values()) if isinstance(self.aggregator, Several) else [self.aggregator]

    def value_by_part(self, columns: Sequence[str]) -> list[str | None]:
        """The value column of each of :meth:`parts`, None for one that takes no value, from what :func:`value_columns` gave."""
        left = iter(columns)
        return [next(left) if part.takes_value else None for part in self.parts()]


INPUT = "rayad.input."
"""What a column begins with that an aggregation has made of others; then its number among those side by side, the field that it is, and
what it is shown as."""
FIELD = "/"


def parts_of(value: ValueSelector, aggregator: Aggregator) -> list[tuple[Aggregator, ValueSelector]]:
    """The aggregations side by side, each with the selector of its value."""
    if isinstance(aggregator, Several):
        return list(zip(aggregator.parts.values(), aggregator.values, strict=True))
    return [(aggregator, value)]


def with_inputs(batch: pa.RecordBatch, value: ValueSelector, aggregator: Aggregator, others: tuple[str, ...]) -> pa.RecordBatch:
    """The batch with a column behind the others for each aggregation that makes its own input; without it where rows must do it.

    Args:
        others: the columns that are no value: keys, event times.
    """
    if not aggregator.partials or any(name.startswith(INPUT) for name in batch.schema.names):
        return batch  # windows have made them
    out = batch
    for at, (part, selector) in enumerate(parts_of(value, aggregator)):
        if part.makes_input:
            made = _input_of(batch, part, selector, others)
            if isinstance(made, str):
                return batch
            fields = list(dict.fromkeys(partial.field for partial in part.partials))
            for name in fields:
                column = made if name is None else made.field(name)
                out = out.append_column(f"{INPUT}{at}{FIELD}{name or ''}:{part.shown_as(selector) or ''}", column)
    return out


def _input_of(batch: pa.RecordBatch, part: Aggregator, selector: ValueSelector, others: tuple[str, ...]) -> pa.Array | str:
    column = None if selector.function is not None else value_column(batch, selector, others)
    return part.input_of(batch, selector, column)


def _column_of(column: str | None, partial: Partial) -> str | None:
    """The column of a partial, where that of its aggregation is, or begins with, ``column``."""
    if column is None or partial.field is None:
        return column
    return f"{column.partition(FIELD)[0]}{FIELD}{partial.field}:{column.partition(':')[2]}"


def _shown(column: str) -> str | None:
    """What an input is called in the names of partials."""
    return column.partition(":")[2] or None if column.startswith(INPUT) else column


def rows_because(
    schema: pa.Schema,
    key: KeySelector,
    value: ValueSelector,
    aggregator: Aggregator,
    others: tuple[str, ...] = (),
    *,
    keyless: bool = False,
) -> str | None:
    """Why an aggregation of columns of this schema has rows; None where it has columns."""
    if not key.columns and not keyless:
        return "its key is a function"
    parts = parts_of(value, aggregator)
    without = next((part for part, _ in parts if not part.partials), None)
    if without is not None:
        return without.rows_reason
    for part, selector in parts:
        if part.makes_input:
            made = _of_nothing(schema, part, selector, (*key.columns, *others))
            if isinstance(made, str):
                return made
            continue
        if part.takes_value and selector.function is not None:
            return f"the value of {part.name} is a function"
        if part.takes_value and selector.column in schema.names and not part.takes_type(schema.field(selector.column).type):
            return f"{part.name} of {schema.field(selector.column).type} ({selector.column!r}) handles rows"
    return None


def _of_nothing(schema: pa.Schema, part: Aggregator, selector: ValueSelector, others: tuple[str, ...]) -> pa.Array | str | None:
    nothing = no_rows(schema)
    try:
        return None if nothing is None else _input_of(nothing, part, selector, others)
    except DataflowError:  # a name that nobody can tell
        return None


def value_columns(element: Combine, batch: pa.RecordBatch | pa.Table) -> list[str] | None:
    """The column of each aggregation that takes values; None where columns would give something else than the rows do."""
    aggregator = element.aggregator
    if not aggregator.partials:
        return None
    out = []
    for at, (part, selector) in enumerate(parts_of(element.value, aggregator)):
        if part.makes_input:
            made = next((name for name in batch.schema.names if name.startswith(f"{INPUT}{at}{FIELD}")), None)
            if made is None:
                return None
            out.append(made)
        elif part.takes_value:
            column = value_column(batch, selector, (*element.key.columns, *(name for name in batch.schema.names if name.startswith(INPUT))))
            if column is None or not part.takes_type(batch.schema.field(column).type):
                return None
            out.append(column)
    return out


def combine_columns(element: Combine, batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | None:
    """Partials by a group-by, a row for each key; None where rows would give something else. The batch is one with value columns."""
    several = isinstance(element.aggregator, Several)
    names_of_parts = list(element.aggregator.parts) if isinstance(element.aggregator, Several) else [element.aggregator.name]
    columns = element.value_by_part(value_columns(element, batch) or [])
    keys = list(element.key.columns)
    wanted: list[tuple[str | None, GroupFunction]] = []
    names: list[str] = []
    made: list[tuple[Partial, int, str | None]] = []
    for name, aggregator, column in zip(names_of_parts, element.parts(), columns, strict=True):
        for partial in aggregator.partials:
            of_it = _column_of(column, partial)
            if of_it is not None and partial.needs_rows(batch.column(of_it)):
                return None
            made.append((partial, len(wanted), of_it))
            wanted.extend((None if partial.gathers else of_it, function) for function in partial.of_rows)
            shown = None if column is None else _shown(column)
            names.extend(f"{name}.{of}" if several else of if shown is None else f"{of}({shown})" for of in partial.columns)
    out = group(batch, keys, wanted, names)
    if not any(partial.goes_on or partial.gathers for partial, _, _ in made):
        return out
    arrays = out.columns[: len(keys)]
    for partial, at, column in made:
        some = out.columns[len(keys) + at : len(keys) + at + len(partial.columns)]
        if partial.gathers:
            arrays.append(partial.gathered(batch.column(column), some[0].flatten().to_numpy(), lengths_of(some[0])))
        else:
            arrays += partial.made(some)
    return pa.RecordBatch.from_arrays(arrays, names=out.schema.names).replace_schema_metadata(out.schema.metadata)


def pairs_of(element: Combine, table: pa.Table) -> list[Any]:
    """Each row of a table with value columns as a pair of its key and its accumulator, in rows: of several aggregations, of which one
    makes its input and another one would overflow."""
    columns = element.value_by_part(value_columns(element, table) or [])
    each: list[list[Any]] = []
    for part, column in zip(element.parts(), columns, strict=True):
        values: list[Any] = [None] * table.num_rows if column is None else table.column(column).to_pylist()
        if part.columns:
            fields = [table.column(_column_of(column, partial)).to_pylist() for partial in part.partials[::2]]
            each.append(fields[0] if len(fields) == 1 else list(zip(*fields, strict=True)))
        elif part.makes_input:
            lists = [partial.gathered(table.column(column), *_alone(table.num_rows)).to_pylist() for partial in part.partials]
            each.append([part.accumulator(some) for some in zip(*lists, strict=True)])
        else:
            each.append(list(map(part.create, values)))
    keys = keys_in([table.column(name) for name in element.key.columns])
    accumulators = map(list, zip(*each, strict=True)) if isinstance(element.aggregator, Several) else each[0]
    return list(zip(keys, accumulators, strict=True))


def _alone(rows: int) -> tuple[Any, Any]:
    return np.arange(rows), np.ones(rows, np.int64)


class Combiner(Gatherer):
    """Partials of the aggregation of one :class:`Combine` in one sender, by time."""

    def __init__(self, element: Combine, bytes_max: int = GATHERED_BYTES_MAX) -> None:
        self._rows = _RowPartials(element, min(KEYS_MAX, max(1, bytes_max // BYTES_OF_KEY)))
        self._columns = _ColumnPartials(element, self._rows, bytes_max)

    @property
    def holding(self) -> bool:
        return bool(self._rows.totals or self._columns.waiting)

    def add(self, time: Timestamp, batch: Any) -> list[Any]:
        usable = self._columns.usable(batch) if isinstance(batch, pa.RecordBatch) else None
        if usable is not None:
            return self._columns.add(time, usable)
        return self._rows.add(time, to_rows(batch))

    def add_rows(self, time: Timestamp, rows: Iterable[Any]) -> list[Any]:
        return self._rows.add(time, rows)

    def flush(self) -> list[tuple[Timestamp, Any]]:
        out = [(time, batch) for time in list(self._columns.waiting) for batch in self._columns.give(time)]
        out.extend((time, batch) for time in list(self._rows.totals) for batch in self._rows.give(time))
        return out


class _RowPartials:
    """``{key: accumulator}`` for each time."""

    def __init__(self, element: Combine, keys_max: int) -> None:
        self._element = element
        self._keys_max = keys_max
        self._value = element.value.row_value(element.key.columns)
        self.totals: dict[Timestamp, dict[Any, Any]] = {}
        self._seen: dict[Timestamp, int] = {}
        self._untried = 0

    def add(self, time: Timestamp, rows: Iterable[Any]) -> list[Any]:
        rows = rows if isinstance(rows, list) else list(rows)
        if self._untried > 0:
            self._untried -= len(rows)
            return [self._element.apply(rows)]
        totals = self.totals.get(time)
        if totals is None:
            totals = self.totals[time] = self._element.aggregator.new_partials()
            self._seen[time] = 0
        self._element.combine_into(totals, rows, self._value)
        self._seen[time] += len(rows)
        return self.give(time) if len(totals) >= self._keys_max else []

    def merge(self, time: Timestamp, pairs: list[Any], rows: int) -> list[Any]:
        """Add ``(key, accumulator)`` pairs that so many rows have become."""
        totals = self.totals.get(time)
        if totals is None:
            totals = self.totals[time] = self._element.aggregator.new_partials()
            self._seen[time] = 0
        self._element.aggregator.merge_into(totals, pairs)
        self._seen[time] += rows
        return self.give(time) if len(totals) >= self._keys_max else []

    def give(self, time: Timestamp) -> list[Any]:
        totals, seen = self.totals.pop(time), self._seen.pop(time)
        if seen >= TRIAL_ROWS and len(totals) > USELESS_SHARE * seen:
            self._untried = UNTRIED_ROWS
        return [list(totals.items())]


class _ColumnPartials:
    """Columnar batches of each time that wait to be aggregated together."""

    def __init__(self, element: Combine, rows: _RowPartials, bytes_max: int) -> None:
        self._element = element
        self._bytes_max = bytes_max
        self._rows = rows
        self.waiting: dict[Timestamp, list[pa.RecordBatch]] = {}
        self._seen: dict[Timestamp, list[int]] = {}  # rows and bytes
        self._untried = 0
        self._unlooked = 0
        self._form: pa.Schema | None = None  # of partials, once there were some

    def usable(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The batch as this aggregation works on its columns; None where rows must do it. Raises DataflowError when a column is missing."""
        keys = self._element.key.columns
        if not keys:
            return None
        require_columns(batch, keys)
        batch = with_inputs(batch, self._element.value, self._element.aggregator, keys)
        return plain(batch, keys, keys) if value_columns(self._element, batch) is not None else None

    def add(self, time: Timestamp, batch: pa.RecordBatch) -> list[Any]:
        if self._untried > 0 and self._form is not None:
            raw = self._as_partials(batch)
            if raw is not None:
                self._untried -= batch.num_rows
                return [raw]
        if self._untried <= 0 and batch.num_rows >= SAMPLE_ROWS_MIN and self._hardly_repeats(batch):
            self._untried = UNTRIED_ROWS
            self._form = self._form or _schema_of(combine_columns(self._element, batch.slice(0, 1)))
            raw = self._as_partials(batch) if self._form is not None else None
            if raw is not None:
                return [raw]
        made = (name for name in batch.schema.names if name.startswith(INPUT))
        wanted = (*self._element.key.columns, *(value_columns(self._element, batch) or ()), *made)
        slim = batch.select(list(dict.fromkeys(wanted))) if len(wanted) < batch.num_columns else batch
        before: list[Any] = []
        waiting = self.waiting.get(time)
        if waiting is None:
            waiting, seen = self.waiting[time], self._seen[time] = [], [0, 0]
        else:
            seen = self._seen[time]
            if not waiting[0].schema.equals(slim.schema):
                before = self.give(time)
                waiting, seen = self.waiting[time], self._seen[time] = [], [0, 0]
        waiting.append(slim)
        seen[0] += slim.num_rows
        seen[1] += slim.nbytes
        return [*before, *self.give(time)] if seen[0] >= ROWS_MAX or seen[1] >= self._bytes_max else before

    def give(self, time: Timestamp) -> list[Any]:
        """The partials of what waits of a time; through rows where columns could overflow."""
        batches, (seen, _) = self.waiting.pop(time), self._seen.pop(time)
        table = pa.Table.from_batches(batches)
        partial = combine_columns(self._element, table)
        if partial is None:
            if any(name.startswith(INPUT) for name in table.schema.names):
                return self._rows.merge(time, pairs_of(self._element, table), table.num_rows)
            return self._rows.add(time, to_rows(table))
        self._form = partial.schema
        if seen >= TRIAL_ROWS and partial.num_rows > USELESS_SHARE * seen:
            self._untried = UNTRIED_ROWS
        return [partial]

    def _hardly_repeats(self, batch: pa.RecordBatch) -> bool:
        """Whether nearly all keys of a large batch differ. Looks at most at one batch in SAMPLE_EVERY_ROWS rows."""
        self._unlooked -= batch.num_rows
        if self._unlooked > 0 or len(self._element.key.columns) > 1:
            return False
        self._unlooked = SAMPLE_EVERY_ROWS
        column = batch.column(self._element.key.columns[0])
        if has_dense_range(column, ROWS_MAX):
            return False  # combining costs next to nothing
        if pa.types.is_dictionary(column.type):
            column = column.indices
        return bool(pc.count_distinct(column, mode="all").as_py() > SAMPLE_SHARE * len(column))

    def _as_partials(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Each row as a partial of its own, in the form that the group-by gives; None when the batch does not fit it."""
        form, keys = self._form, self._element.key.columns
        assert form is not None
        columns = [key_normalised(batch.column(name)) for name in keys]
        if any(column.type != form.field(i).type for i, column in enumerate(columns)):
            return None
        values = value_columns(self._element, batch)
        assert values is not None
        at = len(keys)
        for aggregator, column in zip(self._element.parts(), self._element.value_by_part(values), strict=True):
            for partial in aggregator.partials:
                kinds = [form.field(at + i).type for i in range(len(partial.columns))]
                of_it = _column_of(column, partial)
                made = partial.of_each(None if of_it is None else batch.column(of_it), batch.num_rows, kinds)
                if made is None:
                    return None
                columns += made
                at += len(kinds)
        return pa.RecordBatch.from_arrays(columns, schema=form)


def _schema_of(partial: pa.RecordBatch | None) -> pa.Schema | None:
    return partial.schema if partial is not None else None


__all__ = ["Combiner"]
