"""The table of all types for docs/types.md, written from the combinations that were tried."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.every_type.combinations import ABSENT, EXACT, REFUSED, Tried

BEGIN, END = "<!-- types: written by python -m tests.every_type -->", "<!-- end of types -->"
ROLES = {
    "passed on": "A column beside the key that is passed on",
    "key": "A column as the key",
    "value": "A column as the value",
    "time": "A column as the event time",
}
BOTH, ONLY_ROWS, ONLY_COLUMNS, NEITHER = "=", "rows", "columns", "no"


def cell(outcomes: Sequence[Tried]) -> str:
    """One operator and type. ``=``: exact in rows and in columns; ``rows``, ``columns``: exact only in these; ``no``: both are refused."""
    found = {tried.how: tried.outcome == EXACT for tried in outcomes}
    exact = [how for how, is_exact in found.items() if is_exact]
    return BOTH if len(exact) == len(found) else exact[0] if exact else NEITHER


def end_cell(outcomes: Sequence[Tried]) -> str:
    """One source or sink and type. ``=``: exact with every other end; ``no``: always refused; ``some``: both occur; blank: no such file."""
    there = {tried.outcome for tried in outcomes if tried.outcome != ABSENT}
    return {frozenset(): "", frozenset({EXACT}): BOTH, frozenset({REFUSED}): NEITHER}.get(frozenset(there), "some")


def markdown(tried: Sequence[Tried]) -> str:
    """All tables; kinds that agree in every operator of a table share a row."""
    parts = [summary(tried)]
    for role, title in ROLES.items():
        parts.append(f"### {title}\n\n{grouped([one for one in tried if one.role == role], 'operator')}")
    ends = [one for one in tried if one.role == "ends"]
    parts.append(
        f"### Sources and sinks\n\nEach source with each sink; a file format that cannot hold a type has no entry.\n\n{grouped_ends(ends)}"
    )
    return "\n\n".join(parts) + "\n"


def summary(tried: Sequence[Tried]) -> str:
    """How many combinations are exact, and how many are refused."""
    counts = {outcome: sum(one.outcome == outcome for one in tried) for outcome in (EXACT, REFUSED)}
    kinds = len({one.kind for one in tried})
    return f"{sum(counts.values()):,} combinations of {kinds} types: {counts[EXACT]:,} exact, {counts[REFUSED]:,} refused, nothing else."


def grouped(tried: Iterable[Tried], name: str) -> str:
    by_kind: dict[str, dict[str, list[Tried]]] = {}
    for one in tried:
        by_kind.setdefault(one.kind, {}).setdefault(one.operator, []).append(one)
    return _table({kind: {operator: cell(found) for operator, found in row.items()} for kind, row in by_kind.items()})


def grouped_ends(tried: Iterable[Tried]) -> str:
    tried = list(tried)
    ends = [*dict.fromkeys(one.operator for one in tried), *dict.fromkeys(one.how for one in tried)]
    by_kind: dict[str, dict[str, list[Tried]]] = {}
    readable = {(one.kind, one.operator) for one in tried if one.outcome == EXACT}
    for one in tried:
        row = by_kind.setdefault(one.kind, {end: [] for end in ends})
        row[one.operator].append(one)
        if (one.kind, one.operator) in readable or one.outcome == ABSENT:
            row[one.how].append(one)
    return _table({kind: {end: end_cell(found) for end, found in row.items()} for kind, row in by_kind.items()})


def cells(page: str) -> dict[tuple[int, str], tuple[str, ...]]:
    """The cells of each type in each table of a page, by the table's number: rows that types share are taken apart.

    >>> cells("| type | min |\\n| --- | --- |\\n| int8, int16 | = |\\n")
    {(1, 'int8'): ('=',), (1, 'int16'): ('=',)}
    """
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    table = 0
    for line in page.splitlines():
        first, *rest = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if first == "type":
            table += 1
        elif rest and first != "---":
            found |= {(table, kind): tuple(rest) for kind in re.split(r", (?![^(]*\)|[^\[]*\])", first)}
    return found


def _table(rows: dict[str, dict[str, str]]) -> str:
    operators = list(next(iter(rows.values())))
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind, row in rows.items():
        alike.setdefault(tuple(row.get(operator, "") for operator in operators), []).append(kind)
    lines = [["type", *operators], ["---"] * (len(operators) + 1)]
    lines += [[", ".join(kinds), *outcomes] for outcomes, kinds in alike.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
