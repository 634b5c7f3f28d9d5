"""A Kafka topic as a source; its offsets are in the snapshots.

A part is a *lane*: the partitions whose numbers have the same remainder when divided by the number of lanes. That number is fixed when a
job begins, so a partition that is added while it runs, or between two runs, has a lane already; new partitions are found by asking the
brokers regularly. A replica reads its lanes side by side, lowest epoch first, and a lane reads its partitions in the same way.

**Epochs** are intervals of ``epoch_s`` seconds of the records' own timestamps (broker or producer, as the topic says), counted from 1970.
Within a partition they do not go back: a record with an older timestamp gets the epoch of the record before it. A partition that has been
silent for ``idle_s`` holds no epoch up: its lane follows the clock. An older record that comes then gets the epoch that the lane has
reached. While no broker can be reached no partition counts as silent, and epochs stand still. A timestamp more than ``ahead_s`` ahead of
the clock counts as ``ahead_s`` ahead: else one wrong date would end the epochs of its partition. For the time inside the data use
event-time windows.

**Nothing is skipped.** The first snapshot has the number of the offset at which reading begins, not "the beginning", which moves with
retention. Offsets that the broker no longer has (retention, a truncated log) end the job, and so does a topic that was deleted and created
again under its name. That is the only rule: ``auto.offset.reset`` in ``options`` is refused, since each of its values skips or repeats
records. Offsets that compaction or aborted transactions have left out are no loss: reading continues with the next one there is.

Work for each record is done in C: the messages of one call become columns at once, and are cut where their epoch changes.
"""

from __future__ import annotations

import time as clock
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from rayad.dataflow.source import Source, SourceBatch, SourcePart
from rayad.integrations.kafka.asking import Asking
from rayad.integrations.kafka.client import (
    Heard,
    checked_settings,
    client_library,
    is_final,
    settings_of,
    told,
)
from rayad.progress import ConfigError, DataflowError, arguments

