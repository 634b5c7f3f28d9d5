"""Nothing waits for ever: with a coordinator, replica or progress actor killed or stopped, a function that hangs, many waiters."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobState
from tests.cluster.recovering import actors, by_value, surviving, until
from tests.patience import PATIENCE_S

Check = Callable[[], None]
HEARTBEAT_S = 4.0
BOUND_S = 45.0
"""The time for a heartbeat's timeout and the end of a process, on a shared machine."""
GLANCE_S = 3.0
"""The bound on answers within a second, on such a machine."""


@pytest.fixture(autouse=True)
def _pickled_by_value() -> Any:
    with by_value(sys.modules[__name__]):
        yield


class HeldSink(rd.Sink, rd.SinkWriter):
    """Keeps nothing; ``publish`` does not return while a file exists."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        pass

    def stage(self) -> Any:
        return None

    def publish(self, staged: Any) -> Any:
        while os.path.exists(self.path):
            time.sleep(0.01)


def held_by(path: Path, name: str = "held", sink: rd.Sink | None = None) -> rd.Dataflow:
    """Counts by key, behind a function that does not return while a file exists."""

    def hold(number: int) -> int:
        while os.path.exists(path):
            time.sleep(0.01)
        return number

    flow = rd.Dataflow(name)
    held = flow.input("in").map(hold, name="hold")
    counts = held.key_by(lambda number: number % 2).count(name="counts").probe("seen").collect("out")
    if sink is not None:
        counts.sink(sink, "kept")
    return flow


def timed(calls: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, Any]]:
    """Make each call in a thread of its own: gives its duration, and its result or error; calls that do not end are left out."""
    ended: dict[str, tuple[float, Any]] = {}

    def make(name: str, call: Callable[[], Any]) -> None:
        began_s = time.monotonic()
        try:
            given = call()
        except Exception as error:
            given = error
        ended[name] = (time.monotonic() - began_s, given)

    threads = [threading.Thread(target=make, args=one, daemon=True) for one in calls.items()]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + BOUND_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return ended


def handle_calls(job: Any) -> dict[str, Callable[[], Any]]:
    """Every call of a job's handle except cancel, which would end the job for the others."""
    probe, sending = job.probe("seen"), job.input("in")

    def send_for_ever() -> None:
        while True:
            sending.send([1] * 1000)

    return {
        "state": lambda: job.state,
        "progress": job.progress,
        "explain_stuck": job.explain_stuck,
        "pids": job.pids,
        "repr": lambda: repr(job),
        "frontier": probe.frontier,
        "probe.wait": lambda: probe.wait(1000),
        "probe.wait for 2 s": lambda: probe.wait(1000, timeout_s=2.0),
        "send": send_for_ever,
        "advance_to": lambda: sending.advance_to(5),
        "wait": job.wait,
        "wait for 2 s": lambda: job.wait(timeout_s=2.0),
        "result": job.result,
        "rescale": lambda: job.rescale("counts", 2),
        "configure": lambda: job.configure(batch_rows=100),
        "savepoint": job.savepoint,
        "stop": job.stop,
    }


