"""Frames on a byte stream: the format, an incremental parser, and the check of their order.  No socket in here.

A connection between two actor processes is a FIFO byte stream.  A frame on it is a fixed header followed by a payload::

    length u32 | kind u8 | 3 zero bytes | channel u32 | incarnation u32 | sequence u64 | payload (length - 24 bytes)

Little endian; 24 bytes, so that a payload which is aligned at the sender stays aligned at the receiver.

On a connection that is sealed (`rayad.actors.plane.seal`) a tag follows on each payload; the length does not count it.

Invariant: what `FrameParser` gives depends on the bytes alone, never on how they were cut into pieces on their way.

Why the parser hands out the memory to receive into, and is not fed chunks: the kernel then writes a large payload directly
into the buffer that the batch's columns will point into, without a copy.  Small payloads are copied out of a shared chunk,
so that keeping one small record does not keep 64 KiB of its neighbours alive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from rayad.progress import ProtocolError

Buffer: TypeAlias = "bytes | bytearray | memoryview"
"""Bytes to send; a caller does not change them before they have been sent."""

HEADER = struct.Struct("<IB3xIIQ")
HEADER_BYTES = HEADER.size
TAG_BYTES = 16
"""Behind each payload of a sealed connection."""
FRAME_BYTES_MAX = 2**31 - 1
PAYLOAD_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES
LARGE_PAYLOAD_BYTES = 16 * 1024
"""Payloads from this size on get their own buffer when they do not arrive whole in one chunk."""
CHUNK_BYTES = 64 * 1024
_AFTER_LARGE_BYTES = 512
"""After a large frame, the next read takes no more than this: most likely another large frame's header."""
CHANNEL_MAX = INCARNATION_MAX = 2**32 - 1
PLANE_KIND = 0
"""Frames of this kind are the planes' own: they have no payload, have no sequence number, and are not given to the caller."""
ACKNOWLEDGED, GOODBYE = 0, 1
"""Channels of such frames. ACKNOWLEDGED: the sequence field holds how many frames have arrived. GOODBYE: the sender closes on purpose."""

_unpack_header = HEADER.unpack_from


class Frame(NamedTuple):
    """One message as it arrived: `payload` is `bytes` when small, else a memoryview of a buffer of its own."""

    peer: str
    kind: int
    channel: int
    sequence: int
    payload: bytes | memoryview
    incarnation: int = 0


def pack_header(payload_bytes: int, kind: int, channel: int, incarnation: int, sequence: int) -> bytes:
    """Give the header of a frame.  Raises ProtocolError when a value does not fit its field.

    >>> pack_header(2, 7, 1, 0, 5).hex()
    '1a0000000700000001000000000000000500000000000000'
    """
    if payload_bytes > PAYLOAD_BYTES_MAX:
        raise ProtocolError(
            f"a frame of kind {kind} on channel {channel} has {payload_bytes} payload bytes: a frame may hold at most "
            f"{PAYLOAD_BYTES_MAX}; send smaller batches"
        )
    try:
        if kind == PLANE_KIND:
            raise struct.error("kind 0 is the planes' own")
        return HEADER.pack(payload_bytes + HEADER_BYTES, kind, channel, incarnation, sequence)
    except struct.error as error:
        raise ProtocolError(
            f"cannot frame kind={kind} channel={channel} incarnation={incarnation} sequence={sequence}: kind must be in 1..255, "
            f"channel and incarnation in 0..{CHANNEL_MAX}, sequence in 0..2**64-1 ({error})"
        ) from None


class Opens(Protocol):
    """What opens the sealed frames of a connection; see `rayad.actors.plane.seal.Opener`."""

    def small(self, header: bytes, sealed: memoryview) -> bytes:
        """The payload of the next frame."""

    def large(self, header: bytes, sealed: memoryview) -> memoryview:
        """The payload of the next frame, in memory of its own: for frames too large for the receive buffer."""


