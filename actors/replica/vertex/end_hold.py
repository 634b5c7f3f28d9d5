"""An EndVertex's right to send when its input ends. It follows the input frontier, so that downstream is not held back (decision 046)."""

from __future__ import annotations

from rayad.actors.replica.progress_changes import ProgressChanges
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.dataflow.vertex import EndVertex
from rayad.progress import Timestamp, View


class EndHold:
    """The right of one replica; a vertex of another kind never gets one."""

    def __init__(self, changes: ProgressChanges) -> None:
        self.time: Timestamp | None = None
        """From which time on the vertex may send at the end; None: it has no such right, or not any more."""
        self.latest: Timestamp | None = None
        """The last of the times consumed, while there is a right."""
        self.has_spoken = False
        """Whether the vertex has used its right: its input has ended."""
        self._changes = changes

    def begin(self, time: Timestamp | None) -> None:
        """Get the right at a time; None: of a newcomer, which gets it from a sibling, or used up before the cut that it resumes from."""
        self.time = time
        if time is not None:
            self._changes.capability(time, 1)

    def consumed(self, time: Timestamp) -> None:
        """Something of this time has been consumed, while there is a right."""
        if self.latest is None or self.latest < time:
            self.latest = time

    def follow(self, vertex: EndVertex, view: View, callbacks: Callbacks, *, is_waiting: bool) -> None:
        """Move the right up to the input frontier. When the input has ended and nothing ``is_waiting``, call on_end and drop it."""
        assert self.time is not None
        frontier = view.input_frontier
        if frontier:
            front = min(frontier, key=Timestamp.sort_key)
            if self.time < front:
                callbacks.at_end("on_advance", vertex.on_advance, self.time)
                self._changes.capability(self.time, -1)
                self._changes.capability(front, 1)
                self.time = front
            return
        if is_waiting:
            return
        # Which frontiers were seen depends on timing; the time at which the inputs ended and the last time consumed do not.
        ends = [time for time in (self.latest, view.end) if time is not None and self.time < time]
        last = max(ends, key=Timestamp.sort_key, default=self.time)
        if self.time < last:  # the frontier has moved beyond it, too
            callbacks.at_end("on_advance", vertex.on_advance, self.time)
        callbacks.at_end("on_end", vertex.on_end, last)
        self._changes.capability(self.time, -1)
        self.time, self.has_spoken = None, True

    # -- moving with key-groups ------------------------------------------------------------------------
    def along(self) -> tuple[Timestamp | None, Timestamp | None]:
        """What moves to a sibling: the right, counted once more from now on, and the last time consumed."""
        if self.time is not None:
            self._changes.capability(self.time, 1)
        return self.time, self.latest

    def take(self, time: Timestamp, latest: Timestamp | None) -> None:
        """Take a sibling's right, which is counted already; a replica that has one keeps its own."""
        self.has_spoken = False
        if self.time is None:
            self.time = time
        else:
            self._changes.capability(time, -1)
        if latest is not None and (self.latest is None or self.latest < latest):
            self.latest = latest

    def let_go(self) -> None:
        """Drop the right."""
        if self.time is not None:
            self._changes.capability(self.time, -1)
            self.time = None
