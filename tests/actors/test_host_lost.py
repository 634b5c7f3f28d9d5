"""Lost connections between hosts: between two live replicas, lost for good, and that of the driver."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import replace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.plane.batch_codec import encode_batch
from rayad.actors.plane.plane import Address, Plane
from rayad.actors.plane.protocol import Kind, driver_name, pack_number
from rayad.actors.worker import lost_peers
from tests.actors.hosts import SECRET, Hosts, start_hosts

_MET = threading.Event()
_MAY_GO_ON = threading.Event()


class Meeting(rd.Vertex):
    """Signals the first batch, and waits for the test."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        _MET.set()
        assert _MAY_GO_ON.wait(20)
        self.send_by(0, batch, time)


@pytest.fixture(autouse=True)
def _closed() -> None:
    _MET.clear()
    _MAY_GO_ON.clear()


def counting(epochs: int = 200) -> rd.Dataflow:
    flow = rd.Dataflow("counting")
    numbers = flow.from_epochs([list(range(10)) for _ in range(epochs)], name="numbers").vertex(Meeting, name="meeting")
    numbers.key_by(lambda n: n % 5).count(name="counts").collect("counts")
    return flow


def between(hosts: Hosts, stage: str, other: str) -> tuple[Plane, str]:
    """The plane of a stage's first replica, and the name of another's."""
    return hosts.process(stage).plane, hosts.process(other).worker.name


def test_a_single_closed_connection_between_two_replicas_costs_nothing() -> None:
    hosts = start_hosts(counting(), unix_sockets=False)
    assert _MET.wait(20)
    plane, peer = between(hosts, "meeting", "counts")
    link = plane._peers[peer].link
    assert link is not None
    link.sock.shutdown(socket.SHUT_RDWR)
    _MAY_GO_ON.set()
    hosts.join()
    assert sorted(hosts.result("counts"))[-5:] == [(rd.Timestamp(199), (key, 400)) for key in range(5)]
    assert next(one for one in plane.statistics().peers if one.peer == peer).resumed == 1


def test_a_connection_that_is_lost_for_good_ends_the_replica_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it hung for ever, because only the connection with the progress actor was watched, and frames to lost peers were
    dropped."""
    monkeypatch.setattr(lost_peers, "LOST_S", 0.05)
    hosts = start_hosts(counting(), unix_sockets=False, failures=rd.FailureConfig(heartbeat_timeout_s=0.5))
    assert _MET.wait(20)
    plane, peer = between(hosts, "meeting", "counts")
    state = plane._peers[peer]
    link = state.link
    assert link is not None
    for one in (state, hosts.process("counts").plane._peers[plane.name]):
        if one.address is not None:
            with socket.create_server(("127.0.0.1", 0)) as closed:
                one.address = replace(one.address, port=closed.getsockname()[1])
    link.sock.shutdown(socket.SHUT_RDWR)
    _MAY_GO_ON.set()
    with pytest.raises(ConnectionError) as caught:
        hosts.join()
    lost = [str(error) for error in hosts.errors.values() if "lost its connection to '" in str(error)]
    assert lost, hosts.errors
    assert re.match(r"'(meeting|counts)'\[0\] lost its connection to '(counts|meeting)'\[0\]: ", lost[0])
    assert isinstance(caught.value, ConnectionError)


def connect(address: Address, name: str, stage: int) -> Plane:
    """A driver's plane, like that of a process that has restarted."""
    plane = Plane(name=driver_name(stage), job="test", incarnation=1, secret=SECRET)
    plane.connect(name, address)
    return plane


def test_what_a_driver_sends_again_to_the_same_incarnation_is_counted_once() -> None:
    flow = rd.Dataflow("live")
    flow.input("numbers").key_by(lambda n: n % 2).count(name="counts").collect("counts")
    hosts = start_hosts(flow, window_batches=4)
    process, host, stage = hosts.process("numbers"), hosts.host("numbers"), hosts.stage("numbers")
    assert process.plane._listeners is not None
    address = process.plane._listeners.address
    frames: list[tuple[Kind, list[Any]]] = [(Kind.INPUT_BATCH, [bytes(p) for p in encode_batch(rd.Timestamp(0), [n])]) for n in range(50)]
    frames.append((Kind.INPUT_CLOSE, [b""]))
    granted = 0
    for beginning, end in ((0, 20), (0, 35), (5, len(frames))):  # each one begins anew where it knows that all is kept
        plane = connect(address, host.name, stage)
        for number in range(beginning, end):
            kind, payload = frames[number]
            plane.send(host.name, kind, stage, [pack_number(number), *payload])
        while end < len(frames) and host._input_next < end:
            granted += len(plane.poll(0.01))
        plane.close()
    hosts.join()
    assert granted
    assert sorted(hosts.result("counts")) == [(rd.Timestamp(0), (0, 25)), (rd.Timestamp(0), (1, 25))]
