"""Joins of an arranged side give what joins of a keyed one give, and the side is kept once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.incremental.joins.kinds import HOWS
from rayad.incremental.moment_vertex import MomentVertex
from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import PROGRAMS, History, Shape, history
from tests.thorough import amount

Form = Literal["rows", "columns"]


def source(edge: tuple[int, int]) -> int | None:
    """A key that is null for one node."""
    return edge[0] or None


def by_source(edges: rd.Collection, *, arranged: bool) -> rd.KeyedCollection:
    return edges.arrange_by(source) if arranged else edges.key_by(source)


def all_joins(edges: rd.Collection, *, arranged: bool) -> rd.Collection:
    """Each kind of join with one side, from the left and from the right; the name of each is in its records."""
    right, left = by_source(edges, arranged=arranged), edges.key_by(lambda edge: edge[1] or None)
    met = [left.join(right, how).map(Named(how)) for how in HOWS]
    met += [right.join(left, how).map(Named(f"turned {how}")) for how in HOWS]
    chained = left.join(right).map(lambda pair: (pair[1][1][1], pair[0])).keyed().join(right).map(Named("chained"))
    return chained.concat(*met)


class Named:
    """A record with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, record: Any) -> tuple[str, Any]:
        return self.name, record


def tables(build: Callable[[rd.Collection], rd.Collection], changes: History, **options: Any) -> dict[tuple[int, Any], int]:
    """What has changed in each epoch."""
    flow = rd.Dataflow("joins")
    build(rd.Collection(flow.from_epochs(changes))).collect("out")
    out: Counter[tuple[int, Any]] = Counter()
    for time, (record, weight) in flow.run(runtime="local", **options)["out"]:
        out[time.epoch, record] += weight
    return dict(out)


@pytest.mark.parametrize("seed", range(amount(each_run=6, soak=200)))
def test_each_kind_of_join_gives_what_it_gives_without(seed: int) -> None:
    changes = history(Shape(5, 6, 5), seed)
    plain = tables(lambda edges: all_joins(edges, arranged=False), changes)
    assert {record[0] for _, record in plain} >= {"inner", "left", "anti", "turned full"}
    assert tables(lambda edges: all_joins(edges, arranged=True), changes, seed=seed, parallelism=1 + seed % 3) == plain


def reach(edges: rd.Collection) -> rd.Collection:
    """From 0, along edges and back, through one arrangement of edges inside the loop."""
    roots = edges.map(lambda edge: 0).distinct()
    forth, back = edges.arrange_by(lambda edge: edge[0]), edges.arrange_by(lambda edge: edge[1])

    def further(inner: rd.Collection) -> rd.Collection:
        one, two = inner.arrange_by(lambda node: node), inner.key_by(lambda node: node)
        met = [
            two.join(forth).map(lambda m: m[1][1][1]),
            one.join(forth).map(lambda m: m[1][1][1]),
            one.join(back).map(lambda m: m[1][1][0]),
        ]
        return met[0].concat(*met[1:], roots).distinct()

    return roots.iterate(further)


def connected(there: Counter[Any]) -> dict[Any, int]:
    """The same, computed from scratch."""
    found = {0} if there else set()
    while more := {b for edge in there for a, b in (edge, edge[::-1]) if a in found} - found:
        found |= more
    return dict.fromkeys(found, 1)


