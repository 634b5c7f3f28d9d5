"""The outcome of a job for an owner whose reference to the coordinator's long call was lost with its connection."""

from __future__ import annotations

import threading

from rayad.actors.coordinator.outcome import JobOutcome


class ToldOutcome:
    """The outcome, and who waits for it: one caller, the owner, of whose calls only the newest can be answered.

    >>> from rayad.actors.job import JobState, JobStatistics
    >>> told = ToldOutcome()
    >>> told.tell(JobOutcome(JobState.COMPLETE, {}, JobStatistics())); told.wait().state
    <JobState.COMPLETE: 'complete'>
    """

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._outcome: JobOutcome | None = None
        self._calls = 0

    def tell(self, outcome: JobOutcome) -> None:
        """The job has ended so."""
        with self._news:
            self._outcome = outcome
            self._news.notify_all()

    def wait(self) -> JobOutcome | None:
        """Wait for the outcome; None when it was asked for again meanwhile: the connection of this call was lost, too, and its thread is
        needed."""
        with self._news:
            self._calls += 1
            mine = self._calls
            self._news.notify_all()
            self._news.wait_for(lambda: self._outcome is not None or self._calls > mine)
            return self._outcome


__all__ = ["ToldOutcome"]
