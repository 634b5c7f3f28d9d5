"""GROUP BY out of the aggregates that collections have.

Counts, sums and means are kept as sums, without records: a count of a column sums ones, FILTER makes null of what it leaves out, decimals
are summed as integers. Smallest and largest need the records of a group, and so do all others (``of_groups.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rayad.incremental.collection import Collection
from rayad.sql.constants import constant
from rayad.sql.domains import Domain
from rayad.sql.joins import Condition, inner
from rayad.sql.of_groups import AGGREGATES, Aggregated, Wanted
from rayad.sql.ordering import Order
from rayad.sql.relation import Outputs, Relation, computed
from rayad.sql.steps import Key, Leaf, leaves_of
from rayad.sql.values.expressions import Call, Case, Cast, Column, Expression, Literal
from rayad.sql.values.kernels import Kernel

LINEAR = ("count", "sum", "avg")
KEPT_IN_COLUMNS = (*LINEAR, "min", "max")
_DIGITS_OF_INTEGER = 18


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate.

    Args:
        name: as DataFusion has it.
        arguments: of it, and their types.
        kind: of the result.
        distinct: whether each value counts once.
        condition: which rows count; None: all.
        order: of the rows.
        descending, nulls_first: of each part of the order.
    """

    name: str
    arguments: tuple[tuple[Expression, pa.DataType], ...]
    kind: pa.DataType
    distinct: bool = False
    condition: Expression | None = None
    order: tuple[tuple[Expression, pa.DataType], ...] = ()
    descending: tuple[bool, ...] = ()
    nulls_first: tuple[bool, ...] = ()

    def value(self) -> tuple[Expression, pa.DataType]:
        """What is aggregated, null in rows that do not count."""
        expression, kind = self.arguments[0]
        return self.counted(expression, kind), kind

    def counted(self, expression: Expression, kind: pa.DataType) -> Expression:
        """A value in rows that count, else null."""
        return expression if self.condition is None else Case(((self.condition, expression),), Literal(pa.scalar(None, kind)), kind)


@dataclass
class _Summed:
    """What is asked of ``KeyedCollection.aggregate``, and how the results of a query follow."""

    given: list[tuple[Expression, pa.DataType]] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    kinds: list[pa.DataType] = field(default_factory=list)

    def ask(self, how: str, expression: Expression, kind: pa.DataType, result: pa.DataType) -> int:
        """The number of the result of an aggregation of a value."""
        at = next((at for at, one in enumerate(self.given) if one == (expression, kind)), None)
        if at is None:
            at = len(self.given)
            self.given.append((expression, kind))
        entry = (how, f"a{at}")
        for number, known in enumerate(self.asked.values()):
            if known == entry:
                return number
        self.asked[f"r{len(self.asked)}"] = entry
        self.kinds.append(result)
        return len(self.kinds) - 1


def grouped(
    relation: Relation, keys: Outputs, aggregates: Sequence[Aggregate], names: Sequence[str], domain: Domain | None = None
) -> Relation:
    """One row for each group: its keys, then what is aggregated. Without keys one row, whatever is there.

    With a domain all of that for each of its values, which are the last column of the relation, and of the result.
    """
    if domain is not None:
        return _grouped_for_each(relation, keys, aggregates, names, domain)
    if not aggregates and not keys:
        return constant(relation.collection.stream.flow, [], (), relation.told)
    if not aggregates:
        return relation.projected(keys, names).distinct()
    if all(one.name in KEPT_IN_COLUMNS and not one.distinct for one in aggregates):
        is_in_buckets = not keys and any(one.name not in LINEAR for one in aggregates)
        return (_in_buckets if is_in_buckets else _in_sums)(relation, keys, aggregates, names)
    return _of_groups(relation, keys, aggregates, names)