class FrameParser:
    """Cuts a byte stream into frames, whatever the pieces in which the stream arrives.

    Either `feed(data)`, or without a copy: receive into `writable()`, then say how many bytes came with `received(n)`.
    `allocate(n)` gives the writable buffer of a large payload. `opener`: of a sealed connection.
    """

    __slots__ = (
        "_after_large", "_allocate", "_chunk", "_end", "_frame_bytes_max", "_large", "_large_at", "_large_view", "_opener", "_peer",
        "_tag_bytes", "_view",
    )  # fmt: skip

    def __init__(
        self,
        peer: str = "",
        *,
        allocate: Callable[[int], memoryview] | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        opener: Opens | None = None,
    ) -> None:
        self._peer = peer
        self._opener = opener
        self._tag_bytes = TAG_BYTES if opener is not None else 0
        self._allocate = allocate or _allocate
        self._frame_bytes_max = frame_bytes_max
        self._chunk = bytearray(CHUNK_BYTES)
        self._view = memoryview(self._chunk)
        self._end = 0  # bytes of the chunk that hold the start of a frame
        self._large: tuple[int, int, int, int] | None = None  # kind, channel, incarnation, sequence of the large frame under way
        self._large_view = memoryview(b"")
        self._large_at = 0
        self._after_large = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that has not arrived whole; 0 at a frame boundary."""
        return self._large_at + HEADER_BYTES if self._large is not None else self._end

    def writable(self) -> memoryview:
        """Give the memory for the next bytes of the stream; never empty."""
        if self._large is not None:
            return self._large_view[self._large_at :]
        if self._after_large:
            return self._view[self._end : self._end + _AFTER_LARGE_BYTES]
        return self._view[self._end :]

    def received(self, count: int, frames: list[Frame]) -> None:
        """Note that `count` bytes were put into `writable()`; append the frames that they completed."""
        if self._large is not None:
            self._large_at += count
            if self._large_at == len(self._large_view):
                kind, channel, incarnation, sequence = self._large
                payload = self._large_view
                if self._opener is not None:
                    header = HEADER.pack(len(payload) - TAG_BYTES + HEADER_BYTES, kind, channel, incarnation, sequence)
                    payload = self._opener.large(header, payload)
                frames.append(Frame(self._peer, kind, channel, sequence, payload, incarnation))
                self._large = None
                self._large_view = memoryview(b"")
                self._large_at = 0
                self._after_large = True
            return
        self._parse_chunk(self._end + count, frames)

    def feed(self, data: Buffer) -> list[Frame]:
        """Take any piece of the stream and give the frames that it completed, in order."""
        frames: list[Frame] = []
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        at = 0
        while at < len(view):
            target = self.writable()
            count = min(len(target), len(view) - at)
            target[:count] = view[at : at + count]
            self.received(count, frames)
            at += count
        return frames

    def _parse_chunk(self, end: int, frames: list[Frame]) -> None:
        at = 0
        chunk, peer, opener, tag_bytes = self._chunk, self._peer, self._opener, self._tag_bytes
        append = frames.append
        while end - at >= HEADER_BYTES:
            length, kind, channel, incarnation, sequence = _unpack_header(chunk, at)
            if not HEADER_BYTES <= length <= self._frame_bytes_max:
                raise ProtocolError(
                    f"a frame from {peer!r} says that it is {length} bytes long (kind {kind}, channel {channel}, sequence {sequence}): "
                    f"a frame has {HEADER_BYTES} to {self._frame_bytes_max} bytes; the stream is corrupt or not ours"
                )
            stop = at + length + tag_bytes
            if stop > end:
                if length >= LARGE_PAYLOAD_BYTES:
                    self._start_large(at + HEADER_BYTES, end, length - HEADER_BYTES + tag_bytes, (kind, channel, incarnation, sequence))
                    return
                break
            self._after_large = False
            start = at + HEADER_BYTES
            view = self._view[start:stop]
            payload = bytes(view) if opener is None else opener.small(bytes(chunk[at:start]), view)
            append(Frame(peer, kind, channel, sequence, payload, incarnation))
            at = stop
        rest = end - at
        if at and rest:
            chunk[:rest] = chunk[at:end]
        self._end = rest

    def _start_large(self, at: int, end: int, payload_bytes: int, header: tuple[int, int, int, int]) -> None:
        have = end - at
        self._large = header
        self._large_view = self._allocate(payload_bytes)
        self._large_view[:have] = self._view[at:end]
        self._large_at = have
        self._end = 0


def _allocate(count: int) -> memoryview:
    return memoryview(bytearray(count))


class ReceiveOrder:
    """Checks the frames of one peer: the expected incarnation, and on every channel the sequence numbers 0, 1, 2, ..."""

    __slots__ = ("_next", "expected", "peer", "stale_frames")

    def __init__(self, peer: str, expected: int) -> None:
        self.peer = peer
        self.expected = expected
        self.stale_frames = 0
        self._next: dict[int, int] = {}

    def restart(self, expected: int) -> None:
        """Expect this incarnation from now on, with every channel at sequence 0."""
        self.expected = expected
        self._next.clear()

    def accept(self, frame: Frame) -> bool:
        """True: in order.  False: of an older incarnation, drop it (it is counted).  Raises ProtocolError for all else."""
        _, kind, channel, sequence, _, incarnation = frame
        if incarnation != self.expected:
            if incarnation < self.expected:
                self.stale_frames += 1
                return False
            raise ProtocolError(
                f"a frame from {self.peer!r} (kind {kind}, channel {channel}, sequence {sequence}) carries incarnation {incarnation}, "
                f"expected is {self.expected}: a newer incarnation must be announced before it sends; "
                f"call expect({self.peer!r}, {incarnation}) first"
            )
        wanted = self._next.get(channel, 0)
        if sequence != wanted:
            what = "a frame was lost" if sequence > wanted else "a frame was repeated"
            raise ProtocolError(
                f"a frame from {self.peer!r} (kind {kind}, channel {channel}, incarnation {incarnation}) carries sequence {sequence}, "
                f"expected is {wanted}: {what}; recover from the last snapshot"
            )
        self._next[channel] = wanted + 1
        return True
