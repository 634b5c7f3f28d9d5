"""Totals in columns at epochs: they stay in columns, and only what is read becomes rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

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
        return self._entries(epoch, None)

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


__all__ = ["TotalsAtEpochs"]
