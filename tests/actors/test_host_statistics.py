"""The counters of hosts over real sockets: items, bytes, time, queues, latency, state."""

from __future__ import annotations

import threading
import time as clock
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.process.size_estimate import estimate_bytes
from rayad.autoscale import ReplicaReading, sample_between
from tests.actors.hosts import Hosts, sharing, start_hosts

_OPEN = threading.Event()
_ENTERED = threading.Event()
_TURNS = threading.Semaphore(0)
_ENTRIES: list[Any] = []


class Gate(rd.Vertex):
    """Takes nothing until the test opens it."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if batch[0] != "passes":
            _ENTERED.set()
            assert _OPEN.wait(20)
        self.send_by(0, batch, time)


def readings(hosts: Hosts, stage: str) -> list[ReplicaReading]:
    replicas = next(s for s in hosts.plan.stages if s.name == stage).parallelism
    return [hosts.process(stage, replica).readings()[hosts.stage(stage), replica] for replica in range(replicas)]


def check_times(reading: ReplicaReading) -> None:
    total = reading.now_s - reading.started_s
    assert reading.busy_s + reading.idle_s + reading.backpressured_s + reading.queued_s == pytest.approx(total, abs=1e-6 + 1e-6 * total)
    assert min(reading.busy_s, reading.idle_s, reading.backpressured_s) >= 0


def test_counts_of_sent_and_received_items_agree() -> None:
    flow = rd.Dataflow("words")
    words = flow.from_items(["to be or not to be"] * 50, batch_rows=5, name="lines").flat_map(str.split)
    words.key_by(lambda w: w).count(name="count").collect("counts")
    hosts = start_hosts(flow, {"lines": 1, "count": 2}).join()
    (source,), counters = readings(hosts, "lines"), readings(hosts, "count")
    assert source.read[0] == 50
    (edge,) = source.sent
    items, size = (sum(c.received[edge][i] for c in counters) for i in range(2))
    assert source.sent[edge] == (items, size)
    assert items > 0
    assert size > 0
    assert sum(c.written[0] for c in counters) == 4, "one record for each word"
    for reading in (source, *counters):
        check_times(reading)
        assert reading.busy_s > 0


def test_a_broadcast_counts_once_where_it_is_sent_and_in_each_receiver() -> None:
    flow = rd.Dataflow("copies")
    flow.from_items(list(range(30)), batch_rows=10, name="numbers").broadcast().vertex(Forward, name="copies").collect("out")
    hosts = start_hosts(flow, {"numbers": 1, "copies": 3}).join()
    (source,) = readings(hosts, "numbers")
    (items, size) = next(iter(source.sent.values()))
    received = [next(iter(r.received.values())) for r in readings(hosts, "copies")]
    assert items == 30
    assert received == [(30, size)] * 3


def test_items_in_a_loop_are_counted_on_its_edges() -> None:
    def body(rows: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        step = rows.key_by(lambda n: n % 7).vertex(Forward, name="step").map(lambda n: n - 1)
        return step.filter(lambda n: n > 0), step.filter(lambda n: n == 0)

    flow = rd.Dataflow("loop")
    flow.from_items([3] * 10, name="threes").iterate(body).collect("out")
    hosts = start_hosts(flow, {"step": 2}).join()
    steps = readings(hosts, "step")
    received = sum(items for reading in steps for items, _ in reading.received.values())
    assert received == 30, "each record comes three times"
    sent = sum(items for reading in steps for items, _ in reading.sent.values())
    (entering,) = readings(hosts, "threes")
    assert sum(items for items, _ in entering.sent.values()) == 10
    assert sent == 20, "and goes back twice"


class Forward(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


def test_a_replica_in_one_long_activation_is_busy_and_its_sender_back_pressured() -> None:
    _OPEN.clear()
    _ENTERED.clear()
    flow = rd.Dataflow("slow")
    flow.from_items(list(range(40)), batch_rows=1, name="fast").rebalance().vertex(Gate, name="slow").collect("out")
    hosts = start_hosts(flow, 1, window_batches=4)
    assert _ENTERED.wait(20)
    waiting = threading.Event()
    while readings(hosts, "fast")[0].backpressured_s < 0.05:
        waiting.wait(0.005)
    before = readings(hosts, "fast") + readings(hosts, "slow")
    while readings(hosts, "slow")[0].now_s - before[1].now_s < 0.05:
        waiting.wait(0.005)
    sample = sample_between(before, readings(hosts, "fast") + readings(hosts, "slow"))
    assert sample is not None
    assert sample.vertices["fast"].backpressured_share > 0.9
    assert sample.vertices["slow"].busy_share > 0.9, "also while it does not come back to its loop"
    _OPEN.set()
    hosts.join()
    check_times(readings(hosts, "slow")[0])


class Turnstile(rd.Vertex):
    """One batch for each turn that the test gives."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        _ENTRIES.append(batch)
        assert _TURNS.acquire(timeout=20)
        self.send_by(0, batch, time)


