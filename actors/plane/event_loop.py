"""The event loop under a plane: sockets are accepted, authenticated, read, flushed and given up here."""

from __future__ import annotations

import os
import secrets as _secrets
import socket
import time

import pyarrow as pa

from rayad.actors.plane.address import Address, Listeners, open_connection, tune
from rayad.actors.plane.frames import ACKNOWLEDGED, GOODBYE, HEADER, HEADER_BYTES, PLANE_KIND, TAG_BYTES, Frame, FrameParser, Opens
from rayad.actors.plane.handshake import INSTANCE_BYTES, NONCE_BYTES, Handshake, Phase, Refused, Rejected, check_name
from rayad.actors.plane.link import Link
from rayad.actors.plane.peers import ConnectFailed, Peer, check_incarnation
from rayad.actors.plane.poller import READABLE, WRITABLE, Waker, new_poller
from rayad.actors.process.doors import first_to_go
from rayad.progress import ConfigError, ProtocolError

AUTHENTICATION_TIMEOUT_S = 5.0
RECONNECT_S = 60.0
"""How long a lost connection may be missing before the peer is given up, unless the plane is told otherwise."""
REDIAL_S = 0.2
"""Time between two attempts to reconnect, when an attempt failed for another reason than that the process is gone."""
SILENT_S = 30.0
"""How long a peer's kernel may leave data or a probe unanswered; keepalive allows an idle connection as much."""
LOOK_S = 1.0
"""How often unanswered connections are looked for."""
ACKNOWLEDGE_FRAMES, ACKNOWLEDGE_BYTES = 64, 1 << 20
"""After so many frames or bytes a sender is told what has arrived; until then it keeps its frames, to send them again if need be."""
give_way = getattr(os, "sched_yield", lambda: time.sleep(0))
UNPROVEN_MAX = 256
"""Accepted connections without proof at one time; a further one takes the place of another, see `PlaneLoop._make_room`."""
ACCEPTED_MAX = 32
"""Connections accepted in one turn: those before them are heard in between."""


def allocate(count: int) -> memoryview:
    """Give the buffer for a large payload: from Arrow's pool, aligned for its columns, neither zeroed nor faulted in anew each time."""
    return memoryview(pa.allocate_buffer(count)).cast("B")


