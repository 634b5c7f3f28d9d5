"""Reading Kafka when records are gone, topics are deleted, brokers cannot be reached, or transactions were aborted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import rayad as rd
from rayad.integrations.kafka import KafkaSink, KafkaSource
from rayad.integrations.kafka.source import Lane
from tests.integrations.broker import QUIET, Broker, broker
from tests.integrations.mock_kafka import MockCluster, mock_cluster
from tests.patience import PATIENCE_S

FAST = {"fetch.wait.max.ms": 5, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "topic.metadata.propagation.max.ms": 50}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as one:
        yield one


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    with mock_cluster() as one:
        yield one


def source(servers: str, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(servers, topic, **{"parts": 1, "idle_s": 1e6, "options": FAST, **options})


def open_part(servers: str, topic: str, resume: Any = None, **options: Any) -> Any:
    one = source(servers, topic, **options)
    return one.build_part(one.list_parts()[0], resume)


def at(offset: int, **more: Any) -> Any:
    """The offset of a part that has read partition 0 up to this offset."""
    return {"floor": 0, "partitions": {0: (offset, 0)}, **more}


def read(part: Any, count: int) -> list[Any]:
    """Read this many rows."""
    rows: list[Any] = []
    poll(part, lambda: len(rows) >= count, rows)
    return rows


def poll(part: Any, condition: Callable[[], bool], rows: list[Any] | None = None) -> None:
    """Read until a condition holds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        given = part.next_batch()
        if rows is not None and len(given.batch):
            rows += given.batch.to_pylist()


def send(servers: str, topic: str, *values: Any, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **QUIET, **settings})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=0, timestamp=1000 + n)
        producer.flush(30)


# -- records that are not there any more ----------------------------------------------------------------------------


def test_records_that_retention_has_deleted_are_not_skipped(mock: MockCluster) -> None:
    """The mock cluster keeps 5 MiB of a partition."""
    topic = mock.topic("kept")
    send(mock.servers, topic, *[bytes(900_000)] * 8)
    part = open_part(mock.servers, topic, at(0))
    with pytest.raises(
        rd.DataflowError, match=r"^from_kafka: partition 0 of topic 'kept' does not have offset 0 any more: records were deleted"
    ):
        read(part, 1)
    part.close()
    afresh = open_part(mock.servers, topic)
    begin = afresh.offset()["partitions"][0][0]
    assert begin > 0, "where it begins is known from the start"
    assert read(afresh, 1)[0]["offset"] == begin
    afresh.close()


def test_a_log_that_was_truncated_is_an_error(mock: MockCluster) -> None:
    topic = mock.topic("cut")
    send(mock.servers, topic, b"0", b"1")
    part = open_part(mock.servers, topic, at(99))
    with pytest.raises(rd.DataflowError, match=r"^from_kafka: partition 0 of topic 'cut' does not have offset 99 any more"):
        read(part, 1)
    part.close()


def test_a_topic_that_was_created_again_is_not_read_from_the_old_offset(kafka: Broker) -> None:
    topic = kafka.topic(1)
    kafka.send(topic, [(0, 1000, "0"), (0, 1001, "1")])
    part = open_part(kafka.servers, topic, discover_s=0.02)
    read(part, 2)
    poll(part, lambda: part.offset()["topic"] is not None)
    offset = part.offset()
    part.close()
    admin = AdminClient({"bootstrap.servers": kafka.servers, **QUIET})
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    kafka.send(topic, [(0, 1000, "a"), (0, 1001, "b"), (0, 1002, "c")])
    again = open_part(kafka.servers, topic, offset, discover_s=0.02)
    with pytest.raises(
        rd.DataflowError, match=r"^from_kafka: topic '[^']+' has been deleted and created again \(it was \S+, now it is \S+\): offsets"
    ):
        poll(again, lambda: False)
    again.close()


