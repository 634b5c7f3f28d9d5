"""The key-group of each slot of totals in columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import SLICE_KEYS, SLICE_ROWS, Groups, groups_of_columns, groups_of_keys

SlotKeys: TypeAlias = tuple[pa.Array, ...] | list[Any]
"""Keys by slot: as columns, or as Python objects."""


class NotColumns(Exception):
    """Arrow does not have these keys in the types of the columns."""


class SlotGroups:
    """The groups of slots, whose number only grows.

    >>> groups = SlotGroups(256)
    >>> [list(groups.of(keys)) == list(groups_of_keys(list(keys), 256)) for keys in (["a"], ["a", "b"])]
    [True, True]
    """

    def __init__(self, key_groups: int) -> None:
        self._key_groups = key_groups
        self._parts: list[Groups] = [np.zeros(0, np.uint16)]
        self._known = 0

    def slices(self, keys: SlotKeys) -> Iterator[None]:
        """Find out those of these slots, some at a time."""
        columns = isinstance(keys, tuple)
        count = len(keys[0]) if columns else len(keys)
        while self._known < count:
            until = min(count, self._known + (SLICE_ROWS if columns else SLICE_KEYS))
            if isinstance(keys, tuple):
                part = groups_of_columns([column.slice(self._known, until - self._known) for column in keys], self._key_groups)
            else:
                part = groups_of_keys(keys[self._known : until], self._key_groups)
            self._parts.append(part)
            self._known = until
            yield

    def of(self, keys: SlotKeys) -> Groups:
        """Those of all these slots, shape (slots,)."""
        for _ in self.slices(keys):
            pass
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0]


def columns_of_slots(keys: SlotKeys, slots: Any, types: list[pa.DataType]) -> list[pa.Array]:
    """The keys of some slots as columns. Raises NotColumns where Arrow does not have them in these types."""
    if isinstance(keys, tuple):
        at = pa.array(slots)
        return [column.take(at) for column in keys]
    some = [keys[slot] for slot in slots.tolist()]
    lists = [some] if len(types) == 1 else [list(part) for part in zip(*some, strict=True)] or [[] for _ in types]
    try:
        return [pa.array(values, kind) for values, kind in zip(lists, types, strict=True)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise NotColumns(str(error)) from error
