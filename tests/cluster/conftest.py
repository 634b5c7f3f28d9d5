"""One Ray for all cluster tests, and a check that jobs leave nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import ray

import rayad as rd
from rayad.dataflow.config import ScalingConfig
from tests.patience import PATIENCE_S
from tests.warm_workers import ray_of_tests

ACTORS = ("VertexActor", "WorkerActor", "ProgressActor", "Coordinator", "Autoscaler", "Keeper", "JobPage")


@pytest.fixture(scope="session", autouse=True)
def _placed() -> None:
    """RAYAD_PLACEMENT says who shares a process in jobs that do not say so: the guarantees are the same for all. Otherwise nobody does, so
    that what a test kills does not depend on the processors of its Ray; ``make soak`` runs them with workers."""
    making: Any = ScalingConfig.__init__
    making.__wrapped__.__kwdefaults__["placement"] = os.environ.get("RAYAD_PLACEMENT", "vertices")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of this test run in workers, one replica of each vertex in a process, unless they say otherwise: for tests of something else
    than who shares a process. Each process costs 0.3 s of a processor."""
    making: Any = ScalingConfig.__init__
    monkeypatch.setitem(making.__wrapped__.__kwdefaults__, "placement", "workers")


@pytest.fixture
def own_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of this test have an actor for each replica, also where RAYAD_PLACEMENT says workers: for tests of just that, such as which of
    several actors is named, or what travels between them."""
    making: Any = ScalingConfig.__init__
    monkeypatch.setitem(making.__wrapped__.__kwdefaults__, "placement", "vertices")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster of this session alone: with four CPUs, whatever the machine has."""
    if ray.is_initialized():
        yield
        return
    with ray_of_tests(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False):
        yield


def job_processes(driver: int | None = None, *, kind: str = "") -> list[psutil.Process]:
    """Live actor processes of Rayad jobs below a driver's own Ray (by default this process'), without those of other drivers;
    ``kind``: whose actor has this in its name. A process may have ended before the caller looks at it."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            words, status = " ".join(process.cmdline()), process.status()
        except psutil.NoSuchProcess:
            continue
        ours = words.startswith(tuple(f"ray::{name}" for name in ACTORS))  # Ray Data has a coordinator, too
        if ours and kind in words and status != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def socket_names() -> set[str]:
    """Listening Rayad sockets of this process and of the processes below it, by name."""
    names: set[str] = set()
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            names.update(c.laddr for c in process.net_connections("unix") if isinstance(c.laddr, str) and "rayad-" in c.laddr)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return names


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """End the jobs of a test that failed: the next test, or its second try, would find their names taken."""
    report = yield
    if call.when == "call" and report.failed and ray.is_initialized():
        try:
            for name in rd.jobs():
                rd.attach(name).cancel()
        except Exception as error:  # an error here would end the whole run of the tests
            report.sections.append(("jobs of the failed test", f"they were not all ended: {error}"))
    return report


@pytest.fixture
def nothing_left(ray_cluster: None) -> Iterator[Callable[[], None]]:
    """After the test: no actor process and no socket that was not there before."""
    sockets = socket_names()
    before = {p.pid for p in job_processes()}

    def check(timeout_s: float = PATIENCE_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            processes = [p for p in job_processes() if p.pid not in before]
            left = socket_names() - sockets
            if not processes and not left:
                return
            assert time.monotonic() < deadline_s, f"left behind: {processes}, {left}"
            time.sleep(0.1)

    yield check
    check()
