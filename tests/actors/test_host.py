"""Hosts over real sockets, in threads: results, back-pressure to the source, loops that spill, ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import rayad as rd
from rayad.actors.lead import layouts
from rayad.actors.plane.protocol import PROGRESS
from tests.actors.hosts import sharing, start_hosts

_OPEN = threading.Event()
_GIVEN: list[int] = []
_TAKEN: list[int] = []


@pytest.fixture(autouse=True, params=["vertices", "workers"])
def _placement(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each replica in a process of its own, and one of each vertex in a process."""
    with sharing(request.param):
        yield


class Counting(rd.Source):
    """Batches of one record, counted as they are given."""

    blocks = False

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return _CountingPart(self.batches)


class _CountingPart(rd.SourcePart):
    def __init__(self, batches: int) -> None:
        self.left = batches

    def next_batch(self) -> rd.SourceBatch | None:
        if not self.left:
            return None
        self.left -= 1
        _GIVEN.append(self.left)
        return rd.SourceBatch(0, [self.left])

    def offset(self) -> int:
        return self.left


class Gate(rd.Vertex):
    """Takes nothing until the test opens it."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        assert _OPEN.wait(20)
        _TAKEN.extend(batch)
        self.send_by(0, batch, time)


def test_word_count_over_sockets() -> None:
    flow = rd.Dataflow("words")
    lines = flow.from_epochs([["to be", "or not to be"], ["to"]])
    lines.flat_map(str.split).key_by(lambda w: w).count().collect("counts")
    hosts = start_hosts(flow, 2).join()
    counts = sorted((time.epoch, record) for time, record in hosts.result("counts"))
    assert counts == [(0, ("be", 2)), (0, ("not", 1)), (0, ("or", 1)), (0, ("to", 2)), (1, ("to", 3))]


def test_a_busy_sender_combines_over_batches() -> None:
    def sent(hold_s: float) -> tuple[int, Any]:
        flow = rd.Dataflow("busy")
        flow.source(Counting(300), name="numbers").key_by(lambda n: n % 3).count().collect("counts")
        hosts = start_hosts(flow, combine_hold_s=hold_s).join()
        return hosts.report("numbers").batches_out, sorted(hosts.result("counts"))

    batches, counts = sent(3600.0)
    assert batches == 1  # all of it, when the source had ended
    assert counts == [(rd.Timestamp(0), (key, 100)) for key in range(3)]
    assert sent(0.0)[1] == counts


class _Waits(rd.Source):
    """Gives one batch of epoch 0; then it is in epoch 1 and gives nothing until the test opens the gate."""

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return _WaitsPart()


class _WaitsPart(rd.SourcePart):
    def __init__(self) -> None:
        self.given = False

    def next_batch(self) -> rd.SourceBatch | None:
        if self.given:
            return None if _OPEN.is_set() else rd.SourceBatch(1, [])
        self.given = True
        return rd.SourceBatch(0, ["a", "b", "a"])

    def epoch_floor(self) -> int:
        return int(self.given)

    def offset(self) -> bool:
        return self.given


def test_an_idle_sender_flushes_its_combiners() -> None:
    _OPEN.clear()
    flow = rd.Dataflow("idle")
    counts = flow.source(_Waits(), name="waits").key_by(lambda word: word).count()
    counts.inspect(lambda record: _OPEN.set()).collect("counts")
    hosts = start_hosts(flow, combine_hold_s=3600.0).join()
    assert sorted(hosts.result("counts")) == [(rd.Timestamp(0), ("a", 2)), (rd.Timestamp(0), ("b", 1))]


def test_pressure_reaches_the_source() -> None:
    _OPEN.clear()
    _GIVEN.clear()
    _TAKEN.clear()
    flow = rd.Dataflow("pressure")
    gated = flow.source(Counting(5000), name="fast").rebalance(buffer=8, keep_batches=True).vertex(Gate, name="gate")
    gated.rebalance().vertex(Gate, name="slow").collect("out")
    hosts = start_hosts(flow, 1, {"gate": "vertices", "slow": "vertices", "fast": "workers"}, window_batches=8)  # they block
    waiting = threading.Event()
    while len(_GIVEN) < 9:
        waiting.wait(0.01)
    for _ in range(30):  # the source gets every chance to run ahead
        hosts.look("fast")
        waiting.wait(0.005)
    assert len(_GIVEN) <= 10, "one window, one batch held up, one being made"
    assert any("batches without credit on fast" in line for line in hosts.look("fast").waiting)
    _OPEN.set()
    hosts.join()
    assert len(_GIVEN) == 5000
    assert sorted(record for _, record in hosts.result("out")) == list(range(5000))


def test_a_change_that_is_undone_before_it_is_prepared_is_not_prepared() -> None:
    """Calls of the coordinator run in several threads of an actor: the later one may come first."""
    _OPEN.clear()
    flow = rd.Dataflow("overtaken")
    flow.source(_Waits(), name="waits").key_by(lambda word: word).count(name="counts").inspect(lambda record: _OPEN.set()).collect("out")
    hosts = start_hosts(flow, combine_hold_s=0.0)
    host, before = hosts.host("counts"), hosts.plan.layout
    after = layouts.prepared(hosts.plan, {host.core.stage.id: 3})

    def asked(turn: int, method: str, *args: Any) -> Any:
        hosts.process("counts").ask(lambda: getattr(host.rescale, method)(turn, *args), timeout_s=20)
        return host.core.plan.layout

    moving = {host.core.stage.id}
    assert asked(5, "commit", before) == before
    assert asked(4, "prepare", after, [], {}, {}, moving) == before
    assert host.rescale.is_prepared()
    assert asked(6, "prepare", after, [], {}, {}, moving) == after
    assert asked(5, "commit", before) == after
    assert asked(7, "commit", before) == before
    _OPEN.set()
    assert sorted(hosts.join().result("out")) == [(rd.Timestamp(0), ("a", 2)), (rd.Timestamp(0), ("b", 1))]


def test_a_loop_under_load_spills_and_completes() -> None:
    """Each record doubles for ten rounds through an exchange; the bound is far below the records in flight."""

    def body(rows: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        spread = rows.key_by(lambda r: r[0]).vertex(Forward, name="spread")
        grown = spread.flat_map(lambda r: [(2 * r[0], r[1] + 1), (2 * r[0] + 1, r[1] + 1)])
        return grown.filter(lambda r: r[1] < 10), grown.filter(lambda r: r[1] == 10)

    flow = rd.Dataflow("doubling")
    flow.from_items([(1, 0), (2, 0), (3, 0)], batch_rows=1).iterate(body).collect("leaves")
    hosts = start_hosts(flow, 2, spill_memory_bytes=2048, window_batches=4)
    hosts.join()
    expected = sorted((start << 10) + i for start in (1, 2, 3) for i in range(1024))
    assert sorted(record[0] for _, record in hosts.result("leaves")) == expected
    reports = [hosts.report("spread", replica) for replica in range(2)]
    assert sum(r.spilled_batches for r in reports) > 0
    largest_batch_bytes = 64 * 1024
    assert max(r.spill_memory_bytes_peak for r in reports) <= 2048 + largest_batch_bytes


class Forward(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


def test_two_loops_that_feed_each_other_do_not_deadlock_on_full_windows() -> None:
    """An exchange inside a loop with a window of one batch: only the feedback's exemption lets this end."""

    def body(rows: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        there = rows.key_by(lambda r: r).vertex(Forward, name="there")
        back = there.key_by(lambda r: r // 3).vertex(Forward, name="back").map(lambda r: r + 1)
        return back.filter(lambda r: r % 16 != 0), back.filter(lambda r: r % 16 == 0)

    flow = rd.Dataflow("tight")
    flow.from_items(list(range(512)), batch_rows=1).iterate(body).collect("out")
    hosts = start_hosts(flow, 2, window_batches=1).join(60)
    assert sorted(r for _, r in hosts.result("out")) == sorted((r // 16 + 1) * 16 for r in range(512))


def test_an_error_in_one_replica_is_its_own_and_the_others_lose_their_peer() -> None:
    flow = rd.Dataflow("bad")
    flow.from_items([1, 0]).rebalance().map(lambda x: 1 // x, name="divide").collect("out")
    hosts = start_hosts(flow, 1)
    with pytest.raises(rd.DataflowError, match=r"'divide'\[0\].*on record 0: ZeroDivisionError"):
        hosts.join()
    assert isinstance(hosts.errors[PROGRESS], ConnectionError)


def test_stop_ends_an_endless_source_and_keeps_what_was_read() -> None:
    _OPEN.set()
    _GIVEN.clear()
    _TAKEN.clear()
    flow = rd.Dataflow("endless")
    flow.source(Counting(10**9), name="endless").rebalance().vertex(Gate, name="gate").collect("out")
    hosts = start_hosts(flow, 1)
    while not _TAKEN:
        hosts.look("gate")
    hosts.process("endless").stop([hosts.stage("endless")])
    hosts.join()
    assert sorted(r for _, r in hosts.result("out")) == sorted(_GIVEN)


def test_a_job_that_is_held_is_not_over_before_it_is_released() -> None:
    _OPEN.clear()
    flow = rd.Dataflow("held")
    flow.source(_Waits(), name="waits").key_by(lambda word: word).count().collect("counts")
    hosts = start_hosts(flow)
    host = hosts.hosts[PROGRESS]
    progress = host.progress
    assert host.call("hold")
    assert host.call("hold")
    _OPEN.set()
    assert host.mailbox.watch(progress.tracker.is_complete, 20.0)
    host.call("release")
    hosts.threads[PROGRESS].join(0.2)
    assert all(thread.is_alive() for thread in hosts.threads.values())
    host.call("release")
    hosts.join()
    assert not host.call("hold")
    assert sorted(record for _, record in hosts.result("counts")) == [("a", 2), ("b", 1)]


class Blocking(rd.Source):
    """Its one part gives a batch and then blocks."""

    begun, gate = threading.Event(), threading.Event()

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return BlockingPart()


class BlockingPart(rd.SourcePart):
    def __init__(self) -> None:
        self.count = 0

    def next_batch(self) -> rd.SourceBatch:
        self.count += 1
        if self.count == 2:
            Blocking.begun.set()
            Blocking.gate.wait(60)
        return rd.SourceBatch(self.count, [self.count])

    def offset(self) -> int:
        return self.count


def test_a_stop_reaches_a_source_that_blocks_when_it_comes_back() -> None:
    """Regression: the control call waited 10 s for the event loop and gave up, and the source read on for ever."""
    Blocking.begun.clear()
    Blocking.gate.clear()
    flow = rd.Dataflow("blocked")
    flow.source(Blocking(), name="ticks").collect("out")
    hosts = start_hosts(flow)
    host = hosts.process("ticks")
    assert Blocking.begun.wait(20)
    host.stop([hosts.stage("ticks")])
    assert not host.has_stopped
    Blocking.gate.set()
    assert [n for _, n in hosts.join().result("out")] == [1, 2]
    assert host.has_stopped