@pytest.mark.parametrize("strike", ["kill", "suspend"])
def test_no_call_of_the_handle_waits_for_a_coordinator_that_is_gone(nothing_left: Check, tmp_path: Path, strike: str) -> None:
    """Regression: ``job.state`` blocked for ever when the coordinator was killed meanwhile; so did waiting calls, when it was stopped."""
    config = surviving(tmp_path, failures=0, interval_s=None, heartbeat_timeout_s=HEARTBEAT_S)
    job: Any = held_by(tmp_path / "none", f"gone-{strike}").submit(config)
    until(lambda: job.state is JobState.RUNNING, "the job runs")
    job.input("in").send([1])
    assert job._feed._logs == {}  # the job survives no failure, so a log would be useless
    seen: list[tuple[float, JobState]] = []
    stop_reading = threading.Event()

    def read() -> None:
        while not stop_reading.is_set():
            began_s = time.monotonic()
            state = job.state
            seen.append((time.monotonic() - began_s, state))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    until(lambda: len(seen) > 20, "the state is read")
    getattr(actors("Coordinator")[-1], strike)()
    calls = handle_calls(job)
    ended = timed(calls)
    stop_reading.set()
    reader.join(BOUND_S)
    assert not reader.is_alive()
    assert sorted(ended) == sorted(calls), f"still wait: {set(calls) - set(ended)}"
    assert {state for _, state in seen} <= {JobState.RUNNING, JobState.FAILED}
    assert job.state is JobState.FAILED
    assert max(took_s for took_s, _ in seen) < BOUND_S
    with pytest.raises(rd.RayadError, match="the coordinator actor died"):
        job.wait()
    told = {name: given for name, (_, given) in ended.items()}
    if strike == "suspend":
        for name in ("state", "progress", "explain_stuck", "repr"):
            assert ended[name][0] < GLANCE_S, (name, ended[name])
        named = (
            r"the coordinator on node [\d.]+ has not answered for \d+\.\d s: its process is stopped, or its node is gone; "
            r"after 4 s it counts as dead"
        )
        assert re.fullmatch(named, told["explain_stuck"])
        assert [one.who for one in told["progress"].silent] == ["the coordinator"]
        assert isinstance(told["wait for 2 s"], TimeoutError)
    for name in ("wait", "result", "stop", "send", "probe.wait"):
        assert isinstance(told[name], rd.RayadError), (name, told[name])
    assert isinstance(told["rescale"], rd.RescaleRefused)
    assert isinstance(told["configure"], rd.ConfigError)
    assert isinstance(told["savepoint"], rd.SnapshotError)


def test_cancel_ends_a_job_whose_coordinator_is_stopped(nothing_left: Check, tmp_path: Path) -> None:
    job = held_by(tmp_path / "none", "cancelled").submit(surviving(tmp_path, interval_s=None, input_log_bytes=1000))
    until(lambda: job.state is JobState.RUNNING, "the job runs")
    job.input("in").send(["x" * 900])
    told = r"input 'in' of job 'cancelled' was sent 9\d\d bytes since the last snapshot, .*input_log_bytes is 1000, and no snapshot is "
    with pytest.raises(rd.DataflowError, match=told):
        job.input("in").send(["x" * 900])
    actors("Coordinator")[-1].suspend()
    began_s = time.monotonic()
    job.cancel()
    assert time.monotonic() - began_s < BOUND_S
    assert job.state is JobState.CANCELLED


def test_a_coordinator_that_is_stopped_is_replaced(nothing_left: Check, tmp_path: Path) -> None:
    config = surviving(tmp_path, failures=1, heartbeat_timeout_s=HEARTBEAT_S, input_log_bytes=20_000)
    job: Any = held_by(tmp_path / "none", "replaced").submit(config)
    sending = job.input("in")
    for epoch in range(100):  # 200 KB; the driver keeps no more than its bound, and waits for snapshots
        sending.send([epoch] * 1000)
        sending.advance_to(epoch + 1)
        (log,) = job._feed._logs.values()
        assert log.bytes <= 20_000
    assert job.probe("seen").wait(99, timeout_s=PATIENCE_S)
    actors("Coordinator")[-1].suspend()
    sending.send([4])
    sending.advance_to(101)
    assert job.probe("seen").wait(100, timeout_s=PATIENCE_S)
    sending.close()
    assert dict(record for _, record in job.wait(timeout_s=PATIENCE_S)["out"]) == {0: 50_001, 1: 50_000}


