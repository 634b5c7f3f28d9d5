"""A sink whose ``publish`` hangs is named, like functions of vertices. Issue 11: "A user's function that hangs: not seen"."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import rayad as rd
from rayad.actors.store.sink_calls import LONG_S, SinkCalls
from rayad.dataflow.plan import SinkSpec


class Hangs(rd.Sink):
    """A sink whose ``publish`` waits for the test."""

    def __init__(self) -> None:
        self.may_go_on, self.has_begun = threading.Event(), threading.Event()

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        raise NotImplementedError

    def publish(self, staged: Any) -> Any:
        self.has_begun.set()
        assert self.may_go_on.wait(60)
        return list(staged)


def spec(sink: rd.Sink) -> SinkSpec:
    flow = rd.Dataflow("f")
    flow.from_items([1]).sink(sink, "table")
    return flow.plan().sinks[0]


def test_a_publish_that_hangs_is_named_with_its_function_and_for_how_long(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [100.0]
    calls, sink, given = SinkCalls("job", lambda: now_s[0]), Hangs(), []
    assert calls.activity() is None
    thread = threading.Thread(target=lambda: given.append(calls.call(spec(sink), "publish", [1, 2])))
    thread.start()
    try:
        assert sink.has_begun.wait(60)
        now_s[0] += 3.0
        told = calls.activity()
        assert told is not None
        assert str(told).startswith("publish of sink 'table' (test_sink_calls.py:")
        assert " for 3.0 s, in publish (" in str(told)
        assert told.for_s == 3.0
        with caplog.at_level(logging.WARNING):
            for step_s in (LONG_S - 3.5, 1.0, 1.0, LONG_S):  # twice long enough: after 10 s, and when it has taken twice as long
                now_s[0] += step_s
                calls.activity()
        assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
            "job 'job': the coordinator is busy with publish of sink 'table'"
        ] * 2
    finally:
        sink.may_go_on.set()
        thread.join(60)
    assert given == [[1, 2]]
    assert calls.activity() is None


def test_a_publish_that_fails_is_over() -> None:
    calls = SinkCalls("job")
    with pytest.raises(AttributeError):
        calls.call(spec(Hangs()), "no_such_hook")
    assert calls.activity() is None
