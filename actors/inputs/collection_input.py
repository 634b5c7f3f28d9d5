"""The sending end of a live collection."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rayad.actors.inputs.job_input import JobInput, too_large
from rayad.dataflow import hooks
from rayad.dataflow.items import as_items


class CollectionInput:
    """Inserts and removes records of a live collection; see :class:`rayad.actors.inputs.job_input.JobInput`.

    Records are a list, or a RecordBatch, a Table, or a DataFrame of pandas or Polars, whose rows are records by name; those stay columns
    where a collection takes them (docs/collections.md). What is inserted in one form may be removed in another.

    Args:
        sent_by: the live input that carries the changes.
    """

    def __init__(self, sent_by: JobInput) -> None:
        self.input = sent_by

    def insert(self, records: Any) -> None:
        """These come, in the current epoch. Raises DataflowError for what has no records, and for columns with NaN in them."""
        self._send(records, 1, "insert")

    def remove(self, records: Any) -> None:
        """These go, in the current epoch. Each must be there when the epoch is over: else the job fails, and names it."""
        self._send(records, -1, "remove")

    def _send(self, records: Any, weight: int, what: str) -> None:
        told = f"what was given to {what}() of collection {self.input.name!r}"
        given = as_items(records, told)
        if isinstance(given, pa.Table):
            raise too_large(told, what)
        if isinstance(given, pa.RecordBatch):
            self.input.send(hooks.call("changes_of_batch", given, weight))
        else:
            self.input.send([(record, weight) for record in given])

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
