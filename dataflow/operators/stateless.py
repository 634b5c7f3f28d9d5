"""Stateless operators: functions from a batch to a batch, run inside a neighbour's process.

Each is a small picklable object with ``apply(batch) -> batch``. Row operators take columnar batches by turning them into Python
objects first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.records.batches import no_rows, to_rows
from rayad.dataflow.records.calling import Whole, mapped, require_result
from rayad.progress import RayadError, Timestamp

GATHERED_BYTES_MAX = 64 << 20
"""How much of one time a sender gathers where there is no bound on its memory."""


class Gatherer(ABC):
    """Records that a step keeps back while its replica is busy, so that they leave in fewer, larger batches. One per step and replica.

    The runtime calls :meth:`flush` before it reports the progress of what was added: no time with records kept back counts as complete.
    """

    @property
    @abstractmethod
    def holding(self) -> bool:
        """Whether there is something to flush."""

    @abstractmethod
    def add(self, time: Timestamp, batch: Any) -> list[Any]:
        """Take a batch in; gives the batches of this time that leave at once."""

    def add_rows(self, time: Timestamp, rows: Iterable[Any]) -> list[Any]:
        """Add records that are made while they are iterated over."""
        return self.add(time, list(rows))

    @abstractmethod
    def flush(self) -> list[tuple[Timestamp, Any]]:
        """All that was kept back, as ``(time, batch)``; afterwards nothing is."""


class Element(ABC):
    """One stateless step."""

    @abstractmethod
    def apply(self, batch: Any) -> Any:
        """The records that come out of a batch."""

    def for_replica(self) -> Element:
        """Called once in the replica: the step as it runs there, with what is made once for each replica."""
        return self

    def warm_up(self) -> None:
        """Called once in the replica while the job starts: import what the first batch would otherwise wait for."""
        return

    def close(self) -> None:
        """Called once in the replica at its end, also after an error, of what :meth:`for_replica` gave."""
        return

    base: ClassVar[str] = ""
    """What a step that the user gives no name is called; for steps that may set records aside."""

    can_repeat: ClassVar[bool] = False
    """Whether :meth:`apply` may be called again with the same records: it calls no function of the user."""

    passes_on: ClassVar[bool] = False
    """Whether records leave as the objects that came."""

    not_repeatable: ClassVar[str] = ""
    """What else than the records the result depends on, so that a run after a failure gives others; empty where on nothing."""

    @property
    def schema_said(self) -> pa.Schema | None:
        """The columns of what comes out, whatever comes; None where nobody said."""
        return None

    gathers_rows: ClassVar[bool] = False
    """Whether :meth:`gatherer` gives one."""

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        """The records that come out of ``rows``, made one by one as they are taken. Steps in a row that define this run as one loop."""
        out: Iterable[Any] = to_rows(self.apply(list(rows)))
        return out

    def gatherer(self, bytes_max: int = GATHERED_BYTES_MAX) -> Gatherer | None:
        """Called once in the replica: what replaces :meth:`apply` there; None when each batch is handled alone. ``bytes_max``: what it
        keeps back of one time leaves when it is more than this, about."""
        return None

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        """The columns of what comes out where those of what comes are ``schema``; None where they are not known. DataflowError where the
        step does not go with them."""
        return schema if self.passes_on else None

    def rows_because(self, schema: pa.Schema) -> str | None:
        """Why columns of this schema become rows here; None where they do not, or it is not known."""
        return None

    def culprit(self, batch: Any) -> Any:
        """The first record on which :meth:`apply` fails, for the error message; None when it is not one record's fault."""
        for row in to_rows(batch):
            try:
                self.apply([row])
            except Exception:
                return row
        return None


def columns_given(step: Element, schema: pa.Schema) -> pa.Schema | None:
    """The columns of what a step gives, by running it on no rows of ``schema``; None where it gives rows, or it is not known."""
    nothing = no_rows(schema)
    out = None if nothing is None or step.rows_because(schema) is not None else step.apply(nothing)
    return out.schema if isinstance(out, pa.RecordBatch) else None


Failures = list[tuple[int, Exception]]
"""Positions of records, and the errors of the calls for them."""


