"""Who asks a process that is being asked waits, and goes with the others in the next call."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.tables import Busy, Look, Standing
from rayad.actors.tables.shared_calls import Asked, Line, Told
from rayad.progress import DataflowError
from tests.patience import PATIENCE_S


def question(number: int) -> Asked:
    return ReplicaId(0, number), Look("reader", None, -1)


class Process:
    """Answers when it is let; a question of replica n is answered with the epochs from n on."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.called, self.may_answer = threading.Semaphore(0), threading.Semaphore(0)
        self.told: Any = None

    def __call__(self, questions: list[Asked], timeout_s: float) -> Told:
        self.calls.append([to.replica for to, _ in questions])
        self.called.release()
        assert self.may_answer.acquire(timeout=PATIENCE_S)
        if isinstance(self.told, Exception):
            raise self.told
        return self.told or [Standing(to.replica, 100, None) for to, _ in questions]


def asked(line: Line, pool: ThreadPoolExecutor, *numbers: int) -> Future[Told]:
    return pool.submit(line.ask, [question(number) for number in numbers], PATIENCE_S)


def waiting(line: Line, count: int) -> None:
    """Until so many wait for the next call."""
    while line.waits < count:
        pass


def oldest(future: Future[Told]) -> list[int]:
    told = future.result(PATIENCE_S)
    assert isinstance(told, list)
    return [answer.oldest for answer in told if isinstance(answer, Standing)]


def test_those_who_come_during_a_call_share_the_next_one() -> None:
    process = Process()
    line = Line(process)
    with ThreadPoolExecutor(4) as pool:
        first = asked(line, pool, 1)
        assert process.called.acquire(timeout=PATIENCE_S)
        others = [asked(line, pool, 2, 3), asked(line, pool, 4), asked(line, pool, 5)]
        waiting(line, 3)
        process.may_answer.release(2)
        assert oldest(first) == [1]
        assert sorted(map(oldest, others)) == [[2, 3], [4], [5]]
    assert process.calls[0] == [1]
    assert sorted(process.calls[1]) == [2, 3, 4, 5]
    assert len(process.calls) == 2


@pytest.mark.parametrize("told", [Busy("on_notify of 'slow'"), DataflowError("it is over")])
def test_all_are_told_that_a_process_is_busy_or_why_it_failed(told: Any) -> None:
    process = Process()
    process.told = told
    line = Line(process)
    with ThreadPoolExecutor(3) as pool:
        every = [asked(line, pool, 1)]
        assert process.called.acquire(timeout=PATIENCE_S)
        every += [asked(line, pool, 2), asked(line, pool, 3)]
        waiting(line, 2)
        process.may_answer.release(2)
        for each in every:
            if isinstance(told, Busy):
                assert each.result(PATIENCE_S) == told
            else:
                with pytest.raises(DataflowError, match="it is over"):
                    each.result(PATIENCE_S)
    assert len(process.calls) == 2


def test_who_has_no_time_left_waits_for_nobody() -> None:
    process = Process()
    line = Line(process)
    with ThreadPoolExecutor(2) as pool:
        first = asked(line, pool, 1)
        assert process.called.acquire(timeout=PATIENCE_S)
        assert line.ask([question(2)], 0.01) is None
        process.may_answer.release()
        assert oldest(first) == [1]
    assert process.calls == [[1]]
