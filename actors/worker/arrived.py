"""What has arrived at a replica and waits to be consumed: regular batches, what came round a loop, frames of a live input."""

from __future__ import annotations

from collections import deque
from typing import Any

from rayad.actors.plane.feedback_queue import FeedbackQueue
from rayad.actors.plane.frames import Frame

Entry = tuple[int, int, Any]
"""An edge, the replica that sent it, and a payload, a `Barrier`, or ENDED."""


class Arrived:
    """The queues of one replica.

    Args:
        feedback: what came round a loop.
    """

    def __init__(self, feedback: FeedbackQueue) -> None:
        self.regular: deque[Entry] = deque()
        self.held: deque[Entry] = deque()
        """Batches that wait behind a barrier which has not yet come on all channels."""
        self.restored: deque[tuple[int, Any]] = deque()
        """What was in flight to this replica at the cut of the snapshot from which it resumed; it is consumed before everything else."""
        self.feedback = feedback
        self.input: deque[tuple[int, Frame]] = deque()
