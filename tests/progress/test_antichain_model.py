"""Antichains against the obvious definition of minimal elements."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.progress import (
    Antichain,
    Chain,
    ChangeBatch,
    InternalError,
    LeastIndex,
    MutableAntichain,
    Staircase,
    Timestamp,
    WaitingTimes,
)
from tests.progress.simulation import minimal
from tests.progress.strategies import times

changes = st.lists(st.tuples(times(1), st.integers(-2, 2)), max_size=30)


@given(st.lists(times(1)), times(1))
def test_antichain_keeps_the_minimal_elements(elements: list[Timestamp], probe: Timestamp) -> None:
    antichain: Antichain[Timestamp] = Antichain()
    for element in elements:
        was_covered = antichain.less_equal(element)
        assert antichain.insert(element) == (not was_covered)
        antichain.check_invariants()
    assert set(antichain) == minimal(elements)
    assert len(antichain) == len(minimal(elements))
    assert antichain.less_equal(probe) == any(element <= probe for element in elements)
    assert antichain.less_than(probe) == any(element < probe for element in elements)
    assert antichain == Antichain(reversed(elements))


@given(st.lists(times(1)), st.lists(times(1)))
def test_dominates_is_less_equal_for_every_element(left: list[Timestamp], right: list[Timestamp]) -> None:
    expected = all(any(low <= high for low in left) for high in right)
    assert Antichain(left).dominates(Antichain(right)) == expected


@given(changes, st.lists(st.integers(0, 5)))
def test_mutable_antichain_follows_its_counts(steps: list[tuple[Timestamp, int]], sizes: list[int]) -> None:
    follow(MutableAntichain(), steps, sizes)


@given(st.lists(st.tuples(times(0, largest=9), st.integers(-2, 2)), max_size=40), st.lists(st.integers(0, 5)))
def test_mutable_chain_does_the_same_for_a_total_order(steps: list[tuple[Timestamp, int]], sizes: list[int]) -> None:
    follow(Chain(sort_key=Timestamp.sort_key), steps, sizes)


many_changes = st.lists(st.tuples(times(1, largest=40) | times(1, largest=5), st.integers(-1, 2)), max_size=120)


@given(many_changes, st.lists(st.integers(0, 12), max_size=60))
def test_mutable_staircase_does_the_same_for_pairs_with_and_without_its_index(steps: list[tuple[Timestamp, int]], sizes: list[int]) -> None:
    follow(Staircase(), steps, sizes)


@given(st.lists(st.tuples(times(2, largest=3), st.integers(-2, 2)), max_size=40), st.lists(st.integers(0, 5)), times(2))
def test_a_staircase_indexed_from_its_first_element_on(steps: list[tuple[Timestamp, int]], sizes: list[int], probe: Timestamp) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rayad.progress.counted.staircase.SCANNED_MAX", 0)
        stairs: Staircase[Timestamp] = Staircase()
        follow(stairs, steps, sizes)
    assert stairs.less_equal(probe) == any(front <= probe for front in stairs.frontier)


def test_epochs_far_from_zero_and_far_apart_cost_a_staircase_no_more() -> None:
    stairs = Staircase((Timestamp(10**12 + (epoch << epoch), (100 - epoch,)), 1) for epoch in range(40))
    assert len(stairs.frontier) == 40
    assert stairs.update(Timestamp(0, (50,)), 1)[-1] == (Timestamp(0, (50,)), 1)
    stairs.check_invariants()
    stairs.update_many([(time, -count) for time, count in stairs.counts()])
    assert stairs.frontier == ()
    assert stairs.is_empty()


def test_a_staircase_forgets_what_has_gone() -> None:
    stairs = Staircase((Timestamp(epoch, (0,)), 1) for epoch in range(20))
    for _ in range(300):
        stairs.update(Timestamp(5, (7,)), 1)
        stairs.update(Timestamp(5, (7,)), -1)
    assert stairs._entries <= 65
    stairs.check_invariants()


small = st.none() | st.integers(0, 9)


@given(st.lists(st.tuples(st.integers(0, 700), small), max_size=60), st.integers(0, 700), small)
def test_the_index_finds_the_next_value_below_a_bound(steps: list[tuple[int, int | None]], start: int, bound: int | None) -> None:
    index: LeastIndex[int] = LeastIndex()
    model: dict[int, int] = {}
    for place, value in steps:
        if value is not None:
            index.put(place, value)
            model[place] = value
        elif place in model:
            index.remove(place)
            del model[place]
        index.check_invariants()
    fitting = [place for place, value in model.items() if place >= start and (bound is None or value < bound)]
    assert index.first_below(start, bound) == min(fitting, default=None)


@given(st.lists(times(1)), st.lists(times(1)), st.lists(times(1)))
def test_waiting_times_below_a_frontier_are_taken_in_order(
    added: list[Timestamp], frontier: list[Timestamp], ties: list[Timestamp]
) -> None:
    fronts, tied = minimal(frontier), minimal(ties)
    waiting = WaitingTimes(added)
    assert len(waiting) == len(set(added))
    assert list(waiting) == sorted(set(added), key=Timestamp.sort_key)
    assert waiting.first() == next(iter(waiting), None)
    free = {t for t in added if not any(f <= t for f in fronts) and not any(e < t for e in tied)}
    assert waiting.take_below(fronts, tied) == sorted(free, key=Timestamp.sort_key)
    waiting.check_invariants()
    assert set(waiting) == set(added) - free
    assert all((time in waiting) == (time not in free) for time in added)
    for time in added[::2]:
        waiting.discard(time)
        waiting.check_invariants()
    for time in added[::4]:
        waiting.add(time)
        waiting.check_invariants()
    left = sorted((set(added) - free - set(added[::2])) | set(added[::4]), key=Timestamp.sort_key)
    for time in left:
        assert waiting.take_first() == time
        waiting.check_invariants()
    assert len(waiting) == 0


def test_a_chain_forgets_what_has_gone() -> None:
    """Elements that come and go behind the frontier do not pile up."""
    chain = Chain([(Timestamp(0), 1)], sort_key=Timestamp.sort_key)
    for _ in range(500):
        chain.update(Timestamp(5), 1)
        chain.update(Timestamp(5), -1)
        assert len(chain._heap) <= 65
    chain.update_many([(Timestamp(0), -1), (Timestamp(1), 1)])
    assert chain.frontier == (Timestamp(1),)
    chain.check_invariants()


def follow(counted: MutableAntichain[Timestamp], steps: list[tuple[Timestamp, int]], sizes: list[int]) -> None:
    """Single and batched updates, negative counts included; the changes returned lead from one frontier to the next."""
    model: Counter[Timestamp] = Counter()
    while steps:
        size = sizes.pop() if sizes else 1
        batch, steps = steps[: max(size, 1)], steps[max(size, 1) :]
        before = Counter(counted.frontier)
        moved = counted.update(*batch[0]) if size == 0 else counted.update_many(batch)
        for time, delta in batch:
            model[time] += delta
        assert set(counted.frontier) == minimal(time for time, count in model.items() if count > 0)
        after = Counter(counted.frontier)
        assert {**after, **{time: after[time] for time in before}} == {
            time: before[time] + sum(delta for moving, delta in moved if moving == time) for time in {**before, **after}
        }
        assert len({time for time, _ in moved}) == len(moved)
        assert counted.is_empty() == (not any(model.values()))
        assert all(counted.count(time) == count for time, count in model.items())
        counted.check_invariants()


def test_a_negative_count_hides_nothing_else() -> None:
    counted = MutableAntichain([(Timestamp(1), -1), (Timestamp(2), 1)])
    assert counted.frontier == (Timestamp(2),)
    assert counted.update(Timestamp(1), 1) == []
    assert counted.update(Timestamp(1), 1) == [(Timestamp(2), -1), (Timestamp(1), 1)]


def test_broken_invariants_are_found() -> None:
    counted = MutableAntichain([(1, 1)])
    counted._counts[0] = 1
    with pytest.raises(InternalError, match=r"has frontier \(1,\), but the minimal positive elements are \{0\}"):
        counted.check_invariants()
    antichain = Antichain([1])
    antichain._elements = (1, 2)
    with pytest.raises(InternalError, match="comparable elements 1 and 2"):
        antichain.check_invariants()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2))))
def test_change_batch_sums_by_key(steps: list[tuple[str, int]]) -> None:
    batch = ChangeBatch(steps)
    model: Counter[str] = Counter()
    for key, delta in steps:
        model[key] += delta
    expected = {key: total for key, total in model.items() if total}
    assert (len(batch), batch.is_empty()) == (len(expected), not expected)
    assert dict(batch.drain()) == expected
    assert batch.drain() == []
