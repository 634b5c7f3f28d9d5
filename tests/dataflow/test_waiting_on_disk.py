"""Keyed operators to which more comes at one time than memory may have, in columns and in rows: with the same results."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.operators.aggregates.aggregators import Count
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.state.runs import disk, waiting_runs
from rayad.dataflow.operators.state.runs.waiting_runs import LargeTimes, WaitingRuns
from rayad.dataflow.operators.windows import panes
from rayad.dataflow.operators.windows.pane_ticks import Form, Grid
from rayad.dataflow.operators.windows.panes import Panes
from tests.thorough import by_turns

EPOCHS, PARTS, ROWS, KEYS, DELAY = 2, 6, 200, 300, 40
BOUND = 1 << 20


TOTALS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda keyed: keyed.window(rd.windows.tumbling(10)).sum("v", name="kept"),
    "sliding": lambda keyed: keyed.window(rd.windows.sliding(12, 4)).mean("v", name="kept"),
    "session": lambda keyed: keyed.window(rd.windows.session(6)).count(name="kept"),
    "per epoch": lambda keyed: keyed.window(rd.windows.per_epoch()).sum("v", name="kept"),
    "running": lambda keyed: keyed.aggregate({"n": "count", "most": ("max", "v")}, name="kept"),
    "best": lambda keyed: keyed.window(rd.windows.tumbling(10)).max_by("v", name="kept"),
}
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "windows": lambda left, right: left.window(rd.windows.tumbling(10)).join(right, how="full", name="kept"),
    "within": lambda left, right: left.join(right, within=rd.windows.between(-3, 3), how="left", name="kept"),
    "as-of": lambda left, right: left.join_asof(right, tolerance=5, name="kept"),
    "forward": lambda left, right: left.join_asof(right, direction="forward", tolerance=9, name="kept"),
}


class Passes(rd.Process):
    """Counts records, and says how many there were when five units have passed without one."""

    def on_record(self, key: Any, record: Any, context: rd.ProcessContext) -> None:
        context.state = (context.state or 0) + 1
        context.set_timer(context.time + 5)

    def on_timer(self, key: Any, context: rd.ProcessContext) -> None:
        context.emit((context.time, context.state))


OTHERS: dict[str, Callable[[Any], Any]] = {
    "latest": lambda keyed: keyed.latest("v", name="kept"),
    "lag": lambda keyed: keyed.lag("v", name="kept"),
    "head": lambda keyed: keyed.head(7, "v", name="kept"),
    "fold": lambda keyed: keyed.fold(0, lambda so_far, record: so_far + record["v"], name="kept"),
    "distinct": lambda keyed: keyed.distinct("v", name="kept"),
    "collect_list": lambda keyed: keyed.collect_list("v", name="kept").map(lambda pair: (pair[0], sorted(pair[1]))),
    "process": lambda keyed: keyed.process(Passes, name="kept"),
    "counted": lambda keyed: keyed.window(rd.windows.count(4)).sum("v", name="kept"),
    "late": lambda keyed: keyed.window(rd.windows.tumbling(10)).count(name="kept").late,
    "late of sessions": lambda keyed: keyed.window(rd.windows.session(6)).count(name="kept").late,
    "early": lambda keyed: keyed.window(rd.windows.tumbling(10), early=True).count(name="kept"),
    "lateness": lambda keyed: keyed.window(rd.windows.tumbling(10), lateness=20).sum("v", name="kept"),
    "best per epoch": lambda keyed: keyed.per_epoch().max_by("v", name="kept"),
    "changes": lambda keyed: keyed.sum("v").changes(name="kept"),
    "table at the end": lambda keyed: keyed.sum("v").latest(name="kept"),
    "table every other epoch": lambda keyed: keyed.sum("v").latest(every=2, name="kept"),
    "keys that end": lambda keyed: keyed.ttl(50).sum("v", name="kept"),
    "values that end": lambda keyed: keyed.ttl(50, of="records").distinct("v", name="kept"),
}


class Job:
    """Each epoch comes in several parts; between two the job is disturbed."""

    def __init__(self, kind: str, folder: Path, bound: int | None, *, rows: bool = False) -> None:
        self._rows = rows
        self._kind = kind
        self._config = rd.RunConfig(storage_path=str(folder), state_memory_bytes=bound)
        self.were_in_runs = 0
        flow = rd.Dataflow("waiting")
        timed = flow.input("rows").assign_timestamps("at", max_delay=DELAY)
        if self._kind in ONE_INPUT:
            kept = ONE_INPUT[self._kind](timed.key_by("k"))
        else:
            kept = JOINS[self._kind](*(timed.filter(rd.col("side") == side).key_by("k") for side in (0, 1)))
        kept.probe("seen").collect("out")
        self.job: Any = flow.submit(self._config, runtime="local", parallelism=2)

    def run(self, *, disturbed: bool) -> list[Any]:
        for epoch in range(EPOCHS):
            for part in range(PARTS):
                rows = self.job.input("rows")
                batch = batch_of(epoch, part)
                rows.send(batch.to_pylist() if self._rows else batch)
                if disturbed:
                    self._disturb(part)
            self.job.input("rows").advance_to(epoch + 1)
            self.job.probe("seen").wait(epoch)
        self.job.input("rows").close()
        return sorted(((time.epoch, row) for time, row in self.job.wait()["out"]), key=repr)

    def _disturb(self, part: int) -> None:
        self.job.savepoint()  # what was sent has come
        waiting = [core.vertex.pending for core in self.job.cores.values() if hasattr(core.vertex, "pending")]
        self.were_in_runs += sum(pending.is_beyond_memory for pending in waiting if hasattr(pending, "is_beyond_memory"))
        match part % 5:
            case 1:
                self.job.rescale("kept", 1 + part % 3)
            case 2 | 3:
                self.job.crash()
            case 4:
                self.job.rescale("kept", 3)


def batch_of(epoch: int, part: int) -> pa.RecordBatch:
    """Rows around the time of an epoch; some are late."""
    chance = np.random.default_rng((epoch, part))
    at = 100 * epoch + chance.integers(-90, 100, ROWS)
    columns = {"k": chance.integers(0, KEYS, ROWS), "at": at, "v": chance.integers(0, 1000, ROWS), "side": chance.integers(0, 2, ROWS)}
    return pa.record_batch(columns)


@pytest.fixture(autouse=True)
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of the bound is used, in pieces of 1 KiB."""
    for name, part in (("HELD_PART", 1 << 7), ("LEFT_PART", 1 << 8), ("PIECE_PART", 1 << 10)):
        monkeypatch.setattr(disk, name, part)
    monkeypatch.setattr(panes, "FIRED_ROWS", 50)


