"""Connections between processes that die: frames in memory, FIFO between each two, with what a process that ends takes along.

As the plane does it: a process accepts frames of the incarnation that it expects, and connections of no older one; a connection whose other
end has closed, died or been cut off is lost, after what was on its way has come, or a part of it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayad.actors.plane.carrier import SOCKET_BYTES
from rayad.actors.plane.frames import Buffer, Frame, ReceiveOrder
from rayad.progress import ProtocolError

BEHIND = 3
"""With more frames on their way a receiver is behind."""


@dataclass(frozen=True)
class BusAddress:
    """Where a link listens: the link itself."""

    link: BusEnd
    host: str = "127.0.0.1"


@dataclass
class Line:
    """One connection."""

    ends: tuple[BusEnd, BusEnd]
    on_way: dict[str, deque[Frame]] = field(default_factory=dict)
    """By receiver."""
    is_over: bool = False
    """Nothing is sent on it any more."""
    why: str = ""
    has_left: str = ""
    """Which end has closed it."""
    unaware: list[str] = field(default_factory=list)
    """Ends that do not know yet that it is over."""

    def other(self, name: str) -> BusEnd:
        return self.ends[0] if self.ends[1].name == name else self.ends[1]

    def end(self, chance: random.Random, why: str, *, gone: str = "", has_left: bool = False) -> None:
        """It ends: ``gone`` has died or closed it; else it is cut. All still comes that one which closes has sent, else a part of it."""
        if self.is_over:
            return
        self.is_over, self.why, self.has_left = True, why, gone if has_left else ""
        for receiver, frames in self.on_way.items():
            if receiver == gone:
                frames.clear()
            elif not has_left:
                for _ in range(chance.randint(0, len(frames))):
                    frames.pop()
        self.unaware = [end.name for end in self.ends if end.name != gone]


class Lines:
    """All connections, and who dials."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lines: list[Line] = []
        self.dialled: list[tuple[BusEnd, str, BusEnd]] = []
        self.dropped = 0

    def link(self, name: str, incarnation: int, wait: Callable[[Callable[[], bool], float], bool] | None = None) -> BusEnd:
        """A process comes. ``wait``: how its poll waits; only the coordinator's does."""
        return BusEnd(self, name, incarnation, wait)

    def events(self) -> list[tuple[str, Any]]:
        """What can happen next."""
        ready: list[tuple[str, Any]] = []
        for line in self.lines:
            for name, frames in line.on_way.items():
                if frames:
                    ready.append(("deliver", (line, name)))
            ready += [("notice", (line, name)) for name in line.unaware if not line.on_way[name]]
        ready += [("dial", dial) for dial in self.dialled if dial[2].is_polled or dial[2].is_closed or dial[0].is_closed]
        return ready

    def deliver(self, line: Line, name: str) -> None:
        """Some of the frames on their way arrive, at least one."""
        frames, end = line.on_way[name], line.other(line.other(name).name)
        for _ in range(self.chance.randint(1, len(frames))):
            end.take(line, frames.popleft())

    def notice(self, line: Line, name: str) -> None:
        """One end learns that it is over."""
        line.unaware.remove(name)
        end = line.other(line.other(name).name)
        end.lose(line)
        if not line.unaware:
            self.lines.remove(line)

    def dial(self, dial: tuple[BusEnd, str, BusEnd]) -> None:
        """A connection is made, or refused."""
        self.dialled.remove(dial)
        caller, peer, target = dial
        if caller.is_closed:
            return
        why = ""
        if target.is_closed:
            why = "no process listens there"
        elif caller.incarnation < target.expected(caller.name) or target.incarnation < caller.expected(peer):
            why = "its incarnation is fenced off"
        if why:
            caller.refused(peer, why)
            return
        for end, other in ((caller, target), (target, caller)):
            end.replace(other.name)
        line = Line((caller, target), {caller.name: deque(), target.name: deque()})
        self.lines.append(line)
        caller.join(line, target.name)
        target.join(line, caller.name)