def _grouped_for_each(relation: Relation, keys: Outputs, aggregates: Sequence[Aggregate], names: Sequence[str], domain: Domain) -> Relation:
    """One group more for each value of the domain if there are no keys: a row that counts nothing makes it."""
    key = domain.column(len(relation.kinds) - 1)
    if not aggregates:
        return relation.projected([*keys, key], names).distinct() if keys else domain.relation.named(names)
    given = relation
    if not keys:
        there = Literal(pa.scalar(None, pa.bool_()))
        of_rows = relation.projected([*relation.columns, (Literal(pa.scalar(True)), pa.bool_())])
        of_domain = domain.relation.projected(
            [*((Literal(pa.scalar(None, kind)), kind) for kind in relation.kinds[:-1]), domain.column(0), (there, pa.bool_())]
        )
        given = of_rows.concat(of_domain)
        is_there = Column(len(relation.kinds))
        aggregates = [replace(one, condition=_both(is_there, one.condition)) for one in aggregates]
    found = grouped(given, [*keys, key], aggregates, ())
    at = len(keys)
    order = [*range(at), *range(at + 1, len(found.kinds)), at]
    return found.projected([found.columns[one] for one in order], names)


def _both(one: Expression, other: Expression | None) -> Expression:
    return one if other is None else Call(Kernel("operator", "AND"), (one, other), pa.bool_())


def _with_a_row(relation: Relation, given: Outputs, *, is_whole: bool) -> tuple[Relation, Outputs]:
    """What is aggregated, as columns of a relation; ``is_whole``: with one more row, of nulls, so that there is a group where there is
    nothing else."""
    if not is_whole:
        return relation, given
    made = relation.projected(given)
    nulls = [pa.nulls(1, kind) for kind in made.kinds]
    both = made.concat(constant(relation.collection.stream.flow, nulls, made.kinds, relation.told))
    return both, both.columns


def _in_sums(relation: Relation, keys: Outputs, aggregates: Sequence[Aggregate], names: Sequence[str]) -> Relation:
    summed = _Summed()
    finished = [_finish(summed, one, len(keys)) for one in aggregates]
    whole, given = _with_a_row(relation, summed.given, is_whole=not keys)
    found = whole.keyed(Key(tuple(keys)), given, "a").aggregate(summed.asked)
    return _results(found, keys, summed.kinds, finished, relation.told, names)


def _in_buckets(relation: Relation, keys: Outputs, aggregates: Sequence[Aggregate], names: Sequence[str]) -> Relation:
    """Of all rows: the smallest and largest of each bucket, and of those; sums beside them."""
    extremes = [one for one in aggregates if one.name not in LINEAR]
    sums = [one for one in aggregates if one.name in LINEAR]
    bucket = relation.bucket([one.value() for one in extremes]).columns
    of_some = _in_sums(relation, bucket, extremes, ())
    again = [Aggregate(one.name, ((Column(1 + at), one.kind),), one.kind) for at, one in enumerate(extremes)]
    found = _in_sums(of_some, (), again, ())
    if sums:
        found = inner(found, _in_sums(relation, (), sums, ()), Condition())
    order = [*extremes, *sums]
    return found.projected([found.columns[next(at for at, other in enumerate(order) if other is one)] for one in aggregates], names)


def _results(
    found: Collection, keys: Outputs, kinds: Sequence[pa.DataType], finished: Outputs, told: str, names: Sequence[str]
) -> Relation:
    of_keys = [Leaf(("0", str(at)), kind) for at, (_, kind) in enumerate(keys)]
    leaves = (*of_keys, *leaves_of(kinds, "1", prefix="r"))
    outputs = [*((Column(at), leaf.kind) for at, leaf in enumerate(of_keys)), *finished]
    return computed(found, leaves, outputs, told, names)


