"""Sources and sinks that need nothing outside: items in memory, live input, collect."""

from __future__ import annotations

import bisect
import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.collected import Collected, TimedBatches, table_of
from rayad.dataflow.logical_graph import check_count
from rayad.dataflow.records.batches import one_or_more, require_distinct, to_rows
from rayad.dataflow.records.frames import is_pandas, is_polars, table_from
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.dataflow.source import Source, SourceBatch, SourcePart, content_digest, sampled_places
from rayad.progress import ConfigError, DataflowError, Timestamp, arguments, show


class ItemsSource(Source):
    """Epochs of items held in memory: item i of the outer list is epoch i. One part, or ``parts`` of them with every epoch shared
    out evenly."""

    blocks = False
    interleave = True

    def __init__(self, epochs: Sequence[Any], batch_rows: int = 4096, parts: int = 1) -> None:
        self.epochs = epochs
        self.batch_rows = arguments.whole(batch_rows, "batch_rows", least=1)
        self.parts = check_count(parts, "parts")

    def list_parts(self) -> Sequence[Any]:
        return range(self.parts)

    def build_part(self, part: Any, resume: Any | None) -> SourcePart:
        return _ItemsPart(self, part, resume or (0, 0))

    def fingerprint(self, parts: Sequence[Any]) -> dict[str, Any]:
        """How many records each epoch has, how they are shared out, and a digest of some records (of all, if few) of plain types."""
        counts = {str(epoch): len(items) for epoch, items in enumerate(self.epochs)}
        return {"parts": self.parts, "records of epochs": counts, "contents": content_digest(self._sample())}

    def _sample(self) -> Iterable[Any]:
        bounds = [0, *itertools.accumulate(len(items) for items in self.epochs)]
        for place in sampled_places(bounds[-1]):
            epoch = bisect.bisect_right(bounds, place) - 1
            row = place - bounds[epoch]
            yield from to_rows(self.epochs[epoch][row : row + 1])


class _ItemsPart(SourcePart):
    def __init__(self, source: ItemsSource, part: int, resume: tuple[int, int]) -> None:
        self.source = source
        self.part = part
        self.epoch, self.row = resume

    def _bounds(self) -> tuple[int, int]:
        size = len(self.source.epochs[self.epoch])
        return size * self.part // self.source.parts, size * (self.part + 1) // self.source.parts

    def next_batch(self) -> SourceBatch | None:
        epochs = self.source.epochs
        while self.epoch < len(epochs):
            low, high = self._bounds()
            start = low + self.row
            if start < high:
                batch = epochs[self.epoch][start : min(start + self.source.batch_rows, high)]
                if isinstance(batch, pa.Table):  # more than one batch can hold
                    batch = batch.to_batches()[0]
                self.row += len(batch)
                return SourceBatch(self.epoch, batch)
            self.epoch += 1
            self.row = 0
        return None

    def epoch_floor(self) -> int:
        return self.epoch

    def offset(self) -> tuple[int, int]:
        return (self.epoch, self.row)

    def share_read(self) -> float:
        """Epochs count the same, however many records they have."""
        epochs = len(self.source.epochs)
        if self.epoch >= epochs:
            return 1.0
        low, high = self._bounds()
        return (self.epoch + (self.row / (high - low) if high > low else 0.0)) / epochs


