"""At each moment of two loops and an epoch a vertex has given what it makes of all that has come by then; wrong rules are found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.compute as pc
import pytest

from rayad.dataflow import windows
from rayad.dataflow.operators.state.slots import row_index
from rayad.incremental import aggregating, functions, ranking
from rayad.incremental.columns import grouped, linear, ordered, weighted_runs
from rayad.incremental.columns.thresholds import Threshold
from rayad.incremental.consolidating import Consolidate
from rayad.incremental.event_time import columns as event_time
from rayad.incremental.event_time.functions import Sessions
from rayad.incremental.joins.arranging import SharedJoin
from rayad.incremental.joins.join import Join
from rayad.incremental.joins.kinds import KINDS, How, Side
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.records import Row
from rayad.incremental.reducing import Function, Reduce, distinct
from rayad.incremental.steps import Field
from tests.incremental.moments_driven import Form, fed, run, verify
from tests.incremental.wrong_rules import WRONG_COLUMNS, WRONG_ENDS, WRONG_MOVES, WRONG_RULES
from tests.thorough import amount, by_turns

Weights = list[Counter[tuple[Any, Any]]]
SEEDS = amount(each_run=5, soak=400)


def reduced(function: Function) -> Callable[[Weights], Counter[Any]]:
    """What a function makes of the values of each key."""

    def whole(there: Weights) -> Counter[Any]:
        values: dict[Any, dict[Any, int]] = {}
        for (key, value), weight in there[0].items():
            values.setdefault(key, {})[value] = weight
        out: Counter[Any] = Counter()
        for key, of in values.items():
            for result, weight in function(key, of):
                out[key, result] += weight
        return out

    return whole


def joined(there: Weights) -> Counter[Any]:
    """All pairs."""
    out: Counter[Any] = Counter()
    for (key, left), weight in there[0].items():
        for (other, right), count in there[1].items():
            if key == other:
                out[key, (left, right)] += weight * count
    return out


def joined_as(how: How) -> Callable[[Weights], Counter[Any]]:
    """Pairs, and records alone less those of which the other side has the key, so often as that input says."""
    kind = KINDS[how]

    def often(keys: Counter[tuple[Any, Any]]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for (key, _), weight in keys.items():
            found[key] += weight
        return found

    def whole(there: Weights) -> Counter[Any]:
        by_name = dict(zip(kind.inputs, there, strict=True))
        left, right = by_name["left"], by_name.get("right", Counter())
        of_right, of_left = (often(by_name.get(name, Counter())) for name in ("keys of right", "keys of left"))
        out: Counter[Any] = joined([left, right])
        for (key, value), weight in left.items():
            if how == "semi":
                out[key, value] += weight * of_right[key]
            if how in ("anti", "left", "full"):
                out[key, value if how == "anti" else (value, None)] += weight * (1 - of_right[key])
        for (key, value), weight in right.items() if how in ("right", "full") else ():
            out[key, (None, value)] += weight * (1 - of_left[key])
        return out

    return whole


def shared(there: Weights) -> Counter[Any]:
    """Of three inputs: the first with the second, and the third with the first."""
    out = joined(there[:2])
    out.update(joined([there[2], there[0]]))
    return out


def consolidated(there: Weights) -> Counter[Any]:
    """The keys alone."""
    out: Counter[Any] = Counter()
    for (key, _), weight in there[0].items():
        out[key] += weight
    return out


def _summed(function: Function, vector: Callable[[Any], tuple[Any, ...]]) -> Function:
    """The same of the weights by value."""

    def of_values(key: Any, values: dict[Any, int]) -> Any:
        vectors = [tuple(weight * part for part in vector(value)) for value, weight in values.items()]
        total = tuple(map(sum, zip(*vectors, strict=True)))
        return function(key, total) if any(total) else []

    return of_values


ADDED = functions.Added(lambda value: value / 10)
OTHER_JOINS: dict[str, tuple[Callable[[], MomentVertex], int, Callable[[Weights], Counter[Any]]]] = {
    f"{how} join": (partial(Join, how), len(KINDS[how].inputs), joined_as(how)) for how in KINDS if how != "inner"
}
VERTICES: dict[str, tuple[Callable[[], MomentVertex], int, Callable[[Weights], Counter[Any]]]] = {
    "join": (Join, 2, joined),
    "shared join": (lambda: SharedJoin(Side(is_left=False), Side(is_left=True)), 3, shared),
    **OTHER_JOINS,
    "distinct": (lambda: Reduce(distinct), 1, reduced(distinct)),
    "count": (lambda: Reduce(functions.count, functions.one), 1, reduced(_summed(functions.count, functions.one))),
    "sum": (lambda: Reduce(functions.total, ADDED), 1, reduced(_summed(functions.total, ADDED))),
    "min": (lambda: Reduce(functions.Best(min, None)), 1, reduced(functions.Best(min, None))),
    "top_k": (lambda: Reduce(functions.Top(2, None)), 1, reduced(functions.Top(2, None))),
}
EACH = pytest.mark.parametrize("name", VERTICES)


def _in_order(forms: tuple[Function, grouped.Grouped | None]) -> tuple[Callable[[], MomentVertex], int, Callable[[Weights], Counter[Any]]]:
    function, in_columns = forms
    return lambda: Reduce(function, None, in_columns), 1, reduced(function)


def _several(aggregations: dict[str, Any]) -> tuple[Callable[[], MomentVertex], int, Callable[[Weights], Counter[Any]]]:
    forms = aggregating.forms_of(aggregations, None)
    return lambda: Reduce(*forms), 1, reduced(forms.function if forms.vector is None else _summed(forms.function, forms.vector))


FIELD = functions.Added(Field("v"))
GAP = windows.session(1)
OFTEN = Threshold(pc.field("1") * 2 - pc.field("0"))
"""It may be below nothing."""
IN_COLUMNS: dict[str, tuple[Callable[[], MomentVertex], int, Callable[[Weights], Counter[Any]]]] = {
    "join": VERTICES["join"],
    "shared join": VERTICES["shared join"],
    **OTHER_JOINS,
    "distinct": (lambda: Reduce(distinct, None, linear.Present()), 1, reduced(distinct)),
    "count": (lambda: Reduce(functions.count, functions.one, linear.Counted()), 1, VERTICES["count"][2]),
    "sum": (lambda: Reduce(functions.total, FIELD, linear.Summed("v")), 1, reduced(_summed(functions.total, FIELD))),
    "mean": (lambda: Reduce(functions.mean, FIELD, linear.Summed("v", mean=True)), 1, reduced(_summed(functions.mean, FIELD))),
    "sum of floats": (lambda: Reduce(functions.total, FIELD, linear.Summed("v")), 1, reduced(_summed(functions.total, FIELD))),
    "mean of floats": (lambda: Reduce(functions.mean, FIELD, linear.Summed("v", mean=True)), 1, reduced(_summed(functions.mean, FIELD))),
    "several sums": _several({"n": "count", "total": ("sum", "v"), "mean": ("mean", "v")}),
    "several": _several({"most": ("max", "v"), "n": "count", "total": ("sum", "v")}),
    "sessions": _in_order((Sessions(GAP, Field("v")), event_time.Sessions(GAP, "v"))),
    "threshold": (lambda: Reduce(functions.Threshold(OFTEN), None, OFTEN), 1, reduced(functions.Threshold(OFTEN))),
    "consolidate": (Consolidate, 1, consolidated),
    "min": _in_order((functions.Best(min, Field("v")), ordered.Best(False, "v"))),
    "max": _in_order((functions.Best(max, Field("v")), ordered.Best(True, "v"))),
    "top_k": _in_order(ranking.first(2, "v", "top_k")),
    "row_number": _in_order(ranking.numbered("v", True, "row_number")),
    "rank": _in_order(ranking.ranked(["v"], False, "rank", dense=False)),
    "dense rank": _in_order(ranking.ranked("v", False, "rank", dense=True)),
    "lag": _in_order(ranking.shifted("v", False, "lag", 1, None)),
    "lead": _in_order(ranking.shifted("v", False, "lead", -2, None)),
}
"""Operators that have a form in columns."""
BY_RECORD = ("distinct", "consolidate", "threshold")
"""Those to which records come as keys."""
OF_FLOATS = {"sum of floats": 0.1, "mean of floats": 1e-17, "several sums": 0.1, "several": 0.1}
"""Those whose values are so many times the numbers that others have, no two of which have an exact sum in floats."""
EACH_IN_COLUMNS = pytest.mark.parametrize("name", IN_COLUMNS)
FORMS: tuple[Form, ...] = ("columns", "mixed")


def check(name: str, seed: int, *, disturbed: bool = False, form: Form = "rows") -> None:
    """One random history."""
    make, inputs, whole = VERTICES[name] if form == "rows" else IN_COLUMNS[name]
    chance = random.Random(seed)
    what = fed(chance, inputs=inputs)
    if form != "rows":
        what = [
            (time, port, (key, None if name in BY_RECORD else Row(v=value * OF_FLOATS.get(name, 1)), weight))
            for time, port, (key, value, weight) in what
        ]
    verify(what, run(make, what, chance, disturbed=disturbed, form=form), inputs, whole)


@EACH
def test_a_vertex_is_right_at_each_moment(name: str) -> None:
    for seed in range(SEEDS):
        check(name, seed)


@EACH
def test_a_vertex_may_be_restored_and_give_keys_away_between_moments(name: str) -> None:
    for seed in range(SEEDS):
        check(name, seed, disturbed=True)


@by_turns(3)
@pytest.mark.parametrize("form", FORMS)
@EACH_IN_COLUMNS
def test_columns_are_right_at_each_moment(name: str, form: Form) -> None:
    for seed in range(SEEDS):
        check(name, seed, form=form)


@by_turns(3)
@pytest.mark.parametrize("form", FORMS)
@EACH_IN_COLUMNS
def test_columns_may_be_restored_and_give_keys_away_between_moments(name: str, form: Form) -> None:
    for seed in range(SEEDS):
        check(name, seed, disturbed=True, form=form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", [functions.in_both, functions.in_first_alone])
def test_sides_in_columns_are_right_at_each_moment(function: Function, form: Form) -> None:
    def make() -> MomentVertex:
        return Reduce(function, None, grouped.OfSides(function is functions.in_both))

    for seed in range(SEEDS):
        chance = random.Random(seed)
        what = fed(chance, inputs=1)
        verify(what, run(make, what, chance, disturbed=seed % 2 == 1, form=form), 1, reduced(function))


@by_turns(3)
@EACH_IN_COLUMNS
def test_equal_hashes_are_told_apart_by_what_rows_hold(name: str) -> None:
    with ExitStack() as stack:
        equal = patch.object(weighted_runs.WeightedRuns, "places", lambda self, rows: np.zeros(rows.num_rows, np.uint64))
        stack.enter_context(equal)
        for module, what in ((weighted_runs, "codes_of"), (row_index, "content_codes")):
            stack.enter_context(patch.object(module, what, lambda rows: np.zeros(len(rows), np.int64)))
        stack.enter_context(patch.object(weighted_runs.WeightedRuns, "has_exact_places", lambda self, rows: False))
        for seed in range(SEEDS):
            check(name, seed, form="columns")


def is_found(names: Iterable[str], plant: Callable[[ExitStack], None], *, disturbed: bool, form: Form = "rows", first: int = 0) -> bool:
    """Whether some seed shows it in one of these vertices. A rule that is wrong for one of them has no effect on most others, so each seed
    is tried on all."""
    with ExitStack() as stack:
        plant(stack)
        for seed in range(first, 300):
            for name in names:
                try:
                    check(name, seed, disturbed=disturbed, form=form)
                except Exception:
                    return True
    return False


@by_turns(3)
@pytest.mark.parametrize("rule", WRONG_RULES)
def test_a_wrong_rule_is_found(rule: str) -> None:
    assert is_found(VERTICES, WRONG_RULES[rule], disturbed=False)


@by_turns(3)
@pytest.mark.parametrize("rule", WRONG_MOVES)
def test_a_wrong_move_is_found(rule: str) -> None:
    assert is_found(VERTICES, WRONG_MOVES[rule], disturbed=True)


RARE = {"joins of pairs only": 25, "who is ahead does not know": 33}
"""The first seed that finds a wrong rule in columns, where those before it take long."""


@by_turns(3)
@pytest.mark.parametrize("form", ["rows", "columns"])
@pytest.mark.parametrize("rule", WRONG_ENDS)
def test_a_wrong_end_is_found(rule: str, form: Form) -> None:
    names, first = (VERTICES, 0) if form == "rows" else (IN_COLUMNS, RARE.get(rule, 0))
    assert is_found(names, WRONG_ENDS[rule], disturbed=True, form=form, first=first)


@by_turns(3)
@pytest.mark.parametrize("rule", WRONG_COLUMNS)
def test_a_wrong_rule_of_columns_is_found(rule: str) -> None:
    plant, disturbed = WRONG_COLUMNS[rule]
    assert is_found(IN_COLUMNS, plant, disturbed=disturbed, form="columns", first=RARE.get(rule, 0))
