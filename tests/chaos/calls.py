"""``python -m tests.chaos --service``: random sequences of calls on jobs that several drivers share, against a small model.

Two drivers, which may be killed, submit jobs of two names (detached ones, and ones that end with their driver), attach, look, send to
live inputs, rescale, configure, save, stop and cancel. Meanwhile keepers, coordinators, replicas and progress actors are killed, between
calls and during them. The model (`JobModel`) knows what each call may give, and what is in the results: each number that was sent, once, in
its epoch. At the end of a sequence all jobs end, and nothing may be left: no name, no process, no socket.

    python -m tests.chaos --service --sequences 50 --seed 1     the same seeds draw the same calls; when a kill strikes is up to the machine
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import psutil
import ray

from rayad.actors.cluster.names import NAMESPACE
from tests.chaos.caller import KEYS, SINK, VERTEX, Driver, Raised
from tests.chaos.victims import Violation
from tests.cluster.conftest import job_processes, socket_names
from tests.cluster.recovering import address
from tests.patience import PATIENCE_S

NAMES = ("first", "second")
DRIVERS = 2
CALLS = 12
"""Of a sequence."""
DETACHED = 0.6
"""The share of jobs that outlive their driver."""
DURING = 0.25
"""The share of calls during which something is killed."""
DURING_S = 1.0
"""The kill strikes at most this many seconds after the call has begun."""
LEFT_S = 60.0
"""How long names, processes and sockets may remain after all jobs have ended."""
VICTIMS = {"keeper": "Keeper", "coordinator": "Coordinator", "replica": "VertexActor", "progress actor": "ProgressActor"}
ALIVE = ("starting", "running")
Table = collections.Counter[str]


class Life(Enum):
    """The state of a job, as far as the calls can know it."""

    ABSENT = auto()
    RUNNING = auto()
    ENDED = auto()  # complete; nobody has its results yet
    OVER = auto()  # nobody waits for anything of it; it may be listed for a while


@dataclass
class JobModel:
    """What the model knows of the job of one name."""

    life: Life = Life.ABSENT
    is_detached: bool = False
    owner: int = 0
    """The driver that submitted it."""
    handles: set[int] = field(default_factory=set)
    """The drivers that have a handle of this job, not of one before it."""
    epoch: int = 0
    sent: list[tuple[int, list[int]]] = field(default_factory=list)
    """Epoch and numbers of each call that was accepted."""
    is_disturbed: bool = False
    """A process of the job was killed, and the job has not been seen to run since."""

    def end(self, life: Life) -> None:
        """The job runs no more."""
        self.life, self.handles = life, set()

    def ended_states(self) -> tuple[str, ...]:
        """The states that a complete job may show: the successor of a dead keeper reads the store before it knows that it is complete."""
        return ("complete", *ALIVE) if self.is_disturbed else ("complete",)

    def check(self, given: dict[str, Any], is_cut: bool) -> None:
        """Raise Violation if these cannot be the job's results. ``is_cut``: the records that were sent last may be missing."""
        seen = collections.Counter((time.epoch, number) for time, number in given[SINK])
        wanted: collections.Counter[tuple[int, int]] = collections.Counter()
        for epoch, numbers in self.sent:
            call = collections.Counter((epoch, number) for number in numbers)
            if is_cut and not call <= seen:
                break
            wanted += call
        if seen != wanted:
            missing, extra = wanted - seen, seen - wanted
            raise Violation(f"results: missing {list(missing.items())[:5]}, too many {list(extra.items())[:5]}")
        last: dict[int, int] = {}
        for _, (key, count) in sorted(given[VERTEX]):
            last[key] = count
        if last != collections.Counter(number % KEYS for _, number in seen.elements()):
            raise Violation(f"counts {last} are not those of {seen}")


