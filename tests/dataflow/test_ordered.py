"""``ordered()`` restores the order of the input: under any interleaving, with any parallelism, after crashes, in rows and columns."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.dataflow.operators.order.ordered import NumberRecords, RestoreOrder
from rayad.dataflow.operators.order.reorder_store import Numbered
from tests.dataflow.driven import Driven, check, plain
from tests.thorough import amount

EPOCHS = [list(range(40)), [], [7, 7, 7], list(range(100, 130))]

STEPS: dict[str, tuple[Callable[[rd.Stream], rd.Stream], Callable[[list[int]], list[int]]]] = {
    "map": (lambda s: s.map(lambda n: n + 1), lambda ns: [n + 1 for n in ns]),
    "filter": (lambda s: s.filter(lambda n: n % 3), lambda ns: [n for n in ns if n % 3]),
    "flat_map": (lambda s: s.flat_map(lambda n: [n] * (n % 4)), lambda ns: [n for n in ns for _ in range(n % 4)]),
    "nothing": (lambda s: s.filter(lambda n: False), lambda ns: []),
    "map_batches": (lambda s: s.map_batches(lambda b: [2 * n for n in rd.to_rows(b)]), lambda ns: [2 * n for n in ns]),
    "inspect": (lambda s: s.inspect(str), lambda ns: ns),
    "rebalance": (lambda s: s.rebalance(), lambda ns: ns),
    "single": (lambda s: s.single(), lambda ns: ns),
}


def timed(epochs: list[list[int]], names: list[str]) -> list[tuple[rd.Timestamp, int]]:
    out = []
    for epoch, numbers in enumerate(epochs):
        for name in names:
            numbers = STEPS[name][1](numbers)
        out += [(rd.Timestamp(epoch), n) for n in numbers]
    return out


def program(epochs: list[list[int]], names: list[str], batch_rows: int, memory_bytes: int) -> tuple[rd.Dataflow, list[Any]]:
    """A flow, and the list to which its output is appended in the order of arrival."""
    flow = rd.Dataflow("ordered")
    stream = flow.from_epochs(epochs, batch_rows=batch_rows).rebalance().inspect(str)
    for name in names:
        stream = STEPS[name][0](stream)
    seen: list[Any] = []
    stream.ordered(memory_bytes=memory_bytes).vertex(Watching(seen)).collect("out")
    return flow, seen


class Watching:
    """A factory of vertices that note what they get, with its time, in the order in which they get it."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __call__(self) -> rd.Vertex:
        seen = self.seen

        class Watcher(rd.Vertex):
            def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
                seen.extend((time, record) for record in rd.to_rows(batch))
                self.send_by(0, batch, time)

        return Watcher()


@settings(deadline=None)
@given(
    epochs=st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=4),
    names=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    batch_rows=st.integers(1, 5),
    memory_bytes=st.sampled_from([0, 300, 1 << 20]),
    parallelism=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_output_has_the_order_of_the_input(
    epochs: list[list[int]], names: list[str], batch_rows: int, memory_bytes: int, parallelism: int, seed: int
) -> None:
    flow, seen = program(epochs, names, batch_rows, memory_bytes)
    result = flow.run(runtime="local", seed=seed, parallelism=parallelism)
    assert result["out"] == timed(epochs, names)
    assert sorted(seen, key=lambda item: item[0]) == timed(epochs, names)


def test_many_seeds_disturb_the_order_and_none_shows_it() -> None:
    names = ["map", "filter", "rebalance", "flat_map"]
    disturbed = 0
    for seed in range(40):
        flow, seen = program(EPOCHS, names, 2, 1 << 20)
        flow.run(runtime="local", seed=seed, parallelism=3)
        assert seen == timed(EPOCHS, names), seed
        other = rd.Dataflow("unordered")
        stream = other.from_epochs(EPOCHS, batch_rows=2).rebalance()
        for name in names:
            stream = STEPS[name][0](stream)
        stream.single().map(lambda n: n).collect("out")
        disturbed += other.run(runtime="local", seed=seed, parallelism=3)["out"] != timed(EPOCHS, names)
    assert disturbed > 30, "without ordered() most seeds must disturb the order, else this test shows nothing"


