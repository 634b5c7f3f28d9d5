"""One replica's ends of its channels: cases in which former copies of flow control differed."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.plane.credits import Grant
from rayad.actors.plane.protocol import Kind, unpack_credit
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.snapshots.barrier import Barrier
from tests.simulation.in_flight import check_in_flight

T0 = rd.Timestamp(0)


def words(**config: Any) -> LocalJob:
    flow = rd.Dataflow("words")
    lines = flow.from_items([f"w{i % 7}" for i in range(200)], batch_rows=5, name="lines")
    lines.key_by(lambda w: w).vertex(Echo, name="echo").key_by(lambda w: w).count(name="count").collect("counts")
    job = flow.submit(rd.RunConfig(**config), runtime="local", seed=1, parallelism=2)
    assert isinstance(job, LocalJob)
    return job


class Echo(rd.Vertex):
    """Gives what it gets."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


def host_of(job: LocalJob, name: str, replica: int = 0) -> ReplicaHost:
    return next(host for host in job.runtime.processes.hosts() if (host.core.name, host.place.replica) == (name, replica))


def test_frames_of_a_dead_sender_are_not_granted_to_its_successor() -> None:
    """Regression: on Ray a survivor, or the receiver of a new replica, could grant it later: more than the new replica had in flight."""
    job = words(window_batches=1)
    host = host_of(job, "count")
    (edge,) = (edge for edge in job.plan.edges if edge.target == host.place.stage.id)
    gone, stays = 0, 1
    host.core.done_tokens.extend([(edge.id, gone, 10), (edge.id, stays, 20)])
    host.place.ends.forget_senders({(edge.source, gone)})
    host.place.ends.grant(0.0)
    ways = [(way, frame) for way, frames in job.runtime.processes.bus.ways.items() for frame in frames if frame.kind == Kind.CREDIT]
    assert [(way, Grant(*unpack_credit(frame.payload)[:2])) for way, frame in ways] == [(("w0", "w1"), Grant(1, 20))]
    assert host.core.outputs.counters.received_bytes[edge.id] == 20


def test_frames_in_flight_are_bounded_by_bytes_in_the_local_runtime_too() -> None:
    job = words(window_bytes=1)
    most = 0
    while job.step():
        check_in_flight(job)
        for host in job.runtime.processes.hosts():
            most = max([most, *(window.in_flight_batches for window in host.place.sender.windows.values())])
    assert most == 1
    assert len(job.wait()["counts"]) == 7


def test_a_lost_batch_is_reported() -> None:
    job = words()
    sender = host_of(job, "echo").place.sender
    (edge, replica), window = next(iter(sender.windows.items()))
    window.on_send(7)
    with pytest.raises(AssertionError) as caught:
        check_in_flight(job)
    told = "the sender counts Grant(batches=1, bytes=7) in flight, but there is Grant(batches=0, bytes=0)"
    assert str(caught.value) == f"{job.plan.edge_by_id[edge].name} {host_of(job, 'echo').name}->[{replica}]: {told}"


def test_a_mark_waits_on_disk_as_it_is() -> None:
    carrier = host_of(words(), "echo").place.carrier
    edge, replica = next(iter(host_of(words(), "echo").place.sender.windows))
    payload = carrier.encode(edge, replica, T0, ["a", "b"])
    data = carrier.freeze(payload, is_mark=False)
    assert carrier.freeze(carrier.thaw(memoryview(data), is_mark=False), is_mark=False) == data
    barrier = Barrier(7, 3, unaligned=True)
    assert Barrier.unpack(carrier.thaw(memoryview(carrier.freeze(barrier.pack(), is_mark=True)), is_mark=True)) == barrier
