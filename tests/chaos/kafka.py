"""``python -m tests.chaos --kafka``: a job from Kafka to Kafka on real Ray, whose processes are killed. Readers must see the records of the
oracle.

Processes are killed at any moment (driver, replica, coordinator, progress actor). Also the coordinator kills itself between two steps of a
commit: before and after ``init_transactions``, the reading of what is committed, ``begin_transaction``, ``produce``,
``send_offsets_to_transaction`` and ``commit_transaction``; and a replica before and after ``stage``.

    python -m tests.chaos --kafka --kills 100 --seed 1       on Ray
    python -m tests.chaos --kafka --kills 500 --steps        in this process, only between steps: hundreds a minute
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
import ray

import rayad as rd
from rayad.integrations.kafka import KafkaSink
from rayad.integrations.kafka.sink import KafkaWriter
from tests.chaos.victims import KINDS, Violation
from tests.cluster import recovering
from tests.cluster.conftest import job_processes
from tests.cluster.recovering import actors, address, is_dead
from tests.integrations import kafka_steps
from tests.integrations.broker import Broker, broker
from tests.integrations.kafka_steps import PRODUCER_STEPS, messages, oracle, run_with_kills, steps_in

COUNT = 3000
PARTITIONS = 4
BATCH_PAUSE_S = 0.03
KILLS = (*["replica"] * 5, *["coordinator"] * 3, *["progress"] * 2, *["driver"] * 2, *["step"] * 8)
STEPS = tuple(f"{when} {what}" for what in (*PRODUCER_STEPS, "committed", "stage") for when in ("before", "behind"))
RARE = ("init_transactions", "committed")
"""The steps that a coordinator does once, at its start: the first coordinator is killed anywhere, and its successor dies at the step."""
KILLS_OF_A_RUN = 12
STEP_S = 15.0
STUCK_S = 150.0
Table = collections.Counter[str]


# -- in the processes of the job -----------------------------------------------------------------------------------------------------


def die_if_told(folder: str, step: str) -> None:
    """SIGKILL of this process, once, if a file asks for it."""
    try:
        os.unlink(f"{folder}/die {step}")
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class DyingProducer:
    """A producer whose process may die before and after each call."""

    def __init__(self, producer: Any, folder: str) -> None:
        self._producer, self._folder = producer, folder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._producer, name)
        if name not in PRODUCER_STEPS:
            return found

        def call(*args: Any) -> Any:
            die_if_told(self._folder, f"before {name}")
            given = found(*args)
            die_if_told(self._folder, f"behind {name}")
            return given

        return call


class DyingWriter(KafkaWriter):
    """The same for the writer of a replica."""

    def __init__(self, sink: DyingSink) -> None:
        super().__init__(sink)
        self._folder = sink.folder

    def stage(self) -> bytes:
        die_if_told(self._folder, "before stage")
        given = super().stage()
        die_if_told(self._folder, "behind stage")
        return given


class DyingSink(KafkaSink):
    """The same for the sink."""

    def __init__(self, servers: str, topic: str, folder: str) -> None:
        super().__init__(servers, topic)
        self.folder = folder

    def open(self, replica: int, parallelism: int) -> DyingWriter:
        return DyingWriter(self)

    def _made(self) -> Any:
        return DyingProducer(super()._made(), self.folder)

    def _committed(self) -> tuple[int, int]:
        die_if_told(self.folder, "before committed")
        found = super()._committed()
        die_if_told(self.folder, "behind committed")
        return found


def drive(address: str, servers: str, start: str, end: str, folder: str) -> None:
    """The driver: runs the job, from its latest snapshot if there is one."""
    for module in (recovering, kafka_steps, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    ray.init(address=address, logging_level="ERROR", log_to_driver=True)
    sink = DyingSink(servers, end, folder)
    flow = kafka_steps.program(servers, start, end, pause_s=BATCH_PAUSE_S, sink=sink)
    snapshots = rd.SnapshotConfig(interval_s=0.3, keep=3)
    failures = rd.FailureConfig(max_failures=1000, delay_s=0.1, delay_max_s=1.0)
    config = rd.RunConfig(storage_path=folder, resume="latest", snapshots=snapshots, failures=failures, cpus_per_replica=0.01)
    flow.submit(config, parallelism=2).wait()
    ray.shutdown()


# -- the harness ---------------------------------------------------------------------------------------------------------------------


class Run:
    """One job and its kills."""

    def __init__(self, kafka: Broker, seed: int, table: Table) -> None:
        self.kafka, self.table = kafka, table
        self.rng = random.Random(f"kafka/{seed}")
        self.folder = Path(tempfile.mkdtemp(prefix="rayad-chaos-kafka-"))
        self.kills = 0
        self.doomed: set[int] = set()
        self.start, self.end = kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)
        kafka.send(self.start, messages(COUNT, PARTITIONS))
        self.log = (self.folder / "log").open("ab")
        self.begin()

    def begin(self) -> None:
        """Start a driver."""
        words = [address(), self.kafka.servers, self.start, self.end, str(self.folder)]
        program = f"from tests.chaos import kafka; kafka.drive(*{words!r})"
        self.driver = subprocess.Popen(
            [sys.executable, "-c", program], stdout=self.log, stderr=self.log, env={**os.environ, "RAY_ADDRESS": ""}
        )

    def is_over(self) -> bool:
        """Whether the driver has ended; the job has then ended as well."""
        return self.driver.poll() is not None

    def go(self) -> None:
        """Kill processes until there were enough kills, then wait for the end."""
        self.wait_until(lambda: bool(self.seen()), "a first commit")
        while self.kills < KILLS_OF_A_RUN and not self.is_over():
            time.sleep(self.rng.choice([0.05, 0.5, 1.0, 2.0, 3.0]) * self.rng.random())
            kind = self.rng.choice(KILLS)
            if kind == "step":
                self.kill_at(self.rng.choice(STEPS))
            else:
                self.kill(kind)
            extra = self.seen() - self.wanted()
            if extra:
                raise Violation(f"committed and wrong: {list(extra.items())[:10]}")
        self.wait_until(self.is_over, "the end")
        if self.driver.returncode:
            raise Violation(f"the driver ended with {self.driver.returncode}:\n{self.told()}")
        mine, theirs = self.seen(), self.wanted()
        if mine != theirs:
            raise Violation(f"missing {list((theirs - mine).items())[:8]}, too many {list((mine - theirs).items())[:8]}")

    def seen(self) -> collections.Counter[bytes]:
        """The records that a consumer in read-committed mode sees."""
        return collections.Counter(self.kafka.committed(self.end, PARTITIONS))

    def wanted(self) -> collections.Counter[bytes]:
        """The records that it has to see at the end."""
        return collections.Counter(oracle(COUNT))

    def wait_until(self, condition: Any, what: str) -> None:
        """Wait for a condition; raises Violation after ``STUCK_S``."""
        deadline_s = time.monotonic() + STUCK_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise Violation(f"{what} did not come within {STUCK_S} s:\n{self.told()}")
            time.sleep(0.05)

    def told(self) -> str:
        """The end of the driver's log."""
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    def kill(self, kind: str) -> None:
        """SIGKILL of a current process of the job."""
        if kind == "driver":
            if self.is_over():
                return
            self.doomed |= {one.pid for one in job_processes()}
            self.driver.kill()
            self.driver.wait(10)
            self.begin()
        else:
            found = [one for one in actors(KINDS[kind]) if one.pid not in self.doomed]
            if not found:
                return  # the process has ended and is being replaced
            victim = self.rng.choice(found)
            self.doomed |= {one.pid for one in job_processes()} if kind == "coordinator" else {victim.pid}
            try:
                victim.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                return
            while not is_dead(victim.pid):
                time.sleep(0.002)
        self.count(kind)

    def kill_at(self, step: str) -> None:
        """Make a process kill itself at a step of a commit."""
        told = self.folder / f"die {step}"
        told.touch()
        if step.split()[1] in RARE:
            self.kill("coordinator")
        deadline_s = time.monotonic() + STEP_S
        while told.exists():
            if time.monotonic() > deadline_s or self.is_over():
                told.unlink(missing_ok=True)
                return
            time.sleep(0.002)
        self.count(step)

    def count(self, what: str) -> None:
        self.table[what] += 1
        self.kills += 1

    def close(self) -> None:
        """Leave nothing behind."""
        self.driver.kill()
        self.driver.wait(10)
        self.log.close()
        deadline_s = time.monotonic() + 30
        while left := job_processes():
            if time.monotonic() > deadline_s:
                for process in left:
                    process.kill()
                raise Violation(f"left behind: {left}")
            time.sleep(0.05)


