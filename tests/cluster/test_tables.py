"""Tables of a job on real Ray: a bank that moves money between accounts is read while its layout changes and a replica is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.progress import DataflowError
from tests.patience import PATIENCE_S
from tests.tables.bank import ACCOUNTS, OF_COLLECTIONS, START, TOTAL, of_collections, program

pytestmark = pytest.mark.cluster


def _feed(job: Any, epoch: int) -> None:
    moves = job.input("moves")
    if epoch == 0:
        moves.send([(account, START) for account in range(ACCOUNTS)])
    else:
        left, right = epoch % ACCOUNTS, (5 * epoch + 1) % ACCOUNTS
        moves.send([(left, -epoch)])
        moves.send([(right, epoch)])
    moves.advance_to(epoch + 1)


def _total(table: Any) -> int:
    return sum(table["sum"].to_pylist())


def test_a_running_job_is_read_at_one_epoch(tmp_path: Path) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=0.5))
    job = program().submit(run, parallelism=2)
    try:
        table, both = job.table("balances"), job.tables("balances", "copies")
        _feed(job, 0)
        assert table.get(3, fresh=True, timeout_s=PATIENCE_S).value == START
        last = -1
        for epoch in range(1, 40):
            _feed(job, epoch)
            found = table.scan(fresh=epoch % 5 == 0, timeout_s=PATIENCE_S)
            at = int(found.schema.metadata[b"rayad.epoch"])
            assert at >= last
            last = at
            assert _total(found) == TOTAL
            tables = both.scan(timeout_s=PATIENCE_S)
            assert len({each.schema.metadata[b"rayad.epoch"] for each in tables.values()}) == 1
            assert _total(tables["balances"]) == TOTAL
            asked = job.sql(
                "select sum(b.sum) as total, count(*) as n from balances b join copies c on b.key = c.key", timeout_s=PATIENCE_S
            )
            assert asked.to_pylist() == [{"total": TOTAL, "n": ACCOUNTS}]
            some = f"b.key in (0, 3, {epoch % ACCOUNTS})"  # these rows alone are read, once it is known what the columns are
            by_key = f"select b.sum as one, c.sum as other from balances b join columns c on c.key = b.key where {some}"
            pairs = job.sql(by_key, timeout_s=PATIENCE_S).to_pylist()
            assert len(pairs) == len({0, 3, epoch % ACCOUNTS})
            assert all(pair["one"] == pair["other"] for pair in pairs)
            if epoch == 10:
                job.rescale("balances", 3)
            if epoch == 25:
                pids = job.pids()
                os.kill(pids["balances"][0], signal.SIGKILL)
        assert table.get(0, fresh=True, timeout_s=PATIENCE_S).epoch >= 39
    finally:
        job.cancel()
    with pytest.raises(DataflowError, match="is cancelled, and its replicas are gone"):
        table.get(0, timeout_s=PATIENCE_S)


def _balances(table: Any) -> list[int]:
    """Of a table whose values are balances, or records (account, balance)."""
    return [value["1"] if isinstance(value, dict) else value for value in table["value"].to_pylist()]


def test_collections_of_a_running_job_are_read_at_one_epoch(tmp_path: Path) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=0.5))
    job = of_collections().submit(run, parallelism=2)
    try:
        tables, arranged = job.tables(*OF_COLLECTIONS), job.table("arranged")
        _feed(job, 0)
        assert arranged.get(3, fresh=True, timeout_s=PATIENCE_S).value == [(3, START)]
        last = -1
        for epoch in range(1, 40):
            _feed(job, epoch)
            found = tables.scan(fresh=epoch % 5 == 0, timeout_s=PATIENCE_S)
            (at,) = {int(table.schema.metadata[b"rayad.epoch"]) for table in found.values()}
            assert at >= last
            last = at
            assert [sum(_balances(table)) for table in found.values()] == [TOTAL] * len(found)
            if epoch == 10:
                job.rescale("sums", 3)
            if epoch == 25:
                os.kill(job.pids()["arranged"][0], signal.SIGKILL)
        assert tables.get(0, fresh=True, timeout_s=PATIENCE_S)["arranged"].epoch >= 39
        job.savepoint()
        assert job.table("sums", committed=True).get(0, timeout_s=PATIENCE_S).epoch >= 39
    finally:
        job.cancel()


def test_a_fresh_read_names_the_input_that_is_open() -> None:
    job = program().submit(parallelism=2)
    try:
        _feed(job, 0)
        job.input("moves").send([(1, 5)])
        began_s = time.monotonic()
        with pytest.raises(TimeoutError, match=r"Input 'moves' is open in epoch 1: advance_to\(2\) or close\(\) it"):
            job.table("balances").get(1, fresh=True, timeout_s=3.0)
        assert time.monotonic() - began_s < PATIENCE_S
        assert rd.attach("bank").table("balances").get(1, timeout_s=PATIENCE_S).value == START
    finally:
        job.cancel()
