"""Credits never let more in flight than the window, and never stop a sender for ever."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.plane.credits import Grant, ReceiveWindow, SendWindow
from rayad.progress import ConfigError, InternalError, ProtocolError


@given(
    batches=st.integers(1, 6),
    size_max=st.integers(1, 100),
    sizes=st.lists(st.integers(0, 250), max_size=40),
    choices=st.lists(st.integers(0, 2), max_size=200),
)
def test_window_is_never_exceeded_and_everything_arrives(batches: int, size_max: int, sizes: list[int], choices: list[int]) -> None:
    """Sender and receiver on a link that delays both directions, FIFO: any order of steps, then the rest in a fixed order."""
    sender, receiver = SendWindow(batches, size_max), ReceiveWindow(batches, size_max)
    to_send, link, back = deque(sizes), deque[int](), deque[Grant]()
    consumed = []

    def send() -> bool:
        if not (to_send and sender.may_send()):
            return False
        size = to_send.popleft()
        before = sender.in_flight
        sender.on_send(size)
        link.append(size)
        assert sender.in_flight_batches <= batches
        assert before.bytes < size_max
        return True

    def consume() -> bool:
        if not link:
            return False
        consumed.append(link.popleft())
        grant = receiver.on_consumed(consumed[-1])
        if grant is not None:
            back.append(grant)
        return True

    def credit() -> bool:
        if not back:
            return False
        sender.on_credit(*back.popleft())
        return True

    steps = (send, consume, credit)
    for choice in choices:
        steps[choice]()
        sender.check_invariants()
    while any(step() for step in steps):
        sender.check_invariants()
    assert consumed == sizes, "a deadlock: nobody can move and something is left to send"
    rest = receiver.settle()
    if rest is not None:
        sender.on_credit(*rest)
    assert sender.in_flight == (0, 0)


@given(batches=st.integers(1, 20), size_max=st.integers(1, 1000), data=st.data())
def test_grants_are_lazy_but_never_later_than_half_a_window(batches: int, size_max: int, data: st.DataObject) -> None:
    receiver = ReceiveWindow(batches, size_max)
    for size in data.draw(st.lists(st.integers(0, 400), max_size=50)):
        grant = receiver.on_consumed(size)
        if grant is None:
            assert receiver.consumed_batches < max(1, batches // 2)
            assert receiver.consumed_bytes < max(1, size_max // 2)
        else:
            assert receiver.settle() is None


def test_a_batch_larger_than_the_window_goes_when_nothing_is_in_flight() -> None:
    window = SendWindow(4, 10)
    assert window.may_send()
    window.on_send(10**9)
    assert not window.may_send()
    grant = ReceiveWindow(4, 10).on_consumed(10**9)
    assert grant == (1, 10**9)
    window.on_credit(1, 10**9)
    assert window.may_send()


@pytest.mark.parametrize("credit", [(3, 30), (1, 31), (-1, 0), (0, -1), (2, 29)])
def test_an_impossible_credit_is_refused_and_changes_nothing(credit: tuple[int, int]) -> None:
    window = SendWindow(4, 100)
    window.on_send(10)
    window.on_send(20)
    with pytest.raises(ProtocolError, match="in flight"):
        window.on_credit(*credit)
    assert window.in_flight == (2, 30)


def test_the_error_of_a_repeated_grant_tells_the_values() -> None:
    window = SendWindow(4, 100)
    window.on_send(10)
    with pytest.raises(ProtocolError) as caught:
        window.on_credit(2, 20)
    assert str(caught.value) == (
        "a credit for 2 batches and 20 bytes, but in flight are 1 batches and 10 bytes: a receiver grants what it consumed, once; "
        "a grant was repeated or is of another channel"
    )


def test_windows_that_could_never_send_are_refused() -> None:
    for batches, size in [(0, 1), (1, 0)]:
        for kind in (SendWindow, ReceiveWindow):
            with pytest.raises(ConfigError, match="both must be at least 1"):
                kind(batches, size)
    with pytest.raises(InternalError):
        SendWindow(1, 1).on_send(-1)
    with pytest.raises(InternalError):
        ReceiveWindow(1, 1).on_consumed(-1)
