"""The coordinator's side of snapshots, over real sockets: replicas are planes that send what a replica sends."""

from __future__ import annotations

import time
from pathlib import Path

import rayad as rd
from rayad.actors.coordinator.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.store_thread import StoreThread
from rayad.actors.plane.plane import Frame
from rayad.actors.plane.protocol import COORDINATOR, Kind, replica_name
from rayad.actors.status.journal import Journal
from rayad.actors.store.job_store import JobStore
from rayad.snapshots.barrier import Barrier
from tests.actors.planes import SECRET, new_plane, pump
from tests.patience import PATIENCE_S


def test_a_job_that_is_complete_before_all_replicas_are_connected_takes_its_last_snapshot_with_all(tmp_path: Path) -> None:
    """An input that is closed at once: one replica tells of the end while another is still on its way to the coordinator."""
    flow = rd.Dataflow("short")
    flow.input("numbers").key_by(lambda number: number % 7).count(name="counts").collect("out")
    plan = flow.plan({"counts": 2})
    store = JobStore("short", plan, rd.RunConfig(storage_path=str(tmp_path)), run="first")
    calls = StoreThread(lambda: None)
    snapshots = CoordinatorSnapshots(plan, store, job="job", secret=SECRET, journal=Journal(time.monotonic), calls=calls)
    address = snapshots.listen("127.0.0.1", 1, "auto")
    names = [replica_name(stage.id, replica) for stage in plan.stages for replica in range(stage.parallelism)]
    *early, late = [new_plane(name) for name in names]

    class Here:
        """The coordinator, as one of those that are polled."""

        name = COORDINATOR

        def poll(self, timeout_s: float) -> list[Frame]:
            assert not snapshots.poll(timeout_s)
            return []

    everybody = [*early, Here()]
    try:
        for plane in early:
            plane.start_connect(COORDINATOR, address)
        pump(everybody, lambda _: all(plane.connected(COORDINATOR) for plane in early), PATIENCE_S)  # type: ignore[arg-type]
        for plane in early:
            plane.send(COORDINATOR, Kind.FINISHED, 0, b"")
        for _ in range(50):
            pump(everybody, lambda _: True)  # type: ignore[arg-type]
            for plane in everybody:
                plane.poll(0.0)
        late.start_connect(COORDINATOR, address)
        begun = pump([late, *everybody], lambda got: all(got[name] for name in names), PATIENCE_S)  # type: ignore[arg-type]
        barriers = [Barrier.unpack(frame.payload) for name in names for frame in begun[name] if frame.kind == Kind.BEGIN]
        assert [barrier.final for barrier in barriers] == [True] * len(names)
    finally:
        for plane in (*early, late):
            plane.close(linger_s=0)
        snapshots.close()
