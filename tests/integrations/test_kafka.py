"""Kafka as source and sink, on a broker in memory (Tansu): the contracts, jobs that crash, what is refused."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

import rayad as rd
from rayad.integrations.kafka import KafkaSink, KafkaSource
from rayad.integrations.kafka.source import Lane, LanePart
from rayad.testing import check_sink, check_source
from tests.integrations.broker import Broker, broker
from tests.patience import PATIENCE_S

SECOND = 1000


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as one:
        yield one


def stamp(n: int) -> int:
    """Ten numbers a second, from the first second of 1970 on (to the client 0 means now)."""
    return SECOND * (1 + n // 10) + n % 10


def moment(n: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=stamp(n))


def numbers(count: int, partitions: int = 2) -> list[tuple[int, int, str]]:
    """Number n in partition n % partitions."""
    return [(n % partitions, stamp(n), str(n)) for n in range(count)]


def values(rows: list[Any]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def read_all(source: KafkaSource, lanes: int, batches: int) -> list[tuple[int, list[int]]]:
    """``count`` batches that are not empty, lane after lane."""
    out = []
    for number in range(lanes):
        part = source.build_part(Lane(number, lanes), None)
        left = batches
        while left:
            epoch, batch = part.next_batch()  # type: ignore[misc]
            if len(batch):
                out.append((epoch, values(batch.to_pylist())))
                left -= 1
        part.close()
    return out


def source(kafka: Broker, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(kafka.servers, topic, **{"idle_s": 1e6, "options": {"fetch.wait.max.ms": 5}, **options})


# -- source ---------------------------------------------------------------------------------------------------------


def test_a_topic_keeps_the_contract_of_sources(kafka: Broker) -> None:
    topic = kafka.topic()
    kafka.send(topic, numbers(60))
    rows = [{"key": b"k%d" % (n % 2), "value": b"%d" % n, "partition": n % 2, "offset": n // 2, "timestamp": moment(n)} for n in range(60)]
    check_source(lambda: source(kafka, topic, parts=2, batch_rows=4), rows, resumes=4, quiet_s=0.8, same_cuts=False)


def test_epochs_are_intervals_of_the_messages_time(kafka: Broker) -> None:
    topic = kafka.topic(1)
    kafka.send(topic, [(0, 1, "0"), (0, 1999, "1"), (0, 2000, "2"), (0, 500, "3"), (0, 6000, "4")])
    assert read_all(source(kafka, topic, epoch_s=2.0, parts=1), 1, 3) == [(0, [0, 1]), (1, [2, 3]), (3, [4])]


def test_partitions_of_a_lane_are_merged_by_epoch(kafka: Broker) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [(0, 1000 * n, str(n)) for n in range(1, 6)])
    kafka.send(topic, [(1, 1000 * n, str(10 + n)) for n in range(1, 6)])
    got = read_all(source(kafka, topic, parts=1), 1, 9)
    assert [epoch for epoch, _ in got] == sorted(epoch for epoch, _ in got)
    seen = {n for _, some in got for n in some}
    assert len(seen) == 9, "the tenth message waits: the other partition may still give messages of an earlier epoch"


def test_an_idle_partition_does_not_hold_epochs_back(kafka: Broker) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [(0, 1000 * n, str(n)) for n in range(1, 6)])
    got = read_all(source(kafka, topic, parts=1, idle_s=0.2), 1, 5)
    assert [some for _, some in got] == [[1], [2], [3], [4], [5]]


@pytest.mark.parametrize("per", [None, "partition"])
def test_a_partition_whose_data_is_older_has_a_watermark_of_its_own(kafka: Broker, per: str | None) -> None:
    """The times inside the data of partition 1 are a hundred behind those of partition 0, in the same epochs."""
    topic = kafka.topic(2)
    kafka.send(topic, [(partition, 1000 * n, str(n + 100 * (1 - partition))) for n in range(1, 6) for partition in (0, 1)])
    flow = rd.Dataflow()
    read = flow.from_kafka(kafka.servers, topic, stop="latest", parts=2, options={"fetch.wait.max.ms": 5})
    counts = read.assign_timestamps(lambda row: int(row["value"]), per=per).window(rd.windows.tumbling(2)).count()
    counts.collect("counts")
    counts.late.collect("late")
    result = flow.run(runtime="local", parallelism=2)
    late = sorted(int(row["value"]) for _, (_, row) in result["late"])
    assert late == ([] if per else [2, 3, 4, 5])
    assert sum(count for _, (_, count) in result["counts"]) == 10 - len(late)


def test_a_date_far_ahead_does_not_end_the_epochs(kafka: Broker) -> None:
    topic = kafka.topic(1)
    kafka.send(topic, [(0, 4_000_000_000_000, "0")])
    ((epoch, _),) = read_all(source(kafka, topic, parts=1, ahead_s=10.0), 1, 1)
    assert abs(epoch - time.time() - 10) < PATIENCE_S


def test_latest_reads_what_comes_after_the_beginning(kafka: Broker) -> None:
    topic = kafka.topic(1)
    kafka.send(topic, [(0, 1000, "0")])
    part = source(kafka, topic, parts=1, start="latest").build_part(Lane(0, 1), None)
    kafka.send(topic, [(0, 2000, "1")])
    while not len(read := part.next_batch().batch):  # type: ignore[union-attr]
        pass
    assert values(read.to_pylist()) == [1]
    part.close()


@pytest.mark.parametrize("taken", ["enable.auto.commit", "bootstrap.servers", "isolation.level"])
def test_client_settings_that_would_break_exactly_once_are_refused(taken: str) -> None:
    told = rf"^from_kafka: options sets \['{taken}'\], which from_kafka sets itself: exactly-once rests on them; leave them out$"
    with pytest.raises(rd.ConfigError, match=told):
        KafkaSource("localhost:1", "t", options={taken: "x"})


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (KafkaError._AUTO_OFFSET_RESET, r"partition 0 of topic '[^']+' does not have offset 99 any more: records were deleted"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, r"partition 0 of topic '[^']+' cannot be read: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_errors_after_which_trying_again_does_not_help_end_the_job(kafka: Broker, code: int, told: str) -> None:
    """Tansu gives none of these errors: it creates each topic that is asked for, and reports no missing offset."""
    part = LanePart(source(kafka, kafka.topic(1), parts=1), Lane(0, 1), {"floor": 0, "partitions": {0: (99, 0)}})
    with pytest.raises(rd.DataflowError, match=told):
        part.look_at(KafkaError(code), 0)
    part.look_at(KafkaError(KafkaError._ALL_BROKERS_DOWN), 0)  # the client tries again by itself
    part.close()


# -- sink -----------------------------------------------------------------------------------------------------------


def to_topic(kafka: Broker, topic: str, **options: Any) -> KafkaSink:
    return KafkaSink(kafka.servers, topic, **{"value": json.dumps, "key": lambda row: str(row["row"]), **options})


def test_a_topic_keeps_the_contract_of_sinks(kafka: Broker) -> None:
    def rows(sink: rd.Sink) -> list[Any]:
        assert isinstance(sink, KafkaSink)
        return [json.loads(value) for value in kafka.committed(sink.topic)]

    check_sink(lambda: to_topic(kafka, kafka.topic()), rows, histories=4, steps=8, takes_back=False)


def test_committed_messages_cannot_be_taken_back(kafka: Broker) -> None:
    topic = kafka.topic()
    sink = to_topic(kafka, topic)
    staged = []
    for snapshot in (2, 3):
        writer = sink.open(0, 1)
        writer.write(rd.Timestamp(0), [{"row": snapshot}])
        staged.append(writer.stage())
        assert sink.commit(snapshot, staged[-1:]) == 1
    with pytest.raises(rd.ConfigError, match=r"resumes from snapshot 2, but topic '[^']+' has what snapshot 3 committed"):
        sink.roll_back(2, 5)
    again = to_topic(kafka, topic, on_roll_back="repeat")
    again.adopt(sink.identity())
    again.roll_back(2, 5)
    assert again.commit(2, staged[:1]) == 1
    assert len(kafka.committed(topic)) == 2, "nothing new"
    with pytest.raises(rd.DataflowError, match=r"^write_kafka: snapshot 4 is void"):
        sink.commit(4, staged[1:])


def test_messages_are_bytes_or_text(kafka: Broker) -> None:
    writer = KafkaSink(kafka.servers, "any").open(0, 1)
    with pytest.raises(rd.DataflowError, match=r"^write_kafka: the record is 3, a int: a message is bytes or text, or None; give value="):
        writer.write(rd.Timestamp(0), [3])


# -- in jobs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_crashes_writes_each_message_once(kafka: Broker, tmp_path: Path, seed: int) -> None:
    start, end = kafka.topic(2), kafka.topic(2)
    kafka.send(start, numbers(200))
    flow = rd.Dataflow("copy")
    read = flow.from_kafka(kafka.servers, start, parts=2, idle_s=0.2, options={"fetch.wait.max.ms": 5})
    read.map(lambda row: row["value"]).write_kafka(kafka.servers, end)
    job = flow.submit(
        rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=None)), runtime="local", seed=seed, parallelism=2
    )
    for round_ in range(4):
        for _ in range(60):
            job.step()
        job.savepoint()
        if round_ % 2:
            job.crash()
    while len(kafka.committed(end)) < 200:
        for _ in range(50):
            job.step()
        job.savepoint()
    job.stop()
    assert sorted(map(int, kafka.committed(end))) == list(range(200))