def as_items(items: Iterable[Any], what: str) -> Any:
    """A list of records, a RecordBatch, or a Table that is too large for one, from what a user gave: records, a table of Arrow, or a data
    frame, which becomes one."""
    if isinstance(items, (pa.RecordBatch, pa.Table)):
        require_distinct(items.schema, what)
        if isinstance(items, pa.RecordBatch):
            return items
        parts = one_or_more(items)
        return pa.Table.from_batches(parts) if len(parts) > 1 else parts[0] if parts else []
    if isinstance(items, (str, bytes)):
        raise DataflowError(f"{what} is the {type(items).__name__} {show(items, 40)}: give a list of records; for one text, [text]")
    if isinstance(items, Mapping):
        kind = type(items).__name__
        raise DataflowError(f"{what} is the {kind} {show(items, 40)}: give a list of records; for its entries, list(x.items())")
    if isinstance(items, pa.Array | pa.ChunkedArray) or is_pandas(items, "Series") or is_pandas(items, "Index"):
        instead = "x.to_pylist()" if isinstance(items, pa.Array | pa.ChunkedArray) else "x.tolist()"
        raise DataflowError(f"{what} is a {type(items).__name__}: give {instead}")
    if not isinstance(items, (list, tuple)) and not is_polars(items, "Series"):  # of a column of Polars list() gives the values
        table = table_from(items, what)  # of a frame it gives the columns, or their names
        if table is not None:
            return as_items(table, what)
    try:
        return list(items)
    except TypeError as error:
        raise DataflowError(f"{what} is {show(items, 40)}: give a list of records") from error


class LiveInput(Source):
    """The records that ``job.input(name)`` sends. It is no Source with parts: the runtime feeds it."""

    blocks = False
    reopens: ClassVar[bool] = False
    """Whether a run that resumes a complete job opens it again, where it was closed; else the job stays complete."""

    epoch_s: float | None = None
    """How long an epoch is, where it advances by itself."""

    def __init__(self, epoch_s: float | None = None) -> None:
        self.epoch_s = epoch_s

    def list_parts(self) -> Sequence[Any]:
        return [0]

    def build_part(self, part: Any, resume: Any | None) -> SourcePart:
        raise DataflowError("a live input is fed by job.input(name).send(records); it cannot be read")


class FedInput(LiveInput):
    """A live input that a connector feeds, from the driver, for as long as a job runs (:meth:`Source.job_started`, ``job_ended``).

    It sends *references*, small values; :meth:`open` turns them into records in whichever replica has room. A snapshot holds none of them
    while barriers are aligned and the whole graph recovers together: such a job is asked for by :meth:`check_run`, for references do not
    outlive who made them.
    """

    reopens = True
    base = "fed"
    """What the input is called where its user gives no name."""

    @abstractmethod
    def open(self, references: list[Any]) -> Any:
        """The records behind some references; in a replica."""

    def check_run(self, config: Any, runtime: str) -> None:
        """Raise ConfigError where snapshots of a run with this RunConfig would hold references."""
        if config.snapshots.alignment_timeout_s is not None or config.failures.recovery == "upstream":
            raise ConfigError(
                f"{self.base}: SnapshotConfig.alignment_timeout_s is {config.snapshots.alignment_timeout_s!r}, FailureConfig.recovery is "
                f"{config.failures.recovery!r}: with aligned snapshots (None) and recovery='graph' alone no snapshot holds references to "
                "data that may be gone when it is resumed from"
            )


class CollectSink(Sink):
    """Keeps everything, for ``result[name]``: the records in order of time (:class:`Collected`), or with ``columnar`` a table. ``schema``:
    the columns of the records as far as they are known, for a table of none."""

    tells_updates = True

    def __init__(self, *, columnar: bool = False, schema: pa.Schema | None = None) -> None:
        self.columnar = columnar
        self.schema = schema

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return _CollectWriter()

    def publish(self, staged: Sequence[Any]) -> Any:
        return TimedBatches.chained(staged)

    def result(self, receipt: Any) -> Any:
        ordered = sorted(receipt, key=lambda item: item[0].sort_key())
        if self.columnar:
            return table_of([batch for _, batch in ordered], "collect(columnar=True)", "collect() rows instead")
        return Collected(ordered, self.schema)


class _CollectWriter(SinkWriter):
    def __init__(self) -> None:
        self.kept = TimedBatches()

    def write(self, time: Timestamp, batch: Any) -> None:
        self.kept.append(time, batch)

    def stage(self) -> Any:
        kept, self.kept = self.kept, TimedBatches()
        return kept
