"""The records of both sides that a join over event time keeps, in columns, until the watermark is beyond them: in runs that are sorted by
key and event time.

A row carries the 64-bit hash of its key and its event time in ticks (``windows.pane_ticks``). Four runs of like size become one, so that
there are few to search and a row is copied a logarithmic number of times. Keys of what matches are compared as well.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.columns import NotColumnar, alone_batch, common_schema
from rayad.dataflow.operators.joins.matching import Positions, Stretches
from rayad.dataflow.operators.keys.column_keys import Numbers
from rayad.dataflow.operators.keys.key_first import keys_of, record_of
from rayad.dataflow.operators.state.group_index import chosen, compacted
from rayad.dataflow.operators.state.stored_columns import stored, stored_mixed, taken_back, taken_back_mixed
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.operators.windows.pane_ticks import ticks
from rayad.dataflow.records.batches import keyed_columns, one_batch, take_rows, to_rows
from rayad.dataflow.records.event_times import DAY_TICKS, TICKS_MAX, exact_moment
from rayad.dataflow.records.key_hashing import groups_of_hashes, hash_columns

_FAN_IN = 4
_SMALL_RUN = 1 << 12
_DAY_NS, _MICROSECOND_NS = DAY_TICKS * 1_000, 1_000


@dataclass(slots=True)
class Run:
    """Rows in the order of (code, tick)."""

    codes: Numbers
    ticks: Positions
    rows: pa.RecordBatch
    more: Any
    """What the join has to know of each row besides, shape (rows,)."""
    ends: Positions
    """The last tick to which the join needs each row, as far as it is known."""
    limit: int = -TICKS_MAX
    """Rows that are needed to no tick beyond this one are over; they go when they are half of all."""
    _stretches: Stretches | None = None

    @property
    def stretches(self) -> Stretches:
        """An index of its codes and ticks."""
        if self._stretches is None:
            self._stretches = Stretches(self.codes, self.ticks)
        return self._stretches

    @property
    def tier(self) -> int:
        """Its order of magnitude."""
        return int(math.log(max(1.0, len(self.codes) / _SMALL_RUN), _FAN_IN))

    @staticmethod
    def of(rows: pa.RecordBatch, keys: int, more: Any, ends: Any = None) -> Run:
        """Rows whose event times are behind ``keys`` columns of keys; ``ends``: by default their own ticks."""
        codes = hash_columns(rows.columns[:keys]).view(np.int64)
        moments = ticks(rows.column(keys))
        by = (moments, codes) if (more == more[:1]).all() else (more, moments, codes)
        order = np.lexsort(by)
        moments = moments[order]
        return Run(codes[order], moments, take_rows(rows, pa.array(order)), more[order], moments if ends is None else ends[order])

    def some(self, rows: Any) -> Run:
        """Those that a mask says."""
        return self if rows.all() else self.at(np.flatnonzero(rows))

    def at(self, rows: Positions) -> Run:
        """Those at positions that increase."""
        taken = take_rows(self.rows, pa.array(rows))
        return Run(self.codes[rows], self.ticks[rows], taken, self.more[rows], self.ends[rows], self.limit)

    def live(self) -> Run:
        """Those that are not over."""
        return self.some(self.ends >= self.limit)

    def left_at(self, limit: int) -> Run | None:
        """What is left when rows that are needed to no tick from ``limit`` on are over."""
        over = int(np.count_nonzero(self.ends < limit))
        if over == len(self.ends):
            return None
        self.limit = max(self.limit, limit)
        return self.live() if 2 * over > len(self.ends) else self


class KeptRuns(ColumnForm):
    """Runs of both sides."""

    def __init__(self) -> None:
        self.schemas: list[pa.Schema | None] = [None, None]
        self.runs: list[list[Run]] = [[], []]
        self._added = Additions()
        self.settled: Any = None
        """The last watermark, if it is one for all that is here."""

    @property
    def rows(self) -> int:
        """Records kept."""
        return sum(len(run.codes) for runs in self.runs for run in runs)

    @property
    def is_used(self) -> bool:
        return any(self.runs)

    @abstractmethod
    def runs_of(self, side: int, rows: pa.RecordBatch, more: Any) -> list[Run]:
        """Records of a side, with what is known of each besides, as runs."""

    @abstractmethod
    def taken_in(self, side: int, batch: pa.RecordBatch, *told: Any) -> list[Any]:
        """Keep records that are in time; gives results."""

    @abstractmethod
    def settle(self, mark: Any) -> list[Any]:
        """Give what is settled at a watermark (None: all), and forget what is over."""

    def together(self, side: int, runs: Sequence[Run]) -> list[Run]:
        """Several runs as one."""
        runs = [run.live() for run in runs]
        rows = one_batch(pa.Table.from_batches([run.rows for run in runs]))
        return self.runs_of(side, rows, np.concatenate([run.more for run in runs]))

    # -- ticks ---------------------------------------------------------------------
    def first(self, side: int, moment: Any) -> int:
        """The first tick at or beyond an exact moment."""
        per = self._per_tick(side)
        return min(max(int(-(-moment // per)), -TICKS_MAX), TICKS_MAX)

    def _per_tick(self, side: int) -> int:
        schema = self.schemas[side]
        assert schema is not None
        bound = schema.field(self.keys(side)).type
        if pa.types.is_date(bound):
            return _DAY_NS
        if pa.types.is_timestamp(bound) or pa.types.is_duration(bound):
            return 1 if bound.unit == "ns" else _MICROSECOND_NS
        return 1

    def keys(self, side: int) -> int:
        """Columns of keys."""
        return keyed_columns(self.schemas[side]) or 0

    # -- records -------------------------------------------------------------------
    def check(self, side: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Raises NotColumnar, with nothing changed, unless these go together with each other and with what is kept."""
        self.schemas[side] = common_schema(side, batches, self.schemas)

    def accept(self, side: int, batches: Sequence[pa.RecordBatch], *told: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; ``told`` is the watermark, and what a join is told besides. Gives those that are late, as ``(key, record)``,
        and results. To be called after :meth:`check`."""
        batch = one_batch(pa.Table.from_batches([b.replace_schema_metadata(None) for b in batches]))
        self._added.note((side, batch, *told), batch.num_rows, self.rows + batch.num_rows)
        late: list[Any] = []
        if told[0] is not None:
            behind = ticks(batch.column(self.keys(side))) < self.first(side, exact_moment(told[0]))
            if behind.any():
                late = self.pairs(side, batch.filter(pa.array(behind)))
                batch = batch.filter(pa.array(~behind))
        return late, self.taken_in(side, batch, *told) if batch.num_rows else []

    def keep(self, side: int, more: Sequence[Run]) -> None:
        """Put runs in their places."""
        runs = self.runs[side]
        for run in more:
            runs.append(run)
            while len(runs) >= _FAN_IN and runs[-_FAN_IN].tier <= runs[-1].tier:
                merged = self.together(side, runs[-_FAN_IN:])
                runs[-_FAN_IN:] = merged
                if len(merged) > 1:  # keys with one hash stay apart
                    break

    def due(self, mark: Any) -> list[Any]:
        """What is settled at a watermark (None: all): batches, or lists of rows where columns cannot say it. It is forgotten."""
        self.settled = mark
        if mark is None:
            self._added.forget()
        return self.settle(mark)

    def alone(self, side: int, batch: pa.RecordBatch) -> Any:
        """Records of one side as pairs without the other."""
        try:
            return alone_batch(side, batch, self.schemas)
        except NotColumnar:
            return [(key, (record, None) if side == 0 else (None, record)) for key, record in self.pairs(side, batch)]

    def pairs(self, side: int, batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
        """``(key, record)``."""
        schema = self.schemas[side]
        assert schema is not None
        return list(zip(keys_of(batch.replace_schema_metadata(schema.metadata)), to_rows(record_of(batch, schema)), strict=True))

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """The schemas, and of each side the rows that are not over, and what is known of them besides."""
        live = [[run.live() for run in runs] for runs in self.runs]
        return list(self.schemas), [[(stored([run.rows]), run.more.copy()) for run in runs] for runs in live]

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.schemas = list(state[0])
        for side in (1, 0):
            self.runs[side] = [run for rows, more in state[1][side] for run in self.runs_of(side, taken_back(rows)[0], more)]

    def take_changes(self) -> Callable[[], Any] | None:
        """The batches that have come, and the watermark up to which records are settled: all else follows from them."""
        added, settled, schemas = self._added.take(), self.settled, list(self.schemas)
        if added is None:
            return None
        return lambda: (schemas, [(side, stored_mixed([batch]), *told) for side, batch, *told in added], settled)

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        self.schemas, added, settled = list(changes[0]), changes[1], changes[2]
        for side, batch, *told in added:
            self.accept(side, taken_back_mixed(batch), *told)
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
                gone, left = run.some(leaving & (run.ends >= run.limit)), run.some(~leaving)
                if len(gone.codes):
                    given[side].append((compacted(gone.rows), gone.more.copy()))
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
        """Keep what :meth:`give` gave, at another watermark perhaps."""
        self.settled = None
        for side in (1, 0):
            for rows, more in given[1][side]:
                self.keep(side, self.runs_of(side, rows, more))

    def as_rows(self) -> Any:
        """``{key: ([entry], [entry])}``, as the rows' own form has it."""
        out: dict[Any, tuple[list[Any], list[Any]]] = {}
        for side, runs in enumerate(self.runs):
            for run in (each.live() for each in runs):
                times = run.rows.column(self.keys(side)).to_pylist()
                for (key, record), time, more in zip(self.pairs(side, run.rows), times, run.more.tolist(), strict=True):
                    out.setdefault(key, ([], []))[side].append([exact_moment(time), time, record, more])
        for sides in out.values():
            for entries in sides:
                entries.sort(key=lambda entry: entry[0])
        return out


__all__ = ["KeptRuns", "Run"]
