"""A sink that commits with each snapshot, and what its readers see: checked after every commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import rayad as rd
from rayad.dataflow.items import CollectSink
from tests.programs.model import canonical


class Shelf:
    """The records that readers of one sink see. It outlives jobs and drivers.

    Args:
        expected: all records that they may ever see; None: not known.
        is_published: whether a snapshot of that number is in the store.
        is_damaged: whether a file of it was damaged.
        is_whole: whether a job could resume from it.
    """

    def __init__(
        self,
        name: str,
        expected: Counter[str] | None,
        is_published: Callable[[int], bool],
        is_damaged: Callable[[int], bool],
        is_whole: Callable[[int], bool],
    ) -> None:
        self.name = name
        self.expected = expected
        self.commits: dict[int, list[Any]] = {}
        self.voided: set[int] = set()
        self.failing = 0
        self.failing_late = False
        self.on_failed: Callable[[], None] = lambda: None
        self.seen: Counter[str] = Counter()
        self._is_published = is_published
        self._is_damaged = is_damaged
        self._is_whole = is_whole

    def commit(self, number: int, staged: Sequence[Any]) -> list[Any]:
        """Show the records of a snapshot; gives all records that are shown."""
        if number in self.voided:
            raise RuntimeError(f"commit {number} is void: the job resumed from an older snapshot")
        if self.failing and not self.failing_late:
            self._fail()
        items = [item for part in staged for item in part]
        if items and number not in self.commits and not (self._is_published(number) or self._is_damaged(number)):
            raise AssertionError(f"{self.name}: commit {number} shows what no published snapshot holds")
        if number not in self.commits and number < max(self.commits, default=0):  # a replaced job may make one again
            raise AssertionError(f"{self.name}: commit {number} after {max(self.commits)}")
        shown = _canonical(items)
        before = self.commits.get(number)
        if before is not None and _canonical(before) != shown:
            raise AssertionError(f"{self.name}: commit {number} was made with {len(before)} items, and again with {len(items)} others")
        if before is None:
            self.commits[number] = items
            self.seen += shown
            self.check()
        if self.failing:
            self._fail()
        return [item for commit in self.commits.values() for item in commit]

    def check(self) -> None:
        """Check that readers see no record twice, and only records of the program."""
        if self.expected is not None and not self.seen <= self.expected:
            raise AssertionError(f"{self.name}: readers see too much: {sorted((self.seen - self.expected).elements())[:8]}")

    def roll_back(self, last: int, first_new: int) -> None:
        """Take back the commits after a snapshot."""
        for number in [n for n in self.commits if n > last]:
            if self._is_whole(number):
                raise AssertionError(f"{self.name}: whole snapshot {number} is taken back to {last}")
            self.seen -= _canonical(self.commits.pop(number))
        self.voided.update(range(last + 1, first_new))

    def _fail(self) -> None:
        self.failing -= 1
        self.on_failed()
        raise OSError("the sink's server does not answer (simulated)")


def _canonical(items: Sequence[Any]) -> Counter[str]:
    return canonical((time, row) for time, batch in items for row in rd.to_rows(batch))


class ShelfSink(CollectSink):
    """``collect()`` that shows its results with each snapshot."""

    commits = True

    def __init__(self, shelf: Shelf, *, columnar: bool) -> None:
        super().__init__(columnar=columnar)
        self.shelf = shelf

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        return self.shelf.commit(snapshot, staged)

    def roll_back(self, last: int, first_new: int) -> None:
        self.shelf.roll_back(last, first_new)

    def identity(self) -> str:
        return self.shelf.name

    def adopt(self, identity: str) -> None:
        if identity != self.shelf.name:
            raise AssertionError(f"sink {self.shelf.name!r} was told to continue as {identity!r}")

    def abort(self) -> None:
        if self.shelf.commits and any(self.shelf.commits.values()):
            raise AssertionError(f"{self.shelf.name}: told to abort although a snapshot is complete")
