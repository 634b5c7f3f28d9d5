"""The coordinator: the Ray actor that runs one job, or one after the other (:mod:`rayad.actors.warm`).

It is the owner of all other actors of the job: when it goes, or the driver that owns it, Ray ends them all. ``run`` is one long call; the
other calls come in threads of their own meanwhile, each with the token of the job that it is about.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.actor_class import PULSE, TAKE_S, WAITING, actor_title, remote_class, show_in_logs
from rayad.actors.cluster.addressed import NotThisJob
from rayad.actors.cluster.on_node import on_this_node
from rayad.actors.cluster.parcels import Parcel, opened
from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND
from rayad.actors.coordinator.starting import new_process
from rayad.actors.process.ahead import load_ahead
from rayad.actors.process.garbage import forget_job, freeze_modules

if TYPE_CHECKING:
    from rayad.actors.coordinator.coordinated_job import CoordinatedJob
    from rayad.actors.coordinator.outcome import JobOutcome
    from rayad.actors.coordinator.processes.kinds import Start
    from rayad.actors.coordinator.processes.spares import Spares
    from rayad.actors.coordinator.surroundings import CoordinatorSurroundings
    from rayad.actors.lead.nodes.node import Site
    from rayad.actors.replica.places import Places
    from rayad.dataflow.config import RunConfig
    from rayad.dataflow.plan import Plan

TAKEN_S = 60.0
"""How long a call waits for the first job of a coordinator, which its owner gives it as soon as it is there."""
CALLS = {
    PULSE: ("ping", "cancel"),
    "meets": ("about", "introduce"),
    "looks": ("saved_inputs", "saved_epochs", "replicas", "look", "look_at_snapshots", "hasten_snapshot", "not_stopped", "updates"),
    "reads": ("readable", "committed"),
    "shows": ("status", "journal", "note_decision"),
    "waits": ("where", "frontier", "wait_epoch", "wait_saved"),
    "changes": ("stop", "savepoint", "rescale", "configure"),
}
"""What :class:`Control` answers, by concurrency group."""
_THREADS = {PULSE: 2, "meets": 1, "looks": 4, "reads": 2, "shows": 4, "waits": WAITING, "changes": 8, "ends": 2}


class Coordinator:
    """The coordinator of one job after the other. ``shown_as``: see :func:`actor_title`."""

    def __init__(self, *shown_as: str) -> None:
        self._shown_as = shown_as
        self._around: CoordinatorSurroundings | None = None
        self._spares: Spares | None = None
        self._taken = threading.Event()
        self._token = ""
        self._job: CoordinatedJob | None = None
        self._refusal: Exception | None = None

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    # -- in the main thread, one after the other -----------------------------------------------------------
    def prepare(self, starts: Sequence[tuple[Start, Site]], ahead: bool = False) -> None:
        """Start processes for a job to come; then import what this process needs itself, while they do the same. ``ahead``: and what jobs
        of a session will probably use."""
        new = [(start.kind, new_process(start.kind, start.title, site), site.node, start.title) for start, site in starts]
        if ahead:
            for kind, actor, *_ in new:
                if kind != PROGRESS_KIND:
                    ray_calls.call(actor.load_ahead)
        self._around = _jobs().on_ray()
        self._spares = _jobs().Spares(self._around)
        for one in new:
            self._spares.add(*one)
        if ahead:
            load_ahead()
        freeze_modules()

    def take(self, token: str, stays: bool, plan: Parcel, config: RunConfig, job: str, secret: bytes, name: str, places: Places) -> None:
        """This is the job now. ``stays``: it uses the processes of those before, and leaves its own. ``plan``: a parcel of it."""
        self._refusal, self._job = None, None
        self._token = token
        if self._spares is not None:
            self._spares.ask()
        forget_job()
        try:
            there: Plan = opened(plan, TAKE_S)
            assert self._around is not None, "no processes were prepared"
            running = _jobs().RunningJob(there, config, job, secret, name, places, self._around, self._spares, stays=stays)
            self._job = _jobs().CoordinatedJob(running)
            show_in_logs(self, job)
        except Exception as error:
            self._refusal = error
        self._taken.set()

    def is_idle(self) -> bool:
        """Answer when no long call is running."""
        return True

    def run(self, token: str, *arguments: Any, **options: Any) -> JobOutcome | None:
        """See :meth:`CoordinatedJob.run`."""
        return self.job(token).run(*arguments, **options)

    # -- any thread ----------------------------------------------------------------------------------------
    def job(self, token: str) -> CoordinatedJob:
        """The job that a call is about. Raises NotThisJob."""
        self._taken.wait(TAKEN_S)
        job, refusal = self._job, self._refusal
        if token != self._token:
            raise NotThisJob("the job has ended: its coordinator runs another one")
        if refusal is not None:
            raise refusal
        if job is None:
            raise NotThisJob("the job has not begun")
        return job

    def await_outcome(self, token: str) -> JobOutcome | None:
        """See :meth:`ToldOutcome.wait`."""
        return self.job(token).told.wait()  # ends with the job, or when it is asked again


def _jobs() -> Any:
    """What this process needs to run a job."""
    from rayad.actors.coordinator import coordinated_job

    return coordinated_job


def _of_control(name: str) -> Any:
    """A control call: see :class:`Control`."""

    def call(self: Coordinator, token: str, *arguments: Any) -> Any:
        return getattr(self.job(token).control, name)(*arguments)

    call.__name__ = name
    return call


@cache
def remote_coordinator() -> Any:
    """The Ray class of coordinators."""
    called = {name: _of_control(name) for names in CALLS.values() for name in names}
    groups = {**CALLS, "ends": ("await_outcome",)}
    return remote_class(type(Coordinator.__name__, (Coordinator,), called), _THREADS, groups, num_cpus=0)


def new_coordinator(options: Mapping[str, str], title: str) -> Any:
    """Start a coordinator on the node of whoever owns it: a node less whose end ends the job."""
    return ray_calls.create(remote_coordinator(), {**options, "scheduling_strategy": on_this_node()}, title)


__all__ = ["CALLS", "Coordinator", "new_coordinator"]
