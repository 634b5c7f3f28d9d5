"""Probes of a job on Ray: they ask the progress actor, through the coordinator."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rayad.actors.cluster.actor_class import WAITING
from rayad.actors.driver.coordinator_line import ANSWER_S, GLANCE_S, LOOK_AGAIN_S, NoAnswer
from rayad.actors.job import Probe
from rayad.progress import Timestamp

HOLD_S = 0.5
"""How long one call of a waiting probe is held, so that a death meanwhile is noticed; less when many probes wait."""


class Holding:
    """How long one call of a waiting probe may be held: a few threads of the coordinator serve the calls of all waiting probes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0

    @contextmanager
    def waits(self) -> Iterator[Callable[[], float]]:
        """Register the calling thread as waiting for a probe; gives a function for the seconds that its next call may be held."""
        with self._lock:
            self._waiting += 1
        try:
            yield lambda: HOLD_S * min(1.0, WAITING / max(1, self._waiting))
        finally:
            with self._lock:
                self._waiting -= 1


@dataclass(frozen=True, slots=True)
class ProbedJob:
    """What probes need of their job."""

    name: str
    patience_s: Callable[[], float]
    """How long to wait for an answer that the progress actor can give at once."""
    ask_again: Callable[..., Any]
    """A control call, repeated at the next coordinator when one dies; raises NoAnswer."""
    is_over: Callable[[], bool]
    raise_outcome: Callable[[], Any]
    """Wait for the end; raises what ended the job."""
    holding: Holding


class RayProbe(Probe):
    """Asks the progress actor."""

    def __init__(self, name: str, job: ProbedJob, node: int) -> None:
        super().__init__(name)
        self._job = job
        self._node = node

    def frontier(self) -> tuple[Timestamp, ...]:
        job = self._job
        patience_s = job.patience_s()
        deadline_s = clock.monotonic() + patience_s
        while True:
            found = job.ask_again("frontier", self._node, timeout_s=patience_s)
            if found is not None:
                return tuple(found)
            if job.is_over():
                job.raise_outcome()
                return ()
            if clock.monotonic() > deadline_s:
                raise TimeoutError(f"probe {self.name!r}: the progress actor of job {job.name!r} does not answer; see job.explain_stuck()")
            clock.sleep(LOOK_AGAIN_S)  # it died, and the coordinator has not noticed yet

    def _wait(self, epoch: int, timeout_s: float | None) -> bool:
        job = self._job
        deadline_s = float("inf") if timeout_s is None else clock.monotonic() + timeout_s
        with job.holding.waits() as hold_s:
            while True:
                left_s = max(0.0, deadline_s - clock.monotonic())
                try:
                    held_s = min(left_s, hold_s())
                    answer_s = min(held_s + ANSWER_S, left_s + GLANCE_S)
                    done = job.ask_again("wait_epoch", self._node, epoch, held_s, timeout_s=answer_s, successor_s=left_s)
                except NoAnswer:
                    done = False  # if this lasts, the missing heartbeats end it
                if done:
                    return True
                if job.is_over():
                    job.raise_outcome()
                    return True
                if clock.monotonic() >= deadline_s:
                    return False


__all__ = ["Holding", "ProbedJob", "RayProbe"]
