"""The coordinator is stopped inside a commit or a publish, for longer than the heartbeat, is replaced, and wakes up. See
:mod:`tests.chaos.steps`. Gives what was seen to happen, or ""."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence

import psutil

from tests.chaos import machine_job, steps
from tests.chaos.site import Site, is_stopped
from tests.chaos.victims import Violation

COME_S = 10.0
"""How long the coordinator may take to come to the step: there is a snapshot each second."""
SUCCESSOR_S = 120.0
"""The bound from the end of the heartbeat's time until a successor has saved what was sent by then, while the old one stands still."""
MOVES = 5
MOVE_S = 40.0
MISCHIEF_S = 3.0
"""So long the woken one has until anything else is done."""
ROOTS = ("commit", "commit", "publish", "retain")
MACHINE_SHARE = 0.7
SEEN_SHARE = 0.7
"""In so many cases it wakes up when a successor has saved something; else during the recovery."""


def stop(site: Site) -> str:
    """Stop the coordinator inside a step, or all of its machine at that moment."""
    is_whole = site.rng.random() < MACHINE_SHARE
    if is_whole and not _move_away(site):
        return ""
    step = steps.draw(site.folder / "steps", site.rng.choice(ROOTS), site.rng)
    if step is None:
        return ""
    token = secrets.token_hex(4)
    folder = site.folder / "steps"
    steps.ask_to_stop(folder, step, token)
    deadline_s = time.monotonic() + COME_S
    while (pid := steps.stopped(folder, token)) is None:
        if time.monotonic() > deadline_s and steps.take_back(folder):
            return ""
        time.sleep(0.01)
    machine = next((machine for machine, process in site.processes("coordinator") if process.pid == pid), 1)
    is_whole = is_whole and machine != 1
    stopped = _suspend(site, machine) if is_whole else [psutil.Process(pid)]
    began_s = time.monotonic()
    try:
        time.sleep(0.1)
        was_stopped = is_stopped(stopped)
        _outlast(site)
        was_stopped = was_stopped and is_stopped(stopped)
        took_s = time.monotonic() - began_s
    finally:
        was_killed = not psutil.pid_exists(pid)
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
    time.sleep(MISCHIEF_S)
    if not was_stopped:
        return ""
    what = "machine of the coordinator" if is_whole else "coordinator"
    print(f"         stopped for {took_s:.0f} s: {step}", flush=True)
    return f"{what} stopped in {step.root}, longer than the heartbeat{', killed before it woke up' if was_killed else ''}"


def _move_away(site: Site) -> bool:
    """Have the coordinator on another machine than the first, which has the driver and Ray's head: kill it where it is there, until Ray
    puts it elsewhere; a kill is a fault like others, but not what is looked for here."""
    for _ in range(MOVES):
        deadline_s = time.monotonic() + MOVE_S
        while len(found := site.processes("coordinator")) != 1:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.1)
        if found[0][0] != 1:
            return True
        found[0][1].kill()
        site.has_ended(found[0][1].pid)
        time.sleep(1.0)
    return False


def _suspend(site: Site, machine: int) -> Sequence[psutil.Process]:
    """Stop all processes of a machine, also those that have just been started."""
    stopped: dict[int, psutil.Process] = {}
    for _ in range(3):
        for process in site.on(machine):
            if process.pid not in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
                    stopped[process.pid] = process
    return list(stopped.values())


def _outlast(site: Site) -> None:
    """Wait for longer than the heartbeat: until a successor has saved what was sent since then, or a little."""
    time.sleep(site.heartbeat_s + 1.0)
    if site.rng.random() > SEEN_SHARE:
        time.sleep(site.rng.uniform(0.0, 6.0))
        return
    wanted = machine_job.Status(*site.machines.call(machine_job.status)).sent
    deadline_s = time.monotonic() + SUCCESSOR_S
    while machine_job.Status(*site.machines.call(machine_job.status)).saved < wanted:
        if time.monotonic() > deadline_s:
            told = site.machines.call(machine_job.explain)
            raise Violation(f"no successor of a coordinator that stands still has saved epoch {wanted} within {SUCCESSOR_S:g} s:\n{told}")
        time.sleep(0.1)
