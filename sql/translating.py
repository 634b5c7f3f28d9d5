"""DataFusion's logical plan as collections: one method for each kind of node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rayad.incremental.collection import Collection
from rayad.progress import show
from rayad.sql import joins, reading_windows
from rayad.sql.aggregates import Aggregate, grouped, is_known
from rayad.sql.constants import constant
from rayad.sql.null_rules import require_not_in
from rayad.sql.ordering import First, Order, Single
from rayad.sql.planning import Planner
from rayad.sql.reading import Scope
from rayad.sql.relation import Outputs, Relation, computed
from rayad.sql.steps import Key, columns_of, leaves_of
from rayad.sql.values.expressions import Cast, Expression, Frame, Literal
from rayad.sql.windows import Windows
from rayad.sql.wire import filter_and_order, grouping_sets

if TYPE_CHECKING:
    from rayad.dataflow.streams.flow import Dataflow

_FEW = 1_000
"""LIMITs up to this take the first rows of buckets before those of all."""
Table = Callable[[Sequence[str]], Relation]
"""The relation of a table, with these columns alone."""


class Translator:
    """The collections of one plan.

    Args:
        planner: of the query.
        tables: by name.
        flow: that they are in.
    """

    def __init__(self, planner: Planner, tables: Mapping[str, Table], flow: Dataflow) -> None:
        self.planner = planner
        self._tables = dict(tables)
        self._flow = flow
        self._known: dict[str, Relation] = {}
        """By the text of their plans."""
        self.told = str(planner.refusal("")).removesuffix(": ")

    def relation(self, plan: Any) -> Relation:
        """What a node gives; equal parts of a plan are one. Raises DataflowError where there is no collection for it."""
        key = plan.display_indent_schema()
        if key not in self._known:
            self._known[key] = self._made(plan)
        return self._known[key]

    def _made(self, plan: Any) -> Relation:
        variant = plan.to_variant()
        name = type(variant).__name__
        method = getattr(self, f"_{name.lower()}", None)
        if method is None:
            raise self.planner.refusal(f"{name}, of {show(plan.display(), 120)}, is not supported")
        found: Relation = method(plan, variant)
        return found

    def scope(self, *plans: Any) -> Scope:
        """Expressions over the columns of these nodes, one behind the other."""
        return Scope(self.planner, plans, [name for plan in plans for name in self.planner.fields(plan)[0]])

    def _input(self, plan: Any) -> tuple[Any, Relation, Scope]:
        (inner,) = plan.inputs()
        return inner, self.relation(inner), self.scope(inner)

    # -- tables ------------------------------------------------------------------------------------------------
    def _tablescan(self, plan: Any, variant: Any) -> Relation:
        names, _ = self.planner.fields(plan)
        table = variant.table_name().strip('"')
        if table not in self._tables:
            raise self.planner.refusal(f"{show(plan.display(), 120)} is none of the tables that were given, {sorted(self._tables)}")
        bare = [name for _, name in variant.projection()] if variant.projection() else [name.partition(".")[2] for name in names]
        found = self._tables[table](bare).named(names)
        if variant.filters():
            raise self.planner.refusal(f"{show(plan.display(), 120)} filters by itself, which is not supported")
        return found

    def _subqueryalias(self, plan: Any, variant: Any) -> Relation:
        (inner,) = plan.inputs()
        return self.relation(inner).named(self.planner.fields(plan)[0])

    def _emptyrelation(self, plan: Any, variant: Any) -> Relation:
        names, kinds = self.planner.fields(plan)
        there = bool(variant.produce_one_row())
        return constant(self._flow, [pa.nulls(int(there), kind) for kind in kinds], kinds, self.told, int(there), names)

    def _values(self, plan: Any, variant: Any) -> Relation:
        names, kinds = self.planner.fields(plan)
        scope, nothing = Scope(self.planner, [], ()), Frame([], 1)
        rows = [[scope.read(value) for value in row] for row in variant.values()]
        columns = [pa.concat_arrays([row[at].array(nothing, kind) for row in rows]) for at, kind in enumerate(kinds)]
        return constant(self._flow, columns, kinds, self.told, len(rows), names)

    # -- rows ----------------------------------------------------------------------------------------------------
    def _projection(self, plan: Any, variant: Any) -> Relation:
        _, found, scope = self._input(plan)
        names, kinds = self.planner.fields(plan)
        outputs = [(scope.read(one), kind) for one, kind in zip(variant.projections(), kinds, strict=True)]
        return found.projected(outputs, names)

    def _filter(self, plan: Any, variant: Any) -> Relation:
        _, found, scope = self._input(plan)
        return found.filtered(scope.read(variant.predicate()))

    def _union(self, plan: Any, variant: Any) -> Relation:
        names, kinds = self.planner.fields(plan)
        parts = []
        for inner in plan.inputs():
            found = self.relation(inner)
            parts.append(found.projected([(column, kind) for (column, _), kind in zip(found.columns, kinds, strict=True)], names))
        return parts[0].concat(*parts[1:])

    def _distinct(self, plan: Any, variant: Any) -> Relation:
        (inner,) = plan.inputs()
        return self.relation(inner).distinct()

    # -- joins ---------------------------------------------------------------------------------------------------
    def _join(self, plan: Any, variant: Any) -> Relation:
        one, other = plan.inputs()
        left, right = self.relation(one), self.relation(other)
        of_left, of_right, both = self.scope(one), self.scope(other), self.scope(one, other)
        pairs = variant.on()
        kinds = [of_left.type_of(self.planner.wrapped(mine)) for mine, _ in pairs]
        residual = variant.filter()
        on = joins.Condition(
            tuple((of_left.read(mine), kind) for (mine, _), kind in zip(pairs, kinds, strict=True)),
            tuple((of_right.read(theirs), kind) for (_, theirs), kind in zip(pairs, kinds, strict=True)),
            None if residual is None else both.read(residual),
            bool(variant.null_equals_null()),
        )
        names, _ = self.planner.fields(plan)
        if not pairs and _stands_for_a_value(other):
            form = Single(right.kinds)
            one_row = right.keyed(Key(())).reduce_weights(form.in_rows(), "single", in_columns=form)
            right = computed(one_row, leaves_of(right.kinds, "1"), right.columns, self.told, right.names)
        return self._joined(plan, str(variant.join_type()), left, right, on).named(names)

    def _joined(self, plan: Any, how: str, left: Relation, right: Relation, on: joins.Condition) -> Relation:
        match how.lower():
            case "inner":
                return joins.inner(left, right, on)
            case "left" | "right" | "full" as side:
                return joins.outer(left, right, on, side)
            case "leftsemi":
                return joins.half(left, right, on, there=True)
            case "leftanti":
                if plan.display().endswith(" null_aware"):
                    require_not_in(self.planner, plan)
                    return joins.not_in(left, right, on)
                return joins.half(left, right, on, there=False)
            case "leftmark":
                return joins.marked(left, right, on, ())
            case "rightsemi" | "rightanti" as side:
                return joins.half(right, left, self._turned(plan), there=side == "rightsemi")
        raise self.planner.refusal(f"the join {show(plan.display(), 120)} is not supported")

    def _turned(self, plan: Any) -> joins.Condition:
        """The condition of a join, with the sides the other way round."""
        variant, (one, other) = plan.to_variant(), plan.inputs()
        of_left, of_right, both = self.scope(one), self.scope(other), self.scope(other, one)
        kinds = [of_right.type_of(self.planner.wrapped(theirs)) for _, theirs in variant.on()]
        residual = variant.filter()
        return joins.Condition(
            tuple((of_right.read(theirs), kind) for (_, theirs), kind in zip(variant.on(), kinds, strict=True)),
            tuple((of_left.read(mine), kind) for (mine, _), kind in zip(variant.on(), kinds, strict=True)),
            None if residual is None else both.read(residual),
            bool(variant.null_equals_null()),
        )

    # -- groups --------------------------------------------------------------------------------------------------
    def _aggregate(self, plan: Any, variant: Any) -> Relation:
        _, found, scope = self._input(plan)
        names, kinds = self.planner.fields(plan)
        keys = [self.planner.wrapped(key) for key in variant.group_by_exprs()]
        if [key.variant_name() for key in keys] == ["GroupingSet"]:
            return self._grouping_sets(keys[0], variant, found, scope, names, kinds)
        outputs = [(scope.read(key), kind) for key, kind in zip(keys, kinds, strict=False)]
        aggregates = [
            self._one_aggregate(self.planner.wrapped(one), kind, scope)
            for one, kind in zip(variant.aggregate_exprs(), kinds[len(keys) :], strict=True)
        ]
        return grouped(found, outputs, aggregates, names)

    def _grouping_sets(
        self, given: Any, variant: Any, found: Relation, scope: Scope, names: Sequence[str], kinds: Sequence[pa.DataType]
    ) -> Relation:
        """One GROUP BY for each set. Keys that are not in it are null, and a number says which: a bit each, the last key's is 1."""
        sets = grouping_sets(given, self.planner.of_bytes)
        width = len(kinds) - len(variant.aggregate_exprs()) - 1
        aggregates = [
            self._one_aggregate(self.planner.wrapped(one), kind, scope)
            for one, kind in zip(variant.aggregate_exprs(), kinds[width + 1 :], strict=True)
        ]
        places = {name: at for at, name in enumerate(names[:width])}
        parts = []
        for keys in sets:
            at = [places[_name_of(key)] for key in keys]
            some = grouped(found, [(scope.read(key), kinds[one]) for key, one in zip(keys, at, strict=True)], aggregates, ())
            outputs: list[tuple[Expression, pa.DataType]] = [
                (some.columns[at.index(one)][0] if one in at else Literal(pa.scalar(None, kinds[one])), kinds[one]) for one in range(width)
            ]
            missing = sum(1 << width - 1 - one for one in range(width) if one not in at)
            outputs.append((Literal(pa.scalar(missing, kinds[width])), kinds[width]))
            parts.append(some.projected([*outputs, *some.columns[len(at) :]], names))
        return parts[0].concat(*parts[1:])

    def _one_aggregate(self, expression: Any, kind: pa.DataType, scope: Scope) -> Aggregate:
        while expression.variant_name() == "Alias":
            expression = self.planner.wrapped(expression.to_variant().expr())
        variant = expression.to_variant()
        name = variant.aggregate_type()
        if not is_known(name):
            raise self.planner.refusal(f"the aggregate {name}, in {show(expression.canonical_name(), 120)}, is not supported")
        condition, order = filter_and_order(expression, self.planner.of_bytes)
        if name in ("first_value", "last_value") and not order:
            raise self.planner.refusal(f"{name} needs an ORDER BY in its parentheses: records of a collection have no order of their own")
        return Aggregate(
            name,
            tuple(self._typed(scope, argument) for argument in variant.args()),
            kind,
            variant.is_distinct(),
            None if condition is None else scope.read(condition),
            tuple(self._typed(scope, one) for one, _, _ in order),
            tuple(not ascends for _, ascends, _ in order),
            tuple(first for _, _, first in order),
        )

    def _typed(self, scope: Scope, given: Any) -> tuple[Expression, pa.DataType]:
        expression = self.planner.wrapped(given)
        return scope.read(expression), scope.type_of(expression)

    # -- order ---------------------------------------------------------------------------------------------------
    def _sort(self, plan: Any, variant: Any) -> Relation:
        count = variant.get_fetch_val()
        if count is None:
            (inner,) = plan.inputs()
            return self.relation(inner)
        return self._first(plan, variant, 0, count)

    def _limit(self, plan: Any, variant: Any) -> Relation:
        (inner,) = plan.inputs()
        skip, count = (self._whole(one) for one in (variant.skip(), variant.fetch()))
        of_inner = inner.to_variant()
        if type(of_inner).__name__ == "Sort":
            return self._first(inner, of_inner, skip or 0, count)
        return self._cut(self.relation(inner), Order(), (), skip or 0, count)

    def _whole(self, given: Any) -> int | None:
        if given is None or isinstance(given, int):
            return given
        expression = given[0] if isinstance(given, list) and given else given
        if isinstance(expression, list):
            return None
        value = self.planner.wrapped(expression).python_value()
        return None if value is None else int(value.as_py())

    def _first(self, plan: Any, variant: Any, skip: int, count: int | None) -> Relation:
        """Sorted rows from a place on, so many."""
        _, found, scope = self._input(plan)
        terms = variant.sort_exprs()
        by = [self._typed(scope, term.expr()) for term in terms]
        order = Order(
            tuple(range(len(found.kinds), len(found.kinds) + len(by))),
            tuple(not term.ascending() for term in terms),
            tuple(bool(term.nulls_first()) for term in terms),
        )
        return self._cut(found, order, by, skip, count)

    def _cut(self, found: Relation, order: Order, by: Outputs, skip: int, count: int | None) -> Relation:
        given = [*found.columns, *by]
        kinds = tuple(kind for _, kind in given)
        if found.kinds and count is not None and skip + count <= _FEW:  # of each bucket first
            form = First(kinds, order, 0, skip + count)
            kept = found.keyed(found.bucket(found.columns), given).reduce_weights(form.in_rows(), "first-of-some", in_columns=form)
            some = computed(kept, leaves_of(kinds, "1"), columns_of(kinds), self.told)
        else:
            some = found.projected(given)
        form = First(kinds, order, skip, count)
        kept = some.keyed(Key(())).reduce_weights(form.in_rows(), "first", in_columns=form)
        return computed(kept, leaves_of(found.kinds, "1"), found.columns, self.told, found.names)

    # -- windows -------------------------------------------------------------------------------------------------
    def _windowexpr(self, plan: Any, variant: Any) -> Relation:
        _, found, scope = self._input(plan)
        names, kinds = self.planner.fields(plan)
        width = len(found.kinds)
        by_partition: dict[str, list[int]] = {}
        asked = [self.planner.wrapped(one) for one in variant.get_window_expr()]
        for at, one in enumerate(asked):
            by_partition.setdefault(str(variant.get_partition_exprs(_inner(self.planner, one))), []).append(at)
        order = [at for some in by_partition.values() for at in some]
        for some in by_partition.values():
            found = self._windows(found, variant, scope, [(asked[at], kinds[width + at]) for at in some])
        back = [width + order.index(at) for at in range(len(asked))]
        return found.projected([found.columns[at] for at in (*range(width), *back)], names)

    def _windows(self, found: Relation, variant: Any, scope: Scope, asked: Sequence[tuple[Any, pa.DataType]]) -> Relation:
        """Functions of the same partitions."""
        given, width = list(found.columns), len(found.kinds)
        windows = [reading_windows.windowed(self.planner, variant, scope, one, kind, given) for one, kind in asked]
        first = _inner(self.planner, asked[0][0])
        keys = [self._typed(scope, one) for one in variant.get_partition_exprs(first)]
        form = Windows(tuple(kind for _, kind in given), width, tuple(windows))
        made = found.keyed(Key(tuple(keys)), given).reduce_weights(form.in_rows(), "windows", in_columns=form)
        kinds = [*found.kinds, *(kind for _, kind in asked)]
        return computed(made, leaves_of(kinds, "1"), columns_of(kinds), self.told)

    # -- recursion -----------------------------------------------------------------------------------------------
    def _recursivequery(self, plan: Any, variant: Any) -> Relation:
        static, recursive = plan.inputs()
        names, kinds = self.planner.fields(plan)
        table = variant.name()
        columns = [name.rpartition(".")[2] for name in names]
        begun = self.relation(static)
        start = begun.projected([(Cast(column, kind), kind) for (column, _), kind in zip(begun.columns, kinds, strict=True)], names)
        distinct = bool(variant.is_distinct())

        def body(inner: Collection) -> Collection:
            tables, known = self._tables, self._known
            self._tables = {**tables, table: lambda wanted: _some(Relation(inner, kinds, names, self.told), columns, wanted)}
            self._known = {text: found for text, found in known.items() if f"TableScan: {table}" not in text}
            try:
                more = self.relation(recursive)
            finally:
                self._tables, self._known = tables, known
            both = start.concat(more.projected([(column, kind) for (column, _), kind in zip(more.columns, kinds, strict=True)], names))
            return (both.distinct() if distinct else both).collection

        first = start.distinct() if distinct else start
        return Relation(first.collection.iterate(body), kinds, names, self.told)


def _name_of(key: Any) -> str:
    """What a key is called in the columns of an aggregate."""
    if key.variant_name() == "Column":
        return str(key.to_variant().qualified_name())
    return str(key.schema_name()) if hasattr(key, "schema_name") else str(key.canonical_name())


def _stands_for_a_value(plan: Any) -> bool:
    """Whether a node is a subquery that must give one row, and may give more."""
    variant = plan.to_variant()
    if type(variant).__name__ != "SubqueryAlias" or not variant.alias().startswith("__scalar_sq_"):
        return False
    while type(variant).__name__ in ("SubqueryAlias", "Projection", "Filter"):
        (plan,) = plan.inputs()
        variant = plan.to_variant()
    return not (type(variant).__name__ == "Aggregate" and not variant.group_by_exprs())


def _inner(planner: Planner, expression: Any) -> Any:
    """Without its name, as DataFusion's own class."""
    return reading_windows.inner(planner, expression).expr


def _some(relation: Relation, columns: Sequence[str], wanted: Sequence[str]) -> Relation:
    at = [columns.index(name) for name in wanted]
    return relation.projected([relation.columns[one] for one in at])


__all__ = ["Table", "Translator"]
