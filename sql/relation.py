"""A relation between two operators of a query: a collection whose records have fields ``c0``, ``c1``, ... of known types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rayad.dataflow.records.content_codes import has_contents
from rayad.dataflow.streams.steps import stateless
from rayad.incremental.collection import Collection, KeyedCollection
from rayad.progress import DataflowError
from rayad.sql.steps import Computed, Key, Leaf, columns_of, leaves_of, names_of
from rayad.sql.values.expressions import Call, Expression
from rayad.sql.values.kernels import Kernel

Outputs = Sequence[tuple[Expression, pa.DataType]]


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows with multiplicities.

    Args:
        collection: of them.
        kinds: the types of the columns.
        names: of the columns, as expressions of the plan have them.
        told: of which query, for errors.
    """

    collection: Collection
    kinds: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    told: str

    @property
    def columns(self) -> tuple[tuple[Expression, pa.DataType], ...]:
        """All columns as they are."""
        return columns_of(self.kinds)

    def named(self, names: Sequence[str]) -> Relation:
        """The same with other names."""
        return replace(self, names=tuple(names))

    def projected(self, outputs: Outputs, names: Sequence[str] = (), condition: Expression | None = None) -> Relation:
        """Other columns, of the rows for which a condition is true."""
        return computed(self.collection, leaves_of(self.kinds), outputs, self.told, names, condition)

    def filtered(self, condition: Expression) -> Relation:
        """The rows for which a condition is true."""
        return self.projected(self.columns, self.names, condition)

    def keyed(self, key: Key, outputs: Outputs | None = None, prefix: str = "c") -> KeyedCollection:
        """Rows, or what is computed of them, by a key."""
        made = tuple(self.columns if outputs is None else outputs)
        step = Computed(self.told, leaves_of(self.kinds), made, names_of(len(made), prefix), key=key)
        return KeyedCollection(stateless(self.collection.stream, step.base, step, None), self.collection.loops)

    def concat(self, *others: Relation) -> Relation:
        """The rows of all, which have the same columns."""
        if not others:
            return self
        return replace(self, collection=self.collection.concat(*(other.collection for other in others)))

    def distinct(self) -> Relation:
        """Each row once."""
        return replace(self, collection=self.collection.distinct())

    def bucket(self, outputs: Outputs) -> Key:
        """Keys by which rows fall into few buckets, by what they have of these."""
        return Key(((Call(Kernel("rows", "bucket"), tuple(expression for expression, _ in outputs), pa.int64()), pa.int64()),))

    def none_or_one(self) -> Relation:
        """One row without columns, if there is any."""
        return self.projected(()).distinct()


def computed(
    collection: Collection,
    leaves: Sequence[Leaf],
    outputs: Outputs,
    told: str,
    names: Sequence[str] = (),
    condition: Expression | None = None,
    fields: Sequence[str] | None = None,
) -> Relation:
    """Columns out of records of any form. ``fields``: what they are called in the records; None: as between operators."""
    made = tuple(outputs)
    odd = next((kind for _, kind in made if not _is_supported(kind)), None)
    if odd is not None:
        raise DataflowError(f"{told}: a column of the type {odd} is not supported: leave it out, or cast it")
    step = Computed(told, tuple(leaves), made, tuple(fields or names_of(len(made))), condition)
    stream = stateless(collection.stream, step.base, step, None)
    return Relation(Collection(stream, collection.loops), tuple(kind for _, kind in made), tuple(names), told)


def _is_supported(kind: pa.DataType) -> bool:
    """Whether records of a collection have such columns."""
    if pa.types.is_struct(kind):
        return bool(kind.num_fields) and all(_is_supported(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_null(kind) or pa.types.is_integer(kind) or has_contents(kind))


__all__ = ["Outputs", "Relation", "computed"]
