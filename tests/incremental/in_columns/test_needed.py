"""What as-of joins and sessions need of keys: columns find of all keys at once what rows find of each."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.records.values import tuple_array
from rayad.dataflow.windows import AsOf
from rayad.incremental.columns.grouped import Records
from rayad.incremental.event_time import columns, functions
from rayad.incremental.event_time.needing import Needing
from rayad.incremental.records import Row
from tests.thorough import amount

KIND = pa.struct({"at": pa.int64(), "v": pa.int64()})
Values = dict[Any, int]


def _at(record: Any) -> int:
    at: int = record["at"]
    return at


def _record(chance: random.Random) -> Row:
    return Row(at=chance.randrange(-4, 12), v=chance.randrange(2))


def _column(values: list[Any]) -> pa.Array:
    if isinstance(values[0], tuple):
        return tuple_array([pa.array(side, KIND) for side in zip(*values, strict=True)])
    return pa.array(values, KIND)


def _same(function: Any, needing: Needing, keys: list[Values], limits: list[int]) -> int:
    """Compare of each key, with a limit of its own; gives how many records are not needed."""
    pairs = [(group, value, weight) for group, values in enumerate(keys) for value, weight in values.items()]
    group, values, weights = zip(*pairs, strict=True)
    there = Records(np.array(group), _column(list(values)), np.array(weights))
    needed, waiting = needing.needed(there, lambda kind: np.array(limits)[there.group])
    found = [Counter[Any]() for _ in keys]
    for at, value, is_needed in zip(group, values, needed.tolist(), strict=True):
        found[at][value] += is_needed
    forgotten = 0
    for number, (of_key, limit) in enumerate(zip(keys, limits, strict=True)):
        want, then = function.needed(of_key, limit)
        assert +found[number] == Counter(dict.fromkeys(want, 1)), f"of {of_key} at {limit}"
        assert (number in waiting) <= (then == limit), f"{of_key} at {limit} waits, and rows look again at {then}"
        forgotten += len(of_key) - len(set(want))
    return forgotten


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("tolerance", [None, 2])
def test_as_of(direction: Any, exact: bool, tolerance: Any) -> None:
    rule, forgotten = AsOf(tolerance, exact, direction), 0
    for seed in range(amount(each_run=10, soak=2000)):
        chance = random.Random(seed)
        sides = [(lambda r: (r, None)), (lambda r: (None, r))]
        keys = [{chance.choice(sides)(_record(chance)): chance.randint(1, 2) for _ in range(chance.randint(1, 8))} for _ in range(12)]
        limits = [chance.randint(-2, 12) for _ in keys]
        forgotten += _same(functions.Latest(rule, _at, _at, inner=False), columns.Latest(rule, ("at", "at"), inner=False), keys, limits)
    assert forgotten > 100


@pytest.mark.parametrize("gap", [1, 3])
def test_sessions(gap: int) -> None:
    windows, forgotten = rd.windows.session(gap), 0
    for seed in range(amount(each_run=10, soak=2000)):
        chance = random.Random(seed)
        keys = [{_record(chance): chance.randint(1, 2) for _ in range(chance.randint(1, 8))} for _ in range(12)]
        limits = [chance.randint(-2, 14) for _ in keys]
        forgotten += _same(functions.Sessions(windows, _at), columns.Sessions(windows, "at"), keys, limits)
    assert forgotten > 100
