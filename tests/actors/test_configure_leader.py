"""The leader of a change of runtime parameters decides by events alone: three turns, each after all answers of the previous one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.lead import calls
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Died, Event, JobFailed, Late, Tick
from rayad.actors.lead.change_protocol import GRACE_S, GiveWay
from rayad.actors.lead.configure_leader import STAGES, TURN_TIMEOUT_S, Configured, ConfigureLeader, Effect, NotConfigured
from rayad.actors.plane.protocol import PROGRESS

CHANGES = {"batch_rows": 7}
NAMES = ("v0.0", "v1.0", "v1.1")


def configure(turn: int, stage: str) -> Ask:
    return Ask(turn, NAMES, calls.Configure(CHANGES, stage))


def release(turn: int) -> Ask:
    return Ask(turn, (PROGRESS,), calls.Release())


def stages_of(effects: list[Effect]) -> list[str]:
    return [effect.call.stage for effect in effects if isinstance(effect, Ask) and isinstance(effect.call, calls.Configure)]


class Led:
    """A leader and its events; earlier changes used the turns up to 7."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.leader = ConfigureLeader(NAMES, CHANGES, turn=7)

    def tell(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        self.now_s += after_s
        return self.leader.handle(event, self.now_s)

    def done(self, *names: str) -> list[Effect]:
        """These actors answer in this turn; gives the effects of the last answer."""
        out: list[Effect] = []
        for name in names:
            assert not out, f"{out} before {name} has answered"
            out = self.tell(Answered(self.leader.turn, name, True if name == PROGRESS else None))
        return out

    def at(self, stage: str) -> Led:
        """All have answered until this stage was asked for."""
        self.tell(Asked())
        for _ in range(STAGES.index(stage) + 1):
            found = self.done(*([PROGRESS] if self.leader.turn == 8 else NAMES))
        assert found == [configure(self.leader.turn, stage)]
        return self


def test_receivers_then_senders_then_receivers_change_while_the_job_is_held() -> None:
    led = Led()
    assert led.tell(Asked()) == [Ask(8, (PROGRESS,), calls.Hold())]
    assert led.done(PROGRESS) == [configure(9, "first")]
    assert led.done(*NAMES) == [configure(10, "senders")]
    assert led.done(*NAMES) == [configure(11, "receivers")]
    assert led.done(*NAMES) == [release(12), Configured()]
    assert led.leader.outcome == Configured()


@pytest.mark.parametrize(
    "event",
    [
        Answered(9, NAMES[0]),
        Answered(10, NAMES[1]),
        Answered(10, PROGRESS),
        Died(9, NAMES[0]),
        Broke(9, NAMES[0], "of the turn before"),
        Died(10, NAMES[1]),
        Answered(8, PROGRESS, False),
        Late(10, NAMES[1]),
    ],
    ids=str,
)
def test_answers_of_earlier_turns_second_answers_and_answers_of_others_are_void(event: Event) -> None:
    led = Led().at("senders")
    led.done(NAMES[1])
    assert led.tell(event) == []
    assert led.done(NAMES[0], NAMES[2]) == [configure(11, "receivers")]


@pytest.mark.parametrize("stage", STAGES)
def test_missing_answers_are_counted_and_the_job_is_released(stage: str) -> None:
    led = Led().at(stage)
    led.done(NAMES[0])
    assert led.tell(Tick(), TURN_TIMEOUT_S) == []
    assert led.tell(Tick(), 0.1) == [release(led.leader.turn), NotConfigured("2 actors did not answer within 60 s")]
    assert led.done(NAMES[1]) == led.tell(JobFailed()) == led.tell(Tick(), 1000.0) == [], "it is over"


def test_each_turn_has_its_own_time_and_long_activations_are_waited_for() -> None:
    led = Led().at("first")
    led.tell(Tick(), TURN_TIMEOUT_S - 1.0)
    led.done(*NAMES)
    assert led.tell(Tick(), TURN_TIMEOUT_S) == []
    for _ in range(100):
        assert led.tell(Tick("'count'[0] is in on_recv for 40.0 s"), GRACE_S / 2) == []
    assert led.tell(Tick(), GRACE_S) == []
    assert led.tell(Tick(), 0.1)[0] == release(led.leader.turn)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["the job fails", "a replica dies"])
def test_after_a_failure_replicas_restart_with_the_new_parameters(stage: str, how: str) -> None:
    led = Led().at(stage)
    event = JobFailed() if how == "the job fails" else Died(led.leader.turn, NAMES[2])
    assert led.tell(event) == [release(led.leader.turn), GiveWay()]


def test_an_error_of_a_replica_is_told_with_its_cause() -> None:
    led, cause = Led().at("senders"), ValueError("bad")
    assert led.tell(Broke(10, NAMES[0], "bad", cause)) == [release(11), NotConfigured("bad", cause)]


def test_a_job_that_is_over_is_not_released() -> None:
    led = Led()
    led.tell(Asked())
    assert led.tell(Answered(8, PROGRESS, False)) == [GiveWay()]


def test_a_failure_before_the_job_was_asked_releases_nothing() -> None:
    assert Led().tell(JobFailed()) == [GiveWay()]


@given(seed=st.integers(0, 2**32))
def test_whatever_comes_in_whatever_order_the_stages_come_in_turn_and_the_job_is_released_once(seed: int) -> None:
    rng, led = random.Random(seed), Led()
    said = led.tell(Asked())
    missing = {PROGRESS}
    is_over = False
    while led.leader.outcome is None:
        turn, name = led.leader.turn - (rng.random() < 0.2), rng.choice([PROGRESS, *NAMES])
        answers: list[Event] = [Answered(turn, name, True)] * 12 + [Died(turn, name), Broke(turn, name, "why"), JobFailed()]
        answers.append(Answered(8, PROGRESS, False))
        event = rng.choice([*answers, Tick("busy"), Tick()])
        is_answer = isinstance(event, Answered) and event.turn == led.leader.turn and event.name in missing
        is_over = is_answer and isinstance(event, Answered) and event.value is False
        found = led.tell(event, rng.choice([0.0, 1.0, 20.0]))
        missing -= {event.name} if is_answer and isinstance(event, Answered) else set()
        if stages_of(found):
            assert not missing, "a turn began before all had answered"
            missing = set(NAMES)
        said += found
    stages = stages_of(said)
    assert stages == list(STAGES[: len(stages)])
    assert said[-1] == led.leader.outcome
    if said[-1] == Configured():
        assert (stages, missing) == (list(STAGES), set())
    assert sum(isinstance(effect, Ask) and effect.call == calls.Release() for effect in said) == (not is_over)
