"""Shared by the Bytewax scripts: the processes of a cluster, each of which runs the script again, and when they began and ended."""

import importlib.metadata
import json
import socket
import subprocess
import sys
import time
from threading import Lock

from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

BATCH_ROWS = 1000  # as Bytewax' own file sources do
VERSION = f"bytewax {importlib.metadata.version('bytewax')}"

arguments = json.loads(sys.argv[1])
told: dict = {"began": float("inf"), "ended": 0.0, "found": []}
"""The data that a process prints at its end; the workers of a process share it."""
lock = Lock()


def began() -> None:
    """A worker opens a source."""
    told["began"] = min(told["began"], time.perf_counter())


class TimedSource(FixedPartitionedSource):
    """A part for each of its ``paths``, which ``part`` reads; notes when the first of them was opened."""

    def __init__(self, paths, part) -> None:
        self.paths, self.part = sorted(str(path) for path in paths), part

    def list_parts(self):
        return self.paths

    def build_part(self, step_id, for_part, resume_state):
        began()
        return self.part(for_part)


class KeepPart(StatelessSinkPartition):
    """Keeps the results; notes when it was closed."""

    def write_batch(self, items):
        with lock:
            told["found"].extend(items)

    def close(self):
        with lock:
            told["ended"] = max(told["ended"], time.perf_counter())


class Keep(DynamicSink):
    """A part for each worker."""

    def __init__(self, part=KeepPart) -> None:
        self.part = part

    def build(self, step_id, worker_index, worker_count):
        return self.part()


def free_addresses(count: int) -> list[str]:
    """Free ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    for entry in sockets:
        entry.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{entry.getsockname()[1]}" for entry in sockets]
    for entry in sockets:
        entry.close()
    return addresses


def run(flow: Dataflow, processes: int, threads: int) -> list[dict] | None:
    """The output (``told``) of each process; None in a process of the cluster itself, which runs the dataflow."""
    if len(sys.argv) > 2:
        cluster_main(flow, json.loads(sys.argv[2]), int(sys.argv[3]), worker_count_per_proc=threads)
        print(json.dumps(told))
        return None
    addresses = free_addresses(processes) if processes > 1 else []
    commands = [[sys.executable, *sys.argv, json.dumps(addresses), str(number)] for number in range(processes)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit("a Bytewax process failed")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def measure(flow: Dataflow, digest_of) -> None:
    """Run the dataflow in the processes that were asked for; print seconds, from the first source to the last sink, and digest.

    ``digest_of`` computes the digest from the output of all processes.
    """
    processes = arguments["processes"]
    all_told = run(flow, processes, arguments["workers"] // processes)
    if all_told is not None:
        seconds = max(part["ended"] for part in all_told) - min(part["began"] for part in all_told)
        print(json.dumps({"seconds": seconds, "digest": digest_of(all_told), "version": VERSION}))


def found_in(all_told: list[dict]) -> list[tuple]:
    """The results of all processes."""
    return [tuple(row) for part in all_told for row in part["found"]]
