"""The cost of a report in the progress core, by length and nesting of the graph; and a check that inner rounds cost outer scopes nothing.

There are no processes, only the tracker of a real plan and the reports that its replicas would send. Each report is applied and the views
are taken, as the progress actor does when reports come one at a time; that is the most expensive case.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import rayad as rd
from benchmarks.measurement import Measurement, Ratio
from rayad.progress import JobTracker, ProgressGraph

TITLE = "Progress tracking"
NEEDS_RAY = False
Report = list[tuple[int, rd.Timestamp, int]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    reports: int = 5_000
    lengths: tuple[int, ...] = (2, 8, 32, 128)
    depths: tuple[int, ...] = (1, 2, 3, 4)
    rounds: int = 1_000


FULL = Sizes()
QUICK = Sizes(repetitions=2, reports=100, lengths=(2, 8), depths=(1, 2), rounds=50)


class Idle(rd.Vertex):
    """Never runs: only its position in the graph matters."""


def never(record: Any) -> bool:
    """Nothing goes round."""
    return False


def chain(length: int) -> tuple[ProgressGraph, dict[str, int]]:
    """A tracker for a source and ``length`` vertices with an exchange before each; and the nodes by name."""
    flow = rd.Dataflow("chain")
    stream = flow.from_items([(0, 0)], name="source")
    for number in range(length):
        stream = stream.key_by(itemgetter(0)).vertex(Idle, name=f"v{number}")
    stream.collect("end")
    return _graph(flow)


def nested(depth: int) -> tuple[ProgressGraph, dict[str, int]]:
    """A vertex inside ``depth`` loops, its output fed back in the innermost one, and one vertex behind it all."""
    flow = rd.Dataflow("nested")

    def around(stream: rd.Stream, levels: int) -> rd.Stream:
        def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
            if levels > 1:
                out = around(inner, levels - 1)
                return out.filter(never), out
            again, out = inner.key_by(itemgetter(0)).vertex(Idle, outputs=2, name="inside")
            return again, out

        return stream.iterate(body)

    around(flow.from_items([(0, 0)], name="source"), depth).key_by(itemgetter(0)).vertex(Idle, name="after").collect("end")
    return _graph(flow)


def _graph(flow: rd.Dataflow) -> tuple[ProgressGraph, dict[str, int]]:
    plan = flow.plan(2)
    return plan.progress, {stage.name: stage.id for stage in plan.stages}


def barriers(graph: ProgressGraph, node: int) -> Iterator[Report]:
    """The reports of two replicas at ``node`` that ask for one epoch after another, in turn."""
    place = graph.notify_location(node)
    yield [(place, rd.Timestamp(0), 2)]
    epoch = 0
    while True:
        step = [(place, rd.Timestamp(epoch), -1), (place, rd.Timestamp(epoch + 1), 1)]
        yield step
        yield step
        epoch += 1


def epochs(graph: ProgressGraph, node: int) -> Iterator[Report]:
    """The reports of a source that advances from epoch to epoch: every frontier behind it moves."""
    place = graph.notify_location(node)
    yield []
    epoch = 0
    while True:
        yield [(place, rd.Timestamp(epoch), -1), (place, rd.Timestamp(epoch + 1), 1)]
        epoch += 1


def rounds(graph: ProgressGraph, node: int, depth: int) -> Iterator[Report]:
    """The reports of a message that goes round the innermost loop; its source has ended."""
    place = graph.target_location(node, 0)
    yield [(place, _round(depth, 0), 1)]
    number = 0
    while True:
        yield [(place, _round(depth, number), -1), (place, _round(depth, number + 1), 1)]
        number += 1


def _round(depth: int, number: int) -> rd.Timestamp:
    return rd.Timestamp(0, (0,) * (depth - 1) + (number,))


def new_tracker(graph: ProgressGraph, *, waits_at: int, source: int | None = None) -> JobTracker:
    """A tracker in which the node ``waits_at`` gets views; with ``source``, that source has ended."""
    tracker = JobTracker(graph)
    tracker.subscribe(waits_at)
    if source is not None and tracker.view(source).notify_frontier:
        tracker.apply([(location, time_of, -count) for location, time_of, count in tracker.counts()])
    tracker.views()
    return tracker


def per_report_us(tracker: JobTracker, reports: Iterator[Report], waits_at: int, count: int) -> tuple[float, int]:
    """Microseconds a report, over ``count`` reports, and how many views came for the node that waits."""
    tracker.apply(next(reports))
    tracker.views()
    ready = [next(reports) for _ in range(count)]
    apply, views_of, published = tracker.apply, tracker.views, 0
    began = time.perf_counter()
    for report in ready:
        apply(report)
        published += waits_at in views_of()
    return 1e6 * (time.perf_counter() - began) / count, published


@dataclass(frozen=True, slots=True)
class Case:
    """One thing measured."""

    start: Callable[[], tuple[JobTracker, Iterator[Report], int]]
    views: Callable[[int], int]


def cases(sizes: Sizes) -> dict[str, Case]:
    """The cases by name."""
    found: dict[str, Case] = {}
    for length in sizes.lengths:
        found[f"barrier at the end of {length} vertices"] = Case(partial(_start_barriers, length), lambda reports: reports // 2)
        found[f"new epoch at the head of {length} vertices"] = Case(partial(_start_epochs, length), lambda reports: reports)
    for depth in sizes.depths:
        found[f"round of a loop at depth {depth}"] = Case(partial(_start_rounds, depth), lambda reports: reports)
    return found


def _start_barriers(length: int) -> tuple[JobTracker, Iterator[Report], int]:
    graph, nodes = chain(length)
    last = nodes[f"v{length - 1}"]
    return new_tracker(graph, waits_at=last, source=nodes["source"]), barriers(graph, last), last


def _start_epochs(length: int) -> tuple[JobTracker, Iterator[Report], int]:
    graph, nodes = chain(length)
    last = nodes[f"v{length - 1}"]
    return new_tracker(graph, waits_at=last), epochs(graph, nodes["source"]), last


def _start_rounds(depth: int) -> tuple[JobTracker, Iterator[Report], int]:
    graph, nodes = nested(depth)
    inside = nodes["inside"]
    return new_tracker(graph, waits_at=inside, source=nodes["source"]), rounds(graph, inside, depth), inside


def count_updates(sizes: Sizes, out: Measurement) -> None:
    """Count the changes that each scope processes for ``rounds`` rounds of the innermost loop: outside of it there must be none."""
    title = f"Changes processed for {sizes.rounds} rounds of the innermost loop"
    table = out.new_table(title, "depth", "innermost scope", "all scopes outside")
    for depth in sizes.depths:
        tracker, reports, _ = _start_rounds(depth)
        tracker.apply(next(reports))
        before = tracker.scope_updates()
        for _ in range(sizes.rounds):
            tracker.apply(next(reports))
            tracker.views()
        grown = {scope: count - before[scope] for scope, count in tracker.scope_updates().items()}
        innermost = max(grown, key=lambda scope: grown[scope])
        outside = sum(count for scope, count in grown.items() if scope != innermost)
        table.add(depth, grown[innermost], outside)
        out.check("rounds of the innermost loop cost no scope outside anything", outside, 0)


def run(sizes: Sizes) -> Measurement:
    """All cases in turn, several times."""
    out = Measurement("progress", TITLE, asdict(sizes))
    todo = cases(sizes)
    series = {name: out.new_series(name, "µs/report", str(os.nice(0))) for name in todo}
    for _ in range(sizes.repetitions):
        for name, case in todo.items():
            microseconds, published = per_report_us(*case.start(), sizes.reports)
            out.check("views came exactly when a frontier had moved", published, case.views(sizes.reports))
            series[name].add(microseconds)
    first_depth = f"round of a loop at depth {sizes.depths[0]}"
    for name in todo:
        if name.startswith("round") and name != first_depth:
            out.ratios.append(Ratio(name, first_depth))
    count_updates(sizes, out)
    return out
