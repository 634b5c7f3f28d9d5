"""Interval joins: what SQL says of the records that were in time, from rows and from columns; late records."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.programs import model as m
from tests.programs.relations import joined_within
from tests.thorough import examples

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
OTHER = pa.schema([("v", pa.int64()), ("key", pa.int32()), ("t", pa.int64())])
KINDS = ("inner", "left", "right", "full", "semi", "anti")


def run(left: list[Any], right: list[Any], within: Any, delays: tuple[int, int], how: Any, options: dict[str, Any]) -> Any:
    flow = rd.Dataflow()
    a, b = flow.from_epochs(left, batch_rows=2, parts=2), flow.from_epochs(right, batch_rows=3)
    other = b.assign_timestamps("t", max_delay=delays[1]).key_by("key")
    joined = a.assign_timestamps("t", max_delay=delays[0]).key_by("k").join(other, within=within, how=how)
    joined.collect("out")
    joined.late.collect("late")
    return flow.run(runtime="local", **options)


def records(key: str) -> Any:
    fields = {key: st.integers(0, 2) | st.none(), "t": st.integers(-5, 20), "v": st.integers(0, 99)}
    return st.lists(st.lists(st.fixed_dictionaries(fields), max_size=6), min_size=1, max_size=4)


@pytest.mark.parametrize("how", KINDS)
@examples(each_run=7, soak=20)
@given(
    left=records("k"),
    right=records("key"),
    bounds=st.tuples(st.integers(-8, 8), st.integers(-8, 8)).map(sorted),
    delays=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_pairs_of_each_interval(
    how: str, left: Any, right: Any, bounds: list[int], delays: tuple[int, int], parallelism: int, seed: int
) -> None:
    columns = (
        [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in left],
        [pa.RecordBatch.from_pylist(rows, schema=OTHER) for rows in right],
    )
    rows = [[batch.to_pylist() for batch in side] for side in columns]
    expected, late = joined_within(rows[0], rows[1], ("k", "key"), (bounds[0], bounds[1]), delays, how)
    within = rd.between(*bounds)
    options = {"parallelism": parallelism, "seed": seed}
    mixed = [batch.to_pylist() if i % 2 else batch for i, batch in enumerate(columns[1])]
    for sides in (columns, rows, (columns[0], mixed)):
        got = run(*sides, within, delays, how, options)  # type: ignore[misc]
        m.require_same(got["out"], expected, "results")
        m.require_same(got["late"], late, "late")


def results_of(left: Any, right: Any, within: Any, how: Any = "inner", *, plain: bool = False, columnar: bool = False) -> Any:
    flow = rd.Dataflow()
    a, b = (flow.from_epochs([batch]).assign_timestamps("t") for batch in (left, right))
    out = a.key_by("k").join(b.key_by("key"), within=within, how=how)
    (out.as_columns() if plain else out).collect("out", columnar=columnar)
    found = flow.run(runtime="local")["out"]
    return found if columnar else sorted((record for _, record in found), key=str)


def test_results_stay_columns_and_open_into_plain_ones() -> None:
    left = pa.record_batch({"k": [1, 2], "t": [1, 12], "v": [5, 6]})
    right = pa.record_batch({"v": [7, 8, 9], "key": [1, 1, 3], "t": [3, 13, 14]})
    within = rd.between(-1, 5)
    assert results_of(left, right, within, columnar=True).schema.names == ["k", "pair"]
    assert results_of(left, right, within, "anti", columnar=True).schema.names == ["k", "record"]
    assert results_of(left, right, within, "full", plain=True) == [
        {"k": 1, "t": 1, "v": 5, "v_right": 7, "t_right": 3},
        {"k": 1, "t": None, "v": None, "v_right": 8, "t_right": 13},
        {"k": 2, "t": 12, "v": 6, "v_right": None, "t_right": None},
        {"k": 3, "t": None, "v": None, "v_right": 9, "t_right": 14},
    ]
    assert results_of(left, right, within, "semi", plain=True) == [{"k": 1, "t": 1, "v": 5}]


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_a_record_whose_interval_is_over_when_it_comes_is_given_at_once(columns: bool) -> None:
    """It waited for the watermark to move, which a change of layout may look like."""
    left: list[Any] = [[{"k": 0, "t": 0, "v": 0}]]
    right: list[Any] = [[{"v": 0, "key": 1, "t": 0}], [{"v": 1, "key": 0, "t": 0}], [{"v": 2, "key": 0, "t": 0}]]
    sides: list[Any] = [left, right]
    if columns:
        sides = [[pa.RecordBatch.from_pylist(rows, schema=s) for rows in side] for side, s in ((left, SCHEMA), (right, OTHER))]
    found = run(*sides, rd.between(1, 1), (0, 0), "right", {})["out"]
    assert sorted((time.epoch, record["v"]) for time, (_, (_, record)) in found) == [(0, 0), (1, 1), (2, 2)]


SECOND, DAY = dt.timedelta(seconds=1), dt.timedelta(days=1)
NOON = dt.datetime(2024, 5, 1, 12)


@pytest.mark.parametrize(
    ("kind", "at", "others", "bounds", "met"),
    [
        ("int64", 10, [8, 9, 10, 13, 14], (-1, 3), [9, 10, 13]),
        ("int64", 10, [9, 10, 11, 12], (-0.5, 1.5), [10, 11]),
        ("int64", 10, [9, 10, 11, 12], (Decimal("0.5"), Decimal("1.5")), [11]),
        ("float64", 0.1, [0.2, 0.3, 0.4], (0, 0.2), [0.2, 0.3]),
        ("timestamp[s]", NOON, [NOON - SECOND, NOON, NOON + SECOND], (-SECOND, 0 * SECOND), [NOON - SECOND, NOON]),
        ("timestamp[us]", NOON, [NOON, NOON + SECOND / 2, NOON + SECOND], (SECOND / 2, SECOND / 2), [NOON + SECOND / 2]),
        ("date32", NOON.date(), [NOON.date(), NOON.date() + DAY], (DAY, 2 * DAY), [NOON.date() + DAY]),
        ("duration[ms]", SECOND, [SECOND, 2 * SECOND, 3 * SECOND], (SECOND, SECOND), [2 * SECOND]),
    ],
)
def test_event_times_of_each_kind(kind: str, at: Any, others: list[Any], bounds: tuple[Any, Any], met: list[Any]) -> None:
    of = {"date32": pa.date32(), "timestamp[s]": pa.timestamp("s"), "timestamp[us]": pa.timestamp("us"), "duration[ms]": pa.duration("ms")}
    found = of.get(kind, pa.int64() if kind == "int64" else pa.float64())
    left = pa.record_batch({"k": [1], "t": pa.array([at], found)})
    right = pa.record_batch({"key": [1] * len(others), "t": pa.array(others, found)})
    for sides in ((left, right), (left.to_pylist(), right.to_pylist()), (left, right.to_pylist())):
        assert sorted(pair[1]["t"] for _, pair in results_of(*sides, rd.between(*bounds))) == met


def test_keys_of_several_columns_and_of_unlike_types() -> None:
    left = pa.record_batch({"k": pa.array([1, 2], "int32"), "t": [1, 1]})
    right = pa.record_batch({"key": pa.array([2, 2**40], "int64"), "t": [1, 1]})
    assert sorted(key for key, _ in results_of(left, right, rd.between(0, 0), "full")) == [1, 2, 2**40]
    assert sorted(key for key, _ in results_of(*(b.rename_columns(n) for b, n in ((right, ["k", "t"]), (left, ["key", "t"]))),
                                               rd.between(0, 0), "full")) == [1, 2, 2**40]  # fmt: skip
    flow = rd.Dataflow()
    rows = pa.record_batch({"a": ["x", "x", None], "b": [1, 2, 1], "t": [1, 2, 3]})
    stream = flow.from_epochs([rows]).assign_timestamps("t")
    stream.key_by(["a", "b"]).join(stream.key_by(["a", "b"]), within=rd.between(-9, 9)).collect("out")
    assert sorted(key for _, (key, _) in flow.run(runtime="local")["out"]) == [("x", 1), ("x", 2)]


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_settled_records_are_forgotten(columns: bool) -> None:
    """After many epochs of moving time there are few records left, so the last snapshot's tables are small."""
    from rayad.dataflow.operators.joins.intervals import IntervalJoin
    from rayad.dataflow.operators.windows.late_records import PlaceRecords
    from rayad.dataflow.records.selectors import KeySelector, ValueSelector
    from tests.dataflow.driven import Driven

    within = rd.between(-2, 2)
    place = PlaceRecords(KeySelector(columns=("k",)), ValueSelector(column="t"), within)
    run = Driven(lambda: IntervalJoin(within, (0, 0), "full"))
    for epoch in range(50):
        rows: Any = [{"k": k, "t": epoch * 10, "v": 0} for k in range(20)]
        for side in (0, 1):
            batch = place.apply(pa.RecordBatch.from_pylist(rows, schema=SCHEMA) if columns else rows)
            run.step(("recv", side, batch, rd.Timestamp(epoch)))
            run.step(("recv", 2 + side, [epoch * 10], rd.Timestamp(epoch)))
        run.step(("notify",))
        kept = run.vertex.open.columns.rows if columns else sum(map(len, run.vertex.open.rows.kept.values()))
        assert kept <= 40


