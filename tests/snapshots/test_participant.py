"""A replica's side of snapshots, driven by hand."""

from __future__ import annotations

from pathlib import Path

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.graph_shape import channels_in, channels_out
from rayad.actors.replica.participant import Captured, Completed, Participant, SendBarrier, SendOut
from rayad.snapshots.barrier import Barrier
from tests.snapshots import attempts


def participant() -> tuple[Participant, list[tuple[int, int]]]:
    """Of a replica with two regular inputs, and their channels."""
    flow = rd.Dataflow("two")
    flow.from_items([1]).key_by(lambda n: n).join(flow.from_items([1]).key_by(lambda n: n), name="both").collect("out")
    job = flow.submit(runtime="local")
    stage = next(stage for stage in job.plan.stages if stage.name == "both")
    return Participant(job.plan, stage, job.cores[stage.id, 0]), channels_in(job.plan, stage, 0)[0]


def test_a_late_barrier_does_not_rename_the_attempt_that_turns_unaligned() -> None:
    """The capture was filed under the attempt that had been given up, and the pending one never completed."""
    both, (left, right) = participant()
    assert both.on_barrier(left, Barrier(2, 2)) == []
    assert both.on_barrier(right, Barrier(1, 2)) == []
    sent, captured = both.turn_unaligned()
    assert sent == SendOut()
    assert isinstance(captured, Captured)
    assert captured.capture.barrier == Barrier(2, 2, unaligned=True)


def test_what_a_combiner_keeps_back_is_counted_and_sent_before_the_barrier() -> None:
    flow = rd.Dataflow("combined")
    flow.from_items([1, 2, 3]).key_by(lambda n: n).count().collect("out")
    plan = flow.plan(2)
    source = ReplicaCore(plan, plan.stages[0], 0)
    source.start()
    source.source_step()
    assert source.outputs.holding
    source.take_changes()
    barrier = Barrier(1, 0)
    sent, *barriers, captured, completed = Participant(plan, plan.stages[0], source).begin(barrier)
    assert sent == SendOut()
    assert barriers == [SendBarrier(edge, replica, barrier) for edge, replica in channels_out(plan, plan.stages[0], 0)]
    assert isinstance(captured, Captured)
    assert completed == Completed(captured.capture)
    assert not source.outputs.holding
    assert captured.capture.rest.counts == (1, 3, len(source.outputs.outbox))
    assert sum(delta for _, _, delta in source.take_changes()) == len(source.outputs.outbox)


def test_attempts_in_a_row_are_written_when_their_logs_are_complete(tmp_path: Path) -> None:
    """The shell began to write an attempt whose log still grew when one before it, given up, had just been written."""
    for seed in range(6):
        flow = rd.Dataflow("loop")
        numbers = flow.from_epochs([[9, 7, 11]] * 3, parts=2, batch_rows=1)

        def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
            stepped = inner.rebalance().filter(lambda n: n < 60).map(lambda n: n + 7)
            return stepped, stepped

        numbers.iterate(body).collect("out")
        job = flow.submit(rd.RunConfig(storage_path=str(tmp_path / str(seed))), runtime="local", seed=seed, parallelism=2)
        assert isinstance(job, LocalJob)
        assert job.snapshots is not None
        for _ in range(300):
            job.step()
            written = [written for writer in job.runtime.processes.writers.values() for written in writer.waiting]
            assert all(one.capture.is_complete for one in written)
            if attempts.may_begin(job):
                attempts.begin(job)
            elif job.steps % 40 == 0:
                attempts.give_up(job, "to have the next one behind it")
