"""The join's columnar half: both sides in sorted runs of columns, each arriving batch matched in bulk.

A row carries a code: its key when that is one integer column on both sides, else the key's 64-bit hash, and then the keys of what matches
are compared as well. A run is sorted by code; a batch that arrives is sorted once, searched for in the runs of the other side, and becomes
a run. Four runs of like size become one, so that there are few to search and a row is copied a logarithmic number of times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.columnar import ROWS_KEY, keyed_columns, mark_keyed, to_rows
from rayad.dataflow.elements import Element
from rayad.dataflow.graph import KeySelector
from rayad.dataflow.hashing import hash_columns
from rayad.dataflow.operators.column_keys import Numbers, plain
from rayad.dataflow.operators.column_match import matches
from rayad.dataflow.operators.column_results import pair_array
from rayad.dataflow.operators.column_windows import one_batch
from rayad.dataflow.operators.keyed import distinct_names, require_columns
from rayad.dataflow.operators.stored_columns import narrow, stored, taken_back
from rayad.dataflow.operators.touched_keys import MutableAdditions
from rayad.progress import Timestamp

RECORD_KEY = b"rayad.record"
"""In a schema's metadata: the order of the record's own columns, and how its rows are read."""
_FAN_IN = 4
_SMALL_RUN = 1 << 12


class NotColumnar(Exception):
    """These columns do not go together as columns: the join goes on with rows."""


@dataclass(slots=True)
class KeyFirst(Element):
    """Batches for a join: the key columns first, the record's other columns behind them; rows as ``(key, record)``."""

    key: KeySelector

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and self.key.columns and len(set(self.key.columns)) == len(self.key.columns):
            require_columns(batch, self.key.columns)
            usable = plain(batch, self.key.columns)
            if usable is not None:
                return key_first(usable, self.key.columns)
        rows = to_rows(batch)
        return list(zip(map(self.key.row_key(), rows), rows, strict=True))


def key_first(batch: pa.RecordBatch, keys: tuple[str, ...], extra: tuple[tuple[str, pa.Array], ...] = ()) -> pa.RecordBatch:
    """The batch with its key columns in front, then ``extra`` columns; its metadata says how to get the record back."""
    require_columns(batch, keys)
    names = batch.schema.names
    order = [*(names.index(name) for name in keys), *(i for i, name in enumerate(names) if name not in keys)]
    mark = (batch.schema.metadata or {}).get(ROWS_KEY)
    back = {"order": [order.index(i) for i in range(len(order))], "mark": mark.decode() if mark else None}
    at = len(keys)
    back |= {"keys": at, "extra": len(extra)}
    columns, labels = [batch.column(i) for i in order], [names[i] for i in order]
    taken = distinct_names(labels, [name for name, _ in extra])[len(labels) :]
    columns[at:at], labels[at:at] = [column for _, column in extra], taken
    out = pa.RecordBatch.from_arrays(columns, names=labels).replace_schema_metadata({RECORD_KEY: json.dumps(back).encode()})
    return mark_keyed(out, at)


