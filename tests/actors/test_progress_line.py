"""What the line of progress says, for statuses that are made up."""

from __future__ import annotations

import pytest

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.job_status import JobStatus, ReplicaStatus, VertexStatus
from rayad.actors.status.progress_line import ProgressLine, duration, epochs_complete, share_of, slowest
from rayad.actors.status.silent import Silent
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.dataflow.operators.bad_records import SetAside
from rayad.progress import Timestamp

RUNNING = JobState.RUNNING


def source(read: float, size: float = 100.0, *, name: str = "lines", records: int = 0, epoch: int | None = 0) -> VertexStatus:
    replica = ReplicaStatus(0, records_in=records, amounts_read=(read, size))
    return VertexStatus(name, is_start=True, replicas=(replica,), frontier=(Timestamp(epoch),) if epoch is not None else ())


def vertex(name: str, batches: int, *, busy: float | None = None, epoch: int = 0) -> VertexStatus:
    replica = ReplicaStatus(0, backlog_batches=batches, busy_share=busy)
    return VertexStatus(name, replicas=(replica,), frontier=(Timestamp(epoch),))


def status(*vertices: VertexStatus, state: JobState = RUNNING, **more: object) -> JobStatus:
    return JobStatus("wordcount", state, vertices=vertices, **more)  # type: ignore[arg-type]


def test_it_says_how_far_how_fast_and_who_is_slow() -> None:
    line = ProgressLine("wordcount")
    first = line.see(status(source(10, records=1_000), vertex("count", 0)), 1.0)
    assert (first.share, first.text) == (0.1, "1 s, 1.00k records read")
    found = line.see(status(source(50, records=41_000, epoch=3), vertex("parse", 12, busy=0.93, epoch=3), vertex("count", 3, epoch=3)), 5.0)
    assert (found.name, found.share) == ("wordcount", 0.5)
    assert (
        found.text == "5 s (about 5 s left), 10.0k records/s (41.0k read), 3 epochs complete, slowest: 'parse' (12 batches wait, 93% busy)"
    )


def test_shares_of_time_that_count_steps_are_left_out() -> None:
    line = ProgressLine("wordcount", has_clock=False).see(status(source(0), vertex("parse", 12, busy=0.93)), 1.0)
    assert line.text == "1 s, slowest: 'parse' (12 batches wait)"


def test_troubles_come_before_figures_and_stay_in_one_line() -> None:
    late = SnapshotsLate(2, None, "the disk\nis full")
    aside = (SetAside("parse", "a.py, line 3", 2, "ValueError"),)
    found = ProgressLine("wordcount").see(status(source(0), failures=1, snapshots_late=late, set_aside=aside), 2.0)
    assert found.text == "2 s, 1 failure survived, snapshots fail: 2 in a row, the last because the disk is full, 2 records set aside"


def test_a_start_says_what_it_waits_for_and_a_restart_keeps_the_share() -> None:
    line = ProgressLine("wordcount")
    starting = JobStatus("wordcount", JobState.STARTING)
    assert line.see(starting, 2.0, "starting: 1 of 3 actors have started").text == "2 s, starting: 1 of 3 actors have started"
    assert line.see(starting, 3.0).text == "3 s, starting"
    line.see(status(source(40, records=400)), 4.0)
    again = line.see(starting, 5.0, "starting: 2 of 3 actors have started")
    assert (again.share, again.text) == (0.4, "5 s, starting: 2 of 3 actors have started")


def test_a_recovery_that_reads_again_gives_no_rate_below_zero() -> None:
    line = ProgressLine("wordcount")
    line.see(status(source(50, records=500)), 1.0)
    assert line.see(status(source(20, records=200)), 2.0).text == "2 s, 200 records read"
    assert line.see(status(source(30, records=300)), 3.0).text == "3 s, 100 records/s (300 read)"


def test_the_share_is_that_of_the_source_that_is_least_far_and_unknown_where_one_cannot_tell() -> None:
    assert share_of(status(source(90), source(20, name="trips"))) == 0.2
    assert share_of(status(source(90), source(0, 0, name="endless"))) is None
    assert share_of(status(source(90), source(0, 0, name="ended", epoch=None))) == 0.9
    assert share_of(status()) is None


def test_epochs_are_complete_that_have_passed_every_vertex() -> None:
    assert epochs_complete(status(source(0, epoch=9), vertex("count", 0, epoch=4))) == 4
    waits = VertexStatus("window", frontier=(), pending=(Timestamp(2),))
    assert epochs_complete(status(source(0, epoch=9), waits)) == 2
    assert epochs_complete(status(source(0, epoch=None))) == 0


def test_nobody_is_slow_where_next_to_nothing_waits() -> None:
    assert slowest(status(source(0), vertex("count", 1))) is None
    assert slowest(status(source(0))) is None


@pytest.mark.parametrize(("seconds", "told"), [(0, "0 s"), (59.6, "1:00"), (3599.6, "1:00:00"), (360000, "100:00:00")])
def test_a_duration_is_rounded_before_it_is_divided(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_the_summary_counts_what_was_read() -> None:
    line = ProgressLine("wordcount")
    found = line.see(status(source(50, records=500), failures=2, silent=(Silent("'count'[1]", "", 3.0),)), 11.0)
    assert "'count'[1] has not answered for 3.0 s" in found.text  # the job is over when it is summed up: nobody is waited for
    assert line.summary("complete", 20.0, 1_000) == "job 'wordcount' is complete after 20 s, 1,000 records read (50/s), 2 failures survived"
    assert line.summary("complete", 20.0, None) == "job 'wordcount' is complete after 20 s, 2 failures survived"
