"""Pools of batches on demand: cut, joined, adapted to working times; and long work goes to replicas that are free."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.plane.batch_codec import decode_batch, encode_batch, payload_bytes
from rayad.actors.plane.on_demand import COLUMN_ROWS_MAX, ROWS_MAX, WORK_S, DemandPool, cut, rows_of
from rayad.actors.plane.protocol import Kind, pack_credit, unpack_credit
from rayad.actors.plane.send_windows import SendWindows
from rayad.dataflow.operators.order.reorder_store import Numbered
from tests.actors.hosts import start_hosts

T0, T1 = rd.Timestamp(0), rd.Timestamp(1)


def learned(record_s: float, *, rows: int = 1, times: int = 60) -> DemandPool:
    pool = DemandPool()
    for _ in range(times):
        pool.learn(rows, record_s * rows)
    return pool


def pushed(pool: DemandPool, batches: list[tuple[rd.Timestamp, Any]]) -> list[tuple[rd.Timestamp, Any, int]]:
    for time, batch in batches:
        pool.push(time, batch)
        pool.check_invariants()
    out = []
    while len(pool):
        piece = pool.pop()
        pool.check_invariants()
        out.append((piece.time, piece.batch, piece.batches))
    return out


def test_at_first_records_travel_one_by_one() -> None:
    pool = DemandPool()
    assert cut([1, 2, 3], pool.piece_rows([1, 2, 3], 2)) == [[1], [2], [3]]
    assert pushed(pool, [(T0, [1]), (T0, [2])]) == [(T0, [1], 1), (T0, [2], 1)]


def test_columns_are_distributed_evenly_at_first() -> None:
    batch = pa.record_batch({"n": list(range(80))})
    pieces = cut(batch, DemandPool().piece_rows(batch, 4))
    assert [piece.num_rows for piece in pieces] == [5] * 16
    assert pa.Table.from_batches(pieces).to_pydict() == batch.to_pydict()


def test_long_records_go_one_by_one_and_tiny_ones_by_the_thousand() -> None:
    assert learned(1.0).piece_rows([0] * 100, 2) == 1
    assert learned(WORK_S / 10).piece_rows([0] * 100, 2) == 10
    assert learned(1e-9).piece_rows([0] * 100_000, 2) == COLUMN_ROWS_MAX
    assert [len(batch) for _, batch, _ in pushed(learned(1e-9), [(T0, [0])] * (2 * ROWS_MAX + 5))] == [ROWS_MAX, ROWS_MAX, 5]


def test_one_long_record_among_tiny_ones_makes_pieces_small_for_a_while() -> None:
    pool = learned(1e-6)
    tiny = pool.piece_rows([0] * 100_000, 1)
    pool.learn(4, 1.0)
    assert pool.piece_rows([0] * 1000, 1) == 1
    for _ in range(100):
        pool.learn(100, 1e-4)
    assert pool.piece_rows([0] * 100_000, 1) >= tiny / 2


def test_a_large_batch_is_not_cut_into_too_many_pieces() -> None:
    rows = DemandPool().piece_rows([0] * 100_000, 2)
    assert len(cut([0] * 100_000, rows)) <= 1024


def test_only_batches_of_one_kind_are_joined() -> None:
    a, b = pa.record_batch({"n": [1]}), pa.record_batch({"m": [1]})
    number = [Numbered(0, 1, [7])]
    got = pushed(learned(1e-6), [(T0, [1]), (T0, [2]), (T1, [3]), (T1, a), (T1, a), (T1, b), (T1, [4]), (T1, number), (T1, number)])
    assert [(time, rows_of(batch), batches) for time, batch, batches in got] == [
        (T0, 2, 2), (T1, 1, 1), (T1, 2, 2), (T1, 1, 1), (T1, 1, 1), (T1, 2, 2),
    ]  # fmt: skip
    assert got[2][1].to_pydict() == {"n": [1, 1]}


def test_batches_that_are_kept_are_neither_cut_nor_joined() -> None:
    pool = DemandPool(keeps_batches=True)
    assert pushed(pool, [(T0, [1, 2]), (T0, [3])]) == [(T0, [1, 2], 1), (T0, [3], 1)]


def test_a_pool_is_full_when_every_receiver_has_its_next_piece() -> None:
    pool = learned(WORK_S / 4)
    for _ in range(7):
        pool.push(T0, [0])
        assert not pool.is_full(2)
    pool.push(T0, [0])
    assert pool.is_full(2)
    assert not pool.is_full(3)


def test_however_tiny_records_are_a_pool_is_full_at_some_size() -> None:
    rows, columns = learned(1e-9), learned(1e-9)
    for _ in range(2 * ROWS_MAX // 8):
        assert not rows.is_full(2)
        rows.push(T0, [0] * 8)
    assert rows.is_full(2)
    wide = pa.record_batch({"n": list(range(1 << 16))})
    while not columns.is_full(2):
        columns.push(T0, wide)
        columns.check_invariants()
    assert columns.column_bytes <= 2 * (1 << 20) + wide.nbytes


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=9), max_size=8), st.integers(1, 12), st.sampled_from([1e-7, 1e-3, 2e-3, 1.0]))
def test_nothing_is_lost_or_moved(batches: list[list[int]], rows: int, record_s: float) -> None:
    pieces = [(T0, piece) for batch in batches for piece in cut(batch, rows)]
    got = pushed(learned(record_s), pieces)
    assert [n for _, batch, _ in got for n in batch] == [n for batch in batches for n in batch]
    assert sum(joined for _, _, joined in got) == len(pieces)
    numbered = [[Numbered(10 * i, len(batch), batch)] for i, batch in enumerate(batches)]
    halves = [item for batch in numbered for piece in cut(batch, rows) for item in piece]
    assert [(item.start + i, n) for item in halves for i, n in enumerate(item.batch)] == [
        (10 * i + j, n) for i, batch in enumerate(batches) for j, n in enumerate(batch)
    ]
    assert all(item.count <= rows for item in halves)


def test_a_credit_says_how_long_it_took() -> None:
    payload = pack_credit(3, 500, 0.25)
    assert unpack_credit(payload) == (3, 500, 0.25)


@pytest.mark.parametrize("buffer", [0, -1, 1.5, True, "2"])
def test_an_invalid_buffer_is_refused(buffer: Any) -> None:
    stream = rd.Dataflow("refused").from_items([1])
    with pytest.raises(rd.DataflowError, match=r"^rebalance: buffer, a number of batches, is .*: it must be an int of at least 1$"):
        stream.rebalance(buffer=buffer)


_LONG = threading.Event()
_DONE: list[tuple[int, int]] = []


class Worker(rd.Vertex):
    """Record 0 takes until all others are done, except those that its replica may have buffered."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        for record in batch:
            if record == 0:
                assert _LONG.wait(60)
            _DONE.append((self.replica, record))
            if len(_DONE) == 60 - 1 - 1:
                _LONG.set()
        self.send_by(0, batch, time)


