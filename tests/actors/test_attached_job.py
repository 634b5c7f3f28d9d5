"""A handle that did not start its job, while coordinators die: what it asked of one, the next one is told.

Without Ray and without waiting: coordinators and the clock are scripted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import rayad as rd
from rayad.actors.cluster import names, ray_calls
from rayad.actors.coordinator.outcome import About, Beat, JobOutcome
from rayad.actors.driver import attached_job, job_handle, ray_job
from rayad.actors.driver.attached_job import AttachedJob, _Found
from rayad.actors.driver.coordinator_line import Gone
from rayad.actors.driver.job_handle import CANCEL_S
from rayad.actors.driver.keeper_line import KeeperLine
from rayad.actors.driver.ray_job import RayJob, succession_of
from rayad.actors.job import JobProgress, JobState, JobStatistics

WAIT_S = 4.0
"""How long a coordinator that died may be without a successor."""
SURVIVING = rd.FailureConfig(max_failures=9, delay_s=WAIT_S / 2, delay_max_s=WAIT_S / 2, heartbeat_timeout_s=WAIT_S / 2)


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Scripted:
    """A coordinator, its actor and the line to it: it runs until it is asked to end, or dies just after it has heard something."""

    def __init__(self, table: Table, dies_after: str = "") -> None:
        self.runs = (*table.runs, f"run {len(table.runs)}")
        self.heard: list[str] = []
        self.given_up = ""
        self.is_dead = False
        self._clock = table.clock
        self._dies_after = dies_after

    def hear(self, what: str) -> None:
        self.heard.append(what)
        self.is_dead = self.is_dead or what == self._dies_after

    # -- as its actor
    def cancel(self) -> None:
        self.hear("cancel")

    def stop(self, cut_inputs: bool) -> None:
        self.hear("stop")

    # -- as the line to it
    @property
    def actor(self) -> Scripted:
        return self

    def is_connected(self) -> bool:
        return True

    def kill(self) -> None:
        self.is_dead = True

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        has_ended = self.is_dead or bool(self.heard)
        self._clock.now_s += 0.0 if has_ended else timeout_s
        return has_ended

    def take_outcome(self) -> JobOutcome:
        if self.is_dead:
            raise Gone("killed")
        return JobOutcome(JobState.CANCELLED if "cancel" in self.heard else JobState.COMPLETE, {}, JobStatistics())

    def call(self, method: str, *args: Any, timeout_s: float) -> None:
        if self.is_dead:
            raise Gone("killed")
        self.hear(method)


class Table:
    """Coordinators of a name, as Ray's table has them: the next one is there after so many looks."""

    def __init__(self) -> None:
        self.runs: tuple[str, ...] = ()
        self.now: Scripted | None = None
        self.later: Callable[[], Scripted] | None = None
        self.looks = 0
        self.clock = Clock()
        self.mute: set[str] = set()
        """Tokens of those that do not answer yet."""

    def begin(self, dies_after: str = "") -> Scripted:
        self.now = Scripted(self, dies_after)
        self.runs = self.now.runs
        return self.now

    def found(self) -> _Found | None:
        if self.now is None:
            return None
        about = About(PLAN, CONFIG, None, self.now.runs)
        return _Found(self.now.runs[-1], self.now, about)

    def look_up(self, name: str, besides: str = "") -> _Found | None:
        self.looks -= 1
        if self.looks < 0 and self.later is not None:
            self.later, later = None, self.later
            self.mute.clear()
            self.now = later()
        found = self.found()
        return found if found is not None and found.token != besides else None


def _plan() -> Any:
    flow = rd.Dataflow("shared")
    flow.input("numbers").collect("out")
    return flow.plan()


