"""``for update in job.updates("x")``: what is written to a sink while the job runs, from all replicas."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rayad.actors.replica.recent import News
from rayad.dataflow.records.batches import to_rows
from rayad.progress import Timestamp

ReadSoFar = Mapping[str, tuple[int, int]]
"""By replica: which building of it was read, and how many of its records were written then."""


@dataclass(frozen=True, slots=True)
class Update:
    """A record that was written to a sink.

    Args:
        time: of the record.
        record: the record itself.
        missed: how many records before it, of the same replica, the reader was too slow for; None where nobody knows how many: a replica
            has died or left, and what it wrote last may not have been read.
    """

    time: Timestamp
    record: Any
    missed: int | None = 0

    @property
    def epoch(self) -> int:
        """The epoch of its time."""
        return self.time.epoch


class Updates(Iterator[Update]):
    """The updates of one sink, for one reader.

    Args:
        ask: gives what each replica has written that is not seen, None of one that does not answer; nothing at all where nobody does.
        is_over: whether the job has ended, so that what is asked for afterwards is the last.
        pause: let time pass, a moment; False: nothing will come before somebody does something else.
        end: the job is over, and all is read: raise what ended it.
    """

    def __init__(
        self,
        ask: Callable[[ReadSoFar], Mapping[str, News | None]],
        is_over: Callable[[], bool],
        pause: Callable[[], bool],
        end: Callable[[], Any],
    ) -> None:
        self._ask, self._is_over, self._pause, self._end = ask, is_over, pause, end
        self._seen: dict[str, tuple[int, int]] = {}
        self._ready: deque[Update] = deque()
        self._unknown = False

    def __next__(self) -> Update:
        while not self._ready:
            was_over = self._is_over()
            self._take(self._ask(dict(self._seen)))
            if self._ready:
                break
            if was_over:
                self._end()
                raise StopIteration
            if not self._pause():
                raise StopIteration
        return self._ready.popleft()

    def _take(self, told: Mapping[str, News | None]) -> None:
        for name in [name for name in self._seen if told and name not in told]:
            del self._seen[name]  # it has left
            self._unknown = True
        for name, news in told.items():
            if news is None:
                continue
            before = self._seen.get(name)
            self._unknown = self._unknown or (before is not None and before[0] != news.life)
            self._seen[name] = (news.life, news.count)
            missed = news.missed
            for time, batch in news.batches:
                for record in to_rows(batch):
                    self._ready.append(Update(time, record, None if self._unknown else missed))
                    missed, self._unknown = 0, False


__all__ = ["ReadSoFar", "Update", "Updates"]