class BusEnd:
    """A process' end of all its connections; what :class:`rayad.actors.plane.plane.Plane` is on Ray."""

    hands_over = False
    socket_bytes = SOCKET_BYTES

    def __init__(self, bus: Lines, name: str, incarnation: int, wait: Callable[[Callable[[], bool], float], bool] | None) -> None:
        self.bus = bus
        self.name = name
        self.incarnation = incarnation
        self.woke_s = 0.0
        self.is_closed = False
        self.is_polled = wait is not None
        """Its process looks for connections and frames."""
        self.inbox: list[Frame] = []
        self.is_woken = self.was_woken = False
        self._wait = wait
        self._orders: dict[str, ReceiveOrder] = {}
        self._peers: dict[str, Line] = {}
        self._met: set[str] = set()
        self._lost: list[str] = []
        self._left: set[str] = set()
        self._why: dict[str, str] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._error: ProtocolError | None = None

    # -- as a plane ------------------------------------------------------------------------------------
    def listen(self, host: str = "127.0.0.1", port: int = 0, *, unix: str = "auto") -> Any:
        return BusAddress(self)

    def send(self, peer: str, kind: int, channel: int, parts: Buffer | Sequence[Buffer]) -> None:
        if peer not in self._met:
            raise ProtocolError(f"{self.name} sends to {peer}, to which it never was connected")
        line = self._peers.get(peer)
        if line is None or line.is_over:
            self.bus.dropped += 1
            return
        data = bytes(parts) if isinstance(parts, (bytes, bytearray, memoryview)) else b"".join(map(bytes, parts))
        sequence = self._next.get((peer, channel), 0)
        self._next[peer, channel] = sequence + 1
        line.on_way[peer].append(Frame(self.name, int(kind), channel, sequence, data, self.incarnation))

    def poll(self, timeout_s: float | None = 0.0) -> list[Frame]:
        if self._wait is not None and timeout_s:
            self._wait(lambda: bool(self.inbox or self.is_woken or self._error), timeout_s)
        self.was_woken, self.is_woken = self.is_woken, False
        if self._error is not None:
            raise self._error
        frames, self.inbox = self.inbox, []
        return frames

    def start_connect(self, peer: str, address: Any, timeout_s: float = 10.0) -> None:
        self.bus.dialled.append((self, peer, address.link))

    def connected(self, peer: str) -> bool:
        return peer in self._peers

    def has_left(self, peer: str) -> bool:
        return peer in self._left

    def expect(self, peer: str, incarnation: int) -> None:
        order = self._order(peer)
        if incarnation < order.expected and peer in self._met:
            raise ProtocolError(f"{self.name} expects {order.expected} of {peer} already, and is to expect {incarnation}")
        if incarnation != order.expected:
            order.restart(incarnation)

    def take_lost(self) -> list[str]:
        lost, self._lost = self._lost, []
        return lost

    def why_lost(self, peer: str) -> str:
        return self._why.get(peer, "")

    def broken(self) -> dict[str, float]:
        return {}

    def queued_bytes(self, peer: str) -> int:
        line = self._peers.get(peer)
        return sum(len(frame.payload) for frame in line.on_way[peer]) if line is not None else 0

    def is_behind(self, peer: str) -> bool:
        line = self._peers.get(peer)
        return line is not None and len(line.on_way[peer]) > BEHIND

    def wakeup(self) -> None:
        self.is_woken = True

    def close(self, linger_s: float = 1.0) -> None:
        """Close all connections; what was sent arrives, if there is time for that."""
        self.end("the peer closed the connection", has_left=True)

    # -- as the bus has it -----------------------------------------------------------------------------
    def end(self, why: str, *, has_left: bool = False) -> None:
        """Its process has closed it, or died."""
        self.is_closed, self.is_polled = True, False
        for line in list(self._peers.values()):
            line.end(self.bus.chance, why, gone=self.name, has_left=has_left)

    def expected(self, peer: str) -> int:
        return self._order(peer).expected

    def line_to(self, peer: str) -> Line | None:
        return self._peers.get(peer)

    def take(self, line: Line, frame: Frame) -> None:
        """A frame arrives."""
        if self.is_closed or self._peers.get(frame.peer) is not line:
            return
        try:
            if self._order(frame.peer).accept(frame):
                self.inbox.append(frame)
        except ProtocolError as error:
            self._error = error

    def join(self, line: Line, peer: str) -> None:
        self._peers[peer] = line
        self._met.add(peer)
        self._left.discard(peer)
        for key in [key for key in self._next if key[0] == peer]:
            del self._next[key]
        self._order(peer).restart(self._order(peer).expected)

    def replace(self, peer: str) -> None:
        """A new process of that name comes."""
        old = self._peers.pop(peer, None)
        if old is not None:
            old.end(self.bus.chance, "another process has taken its place", gone=self.name)
            if self.name in old.unaware:
                old.unaware.remove(self.name)

    def lose(self, line: Line) -> None:
        peer = line.other(self.name).name
        if self._peers.get(peer) is line:
            del self._peers[peer]
            self._lost.append(peer)
            self._why[peer] = line.why
            if line.has_left:
                self._left.add(peer)

    def refused(self, peer: str, why: str) -> None:
        self._lost.append(peer)
        self._why[peer] = why

    @property
    def is_due(self) -> bool:
        """Whether a poll would end at once."""
        return bool(self.inbox or self._lost or self._error or self.is_woken)

    def _order(self, peer: str) -> ReceiveOrder:
        if peer not in self._orders:
            self._orders[peer] = ReceiveOrder(peer, self.incarnation)
        return self._orders[peer]


__all__ = ["BusAddress", "BusEnd", "Line", "Lines"]
