"""Credits: how much may be under way on a regular channel.  Pure; one object for each end of a channel.

A channel has a window of so many batches and so many bytes.  What was sent and not yet granted back is *in flight*.  The sender
starts nothing new while the window is full; the receiver grants back what it has consumed, lazily, once that is half of the
window: one grant pays for many batches, and the sender does not run dry while the receiver works on the other half.

Invariant: nothing in flight is negative, and a sender that asks `may_send` before each batch never has more in flight than
`batches` batches, nor more than `bytes` bytes and one batch.  (An activation that sends several batches asks once, and may exceed the
window by them.)

Why `may_send` does not ask for the size of the next batch: the receiver may sit on just less than half of the window, consumed
but not granted.  A batch that does not fit beside that would wait for ever; so would one that is larger than the whole window.
Thus no deadlock: if there is nothing left to consume then less than half of each window is in flight, and `may_send` is true.

Feedback edges have no credits: they spill (`spilling_queue.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from rayad.progress import ConfigError, InternalError, ProtocolError


class Grant(NamedTuple):
    """What was consumed, and may therefore be sent again; travels as one message: `window.on_credit(*grant)`."""

    batches: int
    bytes: int


class SendWindow:
    """The sender's end: what is in flight.

    >>> window = SendWindow(2, 1000)
    >>> window.on_send(5000); window.may_send()
    False
    >>> window.on_credit(1, 5000); window.may_send()
    True
    """

    __slots__ = ("batches", "bytes", "in_flight_batches", "in_flight_bytes")

    def __init__(self, batches: int, bytes: int) -> None:  # noqa: A002 - the public name
        _check_window(batches, bytes)
        self.batches = batches
        self.bytes = bytes
        self.in_flight_batches = 0
        self.in_flight_bytes = 0

    @property
    def in_flight(self) -> Grant:
        """What was sent and not granted back."""
        return Grant(self.in_flight_batches, self.in_flight_bytes)

    def resize(self, batches: int, size_bytes: int) -> None:
        """Change the window; what is in flight beyond it stays in flight. The receiver's window must never be larger than this one."""
        _check_window(batches, size_bytes)
        self.batches, self.bytes = batches, size_bytes

    def may_send(self) -> bool:
        """Say whether another batch, of any size, may be sent; always true when nothing is in flight."""
        return self.in_flight_batches < self.batches and self.in_flight_bytes < self.bytes

    def on_send(self, size_bytes: int) -> None:
        """Note that a batch was sent."""
        if size_bytes < 0:
            raise InternalError(f"on_send({size_bytes}): a batch has 0 or more bytes")
        self.in_flight_batches += 1
        self.in_flight_bytes += size_bytes

    def on_credit(self, batches: int, size_bytes: int) -> None:
        """Take a grant.  Raises ProtocolError, and changes nothing, when it is for more than is in flight."""
        if not (0 <= batches <= self.in_flight_batches and 0 <= size_bytes <= self.in_flight_bytes):
            raise ProtocolError(
                f"a credit for {batches} batches and {size_bytes} bytes, but in flight are {self.in_flight_batches} batches and "
                f"{self.in_flight_bytes} bytes: a receiver grants what it consumed, once; a grant was repeated or is of another channel"
            )
        if batches == self.in_flight_batches and size_bytes != self.in_flight_bytes:
            raise ProtocolError(
                f"a credit for all {batches} batches in flight, but for {size_bytes} of their {self.in_flight_bytes} bytes: "
                "sender and receiver must count the same size for a batch (the payload's length)"
            )
        self.in_flight_batches -= batches
        self.in_flight_bytes -= size_bytes

    def check_invariants(self) -> None:
        """Raise InternalError when the counts are impossible."""
        if self.in_flight_batches < 0 or self.in_flight_bytes < 0 or (not self.in_flight_batches and self.in_flight_bytes):
            raise InternalError(f"{self!r}: the counts in flight are never negative, and without batches there are no bytes")

    def __repr__(self) -> str:
        return f"SendWindow({self.in_flight_batches}/{self.batches} batches, {self.in_flight_bytes}/{self.bytes} bytes in flight)"


class ReceiveWindow:
    """The receiver's end: what it has consumed and not granted yet.

    >>> window = ReceiveWindow(4, 1000)
    >>> window.on_consumed(10), window.on_consumed(10)
    (None, Grant(batches=2, bytes=20))
    """

    __slots__ = ("_grant_batches", "_grant_bytes", "batches", "bytes", "consumed_batches", "consumed_bytes")

    def __init__(self, batches: int, bytes: int) -> None:  # noqa: A002 - the public name
        _check_window(batches, bytes)
        self.consumed_batches = 0
        self.consumed_bytes = 0
        self.batches = batches
        self.bytes = bytes
        self._grant_batches = max(1, batches // 2)
        self._grant_bytes = max(1, bytes // 2)

    def resize(self, batches: int, size_bytes: int) -> Grant | None:
        """Change the window; give the grant that is then due."""
        _check_window(batches, size_bytes)
        self.batches, self.bytes = batches, size_bytes
        self._grant_batches, self._grant_bytes = max(1, batches // 2), max(1, size_bytes // 2)
        return self.settle() if self.consumed_batches >= self._grant_batches or self.consumed_bytes >= self._grant_bytes else None

    def on_consumed(self, size_bytes: int) -> Grant | None:
        """Note that a batch was consumed; give the grant to send, if it is time for one."""
        if size_bytes < 0:
            raise InternalError(f"on_consumed({size_bytes}): a batch has 0 or more bytes")
        self.consumed_batches += 1
        self.consumed_bytes += size_bytes
        if self.consumed_batches >= self._grant_batches or self.consumed_bytes >= self._grant_bytes:
            return self.settle()
        return None

    def settle(self) -> Grant | None:
        """Give the grant for all that was consumed, None for nothing: for an idle moment, or before the channel is handed over."""
        if not self.consumed_batches:
            return None
        grant = Grant(self.consumed_batches, self.consumed_bytes)
        self.consumed_batches = self.consumed_bytes = 0
        return grant

    def __repr__(self) -> str:
        return f"ReceiveWindow({self.batches} batches, {self.bytes} bytes; {self.consumed_batches} batches consumed and not granted)"


def _check_window(batches: int, size_bytes: int) -> None:
    if batches < 1 or size_bytes < 1:
        raise ConfigError(f"a window of {batches} batches and {size_bytes} bytes: both must be at least 1, else nothing could ever be sent")
