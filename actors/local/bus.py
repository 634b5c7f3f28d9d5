"""A data plane without sockets, in one process: frames are FIFO between each two names, and across them in the order that a seed draws.

What it does not have of sockets: the bytes (batches are passed as they are), a lost connection between two living processes, a handshake
that fails. What it has: a connection takes its time, frames wait, and what a process that is gone had sent may arrive or not.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import Kind
from rayad.actors.worker.payloads import bytes_of
from rayad.progress import ProtocolError

Way = tuple[str, str]
"""A sender and a receiver."""
Pair = tuple[str, str]
"""Two names, the smaller one first."""

LOOK_S = 1e-5
"""What passes when somebody looks at the clock."""
LONG_S = 0.003
"""What passes at some of the looks: longer than a worker's slice."""
LOOKS = 16
"""After how many looks, on average, a long time passes."""
BEHIND = 3
"""So many frames wait for a receiver that is behind."""


class Ready:
    """A set with O(1) draw of a random element, in an order that only the seed decides."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.place: dict[Any, int] = {}

    def add(self, item: Any) -> None:
        """It can happen."""
        if item not in self.place:
            self.place[item] = len(self.items)
            self.items.append(item)

    def discard(self, item: Any) -> None:
        """It cannot happen any more."""
        index = self.place.pop(item, None)
        if index is None:
            return
        last = self.items.pop()
        if last != item:
            self.items[index] = last
            self.place[last] = index

    def keep(self, item: Any, is_so: bool) -> None:
        """Whether it can happen."""
        if is_so:
            self.add(item)
        else:
            self.discard(item)

    def draw(self, chance: random.Random) -> Any:
        """One of them; it stays."""
        return self.items[int(chance.random() * len(self.items))]

    def clear(self) -> None:
        """Nothing can happen."""
        self.items.clear()
        self.place.clear()


class VirtualClock:
    """Seconds that pass only when somebody looks: so a slice of time may be over after any activation, and a seed says after which.

    Args:
        chance: draws when a long time passes.
        looks: after how many looks, on average.
    """

    def __init__(self, chance: random.Random, looks: int = LOOKS) -> None:
        self.now_s = 1000.0
        self._random = chance.random
        self._looks = 2 * looks
        self._left = 0

    def perf_counter(self) -> float:
        """See :class:`rayad.actors.worker.surroundings.Clock`."""
        if self._left:
            self._left -= 1
            self.now_s += LOOK_S
        else:
            self._left = int(self._random() * self._looks)
            self.now_s += LONG_S
        return self.now_s

    def monotonic(self) -> float:
        """See :class:`rayad.actors.worker.surroundings.Clock`."""
        return self.now_s

    def time(self) -> float:
        """See :class:`rayad.actors.worker.surroundings.Clock`."""
        return self.now_s


class Bus:
    """Who is there, and what is on its way: ``("deliver", way)`` and ``("connect", pair)`` are events that can happen.

    Args:
        chance: draws how many frames arrive at once.
        ready: where its events are put.
        socket_bytes: see :class:`rayad.actors.plane.carrier.Carrier`.
    """

    def __init__(self, chance: random.Random, ready: Ready, socket_bytes: int = 1) -> None:
        self.chance = chance
        self.ready = ready
        self.socket_bytes = socket_bytes
        self.links: dict[str, BusLink] = {}
        self.ways: dict[Way, deque[Frame]] = {}
        self.senders: dict[str, dict[str, None]] = {}
        """By receiver: those from whom something is on its way."""
        self._met: set[Pair] = set()

    def link(self, name: str, incarnation: int) -> BusLink:
        """A process comes, perhaps under the name of one that is gone."""
        link = self.links[name] = BusLink(self, name, incarnation)
        return link

    def clear(self) -> None:
        """All are gone, with what was on its way."""
        self.links.clear()
        self._met.clear()
        for way in self.ways:
            self.ready.discard(("deliver", way))
        self.ways.clear()
        self.senders.clear()
        for event in [event for event in self.ready.items if event[0] == "connect"]:
            self.ready.discard(event)

    def leave(self, name: str) -> list[Frame]:
        """A process is gone. What was on its way to it is lost, and of what it had sent the end of each way; gives that, by sender."""
        del self.links[name]
        lost: list[Frame] = []
        for way in [way for way in self.ways if name in way]:
            waiting = self.ways[way]
            stays = int(self.chance.random() * (len(waiting) + 1)) if way[0] == name else 0
            while len(waiting) > stays:
                lost.append(waiting.pop())
            if not waiting:
                self._empty(way)
        for event in [event for event in self.ready.items if event[0] == "connect" and name in event[1]]:
            self.ready.discard(event)
        for pair in sorted(pair for pair in self._met if name in pair):
            self._met.discard(pair)
            other = self.links.get(pair[0] if pair[1] == name else pair[1])
            if other is not None:
                other.lost.append(name)
        return lost

    def dial(self, name: str, peer: str, address: Any) -> None:
        """One begins to connect to another; its address has its name and incarnation, where others may have listened under that name."""
        pair, there = (name, peer) if name < peer else (peer, name), self.links.get(peer)
        if pair not in self._met and there is not None and (type(address) is not tuple or address[1] == there.incarnation):
            self.ready.add(("connect", pair))

    def connect(self, pair: Pair) -> None:
        """These two are connected now."""
        self.ready.discard(("connect", pair))
        self._met.add(pair)

    def are_connected(self, name: str, peer: str) -> bool:
        """Whether two are."""
        return ((name, peer) if name < peer else (peer, name)) in self._met

    def have_met(self, names: Iterable[str], peer: str) -> bool:
        """Whether all of these are connected to that one."""
        return all(self.are_connected(name, peer) for name in names)

    def put(self, peer: str, frame: Frame) -> None:
        """A frame is on its way; to nobody if its receiver is not there."""
        if peer not in self.links:
            return
        way = (frame.peer, peer)
        waiting = self.ways.get(way)
        if waiting is None:
            waiting = self.ways[way] = deque()
            self.senders.setdefault(peer, {})[frame.peer] = None
            self.ready.add(("deliver", way))
        waiting.append(frame)

    def deliver(self, way: Way) -> list[Frame]:
        """Some of the frames on a way arrive, at least one; not those of an incarnation that is over. Raises ProtocolError for one of an
        incarnation that its receiver was not told to expect: see :class:`rayad.actors.plane.frames.ReceiveOrder`."""
        waiting = self.ways[way]
        count = len(waiting)
        if count == 1 or (taken := 1 + int(self.chance.random() * count)) == count:
            self._empty(way)
            frames = list(waiting)
        else:
            frames = [waiting.popleft() for _ in range(taken)]
        receiver = self.links[way[1]]
        expected = receiver.expected.get(way[0], receiver.incarnation)
        newest = frames[-1].incarnation
        if newest > expected:
            raise ProtocolError(f"a frame from {way[0]} to {way[1]} carries incarnation {newest}, expected is {expected}")
        return frames if frames[0].incarnation == expected else [frame for frame in frames if frame.incarnation == expected]

    def _empty(self, way: Way) -> None:
        del self.ways[way]
        del self.senders[way[1]][way[0]]
        self.ready.discard(("deliver", way))


class BusLink:
    """A process' end of the bus; see :class:`rayad.actors.worker.surroundings.Link`."""

    hands_over = True
    woke_s = 0.0
    was_woken = False

    def __init__(self, bus: Bus, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.socket_bytes = bus.socket_bytes
        self.expected: dict[str, int] = {}
        """The incarnation whose frames alone are taken, by peer; of others it is this process' own."""
        self.lost: list[str] = []
        self._bus = bus
        self._sent: dict[tuple[str, int], int] = {}

    def send(self, peer: str, kind: int, channel: int, parts: Any) -> None:
        """Send one frame: bytes, a list of buffers, or what is handed over as it is."""
        of = type(parts)
        if of is list:
            parts = b"".join(parts)
        elif of is memoryview or of is bytearray:
            parts = bytes(parts)
        sequence = self._sent.get((peer, channel), 0)
        self._sent[peer, channel] = sequence + 1
        self._bus.put(peer, Frame(self.name, int(kind), channel, sequence, parts, self.incarnation))

    def poll(self, timeout_s: float | None = 0.0) -> list[Frame]:
        """Nothing: the bus brings frames by itself."""
        return []

    def start_connect(self, peer: str, address: Any, timeout_s: float = 10.0) -> None:
        """Begin to connect."""
        self._bus.dial(self.name, peer, address)

    def connected(self, peer: str) -> bool:
        """Whether what is sent will arrive."""
        return self._bus.are_connected(self.name, peer)

    def has_left(self, peer: str) -> bool:
        """Whether it has closed its end: here all end at once."""
        return False

    def expect(self, peer: str, incarnation: int) -> None:
        """Accept frames of this incarnation only."""
        self.expected[peer] = incarnation
        if peer in self.lost:
            self.lost.remove(peer)

    def take_lost(self) -> list[str]:
        """The peers lost since the last call."""
        lost, self.lost = self.lost, []
        return lost

    def forget(self, peer: str) -> None:
        """Nothing is kept of it."""

    def calm(self) -> None:
        """Nothing waits here."""

    def why_lost(self, peer: str) -> str:
        """Why."""
        return "its process is gone"

    def broken(self) -> dict[str, float]:
        """Connections that may still be replaced: here there are none."""
        return {}

    def queued_bytes(self, peer: str) -> int:
        """Bytes of batches on their way."""
        waiting = self._bus.ways.get((self.name, peer), ())
        return sum(bytes_of(frame.payload) for frame in waiting if frame.kind == Kind.DATA)

    def is_behind(self, peer: str) -> bool:
        """Whether many frames wait."""
        return len(self._bus.ways.get((self.name, peer), ())) > BEHIND

    def wakeup(self) -> None:
        """Nothing waits here."""


__all__ = ["Bus", "BusLink", "Ready", "VirtualClock"]
