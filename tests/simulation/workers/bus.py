"""A data plane without sockets: frames in memory, FIFO between each two processes, in an order across them that the seed draws."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rayad.actors.plane.carrier import SOCKET_BYTES
from rayad.actors.plane.frames import Buffer, Frame


class Clock:
    """Seconds that pass only when somebody looks, a drawn amount each time: so a slice of time may be over after any activation."""

    def __init__(self, chance: random.Random) -> None:
        self.now_s = 1000.0
        self._chance = chance

    def perf_counter(self) -> float:
        self.now_s += self._chance.choice((0.0, 1e-5, 1e-5, 0.003))
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


class Bus:
    """Who is there, and what is on its way."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.links: dict[str, BusLink] = {}
        self.ways: dict[tuple[str, str], deque[Frame]] = {}
        """By sender and receiver."""
        self.met: set[frozenset[str]] = set()
        """Who is connected."""
        self.dialled: list[frozenset[str]] = []
        """Who will be."""
        self.sent = 0

    def link(self, name: str, incarnation: int) -> BusLink:
        """A process comes."""
        self.links[name] = BusLink(self, name, incarnation)
        return self.links[name]

    def clear(self) -> None:
        """All are gone, with what was on its way."""
        self.links.clear()
        self.ways.clear()
        self.met.clear()
        self.dialled.clear()

    def leave(self, name: str) -> None:
        """A process goes."""
        self.links.pop(name, None)
        self.met = {pair for pair in self.met if name not in pair}
        self.dialled = [pair for pair in self.dialled if name not in pair]

    def connect(self, pair: frozenset[str]) -> None:
        """These are connected now."""
        self.dialled.remove(pair)
        self.met.add(pair)

    def have_met(self, names: Iterable[str], peer: str) -> bool:
        """Whether all of these are connected to that one."""
        return all(frozenset((name, peer)) in self.met for name in names)

    def deliver(self, way: tuple[str, str]) -> list[Frame]:
        """Some of the frames on a way arrive, at least one."""
        waiting = self.ways[way]
        frames = [waiting.popleft() for _ in range(self.chance.randint(1, len(waiting)))]
        if not waiting:
            del self.ways[way]
        return frames


@dataclass
class BusLink:
    """A process' end of the bus."""

    hands_over = False
    socket_bytes = SOCKET_BYTES
    bus: Bus
    name: str
    incarnation: int
    woke_s: float = 0.0

    def __post_init__(self) -> None:
        self._next: dict[tuple[str, int], int] = {}

    def send(self, peer: str, kind: int, channel: int, parts: Buffer | Sequence[Buffer]) -> None:
        data = bytes(parts) if isinstance(parts, (bytes, bytearray, memoryview)) else b"".join(map(bytes, parts))
        sequence = self._next.get((peer, channel), 0)
        self._next[peer, channel] = sequence + 1
        if peer in self.bus.links:
            frame = Frame(self.name, int(kind), channel, sequence, data, self.incarnation)
            self.bus.ways.setdefault((self.name, peer), deque()).append(frame)
            self.bus.sent += 1

    def poll(self, timeout_s: float | None = 0.0) -> list[Frame]:
        raise AssertionError("the bus brings frames by itself")

    def start_connect(self, peer: str, address: Any, timeout_s: float = 10.0) -> None:
        assert peer in self.bus.links, f"{self.name} connects to {peer}, which is not there"
        self.bus.dialled.append(frozenset((self.name, peer)))

    def connected(self, peer: str) -> bool:
        return frozenset((self.name, peer)) in self.bus.met

    def has_left(self, peer: str) -> bool:
        return False

    def expect(self, peer: str, incarnation: int) -> None:
        pass

    def take_lost(self) -> list[str]:
        return []

    def why_lost(self, peer: str) -> str:
        return ""

    def broken(self) -> dict[str, float]:
        return {}

    def queued_bytes(self, peer: str) -> int:
        return sum(len(frame.payload) for frame in self.bus.ways.get((self.name, peer), ()))

    def is_behind(self, peer: str) -> bool:
        return len(self.bus.ways.get((self.name, peer), ())) > 3

    def wakeup(self) -> None:
        pass


__all__ = ["Bus", "BusLink", "Clock"]
