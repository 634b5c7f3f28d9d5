"""What one moment does to a job under the coordinator that ships: a death while its answer is waited for, a store that hangs, a cancel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from rayad.actors.coordinator.surroundings import Gave, NotFetched
from rayad.actors.job import JobState
from rayad.actors.local.actors import Ref
from rayad.actors.plane.protocol import PROGRESS, Kind
from rayad.snapshots.attempts import SnapshotAttempts
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import SnapshotStore, StoreAwayError
from tests.simulation.changes import movable
from tests.simulation.coordinator.planted import DEFECTS
from tests.simulation.coordinator.run import Plan, Run
from tests.simulation.coordinator.vertex_process import VertexProcess
from tests.simulation.coordinator.world import Stuck
from tests.simulation.harness import all_programs

PROGRAM = "sim keyed"


def job(recovery: str = "graph", *, seed: int = 1, faults: int = 2, program: str = PROGRAM) -> Run:
    """A job that nothing disturbs by itself, which may survive so many failures."""
    run = Run(seed, all_programs()[program], 2, "vertices", recovery=recovery, todo=Plan(kills=faults))
    run.leave_alone()
    return run


def on_call(run: Run, method: str, then: Callable[[Ref], None], *, first: Any = None) -> list[Ref]:
    """Do something as soon as an actor is called so; gives the calls."""
    found: list[Ref] = []

    def seen(ref: Ref) -> None:
        if ref.method == method and (first is None or ref.arguments[:1] == (first,)):
            found.append(ref)
            then(ref)

    run.world.on_call.append(seen)
    return found


def kill_at(run: Run, step: int, name: str) -> None:
    """Kill a process when so much has happened."""

    def strike() -> None:
        for process in run.world.alive():
            if process.name == name and run.world.steps == step:
                run.claims.killed += 1
                process.kill()

    run.world.before_step.append(strike)


def source(run: Run) -> str:
    return f"v{run.plan.stages[0].id}.0"


@pytest.mark.parametrize("recovery", ["graph", "upstream"])
def test_an_actor_that_dies_is_survived(recovery: str) -> None:
    run = job(recovery)
    kill_at(run, 230, source(run))
    run.program.verify(run.drive())
    assert run.outcome.statistics.failures == 1


def test_the_progress_actor_that_dies_while_it_takes_in_new_replicas_is_survived() -> None:
    """Regression: the error of the call ended the job, as one of the user's code does."""
    run = job("upstream")
    kill_at(run, 200, source(run))

    def strike(ref: Ref) -> None:
        run.claims.killed += 1
        ref.actor.kill()

    switched = on_call(run, "call", strike, first="switch")
    run.program.verify(run.drive())
    assert len(switched) == 1, "the second time all begin anew"
    assert run.outcome.statistics.failures == 2


def test_one_failure_too_many_ends_the_job_with_the_first() -> None:
    run = job(faults=0)
    died: list[str] = []

    def strike() -> None:
        if run.job.running.is_set() and run.world.steps % 150 == 0:
            process = next(one for one in run.world.alive() if one.name == source(run))
            died.append(process.name)
            process.kill()

    run.world.before_step.append(strike)
    with pytest.raises(AssertionError, match=r"FailureConfig\.max_failures is 4"):
        run.drive()
    assert (run.outcome.state, len(died)) == (JobState.FAILED, 5)
    assert run.outcome.failure.who == "'lines'[0]" or source(run).startswith("v0")
    assert not run.world.alive()


def test_what_an_actor_gave_may_not_arrive() -> None:
    """Its node is gone between the answer and its transfer: that is a failure, and survived."""
    run = job()
    take, lost = run.job.around.actors.take, []  # type: ignore[var-annotated]

    def lose(ref: Any, timeout_s: float) -> Any:
        if ref.method == "run" and isinstance(ref.answer, Gave) and not lost and ref.actor.name != PROGRESS:
            lost.append(ref)
            return NotFetched()
        return take(ref, timeout_s)

    run.job.around.actors.take = lose  # type: ignore[method-assign]
    run.program.verify(run.drive())
    assert run.outcome.statistics.failures <= 1
    assert len(lost) == 1


