"""``flow.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rayad.incremental.collection import Collection
from rayad.progress import DataflowError, arguments, show
from rayad.sql.planning.planner import Planner, plain_type
from rayad.sql.planning.whole import planned
from rayad.sql.relation import Relation, computed
from rayad.sql.steps import Leaf
from rayad.sql.translating import Table, Translator

if TYPE_CHECKING:
    from rayad.dataflow.streams.flow import Dataflow


def sql(flow: Dataflow, query: str, tables: dict[str, Any]) -> Collection:
    """See :meth:`rayad.Dataflow.sql`."""
    query = arguments.text(query, "flow.sql: query")
    schemas = {name: _schema_of(flow, name, collection) for name, collection in tables.items()}
    planner = planned(query, schemas)
    translator = Translator(planner, {name: _table(tables[name], schema, planner) for name, schema in schemas.items()}, flow)
    try:
        found = translator.relation(planner.plan)
    except DataflowError:
        raise
    except Exception as error:  # DataFusion's Python classes raise Exception for what they have no form for
        raise planner.refusal(f"a part of its plan cannot be read ({error}): {show(planner.plan.display_indent(), 400)}") from error
    names = distinct_names(planner.names)
    if list(names) == [str(at) for at in range(len(names))]:
        raise planner.refusal(f"columns that are called {show(names, 60)} would be a tuple: give them names with AS")
    made = computed(found.collection, _plain(found), found.columns, found.told, names, fields=names).collection
    made.schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, found.kinds, strict=True)])
    return made


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names of columns, each once: the second ``a`` is ``a_1``.

    >>> distinct_names(["a", "b", "a", "a_1", "a"])
    ['a', 'b', 'a_2', 'a_1', 'a_3']
    """
    found: list[str] = []
    for at, name in enumerate(names):
        number = 0
        while name in found or (number and name in names[at:]):
            number += 1
            name = f"{names[at]}_{number}"
        found.append(name)
    return found


def _plain(found: Relation) -> list[Leaf]:
    return [Leaf((f"c{at}",), kind) for at, kind in enumerate(found.kinds)]


def _schema_of(flow: Dataflow, name: str, collection: Any) -> pa.Schema:
    if not isinstance(collection, Collection):
        raise DataflowError(
            f"flow.sql({name}=...) was given {show(collection, 60)}: give a collection, such as stream.as_collection() or "
            f"flow.collection({name!r}, schema=...)"
        )
    if collection.stream.flow is not flow:
        raise DataflowError(f"flow.sql({name}=...) was given a collection of another dataflow, {collection.stream.flow.name!r}")
    if collection.schema is None:
        raise DataflowError(
            f"flow.sql({name}=...): the columns of {collection!r} are not known: say which with .with_schema(pa.schema([...])), or, of a "
            "live collection, flow.collection(name, schema=...)"
        )
    return collection.schema


def _table(collection: Collection, schema: pa.Schema, planner: Planner) -> Table:
    told = str(planner.refusal("")).removesuffix(": ")

    def columns(wanted: Sequence[str]) -> Relation:
        leaves = [Leaf((name,), plain_type(schema.field(name).type)) for name in wanted]
        empty = Relation(collection, tuple(leaf.kind for leaf in leaves), (), told)
        return computed(collection, leaves, empty.columns, told)

    return columns


__all__ = ["sql"]
