"""``collect(latest=True)``: the last value of each key of a stream that gives keys again.

A running total comes again with each epoch that touches its key. Whoever wants the totals alone would keep all of these updates, in memory
or in the store, to throw away nearly all. This sink keeps one record of each key: in the replica, in what a snapshot stages, and in
the files of earlier snapshots, which are condensed as they are merged. The order of times decides, not that of arrival, so a replayed
update changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from rayad.dataflow.collected import Collected, TimedBatches, table_of
from rayad.dataflow.records.batches import keyed_columns, to_record_batch, to_rows
from rayad.dataflow.records.exact import Inexact
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.dataflow.windows import Window
from rayad.progress import DataflowError, Timestamp, show

_WHAT = "collect(latest=True)"
_RULE = (
    "it keeps the last value of each key, of records (key, value), as running totals (count, sum, aggregate ...), stateful_map and latest "
    "give them"
)


def key_of(record: Any) -> Any:
    """The key of an update: the first part of a tuple, with the window where that is the second part.

    >>> key_of(("ann", 3)), key_of(("ann", Window(0, 10), 3))
    ('ann', ('ann', Window(start=0, end=10)))
    """
    if not isinstance(record, tuple) or len(record) < 2:
        raise DataflowError(
            f"{_WHAT} was given the record {show(record, 80)}, which has no key: {_RULE}; make pairs with map(), or collect() all records"
        )
    return (record[0], record[1]) if len(record) > 2 and isinstance(record[1], Window) else record[0]


def require_keys(schema: pa.Schema | None, where: str) -> None:
    """Raise DataflowError where the columns of a stream are known, and that its records have no key."""
    if schema is not None and keyed_columns(schema) is None:
        raise DataflowError(
            f"{_WHAT} at {where}: the records have columns {show(schema.names, 120)} and no key: {_RULE}; aggregate by a key before it, "
            "make pairs with map(), or collect() all records"
        )


class LastValues:
    """The last record of each key with its time."""

    def __init__(self) -> None:
        self.of_key: dict[Any, tuple[Timestamp, Any]] = {}
        self.schemas: list[pa.Schema | None] = []
        """Of the batches, None for rows; two stand for more. Records that all came in one leave in it."""

    def add(self, time: Timestamp, batch: Any) -> None:
        """Take a batch of updates, which follow all of the same time that came before."""
        self._note(batch.schema if isinstance(batch, pa.RecordBatch) else None)
        self._put((time, record) for record in to_rows(batch))

    def merge(self, other: LastValues) -> None:
        """Take what was kept elsewhere."""
        for schema in other.schemas:
            self._note(schema)
        self._put(other.of_key.values())

    def _note(self, schema: pa.Schema | None) -> None:
        if not any(schema is known or (schema and known and schema.equals(known, check_metadata=True)) for known in self.schemas):
            self.schemas = [*self.schemas, schema][:2]

    def _put(self, updates: Iterable[tuple[Timestamp, Any]]) -> None:
        kept = self.of_key
        for time, record in updates:
            key = key_of(record)
            try:
                before = kept.get(key)
            except TypeError as error:
                raise DataflowError(f"{_WHAT}: the key {show(key, 60)} of {show(record, 80)} cannot be compared: {error}") from error
            if before is None or before[0] is time or before[0].sort_key() <= time.sort_key():
                kept[key] = (time, record)

    def __len__(self) -> int:
        return len(self.of_key)

    def batches(self) -> Iterator[tuple[Timestamp, Any]]:
        """The records in order of their times, in columns where all came in the same."""
        ordered = sorted(self.of_key.values(), key=lambda update: update[0].sort_key())
        schema = self.schemas[0] if len(self.schemas) == 1 else None
        for time, group in groupby(ordered, lambda update: update[0]):
            rows = [record for _, record in group]
            yield time, _in_columns(rows, schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.schemas, TimedBatches(self.batches()))


def _in_columns(rows: list[Any], schema: pa.Schema | None) -> Any:
    if schema is None:
        return rows
    try:
        return to_record_batch(rows, schema)
    except (DataflowError, Inexact):
        return rows


def _unpickled(schemas: Sequence[pa.Schema | None], batches: TimedBatches) -> LastValues:
    out = LastValues()
    for time, batch in batches:
        out.add(time, batch)
    out.schemas = list(schemas)
    return out


class CollectLatest(Sink):
    """Keeps the last record of each key, for ``result[name]``: as :class:`Collected`, or with ``columnar`` as a table."""

    tells_updates = True

    def __init__(self, *, columnar: bool = False, schema: pa.Schema | None = None) -> None:
        self.columnar = columnar
        self.schema = schema

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return _LatestWriter()

    def condense(self, staged: Sequence[Any]) -> Sequence[Any]:
        return [_merged(staged)]

    def publish(self, staged: Sequence[Any]) -> Any:
        return TimedBatches(_merged(staged).batches())

    def result(self, receipt: Any) -> Any:
        if self.columnar:
            return table_of([batch for _, batch in receipt], f"{_WHAT[:-1]}, columnar=True)", "collect rows instead")
        return Collected(receipt, self.schema)


def _merged(staged: Iterable[LastValues]) -> LastValues:
    out = LastValues()
    for part in staged:
        out.merge(part)
    return out


class _LatestWriter(SinkWriter):
    def __init__(self) -> None:
        self._kept = LastValues()

    def write(self, time: Timestamp, batch: Any) -> None:
        self._kept.add(time, batch)

    def stage(self) -> Any:
        kept, self._kept = self._kept, LastValues()
        return kept


__all__ = ["CollectLatest", "LastValues", "key_of", "require_keys"]