def test_a_job_whose_store_hangs_can_be_cancelled() -> None:
    run = job()
    run.world.store_away_until_s = 1e9

    def cancel() -> None:
        if run.world.steps == 60:
            run.job.cancelled.set()

    run.world.before_step.append(cancel)
    with pytest.raises(AssertionError, match="CANCELLED"):
        run.drive()
    assert not run.world.alive()


def test_a_job_that_another_run_has_taken_over_fails_and_is_not_resumed() -> None:
    run = job()

    def supersede() -> None:
        if run.world.steps == 150:
            run.job.superseded = "another run has claimed the store"

    run.world.before_step.append(supersede)
    with pytest.raises(AssertionError, match="Superseded: another run has claimed the store"):
        run.drive()
    assert (run.outcome.state, run.job.failures) == (JobState.FAILED, 0)


def test_recoveries_wait_for_the_store() -> None:
    run = job()
    kill_at(run, 200, source(run))

    def hang() -> None:
        if run.world.steps == 199:
            run.world.store_away_until_s = run.world.clock.now_s + 50.0

    run.world.before_step.append(hang)
    run.program.verify(run.drive())
    assert run.world.clock.now_s >= run.world.store_away_until_s


def stays(seed: int, program: str = PROGRAM, before: Run | None = None) -> Run:
    """A job on two workers, on the processes of the one before, that leaves them to the next one."""
    run = Run(seed, all_programs()[program], 2, "workers", todo=Plan(kills=1), before=before, stays=True)
    run.leave_alone()
    return run


def test_jobs_follow_each_other_on_the_same_processes() -> None:
    first = stays(1)
    first.program.verify(first.drive())
    processes = first.world.alive()
    second = stays(2, "sim join", first)
    second.program.verify(second.drive())
    third = stays(3, "sim loop", second)
    third.program.verify(third.drive())
    assert third.figures["processes"] == len(processes) == 3, "two workers and the progress actor, once"
    third.spares.end()
    assert not third.world.alive()


def test_a_process_that_dies_while_it_waits_for_a_job_is_replaced() -> None:
    first = stays(1)
    first.program.verify(first.drive())
    next(one for one in first.world.alive() if isinstance(one, VertexProcess)).kill()
    second = stays(2, before=first)
    second.program.verify(second.drive())
    assert (second.figures["processes"], second.outcome.statistics.failures) == (4, 0)


def test_a_process_that_is_frozen_while_it_waits_for_a_job_is_replaced() -> None:
    first = stays(1)
    first.program.verify(first.drive())
    next(one for one in first.world.alive() if isinstance(one, VertexProcess)).frozen_until_s = 1e9
    second = stays(2, before=first)
    second.program.verify(second.drive())
    assert (second.figures["processes"], second.outcome.statistics.failures) == (4, 0)


def test_after_a_failure_nothing_stays() -> None:
    run = stays(1)
    kill_at(run, 200, "w1")
    run.program.verify(run.drive())
    assert (run.outcome.statistics.failures, run.outcome.stays, run.world.alive()) == (1, False, [])


def test_a_last_snapshot_that_is_in_the_store_though_the_answer_was_lost_is_found_and_published(monkeypatch: pytest.MonkeyPatch) -> None:
    run, publish, lost = job(), SnapshotStore.publish, []

    def publish_and_lose(store: SnapshotStore, manifest: Manifest, **options: Any) -> None:
        publish(store, manifest, **options)
        if manifest.kind == "final":
            lost.append(manifest.number)
            raise StoreAwayError("the answer was lost")

    monkeypatch.setattr(SnapshotStore, "publish", publish_and_lose)
    run.program.verify(run.drive())
    assert len(lost) == 1
    assert run.outcome.statistics.failures == 1


