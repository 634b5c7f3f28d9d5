"""What ``collect()`` gives: a list of ``(Timestamp, record)`` for whoever reads it as one, and a table for whoever asks for that.

Batches stay as they came, in columns or in rows, from the replicas to the driver. A tuple for each record of a million rows takes over a
second and hundreds of megabytes, so the tuples are made when one is first asked for, and a table is made from the batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import pyarrow as pa

from rayad.dataflow.records.batches import ROWS_KEY, batch_rows, keyed_columns, to_rows
from rayad.dataflow.records.frames import to_pandas, to_polars
from rayad.dataflow.records.output_form import OutputForm
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.progress import DataflowError, Timestamp, arguments, show

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Pair = tuple[Timestamp, Any]
"""A record and its time."""
OUR_TYPES = "rayad."
"""How the names of our extension types begin, such as that of windows; Polars works with what they are stored as."""


class TimedBatches(Sequence[tuple[Timestamp, Any]]):
    """Batches with their times. Columns are pickled in Arrow's IPC format: outside of the pickle where its protocol can do that (as Ray's
    can), and without the rows that a slice leaves out. What has been unpickled stays packed until somebody looks at it: the coordinator,
    which only passes it on, never reads or writes it again.

    >>> import pickle
    >>> there = pickle.loads(pickle.dumps(TimedBatches([(Timestamp(1), [7])])))
    >>> list(TimedBatches.chained([there, TimedBatches([(Timestamp(2), [8])])]))
    [(Timestamp(1), [7]), (Timestamp(2), [8])]
    """

    def __init__(self, batches: Iterable[tuple[Any, ...]] = (), *, is_packed: bool = False) -> None:
        self._entries = list(batches)
        self._is_packed = is_packed  # whether one may be of several batches

    @classmethod
    def chained(cls, parts: Iterable[Iterable[tuple[Timestamp, Any]]]) -> TimedBatches:
        """One behind the other."""
        return cls((entry for part in parts for entry in (part.entries if isinstance(part, TimedBatches) else part)), is_packed=True)

    @property
    def entries(self) -> Sequence[tuple[Any, ...]]:
        """``(time, batch)``, and what :func:`_packed` has made of several."""
        return self._entries

    def _all(self) -> list[tuple[Timestamp, Any]]:
        if self._is_packed:
            self._entries, self._is_packed = list(_read(self._entries)), False
        return self._entries

    def append(self, time: Timestamp, batch: Any) -> None:
        """Add a batch."""
        self._all().append((time, batch))

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[tuple[Timestamp, Any]]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> tuple[Timestamp, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Timestamp, Any]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self._all()[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (_packed(self._entries),)


def _packed(entries: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows as ``(time, rows)``, and batches of one schema that follow each other as ``([times], buffer, schema)``: the schema is pickled,
    too, since that imports the modules of Arrow's extension types, windows among them. What is so packed stays as it is."""
    out: list[tuple[Any, ...]] = []
    for schema, group in groupby(entries, lambda entry: _Schema(entry[1])):
        if schema.of is None:
            out.extend(group)
            continue
        sink = pa.BufferOutputStream()
        times = []
        with pa.ipc.new_stream(sink, schema.of) as writer:
            for time, batch in group:
                writer.write_batch(batch)
                times.append(time)
        out.append((times, sink.getvalue(), schema.of))
    return out


def _unpacked(packed: list[tuple[Any, ...]]) -> TimedBatches:
    """The inverse of :func:`_packed`; snapshots know it by this name."""
    return TimedBatches(packed, is_packed=True)


def _read(packed: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Timestamp, Any]]:
    """The batches themselves."""
    for time, content, *schemas in packed:
        if not schemas:
            yield time, content
            continue
        with pa.ipc.open_stream(content) as reader:
            for each, batch in zip(time, reader, strict=True):
                yield each, _of_types(batch, *schemas)


def _of_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as it was: of extension types that nobody has registered here Arrow has read the storage."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        field.type.wrap_array(column) if isinstance(field.type, pa.BaseExtensionType) and column.type != field.type else column
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Schema:
    """The schema of a batch, None for rows; equal also in the metadata."""

    def __init__(self, batch: Any) -> None:
        self.of: pa.Schema | None = batch.schema if isinstance(batch, pa.RecordBatch) else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Schema) or self.of is None or other.of is None:
            return isinstance(other, _Schema) and self.of is other.of
        return bool(self.of.equals(other.of, check_metadata=True))

    __hash__ = None  # type: ignore[assignment]


