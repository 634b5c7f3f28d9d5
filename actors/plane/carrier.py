"""What carries frames from a replica to others: the plane on Ray, deques in the local runtime."""

from __future__ import annotations

from typing import Any, Protocol

from rayad.actors.plane.credits import Grant
from rayad.progress import Timestamp

SOCKET_BYTES = 1 << 20
"""About the size of one or two socket buffers."""


class Carrier(Protocol):
    """Carries the frames of one replica. A payload is a batch or a mark in the carrier's own form; only the carrier looks inside it.

    A channel is an edge and the replica at its other end: of its target for what is sent, of its source for what is granted.

    ``socket_bytes``: at least so many bytes of a feedback channel may wait for the carrier before the rest is spilled to disk.
    """

    socket_bytes: int

    def encode(self, edge: int, replica: int, time: Timestamp, batch: Any) -> Any:
        """A batch as a payload for a channel."""

    def size(self, payload: Any) -> int:
        """Bytes of a batch's payload, as its receiver counts them."""

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        """A payload as bytes that can wait on disk or in a snapshot."""

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        """The inverse of :meth:`freeze`."""

    def send(self, edge: int, replica: int, kind: int, payload: Any) -> None:
        """Send a batch (``Kind.DATA``) or a mark (``Kind.BARRIER``), behind everything sent before it on the channel."""

    def grant(self, edge: int, replica: int, grant: Grant, busy_s: float) -> None:
        """Grant credit to a sender, with how long this replica has worked on its batches."""

    def queued_bytes(self, edge: int, replica: int) -> int:
        """Bytes that wait to be carried to the process of a replica."""


__all__ = ["SOCKET_BYTES", "Carrier"]
