"""Change data capture from JSON and Avro, in columns and in rows, beside plain Python, and scans of its table:
``python -m benchmarks.messages``.

Messages of a table of orders, as Debezium has them, in one column, in one process. Each system keeps the newest row of each key and sums
amounts by customer. Plain Python reads each message by ``json.loads``, or ``fastavro``, into a dict; it keeps nothing up to date, and
survives nothing. Messages of Avro are written by ``fastavro``.
Printed are microseconds a message, medians in turns; all give the same sums. Then a scan of the newest rows of a job that has all of them.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import fastavro
import pyarrow as pa

import rayad as rd

ORDER = pa.struct([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64()), ("at", pa.int64())])
ENVELOPE = pa.schema([("before", ORDER), ("after", ORDER), ("op", pa.string()), ("ts_ms", pa.int64())])
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": "long"},
    ],
}
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
"""The schema of the same envelopes."""
PARSED = fastavro.parse_schema(AVRO)
Sums = dict[str, float]


def messages_of(count: int) -> pa.Table:
    """So many changes of a third as many orders, as JSON (value) and as Avro (avro)."""
    chance = random.Random(1)

    def order(key: int, at: int) -> dict[str, Any]:
        return {"id": key, "customer": f"c{at % 1000}", "amount": chance.randrange(10_000) / 4, "at": 1_700_000_000_000 + at}

    values, avro = [], []
    for at in range(count):
        key, op = chance.randrange(1 + count // 3), chance.choice("cuuud")
        before, after = order(key, at) if op in "ud" else None, None if op == "d" else order(key, at)
        said = {"before": before, "after": after, "op": op, "ts_ms": at, "source": {"table": "orders"}}
        values.append(json.dumps(said).encode())
        out = io.BytesIO()
        fastavro.schemaless_writer(out, PARSED, said)
        avro.append(out.getvalue())
    return pa.table({"value": pa.array(values, pa.binary()), "avro": pa.array(avro, pa.binary()), "offset": range(count)})


def read_avro(value: bytes) -> Any:
    """A message of Avro as a dict."""
    return fastavro.schemaless_reader(io.BytesIO(value), PARSED)


def newest(stream: rd.Stream) -> rd.Collection:
    """The orders of a stream of envelopes."""
    return stream.as_collection(key="id", order="ts_ms", envelope="debezium", name="orders")


def in_columns(flow: rd.Dataflow, messages: pa.Table) -> rd.Collection:
    """By ``parse_json``."""
    return newest(flow.from_arrow(messages).parse_json("value", ENVELOPE).select("value").unnest("value"))


def in_rows(flow: rd.Dataflow, messages: pa.Table) -> rd.Collection:
    """By ``json.loads``."""
    return newest(flow.from_arrow(messages).map(lambda message: json.loads(message["value"])))


def avro_in_columns(flow: rd.Dataflow, messages: pa.Table) -> rd.Collection:
    """By ``parse_avro``."""
    return newest(flow.from_arrow(messages).parse_avro("avro", AVRO).select("avro").unnest("avro"))


def avro_in_rows(flow: rd.Dataflow, messages: pa.Table) -> rd.Collection:
    """By ``fastavro``."""
    return newest(flow.from_arrow(messages).map(lambda message: read_avro(message["avro"])))


def summed(make: Callable[[rd.Dataflow, pa.Table], rd.Collection]) -> Callable[[pa.Table], Sums]:
    """A run of a dataflow."""

    def run(messages: pa.Table) -> Sums:
        flow = rd.Dataflow("messages")
        make(flow, messages).key_by("customer").sum("amount").collect("sums")
        return {customer: total for _, ((customer, total), _) in flow.run(runtime="local", progress=False)["sums"]}

    return run


def plain_of(column: str, read: Callable[[bytes], Any]) -> Callable[[pa.Table], Sums]:
    """Plain Python, which reads each message of a column."""
    return lambda messages: plain(messages.column(column).to_pylist(), read)


def plain(values: list[bytes], read: Callable[[bytes], Any]) -> Sums:
    """Plain Python."""
    there: dict[int, dict[str, Any]] = {}
    for value in values:
        said = read(value)
        if said["op"] == "d":
            there.pop(said["before"]["id"], None)
        else:
            there[said["after"]["id"]] = said["after"]
    sums: Sums = {}
    for order in there.values():
        sums[order["customer"]] = sums.get(order["customer"], 0.0) + order["amount"]
    return sums


def scanned(messages: pa.Table) -> tuple[int, float]:
    """Rows of a scan of the newest orders of a running job, and its seconds."""
    flow = rd.Dataflow("scanned")
    batches = flow.input("messages").map_batches(lambda batch: batch, schema=messages.schema)
    newest(batches.parse_json("value", ENVELOPE).select("value").unnest("value")).changes().probe("seen")
    job = flow.submit(runtime="local")
    try:
        job.input("messages").send(messages.combine_chunks().to_batches()[0])
        job.input("messages").advance_to(1)
        job.probe("seen").wait(0)
        began_s = time.perf_counter()
        return job.table("orders").scan(fresh=True).num_rows, time.perf_counter() - began_s
    finally:
        job.cancel()


SYSTEMS: dict[str, Callable[[pa.Table], Sums]] = {
    "Rayad, parse_json": summed(in_columns),
    "Rayad, json.loads": summed(in_rows),
    "plain Python": plain_of("value", json.loads),
    "Rayad, parse_avro": summed(avro_in_columns),
    "Rayad, fastavro": summed(avro_in_rows),
    "plain Python, fastavro": plain_of("avro", read_avro),
}


@click.command()
@click.option("--messages", default=300_000, show_default=True)
@click.option("--repetitions", default=3, show_default=True)
def main(messages: int, repetitions: int) -> None:
    """Measure all, in turns."""
    table = messages_of(messages)
    found: dict[str, list[float]] = {}
    for _ in range(repetitions):
        sums = []
        for name, run in SYSTEMS.items():
            began_s = time.perf_counter()
            sums.append(run(table))
            found.setdefault(name, []).append(time.perf_counter() - began_s)
        assert all(some == sums[0] for some in sums), "the systems give different sums"
    for name, seconds in found.items():
        median, beside = statistics.median(seconds), "plain Python, fastavro" if "avro" in name else "plain Python"
        times = median / statistics.median(found[beside])
        click.echo(f"{name}: {median / messages * 1e6:.2f} us a message, {times:.2f} times {beside}")
    rows, seconds_of_scan = scanned(table)
    click.echo(f"a scan of {rows:,} newest rows: {seconds_of_scan:.3f} s")


if __name__ == "__main__":
    main()
