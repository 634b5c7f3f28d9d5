"""SIGTERM to a driver, without Ray: jobs are saved once, the process ends with 143, and a second signal or a late job ends it at once."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from rayad.actors.driver.termination import STATUS, Termination, is_default


class Saved:
    """A job that notes when it is ended."""

    def __init__(self, name: str, gate: threading.Event | None = None) -> None:
        self.name, self.gate, self.ended = name, gate, 0

    def save_and_end(self, timeout_s: float) -> str:
        if self.gate is not None:
            self.gate.wait(30)
        self.ended += 1
        return "is saved in /store/000000000004"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that the saving thread has sent to the main thread, instead of them."""
    sent: list[int] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: sent.append(number))
    return sent


def watching(*jobs: Saved, timeout_s: float = 20.0) -> tuple[Termination, list[int]]:
    exits: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    termination = Termination(exits.append)
    for job in jobs:
        termination.watch(job, timeout_s)
    signal.signal(signal.SIGTERM, before)
    return termination, exits


def saving() -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == "rayad-sigterm")


def test_all_jobs_are_saved_and_then_the_main_thread_ends_with_143(told: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [Saved("one"), Saved("two")]
    termination, exits = watching(*jobs)
    termination.on_signal(signal.SIGTERM, None)
    for thread in [thread for thread in threading.enumerate() if thread.name == "rayad-sigterm"]:
        thread.join(20)
    assert [job.ended for job in jobs] == [1, 1]
    assert told == [signal.SIGTERM]
    with pytest.raises(SystemExit) as ended:
        termination.on_signal(signal.SIGTERM, None)
    assert (ended.value.code, exits) == (STATUS, [])
    lines = sorted(capsys.readouterr().err.splitlines())
    assert lines == [f"rayad: SIGTERM: job {name!r}: is saved in /store/000000000004" for name in ("one", "two")]


def test_a_second_signal_ends_at_once(told: list[int]) -> None:
    gate = threading.Event()
    job = Saved("slow", gate)
    termination, exits = watching(job)
    termination.on_signal(signal.SIGTERM, None)
    thread = saving()
    termination.on_signal(signal.SIGTERM, None)
    assert exits == [STATUS]
    gate.set()
    thread.join(20)


def test_a_job_that_does_not_end_in_time_does_not_hold_the_process(told: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    gate = threading.Event()
    job = Saved("hung", gate)
    termination, exits = watching(job, timeout_s=0.1)
    termination.on_signal(signal.SIGTERM, None)
    for thread in [thread for thread in threading.enumerate() if thread.name == "rayad-sigterm"]:
        thread.join(20)
    assert exits == [STATUS]
    assert told == []
    assert capsys.readouterr().err == "rayad: SIGTERM: the jobs did not end within 0.1 s: ending at once\n"
    gate.set()


def test_without_a_job_the_process_just_ends() -> None:
    job = Saved("over")
    termination, _ = watching(job)
    termination.release(job)
    with pytest.raises(SystemExit):
        termination.on_signal(signal.SIGTERM, None)
    assert job.ended == 0


def users(number: int, frame: Any) -> None:
    """A handler of the user's."""


def test_a_signal_handler_of_the_user_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, users)
        Termination().watch(Saved("job"), 1.0)
        assert signal.getsignal(signal.SIGTERM) is users
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        termination = Termination()
        termination.watch(Saved("job"), 1.0)
        assert signal.getsignal(signal.SIGTERM) == termination.on_signal
        assert is_default(termination.on_signal)
    finally:
        signal.signal(signal.SIGTERM, before)
