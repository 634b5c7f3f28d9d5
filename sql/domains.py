"""What a subquery is computed for: the different values that the query around has for the columns that it uses.

Each operator of the subquery carries them as one more column, a record, which is never null as a whole: with it in their keys, groups and
joins are those of one row of the query around (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rayad.sql.relation import Relation
from rayad.sql.values.expressions import Call, Column, Expression, Literal
from rayad.sql.values.kernels import Kernel


def record_type(kinds: Sequence[pa.DataType]) -> pa.StructType:
    """Of a record with these values."""
    return pa.struct([pa.field(f"d{at}", kind) for at, kind in enumerate(kinds)])


@dataclass(frozen=True, slots=True)
class Domain:
    """Values of columns of the query around.

    Args:
        relation: of them, each once: its one column is the record.
        names: as the plan of the subquery has them.
        kinds: their types.
    """

    relation: Relation
    names: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]

    @property
    def kind(self) -> pa.StructType:
        """Of the record."""
        return record_type(self.kinds)

    def column(self, at: int) -> tuple[Expression, pa.DataType]:
        """The record, where it is the column of this number."""
        return Column(at), self.kind

    def outer(self, at: int) -> Mapping[str, Expression]:
        """The columns of the query around, out of the record that is the column of this number."""
        fields = [Literal(pa.scalar(f"d{number}")) for number in range(len(self.names))]
        field = Kernel("function", "get_field")
        return {name: Call(field, (Column(at), one), kind) for name, one, kind in zip(self.names, fields, self.kinds, strict=True)}

    @staticmethod
    def of(found: Relation, arguments: Sequence[Expression], names: tuple[str, ...], kinds: tuple[pa.DataType, ...]) -> Domain:
        """The different values that rows have for some expressions."""
        return Domain(found.projected([record(arguments, kinds)]).distinct(), names, kinds)


def record(arguments: Sequence[Expression], kinds: Sequence[pa.DataType]) -> tuple[Expression, pa.DataType]:
    """Values as one record."""
    kind = record_type(kinds)
    return Call(Kernel("rows", "record"), tuple(arguments), kind), kind


__all__ = ["Domain", "record"]
