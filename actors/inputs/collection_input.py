"""The sending end of a live collection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rayad.actors.inputs.job_input import JobInput
from rayad.progress import DataflowError, show


class CollectionInput:
    """Inserts and removes records of a live collection; see :class:`rayad.actors.inputs.job_input.JobInput`.

    Args:
        sent_by: the live input that carries the changes.
    """

    def __init__(self, sent_by: JobInput) -> None:
        self.input = sent_by

    def insert(self, records: Iterable[Any]) -> None:
        """These come, in the current epoch."""
        self._send(records, 1, "insert")

    def remove(self, records: Iterable[Any]) -> None:
        """These go, in the current epoch. Each must be there when the epoch is over: else the job fails, and names it."""
        self._send(records, -1, "remove")

    def _send(self, records: Iterable[Any], weight: int, what: str) -> None:
        if isinstance(records, (str, bytes, dict)) or not isinstance(records, Iterable):
            raise DataflowError(f"{what}() of collection {self.input.name!r} was given {show(records, 60)}: give a list of records")
        self.input.send([(record, weight) for record in records])

    def advance_to(self, epoch: int) -> None:
        """Advance to ``epoch``: nothing more changes before it."""
        self.input.advance_to(epoch)

    def close(self) -> None:
        """Nothing more changes."""
        self.input.close()

    def __enter__(self) -> CollectionInput:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["CollectionInput"]
