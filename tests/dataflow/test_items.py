"""Sources in memory: a part resumes at any offset, and every epoch is divided among the parts. Also: a vertex may have no output."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.items import ItemsSource
from tests.thorough import examples

EPOCHS = st.lists(st.lists(st.integers(-9, 9), max_size=7), max_size=4)


def read(source: ItemsSource, part: Any, resume: Any | None = None, limit: int = 10_000) -> tuple[list[Any], Any]:
    """Up to ``limit`` batches as ``(epoch, records)``, and the offset behind them."""
    reading = source.build_part(part, resume)
    out: list[Any] = []
    while len(out) < limit and (batch := reading.next_batch()) is not None:
        assert batch.epoch >= reading.epoch_floor() or not batch.batch
        out.append((batch.epoch, rd.to_rows(batch.batch)))
    return out, reading.offset()


@examples(each_run=40, soak=100)
@given(EPOCHS, st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_reading_resumes_at_any_offset(epochs: list[list[int]], batch_rows: int, parts: int, columns: bool) -> None:
    held = [pa.record_batch({"n": pa.array(items, pa.int64())}) for items in epochs] if columns else epochs
    source = ItemsSource(held, batch_rows, parts)
    seen: list[Any] = []
    for part in source.list_parts():
        whole, _ = read(source, part)
        seen.extend((epoch, record) for epoch, records in whole for record in records)
        for count in range(len(whole) + 1):
            begun, offset = read(source, part, limit=count)
            assert begun + read(source, part, offset)[0] == whole
    expected = [(e, {"n": n} if columns else n) for e, items in enumerate(epochs) for n in items]
    assert sorted(seen, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("items", [[], (), iter([]), pa.table({"a": []}), pa.record_batch({"a": pa.array([], pa.int64())})])
def test_empty_items_give_no_records(items: Any) -> None:
    flow = rd.Dataflow()
    flow.from_items(items).collect("out")
    assert flow.run(runtime="local")["out"] == []


def test_a_vertex_may_have_no_output() -> None:
    seen: list[Any] = []

    class Takes(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            seen.extend(batch)
            self.notify_at(time)

        def on_notify(self, time: rd.Timestamp) -> None:
            seen.append(time)

    flow = rd.Dataflow()
    assert flow.vertex(Takes, inputs=[flow.from_items([1, 2])], outputs=0) is None
    assert dict(flow.run(runtime="local")) == {}
    assert seen == [1, 2, rd.Timestamp(0)]


def test_naiads_first_output_is_prompt_and_its_second_waits_for_the_epoch() -> None:
    """Figure 4: distinct records leave in on_recv; counts only when the input has moved on."""
    from tests.programs.vertices import DistinctCount

    distinct_seen: list[Any] = []
    counts_seen: list[Any] = []
    flow = rd.Dataflow()
    distinct, counts = flow.input("in").key_by(lambda w: w).vertex(DistinctCount, outputs=2)
    distinct.inspect(distinct_seen.append)
    counts.inspect(counts_seen.append)
    job = flow.submit(runtime="local")
    job.input("in").send(["a", "b", "a"])
    while job.step():
        pass
    assert (sorted(distinct_seen), counts_seen) == (["a", "b"], [])
    job.input("in").advance_to(1)
    while job.step():
        pass
    assert sorted(counts_seen) == [("a", 2), ("b", 1)]
    job.input("in").close()
    job.wait()


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> Any:
        order: list[Any] = []
        flow = rd.Dataflow()
        flow.from_epochs([range(20), range(9)], parts=3, batch_rows=2).rebalance().map(lambda n: n).inspect(order.append).key_by(
            lambda n: n
        ).count()
        job = flow.submit(runtime="local", seed=seed, parallelism=3)
        job.wait()
        return order, job.steps

    assert run(5) == run(5)
    assert len({tuple(run(seed)[0]) for seed in range(8)}) > 1
