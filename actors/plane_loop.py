"""The event loop under a plane: sockets are accepted, authenticated, read, flushed and given up here."""

from __future__ import annotations

import os
import secrets as _secrets
import socket
import time

import pyarrow as pa

from rayad.actors.plane_address import Address, Listeners, open_connection, tune
from rayad.actors.plane_auth import INSTANCE_BYTES, NONCE_BYTES, Handshake, Refused, check_name
from rayad.actors.plane_link import Link
from rayad.actors.plane_peers import ConnectFailed, Peer, check_incarnation
from rayad.actors.plane_poller import READABLE, WRITABLE, Waker, new_poller
from rayad.actors.wire import Frame, FrameParser
from rayad.progress import ConfigError, ProtocolError

AUTHENTICATION_TIMEOUT_S = 5.0
give_way = getattr(os, "sched_yield", lambda: time.sleep(0))
UNPROVEN_MAX = 64
"""Accepted connections without proof at one time; further ones wait in the kernel's backlog."""


def allocate(count: int) -> memoryview:
    """Give the buffer for a large payload: from Arrow's pool, aligned for its columns, neither zeroed nor faulted in anew each time."""
    return memoryview(pa.allocate_buffer(count)).cast("B")


class PlaneLoop:
    """What `Plane` is built on.

    `name` is how peers call it; `job`, the names and `secret` (at least 16 bytes) are proven by both sides of every connection;
    `incarnation` is stamped on every frame.  `spin_s` is how long `poll` looks again and again before it sleeps, giving way to whoever
    else wants the core in between, when its last wait was no longer than that: it saves the wake-up, and costs next to nothing in a job
    that waits longer.
    """

    def __init__(
        self,
        *,
        name: str,
        job: str,
        incarnation: int,
        secret: bytes,
        spin_s: float = 0.0,
        authentication_timeout_s: float = AUTHENTICATION_TIMEOUT_S,
    ) -> None:
        check_name(name)
        check_incarnation(incarnation)
        self.name = name
        self.job = job
        self.incarnation = incarnation
        self._secret = secret
        self._spin_s = spin_s
        self._is_lively = False  # whether the last wait was shorter than spin_s: then the next one may well be, too
        self._authentication_timeout_s = authentication_timeout_s
        self._instance = _secrets.token_bytes(INSTANCE_BYTES)
        self._new_handshake(None)  # checks the secret
        self._peers: dict[str, Peer] = {}
        self._links: dict[int, Link] = {}
        self._pending: set[Link] = set()  # not established: outgoing ones, and accepted ones without proof
        self._unproven = 0
        self._refused = 0
        self.woke_s = 0.0
        """When the last wait ended, in the clock of `time.perf_counter`; what follows is reading."""
        self._broken: list[Link] = []
        self._corked: set[Link] | None = None
        self._inbox: list[Frame] = []
        self._lost: list[str] = []
        self._why: dict[str, str] = {}
        self._listeners: Listeners | None = None
        self._accepting = False
        self._closed = False
        self._poller = new_poller()
        self._waker = Waker()
        self._poller.register(self._waker.fd, READABLE)

    # -- one turn ------------------------------------------------------------------------------------------------------------------

    def _step(self, timeout_s: float | None) -> None:
        """Wait once and serve every socket that is ready."""
        if self._closed:
            raise ProtocolError(f"plane {self.name!r} is closed; it can neither poll nor connect")
        if self._broken:
            self._give_up_broken()
            timeout_s = 0.0
        if self._pending:
            timeout_s = self._expire_pending(timeout_s)
        links = self._links
        events = self._wait(timeout_s)
        if timeout_s != 0.0:
            self.woke_s = time.perf_counter()
        for fd, event in events:
            link = links.get(fd)
            if link is None:
                self._on_no_link(fd)
            elif link.handshake is not None:
                self._on_handshake(link)
            else:
                if event & WRITABLE:
                    self._flush(link)
                if event & ~WRITABLE:
                    self._read(link)

    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        poll = self._poller.poll
        if timeout_s == 0.0 or not self._spin_s:
            return poll(timeout_s)
        began_s = time.perf_counter()
        if self._is_lively:
            stop_s = began_s + (self._spin_s if timeout_s is None else min(self._spin_s, timeout_s))
            while time.perf_counter() < stop_s:
                events = poll(0)
                if events:
                    return events
                give_way()
            self._is_lively = False
            return poll(timeout_s)
        events = poll(timeout_s)
        self._is_lively = time.perf_counter() - began_s < self._spin_s
        return events

    def _read(self, link: Link) -> None:
        frames: list[Frame] = []
        try:
            count, alive = link.read(frames)
            self._take(link, count, frames)
        except ProtocolError as error:
            self._lose(link, str(error))
            raise
        if not alive:
            self._lose(link, link.reason)

    def _take(self, link: Link, count: int, frames: list[Frame]) -> None:
        state = self._peers[link.peer]
        state.bytes_in += count
        state.frames_in += len(frames)
        accept, inbox = state.order.accept, self._inbox
        for frame in frames:
            if accept(frame):
                inbox.append(frame)

    def _flush(self, link: Link) -> None:
        link.flush()
        if link.broken:
            self._broken.append(link)
        else:
            self._watch(link, READABLE | WRITABLE if link.queue else READABLE)

    def _watch(self, link: Link, events: int) -> None:
        if link.watched != events:
            if link.watched:
                self._poller.modify(link.fd, events)
            else:
                self._poller.register(link.fd, events)
            link.watched = events

    def _on_no_link(self, fd: int) -> None:
        if fd == self._waker.fd:
            self._waker.clear()
            return
        for listener in self._listeners.sockets if self._listeners is not None else ():
            if listener.fileno() == fd:
                self._accept(listener)

    # -- ends of connections -------------------------------------------------------------------------------------------------------

    def _break(self, link: Link, error: OSError) -> None:
        """A write failed.  What the peer sent before it ended may still be there to read, so the link is given up in the next turn."""
        link.fail(error)
        self._broken.append(link)

    def _give_up_broken(self) -> None:
        broken, self._broken = self._broken, []
        for link in broken:
            if link.fd < 0:
                continue
            frames: list[Frame] = []
            alive = True
            while alive:
                count, alive = link.read(frames)
                alive = alive and count > 0
                self._take(link, count, frames)
                frames.clear()
            self._lose(link, link.reason)

    def _lose(self, link: Link, reason: str) -> None:
        """An established connection has ended: so have all others with that process."""
        state = self._peers[link.peer]
        for each in list(state.links):
            self._discard(each, reason)
        state.links.clear()
        state.link = None
        self._lost.append(link.peer)
        self._why[link.peer] = reason

    def _drop_pending(self, link: Link, reason: str) -> None:
        """A connection has failed before it was established."""
        self._discard(link, reason)
        if link.outgoing:
            self._why[link.peer] = reason
            if link.announce:
                self._lost.append(link.peer)
        else:
            self._refused += 1

    def _discard(self, link: Link, reason: str) -> None:
        if link.fd < 0:
            return
        self._settle(link)
        if link.watched:
            self._poller.unregister(link.fd)
        self._links.pop(link.fd, None)
        link.sock.close()
        link.fd = -1
        link.reason = reason
        link.queue.clear()
        link.queued_bytes = 0

    def _settle(self, link: Link) -> None:
        """It is not pending any more, for better or worse."""
        if link in self._pending:
            self._pending.remove(link)
            if not link.outgoing:
                self._unproven -= 1
                self._watch_listeners(True)

    def _expire_pending(self, timeout_s: float | None) -> float | None:
        now_s = time.monotonic()
        for link in [link for link in self._pending if link.deadline_s <= now_s]:
            waited_for = link.handshake.phase.value if link.handshake is not None else "nothing"
            self._drop_pending(link, f"timeout while waiting for {waited_for}")
        if not self._pending:
            return timeout_s
        left_s = max(0.0, min(link.deadline_s for link in self._pending) - now_s)
        return left_s if timeout_s is None else min(timeout_s, left_s)

    # -- beginnings of connections -------------------------------------------------------------------------------------------------

    def _peer(self, name: str) -> Peer:
        state = self._peers.get(name)
        if state is None:
            state = self._peers[name] = Peer(name, self.incarnation)
        return state

    def _new_handshake(self, server: str | None) -> Handshake:
        return Handshake(
            secret=self._secret,
            job=self.job,
            name=self.name,
            incarnation=self.incarnation,
            instance=self._instance,
            nonce=_secrets.token_bytes(NONCE_BYTES),
            server=server,
            judge=self._objection,
        )

    def _objection(self, peer: str, incarnation: int, instance: bytes) -> str:
        if peer == self.name or instance == self._instance:
            return f"a plane does not connect to itself ({self.name!r})"
        return self._peer(peer).objection(incarnation, instance)

    def _watch_listeners(self, wanted: bool) -> None:
        if self._listeners is None or self._accepting == wanted:
            return
        self._accepting = wanted
        for listener in self._listeners.sockets:
            if wanted:
                self._poller.register(listener.fileno(), READABLE)
            else:
                self._poller.unregister(listener.fileno())

    def _accept(self, listener: socket.socket) -> None:
        while self._accepting:
            try:
                sock, _ = listener.accept()
            except OSError:  # nobody is there (any more)
                return
            transport = "unix" if listener.family == getattr(socket, "AF_UNIX", None) else "tcp"
            try:
                tune(sock, transport)
            except OSError:  # it is gone already
                sock.close()
                continue
            link = Link(sock, transport, self._new_handshake(None), time.monotonic() + self._authentication_timeout_s)
            self._links[link.fd] = link
            self._pending.add(link)
            self._unproven += 1
            self._watch(link, READABLE)
            if self._unproven >= UNPROVEN_MAX:
                self._watch_listeners(False)

    def _start(self, peer: str, address: Address, deadline_s: float) -> Link:
        if self._closed:
            raise ProtocolError(f"plane {self.name!r} is closed; it cannot connect to {peer!r}")
        if peer == self.name:
            raise ConfigError(f"plane {self.name!r} cannot connect to itself; deliver locally")
        handshake = self._new_handshake(peer)
        hello = handshake.start()
        try:
            sock, transport = open_connection(address)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConnectFailed(f"{self.name!r} cannot connect to {peer!r}: {error.strerror or error}; is that process alive?") from None
        link = Link(sock, transport, handshake, deadline_s)
        self._links[link.fd] = link
        self._pending.add(link)
        link.enqueue(hello)
        self._watch(link, READABLE | WRITABLE)  # writable means connected
        return link

    def _on_handshake(self, link: Link) -> None:
        handshake = link.handshake
        assert handshake is not None
        link.flush()
        try:
            data = link.sock.recv(4096)
        except (BlockingIOError, InterruptedError):
            data = None
        except OSError as error:
            self._drop_pending(link, f"{error.strerror or error}")
            return
        if data is not None:
            if not data:
                self._drop_pending(link, link.reason or f"the peer closed the connection when it should have sent {handshake.phase.value}")
                return
            try:
                link.enqueue(handshake.receive(data))
            except Refused as refused:
                link.enqueue(refused.answer)
                link.flush()
                self._drop_pending(link, str(refused))
                return
            except ProtocolError as error:
                self._drop_pending(link, str(error))
                return
            link.flush()
        if link.broken:
            self._drop_pending(link, link.reason)
            return
        self._watch(link, READABLE | WRITABLE if link.queue else READABLE)
        if handshake.done:
            self._establish(link, handshake)

    def _establish(self, link: Link, handshake: Handshake) -> None:
        incarnation, instance = handshake.peer_incarnation, handshake.peer_instance
        objection = self._objection(handshake.peer, incarnation, instance)  # a client has not asked yet
        if objection:
            self._drop_pending(link, objection)
            return
        self._settle(link)
        link.handshake = None
        link.peer = handshake.peer
        link.parser = FrameParser(link.peer, allocate=allocate)
        for old in self._peer(link.peer).join(link, incarnation, instance):
            self._discard(old, f"a newer process of {link.peer!r} has connected")
        if handshake.rest:
            try:
                self._take(link, len(handshake.rest), link.parser.feed(handshake.rest))
            except ProtocolError as error:
                self._lose(link, str(error))
                raise

    def _send_to_nobody(self, peer: str, state: Peer | None) -> None:
        if state is None or not state.instance:
            known = sorted(name for name, each in self._peers.items() if each.link is not None)
            raise ProtocolError(f"plane {self.name!r} cannot send to {peer!r}: connected are {known}; call connect first")
        state.dropped_out += 1
