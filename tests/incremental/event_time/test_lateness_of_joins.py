"""Joins by time and sessions that forget: after each epoch they give what the changes on time give when all is computed anew, and what is
late is counted; they keep what changes on time can reach, and no more."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.status.table import as_lines
from rayad.dataflow.windows import AsOf
from rayad.incremental.event_time.ending import EndingJoin, EndingReduce, NeedingReduce
from rayad.incremental.event_time.telling import RECORDS, REFUSED, WINDOWS
from rayad.progress import Timestamp
from tests.incremental.disturbed import figures_of, run_disturbed
from tests.incremental.event_time import from_scratch
from tests.incremental.event_time.from_scratch import Record, as_of_pairs, interval_pairs, sessions
from tests.incremental.programs import History, Kept, Shape
from tests.thorough import amount, by_turns

LATENESS, GAP, LOWER, UPPER = 5, 3, -2, 4


def history(seed: int, epochs: int = 14) -> History:
    """Records of two sides whose times go on, now and then far back; some without a key or a time, some twice; what goes was there."""
    chance, there, out = random.Random(seed), list[Record](), History()
    for epoch in range(epochs):
        changes: list[tuple[Any, int]] = []
        for _ in range(chance.randint(1, 5)):
            at = epoch * 2 + (chance.randint(-3, 2) if chance.random() < 0.7 else chance.randint(-20, 0))
            key, time = (None if chance.random() < 0.1 else some for some in (chance.choice("ab"), at))
            record = chance.randrange(2), key, time, chance.randrange(2)
            there.append(record)
            changes.append((record, 1))
        changes += [(there.pop(chance.randrange(len(there))), -1) for _ in range(min(len(there), chance.randrange(3)))]
        out.append(changes)
    return out


def on_time(changes: History, *, sides: int) -> tuple[History, int, Any]:
    """See there."""
    return from_scratch.on_time(changes, sides=sides, lateness=LATENESS)


class OnTime(Kept):
    """A program that gives what the changes on time give."""

    sides = 2

    def verify(self, changes: History, collected: Any) -> None:
        super().verify(on_time(changes, sides=self.sides)[0], collected)


class OneSide(OnTime):
    """The same of one side."""

    sides = 1


def _at(record: Record) -> Any:
    return record[2]


def _keyed(records: rd.Collection, side: int) -> rd.KeyedCollection:
    return records.filter(lambda record: record[0] == side).key_by(lambda record: record[1])


def as_of(direction: Any, tolerance: Any, exact: bool, how: Any) -> OnTime:
    """An as-of join, and the same computed for each record."""

    def build(records: rd.Collection) -> rd.Collection:
        rule = {"direction": direction, "tolerance": tolerance, "allow_exact_matches": exact}
        return _keyed(records, 0).join_asof(_keyed(records, 1), _at, how=how, lateness=LATENESS, **rule)

    def table(there: Counter[Any]) -> dict[Any, int]:
        return Counter(as_of_pairs(there, AsOf(tolerance, exact, direction), how))

    return OnTime("as-of", build, table, Shape(0, 0, 0))


def interval(how: Any, lower: int = LOWER, upper: int = UPPER) -> OnTime:
    """An interval join, and the same computed for each pair."""

    def build(records: rd.Collection) -> rd.Collection:
        within = rd.windows.between(lower, upper)
        return _keyed(records, 0).join_interval(_keyed(records, 1), within, _at, how=how, lateness=LATENESS)

    def table(there: Counter[Any]) -> dict[Any, int]:
        pairs = interval_pairs(there, lower, upper, how)
        return Counter((key, pair[0]) if how in ("semi", "anti") else (key, pair) for key, pair in pairs)

    return OnTime("interval", build, table, Shape(0, 0, 0))


def _build_sessions(records: rd.Collection) -> rd.Collection:
    return (
        records.key_by(lambda record: record[1]).window(rd.windows.session(GAP), _at, lateness=LATENESS).sum(lambda record: record[3] + 1)
    )


def _sessions(there: Counter[Any]) -> dict[Any, int]:
    return {(key, sum(each[3] + 1 for each in some)): 1 for key, some in sessions(there, GAP)}


PROGRAMS: dict[str, OnTime] = {
    "backward": as_of("backward", None, True, "left"),
    "backward, near and earlier": as_of("backward", 2, False, "inner"),
    "forward": as_of("forward", None, True, "left"),
    "forward, near and later": as_of("forward", 7, False, "left"),
    "nearest": as_of("nearest", None, True, "left"),
    "nearest, near": as_of("nearest", 7, True, "inner"),
    **{f"interval, {how}": interval(how) for how in ("inner", "left", "right", "full", "semi", "anti")},
    "interval of later ones": interval("full", 2, 9),
    "interval of earlier ones": interval("full", -9, -2),
    "sessions": OneSide("sessions", _build_sessions, _sessions, Shape(0, 0, 0)),
}


@by_turns(2)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(amount(each_run=1, soak=200)))
def test_what_is_on_time_gives_what_recomputation_gives(name: str, seed: int, tmp_path: Path) -> None:
    program, changes = PROGRAMS[name], history(seed)
    job = run_disturbed(program, changes, seed, tmp_path)
    assert figures_of(job)[REFUSED] == on_time(changes, sides=program.sides)[1]


def test_the_histories_have_late_changes_and_removals_on_time() -> None:
    for sides in (1, 2):
        found = [on_time(history(seed), sides=sides) for seed in range(3)]
        assert sum(refused for _, refused, _ in found) >= 9
        assert all(sum(weight < 0 for some in kept for _, weight in some) >= 3 for kept, _, _ in found)


@pytest.mark.parametrize("seed", range(amount(each_run=2, soak=100)))
def test_an_interval_join_keeps_what_changes_on_time_can_meet(seed: int, tmp_path: Path) -> None:
    changes = history(seed, epochs=30)
    job = run_disturbed(PROGRAMS["interval, inner"], changes, seed, tmp_path)
    kept, _, limit = on_time(changes, sides=2)
    there: Counter[Record] = Counter()
    came: set[Record] = set()
    for some in kept:
        there.update(dict(some))
        came |= {record for record, _ in some}
    left, right = ({r for r in there if there[r] and r[0] == side and None not in (r[1], r[2])} for side in (0, 1))
    want = {r for r in left if max(r[2], r[2] + UPPER) >= limit} | {r for r in right if max(r[2], r[2] - LOWER) >= limit}
    found: set[Record] = set()
    pruned = 0
    for core in job.cores.values():
        if isinstance(core.vertex, EndingJoin):
            pruned += core.vertex.figures()[RECORDS]
            found |= {value for part in core.vertex.parts for values in part.before.kept.values() for value in values}
    assert found == want
    assert pruned >= len((left | right) - want) > 10


@by_turns(2)
@pytest.mark.parametrize("name", ["backward", "forward, near and later", "nearest", "interval, full", "sessions"])
def test_what_is_kept_does_not_grow_with_time(name: str, tmp_path: Path) -> None:
    kept = []
    for epochs in (30, 90):
        job = run_disturbed(PROGRAMS[name], history(5, epochs), 5, tmp_path / str(epochs), steps=0)
        figures = figures_of(job)
        vertices = [core.vertex for core in job.cores.values() if isinstance(core.vertex, (EndingJoin, EndingReduce, NeedingReduce))]
        assert len(vertices) >= 2
        rows = 0
        for vertex in vertices:
            for part in vertex.kept().values():
                rows += sum(map(len, part.before.kept.values()))
        kept.append(rows)
        assert figures[RECORDS] > epochs
        assert (figures[WINDOWS] > 0) == (name == "sessions")
    assert 0 < kept[1] <= kept[0] + 30, kept


def test_what_is_forgotten_is_told() -> None:
    flow = rd.Dataflow("told")
    day, hour = dt.datetime(2024, 1, 1), dt.timedelta(hours=1)
    trades, quotes = (flow.collection(name).key_by(lambda record: "all") for name in ("trades", "quotes"))
    asof = trades.join_asof(quotes, lambda record: record[0], lateness=2 * hour, name="asof")
    asof.changes().probe("seen").collect("out")
    trades.join_interval(quotes, rd.windows.between(-hour, hour), lambda r: r[0], lateness=2 * hour, name="interval").changes()
    trades.window(rd.windows.session(hour), lambda r: r[0], lateness=2 * hour, name="sessions").count(name="counts").changes()
    told = flow.explain()
    assert "the records of each key on which changes may bear that are 2:00:00 late" in told
    assert "the records of both sides, as long as changes meet them that are 2:00:00 late" in told
    assert "sums by key, of windows until 2:00:00 after their end" in told
    job = flow.submit(runtime="local", parallelism=2)
    assert isinstance(job, LocalJob)
    given = [job.collection("trades"), job.collection("quotes")]
    for epoch in range(20):
        for one in given:
            one.insert([(day + epoch * hour, 1)])
            one.advance_to(epoch + 1)
        assert job.probe("seen").wait(epoch)
    given[0].remove([(day, 1)])
    for one in given:
        one.advance_to(21)
    assert job.probe("seen").wait(20)
    status = job.status()
    by_name = {vertex.name: vertex for vertex in status.vertices}
    assert (by_name["asof"].records_pruned, by_name["asof"].figures["keys of input"]) == (17 + 16, 1)
    assert any(vertex.refused == 1 for vertex in status.vertices)
    assert "'on-time': 1 changes came too late and were not applied" in as_lines(status)
    for one in given:
        one.close()
    assert sum(weight for _, (_, weight) in job.wait()["out"]) == 20, "what was given stays"


def test_lateness_is_a_length_and_not_in_loops() -> None:
    flow = rd.Dataflow("refused")
    left, right = (flow.collection(name).key_by(lambda record: record[0]) for name in ("left", "right"))
    calls: dict[str, Callable[[Any], Any]] = {
        "join_asof": lambda lateness: left.join_asof(right, _at, lateness=lateness),
        "join_interval": lambda lateness: left.join_interval(right, rd.windows.between(0, 1), _at, lateness=lateness),
        "window": lambda lateness: left.window(rd.windows.session(1), _at, lateness=lateness),
    }
    for what, call in calls.items():
        for wrong in (-1, "1h", True, float("nan")):
            with pytest.raises(rd.DataflowError, match=rf"{what}\(lateness=.*\): give a number or timedelta of at least 0, or None"):
                call(wrong)
    with pytest.raises(
        rd.DataflowError, match=r"join_asof\(lateness=1\): in a loop nothing is forgotten; call join_asof\(\) outside of it"
    ):
        flow.collection("others").iterate(lambda c: c.key_by(len).join_asof(c.key_by(len), len, lateness=1).map(str))


def test_a_session_that_ends_at_the_limit_can_still_be_touched() -> None:
    flow = rd.Dataflow("touched")
    history = [[(at, 1) for at in (0, 3, 6, 11)], [(6, -1)], [(6, 1)], [(30, 1)], [(6, -1)]]
    records = rd.Collection(flow.from_epochs(history))
    records.key_by(lambda at: "k").window(rd.windows.session(GAP), lambda at: at, lateness=LATENESS).count().collect("out")
    got = sorted((time.epoch, key[1].start, key[1].end, n, weight) for time, ((key, n), weight) in flow.run(runtime="local")["out"])
    assert got == [
        (0, 0, 9, 3, 1),
        (0, 11, 14, 1, 1),
        (1, 0, 6, 2, 1),
        (1, 0, 9, 3, -1),
        (2, 0, 6, 2, -1),
        (2, 0, 9, 3, 1),
        (3, 30, 33, 1, 1),
    ]


def test_a_side_that_is_ahead_makes_nothing_late() -> None:
    flow = rd.Dataflow("ahead")
    left = flow.from_epochs([[("k", 0)], [("k", 1)], [("k", 2)]]).as_collection().key_by(lambda r: r[0])
    right = flow.from_epochs([[("k", 100)], [("k", 200)], [("k", 1)]]).as_collection().key_by(lambda r: r[0])
    left.join_asof(right, lambda r: r[1], lateness=1).collect("out")
    got = flow.run(runtime="local")["out"]
    table: Counter[Any] = Counter()
    for time, (record, weight) in got:
        assert isinstance(time, Timestamp)
        table[record] += weight
    assert +table == Counter({("k", (("k", 0), None)): 1, ("k", (("k", 1), ("k", 1))): 1, ("k", (("k", 2), ("k", 1))): 1}), (
        "left records are at most 2, so that one at 1 is on time"
    )
