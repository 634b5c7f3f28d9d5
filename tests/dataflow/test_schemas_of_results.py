"""``stream.schema`` behind operators that keep state is that of what they give: totals, windows, joins, and ``as_columns`` of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd

SECOND = dt.timedelta(seconds=1)
MOMENTS = pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us"))
SALES = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3], "f": [1.5, 2.5, None], "t": MOMENTS, "s": ["x", "y", "z"]})
SHOPS = pa.table({"id": ["a", "c"], "w": [1, 2], "v": pa.array([3, 4], pa.int16()), "t": MOMENTS[:2]})
MANY = {"n": "count", "m": ("mean", "f"), "low": ("min", "s"), "sd": ("std", "v"), "last": ("max", "t"), "any": ("sum", "f")}
Build = Callable[[rd.Stream, rd.Stream], rd.Stream]
WINDOWS: dict[str, Any] = {
    "tumbling": rd.windows.tumbling(5 * SECOND),
    "sliding": rd.windows.sliding(4 * SECOND, 2 * SECOND),
    "session": rd.windows.session(SECOND),
    "per_epoch": rd.windows.per_epoch(),
}


def timed(stream: rd.Stream, key: str = "k") -> rd.KeyedStream:
    return stream.assign_timestamps("t").key_by(key)


OPERATORS: dict[str, Build] = {
    "sum": lambda s, r: s.key_by("k").sum("v"),
    "sum of all": lambda s, r: s.select("k", "v").key_by("k").sum(),
    "count": lambda s, r: s.key_by("k").count(),
    "distinct values": lambda s, r: s.key_by("k").distinct("s"),
    "distinct records": lambda s, r: s.key_by(["k", "s"]).distinct(),
    "top_k of values": lambda s, r: s.key_by("k").top_k(2, "f"),
    "top_k of records": lambda s, r: s.key_by("k").top_k(2, by="f"),
    "first": lambda s, r: timed(s).first("s"),
    "last record": lambda s, r: s.key_by("k").last(by="v"),
    "count_distinct": lambda s, r: s.key_by("k").count_distinct("s"),
    "several": lambda s, r: s.key_by("k").aggregate(MANY),
    "two keys": lambda s, r: s.key_by(["k", "s"]).max("t"),
    "ttl": lambda s, r: timed(s).ttl(5 * SECOND).sum("v"),
    "windows of floats": lambda s, r: s.assign_timestamps("v").key_by("k").window(rd.windows.sliding(5.0, 2.5)).sum("f"),
    "windows of all": lambda s, r: s.assign_timestamps("t").window(WINDOWS["tumbling"]).sum("v"),
    "several windows of all": lambda s, r: s.assign_timestamps("t").window(WINDOWS["tumbling"]).aggregate(MANY),
    "best of epochs": lambda s, r: s.key_by("k").window(WINDOWS["per_epoch"]).min_by("v"),
    "join": lambda s, r: s.key_by("k").join(r.key_by("id")),
    "join of records that end": lambda s, r: timed(s).ttl(SECOND, of="records").join(timed(r, "id").ttl(SECOND, of="records")),
    "broadcast join": lambda s, r: s.key_by("k").join(r.key_by("id"), broadcast=True),
    "broadcast join of two keys": lambda s, r: s.key_by(["k", "v"]).join(r.key_by(["id", "w"]), broadcast=True),
    "behind a union": lambda s, r: s.union(s.filter(pc.field("v") > 1)).key_by("k").sum("v"),
}
for _name, _windows in WINDOWS.items():
    OPERATORS |= {
        f"sum, {_name}": lambda s, r, w=_windows: timed(s).window(w).sum("f"),
        f"several, {_name}": lambda s, r, w=_windows: timed(s).window(w).aggregate(MANY),
        f"top_k, {_name}": lambda s, r, w=_windows: timed(s).window(w).top_k(2, by="v"),
    }
for _name in ("tumbling", "sliding"):
    OPERATORS[f"max_by, {_name}"] = lambda s, r, w=WINDOWS[_name]: timed(s).window(w).max_by("v")
for _how in ("inner", "left", "right", "full", "semi", "anti"):
    OPERATORS |= {
        f"window join, {_how}": lambda s, r, how=_how: timed(s).window(WINDOWS["tumbling"]).join(timed(r, "id"), how=how),
        f"interval join, {_how}": lambda s, r, how=_how: timed(s).join(timed(r, "id"), how=how, within=rd.between(-SECOND, SECOND)),
    }
for _direction in ("backward", "forward", "nearest"):
    OPERATORS[f"as-of join, {_direction}"] = lambda s, r, to=_direction: timed(s).join_asof(timed(r, "id"), direction=to)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_said_is_what_is_given(operator: str, seed: int) -> None:
    flow = rd.Dataflow()
    sales, shops = flow.from_arrow(SALES, batch_rows=2), flow.from_arrow(SHOPS)
    results = OPERATORS[operator](sales, shops)
    opened = results.as_columns()
    seen: dict[str, list[Any]] = {"results": [], "opened": []}
    for name, stream in (("results", results), ("opened", opened)):
        stream.map_batches(lambda batch, name=name: (seen[name].append(batch), [])[1]).collect(name)
    flow.run(runtime="local", seed=seed)
    assert opened.schema is not None
    for name, stream in (("results", results), ("opened", opened)):
        assert seen[name]
        assert {str(batch.schema.remove_metadata()) for batch in seen[name]} == {str(stream.schema)}


ROWS_ALONE: dict[str, Build] = {
    "value of a function": lambda s, r: s.key_by("k").sum(lambda row: row["v"]),
    "key of a function": lambda s, r: s.key_by(lambda row: row["k"]).sum("v"),
    "collect_list": lambda s, r: s.key_by("k").collect_list("s"),
    "first": lambda s, r: timed(s).first("s"),
    "first records": lambda s, r: timed(s).first(),
    "reduce": lambda s, r: s.key_by("k").reduce(max, "v"),
    "fold": lambda s, r: s.key_by("k").fold(0, lambda a, b: a + b, "v"),
    "distinct": lambda s, r: s.key_by("k").distinct("v"),
    "distinct records": lambda s, r: s.key_by("k").distinct(),
    "head": lambda s, r: s.key_by("k").head(1, "t"),
    "head of values": lambda s, r: s.key_by("k").head(1, abs, "v"),
    "latest": lambda s, r: s.key_by(["k", "s"]).latest("t"),
    "latest totals": lambda s, r: s.key_by("k").sum("v").latest(),
    "counted": lambda s, r: timed(s).window(rd.windows.count(1)).sum("v"),
    "counted records": lambda s, r: timed(s).window(rd.windows.count(1)).last(),
    "as of": lambda s, r: timed(s).join_asof(timed(r, "id"), how="inner"),
    "a dict with the key's name": lambda s, r: s.key_by("k").aggregate({"k": "count", "n": ("max", "v")}),
    "the same in windows": lambda s, r: timed(s).window(WINDOWS["tumbling"]).aggregate({"k": "count", "n": ("max", "v")}),
    "passed on": lambda s, r: s.key_by("k").count().rebalance().filter(lambda row: row[1] > 0, on_error="skip").inspect(str),
    "many of one name": lambda s, r: s.with_columns({"v_right": pc.field("v") * 10}).key_by("k").join(r.key_by("id")),
}
NAMES = {
    "sum": ["k", "sum(v)"],
    "sum of all": ["k", "sum"],
    "count": ["k", "count"],
    "value of a function": ["k", "sum"],
    "key of a function": ["key", "sum(v)"],
    "two keys": ["k", "s", "max(t)"],
    "sum, tumbling": ["k", "window_start", "window_end", "sum(f)"],
    "windows of all": ["window_start", "window_end", "sum(v)"],
    "several, session": ["k", "window_start", "window_end", *MANY],
    "max_by, tumbling": ["k", "window_start", "window_end", "v", "f", "t", "s"],
    "join": ["k", "v", "f", "t", "s", "w", "v_right", "t_right"],
    "many of one name": ["k", "v", "f", "t", "s", "v_right", "w", "v_right_", "t_right"],
    "first": ["k", "first(s)"],
    "first records": ["k", "v", "f", "t", "s"],
    "fold": ["k", "value"],
    "reduce": ["k", "reduce(v)"],
    "distinct": ["k", "v"],
    "head": ["k", "v", "f", "t", "s"],
    "head of values": ["k", "v"],
    "latest totals": ["k", "sum(v)"],
    "counted": ["k", "window_start", "window_end", "sum(v)"],
    "a dict with the key's name": ["k", "k_", "n"],
    "the same in windows": ["k", "window_start", "window_end", "k_", "n"],
    "passed on": ["k", "count"],
}


HALF_PAIRS = [name for name in OPERATORS if name.endswith(("left", "right", "full")) or name.startswith("as-of")]
"""Of these, rows have pairs without one of their records, whose columns nothing tells: ``as_columns`` refuses them."""


@pytest.mark.parametrize("operator", [name for name in (*OPERATORS, *ROWS_ALONE) if name not in HALF_PAIRS])
def test_rows_and_columns_open_into_the_same_columns(operator: str) -> None:
    build = (OPERATORS | ROWS_ALONE)[operator]
    found = []
    for columns in (True, False):
        flow = rd.Dataflow()
        tables = SALES, SHOPS
        sources = [flow.from_arrow(t) if columns else flow.from_items(t.to_pylist()) for t in tables]
        build(*sources).as_columns().collect("out", columnar=True)
        found.append(flow.run(runtime="local")["out"])
    assert found[0].schema.names == found[1].schema.names == NAMES.get(operator, found[0].schema.names)
    assert sorted(map(str, found[0].to_pylist())) == sorted(map(str, found[1].to_pylist()))


def test_a_sum_that_leaves_the_type_that_is_said_is_refused() -> None:
    flow = rd.Dataflow()
    totals = flow.from_arrow(pa.table({"k": ["a", "a"], "v": [2**62, 2**62]})).key_by("k").sum("v")
    totals.collect("exact")
    assert [record for _, record in flow.run(runtime="local")["exact"]] == [("a", 2**63)]
    totals.as_columns().collect("out")
    with pytest.raises(rd.DataflowError, match=r"as_columns: column 'sum\(v\)' .* cannot become int64.*: cast what is aggregated"):
        flow.run(runtime="local")


def test_a_side_that_has_brought_nothing_is_null_in_the_columns_that_are_said() -> None:
    flow = rd.Dataflow()
    sales, shops = flow.from_arrow(SALES), flow.from_arrow(SHOPS.slice(0, 0))
    timed(sales).join(timed(shops, "id"), how="left", within=rd.between(-SECOND, SECOND)).as_columns().collect("out", columnar=True)
    out = flow.run(runtime="local")["out"]
    assert out.schema.names == ["k", "v", "f", "t", "s", "w", "v_right", "t_right"]
    assert out["w"].null_count == 3


def test_late_records_open_into_the_same_columns() -> None:
    found = []
    for columns in (True, False):
        flow = rd.Dataflow()
        epochs = [SALES.slice(2), SALES.slice(0, 1)]
        source = flow.from_epochs([part.to_batches()[0] if columns else part.to_pylist() for part in epochs])
        timed(source).window(rd.windows.tumbling(SECOND)).sum("v").late.as_columns().collect("out", columnar=True)
        found.append(flow.run(runtime="local")["out"])
    assert found[0].schema.names == found[1].schema.names == ["k", "window_start", "window_end", "v", "f", "t", "s"]
    assert found[0].to_pylist() == found[1].to_pylist() != []


def test_late_records_have_a_schema() -> None:
    late = timed(rd.Dataflow().from_arrow(SALES)).window(WINDOWS["tumbling"]).sum("v").late.as_columns()
    assert late.schema.names == ["k", "window_start", "window_end", "v", "f", "t", "s"]
    assert late.schema.field("window_end").type == pa.timestamp("us")


def test_what_comes_too_late_for_a_join_has_none() -> None:
    sales, shops = (lambda flow: (flow.from_arrow(SALES), flow.from_arrow(SHOPS)))(rd.Dataflow())
    assert timed(sales).window(WINDOWS["tumbling"]).join(timed(shops, "id")).late.schema is None


HERE = r"test_schemas_of_results.py:\d+"
REFUSED: dict[str, tuple[Build, str]] = {
    "key of totals": (
        lambda s, r: s.key_by("k").sum("v").key_by("v"),
        rf"key_by at {HERE}: there is no column 'v' among \['k', 'sum\(v\)'\]",
    ),
    "key behind as_columns": (
        lambda s, r: s.key_by("k").sum("v").as_columns("shop", "sold").key_by("k"),
        rf"key_by at {HERE}: there is no column 'k' among \['shop', 'sold'\]",
    ),
    "value of a join": (
        lambda s, r: s.key_by("k").join(r.key_by("id")).as_columns().key_by("k").window(WINDOWS["per_epoch"]).sum("x"),
        rf"sum at {HERE}: there is no column 'x' among \['k', 'v', 'f', 't', 's', 'w', 'v_right', 't_right'\]",
    ),
    "names of as_columns": (
        lambda s, r: s.key_by("k").count().as_columns("n"),
        rf"at {HERE}: as_columns was given 1 names, \['n'\], for 2 columns: \['k', 'count'\]",
    ),
    "a projection of pairs": (lambda s, r: s.key_by("k").count().select("k"), rf"at {HERE}: select was given results with the columns"),
    "an expression": (
        lambda s, r: timed(s).window(WINDOWS["tumbling"]).count().as_columns().select("window"),
        rf"at {HERE}: select: there is no column 'window' among",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_behind_them_is_refused_at_the_users_line(case: str) -> None:
    build, message = REFUSED[case]
    flow = rd.Dataflow()
    with pytest.raises(rd.DataflowError, match=message):
        build(flow.from_arrow(SALES), flow.from_arrow(SHOPS))
