"""Questions of several threads to one process share a call: while one is under way the others wait, and go together in the next.

A call of an actor costs its process ten times what a question in it does (decision 101), so a process that many ask at once is asked in few
calls. Who asks alone waits for nobody. Each process has a line of its own: one that is busy holds up nobody who asks another.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.tables import Answer, Ask, Busy

Asked = tuple[ReplicaId, Ask]
Told = list[Answer | None] | Busy | None
"""An answer to each question; None: the process has died, or has not answered in time."""


@dataclass(slots=True)
class _Waiter:
    questions: Sequence[Asked]
    told: Told = None
    error: BaseException | None = None
    is_over: bool = False


class Line:
    """Those who ask one process.

    Args:
        call: asks it these questions, for at most so many seconds.
    """

    def __init__(self, call: Callable[[list[Asked], float], Told]) -> None:
        self._call = call
        self._turn = threading.Condition()
        self._waiting: list[_Waiter] = []
        self._is_called = False

    @property
    def waits(self) -> int:
        """How many wait for the next call."""
        return len(self._waiting)

    def ask(self, questions: Sequence[Asked], timeout_s: float) -> Told:
        """Ask these, from any thread. Raises what the call raises."""
        mine = _Waiter(questions)
        until_s = clock.monotonic() + timeout_s
        with self._turn:
            self._waiting.append(mine)
            while self._is_called and not mine.is_over:
                if not self._turn.wait(max(0.0, until_s - clock.monotonic())) and clock.monotonic() >= until_s:
                    if mine in self._waiting:
                        self._waiting.remove(mine)
                    return None
            if not mine.is_over:
                self._is_called, some = True, self._waiting
                self._waiting = []
        if not mine.is_over:
            self._lead(some, max(0.0, until_s - clock.monotonic()))
        if mine.error is not None:
            raise mine.error
        return mine.told

    def _lead(self, some: list[_Waiter], timeout_s: float) -> None:
        """Ask for all of these, and tell them."""
        try:
            told = self._call([question for each in some for question in each.questions], timeout_s)
            at = 0
            for each in some:
                each.told = told[at : at + len(each.questions)] if isinstance(told, list) else told
                at += len(each.questions)
        except BaseException as error:
            for each in some:
                each.error = error
        finally:
            with self._turn:
                for each in some:
                    each.is_over = True
                self._is_called = False
                self._turn.notify_all()


__all__ = ["Asked", "Line", "Told"]
