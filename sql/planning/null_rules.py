"""Where DataFusion's plan would lose a null: not taken. The query is planned again, with functions for its subqueries.

``x IN (SELECT ...)`` is null where x is null, or null is among the values and x is not. As a condition by itself DataFusion keeps that (a
null-aware join). Under an OR it makes a column of true and false, which is right only where null and false come to the same: where nothing
turns it round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rayad.progress import show
from rayad.sql.planning.planner import Planner

_IN_SUBQUERY = "IN (<subquery>)"
_NOT_IN = re.compile(r"\bNOT (?:[^()]+ )?IN \(<subquery>\)")
_COMPARED = re.compile(r"\b(ANY|ALL|SOME) \(<subquery>\)")
_UNDER_SOMETHING = re.compile(r"\b(OR|CASE|NOT [^(]*\()")


def require_nulls_kept(planner: Planner, plan: Any) -> None:
    """Look through a plan as it was before it was optimized. Raises DataflowError."""
    seen = set()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        waiting += node.inputs()
        seen.add(node.display())
        variant = node.to_variant()
        if type(variant).__name__ == "Filter":
            _require_kept(planner, planner.wrapped(variant.predicate()), is_alone=True, is_positive=True)
    for line in map(str.strip, plan.display_indent().splitlines()):  # plans of subqueries have no names in its Python interface
        if _IN_SUBQUERY in line and line not in seen and _UNDER_SOMETHING.search(line):
            raise _refusal(planner, line)


def _require_kept(planner: Planner, expression: Any, *, is_alone: bool, is_positive: bool) -> None:
    """``is_alone``: it must be true by itself, or false where not ``is_positive``."""
    name = expression.variant_name()
    if name == "InSubquery":
        negated = expression.to_variant().negated()
        if not is_alone and negated is is_positive:
            raise _refusal(planner, expression.canonical_name())
    elif name == "Not":
        _require_kept(planner, planner.wrapped(expression.to_variant().expr()), is_alone=is_alone, is_positive=not is_positive)
    elif name == "BinaryExpr" and expression.to_variant().op() in ("AND", "OR"):
        variant = expression.to_variant()
        alone = is_alone and variant.op() == ("AND" if is_positive else "OR")
        for side in (variant.left(), variant.right()):
            _require_kept(planner, planner.wrapped(side), is_alone=alone, is_positive=is_positive)
    elif _IN_SUBQUERY in expression.canonical_name():
        raise _refusal(planner, expression.canonical_name())


def require_not_in(planner: Planner, plan: Any) -> None:
    """See that each NOT IN is a null-aware join: DataFusion leaves out that of a constant that is null. Raises DataflowError."""
    asked = len(_NOT_IN.findall(planner.written.display_indent()))
    if sum(_require_pairs(planner, plan)) < asked:
        raise planner.refusal("NOT IN of a constant and a subquery is not supported: use NOT EXISTS")


def require_no_comparison(planner: Planner, told: str) -> None:
    """ANY and ALL, but for those that are IN, are functions here, which know three values. Raises DataflowError."""
    if _COMPARED.search(told):
        raise planner.refusal("ANY and ALL of a subquery are not supported here: use EXISTS")


def _require_pairs(planner: Planner, plan: Any) -> Iterator[int]:
    for inner in plan.inputs():
        yield from _require_pairs(planner, inner)
    if is_null_aware(plan):
        _require_pair(planner, plan)
        yield 1


def is_null_aware(plan: Any) -> bool:
    """Whether a node is a join for NOT IN."""
    return type(plan.to_variant()).__name__ == "Join" and bool(plan.display().endswith(" null_aware"))


def _require_pair(planner: Planner, join: Any) -> None:
    """The first pair of keys must be the value and what it is not in."""
    pairs = join.to_variant().on()
    if not pairs:
        raise planner.refusal("NOT IN of a constant and a subquery is not supported: use NOT EXISTS")
    value = planner.wrapped(pairs[0][0]).canonical_name()
    if f"outer_ref({value})" in planner.written.display_indent():  # the plan has both as one pair
        raise planner.refusal(f"NOT IN of {value!r} and a subquery that looks at it itself is not supported: use NOT EXISTS")


def _refusal(planner: Planner, told: str) -> Exception:
    return planner.refusal(
        f"{show(told, 120)}: NOT IN of a subquery that is only a part of a condition is not supported, since DataFusion does not keep that "
        "it may be null: use NOT EXISTS, or UNION two queries"
    )


__all__ = ["is_null_aware", "require_no_comparison", "require_not_in", "require_nulls_kept"]
