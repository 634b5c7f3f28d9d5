"""Time in the local runtime: what waits for a moment gets it, although others always have something to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob


def begun(path: Path, **options: Any) -> LocalJob:
    flow = rd.Dataflow("live")
    flow.input("rows").key_by(lambda n: n % 300).count(name="kept").probe("seen").collect("out")
    job = flow.submit(rd.RunConfig(storage_path=str(path)), runtime="local", **options)
    assert isinstance(job, LocalJob)
    return job


def send(job: LocalJob, epochs: range) -> None:
    """Each is awaited before the next, so the job never comes to rest by itself."""
    for epoch in epochs:
        job.input("rows").send(list(range(1000)))
        job.input("rows").advance_to(epoch + 1)
        job.probe("seen").wait(epoch)


def by_resuming(job: LocalJob, path: Path) -> LocalJob:
    job.savepoint()
    job.cancel()
    return begun(path, parallelism=3, resume="latest")


def by_hand(job: LocalJob, path: Path) -> LocalJob:
    job.runtime.start_rescale({"kept": 3})
    return job


@pytest.mark.parametrize("changed", [by_resuming, by_hand])
def test_a_new_replica_gets_its_keys_while_a_live_input_is_busy(changed: Callable[[LocalJob, Path], LocalJob], tmp_path: Path) -> None:
    job = begun(tmp_path, parallelism=2)
    send(job, range(10))
    job = changed(job, tmp_path)
    send(job, range(10, 60))
    assert job.plan.stage(job.plan.stages[-1].id).parallelism == 3
    assert [event.what.split(",")[0] for event in job.journal() if event.kind == "layout"] == ["kept 2 -> 3"]
    job.input("rows").close()
    assert len(job.wait()["out"]) == 60 * 300


class Slow(rd.Source):
    """Two parts, which rarely have something."""

    def __init__(self) -> None:
        self.asked = [0, 0]

    def list_parts(self) -> list[int]:
        return [0, 1]

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return SlowPart(self.asked, part)


class SlowPart(rd.SourcePart):
    def __init__(self, asked: list[int], part: int) -> None:
        self.asked, self.part = asked, part

    def next_batch(self) -> rd.SourceBatch | None:
        self.asked[self.part] += 1
        return rd.SourceBatch(0, []) if self.asked[self.part] < 50 else None

    def offset(self) -> int:
        return self.asked[self.part]


def test_a_source_that_had_nothing_is_asked_again_while_a_live_input_is_busy() -> None:
    flow, source = rd.Dataflow("both"), Slow()
    flow.input("rows").probe("seen").collect("out")
    flow.source(source, name="slow").collect("slow")
    job = flow.submit(rd.RunConfig(), runtime="local", parallelism={"slow": 2})
    send(job, range(400))
    assert min(source.asked) > 10
    job.input("rows").close()
    assert job.wait()["slow"] == []
