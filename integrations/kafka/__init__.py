"""Kafka topics as sources and sinks, by ``confluent-kafka`` (``pip install rayad[kafka]``); the design: docs/design/streams.md."""

from rayad.integrations.kafka.sink import KafkaSink
from rayad.integrations.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
