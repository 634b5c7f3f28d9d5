"""The last records that a replica has written to a sink, with numbers: what a reader of ``job.updates`` is given while the job runs.

A slow reader never holds a replica back, and never makes its memory grow: it is told how many records it has missed. One thread writes;
others read what a deque gives as one tuple.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from rayad.dataflow.collected import TimedBatches
from rayad.dataflow.records.batches import batch_rows
from rayad.progress import Timestamp

RECENT_ROWS = 10_000
"""So many records are kept, and at least one batch."""


@dataclass(frozen=True, slots=True)
class News:
    """What a reader has not seen.

    Args:
        life: which building of the replica wrote it; another one begins to count anew.
        count: how many records were written, with these.
        missed: how many of those that the reader has not seen are no longer kept.
        batches: the others, in their order.
    """

    life: int
    count: int
    missed: int
    batches: TimedBatches


class Recent:
    """The last records that one writer of a sink was given.

    >>> recent = Recent(limit=3)
    >>> recent.put(Timestamp(0), [1, 2]); recent.put(Timestamp(1), [3, 4])
    >>> news = recent.after(0)
    >>> news.count, news.missed, list(news.batches)
    (4, 2, [(Timestamp(1), [3, 4])])
    >>> list(recent.after(3).batches)
    [(Timestamp(1), [4])]
    """

    def __init__(self, limit: int = RECENT_ROWS, count: int = 0) -> None:
        self.count = count
        self._limit = limit
        self._kept: deque[tuple[int, Timestamp, Any]] = deque()  # how many records were written with it, time, batch
        self._kept_rows = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """With all batches of one schema in one buffer: they go to the coordinator, and from there to the driver."""
        kept = tuple(self._kept)
        before = kept[0][0] - batch_rows(kept[0][2]) if kept else self.count
        return _again, (self._limit, before, TimedBatches((time, batch) for _, time, batch in kept))

    def put(self, time: Timestamp, batch: Any) -> None:
        """A batch was written."""
        rows = batch_rows(batch)
        self.count += rows
        self._kept_rows += rows
        self._kept.append((self.count, time, batch))
        while self._kept_rows > self._limit and len(self._kept) > 1:
            self._kept_rows -= batch_rows(self._kept.popleft()[2])

    def after(self, seen: int, life: int = 0) -> News:
        """What was written after the first ``seen`` records; from any thread."""
        kept = tuple(self._kept)
        if not kept:
            return News(life, seen, 0, TimedBatches())
        first = kept[0][0] - batch_rows(kept[0][2])
        fresh = [(end, time, batch) for end, time, batch in kept if end > seen]
        batches = TimedBatches((time, batch[max(0, seen - end + batch_rows(batch)) :]) for end, time, batch in fresh)
        return News(life, kept[-1][0], max(0, first - seen), batches)

    def unseen(self, seen: tuple[int, int] | None, life: int) -> News:
        """What a reader has not ``seen`` (life, records), where this is of ``life``."""
        return self.after(seen[1] if seen is not None and seen[0] == life else 0, life)


def _again(limit: int, before: int, kept: TimedBatches) -> Recent:
    out = Recent(limit, before)
    for time, batch in kept:
        out.put(time, batch)
    return out


__all__ = ["RECENT_ROWS", "News", "Recent"]
