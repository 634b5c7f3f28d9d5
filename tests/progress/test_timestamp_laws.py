"""Timestamps are a lattice ordered pairwise, and their sort key extends the order."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.progress import DataflowError, DepthError, Timestamp
from rayad.progress.arguments import EPOCH_MAX
from tests.progress.strategies import times

pairs = st.integers(0, 3).flatmap(lambda depth: st.tuples(times(depth), times(depth)))
triples = st.integers(0, 3).flatmap(lambda depth: st.tuples(times(depth), times(depth), times(depth)))


@given(triples)
def test_order_is_a_partial_order(drawn: tuple[Timestamp, Timestamp, Timestamp]) -> None:
    a, b, c = drawn
    assert a <= a
    assert not (a <= b and b <= a) or a == b
    assert not (a <= b and b <= c) or a <= c


@given(pairs)
def test_operators_agree(drawn: tuple[Timestamp, Timestamp]) -> None:
    a, b = drawn
    assert (a <= b) == (a.epoch <= b.epoch and a.counters <= b.counters) == (b >= a) == a.less_equal(b)
    assert (a < b) == (a <= b and a != b) == (b > a) == a.less_than(b)
    assert (a == b) == (tuple(a) == tuple(b))
    assert a != b or hash(a) == hash(b)


@given(triples)
def test_join_and_meet_are_the_bounds(drawn: tuple[Timestamp, Timestamp, Timestamp]) -> None:
    a, b, c = drawn
    assert a <= a.join(b)
    assert b <= a.join(b)
    assert (a <= c and b <= c) == (a.join(b) <= c)
    assert (c <= a and c <= b) == (c <= a.meet(b))


@given(pairs)
def test_sort_key_extends_the_order(drawn: tuple[Timestamp, Timestamp]) -> None:
    a, b = drawn
    assert not a < b or a.sort_key() < b.sort_key()
    assert (a == b) == (a.sort_key() == b.sort_key())


@given(st.integers(0, 3).flatmap(times))
def test_entering_and_leaving_cancel(time: Timestamp) -> None:
    assert time.enter().leave() == time
    assert time.enter().next_round().leave() == time
    assert time.enter() < time.enter().next_round()
    assert time.enter().truncate(time.depth) == time
    assert time.truncate(0) == Timestamp(time.epoch)


@given(st.integers(0, 3).flatmap(times), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_time_pickles(time: Timestamp, protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(time, protocol))
    assert copy == time
    assert type(copy) is Timestamp


RULE = "it must be an int from 0 to 9223372036854775807"


@pytest.mark.parametrize(
    ("epoch", "counters", "message"),
    [
        (-1, (), f"Timestamp(epoch) is -1: {RULE}"),
        (True, (), f"Timestamp(epoch) is True: {RULE}"),
        (1.0, (), f"Timestamp(epoch) is 1.0: {RULE}"),
        (2**63, (), f"Timestamp(epoch) is 9223372036854775808: {RULE}"),
        (1, (0, -2), f"a loop counter of Timestamp(1, (0, -2)) is -2: {RULE}"),
        (1, (False,), f"a loop counter of Timestamp(1, (False,)) is False: {RULE}"),
        (1, (2**63,), f"a loop counter of Timestamp(1, (9223372036854775808,)) is 9223372036854775808: {RULE}"),
    ],
)
def test_wrong_parts_are_refused(epoch: int, counters: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataflowError) as caught:
        Timestamp(epoch, counters)
    assert str(caught.value) == message


def test_integers_of_numpy_are_integers() -> None:
    time = Timestamp(np.int64(3), (np.uint8(2), 1))  # type: ignore[arg-type]
    assert time == Timestamp(3, (2, 1))
    assert [type(part) for part in time.sort_key()] == [int] * 3
    assert Timestamp(EPOCH_MAX, (EPOCH_MAX,)).depth == 1


@pytest.mark.parametrize(
    "compare", [Timestamp.__le__, Timestamp.__lt__, Timestamp.__ge__, Timestamp.__gt__, Timestamp.join, Timestamp.meet]
)
def test_times_of_different_depth_are_not_compared(compare: object) -> None:
    with pytest.raises(DepthError, match=r"loop depths [01] and [01]; only times of the same scope can be compared"):
        compare(Timestamp(1), Timestamp(1, (0,)))  # type: ignore[operator]


@pytest.mark.parametrize("move", [Timestamp.leave, Timestamp.next_round, lambda time: time.truncate(1)])
def test_a_time_in_no_loop_cannot_leave_one(move: object) -> None:
    with pytest.raises(DataflowError, match=r"of \(4\)"):
        move(Timestamp(4))  # type: ignore[operator]


def test_repr_evaluates_to_the_same_time() -> None:
    assert repr(Timestamp(3, (0, 1))) == "Timestamp(3, (0, 1))"
    assert repr(Timestamp(3)) == "Timestamp(3)"
    assert eval(repr(Timestamp(3, (4,)))) == Timestamp(3, (4,))
