"""Python values by key and their timers, most of them on disk, on real processes: a worker is killed, replicas come and go."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.cluster.recovering import kill, surviving
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
KEYS, EPOCHS, ROWS, WAITS = 12_000, 18, 3_000, 3


def counted(state: dict[str, Any] | None, row: tuple[int, int]) -> tuple[dict[str, Any], int]:
    state = state or {"count": 0, "text": "x" * 200}
    state["count"] += 1
    return state, state["count"]


class Silence(rd.Process):
    """Tells how many records a key has had whenever a timer fires: one is set for each record."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(record[1] + WAITS)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit((context.time, context.state))


def rows(epoch: int) -> list[tuple[int, int]]:
    chance = random.Random(epoch)
    return [(chance.randrange(KEYS), epoch) for _ in range(ROWS)]


def expected() -> tuple[Counter[Any], Counter[Any]]:
    """The counts, by epoch and key, and what timers tell: by then a key has had the records before the timer and at it."""
    counts, timers = Counter[Any](), Counter[Any]()
    had, times = Counter[int](), dict[int, Counter[int]]()
    for epoch in range(EPOCHS):
        for key, _ in rows(epoch):
            had[key] += 1
            counts[epoch, key, had[key]] += 1
            times.setdefault(key, Counter())[epoch] += 1
    for key, at in times.items():
        for epoch in at:
            timers[key, epoch + WAITS, sum(n for other, n in at.items() if other <= epoch + WAITS)] += 1
    return counts, timers


def test_nothing_is_lost_of_what_is_on_disk(nothing_left: Check, workers: None, tmp_path: Path) -> None:
    flow = rd.Dataflow("beyond")
    stream = flow.input("rows")
    stream.key_by(itemgetter(0)).stateful_map(counted, None, name="kept").probe("seen").collect("counts")
    stream.assign_timestamps(itemgetter(1)).key_by(itemgetter(0)).process(Silence, name="timers").probe("fired").collect("timers")
    job = flow.submit(dataclasses.replace(surviving(tmp_path, failures=3), state_memory_bytes=1 << 20), parallelism=2)
    source = job.input("rows")
    for epoch in range(EPOCHS):
        source.send(rows(epoch))
        source.advance_to(epoch + 1)
        for probe in ("seen", "fired"):
            job.probe(probe).wait(epoch, timeout_s=PATIENCE_S)
        if epoch in (6, 10, 14):
            job.savepoint()
            job.savepoint()  # what is on disk is the store's now, and goes to others by name
        if epoch in (6, 14):
            job.rescale("kept", 3 if epoch == 6 else 1, timeout_s=PATIENCE_S)
        if epoch == 10:
            kill("WorkerActor")
    source.close()
    result = job.wait(timeout_s=PATIENCE_S)
    counts, timers = expected()
    assert Counter((time.epoch, *row) for time, row in result["counts"]) == counts
    assert Counter((key, *told) for _, (key, told) in result["timers"]) == timers
