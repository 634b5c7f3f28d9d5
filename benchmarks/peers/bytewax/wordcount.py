"""Bytewax: the lines of a folder, flat_map, count_final. One process with several worker threads, or several processes with one each.

The time begins when the first worker opens a source, so without the start of interpreters and of the cluster, and ends when the last
sink has been closed; the clock is the one that all processes of a machine share.
"""

import importlib.metadata
import json
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path
from threading import Lock

import bytewax.operators as op
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

BATCH_LINES = 1000  # Bytewax' default


class TimedSource(DirSource):
    """Notes when the first of its files was opened."""

    def build_part(self, step_id, for_part, resume_state):
        told["began"] = min(told["began"], time.perf_counter())
        return super().build_part(step_id, for_part, resume_state)


class Part(StatelessSinkPartition):
    """Keeps the counts; several workers of a process share one list."""

    def write_batch(self, items):
        with lock:
            told["counts"].extend(items)

    def close(self):
        with lock:
            told["ended"] = max(told["ended"], time.perf_counter())


class Keep(DynamicSink):
    """A part for each worker."""

    def build(self, step_id, worker_index, worker_count):
        return Part()


def free_addresses(count: int) -> list[str]:
    """Ports of this machine that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    for entry in sockets:
        entry.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{entry.getsockname()[1]}" for entry in sockets]
    for entry in sockets:
        entry.close()
    return addresses


def work(addresses: list[str], number: int, threads: int) -> None:
    """One process: run the dataflow, tell what its sinks have."""
    flow = Dataflow("wordcount")
    lines = op.input("lines", flow, TimedSource(Path(arguments["folder"]), "*.txt", BATCH_LINES, lambda _: "SHARED"))
    words = op.flat_map("words", lines, str.split)
    counts = op.count_final("count", words, lambda word: word)
    op.output("out", counts, Keep())
    cluster_main(flow, addresses, number, worker_count_per_proc=threads)
    print(json.dumps(told))


arguments = json.loads(sys.argv[1])
told: dict = {"began": float("inf"), "ended": 0.0, "counts": []}
lock = Lock()
if len(sys.argv) > 2:
    work(json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
else:
    processes = arguments["processes"]
    addresses = free_addresses(processes) if processes > 1 else []
    threads = arguments["workers"] // processes
    commands = [[sys.executable, *sys.argv, json.dumps(addresses), str(number), str(threads)] for number in range(processes)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit("a Bytewax process failed")
    all_told = [json.loads(output.splitlines()[-1]) for output in outputs]
    seconds = max(part["ended"] for part in all_told) - min(part["began"] for part in all_told)
    counts = [pair for part in all_told for pair in part["counts"]]
    digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts)]
    print(json.dumps({"seconds": seconds, "digest": digest, "version": f"bytewax {importlib.metadata.version('bytewax')}"}))
