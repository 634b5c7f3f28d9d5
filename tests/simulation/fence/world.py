"""One run: coordinators come, are stopped, killed and replaced; after every change of a file what must hold is checked."""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
from pyarrow import fs

import rayad as rd
from rayad.integrations.file_output import compacting
from rayad.integrations.file_output.manifests import MANIFESTS, Output, OutputLog
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.port import Port
from rayad.snapshots.store import MANIFEST, SnapshotStore
from tests.simulation.fence.job import Coordinator
from tests.simulation.fence.steps import STEPS_MAX, Process, Scheduler

LIVING_MAX = 3
TOTAL = 24
SINKS = ("parquet", "csv", "json", "compact", "spark", "by epoch", "append", "overwrite")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; ``violation``: "" where all held."""

    seed: int
    sink: str
    violation: str = ""
    steps: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    told: tuple[tuple[str, str], ...] = ()

    @property
    def again(self) -> str:
        """The command that runs it again."""
        return f"python -m tests.simulation.fence --seed {self.seed}"


def memory_folder() -> str:
    """A folder in memory, where the machine has such: files are synced all the time."""
    return tempfile.mkdtemp(prefix="fence-", dir="/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None)


class World:
    """The job's surroundings: who runs, and what must hold.

    Args:
        seed: of everything.
        home: a folder for store and output.
    """

    def __init__(self, seed: int, home: str) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(seed ^ 0xFE2CE)
        self.scheduler.after_change = self.check
        self.folder, self.output, self.away = f"{home}/store/fence/snapshots", f"{home}/out", f"{home}/away"
        self.root = f"{home}/store"
        self.sink = self.rng.choice(SINKS)
        self.config = rd.RunConfig(storage_path=self.root, snapshots=rd.SnapshotConfig(keep=self.rng.choice((1, 2, 2, 3))))
        self.program = _program(self.sink, self.output)
        self.coordinators: dict[Process, Coordinator] = {}
        self.figures: Counter[str] = Counter()
        self.chance = self.rng.choice((0.005, 0.02, 0.06))
        self.chance_away = self.rng.choice((0.0, 0.002, 0.01))
        self.away_for = 0
        self.is_away = False
        self._runs: list[str] = []
        self._has_begun = False
        self._newest: Manifest | None = None  # as everybody must see it
        self._known: set[int] = set()  # manifests, by id
        self._behind: set[int] = set()  # those of them that were published behind a newer one
        self._savepoints: set[int] = set()
        self._read: dict[bytes, Manifest] = {}
        self._marks: frozenset[tuple[str, int, int, int]] = frozenset()
        self._output: Output | None = None
        self._floor = 0  # records that readers may not lose
        self._before = 0  # that the store held before a user went back
        self._shown = (-1, "")
        self._told_of_published: dict[int, str] = {}

    # -- who runs ------------------------------------------------------------------------------------
    def start(self, *, resume: str | int | None = "latest", of_a_driver: bool = True) -> None:
        """Start another coordinator, as a driver does that takes those before it for dead; or a user, who submits the job again."""
        number = len(self.coordinators)
        run, earlier, has_begun = f"run{number}", tuple(self._runs), self._has_begun
        if not of_a_driver:
            earlier, has_begun = (), False
        config = rd.RunConfig(storage_path=self.root, snapshots=self.config.snapshots, resume=resume)
        rng = random.Random(self.rng.random())

        def body(process: Process) -> None:
            made = Coordinator(
                process,
                self.program,
                config,
                self.folder,
                self.output,
                TOTAL,
                run=run,
                earlier=earlier,
                has_begun=has_begun,
                keeper=None,
                rng=rng,
            )
            self.coordinators[process] = made
            made.run()

        process = self.scheduler.start(run, body)
        self.coordinators.setdefault(process, None)  # type: ignore[arg-type]
        self._runs.append(run)

    def play(self) -> None:
        """Until the job is complete, and nobody is left. Raises AssertionError where something does not hold."""
        self.start(resume=None)
        while not self._is_complete() or self.scheduler.living:
            self._play()
            for _ in range(400):  # those that do not know it yet wake up
                if self.scheduler.turn(0.0) is None:
                    break
        self._check_end()

    def _play(self) -> None:
        """Until the job is complete."""
        while not self._is_complete():
            self._let_folder_come_and_go()
            living = self.scheduler.living
            if not living or (len(living) < LIVING_MAX and self._is_taken_for_dead(living)):
                self._start_another()
                self.figures["coordinators"] += 1
                self.figures["side by side"] += bool(living)
            self.scheduler.turn(0.0 if self._is_quiet else self.chance)
            if self._is_quiet and self.is_away:
                self._come_back()
        if self.is_away:
            self._come_back()

    @property
    def _is_quiet(self) -> bool:
        """Nothing more goes wrong, so that the run ends."""
        return len(self.coordinators) > 16

    def _is_complete(self) -> bool:
        """Whether the coordinator of the newest snapshot has ended its job."""
        newest = self._newest.run if self._newest is not None else ""
        return any(one is not None and one.is_complete and process.name == newest for process, one in self.coordinators.items())

    def _is_taken_for_dead(self, living: list[Process]) -> bool:
        return self.rng.random() < (0.2 if any(process.stopped_for > 0 for process in living) else 0.002)

    def _start_another(self) -> None:
        """A driver's next one, or now and then one of a user who names a snapshot, whether it may be resumed from or not."""
        if self.rng.random() < 0.15 and not self.is_away and not self._is_quiet and self._newest is not None:
            numbers = self._store().numbers()
            self.figures["older snapshots asked for"] += numbers[-1] != (chosen := self.rng.choice(numbers))
            self.start(resume=chosen, of_a_driver=False)
        else:
            is_lost = not os.path.isdir(self.folder) and not self.is_away and not self.scheduler.living
            self.figures["submitted again"] += is_lost  # the first one died before it had made the folder
            self.start(of_a_driver=not is_lost)

    # -- a folder that goes away ---------------------------------------------------------------------
    def _let_folder_come_and_go(self) -> None:
        if self.is_away:
            self.away_for -= 1
            if self.away_for < 0:
                self._come_back()
        elif self._newest is not None and not self._is_quiet and self.rng.random() < self.chance_away and os.path.isdir(self.root):
            os.rename(self.root, self.away)
            if self.rng.random() < 0.7:
                os.mkdir(self.root)  # the place where it was mounted
            self.is_away, self.away_for = True, self.rng.choice((3, 20, 100))
            self.figures["folder away"] += 1

    def _come_back(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        os.rename(self.away, self.root)
        self.is_away = False

    # -- what must hold ------------------------------------------------------------------------------
    def _store(self) -> SnapshotStore:
        return SnapshotStore(self.folder)

    def _numbers(self) -> list[int]:
        """As :meth:`SnapshotStore.numbers`."""
        if not os.path.isdir(self.folder):
            return []
        return sorted(int(name) for name in os.listdir(self.folder) if os.path.isfile(f"{self.folder}/{name}/{MANIFEST}"))

    def _load(self, number: int) -> Manifest:
        """As :meth:`SnapshotStore.load`; what has been read once is only compared."""
        with open(f"{self.folder}/{number:012d}/{MANIFEST}", "rb") as file:
            text = file.read()
        if text not in self._read:
            self._read[text] = self._store().load(number)
        return self._read[text]

    def _read_output(self) -> Output | None:
        """What readers see, read again where a manifest has changed."""
        if not os.path.isdir(self.output):
            return None
        folder = f"{self.output}/{MANIFESTS}"
        found = [f"{folder}/{name}" for name in os.listdir(folder)] if os.path.isdir(folder) else []
        marks = frozenset((name, mark.st_ino, mark.st_mtime_ns, mark.st_size) for name in found for mark in [os.stat(name)])
        if marks != self._marks:
            self._marks, self._output = marks, OutputLog(Port(fs.LocalFileSystem(), self.output)).read()
        return self._output

    def check(self) -> None:
        """After every change."""
        self._check_output()
        if not self.is_away:
            self._check_store()

    def _check_store(self) -> None:
        numbers = self._numbers()
        if not numbers:
            assert self._newest is None, f"the store has lost snapshot {self._newest.number if self._newest else 0}, the newest"
            return
        if self._newest is not None:
            assert numbers[-1] >= self._newest.number, f"the newest snapshot, {self._newest.number}, is gone; there are {numbers}"
        found = {number: self._load(number) for number in numbers}
        for number, made in found.items():
            if id(made) in self._known:
                continue
            self._known.add(id(made))
            if number < numbers[-1]:
                self.figures["behind a newer one"] += 1
                self._behind.add(id(made))
                continue
            is_claim = made.kind in ("start", "resume") or made.run not in {self._newest.run if self._newest is not None else ""}
            if self._newest is not None and not is_claim:
                assert made.notes["position"] >= self._newest.notes.get("position", 0), "a snapshot goes back"
            if is_claim:
                self._has_begun = True
                if self._newest is not None and made.notes.get("resumed_from") != self._newest.number:
                    self.figures["went back"] += 1
                    self._before = max(self._before, self._newest.notes.get("position", 0))
                    self._floor = min(self._floor, made.notes.get("position", 0))
            self._newest = made
        assert self._newest is not None
        again = self._load(self._newest.number)
        assert again.run == self._newest.run, f"snapshot {again.number} of run {self._newest.run} was replaced by one of run {again.run}"
        for file in sorted(again.files()):
            assert os.path.isfile(f"{self.folder}/{file.path}"), f"part {file.path} of the newest snapshot, {again.number}, is gone"
        for number, made in found.items():
            if made.kind == "savepoint" and number not in again.notes.get("void", ()) and id(made) not in self._behind:
                for file in sorted(made.files()):
                    assert os.path.isfile(f"{self.folder}/{file.path}"), f"part {file.path} of savepoint {number} is gone"
                self.figures["savepoints looked at"] += 1
                self._savepoints.add(number)
        for number in self._savepoints - set(numbers):
            raise AssertionError(f"savepoint {number} is gone")

    def _check_output(self) -> None:
        """What readers see: no file is missing, and no record is lost again."""
        output = self._read_output()
        if output is None:
            assert self._shown[0] < 0, "the output is gone"
            return
        for name in output.files:
            assert os.path.isfile(f"{self.output}/{name}"), f"manifest {output.number} has {name}, which is gone"
        if (output.number, output.digest) != self._shown:
            assert output.number >= self._shown[0], f"manifest {self._shown[0]} of the output was the newest, and now {output.number} is"
            self._shown = (output.number, output.digest)
            assert output.rows >= self._floor, f"readers saw {self._floor} records, and now {output.rows}"
            held = self._newest.notes.get("position", 0) if self._newest is not None else 0
            if self._newest is not None and output.head.runs.get(output.head.job, 0) < self._newest.claims[-1]:
                held = max(held, self._before)  # its run has not brought the output to where it resumes
                self._floor = min(self._floor, output.rows)
            else:
                self._floor = output.rows
            assert output.rows <= held or self.is_away, f"readers see {output.rows} records, the newest snapshot holds {held}"

    def _check_end(self) -> None:
        for process, one in self.coordinators.items():
            if one is not None and one.is_superseded:
                self.figures["superseded"] += 1
                later = self._newest is not None and self._newest.run != process.name
                assert later, f"{process.name} was told that it is superseded, and is not: {one.outcome}"
        dataset = rd.read_committed(self.output).to_table(use_threads=False)  # JSON hangs on one processor otherwise
        got = sorted(dataset.column("a").to_pylist()) if dataset.num_rows else []
        assert got == list(range(TOTAL)), f"the output has {got}"
        present = {
            str(path.relative_to(self.output))
            for path in Path(self.output).rglob("part-*")
            if not str(path.relative_to(self.output)).startswith("_")
        }
        self.figures["files left over"] += len(present - set(rd.committed_files(self.output).files))
        found, _ = self._store().latest()
        assert found is not None, "the store has no whole snapshot"
        assert found.kind == "final", f"the newest whole snapshot, {found.number}, is of kind {found.kind}"


def _program(sink: str, output: str) -> bytes:
    flow = rd.Dataflow("fence")
    numbers = flow.from_items([{"a": 1}], name="numbers")
    match sink:
        case "csv":
            numbers.write_csv(output, name="out")
        case "json":
            numbers.write_json(output, name="out")
        case "compact":
            numbers.write_parquet(output, name="out", compact=True)
        case "spark":
            numbers.write_parquet(output, name="out", spark_log=True)
        case "by epoch":
            numbers.write_parquet(output, name="out", partition_by_epoch=True)
        case "append" | "overwrite":
            numbers.write_parquet(output, name="out", mode=sink)
        case _:
            numbers.write_parquet(output, name="out")
    return cloudpickle.dumps(flow.plan())


def run(seed: int, steps_max: int = STEPS_MAX) -> Outcome:
    """One run, which does not end where it is not over after so many steps."""
    home = memory_folder()
    world: Any = None
    violation = ""
    joined, compacting.JOIN_FILES = compacting.JOIN_FILES, 3
    logging.disable(logging.WARNING)
    try:
        world = World(seed, home)
        world.scheduler.steps_max = steps_max
        try:
            world.play()
        except AssertionError as error:
            violation = str(error) or "an assertion failed"
        except Exception as error:
            violation = "".join(traceback.format_exception(error)[-3:])
        finally:
            world.scheduler.end()
    finally:
        compacting.JOIN_FILES = joined
        logging.disable(logging.NOTSET)
        shutil.rmtree(home, ignore_errors=True)
    figures = world.figures + Counter({f"calls that were {what}": count for what, count in world.scheduler.faults.items()})
    return Outcome(seed, world.sink, violation, len(world.scheduler.told), figures, tuple(world.scheduler.told))


__all__ = ["Outcome", "World", "memory_folder", "run"]
