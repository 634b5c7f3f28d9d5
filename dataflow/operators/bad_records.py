"""Records on which the user's function fails are set aside, and the others go on: ``on_error="skip"``.

Three steps that run in one process::

    batch ──> Tried: calls the function ──> Good: what came out, and the operator's results
                                       └──> Bad: the records that failed, ``stream.errors``

Each record is given to a function of records once, also in a batch with errors. Bad records are ordinary records of their time: what is
made of them is in snapshots, and counted exactly once, as all else is. ``max_errors`` is a vertex of one replica that counts them.

An error of Rayad's own is no error of a record, but for one that does not fit ``schema=``, and a MemoryError is none either: they end the
job as without ``on_error``.

A record whose call ends the process raises nothing. Where ``after_crashes`` is given, :class:`Tried` runs in a process of its own after
so many ends (``actors/host/isolated.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import pyarrow as pa

from rayad.dataflow.operators.in_schema import SchemaMismatch
from rayad.dataflow.operators.map_batches import as_batch
from rayad.dataflow.operators.stateless import Element, PerRecord
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError, RayadError, Timestamp, arguments, say, show

OnError = Literal["raise", "skip"]


class Outcome(list[Any]):
    """What :class:`Tried` gives of a batch in which something failed: the bad records; ``good`` is what came out of the others."""

    __slots__ = ("good",)

    def __init__(self, good: Any, bad: list[Any]) -> None:
        super().__init__(bad)
        self.good = good


def good_of(batch: Any) -> Any:
    """What came out of the records that did not fail."""
    return batch.good if type(batch) is Outcome else batch


@dataclass(frozen=True, slots=True)
class SetAside:
    """How many records an operator has set aside in a replica since that started, and what the last one failed with."""

    operator: str
    line: str
    count: int
    error: str


@dataclass(slots=True)
class Tried(Element):
    """A step with a function of the user, each failure of which is one record's.

    Args:
        element: the step.
        operator, line: the operator's name, and the user's line.
        after_crashes: after so many ends of its process in a row it runs in one of its own; None: never.
        set_aside: what has been; None: nothing. Any thread may read it.
    """

    element: Element
    operator: str = ""
    line: str = ""
    after_crashes: int | None = None
    set_aside: SetAside | None = None

    def for_replica(self) -> Tried:
        return Tried(self.element.for_replica(), self.operator, self.line, self.after_crashes)

    def isolated_after(self, ended: int) -> bool:
        """Whether it runs in a process of its own when the replica's has ended so often in a row."""
        return self.after_crashes is not None and ended >= self.after_crashes

    @property
    def base(self) -> str:  # type: ignore[override]  # that of the step
        return self.element.base

    @property
    def schema_said(self) -> pa.Schema | None:
        return self.element.schema_said

    def rows_because(self, schema: pa.Schema) -> str | None:
        return self.element.rows_because(schema)

    def warm_up(self) -> None:
        self.element.warm_up()

    def close(self) -> None:
        self.element.close()

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return self.element.schema_of(schema)

    def apply(self, batch: Any) -> Any:
        element = self.element
        good, bad = self._each(element, to_rows(batch)) if isinstance(element, PerRecord) else self._whole(batch)
        self.count(bad)
        return Outcome(good, bad) if bad else good

    def count(self, bad: list[Any]) -> None:
        """These have been set aside."""
        if bad:
            before = self.set_aside.count if self.set_aside is not None else 0
            self.set_aside = SetAside(self.operator, self.line, before + len(bad), bad[-1]["error"])

    def _each(self, element: PerRecord, rows: list[Any]) -> tuple[Any, list[Any]]:
        good, failed = element.outcome(rows)
        return good, [self.bad(rows[at], error) for at, error in failed]

    def _whole(self, batch: Any) -> tuple[Any, list[Any]]:
        """A function of batches: after an error it gets the records one by one; a step of ours gets halves, and halves of halves."""
        if len(batch) == 1:
            return self._alone(batch)
        try:
            return self.element.apply(batch), []
        except Exception as error:  # which of the records it was, the parts tell
            if _of_no_record(error):
                raise
        pieces: list[Any] = []
        bad: list[Any] = []
        for part in _halves(batch) if self.element.can_repeat else ones(batch):
            good, more = self._whole(part) if len(part) > 1 else self._alone(part)
            pieces.append(good)
            bad += more
        return joined(pieces), bad

    def _alone(self, one: Any) -> tuple[Any, list[Any]]:
        try:
            return self.element.apply(one), []
        except Exception as error:
            if _of_no_record(error):
                raise
            return [], [self.bad(to_rows(one)[0], error)]

    def bad(self, row: Any, error: Exception | str) -> dict[str, Any]:
        """What is told of a record that is set aside."""
        told = error if isinstance(error, str) else f"{type(error).__name__}: {say(error)}"
        return {"record": row, "error": told, "operator": self.operator, "line": self.line}


