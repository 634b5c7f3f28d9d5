"""The Ray actors of a job's data side: one per vertex replica, and the progress actor.

Ray gives placement, supervision and control calls; everything else is in the hosts. ``run`` is one long call; its reference tells of the
actor's death. Other calls use threads of their own, so that they are answered meanwhile: one concurrency group for heartbeats, in which
nothing ever waits, and others for looking, for changes, and for waiting. So no number of calls that wait can look like a death.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ray

from rayad.actors.failures import sign_of
from rayad.actors.host import ReplicaHost
from rayad.actors.memory import keep_freed_memory
from rayad.actors.plane import Address
from rayad.actors.progress_host import ProgressHost
from rayad.actors.ray_cluster import own_address
from rayad.actors.replica_report import Pulse, ReplicaReport
from rayad.actors.source_parts import SourceShare
from rayad.autoscale.statistics import ReplicaReading
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import RayadError, say
from rayad.snapshots.store import ReplicaPart, SnapshotStore

PULSE = "pulse"
"""The concurrency group of heartbeats, and of what must always get through: no call in it waits for anything."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How an actor's work ended badly: a value, so that it survives pickling whatever the exception was."""

    who: str
    message: str
    details: str
    error: bytes | None
    """The pickled RayadError, when it is one."""
    is_lost_peer: bool
    sign: str = ""
    """The same for failures that are the same and will come back; see ``failures.sign_of``."""

    def rebuild(self) -> BaseException | None:
        """The original RayadError."""
        return pickle.loads(self.error) if self.error is not None else None


def failure_of(who: str, error: BaseException) -> Failure:
    """Describe an exception as a value."""
    pickled = None
    if isinstance(error, RayadError):
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            pickled = None
    details = "".join(traceback.format_exception(error))
    return Failure(who, f"{type(error).__name__}: {say(error)}", details, pickled, isinstance(error, ConnectionError), sign_of(error))


class VertexActor:
    """One replica of one stage."""

    def __init__(self, plan: Plan, stage: int, replica: int, config: RunConfig, job: str, secret: bytes) -> None:
        self._who = f"{plan.stage(stage).name}[{replica}]"
        self._arguments = (plan, stage, replica, config)
        self._identity: dict[str, Any] = {"job": job, "secret": secret}
        self._host: ReplicaHost | None = None
        self._has_run = True
        self._node = ray.util.get_node_ip_address()

    def listen(
        self,
        host: str | None,
        incarnation: int,
        store: SnapshotStore | None = None,
        part: ReplicaPart | SourceShare | None = None,
        incarnations: dict[str, int] | None = None,
        layout: Layout | None = None,
        is_newcomer: bool = False,
        changed: RunConfig | None = None,
    ) -> Address | Failure:
        """Build the replica, from the beginning or from its part of a snapshot, and open its plane; again for each incarnation.

        ``host``: where to listen, None: at the address of its node; ``layout``: of the job now; ``is_newcomer``: it comes into a running
        job; ``changed``: the configuration now.
        """
        try:
            plan, stage, replica, config = self._arguments
            plan = plan if layout is None else plan.laid_out(layout)
            keep_freed_memory()
            if not self._has_run:
                assert self._host is not None
                self._host.discard()  # another actor did not start
            options: dict[str, Any] = {"incarnation": incarnation, "store": store, "part": part, "incarnations": incarnations}
            self._host = ReplicaHost(plan, stage, replica, changed or config, **self._identity, **options)
            self._has_run = False
            self._host.rescale.is_newcomer = is_newcomer
            return self._host.listen(own_address(host))
        except Exception as error:
            if not self._has_run:
                assert self._host is not None
                self._host.discard()
                self._has_run = True
            return failure_of(self._who, error)

    def run(self, addresses: dict[str, Address]) -> tuple[ReplicaReport | Failure, dict[int, Any]]:
        """Run to the end: a report (or a Failure), and what the sinks have staged."""
        assert self._host is not None
        self._has_run = True
        try:
            staged = self._host.run(addresses)
            return self._host.report, staged
        except Exception as error:
            return failure_of(self._who, error), {}

    def ping(self) -> Pulse:
        """Answer, if the process lives, with what its event loop is busy with."""
        return Pulse(self._host.activity() if self._host is not None else None, self._node)

    def idle(self) -> None:
        """Answer when no long call is running: not a control call."""

    def abandon(self, incarnation: int) -> None:
        """This incarnation is over: ``run`` ends, and ``listen`` may begin another."""
        if self._host is not None and self._host.plane.incarnation <= incarnation:
            self._host.abandon()

    def roll_back(self, *arguments: Any) -> None:
        """What is upstream of this replica begins anew."""
        assert self._host is not None
        self._host.roll_back(*arguments)

    def change(self, method: str, *args: Any) -> Any:
        """One of HostRescale's methods, in the loop: however long that is in user code. The coordinator bounds how long it waits; a
        question that it does not wait for any longer stays, before those that it asks later."""
        host = self._host
        assert host is not None
        if not self._has_run:  # the loop has not begun
            return getattr(host.rescale, method)(*args)
        return host.mailbox.ask(lambda: getattr(host.rescale, method)(*args), timeout_s=WHILE_IT_LIVES_S)

    def change_within(self, timeout_s: float, method: str, *args: Any) -> Any:
        """The same, which is not done at all when the loop does not come to it in time. Raises NoAnswer."""
        assert self._host is not None
        rescale = self._host.rescale
        return self._host.mailbox.ask(lambda: getattr(rescale, method)(*args), timeout_s=timeout_s)

    def await_change(self, method: str, timeout_s: float, *args: Any) -> bool:
        """Wait until one of HostRescale's methods gives True."""
        host = self._host
        assert host is not None
        return host.mailbox.watch(lambda: bool(getattr(host.rescale, method)(*args)), timeout_s)

    def stop(self) -> None:
        """Read no more input, as soon as the loop comes back."""
        if self._host is not None:
            self._host.stop()

    def has_stopped(self) -> bool:
        """Whether the loop has taken notice of :meth:`stop`, or is over."""
        return self._host is None or self._host.has_stopped

    def look(self) -> ReplicaReport:
        """What it has done so far; within a moment, even while its event loop does not answer."""
        assert self._host is not None
        report = self._host.look()
        report.node = self._node
        return report

    def reading(self) -> ReplicaReading | None:
        """What it has counted so far; None before it was first built."""
        return self._host.statistics.reading() if self._host is not None else None


