"""Bugs that the simulation of changes of layout has found."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.lead.layouts import groups_of_next_step
from rayad.actors.lead.placing import placed
from rayad.actors.local.change import LocalRescale
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.runtime import LocalRuntime
from rayad.actors.plane.protocol import Kind
from rayad.dataflow.logical_graph import PartitionKind
from tests.programs import model as m
from tests.programs.totals import first, second
from tests.simulation.changes import movable
from tests.simulation.harness import all_programs
from tests.simulation.moving import PAIRS, Later, closed
from tests.snapshots import attempts

GROUPS = 8


def submitted(flow: rd.Dataflow, folder: Path | None = None, **options: Any) -> LocalJob:
    snapshots: Any = {"storage_path": str(folder)} if folder is not None else {}
    job = flow.submit(rd.RunConfig(key_groups=GROUPS, **snapshots), runtime="local", **options)
    assert isinstance(job, LocalJob)
    return job


def test_a_notification_with_a_later_capability_moves() -> None:
    """``take`` must ask for notifications of times before their capability. It was refused, and the job recovered from that failure for
    ever."""
    flow = rd.Dataflow("later")
    flow.from_epochs(PAIRS, batch_rows=1).key_by(first).vertex(Later, name="later").collect("out")
    wanted = [(rd.Timestamp(time.epoch + 2), record) for time, record in closed(m.epochs(PAIRS))]
    for seed in range(5):
        job = submitted(flow, seed=seed, parallelism=2)
        for replicas in (3, 1):
            for _ in range(25):
                job.step()
            job.rescale("later", replicas)
        assert m.same(job.wait()["out"], wanted)


def test_every_runtime_tells_a_vertex_that_a_change_is_over() -> None:
    """Totals kept its list of moving keys after a change. In the next change it missed a key that had left and come back."""
    flow = rd.Dataflow("back and forth")
    flow.from_epochs([[(i % 5, 1) for i in range(20)]] * 6, batch_rows=1).key_by(first).sum(second, name="sums").collect("out")
    wanted = m.collected(m.epochs([[(i % 5, 1) for i in range(20)]] * 6), first, second, sum)
    for seed in range(6):
        job = submitted(flow, seed=seed, parallelism=1)
        for replicas in (2, 1, 2, 1, 3, 1):
            for _ in range(12):
                job.step()
            job.rescale("sums", replicas)
        assert m.same(job.wait()["out"], wanted)
        assert all(getattr(core.vertex, "_leaving", None) is None for core in job.cores.values())


def test_a_retired_replica_gets_no_markers_and_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of messages were still on their way to a replica that had retired: markers of steps that took nothing from it, and barriers
    of attempts that were given up. Whatever its process is sent last arrives before it ends, or is a mark."""
    monkeypatch.setattr(LocalJob, "_made", alone)
    flow = rd.Dataflow("marks")
    flow.from_epochs(PAIRS, batch_rows=1).key_by(first).count(name="counts").collect("out")
    for seed in range(12):
        job = submitted(flow, seed=seed, parallelism=1)
        job.rescale("counts", 3)
        change = job.start_rescale({"counts": 2})
        assert isinstance(change, LocalRescale)
        processes = job.runtime.processes
        gone = next(name for name in processes.workers if name.endswith(".2"))
        while not change.is_done:
            job.step()
        assert gone not in processes.workers
        assert not [way for way in processes.bus.ways if way[1] == gone]
        assert m.same(job.wait()["out"], m.collected(m.epochs(PAIRS), first, first, len))


def alone(self: LocalJob, plan: Any, run: Any, **options: Any) -> LocalRuntime:
    """Each replica has a process of its own."""
    return LocalRuntime(self.name, plan, run, placed(plan, "vertices"), **options)


def test_an_unaligned_barrier_waits_behind_a_marker(tmp_path: Path) -> None:
    """It looked for what an old marker does not have."""
    flow = rd.Dataflow("unaligned")
    flow.from_epochs(PAIRS, batch_rows=1).key_by(first).count(name="counts").collect("out")
    for seed in range(12):
        job = submitted(flow, tmp_path / str(seed), seed=seed, parallelism=2)
        for _ in range(10):
            job.step()
        job.rescale("counts", 3)
        assert job.snapshots is not None
        attempts.begin(job, unaligned=True)
        assert m.same(job.wait()["out"], m.collected(m.epochs(PAIRS), first, first, len))
        assert job.runtime.job.failures == 0


