"""Dicts by key at epochs: changed keys keep what they had before (``versions.py``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys
from rayad.dataflow.operators.state.reads.at_epochs import Epochs, FromVersions
from rayad.dataflow.operators.state.versions import ABSENT, Given, Versions, copied

if TYPE_CHECKING:
    from rayad.dataflow.operators.state.tables import Entries


class Dict(Protocol):
    """A dict by key."""

    versions: Versions | None
    """Where it notes what changes."""

    @property
    def has_one_row(self) -> bool:
        """Whether a key has one row in the table."""

    @property
    def kept(self) -> Mapping[Any, Any]:
        """What is there."""

    def kept_of(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """What is there, to be asked for these keys."""

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        """The table where this is kept."""


class DictAtEpochs(FromVersions[Versions]):
    """A dict by key.

    Args:
        table: the dict; from now on it notes in its ``versions`` what changes.
    """

    def __init__(self, table: Dict, epochs: Epochs) -> None:
        self._table = table
        super().__init__(Versions(epochs.now, epochs.applied))
        table.versions = self._versions
        self.has_one_row = table.has_one_row

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        kept = self._table.kept_of(keys)
        found = ((key, self._versions.value(epoch, key, kept)) for key in keys)
        return self.rows_of({key: value for key, value in found if value is not ABSENT})

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return self.rows_of(self._versions.at(epoch, self._table.kept))

    def of_groups(self, epoch: int, groups: Collection[int], key_groups: int, part: str = "") -> Entries:
        kept = self._versions.at(epoch, self._table.kept)
        keys = list(kept)
        wanted = chosen(groups, key_groups)[groups_of_keys(keys, key_groups)].tolist() if keys else []
        return self.rows_of({key: kept[key] for key, is_wanted in zip(keys, wanted, strict=True) if is_wanted})

    def rows_of(self, kept: Mapping[Any, Any]) -> Entries:
        """What was kept as rows of the table."""
        return self._table.entries_of({key: copied(value) for key, value in kept.items()})[""]

    def give(self, groups: frozenset[int], key_groups: int) -> Given:
        return self._versions.give(groups, key_groups)

    def take(self, given: Given) -> None:
        self._versions.take(given)


__all__ = ["DictAtEpochs"]