# -- topics and brokers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, r"cannot be read: (UNKNOWN_TOPIC_OR_PART|_UNKNOWN_PARTITION)"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, r"cannot be read: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_a_topic_that_disappears_ends_the_job(mock: MockCluster, error: int, told: str) -> None:
    """It is deleted while it is read, or the right to read it is taken away."""
    topic = mock.topic("gone")
    send(mock.servers, topic, b"0")
    part = open_part(mock.servers, topic, options={**FAST, "topic.metadata.refresh.interval.ms": 50})
    read(part, 1)
    mock.fail_topic(topic, error)
    with pytest.raises(rd.DataflowError, match=told):
        poll(part, lambda: False)
    part.close()


def test_a_topic_without_read_permission_is_refused_at_the_start(mock: MockCluster) -> None:
    mock.topic("secret")
    mock.fail_topic("secret", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(rd.DataflowError, match=r"^from_kafka: there is no topic 'secret', or you may not see it: .*; create it, or check"):
        source(mock.servers, "secret").list_parts()


def test_an_address_without_a_broker_is_an_error_with_the_clients_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayad.integrations.kafka.client.ANSWER_S", 0.5)
    with pytest.raises(rd.DataflowError, match=r"^from_kafka: no answer about topic 't' within 0\.5 s: .*the client says"):
        source("127.0.0.1:1", "t").list_parts()


def test_a_broker_that_is_away_is_waited_for_and_epochs_stand_still(kafka: Broker) -> None:
    topic = kafka.topic(1)
    kafka.send(topic, [(0, 1000, "0")])
    part = open_part(kafka.servers, topic, idle_s=0.3)
    read(part, 1)
    kafka.proxy.go_away()
    try:
        poll(part, lambda: part._asking.is_away)
        floor = part.epoch_floor()
        began_s = time.monotonic()
        poll(part, lambda: time.monotonic() - began_s > 0.6)
        assert part.epoch_floor() == floor, "a partition whose broker is away is not idle"
    finally:
        kafka.proxy.come_back()
    kafka.send(topic, [(0, 2000, "1")])
    assert [row["value"] for row in read(part, 1)] == [b"1"]
    poll(part, lambda: part.epoch_floor() > floor)
    part.close()


def test_a_broker_that_stays_away_ends_the_job_in_time_and_a_bounded_read_too(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The source waits and says so; it continues if the broker is back in time, and fails otherwise."""
    topic = kafka.topic(1)
    kafka.send(topic, [(0, 1000 + n, str(n)) for n in range(4)])
    for options in ({}, {"stop": "latest"}):
        for wait_s in (PATIENCE_S, 0.3):
            part = open_part(kafka.servers, topic, wait_s=wait_s, batch_rows=1, **options)
            caplog.clear()
            kafka.proxy.go_away()
            try:
                if wait_s == PATIENCE_S:
                    poll(part, lambda part=part: part._asking.is_away)
                    assert f"can be reached; waiting for up to {PATIENCE_S:g} s" in caplog.text
                    kafka.proxy.come_back()
                    poll(part, lambda part=part: not part._asking.is_away)
                    assert f"topic {topic!r} can be read again" in caplog.text
                else:
                    told = r"^from_kafka: no broker of topic '\S+' could be reached for 0\.3 s \(wait_s\).*; the snapshots hold how far"
                    with pytest.raises(rd.DataflowError, match=told):
                        poll(part, lambda: False)
            finally:
                kafka.proxy.come_back()
                part.close()


SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "wrong", **QUIET}


def test_a_wrong_password_is_refused_at_once_and_not_at_the_end_of_a_wait(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it waited to the end of its timeout, this test would take too long."""
    for module in ("asking", "client", "sink"):
        monkeypatch.setattr(f"rayad.integrations.kafka.{module}.ANSWER_S", 1200.0)
    told = r"the brokers of topic 't' refuse this client, see options: _AUTHENTICATION: .*wrong user or password"
    with pytest.raises(rd.DataflowError, match=rf"^from_kafka: {told}"):
        source(kafka.servers, "t", options=SASL).list_parts()
    sink = KafkaSink(kafka.servers, "t", options=SASL, wait_s=1200.0)
    with pytest.raises(rd.DataflowError, match=rf"^write_kafka: {told}"):
        sink.check()


def test_a_topic_that_does_not_exist_is_refused_at_the_start(mock: MockCluster) -> None:
    mock.topic("nowhere")
    mock.fail_topic("nowhere", KafkaError.UNKNOWN_TOPIC_OR_PART)
    for act in (source(mock.servers, "nowhere").list_parts, KafkaSink(mock.servers, "nowhere").check):
        with pytest.raises(
            rd.DataflowError, match=r"_kafka: there is no topic 'nowhere', or you may not see it.*; create it, or check the name"
        ):
            act()


def test_the_client_does_not_choose_the_offset_after_a_loss() -> None:
    with pytest.raises(rd.ConfigError, match=r"^from_kafka: options sets \['auto\.offset\.reset'\], which from_kafka sets itself"):
        KafkaSource("localhost:1", "t", options={"auto.offset.reset": "earliest"})


# -- what is in the topic -------------------------------------------------------------------------------------------


def test_records_of_an_aborted_transaction_are_not_read(kafka: Broker) -> None:
    """Like compaction, it leaves gaps between the offsets."""
    topic = kafka.topic(1)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic, **QUIET})
    producer.init_transactions(30)
    for n, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        for value in range(3):
            producer.produce(topic, f"{n}{value}", partition=0, timestamp=1000 * (n + 1))
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    part = open_part(kafka.servers, topic)
    wanted = [b"00", b"01", b"02", b"20", b"21", b"22"]
    rows: list[Any] = []
    offsets = []
    while len(rows) < len(wanted):
        offsets.append((len(rows), part.offset()))
        rows += read(part, 1)
    part.close()
    assert [row["value"] for row in rows] == wanted
    assert rows[3]["offset"] > rows[2]["offset"] + 1
    for given, offset in offsets:
        again = open_part(kafka.servers, topic, offset)
        assert [row["value"] for row in read(again, 6 - given)] == wanted[given:]
        again.close()