@explains_calls
class Collected(MutableSequence[tuple[Timestamp, Any]]):
    """The records of a stream in order of their times: equal to a list of ``(Timestamp, record)``, and used as one.

    :meth:`to_pandas`, :meth:`to_polars` and :meth:`to_arrow` give the records as a table. Records that came in columns become one without
    a Python object for each; the tuples of the list are made when they are first asked for.

    >>> found = Collected([(Timestamp(0), pa.record_batch({"n": [1, 2]}))])
    >>> found == [(Timestamp(0), {"n": 1}), (Timestamp(0), {"n": 2})], len(found)
    (True, 2)
    >>> found.to_arrow(epoch_column="epoch").to_pydict()
    {'n': [1, 2], 'epoch': [0, 0]}
    """

    def __init__(self, batches: Iterable[tuple[Timestamp, Any]] = (), schema: pa.Schema | None = None) -> None:
        self._batches: TimedBatches | None = TimedBatches(batches)
        self._schema = schema
        self._pairs: list[Pair] | None = None

    # -- a list ------------------------------------------------------------------------------------------
    def _list(self) -> list[Pair]:
        if self._pairs is None:
            self._pairs = [(time, row) for time, batch in self._batches or () for row in to_rows(batch)]
        return self._pairs

    def _changing(self) -> list[Pair]:
        """The list, which is from now on all that there is."""
        pairs = self._list()
        self._batches = None
        return pairs

    def first(self, count: int) -> list[tuple[Timestamp, Any]]:
        """The first ``count`` pairs, or all if there are fewer; without making the others."""
        count = arguments.whole(count, "first: count", least=0)
        if self._pairs is not None:
            return self._pairs[:count]
        return list(islice(((time, row) for time, batch in self._batches or () for row in to_rows(batch[:count])), count))

    def __len__(self) -> int:
        if self._pairs is not None:
            return len(self._pairs)
        return sum(batch_rows(batch) for _, batch in self._batches or ())

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._list())

    @overload
    def __getitem__(self, index: SupportsIndex) -> Pair: ...

    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...

    def __getitem__(self, index: Any) -> Any:
        return self._list()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._changing()[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._changing()[index]

    def insert(self, index: SupportsIndex, value: Pair) -> None:
        """As of a list."""
        self._changing().insert(index, value)

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """As of a list: in place."""
        self._changing().sort(key=key, reverse=reverse)

    def reverse(self) -> None:
        """As of a list: in place."""
        self._changing().reverse()

    def copy(self) -> list[Pair]:
        """As of a list: a list of the same pairs."""
        return self._list().copy()

    def __contains__(self, value: object) -> bool:
        return value in self._list()

    def __repr__(self) -> str:
        return repr(self._list())

    def __eq__(self, other: object) -> bool:
        return self._list() == list(other) if isinstance(other, (list, Collected)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it can be changed, as a list can

    def __lt__(self, other: Any) -> bool:
        return self._list() < list(other) if isinstance(other, (list, Collected)) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self._list() <= list(other) if isinstance(other, (list, Collected)) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._list() > list(other) if isinstance(other, (list, Collected)) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self._list() >= list(other) if isinstance(other, (list, Collected)) else NotImplemented

    def __add__(self, other: Any) -> list[Pair]:
        return self._list() + list(other) if isinstance(other, (list, Collected)) else NotImplemented

    def __radd__(self, other: Any) -> list[Any]:
        return other + self._list() if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[Pair]:
        return self._list() * times

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        if self._batches is None:
            return _of_pairs, (self._pairs, self._schema)
        return Collected, (self._batches, self._schema)

    # -- a table -----------------------------------------------------------------------------------------
    def to_arrow(self, *, epoch_column: str | None = None) -> pa.Table:
        """The records as an Arrow table, in their order.

        Records that are dicts are rows of the columns that they name. A pair ``(key, value)`` has the columns that its operator gives it,
        else ``key`` and ``value``; other tuples have ``c0``, ``c1`` and so on; anything else is in one column, ``value``. Types are the
        narrowest that hold each value as it is. Without records it has the columns that the program tells (:attr:`Stream.schema`), or none.

        Args:
            epoch_column: the name of a further column, the last one, with the epoch of each record as int64. None: no such column.

        Raises:
            DataflowError: no columns hold the records as they are (it names column and value), or ``epoch_column`` is one of theirs.
        """
        return self._table("to_arrow", epoch_column)

    def to_pandas(self, *, epoch_column: str | None = None, dtype_backend: Literal["pyarrow"] | None = None) -> pd.DataFrame:
        """The records as a pandas DataFrame with a plain index, in their order; the columns are those of :meth:`to_arrow`.

        Values stay what they are: whole numbers with nulls are ``Int64`` (and so on), not floats; what no type of pandas or Python holds
        exactly (nanoseconds of a time, whole numbers with nulls inside of lists) is in a column of a ``pandas.ArrowDtype``.

        Args:
            epoch_column: as of :meth:`to_arrow`.
            dtype_backend: ``"pyarrow"`` for columns of ``pandas.ArrowDtype`` throughout, which copies nothing; None as said above.

        Raises:
            DataflowError: as of :meth:`to_arrow`, and where pandas cannot hold a column, which it names.
            ConfigError: pandas is not installed.
        """
        backend = None if dtype_backend is None else arguments.choice(dtype_backend, "to_pandas: dtype_backend", "pyarrow")
        return to_pandas(self._table("to_pandas", epoch_column), "to_pandas", arrow_types=backend is not None)

    def to_polars(self, *, epoch_column: str | None = None) -> pl.DataFrame:
        """The records as a Polars DataFrame, in their order; the columns are those of :meth:`to_arrow`. A window is a struct of ``start``
        and ``end``, a pair of joined records a struct of ``left`` and ``right``.

        Args:
            epoch_column: as of :meth:`to_arrow`.

        Raises:
            DataflowError: as of :meth:`to_arrow`, and where Polars cannot hold a column, which it names.
            ConfigError: Polars is not installed.
        """
        table = self._table("to_polars", epoch_column)
        for at, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
            if getattr(column.type, "extension_name", "").startswith(OUR_TYPES):
                table = table.set_column(at, name, pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type))
        return to_polars(table, "to_polars")

    def _table(self, what: str, epoch_column: str | None) -> pa.Table:
        if epoch_column is not None:
            arguments.text(epoch_column, f"{what}: epoch_column")
        batches = self._batches
        if batches is None:
            batches = TimedBatches((time, [row for _, row in group]) for time, group in groupby(self._pairs or (), lambda pair: pair[0]))
        table = table_of([batch for _, batch in batches], f"{what} of collected records", "convert them with map() before collect()")
        if table is None:
            table = self._schema.empty_table() if self._schema is not None else pa.table({})
        if epoch_column is None:
            return table
        if epoch_column in table.schema.names:
            raise DataflowError(
                f"{what}: epoch_column={epoch_column!r} is already a column of the records, which are {show(table.schema.names, 120)}; "
                "choose another name"
            )
        epochs = [pa.repeat(pa.scalar(time.epoch, pa.int64()), batch_rows(batch)) for time, batch in batches if batch_rows(batch)]
        plain = table.replace_schema_metadata(None)  # the new column is no part of a (key, value)
        return plain.append_column(epoch_column, pa.chunked_array(epochs, pa.int64()))


def _of_pairs(pairs: list[Pair], schema: pa.Schema | None) -> Collected:
    out = Collected(schema=schema)
    out.extend(pairs)
    return out


def table_of(batches: Sequence[Any], where: str, advice: str) -> pa.Table | None:
    """Batches of rows and columns as one table, in the narrowest types that hold all of them; None where there are no rows. Raises
    DataflowError where columns cannot hold the records as they are; ``where`` and ``advice`` are for it."""
    kept = [batch for batch in batches if len(batch)]
    if not kept:
        return None
    if all(isinstance(batch, pa.RecordBatch) and batch.schema.equals(kept[0].schema) for batch in kept):
        return pa.Table.from_batches(kept)
    form = OutputForm(None, where, advice=advice)
    fitted = [form.fit(batch) for batch in kept]
    table = pa.Table.from_batches([form.again(batch) for batch in fitted])
    marks = {batch.schema.metadata[ROWS_KEY] for batch in kept if isinstance(batch, pa.RecordBatch) and is_keyed(batch)}
    return table.replace_schema_metadata({ROWS_KEY: marks.pop()}) if len(marks) == 1 else table


def is_keyed(batch: pa.RecordBatch) -> bool:
    """Whether rows of a batch are ``(key, *values)`` tuples."""
    return keyed_columns(batch.schema) is not None


__all__ = ["Collected", "TimedBatches", "table_of"]
