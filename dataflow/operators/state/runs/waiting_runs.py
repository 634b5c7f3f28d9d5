"""What waits for its time beyond memory: sorted runs of batches in columns, and of rows, each pickled beside the hash of its key.

Runs of one time are sorted by place and never merged: each row is read once, when its time is complete. Then they are taken out a piece at
a time: a piece is a range of places in all of them, so each key is in one piece with all its rows, and whatever an operator does key by key
it may do piece by piece.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.order import Places, edges_of, places_of_hashes, positions_of
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs, StoredRun, key_groups_in
from rayad.dataflow.operators.state.runs.size_of_values import Size
from rayad.dataflow.operators.state.runs.values_below import pickled, unpicklable
from rayad.dataflow.records.batches import keyed_columns, one_batch
from rayad.dataflow.records.key_hashing import hash_keys, hash_keys_of
from rayad.progress import Timestamp

RUN_PIECES = 2
"""Batches become runs of about so many pieces of a merge."""
PICKLED_ROWS = 1 << 12
"""So many rows are pickled at a time."""
HASH, ROW = "hash", "row"
ROWS = pa.schema({HASH: pa.uint64(), ROW: pa.large_binary()}, {"rows": "pickled"})
"""What rows are in columns: the hash of the key, which comes first in a row, and the row."""


def rows_as_columns(rows: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """``(key, something)`` tuples in columns, some at a time."""
    for at in range(0, len(rows), PICKLED_ROWS):
        some = rows[at : at + PICKLED_ROWS]
        hashes = pa.array(hash_keys([row[0] for row in some]))
        try:
            data = pickled(some)
        except Exception as error:
            raise unpicklable([(row[0], row[1] if len(row) == 2 else row[1:]) for row in some], error) from error
        yield pa.RecordBatch.from_arrays([hashes, data], schema=ROWS)


def are_rows(batch: pa.RecordBatch) -> bool:
    """Whether :func:`rows_as_columns` has made these columns."""
    return bool(batch.schema.equals(ROWS, check_metadata=True))


def columns_as_rows(batch: pa.RecordBatch) -> list[Any]:
    """The inverse of :func:`rows_as_columns`."""
    return list(map(pickle.loads, batch.column(1).to_pylist()))


class WaitingRuns(Runs):
    """Batches of one time and input. They may have several schemas; how many columns are their key is a mark of each."""

    def __init__(self) -> None:
        super().__init__(0, among=lambda: 0)

    def places(self, rows: pa.RecordBatch) -> Places:
        keys = keyed_columns(rows.schema) or 0
        hashes = rows.column(0).to_numpy() if are_rows(rows) else hash_keys_of(rows, rows.columns[:keys])
        return places_of_hashes(hashes, self.key_groups)

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


class FormOfRuns(Protocol):
    """In what form things wait for one time, as far as runs ask (``waiting_forms``)."""

    def new(self) -> Any:
        """Nothing yet, for the operator to add to."""

    def size(self) -> Size:
        """Of what waits for one time."""

    def out(self, kept: Any) -> Iterator[pa.RecordBatch]:
        """Take all out, as columns with a marked key or as :func:`rows_as_columns`."""

    def back(self, kept: Any, rows: pa.RecordBatch) -> None:
        """Add what :meth:`out` gave, or some rows of it."""


class LargeTimes:
    """What waits, time by time, within a bound on memory.

    Args:
        forms: in which something waits.
        waiting: gives the times for which something waits, with what is in memory of each form. It leaves there when it becomes a run.
    """

    def __init__(self, forms: Sequence[FormOfRuns], waiting: Callable[[], Iterable[tuple[Timestamp, Sequence[Any]]]]) -> None:
        self._forms = forms
        self._waiting = waiting
        self._runs: dict[Timestamp, dict[int, WaitingRuns]] = {}
        self._sizes: dict[tuple[Timestamp, int], Size] = {}
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
        """Bytes of what is in memory, about, and of runs in memory."""
        return sum(size for *_, size in self._held()) + sum(runs.memory_bytes for runs in self._each())

    def _held(self) -> list[tuple[Timestamp, int, Any, int]]:
        """What is in memory: its time, the number of its form, and its size."""
        there = [(time, at, part) for time, parts in self._waiting() for at, part in enumerate(parts) if part]
        self._sizes = {(time, at): self._sizes.get((time, at)) or self._forms[at].size() for time, at, _ in there}
        return [(time, at, part, self._sizes[time, at].of(part)) for time, at, part in there]

    def all(self) -> list[Run]:
        """What is in memory becomes runs, where there is enough of it for half of a piece; gives the runs."""
        if self._memory is not None:
            for time, at, part, size in self._held():
                if size > self._memory.piece_bytes // 2:
                    self._put(time, at, part)
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

    def _put(self, time: Timestamp, at: int, part: Any) -> None:
        """What waits becomes runs, some at a time, which go to disk at once: so few of it is there twice."""
        runs, memory = self._made(time, at), self._memory
        most = 0 if memory is None else RUN_PIECES * memory.piece_bytes
        some, size = list[pa.RecordBatch](), 0
        for rows in self._forms[at].out(part):
            if some and (size >= most or not rows.schema.equals(some[0].schema, check_metadata=True)):
                _put_run(runs, some, memory)
                some, size = [], 0
            some.append(rows)
            size += rows.nbytes
        if some:
            _put_run(runs, some, memory)

    # -- when a time is complete ---------------------------------------------------------
    def is_large(self, time: Timestamp) -> bool:
        """Whether any of a time is in runs."""
        return time in self._runs

    def has(self, time: Timestamp) -> bool:
        """Whether runs have anything of a time."""
        return any(len(run) for runs in self._runs.get(time, {}).values() for run in runs.each_live())

    def pieces(self, time: Timestamp, kept: Sequence[Any]) -> Iterator[list[Any]]:
        """All of a time, which is forgotten. ``kept``: what has not become runs, of each form."""
        for at, part in enumerate(kept):
            if part:
                self._put(time, at, part)
        there = self._runs.pop(time)
        key_groups = max((some.key_groups for some in there.values()), default=1)
        for some in there.values():
            some.place_by(key_groups)  # one that has come from a sibling may be by another number
        runs = [(at, run) for at, some in there.items() for run in some.all()]
        nbytes = sum(run.nbytes for _, run in runs)
        pieces = 1 if self._memory is None else -(-nbytes // self._memory.piece_bytes)
        edges = edges_of([(run.place,) for _, run in runs], pieces) if runs else []
        cuts = np.zeros((len(edges) + 2, len(runs)), np.int64)
        for number, (_, run) in enumerate(runs):
            cuts[1:-1, number], cuts[-1, number] = positions_of((run.place,), edges), len(run)
        for low, high in pairwise(cuts):
            out = [form.new() for form in self._forms]
            for number in np.flatnonzero(high > low).tolist():
                at, run = runs[number]
                self._forms[at].back(out[at], run.rows.slice(low[number], high[number] - low[number]))
            yield out

    def looked_at(self, time: Timestamp) -> list[Any]:
        """What runs have of a time, of each form. It stays."""
        out = [form.new() for form in self._forms]
        for at, runs in self._runs.get(time, {}).items():
            for run in runs.each_live():
                self._forms[at].back(out[at], run.rows)
        return out

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


def _put_run(runs: WaitingRuns, batches: list[pa.RecordBatch], memory: MemoryBound | None) -> None:
    run = runs.put(batches)
    if memory is not None:
        memory.put(run)


__all__ = ["FormOfRuns", "LargeTimes", "are_rows", "columns_as_rows", "rows_as_columns"]
