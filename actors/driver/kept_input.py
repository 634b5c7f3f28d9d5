"""The sending end of a live input of a detached job, in any process: it sends through the keeper."""

from __future__ import annotations

import math
import secrets
import threading
import time as clock
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rayad.actors.driver.coordinator_line import Gone, NoAnswer
from rayad.actors.driver.keeper_line import KeeperLine
from rayad.actors.inputs.job_input import JobInput, not_saved, perhaps_taken, took_nothing
from rayad.actors.job import SavedEpochs
from rayad.progress import DataflowError

TURN_S = 5.0
"""How long the keeper holds a call that waits for room or for a snapshot, before it is made again: others have a turn meanwhile."""
LOST_S = 10.0
"""How much longer than that a call with a timeout waits for the keeper's answer."""


@dataclass(frozen=True, slots=True)
class InputState:
    """Where a live input is, after what all its senders have done."""

    sent: int
    epoch: int
    closed: bool
    note: str | None


class KeptInput(JobInput):
    """A live input of a detached job. Several processes may have one of the same input: it can be pickled and passed on.

    A call returns when the keeper has taken it: then it is not lost, and not done twice, also when the keeper dies, in a job that survives
    failures. Batches of several senders interleave, all in the epoch that the input is in; ``sent``, ``epoch``, ``closed`` and ``note`` say
    where the input was after the last call of this handle, whoever has done it.

    Args:
        name: of the input.
        keeper: of its job.
    """

    def __init__(self, name: str, keeper: KeeperLine) -> None:
        super().__init__(name)
        self._keeper = keeper
        self._sender = secrets.token_hex(8)
        self._calls = 0
        self._turn = threading.Lock()
        self._do("look")

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptInput, (self.name, self._keeper)

    def _job_name(self) -> str:
        return self._keeper.entry.job

    def _look(self) -> None:
        self._do("look")

    def _send(self, batch: Any, timeout_s: float | None) -> int:
        self._do("send", batch, timeout_s=timeout_s)
        return self.sent

    def _advance(self, epoch: int) -> None:
        self._do("advance_to", epoch)

    def _close(self) -> None:
        self._do("close")

    def _keep_note(self, text: str) -> None:
        self._do("keep_note", text)

    def _saved(self) -> SavedEpochs:
        found: SavedEpochs = self._ask("saved", self.name)
        return found

    def _wait_saved(self, epoch: int, timeout_s: float | None) -> None:
        deadline_s = math.inf if timeout_s is None else clock.monotonic() + timeout_s
        while True:
            left_s = deadline_s - clock.monotonic()
            with suppress(NoAnswer):
                if self._ask("wait_saved", self.name, epoch, max(0.0, min(TURN_S, left_s)), timeout_s=max(0.0, left_s) + LOST_S):
                    return
            if timeout_s is not None and clock.monotonic() > deadline_s:
                raise not_saved(self.name, self._keeper.entry.job, epoch, timeout_s)

    def _do(self, act: str, *args: Any, timeout_s: float | None = None) -> None:
        """One call at a time, the same one again until the keeper has done it: it tells repetitions by their number."""
        deadline_s = math.inf if timeout_s is None else clock.monotonic() + timeout_s
        if not self._turn.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)):
            raise took_nothing(self.name, self._keeper.entry.job, timeout_s or 0.0)
        try:
            self._calls += 1
            while True:
                left_s = max(0.0, deadline_s - clock.monotonic())
                call = (self.name, f"{self._sender}:{self._calls}", act, args, min(TURN_S, left_s))
                is_known = True
                try:
                    state = self._ask("take", *call, timeout_s=left_s + LOST_S)
                except NoAnswer:
                    state, is_known = None, False
                if state is not None:
                    self.sent, self.epoch, self.closed, self.note = state.sent, state.epoch, state.closed, state.note
                    return
                if timeout_s is not None and clock.monotonic() > deadline_s:
                    told = took_nothing if is_known else perhaps_taken
                    raise told(self.name, self._keeper.entry.job, timeout_s)
        finally:
            self._turn.release()

    def _ask(self, method: str, *args: Any, timeout_s: float = math.inf) -> Any:
        try:
            return self._keeper.call(method, *args, timeout_s=timeout_s)
        except Gone:
            raise DataflowError(
                f"job {self._keeper.entry.job!r} has ended, and nobody keeps it any more: its inputs take nothing"
            ) from None


__all__ = ["InputState", "KeptInput"]
