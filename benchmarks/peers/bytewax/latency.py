"""Bytewax: single records at a fixed rate, in two processes: a source in one of them, ``stateful_map`` by key in both, sinks in both.

The source asks to be woken when the next record is due, and emits all that are due then. A record has the times when it was made and when
it was due; the sink subtracts both. The first ``warm`` records are not counted. "seconds" is the time of the records that count.
"""

import json
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
from _cluster import VERSION, Keep, arguments, run, told
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import StatelessSinkPartition

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


def count(state, record):
    """Keep some state for each key, and send the record on."""
    return (state or 0) + 1, record


told |= {"ages": [], "has_source": False}
flow = Dataflow("latency")
counted = op.stateful_map("count", op.input("records", flow, Records()), count)
op.output("out", counted, Keep(ClockPart))
all_told = run(flow, processes=2, threads=1)
if all_told is not None:
    ages = [age for part in all_told for age in part["ages"]]
    result = {
        "seconds": arguments["records"] / arguments["rate_per_s"],
        "digest": [len(ages), sum(age[0] for age in ages)],
        "version": VERSION,
        "made_us": [age[1] for age in ages],
        "due_us": [age[2] for age in ages],
        "crossed_us": [age[1] for part in all_told if not part["has_source"] for age in part["ages"]],
    }
    print(json.dumps(result))
