"""The coordinator's thread without Ray: calls answer at once, actors fail on demand; the leader decides, the supervisor carries out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.stored import stored_job
from rayad.actors.coordinator.stored.store_thread import StoreThread
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.coordinator.surroundings import Answer, CoordinatorSurroundings, Ended, Gave
from rayad.actors.job import JobState
from rayad.actors.plane.plane import Plane
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Left, ReplicaReport, told
from rayad.snapshots.manifest import Manifest
from tests.actors.leading import plan_of
from tests.patience import PATIENCE_S


class Ref:
    """An answer, there when ``is_ready`` says so."""

    def __init__(self, answer: Any, is_ready: Callable[[], bool] = lambda: True) -> None:
        self.answer = answer
        self.is_ready = is_ready


class FakeActors:
    def wait(self, refs: list[Ref], timeout_s: float, count: int = 1) -> list[Ref]:
        return [ref for ref in refs if ref.is_ready()][:count]

    def take(self, ref: Ref, timeout_s: float) -> Answer:
        return ref.answer if isinstance(ref.answer, Ended) else Gave(ref.answer)

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        return getattr(actor, method)(*arguments)

    def run(self, actor: Any, *arguments: Any) -> Any:
        return actor.run(*arguments)

    def own_address(self, host: str | None) -> str:
        return "127.0.0.1"

    def drains(self) -> dict[str, float]:
        return {}

    def last_words(self, ended: Ended) -> str:
        return ""


class Stage:
    """The job's actors and their actions in one object; ``dies``: which actor dies next, in which incarnation."""

    to_move: frozenset[str] = frozenset()

    def __init__(self, job: RunningJob, dies: dict[int, str]) -> None:
        self.job = job
        self.dies = dies
        self.log: list[str] = []
        self.actors: dict[str, Any] = {}
        self.looks = 0
        self.on_look: Callable[[int], None] = lambda looks: None

    def processes(self) -> list[str]:
        return [f"v{stage.id}.{r}" for stage in self.job.plan.stages for r in range(stage.parallelism)]

    def start(self) -> None:
        for name in [PROGRESS, *self.processes()]:
            self.actors.setdefault(name, SimpleNamespace(listen=self._method(lambda *_, name=name: f"at {name}"), run=self._run(name)))

    @property
    def plan(self) -> Any:
        return self.job.plan

    @plan.setter
    def plan(self, plan: Any) -> None:
        pass

    def _method(self, call: Callable[..., Any]) -> Any:
        return lambda *arguments: Ref(call(*arguments))

    def _run(self, name: str) -> Any:
        def run(*_: Any) -> tuple[Ref, Ref]:
            incarnation = self.job.incarnation
            self.log.append(f"run {name} in {incarnation}")
            if self.dies.get(incarnation) == name:
                return Ref(Ended("The actor died")), Ref(None)
            reports, kept = told({} if name == PROGRESS else {name: Left(ReplicaReport(name, 0), {})})
            return Ref(reports, lambda: incarnation not in self.dies), Ref(kept)

        return run

    def release(self, names: list[str], incarnation: int, stuck: Any) -> None:
        self.log.append(f"release {incarnation}")

    def stop(self, names: list[str]) -> None:
        return None

    def find_stuck(self, names: Any) -> None:
        self.looks += 1
        self.on_look(self.looks)

    def rest(self) -> bool:
        return False

    def end(self) -> None:
        self.log.append("end")


