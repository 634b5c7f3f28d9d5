"""As-of joins: the last right record that is not later, against the rule in plain Python and against pandas; late records; what is kept."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.joins.asof import AsOfJoin, AsOfRows
from rayad.dataflow.windows import AsOf
from rayad.progress import DataflowError
from tests.programs import model as m
from tests.programs.relations import joined_as_of

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


@settings(max_examples=120)
@given(
    left=records("k"),
    right=records("key"),
    delays=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    how=st.sampled_from(["left", "inner"]),
    tolerance=st.integers(0, 8) | st.none(),
    exact=st.booleans(),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 3),
)
def test_the_last_right_record_that_is_not_later(
    left: Any, right: Any, delays: Any, how: str, tolerance: Any, exact: bool, parallelism: int, seed: int, to: int
) -> None:
    """From rows, from columns and from both, while replicas are added and removed."""
    columns = (
        [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in left],
        [pa.RecordBatch.from_pylist(rows, schema=OTHER) for rows in right],
    )
    rows = [[batch.to_pylist() for batch in side] for side in columns]
    expected, late = joined_as_of(rows[0], rows[1], ("k", "key"), delays, how, tolerance, exact)
    for sides in (columns, rows, (columns[0], rows[1])):
        flow = join(*sides, delays, how=how, tolerance=tolerance, allow_exact_matches=exact)  # type: ignore[arg-type]
        job = flow.submit(runtime="local", parallelism=parallelism, seed=seed)
        for _ in range(seed):
            job.step()
        job.start_rescale({"joined": to})
        got = job.wait()
        m.require_same(got["out"], expected, "results")
        m.require_same(got["late"], late, "late")


@settings(max_examples=40)
@given(
    left=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=20),
    right=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=20, unique=True),
    tolerance=st.integers(0, 20) | st.none(),
    exact=st.booleans(),
)
def test_results_are_those_of_pandas(left: list[Any], right: list[Any], tolerance: int | None, exact: bool) -> None:
    a, b = (
        pa.table({"k": [k for k, _ in rows], "t": [t for _, t in rows], name: range(len(rows))})
        for rows, name in ((sorted(left, key=lambda r: r[1]), "i"), (sorted(right, key=lambda r: r[1]), "j"))
    )
    merged = pd.merge_asof(a.to_pandas(), b.to_pandas(), on="t", by="k", tolerance=tolerance, allow_exact_matches=exact)
    wanted = [(int(i), None if pd.isna(j) else int(j)) for i, j in zip(merged["i"], merged["j"], strict=True)]
    flow = rd.Dataflow()
    sides = [flow.from_arrow(table).assign_timestamps("t").key_by("k") for table in (a, b)]
    sides[0].join_asof(sides[1], tolerance=tolerance, allow_exact_matches=exact).collect("out")
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
    vertex.open.put(1, [("k", (3, {"p": 7}))], None, 2)
    tables = vertex.open.entries()
    assert (tables["right"].keys, tables["right"].columns) == (["k"], {"at": [3], "value": [{"p": 7}], "epoch": [2]})
    other = AsOfJoin(AsOf(None, True), (0, 0))
    for name, entries in tables.items():
        other.open.put_entries(name, entries)
    assert other.open.kept == vertex.open.kept


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"how": "full"}, r"join_asof at .*: how is 'full'"),
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
