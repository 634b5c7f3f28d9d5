"""The way of a reader to a worker that runs with real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.reads.questions import Read, Refused, Rows
from rayad.actors.tables.line import Asked, Line
from rayad.actors.tables.where import Where
from rayad.dataflow.records.key_hashing import key_group
from tests.actors.hosts import SECRET, Hosts, start_hosts
from tests.patience import PATIENCE_S

KEYS, UNREADABLE = 50, 49


class Unpickled:
    """A value that cannot leave its process."""

    def __reduce__(self) -> Any:
        raise TypeError("it stays here")

    def __copy__(self) -> Unpickled:
        return self

    def __deepcopy__(self, memo: Any) -> Unpickled:
        return self


class Unreadable(Unpickled):
    """A value that leaves its process, and cannot be read elsewhere."""

    def __reduce__(self) -> Any:
        return __import__, ("a_module_that_is_not_there",)


def first(key: int) -> Any:
    return Unpickled() if key == 0 else Unreadable() if key == UNREADABLE else key * key


class Once(rd.Source):
    """All keys in one epoch; it stays open until the test ends it."""

    blocks = False

    def __init__(self, end: threading.Event) -> None:
        self.end = end

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return _Part(self.end)


class _Part(rd.SourcePart):
    def __init__(self, end: threading.Event) -> None:
        self.end, self.at = end, 0

    def next_batch(self) -> Any:
        if self.at:
            return None if self.end.is_set() else rd.SourceBatch(1, [])
        self.at = 1
        return rd.SourceBatch(0, list(range(KEYS)))

    def epoch_floor(self) -> int:
        return self.at

    def offset(self) -> int:
        return self.at


@contextmanager
def squares() -> Iterator[Hosts]:
    """A worker that keeps ``first(key)`` of each key."""
    end = threading.Event()
    flow = rd.Dataflow("squares")
    flow.source(Once(end), name="keys").key_by(lambda key: key).fold(lambda: None, lambda _, key: first(key), name="squares").probe("seen")
    hosts = start_hosts(flow, 1, "workers")
    try:
        yield hosts
    finally:
        end.set()
        for thread in hosts.threads.values():
            thread.join(PATIENCE_S)


def where(hosts: Hosts) -> Where:
    process = hosts.places.process_of(hosts.stage("squares"), 0)
    return Where(process, hosts.addresses[process], 1, "test", SECRET, seals=False)


def question(hosts: Hosts, key: int) -> Asked:
    ask = Read("reader", None, None, frozenset([key_group(key, hosts.plan.key_groups)]), (key,))
    return ReplicaId(hosts.stage("squares"), 0), ask


def found(hosts: Hosts, line: Line, key: int) -> Any:
    """What a key has; asked again until the epoch is over."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        ticket = line.ask([question(hosts, key)])
        told = line.wait(ticket, until_s)
        line.forget(ticket)
        assert told is not None
        (answer,) = told
        if isinstance(answer, Refused):
            return answer.why
        if isinstance(answer, Rows) and answer.entries.keys:
            (values,) = answer.entries.columns.values()
            return values[0]


def test_threads_ask_side_by_side_and_each_has_its_answer() -> None:
    with squares() as hosts:
        line = Line(where(hosts))
        with ThreadPoolExecutor(4) as pool:
            keys = [1 + at % (KEYS - 2) for at in range(400)]
            assert list(pool.map(lambda key: found(hosts, line, key), keys)) == [key * key for key in keys]


def test_answers_come_in_any_order_and_what_nobody_waits_for_is_dropped() -> None:
    with squares() as hosts:
        line = Line(where(hosts))
        assert found(hosts, line, 3) == 9
        given_up, *others = [line.ask([question(hosts, key)]) for key in (1, 2, 4)]
        line.forget(given_up)
        told = [line.wait(ticket, time.monotonic() + PATIENCE_S) for ticket in reversed(others)]
        assert [answer[0].entries.keys for answer in told if answer and isinstance(answer[0], Rows)] == [[4], [2]]
        assert given_up.told is None


def test_an_answer_that_cannot_be_sent_says_so_and_the_worker_goes_on() -> None:
    with squares() as hosts:
        line = Line(where(hosts))
        assert "it stays here" in found(hosts, line, 0)
        assert found(hosts, line, 5) == 25
    assert not hosts.errors


class Unknown:
    """A key whose class cannot be found where it is sent to."""

    def __reduce__(self) -> Any:
        return __import__, ("a_module_that_is_not_there",)


class Raises(int):
    """A key that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    def __hash__(self) -> int:
        return hash(int(self))


@pytest.mark.parametrize(
    ("key", "told"), [(Unknown(), "cannot be read where the state is: ModuleNotFoundError"), (Raises(5), "ValueError: no comparison")]
)
def test_a_key_that_raises_is_refused_and_the_worker_goes_on(key: Any, told: str) -> None:
    with squares() as hosts:
        line = Line(where(hosts))
        assert found(hosts, line, 5) == 25
        at, ask = question(hosts, 5)
        both = [(at, ask._replace(keys=(key,))), question(hosts, 5)]
        answers = line.wait(line.ask(both), time.monotonic() + PATIENCE_S)
        assert answers is not None
        assert len(answers) == 2
        assert isinstance(answers[0], Refused)
        assert told in answers[0].why
        assert found(hosts, line, 6) == 36
    assert not hosts.errors


def test_an_answer_that_cannot_be_read_is_refused_to_who_asked() -> None:
    with squares() as hosts:
        line = Line(where(hosts))
        assert "a_module_that_is_not_there" in found(hosts, line, UNREADABLE)
        assert found(hosts, line, 5) == 25


def test_who_is_gone_or_refuses_has_no_answer_and_the_line_says_so() -> None:
    with squares() as hosts:
        refused = Line(replace(where(hosts), secret=b"another secret, long enough"))
        assert refused.wait(refused.ask([question(hosts, 1)]), time.monotonic() + PATIENCE_S) is None
        assert refused.is_lost
        line = Line(where(hosts))
        assert found(hosts, line, 3) == 9
        at = where(hosts)
    ticket = line.ask([question(hosts, 1)])
    assert line.wait(ticket, time.monotonic() + PATIENCE_S) is None
    assert line.is_lost
    late = Line(at)
    assert late.wait(late.ask([question(hosts, 1)]), time.monotonic() + PATIENCE_S) is None
    assert late.is_lost


def test_a_worker_keeps_nothing_of_readers_that_have_left() -> None:
    with squares() as hosts:
        plane = hosts.process("squares").plane
        for _ in range(5):
            line = Line(where(hosts))
            assert found(hosts, line, 3) == 9
            del line
        until_s = time.monotonic() + PATIENCE_S
        last = Line(where(hosts))
        while sum(peer.peer.startswith("reader") for peer in plane.statistics().peers) > 1:
            assert found(hosts, last, 3) == 9  # a turn has passed since
            assert time.monotonic() < until_s
    assert not hosts.errors


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_who_has_no_time_left_waits_for_nobody(seconds: float) -> None:
    with squares() as hosts:
        line = Line(where(hosts))
        began_s = time.monotonic()
        told = line.wait(line.ask([question(hosts, 3)]), began_s + seconds)
        assert told is None or len(told) == 1
        assert time.monotonic() - began_s < seconds + PATIENCE_S / 2
