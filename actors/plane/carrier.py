"""What carries frames from a replica to others: the plane on Ray, deques in the local runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rayad.actors.plane.batch_codec import encode_batch, payload_bytes
from rayad.actors.plane.credits import Grant
from rayad.actors.plane.protocol import Kind, pack_credit
from rayad.progress import Timestamp

if TYPE_CHECKING:
    from rayad.actors.plane.plane import Plane  # sockets, which the local runtime has none of

SOCKET_BYTES = 1 << 20
"""About the size of one or two socket buffers."""


class Carrier(Protocol):
    """Carries the frames of one replica. A payload is a batch or a mark in the carrier's own form; only the carrier looks inside it.

    ``socket_bytes``: at least so many bytes of a feedback channel may wait for the carrier before the rest is spilled to disk.
    """

    socket_bytes: int

    def encode(self, time: Timestamp, batch: Any) -> Any:
        """A batch as a payload."""

    def size(self, payload: Any) -> int:
        """Bytes of a batch's payload, as its receiver counts them."""

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        """A payload as bytes that can wait on disk or in a snapshot."""

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        """The inverse of :meth:`freeze`."""

    def send(self, peer: str, kind: int, edge: int, payload: Any) -> None:
        """Send a batch (``Kind.DATA``) or a mark (``Kind.BARRIER``), behind everything sent before it on the channel."""

    def grant(self, peer: str, edge: int, grant: Grant, busy_s: float) -> None:
        """Grant credit to a sender, with how long this replica has worked on its batches."""

    def queued_bytes(self, peer: str) -> int:
        """Bytes that wait to be carried to a peer."""


class PlaneCarrier:
    """The data plane of a replica's process as a :class:`Carrier`: payloads are buffers."""

    socket_bytes = SOCKET_BYTES

    def __init__(self, plane: Plane) -> None:
        self.send = plane.send
        self.queued_bytes = plane.queued_bytes
        self.encode = encode_batch
        self.size = payload_bytes

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        """See :class:`Carrier`."""
        return bytes(payload) if is_mark else b"".join(payload)

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        """See :class:`Carrier`."""
        return data if is_mark else [data]

    def grant(self, peer: str, edge: int, grant: Grant, busy_s: float) -> None:
        """See :class:`Carrier`."""
        self.send(peer, Kind.CREDIT, edge, pack_credit(grant.batches, grant.bytes, busy_s))


__all__ = ["SOCKET_BYTES", "Carrier", "PlaneCarrier"]