PLAN = _plan()
CONFIG = rd.RunConfig(storage_path="unused", failures=SURVIVING)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    table = Table()
    monkeypatch.setattr(attached_job, "_look_up", table.look_up)
    for module in (attached_job, job_handle):
        monkeypatch.setattr(module, "clock", table.clock)
    monkeypatch.setattr(names, "find", lambda name, role=None: {} if role is names.Role.KEEPER else dict.fromkeys(table.mute))
    monkeypatch.setattr(ray_calls, "call", lambda method, *args: method(*args))
    monkeypatch.setattr(AttachedJob, "_line_to", lambda self, found: found.actor)
    return table


def attached(table: Table) -> AttachedJob:
    found = table.found()
    assert found is not None
    return AttachedJob("shared", found)


@pytest.mark.parametrize("looks", [0, 20])
@pytest.mark.parametrize(("dies_after", "asked_before_death"), [("cancel", True), ("", False)])
def test_a_cancel_that_the_owner_has_not_heard_of_is_told_to_the_next_coordinator(
    table: Table, dies_after: str, asked_before_death: bool, looks: int
) -> None:
    first = table.begin(dies_after)
    first.is_dead = not asked_before_death
    handle = attached(table)
    table.looks, table.later = looks, table.begin
    handle.cancel()
    assert table.now is not first
    assert table.now is not None
    assert "cancel" in table.now.heard
    assert handle.state is JobState.CANCELLED


def test_a_cancel_outlives_several_coordinators(table: Table) -> None:
    table.begin("cancel")
    handle = attached(table)
    left = [3]

    def dying() -> Scripted:
        left[0] -= 1
        table.later = dying if left[0] else table.begin
        return table.begin("cancel")

    table.later = dying
    handle.cancel()
    assert len(table.runs) == 5
    assert table.now is not None
    assert table.now.heard == ["cancel"]


def test_a_coordinator_that_does_not_answer_yet_is_waited_for(table: Table) -> None:
    first = table.begin("cancel")
    handle = attached(table)
    table.mute, table.looks, table.later = {"starting"}, 60, table.begin  # longer than one that is not there may be away
    handle.cancel()
    assert table.clock.now_s > WAIT_S
    assert table.now is not None
    assert table.now is not first
    assert table.now.heard == ["cancel"]


