"""The join by key of two streams, each record with all that match it so far: in rows, and in columns while both sides have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.joins.columns import ColumnJoin
from rayad.dataflow.operators.joins.pairs import NotColumnar
from rayad.dataflow.operators.keys.key_first import pairs_of
from rayad.dataflow.operators.state.by_key.lists import KeyedLists
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.progress import Timestamp


class Join(KeyedVertex):
    """Symmetric hash join of two keyed inputs: ``(key, (left, right))`` at the least upper bound of the two times.

    Both sides are columns as long as all batches are; the first rows turn what is kept into rows.
    """

    state_version = 4
    """2: columns in the order in which they came, with an index; 3: each replica numbered the times of rows outside of loops, too."""

    def __init__(self) -> None:
        self.sides = TwoForms(KeyedLists(2), ColumnJoin)

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        return (self.sides.columns.schema_of(inputs),)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows = self.sides.rows
        if isinstance(batch, pa.RecordBatch) and not rows.is_used:
            try:
                joined = self.sides.columns.accept(edge, batch, time)
            except NotColumnar:
                pass
            else:
                for at, out in joined:
                    self.send_by(0, out, at)
                return
        if not rows.is_used:
            self.sides.to_rows()
        self._join_rows(edge, pairs_of(batch), time)

    def _join_rows(self, edge: int, pairs: list[Any], time: Timestamp) -> None:
        rows = self.sides.rows
        other = rows.kept_of([key for key, _ in pairs] if rows.is_beyond_memory else ())[1 - edge]
        out: dict[Timestamp, list[Any]] = {}
        with rows.adding(edge, pairs, time) as mine:
            for key, value in pairs:
                kept = mine.get(key)
                if kept is None:
                    mine[key] = [(value, time)]
                else:
                    kept.append((value, time))
                for match, then in other.get(key, ()):
                    at = time if then == time else time.join(then)
                    met = out.get(at)
                    if met is None:
                        met = out[at] = []
                    met.append((key, (value, match) if edge == 0 else (match, value)))
        for at, met in out.items():
            self.send_by(0, met, at)


__all__ = ["Join"]
