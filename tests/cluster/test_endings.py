"""The ends of jobs on real Ray: complete, with an error in user code, with a killed actor, cancelled. Nothing may stay behind."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import rayad as rd
from rayad.actors.job import JobState
from rayad.snapshots.store import SnapshotStore
from tests.cluster.conftest import job_processes
from tests.cluster.recovering import address, until
from tests.patience import PATIENCE_S

Check = Callable[[], None]


class Endless(rd.Source):
    """One part that never ends."""

    blocks = False

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return EndlessPart()


class EndlessPart(rd.SourcePart):
    def __init__(self) -> None:
        self.epoch = 0

    def next_batch(self) -> rd.SourceBatch:
        self.epoch += 1
        time.sleep(0.001)
        return rd.SourceBatch(self.epoch, [self.epoch])

    def offset(self) -> int:
        return self.epoch


class Raises(rd.Vertex):
    def __init__(self, where: str) -> None:
        self.where = where

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if self.where == "on_recv":
            raise ValueError(f"cannot take {batch}")
        self.notify_at(time)

    def on_notify(self, time: rd.Timestamp) -> None:
        raise ValueError("cannot go on")


class FailingSink(rd.Sink):
    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return FailingWriter()

    def publish(self, staged: Any) -> Any:
        return staged


class FailingWriter(rd.SinkWriter):
    def write(self, time: rd.Timestamp, batch: Any) -> None:
        raise OSError("disk is made of paper")

    def stage(self) -> Any:
        return None


def running_job(**options: Any) -> Any:
    flow = rd.Dataflow("endless")
    flow.source(Endless(), name="ticks").key_by(lambda r: r % 4).count(name="counts").probe("seen").inspect(lambda r: None)
    job = flow.submit(parallelism=2, **options)
    assert job.probe("seen").wait(5, timeout_s=PATIENCE_S)
    return job


@pytest.mark.parametrize("where", ["on_recv", pytest.param("on_notify", marks=pytest.mark.soak)])
def test_exception_in_a_vertex_ends_the_job_with_one_error(nothing_left: Check, where: str) -> None:
    flow = rd.Dataflow("bad")
    flow.from_items([1]).vertex(lambda: Raises(where), name="strict").collect("out")
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(timeout_s=PATIENCE_S)
    told = {
        "on_recv": "on_recv (input 0, 1 records from 1) at (0): ValueError: cannot take [1]",
        "on_notify": "on_notify at (0): ValueError: cannot go on",
    }
    expected = rf"^'strict'\[0\] \(test_endings\.py:\d+\) failed in {re.escape(told[where])}$"
    assert re.match(expected, str(caught.value))
    assert any("raise ValueError" in note for note in caught.value.__notes__)


def test_exception_in_a_function_names_the_record(nothing_left: Check) -> None:
    flow = rd.Dataflow("bad")
    flow.from_items([4, 2, 0, 1]).map(lambda x: 8 // x, name="divide").collect("out")
    with pytest.raises(rd.DataflowError, match=r"^'divide'\[0\] \(test_endings\.py:\d+\) failed at \(0\) on record 0: ZeroDivisionError"):
        flow.run(timeout_s=PATIENCE_S)


def test_exception_in_a_sink_names_the_sink(nothing_left: Check) -> None:
    flow = rd.Dataflow("bad")
    flow.from_items([1]).sink(FailingSink(), "paper")
    with pytest.raises(rd.DataflowError, match=r"sink 'paper'.*OSError: disk is made of paper"):
        flow.run(timeout_s=PATIENCE_S)


def test_unpicklable_function_is_refused_before_anything_starts(nothing_left: Check) -> None:
    import threading

    lock = threading.Lock()
    flow = rd.Dataflow("bad")
    flow.from_items([1]).map(lambda x: lock, name="locked").collect("out")
    with pytest.raises(rd.DataflowError, match=r"^'locked' \(test_endings\.py:\d+\) cannot be sent to an actor: TypeError"):
        flow.run(timeout_s=PATIENCE_S)


@pytest.mark.usefixtures("own_actors")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_result_that_cannot_be_pickled_is_told(nothing_left: Check, keeps: bool, tmp_path: Path) -> None:
    """With a store the sink and the type are known; it said "cannot pickle 'generator' object"."""
    flow = rd.Dataflow("handles")
    flow.from_items([1]).map(lambda n: (n for n in [n])).collect("out")
    with pytest.raises(rd.SnapshotError if keeps else rd.DataflowError) as caught:
        flow.run(rd.RunConfig(storage_path=str(tmp_path)) if keeps else None, timeout_s=PATIENCE_S)
    told = (
        "sink 'out' cannot keep what it has got: a builtins.generator cannot be pickled"
        if keeps
        else "'items'[0]: what its sinks have kept"
    )
    assert told in str(caught.value)
    assert "cannot pickle 'generator' object" in str(caught.value)
    assert "not handles such as files, sockets, locks or generators" in str(caught.value)


@pytest.mark.usefixtures("own_actors")
def test_unpicklable_record_is_named(nothing_left: Check) -> None:
    flow = rd.Dataflow("bad")
    flow.from_items(["a"]).map(lambda x: (x, (i for i in range(3)))).key_by(lambda r: r[0]).vertex(Pass).collect("out")
    with pytest.raises(rd.DataflowError, match=r"record 0"):
        flow.run(timeout_s=PATIENCE_S)


class Pass(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, [r[0] for r in batch], time)


@pytest.mark.usefixtures("own_actors")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("VertexActor", r"job 'endless' failed: '(ticks|counts)'\[\d\]: the actor of '(ticks|counts)'\[\d\] died"),
        ("ProgressActor", r"job 'endless' failed: the progress actor: the actor of the progress actor died"),
        ("Coordinator", r"job 'endless' failed: the coordinator: the coordinator actor died"),
    ],
)
def test_a_killed_actor_ends_the_job_with_one_clear_error(nothing_left: Check, name: str, told: str) -> None:
    job = running_job()
    victims = job_processes(kind=f"ray::{name}")
    assert victims
    victims[0].send_signal(signal.SIGKILL)
    with pytest.raises(rd.RayadError, match=told):
        job.wait(timeout_s=PATIENCE_S)
    assert job.state is JobState.FAILED


def test_cancel_ends_an_endless_job(nothing_left: Check) -> None:
    job = running_job()
    job.cancel()
    assert job.state is JobState.CANCELLED
    with pytest.raises(rd.DataflowError, match=r"^job 'endless' was cancelled: it has no results$"):
        job.wait()
    job.cancel()


def test_stop_drains_and_completes(nothing_left: Check) -> None:
    flow = rd.Dataflow("endless")
    flow.source(Endless(), name="ticks").key_by(lambda r: 0).count(name="counts").probe("seen").collect("counts")
    job = flow.submit(parallelism=1)
    assert job.probe("seen").wait(5, timeout_s=PATIENCE_S)
    result = job.stop(drain=True, timeout_s=PATIENCE_S)
    epochs = [time.epoch for time, _ in result["counts"]]
    assert epochs == sorted(epochs)
    assert epochs[0] == 1
    assert [count for _, (_, count) in result["counts"]] == list(range(1, len(epochs) + 1))


def test_wait_times_out_and_the_job_continues(nothing_left: Check) -> None:
    job = running_job()
    with pytest.raises(TimeoutError, match=r"^job 'endless' is not complete after 0.2 s; it goes on, wait\(\) again or cancel\(\)$"):
        job.wait(timeout_s=0.2)
    assert job.state is JobState.RUNNING
    progress = job.progress()
    assert {stage.name for stage in progress.stages} == {"ticks", "counts"}
    assert progress.active > 0
    job.cancel()


def test_a_module_unknown_to_workers_is_named_before_an_actor_starts(
    nothing_left: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else unpickling fails inside Ray, with 83 lines of C++ stack. Only the driver's ``sys.path`` has the module."""
    (tmp_path / "unknown_to_workers.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    flow = rd.Dataflow("unknown")
    flow.from_items([1]).map(importlib.import_module("unknown_to_workers").double, name="doubled").collect("out")
    with pytest.raises(rd.ConfigError, match=r"^'doubled' \(.*\) needs the module 'unknown_to_workers' .*which Ray's workers cannot"):
        flow.run()


@pytest.mark.usefixtures("own_actors")
def test_too_many_cpus_is_an_error_in_seconds(nothing_left: Check) -> None:
    flow = rd.Dataflow("greedy")
    flow.from_items([1]).collect("out")
    began_s = time.monotonic()
    told = r"^'greedy' with 1 replicas cannot be placed: the replica of 'items' asks for 64 CPU, which no node has: the nodes have 4 CPU"
    with pytest.raises(rd.ConfigError, match=told):
        flow.run(rd.RunConfig(cpus_per_replica=64))
    assert time.monotonic() - began_s < 10


@pytest.mark.usefixtures("own_actors")
def test_actors_that_do_not_start_are_named(nothing_left: Check) -> None:
    """Regression: while a job started, ``explain_stuck()`` said that nothing was waiting."""
    flow = rd.Dataflow("greedy")
    flow.from_items([1]).collect("out")
    job = flow.submit(rd.RunConfig(cpus_per_replica=64, autoscaling_cluster=True))
    named = r"The job waits for placement: 1 of 2 actors have started, after \d+\.\d s; waiting for 'items'\[0\]; free now: [1-4] CPU.*"
    until(lambda: re.fullmatch(named, job.explain_stuck()), "the actor is named")
    assert job.state is JobState.STARTING
    job.cancel()


@pytest.mark.parametrize(
    ("code", "told"), [("job.probe('p')", True), ("job.cancel()", False), pytest.param("job.stop()", False, marks=pytest.mark.soak)]
)
def test_a_driver_that_ends_without_waiting_says_what_is_lost(ray_cluster: None, tmp_path: Path, code: str, told: bool) -> None:
    """Regression: the work was lost without a word, and with exit code 0."""
    script = tmp_path / "job.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, ray, rayad as rd
            sys.path.insert(0, {os.getcwd()!r})
            from tests.cluster.test_endings import Endless
            ray.init(address={address()!r}, logging_level="ERROR", log_to_driver=False)
            flow = rd.Dataflow("forgotten")
            flow.source(Endless()).probe("p").collect()
            job = flow.submit()
            {code}
            """
        )
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    line = "rayad: job 'forgotten' ends with this process before it is complete: call wait() on what submit() gives, or submit("
    assert (line in ended.stderr) == told, ended.stderr


@pytest.mark.soak
def test_ctrl_c_in_a_script_leaves_nothing(tmp_path: Any) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        textwrap.dedent(
            """
            import ray, signal, sys, rayad as rd
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes inherit that it is ignored
            sys.path.insert(0, {here!r})
            from tests.cluster.test_endings import Endless
            ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
            flow = rd.Dataflow("endless")
            flow.source(Endless()).key_by(lambda r: r % 4).count().inspect(lambda r: None)
            job = flow.submit(parallelism=2)
            while job.progress().active == 0:
                pass
            print("running", flush=True)
            try:
                try:
                    job.wait()
                except BaseException:
                    job.cancel()
                    raise
            except KeyboardInterrupt:
                print("interrupted", job.state.value, flush=True)
                ray.shutdown()
            """
        ).format(here=os.getcwd())
    )
    env = {**os.environ, "RAY_ADDRESS": "local"}
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "running\n"
        tree = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted cancelled\n"
        assert child.wait(timeout=PATIENCE_S) == 0
        _, alive = psutil.wait_procs(tree, timeout=PATIENCE_S)
        assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    finally:
        with child:  # closes its pipe: else the garbage collector warns of it during a later test
            child.kill()


@pytest.mark.parametrize(
    "waits_by",
    ["flow.run(config, parallelism=2)", pytest.param("flow.submit(config, parallelism=2).wait()", marks=pytest.mark.soak)],
)
def test_sigterm_saves_the_job_and_ends_with_143(nothing_left: Check, tmp_path: Path, waits_by: str) -> None:
    """Regression: it neither drained nor saved, and afterwards a thread connected to Ray again, once in four."""
    script = tmp_path / "job.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, sys, ray, rayad as rd
            sys.path.insert(0, {os.getcwd()!r})
            from tests.cluster.test_endings import Endless
            ray.init(address={address()!r}, logging_level="ERROR", log_to_driver=False)
            flow = rd.Dataflow("ended")
            ticks = flow.source(Endless(), name="ticks").key_by(lambda r: r % 4).count(name="counts")
            ticks.map(lambda pair: os.path.exists({str(tmp_path)!r}) and open({str(tmp_path / "runs")!r}, "w").close()).collect("out")
            config = rd.RunConfig(storage_path={str(tmp_path)!r}, failures=rd.FailureConfig(max_failures=3))
            {waits_by}
            """
        )
    )
    child = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True)
    try:
        deadline_s = time.monotonic() + 90
        while not (tmp_path / "runs").exists():
            assert child.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        child.send_signal(signal.SIGTERM)
        _, told = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 143, told
        assert "Traceback" not in told
        saved = re.search(r"rayad: SIGTERM: job 'ended': is saved in (\S+); submit it again with resume='latest'", told)
        assert saved, told
        assert SnapshotStore(os.path.dirname(saved[1])).load(int(os.path.basename(saved[1]))).kind == "savepoint"
    finally:
        with child:  # closes its pipe: else the garbage collector warns of it during a later test
            child.kill()
    nothing_left()


