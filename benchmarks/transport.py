"""How fast messages travel between two actor processes: ``python -m benchmarks.transport [--rounds 5] [--no-ray]``.

Compared: the data plane of Rayad (Unix socket, TCP loopback), pyzmq (DEALER to DEALER; ipc, tcp), a Ray actor call, and, as the lower
bound, a bare Unix socket under epoll. Each has one partner process, and all live during the whole run. The rounds are interleaved, so
that other load of the machine affects all alike. Printed: a Markdown table with the median of the rounds (and the best), ratios to the
plane on a Unix socket, and JSON.

- round trip: 64 bytes there and back, one at a time; the median of a round;
- small messages: 64 bytes one way, without pause, until the partner says that the last one has come;
- batches: an Arrow batch of 800 KB, encoded once, decoded by the partner, eight in flight, each acknowledged. For Ray: the batch
  as an argument.

Ray runs its workers at a lower priority (nice 15); the other partners run at the nice level of this process. The table says which.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import select
import socket
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rayad.actors.plane.batch_codec import decode_batch, encode_batch
from rayad.actors.plane.plane import Address, Frame, Plane
from rayad.progress import Timestamp

PING, COUNT, LAST, BATCH, REPORT = 1, 2, 3, 4, 5
SMALL = bytes(64)
UNDER_WAY = 8
ROUND_TRIPS = 1000
MESSAGES = 50_000
BATCHES = 200
RAY_CALLS = 500
RAY_BATCHES = 40


class Transport(Protocol):
    """One partner process and the way to it."""

    name: str
    nice: int

    def round_trip(self) -> None: ...
    def messages(self, count: int) -> None: ...
    def batches(self, count: int) -> None: ...
    def close(self) -> None: ...


def new_batch() -> pa.RecordBatch:
    return pa.record_batch({"key": np.arange(50_000), "value": np.random.default_rng(1).random(50_000)})


def start(target: Callable[..., None], *args: object) -> tuple[Any, Connection]:
    """Start a partner in a fresh interpreter; it sends its nice level, and more, through the pipe."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=target, args=(its, *args), daemon=True)
    process.start()
    return process, mine


# -- the lower bound: a bare socket ------------------------------------------------------------------------------------------------


def serve_bare(pipe: Connection, name: str) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(name)
    sock.setblocking(False)
    poller = select.epoll()
    poller.register(sock.fileno(), select.EPOLLIN)
    pipe.send(os.nice(0))
    while True:
        poller.poll()
        data = sock.recv(100)
        if not data:
            return
        sock.send(data)


