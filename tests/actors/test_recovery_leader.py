"""The leader of recoveries decides by events alone: what is restarted, when, in which order, and which failure is reported."""

from __future__ import annotations

import pytest

from rayad.actors.lead.job_leader import End, JobState, StopAll
from rayad.actors.lead.recovery_leader import (
    GRACE_S,
    STORE_AWAY_S,
    AllReported,
    Begin,
    Failed,
    LacksRoom,
    Listen,
    Listens,
    Lost,
    Move,
    Phase,
    ReadStore,
    Release,
    RollBack,
    RolledBack,
    Run,
    Running,
    SnapshotPublished,
    Start,
    StopChange,
    StoreAway,
    StoreRead,
    Survived,
    Switch,
    Tick,
    TooLate,
    WholeGraph,
)
from rayad.actors.plane.protocol import PROGRESS
from tests.actors.leading import Led, failure, kinds


# -- starting --------------------------------------------------------------------------------------------
def test_a_job_reads_its_store_starts_and_runs_when_all_listen() -> None:
    led = Led()
    assert led.tell(Begin()) == [ReadStore(1)]
    everybody = led.everybody
    assert led.store_read() == [Start(1), Listen(everybody, 1, dict.fromkeys(everybody, 1))]
    last = everybody[-1]
    for name in everybody[:-1]:
        assert led.tell(Listens(name, 1, f"at {name}")) == []
    addresses = {name: f"at {name}" for name in everybody}
    assert led.tell(Listens(last, 1, f"at {last}")) == [Run(everybody, 1, addresses), Running(everybody, None)]


def test_an_answer_that_comes_twice_is_one() -> None:
    led = Led()
    led.tell(Begin())
    led.store_read()
    for _ in led.everybody:
        assert led.tell(Listens(led.everybody[0], 1)) == []
    assert led.leader.recovery.waiting == set(led.everybody[1:])


def test_a_first_start_that_fails_is_a_failure_like_any_other() -> None:
    led = Led()
    led.tell(Begin())
    led.store_read()
    assert led.fail("first") == []
    assert kinds(led.tick()) == ["StopChange", "Survived", "Release", "Start", "ReadStore"]


def test_a_store_that_cannot_be_read_at_the_beginning_ends_the_job_with_its_error() -> None:
    led = Led()
    led.tell(Begin())
    ended = led.fail(None, message="ConfigError: no such snapshot")
    assert ended == [StopChange(), StopAll(JobState.FAILED), End(JobState.FAILED, failure(message="ConfigError: no such snapshot"))]


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_successor_of_a_coordinator_waits_for_an_unavailable_store(succeeds: bool) -> None:
    led = Led()
    led.tell(Begin(succeeds=succeeds))
    away = StoreAway(1, failure(message="StoreAwayError: gone"))
    if not succeeds:
        assert led.tell(away)[-1] == End(JobState.FAILED, away.failure)
        return
    assert led.tell(away) == []
    assert led.leader.due_in_s(led.now_s) == STORE_AWAY_S
    assert led.tick(STORE_AWAY_S / 2) == []
    assert led.tick(STORE_AWAY_S / 2) == [ReadStore(1)]
    assert kinds(led.store_read()) == ["Start", "Listen"]


def test_a_recovery_waits_for_a_store_as_long_as_for_an_actor_and_then_fails() -> None:
    led = Led().started()
    led.fail("first")
    led.tick()
    away = failure(message="StoreAwayError: gone")
    asked = 0
    while not led.leader.is_over:
        last = led.tell(StoreAway(2, away))
        asked += led.tick(STORE_AWAY_S) == [ReadStore(2)]
    assert 20 / STORE_AWAY_S <= asked <= 20 / STORE_AWAY_S + 1
    assert last[-1] == End(JobState.FAILED, away)


def test_replicas_that_do_not_listen_in_time_are_reported_once() -> None:
    led = Led()
    led.tell(Begin())
    led.store_read()
    late = led.names["second"]
    led.all_listen(tuple(name for name in led.everybody if name != late))
    assert led.tick(20.0) == [TooLate((late,), len(led.everybody), 1)]
    assert led.tick(20.0) == []
    assert led.fail(None, message="1 of 4 actors did not start") == []
    assert kinds(led.tick())[:2] == ["StopChange", "Survived"]