@pytest.mark.soak
def test_a_killed_driver_takes_its_job_with_it() -> None:
    """Nobody is left to clean up: Ray ends the coordinator with its owner, and the others with the coordinator."""
    code = f"""
import sys
sys.path.insert(0, {os.getcwd()!r})
import rayad as rd, ray
from tests.cluster.test_endings import Endless
ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
flow = rd.Dataflow("endless")
flow.source(Endless()).key_by(lambda r: r % 4).count().inspect(lambda r: None)
job = flow.submit(scaling=rd.ScalingConfig(parallelism=2, placement="vertices"))
while job.progress().active == 0:
    pass
print("running", flush=True)
job.wait()
"""
    env = {**os.environ, "RAY_ADDRESS": "local"}
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    assert driver.stdout is not None
    try:
        assert driver.stdout.readline() == "running\n"
        actors = job_processes(driver.pid)
        assert len(actors) == 5
    finally:
        with driver:
            driver.kill()
    _, alive = psutil.wait_procs(actors, timeout=PATIENCE_S)
    assert not alive


AFTER_SHUTDOWN = """
import ray
from rayad.actors.cluster import ray_calls
from rayad.progress import RayadError

class Adder:
    def add(self, x, y=1):
        return x + y

ray.init(logging_level="ERROR", log_to_driver=False)
adders = ray.remote(num_cpus=0)(Adder)
adder, kept = ray_calls.create(adders, {}), ray_calls.put(3)
method = adder.add
assert ray_calls.get(ray_calls.call(method, 1, y=2)) == 3
ray.shutdown()
calls = [
    lambda: ray_calls.get(kept), lambda: ray_calls.wait([kept]), lambda: ray_calls.put(3), lambda: ray_calls.call(method, 1),
    lambda: ray_calls.create(adders, {}), lambda: ray_calls.get_actor("a", "b"), lambda: ray_calls.list_named_actors(True),
]
for call in calls:
    try:
        print("gave", call())
    except RayadError as error:
        assert str(error) == ray_calls.GONE
    assert not ray.is_initialized()
ray_calls.kill(adder)
print(ray_calls.cluster(), ray.is_initialized(), flush=True)
"""


def test_no_call_of_a_drivers_thread_starts_a_ray_after_a_shutdown(ray_cluster: None) -> None:
    """Regression: after a SIGTERM, once in four, a thread was connected to Ray again; a cluster is there that it could have joined."""
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    child = subprocess.run([sys.executable, "-c", AFTER_SHUTDOWN], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (child.stdout, child.returncode) == ("None False\n", 0), child.stderr
