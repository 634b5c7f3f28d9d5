"""Joins and aggregates give what DuckDB gives, over random tables with nulls and keys and values of its types, in rows and in columns.

Where Rayad differs from SQL on purpose (docs/design/totals.md), the query says it:

- NaN and values that only a key or only a value may be are not drawn: NaN is refused as a key, and passed over by min and max;
- an average of decimals keeps its digits (DuckDB gives a double), so averages are compared to 1e-12;
- ``collect_list`` has no order, and its nulls are passed over: ``list(v) filter (v is not null)``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.thorough import by_turns, examples

MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(-(2.0**90), 2.0**90, width=32)),
    "float64": (pa.float64(), st.floats(-1e100, 1e100)),
    "decimal128": (pa.decimal128(18, 4), st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4))),
    "string": (pa.string(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "date32": (pa.date32(), st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    "time64": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), MOMENTS),
    "timestamp, UTC": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda at: at.replace(tzinfo=dt.UTC))),
}
NUMBERS = {"int8", "int64", "uint64", "float32", "float64", "decimal128"}
JOINS = {
    "inner": "select l.i, r.i from l join r on {on}",
    "left": "select l.i, r.i from l left join r on {on}",
    "right": "select l.i, r.i from l right join r on {on}",
    "full": "select l.i, r.i from l full join r on {on}",
    "semi": "select l.i, 'alone' from l where exists (select 1 from r where {on})",
    "anti": "select l.i, 'alone' from l where not exists (select 1 from r where {on})",
}


@pytest.fixture(scope="module")
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection


@st.composite
def tables(draw: Any, key: str, value: str = "int64") -> pa.Table:
    """Records with few different keys, nulls among keys and values, and an event time of its own for each."""
    keys = [*draw(st.lists(TYPES[key][1], min_size=1, max_size=3)), None]
    count = draw(st.integers(1, 14))
    values = st.lists(TYPES[value][1] | st.none(), min_size=count, max_size=count)
    times = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count, unique=True))
    columns = [draw(st.lists(st.sampled_from(keys), min_size=count, max_size=count)), times, draw(values), range(count)]
    kinds = [TYPES[key][0], pa.int64(), TYPES[value][0], pa.int64()]
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=["k", "t", "v", "i"])


def stream(flow: rd.Dataflow, table: pa.Table, columnar: bool, epochs: int) -> rd.Stream:
    """The table in some epochs of the input, of which nothing is late."""
    size = -(-table.num_rows // epochs)
    parts = [pa.Table.from_batches(table.slice(at, size).to_batches()).combine_chunks() for at in range(0, table.num_rows, size)]
    batches = [part.to_batches()[0] for part in parts]
    source = flow.from_epochs(batches if columnar else [batch.to_pylist() for batch in batches], parts=2)
    return source.assign_timestamps("t", max_delay=1000)


FORM = {"columnar": st.booleans(), "epochs": st.integers(1, 3), "parallelism": st.integers(1, 2)}


def sql(peer: duckdb.DuckDBPyConnection, query: str, **given_tables: pa.Table) -> list[dict[str, Any]]:
    for name, table in given_tables.items():
        peer.register(name, table)
    rows: list[dict[str, Any]] = peer.query(query).to_arrow_table().to_pylist()
    return rows


# -- aggregates --------------------------------------------------------------------------------
def aggregates_of(kind: str) -> dict[str, tuple[Any, str]]:
    """Ours, by name, and SQL's."""
    out: dict[str, tuple[Any, str]] = {
        "n": ("count", "count(*)"),
        "low": (("min", "v"), "min(v)"),
        "high": (("max", "v"), "max(v)"),
        "different": (("count_distinct", "v"), "count(distinct v)"),
        "all_of_them": (("collect_list", "v"), "coalesce(list(v) filter (v is not null), [])"),
        "opening": (("first", "v", "t"), "arg_min(v, t)"),
        "closing": (("last", "v", "t"), "arg_max(v, t)"),
    }
    if kind in NUMBERS:
        out["total"] = ("sum", "v"), "sum(v)" if kind in ("decimal128", "float32", "float64") else "cast(sum(v) as decimal(38, 0))"
        out["middle"] = ("mean", "v"), "avg(v)"
        out["spread"] = ("var", "v"), "var_samp(cast(v as double))"
        out["deviation"] = ("std", "v"), "stddev_samp(cast(v as double))"
    if kind == "bool":
        out["some"], out["every_one"] = (("any", "v"), "bool_or(v)"), (("all", "v"), "bool_and(v)")
    return out


def same(name: str, kind: str, ours: Any, theirs: Any, largest: float) -> bool:
    if isinstance(ours, list):
        return sorted(map(repr, ours)) == sorted(map(repr, theirs))
    if ours is None or theirs is None:
        return ours is theirs
    if name in ("spread", "deviation"):
        scale = largest * largest if name == "spread" else largest
        return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-9 * scale)
    if name == "middle" or (name == "total" and kind.startswith("float")):
        return math.isclose(float(ours), float(theirs), rel_tol=1e-12, abs_tol=1e-6 * largest if kind == "float32" else 1e-12 * largest)
    return bool(ours == theirs) and (isinstance(ours, bool) is isinstance(theirs, bool))


