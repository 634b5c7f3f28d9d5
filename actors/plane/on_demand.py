"""Scheduling on demand, the sender's side: what waits for a receiver to have room, and how much of it travels at once.  Pure.

A batch that `Stream.rebalance` spreads is assigned to a receiver only when that receiver has room for it. A receiver has room
for few batches (`buffer`: the one that it works on and the next), so that little work queues behind a long batch, and no receiver idles
while its credit travels. Batches are cut small and joined on their way out, to about `WORK_S` of a receiver's work: records that take
long travel one by one, cheap ones by the thousand. Receivers report with their credits how long the records took.

A batch is cut where it is produced, before its count is reported, and pieces are joined when they leave. If a piece were cut off later,
its receiver could report it as consumed before it is counted, and its time would wrongly appear complete (docs/design/on_demand.md).

Source: MPR (Löff, PUCRS 2023), 5.4.8.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.dataflow.operators.order.ordered import joined
from rayad.dataflow.operators.order.reorder_store import Numbered
from rayad.dataflow.records.batches import batch_rows
from rayad.progress import Timestamp

ANY = -1
"""Stands for a receiver that is not chosen yet."""
WORK_S = 0.005
"""How long a receiver should work on a piece: about ten times as long as sending and reporting it takes, yet short at the end of a job."""
ROWS_MAX = 4096
COLUMN_ROWS_MAX = 64 * 1024
JOINED_BYTES_MAX = 1024 * 1024
"""Columns are joined, which copies them, up to these sizes."""
PIECES_MAX = 1024
"""A batch is cut into no more pieces than this."""
NEWEST_SHARE = 0.3
"""The weight of the newest piece in the estimate of what a record takes."""


class Chunk(NamedTuple):
    """What is sent to one receiver as one batch: ``batches`` of the pieces that waited, joined."""

    time: Timestamp
    batch: Any
    rows: int
    batches: int


def rows_of(batch: Any) -> int:
    """The number of records in a batch; for ``Numbered`` items the number of records inside them.

    >>> rows_of([Numbered(0, 2, ["a", "b"]), Numbered(2, 1, [])]), rows_of(["a", "b"])
    (3, 2)
    """
    if type(batch) is list and batch and type(batch[0]) is Numbered:
        return sum(item.count for item in batch)
    return batch_rows(batch)


def cut(batch: Any, rows: int) -> list[Any]:
    """A batch in pieces of at most ``rows`` records, in order.

    >>> cut(["a", "b", "c"], 2)
    [['a', 'b'], ['c']]
    """
    if type(batch) is list and batch and type(batch[0]) is Numbered:
        return [[piece] for item in batch for piece in item.split(rows)]
    count = batch_rows(batch)
    if count <= rows:
        return [batch]
    if isinstance(batch, pa.RecordBatch):
        return [batch.slice(at, rows) for at in range(0, count, rows)]
    return [batch[at : at + rows] for at in range(0, count, rows)]


class DemandPool:
    """What waits on one edge for any of its receivers, first come, first served.

    Args:
        keeps_batches: whether batches travel as they come, neither cut nor joined.
    """

    def __init__(self, *, keeps_batches: bool = False) -> None:
        self.keeps_batches = keeps_batches
        self.rows = 0
        self.column_bytes = 0
        self._waiting: deque[tuple[Timestamp, Any, int]] = deque()
        self._record_s: float | None = None
        self._piece_rows = 1

    def __len__(self) -> int:
        return len(self._waiting)

    def piece_rows(self, batch: Any, receivers: int) -> int:
        """The most records of a new batch that one piece should hold."""
        count = rows_of(batch)
        rows = self._piece_rows
        if self._record_s is None and isinstance(batch, pa.RecordBatch):
            rows = -(-count // (4 * receivers))  # functions of whole columns suffer from tiny pieces; nothing is known yet
        return max(rows, -(-count // PIECES_MAX), 1)

    def push(self, time: Timestamp, batch: Any) -> None:
        """Add a piece."""
        rows = rows_of(batch)
        self._count(batch, rows, 1)
        self._waiting.append((time, batch, rows))

    def _count(self, batch: Any, rows: int, sign: int) -> None:
        self.rows += sign * rows
        if isinstance(batch, pa.RecordBatch):
            self.column_bytes += sign * batch.nbytes

    def pop(self) -> Chunk:
        """Take out a receiver's next batch: the oldest piece, joined with those behind it of the same time and form, up to a bound."""
        time, batch, rows = self._waiting.popleft()
        self._count(batch, rows, -1)
        parts = [batch]
        while not self.keeps_batches and self._waiting and self._joins(self._waiting[0], time, batch, rows):
            _, following, more = self._waiting.popleft()
            self._count(following, more, -1)
            parts.append(following)
            rows += more
        return Chunk(time, joined(parts), rows, len(parts))

    def pop_one(self) -> tuple[Timestamp, Any]:
        """Take out the oldest piece alone."""
        time, batch, rows = self._waiting.popleft()
        self._count(batch, rows, -1)
        return time, batch

    def _joins(self, following: tuple[Timestamp, Any, int], time: Timestamp, first: Any, rows: int) -> bool:
        then, batch, more = following
        if then != time or rows + more > self._piece_rows or type(batch) is not type(first):
            return False
        if isinstance(first, pa.RecordBatch):
            return bool(batch.schema.equals(first.schema, check_metadata=True) and batch.nbytes * (rows + more) <= JOINED_BYTES_MAX * more)
        return (type(first[0]) is Numbered) is (type(batch[0]) is Numbered) and rows + more <= ROWS_MAX

    def learn(self, rows: int, busy_s: float) -> None:
        """Take a measurement: a receiver has worked ``busy_s`` on ``rows`` records."""
        if not rows or busy_s < 0:
            return
        newest_s = busy_s / rows
        before_s = self._record_s if self._record_s is not None else newest_s
        self._record_s = before_s + NEWEST_SHARE * (newest_s - before_s)
        wanted = WORK_S / max(self._record_s, 1e-9)
        self._piece_rows = max(1, int(min(wanted, 2 * self._piece_rows, COLUMN_ROWS_MAX)))

    def is_full(self, receivers: int) -> bool:
        """Whether enough waits for the next piece of every receiver: then nothing more should be produced."""
        if len(self._waiting) < receivers:
            return False
        if self.keeps_batches or self.column_bytes >= receivers * JOINED_BYTES_MAX:
            return True
        return self.rows >= receivers * (self._piece_rows if self.column_bytes else min(self._piece_rows, ROWS_MAX))

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree."""
        assert self.rows == sum(rows for _, _, rows in self._waiting) >= 0, (self.rows, len(self._waiting))
        columns = [batch.nbytes for _, batch, _ in self._waiting if isinstance(batch, pa.RecordBatch)]
        assert self.column_bytes == sum(columns), (self.column_bytes, columns)
