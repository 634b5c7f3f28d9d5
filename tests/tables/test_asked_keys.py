"""Which keys a query of a running job reads: it has the rows that it had if all were read, whatever its conditions and its form."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow import hooks
from rayad.dataflow.operators.state.tables import KEY_FIELD, PICKLED, RECORDS, Entries, column_of, table_of
from rayad.dataflow.records.values import Row
from rayad.sql.asked_keys import keys_of_query
from rayad.sql.asking import run_query
from tests.thorough import examples

WORDS = ["tea", "milk", "a'b", "", "TEA"]
COUNTS = table_of(Entries([*WORDS, None], {"count": [3, 1, 4, 1, 5, 9]}))
PEOPLE = table_of(
    Entries([1, 2, 3, 7], {"value": [Row(id=1, word="tea"), Row(id=2, word=None), Row(id=3, word="milk"), Row(id=7, word="tea")]})
)
PEOPLE = PEOPLE.cast(pa.schema([PEOPLE.schema.field("key").with_metadata({KEY_FIELD: "id"}), PEOPLE.schema.field("value")]))
PAIRS = table_of(Entries([("a", 1), ("a", 2), ("b", 1)], {"sum": [1, 2, 3]}))
TABLES = {"counts": COUNTS, "people": PEOPLE, "pairs": PAIRS}
SCHEMAS = {name: table.schema for name, table in TABLES.items()}


def asked(query: str) -> dict[str, set[Any]]:
    return {name: set(keys) for name, keys in keys_of_query(query, SCHEMAS).items()}


def literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else "null" if value is None else str(value)


def conditions(columns: dict[str, list[Any]]) -> st.SearchStrategy[str]:
    """Conditions over columns with these values."""

    def of(name: str) -> st.SearchStrategy[str]:
        values = st.sampled_from(columns[name]).map(literal)
        some = st.lists(values, min_size=1, max_size=5).map(lambda them: f"({', '.join(them)})")
        compared = st.tuples(st.sampled_from(["=", "=", "=", "<>", "<", ">="]), values).map(" ".join)
        inside = st.tuples(st.sampled_from(["in", "in", "not in"]), some).map(" ".join)
        turned = values.map(lambda value: f"{value} = {name}")
        return st.one_of(compared.map(lambda it: f"{name} {it}"), inside.map(lambda it: f"{name} {it}"), turned, st.just(f"{name} is null"))

    one = st.sampled_from(sorted(columns)).flatmap(of)
    joined = lambda inner: st.one_of(  # noqa: E731
        st.tuples(inner, st.sampled_from([" and ", " and ", " or "]), inner).map(lambda it: f"({''.join(it)})"),
        inner.map(lambda it: f"not {it}"),
    )
    return st.recursive(one, joined, max_leaves=5)


ON_COUNTS = conditions({"c.key": [*WORDS, "none"], "c.count": [1, 3, 9]})
ON_PEOPLE = conditions({"p.id": [1, 2, 7, 8], "p.word": ["tea", None], "p.key": [3, 7]}).filter(lambda it: it != "p.key is null")
ON_PAIRS = conditions({"d.key0": ["a", "b"], "d.key1": [1, 2], "d.sum": [3]})
FORMS = [
    "select * from counts c where {c}",
    "select c.key, count from counts c where {c} union all select p.word, p.id from people p where {p}",
    "select * from counts c join people p on c.key = p.word where {c} and {p}",
    "select * from people p left join counts c on c.key = p.word and {c} where {p}",
    "select * from people p full join counts c on c.key = p.word and {c}",
    "select p.id from people p where {p} and exists (select 1 from counts c where c.key = p.word and {c})",
    "select p.id from people p where p.word not in (select key from counts c where key is not null and {c})",
    "select p.id, (select max(count) from counts c where {c}) from people p where {p}",
    "select c.key from counts c where {c} and count < (select max(c.count) from counts c)",
    "select c.key, x.key from counts c, counts x where {c} and x.count = c.count",
    "with some as (select * from counts c where {c}) select s.key, t.key from some s, some t where t.key = 'tea'",
    "select key, sum(count) from counts c group by key having max(key) <> 'x' and key = 'milk'",
    "select * from pairs d where {d}",
    "select * from pairs d join people p on d.key1 = p.id where {d} or {p}",
    "select key, rank() over (order by count) from counts c where {c}",
    "select * from (select key, rank() over (order by count) as n from counts c) c where key = 'tea'",
]


@pytest.mark.parametrize("form", FORMS)
@given(ON_COUNTS, ON_PEOPLE, ON_PAIRS)
@examples(each_run=12, soak=300)
def test_a_query_has_the_rows_that_it_has_of_whole_tables(form: str, on_counts: str, on_people: str, on_pairs: str) -> None:
    query = form.format(c=on_counts, p=on_people, d=on_pairs)
    read = dict(TABLES)
    for name, keys in keys_of_query(query, SCHEMAS).items():
        table = read[name]
        parts = [name for name in table.schema.names if name.startswith("key")]
        there = list(zip(*(table.column(part).to_pylist() for part in parts), strict=True))
        wanted = {key if isinstance(key, tuple) else (key,) for key in keys}
        read[name] = table.filter(pa.array([key in wanted for key in there]))
    found, expected = ([sorted(map(repr, run_query(query, tables).to_pylist()))] for tables in (read, TABLES))
    assert found == expected


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("select * from counts where key = 'tea' and count > 2", {"counts": {"tea"}}),
        ("select * from counts where key in ('tea', 'milk', 'x', 'y', 'z') and key in ('milk', 'z')", {"counts": {"milk", "z"}}),
        ("select * from counts where key = 'tea' or (key = 'milk' and count = 1)", {"counts": {"tea", "milk"}}),
        ("select * from counts where key = 'tea' or count = 1", {}),
        ("select * from counts where key like 'tea' or key = 'x'", {"counts": {"tea", "x"}}),
        ("select * from counts where upper(key) = 'TEA'", {}),
        ("select * from people where id = 7", {"people": {7}}),
        ("select * from people where id = 7.0", {"people": {7}}),
        ("select * from people where word = 'tea'", {}),
        (
            "select * from people p join counts c on c.key = p.word where p.id in (1, 7) and c.key = 'tea'",
            {"people": {1, 7}, "counts": {"tea"}},
        ),
        ("select * from people p join counts c on c.key = p.word where p.id = 1", {"people": {1}}),
        ("select 1 from counts a, counts b where a.key = 'tea' and b.key = 'milk'", {"counts": {"tea", "milk"}}),
        ("select 1 from counts a, counts b where a.key = 'tea'", {}),
        ("select * from pairs where key0 = 'a' and key1 in (1, 2)", {"pairs": {("a", 1), ("a", 2)}}),
        ("select * from pairs where key0 = 'a'", {}),
        ("select * from counts where no_column = 'tea'", {}),
    ],
)
def test_literals_beside_the_key_say_which_rows_are_read(query: str, keys: dict[str, set[Any]]) -> None:
    assert asked(query) == keys


NOON = dt.datetime(2026, 12, 1, 12)


@pytest.mark.parametrize(
    ("keys", "condition", "found"),
    [
        ([1, 2], "key = 1", {1}),
        ([True, False], "key = true", set()),  # DataFusion makes it the column itself
        ([b"x", b"y"], "key = x'78'", {b"x"}),
        ([dt.date(2026, 12, 1)], "key = date '2026-12-01'", {dt.date(2026, 12, 1)}),
        ([0.5, 1.0], "key = 1", set()),  # and of floats not every equal one is equal in Python
        ([NOON], "key = timestamp '2026-12-01 12:00:00'", set()),
        ([{"a": 1}], "a = 1", set()),
        ([1, "a"], "key = '1'", set()),
    ],
)
def test_keys_of_types_that_are_not_the_same_in_both_are_not_told(keys: list[Any], condition: str, found: set[Any]) -> None:
    array, field = column_of(keys, "key")
    schema = pa.schema([field, pa.field("count", pa.int64())])
    assert array.type == field.type
    assert set(keys_of_query(f"select count from t where {condition}", {"t": schema}).get("t", ())) == found


def test_a_record_is_a_key_where_all_its_fields_are_told() -> None:
    field = pa.field("key", pa.struct([("a", pa.int64()), ("b", pa.string())]), metadata=RECORDS)
    schemas = {"t": pa.schema([field, pa.field("sum", pa.int64())])}
    assert keys_of_query("select sum from t where b = 'x' and a = 1", schemas) == {"t": (Row(a=1, b="x"),)}
    assert keys_of_query("select sum from t where b = 'x'", schemas) == {}


def test_a_column_that_is_called_as_the_key_is_not_the_key() -> None:
    value = pa.field("value", pa.struct([("key", pa.string())]), metadata=RECORDS)
    assert keys_of_query("select * from t where key = 'x'", {"t": pa.schema([pa.field("key", pa.string()), value])}) == {}
    pickled = pa.field("key", pa.binary(), metadata=PICKLED)
    assert keys_of_query("select * from t where key = x'00'", {"t": pa.schema([pickled])}) == {}


def test_a_running_job_is_asked_for_these_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = rd.Dataflow("shop")
    orders = flow.collection("orders", schema=pa.schema([("customer", pa.int64()), ("amount", pa.int64())]))
    flow.sql("select customer, sum(amount) as total from orders group by customer", orders=orders).arrange_by("customer", name="totals")
    words = flow.input("words")
    words.key_by(lambda word: word).count(name="counts").collect("out")
    words.key_by(lambda word: (word[0], len(word))).count(name="pairs")
    words.key_by(lambda word: word[0] if word != "xyz" else 5).latest(len, lambda word: [word], name="mixed")
    job: Any = flow.submit(runtime="local", parallelism=3)
    job.collection("orders").insert([{"customer": at % 7, "amount": at} for at in range(70)])
    job.collection("orders").advance_to(1)
    job.input("words").send([f"{first}{'x' * size}" for first in "abc" for size in range(1, 4) for _ in range(size)])
    job.input("words").advance_to(1)
    said: list[dict[str, Any]] = []
    as_it_is = hooks._hooks["keys_of_query"]
    monkeypatch.setitem(hooks._hooks, "keys_of_query", lambda *given: said.append(as_it_is(*given)) or said[-1])

    def rows(query: str, **options: Any) -> list[dict[str, Any]]:
        return sorted(job.sql(query, **options).to_pylist(), key=repr)

    assert rows("select customer, total from totals where customer in (3, 4, 99)", fresh=True) == [
        {"customer": 3, "total": 345},
        {"customer": 4, "total": 355},
    ]
    assert said == [{"totals": (3, 4, 99)}] or set(said[0]["totals"]) == {3, 4, 99}
    said.clear()
    for _ in range(2):  # what its columns are is known from the first time
        assert rows("select count from counts where key = 'axx'", fresh=True) == [{"count": 2}]
    assert [list(each.values()) for each in said if each] == [[("axx",)]]
    assert rows("select count from counts where key = 'nobody'") == []
    assert rows("select sum(count) as n from counts where key = 'nobody'") == [{"n": None}]
    assert rows("select * from pairs where key0 = 'a' and key1 > 3") == [{"key0": "a", "key1": 4, "count": 3}]
    assert rows("select * from pairs where key0 = 'b' and key1 = 3") == [{"key0": "b", "key1": 3, "count": 2}]
    both = "select t.total, c.count from totals t, counts c where t.customer = 0 and c.key in ('bx', 'cxxx')"
    assert rows(both) == [{"total": 315, "count": 1}, {"total": 315, "count": 3}]
    assert said[-1].keys() == {"totals", "counts"}
    found = job.sql("select c.key, p.key1 from counts c join pairs p on p.count = c.count where c.key = 'cxxx'")
    assert (set(said[-1]), pc.unique(found.column("key")).to_pylist()) == ({"counts"}, ["cxxx"])
    assert int(found.schema.metadata[b"rayad.epoch"]) == int(job.table("totals").scan().schema.metadata[b"rayad.epoch"])


def test_keys_that_become_others_are_found_all_the_same() -> None:
    """What was known of the columns does not hold any more."""
    flow = rd.Dataflow("mixed")
    flow.input("in").key_by(lambda record: record[0]).sum(lambda record: record[1], name="sums").collect("out")
    job: Any = flow.submit(runtime="local", parallelism=2)
    job.input("in").send([(1, 10), (2, 20)])
    job.input("in").advance_to(1)
    assert job.sql("select sum from sums where key = 1", fresh=True).to_pylist() == [{"sum": 10}]
    job.input("in").send([("1", 5), (3, 0.5), (1, 0.25)])
    job.input("in").advance_to(2)
    assert job.sql("select sum from sums where key = 1", fresh=True).to_pylist() == [{"sum": 10.25}]
    assert job.table("sums").get(1).value == 10.25


OF_TYPES = [
    (pa.int8(), [-3, 0], "-3"),
    (pa.uint64(), [2**63 + 5, 1], str(2**63 + 5)),
    (pa.bool_(), [True, False], "true"),
    (pa.string(), ["a'b", "", "\u00e9"], "'a''b'"),
    (pa.large_string(), ["x", "y"], "'x'"),
    (pa.binary(), [b"\x00x", b""], "x'0078'"),
    (pa.date32(), [dt.date(2026, 12, 1), dt.date(1, 1, 1)], "date '2026-12-01'"),
    (pa.timestamp("us"), [NOON, dt.datetime(2026, 1, 1)], "timestamp '2026-12-01T12:00:00'"),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal(2)], "1.5"),
    (pa.float64(), [0.5, 2.0], "0.5"),
]


@pytest.mark.parametrize(("kind", "values", "told"), OF_TYPES, ids=[str(kind) for kind, *_ in OF_TYPES])
def test_a_key_of_each_type_is_found_whether_it_is_read_alone_or_not(kind: pa.DataType, values: list[Any], told: str) -> None:
    schema = pa.schema([("k", kind), ("v", pa.int64())])
    flow = rd.Dataflow("types")
    given = flow.input("in").map_batches(lambda batch: batch, schema=schema)
    given.key_by("k").sum("v", name="sums").collect("sums")
    given.as_collection(key="k", name="newest").changes().collect("newest")
    job: Any = flow.submit(runtime="local", parallelism=3)
    job.input("in").send(pa.record_batch([pa.array(values, kind), pa.array(range(len(values)), pa.int64())], schema=schema))
    job.input("in").advance_to(1)
    for _ in range(2):  # the first one may read all
        assert job.sql(f"select sum from sums where key = {told}", fresh=True).to_pylist() == [{"sum": 0}]
        assert job.sql(f"select k, v from newest where k = {told}").to_pylist() == [{"k": values[0], "v": 0}]
