"""One replica's ends of its channels: cases in which the former two copies of flow control differed."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.network import DequeCarrier, Marker, Network
from rayad.actors.plane.credits import Grant
from rayad.progress import InternalError
from rayad.snapshots.barrier import Barrier

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


def stage_of(network: Network, name: str) -> int:
    return next(stage.id for stage in network.plan.stages if stage.name == name)


def test_frames_of_a_dead_sender_are_not_granted_to_its_successor() -> None:
    """Regression: on Ray a survivor, or the receiver of a new replica, could grant it later: more than the new replica had in flight."""
    network = words(window_batches=1).network
    at = (stage_of(network, "count"), 0)
    edge = next(edge.id for edge in network.plan.edges if edge.target == at[0])
    gone, stays = 0, 1
    ends, core = network.ends[at], network.cores[at]
    core.done_tokens.extend([(edge, gone, 10), (edge, stays, 20)])
    ends.forget_senders({(network.edges[edge].source, gone)})
    ends.grant(0.0)
    assert {channel: [grant for grant, _ in given] for channel, given in network.credits.items()} == {(edge, 1, 0): [Grant(1, 20)]}
    assert core.outputs.counters.received_bytes[edge] == 20


def test_frames_in_flight_are_bounded_by_bytes_in_the_local_runtime_too() -> None:
    job = words(window_bytes=1)
    most = 0
    while job.step():
        job.network.check_invariants()
        for ends in job.network.ends.values():
            most = max([most, *(window.in_flight_batches for window in ends.sender.windows.values())])
    assert most == 1
    assert len(job.wait()["counts"]) == 7


def test_a_lost_batch_is_reported() -> None:
    network = words().network
    sender = network.ends[stage_of(network, "echo"), 0].sender
    (edge, replica), window = next(iter(sender.windows.items()))
    window.on_send(7)
    with pytest.raises(InternalError) as caught:
        network.check_invariants()
    told = "the sender counts Grant(batches=1, bytes=7) in flight, but there is Grant(batches=0, bytes=0)"
    assert str(caught.value) == f"{network.edges[edge].name} v{stage_of(network, 'echo')}.0->[{replica}]: {told}"


def test_a_mark_waits_on_disk_as_it_is() -> None:
    network = words().network
    carrier = DequeCarrier(network, (0, 0))
    payload = carrier.encode(0, 0, T0, ["a", "b"])
    assert carrier.thaw(memoryview(carrier.freeze(payload, is_mark=False)), is_mark=False) == payload
    barrier, marker = Barrier(7, 3, unaligned=True), Marker(2, network.plan)
    assert carrier.thaw(memoryview(carrier.freeze(barrier, is_mark=True)), is_mark=True) == barrier
    again = carrier.thaw(memoryview(carrier.freeze(marker, is_mark=True)), is_mark=True)
    assert (again.step, again.plan.layout) == (2, network.plan.layout)
