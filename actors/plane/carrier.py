"""What carries frames from a replica to others: the plane on Ray, deques in the local runtime."""

from __future__ import annotations

from typing import Any, Protocol

from rayad.actors.plane.batch_codec import encode_batch, payload_bytes
from rayad.actors.plane.credits import Grant
from rayad.actors.plane.plane import Plane
from rayad.actors.plane.protocol import Kind, pack_credit
from rayad.progress import Timestamp

SOCKET_BYTES = 1 << 20
"""What fits into a socket's buffer or two."""


class Carrier(Protocol):
    """Of one replica. A payload is a batch or a mark in the form in which this carrier takes it; nobody else looks inside.

    ``socket_bytes``: how much of a feedback channel may wait to be carried at the least, before the rest waits on disk.
    """

    socket_bytes: int

    def encode(self, time: Timestamp, batch: Any) -> Any:
        """A batch as a payload."""

    def size(self, payload: Any) -> int:
        """Bytes of a batch' payload, as its receiver counts them."""

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        """A payload as bytes that can wait on disk or in a snapshot."""

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        """The inverse of :meth:`freeze`."""

    def send(self, peer: str, kind: int, edge: int, payload: Any) -> None:
        """A batch (``Kind.DATA``) or a mark (``Kind.BARRIER``) leaves, behind all that left before it on the channel."""

    def grant(self, peer: str, edge: int, grant: Grant, busy_s: float) -> None:
        """A credit leaves for a sender, with how long this replica has worked for it."""

    def queued_bytes(self, peer: str) -> int:
        """What waits to be carried to somebody."""


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
