"""A coordinator of the simulated job, with its one replica: records are the numbers from 0 on, and the state is how many there were."""

from __future__ import annotations

import json
import random
from typing import Any

import cloudpickle
from pyarrow import fs

from rayad.actors.replica.parts.part_files import write_staged
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, SnapshotError, Timestamp
from rayad.snapshots.attempts import PartReport, SnapshotAttempts
from rayad.snapshots.manifest import KeeperId, Manifest, PartFile, ReplicaPart
from rayad.snapshots.store import SnapshotStore, Superseded
from tests.simulation.fence.steps import Process, SteppingPort

VERTEX = "numbers"
CHAIN_MAX = 3
"""Increments before a whole file is written."""
RECOVERIES_MAX = 12
BATCH = 4


class Coordinator:
    """One life of a coordinator.

    Args:
        process: whose steps its calls are.
        program: the plan, pickled.
        config: of the run.
        folder: of the store, ``output``: of the sink.
        total: so many records are the whole input.
        resume: see :class:`RunConfig`.
        earlier: runs of the coordinators before it; ``has_begun``: whether one of them is known to have begun.
        rng: for what it does beside writing.
    """

    def __init__(
        self,
        process: Process,
        program: bytes,
        config: RunConfig,
        folder: str,
        output: str,
        total: int,
        *,
        run: str,
        earlier: tuple[str, ...],
        has_begun: bool,
        keeper: KeeperId | None,
        rng: random.Random,
    ) -> None:
        plan: Plan = cloudpickle.loads(program)
        local = fs.LocalFileSystem()
        for sink in plan.sinks:
            sink.sink.port = SteppingPort(process, local, output)
        store = SnapshotStore(folder)
        store.port = SteppingPort(process, local, folder)
        self.store = JobStore("fence", plan, config, store, run=run, earlier=earlier, has_begun=has_begun, keeper=keeper)
        self.plan, self.total, self._rng = plan, total, rng
        self.position = 0
        """Records that the newest snapshot of this run holds."""
        self.is_complete = self.is_superseded = False
        self.outcome = ""
        self._files: tuple[PartFile, ...] = ()
        self._staged: list[Any] = []
        self._reached = 0
        self._incarnation = 0
        self._writer: Any = None
        self.attempts: SnapshotAttempts

    def run(self) -> None:
        """All of its life."""
        try:
            begun = self.store.begin()
            self._go_on(begun)
            failures = 0
            while not self.is_complete:
                try:
                    self._work()
                except Superseded:
                    raise
                except (SnapshotError, DataflowError, OSError) as error:
                    failures += 1
                    if failures > RECOVERIES_MAX:
                        raise
                    self.outcome = repr(error)
                    self._recover()
        except Superseded as error:
            self.is_superseded, self.outcome = True, repr(error)
        except (SnapshotError, DataflowError, OSError) as error:
            self.outcome = repr(error)  # the job gives up; whoever starts it again resumes

    def _recover(self) -> None:
        """The replica is gone: another one begins with the newest snapshot."""
        for _ in range(RECOVERIES_MAX):
            try:
                self._go_on(self.store.recover())
                return
            except Superseded:
                raise
            except (SnapshotError, DataflowError, OSError) as error:
                failed = error
        raise failed

    def _go_on(self, manifest: Manifest) -> None:
        self._incarnation += 1
        self._files = manifest.parts[0].files if manifest.parts else ()
        self.position = self._reached = json.loads(self.store.store.read_part(self._files[-1]))["position"] if self._files else 0
        for file in self._files:
            self.store.store.read_part(file)
        self.store.on_running()
        self._staged = []
        self.attempts = SnapshotAttempts([(VERTEX, 0)], published=self.store.newest)
        self.is_complete = manifest.kind == "final"
        if self.is_complete:
            self.store.publish_finally(manifest)
            self.store.retain()
        else:
            self._writer = self.plan.sinks[0].sink.open(0, 1)

    def _work(self) -> None:
        """Write some records, and take a snapshot."""
        count = min(self.total - self._reached, self._rng.choice((0, 1, BATCH)))
        if count:
            rows = [{"a": number} for number in range(self._reached, self._reached + count)]
            self._writer.write(Timestamp(self._reached // 8), rows)
            self._reached += count
        is_last = self._reached >= self.total
        kind = "final" if is_last else "savepoint" if self._rng.random() < 0.1 else "snapshot"
        try:
            manifest = self._snapshot(kind)
        except Superseded:
            raise
        except SnapshotError as error:
            if self.attempts.pending is not None:
                self.attempts.on_failed(self.attempts.pending.number, str(error))
            if is_last or self._rng.random() < 0.2:
                raise
            return
        self.position = self._reached
        self.store.note(manifest)
        if manifest.kind == "final":
            self.store.publish_finally(manifest)
            self.is_complete = True
        else:
            self.store.let_sinks_publish(manifest)
        self.store.retain()

    def _snapshot(self, kind: str) -> Manifest:
        barrier = self.attempts.begin(0.0, kind=kind)
        stage = self.plan.stages[0]
        self._staged += [("out", value) for value in [self._writer.stage()] if value]
        staged = write_staged(self.store.store, stage, 0, self._incarnation, barrier, self._staged)
        is_whole = not self._files or len(self._files) > CHAIN_MAX or not barrier.base
        data = json.dumps({"position": self._reached}).encode()
        name = f"{self.store.run}.{self._incarnation}.{barrier.number}"
        file = self.store.store.write_part(barrier.slot, VERTEX, 0, [data], attempt=name)
        files = (file,) if is_whole else (*self._files, file)
        self.attempts.on_report(PartReport(barrier.number, ReplicaPart(VERTEX, 0, files), staged=staged))
        manifest = self.store.publish(self.attempts, self._incarnation, {"position": self._reached})
        self.attempts.on_published(0.0)
        self._files, self._staged = files, []
        return manifest
