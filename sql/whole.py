"""The plan of a query: DataFusion's own where it turns all subqueries into joins, else one in which functions stand for subqueries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rayad.progress import DataflowError
from rayad.sql.null_rules import require_nulls_kept
from rayad.sql.planning import Planner
from rayad.sql.scanning import Scanned
from rayad.sql.subqueries import Rewriting, outer_names

_LEFT = "<subquery>"
"""What the text of a plan has for a subquery in an expression."""


def planned(query: str, schemas: Mapping[str, pa.Schema]) -> Planner:
    """Plan a query. Raises DataflowError where it is wrong, or DataFusion has no plan for it.

    Three attempts: as it is; with functions for the subqueries of which DataFusion makes no joins; with functions for all.
    """
    planner = Planner(query, schemas)
    written = planner.logical(query)
    planner.names = tuple(planner.frame(written).schema().names)
    refusal = _attempt(planner, written)
    if refusal is None or _LEFT not in written.display_indent():
        if refusal is not None:
            raise refusal
        return planner
    scanned = _scanned(query)
    if scanned is None:
        raise refusal
    for keeps in (True, False):
        planner.subqueries.clear()
        refusal = _attempt(planner, planner.logical(Rewriting(planner, scanned, keeps=keeps).text))
        if refusal is None:
            return planner
    assert refusal is not None
    raise refusal


def _attempt(planner: Planner, written: Any) -> DataflowError | None:
    """Take the plan of a query as it is written. Returns why it is refused."""
    planner.written = written
    if _LEFT in written.display_indent() and _confuses_names(planner.optimized_once(written).display_indent()):
        return planner.refusal("DataFusion confuses two tables of one name in a subquery in it")
    try:
        planner.plan = planner.optimized(written)
        require_nulls_kept(planner, written)
    except DataflowError as error:
        return error
    if _LEFT in planner.plan.display_indent():
        return planner.refusal("DataFusion turns a subquery in it into no join, and it cannot be taken out of the text of the query")
    return None


def _confuses_names(once: str) -> bool:
    """Whether a subquery is left behind the first pass of the optimizer that reads a table of the name of one of the query around. By then
    conditions are beneath aliases (``from t x``), and a later pass takes ``t.a`` of the query around for that of the subquery.
    """
    depth, scanned, around = -1, set(), set()
    for line in once.splitlines():
        indent = len(line) - len(line.lstrip())
        if depth >= 0 and indent <= depth:
            depth = -1
        if depth < 0 and line.strip() == "Subquery:":
            depth = indent
        if depth >= 0:
            if line.strip().startswith("TableScan: "):
                scanned.add(line.split()[1])
            around |= {name.partition(".")[0] for name in outer_names(line)}
    return bool(scanned & around)


def _scanned(query: str) -> Scanned | None:
    try:
        return Scanned(query)
    except (ValueError, IndexError, KeyError):  # DataFusion reads it, but this does not
        return None


__all__ = ["planned"]
