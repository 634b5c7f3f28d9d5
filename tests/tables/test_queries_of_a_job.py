"""``job.sql(...)``: what the tables of a query are, and that all of it is of one epoch; and records as columns of scanned tables."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.dataflow.operators.state.tables import RECORDS, column_of, values_of
from rayad.dataflow.records.values import Row
from rayad.progress import DataflowError
from tests.tables.bank import ACCOUNTS, START, TOTAL, program

ORDERS = pa.schema([("customer", pa.int64()), ("amount", pa.decimal128(10, 2)), ("at", pa.timestamp("us"))])
NOON = dt.datetime(2026, 11, 30, 12)


def order(customer: int, amount: int | str) -> dict[str, Any]:
    return {"customer": customer, "amount": Decimal(amount), "at": NOON}


def shop(**options: Any) -> LocalJob:
    """A live collection and a query over it, words, and what is computed of them."""
    flow = rd.Dataflow("shop")
    orders = flow.collection("orders", schema=ORDERS)
    totals = flow.sql("select customer, sum(amount) as total, count(*) as n from orders group by customer", orders=orders)
    totals.arrange_by("customer", name="totals")
    orders.distinct(name="different")
    flow.input("people").as_collection(key="id", name="newest")
    words = flow.input("words")
    words.key_by(lambda word: (word[0], len(word))).count(name="By Initial")
    words.key_by(len).latest(lambda word: word, lambda word: {"word": word, "first": word[0]}, name="last")
    job: LocalJob = flow.submit(runtime="local", **options)
    return job


def filled(job: LocalJob) -> LocalJob:
    live = job.collection("orders")
    live.insert([order(1, 20), order(2, 5), order(2, 5)])
    live.advance_to(1)
    job.input("words").send(["tea", "toast", "milk"])
    job.input("words").advance_to(1)
    job.input("people").send([{"id": 7, "name": "ann"}, {"id": 8, "name": None}])
    job.input("people").advance_to(1)
    return job


def rows(job: LocalJob, query: str, **options: Any) -> list[dict[str, Any]]:
    return sorted(job.sql(query, **options).to_pylist(), key=repr)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_records_are_columns_and_each_is_there_as_often_as_it_counts(parallelism: int) -> None:
    job = filled(shop(parallelism=parallelism))
    assert rows(job, "select * from orders", fresh=True) == [order(1, 20), order(2, 5), order(2, 5)]
    assert rows(job, "select * from different") == [order(1, 20), order(2, 5)]
    assert rows(job, "select customer, total, n from totals") == [
        {"customer": 1, "total": Decimal("20.00"), "n": 1},
        {"customer": 2, "total": Decimal("10.00"), "n": 2},
    ]
    assert rows(job, "select * from newest") == [{"key": 7, "id": 7, "name": "ann"}, {"key": 8, "id": 8, "name": None}]
    assert rows(job, 'select key0, key1, count from "By Initial" where key1 < 5') == [
        {"key0": "m", "key1": 4, "count": 1},
        {"key0": "t", "key1": 3, "count": 1},
    ]
    assert rows(job, "select word, first, key from last where key = 3") == [{"word": "tea", "first": "t", "key": 3}]
    both = "with some as (select total, n from totals) select o.amount, s.total from orders o join some s on s.n = o.customer"
    assert rows(job, both) == [{"amount": Decimal("20.00"), "total": Decimal("20.00")}] + [{"amount": Decimal(5), "total": Decimal(10)}] * 2
    assert rows(job, "select 1 + 1 as two") == [{"two": 2}]


def test_columns_are_known_before_anything_is_there() -> None:
    job = shop()
    found = job.sql("select sum(total) as total, count(*) as rows from totals")
    assert (found.to_pylist(), found.schema.field("total").type) == ([{"total": None, "rows": 0}], pa.decimal128(30, 2))
    assert int(found.schema.metadata[b"rayad.epoch"]) == -1
    for table in ("orders", "different"):
        assert job.sql(f"select * from {table}").schema.remove_metadata() == ORDERS
        assert job.table(table).scan().schema.field("key").type == pa.struct(list(ORDERS))


def test_what_has_no_rows_any_more_keeps_its_columns() -> None:
    job = filled(shop())
    live = job.collection("orders")
    live.remove([order(1, 20), order(2, 5), order(2, 5)])
    live.advance_to(2)
    assert job.sql("select at, amount from orders", fresh=True).num_rows == 0
    assert rows(job, "select count(n) as n from totals") == [{"n": 0}]


@pytest.mark.parametrize("in_columns", [True, False])
def test_of_a_log_of_changes_the_rows_are_the_table(in_columns: bool) -> None:
    row = pa.struct([("id", pa.int64()), ("name", pa.string())])
    schema = pa.schema([("op", pa.string()), ("before", row), ("after", row), ("lsn", pa.int64())])
    flow = rd.Dataflow("log")
    said = flow.input("log").map_batches(lambda batch: batch, schema=schema)
    said.as_collection(key="id", order="lsn", envelope="debezium", name="people").changes().collect("out")
    job: LocalJob = flow.submit(runtime="local", parallelism=2)
    assert job.sql("select * from people").schema.remove_metadata() == pa.schema([("key", pa.int64()), *row])
    log = job.input("log")
    some = [
        {"op": "c", "before": None, "after": {"id": 1, "name": "ann"}, "lsn": 1},
        {"op": "c", "before": None, "after": {"id": 2, "name": "bob"}, "lsn": 2},
    ]
    gone = [{"op": "d", "before": {"id": 2, "name": "bob"}, "after": None, "lsn": 3}]
    for epoch, records in enumerate((some, gone)):
        log.send(pa.RecordBatch.from_pylist(records, schema) if in_columns else records)
        log.advance_to(epoch + 1)
    assert job.table("people").get(1, fresh=True).value == {"id": 1, "name": "ann"}
    assert job.table("people").get(2).value is None
    assert rows(job, "select id, name from people") == [{"id": 1, "name": "ann"}]


WIDE = pa.schema(
    [
        *(("k", pa.int64()), ("t", pa.string()), ("d", pa.date32()), ("x", pa.decimal128(9, 2)), ("f", pa.float64()), ("b", pa.bool_())),
        ("in", pa.struct([("y", pa.int32())])),
    ]
)


def wide(chance: random.Random) -> dict[str, Any]:
    """A record with nulls, of which some are the same."""
    some: dict[str, Any] = {
        "k": chance.choice([1, 2, None]),
        "t": chance.choice(["a", None]),
        "d": dt.date(2026, 1, chance.randrange(1, 4)),
    }
    more = {"x": Decimal(chance.randrange(3)), "f": chance.choice([0.5, None]), "b": chance.choice([True, None])}
    return {**some, **more, "in": chance.choice([None, {"y": 1}])}


def test_a_scan_is_the_same_whether_records_are_rows_or_columns() -> None:
    chance, found = random.Random(3), []
    epochs = [[wide(chance) for _ in range(20)] for _ in range(3)]
    for in_columns in ((False, False, False), (True, True, True), (True, False, True)):
        flow = rd.Dataflow("wide")
        records = flow.input("in").map_batches(lambda batch: batch, schema=WIDE).as_collection()
        records.arrange_by("k", name="by k")
        records.distinct(name="different").changes().probe("seen")
        records.arrange_by(lambda record: (record["k"], record["t"]), name="by two")
        job: LocalJob = flow.submit(runtime="local", parallelism=2)
        for epoch, (some, is_batch) in enumerate(zip(epochs, in_columns, strict=True)):
            job.input("in").send(pa.RecordBatch.from_pylist(some, WIDE) if is_batch else some)
            job.input("in").advance_to(epoch + 1)
        tables = [job.table(name).scan(fresh=True) for name in ("by k", "different", "by two")]
        found.append([(sorted(map(repr, table.to_pylist())), table.schema.to_string(show_field_metadata=True)) for table in tables])
    assert found[0] == found[1] == found[2]


DAY, MOMENT = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4, 5, 6)
OF_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -1]), (pa.uint64(), [2**63, 1]), (pa.float32(), [0.5, -0.0]), (pa.float16(), [0.5, 1.0]), (pa.bool_(), [True, False]),
    (pa.string(), ["a", ""]), (pa.large_string(), ["a", "b"]), (pa.string_view(), ["a", "b"]), (pa.binary(), [b"a", b""]),
    (pa.binary(2), [b"ab", b"cd"]), (pa.date32(), [DAY, dt.date(1, 1, 1)]), (pa.date64(), [DAY, dt.date(2000, 1, 1)]),
    (pa.timestamp("s"), [MOMENT.replace(microsecond=0), dt.datetime(1900, 1, 1)]), (pa.timestamp("us"), [MOMENT, dt.datetime(1900, 1, 1)]),
    (pa.timestamp("us", "Europe/Berlin"), [MOMENT.replace(tzinfo=dt.UTC), dt.datetime(2025, 7, 1, tzinfo=dt.UTC)]),
    (pa.time64("us"), [dt.time(1, 2, 3), dt.time(0)]), (pa.duration("us"), [dt.timedelta(1), dt.timedelta(-1)]),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25")]), (pa.decimal256(60, 3), [Decimal("1.500"), Decimal("9" * 50)]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]), (pa.null(), [None, None]),
    (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": None}, {"x": None, "y": "b"}]),
    (pa.struct([("x", pa.struct([("z", pa.date32())]))]), [{"x": {"z": DAY}}, {"x": None}]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), OF_TYPES, ids=[str(kind) for kind, _ in OF_TYPES])
def test_a_scan_of_a_type_is_the_same_in_both_forms(kind: pa.DataType, values: list[Any]) -> None:
    schema, found = pa.schema([("id", pa.int64()), ("v", kind)]), []
    some = [{"id": at, "v": value} for at, value in enumerate([*values, None])]
    for records in (some, pa.RecordBatch.from_pylist(some, schema)):
        flow = rd.Dataflow("type")
        stream = flow.input("in").map_batches(lambda batch: batch, schema=schema)
        stream.as_collection().arrange_by("id", name="by id")
        stream.as_collection().arrange_by("v", name="by value")
        stream.as_collection().distinct(name="different").changes().probe("seen")
        stream.as_collection(key="id", name="newest").changes().probe("seen too")
        job: LocalJob = flow.submit(runtime="local", parallelism=2)
        job.input("in").send(records)
        job.input("in").advance_to(1)
        tables = [job.table(name).scan(fresh=True) for name in ("by id", "by value", "different", "newest")]
        found.append([(sorted(map(repr, table.to_pylist())), table.schema.to_string(show_field_metadata=True)) for table in tables])
        assert job.sql('select id, v from "by id"').num_rows == 3
    assert found[0] == found[1]


def test_a_record_that_has_more_fields_than_the_schema_or_other_values_is_shown_as_it_is() -> None:
    flow = rd.Dataflow("loose")
    flow.collection("orders", schema=pa.schema([("n", pa.int64())])).changes().collect("orders")
    job: LocalJob = flow.submit(runtime="local")
    live = job.collection("orders")
    live.insert([{"n": 1, "more": "x"}, {"n": 2, "more": "y"}])
    live.advance_to(1)
    assert rows(job, "select * from orders", fresh=True) == [{"n": 1, "more": "x"}, {"n": 2, "more": "y"}]
    live.insert([{"n": 1.5, "more": "z"}])
    live.advance_to(2)
    assert rows(job, "select sum(n) as n from orders", fresh=True) == [{"n": 4.5}]


def test_a_query_is_of_one_epoch_whatever_is_under_way() -> None:
    job, rng = program().submit(runtime="local", parallelism=3, seed=5), random.Random(5)
    moves = job.input("moves")
    moves.send([(account, START) for account in range(ACCOUNTS)])
    moves.advance_to(1)
    query = "select (select sum(sum) from balances) as one, (select sum(sum) from columns) as two"
    assert rows(job, query, fresh=True) == [{"one": TOTAL, "two": TOTAL}]
    last = 0
    for epoch in range(1, 40):
        left, right = rng.sample(range(ACCOUNTS), 2)
        moves.send([(left, -epoch)])
        moves.send([(right, epoch)])
        moves.advance_to(epoch + 1)
        found = job.sql(query)
        last, before = int(found.schema.metadata[b"rayad.epoch"]), last
        assert found.to_pylist() == [{"one": TOTAL, "two": TOTAL}]
    assert last >= before


def test_a_query_over_what_is_committed(tmp_path: Path) -> None:
    job = filled(shop(run=rd.RunConfig(storage_path=str(tmp_path))))
    assert rows(job, "select count(*) as n from orders", fresh=True) == [{"n": 3}]
    job.savepoint()
    job.collection("orders").insert([order(3, 1)])
    job.collection("orders").advance_to(2)
    assert rows(job, "select count(*) as n from orders", fresh=True) == [{"n": 4}]
    assert rows(job, "select count(*) as n from orders", committed=True) == [{"n": 3}]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("selec 1", "Expected: an SQL statement, found: selec"),
        ("select y from totals", "No field named y. The columns there are: totals.key, totals.customer, totals.total, totals.n"),
        ("select * from nothing", "has no operator with state 'nothing': it has"),
        ("insert into totals select * from totals", "DML not supported"),
        ("create table t (a int)", "DDL not supported"),
        ("", "job.sql: query"),
    ],
)
def test_what_cannot_be_run_is_told(query: str, told: str) -> None:
    with pytest.raises(DataflowError, match=told.replace("(", r"\(")):
        shop().sql(query)


def test_a_scanned_table_goes_into_other_engines() -> None:
    totals = filled(shop()).table("totals").scan(fresh=True)
    assert duckdb.from_arrow(totals).query("totals", "select key, value.total from totals order by key").fetchall() == [
        (1, Decimal(20)),
        (2, Decimal(10)),
    ]


# -- records as columns of state ----------------------------------------------------------------------------------------
VALUES = st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=2), st.tuples(st.integers(0, 2)), st.frozensets(st.integers(0, 2)))
RECORD = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3).map(Row)


@given(st.lists(st.one_of(st.none(), RECORD, st.builds(Row, inner=RECORD), VALUES), max_size=6))
def test_values_of_a_state_come_back_as_they_were(values: list[Any]) -> None:
    array, field = column_of(values, "value")
    back = values_of(array, field)
    assert back == values
    assert list(map(type, back)) == list(map(type, values))


@given(st.lists(st.one_of(st.none(), st.fixed_dictionaries({"a": VALUES, "b": st.integers(0, 3)}).map(Row)), max_size=6))
def test_so_they_do_where_the_schema_is_known(values: list[Any]) -> None:
    known = pa.field("value", pa.struct([("a", pa.int64()), ("b", pa.int64())]), metadata=RECORDS)
    array, field = column_of(values, "value", known)
    back = values_of(array, field)
    assert (back, list(map(type, back))) == (values, list(map(type, values)))
    if all(value is None or value["a"] is None or type(value["a"]) is int for value in values):
        assert field.equals(known, check_metadata=True)
    assert all(hash(value) == hash(was) for value, was in zip(back, values, strict=True))


def test_fields_of_records_have_no_order() -> None:
    array, field = column_of([Row(a=1, b=2), Row(b=3, a=4)], "value")
    assert array.to_pylist() == [{"a": 1, "b": 2}, {"a": 4, "b": 3}]
    assert values_of(array, field) == [Row(a=1, b=2), Row(b=3, a=4)]
