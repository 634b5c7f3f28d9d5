"""What all vertices of collections share: one moment after another, and nothing left when an epoch ends.

What arrives for a time is put aside and handled when nothing more can come for it. The vertices are ``sequential``: no moment of an epoch
is handled before the last one of the epoch before it, so what is kept is always that of whole epochs, and of the moments so far of one.
A moment comes again at which an operator has scheduled work: where changes of earlier moments accumulate together for the first time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex, TableOfOthers, WholeState
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.waiting_forms import Batches, PairsOnce
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.records.batches import to_rows
from rayad.incremental.columns.form import NotColumns, is_changes
from rayad.incremental.columns.from_rows import MANY, changes_of, keyed_changes_of
from rayad.incremental.columns.kept import ColumnForm, Out, Part
from rayad.incremental.moments import END, Counters
from rayad.incremental.reads import Arrived, Changes, CollectionAtEpochs, InRows, Results, Shown, Weights
from rayad.incremental.records import Row, as_record
from rayad.incremental.traces import Kept, ThisEpoch
from rayad.progress import InternalError, Timestamp


class Epochs(WholeState):
    """Where a replica is; it stays with the replica when keys move."""

    def __init__(self) -> None:
        self.under_way: Timestamp | None = None
        """A time of the epoch of which moments have been handled, and which is not over; None outside of loops, and between epochs."""
        self.ended = -1
        """The last epoch that is over."""

    def is_over(self, epoch: int) -> bool:
        """Whether no moment of an epoch is left here. Of one that had none here it is known when a later one is under way."""
        return epoch <= self.ended or (self.under_way is not None and epoch < self.under_way.epoch)

    def checkpoint(self) -> Any:
        return self.under_way, self.ended

    def restore(self, stored: Any) -> None:
        self.under_way, self.ended = stored

    def give(self, groups: frozenset[int], key_groups: int) -> None:
        return None

    def take(self, given: Any) -> None:
        """It is never given."""


class MomentVertex(KeyedVertex):
    """Collects changes by time and input, and handles all of a moment at once.

    Batches are lists of (key, value, weight), or columns of them (``columns/form.py``). An operator that has a form in columns keeps it as
    long as all that comes is columns that it takes; from then on it keeps rows, which give the same.

    Args:
        columns: the operator in columns; None: it has rows alone.
    """

    sequential = True
    paces_inputs = True
    why_unreadable = (
        "is an operator of a collection whose results do not follow from what it keeps; what it gives can be read where it is kept by key, "
        "collection.arrange_by(key, name=...)"
    )
    reads: CollectionAtEpochs | None = None
    """Who is told what comes, while others read what it gives; None: nobody has read anything."""
    inputs: int = 1
    adds_up: ClassVar[bool] = True
    """Whether a moment is handled when all of it is there, so that nothing comes of what comes to nothing. Else only the first moment of an
    epoch waits, which says that no epoch before it is left; what comes later in the epoch is handled as it comes, in any order."""
    state_version = 4
    """2: rows alone; 3: outer joins were several vertices."""

    def __init__(self, columns: ColumnForm | None = None) -> None:
        self.waiting = Waiting(self, *[Batches() for _ in range(self.inputs)], Batches(), PairsOnce())
        self.epochs = Epochs()
        self._columns = columns
        if columns is not None:
            columns.vertex = self

    # -- what an operator does ---------------------------------------------------------------------------
    @abstractmethod
    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """All of a moment is there: what has arrived, by input, and the keys to which something may happen though nothing arrived."""

    def read(self, columns: ColumnForm, port: int, batches: Sequence[pa.RecordBatch], moment: Counters) -> Run | None:
        """What has come by an input in columns: :meth:`ColumnForm.read`."""
        return columns.read(port, batches, moment)

    def on_columns(
        self, columns: ColumnForm, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch], others: Sequence[Any]
    ) -> tuple[Out, Out]:
        """The same in columns; ``others``: the rows of the inputs behind those of ``columns``. Raises NotColumns, with nothing changed."""
        return columns.on_moment(time, runs, due)

    def kept(self) -> dict[str, Kept]:
        """What it keeps of its inputs, by name."""
        return {}

    def of_epoch(self) -> dict[str, ThisEpoch]:
        """What else it keeps for an epoch, by name."""
        return {}

    def keeps(self) -> str:
        """What it keeps between epochs, in words, for ``explain()``."""
        return "nothing"

    def beyond_memory(self) -> str:
        """Where that is when it is more than ``RunConfig.state_memory_bytes``, in words, for ``explain()``; "" where nothing is kept."""
        if self.keeps() == "nothing":
            return ""
        what = "in rows" if self._columns is None else "in columns, or where Python objects come in rows"
        return f"{what}, which go to files beyond state_memory_bytes"

    def figures(self) -> dict[str, int]:
        """How much that is: rows in columns; in rows keys, since values are not counted."""
        if self._columns is not None and self._columns.is_used:
            return {f"rows of {name}": part.count for name, part in self._columns.inputs.items()}
        states = {name.removesuffix(".before"): state for name, state in self.states().items() if isinstance(state, KeyedDict)}
        return {f"keys of {name}": len(state.kept) for name, state in states.items()}

    # -- to others, while it runs ------------------------------------------------------------------------
    def shown(self) -> Shown | None:
        """How a table shows what it has given; None: that does not follow from what it keeps."""
        return None

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """Results of a key, and their weights, where its inputs have this of it, as :meth:`Kept.there` gives it (None: nothing). Outside of
        loops."""
        raise NotImplementedError(f"{type(self).__name__} has no results_of(self, key, there)")

    @property
    def gives_kept(self) -> bool:
        """See ``reads.Operator``, here and below."""
        return False

    def results_in_columns(self, kept: pa.RecordBatch, weights: Weights) -> tuple[pa.RecordBatch, Weights]:
        """By default all of it."""
        return kept, weights

    def tables_read(self) -> Mapping[str, TableOfOthers]:
        shown = self.shown()
        if shown is not None:
            return {"results": Results(self, shown)}
        return {name: table for name, table in super().tables_read().items() if isinstance(table, KeyedDict)}

    def inputs_read(self) -> Sequence[tuple[InRows, Part | None]]:
        """Its inputs in rows and in columns."""
        rows = self.inputs_in_rows()
        return list(zip(rows, [None] * len(rows) if self._columns is None else self._columns.inputs.values(), strict=True))

    def noted(self, come: Sequence[Changes]) -> Sequence[Changes]:
        """What a moment has changed of what is kept, by input: by default what has come."""
        return come

    def inputs_in_rows(self) -> Sequence[InRows]:
        """Its inputs in rows."""
        return list(self.kept().values())

    # -- moments -----------------------------------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        under_way = self.epochs.under_way
        if self.adds_up or under_way is None or under_way.epoch != time.epoch:
            self.waiting[time][edge].append(batch)
        else:
            self._handle(time, [[batch] if port == edge else [] for port in range(self.inputs)], [], {})

    def schedule(self, time: Timestamp, moment: Counters, key: Any) -> None:
        """Look at a key again at a later moment of this epoch."""
        self.waiting[Timestamp.of(time.epoch, moment)][-1][key, None] = None

    def on_notify(self, time: Timestamp) -> None:
        if time.counters and time.counters[-1] == END:
            if not self.is_over(time.epoch):  # it may be, where a sibling was ahead
                self._end(time.epoch)
            return
        has_come = False
        for *batches, due, scheduled in self.pieces(time):
            if not any(batches) and not due and not scheduled:
                continue  # what was awaited has moved to another replica
            has_come = True
            self._await_end(time)
            self._handle(time, batches, due, scheduled)
            if not time.counters:
                self._end_rows()
        if has_come and not time.counters:
            self._end(time.epoch)

    def pieces(self, time: Timestamp) -> Iterator[Any]:
        """What waits for a time. What happens to a key follows from what is there of that key: so a moment that does not fit in memory is
        handled some keys after others."""
        return self.waiting.pieces(time)

    def _handle(self, time: Timestamp, batches: list[list[Any]], due: list[Any], scheduled: Mapping[tuple[Any, None], None]) -> None:
        if not self._in_columns(time, batches, due, scheduled):
            self.to_rows()
            keys = [as_record(key) for batch in due for (key,) in to_rows(batch)]
            arrived = list(map(_weights, batches))
            for kept in self.kept().values():
                if kept.before.is_beyond_memory:
                    kept.before.kept_of([*keys, *(key for key, _ in scheduled), *(key for some in arrived for key, _ in some)])
            self.on_moment(time, arrived, [*keys, *(key for key, _ in scheduled)])
            if self.reads is not None:
                self.reads.note(time.epoch, self.noted(arrived))

    def _in_columns(self, time: Timestamp, batches: list[list[Any]], due: list[Any], scheduled: Any) -> bool:
        """Handle a moment in columns; gives False, with nothing done, where rows must do it."""
        columns = self._columns
        if columns is None or scheduled or self.rows_are_kept():
            return False
        batches, others = batches[: len(columns.inputs)], batches[len(columns.inputs) :]
        if not all(is_changes(batch) for some in batches for batch in some):
            many = _as_columns(batches) if not time.counters else None  # the rounds of a loop become small
            if many is None:
                return False
            batches = many
        try:
            runs = [self.read(columns, port, some, time.counters) for port, some in enumerate(batches)]
            out, again = self.on_columns(columns, time, runs, due, [row for some in others for batch in some for row in batch])
        except NotColumns:
            return False
        if self.reads is not None:
            self.reads.note(time.epoch, self.noted(runs))
        for at, batch in out:
            self.send_by(0, batch, at)
        for at, keys in again:
            self.waiting[at][-2].append(keys)
        return True

    # -- rows in place of columns ------------------------------------------------------------------------
    def is_over(self, epoch: int) -> bool:
        """See :class:`Epochs`."""
        return self.epochs.is_over(epoch)

    def rows_are_kept(self) -> bool:
        """Whether anything is kept in rows."""
        return any(kept.is_used for kept in self.kept().values()) or any(some.kept for some in self.of_epoch().values())

    def to_rows(self) -> None:
        """What is kept in columns, if anything, is kept in rows from now on."""
        columns = self._columns
        if columns is None or not columns.is_used:
            return
        for name, part in columns.parts.items():
            before, now = map(part.in_rows, part.there()) if part.there() else ({}, {})
            self.keep_rows(name, before, now, columns.time)
        columns.reset()
        for state in self.states().values():
            state.forget_changes()

    def keep_rows(self, name: str, before: dict[Any, Any], now: dict[Any, Any], time: Timestamp | None) -> None:
        """What columns had of an input, or had given; of keys of which there are no rows."""
        kept = self.kept().get(name)
        if kept is not None:
            kept.keep(before)
        of_epoch = self.of_epoch()[name] if kept is None else kept.now
        if now:
            of_epoch.kept.update(now)
            of_epoch.time = time

    def _await_end(self, time: Timestamp) -> None:
        under_way = self.epochs.under_way
        if under_way is not None and under_way.epoch != time.epoch:
            raise InternalError(f"{self.name}: a moment of epoch {time.epoch}, and epoch {under_way.epoch} is not over")
        if under_way is None and time.counters:
            self.epochs.under_way = time
            self.notify_at(Timestamp.of(time.epoch, (END,) * len(time.counters)), None)

    def _end(self, epoch: int) -> None:
        first = takewhile(lambda time: time.epoch <= epoch, self.waiting)  # any that is behind others is the first before the job ends
        left = [time for time in first if self.waiting.has(time)]
        if left:
            raise InternalError(f"{self.name}: epoch {epoch} is over, and {left} have not been handled")
        self.epochs.under_way, self.epochs.ended = None, epoch
        if self._columns is not None:
            self._columns.end_epoch()
        self._end_rows()

    def _end_rows(self) -> None:
        """Nothing more comes in this epoch for the keys of which there are rows."""
        for kept in self.kept().values():
            kept.end_epoch()
        for some in self.of_epoch().values():
            some.clear()

    def send_changes(self, time: Timestamp, changes: list[tuple[Any, int]]) -> None:
        """Records and their weights. Many with fields leave as columns: where they go then is found without hashing each as an object."""
        if changes:
            is_worth = len(changes) >= MANY and type(changes[0][0]) is Row and not time.counters
            made = changes_of(*zip(*changes, strict=True)) if is_worth else None
            self.send_by(0, changes if made is None else made, time)

    # -- what is stored and moves ------------------------------------------------------------------------
    def states(self) -> dict[str, KeyedState]:
        found: dict[str, KeyedState] = {} if self._columns is None else {"columns": self._columns}
        found |= {name: state for name, state in super().states().items() if state is not self._columns}
        for name, kept in self.kept().items():
            found |= kept.states(name)
        return found

    def take(self, state: Any) -> None:
        self.end_epochs_before(state)
        columns = state.get("columns")
        super().take({name: given for name, given in state.items() if name != "columns"})
        for kept in self.kept().values():
            kept.settle()
        if columns is not None:
            self._take_columns(columns)
        if self.rows_are_kept():
            self.to_rows()
        times = [some.time for some in (*self.of_epoch().values(), *(kept.now for kept in self.kept().values()))]
        if self._columns is not None:
            times.append(self._columns.time)
        for some in (*self.of_epoch().values(), *(kept.now for kept in self.kept().values())):
            some.late = []
        for time in times:
            if time is not None:
                self._await_end(time)

    def end_epochs_before(self, state: Any) -> None:
        """End the epoch under way if a sibling was in a later one: then no moment of it is left anywhere, and the notification of its end,
        which holds nobody back, is on its way here."""
        of_epochs = [name for name, part in self.states().items() if name in state and isinstance(part, ThisEpoch | ColumnForm)]
        epochs = [time.epoch for time, *_ in map(state.__getitem__, of_epochs) if time is not None]
        under_way = self.epochs.under_way
        if under_way is not None and epochs and max(epochs) > under_way.epoch:
            self._end(under_way.epoch)

    def _take_columns(self, given: Any) -> None:
        columns = self._columns
        assert columns is not None
        if not columns.fits(given):
            self.to_rows()
        assert columns.fits(given)
        columns.take(given)


def _as_columns(batches: list[list[Any]]) -> list[list[Any]] | None:
    """Changes by input, of which some are records with fields, in columns; None: there are few, or others, or rows must do it."""
    if sum(len(batch) if isinstance(batch, list) else batch.num_rows for some in batches for batch in some) < MANY:
        return None
    out: list[list[Any]] = []
    for some in batches:
        rows = [row for batch in some if not is_changes(batch) for row in batch]
        made = keyed_changes_of(rows) if rows and Row in map(type, rows[0]) else None
        if rows and made is None:
            return None
        out.append([batch for batch in some if is_changes(batch)] + ([made] if made is not None else []))
    return out


def _weights(batches: list[Any]) -> Arrived:
    """The weight of each (key, value) of some batches."""
    sums: dict[tuple[Any, Any], int] = {}
    for batch in batches:
        rows = batch
        if is_changes(batch):
            rows = ((as_record(key), as_record(value), weight) for key, value, weight in to_rows(batch))
        for key, value, weight in rows:
            pair, known = (key, value), len(sums)
            total = sums.setdefault(pair, weight)  # of most it is the only one
            if len(sums) == known:
                sums[pair] = total + weight
    return {pair: weight for pair, weight in sums.items() if weight} if 0 in sums.values() else sums


__all__ = ["Arrived", "Epochs", "MomentVertex"]