@pytest.mark.usefixtures("own_actors")
@pytest.mark.parametrize("kind", ["VertexActor", "ProgressActor"])
def test_a_stopped_process_is_named_at_once_and_ends_the_job_in_time(nothing_left: Check, tmp_path: Path, kind: str) -> None:
    config = rd.RunConfig(failures=rd.FailureConfig(heartbeat_timeout_s=HEARTBEAT_S))
    job = held_by(tmp_path / "none", "stopped").submit(config)
    job.input("in").send([1])
    until(lambda: job.progress().state is JobState.RUNNING and not job.progress().silent, "the job runs")
    who = "the progress actor" if kind == "ProgressActor" else r"'\w+'\[0\]"
    actors(kind)[-1].suspend()
    ended = timed({"progress": job.progress, "explain_stuck": job.explain_stuck})
    assert max(took_s for took_s, _ in ended.values()) < GLANCE_S
    told = rf"{who}( on node [\d.]+)? has not answered for \d+\.\d s: its process is stopped, or its node is gone"
    assert re.search(told, ended["explain_stuck"][1]), ended
    first = ended["explain_stuck"][1].splitlines()[0]
    first_told = rf"The job waits for {who}( on node [\d.]+)?, (at \(\d+\), )?which has not answered for \d+\.\d s: its process is stopped"
    assert re.match(first_told, first), first
    assert [re.fullmatch(told, str(one)) is not None for one in ended["progress"][1].silent] == [True]
    assert {stage.name for stage in ended["progress"][1].stages} >= {"counts"}
    with pytest.raises(rd.RayadError, match=rf"{who}.* has not answered for 4 s"):
        job.wait(timeout_s=BOUND_S)


@pytest.mark.usefixtures("own_actors")
def test_a_function_that_takes_long_is_named_and_stops_nothing_else(nothing_left: Check, tmp_path: Path) -> None:
    """Regression: progress() took 10 s and showed zeros, and explain_stuck() named nothing. Four waiting probes ended the job, because they
    used up the threads that heartbeats need. A change of layout that had to wait for the function failed the job."""
    gate = tmp_path / "gate"
    config = rd.RunConfig(failures=rd.FailureConfig(heartbeat_timeout_s=3.0))
    publishing = tmp_path / "publishing"
    job = held_by(gate, "slow", HeldSink(publishing)).submit(config)
    sending = job.input("in")
    sending.send([1, 2])
    sending.advance_to(1)
    assert job.probe("seen").wait(0, timeout_s=PATIENCE_S)
    gate.touch()
    sending.send([3])
    sending.advance_to(2)
    waits = {f"probe {number}": lambda: job.probe("seen").wait(1, timeout_s=BOUND_S) for number in range(20)}
    probes = threading.Thread(target=lambda: held.update(timed(waits)), daemon=True)
    held: dict[str, Any] = {}
    probes.start()
    until(lambda: "hold" in job.explain_stuck(), "the function is seen", 10)
    time.sleep(4.0)  # longer than the heartbeat's timeout
    ended = timed({"progress": job.progress, "explain_stuck": job.explain_stuck, "state": lambda: job.state})
    assert max(took_s for took_s, _ in ended.values()) < GLANCE_S
    progress, told = ended["progress"][1], ended["explain_stuck"][1]
    assert ended["state"][1] is JobState.RUNNING
    named = r"^'in'\[0\] on node [\d.]+ is busy with what follows the input at \(1\) for \d+\.\d s, in hold \(\S+test_hangs.py:\d+\)$"
    assert re.search(named, told, re.MULTILINE), told
    first = r"The job waits for 'in'\[0\] on node [\d.]+, which is in what follows the input at \(1\) for \d+\.\d s, in hold \(\S+:\d+\)\."
    assert re.fullmatch(first, told.splitlines()[0]), told
    assert [one.who for one in progress.silent] == ["'in'[0]"]
    assert progress.silent[0].activity is not None
    assert progress.silent[0].activity.for_s > 4.0
    assert {stage.name: stage.records_in for stage in progress.stages}["in"] == 3
    with pytest.raises(rd.RescaleRefused, match=r"the layout stays .*'in'\[0\] is in what follows the input at \(1\) for .* s, in hold"):
        job.rescale("counts", 2, timeout_s=5.0)

    def send_until_it_is_full() -> None:
        while True:
            sending.send([5] * 1000, timeout_s=0.5)

    with pytest.raises(TimeoutError, match=r"input 'in' of job 'slow' has taken nothing for 0.5 s: nothing was sent, send it again"):
        send_until_it_is_full()
    gate.unlink()
    probes.join(BOUND_S)
    assert [done for _, done in held.values()] == [True] * 20
    assert job.rescale("counts", 2).after["counts"] == 2
    publishing.touch()
    sending.close()
    until(lambda: "publish of sink" in job.explain_stuck(), "the sink that hangs is seen", BOUND_S)
    told, progress = job.explain_stuck(), job.progress()
    named = r"^the coordinator is busy with publish of sink 'kept' \(test_hangs.py:\d+\) for \d+\.\d s, in publish \(\S+test_hangs.py:\d+\)"
    assert re.search(named, told, re.MULTILINE), told
    assert "the coordinator" in [one.who for one in progress.silent]
    publishing.unlink()
    fives = {key: count for _, (key, count) in job.wait(timeout_s=PATIENCE_S)["out"]}
    assert fives[0] == 1
    assert fives[1] % 1000 == 2