class BareSocket:
    """Round trips only: framing, queues and credentials are what the others add."""

    name = "bare Unix socket, epoll"

    def __init__(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        name = f"\0rayad-benchmark-{secrets.token_hex(8)}"
        listener.bind(name)
        listener.listen()
        self._process, pipe = start(serve_bare, name)
        self._sock, _ = listener.accept()
        listener.close()
        self._sock.setblocking(False)
        self._poller = select.epoll()
        self._poller.register(self._sock.fileno(), select.EPOLLIN)
        self.nice = pipe.recv()

    def round_trip(self) -> None:
        self._sock.send(SMALL)
        self._poller.poll()
        self._sock.recv(100)

    def messages(self, count: int) -> None:
        raise NotImplementedError

    def batches(self, count: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._sock.close()
        self._process.join()


# -- the plane ---------------------------------------------------------------------------------------------------------------------


def serve_plane(pipe: Connection, address: Address, secret: bytes, is_sealed: bool) -> None:
    with Plane(name="partner", job="benchmark", incarnation=0, secret=secret, seals=is_sealed) as plane:
        plane.connect("main", address)
        pipe.send(os.nice(0))
        while not plane.take_lost():
            for frame in plane.poll(None):
                if frame.kind == PING:
                    plane.send("main", PING, 0, frame.payload)
                elif frame.kind == BATCH:
                    assert len(decode_batch(memoryview(frame.payload))[1]) == 50_000
                    plane.send("main", REPORT, 0, b"")
                elif frame.kind == LAST:
                    plane.send("main", REPORT, 0, b"")


class OnPlane:
    """The data plane; `corked`: small messages are given to the kernel 64 at a time, as in an activation. `sealed`: frames on TCP are."""

    def __init__(self, transport: str, *, corked: bool = False, sealed: bool = True) -> None:
        secret = secrets.token_bytes(32)
        self.name = f"Plane, {'Unix socket' if transport == 'unix' else 'TCP loopback'}{', corked' if corked else ''}"
        self.name += "" if sealed else ", not sealed"
        self._corked = corked
        self._plane = Plane(name="main", job="benchmark", incarnation=0, secret=secret, seals=sealed)
        address = self._plane.listen()
        self._process, pipe = start(serve_plane, address if transport == "unix" else address.without_unix(), secret, sealed)
        while not self._plane.connected("partner"):
            self._plane.poll(1.0)
        self.nice = pipe.recv()
        self._payload = b"".join(encode_batch(Timestamp(0), new_batch()))

    def _receive(self) -> list[Frame]:
        while True:
            frames = self._plane.poll(None)
            if frames:
                return frames

    def round_trip(self) -> None:
        self._plane.send("partner", PING, 0, SMALL)
        self._receive()

    def messages(self, count: int) -> None:
        plane = self._plane
        for start_at in range(0, count, 64):
            if self._corked:
                plane.cork()
            for _ in range(min(64, count - start_at)):
                plane.send("partner", COUNT, 0, SMALL)
            if self._corked:
                plane.uncork()
            while plane.queued_bytes("partner") > 1_000_000:
                plane.poll(None)
        plane.send("partner", LAST, 0, b"")
        self._receive()

    def batches(self, count: int) -> None:
        sent = reported = 0
        while reported < count:
            while sent < count and sent - reported < UNDER_WAY:
                self._plane.send("partner", BATCH, 0, self._payload)
                sent += 1
            reported += len(self._receive())

    def close(self) -> None:
        self._plane.close()
        self._process.join()


# -- pyzmq -------------------------------------------------------------------------------------------------------------------------


def serve_zmq(pipe: Connection, address: str) -> None:
    import zmq

    sock = zmq.Context().socket(zmq.DEALER)
    sock.set_hwm(0)
    sock.connect(address)
    pipe.send(os.nice(0))
    while True:
        kind, payload = sock.recv_multipart(copy=False)
        match kind.bytes[0]:
            case 1:
                sock.send_multipart((b"\1", payload.bytes))
            case 3:
                sock.send(b"\5")
            case 4:
                assert len(decode_batch(payload.buffer)[1]) == 50_000
                sock.send(b"\5")
            case 5:
                return


class OnZmq:
    def __init__(self, transport: str) -> None:
        import zmq

        self.name = f"pyzmq DEALER, {transport}"
        self._directory = tempfile.TemporaryDirectory()
        self._sock: Any = zmq.Context.instance().socket(zmq.DEALER)
        self._sock.set_hwm(0)
        self._sock.bind(f"ipc://{self._directory.name}/zmq" if transport == "ipc" else "tcp://127.0.0.1:*")
        self._process, pipe = start(serve_zmq, self._sock.getsockopt_string(zmq.LAST_ENDPOINT))
        self.nice = pipe.recv()
        self._payload = b"".join(encode_batch(Timestamp(0), new_batch()))

    def round_trip(self) -> None:
        self._sock.send_multipart((b"\1", SMALL))
        self._sock.recv_multipart()

    def messages(self, count: int) -> None:
        for _ in range(count):
            self._sock.send_multipart((b"\2", SMALL))
        self._sock.send_multipart((b"\3", b""))
        self._sock.recv()

    def batches(self, count: int) -> None:
        sent = 0
        for reported in range(count):
            while sent < count and sent - reported < UNDER_WAY:
                self._sock.send_multipart((b"\4", self._payload), copy=False)
                sent += 1
            self._sock.recv()

    def close(self) -> None:
        self._sock.send_multipart((b"\5", b""))
        self._process.join()
        self._sock.close()
        self._directory.cleanup()


# -- Ray ---------------------------------------------------------------------------------------------------------------------------


class OnRay:
    name = "Ray actor call"

    def __init__(self) -> None:
        import ray

        class Partner:
            def nice(self) -> int:
                return os.nice(0)

            def echo(self, data: bytes) -> bytes:
                return data

            def take(self, batch: Any) -> int:
                return len(batch)

        self._ray = ray
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        self._actor = ray.remote(num_cpus=0)(Partner).remote()
        self._batch = new_batch()
        self.nice = ray.get(self._actor.nice.remote())

    def round_trip(self) -> None:
        self._ray.get(self._actor.echo.remote(SMALL))

    def messages(self, count: int) -> None:
        last = None
        for _ in range(count):
            last = self._actor.take.remote(SMALL)
        self._ray.get(last)

    def batches(self, count: int) -> None:
        under_way: deque[Any] = deque()
        for _ in range(count):
            if len(under_way) == UNDER_WAY:
                self._ray.get(under_way.popleft())
            under_way.append(self._actor.take.remote(self._batch))
        self._ray.get(list(under_way))

    def close(self) -> None:
        self._ray.shutdown()


# -- measuring ---------------------------------------------------------------------------------------------------------------------


def measure(transport: Transport, rounds: dict[str, list[float]]) -> None:
    """One round of one transport; appends what it measured."""
    slow = isinstance(transport, OnRay)
    trips = []
    for _ in range(ROUND_TRIPS // (5 if slow else 1)):
        begin = time.perf_counter()
        transport.round_trip()
        trips.append(time.perf_counter() - begin)
    rounds.setdefault("round_trip_us", []).append(statistics.median(trips) * 1e6)
    if isinstance(transport, BareSocket):
        return
    for what, count, unit in (
        ("messages", RAY_CALLS if slow else MESSAGES, 1e3),
        ("batches", RAY_BATCHES if slow else BATCHES, 1e9 / new_batch().nbytes),
    ):
        begin = time.perf_counter()
        getattr(transport, what)(count)
        name = "messages_thousand_per_s" if what == "messages" else "batches_gb_per_s"
        rounds.setdefault(name, []).append(count / (time.perf_counter() - begin) / unit)


def cell(values: list[float] | None, base: float, *, least: bool) -> str:
    if not values:
        return "-"
    median = statistics.median(values)
    return f"{median:.3g} (best {min(values) if least else max(values):.3g}; x{median / base:.2g})"


def table(results: dict[str, dict[str, list[float]]], nices: dict[str, int]) -> str:
    base = {what: statistics.median(values) for what, values in results["Plane, Unix socket"].items()}
    lines = [
        "| transport | partner's nice | round trip, us | small messages, thousand/s | 800 KB batches, GB/s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, rounds in results.items():
        cells = [cell(rounds.get(what), base[what], least=what == "round_trip_us") for what in base]
        lines.append(f"| {name} | {nices[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-ray", action="store_true", help="leave Ray out: it takes some seconds to start")
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    transports: list[Transport] = [
        BareSocket(), OnPlane("unix"), OnPlane("unix", corked=True), OnPlane("tcp"), OnPlane("tcp", sealed=False),
        OnPlane("tcp", corked=True), OnPlane("tcp", corked=True, sealed=False), OnZmq("ipc"), OnZmq("tcp"),
    ]  # fmt: skip
    if not arguments.no_ray:
        transports.append(OnRay())
    results: dict[str, dict[str, list[float]]] = {transport.name: {} for transport in transports}
    for number in range(arguments.rounds + 1):
        for transport in transports:
            measure(transport, {} if number == 0 else results[transport.name])  # the first one warms up
    nices = {transport.name: transport.nice for transport in transports}
    for transport in transports:
        transport.close()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {machine}, nice {os.nice(0)} here; median of {arguments.rounds} interleaved rounds\n")
    print(table(results, nices))
    print()
    print(json.dumps({"machine": machine, "nice": nices, "rounds": results}))


if __name__ == "__main__":
    main()
