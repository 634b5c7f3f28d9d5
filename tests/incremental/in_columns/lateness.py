"""The programs of ``event_time/`` that forget, over records with fields: as they are in columns, or begin in them and go on in rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import rayad as rd
from rayad.incremental import moment_vertex
from tests.incremental.event_time.test_lateness_of_joins import GAP, LATENESS, LOWER, UPPER, OnTime
from tests.incremental.event_time.test_lateness_of_joins import PROGRAMS as IN_ROWS
from tests.incremental.field_programs import Form, stream_of
from tests.incremental.programs import History

FIELDS = ("side", "key", "at", "n")
SCHEMA = pa.schema({"side": pa.int64(), "key": pa.string(), "at": pa.int64(), "n": pa.int64(), "diff": pa.int64()})


@dataclass(frozen=True)
class InFields:
    """A program of records ``side, key, at, n``.

    Args:
        program: the same of tuples; it says what must come out.
        build: of records with fields.
        form: as what they come; "rows later": in rows from the middle on.
    """

    program: OnTime
    build: Callable[[rd.Collection], rd.Collection]
    form: Form = "columns"

    def flow(self, changes: History) -> rd.Dataflow:
        """The dataflow of a history."""
        flow = rd.Dataflow("in-fields")
        epochs = [[{**dict(zip(FIELDS, record, strict=True)), "diff": weight} for record, weight in some] for some in changes]
        stream = stream_of(flow, epochs, SCHEMA, self.form)
        self.build(stream.as_collection(diff="diff")).collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        """As the program of tuples does."""
        self.program.verify(changes, [(time, (_tuples(record), weight)) for time, (record, weight) in collected])


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value[name] for name in FIELDS)
    if isinstance(value, rd.Window) or not isinstance(value, tuple):
        return value
    return tuple(map(_tuples, value))


def _side(records: rd.Collection, side: int) -> rd.KeyedCollection:
    return records.filter(rd.col("side") == side).key_by("key")


def _interval(how: Any, lower: int = LOWER, upper: int = UPPER) -> Callable[[rd.Collection], rd.Collection]:
    within = rd.windows.between(lower, upper)
    return lambda records: _side(records, 0).join_interval(_side(records, 1), within, "at", how=how, lateness=LATENESS)


def _asof(direction: Any, tolerance: Any, exact: bool, how: Any) -> Callable[[rd.Collection], rd.Collection]:
    rule = {"direction": direction, "tolerance": tolerance, "allow_exact_matches": exact}
    return lambda records: _side(records, 0).join_asof(_side(records, 1), "at", how=how, lateness=LATENESS, **rule)


def _sessions(records: rd.Collection) -> rd.Collection:
    more = records.with_columns({"more": rd.col("n") + 1})
    return more.key_by("key").window(rd.windows.session(GAP), "at", lateness=LATENESS).sum("more")


BUILDS: dict[str, Callable[[rd.Collection], rd.Collection]] = {
    "backward": _asof("backward", None, True, "left"),
    "backward, near and earlier": _asof("backward", 2, False, "inner"),
    "forward": _asof("forward", None, True, "left"),
    "forward, near and later": _asof("forward", 7, False, "left"),
    "nearest": _asof("nearest", None, True, "left"),
    "nearest, near": _asof("nearest", 7, True, "inner"),
    "sessions": _sessions,
    **{f"interval, {how}": _interval(how) for how in ("inner", "left", "right", "full", "semi", "anti")},
    "interval of later ones": _interval("full", 2, 9),
    "interval of earlier ones": _interval("full", -9, -2),
}


def programs(form: Form) -> dict[str, InFields]:
    """By the names that they have in rows."""
    return {name: InFields(IN_ROWS[name], build, form) for name, build in BUILDS.items()}


def no_rows() -> Any:
    """Within it a vertex of collections that makes rows of columns fails."""
    return patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}"))


__all__ = ["BUILDS", "GAP", "InFields", "no_rows", "programs"]
