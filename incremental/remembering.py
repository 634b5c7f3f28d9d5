"""Functions of records whose results are kept: for those that do not give the same again, such as a model or a clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.records import as_record
from rayad.progress import DataflowError, Timestamp, show


class OfRecords(ABC):
    """A function of many records."""

    @abstractmethod
    def __call__(self, records: Sequence[Any]) -> Iterable[Iterable[Any]]:
        """The results of each, in their order."""

    def for_replica(self) -> OfRecords:
        """Called once in the replica: the function with what is made once for each replica."""
        return self


class Remembered(MomentVertex):
    """Calls the function when records come, and takes back what it gave then when they go. Records come as keys.

    Outside of loops: inside of one a record may be there in one round and not in another.

    Args:
        function: gives the results of each.
        what: for errors.
    """

    def __init__(self, function: OfRecords, what: str) -> None:
        super().__init__()
        self.given = KeyedDict()
        """By record: how often it is there, and what the function gave."""
        self._made = function
        self._function: OfRecords | None = None
        self._what = what

    def keeps(self) -> str:
        """See there."""
        return "what the function gave, by record"

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for a record that is removed and is not there."""
        out: list[tuple[Any, int]] = []
        with self.given.changing([record for record, _ in arrived[0]]) as given:
            for (record, _), weight in arrived[0].items():
                count = given[record][0] if record in given else 0
                if count + weight < 0:
                    raise DataflowError(
                        f"{self._what}: {show(record, 80)} was removed {-weight} times in epoch {time.epoch}, and was there {count} times: "
                        "what is removed must have been inserted"
                    )
            fresh = self._called([record for record, _ in arrived[0] if record not in given])
            for (record, _), weight in arrived[0].items():
                count, results = given[record] if record in given else (0, fresh[record])
                out += [(result, weight) for result in results]
                if count + weight:
                    given[record] = count + weight, results
                else:
                    del given[record]
        self.send_changes(time, out)

    def _called(self, records: list[Any]) -> dict[Any, tuple[Any, ...]]:
        """What the function gives, by record."""
        if not records:
            return {}
        if self._function is None:
            self._function = self._made.for_replica()
        return {record: tuple(map(as_record, results)) for record, results in zip(records, self._function(records), strict=True)}


class Each(OfRecords):
    """A function that gives several results of a record."""

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self._function = function

    def __call__(self, records: Sequence[Any]) -> Iterable[Iterable[Any]]:
        return map(self._function, records)


class One(OfRecords):
    """A function that gives one result of a record."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, records: Sequence[Any]) -> Iterable[Iterable[Any]]:
        return ([self._function(record)] for record in records)


class If(OfRecords):
    """A predicate, as a function that gives the record or nothing."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate

    def __call__(self, records: Sequence[Any]) -> Iterable[Iterable[Any]]:
        return ([record] if self._predicate(record) else [] for record in records)


__all__ = ["Each", "If", "OfRecords", "One", "Remembered"]
