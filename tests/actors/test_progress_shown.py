"""Where the line of progress is shown, how often, and that nothing that fails in showing it reaches the job."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pyte
import pytest

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status import progress_places as places
from rayad.actors.status import progress_shown as module
from rayad.actors.status.job_status import JobStatus
from rayad.actors.status.progress_line import Line, ProgressLine
from rayad.actors.status.progress_places import InLog, InNotebook, OnTerminal, place_here
from rayad.actors.status.progress_shown import VARIABLE, Showing, is_wanted, showing
from rayad.progress import ConfigError

LINE = Line("wordcount", 0.5, "3 s, 10 records/s")
STATUS = JobStatus("wordcount", JobState.RUNNING)


class Screen(io.StringIO):
    """A terminal that is written to, and its screen."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, columns: int = 60) -> None:
        super().__init__()
        self._screen = pyte.Screen(columns, 10)
        self._stream = pyte.Stream(self._screen)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display if line.strip()]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A terminal for stdout and stderr: see :func:`on_terminal`."""
    terminal = Screen()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    yield terminal
    is_free = not places._LIVE.locked()
    if not is_free:
        places._LIVE.release()
    assert is_free, "a line that ended still has the terminal"


def on_terminal(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    monkeypatch.setattr(sys, "stderr", screen)  # here, as pytest sets both anew between a fixture and a test
    monkeypatch.setattr(sys, "stdout", screen)
    place = place_here()
    assert isinstance(place, OnTerminal)
    return place


BAR = "━" * 10 + "─" * 10


def test_a_terminal_has_the_line_once_and_nothing_at_the_end(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    place = on_terminal(screen, monkeypatch)
    place.show(Line("wordcount", None, "a longer text than the one that follows"))
    place.show(LINE)
    assert screen.lines == [f"rayad: 'wordcount' {BAR} 50%  3 s, 10 re…"]
    place.end("job 'wordcount' is complete", 9.9)
    assert screen.lines == []
    assert sys.stdout is sys.stderr is screen


def test_what_the_program_prints_goes_above_it_unchanged(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    place = on_terminal(screen, monkeypatch)
    place.show(LINE)
    print("first")
    print("half of", end="")
    place.show(LINE)
    assert screen.lines[:2] == ["first", "half of"], "no line is drawn behind part of one"
    print(" the second", file=sys.stderr)
    place.show(LINE)
    assert screen.lines[:2] == ["first", "half of the second"]
    assert screen.lines[2].startswith("rayad: 'wordcount'")
    place.end(None, 20.0)
    assert screen.lines == ["first", "half of the second"]


def test_a_long_wait_leaves_one_line(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    place = on_terminal(screen, monkeypatch)
    place.show(LINE)
    place.end("job 'wordcount' is complete after 12 s", 12.0)
    assert screen.lines == ["rayad: job 'wordcount' is complete after 12 s"]


def test_what_a_terminal_obeys_is_shown_and_not_sent(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    place = on_terminal(screen, monkeypatch)
    place.show(Line("\x1b]0;title\x07", None, "the last because \x1b[2J"))
    assert screen.lines[0].endswith("the last because \\x1b[2J")
    place.end(None, 1.0)


def test_a_second_line_and_a_terminal_that_cannot_erase_get_plain_lines(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    first = on_terminal(screen, monkeypatch)
    assert isinstance(place_here(), InLog)
    first.end(None, 0.0)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(place_here(), InLog)


def test_a_log_gets_nothing_of_short_waits_and_few_lines_of_long_ones(capsys: pytest.CaptureFixture[str]) -> None:
    place = InLog()
    place.end("job 'wordcount' is complete", 9.0)
    assert capsys.readouterr().err == ""
    place.show(LINE)
    place.end("job 'wordcount' is complete after 12 s", 12.0)
    assert capsys.readouterr().err.splitlines() == [
        "rayad: job 'wordcount': 50% 3 s, 10 records/s",
        "rayad: job 'wordcount' is complete after 12 s",
    ]
    at_s, lines = place.first_s, 0
    while at_s < 3600.0:
        at_s, lines = place.next_s(at_s), lines + 1
    assert place.next_s(10.0) == 20.0
    assert lines < 90


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Kept(places.Place):
    """Keeps what it is given."""

    first_s = 5.0

    def __init__(self, fails: bool = False) -> None:
        self.shown: list[Line] = []
        self.ended: list[str | None] = []
        self.fails = fails

    def next_s(self, at_s: float) -> float:
        return at_s + 1.0

    def show(self, line: Line) -> None:
        self.shown.append(line)
        if self.fails:
            raise OSError("the terminal is gone")

    def end(self, summary: str | None, at_s: float) -> None:
        self.ended.append(summary)


def test_it_looks_early_shows_later_and_then_at_intervals() -> None:
    clock, place = Clock(), Kept()
    shown = Showing(ProgressLine("wordcount"), place, clock)
    looks: list[float] = []

    def look() -> tuple[JobStatus, str]:
        looks.append(clock.now_s)
        return STATUS, ""

    for tenth in range(80):
        clock.now_s = tenth / 10
        if shown.is_due:
            shown.look(look)
    assert (looks[0], looks[1]) == (1.0, 5.0)
    assert len(place.shown) == len(looks) - 1
    shown.complete(7)
    shown.end("complete")
    assert place.ended == ["job 'wordcount' is complete after 8 s, 7 records read (0.89/s)"]


def test_a_look_that_takes_long_is_followed_by_a_pause_four_hundred_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, used = Clock(), iter([0.0, 5.0, 5.1])
    monkeypatch.setattr(module.clock, "thread_time", lambda: next(used))
    shown = Showing(ProgressLine("wordcount"), Kept(), clock)
    clock.now_s = 6.0
    shown.look(lambda: (STATUS, ""))  # the first time it imports what shows it: that is not counted
    clock.now_s = 20.0
    shown.look(lambda: (STATUS, ""))
    clock.now_s = 59.9
    assert not shown.is_due
    clock.now_s = 60.0
    assert shown.is_due


@pytest.mark.parametrize("place_fails", [True, False])
def test_what_fails_is_told_once_and_the_job_goes_on(place_fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock, place = Clock(), Kept(fails=place_fails)
    shown = Showing(ProgressLine("wordcount"), place, clock)

    def look() -> tuple[JobStatus, str]:
        if not place_fails:
            raise ValueError("no status")
        return STATUS, ""

    for second in range(10):
        clock.now_s = float(second)
        shown.look(look)
    assert not shown.is_due
    shown.end("complete")
    assert [record.getMessage() for record in caplog.records] == ["the progress of the job cannot be shown any more; the job goes on"]
    assert len(place.ended) == 1


def test_an_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert is_wanted(None, "run")
    monkeypatch.setenv(VARIABLE, "0")
    assert not is_wanted(None, "run")
    assert is_wanted(True, "run")
    with showing("wordcount", None, "run") as shown:
        assert shown is None
    with pytest.raises(ConfigError, match=r"run\(progress\) is 'yes': it must be True or False"):
        is_wanted("yes", "run")  # type: ignore[arg-type]


def test_an_error_leaves_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Kept()
    monkeypatch.setattr(module, "place_here", lambda: place)
    with pytest.raises(ValueError, match="of the job"), showing("wordcount", True, "run"):
        raise ValueError("of the job")
    with showing("wordcount", True, "run"):
        pass
    assert place.ended == [None, "job 'wordcount' is complete after 0 s"]


class Display:
    """IPython's display of one output."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: Any) -> None:
        self.shown.append(html.data)


def test_a_notebook_updates_one_display(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    display = Display()

    def first(html: Any, display_id: bool) -> Display:
        assert display_id
        display.update(html)
        return display

    monkeypatch.setattr(IPython.display, "display", first)
    place = InNotebook()
    place.show(Line("a<b", 0.5, "3 s"))
    place.show(Line("a<b", None, "4 s"))
    place.end("job is complete", 4.0)
    assert display.shown == [
        '<div><b>a&lt;b</b> <progress value="0.500" max="1"></progress> 50% 3 s</div>',
        "<div><b>a&lt;b</b> 4 s</div>",
        "<div>job is complete</div>",
    ]