@pytest.mark.usefixtures("own_actors")
@pytest.mark.parametrize("survives", [False, True])
def test_a_function_that_never_returns_ends_its_replica_where_asked_for(nothing_left: Check, tmp_path: Path, survives: bool) -> None:
    marker = tmp_path / "has hung once"

    def hang(number: int) -> int:
        if not marker.exists():
            marker.touch()
            time.sleep(1e6)
        return number

    flow = rd.Dataflow("hung")
    flow.from_epochs([[1, 2, 3]]).rebalance().map(hang, name="hang").key_by(lambda number: number % 2).count().collect("out")
    config = surviving(tmp_path, failures=1 if survives else 0, survive_errors=survives or None, activation_timeout_s=2.0)
    job = flow.submit(config)
    if survives:
        result = job.wait(timeout_s=PATIENCE_S)
        assert sorted(record for _, record in result["out"]) == [(0, 1), (1, 2)]
        assert result.statistics.failures == 1
        return
    with pytest.raises(rd.DataflowError, match=r"is in on_recv at \(0\) for [2-9]\.\d s, in hang \(.*test_hangs.py:\d+\): ") as caught:
        job.wait(timeout_s=PATIENCE_S)
    assert "RunConfig.activation_timeout_s is 2" in str(caught.value)
    assert "time.sleep(1e6)" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("detached", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["of the driver", "detached"])
def test_waiting_until_an_epoch_is_saved_ends_in_time_while_the_job_is_away_and_others_send(
    nothing_left: Check, tmp_path: Path, detached: bool
) -> None:
    """Regression: it waited until another thread's send had the job again, and for the successor of a coordinator, however long."""
    config = surviving(tmp_path, failures=3, heartbeat_timeout_s=60.0)
    job: Any = held_by(tmp_path / "none", f"saved-{detached}").submit(config, detached=detached)
    sending = job.input("in")
    sending.send([1])
    sending.advance_to(1)
    assert job.probe("seen").wait(0, timeout_s=PATIENCE_S)
    coordinator = actors("Coordinator")[-1]
    coordinator.suspend()
    for replica in actors("VertexActor"):
        replica.kill()
    sender = threading.Thread(target=lambda: [sending.send([2]) for _ in range(10)], daemon=True)
    sender.start()
    sender.join(2.0)
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=rf"epoch 0 of input 'in' of job 'saved-{detached}' is in no complete snapshot after 3 s; "):
        sending.wait_saved(0, timeout_s=3.0)
    assert time.monotonic() - began_s < 3.0 + GLANCE_S
    coordinator.resume()
    sending.wait_saved(0, timeout_s=PATIENCE_S)
    sender.join(PATIENCE_S)
    sending.close()
    assert dict(record for _, record in job.wait(timeout_s=PATIENCE_S)["out"]) == {0: 10, 1: 1}