@pytest.mark.parametrize("is_planted", [False, True])
def test_workers_for_which_no_node_has_room_share_processors(is_planted: bool) -> None:
    """The node comes not back, and each of the others has just the processors that are taken."""
    run = Run(1, all_programs()[PROGRAM], 4, "workers", todo=Plan(lost_nodes=1), nodes=2, is_tight=True)
    run.leave_alone()

    def lose() -> None:
        if run.world.steps == 200:
            assert run.world.nodes.lose(0.0, float("inf"))

    run.world.before_step.append(lose)
    with ExitStack() as stack:
        if is_planted:
            DEFECTS["workers wait for room for ever"](stack)
            with pytest.raises((Stuck, AssertionError)):
                run.drive()
            return
        run.program.verify(run.drive())
    assert run.outcome.statistics.failures == 1


def fed_for(run: Run, seconds: float) -> None:
    """Nobody feeds its live inputs for so long, so that the job is there meanwhile."""
    more, until_s = run.world.more_events, run.world.clock.now_s + seconds

    def events() -> list[tuple[str, Any]]:
        return [event for event in more() if event[0] != "feed" or run.world.clock.now_s >= until_s]

    run.world.more_events = events


@pytest.mark.parametrize("planted", ["", "a node that drains is not left", "a node is left with the next snapshot, whenever that is"])
def test_a_node_that_drains_is_left_long_before_it_goes(planted: str) -> None:
    run = Run(1, all_programs()["live-unfed"], 2, "vertices", todo=Plan(drains=1), nodes=2)
    run.job.config = replace(run.config, snapshots=replace(run.config.snapshots, interval_s=300.0))
    run.leave_alone()
    fed_for(run, 400.0)
    seen: list[tuple[float, set[str]]] = []

    def watch() -> None:
        if run.world.steps == 300:
            assert run.world.nodes.drain(200.0, float("inf"))
        now_s = run.world.clock.now_s
        if run.world.steps > 300 and (not seen or now_s > seen[-1][0] + 5.0):
            seen.append((now_s, {process.node.id for process in run.world.alive() if process.node is not None}))

    run.world.before_step.append(watch)
    with ExitStack() as stack:
        if planted == "a node that drains is not left":
            DEFECTS[planted](stack)
            with pytest.raises(AssertionError, match=r"^1 failures where nodes went 120 s after they had said so"):
                run.drive()
            return
        if planted:
            DEFECTS[planted](stack)
        run.program.verify(run.drive())
    took_s = next(at_s for at_s, on in seen if on == {"n0"}) - seen[0][0]
    assert took_s > 100.0 if planted else took_s < 60.0
    assert run.outcome.statistics.failures == 0


@pytest.mark.parametrize("is_planted", [False, True])
def test_newcomers_of_a_change_that_is_refused_are_sent_away(is_planted: bool) -> None:
    run = job(program="live-unfed")
    run.todo.changes = 1
    fed_for(run, 60.0)
    name = sorted(movable(run.plan))[0]

    def freeze(ref: Ref) -> None:
        if run.world.wishes:
            ref.actor.frozen_until_s = 1e9

    on_call(run, "listen", freeze)
    run.world.before_step.append(lambda: run.world.wishes.append(run.rescaler.wish({name: 3}, 5.0)) if run.world.steps == 200 else None)
    with ExitStack() as stack:
        if is_planted:
            DEFECTS["newcomers that are refused stay"](stack)
            with pytest.raises(AssertionError, match=r"hold nothing after|processes outlive the job"):
                run.drive()
            return
        run.program.verify(run.drive())
    (wish,) = run.world.over
    assert wish.error is not None
    assert run.outcome.statistics.failures == 0


