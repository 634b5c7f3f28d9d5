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
from rayad.sql import aggregates, frames, joins, reading_joins, translating
from rayad.sql.planning.subqueries import Rewriting
from rayad.sql.steps import Key
from rayad.sql.values.arithmetic import BINARY, UNARY
from tests.sql.against_duckdb import Table, coming_and_going, verify
from tests.sql.random_queries import FORMS, Queries
from tests.thorough import amount, by_turns

T = pa.schema([("a", pa.int64()), ("b", pa.int64())])
U = pa.schema([("a", pa.int64()), ("c", pa.int64())])
RUNS = amount(each_run=60, soak=3_000)
RUNS_ANYWHERE = amount(each_run=20, soak=3_000)


def tables(seed: int) -> dict[str, Table]:
    """Two tables of few values, many of them null or there several times."""
    chance = random.Random(seed)

    def rows(count: int) -> list[tuple[Any, ...]]:
        return [(chance.choice([None, 1, 2, 3]), chance.choice([None, 0, 1, 2])) for _ in range(count)]

    return {"t": coming_and_going(T, rows(9), chance), "u": coming_and_going(U, rows(7), chance)}


def run(seed: int, form: str = "query") -> bool:
    """Whether a random query was supported; raises AssertionError where its result is wrong. ``form``: the method that draws it."""
    query = getattr(Queries(seed), form)()
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


def test_random_queries_with_subqueries_anywhere() -> None:
    ran = sum(run(seed, FORMS[seed % len(FORMS)]) for seed in range(RUNS_ANYWHERE))
    assert ran > 0.95 * RUNS_ANYWHERE, f"only {ran} of {RUNS_ANYWHERE} are supported"


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


def _in_is_never_null(stack: ExitStack) -> None:
    """IN is false where no value is equal, whatever is null."""
    real = Rewriting._compared

    def compared(self: Rewriting, *args: Any) -> str:
        return real(self, *args).replace(" then null else false", " then false else false")

    stack.enter_context(patch.object(Rewriting, "_compared", compared))


def _no_rows_for_nothing(stack: ExitStack) -> None:
    """A count of nothing is null, not 0."""
    real = aggregates.grouped

    def grouped(relation: Any, keys: Any, some: Any, names: Any, domain: Any = None) -> Any:
        if domain is None or keys or not some:
            return real(relation, keys, some, names, domain)
        found = real(relation, [domain.column(len(relation.kinds) - 1)], some, ())
        return found.projected([*found.columns[1:], found.columns[0]], names)

    stack.enter_context(patch.object(translating, "grouped", grouped))


def _bags_are_sets(stack: ExitStack) -> None:
    """INTERSECT ALL and EXCEPT ALL as DataFusion has them."""
    stack.enter_context(patch.object(reading_joins, "_is_bag", lambda plan: False))


def _edges_of_frames_are_left_out(stack: ExitStack) -> None:
    stack.enter_context(patch.object(frames, "bisect_right", frames.bisect_left))


def _values_around_are_not_told_apart(stack: ExitStack) -> None:
    """Sides of a join in a subquery meet, whatever values around they are for."""
    stack.enter_context(patch.object(joins.Condition, "keys", _without_domains(joins.Condition.keys)))


def _without_domains(real: Callable[[joins.Condition], tuple[Key, Key]]) -> Callable[[joins.Condition], tuple[Key, Key]]:
    def keys(self: joins.Condition) -> tuple[Key, Key]:
        one, other = real(self)
        if len(one.columns) < 2:
            return one, other
        plain = [at for at, (_, kind) in enumerate(one.columns) if not pa.types.is_struct(kind)]
        left, right = (tuple(key.columns[at] for at in plain) for key in (one, other))
        return Key(left, one.nulls_meet), Key(right, other.nulls_meet)

    return keys


WRONG_ANYWHERE: dict[str, tuple[Callable[[ExitStack], None], ...]] = {
    "subqueries": (_in_is_never_null,),
    "both_sides": (_values_around_are_not_told_apart, _no_rows_for_nothing),
    "bags": (_bags_are_sets,),
    "frames": (_edges_of_frames_are_left_out,),
}


@pytest.mark.parametrize(("form", "plant"), [(form, plant) for form, some in WRONG_ANYWHERE.items() for plant in some])
def test_a_wrong_rule_of_subqueries_is_found(form: str, plant: Callable[[ExitStack], None]) -> None:
    with ExitStack() as stack:
        plant(stack)
        for seed in range(400):
            try:
                run(seed, form)
            except AssertionError:
                return
    raise AssertionError("no random query finds it")


@by_turns(3)
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
