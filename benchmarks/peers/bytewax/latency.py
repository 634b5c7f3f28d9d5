"""Bytewax: single records at a fixed rate, in two processes: a source in one of them, ``stateful_map`` by key in both, sinks in both.

The source asks to be woken when the next record is due, and emits all that are due then. A record carries when it was made and when it
was due; the sink subtracts both. The first ``warm`` records are not counted. "seconds" is the length of what is counted.
"""

import importlib.metadata
import json
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

START_AFTER_S = 1.0


class RecordsPart(StatefulSourcePartition):
    """Records by the clock."""

    def __init__(self) -> None:
        self.begin_s = time.perf_counter() + START_AFTER_S
        self.number = -arguments["warm"]

    def due_s(self) -> float:
        return self.begin_s + (self.number + arguments["warm"]) / arguments["rate_per_s"]

    def next_batch(self):
        records = []
        while self.number < arguments["records"] and self.due_s() <= time.perf_counter():
            key = str(self.number % arguments["keys"])
            records.append((key, (self.number, time.perf_counter(), self.due_s())))
            self.number += 1
        if not records and self.number == arguments["records"]:
            raise StopIteration
        return records

    def next_awake(self):
        return datetime.now(UTC) + timedelta(seconds=max(0.0, self.due_s() - time.perf_counter()))

    def snapshot(self):
        return None


class Records(FixedPartitionedSource):
    """One part: in one of the processes."""

    def list_parts(self):
        return ["only"]

    def build_part(self, step_id, for_part, resume_state):
        told["has_source"] = True
        return RecordsPart()


class ClockPart(StatelessSinkPartition):
    """Notes how old each record is."""

    def write_batch(self, items):
        now = time.perf_counter()
        for _, (number, made_s, due_s) in items:
            if number >= 0:
                told["ages"].append((number, 1e6 * (now - made_s), 1e6 * (now - due_s)))


class Clock(DynamicSink):
    """A part for each worker."""

    def build(self, step_id, worker_index, worker_count):
        return ClockPart()


def count(state, record):
    """Some state for each key; the record goes on."""
    return (state or 0) + 1, record


def work(addresses: list[str], number: int) -> None:
    """One process: run the dataflow, tell what its sink has."""
    flow = Dataflow("latency")
    records = op.input("records", flow, Records())
    counted = op.stateful_map("count", records, count)
    op.output("out", counted, Clock())
    cluster_main(flow, addresses, number, worker_count_per_proc=1)
    print(json.dumps(told))


arguments = json.loads(sys.argv[1])
told: dict = {"ages": [], "has_source": False}
if len(sys.argv) > 2:
    work(json.loads(sys.argv[2]), int(sys.argv[3]))
else:
    sockets = [socket.socket() for _ in range(2)]
    for entry in sockets:
        entry.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{entry.getsockname()[1]}" for entry in sockets]
    for entry in sockets:
        entry.close()
    commands = [[sys.executable, *sys.argv, json.dumps(addresses), str(number)] for number in range(2)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit("a Bytewax process failed")
    all_told = [json.loads(output.splitlines()[-1]) for output in outputs]
    ages = [age for part in all_told for age in part["ages"]]
    result = {
        "seconds": arguments["records"] / arguments["rate_per_s"],
        "digest": [len(ages), sum(age[0] for age in ages)],
        "version": f"bytewax {importlib.metadata.version('bytewax')}",
        "made_us": [age[1] for age in ages],
        "due_us": [age[2] for age in ages],
        "crossed_us": [age[1] for part in all_told if not part["has_source"] for age in part["ages"]],
    }
    print(json.dumps(result))
