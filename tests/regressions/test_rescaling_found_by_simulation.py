"""Bugs that the simulation of changes of layout has found."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.lead.change_protocol import Phase
from rayad.actors.lead.layouts import groups_of_next_step
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.network import Marker, Ready
from rayad.actors.local.rescaling import LocalRescale
from rayad.dataflow.logical_graph import PartitionKind
from tests.programs import model as m
from tests.programs.totals import first, second
from tests.simulation.changes import movable
from tests.simulation.harness import all_programs
from tests.simulation.moving import PAIRS, Later, closed

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


def test_a_retired_replica_gets_no_markers_and_barriers() -> None:
    """Two kinds of messages were still on the channels to a retired replica: markers of steps that took nothing from it, and barriers of
    attempts that were given up."""
    flow = rd.Dataflow("marks")
    flow.from_epochs(PAIRS, batch_rows=1).key_by(first).count(name="counts").collect("out")
    job = submitted(flow, seed=1, parallelism=1)
    job.rescale("counts", 3)
    stage = next(stage.id for stage in job.plan.stages if stage.name == "counts")
    edge = next(edge.id for edge in job.plan.edges if edge.target == stage)
    job.network.put((edge, 0, 2), None, Marker(-7, None))
    change = job.start_rescale({"counts": 2})
    assert isinstance(change, LocalRescale)
    job.network.ready.discard(("batch", (edge, 0, 2)))
    put_aside = job.network.channels[edge, 0, 2].popleft()
    while change.leader.phase is not Phase.PARTING:
        job.step()
    job.network.channels[edge, 0, 2].append(put_aside)
    job.network.ready.add(("batch", (edge, 0, 2)))
    job.network.blocked.setdefault((stage, 2), set()).add(("batch", (edge, 0, 2)))
    while not change.is_done:
        change.advance()
        for event in list(job.network.ready.items):
            if event in job.network.ready.place and event not in (("batch", (edge, 0, 2)), ("source", (0, 0))):
                job._perform(event)
    assert (edge, 0, 2) not in job.network.channels
    assert not [event for event in job.network.ready.items if event[1] == (edge, 0, 2)]
    assert m.same(job.wait()["out"], m.collected(m.epochs(PAIRS), first, first, len))


def test_a_channel_that_was_emptied_meanwhile_is_left_alone() -> None:
    """The channel's event was scheduled again when its receiver was unblocked, although there was no batch any more."""
    ready = Ready()
    ready.again({("batch", (0, 0, 0)), ("batch", (0, 0, 1)), ("source", (1, 0))}, {(0, 0, 0): deque(), (0, 0, 1): deque([1])})
    assert sorted(ready.items) == [("batch", (0, 0, 1)), ("source", (1, 0))]


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
        job.snapshots.begin(unaligned=True)
        assert m.same(job.wait()["out"], m.collected(m.epochs(PAIRS), first, first, len))
        assert job.snapshots.failures == 0


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
        job.snapshots.begin()
        while job.step():
            pass
        taken.append(job.snapshots.store.manifest)
    newest = taken[-1]
    assert newest is not None
    os.remove(f"{job.snapshots.store.store.folder}/{newest.parts[0].rest.path}")  # type: ignore[union-attr]
    job.crash()
    barrier = job.snapshots.begin()
    while job.snapshots.snapshots.published < barrier.slot or job.snapshots.committing is not None:
        job.step()
    log = next(iter(job.network.input_log.values()))
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


def test_a_replica_that_retires_leaves_no_broadcast_batches_unread() -> None:
    """Broadcast batches that waited in the queue of a replica that retired were never consumed: on Ray the job would never have ended."""
    program = all_programs()["session-rows"]
    unread = 0
    for seed in range(10):
        job = submitted(program.flow(), seed=seed, parallelism=3)
        for _ in range(20 + 5 * seed):
            job.step()
        change = job.start_rescale(dict.fromkeys(movable(job.plan), 1))
        assert change is not None
        while not change.is_done:  # broadcast batches arrive, and the replicas retire before they consume them
            change.advance()
            for event in list(job.network.ready.items):
                if event[0] == "batch" and job.network.edges[event[1][0]].partition is PartitionKind.BROADCAST:
                    unread += any(time is not None for time, _, _ in job.network.channels[event[1]])
                elif event[0] != "source" and event in job.network.ready.place:
                    job._perform(event)
        program.verify(job.wait())
    assert unread
