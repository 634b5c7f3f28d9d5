"""What one call of a vertex sends beyond a bound waits on disk: nothing is lost, memory is bounded, space is given back."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.plane.batch_codec import batch_bytes, decode_batch
from rayad.actors.plane.on_demand import ANY, rows_of
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.output.outbox import Outbox, Outgoing
from rayad.actors.replica.output.spilled_batches import OutgoingBound, SpilledBatch
from rayad.dataflow.plan import Plan
from rayad.dataflow.records.batches import to_rows
from tests.thorough import amount

BOUND = 1 << 20
SEEDS = amount(each_run=40, soak=2000)
Sent = dict[tuple[int, int, rd.Timestamp], Counter[str]]


def plan_of_one_edge() -> Plan:
    flow = rd.Dataflow()
    flow.from_items([1]).key_by(lambda n: n).count().collect("out")
    return flow.plan(2)


def batch_of(chance: random.Random) -> Any:
    rows = chance.choice([1, 3, 200, 1000])
    values = [chance.randrange(1 << 40) for _ in range(rows)]
    return pa.record_batch({"n": values}) if chance.random() < 0.3 else [(value, "x" * (value % 50)) for value in values]


class Filled:
    """An outbox in which random batches are put, with or without a bound."""

    def __init__(self, seed: int, bound: OutgoingBound | None) -> None:
        self.chance = random.Random(seed)
        self.bound = bound
        self.sent_items: dict[int, int] = defaultdict(int)
        self.changes = 0
        self.outbox = Outbox(self.change, self.sent_items, frozenset(), bound)
        self.outbox.batch_rows = self.chance.choice([100, 1000])
        self.edge = plan_of_one_edge().edges[0]

    def change(self, location: int, time: rd.Timestamp, delta: int) -> None:
        self.changes += delta

    @property
    def memory_bytes(self) -> int:
        """Of what has a receiver."""
        return sum(batch_bytes(one.batch) for one in self.outbox if type(one.batch) is not SpilledBatch and one.replica != ANY)

    def run(self) -> tuple[Sent, int]:
        """What was sent, and how many batches had been on disk."""
        sent: Sent = defaultdict(Counter)
        spilled = 0
        for _ in range(self.chance.randrange(1, 5)):
            for _ in range(self.chance.randrange(1, 60)):
                time, replica = rd.Timestamp(self.chance.randrange(2)), self.chance.choice([0, 0, 1, ANY])
                if replica == ANY:
                    self.outbox.add(self.edge, Outgoing(self.edge.id, ANY, time, batch_of(self.chance)))
                else:
                    self.outbox.push(self.edge, replica, time, batch_of(self.chance))
                # estimates of parts are not quite that of the whole
                assert self.bound is None or self.memory_bytes <= 1.2 * self.bound.bytes_max
            taken = self.outbox.take()
            assert self.changes == len(taken), "each batch is counted, in whatever form it waits"
            self.changes = 0
            for one in taken:
                time, batch = one.time, one.batch
                if type(batch) is SpilledBatch:
                    spilled += 1
                    time, batch = decode_batch(batch.read())
                    assert rows_of(batch) == len(one.batch)
                sent[one.edge, one.replica, time].update(map(repr, to_rows(batch) if isinstance(batch, pa.RecordBatch) else batch))
        return sent, spilled


def test_what_is_sent_is_the_same_with_a_bound_and_without(tmp_path: Path) -> None:
    spilled_of_all = 0
    for seed in range(SEEDS):
        bound = OutgoingBound(random.Random(seed).choice([0, 10_000, 100_000]), lambda: SpillFile(str(tmp_path)))
        without, within = Filled(seed, None), Filled(seed, bound)
        expected, _ = without.run()
        found, spilled = within.run()
        assert found == expected
        assert within.sent_items == without.sent_items
        assert bound.disk_bytes == 0, "nothing refers to what has been sent"
        assert spilled == bound.spilled_batches
        spilled_of_all += spilled
    assert spilled_of_all > 10 * SEEDS


def test_what_is_on_disk_outlives_its_sender_and_no_longer(tmp_path: Path) -> None:
    """A replica that retires may have sent what a replica of the same worker has not consumed yet."""
    bound = OutgoingBound(0, lambda: SpillFile(str(tmp_path)))
    first, second = (bound.put(rd.Timestamp(3), [number], 1) for number in (1, 2))
    assert bound.disk_bytes == first.size + second.size
    del first
    assert bound.disk_bytes == second.size
    del bound
    assert decode_batch(second.read()) == (rd.Timestamp(3), [2])


def test_what_cannot_be_pickled_stays_in_memory(tmp_path: Path) -> None:
    """Within a process it is handed over as it is; between processes sending it is an error that names it."""
    bound, lock = OutgoingBound(0, lambda: SpillFile(str(tmp_path))), [threading.Lock()]
    assert bound.put(rd.Timestamp(1), lock, 1) is lock
    assert bound.spilled_batches == bound.disk_bytes == 0


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    flow = sends_much(1)
    gone = tmp_path / "gone"
    with pytest.raises(rd.RayadError, match=rf"failed in on_recv.*cannot spill to '{gone}'.*give a directory that exists"):
        flow.run(rd.RunConfig(state_memory_bytes=BOUND, spill_directory=str(gone)), runtime="local")


class SendsMuch(rd.Vertex):
    """Sends 40 batches for each record that it gets, about 2 MB."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        for record in batch:
            for part in range(20):
                self.send_by(0, [(record, part, at) for at in range(500)], time)
                self.send_by(1, pa.record_batch({"key": [record * 20 + part] * 500, "n": range(500)}), time)


