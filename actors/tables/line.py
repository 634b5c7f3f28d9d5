"""The way of a reader to one process: a plane of its own, connected as long as the process lives there.

Questions of several threads go out side by side, each as one frame, and each answer carries the number of its question. The plane is for
one thread at a time: of those that wait one polls for all, and when it has its answer another one goes on. Who only asks wakes it.

A call of an actor would cost its process ten times what a question in it does (decision 101).
"""

from __future__ import annotations

import threading
import time as clock
import uuid
import weakref
from collections import deque
from collections.abc import Sequence

from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.actors.plane.plane import ConnectFailed, Plane
from rayad.actors.plane.protocol import Kind, reader_name
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.tables import Answer, Ask
from rayad.actors.tables.where import Where
from rayad.progress import ProtocolError, Timestamp

Asked = tuple[ReplicaId, Ask]
POLL_S = 1.0
"""How long whoever polls waits in one go."""


class Ticket:
    """A question that was asked; ``told``: an answer for each of its parts, once it is there."""

    __slots__ = ("number", "parts", "told")

    def __init__(self, number: int, parts: list[bytes | memoryview]) -> None:
        self.number = number
        self.parts = parts
        self.told: list[Answer | None] | None = None


class Line:
    """Asks one process.

    Args:
        where: see :class:`Where`.
    """

    def __init__(self, where: Where) -> None:
        self.where = where
        self.is_lost = False
        """Nobody answers here any more: the process has gone, or refuses."""
        self._plane = Plane(
            name=reader_name(uuid.uuid4().hex),
            job=where.job,
            incarnation=where.incarnation,
            secret=where.secret,
            reconnect_s=0.0,
            seals=where.seals,
        )
        self._turn = threading.Condition()
        self._is_led = False
        self._to_send: deque[Ticket] = deque()
        self._open: dict[int, Ticket] = {}
        self._number = 0
        weakref.finalize(self, self._plane.close, 0.0)
        try:
            self._plane.start_connect(where.process, where.address)
        except (BlockingIOError, ConnectFailed):
            self.is_lost = True

    def ask(self, questions: Sequence[Asked]) -> Ticket:
        """Ask these, from any thread, without waiting. Raises DataflowError where a key cannot be pickled."""
        with self._turn:
            self._number += 1
            ticket = Ticket(self._number, encode_batch(Timestamp(self._number), list(questions)))
            self._to_send.append(ticket)
            self._open[ticket.number] = ticket
            if self._is_led:
                self._plane.wakeup()
        return ticket

    def wait(self, ticket: Ticket, until_s: float) -> list[Answer | None] | None:
        """The answers; None: none came until then, by the clock of :func:`time.monotonic`, or the process is gone."""
        with self._turn:
            while ticket.told is None and not self.is_lost and self._is_led:
                if not self._turn.wait(max(0.0, until_s - clock.monotonic())) and clock.monotonic() >= until_s:
                    break
            if ticket.told is not None or self.is_lost or self._is_led:
                return ticket.told
            self._is_led = True
        try:
            self._lead(ticket, until_s)
        except (OSError, ProtocolError):
            self.is_lost = True  # what was read is of no use: the connection begins anew
        finally:
            with self._turn:
                self._is_led = False
                self._turn.notify_all()
        return ticket.told

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        with self._turn:
            self._open.pop(ticket.number, None)

    def _lead(self, mine: Ticket, until_s: float) -> None:
        """Poll for all, until this one's answer is there."""
        plane, process = self._plane, self.where.process
        while mine.told is None and not self.is_lost:
            if self._to_send and plane.connected(process):
                with self._turn:
                    waiting, self._to_send = self._to_send, deque()
                for ticket in waiting:
                    if ticket.number in self._open:
                        plane.send(process, Kind.READ, 0, ticket.parts)
            left_s = until_s - clock.monotonic()
            if left_s <= 0:
                return
            frames = plane.poll(min(left_s, POLL_S))
            if frames:
                with self._turn:
                    for frame in frames:
                        number, answers = decode_batch(frame.payload)
                        ticket_of = self._open.pop(number.epoch, None)
                        if ticket_of is not None:
                            ticket_of.told = answers
                    if len(frames) > 1 or mine.told is None:
                        self._turn.notify_all()
            if plane.take_lost():
                self.is_lost = True


__all__ = ["Asked", "Line", "Ticket"]
