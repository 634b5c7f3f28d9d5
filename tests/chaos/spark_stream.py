"""A Spark stream feeds a job, and processes are killed between the steps of micro-batches: ``python -m tests.chaos --spark-stream``.

The driver itself draws, from a seed, what it kills at which step of which micro-batch (``BatchFeed.at``): itself (SIGKILL, with Spark in
it), a replica, the coordinator, an executor of Spark; or it deletes the newest ``commits/N`` of Spark's checkpoint and kills itself. It is
started again until ``--kills`` have happened. Then the query ends, and the results have to be those of Spark's ``rate-micro-batch``:
every value once, in the epoch of its micro-batch.

    python -m tests.chaos.spark_stream <address of Ray> <folder> <commit> <seed> <kills>      the driver
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import ray
import ray.util.state

import rayad as rd
from rayad.integrations.spark.streaming.feed import BatchFeed

ROWS = 40
KINDS = (*["driver"] * 4, *["replica"] * 6, *["coordinator"] * 3, "executor", "executor", "commit")
KILL_SHARE = 0.3
"""The share of steps at which something is killed; a micro-batch has six."""
DRIVER_S = 300.0
"""A driver that neither ends nor kills anything for so long is stuck."""
NAME = "spark-chaos"


def main(options: argparse.Namespace) -> int:
    """Run and kill until there were enough kills; gives the exit code."""
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    address = ray.get_runtime_context().gcs_address
    began_s, failed = time.monotonic(), 0
    table: collections.Counter[tuple[str, str]] = collections.Counter()
    for index, commit in enumerate(("snapshot", "stage")):
        folder = Path(tempfile.mkdtemp(prefix="rayad-spark-chaos-"))
        kills = options.kills // 2 + (options.kills % 2 if commit == "stage" else 0)
        told = run(address, folder, commit, options.seed + index, kills)
        struck = killed(folder)
        table.update((kind, step) for kind, step, _ in struck)
        took_s = time.monotonic() - began_s
        print(f"commit={commit!r}, seed {options.seed + index}: {len(struck)} kills: {told}; {took_s:.0f} s", flush=True)
        failed += told != "as Spark gave it"
        if told == "as Spark gave it":
            shutil.rmtree(folder)
        else:
            print(f"  kept: {folder}", flush=True)
    steps = sorted({step for _, step in table})
    print(f"{'killed':<14}" + "".join(f"{step:>12}" for step in steps))
    for kind in sorted({kind for kind, _ in table}):
        print(f"{kind:<14}" + "".join(f"{table[kind, step]:>12}" for step in steps))
    ray.shutdown()
    return 1 if failed else 0


def run(address: str, folder: Path, commit: str, seed: int, kills: int) -> str:
    """Run drivers, one after the other, until one has results; gives whether these are right, as text."""
    turn = 0
    while not (folder / "result").exists():
        command = [sys.executable, "-m", "tests.chaos.spark_stream", address, str(folder), commit, f"{seed}/{turn}", str(kills)]
        before, turn = len(killed(folder)), turn + 1
        with open(folder / f"driver-{turn}.log", "wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            seen, seen_s = before, time.monotonic()
            while driver.poll() is None:
                time.sleep(0.2)
                now = len(killed(folder))
                if now > seen:
                    seen, seen_s = now, time.monotonic()
                if time.monotonic() - seen_s > DRIVER_S:
                    end_group(driver.pid)
                    return f"VIOLATION: driver {turn} is stuck"
        end_group(driver.pid)  # Spark's own processes
        if driver.returncode not in (0, -signal.SIGKILL):
            return f"VIOLATION: driver {turn} ended with {driver.returncode}"
    found = [(row["value"], epoch) for epoch, row in json.loads((folder / "result").read_text())]
    count = len(found)
    if not count or count % ROWS or sorted(found) != [(value, value // ROWS) for value in range(count)]:
        twice = [one for one, times in collections.Counter(found).items() if times > 1]
        lost = sorted(set(range(max(found)[0])) - {value for value, _ in found}) if found else []
        return f"VIOLATION: {count} rows; twice {twice[:5]}, lost {lost[:5]}"
    return "as Spark gave it"


def end_group(group: int) -> None:
    """Kill the processes that a driver has started and left behind."""
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group:
                process.kill()
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue


def killed(folder: Path) -> list[tuple[str, str, int]]:
    """The kills so far: what, at which step of which micro-batch."""
    try:
        lines = (folder / "kills").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(kind, step, int(number)) for kind, step, number in (line.split() for line in lines)]


class Killer:
    """Kills between the steps of micro-batches; each driver has one."""

    def __init__(self, folder: Path, seed: str, kills: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.left = kills - len(killed(folder))
        self.job: Any = None

    def at(self, step: str, number: int) -> None:
        """Called between two steps."""
        if self.left <= 0 or self.rng.random() > KILL_SHARE:
            return
        kind = self.rng.choice(KINDS)
        if not self.strike(kind, step, number):
            return
        self.left -= 1

    def strike(self, kind: str, step: str, number: int) -> bool:
        """Kill something; gives whether it existed."""
        if kind in ("replica", "coordinator"):
            found = sorted(self.processes(kind))
            if not found:
                return False  # the process has ended and is being replaced
            self.note(kind, step, number)
            with suppress(ProcessLookupError):  # it ended after it was listed
                os.kill(self.rng.choice(found), signal.SIGKILL)
        elif kind == "executor":
            try:
                executor = ray.get_actor("raydp-executor-0")
            except ValueError:
                return False
            self.note(kind, step, number)
            ray.kill(executor, no_restart=False)
        else:
            self.note(kind, step, number)
            if kind == "commit":
                commits = self.folder / "checkpoint" / "commits"
                done = sorted(int(path.name) for path in commits.iterdir() if path.name.isdigit()) if commits.exists() else []
                if done:
                    (commits / str(done[-1])).unlink()
                    (commits / f".{done[-1]}.crc").unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def processes(self, kind: str) -> list[int]:
        """The process ids of a kind of actor of the job."""
        try:
            if kind == "replica":
                return [pid for pids in self.job.pids().values() for pid in pids]
            mine = ray.get_runtime_context().get_job_id()
            actors = ray.util.state.list_actors(filters=[("job_id", "=", mine), ("state", "=", "ALIVE")])
            return [actor.pid for actor in actors if actor.class_name.startswith("Coordinator")]
        except Exception:
            return []

    def note(self, kind: str, step: str, number: int) -> None:
        """Record a kill before it happens: the driver may not be able to afterwards."""
        with open(self.folder / "kills", "a", encoding="utf-8") as file:
            print(kind, step, number, file=file, flush=True)


def drive(address: str, folder_name: str, commit: str, seed: str, kills: str) -> None:
    """The driver."""
    folder = Path(folder_name)
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    spark = rd.spark_session(f"{NAME}-{os.getpid()}", configs={"spark.ui.enabled": "false"})
    killer = Killer(folder, seed, int(kills))
    BatchFeed.at = staticmethod(killer.at)  # type: ignore[method-assign]
    options = {"rowsPerBatch": ROWS, "numPartitions": 2, "startTimestamp": 0, "advanceMillisPerBatch": 1000}
    frame = spark.readStream.format("rate-micro-batch").options(**options).load().select("value")
    more = {"commit": "stage", "staging_path": str(folder / "staging"), "max_lag": 3} if commit == "stage" else {}
    flow = rd.Dataflow(NAME)
    stream = flow.from_spark(frame, name="ticks", checkpoint=str(folder / "checkpoint"), **more)
    stream.collect("out")
    stream.map(lambda row: row["value"] % 7).key_by(lambda key: key).count(name="counts").collect("counts")
    failures = rd.FailureConfig(max_failures=1_000, window_s=None, delay_s=0.1, delay_max_s=1.0)
    config = rd.RunConfig(storage_path=str(folder / "runs"), resume="latest", failures=failures, cpus_per_replica=0.1)
    killer.job = job = flow.submit(config)
    while killer.left > 0:
        if job.state.value in ("failed", "cancelled"):
            job.wait(timeout_s=60)
        time.sleep(0.2)
    reached = job.input("ticks").epoch
    while job.input("ticks").epoch < reached + 2 and job.state.value not in ("failed", "cancelled"):
        time.sleep(0.2)
    for query in spark.streams.active:
        query.stop()
    result = job.wait(timeout_s=DRIVER_S)
    (folder / "result.writing").write_text(json.dumps([[time.epoch, row] for time, row in result["out"]]))
    (folder / "result.writing").rename(folder / "result")
    rd.stop_spark()
    ray.shutdown()


if __name__ == "__main__":
    drive(*sys.argv[1:])
