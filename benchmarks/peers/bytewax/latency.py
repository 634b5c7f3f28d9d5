"""Bytewax: single records at a fixed rate, in two processes: a source in one of them, ``stateful_map`` by key in both, sinks in both.

The source asks to be woken when the next record is due, and emits all that are due then. With ``live`` a third process makes the records,
and they come to the source by a socket, for which it waits up to a millisecond at a time, as Bytewax's own Kafka source does. A record has
the times when it was made and when it was due; the sink subtracts both. The first ``warm`` records are not counted. "seconds" is the time
of the records that count.
"""

import json
import select
import socket
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
from _cluster import VERSION, Keep, arguments, run, told
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import StatelessSinkPartition

START_AFTER_S = 1.0
POLL_S = 0.001


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


def make_records(server: socket.socket) -> None:
    """Send lines ``number,made,due`` to the source, each when it is due."""
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    begin_s = time.perf_counter() + START_AFTER_S
    for place in range(arguments["warm"] + arguments["records"]):
        due_s = begin_s + place / arguments["rate_per_s"]
        wait_s = due_s - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        connection.sendall(f"{place - arguments['warm']},{time.perf_counter()!r},{due_s!r}\n".encode())
    connection.close()


class LivePart(StatefulSourcePartition):
    """Records from the socket."""

    def __init__(self) -> None:
        self.connection = socket.create_connection(("127.0.0.1", arguments["port"]))
        self.begun = b""

    def next_batch(self):
        if not select.select([self.connection], [], [], POLL_S)[0]:
            return []
        data = self.connection.recv(1 << 16)
        if not data:
            raise StopIteration
        *lines, self.begun = (self.begun + data).split(b"\n")
        fields = [line.split(b",") for line in lines]
        return [(str(int(number) % arguments["keys"]), (int(number), float(made), float(due))) for number, made, due in fields]

    def snapshot(self):
        return None


class Records(FixedPartitionedSource):
    """One part: in one of the processes."""

    def list_parts(self):
        return ["only"]

    def build_part(self, step_id, for_part, resume_state):
        told["has_source"] = True
        return LivePart() if "port" in arguments else RecordsPart()


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
if arguments.get("live") and len(sys.argv) == 2:  # not in a process of the cluster
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=make_records, args=(server,), daemon=True).start()
    sys.argv[1] = json.dumps({**arguments, "port": server.getsockname()[1]})
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
