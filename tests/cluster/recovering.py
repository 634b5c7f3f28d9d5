"""Shared by the tests of recovery: a slow source, looking into a job's store, killing its actors."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import psutil
import ray

import rayad as rd
from tests.cluster.conftest import job_processes
from tests.patience import PATIENCE_S
from tests.programs import model


@contextmanager
def by_value(*modules: ModuleType) -> Iterator[None]:
    """These modules, and this one, go to workers by value: they cannot import the tests."""
    everything = (sys.modules[__name__], *modules)
    for module in everything:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in everything:
            cloudpickle.unregister_pickle_by_value(module)


class Paced(rd.Source):
    """Item i of the outer list is epoch i, distributed over the parts; each batch takes ``pause_s``; ``built`` is called with each part.
    The second half comes when ``until`` exists: what a test does in the first half cannot come too late, however slow the machine is."""

    blocks = False

    def __init__(
        self,
        epochs: Sequence[Sequence[Any]],
        *,
        parts: int = 1,
        pause_s: float = 0.01,
        built: Callable[[], None] | None = None,
        until: Path | None = None,
    ) -> None:
        self.epochs = [list(records) for records in epochs]
        self.parts = parts
        self.pause_s = pause_s
        self.interleave = True
        self.built = built
        self.until = until

    def list_parts(self) -> list[int]:
        return list(range(self.parts))

    def build_part(self, part: int, resume: Any | None) -> rd.SourcePart:
        if self.built is not None:
            self.built()
        return PacedPart(self, part, resume or 0)

    def timed(self) -> model.Timed:
        """The records with their times, for the model."""
        return model.epochs(self.epochs)


class PacedPart(rd.SourcePart):
    def __init__(self, source: Paced, part: int, at: int) -> None:
        self.source = source
        self.part = part
        self.at = at

    def next_batch(self) -> rd.SourceBatch | None:
        if self.at >= len(self.source.epochs):
            return None
        time.sleep(self.source.pause_s)
        if self.source.until is not None and self.at == len(self.source.epochs) // 2 and not self.source.until.exists():
            return rd.SourceBatch(self.at, [])
        self.at += 1
        return rd.SourceBatch(self.at - 1, self.source.epochs[self.at - 1][self.part :: self.source.parts])

    def epoch_floor(self) -> int:
        return min(self.at, len(self.source.epochs) - 1)  # at the end it stays in the last epoch

    def offset(self) -> int:
        return self.at


def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until ``condition``, often a call of a coordinator, gives a true value, and return it; asked less often the longer it takes."""
    deadline_s, pause_s = time.monotonic() + timeout_s, 0.01
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
        time.sleep(pause_s)
        pause_s = min(1.1 * pause_s, 0.1)


def snapshots_in(folder: Path, job: str) -> list[int]:
    """Numbers of the manifests in a job's store, the beginnings of runs included."""
    return sorted(int(path.parent.name) for path in (folder / job / "snapshots").glob("*/manifest.json"))


@contextmanager
def away(store: Path) -> Iterator[None]:
    """Within the block a file replaces the folder of a job's snapshots, so the store is unavailable."""
    aside = store.with_name(f"{store.name} aside")
    store.rename(aside)
    is_away = False
    while not is_away:
        try:
            store.touch(exist_ok=False)
            is_away = True
        except FileExistsError:
            shutil.rmtree(store, ignore_errors=True)  # a part that was being written made the folder again: its attempt has to fail
    try:
        yield
    finally:
        store.unlink()
        aside.rename(store)


def wait_for_snapshots(folder: Path, job: str, count: int = 1) -> None:
    """Wait until ``count`` more snapshots have been published."""
    newest = max(snapshots_in(folder, job), default=1)
    until(lambda: max(snapshots_in(folder, job), default=1) >= newest + count, f"{count} snapshots of {job!r}")


def of_kind(kind: str, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes of a kind of actor, oldest first: "VertexActor" (also what holds more than one replica), "WorkerActor" (only that),
    "ProgressActor", "Coordinator"."""
    kinds = ("ray::VertexActor", "ray::WorkerActor") if kind == "VertexActor" else (f"ray::{kind}",)
    found = []
    for process in processes:
        try:
            if any(one in " ".join(process.cmdline()) for one in kinds) and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process.create_time(), process.pid, process))
        except psutil.NoSuchProcess:
            continue
    return [process for _, _, process in sorted(found, key=lambda one: one[:2])]


def actors(kind: str, driver: int | None = None) -> list[psutil.Process]:
    """The processes of a kind of actor of the running job: see :func:`of_kind`."""
    return of_kind(kind, job_processes(driver))


def kill(kind: str, which: int = 0) -> int:
    """Kill a process with SIGKILL and wait until it is dead; gives its process id."""
    victim = actors(kind)[which]
    victim.send_signal(signal.SIGKILL)
    victim.wait(10)
    return victim.pid


def surviving(folder: Path, *, failures: int | None = 3, interval_s: Any = 0.2, **options: Any) -> rd.RunConfig:
    """A run that keeps snapshots below ``folder`` and survives failures; with ``survive_errors`` errors, too, which hides those of ours."""
    snapshots = rd.SnapshotConfig(interval_s=interval_s, **options.pop("snapshots", {}))
    heartbeat = options.pop("heartbeat_timeout_s", 60.0)
    delays = {} if failures == 0 else {"delay_s": 0.1, "delay_max_s": 1.0}  # failures that tests make come in one row
    survive_errors = options.pop("survive_errors", False if failures else None)
    failing = rd.FailureConfig(max_failures=failures, survive_errors=survive_errors, heartbeat_timeout_s=heartbeat, **delays)
    return rd.RunConfig(storage_path=str(folder), snapshots=snapshots, failures=failing, **options)


def is_dead(pid: int) -> bool:
    """Whether a process is gone."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def address() -> str:
    """The address of this process' Ray."""
    return str(ray.get_runtime_context().gcs_address)
