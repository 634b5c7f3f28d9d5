"""Which events do not happen now, because their actor is dead or slow, and which of the user's functions fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.actors.local.rescaling import ORDERS

if TYPE_CHECKING:
    from rayad.actors.local.local_job import LocalJob
    from tests.simulation.job import SimulatedJob
    from tests.simulation.world import World

SLOW = {"writing": "write", "publishing": "publish", "committing": "commit", "waiting": "write"}
HELD_BY_DEATH: dict[str, tuple[str, ...]] = {
    "crash progress": ("report", "view", "ask hold", "ask join", "ask run", "ask forget"),
    "crash coordinator": ("acknowledge", "publish", "commit", "begin", "forget", "answer", "left", *ORDERS),
}
LAGGING = (
    "batch",
    "credit",
    "transfer",
    "arrive",
    "report",
    "answer",
    "ask listen",
    "ask prepare",
    "ask run",
    "ask relayout",
    "ask commit",
)
"""Events that come through a channel or a connection, which may be slow."""
INPUT_SHARE = 0.3
"""The share of a source's turns at which it reads while faults are left; one that is in place may wait for records."""


def actor(job: LocalJob, event: Any) -> Any:
    """The replica of an event; for events of the coordinator and the disk something else."""
    kind, at = event
    if kind in ("batch", "overtake", "arrive"):
        return job.network.edges[at[0]].target, at[2]
    if kind == "credit":
        return job.network.edges[at[0]].source, at[1]
    return (at[0], at[2]) if kind == "transfer" else at


def holds(world: World, job: SimulatedJob, event: Any) -> bool:
    """Whether an event does not happen now: its actor is dead, disk or channel is slow, or the source waits for faults."""
    kind, at = event
    if world._dead is not None:
        what, where = world._dead
        if kind in HELD_BY_DEATH.get(what, ()):
            return True
        if what == "crash replica" and where == actor(job, event):
            return True
    if world._slow > 0 and world.armed is not None and kind == SLOW.get(world.armed.phase):
        world._slow -= 1
        if world._is_set and not world._is_slow:
            world._is_slow = True
            world.struck("slow disk")
        if not world._slow:
            world._is_slow = False
            world._done()
        return True
    if world._is_uneven and kind in LAGGING:
        channel = at if kind == "batch" else event
        if channel not in world._lags:
            world._lags[channel] = world.rng.random() < 0.3
        if world._lags[channel] and world.rng.random() < 0.85:
            return True
    if kind in ("source", "input") and (world.armed is not None or world.left) and world.armed_needs_time:
        return world.rng.random() < 1 - (INPUT_SHARE if world._is_set else world.input_share)
    return False


def hook_to_break(world: World, job: SimulatedJob, event: Any) -> tuple[Any, str, str] | None:
    """Which of the user's functions fails if this event calls it: (vertex, name, fault)."""
    if world.armed is None or not world._is_set:
        return None
    kind, at = event
    is_batch = kind == "batch" and job.network.channels[at][0][0] is not None
    if world.armed.kind == "error in on_recv" and (is_batch or kind in ("transfer", "loop")):
        vertex = job.cores[actor(job, event)].vertex
        return None if vertex is None else (vertex, "on_recv", "error in on_recv")
    if world.armed.kind == "error in checkpoint" and kind in ("batch", "loop", "begin", "overtake", "impatient"):
        if is_batch:
            return None
        vertex = job.cores[actor(job, event)].vertex
        return None if vertex is None else (vertex, "checkpoint", "error in checkpoint")
    return None
