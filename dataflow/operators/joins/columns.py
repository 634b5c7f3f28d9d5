"""The join's columnar half: both sides in sorted runs of columns, each arriving batch matched in bulk.

A row carries a code: its key when that is one integer column on both sides, else the key's 64-bit hash, and then the keys of what matches
are compared as well. A run is sorted by code; a batch that arrives is sorted once, searched for in the runs of the other side, and becomes
a run. Four runs of like size become one, so that there are few to search and a row is copied a logarithmic number of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.matching import matches
from rayad.dataflow.operators.keys.column_keys import Numbers, common_type, equal_keys
from rayad.dataflow.operators.keys.key_first import pairs_of, record_of
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.results import pair_array
from rayad.dataflow.operators.state.group_index import Groups, chosen, compacted
from rayad.dataflow.operators.state.stored_columns import narrow, stored, taken_back
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.records.batches import keyed_columns, mark_keyed, no_rows, one_batch, take_rows
from rayad.dataflow.records.key_hashing import groups_of_hashes, hash_columns, mix64_array
from rayad.progress import Timestamp

_FAN_IN = 4
_SMALL_RUN = 1 << 12


class NotColumnar(Exception):
    """These columns do not go together as columns: the join goes on with rows."""


@dataclass(slots=True)
class SortedRun:
    """Rows as they came, and an index of them: sorted ``codes`` with the positions of their rows.

    ``times`` are numbers of the rows' times, one for all or shape (rows,).
    """

    codes: Numbers
    positions: Any
    rows: pa.RecordBatch
    times: Any
    groups: Groups | None = None
    """The key-group of each row, while a change of layout needs it."""

    @property
    def tier(self) -> int:
        """Its order of magnitude."""
        return int(math.log(max(1.0, len(self.codes) / _SMALL_RUN), _FAN_IN))

    @staticmethod
    def of(codes: Numbers, rows: pa.RecordBatch, times: Any) -> SortedRun:
        """An index of codes in the order of the rows."""
        if len(codes) > 1 and not (codes[1:] >= codes[:-1]).all():
            order = np.argsort(codes)
            return SortedRun(codes[order], order, rows, times)
        return SortedRun(codes, np.arange(len(codes)), rows, times)

    @staticmethod
    def together(runs: list[SortedRun]) -> SortedRun:
        """Several runs as one."""
        if len(runs) == 1:
            return runs[0]
        times = runs[0].times
        if any(not isinstance(r.times, int) or r.times != times for r in runs):
            times = np.concatenate([np.full(len(r.codes), r.times, np.int32) if isinstance(r.times, int) else r.times for r in runs])
        groups = None
        if all(r.groups is not None for r in runs):
            groups = np.concatenate([r.groups for r in runs if r.groups is not None])
        codes = np.concatenate([r.codes for r in runs])
        begins = np.cumsum([0, *(len(r.codes) for r in runs)])
        positions = np.concatenate([r.positions + begin for r, begin in zip(runs, begins[:-1], strict=True)])
        order = np.argsort(codes, kind="stable")  # they are sorted already: it merges them
        return SortedRun(codes[order], positions[order], one_batch(pa.Table.from_batches([r.rows for r in runs])), times, groups)


class ColumnJoin(ColumnForm):
    """All rows of both sides so far."""

    def __init__(self) -> None:
        self.schemas: list[pa.Schema | None] = [None, None]
        self.runs: list[list[SortedRun]] = [[], []]
        self._fresh: list[list[SortedRun]] = [[], []]
        """Not searched yet: together they become a run when a batch of the other side comes."""
        self.times: list[Timestamp] = []
        self._numbers: dict[Timestamp, int] = {}
        self.hashed = False
        """Whether codes are hashes."""
        self._rows = self._times_written = 0
        self._given: set[int] = set()
        """Groups that were given to another replica; their rows are still here, see :meth:`gave`."""
        self._added = Additions()

    @property
    def is_used(self) -> bool:
        return self._rows > 0

    def accept(self, side: int, batch: pa.RecordBatch, time: Timestamp) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        """Take a batch in and give its pairs with the other side's rows. Raises NotColumnar, at once, when rows must do it."""
        known = self.schemas[side]
        if known is None:
            self._learn(side, batch.schema)
        elif not known.equals(batch.schema, check_metadata=True):
            raise NotColumnar
        if not self.hashed and batch.column(0).null_count:
            self._hash_all()
        number = self._number(time)
        run = self._put(side, batch, number)
        self._added.note((side, batch, number), batch.num_rows, self._rows)
        return self._pairs(side, run, time)

    def _number(self, time: Timestamp) -> int:
        number = self._numbers.get(time)
        if number is None:
            number = self._numbers[time] = len(self.times)
            self.times.append(time)
        return number

    def _put(self, side: int, batch: pa.RecordBatch, times: Any) -> SortedRun:
        run = SortedRun.of(self._codes(batch), batch, times)
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
            runs[:] = [replace(SortedRun.of(self._codes(run.rows), run.rows, run.times), groups=run.groups) for run in runs]

    def _searchable(self, side: int) -> list[SortedRun]:
        """The runs of a side, few of each order of magnitude."""
        runs, fresh = self.runs[side], self._fresh[side]
        if fresh:
            runs.append(self._together(fresh))
            fresh.clear()
            while len(runs) >= _FAN_IN and runs[-_FAN_IN].tier <= runs[-1].tier:
                runs[-_FAN_IN:] = [self._together(runs[-_FAN_IN:])]
        return runs

    def _pairs(self, side: int, batch: SortedRun, time: Timestamp) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
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
        self._drop_given()
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

    def forget_changes(self) -> None:
        """The next of :meth:`take_changes` gives None."""
        self._added.forget()

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
    def as_rows(self) -> Sides:
        """All rows as ``{key: [(record, time)]}``."""
        self._drop_given()
        out: tuple[dict[Any, list[Any]], dict[Any, list[Any]]] = ({}, {})
        for side in (0, 1):
            for run in self.runs[side] + self._fresh[side]:
                times = [run.times] * len(run.codes) if isinstance(run.times, int) else run.times.tolist()
                _put_rows(out[side], run.rows, [self.times[number] for number in times])
        return out

    # -- to other replicas ---------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        """Find out the key-group of each row, a run at a time."""
        for run in [run for runs in (*self.runs, *self._fresh) for run in runs]:
            self._groups_of(run, key_groups)
            yield

    def _groups_of(self, run: SortedRun, key_groups: int) -> Groups:
        if run.groups is None:
            hashes = run.codes.view(np.uint64) if self.hashed else mix64_array(run.codes)  # a code is the key or its hash
            run.groups = np.empty(len(run.codes), np.uint16)
            run.groups[run.positions] = groups_of_hashes(hashes, key_groups)
        return run.groups

    def give(self, groups: frozenset[int], key_groups: int) -> LeavingRows | None:
        """The rows of these groups. They are not taken out before :meth:`gave`: nothing meets them, since no records of these
        groups come any more."""
        self._given |= groups
        leaves = chosen(groups, key_groups)
        times: dict[int, int] = {}
        parts: list[_Part] = []
        for side in (0, 1):
            for run in self.runs[side] + self._fresh[side]:
                rows = np.flatnonzero(leaves[self._groups_of(run, key_groups)])
                if not len(rows):
                    continue
                self._rows -= len(rows)
                if isinstance(run.times, int):
                    numbers: Any = times.setdefault(run.times, len(times))
                else:
                    used, which = np.unique(run.times[rows], return_inverse=True)
                    numbers = np.array([times.setdefault(number, len(times)) for number in used.tolist()], np.int32)[which]
                parts.append((side, compacted(take_rows(run.rows, pa.array(rows))), numbers))
        return ([self.times[number] for number in times], parts) if parts else None

    def fits(self, given: LeavingRows) -> bool:
        """Whether the rows of a sibling have the schemas of those here, or ones that go together with the other side's."""
        try:
            for side, batch, _ in given[1]:
                known = self.schemas[side]
                if known is None:
                    self._learn(side, batch.schema)
                elif not known.equals(batch.schema, check_metadata=True):
                    return False
        except NotColumnar:
            return False
        return True

    def take(self, given: LeavingRows) -> None:
        """Keep what :meth:`give` gave."""
        self._drop_given()
        times, parts = given
        own = np.array([self._number(time) for time in times], np.int32)
        for side, batch, numbers in parts:
            if not self.hashed and batch.column(0).null_count:
                self._hash_all()
            self._put(side, batch, int(own[numbers]) if isinstance(numbers, int) else own[numbers])

    def gave(self) -> None:
        """The change of layout is over: what was given goes."""
        self._drop_given()
        for runs in (*self.runs, *self._fresh):
            for run in runs:
                run.groups = None

    def _drop_given(self) -> None:
        if not self._given:
            return
        for runs in (*self.runs, *self._fresh):
            runs[:] = [left for left in (self._without_given(run) for run in runs) if len(left.codes)]
        self._given = set()

    def _together(self, runs: list[SortedRun]) -> SortedRun:
        return SortedRun.together([self._without_given(run) for run in runs] if self._given else runs)

    def _without_given(self, run: SortedRun) -> SortedRun:
        if run.groups is None:
            return run  # it has come since
        stays = ~np.isin(run.groups, list(self._given))
        if stays.all():
            return run
        indexed = stays[run.positions]
        positions = (np.cumsum(stays) - 1)[run.positions[indexed]]
        times = run.times if isinstance(run.times, int) else run.times[stays]
        return SortedRun(run.codes[indexed], positions, take_rows(run.rows, pa.array(np.flatnonzero(stays))), times, run.groups[stays])

    def schema_of(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Of pairs, as long as both sides are like these; to be asked before anything comes."""
        left, right = [None if schema is None else no_rows(schema) for schema in inputs]
        if left is None or right is None:
            return None
        try:
            self._learn(0, left.schema)
            self._learn(1, right.schema)
        except NotColumnar:
            return None
        return joined_batch(left, right, self.schemas).schema


_Part = tuple[int, pa.RecordBatch, Any]
"""Side, rows, numbers of their times."""


LeavingRows: TypeAlias = tuple[list[Timestamp], list[_Part]]
"""Rows on their way to another replica, and their times by number."""
Sides: TypeAlias = tuple[dict[Any, list[Any]], dict[Any, list[Any]]]
"""Rows of both sides as ``{key: [(record, time)]}``."""


def _put_rows(side: dict[Any, list[Any]], batch: pa.RecordBatch, times: list[Timestamp]) -> None:
    for (key, record), time in zip(pairs_of(batch), times, strict=True):
        side.setdefault(key, []).append((record, time))


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


def alone_batch(side: int, batch: pa.RecordBatch, schemas: Any, between: tuple[tuple[str, pa.Array], ...] = ()) -> pa.RecordBatch:
    """Records of one side as pairs without the other, as :func:`joined_batch` has them. Raises NotColumnar where the right side's keys
    are none of the type that the left side's have."""
    schema, other = schemas[side], schemas[1 - side]
    keys = keyed_columns(schema) or 0
    columns = batch.columns[:keys]
    if other is not None and side == 1:
        try:
            columns = [column.cast(other.field(i).type) for i, column in enumerate(columns)]
        except pa.ArrowInvalid as error:
            raise NotColumnar from error
    missing = pa.schema([]) if other is None else record_of(pa.RecordBatch.from_pylist([], schema=other), other).schema
    records = record_of(batch, schema)
    sides = (records, missing) if side == 0 else (missing, records)
    named, right = (other or schema, schema) if side == 1 else (schema, other)
    pairs = pair_array(*sides, [] if right is None else right.names[:keys])
    labels = distinct_names(named.names[:keys], [*(name for name, _ in between), "pair"])
    return mark_keyed(pa.RecordBatch.from_arrays([*columns, *(column for _, column in between), pairs], names=labels), keys)


def common_schema(side: int, batches: Sequence[pa.RecordBatch], schemas: Any) -> pa.Schema:
    """The schema of these batches of a side. Raises NotColumnar unless they go together with each other and with what is known of both
    sides: keys, and places in time, which are behind them."""
    known = schemas[side] or batches[0].schema
    keys = keyed_columns(known) or 0
    if any(not b.schema.equals(known, check_metadata=True) for b in batches):
        raise NotColumnar
    other = schemas[1 - side]
    if other is not None and (
        keys != keyed_columns(other)
        or any(common_type(known.field(i).type, other.field(i).type) is None for i in range(keys))
        or not known.field(keys).type.equals(other.field(keys).type)
    ):
        raise NotColumnar
    return known


__all__ = ["ColumnJoin", "NotColumnar", "alone_batch", "common_schema", "joined_batch"]
