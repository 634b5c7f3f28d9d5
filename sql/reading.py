"""DataFusion's expressions as ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rayad.progress import show
from rayad.sql.planning.planner import Planner, plain_type
from rayad.sql.planning.wire import is_ilike
from rayad.sql.values import expressions as ex
from rayad.sql.values.functions import FUNCTIONS
from rayad.sql.values.kernels import TABLES, Kernel
from rayad.sql.values.patterns import Like

_COMPARISONS = frozenset(("=", "!=", "<", "<=", ">", ">=", "AND", "OR", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "~", "!~"))
TRUE = ex.Literal(pa.scalar(True))


class Subqueries:
    """Functions that stand for subqueries, which expressions over some rows call: each call is a column behind those of the rows.

    Args:
        width: how many columns the rows have.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.calls: list[tuple[str, tuple[ex.Expression, ...]]] = []

    def asked(self, name: str, arguments: tuple[ex.Expression, ...]) -> ex.Expression:
        """The column that a call is; equal calls are one."""
        if (name, arguments) not in self.calls:
            self.calls.append((name, arguments))
        return ex.Column(self.width + self.calls.index((name, arguments)))


class Scope:
    """What the columns of expressions are.

    Args:
        planner: of the query.
        plans: whose rows, or pairs of rows, expressions look at.
        names: of their columns, as expressions have them.
        places: the numbers of these columns; None: from 0 on.
        width: how many columns the rows have; None: those that have names.
        outer: what the columns of the query around are.
    """

    def __init__(
        self,
        planner: Planner,
        plans: Sequence[Any],
        names: Sequence[str],
        places: Sequence[int] | None = None,
        outer: Mapping[str, ex.Expression] | None = None,
        width: int | None = None,
    ) -> None:
        self.planner = planner
        self._frame: Any = None
        self._plans = plans
        self._at = list(range(len(names)) if places is None else places)
        self._around = outer or {}
        self._places: dict[str, int] = {}
        for at, name in zip(self._at, names, strict=True):
            self._places.setdefault(name, at)
        self.subqueries = Subqueries(len(names) if width is None else width)

    def read(self, given: Any) -> ex.Expression:
        """An expression. Raises DataflowError, naming what is not supported."""
        expression = self.planner.wrapped(given)
        name = expression.variant_name()
        method = getattr(self, f"_{name.lower()}", None)
        if method is not None:
            found: ex.Expression = method(expression)
            return found
        if name in TABLES["test"]:
            inner = self.read(expression.to_variant().expr())
            return ex.Call(Kernel("test", name), (inner,), self.type_of(expression) if name == "Negative" else pa.bool_())
        raise self.planner.refusal(
            f"{show(expression.canonical_name(), 120)}, {_NAMES.get(name, f'an expression of the kind {name}')}, is not supported"
        )

    def type_of(self, expression: Any) -> pa.DataType:
        """What DataFusion says that an expression gives."""
        if self._frame is None:
            self._frame = self.planner.frame(*self._plans)
        (kind,) = self.planner.types(self._frame, [self.planner.wrapped(expression)])
        return kind

    def _column(self, expression: Any) -> ex.Expression:
        variant = expression.to_variant()
        name = variant.qualified_name()
        if name in self._places:
            return ex.Column(self._places[name])
        bare = [one for plan in self._plans for one in self.planner.frame(plan).schema().names]  # a union may lose the relation
        if bare.count(variant.name()) == 1:
            return ex.Column(self._at[bare.index(variant.name())])
        raise self.planner.refusal(f"the plan reads {name!r}, which is none of {show(list(self._places), 200)}")

    def _outer(self, expression: Any) -> ex.Expression:
        name = expression.canonical_name().removeprefix("outer_ref(").removesuffix(")")
        if name not in self._around:
            raise self.planner.refusal(f"{name!r}, a column of the query around, is read where there is none")
        return self._around[name]

    def _alias(self, expression: Any) -> ex.Expression:
        return self.read(expression.to_variant().expr())

    def _literal(self, expression: Any) -> ex.Expression:
        value = expression.python_value()
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        kind = plain_type(scalar.type)
        if pa.types.is_interval(kind) and scalar.is_valid:
            return ex.Interval(*scalar.as_py())
        return ex.Literal(scalar if kind == scalar.type else pa.scalar(scalar.as_py(), kind))

    def _binaryexpr(self, expression: Any) -> ex.Expression:
        variant = expression.to_variant()
        operator = variant.op()
        if operator not in TABLES["operator"]:
            raise self.planner.refusal(f"the operator {operator}, in {show(expression.canonical_name(), 120)}, is not supported")
        sides = self.read(variant.left()), self.read(variant.right())
        return ex.Call(Kernel("operator", operator), sides, pa.bool_() if operator in _COMPARISONS else self.type_of(expression))

    def _cast(self, expression: Any) -> ex.Expression:
        return ex.Cast(self.read(expression.to_variant().expr()), self.type_of(expression))

    def _trycast(self, expression: Any) -> ex.Expression:
        return ex.Cast(self.read(expression.to_variant().expr()), self.type_of(expression), is_try=True)

    def _case(self, expression: Any) -> ex.Expression:
        variant = expression.to_variant()
        compared = variant.expr()
        compared = None if compared is None else self.read(compared)
        branches = []
        for when, then in variant.when_then_expr():
            condition = self.read(when)
            if compared is not None:
                condition = ex.Call(Kernel("operator", "="), (compared, condition), pa.bool_())
            branches.append((condition, self.read(then)))
        kind, otherwise = self.type_of(expression), variant.else_expr()
        return ex.Case(tuple(branches), ex.Literal(pa.scalar(None, kind)) if otherwise is None else self.read(otherwise), kind)

    def _like(self, expression: Any) -> ex.Expression:
        variant = expression.to_variant()
        like = Like(variant.escape_char() or "\\", is_ilike(expression), variant.negated())
        return ex.Call(like, (self.read(variant.expr()), self.read(variant.pattern())), pa.bool_())

    def _inlist(self, expression: Any) -> ex.Expression:
        variant = expression.to_variant()
        value, one_of = self.read(variant.expr()), [self.read(one) for one in variant.list()]
        made: ex.Expression | None = None
        for one in one_of:
            same = ex.Call(Kernel("operator", "="), (value, one), pa.bool_())
            made = same if made is None else ex.Call(Kernel("operator", "OR"), (made, same), pa.bool_())
        found = made or ex.Literal(pa.scalar(False))
        return ex.Call(Kernel("test", "Not"), (found,), pa.bool_()) if variant.negated() else found

    def _between(self, expression: Any) -> ex.Expression:
        variant = expression.to_variant()
        value = self.read(variant.expr())
        low, high = (
            ex.Call(Kernel("operator", operator), (value, self.read(end)), pa.bool_())
            for operator, end in ((">=", variant.low()), ("<=", variant.high()))
        )
        found = ex.Call(Kernel("operator", "AND"), (low, high), pa.bool_())
        return ex.Call(Kernel("test", "Not"), (found,), pa.bool_()) if variant.negated() else found

    def _scalarfunction(self, expression: Any) -> ex.Expression:
        name = expression.rex_call_operator()
        if name in self.planner.subqueries:
            return self.subqueries.asked(name, tuple(self.read(argument) for argument in expression.rex_call_operands()))
        if name not in FUNCTIONS:
            raise self.planner.refusal(
                f"the function {name}, in {show(expression.canonical_name(), 120)}, is not supported: apply it to the table before, with "
                "map_batches(), or to the result"
            )
        arguments = tuple(self.read(argument) for argument in expression.rex_call_operands())
        return ex.Call(Kernel("function", name), arguments, self.type_of(expression))


_NAMES = {
    "ScalarSubquery": "a subquery that DataFusion cannot turn into a join",
    "Exists": "a subquery that DataFusion cannot turn into a join",
    "InSubquery": "a subquery that DataFusion cannot turn into a join",
    "SetComparison": "a comparison with ANY or ALL of a subquery",
    "Placeholder": "a parameter",
    "Unnest": "UNNEST",
    "Wildcard": "*",
}

__all__ = ["TRUE", "Scope"]
