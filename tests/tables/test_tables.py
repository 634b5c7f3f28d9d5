"""``job.table(...)``: what each operator gives, what is refused, and how, in the local runtime."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.reads.questions import Read, Rows
from rayad.actors.replica.reads.tables import HELD_S, ReplicaTables
from rayad.actors.tables.table import Value
from rayad.dataflow.operators.totals.totals import Totals
from rayad.progress import DataflowError

WORDS = [["tea", "milk"], ["tea", "rice"]]


def fed(flow: rd.Dataflow, epochs: list[Any], run: rd.RunConfig | None = None, **options: Any) -> LocalJob:
    """A job whose input has all of these, and is open."""
    job: LocalJob = flow.submit(run, runtime="local", **options)
    words = job.input("words")
    for epoch, records in enumerate(epochs):
        words.send(records)
        words.advance_to(epoch + 1)
    return job


def counts(**options: Any) -> LocalJob:
    flow = rd.Dataflow("shop")
    flow.input("words").key_by(lambda word: word).count(name="count").collect("counts")
    return fed(flow, WORDS, **options)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_key_has_a_value_and_an_epoch(parallelism: int) -> None:
    table = counts(parallelism=parallelism).table("count")
    assert table.get("tea", fresh=True) == Value(2, 1)
    assert table.get("gin") == Value(None, 1)
    assert table.get_many(["milk", "gin"]) == {"milk": Value(1, 1), "gin": Value(None, 1)}
    assert table.get_many([]) == {}


def test_readers_that_are_gone_are_forgotten_though_nothing_moves_any_more() -> None:
    job = counts(parallelism=1)
    assert job.table("count").get("tea", fresh=True) == Value(2, 1)
    plan = job.runtime.plan
    (stage,) = (stage.id for stage in plan.stages if stage.name == "count")
    host = job.runtime.processes.host(ReplicaId(stage, 0))
    assert host is not None
    tables, groups = ReplicaTables(host.core), frozenset(range(plan.key_groups))
    for number in range(50):
        rows = tables.answer(Read(f"reader {number}", None, None, groups, ("tea",)), now_s=number * HELD_S)
        assert isinstance(rows, Rows)
        assert rows.epoch == 1
    assert repr(tables).count("until_s") <= 2


def test_a_scan_is_the_table_of_a_stored_snapshot(tmp_path: Path) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path))
    flow = rd.Dataflow("shop")
    flow.input("words").key_by(lambda word: word).count(name="count").collect("counts")
    job = fed(flow, WORDS, run=run, parallelism=2)
    found = job.table("count").scan(fresh=True)
    stored = rd.read_state(job.savepoint(), "count", trust=True)
    assert found.sort_by("key").equals(stored.sort_by("key"))
    assert found.schema.metadata[b"rayad.epoch"] == b"1"


def test_before_the_first_epoch_is_complete_there_is_nothing() -> None:
    flow = rd.Dataflow("shop")
    flow.input("words").key_by(lambda word: word).count(name="count").collect("counts")
    job = flow.submit(runtime="local")
    job.input("words").send(["tea"])
    assert job.table("count").get("tea") == Value(None, -1)
    assert job.table("count").scan().num_rows == 0


def test_a_fresh_read_names_the_input_that_is_open() -> None:
    job = counts()
    job.input("words").send(["tea"])
    with pytest.raises(TimeoutError) as raised:
        job.table("count").get("tea", fresh=True)
    assert str(raised.value) == (
        "table 'count' of job 'shop': nothing moves any more, and epoch 2 is not complete there: everything that had begun at the call is "
        "to be complete (fresh=True). Complete is epoch 1. Input 'words' is open in epoch 2: advance_to(3) or close() it"
    )
    job.input("words").close()
    assert job.table("count").get("tea", fresh=True) == Value(3, 2)


def test_when_all_input_has_ended_the_last_epoch_is_read() -> None:
    job = counts()
    job.input("words").close()
    assert job.table("count").get("tea", fresh=True).value == 2
    job.wait()
    with pytest.raises(DataflowError, match="job 'shop' is complete, and its replicas are gone: read its results"):
        job.table("count").get("tea")


class Highest(rd.Process):
    """Changes its state in place."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = context.state or []
        context.state.append(record["n"])


def _records(epoch: int) -> list[dict[str, Any]]:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return [{"key": key, "n": 10 * epoch + n, "at": moment + dt.timedelta(minutes=epoch)} for n, key in enumerate("aab")]


