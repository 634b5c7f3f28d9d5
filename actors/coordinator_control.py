"""What other threads ask of a coordinator while its long call runs: the driver, the autoscaler, sources that reconnect."""

from __future__ import annotations

import threading
import time as clock
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rayad.actors import layouts
from rayad.actors.coordinator_rescale import Rescaler
from rayad.actors.coordinator_snapshots import SnapshotKeeper
from rayad.actors.crew import Crew
from rayad.actors.job import JobState
from rayad.actors.layouts import Rescale
from rayad.actors.plane import Address
from rayad.actors.protocol import PROGRESS, replica_name
from rayad.actors.replica_report import ReplicaReport
from rayad.dataflow.config import RunConfig
from rayad.dataflow.graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import ConfigError, SnapshotError, Timestamp
from rayad.snapshots.coordination import SnapshotStatistics


class CoordinatorControl:
    """The control calls of :class:`rayad.actors.coordinator.Coordinator`."""

    plan: Plan
    config: RunConfig
    state: JobState
    failures: int
    rescaler: Rescaler
    _name: str
    _crew: Crew
    _keeper: SnapshotKeeper | None
    _found: dict[str, tuple[Address, int, dict[str, Any]]]
    _cancelled: threading.Event
    _running: threading.Event
    _stopping: bool

    def cancel(self) -> None:
        """End the job without results."""
        self._cancelled.set()

    def where(self, name: str, timeout_s: float) -> tuple[Address, int, dict[str, Any]] | None:
        """The address of a replica, its incarnation, and the notes of the snapshot that this one went on from, once the job runs.

        The three belong together: an incarnation may be over by the time its addresses are used, and then nobody listens there.
        """
        self._running.wait(timeout_s)
        return self._found.get(name)

    def saved_inputs(self) -> dict[str, int]:
        """How many frames of each live input are in all the snapshots that a recovery may go on from."""
        return dict(self._keeper.saved_inputs) if self._keeper is not None else {}

    def savepoint(self, timeout_s: float | None) -> str:
        """See Job.savepoint."""
        if self._keeper is None:
            raise ConfigError(f"job {self._name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        self._running.wait(self.config.start_timeout_s)
        if self.state is not JobState.RUNNING:
            raise SnapshotError(f"job {self._name!r} is {self.state.value}: no savepoint can be taken")
        return self._keeper.savepoint(timeout_s)

    def rescale(self, wanted: dict[str, int], timeout_s: float = 120.0, decided_for: dict[str, int] | None = None) -> Rescale:
        """See Job.rescale; refused when the layout is not, or no longer, the one that this was ``decided_for``."""
        return self.rescaler.rescale(wanted, timeout_s, decided_for)

    def replicas(self) -> tuple[dict[str, int], dict[str, Any]] | None:
        """Replicas by vertex, and the handles of the vertex actors by plane name; None while the job does not run."""
        if self.state is not JobState.RUNNING or not self._running.is_set():
            return None
        actors, newcomers = dict(self._crew.actors), self.rescaler.newcomers
        there = {name: actors[name] for name in self._crew.names() if name in actors and name not in newcomers}
        return layouts.asked_of(self.plan), there

    def configure(self, changes: dict[str, Any]) -> None:
        """See Job.configure."""
        self.rescaler.configure(changes)

    def look(self) -> tuple[JobState, list[ReplicaReport], dict[int, Any], int]:
        """State, what the replicas did, views by stage, active pointstamps."""
        if self.state is not JobState.RUNNING:
            return self.state, [], {}, 0
        try:
            crew, progress = dict(self._crew.actors), self._crew.actors[PROGRESS]
            there = [name for name in self._crew.names() if name in crew and name not in self.rescaler.newcomers]
            reports = ray.get([crew[name].look.remote() for name in there], timeout=10)
            views, active = ray.get([progress.call.remote("look"), progress.call.remote("active")], timeout=10)
            return self.state, reports, views, active
        except (RayActorError, RayTaskError, GetTimeoutError, KeyError):
            return self.state, [], {}, 0

    def look_at_snapshots(self) -> tuple[SnapshotStatistics | None, float | None, int]:
        """The newest snapshot, the interval, and how many failures there were."""
        taken = self._keeper.snapshots if self._keeper is not None else None
        return (taken.last, taken.interval_s, self.failures) if taken is not None else (None, None, self.failures)

    def blockers(self) -> list[tuple[str, Timestamp, list[tuple[str, Timestamp, int]]]]:
        """See ProgressHost.blockers."""
        return self._call("blockers") or []

    def frontier(self, node: int) -> tuple[Timestamp, ...]:
        """The frontier at a probe; empty when the job is over."""
        self._running.wait(self.config.start_timeout_s)
        return self._call("frontier", node) or ()

    def wait_epoch(self, node: int, epoch: int, timeout_s: float | None) -> bool:
        """Wait for an epoch at a probe."""
        deadline_s = clock.monotonic() + timeout_s if timeout_s is not None else float("inf")
        while True:
            left_s = deadline_s - clock.monotonic()
            self._running.wait(max(0.0, min(left_s, self.config.start_timeout_s)))
            if self.state is not JobState.RUNNING:
                return self._is_complete()
            try:
                left = None if timeout_s is None else max(0.0, left_s)
                return bool(ray.get(self._crew.actors[PROGRESS].call.remote("wait_epoch", node, epoch, left)))
            except (RayActorError, RayTaskError, KeyError):  # this incarnation is over; perhaps there is another
                if self._keeper is None or left_s <= 0:
                    return self._is_complete()
                clock.sleep(0.02)

    def _is_complete(self) -> bool:
        return self.state is JobState.COMPLETE

    def _call(self, method: str, *args: Any) -> Any:
        if self.state is not JobState.RUNNING or PROGRESS not in self._crew.actors:
            return None
        try:
            return ray.get(self._crew.actors[PROGRESS].call.remote(method, *args), timeout=10)
        except (RayActorError, RayTaskError, GetTimeoutError, KeyError):
            return None

    def stop(self) -> None:
        """Sources read no more, live inputs close: each when it comes back from what it does."""
        self._stopping = True
        if not self._running.is_set():
            return  # told when it begins
        for name in self._starts():
            actor = self._crew.actors.get(name)
            if actor is not None:  # else it goes on in another incarnation, which is told when it begins
                actor.stop.remote()

    def not_stopped(self) -> list[str]:
        """Which replicas of sources and live inputs have not yet taken notice of :meth:`stop`, or do not answer within a second."""
        if not self._running.is_set():
            return []
        asked = {name: self._crew.actors[name].has_stopped.remote() for name in self._starts() if name in self._crew.actors}
        ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=1.0) if asked else ([], [])
        out = []
        for name, ref in asked.items():
            try:
                has_stopped = ref in ready and ray.get(ref)
            except (RayActorError, RayTaskError):
                continue  # gone, with what it read
            if not has_stopped:
                vertex, replica = self._crew.replica(name)
                out.append(f"{vertex!r}[{replica}]")
        return out

    def _starts(self) -> list[str]:
        starts = [stage for stage in self.plan.stages if stage.kind in (NodeKind.SOURCE, NodeKind.INPUT)]
        return [replica_name(stage.id, replica) for stage in starts for replica in range(stage.parallelism)]


__all__ = ["CoordinatorControl"]