def test_a_newcomer_that_dies_before_it_has_joined_is_told_at_once() -> None:
    """Regression: the change was refused only when the time for it was over."""
    run = job(program="live-unfed")
    run.todo.changes = 1
    fed_for(run, 60.0)
    name = sorted(movable(run.plan))[0]

    def strike(ref: Ref) -> None:
        for process in run.world.alive():
            if process.name in run.rescaler.newcomers:
                process.kill()

    on_call(run, "call", strike, first="join")
    run.world.before_step.append(lambda: run.world.wishes.append(run.rescaler.wish({name: 3}, 500.0)) if run.world.steps == 200 else None)
    run.program.verify(run.drive())
    (wish,) = run.world.over
    assert "has failed before it had joined: the actor of" in str(wish.error)
    assert wish.left_s > 400.0
    assert run.outcome.statistics.failures == 0


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize(
    "planted", ["", "control calls are answered before frames are taken", "new replicas run before all have rolled back"]
)
def test_a_replica_that_lives_on_and_stands_still_gives_no_credit_to_a_new_sender(planted: str, seed: int) -> None:
    """Regression: the new replica ran before all had rolled back, connected to one that stood still, and got its credits for what the
    former one had sent."""
    run = job("upstream", seed=seed, program="sim broadcast")
    run.job.config = run.job.crew.config = replace(run.config, window_batches=1)

    def strike() -> None:
        others = [
            one for one in run.world.alive() if one.running is not None and one.name.split(".")[0] not in ("progress", source(run)[:-2])
        ]
        if not run.claims.killed and any(frame.kind == Kind.DATA for one in others for frame in one.link.inbox):
            run.claims.killed += 1
            next(process for process in run.world.alive() if process.name == source(run)).kill()
            for one in others:
                one.frozen_until_s = run.world.clock.now_s + 60.0

    def wakes(ref: Ref) -> None:
        ref.actor.frozen_until_s = run.world.clock.now_s + 0.3

    on_call(run, "roll_back", wakes)
    run.world.before_step.append(strike)
    with ExitStack() as stack:
        if planted:
            DEFECTS[planted](stack)
            stack.enter_context(pytest.raises(AssertionError))
        run.program.verify(run.drive())
        assert run.outcome.statistics.failures == run.claims.killed == 1


@pytest.mark.parametrize("is_planted", [False, True])
def test_an_attempt_at_a_snapshot_is_given_up_when_a_region_fails(is_planted: bool) -> None:
    """Else there is never another one: the coordinator waits for a part that nobody will give."""
    run = job("upstream", seed=4, program="live-unfed")
    run.job.config = replace(run.config, snapshots=replace(run.config.snapshots, interval_s=1.0))
    fed_for(run, 60.0)
    struck: list[float] = []

    def is_in_part(attempts: SnapshotAttempts) -> bool:
        return attempts.pending is not None and 0 < len(attempts.missing) < len(run.job.crew.replicas())

    def strike() -> None:
        snapshots = run.job.snapshots
        if not struck and run.job.running.is_set() and snapshots is not None and is_in_part(snapshots.leader.snapshots):
            victim = next(process for process in run.world.alive() if process.name == source(run))
            struck.append(run.world.clock.now_s)
            run.claims.killed += 1
            victim.kill()

    run.world.before_step.append(strike)
    with ExitStack() as stack:
        if is_planted:
            DEFECTS["the attempt of a region that failed goes on"](stack)
        run.program.verify(run.drive())
    assert run.outcome.statistics.failures == 1
    assert (len(run.outcome.statistics.snapshots) > 1) is not is_planted


@pytest.mark.parametrize(
    ("seed", "planted"),
    [
        (0, ""),
        (9, ""),
        (11, ""),
        (9, "what waited for credit at the cut goes out after the first barrier"),
        (0, "what combiners keep back is reported as consumed"),
        (11, "a log keeps nothing of what was handed over"),
        (11, "a barrier overtakes what was handed over before it"),
    ],
)
def test_all_processes_die_when_little_has_happened_since_the_last_time(seed: int, planted: str) -> None:
    """A snapshot begins as soon as all have come back, and most batches wait for credit at its cut."""
    run = Run(seed, all_programs()[PROGRAM], 2, "workers", mode="unaligned", todo=Plan(kills=3), span=900, steps_max=3000)
    run.job.config = run.job.crew.config = replace(run.config, window_batches=1, snapshots=replace(run.config.snapshots, interval_s=0.001))

    def all_die() -> bool:
        for process in run.world.alive():
            run.claims.killed += 1
            process.kill()
        return True

    run._do_kills = all_die  # type: ignore[method-assign]
    with ExitStack() as stack:
        if planted:
            DEFECTS[planted](stack)
            stack.enter_context(pytest.raises((Stuck, AssertionError)))
        run.program.verify(run.drive())