def test_messages_without_key_value_or_headers(kafka: Broker) -> None:
    topic = kafka.topic(1)
    producer = Producer({"bootstrap.servers": kafka.servers, **QUIET})
    producer.produce(topic, None, None, partition=0, timestamp=1000)
    producer.produce(topic, b"", b"", partition=0, timestamp=1001, headers=[("a", b"1"), ("a", None), ("b", b"")])
    assert producer.flush(30) == 0
    part = open_part(kafka.servers, topic, headers=True)
    got = [(row["key"], row["value"], row["headers"]) for row in read(part, 2)]
    part.close()
    assert got[0] == (None, None, None)
    assert got[1][:2] == (b"", b"")
    assert [(one["key"], one["value"]) for one in got[1][2]] == [("a", b"1"), ("a", None), ("b", b"")]


def test_a_message_that_is_too_large_is_refused_before_it_is_in_a_snapshot(kafka: Broker) -> None:
    writer = KafkaSink(kafka.servers, "any", options={"message.max.bytes": 2000}).open(0, 1)
    writer.write(rd.Timestamp(0), [b"x" * 900, b"y" * 900, b"z" * 900])
    told = r"^write_kafka: a message of 2,001 bytes, key and value together, is larger than message\.max\.bytes, 2,000: raise it"
    with pytest.raises(rd.DataflowError, match=told):
        writer.write(rd.Timestamp(0), [b"", b"x" * 2001])


def test_an_error_that_stays_ends_a_commit_at_once(mock: MockCluster) -> None:
    topic = mock.topic("closed")
    sink = KafkaSink(mock.servers, topic, wait_s=PATIENCE_S)
    mock.fail_topic(topic, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), [b"a"])
    with pytest.raises(rd.DataflowError, match=r"^write_kafka: snapshot 2 could not be committed to 'closed': \S*AUTHORIZATION_FAILED"):
        sink.commit(2, [writer.stage()])


