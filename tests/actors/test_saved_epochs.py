"""Epochs of a live input in snapshots, waiting for them, and the note in snapshots: in the local runtime."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import SavedEpochs
from rayad.actors.lead.snapshot_leader import Begin, GiveUp, PartFailed, SnapshotWanted, Tick
from rayad.progress import ConfigError, DataflowError
from tests.actors.test_snapshot_leader import Led


def submit(path: Path, resume: str | None = None, **options: Any) -> Any:
    flow = rd.Dataflow("saved")
    flow.input("clicks").rebalance().map(lambda n: 10 * n).collect("out")
    config = rd.RunConfig(storage_path=str(path), resume=resume, **options)
    return flow.submit(config, runtime="local", parallelism=2, seed=3)


def feed(job: Any, epoch: int) -> None:
    job.input("clicks").send([epoch])
    job.input("clicks").advance_to(epoch + 1)


def test_an_epoch_is_waited_for_without_an_interval_and_is_done_in_a_job_that_resumes(tmp_path: Path) -> None:
    job = submit(tmp_path)
    live = job.input("clicks")
    assert live.saved() == SavedEpochs(0, 0)
    for epoch in range(3):
        feed(job, epoch)
        live.wait_saved(epoch)
        while job.step():  # sinks publish, then older snapshots are forgotten
            pass
        assert live.saved() == SavedEpochs(epoch + 1, epoch), "two snapshots are kept, the older one lacks the newest epoch"
    again = submit(tmp_path, "latest").input("clicks")
    assert (again.epoch, again.sent) == (3, 3)
    assert again.saved().newest == 3


def test_an_epoch_that_is_saved_takes_no_other_snapshot(tmp_path: Path) -> None:
    job = submit(tmp_path)
    feed(job, 0)
    feed(job, 1)
    job.input("clicks").wait_saved(1)
    taken = len(job.snapshots.taken)
    job.input("clicks").wait_saved(0)
    assert len(job.snapshots.taken) == taken == 1


def test_a_wait_survives_a_crash_of_all_replicas(tmp_path: Path) -> None:
    """The request for a snapshot travels behind the records, so it is sent again with them."""
    for steps in range(0, 45, 5):
        job = submit(tmp_path / str(steps), failures=rd.FailureConfig(max_failures=1))
        feed(job, 0)
        live = job.input("clicks")
        live._put(("save", 0))
        for _ in range(steps):
            job.step()
        job.crash()
        live.wait_saved(0, timeout_s=60)
        assert live.saved().newest == 1


def test_a_note_is_in_the_snapshots_that_hold_later_records(tmp_path: Path) -> None:
    job = submit(tmp_path)
    live = job.input("clicks")
    assert live.note is None
    feed(job, 0)
    live.wait_saved(0)
    live.keep_note("query 7")
    assert live.note == "query 7"
    assert submit(tmp_path, "latest").input("clicks").note is None

    job = submit(tmp_path, "latest")
    job.input("clicks").keep_note("query 8")
    feed(job, 1)
    job.input("clicks").wait_saved(1)
    assert submit(tmp_path, "latest").input("clicks").note == "query 8"


def test_a_closed_input_has_saved_everything(tmp_path: Path) -> None:
    job = submit(tmp_path)
    feed(job, 0)
    live = job.input("clicks")
    live.close()
    live.wait_saved(5)
    assert live.saved().newest == math.inf
    assert [record for _, record in job.wait()["out"]] == [0]


def test_invalid_waits_are_refused(tmp_path: Path) -> None:
    flow = rd.Dataflow("unsaved")
    flow.input("clicks").collect("out")
    live = flow.submit(runtime="local").input("clicks")
    live.advance_to(1)
    told = "input 'clicks' of job 'unsaved': the job keeps no snapshots, so nothing is saved; give RunConfig(storage_path=...)"
    for ask in (lambda: live.wait_saved(0), live.saved):
        with pytest.raises(ConfigError) as refused:
            ask()
        assert str(refused.value) == told
    early = submit(tmp_path).input("clicks")
    with pytest.raises(DataflowError) as too_early:
        early.wait_saved(0)
    assert str(too_early.value) == "wait_saved(0) of input 'clicks': it is in epoch 0, of which more may come; advance_to(1) first"
    with pytest.raises(DataflowError, match=r"keep_note of input 'clicks' was given 7: it takes a text"):
        early.keep_note(7)  # type: ignore[arg-type]


def test_a_wait_that_takes_too_long_raises(tmp_path: Path) -> None:
    job = submit(tmp_path)
    feed(job, 0)
    with pytest.raises(TimeoutError, match=r"epoch 0 of input 'clicks' of job 'saved' is in no complete snapshot after 1e-09 s; the job"):
        job.input("clicks").wait_saved(0, timeout_s=1e-9)
    job.input("clicks").wait_saved(0)


def test_a_wanted_snapshot_begins_without_an_interval_and_is_not_repeated_at_once() -> None:
    led = Led(interval_s=None)
    assert led.tell(Tick(), 100) == []
    assert led.tell(SnapshotWanted("numbers", 0)) == []
    assert led.leader.due_in_s(led.now_s) == 0
    (begun,) = led.tell(Tick())
    assert isinstance(begun, Begin)
    (given_up,) = led.tell(PartFailed(led.attempt(), "a full disk"))
    assert isinstance(given_up, GiveUp)
    assert led.tell(Tick(), 0.5) == [], "it was begun half a second ago, and failed"
    assert led.leader.due_in_s(led.now_s) == 0.5
    (again,) = led.tell(Tick(), 0.5)
    assert isinstance(again, Begin)
