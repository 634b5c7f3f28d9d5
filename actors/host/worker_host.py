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
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.plane import Address, Plane
from rayad.actors.plane.protocol import SPIN_S
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.process.activity import Activity, activity_of
from rayad.actors.process.mailbox import WHILE_IT_LIVES_S, Mailbox, NoAnswer
from rayad.actors.replica.places import Places
from rayad.actors.replica.reads.questions import Begins
from rayad.actors.replica.recent import News
from rayad.actors.replica.report import Left, ReplicaReport
from rayad.actors.worker.asked import change, is_so, roll_back
from rayad.actors.worker.looking import counts_from_outside, note_counts
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.autoscale.statistics import BUSY, ReplicaReading
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan, Stage
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
        plan, places, config, store, incarnations: see :class:`Worker`.
        around: its plane, clock and writers.
        mailbox: how control calls reach its loop.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        places: Places,
        config: RunConfig,
        around: Surroundings,
        *,
        mailbox: Mailbox | None = None,
        store: SnapshotStore | None = None,
        incarnations: Mapping[str, int] | None = None,
    ) -> None:
        self.config = config
        self.plane: Any = around.link
        self.mailbox = mailbox or Mailbox()
        self.mailbox.open(self.plane.wakeup)
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
        return self.plane.listen(host, unix="auto" if self.config.unix_sockets else "off")  # type: ignore[no-any-return]

    def run(self, addresses: Mapping[str, Address]) -> dict[ReplicaId, Left]:
        """Connect, register, and run until the job is complete; gives what each replica did, and what its sink writers have staged."""
        has_ended = False
        try:
            self.begin(addresses)
            self._loop()
            results = self.worker.results()
            has_ended = True
            return results
        finally:
            self.end(aborts=not has_ended)

    def begin(self, addresses: Mapping[str, Address]) -> None:
        """Connect, and register as soon as all are connected."""
        self._thread = threading.get_ident()
        self.worker.begin(addresses)

    def turn(self, frames: list[Frame]) -> None:
        """One round of the loop, with these frames."""
        self.worker.turn(frames, self.mailbox.answer)
        self.mailbox.look()

    def end(self, *, aborts: bool) -> None:
        """Nothing is done here any more. ``aborts``: it has failed, or its work was given up."""
        self._thread = None
        self.worker.close(aborts=aborts)
        self.mailbox.close()
        self.plane.close(linger_s=self._linger_s)

    @property
    def _linger_s(self) -> float:
        if not self.worker.hosts:  # what is in flight is for replicas that stay, and may be busy
            return self.config.failures.heartbeat_timeout_s
        return 2.0 if self.worker.is_done else 0.0

    def _loop(self) -> None:
        worker, poll = self.worker, self.plane.poll
        self.turn([])  # it begins to connect: before that it has nothing to wait for
        while not worker.is_over:
            timeout_s = worker.timeout_s()
            self.turn(poll(0.0) if timeout_s == 0.0 else worker.wait(timeout_s))

    def discard(self) -> None:
        """Free its resources: it will not run."""
        self.worker.close()
        self.mailbox.close()
        self.plane.close(linger_s=0.0)

    # -- control calls, from other threads ------------------------------------------------
    def ask(self, function: Callable[[], Any], timeout_s: float = WHILE_IT_LIVES_S) -> Any:
        """Call a function in the loop; before the loop has begun, at once. Raises NoAnswer."""
        return self.mailbox.ask(function, timeout_s) if self._thread is not None else function()

    def change(self, *asked: Any) -> Any:
        """See :func:`rayad.actors.worker.asked.change`: in the loop, however long that is in user code. The coordinator bounds how long it
        waits; a question that it does not wait for any longer stays, before those that it asks later."""
        return self.change_within(WHILE_IT_LIVES_S, *asked)

    def change_within(self, timeout_s: float, *asked: Any) -> Any:
        """Like :meth:`change`, but withdrawn if the loop does not reach it within ``timeout_s``. Raises NoAnswer."""
        return self.ask(partial(change, self.worker, *asked), timeout_s)

    def await_change(self, replica: ReplicaId, method: str, timeout_s: float, *arguments: Any) -> Any:
        """Wait until something is so, see :func:`rayad.actors.worker.asked.is_so`; False when it is not within ``timeout_s``."""
        return self.mailbox.watch(partial(is_so, self.worker, replica, method, *arguments), timeout_s)

    def abandon(self) -> None:
        """The job continues in another incarnation."""
        self.worker.is_abandoned = True
        self.plane.wakeup()

    def roll_back(self, *arguments: Any) -> Any:
        """See :func:`rayad.actors.worker.asked.roll_back`."""
        return self.mailbox.ask(partial(roll_back, self.worker, *arguments), timeout_s=self.config.start_timeout_s)

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

    def begun(self) -> dict[ReplicaId, Begins]:
        """Of each source or live input that is read here. From any thread."""
        hosts = [host for host in list(self.worker.hosts.values()) if host.place.stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)]
        return {host.place.at: host.begun() for host in hosts}

    def activity(self) -> Activity | None:
        """What the loop is busy with; None when it waits for something to do."""
        thread, now_s, hosts = self._thread, self.worker.clock.perf_counter(), list(self.worker.hosts.values())
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


def on_sockets(
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
) -> WorkerHost:
    """With a plane of its own. ``job``, ``secret``, ``incarnation``: for that; all else: see :class:`WorkerHost`."""
    plane = Plane(
        name=name,
        job=job,
        incarnation=incarnation,
        secret=secret,
        spin_s=SPIN_S,
        reconnect_s=config.failures.heartbeat_timeout_s,
        seals=bool(config.encrypt),
    )

    def writer(stage: Stage, replica: int) -> PartWriter:
        assert store is not None
        return PartWriter(store, stage, replica, incarnation, plane.wakeup)

    around = Surroundings(plane, clock, partial(dt.datetime.now, dt.UTC), writer, os.getpid(), side_by_side)
    return WorkerHost(name, plan, places, config, around, store=store, incarnations=incarnations)


__all__ = ["WorkerHost", "on_sockets"]
