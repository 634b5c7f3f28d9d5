"""State by key-group, for replicas that come and go while a job runs: what of it belongs to groups that leave, found without looking at
all of it each time.

A change of layout moves a few groups at a time (docs/design/rescaling.md). While one is under way a :class:`KeyedState` keeps an index,
which knows the groups of what was there at its beginning; what has come since is hashed when the next groups leave. The group of a key is
that by which its records are routed (``records.key_hashing``): every operator behind an exchange keeps its state by the routing key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.records.batches import keyed_columns
from rayad.dataflow.records.key_hashing import groups_of_hashes, hash_columns, hash_keys, hash_keys_of, hash_values

SLICE_KEYS = 1 << 12
"""Keys that are hashed and put into their groups between two activations: one to three milliseconds, by how simple they are."""
SLICE_ROWS = 1 << 13
"""Rows in columns that are hashed and put into their groups between two activations."""

Groups = npt.NDArray[np.uint16]
Chosen = npt.NDArray[np.bool_]
_NOTHING: Any = object()


def groups_of_rows(batch: pa.RecordBatch, key_groups: int) -> Groups:
    """The key-group of each row of a batch whose leading columns are marked as the key (``batches.mark_keyed``), shape (rows,)."""
    return groups_of_hashes(hash_keys_of(batch, batch.columns[: keyed_columns(batch.schema) or 0]), key_groups)


def groups_of_columns(columns: list[Any], key_groups: int) -> Groups:
    """The key-group of each row of key columns, shape (rows,)."""
    return groups_of_hashes(hash_columns(columns), key_groups)


def groups_of_values(keys: pa.Array, key_groups: int) -> Groups:
    """The key-group of each key of a column in which structs are tuples and records (``records.values``), shape (keys,)."""
    return groups_of_hashes(hash_values(keys), key_groups)


def groups_of_keys(keys: list[Any], key_groups: int) -> Groups:
    """The key-group of each key, shape (keys,)."""
    return groups_of_hashes(hash_keys(keys), key_groups)


def chosen(groups: Collection[int], key_groups: int) -> Chosen:
    """Whether a group is one of these, shape (key_groups,).

    >>> chosen({2}, 4).tolist()
    [False, False, True, False]
    """
    out = np.zeros(key_groups, np.bool_)
    out[list(groups)] = True
    return out


def compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch with dictionaries of what they hold alone: a few rows of many should not bring the values of all along.

    >>> names = pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a", "b"]))
    >>> compacted(pa.record_batch({"name": names})).column("name").dictionary.to_pylist()
    ['b']
    """
    for at, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
            indices = column.indices.dictionary_encode()
            values = column.dictionary.take(indices.dictionary.drop_null())
            small = pa.DictionaryArray.from_arrays(indices.indices.cast(column.type.index_type), values, ordered=column.type.ordered)
            batch = batch.set_column(at, batch.schema.field(at), small)
    return batch


class GroupIndex:
    """The keys of a dict by key-group, while values change and keys come and go.

    A dict keeps its keys in the order in which they came, so those that have come since are the ones at its end. A key that was removed
    and comes again stands there, too: whoever removes one says so.

    >>> kept = {"a": 1, "b": 2}
    >>> index = GroupIndex(kept, 1)
    >>> kept["c"] = 3
    >>> index.taken_out([0]), kept
    ({'a': 1, 'b': 2, 'c': 3}, {})
    """

    def __init__(self, kept: dict[Any, Any], key_groups: int) -> None:
        self.kept = kept
        self._key_groups = key_groups
        self._by_group: list[list[Any]] = [[] for _ in range(key_groups)]
        self._order = list(kept)
        self._indexed = 0
        self._removed: set[Any] = set()

    def slices(self) -> Iterator[None]:
        """Put all keys into their groups, some at a time."""
        while self._indexed < len(self._order):
            some = self._order[self._indexed : self._indexed + SLICE_KEYS]
            by_group = self._by_group
            for key, group in zip(some, groups_of_keys(some, self._key_groups).tolist(), strict=True):
                by_group[group].append(key)
            self._indexed += len(some)
            yield

    def removed(self, keys: Iterable[Any]) -> None:
        """These keys were removed; they may come again."""
        self._removed.update(keys)

    def taken_out(self, groups: Iterable[int]) -> dict[Any, Any]:
        """What these groups have, no longer in the dict."""
        self._catch_up()
        out: dict[Any, Any] = {}
        for group in groups:
            keys, self._by_group[group] = self._by_group[group], []
            values = map(self.kept.pop, keys, repeat(_NOTHING))
            out.update({key: value for key, value in zip(keys, values, strict=True) if value is not _NOTHING})
        return out

    def _catch_up(self) -> None:
        kept, order, removed = self.kept, self._order, self._removed
        for _ in self.slices():
            pass
        at = len(order)
        while at and (order[at - 1] in removed or order[at - 1] not in kept):
            at -= 1
        del order[at:]
        last = order[-1] if order else _NOTHING
        fresh = []
        for key in reversed(kept):
            if key is last:
                break
            fresh.append(key)
        self._indexed = len(order)
        order.extend(reversed(fresh))
        removed.clear()
        for _ in self.slices():
            pass


