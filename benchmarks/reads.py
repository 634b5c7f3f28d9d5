"""Reads of a job's table while it runs: `python -m benchmarks.reads [--blocks N] [--seconds S] [--rate N]`.

A job on Ray counts records by key in two processes; this process sends it so many a second, an epoch each tenth of a second. Another
process reads keys of its table, in blocks that follow each other in turn: nobody reads; so many single reads a second, from a few threads;
as many keys in calls of a hundred each; single reads that are fresh. Printed are the time of a call and the processor time of the job's
processes for each of the seconds, beside that of the blocks in which nobody reads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

import psutil
import ray

import rayad as rd
from benchmarks.machine import ROOT, python_path, ray_address
from benchmarks.measurement import quantile

NAME = "read"
KEYS = 10_000
EPOCH_S = 0.1
READS_A_SECOND = 1_000
THREADS = 4
MANY = 100
NOBODY, SINGLE, HUNDRED, FRESH = "nobody reads", "single", f"by {MANY}", "fresh"
KINDS = (NOBODY, SINGLE, HUNDRED, FRESH)


def program() -> rd.Dataflow:
    """Counts by key."""
    flow = rd.Dataflow(NAME)
    flow.input("records").key_by(itemgetter(0)).count(name="count").probe("seen")
    return flow


class Feeding(threading.Thread):
    """Sends so many records a second, an epoch each tenth of one."""

    def __init__(self, job: Any, rate: int) -> None:
        super().__init__(daemon=True)
        self._input, self._each = job.input("records"), max(1, round(rate * EPOCH_S))
        self.stopped = threading.Event()
        self.epoch = 0

    def run(self) -> None:
        chance, due_s = random.Random(0), time.perf_counter()
        while not self.stopped.is_set():
            self._input.send([(chance.randrange(KEYS),) for _ in range(self._each)])
            self.epoch += 1
            self._input.advance_to(self.epoch)
            due_s += EPOCH_S
            time.sleep(max(0.0, due_s - time.perf_counter()))


def read_for(table: Any, kind: str, seconds: float) -> list[float]:
    """Seconds of each call of a block."""
    keys_a_call = MANY if kind == HUNDRED else 1
    threads = 1 if kind == HUNDRED else THREADS
    until_s = time.perf_counter() + seconds

    def one(number: int) -> list[float]:
        chance, took, due_s = random.Random(number), [], time.perf_counter()
        while due_s < until_s:
            keys = [chance.randrange(KEYS) for _ in range(keys_a_call)]
            began_s = time.perf_counter()
            if kind == HUNDRED:
                table.get_many(keys)
            else:
                table.get(keys[0], fresh=kind == FRESH)
            took.append(time.perf_counter() - began_s)
            due_s = max(due_s + keys_a_call * threads / READS_A_SECOND, began_s)
            time.sleep(max(0.0, due_s - time.perf_counter()))
        return took

    with ThreadPoolExecutor(threads) as pool:
        return [value for some in pool.map(one, range(threads)) for value in some]


def reader(address: str) -> None:
    """The process that reads: lines of kind and seconds in, the seconds of its calls out."""
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    table = rd.attach(NAME).table("count")
    for line in sys.stdin:
        kind, seconds = json.loads(line)
        print(json.dumps(read_for(table, kind, seconds)), flush=True)


def cpu_s(pids: set[int]) -> float:
    """Processor time of the job's processes."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def main() -> None:
    """Print calls a second, their median and 99th percentile, and processor seconds of the job beside none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=int, default=10_000)
    options = parser.parse_args()
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    job: Any = program().submit(scaling=rd.ScalingConfig(parallelism=2))
    feeding = Feeding(job, options.rate)
    feeding.start()
    command = [sys.executable, "-m", "benchmarks.reads", ray_address()]
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cost: dict[str, list[float]] = {kind: [] for kind in KINDS}
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdin is not None
            assert other.stdout is not None
            assert job.probe("seen").wait(0, timeout_s=60.0)
            pids = {pid for some in job.pids().values() for pid in some}
            assert pids
            for block in range(-1, options.blocks):  # the first is to warm up
                for kind in KINDS:
                    before = cpu_s(pids)
                    if kind == NOBODY:
                        time.sleep(options.seconds)
                        calls = []
                    else:
                        print(json.dumps([kind, options.seconds]), file=other.stdin, flush=True)
                        calls = json.loads(other.stdout.readline())
                    if block >= 0:
                        took[kind] += calls
                        cost[kind].append((cpu_s(pids) - before) / options.seconds)
        finally:
            other.kill()
            feeding.stopped.set()
            feeding.join()
            job.cancel()
    base = statistics.median(cost[NOBODY])
    print(f"{options.rate} records a second, {options.blocks} blocks of {options.seconds:g} s each, two processes of replicas")
    for kind in KINDS:
        share = statistics.median(cost[kind])
        told = f"{kind:>12}: {share:.3f} processors, {share / base:.2f} times"
        if took[kind]:
            a_second = len(took[kind]) / options.blocks / options.seconds
            half, most = quantile(took[kind], 0.5) * 1e3, quantile(took[kind], 0.99) * 1e3
            told += f"; {a_second:.0f} calls a second, p50 {half:.2f} ms, p99 {most:.2f} ms"
        print(told)


if __name__ == "__main__":
    reader(sys.argv[1]) if len(sys.argv) == 2 and not sys.argv[1].startswith("-") else main()
