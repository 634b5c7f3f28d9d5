"""What may be a table of a query, and what a result may be used for."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental import moment_vertex

ORDERS = pa.schema([("customer", pa.string()), ("amount", pa.decimal128(9, 2)), ("day", pa.date32())])


def test_a_live_collection_is_followed() -> None:
    flow = rd.Dataflow("live")
    orders = flow.collection("orders", schema=ORDERS)
    totals = flow.sql("select customer, sum(amount) as total, max(day) as last from orders group by customer", orders=orders)
    assert totals.schema == pa.schema([("customer", pa.string()), ("total", pa.decimal128(19, 2)), ("last", pa.date32())])
    totals.changes().probe("seen").collect("totals")
    job = flow.submit(runtime="local")
    day = dt.date(2026, 11, 30)
    with job.collection("orders") as live:
        live.insert([{"customer": "ann", "amount": Decimal("1.50"), "day": day}, {"customer": "bob", "amount": Decimal(2), "day": day}])
        live.advance_to(1)
        live.insert(pa.table({"customer": ["ann"], "amount": [Decimal("0.25")], "day": [day]}, ORDERS))
        live.remove([{"customer": "bob", "amount": Decimal(2), "day": day}])
    found = Counter({(time.epoch, tuple(record.values())): weight for time, (record, weight) in job.wait()["totals"]})
    assert found == {
        (0, ("ann", Decimal("1.50"), day)): 1,
        (0, ("bob", Decimal("2.00"), day)): 1,
        (1, ("ann", Decimal("1.50"), day)): -1,
        (1, ("ann", Decimal("1.75"), day)): 1,
        (1, ("bob", Decimal("2.00"), day)): -1,
    }


def test_the_newest_records_are_a_table() -> None:
    """As change data capture gives them: replaced, corrected late, and gone."""
    rows = {
        "epoch": [0, 0, 1, 1, 2],
        "id": [1, 2, 1, 2, 2],
        "at": [10, 10, 12, 9, 13],
        "city": ["rome", "oslo", "oslo", "rome", "oslo"],
        "gone": [False, False, False, False, True],
    }
    flow = rd.Dataflow("captured")
    people = flow.from_arrow(pa.table(rows), epoch="epoch").as_collection(key="id", order="at", deleted="gone")
    flow.sql("select city, count(*) as n from people group by city", people=people).collect("cities")
    found = Counter({(time.epoch, *record.values()): weight for time, (record, weight) in flow.run(runtime="local")["cities"]})
    assert found == {
        (0, "rome", 1): 1,
        (0, "oslo", 1): 1,
        (1, "rome", 1): -1,
        (1, "oslo", 1): -1,
        (1, "oslo", 2): 1,
        (2, "oslo", 2): -1,
        (2, "oslo", 1): 1,
    }


def test_a_result_is_a_table_of_another_query_and_goes_into_a_loop() -> None:
    flow = rd.Dataflow("further")
    edges = flow.from_arrow(pa.table({"a": [1, 2, 3], "b": [2, 3, 1]})).as_collection()
    up = flow.sql("select a, b from edges where a < b", edges=edges)
    assert up.schema is not None

    def further(inner: rd.Collection) -> rd.Collection:
        both = flow.sql(
            "select up.a, walks.b from up join walks on up.b = walks.a union select a, b from up", up=up, walks=inner.with_schema(up.schema)
        )
        return both

    walks = up.iterate(further).with_schema(up.schema)
    flow.sql("select count(*) as n from walks", walks=walks).collect("n")
    assert [record for _, (record, _) in flow.run(runtime="local")["n"]] == [{"n": 3}]


def test_columns_are_known_behind_what_keeps_them() -> None:
    flow = rd.Dataflow("kept")
    stream = flow.from_arrow(pa.table({"a": [1], "diff": [1]}))
    assert stream.as_collection(diff="diff").schema == pa.schema([("a", pa.int64())])
    made = stream.as_collection()
    for kept in (made.filter(rd.col("a") > 0), made.distinct(), made.negate(), made.consolidate(), made.concat(made)):
        assert kept.schema == made.schema
    assert made.map(lambda record: record).schema is None
    assert made.select("a").schema == pa.schema([("a", pa.int64())])
    assert made.with_columns({"b": rd.col("a") > 0}).schema == pa.schema([("a", pa.int64()), ("diff", pa.int64()), ("b", pa.bool_())])


def test_columns_stay_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python object is made for a row before the end, and no row is handled by a vertex."""
    monkeypatch.setattr(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
    flow = rd.Dataflow("columns")
    rows: dict[str, Any] = {
        "k": [1, 2, 3, None],
        "v": [1, 2, 3, 4],
        "d": pa.array([Decimal(1), Decimal(2), None, Decimal(4)], pa.decimal128(12, 2)),
        "wide": pa.array([Decimal(1), Decimal(2), None, Decimal(4)], pa.decimal128(30, 2)),
        "s": ["x", "y", None, "z"],
    }
    t = flow.from_arrow(pa.table(rows)).as_collection()
    u = flow.from_arrow(pa.table({"k": [1, 2], "name": ["a", "b"]})).as_collection()
    queries = (
        "select name, sum(v) a, sum(d) b, sum(wide) c, avg(v) e, count(*) n, min(v) lo, max(s) hi from t join u on t.k = u.k group by name",
        "select t.k, name from t left join u on t.k = u.k and v > 1",
        "select k, count(distinct v) a, stddev(v) b, count(*) filter (where v > 1) c from t group by k",
        "select k, rank() over (partition by k order by v) r, sum(v) over (partition by k) s from t",
        "select v from t where k not in (select k from u) order by v desc limit 2",
        "select k from t union select k from u",
    )
    for at, query in enumerate(queries):
        flow.sql(query, **{name: table for name, table in (("t", t), ("u", u)) if f" {name}" in query}).collect(str(at))
    assert all(flow.run(runtime="local", parallelism=2)[str(at)] for at in range(len(queries)))


def test_names_of_tables_and_columns_may_need_quotes() -> None:
    flow = rd.Dataflow("quotes")
    table = flow.from_arrow(pa.table({"Big Name": [1], "select": [2], "a.b": [3]})).as_collection()
    flow.sql('select "Big Name" as x, "select", "a.b" from "Order"', Order=table).collect("out")
    assert [record for _, (record, _) in flow.run(runtime="local")["out"]] == [{"x": 1, "select": 2, "a.b": 3}]


KINDS = {
    "i8": pa.array([1, None, -3], pa.int8()),
    "u64": pa.array([1, None, 2**63], pa.uint64()),
    "f32": pa.array([1.5, None, -0.0], pa.float32()),
    "utc": pa.array([dt.datetime(2026, 1, 31, 23, 30), None, dt.datetime(1969, 1, 1)], pa.timestamp("us", "UTC")),
    "ns": pa.array([1, None, -1], pa.timestamp("ns")),
    "word": pa.array(["x", None, "y"], pa.dictionary(pa.int32(), pa.string())),
    "large": pa.array(["x", None, "y"], pa.large_string()),
    "view": pa.array(["x", None, "y"], pa.string_view()),
    "bytes": pa.array([b"x", None, b"\xff"], pa.binary()),
    "clock": pa.array([dt.time(1, 2), None, dt.time(3)], pa.time64("us")),
    "length": pa.array([1, None, 3], pa.duration("s")),
    "address": pa.array([{"city": "Rome", "zip": 1}, {"city": None, "zip": 2}, {"city": "Oslo", "zip": None}]),
}


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_all_types_come_through(kind: str, rows: bool) -> None:
    """As they are, as keys, as the smallest and largest, and sorted."""
    flow, table = rd.Dataflow("kinds"), pa.table({"n": [1, 2, 3], "v": KINDS[kind]})
    stream = flow.from_items(table.to_pylist()) if rows and kind != "ns" else flow.from_arrow(table)
    t = stream.as_collection().with_schema(table.schema)
    flow.sql("select n, v from t", t=t).collect("as is")
    flow.sql("select v, count(*) as n from t group by v", t=t).collect("keys")
    flow.sql("select x.n from t x join t y on x.v is not distinct from y.v", t=t).collect("met")
    if kind != "address":
        flow.sql("select min(v) as lo, max(v) as hi from t", t=t).collect("ends")
        flow.sql("select n from t order by v limit 1", t=t).collect("first")
    else:
        flow.sql("select n, v['city'] as city from t where v['zip'] is null", t=t).collect("city")
    result = flow.run(runtime="local")
    by_number = {record["n"]: record["v"] for _, (record, _) in result["as is"]}
    values = [by_number[number] for number in (1, 2, 3)]
    assert {record["v"] for _, (record, _) in result["keys"]} == set(values)
    assert sorted(record["n"] for _, (record, _) in result["met"]) == [1, 2, 3]
    if kind == "address":
        assert [record for _, (record, _) in result["city"]] == [{"n": 3, "city": "Oslo"}]
        return
    some = sorted(value for value in values if value is not None)
    assert [record for _, (record, _) in result["ends"]] == [{"lo": some[0], "hi": some[-1]}]
    assert [record["n"] for _, (record, _) in result["first"]] == [values.index(some[0]) + 1]


def test_columns_that_no_record_holds_are_refused_unless_they_are_not_read() -> None:
    flow = rd.Dataflow("lists")
    t = flow.from_arrow(pa.table({"a": [1], "l": [[1, 2]]})).as_collection()
    with pytest.raises(rd.DataflowError, match=r"a column of the type list<.*> is not supported: leave it out, or cast it"):
        flow.sql("select l from t", t=t)
    assert flow.sql("select a from t", t=t).schema == pa.schema([("a", pa.int64())])


def test_a_result_is_read_while_the_job_runs() -> None:
    flow = rd.Dataflow("read")
    orders = flow.collection("orders", schema=ORDERS)
    totals = flow.sql("select customer, sum(amount) as total from orders group by customer", orders=orders)
    totals.arrange_by("customer", name="totals").join(orders.key_by("customer")).changes().probe("seen")
    job = flow.submit(runtime="local")
    with job.collection("orders") as live:
        live.insert([{"customer": "ann", "amount": Decimal("1.50"), "day": None}])
        live.advance_to(1)
        assert job.probe("seen").wait(0)
        assert job.table("totals").get("ann").value == [{"customer": "ann", "total": Decimal("1.50")}]
    job.wait()


def test_equal_parts_of_a_plan_are_computed_once() -> None:
    flow = rd.Dataflow("once")
    t = flow.from_arrow(pa.table({"a": [1, 2, 2], "b": [3, 4, 5]})).as_collection()
    flow.sql("with x as (select a, sum(b) as n from t group by a) select p.a, q.n from x p join x q on p.n < q.n", t=t).collect("out")
    assert sum("aggregate" in node.name for node in flow.graph.nodes) == 1
    assert [record for _, (record, _) in flow.run(runtime="local")["out"]] == [{"a": 1, "n": 9}]
