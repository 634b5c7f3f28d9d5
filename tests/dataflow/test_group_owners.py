"""Assignments of key-groups: balanced, moved as little as can be, and reached in as few steps as their size allows."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.dataflow.group_owners import Owners, even_owners, moves, owners_for, step_towards
from rayad.progress import ConfigError
from tests.thorough import examples


@st.composite
def changes(draw: st.DrawFn) -> tuple[Owners, int]:
    """An assignment, as even or as lopsided as it comes, and a number of replicas to change it to."""
    groups = draw(st.integers(1, 40))
    before = draw(st.integers(1, 7))
    owners = tuple(draw(st.lists(st.integers(0, before - 1), min_size=groups, max_size=groups)))
    return owners, draw(st.integers(1, min(groups, 7)))


def fewest_moves(owners: Owners, replicas: int) -> int:
    """By trying which replicas get one group more than the others."""
    least, larger = divmod(len(owners), replicas)
    sizes = Counter(owners)
    kept = [
        sum(min(sizes[replica], least + (replica in larger_ones)) for replica in range(replicas))
        for larger_ones in combinations(range(replicas), larger)
    ]
    return len(owners) - max(kept)


@examples(each_run=40, soak=100)
@given(st.integers(1, 300), st.data())
def test_a_job_begins_with_even_ranges(key_groups: int, data: st.DataObject) -> None:
    replicas = data.draw(st.integers(1, key_groups))
    owners = even_owners(replicas, key_groups)
    assert list(owners) == sorted(owners)
    sizes = Counter(owners)
    assert set(sizes) == set(range(replicas))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@examples(each_run=40, soak=100)
@given(changes())
def test_an_assignment_is_balanced_and_moves_the_fewest_groups(change: tuple[Owners, int]) -> None:
    owners, replicas = change
    after = owners_for(owners, replicas)
    sizes = Counter(after)
    assert len(after) == len(owners)
    assert set(sizes) == set(range(replicas))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert sum(a != b for a, b in zip(owners, after, strict=True)) == fewest_moves(owners, replicas)


def stretches(owners: Owners) -> int:
    """How many groups have another owner than the one before them."""
    return sum(a != b for a, b in pairwise(owners))


@pytest.mark.parametrize("key_groups", [60, 128, 256])
def test_groups_that_lie_side_by_side_go_together(key_groups: int) -> None:
    for before, after in permutations(range(1, 17), 2):
        owners = owners_for(even_owners(before, key_groups), after)
        assert stretches(owners) < 2 * max(before, after), (before, after)
    owners = even_owners(2, key_groups)
    for replicas in (3, 4, 8, 5, 6, 2, 7, 3, 4, 1, 2) * 3:
        owners = owners_for(owners, replicas)
        assert stretches(owners) <= 24


@examples(each_run=40, soak=100)
@given(changes())
def test_a_balanced_assignment_stays(change: tuple[Owners, int]) -> None:
    after = owners_for(*change)
    assert owners_for(after, change[1]) == after


@examples(each_run=40, soak=100)
@given(changes(), st.integers(1, 50))
def test_steps_reach_the_target_in_as_few_as_their_size_allows(change: tuple[Owners, int], groups: int) -> None:
    owners, replicas = change
    target = owners_for(owners, replicas)
    moved = sum(a != b for a, b in zip(owners, target, strict=True))
    steps = 0
    now = owners
    while now != target:
        following = step_towards(now, target, groups)
        changed = [group for group, (a, b) in enumerate(zip(now, following, strict=True)) if a != b]
        assert len(changed) == min(groups, moved - steps * groups)
        assert all(now[group] == owners[group] for group in changed), "a group moves once"
        assert all(following[group] == target[group] for group in changed), "straight to its owner"
        now, steps = following, steps + 1
    assert steps == -(-moved // groups)
    assert step_towards(now, target, groups) == now


@examples(each_run=40, soak=100)
@given(changes(), st.integers(1, 50))
def test_a_step_takes_of_every_pair_alike(change: tuple[Owners, int], groups: int) -> None:
    owners, replicas = change
    target = owners_for(owners, replicas)
    whole, step = moves(owners, target), moves(owners, step_towards(owners, target, groups))
    sizes = {pair: len(step.get(pair, ())) for pair in whole}
    unfinished = [sizes[pair] for pair in whole if sizes[pair] < len(whole[pair])]
    if unfinished:
        assert max(sizes.values()) - min(unfinished) <= 1


@examples(each_run=40, soak=100)
@given(changes())
def test_moves_name_every_group_that_changes_hands_once(change: tuple[Owners, int]) -> None:
    owners, replicas = change
    after = owners_for(owners, replicas)
    moved = list(owners)
    for (old, new), groups in moves(owners, after).items():
        assert old != new
        for group in groups:
            assert moved[group] == old
            moved[group] = new
    assert tuple(moved) == after


@pytest.mark.parametrize("replicas", [0, -1, 9])
def test_replicas_without_a_group_are_refused(replicas: int) -> None:
    with pytest.raises(ConfigError, match=f"^{replicas} replicas for 8 key-groups"):
        even_owners(replicas, 8)
    with pytest.raises(ConfigError, match=f"^{replicas} replicas for 8 key-groups"):
        owners_for((0,) * 8, replicas)


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        step_towards((0, 0), (0, 1), 0)