OPERATORS = {
    "mean": (lambda keyed: keyed.mean(lambda r: r["n"], name="it"), {"sum": 22, "count": 4}),
    "collect_list": (lambda keyed: keyed.collect_list(lambda r: r["n"], name="it"), [0, 1, 10, 11]),
    "fold": (lambda keyed: keyed.fold(list, lambda kept, r: [*kept, r["n"]], name="it"), [0, 1, 10, 11]),
    "stateful_map": (lambda keyed: keyed.stateful_map(lambda kept, r: ((kept or 0) + r["n"], None), None, name="it"), 22),
    "latest": (lambda keyed: keyed.latest(by=lambda r: r["n"], name="it"), _records(1)[1]),
    "lag": (lambda keyed: keyed.lag(by=lambda r: r["n"], name="it"), _records(1)[1]),
    "head": (lambda keyed: keyed.head(3, by=lambda r: r["n"], name="it"), 3),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_values_by_key_can_be_read(name: str) -> None:
    make, expected = OPERATORS[name]
    flow = rd.Dataflow("all")
    make(flow.input("words").key_by(lambda r: r["key"])).collect("out")
    job = fed(flow, [_records(0), _records(1)], parallelism=2)
    value = job.table("it").get("a", fresh=True).value
    assert (sorted(value) if isinstance(value, list) else value) == expected


def test_state_that_a_process_changes_in_place_is_read_as_it_was() -> None:
    flow = rd.Dataflow("all")
    flow.input("words").assign_timestamps(lambda r: r["at"]).key_by(lambda r: r["key"]).process(Highest, name="it").collect("out")
    job = fed(flow, [_records(0)], parallelism=2)
    table = job.table("it")
    assert table.get("a", fresh=True).value == {"value": [0, 1], "timers": []}
    words = job.input("words")
    words.send(_records(1))
    words.advance_to(2)
    while job.step():
        table_is_old = table.get("a")
        assert table_is_old.value["value"] == ([0, 1] if table_is_old.epoch == 0 else [0, 1, 10, 11])
    assert table.get("a").epoch == 1


ROWS = [{"k": key, "v": value} for key, value in (("tea", 1), ("milk", 2), ("tea", 3))]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_totals_in_columns_are_read_and_stay_in_columns(parallelism: int) -> None:
    flow = rd.Dataflow("columns")
    flow.input("words").key_by("k").aggregate({"n": "count", "all": ("sum", "v")}, name="it").collect("out")
    job = fed(flow, [pa.Table.from_pylist(ROWS), pa.Table.from_pylist(ROWS[:1])], parallelism=parallelism)
    table = job.table("it")
    assert table.get("tea", fresh=True) == Value({"n": 3, "all": 5}, 1)
    assert table.get_many(["milk", "gin"]) == {"milk": Value({"n": 1, "all": 2}, 1), "gin": Value(None, 1)}
    assert table.scan().sort_by("key").to_pylist() == [{"key": "milk", "n": 1, "all": 2}, {"key": "tea", "n": 3, "all": 5}]
    words = job.input("words")
    words.send(pa.Table.from_pylist(ROWS))
    words.advance_to(3)
    assert table.get("tea", fresh=True).value == {"n": 5, "all": 9}
    totals = [core.vertex.totals for core in job.cores.values() if isinstance(core.vertex, Totals)]
    assert len(totals) == parallelism
    assert not any(both.rows.is_used for both in totals)


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_distinct_values_of_a_key_are_a_list(form: str) -> None:
    flow = rd.Dataflow("seen")
    flow.input("words").key_by("k").distinct("v", name="it").collect("out")
    job = fed(flow, [pa.Table.from_pylist(ROWS) if form == "columns" else ROWS], parallelism=2)
    table = job.table("it")
    assert sorted(table.get("tea", fresh=True).value) == [1, 3]
    assert table.get("gin").value is None
    words = job.input("words")
    words.send(pa.Table.from_pylist([{"k": "tea", "v": 9}]) if form == "columns" else [{"k": "tea", "v": 9}])
    words.advance_to(2)
    while job.step():
        found = table.get("tea")
        assert sorted(found.value) == ([1, 3] if found.epoch == 0 else [1, 3, 9])
    assert table.get("tea").epoch == 1


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_a_join_has_both_sides_of_a_key(form: str) -> None:
    flow = rd.Dataflow("both")
    prices = [{"k": "tea", "price": 7}]
    other = flow.from_epochs([pa.Table.from_pylist(prices) if form == "columns" else prices]).key_by("k")
    flow.input("words").key_by("k").join(other, name="it").collect("out")
    job = fed(flow, [pa.Table.from_pylist(ROWS) if form == "columns" else ROWS], parallelism=2)
    found = job.table("it").get("tea", fresh=True).value
    assert sorted((row["side"], row["epoch"], sorted(row["value"].items())) for row in found) == [
        ("left", 0, [("k", "tea"), ("v", 1)]),
        ("left", 0, [("k", "tea"), ("v", 3)]),
        ("right", 0, [("k", "tea"), ("price", 7)]),
    ]
    assert job.table("it", state="right").get("tea").value == [{"epoch": 0, "value": prices[0]}]
    assert job.table("it", state="left").scan().column_names == ["key", "epoch", "value"]
    assert job.table("it", state="left").scan().num_rows == 3
    sides = job.tables("it.left", "it.right").scan()
    assert {name: table.num_rows for name, table in sides.items()} == {"it.left": 3, "it.right": 1}
    found = job.sql('select l.key, count(*) as pairs from "it.left" l join "it.right" r on l.key = r.key group by l.key')
    assert found.to_pylist() == [{"key": "tea", "pairs": 2}]
    with pytest.raises(DataflowError, match=r"has no state 'both' that stays: it has \['left', 'right', 'sides'\]"):
        job.table("it", state="both").get("tea")


def _timed(minute: int, key: str, n: int) -> dict[str, Any]:
    return {"key": key, "n": n, "at": dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.UTC)}


