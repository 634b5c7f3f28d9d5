"""Dataflows of collections whose records are edges with fields, written in names and expressions: the same program runs in rows and in
columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from rayad.incremental.records import Row
from tests.incremental.programs import Edge, History, Kept, Shape, reached

Form = Literal["rows", "columns", "both", "rows later"]
"""As what records come; "both": every second epoch in columns; "rows later": in rows from the middle on."""
SCHEMA = pa.schema({"src": pa.int64(), "dst": pa.int64(), "diff": pa.int64()})


def stream_of(flow: rd.Dataflow, epochs: list[list[dict[str, Any]]], schema: pa.Schema, form: Form) -> rd.Stream:
    """Records with fields, by epoch, as a stream of this form."""
    in_columns = {
        "rows": lambda epoch: False,
        "columns": lambda epoch: True,
        "both": lambda epoch: epoch % 2 == 0,
        "rows later": lambda epoch: epoch < len(epochs) // 2,
    }[form]
    rows = [[] if in_columns(epoch) else some for epoch, some in enumerate(epochs)]
    table = [{"epoch": epoch, **row} for epoch, some in enumerate(epochs) if in_columns(epoch) for row in some]
    streams = [flow.from_epochs(rows, batch_rows=3)] if any(rows) or not table else []
    if table:
        with_epochs = pa.schema([("epoch", pa.int64()), *schema])
        streams.append(flow.from_arrow(pa.Table.from_pylist(table, with_epochs), epoch="epoch", batch_rows=3).select(*schema.names))
    return streams[0].union(*streams[1:]) if streams[1:] else streams[0]


@dataclass(frozen=True)
class InFields(Kept):
    """A program of edges ``{"src", "dst"}``; its table is computed from edges that are pairs."""

    form: Form = "rows"

    def flow(self, changes: History, together: int = 1) -> rd.Dataflow:
        """See there."""
        flow = rd.Dataflow(f"{self.name}-{self.form}", epochs_together=together)
        epochs = [[{"src": edge[0], "dst": edge[1], "diff": weight} for edge, weight in some] for some in changes]
        edges = stream_of(flow, epochs, SCHEMA, self.form)
        self.build(edges.as_collection(diff="diff")).collect("out")
        return flow


def reach(edges: rd.Collection) -> rd.Collection:
    """The nodes that can be reached from node 0."""
    roots = edges.select({"node": rd.col("src") * 0}).distinct()

    def further(inner: rd.Collection) -> rd.Collection:
        ends = inner.key_by("node").join(edges.key_by("src")).select({"node": rd.col("1", "1", "dst")})
        return ends.concat(roots).distinct()

    return roots.iterate(further)


def reach_later(edges: rd.Collection) -> rd.Collection:
    """As :func:`reach`, from nodes 0 and 1, of which the second is there from the next round on."""
    roots, later = (edges.select({"node": rd.col("src") * 0 + number}).distinct() for number in (0, 1))

    def further(inner: rd.Collection) -> rd.Collection:
        ends = inner.key_by("node").join(edges.key_by("src")).select({"node": rd.col("1", "1", "dst")})
        return ends.concat(roots, later.enter_at(inner, lambda record: record["node"])).distinct()

    return roots.iterate(further)


def core(edges: rd.Collection) -> rd.Collection:
    """The edges that are left when those are dropped, again and again, whose source cannot be reached from node 0 along what is left, or is
    the end of no edge of it: a loop inside a loop."""

    def narrower(inner: rd.Collection) -> rd.Collection:
        ends = inner.select({"node": rd.col("dst")}).distinct()
        there = ends.key_by("node").join(reach(inner).key_by("node")).select({"node": rd.col("0")})
        return inner.key_by("src").join(there.key_by("node")).select({"src": rd.col("1", "0", "src"), "dst": rd.col("1", "0", "dst")})

    return edges.iterate(narrower)


def core_of(there: Counter[Any]) -> dict[Any, int]:
    """The same, computed from scratch."""
    left = dict(there)
    while True:
        found = reached(left, {0}) if left else set()
        ends = {target for _, target in left}
        narrower = {edge: weight for edge, weight in left.items() if edge[0] in found and edge[0] in ends}
        if narrower == left:
            return left
        left = narrower


def _paths(edges: rd.Collection) -> rd.Collection:
    met = edges.key_by("dst").join(edges.key_by("src"))
    return met.select({"a": rd.col("1", "0", "src"), "b": rd.col("0"), "c": rd.col("1", "1", "dst")})


def _paths_of(there: Counter[Any]) -> dict[Any, int]:
    out: Counter[Any] = Counter()
    for (a, b), weight in there.items():
        for (c, d), other in there.items():
            if b == c:
                out[Row(a=a, b=b, c=d)] += weight * other
    return dict(out)


def _of_values(result: Callable[[list[int]], Any]) -> Callable[[Counter[Any]], dict[Any, int]]:
    """What a function makes of the targets of each source."""

    def table(there: Counter[Any]) -> dict[Any, int]:
        values: dict[int, list[int]] = {}
        for (source, target), weight in there.items():
            values.setdefault(source, []).extend([target] * weight)
        return {(source, result(some)): 1 for source, some in values.items()}

    return table


def _row(edge: Edge) -> Row:
    return Row(src=edge[0], dst=edge[1])


def _reached_of(there: Counter[Any]) -> dict[Any, int]:
    return {Row(node=node): 1 for node in reached(there, {0})} if there else {}


def _reached_later_of(there: Counter[Any]) -> dict[Any, int]:
    return {Row(node=node): 1 for node in reached(there, {0, 1})} if there else {}


def _ends(there: Counter[Any]) -> dict[Any, int]:
    return {Row(dst=target): 1 for _, target in there}


def _turned(edges: rd.Collection) -> rd.Collection:
    return edges.select({"src": rd.col("dst"), "dst": rd.col("src")})


def _both_ways(there: Counter[Any]) -> dict[Any, int]:
    return {_row(edge): 1 for edge in there if edge[::-1] in there}


def _one_way(there: Counter[Any]) -> dict[Any, int]:
    return {_row(edge): 1 for edge in there if edge[::-1] not in there}


def _tenths(edges: rd.Collection) -> rd.Collection:
    return edges.with_columns({"tenth": rd.col("dst") * 0.1}).key_by("src").sum("tenth")


def _in_windows(windows: Any) -> Callable[[rd.Collection], rd.Collection]:
    """How many edges a source has in each window of their targets."""
    return lambda edges: edges.key_by("src").window(windows, "dst").count()


def _windows_of(windows: Any) -> Callable[[Counter[Any]], dict[Any, int]]:
    """The same, computed from scratch."""

    def table(there: Counter[Any]) -> dict[Any, int]:
        counts: Counter[Any] = Counter()
        for (source, target), weight in there.items():
            for window in windows.assign(target):
                counts[source, window] += weight
        return dict.fromkeys(counts.items(), 1)

    return table


def _sessions_of(there: Counter[Any]) -> dict[Any, int]:
    """Sessions with a gap of 1: targets that follow each other."""
    counts: Counter[Any] = Counter()
    for source in {source for source, _ in there}:
        targets = sorted({target for one, target in there if one == source})
        for target in targets:
            first = last = target
            while first - 1 in targets:
                first -= 1
            while last + 1 in targets:
                last += 1
            counts[source, (first, last + 1)] += there[source, target]
    return dict.fromkeys(counts.items(), 1)


def _several_sums(edges: rd.Collection) -> rd.Collection:
    return edges.key_by("src").aggregate({"n": "count", "total": ("sum", "dst")})


def _several(edges: rd.Collection) -> rd.Collection:
    return edges.key_by("src").aggregate({"n": "count", "total": ("sum", "dst"), "most": ("max", "dst")})


def in_form(form: Form) -> list[InFields]:
    """All of them."""
    small = Shape(6, 12, 12)
    return [
        InFields("counts", lambda edges: edges.key_by("src").count(), _of_values(len), small, form),
        InFields("sums", lambda edges: edges.key_by("src").sum("dst"), _of_values(sum), small, form),
        InFields("means", lambda edges: edges.key_by("src").mean("dst"), _of_values(lambda some: sum(some) / len(some)), small, form),
        InFields("several sums", _several_sums, _of_values(lambda some: Row(n=len(some), total=sum(some))), small, form),
        InFields("several", _several, _of_values(lambda some: Row(n=len(some), total=sum(some), most=max(some))), small, form),
        InFields("tenths", _tenths, _of_values(lambda some: float(sum(Fraction(value * 0.1) for value in some))), small, form),
        InFields(
            "threshold",
            lambda edges: edges.select("src").threshold(rd.col("1") - rd.col("0", "src")),
            lambda there: {
                Row(src=source): weight - source
                for source, weight in Counter(source for source, _ in there.elements()).items()
                if weight != source
            },
            small,
            form,
        ),
        InFields("tumbling", _in_windows(rd.windows.tumbling(3, 1)), _windows_of(rd.windows.tumbling(3, 1)), small, form),
        InFields("sliding", _in_windows(rd.windows.sliding(4, 2)), _windows_of(rd.windows.sliding(4, 2)), small, form),
        InFields("sessions", _in_windows(rd.windows.session(1)), _sessions_of, small, form),
        InFields("ends", lambda edges: edges.select("dst").distinct(), _ends, small, form),
        InFields(
            "some",
            lambda edges: edges.filter((rd.col("src") > 1) & (pc.field("dst") < 5)).with_columns({"both": rd.col("src") + rd.col("dst")}),
            lambda there: {Row(src=s, dst=d, both=s + d): weight for (s, d), weight in there.items() if s > 1 and d < 5},
            small,
            form,
        ),
        InFields("both ways", lambda edges: edges.intersect(_turned(edges)), _both_ways, small, form),
        InFields("one way", lambda edges: edges.except_(_turned(edges)), _one_way, small, form),
        InFields("paths", _paths, _paths_of, Shape(5, 8, 10), form),
        InFields(
            "left",
            lambda edges: edges.key_by("dst").join(edges.select({"src": rd.col("src")}).distinct().key_by("src"), "left"),
            lambda there: {
                (target, (_row((source, target)), Row(src=target) if any(target == other for other, _ in there) else None)): weight
                for (source, target), weight in there.items()
            },
            small,
            form,
        ),
        InFields("reach", reach, _reached_of, Shape(10, 20, 12), form),
        InFields("reach later", reach_later, _reached_later_of, Shape(8, 14, 10), form),
        InFields("core", core, lambda there: {_row(edge): weight for edge, weight in core_of(there).items()}, Shape(6, 9, 8), form),
    ]


__all__ = ["Form", "InFields", "in_form", "stream_of"]
