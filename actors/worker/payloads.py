"""What travels on a channel: a batch encoded into buffers between processes, or the batch itself within a worker or a process.

Within a worker a batch that waits on disk stays there until it is consumed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rayad.actors.plane.batch_codec import batch_bytes, decode_batch, encode_batch
from rayad.actors.plane.protocol import unpack_number
from rayad.actors.replica.output.spilled_batches import SpilledBatch
from rayad.progress import Timestamp


class Handed(NamedTuple):
    """A batch of a replica, or a live input, in the same worker or process, as it is (decision 032: records are not changed in place)."""

    time: Timestamp
    batch: Any
    size: int
    """An estimate of its bytes; for its credit."""


class Numbered(NamedTuple):
    """A batch of a live input in the same process, with its number."""

    number: int
    batch: Handed


class Rest(bytes):
    """The part of an encoded batch that stays here; ``credit``: bytes of the whole batch, as its sender counts them."""

    credit: int


IN_ONE_PIECE = (Handed, SpilledBatch)
"""What is handed over in a worker."""


class Ended:
    """Stands behind the last payload of a sender that has retired."""


ENDED = Ended()


def handed(time: Timestamp, batch: Any) -> Handed:
    """A batch to be handed over."""
    return Handed(time, batch, batch_bytes(batch))


def encoded(payload: Any) -> Any:
    """An encoded batch, read if it waits on disk."""
    return payload.read() if type(payload) is SpilledBatch else payload


def leaving(payload: Any, *, as_it_is: bool) -> Any:
    """What goes to another process, or ``as_it_is`` to another worker in this one: a batch that waits on disk is read now."""
    if type(payload) is not SpilledBatch:
        return payload
    data = payload.read()
    return Handed(*decode_batch(data), payload.size) if as_it_is else [data]


def opened(payload: Any) -> tuple[Timestamp, Any]:
    """The time and the batch of a payload."""
    if type(payload) is Handed:
        return payload.time, payload.batch
    return decode_batch(encoded(payload))


def numbered(payload: Any) -> tuple[int, Any]:
    """The number of a frame of a live input, and what it has."""
    return payload if type(payload) is Numbered else unpack_number(payload)


def bytes_of(payload: Any) -> int:
    """What it counts for where it waits."""
    return payload.size if type(payload) in IN_ONE_PIECE else len(payload)


def credit_of(payload: Any) -> int:
    """Its bytes, as its sender counts them."""
    kind = type(payload)
    return int(payload.size if kind in IN_ONE_PIECE else payload.credit if kind is Rest else len(payload))


def frozen(payload: Any) -> bytes:
    """A payload as bytes, for a log or a file."""
    if type(payload) is Handed:
        return b"".join(encode_batch(payload.time, payload.batch))
    return bytes(encoded(payload))


__all__ = [
    "ENDED",
    "IN_ONE_PIECE",
    "Ended",
    "Handed",
    "Numbered",
    "Rest",
    "bytes_of",
    "credit_of",
    "encoded",
    "frozen",
    "handed",
    "leaving",
    "numbered",
    "opened",
]
