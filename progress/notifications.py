"""Pending notifications of one replica of one vertex (Naiad, sections 2.2 and 2.3).

A notification waits for its *guarantee* time: `on_notify(guarantee)` may run when, in one view, no f of the input frontier is <=
guarantee and no p of the notify frontier is < guarantee. Its *capability* is the time at which the callback may still send; None means
that it may not send. An old view is safe: what can still appear is bounded below by it.
"""

from __future__ import annotations

from typing import NamedTuple

from rayad.progress.errors import InternalError
from rayad.progress.job_tracker import View
from rayad.progress.timestamp import Timestamp
from rayad.progress.waiting_times import WaitingTimes


class Notification(NamedTuple):
    """A callback that is due: what it waited for, and the time at which it may send (None: it may not)."""

    guarantee: Timestamp
    capability: Timestamp | None


class Notificator:
    """The requests of one replica that have not been delivered.

    >>> pending = Notificator()
    >>> pending.request(Timestamp(3), Timestamp(3)), pending.request(Timestamp(3), Timestamp(3))
    (True, False)
    >>> pending.deliverable(View((Timestamp(3),), (Timestamp(3),)))
    []
    >>> pending.deliverable(View((Timestamp(4),), (Timestamp(3),)))
    [Notification(guarantee=Timestamp(3), capability=Timestamp(3))]
    """

    __slots__ = ("_by_guarantee", "_count", "_times")

    def __init__(self) -> None:
        self._count = 0
        self._by_guarantee: dict[Timestamp, list[Timestamp | None]] = {}
        self._times = WaitingTimes()  # the guarantees

    def request(self, guarantee: Timestamp, capability: Timestamp | None) -> bool:
        """Ask for a notification. False if the same pair is pending already: it will be delivered once."""
        capabilities = self._by_guarantee.get(guarantee)
        if capabilities is None:
            self._by_guarantee[guarantee] = [capability]
            self._count += 1
            self._times.add(guarantee)
            return True
        if capability in capabilities:
            return False
        capabilities.append(capability)
        self._count += 1
        return True

    @property
    def pending_count(self) -> int:
        """How many notifications are pending."""
        return self._count

    def __len__(self) -> int:
        return self._count

    def pending(self) -> tuple[Notification, ...]:
        """All pending notifications, in sort key order; what a snapshot keeps."""
        return tuple(Notification(time, capability) for time in self._times for capability in self._by_guarantee[time])

    def deliverable(self, view: View, sequential: bool = False) -> list[Notification]:
        """Take out the notifications that may run under `view`, in sort key order.

        With `sequential=True` a time must also have no lexicographically smaller one ahead of it: no element of the input frontier, and
        no other element of the notify frontier, may have a smaller sort key.
        """
        if not self._by_guarantee:
            return []
        if sequential:
            return self._next_in_order(view)
        taken = self._times.take_below(view.input_frontier, view.notify_frontier)
        return [notification for time in taken for notification in self._delivered(time)]

    def _next_in_order(self, view: View) -> list[Notification]:
        """Whatever blocks one blocks every one with a larger sort key."""
        inputs, pending = view.input_frontier, view.notify_frontier
        due: list[Notification] = []
        while (time := self._times.first()) is not None:
            if any(front <= time for front in inputs) or any(front <= time and front != time for front in pending):
                break
            if _has_smaller(inputs, pending, time.sort_key()):
                break
            due += self._delivered(self._times.take_first())
        return due

    def next_by_input(self, view: View) -> list[Notification]:
        """Take out the notifications of the smallest pending time, if no input can bring that time any more; else none.

        For a vertex outside loops whose replicas share nothing: there no output comes back as input, so pending notifications of
        other replicas cannot result in anything here. One time at a call: its callback may ask for another time before the next one.
        """
        time = self._times.first()
        if time is None or any(front <= time for front in view.input_frontier):
            return []
        return self._delivered(self._times.take_first())

    def _delivered(self, time: Timestamp) -> list[Notification]:
        capabilities = self._by_guarantee.pop(time)
        self._count -= len(capabilities)
        return [Notification(time, capability) for capability in capabilities]

    def check_invariants(self) -> None:
        """Raise InternalError unless the indexes agree."""
        if list(self._times) != sorted(self._by_guarantee, key=Timestamp.sort_key):
            raise InternalError(f"{list(self._times)} are not exactly the pending times {list(self._by_guarantee)}")
        self._times.check_invariants()
        if self._count != sum(map(len, self._by_guarantee.values())):
            raise InternalError(f"{self._count} notifications are counted, there are {self._by_guarantee}")


def _has_smaller(inputs: tuple[Timestamp, ...], pending: tuple[Timestamp, ...], key: tuple[int, ...]) -> bool:
    """Is some frontier element lexicographically smaller than `key`?"""
    return any(front.sort_key() < key for front in inputs) or any(front.sort_key() < key for front in pending)