def record_of(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The records of a batch with the columns of ``schema``, which :func:`key_first` made."""
    back = json.loads(schema.metadata[RECORD_KEY])
    keys, extra = back["keys"], back["extra"]
    at = [i if i < keys else i + extra for i in back["order"]]
    out = pa.RecordBatch.from_arrays([batch.column(i) for i in at], names=[schema.names[i] for i in at])
    return out.replace_schema_metadata({ROWS_KEY: back["mark"].encode()}) if back["mark"] else out


def keys_of(batch: pa.RecordBatch) -> list[Any]:
    """The key of each row, as a Python object."""
    columns = [batch.column(i).to_pylist() for i in range(keyed_columns(batch.schema) or 0)]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def pairs_of(batch: Any) -> list[Any]:
    """What :class:`KeyFirst` gave as ``(key, record)`` pairs."""
    if not isinstance(batch, pa.RecordBatch):
        return to_rows(batch)
    return list(zip(keys_of(batch), to_rows(record_of(batch, batch.schema)), strict=True))


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both without loss, so that columns compare keys of these types as Python does; None: there is none.

    >>> common_type(pa.int8(), pa.float32()), common_type(pa.int64(), pa.float64())
    (DataType(double), None)
    """
    left, right = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (left, right))
    if left.equals(right):
        return left
    if _is_text(left) and _is_text(right):
        return pa.large_string()
    if not (_is_number(left) and _is_number(right)):
        return None
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        if pa.types.is_unsigned_integer(left) and pa.types.is_unsigned_integer(right):
            return pa.uint64()
        return None if pa.uint64() in (left, right) else pa.int64()
    exact = all(pa.types.is_floating(kind) or kind.bit_width <= 32 for kind in (left, right))
    return pa.float64() if exact else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def in_common(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Two columns in their :func:`common_type`."""
    kind = common_type(left.type, right.type)
    assert kind is not None
    return left.cast(kind), right.cast(kind)


def equal_keys(left: pa.Array, right: pa.Array) -> Any:
    """Where two columns are equal, null to null, as a numpy mask."""
    left, right = in_common(left, right)
    same = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        same = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    return same.to_numpy(zero_copy_only=False)


@dataclass(slots=True)
class Run:
    """Rows as they came, and an index of them: sorted ``codes`` with the positions of their rows.

    ``times`` are numbers of the rows' times, one for all or shape (rows,).
    """

    codes: Numbers
    positions: Any
    rows: pa.RecordBatch
    times: Any

    @property
    def tier(self) -> int:
        """Its order of magnitude."""
        return int(math.log(max(1.0, len(self.codes) / _SMALL_RUN), _FAN_IN))

    @staticmethod
    def of(codes: Numbers, rows: pa.RecordBatch, times: Any) -> Run:
        """An index of codes in the order of the rows."""
        if len(codes) > 1 and not (codes[1:] >= codes[:-1]).all():
            order = np.argsort(codes)
            return Run(codes[order], order, rows, times)
        return Run(codes, np.arange(len(codes)), rows, times)

    @staticmethod
    def together(runs: list[Run]) -> Run:
        """Several runs as one."""
        if len(runs) == 1:
            return runs[0]
        times = runs[0].times
        if any(not isinstance(r.times, int) or r.times != times for r in runs):
            times = np.concatenate([np.full(len(r.codes), r.times, np.int32) if isinstance(r.times, int) else r.times for r in runs])
        codes = np.concatenate([r.codes for r in runs])
        begins = np.cumsum([0, *(len(r.codes) for r in runs)])
        positions = np.concatenate([r.positions + begin for r, begin in zip(runs, begins[:-1], strict=True)])
        order = np.argsort(codes, kind="stable")  # they are sorted already: it merges them
        return Run(codes[order], positions[order], one_batch(pa.Table.from_batches([r.rows for r in runs])), times)


class MutableColumnJoin:
    """All rows of both sides so far."""

    def __init__(self) -> None:
        self.schemas: list[pa.Schema | None] = [None, None]
        self.runs: list[list[Run]] = [[], []]
        self._fresh: list[list[Run]] = [[], []]
        """Not searched yet: together they become a run when a batch of the other side comes."""
        self.times: list[Timestamp] = []
        self._numbers: dict[Timestamp, int] = {}
        self.hashed = False
        """Whether codes are hashes."""
        self._rows = self._times_written = 0
        self._added = MutableAdditions()

    def accept(self, side: int, batch: pa.RecordBatch, time: Timestamp) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        """Take a batch in and give its pairs with the other side's rows. Raises NotColumnar, at once, when rows must do it."""
        known = self.schemas[side]
        if known is None:
            self._learn(side, batch.schema)
        elif not known.equals(batch.schema, check_metadata=True):
            raise NotColumnar
        if not self.hashed and batch.column(0).null_count:
            self._hash_all()
        number = self._numbers.get(time)
        if number is None:
            number = self._numbers[time] = len(self.times)
            self.times.append(time)
        run = self._put(side, batch, number)
        self._added.note((side, batch, number), batch.num_rows, self._rows)
        return self._pairs(side, run, time)

    def _put(self, side: int, batch: pa.RecordBatch, times: Any) -> Run:
        run = Run.of(self._codes(batch), batch, times)
        self._fresh[side].append(run)
        self._rows += batch.num_rows
        return run

    def _learn(self, side: int, schema: pa.Schema) -> None:
        keys = keyed_columns(schema) or 0
        kinds = [schema.field(i).type for i in range(keys)]
        other = self.schemas[1 - side]
        if other is not None:
            theirs = [other.field(i).type for i in range(keyed_columns(other) or 0)]
            if len(theirs) != keys or None in map(common_type, kinds, theirs):
                raise NotColumnar
        self.schemas[side] = schema
        if not self.hashed and not (keys == 1 and pa.types.is_integer(kinds[0]) and kinds[0] != pa.uint64()):
            self._hash_all()

    def _codes(self, batch: pa.RecordBatch) -> Numbers:
        if not self.hashed:
            return batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]
        return hash_columns([batch.column(i) for i in range(keyed_columns(batch.schema) or 0)]).view(np.int64)

    def _hash_all(self) -> None:
        self.hashed = True
        for runs in (*self.runs, *self._fresh):
            runs[:] = [Run.of(self._codes(run.rows), run.rows, run.times) for run in runs]

    def _searchable(self, side: int) -> list[Run]:
        """The runs of a side, few of each order of magnitude."""
        runs, fresh = self.runs[side], self._fresh[side]
        if fresh:
            runs.append(Run.together(fresh))
            fresh.clear()
            while len(runs) >= _FAN_IN and runs[-_FAN_IN].tier <= runs[-1].tier:
                runs[-_FAN_IN:] = [Run.together(runs[-_FAN_IN:])]
        return runs

    def _pairs(self, side: int, batch: Run, time: Timestamp) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        for run in list(self._searchable(1 - side)):
            for mine, theirs in matches(batch.codes, run.codes):
                at_mine, at_theirs = batch.positions[mine], run.positions[theirs]
                if isinstance(run.times, int):
                    yield from self._met(side, batch.rows, at_mine, run.rows, at_theirs, time.join(self.times[run.times]))
                    continue
                then = run.times[at_theirs]
                upper: dict[Timestamp, list[int]] = {}
                for number in np.flatnonzero(np.bincount(then)).tolist():
                    upper.setdefault(time.join(self.times[number]), []).append(number)
                for at, numbers in upper.items():
                    some = slice(None) if len(upper) == 1 else np.isin(then, numbers)
                    yield from self._met(side, batch.rows, at_mine[some], run.rows, at_theirs[some], at)

    def _met(
        self, side: int, batch: pa.RecordBatch, mine: Any, others: pa.RecordBatch, theirs: Any, at: Timestamp
    ) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        met = batch.take(pa.array(mine)), others.take(pa.array(theirs))
        left, right = met if side == 0 else met[::-1]
        keys = keyed_columns(batch.schema) or 0
        if self.hashed:
            same = np.logical_and.reduce([equal_keys(left.column(i), right.column(i)) for i in range(keys)])
            if not same.all():
                left, right = left.filter(pa.array(same)), right.filter(pa.array(same))
        if left.num_rows:
            yield at, joined_batch(left, right, self.schemas)

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> dict[str, Any]:
        """The rows of each run and the numbers of their times; what is sorted is sorted anew by :meth:`restore`."""
        runs = [(side, run.rows, run.times) for side in (0, 1) for run in self.runs[side]]
        fresh = [(side, run.rows, run.times) for side in (0, 1) for run in self._fresh[side]]
        return {"hashed": self.hashed, "times": self.times, "runs": [_stored_rows([one]) for one in runs], "fresh": _stored_sides(fresh)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.hashed = state["hashed"]
        self._put_back(state["times"], state["runs"])
        self.runs, self._fresh = self._fresh, [[], []]
        self._put_back([], state["fresh"])

    def take_changes(self) -> Callable[[], Any] | None:
        """The rows that have come since the last call; None where these are more than half of all."""
        known, added = self._times_written, self._added.take()
        self._times_written = len(self.times)
        return None if added is None else lambda: (self.times[known:], _stored_sides(added))

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        self._put_back(*changes)

    def _put_back(self, times: list[Timestamp], parts: list[Any]) -> None:
        for time in times:
            self._numbers[time] = len(self.times)
            self.times.append(time)
        for side, rows, numbers in parts:
            batch = taken_back(rows)[0]
            if self.schemas[side] is None:
                self._learn(side, batch.schema)
            if not self.hashed and batch.column(0).null_count:
                self._hash_all()
            self._put(side, batch, numbers if isinstance(numbers, int) else numbers.astype(np.int32))

    # -- to rows -------------------------------------------------------------------
    def sides(self) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
        """All rows as ``{key: [(record, time)]}``."""
        out: tuple[dict[Any, list[Any]], dict[Any, list[Any]]] = ({}, {})
        for side in (0, 1):
            for run in self.runs[side] + self._fresh[side]:
                times = [run.times] * len(run.codes) if isinstance(run.times, int) else run.times.tolist()
                for (key, record), time in zip(pairs_of(run.rows), times, strict=True):
                    out[side].setdefault(key, []).append((record, self.times[time]))
        return out


_Part = tuple[int, pa.RecordBatch, Any]
"""Side, rows, numbers of their times."""


def _stored_sides(parts: Sequence[_Part]) -> list[Any]:
    sides = [[part for part in parts if part[0] == side] for side in (0, 1)]
    return [_stored_rows(some) for some in sides if some]


def _stored_rows(parts: Sequence[_Part]) -> tuple[int, Any, Any]:
    """Rows of one side together."""
    times = parts[0][2]
    if any(not isinstance(numbers, int) or numbers != times for _, _, numbers in parts):
        times = narrow(np.concatenate([np.broadcast_to(numbers, rows.num_rows) for _, rows, numbers in parts]))
    return parts[0][0], stored([one_batch(pa.Table.from_batches([rows for _, rows, _ in parts]))]), times


def joined_batch(
    left: pa.RecordBatch, right: pa.RecordBatch, schemas: Any, between: tuple[tuple[str, pa.Array], ...] = ()
) -> pa.RecordBatch:
    """Rows that have met: the left side's key columns, ``between``, and the column ``pair``."""
    keys = keyed_columns(schemas[0]) or 0
    right_names = schemas[1].names[: keyed_columns(schemas[1]) or 0]
    pairs = pair_array(record_of(left, schemas[0]), record_of(right, schemas[1]), right_names)
    labels = distinct_names(schemas[0].names[:keys], [*(name for name, _ in between), "pair"])
    columns = [*left.columns[:keys], *(column for _, column in between), pairs]
    return mark_keyed(pa.RecordBatch.from_arrays(columns, names=labels), keys)


__all__ = ["KeyFirst", "MutableColumnJoin", "NotColumnar", "joined_batch", "key_first", "pairs_of", "record_of"]
