"""Windows, sessions and joins by time of Python values, of which more is kept than memory may have: with the same results."""

from __future__ import annotations

import datetime as dt
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.dataflow.operators.state.by_key.beyond_memory import RowsBeyondMemory
from rayad.dataflow.operators.state.runs import values_below
from tests.dataflow.test_rows_on_disk import BOUND, DAY, KEYS, Job, in_rows
from tests.thorough import by_turns


def minutes(count: int) -> dt.timedelta:
    return dt.timedelta(minutes=count)


def listed(windows: Any) -> Any:
    """What comes into each window, in the order of its contents: no order is promised within an epoch."""
    return windows.aggregate({"all": ("collect_list", lambda row: (row["v"], row["text"])), "n": "count"}, name="kept").map(in_order)


def in_order(found: Any) -> Any:
    key, window, value = found
    return key, window, sorted(value["all"]), value["n"]


@pytest.fixture(autouse=True)
def few_come_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_below, "DECODED_ROWS", 50)


IN_TIME = {
    "tumbling": lambda rows: listed(rows.window(rd.windows.tumbling(minutes(5)))),
    "sliding": lambda rows: listed(rows.window(rd.windows.sliding(minutes(6), minutes(2)))),
    "session": lambda rows: listed(rows.window(rd.windows.session(minutes(3)))),
    "early": lambda rows: listed(rows.window(rd.windows.tumbling(minutes(5)), early=True)),
    "lateness": lambda rows: listed(rows.window(rd.windows.tumbling(minutes(2)), lateness=minutes(3))),
    "distinct": lambda rows: rows.ttl(minutes(4), of="records").distinct(lambda row: (row["v"], row["text"]), name="kept"),
}
EVEN, ODD = (lambda row: row["v"] % 2 == 0), (lambda row: row["v"] % 2 == 1)
MET = {
    "within": lambda left, right: left.join(right, within=rd.windows.between(minutes(-3), minutes(3)), how="full", name="kept"),
    "as-of": lambda left, right: left.join_asof(right, name="kept"),
    "forward": lambda left, right: left.join_asof(right, direction="forward", name="kept"),
    "nearest": lambda left, right: left.join_asof(right, direction="nearest", tolerance=minutes(4), name="kept"),
    "records that end": lambda left, right: left.ttl(minutes(3), of="records").join(right.ttl(minutes(2), of="records"), name="kept"),
    "windows": lambda left, right: left.window(rd.windows.tumbling(minutes(5))).join(right, how="full", name="kept"),
}


class InTime(Job):
    """Windows over the rows, or two halves of them that are joined by time."""

    def program(self, rows: Any) -> Any:
        timed = rows.map(with_text).assign_timestamps("at", max_delay=dt.timedelta(seconds=50))
        if self._kind in IN_TIME:
            return IN_TIME[self._kind](timed.key_by("k"))
        return MET[self._kind](*(timed.filter(half).key_by("k") for half in (EVEN, ODD)))

    def states_of(self, vertex: Any) -> list[Any]:
        return [state for state in in_rows(vertex) if isinstance(state, RowsBeyondMemory)]

    def size_of(self, state: Any) -> int:
        return len(state.by_key()) + sum(1 for _ in state.below())


def with_text(row: dict[str, Any]) -> dict[str, Any]:
    """Only Python keeps it."""
    return {**row, "text": f"{row['k']} " * 40, "never": frozenset((row["v"],))}


@cache
def sound_of(kind: str) -> list[Any]:
    """What comes without a bound, and undisturbed."""
    with tempfile.TemporaryDirectory() as folder:
        return InTime(kind, Path(folder), bound=None).run(disturbed=False)


@by_turns(2)
@pytest.mark.parametrize("kind", [*IN_TIME, *MET])
def test_windows_and_joins_by_time_give_the_same_with_most_keys_on_disk(kind: str, tmp_path: Path) -> None:
    held = InTime(kind, tmp_path / "held")
    found = held.run(disturbed=True)
    assert held.most > 500
    assert len(sound_of(kind)) > 400
    assert found == sound_of(kind)


class InFloats(InTime):
    """The same, whose event times are numbers with fractions."""

    def program(self, rows: Any) -> Any:
        timed = rows.map(with_text).assign_timestamps(lambda row: (row["at"] - DAY).total_seconds() / 60, max_delay=0.9)
        halves = [timed.filter(half).key_by("k") for half in (EVEN, ODD)]
        if self._kind == "within":
            return halves[0].join(halves[1], within=rd.windows.between(-3.5, 3.5), how="full", name="kept")
        return halves[0].join_asof(halves[1], direction="nearest", tolerance=2.5, name="kept")


@pytest.mark.parametrize("kind", ["within", "nearest"])
def test_event_times_with_fractions_go_down_too(kind: str, tmp_path: Path) -> None:
    held = InFloats(kind, tmp_path / "held")
    found = held.run(disturbed=True)
    assert held.most > 500
    assert found == InFloats(kind, tmp_path / "free", bound=None).run(disturbed=False)


@pytest.mark.parametrize("kind", ["tumbling", "session", "lateness"])
def test_open_windows_of_a_running_job_are_read_wherever_they_are(kind: str, tmp_path: Path) -> None:
    read = []
    for bound in (BOUND, None):
        chance, job = random.Random(7), InTime(kind, tmp_path / str(bound), bound)
        table = job.job.table("kept", state="fired" if kind == "lateness" else None)
        table.get(0)
        for epoch in range(5):
            job.send(epoch, job.rows_of(chance, epoch))
        if bound is not None:
            assert any(state.is_beyond_memory for core in job.job.cores.values() for state in job.states_of(core.vertex))
        read.append([sorted(map(repr, some)) for some in (table.get_many(range(0, KEYS, 7)).items(), table.scan().to_pylist())])
        job.job.cancel()
    assert read[0] == read[1]


@by_turns(3)
@pytest.mark.parametrize("kind", ["tumbling", "session", "within", "windows"])
@pytest.mark.parametrize("method", ["fetch", "due_parts"])
def test_rows_that_do_not_come_up_are_missed(kind: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = sound_of(kind)
    monkeypatch.setattr(RowsBeyondMemory, method, lambda self, asked: list(asked) if method == "fetch" else iter([None]))
    try:
        found = InTime(kind, tmp_path / "held").run(disturbed=True)
    except Exception:  # what is there twice may also fail
        return
    assert found != sound
