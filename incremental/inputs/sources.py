"""Where collections begin: changes that somebody sends, and records that replace those before them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.records.batches import rows_at
from rayad.incremental.columns.beginning import PresentColumns
from rayad.incremental.columns.form import field_of
from rayad.incremental.columns.newest import NewestColumns
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.reads import Changes, InRows, Shown, Weights
from rayad.incremental.records import absent, in_contents
from rayad.incremental.steps import Field, Part
from rayad.incremental.traces import add
from rayad.progress import DataflowError, Timestamp, show


class Counts:
    """How often records are there, in rows; each has None as its value. See ``reads.InRows``.

    Args:
        counts: by record.
    """

    def __init__(self, counts: KeyedDict) -> None:
        self._counts = counts

    def keys(self) -> Iterable[Any]:
        """All records."""
        return self._counts.kept

    def there(self, key: Any) -> dict[Any, int]:
        """How often a record is there."""
        count = self._counts.kept.get(key, 0)
        return {None: count} if count else {}

    def changed(self, there: dict[Any, int] | None, value: Any, weight: int, vector: Any) -> dict[Any, int]:
        """One more change of it."""
        count = (there or {}).get(None, 0) + weight
        return {None: count} if count else {}


class Present(MomentVertex):
    """Lets changes pass that leave of each record as many as there are, or none. Records come as keys."""

    why_unreadable = ""

    def __init__(self) -> None:
        super().__init__(PresentColumns())
        self.there = KeyedDict()
        """How often each record is there."""

    def rows_are_kept(self) -> bool:
        return bool(self.there.kept)

    def keep_rows(self, name: str, before: dict[Any, Any], now: dict[Any, Any], time: Timestamp | None) -> None:
        with self.there.changing(list(before)) as counts:
            counts.update({record: values[None][()] for record, values in before.items()})

    def keeps(self) -> str:
        """See there."""
        return "how often each record is there"

    def shown(self) -> Shown | None:
        """See there."""
        return Shown(None, has_one_row=True)

    @property
    def gives_kept(self) -> bool:
        """See there."""
        return True

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """See there."""
        return (there[0] or {}).items()

    def inputs_in_rows(self) -> Sequence[InRows]:
        """See there."""
        return [Counts(self.there)]

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for a record that is removed and is not there."""
        out = [(record, weight) for (record, _), weight in arrived[0].items()]
        with self.there.changing([record for record, _ in out]) as counts:
            for record, weight in out:
                add(counts, record, weight)
                if counts.get(record, 0) < 0:
                    raise absent(record, weight, counts[record] - weight, time.epoch)
        self.send_changes(time, out)


_NO_COLUMNS: dict[str, Any] = {"columns": (None, {})}
"""What is stored of columns with nothing in them."""


class NewestInRows:
    """The newest records, in rows. See ``reads.InRows``.

    Args:
        newest: by key.
    """

    def __init__(self, newest: KeyedDict) -> None:
        self._newest = newest

    def keys(self) -> Iterable[Any]:
        """All keys."""
        return self._newest.kept

    def there(self, key: Any) -> dict[Any, int]:
        """The record of a key."""
        record = self._newest.kept.get(key)
        return {} if record is None else {record: 1}

    def changed(self, there: dict[Any, int] | None, value: Any, weight: int, vector: Any) -> dict[Any, int]:
        """One more change of it."""
        there = dict(there or {})
        add(there, value, weight)
        return there


