"""Bytewax: rows from Parquet files through pyarrow, keyed by ``str(key)`` (keys must be strings), reduce_final.

One process with several worker threads, or several processes with one each.

The time begins when the first worker opens a source, so without the start of interpreters and of the cluster, and ends when the last
sink has been closed; the clock is the one that all processes of a machine share.
"""

import importlib.metadata
import json
import operator
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

BATCH_ROWS = 1000  # as Bytewax' own file sources do


class RowsPart(StatefulSourcePartition):
    """The rows of one file as (str(key), value)."""

    def __init__(self, path: str) -> None:
        self.batches = pq.ParquetFile(path).iter_batches(BATCH_ROWS)

    def next_batch(self):
        batch = next(self.batches)
        return list(zip(map(str, batch.column(0).to_pylist()), batch.column(1).to_pylist(), strict=True))

    def snapshot(self):
        return None


class Rows(FixedPartitionedSource):
    """A part for each file; notes when the first of them was opened."""

    def list_parts(self):
        return sorted(str(path) for path in Path(arguments["folder"]).glob("*.parquet"))

    def build_part(self, step_id, for_part, resume_state):
        told["began"] = min(told["began"], time.perf_counter())
        return RowsPart(for_part)


class Part(StatelessSinkPartition):
    """Keeps the sums; several workers of a process share one list."""

    def write_batch(self, items):
        with lock:
            told["sums"].extend(items)

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
    flow = Dataflow("keyed-sum")
    rows = op.input("rows", flow, Rows())
    sums = op.reduce_final("sum", rows, operator.add)
    op.output("out", sums, Keep())
    cluster_main(flow, addresses, number, worker_count_per_proc=threads)
    print(json.dumps(told))


arguments = json.loads(sys.argv[1])
told: dict = {"began": float("inf"), "ended": 0.0, "sums": []}
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
    sums = [pair for part in all_told for pair in part["sums"]]
    mixed = [(int(key) * 2_654_435_761) ^ (total * 40_503) for key, total in sums]
    digest = [len(sums), sum(mixed) & (2**63 - 1)]
    print(json.dumps({"seconds": seconds, "digest": digest, "version": f"bytewax {importlib.metadata.version('bytewax')}"}))
