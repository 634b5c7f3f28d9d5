"""A store that takes no snapshots, and a sink whose commit hangs: the status says so at once, in one line, and the job goes on.

Regression: with a full disk, a hung store and a folder that vanished, `rayad status` said not a word.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobState
from rayad.actors.status.table import as_lines
from tests.cluster.recovering import Paced, away, by_value, kill, surviving, until, wait_for_snapshots
from tests.integrations.object_store import serving_apart
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
EPOCHS = [[epoch % 7, epoch % 5] for epoch in range(20_000)]
SINCE = r"snapshots fail since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC: \d+ in a row, the last because "


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(sys.modules[__name__]):
        yield


def endless(name: str, sink: rd.Sink | None = None) -> rd.Dataflow:
    flow = rd.Dataflow(name)
    counts = flow.source(Paced(EPOCHS, pause_s=0.02), name="ticks").key_by(lambda n: n % 5).count(name="counts")
    if sink is not None:
        counts.sink(sink, "kept")
    return flow


@contextmanager
def started(flow: rd.Dataflow, config: rd.RunConfig) -> Iterator[Any]:
    """A job that is cancelled behind the block."""
    job = flow.submit(config, parallelism=1)
    try:
        yield job
    finally:
        job.cancel()


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of its own, of 4 MB."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, timeout=60, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=60, check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Within the block nothing fits on this disk."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Within the block nothing can be written to this disk."""

    def remount(how: str) -> bool:
        return subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], capture_output=True, timeout=60, check=False).returncode == 0

    until(lambda: remount("ro"), "nobody writes at the moment")
    try:
        yield
    finally:
        assert remount("rw")


def late(job: Any) -> Any:
    return job.progress().snapshots_late


def require_told(job: Any, told: str) -> None:
    """What `rayad status`, `rayad top` and the page show: all of it, in one line."""
    assert re.fullmatch(told, str(late(job))), str(late(job))
    lines = as_lines(job.status()).splitlines()
    assert re.fullmatch(told, lines[2]), lines
    assert job.state is JobState.RUNNING


@pytest.mark.parametrize("how", ["full", *(pytest.param(how, marks=pytest.mark.soak) for how in ("read-only", "vanished"))])
def test_a_store_that_takes_no_snapshots_is_told_since_when_and_why(nothing_left: Check, tmp_path: Path, how: str) -> None:
    with disk(tmp_path / "disk") as folder, ExitStack() as stack:
        job = stack.enter_context(started(endless("late"), surviving(folder, interval_s=0.3)))
        wait_for_snapshots(folder, "late", 2)
        assert late(job) is None
        disturbed = {"full": full, "read-only": read_only, "vanished": lambda _: away(folder / "late" / "snapshots")}[how]
        why = {"full": "No space left on device", "read-only": "Read-only file system", "vanished": "Not a directory"}[how]
        began_s = time.time()
        with disturbed(folder):
            until(lambda: late(job) is not None and late(job).given_up >= 3, "three attempts have failed")
            newest = job.progress().snapshot.number
            require_told(job, rf"{SINCE}[^;]*{why}[^;]*; the newest snapshot, {newest}, is \d+\.\d s old")
            assert began_s - 1.0 <= late(job).since_s <= time.time()
            assert re.search(rf"waits for its store: \d+ snapshots in a row failed, the last because .*{why}", str(job.explain_stuck()))
        until(lambda: late(job) is None, "snapshots are taken again")
        assert job.progress().failures == 0


def test_a_store_that_hangs_is_told(nothing_left: Check) -> None:
    with serving_apart() as objects, ExitStack() as stack:
        config = rd.RunConfig(storage_path=objects.uri("jobs"), snapshots=rd.SnapshotConfig(interval_s=0.3))
        job = stack.enter_context(started(endless("hung"), config))
        until(lambda: job.progress().snapshot is not None, "a snapshot")
        os.kill(objects.pid, signal.SIGSTOP)
        try:
            until(lambda: late(job) is not None and late(job).doing, "it has taken long")
            newest = job.progress().snapshot.number
            doing = rf"snapshot {newest + 1}, which lacks the parts of '\w+'\[0\](, '\w+'\[0\])*,|publishing snapshot {newest + 1}"
            doing = rf"({SINCE}.+; )?({doing}|committing .*)"  # on a slow machine one has been given up before the next one has taken long
            require_told(job, rf"{doing} has taken \d+\.\d s so far; the newest snapshot, {newest}, is \d+\.\d s old")
        finally:
            os.kill(objects.pid, signal.SIGCONT)
        until(lambda: late(job) is None, "snapshots are taken again")


class Committing(rd.Sink, rd.SinkWriter):
    """Its commits do not return while a file exists."""

    commits = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        pass

    def stage(self) -> Any:
        return None

    def publish(self, staged: Any) -> Any:
        return None

    def commit(self, number: int, staged: Any) -> Any:
        while self.path.exists():
            time.sleep(0.01)

    def roll_back(self, number: int, first_new: int) -> None:
        assert not self.path.exists(), "a roll-back meets a commit"


def test_a_commit_that_hangs_is_told_and_a_death_is_noticed_meanwhile(nothing_left: Check, tmp_path: Path) -> None:
    """Regression: commits ran in the thread that watches: no death was noticed before they were back."""
    gate = tmp_path / "gate"
    with started(endless("held", Committing(gate)), surviving(tmp_path, interval_s=0.3)) as job:
        wait_for_snapshots(tmp_path, "held", 2)
        gate.touch()
        until(lambda: late(job) is not None and late(job).doing, "the commit has taken long")
        newest = job.progress().snapshot.number
        doing = rf"committing snapshot {newest} and deleting older ones has taken \d+\.\d s so far"
        assert re.fullmatch(rf"{doing}; the newest snapshot, {newest}, is \d+\.\d s old", str(late(job)))
        assert "waits for the coordinator, which is in commit of sink 'kept' (test_late_snapshots.py:" in str(job.explain_stuck())
        kill("VertexActor", -1)
        until(lambda: job.progress().failures == 1, "the death is noticed")
        assert any(event.kind == "failure" for event in job.journal())
        gate.unlink()
        wait_for_snapshots(tmp_path, "held", 1)
        until(lambda: late(job) is None, "snapshots are taken again")
        kill("Coordinator", -1)
        until(lambda: job.progress().failures == 2, "another coordinator goes on, and knows of what the one before it has survived")
        until(lambda: job.progress().snapshot is not None, "it takes snapshots")
        assert (job.progress().failures, job.status().failures) == (2, 2)
        gate.touch()
        until(lambda: late(job) is not None and late(job).doing, "the commit has taken long")
        began_s = time.monotonic()
        job.cancel()
        assert job.state is JobState.CANCELLED
        assert time.monotonic() - began_s < PATIENCE_S