class Upsert(MomentVertex):
    """The newest record of each key replaces the one before it. Of records that are equal in order the one of the later epoch is newer, and
    in one epoch the last one in the order of contents.

    Args:
        order: gives what is compared; None: there may be one record of a key in an epoch.
        deleted: whether a record says that its key is gone.
        shown: of a record, what others who read the table see of it; None: all.
    """

    why_unreadable = ""

    def __init__(
        self,
        order: Callable[[Any], Any] | None,
        deleted: Callable[[Any], Any] | None,
        shown: Callable[[Any], Any] | None = None,
    ) -> None:
        fields = [of.name if isinstance(of, Field | Part) else None for of in (order, deleted)]
        are_fields = all(isinstance(of, Field | Part | None) for of in (order, deleted))
        super().__init__(NewestColumns(*fields) if are_fields else None)
        self.newest = KeyedDict()
        """By key, also of one that is gone where a later record may be older."""
        self._order = order
        self._deleted = deleted
        self._shown = shown
        self._changed: list[tuple[Any, Any, int, None]] = []  # by the last moment, of what is kept

    def keeps(self) -> str:
        """See there."""
        return "the newest record of each key"

    def rows_are_kept(self) -> bool:
        return bool(self.newest.kept)

    def keep_rows(self, name: str, before: dict[Any, Any], now: dict[Any, Any], time: Timestamp | None) -> None:
        weights: dict[Any, dict[Any, int]] = {}
        for key, records in (*before.items(), *now.items()):
            for record, moments in records.items():
                add(weights.setdefault(key, {}), record, sum(moments.values()))
        with self.newest.changing(list(weights)) as kept:
            kept.update({key: record for key, records in weights.items() for record in records})

    def restore(self, state: Any) -> None:
        """Also what was stored when it had no form in columns."""
        super().restore(_NO_COLUMNS | state)

    def restore_changes(self, changes: Any) -> None:
        """See :meth:`restore`."""
        super().restore_changes(_NO_COLUMNS | changes)

    # -- to others, while it runs ------------------------------------------------------------------------
    def shown(self) -> Shown | None:
        """See there."""
        return Shown(has_one_row=True)

    @property
    def gives_kept(self) -> bool:
        """See there."""
        return isinstance(self._shown, Part | None)

    def results_in_columns(self, kept: pa.RecordBatch, weights: Weights) -> tuple[pa.RecordBatch, Weights]:
        """Without those that are gone."""
        assert isinstance(self._columns, NewestColumns)
        left = np.flatnonzero(~self._columns.are_gone(kept.column(1)))
        kept, weights = rows_at(kept, left), weights[left]
        if isinstance(self._shown, Part):
            kept = pa.RecordBatch.from_arrays([kept.column(0), field_of(kept.column(1), self._shown.name)], names=kept.schema.names)
        return kept, weights

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """See there."""
        shown = self._shown
        left = ((record, weight) for record, weight in (there[0] or {}).items() if not self._is_gone(record))
        return left if shown is None else ((shown(record), weight) for record, weight in left)

    def inputs_in_rows(self) -> Sequence[InRows]:
        """See there."""
        return [NewestInRows(self.newest)]

    def noted(self, come: Sequence[Changes]) -> Sequence[Changes]:
        """What is kept is not all that has come."""
        columns = self._columns
        return [columns.changed if isinstance(columns, NewestColumns) and not isinstance(come[0], dict) else self._changed]

    # -- moments -----------------------------------------------------------------------------------------
    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for two records of a key in one epoch that have no order."""
        records: dict[Any, list[Any]] = {}
        for key, record in arrived[0]:
            records.setdefault(key, []).append(record)
        self._changed, out = [], []
        with self.newest.changing(list(records)) as kept:
            for key, some in records.items():
                before, newest = kept.get(key), self._newest_of(key, some, time)
                if newest == before or (before is not None and self._order is not None and self._order(newest) < self._order(before)):
                    continue
                is_kept = self._order is not None or not self._is_gone(newest)
                if is_kept:
                    kept[key] = newest
                else:
                    kept.pop(key, None)
                pairs = [(record, weight) for record, weight in ((before, -1), (newest, 1)) if record is not None]
                out += [(record, weight) for record, weight in pairs if not self._is_gone(record)]
                if self.reads is not None:
                    self._changed += [(key, record, weight, None) for record, weight in pairs if weight < 0 or is_kept]
        self.send_changes(time, out)

    def _newest_of(self, key: Any, some: list[Any], time: Timestamp) -> Any:
        if len(some) == 1:
            return some[0]
        if self._order is None:
            raise DataflowError(
                f"{len(some)} records of key {show(key, 60)} came in epoch {time.epoch}, {show(some[0], 60)} and "
                f"{show(some[1], 60)} among them: which is the newest? Give as_collection(order=...)"
            )
        places = list(map(self._order, some))
        last = max(places)
        return max([record for record, place in zip(some, places, strict=True) if place == last], key=in_contents)

    def _is_gone(self, record: Any) -> bool:
        return self._deleted is not None and bool(self._deleted(record))


__all__ = ["Present", "Upsert"]
