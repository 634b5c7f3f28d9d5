"""Detached jobs: they outlive their driver and their keeper's process, take records from anywhere, and keep their results for a while."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import rayad as rd
from rayad.actors.cluster import names
from rayad.actors.job import Job, JobState
from tests.cluster.conftest import job_processes
from tests.cluster.until import until
from tests.patience import PATIENCE_S

Check = Callable[[], None]
SIGNED = rd.SnapshotConfig(interval_s=0.3, secret=b"what keepers write is signed")
SURVIVES = {"snapshots": SIGNED, "failures": rd.FailureConfig(max_failures=5, delay_s=0.1)}


def counting(name: str) -> rd.Dataflow:
    """Counts the words of a live input."""
    flow = rd.Dataflow(name)
    flow.input("words").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
    return flow


@contextmanager
def detached(flow: rd.Dataflow, **options: Any) -> Iterator[Job]:
    """A detached job; nobody keeps it after the block."""
    job = flow.submit(rd.RunConfig(**options), parallelism=2, detached=True)
    try:
        yield job
    finally:
        end(job.name)


def end(name: str) -> None:
    """End the keeper of a job, and with it everything, whatever state it is in."""
    for keeper in names.find(name, names.Role.KEEPER).values():
        ray.kill(keeper, no_restart=True)
    until(lambda: name not in rd.jobs(), f"{name} is gone")


def keepers() -> list[psutil.Process]:
    """The processes of keepers."""
    return job_processes(kind="ray::Keeper")


def kill_keeper() -> None:
    """SIGKILL of the only keeper, as soon as there is one; wait for the next one."""
    (process,) = until(keepers, "a process keeps the job")
    process.kill()
    until(lambda: keepers() and keepers() != [process], "another process keeps the job")


def totals(result: Any) -> dict[str, int]:
    """The last total of each word."""
    return dict(record for _, record in sorted(result["counts"]))


DRIVER = """
import sys
import rayad as rd
flow = rd.Dataflow("alone")
flow.input("words").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
survives = {"snapshots": rd.SnapshotConfig(interval_s=0.3), "failures": rd.FailureConfig(max_failures=5)}
job = flow.submit(rd.RunConfig(storage_path=sys.argv[1], **survives), parallelism=1, detached=True)
words = job.input("words")
words.send(["a", "b"])
words.advance_to(1)
print("sent", flush=True)
sys.stdin.readline()
"""


def test_a_job_outlives_its_driver_is_steered_from_others_and_gives_its_results_once(nothing_left: Check, tmp_path: Path) -> None:
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "sent\n"
        job = rd.attach("alone")
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert job.probe("counted").wait(0, timeout_s=PATIENCE_S)
    words = pickle.loads(pickle.dumps(job.input("words")))
    assert (words.epoch, words.sent) == (1, 1)
    assert Path(job.savepoint()).is_relative_to(tmp_path)
    job.rescale("counts", 3, timeout_s=PATIENCE_S)
    assert len(job.pids()["counts"]) == 3
    job.configure(batch_rows=17)
    words.send(["a"])
    words.advance_to(2)
    with pytest.raises(rd.DataflowError, match=r"cannot go back from epoch 2 to 1: epochs only grow"):
        job.input("words").advance_to(1)
    words.wait_saved(1, timeout_s=PATIENCE_S)
    assert rd.jobs() == {"alone": JobState.RUNNING}
    job.drain()
    until(lambda: rd.jobs() == {"alone": JobState.COMPLETE}, "it is complete, and kept")
    late = rd.attach("alone")
    assert late.state is JobState.COMPLETE
    assert totals(late.wait()) == {"a": 2, "b": 1}
    assert totals(job.wait(timeout_s=PATIENCE_S)) == {"a": 2, "b": 1}
    with pytest.raises(rd.DataflowError, match=r"is closed|has ended"):
        words.send(["c"])
    until(lambda: rd.jobs() == {}, "the results have been fetched")
    assert {path.name for path in (tmp_path / "alone").iterdir()} == {"snapshots", "journal.jsonl"}


def test_what_senders_were_told_is_taken_is_counted_once_when_the_keeper_dies(nothing_left: Check, tmp_path: Path) -> None:
    with detached(counting("fed"), storage_path=str(tmp_path), **SURVIVES) as job:

        def send(sender: int) -> Counter[str]:
            words, sent = rd.attach("fed").input("words"), Counter[str]()
            for number in range(60):
                batch = [f"{sender}.{number % 7}", "all"]
                words.send(batch)
                sent.update(batch)
            return sent

        with ThreadPoolExecutor(3) as pool:
            sending = [pool.submit(send, sender) for sender in range(3)]
            until(lambda: job.progress().stages[-1].records_in > 10, "records arrive")
            kill_keeper()
            sent = sum((future.result() for future in sending), Counter[str]())
        kill_keeper()  # nobody who has sent anything is there any more
        result = job.stop(timeout_s=PATIENCE_S)
        assert totals(result) == sent
        assert sent["all"] == 180


def test_a_submission_that_fails_raises_as_without_a_keeper_and_leaves_none(nothing_left: Check, tmp_path: Path) -> None:
    survives = rd.RunConfig(failures=rd.FailureConfig(max_failures=1))
    told = r"FailureConfig.max_failures is 1, but the job keeps no snapshots to resume from: give RunConfig\(storage_path=...\), or say"
    with pytest.warns(UserWarning, match="survives no failure"), pytest.raises(rd.ConfigError, match=told):
        counting("refused").submit(survives, detached=True)
    with pytest.raises(rd.ConfigError, match="ends with this process: use runtime='ray'"):
        counting("refused").submit(runtime="local", detached=True)
    with pytest.raises(rd.ConfigError, match="cannot be placed"):
        counting("refused").submit(rd.RunConfig(cpus_per_replica=99.0), detached=True)
    with pytest.raises(rd.ConfigError, match="policy"):
        counting("refused").submit(scaling=rd.ScalingConfig(policy="nobody knows this one"), detached=True)
    large = rd.Dataflow("refused")
    large.from_items([os.urandom(9 << 20)]).collect("all")
    with pytest.raises(
        rd.DataflowError, match=r"the program and the data in it are \d+ bytes; a job that outlives its driver may have 8388608"
    ):
        large.submit(detached=True)
    owned = rd.Dataflow("refused")
    owned.from_items([ray.put(1)]).collect("all")
    with pytest.raises(rd.DataflowError, match=r"reads objects in Ray's object store that this process owns"):
        owned.submit(detached=True)
    assert rd.jobs() == {}


def test_names_cancellation_and_results_that_nobody_fetches(nothing_left: Check) -> None:
    flow = rd.Dataflow("kept")
    flow.from_items(["a"]).collect("all")
    with detached(counting("named")) as job:
        for options in ({}, {"detached": True}):
            with pytest.raises(rd.DataflowError, match=r"a job named 'named' runs on this cluster already"):
                counting("named").submit(**options)
        rd.attach("named").cancel()
        assert job.state is JobState.CANCELLED
        with pytest.raises(rd.DataflowError, match="was cancelled"):
            job.wait(timeout_s=PATIENCE_S)
        flow.submit(detached=True)
        until(lambda: rd.jobs().get("kept") is JobState.COMPLETE, "it is complete, and kept")
        with detached(flow, keep_results_s=0.1) as again:  # takes the name; who has not fetched the result will not have it
            assert again.wait(timeout_s=PATIENCE_S)["all"] == [(rd.Timestamp(0), "a")]
    lost = rd.Dataflow("lost").from_items(["a"]).map(lambda _: 1 // 0)
    lost.collect("all")
    with detached(lost.flow) as failing, pytest.raises(rd.RayadError, match="ZeroDivisionError"):
        failing.wait(timeout_s=PATIENCE_S)
