"""A watermark for each part of a stream, and parts, streams and sides of a join that are silent: against the rule in plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.joins.asof import AsOfJoin
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.watermark_rules import Mark, WatermarkRule
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.windows import AsOf
from rayad.progress import DataflowError, Timestamp
from tests.dataflow.driven import Context
from tests.thorough import examples

SCHEMA = pa.schema([("part", pa.string()), ("t", pa.int64()), ("i", pa.int64())])
RECORD = st.fixed_dictionaries({"part": st.sampled_from(["a", "b", "c"]) | st.none(), "t": st.integers(-8, 24)})
EPOCHS = st.lists(st.lists(RECORD, max_size=5), min_size=1, max_size=8)
SIZE = 4


def numbered(epochs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    number = iter(range(10_000))
    return [[{**record, "i": next(number)} for record in records] for records in epochs]


def late_by_the_rule(epochs: list[Any], delay: int, idle: int | None) -> Counter[Any]:
    """Which records are late: the watermark is the least over the parts that have brought something in the last ``idle`` epochs."""
    late: Counter[Any] = Counter()
    marks: dict[Any, int] = {}
    heard: dict[Any, int] = {}
    reached: int | None = None
    for epoch, records in enumerate(epochs):
        if not records:
            continue
        late.update((epoch, r["i"]) for r in records if reached is not None and (r["t"] // SIZE + 1) * SIZE <= reached)
        for part in [part for part in heard if idle is not None and epoch - heard[part] > idle]:
            del heard[part], marks[part]
        for record in records:
            part = record["part"]
            marks[part], heard[part] = max(record["t"] - delay, marks.get(part, -100)), epoch
        least = min(marks.values())
        reached = least if reached is None else max(reached, least)
    return late


@examples(each_run=10, soak=60)
@given(
    epochs=EPOCHS.map(numbered),
    delay=st.integers(0, 4),
    idle=st.integers(1, 4) | st.none(),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 4),
)
def test_the_least_of_the_parts_counts(epochs: list[Any], delay: int, idle: int | None, parallelism: int, seed: int, to: int) -> None:
    """In rows, in columns and in both, while replicas are added and removed."""
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    expected = late_by_the_rule(epochs, delay, idle)
    for source in (batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]):
        flow = rd.Dataflow()
        stream = flow.from_epochs(source, batch_rows=2, parts=2).assign_timestamps("t", max_delay=delay, per="part", idle_epochs=idle)
        counted = stream.filter(lambda record: True).key_by("i").window(rd.windows.tumbling(SIZE)).count(name="counted")
        counted.collect("counts")
        counted.late.collect("late")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.rescale("counted", to)
        result = job.wait()
        assert Counter((at.epoch, row["i"]) for at, (_, _, row) in result["late"]) == expected
        in_time = {row["i"] for rows in epochs for row in rows} - {number for _, number in expected}
        assert {row[1][0] for row in result["counts"]} == in_time


def windows_of(stream: Any) -> list[tuple[int, Any]]:
    flow = stream.flow
    stream.key_by(lambda record: 0).window(rd.windows.tumbling(10)).count().collect("out")
    return [(at.epoch, window.start) for at, (_, window, _) in flow.run(runtime="local")["out"]]


def test_a_device_that_is_behind_is_not_late_and_one_that_is_silent_holds_nothing_up() -> None:
    """Without ``per`` the fast device makes the slow one late, and without ``idle_epochs`` one that has ended holds all windows back."""
    slow = [[("slow", 1)], [("slow", 11)], [], [], [], [], []]
    fast = [100, 200, 210, 220, 230, 240, 250]
    epochs = [[("fast", time), *more] for time, more in zip(fast, slow, strict=True)]

    def device(**options: Any) -> list[tuple[int, Any]]:
        return sorted(windows_of(rd.Dataflow().from_epochs(epochs).assign_timestamps(lambda record: record[1], **options)))

    def name(record: Any) -> Any:
        return record[0]

    assert device() == [(0, 0), (1, 100), (2, 200), (3, 210), (4, 220), (5, 230), (6, 240), (6, 250)], "11 is late"
    assert device(per=name) == [(1, 0), *((6, start) for start in [10, *fast])]
    assert device(per=name, idle_epochs=2) == [(1, 0), *((4, start) for start in [10, 100, 200, 210, 220]), (5, 230), (6, 240), (6, 250)]


@pytest.mark.parametrize("idle", [None, 2])
def test_a_side_of_a_join_that_brings_nothing(idle: int | None) -> None:
    """It holds the other one back until its rule says that it is idle."""
    flow = rd.Dataflow()
    left = flow.from_epochs([[("k", 10 * epoch, "left")] for epoch in range(6)]).assign_timestamps(lambda record: record[1])
    empty: list[list[Any]] = [[]]
    right = flow.from_epochs(empty).assign_timestamps(lambda record: record[1], idle_epochs=idle)
    keyed = left.key_by(lambda record: record[0]).window(rd.windows.tumbling(10))
    keyed.join(right.key_by(lambda record: record[0]), how="left").collect("out")
    fired = [at.epoch for at, _ in flow.run(runtime="local")["out"]]
    assert fired == ([5] * 6 if idle is None else [3, 3, 3, 4, 5, 5])


def test_state_of_a_version_without_parts_is_taken_back_and_the_rule_may_change() -> None:
    """max_delay, ``per`` and ``idle_epochs`` may be others in the program that resumes."""
    marks = Marks((WatermarkRule(1, per_part=True),), {})  # type: ignore[arg-type]
    marks.restore(([{Timestamp(3): 30}], [20], marks.watermark))
    assert (marks.seen, marks.marks) == ([{Timestamp(3): {(): 30}}], [{(): Mark(20, 0)}])
    marks.see(0, [("a", 25)], Timestamp(3))
    assert marks.advance(Timestamp(3))
    assert marks.watermark.now == 24
    plain = Marks((1,), {})  # type: ignore[arg-type]
    plain.restore(marks.checkpoint())
    plain.see(0, [40], Timestamp(4))
    assert plain.advance(Timestamp(4))
    assert (plain.watermark.now, plain.marks) == (39, [{(): Mark(39, 4)}])


def test_what_cannot_be_is_refused_where_it_is_written() -> None:
    stream = rd.Dataflow().from_arrow(pa.table({"t": [1], "part": ["a"]}))
    with pytest.raises(DataflowError, match="no column 'parts'"):
        stream.assign_timestamps("t", per="parts")
    with pytest.raises(DataflowError, match="idle_epochs is 0"):
        stream.assign_timestamps("t", per="part", idle_epochs=0)
    with pytest.raises(DataflowError, match="cannot be a key"):
        windows_of(rd.Dataflow().from_items([1]).assign_timestamps(lambda record: record, per=lambda record: [record]))


def test_a_new_replica_learns_what_was_broadcast_before_it_was_there() -> None:
    """It was told of one epoch more than the sibling from which its keys come has handled, and of no earlier one."""
    old, new = (AsOfJoin(AsOf(None, True), (0, 0)) for _ in range(2))
    for vertex in (old, new):
        vertex._context = Context()
    for port in (2, 3):
        old.on_recv(port, [20], Timestamp(0))
    old.on_notify(Timestamp(0))
    for vertex in (old, new):
        vertex.on_recv(2, [25], Timestamp(1))
    new.take(old.give(frozenset(range(256))))
    new.on_notify(Timestamp(1))
    new.on_recv(3, [30], Timestamp(2))
    new.on_notify(Timestamp(2))
    assert new.marks.watermark.now == 25


def test_a_part_that_a_replica_has_dropped_as_idle_does_not_come_back_with_state() -> None:
    """The sibling has not handled the epoch in which the part had been silent for too long. Its next record begins anew."""
    mine, theirs = (Marks((WatermarkRule(per_part=True, idle_epochs=1),), Waiting(Context())) for _ in range(2))  # type: ignore[arg-type]
    for marks in (mine, theirs):
        marks.see(0, [("a", 50), ("b", 90)], Timestamp(0))
        marks.advance(Timestamp(0))
    mine.see(0, [("b", 91)], Timestamp(3))
    mine.advance(Timestamp(3))
    mine.take(theirs.give(frozenset(range(256)), 256))
    mine.see(0, [("a", 10), ("b", 92)], Timestamp(4))
    mine.advance(Timestamp(4))
    assert mine.marks == [{("a",): Mark(10, 4), ("b",): Mark(92, 4)}]
