"""write_parquet in jobs that crash, lose their driver, and resume from their latest or an older snapshot: each record is there once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rayad as rd
from tests.integrations.outputs import files_of, is_output
from tests.thorough import amount

EXPECTED = {epoch * 100 + i + 1 for epoch in range(6) for i in range(20)}


def program(out: Path, mode: str) -> rd.Dataflow:
    flow = rd.Dataflow("job")
    numbers = flow.from_epochs([[{"a": epoch * 100 + i} for i in range(20)] for epoch in range(6)], batch_rows=3, parts=2)
    numbers.map(lambda row: {"a": row["a"] + 1}).rebalance().write_parquet(str(out), mode=mode, name="out")
    return flow


def committed(out: Path) -> list[int]:
    return [row["a"] for row in rd.read_committed(out).to_table().to_pylist()] if is_output(out) else []


@pytest.mark.parametrize("seed", range(amount(each_run=7, soak=20)))
def test_committed_records_never_come_twice_and_are_whole_in_the_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    out = tmp_path / "out"
    mode = chance.choice(["error", "append", "overwrite"])
    resume = chance.choice([None, "latest"])
    savepoints: list[str] = []
    for attempt in range(6):
        config = rd.RunConfig(storage_path=str(tmp_path / "store"), resume=resume, snapshots=rd.SnapshotConfig(keep=50))
        job = program(out, mode).submit(config, runtime="local", parallelism=2, seed=chance.randrange(10**6))
        ending = "completes" if attempt == 5 else chance.choice(["completes", "driver dies", "driver dies", "crashes"])
        for _ in range(chance.randrange(400)):
            if not job.step():
                break
            seen = committed(out)
            assert len(seen) == len(set(seen))
            assert set(seen) <= EXPECTED
            if chance.random() < 0.04:
                savepoints.append(job.savepoint())
            if ending == "crashes" and chance.random() < 0.02:
                job.crash()
        if ending == "completes":
            result = job.wait()["out"]
            assert sorted(committed(out)) == sorted(EXPECTED)
            assert files_of(out) == list(result.files)
            return
        resume = chance.choice(["latest", "latest", *savepoints[-2:]])
        if resume != "latest":
            del savepoints[savepoints.index(resume) + 1 :]  # their output is taken back
    raise AssertionError("the last attempt completes")
