"""The plan of a query: DataFusion's own where it turns all subqueries into joins, else one in which functions stand for subqueries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rayad.progress import DataflowError
from rayad.sql.planning.name_rules import LEFT, confuses_tables, is_in_a_join, is_pulled_too_far, looks_beyond, require_columns
from rayad.sql.planning.null_rules import require_no_comparison, require_not_in, require_nulls_kept
from rayad.sql.planning.planner import Planner
from rayad.sql.planning.rewording import BAG, OF_NAMES, with_bags, with_names
from rayad.sql.planning.scanning import Scanned
from rayad.sql.planning.subqueries import Rewriting


def planned(query: str, schemas: Mapping[str, pa.Schema]) -> Planner:
    """Plan a query. Raises DataflowError where it is wrong, or DataFusion has no plan for it.

    Three attempts: as it is; with functions for the subqueries of which DataFusion makes no joins; with functions for all.
    """
    planner = Planner(query, schemas)
    query = _without_bags(planner, query)
    try:
        written = planner.logical(query)
    except DataflowError as error:
        named = _scanned(query)
        if named is None or not OF_NAMES.search(str(error)):
            raise
        query = with_names(named)
        written = planner.logical(query)
    planner.names = tuple(planner.frame(written).schema().names)
    refusal = _attempt(planner, written)
    if refusal is None or LEFT not in written.display_indent():
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
    try:
        told = written.display_indent()
        if LEFT in told and (
            is_in_a_join(told) or is_pulled_too_far(told) or looks_beyond(told) or _confuses_tables(planner, written, told)
        ):
            return planner.refusal("DataFusion's plan for a subquery in it means something else")
        planner.plan = planner.optimized(written)
        if LEFT in told:
            require_no_comparison(planner, told)
            require_nulls_kept(planner, written)
            require_not_in(planner, planner.plan)
            require_columns(planner, planner.plan)
    except DataflowError as error:
        return error
    if LEFT in planner.plan.display_indent():
        return planner.refusal("a subquery in it stands where none is supported: there is no row of which it could be a value")
    return None


def _without_bags(planner: Planner, query: str) -> str:
    """The query without INTERSECT ALL and EXCEPT ALL."""
    found = planner.sets_of_bags(query)
    if not found:
        return query
    scanned = _scanned(query)
    text = "" if scanned is None else with_bags(scanned)
    if text.count(BAG) != found:
        raise planner.refusal("INTERSECT ALL, or EXCEPT ALL, is not found where it should be: put the sides in parentheses")
    return text


def _confuses_tables(planner: Planner, written: Any, told: str) -> bool:
    return confuses_tables(told) and confuses_tables(planner.optimized_once(written).display_indent())


def _scanned(query: str) -> Scanned | None:
    try:
        return Scanned(query)
    except (ValueError, IndexError, KeyError):  # DataFusion reads it, but this does not
        return None


__all__ = ["planned"]
