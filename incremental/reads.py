"""What operators of collections give, at epochs that others may still read (docs/design/state.md, 10).

Weights add up, so nothing is kept of what was: what an input had when an epoch was over is what it has now, less the changes since. Those
are kept as they came, by epoch: in rows, or in columns as the run that the operator keeps, too. What a table shows is what the operator
makes of all that its inputs had, which is the sum of all that it has given.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.runs.order import groups_of_places, places_of_hashes
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.tables import KEY, KEY_FIELD, RECORDS, Entries
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.key_hashing import hash_keys
from rayad.dataflow.records.values import has_windows
from rayad.incremental.columns.form import in_schema, together
from rayad.incremental.columns.kept import COUNT, Part
from rayad.incremental.records import as_record

Arrived: TypeAlias = Mapping[tuple[Any, Any], int]
"""The weight of each (key, value) that has come."""
Change: TypeAlias = tuple[Any, Any, int, Any]
"""Key, value, weight, None; or where sums are kept and values are not known: key, None, 1 or -1, vector."""
Changes: TypeAlias = Arrived | Run | list[Change] | None
"""Those of an epoch that came by one input; None: none."""


Weights: TypeAlias = npt.NDArray[np.int64]
"""Of rows, shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a table shows results.

    Args:
        column: what they are called; None: there are none but the keys, of which a column ``count`` says how often each is there.
        has_one_row: whether a key has one result at most.
        inputs: those that can be read, too, by name, with their numbers.
    """

    column: str | None = "value"
    has_one_row: bool = False
    inputs: Mapping[str, int] = field(default_factory=dict)


def table_of_records(schema: pa.Schema | None, key: str | None) -> pa.Schema | None:
    """The columns of a table of records that have these fields, by a field or by something else (None)."""
    if schema is None:
        return None
    by = [pa.field(KEY, schema.field(key).type, metadata={KEY_FIELD: key})] if key in schema.names else []
    return pa.schema([*by, pa.field("value", pa.struct(list(schema)), metadata=RECORDS)])


def table_of_counts(schema: pa.Schema | None) -> pa.Schema | None:
    """The columns of a table that says how often each record of these fields is there."""
    if schema is None:
        return None
    return pa.schema([pa.field(KEY, pa.struct(list(schema)), metadata=RECORDS), pa.field("count", pa.int64())])


class InRows(Protocol):
    """One input in rows. What a key has there is false where that is nothing, and is the reader's own."""

    def keys(self) -> Iterable[Any]:
        """All of them."""

    def there(self, key: Any) -> Any:
        """What a key has."""

    def changed(self, there: Any, value: Any, weight: int, vector: Any) -> Any:
        """What a key has with one more change; ``there`` may be None. ``vector``: where sums are kept, that of the value if it is known."""


class Operator(Protocol):
    """An operator that can be read."""

    reads: CollectionAtEpochs | None

    @property
    def gives_kept(self) -> bool:
        """Whether results are what its first input has, but for what :meth:`results_in_columns` does to them."""

    @property
    def key_groups(self) -> int:
        """Of the job."""

    def inputs_read(self) -> Sequence[tuple[InRows, Part | None]]:
        """Its inputs in both forms, of which one has something."""

    @abstractmethod
    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """Results of a key, and their weights, where its inputs have this of it (None: nothing)."""

    @abstractmethod
    def results_in_columns(self, kept: pa.RecordBatch, weights: Weights) -> tuple[pa.RecordBatch, Weights]:
        """All results, and their weights, of what the first input has: keys, and perhaps records."""


class Results:
    """What an operator has given, to be read.

    Args:
        operator: it.
        shown: how.
    """

    def __init__(self, operator: Operator, shown: Shown) -> None:
        self._operator = operator
        self._shown = shown
        self.parts_read = tuple(shown.inputs)
        self.form_now = type(operator).__name__

    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        """Keep from now on what changes."""
        return CollectionAtEpochs(self._operator, self._shown, epochs)


