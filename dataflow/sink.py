"""What a sink is: replicas write, the coordinator makes it visible.

Writing and showing are apart so that output is exactly-once: each replica's :class:`SinkWriter` keeps or stages what it gets; with each
snapshot ``stage()`` of every writer goes into the snapshot's files; when the snapshot is complete, what it names may be shown. Readers
see only what a complete snapshot has, and nothing twice.

**For authors of sinks.** Most sinks need :meth:`Sink.open` and :meth:`Sink.publish` alone: whatever is staged is kept in the job's store,
and ``publish`` gets all of it, once, when the job is complete. A sink that shows results while the job runs sets ``commits = True`` and
has :meth:`Sink.commit` and :meth:`Sink.roll_back` too. The runtime calls, in the coordinator where nothing else is said, one at a time:

=================================  ====================================================================================================
a fresh start                      ``check()`` before the job is recorded anywhere; ``identity()`` is kept in the store
a start once more                  the job died before its first snapshot: ``adopt(identity)``, ``check()``; then as a job that goes on
a complete snapshot *n*            ``commit(n, staged)`` with what snapshot *n* staged; the numbers grow
a job that goes on, in a new run   ``adopt(identity)``, and copies are made from then on; ``roll_back(last, first_new)``;
                                   ``commit(last, staged)`` with the values of then; writers are opened; then as above
recovery within a run              ``roll_back(last, first_new)``; ``commit(last, staged)``; then writers are opened again
the end                            ``result(receipt)`` on the driver, with the receipt of the last ``commit``
a run that keeps no snapshots      ``check()`` on the driver; at the end ``publish(staged)`` and ``result(receipt)``, or ``abort()``
=================================  ====================================================================================================

A process may die at any point of any of these; what it was doing is then called again, from ``roll_back`` on. So each has to be repeatable,
and ``commit`` has to take effect in one step; ``rayad.testing.check_sink`` plays such histories against a sink. A table in a database
does so when each row has the number of its snapshot:

>>> TABLE: dict[int, list[str]] = {}  # stands for a table; one statement of Python, for one transaction
>>> class TableWriter(SinkWriter):
...     def __init__(self):
...         self.rows = []
...     def write(self, time, batch):
...         self.rows += batch
...     def stage(self):
...         rows, self.rows = self.rows, []
...         return rows
>>> class TableSink(Sink):
...     commits = True
...     def open(self, replica, parallelism):
...         return TableWriter()
...     def commit(self, snapshot, staged):
...         TABLE[snapshot] = [row for rows in staged for row in rows]  # in place of what there is of it: may be repeated
...         return sum(map(len, TABLE.values()))
...     def roll_back(self, last, first_new):
...         for snapshot in [n for n in TABLE if n > last]:
...             del TABLE[snapshot]
...     def publish(self, staged):
...         return self.commit(1, staged)
>>> sink = TableSink()
>>> writer = sink.open(0, 1)
>>> writer.write(Timestamp(0), ["a"])
>>> staged = writer.stage()                      # snapshot 1
>>> sink.commit(1, [staged]), sink.commit(1, [staged])
(1, 1)
>>> writer.write(Timestamp(0), ["b"])
>>> sink.commit(2, [writer.stage()])             # snapshot 2, of which a part is lost later: the job resumes from snapshot 1
2
>>> sink.roll_back(1, 4), sink.commit(1, [staged]), TABLE
(None, 1, {1: ['a']})
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from rayad.progress import DataflowError, Timestamp


class SinkWriter(ABC):
    """The part of a sink that lives in one replica. Single-threaded."""

    @abstractmethod
    def write(self, time: Timestamp, batch: Any) -> None:
        """Accept records of ``time``: a list of Python objects or a ``pyarrow.RecordBatch``."""

    @abstractmethod
    def stage(self) -> Any:
        """Flush, and return a picklable description of (or the data) written since the last call.

        Called with every snapshot and at the end, so it must be cheap when nothing was written: the replica waits for it. What it
        describes, such as files, must survive the replica until it is published or the sink is aborted. The returned value must not be
        changed afterwards: it is pickled later.
        """

    def kept_bytes(self) -> int:
        """About how many bytes of memory hold what was written since the last ``stage()``; 0 if it is in files, or small.

        In a run that keeps snapshots, a writer that holds much is asked to ``stage()`` early. The values wait on disk, and ``commit`` gets
        them with the others of their snapshot.
        """
        return 0

    def abort(self) -> None:
        """The replica ends early: remove what was written since the last ``stage()``. Called at most once; must not raise.

        What ``stage()`` returned may belong to a complete snapshot: leave it to :meth:`Sink.abort` and :meth:`Sink.result`.
        """


class Sink(ABC):
    """A destination for results. Instances are pickled to the replicas and to the coordinator."""

    commits: bool = False
    """Whether results are shown with each snapshot, by :meth:`commit`; otherwise at the end, by :meth:`publish`."""
    tells_updates: ClassVar[bool] = False
    """Whether replicas keep the last records that they write to it, for ``job.updates(name)``."""
    run: int = 0
    """The run number of the coordinator that calls, which is greater than that of every one before it; set before any call of a job that
    keeps snapshots but ``check``, ``identity`` and ``adopt``. A sink that has seen a greater one is called by a coordinator that was taken
    for dead: raise an error, and change nothing."""

    def is_same_place(self, other: Sink) -> bool:
        """Tell whether two sinks of one program would overwrite each other; the second one is then refused when the program is written."""
        return False

    def check(self) -> None:
        """Raise ConfigError if the output cannot be written. Called when a job starts afresh, not when it resumes. May be called
        repeatedly."""

    state_version: ClassVar[int] = 1
    """The version of ``stage()``, kept with snapshots beside the class's name: raise it when what was staged before cannot be published."""

    @abstractmethod
    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """Open the writer of one replica (0 <= replica < parallelism). May be called again for a replica that has died."""

    @abstractmethod
    def publish(self, staged: Sequence[Any]) -> Any:
        """Make everything in ``staged`` visible at once, and return a picklable receipt. Runs in the coordinator; must be idempotent.

        ``staged`` iterates over every value that a writer staged, of all snapshots and of the end, in the order of the snapshots. It is
        read from the store, one file at a time, whenever it is iterated over, so a sink that keeps no value needs memory for one only.
        """

    def commit(self, snapshot: int, staged: Sequence[Any]) -> Any:
        """Snapshot number ``snapshot`` is complete: make what it staged visible, in one step, and return a picklable receipt for all
        output so far.

        ``staged`` is read as in :meth:`publish`; iterating over it may raise errors of the store, after which an open transaction must be
        rolled back. It may be called again with the same values after a crash, and nothing may then appear twice. Only for sinks with
        ``commits``.
        """
        raise DataflowError(f"{type(self).__name__} has commits = True and no method commit(snapshot, staged)")

    def condense(self, staged: Sequence[Any]) -> Sequence[Any]:
        """Fewer values that :meth:`publish` makes the same of as of ``staged``: what several snapshots have staged, in their order.

        Called in the coordinator when files of earlier snapshots are merged, so that what waits for the end of the job does not grow with
        their number. Gives at least one value. As it stands it gives ``staged``. Not called with ``commits``.
        """
        return staged

    def identity(self) -> str | None:
        """Return what another run must know to continue the same output (such as a job id in file names), or None."""
        return None

    def adopt(self, identity: str) -> None:
        """Continue the output of the run that returned this ``identity()``. Called in the coordinator before ``roll_back``; the
        replicas' copies are made afterwards."""

    def roll_back(self, last: int, first_new: int) -> None:
        """The job resumes from snapshot ``last``: remove what later snapshots committed or began to commit. ``commit(last, ...)``
        follows at once.

        New snapshots have numbers from ``first_new`` on. Snapshots above ``last`` and below ``first_new`` are void: refuse whoever still
        tries to commit one, such as a coordinator that was wrongly taken for dead. Only for sinks with ``commits``.
        """

    def abort(self) -> None:
        """The job failed or was cancelled: remove everything that is not visible. Must not raise.

        Not called for a run that keeps snapshots, because the job can be resumed and a snapshot may refer to what is staged.
        """

    def result(self, receipt: Any) -> Any:
        """The job is complete: turn the last receipt into the value of ``result[name]``. Runs on the driver, whose copy has adopted
        nothing.

        Staged data is no longer needed.
        """
        return receipt
