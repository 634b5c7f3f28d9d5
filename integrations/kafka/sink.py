"""A Kafka topic as a sink: each snapshot is one transaction, so consumers in read-committed mode see each record once.

What replicas write goes into the snapshots. When one is complete the coordinator produces it in a transaction whose id is that of the
output, and in the same transaction commits the snapshot's number as the offset of a consumer group of that name: a commit that is repeated
finds its number there and does nothing. A coordinator that was taken for dead is fenced by the next one that uses the id; from which number
on snapshots are valid is in the same offset, so that it cannot come back either (not in the offset's metadata: not all brokers keep it).

A transaction that was committed cannot be taken back: a job that resumes from a snapshot older than the newest committed one is refused, or
writes again what came after it (``on_roll_back="repeat"``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.selectors import ValueSelector
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.kafka.client import ANSWER_S, checked_settings, client_library, partitions, quiet, told
from rayad.progress import ConfigError, DataflowError, Timestamp, arguments, show

OnRollBack = Literal["refuse", "repeat"]
_OWNED = ("transactional.id", "enable.idempotence", "acks", "group.id")
_ATTEMPTS = 5
_NUMBER_BITS = 32
_STAGED = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class KafkaWriter(SinkWriter):
    """Keeps a replica's messages until the next snapshot."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []

    def write(self, time: Timestamp, batch: Any) -> None:
        rows = to_rows(batch)
        self._values.extend(self._as_bytes(mapped(self._sink.value, rows), "value") if self._sink.value else self._as_bytes(rows, "record"))
        self._keys.extend(self._as_bytes(mapped(self._sink.key, rows), "key") if self._sink.key else [None] * len(rows))

    def _as_bytes(self, values: Sequence[Any], what: str) -> list[bytes | None]:
        out: list[bytes | None] = []
        for value in values:
            if value is None or isinstance(value, bytes):
                out.append(value)
            elif isinstance(value, str):
                out.append(value.encode())
            else:
                raise DataflowError(
                    f"write_kafka: the {what} is {show(value, 60)}, a {type(value).__name__}: a message is bytes or text, or None; give "
                    f"{'key' if what == 'key' else 'value'}=a function of the record, such as json.dumps"
                )
        return out

    def stage(self) -> bytes:
        """The messages since the last call as an Arrow IPC stream; nothing when there were none."""
        if not self._values:
            return b""
        batch = pa.RecordBatch.from_arrays([pa.array(self._keys, pa.binary()), pa.array(self._values, pa.binary())], schema=_STAGED)
        self._keys, self._values = [], []
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
        return bytes(out.getvalue())


