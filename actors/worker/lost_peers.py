"""The peers of a worker whose connection is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, is_driver, is_reader
from rayad.actors.worker.surroundings import Clock, Link

LOST_S = 5.0
"""How long a peer may be lost before a worker fails: until then the process that knows the cause may report it, or replace the peer."""


class Connected(Protocol):
    """A worker, as far as its connections go."""

    link: Link
    clock: Clock
    is_done: bool
    """The job is complete."""

    def title(self, process: str = "") -> str:
        """What a process, or this one, is called by people."""

    def knows(self, process: str) -> bool:
        """Whether a process holds replicas in some layout that is known here; else it has retired, or its change was refused."""


class LostPeers:
    """Those that one worker has lost.

    Args:
        worker: that one.
    """

    def __init__(self, worker: Connected) -> None:
        self._worker = worker
        self._since_s: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._since_s)

    def __contains__(self, peer: str) -> bool:
        return peer in self._since_s

    def forget(self, peer: str) -> None:
        """A process of that name is new."""
        self._since_s.pop(peer, None)

    def look(self) -> None:
        """Note who has been lost. Raises ConnectionError for who is needed, and has been lost for too long."""
        worker, link = self._worker, self._worker.link
        lost = link.take_lost()
        if not lost and not self._since_s:
            return
        now_s = worker.clock.monotonic()
        for peer in lost:
            if is_reader(peer):
                link.forget(peer)
            elif not is_driver(peer):
                self._since_s[peer] = now_s
                if peer == PROGRESS and not worker.is_done:
                    raise ConnectionError(f"{worker.title()} lost its connection to the progress actor: {link.why_lost(peer)}")
        for peer, since_s in list(self._since_s.items()):
            if peer not in (PROGRESS, COORDINATOR) and not worker.knows(peer):
                del self._since_s[peer]  # a later change may bring a process of that name
            elif now_s - since_s > LOST_S and not self._may_be_lost(peer):
                raise ConnectionError(f"{worker.title()} lost its connection to {worker.title(peer)}: {link.why_lost(peer)}")

    def _may_be_lost(self, peer: str) -> bool:
        """Whether a peer may be gone: the job is complete, or it ended on purpose."""
        link = self._worker.link
        return (self._worker.is_done and peer != COORDINATOR) or link.connected(peer) or link.has_left(peer)


__all__ = ["LOST_S", "LostPeers"]
