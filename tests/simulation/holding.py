"""Which events do not happen now, because their actor is dead or slow, and which of the user's functions fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayad.actors.plane.protocol import COORDINATOR, PROGRESS

if TYPE_CHECKING:
    from tests.simulation.job import SimulatedRuntime
    from tests.simulation.world import World

SLOW = {"writing": "write", "publishing": "store", "committing": "store", "waiting": "write"}
HELD_BY_DEATH: dict[str, tuple[str, ...]] = {
    "crash progress": ("views",),
    "crash coordinator": ("store", "poll", "wish", "answer", "call", "give up"),
}
DEAD = {"crash progress": PROGRESS, "crash coordinator": COORDINATOR}
LAGGING = ("deliver", "call", "answer")
"""Events that come through a connection, which may be slow."""
INPUT_SHARE = 0.3
"""The share of a source's turns at which it reads while faults are left; one that is in place may wait for records."""


def actor(runtime: SimulatedRuntime, event: Any) -> str:
    """The process that an event happens at; of events of the coordinator and the disk the coordinator."""
    kind, what = event
    if kind == "deliver":
        return str(what[1])
    if kind == "turn":
        return str(what)
    if kind == "write":
        return runtime.processes.places.process_of(*what)
    if kind == "feed":
        return runtime.processes.places.process_of(what, 0)
    if kind == "call" and what[0] == "v":
        stage, replica = what[1:].split(".")
        return runtime.processes.places.process_of(int(stage), int(replica))
    return str(what) if kind == "call" else COORDINATOR


def holds(world: World, runtime: SimulatedRuntime, event: Any) -> bool:
    """Whether an event does not happen now: its actor is dead, disk or channel is slow, or the input waits for faults."""
    kind, _ = event
    if world._dead is not None:
        what, where = world._dead
        if kind in HELD_BY_DEATH.get(what, ()) or actor(runtime, event) == DEAD.get(what, where):
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
        if event not in world._lags:
            world._lags[event] = world.rng.random() < 0.3
        if world._lags[event] and world.rng.random() < 0.85:
            return True
    return kind == "feed" and world.waits_with_input()


def hooks_to_break(world: World, runtime: SimulatedRuntime, event: Any) -> tuple[list[Any], str, str] | None:
    """Which of the user's functions fail if this event calls them: (vertices, name, fault)."""
    if world.armed is None or not world._is_set or event[0] not in ("deliver", "turn", "call"):
        return None
    hook = {"error in on_recv": "on_recv", "error in checkpoint": "checkpoint"}.get(world.armed.kind)
    worker = runtime.processes.workers.get(actor(runtime, event))
    if hook is None or worker is None:
        return None
    vertices = [host.core.vertex for host in worker.hosts.values() if host.core.vertex is not None]
    return vertices, hook, world.armed.kind
