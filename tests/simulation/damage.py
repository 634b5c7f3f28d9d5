"""Damaged files: a job that resumes has to refuse them by name and to take an older snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.actors.store.input_log import FramesGone
from rayad.actors.store.job_store import NothingWhole
from rayad.snapshots.store import MANIFEST
from tests.simulation.disk import whole_snapshots
from tests.simulation.job import DriverDied, SimulatedJob

if TYPE_CHECKING:
    from tests.simulation.world import World


def can_damage(world: World) -> bool:
    """Whether there is a snapshot with parts."""
    whole = whole_snapshots(world.store)
    return bool(whole) and bool(world.store.load(whole[-1]).files())


def choose_damage(world: World, how: str) -> tuple[str, int]:
    """Damage one file of the newest whole snapshot; gives its path and the snapshot's number."""
    number = whole_snapshots(world.store)[-1]
    manifest = world.store.load(number)
    own = sorted(file.path for file in manifest.files() if file.size)
    path = world.rng.choice([f"{number:012d}/{MANIFEST}", world.rng.choice(own)])
    if path.endswith(MANIFEST) and how == "missing":
        path = world.rng.choice(own)  # not the manifest: without it there is no sign that there was a snapshot
    for each in whole_snapshots(world.store):
        if path in {f"{each:012d}/{MANIFEST}", *(file.path for file in world.store.load(each).files())}:
            world.damaged_numbers.add(each)
    world.disk.damage(path, how)
    return path, number


def damage(world: World, job: SimulatedJob, how: str) -> None:
    """Damage a file of the newest snapshot; the next job that resumes must refuse it by name and take an older one."""
    path, number = choose_damage(world, how)
    world.struck(how)
    if world.rng.random() < 0.3:
        world.damage_to_find = path, number
        raise DriverDied
    assert job.snapshots is not None
    store = job.snapshots.store
    assert store.begun is not None
    older = [each for each in whole_snapshots(world.store) if each >= store.begun.number]
    try:
        job.crash()
    except NothingWhole as error:
        if not isinstance(error, FramesGone):  # then an old savepoint is whole, but only a driver can send so much again
            if number >= store.begun.number:
                refused(world, error, path)
            if older:
                raise AssertionError(f"snapshots {older} are whole and were not used: {error}") from error
        world.disk.mend()
        raise DriverDied from error
    assert store.manifest is not None
    if not older or store.manifest.notes.get("resumed_from") != older[-1]:
        raise AssertionError(f"{path} is {how}: the job resumes from {store.manifest.notes}, whole are {older}")
    refused(world, "; ".join(store.remarks), path)
    world.after_crash()


def refused(world: World, why: object, path: str) -> None:
    """Check that a refusal names the file."""
    world.figures["refused"] += 1
    if path not in str(why):
        raise AssertionError(f"{path} was damaged; this does not say so: {why}")
