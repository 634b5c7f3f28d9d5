"""When a replica may run a notification."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rayad.progress import Notification, Notificator, Timestamp, View
from tests.progress.simulation import minimal
from tests.progress.strategies import times


def t(epoch: int, *counters: int) -> Timestamp:
    return Timestamp(epoch, counters)


def due(*pairs: tuple[Timestamp, Timestamp | None]) -> list[Notification]:
    return [Notification(*pair) for pair in pairs]


def test_a_pair_is_delivered_once_and_then_may_be_requested_again() -> None:
    pending = Notificator()
    assert [pending.request(t(1), t(1)), pending.request(t(1), t(1)), pending.request(t(1), t(2)), pending.request(t(1), None)] == [
        True,
        False,
        True,
        True,
    ]
    assert (len(pending), pending.pending_count) == (3, 3)
    assert pending.deliverable(View((), (t(1),))) == due((t(1), t(1)), (t(1), t(2)), (t(1), None))
    assert pending.deliverable(View((), ())) == []
    assert pending.request(t(1), t(1))


def test_an_input_at_the_time_holds_it_back_and_one_after_it_does_not() -> None:
    pending = Notificator()
    pending.request(t(3), t(3))
    assert pending.deliverable(View((t(2),), (t(3),))) == []
    assert pending.deliverable(View((t(3),), (t(3),))) == []
    assert pending.deliverable(View((t(4),), (t(3),))) == due((t(3), t(3)))


def test_an_earlier_pending_time_of_any_replica_goes_first() -> None:
    pending = Notificator()
    pending.request(t(3), t(3))
    assert pending.deliverable(View((t(9),), (t(2),))) == []
    assert pending.deliverable(View((t(9),), (t(3),))) == due((t(3), t(3)))


def test_incomparable_times_run_together_unless_sequential() -> None:
    for sequential, expected in ((False, due((t(0, 5), t(0, 5)), (t(1, 2), t(1, 2)))), (True, due((t(0, 5), t(0, 5))))):
        pending = Notificator()
        pending.request(t(1, 2), t(1, 2))
        pending.request(t(0, 5), t(0, 5))
        assert pending.deliverable(View((t(2, 0),), (t(1, 2), t(0, 5))), sequential) == expected
        pending.check_invariants()


def test_sequential_waits_for_a_smaller_time_that_can_still_arrive() -> None:
    pending = Notificator()
    pending.request(t(1, 2), t(1, 2))
    assert pending.deliverable(View((t(0, 7),), (t(1, 2),)), sequential=True) == []
    assert pending.deliverable(View((t(1, 3),), (t(1, 2),)), sequential=True) == due((t(1, 2), t(1, 2)))


def test_a_replica_without_requests_gets_nothing() -> None:
    assert Notificator().deliverable(View((), ())) == []


requests = st.lists(st.tuples(times(1), st.none() | times(1)), max_size=8)
views = st.builds(lambda inputs, pending: View(tuple(minimal(inputs)), tuple(minimal(pending))), st.lists(times(1)), st.lists(times(1)))


@given(requests, views, st.booleans())
def test_due_notifications_follow_the_rule(asked: list[tuple[Timestamp, Timestamp | None]], view: View, sequential: bool) -> None:
    pending = Notificator()
    accepted = [pair for pair in asked if pending.request(*pair)]
    assert sorted(accepted, key=repr) == sorted(map(tuple, pending.pending()), key=repr)
    assert len(accepted) == len(set(asked)) == pending.pending_count

    def may_run(time: Timestamp) -> bool:
        allowed = not any(f <= time for f in view.input_frontier) and not any(p < time for p in view.notify_frontier)
        others = [f for f in (*view.input_frontier, *view.notify_frontier) if f != time]
        return allowed and (not sequential or not any(other.sort_key() < time.sort_key() for other in others))

    delivered = pending.deliverable(view, sequential)
    assert sorted(map(tuple, delivered), key=repr) == sorted((pair for pair in accepted if may_run(pair[0])), key=repr)
    assert [n.guarantee.sort_key() for n in delivered] == sorted(n.guarantee.sort_key() for n in delivered)
    assert set(map(tuple, pending.pending())) == set(accepted) - set(map(tuple, delivered))
    pending.check_invariants()


def test_by_input_alone_the_smallest_time_comes_first_and_one_at_a_time() -> None:
    pending = Notificator()
    for epoch in (5, 2, 9):
        pending.request(t(epoch), t(epoch))
    pending.request(t(2), None)
    assert len(pending) == 4
    blocked_by_a_sibling = View((t(6),), (t(0),))
    assert pending.next_by_input(View((t(2),), ())) == []
    assert pending.next_by_input(blocked_by_a_sibling) == due((t(2), t(2)), (t(2), None))
    pending.request(t(3), t(3))  # asked for by the one that ran
    assert pending.next_by_input(blocked_by_a_sibling) == due((t(3), t(3)))
    assert pending.next_by_input(blocked_by_a_sibling) == due((t(5), t(5)))
    assert pending.next_by_input(blocked_by_a_sibling) == []
    pending.check_invariants()
    assert pending.next_by_input(View((), (t(0),))) == due((t(9), t(9)))
    assert len(pending) == 0
    assert pending.next_by_input(View((), ())) == []
