"""Where DataFusion's plan of a subquery takes one column for another, loses one, or moves a condition where it means something else.

Four ways are known (DataFusion 55).

- A condition on a column of the query around is pulled up out of the subquery, over all that is between. Over filters and inner joins that
  is right, and over the one aggregate of a value; over LIMIT, windows, outer joins, or the aggregate of an EXISTS or IN it is not.
- Two such conditions, on columns of one name in two tables, become conditions on one column.
- In a subquery inside a subquery, a column two queries further out becomes a column of the query between.
- A subquery that is left behind the first pass of the optimizer has its conditions beneath its alias (``from t x``) by then, and a later
  pass takes ``t.a`` of the query around for that of the subquery. In the ON of a join, it may read columns that are not there, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayad.progress import DataflowError
from rayad.sql.planning.planner import Planner

OUTER = "outer_ref("
LEFT = "<subquery>"
"""What the text of a plan has for a subquery in an expression."""


def outer_names(text: str) -> Iterator[str]:
    """The columns of the query around in the text of a plan.

    >>> list(outer_names("a > outer_ref(t.b) AND outer_ref(count(*)) = 1"))
    ['t.b', 'count(*)']
    """
    at = text.find(OUTER)
    while at >= 0:
        start = end = at + len(OUTER)
        depth = 1
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[start : end - 1]
        at = text.find(OUTER, end)


@dataclass(slots=True)
class _Block:
    """A subquery in the text of a plan, or the whole.

    Args:
        indent: of its line.
        scanned: the tables in it, by their own names.
        visible: what its columns are called by.
        around: the relations of columns of queries around that it looks at.
        inner: subqueries in it.
        alias: the indentation of the alias that hides what is beneath; None: there is none.
        is_value: whether it gives one value, and is not that of EXISTS, IN, ANY or ALL.
        line, of_line: the last line with subqueries, and how many were in the block before it.
        above: the nodes above a line, with their indentations.
        is_pulled_over: whether a condition on a column of a query around is beneath what it cannot be pulled over.
        pulled: the columns in such conditions, by name: of which tables.
    """

    indent: int
    scanned: set[str] = field(default_factory=set)
    visible: set[str] = field(default_factory=set)
    around: set[str] = field(default_factory=set)
    inner: list[_Block] = field(default_factory=list)
    alias: int | None = None
    is_value: bool = True
    line: str = ""
    of_line: int = 0
    above: list[tuple[int, str]] = field(default_factory=list)
    is_pulled_over: bool = False
    pulled: dict[str, set[str]] = field(default_factory=dict)


def _blocks(text: str) -> _Block:
    whole = _Block(-1)
    open_blocks = [whole]
    for line in text.splitlines():
        indent, told = len(line) - len(line.lstrip()), line.strip()
        while indent <= open_blocks[-1].indent:
            open_blocks.pop()
        block = open_blocks[-1]
        if told == "Subquery:":
            kinds = _KINDS.findall(block.line)
            at = sum(inner.indent == indent for inner in block.inner[block.of_line :])
            block.inner.append(_Block(indent, is_value=at < len(kinds) and not kinds[at]))
            open_blocks.append(block.inner[-1])
            continue
        if LEFT in told:
            block.line, block.of_line = told, len(block.inner)
        if block.alias is not None and indent <= block.alias:
            block.alias = None
        block.around |= {name.rpartition(".")[0] for name in outer_names(line)}
        kind, _, name = told.partition(":")
        name = name.lstrip()
        block.above = [*(one for one in block.above if one[0] < indent), (indent, kind)]
        if OUTER in told:
            block.is_pulled_over |= not _is_pulled([one for _, one in block.above], is_value=block.is_value)
            for part in _PARTS.split(told):
                if OUTER in part:
                    for relation, column in _COLUMN.findall(_AROUND.sub("", part)):
                        block.pulled.setdefault(column, set()).add(relation)
        if kind in ("SubqueryAlias", "TableScan"):
            name = name.split(" projection=")[0]
            if block.alias is None:
                block.visible.add(name)
                block.alias = indent
            if kind == "TableScan":
                block.scanned.add(name)
    return whole


def _is_pulled(above: Sequence[str], *, is_value: bool) -> bool:
    """Whether DataFusion is right to pull a condition over these nodes, out of a subquery."""
    return above.count("Aggregate") <= is_value and set(above) <= _PULLED


_KINDS = re.compile(r"(EXISTS |IN |ANY |ALL |SOME )?\(<subquery>\)")
_PARTS = re.compile(r" (?:AND|OR) ")
_AROUND = re.compile(r"outer_ref\([^()]*\)")
_COLUMN = re.compile(r"\b(\w+)\.(\w+)")
_PULLED = {"Projection", "Filter", "SubqueryAlias", "Inner Join", "Cross Join", "Aggregate", "Sort"}


def _all(block: _Block) -> Iterator[_Block]:
    for inner in block.inner:
        yield inner
        yield from _all(inner)


def looks_beyond(written: str) -> bool:
    """Whether a subquery in a subquery looks at columns of a query that is further out, in the text of a plan as it is written."""
    return any(not inner.around <= block.visible for block in _all(_blocks(written)) for inner in _all(block))


def is_pulled_too_far(written: str) -> bool:
    """Whether a condition of a subquery on a column of a query around is beneath what DataFusion cannot pull it over; or there are two, of
    columns of one name in two tables, which it takes for one."""
    return any(block.is_pulled_over or any(len(of) > 1 for of in block.pulled.values()) for block in _all(_blocks(written)))


def is_in_a_join(written: str) -> bool:
    """Whether a subquery is in the ON of a join: what DataFusion makes of it may be wrong, or have columns that are not there."""
    return any(LEFT in line and " Join: " in line for line in written.splitlines())


def confuses_tables(once: str) -> bool:
    """Whether a subquery is left in the text of a plan behind the first pass, over a table of the name of one of the query around."""
    return any(block.scanned & block.around for block in _all(_blocks(once)))


def require_columns(planner: Planner, plan: Any) -> None:
    """See that all columns that a plan reads are there. Raises DataflowError."""
    for inner in plan.inputs():
        require_columns(planner, inner)
    variant = plan.to_variant()
    match type(variant).__name__:
        case "Filter":
            read = [variant.predicate()]
        case "Projection":
            read = variant.projections()
        case "Join":
            read = [side for pair in variant.on() for side in pair] + ([] if variant.filter() is None else [variant.filter()])
        case _:
            return
    try:
        planner.types(planner.frame(*plan.inputs()), [planner.wrapped(one) for one in read])
    except Exception as error:  # DataFusion raises Exception itself
        raise DataflowError(str(planner.refusal(f"its plan reads what is not there ({error})"))) from error


__all__ = ["LEFT", "OUTER", "confuses_tables", "is_in_a_join", "is_pulled_too_far", "looks_beyond", "outer_names", "require_columns"]