class KafkaSink(Sink):
    """Writes to a topic that is there already.

    Args:
        servers: ``host:port,host:port``.
        topic: its name.
        value: a function of the record, or a column, that gives the message: bytes, text, or None; without it the record is that.
        key: the same for the message's key, by which it finds its partition; without it messages are spread.
        transaction_s: the longest time that the broker lets a transaction take.
        on_roll_back: what happens when the job resumes from a snapshot before the last committed one.
        options: settings of librdkafka, such as those of security.

    The result is the number of messages of the last snapshot. A consumer sees what is committed with ``isolation.level=read_committed``.
    """

    commits = True
    where = "write_kafka"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        value: Callable[[Any], Any] | str | None = None,
        key: Callable[[Any], Any] | str | None = None,
        transaction_s: float = 60.0,
        on_roll_back: OnRollBack = "refuse",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        client_library(self.where)
        self._settings = checked_settings(servers, options, _OWNED, self.where)
        self.topic = arguments.text(topic, "write_kafka: topic", error=ConfigError)
        self.value = ValueSelector.of(value, "write_kafka (value)").row_value() if value is not None else None
        self.key = ValueSelector.of(key, "write_kafka (key)").row_value() if key is not None else None
        self._transaction_ms = int(1000 * arguments.number(transaction_s, "write_kafka: transaction_s", error=ConfigError))
        if on_roll_back not in ("refuse", "repeat"):
            raise ConfigError(f"write_kafka: on_roll_back={on_roll_back!r}: give 'refuse' or 'repeat'")
        self._on_roll_back = on_roll_back
        self._id = f"rayad-{uuid.uuid4().hex}"
        self._first_valid: int | None = None
        self._producer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producer": None}

    def check(self) -> None:
        """The topic is there."""
        library = client_library(self.where)
        partitions(library.admin.AdminClient(quiet(self._settings)), self.topic, self.where)

    def identity(self) -> str:
        return self._id

    def adopt(self, identity: str) -> None:
        self._id, self._producer = identity, None

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return KafkaWriter(self)

    def roll_back(self, last: int, first_new: int) -> None:
        """Refused where a later snapshot is committed, or passed over (``on_roll_back``); ``commit(last, ...)`` keeps what is void."""
        self._producer = None
        committed, _ = self._committed()
        if committed > last and self._on_roll_back == "refuse":
            raise ConfigError(
                f"write_kafka: the job resumes from snapshot {last}, but topic {self.topic!r} has what snapshot {committed} committed, and "
                "a transaction cannot be taken back: resume from the newest snapshot, write to another topic, or give "
                "on_roll_back='repeat': consumers then see those records twice"
            )
        self._first_valid = first_new

    def commit(self, snapshot: int, staged: Sequence[Any]) -> int:
        """Produce what is staged in one transaction. Raises DataflowError where the snapshot is void."""
        tables = [pa.ipc.open_stream(one).read_all() for one in staged if one]
        library = client_library(self.where)
        for attempt in range(_ATTEMPTS):
            committed, first_valid = self._committed()
            is_done = snapshot <= committed
            if not is_done and snapshot < first_valid:
                raise DataflowError(
                    f"write_kafka: snapshot {snapshot} is void: the job has resumed from an earlier one meanwhile; this coordinator was "
                    "taken for dead and must end"
                )
            if is_done and self._first_valid in (None, first_valid):
                break
            try:
                self._transact([] if is_done else tables, max(snapshot, committed), max(first_valid, self._first_valid or 0))
                break
            except library.KafkaException as error:
                self._producer = None  # fenced, perhaps by one that was taken for dead: what is committed says how to go on
                if attempt == _ATTEMPTS - 1:
                    what = f"write_kafka: snapshot {snapshot} could not be committed to {self.topic!r}"
                    raise DataflowError(f"{what}: {told(error)}") from error
        self._first_valid = None
        return sum(table.num_rows for table in tables)

    def publish(self, staged: Sequence[Any]) -> int:
        """Everything in one transaction, for a run that keeps no snapshots."""
        return self.commit(1, staged)

    # -- transactions ----------------------------------------------------------------------------------
    def _transact(self, tables: list[pa.Table], number: int, first_valid: int) -> None:
        library = client_library(self.where)
        if self._producer is None:
            ours = {"transactional.id": self._id, "transaction.timeout.ms": self._transaction_ms}
            self._producer = library.Producer(quiet({**self._settings, **ours}))
            self._producer.init_transactions(ANSWER_S)
        producer = self._producer
        producer.begin_transaction()
        try:
            for table in tables:
                for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                    while True:
                        try:
                            producer.produce(self.topic, value=value, key=key)
                            break
                        except BufferError:  # the client's queue is full
                            producer.poll(0.05)
                producer.poll(0)
            place = library.TopicPartition(self.topic, 0, first_valid << _NUMBER_BITS | number)
            producer.send_offsets_to_transaction([place], self._group().consumer_group_metadata(), ANSWER_S)
            producer.commit_transaction(ANSWER_S)
        except library.KafkaException:
            self._abort(producer)
            raise

    def _abort(self, producer: Any) -> None:
        try:
            producer.abort_transaction(ANSWER_S)
        except client_library(self.where).KafkaException:
            pass  # fenced: there is nothing of ours to abort

    def _group(self) -> Any:
        ours = {"group.id": self._id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        return client_library(self.where).Consumer(quiet({**self._settings, **ours}))

    def _committed(self) -> tuple[int, int]:
        """The newest snapshot in the topic, and the least number that a new one may have; 0 for none."""
        library = client_library(self.where)
        group = self._group()
        try:
            (place,) = group.committed([library.TopicPartition(self.topic, 0)], timeout=ANSWER_S)
        except library.KafkaException as error:
            raise DataflowError(f"write_kafka: no broker told what is committed to {self.topic!r}: {told(error)}") from error
        finally:
            group.close()
        return (place.offset & (1 << _NUMBER_BITS) - 1, place.offset >> _NUMBER_BITS) if place.offset > 0 else (0, 0)