class GroupIndices:
    """A :class:`GroupIndex` of each of several dicts, or a :class:`PairIndex` of sets, from when it is first asked for until the change of
    layout is over.

    >>> indices, kept = GroupIndices(), {"a": 1}
    >>> indices.taken_out(kept, [0], 1), kept
    ({'a': 1}, {})
    """

    def __init__(self) -> None:
        self._by_id: dict[int, GroupIndex | PairIndex] = {}  # an index refers to its dict, so that no other one can get its id

    def _of(self, kept: Any, key_groups: int) -> GroupIndex | PairIndex:
        index = self._by_id.get(id(kept))
        if index is None:
            index = PairIndex(kept, key_groups) if isinstance(kept, set) else GroupIndex(kept, key_groups)
            self._by_id[id(kept)] = index
        return index

    def slices(self, dicts: Iterable[Any], key_groups: int) -> Iterator[None]:
        """Put the keys of these dicts into their groups, some at a time."""
        for kept in dicts:
            yield from self._of(kept, key_groups).slices()

    def removed(self, kept: Any, keys: Iterable[Any]) -> None:
        """These keys were removed from a dict, or come from another replica: perhaps they were here before."""
        index = self._by_id.get(id(kept))
        if index is not None:
            index.removed(keys)

    def added(self, kept: set[Any], pairs: Iterable[Any]) -> None:
        """These have come to a set."""
        index = self._by_id.get(id(kept))
        if isinstance(index, PairIndex):
            index.added(pairs)

    def taken_out(self, kept: Any, groups: Iterable[int], key_groups: int) -> Any:
        """What these groups have in a dict or set, no longer in it."""
        return self._of(kept, key_groups).taken_out(sorted(groups)) if kept else {}

    def forget(self) -> None:
        """The change of layout is over."""
        self._by_id.clear()


class PairIndex:
    """The ``(key, something)`` pairs of a set that only grows, by key-group.

    >>> seen = {("a", 1)}
    >>> index = PairIndex(seen, 1)
    >>> index.taken_out([0]), seen
    ([('a', 1)], set())
    """

    def __init__(self, kept: set[Any], key_groups: int) -> None:
        self.kept = kept
        self._key_groups = key_groups
        self._by_group: list[list[Any]] = [[] for _ in range(key_groups)]
        self._waiting = list(kept)

    def slices(self) -> Iterator[None]:
        """Put all pairs into their groups, some at a time."""
        while self._waiting:
            some = self._waiting[-SLICE_KEYS:]
            del self._waiting[-SLICE_KEYS:]
            for pair, group in zip(some, groups_of_keys([pair[0] for pair in some], self._key_groups).tolist(), strict=True):
                self._by_group[group].append(pair)
            yield

    def added(self, pairs: Iterable[Any]) -> None:
        """These have come."""
        self._waiting.extend(pairs)

    def removed(self, pairs: Iterable[Any]) -> None:
        """Nothing: pairs leave with their groups alone, and those that come are told by :meth:`added`."""

    def taken_out(self, groups: Iterable[int]) -> list[Any]:
        """The pairs of these groups, no longer in the set."""
        for _ in self.slices():
            pass
        out: list[Any] = []
        for group in groups:
            out.extend(self._by_group[group])
            self._by_group[group] = []
        self.kept.difference_update(out)
        return out
