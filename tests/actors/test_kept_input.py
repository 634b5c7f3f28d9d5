"""A live input of a detached job, with a keeper that answers as a test says, and a clock that moves while it does not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rayad.actors.cluster.names import Entry, Role
from rayad.actors.driver.coordinator_line import NoAnswer
from rayad.actors.driver.kept_input import LOST_S, InputState, KeptInput
from rayad.progress import RayadError
from tests.patience import PATIENCE_S


class Keeper:
    """Takes calls in the place of the line to a keeper."""

    entry = Entry(Role.KEEPER, "job", "token")

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[str] = []
        self.mood = "well"
        self.may_answer, self.is_asked = threading.Event(), threading.Event()

    def monotonic(self) -> float:
        return self.now_s

    def call(self, method: str, name: str, mark: str, act: str, args: Any, hold_s: float, *, timeout_s: float) -> InputState | None:
        self.calls.append(act)
        match self.mood:
            case "silent":
                self.now_s += timeout_s
                raise NoAnswer(method)
            case "full":
                self.now_s += hold_s + 0.001
                return None
            case "failing":
                raise RayadError("the store is full")
            case "slow":
                self.is_asked.set()
                assert self.may_answer.wait(PATIENCE_S)
        return InputState(1, 0, act == "close", None)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    keeper = Keeper()
    monkeypatch.setattr("rayad.actors.driver.kept_input.clock", keeper)
    return keeper


def test_a_close_that_fails_may_be_repeated(keeper: Keeper) -> None:
    """It marked the input closed before the keeper had taken it: the second call did nothing."""
    live = KeptInput("in", keeper)  # type: ignore[arg-type]
    keeper.mood = "failing"
    with pytest.raises(RayadError, match="the store is full"):
        live.close()
    assert not live.closed
    keeper.mood = "well"
    live.close()
    live.close()
    assert live.closed
    assert keeper.calls == ["look", "close", "close"]


def test_a_send_that_the_keeper_has_refused_was_not_taken_and_one_without_an_answer_perhaps(keeper: Keeper) -> None:
    live = KeptInput("in", keeper)  # type: ignore[arg-type]
    keeper.mood = "full"
    with pytest.raises(TimeoutError, match=r"^input 'in' of job 'job' has taken nothing for 7 s: nothing was sent"):
        live.send([1], timeout_s=7.0)
    assert 107.0 < keeper.now_s < 107.1
    keeper.mood = "silent"
    with pytest.raises(TimeoutError) as caught:
        live.send([1], timeout_s=7.0)
    assert str(caught.value) == (
        "input 'in' of job 'job': its keeper has not answered for 7 s, so it is not known whether the records were taken: once it answers, "
        "job.input(name).sent says how many calls of send it has taken"
    )
    assert keeper.now_s < 114.1 + LOST_S


def test_a_send_ends_in_time_while_another_one_of_the_same_handle_waits(keeper: Keeper) -> None:
    """It waited for the other thread first, however long."""
    live = KeptInput("in", keeper)  # type: ignore[arg-type]
    keeper.mood = "slow"
    other = threading.Thread(target=live.send, args=([1],), daemon=True)
    other.start()
    assert keeper.is_asked.wait(PATIENCE_S)
    with pytest.raises(TimeoutError, match=r"^input 'in' of job 'job' has taken nothing for 0.01 s: nothing was sent"):
        live.send([2], timeout_s=0.01)
    keeper.may_answer.set()
    other.join(PATIENCE_S)
    assert keeper.calls == ["look", "send"]
