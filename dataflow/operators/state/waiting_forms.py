"""In what forms things wait for their time: batches as they came, pairs once, dicts by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.group_index import GroupIndices, Groups, chosen, compacted, groups_of_keys, groups_of_rows
from rayad.dataflow.operators.state.runs.size_of_values import Size, SizeOfBatches, SizeOfMerged, SizeOfRows
from rayad.dataflow.operators.state.runs.waiting_runs import FormOfRuns, are_rows, columns_as_rows, rows_as_columns
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.dataflow.records.batches import batch_rows, take_rows, to_rows


class KnownGroups:
    """The key-groups of what waits, while a change of layout is under way: what has come since is hashed when the next groups leave."""

    def __init__(self, key_groups: int) -> None:
        self.key_groups = key_groups
        self._dicts = GroupIndices()
        self._lists: dict[int, tuple[list[Any], Groups]] = {}
        self._batches: dict[int, tuple[pa.RecordBatch, Groups]] = {}

    def index(self, dicts: Iterable[dict[Any, Any]]) -> Iterator[None]:
        """Find out the groups of the keys of these dicts, some at a time."""
        return self._dicts.slices(dicts, self.key_groups)

    def out_of_dict(self, kept: dict[Any, Any], groups: frozenset[int]) -> dict[Any, Any]:
        """Take what these groups have out of a dict by key."""
        out: dict[Any, Any] = self._dicts.taken_out(kept, groups, self.key_groups)
        return out

    def out_of_pairs(self, pairs: list[Any], groups: frozenset[int]) -> list[Any]:
        """Take the pairs of these groups out of a list of ``(key, something)`` to which pairs are only added."""
        known = self._lists.get(id(pairs))
        before = known[1] if known is not None and known[0] is pairs else np.zeros(0, np.uint16)
        fresh = groups_of_keys([pair[0] for pair in islice(pairs, len(before), None)], self.key_groups)
        numbers = np.concatenate([before, fresh]) if len(before) else fresh
        leaves = chosen(groups, self.key_groups)[numbers]
        out = list(compress(pairs, leaves.tolist()))
        if out:
            stays = ~leaves
            pairs[:] = compress(pairs, stays.tolist())
            numbers = numbers[stays]
        self._lists[id(pairs)] = (pairs, numbers)
        return out

    def _out_of_lists(self, parts: list[list[Any]], groups: frozenset[int]) -> list[Any]:
        """Keep of a list of lists what is in ``groups``: one list, or none if nothing is left."""
        if not parts:
            return []
        together = parts[0] if id(parts[0]) in self._lists else list(parts[0])  # what came is not ours to change
        for part in parts[1:]:
            together.extend(part)
        out = self.out_of_pairs(together, groups)
        parts[:] = [together] if together else []
        return out

    def _out_of_columns(self, batches: list[pa.RecordBatch], groups: frozenset[int]) -> list[pa.RecordBatch]:
        """Take the rows of these groups out of a list of batches with a marked key; what is left empty goes."""
        out, kept = [], []
        for batch in batches:
            known = self._batches.pop(id(batch), None)
            numbers = known[1] if known is not None and known[0] is batch else groups_of_rows(batch, self.key_groups)
            leaves = chosen(groups, self.key_groups)[numbers]
            if leaves.any():
                out.append(compacted(take_rows(batch, pa.array(np.flatnonzero(leaves)))))
                batch, numbers = take_rows(batch, pa.array(np.flatnonzero(~leaves))), numbers[~leaves]
            if batch.num_rows:
                self._batches[id(batch)] = (batch, numbers)
                kept.append(batch)
        batches[:] = kept
        return out

    def out_of_batches(self, batches: list[Any], groups: frozenset[int]) -> list[Any]:
        """Take what these groups have out of a list of batches, rows or columns; gives batches of either kind."""
        rows, columns = ([part for part in batches if isinstance(part, pa.RecordBatch) is kind] for kind in (False, True))
        pairs = self._out_of_lists(rows, groups)
        out = [*([pairs] if pairs else []), *self._out_of_columns(columns, groups)]
        batches[:] = rows + columns
        return out


class Form(FormOfRuns, Protocol):
    """In what form things wait for one time."""

    def stored(self, kept: Any) -> Any:
        """For a snapshot."""

    def taken_back(self, stored: Any) -> Any:
        """The inverse of :meth:`stored`."""

    def rows(self, kept: Any) -> int:
        """How many Python objects are pickled."""

    def dicts(self, kept: Any) -> Iterable[dict[Any, Any]]:
        """What is worth indexing in advance."""

    def give(self, kept: Any, known: KnownGroups, groups: frozenset[int]) -> Any:
        """Take out what these groups have; something false where that is nothing."""

    def take(self, kept: Any, given: Any) -> None:
        """Add what :meth:`give` gave."""

    def pairs(self, kept: Any) -> list[tuple[Any, Any]]:
        """To be looked at: keys and values."""


class Batches:
    """A list of batches as they came: lists of ``(key, something)``, or columns marked with their key."""

    def new(self) -> list[Any]:
        return []

    def stored(self, kept: list[Any]) -> Any:
        return stored_mixed(kept)

    def taken_back(self, stored: Any) -> list[Any]:
        return taken_back_mixed(stored)

    def rows(self, kept: list[Any]) -> int:
        return sum(batch_rows(batch) for batch in kept if not isinstance(batch, pa.RecordBatch))

    def dicts(self, kept: list[Any]) -> Iterable[dict[Any, Any]]:
        return ()

    def give(self, kept: list[Any], known: KnownGroups, groups: frozenset[int]) -> list[Any]:
        return known.out_of_batches(kept, groups)

    def take(self, kept: list[Any], given: list[Any]) -> None:
        kept.extend(given)

    def size(self) -> Size:
        return SizeOfBatches()

    def out(self, kept: list[Any]) -> Iterator[pa.RecordBatch]:
        kept.reverse()
        while kept:
            batch = kept.pop()
            yield from (batch,) if isinstance(batch, pa.RecordBatch) else rows_as_columns(batch)

    def back(self, kept: list[Any], rows: pa.RecordBatch) -> None:
        kept.append(columns_as_rows(rows) if are_rows(rows) else rows)

    def pairs(self, kept: list[Any]) -> list[tuple[Any, Any]]:
        rows = [row for batch in kept for row in to_rows(batch)]
        return [(row[0], row[1] if len(row) == 2 else tuple(row[1:])) for row in rows]


class _InDict:
    """A dict, as a snapshot has it."""

    def new(self) -> dict[Any, Any]:
        return {}

    def stored(self, kept: dict[Any, Any]) -> Any:
        return kept

    def taken_back(self, stored: Any) -> dict[Any, Any]:
        return stored  # type: ignore[no-any-return]

    def rows(self, kept: dict[Any, Any]) -> int:
        return len(kept)


class PairsOnce(_InDict):
    """A dict whose keys are ``(key, something)`` pairs, each there once, without values."""

    def dicts(self, kept: dict[Any, None]) -> Iterable[dict[Any, Any]]:
        return ()

    def give(self, kept: dict[Any, None], known: KnownGroups, groups: frozenset[int]) -> list[Any]:
        out = known.out_of_pairs(list(kept), groups)
        for pair in out:
            del kept[pair]
        return out

    def take(self, kept: dict[Any, None], given: list[Any]) -> None:
        kept.update(dict.fromkeys(given))

    def size(self) -> Size:
        return SizeOfRows()

    def out(self, kept: dict[Any, None]) -> Iterator[pa.RecordBatch]:
        pairs = originals(kept)
        kept.clear()
        return rows_as_columns(pairs)

    def back(self, kept: dict[Any, None], rows: pa.RecordBatch) -> None:
        self.take(kept, comparable(columns_as_rows(rows)))

    def pairs(self, kept: dict[Any, None]) -> list[tuple[Any, Any]]:
        return originals(kept)


class ByKey(_InDict):
    """A dict by key.

    Args:
        merge_into: adds ``(key, value)`` pairs to such a dict.
    """

    def __init__(self, merge_into: Callable[[dict[Any, Any], list[Any]], None]) -> None:
        self._merge_into = merge_into

    def dicts(self, kept: dict[Any, Any]) -> Iterable[dict[Any, Any]]:
        return (kept,)

    def give(self, kept: dict[Any, Any], known: KnownGroups, groups: frozenset[int]) -> dict[Any, Any]:
        return known.out_of_dict(kept, groups)

    def take(self, kept: dict[Any, Any], given: dict[Any, Any]) -> None:
        self._merge_into(kept, list(given.items()))

    def size(self) -> Size:
        return SizeOfMerged()

    def out(self, kept: dict[Any, Any]) -> Iterator[pa.RecordBatch]:
        pairs = list(kept.items())
        kept.clear()
        return rows_as_columns(pairs)

    def back(self, kept: dict[Any, Any], rows: pa.RecordBatch) -> None:
        self._merge_into(kept, columns_as_rows(rows))

    def pairs(self, kept: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return list(kept.items())


__all__ = ["Batches", "ByKey", "Form", "KnownGroups", "PairsOnce"]
