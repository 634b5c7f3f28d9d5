"""The operators of random programs on collections of edges: in rows, where an edge is a pair, and in columns, where it has two fields."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd

Edge = tuple[int, int]
Operators = Mapping[str, Callable[..., rd.Collection]]
NODES = 5
PARTS = 3
"""Of the input; part ``PARTS`` is all of it."""


class InPart:
    """Whether an edge is in a part of the input: what one part drives does not change with each epoch."""

    def __init__(self, part: int) -> None:
        self.part = part

    def __call__(self, edge: Edge) -> bool:
        return self.part in (PARTS, (edge[0] + 2 * edge[1]) % PARTS)


def merged(edge: Edge) -> Edge:
    """A function that gives one record for several."""
    return edge[1], (edge[0] + edge[1]) % NODES


def many_merged(edges: list[Edge]) -> list[Edge]:
    """The same of many, in a batch."""
    return list(map(merged, edges))


def columns_merged(edges: pa.RecordBatch) -> pa.RecordBatch:
    """The same, in columns."""
    a, b = edges["src"], edges["dst"]
    both = pc.add(a, b)
    return pa.RecordBatch.from_arrays([b, pc.subtract(both, pc.multiply(pc.divide(both, NODES), NODES))], ["src", "dst"])


def is_ascending(edge: Edge) -> bool:
    return edge[0] < edge[1]


def composed(met: Any) -> Edge:
    """Of two edges end to start."""
    return met[1][0][0], met[1][1][1]


def placed(pair: Any) -> Edge:
    """A count as a node."""
    return pair[0], pair[1] % NODES


def missed(met: Any) -> Edge:
    """Of a left join: to where the right edge leads; where there is none, to the start."""
    left, right = met[1]
    return (left[0], right[1]) if right is not None else (left[1], left[0])


def digest(key: int, records: Any) -> list[Edge]:
    """Of all records of a key an edge that changes with each that comes or goes, and follows from no part of them: a moment at which it
    should have been computed again, and was not, is seen."""
    return [(zlib.crc32(repr((key, sorted(records))).encode()) % NODES, key)]


def number(edge: Edge) -> int:
    """Of an edge, such that sums of them tell sets of edges apart."""
    return 7 * edge[0] + 3 * edge[1] * edge[1] + edge[0] * edge[1]


def _mixed(count: Any, total: Any) -> Any:
    """Of sums what is not the sum of what parts give."""
    return total * total + total * count + count


def several(key: int, records: Iterable[Edge]) -> Edge:
    """Of all records of a key what :func:`digest` is for, from several aggregations."""
    there = list(records)
    return (_mixed(len(there), sum(map(number, there))) + max(map(end, there)) - min(map(start, there))) % NODES, key


def of_several(pair: Any) -> Edge:
    """The same, of their results."""
    key, found = pair
    return (_mixed(found["n"], found["total"]) + found["most"] - found["least"]) % NODES, key


def sums(key: int, records: Iterable[Edge]) -> Edge:
    """As :func:`several`, from sums alone."""
    there = list(records)
    return _mixed(len(there), sum(map(number, there))) % NODES, key


def of_sums(pair: Any) -> Edge:
    """The same, of their results."""
    return _mixed(pair[1]["n"], pair[1]["total"]) % NODES, pair[0]


def group(edge: Edge) -> int:
    """Few keys with many records."""
    return edge[0] % 2


def start(edge: Edge) -> int:
    return edge[0]


def end(edge: Edge) -> int:
    return edge[1]


# -- in rows -----------------------------------------------------------------------------------------------------------------
SUMS = {"n": "count", "total": ("sum", number)}
SEVERAL = {**SUMS, "most": ("max", end), "least": ("min", start)}

IN_ROWS: Operators = {
    "part": lambda edges, part: edges if part == PARTS else edges.filter(InPart(part)),
    "map": lambda one: one.map(merged),
    "many": lambda one: one.map_batches(many_merged, batch_format="rows"),
    "filter": lambda one: one.filter(is_ascending),
    "distinct": lambda one: one.distinct(),
    "count": lambda one: one.key_by(start).count().map(placed),
    "max": lambda one: one.key_by(start).max(end),
    "min": lambda one: one.key_by(end).min(start).map(lambda pair: (pair[1], pair[0])),
    "sums": lambda one: one.key_by(group).aggregate(SUMS).map(of_sums),
    "several": lambda one: one.key_by(group).aggregate(SEVERAL).map(of_several),
    "digest": lambda one: one.key_by(group).reduce(digest).map(lambda pair: pair[1]),
    "mix": lambda one, *others: one.concat(*others).key_by(group).reduce(digest).map(lambda pair: pair[1]),
    "blend": lambda one, *others: one.concat(*others).key_by(group).aggregate(SEVERAL).map(of_several),
    "concat": lambda one, *others: one.concat(*others).distinct(),
    "except": lambda one, other: one.except_(other),
    "intersect": lambda one, other: one.intersect(other),
    "compose": lambda one, other: one.key_by(end).join(other.key_by(start)).map(composed).distinct(),
    "semi": lambda one, other: one.key_by(end).join(other.arrange_by(start), "semi").map(lambda pair: pair[1]),
    "anti": lambda one, other: one.key_by(end).join(other.key_by(start), "anti").map(lambda pair: pair[1]),
    "left": lambda one, other: one.key_by(end).join(other.key_by(start), "left").map(missed).distinct(),
}


# -- in columns --------------------------------------------------------------------------------------------------------------
A, B = rd.col("src"), rd.col("dst")


def _rest(expression: Any, by: int) -> Any:
    """Of numbers that are not negative; Arrow divides whole numbers to whole ones."""
    return expression - pc.divide(expression, by) * by


def _edge(a: Any, b: Any) -> dict[str, Any]:
    return {"src": a, "dst": b}


def _value(field: str) -> Any:
    """A field of the value of a pair of key and value."""
    return rd.col("1", field)


def _met(side: str, field: str) -> Any:
    """A field of one of two that met."""
    return rd.col("1", side, field)


def _of_group(records: rd.Collection, found: Any, aggregations: Mapping[str, Any]) -> rd.Collection:
    numbered = records.with_columns({"group": _rest(A, 2), "number": A * 7 + B * B * 3 + A * B})
    return numbered.key_by("group").aggregate(aggregations).select(_edge(_rest(found, NODES), rd.col("0")))


NAMED_SUMS = {"n": "count", "total": ("sum", "number")}
NAMED_SEVERAL = {**NAMED_SUMS, "most": ("max", "dst"), "least": ("min", "src")}
OF_SUMS = _mixed(_value("n"), _value("total"))
OF_SEVERAL = OF_SUMS + _value("most") - _value("least")
MISSED = _edge(
    pc.if_else(pc.is_valid(_met("1", "dst")), _met("0", "src"), _met("0", "dst")),
    pc.coalesce(_met("1", "dst"), _met("0", "src")),
)

IN_COLUMNS: Operators = {
    "part": lambda edges, part: edges if part == PARTS else edges.filter(_rest(A + B * 2, PARTS) == part),
    "map": lambda one: one.select(_edge(B, _rest(A + B, NODES))),
    "many": lambda one: one.map_batches(columns_merged, batch_format="pyarrow"),
    "filter": lambda one: one.filter(A < B),
    "distinct": lambda one: one.distinct(),
    "count": lambda one: one.key_by("src").count().select(_edge(rd.col("0"), _rest(rd.col("1"), NODES))),
    "max": lambda one: one.key_by("src").max("dst").select(_edge(rd.col("0"), rd.col("1"))),
    "min": lambda one: one.key_by("dst").min("src").select(_edge(rd.col("1"), rd.col("0"))),
    "sums": lambda one: _of_group(one, OF_SUMS, NAMED_SUMS),
    "several": lambda one: _of_group(one, OF_SEVERAL, NAMED_SEVERAL),
    "blend": lambda one, *others: _of_group(one.concat(*others), OF_SEVERAL, NAMED_SEVERAL),
    "concat": lambda one, *others: one.concat(*others).distinct(),
    "except": lambda one, other: one.except_(other),
    "intersect": lambda one, other: one.intersect(other),
    "compose": lambda one, other: one.key_by("dst").join(other.key_by("src")).select(_edge(_met("0", "src"), _met("1", "dst"))).distinct(),
    "semi": lambda one, other: one.key_by("dst").join(other.arrange_by("src"), "semi").select(_edge(_value("src"), _value("dst"))),
    "anti": lambda one, other: one.key_by("dst").join(other.key_by("src"), "anti").select(_edge(_value("src"), _value("dst"))),
    "left": lambda one, other: one.key_by("dst").join(other.key_by("src"), "left").select(MISSED).distinct(),
}

__all__ = ["IN_COLUMNS", "IN_ROWS", "NODES", "PARTS", "Edge", "InPart", "Operators", "digest", "end", "group", "is_ascending", "merged"]
