"""Results that need all records of a key, and forget those on which none can depend any more, in columns.

A key is looked at when it changes, when a limit passes what its rows say, and, where that does not tell, whenever limits grow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Places, Positions
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.incremental.columns.form import KEY, RECORD
from rayad.incremental.columns.grouped import Grouped, GroupedColumns, Records
from rayad.incremental.columns.kept import COUNT
from rayad.incremental.columns.reducing import keys_of
from rayad.incremental.event_time.due import ByEnd
from rayad.incremental.event_time.limits import Limits, Numbers, of_places
from rayad.progress import Timestamp

LimitOf = Callable[[pa.DataType], Any]
"""Of moments of a kind the first that is not over, of each record, or one for all, shape ()."""
_NONE = np.zeros(0, np.uint64)


class Needing(Grouped):
    """What is made of the records of a key, of which some are not needed where all changes are at a moment or later."""

    @abstractmethod
    def looks(self, rows: pa.RecordBatch) -> Numbers:
        """For each row the moment behind which its key is to be looked at. Raises NotColumns."""

    def later(self, kind: pa.DataType) -> Sequence[int]:
        """How much behind that it is to be looked at, once or several times."""
        return (0,)

    @abstractmethod
    def needed(self, there: Records, limit_of: LimitOf) -> tuple[Any, Positions]:
        """The records on which results may still depend, or that may go, as a mask; and the numbers of the keys of which that has to be
        asked again whenever limits grow."""


class NeedingColumns(GroupedColumns):
    """The records of each key that are needed.

    Args:
        needing: what is made of them.
    """

    def __init__(self, needing: Needing) -> None:
        super().__init__(needing)
        self.looks = needing.looks
        self._needing = needing
        self._by_look = ByEnd(needing.looks, later=needing.later)
        self._waiting: list[pa.RecordBatch] | None = []
        """The keys that are looked at whenever limits grow; None: it is not known. No state: it follows from what is kept."""

    def take_unneeded(self, time: Timestamp, run: Run | None, since: Limits, until: Limits, *, told: bool) -> Places:
        """Forget what is not needed of the keys that changed, and, where limits have grown, of those that are due. Gives the places of the
        records that went."""
        part = self.inputs["input"]
        if not until.is_any or part.schema is None:
            return _NONE
        keys = [] if run is None else [run.rows.select([KEY])]
        if self._waiting is None:
            keys = [each.rows.select([KEY]) for runs in part.there() for each in runs.all()]
        elif told:
            keys += self._waiting
            keys += [rows_at(each.rows.select([KEY]), rows) for each, rows in self._by_look.over(part, since, until)]
        self._waiting = self._waiting if self._waiting is not None and not told else []
        keys = [some for some in keys if some.num_rows]
        if not keys:
            return _NONE
        gathered = keys_of(part.now, None, keys, ())
        there = self.records_of(gathered)

        def limit_of(kind: pa.DataType) -> Any:
            limits = of_places(until.first_not_over(kind), gathered.places, self.key_groups)
            return limits[there.group] if limits.ndim else limits

        needed, waiting = self._needing.needed(there, limit_of)
        if len(waiting):
            self._waiting.append(rows_at(gathered.keys, waiting))
        gone = np.flatnonzero(~needed)
        if not len(gone):
            return _NONE
        group = there.group[gone]
        rows = pa.RecordBatch.from_arrays([rows_at(gathered.keys.column(0), group), rows_at(there.record, gone)], names=[KEY, RECORD])
        away = part.now.at_moment(rows, (), gathered.places[group], **{COUNT: -there.weights[gone]})
        part.now.add([away])
        self.time = time
        places: Places = away.place
        return places

    # -- who waits is found out anew ----------------------------------------------------------------------
    def restore(self, stored: Any) -> None:
        super().restore(stored)
        self._waiting = None

    def restore_changes(self, changes: Any) -> None:
        super().restore_changes(changes)
        self._waiting = None

    def take(self, given: Any) -> None:
        super().take(given)
        self._waiting = None


__all__ = ["LimitOf", "Needing", "NeedingColumns"]
