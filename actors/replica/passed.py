"""Which epochs are complete at a vertex and all its replicas, by what one of them knows. Never ahead of the truth."""

from __future__ import annotations

from collections.abc import Iterable

from rayad.dataflow.operators.state.versions import LAST
from rayad.progress import Notification, View


def passed_of(view: View | None) -> int:
    """The last epoch that is complete at a vertex and all its replicas, as a view tells; -1: none, LAST: all.

    >>> from rayad.progress import Timestamp
    >>> passed_of(View((Timestamp(4),), (Timestamp(3),))), passed_of(View((), ())) == LAST, passed_of(None)
    (2, True, -1)
    """
    if view is None:
        return -1
    return min((time.epoch - 1 for time in (*view.input_frontier, *view.notify_frontier)), default=LAST)


def passed_here(view: View | None, pending: Iterable[Notification], *, sends_at_end: bool) -> int:
    """The last epoch that is complete at a replica, and at all other replicas of its vertex, as far as is known there.

    Args:
        pending: the notifications that it waits for.
        sends_at_end: whether it still changes its state when the input ends.
    """
    passed = passed_of(view)
    passed = min((each.guarantee.epoch - 1 for each in pending), default=passed) if passed >= 0 else passed
    if passed == LAST and sends_at_end:
        return view.end.epoch if view is not None and view.end is not None else -1
    return passed


__all__ = ["passed_here", "passed_of"]
