"""Restarts: so many within so much time, later and later, and not at all for what will come back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.replica.user_errors import raise_located, restarts_of, sign_of
from rayad.dataflow.config import DEATHS_SURVIVED
from rayad.progress import DataflowError
from rayad.snapshots.restarts import JITTER, End, Restart, Restarts, Succession


def restarts(failures_max: int = 100, **options: Any) -> Restarts:
    return Restarts(failures_max=failures_max, chance=random.Random(7), **options)


def delays(deciding: Restarts, times: list[float], sign: str = "") -> list[float]:
    decisions = [deciding.on_failure(sign, at) for at in times]
    assert all(isinstance(decision, Restart) for decision in decisions)
    return [decision.delay_s for decision in decisions if isinstance(decision, Restart)]


def test_the_first_restart_is_at_once_and_later_ones_wait_twice_as_long_each() -> None:
    found = delays(restarts(delay_s=1.0, delay_max_s=60.0), [float(at) for at in range(10)])
    assert found[0] == 0.0
    for delay_s, expected_s in zip(found[1:], [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert expected_s * (1 - JITTER) <= delay_s <= min(60, expected_s * (1 + JITTER))


def test_restarts_for_a_full_sink_are_spread_by_growing_delays() -> None:
    deciding, now_s, count = restarts(20), 0.0, 0
    while isinstance(decision := deciding.on_failure("", now_s), Restart):
        now_s += 2.0 + decision.delay_s  # a restart takes two seconds, and then the sink is full again
        count += 1
    assert count == 20
    assert now_s > 600


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=40), st.floats(1, 1e5), st.integers(1, 8))
def test_a_job_ends_when_more_failures_than_allowed_are_within_the_window(
    spans: list[tuple[float, float]], window_s: float, most: int
) -> None:
    """Each span: how long a start takes, and how long the job runs then."""
    deciding, now_s, ran_s, failed_at_s = restarts(most, window_s=window_s), 0.0, 0.0, []
    for start_s, run_s in spans:
        deciding.on_running(now_s + start_s)
        before_s, now_s = now_s + start_s, now_s + start_s + run_s
        ran_s += now_s - before_s
        failed_at_s.append(ran_s)
        decision = deciding.on_failure("", now_s)
        within = sum(ran_s - at_s <= window_s for at_s in failed_at_s)
        assert decision.number == within
        assert isinstance(decision, End) == (within > most)


def ran(deciding: Restarts, now_s: float, run_s: float) -> Restart | End:
    """The job has just begun to run, and fails so much later."""
    deciding.on_running(now_s)
    return deciding.on_failure("", now_s + run_s)


def test_failures_of_long_ago_do_not_count_and_the_message_says_the_window() -> None:
    deciding = restarts(2, window_s=60.0)
    assert [type(ran(deciding, at, 40.0)) for at in (0.0, 40.0, 80.0, 120.0)] == [Restart] * 4
    told = "failure 1 of 3 within 60 s of running; FailureConfig.max_failures is 2"
    assert ran(deciding, 160.0, 1.0) == End(told, 3, is_newest=False)


DAY_S = 86_400.0
HOUR_S = 3600.0


@pytest.mark.parametrize("every_s", [DAY_S, HOUR_S, HOUR_S / 6])
def test_a_job_that_fails_now_and_then_runs_for_years_and_restarts_at_once(every_s: float) -> None:
    deciding, now_s = restarts_of(rd.FailureConfig(), random.Random(0)), 0.0
    while now_s < 3 * 365 * DAY_S:
        assert ran(deciding, now_s, every_s) == Restart(0.0, min(round(now_s / every_s), round(HOUR_S / every_s // 1)) + 1)
        now_s += every_s


@pytest.mark.parametrize("start_s", [0.1, 30.0, HOUR_S, DAY_S])
def test_a_job_that_dies_at_every_start_ends_however_long_its_starts_take(start_s: float) -> None:
    """Regression: failures grew old while the job started, so one with starts of six minutes restarted for ever."""
    deciding, now_s, count = restarts_of(rd.FailureConfig(), random.Random(0)), 0.0, 0
    while isinstance(decision := ran(deciding, now_s, 0.5), Restart):
        count += 1
        now_s += 0.5 + decision.delay_s + start_s
    assert count == DEATHS_SURVIVED == 10
    assert decision.why == "failure 1 of 11 within 3600 s of running; FailureConfig.max_failures is 10"


def test_a_job_that_dies_a_while_after_each_start_is_slowed_down_and_ends() -> None:
    """Regression: one snapshot set the delay back, so a job that died shortly after each restarted at full speed."""
    config = rd.FailureConfig(max_failures=10)
    deciding, now_s, delays_s = restarts_of(config, random.Random(0)), 0.0, []
    while isinstance(decision := ran(deciding, now_s, 20.0), Restart):
        now_s += 20.0 + decision.delay_s
        delays_s.append(decision.delay_s)
    expected = (0, 1, 2, 4, 8, 16, 32, 60, 60, 60)
    assert [(1 - JITTER) * at <= delay_s <= (1 + JITTER) * at for at, delay_s in zip(expected, delays_s, strict=True)] == [True] * 10


def test_failures_before_this_coordinator_count_and_grow_old_like_others() -> None:
    deciding = restarts(3, window_s=60.0)
    deciding.on_earlier(2)
    assert ran(deciding, 0.0, 1.0) == Restart(0.0, 3)
    told = "failure 3 of 4 within 60 s of running; FailureConfig.max_failures is 3"
    assert ran(deciding, 1.0, 59.0) == End(told, 4, is_newest=False)
    deciding = restarts(3, window_s=60.0)
    deciding.on_earlier(3)
    assert ran(deciding, 0.0, 61.0) == Restart(0.0, 1)


def test_without_a_window_all_failures_count() -> None:
    deciding = restarts(1, window_s=None)
    deciding.on_failure("", 0.0)
    assert deciding.on_failure("", 1e9) == End("failure 1 of 2; FailureConfig.max_failures is 1", 2, is_newest=False)


def test_the_delay_is_set_back_when_the_job_has_run_for_long_enough_but_not_when_the_same_error_comes_back() -> None:
    def third(run_s: float, sign: str = "", running: bool = True) -> float:
        deciding = restarts(delay_s=1.0, reset_after_s=100.0)
        assert delays(deciding, [0.0, 1.0], sign)[0] == 0.0
        if running:
            deciding.on_running(5.0)
            deciding.on_running(50.0)  # told again
        return delays(deciding, [5.0 + run_s], sign)[0]

    assert third(100.0) == 0.0
    assert third(99.0) > 1.5
    assert third(100.0, "bad") > 1.5
    assert third(1e6, running=False) > 1.5, "waiting and starting are no running"


def test_the_same_error_again_and_again_ends_the_job_early() -> None:
    deciding = restarts(20, same_max=3)
    delays(deciding, [0.0, 1.0], "bad")
    decision = deciding.on_failure("bad", 3.0)
    assert decision == End(
        "the same error came back after each of 2 restarts, so another one would not help; mend the program or the data and run it with "
        "resume='latest', or allow more restarts with FailureConfig(same_error_max=None)",
        3,
        is_newest=True,
    )


def test_another_failure_in_between_ends_a_row_of_equal_ones() -> None:
    deciding = restarts(20, same_max=3)
    for sign in ("bad", "bad", "", "bad", "worse", "bad", "bad"):
        assert isinstance(deciding.on_failure(sign, 0.0), Restart)


def test_the_same_seed_draws_the_same_delays() -> None:
    assert delays(restarts(), [0.0] * 8) == delays(restarts(), [0.0] * 8)


def located(place: str, error: Exception) -> DataflowError:
    with pytest.raises(DataflowError) as raised:
        raise_located(place, error)
    return raised.value


def test_an_error_is_the_same_in_another_replica_and_another_batch() -> None:
    one = located("'v'[0] (a.py:1) failed in on_recv (input 0, 3 records from {'a': 1}) at (2)", KeyError("x"))
    two = located("'v'[3] (a.py:1) failed in on_recv (input 0, 900 records from {'a': 7}) at (2)", KeyError("x"))
    other = located("'v'[3] (a.py:1) failed in on_recv (input 0, 900 records from {'a': 7}) at (3)", KeyError("x"))
    assert sign_of(one) == sign_of(two) == "'v' (a.py:1) failed in on_recv (input 0) at (2): KeyError: 'x'"
    assert sign_of(other) != sign_of(one)


class ServiceError(Exception):
    pass


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ConnectionRefusedError(), TimeoutError(), ServiceError()])
def test_an_error_that_may_pass_does_not_count_as_repeated(error: Exception) -> None:
    assert sign_of(located("'v'[0] (a.py:1) failed in on_recv at (2)", error)) == ""
    assert sign_of(error) == ""


def failing(error: Exception, folder: Path, **failures: Any) -> tuple[LocalJob, list[float]]:
    def fails(n: int) -> int:
        raise error

    flow = rd.Dataflow("failing")
    flow.from_epochs([[1], [2]]).map(fails).collect("out")
    run = rd.RunConfig(storage_path=str(folder), failures=rd.FailureConfig(**failures))
    job = LocalJob(flow, run, rd.ScalingConfig(), clock=lambda: 0.0)
    paused: list[float] = []
    pause = job.pause

    def noted(seconds: float) -> None:
        paused.append(seconds)
        pause(seconds)

    job.pause = noted  # type: ignore[method-assign]
    with pytest.raises(rd.DataflowError):
        job.wait()
    return job, paused


def test_one_bad_record_ends_a_job_after_three_tries(tmp_path: Path) -> None:
    job, paused = failing(ValueError("bad"), tmp_path, max_failures=20)
    assert job.snapshots is not None
    assert job.runtime.job.failures == 2
    assert [delay_s > 0 for delay_s in paused] == [True], "the first restart is at once"


def test_a_service_that_is_away_is_tried_as_often_as_allowed_after_growing_delays(tmp_path: Path) -> None:
    job, paused = failing(ConnectionRefusedError("away"), tmp_path, max_failures=6)
    assert job.snapshots is not None
    assert job.runtime.job.failures == 6
    assert paused == sorted(paused)
    assert sum(paused) > 25


def test_a_job_of_the_local_runtime_tells_its_failures_and_the_snapshots_of_all_incarnations(tmp_path: Path) -> None:
    left = [OSError("away")]

    def once(n: int) -> int:
        if n == 700 and left:
            raise left.pop()
        return n

    flow = rd.Dataflow("told")
    flow.from_epochs([[n] for n in range(1000)]).map(once).collect("out")
    run = rd.RunConfig(storage_path=str(tmp_path), failures=rd.FailureConfig(max_failures=1))
    job = flow.submit(run, runtime="local")
    job.savepoint()
    before = job.progress().snapshot
    while not job.progress().failures:
        job.step()
    assert (before, job.progress().failures) == (job.progress().snapshot, 1)
    statistics = job.wait().statistics
    assert [taken.kind for taken in statistics.snapshots] == ["savepoint", "final"]
    assert statistics.failures == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"window_s": 0}, "FailureConfig.window_s is 0: it must be a number above 0, or None"),
        ({"delay_s": -1}, "FailureConfig.delay_s is -1: it must be a number of at least 0"),
        ({"delay_s": 5.0, "delay_max_s": 1.0}, "FailureConfig.delay_max_s is 1.0: it must be at least delay_s, 5.0"),
        ({"reset_after_s": 0}, "FailureConfig.reset_after_s is 0: it must be a number above 0"),
        ({"same_error_max": 1}, "FailureConfig.same_error_max is 1: it must be an int of at least 2, or None"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(rd.ConfigError) as caught:
        rd.FailureConfig(**wrong)
    assert str(caught.value) == message


def test_a_driver_delays_a_new_coordinator_as_it_delays_other_restarts() -> None:
    """Issue 11: restarts have no delay. A coordinator that dies again and again used up max_failures at once."""
    line = Succession(restarts(5, window_s=100.0, delay_s=1.0, delay_max_s=60.0))
    now_s, delays_s = 0.0, []
    for _ in range(5):
        line.on_start()
        now_s += 0.5
        decision = line.on_death(now_s)
        assert isinstance(decision, Restart)
        line.on_running(now_s)  # a heartbeat from before its death
        assert line.on_death(now_s + 0.1) == decision  # however many threads tell of one death
        delays_s.append(decision.delay_s)
        now_s += decision.delay_s
    assert [0.9 * at <= delay_s <= 1.1 * at for at, delay_s in zip((0, 1, 2, 4, 8), delays_s, strict=True)] == [True] * 5
    line.on_start()
    told = "failure 1 of 6 within 100 s of running; FailureConfig.max_failures is 5"
    assert line.on_death(now_s + 1.0) == End(told, 6, is_newest=False)


def test_a_coordinator_whose_job_has_run_for_long_is_followed_at_once_and_old_deaths_do_not_count() -> None:
    line = Succession(restarts(1, window_s=100.0, reset_after_s=60.0))
    for began_s in (0.0, 200.0, 400.0):
        line.on_start()
        line.on_running(began_s + 10.0)
        assert line.on_death(began_s + 111.0) == Restart(0.0, 1)