def expected(kind: str, folder: Path) -> list[Any]:
    return Job(kind, folder, None).run(disturbed=False)


ONE_INPUT = {**TOTALS, **OTHERS}


@by_turns(3)
@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("kind", [*ONE_INPUT, *JOINS])
def test_results_are_the_same_with_most_of_what_waits_on_disk(kind: str, rows: bool, tmp_path: Path) -> None:
    job = Job(kind, tmp_path / "held", BOUND, rows=rows)
    found = job.run(disturbed=True)
    assert job.were_in_runs > 2
    assert found == expected(kind, tmp_path / "free")


def test_rows_among_columns_are_taken_in_with_them(tmp_path: Path) -> None:
    """A key may have some of each."""

    def run(bound: int | None) -> list[Any]:
        job = Job("within", tmp_path / str(bound), bound)
        rows = job.job.input("rows")
        for part in range(PARTS):
            rows.send(batch_of(0, part))
            job.job.savepoint()
        rows.send(batch_of(0, PARTS).to_pylist())
        rows.close()
        return sorted((row for _, row in job.job.wait()["out"]), key=repr)

    assert run(BOUND) == run(None)


KEYS_OF_TYPES: list[Any] = [
    *(1, 1.0, True, 0, -0.0, 2**70, float("inf"), "a", "", b"x", None, (1, "a"), (1.0, "a"), frozenset({1}), UUID(int=5)),
    *(Decimal("1"), Decimal("2.50"), dt.date(2026, 1, 1), dt.timedelta(1), dt.datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),  # the moment before in another zone: one key
]


