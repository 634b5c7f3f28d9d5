"""Joins of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from rayad.progress import show
from rayad.sql import joins
from rayad.sql.domains import Domain
from rayad.sql.planning.name_rules import OUTER
from rayad.sql.planning.null_rules import is_null_aware
from rayad.sql.planning.planner import Planner
from rayad.sql.planning.rewording import BAG
from rayad.sql.reading import TRUE, Scope
from rayad.sql.relation import Relation
from rayad.sql.steps import columns_of
from rayad.sql.values.expressions import Call, Case, Expression, columns_in
from rayad.sql.values.kernels import Kernel

_TURNED = {"rightsemi": "leftsemi", "rightanti": "leftanti"}


class Around(Protocol):
    """What a join needs of the translator of its plan."""

    planner: Planner
    domain: Domain | None

    def spread(self, found: Relation) -> Relation:
        """Rows for each of the values of the domain."""

    def extended(self, found: Relation, scope: Scope) -> Relation:
        """Rows with what subqueries give that expressions call."""


@dataclass(slots=True)
class _Side:
    """One input.

    Args:
        plan: of it.
        relation: its rows.
        width: how many columns the plan has; one more comes with what a subquery is computed for.
    """

    plan: Any
    relation: Relation
    width: int

    @property
    def has_domain(self) -> bool:
        return len(self.relation.kinds) > self.width


class Joined:
    """A join. ``relation`` is what it gives.

    Args:
        translator: of the plan.
        plan: the node.
        left, right: the relations of its inputs.
    """

    def __init__(self, translator: Around, plan: Any, left: Relation, right: Relation) -> None:
        self._translator = translator
        self._planner = translator.planner
        self._plan = plan
        variant = plan.to_variant()
        self._how = str(variant.join_type()).lower()
        self._nulls_meet = bool(variant.null_equals_null())
        one, other = plan.inputs()
        self._pairs = [tuple(map(self._planner.wrapped, pair)) for pair in variant.on()]
        self._residual = variant.filter()
        sides = [self._side(one, left), self._side(other, right)]
        if self._how in _TURNED:
            self._how, sides = _TURNED[self._how], sides[::-1]
            self._pairs = [pair[::-1] for pair in self._pairs]
        self._left, self._right = sides
        if translator.domain is not None:
            self._spread()
        self.relation = self._made()

    def _side(self, plan: Any, relation: Relation) -> _Side:
        return _Side(plan, relation, len(self._planner.fields(plan)[0]))

    def _spread(self) -> None:
        """Where rows of a side come out for each of the values of the domain, it must have them."""
        if self._how == "full" or _is_bag(self._right.plan):
            wanted = (True, True)
        elif self._how == "inner":
            wanted = (not self._right.has_domain, False)
        else:
            wanted = (self._how != "right", self._how == "right")
        for side, is_wanted in zip((self._left, self._right), wanted, strict=True):
            if is_wanted and not side.has_domain:
                side.relation = self._translator.spread(side.relation)

    def _scope(self, *sides: _Side) -> Scope:
        names: list[str] = []
        places: list[int] = []
        start, outer = 0, None
        domain = self._translator.domain
        for side in sides:
            some, _ = self._planner.fields(side.plan)
            names += some
            places += range(start, start + side.width)
            if domain is not None and side.has_domain and outer is None:
                outer = domain.outer(start + side.width)
            start += len(side.relation.kinds)
        return Scope(self._planner, [side.plan for side in sides], names, places, outer, start)

    def _condition(self) -> joins.Condition:
        of_left, of_right, both = self._scope(self._left), self._scope(self._right), self._scope(self._left, self._right)
        left: list[tuple[Expression, pa.DataType]] = []
        right: list[tuple[Expression, pa.DataType]] = []
        others: list[Expression] = []
        for mine, theirs in self._pairs:
            kind = of_left.type_of(mine)
            told = mine.canonical_name() + theirs.canonical_name()
            if OUTER in told or any(name in told for name in self._planner.subqueries):
                operator = Kernel("operator", "IS NOT DISTINCT FROM" if self._nulls_meet else "=")
                others.append(Call(operator, (both.read(mine), both.read(theirs)), pa.bool_()))
            else:
                left.append((of_left.read(mine), kind))
                right.append((of_right.read(theirs), kind))
        domain = self._translator.domain
        if domain is not None and self._left.has_domain and self._right.has_domain:
            left.append(domain.column(self._left.width))
            right.append(domain.column(self._right.width))
        if self._residual is not None:
            others.append(both.read(self._residual))
        residual: Expression | None = None
        for one in others:
            residual = one if residual is None else Call(Kernel("operator", "AND"), (residual, one), pa.bool_())
        if not both.subqueries.calls:
            return joins.Condition(tuple(left), tuple(right), residual, self._nulls_meet)

        def narrowed(pairs: Relation) -> Relation:
            more = self._translator.extended(pairs, both)
            return more.projected(pairs.columns, pairs.names, residual or TRUE)

        return joins.Condition(tuple(left), tuple(right), None, self._nulls_meet, narrowed)

    def _made(self) -> Relation:
        on, left, right = self._condition(), self._left.relation, self._right.relation
        match self._how:
            case "inner":
                return self._in_order(joins.inner(left, right, on))
            case "left" | "right" | "full" as side:
                return self._in_order(joins.outer(left, right, on, side))
            case "leftsemi" | "leftanti" if _is_bag(self._right.plan):
                return self._bags(on)
            case "leftsemi":
                return joins.half(left, right, on, there=True)
            case "leftanti":
                if is_null_aware(self._plan):
                    return joins.not_in(left, right, on)
                return joins.half(left, right, on, there=False)
            case "leftmark":
                found = joins.marked(left, right, on, ())
                if self._translator.domain is None:
                    return found
                mark, width = len(left.kinds), self._left.width
                return found.projected([found.columns[at] for at in (*range(width), mark, *range(width, mark))])
        raise self._planner.refusal(f"the join {show(self._plan.display(), 120)} is not supported")

    def _bags(self, on: joins.Condition) -> Relation:
        """INTERSECT ALL, EXCEPT ALL: rows as often as on both sides, or so much oftener as on the left."""
        domain = self._translator.domain
        places = [tuple(columns_in(mine)) for mine, _ in on.left]
        width = self._left.width + (domain is not None)
        if not on.is_equality or sorted(places) != [(at,) for at in range(width)]:
            told = show(self._plan.display(), 120)
            raise self._planner.refusal(
                f"{told}, of INTERSECT ALL or EXCEPT ALL, does not compare each column: cast both sides to the same types"
            )
        order = [places.index((at,)) for at in range(width)]
        by = joins.Condition(tuple(on.left[at] for at in order), tuple(on.right[at] for at in order), nulls_meet=True)
        return joins.counted(self._left.relation, self._right.relation, by, is_except=self._how == "leftanti")

    def _in_order(self, found: Relation) -> Relation:
        """Columns of both sides, then the domain."""
        domain = self._translator.domain
        if domain is None:
            return found
        start, all_of = len(self._left.relation.kinds), columns_of(found.kinds)
        plain = [*all_of[: self._left.width], *all_of[start : start + self._right.width]]
        return found.projected([*plain, (self._domain_of(all_of, start), domain.kind)])

    def _domain_of(self, columns: Sequence[tuple[Expression, pa.DataType]], start: int) -> Expression:
        left = columns[self._left.width][0] if self._left.has_domain else None
        right = columns[start + self._right.width][0] if self._right.has_domain else None
        if left is None or right is None:
            found = left or right
            assert found is not None
            return found
        there = Call(Kernel("test", "IsNotNull"), (left,), pa.bool_())
        return Case(((there, left),), right, self._translator.domain.kind) if self._translator.domain else left


def _is_bag(plan: Any) -> bool:
    """Whether a node is the right side of INTERSECT ALL or EXCEPT ALL."""
    while True:
        variant = plan.to_variant()
        if type(variant).__name__ == "SubqueryAlias" and variant.alias() == BAG:
            return True
        if type(variant).__name__ not in ("Projection", "Filter", "SubqueryAlias"):
            return False
        (plan,) = plan.inputs()


__all__ = ["Joined"]
