"""Joins with a small side that every replica has give what they give without, while replicas are added and removed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.joins.broadcast import BroadcastJoin
from rayad.progress import DataflowError, Timestamp
from tests.dataflow.driven import Driven
from tests.programs import model as m
from tests.thorough import examples

SALES = pa.schema([("shop", pa.int64()), ("n", pa.int64())])
SHOPS = pa.schema([("town", pa.string()), ("id", pa.int32())])
SALE = st.fixed_dictionaries({"shop": st.integers(0, 3) | st.none(), "n": st.integers(0, 2)})
SHOP = st.fixed_dictionaries({"town": st.sampled_from(["ulm", "bonn"]), "id": st.integers(0, 4) | st.none()})


def epochs(record: Any) -> Any:
    return st.lists(st.lists(record, max_size=7), min_size=1, max_size=4)


def join(sales: list[Any], shops: list[Any], **options: Any) -> rd.Dataflow:
    flow = rd.Dataflow()
    left, right = flow.from_epochs(sales, batch_rows=2, parts=2), flow.from_epochs(shops, batch_rows=2, parts=2)
    left.key_by("shop").join(right.key_by("id"), name="joined", **options).collect("out")
    return flow


@examples(each_run=42, soak=120)
@given(
    sales=epochs(SALE),
    shops=epochs(SHOP),
    kinds=st.tuples(st.booleans(), st.booleans()),
    parallelism=st.integers(1, 4),
    to=st.integers(1, 4),
    seed=st.integers(0, 200),
)
def test_the_results_are_those_without(sales: Any, shops: Any, kinds: Any, parallelism: int, to: int, seed: int) -> None:
    columns = [[pa.RecordBatch.from_pylist(rows, schema=schema) for rows in side] for side, schema in ((sales, SALES), (shops, SHOPS))]
    rows = [[batch.to_pylist() for batch in side] for side in columns]
    wanted = join(rows[0], rows[1]).run(runtime="local")["out"]
    sides = [columns[side] if kinds[side] else rows[side] for side in (0, 1)]
    job = join(*sides, broadcast=True).submit(runtime="local", parallelism={"joined": parallelism}, seed=seed)
    for _ in range(seed):
        job.step()
    job.start_rescale({"joined": to})
    m.require_same(job.wait()["out"], wanted, "results")


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("disturb", ["not", "rescale", "crash"])
def test_of_a_small_side_that_has_ended_nothing_is_kept_of_the_large_one(columns: bool, disturb: str, tmp_path: Path) -> None:
    """Before, records of the large side wait for later ones of the small side; then all that there is has met it."""
    flow = rd.Dataflow("ends")
    sales, shops = flow.input("sales"), flow.input("shops")
    sales.key_by("shop").join(shops.key_by("id"), broadcast=True, name="joined").probe("seen").collect("out")
    job: Any = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", parallelism={"joined": 2})
    epochs = [[{"shop": (epoch + at) % 5, "n": at} for at in range(6)] for epoch in range(9)]
    towns = [[{"town": "ulm", "id": 0}, {"town": "bonn", "id": 1}], [{"town": "kiel", "id": 2}, {"town": "ulm", "id": 1}]]

    def kept() -> int:
        vertices = [core.vertex for core in job.cores.values() if isinstance(core.vertex, BroadcastJoin)]
        return sum(len(some) for vertex in vertices for some in vertex.left.kept[0].values())

    for epoch, rows in enumerate(epochs):
        job.input("sales").send(pa.RecordBatch.from_pylist(rows, schema=SALES) if columns else rows)
        if epoch < len(towns):
            job.input("shops").send(pa.RecordBatch.from_pylist(towns[epoch], schema=SHOPS) if columns else towns[epoch])
            job.input("shops").advance_to(epoch + 1)
        elif epoch == 4:
            job.input("shops").close()
        elif epoch < 4:
            job.input("shops").advance_to(epoch + 1)
        job.input("sales").advance_to(epoch + 1)
        job.probe("seen").wait(epoch)
        job.savepoint()
        assert bool(kept()) is (epoch < 4)
        if disturb == "rescale":
            job.rescale("joined", 1 + epoch % 3)
        elif disturb == "crash":
            job.crash()
    job.input("sales").close()
    found = [(time.epoch, pair) for time, pair in job.wait()["out"]]
    wanted = [
        (max(epoch, at), (sale["shop"], (sale, shop)))
        for epoch, rows in enumerate(epochs)
        for sale in rows
        for at, shops in enumerate(towns)
        for shop in shops
        if shop["id"] == sale["shop"]
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_columns_stay_columns(columns: bool) -> None:
    seen: list[Any] = []
    flow = rd.Dataflow()
    sales = [{"shop": at % 5, "n": at} for at in range(50)]
    shops = [{"town": "ulm", "id": at} for at in range(4)]
    sides = [
        flow.from_epochs([pa.RecordBatch.from_pylist(rows, schema=schema) if columns else rows])
        for rows, schema in ((sales, SALES), (shops, SHOPS))
    ]
    joined = sides[0].key_by("shop").join(sides[1].key_by("id"), broadcast=True)
    joined.map_batches(lambda batch: (seen.append(batch), [])[1]).collect("nothing")
    flow.run(runtime="local", parallelism=2)
    assert sum(len(batch) for batch in seen) == 40
    assert all(isinstance(batch, pa.RecordBatch) is columns for batch in seen)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda a, b: a.join(b, broadcast=True, within=rd.between(0, 1)), r"join at .*: records of an interval join wait by key"),
        (lambda a, b: a.join(b, broadcast=1), r"join at .*: broadcast is 1"),
        (lambda a, b: a.join(b, broadcast=True, how="left"), r"join at .*: how is 'left'"),
        (lambda a, b: a.ttl(3).join(b.ttl(3), broadcast=True), r"join \(broadcast\) at .* whose keys do not end"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: Any, told: str) -> None:
    flow = rd.Dataflow()
    sides = [flow.from_items([{"k": 1, "t": 1}]).assign_timestamps("t").key_by("k") for _ in range(2)]
    with pytest.raises(DataflowError, match=told):
        change(*sides)


def test_what_was_taken_from_a_sibling_does_not_wait_again() -> None:
    """A replica that has the small side from a sibling was never notified of its times; it gives them on as what they are."""
    vertices = [Driven(BroadcastJoin) for _ in range(3)]
    vertices[0].step(("recv", 1, [(0, ("k", "right"))], Timestamp(0)))
    vertices[0].step(("notify",))
    for giver, taker in pairwise(vertices):
        taker.vertex.take(giver.vertex.give(frozenset(range(256))))
        assert not taker.context.waiting
    last = vertices[2]
    last.step(("recv", 0, [(7, ("k", "left"))], Timestamp(1)))
    last.step(("notify",))
    assert last.context.sent == [(0, Timestamp(1), [("k", ("left", "right"))])]
