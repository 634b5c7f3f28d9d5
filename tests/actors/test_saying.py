"""What a long start says, when, and how."""

from __future__ import annotations

import itertools
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.cluster import saying as module
from rayad.actors.cluster.saying import saying
from rayad.actors.cluster.start_lines import CHANGED_S, FIRST_S, SAME_S, StartLines
from tests.patience import PATIENCE_S

Screen = pytest.CaptureFixture[str]


@given(st.lists(st.tuples(st.sampled_from(["", "1 of 3", "2 of 3"]), st.floats(0.0, 9.0)), max_size=60))
def test_lines_are_never_early_and_never_far_apart(looks: list[tuple[str, float]]) -> None:
    lines, at_s, said = StartLines("Spark"), 0.0, list[tuple[str, float]]()
    for text, later_s in looks:
        at_s += later_s
        due = at_s >= FIRST_S if not said else at_s - said[-1][1] >= (SAME_S if text == said[-1][0] else CHANGED_S)
        line = lines.due(text, at_s)
        assert (line is not None) == due
        if line is not None:
            assert line == lines.now(text, at_s)
            said.append((text, at_s))
    assert (lines.over(at_s) is None) == (at_s < FIRST_S)


def test_the_lines_name_what_is_waited_for_and_how_long_it_took() -> None:
    lines = StartLines("the start of job 'a'")
    assert lines.due("1 of 3 actors are up", 2.0) == "waiting for the start of job 'a', 2 s: 1 of 3 actors are up"
    assert StartLines("Ray").due("", 2.4) == "waiting for Ray, 2 s"
    assert lines.over(3.14) == "the start of job 'a' took 3.1 s"


def at_once(monkeypatch: pytest.MonkeyPatch, *, notebook: bool = True) -> None:
    """Waits are told from the beginning; to a notebook, or to nobody."""
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    else:
        monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 0.001)


@pytest.mark.parametrize("notebook", [True, False])
def test_a_notebook_gets_plain_lines_and_others_log_records(
    notebook: bool, capsys: Screen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch, notebook=notebook)
    caplog.set_level("INFO", module.__name__)
    told, asked_last = itertools.chain(["1 of 3 actors are up"], itertools.repeat(None)), threading.Event()

    def tell() -> str | None:
        text = next(told)
        if text is None:
            asked_last.set()
        return text

    monkeypatch.setattr(module, "LOOK_S", PATIENCE_S / 1000)
    with saying("the start", tell):
        assert asked_last.wait(PATIENCE_S)
    printed = capsys.readouterr().err.splitlines()
    first, last = [line.removeprefix("rayad: ") for line in printed] if notebook else caplog.messages
    assert bool(printed) == notebook
    assert first == "waiting for the start, 0 s: 1 of 3 actors are up"
    assert last.startswith("the start took ")


def test_a_log_that_wants_no_such_records_gets_nothing(
    capsys: Screen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch, notebook=False)
    caplog.set_level("WARNING", module.__name__)
    before = threading.active_count()
    with saying("the start"):
        assert threading.active_count() == before
    assert capsys.readouterr().err == ""


def test_what_is_over_at_once_says_nothing(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(module, "FIRST_S", PATIENCE_S)
    with saying("the start"):
        pass
    assert capsys.readouterr().err == ""
    assert not [thread for thread in threading.enumerate() if thread.name == "rayad-saying"]


def test_what_fails_does_not_say_how_long_it_took(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    asked = threading.Event()

    def tell() -> str:
        asked.set()
        return "Java"

    def fails() -> None:
        assert asked.wait(PATIENCE_S)
        raise RuntimeError("no Java")

    with pytest.raises(RuntimeError, match="no Java"), saying("Spark", tell):
        fails()
    assert "took" not in capsys.readouterr().err


def test_what_cannot_be_told_is_no_error(capsys: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    asked = threading.Event()

    def fails() -> str:
        asked.set()
        raise RuntimeError("the job has just ended")

    with saying("the start", fails):
        assert asked.wait(PATIENCE_S)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_spinner_unless_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console
    from rich.status import Status

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert isinstance(module._spinner(), Status)
    with Console(stderr=True, force_terminal=True).status("another's"):
        assert not isinstance(module._spinner(), Status)
