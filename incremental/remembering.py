"""A function of a record whose results are kept: for functions that do not give the same again, such as a model or a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.records import as_record
from rayad.progress import DataflowError, Timestamp, show


class Remembered(MomentVertex):
    """Calls the function when a record comes, and takes back what it gave then when the record goes. Records come as keys.

    Outside of loops: inside of one a record may be there in one round and not in another.

    Args:
        function: gives an iterable of results.
        what: for errors.
    """

    def __init__(self, function: Callable[[Any], Iterable[Any]], what: str) -> None:
        super().__init__()
        self.given = KeyedDict()
        """By record: how often it is there, and what the function gave."""
        self._function = function
        self._what = what

    def keeps(self) -> str:
        """See there."""
        return "what the function gave, by record"

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for a record that is removed and is not there."""
        out: list[tuple[Any, int]] = []
        with self.given.changing([record for record, _ in arrived[0]]) as given:
            for (record, _), weight in arrived[0].items():
                count, results = given.get(record, (0, None))
                if count + weight < 0:
                    raise DataflowError(
                        f"{self._what}: {show(record, 80)} was removed {-weight} times in epoch {time.epoch}, and was there {count} times: "
                        "what is removed must have been inserted"
                    )
                if results is None:
                    results = tuple(map(as_record, self._function(record)))
                out += [(result, weight) for result in results]
                if count + weight:
                    given[record] = count + weight, results
                else:
                    del given[record]
        self.send_changes(time, out)


class One:
    """A function that gives one result, as one that gives several."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, record: Any) -> list[Any]:
        return [self._function(record)]


class If:
    """A predicate, as a function that gives the record or nothing."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate

    def __call__(self, record: Any) -> list[Any]:
        return [record] if self._predicate(record) else []


__all__ = ["If", "One", "Remembered"]
