"""Writes the parts of one replica's snapshots, each as an event of its own, so that a crash can come before any of them is in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from rayad.actors.replica.captures import Capture, Written
from rayad.actors.replica.parts.part_files import dumped, write_rest, write_staged, write_state
from rayad.dataflow.plan import Stage
from rayad.progress import SnapshotError
from rayad.snapshots.store import SnapshotStore


class EventWriter:
    """See :class:`rayad.actors.worker.surroundings.Writer`.

    Args:
        store, stage, replica, incarnation: where the parts go, and whose they are.
        can_write: called with whether something waits to be written.
    """

    def __init__(self, store: SnapshotStore, stage: Stage, replica: int, incarnation: int, can_write: Callable[[bool], None]) -> None:
        self.done: deque[Written] = deque()
        self.waiting: deque[Written] = deque()
        """Complete, and not written yet."""
        self._where = (store, stage, replica, incarnation)
        self._can_write = can_write
        self._open: dict[int, tuple[Written, list[Any] | None]] = {}

    def take_state(self, capture: Capture, *, records: int, inline: bool) -> None:
        """See :class:`rayad.actors.worker.surroundings.Writer`."""
        self._open[capture.barrier.number] = Written(capture), None if capture.state is None else dumped(capture.state(), capture.runs)

    def complete(self, capture: Capture) -> None:
        """See :class:`rayad.actors.worker.surroundings.Writer`."""
        self.waiting.append(self._open[capture.barrier.number][0])
        self._can_write(True)

    def give_up(self, number: int) -> None:
        """See :class:`rayad.actors.worker.surroundings.Writer`."""
        self._open.pop(number, None)
        self.waiting = deque(written for written in self.waiting if written.capture.barrier.number != number)
        self._can_write(bool(self.waiting))

    def write(self) -> None:
        """The next part is in the store, or could not be written."""
        written = self.waiting.popleft()
        capture = written.capture
        barrier = capture.barrier
        _, state = self._open.pop(barrier.number)
        try:
            if state is not None:
                write_state(*self._where, written, state)
            written.rest = write_rest(*self._where, barrier, capture.rest)
            written.staged = write_staged(*self._where, barrier, capture.staged)
        except SnapshotError as error:
            written.why_failed = str(error)
        self.done.append(written)
        self._can_write(bool(self.waiting))

    def close(self) -> None:
        """See :class:`rayad.actors.worker.surroundings.Writer`."""
        self.waiting.clear()
        self._can_write(False)


__all__ = ["EventWriter"]
