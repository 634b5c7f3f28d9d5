"""Kafka topics as sources and sinks, by ``confluent-kafka`` (``pip install rayad[kafka]``); the design: docs/design/streams.md."""

from rayad.integrations.kafka.sink import KafkaSink
from rayad.integrations.kafka.source import KafkaSource
from rayad.integrations.kafka.table import KafkaTable

__all__ = ["KafkaSink", "KafkaSource", "KafkaTable"]
