"""Windows of very many keys that end at one moment fire in parts where state may be on disk: with the same results, some keys at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.windows import panes, session_columns
from rayad.dataflow.operators.windows.panes import Panes, Part
from rayad.dataflow.operators.windows.session_columns import Sessions
from tests.thorough import by_turns

EPOCHS, ROWS, KEYS, DAY = 6, 400, 900, 100
BOUND, AT_ONCE = 1 << 20, 50

ONE_INPUT: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda keyed: keyed.window(rd.windows.tumbling(DAY)).sum("v", name="kept"),
    "sliding": lambda keyed: keyed.window(rd.windows.sliding(2 * DAY, DAY)).count(name="kept"),
    "many panes": lambda keyed: keyed.window(rd.windows.sliding(DAY, 10)).count(name="kept"),
    "given": lambda keyed: keyed.window(rd.windows.given("begins", "ends")).count(name="kept"),
    "best": lambda keyed: keyed.window(rd.windows.tumbling(DAY)).max_by("v", name="kept"),
    "session": lambda keyed: keyed.window(rd.windows.session(DAY)).sum("v", name="kept"),
}
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    how: lambda left, right, how=how: left.window(rd.windows.tumbling(DAY)).join(right, how=how, name="kept")  # type: ignore[misc]
    for how in ("inner", "left", "full", "semi", "anti")
}


def batch_of(epoch: int) -> pa.RecordBatch:
    """Rows of one day, but for those of the last epoch."""
    chance = np.random.default_rng(epoch)
    at = chance.integers(0, DAY, ROWS) + (DAY if epoch == EPOCHS - 1 else 0)
    columns = {"k": chance.integers(0, KEYS, ROWS), "at": at, "v": chance.integers(0, 1000, ROWS), "side": chance.integers(0, 2, ROWS)}
    return pa.record_batch({**columns, "begins": at // DAY * DAY, "ends": at // DAY * DAY + DAY})


def run(kind: str, folder: Path, bound: int | None) -> list[Any]:
    """With a bound the job is disturbed between two epochs."""
    flow = rd.Dataflow("one-moment")
    timed = flow.input("rows").assign_timestamps("at", max_delay=2 * DAY)
    if kind in ONE_INPUT:
        kept = ONE_INPUT[kind](timed.key_by("k"))
    else:
        kept = JOINS[kind](*(timed.filter(rd.col("side") == side).key_by("k") for side in (0, 1)))
    kept.probe("seen").collect("out")
    job: Any = flow.submit(rd.RunConfig(storage_path=str(folder), state_memory_bytes=bound), runtime="local", parallelism=2)
    rows = job.input("rows")
    for epoch in range(EPOCHS):
        rows.send(batch_of(epoch))
        rows.advance_to(epoch + 1)
        job.probe("seen").wait(epoch)
        if bound is not None and epoch == 1:
            job.rescale("kept", 3)
        elif bound is not None and epoch == 2:
            job.savepoint()
            job.crash()
        elif bound is not None and epoch == 3:
            job.rescale("kept", 1)
    rows.close()
    return sorted(((time.epoch, row) for time, row in job.wait()["out"]), key=repr)


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Little of the bound is used, in pieces of 1 KiB. Gives how many rows each part has that fired."""
    for name, part in (("HELD_PART", 1 << 7), ("LEFT_PART", 1 << 8), ("PIECE_PART", 1 << 10)):
        monkeypatch.setattr(disk, name, part)
    for module in (panes, session_columns):
        monkeypatch.setattr(module, "FIRED_ROWS", AT_ONCE)
    monkeypatch.setattr(panes, "STRETCHES_MAX", 7)
    found: list[int] = []
    fire, fired = Panes.fire, Sessions.fired

    def seen(self: Panes, part: Part) -> Any:
        out = fire(self, part)
        found.append(0 if out is None else out[0].num_rows)
        return out

    def all_seen(self: Sessions, until: int | None) -> Iterator[Any]:
        for out in fired(self, until):
            found.append(out[0].num_rows)
            yield out

    monkeypatch.setattr(Panes, "fire", seen)
    monkeypatch.setattr(Sessions, "fired", all_seen)
    return found


@by_turns(2)
@pytest.mark.parametrize("kind", [*ONE_INPUT, *JOINS])
def test_results_are_the_same_and_few_rows_fire_at_once(kind: str, parts: list[int], tmp_path: Path) -> None:
    found = run(kind, tmp_path / "held", BOUND)
    assert max(parts) < 5 * AT_ONCE
    assert sum(size > 0 for size in parts) > 10
    assert found == run(kind, tmp_path / "free", None)
    assert len(found) > 100


# -- planted defects ----------------------------------------------------------------------------------
def without_the_last_part(sides: Any, until: int | None) -> Iterator[Part]:
    found = list(REAL_PARTS(sides, until))
    return iter([*found[:-2], found[-1]] if len(found) > 2 else found)


def fires_again(sides: Any, until: int | None) -> Iterator[Part]:
    for part in REAL_PARTS(sides, until):
        yield part if part.is_last else Part(part.until, 0, part.high)


def from_the_beginning_of_a_moment(run: Any, low: int, high: int, part: Part) -> Iterator[Any]:
    for rows in REAL_WITHIN(run, low, high, part):
        yield rows if not isinstance(rows, slice) or rows.start % 3 else slice(rows.start, rows.stop - 1)


REAL_PARTS, REAL_WITHIN = panes._parts_of, panes._within


@pytest.mark.parametrize(
    ("name", "defect"),
    [("_parts_of", without_the_last_part), ("_parts_of", fires_again), ("_within", from_the_beginning_of_a_moment)],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_a_defect_is_found(name: str, defect: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(panes, name, defect)
    assert run("tumbling", tmp_path / "held", BOUND) != run("tumbling", tmp_path / "free", None)
