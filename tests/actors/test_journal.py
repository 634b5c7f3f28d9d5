"""The journal of a job: what the leaders decide, in memory and in a file that is appended to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import fs

import rayad as rd
from rayad.actors.lead import job_leader, layouts, recovery_leader, snapshot_leader
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.journal import EVENTS_MOST, JobEvent, Journal, events_in
from rayad.actors.store.line_file import LINES_MOST, LineFile
from rayad.snapshots.attempts import SnapshotStatistics
from tests.patience import PATIENCE_S

LOST = Failure("'counts'[1]", "the actor died", "", None, False)


def test_what_leaders_decide_becomes_events_in_words_and_in_figures() -> None:
    clock = iter(range(100))
    journal = Journal(lambda: float(next(clock)))
    for effect in (
        recovery_leader.Start(1),  # no event
        recovery_leader.Running(("a", "b"), None),
        recovery_leader.Survived(LOST, 1, 0.5),
        recovery_leader.WholeGraph("a source has no offsets"),
        recovery_leader.Running(("a", "b"), 1.25),
        recovery_leader.Running(("a", "b"), 0.5, ("b",)),
        snapshot_leader.GiveUp(3, "counts[1] is gone", ()),
        job_leader.StopReading(),
        job_leader.End(JobState.FAILED, LOST, "twice"),
    ):
        journal.on_effect(effect)
    assert [(event.at_s, event.kind, event.what) for event in journal.events] == [
        (0.0, "running", "2 actors run"),
        (1.0, "failure", "'counts'[1]: the actor died"),
        (2.0, "recovery", "the whole graph is restarted: a source has no offsets"),
        (3.0, "recovery", "2 actors run again after 1.25 s"),
        (4.0, "move", "1 actors have left their nodes; the job stood still for 0.50 s"),
        (5.0, "snapshot given up", "attempt 3: counts[1] is gone"),
        (6.0, "stopping", "sources read no more; what is under way is finished"),
        (7.0, "end", "failed: 'counts'[1]: the actor died (twice)"),
    ]
    journal.on_snapshot(SnapshotStatistics(4, "snapshot", 0.5, 0.1, 0.2, 10, 2000, 0, None))
    journal.on_layout(layouts.RescaleReport({"a": 1, "b": 2}, {"a": 1, "b": 3}, took_s=2.0))
    snapshot, layout = journal.events[-2:]
    assert (snapshot.what, snapshot.facts["total_bytes"]) == ("snapshot 4: 2000 bytes in 0.50 s", 2000)
    assert (layout.what, layout.facts["after"]) == ("b 2 -> 3, in 2.00 s", {"a": 1, "b": 3})
    assert events_in(event.as_line() for event in journal.events) == list(journal.events)


def test_only_the_newest_events_are_in_memory() -> None:
    journal = Journal(lambda: 0.0)
    for number in range(EVENTS_MOST + 5):
        journal.note("snapshot", str(number))
    assert [journal.events[0].what, len(journal.events)] == ["5", EVENTS_MOST]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_file_of_lines_is_appended_to_by_one_run_after_the_other(tmp_path: Path, is_local: bool) -> None:
    filesystem: fs.FileSystem = fs.LocalFileSystem() if is_local else fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    path = f"{tmp_path if is_local else ''}/job/journal.jsonl"
    for run in range(2):
        journal, file = Journal(lambda: 1.0), LineFile(filesystem, path)
        journal.note("running", f"run {run}")  # before the store is known
        journal.keep(file.read(), file.append)
        journal.note("end", f"run {run}")
        assert [event.what for event in journal.events] == [f"run {n}" for n in range(run + 1) for _ in range(2)]
        file.close(PATIENCE_S)
    lines = (tmp_path / "job" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["running", "end"] * 2
    assert events_in(['{"at_s": 1', *lines[:1], "null"]) == [JobEvent(1.0, "running", "run 0")]


def test_a_store_that_takes_nothing_costs_the_lines_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "job").write_text("a file where a folder is to be")
    file = LineFile(fs.LocalFileSystem(), f"{tmp_path}/job/journal.jsonl")
    assert file.read() == []
    for number in range(3):
        file.append(str(number))
    file.close(PATIENCE_S)
    assert len(caplog.records) == 1
    assert LINES_MOST >= 1


def test_a_local_job_keeps_a_journal_of_its_life(tmp_path: Path) -> None:
    flow = rd.Dataflow("words")
    flow.input("words").key_by(lambda word: word).count(name="counts").collect("counted")
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local")
    words = job.input("words")
    words.send(["a", "b"])
    job.savepoint()
    job.rescale("counts", 2)
    words.close()
    job.wait()
    assert [event.kind for event in job.journal()] == ["running", "snapshot", "layout", "snapshot", "end"]
    assert [event.what for event in job.journal()][-1] == "complete"
