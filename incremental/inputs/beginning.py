"""Where collections begin: the records of a stream, those that replace each other, and live changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rayad.dataflow.operators.state.tables import CHECKED
from rayad.dataflow.streams import schemas, updates
from rayad.dataflow.streams.making import Make
from rayad.dataflow.streams.steps import stateless
from rayad.incremental import steps
from rayad.incremental.collection import Collection, KeyedCollection
from rayad.incremental.columns import steps as columns
from rayad.incremental.columns.form import is_changes
from rayad.incremental.inputs.envelopes import ENVELOPES, GONE, ORDER, ROW, BeginEnvelopes
from rayad.incremental.inputs.sources import Present, Upsert
from rayad.incremental.keeping_nothing import taken_together
from rayad.incremental.reads import table_of_records
from rayad.progress import DataflowError, arguments

if TYPE_CHECKING:
    from rayad.dataflow.streams.flow import Dataflow
    from rayad.dataflow.streams.stream import Stream


def as_collection(
    stream: Stream,
    key: Any = None,
    order: Any = None,
    deleted: Any = None,
    diff: str | None = None,
    envelope: Any = None,
    *,
    checked: bool = True,
    name: str | None = None,
) -> Collection:
    """See :meth:`rayad.Stream.as_collection`."""
    if diff is not None:
        diff = arguments.text(diff, "as_collection: diff")
        if key is not None:
            raise DataflowError("as_collection() was given key and diff: with a key records replace each other, and have no weights")
    if key is None and (order is not None or deleted is not None):
        raise DataflowError("as_collection() was given order or deleted without key: say by key=... which record replaces which")
    if key is None and envelope is not None:
        raise DataflowError("as_collection() was given envelope without key: say by key=... which row replaces which")
    if key is None and diff is None and updates.gives_several(stream.flow.graph, stream.node):
        changes = stateless(stream.changes(name=name), columns.BeginTotals.base, columns.BeginTotals(), None)
        return Collection(taken_together(changes), ())
    if key is None:
        known = schemas.known(stream)
        if known is not None and diff in known.names:
            known = known.remove(known.get_field_index(diff))
        checks = diff is not None and arguments.flag(checked, "as_collection: checked")
        changes = taken_together(stateless(stream, "map", columns.Begin(diff), None if checks else name))
        made = Collection(changes, ())
        made.schema = known
        return _checked(made, name) if checks else made
    if envelope is not None:
        return _of_envelopes(stream, key, order, deleted, arguments.choice(envelope, "as_collection: envelope", *ENVELOPES), name)
    asked = (("order", order), ("deleted", deleted))
    selected = [None if one is None else steps.selected(one, f"as_collection({what})") for what, one in asked]
    records = Collection(stateless(stream, "map", columns.Begin(None), None), ())
    records.schema = schemas.known(stream)
    keyed, make = records.key_by(key), Make(Upsert, *selected)
    make.shows = keyed.shows
    made = Collection(taken_together(keyed.vertex(make, "upserts", name)), ())
    made.schema = records.schema
    return made


def _checked(given: Collection, name: str | None) -> Collection:
    """The same, where a record that goes and is not there is an error."""
    keyed, make = given.by_record(), Make(Present)
    make.shows = keyed.shows
    made = Collection(keyed.vertex(make, "present", name), ())
    made.schema = given.schema
    return made


def _of_envelopes(stream: Stream, key: Any, order: Any, deleted: Any, envelope: str, name: str | None) -> Collection:
    if deleted is not None:
        raise DataflowError(f"as_collection(envelope={envelope!r}) was given deleted, too: the envelope says which rows are gone")
    compared = None if order is None else steps.selected(order, "as_collection(order)")
    begin = BeginEnvelopes(steps.selected(key, "as_collection(key)"), compared)
    make, shown = Make(Upsert, None if order is None else ORDER, GONE, ROW), _row_of(schemas.known(stream))
    make.shows = table_of_records(shown, key if isinstance(key, str) else None)
    newest = KeyedCollection(stateless(stream, "map", begin, None), ()).vertex(make, "upserts", name)
    made = Collection(columns.mapped(taken_together(newest), steps.Mapped(ROW), columns.first), ())
    made.schema = shown
    return made


def _row_of(schema: pa.Schema | None) -> pa.Schema | None:
    """The columns of the rows that envelopes of these columns are about."""
    if schema is not None and "op" not in schema.names and "payload" in schema.names and pa.types.is_struct(schema.field("payload").type):
        schema = pa.schema(list(schema.field("payload").type))
    kind = schema.field("after").type if schema is not None and "after" in schema.names else None
    return pa.schema(list(kind)) if kind is not None and pa.types.is_struct(kind) and kind.num_fields else None


def live(flow: Dataflow, name: str, schema: pa.Schema | None = None) -> Collection:
    """See :meth:`rayad.Dataflow.collection`."""
    given = Collection(taken_together(flow.input(name), f"{name}.together"), ())
    return _checked(given if schema is None else given.with_schema(schema), f"{name}{CHECKED}")


def changes_of_batch(batch: pa.RecordBatch, weight: int) -> Any:
    """The rows of a batch as changes, each inserted once (``weight`` 1) or removed once (-1): in columns, or a list of ``(record, weight)``
    where their types have no columns (lists). Raises DataflowError for NaN."""
    inserted = columns.Begin(None).apply(batch)
    if weight > 0:
        return inserted
    return columns.negated(inserted) if is_changes(inserted) else list(map(steps.negated, inserted))


__all__ = ["as_collection", "changes_of_batch", "live"]