class PerRecord(Element):
    """A step that calls the user's function for each record by itself. What is done with the results is apart from the calls."""

    @abstractmethod
    def call(self) -> Callable[[Any], Any]:
        """What is called with a record."""

    @abstractmethod
    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        """What comes out of ``rows``, for which the calls gave ``results``."""

    def rows_because(self, schema: pa.Schema) -> str | None:
        return "it calls a function for each record"

    def attempt(self, rows: list[Any]) -> tuple[list[Any], Failures]:
        """Call once for each record: the results of those that did not fail, in order, and the failures. Raises errors that are no
        record's: RayadError, MemoryError."""
        results: list[Any] = []
        failed: Failures = []
        calls = iter(map(self.call(), rows))
        while len(results) + len(failed) < len(rows):
            try:
                results.extend(calls)  # up to the first error; what was called before it stays
                if len(results) + len(failed) < len(rows):
                    raise StopIteration("raised by the function; next(iterator, default) raises none")
            except (RayadError, MemoryError):
                raise
            except Exception as error:
                failed.append((len(results) + len(failed), error))
        return results, failed

    def outcome(self, rows: list[Any]) -> tuple[Any, Failures]:
        """What comes out of the records that do not fail, and the failures, in order; as :meth:`attempt`."""
        results, failed = self.attempt(rows)
        if not failed:
            return self.gather(rows, results), []
        positions = {at for at, _ in failed}
        return self.gather([row for at, row in enumerate(rows) if at not in positions], results), failed


@dataclass(slots=True)
class Map(PerRecord):
    """``f(record)`` for each record."""

    base = "map"

    function: Callable[[Any], Any]
    is_seen: bool = False
    """Whether a result has been looked at: coroutines are refused."""

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        out = mapped(self.function, rows)
        if not self.is_seen:
            self._look(out)
        return out

    def call(self) -> Callable[[Any], Any]:
        return self.function

    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        if not self.is_seen:
            self._look(results)
        return results

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        if self.is_seen:
            return map(self.function, rows)
        return chain.from_iterable(map(self._first, rows))  # one by one until a result was looked at

    def _first(self, row: Any) -> tuple[Any]:
        out = (self.function(row),)
        if not self.is_seen:
            self._look(out)
        return out

    def _look(self, out: Sequence[Any]) -> None:
        if out:
            require_result(out[0], "map")
            self.is_seen = True


@dataclass(slots=True)
class FlatMap(PerRecord):
    """All records of ``f(record)`` for each record."""

    base = "flat_map"

    function: Callable[[Any], Iterable[Any]]

    def call(self) -> Callable[[Any], Any]:
        function = self.function
        return lambda row: list(function(row))

    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        return list(chain.from_iterable(results))

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        whole = Whole(rows)
        out = list(chain.from_iterable(map(self.function, whole)))
        if not whole.is_taken:
            for row in rows:  # once more, for the line in the traceback
                self.function(row)
            whole.check()
        return out

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        return chain.from_iterable(map(self.function, rows))


@dataclass(slots=True)
class Filter(PerRecord):
    """The records for which ``f(record)`` holds."""

    base = "filter"
    passes_on = True

    function: Callable[[Any], Any]
    is_seen: bool = False

    def call(self) -> Callable[[Any], Any]:
        return self._holds if not self.is_seen else self.function

    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        return list(compress(rows, results))

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        return list(compress(rows, mapped(self._holds if not self.is_seen else self.function, rows)))

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        return filter(self._holds if not self.is_seen else self.function, rows)

    def _holds(self, row: Any) -> Any:
        answer = self.function(row)
        if not self.is_seen:
            require_result(answer, "filter")
            self.is_seen = True
        return answer


@dataclass(slots=True)
class Same(Element):
    """The batch as it is."""

    passes_on = True

    def apply(self, batch: Any) -> Any:
        return batch

    def lazily(self, rows: Iterable[Any]) -> Iterable[Any]:
        return rows


@dataclass(slots=True)
class Inspect(PerRecord):
    """Calls ``f(record)`` and passes records on unchanged."""

    base = "inspect"
    passes_on = True

    function: Callable[[Any], Any]
    is_seen: bool = False

    def call(self) -> Callable[[Any], Any]:
        return self.function

    def gather(self, rows: list[Any], results: list[Any]) -> list[Any]:
        if results and not self.is_seen:
            require_result(results[0], "inspect")
            self.is_seen = True
        return rows

    def apply(self, batch: Any) -> Any:
        function, rows = self.function, to_rows(batch)
        if rows and not self.is_seen:
            require_result(function(rows[0]), "inspect")
            self.is_seen = True
            rows = rows[1:]
        for row in rows:
            function(row)
        return batch