class PlaneLoop:
    """What `Plane` is built on.

    `name` is how peers call it; `job`, the names and `secret` (at least 16 bytes) are proven by both sides of every connection;
    `incarnation` is stamped on every frame.  When the last wait was no longer than `spin_s`, `poll` spins for up to `spin_s` before it
    sleeps, and yields the CPU between two looks: that saves the wake-up, and costs next to nothing in a job that waits longer.
    `reconnect_s`: how long a lost connection may be missing before the peer is given up. `seals`: whether nobody can read or change frames
    on connections that may leave the node; all planes of a job have to agree.
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
        reconnect_s: float = RECONNECT_S,
        seals: bool = True,
    ) -> None:
        check_name(name)
        check_incarnation(incarnation)
        self.name = name
        self.job = job
        self.incarnation = incarnation
        self._secret = secret
        self._seals = seals
        self._spin_s = spin_s
        self._is_lively = False  # whether the last wait was shorter than spin_s: then the next one may well be, too
        self._authentication_timeout_s = authentication_timeout_s
        self._instance = _secrets.token_bytes(INSTANCE_BYTES)
        self._new_handshake(None, "unix")  # checks the secret
        self._peers: dict[str, Peer] = {}
        self._links: dict[int, Link] = {}
        self._reconnect_s = reconnect_s
        self._missing: set[Peer] = set()  # their connections were lost and may be replaced
        self._look_at_s = 0.0
        self._pending: set[Link] = set()  # not established: outgoing ones, and accepted ones without proof
        self._unproven: dict[Link, str] = {}  # accepted without proof, oldest first, and from where
        self._refused = 0
        self.woke_s = 0.0
        """When the last wait ended and reading began, by the clock of `time.perf_counter`."""
        self.was_woken = False
        """Whether `wakeup` has ended the last poll, or would have."""
        self._broken: list[Link] = []
        self._corked: set[Link] | None = None
        self._inbox: list[Frame] = []
        self._lost: list[str] = []
        self._why: dict[str, str] = {}
        self._listeners: Listeners | None = None
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
        if self._missing:
            timeout_s = self._look_for_missing(timeout_s)
        if self._pending:
            timeout_s = self._expire_pending(timeout_s)
        links = self._links
        self.was_woken = False
        events = self._wait(timeout_s)
        now_s = time.perf_counter()
        if timeout_s != 0.0:
            self.woke_s = now_s
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
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._look_for_silent()

    def calm(self) -> None:
        """What has come is answered by nobody at once: do not spin for what comes next."""
        self._is_lively = False

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
            self._lose(link, str(error), is_final=True)
            raise
        if not alive:
            self._lose(link, link.reason)

    def _take(self, link: Link, count: int, frames: list[Frame]) -> None:
        state = self._peers[link.peer]
        accept, inbox, own = state.order.accept, self._inbox, 0
        for frame in frames:
            if not frame[1]:  # of PLANE_KIND
                own += 1
                self._take_own(state, frame)
            elif accept(frame):
                inbox.append(frame)
        fresh = len(frames) - own
        count -= own * HEADER_BYTES + (len(frames) * TAG_BYTES if link.sealer is not None else 0)
        state.received += fresh
        state.frames_in += fresh
        state.bytes_in += count
        state.untold_bytes += count
        if state.received - state.told_received >= ACKNOWLEDGE_FRAMES or state.untold_bytes >= ACKNOWLEDGE_BYTES:
            self._acknowledge(state)

    def _take_own(self, state: Peer, frame: Frame) -> None:
        if frame.channel == ACKNOWLEDGED:
            state.acknowledge(frame.sequence)
        else:
            state.has_left = True

    def _acknowledge(self, state: Peer) -> None:
        """Tell a peer what has arrived, between two frames."""
        link = state.link
        if link is None or link.broken or state.told_received == state.received:
            return
        state.told_received, state.untold_bytes = state.received, 0
        link.put((HEADER.pack(HEADER_BYTES, PLANE_KIND, ACKNOWLEDGED, self.incarnation, state.received),))
        if self._corked is not None:
            self._corked.add(link)
        else:
            self._flush(link)

    def _say_goodbye(self) -> None:
        """Tell all peers that this plane closes on purpose, so that none tries to reconnect."""
        for state in self._peers.values():
            if state.link is not None:
                self._part_with(state.link)

    def _part_with(self, link: Link) -> None:
        if not link.broken:
            link.put((HEADER.pack(HEADER_BYTES, PLANE_KIND, GOODBYE, self.incarnation, 0),))
            link.flush()

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
            self.was_woken = True
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

    def _lose(self, link: Link, reason: str, *, is_final: bool = False) -> None:
        """An established connection has ended, and with it all others to that process. A new connection may replace them."""
        state = self._peers[link.peer]
        dialed = any(each.outgoing for each in state.links)
        both = dialed and not all(each.outgoing for each in state.links)
        for each in list(state.links):
            self._discard(each, reason)
        state.links.clear()
        state.link = None
        state.reason = "the peer closed the connection" if state.has_left else reason
        if is_final or state.has_left or state.process_incarnation < state.order.expected or self._reconnect_s <= 0:
            self._give_up(state)
            return
        now_s = time.monotonic()
        state.until_s = now_s + self._reconnect_s
        if dialed and not (both and self.name > state.name):  # where both have connected to each other, one is enough
            state.redial_at_s = now_s
        self._missing.add(state)

    def _give_up(self, state: Peer) -> None:
        """Give up the peer: there will be no other connection with this process."""
        self._stop_looking(state)
        state.is_given_up = True
        self._lost.append(state.name)
        self._why[state.name] = state.reason

    def _stop_looking(self, state: Peer) -> None:
        self._missing.discard(state)
        state.forget()
        for link in [link for link in self._pending if link.replaces and link.peer == state.name]:
            self._discard(link, "nobody waits for it any more")

    def _look_for_missing(self, timeout_s: float | None) -> float | None:
        """Start the reconnects that are due, give up the peers whose time is over, and give the seconds until the next of these is due."""
        now_s = time.monotonic()
        due_s = float("inf")
        for state in list(self._missing):
            assert state.until_s is not None
            if state.until_s <= now_s:
                state.reason = f"{state.reason}, and within {self._reconnect_s:g} s there was no other one"
                self._give_up(state)
                timeout_s = 0.0
                continue
            if state.redial_at_s <= now_s and not self._redial(state, now_s):
                timeout_s = 0.0
                continue
            due_s = min(due_s, state.until_s, state.redial_at_s)
        if due_s == float("inf"):
            return timeout_s
        left_s = max(0.0, due_s - now_s)
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def _redial(self, state: Peer, now_s: float) -> bool:
        """Start another connection; False when that process is gone. It may take a while: a busy process answers later."""
        assert state.until_s is not None
        assert state.address is not None
        state.redial_at_s = float("inf")
        try:
            self._start(state.name, state.address, state.until_s).replaces = True
        except BlockingIOError:
            state.redial_at_s = now_s + REDIAL_S
        except ConnectFailed as error:
            state.reason = f"{state.reason}; {error}"
            self._give_up(state)
            return False
        return True

    def _look_for_silent(self) -> None:
        now_s = time.monotonic()
        for link in [link for link in self._links.values() if link.transport == "tcp" and link.handshake is None]:
            if link.fd >= 0 and link.silent_s(now_s) >= SILENT_S:
                self._lose(link, f"its node has not answered for {SILENT_S:g} s")

    def _drop_pending(self, link: Link, reason: str, *, is_final: bool = False) -> None:
        """A connection has failed before it was established."""
        self._discard(link, reason)
        if link.replaces:
            state = self._peers[link.peer]
            if state not in self._missing:
                return
            if is_final or link.is_refused:
                state.reason = f"{state.reason}; {reason}"
                self._give_up(state)
            else:
                state.redial_at_s = time.monotonic() + REDIAL_S
        elif link.outgoing:
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
        """Note that a connection is no longer pending: it is established, or has failed."""
        if link in self._pending:
            self._pending.remove(link)
            self._unproven.pop(link, None)

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

    def _is_sealed(self, transport: str) -> bool:
        """Whether frames of such a link are encrypted; those of a Unix socket stay in this machine."""
        return self._seals and transport == "tcp"

    def _new_handshake(self, server: str | None, transport: str) -> Handshake:
        state = self._peers.get(server) if server is not None else None
        return Handshake(
            secret=self._secret,
            job=self.job,
            name=self.name,
            incarnation=self.incarnation,
            instance=self._instance,
            nonce=_secrets.token_bytes(NONCE_BYTES),
            server=server,
            judge=self._objection,
            admit=self._admit,
            received=state.received if state is not None else 0,
            resumes=state is not None and state.until_s is not None,
            seals=self._is_sealed(transport),
        )

    def _objection(self, peer: str, incarnation: int, instance: bytes, resumes: bool = False) -> str:
        if peer == self.name or instance == self._instance:
            return f"a plane does not connect to itself ({self.name!r})"
        return self._peer(peer).objection(incarnation, instance, resumes)

    def _admit(self, peer: str, instance: bytes, resumes: bool) -> int:
        """A client has proved itself: give how many of its frames have arrived. A connection that it replaces is not read any more."""
        state = self._peer(peer)
        if instance != state.instance:
            return 0
        if resumes and state.link is not None:
            self._lose(state.link, "the peer has lost it")
        return state.received

    def _make_room(self) -> None:
        """Close a connection without proof: one that has said who it is only where none of its source is silent."""
        gone = first_to_go(self._unproven, lambda link: link.handshake is not None and link.handshake.phase is Phase.HELLO)
        self._drop_pending(gone, f"{UNPROVEN_MAX} connections have not proved themselves")

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                sock, source = listener.accept()  # ends with BlockingIOError: the socket never blocks
            except OSError:  # no connection waits (any more)
                return
            transport = "unix" if listener.family == getattr(socket, "AF_UNIX", None) else "tcp"
            try:
                tune(sock, transport)
            except OSError:  # it is gone already
                sock.close()
                continue
            link = Link(sock, transport, self._new_handshake(None, transport), time.monotonic() + self._authentication_timeout_s)
            self._links[link.fd] = link
            if len(self._unproven) >= UNPROVEN_MAX:
                self._make_room()
            self._pending.add(link)
            self._unproven[link] = source[0] if transport == "tcp" else transport
            self._watch(link, READABLE)

    def _start(self, peer: str, address: Address, deadline_s: float) -> Link:
        if self._closed:
            raise ProtocolError(f"plane {self.name!r} is closed; it cannot connect to {peer!r}")
        if peer == self.name:
            raise ConfigError(f"plane {self.name!r} cannot connect to itself; deliver locally")
        check_name(peer)
        try:
            sock, transport = open_connection(address)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConnectFailed(f"{self.name!r} cannot connect to {peer!r}: {error.strerror or error}; is that process alive?") from None
        handshake = self._new_handshake(peer, transport)
        link = Link(sock, transport, handshake, deadline_s)
        link.address = address
        self._links[link.fd] = link
        self._pending.add(link)
        link.enqueue(handshake.start())
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
            link.fail(error)
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
                self._drop_pending(link, str(error), is_final=isinstance(error, Rejected))
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
            self._drop_pending(link, objection, is_final=True)
            return
        self._settle(link)
        link.handshake = None
        link.peer = handshake.peer
        opener: Opens | None = None
        if self._is_sealed(link.transport):
            from rayad.actors.plane.seal import KEY_BYTES, Opener, Sealer  # loads cryptography: only jobs on several nodes seal

            mine, theirs = handshake.keys(KEY_BYTES)
            link.sealer, opener = Sealer(mine, allocate), Opener(theirs, link.peer, allocate)
        link.parser = FrameParser(link.peer, allocate=allocate, opener=opener)
        state = self._peer(link.peer)
        self._missing.discard(state)
        for old in state.join(link, incarnation, instance, handshake.peer_received):
            self._part_with(old)
            self._discard(old, f"a newer process of {link.peer!r} has connected")
        for late in [each for each in self._pending if each.replaces and each.peer == link.peer]:
            self._discard(late, "another connection was faster")
        if link.queue:
            self._flush(link)
        if handshake.rest:
            try:
                self._take(link, len(handshake.rest), link.parser.feed(handshake.rest))
            except ProtocolError as error:
                self._lose(link, str(error), is_final=True)
                raise

    def _send_to_nobody(self, peer: str, state: Peer | None) -> None:
        if state is None or not state.instance:
            known = sorted(name for name, each in self._peers.items() if each.link is not None)
            raise ProtocolError(f"plane {self.name!r} cannot send to {peer!r}: connected are {known}; call connect first")
        state.dropped_out += 1