def test_the_queue_and_the_latency_of_waiting_batches() -> None:
    _ENTRIES.clear()
    flow = rd.Dataflow("queue")
    rows = flow.from_items(list(range(40)), batch_rows=2, name="fast").rebalance(buffer=4, keep_batches=True)
    rows.vertex(Turnstile, name="slow").collect("out")
    hosts = start_hosts(flow, 1, window_batches=4)
    waiting = threading.Event()
    while not _ENTRIES or readings(hosts, "fast")[0].backpressured_s < 0.05:
        waiting.wait(0.005)
    _TURNS.release()
    while len(_ENTRIES) < 2:
        waiting.wait(0.005)
    (slow,) = readings(hosts, "slow")  # between two turns it has taken in what was there, at least the rest of the window
    assert slow.queue_items in (4, 6, 8, 10)
    assert slow.queue_bytes > 0
    _TURNS.release(100)
    hosts.join()
    (slow,) = readings(hosts, "slow")
    assert slow.queue_items == 0
    assert slow.latencies, "the batch that waited has a latency"
    check_times(slow)


def test_readings_never_go_down_while_the_loop_runs() -> None:
    flow = rd.Dataflow("racing")
    rows = flow.from_items(list(range(3000)), batch_rows=1, name="numbers")
    rows.key_by(lambda n: n % 5).reduce(lambda a, b: a + b, name="sums").collect("out")
    hosts = start_hosts(flow, {"sums": 2}, combine_hold_s=0.0)
    last: dict[str, list[ReplicaReading]] = {}
    while any(thread.is_alive() for thread in hosts.threads.values()):
        for name in ("numbers", "sums"):
            found = readings(hosts, name)
            if name in last:
                sample_between(last[name], found)  # raises where a counter went down
            last[name] = found
    hosts.join()


def test_the_frontier_lags_while_an_epoch_is_open() -> None:
    _OPEN.clear()
    _ENTERED.clear()
    flow = rd.Dataflow("lag")
    rows = flow.from_items(["passes", "waits"], batch_rows=1, name="rows").rebalance().vertex(Gate, name="gate")
    rows.key_by(lambda word: word).count(name="count").collect("out")
    hosts = start_hosts(flow, {"gate": 2})  # one of them goes on
    assert _ENTERED.wait(20)
    waiting = threading.Event()
    while (readings(hosts, "count")[0].frontier_lag_s or 0.0) < 0.02:
        waiting.wait(0.005)
    _OPEN.set()
    hosts.join()


class _Queue(rd.Source):
    """Ten records wait outside; none is read before the test allows it."""

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return _QueuePart()


class _QueuePart(rd.SourcePart):
    left = 10

    def next_batch(self) -> rd.SourceBatch | None:
        if not self.left:
            return None
        if not _OPEN.is_set():
            return rd.SourceBatch(0, [])
        self.left -= 1
        return rd.SourceBatch(0, [self.left])

    def offset(self) -> int:
        return self.left

    def backlog(self) -> int:
        return self.left


def test_a_source_reports_its_backlog() -> None:
    _OPEN.clear()
    flow = rd.Dataflow("queue")
    flow.source(_Queue(), name="queue").collect("out")
    hosts = start_hosts(flow, 1)
    waiting = threading.Event()
    while readings(hosts, "queue")[0].backlog_items is None:
        waiting.wait(0.005)  # the part is opened when it is first read
    assert readings(hosts, "queue")[0].backlog_items == 10
    _OPEN.set()
    hosts.join()
    assert readings(hosts, "queue")[0].backlog_items == 0


def test_the_estimate_of_a_state() -> None:
    class Holder:
        def __init__(self) -> None:
            self.table = {n: [float(n), "x" * 50] for n in range(1000)}
            self.column = pa.array(range(1000))
            self.me = self
            self._context = {n: n for n in range(100_000)}

    assert 100_000 < estimate_bytes(Holder()) < 1_000_000
    assert estimate_bytes(None) < 100


def test_waiting_for_the_turn_in_a_worker_is_no_work() -> None:
    """Both replicas of one thread would count as busy all the time, and each be thought to need another replica."""

    class Slow(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            deadline_s = clock.perf_counter() + 0.002
            while clock.perf_counter() < deadline_s:
                pass
            self.send_by(0, batch, time)

    flow = rd.Dataflow("turns")
    first = flow.from_items(list(range(200)), batch_rows=1, name="numbers").rebalance(keep_batches=True).vertex(Slow, name="first")
    first.rebalance(keep_batches=True).vertex(Slow, name="second").collect("out")
    with sharing("workers"):
        hosts = start_hosts(flow).join()
    found = [one for name in ("first", "second") for one in readings(hosts, name)]
    for one in found:
        check_times(one)
        assert one.busy_s >= 0.4
        assert one.busy_s < 0.8 * (one.now_s - one.started_s)
    assert max(one.queued_s for one in found) > 0.05
