"""All hosts of a job in threads of this process, connected by real sockets: the Ray runtime without Ray."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import rayad as rd
from rayad.actors.host.progress_host import ProgressHost
from rayad.actors.host.replica_host import ReplicaHost
from rayad.actors.plane.protocol import PROGRESS, replica_name
from rayad.dataflow import Plan

SECRET = b"not-a-secret-but-long-enough"


@dataclass
class Hosts:
    """Hosts by plane name, and how each ended."""

    plan: Plan
    hosts: dict[str, Any]
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    staged: dict[str, dict[int, Any]] = field(default_factory=dict)
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

    def host(self, stage: str, replica: int = 0) -> ReplicaHost:
        """One replica's host by the stage's name."""
        found = next(s for s in self.plan.stages if s.name == stage)
        host: ReplicaHost = self.hosts[replica_name(found.id, replica)]
        return host


def start_hosts(flow: rd.Dataflow, parallelism: Any = 1, **config: Any) -> Hosts:
    """Plan ``flow`` and start every host in a thread of its own."""
    plan = flow.plan(parallelism)
    run = rd.RunConfig(start_timeout_s=20, **config)
    identity: dict[str, Any] = {"job": "test", "secret": SECRET, "incarnation": 1}
    hosts: dict[str, Any] = {PROGRESS: ProgressHost(plan, **identity)}
    for stage in plan.stages:
        for replica in range(stage.parallelism):
            hosts[replica_name(stage.id, replica)] = ReplicaHost(plan, stage.id, replica, run, **identity)
    addresses = {name: host.listen("127.0.0.1") for name, host in hosts.items()}
    started = Hosts(plan, hosts)

    def run_one(name: str) -> None:
        try:
            if name == PROGRESS:
                hosts[name].run()
            else:
                started.staged[name] = hosts[name].run(addresses)
        except BaseException as error:
            started.errors[name] = error

    for name in hosts:
        thread = threading.Thread(target=run_one, args=(name,), daemon=True, name=name)
        started.threads[name] = thread
        thread.start()
    return started
