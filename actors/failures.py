"""Errors of user code: what failed where, once, with the user's exception as its cause.

Rule: the innermost place that knows operator, replica, line, time and record says so; everything further out passes that error on as it is.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa

from rayad.dataflow.columnar import to_rows
from rayad.progress import DataflowError, RayadError


def describe(batch: Any) -> str:
    """A batch in a few words: how many records, and the first."""
    rows = batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
    first = to_rows(batch.slice(0, 1) if isinstance(batch, pa.RecordBatch) else batch)[0]
    return f"{rows} records from {first!r:.80}"


def is_located(error: Exception) -> bool:
    """Whether an error already says where it happened."""
    return isinstance(error, RayadError) and bool(error.__dict__.get("located"))


def raise_located(place: str, error: Exception) -> NoReturn:
    """Raise what failed where. Ours keep their class and details, the user's become the cause of a DataflowError that says theirs."""
    if is_located(error):
        raise error
    if isinstance(error, RayadError):
        raise type(error)(f"{place}: {error}", **{**error.__dict__, "located": True}) from error
    raise DataflowError(f"{place}: {type(error).__name__}: {error}", located=True) from error
