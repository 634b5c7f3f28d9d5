"""``schema=`` of operators with a function of the user's: what the function gives leaves as columns of that schema, or is refused.

So the columns behind the operator are known when the program is written, and the steps behind it work on columns. What fits is what columns
hold exactly (``records.exact``), and whether a record fits never depends on the others in its batch. Decision 069.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.stateless import Element, Failures, PerRecord
from rayad.dataflow.records.batches import require_distinct, to_record_batch
from rayad.dataflow.records.exact import Inexact, cast_batch, wider_type
from rayad.dataflow.records.output_form import describe
from rayad.dataflow.records.users_line import users_line
from rayad.progress import DataflowError, show


class SchemaMismatch(DataflowError):
    """What a function gave does not fit the schema that was given for it: an error of that record, which may be set aside."""


def in_schema(element: Element, schema: pa.Schema | None) -> Element:
    """The step, with a schema if one was given. Raises DataflowError, with the user's line, for what is no schema."""
    if schema is None:
        return element
    what = f"{element.base}(schema=...) at {users_line()}"
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise DataflowError(f"{what} was given {show(schema, 60)}: give a pyarrow.Schema with the columns that the function gives")
    require_distinct(schema, f"the schema of {what}")
    said = schema.remove_metadata()
    return EachInSchema(element, said) if isinstance(element, PerRecord) else InSchema(element, said)


@dataclass(slots=True)
class InSchema(Element):
    """What a step gives, as columns of ``schema``."""

    element: Element
    schema: pa.Schema

    @property
    def base(self) -> str:  # type: ignore[override]  # that of the step
        return self.element.base

    @property
    def schema_said(self) -> pa.Schema:
        return self.schema

    def for_replica(self) -> Element:
        return type(self)(self.element.for_replica(), self.schema)

    def warm_up(self) -> None:
        self.element.warm_up()

    def close(self) -> None:
        self.element.close()

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return self.schema

    def rows_because(self, schema: pa.Schema) -> str | None:
        return self.element.rows_because(schema)

    def apply(self, batch: Any) -> Any:
        out = self.element.apply(batch)
        if isinstance(out, pa.Table):  # more than one batch can hold
            return pa.Table.from_batches([self._cast(part) for part in out.to_batches()], self.schema)
        if isinstance(out, pa.RecordBatch):
            return self._cast(out)
        parts, unfit = self._fitted(out)
        if unfit:
            raise unfit[0][1]
        return self._together(parts)

    def culprit(self, batch: Any) -> Any:
        return None

    # -- rows ------------------------------------------------------------------------
    def _fitted(self, records: list[Any], first: int = 0) -> tuple[list[pa.RecordBatch], Failures]:
        """Records as batches, usually one, and errors with the positions, from ``first`` on, of those that do not fit. Of records that do
        not fit together each half is tried."""
        if not records:
            return [], []
        try:
            return [to_record_batch(records, self.schema)], []
        except DataflowError as error:
            if len(records) == 1:
                return [], [(first, self._mismatch(show(records[0], 120), error.__cause__ or error))]
        middle = len(records) // 2
        before, unfit = self._fitted(records[:middle], first)
        behind, more = self._fitted(records[middle:], first + middle)
        return before + behind, unfit + more

    def _together(self, parts: list[pa.RecordBatch]) -> Any:
        """One batch; an empty list of no records, as Arrow has no empty columns of some types."""
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts) if parts else []

    def _mismatch(self, given: str, why: object) -> SchemaMismatch:
        return SchemaMismatch(f"{self.base} gave {given}: {why}; its schema= says {describe(self.schema)}: give that, or correct schema=")

    # -- columns ---------------------------------------------------------------------
    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Columns by name; one that is missing is null, as a field of a row is."""
        if batch.schema.equals(self.schema):
            return batch.replace_schema_metadata(None)
        told = f"a batch of {describe(batch.schema)}"
        require_distinct(batch.schema, f"what {self.base} gave")
        extra = [name for name in batch.schema.names if name not in self.schema.names]
        if extra:
            raise self._mismatch(told, f"fields {extra} are not in it")
        for field in batch.schema:
            wanted = self.schema.field(field.name).type
            if wider_type(field.type, wanted) is None:  # a cast would read numbers from text
                raise self._mismatch(told, f"column {field.name!r} is {field.type} and not {wanted}")
        try:
            return cast_batch(batch, self.schema)
        except Inexact as error:
            raise self._mismatch(told, error) from error


@dataclass(slots=True)
class EachInSchema(InSchema, PerRecord):
    """Fit to a schema what a step gives that calls a function for each record."""

    element: PerRecord

    def call(self) -> Callable[[Any], Any]:
        return self.element.call()

    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        return self.element.gather(rows, results)

    def attempt(self, rows: list[Any]) -> tuple[list[Any], Failures]:
        return self.element.attempt(rows)

    def outcome(self, rows: list[Any]) -> tuple[Any, Failures]:
        results, failed = self.attempt(rows)
        lost = {at for at, _ in failed}
        places = [at for at in range(len(rows)) if at not in lost] if lost else range(len(rows))
        given = [rows[at] for at in places] if lost else rows
        parts, unfit = self._fitted(self.gather(given, results))
        if not unfit:
            return self._together(parts), failed
        each = [self.gather([row], [result]) for row, result in zip(given, results, strict=True)]  # what came of each record
        owners = list(chain.from_iterable([at] * len(records) for at, records in enumerate(each)))
        errors: dict[int, Exception] = {}
        for at, error in unfit:
            errors.setdefault(owners[at], error)
        parts, _ = self._fitted(list(chain.from_iterable(records for at, records in enumerate(each) if at not in errors)))
        return self._together(parts), sorted([*failed, *((places[at], error) for at, error in errors.items())], key=lambda one: one[0])

    def culprit(self, batch: Any) -> Any:
        return Element.culprit(self, batch)


__all__ = ["EachInSchema", "InSchema", "SchemaMismatch", "in_schema"]