class Sequence:
    """One sequence of calls."""

    def __init__(self, seed: int, table: Table, calls: int = CALLS, detached: float = DETACHED) -> None:
        self.rng = random.Random(f"calls/{seed}")
        self.table, self.calls, self.detached = table, calls, detached
        self.folder = Path(tempfile.mkdtemp(prefix="rayad-chaos-calls-"))
        self.log = (self.folder / "log").open("ab")
        self.jobs = {name: JobModel() for name in NAMES}
        self.said: list[str] = []
        """The calls so far and what they gave, in words."""
        self.next = 0
        self.sockets = socket_names()
        self.drivers = [Driver(address(), self.log) for _ in range(DRIVERS)]

    def go(self) -> None:
        """All calls, then the end."""
        for _ in range(self.calls):
            name = self.rng.choice(NAMES)
            job = self.jobs[name]
            if job.life is Life.RUNNING:
                self.rng.choice(WHILE_RUNNING)(self, name, job)
            else:
                self.rng.choice(OTHERWISE)(self, name, job)
        for name, job in self.jobs.items():
            if job.life is Life.RUNNING:
                self.stop(name, job)
            elif job.life is Life.ENDED:
                self.fetch(name, job)
        self.nothing_stays()

    # -- asking ------------------------------------------------------------------------------------------------------------------
    def ask(self, driver: int, method: str, *args: Any, may: tuple[str, ...] = (), strike: bool = False) -> Any:
        """The result of a call; raises Violation for an error that the call may not raise. With ``strike`` a process may die meanwhile."""
        shown = ", ".join(repr(arg) if len(repr(arg)) < 60 else "..." for arg in args)
        self.said.append(f"driver {driver}: {method}({shown})")
        self.drivers[driver].begin(method, *args)
        if strike and self.rng.random() < DURING:
            time.sleep(self.rng.uniform(0.0, DURING_S))
            self.kill_process("during it")
        try:
            given = self.drivers[driver].answer(PATIENCE_S)
        except TimeoutError:
            told = self.explain_from(next(other for other in range(DRIVERS) if other != driver), args[0] if args else "")
            raise Violation(f"{method}({shown}) has not come back after {PATIENCE_S:g} s: {told}") from None
        self.said[-1] += f" -> {given if isinstance(given, (Raised, str, int)) else type(given).__name__}"
        self.table[f"{method}, {given.classes[0]}" if isinstance(given, Raised) else method] += 1
        if isinstance(given, Raised) and not given.is_a(*may):
            raise Violation(f"{method}({shown}) raised {given}\n{given.where}")
        return given

    def explain_from(self, driver: int, name: str) -> str:
        """What ``explain_stuck`` tells another driver of a job that makes no progress."""
        told = ""
        for method in ("attach", "explain"):
            self.drivers[driver].begin(method, name)
            try:
                told = str(self.drivers[driver].answer(LEFT_S))
            except TimeoutError:
                return f"{method}({name!r}) does not come back either"
        return told

    def handle(self, name: str, job: JobModel, driver: int | None = None) -> int:
        """A driver with a handle of the job; it attaches if it has none."""
        driver = self.rng.randrange(DRIVERS) if driver is None else driver
        if driver not in job.handles:
            self.attach(name, job, driver)
        return driver

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for a condition; raises Violation if it does not come in time."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise Violation(f"not within {timeout_s:g} s: {what}")
            time.sleep(0.1)

    def settled(self, name: str, job: JobModel) -> None:
        """Wait until a job that was disturbed runs again: the epochs before the current one are complete."""
        driver = self.handle(name, job)
        self.until(lambda: self.ask(driver, "progress", name) == "running", f"job {name!r} runs again")
        job.is_disturbed = False

    # -- calls on a job that runs ------------------------------------------------------------------------------------------------
    def attach(self, name: str, job: JobModel, driver: int | None = None) -> None:
        """A driver gets a handle."""
        driver = self.rng.randrange(DRIVERS) if driver is None else driver
        fresh = lambda: self.ask(driver, "attach", name, may=("NoSuchJob",))  # noqa: E731
        given = fresh()
        if isinstance(given, Raised):
            if not job.is_disturbed or job.is_detached:
                raise Violation(f"attach({name!r}) raised {given}")
            self.until(lambda: not isinstance(fresh(), Raised), f"job {name!r} is found again")
        elif given not in ALIVE:
            raise Violation(f"job {name!r} is {given}, and it runs")
        job.handles.add(driver)

    def progress(self, name: str, job: JobModel) -> None:
        """It runs, or starts again."""
        driver = self.handle(name, job)
        for method in ("progress", "state"):
            if (state := self.ask(driver, method, name, strike=True)) not in ALIVE:
                raise Violation(f"job {name!r} is {state}, and it runs")

    def explain(self, name: str, job: JobModel) -> None:
        """Ask for an explanation; any answer is right."""
        self.ask(self.handle(name, job), "explain", name)

    def look_at_all(self, name: str, job: JobModel) -> None:
        """All running jobs are listed, and no others."""
        listed = self.ask(self.rng.randrange(DRIVERS), "jobs")
        sure = {n for n, j in self.jobs.items() if j.life is Life.RUNNING and (j.is_detached or not j.is_disturbed)}
        if not sure <= set(listed) <= {n for n, j in self.jobs.items() if j.life is not Life.ABSENT}:
            raise Violation(f"jobs() gave {listed}, and {sure} run")

    def submit_again(self, name: str, job: JobModel) -> None:
        """The name is taken."""
        if job.is_disturbed and not job.is_detached:
            return  # while its coordinator is being replaced the name is nobody's
        given = self.ask(self.rng.randrange(DRIVERS), "submit", name, self.rng.random() < 0.7, str(self.folder), may=("NameTaken",))
        if not isinstance(given, Raised):
            raise Violation(f"two jobs of the name {name!r} run")

    def send(self, name: str, job: JobModel) -> None:
        """Send some numbers; then perhaps advance to the next epoch."""
        driver = self.handle(name, job, None if job.is_detached else job.owner)
        numbers = list(range(self.next, self.next + self.rng.randint(1, 20)))
        self.next += len(numbers)
        self.ask(driver, "send", name, numbers, strike=True)
        job.sent.append((job.epoch, numbers))
        if self.rng.random() < 0.7:
            self.advance(name, job)

    def advance(self, name: str, job: JobModel) -> None:
        """Advance to the next epoch, by any sender; an epoch that another sender has passed already is refused."""
        driver = self.handle(name, job, None if job.is_detached else job.owner)
        self.ask(driver, "advance", name, job.epoch + 1, strike=True)
        job.epoch += 1
        if job.is_detached and self.rng.random() < 0.3:
            other = self.handle(name, job)
            if not isinstance(self.ask(other, "advance", name, job.epoch - 1, may=("DataflowError",)), Raised):
                raise Violation(f"epoch {job.epoch} was left for {job.epoch - 1}")

    def send_by_another(self, name: str, job: JobModel) -> None:
        """Another process sends by the input handle that it was given."""
        if not job.is_detached:
            other = self.handle(name, job, (job.owner + 1) % DRIVERS)
            if not isinstance(self.ask(other, "send", name, [0], may=("DataflowError",)), Raised):
                raise Violation("a job of another driver took records")
            return
        driver, number = self.handle(name, job), self.next
        self.next += 1
        given = self.ask(driver, "give_input", name)
        self.ask((driver + 1) % DRIVERS, "send_by", given, [number], strike=True)
        job.sent.append((job.epoch, [number]))

    def complete(self, name: str, job: JobModel) -> None:
        """Wait until the epochs before the current one are complete."""
        driver = self.handle(name, job)
        if job.epoch and self.ask(driver, "is_complete", name, job.epoch - 1, PATIENCE_S, strike=True) is not True:
            raise Violation(f"epoch {job.epoch - 1} is not complete after {PATIENCE_S:g} s")

    def save(self, name: str, job: JobModel) -> None:
        """Take a savepoint; a kill may make it fail."""
        driver, disturbed = self.handle(name, job), job.is_disturbed
        given = self.ask(driver, "savepoint", name, may=("SnapshotError",), strike=True)
        if isinstance(given, Raised):
            if not (disturbed or job.is_disturbed):
                raise Violation(f"savepoint: {given}")
        elif not (Path(given) / "manifest.json").exists():
            raise Violation(f"there is no savepoint {given}")

    def rescale(self, name: str, job: JobModel) -> None:
        """Change the number of replicas."""
        driver, replicas = self.handle(name, job), self.rng.randint(1, 3)
        there = self.ask(driver, "rescale", name, replicas, strike=True)
        if there != replicas and not job.is_disturbed:
            raise Violation(f"rescale to {replicas} replicas gave {there}")

    def configure(self, name: str, job: JobModel) -> None:
        """Change the size of batches."""
        self.ask(self.handle(name, job), "configure", name, self.rng.randint(10, 5000), strike=True)

    def wait_in_vain(self, name: str, job: JobModel) -> None:
        """A wait ends without results: the job runs as long as its input is open."""
        if not isinstance(self.ask(self.handle(name, job), "wait", name, 0.2, may=("TimeoutError",)), Raised):
            raise Violation(f"job {name!r} is complete, and its input is open")

    # -- the end of a job --------------------------------------------------------------------------------------------------------
    def stop(self, name: str, job: JobModel) -> None:
        """Drain: there are results. A job that is not detached drops the records of a live input that it has not read yet."""
        given = self.ask(self.handle(name, job), "stop", name, PATIENCE_S, strike=True)
        self.results(given, job, is_cut=not job.is_detached)

    def close(self, name: str, job: JobModel) -> None:
        """Close the input: the job completes by itself, and the results of a detached one are kept."""
        driver = self.handle(name, job, None if job.is_detached else job.owner)
        self.ask(driver, "close", name, strike=True)
        self.until(lambda: self.ask(driver, "state", name) == "complete", f"job {name!r} is complete")
        if job.is_detached:
            job.end(Life.ENDED)
        else:
            self.results(self.ask(driver, "wait", name, PATIENCE_S), job)

    def fetch(self, name: str, job: JobModel) -> None:
        """The results of a job that has ended, in any driver."""
        driver = self.rng.randrange(DRIVERS)
        if (state := self.ask(driver, "attach", name)) not in job.ended_states():
            raise Violation(f"job {name!r} is {state}, and has ended well")
        self.results(self.ask(driver, "wait", name, PATIENCE_S), job)

    def results(self, given: Any, job: JobModel, is_cut: bool = False) -> None:
        """Check the results against the model."""
        job.check(given, is_cut)
        job.end(Life.OVER)

    def cancel(self, name: str, job: JobModel) -> None:
        """Cancel: there are no results. The call may have to be repeated while the job is being started again."""
        driver = self.handle(name, job)
        said = lambda: self.ask(driver, "cancel", name, may=("TimeoutError",), strike=True)  # noqa: E731
        self.until(lambda: not isinstance(said(), Raised), f"job {name!r} is cancelled")
        if (state := self.ask(driver, "state", name)) != "cancelled":
            raise Violation(f"job {name!r} is {state}, and was cancelled")
        job.end(Life.OVER)

    # -- kills -------------------------------------------------------------------------------------------------------------------
    def kill(self, name: str, job: JobModel) -> None:
        """Kill a process; then, perhaps, check that its job still runs."""
        self.kill_process("")
        if job.life is Life.RUNNING and self.rng.random() < 0.5:
            self.settled(name, job)

    def kill_process(self, when: str) -> None:
        """SIGKILL of some process of the jobs."""
        kind = self.rng.choice(list(VICTIMS))
        found = [process for process in job_processes() if VICTIMS[kind] in title(process)]
        if not found:
            return
        victim = self.rng.choice(found)
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            self.table[f"SIGKILL {kind} {when}".strip()] += 1
            self.said.append(f"  killed a {kind} {when}")
        for job in self.jobs.values():
            job.is_disturbed = job.life in (Life.RUNNING, Life.ENDED)

    def kill_driver(self, name: str, job: JobModel) -> None:
        """SIGKILL of a driver: its jobs that are not detached end with it; another driver takes its place."""
        driver = self.rng.randrange(DRIVERS)
        self.drivers[driver].kill()
        self.table["SIGKILL driver"] += 1
        self.said.append(f"  killed driver {driver}")
        self.drivers[driver] = Driver(address(), self.log)
        other = (driver + 1) % DRIVERS
        for one, each in self.jobs.items():
            each.handles.discard(driver)
            if each.life is Life.RUNNING and not each.is_detached and each.owner == driver:
                if other in each.handles:
                    told = self.ask(other, "wait", one, PATIENCE_S, may=("RayadError",))
                    if not isinstance(told, Raised):
                        raise Violation(f"job {one!r} was complete, and its driver was killed")
                self.until(lambda one=one: one not in self.ask(other, "jobs"), f"job {one!r} has ended with its driver")  # type: ignore[misc]
                each.end(Life.ABSENT)

    # -- calls on a job that does not run -----------------------------------------------------------------------------------------
    def submit(self, name: str, job: JobModel) -> None:
        """Submit under a free name; the snapshots of an earlier job of the name are given up."""
        driver, detached = self.rng.randrange(DRIVERS), self.rng.random() < self.detached
        may = ("NameTaken",) if job.life is Life.OVER and job.is_disturbed else ()
        asked = lambda: self.ask(driver, "submit", name, detached, str(self.folder), may=may)  # noqa: E731
        self.until(lambda: not isinstance(asked(), Raised), f"the name {name!r} is free")  # a keeper that died has to see that it is
        self.jobs[name] = JobModel(Life.RUNNING, detached, driver, {driver})

    def attach_in_vain(self, name: str, job: JobModel) -> None:
        """Attach to a job that does not exist or has ended."""
        given = self.ask(self.rng.randrange(DRIVERS), "attach", name, may=("NoSuchJob",))
        is_none = isinstance(given, Raised)
        is_back = given in ALIVE and not job.is_disturbed
        wrong = {Life.ABSENT: not is_none, Life.ENDED: given not in job.ended_states(), Life.OVER: is_back}
        if wrong[job.life]:
            raise Violation(f"attach({name!r}) gave {given}, and the job is {job.life.name}")

    def fetch_if_there(self, name: str, job: JobModel) -> None:
        """Fetch results that are kept."""
        if job.life is Life.ENDED:
            self.fetch(name, job)

    # -- the end ------------------------------------------------------------------------------------------------------------------
    def nothing_stays(self) -> None:
        """Check that no name, process or socket is left."""

        def left() -> list[Any]:
            return [*_named(), *job_processes(), *(socket_names() - self.sockets)]

        try:
            self.until(lambda: not left(), "nothing is left", LEFT_S)
        except Violation:
            raise Violation(f"left behind after {LEFT_S:g} s: {left()}") from None

    def end(self) -> None:
        """End the drivers, and with them what is left of the jobs."""
        for actor in _named():
            with suppress(ValueError):
                ray.kill(ray.get_actor(actor, namespace=NAMESPACE), no_restart=True)
        for driver in self.drivers:
            driver.kill()
        self.log.close()


