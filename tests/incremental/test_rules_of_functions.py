"""What functions of collections may give: results that are kept, sums of one type, removals of what is there."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental.records import Row, as_record
from tests.incremental.test_beginnings import table_of

CALLS = itertools.count()


def another(record: Any) -> Any:
    """Not the same again."""
    return record, next(CALLS)


def feed(flow: rd.Dataflow, folder: Path) -> Any:
    config = rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(interval_s=None))
    return flow.submit(config, runtime="local", parallelism=2)


def test_what_a_function_gave_is_taken_back(tmp_path: Path) -> None:
    flow = rd.Dataflow("kept")
    rows = flow.collection("rows")
    rows.map(another, remember=True, name="kept").collect("map")
    rows.flat_map(lambda r: [another(r), another(r)], remember=True).collect("flat_map")
    rows.filter(lambda r: next(CALLS) % 2 == 0, remember=True).collect("filter")
    rows.changes().probe("seen")
    job = feed(flow, tmp_path)
    sent = job.collection("rows")
    sent.insert(["a", "b", "a", *range(10)])
    sent.advance_to(1)
    job.probe("seen").wait(0)
    job.savepoint()
    job.crash()
    job.start_rescale({"kept": 3})
    sent.remove(["a", *range(10)])
    sent.advance_to(2)
    job.probe("seen").wait(1)
    sent.remove(["a"])
    sent.close()
    result = job.wait()
    assert [record for record, _ in table_of(result["map"])] == ["b"]
    assert [record for record, _ in table_of(result["flat_map"])] == ["b", "b"]
    assert set(table_of(result["filter"])) <= {"b"}
    for what in ("map", "flat_map"):
        changes = [change for _, change in result[what]]
        assert sum(abs(weight) for _, weight in changes) == {"map": 1, "flat_map": 2}[what] * (1 + 2 * 12)


def test_a_function_that_is_remembered_is_outside_of_loops() -> None:
    flow = rd.Dataflow("inside")
    with pytest.raises(rd.DataflowError, match=r"map\(remember=True\): the collection is inside a loop.*call it outside"):
        flow.from_items([1]).as_collection().iterate(lambda inner: inner.map(another, remember=True))


def test_what_is_removed_must_be_there_where_that_is_checked() -> None:
    flow = rd.Dataflow("checked")
    rd.Collection(flow.from_epochs([[("a", 1)], [("a", -2)]])).collect("out")
    with pytest.raises(rd.DataflowError, match="'a' was removed 2 times in epoch 1, and was there 1 times"):
        flow.run(runtime="local")
    flow = rd.Dataflow("remembered")
    rd.Collection(flow.from_epochs([[("a", -1)]]), checked=False).map(another, remember=True).collect("out")
    with pytest.raises(rd.DataflowError, match="map: 'a' was removed 1 times in epoch 0, and was there 0 times"):
        flow.run(runtime="local")


@pytest.mark.parametrize("what", ["sum", "mean"])
def test_decimals_and_floats_have_no_sum(what: str) -> None:
    for epochs in ([[1.5, Decimal("0.5")]], [[1.5], [Decimal("0.5")]], [[1.5, 1.5], [Decimal(2)]]):
        flow = rd.Dataflow("mixed")
        keyed = flow.from_epochs(epochs).as_collection().key_by(lambda r: 1)
        getattr(keyed, what)(lambda r: r).collect("out")
        with pytest.raises(
            rd.DataflowError, match=r"was given .*\((float|Decimal)\) and .*\((float|Decimal)\): these have no exact sum; make"
        ):
            flow.run(runtime="local")


@pytest.mark.parametrize("what", ["sum", "mean"])
@pytest.mark.parametrize("value", ["a", b"a", (1, 2), {"a": 1}, dt.date(2026, 1, 1), dt.datetime(2026, 1, 1)], ids=repr)
def test_what_is_no_number_has_no_sum_also_where_it_is_alone(value: Any, what: str) -> None:
    """``-1 * "a"`` is a text, too: a removal would leave a rest."""
    flow = rd.Dataflow("texts")
    getattr(flow.from_items([(1, value)]).as_collection().key_by(lambda r: r[0]), what)(lambda r: r[1]).collect("out")
    with pytest.raises(rd.DataflowError, match=rf"was given .* \({type(as_record(value)).__name__}\): give numbers or durations"):
        flow.run(runtime="local")


def test_durations_have_a_sum_also_beside_what_has_none() -> None:
    minute, flow = dt.timedelta(minutes=1), rd.Dataflow("durations")
    epochs = [[(1, None, 1), (1, minute, 1), (2, minute, 1)], [(1, 3 * minute, 1), (2, minute, -1)], [(1, minute, -1), (1, 3 * minute, -1)]]
    rows = rd.Collection(flow.from_epochs([[((key, value), weight) for key, value, weight in some] for some in epochs]))
    keyed = rows.key_by(lambda r: r[0])
    keyed.aggregate({"s": ("sum", lambda r: r[1]), "m": ("mean", lambda r: r[1])}).collect("out")
    changes = sorted(
        (time.epoch, -weight, key, found["s"], found["m"]) for time, ((key, found), weight) in flow.run(runtime="local")["out"]
    )
    assert changes == [
        (0, -1, 1, minute, minute),
        (0, -1, 2, minute, minute),
        (1, -1, 1, 4 * minute, 2 * minute),
        (1, 1, 1, minute, minute),
        (1, 1, 2, minute, minute),
        (2, -1, 1, None, None),
        (2, 1, 1, 4 * minute, 2 * minute),
    ]


def test_decimals_and_ints_have_a_sum() -> None:
    flow = rd.Dataflow("decimals")
    rows = rd.Collection(flow.from_epochs([[(1, 1), (Decimal("0.5"), 1), (None, 1)], [(1, -1)]]))
    rows.key_by(lambda r: 1).sum(lambda r: r).collect("out")
    assert table_of(flow.run(runtime="local")["out"]) == {(1, Decimal("0.5")): 1}


def test_sums_of_decimals_have_all_their_digits() -> None:
    """More than the 28 of Python's own context: a removal takes away precisely what the insertion has added."""
    large, small = Decimal("1234567890123456789012345678901234.56"), Decimal("0.01")
    flow = rd.Dataflow("digits")
    rows = rd.Collection(flow.from_epochs([[(large, 1), (small, 3)], [(large, -1)]])).key_by(lambda value: 1)
    rows.sum(lambda value: value).collect("sum")
    rows.mean(lambda value: value).collect("mean")
    result = flow.run(runtime="local")
    assert (1, large + 0) != (1, large)  # the context would round
    first = {name: next(record for time, (record, weight) in result[name] if time.epoch == 0) for name in ("sum", "mean")}
    assert first == {
        "sum": (1, Decimal("1234567890123456789012345678901234.59")),
        "mean": (1, Decimal("308641972530864197253086419725308.648")),
    }
    assert table_of(result["sum"]) == {(1, Decimal("0.03")): 1}
    assert table_of(result["mean"]) == {(1, small): 1}