# -- which failure, and when -----------------------------------------------------------------------------
def test_the_whole_graph_is_restarted_at_once() -> None:
    led = Led().started()
    assert led.fail("first") == []
    expected = [StopChange(), Survived(failure(), 1, 0.0), Release(None, 1), Start(2), ReadStore(2)]
    assert led.tick() == expected


def test_failures_reported_together_are_one_with_the_likeliest_cause() -> None:
    led = Led().started()
    led.fail("second", is_lost_peer=True, message="ConnectionError: lost")
    led.fail("first", message="the actor of 'first'[0] died", who="'first'[0]")
    survived = led.tick()[1]
    assert survived == Survived(failure(message="the actor of 'first'[0] died"), 1, 0.0)


def test_after_a_lost_peer_others_may_report_for_a_moment() -> None:
    led = Led().started()
    led.fail("second", is_lost_peer=True)
    assert led.tick(GRACE_S * 0.9) == []
    assert led.leader.due_in_s(led.now_s) == pytest.approx(GRACE_S * 0.1)
    led.fail("first", message="ValueError: the cause")
    assert led.tick()[1] == Survived(failure(message="ValueError: the cause"), 1, 0.0)


def test_there_is_no_wait_when_all_have_reported() -> None:
    led = Led().started()
    led.fail("second", is_lost_peer=True)
    led.tell(AllReported())
    assert kinds(led.tick())[:2] == ["StopChange", "Survived"]


def test_a_failure_reported_repeatedly_is_one() -> None:
    led = Led().started()
    for _ in range(5):
        led.fail(None, is_lost_peer=True, message="a change of layout failed")
    led.tick(GRACE_S)
    assert led.leader.recovery.failures == 1


def test_a_stuck_replica_is_given_up_at_once_and_ended() -> None:
    led = Led(recovery="upstream").started()
    led.fail("second", is_stuck=True)
    release = next(effect for effect in led.tick() if isinstance(effect, Release))
    assert release == Release(None, 1, (led.names["second"],))


def test_without_snapshots_the_first_failure_ends_the_job_after_a_moment_for_the_cause() -> None:
    led = Led(keeps_snapshots=False).started()
    led.fail("second", message="the actor of 'second'[0] is gone")
    assert led.tick() == []
    led.fail("first", error=b"pickled", message="DataflowError: the cause")
    assert led.tick(GRACE_S)[-1] == End(JobState.FAILED, failure(error=b"pickled", message="DataflowError: the cause"))


def test_after_too_many_failures_the_first_is_raised_and_names_the_last() -> None:
    led = Led(max_failures=1).started()
    led.fail("first", message="OSError: the first")
    led.tick()
    led.store_read()
    led.all_listen()
    led.fail("second", message="OSError: the second")
    ended = led.tick()
    why = "failure 1 of 2 within 3600 s of running; FailureConfig.max_failures is 1; the last: OSError: the second"
    assert ended == [StopChange(), StopAll(JobState.FAILED), End(JobState.FAILED, failure(message="OSError: the first"), why)]


def test_the_newest_failure_is_raised_when_it_comes_back_repeatedly() -> None:
    led = Led(max_failures=9, delay_s=0.0).started()
    for _ in range(3):
        led.fail("first", sign="ValueError: bad")
        last = led.tick()
        led.store_read()
        led.all_listen()
    assert isinstance(last[-1], End)
    assert last[-1].why.startswith("the same error came back after each of 2 restarts")


def test_a_final_failure_ends_the_job_at_once_in_any_phase() -> None:
    for led in (Led().started(), Led().started().recovering(), Led(recovery="upstream").started()):
        ended = led.fail(None, is_final=True, message="Superseded: another run")
        assert ended == [StopChange(), StopAll(JobState.FAILED), End(JobState.FAILED, failure(message="Superseded: another run"))]


