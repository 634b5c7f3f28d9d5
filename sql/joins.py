"""Joins of relations, out of the joins that collections have.

Those know equal keys alone. A condition on pairs is looked at behind an inner join; what an outer, semi or anti join does with rows that
have no match follows from the rows that do, each once: ``left = inner + (rows of left that are in no pair) with nulls``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rayad.incremental.joins.kinds import How
from rayad.sql.ordering import Counted
from rayad.sql.relation import Outputs, Relation, computed
from rayad.sql.steps import Key, columns_of, leaves_of
from rayad.sql.values.expressions import Call, Cast, Expression, Literal
from rayad.sql.values.kernels import Kernel


@dataclass(frozen=True, slots=True)
class Condition:
    """On what two relations are joined.

    Args:
        left, right: what is equal on both sides, with types; may be nothing.
        residual: what else must be true, over the columns of both sides one behind the other; None: nothing.
        nulls_meet: whether null is equal to null.
        narrowed: of pairs those that are left, where that is no expression; None: all.
    """

    left: Outputs = ()
    right: Outputs = ()
    residual: Expression | None = None
    nulls_meet: bool = False
    narrowed: Callable[[Relation], Relation] | None = None

    @property
    def is_equality(self) -> bool:
        """Whether nothing but keys decides."""
        return self.residual is None and self.narrowed is None

    def keys(self) -> tuple[Key, Key]:
        """Of both sides, in the types of the left one."""
        kinds = [kind for _, kind in self.left]
        right = tuple((expression, kind) for (expression, _), kind in zip(self.right, kinds, strict=True))
        return Key(tuple(self.left), self.nulls_meet), Key(right, self.nulls_meet)


def inner(left: Relation, right: Relation, on: Condition) -> Relation:
    """Each pair that matches."""
    pairs = _pairs(left, right, on, "inner", on.residual)
    return pairs if on.narrowed is None else on.narrowed(pairs)


def _pairs(left: Relation, right: Relation, on: Condition, how: How, residual: Expression | None) -> Relation:
    of_left, of_right = on.keys()
    met = left.keyed(of_left).join(right.keyed(of_right), how)
    leaves = (*leaves_of(left.kinds, "1", "0"), *leaves_of(right.kinds, "1", "1"))
    kinds = (*left.kinds, *right.kinds)
    return computed(met, leaves, columns_of(kinds), left.told, (*left.names, *right.names), residual)


def outer(left: Relation, right: Relation, on: Condition, how: How) -> Relation:
    """Pairs, and the rows of one side, or of both, that have no match, with nulls: "left", "right" or "full"."""
    if on.is_equality:
        return _pairs(left, right, on, how, None)
    pairs = inner(left, right, on)
    parts = [pairs]
    if how in ("left", "full"):
        alone = _without(left, pairs.projected(columns_of(left.kinds)))
        parts.append(alone.projected([*alone.columns, *_nulls(right.kinds)]))
    if how in ("right", "full"):
        alone = _without(right, pairs.projected(columns_of(right.kinds, len(left.kinds))))
        parts.append(alone.projected([*_nulls(left.kinds), *alone.columns]))
    return parts[0].concat(*parts[1:])


def _nulls(kinds: Sequence[pa.DataType]) -> list[tuple[Expression, pa.DataType]]:
    return [(Literal(pa.scalar(None, kind)), kind) for kind in kinds]


def _without(relation: Relation, matched: Relation) -> Relation:
    """The rows that are not among these."""
    return _kept(relation, matched, Condition(relation.columns, matched.columns, nulls_meet=True), "anti")


def half(left: Relation, right: Relation, on: Condition, *, there: bool) -> Relation:
    """The rows of the left side that have a match, or have none: each as often as it is there."""
    how: How = "semi" if there else "anti"
    if on.is_equality:
        return _kept(left, right, on, how)
    matched = inner(left, right, on).projected(columns_of(left.kinds))
    return _kept(left, matched, Condition(left.columns, matched.columns, nulls_meet=True), how)


def _kept(left: Relation, right: Relation, on: Condition, how: How) -> Relation:
    of_left, of_right = on.keys()
    met = left.keyed(of_left).join(right.keyed(of_right, ()), how)
    return computed(met, leaves_of(left.kinds, "1"), left.columns, left.told, left.names)


def marked(left: Relation, right: Relation, on: Condition, names: Sequence[str]) -> Relation:
    """All rows of the left side, with a column that says whether they have a match."""
    parts = []
    for there in (True, False):
        some = half(left, right, on, there=there)
        parts.append(some.projected([*some.columns, (Literal(pa.scalar(there)), pa.bool_())], names))
    return parts[0].concat(parts[1])


def counted(left: Relation, right: Relation, on: Condition, *, is_except: bool) -> Relation:
    """The rows of the left side, each as often as it is on both sides, or so much oftener as it is on the left.

    The keys are all columns of a row, in order, and null is equal to null.
    """
    keys = on.keys()
    sides = []
    for relation, key, is_left in zip((left, right), keys, (True, False), strict=True):
        outputs = [*key.columns, (Literal(pa.scalar(is_left)), pa.bool_())]
        sides.append(relation.projected(outputs))
    both = sides[0].concat(sides[1])
    width = len(both.kinds) - 1
    form = Counted((pa.bool_(),), is_except)
    found = both.keyed(Key(both.columns[:width], nulls_meet=True), both.columns[width:]).reduce_weights(
        form.in_rows(), "bag", in_columns=form
    )
    rows = computed(found, leaves_of(both.kinds[:width], "0", prefix="k"), columns_of(both.kinds[:width]), left.told)
    kinds = zip(rows.columns, left.kinds, strict=True)
    return rows.projected([(Cast(column, kind), kind) for (column, _), kind in kinds], left.names)


def not_in(left: Relation, right: Relation, on: Condition) -> Relation:
    """The rows whose value is for sure none of the right side's (NOT IN): all where there is none; else those that are not null and match
    nothing, unless null is among the others. The first keys are the values; the others, and the residual, say which of the right side's
    rows are looked at for a row."""
    (value, _), (other, _) = on.left[0], on.right[0]
    looked_at = Condition(on.left[1:], on.right[1:], on.residual, narrowed=on.narrowed)
    known, unknown = (left.filtered(Call(Kernel("test", test), (value,), pa.bool_())) for test in ("IsNotNull", "IsNull"))
    nulls = right.filtered(Call(Kernel("test", "IsNull"), (other,), pa.bool_()))
    sure = half(known, right, on, there=False)
    if looked_at == Condition():
        nulls, right = nulls.none_or_one(), right.none_or_one()
    return half(sure, nulls, looked_at, there=False).concat(half(unknown, right, looked_at, there=False))


__all__ = ["Condition", "counted", "half", "inner", "marked", "not_in", "outer"]