def test_epochs_come_one_after_the_other() -> None:
    epochs = [[e * 10 + i for i in range(5)] for e in range(8)]
    for seed in range(30):
        flow, seen = program(epochs, ["map"], 1, 200 if seed % 2 else 1 << 20)
        flow.run(runtime="local", seed=seed, parallelism=3)
        assert [record for _, record in seen] == [n + 1 for numbers in epochs for n in numbers], seed


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_columns_stay_columns_and_in_order(memory_bytes: int) -> None:
    table = pa.table({"n": list(range(200)), "s": [f"x{n}" for n in range(200)]})
    for seed in range(15):
        flow = rd.Dataflow("columns")
        stream = flow.from_epochs([table, table.slice(0, 30)], batch_rows=7).rebalance()
        stream = stream.map_batches(lambda b: b.filter(pc.not_equal(pc.bit_wise_and(b.column("n"), 1), 0)))
        kept = stream.map_batches(lambda b: b.append_column("m", pc.negate(b.column("n"))) if b.num_rows else b)
        kept.ordered(memory_bytes=memory_bytes).collect("out", columnar=True)
        out = flow.run(runtime="local", seed=seed, parallelism=3)["out"]
        odd = [n for n in [*range(200), *range(30)] if n % 2]
        assert out.to_pydict() == {"n": odd, "s": [f"x{n}" for n in odd], "m": [-n for n in odd]}


def test_batches_of_both_kinds_in_one_stream() -> None:
    flow = rd.Dataflow("mixed")
    stream = flow.from_items(list(range(60)), batch_rows=4).rebalance()
    mixed = stream.map_batches(lambda b: pa.record_batch({"n": b}) if b[0] % 8 else [{"n": n} for n in b])
    mixed.map(lambda row: row["n"]).ordered().collect("out")
    assert [n for _, n in flow.run(runtime="local", seed=3, parallelism=4)["out"]] == list(range(60))


def test_streams_taken_before_ordered_are_complete_and_computed_once() -> None:
    calls: list[int] = []

    def noted(n: int) -> int:
        calls.append(n)
        return n

    for seed in range(10):
        calls.clear()
        flow = rd.Dataflow("branches")
        made = flow.from_items(list(range(50)), batch_rows=3).rebalance().map(noted)
        before = made.map(lambda n: n % 5).key_by(lambda n: n).count()
        made.ordered().collect("in order")
        made.map(lambda n: -n).ordered(name="again").collect("negated")
        made.collect("as it comes")
        made.probe("probe")
        before.collect("counts")
        result = flow.run(runtime="local", seed=seed, parallelism=2)
        assert [n for _, n in result["in order"]] == list(range(50))
        assert [n for _, n in result["negated"]] == [-n for n in range(50)]
        assert sorted(n for _, n in result["as it comes"]) == list(range(50)) == sorted(calls)
        assert sorted(count for _, count in result["counts"]) == [(n, 10) for n in range(5)]


