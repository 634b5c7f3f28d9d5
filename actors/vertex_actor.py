"""The Ray actor of a process that holds replicas: of one, or of one of each vertex. Ray gives placement, supervision and control calls;
everything else is in its host.

The modules of the host, three quarters of what this process imports, are imported in it alone: the coordinator makes these actors before it
imports its own, so that all processes of a job import side by side.
"""

from __future__ import annotations

import dataclasses
import time as clock
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import ray

from rayad.actors.cluster import last_words
from rayad.actors.cluster.actor_class import PULSE, TAKE_S, actor_title, remote_class, show_in_logs
from rayad.actors.cluster.changed_modules import changed_modules
from rayad.actors.cluster.joining import own_address
from rayad.actors.cluster.parcels import Parcel, opened
from rayad.actors.process.ahead import load_ahead
from rayad.actors.process.garbage import forget_job, freeze_modules

if TYPE_CHECKING:
    from rayad.actors.host.worker_host import WorkerHost
    from rayad.actors.lead.failure import Failure
    from rayad.actors.plane.plane import Address
    from rayad.actors.plane.replica_id import ReplicaId
    from rayad.actors.replica.input.source_parts import Resumable
    from rayad.actors.replica.places import Places
    from rayad.actors.replica.reads.questions import Begins
    from rayad.actors.replica.recent import News
    from rayad.actors.replica.report import Kept, Left, Pulse, ReplicaReport
    from rayad.autoscale.statistics import ReplicaReading
    from rayad.dataflow.config import RunConfig
    from rayad.dataflow.plan import Layout, Plan
    from rayad.snapshots.store import SnapshotStore

    Ended = dict[str, ReplicaReport]
    """What the replicas of a process did, by name, when their work is done."""


