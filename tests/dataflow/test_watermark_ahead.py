"""``max_ahead``: a record far ahead of all others does not move the watermark, and a stream that jumps goes on. Against the rule, told
record by record in plain Python."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.windows.told_times import TellTimes
from rayad.dataflow.operators.windows.watermark_rules import WatermarkRule, joined
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.selectors import ValueSelector
from rayad.progress import DataflowError
from tests.programs.windowed import BoundAhead
from tests.thorough import examples

SCHEMA = pa.schema([("part", pa.string()), ("t", pa.int64()), ("i", pa.int64())])
RECORD = st.fixed_dictionaries({"part": st.sampled_from(["a", "b"]), "t": st.integers(0, 12) | st.integers(0, 60)})
EPOCHS = st.lists(st.lists(RECORD, max_size=4), min_size=1, max_size=9)
SIZE = 4


def numbered(epochs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    number = iter(range(10_000))
    return [[{**record, "i": next(number)} for record in records] for records in epochs]


def late_by_the_rule(epochs: list[Any], delay: int, ahead: int, in_parts: bool) -> Counter[Any]:
    late: Counter[Any] = Counter()
    rules: dict[Any, BoundAhead] = {}
    reached: int | None = None
    for epoch, records in enumerate(epochs):
        late.update((epoch, r["i"]) for r in records if reached is not None and (r["t"] // SIZE + 1) * SIZE <= reached)
        of_part: dict[Any, list[int]] = {}
        for record in records:
            of_part.setdefault(record["part"] if in_parts else None, []).append(record["t"])
        for part, times in of_part.items():
            rules.setdefault(part, BoundAhead(delay, ahead)).epoch(times)
        marks = [rule.watermark for rule in rules.values()]
        known = [mark for mark in marks if mark is not None]
        if known and len(known) == len(marks):
            reached = min(known) if reached is None else max(reached, min(known))
    return late


@examples(each_run=10, soak=60)
@given(
    epochs=EPOCHS.map(numbered),
    delay=st.integers(0, 4),
    ahead=st.integers(0, 10),
    in_parts=st.booleans(),
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 99),
    to=st.integers(1, 4),
)
def test_what_is_late_follows_the_rule(
    epochs: list[Any], delay: int, ahead: int, in_parts: bool, parallelism: int, seed: int, to: int
) -> None:
    """In rows, in columns and in both, while replicas are added and removed."""
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs]
    expected = late_by_the_rule(epochs, delay, ahead, in_parts)
    for source in (batches, epochs, [batch if i % 2 else batch.to_pylist() for i, batch in enumerate(batches)]):
        flow = rd.Dataflow()
        stream = flow.from_epochs(source, batch_rows=2, parts=2)
        stream = stream.assign_timestamps("t", max_delay=delay, max_ahead=ahead, per="part" if in_parts else None)
        counted = stream.key_by("i").window(rd.windows.tumbling(SIZE)).count(name="counted")
        counted.collect("counts")
        counted.late.collect("late")
        job = flow.submit(runtime="local", seed=seed, parallelism=parallelism)
        for _ in range(seed):
            job.step()
        job.rescale("counted", to)
        result = job.wait()
        assert Counter((at.epoch, row["i"]) for at, (_, _, row) in result["late"]) == expected
        in_time = {row["i"] for rows in epochs for row in rows} - {number for _, number in expected}
        assert {row["i"] if isinstance(row, dict) else row[0] for _, row in result["counts"]} == in_time


DAY = dt.datetime(2026, 11, 24, tzinfo=dt.UTC)


def late_of(epochs: list[list[Any]], **options: Any) -> list[Any]:
    flow = rd.Dataflow()
    stream = flow.from_epochs(epochs).assign_timestamps(lambda time: time, **options)
    stream.key_by(lambda _: 0).window(rd.windows.tumbling(options["max_delay"])).count().late.collect("late")
    return [row for _, (_, _, row) in flow.run(runtime="local")["late"]]


def test_one_wrong_date_makes_nothing_late_and_a_night_without_records_is_no_wrong_date() -> None:
    minutes = [DAY + dt.timedelta(minutes=n) for n in range(20)]
    wrong = dt.datetime(2062, 11, 24, tzinfo=dt.UTC)
    night = [time + dt.timedelta(hours=9) for time in minutes]
    straggler = minutes[0]
    epochs = [[time] for time in minutes[:5]] + [[wrong], *([time] for time in minutes[5:]), *([time] for time in night), [straggler]]
    delay = dt.timedelta(minutes=2)
    assert late_of(epochs, max_delay=delay) == [*minutes[5:], *night, straggler], "without a bound"
    assert late_of(epochs, max_delay=delay, max_ahead=dt.timedelta(hours=1)) == [straggler]


@pytest.mark.parametrize(
    ("kind", "times", "ahead"),
    [
        (pa.timestamp("s"), [dt.datetime(2026, 1, 1, 0, 0, n) for n in (0, 2, 9)], dt.timedelta(seconds=2.5)),
        (pa.timestamp("ns", "UTC"), [DAY, DAY + dt.timedelta(microseconds=2), DAY + dt.timedelta(1)], dt.timedelta(microseconds=2)),
        (pa.date32(), [dt.date(2026, 1, n) for n in (1, 3, 9)], dt.timedelta(2)),
        (pa.int32(), [1, 3, 9], 2),
        (pa.float64(), [0.1, 0.3, 0.9], 0.2),
        (pa.decimal128(5, 2), [Decimal("0.1"), Decimal("0.3"), Decimal("0.9")], Decimal("0.2")),
        (pa.duration("us"), [dt.timedelta(1), dt.timedelta(3), dt.timedelta(9)], dt.timedelta(2)),
    ],
)
def test_columns_tell_the_stretches_that_rows_tell(kind: pa.DataType, times: list[Any], ahead: Any) -> None:
    """Differences are exact: 0.3 is 0.2 ahead of 0.1, in floats, too."""
    batch = pa.record_batch({"t": pa.array([*times, times[0]], kind)})
    tell = TellTimes(ValueSelector.of("t"), max_ahead=ahead)
    assert tell.apply(batch) == tell.apply(batch.to_pylist()) == [(times[0], times[1]), (times[2], times[2])]
    assert tell.apply(batch.slice(0, 2)) == [(times[0], times[1])]


@examples(each_run=40, soak=100)
@given(times=st.lists(st.integers(0, 40), max_size=12), cuts=st.lists(st.integers(0, 12), max_size=4), ahead=st.integers(0, 6))
def test_stretches_do_not_depend_on_batches(times: list[int], cuts: list[int], ahead: int) -> None:
    edges = [0, *sorted(cuts), len(times)]
    parts = [joined([(time, time) for time in times[low:high]], ahead) for low, high in itertools.pairwise(edges)]
    assert joined([one for part in parts for one in part], ahead) == joined([(time, time) for time in times], ahead)


def test_a_new_replica_takes_what_its_sibling_doubts() -> None:
    """It was told of one epoch more than the sibling from which its keys come has handled, and of no earlier one."""
    rule = WatermarkRule(max_ahead=5)
    old, new = (Marks((rule,), defaultdict(list)) for _ in range(2))  # type: ignore[arg-type]
    old.see(0, [(1, 1)], rd.Timestamp(0))
    old.advance(rd.Timestamp(0))
    for marks in (old, new):
        marks.see(0, [(2, 2)], rd.Timestamp(1))
    new.take(old.give(frozenset(range(256)), 256))
    new.advance(rd.Timestamp(1))
    old.advance(rd.Timestamp(1))
    assert (new.marks, new.watermark.now) == (old.marks, 2)


def test_bounds_that_cannot_be_are_refused_where_they_are_written() -> None:
    stream = rd.Dataflow().from_arrow(pa.table({"t": [1]}))
    with pytest.raises(DataflowError, match="max_ahead is -1: it must be a number or timedelta of at least 0"):
        stream.assign_timestamps("t", max_ahead=-1)
    with pytest.raises(DataflowError, match="do not go together"):
        stream.assign_timestamps("t", max_delay=1, max_ahead=dt.timedelta(1))
    with pytest.raises(DataflowError, match="do not go together"):
        stream.assign_timestamps("t", max_ahead=1).key_by("t").window(rd.windows.tumbling(dt.timedelta(1)))
