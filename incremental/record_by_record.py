"""What collections make of each record by itself: steps without state, and functions whose results are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import pyarrow.compute as pc

from rayad.dataflow.operators.map_batches import of_batches
from rayad.dataflow.operators.projections import OfFields, Select, Where, WithColumns
from rayad.dataflow.records.calling import checked_function
from rayad.dataflow.resources import Asked
from rayad.dataflow.streams.loops import Loop
from rayad.dataflow.streams.making import Make
from rayad.dataflow.streams.steps import stateless
from rayad.incremental import steps
from rayad.incremental.columns import steps as columns
from rayad.incremental.columns.of_batches import OfBatches, RememberedBatches
from rayad.incremental.remembering import Each, If, OfRecords, One, Remembered
from rayad.progress import DataflowError

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream
    from rayad.incremental.collection import KeyedCollection


class RecordByRecord(ABC):
    """The part of a collection that has functions of a record, or of many."""

    stream: Stream
    loops: tuple[Loop, ...]

    @abstractmethod
    def by_record(self) -> KeyedCollection:
        """Keyed by the whole record."""

    @abstractmethod
    def _made(self, stream: Stream) -> Self:
        """A collection of these changes, inside of the same loops."""

    @abstractmethod
    def _as_here(self, made: Self, projection: OfFields | None = None) -> Self:
        """``made``, whose records have the fields that they have here, or those that a projection makes of them."""

    def map(self, function: Callable[[Any], Any], *, remember: bool = False, name: str | None = None) -> Self:
        """``function(record)`` instead of each record; it gives the same for a removal as for the insertion.

        ``remember=True``: of one that does not (a model, a clock, a service) what it gave is kept while the record is there, and that is
        taken back when it goes. It is called once for equal records. Outside of loops.
        """
        made = checked_function(function, "map", "record")
        if remember:
            return self._remembered(One(made), "map", name)
        return self._made(self.stream.map(steps.Mapped(made), name=name))

    def filter(self, predicate: Callable[[Any], Any] | pc.Expression, *, remember: bool = False, name: str | None = None) -> Self:
        """The records for which ``predicate(record)`` is true; the predicate may be an expression over fields, as in :meth:`select`.
        ``remember`` as in :meth:`map`."""
        if isinstance(predicate, pc.Expression):
            return self._projected(Where(predicate), name)
        made = checked_function(predicate, "filter", "record")
        if remember:
            return self._remembered(If(made), "filter", name)
        return self._made(self.stream.filter(steps.Kept(made), name=name))

    def flat_map(self, function: Callable[[Any], Iterable[Any]], *, remember: bool = False, name: str | None = None) -> Self:
        """All that ``function(record)`` gives instead of each record. ``remember`` as in :meth:`map`."""
        made = checked_function(function, "flat_map", "record")
        if remember:
            return self._remembered(Each(made), "flat_map", name)
        return self._made(self.stream.flat_map(steps.FlatMapped(made), name=name))

    def map_batches(
        self,
        function: Callable[[Any], Any] | type[Any],
        *,
        batch_format: Literal["rows", "pyarrow", "numpy", "pandas", "polars"] | None = None,
        fn_constructor_args: tuple[Any, ...] = (),
        fn_constructor_kwargs: Mapping[str, Any] = MappingProxyType({}),
        remember: bool = False,
        name: str | None = None,
        **asked: Unpack[Asked],
    ) -> Self:
        """``function(batch)`` for many records at a time: it gives one record for each, in their order, in any of the forms of
        :meth:`rayad.Stream.map_batches`, whose other arguments these are. Columns stay columns where it gives columns.

        Records with fields come as columns, or as a list where they came as rows and ``batch_format`` does not ask for something else. The
        parts of a tuple are columns called "0", "1", ... What a record becomes must not depend on the others that are in its batch, since a
        removal comes in another one: a model's results may, in their last digits. ``remember=True``, as in :meth:`map`, keeps them.

        The job ends with DataflowError where the function gives more records than it was given, or fewer.
        """
        step = of_batches(function, batch_format, fn_constructor_args, fn_constructor_kwargs)
        if remember:
            return self._remembered(RememberedBatches(step), OfBatches.base, name, asked)
        return self._made(stateless(self.stream, OfBatches.base, OfBatches(step), name, asked=asked))

    def _remembered(self, function: OfRecords, what: str, name: str | None, asked: Asked | None = None) -> Self:
        if self.loops:
            raise DataflowError(
                f"{what}(remember=True): the collection is inside a loop, where a record may be there in one round and not in the next; "
                "call it outside, and use what it gives inside"
            )
        return self._made(self.by_record().vertex(Make(Remembered, function, what), what, name, **(asked or {})))

    def select(self, *fields: str | Mapping[str, pc.Expression], name: str | None = None) -> Self:
        """Keep only these fields of each record: names, and dicts that map new names to expressions, as :meth:`rayad.Stream.select` has it.
        The parts of a tuple are fields called "0", "1", ...: ``rd.col("1", "0", "v")`` is the ``v`` of the left record of a joined pair.
        Columns stay columns."""
        return self._projected(Select(fields), name)

    def with_columns(self, fields: Mapping[str, pc.Expression], *, name: str | None = None) -> Self:
        """Keep all fields and add or replace these; see :meth:`select`."""
        return self._projected(WithColumns(fields), name)

    def _projected(self, projection: OfFields, name: str | None) -> Self:
        return self._as_here(self._made(columns.projected(self.stream, projection, name)), projection)


__all__ = ["RecordByRecord"]