WINDOWS = {"tumbling": rd.windows.tumbling(dt.timedelta(minutes=10)), "session": rd.windows.session(dt.timedelta(minutes=10))}


@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_windows_of_a_key_that_are_open_are_a_list(window: str, form: str) -> None:
    def sent(*records: dict[str, Any]) -> Any:
        return pa.Table.from_pylist(list(records)) if form == "columns" else list(records)

    flow = rd.Dataflow("windows")
    keyed = flow.input("words").assign_timestamps("at", max_delay=dt.timedelta(minutes=5)).key_by("key")
    keyed.window(WINDOWS[window]).sum("n", name="it").collect("out")
    job = fed(flow, [sent(_timed(1, "a", 1), _timed(2, "b", 5)), sent(_timed(3, "a", 2), _timed(14, "a", 4))], parallelism=2)
    table = job.table("it")
    found = {value["window"].start.minute: value["sum"] for value in table.get("a", fresh=True).value}
    assert found == ({0: 3, 10: 4} if window == "tumbling" else {1: 3, 14: 4})
    words = job.input("words")
    words.send(sent(_timed(30, "b", 7)))  # the windows of a end
    words.advance_to(3)
    while job.step():
        assert table.get("a").value is None or table.get("a").epoch == 1
    assert table.get("a") == Value(None, 2)
    assert table.scan().column_names == ["key", "window_start", "window_end", "sum"]


EDGES = [(1, 2), (2, 3), (2, 4)]
ROADS = [{"src": src, "dst": dst} for src, dst in EDGES]


def _collected(form: str, **options: Any) -> LocalJob:
    """Degrees, all edges, paths of two edges, what 1 reaches, kept by node, and an arrangement with which nothing is joined."""
    flow = rd.Dataflow("roads")
    words = flow.input("words")
    edges = words.as_collection(diff="n") if form == "columns" else words.as_collection()
    by_src = edges.key_by("src")
    by_src.count(name="degrees").changes().collect("degrees")
    edges.distinct(name="edges").changes().collect("edges")
    edges.key_by("dst").join(by_src, "left", name="paths").changes().collect("paths")
    edges.arrange_by("src", name="by src")
    start = flow.from_items([1]).as_collection()

    def further(reached: rd.Collection) -> rd.Collection:
        return reached.key_by(lambda node: node).join(by_src).map(lambda met: met[1][1]["dst"]).concat(start).distinct()

    start.iterate(further).arrange_by(lambda node: node, name="reached")
    epoch: Any = ROADS
    if form == "columns":
        epoch = pa.Table.from_pylist([{**road, "n": 1} for road in ROADS])
    return fed(flow, [epoch], **options)


@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_collections_are_read_as_what_they_give(form: str, parallelism: int) -> None:
    job = _collected(form, parallelism=parallelism)
    job.tables("degrees", "edges", "by src", "paths", "reached").scan(fresh=True)
    while job.step():
        pass
    assert job.table("degrees").get(2, fresh=True) == Value(2, 0)
    assert job.table("edges").get(ROADS[1]) == Value(1, 0)
    assert job.table("edges").get({"src": 9, "dst": 9}) == Value(None, 0)
    assert sorted(job.table("by src").get(2).value, key=repr) == [ROADS[1], ROADS[2]]
    assert sorted(job.table("paths").get(2).value, key=repr) == [(ROADS[0], ROADS[1]), (ROADS[0], ROADS[2])]
    assert job.table("paths").get(3).value == [(ROADS[1], None)]
    assert job.table("paths", state="left").get(2).value == [ROADS[0]]
    assert job.tables("degrees", "reached").get(4) == {"degrees": Value(None, 0), "reached": Value([4], 0)}
    assert job.table("degrees").scan().sort_by("key").to_pylist() == [{"key": 1, "value": 1}, {"key": 2, "value": 2}]
    assert job.table("edges").scan().select(["count"]).to_pylist() == [{"count": 1}] * 3
    with pytest.raises(DataflowError, match=r"has no state 'both' that stays: it has \['left', 'results', 'right'\]"):
        job.table("paths", state="both").get(2)