def test_ordered_inside_a_loop() -> None:
    for seed in range(10):
        flow = rd.Dataflow("loop")

        def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
            halved = inner.rebalance().map(lambda k: k // 2).ordered()
            return halved.filter(lambda k: k > 0), halved

        flow.from_epochs([[9, 8, 7, 6], [3, 2, 12]], batch_rows=1).iterate(body).collect("out")
        out = flow.run(runtime="local", seed=seed, parallelism=3)["out"]
        rounds: list[int] = []
        for numbers in ([9, 8, 7, 6], [3, 2, 12]):
            while numbers:
                halves = [number // 2 for number in numbers]
                rounds += halves
                numbers = [number for number in halves if number]
        assert sorted(n for _, n in out) == sorted(rounds)


@pytest.mark.thorough
@pytest.mark.parametrize("recovery", ["graph", "upstream"])
@pytest.mark.parametrize("alignment_timeout_s", [None, 0.0])
def test_after_crashes_output_is_still_in_order(recovery: Any, alignment_timeout_s: float | None, tmp_path: Path) -> None:
    names = ["map", "flat_map", "rebalance", "filter"]
    snapshots = 0
    seeds = amount(each_run=8, soak=24)
    for seed in range(seeds):
        chance = random.Random(seed)
        flow = rd.Dataflow("crashes")
        stream = flow.from_epochs(EPOCHS, batch_rows=2).rebalance()
        for name in names:
            stream = STEPS[name][0](stream)
        stream.ordered(memory_bytes=chance.choice([0, 1 << 20])).collect("out")
        config = rd.RunConfig(
            storage_path=str(tmp_path / f"{seed}"),
            snapshots=rd.SnapshotConfig(interval_s=1e-6, alignment_timeout_s=alignment_timeout_s),
            failures=rd.FailureConfig(max_failures=10, survive_errors=False, recovery=recovery),
        )
        job = flow.submit(config, runtime="local", seed=seed, parallelism=3)
        assert isinstance(job, LocalJob)
        stages = [stage.id for stage in job.plan.stages]
        at = sorted(chance.sample(range(20, 400), 3))
        for step in range(400):
            if not job.step():
                break
            if step in at:
                job.crash(None if chance.random() < 0.5 else [chance.choice(stages)])
        assert job.wait()["out"] == timed(EPOCHS, names), seed
        assert job.snapshots is not None
        snapshots += job.snapshots.leader.snapshots.last is not None
    assert snapshots == seeds


def test_statistics_count_records_and_not_numbered_batches() -> None:
    flow = rd.Dataflow("statistics")
    flow.from_items(list(range(100)), batch_rows=10).rebalance().map(str).ordered(name="in order").collect("out")
    result = flow.run(runtime="local", parallelism=2, seed=1)
    records = {name: stage["records_in"] for name, stage in result.statistics.stages.items()}
    assert records == {"items": 100, "rebalance.number": 100, "rebalance": 100, "in order": 100}


def test_the_order_stays_while_replicas_come_and_go() -> None:
    epochs = [list(range(260)), [], [7, 7, 7], list(range(300, 500))]  # a change of layout goes on while records are read
    changes = late = 0
    seeds = amount(each_run=24, soak=60)
    for seed in range(seeds):
        chance = random.Random(seed)
        flow = rd.Dataflow("rescaled")
        spread = flow.from_epochs(epochs, batch_rows=2).rebalance().flat_map(lambda n: [n] * (n % 3))
        spread.rebalance().filter(lambda n: n % 7).ordered(memory_bytes=chance.choice([0, 1 << 20])).collect("out")
        job = flow.submit(runtime="local", seed=seed, parallelism=chance.randint(1, 4))
        assert isinstance(job, LocalJob)
        for _ in range(6):
            for _ in range(chance.randint(1, 12)):
                job.step()
            if job.tracker.is_complete():
                break
            names = [name for name in ("rebalance", "rebalance-2") if chance.random() < 0.7] or ["rebalance"]
            job.rescale({name: chance.randint(1, 4) for name in names})
            changes += 1
            late += any(len(core.vertex.waiting) for core in job.cores.values() if isinstance(core.vertex, RestoreOrder))
        expected = [(t, n) for t, n in timed(epochs, []) for _ in range(n % 3) if n % 7]
        assert job.wait()["out"] == expected, seed
    assert changes > 5 * seeds // 3
    assert late > seeds // 4, "in many changes records must wait for their order, else this test shows nothing"


def numbered(start: int, *records: int) -> list[Numbered]:
    return [Numbered(start, len(records), list(records))]


def restoring() -> RestoreOrder:
    return RestoreOrder(40, None)


def test_a_gap_keeps_later_batches_waiting_and_its_arrival_sends_all() -> None:
    driven, time = Driven(restoring), rd.Timestamp(0)
    for start, record in ((2, 102), (1, 101), (4, 104), (0, 100)):
        driven.step(("recv", 0, numbered(start, record), time))
    assert [batch for _, _, batch in driven.context.sent] == [[100], [101], [102]]
    driven.step(("recv", 0, numbered(3), time))
    assert driven.vertex.following == {time: 3}, "an empty batch takes no number"
    driven.step(("recv", 0, [Numbered(3, 1, [])], time))
    assert driven.context.sent[-1][2] == [104]
    driven.notify()
    assert driven.vertex.following == {}


def test_a_number_that_never_comes_is_an_error() -> None:
    driven, time = Driven(restoring), rd.Timestamp(0)
    driven.step(("recv", 0, numbered(0, 1), time))
    driven.step(("recv", 0, numbered(3, 1), time))
    with pytest.raises(rd.RayadError, match=r"^'driven': \(0\) is complete, but record 1 of it has not come; those from \[3\]"):
        driven.notify()


def test_memory_is_bounded_and_released() -> None:
    vertex, time = RestoreOrder(10_000, None), rd.Timestamp(0)
    driven = Driven(lambda: vertex)
    records = [bytes([i]) * 1000 for i in range(100)]
    for i in range(99, 0, -1):
        driven.step(("recv", 0, [Numbered(i, 1, [records[i]])], time))
        assert vertex.store.memory_bytes <= 10_000
    assert vertex.store.spilled >= 85
    driven.step(("recv", 0, [Numbered(0, 1, [records[0]])], time))
    assert [batch for _, _, batch in driven.context.sent] == [[record] for record in records]
    assert vertex.store.memory_bytes == 0


@settings(deadline=None)
@given(order=st.permutations(list(range(9))), chance=st.randoms(use_true_random=False))
def test_snapshots_change_nothing(order: list[int], chance: random.Random) -> None:
    steps: list[Any] = []
    for i in order:
        column = pa.record_batch({"n": [i]})
        steps.append(("recv", 0, [Numbered(i, 1, [i] if i % 3 else column)], rd.Timestamp(i % 2 * 0)))
        steps.append((chance.choice(["snapshot", "crash", "full"]),))
    run = check(restoring, steps, view=lambda vertex: plain(vertex.following))
    assert [rd.to_rows(batch)[0] for _, _, batch in run.context.sent] == [i if i % 3 else {"n": i} for i in range(9)]
    recv: list[Any] = [("recv", 0, [i] * (i + 1), rd.Timestamp(i % 2)) for i in order]
    check(NumberRecords, [step for one in recv for step in (one, ("crash",))], view=lambda vertex: plain(vertex.following))


class Keeps(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


ADVICE = r"; call ordered\(\) on what comes from rebalance\(\) through map, filter, flat_map, map_batches or inspect alone$"


def test_ordered_without_an_order_to_restore_is_refused() -> None:
    flow = rd.Dataflow("refused")
    items = flow.from_items([1, 2], name="items")
    nodes = len(flow.graph.nodes)
    with pytest.raises(rd.DataflowError, match=r"behind the source 'items' \(.*\) is parallel, so there is no order to restore" + ADVICE):
        items.map(str).ordered()
    del flow.graph.nodes[nodes:]
    kept = items.rebalance().map(str).vertex(Keeps, name="keeps")
    with pytest.raises(rd.DataflowError, match=r"'keeps' \(.*\) keeps state: what it sends has no place in .* input" + ADVICE):
        kept.map(str).ordered()
    with pytest.raises(rd.DataflowError, match=r"'union' \(.*\) brings several streams together" + ".*" + ADVICE):
        items.rebalance().map(str).union(items).ordered()
    with pytest.raises(rd.DataflowError, match=r"'broadcast' \(.*\) gives every record to every replica" + ".*" + ADVICE):
        items.rebalance().broadcast().map(str).ordered()
    with pytest.raises(rd.DataflowError, match=r"'[^']*' \(.*\) is the boundary of a loop" + ".*" + ADVICE):
        items.rebalance().map(str).iterate(lambda inner: (inner.filter(bool), inner)).ordered()
    with pytest.raises(rd.DataflowError, match=r"^ordered: memory_bytes is -1: it must be an int of at least 0$"):
        items.rebalance().ordered(memory_bytes=-1)


def test_a_refused_call_changes_nothing() -> None:
    flow = rd.Dataflow("unchanged")
    stream = flow.from_items([1]).vertex(Keeps, name="keeps").broadcast()
    before = [(node.name, list(node.inputs), node.op) for node in flow.graph.nodes]
    with pytest.raises(rd.DataflowError):
        stream.ordered()
    assert [(node.name, list(node.inputs), node.op) for node in flow.graph.nodes] == before


def test_the_error_of_a_function_names_the_record() -> None:
    flow = rd.Dataflow("error")
    flow.from_items([4, 2, 0, 1]).rebalance().map(lambda n: 8 // n, name="divide").ordered().collect("out")
    with pytest.raises(rd.DataflowError, match=r"^'divide'\[\d\] \(.*\) failed at \(0\) on record 0: ZeroDivisionError"):
        flow.run(runtime="local", parallelism=2)


class Tenfold:
    """Made once in each replica."""

    def __call__(self, batch: list[int]) -> list[int]:
        return [10 * n for n in batch]


def test_a_class_of_batches_is_made_in_each_replica() -> None:
    flow = rd.Dataflow("classes")
    flow.from_items(list(range(30))).rebalance(name="work").map_batches(Tenfold).ordered().collect("out")
    result = flow.run(runtime="local", parallelism={"work": 3})
    assert [n for _, n in result["out"]] == list(range(0, 300, 10))
