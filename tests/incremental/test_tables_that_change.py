"""Running totals and what Debezium tells of a table are collections of what is there: what was there before goes."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import History, Kept, Shape, history
from tests.incremental.test_beginnings import table_of

WORDS = [["a", "b", "a"], ["a", "c"], [], ["c", "b"]]
COUNTED = {("a", 3): 1, ("b", 2): 1, ("c", 2): 1}


def by_epoch(collected: Any) -> list[dict[Any, int]]:
    """The table after each epoch that changes it."""
    epochs: dict[int, Counter[Any]] = defaultdict(Counter)
    for time, (record, weight) in collected:
        epochs[time.epoch][record] += weight
    table: Counter[Any] = Counter()
    out = []
    for epoch in sorted(epochs):
        table.update(epochs[epoch])
        out.append({record: weight for record, weight in table.items() if weight})
    return out


def test_running_totals_are_the_table_that_they_are() -> None:
    flow = rd.Dataflow("totals")
    flow.from_epochs(WORDS).key_by(lambda word: word).count().as_collection().collect("out")
    assert by_epoch(flow.run(runtime="local", parallelism=2)["out"]) == [
        {("a", 2): 1, ("b", 1): 1},
        {("a", 3): 1, ("b", 1): 1, ("c", 1): 1},
        COUNTED,
    ]


def test_totals_in_columns_and_behind_a_step() -> None:
    flow = rd.Dataflow("columns")
    rows = [{"epoch": epoch, "word": word} for epoch, words in enumerate(WORDS) for word in words]
    counts = flow.from_arrow(pa.Table.from_pylist(rows), epoch="epoch").key_by("word").count()
    counts.filter(lambda pair: pair[0] != "b").as_collection().collect("out")
    assert table_of(flow.run(runtime="local", parallelism=2)["out"]) == {("a", 3): 1, ("c", 2): 1}


def test_how_many_words_occur_how_often() -> None:
    flow = rd.Dataflow("often")
    counts = flow.from_epochs(WORDS).key_by(lambda word: word).count().as_collection()
    counts.key_by(lambda pair: pair[1]).count().collect("out")
    assert by_epoch(flow.run(runtime="local")["out"]) == [{(2, 1): 1, (1, 1): 1}, {(3, 1): 1, (1, 2): 1}, {(3, 1): 1, (2, 2): 1}]


def test_totals_of_one_epoch_and_records_that_the_program_says_are_some() -> None:
    flow = rd.Dataflow("one epoch")
    counts = flow.from_items(["a", "b", "a"]).key_by(lambda word: word).count()
    counts.as_collection().collect("table")
    flow.from_epochs(WORDS[:2]).key_by(lambda word: word).count().as_records().as_collection().collect("history")
    result = flow.run(runtime="local")
    assert table_of(result["table"]) == {("a", 2): 1, ("b", 1): 1}
    assert table_of(result["history"]) == {("a", 2): 1, ("a", 3): 1, ("b", 1): 1, ("c", 1): 1}


def test_totals_of_keys_that_end() -> None:
    flow = rd.Dataflow("end")
    events = flow.from_epochs([[("a", 0), ("b", 0)], [("b", 5)], [("b", 30)], [("b", 60)]]).assign_timestamps(lambda event: event[1])
    events.key_by(lambda event: event[0]).ttl(10).count().as_collection().collect("out")
    tables = by_epoch(flow.run(runtime="local")["out"])
    assert tables[0] == {("a", 1): 1, ("b", 1): 1}
    assert all(key != "a" for key, _ in tables[-1]), tables


def test_the_components_of_a_graph_that_grows() -> None:
    """What graph algorithms on streams give is updates, too."""
    flow = rd.Dataflow("components")
    edges = flow.from_epochs([[(1, 2), (3, 4)], [(2, 3)]])
    labels = rd.graphs.connected_components(edges).as_collection()
    labels.key_by(lambda pair: pair[1]).count().collect("sizes")
    assert by_epoch(flow.run(runtime="local", parallelism=2)["sizes"])[-1] == {(1, 4): 1}


def test_windows_that_send_updates() -> None:
    flow = rd.Dataflow("windows")
    events = flow.from_epochs([[("a", 1), ("a", 2)], [("a", 3)], [("b", 25)]]).assign_timestamps(lambda event: event[1])
    windows = events.key_by(lambda event: event[0]).window(rd.windows.tumbling(10), early=True).count()
    windows.as_collection().collect("out")
    table = table_of(flow.run(runtime="local", parallelism=2)["out"])
    assert {(key, window.start, count): weight for ((key, window), count), weight in table.items()} == {("a", 0, 3): 1, ("b", 20, 1): 1}


class Totals(Kept):
    """Counts of edges by their start, as a table; histories without removals."""

    def flow(self, changes: History) -> rd.Dataflow:
        flow = rd.Dataflow("totals")
        epochs = [[edge for edge, weight in some for _ in range(max(0, weight))] for some in changes]
        flow.from_epochs(epochs, batch_rows=3).key_by(lambda edge: edge[0]).count(name="counts").as_collection(name="table").collect("out")
        return flow


def counts_of(there: Counter[Any]) -> dict[Any, int]:
    out: Counter[int] = Counter()
    for edge, weight in there.items():
        out[edge[0]] += weight
    return dict.fromkeys(out.items(), 1)


@pytest.mark.parametrize("seed", range(6))
def test_totals_are_right_whatever_happens(seed: int, tmp_path: Path) -> None:
    program = Totals("totals", lambda edges: edges, counts_of, Shape(nodes=6, edges=8, epochs=12))
    appended = [[change for change in some if change[1] > 0] for some in history(program.shape, seed)]
    run_disturbed(program, appended, seed, tmp_path)


# -- Debezium ----------------------------------------------------------------------------------------------------------
def said(op: str, before: Any, after: Any, at: int, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": at, "source": {"lsn": at}, **more}


def person(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name}


LOG = [
    [said("r", None, person(1, "ann"), 1), said("c", None, person(2, "bob"), 2)],
    [said("u", person(1, "ann"), person(1, "anna"), 3), said("u", None, person(1, "anne"), 4), said("m", None, None, 4)],
    [said("d", person(2, "bob"), None, 5), None],
    [said("c", None, person(2, "bill"), 6), {"schema": {}, "payload": said("d", person(1, "anne"), None, 7)}, {"payload": None}],
]
TABLES = [{(1, "ann"), (2, "bob")}, {(1, "anne"), (2, "bob")}, {(1, "anne")}, {(2, "bill")}]


@pytest.mark.parametrize("order", ["ts_ms", lambda envelope: envelope["source"]["lsn"]])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_table_follows_its_log(order: Any, parallelism: int) -> None:
    flow = rd.Dataflow("cdc")
    people = flow.from_epochs(LOG).as_collection(key="id", order=order, envelope="debezium")
    people.collect("out")
    tables = by_epoch(flow.run(runtime="local", parallelism=parallelism)["out"])
    assert [{(one["id"], one["name"]) for one in table} for table in tables] == TABLES
    assert all(set(table.values()) == {1} for table in tables)


def test_a_log_in_texts_of_json_and_whatever_order_within_an_epoch() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        flow = rd.Dataflow("cdc")
        lines = [[json.dumps(one) for one in chance.sample(some, len(some))] for some in LOG]
        people = (
            flow.from_epochs(lines, batch_rows=1)
            .map(json.loads)
            .as_collection(key=lambda row: row["id"], order="ts_ms", envelope="debezium")
        )
        people.key_by(lambda row: 0).count().collect("out")
        assert table_of(flow.run(runtime="local", parallelism=2, seed=seed)["out"]) == {(0, 1): 1}


@pytest.mark.parametrize(
    ("envelope", "says"),
    [
        ({"id": 1}, "takes dicts with the fields op, before and after"),
        (said("t", None, None, 1), "of a table that is truncated"),
        (said("d", None, None, 1), "the field 'before' of an envelope with op='d' is missing.*REPLICA IDENTITY"),
        (said("u", None, None, 1), "the field 'after' of an envelope with op='u' is missing"),
        (said(["c"], None, None, 1), "op="),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_change_of_a_row_is_refused(envelope: Any, says: str) -> None:
    flow = rd.Dataflow("wrong")
    flow.from_items([envelope]).as_collection(key="id", envelope="debezium").collect("out")
    with pytest.raises(rd.DataflowError, match=says):
        flow.run(runtime="local")


def test_what_is_asked_for_is_checked() -> None:
    rows = rd.Dataflow("asked").from_items([1])
    with pytest.raises(rd.DataflowError, match="envelope without key"):
        rows.as_collection(envelope="debezium")
    with pytest.raises(rd.DataflowError, match="envelope"):
        rows.as_collection(key="id", envelope="maxwell")  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match="was given deleted, too"):
        rows.as_collection(key="id", deleted="gone", envelope="debezium")
