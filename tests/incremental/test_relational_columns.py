"""Operators in columns give after each epoch what DuckDB gives, with nulls, and make no rows; in both forms mixed the same."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from decimal import Decimal
from typing import Any, Literal
from unittest.mock import patch

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental import moment_vertex
from rayad.incremental.joins.kinds import HOWS
from rayad.incremental.records import Row, as_record
from tests.incremental.programs import History
from tests.incremental.test_relational import asked, changes_of, tables
from tests.thorough import amount, by_turns

Form = Literal["columns", "both"]
FORMS: tuple[Form, ...] = ("columns", "both")
SEEDS = range(amount(each_run=2, soak=100))
SCHEMA = pa.schema({"epoch": pa.int64(), "k": pa.int64(), "v": pa.int64(), "diff": pa.int64()})
Build = Callable[..., rd.Collection]


def collection(flow: rd.Dataflow, changes: History, form: Form) -> rd.Collection:
    """Records ``{"k", "v"}``; with "both" those of every second epoch come in rows."""
    rows = [[{"k": k, "v": v, "diff": weight} for (k, v), weight in some] for some in changes]
    table = [{"epoch": epoch, **row} for epoch, some in enumerate(rows) if form == "columns" or epoch % 2 for row in some]
    stream = flow.from_arrow(pa.Table.from_pylist(table, SCHEMA), epoch="epoch", batch_rows=3).select("k", "v", "diff")
    if form == "both":
        stream = stream.union(flow.from_epochs([[] if epoch % 2 else some for epoch, some in enumerate(rows)], batch_rows=3))
    return stream.as_collection(diff="diff")


def given(build: Build, *histories: History, seed: int = 0, form: Form = "columns") -> Iterator[Counter[Any]]:
    """The table after each epoch. In columns alone no row is made before the end."""
    flow = rd.Dataflow("relational")
    build(*(collection(flow, changes, form) for changes in histories)).collect("out")
    refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
    with refused if form == "columns" else nullcontext():
        result = flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]
    table: Counter[Any] = Counter()
    for epoch in range(len(histories[0])):
        for time, (record, weight) in result:
            if time.epoch == epoch:
                table[record] += weight
        assert min(table.values(), default=0) >= 0, table
        yield +table


def row(k: Any, v: Any) -> Row:
    """A record."""
    return Row(k=k, v=v)


def _joined(how: str, left: list[Any], right: list[Any], on: str = "a.k = b.k") -> Counter[Any]:
    pairs = how not in ("semi", "anti")
    what = "a.k, a.v, b.k, b.v, a.rowid is null, b.rowid is null" if pairs else "a.k, a.v"
    want: Counter[Any] = Counter()
    for one in asked(f"select {what} from a {how if how != 'full' else 'full outer'} join b on {on}", a=left, b=right):
        if pairs:
            mine, theirs = (None if one[4] else row(*one[:2])), (None if one[5] else row(*one[2:4]))
            want[one[0] if mine is not None else one[2], (mine, theirs)] += 1
        else:
            want[one[0], row(*one)] += 1
    return want


@by_turns(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arranged", [None, "left", "right"])
@pytest.mark.parametrize("how", HOWS)
def test_joins(how: Any, arranged: str | None, form: Form) -> None:
    def build(a: rd.Collection, b: rd.Collection) -> rd.Collection:
        left = a.arrange_by("k") if arranged == "left" else a.key_by("k")
        return left.join(b.arrange_by("k") if arranged == "right" else b.key_by("k"), how)

    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        for epoch, got in enumerate(given(build, one, other, seed=seed, form=form)):
            want = _joined(how, tables(one)[epoch], tables(other)[epoch])
            assert got == want, f"{how}, seed {seed}, epoch {epoch}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", HOWS)
def test_interval_joins(how: Any, form: Form) -> None:
    within = rd.windows.between(-1, 2)

    def build(a: rd.Collection, b: rd.Collection) -> rd.Collection:
        return a.key_by("k").join_interval(b.key_by("k"), within, "v", how=how)

    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), changes_of(chance)
        for epoch, got in enumerate(given(build, one, other, seed=seed, form=form)):
            want = _joined(how, tables(one)[epoch], tables(other)[epoch], "a.k = b.k and b.v - a.v between -1 and 2")
            assert got == want, f"{how}, seed {seed}, epoch {epoch}"


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_interval_joins_of_moments(unit: str) -> None:
    def moments(*minutes: int) -> Any:
        return pa.array([minute * 60 for minute in minutes], pa.timestamp("s")).cast(pa.timestamp(unit))

    flow = rd.Dataflow("moments")
    left, right = pa.table({"k": [1, 1], "at": moments(0, 10)}), pa.table({"k": [1, 1, 1], "at": moments(-1, 2, 13)})
    one, other = (flow.from_arrow(table).as_collection().key_by("k") for table in (left, right))
    within = rd.windows.between(dt.timedelta(minutes=-1), dt.timedelta(minutes=2))
    met = one.join_interval(other, within, "at", how="left")
    met.select({"left": rd.col("1", "0", "at"), "right": rd.col("1", "1", "at")}).collect("out")
    with patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}")):
        out = flow.run(runtime="local", parallelism=2)["out"]
    start = dt.datetime(1970, 1, 1)
    found = {tuple(None if at is None else (at - start) // dt.timedelta(minutes=1) for at in record.values()) for _, (record, _) in out}
    assert found == {(0, -1), (0, 2), (10, None)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arranged", [False, True])
@pytest.mark.parametrize("how", ["left", "full"])
def test_what_is_not_there_is_null_in_expressions(how: Any, arranged: bool, form: Form) -> None:
    """Also in the first epochs, in which nothing of the other side has come: its type is not known yet."""

    def build(a: rd.Collection, b: rd.Collection) -> rd.Collection:
        met = a.key_by("k").join(b.arrange_by("k") if arranged else b.key_by("k"), how)
        return met.select({"k": rd.col("0"), "v": rd.col("1", "0", "v"), "w": rd.col("1", "1", "v") * 2})

    for seed in SEEDS:
        chance = random.Random(seed)
        one, other = changes_of(chance), [[], [], *changes_of(chance)][:8]
        for epoch, got in enumerate(given(build, one, other, seed=seed, form=form)):
            left, right = tables(one)[epoch], tables(other)[epoch]
            found = asked(f"select coalesce(a.k, b.k), a.v, b.v * 2 from a {how} join b on a.k = b.k", a=left, b=right)
            assert got == Counter(Row(k=k, v=v, w=w) for k, v, w in found), f"seed {seed}, epoch {epoch}"


OF_KEYS: dict[str, tuple[Callable[[rd.KeyedCollection], rd.Collection], str]] = {
    "count": (lambda keyed: keyed.count(), "count(*)"),
    "sum": (lambda keyed: keyed.sum("v"), "sum(v)::int"),
    "mean": (lambda keyed: keyed.mean("v"), "avg(v)"),
    "min": (lambda keyed: keyed.min("v"), "min(v)"),
    "max": (lambda keyed: keyed.max("v"), "max(v)"),
    "several sums": (
        lambda keyed: keyed.aggregate({"n": "count", "s": ("sum", "v"), "m": ("mean", "v")}),
        "struct_pack(n := count(*), s := sum(v)::int, m := avg(v))",
    ),
    "several": (
        lambda keyed: keyed.aggregate({"n": "count", "s": ("sum", "v"), "least": ("min", "v"), "most": ("max", "v")}),
        "struct_pack(n := count(*), s := sum(v)::int, least := min(v), most := max(v))",
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OF_KEYS)
def test_aggregates(name: str, form: Form) -> None:
    build, sql = OF_KEYS[name]
    for seed in SEEDS:
        history = changes_of(random.Random(seed))
        for epoch, got in enumerate(given(lambda a: build(a.key_by("k")), history, seed=seed, form=form)):
            want = Counter((k, as_record(v)) for k, v in asked(f"select k, {sql} from a group by k", a=tables(history)[epoch]))
            assert got == want, f"{name}, seed {seed}, epoch {epoch}"


IN_ORDER: dict[str, tuple[Callable[[rd.KeyedCollection], rd.Collection], str]] = {
    "row_number": (lambda keyed: keyed.row_number("v"), "row_number() over (partition by k order by v nulls last)"),
    "row_number down": (
        lambda keyed: keyed.row_number(["v"], descending=True),
        "row_number() over (partition by k order by v desc nulls last)",
    ),
    "rank": (lambda keyed: keyed.rank("v"), "rank() over (partition by k order by v nulls last)"),
    "dense_rank": (
        lambda keyed: keyed.rank("v", dense=True, descending=True),
        "dense_rank() over (partition by k order by v desc nulls last)",
    ),
    "lag": (lambda keyed: keyed.lag("v"), "lag({'k': k, 'v': v}) over (partition by k order by v nulls last)"),
    "lead 2": (
        lambda keyed: keyed.lead("v", 2, descending=True),
        "lead({'k': k, 'v': v}, 2) over (partition by k order by v desc nulls last)",
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", IN_ORDER)
def test_order_within_a_key(name: str, form: Form) -> None:
    build, sql = IN_ORDER[name]
    for seed in SEEDS:
        history = changes_of(random.Random(seed))
        for epoch, got in enumerate(given(lambda a: build(a.key_by("k")), history, seed=seed, form=form)):
            want: Counter[Any] = Counter()
            for k, v, result in asked(f"select k, v, {sql} from a", a=tables(history)[epoch]):
                want[k, (row(k, v), Row(**result) if isinstance(result, dict) else result)] += 1
            assert got == want, f"{name}, seed {seed}, epoch {epoch}"


@pytest.mark.parametrize("form", FORMS)
def test_the_first_so_many(form: Form) -> None:
    for seed in SEEDS:
        history = changes_of(random.Random(seed))
        for epoch, got in enumerate(given(lambda a: a.key_by("k").top_k(2, "v"), history, seed=seed, form=form)):
            ranked = "select k, v, row_number() over (partition by k order by v desc nulls last) as place from a"
            found = asked(f"select * from ({ranked}) where place <= 2", a=tables(history)[epoch])
            assert got == Counter((k, row(k, v)) for k, v, _ in found), f"seed {seed}, epoch {epoch}"


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [3, -4, None]),
    "float": (pa.float64(), [-0.0, 1.5, -2.25, None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-3.25"), Decimal("10.00"), None]),
    "text": (pa.string(), ["b", "", "é", "a", None]),
    "bytes": (pa.binary(), [b"b", b"", b"\xff", None]),
    "date": (pa.date32(), [dt.date(2026, 1, 2), dt.date(1969, 1, 1), None]),
    "datetime": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime(1969, 1, 2, tzinfo=dt.UTC), None]),
    "duration": (pa.duration("us"), [dt.timedelta(1), dt.timedelta(-1), None]),
    "dict": (pa.struct({"b": pa.int64(), "a": pa.string()}), [{"b": 1, "a": "x"}, {"b": 2, "a": None}, {"b": None, "a": None}, None]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_all_types_are_as_in_rows(kind: str) -> None:
    """Also in ties, which are in the order of contents."""
    type_of, values = VALUES[kind]
    tables_of: dict[str, Any] = {}
    for form in ("rows", "columns"):
        chance, flow = random.Random(3), rd.Dataflow(f"values-{form}")
        records = [{"k": chance.randrange(2), "n": chance.randrange(2), "v": chance.choice(values)} for _ in range(40)]
        table = pa.Table.from_pylist(records, pa.schema({"k": pa.int64(), "n": pa.int64(), "v": type_of}))
        stream = flow.from_arrow(table, batch_rows=7) if form == "columns" else flow.from_items(table.to_pylist())
        keyed = stream.as_collection().key_by("k")
        made = [keyed.row_number("n"), keyed.lag(["n"]), keyed.top_k(3, "n"), keyed.join(keyed, "left"), keyed.count()]
        if kind != "dict":
            made += [keyed.min("v"), keyed.max("v"), keyed.rank("v"), keyed.top_k(3, "v")]
        if kind in ("int8", "float"):
            made += [keyed.sum("v"), keyed.mean("v")]
        for number, one in enumerate(made):
            one.collect(str(number))
        refused = patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))
        with refused if form == "columns" else nullcontext():
            result = flow.run(runtime="local", parallelism=2)
        tables_of[form] = [Counter({record: weight for _, (record, weight) in result[str(number)]}) for number in range(len(made))]
    assert tables_of["rows"] == tables_of["columns"]
