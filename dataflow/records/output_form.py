"""The columns and types of an output, while its records come: given by the user, or those of the records so far.

Types that nobody gave follow the records: an int column that meets 1.5 becomes one of doubles, a decimal gets more digits, a nested field
that comes later is null before. That goes on until something has been written with the types (:meth:`OutputForm.settle`); from then on,
and where the user gave a schema, every record fits exactly or is refused. So what is written does not depend on how records were cut into
batches.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rayad.dataflow.records.batches import flat_rows, keyed_columns, require_distinct, to_record_batch
from rayad.dataflow.records.exact import Inexact, cast_batch, wider_schema, wider_type
from rayad.progress import DataflowError


class OutputForm:
    """Brings the batches of one output into one schema; ``where`` and ``advice`` are for errors. With ``settled`` types that came from
    elsewhere stay.

    >>> form = OutputForm(None, "write")
    >>> first, second = form.fit([{"a": 1}]), form.fit([{"a": 1.5}])
    >>> [form.again(batch).to_pylist() for batch in (first, second)]
    [[{'a': 1.0}], [{'a': 1.5}]]
    """

    def __init__(self, schema: pa.Schema | None, where: str, *, settled: bool = False, advice: str = "give schema=") -> None:
        self.schema = schema
        """The columns and types so far; None before the first record."""
        self._given = schema is not None and not settled
        self._settled = schema is not None
        self._where = where
        self._advice = advice
        self._marked: pa.Schema | None = None  # of keyed columns: pairs correspond to them by position
        self._of_pairs = False

    def settle(self) -> None:
        """Something is written with these types: they stay."""
        self._settled = True

    def fit(self, batch: Any) -> pa.RecordBatch:
        """A batch as columns, without metadata, of :attr:`schema` or of what that was before it became wider for this batch (then bring
        what is kept into it by :meth:`again`). Raises DataflowError naming column, value and types."""
        is_columns = isinstance(batch, pa.RecordBatch)
        try:
            own = self._columns(batch) if is_columns else self._rows(batch)
            if not own.num_rows:
                return own
            if self.schema is None:
                self.schema = own.schema
            if own.schema.equals(self.schema):
                return own
            return self._fitted(own, is_columns)
        except DataflowError as error:
            hint = "" if self._given or self.schema is None else f"; the types are those of earlier records: {self._advice}"
            raise DataflowError(f"{self._where}: {error}{hint}", **error.__dict__) from error

    def again(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch that was fitted earlier in the schema of now."""
        assert self.schema is not None
        try:
            return cast_batch(batch, self.schema)
        except Inexact as error:
            raise DataflowError(
                f"{self._where}: a later record needs {describe(self.schema)}, but {error}; {self._advice}, or convert them with map()"
            ) from error

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_distinct(batch.schema, "a batch")
        if keyed_columns(batch.schema) is not None:
            if self._marked is None:
                self._marked = batch.schema
            if self._of_pairs and self.schema is not None and len(self.schema) == batch.num_columns:
                batch = batch.rename_columns(self.schema.names)
        return batch.replace_schema_metadata(None)

    def _rows(self, batch: Any) -> pa.RecordBatch:
        rows = batch if isinstance(batch, list) else list(batch)
        schema, of_pairs = self.schema, bool(rows) and isinstance(rows[0], tuple)
        if of_pairs and self._marked is not None:
            rows = flat_rows(rows, self._marked)
        if schema is not None and (self._settled or not rows):
            return to_record_batch(rows, schema)
        own = to_record_batch(rows).replace_schema_metadata(None)
        if schema is None:
            self._of_pairs = of_pairs
            return own
        if of_pairs and own.num_columns == len(schema):
            own = own.rename_columns(schema.names)
        # What has no type in common with the records so far is refused by value:
        return own if wider_schema(schema, own.schema) is not None else to_record_batch(rows, schema)

    def _fitted(self, own: pa.RecordBatch, is_columns: bool) -> pa.RecordBatch:
        schema = self.schema
        assert schema is not None
        if is_columns and (set(own.schema.names) != set(schema.names) or not (self._given or _have_common(schema, own.schema))):
            drift = schema_drift("a batch", schema, own.schema, "convert it with map()")
            if drift is not None:
                raise drift
        if not self._settled:
            wide = wider_schema(schema, own.schema)
            if wide is not None:
                self.schema = schema = wide
        return cast_batch(own, schema)


def _have_common(left: pa.Schema, right: pa.Schema) -> bool:
    return all(wider_type(field.type, right.field(field.name).type) is not None for field in left)


OF_FILES = "all files of one source must have the same columns: read the others separately and map them"


def schema_drift(where: str, expected: pa.Schema, got: pa.Schema, advice: str = OF_FILES) -> DataflowError | None:
    """The error that says how ``got`` differs from ``expected``, in words; None where the columns and types agree in any order."""
    want = {field.name: field.type for field in expected}
    have = {field.name: field.type for field in got}
    if want == have:
        return None
    differences = [f"column {name!r} is missing" for name in want if name not in have]
    differences += [f"column {name!r} is extra" for name in have if name not in want]
    differences += [f"column {name!r} is {have[name]}, expected {want[name]}" for name in want if name in have and have[name] != want[name]]
    return DataflowError(f"schema drift in {where}: {'; '.join(differences)}. Expected {describe(expected)}, got {describe(got)}; {advice}")


def describe(schema: pa.Schema) -> str:
    """A schema on one line.

    >>> describe(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    '{a: int64, b: string}'
    """
    return "{" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "}"


__all__ = ["OutputForm", "describe", "schema_drift"]
