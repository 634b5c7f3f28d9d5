"""A folder goes away while snapshots are taken and input is sent, comes back as it was, and then a process is killed. Each gives what was
seen to happen, or "".

How it goes: renamed, with nothing or with an empty folder in its place; or another, empty file system is mounted over it, on all machines
or on one. What is written into its place is lost when it comes back. It counts if something was written there, or a snapshot was given up
meanwhile: then the job has tried to write.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos import machine_job
from tests.chaos.site import Site

AWAY_S = (3.0, 8.0)
SETTLE_S = (0.0, 3.0)
WAYS = ("renamed", "renamed, an empty one in its place", "mounted over")


def store(site: Site) -> str:
    """The folder of the snapshots, of the job, or of all jobs."""
    jobs = site.folder / "jobs"
    job = next(path for path in jobs.iterdir() if path.is_dir())
    return _away(site, site.rng.choice([jobs, job, job / "snapshots"]), "store", site.rng.choice(WAYS))


def output(site: Site) -> str:
    """The folder of one output, or of all."""
    out = site.folder / "out"
    return _away(site, site.rng.choice([out, *(out / name for name in site.outputs)]), "output", site.rng.choice(WAYS))


def store_of_one_machine(site: Site) -> str:
    """One machine has lost the folder of the jobs; the others have it."""
    return _away(site, site.folder / "jobs", "store", f"mounted over on machine {site.rng.choice(site.others)}")


def _away(site: Site, folder: Path, what: str, way: str) -> str:
    before_s = time.time()
    with _gone(site, folder, way) as written:
        time.sleep(site.rng.uniform(*AWAY_S))
    tried = written or any(at_s >= before_s for at_s, _ in site.machines.call(machine_job.events, "snapshot given up"))
    time.sleep(site.rng.uniform(*SETTLE_S))
    victim = site.rng.choice(["", "replica", "coordinator", "coordinator", *(["keeper"] if site.is_detached else [])])
    if not tried or (victim and not site.kill(victim)):
        return ""
    print(f"         away: {folder.relative_to(site.folder)}; written meanwhile: {written[:3]}", flush=True)
    where = way.replace(f"machine {way[-1]}", "one machine")
    return f"folder of the {what} away and back ({where}){f', then {victim} killed' if victim else ''}"


@contextmanager
def _gone(site: Site, folder: Path, way: str) -> Iterator[list[str]]:
    """Within the block the folder is away; afterwards the list has what was written in its place."""
    written: list[str] = []
    if not way.startswith("mounted over"):
        aside = folder.with_name(f"{folder.name} aside")
        folder.rename(aside)
        if way.endswith("in its place"):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
        try:
            yield written
        finally:
            _put_back(folder, aside, written)
        return
    number = way.rpartition(" ")[2]
    machines = [int(number)] if number.isdigit() else site.machines.machines
    try:
        for machine in machines:
            site.inside(machine, "mount", "-t", "tmpfs", "tmpfs", str(folder))
        yield written
    finally:
        for machine in machines:
            with contextlib.suppress(OSError):
                written += site.inside(machine, "find", str(folder), "-type", "f").splitlines()
                site.inside(machine, "umount", "-l", str(folder))


def _put_back(folder: Path, aside: Path, written: list[str]) -> None:
    """Give the folder its name back, in one step, however often somebody makes another one there."""
    while True:
        try:
            aside.rename(folder)
            return
        except OSError:  # something is there that is not empty
            lost = folder.with_name(f"{folder.name} lost {secrets.token_hex(2)}")
            folder.rename(lost)
            written += [str(path) for path in lost.rglob("*") if path.is_file()]


__all__ = ["output", "store", "store_of_one_machine"]
