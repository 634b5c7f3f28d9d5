"""The interval join's columnar half: the records of each side that are not settled, in runs that are sorted by key and event time.

A row carries the 64-bit hash of its key and its event time in ticks (``windows.panes``). A batch that arrives is sorted once, searched for
in the runs of the other side, and becomes a run; four runs of like size become one. Keys of what matches are compared as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.columns import NotColumnar, alone_batch, common_schema, joined_batch
from rayad.dataflow.operators.joins.matching import ALONE, LEFT_ONLY, OWED, How, Positions, matches_within
from rayad.dataflow.operators.keys.column_keys import Numbers, equal_keys
from rayad.dataflow.operators.keys.key_first import has_key, keys_of, record_of
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.results import record_array
from rayad.dataflow.operators.state.group_index import chosen, compacted
from rayad.dataflow.operators.state.stored_columns import stored, stored_mixed, taken_back, taken_back_mixed
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.operators.windows.panes import ticks
from rayad.dataflow.records.batches import keyed_columns, mark_keyed, one_batch, take_rows, to_rows
from rayad.dataflow.records.event_times import DAY_TICKS, exact_moment
from rayad.dataflow.records.key_hashing import groups_of_hashes, hash_columns
from rayad.dataflow.windows import Between

_FAN_IN = 4
_SMALL_RUN = 1 << 12
_TICKS_MAX = 1 << 61
"""Event times in columns are nearer to 0 than this, so sums of two do not overflow."""
_DAY_NS, _MICROSECOND_NS = DAY_TICKS * 1_000, 1_000


@dataclass(slots=True)
class Run:
    """Rows in the order of (code, tick)."""

    codes: Numbers
    ticks: Positions
    rows: pa.RecordBatch
    owed: Any
    """Of each row whether it is owed a result of its own, since it has met none, shape (rows,)."""
    limit: int = -_TICKS_MAX
    """Rows before this tick are settled; they go when they are half of all."""

    @property
    def tier(self) -> int:
        """Its order of magnitude."""
        return int(math.log(max(1.0, len(self.codes) / _SMALL_RUN), _FAN_IN))

    @staticmethod
    def of(rows: pa.RecordBatch, keys: int, owed: Any) -> Run:
        """Rows whose event times are behind ``keys`` columns of keys."""
        codes = hash_columns(rows.columns[:keys]).view(np.int64)
        moments = ticks(rows.column(keys))
        order = np.lexsort((moments, codes))
        return Run(codes[order], moments[order], take_rows(rows, pa.array(order)), owed[order])

    def some(self, rows: Any) -> Run:
        """Those that a mask says."""
        if rows.all():
            return self
        at = np.flatnonzero(rows)
        return Run(self.codes[at], self.ticks[at], take_rows(self.rows, pa.array(at)), self.owed[at], self.limit)

    def live(self) -> Run:
        """Those that are not settled."""
        return self.some(self.ticks >= self.limit)

    @staticmethod
    def together(runs: Sequence[Run], keys: int) -> Run:
        """Several as one."""
        runs = [run.live() for run in runs]
        return Run.of(one_batch(pa.Table.from_batches([run.rows for run in runs])), keys, np.concatenate([run.owed for run in runs]))


class IntervalColumns(ColumnForm):
    """Records of both sides that are not settled, in columns."""

    def __init__(self, between: Between, how: How) -> None:
        self.between = between
        self.how = how
        lower, upper = exact_moment(between.lower), exact_moment(between.upper)
        self._reach = ((lower, upper), (-upper, -lower))
        self.schemas: list[pa.Schema | None] = [None, None]
        self.runs: list[list[Run]] = [[], []]
        self._added = Additions()
        self._settled: Any = None  # the last watermark

    @property
    def rows(self) -> int:
        """Records kept."""
        return sum(len(run.codes) for runs in self.runs for run in runs)

    @property
    def is_used(self) -> bool:
        return any(self.runs)

    # -- ticks ---------------------------------------------------------------------
    def _first(self, side: int, moment: Any) -> int:
        """The first tick at or beyond an exact moment."""
        per = self._per_tick(side)
        return min(max(int(-(-moment // per)), -_TICKS_MAX), _TICKS_MAX)

    def _per_tick(self, side: int) -> int:
        schema = self.schemas[side]
        assert schema is not None
        bound = schema.field(self._keys(side)).type
        if pa.types.is_date(bound):
            return _DAY_NS
        if pa.types.is_timestamp(bound) or pa.types.is_duration(bound):
            return 1 if bound.unit == "ns" else _MICROSECOND_NS
        return 1

    def _keys(self, side: int) -> int:
        return keyed_columns(self.schemas[side]) or 0

    # -- records -------------------------------------------------------------------
    def check(self, side: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Raises NotColumnar, with nothing changed, unless these go together with each other and with what is kept."""
        self.schemas[side] = common_schema(side, batches, self.schemas)

    def accept(self, side: int, batches: Sequence[pa.RecordBatch], mark: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; gives those that are late at a watermark, as ``(key, record)``, and results. To be called after
        :meth:`check`."""
        batch = one_batch(pa.Table.from_batches([b.replace_schema_metadata(None) for b in batches]))
        self._added.note((side, batch, mark), batch.num_rows, self.rows + batch.num_rows)
        late: list[Any] = []
        if mark is not None:
            behind = ticks(batch.column(self._keys(side))) < self._first(side, exact_moment(mark))
            if behind.any():
                late = self._pairs(side, batch.filter(pa.array(behind)))
                batch = batch.filter(pa.array(~behind))
        if not batch.num_rows:
            return late, []
        run = Run.of(batch, self._keys(side), np.full(batch.num_rows, OWED[self.how][side]))
        out = list(self._meet(side, run))
        self._keep(side, [run])
        return late, out

    def _keep(self, side: int, more: Sequence[Run]) -> None:
        runs = self.runs[side]
        for run in more:
            runs.append(run)
            while len(runs) >= _FAN_IN and runs[-_FAN_IN].tier <= runs[-1].tier:
                runs[-_FAN_IN:] = [Run.together(runs[-_FAN_IN:], self._keys(side))]

    def _meet(self, side: int, run: Run) -> Iterator[pa.RecordBatch]:
        """The results of records with those of the other side within their intervals."""
        low, high = self._reach[side]
        lows = run.ticks + self._first(side, low)
        highs = run.ticks - self._first(side, -high)  # the last tick at or before
        for other in self.runs[1 - side]:
            for mine, theirs in matches_within(run.codes, lows, highs, other.codes, other.ticks):
                left, right = ((run, mine), (other, theirs))[:: 1 if side == 0 else -1]
                yield from self._met(*left, *right)

    def _met(self, left: Run, at_left: Positions, right: Run, at_right: Positions) -> Iterator[pa.RecordBatch]:
        met = [take_rows(run.rows, pa.array(at)) for run, at in ((left, at_left), (right, at_right))]
        keys = self._keys(0)
        same = np.logical_and.reduce([equal_keys(met[0].column(i), met[1].column(i)) for i in range(keys)])
        if all(ALONE[self.how]):  # then both sides have kept records with a null key
            same = same & has_key(met[0], keys) & has_key(met[1], keys)
        if not same.all():
            at_left, at_right = at_left[same], at_right[same]
            met = [batch.filter(pa.array(same)) for batch in met]
        if not len(at_left):
            return
        if self.how not in LEFT_ONLY:
            yield joined_batch(met[0], met[1], self.schemas)
        elif self.how == "semi":
            first = np.unique(at_left[left.owed[at_left]])
            if len(first):
                yield self._records(take_rows(left.rows, pa.array(first)))
        left.owed[at_left] = right.owed[at_right] = False

    def due(self, mark: Any) -> list[Any]:
        """The records that are settled at a watermark (None: all) and met none, where the join gives these: batches, or lists of rows
        where columns cannot say it. They are forgotten."""
        self._settled = mark
        if mark is None:
            self._added.forget()
        out: list[Any] = []
        for side, runs in enumerate(self.runs):
            if runs:
                limit = _TICKS_MAX if mark is None else self._first(side, exact_moment(mark) - self._reach[side][1])
                self.runs[side] = [left for run in runs if (left := self._settle(side, run, limit, out)) is not None]
        return out

    def _settle(self, side: int, run: Run, limit: int, out: list[Any]) -> Run | None:
        """What is left of a run; ``out`` gets what is owed."""
        settled = run.ticks < limit
        count = int(np.count_nonzero(settled))
        if not count:
            return run
        alone = settled & run.owed
        if ALONE[self.how][side] and alone.any():
            out.append(self._alone(side, run.some(alone).rows))
        if count == len(settled):
            return None
        run.owed[settled] = False
        run.limit = max(run.limit, limit)
        return run.live() if 2 * count > len(settled) else run

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Records of the left side: key columns, ``record``."""
        schema = self.schemas[0]
        assert schema is not None
        keys = self._keys(0)
        columns = [*batch.columns[:keys], record_array(record_of(batch, schema))]
        return mark_keyed(pa.RecordBatch.from_arrays(columns, names=distinct_names(schema.names[:keys], ["record"])), keys)

    def _alone(self, side: int, batch: pa.RecordBatch) -> Any:
        if self.how == "anti":
            return self._records(batch)
        try:
            return alone_batch(side, batch, self.schemas)
        except NotColumnar:
            return [(key, (None, record)) for key, record in self._pairs(side, batch)]

    def _pairs(self, side: int, batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
        """``(key, record)``."""
        schema = self.schemas[side]
        assert schema is not None
        return list(zip(keys_of(batch.replace_schema_metadata(schema.metadata)), to_rows(record_of(batch, schema)), strict=True))

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """The schemas, and of each side the rows that are not settled, and which are owed a result."""
        live = [[run.live() for run in runs] for runs in self.runs]
        return list(self.schemas), [[(stored([run.rows]), run.owed.copy()) for run in runs] for runs in live]

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.schemas = list(state[0])
        for side, parts in enumerate(state[1]):
            self.runs[side] = [Run.of(taken_back(rows)[0], self._keys(side), owed) for rows, owed in parts]

    def take_changes(self) -> Callable[[], Any] | None:
        """The batches that have come, and the watermark up to which records are settled: who has met whom follows from them."""
        added, settled, schemas = self._added.take(), self._settled, list(self.schemas)
        if added is None:
            return None
        return lambda: (schemas, [(side, stored_mixed([batch]), mark) for side, batch, mark in added], settled)

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        self.schemas, added, settled = list(changes[0]), changes[1], changes[2]
        for side, batch, mark in added:
            self.accept(side, taken_back_mixed(batch), mark)
        if settled is not None:
            self.due(settled)

    def forget_changes(self) -> None:
        """The next of :meth:`take_changes` gives None."""
        self._added.forget()

    # -- to other replicas -----------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """What these groups have of both sides. The hashes of keys are kept, so it needs no index."""
        leaves = chosen(groups, key_groups)
        given: list[list[tuple[pa.RecordBatch, Any]]] = [[], []]
        for side, runs in enumerate(self.runs):
            stay = []
            for run in runs:
                leaving = leaves[groups_of_hashes(run.codes.view(np.uint64), key_groups)]
                gone, left = run.some(leaving & (run.ticks >= run.limit)), run.some(~leaving)
                if len(gone.codes):
                    given[side].append((compacted(gone.rows), gone.owed.copy()))
                if len(left.codes):
                    stay.append(left)
            self.runs[side] = stay
        return (list(self.schemas), given) if any(given) else None

    def fits(self, given: Any) -> bool:
        """Whether the records of a sibling go together with those here."""
        try:
            for side, schema in enumerate(given[0]):
                if schema is not None:
                    self.check(side, [pa.RecordBatch.from_pylist([], schema=schema)])
        except NotColumnar:
            return False
        return True

    def take(self, given: Any) -> None:
        """Keep what :meth:`give` gave."""
        for side, parts in enumerate(given[1]):
            self._keep(side, [Run.of(rows, self._keys(side), owed) for rows, owed in parts])

    def as_rows(self) -> Any:
        """``{key: ([entry], [entry])}``, as the rows' own form has it."""
        out: dict[Any, tuple[list[Any], list[Any]]] = {}
        for side, runs in enumerate(self.runs):
            for run in (each.live() for each in runs):
                times = run.rows.column(self._keys(side)).to_pylist()
                for (key, record), time, owed in zip(self._pairs(side, run.rows), times, run.owed.tolist(), strict=True):
                    out.setdefault(key, ([], []))[side].append([exact_moment(time), time, record, owed])
        for sides in out.values():
            for entries in sides:
                entries.sort(key=lambda entry: entry[0])
        return out
