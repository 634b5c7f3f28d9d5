"""The local runtime under the simulation: its clock is simulated, every event passes the :class:`World`, some parts break on demand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rayad.actors.job import Result
from rayad.actors.lead.recovery_leader import Listen
from rayad.actors.local import local_job as local
from rayad.actors.local import network as local_network
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.results import only_a_snapshot_goes_on
from rayad.actors.replica.core import ReplicaCore
from rayad.progress import SnapshotError
from tests.simulation import holding

if TYPE_CHECKING:
    from tests.simulation.world import World


class DriverDied(BaseException):
    """The driver is dead; nothing more runs in it, not even cleaning up."""


class Replaced(BaseException):
    """Another driver has started the job a second time; this one does not know."""


class SimulatedCrash(Exception):
    """An actor has died while the job was recovering."""


class UserError(Exception):
    """An error of user code."""


class SimulatedCore(ReplicaCore):
    """A replica core that can break while it is built."""

    def __init__(self, world: World, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.world = world
        guarded = self.callbacks.guard

        def guard(what: str, call: Callable[[], Any]) -> Any:
            if what in ("restore", "give", "take") and world.breaks(f"error in {what}"):
                call = _raise
            return guarded(what, call)

        self.callbacks.guard = guard  # type: ignore[method-assign]

    def start(self, resumed: Any = None, *, is_newcomer: bool = False) -> None:
        self.world.on_core_start()
        super().start(resumed, is_newcomer=is_newcomer)


def _raise(*_: Any) -> Any:
    raise UserError("simulated")


class SimulatedJob(LocalJob):
    """One driver's job in a world.

    Args:
        world: disk, readers, clock and faults, which outlive the job.
    """

    def __init__(self, world: World, *args: Any, **kwargs: Any) -> None:
        self.world = world
        world.current = self
        super().__init__(*args, **kwargs)

    def now_s(self) -> float:
        return self.world.clock_s

    def pause(self, seconds: float) -> None:
        self.world.clock_s += seconds

    def _carry_out(self, effect: Any) -> Any:
        if isinstance(effect, Listen) and effect.is_of_all and self.world.current is self:
            self.world.on_start(self)
        return super()._carry_out(effect)

    def _step_recovery(self) -> None:
        with patch.object(local_network, "ReplicaCore", partial(SimulatedCore, self.world)):
            super()._step_recovery()

    def step(self) -> bool:
        world = self.world
        if world.current is not self:
            return super().step()
        world.tick(self)
        with ExitStack() as stack:
            change = self.rescaling
            if change is not None and not change.is_done:  # it may build new replicas now
                stack.enter_context(patch.object(local_network, "ReplicaCore", partial(SimulatedCore, world)))
            if change is not None and world.is_coordinator_dead:
                stack.enter_context(patch.object(change, "advance", lambda: False))
            has_moved = super().step()
        return has_moved or world.on_idle(self)

    def wait(self, timeout_s: float | None = None) -> Result:
        def is_over(network: local_network.Network) -> bool:
            return self.world.armed is None and not self.world.left and only_a_snapshot_goes_on(network)

        with patch.object(local, "only_a_snapshot_goes_on", is_over):
            return super().wait(timeout_s)

    def _perform(self, event: Any) -> bool:
        world = self.world
        if world.current is not self:
            return super()._perform(event)
        world.trace(event)
        if holding.holds(world, self, event):
            return True
        world.look(self, event)
        broken = holding.hook_to_break(world, self, event)
        if broken is None:
            return super()._perform(event)
        vertex, hook, kind = broken

        def breaking(*_: Any) -> Any:
            world.struck(kind)
            _raise()

        real = type(vertex)
        vertex.__class__ = type(real.__name__, (real,), {hook: breaking})  # not in its __dict__, which may be its state
        try:
            return super()._perform(event)
        finally:
            vertex.__class__ = real

    def _is_final(self, error: BaseException) -> bool:
        """Failures that were not simulated are violations, from which the job must not recover."""
        is_simulated = isinstance(error, (SnapshotError, SimulatedCrash)) or any(
            word in str(error) for word in ("simulated", "SimulatedCrash")
        )
        return not is_simulated or super()._is_final(error)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, (DriverDied, Replaced)):
            return
        super()._fail(error)


def phases_now(job: LocalJob) -> set[str]:
    """The phases in which the replicas and the coordinator are with the pending snapshot and the change of layout."""
    snapshots, change = job.snapshots, job.rescaling
    assert snapshots is not None
    is_waiting = change is not None and change.is_waiting
    if change is not None and not change.is_done and not is_waiting:
        return {change.phase}
    return (_phases(job) - {"steady"}) | {"waiting"} if is_waiting else _phases(job)


def _phases(job: LocalJob) -> set[str]:
    snapshots = job.snapshots
    assert snapshots is not None
    if snapshots.committing is not None:
        return {"committing"}
    pending = snapshots.snapshots.pending
    if pending is None:
        return {"steady"}
    if snapshots.snapshots.is_complete:
        return {"publishing"}
    out = set()
    for participant in snapshots.participants.values():
        if participant.alignment.number == pending.number:
            if participant.alignment.is_aligning:
                out.add("aligning")
            elif participant.capture is not None:
                out.add("logging")
    if snapshots.reports or any(("write", at) in job.network.ready.place for at in snapshots.writing):
        out.add("writing")
    return out or {"aligning"}
