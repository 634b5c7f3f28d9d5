"""The coordinator's table of long calls has one writer; every interleaving with a change of layout is tried."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from rayad.actors.coordinator.long_calls import LongCalls

Step = Callable[[], None]


def orders(ours: int, theirs: int) -> Iterator[list[int]]:
    """Every order in which so many steps of two threads can happen."""
    for places in itertools.combinations(range(ours + theirs), ours):
        yield [0 if place in places else 1 for place in range(ours + theirs)]


class Job:
    """A running replica, and a new one whose change is given up: its actor is killed, which ends its call."""

    def __init__(self) -> None:
        self.calls = LongCalls()
        self.calls.post("old", "v0.0", None)
        self.over: set[str] = set()
        self.failed: list[str] = []
        self.newcomers: set[str] = {"v0.1"}
        self.ready: list[str] = []

    def change(self) -> list[Step]:
        """The thread that leads the change, by what it does at once."""
        return [
            lambda: self.calls.post("new", "v0.1", None),
            lambda: self.calls.forget({"v0.1"}),
            lambda: self.over.add("new"),  # killed
            lambda: self.newcomers.clear(),
        ]

    def look(self) -> list[Step]:
        """One look of the coordinator's thread."""

        def begin() -> None:
            self.calls.take_over()

        def wait() -> None:
            self.ready = [ref for ref in self.calls.refs() if ref in self.over]

        def end() -> None:
            for ref in self.ready:
                ended = self.calls.ended(ref)
                if ended is not None and ended[0] not in self.newcomers:
                    self.failed.append(ended[0])

        return [begin, wait, end]


def test_no_interleaving_takes_a_released_new_replica_for_a_failure() -> None:
    """Regression: the change of layout modified ``_runs`` while the coordinator's thread iterated over it: a RuntimeError, or a released
    new replica counted as a failure of the job."""
    tried = 0
    for looks in (1, 2):
        for order in orders(4, 3 * looks):
            job = Job()
            threads = [iter(job.change()), iter([step for _ in range(looks) for step in job.look()])]
            for which in order:
                next(threads[which])()
            for step in job.look():
                step()
            assert job.failed == []
            assert job.calls.names() == {"v0.0"}
            tried += 1
    assert tried == 35 + 210


def test_a_replica_that_dies_by_itself_is_a_failure() -> None:
    job = Job()
    job.over.add("old")
    for step in job.look():
        step()
    assert job.failed == ["v0.0"]


def test_a_table_does_not_change_while_it_is_iterated() -> None:
    calls = LongCalls()
    calls.post("a", "v0.0", 1)
    calls.take_over()
    refs, names = calls.refs(), calls.names()
    calls.post("b", "v0.1", 2)
    calls.forget(["v0.0"])
    assert (calls.refs(), calls.names(), refs, names) == (["a"], {"v0.0"}, ["a"], {"v0.0"})
    assert calls.ended("a") is None
    assert calls.ended("b") == ("v0.1", 2)
    calls.post("c", "v0.2", 3)
    calls.clear()
    assert not calls
