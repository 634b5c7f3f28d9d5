"""Recovery on real Ray: actors and drivers are killed, stores fail, user code raises; results are those of the model, and nothing stays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import rayad as rd
from rayad.actors.job import JobState
from tests.cluster import recovering
from tests.cluster.recovering import Paced, actors, by_value, is_dead, kill, snapshots_in, surviving, until, wait_for_snapshots
from tests.integrations.outputs import is_output
from tests.patience import PATIENCE_S
from tests.programs import loops, model

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
EPOCHS = [[(31 * epoch + 7 * i) % 23 for i in range(20)] for epoch in range(250)]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(model, loops, sys.modules[__name__]):
        yield


def counting(name: str, *, pause_s: float = 0.01, epochs: list[list[int]] = EPOCHS) -> rd.Dataflow:
    flow = rd.Dataflow(name)
    counts = flow.source(Paced(epochs, pause_s=pause_s), name="ticks").key_by(lambda r: r % 5).count(name="counts")
    counts.probe("counted")
    counts.collect("counts")
    return flow


def counted(epochs: list[list[int]] = EPOCHS) -> model.Timed:
    return model.collected(model.epochs(epochs), lambda r: r % 5, lambda r: r, len)


def require_counts(result: Any) -> None:
    model.require_same(result["counts"], counted(), "counts")


@pytest.mark.parametrize("kind", ["VertexActor", "ProgressActor", "Coordinator"])
def test_a_killed_actor_is_survived(nothing_left: Check, tmp_path: Path, kind: str) -> None:
    """With a store this needs no further word: ``max_failures`` is not given."""
    job = counting("survivor").submit(surviving(tmp_path, failures=None), parallelism=1)
    wait_for_snapshots(tmp_path, "survivor", 2)
    pid = kill(kind, -1)
    assert job.probe("counted").frontier(), "asked at once, it waits until the job can answer"
    wait_for_snapshots(tmp_path, "survivor", 1)  # the job recovers while nothing waits for it
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert is_dead(pid)
    assert job.state is JobState.COMPLETE
    assert result.statistics.failures == 1
    assert job._coordinators_lost == (kind == "Coordinator")
    assert len(result.statistics.snapshots) > 1


@pytest.mark.soak
def test_several_kills_in_a_row_also_while_recovering(nothing_left: Check, tmp_path: Path) -> None:
    job = counting("unlucky").submit(surviving(tmp_path, failures=8), parallelism=1)
    wait_for_snapshots(tmp_path, "unlucky", 1)
    kill("VertexActor")
    time.sleep(0.3)  # the survivors have been released, the new replica is starting
    kill("ProgressActor")
    wait_for_snapshots(tmp_path, "unlucky", 1)
    for each in actors("VertexActor"):
        each.kill()
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert 2 <= result.statistics.failures <= 4


@pytest.mark.soak
def test_coordinators_that_die_again_and_again(nothing_left: Check, tmp_path: Path) -> None:
    """Each dies as soon as its process exists: before it is ready, and while the handle is not used."""
    job = counting("headless").submit(surviving(tmp_path, failures=4), parallelism=1)
    wait_for_snapshots(tmp_path, "headless", 2)
    for _ in range(3):
        until(lambda: actors("Coordinator"), "a coordinator")
        kill("Coordinator", -1)
    wait_for_snapshots(tmp_path, "headless", 1)
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert job._coordinators_lost == 3
    assert result.statistics.failures == 3


def test_the_run_after_a_killed_driver_resumes(nothing_left: Check, tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {os.getcwd()!r})
        from pathlib import Path
        import cloudpickle, ray
        from tests.cluster import recovering, test_recovery
        from tests.programs import model
        for module in (recovering, test_recovery, model):
            cloudpickle.register_pickle_by_value(module)
        ray.init(address={recovering.address()!r}, logging_level="ERROR", log_to_driver=False)
        test_recovery.counting("orphan").run(recovering.surviving(Path({str(tmp_path)!r})), parallelism=1)
        """
    )
    driver = subprocess.Popen([sys.executable, "-c", script])
    try:
        wait_for_snapshots(tmp_path, "orphan", 3)
        before = {p.pid for kind in ("VertexActor", "ProgressActor", "Coordinator") for p in actors(kind)}
        assert len(before) == 4
    finally:
        driver.kill()
        driver.wait(10)
    # At once: the actors of the previous run may not have ended yet.
    result = counting("orphan").run(surviving(tmp_path, resume="latest"), parallelism=1, timeout_s=PATIENCE_S)
    require_counts(result)
    until(lambda: all(is_dead(pid) for pid in before), "the actors of the killed driver are gone")