def test_a_record_that_goes_is_gone_from_all_that_follows_from_it() -> None:
    job = _collected("columns", parallelism=2)
    tables = job.tables("degrees", "edges", "by src", "paths", "reached")
    tables.scan(fresh=True)
    words = job.input("words")
    words.send(pa.Table.from_pylist([{**ROADS[0], "n": -1}]))
    words.advance_to(2)
    while job.step():
        found = tables.scan()
        at = int(found["degrees"].schema.metadata[b"rayad.epoch"])
        assert [table.num_rows for table in found.values()] == ([2, 3, 3, 4, 4] if at == 0 else [1, 2, 2, 2, 1])
    assert int(tables.scan()["edges"].schema.metadata[b"rayad.epoch"]) == 1


def test_explain_tells_what_can_be_read() -> None:
    flow = rd.Dataflow("told")
    words = flow.input("words").as_collection()
    words.key_by(len).join(words.key_by(len), name="pairs").changes().collect("out")
    told = flow.explain().splitlines()
    assert "  read by job.table('pairs'), state='left', state='right'" in told


def test_the_newest_records_are_read_without_those_that_are_gone() -> None:
    flow = rd.Dataflow("orders")
    flow.input("words").as_collection(key="id", order="at", deleted="gone", name="newest").collect("out")
    orders = [{"id": 1, "at": 1, "gone": False}, {"id": 2, "at": 1, "gone": False}, {"id": 2, "at": 2, "gone": True}]
    job = fed(flow, [orders[:2]], parallelism=2)
    table = job.table("newest")
    assert table.get(2, fresh=True).value == orders[1]
    job.input("words").send([orders[2]])
    job.input("words").advance_to(2)
    assert table.get(2, fresh=True) == Value(None, 1)
    assert table.get(1).value == orders[0]


def _interval_join(flow: rd.Dataflow) -> None:
    words, others = (flow.input(name).assign_timestamps(lambda r: r["at"]).key_by(lambda r: r["key"]) for name in ("words", "others"))
    words.join(others, within=rd.between(-1, 1), name="it").collect("out")


class Kept(rd.Vertex):
    """Has state of its own."""

    def on_recv(self, edge: int, batch: Any, time: Any) -> None:
        self.send_by(0, batch, time)


def _own(flow: rd.Dataflow) -> None:
    flow.input("words").vertex(Kept, name="it").collect("out")


def _ending(flow: rd.Dataflow) -> None:
    windowed = flow.input("words").as_collection().key_by(len).window(rd.windows.tumbling(2), lambda word: 1, lateness=1)
    windowed.count(name="it").collect("out")


def _in_a_loop(flow: rd.Dataflow) -> None:
    words = flow.input("words").as_collection()
    words.iterate(lambda inner: inner.map(lambda word: word[:1]).concat(words).distinct(name="it")).collect("out")


REFUSED = {
    "an operator of a collection that forgets": (_ending, WORDS, "is an operator of a collection whose results do not follow from what"),
    "an operator of a loop": (_in_a_loop, WORDS, "is inside a loop, whose times have counters: what leaves the loop can be read"),
    "a join of intervals": (_interval_join, [[]], "keeps 'open' as IntervalRows, which has no former values"),
    "a vertex of the user's": (_own, WORDS, "has no keyed state of Rayad's (Kept)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(name: str) -> None:
    program, epochs, why = REFUSED[name]
    flow = rd.Dataflow("refused")
    program(flow)
    job = fed(flow, epochs)
    while job.step():
        pass
    with pytest.raises(DataflowError) as raised:
        job.table("it").get("tea")
    assert why in str(raised.value)
    assert "vertex 'it'" in str(raised.value)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(DataflowError, match=r"dataflow 'shop' has no operator with state 'sums': it has \['count'\]"):
        counts().table("sums")
    with pytest.raises(DataflowError, match="name the operators to read"):
        counts().tables()


@pytest.mark.parametrize("keys", [5, "tea", None])
def test_what_is_no_list_of_keys_is_refused(keys: Any) -> None:
    with pytest.raises(DataflowError, match=r"it takes several keys, get_many\(\[key, ...\]\)"):
        counts().table("count").get_many(keys)


def test_a_key_that_is_not_hashable_is_refused() -> None:
    with pytest.raises(DataflowError, match="a key is not hashable"):
        counts().table("count").get(["tea"])


def test_a_job_that_nobody_reads_keeps_no_former_values() -> None:
    job = counts()
    while job.step():
        pass
    assert not any(core.is_read for core in job.cores.values())
    job.table("count").get("tea")
    assert any(core.is_read for core in job.cores.values())