class Widest(rd.Aggregator):
    """The longest text, of equal ones the one that comes first: in the order of contents that is always the same."""

    def create(self, value: str) -> str:
        return value

    def merge(self, left: str, right: str) -> str:
        return right if len(right) > len(left) else left


def test_an_aggregator_of_users_follows_what_goes() -> None:
    flow = rd.Dataflow("texts")
    texts = flow.collection("texts")
    texts.key_by(lambda text: text[0]).aggregate(Widest()).collect("widest")
    texts.key_by(lambda text: text[0]).aggregate({"all": "collect_list", "n": "count", "wide": (Widest(), str.upper)}).collect("several")
    job = flow.submit(runtime="local", parallelism=2)
    given = job.collection("texts")
    given.insert(["b", "bc", "ba", "bcd", "bc"])
    given.advance_to(1)
    given.remove(["bcd", "bc"])
    given.close()
    result = job.wait()
    changes = sorted((time.epoch, weight, record) for time, (record, weight) in result["widest"])
    assert changes == [(0, 1, ("b", "bcd")), (1, -1, ("b", "bcd")), (1, 1, ("b", "ba"))]
    assert table_of(result["several"]) == {("b", Row(all=("b", "ba", "bc"), n=3, wide="BA")): 1}


@pytest.mark.parametrize("columns", [False, True])
def test_several_results_of_windows_and_of_names_that_are_places(columns: bool) -> None:
    flow = rd.Dataflow("several")
    rows = [{"k": n % 2, "at": n, "v": n * 10} for n in range(6)]
    given = flow.from_arrow(pa.Table.from_pylist(rows)) if columns else flow.from_items(rows)
    keyed = given.as_collection().key_by("k")
    keyed.window(rd.windows.tumbling(4), "at").aggregate({"n": "count", "most": ("max", "v")}).collect("windows")
    keyed.aggregate({"0": "count", "1": ("sum", "v")}).collect("places")
    result = flow.run(runtime="local", parallelism=2)
    windows = {(key, (window.start, window.end)): (found["n"], found["most"]) for (key, window), found in table_of(result["windows"])}
    assert windows == {(0, (0, 4)): (2, 20), (1, (0, 4)): (2, 30), (0, (4, 8)): (1, 40), (1, (4, 8)): (1, 50)}
    assert set(table_of(result["places"])) == {(0, Row({"0": 3, "1": 60})), (1, Row({"0": 3, "1": 90}))}


@pytest.mark.parametrize(
    ("given", "value", "told"),
    [
        ({}, None, "an empty dict: give {name: aggregation}"),
        ({"n": "count"}, "v", "and value='v': give {name: aggregation}"),
        ({1: "count"}, None, "was given 1 as a name: it must be a text"),
        ({"s": "sum"}, None, 'aggregate (\'s\'): a sum needs a value, a field or a function: ("sum", "v")'),
        ({"s": ("sum", "v", "at")}, None, "for 's': give an aggregation, or a pair"),
        ({"f": ("first", "v")}, None, "have no order of their own, so there is no first: use row_number(order_by)"),
        ("summ", "v", "there is no aggregation 'summ'"),
        ("mean", None, "aggregate: a mean needs a value"),
        (3, None, "there is no aggregation 3"),
    ],
)
def test_what_aggregate_refuses(given: Any, value: Any, told: str) -> None:
    keyed = rd.Dataflow("refused").collection("rows").key_by("k")
    with pytest.raises(rd.DataflowError, match=re.escape(told)):
        keyed.aggregate(given, value)
