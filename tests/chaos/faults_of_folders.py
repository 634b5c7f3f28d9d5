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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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
    return _strike(site, site.rng.choice([jobs, job, job / "snapshots"]), "store", site.rng.choice(WAYS))


def output(site: Site) -> str:
    """The folder of one output, or of all."""
    out = site.folder / "out"
    return _strike(site, site.rng.choice([out, *(out / name for name in site.outputs)]), "output", site.rng.choice(WAYS))


def store_of_one_machine(site: Site) -> str:
    """One machine has lost the folder of the jobs; the others have it."""
    return _strike(site, site.folder / "jobs", "store", f"mounted over on machine {site.rng.choice(site.others)}")


def _strike(site: Site, folder: Path, what: str, way: str) -> str:
    before_s = time.time()
    with away(site, folder, way) as gone:
        time.sleep(site.rng.uniform(*AWAY_S))
        written = gone.written()
    tried = written or any(at_s >= before_s for at_s, _ in site.machines.call(machine_job.events, "snapshot given up"))
    time.sleep(site.rng.uniform(*SETTLE_S))
    victim = site.rng.choice(["", "replica", "coordinator", "coordinator", *(["keeper"] if site.is_detached else [])])
    if not tried or (victim and not site.kill(victim)):
        return ""
    print(f"         away: {folder.relative_to(site.folder)}; written meanwhile: {written[:3]}", flush=True)
    where = way.replace(f"machine {way[-1]}", "one machine")
    return f"folder of the {what} away and back ({where}){f', then {victim} killed' if victim else ''}"


class Away(ABC):
    """A folder that is away."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder

    @abstractmethod
    def written(self) -> list[str]:
        """The files in its place."""

    @abstractmethod
    def put_back(self) -> None:
        """It is there again, as it was."""


class Renamed(Away):
    """It has another name. ``has_empty``: an empty one is in its place."""

    def __init__(self, site: Site, folder: Path, *, has_empty: bool) -> None:
        super().__init__(site, folder)
        self._aside = folder.with_name(f"{folder.name} aside")
        folder.rename(self._aside)
        if has_empty:
            folder.mkdir(exist_ok=True)

    def written(self) -> list[str]:
        return _files(self.folder, self.folder.rglob("*"))

    def put_back(self) -> None:
        while True:  # however often somebody makes another one
            try:
                self._aside.rename(self.folder)
                return
            except OSError:  # something is there that is not empty
                with contextlib.suppress(FileNotFoundError):
                    self.folder.rename(self.folder.with_name(f"{self.folder.name} lost {secrets.token_hex(2)}"))


class Covered(Away):
    """An empty file system is mounted over it, on some machines."""

    def __init__(self, site: Site, folder: Path, machines: Sequence[int]) -> None:
        super().__init__(site, folder)
        self._machines = machines
        for machine in machines:
            site.inside(machine, "mount", "-t", "tmpfs", "tmpfs", str(folder))

    def written(self) -> list[str]:
        found = []
        for machine in self._machines:
            found += [Path(line) for line in self.site.inside(machine, "find", str(self.folder), "-type", "f").splitlines()]
        return [str(path.relative_to(self.folder)) for path in found]

    def put_back(self) -> None:
        for machine in self._machines:
            self.site.inside(machine, "umount", "-l", str(self.folder))


@contextmanager
def away(site: Site, folder: Path, way: str) -> Iterator[Away]:
    """Within the block the folder is away, in one of :data:`WAYS`, or "mounted over on machine N"."""
    number = way.rpartition(" ")[2]
    gone: Away
    if way.startswith("mounted over"):
        gone = Covered(site, folder, [int(number)] if number.isdigit() else site.machines.machines)
    else:
        gone = Renamed(site, folder, has_empty=way.endswith("in its place"))
    try:
        yield gone
    finally:
        gone.put_back()


def _files(folder: Path, paths: Iterable[Path]) -> list[str]:
    """The files among paths, which may vanish meanwhile."""
    try:
        return [str(path.relative_to(folder)) for path in paths if path.is_file()]
    except OSError:
        return []


__all__ = ["Away", "away", "output", "store", "store_of_one_machine"]