@by_turns(2)
@pytest.mark.parametrize("kind", TYPES)
@examples(each_run=3, soak=10)
@given(data=st.data(), **FORM)
def test_aggregates(peer: duckdb.DuckDBPyConnection, kind: str, data: st.DataObject, columnar: bool, epochs: int, parallelism: int) -> None:
    table = data.draw(tables("int8", kind))
    aggregates = aggregates_of(kind)
    flow = rd.Dataflow()
    keyed = stream(flow, table, columnar, epochs).key_by("k")
    keyed.aggregate({name: ours for name, (ours, _) in aggregates.items()}).latest().collect("running")
    for name, (ours, _) in aggregates.items():  # alone they stay in columns
        word, *rest = (ours,) if isinstance(ours, str) else ours
        keyed.window(rd.windows.tumbling(1000)).aggregate({name: (word, *rest) if rest else word}).collect(name)
    result = flow.run(runtime="local", parallelism=parallelism)
    query = ", ".join(f"{theirs} as {name}" for name, (_, theirs) in aggregates.items())
    wanted = {row.pop("k"): row for row in sql(peer, f"select k, {query} from given_table group by k", given_table=table)}
    numbers = [abs(float(v)) for v in table.column("v").to_pylist() if v is not None] if kind in NUMBERS else []
    largest = max(numbers, default=0.0)
    found = {key: dict(values) for _, (key, values) in result["running"]}
    alone: dict[Any, dict[str, Any]] = {}
    for name in aggregates:
        for _, (key, _, values) in result[name]:
            alone.setdefault(key, {}).update(values)
    for ours in (found, alone):
        assert ours.keys() == wanted.keys()
        differ = [
            (key, name, value, wanted[key][name])
            for key, values in ours.items()
            for name, value in values.items()
            if not same(name, kind, value, wanted[key][name], largest)
        ]
        assert differ == []


# -- joins ---------------------------------------------------------------------------------------
def pairs_of(records: list[Any], how: str) -> Counter[Any]:
    """The numbers of the records that met."""
    if how in ("semi", "anti"):
        return Counter((record[-1]["i"], "alone") for record in records)
    return Counter(tuple(None if side is None else side["i"] for side in record[-1]) for record in records)


def wanted_pairs(peer: duckdb.DuckDBPyConnection, query: str, left: pa.Table, right: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in sql(peer, query.replace("l.i, r.i", "l.i as a, r.i as b"), l=left, r=right))


@by_turns(2)
@pytest.mark.parametrize("kind", TYPES)
@examples(each_run=3, soak=8)
@given(data=st.data(), **FORM)
def test_joins_in_a_window_and_within_an_interval(
    peer: duckdb.DuckDBPyConnection, kind: str, data: st.DataObject, columnar: bool, epochs: int, parallelism: int
) -> None:
    left = data.draw(tables(kind))
    some = [key for key in left.column("k").to_pylist() if key is not None]
    right = data.draw(tables(kind))
    if some:  # so that keys meet
        keys = [data.draw(st.sampled_from([*some, key])) for key in right.column("k").to_pylist()]
        right = right.set_column(0, "k", pa.array(keys, TYPES[kind][0]))
    low = data.draw(st.integers(-30, 10))
    high = low + data.draw(st.integers(0, 40))
    flow = rd.Dataflow()
    sides = [stream(flow, table, columnar, epochs).key_by("k") for table in (left, right)]
    for how in JOINS:
        sides[0].window(rd.windows.tumbling(1000)).join(sides[1], how=how).collect(f"window {how}")  # type: ignore[call-overload]
        sides[0].join(sides[1], within=rd.between(low, high), how=how).collect(f"interval {how}")  # type: ignore[call-overload]
    sides[0].join(sides[1]).collect("ever")
    result = flow.run(runtime="local", parallelism=parallelism)
    for how, query in JOINS.items():
        in_window = wanted_pairs(peer, query.format(on="l.k = r.k"), left, right)
        assert pairs_of([record for _, record in result[f"window {how}"]], how) == in_window, how
        on = f"l.k = r.k and r.t - l.t between {low} and {high}"
        within = wanted_pairs(peer, query.format(on=on), left, right)
        assert pairs_of([record for _, record in result[f"interval {how}"]], how) == within, how
        if how == "inner":
            assert pairs_of([record for _, record in result["ever"]], how) == in_window


@pytest.mark.parametrize("kind", ["int64", "string", "timestamp", "decimal128"])
@examples(each_run=4, soak=12)
@given(data=st.data(), **FORM)
def test_asof_joins(peer: duckdb.DuckDBPyConnection, kind: str, data: st.DataObject, columnar: bool, epochs: int, parallelism: int) -> None:
    left = data.draw(tables(kind))
    right = data.draw(tables(kind))
    keys = [data.draw(st.sampled_from([*left.column("k").to_pylist(), key])) for key in right.column("k").to_pylist()]
    right = right.set_column(0, "k", pa.array(keys, TYPES[kind][0]))
    flow = rd.Dataflow()
    sides = [stream(flow, table, columnar, epochs).key_by("k") for table in (left, right)]
    for how in ("left", "inner"):
        sides[0].join_asof(sides[1], how=how).collect(how)  # type: ignore[arg-type]
        sides[0].join_asof(sides[1], how=how, allow_exact_matches=False).collect(f"{how} earlier")  # type: ignore[arg-type]
    result = flow.run(runtime="local", parallelism=parallelism)
    for how in ("left", "inner"):
        for name, order in ((how, ">="), (f"{how} earlier", ">")):
            kind_of_join = "left join" if how == "left" else "join"
            query = f"select l.i, r.i from l asof {kind_of_join} r on l.k = r.k and l.t {order} r.t"
            assert pairs_of([record for _, record in result[name]], how) == wanted_pairs(peer, query, left, right), name
