"""The line to a coordinator, while connections break: unknown is not dead. Without Ray and without waiting: all is scripted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, ObjectLostError, OwnerDiedError, RayError

from rayad.actors.cluster import ray_calls
from rayad.actors.coordinator.outcome import Beat, JobOutcome
from rayad.actors.driver import coordinator_line
from rayad.actors.driver.coordinator_line import CoordinatorLine, Gone, NoAnswer
from rayad.actors.job import JobState, JobStatistics
from rayad.progress import DataflowError

PATIENCE_S = 8.0
COMPLETE = JobOutcome(JobState.COMPLETE, {}, JobStatistics())
RUNNING = Beat(JobState.RUNNING, node="10.0.0.1")


class Clock:
    """Time passes when somebody sleeps or waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Ref:
    """A reference; ``answer`` is None until there is one."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer


def cut() -> RayError:
    return ActorUnavailableError("connection reset", None)


def lost(kind: type[ObjectLostError]) -> RayError:
    return kind("00" * 28, "", "")


class Coordinator:
    """Its actor, and what Ray makes of calls to it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.is_cut = False
        self.is_stopped = False
        self.is_dead = False
        self.is_busy = False
        self.is_killed = False
        self.beat = RUNNING
        self.outcomes: list[Ref] = [Ref()]
        self.looks = 0

    @property
    def outcome(self) -> Ref:
        return self.outcomes[-1]

    def _reply(self, answer: Any) -> Ref:
        if self.is_dead:
            return Ref(ActorDiedError())
        return Ref(cut()) if self.is_cut else Ref(None if self.is_stopped else answer)

    def ping(self) -> Ref:
        return self._reply(self.beat)

    def look(self) -> Ref:
        self.looks += 1
        return Ref() if self.is_busy else self._reply("a look")

    def refuse(self) -> Ref:
        return self._reply(DataflowError("refused"))

    def ask_outcome(self) -> Ref:
        self.outcomes.append(Ref(ActorDiedError()) if self.is_dead else Ref(cut()) if self.is_cut else Ref())
        return self.outcome

    def break_connection(self) -> None:
        """What was under way is lost."""
        self.outcome.answer = cut()

    # -- as Ray
    def wait(self, refs: list[Ref], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Ref], list[Ref]]:
        ready = [ref for ref in refs if ref.answer is not None][:num_returns]
        self.clock.now_s += 0.0 if ready else timeout
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref: Ref, timeout: float = 0.0) -> Any:
        if isinstance(ref.answer, Exception):
            raise ref.answer
        return ref.answer

    def kill(self, actor: Any) -> None:
        self.is_killed = True
        if self.outcome.answer is None:
            self.outcome.answer = ActorDiedError()


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(coordinator_line, "clock", made.clock)
    monkeypatch.setattr(ray_calls, "call", lambda method, *args: method(*args))
    monkeypatch.setattr(ray_calls, "cluster", lambda: "here")
    for name in ("wait", "get", "kill"):
        monkeypatch.setattr(ray_calls, name, getattr(made, name))
    return made


def line_to(coordinator: Coordinator, ask: Callable[[], Any] | None = None) -> CoordinatorLine:
    return CoordinatorLine(coordinator, coordinator.outcome, "j", PATIENCE_S, PATIENCE_S, ask or coordinator.ask_outcome)


def listen(line: CoordinatorLine, coordinator: Coordinator, for_s: float) -> None:
    """As the thread that watches a job."""
    until_s = coordinator.clock.now_s + for_s
    while coordinator.clock.now_s < until_s and not line.has_ended(0.5):
        line.listen()


def test_a_broken_connection_is_not_the_end_and_the_outcome_comes_by_another_reference(coordinator: Coordinator) -> None:
    """Issue 25: ActorUnavailableError is a RayActorError, and was taken for death."""
    line = line_to(coordinator)
    for broken in range(1, 4):
        coordinator.break_connection()
        assert not line.has_ended()
        listen(line, coordinator, 2.0)
        assert len(coordinator.outcomes) == 1 + broken
    coordinator.outcome.answer = COMPLETE
    assert line.has_ended()
    assert (line.take_outcome(), coordinator.is_killed) == (COMPLETE, False)