@pytest.mark.parametrize("kind", ["fold", "latest", "distinct", "count"])
def test_keys_that_are_equal_meet_whatever_their_types(kind: str) -> None:
    """Also values that Python cannot hash go to disk and come back."""

    def run(bound: int | None) -> tuple[Counter[str], bool]:
        keyed = (flow := rd.Dataflow("types")).input("rows").key_by(lambda row: row[0])
        made = {
            "fold": lambda: keyed.fold(0, lambda so_far, row: so_far + 1),
            "latest": lambda: keyed.latest(lambda row: row[1]),
            "distinct": lambda: keyed.distinct(lambda row: repr(row[2])),
            "count": keyed.count,
        }[kind]()
        made.map(lambda pair: (hash(pair[0]), repr(pair[1]))).collect("out")
        job: Any = flow.submit(rd.RunConfig(state_memory_bytes=bound), runtime="local", parallelism=2)
        for part in range(4):
            keys = [*KEYS_OF_TYPES[part:], *range(2, 200), *KEYS_OF_TYPES]
            job.input("rows").send([(key, 100 * part + at, {"of": [at % 3, {at}]}) for at, key in enumerate(keys)])
            while job.step():
                pass
        on_disk = any(core.vertex.pending.is_beyond_memory for core in job.cores.values() if hasattr(core.vertex, "pending"))
        job.input("rows").close()
        return Counter(repr(pair) for _, pair in job.wait()["out"]), on_disk

    (found, on_disk), (wanted, _) = run(BOUND), run(None)
    assert on_disk
    assert found == wanted


def test_what_cannot_be_pickled_is_named() -> None:
    flow = rd.Dataflow("lock")
    rows = [("k", at, threading.Lock()) for at in range(300)]
    flow.from_items(rows).key_by(lambda row: row[0]).latest(lambda row: row[1]).collect("out")
    told = r"what the key 'k' has, \('k', 0, <unlocked .*>\) cannot be: cannot pickle '_thread.lock' object; keep what can be pickled"
    with pytest.raises(rd.DataflowError, match=told):
        flow.run(rd.RunConfig(state_memory_bytes=BOUND), runtime="local")


def test_a_job_without_a_bound_keeps_batches_as_they_came(tmp_path: Path) -> None:
    job = Job("tumbling", tmp_path, None)
    job.run(disturbed=True)
    assert not job.were_in_runs


def test_windows_that_have_fired_at_a_sibling_that_is_ahead_do_not_fire_again() -> None:
    """Nor in steps, of which the first are before what fired last."""
    schema = pa.schema({"k": pa.int64(), "at": pa.int64(), "n": pa.int64()})
    ahead, behind = (Panes(Form(schema, 1, 1, Partials(Count().partials)), Grid(6, 2)) for _ in range(2))
    ahead.keep(ahead.run_of([pa.record_batch({"k": [1] * 5, "at": [2, 4, 6, 8, 10], "n": [1] * 5}, schema=schema)]), None)
    fired, _ = ahead.due(10)  # type: ignore[misc]
    assert set(fired["at"].to_pylist()) == {-2, 0, 2, 4}, "where windows begin that end at 4 to 10"
    behind.take(ahead.give(frozenset(range(8)), 8))
    assert behind.due(6) is None
    assert behind.due(10) is None
    fired, _ = behind.due(None)  # type: ignore[misc]
    assert set(fired["at"].to_pylist()) == {6, 8, 10}


# -- planted defects ----------------------------------------------------------------------------------
def loses_a_run(self: WaitingRuns) -> None:
    REAL_TAKE_IN(self)
    if len(self._sequences) > 2:
        self._sequences.pop()


def only_the_first_piece(self: LargeTimes, time: Any, kept: Any) -> Any:
    yield next(iter(REAL_PIECES(self, time, kept)))


def moved_runs_stay(self: LargeTimes, time: Any, groups: Any, key_groups: int) -> Any:
    return {}


def forgotten_in_a_snapshot(self: LargeTimes, time: Any) -> Any:
    return {}


REAL_TAKE_IN, REAL_PIECES = WaitingRuns._take_in_fresh, LargeTimes.pieces
DEFECTS = {
    "a run is lost": (WaitingRuns, "_take_in_fresh", loses_a_run),
    "only the first piece is taken in": (LargeTimes, "pieces", only_the_first_piece),
    "moved groups stay": (LargeTimes, "give", moved_runs_stay),
    "runs are in no snapshot": (LargeTimes, "stored", forgotten_in_a_snapshot),
}


@pytest.mark.parametrize(("kind", "rows"), [("tumbling", False), ("fold", True)])
@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defects_are_found(name: str, kind: str, rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[name])
    assert Job(kind, tmp_path / "held", BOUND, rows=rows).run(disturbed=True) != expected(kind, tmp_path / "free")


def test_keys_that_share_a_place_are_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(hashes: Any, key_groups: int) -> Any:
        return REAL_PLACES(hashes, key_groups) >> np.uint64(56) << np.uint64(56)

    monkeypatch.setattr(waiting_runs, "places_of_hashes", few)
    assert Job("as-of", tmp_path / "held", BOUND).run(disturbed=True) == expected("as-of", tmp_path / "free")


REAL_PLACES = waiting_runs.places_of_hashes
