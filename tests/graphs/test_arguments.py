"""What the graph functions refuse, when the graph is built or when records come; names; loops inside loops."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.graphs import VertexProgram, bfs, connected_components, pagerank, pregel, strongly_connected_components
from tests.graphs.epochs import run


class Idle(VertexProgram):
    def init(self, node: Any) -> Any:
        return None

    def compute(self, vertex: Any, state: Any, messages: list[Any]) -> Any:
        return state, None


ALL: dict[str, Any] = {
    "connected_components": connected_components,
    "pagerank": pagerank,
    "bfs": lambda edges, **options: bfs(edges, [1], **options),
    "strongly_connected_components": strongly_connected_components,
    "pregel": lambda edges, **options: pregel(edges, Idle(), **options),
}


def edges() -> rd.Stream:
    return rd.Dataflow("bad").from_items([(1, 2)])


@pytest.mark.parametrize("function", ALL)
def test_edges_must_be_a_stream(function: str) -> None:
    with pytest.raises(rd.DataflowError, match=rf"{function}\(\) was given \[\(1, 2\)\]: it takes a Stream of edges \(u, v\)$"):
        ALL[function]([(1, 2)])
    with pytest.raises(rd.DataflowError, match="give the stream before key_by"):
        ALL[function](edges().key_by(lambda e: e[0]))


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize("columns", ["u", ("u",), (1, 2), 7])
def test_columns_are_two_names(function: str, columns: Any) -> None:
    with pytest.raises(rd.DataflowError, match="give the names of two columns"):
        ALL[function](edges(), columns=columns)


@pytest.mark.parametrize("rounds", [0, -1, True, 2.0, None])
def test_rounds_are_at_least_one(rounds: Any) -> None:
    with pytest.raises(rd.DataflowError, match=r"^pagerank: rounds is .*: it must be an int of at least 1"):
        pagerank(edges(), rounds=rounds)


@pytest.mark.parametrize("damping", [1, 1.5, -0.1, True, "x", float("nan")])
def test_damping_lies_below_one(damping: Any) -> None:
    with pytest.raises(rd.DataflowError, match=r"damping=.*: it must be a number with 0 <= damping < 1"):
        pagerank(edges(), damping=damping)


@pytest.mark.parametrize(
    ("sources", "message"), [([], "no sources"), ("abc", "give a list of nodes"), (5, "give a list"), ([None], "None")]
)
def test_sources_are_nodes(sources: Any, message: str) -> None:
    with pytest.raises(rd.DataflowError, match=message):
        bfs(edges(), sources)


def test_a_program_is_an_instance() -> None:
    with pytest.raises(rd.DataflowError, match=r"an instance of a subclass of rd\.graphs\.VertexProgram"):
        pregel(edges(), Idle)  # type: ignore[arg-type]
    with pytest.raises(rd.DataflowError, match=r"^pregel: max_supersteps is 0: it must be an int of at least 1$"):
        pregel(edges(), Idle(), max_supersteps=0)


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize(
    ("record", "message"),
    [(7, "7 is no edge"), ((1,), r"\(1,\) is no edge"), ("ab", "'ab' is no edge"), ((None, 1), "a node is None"), (([], 1), "hash")],
)
def test_records_must_be_edges(function: str, record: Any, message: str) -> None:
    with pytest.raises(rd.DataflowError, match=message):
        run([[record]], ALL[function])


@pytest.mark.parametrize("function", ALL)
def test_nan_is_no_node(function: str) -> None:
    with pytest.raises(rd.DataflowError, match="NaN"):
        run([[(float("nan"), 1.0)]], ALL[function])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"u": [1, 2]}), r"columns for two nodes are missing in a batch with the columns \['u'\]"),
        (pa.record_batch({"u": [1, None], "v": [1, 2]}), "holds 1 nulls"),
        (pa.record_batch({"u": [1.0, float("nan")], "v": [1, 2]}), "holds NaN"),
    ],
)
def test_columns_must_hold_nodes(batch: pa.RecordBatch, message: str) -> None:
    flow = rd.Dataflow("bad")
    connected_components(flow.from_items(batch)).collect("out")
    with pytest.raises(rd.DataflowError, match=message):
        flow.run(runtime="local")


def test_missing_columns_are_named() -> None:
    flow = rd.Dataflow("bad")
    connected_components(flow.from_items(pa.record_batch({"u": [1], "v": [2]})), columns=("u", "w")).collect("out")
    with pytest.raises(rd.DataflowError, match=r"columns \['w'\] are missing in a batch with the columns \['u', 'v'\]; give columns="):
        flow.run(runtime="local")


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_columns_of_many_types(kind: pa.DataType) -> None:
    column = pa.array([1, 2], kind) if not (pa.types.is_dictionary(kind) or "string" in str(kind)) else pa.array(["1", "2"]).cast(kind)
    flow = rd.Dataflow("types")
    stream = flow.from_items(pa.record_batch({"extra": [0, 0], "u": column, "v": column.take(pa.array([1, 1]))}))
    connected_components(stream, columns=("u", "v")).collect("out")
    one, two = ("1", "2") if "string" in str(kind) else (1, 2)
    assert sorted(record for _, record in flow.run(runtime="local", parallelism=2)["out"]) == [(one, one), (two, one)]


def test_rows_may_be_dicts_and_lists() -> None:
    expected = [(1, 1), (2, 1)]
    assert sorted(run([[{"a": 2, "b": 1}]], connected_components)[0]) == expected
    assert sorted(run([[{"x": 0, "a": 2, "b": 1}]], lambda e: connected_components(e, columns=("a", "b")))[0]) == expected
    assert sorted(run([[[2, 1]]], connected_components)[0]) == expected


@pytest.mark.parametrize("function", ALL)
def test_without_edges_there_are_no_results(function: str) -> None:
    assert run([[], []], ALL[function], parallelism=2) == [[], []]


@pytest.mark.parametrize("function", ALL)
def test_a_function_may_be_used_twice_and_named(function: str) -> None:
    flow = rd.Dataflow("twice")
    stream = flow.from_items([(1, 2), (2, 3)])
    ALL[function](stream).collect("one")
    ALL[function](stream).collect("two")
    ALL[function](stream, name="mine", parallelism=3).collect("three")
    assert "mine" in {node.name for node in flow.graph.nodes}
    result = flow.run(runtime="local", parallelism=2)
    assert sorted(result["one"]) == sorted(result["two"]) == sorted(result["three"])


def test_inside_a_loop_of_the_user() -> None:
    """Three rounds, each adds an edge; the components of each round are those of all rounds before."""
    flow = rd.Dataflow("inner")
    loop = flow.loop("outer")
    back = loop.feedback(max_rounds=3)
    stream = loop.enter(flow.from_items([(0, 1), (10, 11)])).union(back)
    back.connect(stream.map(lambda e: (e[0] + 1, e[1] + 1)))
    loop.leave(connected_components(stream)).collect("out")
    final = dict(record for _, record in flow.run(runtime="local", parallelism=2)["out"])
    assert final == {0: 0, 1: 0, 2: 0, 3: 0, 10: 10, 11: 10, 12: 10, 13: 10}
