"""What a plane knows of its peers, and the figures that it shows of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rayad.actors.plane.address import Address
from rayad.actors.plane.frames import INCARNATION_MAX, Buffer, ReceiveOrder
from rayad.actors.plane.link import Link
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
    """Frames that were sent to the peer after it had been given up."""
    unacknowledged: int
    """Frames that are kept because the peer has not said that they arrived."""
    resumed: int
    """How often a lost connection was replaced, with nothing lost."""


@dataclass(frozen=True, slots=True)
class PlaneStatistics:
    """A plane at one moment."""

    name: str
    incarnation: int
    peers: tuple[PeerStatistics, ...]
    unauthenticated: int
    """Accepted connections that have not proved themselves yet."""
    refused: int
    """Accepted connections that were closed because they did not prove themselves."""


class Peer:
    """All that a plane knows of a peer; outlives its connections.

    Between two processes frames are also counted across all channels: `kept` holds those from number `acknowledged` on, which are sent
    again on a connection that replaces a lost one; `received` is how many have arrived, `told_received` how many the peer was told of.
    """

    __slots__ = (
        "acknowledged", "address", "bytes_in", "bytes_out", "dropped_out", "frames_in", "frames_out", "has_left", "instance",
        "is_given_up", "kept", "link", "links", "name", "next_out", "order", "process_incarnation", "reason", "received", "redial_at_s",
        "resumed", "told", "told_received", "until_s", "untold_bytes",
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
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = self.dropped_out = self.resumed = 0
        self.kept: deque[tuple[Buffer, ...]] = deque()
        self.acknowledged = self.received = self.told_received = self.untold_bytes = 0
        self.address: Address | None = None  # the address at which this plane has connected to it
        self.has_left = False  # it said goodbye
        self.is_given_up = False
        self.until_s: float | None = None  # while there is no connection and another one may replace the lost one
        self.redial_at_s = float("inf")
        self.reason = ""

    @property
    def queued_bytes(self) -> int:
        if self.until_s is not None:
            return sum(memoryview(part).nbytes for frame in self.kept for part in frame)
        return sum(link.queued_bytes for link in self.links)

    @property
    def is_behind(self) -> bool:
        """Whether anything waits for a socket: cheaper than :attr:`queued_bytes`, for callers that ask at every message."""
        if self.until_s is not None:
            return bool(self.kept)
        for link in self.links:  # noqa: SIM110 - a call for each view
            if link.queued_bytes:
                return True
        return False

    def acknowledge(self, count: int) -> None:
        """The peer has received ``count`` frames: they need not be kept."""
        if count > self.acknowledged + len(self.kept):
            raise ProtocolError(f"{self.name!r} says that {count} frames have arrived; {self.acknowledged + len(self.kept)} were sent")
        popleft = self.kept.popleft
        for _ in range(count - self.acknowledged):
            popleft()
        self.acknowledged = max(self.acknowledged, count)

    def forget(self) -> None:
        """There will be no other connection with that process: nothing needs to be kept for it."""
        self.until_s, self.redial_at_s = None, float("inf")
        self.acknowledged += len(self.kept)
        self.kept.clear()

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
            unacknowledged=len(self.kept),
            resumed=self.resumed,
        )

    def objection(self, incarnation: int, instance: bytes, resumes: bool) -> str:
        """Say why a proven process may not be this peer, or not resume where its connection was lost; "" if it may."""
        if resumes and self.is_given_up and instance == self.instance:
            return f"the connection with {self.name!r} was lost and given up: {self.reason}"
        if incarnation < self.order.expected:
            return f"incarnation {incarnation} of {self.name!r} is fenced off: incarnation {self.order.expected} is expected by now"
        if self.link is not None and instance != self.instance and incarnation <= self.process_incarnation:
            return (
                f"another process is connected as {self.name!r} under incarnation {self.process_incarnation}; "
                f"a new process of that name needs a higher incarnation than {incarnation}"
            )
        return ""

    def join(self, link: Link, incarnation: int, instance: bytes, received: int) -> list[Link]:
        """Take an established connection, and send on it again what was sent and has not arrived; give the connections of an older process,
        which must be closed.  ``received``: how many frames have arrived at the peer."""
        old: list[Link] = []
        if instance != self.instance:
            old, self.links, self.link = self.links, [], None
            self.instance = instance
            self.next_out.clear()
            self.order.restart(self.order.expected)
            self.kept.clear()
            self.acknowledged = self.received = self.told_received = received = 0
        self.resumed += self.until_s is not None
        self.until_s, self.redial_at_s = None, float("inf")
        self.has_left = self.is_given_up = False
        self.process_incarnation = incarnation
        self.links.append(link)
        if link.outgoing:
            self.address = link.address
        if self.link is None:
            self.link = link
            if received < self.acknowledged:  # given up meanwhile: frames are lost for good, as their receiver will notice
                self.acknowledged = received
            self.acknowledge(received)
            for frame in self.kept:
                link.put(frame)
        return old


def check_incarnation(incarnation: int) -> None:
    """Raise ConfigError unless `incarnation` fits the frame header."""
    if not 0 <= incarnation <= INCARNATION_MAX:
        raise ConfigError(f"incarnation {incarnation}: it must be in 0..{INCARNATION_MAX}")
