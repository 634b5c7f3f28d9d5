"""Totals in columns at epochs: they stay in columns, and only what is read becomes rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.state.reads.at_epochs import Epochs, FromVersions
from rayad.dataflow.operators.state.reads.slots import SlotVersions
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.operators.state.tables import Entries, entries_of_dict
from rayad.dataflow.operators.totals.columns import ColumnTotals


class Read(Protocol):
    """Totals that are made when their schema is known."""

    aggregator: Aggregator

    @property
    def totals(self) -> ColumnTotals | None:
        """All of them; None: none have come yet."""

    def keep_versions(self, versions: SlotVersions | None) -> None:
        """From now on changes are noted there."""

    def for_schema(self, schema: pa.Schema) -> ColumnTotals | None:
        """The totals, if they are of this schema, or could be."""


class TotalsAtEpochs(FromVersions[SlotVersions]):
    """Totals by slot.

    Args:
        state: the totals; from now on they note in ``versions`` what changes.
    """

    def __init__(self, state: Read, epochs: Epochs) -> None:
        self._state = state
        super().__init__(SlotVersions(epochs))
        state.keep_versions(self._versions)

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        return self._entries(epoch, keys)

    def of_all(self, epoch: int, part: str = "") -> Entries:
        entries = self._in_columns(epoch)
        return self._entries(epoch, None) if entries is None else entries

    def _in_columns(self, epoch: int) -> Entries | None:
        """None: that takes rows."""
        aggregator, totals = self._state.aggregator, self._state.totals
        if totals is None or not all(map(_is_exact, totals.schema.types)):
            return None
        try:
            found = totals.columns_at(epoch)
        except NotColumns:
            return None
        keys, partials = found.columns[: totals.key_columns], found.columns[totals.key_columns :]
        values = aggregator.opened_partials(partials)
        if values is None:
            return None
        keys, values = [list(map(_as_of_python, some)) for some in (keys, values)]
        together = keys[0] if len(keys) == 1 else pa.StructArray.from_arrays(keys, names=list(map(str, range(len(keys)))))
        return Entries(together, dict(zip(aggregator.state_columns, values, strict=True)))

    def _entries(self, epoch: int, keys: Sequence[Any] | None) -> Entries:
        aggregator, totals = self._state.aggregator, self._state.totals
        found = [] if totals is None else totals.at(epoch, keys)
        return entries_of_dict({key: aggregator.accumulator(values) for key, values in found}, aggregator)[""]

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """By schema what changed slots had; without it where Arrow does not have the keys: they are about to become rows."""
        totals, given = self._state.totals, []
        with suppress(NotColumns):
            given = [] if totals is None else totals.give_former(groups, key_groups)
        return (None if totals is None else totals.schema), given, self.since

    def take(self, given: Any) -> None:
        schema, formers, since = given
        self._versions.begin_at(since)
        if not formers:
            return
        totals = self._state.for_schema(schema)
        if totals is None:
            self.begin_now()
        else:
            totals.take_former(formers)


def _is_exact(kind: pa.DataType) -> bool:
    """Whether the values of a column are those of Python, and Python's of a type that follows."""
    numbers = pat.is_signed_integer(kind) or pat.is_float32(kind) or pat.is_float64(kind)
    return bool(numbers or pat.is_boolean(kind) or pat.is_string(kind) or pat.is_date32(kind))


def _as_of_python(column: pa.Array) -> pa.Array:
    """A column in the type that its values have as Python's."""
    kind = column.type
    wide = pa.int64() if pat.is_signed_integer(kind) else pa.float64() if pat.is_float32(kind) else kind
    return column if kind == wide else column.cast(wide)


__all__ = ["TotalsAtEpochs"]