# -- delays ----------------------------------------------------------------------------------------------
def test_new_replicas_start_during_the_delay_and_the_store_is_read_after_it() -> None:
    led = Led(delay_s=4.0).started()
    led.recovering()
    led.all_listen()
    led.fail("first")
    assert kinds(led.tick()) == ["StopChange", "Survived", "Release", "Start"]
    assert led.tick(3.0) == []
    assert led.tick(1.5) == [ReadStore(3)]


@pytest.mark.parametrize(("runs_s", "last"), [(599.0, "Start"), (600.0, "ReadStore")])
def test_a_job_that_has_run_for_long_enough_restarts_at_once_whatever_its_snapshots(runs_s: float, last: str) -> None:
    """Regression: one snapshot set the delay back, so a job that died shortly after each restarted at full speed for ever."""
    led = Led(delay_s=4.0, reset_after_s=600.0).started()
    led.recovering()
    led.tell(Tick(), 1e6)
    led.all_listen()
    led.tell(SnapshotPublished())
    led.fail("first", runs_s)
    assert kinds(led.tick())[-1] == last


def test_what_was_survived_outside_of_this_coordinator_counts_until_the_job_has_run_for_the_window() -> None:
    def begun() -> Led:
        led = Led(max_failures=1, window_s=60.0)
        led.tell(Begin(succeeds=True, failures=1))
        led.store_read()
        led.all_listen()
        return led

    led = begun()
    led.fail("first", 60.0)
    why = "failure 2 of 2 within 60 s of running; FailureConfig.max_failures is 1; the last: ValueError: bad"
    assert led.tick()[-1] == End(JobState.FAILED, failure(), why)
    led = begun()
    led.fail("first", 61.0)
    assert led.tick()[1] == Survived(failure(), 1, 0.0)


def test_the_first_failure_that_counts_is_raised() -> None:
    led = Led(max_failures=2, window_s=60.0, delay_s=0.0).started()
    for number, after_s in enumerate((0.0, 40.0, 40.0, 5.0)):
        led.fail("first", after_s, message=f"OSError: {number}")
        ended = led.tick()
        if not led.leader.is_over:
            led.store_read()
            led.all_listen()
    why = "failure 1 of 3 within 60 s of running; FailureConfig.max_failures is 2; the last: OSError: 3"
    assert ended[-1] == End(JobState.FAILED, failure(message="OSError: 1"), why)


def test_the_restart_is_measured_without_its_delay() -> None:
    led = Led(delay_s=4.0).started()
    for wait_s in (0.0, 5.0):
        led.fail("first")
        led.tick()
        led.tick(wait_s)
        led.store_read()
        led.now_s += 2.0
        running = led.all_listen()[-1]
        assert isinstance(running, Running)
        assert running.restart_s == pytest.approx(2.0, abs=1.5)


# -- failures during a recovery, and answers that come late -----------------------------------------------
def test_a_failure_while_new_replicas_start_begins_another_incarnation() -> None:
    led = Led().started().recovering()
    led.fail("second")
    assert kinds(led.tick()) == ["StopChange", "Survived", "Release", "Start"], "the second in a row waits"
    assert led.leader.recovery.incarnation == 3


def test_a_listening_answer_of_an_older_incarnation_is_void() -> None:
    led = Led(delay_s=0.0).started().recovering()
    led.fail("second")
    led.tick()
    led.store_read()
    for name in led.everybody:
        assert led.tell(Listens(name, 2, "stale")) == []
    assert led.leader.recovery.waiting == set(led.everybody)
    run = led.all_listen()[0]
    assert isinstance(run, Run)
    assert set(run.addresses.values()) == {f"at {name}" for name in led.everybody}


def test_a_failure_of_a_replaced_actor_is_void() -> None:
    led = Led().started().recovering()
    led.tell(Failed(led.names["second"], 1, failure(message="ConnectionError: late", is_lost_peer=True)))
    led.tell(Failed(None, 1, failure(message="late, too")))
    assert led.tick() == []
    assert led.leader.recovery.failures == 1


def test_a_store_that_was_read_for_an_older_incarnation_is_read_again() -> None:
    led = Led(delay_s=0.0).started()
    led.fail("first")
    led.tick()
    led.fail("second")
    led.tick()
    assert led.tell(StoreRead(2)) == []
    assert led.leader.recovery.phase is Phase.READING


