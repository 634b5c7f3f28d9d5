"""Spare processes are asked once for each job whether they are fit, and before the job waits for it where that is possible."""

import time
from types import SimpleNamespace
from typing import Any

from rayad.actors.coordinator.processes.kinds import Kind
from rayad.actors.coordinator.processes.spares import Spares
from rayad.actors.coordinator.surroundings import Answer, Ended, Gave

WORKER, OTHER = Kind("worker", {"num_cpus": 1}, 8), Kind("vertex", {"num_gpus": 1})


class Calls:
    """What was asked of processes, and which of them answer how."""

    def __init__(self, **answers: Answer) -> None:
        self.asked: list[tuple[str, str]] = []
        self.killed: list[str] = []
        self._answers = answers

    def call(self, actor: str, method: str) -> tuple[str, str]:
        self.asked.append((actor, method))
        return actor, method

    def take(self, ref: tuple[str, str], timeout_s: float) -> Answer:
        actor, method = ref
        return self._answers.get(actor, Gave(True)) if method == "is_fit" else Gave(None)

    def kill(self, actor: str) -> None:
        self.killed.append(actor)

    def of(self, method: str) -> list[str]:
        return [actor for actor, asked in self.asked if asked == method]


def spares(calls: Calls) -> Spares:
    around: Any = SimpleNamespace(actors=calls, clock=time)
    return Spares(around)


def test_who_asks_early_is_not_asked_again_when_the_job_selects() -> None:
    calls = Calls()
    held = spares(calls)
    held.keep(WORKER, "a", None)
    held.keep(WORKER, "b", None)
    held.ask()
    held.select([WORKER])
    assert (calls.of("rest"), calls.of("is_fit"), calls.killed) == (["a", "b"], ["a", "b"], [])


def test_a_spare_that_no_job_has_taken_is_asked_again_for_the_next_one() -> None:
    calls = Calls()
    held = spares(calls)
    held.keep(WORKER, "a", None)
    held.select([WORKER])
    held.ask()
    held.select([WORKER])
    assert calls.of("is_fit") == ["a", "a"]
    assert held.take(WORKER) == ("a", None)
    assert held.take(WORKER) is None


def test_one_that_says_no_or_has_died_or_is_of_no_use_is_ended() -> None:
    calls = Calls(changed=Gave(False), dead=Ended("it died"))
    held = spares(calls)
    for name in ("changed", "dead", "well"):
        held.keep(WORKER, name, None)
    held.keep(OTHER, "gpu", None)
    held.ask()
    held.select([WORKER])
    assert sorted(calls.killed) == ["changed", "dead", "gpu"]
    assert len(held) == 1


def test_one_that_still_starts_is_not_asked() -> None:
    calls = Calls()
    held = spares(calls)
    held.add(WORKER, "new", None)
    held.ask()
    held.select([WORKER])
    assert calls.asked == []
    assert held.take(WORKER) == ("new", None)