def test_columns_and_rows_are_written_alike(kafka: Broker) -> None:
    import pyarrow as pa

    columns = pa.record_batch({"k": pa.array(["a", None, "b"]).dictionary_encode(), "v": pa.array([b"1", b"2", None], pa.large_binary())})
    staged = []
    for batch in (columns, columns.to_pylist()):
        writer = KafkaSink(kafka.servers, "any", key="k", value="v").open(0, 1)
        writer.write(rd.Timestamp(0), batch)
        staged.append(pa.ipc.open_stream(writer.stage()).read_all().to_pylist())
    assert staged[0] == staged[1] == [{"key": b"a", "value": b"1"}, {"key": None, "value": b"2"}, {"key": b"b", "value": None}]
    with pytest.raises(
        rd.DataflowError, match=r"^write_kafka: the value is column 'n' of type int64: a message is bytes or text; give value="
    ):
        KafkaSink(kafka.servers, "any", value="n").open(0, 1).write(rd.Timestamp(0), pa.record_batch({"n": [1]}))


# -- bounded ---------------------------------------------------------------------------------------------------------


def test_a_bounded_read_ends_where_the_topic_ended(kafka: Broker) -> None:
    topic = kafka.topic(3)
    kafka.send(topic, [(n % 2, 1000 + n, str(n)) for n in range(20)])
    flow = rd.Dataflow("bounded")
    late = [False]

    def send_more(row: Any) -> Any:
        if not late[0]:
            late[0] = True
            kafka.send(topic, [(n % 3, 1000 + n, str(n)) for n in range(20, 30)])
        return row["value"]

    flow.from_kafka(kafka.servers, topic, stop="latest", parts=2, options=FAST).map(send_more).collect("out")
    result = flow.run(runtime="local", parallelism=2)
    assert sorted(int(value) for _, value in result["out"]) == list(range(20))


@pytest.mark.parametrize("options", [{"stop": "now"}, {"start": "latest", "stop": "latest"}])
def test_an_invalid_stop_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(rd.ConfigError, match=r"^from_kafka: (stop='now': give 'latest'|start='latest' and stop='latest' leave nothing)"):
        KafkaSource("localhost:1", "t", **options)


# -- partitions that are added ----------------------------------------------------------------------------------------


def values(rows: list[Any]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def test_partitions_that_are_added_are_read_from_their_first_record(kafka: Broker) -> None:
    topic = kafka.later(4, shown=2)
    kafka.send(topic, [(n % 2, 1000 + n, str(n)) for n in range(6)])
    part = open_part(kafka.servers, topic, start="latest", discover_s=0.02)
    assert sorted(part.offset()["partitions"]) == [0, 1]
    kafka.add(topic, 4)
    kafka.send(topic, [(n % 4, 5000 + n, str(n)) for n in range(8, 16)])
    assert values(read(part, 8)) == list(range(8, 16)), "old partitions are read from their end, new ones from their first record"
    offset = part.offset()
    part.close()
    kafka.send(topic, [(3, 9000, "99")])
    again = open_part(kafka.servers, topic, offset, discover_s=0.02, idle_s=0.05)
    assert values(read(again, 1)) == [99]
    again.close()


def test_partitions_that_were_added_between_two_runs_are_read(kafka: Broker) -> None:
    topic = kafka.later(3, shown=1)
    kafka.send(topic, [(0, 1000, "0")])
    part = open_part(kafka.servers, topic, start="latest")
    offset = part.offset()
    part.close()
    kafka.add(topic, 3)
    kafka.send(topic, [(n, 1000, str(n)) for n in (1, 2)])
    again = open_part(kafka.servers, topic, offset, start="latest", idle_s=0.05)
    assert values(read(again, 2)) == [1, 2]
    again.close()


def test_partitions_are_spread_evenly_over_lanes() -> None:
    """Each partition goes to the replica with the fewest, as long as there are more lanes than partitions; replica n % replicas reads lane
    n."""
    for replicas in range(1, 6):
        counts = [0] * replicas
        for partition in range(16):
            counts[partition % 16 % replicas] += 1
            assert max(counts) - min(counts) <= 1
    assert [one.number for one in _lanes(4)] == [0, 1, 2, 3]


def _lanes(count: int) -> list[Lane]:
    return [Lane(number, count) for number in range(count)]