# -- what is upstream of a failure -------------------------------------------------------------------------
def upstream(**failures: float) -> Led:
    """A job that has lost ``first``, and whose ``second`` may survive."""
    led = Led(recovery="upstream", **failures).started()
    led.fail("first")
    return led


def test_what_is_upstream_of_a_failure_is_restarted_and_the_rest_rolls_back() -> None:
    led = upstream()
    assert led.tick() == []
    failed, read = led.tick(GRACE_S)[1:]
    assert isinstance(failed, Survived)
    assert isinstance(read, ReadStore)
    mine = (led.names["numbers"], led.names["first"])
    living = led.names["second"]
    assert read == ReadStore(1, read.region, mine)
    assert read.region is not None
    effects = led.store_read(void=7)
    incarnations = {PROGRESS: 1, living: 1, **dict.fromkeys(mine, 2)}
    assert effects == [Release(mine, 1), Start(2), Switch(mine, read.region, 2), Listen(mine, 2, incarnations)]
    addresses = {name: f"at {name}" for name in mine}
    assert led.all_listen() == [RollBack((living,), read.region, 2, 7, addresses)]
    assert not led.leader.recovery.is_running
    assert led.tell(RolledBack(living, 2))[0] == Run(mine, 2, addresses), "those that live on know them before they connect"
    assert led.leader.recovery.is_running


def test_a_rolled_back_answer_of_another_recovery_is_void() -> None:
    led = upstream()
    led.tick(GRACE_S)
    led.store_read()
    led.all_listen()
    assert led.tell(RolledBack(led.names["second"], 1)) == []
    assert led.leader.recovery.phase is Phase.ROLLING_BACK


@pytest.mark.parametrize("step", ["reading", "listening", "rolling back"])
def test_a_second_failure_during_a_recovery_upstream_restarts_the_whole_graph(step: str) -> None:
    led = upstream(delay_s=0.0)
    led.tick(GRACE_S)
    if step != "reading":
        led.store_read()
    if step == "rolling back":
        led.all_listen()
    led.fail("second")
    effects = led.tick()
    release = next(effect for effect in effects if isinstance(effect, Release))
    assert release.names is None
    assert kinds(effects)[-1] == "ReadStore"
    assert led.leader.recovery.failures == 2
    led.store_read()
    assert led.leader.recovery.waiting == set(led.everybody)


def test_a_replica_that_fails_during_the_delay_belongs_to_the_same_failure() -> None:
    led = upstream(delay_s=4.0)
    led.tick(GRACE_S)
    led.store_read()
    led.all_listen()
    led.tell(RolledBack(led.names["second"], 2))
    led.fail("numbers")
    assert kinds(led.tick(GRACE_S)) == ["StopChange", "Survived"]
    assert led.fail("first") == []
    read = led.tick(5.0)[0]
    assert isinstance(read, ReadStore)
    assert read.names == (led.names["numbers"], led.names["first"])
    assert led.leader.recovery.failures == 2


def test_a_failure_during_the_delay_that_reaches_everything_restarts_it_and_is_not_counted() -> None:
    led = upstream(delay_s=4.0)
    led.tick(GRACE_S)
    led.store_read()
    led.all_listen()
    led.tell(RolledBack(led.names["second"], 2))
    led.fail("first")
    led.tick(GRACE_S)
    assert kinds(led.fail("second")) == ["WholeGraph", "Release", "Start"]
    assert led.tick(5.0) == [ReadStore(3)]
    assert led.leader.recovery.failures == 2


def test_no_replica_survives_when_the_store_says_so() -> None:
    led = upstream()
    led.tick(GRACE_S)
    effects = led.store_read(all_because="the newest snapshot is damaged")
    assert effects == [WholeGraph("the newest snapshot is damaged"), Release(None, 1), Start(2), ReadStore(2)]


@pytest.mark.parametrize("who", ["second", None])
def test_the_whole_graph_is_restarted_when_all_is_upstream_or_the_coordinator_failed(who: str | None) -> None:
    led = Led(recovery="upstream").started()
    led.fail(who)
    assert Release(None, 1) in led.tick(GRACE_S)


