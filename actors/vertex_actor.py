"""The Ray actor of one replica of a stage. Ray gives placement, supervision and control calls; everything else is in its host."""

from __future__ import annotations

import dataclasses
from functools import cache, partial
from typing import Any

import ray

from rayad.actors.cluster import last_words
from rayad.actors.cluster.actor_class import PULSE, actor_title, remote_class
from rayad.actors.cluster.joining import own_address
from rayad.actors.host.isolated import isolated
from rayad.actors.host.replica_host import ReplicaHost
from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.plane.plane import Address
from rayad.actors.process.allocator import keep_freed_memory
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import Pulse, ReplicaReport
from rayad.actors.replica.source_parts import Resumable
from rayad.autoscale.statistics import ReplicaReading
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Layout, Plan
from rayad.snapshots.store import SnapshotStore

WHILE_IT_LIVES_S = 30 * 86400.0
"""No bound of its own: it ends with the event loop, or with the process; whoever waits for the answer has the bound."""


class VertexActor:
    """One replica of one stage."""

    def __init__(self, plan: Plan, stage: int, replica: int, config: RunConfig, job: str, secret: bytes) -> None:
        self._who = f"{plan.stage(stage).name}[{replica}]"
        self._shown_as = (job, self._who)
        self._arguments = (plan, stage, replica, config)
        self._identity: dict[str, Any] = {"job": job, "secret": secret}
        self._host: ReplicaHost | None = None
        self._has_run = True
        self._node = ray.util.get_node_ip_address()
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
        part: Resumable | None = None,
        incarnations: dict[str, int] | None = None,
        layout: Layout | None = None,
        is_newcomer: bool = False,
        changed: RunConfig | None = None,
        ended: int = 0,
    ) -> Address | Failure:
        """Build the replica, from the beginning or from its part of a snapshot, and open its plane; again for each incarnation.

        ``host``: where to listen, None: at the address of its node; ``layout``: of the job now; ``is_newcomer``: it comes into a running
        job; ``changed``: the configuration now; ``ended``: how often processes of this vertex have ended in a row.
        """
        try:
            plan, stage, replica, config = self._arguments
            plan = plan if layout is None else plan.laid_out(layout)
            keep_freed_memory()
            if not self._has_run:
                assert self._host is not None
                self._host.discard()  # another actor did not start
            options: dict[str, Any] = {"incarnation": incarnation, "store": store, "part": part, "incarnations": incarnations}
            if ended:
                joins = {"RAY_ADDRESS": str(ray.get_runtime_context().gcs_address)}  # a function that uses Ray finds this cluster
                options["isolated"] = partial(isolated, self._who, ended, joins)
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
            self._host.report.recent = self._host.recent()
            return self._host.report, staged
        except Exception as error:
            return failure_of(self._who, error), {}
        except SystemExit as error:  # a function of the user's ends the process
            if self._id is not None:
                last_words.leave(self._id, last_words.told_of(error))
            raise

    def ping(self) -> Pulse:
        """Answer, if the process lives, with what its event loop is busy with."""
        return Pulse(self._host.activity() if self._host is not None else None, self._node)

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

    def change(self, method: str, *args: Any) -> Any:
        """One of HostRescale's methods, in the loop: however long that is in user code. The coordinator bounds how long it waits; a
        question that it does not wait for any longer stays, before those that it asks later."""
        host = self._host
        assert host is not None
        if not self._has_run:  # the loop has not begun
            return getattr(host.rescale, method)(*args)
        return host.mailbox.ask(lambda: getattr(host.rescale, method)(*args), timeout_s=WHILE_IT_LIVES_S)

    def change_within(self, timeout_s: float, method: str, *args: Any) -> Any:
        """Like :meth:`change`, but withdrawn if the loop does not reach it within ``timeout_s``. Raises NoAnswer."""
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

    def look(self, with_reading: bool = False) -> ReplicaReport | None:
        """What it has done so far; within a moment, even while its event loop does not answer. None before it was first built."""
        host = self._host
        if host is None:
            return None
        report = host.look()
        return dataclasses.replace(report, node=self._node, reading=host.statistics.reading() if with_reading else None)

    def updates(self, sink: str, seen: tuple[int, int] | None) -> News | None:
        """The last records written to a sink, by its key, that are not ``seen`` (incarnation, records); None before it was first built."""
        return self._host.updates(sink, seen) if self._host is not None else None

    def reading(self) -> ReplicaReading | None:
        """What it has counted so far; None before it was first built."""
        return self._host.statistics.reading() if self._host is not None else None


@cache
def remote_vertex() -> Any:
    """The Ray class of vertex actors."""
    groups = {PULSE: ("ping", "abandon", "stop", "has_stopped", "acquit"), "looks": ("look", "reading", "updates")}
    groups |= {"control": ("roll_back", "change", "change_within", "await_change")}
    return remote_class(VertexActor, {PULSE: 2, "looks": 2, "control": 4}, groups)
