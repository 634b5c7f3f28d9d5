"""The hook that stops a process inside a commit: it stops where it is told, and nowhere else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import rayad as rd
from tests.chaos import steps
from tests.patience import PATIENCE_S

PROGRAM = """
import sys
import rayad as rd
from rayad.integrations import ParquetSink
from tests.chaos import steps

class Sink(steps.Watched, ParquetSink):
    steps = sys.argv[1] + "/steps"

flow = rd.Dataflow("job")
rows = flow.from_epochs([[{"n": 10 * epoch + i} for i in range(10)] for epoch in range(40)]).rebalance()
rows.sink(Sink(sys.argv[1] + "/out", mode="overwrite"), name="out")
config = rd.RunConfig(storage_path=sys.argv[1] + "/jobs", resume="never", snapshots=rd.SnapshotConfig(interval_s=0.001))
flow.run(config, runtime="local", seed=1)
"""


def run(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)])


@pytest.mark.parametrize("root", ["commit", "publish"])
def test_a_process_stops_at_the_step_that_it_was_told_and_goes_on_from_there(tmp_path: Path, root: str) -> None:
    before = run(tmp_path)
    assert before.wait(PATIENCE_S) == 0
    folder = tmp_path / "steps"
    drawn = {steps.draw(folder, root, random.Random(seed)) for seed in range(200)}
    functions = {step.function for step in drawn if step is not None}
    assert any(function.endswith(f".{root}") for function in functions), functions
    assert steps.draw(folder, "no such root", random.Random(1)) is None
    step = steps.draw(folder, root, random.Random(2))
    assert step is not None
    assert step.root == root
    steps.ask_to_stop(folder, step, "a")
    process = run(tmp_path)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while (found := steps.stopped(folder, "a")) is None or psutil.Process(found).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline_s, step
            assert process.poll() is None, "it ended without having come there"
        assert found == process.pid
        assert not steps.take_back(folder), "it has been obeyed"
        assert steps.stopped(folder, "b") is None
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    rows = rd.read_committed(tmp_path / "out").to_table().to_pylist()
    assert sorted(row["n"] for row in rows) == list(range(400))


def test_a_request_that_nobody_took_is_taken_back(tmp_path: Path) -> None:
    steps.ask_to_stop(tmp_path, steps.Step("commit", "nowhere", 1), "a")
    assert steps.take_back(tmp_path)
    assert not steps.take_back(tmp_path)
    assert steps.stopped(tmp_path, "a") is None
