"""``ordered()`` on Ray: uneven work in several processes, output in the order of the input."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rayad as rd
from tests.cluster.recovering import Paced, by_value, kill, surviving, wait_for_snapshots
from tests.patience import PATIENCE_S
from tests.programs import model

pytestmark = pytest.mark.cluster

EPOCHS = [list(range(60)), [], list(range(100, 130))]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(model, sys.modules[__name__]):
        yield


def work(n: int) -> list[tuple[int, bytes]]:
    clock.sleep(0.05 if n % 17 == 0 else 0.001)
    return [(n, bytes(1000))] * (n % 3)


def test_uneven_work_comes_out_in_the_order_of_the_input(nothing_left: Callable[[], None]) -> None:
    flow = rd.Dataflow("ordered")
    worked = flow.from_epochs(EPOCHS, batch_rows=1).rebalance().flat_map(work)
    worked.ordered(memory_bytes=2000).map(lambda pair: pair[0]).collect("out")
    worked.collect("as it comes")
    result = flow.run(parallelism=3, timeout_s=PATIENCE_S)
    expected = [(rd.Timestamp(epoch), n) for epoch, numbers in enumerate(EPOCHS) for n in numbers for _ in range(n % 3)]
    assert result["out"] == expected
    assert sorted((time, pair[0]) for time, pair in result["as it comes"]) == expected


@pytest.mark.soak
def test_the_order_survives_killed_actors(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    epochs = [[100 * epoch + i for i in range(12)] for epoch in range(120)]
    flow = rd.Dataflow("survivor")
    worked = flow.source(Paced(epochs, pause_s=0.02), name="ticks").rebalance().flat_map(work, name="work")
    worked.ordered(memory_bytes=2000).map(lambda pair: pair[0]).collect("out")
    job = flow.submit(surviving(tmp_path), parallelism=2)
    for which in (-1, 1):
        wait_for_snapshots(tmp_path, "survivor", 2)
        kill("VertexActor", which)
    result = job.wait(timeout_s=PATIENCE_S)
    assert result["out"] == [(rd.Timestamp(epoch), n) for epoch, numbers in enumerate(epochs) for n in numbers for _ in range(n % 3)]
    assert result.statistics.failures == 2
