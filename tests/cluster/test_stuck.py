"""``explain_stuck`` on real Ray, where its facts come from several processes: a snapshot that aligns, a store that is away.

Stopped processes and functions that do not return are in ``test_hangs.py``, actors that cannot be placed in ``test_endings.py``.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.cluster.recovering import by_value, surviving, until

Check = Callable[[], None]


@pytest.fixture(autouse=True)
def _pickled_by_value() -> Any:
    with by_value(sys.modules[__name__]):
        yield


@pytest.mark.usefixtures("own_actors")
def test_a_snapshot_that_aligns_and_a_store_that_is_away_are_named(nothing_left: Check, tmp_path: Path) -> None:
    gate, store = tmp_path / "gate", tmp_path / "store"

    def hold(number: int) -> int:
        while os.path.exists(gate):
            time.sleep(0.01)
        return number

    flow = rd.Dataflow("aligning")
    held = flow.input("held").map(hold, name="hold")
    held.union(flow.input("free")).key_by(lambda number: number % 2).count(name="counts").probe("seen").collect("out")
    job = flow.submit(surviving(store, snapshots={"failures_max": None}))
    told: list[str] = []

    def first_is(pattern: str) -> bool:
        told[:] = job.explain_stuck().splitlines()
        return re.fullmatch(pattern, told[0]) is not None

    idle = r"The job waits for input '(held|free)'\[0\] on node [\d.]+, which is open in epoch 0 and has got nothing.*"
    until(lambda: first_is(idle), "the inputs are idle")
    blocked = r"The job waits for 'held'\[0\] on node [\d.]+, which is in .* for \d+\.\d s, in hold \(\S+test_stuck.py:\d+\)\."
    also = r"also: it waits for snapshot \d+ at 'counts'\[0\] on node [\d.]+: the barrier of 'held'\[0\] has not come for \d+\.\d s\."

    def aligns() -> bool:
        """Hold a record: the snapshot then waits for the barrier behind it, unless that passed just before the record came."""
        gate.touch()
        job.input("held").send([1])
        until(lambda: first_is(blocked) and job.status().snapshots_late is not None, "the function and the snapshot that waits for it")
        assert not any("waits for its store" in line for line in told), told
        found = any(re.fullmatch(also, line) for line in told)
        gate.unlink()
        until(lambda: first_is(idle), "the inputs are idle again")
        return found

    until(aligns, "a snapshot waits for the barrier behind a held record")
    store.rename(tmp_path / "away")
    store.touch()
    away = r"The job waits for its store: \d+ snapshots? in a row failed, the last because .*"
    until(lambda: first_is(away), "the store is away")
    job.cancel()