def main(options: argparse.Namespace) -> int:
    """Run jobs until there were ``--kills``, or ``--minutes`` are over."""
    if options.steps:
        return at_steps(options)
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    table: Table = collections.Counter()
    began_s = time.monotonic()
    kills = runs = violations = 0
    with broker() as kafka:
        while kills < options.kills and time.monotonic() - began_s < 60 * options.minutes and not violations:
            run = Run(kafka, options.seed + runs, table)
            told = "as the oracle says"
            try:
                run.go()
            except Violation as violation:
                violations += 1
                told = f"VIOLATION: {violation}"
            finally:
                run.close()
            runs += 1
            kills += run.kills
            took_s = time.monotonic() - began_s
            print(f"seed {options.seed + runs - 1}: {run.kills} kills, {told}; {kills} kills in {runs} runs, {took_s:.0f} s", flush=True)
            if not violations:
                shutil.rmtree(run.folder)
    _print(table)
    ray.shutdown()
    return 1 if violations else 0


def at_steps(options: argparse.Namespace) -> int:
    """The same in this process: see ``tests/integrations/kafka_steps.py``."""
    began_s = time.monotonic()
    kills = runs = violations = 0
    with broker() as kafka, pytest.MonkeyPatch.context() as patch, steps_in(patch) as steps:
        while kills < options.kills and time.monotonic() - began_s < 60 * options.minutes and not violations:
            folder = tempfile.mkdtemp(prefix="rayad-steps-kafka-")
            came, more = run_with_kills(kafka, steps, folder, 300, options.seed + runs)
            violations += came != oracle(300)
            runs += 1
            kills += more
            shutil.rmtree(folder)
        _print(steps.kills)
        took_s = time.monotonic() - began_s
        print(f"{kills} kills in {runs} runs, {took_s:.0f} s, {violations} violations (the last seed: {options.seed + runs - 1})")
    return 1 if violations else 0


def _print(table: Table) -> None:
    for what, count in sorted(table.items()):
        print(f"{what:<40}{count:>6}")
