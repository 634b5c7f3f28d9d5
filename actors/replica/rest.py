"""What a snapshot holds of a replica besides its vertex's state, and how a replica restores it.

Everything is by name (vertices, edges, sinks), because ids change when a dataflow is changed elsewhere. Batches are kept encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.progress import Timestamp

FORMAT = 1
MAKER_BYTES_MAX = 1 << 16
"""A larger factory (a model in a function's closure) is not written with each snapshot."""


@dataclass(frozen=True, slots=True)
class ResumedPart:
    """A replica's part of a snapshot, read back.

    Args:
        states: what ``Vertex.checkpoint`` gave, then the changes since, oldest first; empty when the vertex had no state.
        rest: see :class:`PartRest`, as a dict.
    """

    states: tuple[Any, ...]
    rest: Mapping[str, Any]


@dataclass(slots=True)
class PartRest:
    """A cut through one replica, without its vertex' state; the log grows until the barriers have come back.

    Args:
        source: position in the source; None: exhausted, or none.
        input_epoch, input_frames, input_sends, input_note: of a live input; None: closed. How many frames of the driver's have been
            consumed, how many of them brought records, and its user's note. input_before: epochs before this have come; None: all.
            input_begun: the last epoch of which records have come; -1: none have.
        begun: of a source or live input before collections: its epochs that may not be complete behind it.
        notifications: ``(guarantee, capability)`` of those that have been asked for.
        furthest: the epoch to which a source has come, or in which a live input was closed.
        hold, latest: an EndVertex's right to send at the end, and the last time at which it consumed something.
        parked: ``(edge, batch)`` waiting for their turn.
        gated: ``(edge, batch)`` waiting for their time to be complete (upstream recovery).
        passed: frontiers before which batches are repetitions (upstream recovery).
        log: ``(edge, source replica, batch)`` in flight towards this replica.
        outbox: ``(edge, target replica, batch)`` in flight from this replica (unaligned snapshots only).
        counts: batches and records consumed, batches sent.
        vertex: the class of the vertex and its ``state_version``: a factory does not tell what it makes before it is called.
        maker: of a vertex with keyed state its factory, see :func:`stored_maker`; None: it has none.
        applied: the last epoch of which the state may hold something; None: not known.
        passed_epoch: the last epoch that is complete at all replicas of the vertex, as far as this one knows; -1: none.
    """

    source: Any = None
    input_epoch: int | None = None
    input_frames: int = 0
    input_sends: int = 0
    input_note: str | None = None
    input_before: int | None = 0
    input_begun: int = -1
    begun: list[int] = field(default_factory=list)
    notifications: list[tuple[Timestamp, Timestamp | None]] = field(default_factory=list)
    furthest: int = 0
    hold: Timestamp | None = None
    latest: Timestamp | None = None
    parked: list[tuple[str, bytes]] = field(default_factory=list)
    gated: list[tuple[str, bytes]] = field(default_factory=list)
    passed: list[tuple[Timestamp, ...]] = field(default_factory=list)
    log: list[tuple[str, int, bytes]] = field(default_factory=list)
    outbox: list[tuple[str, int, bytes]] = field(default_factory=list)
    counts: tuple[int, int, int] = (0, 0, 0)
    vertex: dict[str, Any] | None = None
    maker: bytes | None = None
    applied: int | None = -1
    passed_epoch: int = -1

    @property
    def input_state(self) -> tuple[int, int | None, str | None, int, int | None]:
        """Of a live input: what the manifest says of it, see ``PartReport``."""
        reached = self.input_epoch if self.input_epoch is not None else self.furthest
        return self.input_sends, self.input_epoch, self.input_note, reached, self.input_before

    def plain(self) -> dict[str, Any]:
        """As a dict of plain values."""
        return {"format": FORMAT, **{name: getattr(self, name) for name in self.__slots__}}


def least_epoch(rest: Mapping[str, Any]) -> int | None:
    """In which epoch a source or live input goes on, or the least that waits for its time here; None: none. Of :meth:`PartRest.plain`.

    The manifest has it, since a part is not unpickled to list a snapshot.
    """
    begins = rest["source"][0] if rest["source"] is not None else rest["input_epoch"]
    waiting = [guarantee.epoch for guarantee, _ in rest["notifications"]]
    found = [*waiting, *([] if begins is None else [begins])]
    return int(min(found)) if found else None


def stored_maker(make: Any) -> bytes:
    """A vertex' factory for snapshots, so that its state can be read without the program; empty where it is large or cannot be pickled.

    Classes and functions of ``__main__`` go by value, all others by the names of their modules.
    """
    try:
        data: bytes = cloudpickle.dumps(make, protocol=5)
    except Exception:  # whatever a user's object raises: a job must not fail because its state could not be read without it
        return b""
    return data if len(data) <= MAKER_BYTES_MAX else b""


def freeze(time: Timestamp, batch: Any) -> bytes:
    """A batch as self-contained bytes."""
    return b"".join(encode_batch(time, batch))


def thaw(data: bytes) -> tuple[Timestamp, Any]:
    """The inverse of :func:`freeze`."""
    return decode_batch(data)
