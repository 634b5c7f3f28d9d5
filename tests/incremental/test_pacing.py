"""Sources and live inputs of collections run at most ``RunConfig.epochs_ahead`` epochs ahead of what is complete, and none waits for
ever."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.input.pace import Pace
from tests.incremental.programs import PROGRAMS, history
from tests.incremental.test_beginnings import table_of
from tests.snapshots import attempts

EPOCHS, AHEAD, STEPS = 40, 3, 400
Meeting = Callable[[rd.Collection, rd.Collection], rd.Collection]
MEETINGS: dict[str, Meeting] = {
    "join": lambda fast, slow: fast.keyed().join(slow.keyed(), "left").map(lambda met: (met[0], met[1][0])),
    "union": lambda fast, slow: fast.concat(slow).distinct(),
    "exchange before": lambda fast, slow: fast.keyed().count().map(lambda pair: (pair[0], "n")).concat(slow).distinct(),
    "loop": lambda fast, slow: fast.iterate(lambda inner: inner.concat(fast, slow).distinct(), max_rounds=3),
    "only in the loop": lambda fast, slow: fast.iterate(lambda inner: inner.except_(slow).concat(fast).distinct(), max_rounds=3),
}


def job_of(flow: rd.Dataflow, **config: Any) -> LocalJob:
    """Begin it in the local runtime, with at most AHEAD epochs ahead."""
    job = flow.submit(rd.RunConfig(**{"epochs_ahead": AHEAD, **config}), runtime="local", parallelism=2)
    assert isinstance(job, LocalJob)
    return job


def run(job: LocalJob, steps: int = STEPS) -> None:
    """So many steps, or to its end."""
    for _ in range(steps):
        if not job.step():
            break


def begun(job: LocalJob) -> int:
    """The most epochs that an input has begun and does not know to be complete."""
    return max(len(core.pace.begun) for core in job.cores.values())


def noted(seen: list[int]) -> Callable[[tuple[int, Any]], tuple[int, Any]]:
    """A function that gives its record, and notes its epoch."""

    def note(record: tuple[int, Any]) -> tuple[int, Any]:
        seen.append(record[0])
        return record

    return note


@pytest.mark.parametrize("meeting", MEETINGS)
def test_a_fast_source_waits_for_a_slow_input(meeting: str) -> None:
    seen: list[int] = []
    flow = rd.Dataflow("beside")
    fast = flow.from_epochs([[(epoch, "fast")] for epoch in range(EPOCHS)]).map(noted(seen)).as_collection()
    MEETINGS[meeting](fast, flow.collection("slow")).changes().collect("out")
    job = job_of(flow)
    run(job)
    assert sorted(set(seen)) == list(range(AHEAD + 1))
    assert f"{AHEAD + 1} epochs begun, of which none is complete behind it" in str(job.explain_stuck())
    job.collection("slow").insert([(5, "slow")])
    job.collection("slow").advance_to(10)
    run(job)
    assert sorted(set(seen)) == list(range(10 + AHEAD + 1))
    job.collection("slow").close()
    result = job.wait(timeout_s=60)
    assert sorted(set(seen)) == list(range(EPOCHS))
    assert {epoch for epoch, _ in table_of(result["out"])} == set(range(EPOCHS))


def test_nothing_waits_where_any_number_is_allowed_or_no_collection_is_behind() -> None:
    for ahead, build in ((None, lambda stream: stream.as_collection().changes()), (1, lambda stream: stream)):
        seen: list[int] = []
        flow = rd.Dataflow("free")
        fast = build(flow.from_epochs([[(epoch, "fast")] for epoch in range(EPOCHS)]).map(noted(seen)))
        fast.union(flow.input("slow")).collect("out")
        job = job_of(flow, epochs_ahead=ahead)
        run(job)
        assert seen == list(range(EPOCHS))
        job.cancel()


STREAMS: dict[str, Callable[[rd.Stream], Any]] = {
    "windows": lambda both: timed(both).window(rd.windows.tumbling(4)).count(),
    "sessions": lambda both: timed(both).window(rd.windows.session(2)).count(),
    "totals": lambda both: both.key_by(lambda record: record[0] % 5).count(),
    "distinct": lambda both: both.key_by(lambda record: record[0] % 5).distinct(),
}


def timed(both: rd.Stream) -> rd.KeyedStream:
    """By key, with the epoch as event time."""
    return both.assign_timestamps(lambda record: record[0]).key_by(lambda record: record[0] % 5)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("bytes_max", [None, 1 << 20])
def test_streams_are_paced_where_state_has_a_bound(name: str, bytes_max: int | None) -> None:
    """What waits for its time takes memory, too."""
    seen: list[int] = []
    flow = rd.Dataflow("bounded")
    fast = flow.from_epochs([[(epoch, "fast")] for epoch in range(EPOCHS)]).map(noted(seen))
    STREAMS[name](fast.union(flow.input("slow"))).collect("out")
    job = job_of(flow, state_memory_bytes=bytes_max)
    run(job)
    assert seen == list(range(EPOCHS if bytes_max is None else AHEAD + 1))
    job.input("slow").close()
    job.wait(timeout_s=60)
    assert seen == list(range(EPOCHS))


class TwoParts(rd.Source):
    """A source whose first part has nothing, until it is let go."""

    blocks = False
    interleave = True
    is_let_go = False

    def list_parts(self) -> Sequence[Any]:
        return (0, 1)

    def build_part(self, part: Any, resume: Any | None) -> rd.SourcePart:
        return _Part(part, resume or 0)


class _Part(rd.SourcePart):
    def __init__(self, number: int, epoch: int) -> None:
        self.number, self.epoch = number, epoch

    def next_batch(self) -> Any:
        if not self.number and not TwoParts.is_let_go:
            return []
        if self.epoch == EPOCHS:
            return None
        self.epoch += 1
        return self.epoch - 1, [(self.epoch - 1, self.number)]

    def epoch_floor(self) -> int:
        return self.epoch

    def offset(self) -> Any:
        return self.epoch


def test_a_fast_part_of_a_source_waits_for_a_slow_one() -> None:
    seen: list[int] = []
    TwoParts.is_let_go = False
    flow = rd.Dataflow("parts")
    flow.source(TwoParts(), parallelism=1).map(noted(seen)).as_collection().distinct().changes().collect("out")
    job = job_of(flow)
    run(job)
    assert seen == list(range(AHEAD + 1))
    TwoParts.is_let_go = True
    assert len(table_of(job.wait(timeout_s=60)["out"])) == 2 * EPOCHS


class KeepsARight(rd.Vertex):
    """Sends at epoch 0 what has come, once a later epoch is complete."""

    until = EPOCHS // 2

    def __init__(self) -> None:
        self.there: list[Any] = []

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        if not time.epoch:
            self.notify_at(rd.Timestamp(self.until), capability=time)
        if time.epoch <= self.until:
            self.there += batch

    def on_notify(self, time: rd.Timestamp) -> None:
        self.send_by(0, self.there, rd.Timestamp(0))


@pytest.mark.parametrize("also", ["one source", "another source"])
def test_a_source_goes_on_as_far_as_a_vertex_waits_that_may_send_before(also: str) -> None:
    flow = rd.Dataflow("keeps")
    source = flow.from_epochs([[(epoch, "kept")] for epoch in range(EPOCHS)])
    kept = flow.vertex(KeepsARight, inputs=[source], parallelism=1).as_collection()
    other = flow.from_epochs([[(epoch, "free")] for epoch in range(EPOCHS)]).as_collection()
    (kept if also == "one source" else kept.concat(other)).distinct().changes().collect("out")
    table = table_of(job_of(flow, epochs_ahead=1).wait(timeout_s=60)["out"])
    assert sum(what == "kept" for _, what in table) == KeepsARight.until + 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_live_input_is_taken_no_faster_than_it_is_worked_on(program: Any) -> None:
    changes = history(program.shape, 1)
    flow = rd.Dataflow("live")
    program.build(flow.collection("edges")).changes().collect("out")
    job = job_of(flow, epochs_ahead=1)
    edges = job.collection("edges")
    for epoch, some in enumerate(changes):
        edges.insert([record for record, weight in some if weight > 0])
        edges.remove([record for record, weight in some if weight < 0])
        edges.advance_to(epoch + 1)
    edges.close()
    most = 0
    while job.step():
        most = max(most, begun(job))
    assert most == 2
    program.verify(changes, job.wait(timeout_s=60)["out"])


def test_a_live_input_does_not_wait_for_another_one() -> None:
    """One program may feed them one after the other."""
    flow = rd.Dataflow("in turn")
    flow.collection("first").keyed().join(flow.collection("second").keyed()).changes().collect("out")
    job = job_of(flow)
    for name in ("first", "second"):
        for epoch in range(EPOCHS):
            job.collection(name).insert([(epoch, name)])
            job.collection(name).advance_to(epoch + 1)
        run(job)
        assert max(core.input.epoch or 0 for core in job.cores.values()) == EPOCHS
        job.collection(name).close()
    assert len(table_of(job.wait(timeout_s=60)["out"])) == EPOCHS


@pytest.mark.parametrize("recovery", ["graph", "upstream"])
def test_what_was_begun_counts_after_a_failure_too(tmp_path: Path, recovery: Any) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        seen: list[int] = [0]
        flow = rd.Dataflow("failing")
        fast = flow.from_epochs([[(epoch, "fast")] for epoch in range(EPOCHS)]).map(noted(seen)).as_collection()
        fast.concat(flow.collection("slow")).distinct().changes().collect("out")
        failures = rd.FailureConfig(max_failures=10**6, delay_s=0.0, survive_errors=False, recovery=recovery)
        job = job_of(flow, storage_path=str(tmp_path / str(seed)), failures=failures)
        slow = job.collection("slow")
        for step in range(600):
            job.step()
            assert max(seen) <= slow.input.epoch + AHEAD
            if chance.random() < 0.01:
                job.crash({chance.choice(job.plan.stages).id} if recovery == "upstream" else None)
            elif chance.random() < 0.05 and attempts.may_begin(job):
                attempts.begin(job, unaligned=chance.random() < 0.5)
            if step % 40 == 39:
                slow.advance_to(step // 40 + 1)
        slow.close()
        assert len(table_of(job.wait(timeout_s=60)["out"])) == EPOCHS


def test_a_pace_counts_the_epochs_before_the_one_that_asks() -> None:
    pace = Pace(2)
    for epoch in (0, 10, 20, 30):
        pace.begins(epoch)
    assert [pace.holds(epoch) for epoch in (0, 10, 20, 30)] == [False, False, True, True]
    pace.told(0, is_free=True)
    assert not pace.holds(30)
    pace.told(0, is_free=False)
    assert pace.holds(30)
    pace.told(15, is_free=False)
    assert [pace.holds(epoch) for epoch in (20, 30)] == [False, False]


def test_wrong_numbers_are_refused() -> None:
    for wrong in (0, -1, 1.5, "many"):
        with pytest.raises(rd.ConfigError, match=r"RunConfig\.epochs_ahead"):
            rd.RunConfig(epochs_ahead=wrong)  # type: ignore[arg-type]
