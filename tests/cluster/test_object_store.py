"""A job on Ray with snapshots and results on a server that speaks S3; a replica and the coordinator are killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest

import rayad as rd
from rayad.actors.job import JobState
from rayad.snapshots.store import SnapshotStore
from tests.cluster.recovering import Paced, by_value, kill, until
from tests.integrations.object_store import serving
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster
EPOCHS = [[(31 * epoch + 7 * i) % 23 for i in range(20)] for epoch in range(200)]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(sys.modules[__name__]):
        yield


def test_a_job_keeps_everything_on_an_object_store(nothing_left: Callable[[], None]) -> None:
    with serving() as objects:
        out = objects.uri("out")
        flow = rd.Dataflow("remote")
        counts = flow.source(Paced(EPOCHS, pause_s=0.02), name="ticks").key_by(lambda n: n % 5).count(name="counts")
        counts.map(lambda pair: {"key": pair[0], "count": pair[1]}).write_parquet(out, epoch_column="epoch")
        failures = rd.FailureConfig(max_failures=5)
        config = rd.RunConfig(storage_path=objects.uri("jobs"), snapshots=rd.SnapshotConfig(interval_s=0.3), failures=failures)
        job = flow.submit(config, parallelism=1)
        store = SnapshotStore(objects.uri("jobs/remote/snapshots"))
        until(lambda: len(store.numbers()) >= 2, "two snapshots")
        newest = store.numbers()[-1]
        kill("VertexActor", -1)
        until(lambda: store.numbers()[-1] > newest, "a snapshot after the kill")
        assert job.state is JobState.RUNNING
        newest = store.numbers()[-1]
        kill("Coordinator", -1)
        time.sleep(0.2)
        result = job.wait(timeout_s=PATIENCE_S)
        assert store.numbers()[-1] > newest
        assert result.statistics.failures == 2  # the last coordinator knows of what the one before it has survived
        kept = {row["key"]: row["count"] for row in rd.read_state(objects.uri("jobs/remote"), "counts", trust=True).to_pylist()}
        found = sorted((row["epoch"], row["key"], row["count"]) for row in rd.read_committed(out).to_table().to_pylist())
    seen: dict[int, int] = {}
    wanted = []
    for epoch, numbers in enumerate(EPOCHS):
        for n in numbers:
            seen[n % 5] = seen.get(n % 5, 0) + 1
        wanted += [(epoch, key, seen[key]) for key in {n % 5 for n in numbers}]
    assert found == sorted(wanted)
    assert kept == seen
