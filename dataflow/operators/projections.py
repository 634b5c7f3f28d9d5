"""``select``, ``with_columns``, ``with_arrival_time``, ``rename``, ``drop``, ``unnest``, ``explode``, and ``filter`` by an expression:
columns stay columns, dicts stay dicts.

A projection is a list of names, each with the column or the expression that it is made of. The list follows from the names of a record's
fields alone, so that columns and dicts are projected by the same one.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.stateless import Element, columns_given
from rayad.dataflow.records.batches import keyed_columns, require_distinct, take_rows, to_rows
from rayad.dataflow.records.calling import did_you_mean
from rayad.dataflow.records.exact import Inexact, cast_batch
from rayad.dataflow.records.expressions import Expressions, checked_expression
from rayad.dataflow.records.output_form import describe
from rayad.progress import DataflowError, arguments, show

ARRIVAL = pa.timestamp("us", "UTC")
Made = list[tuple[str, str | int]]
"""Names of columns, and of what each is made: the name of a column, or the number of an expression."""


class OfFields(Element):
    """A step over records whose fields have names."""

    can_repeat = True

    def __init__(self, expressions: list[pc.Expression]) -> None:
        self.expressions = Expressions(expressions, self.base)

    def warm_up(self) -> None:
        self.expressions.warm_up()

    def apply(self, batch: Any) -> Any:
        if not isinstance(batch, pa.RecordBatch):
            rows = to_rows(batch)
            odd = next((row for row in rows if not isinstance(row, dict)), None)
            if odd is not None:
                raise self._unnamed(show(odd, 80))
            return self.of_rows(rows) if rows else rows
        if keyed_columns(batch.schema) is not None:
            raise self._unnamed(f"results with the columns {batch.schema.names}, which in rows are tuples")
        require_distinct(batch.schema, "a batch")
        return self.of_columns(batch)

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        try:
            return columns_given(self, schema)
        except pa.ArrowException as error:
            raise DataflowError(str(error)) from error

    def _unnamed(self, got: str) -> DataflowError:
        return DataflowError(
            f"{self.base} was given {got}: it takes records whose fields have names, columns or dicts; of results of keyed operators "
            "make such by as_columns('key', 'n'), of other records by map"
        )

    @abstractmethod
    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that come out of a batch."""

    @abstractmethod
    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Apply the projection to a batch of at least one dict."""


class Where(OfFields):
    """The records for which an expression is true; it is false or null for the others."""

    base = "filter"
    passes_on = True

    def __init__(self, condition: Any) -> None:
        super().__init__([checked_expression(condition, self.base)])

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        (holds,) = self.expressions.of_columns(batch)
        if not pa.types.is_boolean(holds.type) and not pa.types.is_null(holds.type):
            raise self._no_condition(str(holds.type))
        positions = pc.indices_nonzero(holds.cast(pa.bool_())).cast(pa.int64())
        return batch if len(positions) == batch.num_rows else take_rows(batch, positions)

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (holds,) = self.expressions.of_rows(rows)
        odd = next((held for held in holds if held is not None and not isinstance(held, bool)), None)
        if odd is not None:
            raise self._no_condition(show(odd, 60))
        return [row for row, held in zip(rows, holds, strict=True) if held]

    def _no_condition(self, got: str) -> DataflowError:
        condition = self.expressions.expressions[0]
        return DataflowError(f"filter was given the expression {condition}, which gives {got}: it must be true or false")


class Widen(Element):
    """Widen the types of columns, without changing a value: how a union makes its streams alike. Rows stay as they are; with ``fills`` they
    get None for each column that they lack, as columns get null.

    Raises DataflowError where the wider type does not hold a value: a large integer among floats.
    """

    can_repeat = True

    def __init__(self, schema: pa.Schema, *, fills: bool = False) -> None:
        self.schema = schema
        self.fills = fills

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return self.schema

    def apply(self, batch: Any) -> Any:
        if not isinstance(batch, pa.RecordBatch):
            return [{**dict.fromkeys(self.schema.names), **row} for row in to_rows(batch)] if self.fills else batch
        try:
            return cast_batch(batch, self.schema)
        except Inexact as error:
            raise DataflowError(
                f"union: {error}; the streams together have the columns {describe(self.schema)}: cast them to one type before it"
            ) from error


class Projection(OfFields):
    """Records with other fields."""

    @abstractmethod
    def made_of(self, names: list[str]) -> Made:
        """What leaves, from the names of the fields of what comes, in order. Raises DataflowError where one is missing."""

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        made, values = self._made_of(batch.schema.names), self.expressions.of_columns(batch)
        fields = [pa.field(name, values[of].type) if isinstance(of, int) else batch.schema.field(of).with_name(name) for name, of in made]
        arrays = [values[of] if isinstance(of, int) else batch.column(of) for _, of in made]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self._of_values(rows, self.expressions.of_rows)

    def of_plain_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """The same where all expressions are fields with plain values; None: they are not (``Expressions.found_in_rows``)."""
        values = self.expressions.found_in_rows(rows)
        return None if values is None else self._of_values(rows, lambda _: values)

    def _of_values(self, rows: list[dict[str, Any]], of_rows: Callable[[list[dict[str, Any]]], list[list[Any]]]) -> list[dict[str, Any]]:
        found: dict[tuple[str, ...], Made] = {}
        for names in map(tuple, rows):
            if names not in found:
                found[names] = self._made_of(list(names))
        values = of_rows(rows)
        return [{name: values[of][at] if isinstance(of, int) else row[of] for name, of in found[tuple(row)]} for at, row in enumerate(rows)]

    def _made_of(self, names: list[str]) -> Made:
        made = self.made_of(names)
        if not made:
            raise DataflowError(f"{self.base} leaves none of the columns {names}: keep one, or use map for records without fields")
        return made


class Select(Projection):
    """These columns and expressions alone, in this order."""

    base = "select"

    def __init__(self, columns: tuple[Any, ...]) -> None:
        expressions: list[pc.Expression] = []
        self.made: Made = []
        for given in columns:
            if isinstance(given, str):
                self.made.append((given, given))
                continue
            if not isinstance(given, Mapping):
                named = ", and an expression with its name, {'twice': pyarrow.compute.field('n') * 2}"
                raise DataflowError(f"select was given {show(given, 60)}: it takes names of columns{named}")
            for name, expression in _named(given, "select").items():
                self.made.append((name, len(expressions)))
                expressions.append(expression)
        super().__init__(expressions)
        names = [name for name, _ in self.made]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None or not names:
            told = f"{twice!r} twice" if names else "no column"
            raise DataflowError(f"select was given {told}: name each column that is to stay, once")

    def made_of(self, names: list[str]) -> Made:
        require_names(self.base, names, [of for _, of in self.made if isinstance(of, str)])
        return self.made


class WithColumns(Projection):
    """All columns, and these: in place of the column of that name, or behind the others. Each sees the columns as they came."""

    base = "with_columns"

    def __init__(self, columns: Any) -> None:
        named = _named(columns, "with_columns")
        super().__init__(list(named.values()))
        self.numbers = {name: number for number, name in enumerate(named)}

    def made_of(self, names: list[str]) -> Made:
        return [*((name, self.numbers.get(name, name)) for name in names), *(pair for pair in self.numbers.items() if pair[0] not in names)]


def require_free(what: str, column: str, names: Collection[str]) -> None:
    """Raise DataflowError where a record has a field of the name that is to be added."""
    if column in names:
        raise DataflowError(f"{what}: there is a column {column!r} among {list(names)}: give another name, or drop it first")


class WithArrivalTime(OfFields):
    """All columns, and the moment at which the batch came here, by the clock of this machine."""

    base = "with_arrival_time"
    can_repeat = False
    not_repeatable = "the clock of its machine"

    def __init__(self, name: Any, now: Callable[[], dt.datetime]) -> None:
        super().__init__([])
        self.name: str = arguments.text(name, "with_arrival_time: column")
        self.now = now

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_free(self.base, self.name, batch.schema.names)
        moments = pa.array([self.now()] * batch.num_rows, ARRIVAL)
        return pa.RecordBatch.from_arrays([*batch.columns, moments], schema=batch.schema.append(pa.field(self.name, ARRIVAL)))

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        moment = self.now()
        for row in rows:
            require_free(self.base, self.name, row)
        return [{**row, self.name: moment} for row in rows]


class Rename(Projection):
    """All columns in their places, some under another name."""

    base = "rename"

    def __init__(self, names: Any) -> None:
        if not isinstance(names, Mapping) or not names or not all(isinstance(name, str) for pair in names.items() for name in pair):
            raise DataflowError(f"rename was given {show(names, 60)}: it takes a dict of names, {{'old': 'new'}}")
        super().__init__([])
        self.names = dict(names)

    def made_of(self, names: list[str]) -> Made:
        require_names(self.base, names, list(self.names))
        made: Made = [(self.names.get(name, name), name) for name in names]
        after = [name for name, _ in made]
        twice = next((name for at, name in enumerate(after) if name in after[:at]), None)
        if twice is not None:
            raise DataflowError(f"rename would give two columns {twice!r} of {names}: names must differ; drop one of them first")
        return made


class Drop(Projection):
    """All columns but these."""

    base = "drop"

    def __init__(self, names: tuple[Any, ...]) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise DataflowError(f"drop was given {show(list(names), 60)}: it takes names of columns, at least one")
        super().__init__([])
        self.names = names

    def made_of(self, names: list[str]) -> Made:
        require_names(self.base, names, list(self.names))
        return [(name, name) for name in names if name not in self.names]


class Unnest(OfFields):
    """The fields of structs in the place of the column that has them; a null has null in each."""

    base = "unnest"

    def __init__(self, names: tuple[Any, ...]) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise DataflowError(f"unnest was given {show(list(names), 60)}: it takes names of columns, at least one")
        super().__init__([])
        self.names = names

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_names(self.base, batch.schema.names, self.names)
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for one, column in zip(batch.schema, batch.columns, strict=True):
            if one.name not in self.names:
                fields.append(one)
                arrays.append(column)
                continue
            if not pa.types.is_struct(one.type):
                raise self._no_struct(one.name, str(one.type))
            fields += one.type.fields
            arrays += column.flatten()
        schema = pa.schema([one.with_nullable(True) for one in fields])
        self._require_different(schema.names)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._of_row(row) for row in rows]

    def _of_row(self, row: dict[str, Any]) -> dict[str, Any]:
        require_names(self.base, list(row), self.names)
        pairs: list[tuple[str, Any]] = []
        for name, value in row.items():
            if name not in self.names:
                pairs.append((name, value))
            elif isinstance(value, dict):
                pairs += value.items()
            else:
                more = ": in rows nobody knows the fields of a null; filter it out, or read the data as columns" if value is None else ""
                raise self._no_struct(name, show(value, 60) + more)
        self._require_different([name for name, _ in pairs])
        return dict(pairs)

    def _no_struct(self, name: str, got: str) -> DataflowError:
        return DataflowError(f"unnest: column {name!r} is {got}: it takes columns of structs, in rows dicts")

    def _require_different(self, names: list[str]) -> None:
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise DataflowError(
                f"unnest would give two columns {twice!r} of {show(names, 120)}: names must differ; rename or drop one before"
            )


class Explode(OfFields):
    """A record for each item of a list, in the place of the list; ``outer``: of no items, and of null, one record with null."""

    base = "explode"

    def __init__(self, column: Any, outer: Any) -> None:
        if not isinstance(column, str):
            raise DataflowError(f"explode was given {show(column, 60)}: it takes the name of a column of lists")
        super().__init__([])
        self.column = column
        self.outer = arguments.flag(outer, "explode: outer")

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_names(self.base, batch.schema.names, [self.column])
        at = batch.schema.get_field_index(self.column)
        lists = batch.column(at)
        if not isinstance(lists, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray, pa.ListViewArray, pa.LargeListViewArray)):
            raise self._no_list(str(lists.type))
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        items = lists.flatten()  # of those that are not null
        if self.outer:
            taken = np.insert(np.arange(len(items)), np.cumsum(counts)[counts == 0], -1)
            items = take_rows(pa.record_batch({"": items}), pa.array(taken, mask=taken < 0)).column(0)
            counts = np.maximum(counts, 1)
        rows = take_rows(batch, pa.array(np.repeat(np.arange(batch.num_rows), counts)))
        return rows.set_column(at, pa.field(self.column, items.type), items)

    def of_rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        out = []
        for row in rows:
            require_names(self.base, list(row), [self.column])
            items = row[self.column]
            if items is not None and not isinstance(items, (list, tuple, np.ndarray)):
                raise self._no_list(show(items, 60))
            given = [] if items is None else list(items)
            out += [{**row, self.column: item} for item in (given or [None] * self.outer)]
        return out

    def _no_list(self, got: str) -> DataflowError:
        return DataflowError(f"explode: column {self.column!r} is {got}: it takes a column of lists")


def require_names(what: str, names: list[str], wanted: Sequence[str]) -> None:
    """Raise DataflowError where a record lacks one of the fields."""
    missing = next((name for name in wanted if name not in names), None)
    if missing is not None:
        hint = did_you_mean(missing, [name for name in names if isinstance(name, str)])
        raise DataflowError(f"{what}: there is no column {missing!r} among {show(names, 120)}{hint}")


def _named(columns: Any, what: str) -> dict[str, pc.Expression]:
    """Expressions by the names of their results, checked."""
    if not isinstance(columns, Mapping) or not columns:
        raise DataflowError(f"{what} was given {show(columns, 60)}: it takes a dict, {{'twice': pyarrow.compute.field('n') * 2}}")
    odd = next((name for name in columns if not isinstance(name, str)), None)
    if odd is not None:
        raise DataflowError(f"{what} was given {show(odd, 60)} as the name of a column: it must be a string")
    return {name: checked_expression(expression, f"{what} ({name!r})") for name, expression in columns.items()}


__all__ = ["Drop", "Explode", "Rename", "Select", "Unnest", "Where", "WithColumns"]
