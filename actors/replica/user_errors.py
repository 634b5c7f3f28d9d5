"""Errors of user code: what failed and where, said once, with the user's exception as the cause.

Rule: the innermost place that knows operator, replica, line, time and record adds them to the error; everything further out passes it on.
"""

from __future__ import annotations

import random
import re
from typing import Any, NoReturn

import pyarrow as pa

from rayad.dataflow.config import FailureConfig
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, RayadError, say, show, without_secrets
from rayad.snapshots.restarts import Restarts


def describe(batch: Any) -> str:
    """A batch in a few words: how many records, and the first."""
    rows = batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)
    try:
        first = to_rows(batch.slice(0, 1) if isinstance(batch, pa.RecordBatch) else batch)[0]
    except Exception:  # columns that Python's types cannot hold; what is described here is another error
        return f"{rows} records"
    return f"{rows} records from {show(first)}"


def is_located(error: Exception) -> bool:
    """Whether an error already says where it happened."""
    return isinstance(error, RayadError) and bool(error.__dict__.get("located"))


WILL_COME_BACK = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, SyntaxError, TypeError, ValueError)
"""Classes of errors that follow from program and data. Others may be transient: an OSError, or a class of another library."""
_REPLICA = re.compile(r"(?<=')\[\d+\]")
_RECORDS = re.compile(r", \d+ records from .*?\)(?= at )")


def sign_of(error: BaseException) -> str:
    """A text that two errors of the user's code share if they are one fault, in whatever replica and batch; empty if it may be transient.

    >>> try: raise_located("'price'[3] (a.py:7) failed in on_recv (input 0, 3 records from 1) at (2)", ValueError("bad"))
    ... except DataflowError as error: sign_of(error)
    "'price' (a.py:7) failed in on_recv (input 0) at (2): ValueError: bad"
    """
    cause = error
    while isinstance(cause, RayadError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if not isinstance(error, RayadError) or not isinstance(cause, (*WILL_COME_BACK, DataflowError)):
        return ""
    return _RECORDS.sub(")", _REPLICA.sub("", str(error)))


def restarts_of(config: FailureConfig, chance: random.Random) -> Restarts:
    """What decides about the restarts of a job of this configuration."""
    return Restarts(
        failures_max=config.most,
        window_s=config.window_s,
        reset_after_s=config.reset_after_s,
        delay_s=config.delay_s,
        delay_max_s=config.delay_max_s,
        same_max=config.same_error_max,
        chance=chance,
    )


def raise_located(place: str, error: Exception) -> NoReturn:
    """Raise an error with its place. Rayad's errors keep their class and details; a user's becomes the cause of a DataflowError."""
    if is_located(error):
        raise error
    if isinstance(error, RayadError):
        raise type(error)(f"{place}: {error}", **{**error.__dict__, "located": True}) from error
    raise DataflowError(f"{place}: {type(error).__name__}: {say(error)}", located=True) from without_secrets(error)
