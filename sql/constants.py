"""Relations that are in the query itself: VALUES, a SELECT without FROM, and the row of nulls beside what is aggregated as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rayad.sql.relation import Relation
from rayad.sql.steps import NOTHING, names_of

if TYPE_CHECKING:
    from rayad.dataflow.streams.flow import Dataflow


def constant(
    flow: Dataflow, columns: Sequence[pa.Array], kinds: Sequence[pa.DataType], told: str, rows: int = 1, names: Sequence[str] = ()
) -> Relation:
    """Rows that are there from the first epoch on."""
    table = pa.table(list(columns), names=list(names_of(len(columns)))) if columns else pa.table({NOTHING: [False] * rows})
    return Relation(flow.from_arrow(table).as_collection(), tuple(kinds), tuple(names), told)


__all__ = ["constant"]
