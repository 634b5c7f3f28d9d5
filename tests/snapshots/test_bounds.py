"""What a job keeps of its snapshots does not grow with their number."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.parts import part_files
from tests.snapshots import attempts

BESIDE = frozenset(
    {"job", "plan", "config", "_core", "core", "begun", "graph", "receipts", "taken", "_journal", "_output", "_processes", "_link"}
)
"""Attributes that belong to the program, or are followed elsewhere; a receipt and what a sink of files
knows of its manifests tell of all the output there is; figures of snapshots taken and the journal have bounds of their own, TAKEN_MAX and
EVENTS_MOST."""


def entries(value: Any, seen: set[int]) -> int:
    """How many entries all containers below a value have together."""
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None), type)):
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        return len(value) + sum(entries(item, seen) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return len(value) + sum(entries(item, seen) for item in value)
    names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
    if not type(value).__module__.startswith("rayad."):
        return 0
    return sum(entries(getattr(value, name, None), seen) for name in names if name not in BESIDE)


def snapshot(job: LocalJob, *, is_given_up: bool) -> None:
    snapshots = job.snapshots
    assert isinstance(snapshots, CoordinatorSnapshots)
    before = snapshots.leader.snapshots.published
    while not attempts.may_begin(job):
        job.step()
    attempts.begin(job)
    if is_given_up:
        for _ in range(3):
            job.step()
        if snapshots.leader.snapshots.pending is not None and not snapshots.leader.snapshots.is_complete:
            attempts.give_up(job, "for a test")
    while job.step():
        pass
    assert is_given_up or snapshots.leader.snapshots.published == before + 1


@pytest.mark.parametrize("is_given_up", [False, True])
def test_what_is_kept_does_not_grow_with_the_number_of_snapshots(
    tmp_path: Path, is_given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "CHAIN_MAX", 2)  # a chain of increments has its bound soon
    flow = rd.Dataflow("bounded")
    counts = flow.input("numbers").key_by(lambda n: n % 5).count(name="counts")
    counts.map(lambda pair: {"key": pair[0], "count": pair[1]}).write_parquet(str(tmp_path / "out"), name="out")
    run = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(alignment_timeout_s=0.0))
    job = flow.submit(run, runtime="local", parallelism=2)
    assert isinstance(job, LocalJob)
    numbers, found = job.input("numbers"), []
    for epoch in range(60):
        numbers.send(list(range(10)))
        numbers.advance_to(epoch + 1)
        snapshot(job, is_given_up=is_given_up and epoch % 2 == 0)
        if epoch % 2:
            found.append(entries(job.snapshots, set()))
    assert max(found[15:]) <= max(found[:15]) + 2, found
    assert len(list((tmp_path / "bounded" / "snapshots").iterdir())) <= 20, "files of what is gone stay"
