"""Values by key that do not fit in memory, in sorted runs: key and value are pickled, each by itself.

A key is at one place: in the dict, where it changes, or in one row of one run. A key that is looked for goes up into the dict.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import repeat
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.state.runs.due_rows import DueRows
from rayad.dataflow.operators.state.runs.order import Places, Positions, places_of_hashes
from rayad.dataflow.operators.state.runs.rows_that_leave import RowsThatLeave
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import StoredRun
from rayad.dataflow.records.batches import take_rows
from rayad.dataflow.records.exact import wider_type
from rayad.dataflow.records.key_hashing import hash_keys
from rayad.progress import DataflowError, say, show

HASH, KEY, VALUE, MOMENT = "hash", "key", "value", "moment"
DECODED_ROWS = 1 << 12
"""So many rows are made into Python values at a time."""


class ValuesBelow(RowsThatLeave):
    """A row for each key: its hash, the key, its value and, where the values have one, its moment."""

    def __init__(self) -> None:
        super().__init__(1)
        self.there = 0
        """How many keys are here."""

    @property
    def is_empty(self) -> bool:
        return not self.there

    def places(self, rows: pa.RecordBatch) -> Places:
        return places_of_hashes(rows.column(HASH).to_numpy(), self.key_groups)

    def are_alike(self, asked: pa.RecordBatch, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Keys that are equal in Python may be pickled in several ways: 1 and True, or a tuple that has one string twice."""
        mine, theirs = asked.column(KEY), rows.column(KEY)
        alike: npt.NDArray[np.bool_] = np.array(pc.equal(mine, theirs).to_numpy(zero_copy_only=False))
        for at in np.flatnonzero(~alike).tolist():
            alike[at] = pickle.loads(mine[at].as_py()) == pickle.loads(theirs[at].as_py())
        return alike

    def add(self, runs: Iterable[Run]) -> None:
        super().add(self.fitted(list(runs)))

    def fitted(self, runs: list[Run]) -> list[Run]:
        """Where none had a moment so far the column has no type."""
        kind = _widest([*self._in_sequences(), *self._fresh, *runs])
        if kind is None:
            return runs
        self._change(lambda run: (_with_moments(run, kind),))
        self._fresh = [_with_moments(run, kind) for run in self._fresh]
        return [_with_moments(run, kind) for run in runs]

    def put_values(self, kept: dict[Any, Any], moments: pa.Array | None) -> None:
        """Keep these. None of their keys is here. ``moments``: of each, null where it has none; None: none has."""
        try:
            columns = {HASH: hash_keys(list(kept)), KEY: pickled(kept), VALUE: pickled(kept.values())}
        except Exception as error:
            raise unpicklable(kept.items(), error) from error
        self.put(pa.record_batch(columns if moments is None else {**columns, MOMENT: moments}))
        self.there += len(kept)

    def taken_out(self, keys: list[Any]) -> dict[Any, Any]:
        """Take out what those of these keys have that are here; they differ."""
        _, rows = self.rows_out(pa.record_batch({HASH: hash_keys(keys), KEY: pickled(keys)}))
        return self._gone_up([] if rows is None else [rows])

    def due(self, has_come: Callable[[Any], bool]) -> dict[Any, Any]:
        """Take out what some keys have for whose moments this holds, of each run the earliest; it holds for all moments before one for
        which it does. At most :data:`DECODED_ROWS` at a time: nothing comes where there are no more."""
        parts, most = [], DECODED_ROWS
        for run in self.all():
            rows = self._due_of(run, has_come, most)
            if len(rows):
                self.take_away(run, rows)
                parts.append(take_rows(run.rows, pa.array(rows)))
                most -= len(rows)
            if not most:
                break
        if parts:
            self.hold_bits()
        return self._gone_up(parts)

    def _due_of(self, run: Run, has_come: Callable[[Any], bool], most: int) -> Positions:
        if run.index is None:
            run.index = DueRows(run.rows.column(MOMENT))
        rows: Positions = run.index.come(has_come, most)
        while len(rows):
            here = self.left_of(run, rows)
            if here is None or here.any():
                return np.sort(rows if here is None else rows[here])
            rows = run.index.come(has_come, most)
        return rows

    def _gone_up(self, parts: Iterable[pa.RecordBatch]) -> dict[Any, Any]:
        out = {key: value for rows in parts for key, value in _items_of(rows)}
        self.there -= len(out)
        return out

    # -- to be looked at -------------------------------------------------------------
    def keys_here(self) -> Iterator[Any]:
        """The keys."""
        return (key for rows in self._pieces() for key in map(pickle.loads, rows.column(KEY).to_pylist()))

    def items_here(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values. They stay."""
        return (pair for rows in self._pieces() for pair in _items_of(rows))

    def parts(self) -> Iterator[dict[Any, Any]]:
        """The same, some after others."""
        return (dict(_items_of(rows)) for rows in self._pieces())

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        return (rows for run in self.each_live() for rows in _cut(run.rows))

    # -- snapshots, and to other replicas ----------------------------------------------
    def restore(self, stored: list[StoredRun]) -> None:
        super().restore(stored)
        self._count()

    def give(self, groups: frozenset[int], key_groups: int) -> list[StoredRun]:
        given = super().give(groups, key_groups)
        self._count()
        return given

    def take(self, given: list[StoredRun]) -> None:
        super().take(given)
        self._count()

    def _count(self) -> None:
        self.there = sum(len(run) if (stay := self.stay(run)) is None else int(np.count_nonzero(stay)) for run in self.all())


def _widest(runs: list[Run]) -> pa.DataType | None:
    """The type of the moments of all of them, where they are not of one."""
    kinds = {run.rows.schema.field(MOMENT).type for run in runs if MOMENT in run.rows.schema.names}
    return reduce(wider_type, kinds) if len(kinds) > 1 else None


def _with_moments(run: Run, kind: pa.DataType) -> Run:
    at = run.rows.schema.get_field_index(MOMENT)
    if run.rows.schema.field(at).type == kind:
        return run
    rows = run.rows.set_column(at, MOMENT, run.rows.column(at).cast(kind))
    return replace(run, rows=rows, index=None, size=None, file=None, is_mapped=False, in_memory=(), on_disk=False)


def keys_of(given: Iterable[StoredRun]) -> list[Any]:
    """The keys of what :meth:`ValuesBelow.give` gave."""
    below = ValuesBelow()
    rows = [below.live(run).rows for run in below.again(given)]
    return [pickle.loads(key) for batch in rows for key in batch.column(KEY).to_pylist()]


def unpicklable(kept: Collection[tuple[Any, Any]], error: Exception) -> DataflowError:
    """Which of these keys and values it was."""
    for key, value in kept:
        try:
            cloudpickle.dumps((key, value), 5)
        except Exception as again:
            error, what = again, f"what the key {show(key, 60)} has, {show(value, 60)}"
            break
    else:
        what = f"some of {len(kept)} keys and values"
    return DataflowError(
        f"state beyond memory is pickled, and {what} cannot be: {say(error)}; keep what can be pickled, or leave out "
        "RunConfig(state_memory_bytes=...): then all state stays in memory"
    )


def _cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (rows.slice(at, DECODED_ROWS) for at in range(0, rows.num_rows, DECODED_ROWS))


def _items_of(rows: pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
    keys, values = (map(pickle.loads, rows.column(name).to_pylist()) for name in (KEY, VALUE))
    return zip(keys, values, strict=True)


def pickled(values: Iterable[Any]) -> pa.Array:
    """Each of them by itself, as what can be read in another process, too."""
    some: Sequence[Any] = list(values)
    try:
        data = list(map(pickle.dumps, some, repeat(5)))
    except Exception:
        data = [cloudpickle.dumps(value, 5) for value in some]
    for at, each in enumerate(data):
        if b"__main__" in each:
            data[at] = cloudpickle.dumps(some[at], 5)
    return pa.array(data, pa.large_binary())


__all__ = ["DECODED_ROWS", "ValuesBelow", "keys_of", "pickled", "unpicklable"]
