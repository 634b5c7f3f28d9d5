"""Where collections begin: streams, upserts, live inputs; and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental import moment_vertex
from rayad.incremental.records import Row
from tests.incremental.programs import PROGRAMS, history


def table_of(result: Any) -> Counter[Any]:
    table: Counter[Any] = Counter()
    for _, (record, weight) in result:
        table[record] += weight
    return +table


def test_appended_records_are_inserted_once() -> None:
    flow = rd.Dataflow("appended")
    flow.from_epochs([["a", "b"], ["a"]]).as_collection().collect("out")
    assert table_of(flow.run(runtime="local")["out"]) == {"a": 2, "b": 1}


def test_the_newest_record_of_a_key_replaces_the_one_before() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        records = [(chance.randrange(4), at, chance.random() < 0.3) for at in range(30)]
        shuffled = sorted(records, key=lambda record: record[1] + chance.randrange(6))  # some come late
        epochs = [shuffled[at : at + 5] for at in range(0, 30, 5)]
        flow = rd.Dataflow("upserts")
        stream = flow.from_epochs(epochs)
        orders = stream.as_collection(key=lambda r: r[0], order=lambda r: r[1], deleted=lambda r: r[2])
        orders.collect("out")
        newest: dict[int, tuple[int, int, bool]] = {}
        for record in records:
            newest[record[0]] = record
        got = table_of(flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"])
        assert got == Counter(record for record in newest.values() if not record[2])


def test_records_may_be_dicts_and_columns() -> None:
    """As change data capture has them: fields by name."""
    orders = [
        [{"id": 1, "at": 1, "customer": "ann", "sum": 10, "gone": False}, {"id": 2, "at": 1, "customer": "bob", "sum": 5, "gone": False}],
        [{"id": 1, "at": 2, "customer": "ann", "sum": 12, "gone": False}],
        [{"id": 2, "at": 3, "customer": "bob", "sum": 5, "gone": True}],
    ]
    flow = rd.Dataflow("orders")
    people = flow.from_arrow(pa.table({"name": ["ann", "bob"], "city": ["Oslo", None]})).as_collection()
    kept = flow.from_epochs(orders).as_collection(key="id", order="at", deleted="gone")
    kept.key_by("customer").sum(lambda order: order["sum"]).collect("sums")
    met = kept.key_by("customer").join(people.key_by("name"), "right")
    met.map(lambda m: {"city": m[1][1]["city"], "sum": m[1][0] and m[1][0]["sum"]}).distinct().collect("cities")
    result = flow.run(runtime="local", parallelism=2)
    assert table_of(result["sums"]) == {("ann", 12): 1}
    assert {(row["city"], row["sum"]): n for row, n in table_of(result["cities"]).items()} == {("Oslo", 12): 1, (None, None): 1}


def test_a_record_is_a_value() -> None:
    def changes(row: Any) -> Any:
        row["n"] = 2
        return row

    flow = rd.Dataflow("changed")
    flow.from_items([{"n": 1}]).as_collection().map(changes).collect("out")
    with pytest.raises(rd.DataflowError, match="a record of a collection is a value and is not changed"):
        flow.run(runtime="local")
    flow = rd.Dataflow("lists")
    flow.from_items([{"n": [1]}]).as_collection().collect("out")
    with pytest.raises(rd.DataflowError, match=r"\[1\] cannot be a record of a collection, nor a part of one: it is not hashable"):
        flow.run(runtime="local")


@pytest.mark.parametrize("record", [(1, float("nan")), {"k": 1, "v": float("nan")}, (1, (2, Decimal("NaN"))), float("nan")])
def test_nan_is_refused_since_no_removal_would_find_it(record: Any) -> None:
    """Found by hand: what a group made of a record with NaN stayed when the record went."""
    flow = rd.Dataflow("nan")
    flow.from_epochs([[record]]).as_collection().key_by(lambda r: 1).reduce(lambda key, values: [len(values)]).collect("out")
    with pytest.raises(rd.DataflowError, match=r"cannot be a record of a collection: NaN equals nothing.*give None"):
        flow.run(runtime="local")


def test_two_upserts_of_a_key_in_an_epoch_need_an_order() -> None:
    flow = rd.Dataflow("unordered")
    records = flow.from_epochs([[{"id": 1, "n": 1}, {"id": 1, "n": 2}]])
    records.as_collection(key="id").collect("out")
    with pytest.raises(rd.DataflowError, match=r"2 records of key 1 came in epoch 0.*which is the newest.*order="):
        flow.run(runtime="local")
    with pytest.raises(rd.DataflowError, match="order or deleted without key"):
        records.as_collection(order=len)


def test_a_live_collection_is_fed_while_it_runs(tmp_path: Path) -> None:
    flow = rd.Dataflow("live")
    edges = flow.collection("edges")
    edges.key_by(lambda edge: edge[0]).count().changes().probe("seen").collect("out")
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", parallelism=2)
    sent = job.collection("edges")
    sent.insert([(1, 2), (1, 3)])
    sent.advance_to(1)
    assert job.probe("seen").wait(0)
    sent.remove([(1, 2)])
    job.crash()
    sent.advance_to(2)
    assert job.probe("seen").wait(1)
    sent.close()
    assert table_of(job.wait()["out"]) == {(1, 1): 1}


@pytest.mark.parametrize("given", [pa.table, pa.RecordBatch.from_pydict, pd.DataFrame, pl.DataFrame, lambda c: pl.DataFrame(c).lazy()])
def test_a_live_collection_is_fed_in_columns(given: Any, tmp_path: Path) -> None:
    """They stay columns, and go in whatever form they are removed, also after a failure."""
    flow = rd.Dataflow("live")
    flow.collection("sales").key_by("shop").sum("n").changes().probe("seen").collect("out")
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", parallelism=2)
    sales = job.collection("sales")
    with patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}")):
        sales.insert(given({"shop": ["a", "a", "b"], "n": [1, 2, 4]}))
        sales.advance_to(1)
        assert job.probe("seen").wait(0)
        sales.remove(given({"shop": ["a"], "n": [2]}))
        job.crash()
        sales.advance_to(2)
        assert job.probe("seen").wait(1)
    sales.remove([{"shop": "b", "n": 4}])
    sales.insert([{"shop": "c", "n": 8}])
    sales.advance_to(3)
    sales.remove(given({"shop": ["c"], "n": [8]}))
    sales.close()
    assert table_of(job.wait()["out"]) == {("a", 1): 1}


def test_columns_that_a_collection_does_not_take_are_refused_where_they_are_given() -> None:
    flow = rd.Dataflow("live")
    flow.collection("sales").collect("out")
    job = flow.submit(runtime="local")
    sales = job.collection("sales")
    with pytest.raises(rd.DataflowError, match=r"a record of a collection has NaN in it"):
        sales.insert(pa.table({"n": [float("nan")]}))
    with pytest.raises(rd.DataflowError, match=r"what was given to remove\(\) of collection 'sales' is a Int64Array: give x.to_pylist\(\)"):
        sales.remove(pa.array([1]))
    with pytest.raises(rd.DataflowError, match=r"what was given to insert\(\) of collection 'sales' is the dict .*give a list of records"):
        sales.insert({"n": 1})
    with pytest.raises(rd.DataflowError, match=r"what was given to insert\(\) of collection 'sales' is 7: give a list of records"):
        sales.insert(7)
    sales.insert(pa.table({"n": [1]}))
    sales.insert(pa.table({"n": pa.array([], pa.int64())}))
    sales.close()
    assert table_of(job.wait()["out"]) == {Row({"n": 1}): 1}


def test_what_is_removed_in_columns_must_be_there() -> None:
    flow = rd.Dataflow("absent")
    flow.collection("edges").collect("out")
    job = flow.submit(runtime="local")
    with job.collection("edges") as edges:
        edges.insert(pa.table({"n": [1]}))
        edges.remove(pa.table({"n": [1, 1]}))
    with pytest.raises(rd.DataflowError, match=r"\{'n': 1\} was removed 1 times in epoch 0, and was there 0 times:"):
        job.wait()


def test_what_is_removed_must_be_there() -> None:
    flow = rd.Dataflow("absent")
    flow.collection("edges").collect("out")
    job = flow.submit(runtime="local")
    with job.collection("edges") as edges:
        edges.insert(["a"])
        edges.advance_to(1)
        edges.remove(["a", "a"])
    with pytest.raises(rd.DataflowError, match="'a' was removed 2 times in epoch 1, and was there 1 times: what is removed must have been"):
        job.wait()


def test_what_is_given_is_checked() -> None:
    flow = rd.Dataflow("refused")
    one = flow.from_epochs([[1]]).as_collection()
    with pytest.raises(rd.DataflowError, match=r"concat\(\) was given .*give collections"):
        one.concat(3)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match=r"join\(\) was given .*give a collection that has keys"):
        one.key_by(str).join(one)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="the body of a fixed point gave 7: it must give collections"):
        one.iterate(lambda inner: 7)  # type: ignore[arg-type, return-value]
    with pytest.raises(rd.DataflowError, match=r"the body of a fixed point gave \['b'\]: it must give the next round of \['a'\]"):
        rd.fixed_point({"a": one}, lambda inner: {"b": inner["a"]})
    inside: list[rd.Collection] = []
    one.iterate(lambda inner: inside.append(inner) or inner)  # type: ignore[func-returns-value]
    with pytest.raises(rd.DataflowError, match="inside a loop"):
        inside[0].changes()


def test_several_collections_reach_a_fixed_point_together() -> None:
    """Even and odd distances from a node: each is made from the other."""
    flow = rd.Dataflow("parity")
    edges = rd.Collection(flow.from_epochs([[((1, 2), 1), ((2, 3), 1), ((3, 4), 1), ((4, 2), 1)], [((4, 2), -1)]]))
    start = flow.from_items([1]).as_collection()
    none = start.filter(lambda node: False)

    def step(nodes: rd.Collection) -> rd.Collection:
        return nodes.key_by(lambda n: n).join(edges.key_by(lambda e: e[0])).map(lambda met: met[1][1][1])

    found = rd.fixed_point(
        {"even": start, "odd": none},
        lambda inner: {"even": step(inner["odd"]).concat(start).distinct(), "odd": step(inner["even"]).distinct()},
    )
    found["even"].collect("even")
    found["odd"].collect("odd")
    result = flow.run(runtime="local", parallelism=2)
    assert table_of(result["even"]) == {1: 1, 3: 1}
    assert table_of(result["odd"]) == {2: 1, 4: 1}


def test_max_rounds_ends_a_loop_that_would_go_on() -> None:
    flow = rd.Dataflow("counting")
    start = flow.from_items([0]).as_collection()
    start.iterate(lambda inner: inner.map(lambda n: n + 1), max_rounds=5).collect("out")
    assert table_of(flow.run(runtime="local")["out"]) == {5: 1}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_any_cut_into_epochs_gives_the_same_table(program: Any) -> None:
    changes = history(program.shape, 5)
    cut = [[change for some in changes for change in some]]
    tables = [table_of(program.flow(some).run(runtime="local", parallelism=2)["out"]) for some in (changes, cut)]
    assert tables[0] == tables[1]