class Snapshots:
    """Publishes a snapshot at each look, the last one when all have ended, ``looks`` later."""

    call: Callable[[], object] | None = None
    """Posted at the first look, as a commit is."""
    log: list[str]
    found: dict[str, Any] = {}  # noqa: RUF012
    """The notes of what the run goes on from."""

    def __init__(self, plan: Any, store: Any, calls: StoreThread, **_: Any) -> None:
        self.calls = calls
        self.manifest = Manifest(0, "job", {}, 128, (), notes=self.found)
        self.final: Manifest | None = None
        self.taken: list[Any] = []
        self.on_published: Callable[[Manifest], None] = lambda manifest: None
        self.looks = 3
        self.store = SimpleNamespace(store=None, publish_finally=lambda manifest: {0: manifest.kind}, retain=lambda: True)

    def close_journal(self) -> None:
        pass

    def ended_in(self, name: str) -> str:
        return ""

    def poll(self, timeout_s: float) -> bool:
        if self.call is not None:
            call, type(self).call = type(self).call, None
            assert call is not None
            self.calls.post("a commit", call, lambda answer: answer.given())
        if self.calls.is_busy:  # one after the other
            return False
        self.looks -= 1
        if self.final is None:
            kind = "final" if self.looks <= 0 else "snapshot"
            manifest = Manifest(1, "job", {}, 128, (), kind=kind)
            self.final = manifest if kind == "final" else None
            self.on_published(manifest)
        return self.final is not None

    def found_complete(self, found: Manifest) -> bool:
        return found.kind == "final"

    def listen(self, *_: Any) -> str:
        return "at the coordinator"

    def find_newest(self, suspected: frozenset[str] = frozenset()) -> Any:
        self.log.append("the newest snapshot is looked for")
        return SimpleNamespace(manifest=self.manifest, begins_again=False)

    def recover(self, found: Any) -> None:
        assert found.manifest is self.manifest
        self.looks = 3

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def made(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    dies: dict[int, str],
    call: Callable[[], object] | None = None,
    *,
    superseded: str = "",
    is_cancelled: bool = False,
    **failures: Any,
) -> tuple[Supervisor, Stage]:
    """A job that has not begun, and its actors. ``call``: what is called as a commit is, at the first look at its snapshots."""
    actors: Any = FakeActors()
    monkeypatch.setattr(stored_job, "CoordinatorSnapshots", Snapshots)
    monkeypatch.setattr(stored_job, "JobStore", lambda *_, **__: None)
    monkeypatch.setattr(Snapshots, "call", None if call is None else staticmethod(call))
    config = rd.RunConfig(storage_path=str(folder), failures=rd.FailureConfig(**{"max_failures": 3, "delay_s": 0.0, **failures}))
    job = RunningJob(plan_of(), config, "job", b"secret", "job", Places(), CoordinatorSurroundings(actors=actors, plane=Plane))
    stage: Any = Stage(job, dies)
    job.crew = stage
    Snapshots.log = stage.log
    job.superseded = superseded
    if is_cancelled:
        job.cancelled.set()
    idle = dict.fromkeys(("stop", "check", "again", "want"), lambda *_: None)
    rescaler: Any = SimpleNamespace(failure=None, newcomers=set(), failed_since_they_came=list, leaving={}, **idle)
    return Supervisor(job, rescaler), stage


def supervised(monkeypatch: pytest.MonkeyPatch, folder: Path, dies: dict[int, str], **options: Any) -> tuple[Any, Stage]:
    """Run a job; gives its outcome, and the calls to its actors."""
    supervisor, stage = made(monkeypatch, folder, dies, **options)
    return supervisor.run(), stage


def test_a_job_runs_and_its_last_snapshot_is_noticed_whenever_it_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression: only snapshots of the first look were reported to the leader, so the job waited for its last one for ever."""
    outcome, stage = supervised(monkeypatch, tmp_path, {})
    assert (outcome.state, outcome.receipts, outcome.failure) == (JobState.COMPLETE, {0: "final"}, None)
    assert stage.log == [*(f"run {name} in 1" for name in [PROGRESS, *stage.processes()]), "end"]


def test_an_actor_that_dies_is_survived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome, stage = supervised(monkeypatch, tmp_path, {1: "v0.0", 2: PROGRESS})
    assert outcome.state is JobState.COMPLETE
    assert outcome.statistics.failures == 2
    everybody = [PROGRESS, *stage.processes()]
    runs = [[f"run {name} in {incarnation}" for name in everybody] for incarnation in (1, 2, 3)]
    read = "the newest snapshot is looked for"
    assert stage.log == [*runs[0], "release 1", read, *runs[1], "release 2", read, *runs[2], "end"]


def test_one_failure_too_many_ends_the_job_with_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome, stage = supervised(monkeypatch, tmp_path, {1: "v0.0", 2: PROGRESS}, max_failures=1)
    assert outcome.state is JobState.FAILED
    assert outcome.failure.who == "'numbers'[0]"
    assert (
        "failure 1 of 2 within 3600 s of running; FailureConfig.max_failures is 1; the last: the actor of the progress actor died"
        in outcome.failure.message
    )
    assert stage.log[-1] == "end"


def test_a_commit_that_hangs_keeps_nobody_from_watching_and_a_recovery_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression: commits ran in the thread that watches, so no death and no heartbeat was noticed before they were back."""
    may_end = threading.Event()

    def commit() -> None:
        assert may_end.wait(PATIENCE_S)
        stage.log.append("the commit has ended")

    supervisor, stage = made(monkeypatch, tmp_path, {1: "v0.0"}, commit)
    thread, waits = supervisor._job.store_thread, iter(range(100))
    wait = thread.wait

    def waited(timeout_s: float) -> None:
        """The recovery waits for the commit: after some looks that ends."""
        if next(waits) == 5:
            may_end.set()
        wait(timeout_s)

    monkeypatch.setattr(thread, "wait", waited)
    outcome = supervisor.run()
    assert (outcome.state, outcome.statistics.failures) == (JobState.COMPLETE, 1)
    seen = [line for line in stage.log if not line.startswith("run")]
    assert seen == ["release 1", "the commit has ended", "the newest snapshot is looked for", "end"]


