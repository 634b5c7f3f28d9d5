"""A worker that has nothing to do answers readers without a turn, and still notices everything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from rayad.actors.plane.batch_codec import encode_batch
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, Kind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.reads.questions import Ask, Begun, Look, packed_questions
from rayad.progress import Timestamp
from tests.actors.one_worker import worker_of_two

READER, POLL_S = "reader-1", 0.3
OTHER = Frame(COORDINATOR, int(Kind.GIVE_UP), 0, 0, b"", 1)


class Clock:
    now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s

    monotonic = time = perf_counter


@dataclass
class Polled:
    """A link of which each poll takes a while, and gives what the test says."""

    link: Any
    clock: Clock
    comes: list[tuple[list[Frame], bool]]
    asked_s: list[float] = field(default_factory=list)
    sent: list[tuple[str, int]] = field(default_factory=list)
    was_woken: bool = False

    def poll(self, timeout_s: float) -> list[Frame]:
        self.asked_s.append(round(timeout_s, 6))
        self.clock.now_s += POLL_S
        frames, self.was_woken = self.comes.pop(0)
        return frames

    def connected(self, peer: str) -> bool:
        return True

    def send(self, peer: str, kind: int, channel: int, parts: Any) -> None:
        self.sent.append((peer, int(kind)))

    def calm(self) -> None:
        """It does not spin."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)


def question(ask: Ask, stage: int = 0) -> Frame:
    data = b"".join(encode_batch(Timestamp(1), packed_questions([(ReplicaId(stage, 0), ask)])))
    return Frame(READER, int(Kind.READ), 0, 0, data, 1)


def polled(*comes: tuple[list[Frame], bool]) -> tuple[Any, Polled]:
    clock = Clock()
    worker = worker_of_two(clock, lambda link: Polled(link, clock, list(comes)))
    return worker, worker.link


def test_questions_are_answered_until_something_else_comes() -> None:
    worker, link = polled(([question(Begun())], False), ([question(Begun()), question(Begun())], False), ([OTHER], False))
    assert worker.wait(1.0) == [OTHER]
    assert link.sent == [(READER, Kind.ANSWER)] * 3
    assert link.asked_s == [1.0, 0.7, 0.4], "it waits no longer than it was to"


def test_a_question_beside_something_else_waits_for_the_turn() -> None:
    frames = [question(Begun()), OTHER]
    worker, link = polled((frames, False))
    assert worker.wait(1.0) == frames
    assert not link.sent


def test_it_waits_no_longer_than_it_was_to_however_many_ask() -> None:
    worker, link = polled(*[([question(Begun())], False)] * 9)
    assert worker.wait(1.0) == []
    assert link.asked_s == [1.0, 0.7, 0.4, 0.1]


def test_who_wakes_it_while_it_answers_is_not_forgotten() -> None:
    """The poll that gave the questions has taken the wake-up, too: another one would wait."""
    worker, link = polled(([question(Begun())], False), ([question(Begun())], True))
    assert worker.wait(1.0) == []
    assert len(link.asked_s) == 2


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_a_replica_that_is_read_for_the_first_time_subscribes_at_once(is_subscribed: bool) -> None:
    counts = max(worker_of_two(Clock()).hosts)  # behind its source
    worker, link = polled(*[([question(Look("me", None, -1), counts)], False)] * 2, ([OTHER], False))
    host = worker.hosts[counts]
    host.is_going = host.is_registered = True
    host.place.is_subscribed = is_subscribed
    found = worker.wait(1.0)
    assert found == ([OTHER] if is_subscribed else [])
    worker.turn([])
    assert ((PROGRESS, Kind.SUBSCRIBE) in link.sent) is not is_subscribed
