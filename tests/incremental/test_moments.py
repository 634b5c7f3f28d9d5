"""At each moment of two loops and an epoch a vertex has given what it makes of all that has come by then; wrong rules are found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from rayad.incremental import functions
from rayad.incremental.joining import Join
from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.reducing import Function, Reduce, distinct
from tests.incremental.moments_driven import fed, run, verify
from tests.incremental.wrong_rules import WRONG_MOVES, WRONG_RULES
from tests.thorough import amount

Weights = list[Counter[tuple[Any, Any]]]
SEEDS = amount(each_run=60, soak=2000)


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


def _summed(function: Function, vector: Callable[[Any], tuple[Any, ...]]) -> Function:
    """The same of the weights by value."""

    def of_values(key: Any, values: dict[Any, int]) -> Any:
        vectors = [tuple(weight * part for part in vector(value)) for value, weight in values.items()]
        total = tuple(map(sum, zip(*vectors, strict=True)))
        return function(key, total) if any(total) else []

    return of_values


ADDED = functions.Added(lambda value: value / 10)
VERTICES: dict[str, tuple[Callable[[], MomentVertex], int, Callable[[Weights], Counter[Any]]]] = {
    "join": (Join, 2, joined),
    "distinct": (lambda: Reduce(distinct), 1, reduced(distinct)),
    "count": (lambda: Reduce(functions.count, functions.one), 1, reduced(_summed(functions.count, functions.one))),
    "sum": (lambda: Reduce(functions.total, ADDED), 1, reduced(_summed(functions.total, ADDED))),
    "min": (lambda: Reduce(functions.Best(min, None)), 1, reduced(functions.Best(min, None))),
    "top_k": (lambda: Reduce(functions.Top(2, None)), 1, reduced(functions.Top(2, None))),
}
EACH = pytest.mark.parametrize("name", VERTICES)


def check(name: str, seed: int, *, disturbed: bool = False) -> None:
    """One random history."""
    make, inputs, whole = VERTICES[name]
    chance = random.Random(seed)
    what = fed(chance, inputs=inputs)
    verify(what, run(make, what, chance, disturbed=disturbed), inputs, whole)


@EACH
def test_a_vertex_is_right_at_each_moment(name: str) -> None:
    for seed in range(SEEDS):
        check(name, seed)


@EACH
def test_a_vertex_may_be_restored_and_give_keys_away_between_moments(name: str) -> None:
    for seed in range(SEEDS):
        check(name, seed, disturbed=True)


def is_found(name: str, plant: Callable[[ExitStack], None], *, disturbed: bool) -> bool:
    """Whether some seed shows it."""
    with ExitStack() as stack:
        plant(stack)
        for seed in range(300):
            try:
                check(name, seed, disturbed=disturbed)
            except Exception:
                return True
    return False


@pytest.mark.parametrize("rule", WRONG_RULES)
def test_a_wrong_rule_is_found(rule: str) -> None:
    assert any(is_found(name, WRONG_RULES[rule], disturbed=False) for name in VERTICES)


@pytest.mark.parametrize("rule", WRONG_MOVES)
def test_a_wrong_move_is_found(rule: str) -> None:
    assert any(is_found(name, WRONG_MOVES[rule], disturbed=True) for name in VERTICES)
