"""What a live input does when another coordinator runs the job: with the planes that ship, and no Ray."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.driver.coordinator_line import NoAnswer
from rayad.actors.driver.inputs import LAST_ANSWER_S, FedJob, InputPlane
from rayad.actors.driver.ray_input import RayInput
from rayad.actors.plane.plane import Frame, Plane
from rayad.actors.plane.protocol import Kind, driver_name, stage_of
from rayad.actors.process.threads import Threads
from tests.patience import PATIENCE_S

REPLICA = "v0.0"
SECRET = bytes(range(32))


class Run:
    """The replica of the input under one coordinator; it answers as long as :meth:`take` runs, and then stands still."""

    def __init__(self, job: str, incarnation: int) -> None:
        self.job, self.incarnation = job, incarnation
        self.plane = Plane(name=REPLICA, job=job, incarnation=incarnation, secret=SECRET, seals=False)  # as the driver, by default
        self.address = self.plane.listen(unix="off")

    def join(self) -> None:
        """Take the driver's connection, and then stand still."""
        while not self.plane.connected(driver_name(stage_of(REPLICA))):
            self.plane.poll(0.1)

    def take(self) -> Frame:
        """The first batch that comes."""
        while True:
            for frame in self.plane.poll(PATIENCE_S):
                if frame.kind == Kind.INPUT_BATCH:
                    return frame


Ask = Callable[..., Any]


def fed(home: Path, now: list[Run], ask: Ask, over: threading.Event, *, survives: bool = True, **config: Any) -> FedJob:
    """The job, whose replica is the first of ``now``."""
    return FedJob(
        name="job",
        config=rd.RunConfig(storage_path=str(home), **config),
        survives=survives,
        identity=lambda: (now[0].job, SECRET),
        ask=ask,
        ask_again=ask,
        has_outcome=over.is_set,
        is_over=over.is_set,
        raise_outcome=lambda: None,
    )


class Clock:
    """Moves while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds

    sleep = pass_by


def try_to_send(live: RayInput) -> None:
    with suppress(TimeoutError):
        live.send([1])


LATE = r"^input 'numbers' of job 'job' has taken nothing for {} s: nothing was sent, send it again; "


@pytest.mark.parametrize("survives", [True, False])
def test_a_send_ends_in_time_while_nobody_tells_where_the_replica_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    """It waited for the coordinator, or the one after it, for as long as a job may take to start."""
    ticking, over = Clock(), threading.Event()
    is_away = False

    def ask(method: str, *_: Any, timeout_s: float, successor_s: float = math.inf) -> Any:
        if is_away:
            ticking.pass_by(min(timeout_s, successor_s + 60))
            raise NoAnswer(method)
        return ("unix:none", 1, {}, REPLICA) if method == "where" else {}

    feed = InputPlane(fed(tmp_path, [], ask, over, survives=survives), Threads())
    live = RayInput("numbers", feed, REPLICA)
    monkeypatch.setattr("rayad.actors.driver.inputs.clock", ticking)
    is_away = True
    with pytest.raises(TimeoutError, match=LATE.format(5)):
        live.send([1], timeout_s=5.0)
    assert ticking.now_s <= 105.0 + LAST_ANSWER_S
    assert (live.sent, feed._deadline_s) == (0, math.inf)
    over.set()


def test_a_send_ends_in_time_while_another_one_waits(tmp_path: Path) -> None:
    """It waited for the other thread first, and counted its timeout from there."""
    over, is_asked = threading.Event(), threading.Event()
    is_away = False

    def ask(method: str, *_: Any, **__: Any) -> Any:
        if is_away:
            is_asked.set()
            assert over.wait(PATIENCE_S)
            raise NoAnswer(method)
        return ("unix:none", 1, {}, REPLICA) if method == "where" else {}

    live = RayInput("numbers", InputPlane(fed(tmp_path, [], ask, over), Threads()), REPLICA)
    is_away = True
    other = threading.Thread(target=try_to_send, args=(live,), daemon=True)
    other.start()
    assert is_asked.wait(PATIENCE_S)
    with pytest.raises(TimeoutError, match=LATE.format("0.01")):
        live.send([2], timeout_s=0.01)
    over.set()
    other.join(PATIENCE_S)


@pytest.mark.parametrize("survives", [True, False])
def test_a_send_ends_in_time_while_the_replica_reads_nothing(tmp_path: Path, survives: bool) -> None:
    """A batch that has been taken is sent by another thread, what comes behind it is refused: it waited until the replica had read it all;
    where it has to be kept, until a snapshot had made room."""
    over, run = threading.Event(), Run("first", 1)

    def ask(method: str, *_: Any, **__: Any) -> Any:
        return (run.address, run.incarnation, {}, REPLICA) if method == "where" else {}

    batch = pa.record_batch({"a": [bytes(8 << 20)]})
    feed = InputPlane(fed(tmp_path, [run], ask, over, survives=survives, window_bytes=64 << 20, input_log_bytes=24 << 20), Threads())
    live = RayInput("numbers", feed, REPLICA)
    joining = threading.Thread(target=run.join, daemon=True)
    joining.start()
    live.send(batch, timeout_s=2.0)
    joining.join(PATIENCE_S)
    with pytest.raises(TimeoutError, match=LATE.format("0.05")):
        live.send(batch, timeout_s=0.05)
    assert live.sent == 1
    taking = threading.Thread(target=run.take, daemon=True)
    taking.start()
    taking.join(PATIENCE_S)
    assert not taking.is_alive()
    over.set()
    feed.close()
    run.plane.close(linger_s=0.0)


def test_a_close_that_fails_may_be_repeated(tmp_path: Path) -> None:
    """It marked the input closed first: the second call did nothing, and the job waited for ever for the end of its input."""
    over, is_away = threading.Event(), [False]

    def ask(method: str, *_: Any, **__: Any) -> Any:
        if is_away[0]:
            raise NoAnswer(method)
        return ("unix:none", 1, {}, REPLICA) if method == "where" else {}

    live = RayInput("numbers", InputPlane(fed(tmp_path, [], ask, over, survives=False), Threads()), REPLICA)
    is_away[0] = True
    for _ in range(2):
        with pytest.raises(NoAnswer):
            live.close()
        assert not live.closed
    over.set()
    live.close()
    assert live.closed


def test_what_was_sent_goes_to_the_next_coordinators_replica_while_the_one_before_stands_still(tmp_path: Path) -> None:
    """Regression: incarnations begin anew with each coordinator, and a stopped machine closes no connection: what was sent waited in the
    connection to the old replica until that machine woke up."""
    runs = [Run("first", 2), Run("second", 1)]
    now = [runs[0]]
    over = threading.Event()

    def ask(method: str, *_: Any, **__: Any) -> Any:
        return (now[0].address, now[0].incarnation, {}, REPLICA) if method == "where" else {}

    feed = InputPlane(fed(tmp_path, now, ask, over), Threads())
    live = RayInput("numbers", feed, REPLICA)
    taken: list[Frame] = []
    for run in runs:
        now[0] = run
        taking = threading.Thread(target=lambda run=run: taken.append(run.take()), daemon=True)
        taking.start()
        if run is runs[0]:
            live.send([1, 2, 3])
        taking.join(PATIENCE_S)
        assert not taking.is_alive(), run.job
    over.set()
    feed.close()
    for run in runs:
        run.plane.close(linger_s=0.0)
    assert bytes(taken[0].payload) == bytes(taken[1].payload), "the same frame again"