class VertexActor:
    """The process of one replica of one vertex, in one job after the other. ``shown_as``: see :func:`actor_title`."""

    def __init__(self, *shown_as: str) -> None:
        self._shown_as = shown_as
        self._who = ""
        self._arguments: tuple[Plan, str, Places, RunConfig] | None = None
        self._refusal: Exception | None = None
        self._identity: dict[str, Any] = {}
        self._host: WorkerHost | None = None
        self._has_run = True
        self._began_s = clock.time()
        self._node = ray.util.get_node_ip_address()
        self._node_id = str(ray.get_runtime_context().get_node_id())
        self._id = ray.get_runtime_context().get_actor_id()
        if self._id is not None:
            last_words.tell_exits(self._id)
        _host()
        freeze_modules()

    def __repr__(self) -> str:
        """What Ray shows in its dashboard, ``ray list actors --detail`` and the prefix of log lines."""
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def take(
        self, plan: Parcel, process: str, places: Places, config: RunConfig, job: str, secret: bytes, has_columns: bool = False
    ) -> None:
        """Be this process of a job. ``plan``: a parcel of it; where it cannot be read here, :meth:`listen` says so. ``has_columns``: of
        the whole job; what columns need is loaded before anything of the job is here."""
        self._who, self._identity = process, {"job": job, "secret": secret}
        self._host, self._has_run, self._arguments, self._refusal = None, True, None, None
        if has_columns:
            _host().load_for_columns()
            freeze_modules()
        try:
            mine: Plan = opened(plan, TAKE_S)
        except Exception as error:
            self._refusal = error
            return
        self._who = places.who(process, mine)
        self._arguments = (mine, process, places, config)
        show_in_logs(self, job, self._who)

    def load_ahead(self) -> None:
        """See :mod:`rayad.actors.process.ahead`."""
        load_ahead()
        _host().have_freed_memory()
        freeze_modules()

    def rest(self) -> None:
        """The job is complete: forget it, and wait for another one."""
        self._host, self._arguments, self._identity = None, None, {}
        forget_job()

    def is_fit(self) -> bool:
        """Whether another job may use this process: it answers, and modules that it has imported are as they are on disk."""
        return not changed_modules(self._began_s)

    def listen(
        self,
        host: str | None,
        incarnation: int,
        store: SnapshotStore | None = None,
        parts: Mapping[ReplicaId, Resumable] | None = None,
        incarnations: dict[str, int] | None = None,
        layout: Layout | None = None,
        is_newcomer: bool = False,
        changed: RunConfig | None = None,
        ended: int = 0,
    ) -> Address | Failure:
        """Build the replicas, from the beginning or from their parts of a snapshot, and open the plane; again for each incarnation.

        ``host``: where to listen, None: at the address of its node; ``layout``: of the job now; ``is_newcomer``: it comes into a running
        job; ``changed``: the configuration now; ``ended``: how often processes of this vertex have ended in a row.
        """
        if self._arguments is None:
            return self._failed(self._refusal or _host().ProtocolError(f"{self._who or 'this process'} has been given no job"))
        plan, process, places, config = self._arguments
        try:
            if layout is not None:
                plan = plan.laid_out(layout)
            _host().keep_freed_memory()
            if not self._has_run:
                assert self._host is not None
                self._host.discard()  # another actor did not start
            options: dict[str, Any] = {"is_newcomer": is_newcomer}
            if ended:
                joins = {"RAY_ADDRESS": str(ray.get_runtime_context().gcs_address)}  # a function that uses Ray finds this cluster
                options["isolated"] = partial(_host().isolated, self._who, ended, joins)
            given: dict[str, Any] = {"incarnation": incarnation, "store": store, "incarnations": incarnations}
            self._host = _host().on_sockets(process, plan, places, changed or config, **self._identity, **given)
            self._has_run = False
            mine = {replica: {**options, "part": (parts or {}).get(replica)} for replica in places.replicas_at(process, plan)}
            return self._host.listen(own_address(host), mine)
        except Exception as error:
            if not self._has_run:
                assert self._host is not None
                self._host.discard()
                self._has_run = True
            return self._failed(error)

    def _failed(self, error: Exception) -> Failure:
        failure: Failure = _host().failure_of(self._who, error)
        return failure

    def run(self, addresses: dict[str, Address]) -> tuple[Ended | Failure, dict[str, Kept]]:
        """Run to the end: see :func:`rayad.actors.replica.report.told`; a Failure in place of the reports."""
        assert self._host is not None
        self._has_run = True
        try:
            left = {replica.plane_name: each for replica, each in self._host.run(addresses).items()}
        except Exception as error:
            return self._failed(error), {}
        except SystemExit as error:  # a function of the user's ends the process
            if self._id is not None:
                last_words.leave(self._id, last_words.told_of(error))
            raise
        return _host().told(left)  # type: ignore[no-any-return]

    def ping(self) -> Pulse:
        """Answer, if the process lives, with what its event loop is busy with."""
        pulse: Pulse = _host().Pulse(self._host.activity() if self._host is not None else None, self._node, self._node_id)
        return pulse

    def acquit(self) -> None:
        """Functions in processes of their own may return, as soon as the loop comes to it."""
        if self._host is not None:
            self._host.acquit()

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

    def change(self, *asked: Any) -> Any:
        """See :meth:`WorkerHost.change`."""
        assert self._host is not None
        return self._host.change(*asked)

    def change_within(self, timeout_s: float, *asked: Any) -> Any:
        """See :meth:`WorkerHost.change_within`."""
        assert self._host is not None
        return self._host.change_within(timeout_s, *asked)

    def await_change(self, *asked: Any) -> bool | Left:
        """See :meth:`WorkerHost.await_change`."""
        assert self._host is not None
        return self._host.await_change(*asked)  # type: ignore[no-any-return]

    def stop(self, stages: list[int]) -> None:
        """Let these vertices read no more input, as soon as the loop comes back."""
        if self._host is not None:
            self._host.stop(stages)

    def has_stopped(self) -> bool:
        """Whether the loop has taken notice of :meth:`stop`, or is over."""
        return self._host is None or self._host.has_stopped

    def look(self, with_readings: bool = False) -> dict[str, ReplicaReport]:
        """What each replica has done so far, by name; within a moment, even while its event loop does not answer."""
        host = self._host
        if host is None:
            return {}
        reports, readings = host.look(), host.readings() if with_readings else {}
        return {
            replica.plane_name: dataclasses.replace(report, node=self._node, reading=readings.get(replica))
            for replica, report in reports.items()
        }

    def updates(self, stage: int, sink: str, seen: tuple[int, int] | None) -> News | None:
        """The last records written to a sink by a vertex's replica here, by the sink's key, that are not ``seen`` (incarnation, records);
        None before it was first built."""
        return self._host.updates(stage, sink, seen) if self._host is not None else None

    def doing(self) -> str | None:
        """See :meth:`WorkerHost.doing`."""
        return self._host.doing() if self._host is not None else None

    def begun(self) -> dict[ReplicaId, Begins] | None:
        """See :meth:`WorkerHost.begun`; None before the replicas were first built."""
        return self._host.begun() if self._host is not None else None

    def readings(self) -> list[ReplicaReading]:
        """What its replicas have counted so far."""
        return list(self._host.readings().values()) if self._host is not None else []


class WorkerActor(VertexActor):
    """The process of one replica of each of several vertices."""


def _host() -> Any:
    """What this process needs once it has work."""
    from rayad.actors.host import replica_process

    return replica_process


@cache
def remote_vertex(role: str, vertices: int) -> Any:
    """The Ray class of processes of a :class:`Kind`."""
    groups = {PULSE: ("ping", "abandon", "stop", "has_stopped", "acquit"), "looks": ("look", "readings", "updates", "is_fit")}
    groups |= {"tables": ("doing", "begun")}
    groups |= {"control": ("roll_back", "change", "change_within", "await_change")}
    sizes = {PULSE: 2, "looks": 2, "tables": 2, "control": 4 + 2 * vertices}
    return remote_class(WorkerActor if role == "worker" else VertexActor, sizes, groups)
