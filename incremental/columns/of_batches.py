"""``map_batches`` of collections: a function of whole batches of records, which gives one record for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators import stateless as el
from rayad.dataflow.operators.map_batches import ROWS, MapBatches
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.values import is_tuple, with_plain_tuples
from rayad.incremental.columns.form import DIFF, RECORD, changes, is_changes, normalised
from rayad.incremental.records import as_fields, as_record
from rayad.incremental.remembering import OfRecords
from rayad.progress import DataflowError

RECORDS_MAX = 1 << 16
"""So many are given at a time to a function that is remembered: what comes in one epoch may be much."""


@dataclass(slots=True)
class OfBatches(el.Element):
    """The records of changes as a function of batches makes them; how often each comes or goes stays as it is.

    Args:
        step: of streams, which knows in which form the function takes batches, and what it may give.
    """

    base = "map_batches"

    step: el.Element

    def for_replica(self) -> el.Element:
        return OfBatches(self.step.for_replica())

    def warm_up(self) -> None:
        self.step.warm_up()

    def close(self) -> None:
        self.step.close()

    def rows_because(self, schema: pa.Schema) -> str | None:
        return self.step.rows_because(schema)

    def apply(self, batch: Any) -> Any:
        given, weights = self._given(batch)
        return _with_weights(_called(self.step, given), weights) if len(weights) else []

    def culprit(self, batch: Any) -> Any:
        return None

    def _given(self, batch: Any) -> tuple[Any, Any]:
        """Records in columns where they have fields and come so, else a list, and their weights."""
        if is_changes(batch):
            record = batch.column(RECORD)
            if pa.types.is_struct(record.type) and not record.null_count:
                return pa.RecordBatch.from_struct_array(with_plain_tuples(record)), batch.column(DIFF)
        rows = to_rows(batch)
        return _listed([record for record, _ in rows], self.step), [weight for _, weight in rows]


class RememberedBatches(OfRecords):
    """A function of batches as one of many records, each of which has one result.

    Args:
        step: as :class:`OfBatches` has it.
    """

    def __init__(self, step: el.Element) -> None:
        self._step = step

    def for_replica(self) -> RememberedBatches:
        """See there."""
        return RememberedBatches(self._step.for_replica())

    def __call__(self, records: Sequence[Any]) -> list[list[Any]]:
        out: list[list[Any]] = []
        for at in range(0, len(records), RECORDS_MAX):
            made = _called(self._step, _listed(records[at : at + RECORDS_MAX], self._step))
            out += [[record] for record in _rows(made)]
        return out


def _listed(records: Sequence[Any], step: el.Element) -> list[Any]:
    """Records as a function is given them: where it takes columns the parts of tuples are called "0", "1", ... as in expressions."""
    takes_columns = isinstance(step, MapBatches) and step.batch_format not in (None, ROWS)
    return [as_fields(record) for record in records] if takes_columns else list(records)


def _called(step: el.Element, given: Any) -> Any:
    """What the function gives for so many records. Raises DataflowError unless it is as many."""
    out = step.apply(given)
    wanted, got = len(given), len(out)
    if wanted != got:
        raise DataflowError(
            f"map_batches of a collection: the function was given {wanted} records and gave {got}; it has to give one for each, in their "
            "order, since each is there as often as the record of which it is made; leave records out with filter() behind it"
        )
    return out


def _rows(made: Any) -> list[Any]:
    if isinstance(made, pa.Table):
        return [as_record(row) for batch in made.to_batches() for row in to_rows(batch)]
    return list(map(as_record, to_rows(made)))


def _with_weights(made: Any, weights: Any) -> Any:
    """Changes in columns where the records have such a form."""
    if isinstance(made, pa.RecordBatch) and made.num_columns:
        record, counts = normalised(made.to_struct_array()), _counts(weights)
        if record is not None and counts is not None and not is_tuple(record.type):
            return changes(record, counts)
    plain = weights.to_pylist() if isinstance(weights, pa.Array) else weights
    return list(zip(_rows(made), plain, strict=True))


def _counts(weights: Any) -> Any:
    try:
        return weights if isinstance(weights, pa.Array) else np.array(weights, np.int64)
    except OverflowError:
        return None


__all__ = ["OfBatches", "RememberedBatches"]
