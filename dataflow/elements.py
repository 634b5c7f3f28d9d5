"""Stateless operators: functions from a batch to a batch, run inside a neighbour's process.

Each is a small picklable object with ``apply(batch) -> batch``. Row operators take columnar batches by turning them into Python
objects first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.columnar import to_rows
from rayad.progress import DataflowError, Timestamp


class Gatherer(ABC):
    """What a step holds back while its replica is busy, so that it leaves in fewer, larger batches. One per step and replica.

    The runtime calls :meth:`flush` before it reports the progress of whatever was added: nothing held back is ever thought complete.
    """

    @property
    @abstractmethod
    def holding(self) -> bool:
        """Whether there is something to flush."""

    @abstractmethod
    def add(self, time: Timestamp, batch: Any) -> list[Any]:
        """Take a batch in; gives the batches of this time that leave at once."""

    def add_rows(self, time: Timestamp, rows: Iterable[Any]) -> list[Any]:
        """The same with records that are made as they are taken."""
        return self.add(time, list(rows))

    @abstractmethod
    def flush(self) -> list[tuple[Timestamp, Any]]:
        """All that was held back, as ``(time, batch)``; then nothing is."""


class Element(ABC):
    """One stateless step."""

    @abstractmethod
    def apply(self, batch: Any) -> Any:
        """The records that come out of a batch."""

    def warm_up(self) -> None:
        """Called once in the replica while the job starts: import what the first batch would otherwise wait for."""
        return

    gathers_rows: ClassVar[bool] = False
    """Whether :meth:`gatherer` gives one."""

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        """The records that come out of ``rows``, made one by one as they are taken. Steps in a row that define this run as one loop."""
        out: Iterable[Any] = to_rows(self.apply(list(rows)))
        return out

    def gatherer(self) -> Gatherer | None:
        """Called once in the replica: what takes the place of :meth:`apply` there; None when each batch is done with alone."""
        return None

    def culprit(self, batch: Any) -> Any:
        """The first record on which :meth:`apply` fails, for the error message; None when it is not one record's fault."""
        for row in to_rows(batch):
            try:
                self.apply([row])
            except Exception:
                return row
        return None


@dataclass(slots=True)
class Map(Element):
    """``f(record)`` for each record."""

    function: Callable[[Any], Any]

    def apply(self, batch: Any) -> Any:
        return list(map(self.function, to_rows(batch)))

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        return map(self.function, rows)


@dataclass(slots=True)
class FlatMap(Element):
    """All records of ``f(record)`` for each record."""

    function: Callable[[Any], Iterable[Any]]

    def apply(self, batch: Any) -> Any:
        return list(chain.from_iterable(map(self.function, to_rows(batch))))

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        return chain.from_iterable(map(self.function, rows))


@dataclass(slots=True)
class Filter(Element):
    """The records for which ``f(record)`` holds."""

    function: Callable[[Any], Any]

    def apply(self, batch: Any) -> Any:
        return list(filter(self.function, to_rows(batch)))

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        return filter(self.function, rows)


@dataclass(slots=True)
class MapBatches(Element):
    """``f(batch)``: a list or RecordBatch (or Table) in, a list, RecordBatch or Table out."""

    function: Callable[[Any], Any]

    def apply(self, batch: Any) -> Any:
        out = self.function(batch)
        if isinstance(out, (list, pa.RecordBatch)):
            return out
        if isinstance(out, pa.Table):
            parts = out.combine_chunks().to_batches()
            return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=out.schema)
        if out is None:
            raise DataflowError("the function given to map_batches returned None; it must return a list, a RecordBatch or a Table")
        return list(out)

    def culprit(self, batch: Any) -> Any:
        return None


@dataclass(slots=True)
class Inspect(Element):
    """Calls ``f(record)`` and passes records on unchanged."""

    function: Callable[[Any], Any]

    def apply(self, batch: Any) -> Any:
        function = self.function
        for row in to_rows(batch):
            function(row)
        return batch
