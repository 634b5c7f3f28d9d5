"""The Ray actor of a process that holds replicas: of one, or of one of each vertex. Ray gives placement, supervision and control calls;
everything else is in its host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import ray

from rayad.actors.cluster import last_words
from rayad.actors.cluster.actor_class import PULSE, actor_title, remote_class
from rayad.actors.cluster.joining import own_address
from rayad.actors.host.isolated import isolated
from rayad.actors.host.worker_host import WorkerHost
from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.plane.plane import Address
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.allocator import keep_freed_memory
from rayad.actors.replica.places import Places, is_worker
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import Left, Pulse, ReplicaReport
from rayad.actors.replica.source_parts import Resumable
from rayad.autoscale.statistics import ReplicaReading
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Layout, Plan
from rayad.snapshots.store import SnapshotStore

Ended = dict[str, ReplicaReport]
"""What the replicas of a process did, by name, when their work is done."""


class VertexActor:
    """The process of one replica of one vertex."""

    def __init__(self, plan: Plan, process: str, places: Places, config: RunConfig, job: str, secret: bytes) -> None:
        (stage, replica) = places.replicas_at(process, plan)[0] if not is_worker(process) else (0, 0)
        self._who = places.title(process, plan) if is_worker(process) else f"{plan.stage(stage).name}[{replica}]"
        self._shown_as = (job, self._who)
        self._arguments = (plan, process, places, config)
        self._identity: dict[str, Any] = {"job": job, "secret": secret}
        self._host: WorkerHost | None = None
        self._has_run = True
        self._node = ray.util.get_node_ip_address()
        self._node_id = str(ray.get_runtime_context().get_node_id())
        self._id = ray.get_runtime_context().get_actor_id()
        if self._id is not None:
            last_words.tell_exits(self._id)

    def __repr__(self) -> str:
        """What Ray shows in its dashboard, ``ray list actors --detail`` and the prefix of log lines."""
        return actor_title(self, *getattr(self, "_shown_as", ()))

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
        plan, process, places, config = self._arguments
        try:
            if layout is not None:
                plan = plan.laid_out(layout)
            keep_freed_memory()
            if not self._has_run:
                assert self._host is not None
                self._host.discard()  # another actor did not start
            options: dict[str, Any] = {"is_newcomer": is_newcomer}
            if ended:
                joins = {"RAY_ADDRESS": str(ray.get_runtime_context().gcs_address)}  # a function that uses Ray finds this cluster
                options["isolated"] = partial(isolated, self._who, ended, joins)
            given: dict[str, Any] = {"incarnation": incarnation, "store": store, "incarnations": incarnations}
            self._host = WorkerHost(process, plan, places, changed or config, **self._identity, **given)
            self._has_run = False
            mine = {replica: {**options, "part": (parts or {}).get(replica)} for replica in places.replicas_at(process, plan)}
            return self._host.listen(own_address(host), mine)
        except Exception as error:
            if not self._has_run:
                assert self._host is not None
                self._host.discard()
                self._has_run = True
            return failure_of(self._who, error)

    def run(self, addresses: dict[str, Address]) -> tuple[Ended | Failure, dict[str, Any]]:
        """Run to the end: what each replica did (or a Failure), and what its sinks have staged."""
        assert self._host is not None
        self._has_run = True
        try:
            ended = {replica.plane_name: left for replica, left in self._host.run(addresses).items()}
        except Exception as error:
            return failure_of(self._who, error), {}
        except SystemExit as error:  # a function of the user's ends the process
            if self._id is not None:
                last_words.leave(self._id, last_words.told_of(error))
            raise
        return {name: left.report for name, left in ended.items()}, {name: left.staged for name, left in ended.items()}

    def ping(self) -> Pulse:
        """Answer, if the process lives, with what its event loop is busy with."""
        return Pulse(self._host.activity() if self._host is not None else None, self._node, self._node_id)

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

    def change(self, replica: ReplicaId, method: str, *args: Any) -> Any:
        """One of HostRescale's methods, in the loop: however long that is in user code. The coordinator bounds how long it waits; a
        question that it does not wait for any longer stays, before those that it asks later."""
        host = self._host
        assert host is not None
        if method == "admit":
            return host.admit(*replica, *args)
        if method == "withdraw":
            return host.withdraw(replica[0])
        return host.ask(lambda: getattr(host.host(replica[0]).rescale, method)(*args))

    def change_within(self, timeout_s: float, replica: ReplicaId, method: str, *args: Any) -> Any:
        """Like :meth:`change`, but withdrawn if the loop does not reach it within ``timeout_s``. Raises NoAnswer."""
        host = self._host
        assert host is not None
        return host.ask(lambda: getattr(host.host(replica[0]).rescale, method)(*args), timeout_s)

    def await_change(self, replica: ReplicaId, method: str, timeout_s: float, *args: Any) -> bool | Left:
        """Wait until one of HostRescale's methods gives True."""
        host = self._host
        assert host is not None
        if method == "has_left":
            return host.await_left(*replica, timeout_s)
        return host.mailbox.watch(lambda: bool(getattr(host.host(replica[0]).rescale, method)(*args)), timeout_s)

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

    def readings(self) -> list[ReplicaReading]:
        """What its replicas have counted so far."""
        return list(self._host.readings().values()) if self._host is not None else []


class WorkerActor(VertexActor):
    """The process of one replica of each of several vertices."""


def remote_vertex(process: str, places: Places) -> Any:
    """The Ray class of a process that holds replicas. Each of them may be asked to wait for something, and for one thing more."""
    return _remote(len(places.offsets) if is_worker(process) else None)


@cache
def _remote(vertices: int | None) -> Any:
    """Of a worker that holds replicas of so many vertices; None: of a single replica."""
    groups = {PULSE: ("ping", "abandon", "stop", "has_stopped", "acquit"), "looks": ("look", "readings", "updates")}
    groups |= {"control": ("roll_back", "change", "change_within", "await_change")}
    sizes = {PULSE: 2, "looks": 2, "control": 4 + 2 * (vertices or 0)}
    return remote_class(VertexActor if vertices is None else WorkerActor, sizes, groups)
