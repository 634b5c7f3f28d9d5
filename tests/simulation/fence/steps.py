"""Who moves: processes as threads of which one runs at a time, from one call of a port to the next."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, TypeVar

from pyarrow import fs

from rayad.snapshots.port import Entry, Port

T = TypeVar("T")
STEPS_MAX = 20_000
STOPS_INSIDE = 5
"""So much more often a process stands still just before it changes something."""


class Killed(BaseException):
    """The process is dead; nothing more runs in it."""


class Fault(Enum):
    """What becomes of a call."""

    NONE = "made"
    FAILS = "fails"
    LOST = "made, without an answer"
    DIES = "not made: the process dies"
    DIES_AFTER = "made: the process dies"


def _closed() -> threading.Lock:
    """A gate that one thread waits at and another one opens, once each: a lock is three times as fast as a semaphore."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Process:
    """One simulated process.

    Args:
        scheduler: decides when it moves.
        name: of it.
        run: what it does.
    """

    def __init__(self, scheduler: Scheduler, name: str, run: Callable[[Process], None]) -> None:
        self.name = name
        self.is_over = False
        self.stopped_for = 0
        """Steps of others for which it stands still."""
        self.is_about_to_change = False
        """Whether its next call changes something."""
        self.fault = Fault.NONE
        self.error: BaseException | None = None
        self._scheduler = scheduler
        self._run = run
        self._go = _closed()
        self._thread = threading.Thread(target=self._body, name=name, daemon=True)
        self._thread.start()

    def _body(self) -> None:
        self._go.acquire()  # ends with the first move, or with the test's process
        try:
            if self.fault not in (Fault.DIES, Fault.DIES_AFTER):
                self._run(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._scheduler.paused.release()

    def move(self, fault: Fault) -> None:
        """From the scheduler: go on until the next call."""
        self.fault = fault
        self._go.release()
        self._scheduler.paused.acquire()

    def step(self, what: str, call: Callable[[], T], *, changes: bool) -> T:
        """From the process: a call of a port. Only those that change something take effect without an answer."""
        self.is_about_to_change = changes
        self._scheduler.paused.release()
        self._go.acquire()
        fault = self.fault
        self._scheduler.told.append((self.name, what if fault is Fault.NONE else f"{what}: {fault.value}"))
        if fault is Fault.DIES:
            raise Killed
        if fault is Fault.FAILS:
            raise OSError(errno.EIO, f"{what}: Input/output error (simulated)")
        made = call()
        if changes:
            self._scheduler.look()
        if fault is Fault.DIES_AFTER:
            raise Killed
        if fault is Fault.LOST and changes:
            raise OSError(errno.ETIMEDOUT, f"{what}: no answer (simulated)")
        return made


class Scheduler:
    """Who moves next, from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.processes: list[Process] = []
        self.paused = _closed()
        self.steps_max = STEPS_MAX
        self.told: list[tuple[str, str]] = []
        """All steps so far, for who looks for the cause of a violation."""
        self.faults: Counter[str] = Counter()
        self.violated: AssertionError | None = None
        self.after_change: Callable[[], None] = lambda: None
        """Called after each change of a file; raises AssertionError where something does not hold."""

    def start(self, name: str, run: Callable[[Process], None]) -> Process:
        """A process, which does not move yet."""
        process = Process(self, name, run)
        self.processes.append(process)
        return process

    def look(self) -> None:
        """Something has changed. What is violated is kept, too: the code under test may catch what is raised here."""
        try:
            self.after_change()
        except AssertionError as error:
            self.violated = self.violated or error
            raise

    @property
    def living(self) -> list[Process]:
        """Those that are not over."""
        return [process for process in self.processes if not process.is_over]

    def turn(self, chance: float) -> Process | None:
        """One process moves; ``chance``: of a fault. None when none can."""
        living = self.living
        if not living:
            return None
        free = [process for process in living if process.stopped_for <= 0]
        process = self.rng.choice(free or living)
        for other in living:
            other.stopped_for -= 1
        fault = Fault.NONE
        if self.rng.random() < chance:
            fault = self.rng.choice(list(Fault)[1:])
            self.faults[fault.value] += 1
        elif self.rng.random() < (STOPS_INSIDE if process.is_about_to_change else 1) * chance:
            process.stopped_for = self.rng.choice((3, 10, 40, 150, 400))
            self.faults["stops"] += 1
            return process
        process.move(fault)
        if self.violated is not None:
            raise self.violated
        if process.error is not None:
            raise process.error
        if len(self.told) > self.steps_max:
            raise AssertionError(f"the run does not end; the last steps: {self.told[-8:]}")
        return process

    def end(self) -> None:
        """Kill those that are left."""
        for process in self.living:
            while not process.is_over:
                process.move(Fault.DIES)


class SteppingPort(Port):
    """The production port, each call of which is a step of a process."""

    def __init__(self, process: Process, filesystem: fs.FileSystem, folder: str) -> None:
        super().__init__(filesystem, folder)
        self._process = process

    def _step(self, what: str, name: str, call: Callable[[], T], *, changes: bool = False) -> T:
        return self._process.step(f"{what} {name}", call, changes=changes)

    def read(self, name: str) -> bytes:
        return self._step("read", name, lambda: Port.read(self, name))

    def pieces(self, name: str) -> Iterator[bytes]:
        return iter([self.read(name)])

    def entries(self, name: str = "", *, recursive: bool = False) -> list[Entry]:
        return self._step("list", name, lambda: Port.entries(self, name, recursive=recursive))

    def files(self, names: Iterable[str]) -> list[Entry | None]:
        names = list(names)
        return self._step("look at", ", ".join(names), lambda: Port.files(self, names))

    def has_root(self) -> bool:
        return self._step("look for", "the folder", lambda: Port.has_root(self))

    def make_root(self) -> list[str]:
        return self._step("make", "the folder", lambda: Port.make_root(self), changes=True)

    def delete_root(self, made: Iterable[str]) -> None:
        self._step("delete", "the folder", lambda: Port.delete_root(self, made), changes=True)

    def create(self, name: str, data: bytes) -> bool:
        return self._step("create", name, lambda: Port.create(self, name, data), changes=True)

    def open_new(self, name: str) -> Any:
        return self._step("write", name, lambda: Port.open_new(self, name), changes=True)

    def move(self, name: str, to: str) -> None:
        self._step("move", f"{name} to {to}", lambda: Port.move(self, name, to), changes=True)

    def delete(self, name: str) -> None:
        self._step("delete", name, lambda: Port.delete(self, name), changes=True)

    def delete_folder(self, name: str = "") -> None:
        self._step("delete folder", name, lambda: Port.delete_folder(self, name), changes=True)

    def delete_empty(self, name: str) -> None:
        self._step("delete empty", name, lambda: Port.delete_empty(self, name), changes=True)

    def make_folder(self, name: str = "", *, parents: bool = True) -> None:
        self._step("make folder", name, lambda: Port.make_folder(self, name, parents=parents), changes=True)


def stay_on_one_processor(started: Any) -> None:
    """Of the threads of a run one moves at a time: handing on to another processor takes longer than the step."""
    if hasattr(os, "sched_setaffinity"):
        with started.get_lock():
            number, started.value = started.value, started.value + 1
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[number % len(usable)]})
