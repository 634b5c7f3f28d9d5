"""Window functions of a plan."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from rayad.progress import show
from rayad.sql.frames import Frame, Length, Offset, Unit
from rayad.sql.ordering import Order
from rayad.sql.planning.planner import Planner
from rayad.sql.reading import Scope
from rayad.sql.values.expressions import Expression, Literal
from rayad.sql.windows import Windowed, is_known


def inner(planner: Planner, expression: Any) -> Any:
    """An expression without its name."""
    found = planner.wrapped(expression)
    while found.variant_name() == "Alias":
        found = planner.wrapped(found.to_variant().expr())
    return found


def windowed(
    planner: Planner, node: Any, scope: Scope, given: Any, kind: pa.DataType, columns: list[tuple[Expression, pa.DataType]]
) -> Windowed:
    """One function. What it looks at is added to ``columns``. Raises DataflowError where it is not supported."""
    expression = inner(planner, given)
    raw, told = expression.expr, show(expression.canonical_name(), 120)
    name = node.window_func_name(raw).lower()
    if not is_known(name):
        raise planner.refusal(f"the window function {name}, in {told}, is not supported")
    for words in ("IGNORE NULLS", " FILTER (", "(DISTINCT "):
        if words in expression.canonical_name():
            raise planner.refusal(f"{words.strip(' (')} of a window function, in {told}, is not supported")
    arguments = [planner.wrapped(one) for one in node.get_args(raw)]

    def added(one: Any) -> int:
        columns.append((scope.read(one), scope.type_of(one)))
        return len(columns) - 1

    terms = node.get_sort_exprs(raw)
    order = Order(
        tuple(added(term.expr()) for term in terms),
        tuple(not term.ascending() for term in terms),
        tuple(bool(term.nulls_first()) for term in terms),
    )
    number, default, places = 1, None, arguments
    if name in ("lag", "lead", "nth_value"):
        places, number = arguments[:1], _whole(planner, scope, arguments[1:2], told)
        default = added(arguments[2]) if len(arguments) > 2 else None
    elif name == "ntile":
        places, number = [], _whole(planner, scope, arguments[:1], told)
    return Windowed(
        name,
        tuple(added(one) for one in places),
        order,
        _frame(planner, node.get_frame(raw), planner.wrapped(given).canonical_name()),
        number,
        default,
        kind,
    )


def _whole(planner: Planner, scope: Scope, given: list[Any], told: str) -> int:
    if not given:
        return 1
    value = scope.read(given[0])
    if not isinstance(value, Literal) or value.value.as_py() is None:
        raise planner.refusal(f"{told} needs a constant number")
    return int(value.value.as_py())


def _frame(planner: Planner, given: Any, told: str) -> Frame:
    unit = Unit[given.get_frame_units().upper()]
    bounds = [_bound(planner, bound, told, unit) for bound in (given.get_lower_bound(), given.get_upper_bound())]
    return Frame(unit, *bounds)


def _bound(planner: Planner, bound: Any, told: str, unit: Unit) -> Offset | None:
    if bound.is_current_row():
        return 0
    if bound.is_unbounded():
        return None
    offset = _offset(planner, bound, told)
    if unit is not Unit.RANGE and not isinstance(offset, int):
        raise planner.refusal(
            f"a frame by {unit.value} that begins or ends at {offset}, in {show(told, 120)}, is not supported: it counts by whole numbers"
        )
    return -offset if bound.is_preceding() else offset


def _offset(planner: Planner, bound: Any, told: str) -> Offset:
    """How far a bound is. Of what is no whole number DataFusion's Python interface has nothing but an error that says it."""
    try:
        return int(bound.get_offset())
    except Exception as error:
        text = str(error).rpartition("bound: ")[2]
    interval = _INTERVAL.fullmatch(text)
    if interval is None:
        try:
            number = Decimal(text)
        except InvalidOperation as error:
            raise planner.refusal(
                f"a frame that begins or ends at {text}, in {show(told, 120)}, is not supported: give a number or an interval"
            ) from error
        return int(number) if number == number.to_integral_value() else number
    if _BARE.search(told.partition(" AS ")[2]):
        raise planner.refusal(
            f"a frame by RANGE with a number, in {show(told, 120)}, is over dates or moments: give an interval, such as interval '1 day'"
        )
    return Length(*map(int, interval.groups()))


_INTERVAL = re.compile(r"IntervalMonthDayNano \{ months: (-?\d+), days: (-?\d+), nanoseconds: (-?\d+) \}")
_BARE = re.compile(r"RANGE BETWEEN.*\b\d+ (PRECEDING|FOLLOWING)")

__all__ = ["inner", "windowed"]