class CollectionAtEpochs(AtEpochs):
    """The results of an operator.

    Args:
        operator: from now on it tells what comes in each epoch.
        shown: how results are shown.
    """

    def __init__(self, operator: Operator, shown: Shown, epochs: Epochs) -> None:
        self._operator = operator
        self._shown = shown
        self._epochs = epochs
        self._since = epochs.applied()
        self._changes: list[tuple[int, Sequence[Changes]]] = []
        self.has_one_row = shown.has_one_row
        operator.reads = self

    @property
    def since(self) -> int:
        return self._since

    def note(self, epoch: int, changes: Sequence[Changes]) -> None:
        """All that an epoch changes, by input. It is not changed in place after that."""
        self._changes.append((epoch, changes))

    def begin_now(self) -> None:
        self._since = max(self._since, self._epochs.now(), self._epochs.applied())
        self._changes.clear()

    def forget(self, epoch: int) -> None:
        if epoch > self._since:
            self._since = epoch
            self._changes = [one for one in self._changes if one[0] > epoch]

    # -- to be read ----------------------------------------------------------------------
    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        return self._entries(epoch, dict.fromkeys(map(as_record, keys)), part)

    def of_all(self, epoch: int, part: str = "") -> Entries:
        in_columns = self._in_columns(epoch) if not part and self._operator.gives_kept else None
        return self._entries(epoch, None, part) if in_columns is None else in_columns

    def _in_columns(self, epoch: int) -> Entries | None:
        """All, of what the first input has in columns; None: not all of it is, or there is nothing."""
        rows, part = self._operator.inputs_read()[0]
        later = [(changes[0], -1) for at, changes in self._changes if at > epoch and changes[0] is not None and len(changes[0])]
        if part is None or part.numbers != (COUNT,) or next(iter(rows.keys()), None) is not None:
            return None
        runs = [*((run, 1) for some in part.there() for run in some.all()), *later]
        if not runs or not all(isinstance(run, Run) for run, _ in runs) or part.now.depth:
            return None
        all_rows = together([run.rows for run, _ in runs])  # type: ignore[union-attr]
        if has_windows(pa.struct(list(all_rows.schema))):
            return None
        places = np.concatenate([run.place for run, _ in runs])  # type: ignore[union-attr]
        counts = np.concatenate([sign * np.broadcast_to(run.beside[COUNT], len(run)) for run, sign in runs])  # type: ignore[union-attr]
        kept = part.now.at_moment(in_schema(all_rows, part.now.schema), (), places, **{COUNT: counts})
        found, weights = self._operator.results_in_columns(kept.rows, kept.beside[COUNT])
        if self._shown.column is None:
            return Entries(found.column(0), {"count": pa.array(weights)})
        if not (weights == 1).all():
            found = rows_at(found, np.repeat(np.arange(len(weights)), np.maximum(weights, 0)))
        return Entries(found.column(0), {self._shown.column: found.column(1)})

    def _entries(self, epoch: int, keys: Mapping[Any, None] | None, part: str) -> Entries:
        if part:
            there = self._there(epoch, self._shown.inputs[part], keys)
            return _rows(((key, value, weight) for key, values in there.items() for value, weight in values.items()), "value")
        inputs = [self._there(epoch, number, keys) for number in range(len(self._operator.inputs_read()))]
        found: dict[Any, None] = {}
        for one in inputs:
            found.update(dict.fromkeys(one))
        results_of = self._operator.results_of
        rows = ((key, result, weight) for key in found for result, weight in results_of(key, [one.get(key) for one in inputs]))
        return _rows(rows, self._shown.column)

    def _there(self, epoch: int, number: int, keys: Mapping[Any, None] | None) -> dict[Any, Any]:
        """What keys had of an input when an epoch was over; None: all."""
        rows, part = self._operator.inputs_read()[number]
        out = {key: there for key in (rows.keys() if keys is None else keys) if (there := rows.there(key))}

        def add(changes: Iterable[Change], sign: int) -> None:
            for key, value, weight, vector in changes:
                if keys is None or key in keys:
                    out[key] = rows.changed(out.get(key), value, sign * weight, vector)

        places = None if keys is None else np.unique(places_of_hashes(hash_keys(list(keys)), self._operator.key_groups))
        if part is not None:
            for runs in part.there():
                for run in runs.all() if places is None else runs.near(places):
                    add(_of_run(part, run, places), 1)
        for at, changes in self._changes:
            if at > epoch:
                add(_as_changes(part, changes[number], places), -1)
        return {key: there for key, there in out.items() if there}

    # -- to other replicas ---------------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        leave = chosen(groups, key_groups)
        parts = [part for _, part in self._operator.inputs_read()]
        parted = [
            (epoch, [_parted(part, some, leave, key_groups) for part, some in zip(parts, changes, strict=True)])
            for epoch, changes in self._changes
        ]
        self._changes = [(epoch, [left for _, left in some]) for epoch, some in parted]
        return [(epoch, [gone for gone, _ in some]) for epoch, some in parted], self._since

    def take(self, given: Any) -> None:
        changes, since = given
        self._since = max(self._since, since)
        self._changes += changes


def _rows(found: Iterable[tuple[Any, Any, int]], column: str | None) -> Entries:
    keys: list[Any] = []
    values: list[Any] = []
    for key, result, weight in found:
        often = 1 if column is None else weight
        keys += [key] * often
        values += [weight if column is None else result] * often
    return Entries(keys, {"count" if column is None else column: values})


def _as_changes(part: Part | None, changes: Changes, places: Any) -> Iterable[Change]:
    if changes is None or isinstance(changes, list):
        return changes or ()
    if isinstance(changes, Run):
        assert part is not None
        return _of_run(part, changes, places)
    return ((key, value, weight, None) for (key, value), weight in changes.items())


def _of_run(part: Part, run: Run, places: Any) -> Iterator[Change]:
    """The changes in a run, of these places (None: all), which ascend."""
    if places is None:
        return part.changes_in(run)
    some = np.flatnonzero(np.isin(run.place, places))
    return part.changes_in(run.at(some)) if len(some) else iter(())


def _parted(part: Part | None, changes: Changes, leave: Any, key_groups: int) -> tuple[list[Change], Changes]:
    """The changes of the key-groups that leave, and the others."""
    if isinstance(changes, Run):
        gone = leave[groups_of_places(changes.place, key_groups)]
        left = changes.some(~gone) if not gone.all() else None
        return list(_as_changes(part, changes.some(gone), None)) if gone.any() else [], left
    rows = list(_as_changes(part, changes, None))
    gone = _mask([key for key, *_ in rows], leave, key_groups)
    return [row for row, is_gone in zip(rows, gone, strict=True) if is_gone], [
        row for row, is_gone in zip(rows, gone, strict=True) if not is_gone
    ]


def _mask(keys: Collection[Any], leave: Any, key_groups: int) -> list[bool]:
    return leave[groups_of_keys(list(keys), key_groups)].tolist() if keys else []


__all__ = ["Arrived", "Changes", "CollectionAtEpochs", "InRows", "Results", "Shown", "Weights", "table_of_counts", "table_of_records"]
