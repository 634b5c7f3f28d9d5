"""Bugs of the replica core, the source reader and the local runtime. One test per bug, named after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobState
from rayad.actors.replica.core import ReplicaCore
from rayad.progress import View

T = rd.Timestamp


class Says(rd.EndVertex):
    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        pass

    def on_end(self, time: rd.Timestamp) -> None:
        self.send_by(0, ["end"], time)


def core_of(flow: rd.Dataflow, name: str) -> ReplicaCore:
    plan = flow.plan()
    core = ReplicaCore(plan, next(stage for stage in plan.stages if stage.name == name), 0)
    core.start()
    return core


def test_the_time_of_on_end_does_not_depend_on_which_frontiers_were_seen() -> None:
    """The progress actor may publish several steps as one view; then ``on_end`` ran at an earlier time."""
    times = []
    for views in ([View((T(3),), ()), View((), ())], [View((), ())]):
        flow = rd.Dataflow()
        flow.from_epochs([[0], [], [], [1]]).vertex(Says, name="says").key_by(lambda r: r).count()
        core = core_of(flow, "says")
        edge = next(edge for edge in core.plan.edges if edge.target == core.stage.id)
        core.on_view(View((T(0),), ()))
        for time in (T(0), T(3)):
            core.receive(edge.id, time, [1])
        for view in views:
            core.on_view(view)
            core.notify()
        core.outputs.flush()
        times.append([outgoing.time for outgoing in core.outputs.outbox])
    assert times == [[T(3)], [T(3)]]


def test_a_parked_batch_gives_its_credit_back() -> None:
    """stateful_map parks batches of later times. While they kept their credit, a full send window of them blocked the batch of the earlier
    time that they waited for."""
    flow = rd.Dataflow()
    flow.from_epochs([[("k", 1)], [("k", 2)]]).key_by(lambda r: r[0]).stateful_map(lambda s, r: (r, r), name="held").collect("out")
    core = core_of(flow, "held")
    edge = next(edge for edge in core.plan.edges if edge.target == core.stage.id)
    core.on_view(View((T(0),), ()))
    core.receive(edge.id, T(1), [("k", 2)], "credit of the early one")
    assert core.done_tokens == ["credit of the early one"]
    core.receive(edge.id, T(0), [("k", 1)], "credit of the late one")
    core.on_view(View((T(1),), ()))
    assert core.done_tokens == ["credit of the early one", "credit of the late one"]
    assert core.batches_in == 2


@pytest.mark.parametrize("wait", ["probe", "send"])
def test_an_error_found_by_a_probe_or_an_input_ends_the_job(wait: str) -> None:
    """The failing batch was lost: the job ran on and completed without it."""
    flow = rd.Dataflow()
    flow.input("in").map(lambda n: 1 // n).probe("seen").collect("out")
    job = flow.submit(runtime="local")
    job.input("in").send([0])

    def meet() -> None:
        if wait == "probe":
            job.probe("seen").wait(0)
        for _ in range(1000):
            job.input("in").send([1])

    with pytest.raises(rd.DataflowError, match="ZeroDivisionError") as caught:
        meet()
    assert job.state is JobState.FAILED
    with pytest.raises(rd.DataflowError) as again:
        job.wait()
    assert again.value is caught.value


def test_a_probe_of_a_cancelled_job_says_so() -> None:
    """Waiting on the probe ran the cancelled dataflow further, with closed vertices."""
    flow = rd.Dataflow("gone")
    flow.input("in").probe("seen").collect("out")
    job = flow.submit(runtime="local")
    job.cancel()
    with pytest.raises(rd.DataflowError) as caught:
        job.probe("seen").wait(0)
    assert str(caught.value) == "job 'gone' was cancelled: it has no results"


class Scripted(rd.Source):
    """A source whose parts give prepared lists as the results of next_batch."""

    interleave = True

    def __init__(self, parts: list[list[Any]], floors: list[int] | None = None) -> None:
        self.parts = parts
        self.floors = floors

    def list_parts(self) -> Sequence[Any]:
        return range(len(self.parts))

    def build_part(self, part: Any, resume: Any | None) -> rd.SourcePart:
        return ScriptedPart(list(self.parts[part]), self.floors)


class ScriptedPart(rd.SourcePart):
    def __init__(self, answers: list[Any], floors: list[int] | None) -> None:
        self.answers = answers
        self.floors = list(floors or [])

    def next_batch(self) -> rd.SourceBatch | None:
        return self.answers.pop(0) if self.answers else None

    def epoch_floor(self) -> int:
        return self.floors.pop(0) if self.floors else 0

    def offset(self) -> int:
        return 0


def test_a_quiet_part_does_not_silence_the_others() -> None:
    """Only the part with the lowest epoch was ever asked for records, while other parts had some."""
    quiet = [rd.SourceBatch(0, [])] * 50
    flow = rd.Dataflow()
    flow.source(Scripted([quiet, [rd.SourceBatch(4, ["x"]), rd.SourceBatch(5, ["y"])]]), name="source").collect("out")
    core = core_of(flow, "source")
    assert [core.source_step() for _ in range(3)] == [True, True, False]
    assert core.records_in == 2
    assert core.source is not None
    assert core.source.epoch == 0


def test_an_epoch_below_the_floor_that_a_part_has_promised_is_refused() -> None:
    """Its records were sent at a time that the frontier had passed."""
    flow = rd.Dataflow()
    flow.source(Scripted([[rd.SourceBatch(0, ["x"]), rd.SourceBatch(3, ["y"])]], [5, 5, 5, 5]), name="source").collect("out")
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(runtime="local")
    assert "gave epoch 3 after epoch 5: input time may not go back" in str(caught.value)


def test_an_end_vertex_from_a_factory_in_a_loop_is_refused() -> None:
    """The plan recognised only the class itself; an EndVertex from a factory then used a time of the wrong depth."""
    flow = rd.Dataflow()
    flow.from_items([1]).iterate(lambda inner: (inner.vertex(lambda: Says(), name="last"), inner))
    with pytest.raises(rd.DataflowError) as caught:
        flow.run(runtime="local")
    assert "it keeps the right to send until its input ends, so the loop could never end" in str(caught.value)
