"""Running totals are updates, not records: which operators with state refuse them when the program is written, and which accept them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.programs.totals import first, second

EPOCHS = [["a", "b"], ["a"]]


def words(flow: rd.Dataflow) -> rd.Stream:
    return flow.from_epochs(EPOCHS)


def counts(flow: rd.Dataflow) -> rd.Stream:
    return words(flow).key_by(lambda w: w).count(name="counts")


def identity(record: Any) -> Any:
    return record


TAKERS: dict[str, Callable[[rd.KeyedStream], Any]] = {
    "count": lambda k: k.count(),
    "sum": lambda k: k.sum(),
    "min": lambda k: k.min(),
    "max": lambda k: k.max(),
    "mean": lambda k: k.mean(),
    "reduce": lambda k: k.reduce(max),
    "top_k": lambda k: k.top_k(1),
    "aggregate": lambda k: k.aggregate({"n": "count"}),
    "fold": lambda k: k.fold(0, max),
    "distinct": lambda k: k.distinct(),
    "stateful_map": lambda k: k.stateful_map(lambda state, x: (state, x)),
    "join": lambda k: k.join(words(k.flow).key_by(identity)),
    "join from the right": lambda k: k.flow.from_items([]).key_by(identity).join(k),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_running_totals_are_refused_by_operators_that_would_take_updates_for_records(taker: str) -> None:
    flow = rd.Dataflow()
    totals = counts(flow)
    nodes = len(flow.graph.nodes)
    with pytest.raises(rd.DataflowError) as caught:
        TAKERS[taker](totals.key_by(second))
    what = taker.split()[0]
    assert re.fullmatch(
        rf"{what} at test_updates.py:\d+ is given running totals: 'counts' \(test_updates.py:\d+\) gives a key again, with its new "
        rf"value, in each epoch that touches it, and {what} would take each of these as one more record. For figures of each epoch "
        r"alone use .window\(rd.windows.per_epoch\(\)\) behind key_by; .changes\(\) gives what an update takes back, "
        r"too; if each update is to be a record of its own, "
        r"say .as_records\(\) before it",
        str(caught.value),
    )
    made = [node.name for node in flow.graph.nodes[nodes:]]
    assert set(made) <= {"epochs-2", "items"}, "a call that is refused adds nothing"


MAKERS: dict[str, Callable[[rd.KeyedStream], rd.Stream]] = {
    "count": lambda k: k.count(),
    "sum": lambda k: k.sum(len),
    "min": lambda k: k.min(),
    "mean": lambda k: k.mean(len),
    "reduce": lambda k: k.reduce(max),
    "fold": lambda k: k.fold(0, lambda a, b: a),
    "top_k": lambda k: k.top_k(1),
    "aggregate": lambda k: k.aggregate({"n": "count"}),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_every_running_total_gives_updates(maker: str) -> None:
    totals = MAKERS[maker](words(rd.Dataflow()).key_by(identity))
    with pytest.raises(rd.DataflowError, match="is given running totals"):
        totals.key_by(second).count()


RECORDS: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "windows of each epoch": lambda s: s.key_by(identity).window(rd.windows.per_epoch()).count(),
    "windows over event time": lambda s: s.assign_timestamps(len).key_by(identity).window(rd.windows.tumbling(2)).count(),
    "distinct": lambda s: s.key_by(identity).distinct(),
    "stateful_map": lambda s: s.key_by(identity).stateful_map(lambda state, w: (state, w)),
    "join": lambda s: s.join(s, identity),
    "a vertex": lambda s: s.key_by(identity).count().vertex(Passes),
    "as_records": lambda s: s.key_by(identity).count().as_records(name="each"),
}


class Passes(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


@pytest.mark.parametrize("maker", RECORDS)
def test_iterators_are_accepted_everywhere(maker: str) -> None:
    made = RECORDS[maker](words(rd.Dataflow()))
    for take in TAKERS.values():
        take(made.key_by(str))


CARRIERS: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "map": lambda s: s.map(identity),
    "filter": lambda s: s.filter(identity),
    "flat_map": lambda s: s.flat_map(lambda r: [r]),
    "map_batches": lambda s: s.map_batches(identity),
    "inspect": lambda s: s.inspect(print),
    "as_columns": lambda s: s.as_columns(),
    "select": lambda s: s.as_columns("word", "n").select("n", "word"),
    "rebalance": lambda s: s.rebalance().map(identity),
    "ordered": lambda s: s.rebalance().map(identity).ordered(),
    "broadcast": lambda s: s.broadcast(),
    "union": lambda s: s.flow.from_items([1]).union(s),
    "assign_timestamps": lambda s: s.assign_timestamps(second),
    "a probe, a sink": lambda s: s.probe("p").collect("c"),
    "a loop": lambda s: s.iterate(lambda inner: (inner.filter(lambda r: False), inner)),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_stateless_operators_carry_updates(carrier: str) -> None:
    carried = CARRIERS[carrier](counts(rd.Dataflow()))
    with pytest.raises(rd.DataflowError, match=r"distinct at .* is given running totals: 'counts'"):
        carried.key_by(second).distinct()


def test_windows_over_event_time_refuse_updates_and_those_of_each_epoch_take_them() -> None:
    flow = rd.Dataflow()
    timed = counts(flow).assign_timestamps(second)
    with pytest.raises(rd.DataflowError, match=r"window at .* is given running totals"):
        timed.key_by(second).window(rd.windows.tumbling(2))
    other = words(flow).assign_timestamps(len).key_by(len).window(rd.windows.tumbling(2))
    with pytest.raises(rd.DataflowError, match=r"join at .* is given running totals"):
        other.join(timed.key_by(second))
    timed.key_by(second).window(rd.windows.per_epoch()).count().collect("keys that came to a count in an epoch")
    found = flow.run(runtime="local")["keys that came to a count in an epoch"]
    assert [(time.epoch, key, n) for time, (key, _, n) in found] == [(0, 1, 2), (1, 2, 1)]


def test_as_records_takes_every_change_for_a_record() -> None:
    flow = rd.Dataflow()
    counts(flow).as_records().key_by(second).count().collect("out")
    assert [record for _, record in flow.run(runtime="local")["out"]] == [(1, 2), (2, 1)]


# -- one epoch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["items", "arrow", "text", "csv", "union", "loop"])
def test_totals_of_a_program_with_one_epoch_are_no_updates(source: str, tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("w\nb\n")
    flow = rd.Dataflow()
    streams = {
        "items": lambda: flow.from_items(["a", "b"]),
        "arrow": lambda: flow.from_arrow(pa.table({"w": ["a"]})),
        "text": lambda: flow.read_text(str(tmp_path)),
        "csv": lambda: flow.read_csv(str(tmp_path / "a.txt")),
        "union": lambda: flow.from_items([1]).union(flow.from_arrow(pa.table({"w": ["a"]}))),
        "loop": lambda: flow.from_items([1]).iterate(lambda i: (i.filter(lambda n: False), i)),
    }
    stream = streams[source]().key_by(str).count().key_by(second).count().key_by(second).top_k(1)
    stream.collect("out")
    assert flow.run(runtime="local")["out"]


def test_count_of_counts_of_one_epoch() -> None:
    flow = rd.Dataflow()
    flow.from_items(["a", "b", "a"]).key_by(identity).count().key_by(second).count().collect("out")
    assert sorted(record for _, record in flow.run(runtime="local")["out"]) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("source", ["epochs", "arrow with epochs", "live", "own", "vertex"])
def test_totals_of_a_program_that_may_have_several_epochs_are_refused(source: str) -> None:
    flow = rd.Dataflow()
    table = pa.table({"e": [0], "w": ["a"]})

    class Own(rd.Source):
        def list_parts(self) -> list[int]:
            return []

        def build_part(self, part: Any, resume: Any) -> Any:
            raise NotImplementedError

    streams: dict[str, Callable[[], rd.Stream]] = {
        "epochs": lambda: flow.from_epochs([["a"]]),  # by the program's structure, not by its data
        "arrow with epochs": lambda: flow.from_arrow(table, epoch="e"),
        "live": lambda: flow.input("live"),
        "own": lambda: flow.source(Own()),
        "vertex": lambda: flow.from_items(["a"]).vertex(Passes),
    }
    with pytest.raises(rd.DataflowError, match="is given running totals"):
        streams[source]().key_by(str).count().key_by(second).count()


def test_a_users_source_can_say_that_it_has_one_epoch() -> None:
    class Own(rd.Source):
        one_epoch = True

        def list_parts(self) -> list[int]:
            return []

        def build_part(self, part: Any, resume: Any) -> Any:
            raise NotImplementedError

    flow = rd.Dataflow()
    flow.source(Own()).key_by(str).count().key_by(second).count().collect("out")
    assert flow.run(runtime="local")["out"] == []


# -- graphs and loops -----------------------------------------------------------------------------------------------------


def test_results_of_graph_algorithms_are_updates() -> None:
    edges = [[(1, 2), (4, 5)], [(2, 3)]]
    for algorithm in (rd.graphs.connected_components, rd.graphs.strongly_connected_components, rd.graphs.pagerank):
        with pytest.raises(rd.DataflowError, match=r"count at .* is given running totals: '[a-z.]+.changed'"):
            algorithm(rd.Dataflow().from_epochs(edges)).key_by(second).count()
    flow = rd.Dataflow()
    rd.graphs.connected_components(flow.from_items(edges[0])).key_by(second).count().collect("sizes")
    assert sorted(record for _, record in flow.run(runtime="local")["sizes"]) == [(1, 2), (4, 2)]


def smallest_labels(flow: rd.Dataflow, edges: rd.Stream) -> rd.Stream:
    loop = flow.loop("labels")
    labels, links = loop.enter(edges.map(lambda e: (e[0], e[0]))), loop.enter(edges)
    back = loop.feedback()
    best = labels.union(back).key_by(first).min(second, name="best")
    fresh = best.key_by(first).distinct(second)
    back.connect(fresh.key_by(first).join(links.key_by(first)).map(lambda r: (r[1][1][1], r[1][0][1])))
    return loop.leave(best)


def test_inside_its_loop_a_running_total_may_be_aggregated_and_behind_it_not() -> None:
    flow = rd.Dataflow()
    labels = smallest_labels(flow, flow.from_items([(1, 2), (2, 1), (2, 3), (3, 2)]))
    with pytest.raises(rd.DataflowError) as caught:
        labels.key_by(second).count()
    told = str(caught.value)
    assert "'best' (test_updates.py:" in told
    assert "in each round of its loop that touches it" in told
    assert told.endswith("Let only what is final leave the loop (a filter) and say .as_records() behind it")
    with pytest.raises(rd.DataflowError, match="in each round of its loop"):
        labels.key_by(second).window(rd.windows.per_epoch()).count()
    labels.as_records().key_by(first).min(second).collect("out")
    assert sorted(r for _, r in flow.run(runtime="local")["out"]) == [(1, 1), (2, 1), (3, 1)]


def test_updates_from_outside_are_refused_inside_a_loop() -> None:
    with pytest.raises(rd.DataflowError, match=r"count at .* is given running totals: 'counts' .* in each epoch"):
        counts(rd.Dataflow()).iterate(lambda inner: (inner.filter(lambda r: False), inner.key_by(second).count()))


def test_updates_that_come_by_a_feedback_are_refused_when_it_is_connected() -> None:
    flow = rd.Dataflow()
    loop = flow.loop("late")
    entered = loop.enter(counts(flow))
    back = loop.feedback(3)
    back.key_by(first).count(name="again")
    with pytest.raises(rd.DataflowError, match=r"count at test_updates.py:\d+ is given running totals: 'counts'"):
        back.connect(entered)
    back.connect(entered.as_records())
