"""What waits for its time beyond memory: batches in columns as sorted runs.

Runs of one time are sorted by place and never merged: each row is read once, when its time is complete. Then they are taken out a piece at
a time: a piece is a range of places in all of them, so each key is in one piece with all its rows, and whatever an operator does key by key
it may do piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.order import Places, edges_of, places_of
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs, StoredRun, key_groups_in
from rayad.dataflow.records.batches import keyed_columns, one_batch
from rayad.progress import Timestamp

RUN_PIECES = 2
"""Batches become runs of about so many pieces of a merge."""
Kept: TypeAlias = tuple[Any, ...]
"""What waits for one time: lists of batches, and what is in another form."""


class WaitingRuns(Runs):
    """Batches of one time and input. They may have several schemas; how many columns are their key is a mark of each."""

    def __init__(self) -> None:
        super().__init__(0, among=lambda: 0)

    def places(self, rows: pa.RecordBatch) -> Places:
        return places_of(rows.columns[: keyed_columns(rows.schema) or 0], self.key_groups)

    def arranged(self, run: Run) -> list[Run]:
        """Rows of one place stay in the order in which they came."""
        return [run.at(np.argsort(run.place, kind="stable"))]

    def put(self, batches: list[pa.RecordBatch]) -> Run:
        """Keep batches of one schema, as a run."""
        (run,) = self.arranged(self.read(one_batch(pa.Table.from_batches(batches))))
        self.add([run])
        return run

    def take(self, given: list[StoredRun]) -> None:
        if not self.count:
            self.key_groups = key_groups_in(given) or self.key_groups
        super().take(given)

    def _take_in_fresh(self) -> None:
        fresh, self._fresh = self._fresh, []
        self._sequences += [InOrder([run]) for run in fresh]


class LargeTimes:
    """The batches of all times that wait, within a bound on memory.

    Args:
        waiting: by time the batches that wait. They leave it when they become runs.
    """

    def __init__(self, waiting: Mapping[Timestamp, Kept]) -> None:
        self._waiting = waiting
        self._runs: dict[Timestamp, dict[int, WaitingRuns]] = {}
        self._sizes: dict[int, tuple[int, Any, int]] = {}  # by list: how many batches, the last of them, their bytes
        self._memory: MemoryBound | None = None

    # -- within a bound ----------------------------------------------------------------
    @property
    def memory(self) -> MemoryBound | None:
        """The bound on memory; None: there is none."""
        return self._memory

    @memory.setter
    def memory(self, memory: MemoryBound | None) -> None:
        self._memory = memory
        for runs in self._each():
            runs.memory = memory

    @property
    def memory_bytes(self) -> int:
        """Bytes of batches, and of runs that are in memory."""
        lists = [batches for kept in self._waiting.values() for _, batches in _lists(kept)]
        self._sizes = {id(batches): self._size(batches) for batches in lists}
        return sum(size for _, _, size in self._sizes.values()) + sum(runs.memory_bytes for runs in self._each())

    def _size(self, batches: list[Any]) -> tuple[int, Any, int]:
        """Lists grow by a batch at a time, and there may be thousands: only what has come is looked at."""
        known, last, size = self._sizes.get(id(batches), (0, None, 0))
        if known > len(batches) or (known and batches[known - 1] is not last):
            known, size = 0, 0
        size += sum(batch.nbytes for batch in batches[known:] if isinstance(batch, pa.RecordBatch))
        return len(batches), batches[-1] if batches else None, size

    def all(self) -> list[Run]:
        """Batches become runs, where there are enough of them for half of a piece; gives the runs."""
        least = 0 if self._memory is None else self._memory.piece_bytes // 2
        for time, kept in self._waiting.items() if self._memory is not None else ():
            for at, batches in _lists(kept):
                if sum(batch.nbytes for batch in batches if _has_marked_key(batch)) > least:
                    self._put(time, at, batches)
        return [run for runs in self._each() for run in runs.all()]

    def files(self) -> list[RunFile]:
        """Of the runs."""
        return [file for runs in self._each() for file in runs.files()]

    def _each(self) -> Iterator[WaitingRuns]:
        return (self._runs[time][at] for time in sorted(self._runs, key=Timestamp.sort_key) for at in sorted(self._runs[time]))

    def _made(self, time: Timestamp, at: int) -> WaitingRuns:
        runs = self._runs.setdefault(time, {}).get(at)
        if runs is None:
            runs = self._runs[time][at] = WaitingRuns()
            runs.memory = self._memory
        return runs

    def _put(self, time: Timestamp, at: int, batches: list[Any]) -> None:
        """Batches with marked keys become runs, some at a time, which go to disk at once: so few of them are there twice."""
        columns = [batch for batch in reversed(batches) if _has_marked_key(batch)]
        batches[:] = [batch for batch in batches if not _has_marked_key(batch)]
        runs, memory = self._made(time, at), self._memory
        most = 0 if memory is None else RUN_PIECES * memory.piece_bytes
        while columns:
            some = [columns.pop()]
            size = some[0].nbytes
            while columns and size < most and columns[-1].schema.equals(some[0].schema, check_metadata=True):
                some.append(columns.pop())
                size += some[-1].nbytes
            run = runs.put(some)
            if memory is not None:
                memory.put(run)

    # -- when a time is complete ---------------------------------------------------------
    def is_large(self, time: Timestamp) -> bool:
        """Whether any of a time is in runs."""
        return time in self._runs

    def pieces(self, time: Timestamp, kept: Kept) -> Iterator[Kept]:
        """All of a time, which is forgotten. ``kept``: what has not become runs, see :func:`are_columns`."""
        for at, batches in _lists(kept):
            if batches:
                self._put(time, at, batches)
        there = self._runs.pop(time)
        key_groups = max((some.key_groups for some in there.values()), default=1)
        for some in there.values():
            some.place_by(key_groups)  # one that has come from a sibling may be by another number
        runs = [(at, run) for at, some in there.items() for run in some.all()]
        nbytes = sum(run.nbytes for _, run in runs)
        pieces = 1 if self._memory is None else -(-nbytes // self._memory.piece_bytes)
        edges = edges_of([run.place for _, run in runs], pieces) if runs else np.zeros(0, np.uint64)
        cuts = [[0, *np.searchsorted(run.place, edges).tolist(), len(run)] for _, run in runs]
        for piece in range(len(edges) + 1):
            out: Kept = tuple(type(part)() for part in kept)
            for (at, run), cut in zip(runs, cuts, strict=True):
                low, high = cut[piece : piece + 2]
                if high > low:
                    out[at].append(run.rows.slice(low, high - low))
            yield out

    def rows_of(self, time: Timestamp) -> list[tuple[int, pa.RecordBatch]]:
        """What runs have of a time, with the number of the input."""
        return [(at, run.rows) for at, runs in self._runs.get(time, {}).items() for run in runs.each_live()]

    def back(self, time: Timestamp, kept: Kept) -> None:
        """All that runs have of a time is batches again."""
        for at, rows in self.rows_of(time):
            kept[at].append(rows)
        del self._runs[time]

    # -- snapshots, and to other replicas ------------------------------------------------
    @property
    def is_empty(self) -> bool:
        """Whether nothing is in runs."""
        return not self._runs

    def forget(self) -> None:
        """Nothing is in runs."""
        self._runs = {}

    def stored(self, time: Timestamp) -> dict[int, Any]:
        """Of one time, for a snapshot."""
        return {at: runs.checkpoint() for at, runs in self._runs.get(time, {}).items()}

    def restored(self, time: Timestamp, stored: Mapping[int, Any]) -> None:
        """Take back what :meth:`stored` gave; nothing is here."""
        for at, runs in stored.items():
            self._made(time, at).restore(runs)

    def index(self, key_groups: int) -> Iterator[None]:
        """As of state, here and below."""
        for runs in list(self._each()):
            yield from runs.index(key_groups)

    def give(self, time: Timestamp, groups: frozenset[int], key_groups: int) -> dict[int, Any]:
        """What these key-groups have of one time."""
        given = {at: runs.give(groups, key_groups) for at, runs in self._runs.get(time, {}).items()}
        return {at: runs for at, runs in given.items() if runs}

    def take(self, time: Timestamp, given: Mapping[int, Any]) -> None:
        """Keep what :meth:`give` gave."""
        for at, runs in given.items():
            self._made(time, at).take(runs)

    def gave(self) -> None:
        """The change of layout is over."""
        for runs in self._each():
            runs.gave()


def are_columns(kept: Kept) -> bool:
    """Whether all that waits is in columns with marked keys: then it may be taken in pieces."""
    return all(_has_marked_key(batch) for part in kept for batch in part)


def _lists(kept: Kept) -> Iterator[tuple[int, list[Any]]]:
    return ((at, part) for at, part in enumerate(kept) if isinstance(part, list))


def _has_marked_key(batch: Any) -> bool:
    return isinstance(batch, pa.RecordBatch) and bool(keyed_columns(batch.schema))


__all__ = ["LargeTimes", "are_columns"]
