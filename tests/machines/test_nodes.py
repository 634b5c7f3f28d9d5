"""Which machines the processes of a job are on: not one that is stopped, nor one that is taken back."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rayad as rd
from tests.cluster.until import until
from tests.machines import jobs, links
from tests.machines.machines import Machines
from tests.machines.test_machines import submit, surviving
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


@contextlib.contextmanager
def third(machines: Machines) -> Iterator[str]:
    """A third machine, as long as this lasts; gives its address."""
    address = machines.network.address(3)
    machines.start(3)
    try:
        until(lambda: address in machines.call(jobs.alive), "the third machine is there")
        yield address
    finally:
        machines.network.kill(3)
        until(lambda: address not in machines.call(jobs.alive), "the third machine is gone")


def begun(machines: Machines, name: str, placement: rd.dataflow.config.Placement, **failures: float) -> tuple[Path, Path]:
    """A job of three replicas of each vertex, which has a snapshot; gives where its output goes, and the file that lets it end."""
    out, enough = machines.folder / f"{name}-out", machines.folder / f"{name}-enough"
    scaling = rd.ScalingConfig(parallelism=3, placement=placement)
    submit(machines, name, 400, str(out), scaling, str(enough), **surviving(str(machines.folder / "jobs"), **failures))
    until(lambda: machines.call(jobs.snapshots, name) > 1, "a snapshot")
    return out, enough


def test_coordinator_and_progress_actor_are_on_the_machine_of_the_driver(machines: Machines) -> None:
    """Regression: Ray starts what reserves nothing on a random node, whatever node it is to prefer. A machine that went took them along."""
    with third(machines):
        for turn in range(4):
            submit(machines, f"owned-{turn}", 10)
            until(lambda turn=turn: machines.call(jobs.is_running, f"owned-{turn}"), "it runs")  # type: ignore[misc]
            on = [machines.call(jobs.addresses_of, kind) for kind in ("Coordinator", "ProgressActor")]
            assert on == 2 * [[machines.network.address(1)]]
            machines.call(jobs.finish, f"owned-{turn}", PATIENCE_S)


@pytest.mark.parametrize("placement", ["vertices", "workers"])
def test_a_machine_that_is_taken_back_is_left_before_it_goes_and_nothing_has_failed(machines: Machines, placement: str) -> None:
    name = f"drained-{placement}"
    with third(machines) as address:
        out, enough = begun(machines, name, placement, max_failures=0)  # type: ignore[arg-type]
        assert address in machines.call(jobs.hosts, name).values(), "it is used"
        machines.call(jobs.drain, address, PATIENCE_S)
        until(lambda: any(f"node {address} drains" in one for one in machines.call(jobs.told_nodes, name)), "the status says so")
        until(lambda: machines.call(jobs.told, name, "move"), "the job has left it")
        assert address not in machines.call(jobs.hosts, name).values()
    enough.touch()
    told = machines.call(jobs.told, name, "node")
    counts, failures = machines.call(jobs.finish, name, PATIENCE_S)
    assert (failures, len(told)) == (0, 1), told
    assert told[0].startswith(f"node {address}, with ")
    assert counts == jobs.committed(out) == jobs.counted(400)


def test_a_machine_that_is_stopped_gets_nothing_though_ray_counts_it_as_alive(machines: Machines) -> None:
    """Regression: its replicas were placed there again, and the job stood still until Ray had noticed: 64 s."""
    with third(machines) as address:
        out, enough = begun(machines, "stopped", "vertices", heartbeat_timeout_s=4.0)
        assert address in machines.call(jobs.hosts, "stopped").values(), "it is used"
        stopped_s = time.monotonic()
        for pid in links.processes(machines.network.name(3)):
            os.kill(pid, signal.SIGSTOP)
        until(lambda: machines.call(jobs.told, "stopped", "recovery"), "the job runs again")
        took_s = time.monotonic() - stopped_s
        told = machines.call(jobs.told, "stopped", "node")
        assert address not in machines.call(jobs.hosts, "stopped").values()
        assert f"nobody of this job on node {address} answers: nothing is placed there while it is silent" in told, (told, took_s)
    enough.touch()
    counts, _ = machines.call(jobs.finish, "stopped", PATIENCE_S)
    assert counts == jobs.committed(out) == jobs.counted(400)


def test_where_a_machine_is_gone_for_good_workers_share_processors_until_another_one_comes(machines: Machines) -> None:
    """Regression: the job waited for room that did not come, and failed in the end. Three machines have six processors."""
    out, enough = machines.folder / "gone-out", machines.folder / "gone-enough"
    config = surviving(str(machines.folder / "jobs"), room_wait_s=5.0, heartbeat_timeout_s=8.0) | {"cpus_per_replica": 1.0}
    with third(machines):
        five = rd.ScalingConfig(parallelism=5, placement="workers")
        submit(machines, "gone", 400, str(out), five, str(enough), **config)
        until(lambda: machines.call(jobs.snapshots, "gone") > 1, "a snapshot")
    until(lambda: machines.call(jobs.told, "gone", "recovery"), "the job goes on")
    told = [one for one in machines.call(jobs.told, "gone", "node") if "share the processors that are there" in one]
    assert told
    assert all(one.startswith("worker ") and ": no node has room, so these share" in one for one in told), told
    assert any("share the processors" in one for one in machines.call(jobs.told_nodes, "gone"))
    with third(machines) as address:
        machines.call(jobs.rescale, "gone", "counts", 5)
        assert len(machines.call(jobs.told, "gone", "move")) == 1
        assert address in machines.call(jobs.hosts, "gone").values(), "a worker is back on it"
        enough.touch()
        counts, failures = machines.call(jobs.finish, "gone", PATIENCE_S)
    assert failures >= 1
    assert counts == jobs.committed(out) == jobs.counted(400)