def test_a_void_snapshot_does_not_count_as_saved_input(tmp_path: Path) -> None:
    """The job resumed from an older snapshot than the void one, but the driver had dropped frames of a live input that the older snapshot
    had not consumed."""
    flow = rd.Dataflow("void")
    flow.input("pairs").key_by(first).count(name="counts").collect("out")
    snapshots = rd.SnapshotConfig(keep=3)
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path), snapshots=snapshots), runtime="local", seed=3)
    assert isinstance(job, LocalJob)
    pairs = job.input("pairs")
    taken = []
    for epoch, records in enumerate(PAIRS[:3]):
        pairs.send(records)
        pairs.advance_to(epoch + 1)
        while job.step():
            pass
        assert job.snapshots is not None
        attempts.begin(job)
        while job.step():
            pass
        taken.append(job.snapshots.store.manifest)
    newest = taken[-1]
    assert newest is not None
    os.remove(f"{job.snapshots.store.store.folder}/{newest.parts[0].rest.path}")  # type: ignore[union-attr]
    job.crash()
    while not attempts.may_begin(job):
        job.step()
    barrier = attempts.begin(job)
    while job.snapshots.leader.snapshots.published < barrier.slot or job.snapshots.leader.committing is not None:
        job.step()
    log = next(iter(job.runtime.processes.logs.values()))
    assert log.first <= 4, "the last two frames are in the void snapshot alone"
    job.crash()
    for epoch, records in enumerate(PAIRS[3:], start=3):
        pairs.send(records)
        pairs.advance_to(epoch + 1)
    pairs.close()
    assert m.same(job.wait()["out"], m.collected(m.epochs(PAIRS), first, first, len))


def test_a_step_that_took_almost_no_time_is_followed_by_a_finite_one() -> None:
    """The number of key-groups of the next step was an infinite float."""
    assert groups_of_next_step([(4, 1e-312), (8, 2e-312)]) == 32


@pytest.mark.parametrize("replicas", [2, 3])
def test_new_replicas_do_not_send_forward(replicas: int) -> None:
    """A new replica sent records forward to the replica of its own number before it had the new layout: that replica does not exist."""
    flow = rd.Dataflow("newcomers")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        return inner.filter(lambda n: n > 0).map(lambda n: n - 1), inner

    flow.from_epochs([[5, 3], [4]], batch_rows=1).iterate(body, name="one").iterate(body, name="two").collect("out")
    counts = submitted(flow, parallelism=1)
    wanted = counts.wait()["out"]
    movable = [stage.name for stage in counts.plan.stages if stage.inputs]
    for seed in range(20):
        job = submitted(flow, seed=seed, parallelism=1)
        for _ in range(4):
            job.step()
        job.rescale(movable[seed % len(movable)], replicas)
        assert m.same(job.wait()["out"], wanted)


def test_a_replica_that_retires_leaves_no_broadcast_batches_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broadcast batches that waited in the queue of a replica that retired were never consumed: on Ray the job would never have ended."""
    monkeypatch.setattr(LocalJob, "_made", alone)
    program = all_programs()["session-rows"]
    unread = 0
    for seed in range(10):
        job = submitted(program.flow(), seed=seed, parallelism=3)
        for _ in range(20 + 5 * seed):
            job.step()
        change = job.start_rescale(dict.fromkeys(movable(job.plan), 1))
        assert change is not None
        processes, edges = job.runtime.processes, job.plan.edge_by_id
        while not change.is_done:
            job.step()
            for way, frames in processes.bus.ways.items():  # to those that are about to retire
                unread += way[1][-2:] in (".1", ".2") and any(
                    frame.kind == Kind.DATA and edges[frame.channel].partition is PartitionKind.BROADCAST for frame in frames
                )
        program.verify(job.wait())
    assert unread


@pytest.mark.parametrize("seed", range(10))
def test_a_job_that_ends_within_a_change_refuses_it_and_keeps_its_results(seed: int) -> None:
    """Its results were published once more by the next wait, without what was published before; or the change could not go on."""
    flow = rd.Dataflow("short")
    flow.from_items(list(range(20)), batch_rows=1).rebalance(name="spread").map(lambda number: number).collect("out")
    job: Any = flow.submit(runtime="local", seed=seed, parallelism=2)
    refused = []
    for replicas in (3, 1, 4, 2, 3):
        with contextlib.suppress(TimeoutError):
            job.wait(timeout_s=0)
        try:
            job.rescale("spread", replicas)
        except rd.RescaleRefused as error:
            refused.append(str(error))
    assert refused
    assert all("job 'short' is " in why for why in refused)
    assert sorted(number for _, number in job.wait()["out"]) == list(range(20))
