"""Times as numbers beside the rows of a join in columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from rayad.progress import Timestamp


class NumbersOfTimes(Protocol):
    """Numbers that stand for times."""

    listed: list[Timestamp] | None
    """The time of each number; None: a number says it by itself, so that it is the same for all replicas."""

    def number(self, time: Timestamp) -> int:
        """Of a time, which may be new."""

    def time(self, number: int) -> Timestamp:
        """Of a number."""

    def upper(self, time: Timestamp, then: Any) -> tuple[list[Timestamp], Any]:
        """The least upper bounds of a time and those of these numbers, and which of them is that of each number; None: there is one."""

    def in_epochs_until(self, epoch: int, numbers: Any) -> Any:
        """Which of these numbers are of times in epochs up to this one, as a mask."""


class EpochNumbers(NumbersOfTimes):
    """Outside of loops: a time is its epoch.

    >>> EpochNumbers().upper(Timestamp(4), np.array([5, 1, 4, 5]))
    ([Timestamp(4), Timestamp(5)], array([1, 0, 0, 1]))
    """

    listed = None

    def number(self, time: Timestamp) -> int:
        return time.epoch

    def time(self, number: int) -> Timestamp:
        return Timestamp(number)

    def upper(self, time: Timestamp, then: Any) -> tuple[list[Timestamp], Any]:
        last = int(then.max(initial=0))
        if last <= time.epoch:
            return [time], None
        if then.min() == last:
            return [Timestamp(last)], None
        found, which = np.unique(np.maximum(then, time.epoch), return_inverse=True)
        return list(map(Timestamp, found.tolist())), which

    def in_epochs_until(self, epoch: int, numbers: Any) -> Any:
        return numbers <= epoch


class ListedTimes(NumbersOfTimes):
    """In loops: a replica numbers its times as they come.

    Args:
        times: those that it knows.
    """

    def __init__(self, times: Iterable[Timestamp] = ()) -> None:
        self.listed: list[Timestamp] = []
        self._numbers: dict[Timestamp, int] = {}
        for time in times:
            self.number(time)

    def number(self, time: Timestamp) -> int:
        number = self._numbers.get(time)
        if number is None:
            number = self._numbers[time] = len(self.listed)
            self.listed.append(time)
        return number

    def time(self, number: int) -> Timestamp:
        return self.listed[number]

    def upper(self, time: Timestamp, then: Any) -> tuple[list[Timestamp], Any]:
        counts = np.bincount(then)
        upper: dict[Timestamp, list[int]] = {}
        for number in np.flatnonzero(counts).tolist():
            upper.setdefault(time.join(self.listed[number]), []).append(number)
        if len(upper) == 1:
            return list(upper), None
        which = np.zeros(len(counts), np.int64)
        for i, numbers in enumerate(upper.values()):
            which[numbers] = i
        return list(upper), which[then]

    def in_epochs_until(self, epoch: int, numbers: Any) -> Any:
        return np.array([time.epoch <= epoch for time in self.listed], np.bool_)[numbers]


__all__ = ["EpochNumbers", "ListedTimes", "NumbersOfTimes"]
