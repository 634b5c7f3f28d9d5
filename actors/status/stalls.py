"""Stalls of a job: for some time no frontier has moved and no record has been consumed, and the input is not what is missing. Pure.

A look every few seconds is enough, and is there anyway (the metrics'): a stall is noted once, with what held the job up, and once more
when something moves again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.job_status import JobStatus

STALL_S = 30.0
"""What stands still for so long is a stall."""


class Stalls:
    """Notes the stalls of one job.

    Args:
        note: writes an event: kind, what, facts.
        holds_up: what holds the job up, in one sentence; None: nothing but its input does.
    """

    def __init__(self, note: Callable[..., None], holds_up: Callable[[], str | None]) -> None:
        self._note = note
        self._holds_up = holds_up
        self._last: Any = None
        self._since_s = 0.0
        self._is_noted = False

    def see(self, status: JobStatus) -> None:
        """Look at the next status."""
        now = _moving(status)
        if now is None or now != self._last:
            if self._is_noted:
                for_s = status.at_s - self._since_s
                self._note("stall over", f"after {for_s:.0f} s", for_s=round(for_s, 1))
            self._last, self._since_s, self._is_noted = now, status.at_s, False
            return
        for_s = status.at_s - self._since_s
        if self._is_noted or for_s < STALL_S:
            return
        why = self._holds_up()
        if why is not None:
            self._is_noted = True
            self._note("stall", f"nothing has moved for {for_s:.0f} s. {why}", for_s=round(for_s, 1), why=why)


def _moving(status: JobStatus) -> Any:
    """What changes as a job gets on; None while it does not run."""
    if status.state is not JobState.RUNNING:
        return None
    return tuple((v.name, v.frontier, v.pending, tuple((one.replica, one.records_in) for one in v.replicas)) for v in status.vertices)


__all__ = ["STALL_S", "Stalls"]
