"""What a sink is: replicas write, the job publishes.

Writing and publishing are apart so that output can be exactly-once: each replica's :class:`SinkWriter` keeps or
stages what it gets; when the job (later: a snapshot) is complete, ``stage()`` of every writer is handed to :meth:`Sink.publish`, which
makes it visible in one atomic, repeatable step. Readers never see what was not published.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rayad.progress import Timestamp


class SinkWriter(ABC):
    """The part of a sink that lives in one replica. Single-threaded."""

    @abstractmethod
    def write(self, time: Timestamp, batch: Any) -> None:
        """Take records of ``time``: a list of Python objects or a ``pyarrow.RecordBatch``."""

    @abstractmethod
    def stage(self) -> Any:
        """Flush; give a picklable description of (or the data) written since the last call."""

    def abort(self) -> None:
        """The job failed or was cancelled: remove what was written and not published. Called at most once; must not raise."""


class Sink(ABC):
    """A place for results. Instances are pickled to the replicas."""

    @abstractmethod
    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """Open the writer of one replica (0 <= replica < parallelism)."""

    @abstractmethod
    def publish(self, staged: Sequence[Any]) -> Any:
        """Make everything in ``staged`` visible at once; runs in the coordinator; must be idempotent. Gives a picklable receipt."""

    def abort(self) -> None:
        """The job failed or was cancelled: remove everything that is not published. Must not raise."""

    def result(self, receipt: Any) -> Any:
        """Turn ``publish``'s receipt into what ``result[name]`` gives on the driver."""
        return receipt
