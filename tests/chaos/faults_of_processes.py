"""Single processes of the job: killed, and stopped for less than the heartbeat. Each gives what was seen to happen, or ""."""

from __future__ import annotations

import time

import psutil

from tests.chaos.site import Site

STOP_S = 5.0


def kill(site: Site) -> str:
    """SIGKILL."""
    kinds = ["replica", "replica", "replica", "progress", "coordinator", *(["keeper"] if site.is_detached else [])]
    kind = site.rng.choice(kinds)
    return f"process killed: {kind}" if site.kill(kind) else ""


def stop(site: Site) -> str:
    """SIGSTOP, and SIGCONT before the heartbeat's time is over."""
    kind = site.rng.choice(["replica", "replica", "progress", "coordinator", *(["keeper"] if site.is_detached else [])])
    found = site.one(kind)
    if found is None:
        return ""
    process = found[1]
    try:
        process.suspend()
        time.sleep(0.05)
        was_stopped = process.status() == psutil.STATUS_STOPPED
        time.sleep(STOP_S)
        process.resume()
    except psutil.NoSuchProcess:
        return ""
    return f"process stopped for {STOP_S:g} s: {kind}" if was_stopped else ""
