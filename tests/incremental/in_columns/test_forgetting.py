"""Vertices that forget in columns: they make no Python object for a row, and keep no more than changes on time can reach."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from rayad.dataflow import windows
from rayad.dataflow.records.values import tuple_array, windows_of
from rayad.dataflow.vertex import begin
from rayad.incremental import functions
from rayad.incremental.columns import ordered
from rayad.incremental.columns.form import keyed_changes
from rayad.incremental.columns.linear import Counted
from rayad.incremental.event_time import columns, limits
from rayad.incremental.event_time.ending import EndingJoin, EndingReduce, KeysEnd, NeedingReduce, window_end
from rayad.incremental.event_time.functions import Latest, Sessions
from rayad.incremental.event_time.operators import LastMeeting
from rayad.incremental.event_time.telling import RECORDS, REFUSED, WINDOWS, OnTime, key_of_each_group
from rayad.incremental.steps import Field
from rayad.progress import Timestamp
from tests.incremental.moments_driven import KEY_GROUPS, Engine

LATENESS, SIZE = 4, 2
AT = Field("at")
ASOF, GAP, WITHIN = windows.AsOf(None, True), windows.session(2), windows.between(-1, 1)
RULE = KeysEnd(LATENESS, window_end, limits.window_ends)
SIDES = [limits.LastMeeting("at", WITHIN, True), limits.LastMeeting("at", WITHIN, False)]
Rows = Callable[[Any, Any], tuple[pa.Array, pa.Array]]
"""Of numbers and event times: keys and records."""


def plain(numbers: Any, at: Any) -> tuple[pa.Array, pa.Array]:
    return pa.array(numbers), pa.StructArray.from_arrays([pa.array(at), pa.array(numbers)], names=["at", "v"])


def in_windows(numbers: Any, at: Any) -> tuple[pa.Array, pa.Array]:
    start, (keys, records) = at // SIZE * SIZE, plain(numbers, at)
    return tuple_array([keys, windows_of(pa.array(start), pa.array(start + SIZE))]), records


def on_sides(numbers: Any, at: Any) -> tuple[pa.Array, pa.Array]:
    """Every second one of the left side, with the key of the one before."""
    _, records = plain(numbers, at)
    sides = [records.take(pa.array(np.arange(len(at)), mask=numbers % 2 == other)) for other in (1, 0)]
    return pa.array(numbers // 2), tuple_array(sides)


VERTICES: dict[str, tuple[Callable[[], Any], Rows]] = {
    "on time": (lambda: OnTime(LATENESS, AT, limits.TimeOf("at")), plain),
    "count of windows": (lambda: EndingReduce(RULE, functions.count, functions.one, Counted()), in_windows),
    "max of windows": (lambda: EndingReduce(RULE, functions.Best(max, Field("v")), None, ordered.Best(True, "v")), in_windows),
    "join": (lambda: EndingJoin("inner", LATENESS, [LastMeeting(AT, 1, 1), LastMeeting(AT, -1, -1)], SIDES), plain),
    "as-of join": (lambda: NeedingReduce(LATENESS, Latest(ASOF, AT, AT, False), columns.Latest(ASOF, ("at", "at"), False)), on_sides),
    "sessions": (lambda: NeedingReduce(LATENESS, Sessions(GAP, AT), columns.Sessions(GAP, "at")), plain),
}
EACH = pytest.mark.parametrize("name", VERTICES)


class Driven:
    """A vertex that takes the same by each input, and is then told of event time."""

    def __init__(self, name: str) -> None:
        make, self._rows = VERTICES[name]
        self.vertex = make()
        begin(self.vertex, Engine())
        self._told = key_of_each_group(KEY_GROUPS)

    def take(self, epoch: int, numbers: Any, at: Any, *, largest: int) -> None:
        """Insert rows at these event times in an epoch, of which this is the largest event time."""
        keys, records = self._rows(numbers, at)
        *ports, told = range(self.vertex.inputs)
        for port in ports:
            self.vertex.on_recv(port, keyed_changes(keys, records, np.ones(len(numbers), np.int64)), Timestamp(epoch))
        self.vertex.on_recv(told, [(key, largest, 1) for key in self._told], Timestamp(epoch))
        with patch.object(self.vertex, "send_by", lambda *_: None):
            self.vertex.on_notify(Timestamp(epoch))
        assert not self.vertex.rows_are_kept()

    @property
    def rows(self) -> int:
        """How many are kept."""
        return sum(count for name, count in self.vertex.figures().items() if name.startswith("rows of"))


def calls(name: str, rows: int) -> int:
    """How many functions are called, of Python and of C, while so many rows come, become over, and others come too late."""
    driven, found = Driven(name), 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    numbers = np.arange(rows)
    sys.setprofile(count)
    for epoch, at in enumerate((0, 20, 2)):
        driven.take(epoch, numbers, np.full(rows, at) + numbers % 3, largest=max(at, 20 * (epoch > 0)) + 2)
    sys.setprofile(None)
    return found


@EACH
def test_no_function_is_called_for_a_row(name: str) -> None:
    calls(name, 100)  # what is made once
    assert calls(name, 20_000) <= calls(name, 2_000) + 500  # more runs are merged, which calls some


@EACH
def test_no_python_object_is_kept_for_a_row(name: str) -> None:
    driven, rows = Driven(name), 10_000
    numbers = np.arange(rows)
    gc.collect()
    before = sys.getallocatedblocks()
    for epoch in range(3):
        driven.take(epoch, numbers, np.full(rows, 4 * epoch) + numbers % 3, largest=4 * epoch + 2)
    gc.collect()
    assert sys.getallocatedblocks() - before < rows // 10


@EACH
def test_what_is_kept_does_not_grow_with_time(name: str) -> None:
    """Always the same keys, of which as-of joins keep the last right record."""
    driven, each = Driven(name), 10
    most = []
    for epoch in range(120):
        driven.take(epoch, np.arange(each), np.full(each, 3 * epoch), largest=3 * epoch)
        most.append(driven.rows)
    assert max(most[60:]) <= max(most[:60])
    assert max(most) <= 16 * each * (driven.vertex.inputs - 1)
    figures = driven.vertex.figures()
    assert name == "on time" or max(figures.get(RECORDS, 0), figures.get(WINDOWS, 0)) > 100 * (each // 2)


def test_a_late_change_is_counted_so_often_as_it_is_and_not_applied() -> None:
    driven = Driven("on time")
    driven.take(0, np.arange(3), np.full(3, 10), largest=10)
    sent: list[Any] = []
    batch = keyed_changes(*plain(np.arange(4), np.array([5, 6, 5, 7])), np.array([2, 1, -3, 1]))
    driven.vertex.on_recv(0, batch, Timestamp(1))
    with patch.object(driven.vertex, "send_by", lambda edge, some, time: sent.extend(some.column(0).to_pylist())):
        driven.vertex.on_notify(Timestamp(1))
    assert sorted(sent) == [1, 3]
    assert driven.vertex.figures() == {REFUSED: 5}


@EACH
def test_a_snapshot_of_before_there_were_columns_is_read(name: str) -> None:
    driven, again = Driven(name), Driven(name)
    told = driven.vertex.states()["groups" if name != "on time" else "told"]
    told.learn({(key, 7): 1 for key in key_of_each_group(KEY_GROUPS)}, {})
    stored = {part: some for part, some in driven.vertex.checkpoint().items() if part != "columns"}
    again.vertex.restore(stored)
    again.take(1, np.arange(10), np.full(10, 9), largest=9)
    assert again.vertex.figures().get(REFUSED, 0) == 0


def test_late_changes_of_a_window_are_counted_by_record_though_sums_are_kept() -> None:
    """One that comes and another one that goes are two."""
    driven = Driven("count of windows")
    driven.take(0, np.arange(3), np.full(3, 10), largest=10)
    key, records = in_windows(np.array([1, 1, 1]), np.array([2, 3, 3]))
    driven.vertex.on_recv(0, keyed_changes(key, records, np.array([1, -1, -1])), Timestamp(1))
    driven.vertex.on_notify(Timestamp(1))
    assert driven.vertex.figures()[REFUSED] == 3