class Raising(rd.Vertex):
    """Sends records on, and raises at an epoch: always, or only while ``marker`` does not exist."""

    def __init__(self, at: int, marker: Path | None) -> None:
        self.at = at
        self.marker = marker

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if time.epoch == self.at and (self.marker is None or not self.marker.exists()):
            if self.marker is not None:
                self.marker.touch()
            raise ValueError(f"epoch {self.at} is cursed")
        self.send_by(0, batch, time)


def raising(name: str, marker: Path | None) -> rd.Dataflow:
    flow = rd.Dataflow(name)
    stream = flow.source(Paced(EPOCHS[:60], pause_s=0.01), name="ticks").vertex(lambda: Raising(40, marker), name="strict")
    stream.key_by(lambda r: r % 5).count(name="counts").collect("counts")
    return flow


@pytest.mark.soak
def test_an_exception_that_does_not_come_again_is_survived(nothing_left: Check, tmp_path: Path) -> None:
    result = raising("once", tmp_path / "raised").run(
        surviving(tmp_path, failures=1, survive_errors=True), parallelism=1, timeout_s=PATIENCE_S
    )
    model.require_same(result["counts"], counted(EPOCHS[:60]), "counts")
    assert result.statistics.failures == 1


@pytest.mark.soak
def test_an_exception_that_comes_again_and_again_ends_the_job_early(nothing_left: Check, tmp_path: Path) -> None:
    with pytest.raises(rd.DataflowError) as caught:
        raising("always", None).run(surviving(tmp_path, failures=9, survive_errors=True), parallelism=1, timeout_s=PATIENCE_S)
    told = str(caught.value)
    assert re.search(r"'strict'\[0\] \(test_recovery\.py:\d+\) failed in on_recv .*at \(40\): ValueError: epoch 40 is cursed", told)
    assert any("the same error came back after each of 2 restarts" in note for note in caught.value.__notes__)


