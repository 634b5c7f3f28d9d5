"""A Kafka topic as a sink: each snapshot is one transaction, so consumers in read-committed mode see each record once.

The messages that replicas write go into the snapshots. When a snapshot is complete the coordinator produces its messages in a transaction,
under an id that only this output uses. The same transaction commits the snapshot's number as the offset of a consumer group of that name. A
repeated commit finds its number there and does nothing. The smallest valid number is in the same offset (not in the offset's metadata,
which not all brokers keep).

**Fence, then read, then write.** A coordinator that was taken for dead may still run. So before its first commit a coordinator takes the id
(``init_transactions``), which ends every transaction of others under it and refuses their next one. Only then does it read what is
committed. What it has read stays true until its own transaction ends or fails. A job that resumes first writes which snapshots are void.

A committed transaction cannot be taken back: a job that resumes from a snapshot older than the newest committed one is refused, or
writes the later records again (``on_roll_back="repeat"``).
"""

from __future__ import annotations

import logging
import time as clock
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import keyed_columns, to_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.selectors import ValueSelector, require_columns
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.kafka.client import (
    ANSWER_S,
    Heard,
    checked_settings,
    client_library,
    inner_of,
    is_fenced,
    is_final,
    partitions,
    settings_of,
    told,
)
from rayad.progress import ConfigError, DataflowError, Timestamp, arguments, show

OnRollBack = Literal["refuse", "repeat"]
MESSAGE_BYTES = 1_000_000
"""The largest size of key and value together that librdkafka sends, unless ``message.max.bytes`` is set."""
PAUSE_S = 0.05
PAUSE_S_MAX = 2.0
ABORT_S = 5.0
_OWNED = (
    "transactional.id",
    "enable.idempotence",
    "acks",
    "group.id",
    "transaction.timeout.ms",
    "on_delivery",
    "dr_cb",
    "delivery.report.only.error",
)
_NUMBER_BITS = 32
STAGED = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_log = logging.getLogger("rayad.kafka")


class KafkaWriter(SinkWriter):
    """Keeps a replica's messages until the next snapshot."""

    schema: ClassVar[pa.Schema] = STAGED
    """Of what is staged."""

    def __init__(self, sink: KafkaSink) -> None:
        self.sink = sink
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, time: Timestamp, batch: Any) -> None:
        sink = self.sink
        if isinstance(batch, pa.RecordBatch) and sink.columns is not None and keyed_columns(batch.schema) is None:
            key, value = sink.columns
            require_columns(batch, tuple(name for name in (value, key) if name is not None))
            values = _column(batch, value, "value")
            keys = _column(batch, key, "key") if key is not None else pa.nulls(len(batch), pa.binary())
        else:
            rows = to_rows(batch)
            values = as_bytes(mapped(sink.value, rows), "value") if sink.value else as_bytes(rows, "record")
            keys = as_bytes(mapped(sink.key, rows), "key") if sink.key else pa.nulls(len(rows), pa.binary())
        self.keep(pa.RecordBatch.from_arrays([keys, values], schema=STAGED), time)

    def keep(self, messages: pa.RecordBatch, time: Timestamp) -> None:
        """Keep messages until the next snapshot. Raises DataflowError for one that is too large."""
        if messages.nbytes > self.sink.message_bytes:  # else none can be too large
            self._check_sizes(messages)
        self._batches.append(self.staged(messages, time))
        self._bytes += self._batches[-1].nbytes

    def staged(self, messages: pa.RecordBatch, time: Timestamp) -> pa.RecordBatch:
        """What is staged of messages."""
        return messages

    def kept_bytes(self) -> int:
        return self._bytes

    def _check_sizes(self, staged: pa.RecordBatch) -> None:
        key, value = (pc.fill_null(pc.binary_length(column), 0) for column in staged.columns)
        largest = pc.max(pc.add(key, value)).as_py() or 0
        most = self.sink.message_bytes
        if largest > most:
            raise DataflowError(
                f"write_kafka: a message of {largest:,} bytes, key and value together, is larger than message.max.bytes, {most:,}: "
                "raise it in options={'message.max.bytes': ...}, and max.message.bytes of the topic, or write smaller records"
            )

    def stage(self) -> bytes:
        """The messages since the last call as an Arrow IPC stream; nothing when there were none."""
        if not self._batches:
            return b""
        batches, self._batches, self._bytes = self._batches, [], 0
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self.schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return bytes(out.getvalue())


