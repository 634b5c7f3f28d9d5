"""What has arrived at a replica and waits to be consumed: regular batches, what came round a loop, frames of a live input."""

from __future__ import annotations

from collections import deque
from typing import Any

from rayad.actors.plane.feedback_queue import FeedbackQueue
from rayad.actors.plane.plane import Frame
from rayad.dataflow.config import RunConfig
from rayad.progress import Timestamp

Entry = tuple[int, str, Any]
"""An edge, the peer, and an encoded batch or a Barrier."""
FeedbackEntry = tuple[int, int, Timestamp | None, Any]
"""An edge, the sending replica, and a batch with its time; without a time a barrier or marker."""


class Arrived:
    """The queues of one replica's host."""

    def __init__(self, config: RunConfig) -> None:
        self.regular: deque[Entry] = deque()
        self.held: deque[Entry] = deque()
        """Behind barriers that have not come on all channels."""
        self.restored: deque[tuple[int, Any]] = deque()
        """What was on its way here when the snapshot that is resumed was cut; it comes before everything else."""
        self.feedback = FeedbackQueue(config.spill_memory_bytes, config.spill_directory)
        self.input: deque[tuple[int, Frame]] = deque()
        self._blocked_feedback: FeedbackEntry | None = None
        self._first_feedback: FeedbackEntry | None = None

    def has_feedback(self) -> bool:
        """Whether something that came round a loop may be consumed."""
        return self._blocked_feedback is None and (self._first_feedback is not None or len(self.feedback) > 0)

    def pop_feedback(self) -> FeedbackEntry:
        """The next of these."""
        if self._first_feedback is not None:
            first, self._first_feedback = self._first_feedback, None
            return first
        return self.feedback.pop()

    def block_feedback(self, entry: FeedbackEntry) -> None:
        """It waits for a barrier, and all that came behind it with it."""
        self._blocked_feedback = entry

    def unblock_feedback(self) -> None:
        """The barrier has come on all channels."""
        self._first_feedback, self._blocked_feedback = self._blocked_feedback or self._first_feedback, None

    def close(self) -> None:
        """Release files."""
        self.feedback.close()