class Shy(rd.Vertex):
    """Cannot give its state while ``marker`` exists."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)

    def checkpoint(self) -> Any:
        if self.marker.exists():
            raise RuntimeError("not now")
        return super().checkpoint()


@pytest.mark.soak
def test_a_checkpoint_that_raises_costs_the_snapshot_and_no_more(nothing_left: Check, tmp_path: Path) -> None:
    marker = tmp_path / "is shy"
    marker.touch()
    flow = rd.Dataflow("shy")
    stream = flow.source(Paced(EPOCHS), name="ticks").vertex(lambda: Shy(marker), name="shy")
    stream.key_by(lambda r: r % 5).count(name="counts").probe("seen").collect("counts")
    job = flow.submit(surviving(tmp_path), parallelism=1)
    assert job.probe("seen").wait(5, timeout_s=PATIENCE_S)
    with pytest.raises(rd.SnapshotError, match=r"not taken: 'shy'\[0\]: its state could not be taken: RuntimeError: not now"):
        job.savepoint()
    assert snapshots_in(tmp_path, "shy") == [1]  # only that of the run's beginning
    marker.unlink()
    wait_for_snapshots(tmp_path, "shy", 1)
    kill("VertexActor", -1)
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert result.statistics.failures == 1


@pytest.mark.soak
def test_a_cancelled_job_resumes_from_its_savepoint(nothing_left: Check, tmp_path: Path) -> None:
    flow = counting("paused")
    job = flow.submit(surviving(tmp_path, interval_s=None), parallelism=1)
    until(lambda: job.progress().active, "the job runs")
    path = job.savepoint()
    job.cancel()
    assert Path(path, "manifest.json").is_file()
    result = counting("paused").run(surviving(tmp_path, interval_s=None, resume=path), parallelism=1, timeout_s=PATIENCE_S)
    require_counts(result)
    with pytest.raises(rd.SnapshotError, match="paused"):
        counting("paused").run(surviving(tmp_path, resume=str(tmp_path / "paused" / "snapshots" / "000000000999")), timeout_s=PATIENCE_S)


@pytest.mark.usefixtures("own_actors")
def test_live_input_is_replayed_exactly_also_after_it_was_closed(nothing_left: Check, tmp_path: Path) -> None:
    flow = rd.Dataflow("live")
    counts = flow.input("numbers").map_batches(lambda batch: (time.sleep(0.004), batch)[1]).key_by(lambda r: r % 5).count(name="counts")
    counts.probe("seen").collect("counts")
    job = flow.submit(surviving(tmp_path), parallelism=1)
    numbers = job.input("numbers")
    for epoch, records in enumerate(EPOCHS):
        numbers.advance_to(epoch)
        numbers.send(records)
        if epoch == 100:
            wait_for_snapshots(tmp_path, "live", 1)
            kill("VertexActor", 0)
        if epoch == 200:
            kill("VertexActor", 1)
    numbers.close()
    kill("VertexActor", 0)
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert result.statistics.failures == 3


@pytest.mark.soak
def test_a_changed_program_resumes_a_live_input_at_the_savepoint(nothing_left: Check, tmp_path: Path) -> None:
    def flow(name: str) -> rd.Dataflow:
        flow = rd.Dataflow("feed")
        flow.input("numbers").key_by(lambda r: r % 5).count(name=name).probe("seen").collect("counts")
        return flow

    def feed(numbers: Any, epochs: range) -> None:
        for epoch in epochs:
            numbers.advance_to(epoch)
            numbers.send(EPOCHS[epoch])

    job = flow("counts").submit(surviving(tmp_path, interval_s=None), parallelism=1)
    numbers = job.input("numbers")
    feed(numbers, range(30))
    assert job.probe("seen").wait(20, timeout_s=PATIENCE_S)
    path = job.savepoint()
    feed(numbers, range(30, 40))  # in no snapshot
    job.cancel()
    kept, waiting = rd.read_state(path, "counts", trust=True), rd.read_state(path, "counts", state="pending", trust=True)
    again = flow("tallies").submit(surviving(tmp_path, resume=path), parallelism=1, map_state={"counts": "tallies"})
    numbers = again.input("numbers")
    assert 20 < numbers.sent <= 30
    assert sum(kept["count"].to_pylist() + waiting["value"].to_pylist()) == sum(map(len, EPOCHS[: numbers.sent]))
    assert numbers.epoch == numbers.sent - 1
    feed(numbers, range(numbers.sent, 200))
    kill("VertexActor")
    feed(numbers, range(200, len(EPOCHS)))
    numbers.close()
    require_counts(again.wait(timeout_s=PATIENCE_S))


def components(name: str, epochs: list[list[tuple[int, int]]]) -> rd.Dataflow:
    """As ``loops.components``, fed slowly."""
    flow = rd.Dataflow(name)
    edges = flow.source(Paced(epochs, pause_s=0.05), name="edges").flat_map(lambda edge: [edge, edge[::-1]])
    loop = flow.loop("components")
    labels, links = loop.enter(edges.map(lambda e: (e[0], e[0]))), loop.enter(edges)
    back = loop.feedback()
    best = labels.union(back).key_by(lambda r: r[0]).min(lambda r: r[1], name="best")
    fresh = best.key_by(lambda r: r[0]).distinct(lambda r: r[1], name="fresh")
    back.connect(fresh.key_by(lambda r: r[0]).join(links.key_by(lambda r: r[0])).map(lambda r: (r[1][1][1], r[1][0][1])))
    loop.leave(fresh).collect("labels")
    return flow


def components_model(epochs: list[list[tuple[int, int]]]) -> model.Timed:
    edges = model.flat_mapped(model.epochs(epochs), lambda edge: [edge, edge[::-1]])
    links = model.entered(edges)

    def body(inner: model.Timed) -> tuple[model.Timed, model.Timed]:
        best = model.collected(inner, lambda r: r[0], lambda r: r[1], min)
        fresh = model.distinct(best, lambda r: r[0], lambda r: r[1])
        joined = model.joined(fresh, links, lambda r: r[0], lambda r: r[0])
        return model.mapped(joined, lambda r: (r[1][1][1], r[1][0][1])), fresh

    return model.iterated(model.mapped(edges, lambda e: (e[0], e[0])), body)


@pytest.mark.soak
def test_a_loop_is_recovered_in_the_middle(nothing_left: Check, tmp_path: Path) -> None:
    # A path that grows at its end with the smallest label: each epoch sends a new label round the loop, along the whole path.
    epochs = [[(36 - epoch, 35 - epoch)] for epoch in range(36)]
    job = components("circles", epochs).submit(surviving(tmp_path, interval_s=0.1, failures=4), parallelism=1)
    wait_for_snapshots(tmp_path, "circles", 2)
    kill("VertexActor", -2)
    wait_for_snapshots(tmp_path, "circles", 1)
    kill("VertexActor", -1)
    result = job.wait(timeout_s=PATIENCE_S)
    model.require_same(result["labels"], components_model(epochs), "labels")
    assert 1 <= result.statistics.failures <= 2


def test_readers_of_parquet_see_whole_snapshots_only(nothing_left: Check, tmp_path: Path) -> None:
    """One replica writes epochs in order: committed output is always the beginning of the whole, and only grows."""
    out = tmp_path / "out"
    flow = rd.Dataflow("files")
    stream = flow.source(Paced([[epoch] * 3 for epoch in range(400)]), name="ticks").map(lambda n: {"n": n})
    stream.write_parquet(str(out), name="out")
    job = flow.submit(surviving(tmp_path, failures=2), parallelism=1)
    seen: list[int] = []

    def look() -> int:
        if is_output(out):
            numbers = sorted(row["n"] for row in rd.read_committed(out).to_table().to_pylist())
            assert numbers == [n // 3 for n in range(len(numbers))]
            seen.append(len(numbers))
        return len(set(seen))

    until(lambda: look() >= 3, "three states of the output")
    kill("VertexActor")
    while job.state in (JobState.STARTING, JobState.RUNNING):
        look()
        time.sleep(0.05)
    result = job.wait(timeout_s=PATIENCE_S)
    assert result.statistics.failures == 1
    look()
    assert seen == sorted(seen)
    assert seen[-1] == 1200
    assert result["out"].rows == 1200


@pytest.mark.soak
def test_a_store_that_is_unavailable_for_a_while(nothing_left: Check, tmp_path: Path) -> None:
    """Attempts at snapshots fail meanwhile, and a recovery waits for the store."""
    job = counting("storeless", pause_s=0.03).submit(surviving(tmp_path, snapshots={"failures_max": None}), parallelism=1)
    wait_for_snapshots(tmp_path, "storeless", 1)
    store = tmp_path / "storeless" / "snapshots"
    with recovering.away(store):
        time.sleep(0.6)  # attempts fail
        assert job.state is JobState.RUNNING
    wait_for_snapshots(tmp_path, "storeless", 1)
    with recovering.away(store):
        kill("VertexActor", -1)
        time.sleep(1.0)  # the coordinator looks for the snapshot to resume from
    wait_for_snapshots(tmp_path, "storeless", 1)
    with recovering.away(store):
        kill("Coordinator", -1)
        time.sleep(2.0)  # and so does the coordinator that replaces it
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert job._coordinators_lost == 1


@pytest.mark.soak
def test_attempts_in_a_row_that_fail_end_the_job_when_that_was_asked_for(nothing_left: Check, tmp_path: Path) -> None:
    marker = tmp_path / "is shy"
    marker.touch()
    flow = rd.Dataflow("impatient")
    flow.source(Paced(EPOCHS), name="ticks").vertex(lambda: Shy(marker), name="shy").collect("out")
    with pytest.raises(rd.SnapshotError, match=r"2 attempts at a snapshot in a row were given up, the last because 'shy'\[0\]: its state"):
        flow.run(surviving(tmp_path, failures=0, snapshots={"failures_max": 2}), parallelism=1, timeout_s=PATIENCE_S)


@pytest.mark.soak
def test_the_interval_finds_itself_and_old_snapshots_go(nothing_left: Check, tmp_path: Path) -> None:
    job = counting("auto", pause_s=0.02).submit(surviving(tmp_path, interval_s="auto", snapshots={"keep": 1}), parallelism=1)
    until(lambda: job.progress().active, "the job runs")
    job.savepoint()  # from now on the cost of a snapshot is known
    wait_for_snapshots(tmp_path, "auto", 1)
    assert len(snapshots_in(tmp_path, "auto")) <= 3  # the savepoint, the newest, and for a moment the previous one
    kill("VertexActor")
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    taken = result.statistics.snapshots
    assert all(snapshot.interval_s is not None and snapshot.interval_s > 0 for snapshot in taken)
    assert result.statistics.failures == 1
    until(lambda: len(snapshots_in(tmp_path, "auto")) == 2, "the savepoint and one snapshot are kept", 5)


@pytest.mark.soak
def test_a_changed_dataflow_is_refused_by_name(nothing_left: Check, tmp_path: Path) -> None:
    epochs = EPOCHS[:5]
    counting("shape", epochs=epochs).run(surviving(tmp_path), parallelism=1, timeout_s=PATIENCE_S)
    flow = rd.Dataflow("shape")
    flow.source(Paced(epochs), name="ticks").key_by(lambda r: r % 5).count(name="tallies").collect("counts")
    with pytest.raises(rd.SnapshotError, match="vertex 'counts' was renamed to 'tallies'"):
        flow.run(surviving(tmp_path, resume="latest"), parallelism=1, timeout_s=PATIENCE_S)
    with pytest.raises(rd.SnapshotError, match="it has 256 key-groups, the job 64"):
        counting("shape", epochs=epochs).run(surviving(tmp_path, resume="latest", key_groups=64), parallelism=1, timeout_s=PATIENCE_S)
    # A complete run gives its results again.
    result = counting("shape", epochs=epochs).run(surviving(tmp_path, resume="latest"), parallelism=1, timeout_s=PATIENCE_S)
    model.require_same(result["counts"], counted(epochs), "counts")


def test_a_stopped_replica_is_replaced_and_does_no_harm_when_it_wakes_up(nothing_left: Check, tmp_path: Path) -> None:
    job = counting("zombie", pause_s=0.02).submit(surviving(tmp_path, heartbeat_timeout_s=2.0), parallelism=1)
    wait_for_snapshots(tmp_path, "zombie", 2)
    victim = actors("VertexActor")[-1]
    victim.suspend()
    try:
        until(lambda: is_dead(victim.pid) or len(actors("VertexActor")) > 2, "the stopped one was given up", 30)
    finally:
        try:
            victim.resume()
        except psutil.NoSuchProcess:
            pass  # it has been killed
    result = job.wait(timeout_s=PATIENCE_S)
    require_counts(result)
    assert result.statistics.failures == 1


def relay(name: str, until: Path) -> rd.Dataflow:
    """Three exchanges in a row, so that a failure in the middle leaves the last one alive."""
    flow = rd.Dataflow(name)
    ticks = flow.source(Paced(EPOCHS, pause_s=0.01, until=until), name="ticks")
    sums = ticks.key_by(lambda r: r % 5).count(name="middle").as_records()
    sums.key_by(lambda pair: pair[0]).max(lambda pair: pair[1], name="last").collect("maxima")
    return flow


@pytest.mark.usefixtures("own_actors")
@pytest.mark.parametrize("unaligned", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_what_is_not_upstream_of_a_failure_lives_on(nothing_left: Check, tmp_path: Path, unaligned: bool) -> None:
    snapshots = rd.SnapshotConfig(interval_s=0.3, alignment_timeout_s=0.0 if unaligned else None)
    failures = rd.FailureConfig(max_failures=5, recovery="upstream")
    config = rd.RunConfig(storage_path=str(tmp_path), snapshots=snapshots, failures=failures)
    job = relay("relay", tmp_path / "enough").submit(config, parallelism=1)
    wait_for_snapshots(tmp_path, "relay", 2)
    before = job.pids()
    for victim in ("middle", "ticks"):
        psutil.Process(job.pids()[victim][0]).kill()
        until(lambda: len(job.pids().get("middle", [])) == 1 and job.progress().state is JobState.RUNNING, "the job goes on")
        wait_for_snapshots(tmp_path, "relay", 1)
    after = job.pids()
    (tmp_path / "enough").touch()
    assert after["last"] == before["last"]
    assert after["middle"] != before["middle"]
    assert after["ticks"] != before["ticks"]
    result = job.wait(timeout_s=PATIENCE_S)
    assert result.statistics.failures == 2
    model.require_same(result["maxima"], counted(), "maxima")
