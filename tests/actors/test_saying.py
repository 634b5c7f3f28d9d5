"""What a long start says, and to whom."""

from __future__ import annotations

import sys
import threading

import pytest

from rayad.actors.cluster import saying as module
from rayad.actors.cluster.saying import saying
from tests.patience import PATIENCE_S

Screen = pytest.CaptureFixture[str]


def watched(monkeypatch: pytest.MonkeyPatch, *after_s: float) -> None:
    """As if stderr were a terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(module, "AFTER_S", after_s)


def test_what_is_waited_for_is_said_until_there_is_no_more_to_say(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch, 0.001, 0.002)
    told = iter(["1 of 3 actors have started", "2 of 3 actors have started", None])
    asked_last = threading.Event()

    def tell() -> str | None:
        text = next(told)
        if text is None:
            asked_last.set()
        return text

    with saying(tell):
        assert asked_last.wait(PATIENCE_S)
    assert capsys.readouterr().err == "rayad: 1 of 3 actors have started\nrayad: 2 of 3 actors have started\n"


def test_what_is_over_at_once_says_nothing(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch, PATIENCE_S)
    with saying(lambda: "never"):
        pass
    assert capsys.readouterr().err == ""


def test_a_log_gets_nothing(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    before = threading.active_count()
    with saying(lambda: "never"):
        assert threading.active_count() == before
    assert capsys.readouterr().err == ""


def test_what_cannot_be_told_is_no_error(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch, 0.001)
    asked = threading.Event()

    def fails() -> str:
        asked.set()
        raise RuntimeError("the job has just ended")

    with saying(fails):
        assert asked.wait(PATIENCE_S)
    assert capsys.readouterr().err == ""
