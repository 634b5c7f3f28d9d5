"""Keepers of one job on several clusters, with processes that are taken for dead and live on: what senders were told is taken stays."""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from typing import Any

from pyarrow import fs

import rayad as rd
from rayad.actors.store.keeper_files import Frame, KeeperFiles, KeeperRecord
from rayad.progress import SnapshotError
from rayad.snapshots.resume_point import begin_run
from rayad.snapshots.store import SnapshotStore, Superseded
from tests.simulation.fence.steps import Process, Scheduler, SteppingPort
from tests.simulation.fence.world import Outcome, memory_folder

INPUT = "numbers"
SENDERS, CALLS = ("a", "b"), 4
"""Of each keeper, and how many calls each of them makes."""
PROCESSES_MAX = 5
GRAPH: Any = {"vertices": {}, "edges": {}, "sinks": {}}


class Keepers:
    """The keepers of one job.

    Args:
        seed: of everything.
        home: the folder of the stores.
    """

    def __init__(self, seed: int, home: str) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(seed ^ 0x4EE9E4)
        self.config = rd.RunConfig(storage_path=home)
        self.folder = f"{home}/job"
        self.chance = self.rng.choice((0.01, 0.03, 0.08))
        self.acked: dict[str, list[str]] = {}
        """By token, what senders were told is taken."""
        self.processes: Counter[str] = Counter()
        self.figures: Counter[str] = Counter()
        self._over: set[str] = set()

    def files(self, process: Process | None, token: str) -> KeeperFiles:
        """The files as a process sees them; None: as they are."""
        made = KeeperFiles("job", self.config, token)
        if process is not None:
            local = fs.LocalFileSystem()
            made.port = SteppingPort(process, local, self.folder)
            made._store.port = SteppingPort(process, local, f"{self.folder}/snapshots")
        return made

    def start(self, token: str) -> None:
        """Another process of a keeper, its first or one that Ray starts for one that it takes for dead."""
        number = self.processes[token]
        self.processes[token] += 1
        rng = random.Random(self.rng.random())

        def body(process: Process) -> None:
            try:
                self._live(process, token, number, rng)
            except Superseded:
                self.figures["superseded"] += 1
            except (SnapshotError, OSError):
                pass  # the process ends; Ray starts another

        self.scheduler.start(f"{token}.{number}", body)

    def _live(self, process: Process, token: str, number: int, rng: random.Random) -> None:
        files = self.files(process, token)
        if number == 0:
            files.begin()
            files.write_record(KeeperRecord((1.0,)))
        else:
            record = files.record()
            if not record.starts_s:
                return  # it had not begun
            files.write_record(KeeperRecord((*record.starts_s, float(number))))
        frames = list(files.load(INPUT))
        done = {frame.mark for frame in frames}
        self._claim(files, f"{token}.{number}")
        count = len(frames)
        while left := [mark for mark in (_next_of(f"{token}{sender}", done) for sender in SENDERS) if mark]:
            mark = rng.choice(left)
            files.append(INPUT, Frame(count, 8, [mark.encode()], True, mark))
            self.acked.setdefault(token, []).append(mark)
            done.add(mark)
            count += 1
            if rng.random() < 0.2:
                files.write_record(KeeperRecord((*files.record().starts_s,), is_stopping=True))
        files.write_outcome(b"complete")

    def _claim(self, files: KeeperFiles, run: str) -> None:
        try:
            begin_run(files._store, "latest", job="job", graph=GRAPH, key_groups=4, run=run, keeper=files.id)
        except Superseded:
            self._over.add(files.id.token)
            raise
        files.delete_earlier()

    def play(self) -> None:
        """Until one keeper has taken all its calls. Raises AssertionError where something is lost."""
        tokens = [f"k{number}" for number in range(self.rng.choice((1, 2, 3)))]
        self.start(tokens[0])
        began = 1
        for _ in range(4_000):
            living = {process.name.partition(".")[0] for process in self.scheduler.living}
            for token in tokens[:began]:
                is_alone = token not in living
                if token not in self._over and self.processes[token] < PROCESSES_MAX and (is_alone or self.rng.random() < 0.01):
                    self.start(token)
                    self.figures["side by side"] += not is_alone
            if began < len(tokens) and self.rng.random() < 0.01:
                began += 1
                self.start(tokens[began - 1])
            if self.scheduler.turn(self.chance) is None:
                break
        self._check()

    def _check(self) -> None:
        store = SnapshotStore(f"{self.folder}/snapshots")
        numbers = store.numbers()
        keeper = store.load(numbers[-1]).keeper if numbers else None
        if keeper is None:
            return  # nobody has come so far
        files = self.files(None, keeper.token)
        record = files.record()
        files.write_record(KeeperRecord((*record.starts_s, 99.0)))
        frames = list(files.load(INPUT))
        marks = [frame.mark for frame in frames]
        assert [frame.number for frame in frames] == list(range(len(frames))), f"frames {[frame.number for frame in frames]}"
        assert len(marks) == len(set(marks)), f"a call is there twice: {marks}"
        lost = [mark for mark in self.acked.get(keeper.token, []) if mark not in marks]
        assert not lost, f"senders of keeper {keeper} were told that {lost} are taken; there are {marks}"
        self.figures["keepers in charge that were not the first"] += keeper.token != "k0"


def _next_of(sender: str, done: set[str]) -> str:
    """The mark of a sender's next call; "" after the last."""
    return next((mark for mark in (f"{sender}:{call + 1}" for call in range(CALLS)) if mark not in done), "")


def run(seed: int) -> Outcome:
    """One run."""
    home, violation = memory_folder(), ""
    logging.disable(logging.WARNING)
    keepers = Keepers(seed, home)
    try:
        keepers.play()
    except (AssertionError, SnapshotError) as error:
        violation = str(error) or "an assertion failed"
    finally:
        keepers.scheduler.end()
        logging.disable(logging.NOTSET)
        shutil.rmtree(home, ignore_errors=True)
    told = keepers.scheduler.told
    return Outcome(seed, "keepers", violation, len(told), keepers.figures + keepers.scheduler.faults, tuple(told))


__all__ = ["Keepers", "run"]
