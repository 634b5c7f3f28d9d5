"""Reading Arrow data in pieces of one epoch: what every columnar source shares.

A piece ends where its row group or chunk ends, where the epoch changes, or after ``batch_rows`` rows, whichever comes first. The next
cut depends on the current row only, never on the batches before it; so a part that is opened again at a row gives the
same batches as the part that was never closed. Exactly-once recovery rests on that, and it makes an offset one integer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.records.output_form import describe, schema_drift
from rayad.dataflow.records.sorting import stable_order
from rayad.dataflow.source import SourceBatch, SourcePart, content_digest, sampled_places
from rayad.progress import ConfigError, DataflowError, arguments, show

DEFAULT_BATCH_ROWS = 65_536
SMALL_CHUNK_ROWS = 1_024
"""Tables whose chunks hold fewer rows than this on average are made contiguous first: a batch per chunk would cost more than the copy."""

Epochs = npt.NDArray[np.int64]


def check_batch_rows(batch_rows: int, where: str) -> int:
    """Give ``batch_rows`` back, or raise ConfigError."""
    return arguments.whole(batch_rows, f"{where}: batch_rows, the most rows of a batch,", least=1, error=ConfigError)


def check_epoch_column(schema: pa.Schema, epoch: str | None, where: str) -> None:
    """Raise ConfigError unless ``epoch`` is None or names one integer column of ``schema``."""
    if epoch is None:
        return
    arguments.text(epoch, f"{where}: epoch", error=ConfigError, more=", the name of a column, or None")
    found = schema.get_all_field_indices(epoch)
    if len(found) != 1:
        raise ConfigError(f"{where}: epoch={show(epoch)} names {len(found)} columns of {schema.names}; name exactly one integer column")
    kind = schema.field(found[0]).type
    if pa.types.is_integer(kind):
        return
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        hint = "an epoch is a whole number: cast it first, e.g. to days with pyarrow.compute.cast(column.cast('date32'), 'int32')"
    else:
        hint = "cast it to int64 first"
    raise ConfigError(f"{where}: epoch={show(epoch)} is a column of type {kind}; {hint}")


def epochs_of(column: pa.ChunkedArray | pa.Array, epoch: str, where: str) -> Epochs:
    """The epoch of each row. Raises DataflowError on nulls, negatives and values beyond 63 bits."""
    if column.null_count:
        raise DataflowError(
            f"{where}: {column.null_count} of {len(column)} values of the epoch column {show(epoch)} are null; fill or drop them first"
        )
    try:
        values: Epochs = np.asarray(
            column.cast(pa.int64()).to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.cast(pa.int64()).to_numpy()
        )
    except pa.ArrowInvalid as error:
        raise DataflowError(
            f"{where}: the epoch column {show(epoch)} holds values beyond 63 bits: {error}; number the epochs from 0"
        ) from error
    if len(values) and int(values.min()) < 0:
        raise DataflowError(f"{where}: the epoch column {epoch!r} goes down to {int(values.min())}; epochs start at 0: shift the column")
    return values


def sort_by_epoch(table: pa.Table, epoch: str, where: str) -> tuple[pa.Table, Epochs]:
    """The rows in order of ``epoch`` (stable; no copy where they already are), and their epochs."""
    epochs = epochs_of(table.column(epoch), epoch, where)
    if len(epochs) > 1 and bool(np.any(epochs[1:] < epochs[:-1])):
        order = stable_order(epochs)
        table, epochs = table.take(pa.array(order)), epochs[order]
    return table, epochs


def compact(table: pa.Table) -> pa.Table:
    """``table``, made contiguous if it is in many small chunks."""
    chunks = max((column.num_chunks for column in table.columns), default=0)
    return table.combine_chunks() if chunks > 1 and table.num_rows < chunks * SMALL_CHUNK_ROWS else table


class ArrowPart(SourcePart, ABC):
    """A part that gives RecordBatches of at most ``batch_rows`` rows and one epoch; its offset is the number of rows given."""

    def __init__(self, batch_rows: int, resume: int | None) -> None:
        self._batch_rows = batch_rows
        self._row = 0 if resume is None else resume

    def offset(self) -> int:
        """Rows given so far."""
        return self._row

    @abstractmethod
    def next_batch(self) -> SourceBatch | None: ...


class TablePart(ArrowPart):
    """A whole table as a part, loaded when first needed; with ``epoch``, in its order.

    ``floor`` is a lower bound of the epochs, known before the table is loaded (from row-group statistics, say).
    """

    def __init__(
        self, load: Callable[[], pa.Table], *, batch_rows: int, epoch: str | None, resume: int | None, where: str, floor: int = 0
    ) -> None:
        super().__init__(batch_rows, resume)
        self._load: Callable[[], pa.Table] | None = load
        self._epoch = epoch
        self._where = where
        self._floor = floor
        self._batches: list[pa.RecordBatch] = []
        self._starts: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._epochs: Epochs | None = None
        self._rows = 0

    def _ensure_loaded(self) -> None:
        if self._load is None:
            return
        table = self._load()
        self._load = None
        if self._epoch is not None:
            check_epoch_column(table.schema, self._epoch, self._where)
            table, self._epochs = sort_by_epoch(table, self._epoch, self._where)
        self._batches = [batch for batch in compact(table).to_batches() if batch.num_rows]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._rows = int(self._starts[-1])
        if self._row > self._rows:
            raise DataflowError(
                f"{self._where}: asked to resume at row {self._row}, but it now has {self._rows} rows; the input changed since "
                "the snapshot: restore the input, or start the job afresh"
            )

    def next_batch(self) -> SourceBatch | None:
        """The next rows of one epoch."""
        self._ensure_loaded()
        if self._row >= self._rows:
            self._batches = []
            return None
        index = int(np.searchsorted(self._starts, self._row, side="right")) - 1
        start = int(self._starts[index])
        end = min(self._row + self._batch_rows, int(self._starts[index + 1]))
        epoch = 0
        if self._epochs is not None:
            epoch = int(self._epochs[self._row])
            end = min(end, int(np.searchsorted(self._epochs, epoch, side="right")))
        batch = self._batches[index].slice(self._row - start, end - self._row)
        self._row = end
        return SourceBatch(epoch, batch)

    def epoch_floor(self) -> int:
        """The epoch of the next row; before anything was read, the lower bound of the part."""
        if self._epoch is None:
            return 0
        if self._load is not None:
            if not self._row:
                return self._floor
            self._ensure_loaded()  # a resumed part keeps its floor, so that progress does not depend on failures
        if self._epochs is None or len(self._epochs) == 0:
            return self._floor
        return int(self._epochs[min(self._row, len(self._epochs) - 1)])

    def share_read(self) -> float | None:
        """By rows, once the table has been loaded."""
        return self._row / self._rows if self._rows else None

    def close(self) -> None:
        """Release the table."""
        self._load, self._batches, self._epochs, self._rows = None, [], None, self._row


class Opened(NamedTuple):
    """A stream of batches.

    ``close`` releases what it reads from. ``share_read(rows)`` gives the share that has been read, from 0 to 1, when so many rows have been
    given; None: that is not known.
    """

    batches: Iterator[pa.RecordBatch]
    close: Callable[[], Any]
    share_read: Callable[[int], float | None]


def share_of(text: Any, size_bytes: int) -> float | None:
    """How far a stream of so many bytes has been read, which is up to some blocks ahead of the rows given; 0 bytes: not known."""
    if not size_bytes:
        return None
    return 1.0 if text.closed else text.tell() / size_bytes


class StreamPart(ArrowPart):
    """A part read from a stream of batches that is the same each time it is opened (a file); all in epoch 0.

    ``opener`` gives the stream. Resuming reads the stream from its start and skips the rows already given.
    """

    def __init__(self, opener: Callable[[], Opened], *, batch_rows: int, resume: int | None, where: str) -> None:
        super().__init__(batch_rows, resume)
        self._opener = opener
        self._where = where
        self._stream: Iterator[pa.RecordBatch] | None = None
        self._opened: Opened | None = None
        self._current: pa.RecordBatch | None = None
        self._current_row = 0

    def _open(self) -> Iterator[pa.RecordBatch]:
        self._opened = self._opener()
        stream = self._opened.batches
        todo = self._row
        while todo:
            batch = next(stream, None)
            if batch is None:
                raise DataflowError(
                    f"{self._where}: asked to resume at row {self._row}, but it ends {todo} rows before that; the input changed since the "
                    "snapshot: restore the input, or start the job afresh"
                )
            if todo < batch.num_rows:
                self._current, self._current_row = batch, todo
                break
            todo -= batch.num_rows
        return stream

    def next_batch(self) -> SourceBatch | None:
        """The next rows, never across two batches of the stream."""
        if self._stream is None:
            self._stream = self._open()
        while self._current is None or self._current_row >= self._current.num_rows:
            self._current, self._current_row = next(self._stream, None), 0
            if self._current is None:
                return None
        batch = self._current.slice(self._current_row, self._batch_rows)
        self._current_row += batch.num_rows
        self._row += batch.num_rows
        return SourceBatch(0, batch)

    def close(self) -> None:
        """Close the stream; a second call does nothing."""
        opened, self._opened, self._current = self._opened, None, None
        self._stream = iter(())
        if opened is not None:
            opened.close()

    def share_read(self) -> float | None:
        """As the stream tells."""
        return self._opened.share_read(self._row) if self._opened is not None else None


def table_digest(table: pa.Table | pa.RecordBatch) -> str | None:
    """A digest of rows at even distances, all of a small table; the same for the same values in the same order, however chunked."""
    places = sampled_places(table.num_rows)
    if len(places) == table.num_rows:
        return content_digest(table.to_pylist())
    return content_digest(table.slice(place, 1).to_pylist() for place in places)  # take() lacks some types


__all__ = [
    "DEFAULT_BATCH_ROWS",
    "ArrowPart",
    "StreamPart",
    "TablePart",
    "check_batch_rows",
    "check_epoch_column",
    "compact",
    "describe",
    "epochs_of",
    "schema_drift",
    "sort_by_epoch",
    "table_digest",
]
