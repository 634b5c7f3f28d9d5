"""Programs with one size that grows. Each function builds the program for a size and gives what runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import rayad as rd
from rayad.progress import Timestamp

Run = Callable[[], Any]


def down(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
    """Count down to 0, once round the loop for each step."""
    return inner.filter(lambda n: n > 0).map(lambda n: n - 1), inner.filter(lambda n: n == 0)


def local(flow: rd.Dataflow, **options: Any) -> Run:
    return lambda: flow.run(runtime="local", seed=1, **options)


class Waits(rd.Vertex):
    """Keeps what comes until its time is complete."""

    def setup(self) -> None:
        self.kept: dict[Timestamp, list[Any]] = {}

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.kept.setdefault(time, []).extend(batch)
        self.notify_at(time)

    def on_notify(self, time: Timestamp) -> None:
        self.send_by(0, self.kept.pop(time), time)


class Asks(rd.Vertex):
    """Asks for many times at once."""

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        for later in range(batch[0]):
            self.notify_at(Timestamp(time.epoch + later))

    def on_notify(self, time: Timestamp) -> None:
        self.send_by(0, [time.epoch], time)


# -- epochs -----------------------------------------------------------------------------------
def epochs_in_a_loop_at_once(size: int) -> Run:
    flow = rd.Dataflow("epochs")
    flow.from_epochs([[3]] * size).iterate(down).collect("out")
    return local(flow)


def epochs_in_a_loop_far_apart(size: int) -> Run:
    """Every other epoch goes round ten times as often, so that frontiers are wide."""
    flow = rd.Dataflow("apart")
    flow.from_epochs([[10 if epoch % 2 else 1] for epoch in range(size)]).iterate(down).collect("out")
    return local(flow)


def epochs_in_a_loop_fed_live(size: int) -> Run:
    flow = rd.Dataflow("live")
    flow.input("numbers").iterate(down).collect("out")

    def feed() -> None:
        job = flow.submit(runtime="local", seed=1)
        numbers = job.input("numbers")
        for epoch in range(size):
            numbers.send([3])
            numbers.advance_to(epoch + 1)
        numbers.close()
        job.wait()

    return feed


def epochs_of_totals(size: int) -> Run:
    flow = rd.Dataflow("totals")
    flow.from_epochs([[("a", 1)]] * size).key_by(lambda r: r[0]).count().collect("out")
    return local(flow)


def epochs_of_totals_in_a_loop(size: int) -> Run:
    flow = rd.Dataflow("totals")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        kept = inner.vertex(Waits, name="waits", parallelism=2)
        return down(kept)

    flow.from_epochs([[1, 2]] * size).iterate(body).collect("out")
    return local(flow, parallelism=2)


def epochs_in_their_order(size: int) -> Run:
    """A vertex that takes times in their order parks what is ahead of its turn."""
    flow = rd.Dataflow("order")
    stream = flow.from_epochs([["a"]] * size).key_by(lambda r: r)
    stream.stateful_map(lambda state, record: (state, state), initial=int).collect("out")
    return local(flow)


def epochs_behind_gates(size: int) -> Run:
    """With recovery of what is upstream, batches wait for their time."""
    flow = rd.Dataflow("gates")
    flow.from_epochs([["a"]] * size).rebalance().map(lambda r: r).key_by(lambda r: r).count().collect("out")

    def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = rd.RunConfig(name="g", storage_path=folder, failures=rd.FailureConfig(max_failures=1, recovery="upstream"))
            flow.submit(config, runtime="local", seed=1).wait()

    return go


def rounds_of_a_loop(size: int) -> Run:
    flow = rd.Dataflow("rounds")
    flow.from_items([size]).iterate(down).collect("out")
    return local(flow)


# -- notifications -----------------------------------------------------------------------------
def notifications_pending(size: int) -> Run:
    flow = rd.Dataflow("pending")
    flow.vertex(Asks, inputs=[flow.from_items([size])], name="asks").collect("out")
    return local(flow)


def notifications_in_a_loop(size: int) -> Run:
    flow = rd.Dataflow("pending")
    flow.from_epochs([[2]] * size).iterate(lambda inner: down(inner.vertex(Waits, name="waits"))).collect("out")
    return local(flow)


def keys_notified(size: int) -> Run:
    flow = rd.Dataflow("keys")
    flow.from_epochs([list(range(10 * size)), list(range(10 * size))]).key_by(lambda n: n).count().collect("out")
    return local(flow, parallelism=2)


# -- the graph ---------------------------------------------------------------------------------
def loops_in_a_row(size: int) -> Run:
    flow = rd.Dataflow("row")
    stream = flow.from_items([2])
    for _ in range(size):
        stream = stream.iterate(down)
    stream.collect("out")
    return local(flow)


def loops_side_by_side(size: int) -> Run:
    flow = rd.Dataflow("side")
    stream = flow.from_items([2])
    for number in range(size):
        stream.iterate(down).collect(f"out{number}")
    return local(flow)


def loops_in_one_loop(size: int) -> Run:
    flow = rd.Dataflow("inside")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        for _ in range(size):
            inner = inner.iterate(down)
        return down(inner)

    flow.from_items([2]).iterate(body).collect("out")
    return local(flow)


def exchanges_in_a_chain(size: int) -> Run:
    flow = rd.Dataflow("chain")
    stream = flow.from_items([2])
    for _ in range(size):
        stream = stream.rebalance().map(lambda n: n)
    stream.collect("out")
    return local(flow)


def stateful_vertices_in_a_chain(size: int) -> Run:
    flow = rd.Dataflow("chain")
    stream = flow.from_items([2])
    for _ in range(size):
        stream = stream.vertex(Waits)
    stream.collect("out")
    return local(flow)


def vertices_in_a_snapshot(size: int) -> Run:
    flow = rd.Dataflow("saved")
    stream = flow.from_items([2])
    for _ in range(size):
        stream = stream.vertex(Waits)
    stream.collect("out")

    def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            job = flow.submit(rd.RunConfig(name="saved", storage_path=folder), runtime="local", seed=1)
            job.savepoint()
            job.wait()

    return go


def fused_operators(size: int) -> Run:
    flow = rd.Dataflow("fused")
    stream = flow.from_items([2])
    for _ in range(size):
        stream = stream.filter(lambda n: True).map_batches(lambda batch: batch)
    stream.collect("out")
    return local(flow)


def consumers_of_one_vertex(size: int) -> Run:
    flow = rd.Dataflow("wide")
    stream = flow.from_items([2]).rebalance()
    for number in range(size):
        stream.rebalance().map(lambda n: n).collect(f"out{number}")
    return local(flow)


def inputs_of_a_union(size: int) -> Run:
    flow = rd.Dataflow("union")
    first, *rest = [flow.from_items([number]) for number in range(size)]
    first.union(*rest).vertex(Waits).collect("out")
    return local(flow)


def inputs_of_a_vertex(size: int) -> Run:
    flow = rd.Dataflow("ports")
    flow.vertex(Waits, inputs=[flow.from_items([number]) for number in range(size)], name="waits").collect("out")
    return local(flow)


def probes_of_one_stream(size: int) -> Run:
    flow = rd.Dataflow("probes")
    stream = flow.from_epochs([[1]] * 4)
    for number in range(size):
        stream.probe(f"probe{number}")
    stream.collect("out")
    return local(flow)


def replicas(size: int) -> Run:
    """Of one vertex, behind one source: as many channels as replicas."""
    flow = rd.Dataflow("replicas")
    flow.from_items(list(range(200))).key_by(lambda n: n).vertex(Waits).collect("out")
    return local(flow, parallelism={"Waits": size})


LADDERS: dict[Callable[[int], Run], int] = {
    epochs_in_a_loop_at_once: 20, epochs_in_a_loop_far_apart: 20, epochs_in_a_loop_fed_live: 40, epochs_of_totals: 40,
    epochs_of_totals_in_a_loop: 16, epochs_in_their_order: 20, epochs_behind_gates: 40, rounds_of_a_loop: 20, notifications_pending: 20,
    notifications_in_a_loop: 14, keys_notified: 20, loops_in_a_row: 10, loops_side_by_side: 10, loops_in_one_loop: 10,
    exchanges_in_a_chain: 15, stateful_vertices_in_a_chain: 15, vertices_in_a_snapshot: 10, fused_operators: 20,
    consumers_of_one_vertex: 15, inputs_of_a_union: 15, inputs_of_a_vertex: 15, probes_of_one_stream: 20, replicas: 8,
}  # fmt: skip
"""With the first size of each; it is doubled twice."""