@pytest.mark.parametrize("ordered", [False, True])
def test_no_record_waits_behind_a_long_one_while_others_are_free(ordered: bool) -> None:
    _LONG.clear()
    _DONE.clear()
    flow = rd.Dataflow("long")
    items = flow.from_items(list(range(60)), name="items")
    if ordered:
        spread = items.rebalance()
        spread.map(_work).ordered().collect("out")
    else:
        items.rebalance().vertex(Worker, name="worker").collect("out")
    hosts = start_hosts(flow, 3).join()
    result = [record for _, record in hosts.result("out")]
    assert (result if ordered else sorted(result)) == list(range(60))
    if not ordered:
        (slow,) = {replica for replica, record in _DONE if record == 0}
        assert sum(replica == slow for replica, _ in _DONE) <= 3, "the long one, and what was next there"


def _work(record: int) -> int:
    if record == 0:
        assert _LONG.wait(60)
    _DONE.append((0, record))
    if len(_DONE) == 60 - 1 - 1:
        _LONG.set()
    return record


class Wire:
    """Stands for what carries frames: keeps what is sent."""

    socket_bytes = 1

    def __init__(self) -> None:
        self.sent: dict[int, list[Any]] = {}

    def encode(self, edge: int, replica: int, time: rd.Timestamp, batch: Any) -> Any:
        return encode_batch(time, batch)

    def size(self, payload: Any) -> int:
        return payload_bytes(payload)

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        return b"".join(payload)

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        return data

    def queued_bytes(self, edge: int, replica: int) -> int:
        return 0

    def grant(self, edge: int, replica: int, grant: Any, busy_s: float) -> None:
        raise AssertionError

    def send(self, edge: int, replica: int, kind: int, payload: Any) -> None:
        self.sent.setdefault(replica, []).append("barrier" if kind == Kind.BARRIER else decode_batch(b"".join(payload))[1])


