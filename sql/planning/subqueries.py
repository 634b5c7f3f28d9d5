"""Subqueries in expressions that DataFusion leaves there, as functions of the columns that they use of the query around.

The plan of such a subquery cannot be reached from Python, and DataFusion writes no bytes of it. But a subquery in FROM, behind LATERAL, is
a node of a plan, and its plan has a name for each column of the query around (``outer_ref(t.a)``). So each subquery is planned a second
time, behind the FROM of the query around it, and stands in the text of the query as a call: ``__sub1("t"."a")``. DataFusion finds what
names mean, coerces types, and optimizes both plans; ``translating.py`` computes a call for all of its arguments at once.

``x IN (SELECT v ...)``, and ``x < ANY (...)``, are true where a ``v`` compares so; else null where one compares to null; else false.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rayad.progress import DataflowError, show
from rayad.sql.planning.name_rules import outer_names
from rayad.sql.planning.planner import Planner, datafusion
from rayad.sql.planning.scanning import Body, Core, Query, Role, Scanned

CALLED = "__sub"
_TEXTS = re.compile(r'Utf8\("(?:[^"\\]|\\.)*"\)')
_TURNED = {"=": "<>", "<>": "=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Subquery:
    """A function of columns of the query around.

    Args:
        plan: of it.
        outer: the names of these columns in the plan, as they are called there.
        kinds: their types.
        is_exists: whether it says that there are rows, instead of giving the one value.
        kind: of what it gives.
    """

    plan: Any
    outer: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]
    is_exists: bool
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class _Level:
    """A SELECT around a subquery, and the tables of WITH that are known there."""

    core: Core
    bodies: tuple[tuple[Body, bool], ...]


class Rewriting:
    """A query without subqueries in expressions.

    Args:
        planner: of it.
        scanned: its text.
        keeps: whether DataFusion has those that are conditions of their own in a WHERE, of which it makes joins.
    """

    def __init__(self, planner: Planner, scanned: Scanned, *, keeps: bool) -> None:
        self._planner = planner
        self._scanned = scanned
        self._keeps = keeps
        self._edits: list[tuple[int, int, str]] = []
        self._calls: dict[str, str] = {}
        self._read(scanned.whole, is_outermost=True)

    @property
    def text(self) -> str:
        """The query as it is planned."""
        return self._text(0, len(self._scanned.tokens))

    def _read(self, query: Query, *, is_outermost: bool) -> None:
        for body in query.bodies:
            self._read(body.query, is_outermost=is_outermost)
        for core in query.cores:
            for inner in core.inner:
                if not inner.is_value:
                    self._read(inner, is_outermost=is_outermost)
            for inner in core.inner:
                if inner.is_value and not (self._keeps and is_outermost and self._is_a_condition(core, inner)):
                    self._read(inner, is_outermost=False)
                    self._edits.append((*inner.span, self._called(inner)))

    def _is_a_condition(self, core: Core, query: Query) -> bool:
        """Whether a subquery is all of a condition, one of those that a WHERE joins by AND."""
        if query.role not in (Role.EXISTS, Role.IN) or not core.is_in("WHERE", query):
            return False
        start, end = core.clauses["WHERE"]
        words, at = [], start
        while at < end:
            if at == query.span[0]:
                words.append("HERE")
                at = query.span[1]
                continue
            words.append(self._scanned.word(at))
            at = self._scanned.close_of(at) + 1 if words[-1] == "(" else at + 1
        if "HERE" not in words or "OR" in words:
            return False
        here = words.index("HERE")
        before = [word for word in words[:here] if word != "NOT"]
        return (not before or before[-1] == "AND") and (here + 1 == len(words) or words[here + 1] == "AND")

    # -- text ---------------------------------------------------------------------------------------------------
    def _text(self, start: int, end: int, more: Sequence[tuple[int, int, str]] = ()) -> str:
        """Tokens, with what stands for subqueries among them."""
        if start >= end:
            return ""
        tokens, given = self._scanned.tokens, self._scanned.text
        at, out = tokens[start].start, []
        inside = [edit for edit in (*self._edits, *more) if start <= edit[0] and edit[1] <= end]
        for first, last, stands in sorted(inside, key=lambda edit: (edit[0], -edit[1])):
            if tokens[first].start >= at:
                out.append(given[at : tokens[first].start] + f" {stands} ")
                at = tokens[last - 1].end
        return "".join(out) + given[at : tokens[end - 1].end]

    def _of(self, query: Query) -> str:
        return self._text(query.start, query.end)

    def _from(self, core: Core) -> str:
        """The FROM of a SELECT. Subqueries in its ON do not matter for what columns there are."""
        if "FROM" not in core.clauses:
            return "(select 1 as __nothing) as __one"
        plain = [
            (*inner.span, "null" if inner.role is Role.VALUE else "true")
            for inner in core.inner
            if inner.is_value and core.is_in("FROM", inner)
        ]
        known = {edit[:2] for edit in self._edits}
        return self._text(*core.clauses["FROM"], [edit for edit in plain if edit[:2] not in known])

    def _with(self, bodies: Sequence[tuple[Body, bool]]) -> str:
        parts = []
        for body, is_own in bodies:
            if is_own:  # in its own recursion: its columns are those of its first part
                first = body.query.cores[0]
                opening = body.query.start - 1
                parts.append(f"{self._text(body.start, opening)} ({self._text(first.start, first.end)})")
            else:
                parts.append(self._text(body.start, body.end))
        is_recursive = any(self._scanned.word(body.query.around.start + 1) == "RECURSIVE" for body, _ in bodies if body.query.around)
        return f"with {'recursive ' if is_recursive else ''}{', '.join(parts)} " if parts else ""

    # -- what is around ------------------------------------------------------------------------------------------
    def _levels(self, query: Query) -> list[_Level]:
        """The SELECTs whose columns a subquery may use, from the outside in."""
        levels: list[_Level] = []
        core = query.core
        while core is not None:
            around: Query = core.query
            inside: Query | None = None
            bodies: list[tuple[Body, bool]] = []
            while True:
                some = []
                for body in around.bodies:
                    if body.query is inside:
                        if self._scanned.word(around.start + 1) == "RECURSIVE" and body.query.operators:
                            some.append((body, True))
                        break
                    some.append((body, False))
                bodies = some + bodies
                if around.is_value or around.around is None:
                    break
                around, inside = around.around, around
            levels.append(_Level(core, tuple(bodies)))
            core = around.core if around.is_value else None
        return levels[::-1]

    def _require_no_recursion(self, told: str, levels: Sequence[_Level]) -> None:
        for level in levels:
            for body, is_own in level.bodies:
                name = self._scanned.tokens[body.name].text.strip('"')
                name = name if self._scanned.tokens[body.name].kind == "quoted" else name.lower()
                if is_own and re.search(rf"(SubqueryAlias|TableScan): {re.escape(name)}\b", told):
                    raise self._planner.refusal(
                        f"a subquery that reads {name!r}, in the recursion of {name!r} itself, is not supported: use a join"
                    )

    # -- plans -----------------------------------------------------------------------------------------------------
    def _called(self, query: Query) -> str:
        """What stands for a subquery in the text."""
        levels = self._levels(query)
        text = self._of(query)
        match query.role:
            case Role.EXISTS:
                return self._call(f"select 1 as __there from ({text})", levels, is_exists=True)
            case Role.VALUE:
                return self._call(f"select __v from ({text}) as __q(__v)", levels, is_exists=False)
            case _:
                return self._compared(query, text, levels)

    def _compared(self, query: Query, text: str, levels: Sequence[_Level]) -> str:
        """IN, ANY and ALL, with the three values that they may have."""
        word, before = self._scanned.word, query.start - 1
        if query.role is Role.IN:
            is_negated = word(before - 2) == "NOT"
            value, operator = self._text(query.span[0], before - 1 - is_negated), "="
        else:
            is_negated = word(before - 1) == "ALL"
            value, operator = self._text(query.span[0], before - 2), word(before - 2)
            operator = _TURNED[operator] if is_negated else operator
        found = self._call(
            f"select 1 as __there from ({text}) as __q(__v) where __v {_mirrored(operator)} ({value})", levels, is_exists=True
        )
        some = self._call(f"select 1 as __there from ({text}) as __q(__v)", levels, is_exists=True)
        nulls = self._call(f"select 1 as __there from ({text}) as __q(__v) where __v is null", levels, is_exists=True)
        made = f"(case when {found} then true when (({value}) is null and {some}) or {nulls} then null else false end)"
        return f"(not {made})" if is_negated else made

    def _call(self, text: str, levels: Sequence[_Level], *, is_exists: bool) -> str:
        asked = text
        for level in reversed(levels):
            asked = f"{self._with(level.bodies)}select 1 as __there from {self._from(level.core)}, lateral ({asked})"
        if asked in self._calls:
            return self._calls[asked]
        self._calls[asked] = made = self._planned(asked, text, levels, is_exists=is_exists)
        return made

    def _planned(self, asked: str, text: str, levels: Sequence[_Level], *, is_exists: bool) -> str:
        planner = self._planner
        try:
            node = planner.logical(asked)
        except DataflowError as error:
            if "column alias" in str(error) or "names given" in str(error):
                raise planner.refusal(f"the subquery {show(text, 160)} must give one column where it stands for a value") from error
            raise
        columns: dict[str, tuple[str, pa.DataType]] = {}
        for _ in levels:
            (join,) = node.inputs()
            around, node = join.inputs()
            columns |= self._columns(around)
            while type(node.to_variant()).__name__ == "Subquery":
                (node,) = node.inputs()
        plan = planner.optimized(node)
        told = _TEXTS.sub("", plan.display_indent())
        self._require_no_recursion(told, levels)
        outer = tuple(dict.fromkeys(outer_names(told)))
        missing = next((name for name in outer if name not in columns), None)
        if missing is not None:
            raise planner.refusal(f"a subquery looks at {missing!r}, which is none of {show(sorted(columns), 200)}")
        if is_exists and type(plan.to_variant()).__name__ == "EmptyRelation" and not plan.to_variant().produce_one_row():
            return "false"
        kinds = tuple(columns[name][1] for name in outer)
        name = f"{CALLED}{len(planner.subqueries) + 1}"
        kind = pa.bool_() if is_exists else planner.fields(plan)[1][0]
        planner.subqueries[name] = Subquery(plan, outer, kinds, is_exists, kind)
        planner.context.register_udf(datafusion().udf(_never_called, list(kinds), kind, "volatile", name))
        return f"{name}({', '.join(columns[one][0] for one in outer)})"

    def _columns(self, plan: Any) -> dict[str, tuple[str, pa.DataType]]:
        """The columns of what is around: how the text of a query has them, and their types, by the names that plans have."""
        names, kinds = self._planner.fields(plan)
        out = {}
        for name, bare, kind in zip(names, self._planner.frame(plan).schema().names, kinds, strict=True):
            relation = name[: -len(bare) - 1] if name != bare else ""
            quoted = '"{}"'.format(bare.replace('"', '""'))
            out[name] = (f'"{relation}".{quoted}' if relation else quoted, kind)
        return out


def _mirrored(operator: str) -> str:
    return {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)


def _never_called(*_: Any) -> Any:
    raise AssertionError("a subquery stands for it, and DataFusion executes nothing")


__all__ = ["CALLED", "Rewriting", "Subquery"]
