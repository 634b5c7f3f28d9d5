"""A state as it was at the end of each epoch that may still be read.

One object beside a state, made at the first read. The state tells it what is about to change; it keeps what there was before, in the form
of the state: values by key, arrays by slot, or the epoch in which a row came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys, groups_of_values
from rayad.dataflow.operators.state.tables import Entries


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of a vertex.

    Args:
        now: gives the epoch in which changes are made now; those of one key never go back.
        applied: gives the last epoch in which any change may have been made so far.
    """

    now: Callable[[], int]
    applied: Callable[[], int]


class AtEpochs(ABC):
    """A state, at any epoch from :attr:`since` on that is complete.

    Laws: what :meth:`of_keys` and :meth:`of_groups` give of an epoch is what the state held when all changes of it were made, whatever has
    been changed, forgotten before it, and moved since. ``tests/dataflow/test_laws_of_versions.py``.
    """

    has_one_row: bool = True
    """Whether a key has one row at most."""

    rows_tell_times: bool = False
    """Whether each row tells its epoch, so that what is read is right in whatever order the vertex takes its records."""

    @property
    @abstractmethod
    def since(self) -> int:
        """The oldest epoch that can be read."""

    @abstractmethod
    def begin_now(self) -> None:
        """What came before is not known: only what the epoch of now leaves behind, and later ones, can be read."""

    @abstractmethod
    def forget(self, epoch: int) -> None:
        """Nobody will read an epoch before this one."""

    # -- to be read ----------------------------------------------------------------------
    @abstractmethod
    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        """The rows of these keys when an epoch was over. They are the reader's own."""

    @abstractmethod
    def of_all(self, epoch: int, part: str = "") -> Entries:
        """All rows when an epoch was over. They are the reader's own."""

    def of_groups(self, epoch: int, groups: Collection[int], key_groups: int, part: str = "") -> Entries:
        """The rows of these key-groups when an epoch was over. They are the reader's own."""
        entries = self.of_all(epoch, part)
        keys = entries.keys
        if not len(keys):
            return entries
        of_keys = groups_of_values(keys, key_groups) if isinstance(keys, pa.Array) else groups_of_keys(list(keys), key_groups)
        wanted = chosen(groups, key_groups)[of_keys]
        return entries.where(wanted.nonzero()[0].tolist())

    # -- to other replicas ---------------------------------------------------------------
    @abstractmethod
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """Take out what is kept of these key-groups, picklable; before the state gives them."""

    @abstractmethod
    def take(self, given: Any) -> None:
        """Keep what :meth:`give` gave at a sibling; after the state has taken what was there."""


class Noted(Protocol):
    """What was before the changes of each epoch, by key or by slot."""

    since: int

    def begin_now(self) -> None:
        """See :meth:`AtEpochs.begin_now`."""

    def forget(self, epoch: int) -> None:
        """See :meth:`AtEpochs.forget`."""


N = TypeVar("N", bound=Noted)


class FromVersions(AtEpochs, Generic[N]):
    """A state whose former values are in one place.

    Args:
        versions: that place; the state notes there what it changes.
    """

    def __init__(self, versions: N) -> None:
        self._versions = versions

    @property
    def since(self) -> int:
        return self._versions.since

    def begin_now(self) -> None:
        self._versions.begin_now()

    def forget(self, epoch: int) -> None:
        self._versions.forget(epoch)


__all__ = ["AtEpochs", "Epochs", "FromVersions"]
