"""``committed=True``: what a completed snapshot holds, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.tables.table import Value
from rayad.progress import DataflowError
from rayad.snapshots.attempts import PartReport, SnapshotAttempts
from rayad.snapshots.manifest import ReplicaPart
from tests.tables.bank import Bank
from tests.tables.test_bank import balances_of, check, epoch_of


def counted(run: rd.RunConfig | None) -> LocalJob:
    flow = rd.Dataflow("shop")
    flow.input("words").key_by(lambda word: word).count(name="count").collect("counts")
    job: LocalJob = flow.submit(run, runtime="local", parallelism=2)
    return job


def test_a_read_gives_what_a_savepoint_holds(tmp_path: Path) -> None:
    job = counted(rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=None)))
    words, table, held = job.input("words"), job.table("count"), job.table("count", committed=True)
    assert held.get("tea") == Value(None, -1)
    for epoch in range(3):
        words.send(["tea"])
        words.advance_to(epoch + 1)
        assert table.get("tea", fresh=True) == Value(epoch + 1, epoch)
        if epoch == 0:
            job.savepoint()
    assert held.get("tea") == Value(1, 0)
    with pytest.raises(TimeoutError) as raised:
        held.get("tea", fresh=True, timeout_s=0.2)
    assert "epoch 2 is in no completed snapshot" in str(raised.value)
    assert "The newest one holds epoch 0 of it; job.savepoint() takes one" in str(raised.value)
    job.savepoint()
    assert held.get("tea", fresh=True) == Value(3, 2)


def test_a_job_without_snapshots_is_refused() -> None:
    job = counted(None)
    with pytest.raises(DataflowError, match="committed=True gives what a completed snapshot holds, and the job takes none"):
        job.table("count", committed=True).get("tea")
    with pytest.raises(DataflowError, match="committed"):
        job.table("count", committed="yes")  # type: ignore[arg-type]


def _attempts() -> SnapshotAttempts:
    return SnapshotAttempts([("count", 0), ("count", 1)], interval_s=None, published=0, now_s=0.0)


def _take(attempts: SnapshotAttempts, passed: tuple[int, int]) -> None:
    barrier = attempts.begin(0.0, kind="periodic")
    for replica, epoch in enumerate(passed):
        attempts.on_report(PartReport(barrier.number, ReplicaPart("count", replica, ()), passed_epoch=epoch))
    attempts.on_published(1.0)


def test_a_snapshot_holds_what_all_replicas_had_passed() -> None:
    attempts = _attempts()
    _take(attempts, (4, 2))
    assert attempts.committed == {"count": 2}
    _take(attempts, (7, -1))  # a new replica has not been told of its frontier
    assert attempts.committed == {"count": 2}


def run(seed: int, folder: Path) -> dict[str, int]:
    """Whatever was read before a loss is what the job comes to again, and no handle goes back."""
    bank = Bank(seed, folder, epochs=40)
    held = bank.tables("balances", "columns", committed=True)
    last, reads = -1, 0
    for _ in bank.run():
        try:
            found = held.scan(timeout_s=0.4)
        except TimeoutError:
            continue  # no snapshot has come since a loss
        (epoch,) = {epoch_of(table) for table in found.values()}
        assert epoch >= last
        last = max(last, epoch)
        for table in found.values():
            check(bank, epoch, balances_of(table))
        reads += epoch >= 0
    bank.job.cancel()
    return {"reads": reads, "crashes": bank.crashes, "last": last}


def test_committed_reads_of_a_bank_that_is_disturbed(tmp_path: Path) -> None:
    total: dict[str, int] = {"reads": 0, "crashes": 0, "last": 0}
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for name, count in run(seed, folder).items():
            total[name] += count
    assert total["reads"] > 12, total
    assert total["crashes"], total
