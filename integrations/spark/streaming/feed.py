"""Feeds each micro-batch of a Spark query to the job exactly once, whatever dies meanwhile.

Spark writes the offsets of batch ``n`` to its checkpoint, calls foreachBatch, and writes ``commits/n`` when that has returned. After a
crash it repeats at most its last batch, under the same number ``n`` and query id ``q``, perhaps with other partitions or other rows. So:

- the epoch of the input is the number of the next batch: batches below it are in the job, from a snapshot or a staged copy;
- a batch is sent as **one** frame: a snapshot holds all of it or nothing. ``sent`` counts batches, so ``sent == n + 1`` in epoch ``n``
  means that the snapshot was taken between the batch and the end of its epoch;
- ``q`` is the input's note: another checkpoint folder begins at 0 again under another ``q``, which must not count as a repetition.

Invariant, between two batches: ``sent == epoch``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from rayad.actors.inputs.job_input import JobInput
from rayad.progress import ConfigError


class Kept(Protocol):
    """Where the rows of micro-batches are until all kept snapshots hold them."""

    lag_max: int
    """How many micro-batches without a snapshot there may be when Spark is told that one is done; 0: a snapshot has to hold it first."""

    def keep(self, query: str, number: int, frame: Any) -> Sequence[Any]:
        """Store the rows of a micro-batch; gives references to them."""

    def found(self, query: str) -> Sequence[tuple[int, Sequence[Any]]]:
        """The micro-batches that an earlier driver stored, by number: references to their rows."""

    def release(self, below: float) -> None:
        """Release the micro-batches below this number: all kept snapshots hold them."""

    def close(self) -> None:
        """Release what nobody needs after the end of the job."""


class BatchFeed:
    """Feeds a live input with micro-batches; called by Spark, one at a time.

    Args:
        live: the input.
        kept: where their rows are until then.
        checkpoint: Spark's folder, for messages.
    """

    at: Callable[[str, int], None] = staticmethod(lambda step, number: None)
    """For tests: called between any two steps of a micro-batch."""

    def __init__(self, live: JobInput, kept: Kept, checkpoint: str) -> None:
        self.error: BaseException | None = None
        """Why a micro-batch was not taken."""
        self._live = live
        self._kept = kept
        self._checkpoint = checkpoint
        self._is_resumed = False
        self._lock = threading.Lock()

    def resume(self, query: str | None) -> None:
        """Before anything new, send what an earlier driver stored and no snapshot holds. ``query``: its id; None: not known yet."""
        query = self._live.note or query
        with self._lock:
            if query is not None and not self._is_resumed:
                self._resume(query)

    def on_batch(self, query: str, number: int, frame: Any) -> None:
        """Take a micro-batch; returns when Spark may forget it. Raises the error that ended the job, or ConfigError if the micro-batch is
        not the next one of the job."""
        try:
            with self._lock:
                if not self._is_resumed:
                    self._resume(query)
                self._take(query, number, frame)
        except BaseException as error:
            self.error = error
            raise

    def _resume(self, query: str) -> None:
        for number, references in self._kept.found(query):
            if number >= self._live.epoch:
                self._check(query, number)
                self._send(query, number, references)
        self._is_resumed = True

    def _take(self, query: str, number: int, frame: Any) -> None:
        self.at("begun", number)
        self._check(query, number)
        if number >= self._live.epoch:
            in_snapshot = self._live.sent > number  # then only the end of its epoch is missing
            references = [] if in_snapshot else self._kept.keep(query, number, frame)
            self.at("kept", number)
            self._send(query, number, references)
        if number >= self._kept.lag_max:
            self._live.wait_saved(number - self._kept.lag_max)
        self.at("saved", number)
        self._kept.release(self._live.saved().kept)
        self.at("released", number)

    def _send(self, query: str, number: int, references: Sequence[Any]) -> None:
        live = self._live
        if live.note is None:
            live.keep_note(query)
        if live.sent == number:
            live.send(list(references))
        self.at("sent", number)
        live.advance_to(number + 1)
        self.at("advanced", number)

    def _check(self, query: str, number: int) -> None:
        """Raise ConfigError unless a micro-batch is the next one of the job, or is in it already."""
        live = self._live
        if live.note is not None and live.note != query:
            self._refuse(
                f"it has micro-batches of query {live.note}, and the checkpoint is of query {query}, whose numbers begin at 0 again; "
                f"give the checkpoint folder of {live.note}, or begin afresh with resume='never'"
            )
        if live.note is None and live.epoch:
            self._refuse(
                f"it resumes in epoch {live.epoch} and has no micro-batch of any query, whose numbers begin at 0: initial state that was "
                "written for it must be of epoch 0"
            )
        if number > live.epoch and not live.epoch:
            self._refuse(
                f"it begins afresh, and the checkpoint is at micro-batch {number} of query {query}: what came before would be missing; "
                "resume the job that has taken it (resume='latest'), or give a new checkpoint folder"
            )
        if number > live.epoch:
            self._refuse(
                f"its snapshot holds micro-batches below {live.epoch} of query {query}, and Spark continues with {number}: it would lose "
                f"those between; delete from the checkpoint commits/N for N of {live.epoch} and more, and offsets/N for N of "
                f"{live.epoch + 1} and more: then Spark computes them again"
            )

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"from_spark: the input {self._live.name!r} does not go with the checkpoint {self._checkpoint!r}: {why}")


__all__ = ["BatchFeed", "Kept"]
