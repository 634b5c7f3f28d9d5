"""What a plane knows of its peers, and the figures that it shows of them."""

from __future__ import annotations

from dataclasses import dataclass

from rayad.actors.plane_link import Link
from rayad.actors.wire import INCARNATION_MAX, ReceiveOrder
from rayad.progress import ConfigError, ProtocolError


class ConnectFailed(ProtocolError):
    """A connection that could not be made: the peer is gone, does not answer, or refused."""


@dataclass(frozen=True, slots=True)
class PeerStatistics:
    """What went over the connections with one peer; bytes include the frame headers."""

    peer: str
    transport: str
    """"unix", "tcp", or "" while there is no connection."""
    expected_incarnation: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    queued_bytes: int
    stale_frames_in: int
    """Frames of older incarnations, dropped on arrival."""
    dropped_frames_out: int
    """Frames that were sent to the peer after its connection had ended."""


@dataclass(frozen=True, slots=True)
class PlaneStatistics:
    """A plane at one moment."""

    name: str
    incarnation: int
    peers: tuple[PeerStatistics, ...]
    unauthenticated: int
    """Accepted connections that have not proved themselves yet."""
    refused: int
    """Accepted connections that were closed because they did not."""


class Peer:
    """All that a plane knows of a peer; outlives its connections."""

    __slots__ = (
        "bytes_in", "bytes_out", "dropped_out", "frames_in", "frames_out", "instance", "link", "links", "name", "next_out", "order",
        "process_incarnation", "told",
    )  # fmt: skip

    def __init__(self, name: str, expected: int) -> None:
        self.name = name
        self.link: Link | None = None  # the one to send on; established
        self.links: list[Link] = []  # more than one when both sides connected at the same moment
        self.instance = b""
        self.process_incarnation = -1
        self.told = False  # expect() was called; else the plane's own incarnation is expected
        self.order = ReceiveOrder(name, expected)
        self.next_out: dict[int, int] = {}
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = self.dropped_out = 0

    @property
    def queued_bytes(self) -> int:
        return sum(link.queued_bytes for link in self.links)

    def statistics(self) -> PeerStatistics:
        return PeerStatistics(
            peer=self.name,
            transport=self.link.transport if self.link is not None else "",
            expected_incarnation=self.order.expected,
            frames_in=self.frames_in,
            frames_out=self.frames_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            queued_bytes=self.queued_bytes,
            stale_frames_in=self.order.stale_frames,
            dropped_frames_out=self.dropped_out,
        )

    def objection(self, incarnation: int, instance: bytes) -> str:
        """Say why a proven process may not be this peer, "" if it may."""
        if incarnation < self.order.expected:
            return f"incarnation {incarnation} of {self.name!r} is fenced off: incarnation {self.order.expected} is expected by now"
        if self.link is not None and instance != self.instance and incarnation <= self.process_incarnation:
            return (
                f"another process is connected as {self.name!r} under incarnation {self.process_incarnation}; "
                f"a new process of that name needs a higher incarnation than {incarnation}"
            )
        return ""

    def join(self, link: Link, incarnation: int, instance: bytes) -> list[Link]:
        """Take an established connection; give those of an older process, that must be closed."""
        old: list[Link] = []
        if instance != self.instance:
            old, self.links, self.link = self.links, [], None
            self.instance = instance
            self.next_out.clear()
            self.order.restart(self.order.expected)
        self.process_incarnation = incarnation
        self.links.append(link)
        if self.link is None:
            self.link = link
        return old


def check_incarnation(incarnation: int) -> None:
    """Raise ConfigError unless `incarnation` fits the frame header."""
    if not 0 <= incarnation <= INCARNATION_MAX:
        raise ConfigError(f"incarnation {incarnation}: it must be in 0..{INCARNATION_MAX}")
