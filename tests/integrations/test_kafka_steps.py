"""A process dies between any two steps of a commit to Kafka, and after its successor's commit each record is there once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.integrations.kafka import KafkaSink
from rayad.integrations.kafka import sink as sink_module
from tests.integrations.broker import Broker, broker
from tests.integrations.kafka_proxy import END_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from tests.integrations.kafka_steps import oracle, run_with_kills, steps_in


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as one:
        yield one


def staged(sink: KafkaSink, *texts: str) -> list[Any]:
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), list(texts))
    return [writer.stage()]


def successor(sink: KafkaSink, **options: Any) -> KafkaSink:
    """The sink of another process."""
    other = KafkaSink(sink._settings["bootstrap.servers"], sink.topic, **options)
    other.adopt(sink.identity())
    return other


@pytest.mark.parametrize("seed", range(3))
def test_a_process_that_dies_at_any_step_is_survived(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    with steps_in(monkeypatch) as steps:
        came, kills = run_with_kills(kafka, steps, str(tmp_path), 150, seed)
    assert came == oracle(150)
    assert kills == sum(steps.kills.values())


def test_a_commit_that_another_coordinator_made_meanwhile_is_not_made_twice(kafka: Broker) -> None:
    """Two coordinators, the first of which was taken for dead: the second commits while the first is between reading and producing."""
    first = KafkaSink(kafka.servers, kafka.topic())
    second = successor(first)
    values = staged(first, "a", "b")
    looked = first._committed

    def look_and_be_overtaken() -> tuple[int, int]:
        found = looked()
        first._committed = looked  # type: ignore[method-assign]
        assert second.commit(2, values) == 2
        return found

    first._committed = look_and_be_overtaken  # type: ignore[method-assign]
    assert first.commit(2, values) == 2
    assert sorted(kafka.committed(first.topic)) == [b"a", b"b"]


def test_a_void_snapshot_cannot_be_committed_between_a_roll_back_and_the_next_commit(kafka: Broker) -> None:
    first = KafkaSink(kafka.servers, kafka.topic())
    first.commit(2, staged(first, "a"))
    values = staged(first, "void")
    second = successor(first)
    second.roll_back(2, 4)
    with pytest.raises(rd.DataflowError, match=r"^write_kafka: snapshot 3 is void: the job has resumed from an earlier one meanwhile"):
        first.commit(3, values)
    second.commit(2, staged(second, "a"))
    second.commit(4, staged(second, "b"))
    assert sorted(kafka.committed(first.topic)) == [b"a", b"b"]


@pytest.mark.parametrize("request_key", [INIT_PRODUCER_ID, TXN_OFFSET_COMMIT, END_TXN])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_connection_that_is_cut_in_a_commit_duplicates_nothing(kafka: Broker, request_key: int, when: Any) -> None:
    """If the connection is cut after the end of a transaction, it is committed and the answer is lost."""
    sink = KafkaSink(kafka.servers, kafka.topic())
    sink.commit(2, staged(sink, "a"))
    if request_key == INIT_PRODUCER_ID:
        sink = successor(sink)
    kafka.proxy.cut(request_key, when)
    assert sink.commit(3, staged(sink, "b")) == 1
    assert sink.commit(4, staged(sink, "c")) == 1
    assert sorted(kafka.committed(sink.topic)) == [b"a", b"b", b"c"]


class Unreadable(Sequence[Any]):
    """Staged values of which the second cannot be read, the first time."""

    def __init__(self, values: Sequence[Any], error: BaseException) -> None:
        self.values, self.error = values, error
        self.tries = 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    def __iter__(self) -> Iterator[Any]:
        self.tries += 1
        yield self.values[0]
        if self.tries == 1:
            raise self.error
        yield from self.values[1:]


@pytest.mark.parametrize("error", [rd.SnapshotError("part 7 cannot be read"), KeyboardInterrupt()], ids=["the store", "an interrupt"])
def test_whatever_interrupts_a_transaction_it_is_aborted_and_the_producer_goes_on(kafka: Broker, error: BaseException) -> None:
    sink = KafkaSink(kafka.servers, kafka.topic())
    sink.commit(2, staged(sink, "a"))
    producer = sink._producer
    values = Unreadable([*staged(sink, "b"), *staged(sink, "c")], error)
    kafka.proxy.asked.clear()
    with pytest.raises(type(error)):
        sink.commit(3, values)
    assert kafka.proxy.asked.count(END_TXN) <= 1, "an abort, if the broker knows of the transaction at all"
    assert kafka.committed(sink.topic) == [b"a"], "readers are not held up by an open transaction"
    assert sink.commit(3, values) == 2
    assert sink._producer is producer, "no other producer had to be made"
    assert sorted(kafka.committed(sink.topic)) == [b"a", b"b", b"c"]


def test_a_fenced_producer_is_told_apart(kafka: Broker) -> None:
    sink = KafkaSink(kafka.servers, kafka.topic(), wait_s=0.0)
    sink.commit(2, staged(sink, "a"))
    other = successor(sink)
    other._fenced()
    told = r"^write_kafka: snapshot 3 could not be committed to '\S+': fenced: another coordinator has taken this output's transactional id"
    with pytest.raises(rd.DataflowError, match=told):
        sink.commit(3, staged(sink, "b"))
    assert other.commit(3, staged(other, "b")) == 1
    assert sorted(kafka.committed(sink.topic)) == [b"a", b"b"]


def test_a_commit_waits_for_a_broker_that_is_away(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "ANSWER_S", 0.3)
    sink = KafkaSink(kafka.servers, kafka.topic(), wait_s=60.0)
    sink.commit(2, staged(sink, "a"))
    other = successor(sink, wait_s=60.0)
    kafka.proxy.go_away()
    begin = other._fenced
    tries = []

    def come_back_at_the_second_try() -> tuple[int, int]:
        tries.append(len(tries))
        if len(tries) == 2:
            kafka.proxy.come_back()
        return begin()

    other._fenced = come_back_at_the_second_try  # type: ignore[method-assign]
    try:
        assert other.commit(3, staged(other, "b")) == 1
    finally:
        kafka.proxy.come_back()
    assert sorted(kafka.committed(sink.topic)) == [b"a", b"b"]
