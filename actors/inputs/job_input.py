"""The sending end of a live input, which all runtimes share."""

from __future__ import annotations

import threading
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from rayad.actors.lead.saved_inputs import SavedEpochs
from rayad.dataflow.config import check_timeout
from rayad.dataflow.items import as_items
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.progress import ConfigError, DataflowError, arguments, show


class JobInput(ABC):
    """The sending end of a live input. Epochs start at 0 and never decrease.

    In a job that resumes from a snapshot (``RunConfig(resume=...)``) ``sent``, ``epoch`` and ``closed`` say how much of the input the
    snapshot holds: the driver sends again from call number ``sent`` on, counted from 0. ``note`` is the last text of :meth:`keep_note` in
    it.

    An outer system that repeats whatever was not acknowledged (Spark's foreachBatch, a queue) is connected like this: send what it delivers
    as an epoch, advance, :meth:`wait_saved`, then acknowledge.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.sent = 0
        """How many calls of :meth:`send` there have been, those before the snapshot included."""
        self.begun = -1
        """The last epoch in which records were sent by this handle; -1: none were."""
        self.closed = False
        self.note: str | None = None
        self._one_at_a_time = threading.RLock()
        """Calls, and epochs that advance by themselves: a batch must not be sent in an epoch that has just ended."""

    def __init_subclass__(cls) -> None:
        explains_calls(cls)

    def send(self, records: Any, *, timeout_s: float | None = None) -> None:
        """Send records (a list, RecordBatch or Table) of the current epoch. Blocks while the dataflow cannot keep up.

        Raises what ended the job, or TimeoutError after ``timeout_s``: then nothing was sent, unless the message says that this is unknown.
        """
        self._require_open("send records")
        batch = as_items(records, f"what was sent to input {self.name!r}")
        if isinstance(batch, pa.Table):
            raise too_large(f"what was sent to input {self.name!r}", "send")
        with self._in_turn(check_timeout(timeout_s, "send(timeout_s)")) as left_s:
            self._require_open("send records")
            self.sent = self._send(batch, left_s)
            self.begun = self.epoch

    def advance_to(self, epoch: int) -> None:
        """Advance to ``epoch``: no more records before it will be sent."""
        epoch = arguments.epoch(epoch, f"advance_to(epoch) of input {self.name!r}")
        self._look()
        self._require_open(f"advance to {epoch}")
        with self._in_turn():
            if epoch < self.epoch:
                raise DataflowError(f"input {self.name!r} cannot go back from epoch {self.epoch} to {epoch}: epochs only grow")
            if epoch > self.epoch:
                self._advance(epoch)
                self.epoch = epoch

    def tick(self) -> bool:
        """Advance to the next epoch, as inputs with ``epoch_s`` do by themselves. Returns False if the input is closed."""
        with self._in_turn():
            if self.closed:
                return False
            self._tick(self.epoch + 1)
            self.epoch += 1
            return True

    def keep_note(self, text: str) -> None:
        """Store a text with this input, replacing the previous one: snapshots that hold what is sent from here on hold it, too.

        Use it to recognise the sender after a failure of the driver: the id of a query, an address.
        """
        self._require_open("keep a note")
        if not isinstance(text, str):
            raise DataflowError(f"keep_note of input {self.name!r} was given {show(text, 60)}: it takes a text")
        self._keep_note(text)
        self.note = text

    def saved(self) -> SavedEpochs:
        """Say which epochs of this input snapshots hold. Raises ConfigError if the job keeps none."""
        return self._saved()

    def wait_saved(self, epoch: int, *, timeout_s: float | None = None) -> None:
        """Wait until a complete snapshot holds everything of ``epoch`` and before; asks for one, even if none is taken by interval.

        From then on the driver may forget that input: a job that resumes has it. Raises what ended the job, ConfigError if it keeps no
        snapshots, DataflowError while the input is still in ``epoch``, TimeoutError after ``timeout_s`` (the job runs on).
        """
        epoch = arguments.epoch(epoch, f"wait_saved(epoch) of input {self.name!r}")
        if not self.closed and epoch >= self.epoch:
            self._look()  # others may have advanced it; else not, since that waits for the calls of other senders
        if not self.closed and epoch >= self.epoch:
            raise DataflowError(
                f"wait_saved({epoch}) of input {self.name!r}: it is in epoch {self.epoch}, of which more may come; "
                f"advance_to({epoch + 1}) first"
            )
        self._wait_saved(epoch, check_timeout(timeout_s, "wait_saved(timeout_s)"))

    def close(self) -> None:
        """End the input. Closing twice does nothing; a close that failed may be repeated."""
        with self._in_turn():
            if not self.closed:
                self._close()
                self.closed = True

    def __enter__(self) -> JobInput:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _in_turn(self, timeout_s: float | None = None) -> Iterator[float | None]:
        """One call at a time; gives what is left of its timeout. Raises TimeoutError where others take all of it."""
        began_s = clock.monotonic()
        if self._one_at_a_time.acquire(timeout=0):
            left_s = timeout_s
        elif self._one_at_a_time.acquire(timeout=-1 if timeout_s is None else timeout_s):
            left_s = None if timeout_s is None else max(0.0, timeout_s - (clock.monotonic() - began_s))
        else:
            raise took_nothing(self.name, self._job_name(), timeout_s or 0.0)
        try:
            yield left_s
        finally:
            self._one_at_a_time.release()

    def _require_open(self, what: str) -> None:
        if self.closed:
            raise DataflowError(f"input {self.name!r} is closed: it cannot {what}")

    def _look(self) -> None:
        """Bring ``epoch``, ``sent``, ``closed`` and ``note`` up to date, where others send to this input, too."""

    @abstractmethod
    def _job_name(self) -> str: ...

    @abstractmethod
    def _send(self, batch: Any, timeout_s: float | None) -> int:
        """Gives how many calls of send there have been, with this one."""

    @abstractmethod
    def _advance(self, epoch: int) -> None: ...

    def _tick(self, epoch: int) -> None:
        """Advance without being told to by a sender."""
        self._advance(epoch)

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _keep_note(self, text: str) -> None: ...

    @abstractmethod
    def _saved(self) -> SavedEpochs: ...

    @abstractmethod
    def _wait_saved(self, epoch: int, timeout_s: float | None) -> None: ...


def too_large(what: str, call: str) -> DataflowError:
    """What a Table raises that does not fit into one RecordBatch."""
    return DataflowError(f"{what} is a Table with more than 2 GiB in a column: {call} table.to_batches() one by one")


def no_snapshots(name: str, job: str) -> ConfigError:
    """What asking for saved epochs raises."""
    return ConfigError(f"input {name!r} of job {job!r}: the job keeps no snapshots, so nothing is saved; give RunConfig(storage_path=...)")


def not_saved(name: str, job: str, epoch: int, timeout_s: float) -> TimeoutError:
    """What ``wait_saved(timeout_s=)`` of an input raises."""
    return TimeoutError(
        f"epoch {epoch} of input {name!r} of job {job!r} is in no complete snapshot after {timeout_s:g} s; the job goes on: wait again, or "
        "see job.explain_stuck()"
    )


def took_nothing(name: str, job: str, timeout_s: float) -> TimeoutError:
    """What ``send(..., timeout_s=)`` of an input raises."""
    return TimeoutError(
        f"input {name!r} of job {job!r} has taken nothing for {timeout_s:g} s: nothing was sent, send it again; job.explain_stuck() "
        "tells who takes long"
    )


def perhaps_taken(name: str, job: str, timeout_s: float) -> TimeoutError:
    """What ``send(..., timeout_s=)`` of a detached job's input raises when its keeper has not answered."""
    return TimeoutError(
        f"input {name!r} of job {job!r}: its keeper has not answered for {timeout_s:g} s, so it is not known whether the records were "
        "taken: once it answers, job.input(name).sent says how many calls of send it has taken"
    )
