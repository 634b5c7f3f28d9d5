"""A fake job handle, without a job: it notes the calls that it gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.job import JobEvent, JobProgress, JobState, JobStatistics, JobStatus, Result, Silent, StageProgress
from rayad.actors.lead.layouts import RescaleReport
from rayad.commands import on_cluster
from rayad.snapshots.attempts import SnapshotStatistics

STAGES = (
    StageProgress("words", (rd.Timestamp(7),), (), 12, 1200, 1),
    StageProgress("counts", tuple(rd.Timestamp(5, (round_,)) for round_ in range(5)), (rd.Timestamp(5),), 30, 1200, 2),
)
SNAPSHOT = SnapshotStatistics(4, "regular", 0.5, 0.01, 0.1, 1000, 2_500_000, 0, 10.0)
PROGRESS = JobProgress(JobState.RUNNING, STAGES, 3, SNAPSHOT, 10.0, 1, silent=(Silent("'counts'[1]", "10.0.0.2", 4.0),))


class Scanned:
    """A table that a job gives to be read."""

    def scan(self, *, fresh: bool) -> pa.Table:
        return pa.table({"key": ["tea"], "count": [2]})


class Handle:
    """Notes its calls; a call whose name is in ``fails`` raises the error given there."""

    def __init__(self, **fails: BaseException) -> None:
        self.calls: list[Any] = []
        self.state = JobState.RUNNING
        self.name = "wordcount"
        self.fails = fails
        self.seen = PROGRESS

    def _note(self, call: str, *arguments: Any) -> None:
        self.calls.append((call, *arguments))
        if call in self.fails:
            raise self.fails[call]

    def progress(self) -> JobProgress:
        self._note("progress")
        return self.seen

    def status(self) -> JobStatus:
        self._note("status")
        return JobStatus(self.name, JobState.COMPLETE)  # of a job that runs it would be asked again

    def table(self, name: str, *, state: str | None = None) -> Scanned:
        self._note("table", name, state)
        return Scanned()

    def sql(self, query: str, *, fresh: bool, committed: bool) -> pa.Table:
        self._note("sql", query, fresh, committed)
        return Scanned().scan(fresh=fresh)

    def journal(self) -> tuple[JobEvent, ...]:
        self._note("journal")
        return ()

    def explain_stuck(self) -> str:
        return "counts[1] is slow\nand more"

    def savepoint(self, *, timeout_s: float | None = None) -> str:
        self._note("savepoint", timeout_s)
        return "jobs/wordcount/snapshots/5"

    def rescale(self, wanted: dict[str, int], *, timeout_s: float) -> RescaleReport:
        self._note("rescale", wanted, timeout_s)
        return RescaleReport({"counts": 2}, wanted, moved_groups=64, moved_bytes=1_500_000, took_s=0.25, pause_s=0.004)

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        self._note("stop", drain, timeout_s)
        self.state = JobState.COMPLETE if drain else JobState.CANCELLED
        return Result({"counts": [("to", 2)] * 12, "files": None} if drain else {}, JobStatistics())

    def cancel(self) -> None:
        self._note("cancel")
        self.state = JobState.CANCELLED

    def wait(self, timeout_s: float | None = None) -> Result:
        self._note("wait")
        return Result({}, JobStatistics())

    def page(self, *, host: str, port: int, steps: bool, state: bool) -> str:
        self._note("page", host, port, steps, state)
        return f"http://{host}:{port}/"

    @contextmanager
    def showing(self, progress: bool | None, what: str) -> Iterator[bool]:
        yield False

    def settle(self, timeout_s: float | None) -> Handle:
        self.state = JobState.COMPLETE
        return self

    def pids(self) -> dict[str, list[int]]:
        return {"count": [11, 12]}


def attached(monkeypatch: pytest.MonkeyPatch, handle: Handle | BaseException) -> None:
    """Commands that attach to a job get this handle, or this error."""

    def attach(name: str, address: str | None) -> Handle:
        if isinstance(handle, BaseException):
            raise handle
        handle.calls.append(("attach", name, address))
        return handle

    monkeypatch.setattr(on_cluster, "attach", attach)
    monkeypatch.setattr(on_cluster, "states_of_jobs", lambda address: {"wordcount": attach("wordcount", address).state, "silent": None})
