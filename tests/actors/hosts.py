"""All workers of a job in threads of this process, connected by real sockets: the Ray runtime without Ray."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import rayad as rd
from rayad.actors.host.progress_host import progress_on_sockets
from rayad.actors.host.worker_host import WorkerHost, on_sockets
from rayad.actors.lead.placing import placed
from rayad.actors.plane.address import Address
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.places import Places
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.dataflow import Plan

SECRET = b"not-a-secret-but-long-enough"


@dataclass
class Hosts:
    """The processes by name, and how each ended."""

    plan: Plan
    places: Places
    hosts: dict[str, Any]
    addresses: dict[str, Address]
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    staged: dict[tuple[int, int], dict[int, Any]] = field(default_factory=dict)
    reports: dict[tuple[int, int], Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)

    def join(self, timeout_s: float = 30.0) -> Hosts:
        """Wait for all; raise the first error that is not a lost connection."""
        for name, thread in self.threads.items():
            thread.join(timeout_s)
            assert not thread.is_alive(), f"{name} still runs"
        for error in sorted(self.errors.values(), key=lambda e: isinstance(e, ConnectionError)):
            raise error
        return self

    def result(self, key: str) -> Any:
        """What a sink gives."""
        sink = next(s for s in self.plan.sinks if s.key == key)
        staged = [parts[sink.id] for parts in self.staged.values() if sink.id in parts]
        return sink.sink.result(sink.sink.publish(staged))

    def stage(self, name: str) -> int:
        """A stage by its name."""
        return next(s for s in self.plan.stages if s.name == name).id

    def process(self, stage: str, replica: int = 0) -> WorkerHost:
        """The process of one replica, by the stage's name."""
        process: WorkerHost = self.hosts[self.places.process_of(self.stage(stage), replica)]
        return process

    def host(self, stage: str, replica: int = 0) -> ReplicaHost:
        """One replica, while it runs."""
        host = self.process(stage, replica).worker.hosts[self.stage(stage)]
        assert host.place.replica == replica
        return host

    def look(self, stage: str, replica: int = 0) -> Any:
        """What a replica that runs says of itself."""
        return self.process(stage, replica).look()[self.stage(stage), replica]

    def report(self, stage: str, replica: int = 0) -> Any:
        """What a replica that has ended did."""
        return self.reports[self.stage(stage), replica]


_SHARED: list[Any] = ["vertices"]


@contextmanager
def sharing(placement: Any) -> Iterator[None]:
    """Within the block hosts are placed like this."""
    _SHARED.append(placement)
    yield
    _SHARED.pop()


def start_hosts(flow: rd.Dataflow, parallelism: Any = 1, placement: Any = None, **config: Any) -> Hosts:
    """Plan ``flow`` and start every process in a thread of its own; who shares one: ``placement``, or as :func:`sharing` says."""
    plan = flow.plan(parallelism)
    run = rd.RunConfig(start_timeout_s=20, **config)
    places = placed(plan, placement or _SHARED[-1])
    identity: dict[str, Any] = {"job": "test", "secret": SECRET, "incarnation": 1}
    hosts: dict[str, Any] = {PROGRESS: progress_on_sockets(plan, places=places, **identity)}
    addresses = {PROGRESS: hosts[PROGRESS].listen("127.0.0.1")}
    for name in places.processes(plan):
        hosts[name] = on_sockets(name, plan, places, run, **identity)
        addresses[name] = hosts[name].listen("127.0.0.1", {replica: {} for replica in places.replicas_at(name, plan)})
    started = Hosts(plan, places, hosts, addresses)

    def run_one(name: str) -> None:
        try:
            if name == PROGRESS:
                hosts[name].run()
            else:
                for replica, left in hosts[name].run(addresses).items():
                    started.staged[replica], started.reports[replica] = left.staged, left.report
        except BaseException as error:
            started.errors[name] = error

    for name in hosts:
        thread = threading.Thread(target=run_one, args=(name,), daemon=True, name=name)
        started.threads[name] = thread
        thread.start()
    return started
