"""What a source of records is: partitions that can be read, and re-read, from an offset.

A source is written once and read by many replicas: :meth:`Source.list_parts` runs on the driver, the parts are
shared out over the replicas of the source, and each replica reads its parts in order. A part must give the same batches again when
it is built again from the same ``resume`` value; exactly-once recovery rests on that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple


class SourceBatch(NamedTuple):
    """Some records of one epoch: a list of Python objects or a ``pyarrow.RecordBatch``."""

    epoch: int
    batch: Any


class SourcePart(ABC):
    """One partition being read, in one replica. Single-threaded."""

    @abstractmethod
    def next_batch(self) -> SourceBatch | None:
        """The next records; an empty list when none are there *yet*; ``None`` when the part is exhausted.

        Epochs must not go back within one part. Must not block for longer than a few milliseconds when nothing is there.
        """

    def epoch_floor(self) -> int:
        """No later batch of this part will be of an epoch below this. Override it where epochs advance without data."""
        return 0

    @abstractmethod
    def offset(self) -> Any:
        """Where reading would go on: a small picklable value for ``Source.build_part(part, resume=...)``."""

    def close(self) -> None:
        """Release files and connections. Called once, also after an error."""


class Source(ABC):
    """Something that can be read in partitions. Instances are pickled to the replicas.

    Replicas of a source read *their parts one after another, in the order of list_parts*, unless ``interleave`` is true; then they
    take a batch from each part in turn, lowest epoch first (endless parts need this).
    """

    interleave: bool = False

    @abstractmethod
    def list_parts(self) -> Sequence[Any]:
        """Small picklable descriptions of the parts. Runs on the driver when the job starts."""

    @abstractmethod
    def build_part(self, part: Any, resume: Any | None) -> SourcePart:
        """Open ``part`` in a replica; at its start, or where ``offset()`` stood when ``resume`` was taken."""
