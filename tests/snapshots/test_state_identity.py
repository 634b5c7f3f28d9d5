"""A state is never read as that of another operator: what each vertex keeps is noted with snapshots and compared at a resume."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rayad as rd
from rayad.actors.replica.graph_shape import graph_shape
from rayad.dataflow.streams.keyed_stream import KeyedStream
from rayad.dataflow.streams.windowed_stream import WindowedStream
from rayad.progress import SnapshotError
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.resume_point import misfits

Build = Callable[[rd.Stream], Any]


class Longest(rd.Aggregator):
    def create(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return max(left, right, key=len)


class LongestAgain(Longest):
    state_version = 2


LongestAgain.__name__ = "Longest"


class Keeps(rd.Vertex):
    def __init__(self, size: int = 0) -> None:
        self.size = size

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


class KeepsMore(Keeps):
    state_version = 2


class Reads(rd.Source):
    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: Any, resume: Any) -> Any:
        raise NotImplementedError


class ReadsOtherwise(Reads):
    state_version = 3


def keyed(build: Callable[[KeyedStream], Any]) -> Build:
    return lambda stream: build(stream.key_by("w"))


def windowed(windows: Any, build: Callable[[WindowedStream], Any] = lambda w: w.count(name="v"), *, late: int = 0) -> Build:
    return lambda stream: build(stream.assign_timestamps("t", max_delay=late or None).key_by("w").window(windows))


def looped(rounds: int, *, enter: bool = True) -> Build:
    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        counts = inner.key_by("w").count(name="v") if enter else inner.key_by("w").max("t", name="v")
        return counts, counts

    return lambda stream: stream.iterate(body, max_rounds=rounds, name="again")


def reading(source: rd.Source) -> Build:
    return lambda stream: stream.flow.source(source, name="v")


def shape(build: Build, parallelism: int = 1) -> dict[str, Any]:
    flow = rd.Dataflow("identity")
    build(flow.from_items([{"w": "a", "t": 1, "x": 2}], name="lines"))
    for node in flow.graph.nodes:
        node.where = f"elsewhere.py:{parallelism}"
    return {**graph_shape(flow.plan(parallelism)), "movable": ["v", "lines"]}


def why_not(before: Build, now: Build, parallelism: int = 1) -> list[str]:
    old = shape(before)
    return misfits(Manifest(1, "identity", old, 256, ()), shape(now, parallelism), 256)


COUNT = "Totals(aggregator=Count, key=['w']) version 2"
MEAN = "Totals(aggregator=Mean, key=['w'], value='x') version 2"
LARGEST = "Totals(aggregator=Max, key=['w'], value='x') version 2"
TOP_2 = "Totals(aggregator=TopK(k=2), key=['w']) version 2"
LONGEST_AGAIN = "Totals(aggregator=Longest version 2, key=['w'], value='w') version 2"
BEST = "EpochBest(aggregator=BestRecords(by='x', largest=True), key=['w']) version 2"
PAIR = "Totals(aggregator=Count, key=['w', 't']) version 2"


@pytest.mark.parametrize(
    ("before", "now", "was", "is_now"),
    [
        (keyed(lambda k: k.count(name="v")), keyed(lambda k: k.max("x", name="v")), COUNT, LARGEST),
        (keyed(lambda k: k.count(name="v")), keyed(lambda k: k.mean("x", name="v")), COUNT, MEAN),
        (keyed(lambda k: k.count(name="v")), keyed(lambda k: k.top_k(2, name="v")), COUNT, TOP_2),
        (keyed(lambda k: k.count(name="v")), keyed(lambda k: k.distinct(name="v")), COUNT, "Distinct(key=['w']) version 3"),
        (keyed(lambda k: k.count(name="v")), keyed(lambda k: k.fold(0, max, name="v")), COUNT, "Fold(key=['w']) version 2"),
        (keyed(lambda k: k.count(name="v")), keyed(lambda k: k.stateful_map(max, name="v")), COUNT, "StatefulMap(key=['w']) version 2"),
        (
            keyed(lambda k: k.sum("x", name="v")), keyed(lambda k: k.sum("t", name="v")),
            "Totals(aggregator=Sum, key=['w'], value='x') version 2", "Totals(aggregator=Sum, key=['w'], value='t') version 2",
        ),
        (keyed(lambda k: k.count(name="v")), lambda s: s.key_by(["w", "t"]).count(name="v"), COUNT, PAIR),
        (
            keyed(lambda k: k.top_k(2, name="v")), keyed(lambda k: k.top_k(3, name="v")),
            "Totals(aggregator=TopK(k=2), key=['w']) version 2", "Totals(aggregator=TopK(k=3), key=['w']) version 2",
        ),
        (
            keyed(lambda k: k.aggregate({"n": "count", "m": ("mean", "x")}, name="v")),
            keyed(lambda k: k.aggregate({"m": ("mean", "x"), "n": "count"}, name="v")),
            "Totals(aggregator=Several(parts=[['n', Count], ['m', Mean]], values=[None, 'x']), key=['w']) version 2",
            "Totals(aggregator=Several(parts=[['m', Mean], ['n', Count]], values=['x', None]), key=['w']) version 2",
        ),
        (
            keyed(lambda k: k.aggregate(Longest(), "w", name="v")), keyed(lambda k: k.aggregate(LongestAgain(), "w", name="v")),
            "Totals(aggregator=Longest, key=['w'], value='w') version 2", LONGEST_AGAIN,
        ),
        (
            windowed(rd.windows.tumbling(10)), windowed(rd.windows.tumbling(20)),
            "EventWindows(aggregator=Count, windows=Tumbling(size=10), key=['w'], time=['t']) version 2",
            "EventWindows(aggregator=Count, windows=Tumbling(size=20), key=['w'], time=['t']) version 2",
        ),
        (
            windowed(rd.windows.tumbling(10)), windowed(rd.windows.session(10)),
            "EventWindows(aggregator=Count, windows=Tumbling(size=10), key=['w'], time=['t']) version 2",
            "EventWindows(aggregator=Count, windows=Session(gap=10), key=['w'], time=['t']) version 2",
        ),
        (
            windowed(rd.windows.sliding(dt.timedelta(hours=1), dt.timedelta(minutes=5))),
            windowed(rd.windows.sliding(dt.timedelta(hours=1), dt.timedelta(minutes=6))),
            "EventWindows(aggregator=Count, windows=Sliding(size='1:00:00', slide='0:05:00'), key=['w'], time=['t']) version 2",
            "EventWindows(aggregator=Count, windows=Sliding(size='1:00:00', slide='0:06:00'), key=['w'], time=['t']) version 2",
        ),
        (
            windowed(rd.windows.per_epoch()), windowed(rd.windows.per_epoch(), lambda w: w.max_by("x", name="v")),
            "EpochWindows(aggregator=Count, key=['w']) version 2", BEST,
        ),
        (
            lambda s: s.join(s, on="w", name="v"), lambda s: s.join(s, on="w", right_on="t", name="v"),
            "Join(key=['w'], right_key=['w']) version 4", "Join(key=['w'], right_key=['t']) version 4",
        ),
        (looped(3), looped(3, enter=False), COUNT, "Totals(aggregator=Max, key=['w'], value='t') version 2"),
        (lambda s: s.vertex(Keeps, name="v"), lambda s: s.vertex(partial(KeepsMore, 1), name="v"), "Keeps", "KeepsMore version 2"),
        (reading(Reads()), reading(ReadsOtherwise()), "Reads", "ReadsOtherwise version 3"),
    ],
)  # fmt: skip
def test_a_state_of_another_operator_is_refused_and_both_are_named(before: Build, now: Build, was: str, is_now: str) -> None:
    told = why_not(before, now)
    expected = f"vertex 'v' has changed: what it keeps was {was} and is {is_now} now"
    assert [line for line in told if line.startswith("vertex 'v' has changed: what")] == [expected]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (lambda s: s.key_by(lambda r: r["w"]).count(name="v"), lambda s: s.key_by(str).count(name="v")),
        (keyed(lambda k: k.sum("x", name="v")), keyed(lambda k: k.sum(lambda r: r["x"], name="v"))),
        (keyed(lambda k: k.reduce(max, name="v")), keyed(lambda k: k.reduce(lambda a, b: max(b, a), name="v"))),
        (keyed(lambda k: k.fold(0, lambda a, b: a, name="v")), keyed(lambda k: k.fold(int, lambda a, b: a + 1, name="v"))),
        (keyed(lambda k: k.top_k(2, by=str, name="v")), keyed(lambda k: k.top_k(2, by=repr, name="v"))),
        (windowed(rd.windows.tumbling(10)), windowed(rd.windows.tumbling(np.float64(10.0)), late=5)),
        (looped(3), looped(9)),
        (lambda s: s.rebalance().ordered(name="v"), lambda s: s.rebalance().ordered(name="v", memory_bytes=9)),
        (lambda s: s.vertex(partial(Keeps, 1), name="v"), lambda s: s.vertex(lambda: Keeps(2), name="v")),
        (lambda s: s.collect("out"), lambda s: s.collect("out", columnar=True)),
    ],
)
def test_settings_that_do_not_shape_the_state_may_change(before: Build, now: Build) -> None:
    assert why_not(before, now) == []


@pytest.mark.parametrize("build", [keyed(lambda k: k.count(name="v")), windowed(rd.windows.tumbling(10)), looped(3)])
def test_lines_of_the_program_and_parallelism_are_no_part_of_a_state(build: Build) -> None:
    assert why_not(build, build, parallelism=3) == []


def test_a_snapshot_made_before_states_were_noted_fits() -> None:
    old = shape(keyed(lambda k: k.count(name="v")))
    for entry in [*old["vertices"].values(), *old["sinks"].values()]:
        del entry["state"]
    assert misfits(Manifest(1, "identity", old, 256, ()), shape(keyed(lambda k: k.max("x", name="v"))), 256) == []


def totals(flow: rd.Dataflow, how: str) -> None:
    stream = flow.from_epochs([[("a", 5)], [("a", 7)], [("b", 1)]], name="lines").key_by(lambda pair: pair[0])
    getattr(stream, how)(**({"k": 1} if how == "top_k" else {}), name="v").collect("out")


@pytest.mark.parametrize("how", ["max", "mean", "top_k", "distinct"])
def test_count_replaced_under_the_same_name_is_refused(tmp_path: Path, how: str) -> None:
    run = rd.RunConfig(storage_path=str(tmp_path))
    flow = rd.Dataflow("replaced")
    totals(flow, "count")
    flow.submit(run, runtime="local").savepoint()
    flow = rd.Dataflow("replaced")
    totals(flow, how)
    with pytest.raises(SnapshotError, match=r"what it keeps was Totals\(aggregator=Count\) version 2 and is "):
        flow.run(run, runtime="local", resume="latest")


def test_a_factory_that_makes_another_vertex_is_refused_when_the_state_is_read(tmp_path: Path) -> None:
    def flow(make: Any) -> rd.Dataflow:
        flow = rd.Dataflow("made")
        flow.from_epochs([[1], [2]], name="lines").vertex(make, name="v").collect("out")
        return flow

    run = rd.RunConfig(storage_path=str(tmp_path))
    flow(lambda: Keeps(1)).submit(run, runtime="local").savepoint()
    with pytest.raises(SnapshotError) as caught:
        flow(lambda: KeepsMore(1)).run(run, runtime="local", resume="latest")
    assert str(caught.value) == (
        "vertex 'v' cannot resume: what it keeps in the snapshot is that of Keeps, and the dataflow makes KeepsMore version 2; run "
        "the dataflow that the snapshot was taken of, or begin afresh with resume='never'"
    )
