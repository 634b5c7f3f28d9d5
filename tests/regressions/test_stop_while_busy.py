"""stop(drain=True) reaches a replica whose event loop is in user code: it was lost if next_batch took more than 10 s."""

from __future__ import annotations

import threading
from typing import Any

import rayad as rd
from rayad.actors.job import Silent
from tests.actors.hosts import start_hosts

_READING, _GO = threading.Event(), threading.Event()


class Slow(rd.Source):
    """The second call of next_batch returns when the test lets it; the source never ends by itself."""

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return _SlowPart()


class _SlowPart(rd.SourcePart):
    def __init__(self) -> None:
        self.given = 0

    def next_batch(self) -> rd.SourceBatch:
        if self.given == 1:
            _READING.set()
            assert _GO.wait(60)
        self.given += 1
        return rd.SourceBatch(0, [self.given])

    def offset(self) -> int:
        return self.given


def test_a_source_that_reads_for_long_is_told_to_stop() -> None:
    flow = rd.Dataflow("slow")
    flow.source(Slow(), name="slow").key_by(lambda n: 0).count().collect("counts")
    hosts = start_hosts(flow)
    assert _READING.wait(20)
    host = hosts.process("slow")
    host.stop([hosts.stage("slow")])  # at once, and without an error
    report = hosts.look("slow")
    assert report.records_in == 1
    assert report.activity is not None
    assert (report.activity.callback, report.activity.time) == ("next_batch", None)
    assert "next_batch (" in report.activity.user
    assert "test_stop_while_busy.py" in report.activity.user
    assert "assert _GO.wait(60)" in report.activity.stack
    assert report.waiting == [f"does not answer: its event loop is busy with {report.activity}"]
    _GO.set()
    hosts.join()
    assert host.activity() is None
    assert [record for _, record in hosts.result("counts")] == [(0, 2)]


def test_a_silent_replica_says_what_it_is_busy_with() -> None:
    gone = Silent("'count'[1]", "10.0.0.7", 12.34)
    assert str(gone) == "'count'[1] on node 10.0.0.7 has not answered for 12.3 s: its process is stopped, or its node is gone"
