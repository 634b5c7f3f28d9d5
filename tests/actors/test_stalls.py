"""Stalls are noted once, with what held the job up, and once more when it goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.job_status import JobStatus, ReplicaStatus, VertexStatus
from rayad.actors.status.stalls import STALL_S, Stalls
from rayad.progress import Timestamp


class Noted:
    """The journal, and what holds the job up."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.why: str | None = "The job waits for 'counts'[1], whose function does not return."
        self.asked = 0
        self.stalls = Stalls(self.note, self.holds_up)

    def note(self, kind: str, what: str, /, **facts: Any) -> None:
        self.events.append((kind, what))

    def holds_up(self) -> str | None:
        self.asked += 1
        return self.why


def status(at_s: float, records: int = 0, epoch: int = 0, state: JobState = JobState.RUNNING) -> JobStatus:
    counts = VertexStatus("counts", replicas=(ReplicaStatus(0, records_in=records),), frontier=(Timestamp(epoch),))
    return JobStatus("words", state, at_s, vertices=(counts,))


def test_a_stall_is_noted_once_and_its_end() -> None:
    noted = Noted()
    for at_s in (0.0, 5.0, STALL_S - 1):
        noted.stalls.see(status(at_s))
    assert (noted.events, noted.asked) == ([], 0)
    noted.stalls.see(status(STALL_S))
    noted.stalls.see(status(STALL_S + 60))
    assert noted.events == [("stall", f"nothing has moved for 30 s. {noted.why}")]
    assert noted.asked == 1
    noted.stalls.see(status(STALL_S + 65, records=1))
    assert noted.events[1:] == [("stall over", "after 95 s")]
    noted.stalls.see(status(STALL_S + 70, records=1))
    assert len(noted.events) == 2


def test_a_job_that_consumes_or_whose_frontier_moves_does_not_stall() -> None:
    noted = Noted()
    for step in range(20):
        noted.stalls.see(status(10.0 * step, records=step // 2, epoch=(step + 1) // 2))
    assert noted.events == []


def test_missing_input_is_no_stall_until_something_else_holds_the_job_up() -> None:
    noted = Noted()
    why, noted.why = noted.why, None
    for at_s in (0.0, 40.0, 45.0):
        noted.stalls.see(status(at_s))
    assert noted.events == []
    noted.why = why
    noted.stalls.see(status(50.0))
    assert [kind for kind, _ in noted.events] == ["stall"]


def test_a_job_that_is_being_started_or_recovered_does_not_stall() -> None:
    noted = Noted()
    for at_s in (0.0, 40.0, 80.0):
        noted.stalls.see(status(at_s, state=JobState.STARTING))
    assert noted.events == []
    noted.stalls.see(status(85.0))
    noted.stalls.see(replace(status(100.0), events=7))
    assert noted.events == []
