"""Totals in columns at epochs: they stay in columns, and only what is read becomes rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.slots import SlotVersions
from rayad.dataflow.operators.state.slot_groups import NotColumns
from rayad.dataflow.operators.state.tables import Entries, entries_of_dict

if TYPE_CHECKING:
    from rayad.dataflow.operators.totals.totals import TotalsInColumns


class TotalsAtEpochs(AtEpochs):
    """Totals by slot.

    Args:
        state: the totals; from now on they note in ``versions`` what changes.
    """

    def __init__(self, state: TotalsInColumns, epochs: Epochs) -> None:
        self._state = state
        self._versions = SlotVersions(epochs)
        state.keep_versions(self._versions)

    @property
    def since(self) -> int:
        return self._versions.since

    def begin_now(self) -> None:
        self._versions.begin_now()

    def forget(self, epoch: int) -> None:
        self._versions.forget(epoch)

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
