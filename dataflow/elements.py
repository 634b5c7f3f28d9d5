"""Stateless operators: functions from a batch to a batch, run inside a neighbour's process.

Each is a small picklable object with ``apply(batch) -> batch``. Row operators take columnar batches by turning them into Python
objects first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rayad.dataflow.columnar import to_rows
from rayad.progress import DataflowError


class Element(ABC):
    """One stateless step."""

    @abstractmethod
    def apply(self, batch: Any) -> Any:
        """The records that come out of a batch."""

    def warm_up(self) -> None:
        """Called once in the replica while the job starts: import what the first batch would otherwise wait for."""
        return

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


@dataclass(slots=True)
class FlatMap(Element):
    """All records of ``f(record)`` for each record."""

    function: Callable[[Any], Iterable[Any]]

    def apply(self, batch: Any) -> Any:
        function = self.function
        return [out for row in to_rows(batch) for out in function(row)]


@dataclass(slots=True)
class Filter(Element):
    """The records for which ``f(record)`` holds."""

    function: Callable[[Any], Any]

    def apply(self, batch: Any) -> Any:
        return list(filter(self.function, to_rows(batch)))


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
