"""Rows by key in sorted runs that are written once and merged geometrically.

What comes becomes a run. Runs that have come since the last search become one when somebody searches, and four runs of like size become
one; so there are few to search, and a row is copied a logarithmic number of times. Large ones are merged a piece at a time, as rows come
(``merging``). Nothing else changes the rows of a run: what leaves is a slice of it, what has changed since a snapshot are the runs that
have come.

Prior art: the spine of differential dataflow and DBSP, and the sorted runs of RocksDB (docs/design/state.md).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import compacted
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.runs import files
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import Content, RowsByValue, RowsInFile, RunFile
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.order import (
    Order,
    Places,
    Positions,
    found_in,
    order_of,
    places_of,
    ranges,
    slices_of_groups,
    ticks,
)
from rayad.dataflow.operators.state.runs.run import Run, one_behind_the_other
from rayad.dataflow.operators.state.stored_columns import Stored, narrow, stored, taken_back
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS

FAN_IN = 4
SMALL_RUN = 1 << 12
"""Runs of at most so many rows are of like size."""
PIECE_ROWS, PIECES_OF_MERGE = 1 << 17, 64
"""What is merged at a time: so many rows, or so small a part of all."""
FRESH_ROWS_MAX = 1 << 18
"""So many rows that have come are merged though nobody searches."""
REMOVED_PART = 4
"""Where more than this part of the rows take others away, all are merged."""
PIECES_MAX = 4
"""A run of which more pieces would be left, when key-groups leave it, is copied instead."""

MARKS = "marks"
"""Under this name :meth:`Runs.marks` are among the numbers beside the rows of a stored run."""

StoredRun: TypeAlias = tuple[Stored | RowsInFile | RowsByValue, dict[str, Any], int | None]
"""A run in a snapshot or on its way: rows, the numbers beside them, and ``passed``."""


class Runs(NotedState):
    """Rows in sorted runs.

    Args:
        keys: how many leading columns are the key.
        moment: the column of moments, which rows of one key are sorted by.
        among: of how many rows, in all, these are part.
    """

    derived: ClassVar[frozenset[str]] = frozenset()
    """Numbers beside rows that :meth:`read` finds out anew: they are not stored."""

    changing: frozenset[str] = frozenset()
    """Numbers beside rows that an operator changes: a snapshot has those of a run in a file among :meth:`marks`."""

    gives_files: bool = True
    """Whether what is in a file is the same for all replicas: then slices of files are given to them."""

    def __init__(self, keys: int, moment: int | None = None, *, among: Callable[[], int] | None = None) -> None:
        self.keys = keys
        self.moment = moment
        self.key_groups = DEFAULT_KEY_GROUPS
        """By which places are: until groups move the default, whatever the job has."""
        self._sequences: list[InOrder] = []
        """Each is rows in one order: a run, or the pieces of one, behind each other; or on their way into it."""
        self.memory: MemoryBound | None = None
        """Where runs go that do not fit in memory; None: all stay there."""
        self._fresh: list[Run] = []
        """They have come since the last search."""
        self._noted: Additions = Additions()
        self._among = among or (lambda: self.count)
        self._removed = 0
        """Rows that take others away, of what has come since this was last looked at."""

    # -- what an operator says of its runs ---------------------------------------------
    def arranged(self, run: Run) -> list[Run]:
        """Rows in any order as runs in order."""
        return [self.in_order(run)]

    def in_order(self, run: Run) -> Run:
        """All rows of a run, in order."""
        order = order_of(run.place) if run.tick is None else order_of(run.place, run.tick)
        return run if order is None else run.at(order)

    def live(self, run: Run) -> Run:
        """A run without the rows that nobody needs any more; of what is merged or stored."""
        stay = self.stay(run)
        return run if stay is None else run.some(stay)

    def stay(self, run: Run, rows: slice = slice(None)) -> Any | None:
        """Which of these rows of a run are needed, as a mask; None: all."""
        return None

    def fitted(self, runs: list[Run]) -> list[Run]:
        """Runs that come, as those that are here. What a file does not have is in none."""
        return runs

    def removals(self, run: Run) -> int:
        """How many rows of a run are there to take others away, and go with them when both are merged."""
        return 0

    # -- rows --------------------------------------------------------------------------
    @property
    def count(self) -> int:
        """Rows kept."""
        return sum(map(len, self._in_sequences())) + sum(map(len, self._fresh))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the runs that are in memory."""
        return sum(run.nbytes for run in (*self._in_sequences(), *self._fresh) if not run.on_disk)

    @property
    def noted_bytes(self) -> int:
        return self._noted.nbytes

    def runs(self) -> Iterable[Runs]:
        return (self,)

    def _in_sequences(self) -> list[Run]:
        return [run for sequence in self._sequences for run in sequence.runs]

    def read(self, rows: pa.RecordBatch, **beside: Any) -> Run:
        """Rows in any order, with their places and moments."""
        return Run(rows, self.places(rows), None if self.moment is None else ticks(rows.column(self.moment)), beside)

    def places(self, rows: pa.RecordBatch) -> Places:
        """By which rows are sorted, each key-group in one stretch: by default the places of their keys."""
        return places_of(rows.columns[: self.keys], self.key_groups)

    def add(self, runs: Iterable[Run]) -> None:
        """Keep runs that :meth:`arranged` gave."""
        for run in runs:
            if len(run):
                self._fresh.append(run)
                self.note(run)
        if sum(map(len, self._fresh)) > FRESH_ROWS_MAX:
            self.all()

    def note(self, run: Run) -> None:
        """A run has come: it is part of the next increment."""
        if self._noted.is_known:
            self._noted.note(run, len(run), self._among(), 0 if self.memory is None else run.nbytes)

    def all(self) -> list[Run]:
        """The runs, few of each order of magnitude, to be searched."""
        self._take_in_fresh()
        return self._in_sequences()

    def near(self, places: Places) -> list[Run]:
        """Those of :meth:`all` that may have any of these places, which ascend."""
        self._take_in_fresh()
        return [run for sequence in self._sequences for run in sequence.near(places)] if len(places) else []

    def _take_in_fresh(self) -> None:
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        rows = sum(map(len, fresh))
        self._refuel(self._sequences, rows)
        come = [InOrder(fresh)] if len(fresh) == 1 else self._merged(fresh)
        self._refuel(come, rows)  # what has come and gone since the last search goes now
        self._sequences = [sequence for sequence in self._sequences if sequence.rows]
        self._push(sequence for sequence in come if sequence.rows)
        self._removed += sum(self.removals(run) for run in fresh)
        is_merging = any(sequence.rest for sequence in self._sequences)  # it would begin anew before it is over, again and again
        if self._removed > max(SMALL_RUN, self.count // REMOVED_PART) and not is_merging:
            self._merge_removed(rows)

    def _refuel(self, sequences: list[InOrder], rows: int) -> None:
        """So many rows have come."""
        for sequence in sequences:
            for _ in sequence.refuelled(rows):
                self._merge_a_piece(sequence)

    def _merge_removed(self, rows: int) -> None:
        """Where many rows are there to take others away, all begin to become one run: else they are searched until as many have come as
        were there once."""
        self._removed = 0
        runs = self._in_sequences()
        if REMOVED_PART * sum(map(self.removals, runs)) > self.count:
            merged = self._merged(runs)
            self._refuel(merged, REMOVED_PART * rows)
            self._sequences = [sequence for sequence in merged if sequence.rows]

    def _push(self, more: Iterable[InOrder]) -> None:
        sequences = self._sequences
        for sequence in more:
            sequences.append(sequence)
            while len(sequences) >= FAN_IN and _tier(sequences[-FAN_IN]) <= _tier(sequences[-1]):
                merged = self._merged([run for each in sequences[-FAN_IN:] for run in each.runs])
                sequences[-FAN_IN:] = merged
                if len(merged) > 1:
                    break

    def _merged(self, runs: list[Run]) -> list[InOrder]:
        """Several runs as one sequence, or on their way into it; as several where what has passed differs."""
        pieces = min(PIECES_OF_MERGE, sum(map(len, runs)) // PIECE_ROWS)
        nbytes = 0 if self.memory is None else sum(run.nbytes for run in runs)
        on_disk = self.memory is not None and nbytes > self.memory.piece_bytes
        if self.memory is not None and on_disk:
            pieces = max(pieces, -(-nbytes // self.memory.piece_bytes))
        if pieces <= 1:
            return [InOrder(merged) for merged in self._merged_at_once(runs) if merged]
        return [InOrder.of(runs, pieces, self.leading, on_disk=on_disk)]

    def _merge_a_piece(self, sequence: InOrder) -> None:
        """Only the piece is in memory. Rows that are equal in what leads their order are in one piece."""
        for merged in self._merged_at_once(sequence.next_piece(self.leading)):
            sequence.done += map(self.memory.put, merged) if sequence.on_disk and self.memory is not None else merged

    def _merged_at_once(self, runs: Sequence[Run]) -> list[list[Run]]:
        runs = [run for run in map(self.live, runs) if len(run)]
        if len({run.passed for run in runs}) != 1:
            return [[run] for run in runs]
        return [self.arranged(one_behind_the_other(runs))]

    def leading(self, run: Run) -> Order:
        """The columns that lead the order of a run: rows that are equal in these are merged together."""
        return (run.place,)

    def having(self, places: Places) -> Iterator[tuple[Run, Positions]]:
        """The positions of the rows of these places, which ascend and differ, in each run that has any."""
        for run in self.near(places):
            _, low, high = found_in(run.place, places)
            if len(low):
                yield run, ranges(low, high - low)

    def change(self, left: Callable[[Run], Run | None]) -> None:
        """Keep of each run what is left."""
        self.all()

        def rest(run: Run) -> Iterator[Run]:
            some = left(run)
            if some is not None and len(some):
                yield self.memory.put(some) if run.on_disk and self.memory is not None else some

        self._change(rest)

    def _change(self, change: Callable[[Run], Iterable[Run]]) -> None:
        sequences = [sequence.changed(change) for sequence in self._sequences]
        self._sequences = [sequence for sequence in sequences if sequence.rows]

    def each_live(self) -> Iterator[Run]:
        """The runs without what nobody needs any more."""
        return (run for run in map(self.live, self.all()) if len(run))

    # -- to others, while it runs ----------------------------------------------------
    def frozen(self) -> Self:
        """What is here now: rows are shared, and whatever is changed in one is not in the other. It is in no snapshot."""
        out = copy.copy(self)
        out.part()
        return out

    def part(self) -> None:
        """Share no more with the runs of which this is a copy than rows."""
        self._change(lambda run: (run.alone(),))
        self._fresh = [run.alone() for run in self._fresh]
        self._noted, self.memory = Additions(), None

    # -- snapshots -----------------------------------------------------------------
    def files(self) -> list[RunFile]:
        """The files that a snapshot taken now has of these runs: of each large run, and of each that is in a file. :meth:`checkpoint`
        then refers to them, until runs change. None where all are small: then nothing is merged for them."""
        there = [*self._in_sequences(), *self._fresh]
        is_small = sum(run.nbytes for run in there) < files.FILED_BYTES_MIN and all(run.file is None for run in there)
        if is_small:
            return []
        out: dict[int, RunFile] = {}
        for run in self.all():
            if run.file is None and run.nbytes >= files.FILED_BYTES_MIN:
                run.file, run.first = RunFile(self.content(run, self._beside(run))), 0
            if run.file is not None:
                out[id(run.file)] = run.file
                if self.memory is not None:
                    self.memory.put_in_store(run)
        return list(out.values())

    def content(self, run: Run, beside: dict[str, Any]) -> Content:
        """What its file has of it."""
        arrays = {name: numbers for name, numbers in beside.items() if not isinstance(numbers, int) and name not in self.changing}
        return Content(run.rows, run.place, run.tick, self.key_groups, arrays)

    def _beside(self, run: Run) -> dict[str, Any]:
        """What is stored beside the rows, in as few bytes as it needs."""
        beside = {name: numbers for name, numbers in run.beside.items() if name not in self.derived}
        return {name: numbers if isinstance(numbers, int) else _smaller(numbers) for name, numbers in beside.items()}

    def marks(self, run: Run) -> Any:
        """What a snapshot has of a run in a file beside that file, which is never written again; None: nothing."""
        return None

    def marked(self, run: Run, marks: Any) -> None:
        """Put back what :meth:`marks` gave."""

    def checkpoint(self) -> list[StoredRun]:
        runs = (self.live(run) if run.file is None else run for run in self.all())
        return [self.stored(run) for run in runs if len(run)]

    def restore(self, stored: list[StoredRun]) -> None:
        """Places are by as many key-groups as those in files."""
        self.key_groups = key_groups_in(stored) or self.key_groups
        self._sequences, self._fresh = [], []
        for run in self.again(stored):
            self._keep_in_order(run)

    def _keep_in_order(self, run: Run) -> None:
        """A run is the last, of a sequence if it goes on with the one before it."""
        last = self._sequences[-1] if self._sequences else None
        if last is not None and not last.rest and self.goes_on(last.done[-1], run):
            last.append(run)
        else:
            self._sequences.append(InOrder([run]))

    def goes_on(self, before: Run, run: Run) -> bool:
        """Whether two runs in files are in one order: each as a sequence of its own, the pieces of a large run would be merged, and
        written again, as soon as a few rows have come."""
        if before.file is None or run.file is None or before.passed != run.passed:
            return False
        last, first = self.leading(before), self.leading(run)
        return tuple(column[-1] for column in last) < tuple(column[0] for column in first)

    def changed(self, noted: list[Run]) -> Any:
        """The runs that have come."""
        return [self.stored(one_behind_the_other(noted))] if noted else []

    def restore_changes(self, changes: Any) -> None:
        self.add(self.again(changes))

    def stored(self, run: Run, *, compact: bool = False) -> StoredRun:
        """A run for a snapshot, or, compact, for another replica."""
        beside = self._beside(run)
        if run.file is not None and not compact:
            left = {name: numbers for name, numbers in beside.items() if isinstance(numbers, int)}
            marks = self.marks(run)
            left = left if marks is None else {**left, MARKS: marks}
            return RowsInFile(self.content(run, beside), run.file, run.first), left, run.passed
        return stored([compacted(run.rows) if compact else run.rows]), beside, run.passed

    def again(self, parts: Iterable[StoredRun]) -> list[Run]:
        """Runs from what :meth:`stored` gave."""
        out = []
        for rows, beside, passed in parts:
            beside = dict(beside) if isinstance(beside, dict) else {}  # windows had a flag there once
            marks = beside.pop(MARKS, None)
            run = self._run_of(rows, beside)
            run.passed = passed
            if marks is not None:
                self.marked(run, marks)
            if run.file is None:
                out += self.arranged(run if marks is None else self.live(run))
            else:
                out.append(run)
        return out

    def _run_of(self, rows: Stored | RowsInFile | RowsByValue, beside: dict[str, Any]) -> Run:
        if isinstance(rows, RowsInFile):
            content = rows.content
            beside.update(content.beside)
            if content.place is None or content.key_groups == self.key_groups:
                run = Run(content.rows, content.place, content.tick, beside, file=rows.file, first=rows.first)
                run.is_mapped = content.is_mapped
                return run
            return self.read(content.rows, **beside)  # places are others, and so is the order
        if isinstance(rows, RowsByValue):
            return self.read(taken_back(rows.rows)[0], **beside, **rows.beside)
        return self.read(taken_back(rows)[0], **beside)

    # -- to other replicas ---------------------------------------------------------
    def place_by(self, key_groups: int) -> None:
        """Let places be by so many key-groups. Runs that are searched with each other's places have the same number."""
        if self.key_groups == key_groups:
            return
        self.key_groups = key_groups

        def placed(run: Run) -> Run:
            run.place, run.index, run.file, run.is_mapped = self.places(run.rows), None, None, False
            return self.in_order(run)

        self.change(placed)

    def index(self, key_groups: int) -> Iterator[None]:
        self.place_by(key_groups)
        self.all()  # merged now, not when the first groups leave
        yield from ()

    def give(self, groups: frozenset[int], key_groups: int) -> list[StoredRun]:
        """What these groups have: a few slices of each run. Slices of a file of a snapshot are given as such: who reads that file needs no
        rows."""
        self.place_by(key_groups)
        self.all()
        given: list[StoredRun] = []

        def left(run: Run) -> list[Run]:
            some, others = self.parted(run, groups)
            given.extend(self.stored(part, compact=part.file is None) for part in some if len(part))
            return others

        self._change(left)
        return given

    def parted(self, run: Run, groups: frozenset[int]) -> tuple[list[Run], list[Run]]:
        """The rows of these groups, in large slices of its file or in none, and the others."""
        slices = slices_of_groups(run.place, groups, self.key_groups)
        rows = np.concatenate([np.arange(0), *(np.arange(low, high) for low, high in slices)])
        left = run.without(slices)
        if len(left) > PIECES_MAX:
            left = [run.at(np.delete(np.arange(len(run)), rows))]
        if self.gives_files and run.file is not None and len(slices) <= PIECES_MAX:
            in_file = [run.slice(low, high) for low, high in slices]
            if all(part.nbytes >= files.FILED_BYTES_MIN for part in in_file):
                return in_file, left
        return [self.live(run.cut(*slices[0]) if len(slices) == 1 else run.at(rows)).without_file()], left

    def take(self, given: list[StoredRun]) -> None:
        """Slices of files stay what they are until many runs are merged, as after a recovery."""
        runs = self.fitted(self.again(given))
        self.add(run for run in runs if run.file is None)
        for run in runs:
            if run.file is not None:
                self._keep_in_order(run)
                self._removed += self.removals(run)


def key_groups_in(stored: Iterable[StoredRun]) -> int | None:
    """By how many key-groups places are in files; None: nothing is in a file."""
    return next((rows.content.key_groups for rows, _, _ in stored if isinstance(rows, RowsInFile)), None)


def _tier(sequence: InOrder) -> int:
    """Its order of magnitude."""
    return int(math.log(max(1.0, sequence.rows / SMALL_RUN), FAN_IN))


def _smaller(numbers: Any) -> Any:
    """A copy, of integers in as few bytes as they need."""
    small = narrow(numbers) if numbers.dtype.kind == "i" else numbers
    return numbers.copy() if small is numbers else small