def sends_much(records: int) -> rd.Dataflow:
    flow = rd.Dataflow("much")
    rows, columns = flow.from_items(list(range(records))).vertex(SendsMuch, outputs=2, name="sends")
    rows.key_by(lambda row: row[1]).count(name="count").collect("counts")
    columns.key_by("key").sum("n", name="sum").collect("sums")
    rows.broadcast().vertex(Counts, name="copies").collect("copies")
    return flow


class Counts(rd.EndVertex):
    def setup(self) -> None:
        self.count = 0

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.count += len(batch)

    def on_end(self, time: rd.Timestamp) -> None:
        self.send_by(0, [self.count], time)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_results_are_those_without_a_bound(parallelism: int, tmp_path: Path) -> None:
    def results(bound: int | None) -> tuple[dict[str, Counter[str]], int]:
        config = rd.RunConfig(state_memory_bytes=bound, spill_directory=str(tmp_path))
        job: Any = sends_much(4).submit(config, runtime="local", parallelism=parallelism)
        result = job.wait()
        spilled = sum(core.outputs.outbox.bound.spilled_batches for core in job.cores.values() if core.outputs.outbox.bound)
        return {name: Counter(map(repr, result[name])) for name in ("counts", "sums", "copies")}, spilled

    (found, spilled), (expected, none) = results(BOUND), results(None)
    assert found == expected
    assert spilled > 10
    assert none == 0


def test_what_goes_round_a_loop_waits_on_disk(tmp_path: Path) -> None:
    def doubled(bound: int | None) -> list[int]:
        flow = rd.Dataflow("loop")

        def body(stream: rd.Stream) -> rd.Stream:
            return stream.flat_map(lambda pair: [(pair[0] * 2 + side, pair[1] + 1) for side in (0, 1)] if pair[1] < 13 else [])

        seeds = flow.from_items([(1, 0), (2, 0), (3, 0)])
        out = seeds.iterate(lambda stream: (body(stream.key_by(lambda pair: pair[0]).vertex(Passes)),) * 2)
        out.map(lambda pair: pair[0]).collect("out")
        config = rd.RunConfig(state_memory_bytes=bound, spill_directory=str(tmp_path))
        return sorted(record for _, record in flow.run(config, runtime="local", parallelism=2)["out"])

    expected = doubled(None)
    assert len(expected) > 40_000
    assert doubled(BOUND) == expected


class Passes(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)
