"""What waits for its time to be complete. The first of a time asks for its notification, whether it comes in a batch or from another
replica, so an operator asks for none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.contents import originals
from rayad.dataflow.operators.state.group_index import GroupIndices, Groups, chosen, compacted, groups_of_keys, groups_of_rows
from rayad.dataflow.operators.state.keyed_state import WholeState
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.dataflow.operators.state.tables import TIME, Entries
from rayad.dataflow.records.batches import batch_rows, take_rows, to_rows
from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError, Timestamp


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


class Form(Protocol):
    """In what form things wait for one time."""

    def new(self) -> Any:
        """Nothing yet, for the operator to add to."""

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

    def pairs(self, kept: Any) -> list[tuple[int, Any, Any]]:
        """To be looked at: the number of the form, key and value of each."""


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

    def pairs(self, kept: list[Any]) -> list[tuple[int, Any, Any]]:
        rows = [row for batch in kept for row in to_rows(batch)]
        return [(0, row[0], row[1] if len(row) == 2 else tuple(row[1:])) for row in rows]


class PairsOnce:
    """A dict whose keys are ``(key, something)`` pairs, each there once, without values."""

    def new(self) -> dict[Any, None]:
        return {}

    def stored(self, kept: dict[Any, None]) -> Any:
        return kept

    def taken_back(self, stored: Any) -> dict[Any, None]:
        return stored  # type: ignore[no-any-return]

    def rows(self, kept: dict[Any, None]) -> int:
        return len(kept)

    def dicts(self, kept: dict[Any, None]) -> Iterable[dict[Any, Any]]:
        return ()

    def give(self, kept: dict[Any, None], known: KnownGroups, groups: frozenset[int]) -> list[Any]:
        out = known.out_of_pairs(list(kept), groups)
        for pair in out:
            del kept[pair]
        return out

    def take(self, kept: dict[Any, None], given: list[Any]) -> None:
        kept.update(dict.fromkeys(given))

    def pairs(self, kept: dict[Any, None]) -> list[tuple[int, Any, Any]]:
        return [(0, key, value) for key, value in originals(kept)]


class ByKey:
    """A dict by key.

    Args:
        merge_into: adds ``(key, value)`` pairs to such a dict.
    """

    def __init__(self, merge_into: Callable[[dict[Any, Any], list[Any]], None]) -> None:
        self._merge_into = merge_into

    def new(self) -> dict[Any, Any]:
        return {}

    def stored(self, kept: dict[Any, Any]) -> Any:
        return kept

    def taken_back(self, stored: Any) -> dict[Any, Any]:
        return stored  # type: ignore[no-any-return]

    def rows(self, kept: dict[Any, Any]) -> int:
        return len(kept)

    def dicts(self, kept: dict[Any, Any]) -> Iterable[dict[Any, Any]]:
        return (kept,)

    def give(self, kept: dict[Any, Any], known: KnownGroups, groups: frozenset[int]) -> dict[Any, Any]:
        return known.out_of_dict(kept, groups)

    def take(self, kept: dict[Any, Any], given: dict[Any, Any]) -> None:
        self._merge_into(kept, list(given.items()))

    def pairs(self, kept: dict[Any, Any]) -> list[tuple[int, Any, Any]]:
        return [(0, key, value) for key, value in kept.items()]


class _Together:
    """Several forms side by side, as a tuple."""

    def __init__(self, forms: tuple[Form, ...]) -> None:
        self._forms = forms

    def new(self) -> tuple[Any, ...]:
        return tuple(form.new() for form in self._forms)

    def stored(self, kept: tuple[Any, ...]) -> Any:
        return tuple(form.stored(part) for form, part in zip(self._forms, kept, strict=True))

    def taken_back(self, stored: Any) -> tuple[Any, ...]:
        return tuple(form.taken_back(part) for form, part in zip(self._forms, stored, strict=True))

    def rows(self, kept: tuple[Any, ...]) -> int:
        return sum(form.rows(part) for form, part in zip(self._forms, kept, strict=True))

    def dicts(self, kept: tuple[Any, ...]) -> Iterable[dict[Any, Any]]:
        return [each for form, part in zip(self._forms, kept, strict=True) for each in form.dicts(part)]

    def give(self, kept: tuple[Any, ...], known: KnownGroups, groups: frozenset[int]) -> Any:
        given = tuple(form.give(part, known, groups) for form, part in zip(self._forms, kept, strict=True))
        return given if any(given) else None

    def take(self, kept: tuple[Any, ...], given: Any) -> None:
        for form, part, some in zip(self._forms, kept, given, strict=True):
            form.take(part, some)

    def pairs(self, kept: tuple[Any, ...]) -> list[tuple[int, Any, Any]]:
        each = enumerate(zip(self._forms, kept, strict=True))
        return [(at, key, value) for at, (form, part) in each for _, key, value in form.pairs(part)]


class Waiting(dict[Timestamp, Any], WholeState):
    """What waits, by time: ``waiting[time]`` is there to be added to, and ``on_notify(time)`` pops it.

    A time stays here until it is popped, though all of it may have been given to another replica: so there is one notification for each.

    Args:
        vertex: that is notified.
        forms: what ``waiting[time]`` is; of several a tuple.
    """

    is_in_flight = True

    def __init__(self, vertex: Vertex, *forms: Form) -> None:
        super().__init__()
        self._vertex = vertex
        self._form = forms[0] if len(forms) == 1 else _Together(forms)
        self._known: KnownGroups | None = None

    def __missing__(self, time: Timestamp) -> Any:
        kept = self[time] = self._form.new()
        self._vertex.notify_at(time)
        return kept

    def rows(self) -> int:
        """How many rows wait as Python objects."""
        return sum(map(self._form.rows, self.values()))

    def checkpoint(self) -> Any:
        return {time: self._form.stored(kept) for time, kept in self.items()}

    def restore(self, stored: Any) -> None:
        self.clear()
        self.update({time: self._form.taken_back(kept) for time, kept in stored.items()})  # the runtime knows what was asked for

    def _groups(self, key_groups: int) -> KnownGroups:
        if self._known is None:
            self._known = KnownGroups(key_groups)
        return self._known

    def index(self, key_groups: int) -> Iterator[None]:
        return self._groups(key_groups).index([each for kept in self.values() for each in self._form.dicts(kept)])

    def give(self, groups: frozenset[int], key_groups: int) -> dict[Timestamp, Any] | None:
        known = self._groups(key_groups)
        given = {time: self._form.give(kept, known, groups) for time, kept in self.items()}
        return {time: some for time, some in given.items() if some} or None

    def take(self, given: dict[Timestamp, Any]) -> None:
        for time in sorted(given, key=Timestamp.sort_key):
            self._form.take(self[time], given[time])

    def gave(self) -> None:
        self._known = None

    def pairs(self, time: Timestamp) -> list[tuple[int, Any, Any]]:
        """What waits for a time: the number of the form, key and value of each."""
        return self._form.pairs(self[time])

    def entries(self) -> dict[str, Entries]:
        """What waits: its time, and by which of the forms it has come."""
        rows = [(time, *pair) for time in self for pair in self.pairs(time)]
        keys = [key for _, _, key, _ in rows]
        return {"": Entries(keys, {TIME: [row[0] for row in rows], "input": [row[1] for row in rows], "value": [row[3] for row in rows]})}

    def put_entries(self, name: str, entries: Entries) -> None:
        """Refused: nobody has asked for its notification, and nothing counts it."""
        raise DataflowError("what waits for its time is part of no table that can be written: write the state that it becomes")


__all__ = ["Batches", "ByKey", "PairsOnce", "Waiting"]