def test_one_that_cannot_be_reached_is_asked_for_the_heartbeats_time_and_then_ended(coordinator: Coordinator) -> None:
    line = line_to(coordinator)
    listen(line, coordinator, 2.0)
    assert line.beat is RUNNING
    coordinator.is_cut = True
    coordinator.break_connection()
    listen(line, coordinator, PATIENCE_S - 1.0)
    assert not line.has_ended()
    coordinator.is_cut = False
    listen(line, coordinator, 5.0)  # it answers again
    coordinator.is_cut = True
    coordinator.break_connection()
    listen(line, coordinator, PATIENCE_S - 1.0)
    assert not line.has_ended(), "the time before does not count"
    assert not coordinator.is_killed
    listen(line, coordinator, 5.0)
    assert coordinator.is_killed
    with pytest.raises(Gone, match=r"^it has not answered for 8 s: its process is stopped, or its node is gone$"):
        line.take_outcome()


@pytest.mark.parametrize("is_asked_for", ["by its reference", "again"])
def test_one_that_is_dead_as_ray_says_is_gone_at_once(coordinator: Coordinator, is_asked_for: str) -> None:
    line = line_to(coordinator)
    if is_asked_for == "again":
        coordinator.break_connection()
        assert not line.has_ended()
    coordinator.is_dead = True
    coordinator.outcome.answer = coordinator.outcome.answer or ActorDiedError()
    listen(line, coordinator, 1.0)
    assert coordinator.clock.now_s < 1.0
    with pytest.raises(Gone, match=r"^The actor died unexpectedly before finishing this task\.$"):
        line.take_outcome()


def test_a_reference_whose_owner_cannot_be_reached_is_asked_for_and_lost_when_the_coordinator_is_dead_too(coordinator: Coordinator) -> None:
    line = line_to(coordinator)
    coordinator.outcome.answer = lost(OwnerDiedError)
    assert not line.has_ended()
    listen(line, coordinator, 2.0)
    assert not line.has_ended()
    coordinator.outcome.answer = lost(OwnerDiedError)
    coordinator.is_dead = True
    listen(line, coordinator, 2.0)
    with pytest.raises(Gone, match=r"^the process that started the job has ended, and the job with it$"):
        line.take_outcome()


def test_results_that_are_lost_or_late_are_asked_for_again(coordinator: Coordinator) -> None:
    """Regression: results that could not be fetched within ten seconds counted as the coordinator's death."""
    line = line_to(coordinator)
    coordinator.outcome.answer = GetTimeoutError("too large")
    assert not line.has_ended()
    assert len(coordinator.outcomes) == 1
    coordinator.outcome.answer = lost(ObjectLostError)
    assert not line.has_ended()
    listen(line, coordinator, 1.0)
    coordinator.outcome.answer = COMPLETE
    assert line.has_ended()


def test_a_call_is_made_again_within_its_timeout(coordinator: Coordinator) -> None:
    line = line_to(coordinator)
    coordinator.is_cut = True
    with pytest.raises(NoAnswer, match=r"^job 'j': the coordinator has not answered look\(\) within 0\.9 s$"):
        line.call("look", timeout_s=0.9)
    assert coordinator.looks > 1
    pass_time = coordinator.clock.sleep

    def mend(seconds: float) -> None:
        pass_time(seconds)
        coordinator.is_cut = coordinator.clock.now_s < 5.0

    coordinator.clock.sleep = mend  # type: ignore[method-assign]
    assert line.call("look", timeout_s=10.0) == "a look"
    with pytest.raises(DataflowError, match="refused"):
        line.call("refuse", timeout_s=1.0)
    coordinator.is_dead = True
    with pytest.raises(Gone):
        line.call("look", timeout_s=1.0)


def test_who_does_not_answer_is_well_if_its_heartbeat_is(coordinator: Coordinator) -> None:
    line = line_to(coordinator)
    listen(line, coordinator, 1.0)
    coordinator.is_busy = True
    with pytest.raises(NoAnswer):
        line.call("look", timeout_s=0.9)
    told = "the coordinator on node 10.0.0.1 answers heartbeats, and has not told of the job within 0.9 s: it has much to do"
    assert str(line.silence(0.9, 1.0)) == told
    coordinator.is_stopped = True
    with pytest.raises(NoAnswer):
        line.call("look", timeout_s=0.9)
    told = "the coordinator on node 10.0.0.1 has not answered for 0.9 s: its process is stopped, or its node is gone"
    assert str(line.silence(0.9, 1.0)) == told


def test_the_outcome_of_a_deposed_coordinator_whose_thread_hangs_is_asked_for(coordinator: Coordinator) -> None:
    line = line_to(coordinator)
    coordinator.beat = Beat(JobState.RUNNING, is_deposed=True)
    listen(line, coordinator, 5.0)
    assert len(coordinator.outcomes) == 2
    coordinator.outcome.answer = JobOutcome(JobState.FAILED, {}, JobStatistics())
    assert line.has_ended()
    assert line.take_outcome().state is JobState.FAILED
