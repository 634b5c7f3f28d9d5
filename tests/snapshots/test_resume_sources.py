"""A run resumes with another number of replicas of a source: each takes the parts that are its own now, where they stand."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.input.source_parts import position_of
from rayad.actors.replica.input.source_reader import SourceReader
from tests.thorough import by_turns

PARTS = 5


class Numbers(rd.Source):
    """Part p gives ten records, two at a time; in order: all of epoch p, interleaved: two of each epoch."""

    def __init__(self, *, interleave: bool) -> None:
        self.interleave = interleave

    def list_parts(self) -> list[int]:
        return list(range(PARTS))

    def build_part(self, part: int, resume: Any) -> rd.SourcePart:
        return NumbersPart(part, resume or 0, interleave=self.interleave)


class NumbersPart(rd.SourcePart):
    def __init__(self, part: int, at: int, *, interleave: bool) -> None:
        self.part, self.at, self.interleave = part, at, interleave

    def next_batch(self) -> rd.SourceBatch | None:
        if self.at == 10:
            return None
        epoch = self.at // 2 if self.interleave else self.part
        self.at += 2
        return rd.SourceBatch(epoch, [100 * self.part + self.at - 2, 100 * self.part + self.at - 1])

    def offset(self) -> int:
        return self.at


ALL = [100 * part + at for part in range(PARTS) for at in range(10)]


def job_of(folder: Path, replicas: int, *, interleave: bool, resume: str | None = None, unaligned: bool = False, seed: int = 0) -> LocalJob:
    flow = rd.Dataflow("shares")
    numbers = flow.source(Numbers(interleave=interleave), name="numbers")
    numbers.collect("seen")
    numbers.map(lambda n: n, name="plus").key_by(lambda n: n % 7).count(name="count").collect("counts")
    numbers.rebalance(name="given").map(lambda n: n).collect("given")
    snapshots = rd.SnapshotConfig(alignment_timeout_s=0.0 if unaligned else None)
    run = rd.RunConfig(storage_path=str(folder), resume=resume, snapshots=snapshots, window_batches=4)
    job = flow.submit(run, rd.ScalingConfig(parallelism={"numbers": replicas}, default=2), runtime="local", seed=seed)
    assert isinstance(job, LocalJob)
    return job


@by_turns(2)
@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5), (5, 2), (4, 3)])
def test_a_source_of_several_parts_resumes_with_another_parallelism(
    tmp_path: Path, before: int, after: int, interleave: bool, unaligned: bool
) -> None:
    for seed in range(4):
        folder, rng = tmp_path / str(seed), random.Random(seed)
        job = job_of(folder, before, interleave=interleave, unaligned=unaligned, seed=seed)
        for _ in range(rng.randint(0, 60)):
            job.step()
        path = job.savepoint()
        job.cancel()
        job = job_of(folder, after, interleave=interleave, resume=path, unaligned=unaligned, seed=seed + 100)
        if seed % 2:
            for _ in range(rng.randint(0, 30)):
                job.step()
            job.crash()
        result = job.wait()
        assert sorted(n for _, n in result["seen"]) == ALL
        assert sorted(n for _, n in result["given"]) == ALL
        assert {key: count for _, (key, count) in sorted(result["counts"])} == Counter(n % 7 for n in ALL)
        assert {epoch for (epoch, _), n in result["seen"] if n < 10} == ({0, 1, 2, 3, 4} if interleave else {0})
        assert result.statistics.stages["numbers"]["replicas"] == after


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.lists(st.integers(0, 30), min_size=6, max_size=6), st.booleans())
def test_shares_give_each_record_once_in_the_order_of_the_parts(
    first: int, second: int, third: int, reads: list[int], interleave: bool
) -> None:
    source = Numbers(interleave=interleave)

    seen: list[int] = []
    positions: list[Any] | None = None
    for replicas, count in ((first, reads[0]), (second, reads[1]), (third, 1000)):
        replicas = min(replicas, PARTS)
        by_replica: list[Any] = [None] * replicas
        for replica in range(replicas):
            position = None if positions is None else position_of(positions, replica, replicas)
            if positions is not None and position is None:
                continue
            reader = SourceReader(source, range(PARTS)[replica::replicas], "n", "a.py:1", position)
            floor = reader.epoch
            for _ in range(count + replica):
                read = reader.next()
                assert reader.epoch >= floor
                floor = reader.epoch
                if read is None and reader.exhausted:
                    break
                assert read is not None
                seen.extend(read[1])
            by_replica[replica] = None if reader.exhausted else reader.position()
        positions = by_replica
    assert sorted(seen) == ALL
    for part in range(PARTS):
        assert [n for n in seen if n // 100 == part] == [n for n in ALL if n // 100 == part]


def test_a_vertex_that_stays_with_its_source_says_how(tmp_path: Path) -> None:
    class Keeps(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            self.send_by(0, batch, time)

    def flow() -> rd.Dataflow:
        flow = rd.Dataflow("tied")
        flow.source(Numbers(interleave=True), name="numbers").vertex(Keeps, name="keeps").collect("out")
        return flow

    run = rd.RunConfig(storage_path=str(tmp_path))
    flow().submit(run, runtime="local", parallelism=2).savepoint()
    with pytest.raises(rd.SnapshotError) as caught:
        flow().submit(run, runtime="local", parallelism=3, resume="latest")
    told = "vertex 'keeps' has changed: replicas 2 is 3 now, and its state cannot be divided: give it parallelism 2 again"
    assert told in str(caught.value)


def test_a_running_source_says_how_to_have_another_parallelism(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, interleave=True)
    with pytest.raises(rd.RescaleRefused) as caught:
        job.rescale("numbers", 3)
    assert str(caught.value) == (
        "rescale('numbers', 3): 'numbers' reads input: its parts stay with their replicas while the job runs; take a savepoint and resume "
        "from it with another parallelism"
    )
