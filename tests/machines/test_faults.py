"""Faults between cut and dead: one connection is reset, one direction is lost, a folder goes away and comes back."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from tests.chaos import faults_of_folders, faults_of_links
from tests.chaos.site import Site
from tests.cluster.until import until
from tests.machines import jobs, sockets
from tests.machines.machines import ROOT, Machines
from tests.machines.test_machines import submit, surviving
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster]


def site_of(machines: Machines) -> Site:
    return Site(machines, random.Random(1), machines.folder, 20.0)


@pytest.mark.soak
def test_after_a_reset_of_the_drivers_call_its_coordinator_goes_on_and_has_no_second_one(machines: Machines) -> None:
    """Ray's ActorUnavailableError says that nothing is known of the actor. It was taken for its death: a second coordinator began beside
    the first, which never ended."""
    submit(machines, "reset", 500, str(machines.folder / "reset-out"), **surviving(str(machines.folder / "jobs")))
    until(lambda: machines.call(jobs.snapshots, "reset") > 1, "a snapshot")
    site = site_of(machines)
    before = [process.pid for _, process in site.processes("coordinator")]
    assert len(before) == 1
    calls = [one for one in sockets.between(machines.driver_pid, before[0]) if faults_of_links.is_call(one)]
    assert calls
    assert all(sockets.reset(machines.driver_pid, one) for one in calls)
    taken = machines.call(jobs.snapshots, "reset")
    until(lambda: machines.call(jobs.snapshots, "reset") > taken + 2, "snapshots afterwards")
    assert [process.pid for _, process in site.processes("coordinator")] == before
    counts, failures = machines.call(jobs.finish, "reset", PATIENCE_S)
    assert counts == jobs.committed(machines.folder / "reset-out") == jobs.counted(500)
    assert failures == 0


@pytest.mark.soak
def test_what_a_machine_sends_is_lost_for_five_seconds_and_that_is_no_failure(machines: Machines) -> None:
    there = {"counts": jobs.rd.Resources(resources={f"node:{machines.network.address(2)}": 0.01})}
    submit(machines, "one-way", 500, resources=there, **surviving(str(machines.folder / "jobs")))
    until(lambda: machines.call(jobs.snapshots, "one-way") > 1, "a snapshot")
    machines.network.lose(2, 1)
    time.sleep(5.0)
    lost = machines.network.lost(2, 1)
    machines.network.find(2, 1)
    assert lost > 0
    assert machines.call(jobs.finish, "one-way", PATIENCE_S) == (jobs.counted(500), 0)


@pytest.mark.soak
@pytest.mark.parametrize("way", ["renamed, an empty one in its place", "mounted over"])
def test_a_store_that_went_away_and_came_back_is_resumed_from(machines: Machines, way: str) -> None:
    """Increments were published in the folder in its place, on a base that was not there: the job could not recover any more."""
    name = f"away-{way.split()[0].rstrip(',')}"
    store, enough = machines.folder / f"{name}-jobs", machines.folder / f"{name}-enough"
    out = str(machines.folder / f"{name}-out")
    submit(machines, name, 400, out, 2, str(enough), **surviving(str(store)))
    until(lambda: machines.call(jobs.snapshots, name) > 1, "a snapshot")
    site = site_of(machines)
    with faults_of_folders.away(site, store, way) as away:
        until(lambda: away.written() or machines.call(jobs.given_up, name), "an attempt at a snapshot")
    taken = machines.call(jobs.snapshots, name)
    until(lambda: machines.call(jobs.snapshots, name) > taken, "a snapshot afterwards")
    assert site.kill("replica")
    enough.touch()
    counts, failures = machines.call(jobs.finish, name, PATIENCE_S)
    assert failures >= 1
    assert counts == jobs.committed(out) == jobs.counted(400)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("arguments", [("--faults", "12"), ("--faults", "6", "--kinds", "commit")], ids=["each kind once", "in commits"])
def test_a_job_on_three_machines_survives(machines: Machines, arguments: tuple[str, ...]) -> None:
    """The machines of the fixture only say that there can be some: others are disturbed."""
    words = [sys.executable, "-m", "tests.chaos", "--machines", "3", "--seed", "7", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=3500)
    assert done.returncode == 0, done.stdout + done.stderr