WHILE_RUNNING = [
    *[Sequence.send] * 4, *[Sequence.kill] * 3, Sequence.attach, Sequence.progress, Sequence.explain, Sequence.look_at_all,
    Sequence.submit_again, Sequence.send_by_another, Sequence.complete, Sequence.save, Sequence.rescale, Sequence.configure,
    Sequence.wait_in_vain, Sequence.kill_driver, Sequence.stop, Sequence.close, Sequence.cancel,
]  # fmt: skip
OTHERWISE = [*[Sequence.submit] * 4, Sequence.attach_in_vain, Sequence.fetch_if_there, Sequence.look_at_all, Sequence.kill]


def _named() -> list[str]:
    """The names of coordinators and keepers in Ray's table."""
    return [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE]


def title(process: psutil.Process) -> str:
    """Ray's title of a process; "" if it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def run(seed: int, table: Table, calls: int = CALLS, detached: float = DETACHED) -> str:
    """Run one sequence; gives the violation and the calls before it, or "" if all was as the model says."""
    sequence = Sequence(seed, table, calls, detached)
    wrong = ""
    try:
        sequence.go()
    except Violation as violation:
        wrong = f"VIOLATION: {violation}"
    except Exception:
        wrong = f"the harness failed: {traceback.format_exc()}"
    finally:
        sequence.end()
    if not wrong:
        shutil.rmtree(sequence.folder)
        return ""
    said = "\n  ".join(sequence.said)
    return f"seed {seed}: {wrong}\n  {said}\n  kept: {sequence.folder}"


def main(options: argparse.Namespace) -> int:
    """Run as many sequences as ``--sequences`` says."""
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    table: Table = collections.Counter()
    began_s, done, violations = time.monotonic(), 0, 0
    for seed in range(options.seed, options.seed + options.sequences):
        wrong = run(seed, table, options.calls, options.detached)
        done, violations = done + 1, violations + bool(wrong)
        print(wrong or f"seed {seed}: as the model says; {done} sequences, {time.monotonic() - began_s:.0f} s", flush=True)
        if wrong and not options.keep_going:
            break
    for what, count in sorted(table.items()):
        print(f"{what:<44}{count:>6}")
    print(f"{done} sequences, {sum(table.values())} calls and kills, {time.monotonic() - began_s:.0f} s, {violations} violations")
    sys.stdout.flush()
    ray.shutdown()
    return 1 if violations else 0
