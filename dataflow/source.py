"""What a source of records is: parts that can be read, and read again, from an offset.

One source is read by many replicas: :meth:`Source.list_parts` runs on the driver, the parts are
assigned to the replicas of the source, and each replica reads its parts in order. A part must give the same batches again when
it is built again from the same ``resume`` value; exactly-once recovery rests on that. ``rayad.testing.check_source`` tries a source.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

import xxhash

from rayad.progress import ConfigError

SAMPLED_RECORDS = 1_000
"""A digest of contents takes so many records."""
_PLAIN = frozenset((type(None), bool, int, float, str, bytes, Decimal, dt.date, dt.time, dt.datetime, dt.timedelta))


class SourceBatch(NamedTuple):
    """Some records of one epoch: a list of Python objects or a ``pyarrow.RecordBatch``."""

    epoch: int
    batch: Any


class SourcePart(ABC):
    """One partition being read, in one replica. Single-threaded."""

    @abstractmethod
    def next_batch(self) -> SourceBatch | None:
        """Return the next records; an empty batch if there are none *yet*; ``None`` if the part is exhausted.

        Epochs must not decrease within a part. Must not block for longer than a few milliseconds when there is nothing.
        """

    def epoch_floor(self) -> int:
        """The lowest epoch that a later batch of this part can have. Override it where epochs advance without data."""
        return 0

    @abstractmethod
    def offset(self) -> Any:
        """Return where reading would resume: a small picklable value for ``Source.build_part(part, resume=...)``.

        Called between batches: before the first, after any, and after the last. A part that is built from it gives exactly the batches that
        this one has not yet given: the same epochs, the same records, cut in the same way. The value must not be changed afterwards.
        """

    def backlog(self) -> int | None:
        """About how many records wait to be read; None: unknown. Called every few seconds, so it need not be fast.

        It tells the autoscaler the rate of arrival when records arrive faster than they are read.
        """
        return None

    def share_read(self) -> float | None:
        """The share of this part that has been read, from 0 to 1; None: unknown, or the part has no end.

        Only shown (``flow.run(progress=...)``, ``job.status()``). Called between batches, up to a few times a second: it must be quick.
        """
        return None

    def close(self) -> None:
        """Release files and connections. Called once, also after an error."""


class Source(ABC):
    """An input that is read in parts. Instances are pickled to the replicas.

    A replica reads *its parts one after another, in the order of list_parts*, unless ``interleave`` is true: then it takes a batch of each
    part in turn, lowest epoch first, which endless parts need.

    A source with an attribute ``schema``, a ``pyarrow.Schema``, gives RecordBatches of these columns and types: see ``Stream.schema``.
    """

    interleave: bool = False
    same_epochs: bool = True
    """Whether a part that is built again gives its records in the same epochs as before. Where epochs follow the clock they may differ; a
    failure then restarts the whole graph, also with ``FailureConfig(recovery="upstream")``."""
    one_epoch: bool = False
    """Whether all its records are in epoch 0. Then each running total comes once, and may be aggregated further (``as_records``)."""

    blocks: bool = True
    """Whether ``next_batch`` may wait, for a service or a clock say, or compute for long. Its replicas then have processes of their own,
    whoever else shares one (``ScalingConfig.placement``). Rayad's own return at once, also with nothing; not Postgres'."""

    replays: bool = True
    """Whether a part can be read again from an offset. Where it cannot (a socket) a run that keeps snapshots is refused."""

    state_version: ClassVar[int] = 1
    """The version of ``offset()``, kept with snapshots beside the class's name: raise it when earlier offsets mean something else."""

    @abstractmethod
    def list_parts(self) -> Sequence[Any]:
        """Return small picklable descriptions of the parts. Called on the driver when the job starts, once for each run."""

    @abstractmethod
    def build_part(self, part: Any, resume: Any | None) -> SourcePart:
        """Open ``part`` in a replica: at its start, or at ``resume``, a value that its ``offset()`` returned."""

    def part_sizes(self, parts: Sequence[Any]) -> Sequence[float]:
        """How much each of these parts holds, in one unit for all parts of the source, such as bytes or rows; by default all are equal.

        Together with :meth:`SourcePart.share_read` it gives the share of the source that has been read. Only shown. Called in a replica,
        with the parts that are its own.
        """
        return [1.0] * len(parts)

    def fingerprint(self, parts: Sequence[Any]) -> dict[str, Any] | None:
        """Return what the parts consist of, and each setting that changes the meaning of an offset, as plain JSON; None: unknown.

        Called on the driver with ``parts`` from ``list_parts``, for a job that keeps snapshots. Values are numbers, texts, or dicts by
        name, such as ``{"epoch": "day", "files": {"/in/a.csv": "120 bytes, changed ..."}}``; a refused resume names those that differ.
        """
        return None

    def check_run(self, config: Any, runtime: str) -> None:
        """Raise ConfigError if a run with this RunConfig, on this runtime, cannot read the source. Called on the driver, before anything
        starts."""
        if not self.replays and config.keeps_snapshots:
            raise ConfigError(
                f"{type(self).__name__} cannot be read again from an offset (replays = False), so a job that resumes from a snapshot would "
                "lose what came in between. Send what it gives to a live input, flow.input(name) and job.input(name).send(records), of "
                "which the driver keeps everything until a snapshot holds it; put a log before it, such as a Kafka topic or a folder of "
                "files; or run without storage_path"
            )

    def job_started(self, job: Any, config: Any) -> None:
        """Called on the driver with the job's handle and RunConfig when a job that reads this source has been submitted. Must return
        soon.

        For sources that hold something for as long as a job may read them. Raising an error ends the job.
        """

    def job_ended(self) -> None:
        """Called on the driver when a job that was started has ended, in whichever way; once for each.

        It runs in whichever thread notices the end, must return soon, and must not wait.
        """


def sampled_places(count: int) -> list[int]:
    """Places at even distances among ``count``, the first and the last among them: all, if there are at most SAMPLED_RECORDS.

    >>> sampled_places(3), len(sampled_places(10**9)), sampled_places(10**9)[-1]
    ([0, 1, 2], 1000, 999999999)
    """
    if count <= SAMPLED_RECORDS:
        return list(range(count))
    return [i * (count - 1) // (SAMPLED_RECORDS - 1) for i in range(SAMPLED_RECORDS)]


def content_digest(records: Iterable[Any]) -> str | None:
    """A digest of records of plain types, the same in every process; None where one is of another type.

    >>> content_digest([1, "a"]) == content_digest([1, "a"]), content_digest([object()])
    (True, None)
    """
    digest = xxhash.xxh3_64()
    for record in records:
        if not _is_plain(record):
            return None
        digest.update(repr(record).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple):
        return all(map(_is_plain, value))
    if kind is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return kind in _PLAIN