def test_a_failure_of_the_progress_actor_restarts_all() -> None:
    led = Led(recovery="upstream").started()
    led.tell(Failed(PROGRESS, 1, failure(who="the progress actor")))
    assert Release(None, 1) in led.tick(GRACE_S)


def test_without_a_word_deaths_are_survived_and_what_code_raises_is_not() -> None:
    led = Led(max_failures=None, delay_s=0.0).started()
    led.fail("first", message="the actor of 'first'[0] died: it did", has_ended=True)
    assert Survived in map(type, led.tick(GRACE_S))
    led = Led(max_failures=None).started()
    led.fail("first", is_raised=True)
    (end,) = (effect for effect in led.tick(GRACE_S) if isinstance(effect, End))
    assert (end.failure.message, end.why) == ("ValueError: bad", "")
    led = Led(max_failures=None, survive_errors=True).started()
    led.fail("first", is_raised=True)
    assert Survived in map(type, led.tick(GRACE_S))


def test_replicas_that_tests_drop_are_restarted_and_not_counted() -> None:
    led = Led(max_failures=0).started()
    assert led.tell(Lost()) == [StopChange(), Release(None, 1), Start(2), ReadStore(2)]
    assert led.leader.recovery.failures == 0


# -- leaving a node ----------------------------------------------------------------------------------------
def test_who_leaves_a_node_is_ended_and_all_resume_which_is_no_failure() -> None:
    led = Led(max_failures=0).started()
    mover = led.everybody[1]
    assert led.tell(Move(frozenset({mover, "nobody"}))) == [StopChange(), Release(None, 1, (mover,)), Start(2), ReadStore(2)]
    led.store_read()
    for name in led.everybody:
        led.tell(Listens(name, 2))
    led.tell(Move(frozenset()))
    assert led.leader.recovery.failures == 0
    assert led.leader.recovery.is_running


def test_the_job_tells_who_has_moved_unless_something_failed_meanwhile() -> None:
    led = Led(delay_s=0.0).started()
    mover = led.everybody[1]
    led.tell(Move(frozenset({mover})))
    led.store_read()
    *_, last = [led.tell(Listens(name, 2)) for name in led.everybody]
    assert [effect.moved for effect in last if isinstance(effect, Running)] == [(mover,)]
    led.tell(Move(frozenset({mover})))
    led.store_read()
    led.tell(Failed(mover, 3, failure()))
    led.tick()
    led.store_read()
    *_, last = [led.tell(Listens(name, 4)) for name in led.everybody]
    assert [effect.moved for effect in last if isinstance(effect, Running)] == [()]


def test_nobody_moves_while_something_is_started_or_has_failed() -> None:
    led = Led()
    led.tell(Begin())
    assert led.tell(Move(frozenset(led.everybody))) == []
    led = Led(recovery="upstream").started()
    led.fail("first")
    assert led.tell(Move(frozenset(led.everybody))) == []


def test_where_vertices_recover_alone_they_move_alone() -> None:
    led = Led(recovery="upstream").started()
    mover = led.everybody[1]
    assert kinds(led.tell(Move(frozenset({mover})))) == ["StopChange", "ReadStore"]
    released = [effect for effect in led.store_read() if isinstance(effect, Release)]
    assert [effect.stuck for effect in released] == [(mover,)]


# -- room ----------------------------------------------------------------------------------------------------
def test_a_recovery_says_again_and_again_who_has_no_room_and_goes_on_waiting() -> None:
    led = Led(delay_s=0.0, room_wait_s=10.0).started()
    led.fail("first")
    led.tick(GRACE_S)
    led.store_read()
    *others, last = led.everybody
    for name in others:
        led.tell(Listens(name, 2))
    assert led.tick(9.0) == []
    assert led.tick(1.0) == [LacksRoom((last,))]
    assert led.tick(9.0) == []
    assert led.tick(1.0) == [LacksRoom((last,))]
    assert Running in map(type, led.tell(Listens(last, 2)))
    assert led.tick(20.0) == []


def test_a_first_start_waits_for_room_as_long_as_it_may() -> None:
    led = Led(room_wait_s=1.0)
    led.tell(Begin())
    led.store_read()
    assert led.tick(5.0) == []
