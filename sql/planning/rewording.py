"""What the text of a query says in other words before DataFusion reads it: INTERSECT ALL, EXCEPT ALL, and two columns of one name.

DataFusion plans ``a EXCEPT ALL b`` as a join that keeps the rows of ``a`` that are not in ``b``, however often they are in both. An alias
of the right side says which of its joins these are (``reading_joins.py``).
"""

from __future__ import annotations

import re

from rayad.sql.planning.scanning import Core, Query, Role, Scanned

BAG = "__rayad_bag"
"""The alias of what is on the right of INTERSECT ALL and EXCEPT ALL."""
OF_NAMES = re.compile(r"two columns (have one name|are called)")
"""What the planner says of two columns of one name."""
_NO_ALIAS = frozenset(("END", "NULL", "TRUE", "FALSE", "DAY", "MONTH", "YEAR", "HOUR", "MINUTE", "SECOND", "UNKNOWN"))

_NO_OPERAND = frozenset(
    ("AND", "OR", "NOT", "IS", "LIKE", "ILIKE", "BETWEEN", "IN", "FROM", "THEN", "ELSE", "WHEN", "CASE", "OVER", "INTERVAL", "DATE")
)


def with_bags(scanned: Scanned) -> str:
    """The query with an alias for each right side of INTERSECT ALL and EXCEPT ALL."""
    added: list[tuple[int, str]] = []
    for query in (scanned.whole, *scanned.queries()):
        for at, (operator, last) in enumerate(query.operators):
            if scanned.word(last) != "ALL" or scanned.word(operator) == "UNION":
                continue
            stop = at + 1  # INTERSECT binds more tightly than EXCEPT
            while (
                scanned.word(operator) == "EXCEPT" and stop < len(query.operators) and scanned.word(query.operators[stop][0]) == "INTERSECT"
            ):
                stop += 1
            end = query.operators[stop][0] if stop < len(query.operators) else query.tail
            added.append((scanned.tokens[last].end, " (select * from ("))
            added.append((scanned.tokens[end - 1].end, f") as {BAG}) "))
    text = scanned.text
    for place, more in sorted(added, key=lambda one: one[0], reverse=True):
        text = text[:place] + more + text[place:]
    return text


def with_names(scanned: Scanned) -> str:
    """The query with other names for columns of its result that have the name of one before: the second ``a`` is ``a_1``."""
    edits = []
    for core in _outermost(scanned.whole):
        items = [(start, end) for start, end in _items(scanned, core) if start < end]
        names = [_name(scanned, core, start, end) for start, end in items]
        taken = set(names)
        columns = {name for (start, end), name in zip(items, names, strict=True) if _is_column(scanned, start, end)}
        seen = columns if any(scanned.word(start) == "*" for start, _ in items) else set()  # which are in the * already
        for (start, end), name in zip(items, names, strict=True):
            if name in seen and name != "*":
                number = next(number for number in range(1, len(names) + 1) if f"{name}_{number}" not in taken)
                taken.add(f"{name}_{number}")
                quoted = '"{}"'.format(f"{name}_{number}".replace('"', '""'))
                edits.append((scanned.tokens[_alias(scanned, start, end) - 1].end, scanned.tokens[end - 1].end, f" as {quoted} "))
            seen.add(name)
    text = scanned.text
    for first, last, more in sorted(edits, reverse=True):
        text = text[:first] + more + text[last:]
    return text


def _outermost(query: Query) -> list[Core]:
    """The SELECTs that give the result."""
    found = []
    for core in query.cores:
        found += [core] if "SELECT" in core.clauses else []
        for inner in core.inner:
            found += _outermost(inner) if inner.role is Role.OPERAND else []
    return found


def _items(scanned: Scanned, core: Core) -> list[tuple[int, int]]:
    """The tokens of each column."""
    at, end = core.clauses["SELECT"]
    if scanned.word(at) in ("ALL", "DISTINCT"):
        at = scanned.close_of(at + 2) + 1 if scanned.word(at + 1) == "ON" else at + 1
    found, start = [], at
    while at < end:
        if scanned.word(at) == ",":
            found.append((start, at))
            start = at + 1
        at = scanned.close_of(at) + 1 if scanned.word(at) == "(" else at + 1
    return [*found, (start, end)]


def _alias(scanned: Scanned, start: int, end: int) -> int:
    """Where the name that a column is given begins; the end where it has none."""
    if scanned.word(end - 2) == "AS":
        return end - 2
    last, before = scanned.tokens[end - 1], scanned.tokens[end - 2]
    is_name = last.kind == "quoted" or (last.kind == "word" and last.text not in _NO_ALIAS)
    is_operand = before.kind in ("word", "quoted", "number", "text") or before.text == ")"
    return end - 1 if end - start > 1 and is_name and is_operand and before.text not in _NO_OPERAND else end


def _name(scanned: Scanned, core: Core, start: int, end: int) -> str:
    """What a column is called."""
    at = _alias(scanned, start, end)
    tokens = scanned.tokens
    if at < end:
        return _plain(tokens[end - 1].text)
    if _is_column(scanned, start, end):
        return _plain(next(token.text for token in reversed(tokens[start:end]) if token.text != ")"))
    if tokens[end - 1].text == "*" and (end - start == 1 or tokens[end - 2].text == "."):
        return "*"
    inside = [inner for inner in core.inner if inner.is_value and start <= inner.start < end]
    if any(inner.span == (start, end) for inner in inside):
        return "subquery"
    given, at = "", tokens[start].start
    for inner in inside:  # DataFusion calls them all the same
        given += scanned.text[at : tokens[inner.start].start] + "subquery"
        at = tokens[inner.end].start
    return " ".join((given + scanned.text[at : tokens[end - 1].end]).split())


def _is_column(scanned: Scanned, start: int, end: int) -> bool:
    """Whether these tokens are a column, maybe with a plus before it or in parentheses."""
    while True:
        if scanned.word(start) == "+":
            start += 1
        elif scanned.word(start) == "(" and scanned.close_of(start) == end - 1:
            start, end = start + 1, end - 1
        else:
            break
    kinds = [token.kind for token in scanned.tokens[start:end]]
    is_qualified = len(kinds) == 3 and scanned.word(start + 1) == "." and kinds[2] in ("word", "quoted")
    return kinds in (["word"], ["quoted"]) or is_qualified


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name[0] in '"`' else name.lower()


__all__ = ["BAG", "OF_NAMES", "with_bags", "with_names"]
