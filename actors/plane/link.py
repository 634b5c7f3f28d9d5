"""One connection of a plane: a non-blocking socket, what waits to be sent, and the parser of what arrives."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rayad.actors.plane.address import Address
from rayad.actors.plane.frames import Buffer, Frame, FrameParser
from rayad.actors.plane.handshake import Handshake

if TYPE_CHECKING:
    from rayad.actors.plane.seal import Sealer

_TCP_INFO = struct.Struct("=2x2B20xI28xI")
"""Of Linux's tcp_info: tcpi_retransmits, tcpi_probes, tcpi_unacked, tcpi_last_ack_recv."""
TCP_INFO_BYTES = _TCP_INFO.size
SEND_BUFFERS_MAX = 256  # of one sendmsg; below every system's IOV_MAX
READ_BYTES_MAX = 4 * 1024 * 1024  # of one link in one poll, so that one busy peer does not starve the others


class Link:
    """A connection that is being authenticated (`handshake` is set) or established (`peer` is proven)."""

    __slots__ = (
        "address", "announce", "asks_since_s", "broken", "deadline_s", "fd", "handshake", "is_refused", "outgoing", "parser", "peer",
        "queue", "queued_bytes", "reason", "replaces", "sealer", "sock", "transport", "watched",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, transport: str, handshake: Handshake, deadline_s: float) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.transport = transport
        self.handshake: Handshake | None = handshake
        self.deadline_s = deadline_s
        self.peer = handshake.peer
        self.outgoing = bool(handshake.peer)
        self.address: Address | None = None  # of the peer, when outgoing
        self.announce = False  # take_lost reports its failure; else connect() raises it
        self.replaces = False  # it is to replace a lost connection; its failure is not reported
        self.asks_since_s: float | None = None  # since when the peer's kernel has left our kernel's probes or data unanswered
        self.parser: FrameParser | None = None
        self.sealer: Sealer | None = None  # of an established connection between nodes
        self.queue: deque[memoryview] = deque()
        self.queued_bytes = 0
        self.is_refused = False  # no process listens there
        self.broken = False  # a write failed: read what is left, then give up
        self.reason = ""
        self.watched = 0  # the events it is registered for

    def enqueue(self, part: Buffer, sent: int = 0) -> None:
        """Queue a part of which `sent` bytes are already on their way."""
        view = part if type(part) is memoryview and part.format == "B" and part.ndim == 1 else memoryview(part).cast("B")
        if sent:
            view = view[sent:]
        if len(view):
            self.queue.append(view)
            self.queued_bytes += len(view)

    def put(self, parts: Sequence[Buffer]) -> None:
        """Queue a frame: one part, or the header and the parts of its payload."""
        if self.sealer is None:
            for part in parts:
                self.enqueue(part)
        elif len(parts) == 1:
            self.enqueue(self.sealer.small(bytes(parts[0])))
        else:
            self.enqueue(self.sealer.large(bytes(parts[0]), parts[1:]))

    def flush(self) -> None:
        """Send as much of the queue as the socket takes.  Sets `broken` when the connection is gone."""
        queue = self.queue
        while queue:
            buffers = [queue[i] for i in range(min(len(queue), SEND_BUFFERS_MAX))] if len(queue) > 1 else [queue[0]]
            try:
                sent = self.sock.sendmsg(buffers)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.fail(error)
                return
            self.queued_bytes -= sent
            whole = 0
            for view in buffers:
                if sent < len(view):
                    break
                sent -= len(view)
                whole += 1
            for _ in range(whole):
                queue.popleft()
            if whole < len(buffers):
                if sent:
                    queue[0] = queue[0][sent:]
                return

    def fail(self, error: OSError) -> None:
        """Note that nothing can be sent any more."""
        self.broken = True
        self.is_refused = isinstance(error, ConnectionRefusedError)
        self.reason = self.reason or f"sending failed: {error}"
        self.queue.clear()
        self.queued_bytes = 0

    def read(self, frames: list[Frame]) -> tuple[int, bool]:
        """Receive what is there; append the frames that are whole.  Gives the bytes read and whether the stream goes on."""
        parser = self.parser
        assert parser is not None, "only an established link is read"
        recv_into, total = self.sock.recv_into, 0
        while True:
            view = parser.writable()
            try:
                count = recv_into(view)
            except (BlockingIOError, InterruptedError):
                return total, True
            except OSError as error:
                self.reason = self.reason or f"receiving failed: {error}"
                return total, False
            if not count:
                self.reason = self.reason or self._end_of_stream()
                return total, False
            parser.received(count, frames)
            total += count
            if count < len(view) or total >= READ_BYTES_MAX:
                return total, True

    def _end_of_stream(self) -> str:
        rest = self.parser.buffered_bytes if self.parser is not None else 0
        return f"the peer closed the connection{f' inside a frame ({rest} bytes of it had come)' if rest else ''}"

    def silent_s(self, now_s: float) -> float:
        """How long the peer's kernel has left unanswered what was sent to it: data, or a probe whether its buffer has room again.

        The kernel answers even while its process is busy or stopped; so a full buffer there does not count as silence.
        """
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except (OSError, AttributeError):  # a system that cannot tell: keepalive notices the dead, when nothing is under way
            return 0.0
        if len(info) < TCP_INFO_BYTES:
            return 0.0
        retransmits, probes, unacknowledged, since_answer_ms = _TCP_INFO.unpack(info)
        if not (probes or (retransmits and unacknowledged)):
            self.asks_since_s = None
            return 0.0
        answered_s = now_s - since_answer_ms / 1000
        if self.asks_since_s is None or answered_s > self.asks_since_s:
            self.asks_since_s = now_s
        return now_s - self.asks_since_s


def drain_before_close(links: list[Link], deadline_s: float) -> None:
    """Wait until the peers' kernels have all that was sent.

    Closing a TCP socket that holds unread data resets the connection, which destroys what is still on its way to the peer.  A Unix
    socket hands its bytes over when they are sent, so it has nothing to wait for.
    """
    waiting = []
    for link in links:
        with suppress(OSError):
            link.sock.shutdown(socket.SHUT_WR)
            if link.transport == "tcp":
                waiting.append(link)
    while waiting and time.monotonic() < deadline_s:
        waiting = [link for link in waiting if not _has_drained(link.sock)]
        if waiting:
            time.sleep(0.0005)


def _has_drained(sock: socket.socket) -> bool:
    try:
        with suppress(BlockingIOError):
            while sock.recv(65536):
                pass
            return True  # the peer has closed its side, too
        (unsent,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
        return bool(unsent == 0)
    except OSError:
        return True  # reset, or a system that cannot tell
