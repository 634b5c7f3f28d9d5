"""A Kafka topic as an endless source; its offsets are in the snapshots.

A part is a *lane*: the partitions whose number leaves the same remainder. The number of lanes is fixed when a job begins, so partitions
that are added while it runs, or between two runs, belong to a lane already, and are found by asking from time to time. A replica reads
its lanes side by side, lowest epoch first, and so does a lane with its partitions.

**Epochs** are intervals of ``epoch_s`` seconds of the records' own timestamps (broker or producer, as the topic says), counted from 1970.
Within a partition they do not go back: a record that is older than one before it is in the epoch of that one. A partition that has been
silent for ``idle_s`` holds nobody up: its lane follows the clock. What comes then, and is older, is in the epoch that the lane has reached.
Timestamps more than ``ahead_s`` ahead of the clock count as no further ahead: one wrong date would end the epochs of its partition.
For time as it is in the data use event-time windows.
"""

from __future__ import annotations

import time as clock
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from rayad.dataflow.source import Source, SourceBatch, SourcePart
from rayad.integrations.kafka.client import ANSWER_S, checked_settings, client_library, partitions, quiet, told
from rayad.progress import ConfigError, DataflowError, arguments

Start = Literal["earliest", "latest"]
LANES = 16
FETCH = 1000
"""So many messages are taken from the client at once."""
_OWNED = ("group.id", "enable.auto.commit", "isolation.level", "auto.offset.reset", "enable.partition.eof", "enable.auto.offset.store")
_LOST = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_FINAL = ("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "_AUTHENTICATION")
"""Errors after which trying again does not help, by librdkafka's names."""
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
"""The columns of what is read; a message without a key, or without a value, has null there."""


class Lane(NamedTuple):
    """A part: the partitions ``number, number + lanes, ...``."""

    number: int
    lanes: int


class KafkaSource(Source):
    """Reads a topic from its beginning or its end, for ever; batches have the columns of :data:`SCHEMA`.

    Args:
        servers: ``host:port,host:port``.
        topic: its name.
        start: of partitions that no snapshot tells about: "earliest", or "latest" for those that are there when the job begins.
        epoch_s: length of an epoch.
        idle_s: a partition that is silent for so long does not hold up the epochs of others.
        ahead_s: how far ahead of the clock a timestamp may be.
        parts: lanes, the largest number of replicas that can read side by side. A run that resumes needs the same.
        batch_rows: the most records of a batch.
        discover_s: how often new partitions are asked for.
        options: settings of librdkafka, such as those of security.
    """

    interleave = True
    same_epochs = False
    where = "from_kafka"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        start: Start = "earliest",
        epoch_s: float = 1.0,
        idle_s: float = 5.0,
        ahead_s: float = 60.0,
        parts: int = LANES,
        batch_rows: int = 4096,
        discover_s: float = 30.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        client_library(self.where)
        self.settings = checked_settings(servers, options, _OWNED, self.where)
        self.topic = arguments.text(topic, "from_kafka: topic", error=ConfigError)
        if start not in ("earliest", "latest"):
            raise ConfigError(f"from_kafka: start={start!r}: give 'earliest' or 'latest'")
        self.start = start
        self.epoch_ms = max(1, round(1000 * arguments.number(epoch_s, "from_kafka: epoch_s", error=ConfigError)))
        self.idle_s = arguments.number(idle_s, "from_kafka: idle_s", error=ConfigError)
        self.ahead_s = arguments.number(ahead_s, "from_kafka: ahead_s", zero=True, error=ConfigError)
        self.lanes = arguments.whole(parts, "from_kafka: parts", least=1, error=ConfigError)
        self.batch_rows = arguments.whole(batch_rows, "from_kafka: batch_rows", least=1, error=ConfigError)
        self.discover_s = arguments.number(discover_s, "from_kafka: discover_s", error=ConfigError)

    def list_parts(self) -> Sequence[Lane]:
        admin = client_library(self.where).admin.AdminClient(quiet(self.settings))
        partitions(admin, self.topic, self.where)  # refused here rather than in each replica
        return [Lane(number, self.lanes) for number in range(self.lanes)]

    def build_part(self, part: Lane, resume: Any | None) -> SourcePart:
        return LanePart(self, part, resume)

    def fingerprint(self, parts: Sequence[Any]) -> dict[str, Any]:
        return {"topic": self.topic, "lanes": self.lanes, "epoch in ms": self.epoch_ms}


class _Partition:
    """What is known of one partition."""

    __slots__ = ("at_end", "epoch", "heard_s", "is_paused", "number", "offset", "waiting")

    def __init__(self, number: int, offset: int, epoch: int, now_s: float) -> None:
        self.number = number
        self.offset = offset  # of the next record to give
        self.epoch = epoch  # the largest so far
        self.waiting: deque[tuple[int, Any]] = deque()
        self.heard_s = now_s
        self.at_end = False
        self.is_paused = False


class LanePart(SourcePart):
    """The partitions of a lane, merged by epoch."""

    def __init__(self, source: KafkaSource, lane: Lane, resume: Any | None) -> None:
        self._source, self._lane = source, lane
        self._library = client_library(source.where)
        self._floor: int = resume["floor"] if resume is not None else 0
        now_s = clock.time()
        known = resume["partitions"] if resume is not None else {}
        self._partitions = {number: _Partition(number, offset, epoch, now_s) for number, (offset, epoch) in known.items()}
        self._is_resumed = resume is not None
        self._consumer: Any = None
        self._admin: Any = self._library.admin.AdminClient(quiet(source.settings))
        self._asked: Any = None
        self._waits = 0
        self._assign(list(self._partitions.values()))
        self._find(partitions(self._admin, source.topic, source.where), source.start)
        self._asked_s = now_s

    # -- partitions ------------------------------------------------------------------------------------
    def _find(self, numbers: list[int], start: Start) -> None:
        """Read those of this lane that are new, from ``start`` on, unless others were read before: then from their first record."""
        mine = [n for n in numbers if n % self._lane.lanes == self._lane.number and n not in self._partitions]
        if not mine:
            return
        begin = self._library.OFFSET_BEGINNING
        fresh = [_Partition(number, begin, self._floor, clock.time()) for number in mine]
        if start == "latest" and not self._is_resumed:
            wanted = [self._library.TopicPartition(self._source.topic, one.number) for one in fresh]
            spec = {place: self._library.admin.OffsetSpec.latest() for place in wanted}
            for place, answer in self._admin.list_offsets(spec, request_timeout=ANSWER_S).items():
                next(one for one in fresh if one.number == place.partition).offset = answer.result(ANSWER_S).offset
        self._partitions.update({one.number: one for one in fresh})
        self._assign(fresh)

    def _assign(self, fresh: list[_Partition]) -> None:
        if not fresh:
            return
        if self._consumer is None:
            settings = {**self._source.settings, "auto.offset.reset": "error", "enable.auto.commit": False, "group.id": "rayad"}
            settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
            self._consumer = self._library.Consumer(quiet(settings))
        self._consumer.incremental_assign([self._library.TopicPartition(self._source.topic, one.number, one.offset) for one in fresh])

    def _look_for_partitions(self, now_s: float) -> None:
        """Asked in a thread of the client, so that reading goes on meanwhile."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            if asked.exception() is None:
                self._find([one.id for one in asked.result(0).partitions], "earliest")
        elif self._asked is None and now_s - self._asked_s >= self._source.discover_s:
            self._asked_s = now_s
            topics = self._library.TopicCollection([self._source.topic])
            self._asked = self._admin.describe_topics(topics, request_timeout=ANSWER_S)[self._source.topic]

    # -- reading ---------------------------------------------------------------------------------------
    def next_batch(self) -> SourceBatch | None:
        now_s = clock.time()
        self._look_for_partitions(now_s)
        if self._consumer is not None and (len(self._partitions) > 1 or self._waits < self._source.batch_rows):
            self._fetch(now_s)
        chosen = self._next_partition(now_s)
        if chosen is None:
            self._floor = max(self._floor, self._reached(now_s))
            return SourceBatch(self._floor, [])
        epoch = max(chosen.waiting[0][0], self._floor)
        self._floor = epoch
        taken: list[Any] = []
        while chosen.waiting and len(taken) < self._source.batch_rows and max(chosen.waiting[0][0], epoch) == epoch:
            taken.append(chosen.waiting.popleft()[1])
        self._waits -= len(taken)
        chosen.offset = taken[-1].offset() + 1
        if chosen.is_paused and len(chosen.waiting) < self._source.batch_rows // 2:
            self._consumer.resume([self._place(chosen)])
            chosen.is_paused = False
        return SourceBatch(epoch, _as_batch(taken))

    def _fetch(self, now_s: float) -> None:
        ahead_ms = int(1000 * (now_s + self._source.ahead_s))
        for message in self._consumer.consume(FETCH, 0.0):
            error = message.error()
            if error is not None:
                self.look_at(error, message.partition())
                continue
            reading = self._partitions[message.partition()]
            stamp = message.timestamp()[1]
            epoch = max(reading.epoch, min(stamp, ahead_ms) // self._source.epoch_ms, 0)
            reading.epoch, reading.heard_s, reading.at_end = epoch, now_s, False
            reading.waiting.append((epoch, message))
            self._waits += 1
        if len(self._partitions) > 1:
            self._pause_those_ahead()

    def _pause_those_ahead(self) -> None:
        """Of a partition that waits for another one no more is fetched than a batch and what has been fetched in advance."""
        for reading in self._partitions.values():
            if len(reading.waiting) >= self._source.batch_rows and not reading.is_paused:
                self._consumer.pause([self._place(reading)])
                reading.is_paused = True

    def _place(self, reading: _Partition) -> Any:
        return self._library.TopicPartition(self._source.topic, reading.number)

    def look_at(self, error: Any, number: int) -> None:
        """What the client says of a partition. Raises DataflowError where trying again does not help."""
        name = error.name()
        if name == "_PARTITION_EOF":
            self._partitions[number].at_end = True
            return
        place = f"partition {number} of topic {self._source.topic!r}"
        if name in _LOST:
            reading = self._partitions.get(number)
            at = reading.offset if reading is not None else "?"
            raise DataflowError(
                f"from_kafka: {place} does not have offset {at} any more: records were deleted (retention) before they were read, or the "
                "topic was made anew; begin afresh (resume='never'), or keep records for longer"
            )
        if error.fatal() or name in _FINAL:
            raise DataflowError(f"from_kafka: {place} cannot be read: {told(error)}")

    def _next_partition(self, now_s: float) -> _Partition | None:
        """The one whose next record has the lowest epoch, unless one from which nothing has come yet may still give a lower one."""
        ready = [reading for reading in self._partitions.values() if reading.waiting]
        if not ready:
            return None
        first = min(ready, key=lambda reading: (reading.waiting[0][0], reading.number))
        epoch = max(first.waiting[0][0], self._floor)
        for reading in self._partitions.values():
            if not reading.waiting and max(reading.epoch, self._floor) < epoch and not self._is_idle(reading, now_s):
                return None
        return first

    def _reached(self, now_s: float) -> int:
        """The epoch below which nothing may come, when nothing waits."""
        by_clock = int(1000 * (now_s - self._source.idle_s)) // self._source.epoch_ms
        return min((by_clock if self._is_idle(one, now_s) else one.epoch for one in self._partitions.values()), default=by_clock)

    def _is_idle(self, reading: _Partition, now_s: float) -> bool:
        return reading.at_end and not reading.waiting and now_s - reading.heard_s >= self._source.idle_s

    def epoch_floor(self) -> int:
        return self._floor

    def offset(self) -> Any:
        return {"floor": self._floor, "partitions": {one.number: (one.offset, self._epoch_given(one)) for one in self._partitions.values()}}

    def _epoch_given(self, reading: _Partition) -> int:
        """The largest epoch of what was given, not of what was fetched."""
        return min(reading.epoch, reading.waiting[0][0]) if reading.waiting else reading.epoch

    def backlog(self) -> int | None:
        if self._consumer is None:
            return 0
        behind = 0
        for reading in self._partitions.values():
            _, end = self._consumer.get_watermark_offsets(self._place(reading), cached=True)
            if end >= 0 and reading.offset >= 0:
                behind += max(0, end - reading.offset)
        return behind

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _as_batch(messages: list[Any]) -> pa.RecordBatch:
    columns = [
        pa.array([one.key() for one in messages], pa.binary()),
        pa.array([one.value() for one in messages], pa.binary()),
        pa.array([one.partition() for one in messages], pa.int32()),
        pa.array([one.offset() for one in messages], pa.int64()),
        pa.array([one.timestamp()[1] for one in messages], pa.timestamp("ms", tz="UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
