"""Replaced jobs: another driver has started the job again, and they do not know it. They run on, and may publish nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.actors.job import JobState
from rayad.actors.store.job_store import Superseded
from rayad.progress import DataflowError, SnapshotError
from tests.simulation.job import SimulatedJob
from tests.snapshots import attempts

if TYPE_CHECKING:
    from tests.simulation.world import World


def step_replaced(world: World, zombie: SimulatedJob) -> None:
    """One step of a replaced job; it may not publish."""
    snapshots = zombie.snapshots
    assert snapshots is not None
    before = set(world.store.numbers())
    world.is_replaced_moving = True
    try:
        if world.rng.random() < 0.01:
            zombie.crash()
        if attempts.may_begin(zombie) and world.rng.random() < 0.2:
            attempts.begin(zombie, unaligned=world.rng.random() < 0.5)
        if not zombie.step() and zombie.tracker.is_complete():
            zombie.runtime.end_now()
        if zombie.state is JobState.COMPLETE:
            raise AssertionError("a replaced job has completed")
    except Superseded:
        world.figures["superseded"] += 1
        world.zombies.remove(zombie)
    except (SnapshotError, DataflowError) as error:
        if not any(why in str(error) for why in ("void", "whole snapshot", "simulated")):
            raise
        world.figures["superseded"] += 1
        world.zombies.remove(zombie)
    finally:
        world.is_replaced_moving = False
    fresh = set(world.store.numbers()) - before
    if fresh:
        raise AssertionError(f"a replaced job has published snapshots {sorted(fresh)}")


def end_replaced(world: World) -> None:
    """The job is complete: the replaced job must notice that it has been replaced."""
    for zombie in list(world.zombies):
        for _ in range(200):
            if zombie in world.zombies:
                step_replaced(world, zombie)
        if zombie in world.zombies:
            try:
                zombie.crash()
            except Superseded:
                world.figures["superseded"] += 1
                world.zombies.remove(zombie)
            else:
                raise AssertionError("a replaced job could recover")