@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=100)))
def test_arrangements_in_loops_are_right_whatever_happens_between_moments(seed: int, tmp_path: Path) -> None:
    program = replace(PROGRAMS[0], name="arranged", build=reach, table=connected, shape=Shape(8, 7, 8))
    run_disturbed(program, history(program.shape, seed), seed, tmp_path)


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_the_shared_side_is_kept_once_and_says_so(form: Form) -> None:
    flow = rd.Dataflow("shared")
    people, *others = (flow.collection(name) for name in ("people", "orders", "visits", "calls"))
    by_id = people.arrange_by("id", name="people by id")
    for number, other in enumerate(others):
        other.key_by("who").join(by_id).changes().probe(f"seen {number}").collect(f"out {number}")
    assert flow.explain().count("keeps the records of the arranged side once, for 3 joins, and those of each other side") == 1
    assert "keeps how often each record is there" in flow.explain()
    job = flow.submit(runtime="local", parallelism=2)
    for name, key in (("people", "id"), ("orders", "who"), ("visits", "who"), ("calls", "who")):
        rows = [{key: i} for i in range(100 if name == "people" else 10)]
        job.collection(name).insert(pa.Table.from_pylist(rows) if form == "columns" else rows)
        job.collection(name).advance_to(1)
    for number in range(3):
        assert job.probe(f"seen {number}").wait(0)
    assert isinstance(job, LocalJob)
    kept = next(vertex.figures for vertex in job.status().vertices if vertex.name == "people by id")
    what = "keys" if form == "rows" else "rows"
    assert kept == {f"{what} of shared": 100, f"{what} of other 0": 10, f"{what} of other 1": 10, f"{what} of other 2": 10}
    for name in ("people", "orders", "visits", "calls"):
        job.collection(name).close()
    assert [len(job.wait()[f"out {number}"]) for number in range(3)] == [10, 10, 10]


def test_a_shared_side_waits_as_seldom_as_a_side_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an epoch, and not once a round."""
    handled: Counter[str] = Counter()
    notified = MomentVertex.on_notify

    def counting(self: MomentVertex, time: rd.Timestamp) -> None:
        handled[type(self).__name__] += 1
        notified(self, time)

    monkeypatch.setattr(MomentVertex, "on_notify", counting)
    chain = [((node, node + 1), 1) for node in range(10)]
    changes: History = [chain, *([((0, 1), weight)] for _ in range(5) for weight in (-1, 1))]
    for arranged in (False, True):
        flow = rd.Dataflow("rounds")
        edges = rd.Collection(flow.from_epochs(changes))
        roots = flow.from_items([0]).as_collection()
        right = by_start(edges, arranged=arranged)
        roots.iterate(
            lambda inner, roots=roots, right=right: (  # type: ignore[misc]
                inner.key_by(lambda node: node).join(right).map(lambda met: met[1][1][1]).concat(roots).distinct()
            )
        ).collect("out")
        flow.run(runtime="local")
    assert 0 < handled["SharedJoin"] == handled["Join"] <= 3 * len(changes) < handled["Reduce"], handled


def by_start(edges: rd.Collection, *, arranged: bool) -> rd.KeyedCollection:
    return edges.arrange_by(lambda edge: edge[0]) if arranged else edges.key_by(lambda edge: edge[0])


def test_a_join_of_an_arrangement_has_no_name_of_its_own() -> None:
    flow = rd.Dataflow("named")
    one = flow.collection("one").key_by("id")
    with pytest.raises(rd.DataflowError, match=r"join\(name='mine'\): one side is arranged.*give arrange\(name=\.\.\.\) the name"):
        one.join(one.arrange(), name="mine")


def test_a_body_that_fails_leaves_an_arrangement_as_it_was() -> None:
    flow = rd.Dataflow("failed")
    edges = rd.Collection(flow.from_epochs([[((1, 2), 1)]]))
    shared = edges.arrange_by(lambda edge: edge[0])
    edges.key_by(lambda edge: edge[1]).join(shared).collect("before")

    def fails(inner: rd.Collection) -> rd.Collection:
        inner.key_by(lambda edge: edge[0]).join(shared)
        edges.map(lambda edge: edge).key_by(lambda edge: edge[0]).join(shared)
        raise KeyError("body")

    with pytest.raises(KeyError):
        edges.iterate(fails)
    edges.key_by(lambda edge: edge[0]).join(shared).collect("after")
    assert "for 2 joins" in flow.explain()
    result = flow.run(runtime="local")
    assert [record for _, record in result["after"]] == [((1, ((1, 2), (1, 2))), 1)]
    assert result["before"] == []
