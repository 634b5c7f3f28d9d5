"""The algebra of path summaries, against evaluation on times."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayad.progress import Antichain, DataflowError, DepthError, PathSummary, Timestamp
from tests.progress.strategies import composable, summary_chains, summary_pairs, times

Result = Timestamp | None


def at_most(left: Result, right: Result) -> bool:
    """`left <= right`, where nothing is infinitely late."""
    return right is None or (left is not None and left <= right)


def samples(depth: int) -> list[Timestamp]:
    """Times that tell summaries apart: their constants and bounds are small, 40 stands for "as large as you like"."""
    return [Timestamp(1, counters) for counters in product((0, 1, 2, 3, 4, 5, 40), repeat=depth)]


@given(summary_chains(2), st.data())
def test_composition_is_what_happens_one_after_the_other(chain: list[PathSummary], data: st.DataObject) -> None:
    first, second = chain
    time = data.draw(times(first.source_depth, largest=6))
    middle = first.results_in(time)
    composed = first.followed_by(second)
    assert (composed and composed.results_in(time)) == (middle and second.results_in(middle))


@given(summary_chains(3))
def test_composition_is_associative(chain: list[PathSummary]) -> None:
    a, b, c = chain
    ab, bc = a.followed_by(b), b.followed_by(c)
    assert (ab and ab.followed_by(c)) == (bc and a.followed_by(bc))


@given(summary_chains(1))
def test_identity_is_neutral(chain: list[PathSummary]) -> None:
    (a,) = chain
    expected = None if a.is_empty else a
    assert PathSummary.identity(a.source_depth).followed_by(a) == expected
    assert a.followed_by(PathSummary.identity(a.target_depth)) == expected


@given(summary_chains(2))
def test_composition_is_none_exactly_if_nothing_results(chain: list[PathSummary]) -> None:
    first, second = chain
    composed = first.followed_by(second)
    results = [composed and composed.results_in(time) for time in samples(first.source_depth)]
    assert (composed is None) == all(result is None for result in results)


@given(summary_pairs())
@settings(max_examples=300)
def test_order_is_sound_and_complete(pair: tuple[PathSummary, PathSummary]) -> None:
    a, b = pair
    pointwise = all(at_most(a.results_in(time), b.results_in(time)) for time in samples(a.source_depth))
    assert (a <= b) == pointwise


@given(summary_pairs())
def test_equal_functions_are_equal_summaries(pair: tuple[PathSummary, PathSummary]) -> None:
    a, b = pair
    assert (a == b) == all(a.results_in(time) == b.results_in(time) for time in samples(a.source_depth))
    assert (a <= b and b <= a) == (a == b)


@given(summary_pairs(), st.data())
def test_composition_respects_the_order(pair: tuple[PathSummary, PathSummary], data: st.DataObject) -> None:
    a, b = pair
    before = data.draw(composable(data.draw(st.integers(0, 2)), a.source_depth))
    for time in samples(before.source_depth):
        if a <= b:
            left, right = before.followed_by(a), before.followed_by(b)
            assert at_most(left and left.results_in(time), right and right.results_in(time))


@given(summary_pairs(monotone=True), st.data())
def test_monotone_summaries_are(pair: tuple[PathSummary, PathSummary], data: st.DataObject) -> None:
    summary, _ = pair
    assert summary.is_monotone
    early, other = data.draw(times(summary.source_depth, 6)), data.draw(times(summary.source_depth, 6))
    assert at_most(summary.results_in(early), summary.results_in(early.join(other)))


def test_a_bound_on_an_inner_loop_is_not_monotone() -> None:
    """Round 9 of an inner loop of 10 is dropped, but the later first round of the next outer round is not."""
    bounded = PathSummary.feedback(2, max_rounds=10)
    assert Timestamp(0, (1, 9)) <= Timestamp(0, (2, 0))
    assert bounded.results_in(Timestamp(0, (1, 9))) is None
    assert bounded.results_in(Timestamp(0, (2, 0))) == Timestamp(0, (2, 1))
    assert not bounded.is_monotone
    assert PathSummary.feedback_bound_below(2, 10) == PathSummary.feedback(2)


@given(summary_chains(1))
def test_strictly_advancing_means_that_no_time_reaches_itself(chain: list[PathSummary]) -> None:
    (summary,) = chain
    if summary.source_depth == summary.target_depth:
        returns = any(at_most(summary.results_in(time), time) and summary.results_in(time) for time in samples(summary.source_depth))
        assert summary.strictly_advances == (not returns)


@given(summary_pairs())
def test_antichain_of_summaries_keeps_the_pointwise_minimum(pair: tuple[PathSummary, PathSummary]) -> None:
    kept = Antichain(pair)
    for time in samples(pair[0].source_depth):
        every = Antichain(result for summary in pair if (result := summary.results_in(time)) is not None)
        least = Antichain(result for summary in kept if (result := summary.results_in(time)) is not None)
        assert every == least


def test_bounded_feedback_ends_after_its_rounds() -> None:
    step = PathSummary.feedback(1, max_rounds=3)
    seen = [Timestamp(5, (0,))]
    while (following := step.results_in(seen[-1])) is not None:
        seen.append(following)
    assert seen == [Timestamp(5, (0,)), Timestamp(5, (1,)), Timestamp(5, (2,))]


def test_a_time_of_another_depth_is_refused() -> None:
    with pytest.raises(DepthError, match=r"the path starts at depth 1, the time has depth 0"):
        PathSummary.feedback(1).results_in(Timestamp(1))
    with pytest.raises(DepthError, match="the first ends at depth 2, the second starts at another"):
        PathSummary.ingress(1).followed_by(PathSummary.feedback(1))
    with pytest.raises(DepthError, match="only paths between the same scopes can be compared"):
        _ = PathSummary.ingress(1) <= PathSummary.identity(1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PathSummary(1, 2),
        lambda: PathSummary(1, 0, increment=1),
        lambda: PathSummary(1, 1, increment=-1),
        lambda: PathSummary(1, 1, limits=((1, 3),)),
        lambda: PathSummary.egress(0),
        lambda: PathSummary.feedback(1, 0),
        lambda: PathSummary.feedback(0, 3),
    ],
)
def test_impossible_summaries_are_refused(build: object) -> None:
    with pytest.raises(DataflowError):
        build()  # type: ignore[operator]
