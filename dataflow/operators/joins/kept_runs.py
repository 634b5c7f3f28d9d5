"""The records of both sides that a join over event time keeps, in columns, until the watermark is beyond them: in runs that are sorted by
key and event time.

Beside each record is ``more``, what the join has to know of it besides, and ``ends``, the last tick to which the join needs it, as far as
that is known. Ticks are those of ``windows.pane_ticks``. Keys of what matches are compared as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.both_sides import BothSides
from rayad.dataflow.operators.joins.pairs import NotColumnar, alone_batch
from rayad.dataflow.operators.keys.key_first import keys_of, record_of
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.runs.order import Places, Ticks, ticks
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.records.batches import keyed_columns, one_batch, to_rows
from rayad.dataflow.records.event_times import DAY_TICKS, TICKS_MAX, exact_moment

_DAY_NS, _MICROSECOND_NS = DAY_TICKS * 1_000, 1_000


class KeptSide(Runs):
    """One side of :class:`KeptRuns`. Rows that are needed to no tick beyond what has ``passed`` are over; they go when they are half of
    all."""

    derived: ClassVar[frozenset[str]] = frozenset({"ends"})

    def __init__(self, kept: KeptRuns, side: int, keys: int) -> None:
        super().__init__(keys, moment=keys)
        self._kept = kept
        self._side = side
        self.changing = kept.changing

    def read(self, rows: pa.RecordBatch, **beside: Any) -> Run:
        return super().read(rows, **{name: np.array(numbers) for name, numbers in beside.items()})

    def marks(self, run: Run) -> Any:
        return np.packbits(self._kept.bits(run))

    def marked(self, run: Run, marks: Any) -> None:
        self._kept.put_bits(self._side, run, np.unpackbits(marks, count=len(run)).astype(np.bool_))

    def arranged(self, run: Run) -> list[Run]:
        runs = super().arranged(run)
        if "ends" not in run.beside:
            for each in runs:
                each.beside["ends"] = self._kept.ends_of(self._side, each)
        return self._kept.in_order(self._side, runs)

    def live(self, run: Run) -> Run:
        return replace(run.some(run.beside["ends"] >= passed_by(run)), passed=None)

    def left_at(self, run: Run, limit: int) -> Run | None:
        """What is left when rows that are needed to no tick from ``limit`` on are over."""
        over = int(np.count_nonzero(run.beside["ends"] < limit))
        if over == len(run):
            return None
        run.passed = max(passed_by(run), limit)
        return self.live(run) if 2 * over > len(run) else run


def passed_by(run: Run) -> int:
    """The tick up to which rows of a run are over."""
    return -TICKS_MAX if run.passed is None else run.passed


class KeptRuns(NotedState, BothSides[KeptSide]):
    """Runs of both sides."""

    changing: ClassVar[frozenset[str]] = frozenset()
    """``more``, where that changes."""

    def __init__(self) -> None:
        super().__init__()
        self._noted: Additions = Additions()
        self.settled: Any = None
        """The last watermark, if it is one for all that is here."""

    def made(self, side: int, schema: pa.Schema) -> KeptSide:
        return KeptSide(self, side, keyed_columns(schema) or 0)

    def near(self, side: int, places: Places) -> list[Run]:
        """The runs of a side that may have any of these places, which ascend."""
        runs = self.parts[side]
        return [] if runs is None else runs.near(places)

    def ends_of(self, side: int, run: Run) -> Ticks:
        """The last tick to which the join needs each record of a run that has come."""
        return run.tick  # type: ignore[no-any-return]

    @abstractmethod
    def bits(self, run: Run) -> Any:
        """A bit for each record, from which and the records :meth:`put_bits` finds out what has changed beside them."""

    @abstractmethod
    def put_bits(self, side: int, run: Run, bits: Any) -> None:
        """Put back what :meth:`bits` gave, and the ends."""

    def in_order(self, side: int, runs: list[Run]) -> list[Run]:
        """Runs that are sorted by key and event time, as the join wants them."""
        return runs

    @abstractmethod
    def taken_in(self, side: int, batch: pa.RecordBatch, *told: Any) -> list[Any]:
        """Keep records that are in time; gives results."""

    @abstractmethod
    def settle(self, mark: Any) -> list[Any]:
        """Give what is settled at a watermark (None: all), and forget what is over."""

    def come(self, side: int, batch: pa.RecordBatch, more: Any) -> list[Run]:
        """Records of a side, with what is known of each besides, as runs."""
        runs = self.side(side)
        return runs.arranged(runs.read(batch, more=more))

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

    # -- records -------------------------------------------------------------------
    def accept(self, side: int, batches: Sequence[pa.RecordBatch], *told: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; ``told`` is the watermark, and what a join is told besides. Gives those that are late, as ``(key, record)``,
        and results. To be called after :meth:`check`."""
        batch = one_batch(pa.Table.from_batches([b.replace_schema_metadata(None) for b in batches]))
        self._noted.note((side, batch, *told), batch.num_rows, self.rows + batch.num_rows, batch.nbytes)
        late: list[Any] = []
        if told[0] is not None:
            behind = ticks(batch.column(self.keys(side))) < self.first(side, exact_moment(told[0]))
            if behind.any():
                late = self.pairs(side, batch.filter(pa.array(behind)))
                batch = batch.filter(pa.array(~behind))
        return late, self.taken_in(side, batch, *told) if batch.num_rows else []

    def due(self, mark: Any) -> list[Any]:
        """What is settled at a watermark (None: all): batches, or lists of rows where columns cannot say it. It is forgotten."""
        self.settled = mark
        if mark is None:
            self._noted.forget()
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
    @property
    def noted_bytes(self) -> int:
        return self._noted.nbytes

    def changed(self, noted: list[Any]) -> Any:
        """The batches that have come, and the watermark up to which records are settled: all else follows from them."""
        return list(self.schemas), [(side, stored_mixed([batch]), *told) for side, batch, *told in noted], self.settled

    def restore_changes(self, changes: Any) -> None:
        schemas, added, settled = changes
        self.learn_all(schemas)
        for side, batch, *told in added:
            self.accept(side, taken_back_mixed(batch), *told)
        if settled is not None:
            self.due(settled)

    # -- to other replicas -----------------------------------------------------------
    def take(self, given: Any) -> None:
        """Keep what :meth:`give` gave, at another watermark perhaps."""
        self.settled = None
        super().take(given)

    def as_rows(self) -> Any:
        """``{key: ([entry], [entry])}``, as the rows' own form has it."""
        out: dict[Any, tuple[list[Any], list[Any]]] = {}
        for side, runs in enumerate(self.parts):
            for run in [] if runs is None else runs.each_live():
                times = run.rows.column(self.keys(side)).to_pylist()
                for (key, record), time, more in zip(self.pairs(side, run.rows), times, run.beside["more"].tolist(), strict=True):
                    out.setdefault(key, ([], []))[side].append([exact_moment(time), time, record, more])
        for sides in out.values():
            for entries in sides:
                entries.sort(key=lambda entry: entry[0])
        return out


__all__ = ["KeptRuns", "KeptSide", "passed_by"]
