"""The machine of a benchmark: its description, a Ray of its own, peers in other processes, memory of processes.

Ray starts its workers at nice 15. A plain process that is compared with them is started at the benchmark's own nice level and at 15,
and the tables say which.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import psutil
import ray

ROOT = Path(__file__).resolve().parent.parent
WORKER_NICE = 15
PACKAGES = ("ray", "pyarrow", "numpy", "cloudpickle")
ACTORS = ("VertexActor", "WorkerActor", "ProgressActor", "Coordinator")
MIB = 1 << 20
SETTLE_MOST_S = 5.0
"""How long :func:`settle` waits at most; tests set it to 0, since their times do not matter."""


def about() -> dict[str, Any]:
    """Versions, processors, priority, day and load; not the machine's name."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "nice": os.nice(0),
        "load_1_min": round(os.getloadavg()[0], 2),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _commit() -> str:
    """The checkout's commit; "+" when something in it was changed."""
    try:
        command = ["git", "describe", "--always", "--dirty=+"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


@contextmanager
def own_ray(cpus: int = 4) -> Iterator[None]:
    """A Ray cluster of this process alone, whatever else runs on this machine; one that this process has joined already is used as it
    is."""
    if ray.is_initialized():
        yield
        return
    start_ray(cpus)
    try:
        yield
    finally:
        ray.shutdown()


def start_ray(cpus: int = 4) -> None:
    """``ray.init`` of a new cluster, quietly. Its workers find ``benchmarks`` by PYTHONPATH, wherever their driver runs."""
    os.environ["PYTHONPATH"] = python_path()
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, logging_level="ERROR", log_to_driver=False)


def ray_address() -> str:
    """Where the Ray of this process can be joined."""
    return str(ray.get_runtime_context().gcs_address)


def python_path() -> str:
    """PYTHONPATH with the checkout in front: where ``benchmarks`` and ``rayad`` are."""
    ours = [str(ROOT), str(ROOT / "src")]
    return os.pathsep.join([*ours, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in ours)])


def in_process(module: str, *arguments: str, nice: int | None = None) -> Any:
    """Run ``python -m benchmarks.<module> ARGUMENTS``, at a higher ``nice`` level if asked for, and give the JSON that it prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    if nice is not None and nice > os.nice(0):
        command = ["nice", "-n", str(nice - os.nice(0)), *command]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[-len(arguments) - 1 :])} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def actor_processes() -> dict[int, str]:
    """Live actor processes of Rayad jobs under this process' own Ray: pid and class."""
    found: dict[int, str] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            if process.status() == psutil.STATUS_ZOMBIE or not words.startswith("ray::"):
                continue
        except psutil.NoSuchProcess:
            continue
        kind = next((name for name in ACTORS if name in words), None)
        if kind is not None:
            found[process.pid] = kind
    return found


def settle(quiet_share: float = 0.2, look_s: float = 0.25) -> None:
    """Wait until the processes below this one are idle: after a job Ray ends workers and starts new ones, which would disturb the next
    run."""
    deadline_s = time.monotonic() + SETTLE_MOST_S
    before, quiet_looks = _cpu_s_of_children(), 0
    while quiet_looks < 2 and time.monotonic() < deadline_s:
        time.sleep(look_s)
        now = _cpu_s_of_children()
        used_s = sum(used - before.get(pid, 0.0) for pid, used in now.items())
        quiet_looks = quiet_looks + 1 if used_s <= quiet_share * look_s else 0
        before = now


def _cpu_s_of_children() -> dict[int, float]:
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found


@contextmanager
def confined(mib: int) -> Iterator[None]:
    """This process and those that it starts meanwhile in a memory cgroup of their own: what they allocate, with the pages of files that
    they touch, is at most ``mib`` MiB; the kernel takes pages of files away before it ends a process. Linux, as root.
    """
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().split()]
    former = {name: place for _, names, place in lines for name in names.split(",")}  # of version 2: one, without a name
    root, limit = (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes") if "memory" in former else (Path("/sys/fs/cgroup"), "memory.max")
    home = root / former.get("memory", former.get("", "/")).lstrip("/")
    place = root / f"rayad-benchmark-{os.getpid()}"
    try:
        place.mkdir()
        (place / limit).write_text(str(mib << 20))
        (place / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        raise click.ClickException(
            f"cannot make a cgroup of {mib} MiB at {place}: {error}; it takes Linux, root and a memory controller"
        ) from None
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        place.rmdir()


def resident_mib(pid: int) -> float | None:
    """Resident memory of a process; None when it has ended."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / MIB
    except psutil.NoSuchProcess:
        return None


def unique_mib(pid: int) -> float | None:
    """Memory that the process shares with no other; None when it has ended."""
    try:
        return float(psutil.Process(pid).memory_full_info().uss) / MIB
    except psutil.NoSuchProcess:
        return None