Start = Literal["earliest", "latest"]
LANES = 16
_OWNED = ("group.id", "enable.auto.commit", "isolation.level", "auto.offset.reset", "enable.partition.eof", "enable.auto.offset.store")
_LOST = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
"""The columns of what is read; a message without a key, without a value, or without a timestamp has null there."""
HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""One more column, with ``headers=True``: in the order in which they were sent, null where there are none."""


class Lane(NamedTuple):
    """A part: the partitions ``number, number + lanes, ...``; those of a bounded read with their ``ends``."""

    number: int
    lanes: int
    ends: tuple[tuple[int, int], ...] | None = None


class KafkaSource(Source):
    """Reads a topic, without end or up to its present end; batches have the columns of :data:`SCHEMA`.

    Args:
        servers: ``host:port,host:port``.
        topic: its name.
        start: where to begin in partitions that are in no snapshot: "earliest", or "latest" for those that exist when the job starts.
        stop: "latest" reads what is committed when the run begins, and ends; None never ends.
        epoch_s: length of an epoch in seconds.
        idle_s: a partition that has been silent for so long does not hold back the epochs of others.
        ahead_s: how far ahead of the clock a timestamp may be.
        parts: the largest number of replicas that can read side by side. A run that resumes needs the same number.
        batch_rows: the most records of a batch.
        discover_s: seconds between two questions for new partitions.
        wait_s: how long brokers may be unreachable while the job runs: it waits, with a warning in the log, before it fails.
        headers: whether to add a column of headers, :data:`HEADERS`.
        options: settings of librdkafka, such as those of security.
    """

    blocks = False
    interleave = True
    same_epochs = False
    where = "from_kafka"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        start: Start = "earliest",
        stop: Literal["latest"] | None = None,
        epoch_s: float = 1.0,
        idle_s: float = 5.0,
        ahead_s: float = 60.0,
        parts: int = LANES,
        batch_rows: int = 4096,
        discover_s: float = 30.0,
        wait_s: float = 600.0,
        headers: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        client_library(self.where)
        self.settings = checked_settings(servers, options, _OWNED, self.where)
        self.topic = arguments.text(topic, "from_kafka: topic", error=ConfigError)
        if start not in ("earliest", "latest"):
            raise ConfigError(f"from_kafka: start={start!r}: give 'earliest' or 'latest'")
        if stop not in (None, "latest"):
            raise ConfigError(f"from_kafka: stop={stop!r}: give 'latest', or None to read for ever")
        if start == stop:
            raise ConfigError("from_kafka: start='latest' and stop='latest' leave nothing to read: give one of them")
        self.start, self.stop = start, stop
        self.epoch_ms = max(1, round(1000 * arguments.number(epoch_s, "from_kafka: epoch_s", error=ConfigError)))
        self.idle_s = arguments.number(idle_s, "from_kafka: idle_s", error=ConfigError)
        self.ahead_s = arguments.number(ahead_s, "from_kafka: ahead_s", zero=True, error=ConfigError)
        self.lanes = arguments.whole(parts, "from_kafka: parts", least=1, error=ConfigError)
        self.batch_rows = arguments.whole(batch_rows, "from_kafka: batch_rows", least=1, error=ConfigError)
        self.discover_s = arguments.number(discover_s, "from_kafka: discover_s", error=ConfigError)
        self.wait_s = arguments.number(wait_s, "from_kafka: wait_s", error=ConfigError)
        self.headers = bool(headers)
        self._asking: Asking | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asking": None}

    @property
    def schema(self) -> pa.Schema:
        """The columns of its batches: :data:`SCHEMA`, and with ``headers`` a column of these."""
        return SCHEMA.append(HEADERS) if self.headers else SCHEMA

    def list_parts(self) -> Sequence[Lane]:
        asking = Asking(self)
        numbers = asking.partitions_now()  # refused here rather than in each replica
        ends: dict[int, int] | None = None
        if self.stop is not None:
            ends = asking.edges_now(numbers, latest=True)
        return [Lane(number, self.lanes, _of_lane(ends, number, self.lanes)) for number in range(self.lanes)]

    def build_part(self, part: Lane, resume: Any | None) -> SourcePart:
        return LanePart(self, part, resume)

    def fingerprint(self, parts: Sequence[Any]) -> dict[str, Any]:
        return {"topic": self.topic, "lanes": self.lanes, "epoch in ms": self.epoch_ms}

    def asking(self) -> Asking:
        """The client for questions about the topic, one for all lanes of this process."""
        if self._asking is None:
            self._asking = Asking(self)
        return self._asking

    def let_go(self) -> None:
        """A lane is closed: the last one ends the client."""
        if self._asking is not None:
            self._asking.lanes -= 1
            if not self._asking.lanes:
                self._asking = None


def _of_lane(ends: Mapping[int, int] | None, number: int, lanes: int) -> tuple[tuple[int, int], ...] | None:
    return None if ends is None else tuple((one, end) for one, end in sorted(ends.items()) if one % lanes == number)


class _Partition:
    """The state of reading one partition."""

    __slots__ = ("at_end", "end", "epoch", "heard_s", "is_paused", "number", "offset", "rows", "waiting")

    def __init__(self, number: int, offset: int, epoch: int, now_s: float, end: int | None) -> None:
        self.number = number
        self.offset = offset  # of the next record to give
        self.epoch = epoch  # the largest so far
        self.waiting: deque[tuple[int, pa.RecordBatch]] = deque()  # each of one epoch
        self.rows = 0  # in ``waiting``
        self.heard_s = now_s
        self.at_end = False
        self.end = end  # where a bounded read ends
        self.is_paused = False

    @property
    def is_over(self) -> bool:
        """Whether a bounded read has fetched all of it."""
        return self.end is not None and self.at_end


class LanePart(SourcePart):
    """The partitions of a lane, merged by epoch."""

    def __init__(self, source: KafkaSource, lane: Lane, resume: Any | None) -> None:
        self._source, self._lane = source, lane
        self._library = client_library(source.where)
        self._schema = source.schema
        self._ends = None if lane.ends is None else dict(lane.ends)
        self._asking = source.asking()
        self._asking.lanes += 1
        self._seen = self._asking.answered
        self._was_away = False
        self._heard = Heard()
        self._consumer: Any = None
        self._is_closed = False
        self._beginnings: dict[int, Any] = {}
        self._partitions: dict[int, _Partition] = {}
        self._topic_id: str | None = None
        self._floor = 0
        try:
            if resume is None:
                self._begin()
            else:
                self._floor, self._topic_id = resume["floor"], resume.get("topic")
                self._assign({number: (offset, epoch) for number, (offset, epoch) in resume["partitions"].items()})
                if self._ends is not None:
                    self._begin()
        except BaseException:
            self.close()
            raise

    # -- partitions ------------------------------------------------------------------------------------
    def _begin(self) -> None:
        """Read the partitions that exist and are in no snapshot, from ``start``."""
        numbers = self._new(self._asking.partitions_now() if self._ends is None else list(self._ends))
        begins = self._asking.edges_now(numbers, latest=self._source.start == "latest") if numbers else {}
        self._assign({number: (begins[number], self._floor) for number in numbers})

    def _new(self, numbers: Sequence[int]) -> list[int]:
        mine = (n for n in numbers if n % self._lane.lanes == self._lane.number)
        return [n for n in mine if n not in self._partitions and n not in self._beginnings]

    def _assign(self, fresh: Mapping[int, tuple[int, int]]) -> None:
        """Read these partitions, each from its offset and epoch."""
        if not fresh:
            return
        if self._consumer is None:
            settings = {**self._source.settings, "auto.offset.reset": "error", "enable.auto.commit": False, "group.id": "rayad"}
            settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
            self._consumer = self._library.Consumer(settings_of(settings, self._heard))
        now_s = clock.time()
        for number, (offset, epoch) in fresh.items():
            end = None if self._ends is None else self._ends.get(number, offset)
            self._partitions[number] = reading = _Partition(number, offset, epoch, now_s, end)
            reading.at_end = end is not None and offset >= end
        topic = self._source.topic
        self._consumer.incremental_assign([self._library.TopicPartition(topic, number, offset) for number, (offset, _) in fresh.items()])

    def _look_around(self, now_s: float) -> None:
        """Look for new partitions, and for a topic that was created again."""
        asking = self._asking
        asking.look(now_s)
        if self._was_away and not asking.is_away:  # a broker answers again: messages that waited there get time to come
            for reading in self._partitions.values():
                reading.heard_s = now_s
        self._was_away = asking.is_away
        if self._seen != asking.answered and asking.known is not None:
            self._seen = asking.answered
            identity, numbers = asking.known
            if self._topic_id is not None and identity is not None and identity != self._topic_id:
                raise DataflowError(
                    f"from_kafka: topic {self._source.topic!r} has been deleted and created again (it was {self._topic_id}, now it is "
                    f"{identity}): offsets of the snapshots mean nothing there; begin afresh (resume='never')"
                )
            self._topic_id = identity
            if self._ends is None and (fresh := self._new(numbers)):
                self._beginnings |= asking.edges(fresh, latest=False)
        for number, answer in [(number, answer) for number, answer in self._beginnings.items() if answer.done()]:
            del self._beginnings[number]
            if answer.exception() is None:
                self._assign({number: (answer.result(0).offset, self._floor)})
            else:
                self._seen = -1  # asked again with the next answer

    # -- reading ---------------------------------------------------------------------------------------
    def next_batch(self) -> SourceBatch | None:
        now_s = clock.time()
        if self._ends is None or self._asking.is_away:
            self._look_around(now_s)
        if self._consumer is not None and not all(reading.waiting for reading in self._partitions.values()):
            self._fetch(now_s)
        chosen = self._next_partition(now_s)
        if chosen is None:
            if self._ends is not None and all(one.is_over and not one.waiting for one in self._partitions.values()):
                return None
            self._floor = max(self._floor, self._reached(now_s))
            return SourceBatch(self._floor, [])
        epoch, batch = chosen.waiting.popleft()
        self._floor = max(epoch, self._floor)
        chosen.rows -= len(batch)
        chosen.offset = batch.column(3)[-1].as_py() + 1
        if chosen.is_paused and chosen.rows < self._source.batch_rows // 2:
            self._consumer.resume([self._place(chosen)])
            chosen.is_paused = False
        return SourceBatch(self._floor, batch)

    def _fetch(self, now_s: float) -> None:
        try:
            messages = self._consumer.consume(self._source.batch_rows, 0.0)
        except self._library.KafkaException as error:
            raise DataflowError(f"from_kafka: topic {self._source.topic!r} cannot be read: {told(error)}{self._heard.told()}") from error
        self._listen()
        errors = list(map(self._library.Message.error, messages))
        told_of: list[tuple[Any, int]] = []
        if any(errors):  # comparing a KafkaError with None raises
            told_of = [(error, message.partition()) for error, message in zip(errors, messages, strict=True) if error is not None]
            messages = [message for error, message in zip(errors, messages, strict=True) if error is None]
        if messages:
            self._deal_out(messages, now_s)
        for what, number in told_of:  # the end of a partition comes behind its messages
            self.look_at(what, number)

    def _deal_out(self, messages: list[Any], now_s: float) -> None:
        numbers = list(map(self._library.Message.partition, messages))
        if numbers.count(numbers[0]) == len(numbers):
            self._take(self._partitions[numbers[0]], messages, now_s)
        else:
            of: dict[int, list[Any]] = {}
            for number, message in zip(numbers, messages, strict=True):
                of.setdefault(number, []).append(message)
            for number, some in of.items():
                self._take(self._partitions[number], some, now_s)
        if len(self._partitions) > 1:
            self._pause_those_ahead()

    def _take(self, reading: _Partition, messages: list[Any], now_s: float) -> None:
        """Messages of one partition as columns, cut where the epoch changes."""
        kind = self._library.Message
        offsets = np.fromiter(map(kind.offset, messages), np.int64, len(messages))
        if reading.end is not None and offsets[-1] >= reading.end - 1:
            reading.at_end = True
            messages = messages[: int(np.searchsorted(offsets, reading.end))]
            offsets = offsets[: len(messages)]
            if not messages:
                return
        elif reading.end is None:
            reading.at_end = False
        reading.heard_s = now_s
        stamps = np.array([stamp if is_known else -1 for is_known, stamp in map(kind.timestamp, messages)], np.int64)
        most_ms = int(1000 * (now_s + self._source.ahead_s))
        epochs = np.maximum.accumulate(np.maximum(np.minimum(stamps, most_ms) // self._source.epoch_ms, reading.epoch))
        reading.epoch = int(epochs[-1])
        columns = [
            pa.array(list(map(kind.key, messages)), pa.binary()),
            pa.array(list(map(kind.value, messages)), pa.binary()),
            pa.array(np.full(len(messages), reading.number, np.int32)),
            pa.array(offsets),
            pa.array(stamps, SCHEMA.field("timestamp").type, mask=stamps < 0),
        ]
        if self._source.headers:
            columns.append(pa.array(list(map(kind.headers, messages)), HEADERS.type))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        cuts = [0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist(), len(messages)]
        reading.waiting.extend((int(epochs[a]), batch.slice(a, b - a)) for a, b in pairwise(cuts))
        reading.rows += len(messages)

    def _listen(self) -> None:
        """Read the client's errors about brokers. Raises DataflowError where trying again does not help."""
        for error in self._heard.take():
            if error.name() == "_ALL_BROKERS_DOWN":
                self._asking.lose(clock.time())
                self._was_away = True
            elif error.fatal() or is_final(error):
                raise DataflowError(f"from_kafka: topic {self._source.topic!r} cannot be read: {told(error)}")

    def _pause_those_ahead(self) -> None:
        """Stop fetching from partitions of which a full batch waits."""
        for reading in self._partitions.values():
            if reading.rows >= self._source.batch_rows and not reading.is_paused:
                self._consumer.pause([self._place(reading)])
                reading.is_paused = True

    def _place(self, reading: _Partition) -> Any:
        return self._library.TopicPartition(self._source.topic, reading.number)

    def look_at(self, error: Any, number: int) -> None:
        """Handle the client's error about a partition. Raises DataflowError where trying again does not help."""
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
                "topic was created again; begin afresh (resume='never'), or keep records for longer"
            )
        if error.fatal() or is_final(error):
            raise DataflowError(f"from_kafka: {place} cannot be read: {told(error)}")

    def _next_partition(self, now_s: float) -> _Partition | None:
        """The partition whose next record has the lowest epoch; None while another one may still give a lower epoch."""
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
        """The epoch below which nothing can come, while no record waits."""
        if self._ends is not None:
            return min((one.epoch for one in self._partitions.values() if not one.is_over), default=self._floor)
        if self._asking.is_away:
            return self._floor
        by_clock = int(1000 * (now_s - self._source.idle_s)) // self._source.epoch_ms
        return min((by_clock if self._is_idle(one, now_s) else one.epoch for one in self._partitions.values()), default=by_clock)

    def _is_idle(self, reading: _Partition, now_s: float) -> bool:
        if reading.waiting or not reading.at_end:
            return False
        return reading.end is not None or (not self._asking.is_away and now_s - reading.heard_s >= self._source.idle_s)

    def epoch_floor(self) -> int:
        return self._floor

    def offset(self) -> Any:
        known = {one.number: (one.offset, self._epoch_given(one)) for one in self._partitions.values()}
        return {"floor": self._floor, "topic": self._topic_id, "partitions": known}

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
        if not self._is_closed:
            self._is_closed = True
            if self._consumer is not None:
                self._consumer.close()
            self._source.let_go()

    def __del__(self) -> None:
        """Close: an open consumer that reports an error while it is collected ends this process (confluent-kafka 2.16)."""
        if hasattr(self, "_consumer"):
            self.close()