def test_bad_arguments_are_refused_at_the_users_line() -> None:
    flow = rd.Dataflow()
    timed = flow.from_items([("a", 1)], name="pairs").assign_timestamps(lambda r: r[1])
    keyed = timed.key_by(lambda r: r[0])
    plain = flow.from_items([("a", 1)], name="plain").key_by(lambda r: r[0])
    within = rd.between(-1, 2)
    minute = dt.timedelta(minutes=1)
    cases: dict[str, Any] = {
        "was given '-5s' and '10s': both must be numbers, or both timedeltas": lambda: rd.between("-5s", "10s"),
        "the lower bound 2 is above the upper bound 1; give them in order": lambda: rd.between(2, 1),
        "numbers of one kind (ints go with all), or all as timedeltas": lambda: rd.between(0, minute),
        "was given within=(1, 2): use rd.between(lower, upper)": lambda: keyed.join(keyed, within=(1, 2)),  # type: ignore[call-overload]
        "how is 'outer': it must be 'inner', 'left', 'right', 'full', 'semi' or 'anti'": lambda: keyed.join(
            keyed,
            within=within,
            how="outer",  # type: ignore[call-overload]
        ),
        "give within=rd.between(lower, upper), or join in windows: key_by(...).window(...).join(...)": lambda: keyed.join(
            keyed,
            how="left",  # type: ignore[call-overload]
        ),
        "both sides must be keyed with key_by": lambda: keyed.join(timed, within=within),  # type: ignore[call-overload]
        "the stream 'plain' has no event time; call assign_timestamps(...) after the last map before it": lambda: keyed.join(
            plain, within=within
        ),
    }
    for message, call in cases.items():
        with pytest.raises(rd.DataflowError) as caught:
            call()
        assert str(caught.value).endswith(message)
        assert "test_interval_join.py:" in str(caught.value)


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
def test_bounds_that_do_not_go_with_event_times_are_refused(columns: bool) -> None:
    left, right = pa.record_batch({"k": [1], "t": [1]}), pa.record_batch({"key": [1], "t": [1]})
    minute = dt.timedelta(minutes=1)
    with pytest.raises(rd.DataflowError, match=r"the event time 1 \(int\) does not go with"):
        results_of(*((left, right) if columns else (left.to_pylist(), right.to_pylist())), rd.between(0 * minute, minute))
