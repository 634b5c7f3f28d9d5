"""Jobs on machines with addresses of their own: links are cut, and machines die."""

from __future__ import annotations

import collections
import re
import time
from typing import Any

import pytest

import rayad as rd
from rayad.actors.lead.taking_over import lease_s
from rayad.snapshots.store import SnapshotStore
from tests.cluster.until import until
from tests.integrations.object_store import serving
from tests.machines import jobs, links
from tests.machines.machines import Machines
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]


def surviving(storage: str, **failures: Any) -> dict[str, Any]:
    """A configuration with snapshots on a folder or server that all machines see."""
    survived = {} if failures.get("max_failures") == 0 else {"survive_errors": False}
    failing = rd.FailureConfig(**({"max_failures": 5, "heartbeat_timeout_s": 20.0} | survived | failures))
    return {"storage_path": storage, "snapshots": rd.SnapshotConfig(interval_s=0.5), "failures": failing}


def submit(machines: Machines, name: str, epochs: int, *arguments: Any, **config: Any) -> None:
    machines.call(_submit, name, epochs, arguments, config)


def _submit(name: str, epochs: int, arguments: tuple[Any, ...], config: dict[str, Any]) -> None:
    jobs.submit_counting(name, epochs, *arguments, **config)


def test_each_actor_listens_on_its_own_nodes_address_and_replicas_are_spread(machines: Machines) -> None:
    submit(machines, "spread", 100)
    hosts = machines.call(jobs.hosts, "spread")
    assert collections.Counter(hosts.values()) == {machines.network.address(1): 2, machines.network.address(2): 2}, hosts
    assert machines.call(jobs.finish, "spread", PATIENCE_S) == (jobs.counted(100), 0)


@pytest.mark.soak
def test_a_loop_over_two_machines(machines: Machines) -> None:
    ring, path = [(i, 0) for i in range(40)], [(100 + i, 100) for i in range(31)]
    assert machines.call(jobs.components, 2) == ring + path


def test_a_single_closed_connection_is_replaced_without_a_failure(machines: Machines) -> None:
    """Close each TCP connection between replicas on the two machines, one after the other. The job allows no failure (max_failures = 0)."""
    submit(machines, "closed", 400)
    hosts = machines.call(jobs.hosts, "closed")
    until(lambda: machines.call(jobs.is_running, "closed"), "the job runs")
    ports = machines.call(jobs.ports, "closed")
    network = machines.network
    pairs = [pair for pair in network.connections(2, 1) if {pair[0], pair[1]} & set(ports)]
    assert len(pairs) == 2, (hosts, pairs)  # each source with the count on the other machine
    assert sum(network.close(2, 1, *pair) for pair in pairs) == len(pairs)
    assert machines.call(jobs.finish, "closed", PATIENCE_S) == (jobs.counted(400), 0)


def test_a_cut_of_eight_seconds_loses_nothing_and_is_no_failure(machines: Machines) -> None:
    out = str(machines.folder / "cut-out")
    there = {"counts": rd.Resources(resources={f"node:{machines.network.address(2)}": 0.01})}
    submit(machines, "cut", 700, out, resources=there, **surviving(str(machines.folder / "jobs")))
    hosts = machines.call(jobs.hosts, "cut")
    assert hosts["v2.0"] == hosts["v2.1"] == machines.network.address(2), "a vertex runs where there is what it asks for"
    until(lambda: machines.call(jobs.snapshots, "cut") > 1, "a snapshot")
    machines.network.cut(2)
    cut_s = time.monotonic()
    cut = re.escape(machines.network.address(2))  # the coordinator may have been placed there, too; else it sees that nobody there answers
    silent = (
        rf"the coordinator on node {cut} has not answered|on node {cut}.*: nobody of the job answers on that node, \d actors: it is gone"
    )
    told = ""
    while not (is_named := re.search(silent, told)) and time.monotonic() < cut_s + 15:
        told = machines.call(jobs.explain_stuck, "cut")
        time.sleep(0.1)
    assert is_named, told
    time.sleep(max(0.0, cut_s + 8 - time.monotonic()))
    machines.network.mend(2)
    counts, failures = machines.call(jobs.finish, "cut", PATIENCE_S)
    assert counts == jobs.committed(out) == jobs.counted(700)
    assert failures == 0


def test_a_machine_joins_and_is_used_and_dies_and_the_job_resumes_from_its_snapshot_on_a_server(machines: Machines) -> None:
    with serving(machines.network.host) as objects:
        out = objects.uri("out")
        enough = machines.folder / "enough"
        submit(machines, "three", 400, out, {"ticks": 2, "counts": 2}, str(enough), **surviving(objects.uri("jobs")))
        until(lambda: machines.call(jobs.snapshots, "three") > 1, "a snapshot")
        machines.start(3)
        until(lambda: machines.network.address(3) in machines.call(jobs.alive), "the third machine is there")
        machines.call(jobs.rescale, "three", "counts", 4)
        hosts = machines.call(jobs.hosts, "three")
        assert machines.network.address(3) in hosts.values(), hosts
        before = machines.call(jobs.snapshots, "three")
        until(lambda: machines.call(jobs.snapshots, "three") > before, "a snapshot of the new layout")
        machines.network.kill(3)
        enough.touch()
        counts, failures = machines.call(jobs.finish, "three", PATIENCE_S)
        assert failures >= 1
        assert counts == jobs.committed(out) == jobs.counted(400)


@pytest.mark.soak
def test_a_coordinator_behind_a_cut_ends_by_itself_when_its_successor_has_claimed_the_store(machines: Machines) -> None:
    """Its owner and Ray cannot reach it; its store can. It ends by its lease, long before its raylet gives up, and before its successor has
    written anything."""
    heartbeat_s, network, enough = 8.0, machines.network, machines.folder / "enough by now"
    out, folder = str(machines.folder / "deposed-out"), machines.folder / "jobs" / "deposed" / "snapshots"
    machines.start(3)
    until(lambda: network.address(3) in machines.call(jobs.alive), "the third machine is there")
    config = surviving(str(machines.folder / "jobs"), heartbeat_timeout_s=heartbeat_s)
    machines.call(_submit_from, network.address(3), ("deposed", 200, out, 2, str(enough)), config)
    until(lambda: machines.call(jobs.snapshots, "deposed") > 1, "a snapshot")

    def coordinators() -> int:
        return sum(title.startswith("ray::Coordinator") for title in links.titles(network.name(3)))

    assert coordinators() == 1
    store = SnapshotStore(str(folder))
    first = store.load(store.numbers()[-1]).run
    network.cut(3)
    try:
        until(lambda: store.load(store.numbers()[-1]).run != first, "the successor has claimed the store")
        claimed, claimed_s = store.numbers()[-1], time.monotonic()
        until(lambda: coordinators() == 0, "it has ended", lease_s(heartbeat_s) + 20.0)
        assert any("/raylet/raylet" in title for title in links.titles(network.name(3))), "it ended by itself"
        until(lambda: store.numbers()[-1] > claimed, "the successor works")
        assert time.monotonic() - claimed_s > lease_s(heartbeat_s)
    finally:
        network.kill(3)
        enough.touch()
    counts, _ = machines.call(jobs.finish, "deposed", PATIENCE_S)
    assert counts == jobs.committed(out) == jobs.counted(200)


def _submit_from(address: str, arguments: tuple[Any, ...], config: dict[str, Any]) -> None:
    jobs.submit_counting_from(address, *arguments, **config)
