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
from rayad.sql.domains import Domain, record
from rayad.sql.ordering import First, Order, Single
from rayad.sql.planning.name_rules import OUTER
from rayad.sql.planning.planner import Planner
from rayad.sql.planning.subqueries import Subquery
from rayad.sql.planning.wire import filter_and_order, grouping_sets
from rayad.sql.reading import TRUE, Scope
from rayad.sql.reading_joins import Joined
from rayad.sql.relation import Outputs, Relation, computed
from rayad.sql.steps import Key, columns_of, leaves_of
from rayad.sql.values.expressions import Call, Cast, Column, Expression, Frame, Literal, columns_in, moved
from rayad.sql.values.kernels import Kernel
from rayad.sql.windows import Windows

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
        root: the translator of the query, where this one is of a subquery.
        domain: what a subquery is computed for: the last column of all relations that follow from it.
    """

    def __init__(
        self,
        planner: Planner,
        tables: Mapping[str, Table],
        flow: Dataflow,
        root: Translator | None = None,
        domain: Domain | None = None,
    ) -> None:
        self.planner = planner
        self._tables = dict(tables)
        self._flow = flow
        self._root = root or self
        self.domain = domain
        self._known: dict[str, Relation] = {}
        """By the text of their plans."""
        self.told = str(planner.refusal("")).removesuffix(": ")

    def relation(self, plan: Any) -> Relation:
        """What a node gives; equal parts of a plan are one. Raises DataflowError where there is no collection for it."""
        key = plan.display_indent_schema()
        if self.domain is not None and OUTER not in key:
            return self._root.relation(plan)
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

    def _scope(self, inner: Any, width: int) -> Scope:
        """Expressions over the columns of a node."""
        names, _ = self.planner.fields(inner)
        outer = None if self.domain is None else self.domain.outer(len(names))
        return Scope(self.planner, [inner], names, None, outer, width)

    def _input(self, plan: Any) -> tuple[Any, Relation, Scope]:
        (inner,) = plan.inputs()
        found = self.relation(inner)
        if self.domain is not None and not self._has_domain(inner, found):
            found = self.spread(found)
        return inner, found, self._scope(inner, len(found.kinds))

    def _has_domain(self, plan: Any, found: Relation) -> bool:
        return len(found.kinds) > len(self.planner.fields(plan)[0])

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
        if OUTER in plan.display() or self.planner.subqueries:
            return self._computed_values(variant, names, kinds)
        scope, nothing = Scope(self.planner, [], ()), Frame([], 1)
        rows = [[scope.read(value) for value in row] for row in variant.values()]
        columns = [pa.concat_arrays([row[at].array(nothing, kind) for row in rows]) for at, kind in enumerate(kinds)]
        return constant(self._flow, columns, kinds, self.told, len(rows), names)

    def _computed_values(self, variant: Any, names: Sequence[str], kinds: Sequence[pa.DataType]) -> Relation:
        """VALUES that depend on records."""
        parts = []
        for row in variant.values():
            found = constant(self._flow, [], (), self.told) if self.domain is None else self.domain.relation
            outer = None if self.domain is None else self.domain.outer(0)
            scope = Scope(self.planner, [], (), None, outer, len(found.kinds))
            outputs = [(scope.read(value), kind) for value, kind in zip(row, kinds, strict=True)]
            parts.append(self.extended(found, scope).projected([*outputs, *self._carried(found)], names))
        return parts[0].concat(*parts[1:])

    # -- rows ----------------------------------------------------------------------------------------------------
    def _projection(self, plan: Any, variant: Any) -> Relation:
        _, found, scope = self._input(plan)
        names, kinds = self.planner.fields(plan)
        outputs = [(scope.read(one), kind) for one, kind in zip(variant.projections(), kinds, strict=True)]
        return self.extended(found, scope).projected([*outputs, *self._carried(found)], names)

    def _filter(self, plan: Any, variant: Any) -> Relation:
        (inner,) = plan.inputs()
        found = self.relation(inner)
        is_bare = self.domain is not None and not self._has_domain(inner, found)
        width = len(found.kinds) + is_bare
        scope, early, late = self._scope(inner, width), [], []
        left: list[tuple[Expression, pa.DataType]] = []
        right: list[tuple[Expression, pa.DataType]] = []
        for part in self._parts(self.planner.wrapped(variant.predicate())):
            condition = scope.read(part)
            if is_bare and (pair := _of_both(condition, width - 1)):
                kind = scope.type_of(self.planner.wrapped(part.to_variant().left()))
                left.append((pair[0], kind))
                right.append((moved(pair[1], 1 - width), kind))
            elif max(columns_in(condition), default=0) >= width:
                late.append(condition)
            else:
                early.append(condition)
        if is_bare:
            assert self.domain is not None
            found = joins.inner(found, self.domain.relation, joins.Condition(tuple(left), tuple(right), _all_of(early)))
        elif early:
            found = found.filtered(_all_of(early) or TRUE)
        if not late:
            return found
        return self.extended(found, scope).projected(found.columns, found.names, _all_of(late))

    def _parts(self, predicate: Any) -> list[Any]:
        """What must be true, each by itself. Without subqueries it is one."""
        if self.domain is None and not any(name in predicate.canonical_name() for name in self.planner.subqueries):
            return [predicate]
        if predicate.variant_name() != "BinaryExpr" or predicate.to_variant().op() != "AND":
            return [predicate]
        variant = predicate.to_variant()
        return [part for side in (variant.left(), variant.right()) for part in self._parts(self.planner.wrapped(side))]

    def _union(self, plan: Any, variant: Any) -> Relation:
        names, kinds = self.planner.fields(plan)
        kinds = kinds if self.domain is None else (*kinds, self.domain.kind)
        parts = []
        for inner in plan.inputs():
            found = self.relation(inner)
            if len(found.kinds) < len(kinds):
                found = self.spread(found)
            parts.append(found.projected([(column, kind) for (column, _), kind in zip(found.columns, kinds, strict=True)], names))
        return parts[0].concat(*parts[1:])

    def _distinct(self, plan: Any, variant: Any) -> Relation:
        (inner,) = plan.inputs()
        return self.relation(inner).distinct()

    # -- joins ---------------------------------------------------------------------------------------------------
    def _join(self, plan: Any, variant: Any) -> Relation:
        one, other = plan.inputs()
        left, right = self.relation(one), self.relation(other)
        if not variant.on() and _stands_for_a_value(other):
            right = self._single(right)
        names, _ = self.planner.fields(plan)
        return Joined(self, plan, left, right).relation.named(names)

    def _single(self, found: Relation, key: Outputs = ()) -> Relation:
        """The rows of each key, of which there must be one."""
        form = Single(found.kinds)
        one_row = found.keyed(Key(tuple(key))).reduce_weights(form.in_rows(), "single", in_columns=form)
        return computed(one_row, leaves_of(found.kinds, "1"), found.columns, self.told, found.names)

    # -- subqueries ----------------------------------------------------------------------------------------------
    def spread(self, found: Relation) -> Relation:
        """Rows for each of the values of the domain, which are one more column."""
        assert self.domain is not None
        return joins.inner(found, self.domain.relation, joins.Condition())

    def extended(self, found: Relation, scope: Scope) -> Relation:
        """Rows with one more column for each subquery that expressions call."""
        for name, arguments in scope.subqueries.calls:
            found = self._called(found, self.planner.subqueries[name], arguments)
        return found

    def _called(self, found: Relation, asked: Subquery, arguments: Sequence[Expression]) -> Relation:
        """Rows with what a subquery gives for each: whether there are rows, or the value of the one row, or null."""
        if asked.outer:
            domain = Domain.of(found, arguments, asked.outer, asked.kinds)
            rows = Translator(self.planner, {}, self._flow, self._root, domain).relation(asked.plan)
            width = len(rows.kinds) - 1
            on = joins.Condition((record(arguments, asked.kinds),), ((Column(width), domain.kind),), nulls_meet=True)
            key = rows.columns[width:]
        else:
            rows, on, key = self._root.relation(asked.plan), joins.Condition(), ()
        if asked.is_exists:
            return joins.marked(found, rows if key else rows.none_or_one(), on, found.names)
        if not _gives_one_row(asked.plan):
            rows = self._single(rows, key)
        both = joins.outer(found, rows, on, "left")
        width = len(found.kinds)
        return both.projected([*both.columns[:width], (both.columns[width][0], asked.kind)], found.names)

    def _carried(self, found: Relation) -> Outputs:
        """The column of the domain, which comes along."""
        return () if self.domain is None else (found.columns[-1],)

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
        return grouped(self._with_calls(found, scope), outputs, aggregates, names, self.domain)

    def _with_calls(self, found: Relation, scope: Scope) -> Relation:
        """Rows with what subqueries give, in front of the domain."""
        if not scope.subqueries.calls:
            return found
        more = self.extended(found, scope)
        return more if self.domain is None else more.projected([*more.columns, found.columns[-1]])

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
        of_sets = [[scope.read(key) for key in keys] for keys in sets]
        found = self._with_calls(found, scope)
        for keys, read in zip(sets, of_sets, strict=True):
            at = [places[_name_of(key)] for key in keys]
            some = grouped(found, [(key, kinds[one]) for key, one in zip(read, at, strict=True)], aggregates, (), self.domain)
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
        told = expression.canonical_name()
        if OUTER in told and (" FILTER (" in told or " ORDER BY [" in told):  # of which DataFusion writes no bytes
            raise self.planner.refusal(
                f"FILTER, or ORDER BY, of an aggregate with a column of the query around, in {show(told, 120)}, is not supported: "
                "use CASE in its place"
            )
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
        return self._cut(self._input(plan)[1], Order(), (), skip or 0, count)

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
        return self._cut(self.extended(found, scope), order, by, skip, count, len(found.kinds))

    def _cut(self, found: Relation, order: Order, by: Outputs, skip: int, count: int | None, width: int | None = None) -> Relation:
        """``width``: how many columns come out; None: all."""
        columns = found.columns[:width]
        given = [*columns, *by]
        kinds = tuple(kind for _, kind in given)
        if self.domain is None and found.kinds and count is not None and skip + count <= _FEW:  # of each bucket first
            form = First(kinds, order, 0, skip + count)
            kept = found.keyed(found.bucket(columns), given).reduce_weights(form.in_rows(), "first-of-some", in_columns=form)
            some = computed(kept, leaves_of(kinds, "1"), columns_of(kinds), self.told)
        else:
            some = found.projected(given)
        form = First(kinds, order, skip, count)
        key = () if self.domain is None else (some.columns[len(columns) - 1],)
        kept = some.keyed(Key(key)).reduce_weights(form.in_rows(), "first", in_columns=form)
        return computed(kept, leaves_of(kinds[: len(columns)], "1"), columns, self.told, found.names)

    # -- windows -------------------------------------------------------------------------------------------------
    def _windowexpr(self, plan: Any, variant: Any) -> Relation:
        _, found, scope = self._input(plan)
        names, kinds = self.planner.fields(plan)
        asked = [self.planner.wrapped(one) for one in variant.get_window_expr()]
        start, carried = len(names) - len(asked), self._carried(found)
        by_partition: dict[str, list[int]] = {}
        for at, one in enumerate(asked):
            keys = variant.get_partition_exprs(_inner(self.planner, one))
            by_partition.setdefault(str(keys), []).append(at)
            if self.planner.subqueries:  # which are columns before what windows give
                reading_windows.windowed(self.planner, variant, scope, one, kinds[start + at], [])
                for key in keys:
                    scope.read(self.planner.wrapped(key))
        found = self.extended(found, scope)
        width = len(found.kinds)
        order = [at for some in by_partition.values() for at in some]
        for some in by_partition.values():
            found = self._windows(found, variant, scope, [(asked[at], kinds[start + at]) for at in some], carried)
        back = [width + order.index(at) for at in range(len(asked))]
        return found.projected([*(found.columns[at] for at in (*range(start), *back)), *carried], names)

    def _windows(self, found: Relation, variant: Any, scope: Scope, asked: Sequence[tuple[Any, pa.DataType]], carried: Outputs) -> Relation:
        """Functions of the same partitions."""
        given, width = list(found.columns), len(found.kinds)
        windows = [reading_windows.windowed(self.planner, variant, scope, one, kind, given) for one, kind in asked]
        first = _inner(self.planner, asked[0][0])
        keys = [*(self._typed(scope, one) for one in variant.get_partition_exprs(first)), *carried]
        form = Windows(tuple(kind for _, kind in given), width, tuple(windows))
        made = found.keyed(Key(tuple(keys)), given).reduce_weights(form.in_rows(), "windows", in_columns=form)
        kinds = [*found.kinds, *(kind for _, kind in asked)]
        return computed(made, leaves_of(kinds, "1"), columns_of(kinds), self.told)

    # -- recursion -----------------------------------------------------------------------------------------------
    def _recursivequery(self, plan: Any, variant: Any) -> Relation:
        static, recursive = plan.inputs()
        if self.domain is not None:
            raise self.planner.refusal("WITH RECURSIVE in a subquery that uses columns of the query around is not supported: use a join")
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
    return not _gives_one_row(plan)


def _gives_one_row(plan: Any) -> bool:
    """Whether a node gives one row at most."""
    variant = plan.to_variant()
    while type(variant).__name__ in ("SubqueryAlias", "Projection", "Filter"):
        (plan,) = plan.inputs()
        variant = plan.to_variant()
    return type(variant).__name__ == "Aggregate" and not variant.group_by_exprs()


def _of_both(condition: Expression, at: int) -> tuple[Expression, Expression] | None:
    """The sides of an equality between columns before this one and this one alone."""
    match condition:
        case Call(Kernel("operator", "="), (one, other)):
            for side, of_domain in ((one, other), (other, one)):
                looked_at = columns_in(side)
                if looked_at and max(looked_at) < at and columns_in(of_domain) == {at}:
                    return side, of_domain
    return None


def _all_of(conditions: Sequence[Expression]) -> Expression | None:
    made: Expression | None = None
    for one in conditions:
        made = one if made is None else Call(Kernel("operator", "AND"), (made, one), pa.bool_())
    return made


def _inner(planner: Planner, expression: Any) -> Any:
    """Without its name, as DataFusion's own class."""
    return reading_windows.inner(planner, expression).expr


def _some(relation: Relation, columns: Sequence[str], wanted: Sequence[str]) -> Relation:
    at = [columns.index(name) for name in wanted]
    return relation.projected([relation.columns[one] for one in at])


__all__ = ["Table", "Translator"]
