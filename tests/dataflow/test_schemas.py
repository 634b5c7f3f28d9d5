"""``stream.schema``: what is known of columns when the program is written is what the job gives, and what cannot be is refused there."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rayad as rd
from rayad.dataflow.operators.aggregates.top_k import TopK
from tests.every_type.arrays import COLUMNS, ROWS

SALES = pa.table({"shop": ["ulm", "bonn"], "price": [3, 5], "at": pa.array([1.5, 2.5], pa.float32())})


def sales() -> rd.Stream:
    return rd.Dataflow().from_arrow(SALES)


KEEPING: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "filter": lambda s: s.filter(lambda row: True),
    "filter by columns": lambda s: s.filter(pc.field("price") > 3),
    "inspect": lambda s: s.inspect(print),
    "union": lambda s: s.union(s.filter(pc.field("price") > 3)),
    "rebalance": lambda s: s.rebalance(),
    "a node of its own": lambda s: s.filter(lambda row: True, num_cpus=1),
    "broadcast": lambda s: s.broadcast().inspect(print),
    "as_records": lambda s: s.as_records(),
    "assign_timestamps": lambda s: s.assign_timestamps("at").filter(pc.field("price") > 3),
    "enter and leave": lambda s: (lambda loop: loop.leave(loop.enter(s)))(s.flow.loop()),
}


@pytest.mark.parametrize("step", KEEPING)
def test_steps_that_keep_records_keep_the_schema(step: str) -> None:
    assert KEEPING[step](sales()).schema == SALES.schema


UNKNOWN: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "map": lambda s: s.map(lambda row: row),
    "map_batches": lambda s: s.map_batches(lambda batch: batch),
    "totals in rows": lambda s: s.key_by("shop").reduce(lambda a, b: max(a, b), "price"),
    "union with a stream of which nothing is known": lambda s: s.union(s.map(lambda row: row)),
    "rows": lambda s: s.flow.from_items([{"shop": "ulm"}]),
    "a loop": lambda s: s.iterate(lambda inner: (inner.filter(pc.field("price") > 9), inner)),
}


@pytest.mark.parametrize("step", UNKNOWN)
def test_of_other_streams_nothing_is_known_and_nothing_refused(step: str) -> None:
    stream = UNKNOWN[step](sales())
    assert stream.schema is None
    stream.key_by("anything").count()


NO_EMPTY_COLUMN = {"sparse_union", "dense_union"}
"""Of these Arrow makes no column without rows: what a projection of them gives is not known."""


@pytest.mark.parametrize("kind", COLUMNS)
def test_what_is_known_is_what_the_job_gives(kind: str) -> None:
    batch = pa.record_batch({"v": pa.array(range(ROWS), pa.int16()), "x": COLUMNS[kind]})
    stream = rd.Dataflow().from_arrow(batch).with_columns({"n": pc.field("v") + 1, "f": pc.field("v").cast(pa.float32())})
    stream = stream.rename({"x": "y"}).select("y", "n", {"null": pc.field("f").is_null()}).filter(pc.field("n") > 2)
    seen: list[pa.Schema] = []
    stream.map_batches(lambda batch: (seen.append(batch.schema), [])[1]).collect("out")
    stream.flow.run(runtime="local")
    assert {str(schema) for schema in seen} == {str(stream.schema)} or kind in NO_EMPTY_COLUMN


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files_know_their_columns(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"sales.{kind}"
    if kind == "parquet":
        pq.write_table(SALES, path)
    else:
        path.write_text("shop,price\nulm,3\n" if kind == "csv" else '{"shop": "ulm", "price": 3}\n', encoding="utf-8")
    stream = getattr(rd.Dataflow(), f"read_{kind}")(path)
    assert stream.schema.names[:2] == ["shop", "price"]
    with pytest.raises(rd.DataflowError, match=r"key_by at test_schemas.py:\d+: there is no column 'stop' among .*: did you mean 'shop'\?"):
        stream.key_by("stop")


def structs(stream: rd.Stream) -> rd.Stream:
    return stream.select("price", {"sale": pc.make_struct(pc.field("shop"), options=pc.MakeStructOptions(["shop"]))})


def by_time(stream: rd.Stream) -> rd.WindowedStream:
    return stream.assign_timestamps("at").key_by("shop").window(rd.windows.tumbling(1))


def test_where_a_value_is_named_the_order_is_a_field_of_it() -> None:
    sold = pa.table({"shop": ["ulm", "ulm"], "sale": [{"price": 3}, {"price": 5}]})
    stream = rd.Dataflow().from_arrow(sold)
    stream.key_by("shop").top_k(1, "sale", by="price").collect("top")
    stream.key_by("shop").head(1, "price", "sale").collect("head")
    result = stream.flow.run(runtime="local")
    assert [record for _, record in result["top"]] == [("ulm", [{"price": 5}])]
    assert [record for _, record in result["head"]] == [("ulm", {"price": 3})]


HERE = r"test_schemas.py:\d+"
REFUSED: dict[str, tuple[Callable[[rd.Stream], object], str]] = {
    "key_by": (lambda s: s.key_by(["shop", "pric"]), rf"key_by at {HERE}: there is no column 'pric' among .*: did you mean 'price'\?"),
    "join": (lambda s: s.join(s.drop("at"), "at"), rf"key_by at {HERE}: there is no column 'at' among \['shop', 'price'\]"),
    "sum": (lambda s: s.key_by("shop").sum("prices"), rf"sum at {HERE}: there is no column 'prices' among"),
    "mean of windows": (
        lambda s: s.assign_timestamps("at").key_by("shop").window(rd.windows.tumbling(1)).mean("x"),
        rf"mean at {HERE}: there is no column 'x' among",
    ),
    "reduce": (
        lambda s: s.key_by("shop").reduce(max, "prize"),
        rf"reduce at {HERE}: there is no column 'prize' .*: did you mean 'price'\?",
    ),
    "a dict of totals": (
        lambda s: s.key_by("shop").aggregate({"n": "count", "most": ("max", "prize")}),
        rf"aggregate \('most'\) at {HERE}: there is no column 'prize' among .*: did you mean 'price'\?",
    ),
    "a dict of windows": (lambda s: by_time(s).aggregate({"m": ("sum", "x")}), rf"aggregate \('m'\) at {HERE}: there is no column 'x'"),
    "fold": (lambda s: s.key_by("shop").fold(0, max, "x"), rf"fold at {HERE}: there is no column 'x' among"),
    "distinct": (lambda s: s.key_by("shop").distinct("x"), rf"distinct at {HERE}: there is no column 'x' among"),
    "stateful_map": (
        lambda s: s.key_by("shop").stateful_map(lambda state, v: (state, v), None, "x"),
        rf"stateful_map at {HERE}: there is no column 'x' among",
    ),
    "lag": (lambda s: s.key_by("shop").lag("att"), rf"lag \(by\) at {HERE}: there is no column 'att' .*: did you mean 'at'\?"),
    "values of lag": (lambda s: s.key_by("shop").lag(abs, "x"), rf"lag at {HERE}: there is no column 'x' among"),
    "head": (lambda s: s.key_by("shop").head(2, "x"), rf"head \(by\) at {HERE}: there is no column 'x' among"),
    "values of head": (lambda s: s.key_by("shop").head(2, abs, "x"), rf"head at {HERE}: there is no column 'x' among"),
    "top_k": (lambda s: s.key_by("shop").top_k(2, by="x"), rf"top_k \(by\) at {HERE}: there is no column 'x' among"),
    "an aggregation given by itself": (
        lambda s: s.key_by("shop").aggregate({"top": TopK(2, by="x")}),
        rf"aggregate \('top'\) \(by\) at {HERE}: there is no column 'x' among",
    ),
    "top_k of windows": (lambda s: by_time(s).top_k(2, by="x"), rf"top_k \(by\) at {HERE}: there is no column 'x' among"),
    "max_by": (lambda s: by_time(s).max_by("x"), rf"max_by at {HERE}: there is no column 'x' among"),
    "min_by": (lambda s: by_time(s).min_by("x"), rf"min_by at {HERE}: there is no column 'x' among"),
    "assign_timestamps": (lambda s: s.assign_timestamps("time"), rf"assign_timestamps at {HERE}: there is no column 'time' among"),
    "sum of texts": (
        lambda s: s.key_by("price").sum("shop"),
        rf"sum at {HERE}: the column 'shop' is string, for which sum has no answer: .*; of 'a' it says: sum was given 'a' of type str",
    ),
    "sum of what is left": (lambda s: s.select("shop", "price").key_by("price").sum(), rf"sum at {HERE}: the column 'shop' is string"),
    "mean of structs": (lambda s: structs(s).key_by("price").mean("sale"), rf"mean at {HERE}: the column 'sale' is struct<shop: string>"),
    "min of structs": (
        lambda s: structs(s).key_by("price").min("sale"),
        rf"min at {HERE}: the column 'sale' is struct.*: '<=' not supported",
    ),
    "median of texts": (
        lambda s: s.key_by("price").quantile(0.5, "shop"),
        rf"quantile at {HERE}: the column 'shop' is string, for which quantile has no answer: ",
    ),
    "any of numbers": (
        lambda s: s.key_by("shop").any("price"),
        rf"any at {HERE}: the column 'price' is int64, .* it takes bools and nulls",
    ),
    "texts among several": (
        lambda s: by_time(s).aggregate({"n": "count", "t": ("std", "shop")}),
        rf"aggregate \('t'\) at {HERE}: the column 'shop' is string, for which std has no answer",
    ),
    "best of structs": (
        lambda s: structs(s).key_by("price").window(rd.windows.per_epoch()).max_by("sale"),
        rf"max_by at {HERE}: the column 'sale' is struct",
    ),
    "an order of structs": (
        lambda s: structs(s).key_by("price").lag("sale"),
        rf"lag \(by\) at {HERE}: the column 'sale' is struct<.*cannot order",
    ),
    "a key of structs": (lambda s: structs(s).key_by(["price", "sale"]), rf"key_by at {HERE}: the column 'sale' is struct<.* not hashable"),
    "a time of texts": (
        lambda s: s.assign_timestamps("shop"),
        rf"assign_timestamps at {HERE}: the column 'shop' is string: the event time of",
    ),
    "lengths of another kind": (
        lambda s: s.assign_timestamps("price").key_by("shop").window(rd.windows.tumbling(dt.timedelta(1))),
        rf"window at {HERE}: the column 'price' is int64: the event time 0 \(int\) does not go with windows whose lengths are timedeltas",
    ),
    "an interval of another kind": (
        lambda s: (
            s.assign_timestamps("price")
            .key_by("shop")
            .join(s.assign_timestamps("price").key_by("shop"), within=rd.between(dt.timedelta(0), dt.timedelta(1)))
        ),
        rf"join at {HERE}: the column 'price' is int64: the event time 0",
    ),
    "keys that never meet": (
        lambda s: s.key_by("shop").join(s.key_by("price")),
        rf"join at {HERE}: the key 'shop' of one side is string, 'price' of the other int64: values of these types are never equal",
    ),
    "keys that never meet in windows": (
        lambda s: by_time(s).join(s.assign_timestamps("at").key_by("at")),
        rf"join at {HERE}: the key 'shop' of one side is string, 'at' of the other float",
    ),
    "a key of two columns": (
        lambda s: s.key_by(["shop", "price"]).join(s.key_by("shop")),
        rf"join at {HERE}: the key of one side is \['shop', 'price'\], that of the other \['shop'\]",
    ),
    "a union of texts and numbers": (
        lambda s: s.select("shop").union(s.select({"shop": pc.field("price")}, name="prices")),
        rf"union at {HERE}: the column 'shop' is string in 'select' and int64 in 'prices': no type holds the values of both",
    ),
    "behind a projection": (lambda s: s.rename({"shop": "s"}).filter(pc.field("price") > 1).key_by("shop"), rf"key_by at {HERE}: .*'shop'"),
    "select": (lambda s: s.select("town"), rf"at {HERE}: select: there is no column 'town' among"),
    "an expression": (lambda s: s.with_columns({"n": pc.field("n") + 1}), rf"at {HERE}: with_columns: there is no column 'n' among"),
    "a kernel": (lambda s: s.filter(pc.starts_with(pc.field("price"), "a")), rf"at {HERE}: filter: the expression .* no kernel matching"),
    "no condition": (lambda s: s.filter(pc.field("price") + 1), rf"at {HERE}: filter was given .*, which gives int64"),
    "a name that is taken": (lambda s: s.rename({"shop": "at"}), rf"at {HERE}: rename would give two columns 'at'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_at_the_users_line(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(rd.DataflowError, match=message):
        build(sales())


MEET: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "sizes": (pa.int8(), pa.int64()),
    "whole numbers and floats": (pa.int64(), pa.float32()),
    "decimals": (pa.decimal128(5, 2), pa.int32()),
    "texts": (pa.string(), pa.large_string()),
    "texts with a dictionary": (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    "moments": (pa.timestamp("s"), pa.timestamp("us")),
    "zones": (pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
    "bytes": (pa.binary(), pa.binary(1)),
    "truth": (pa.bool_(), pa.int64()),
}


def made(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind) if pa.types.is_decimal(kind) else pa.array(values).cast(kind)


@pytest.mark.parametrize("types", MEET)
def test_keys_of_other_types_that_can_be_equal_meet(types: str) -> None:
    one, other = MEET[types]
    values = {pa.binary(): [b"a"], pa.string(): ["a"], pa.dictionary(pa.int32(), pa.string()): ["a"]}.get(one, [0])
    flow = rd.Dataflow()
    sides = [pa.table({"k": made(values, kind), "v": [1]}) for kind in (one, other)]
    left, right = (flow.from_arrow(side, name=f"side{at}") for at, side in enumerate(sides))
    left.key_by("k").join(right.key_by("k")).collect("out")
    assert len(flow.run(runtime="local")["out"]) == 1


WIDER: dict[str, tuple[pa.DataType, pa.DataType, pa.DataType]] = {
    "sizes": (pa.int8(), pa.int64(), pa.int64()),
    "signs": (pa.uint32(), pa.int32(), pa.int64()),
    "floats": (pa.int32(), pa.float64(), pa.float64()),
    "decimals": (pa.int16(), pa.decimal128(5, 2), pa.decimal128(7, 2)),
    "nulls": (pa.null(), pa.date32(), pa.date32()),
    "texts": (pa.string(), pa.large_string(), pa.large_string()),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("types", WIDER)
def test_streams_that_meet_become_as_wide_as_is_said(types: str, seed: int) -> None:
    one, other, wide = WIDER[types]
    flow = rd.Dataflow()
    tables = [
        pa.table({"k": [at], "v": pa.nulls(1, kind) if kind in (pa.null(), pa.date32()) else made([3 + at], kind)})
        for at, kind in enumerate((one, other))
    ]
    left, right = (flow.from_arrow(table, name=f"side{at}") for at, table in enumerate(tables))
    both = left.union(right.select("v", "k"))
    seen: list[pa.Schema] = []
    both.map_batches(lambda batch: (seen.append(batch.schema), [])[1]).collect("seen")
    both.collect("out")
    assert both.schema == pa.schema({"k": pa.int64(), "v": wide})
    found = flow.run(runtime="local", seed=seed)["out"]
    assert sorted([record for _, record in found], key=str) == [*tables[0].to_pylist(), *tables[1].to_pylist()]
    assert seen == [both.schema, both.schema]


def test_a_value_that_the_wider_type_does_not_hold_is_refused() -> None:
    flow = rd.Dataflow()
    large = flow.from_arrow(pa.table({"v": [2**53 + 1]}))
    large.union(flow.from_arrow(pa.table({"v": [1.5]}))).collect("out")
    with pytest.raises(
        rd.DataflowError,
        match=r"union: column 'v' of type int64 cannot become double: .*9007199254740993 not in range.* columns \{v: double\}",
    ):
        flow.run(runtime="local")


def test_a_union_that_widens_keeps_event_times() -> None:
    flow = rd.Dataflow()
    sides = [
        flow.from_arrow(pa.table({"t": pa.array([at], kind), "v": [at]})).assign_timestamps("t")
        for at, kind in ((1, pa.int32()), (7, pa.int64()))
    ]
    sides[0].union(sides[1]).window(rd.windows.tumbling(5)).sum("v").collect("out")
    assert sorted(record for _, record in flow.run(runtime="local")["out"]) == [(rd.Window(0, 5), 1), (rd.Window(5, 10), 7)]


def test_functions_of_the_user_are_not_called_when_the_program_is_written() -> None:
    def called(*values: Any) -> Any:
        raise AssertionError("called")

    class Own(rd.Aggregator):
        create = called
        merge = called

    stream = sales()
    keyed = stream.key_by("shop")
    keyed.top_k(2, "price", by=called)
    keyed.top_k(2, by=called)
    keyed.reduce(called, "price")
    keyed.aggregate(Own(), "price")
    keyed.aggregate({"own": (Own(), "price"), "top": (TopK(1, by=called), "price")})
    stream.map(called).key_by(called).sum(called)
    stream.filter(called).inspect(called).assign_timestamps(called).key_by(called).window(rd.windows.tumbling(3)).max(called)


def test_a_call_that_is_refused_adds_nothing() -> None:
    stream = sales()
    for build in (
        lambda: stream.key_by("price").sum("shop", name="s"),
        lambda: stream.select("x", name="s"),
        lambda: stream.filter(pc.field("x") > 1, on_error="skip"),
        lambda: stream.key_by("x"),
    ):
        with pytest.raises(rd.DataflowError):
            build()
    assert len(stream.flow.graph.nodes) == 1
    assert stream.flow.graph.is_free("s")
    sides = [stream.select({"n": pc.field("price").cast(kind)}) for kind in (pa.int32(), pa.int64(), pa.string())]
    with pytest.raises(rd.DataflowError, match="no type holds the values of both"):
        sides[0].union(*sides[1:])
    assert len(stream.flow.graph.nodes) == 4


def test_thousands_of_projections_in_a_row_are_derived_once_each() -> None:
    stream = sales()
    for number in range(1_000):
        stream = stream.rename({"shop" if not number else f"n{number - 1}": f"n{number}"})
    assert stream.schema is not None
    assert stream.schema.names == ["n999", "price", "at"]
    assert all("schema" in node.options for node in stream.flow.graph.nodes)


def test_explain_says_where_columns_become_rows_and_why() -> None:
    def line(build: Callable[[rd.Stream], Any]) -> str:
        flow = rd.Dataflow()
        build(flow.from_arrow(pa.table({"k": ["a"], "v": [1], "s": ["x"], "t": [3], "l": [[1]]}))).collect("out")
        found = [one for one in flow.explain().splitlines() if one.startswith("columns become rows")]
        return re.sub(r" \(test_schemas\.py:\d+\)", "", found[0].removeprefix("columns become rows at ")) if found else ""

    def timed(stream: rd.Stream) -> rd.KeyedStream:
        return stream.assign_timestamps("t").key_by("k")

    count = rd.windows.count
    assert line(lambda s: s.filter(pc.field("v") > 0).select("k", "v").key_by("k").sum("v")) == ""
    assert line(lambda s: timed(s).window(rd.windows.tumbling(3)).aggregate({"n": "count", "low": ("min", "s")})) == ""
    assert line(lambda s: s.map(lambda row: row)) == "'map': it calls a function for each record"
    assert line(lambda s: s.map(lambda row: row, on_error="skip")) == "'map': it calls a function for each record"
    assert line(lambda s: s.map_batches(list, batch_format="rows")) == "'map_batches': it was asked for: batch_format='rows'"
    assert line(lambda s: s.key_by(lambda row: row["k"]).count()) == "'count.prepare': its key is a function"
    assert line(lambda s: s.key_by("k").sum(lambda row: 1)) == "'sum.prepare': the value of sum is a function"
    assert line(lambda s: s.key_by("k").min("l")) == "'min.prepare': min of list<item: int64> ('l') handles rows"
    assert line(lambda s: s.key_by("k").sum("v", exact=True)) == "'sum.prepare': sum handles rows"
    for word in ("collect_list", "count_distinct", "first"):
        assert line(lambda s, word=word: timed(s).aggregate(word, "s")) == "", word
        told = f"'{word}.prepare': {word} of list<item: int64> ('l') handles rows"
        assert line(lambda s, word=word: timed(s).aggregate(word, "l")) == told
    assert line(lambda s: s.select("k", "v").key_by("k").top_k(3, by="v")) == line(lambda s: s.key_by("k").top_k(3, "v")) == ""
    assert line(lambda s: s.key_by("k").top_k(3, by="v")) == "'top_k.prepare': top_k of list<item: int64> ('l') handles rows"
    assert line(lambda s: s.key_by("k").top_k(3, by="l")) == "'top_k.prepare': top_k in the order of list<item: int64> ('l') handles rows"
    assert line(lambda s: s.key_by("k").top_k(3, by=len)) == "'top_k.prepare': the order of top_k is a function"
    assert line(lambda s: timed(s).window(rd.windows.tumbling(3)).first(lambda row: 1)) == (
        "'first-windows.prepare': the value of first is a function"
    )
    assert line(lambda s: s.select("k", "v").key_by("k").distinct()) == line(lambda s: s.key_by("k").distinct("v")) == ""
    assert line(lambda s: s.key_by("k").distinct()) == "'distinct.prepare': distinct of list<item: int64> ('l') handles rows"
    assert line(lambda s: s.key_by("k").distinct(lambda row: 1)) == "'distinct.prepare': the value of distinct is a function"
    assert line(lambda s: s.key_by("k").fold(0, max, "v")) == "'fold.prepare': the operator behind it handles rows"
    assert line(lambda s: timed(s).window(count(2)).sum("v")) == "'sum-windows.prepare': the operator behind it handles rows"
    assert line(lambda s: timed(s).window(rd.windows.session(2)).max_by("v")) == (
        "'max_by-windows.prepare': the best records of sessions are found in rows"
    )
    assert line(lambda s: s.key_by("k").join(s.key_by(lambda row: row["k"]))) == "'join.prepare-2': its key is a function"
