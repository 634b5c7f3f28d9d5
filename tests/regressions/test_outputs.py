"""Bugs in what follows a vertex's outputs: routing, sinks, and errors there. One test per bug, named after it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.replica.core import ReplicaCore
from rayad.dataflow.operators.keys.keyed import PAIRS


def test_two_paths_of_one_replica_to_one_sink_share_its_writer() -> None:
    """Each path opened a writer; only the last one's records were staged, the others were lost."""
    flow = rd.Dataflow()
    items = flow.from_items([1, 2])
    items.map(lambda n: n).union(items.map(lambda n: -n)).collect("out")
    result = flow.run(runtime="local")
    assert sorted(n for _, n in result["out"]) == [-2, -1, 1, 2]


class Numbers(rd.Sink):
    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return NumbersWriter((replica, parallelism))

    def publish(self, staged: Sequence[Any]) -> Any:
        return sorted(staged)


class NumbersWriter(rd.SinkWriter):
    def __init__(self, number: tuple[int, int]) -> None:
        self.number = number

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        pass

    def stage(self) -> Any:
        return self.number


def test_writers_of_two_stages_have_different_numbers() -> None:
    """Both sources opened writer 0 of 1: a sink that names its files by this number would have overwritten one of them."""
    flow = rd.Dataflow()
    flow.from_items([1]).union(flow.from_items([2, 3], parts=2)).sink(Numbers(), "out")
    assert flow.run(runtime="local", parallelism=2)["out"] == [(0, 4), (1, 4), (3, 4)]


def test_an_error_that_happens_to_hold_the_operators_name_still_says_where() -> None:
    """An error of Rayad's got no location added if its text contained the name of the vertex, which may be any short word."""

    class A(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            raise rd.DataflowError("a bad record")

    flow = rd.Dataflow()
    flow.from_items([1]).vertex(A, name="a")
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(runtime="local")
    line = test_an_error_that_happens_to_hold_the_operators_name_still_says_where.__code__.co_firstlineno + 8
    assert str(caught.value) == f"'a'[0] (test_outputs.py:{line}) failed in on_recv (input 0, 1 records from 1) at (0): a bad record"


def test_no_error_is_its_own_cause() -> None:
    """``raise error from error`` made an error its own cause."""
    flow = rd.Dataflow()
    flow.from_items([1]).vertex(lambda: Reraises()).map(lambda n: 1 // 0)
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(runtime="local")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class Reraises(rd.Vertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)


def test_columnar_partials_stay_columnar_after_the_plan_was_pickled() -> None:
    """The selector of pairs was recognised by identity: after pickling, as on Ray, columns were converted to rows."""
    flow = rd.Dataflow()
    flow.from_epochs([pa.record_batch({"k": ["a", "b"], "v": [1, 2]})]).key_by("k").sum("v")
    plan = pickle.loads(cloudpickle.dumps(flow.plan(2)))
    assert plan.edges[0].key.pairs
    assert PAIRS.pairs
    core = ReplicaCore(plan, plan.stages[0], 0)
    core.start()
    while core.source_step() is not None:
        pass
    core.outputs.flush()
    assert core.outputs.outbox
    assert all(isinstance(outgoing.batch, pa.RecordBatch) for outgoing in core.outputs.outbox)


def test_a_list_that_a_vertex_changes_after_sending_is_sent_as_it_was() -> None:
    """The local runtime queued the vertex's own list, not a copy."""

    class Buffers(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            kept = list(batch)
            self.send_by(0, kept, time)
            kept.clear()

    flow = rd.Dataflow()
    flow.from_items([1, 2]).vertex(Buffers).key_by(lambda n: n).count().collect("out")
    assert sorted(r for _, r in flow.run(runtime="local")["out"]) == [(1, 1), (2, 1)]


class Aborts(rd.Sink):
    """Counts calls of abort; its writers fail."""

    def __init__(self) -> None:
        self.aborts = 0

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        raise ValueError("no place to write")

    def publish(self, staged: Sequence[Any]) -> Any:
        return None

    def abort(self) -> None:
        self.aborts += 1


@pytest.mark.parametrize("keeps_snapshots", [False, True])
def test_staged_output_stays_while_the_job_can_resume(tmp_path: Path, keeps_snapshots: bool) -> None:
    """A failed job removed all output that its sinks had staged, even that which a snapshot named."""
    sink = Aborts()
    flow = rd.Dataflow("aborts")
    flow.from_items([1]).sink(sink)
    with pytest.raises(rd.DataflowError, match="no place to write"):
        flow.run(rd.RunConfig(storage_path=str(tmp_path) if keeps_snapshots else None), runtime="local")
    assert sink.aborts == (0 if keeps_snapshots else 1)


@pytest.mark.parametrize("resume", [None, "latest"])
def test_a_directory_in_use_is_refused_before_anything_starts(tmp_path: Path, resume: str | None) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    flow = rd.Dataflow("refused")
    flow.from_items([{"a": 1}]).write_parquet(str(tmp_path / "out"))
    with pytest.raises(rd.RayadError, match=r"already holds 1 files"):
        flow.run(rd.RunConfig(storage_path=str(tmp_path / "snapshots"), resume=resume), runtime="local")
    assert not (tmp_path / "snapshots").exists()