def _finish(summed: _Summed, one: Aggregate, keys: int) -> tuple[Expression, pa.DataType]:
    """The result of one, over keys and results of sums."""

    def result(number: int) -> Expression:
        return Column(keys + number)

    if one.name == "count":
        return _or_zero(result(summed.ask("sum", _one_if_counted(one), pa.int64(), pa.int64()))), one.kind
    value, kind = one.value()
    if one.name in ("min", "max"):
        return result(summed.ask(one.name, value, kind, kind)), one.kind
    if pa.types.is_decimal(kind):
        total = _decimal_sum(summed, value, kind, result)
        if one.name == "sum":
            return total, one.kind
        count = result(summed.ask("sum", _one_if_counted(one), pa.int64(), pa.int64()))
        return Call(Kernel("operator", "/"), (total, Cast(count, pa.decimal128(20, 0))), one.kind), one.kind
    if one.name == "avg":
        return result(summed.ask("mean", value, kind, pa.float64())), one.kind
    return result(summed.ask("sum", value, kind, one.kind)), one.kind


def _or_zero(count: Expression) -> Expression:
    return Call(Kernel("function", "coalesce"), (count, Literal(pa.scalar(0, pa.int64()))), pa.int64())


def _one_if_counted(one: Aggregate) -> Expression:
    """1 in rows that a count counts, null in others."""
    nothing = Literal(pa.scalar(None, pa.int64()))
    counts: Expression = Literal(pa.scalar(1, pa.int64()))
    for expression, _ in reversed(one.arguments):
        if not isinstance(expression, Literal) or not expression.value.is_valid:
            counts = Case(((Call(Kernel("test", "IsNotNull"), (expression,), pa.bool_()), counts),), nothing, pa.int64())
    return one.counted(counts, pa.int64())


def _decimal_sum(summed: _Summed, value: Expression, kind: pa.DataType, result: Any) -> Expression:
    digits = Literal(pa.scalar(kind.scale, pa.int32()))
    total = pa.decimal128(38, kind.scale)
    if pa.types.is_decimal128(kind) and kind.precision <= _DIGITS_OF_INTEGER:
        whole = Call(Kernel("decimal", "whole"), (value,), pa.int64())
        return Call(Kernel("decimal", "of_whole"), (result(summed.ask("sum", whole, pa.int64(), pa.int64())), digits), total)
    value = Cast(value, pa.decimal128(38, kind.scale))
    parts = [Call(Kernel("decimal", name), (value,), pa.int64()) for name in ("high", "low")]
    sums = [result(summed.ask("sum", part, pa.int64(), pa.int64())) for part in parts]
    return Call(Kernel("decimal", "of_parts"), (*sums, digits), total)


def _of_groups(relation: Relation, keys: Outputs, aggregates: Sequence[Aggregate], names: Sequence[str]) -> Relation:
    """Aggregates of the records of each group."""
    given: list[tuple[Expression, pa.DataType]] = []
    wanted = []
    for one in aggregates:
        start = len(given)
        given += [(one.counted(expression, kind), kind) for expression, kind in one.arguments]
        given += [(one.counted(expression, kind), kind) for expression, kind in one.order]
        counts = len(given)
        given.append((_counts(one), pa.bool_()))
        order = Order(tuple(range(start + len(one.arguments), counts)), one.descending, one.nulls_first)
        wanted.append(Wanted(one.name, tuple(range(start, start + len(one.arguments))), counts, one.distinct, order, one.kind))
    whole, given_now = _with_a_row(relation, given, is_whole=not keys)
    kinds = tuple(kind for _, kind in given)
    form = Aggregated(kinds, tuple(wanted))
    found = whole.keyed(Key(tuple(keys)), given_now, "a").reduce_weights(form.in_rows(), "aggregate", in_columns=form)
    results = [one.kind for one in aggregates]
    finished = [(Column(len(keys) + at), kind) for at, kind in enumerate(results)]
    return _results(found, keys, results, finished, relation.told, names)


def _counts(one: Aggregate) -> Expression:
    """Whether a row counts."""
    return Literal(pa.scalar(True)) if one.condition is None else one.condition


def is_known(name: str) -> bool:
    """Whether there is such an aggregate."""
    return name in LINEAR or name in AGGREGATES


__all__ = ["Aggregate", "grouped", "is_known"]
