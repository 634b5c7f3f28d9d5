"""What a vertex keeps in columns: of each input the epochs before and the one under way, and what it has given in this one.

As in rows (``traces.py``), of epochs that are over the epoch is dropped: the runs of the epoch under way become runs of those before,
as they are, with their inner counters. Merges then add up what is equal.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.keyed_state import KeyedState
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.records.values import values_of
from rayad.incremental.columns.form import DIFF, KEY, RECORD, NotColumns, together, wider_schema
from rayad.incremental.columns.weighted_runs import CODE, COUNT, WeightedRuns
from rayad.incremental.moments import Counters
from rayad.incremental.records import as_record
from rayad.progress import Timestamp

Out: TypeAlias = list[tuple[Timestamp, pa.RecordBatch]]
"""Batches and their times."""
InRows: TypeAlias = dict[Any, Any]
"""By key, as the row form keeps it."""


class Part:
    """One input, or what has been given.

    Args:
        columns: what its rows have: the key, or the key and the record.
        numbers: what is added of equal rows, whatever they hold; there may be more where rows need them.
        vector: of the numbers of a row, by name, what the row form keeps of it; None: it keeps weights by value.
    """

    def __init__(
        self,
        columns: tuple[str, ...] = (KEY, RECORD),
        numbers: tuple[str, ...] = (COUNT,),
        vector: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        self.columns = columns
        self.numbers = self._always = numbers
        self.schema: pa.Schema | None = None
        self._vector = vector
        self._runs: tuple[WeightedRuns, WeightedRuns] | None = None

    @property
    def before(self) -> WeightedRuns:
        """Of the epochs that are over."""
        assert self._runs is not None
        return self._runs[0]

    @property
    def now(self) -> WeightedRuns:
        """Of the epoch under way."""
        assert self._runs is not None
        return self._runs[1]

    @property
    def count(self) -> int:
        """Rows kept."""
        return 0 if self._runs is None else self.before.count + self.now.count

    def there(self) -> list[WeightedRuns]:
        """Those before, and those of now; none as long as nothing has come."""
        return [] if self._runs is None else [self.before, self.now]

    def learn(self, schema: pa.Schema, depth: int, key_groups: int, numbers: Iterable[str] = ()) -> None:
        """What rows look like, and which numbers they have, besides those of all. Raises NotColumns where it is something else than what
        is kept."""
        more = [name for name in numbers if name not in self.numbers]
        if not more and self.schema is not None and self.schema.equals(schema) and self.before.depth == depth:
            return
        if self.count:
            assert self.schema is not None
            both = wider_schema(self.schema, schema) if self.before.depth == depth else None
            if both is None:
                raise NotColumns
            if more or not both.equals(self.schema):
                self.schema, self.numbers = both, (*self.numbers, *more)
                self._runs = self.before.widened(both, self.numbers), self.now.widened(both, self.numbers)
            return
        self.schema = schema
        self.numbers = tuple(dict.fromkeys([*self._always, *numbers]))
        self._runs = (WeightedRuns(schema, depth, self.numbers, key_groups), WeightedRuns(schema, depth, self.numbers, key_groups))

    def end_epoch(self, *, keep: bool) -> None:
        """What is of now becomes of before, or goes."""
        if self._runs is None or not self.now.count:
            return
        if keep:
            self.before.add(self.now.as_they_are())
            self.before.all()  # merged though nobody searches: what has come and gone is to go
        self._runs = (self.before, WeightedRuns(self.now.schema, self.now.depth, self.numbers, self.now.key_groups))

    def reset(self) -> None:
        """Nothing is kept, and nothing is known."""
        self.schema, self.numbers, self._runs = None, self._always, None

    # -- stored, and as rows ----------------------------------------------------------------------
    def changes_in(self, run: Run) -> Iterator[tuple[Any, Any, int, Any]]:
        """The changes in a run, as ``reads.Change``. It may be of before there were other numbers, or of another replica that had more."""
        keys, *records = [map(as_record, values_of(column)) for column in run.rows.columns]
        if self._vector is None:
            values = records[0] if records else itertools.repeat(None, len(run))
            yield from zip(keys, values, run.beside[COUNT].tolist(), itertools.repeat(None, len(run)), strict=True)
            return
        names = [name for name in run.beside if name != CODE]
        for key, some in zip(keys, zip(*(run.beside[name].tolist() for name in names), strict=True), strict=True):
            yield key, None, 1, self._vector(dict(zip(names, some, strict=True)))

    def stored(self, take: Callable[[WeightedRuns], Any]) -> Any:
        """What a function gives of each, with what is needed to read it."""
        return None if self._runs is None else (self.schema, self.before.depth, take(self.before), take(self.now), self.numbers)

    def learn_stored(self, stored: Any, key_groups: int) -> tuple[Any, Any]:
        """What is needed to read what :meth:`stored` gave, and what its function gave of both. Raises NotColumns as :meth:`learn`."""
        schema, depth, before, now, *numbers = stored  # numbers are new
        self.learn(schema, depth, key_groups, *numbers)
        return before, now

    def in_rows(self, runs: WeightedRuns) -> InRows:
        """As the row form keeps it."""
        out: InRows = {}
        for run in runs.each_live():
            columns = [list(map(as_record, values_of(column))) for column in run.rows.columns]
            values = columns[1] if len(columns) > 1 else [None] * len(run)
            counters = map(tuple, runs.counters_of(run, np.arange(len(run))).tolist())
            numbers = zip(*(run.beside[name].tolist() for name in self.numbers), strict=True)
            for key, value, moment, some in zip(columns[0], values, counters, numbers, strict=True):
                of_key = out.setdefault(key, {})
                into, vector = of_key, None
                if self._vector is None:
                    into, vector = of_key.setdefault(value, {}), some[0]
                else:
                    vector = self._vector(dict(zip(self.numbers, some, strict=True)))
                into[moment] = vector if moment not in into else self._added(into[moment], vector)
        return _without_nothing(out)

    def _added(self, one: Any, other: Any) -> Any:
        return one + other if self._vector is None else tuple(map(sum, zip(one, other, strict=True)))


def _without_nothing(keys: InRows) -> InRows:
    """Without that of which as much has gone as has come, in runs that have not been merged: of values their weights, or vectors."""

    def is_any(there: Any) -> bool:
        return any(there.values() if isinstance(there, dict) else there)

    some = {key: {of: there for of, there in values.items() if is_any(there)} for key, values in keys.items()}
    return {key: values for key, values in some.items() if values}


class OfVertex(Protocol):
    """What columns ask their vertex."""

    @property
    def key_groups(self) -> int:
        """Of the job."""

    def is_over(self, epoch: int) -> bool:
        """Whether an epoch is over at this replica."""

    def to_rows(self) -> None:
        """Keep rows instead."""


class ColumnForm(KeyedState):
    """The columns of a vertex, and its moments in columns.

    Args:
        inputs: by name, in the order of the edges.
        given: what has been given in the epoch under way, which is forgotten with it.
    """

    inline = True

    def __init__(self, inputs: Mapping[str, Part], given: Mapping[str, Part] | None = None) -> None:
        self.inputs = dict(inputs)
        self.given = dict(given or {})
        self.time: Timestamp | None = None
        """Any time of the epoch of which something is kept."""
        self.vertex: OfVertex | None = None

    @property
    def key_groups(self) -> int:
        """Of the job."""
        assert self.vertex is not None
        return self.vertex.key_groups

    @property
    def parts(self) -> dict[str, Part]:
        """All of them, by name."""
        return self.inputs | self.given

    @property
    def is_used(self) -> bool:
        """Whether there is anything."""
        return any(part.count for part in self.parts.values())

    # -- moments -----------------------------------------------------------------------------------
    def read(self, port: int, batches: Sequence[pa.RecordBatch], moment: Counters) -> Run | None:
        """What has come for a moment by one input, equal rows as one; None: nothing. Raises NotColumns, with nothing changed."""
        part = list(self.inputs.values())[port]
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            return None
        batch = together(batches)
        if KEY not in batch.schema.names:
            raise NotColumns
        rows = batch.select(list(part.columns)).replace_schema_metadata(None)
        numbers = self.numbers_of(port, batch)
        part.learn(rows.schema, len(moment), self.key_groups, numbers)
        return part.now.at_moment(rows, moment, **numbers)

    def numbers_of(self, port: int, batch: pa.RecordBatch) -> dict[str, Any]:
        """What is added of each row. Raises NotColumns where columns cannot do that."""
        return {COUNT: batch.column(DIFF).to_numpy()}

    @abstractmethod
    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """All of a moment is there: gives what leaves, and keys to be looked at again, with the moments. Raises NotColumns, with nothing
        changed."""

    def end_epoch(self) -> None:
        """The epoch under way is over."""
        for part in self.inputs.values():
            part.end_epoch(keep=True)
        for part in self.given.values():
            part.end_epoch(keep=False)
        self.time = None

    def reset(self) -> None:
        """Nothing is kept any more: rows have it."""
        for part in self.parts.values():
            part.reset()
        self.time = None

    # -- beyond memory, and in snapshots ---------------------------------------------------------------
    @property
    def noted_bytes(self) -> int:
        return sum(runs.noted_bytes for runs in self.runs())

    def runs(self) -> Iterable[WeightedRuns]:
        return [runs for part in self.parts.values() for runs in part.there()]

    def checkpoint(self) -> Any:
        return self.time, {name: part.stored(WeightedRuns.checkpoint) for name, part in self.parts.items()}

    def restore(self, stored: Any) -> None:
        self.reset()
        self._put(stored, WeightedRuns.restore)

    def take_changes(self) -> Callable[[], Any] | None:
        changed = {id(part.before): part.before.take_changes() for part in self.parts.values() if part.there()}
        if None in changed.values():
            return None

        def taken(runs: WeightedRuns) -> Any:
            before = changed.get(id(runs))
            return runs.checkpoint() if before is None else before()

        stored = self.time, {name: part.stored(taken) for name, part in self.parts.items()}
        return lambda: stored

    def restore_changes(self, changes: Any) -> None:
        for part in self.parts.values():
            part.end_epoch(keep=False)
        self._put(changes, WeightedRuns.restore_changes)

    def forget_changes(self) -> None:
        for part in self.parts.values():
            for runs in part.there():
                runs.forget_changes()

    def _put(self, stored: Any, put_before: Callable[[WeightedRuns, Any], None]) -> None:
        self.time, parts = stored
        for name, some in parts.items():
            if some is not None:
                part = self.parts[name]
                before, now = part.learn_stored(some, self.key_groups)
                put_before(part.before, before)
                part.now.restore(now)

    # -- to other replicas -----------------------------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        for part in self.parts.values():
            for runs in part.there():
                yield from runs.index(key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        if not self.is_used:
            return None
        given = {name: part.stored(lambda runs: runs.give(groups, key_groups)) for name, part in self.parts.items()}
        return (self.time, given) if any(some is not None and (some[2] or some[3]) for some in given.values()) else None

    def fits(self, given: Any) -> bool:
        """Whether what a sibling gave goes together with what is here."""
        for name, some in given[1].items():
            if some is not None and (some[2] or some[3]):
                try:
                    self.parts[name].learn_stored(some, self.key_groups)
                except NotColumns:
                    return False
        return True

    def take(self, given: Any) -> None:
        time, parts = given
        assert self.vertex is not None
        is_over = time is None or self.vertex.is_over(time.epoch)
        for name, some in parts.items():
            if some is None or not (some[2] or some[3]):
                continue
            part = self.parts[name]
            part.before.take(some[2])
            if not is_over:
                part.now.take(some[3])
            elif name in self.inputs:
                part.before.take(some[3])
        if not is_over:
            self.time = time

    # -- tables --------------------------------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """None of its own: what is here becomes rows, which are tables. A table does not tell in which form its state was."""
        if self.vertex is not None:
            self.vertex.to_rows()
        return {}


__all__ = ["COUNT", "ColumnForm", "InRows", "Out", "Part"]
