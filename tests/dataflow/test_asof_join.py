"""As-of joins: the right record that is last, next or nearest, against the rule in plain Python and against pandas; late records."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.joins.asof import AsOfJoin
from rayad.dataflow.operators.joins.asof_rows import AsOfRows
from rayad.dataflow.operators.joins.asof_runs import AsOfColumns
from rayad.dataflow.operators.state.runs import order
from rayad.dataflow.operators.windows.late_records import PlaceRecords
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.windows import AsOf
from rayad.progress import DataflowError, Timestamp
from tests.dataflow.driven import Driven
from tests.programs import model as m
from tests.programs.relations import AsOfRule, joined_as_of
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
OTHER = pa.schema([("v", pa.int64()), ("key", pa.int32()), ("t", pa.int64())])


def join(left: list[Any], right: list[Any], delays: tuple[int, int], **rule: Any) -> rd.Dataflow:
    flow = rd.Dataflow()
    a, b = flow.from_epochs(left, batch_rows=2, parts=2), flow.from_epochs(right, batch_rows=3)
    other = b.assign_timestamps("t", max_delay=delays[1]).key_by("key")
    joined = a.assign_timestamps("t", max_delay=delays[0]).key_by("k").join_asof(other, name="joined", **rule)
    joined.collect("out")
    joined.late.collect("late")
    return flow


def records(key: str) -> Any:
    fields = {key: st.integers(0, 2) | st.none(), "t": st.integers(-5, 20), "v": st.integers(0, 3)}
    return st.lists(st.lists(st.fixed_dictionaries(fields), max_size=6), min_size=1, max_size=4)


RULES = st.builds(
    AsOfRule,
    how=st.sampled_from(["left", "inner"]),
    tolerance=st.integers(0, 8) | st.none(),
    exact=st.booleans(),
    direction=st.sampled_from(["backward", "forward", "nearest"]),
)


@examples(each_run=28, soak=200)
@given(
    left=records("k"),
    right=records("key"),
    delays=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    rule=RULES,
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 3),
)
def test_each_left_record_with_the_right_one_of_the_rule(
    left: Any, right: Any, delays: Any, rule: AsOfRule, parallelism: int, seed: int, to: int
) -> None:
    """From rows, from columns and from both, while replicas are added and removed."""
    columns = (
        [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in left],
        [pa.RecordBatch.from_pylist(rows, schema=OTHER) for rows in right],
    )
    rows = [[batch.to_pylist() for batch in side] for side in columns]
    expected, late = joined_as_of(rows[0], rows[1], ("k", "key"), delays, rule)
    options: dict[str, Any] = {"how": rule.how, "tolerance": rule.tolerance, "direction": rule.direction}
    for sides in (columns, rows, (columns[0], rows[1])):
        flow = join(*sides, delays, allow_exact_matches=rule.exact, **options)  # type: ignore[arg-type]
        job = flow.submit(runtime="local", parallelism=parallelism, seed=seed)
        for _ in range(seed):
            job.step()
        job.start_rescale({"joined": to})
        got = job.wait()
        m.require_same(got["out"], expected, "results")
        m.require_same(got["late"], late, "late")


@examples(each_run=35, soak=100)
@given(
    left=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=20),
    right=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=20, unique=True),
    tolerance=st.integers(0, 20) | st.none(),
    exact=st.booleans(),
    direction=st.sampled_from(["backward", "forward", "nearest"]),
)
def test_results_are_those_of_pandas(left: list[Any], right: list[Any], tolerance: int | None, exact: bool, direction: Any) -> None:
    a, b = (
        pa.table({"k": [k for k, _ in rows], "t": [t for _, t in rows], name: range(len(rows))})
        for rows, name in ((sorted(left, key=lambda r: r[1]), "i"), (sorted(right, key=lambda r: r[1]), "j"))
    )
    rule: dict[str, Any] = {"tolerance": tolerance, "allow_exact_matches": exact, "direction": direction}
    merged = pd.merge_asof(a.to_pandas(), b.to_pandas(), on="t", by="k", **rule)
    wanted = [(int(i), None if pd.isna(j) else int(j)) for i, j in zip(merged["i"], merged["j"], strict=True)]
    flow = rd.Dataflow()
    sides = [flow.from_arrow(table).assign_timestamps("t").key_by("k") for table in (a, b)]
    sides[0].join_asof(sides[1], **rule).collect("out")
    found = [pair for _, (_, pair) in flow.run(runtime="local")["out"]]
    assert sorted((one["i"], other and other["j"]) for one, other in found) == sorted(wanted)


def test_prices_of_trades() -> None:
    noon = dt.datetime(2024, 5, 1, 12)
    trades = pa.table({"share": ["x", "y", "x"], "at": [noon + dt.timedelta(seconds=s) for s in (5, 6, 9)], "n": [1, 2, 3]})
    prices = pa.table({"share": ["x", "x", "y"], "at": [noon + dt.timedelta(seconds=s) for s in (1, 8, 7)], "price": [10.0, 11.5, 7.0]})
    flow = rd.Dataflow()
    sides = [flow.from_arrow(table).assign_timestamps("at").key_by("share") for table in (trades, prices)]
    priced = sides[0].join_asof(sides[1], tolerance=dt.timedelta(seconds=4))
    priced.map(lambda found: (found[1][0]["n"], found[1][1] and found[1][1]["price"])).collect("out")
    assert sorted(record for _, record in flow.run(runtime="local")["out"]) == [(1, 10.0), (2, None), (3, 11.5)]


def test_a_key_keeps_one_right_record_behind_the_watermark() -> None:
    """And none that is older than the tolerance."""
    for tolerance, left_over in ((None, 1), (50, 1), (10, 0)):
        rows = AsOfRows(AsOf(tolerance, True), "left")
        rows.put(1, [("k", (t, {"t": t})) for t in range(100)], None, 0)
        assert not list(rows.due(120))
        assert [len(entries) for _, entries in rows.kept.values()] == [1] * left_over
        assert rows.is_used is bool(left_over)


def test_the_state_is_tables() -> None:
    vertex = AsOfJoin(AsOf(None, True), (0, 0))
    vertex.open.rows.put(1, [("k", (3, {"p": 7}))], None, 2)
    tables = vertex.open.entries()
    assert (tables["right"].keys, tables["right"].columns) == (["k"], {"at": [3], "value": [{"p": 7}], "epoch": [2]})
    other = AsOfJoin(AsOf(None, True), (0, 0))
    for name, entries in tables.items():
        other.open.put_entries(name, entries)
    assert other.open.rows.kept == vertex.open.rows.kept


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"how": "full"}, r"join_asof at .*: how is 'full'"),
        ({"direction": "back"}, r"join_asof at .*: direction is 'back'"),
        ({"tolerance": -1}, r"join_asof at .*: tolerance is -1: it must be a number or timedelta of at least 0"),
        ({"tolerance": "5 s"}, r"join_asof at .*: tolerance is '5 s'"),
        ({"allow_exact_matches": 2}, r"join_asof at .*: allow_exact_matches is 2"),
        ({"tolerance": dt.timedelta(1)}, r"join at .*: the lengths .* do not go together"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str) -> None:
    flow = rd.Dataflow()
    stream = flow.from_items([{"t": 1}]).assign_timestamps("t", max_delay=3).key_by("t")
    with pytest.raises(DataflowError, match=told):
        stream.join_asof(stream, **options)


def test_event_times_have_to_go_with_the_tolerance() -> None:
    flow = rd.Dataflow()
    sides = [flow.from_items([{"k": 1, "t": Decimal("1.5")}]).assign_timestamps("t").key_by("k") for _ in range(2)]
    sides[0].join_asof(sides[1], tolerance=dt.timedelta(1)).collect("out")
    with pytest.raises(DataflowError, match="does not go with windows whose lengths are timedeltas"):
        flow.run(runtime="local")


def test_left_records_that_wait_for_the_nearest_keep_what_they_may_meet() -> None:
    """And no longer than they wait."""
    rows = AsOfRows(AsOf(None, True, "nearest"), "left")
    rows.put(1, [("k", (t, t)) for t in range(0, 100, 10)], None, 0)
    rows.put(0, [("k", (94, "left"))], None, 0)
    assert not list(rows.due(98))  # 97 would be nearer than 90, 98 as near
    assert [entry[0] for entry in rows.kept["k"][1]] == [90]
    assert list(rows.due(99)) == [[("k", ("left", 90))]]


def test_looking_forward_keeps_nothing_behind_the_watermark() -> None:
    rows = AsOfRows(AsOf(None, True, "forward"), "left")
    rows.put(1, [("k", (t, t)) for t in range(100)], None, 0)
    rows.put(0, [("k", (40, "left")), ("other", (7, "waits"))], None, 0)
    assert list(rows.due(120)) == [[("k", ("left", 40))]]
    assert list(rows.kept) == ["other"]
    assert list(rows.due(None)) == [[("other", ("waits", None))]]
    assert not rows.is_used


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_columns_stay_columns(direction: Any) -> None:
    vertex = Driven(lambda: AsOfJoin(AsOf(None, True, direction), (0, 0), "left"))
    for side, element in enumerate((placing("k"), placing("key"))):
        rows = [{"k": k, "key": k, "t": t, "v": t} for k in range(3) for t in range(side, 40, 2)]
        batch = element.apply(pa.RecordBatch.from_pylist(rows, schema=(SCHEMA, OTHER)[side]))
        vertex.step(("recv", side, batch, Timestamp(0)))
        vertex.step(("recv", 2 + side, [30], Timestamp(0)))
    vertex.step(("notify",))
    assert vertex.context.sent
    assert all(isinstance(batch, pa.RecordBatch) for _, _, batch in vertex.context.sent)
    assert vertex.vertex.open.columns.is_used  # type: ignore[attr-defined]
    assert not vertex.vertex.open.rows.is_used  # type: ignore[attr-defined]


def placing(key: str) -> PlaceRecords:
    return PlaceRecords(KeySelector(columns=(key,)), ValueSelector(column="t"), AsOf(None, True))


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_columns_keep_little_behind_the_watermark(direction: Any) -> None:
    """Of few keys with many records, and of many keys, about one right record each; looking forward none."""
    for keys, expected in ((10, 10), (3_000, 3_000)):
        columns = AsOfColumns(AsOf(None, True, direction), "left")
        for epoch in range(20):
            rows = [{"key": at % keys, "t": 30_000 * epoch + at, "v": at} for at in range(30_000)]
            batch = placing("key").apply(pa.RecordBatch.from_pylist(rows, schema=OTHER))
            columns.check(1, [batch])
            columns.accept(1, [batch], None, epoch)
            columns.due(30_000 * (epoch + 1))
        assert columns.rows <= (0 if direction == "forward" else 16 * expected)


def test_keys_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "hash_columns", lambda columns: np.zeros(len(columns[0]), np.uint64))
    left = [[{"k": k, "t": 5 * e + k, "v": 0} for k in range(4)] for e in range(6)]
    right = [[{"v": e, "key": k, "t": 4 * e} for k in range(1, 4)] for e in range(6)]
    for direction in ("backward", "forward", "nearest"):
        rule = AsOfRule(direction=direction)
        expected, late = joined_as_of(left, right, ("k", "key"), (9, 9), rule)
        batches = [[pa.RecordBatch.from_pylist(e, schema=s) for e in side] for side, s in ((left, SCHEMA), (right, OTHER))]
        got = join(batches[0], batches[1], (9, 9), direction=direction).run(runtime="local")
        m.require_same(got["out"], expected, "results")
        m.require_same(got["late"], late, "late")


@pytest.mark.parametrize("year", [1700, 2024, 2200])
def test_nanoseconds_far_from_1970(year: int) -> None:
    base = np.datetime64(f"{year}-05-01", "ns")
    times = [pa.array(base + np.array(some, "timedelta64[ns]")) for some in ([5, 20, 40], [4, 21, 60])]
    tables = [pa.table({"k": [1] * 3, "t": at, "v": [0, 1, 2]}) for at in times]
    for direction, wanted in (("backward", [0, 0, 1]), ("forward", [1, 1, 2]), ("nearest", [0, 1, 1])):
        flow = rd.Dataflow()
        sides = [flow.from_arrow(table).assign_timestamps("t").key_by("k") for table in tables]
        sides[0].join_asof(sides[1], direction=direction).collect("out")
        found = [(one["v"], other["v"]) for _, (_, (one, other)) in flow.run(runtime="local")["out"]]
        assert sorted(found) == list(enumerate(wanted))
    flow = rd.Dataflow()
    sides = [flow.from_arrow(table).assign_timestamps("t").key_by("k") for table in tables]
    sides[0].join(sides[1], within=rd.between(dt.timedelta(0), dt.timedelta(1))).collect("out")
    assert len(flow.run(runtime="local")["out"]) == 5