class ProgressActor:
    """The progress core of one job."""

    def __init__(self, plan: Plan, job: str, secret: bytes) -> None:
        self._plan = plan
        self._identity: dict[str, Any] = {"job": job, "secret": secret}
        self._host: ProgressHost | None = None
        self._node = ray.util.get_node_ip_address()

    def listen(self, host: str | None, unix: str, incarnation: int, survives: bool, layout: Layout) -> Address | Failure:
        """Open the plane, with no progress made; again for each incarnation. ``survives``: the loss of replicas."""
        try:
            self._host = ProgressHost(self._plan.laid_out(layout), incarnation=incarnation, survives=survives, **self._identity)
            return self._host.listen(own_address(host), unix)
        except Exception as error:
            return failure_of("progress", error)

    def run(self) -> tuple[dict[str, int] | Failure, dict[int, Any]]:
        """Run until the job is complete."""
        assert self._host is not None
        try:
            return self._host.run(), {}
        except Exception as error:
            return failure_of("progress", error), {}

    def ping(self) -> Pulse:
        """Answer, if the process lives."""
        return Pulse(None, self._node)

    def idle(self) -> None:
        """Answer when no long call is running: not a control call."""

    def abandon(self, incarnation: int) -> None:
        """This incarnation is over."""
        if self._host is not None and self._host.plane.incarnation <= incarnation:
            self._host.abandon()

    def call(self, method: str, *args: Any) -> Any:
        """One of ProgressHost's control calls."""
        return getattr(self._host, method)(*args)

    def wait_epoch(self, node: int, epoch: int, hold_s: float) -> bool:
        """Whether an epoch is complete at a probe; waits for that, not longer than ``hold_s``."""
        assert self._host is not None
        return self._host.wait_epoch(node, epoch, hold_s)


WAITING = 8
"""So many calls that wait for something an actor holds at once; further ones come after them."""
WHILE_IT_LIVES_S = 30 * 86400.0
"""No bound of its own: it ends with the event loop, or with the process; whoever waits for the answer has the bound."""
NO_RETRIES = {"max_restarts": 0, "max_task_retries": 0}
"""Never restarted by Ray, because queued calls could reach a newcomer."""


def remote_vertex() -> Any:
    """The Ray class of vertex actors."""
    groups = {PULSE: ("ping", "abandon", "stop", "has_stopped"), "looks": ("look", "reading")}
    groups |= {"control": ("roll_back", "change", "change_within", "await_change")}
    return remote_class(VertexActor, {PULSE: 2, "looks": 2, "control": 4}, groups)


def remote_progress() -> Any:
    """The Ray class of the progress actor."""
    groups = {PULSE: ("ping", "abandon"), "control": ("call",), "waits": ("wait_epoch",)}
    return remote_class(ProgressActor, {PULSE: 2, "control": 4, "waits": WAITING}, groups)


def remote_class(cls: type, threads: Mapping[str, int], groups: Mapping[str, Collection[str]], **options: Any) -> Any:
    """The Ray class whose methods run in these concurrency groups, each with so many threads; what is in none runs in the main thread."""
    grouped = {name: ray.method(concurrency_group=group)(_forward(cls, name)) for group, names in groups.items() for name in names}
    return ray.remote(concurrency_groups=dict(threads), **NO_RETRIES, **options)(type(cls.__name__, (cls,), grouped))


def _forward(cls: type, name: str) -> Any:
    inner = getattr(cls, name)

    def call(self: Any, *args: Any) -> Any:
        return inner(self, *args)

    call.__name__ = name
    return call
