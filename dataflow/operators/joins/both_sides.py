"""The records of both sides of a join in columns: of each side a schema, and sorted runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from rayad.dataflow.operators.joins.pairs import NotColumnar, common_schema
from rayad.dataflow.operators.state.by_schema import PartsBySchema
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.records.batches import keyed_columns
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS

Side = TypeVar("Side", bound=Runs)


class BothSides(PartsBySchema[Side]):
    """Two :class:`Runs`, left and right. They are searched with each other's places, so these are by the same number of key-groups."""

    has_moments = True
    """Whether moments are behind the keys."""

    def __init__(self) -> None:
        super().__init__(2)

    def keys(self, side: int) -> int:
        """Columns of keys."""
        return keyed_columns(self.schemas[side]) or 0

    def side(self, side: int) -> Side:
        """A side whose schema is known."""
        runs = self.parts[side]
        assert runs is not None
        return runs

    def check(self, side: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Raises NotColumnar, with nothing changed, unless these go together with each other and with what is kept."""
        self.learn(side, common_schema(side, batches, self.schemas, moments=self.has_moments))

    def goes_with(self, at: int, schema: pa.Schema) -> bool:
        try:
            self.check(at, [pa.RecordBatch.from_pylist([], schema=schema)])
        except NotColumnar:
            return False
        return True

    def learn(self, at: int, schema: pa.Schema) -> None:
        if self.parts[at] is None:
            super().learn(at, schema)
            for other in self.there:
                self.side(at).place_by(other.key_groups)

    # -- snapshots -----------------------------------------------------------------
    def restore(self, stored: Any) -> None:
        super().restore(stored)
        others = [runs.key_groups for runs in self.there if runs.key_groups != DEFAULT_KEY_GROUPS]
        for runs in self.there if others else ():  # a side of which nothing is in a file does not know
            runs.place_by(others[0])

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        for runs in self.there:
            runs.place_by(key_groups)
        return super().index(key_groups)

    def fits(self, given: Any) -> bool:
        self.gave()
        return super().fits(given)


__all__ = ["BothSides"]
