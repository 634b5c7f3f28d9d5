"""A compacted Kafka topic that is kept as a collection is: a value replaces the one before it, and a tombstone says that a key is gone.

What replicas write goes into the snapshots, with the epoch of each change. A snapshot may have several changes of a key, and of several
replicas if keys have moved: the one of the last epoch is produced, so that compaction keeps what is right whatever the order of replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.sink import SinkWriter
from rayad.integrations.kafka.sink import STAGED, KafkaSink, KafkaWriter, as_bytes, batches_of
from rayad.progress import DataflowError, Timestamp, show

CHANGES = pa.schema([*STAGED, ("epoch", pa.int64())])


class TableWriter(KafkaWriter):
    """Keeps a replica's changes, ``(record, 1)`` or ``(record, -1)``, until the next snapshot."""

    schema = CHANGES

    def __init__(self, sink: KafkaTable) -> None:
        super().__init__(sink)
        self._key, self._value = sink.key_of, sink.value_of

    def write(self, time: Timestamp, batch: Any) -> None:
        keys, values = [], []
        for record, weight in to_rows(batch):
            key, value = self._key(record), self._value(record) if weight > 0 else None
            if key is None or (value is None and weight > 0):
                raise DataflowError(
                    f"write_kafka: the {'key' if key is None else 'value'} of {show(record, 80)} is None: in a compacted topic "
                    + ("each message has a key" if key is None else "a message without a value deletes its key")
                    + "; filter such records out, or give another function"
                )
            keys.append(key)
            values.append(value)
        self.keep(pa.RecordBatch.from_arrays([as_bytes(keys, "key"), as_bytes(values, "value")], schema=STAGED), time)

    def staged(self, messages: pa.RecordBatch, time: Timestamp) -> pa.RecordBatch:
        """See there."""
        return messages.append_column("epoch", pa.array([time.epoch] * len(messages), pa.int64()))


class KafkaTable(KafkaSink):
    """Writes to an existing topic. The result is the number of messages of the last snapshot.

    Args:
        servers: as of :class:`KafkaSink`.
        topic: as there; its ``cleanup.policy`` is to be ``compact``.
        key: gives the key of a record, as bytes or text.
        value: gives the value of a record, as bytes or text.
        transaction_s: as there.
        wait_s: as there.
        options: as there.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: Callable[[Any], Any],
        value: Callable[[Any], Any],
        transaction_s: float = 60.0,
        wait_s: float = 120.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.key_of, self.value_of = key, value
        super().__init__(servers, topic, key=key, value=value, transaction_s=transaction_s, wait_s=wait_s, options=options)

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return TableWriter(self)

    def messages(self, staged: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """The last one of each key. What is staged is read twice; keys alone are in memory."""
        newest: dict[bytes, int] = {}
        for batch in batches_of(staged):
            for key, epoch in zip(batch.column("key").to_pylist(), batch.column("epoch").to_pylist(), strict=True):
                newest[key] = max(epoch, newest.get(key, epoch))
        for batch in batches_of(staged):
            pairs = zip(batch.column("key").to_pylist(), batch.column("epoch").to_pylist(), strict=True)
            stays = pa.array([newest[key] == epoch for key, epoch in pairs], pa.bool_())
            yield batch.filter(stays).select(STAGED.names)


__all__ = ["KafkaTable", "TableWriter"]