def batches_of(staged: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """The messages in what is staged, one value in memory at a time."""
    for one in staged:
        if one:
            yield from pa.ipc.open_stream(one)


def _column(batch: pa.RecordBatch, name: str, what: str) -> pa.Array:
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (
        pa.types.is_null(column.type) or pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type) or _is_text(column.type)
    ):
        raise DataflowError(
            f"write_kafka: the {what} is column {name!r} of type {column.type}: a message is bytes or text; give "
            f"{what}=a function of the record, such as json.dumps"
        )
    return column.cast(pa.binary())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_bytes(values: Sequence[Any], what: str) -> pa.Array:
    for value in values:
        if value is not None and not isinstance(value, (bytes, str)):
            raise DataflowError(
                f"write_kafka: the {what} is {show(value, 60)}, a {type(value).__name__}: a message is bytes or text, or None; give "
                f"{'key' if what == 'key' else 'value'}=a function of the record, such as json.dumps"
            )
    return pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())


class KafkaSink(Sink):
    """Writes to an existing topic. The result is the number of messages of the last snapshot.

    Consumers see what is committed with ``isolation.level=read_committed``.

    Args:
        servers: ``host:port,host:port``.
        topic: its name.
        value: a function of the record, or a column, that gives the message: bytes, text, or None; default: the record is the message.
        key: a function or column that gives the message's key, which determines its partition; default: messages are spread over the
            partitions.
        transaction_s: how long the broker lets a transaction last; staged records are read from the job's store during it.
        wait_s: how long a commit retries while no broker answers; then it fails, and the job restarts as FailureConfig says.
        on_roll_back: what happens when the job resumes from a snapshot before the last committed one.
        options: settings of librdkafka, such as those of security; ``partitioner`` is "consistent_random", Java's "murmur2_random".
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
        wait_s: float = 120.0,
        on_roll_back: OnRollBack = "refuse",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        client_library(self.where)
        self._settings = checked_settings(servers, options, _OWNED, self.where)
        self.topic = arguments.text(topic, "write_kafka: topic", error=ConfigError)
        self.value = ValueSelector.of(value, "write_kafka (value)").row_value() if value is not None else None
        self.key = ValueSelector.of(key, "write_kafka (key)").row_value() if key is not None else None
        self.columns = (key, value) if isinstance(value, str) and (key is None or isinstance(key, str)) else None
        self.message_bytes = int(self._settings.get("message.max.bytes", MESSAGE_BYTES))
        self._transaction_s = arguments.number(transaction_s, "write_kafka: transaction_s", error=ConfigError)
        self._wait_s = arguments.number(wait_s, "write_kafka: wait_s", zero=True, error=ConfigError)
        if on_roll_back not in ("refuse", "repeat"):
            raise ConfigError(f"write_kafka: on_roll_back={on_roll_back!r}: give 'refuse' or 'repeat'")
        self._on_roll_back = on_roll_back
        self._id = f"rayad-{uuid.uuid4().hex}"
        self._resumed_from: int | None = None
        self._producer: Any = None
        self._known: tuple[int, int] | None = None  # what is committed; true while nobody else takes the id
        self._group_metadata: Any = None  # of the group of the offset; it has no members
        self._heard = Heard()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producer": None, "_known": None, "_group_metadata": None, "_heard": Heard()}

    def check(self) -> None:
        """Raise ConfigError if the topic does not exist."""
        library = client_library(self.where)
        partitions(library.admin.AdminClient(settings_of(self._settings, self._heard)), self._heard, self.topic, self.where)

    def identity(self) -> str:
        return self._id

    def adopt(self, identity: str) -> None:
        self._id = identity
        self._let_go()

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return KafkaWriter(self)

    def roll_back(self, last: int, first_new: int) -> None:
        """Take over the transactional id, then record which snapshots are void. Refused if one of them is committed (``on_roll_back``)."""

        def mark_void() -> None:
            committed, first_valid = self._fenced()
            if committed > last and self._on_roll_back == "refuse":
                raise ConfigError(
                    f"write_kafka: the job resumes from snapshot {last}, but topic {self.topic!r} has what snapshot {committed} committed, "
                    "and a transaction cannot be taken back: resume from the newest snapshot, write to another topic, or give "
                    "on_roll_back='repeat': consumers then see those records twice"
                )
            if first_valid < first_new:
                self._transact([], committed, first_new)

        self._let_go()
        self._persist(mark_void, f"what came after snapshot {last} could not be made void in {self.topic!r}")
        self._resumed_from = last

    def commit(self, snapshot: int, staged: Sequence[Any]) -> int:
        """Produce the staged records in one transaction. Raises DataflowError if the snapshot is void."""

        messages = 0

        def produce() -> None:
            nonlocal messages
            committed, first_valid = self._fenced()
            if snapshot <= committed:
                messages = sum(batch.num_rows for batch in self.messages(staged))
                return
            if snapshot < first_valid and snapshot != self._resumed_from:
                raise DataflowError(
                    f"write_kafka: snapshot {snapshot} is void: the job has resumed from an earlier one meanwhile; this coordinator was "
                    "taken for dead and must end"
                )
            messages = self._transact(staged, snapshot, first_valid)

        self._persist(produce, f"snapshot {snapshot} could not be committed to {self.topic!r}")
        return messages

    def publish(self, staged: Sequence[Any]) -> int:
        """Write everything in one transaction, for a run that keeps no snapshots."""
        return self.commit(1, staged)

    def messages(self, staged: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Keys and values of the messages that what is staged comes to."""
        return batches_of(staged)

    # -- transactions ----------------------------------------------------------------------------------
    def _persist(self, act: Callable[[], None], what: str) -> None:
        """Call ``act``; repeat it while no broker answers, or if another coordinator took the id meanwhile. Raises DataflowError."""
        library = client_library(self.where)
        deadline_s, pause_s = clock.monotonic() + self._wait_s, PAUSE_S
        while True:
            try:
                act()
                return
            except library.KafkaException as error:
                if is_fenced(error):  # perhaps by a coordinator that was taken for dead
                    self._heard.take()
                    why = (
                        f"fenced: another coordinator has taken this output's transactional id {self._id!r} ({told(error)}); only one may "
                        "run: does the job run twice, or does another program use the id?"
                    )
                else:
                    self._heard.raise_final(f"write_kafka: {what}")
                    why = f"{told(error)}{self._heard.told()}"
                self._let_go()  # read again what is committed
                if is_final(error) or clock.monotonic() + pause_s > deadline_s:
                    raise DataflowError(f"write_kafka: {what}: {why}") from error
                _log.warning("write_kafka: %s yet: %s; trying again", what, why)
                clock.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _fenced(self) -> tuple[int, int]:
        """The newest snapshot in the topic, and the smallest number that a new one may have. Nobody else can change them from now on."""
        if self._producer is None:
            producer = self._made()
            producer.init_transactions(ANSWER_S)
            self._producer = producer
        if self._known is None:
            self._known = self._committed()
        return self._known

    def _made(self) -> Any:
        ours = {"transactional.id": self._id, "transaction.timeout.ms": int(1000 * self._transaction_s)}
        failures = {"on_delivery": self._heard.undelivered, "delivery.report.only.error": True}
        return client_library(self.where).Producer(settings_of({**self._settings, **ours, **failures}, self._heard))

    def _let_go(self) -> None:
        self._producer = self._known = None

    def _transact(self, staged: Sequence[bytes], number: int, first_valid: int) -> int:
        """All of it in one transaction; gives how many messages. Whatever interrupts it, it is aborted, and the next one can begin."""
        library, producer = client_library(self.where), self._producer
        self._known = None
        messages = 0
        producer.begin_transaction()
        try:
            for batch in self.messages(staged):
                self._produce(producer, batch)
                messages += batch.num_rows
            place = library.TopicPartition(self.topic, 0, first_valid << _NUMBER_BITS | number)
            producer.send_offsets_to_transaction([place], self._group_metadata, ANSWER_S)
            producer.commit_transaction(self._transaction_s)
        except BaseException as error:  # also one of the store, or an interrupt
            self._abort(producer, error)
            raise
        self._known = (number, first_valid)
        return messages

    def _produce(self, producer: Any, batch: pa.RecordBatch) -> None:
        """One by one: when the client's queue is full, ``produce_batch`` skips messages and sends later ones."""
        produce, topic = producer.produce, self.topic
        keys, values = (column.to_pylist() for column in batch.columns)
        for key, value in zip(keys, values, strict=True):
            try:
                produce(topic, value, key)
            except BufferError:  # the client's queue is full
                self._produce_slowly(producer, key, value)
        producer.poll(0)

    def _produce_slowly(self, producer: Any, key: bytes | None, value: bytes | None) -> None:
        while True:
            producer.poll(0.05)
            try:
                producer.produce(self.topic, value, key)
                return
            except BufferError:
                continue

    def _abort(self, producer: Any, error: Any) -> None:
        """Abort now, so that readers need not wait; a broker that cannot be reached aborts after ``transaction_s``."""
        library = client_library(self.where)
        if isinstance(error, library.KafkaException) and inner_of(error).fatal():
            return  # fenced: there is nothing of ours to abort
        try:
            producer.abort_transaction(ABORT_S)
        except library.KafkaException as also:
            self._let_go()  # the next producer ends it when it takes the id
            _log.info("write_kafka: a transaction could not be aborted, the next one ends it: %s", told(also))

    def _group(self) -> Any:
        ours = {"group.id": self._id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        return client_library(self.where).Consumer(settings_of({**self._settings, **ours}, self._heard))

    def _committed(self) -> tuple[int, int]:
        library = client_library(self.where)
        group = self._group()
        try:
            self._group_metadata = group.consumer_group_metadata()
            (place,) = group.committed([library.TopicPartition(self.topic, 0)], timeout=ANSWER_S)
        finally:
            group.close()
        if place.error is not None:
            raise library.KafkaException(place.error)
        return (place.offset & (1 << _NUMBER_BITS) - 1, place.offset >> _NUMBER_BITS) if place.offset > 0 else (0, 0)
