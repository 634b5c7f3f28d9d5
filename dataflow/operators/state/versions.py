"""Former values of changed keys: what a dict by key had at each epoch that may still be read (docs/design/state.md, 10).

Nothing is kept before the first read. From then on the first change of a key in an epoch keeps what the key had before it. Replicas run
ahead of each other, so a reader asks all of them for one epoch that all have passed; what only earlier epochs would need is forgotten.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from decimal import Decimal
from typing import Any

from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys

LAST = 1 << 62
"""The epoch of what is left when all input has ended: after all others."""
ABSENT: Any = object()
"""The value of a key that is not there."""
_NEVER_CHANGE = frozenset(
    {bool, bytes, complex, dt.date, dt.datetime, dt.time, dt.timedelta, Decimal, float, frozenset, int, str, type(None)},
)

Given = tuple[dict[Any, list[tuple[int, bool, Any]]], int]
"""What moves with key-groups: by key its changes as (epoch, whether it was there before, its value then); the oldest epoch to be read."""


def copied(value: Any) -> Any:
    """A value that nobody else changes in place."""
    return value if type(value) in _NEVER_CHANGE else copy.deepcopy(value)


class Versions:
    """The former values of one dict by key.

    Args:
        epoch: gives the epoch in which changes are made now; those of one key never go back.
        applied: gives the last epoch in which any change may have been made so far; now it is the oldest that can be read.

    >>> kept = {"a": 1}
    >>> versions = Versions(lambda: 4, lambda: 3)
    >>> tracked = Tracked(kept, versions)
    >>> tracked["a"] = 2; tracked["b"] = 7
    >>> versions.at(3, kept), versions.at(4, kept)
    ({'a': 1}, {'a': 2, 'b': 7})
    >>> versions.value(3, "b", kept) is ABSENT
    True
    """

    def __init__(self, epoch: Callable[[], int], applied: Callable[[], int]) -> None:
        self.since = applied()
        self._epoch, self._applied = epoch, applied
        self._changes: dict[Any, list[tuple[int, Any]]] = {}  # by key, epochs ascending: what it had before its first change in each
        self._keys: dict[int, list[Any]] = {}  # those that have changed, by epoch

    def __len__(self) -> int:
        """How many former values are kept."""
        return sum(map(len, self._changes.values()))

    def changed(self) -> Iterable[Any]:
        """The keys of which former values are kept."""
        return self._changes.keys()

    # -- what changes --------------------------------------------------------------------
    def note(self, key: Any, kept: Mapping[Any, Any]) -> None:
        """The value of a key is about to be changed, or given to somebody who may change it in place."""
        epoch, changes = self._epoch(), self._changes.get(key)
        if changes is None:
            changes = self._changes[key] = []
        elif changes[-1][0] >= epoch:
            return
        changes.append((epoch, copied(kept[key]) if key in kept else ABSENT))
        self._keys.setdefault(epoch, []).append(key)

    def begin_at(self, epoch: int) -> None:
        """What was before the end of this epoch is not known: it is the oldest that can be read, unless a later one is."""
        self.since = max(self.since, epoch)

    def begin_now(self) -> None:
        """What came before is not known: only what the last epoch leaves behind, and later ones, can be read."""
        self.begin_at(max(self._epoch(), self._applied()))

    def forget(self, epoch: int) -> None:
        """Nobody will read an epoch before this one."""
        if epoch <= self.since:
            return
        self.since = epoch
        for past in [each for each in self._keys if each <= epoch]:
            for key in self._keys.pop(past):
                changes = [change for change in self._changes.get(key, ()) if change[0] > epoch]
                if changes:
                    self._changes[key] = changes
                else:
                    self._changes.pop(key, None)

    # -- to be read ----------------------------------------------------------------------
    def value(self, epoch: int, key: Any, kept: Mapping[Any, Any]) -> Any:
        """What a key had when an epoch, not before :attr:`since`, was over; ABSENT where it was not there. Not to be changed."""
        for changed, former in self._changes.get(key, ()):
            if changed > epoch:
                return former
        return kept.get(key, ABSENT)

    def at(self, epoch: int, kept: Mapping[Any, Any]) -> dict[Any, Any]:
        """All that was there when an epoch was over. The values are not to be changed."""
        out = dict(kept.items())
        for key in self._changes:
            value = self.value(epoch, key, kept)
            if value is ABSENT:
                out.pop(key, None)
            else:
                out[key] = value
        return out

    # -- to other replicas ---------------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Given:
        """Take out what these key-groups have, picklable."""
        keys = list(self._changes)
        leaves = chosen(groups, key_groups)[groups_of_keys(keys, key_groups)].tolist() if keys else []
        given = {key: self._changes.pop(key) for key, is_gone in zip(keys, leaves, strict=True) if is_gone}
        told = {key: [(at, former is not ABSENT, None if former is ABSENT else former) for at, former in given[key]] for key in given}
        return told, self.since

    def take(self, given: Given) -> None:
        """Keep what :meth:`give` gave at a sibling, of keys that are not here."""
        changes, since = given
        self.begin_at(since)
        for key, some in changes.items():
            self._changes[key] = [(at, former if was_there else ABSENT) for at, was_there, former in some]
            for at, *_ in some:
                self._keys.setdefault(at, []).append(key)


class Tracked(MutableMapping[Any, Any]):
    """A dict by key as an operator changes it while others read: what it looks at or puts is kept as it was before.

    Args:
        kept: the dict.
        versions: of it.
    """

    __slots__ = ("_kept", "_versions")

    def __init__(self, kept: MutableMapping[Any, Any], versions: Versions) -> None:
        self._kept, self._versions = kept, versions

    def __getitem__(self, key: Any) -> Any:
        if key in self._kept:
            self._versions.note(key, self._kept)  # it may be changed in place
        return self._kept[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._versions.note(key, self._kept)
        self._kept[key] = value

    def __delitem__(self, key: Any) -> None:
        self._versions.note(key, self._kept)
        del self._kept[key]

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __iter__(self) -> Iterator[Any]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


__all__ = ["ABSENT", "LAST", "Given", "Tracked", "Versions", "copied"]
