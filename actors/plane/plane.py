"""The data plane: direct, authenticated FIFO connections between actor processes.

One `Plane` per process, used by one thread (`wakeup` excepted).  It never blocks except in `connect`, `poll` and `close`, starts no
thread, and hands each frame over exactly once, in the order of its channel, or raises ProtocolError.

A lost connection between two living processes is replaced by the side that had made it, and what had not arrived is sent again: senders
keep what receivers have not acknowledged.  Only when there is no other connection within `reconnect_s`, or the process there is gone, or
has closed its plane, is the peer lost; recovery from a snapshot replaces what is lost with it.  A busy process does not count as lost: its
kernel answers while it does not read.

Invariant: between two planes the frames of a channel are numbered 0, 1, 2, ... from the later of the two processes' start or
the sender's last `advance`; the receiver accepts exactly that sequence, of exactly the incarnation that it was told to expect.

Why raw sockets: see `docs/decisions/001-transport.md`. The listening sockets are a Unix socket in the abstract namespace (there is no
file to leave behind) and a TCP socket on one address.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from rayad.actors.plane.address import Address, open_listeners
from rayad.actors.plane.carrier import SOCKET_BYTES
from rayad.actors.plane.event_loop import PlaneLoop
from rayad.actors.plane.frames import CHANNEL_MAX, HEADER, HEADER_BYTES, PAYLOAD_BYTES_MAX, Buffer, Frame, pack_header
from rayad.actors.plane.link import Link, drain_before_close
from rayad.actors.plane.peers import ConnectFailed, PeerStatistics, PlaneStatistics, check_incarnation
from rayad.actors.plane.poller import READABLE, WRITABLE
from rayad.progress import ConfigError, ProtocolError

__all__ = ["Address", "ConnectFailed", "Frame", "PeerStatistics", "Plane", "PlaneStatistics"]

JOIN_BYTES_MAX = 4096  # up to here, joining header and parts costs less than a scattered send
_pack = HEADER.pack


class Plane(PlaneLoop):
    """One process's end of the data plane.

    `name` is how peers call it; `job`, the names and `secret` (at least 16 bytes) are proven by both sides of every connection;
    `incarnation` is stamped on every frame.  `spin_s`, `reconnect_s`: see `PlaneLoop`.
    """

    hands_over = False
    socket_bytes = SOCKET_BYTES

    # -- connections ---------------------------------------------------------------------------------------------------------------

    def listen(self, host: str = "127.0.0.1", port: int = 0, *, unix: str = "auto") -> Address:
        """Listen on a Unix socket and on TCP at `host`, and give the address for peers.  Every-interface hosts raise ConfigError."""
        if self._listeners is not None:
            raise ConfigError(f"plane {self.name!r} listens already; one listen() per plane")
        self._listeners = open_listeners(host, port, unix=unix)
        for listener in self._listeners.sockets:
            self._poller.register(listener.fileno(), READABLE)
        return self._listeners.address

    def connect(self, peer: str, address: Address, timeout_s: float = 10.0) -> None:
        """Connect and authenticate; blocks, but serves the other connections meanwhile.  Raises ConnectFailed."""
        deadline_s = time.monotonic() + timeout_s
        before = self._peers[peer].link if peer in self._peers else None
        link: Link | None = None
        while link is None:
            try:
                link = self._start(peer, address, deadline_s)
            except BlockingIOError as error:  # a Unix socket's backlog is full: the peer has not polled for a while
                if time.monotonic() >= deadline_s:
                    raise ConnectFailed(f"{self.name!r} cannot connect to {peer!r} within {timeout_s} s: {error}") from None
                self._step(0.005)
        while link.handshake is not None and link.fd >= 0:
            self._step(max(0.0, deadline_s - time.monotonic()))
            state = self._peers.get(peer)
            if state is not None and state.link is not None and state.link is not before:
                return  # the peer's own connect, at the same time, was faster
        if link.handshake is not None:
            raise ConnectFailed(
                f"{self.name!r} cannot connect to {peer!r} by {link.transport} within {timeout_s} s: {link.reason}. "
                "Is that process alive and polling its plane, with the same job and secret?"
            )

    def start_connect(self, peer: str, address: Address, timeout_s: float = 10.0) -> None:
        """Begin to connect, without blocking; `poll` does the rest, and `connected` tells when frames may be sent.

        When it fails, `take_lost` names the peer and `why_lost` gives the reason.
        """
        self._start(peer, address, time.monotonic() + timeout_s).announce = True

    def connected(self, peer: str) -> bool:
        """Say whether what is sent to `peer` will arrive: there is an authenticated connection, or one that was lost may be replaced."""
        state = self._peers.get(peer)
        return state is not None and (state.link is not None or state.until_s is not None)

    def has_left(self, peer: str) -> bool:
        """Say whether the last connection with `peer` ended because it closed its plane, and not by an accident."""
        state = self._peers.get(peer)
        return state is not None and state.has_left

    def expect(self, peer: str, incarnation: int) -> None:
        """Accept frames of `peer` only from this incarnation on; without this call the plane's own incarnation is expected.

        A higher one restarts the sequence numbers of the frames that come from `peer`.
        """
        check_incarnation(incarnation)
        state = self._peer(peer)
        state.told = True
        if incarnation < state.order.expected and state.instance:
            raise ProtocolError(
                f"expect({peer!r}, {incarnation}) at plane {self.name!r}: it expects {state.order.expected} already; incarnations only grow"
            )
        if incarnation != state.order.expected:
            state.order.restart(incarnation)
        if state in self._missing and incarnation > state.process_incarnation:
            self._stop_looking(state)  # for a process that is fenced off

    def advance(self, incarnation: int) -> None:
        """Continue under a higher incarnation in the same process: frames carry it from now on, and all channels restart at sequence 0.

        Peers that were never given to `expect` are expected to advance as well.
        """
        check_incarnation(incarnation)
        if incarnation <= self.incarnation:
            raise ProtocolError(f"advance({incarnation}) at plane {self.name!r}: it is at {self.incarnation} and incarnations only grow")
        self.incarnation = incarnation
        for state in self._peers.values():
            state.next_out.clear()
            if not state.told:
                state.order.restart(incarnation)

    def broken(self) -> dict[str, float]:
        """The peers whose connection was lost and may still be replaced, and for how many seconds it has been."""
        now_s = time.monotonic()
        lost = {name: state.until_s for name, state in self._peers.items() if state.link is None and state.until_s is not None}
        return {name: max(0.0, self._reconnect_s - (until_s - now_s)) for name, until_s in lost.items()}

    def take_lost(self) -> list[str]:
        """Give the peers that were lost for good since the last call.  What had arrived before that is still given by `poll`."""
        lost, self._lost = self._lost, []
        return lost

    def forget(self, peer: str) -> None:
        """Keep nothing of a peer that is lost, and comes under this name never again."""
        state = self._peers.get(peer)
        if state is not None and state.link is None and state.until_s is None:
            del self._peers[peer]
            self._why.pop(peer, None)

    def why_lost(self, peer: str) -> str:
        """Give the reason why `peer` was lost last, "" if it never was."""
        return self._why.get(peer, "")

    # -- frames --------------------------------------------------------------------------------------------------------------------

    def send(self, peer: str, kind: int, channel: int, parts: Buffer | Sequence[Buffer]) -> None:
        """Send one frame; never blocks.  What the socket does not take now is queued, by reference: do not change the buffers.

        A frame to a lost peer is counted and dropped.  For a peer that never was connected it raises ProtocolError.
        """
        state = self._peers.get(peer)
        if state is None or (state.link is None and state.until_s is None):
            self._send_to_nobody(peer, state)
            return
        link = state.link
        next_out = state.next_out
        sequence = next_out.get(channel, 0)
        if isinstance(parts, (bytes, bytearray, memoryview)):
            parts = (parts,)
        size = 0
        for part in parts:
            size += part.nbytes if type(part) is memoryview else len(part)
        if 0 < kind <= 255 and size <= PAYLOAD_BYTES_MAX and 0 <= channel <= CHANNEL_MAX:
            header = _pack(size + HEADER_BYTES, kind, channel, self.incarnation, sequence)
        else:
            header = pack_header(size, kind, channel, self.incarnation, sequence)  # raises an error that says what is wrong
        next_out[channel] = sequence + 1
        state.frames_out += 1
        state.bytes_out += size + HEADER_BYTES
        if size <= JOIN_BYTES_MAX:
            data = b"".join((header, *parts))
            state.kept.append((data,))
            if link is None:
                return
            if link.sealer is not None:
                data = link.sealer.small(data)
            if link.queue or self._corked is not None:
                link.enqueue(data)
            else:
                try:
                    sent = link.sock.send(data)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError as error:
                    self._break(link, error)
                    return
                if sent == len(data):
                    return
                link.enqueue(data, sent)
        else:
            state.kept.append((header, *parts))
            if link is None:
                return
            idle = not link.queue and self._corked is None
            link.put((header, *parts))
            if idle:
                link.flush()
                if not link.queue:
                    if link.broken:
                        self._broken.append(link)
                    return
        if self._corked is not None:
            self._corked.add(link)
        elif not link.watched & WRITABLE:
            self._watch(link, READABLE | WRITABLE)

    def cork(self) -> None:
        """Only queue what is sent from now on, until `uncork` or `poll`: many small frames then share a system call."""
        if self._corked is None:
            self._corked = set()

    def uncork(self) -> None:
        """Send what was queued since `cork`."""
        corked, self._corked = self._corked, None
        for link in corked or ():
            if link.fd >= 0:
                self._flush(link)

    def queued_bytes(self, peer: str) -> int:
        """Give the bytes that wait for the peer's socket to take them."""
        state = self._peers.get(peer)
        return 0 if state is None else state.queued_bytes

    def is_behind(self, peer: str) -> bool:
        """Whether bytes wait for the peer's socket to take them."""
        state = self._peers.get(peer)
        return state is not None and state.is_behind

    def poll(self, timeout_s: float | None = 0.0) -> list[Frame]:
        """Wait until something happens, at most `timeout_s` (None: for ever); give all the frames that are there.

        It may return early without frames: after `wakeup`, when a queue was flushed, or when a connection began or ended.
        """
        if self._corked is not None:
            self.uncork()
        self._step(0.0 if self._inbox or self._lost else timeout_s)
        frames, self._inbox = self._inbox, []
        return frames

    def wakeup(self) -> None:
        """Make a blocked `poll`, or the next one, return.  Any thread may call this, also after `close`."""
        self._waker.wake()

    def statistics(self) -> PlaneStatistics:
        """Give the counters of this plane and of every peer that it has known."""
        peers = tuple(state.statistics() for state in self._peers.values())
        return PlaneStatistics(self.name, self.incarnation, peers, len(self._unproven), self._refused)

    def close(self, linger_s: float = 1.0) -> None:
        """Send what is queued, for at most `linger_s`, then end all connections and leave nothing behind.  Repeating it does nothing."""
        if self._closed:
            return
        self.uncork()
        deadline_s = time.monotonic() + linger_s
        while any(link.queue for link in self._links.values() if link.handshake is None) or any(state.kept for state in self._missing):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            with suppress(ProtocolError):  # what the peers still send is not read
                self._step(left_s)
            self._inbox.clear()
        self._say_goodbye()
        self._closed = True
        drain_before_close([link for link in self._links.values() if link.handshake is None], deadline_s)
        for link in list(self._links.values()):
            link.sock.close()
            link.fd = -1
        self._links.clear()
        self._pending.clear()
        if self._listeners is not None:
            self._listeners.close()
        self._poller.close()
        self._waker.close()

    def __enter__(self) -> Plane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
