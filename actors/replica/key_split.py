"""Batches cut by key-group at their receiver, while groups change hands: the same groups as their senders route by."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.records.batches import keyed_columns, take_rows, to_rows
from rayad.dataflow.records.key_hashing import groups_of_hashes, hash_keys_of, key_group
from rayad.dataflow.records.remembered import Remembered
from rayad.dataflow.records.selectors import KeySelector


class KeySplit:
    """The key-groups of the records that come on one edge.

    Args:
        selector: where a record's key is.
        key_groups: how many groups there are.
    """

    def __init__(self, selector: KeySelector, key_groups: int) -> None:
        self.selector = selector
        self.key_groups = key_groups
        self._row_key = selector.row_key()
        self._cache = Remembered[int]()

    def split(self, batch: Any, places: npt.NDArray[np.int64], count: int) -> list[Any]:
        """One batch, or None, for each of ``count`` places; ``places[group]`` says where a group's records belong. Order is kept."""
        columns = self._columns(batch)
        if columns is None:
            rows = to_rows(batch)
            found = places[self._groups_of_rows(rows)]
            if len(rows) and bool((found == found[0]).all()):
                return [batch if place == found[0] else None for place in range(count)]
            return [[rows[i] for i in np.flatnonzero(found == place)] or None for place in range(count)]
        found = places[groups_of_hashes(hash_keys_of(batch, columns), self.key_groups)]
        out: list[Any] = []
        for place in range(count):
            mine = np.flatnonzero(found == place)
            out.append(batch if len(mine) == len(found) else take_rows(batch, pa.array(mine)) if len(mine) else None)
        return out

    def _columns(self, batch: Any) -> list[Any] | None:
        if not isinstance(batch, pa.RecordBatch):
            return None
        leading = keyed_columns(batch.schema) if self.selector.pairs else None
        if leading:
            return [batch.column(i) for i in range(leading)]
        return [batch.column(name) for name in self.selector.columns] or None

    def _groups_of_rows(self, rows: list[Any]) -> npt.NDArray[np.int64]:
        cache, key_groups = self._cache, self.key_groups
        keys = list(map(self._row_key, rows))
        groups = list(map(cache.get, keys))
        if None in groups:
            cache.make_room()
            for at, group in enumerate(groups):
                if group is None:
                    groups[at] = cache.keep(keys[at], key_group(keys[at], key_groups))
        return np.array(groups, dtype=np.int64)


__all__ = ["KeySplit"]