def test_without_a_successor_the_job_is_cancelled_and_a_job_that_survives_nothing_at_once(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.begin("cancel")
    handle = attached(table)
    handle.cancel()
    assert handle.state is JobState.CANCELLED
    assert WAIT_S <= table.clock.now_s < WAIT_S + CANCEL_S
    monkeypatch.setitem(globals(), "CONFIG", rd.RunConfig())
    table.begin("cancel")
    handle = attached(table)
    table.looks = 10
    handle.cancel()
    assert (handle.state, table.looks) == (JobState.CANCELLED, 9)  # it has looked once


def test_a_job_that_has_taken_the_name_is_not_touched(table: Table) -> None:
    """Regression: any coordinator of the name was taken for a successor, and told to stop."""
    table.begin("cancel")
    handle = attached(table)

    def another() -> Scripted:
        table.runs = ("of another job",)
        return table.begin()

    table.later = another
    handle.cancel()
    assert handle.state is JobState.CANCELLED
    assert table.now is not None
    assert table.now.heard == []


def test_a_stop_is_told_to_the_next_coordinator(table: Table) -> None:
    table.begin("stop")
    handle = attached(table)
    table.later = table.begin
    handle.drain()
    assert handle.settle(WAIT_S).state is JobState.COMPLETE
    assert table.now is not None
    assert table.now.heard == ["stop"]


def test_a_coordinator_has_a_successor_for_as_long_as_the_job_has_a_keeper(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 25: the machine of both was switched off, or the keeper was killed while its store was away. It takes its time then to begin
    again, and handles said that nobody kept the job any more."""
    line = table.begin()
    handle = attached(table)
    handle._keeper = KeeperLine(names.Entry(names.Role.KEEPER, "shared", "kept"), actor=object())
    listed = [handle._keeper.entry]
    monkeypatch.setattr(names, "lives", lambda entry: entry in listed)
    line.is_dead = True
    table.looks = 1 << 30
    for _ in range(1_000):
        assert handle._has_successor(line, Gone("killed"))  # type: ignore[arg-type]
        table.clock.now_s += 10.0
    listed.clear()
    assert not handle._has_successor(line, Gone("killed"))  # type: ignore[arg-type]


class Owner(RayJob):
    """The owner, without what makes a coordinator: it counts the successors that it would start."""

    def __init__(self, line: Scripted, config: rd.RunConfig | None = None) -> None:
        super(RayJob, self).__init__("shared", PLAN, config or CONFIG, JobProgress(JobState.RUNNING, (), 0))
        self._line, self._restarting = line, threading.Lock()  # type: ignore[assignment]
        self._heeded, self._kept, self._coordinators_lost, self._failures = None, None, 0, 0
        self._succession = succession_of(self._config)
        self.started = 0

    def _start_coordinator(self, asked_s: float, delay_s: float = 0.0) -> None:
        self.started += 1


@pytest.mark.parametrize(
    ("beat", "started", "stopping"),
    [
        (None, 1, False),
        (Beat(JobState.RUNNING), 1, False),
        (Beat(JobState.RUNNING, is_stopping=True), 1, True),
        (Beat(JobState.RUNNING, is_cancelled=True), 0, False),
    ],
)
def test_what_the_owner_has_heard_decides_whether_a_successor_starts(beat: Beat | None, started: int, stopping: bool, table: Table) -> None:
    line = table.begin()
    line.is_dead, line.beat = True, beat  # type: ignore[attr-defined]
    owner = Owner(line)
    assert owner._has_successor(line, Gone("killed")) is bool(started)  # type: ignore[arg-type]
    assert (owner.started, owner._stopping) == (started, stopping)


def test_a_job_whose_coordinator_dies_every_day_has_a_successor_each_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: what its deaths had left of ``max_failures`` stayed with the job, so the second one, a year later, ended it."""
    monkeypatch.setattr(ray_job, "clock", table.clock)
    owner = Owner(table.begin(), rd.RunConfig(storage_path="/nowhere", failures=rd.FailureConfig(max_failures=1)))
    for day in range(1, 366):
        line = table.begin()
        owner._line, line.beat = line, Beat(JobState.RUNNING)  # type: ignore[assignment, attr-defined]
        owner._succession.on_start()
        owner._note_running(line)  # type: ignore[arg-type]
        table.clock.now_s += 86_400.0
        line.is_dead = True  # type: ignore[attr-defined]
        assert owner._has_successor(line, Gone("killed"))  # type: ignore[arg-type]
        assert (owner.started, owner._failures) == (day, 1)
    line = table.begin()
    owner._line = line  # type: ignore[assignment]
    owner._succession.on_start()
    line.is_dead, line.beat = True, None  # type: ignore[attr-defined]
    gone = Gone("killed before its job ran")
    assert not owner._has_successor(line, gone)  # type: ignore[arg-type]
    failed = owner._lost(gone).failure
    assert failed is not None
    told = "the coordinator actor died: killed before its job ran; failure 1 of 2 within 3600 s of running; FailureConfig.max_failures is 1"
    assert failed.message == told


def test_what_the_owner_has_configured_since_a_beat_is_newer_than_it(table: Table) -> None:
    """Regression: the last beat was applied at the coordinator's death, also over what its owner had changed after it."""
    line = table.begin()
    beat = Beat(JobState.RUNNING, changes={"batch_rows": 17})
    line.beat = beat  # type: ignore[attr-defined]
    line.configure = lambda changes: None  # type: ignore[attr-defined]
    owner = Owner(line)
    owner._heed(beat)
    assert owner._config.batch_rows == 17
    owner._autoscaler = None
    owner.configure(batch_rows=20)
    owner._heed(beat)
    assert owner._config.batch_rows == 20
