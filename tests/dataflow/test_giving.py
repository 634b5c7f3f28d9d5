"""Key-groups move between replicas of every keyed operator without an effect on results."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.distinct_count import DistinctCount
from rayad.dataflow.operators.aggregates.aggregators import Sum
from rayad.dataflow.operators.state import group_index as key_groups
from rayad.dataflow.operators.state import touched_keys
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.totals.totals import Totals
from rayad.dataflow.records.key_hashing import hash_keys, key_group, stable_hash
from rayad.progress import Timestamp
from tests.dataflow import test_state_of_keyed_operators as keyed_operators
from tests.dataflow import test_state_of_totals as totals
from tests.dataflow.driven import Driven, Step, steps_with
from tests.dataflow.moving import KEY_GROUPS, check_moves

_SOME = int(os.environ.get("RAYAD_MOVES", "15"))
"""Examples of each operator; 60 and more when operators change."""

CHANCE = st.randoms(use_true_random=False)


@pytest.fixture(autouse=True)
def _small_states_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_keys, "FEW_ITEMS", 2)
    monkeypatch.setattr(key_groups, "SLICE_KEYS", 4)


class OnePort(DistinctCount):
    """The example with ``(key, value)`` pairs as records come routed here."""

    def on_recv(self, edge: int, batch: Any, time: Any) -> None:
        super().on_recv(edge, [key for key, _ in batch], time)


@settings(max_examples=_SOME)
@given(steps=steps_with(keyed_operators.PAIRS), chance=CHANCE)
def test_a_vertex_of_a_user_moves(steps: list[Step], chance: random.Random) -> None:
    check_moves(OnePort, steps, chance)


@settings(max_examples=_SOME)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["put", "put", "put", "remove", "give", "slice"]), st.integers(0, 40)), max_size=40),
    chance=CHANCE,
)
def test_the_index_of_a_dict_follows_keys_that_come_and_go(steps: list[tuple[str, int]], chance: random.Random) -> None:
    state = KeyedDict()
    kept = state.kept
    with state.changing([f"k{i}" for i in range(20)]) as some:
        some.update({f"k{i}": i for i in range(20)})
    slices = state.index(8)
    for at, (kind, number) in enumerate(steps):
        key = f"k{number}"
        if kind == "put":
            with state.changing([key]) as some:
                some[key] = at
        elif kind == "remove":
            with state.changing([key]) as some:
                some.pop(key, None)
        elif kind == "slice":
            next(slices, None)
        elif kind == "give":
            groups = frozenset(chance.sample(range(8), 2))
            expected = {key: value for key, value in kept.items() if key_group(key, 8) in groups}
            left = {key: value for key, value in kept.items() if key not in expected}
            assert (state.give(groups, 8) or {}) == expected
            assert kept == left
            state.take(expected)


BULK: list[list[Any]] = [
    ["a", "ü", ""],
    [1, -5, 2**63 - 1],
    [1, 2**70],
    ["\ud800"],
    [1.0, 0.5, -0.0],
    [("a", 1), ("b", 2)],
    [(), ()],
    [("a", (1, None)), ("b", (True, 2.5))],
    [None, "a", 1, (1, 2)],
    [True, False],
    [b"x"],
    [],
]


@pytest.mark.parametrize("keys", BULK)
def test_keys_hashed_in_bulk_equal_keys_hashed_one_by_one(keys: list[Any]) -> None:
    assert hash_keys(keys).tolist() == [stable_hash(key) for key in keys]


@pytest.mark.parametrize("groups", [{3}, {3, 5, 8}, set(range(11))], ids=["few", "some", "most"])
def test_state_that_was_given_away_is_not_in_a_restored_vertex(groups: set[int]) -> None:
    run = Driven(lambda: Totals(Sum()))
    run.context.key_groups = KEY_GROUPS
    for epoch in range(2):
        run.step(("recv", 0, totals.sums_of(False, range(200)), Timestamp(epoch)))
        run.step(("notify",))
    _, (_, (given_away,)) = run.vertex.give(frozenset(groups))["totals"]
    run.vertex.gave()
    run.step(("crash",))
    assert isinstance(run.vertex, Totals)
    left = run.vertex.totals.columns.as_rows()
    assert left == {key: 2 for key in range(200) if key_group(key, KEY_GROUPS) not in groups}
    assert sorted(given_away.column(0).to_pylist()) == [key for key in range(200) if key not in left]