def _of_no_record(error: Exception) -> bool:
    """Whether it ends the job also where records are set aside."""
    return isinstance(error, (RayadError, MemoryError)) and not isinstance(error, SchemaMismatch)


class Good(Element):
    """What came out of :class:`Tried`, which says of what columns that is."""

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        return schema

    def apply(self, batch: Any) -> Any:
        return good_of(batch)


class Bad(Element):
    """The records that failed in :class:`Tried`."""

    def apply(self, batch: Any) -> Any:
        return list(batch) if type(batch) is Outcome else []


def ones(batch: Any) -> Iterator[Any]:
    """A batch as batches of one record."""
    for at in range(len(batch)):
        yield _part(batch, at, at + 1)


def _halves(batch: Any) -> Iterator[Any]:
    middle = len(batch) // 2
    yield _part(batch, 0, middle)
    yield _part(batch, middle, len(batch))


def _part(batch: Any, start: int, end: int) -> Any:
    return batch.slice(start, end - start) if isinstance(batch, pa.RecordBatch) else batch[start:end]


def joined(pieces: list[Any]) -> Any:
    """Batches as one."""
    pieces = [piece for piece in pieces if len(piece)]
    if pieces and all(isinstance(piece, pa.RecordBatch) and piece.schema == pieces[0].schema for piece in pieces):
        return as_batch(pa.Table.from_batches(pieces))
    return list(chain.from_iterable(map(to_rows, pieces)))


class CountErrors(Vertex):
    """Ends the job when an operator has set aside more than so many records. Its count is in the snapshots."""

    def __init__(self, errors_max: int) -> None:
        self.errors_max = errors_max
        self.count = 0

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows = to_rows(batch)
        self.count += len(rows)
        if self.count > self.errors_max:
            last = rows[-1]
            raise DataflowError(
                f"{last['operator']!r} ({last['line']}) has set aside {self.count:,} records, and max_errors={self.errors_max:,}; the "
                f"last: {last['error']}, on record {show(last['record'], 120)}"
            )

    def checkpoint(self) -> Any:
        return self.count

    def restore(self, state: Any) -> None:
        self.count = state


class MakeCountErrors:
    """A picklable factory."""

    def __init__(self, errors_max: int) -> None:
        self.errors_max = errors_max

    def __call__(self) -> Vertex:
        return CountErrors(self.errors_max)


def check_on_error(base: str, on_error: Any, errors_max: Any, after_crashes: Any = None) -> OnError:
    """``on_error`` of an operator. Raises DataflowError for another value, and for ``max_errors`` or ``after_crashes`` where nothing is set
    aside."""
    arguments.choice(on_error, f"{base}: on_error", "raise", "skip")
    if after_crashes is not None:
        if on_error == "raise":
            raise DataflowError(
                f"{base}: after_crashes={show(after_crashes, 40)} is for on_error='skip'; with 'raise' no record is set aside"
            )
        arguments.whole(after_crashes, f"{base}: after_crashes, how often the process may end,", least=1)
    if errors_max is not None:
        if on_error == "raise":
            raise DataflowError(
                f"{base}: max_errors={show(errors_max, 40)} is for on_error='skip'; with 'raise' the first error ends the job"
            )
        arguments.whole(errors_max, f"{base}: max_errors, a number of records,", least=0)
    return on_error  # type: ignore[no-any-return]


def function_of(element: Any) -> Any:
    """The step that has the user's function: ``element``, or the one that it tries."""
    return element.element if isinstance(element, Tried) else element


__all__ = [
    "Bad",
    "CountErrors",
    "Good",
    "MakeCountErrors",
    "OnError",
    "Outcome",
    "SetAside",
    "Tried",
    "check_on_error",
    "function_of",
    "good_of",
    "joined",
    "ones",
]
