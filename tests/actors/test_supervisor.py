"""The coordinator's thread without Ray: calls answer at once, actors fail on demand; the leader decides, the supervisor carries out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

import rayad as rd
from rayad.actors.coordinator import supervisor as module
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.job import JobState
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.report import ReplicaReport
from rayad.snapshots.store import Manifest
from tests.actors.leading import plan_of


class Ref:
    """An answer, there when ``is_ready`` says so."""

    def __init__(self, answer: Any, is_ready: Callable[[], bool] = lambda: True) -> None:
        self.answer = answer
        self.is_ready = is_ready


class FakeRay:
    def wait(self, refs: list[Ref], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Ref], list[Ref]]:
        ready = [ref for ref in refs if ref.is_ready()][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref: Ref, timeout: float = 0.0) -> Any:
        if isinstance(ref.answer, Exception):
            raise ref.answer
        return ref.answer


class Stage:
    """The job's actors and their actions in one object; ``dies``: which actor dies next, in which incarnation."""

    def __init__(self, job: RunningJob, dies: dict[int, str]) -> None:
        self.job = job
        self.dies = dies
        self.log: list[str] = []
        self.actors: dict[str, Any] = {}
        self.is_held = False

    def names(self) -> list[str]:
        return [f"v{stage.id}.{r}" for stage in self.job.plan.stages for r in range(stage.parallelism)]

    def replica(self, name: str) -> tuple[str, int]:
        return name, 0

    def start(self) -> None:
        for name in [PROGRESS, *self.names()]:
            self.actors.setdefault(name, SimpleNamespace(listen=self._method(lambda *_, name=name: f"at {name}"), run=self._run(name)))

    def _method(self, call: Callable[..., Any]) -> Any:
        return SimpleNamespace(remote=lambda *arguments: Ref(call(*arguments)))

    def _run(self, name: str) -> Any:
        def remote(*_: Any) -> tuple[Ref, Ref]:
            incarnation = self.job.incarnation
            self.log.append(f"run {name} in {incarnation}")
            if self.dies.get(incarnation) == name:
                return Ref(RayActorError()), Ref(None)
            done = {} if name == PROGRESS else ReplicaReport(name, 0)
            return Ref(done, lambda: incarnation not in self.dies), Ref({})

        return SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=remote))

    def release(self, names: list[str], incarnation: int, stuck: Any) -> None:
        self.log.append(f"release {incarnation}")

    def stop(self, names: list[str]) -> None:
        return None

    def find_stuck(self, names: Any) -> None:
        return None

    def end(self) -> None:
        self.log.append("end")


class Snapshots:
    """Publishes a snapshot at each look, the last one when all have ended, ``looks`` later."""

    def __init__(self, plan: Any, store: Any, **_: Any) -> None:
        self.manifest = Manifest(0, "job", {}, 128, ())
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
        self.looks -= 1
        if self.final is None:
            kind = "final" if self.looks <= 0 else "snapshot"
            manifest = Manifest(1, "job", {}, 128, (), kind=kind)
            self.final = manifest if kind == "final" else None
            self.on_published(manifest)
        return self.final is not None

    def resume_complete(self) -> bool:
        return False

    def listen(self, *_: Any) -> str:
        return "at the coordinator"

    def recover(self) -> None:
        self.looks = 3

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def supervised(monkeypatch: pytest.MonkeyPatch, folder: Path, dies: dict[int, str], **failures: Any) -> tuple[Any, Stage]:
    """Run a job; gives its outcome, and the calls to its actors."""
    monkeypatch.setattr(module, "ray", FakeRay())
    monkeypatch.setattr(module, "CoordinatorSnapshots", Snapshots)
    monkeypatch.setattr(module, "JobStore", lambda *_, **__: None)
    config = rd.RunConfig(storage_path=str(folder), failures=rd.FailureConfig(**{"max_failures": 3, "delay_s": 0.0, **failures}))
    job = RunningJob(plan_of(), config, "job", b"secret", "job")
    stage: Any = Stage(job, dies)
    job.crew = stage
    idle = dict.fromkeys(("stop", "check", "again", "want"), lambda *_: None)
    rescaler: Any = SimpleNamespace(failure=None, newcomers=set(), leaving={}, **idle)
    return Supervisor(job, rescaler).run(), stage


def test_a_job_runs_and_its_last_snapshot_is_noticed_whenever_it_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression: only snapshots of the first look were reported to the leader, so the job waited for its last one for ever."""
    outcome, stage = supervised(monkeypatch, tmp_path, {})
    assert (outcome.state, outcome.receipts, outcome.failure) == (JobState.COMPLETE, {0: "final"}, None)
    assert stage.log == [*(f"run {name} in 1" for name in [PROGRESS, *stage.names()]), "end"]


def test_an_actor_that_dies_is_survived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome, stage = supervised(monkeypatch, tmp_path, {1: "v0.0", 2: PROGRESS})
    assert outcome.state is JobState.COMPLETE
    assert outcome.statistics.failures == 2
    everybody = [PROGRESS, *stage.names()]
    runs = [[f"run {name} in {incarnation}" for name in everybody] for incarnation in (1, 2, 3)]
    assert stage.log == [*runs[0], "release 1", *runs[1], "release 2", *runs[2], "end"]


def test_one_failure_too_many_ends_the_job_with_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome, stage = supervised(monkeypatch, tmp_path, {1: "v0.0", 2: PROGRESS}, max_failures=1)
    assert outcome.state is JobState.FAILED
    assert outcome.failure.who == "'numbers'[0]"
    assert (
        "failure 1 of 2 within 3600 s of running; FailureConfig.max_failures is 1; the last: the actor of the progress actor died"
        in outcome.failure.message
    )
    assert stage.log[-1] == "end"
