"""The local runtime under the simulation: its clock is simulated, every event passes the :class:`World`, some parts break on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from rayad.actors.lead.placing import placed
from rayad.actors.lead.recovery_leader import Listen
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.processes import POLLS
from rayad.actors.local.runtime import LocalRuntime
from rayad.actors.plane.protocol import COORDINATOR, Kind
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.places import Places
from rayad.actors.worker import workplace
from rayad.actors.worker.replica_host import IDLE_SOURCE_S, ReplicaHost
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
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


@contextmanager
def slow_sources(world: World) -> Iterator[None]:
    """Sources have nothing at many of the moments at which they are asked, while faults are left that may need records."""
    read = ReplicaHost._read_source

    def slow(self: ReplicaHost) -> bool:
        if not self._is_stopping and not world.is_replaced_moving and world.waits_with_input():
            self._idle_s = IDLE_SOURCE_S
            return False
        return read(self)

    with patch.object(ReplicaHost, "_read_source", slow):
        yield


class SimulatedRuntime(LocalRuntime):
    """One driver's runtime in a world."""

    def __init__(self, world: World, *args: Any, **kwargs: Any) -> None:
        self.world = world
        self.looks = world.looks
        self.polls = 0.0 if world._is_uneven else POLLS  # else what comes slowly would come with the rest
        self.wants_end = False
        self.unforeseen: BaseException | None = None
        """A failure that was not simulated: a violation, from which the job must not recover."""
        super().__init__(*args, **kwargs)

    @property
    def is_current(self) -> bool:
        """Whether no other driver has started the job since."""
        return self.world.current is not None and self.world.current.runtime is self

    def _on_effect(self, effect: Any) -> None:
        if isinstance(effect, Listen) and effect.is_of_all and not self.world.is_replaced_moving:
            self.world.on_start()
        super()._on_effect(effect)

    def step_recovery(self) -> None:
        if self.unforeseen is not None:
            self.fail(self.unforeseen)
            return
        with patch.object(workplace, "ReplicaCore", partial(SimulatedCore, self.world)):
            super().step_recovery()

    def let_end(self) -> None:
        """Not before the faults that are left have struck."""
        self.wants_end = True

    def end_now(self) -> None:
        """Now."""
        super().let_end()

    def perform(self, event: Any) -> None:
        world = self.world
        if not self.is_current:
            super().perform(event)
            return
        world.trace(event)
        if holding.holds(world, self, event):
            if event[0] == "feed":
                self.processes.pass_time()  # the others wait no longer for what they wait for than if nothing were to be fed
            return
        world.look(self, event)
        broken = holding.hooks_to_break(world, self, event)
        if broken is None:
            super().perform(event)
            return
        vertices, hook, kind = broken

        def breaking(*_: Any) -> Any:
            world.struck(kind)
            _raise()

        real = [(vertex, type(vertex)) for vertex in vertices]
        for vertex, cls in real:
            vertex.__class__ = type(cls.__name__, (cls,), {hook: breaking})  # not in its __dict__, which may be its state
        try:
            super().perform(event)
        finally:
            for vertex, cls in real:
                vertex.__class__ = cls

    def on_raised(self, error: BaseException) -> None:
        """What is not simulated is not forgotten."""
        is_simulated = isinstance(error, (SnapshotError, SimulatedCrash)) or any(
            word in str(error) for word in ("simulated", "SimulatedCrash")
        )
        if not is_simulated and self.unforeseen is None:
            self.unforeseen = error

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, (DriverDied, Replaced)):
            super().fail(error)


class SimulatedJob(LocalJob):
    """One driver's job in a world.

    Args:
        world: disk, readers, clock and faults, which outlive the job.
    """

    runtime: SimulatedRuntime

    def __init__(self, world: World, *args: Any, **kwargs: Any) -> None:
        self.world = world
        world.current = self
        super().__init__(*args, **kwargs)

    def _made(self, plan: Plan, run: RunConfig, **options: Any) -> LocalRuntime:
        world, names = self.world, [stage.name for stage in plan.stages]
        mixed: Any = {name: world.rng.choice(["workers", "vertices"]) for name in names}
        placement = mixed if world.placement == "mixed" else world.placement
        places = Places() if run.failures.recovery == "upstream" else placed(plan, placement)
        self.runtime = SimulatedRuntime(world, self.name, plan, run, places, **options)
        return self.runtime

    def now_s(self) -> float:
        return self.world.clock_s

    def pause(self, seconds: float) -> None:
        self.world.clock_s += seconds

    def step(self) -> bool:
        world, runtime = self.world, self.runtime
        if world.current is not self:
            return super().step()
        world.tick(self)
        if runtime.wants_end and world.armed is None and not world.left:
            runtime.end_now()
        with ExitStack() as stack:
            change = self.rescaling
            if change is not None and not change.is_done:  # it may build new replicas now
                stack.enter_context(patch.object(workplace, "ReplicaCore", partial(SimulatedCore, world)))
            if change is not None and world.is_coordinator_dead:
                stack.enter_context(patch.object(change.wish, "look", lambda wait_s: None))
            has_moved = super().step()
        if has_moved or runtime.leader.is_over or world.on_idle(self):
            return has_moved or not runtime.leader.is_over
        if runtime.wants_end and not runtime.is_awaited:
            runtime.end_now()
            return True
        return False


def phases_now(job: LocalJob) -> set[str]:
    """The phases in which the replicas and the coordinator are with the pending snapshot and the change of layout."""
    change = job.rescaling
    is_waiting = change is not None and change.is_waiting
    if change is not None and not change.is_done and not is_waiting:
        return {change.phase}
    return (phases_of_snapshot(job) - {"steady"}) | {"waiting"} if is_waiting else phases_of_snapshot(job)


def phases_of_snapshot(job: LocalJob) -> set[str]:
    """Those of the snapshot alone."""
    snapshots, processes = job.snapshots, job.runtime.processes
    assert snapshots is not None
    if snapshots.leader.committing is not None:
        return {"committing"}
    pending = snapshots.leader.snapshots.pending
    if pending is None:
        return {"steady"}
    if snapshots.leader.snapshots.is_complete:
        return {"publishing"}
    out = set()
    for host in processes.hosts():
        participant = host.snapshots.participant if host.snapshots is not None else None
        if participant is not None and participant.alignment.number == pending.number:
            if participant.alignment.is_aligning:
                out.add("aligning")
            elif participant.capture is not None:
                out.add("logging")
    told = [frame for way, waiting in processes.bus.ways.items() if way[1] == COORDINATOR for frame in waiting if frame.kind == Kind.PART]
    if told or any(writer.waiting for writer in processes.writers.values()):
        out.add("writing")
    return out or {"aligning"}
