"""Random queries give what DuckDB gives, after each epoch; and the comparison finds rules of nulls that are planted wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rayad as rd
from rayad.sql import joins
from rayad.sql.steps import Key
from rayad.sql.values.arithmetic import BINARY, UNARY
from tests.sql.against_duckdb import Table, coming_and_going, verify
from tests.sql.random_queries import Queries
from tests.thorough import amount

T = pa.schema([("a", pa.int64()), ("b", pa.int64())])
U = pa.schema([("a", pa.int64()), ("c", pa.int64())])
RUNS = amount(each_run=60, soak=3_000)


def tables(seed: int) -> dict[str, Table]:
    """Two tables of few values, many of them null or there several times."""
    chance = random.Random(seed)

    def rows(count: int) -> list[tuple[Any, ...]]:
        return [(chance.choice([None, 1, 2, 3]), chance.choice([None, 0, 1, 2])) for _ in range(count)]

    return {"t": coming_and_going(T, rows(9), chance), "u": coming_and_going(U, rows(7), chance)}


def run(seed: int) -> bool:
    """Whether a random query was supported; raises AssertionError where its result is wrong."""
    query = Queries(seed).query()
    try:
        verify(query, tables(seed), seed, rows=seed % 4 == 0)
    except rd.DataflowError as error:
        if "is not supported" not in str(error) or "failed at" in str(error):
            raise AssertionError(f"{query}: {error}") from error
        return False
    return True


def test_random_queries() -> None:
    ran = sum(run(seed) for seed in range(RUNS))
    assert ran > 0.9 * RUNS, f"only {ran} of {RUNS} are supported"


def _true_where_unknown(stack: ExitStack) -> None:
    """A comparison with null is false, not null."""
    real = BINARY["="]
    stack.enter_context(patch.dict(BINARY, {"=": lambda one, other: pc.fill_null(real(one, other), False)}))


def _or_of_two_values(stack: ExitStack) -> None:
    """Null or true is null."""
    stack.enter_context(patch.dict(BINARY, {"OR": pc.or_}))


def _not_of_null_is_true(stack: ExitStack) -> None:
    stack.enter_context(patch.dict(UNARY, {"Not": lambda value: pc.invert(pc.fill_null(value, False))}))


def _nulls_meet(stack: ExitStack) -> None:
    """Null joins null."""
    real = joins.Condition.keys

    def keys(self: joins.Condition) -> tuple[Key, Key]:
        one, other = real(self)
        return Key(one.columns, True), Key(other.columns, True)

    stack.enter_context(patch.object(joins.Condition, "keys", keys))


def _nulls_do_not_meet(stack: ExitStack) -> None:
    """Null does not join null where it must: in INTERSECT, and where an outer join looks for the rows that it has joined."""
    real = joins.Condition.keys

    def keys(self: joins.Condition) -> tuple[Key, Key]:
        one, other = real(self)
        return Key(one.columns, False), Key(other.columns, False)

    stack.enter_context(patch.object(joins.Condition, "keys", keys))


def _not_in_as_not_exists(stack: ExitStack) -> None:
    def not_in(left: Any, right: Any, on: joins.Condition) -> Any:
        return joins.half(left, right, on, there=False)

    stack.enter_context(patch.object(joins, "not_in", not_in))


WRONG: dict[str, Callable[[ExitStack], None]] = {
    "comparison": _true_where_unknown,
    "or": _or_of_two_values,
    "not": _not_of_null_is_true,
    "nulls meet": _nulls_meet,
    "nulls do not meet": _nulls_do_not_meet,
    "not in": _not_in_as_not_exists,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found(name: str) -> None:
    with ExitStack() as stack:
        WRONG[name](stack)
        for seed in range(400):
            try:
                run(seed)
            except AssertionError:
                return
    raise AssertionError("no random query finds it")