def test_heartbeats_are_looked_at_while_a_commit_hangs_and_cancel_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    may_end, has_begun = threading.Event(), threading.Event()

    def commit() -> None:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)

    monkeypatch.setattr(stored_job, "CANCELLED_S", 0.05)
    supervisor, stage = made(monkeypatch, tmp_path, {1: "nobody"}, commit)
    seen: list[int] = []

    def on_look(looks: int) -> None:
        if has_begun.is_set():
            seen.append(looks)
        if len(seen) == 3:
            supervisor._job.cancelled.set()

    stage.on_look = on_look
    try:
        assert supervisor.run().state is JobState.CANCELLED
    finally:
        may_end.set()
    assert len(seen) >= 3
    assert stage.log[-1] == "end"
    told = [record.getMessage().split(", which")[0] for record in caplog.records if "thread" not in record.getMessage()]
    assert told == ["job 'job': it ends in the middle of a commit"]


def test_what_a_sink_raises_in_the_thread_fails_the_incarnation_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def commit() -> None:
        raise rd.DataflowError("sink 'table' (app.py:3) failed in commit: no such table")

    outcome, stage = supervised(monkeypatch, tmp_path, {}, call=commit, survive_errors=True)
    assert (outcome.state, outcome.statistics.failures) == (JobState.COMPLETE, 1)
    assert [line for line in stage.log if not line.startswith("run")] == ["release 1", "the newest snapshot is looked for", "end"]
    outcome, _ = supervised(monkeypatch, tmp_path, {}, call=commit, max_failures=0)
    assert outcome.state is JobState.FAILED
    told = "DataflowError: sink 'table' (app.py:3) failed in commit: no such table"
    assert (outcome.failure.who, outcome.failure.message) == ("coordinator", told)


def test_cancel_ends_a_job_whose_store_does_not_answer_at_its_beginning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(stored_job, "CANCELLED_S", 0.05)
    supervisor, stage = made(monkeypatch, tmp_path, {})

    def open_store(*_: Any, **__: Any) -> None:
        supervisor._job.cancelled.set()
        assert may_end.wait(PATIENCE_S)

    monkeypatch.setattr(stored_job, "JobStore", open_store)
    try:
        assert supervisor.run().state is JobState.CANCELLED
    finally:
        may_end.set()
    assert stage.log == ["end"]


def test_a_job_that_another_run_has_taken_over_fails_and_is_not_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = "another run of job 'job' has claimed '/jobs' (snapshot 2)"
    outcome, stage = supervised(monkeypatch, tmp_path, {}, superseded=told)
    assert (outcome.state, outcome.failure.message, outcome.statistics.failures) == (JobState.FAILED, f"Superseded: {told}", 0)
    assert stage.log[-1] == "end"


def test_a_successor_that_is_cancelled_while_it_waits_begins_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome, stage = supervised(monkeypatch, tmp_path, {}, is_cancelled=True)
    assert (outcome.state, stage.log) == (JobState.CANCELLED, ["end"])


def test_failures_are_counted_over_coordinators_of_a_job_and_not_over_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression: a coordinator that took the place of one that died began to count at 0."""
    made_notes: list[dict[str, Any]] = []

    def count(kept: Any, run: str, earlier: tuple[str, ...]) -> int:
        monkeypatch.setattr(Snapshots, "found", kept)
        supervisor, _ = made(monkeypatch, tmp_path, {1: "v0.0"})
        outcome = supervisor.run(run, earlier)
        assert outcome.state is JobState.COMPLETE
        snapshots: Any = supervisor._job.snapshots
        made_notes.append(snapshots.notes())
        return outcome.statistics.failures

    assert count({}, "a", ()) == 1
    assert made_notes[-1] == {"survived": ["a", 1]}
    assert count(made_notes[-1], "b", ("a",)) == 3, "two in coordinators, and the death of the first"
    assert made_notes[-1] == {"survived": ["a", 2]}
    assert count(made_notes[-1], "c", ("a", "b")) == 5
    assert count(made_notes[-1], "d", ()) == 1, "another job, resumed by hand"
    assert count(made_notes[-1], "e", ("x",)) == 2


def test_a_job_that_fails_while_a_commit_hangs_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(stored_job, "END_S", 0.05)
    try:
        outcome, stage = supervised(monkeypatch, tmp_path, {1: "v0.0"}, call=lambda: may_end.wait(PATIENCE_S), max_failures=0)
    finally:
        may_end.set()
    assert (outcome.state, outcome.failure.who) == (JobState.FAILED, "'numbers'[0]")
    assert stage.log[-1] == "end"
