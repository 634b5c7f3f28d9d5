"""What is late stays late when the replicas of an operator by event time change, also where state is long on its way: the watermark is of
no key, so each replica has all of it, and a new one must not go by the part that it has heard itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.late_transfers import late_transfers

STAYS = 1
"""A key whose group stays where it is when one replica becomes four."""
Call = tuple[str, int, int]
"""A record: of which input, its epoch and its event time."""
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "interval join": lambda a, b: a.key_by("k").join(b.key_by("k"), within=rd.between(-1, 1), how="full", name="joined"),
    "window join": lambda a, b: a.key_by("k").window(rd.windows.tumbling(2)).join(b.key_by("k"), how="full", name="joined"),
    "as-of join": lambda a, b: a.key_by("k").join_asof(b.key_by("k"), name="joined"),
    "windows": lambda a, b: a.union(b).key_by("k").window(rd.windows.tumbling(2)).count(name="joined"),
    "sessions": lambda a, b: a.union(b).key_by("k").window(rd.windows.session(1)).count(name="joined"),
}


def built(kind: str, idle: int | None) -> rd.Dataflow:
    flow = rd.Dataflow("late")
    sides = [flow.input(side).assign_timestamps("t", max_delay=4, idle_epochs=idle) for side in "ab"]
    joined = OPERATORS[kind](*sides)
    joined.collect("out")
    joined.late.collect("late")
    return flow


def fed(job: Any, calls: Sequence[Call], ends: int) -> None:
    """Send what was not sent yet, of a only for one key: one that stays where it is holds no epoch back while the others move. Then the
    epochs before ``ends`` are complete."""
    sent = Counter[str]()
    for side, epoch, time in calls:
        handle = job.input(side)
        sent[side] += 1
        if sent[side] > handle.sent:
            handle.advance_to(max(epoch, handle.epoch))
            handle.send([{"k": k, "t": time} for k in (range(6) if side == "b" else [STAYS])])
    for side in "ab":
        job.input(side).advance_to(max(ends, job.input(side).epoch))


def run(kind: str, idle: int | None, calls: Sequence[Call], how: str, folder: Path) -> dict[str, Counter[str]]:
    """What comes out when, after the first record, nothing happens, the job resumes with four replicas, or is rescaled to them."""
    first = calls[0][1] + 1
    config = rd.RunConfig(name="late", storage_path=str(folder))
    job: Any = built(kind, idle).submit(config, rd.ScalingConfig(parallelism={"joined": 1}), runtime="local", seed=0)
    fed(job, calls[:1], first)
    while job.step():
        pass
    if how == "resumed":
        job.savepoint()
        job.cancel()
        scaling = rd.ScalingConfig(parallelism={"joined": 4})
        job = built(kind, idle).submit(replace(config, resume="latest"), scaling, runtime="local", seed=0)
    elif how != "left alone":
        job.start_rescale({"joined": 4}, groups=60 if how == "rescaled in steps" else None)
    while job.rescaling is not None and not job.rescaling.has_transfers:
        job.step()  # until state is on its way
    fed(job, calls, first)
    for side in "ab":
        job.input(side).close()
    result = job.wait()
    job.check_invariants()
    return {name: Counter(map(repr, result[name])) for name in ("out", "late")}


@pytest.mark.parametrize(("how", "idle"), [("resumed", 3), ("resumed", None), ("rescaled", 3), ("rescaled in steps", 3)])
@pytest.mark.parametrize("kind", OPERATORS)
def test_a_late_record_is_late_after_a_change_from_one_to_four_replicas(kind: str, how: str, idle: int | None, tmp_path: Path) -> None:
    """The second record of b is late, since a has gone on to 9 in the epoch before: while the state was on its way."""
    calls = [("b", 0, 8), ("a", 2, 9), ("a", 2, -6), ("b", 3, -5), ("a", 8, 12), ("b", 9, 13), ("a", 10, -4)]
    expected = run(kind, idle, calls, "left alone", tmp_path / "left alone")
    assert sum(expected["late"].values()) == 7
    with late_transfers(1):
        assert run(kind, idle, calls, how, tmp_path / "changed") == expected
