"""A worker in its process: the loop that polls the data plane, and the control calls of other threads. It does not use Ray."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time as clock
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from rayad.actors.host.part_writer import PartWriter
from rayad.actors.host.side_by_side import side_by_side
from rayad.actors.plane.plane import Address, Plane
from rayad.actors.plane.protocol import SPIN_S
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.activity import Activity, activity_of
from rayad.actors.process.mailbox import WHILE_IT_LIVES_S, Mailbox, NoAnswer
from rayad.actors.replica.places import Places
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import Left, ReplicaReport
from rayad.actors.worker import upstream
from rayad.actors.worker.looking import counts_from_outside, note_counts
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.autoscale.statistics import BUSY, ReplicaReading
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Layout, Plan, Stage
from rayad.progress import ProtocolError
from rayad.snapshots.store import SnapshotStore

LOOK_S = 0.2
"""How long a look waits for the loop; then it reports what another thread can see."""
STACK_AFTER_S = 0.1
"""An activation that has taken so long is shown with its stack."""
BACKLOG_TIMEOUT_S = 0.2


class WorkerHost:
    """Runs one worker to its end.

    Args:
        name: of the process, on the data plane.
        plan, places, config: see :class:`Worker`.
        job, secret, incarnation: for its plane.
        store: of snapshots; None: there are none.
        incarnations: of other processes, where they differ from this one's.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        places: Places,
        config: RunConfig,
        *,
        job: str,
        secret: bytes,
        incarnation: int,
        store: SnapshotStore | None = None,
        incarnations: Mapping[str, int] | None = None,
    ) -> None:
        self.config = config
        self.mailbox = Mailbox()
        self.plane = Plane(
            name=name,
            job=job,
            incarnation=incarnation,
            secret=secret,
            spin_s=SPIN_S,
            reconnect_s=config.failures.heartbeat_timeout_s,
            seals=bool(config.encrypt),
        )
        self.mailbox.open(self.plane.wakeup)

        def writer(stage: Stage, replica: int) -> PartWriter:
            assert store is not None
            return PartWriter(store, stage, replica, incarnation, self.plane.wakeup)

        around = Surroundings(self.plane, clock, partial(dt.datetime.now, dt.UTC), writer, os.getpid(), side_by_side)
        self.worker = Worker(name, plan, places, config, around, store=store, incarnations=incarnations)
        self._thread: int | None = None

    # -- start and end ------------------------------------------------------------------
    def listen(self, host: str, replicas: Mapping[ReplicaId, Mapping[str, Any]]) -> Address:
        """Build the replicas, and open the plane; gives the address for the other processes. ``replicas``: see :meth:`Worker.hold`."""
        self._thread = threading.get_ident()
        try:
            for (stage, replica), options in replicas.items():
                self.worker.hold(stage, replica, **options)
        finally:
            self._thread = None
        return self.plane.listen(host, unix="auto" if self.config.unix_sockets else "off")

    def run(self, addresses: Mapping[str, Address]) -> dict[ReplicaId, Left]:
        """Connect, register, and run until the job is complete; gives what each replica did, and what its sink writers have staged."""
        self._thread = threading.get_ident()
        worker, has_ended = self.worker, False
        try:
            worker.begin(addresses)
            self._loop()
            results = worker.results()
            has_ended = True
            return results
        finally:
            self._thread = None  # nothing is done here any more
            worker.close(aborts=not has_ended)
            self.mailbox.close()
            self.plane.close(linger_s=self._linger_s)

    @property
    def _linger_s(self) -> float:
        if not self.worker.hosts:  # what is in flight is for replicas that stay, and may be busy
            return self.config.failures.heartbeat_timeout_s
        return 2.0 if self.worker.is_done else 0.0

    def _loop(self) -> None:
        worker, poll = self.worker, self.plane.poll
        while not worker.is_over:
            timeout_s = worker.timeout_s()
            frames = poll(0.0) if timeout_s == 0.0 else worker.wait(timeout_s)
            worker.turn(frames, self.mailbox.answer)
            self.mailbox.look()

    def discard(self) -> None:
        """Free its resources: it will not run."""
        self.worker.close()
        self.mailbox.close()
        self.plane.close(linger_s=0.0)

    # -- control calls, from other threads ------------------------------------------------
    def host(self, stage: int) -> ReplicaHost:
        """The replica of a vertex that lives here. Raises ProtocolError when there is none (any more)."""
        host = self.worker.hosts.get(stage)
        if host is None:
            raise ProtocolError(f"{self.worker.name} holds no replica of vertex {stage}: it has retired, or did not come")
        return host

    def ask(self, function: Callable[[], Any], timeout_s: float = WHILE_IT_LIVES_S) -> Any:
        """Call a function in the loop; before the loop has begun, at once. Raises NoAnswer."""
        return self.mailbox.ask(function, timeout_s) if self._thread is not None else function()

    def admit(self, stage: int, replica: int, layout: Layout, incarnations: Mapping[str, int], addresses: Mapping[str, Address]) -> None:
        """See :class:`rayad.actors.lead.calls.Admit`."""
        self.ask(lambda: self.worker.admit(stage, replica, layout, incarnations, addresses))

    def withdraw(self, stage: int) -> None:
        """See :class:`rayad.actors.lead.calls.Withdraw`."""
        self.ask(lambda: self.worker.forget(stage))

    def await_left(self, stage: int, replica: int, timeout_s: float) -> Left | bool:
        """What the replica that retires has left; False when it has not within ``timeout_s``."""
        worker = self.worker
        has_left = self.mailbox.watch(lambda: worker.left_by(stage, replica) is not None, timeout_s)
        return (worker.left_by(stage, replica) or False) if has_left else False

    def abandon(self) -> None:
        """The job continues in another incarnation."""
        self.worker.is_abandoned = True
        self.plane.wakeup()

    def roll_back(self, *arguments: Any) -> None:
        """See upstream.py. The process holds one replica."""
        (host,) = self.worker.hosts.values()
        assert host.snapshots is not None
        self.mailbox.ask(partial(upstream.roll_back, host.place, host.snapshots, *arguments), timeout_s=self.config.start_timeout_s)

    def stop(self, stages: Collection[int]) -> None:
        """Let these vertices read no more input, and finish what was read. It does not wait: a source may be busy."""
        self.worker.stopping = tuple(stages)
        self.plane.wakeup()

    def acquit(self) -> None:
        """See :meth:`Outputs.acquit`."""
        for host in list(self.worker.hosts.values()):
            self.mailbox.post(host.core.outputs.acquit)

    @property
    def has_stopped(self) -> bool:
        """Whether the loop has acted on :meth:`stop`, or has ended."""
        hosts = self.worker.hosts
        return self.worker.is_done or all(hosts[stage].has_stopped for stage in self.worker.stopping if stage in hosts)

    def look(self) -> dict[ReplicaId, ReplicaReport]:
        """What has been done and what waits, by replica; it answers even while the loop is busy and does not."""
        hosts = {host.place.at: host for stage, host in list(self.worker.hosts.items())}

        def note() -> dict[ReplicaId, ReplicaReport]:
            return {replica: note_counts(host.place, host.snapshots) for replica, host in hosts.items()}

        try:
            return self.mailbox.ask(note, timeout_s=LOOK_S)  # type: ignore[no-any-return]
        except NoAnswer:
            activity = self.activity()
            return {replica: counts_from_outside(host.place, activity) for replica, host in hosts.items()}

    def readings(self) -> dict[ReplicaId, ReplicaReading]:
        """What each replica has counted so far."""
        hosts = list(self.worker.hosts.values())
        backlogs: list[int | None] = [None] * len(hosts)
        if any(host.statistics.has_backlog for host in hosts):
            try:
                backlogs = self.mailbox.ask(lambda: [host.statistics.ask_source() for host in hosts], BACKLOG_TIMEOUT_S)
            except ProtocolError:
                pass  # the last known ones
        pairs = zip(hosts, backlogs, strict=True)
        return {host.place.at: host.statistics.reading(backlog if host.statistics.has_backlog else None) for host, backlog in pairs}

    def updates(self, stage: int, sink: str, seen: tuple[int, int] | None) -> News | None:
        """See :meth:`ReplicaHost.updates`."""
        host = self.worker.hosts.get(stage)
        return host.updates(sink, seen) if host is not None else None

    def doing(self) -> str | None:
        """What the loop is busy with, in words; None: with nothing, or there is none. From any thread."""
        activity = self.activity()
        return str(activity) if activity is not None else None

    def begun(self) -> dict[str, tuple[int, int | None]]:
        """By source or live input that is read here: the last epoch of which it may have given something, -1 of none; and the epoch in
        which a live input is open. From any thread."""
        hosts = [host for host in list(self.worker.hosts.values()) if host.place.stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)]
        return {host.place.stage.name: (host.core.begun, host.core.input.epoch) for host in hosts}

    def activity(self) -> Activity | None:
        """What the loop is busy with; None when it waits for something to do."""
        thread, now_s, hosts = self._thread, clock.perf_counter(), list(self.worker.hosts.values())
        if thread is None:
            return None
        busy = next((host for host in hosts if host.core.doing is not None), None)
        doing = busy.core.doing if busy is not None else None
        if doing is None:
            if not self.worker.turn_s or not any(host.statistics.counters.activity == BUSY for host in hosts):
                return None
            doing = ("its event loop", None, self.worker.turn_s)
        callback, time, since_s = doing
        if busy is not None and len(hosts) > 1:
            callback = f"{callback} of {busy.place.plan.title(busy.place.stage.id, busy.place.replica)}"
        for_s = max(0.0, now_s - since_s)
        return activity_of(thread, callback, time, for_s) if for_s > STACK_AFTER_S else Activity(callback, time, for_s)


__all__ = ["WorkerHost"]