def outbound(buffer: int) -> tuple[SendWindows, Wire, int]:
    flow = rd.Dataflow("out")
    flow.from_items([1], name="items").rebalance(buffer=buffer).map(str).collect("out")
    plan, wire = flow.plan(2), Wire()
    (edge,) = plan.edges
    return SendWindows(wire, plan, edge.source, rd.RunConfig()), wire, edge.id


def test_the_first_receiver_with_room_gets_the_next_piece() -> None:
    out, wire, edge = outbound(1)
    one, two = 0, 1
    for n in range(4):
        out.offer(edge, T0, [n])
    assert wire.sent == {one: [[0]], two: [[1]]}
    assert out.is_held_up
    size = out.windows[edge, two].in_flight_bytes
    out.on_credit(edge, two, 1, size, 1.0)
    out.on_credit(edge, two, 1, size, 1.0)
    assert wire.sent == {one: [[0]], two: [[1], [2], [3]]}
    assert not out.is_held_up


def test_a_joined_batch_is_counted_once() -> None:
    out, wire, edge = outbound(1)
    fewer: list[Any] = []
    out.joined = lambda *what: fewer.append(what)
    for n in range(30):
        out.offer(edge, T0, [n])
    peer = 0
    while out.windows[edge, peer].in_flight_batches:
        out.on_credit(edge, peer, 1, out.windows[edge, peer].in_flight_bytes, 1e-6)
    in_order = [*wire.sent[peer][:1], *wire.sent[1], *wire.sent[peer][1:]]
    assert [n for batch in in_order for n in batch] == list(range(30))
    assert sum(number for _, _, number in fewer) == 30 - sum(map(len, wire.sent.values()))


@pytest.mark.parametrize("overtake", [False, True])
def test_a_barrier_goes_behind_the_pool(overtake: bool) -> None:
    out, wire, edge = outbound(1)
    peers = range(2)
    for n in range(6):
        out.offer(edge, T0, [n])
    for peer in peers:
        out.send_mark(edge, peer, b"barrier", overtake=overtake)
    logged = [decode_batch(data)[1][0] for _, _, data in out.waiting_batches()]
    assert sorted(logged) == [2, 3, 4, 5], "this is what an unaligned snapshot keeps"
    out.offer(edge, T0, [6])
    for peer in [peer for _ in range(4) for peer in peers]:
        in_flight = out.windows[edge, peer].in_flight
        out.on_credit(edge, peer, *in_flight, 0.0)
    for peer in peers:
        before = wire.sent[peer][: wire.sent[peer].index("barrier")]
        assert len(before) == (1 if overtake else 3)
        assert [6] not in before
    assert sorted(n for sent in wire.sent.values() for batch in sent if batch != "barrier" for n in batch) == list(range(7))
    assert not out.is_held_up
