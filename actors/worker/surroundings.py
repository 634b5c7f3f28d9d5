"""What a worker is given: a plane, a clock, writers of parts. On Ray: sockets, the machine's clock, threads."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rayad.actors.plane.frames import Frame
from rayad.actors.replica.captures import Capture, Written
from rayad.actors.replica.parts.part_reading import Each
from rayad.dataflow.plan import Stage


class Clock(Protocol):
    """Seconds. The module :mod:`time` is one."""

    def perf_counter(self) -> float:
        """For short times."""

    def monotonic(self) -> float:
        """For timeouts."""

    def time(self) -> float:
        """Since 1970."""


class Link(Protocol):
    """A worker's end of the data plane; see :class:`rayad.actors.plane.plane.Plane`."""

    incarnation: int
    woke_s: float
    was_woken: bool
    """Whether :meth:`wakeup` has ended the last poll, or would have."""
    hands_over: bool
    """Whether the peers are in this process, so that batches, reports and views are passed to them as they are."""
    socket_bytes: int
    """At least so many bytes of a feedback channel may wait to be carried before the rest is spilled to disk."""

    def send(self, peer: str, kind: int, channel: int, parts: Any) -> None:
        """Send one frame: bytes, or a sequence of buffers; where peers are handed things, whatever they are."""

    def poll(self, timeout_s: float | None = 0.0) -> list[Frame]:
        """The frames that are there."""

    def start_connect(self, peer: str, address: Any, timeout_s: float = 10.0) -> None:
        """Begin to connect."""

    def connected(self, peer: str) -> bool:
        """Whether what is sent will arrive."""

    def has_left(self, peer: str) -> bool:
        """Whether it has closed its end."""

    def expect(self, peer: str, incarnation: int) -> None:
        """Accept frames of this incarnation only."""

    def take_lost(self) -> list[str]:
        """The peers lost since the last call."""

    def forget(self, peer: str) -> None:
        """A peer that is lost, and comes under this name never again."""

    def why_lost(self, peer: str) -> str:
        """Why."""

    def calm(self) -> None:
        """Do not spin for the next frame: the last ones are no sign that it comes at once."""

    def broken(self) -> dict[str, float]:
        """The peers whose connection may still be replaced, and for how many seconds it has been lost."""

    def queued_bytes(self, peer: str) -> int:
        """Bytes that wait for a socket."""

    def is_behind(self, peer: str) -> bool:
        """Whether bytes wait for its socket."""

    def wakeup(self) -> None:
        """End the poll. Any thread."""


class Writer(Protocol):
    """Writes the parts of one replica beside its work; see :class:`rayad.actors.host.part_writer.PartWriter`."""

    done: deque[Written]

    def take_state(self, capture: Capture, *, records: int, inline: bool) -> None:
        """Take the state as it is now."""

    def complete(self, capture: Capture) -> None:
        """The log is complete: write the rest."""

    def give_up(self, number: int) -> None:
        """A capture is no longer wanted."""

    def close(self) -> None:
        """End."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that is not the worker's own.

    Args:
        link: the data plane.
        clock: seconds.
        moment: what the vertices' clock says.
        writer: makes the writer of a replica's parts.
        pid: the id of the process.
        each: reads the files of a part, see :data:`rayad.actors.replica.parts.part_reading.Each`.
    """

    link: Link
    clock: Clock
    moment: Callable[[], dt.datetime]
    writer: Callable[[Stage, int], Writer] | None = None
    pid: int = 0
    each: Each = map


__all__ = ["Clock", "Link", "Surroundings", "Writer"]
