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
from typing import Any

from rayad.actors.plane.batch_codec import batch_time, decode_batch, encode_batch
from rayad.actors.plane.plane import ConnectFailed, Plane
from rayad.actors.plane.protocol import Kind, reader_name
from rayad.actors.replica.reads.questions import Answer, Asked, Refused, packed_questions, unpacked_answers
from rayad.actors.tables.where import Where
from rayad.progress import ProtocolError, Timestamp, say

POLL_S = 1.0
"""How long whoever polls waits in one go."""


class Ticket:
    """Questions that were asked together; ``told``: an answer for each, once it is there."""

    __slots__ = ("count", "number", "parts", "told")

    def __init__(self, number: int, count: int, parts: list[bytes | memoryview]) -> None:
        self.number = number
        self.count = count
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
            ticket = Ticket(self._number, len(questions), encode_batch(Timestamp(self._number), packed_questions(questions)))
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
                        answered = self._open.pop(batch_time(frame.payload).epoch, None)
                        if answered is not None:
                            answered.told = _read(frame.payload, answered.count)
                    if len(frames) > 1 or mine.told is None:
                        self._turn.notify_all()
            if plane.take_lost():
                self.is_lost = True


def _read(payload: Any, count: int) -> list[Answer | None]:
    """The answers; a refusal of all where they, or the questions there, cannot be read."""
    try:
        answers = unpacked_answers(decode_batch(payload)[1])
    except Exception as error:  # of a class that is unknown here, say
        answers = [Refused(f"the answer cannot be read here: {type(error).__name__}: {say(error)}")]
    return answers if len(answers) == count else answers * count


__all__ = ["Line", "Ticket"]
