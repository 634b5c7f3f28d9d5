"""The coordinator: the Ray actor that runs one job, or one after the other (:mod:`rayad.actors.warm`).

It is the owner of all other actors of the job: when it goes, or the driver that owns it, Ray ends them all. ``run`` is one long call; the
other calls come in threads of their own meanwhile, each with the token of the job that it is about.
"""

from __future__ import annotations

import gc
import threading
import time as clock
from collections.abc import Collection
from functools import cache
from typing import Any

import ray

from rayad.actors.cluster.actor_class import PULSE, WAITING, actor_title, remote_class, show_in_logs
from rayad.actors.cluster.addressed import NotThisJob
from rayad.actors.cluster.spares import Spares
from rayad.actors.coordinator.control import Control
from rayad.actors.coordinator.crew import PROGRESS_KIND, new_process
from rayad.actors.coordinator.lease import Lease
from rayad.actors.coordinator.metrics import JobMetrics, Watch
from rayad.actors.coordinator.outcome import JobOutcome
from rayad.actors.coordinator.predecessors import await_predecessors
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.coordinator.told_outcome import ToldOutcome
from rayad.actors.replica.places import Places, worker_name
from rayad.actors.status.stalls import Stalls
from rayad.actors.vertex_actor import kind_of
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.snapshots.manifest import KeeperId

TAKEN_S = 60.0
"""How long a call waits for the first job of a coordinator, which its owner gives it as soon as it is there."""
CALLS = {
    PULSE: ("ping", "cancel"),
    "meets": ("about", "introduce"),
    "looks": ("saved_inputs", "saved_epochs", "replicas", "look", "look_at_snapshots", "hasten_snapshot", "not_stopped", "updates"),
    "shows": ("status", "journal", "note_decision"),
    "waits": ("where", "frontier", "wait_epoch", "wait_saved"),
    "changes": ("stop", "savepoint", "rescale", "configure"),
}
"""What :class:`Control` answers, by concurrency group."""
_THREADS = {PULSE: 2, "meets": 1, "looks": 4, "shows": 4, "waits": WAITING, "changes": 8, "ends": 2}


class _CoordinatedJob:
    """One job in the coordinator; see :class:`RunningJob` for the arguments."""

    def __init__(
        self, plan: Plan, config: RunConfig, job: str, secret: bytes, name: str, places: Places, spares: Spares | None = None
    ) -> None:
        self.name = name
        self._job = running = RunningJob(plan, config, job, secret, name, places, spares)
        rescaler = Rescaler(running)
        self._supervisor = Supervisor(running, rescaler)
        self.control = Control(running, rescaler)
        self.told = ToldOutcome()
        self._has_begun = False

    def run(
        self,
        run: str | None = None,
        earlier: Collection[str] = (),
        *,
        before: Collection[str] = (),
        has_begun: bool = False,
        keeper: KeeperId | None = None,
        failures: int = 0,
        asked_s: float | None = None,
        delay_s: float = 0.0,
    ) -> JobOutcome | None:
        """See :meth:`Supervisor.run`, which begins after the delay, and when the coordinators of ``earlier`` runs have ended; ``before``:
        the names of those among them that were not the job's alone. Called again, by an owner who does not know whether the first call has
        come, it does nothing and gives None."""
        if self._has_begun:
            return None
        self._has_begun = True
        stalls, metrics = Stalls(self.control.note_event, self.control.holds_up), JobMetrics(self.name, succeeds=bool(earlier))
        watch = Watch(self.control.status, [metrics.show, stalls.see])
        lease = Lease(self._job, self.told, earlier)
        watch.start()
        lease.start()
        try:
            if earlier:
                began_s = clock.time()
                await_predecessors(self._job, delay_s, before)
                asked_s = asked_s + clock.time() - began_s if asked_s is not None else None
            outcome = self._supervisor.run(run, earlier, has_begun=has_begun, keeper=keeper, failures=failures, asked_s=asked_s)
            self.told.tell(outcome)
            return outcome
        finally:
            watch.stop()
            lease.stop()


class Coordinator:
    """The coordinator of one job after the other. ``shown_as``: see :func:`actor_title`."""

    def __init__(self, *shown_as: str) -> None:
        self._shown_as = shown_as
        self._spares = Spares()
        self._taken = threading.Event()
        self._token = ""
        self._job: _CoordinatedJob | None = None
        self._refusal: Exception | None = None

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    # -- in the main thread, one after the other -----------------------------------------------------------
    def prepare(self, workers: int, cpus: float) -> None:
        """Start processes for jobs to come: the progress actor and these workers."""
        kinds = [PROGRESS_KIND, *(kind_of(worker_name(at), Places(), {"num_cpus": cpus}) for at in range(workers))]
        for kind in kinds:
            self._spares.add(kind, new_process(kind, "SPREAD"))

    def take(self, token: str, stays: bool, plan: list[Any], config: RunConfig, job: str, secret: bytes, name: str, places: Places) -> None:
        """This is the job now. ``stays``: it uses the processes of those before, and leaves its own. ``plan``: a reference to it."""
        self._refusal, self._job = None, None
        self._token = token
        gc.collect()
        try:
            there: Plan = ray.get(plan[0])  # the owner, which has put it there, waits with a bound
            self._job = _CoordinatedJob(there, config, job, secret, name, places, self._spares if stays else None)
            show_in_logs(self, job)
        except Exception as error:
            self._refusal = error
        self._taken.set()

    def is_idle(self) -> bool:
        """Answer when no long call is running."""
        return True

    def run(self, token: str, *arguments: Any, **options: Any) -> JobOutcome | None:
        """See :meth:`_CoordinatedJob.run`."""
        return self.job(token).run(*arguments, **options)

    # -- any thread ----------------------------------------------------------------------------------------
    def job(self, token: str) -> _CoordinatedJob:
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


__all__ = ["CALLS", "Coordinator", "remote_coordinator"]
