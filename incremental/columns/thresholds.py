"""How often a record is there as an expression says: one of the pair of the record and its count, in columns and in rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.expressions import Expressions, checked_expression
from rayad.dataflow.records.values import with_plain_tuples
from rayad.incremental.columns.kept import COUNT
from rayad.incremental.columns.linear import Linear, Numbers
from rayad.incremental.records import as_fields
from rayad.progress import DataflowError

RECORD, TIMES = "0", "1"
"""As the parts of a tuple are called."""


class Threshold(Linear):
    """So often as an expression says, which may be below 0. Records are keys. It is a function of a record and its count, too.

    Args:
        expression: over ``rd.col("0")``, the record, and ``rd.col("1")``, how often it is there: a whole number, or whether it is there.
    """

    takes_negative: ClassVar[bool] = True

    def __init__(self, expression: pc.Expression) -> None:
        self._expressions = Expressions([checked_expression(expression, "threshold")], "threshold")

    def __call__(self, record: Any, count: int) -> int:
        ((often,),) = self._expressions.of_rows([{RECORD: as_fields(record), TIMES: count}])
        if often is not None and not isinstance(often, int):
            raise self._no_number(type(often).__name__)
        return int(often or 0)

    def often(self, keys: pa.Array, numbers: Numbers) -> Any:
        there = np.flatnonzero(numbers[COUNT])
        record = with_plain_tuples(rows_at(keys, there))
        batch = pa.RecordBatch.from_arrays([record, pa.array(numbers[COUNT][there])], names=[RECORD, TIMES])
        (found,) = self._expressions.of_columns(batch)
        if not (pa.types.is_boolean(found.type) or pa.types.is_integer(found.type) or pa.types.is_null(found.type)):
            raise self._no_number(str(found.type))
        out = np.zeros(len(keys), np.int64)
        out[there] = pc.fill_null(found.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return out

    def results(self, numbers: Numbers) -> pa.Array:
        return pa.nulls(len(numbers[COUNT]))

    def _no_number(self, got: str) -> DataflowError:
        return DataflowError(
            f"threshold was given the expression {self._expressions.expressions[0]}, which gives {got}: it must give a whole number, how "
            "often the record is there, or true or false"
        )


__all__ = ["Threshold"]
