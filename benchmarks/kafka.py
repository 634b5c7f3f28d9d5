"""Kafka as source and sink, beside plain ``confluent-kafka`` on the same broker.

The broker is Tansu, in memory, in a process of its own; where it is the slower side, rates are its rates. Therefore processor time is
measured, too: that of this process per message, with the client's threads. *Plain*: a consumer that reads key, value, partition, offset and
timestamp of each message; a producer that writes the messages of each snapshot in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import rayad as rd
from benchmarks.machine import settle
from benchmarks.measurement import Measurement, Ratio
from benchmarks.tansu import tansu
from rayad.integrations.kafka import KafkaSink, KafkaSource

TITLE = "Kafka, over plain confluent-kafka"
NEEDS_RAY = False
BATCH = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    messages: int = 300_000
    message_bytes: int = 100
    partitions: int = 4
    snapshots: int = 10


FULL = Sizes()
QUICK = Sizes(repetitions=1, messages=4_000, snapshots=2)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run: seconds by the clock, and of the processor."""

    seconds: float
    cpu_s: float


def measured(run: Callable[[], int], out: Measurement, wanted: int) -> Cost:
    """The cost of a function that gives a number of messages."""
    settle()
    began, cpu = time.perf_counter(), time.process_time()
    count = run()
    cost = Cost(time.perf_counter() - began, time.process_time() - cpu)
    out.check("all handled as many messages", count, wanted)
    return cost


def read_plain(servers: str, topic: str, sizes: Sizes) -> int:
    """With the client alone."""
    settings = {"bootstrap.servers": servers, "group.id": "plain", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(sizes.partitions)])
    count = 0
    while count < sizes.messages:
        taken = [(m.key(), m.value(), m.partition(), m.offset(), m.timestamp()) for m in consumer.consume(BATCH, 1.0) if m.error() is None]
        count += len(taken)
    consumer.close()
    return count


def read_source(servers: str, topic: str, sizes: Sizes) -> int:
    """A lane of the source alone: one consumer, as in the plain loop."""
    source = KafkaSource(servers, topic, parts=1, stop="latest", batch_rows=BATCH)
    (lane,) = source.list_parts()
    part, count = source.build_part(lane, None), 0
    while (given := part.next_batch()) is not None:
        count += len(given.batch)
        if not len(given.batch):
            time.sleep(0.001)  # as an idle replica waits
    part.close()
    return count


def read_job(servers: str, topic: str, sizes: Sizes) -> int:
    """A whole job in this process that counts the messages."""
    flow = rd.Dataflow("kafka")
    rows: list[int] = []
    read = flow.from_kafka(servers, topic, parts=1, stop="latest", batch_rows=BATCH)

    def count(batch: Any) -> Any:
        rows.append(len(batch))
        return batch

    read.map_batches(count).probe("read")
    flow.run(runtime="local")
    return sum(rows)


def write_plain(servers: str, topic: str, batches: list[pa.RecordBatch]) -> int:
    """With the client alone, a transaction a batch."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"plain-{time.perf_counter_ns()}"})
    producer.init_transactions(30)
    count = 0
    for batch in batches:
        producer.begin_transaction()
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.commit_transaction(60)
        count += len(batch)
    return count


def write_sink(servers: str, topic: str, batches: list[pa.RecordBatch]) -> int:
    """Writer, staging and commit of the sink, a snapshot a batch."""
    sink = KafkaSink(servers, topic, key="key", value="value")
    writer, count = sink.open(0, 1), 0
    for number, batch in enumerate(batches):
        for at in range(0, len(batch), BATCH):
            writer.write(rd.Timestamp(0), batch.slice(at, BATCH))
        count += sink.commit(number + 2, [writer.stage()])
    return count


def made(sizes: Sizes) -> list[pa.RecordBatch]:
    """The messages of each snapshot."""
    each = sizes.messages // sizes.snapshots
    value = b"x" * sizes.message_bytes
    return [pa.record_batch({"key": [b"%d" % (n % 1000) for n in range(each)], "value": [value] * each}) for _ in range(sizes.snapshots)]


def run(sizes: Sizes) -> Measurement:
    """All in turn; the order is reversed each time."""
    out = Measurement("kafka", TITLE, asdict(sizes))
    out.notes.append(
        f"Broker: Tansu, in memory, on the same machine. Messages of {sizes.message_bytes} bytes in {sizes.partitions} partitions."
    )
    batches = made(sizes)
    with tansu() as port:
        servers = f"127.0.0.1:{port}"
        filled = _topic(servers, "filled", sizes)
        write_plain(servers, filled, batches)
        readers: dict[str, Callable[..., int]] = {"plain consumer": read_plain, "source": read_source, "source in a local job": read_job}
        writers: dict[str, Callable[..., int]] = {"plain producer": write_plain, "sink": write_sink}
        rates = {name: out.new_series(name, "messages/s", "0") for name in (*readers, *writers)}
        costs = {name: out.new_series(f"{name}: processor", "us/message", "0") for name in (*readers, *writers)}
        for repetition in range(sizes.repetitions):
            turn: list[tuple[str, Callable[[], int]]] = []
            for name, read in readers.items():
                turn.append((name, lambda read=read: read(servers, filled, sizes)))  # type: ignore[misc]
            for name, write in writers.items():
                topic = _topic(servers, f"{name.replace(' ', '-')}-{repetition}", sizes)
                turn.append((name, lambda write=write, topic=topic: write(servers, topic, batches)))  # type: ignore[misc]
            for name, call in turn if repetition % 2 == 0 else reversed(turn):
                cost = measured(call, out, sizes.messages)
                rates[name].add(sizes.messages / cost.seconds)
                costs[name].add(1e6 * cost.cpu_s / sizes.messages)
    out.ratios = [
        Ratio("source", "plain consumer", "1: as fast as the client"),
        Ratio("source in a local job", "plain consumer"),
        Ratio("sink", "plain producer", "1: as fast as the client"),
        Ratio("source: processor", "plain consumer: processor", "the plain loop makes tuples, the source Arrow columns"),
        Ratio("sink: processor", "plain producer: processor"),
    ]
    return out


def _topic(servers: str, name: str, sizes: Sizes) -> str:
    admin: Any = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, sizes.partitions)])[name].result(30)
    return name
